//! Blocks with their content, proved by what their header commits to.
//!
//! Promises: everything is fetched by hash or proved to be at its number; a batch hangs together by parent links, and
//! ends where it does not; an empty or missing answer is an error or the end of a prefix, never an empty block.
//! One request asks for blocks and receipts by number: their roots prove that they belong together. Where they do not
//! (a reorg or another node between two calls of the batch), the receipts are asked for again, by hash.

use std::ops::RangeInclusive;

use landfall_chain::{Block, BlockHash, BlockRef, Header, Proof, Signers, TxId};
use serde_json::json;
use serde_json::value::RawValue;

use crate::error::EvmError;
use crate::headers::{BATCH_MAX, BY_NUMBER, by_number, proved_header, refused};
use crate::hex::Data;
use crate::legs::{self, Listed};
use crate::logs::Sources;
use crate::polygon;
use crate::pool::Endpoint;
use crate::proof;
use crate::rpc::{Answer, Call};
use crate::stack::Stack;
use crate::wire::{Kind, WireBlock, WireReceipt, WireTx, WireTypes};
use crate::withdrawals;

pub(crate) const RECEIPTS: &str = "eth_getBlockReceipts";
const RAW_TX: &str = "eth_getRawTransactionByBlockHashAndIndex";
/// Each block is two calls of a batch, or two of the next: its receipts, and on Polygon the encoding of a transaction.
pub(crate) const BLOCKS_MAX: usize = BATCH_MAX / 2;

pub(crate) type FullBlock<'a> = WireBlock<'a, Vec<WireTx<'a>>>;

/// Reads blocks of one network.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) stack: Stack,
    pub(crate) listed: Listed,
    pub(crate) sources: Sources,
}

/// A block whose header is proved.
pub(crate) struct Found<'a> {
    pub(crate) header: Header,
    pub(crate) block: FullBlock<'a>,
    /// When they are of this block; whether they are true is for the root to say.
    receipts: Option<Vec<WireReceipt<'a>>>,
}

impl Reader {
    pub(crate) async fn blocks(&self, endpoint: &Endpoint, range: RangeInclusive<u64>) -> Result<Vec<Block>, EvmError> {
        let numbers = || range.clone().take(BLOCKS_MAX);
        let receipts = numbers().map(|number| receipts_of(&format!("{number:#x}")));
        let calls: Vec<Call> =
            by_number(numbers(), true).into_iter().zip(receipts).flat_map(<[Call; 2]>::from).collect();
        let answers = endpoint.ask(&calls).await?;
        let mut linked: Vec<Found<'_>> = Vec::with_capacity(answers.len() / 2);
        for (number, answers) in range.clone().zip(answers.chunks_exact(2)) {
            let block = answers[0].as_ref().map_err(|error| endpoint.refused(BY_NUMBER, error))?;
            let Some(mut found) = self.next(endpoint, number, block, linked.last())? else { break };
            found.receipts = self.fitting(endpoint, &found.block, &answers[1])?;
            linked.push(found);
        }
        let calls: Vec<Call> = linked.iter().flat_map(|found| self.content(found)).collect();
        let answers = endpoint.ask_all(&calls).await?;
        let mut answers = answers.iter().map(|answer| &**answer);
        let mut blocks = Vec::with_capacity(linked.len());
        for found in linked {
            let answers = self.content(&found).into_iter().zip(answers.by_ref());
            blocks.push(self.prove(endpoint, found, answers)?);
            // Proving is work for the processor: others may have a turn between two blocks.
            tokio::task::yield_now().await;
        }
        Ok(blocks)
    }

