//! Blocks by their logs (`ReadProof::Candidate`): whatever a node answers, they are refused or candidates of which this is
//! promised, and checked here:
//!
//! - Header and transactions are the true ones, and so is what they pay by themselves (own values, mints, withdrawals).
//! - What came from receipts (`roots`) has exactly the legs of the block.
//! - A contract that logged something that counts is never passed over in silence: either it shows a log, and the block
//!   is a candidate to be read in full, or the bloom gives it away, and the block was read with receipts at once.
//! - Of logs, nothing but what was shown, of listed contracts. That none was withheld or changed beside another is not
//!   promised: nothing is ever recorded from here.

use std::cell::RefCell;

use alloy::primitives::{Address, B256};
use landfall_chain::{
    Address as ChainAddress, Asset, AssetId, AssetTransfer, Block, BlockSource, NativeSource, Proof, Read, ReadProof,
    TxLife, TxRef,
};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::chain_logs;
use super::corpus::{Corpus, Fixture};
use super::mutate::{self, CHANGES, Change};
use super::node::{Door, Table};
use super::reference::{self, LOG_TRANSFER, POL, SYSTEM, address, word};
use super::run::{Counts, fuzz};
use super::walk::Dice;
use crate::mint::TRANSFER;

const LISTED: Read = Read { proof: ReadProof::Candidate, ..Read::FULL };
pub(super) const LOGS: &str = "eth_getLogs";
const BY_HASH: &str = "eth_getBlockByHash";
/// The changes of `mutate` that know nothing of blocks stand first.
pub(super) const PLAIN_CHANGES: usize = 12;

pub(super) type Report = fn(&mut Dice, &mut Vec<Value>);

/// Lies about the logs of a block.
pub(super) const LIES: [(&str, Report); 7] = [
    ("none", |_, logs| logs.clear()),
    ("one withheld", |dice, logs| drop(logs.remove(dice.below(logs.len())))),
    ("one contract's withheld", |dice, logs| {
        let contract = dice.of(logs)["address"].clone();
        logs.retain(|log| log["address"] != contract);
    }),
    ("removed", |dice, logs| {
        let at = dice.below(logs.len());
        logs[at]["removed"] = json!(true);
    }),
    ("another recipient", |dice, logs| {
        let at = dice.below(logs.len());
        if let Some(end) = logs[at]["topics"].as_array_mut().and_then(|topics| topics.last_mut()) {
            *end = json!(Address::repeat_byte(0x0c).into_word());
        }
    }),
    ("another amount", |dice, logs| {
        let at = dice.below(logs.len());
        logs[at]["data"] = json!(B256::with_last_byte(u8::try_from(dice.below(4)).unwrap()));
    }),
    ("another contract", |dice, logs| {
        let (at, contract) = (dice.below(logs.len()), dice.of(logs)["address"].clone());
        logs[at]["address"] = contract;
    }),
];

#[derive(Clone, Debug)]
pub(super) enum Lie {
    /// To the logs; to any answer.
    Plain(Change, bool),
    Logs(usize, u64),
}

pub(super) fn lie() -> impl Strategy<Value = Lie> {
    let plain = (0..PLAIN_CHANGES, any::<u64>(), prop::bool::weighted(0.7));
    let plain = plain.prop_map(|(kind, dice, of_logs)| Lie::Plain(Change { kind, dice }, of_logs));
    prop_oneof![2 => plain, 3 => (0..LIES.len(), any::<u64>()).prop_map(|(kind, dice)| Lie::Logs(kind, dice))]
}

impl Lie {
    pub(super) fn report(&self, logs: &mut Vec<Value>, rest: &mut Vec<(&'static str, Value)>, corpus: &Corpus) {
        match self {
            // Where no block has such logs there are none to lie about.
            Lie::Plain(_, true) if logs.is_empty() => {}
            Lie::Plain(change, true) => {
                let mut answers: Vec<(&str, Value)> = logs.iter_mut().map(|logs| (LOGS, logs.take())).collect();
                change.apply(&mut answers, corpus);
                *logs = answers.into_iter().map(|(_, logs)| logs).collect();
            }
            Lie::Plain(change, false) => change.apply(rest, corpus),
            Lie::Logs(kind, dice) => {
                let dice = &mut Dice::new(*dice);
                let mut shown: Vec<&mut Vec<Value>> = logs.iter_mut().filter_map(Value::as_array_mut).collect();
                shown.retain(|logs| logs.iter().all(Value::is_object) && !logs.is_empty());
                if !shown.is_empty() {
                    let at = dice.below(shown.len());
                    LIES[*kind].1(dice, shown[at]);
                }
            }
        }
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Lie::Plain(change, _) => CHANGES[change.kind].0,
            Lie::Logs(kind, _) => LIES[*kind].0,
        }
    }
}

