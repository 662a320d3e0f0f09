//! What moves inside of transactions, as random traces report it, true and not.
//!
//! No root covers a trace. Promised, and checked here, is this:
//! - A true trace has exactly its legs, in both forms.
//! - What one endpoint reports is refused, or is exactly its word: never read otherwise than it was reported, and never a leg
//!   in a transaction that the receipts do not prove to have succeeded. It is reported as one endpoint's word.
//! - Of two endpoints, what they report alike is reported as two endpoints' word, what they report differently as nothing. While
//!   one of them reports the truth, no lie of the other is a leg. Who paid is one endpoint's word all the same.

use std::cell::RefCell;
use std::collections::HashMap;

use alloy::primitives::{Address, U256};
use landfall_chain::{AssetId, Block, BlockSource, Proof, SourceError, TxId, Verdict};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::corpus::{BLOCK, Corpus, RECEIPTS};
use super::frame_lies::{FrameLie, KINDS_OF_LIES, lied};
use super::frames::{Form, Moved, block, insides, reported, traces};
use super::node::{Door, Table};
use super::pair::Pair;
use super::reference::{self, word};
use super::run::{Counts, fuzz};
use crate::trace::{FULL, LISTED, traced};

type Leg = (TxId, Address, Address, U256, u32);

fn lies(count: std::ops::RangeInclusive<usize>) -> impl Strategy<Value = Vec<FrameLie>> {
    vec((0..KINDS_OF_LIES, any::<u64>()).prop_map(|(kind, dice)| FrameLie::new(kind, dice)), count)
}

fn table((block, receipts): &(Value, Value), form: Form, traces: &str) -> Table {
    let answers = [(BLOCK, block.to_string()), (RECEIPTS, receipts.to_string()), (form.method(), traces.to_owned())];
    Table::new(answers, None)
}

/// The legs of the lane of traces when this moved: numbered behind the transactions' own values.
fn legs((block, receipts): &(Value, Value), moved: &[Moved]) -> Vec<Leg> {
    let plain = |address: landfall_chain::Address| Address::from_slice(address.as_bytes());
    let own = reference::reported(&traced(), block, receipts).legs;
    let mut seen: HashMap<(TxId, Address, U256), u32> = HashMap::new();
    own.iter().filter(|leg| leg.asset == AssetId::Native).for_each(|leg| {
        *seen.entry((leg.tx.id, plain(leg.recipient), leg.amount)).or_default() += 1;
    });
    let numbered = moved.iter().map(|(tx, from, to, amount)| {
        let id = TxId::Evm(word(&block["transactions"][*tx]["hash"]).0);
        let next = seen.entry((id, *to, *amount)).or_default();
        *next += 1;
        (id, *from, *to, *amount, *next - 1)
    });
    numbered.collect()
}

fn read_legs(block: &Block) -> Vec<Leg> {
    let plain = |address: landfall_chain::Address| Address::from_slice(address.as_bytes());
    let leg = |leg: &landfall_chain::AssetTransfer| {
        assert_eq!(leg.asset, AssetId::Native);
        (leg.tx.id, plain(leg.sender), plain(leg.recipient), leg.amount, leg.nth)
    };
    block.transfers.iter().map(leg).collect()
}

/// What two endpoints must report alike: neither the order nor who paid.
fn received(legs: &[Leg]) -> Vec<(TxId, Address, U256, u32)> {
    let mut received: Vec<_> = legs.iter().map(|(tx, _, to, amount, nth)| (*tx, *to, *amount, *nth)).collect();
    received.sort_by_key(|(tx, to, amount, nth)| (tx.to_string(), *to, *amount, *nth));
    received
}

/// That every leg is of a transaction that is proved to have succeeded, whatever was reported.
fn check_proved((block, receipts): &(Value, Value), read: &Block) -> Result<(), TestCaseError> {
    let succeeded = |(tx, receipt): (&Value, &Value)| (receipt["status"] == "0x1").then(|| word(&tx["hash"]));
    let txs = block["transactions"].as_array().unwrap().iter().zip(receipts.as_array().unwrap());
    let succeeded: Vec<_> = txs.filter_map(succeeded).collect();
    for (id, from, to, amount, _) in read_legs(read) {
        prop_assert!(succeeded.iter().any(|hash| id == TxId::Evm(hash.0)) && from != to && !amount.is_zero());
    }
    Ok(())
}

