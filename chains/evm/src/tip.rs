//! What one endpoint reports of where the chain ends and what is final: one request, whatever the rules need.
//!
//! Promises: every header in it is proved by its hash. A final block above the endpoint's own newest block is a lie. A
//! hash that fails in a header with an unknown field is reported as a new header, for a fork may have brought that
//! field. Whether endpoints agree, and whether one is believed alone, is the pool's.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use landfall_chain::{BlockRef, FinalityRule, Header, Tag};
use landfall_rpc::{Answer, Call, NodeError, Question, Raw};
use serde_json::json;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::dialect::{Endpoint, Evm, HeadReport};
use crate::error::{Check, EvmError};
use crate::headers::{BY_NUMBER, HeaderOnly, by_number, proved_header};
use crate::hex::{Amount, Quantity};

const CHAIN_ID: &str = "eth_chainId";
const CALL: &str = "eth_call";
/// The OP stack's `L1Block` predeploy and the selector of its `number()`.
const L1_BLOCK: &str = "0x4200000000000000000000000000000000000015";
const L1_NUMBER: &str = "0x8381f58a";
/// Besu's and EIP-1474's code for a block that a tag does not name yet.
const UNKNOWN_BLOCK: i64 = -39_001;
/// How many L1 blocks are remembered with what was safe then; rules ask for fewer.
pub(crate) const L1_BLOCKS_MAX: u64 = 1_000;
/// The shortest time for an L1 block: Ethereum's slot of 12 s (consensus specs, `SECONDS_PER_SLOT`), less a tenth,
/// because polls and sequencers see a block late.
const L1_BLOCK_LEAST: Duration = Duration::from_millis(10_800);

/// What decides, beside the newest block, what is final.
#[derive(Clone, Debug)]
pub(crate) struct Marks {
    asked_at: Instant,
    /// By tag, where the endpoint names a block by it.
    tags: Vec<(Tag, BlockRef)>,
    l1_number: Option<u64>,
}

/// The newest L2 block that was safe at each L1 block, and when; all growing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Covered(VecDeque<Seen>);

#[derive(Clone, Copy, Debug)]
struct Seen {
    l1: u64,
    safe: u64,
    /// When that was reported.
    at: Instant,
}

/// Asks `endpoint`.
pub(crate) async fn read_head(evm: &Evm, endpoint: &Endpoint, question: &Question) -> Result<HeadReport, EvmError> {
    let tagged = |tag| Call { method: BY_NUMBER, params: json!([tag, false]) };
    let mut calls = Vec::with_capacity(evm.tags.len() + question.numbers.len() + 3);
    calls.extend(question.which_chain.then(|| Call { method: CHAIN_ID, params: json!([]) }));
    calls.push(tagged("latest"));
    calls.extend(evm.tags.iter().map(|tag| tagged(name(*tag))));
    calls.extend(evm.l1_number.then(|| {
        let call = json!({ "to": L1_BLOCK, "data": L1_NUMBER });
        Call { method: CALL, params: json!([call, "latest"]) }
    }));
    calls.extend(by_number(question.numbers.iter().copied(), false));
    let asked_at = Instant::now();
    let mut answers = endpoint.ask(&calls).await?.into_iter();
    let mut next = || answers.next().ok_or_else(|| endpoint.unusable(BY_NUMBER, "no answer"));

    if question.which_chain {
        serves(endpoint, evm.chain_id, next()?)?;
    }
    let answer = next()?.map_err(|error| endpoint.refused(BY_NUMBER, &error))?;
    let latest = header_of(endpoint, &answer)?.ok_or_else(|| endpoint.unusable(BY_NUMBER, "no latest block"))?.block;
    evm.foreseen.note(endpoint.chain, latest, &answer);
    let hashes = BTreeMap::from([(latest.number, latest.hash)]);
    let mut report = HeadReport { latest, hashes, marks: Marks { asked_at, tags: Vec::new(), l1_number: None } };
    for tag in &evm.tags {
        let Some(block) = tagged_block(endpoint, next()?)? else { continue };
        if block.number > latest.number || block.number == latest.number && block != latest {
            let reason = format!("block {block} is called {}, but the latest is {latest}", called(*tag));
            return Err(endpoint.unusable(BY_NUMBER, &reason));
        }
        report.marks.tags.push((*tag, block));
        report.hashes.insert(block.number, block.hash);
    }
    if evm.l1_number {
        // A node that does not report it has no vote on what is final; all else that it reports still counts.
        report.marks.l1_number =
            next()?.ok().and_then(|answer| endpoint.parse::<Amount>(CALL, &answer).ok()?.0.try_into().ok());
    }
    for number in &question.numbers {
        // Not there, or no longer: then it has no vote on this block.
        let Ok(answer) = next()? else { continue };
        let Some(header) = header_of(endpoint, &answer)? else { continue };
        let block = header.block;
        if block.number != *number {
            return Err(endpoint.unusable(BY_NUMBER, &format!("asked for block {number}, but got block {block}")));
        }
        report.hashes.insert(block.number, block.hash);
    }
    Ok(report)
}

