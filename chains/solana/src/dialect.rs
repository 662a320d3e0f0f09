//! What the endpoint pool must know of Solana: what a poll asks for, what its answer makes final, how bad a failure is
//! for the endpoint.
//!
//! `getLatestBlockhash` names a slot and a blockhash. It answers from one bank, which is frozen at `confirmed` and at
//! `finalized`. The slot is that bank's, and its newest blockhash is the one that it registered with its own last
//! tick. So both are of the same block (agave: `get_latest_blockhash` in rpc/src/rpc.rs,
//! `OptimisticallyConfirmedBankTracker`, `Bank::register_tick`). Only at `processed`, which is never asked for, a bank
//! may still have its parent's hash.
//!
//! Promises: what an endpoint reported a moment ago is not asked for again (`poll_cache`), but one in quarantine is
//! asked for everything. A node behind the same address that has not reached it yet does not undo it. The report
//! stands for some seconds, in which the endpoint is asked no more often than others; after that it is a failure.
//! Another genesis hash puts an endpoint into quarantine. Nothing proves a blockhash, so no lie is found here: that is
//! for endpoints to agree on.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::try_join;
use landfall_chain::{BlockHash, Finality};
use landfall_rpc::{Codes, Dialect, Fault, Question, Subscription};
use serde::Deserialize;
use tokio::time::Instant;

use crate::base58;
use crate::calls::{BLOCK, read_header};
use crate::client::{Light, Newest};
use crate::error::SolanaError;
use crate::poll_cache::{PollCache, Polled, PolledBlock};

const LATEST: &str = "getLatestBlockhash";

pub(crate) type Endpoint = landfall_rpc::Endpoint<Solana>;
pub(crate) type Pool = landfall_rpc::Pool<Solana>;
pub(crate) type HeadReport = landfall_rpc::HeadReport<Final>;

/// One Solana network, as its endpoints are polled.
#[derive(Debug)]
pub(crate) struct Solana {
    genesis: BlockHash,
    /// That of the network, and one for each of its tiers: all wait for `finalized`.
    rules: usize,
    reported: PollCache,
}

/// The newest slot that an endpoint calls final.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Final(u64);

impl Solana {
    /// To be polled every so often; see [`PollCache`].
    pub(crate) fn new(genesis: BlockHash, finality: &Finality, poll: Duration) -> Self {
        Solana { genesis, rules: 1 + finality.tiers.len(), reported: PollCache::new(poll) }
    }

    async fn prove_chain(&self, endpoint: &Endpoint) -> Result<(), SolanaError> {
        let served = Light::of(endpoint).genesis().await?;
        if base58::key(&served) == Some(self.genesis.0) {
            return Ok(());
        }
        let expected = bs58::encode(self.genesis.0).into_string();
        let (chain, endpoint, served) = (endpoint.chain, endpoint.id.clone(), endpoint.clean(&served));
        Err(SolanaError::WrongChain { chain, endpoint, served, expected })
    }

    /// The newest block at `commitment`: the `kept` one if it was reported within that time, else what is reported
    /// now. An endpoint that was asked in vain a moment ago is not asked either.
    async fn newest(
        &self,
        endpoint: &Endpoint,
        commitment: &str,
        within: Duration,
        kept: Option<PolledBlock>,
    ) -> Result<Fresh, SolanaError> {
        let reported = |within: Duration| kept.filter(|kept| kept.is_reported(within));
        let asked = kept.filter(|kept| kept.is_asked(self.reported.confirmed_for()));
        if let Some(kept) = reported(within).or(asked) {
            return Ok(Fresh { kept, is_new: false });
        }
        let reached = reported(self.reported.reached_for()).map(|kept| kept.block.number);
        // A report is as old as its question, however slow the answer was.
        let now = Instant::now();
        match (Light::of(endpoint).newest(commitment, reached).await?, reported(self.reported.behind_for())) {
            (Newest::Block(block), _) => Ok(Fresh { kept: PolledBlock::at(block, now), is_new: true }),
            (Newest::Behind, Some(kept)) => Ok(Fresh { kept: kept.asked(now), is_new: false }),
            (Newest::Behind, None) => {
                Err(endpoint.unusable(LATEST, "it has not reached the slot that it told before: it lags"))
            }
        }
    }
}

impl Dialect for Solana {
    type Error = SolanaError;
    type Marks = Final;
    type Memory = ();

