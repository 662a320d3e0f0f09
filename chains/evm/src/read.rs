//! Blocks with their content, proved by what their header commits to.
//!
//! Promises: everything is fetched by hash or proved to be at its number. The blocks of a batch are linked by their
//! parents, and the batch ends where they are not. An empty or missing answer is an error or the end of a prefix,
//! never an empty block. One request asks for blocks and receipts by number: their roots prove that they belong
//! together. Where they do not (a reorg, or another node between two calls of the batch), the receipts are asked for
//! again, by hash. If they are still of another block, they are no answer; if they name this block and do not fit,
//! that is a failed proof.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use landfall_chain::{Block, BlockHash, BlockRef, Debits, Header, Legs, Proof, TxId};
use landfall_rpc::{Answer, Call, Dialect, Raw};
use serde_json::json;
use tokio::time::Instant;

use crate::byzantium;
use crate::dialect::{Endpoint, Evm, Pool};
use crate::error::EvmError;
use crate::headers::{BY_NUMBER, by_number, proved_header, refused};
use crate::hex::{Data, Quantity};
use crate::legs::fees;
use crate::legs::withdrawals;
use crate::legs::{self, Rules};
use crate::logs::Sources;
use crate::pay::marks;
use crate::polygon::{self, Place, RAW_TX};
use crate::proof;
use crate::signer;
use crate::stack::Stack;
use crate::traces::frames::ProvedTx;
use crate::wire::{Kind, WireBlock, WireReceipt, WireTx, WireTypes};

pub(crate) const RECEIPTS: &str = "eth_getBlockReceipts";
/// Each block is two calls of a batch, or two of the next: its receipts, and on Polygon the encoding of a transaction.
pub(crate) const BLOCKS_MAX: usize = Evm::BATCH_MAX / 2;

/// A failure that comes later than this is no refusal: the request hangs, and is not waited for twice.
const REFUSED_WITHIN: Duration = Duration::from_secs(2);

pub(crate) type FullBlock<'a> = WireBlock<'a, Vec<WireTx<'a>>>;

/// Reads blocks of one network.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) rules: Rules,
    pub(crate) sources: Sources,
    pub(crate) pool: Arc<Pool>,
}

/// A block whose header is proved.
pub(crate) struct Found<'a> {
    pub(crate) header: Header,
    pub(crate) block: FullBlock<'a>,
    /// When they are of this block; the root decides whether they are true.
    receipts: Option<Receipts<'a>>,
    /// The encoding of its state-sync, where it was asked for beside the block.
    encoding: Option<&'a Raw>,
}

impl Found<'_> {
    pub(crate) fn state_sync(&self, stack: Stack) -> Option<Place> {
        polygon::state_sync(stack, self.header.block, &self.block)
    }
}

/// The receipts of a block, and the one that Polygon's nodes may put behind them, which nothing proves.
#[derive(Default)]
struct Receipts<'a> {
    all: Vec<WireReceipt<'a>>,
    pseudo: Option<WireReceipt<'a>>,
}

/// A block that stands on the one before it.
enum Linked<'a, T> {
    Proved(Box<(Block, T)>),
    /// Something must still be asked for.
    NotFound(Box<Found<'a>>),
}

impl<'a, T> Linked<'a, T> {
    fn lacking(&self) -> Option<&Found<'a>> {
        match self {
            Linked::Proved(_) => None,
            Linked::NotFound(found) => Some(found.as_ref()),
        }
    }
}

impl Reader {
    pub(crate) async fn blocks(
        &self,
        endpoint: &Endpoint,
        range: RangeInclusive<u64>,
        legs: Legs,
    ) -> Result<Vec<Block>, EvmError> {
        let blocks = self.read(endpoint, range, legs, |_, _| ()).await?;
        Ok(blocks.into_iter().map(|(block, ())| block).collect())
    }

    /// The blocks, each with what is proved of its transactions.
    pub(crate) async fn blocks_and_txs(
        &self,
        endpoint: &Endpoint,
        range: RangeInclusive<u64>,
    ) -> Result<Vec<(Block, Vec<ProvedTx>)>, EvmError> {
        let stack = self.rules.stack;
        self.read(endpoint, range, Legs::Creditable, |block, receipts| ProvedTx::of_block(stack, block, receipts)).await
    }

