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
use crate::hex::Quantity;
use crate::legs::{self, Listed};
use crate::pool::{Endpoint, Pool};
use crate::proof::{self, Refusal};
use crate::rpc::{Answer, Call, NodeError};
use crate::wire::{Kind, WireBlock, WirePlace, WireReceipt, WireTx, WireTypes};

const BY_NUMBER: &str = "eth_getBlockByNumber";
const RECEIPTS: &str = "eth_getBlockReceipts";
const RECEIPT: &str = "eth_getTransactionReceipt";
const NONCE: &str = "eth_getTransactionCount";

/// Besu's and EIP-1474's code for a block that a tag does not name yet.
const UNKNOWN_BLOCK: i64 = -39_001;

/// geth's `--rpc.batch-request-limit`. What is asked for beyond it does not come back.
const BATCH_MAX: usize = 1000;

type HeaderOnly<'a> = WireBlock<'a, IgnoredAny>;
type FullBlock<'a> = WireBlock<'a, Vec<WireTx<'a>>>;

/// One EVM network, read over JSON-RPC.
#[derive(Debug)]
pub struct EvmSource {
    finality: Finality,
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
        let calls = by_number(range.clone(), true);
        let answers = endpoint.ask_all(&calls).await?;
        let mut proved: Vec<(Header, FullBlock<'_>)> = Vec::with_capacity(answers.len());
        for (number, answer) in range.zip(&answers) {
            let Some(block) = full_block(endpoint, answer)? else { break };
            let header = proved_header(endpoint, number, &block)?;
            // The node changed its mind between two answers: what is up to here holds, the rest is read again.
            if proved.last().is_some_and(|(parent, _)| parent.block != header.parent) {
                break;
            }
            proof::transactions(&block).map_err(|refusal| refused(endpoint, header.block, BY_NUMBER, &refusal))?;
            proved.push((header, block));
        }
        let calls: Vec<Call> =
            proved.iter().filter(|(_, block)| !block.transactions.is_empty()).map(receipts).collect();
        let answers = endpoint.ask_all(&calls).await?;
        let mut answers = answers.iter();
        let mut blocks = Vec::with_capacity(proved.len());
        for (header, block) in &proved {
            // A block without transactions has no receipts to ask for, and its receipts root says so.
            let answer = if block.transactions.is_empty() { None } else { answers.next() };
            blocks.push(self.block(endpoint, *header, block, answer.map(|answer| &**answer))?);
            // Proving is work for the processor: others may have a turn between two blocks.
            tokio::task::yield_now().await;
        }
        Ok(blocks)
    }

    /// The block with its legs, when its receipts are proved too.
    fn block(
        &self,
        endpoint: &Endpoint,
        header: Header,
        block: &FullBlock<'_>,
        answer: Option<&RawValue>,
    ) -> Result<Block, EvmError> {
        let receipts: Option<Vec<WireReceipt<'_>>> = match answer {
            Some(answer) => endpoint.parse(RECEIPTS, answer)?,
            None => Some(Vec::new()),
        };
        let Some(receipts) = receipts.filter(|receipts| receipts.is_empty() == block.transactions.is_empty()) else {
            let count = block.transactions.len();
            let reason = format!("no receipts for block {} with {count} transactions", header.block);
            return Err(endpoint.unusable(RECEIPTS, &reason));
        };
        proof::receipts(block, &receipts).map_err(|refusal| refused(endpoint, header.block, RECEIPTS, &refusal))?;
        Ok(Block {
            header,
            txs: block.transactions.iter().map(|tx| TxId::Evm(tx.hash.0)).collect(),
            transfers: legs::of_block(block, &receipts, &self.listed),
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
    let answers = endpoint.ask_all(&by_number(range.clone(), false)).await?;
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
    let TxLife::Nonce { signer, nonce } = tx.life;
    let (TxId::Evm(_), Address::Evm(_)) = (tx.id, signer) else {
        return Err(EvmError::Foreign { chain: endpoint.chain, what: format!("transaction {}", tx.id) });
    };
    // By hash (EIP-1898): by number, a node on another branch would answer for its own block.
    let block = json!({ "blockHash": at.hash.to_string(), "requireCanonical": true });
    let place = Call { method: RECEIPT, params: json!([tx.id.to_string()]) };
    let used = Call { method: NONCE, params: json!([signer.to_string(), block]) };
    let mut answers = endpoint.ask(&[place, used]).await?.into_iter();
    let (Some(place), Some(used)) = (answers.next(), answers.next()) else {
        return Err(endpoint.unusable(RECEIPT, "no answer"));
    };
    let place = place.map_err(|error| endpoint.refused(RECEIPT, &error))?;
    if let Some(place) = endpoint.parse::<Option<WirePlace>>(RECEIPT, &place)? {
        return Ok(Fate::In(BlockRef { number: place.block_number.0, hash: BlockHash(place.block_hash.0) }));
    }
    let used = used.map_err(|error| endpoint.refused(NONCE, &error))?;
    let used: Quantity = endpoint.parse(NONCE, &used)?;
    Ok(if used.0 > nonce { Fate::Superseded(*at) } else { Fate::Unknown })
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

fn full_block<'a>(endpoint: &Endpoint, answer: &'a RawValue) -> Result<Option<FullBlock<'a>>, EvmError> {
    endpoint.parse(BY_NUMBER, answer).map_err(|error| {
        // A type of the future may lack what every type has today: then it is no malformed answer.
        let Ok(types) = endpoint.parse::<WireTypes>(BY_NUMBER, answer) else { return error };
        let unknown = types.transactions.iter().find_map(|tx| Kind::parse(tx.kind).err());
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

fn by_number(range: RangeInclusive<u64>, full: bool) -> Vec<Call> {
    let call = |number| Call { method: BY_NUMBER, params: json!([format!("{number:#x}"), full]) };
    range.take(BATCH_MAX).map(call).collect()
}

/// By hash: what is asked for is the block that was read, not its successor at the same number.
fn receipts((header, _): &(Header, FullBlock<'_>)) -> Call {
    Call { method: RECEIPTS, params: json!([header.block.hash.to_string()]) }
}
