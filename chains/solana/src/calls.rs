//! What one endpoint is asked for: the slots that hold a block, a header, a block, where a transaction is, who paid.
//!
//! Promises: only `reaction` decides what follows from a refusal. An endpoint that does not have a block stays as
//! healthy as before ([`landfall_rpc::RpcError::Lacks`]). So does one that does not know what became of a block's
//! transactions: there that block is refused as a whole. Nothing is retried, except once with a higher transaction
//! version: "the same endpoint, after a slot" is for the caller's next try.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use landfall_chain::{AssetId, AssetTransfer, Block, BlockHash, BlockRef, Fate, Header, Legs, Payer, TxId};
use landfall_rpc::{Answer, Call, NodeError, Raw};
use serde::Deserialize;
use serde_json::json;
use tracing::warn;

use crate::ata::TokenProgram;
use crate::client::Light;
use crate::dialect::{Endpoint, is_not_found};
use crate::digest::Digest;
use crate::error::{SolanaError, Unusable};
use crate::reaction::Reaction;
use crate::read::{self, Asked, Candidate};
use crate::rules::{Rules, TokenPlace};
use crate::sender;

pub(crate) const BLOCKS: &str = "getBlocks";
pub(crate) const BLOCK: &str = "getBlock";
/// What a node may refuse although it reports headers by the same method.
const WHOLE: &str = "getBlock with transactions";
pub(crate) const TRANSACTION: &str = "getTransaction";
/// Live on mainnet since slot 447,120,000: with 0, almost every block is refused.
const VERSION_FIRST: u8 = 1;

/// A block to be asked for by its slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) slot: u64,
    /// Where a child names it: another block in this slot is not the wanted one.
    pub(crate) hash: Option<BlockHash>,
}

impl Wanted {
    /// That `header` is what was wanted.
    pub(crate) fn check(&self, endpoint: &Endpoint, header: &Header) -> Result<(), SolanaError> {
        match self.hash {
            Some(hash) if hash != header.block.hash => {
                let wanted = BlockRef { number: self.slot, hash };
                Err(endpoint.lacks(format!("shows block {}, but the next one stands on {wanted}", header.block)))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// A block as one endpoint reports it.
#[derive(Debug)]
pub(crate) struct Reading {
    pub(crate) digest: Digest,
    pub(crate) block: Block,
}

/// What one endpoint reports of who paid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Paid {
    By(Payer),
    /// It knows no such transaction in this slot; if the block is young it may know it in a moment.
    NotYet,
    /// It cannot report, now or later.
    Unreported,
}

/// Reads whole blocks.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) rules: Rules,
    /// Up to which transaction version is asked for; it rises to what nodes need.
    version: AtomicU8,
}

impl Reader {
    pub(crate) fn new(rules: Rules, version: Option<u8>) -> Self {
        Reader { rules, version: AtomicU8::new(version.unwrap_or(VERSION_FIRST)) }
    }

    /// Where the network's credits to `owner` can arrive: the owner's own account, and the token accounts that count.
    pub(crate) fn accounts_of(&self, owner: &[u8; 32]) -> Vec<[u8; 32]> {
        self.rules.accounts_of(owner)
    }

    /// The token accounts in which `owner` has `asset`.
    pub(crate) fn places_of(&self, owner: &[u8; 32], asset: &AssetId) -> Vec<TokenPlace> {
        self.rules.places_of(owner, asset)
    }

    /// The programs under which a mint is listed.
    pub(crate) fn programs_of(&self, mint: &str) -> Vec<TokenProgram> {
        self.rules.programs_of(mint).collect()
    }

    /// The block, as this endpoint reports it; its time is 0 where the node does not report one.
    pub(crate) async fn block(&self, endpoint: &Endpoint, wanted: Wanted, legs: Legs) -> Result<Reading, SolanaError> {
        let (slot, version) = (wanted.slot, self.version.load(Relaxed));
        let mut answer = self.whole(endpoint, slot, version).await?;
        if let Some(version) = self.raised(endpoint, &answer, version) {
            answer = self.whole(endpoint, slot, version).await?;
        }
        let answer = self.settled(endpoint, slot, answer).await?;
        let asked = Asked { slot, time_secs: 0, legs };
        let candidate = read::block(&self.rules, answer.get(), &asked);
        let Candidate { block, digest } = candidate.map_err(|error| refuted(endpoint, slot, &answer, error))?;
        endpoint.serves(WHOLE);
        wanted.check(endpoint, &block.header)?;
        Ok(Reading { digest, block })
    }

    /// Who paid `transfer`, which the block in `slot` showed, by what its transaction did. Asked aside: a failure says
    /// nothing of blocks.
    pub(crate) async fn payer(
        &self,
        endpoint: &Endpoint,
        slot: u64,
        transfer: &AssetTransfer,
    ) -> Result<Paid, SolanaError> {
        let (tx, version) = (&transfer.tx.id, self.version.load(Relaxed));
        let mut answer = transaction(endpoint, tx, version).await?;
        if let Some(version) = self.raised(endpoint, &answer, version) {
            answer = transaction(endpoint, tx, version).await?;
        }
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                return match reaction(&error) {
                    Reaction::AskAgain | Reaction::AskElsewhere | Reaction::BackOff => {
                        Err(endpoint.refused(TRANSACTION, &error))
                    }
                    Reaction::Drop | Reaction::Page => {
                        note(endpoint, TRANSACTION, &error);
                        Ok(Paid::Unreported)
                    }
                    Reaction::LeaveOpen => Ok(Paid::NotYet),
                    Reaction::AskArchive | Reaction::RaiseVersion { .. } => Ok(Paid::Unreported),
                };
            }
        };
        match payer_in(&self.rules, answer.get(), slot, transfer) {
            Ok(payer) => Ok(payer.map_or(Paid::NotYet, Paid::By)),
            Err(Unusable::Null | Unusable::NoMeta { .. }) => Ok(Paid::NotYet),
            Err(error) => Err(endpoint.unusable(TRANSACTION, &format!("transaction {tx}: {error}"))),
        }
    }

