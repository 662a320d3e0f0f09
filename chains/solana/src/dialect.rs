//! What the endpoint pool must know of Solana: what a poll asks for, what is final by its answer, how bad a failure is for
//! the endpoint.
//!
//! `getLatestBlockhash` names a slot and a blockhash. It answers of one bank, which is frozen at `confirmed` and at
//! `finalized`: the slot is that bank's, and its newest blockhash is the one that it registered with its own last tick,
//! so both are of the same block (agave: `get_latest_blockhash` in rpc/src/rpc.rs, `OptimisticallyConfirmedBankTracker`,
//! `Bank::register_tick`). Only at `processed`, which is never asked for, a bank may still stand at its parent's hash.
//! Promises: another genesis hash puts an endpoint into quarantine. A lie cannot be told from the truth here, for nothing
//! proves a blockhash: that is for endpoints to agree on.

use std::collections::BTreeMap;

use futures_util::future::try_join;
use landfall_chain::{BlockHash, BlockRef, Finality};
use landfall_rpc::{Call, Codes, Dialect, Fault, Question, Subscription};
use serde::Deserialize;
use serde_json::json;

use crate::base58;
use crate::calls::{BLOCK, read_header};
use crate::error::SolanaError;

const GENESIS: &str = "getGenesisHash";
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
}

/// The newest slot that an endpoint calls final.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Final(u64);

impl Solana {
    pub(crate) fn new(genesis: BlockHash, finality: &Finality) -> Self {
        Solana { genesis, rules: 1 + finality.tiers.len() }
    }

    async fn prove_chain(&self, endpoint: &Endpoint) -> Result<(), SolanaError> {
        let answers = endpoint.ask_all(&[Call { method: GENESIS, params: json!([]) }]).await?;
        let [answer] = answers.as_slice() else { return Err(endpoint.unusable(GENESIS, "no answer")) };
        let served: &str = endpoint.parse(GENESIS, answer)?;
        if base58::key(served) == Some(self.genesis.0) {
            return Ok(());
        }
        let expected = bs58::encode(self.genesis.0).into_string();
        let (chain, endpoint, served) = (endpoint.chain, endpoint.id.clone(), endpoint.clean(served));
        Err(SolanaError::WrongChain { chain, endpoint, served, expected })
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
            SolanaError::NoTime { .. } | SolanaError::Unwitnessed { .. } | SolanaError::BlocksDiffer { .. } => {
                Fault::Failing
            }
            SolanaError::NotSolana { .. } | SolanaError::Foreign { .. } => Fault::Permanent,
        }
    }

    async fn poll(&self, endpoint: &Endpoint, question: &Question) -> Result<Word, SolanaError> {
        if question.which_chain {
            self.prove_chain(endpoint).await?;
        }
        let (finalized, confirmed) =
            try_join(read_latest(endpoint, "finalized"), read_latest(endpoint, "confirmed")).await?;
        if finalized.number == confirmed.number && finalized.hash != confirmed.hash {
            let reason = format!("block {confirmed} is called confirmed, but {finalized} final");
            return Err(endpoint.unusable(LATEST, &reason));
        }
        // Two nodes behind one address may answer, and what is final is confirmed too.
        let latest = if finalized.number > confirmed.number { finalized } else { confirmed };
        let mut hashes = BTreeMap::from([confirmed, finalized].map(|block| (block.number, block.hash)));
        for slot in &question.numbers {
            if hashes.contains_key(slot) {
                continue;
            }
            match read_header(endpoint, *slot).await {
                Ok(header) => hashes.insert(*slot, header.block.hash),
                // No block in this slot, or it has not got it: it has no say.
                Err(error) if Solana::fault(&error) == Fault::Lacking => continue,
                Err(error) => return Err(error),
            };
        }
        Ok(Word { latest, hashes, marks: Final(finalized.number) })
    }

    fn rules(&self) -> usize {
        self.rules
    }

    fn finals(&self, word: &Word, (): &mut ()) -> Vec<Option<u64>> {
        vec![Some(word.marks.0); self.rules]
    }
}

#[derive(Deserialize)]
struct Latest<'a> {
    context: Context,
    #[serde(borrow)]
    value: Value<'a>,
}

#[derive(Deserialize)]
struct Context {
    slot: u64,
}

#[derive(Deserialize)]
struct Value<'a> {
    blockhash: &'a str,
}

async fn read_latest(endpoint: &Endpoint, commitment: &str) -> Result<BlockRef, SolanaError> {
    let call = Call { method: LATEST, params: json!([{ "commitment": commitment }]) };
    let answers = endpoint.ask_all(&[call]).await?;
    let [answer] = answers.as_slice() else { return Err(endpoint.unusable(LATEST, "no answer")) };
    let Latest { context, value } = endpoint.parse(LATEST, answer)?;
    let hash = base58::key(value.blockhash);
    let hash = hash.ok_or_else(|| endpoint.unusable(LATEST, "its blockhash is not 32 bytes in base58"))?;
    Ok(BlockRef { number: context.slot, hash: BlockHash(hash) })
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
