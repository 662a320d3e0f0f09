//! What the endpoint pool must know of Solana: what a poll asks for, what is final by its answer, how bad a failure is for
//! the endpoint.
//!
//! `getLatestBlockhash` names a slot and a blockhash. It answers of one bank, which is frozen at `confirmed` and at
//! `finalized`: the slot is that bank's, and its newest blockhash is the one that it registered with its own last
//! tick, so both are of the same block (agave: `get_latest_blockhash` in rpc/src/rpc.rs,
//! `OptimisticallyConfirmedBankTracker`, `Bank::register_tick`). Only at `processed`, which is never asked for, a
//! bank may still stand at its parent's hash.
//!
//! Promises: what an endpoint said a moment ago is not asked again (`told`), but of one in quarantine everything is.
//! A node behind the same address that has not reached what was told takes nothing back: the word stands for some
//! seconds, in which it is asked no oftener than another, and is a failure then. Another genesis hash puts an endpoint
//! into quarantine. A lie cannot be told from the truth here, for nothing proves a blockhash: that is for endpoints to
//! agree on.

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
use crate::told::{Kept, Told, Words};

const LATEST: &str = "getLatestBlockhash";

pub(crate) type Endpoint = landfall_rpc::Endpoint<Solana>;
pub(crate) type Pool = landfall_rpc::Pool<Solana>;
pub(crate) type Word = landfall_rpc::Word<Final>;

/// One Solana network, as its endpoints are polled.
#[derive(Debug)]
pub(crate) struct Solana {
    genesis: BlockHash,
    /// That of the network, and one for each of its tiers: all wait for `finalized`.
    rules: usize,
    told: Told,
}

/// The newest slot that an endpoint calls final.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Final(u64);