/// The newest block that `rule` calls final by `report`.
pub(crate) fn final_number(report: &HeadReport, rule: &FinalityRule, covered: &Covered) -> Option<u64> {
    let confirmed = report.latest.number.checked_sub(rule.confirmations)?;
    let Some(tag) = rule.tag else { return Some(confirmed) };
    let tagged = report.marks.tagged(tag)?.number;
    let tagged = if rule.l1_blocks > 0 { covered.since(&report.marks, rule.l1_blocks)?.min(tagged) } else { tagged };
    Some(tagged.min(confirmed))
}

impl Marks {
    fn tagged(&self, tag: Tag) -> Option<BlockRef> {
        self.tags.iter().find(|(named, _)| *named == tag).map(|(_, block)| *block)
    }
}

impl Covered {
    /// Remembers which block `marks`, which came at `at`, call safe at the L1 block that they stand on.
    pub(crate) fn note(&mut self, marks: &Marks, at: Instant) {
        let (Some(l1), Some(safe)) = (marks.l1_number, marks.tagged(Tag::Safe)) else { return };
        let seen = Seen { l1, safe: safe.number, at };
        match self.0.back_mut() {
            // A block that is safe now was covered now at the latest: a later pair can only wait longer.
            Some(last) if last.l1 > seen.l1 => {}
            // A block that was safe and no longer is must be covered anew.
            Some(last) if last.safe > seen.safe => {
                self.0.retain(|before| before.safe <= seen.safe);
                self.0.push_back(seen);
            }
            Some(last) if last.l1 == seen.l1 && last.safe == seen.safe => {}
            Some(last) if last.l1 == seen.l1 => *last = seen,
            Some(_) | None => self.0.push_back(seen),
        }
        while self.0.len() > 1 && self.0.get(1).is_some_and(|second| second.l1 + L1_BLOCKS_MAX <= l1) {
            self.0.pop_front();
        }
    }

    /// The newest block that was safe `blocks` L1 blocks before `marks`, and for at least as long as these take. The
    /// time counts too, because the number is the origin of the newest L2 block: it leaps when a sequencer that had
    /// lost its L1 catches up.
    fn since(&self, marks: &Marks, blocks: u64) -> Option<u64> {
        let by = marks.l1_number?.checked_sub(blocks)?;
        let least = L1_BLOCK_LEAST.saturating_mul(u32::try_from(blocks).unwrap_or(u32::MAX));
        let is_past = |seen: &&Seen| seen.l1 <= by && marks.asked_at.saturating_duration_since(seen.at) >= least;
        self.0.iter().rev().find(is_past).map(|seen| seen.safe)
    }
}

fn name(tag: Tag) -> &'static str {
    match tag {
        Tag::Finalized => "finalized",
        Tag::Safe => "safe",
    }
}

fn called(tag: Tag) -> &'static str {
    match tag {
        Tag::Finalized => "final",
        Tag::Safe => "safe",
    }
}