fn only(read: Result<Vec<Block>, SourceError>) -> Result<Option<Block>, TestCaseError> {
    let Ok(mut blocks) = read else { return Ok(None) };
    prop_assert_eq!(blocks.len(), 1);
    Ok(Some(blocks.remove(0)))
}

#[test]
fn recorded_traces_of_a_hundred_calls_in_each_other_are_reported_and_credit_nothing() {
    // Here, because no reader of JSON but one made for it follows so deep. Counted by a script: calls, creations and
    // self-destructions below a root frame, with value and without. Before Byzantium, when no receipt said what succeeded.
    let cases = [
        (468_179, "291df06a28c65cd57d590580eb2b8501f561ba189db3e48dea8bd9c6614ddb91", 103, 104),
        (468_194, "2724878e8ae4714ac140f74f7ebb2c1afa6dc0ea2ee49d7eb036c8af9967b879", 254, 103),
    ];
    for (number, sha256, moved, empty) in cases {
        let folder = format!("{}/testdata/eth_ropsten_{number}", env!("CARGO_MANIFEST_DIR"));
        let read = |part| std::fs::read_to_string(format!("{folder}_{part}.json")).unwrap();
        let [block, receipts, frames] = ["block", "receipts", "traces"].map(read);
        assert_eq!(alloy::hex::encode(Sha256::digest(&frames)), sha256, "no root covers it");
        let frames: Vec<&RawValue> = serde_json::from_str(&frames).unwrap();
        let frames: Vec<String> = frames.iter().map(|frame| format!("{{\"result\":{}}}", frame.get())).collect();
        let answers =
            [(BLOCK, block), (RECEIPTS, receipts), (Form::Nested.method(), format!("[{}]", frames.join(",")))];
        let lay = || Table::new(answers.clone(), None);
        let read = Door::open().ask(&traced(), lay, async |source| source.blocks(number..=number, LISTED).await);
        let read = read.unwrap().remove(0);
        assert_eq!(read.transfers, []);
        let of = |verdict| read.rejected.iter().filter(|rejected| rejected.verdict == verdict).count();
        assert_eq!((of(Verdict::NoStatus), of(Verdict::ZeroValue)), (moved, empty), "{number}");
    }
}

#[test]
fn a_true_trace_has_exactly_its_legs_in_both_forms() {
    let (door, made) = (RefCell::new(Door::open()), block());
    let counts = Counts { bounded: 1_000, full: 150_000 };
    let tally = fuzz("traces", &counts, &(insides(), select(&Form::ALL)), |(insides, form)| {
        let text = traces(&made, &insides, form).to_string();
        let lay = || table(&made, form, &text);
        let read = door.borrow_mut().ask(&traced(), lay, async |source| source.blocks(5..=5, LISTED).await);
        let read = only(Ok(read.map_err(|error| TestCaseError::fail(error.to_string()))?))?.unwrap();
        let expected = legs(&made, &reported(&text, form, &made.1).unwrap());
        prop_assert_eq!(read_legs(&read), expected.clone());
        prop_assert_eq!(read.proof, Proof::OneEndpoint);
        let equal = expected.iter().filter(|leg| leg.4 > 0).count();
        Ok([vec!["legs".to_owned(); expected.len()], vec!["equal legs".to_owned(); equal]].concat())
    });
    assert!(tally["legs"] > 500 && tally["equal legs"] > 20, "{tally:?}");
}