impl Solana {
    /// To be polled every so often; see [`Told`].
    pub(crate) fn new(genesis: BlockHash, finality: &Finality, poll: Duration) -> Self {
        Solana { genesis, rules: 1 + finality.tiers.len(), told: Told::new(poll) }
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

    /// The newest block at `commitment`: what is `kept` and was told within that time, or is told now. Who was asked in
    /// vain a moment ago is not asked either.
    async fn newest(
        &self,
        endpoint: &Endpoint,
        commitment: &str,
        within: Duration,
        kept: Option<Kept>,
    ) -> Result<Fresh, SolanaError> {
        let told = |within: Duration| kept.filter(|kept| kept.is_told(within));
        let asked = kept.filter(|kept| kept.is_asked(self.told.confirmed_for()));
        if let Some(kept) = told(within).or(asked) {
            return Ok(Fresh { kept, is_new: false });
        }
        let reached = told(self.told.reached_for()).map(|kept| kept.block.number);
        // A word is as old as its question, however slow the answer was.
        let now = Instant::now();
        match (Light::of(endpoint).newest(commitment, reached).await?, told(self.told.behind_for())) {
            (Newest::Block(block), _) => Ok(Fresh { kept: Kept::told(block, now), is_new: true }),
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

    /// BlockCleanedUp. What other codes mean for what is done next stands in `reaction`: none of them is a limit.
    const CODES: &'static Codes = &Codes { batch_too_large: &[], pruned: &[-32_001], limit_exceeded: &[] };
    /// Many providers count a batch as its calls or refuse it, and a block of some megabytes wants a body of its own.
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
            SolanaError::Decimals { block, mint, told, .. } => {
                Fault::TooNew { block: *block, what: format!("{told} decimals of mint {mint}") }
            }
            SolanaError::NoTime { .. }
            | SolanaError::Unwitnessed { .. }
            | SolanaError::MintUnreported { .. }
            | SolanaError::BlocksDiffer { .. }
            | SolanaError::SlotsDiffer { .. }
            | SolanaError::Unlisted { .. } => Fault::Failing,
            SolanaError::NotSolana { .. }
            | SolanaError::Foreign { .. }
            | SolanaError::NotListed { .. }
            | SolanaError::ForeignAddress { .. }
            | SolanaError::NoHistory { .. }
            | SolanaError::NoBalances { .. } => Fault::Permanent,
        }
    }

    async fn poll(&self, endpoint: &Endpoint, question: &Question) -> Result<Word, SolanaError> {
        if question.which_chain {
            self.prove_chain(endpoint).await?;
        }
        // Who may have been pointed elsewhere, or lied, is asked for everything anew.
        let mut words = if question.which_chain { Words::default() } else { self.told.of(&endpoint.id) };
        let (confirmed_for, finalized_for) = (self.told.confirmed_for(), self.told.finalized_for());
        let now = Instant::now();
        let (Fresh { kept: finalized, is_new }, Fresh { kept: confirmed, is_new: is_told_now }) = try_join(
            self.newest(endpoint, "finalized", finalized_for, words.finalized),
            self.newest(endpoint, "confirmed", confirmed_for, words.confirmed),
        )
        .await?;
        (words.finalized, words.confirmed) = (Some(finalized), Some(confirmed));
        let (finalized, mut confirmed) = (finalized.block, confirmed.block);
        if finalized.number == confirmed.number && finalized.hash != confirmed.hash {
            if is_told_now || !is_new {
                let reason = format!("block {confirmed} is called confirmed, but {finalized} final");
                return Err(endpoint.unusable(LATEST, &reason));
            }
            // It was told before its slot was final, and was taken back.
            words.confirmed = None;
            confirmed = finalized;
        }
        if is_new {
            // What stood in a slot that has become final since may be told otherwise now.
            words.forget_hashes();
        }
        // Two nodes behind one address may answer, and what is final is confirmed too.
        let latest = if finalized.number > confirmed.number { finalized } else { confirmed };
        let mut hashes = BTreeMap::from([(finalized.number, finalized.hash)]);
        // What was told before its slot was final may have been taken back since: that is no word on what is final.
        if is_told_now || confirmed.number > finalized.number {
            hashes.insert(confirmed.number, confirmed.hash);
        }
        words.forget(finalized_for);
        for slot in &question.numbers {
            if hashes.contains_key(slot) {
                continue;
            }
            let hash = match words.hash(*slot, finalized_for) {
                Some(hash) => hash,
                None => {
                    let hash = hash_of(endpoint, *slot).await?;
                    words.say_hash(*slot, hash, now);
                    hash
                }
            };
            hash.map(|hash| hashes.insert(*slot, hash));
        }
        self.told.keep(&endpoint.id, words);
        Ok(Word { latest, hashes, marks: Final(finalized.number) })
    }

    fn rules(&self) -> usize {
        self.rules
    }

    fn finals(&self, word: &Word, (): &mut ()) -> Vec<Option<u64>> {
        vec![Some(word.marks.0); self.rules]
    }
}

/// A newest block, and whether it was told just now.
struct Fresh {
    kept: Kept,
    is_new: bool,
}

/// That a block is not to be had, which says nothing of whether there is one.
pub(crate) fn is_lacking(error: &SolanaError) -> bool {
    Solana::fault(error) == Fault::Lacking
}

/// The hash of the block in `slot`; `None` where there is none or the endpoint has not got it: it has no say.
async fn hash_of(endpoint: &Endpoint, slot: u64) -> Result<Option<BlockHash>, SolanaError> {
    match read_header(endpoint, slot).await {
        Ok(header) => Ok(Some(header.block.hash)),
        Err(error) if is_lacking(&error) => Ok(None),
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

/// The slot that a message of `slotSubscribe` tells. It is only being processed: a reason to look, and no more.
fn new_slot(message: &str) -> Option<String> {
    let news: News = serde_json::from_str(message).ok()?;
    Some(news.params.result.slot.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_notification_tells_its_slot_and_nothing_else_does() {
        let message = r#"{"jsonrpc":"2.0","method":"slotNotification","params":{"result":{"parent":75,"root":44,"slot":76},"subscription":0}}"#;
        assert_eq!(new_slot(message).as_deref(), Some("76"));
        assert_eq!(new_slot(r#"{"jsonrpc":"2.0","result":0,"id":1}"#), None);
    }
}
