//! Reads an EVM chain: tip, headers, blocks with their content, the fate of a transaction.
//!
//! Promises: everything is fetched by hash or proved to be at its number; a batch hangs together by parent links,
//! and ends where it does not; `blocks` costs two HTTP requests however many blocks it reads; an empty or missing
//! answer is an error or the end of a prefix, never an empty block.
//! Deliberately not here: retries, and memory of what was read.

use std::ops::RangeInclusive;

use landfall_chain::{
    Address, Block, BlockHash, BlockRef, BlockSource, Endpoints, Family, Fate, Finality, Header, Network, Proof,
    SourceError, Tip, TxId, TxLife, TxRef,
};
use serde::de::IgnoredAny;
use serde_json::json;
use serde_json::value::RawValue;
use url::Url;

use crate::error::EvmError;
use crate::hex::{Data, Quantity};
use crate::legs::{self, Listed};
use crate::networks;
use crate::polygon;
use crate::pool::{Endpoint, Pool};
use crate::proof::{self, Refusal};
use crate::rpc::{Answer, Call, NodeError};
use crate::stack::Stack;
use crate::wire::{Kind, WireBlock, WirePlace, WireReceipt, WireTx, WireTypes};
use crate::withdrawals;

const BY_NUMBER: &str = "eth_getBlockByNumber";
const RECEIPTS: &str = "eth_getBlockReceipts";
const RECEIPT: &str = "eth_getTransactionReceipt";
const RAW_TX: &str = "eth_getRawTransactionByBlockHashAndIndex";
const NONCE: &str = "eth_getTransactionCount";

/// Besu's and EIP-1474's code for a block that a tag does not name yet.
const UNKNOWN_BLOCK: i64 = -39_001;

/// geth's `--rpc.batch-request-limit`. What is asked for beyond it does not come back.
const BATCH_MAX: usize = 1000;
/// A block may need two more calls: its receipts, and on Polygon the encoding of a transaction.
const BLOCKS_MAX: usize = BATCH_MAX / 2;

type HeaderOnly<'a> = WireBlock<'a, IgnoredAny>;
type FullBlock<'a> = WireBlock<'a, Vec<WireTx<'a>>>;

/// One EVM network, read over JSON-RPC.
#[derive(Debug)]
pub struct EvmSource {
    finality: Finality,
    stack: Stack,
    listed: Listed,
    pool: Pool,
}

impl EvmSource {
    /// A source over `rpc_urls`, of which the first is asked first. Touches no network.
    ///
    /// # Errors
    /// A network of another family, and a URL that cannot be used.
    pub fn new(network: Network, rpc_urls: &[Url]) -> Result<Self, EvmError> {
        let chain = network.chain;
        if chain.family() != Family::Evm {
            return Err(EvmError::NotEvm { chain });
        }
        let chain_id = network.chain_ref.strip_prefix("eip155:").and_then(|id| id.parse().ok());
        let chain_id = chain_id.ok_or_else(|| EvmError::ChainRef { chain, chain_ref: network.chain_ref.clone() })?;
        Ok(EvmSource {
            finality: network.finality,
            stack: networks::stack(chain),
            listed: Listed::of(&network),
            pool: Pool::new(chain, chain_id, rpc_urls)?,
        })
    }

    /// The states of the endpoints; clones share them.
    pub fn endpoints(&self) -> Endpoints {
        self.pool.statuses()
    }

    /// For the start: asks every endpoint for its chain id that has not told it yet.
    ///
    /// # Errors
    /// Permanent when an endpoint serves another chain; transient when one cannot be asked.
    pub async fn check(&self) -> Result<(), SourceError> {
        Ok(self.pool.check().await?)
    }