/// What `eth_getLogs` answers of a block: the logs of the contracts and topics that were asked for.
pub(super) fn logs_of(fixture: &Fixture, block: &Value, receipts: &Value) -> Value {
    let mut logs = Vec::new();
    for receipt in receipts.as_array().unwrap() {
        for log in receipt["logs"].as_array().unwrap().iter().filter(|log| source(fixture, u64::MAX, log).is_some()) {
            let mut log = log.clone();
            log["blockNumber"] = block["number"].clone();
            log["blockHash"] = block["hash"].clone();
            log["transactionHash"] = receipt["transactionHash"].clone();
            log["transactionIndex"] = receipt["transactionIndex"].clone();
            logs.push(log);
        }
    }
    json!(logs)
}

/// The contract and topic of a log, when they count in a block of this number.
pub(super) fn source(fixture: &Fixture, number: u64, log: &Value) -> Option<(Address, B256)> {
    let (contract, topic) = (address(&log["address"]), word(log["topics"].get(0)?));
    let network = &fixture.network;
    let listed =
        |asset: &Asset| asset.id == AssetId::Token(ChainAddress::Evm(contract.into())) && asset.from_block <= number;
    let by_chain = contract == POL && topic == LOG_TRANSFER && network.native.source == NativeSource::LogTransfer;
    let by_system = contract == SYSTEM && network.native.eip7708_from.is_some_and(|from| from <= number);
    let by_token = by_system || network.assets.iter().any(listed);
    (by_chain || topic == TRANSFER && by_token).then_some((contract, topic))
}

/// The block with the logs that were shown, as if every transaction had succeeded: what may be a credit by them.
fn candidates(fixture: &Fixture, block: &Value, receipts: &Value, shown: &Value) -> Vec<AssetTransfer> {
    let mut receipts = receipts.clone();
    for receipt in receipts.as_array_mut().unwrap() {
        let tx = word(&receipt["transactionHash"]);
        // A hash in capitals, or without 0x, is the same hash.
        let is_of_tx = |log: &Value| log["transactionHash"].as_str().and_then(|hash| hash.parse().ok()) == Some(tx);
        let of_tx = |log: &&Value| is_of_tx(log) && log["removed"] != true;
        let logs: Vec<Value> = shown.as_array().into_iter().flatten().filter(of_tx).cloned().collect();
        receipt["logs"] = json!(logs);
        receipt["status"] = json!("0x1");
    }
    reference::reported(&fixture.network, block, &receipts).legs
}

/// Who signed is not proved before it is asked for, and a creation's recipient follows from it.
fn proved_part(block: &Value, legs: &[AssetTransfer]) -> Vec<AssetTransfer> {
    let creates = |leg: &AssetTransfer| {
        let tx = block["transactions"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|tx| tx["hash"].as_str().is_some_and(|hash| *hash == leg.tx.id.to_string()));
        leg.asset == AssetId::Native && tx.is_some_and(|tx| tx["to"].is_null())
    };
    let legs = legs.iter().filter(|leg| !creates(leg)).cloned();
    let nobody = ChainAddress::Evm([0; 20]);
    let unsigned = |leg: AssetTransfer| AssetTransfer {
        tx: TxRef { life: TxLife::Block, ..leg.tx },
        sender: if leg.asset == AssetId::Native { nobody } else { leg.sender },
        ..leg
    };
    legs.map(unsigned).collect()
}

