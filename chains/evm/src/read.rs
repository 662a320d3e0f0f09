//! Blocks with their content, proved by what their header commits to.
//!
//! Promises: everything is fetched by hash or proved to be at its number; a batch hangs together by parent links, and
//! ends where it does not; an empty or missing answer is an error or the end of a prefix, never an empty block.

use std::ops::RangeInclusive;

use landfall_chain::{Block, BlockHash, BlockRef, Header, Proof, Signers, TxId};
use serde_json::json;

use crate::answer::Raw;
use crate::endpoint::Endpoint;
use crate::error::EvmError;
use crate::headers::{BY_NUMBER, by_number, proved_header, refused};
use crate::hex::Data;
use crate::learnt::BATCH_MAX;
use crate::legs::{self, Listed};
use crate::polygon;
use crate::proof;
use crate::rpc::Call;
use crate::stack::Stack;
use crate::wire::{Kind, WireBlock, WireReceipt, WireTx, WireTypes};
use crate::withdrawals;

pub(crate) const RECEIPTS: &str = "eth_getBlockReceipts";
const RAW_TX: &str = "eth_getRawTransactionByBlockHashAndIndex";
/// A block may need two more calls: its receipts, and on Polygon the encoding of a transaction.
pub(crate) const BLOCKS_MAX: usize = BATCH_MAX / 2;

type FullBlock<'a> = WireBlock<'a, Vec<WireTx<'a>>>;

/// Reads blocks of one network.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) stack: Stack,
    pub(crate) listed: Listed,
}

impl Reader {
    pub(crate) async fn blocks(&self, endpoint: &Endpoint, range: RangeInclusive<u64>) -> Result<Vec<Block>, EvmError> {
        let calls = by_number(range.clone().take(BLOCKS_MAX), true);
        let answers = endpoint.ask_all(&calls).await?;
        let mut linked: Vec<(Header, FullBlock<'_>)> = Vec::with_capacity(answers.len());
        for (number, answer) in range.zip(&answers) {
            let Some(mut block) = full_block(endpoint, self.stack, answer)? else { break };
            let header = proved_header(endpoint, number, &block)?;
            // The node changed its mind between two answers: what is up to here holds, the rest is read again.
            if linked.last().is_some_and(|(parent, _)| parent.block != header.parent) {
                break;
            }
            polygon::set_aside_tx(self.stack, &mut block);
            linked.push((header, block));
        }
        let calls: Vec<Call> = linked.iter().flat_map(|(header, block)| self.content(header, block)).collect();
        let answers = endpoint.ask_all(&calls).await?;
        let mut answers = answers.iter();
        let mut blocks = Vec::with_capacity(linked.len());
        for (header, block) in &linked {
            let answers = self.content(header, block).into_iter().zip(answers.by_ref());
            blocks.push(self.block(endpoint, *header, block, answers)?);
            // Proving is work for the processor: others may have a turn between two blocks.
            tokio::task::yield_now().await;
        }
        Ok(blocks)
    }

    /// What must be asked to prove the content of a block. By hash: of the block that was read, not of its successor
    /// at the same number. A block without transactions has no receipts to ask for, and its receipts root says so.
    fn content(&self, header: &Header, block: &FullBlock<'_>) -> Vec<Call> {
        let hash = header.block.hash.to_string();
        let raw = polygon::state_sync(self.stack, block);
        let raw = raw.map(|index| Call { method: RAW_TX, params: json!([hash, format!("{index:#x}")]) });
        let receipts = (!block.transactions.is_empty()).then(|| Call { method: RECEIPTS, params: json!([hash]) });
        receipts.into_iter().chain(raw).collect()
    }

    /// The block with its legs, when its content is proved too.
    fn block<'a>(
        &self,
        endpoint: &Endpoint,
        header: Header,
        block: &FullBlock<'_>,
        answers: impl Iterator<Item = (Call, &'a Raw)>,
    ) -> Result<Block, EvmError> {
        let (mut receipts, mut raw): (Option<Vec<WireReceipt<'_>>>, Option<Data<'_>>) = (None, None);
        for (call, answer) in answers {
            match call.method {
                RECEIPTS => receipts = endpoint.parse(RECEIPTS, answer)?,
                _ => raw = endpoint.parse(RAW_TX, answer)?,
            }
        }
        let mut receipts = receipts.unwrap_or_default();
        polygon::set_aside_receipt(self.stack, block, &mut receipts);
        if receipts.is_empty() && !block.transactions.is_empty() {
            let count = block.transactions.len();
            let reason = format!("no receipts for block {} with {count} transactions", header.block);
            return Err(endpoint.unusable(RECEIPTS, &reason));
        }
        let refused = |method| move |refusal| refused(endpoint, header.block, method, &refusal);
        proof::transactions(self.stack, block, raw.as_ref()).map_err(refused(BY_NUMBER))?;
        proof::withdrawals(self.stack, block).map_err(refused(BY_NUMBER))?;
        proof::receipts(self.stack, block, &receipts).map_err(refused(RECEIPTS))?;
        let withdrawals = withdrawals::of_block(self.stack, block).iter().map(withdrawals::id);
        Ok(Block {
            header,
            txs: block.transactions.iter().map(|tx| TxId::Evm(tx.hash.0)).chain(withdrawals).collect(),
            transfers: legs::of_block(self.stack, block, &receipts, &self.listed),
            fees: Vec::new(),
            rejected: Vec::new(),
            proof: Proof::Roots,
            signers: Signers::default(),
        })
    }
}

fn full_block<'a>(endpoint: &Endpoint, stack: Stack, answer: &'a Raw) -> Result<Option<FullBlock<'a>>, EvmError> {
    endpoint.parse(BY_NUMBER, answer).map_err(|error| {
        // A type of the future may lack what every type has today: then it is no malformed answer.
        let Ok(types) = endpoint.parse::<WireTypes>(BY_NUMBER, answer) else { return error };
        let unknown = types.transactions.iter().find_map(|tx| Kind::parse(tx.kind, stack).err());
        let block = BlockRef { number: types.number.0, hash: BlockHash(types.hash.0) };
        let newer = |kind| EvmError::UpgradeNeeded { chain: endpoint.chain, block, what: "a transaction", kind };
        unknown.map_or(error, newer)
    })
}