#[test]
fn a_changed_trace_is_refused_or_exactly_its_endpoints_word() {
    let (door, made, corpus) = (RefCell::new(Door::open()), block(), Corpus::new());
    let counts = Counts { bounded: 1_000, full: 300_000 };
    let input = (insides(), select(&Form::ALL), lies(1..=3));
    let tally = fuzz("changed traces", &counts, &input, |(insides, form, lies)| {
        let truth = traces(&made, &insides, form);
        let text = lied(&truth, &lies, form, &corpus);
        let lay = || table(&made, form, &text);
        let read = door.borrow_mut().ask(&traced(), lay, async |source| source.blocks(5..=5, LISTED).await);
        let verdict = match (only(read)?, reported(&text, form, &made.1)) {
            (None, _) => "refused",
            (Some(read), word) => {
                prop_assert_eq!(read.proof, Proof::OneEndpoint);
                check_proved(&made, &read)?;
                let truth = reported(&truth.to_string(), form, &made.1).unwrap();
                match word {
                    None => "not to be read otherwise",
                    Some(word) => {
                        prop_assert_eq!(read_legs(&read), legs(&made, &word), "{}", text);
                        if word == truth { "true" } else { "one endpoint's word" }
                    }
                }
            }
        };
        let by = lies.iter().map(|lie| format!("by {}", lie.name()));
        Ok(std::iter::once(format!("{form:?} {verdict}")).chain(by).collect())
    });
    for form in Form::ALL {
        for verdict in ["refused", "true", "one endpoint's word"] {
            assert!(tally[&format!("{form:?} {verdict}")] > 10, "{tally:?}");
        }
    }
    let hit = tally.keys().filter(|what| what.starts_with("by ")).count();
    assert_eq!(hit, KINDS_OF_LIES, "{tally:?}");
}

#[test]
fn of_two_endpoints_no_lie_is_a_leg_while_one_reports_the_truth() {
    let (made, corpus) = (block(), Corpus::new());
    let pair = RefCell::new(Pair::open(traced()));
    let counts = Counts { bounded: 1_000, full: 150_000 };
    // Half of the time the second one is honest.
    let input = (insides(), select(&Form::ALL), prop_oneof![Just(Vec::new()), lies(1..=2)], lies(1..=2), any::<bool>());
    let tally = fuzz("two endpoints' traces", &counts, &input, |(insides, form, ones, others, turned)| {
        let truth = traces(&made, &insides, form);
        let mut texts = [&ones, &others].map(|lies| lied(&truth, lies, form, &corpus));
        if turned {
            texts.reverse();
        }
        let lay = |index: usize| table(&made, form, &texts[index]);
        let pair = &mut pair.borrow_mut();
        let read = only(pair.ask(lay, form.method(), async |source| source.blocks(5..=5, FULL).await))?;
        let words = texts.each_ref().map(|text| reported(text, form, &made.1).map(|moved| legs(&made, &moved)));
        let true_text = truth.to_string();
        let true_legs = legs(&made, &reported(&true_text, form, &made.1).unwrap());
        let is_honest = |text: &String| *text == true_text;
        let verdict = match read {
            None => "refused",
            Some(read) => {
                check_proved(&made, &read)?;
                let read_legs = read_legs(&read);
                let is_word = |word: &Option<Vec<Leg>>| word.as_ref().is_none_or(|word| *word == read_legs);
                let alike =
                    |word: &Option<Vec<Leg>>| word.as_ref().is_none_or(|word| received(word) == received(&read_legs));
                prop_assert!(words.iter().any(is_word), "{:?}", texts);
                match read.proof {
                    Proof::TwoEndpoints => prop_assert!(words.iter().all(alike), "{:?}", texts),
                    proof => {
                        prop_assert_eq!(proof, Proof::OneEndpoint);
                        prop_assert!(!texts.iter().all(is_honest), "two who tell the truth agree");
                    }
                }
                match (read.proof, received(&read_legs) == received(&true_legs)) {
                    (Proof::TwoEndpoints, true) => "true by two",
                    (Proof::TwoEndpoints, false) => "the same lie by two",
                    (_, true) => "true by one",
                    (_, false) => "one liar's word",
                }
            }
        };
        let honest = texts.iter().filter(|text| is_honest(text)).count();
        Ok(vec![format!("{honest} honest: {verdict}")])
    });
    assert!(tally["1 honest: refused"] > 10 && tally["1 honest: true by one"] > 50, "{tally:?}");
    assert!(tally["0 honest: refused"] > 50 && tally["0 honest: one liar's word"] > 10, "{tally:?}");
    assert!(!tally.contains_key("1 honest: one liar's word") && !tally.contains_key("1 honest: the same lie by two"));
}