    /// BlockCleanedUp. `reaction` says what follows from other codes: none of them is a limit.
    const CODES: &'static Codes = &Codes { batch_too_large: &[], pruned: &[-32_001], limit_exceeded: &[] };
    /// Many providers count a batch as its calls or refuse it, and a block of some megabytes needs a body of its own.
    const BATCH_MAX: usize = 1;
    const BLOCKS: &'static str = BLOCK;
    const IDENTITY: &'static str = "genesis hash";
    const SOUND: &'static str = "the right genesis hash";
    const SUBSCRIPTION: Subscription =
        Subscription { request: r#"{"jsonrpc":"2.0","id":1,"method":"slotSubscribe"}"#, head: new_slot };

    fn fault(error: &SolanaError) -> Fault {
        match error {
            SolanaError::Rpc(error) => error.fault(),
            SolanaError::WrongChain { .. } => Fault::WrongChain,
            SolanaError::UpgradeNeeded { block, asked, .. } => {
                Fault::TooNew { block: *block, what: format!("transactions above version {asked}") }
            }
            SolanaError::Outvoted { .. } => Fault::Unsound,
            SolanaError::Decimals { block, mint, reported, .. } => {
                Fault::TooNew { block: *block, what: format!("{reported} decimals of mint {mint}") }
            }
            SolanaError::NoTime { .. }
            | SolanaError::Unwitnessed { .. }
            | SolanaError::MintUnreported { .. }
            | SolanaError::BlocksDiffer { .. }
            | SolanaError::SlotsDiffer { .. }
            | SolanaError::Unlisted { .. }
            | SolanaError::GuardUnreported { .. } => Fault::Failing,
            SolanaError::NotSolana { .. }
            | SolanaError::Foreign { .. }
            | SolanaError::NotListed { .. }
            | SolanaError::ForeignAddress { .. }
            | SolanaError::NoHistory { .. }
            | SolanaError::NoBalances { .. }
            | SolanaError::OtherChain { .. }
            | SolanaError::NoPayment { .. } => Fault::Permanent,
        }
    }

    async fn poll(&self, endpoint: &Endpoint, question: &Question) -> Result<HeadReport, SolanaError> {
        if question.which_chain {
            self.prove_chain(endpoint).await?;
        }
        // One that may have been pointed elsewhere, or lied, is asked for everything anew.
        let mut polled = if question.which_chain { Polled::default() } else { self.reported.of(&endpoint.id) };
        let (confirmed_for, finalized_for) = (self.reported.confirmed_for(), self.reported.finalized_for());
        let now = Instant::now();
        let (Fresh { kept: finalized, is_new }, Fresh { kept: confirmed, is_new: is_reported_now }) = try_join(
            self.newest(endpoint, "finalized", finalized_for, polled.finalized),
            self.newest(endpoint, "confirmed", confirmed_for, polled.confirmed),
        )
        .await?;
        (polled.finalized, polled.confirmed) = (Some(finalized), Some(confirmed));
        let (finalized, mut confirmed) = (finalized.block, confirmed.block);
        if finalized.number == confirmed.number && finalized.hash != confirmed.hash {
            if is_reported_now || !is_new {
                let reason = format!("block {confirmed} is called confirmed, but {finalized} final");
                return Err(endpoint.unusable(LATEST, &reason));
            }
            // It was reported before its slot was final, and was replaced since.
            polled.confirmed = None;
            confirmed = finalized;
        }
        if is_new {
            // The block in a slot that has become final since may be reported otherwise now.
            polled.forget_hashes();
        }
        // Two nodes behind one address may answer, and what is final is confirmed too.
        let latest = if finalized.number > confirmed.number { finalized } else { confirmed };
        let mut hashes = BTreeMap::from([(finalized.number, finalized.hash)]);
        // What was reported before its slot was final may have been replaced since: that is no vote on what is final.
        if is_reported_now || confirmed.number > finalized.number {
            hashes.insert(confirmed.number, confirmed.hash);
        }
        polled.forget(finalized_for);
        for slot in &question.numbers {
            if hashes.contains_key(slot) {
                continue;
            }
            let hash = match polled.hash(*slot, finalized_for) {
                Some(hash) => hash,
                None => {
                    let hash = hash_of(endpoint, *slot).await?;
                    polled.say_hash(*slot, hash, now);
                    hash
                }
            };
            hash.map(|hash| hashes.insert(*slot, hash));
        }
        self.reported.keep(&endpoint.id, polled);
        Ok(HeadReport { latest, hashes, marks: Final(finalized.number) })
    }

    fn rules(&self) -> usize {
        self.rules
    }

    fn finals(&self, word: &HeadReport, (): &mut ()) -> Vec<Option<u64>> {
        vec![Some(word.marks.0); self.rules]
    }
}

/// A newest block, and whether it was reported just now.
struct Fresh {
    kept: PolledBlock,
    is_new: bool,
}

/// That a block is not found; this does not say whether there is one.
pub(crate) fn is_not_found(error: &SolanaError) -> bool {
    Solana::fault(error) == Fault::NotFound
}

/// The hash of the block in `slot`; `None` where there is none or the endpoint does not have it: it has no vote.
async fn hash_of(endpoint: &Endpoint, slot: u64) -> Result<Option<BlockHash>, SolanaError> {
    match read_header(endpoint, slot).await {
        Ok(header) => Ok(Some(header.block.hash)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

#[derive(Deserialize)]
struct News {
    params: Params,
}

#[derive(Deserialize)]
struct Params {
    result: NewSlot,
}

#[derive(Deserialize)]
struct NewSlot {
    slot: u64,
}

/// The slot that a message of `slotSubscribe` reports. It is only being processed: a reason to poll, and no more.
fn new_slot(message: &str) -> Option<String> {
    let news: News = serde_json::from_str(message).ok()?;
    Some(news.params.result.slot.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_notification_reports_its_slot_and_nothing_else_does() {
        let message = r#"{"jsonrpc":"2.0","method":"slotNotification","params":{"result":{"parent":75,"root":44,"slot":76},"subscription":0}}"#;
        assert_eq!(new_slot(message).as_deref(), Some("76"));
        assert_eq!(new_slot(r#"{"jsonrpc":"2.0","result":0,"id":1}"#), None);
    }
}