    async fn read_tip(&self, endpoint: &Endpoint) -> Result<Tip, EvmError> {
        let tag = match self.finality {
            Finality::Finalized => Some("finalized"),
            Finality::Safe => Some("safe"),
            Finality::Confirmations(_) => None,
        };
        let tagged = |tag| Call { method: BY_NUMBER, params: json!([tag, false]) };
        let calls: Vec<Call> = std::iter::once("latest").chain(tag).map(tagged).collect();
        let mut answers = endpoint.ask(&calls).await?.into_iter();
        let latest = match answers.next() {
            Some(Ok(answer)) => header_of(endpoint, &answer)?,
            Some(Err(error)) => return Err(endpoint.refused(BY_NUMBER, &error)),
            None => None,
        };
        let latest = latest.ok_or_else(|| endpoint.unusable(BY_NUMBER, "no latest block"))?.block;
        let finalized = match (self.finality, answers.next()) {
            (Finality::Confirmations(count), _) => confirmed(endpoint, latest, count).await?,
            (Finality::Finalized | Finality::Safe, Some(answer)) => tagged_block(endpoint, answer)?,
            (Finality::Finalized | Finality::Safe, None) => None,
        };
        if let Some(finalized) = finalized
            && (finalized.number > latest.number || finalized.number == latest.number && finalized != latest)
        {
            let reason = format!("block {finalized} is called final, but the latest is {latest}");
            return Err(endpoint.unusable(BY_NUMBER, &reason));
        }
        Ok(Tip { latest, finalized })
    }

    async fn read_blocks(&self, endpoint: &Endpoint, range: RangeInclusive<u64>) -> Result<Vec<Block>, EvmError> {
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
        let mut answers = answers.iter().map(|answer| &**answer);
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
        answers: impl Iterator<Item = (Call, &'a RawValue)>,
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
            proof: Proof::Roots,
        })
    }
}

impl BlockSource for EvmSource {
    async fn tip(&self) -> Result<Tip, SourceError> {
        let endpoint = self.pool.pick().await?;
        let tip = self.read_tip(endpoint).await;
        self.pool.settle(endpoint, tip, |tip| Some(tip.latest.number))
    }

    async fn headers(&self, range: RangeInclusive<u64>) -> Result<Vec<Header>, SourceError> {
        let endpoint = self.pool.pick().await?;
        let headers = read_headers(endpoint, range).await;
        self.pool.settle(endpoint, headers, |_| None)
    }

    async fn blocks(&self, range: RangeInclusive<u64>) -> Result<Vec<Block>, SourceError> {
        let endpoint = self.pool.pick().await?;
        let blocks = self.read_blocks(endpoint, range).await;
        self.pool.settle(endpoint, blocks, |_| None)
    }

    async fn fate(&self, tx: &TxRef, at: &BlockRef) -> Result<Fate, SourceError> {
        let endpoint = self.pool.pick().await?;
        let fate = read_fate(endpoint, tx, at).await;
        self.pool.settle(endpoint, fate, |_| None)
    }
}

async fn read_headers(endpoint: &Endpoint, range: RangeInclusive<u64>) -> Result<Vec<Header>, EvmError> {
    let answers = endpoint.ask_all(&by_number(range.clone().take(BATCH_MAX), false)).await?;
    let mut headers: Vec<Header> = Vec::with_capacity(answers.len());
    for (number, answer) in range.zip(&answers) {
        let Some(block) = endpoint.parse::<Option<HeaderOnly<'_>>>(BY_NUMBER, answer)? else { break };
        let header = proved_header(endpoint, number, &block)?;
        if headers.last().is_some_and(|parent| parent.block != header.parent) {
            break;
        }
        headers.push(header);
    }
    Ok(headers)
}