    /// The block at `number`, when it is there and stands on `parent`. When it does not, the node changed its mind
    /// between two answers: what is up to here holds, the rest is read again.
    pub(crate) fn next<'a>(
        &self,
        endpoint: &Endpoint,
        number: u64,
        answer: &'a RawValue,
        parent: Option<&Found<'_>>,
    ) -> Result<Option<Found<'a>>, EvmError> {
        let Some(mut block) = full_block(endpoint, self.stack, answer)? else { return Ok(None) };
        let header = proved_header(endpoint, number, &block)?;
        if parent.is_some_and(|parent| parent.header.block != header.parent) {
            return Ok(None);
        }
        polygon::set_aside_tx(self.stack, &mut block);
        Ok(Some(Found { header, block, receipts: None }))
    }

    /// The receipts that a node told for the block's number, when they are of this block. A block without
    /// transactions has none, and its receipts root says so.
    fn fitting<'a>(
        &self,
        endpoint: &Endpoint,
        block: &FullBlock<'_>,
        answer: &'a Answer,
    ) -> Result<Option<Vec<WireReceipt<'a>>>, EvmError> {
        if block.transactions.is_empty() {
            return Ok(Some(Vec::new()));
        }
        // Refused: the node that was asked for the receipts may not have the block yet.
        let Ok(answer) = answer else { return Ok(None) };
        let receipts: Option<Vec<WireReceipt<'_>>> = endpoint.parse(RECEIPTS, answer)?;
        let mut receipts = receipts.unwrap_or_default();
        polygon::set_aside_receipt(self.stack, block, &mut receipts);
        let fit = receipts.len() == block.transactions.len() && receipts.iter().all(|it| it.block_hash == block.hash);
        Ok(fit.then_some(receipts))
    }

    /// What must still be asked to prove the content of a block. By hash: of the block that was read, not of its
    /// successor at the same number.
    pub(crate) fn content(&self, found: &Found<'_>) -> Vec<Call> {
        let hash = found.header.block.hash.to_string();
        let raw = polygon::state_sync(self.stack, &found.block);
        let raw = raw.map(|index| Call { method: RAW_TX, params: json!([hash, format!("{index:#x}")]) });
        let has_receipts = found.receipts.is_some() || found.block.transactions.is_empty();
        let receipts = (!has_receipts).then(|| receipts_of(&hash));
        receipts.into_iter().chain(raw).collect()
    }

    /// The block with its legs, when its content is proved too. `answers` are those to [`Reader::content`].
    pub(crate) fn prove<'a>(
        &self,
        endpoint: &Endpoint,
        found: Found<'a>,
        answers: impl Iterator<Item = (Call, &'a RawValue)>,
    ) -> Result<Block, EvmError> {
        let Found { header, block, mut receipts } = found;
        let mut raw: Option<Data<'_>> = None;
        for (call, answer) in answers {
            match call.method {
                RECEIPTS => receipts = endpoint.parse(RECEIPTS, answer)?,
                _ => raw = endpoint.parse(RAW_TX, answer)?,
            }
        }
        let mut receipts = receipts.unwrap_or_default();
        polygon::set_aside_receipt(self.stack, &block, &mut receipts);
        if receipts.is_empty() && !block.transactions.is_empty() {
            let count = block.transactions.len();
            let reason = format!("no receipts for block {} with {count} transactions", header.block);
            return Err(endpoint.unusable(RECEIPTS, &reason));
        }
        let refused = |method| move |refusal| refused(endpoint, header.block, method, &refusal);
        proof::transactions(self.stack, &block, raw.as_ref()).map_err(refused(BY_NUMBER))?;
        proof::withdrawals(self.stack, &block).map_err(refused(BY_NUMBER))?;
        proof::receipts(self.stack, &block, &receipts).map_err(refused(RECEIPTS))?;
        Ok(Block {
            header,
            txs: txs(self.stack, &block),
            transfers: legs::of_block(self.stack, &block, &receipts, &self.listed),
            fees: Vec::new(),
            rejected: Vec::new(),
            proof: Proof::Roots,
            signers: Signers::default(),
        })
    }
}

/// Every transaction of a block, and what stands for those that withdrawals have not.
pub(crate) fn txs(stack: Stack, block: &FullBlock<'_>) -> Vec<TxId> {
    let withdrawals = withdrawals::of_block(stack, block).iter().map(withdrawals::id);
    block.transactions.iter().map(|tx| TxId::Evm(tx.hash.0)).chain(withdrawals).collect()
}

/// `block` is a number or a hash.
fn receipts_of(block: &str) -> Call {
    Call { method: RECEIPTS, params: json!([block]) }
}

fn full_block<'a>(endpoint: &Endpoint, stack: Stack, answer: &'a RawValue) -> Result<Option<FullBlock<'a>>, EvmError> {
    endpoint.parse(BY_NUMBER, answer).map_err(|error| {
        // A type of the future may lack what every type has today: then it is no malformed answer.
        let Ok(types) = endpoint.parse::<WireTypes>(BY_NUMBER, answer) else { return error };
        let unknown = types.transactions.iter().find_map(|tx| Kind::parse(tx.kind, stack).err());
        let block = BlockRef { number: types.number.0, hash: BlockHash(types.hash.0) };
        let newer = |kind| EvmError::UpgradeNeeded { chain: endpoint.chain, block, what: "a transaction", kind };
        unknown.map_or(error, newer)
    })
}