fn check(
    fixture: &Fixture,
    read: &[Block],
    shown: &[Value],
    logs_are_readable: bool,
) -> Result<&'static str, TestCaseError> {
    prop_assert!(read.len() <= fixture.blocks.len());
    let mut verdict = "nothing";
    let mut shown = shown.iter();
    for (read, (block, receipts)) in read.iter().zip(&fixture.blocks) {
        let reported = reference::reported(&fixture.network, block, receipts);
        prop_assert_eq!((read.header, &read.txs), (reported.header, &reported.txs));
        let (number, true_logs) = (read.header.block.number, logs_of(fixture, block, receipts));
        // A block whose bloom holds none of the contracts is not asked about.
        let is_asked = true_logs != json!([]);
        let answer = if is_asked { shown.next().cloned().unwrap_or_default() } else { json!([]) };
        match read.proof {
            Proof::Roots => {
                prop_assert_eq!(proved_part(block, &read.transfers), proved_part(block, &reported.legs));
                verdict = "by receipts";
            }
            proof => {
                prop_assert_eq!(proof, Proof::Bloom);
                if !logs_are_readable {
                    continue;
                }
                for log in true_logs.as_array().unwrap() {
                    let Some(wanted) = source(fixture, number, log) else { continue };
                    let is_seen =
                        |other: &Value| other["removed"] != true && source(fixture, number, other) == Some(wanted);
                    prop_assert!(answer.as_array().unwrap().iter().any(is_seen), "{log} is passed over");
                }
                let candidates = candidates(fixture, block, receipts, &answer);
                prop_assert_eq!(proved_part(block, &read.transfers), proved_part(block, &candidates), "{}", answer);
                verdict = if answer == true_logs { "candidates" } else { "candidates by a lie" };
            }
        }
    }
    Ok(verdict)
}

/// The fixtures of both corpora without the large ones, whose blooms are not empty where something happened.
pub(super) fn fixtures() -> (Corpus, Vec<Fixture>) {
    let (mut tokens, mut native) = (Corpus::new(), chain_logs::corpus());
    let mut fixtures: Vec<Fixture> = tokens.fixtures.drain(..tokens.small).collect();
    fixtures.extend(native.fixtures.drain(..native.small));
    (Corpus::new(), fixtures)
}

#[test]
fn blocks_by_their_logs_are_refused_or_candidates() {
    let (corpus, fixtures) = fixtures();
    let doors: Vec<RefCell<Door>> = fixtures.iter().map(|_| RefCell::new(Door::open())).collect();
    let counts = Counts { bounded: 1_000, full: 200_000 };
    let input = (0..fixtures.len(), vec(lie(), 0..=2), any::<bool>());
    let tally = fuzz("blocks by their logs", &counts, &input, |(at, lies, by_hash)| {
        let fixture = &fixtures[at];
        let mut logs: Vec<Value> =
            fixture.blocks.iter().map(|(block, receipts)| logs_of(fixture, block, receipts)).collect();
        logs.retain(|logs| *logs != json!([]));
        let mut rest = fixture.answers();
        let is_single = fixture.blocks.len() == 1;
        if is_single {
            rest.push((BY_HASH, fixture.blocks[0].0.clone()));
        }
        lies.iter().for_each(|lie| lie.report(&mut logs, &mut rest, &corpus));
        let texts: Vec<String> = logs.iter().map(mutate::text).collect();
        let lay = || {
            let rest = rest.iter().map(|(method, value)| (*method, mutate::text(value)));
            // Who asks of a block without such logs is told that there are none.
            let logs = texts.iter().cloned().chain(texts.is_empty().then(|| "[]".to_owned()));
            Table::new(rest.chain(logs.map(|text| (LOGS, text))), None)
        };
        let (first, last) = (fixture.first(), fixture.first() - 1 + u64::try_from(fixture.blocks.len()).unwrap());
        let read = doors[at].borrow_mut().ask(&fixture.network, lay, async |source| {
            if by_hash && is_single {
                // Then the newest block is asked for by its hash, together with its logs.
                let _ = source.tip().await;
            }
            source.blocks(first..=last, LISTED).await
        });
        let verdict = match read {
            Err(error) => {
                prop_assert!(!lies.is_empty(), "the truth was refused: {error}");
                "refused"
            }
            Ok(read) => {
                let shown: Option<Vec<Value>> = texts.iter().map(|text| serde_json::from_str(text).ok()).collect();
                check(fixture, &read, shown.as_deref().unwrap_or_default(), shown.is_some())?
            }
        };
        Ok(std::iter::once(verdict.to_owned()).chain(lies.iter().map(|lie| format!("by {}", lie.name()))).collect())
    });
    for verdict in ["refused", "candidates", "candidates by a lie", "by receipts"] {
        assert!(tally[verdict] > 50, "{tally:?}");
    }
    let hit = tally.keys().filter(|what| what.starts_with("by ") && *what != "by receipts").count();
    assert_eq!(hit, LIES.len() + PLAIN_CHANGES, "{tally:?}");
}