/// One request for both questions, so that one node answers them at one time.
async fn read_fate(endpoint: &Endpoint, tx: &TxRef, at: &BlockRef) -> Result<Fate, EvmError> {
    let foreign = || EvmError::Foreign { chain: endpoint.chain, what: format!("transaction {}", tx.id) };
    let TxId::Evm(_) = tx.id else { return Err(foreign()) };
    let place = Call { method: RECEIPT, params: json!([tx.id.to_string()]) };
    let used = match tx.life {
        TxLife::Nonce { signer: signer @ Address::Evm(_), nonce } => Some((nonces(&signer, at), nonce)),
        TxLife::Nonce { signer: Address::Solana(_), .. } => return Err(foreign()),
        // Nothing can take its place. A withdrawal's id is no hash that a node knows: it is never found.
        TxLife::Block => None,
    };
    let (used, nonce) = used.unzip();
    let calls: Vec<Call> = std::iter::once(place).chain(used).collect();
    let mut answers = endpoint.ask(&calls).await?.into_iter();
    let place = answers.next().ok_or_else(|| endpoint.unusable(RECEIPT, "no answer"))?;
    let place = place.map_err(|error| endpoint.refused(RECEIPT, &error))?;
    if let Some(place) = endpoint.parse::<Option<WirePlace>>(RECEIPT, &place)? {
        return Ok(Fate::In(BlockRef { number: place.block_number.0, hash: BlockHash(place.block_hash.0) }));
    }
    let Some(nonce) = nonce else { return Ok(Fate::Unknown) };
    let used = answers.next().ok_or_else(|| endpoint.unusable(NONCE, "no answer"))?;
    // A node that no longer has the state of a block minutes old says so in many words: it does not know.
    let Ok(used) = used else { return Ok(Fate::Unknown) };
    let used: Quantity = endpoint.parse(NONCE, &used)?;
    Ok(if used.0 > nonce { Fate::Superseded(*at) } else { Fate::Unknown })
}

/// How many nonces `signer` had used at `at`. By hash (EIP-1898): by number, a node on another branch would answer
/// for its own block.
fn nonces(signer: &Address, at: &BlockRef) -> Call {
    let block = json!({ "blockHash": at.hash.to_string(), "requireCanonical": true });
    Call { method: NONCE, params: json!([signer.to_string(), block]) }
}

/// With 12 and a newest block 100: block 88.
async fn confirmed(endpoint: &Endpoint, latest: BlockRef, count: u64) -> Result<Option<BlockRef>, EvmError> {
    let Some(number) = latest.number.checked_sub(count) else { return Ok(None) };
    let headers = read_headers(endpoint, number..=number).await?;
    Ok(headers.first().map(|header| header.block))
}

/// The block that a tag names. Nodes say `null` or "finalized block not found" while there is none.
fn tagged_block(endpoint: &Endpoint, answer: Answer) -> Result<Option<BlockRef>, EvmError> {
    match answer {
        Ok(answer) => Ok(header_of(endpoint, &answer)?.map(|header| header.block)),
        Err(error) if names_no_block(&error) => Ok(None),
        Err(error) => Err(endpoint.refused(BY_NUMBER, &error)),
    }
}

/// geth and bor: "finalized block not found", "safe block not found"; Besu: code -39001, "Unknown block".
fn names_no_block(error: &NodeError) -> bool {
    let message = error.message.to_lowercase();
    error.code == UNKNOWN_BLOCK || message.contains("block not found") || message.contains("unknown block")
}

fn header_of(endpoint: &Endpoint, answer: &RawValue) -> Result<Option<Header>, EvmError> {
    let block: Option<HeaderOnly<'_>> = endpoint.parse(BY_NUMBER, answer)?;
    block.map(|block| proved_header(endpoint, block.number.0, &block)).transpose()
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

fn proved_header<T>(endpoint: &Endpoint, asked: u64, block: &WireBlock<'_, T>) -> Result<Header, EvmError> {
    let number = block.number.0;
    if number != asked {
        return Err(endpoint.unusable(BY_NUMBER, &format!("asked for block {asked}, but got block {number}")));
    }
    let named = BlockRef { number, hash: BlockHash(block.hash.0) };
    proof::header(block).map_err(|refusal| refused(endpoint, named, BY_NUMBER, &refusal))
}

fn refused(endpoint: &Endpoint, block: BlockRef, method: &'static str, refusal: &Refusal) -> EvmError {
    let chain = endpoint.chain;
    match *refusal {
        Refusal::Unproved(check) => EvmError::ProofFailed { chain, endpoint: endpoint.id.clone(), block, check },
        Refusal::Unknown { what, kind } => EvmError::UpgradeNeeded { chain, block, what, kind },
        Refusal::Incomplete { what, index, missing } => {
            endpoint.unusable(method, &format!("block {block}, {what} at index {index}: {missing}"))
        }
    }
}

fn by_number(numbers: impl Iterator<Item = u64>, full: bool) -> Vec<Call> {
    numbers.map(|number| Call { method: BY_NUMBER, params: json!([format!("{number:#x}"), full]) }).collect()
}