/// That the endpoint serves the chain with the id `expected`.
fn serves(endpoint: &Endpoint, expected: u64, answer: Answer) -> Result<(), EvmError> {
    let answer = answer.map_err(|error| endpoint.refused(CHAIN_ID, &error))?;
    let served = endpoint.parse::<Quantity>(CHAIN_ID, &answer)?.0;
    if served == expected {
        return Ok(());
    }
    Err(EvmError::WrongChain { chain: endpoint.chain, endpoint: endpoint.id.clone(), served, expected })
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

fn header_of(endpoint: &Endpoint, answer: &Raw) -> Result<Option<Header>, EvmError> {
    let block: Option<HeaderOnly<'_>> = endpoint.parse(BY_NUMBER, answer)?;
    let Some(block) = block else { return Ok(None) };
    proved_header(endpoint, block.number.0, &block).map(Some).map_err(|error| match error {
        EvmError::ProofFailed { chain, block, check: Check::HeaderHash, .. } => match unknown_field(answer) {
            Some(field) => EvmError::NewHeader { chain, block, field: endpoint.clean(&field) },
            None => error,
        },
        error => error,
    })
}

/// What a block's JSON may hold at its top that this version knows: first what the hash covers, then what nodes add to
/// it.
const KNOWN: [&str; 33] = [
    "hash",
    "parentHash",
    "sha3Uncles",
    "miner",
    "stateRoot",
    "transactionsRoot",
    "receiptsRoot",
    "logsBloom",
    "difficulty",
    "number",
    "gasLimit",
    "gasUsed",
    "timestamp",
    "extraData",
    "mixHash",
    "nonce",
    "baseFeePerGas",
    "withdrawalsRoot",
    "blobGasUsed",
    "excessBlobGas",
    "parentBeaconBlockRoot",
    "requestsHash",
    "blockAccessListHash",
    "slotNumber",
    "transactions",
    "withdrawals",
    "uncles",
    "size",
    "totalDifficulty",
    // Parity's, which Nethermind and Erigon still write for some chains.
    "author",
    "sealFields",
    "signature",
    "step",
];

/// A field that could be an unknown one of a header: the fields of headers are written as hexadecimal text.
fn unknown_field(answer: &Raw) -> Option<String> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(answer.get()).ok()?;
    let is_new =
        |(name, value): &(String, &RawValue)| !KNOWN.contains(&name.as_str()) && value.get().starts_with("\"0x");
    fields.into_iter().find(is_new).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use landfall_chain::BlockHash;

    use super::*;

    fn report(latest: u64, safe: u64, l1: u64, asked_at: Instant) -> HeadReport {
        let block = |number| BlockRef { number, hash: BlockHash([1; 32]) };
        HeadReport {
            latest: block(latest),
            hashes: BTreeMap::new(),
            marks: Marks { asked_at, tags: vec![(Tag::Safe, block(safe))], l1_number: Some(l1) },
        }
    }

    const RULE: FinalityRule = FinalityRule { tag: Some(Tag::Safe), confirmations: 0, l1_blocks: 12 };

    /// What is final behind these polls, each of a safe block, an L1 block and a second.
    fn after_at(polls: &[(u64, u64, u64)]) -> Option<u64> {
        let (mut covered, begun) = (Covered::default(), Instant::now());
        let mut last = None;
        for (safe, l1, secs) in polls {
            let at = begun + Duration::from_secs(*secs);
            let report = report(1_000, *safe, *l1, at);
            covered.note(&report.marks, at);
            last = final_number(&report, &RULE, &covered);
        }
        last
    }

    /// The same with L1 blocks of 12 s each, from the 40th on; one that falls back is reported at once.
    fn after(polls: &[(u64, u64)]) -> Option<u64> {
        let polls: Vec<_> = polls.iter().map(|(safe, l1)| (*safe, *l1, (l1 - 40) * 12)).collect();
        after_at(&polls)
    }

    #[test]
    fn l1_blocks_that_leap_make_nothing_final_before_their_time() {
        assert_eq!(after_at(&[(100, 50, 0), (160, 62, 24)]), None);
        assert_eq!(after_at(&[(100, 50, 0), (160, 62, 24), (170, 62, 129)]), None);
        assert_eq!(after_at(&[(100, 50, 0), (160, 62, 24), (170, 62, 130)]), Some(100));
        // What was reported later counts from then, though its L1 block is the same.
        assert_eq!(after_at(&[(100, 50, 0), (105, 50, 60), (160, 62, 130)]), None);
        assert_eq!(after_at(&[(100, 50, 0), (105, 50, 60), (160, 62, 190)]), Some(105));
        // Time alone is not enough.
        assert_eq!(after_at(&[(100, 50, 0), (160, 61, 1_000)]), None);
    }

    #[test]
    fn a_safe_block_is_final_so_many_l1_blocks_after_it_was_first_seen_covered() {
        assert_eq!(after(&[(100, 50)]), None);
        assert_eq!(after(&[(100, 50), (160, 61)]), None);
        assert_eq!(after(&[(100, 50), (160, 62)]), Some(100));
        assert_eq!(after(&[(100, 50), (130, 55), (160, 66)]), Some(100));
        assert_eq!(after(&[(100, 50), (130, 55), (160, 67)]), Some(130));
        // Covered later in the same L1 block: counted from that block.
        assert_eq!(after(&[(100, 50), (105, 50), (160, 62)]), Some(105));
        // A node that falls back says nothing new.
        assert_eq!(after(&[(100, 50), (130, 49), (160, 62)]), Some(100));
        // What was safe and is no longer must be covered anew.
        assert_eq!(after(&[(100, 50), (90, 60), (160, 62)]), None);
        assert_eq!(after(&[(100, 50), (90, 60), (160, 72)]), Some(90));
    }

    #[test]
    fn the_pairs_are_bounded_and_the_oldest_that_counts_stays() {
        let (mut covered, begun) = (Covered::default(), Instant::now());
        let reported = |l1: u64| {
            let at = begun + Duration::from_secs(l1 * 12);
            (report(100_000, l1 * 6, l1, at).marks, at)
        };
        for (marks, at) in (0..5_000).map(reported) {
            covered.note(&marks, at);
        }
        assert!(covered.0.len() <= 1_002, "{}", covered.0.len());
        assert_eq!(covered.since(&reported(4_999).0, L1_BLOCKS_MAX), Some(3_999 * 6));
    }

    #[test]
    fn all_parts_of_a_rule_must_hold() {
        let (report, covered) = (report(100, 80, 0, Instant::now()), Covered::default());
        let number = |confirmations| {
            final_number(&report, &FinalityRule { tag: Some(Tag::Safe), confirmations, l1_blocks: 0 }, &covered)
        };
        assert_eq!((number(0), number(20), number(21), number(101)), (Some(80), Some(80), Some(79), None));
        assert_eq!(final_number(&report, &FinalityRule::confirmations(12), &covered), Some(88));
        assert_eq!(final_number(&report, &FinalityRule::FINALIZED, &covered), None);
        assert_eq!(final_number(&report, &RULE, &covered), None);
    }

    #[test]
    fn the_selector_is_that_of_number() {
        assert_eq!(L1_NUMBER, alloy::hex::encode_prefixed(&alloy::primitives::keccak256("number()")[..4]));
    }
}