    /// The version to ask with once more, where the node names the one it needs.
    fn raised(&self, endpoint: &Endpoint, answer: &Answer, version: u8) -> Option<u8> {
        let Reaction::RaiseVersion { to: Some(to) } = reaction(answer.as_ref().err()?) else { return None };
        if to <= version {
            return None;
        }
        let before = self.version.fetch_max(to, Relaxed);
        if before < to {
            warn!(chain = %endpoint.chain, "endpoint {} asks for version {to} of transactions: it is asked for from now on", endpoint.id);
        }
        Some(before.max(to))
    }

    async fn whole(&self, endpoint: &Endpoint, slot: u64, version: u8) -> Result<Answer, SolanaError> {
        let how = json!({
            "commitment": "confirmed", "encoding": "json", "transactionDetails": "accounts", "rewards": false,
            "maxSupportedTransactionVersion": version,
        });
        one(endpoint, Call { method: BLOCK, params: json!([slot, how]) }).await
    }

    /// The answer, when raising the version does not help any more. The pool decides whether all endpoints say so, by
    /// the block's hash, which mode `none` reports whatever the transactions are.
    async fn settled(&self, endpoint: &Endpoint, slot: u64, answer: Answer) -> Result<Raw, SolanaError> {
        let error = match answer {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        if !matches!(reaction(&error), Reaction::RaiseVersion { .. }) {
            return Err(refused(endpoint, slot, WHOLE, &error));
        }
        let (block, asked) = (read_header(endpoint, slot).await?.block, self.version.load(Relaxed));
        Err(SolanaError::UpgradeNeeded { chain: endpoint.chain, block, asked })
    }
}

/// The slots of `range` that hold a block at `commitment`, as this endpoint reports them, ascending. A slot that is
/// left out may hold one all the same. There is known to be a block at `reached`: an endpoint that has not come so far
/// does not have the list.
pub(crate) async fn read_slots(
    endpoint: &Endpoint,
    range: RangeInclusive<u64>,
    commitment: &str,
    reached: Option<u64>,
) -> Result<Vec<u64>, SolanaError> {
    let slots = Light::of(endpoint).slots(&range, commitment, reached).await?;
    let is_ascending = slots.windows(2).all(|pair| pair[0] < pair[1]);
    if !is_ascending || slots.iter().any(|slot| !range.contains(slot)) {
        let reason = format!("not slots from {} to {}, ascending", range.start(), range.end());
        return Err(endpoint.unusable(BLOCKS, &reason));
    }
    Ok(slots)
}

/// The header of the block in `slot`; its time is 0 where the node does not report one.
pub(crate) async fn read_header(endpoint: &Endpoint, slot: u64) -> Result<Header, SolanaError> {
    let how = json!({ "commitment": "confirmed", "transactionDetails": "none", "rewards": false });
    let answer = one(endpoint, Call { method: BLOCK, params: json!([slot, how]) }).await?;
    let answer = answer.map_err(|error| refused(endpoint, slot, BLOCK, &error))?;
    read::header(answer.get(), slot).map_err(|error| unusable(endpoint, slot, &error))
}

/// When the block was made. An endpoint that does not report it stays as healthy as before.
pub(crate) async fn read_time(endpoint: &Endpoint, wanted: Wanted) -> Result<u64, SolanaError> {
    let header = read_header(endpoint, wanted.slot).await?;
    wanted.check(endpoint, &header)?;
    if header.time_secs == 0 {
        return Err(endpoint.lacks(format!("does not tell when block {} was made", header.block)));
    }
    Ok(header.time_secs)
}

/// The block that the endpoint says a transaction is in: only a hint. That it knows none says nothing: nodes answer
/// null too while their storage fails. It asks for the status and not for the transaction, because a status has no
/// version.
pub(crate) async fn read_fate(endpoint: &Endpoint, tx: &TxId) -> Result<Fate, SolanaError> {
    let TxId::Solana(_) = tx else { return Err(SolanaError::Foreign { chain: endpoint.chain, tx: *tx }) };
    let Some(slot) = Light::of(endpoint).slot_of(tx).await? else { return Ok(Fate::Unknown) };
    match read_header(endpoint, slot).await {
        Ok(header) => Ok(Fate::In(header.block)),
        // It may be about to be confirmed.
        Err(error) if is_not_found(&error) => {
            Ok(Fate::Unanswered { endpoints: endpoint.id.clone(), why: error.to_string() })
        }
        Err(error) => Err(error),
    }
}

async fn transaction(endpoint: &Endpoint, tx: &TxId, version: u8) -> Result<Answer, SolanaError> {
    let how = json!({ "commitment": "confirmed", "encoding": "json", "maxSupportedTransactionVersion": version });
    let call = Call { method: TRANSACTION, params: json!([tx.to_string(), how]) };
    let answer = endpoint.ask_aside(&[call]).await?.into_iter().next();
    answer.ok_or_else(|| endpoint.unusable(TRANSACTION, "no answer"))
}

#[derive(Deserialize)]
struct Place {
    slot: u64,
}

/// Who paid, by `answer`; `None` when it is of another slot: what it did there is not what the block showed.
fn payer_in(rules: &Rules, answer: &str, slot: u64, transfer: &AssetTransfer) -> Result<Option<Payer>, Unusable> {
    let place: Place = read::parse("a transaction", answer)?;
    if place.slot != slot { Ok(None) } else { sender::by_instructions(rules, answer, transfer).map(Some) }
}

/// The answer to one call.
pub(crate) async fn one(endpoint: &Endpoint, call: Call) -> Result<Answer, SolanaError> {
    let method = call.method;
    let answer = endpoint.ask(&[call]).await?.into_iter().next();
    answer.ok_or_else(|| endpoint.unusable(method, "no answer"))
}

pub(crate) fn reaction(error: &NodeError) -> Reaction {
    Reaction::to(error.code, &error.message)
}

/// The failure that a refusal is, with what an operator should know of it.
pub(crate) fn failed(endpoint: &Endpoint, method: &'static str, error: &NodeError) -> SolanaError {
    match note(endpoint, method, error) {
        None => endpoint.refused(method, error),
        Some(why) => endpoint.unusable(method, &why),
    }
}

/// Notes for the endpoint a refusal that only a person can end; returns what that person should know.
fn note(endpoint: &Endpoint, method: &'static str, error: &NodeError) -> Option<String> {
    let why = format!("{error}; {}", reaction(error).advice()?);
    endpoint.refuses(method, &why);
    Some(why)
}

/// What a refused block says of the endpoint.
fn refused(endpoint: &Endpoint, slot: u64, what: &'static str, error: &NodeError) -> SolanaError {
    match reaction(error) {
        Reaction::LeaveOpen | Reaction::AskArchive | Reaction::AskAgain => {
            endpoint.lacks(format!("does not tell block {slot}: {error}"))
        }
        // It cools down, and its status says why: others may serve.
        Reaction::AskElsewhere
        | Reaction::BackOff
        | Reaction::RaiseVersion { .. }
        | Reaction::Drop
        | Reaction::Page => failed(endpoint, what, error),
    }
}

/// As [`unusable`]; where only the listing contradicts it, the configuration may be wrong.
fn refuted(endpoint: &Endpoint, slot: u64, answer: &Raw, error: Unusable) -> SolanaError {
    match (error, read::header(answer.get(), slot)) {
        (Unusable::Decimals { mint, reported, listed, .. }, Ok(Header { block, .. })) => {
            SolanaError::Decimals { chain: endpoint.chain, block, mint, reported, listed }
        }
        (error, _) => unusable(endpoint, slot, &error),
    }
}

/// What an answer without a block says of the endpoint.
fn unusable(endpoint: &Endpoint, slot: u64, error: &Unusable) -> SolanaError {
    match error {
        Unusable::Null | Unusable::NoMeta { .. } => endpoint.lacks(format!("does not tell block {slot}: {error}")),
        _ => endpoint.unusable(BLOCK, &format!("block {slot}: {error}")),
    }
}