    /// `more` sees the content of each block after it was proved.
    async fn read<T>(
        &self,
        endpoint: &Endpoint,
        range: RangeInclusive<u64>,
        legs: Legs,
        more: impl Fn(&FullBlock<'_>, &[WireReceipt<'_>]) -> T,
    ) -> Result<Vec<(Block, T)>, EvmError> {
        let (mut numbers, mut blocks) = (range.take(BLOCKS_MAX), Vec::new());
        while let Some(part) = next_part(endpoint, &mut numbers, 2) {
            let wanted = part.clone().count();
            let parent = blocks.last().map(|(block, _): &(Block, T)| block.header);
            let read = self.read_part(endpoint, part, parent, legs, &more).await?;
            let is_whole = read.len() == wanted;
            blocks.extend(read);
            if !is_whole {
                break;
            }
        }
        Ok(blocks)
    }

    /// As many of `range` as stand on `parent`, and each on the one before it.
    async fn read_part<T>(
        &self,
        endpoint: &Endpoint,
        range: RangeInclusive<u64>,
        mut parent: Option<Header>,
        legs: Legs,
        more: &impl Fn(&FullBlock<'_>, &[WireReceipt<'_>]) -> T,
    ) -> Result<Vec<(Block, T)>, EvmError> {
        let receipts = range.clone().map(|number| receipts_of(&format!("{number:#x}")));
        let blocks = by_number(range.clone(), true).into_iter();
        let mut calls: Vec<Call> = blocks.zip(receipts).flat_map(<[Call; 2]>::from).collect();
        let mut foreseen = self.pool.dialect().foreseen.within(&range);
        calls.extend(foreseen.as_ref().map(Place::call));
        let begun = Instant::now();
        let mut answers = match &foreseen {
            None => endpoint.ask(&calls).await?,
            Some(_) => match endpoint.ask_together(&calls).await {
                // Some nodes refuse all calls because of one method.
                Err(_) if begun.elapsed() < REFUSED_WITHIN => {
                    (foreseen, _) = (None, calls.pop());
                    endpoint.ask(&calls).await?
                }
                answers => answers?,
            },
        };
        let encoding = foreseen.and_then(|_| answers.pop()?.ok()).filter(polygon::is_given);
        let mut linked = Vec::with_capacity(answers.len() / 2);
        for (number, answers) in range.zip(answers.chunks_exact(2)) {
            let block = answers[0].as_ref().map_err(|error| endpoint.refused(BY_NUMBER, error))?;
            let Some(mut found) = self.next(endpoint, number, block, parent.as_ref())? else { break };
            parent = Some(found.header);
            found.receipts = self.fitting(endpoint, &found, &answers[1])?;
            found.encoding = encoding.as_ref().filter(|_| found.state_sync(self.rules.stack) == foreseen);
            // Proved at once: the parsed form of many blocks is more than a processor's cache holds.
            linked.push(if self.content(&found).is_empty() {
                Linked::Proved(Box::new(self.prove(endpoint, found, std::iter::empty(), legs, more)?))
            } else {
                Linked::NotFound(Box::new(found))
            });
            // Proving is work for the processor: others may run between two blocks.
            tokio::task::yield_now().await;
        }
        self.completed(endpoint, linked, legs, more).await
    }

    /// The blocks in their order. What is missing for some of them is asked for in one request.
    async fn completed<T>(
        &self,
        endpoint: &Endpoint,
        linked: Vec<Linked<'_, T>>,
        legs: Legs,
        more: &impl Fn(&FullBlock<'_>, &[WireReceipt<'_>]) -> T,
    ) -> Result<Vec<(Block, T)>, EvmError> {
        let lacking: Vec<&Found<'_>> = linked.iter().filter_map(Linked::lacking).collect();
        let calls: Vec<Call> = lacking.iter().flat_map(|found| self.content(found)).collect();
        let answers = self.contents(endpoint, &calls, &lacking).await?;
        let mut answers = answers.iter();
        let mut blocks = Vec::with_capacity(linked.len());
        for step in linked {
            blocks.push(match step {
                Linked::Proved(block) => *block,
                Linked::NotFound(found) => {
                    let answers = self.content(&found).into_iter().zip(answers.by_ref());
                    self.prove(endpoint, *found, answers, legs, more)?
                }
            });
        }
        Ok(blocks)
    }

    /// The block at `number`, when it is there and stands on `parent`. When it does not, the node's chain changed
    /// between two answers: the blocks up to here hold, the rest is read again.
    pub(crate) fn next<'a>(
        &self,
        endpoint: &Endpoint,
        number: u64,
        answer: &'a Raw,
        parent: Option<&Header>,
    ) -> Result<Option<Found<'a>>, EvmError> {
        let Some(mut block) = full_block(endpoint, self.rules.stack, answer)? else { return Ok(None) };
        let header = proved_header(endpoint, number, &block)?;
        if parent.is_some_and(|parent| parent.block != header.parent) {
            return Ok(None);
        }
        polygon::set_aside_tx(self.rules.stack, &mut block);
        Ok(Some(Found { header, block, receipts: None, encoding: None }))
    }

    /// The receipts that a node reported for the block's number, when they are of this block. A block without
    /// transactions has none, and its receipts root says so.
    fn fitting<'a>(
        &self,
        endpoint: &Endpoint,
        found: &Found<'_>,
        answer: &'a Answer,
    ) -> Result<Option<Receipts<'a>>, EvmError> {
        let block = &found.block;
        // Refused: the node that was asked for the receipts may not have the block yet.
        let Ok(answer) = answer else { return Ok(block.transactions.is_empty().then(Receipts::default)) };
        let receipts = self.receipts(endpoint, &found.header, block, answer)?;
        let is_of_block = |receipt: &WireReceipt<'_>| receipt.block_hash == block.hash;
        let fit = receipts.all.len() == block.transactions.len() && receipts.all.iter().all(is_of_block);
        Ok(if fit { Some(receipts) } else { block.transactions.is_empty().then(Receipts::default) })
    }

    /// The receipts that an endpoint reports of a block.
    fn receipts<'a>(
        &self,
        endpoint: &Endpoint,
        header: &Header,
        block: &FullBlock<'_>,
        answer: &'a Raw,
    ) -> Result<Receipts<'a>, EvmError> {
        let stack = self.rules.stack;
        let receipts: Option<Vec<WireReceipt<'_>>> = endpoint.parse(RECEIPTS, answer).map_err(|error| {
            let kinds = block.transactions.iter().map(|tx| tx.kind);
            newer(endpoint, stack, header.block, kinds).unwrap_or(error)
        })?;
        let mut all = receipts.unwrap_or_default();
        let pseudo = polygon::set_aside_receipt(stack, block, &mut all);
        Ok(Receipts { all, pseudo })
    }

    /// What must still be asked to prove the content of a block. By hash: of the block that was read, not of its
    /// successor at the same number.
    pub(crate) fn content(&self, found: &Found<'_>) -> Vec<Call> {
        let hash = found.header.block.hash.to_string();
        let raw = found.state_sync(self.rules.stack).filter(|_| found.encoding.is_none());
        let has_receipts = found.receipts.is_some() || found.block.transactions.is_empty();
        let receipts = (!has_receipts).then(|| receipts_of(&hash));
        receipts.into_iter().chain(raw.as_ref().map(Place::call)).collect()
    }

    /// The answers to `calls`, which are those of `found`. A node that does not return a state-sync by its place may
    /// return it by its hash.
    async fn contents(&self, endpoint: &Endpoint, calls: &[Call], found: &[&Found<'_>]) -> Result<Vec<Raw>, EvmError> {
        let mut syncs = found.iter().filter_map(|found| {
            let hash = found.state_sync(self.rules.stack)?.hash(&found.block)?;
            found.encoding.is_none().then_some((found.header.block, hash))
        });
        let mut answers = Vec::with_capacity(calls.len());
        for (call, answer) in calls.iter().zip(endpoint.ask(calls).await?) {
            let sync = if call.method == RAW_TX { syncs.next() } else { None };
            answers.push(match (answer, sync) {
                (Ok(answer), None) => answer,
                (Ok(answer), Some(_)) if polygon::is_given(&answer) => answer,
                (answer, Some((block, hash))) => polygon::encoding(endpoint, block, &hash, &answer).await?,
                (Err(error), None) => return Err(endpoint.refused(call.method, &error)),
            });
        }
        Ok(answers)
    }

    /// Asks for what is missing to prove a block, and proves it.
    pub(crate) async fn with_receipts(&self, endpoint: &Endpoint, found: Found<'_>) -> Result<Block, EvmError> {
        let calls = self.content(&found);
        let answers = self.contents(endpoint, &calls, &[&found]).await?;
        let answers = calls.into_iter().zip(answers.iter());
        let (block, ()) = self.prove(endpoint, found, answers, Legs::Creditable, |_, _| ())?;
        Ok(block)
    }

    /// The block with its legs, when its content is proved too. `answers` are those to [`Reader::content`].
    fn prove<'a, T>(
        &self,
        endpoint: &Endpoint,
        found: Found<'a>,
        answers: impl Iterator<Item = (Call, &'a Raw)>,
        legs: Legs,
        more: impl Fn(&FullBlock<'_>, &[WireReceipt<'_>]) -> T,
    ) -> Result<(Block, T), EvmError> {
        let Found { header, block, mut receipts, encoding } = found;
        let mut raw: Option<Data<'_>> = encoding.map(|answer| endpoint.parse(RAW_TX, answer)).transpose()?.flatten();
        for (call, answer) in answers {
            match call.method {
                RECEIPTS => receipts = Some(self.receipts(endpoint, &header, &block, answer)?),
                _ => raw = endpoint.parse(RAW_TX, answer)?,
            }
        }
        let Receipts { all: receipts, pseudo } = receipts.unwrap_or_default();
        if receipts.is_empty() && !block.transactions.is_empty() {
            let count = block.transactions.len();
            let reason = format!("no receipts for block {} with {count} transactions", header.block);
            return Err(endpoint.unusable(RECEIPTS, &reason));
        }
        let refused = |method| move |refusal| refused(endpoint, header.block, method, &refusal);
        let stack = self.rules.stack;
        let leaves = proof::transactions(stack, &block, raw.as_ref()).map_err(refused(BY_NUMBER))?;
        proof::withdrawals(stack, &block).map_err(refused(BY_NUMBER))?;
        // No lie: it answered for another block, on another branch or by another node behind the same address.
        if !receipts.is_empty() && receipts.iter().all(|receipt| receipt.block_hash != block.hash) {
            let reason = format!("the receipts are not of block {}", header.block);
            return Err(endpoint.unusable(RECEIPTS, &reason));
        }
        proof::receipts(stack, &block, &receipts).map_err(|refusal| {
            let lacks = byzantium::lacks_roots(endpoint, &block, &receipts, &refusal);
            lacks.unwrap_or_else(|| refused(RECEIPTS)(refusal))
        })?;
        let judged = legs::of_block(&self.rules, &block, &receipts, pseudo.as_ref(), legs);
        let judged = judged.map_err(|refusal| signer::prove_where_unlogged(stack, &block, &leaves, refusal));
        let judged = judged.map_err(refused(RECEIPTS))?;
        let txs = txs(stack, &block);
        let signers = signer::on_demand(&self.pool, endpoint, stack, header.block, &txs, leaves);
        let proved = Block {
            header,
            transfers: judged.transfers,
            debits: Debits::ByLegs,
            unattributed: Vec::new(),
            fees: fees::of_block(stack, &block, &receipts),
            marks: marks::of_block(&self.rules, &block, &receipts),
            rejected: judged.rejected,
            fee_recipient: fees::recipient(stack, &block),
            proof: Proof::Roots,
            inside: None,
            signers,
            txs,
        };
        Ok((proved, more(&block, &receipts)))
    }
}

/// Every transaction of a block, and the ids that stand for those of withdrawals.
pub(crate) fn txs(stack: Stack, block: &FullBlock<'_>) -> Vec<TxId> {
    let withdrawals = withdrawals::of_block(stack, block).iter().map(withdrawals::id);
    block.transactions.iter().map(|tx| TxId::Evm(tx.hash.0)).chain(withdrawals).collect()
}

/// The next of `numbers` that are asked for at once, with so many `calls` for each block. The answers to one part are
/// freed before the next is asked for.
pub(crate) fn next_part(
    endpoint: &Endpoint,
    numbers: &mut impl Iterator<Item = u64>,
    calls: usize,
) -> Option<RangeInclusive<u64>> {
    let first = numbers.next()?;
    let more = (endpoint.batch_width() / calls).saturating_sub(1);
    Some(first..=numbers.take(more).last().unwrap_or(first))
}

/// `block` is a number or a hash.
fn receipts_of(block: &str) -> Call {
    Call { method: RECEIPTS, params: json!([block]) }
}

fn full_block<'a>(endpoint: &Endpoint, stack: Stack, answer: &'a Raw) -> Result<Option<FullBlock<'a>>, EvmError> {
    endpoint.parse(BY_NUMBER, answer).map_err(|error| {
        let Ok(types) = endpoint.parse::<WireTypes>(BY_NUMBER, answer) else { return error };
        let block = BlockRef { number: types.number.0, hash: BlockHash(types.hash.0) };
        newer(endpoint, stack, block, types.transactions.iter().map(|tx| tx.kind)).unwrap_or(error)
    })
}

/// Why an answer about a block with a transaction of an unknown type cannot be read. It, or its receipt, may be
/// without fields that every one has today; then the answer is not malformed.
fn newer(
    endpoint: &Endpoint,
    stack: Stack,
    block: BlockRef,
    mut kinds: impl Iterator<Item = Option<Quantity>>,
) -> Option<EvmError> {
    let kind = kinds.find_map(|kind| Kind::parse(kind, stack).err())?;
    Some(EvmError::UpgradeNeeded { chain: endpoint.chain, block, what: "a transaction", kind })
}
