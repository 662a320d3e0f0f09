//! Where to look (`candidates`): whatever a node answers about the logs of a range and its headers, it is refused or reported
//! in a way of which this is promised, and checked here:
//!
//! - The headers are the true ones, from the first on.
//! - A block that is not reported pays nobody who is watched by what is proved of it: own values, mints, withdrawals.
//! - Nor by a log that was shown as it is, nor by one of a contract that showed no log there at all.
//! - What is not lied about is never refused.
//!
//! That none of a contract's logs was withheld or changed beside another is not promised, as of blocks by their logs.

use std::cell::RefCell;

use alloy::primitives::{Address, B256};
use landfall_chain::{Address as ChainAddress, AddressSource, AssetId, AssetTransfer, Candidates, Found, Watched};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use super::corpus::{BLOCK, Fixture};
use super::listed::{LIES, LOGS, Lie, PLAIN_CHANGES, fixtures, lie, logs_of, source};
use super::mutate;
use super::node::{Door, Table};
use super::reference;
use super::run::{Counts, fuzz};

/// What stands in the place of one character of the logs' text: it is scanned as bytes.
const CHARACTERS: [&str; 12] = ["\"", "{", "}", "[", "]", ",", ":", "\\", " ", "0", "a", "x"];

/// The legs of the fixture, in the order of its blocks.
fn legs(fixture: &Fixture) -> Vec<AssetTransfer> {
    let reported = |(block, receipts)| reference::reported(&fixture.network, block, receipts).legs;
    fixture.blocks.iter().map(|(block, receipts)| (block, receipts)).flat_map(reported).collect()
}

/// Whom to look for: somebody who is paid or pays, or, as often, nobody.
fn somebody(fixture: &Fixture, at: Index) -> ChainAddress {
    let paid = legs(fixture).into_iter().flat_map(|leg| [leg.recipient, leg.sender]);
    let mut all: Vec<ChainAddress> = paid.filter(|who| *who != ChainAddress::Evm([0; 20])).collect();
    all.resize(2 * all.len() + 1, ChainAddress::Evm([0xee; 20]));
    *at.get(&all)
}

/// The legs that no log tells of, but creations, whose recipient follows from who signed: that is not proved here.
fn unlogged(fixture: &Fixture, block: &Value, receipts: &Value) -> Vec<AssetTransfer> {
    let mut silent = receipts.clone();
    silent.as_array_mut().unwrap().iter_mut().for_each(|receipt| receipt["logs"] = json!([]));
    let creates = |leg: &AssetTransfer| {
        let txs = block["transactions"].as_array().unwrap();
        txs.iter().any(|tx| tx["hash"] == leg.tx.id.to_string().as_str() && tx["to"].is_null())
    };
    let mut legs = reference::reported(&fixture.network, block, &silent).legs;
    legs.retain(|leg| leg.asset == AssetId::Native && !creates(leg));
    legs
}

/// What of a log that was shown is read here, whatever else is wrong with it.
fn parsed<T: std::str::FromStr>(value: &Value) -> Option<T> {
    value.as_str()?.parse().ok()
}

fn is_of(log: &Value, (contract, topic): (Address, B256)) -> bool {
    log["removed"] != true && parsed(&log["address"]) == Some(contract) && parsed(&log["topics"][0]) == Some(topic)
}

fn names(log: &Value, who: &ChainAddress) -> bool {
    let topics = log["topics"].as_array().unwrap().iter().skip(1);
    let word = |topic: &Value| parsed::<B256>(topic).filter(|topic| topic.starts_with(&[0; 12]));
    let ChainAddress::Evm(who) = who else { return false };
    topics.filter_map(word).any(|topic| topic[12..] == *who)
}

/// `shown` is the answer about logs, as far as it is JSON.
fn check(
    fixture: &Fixture,
    who: &ChainAddress,
    found: &Candidates,
    shown: Option<&[Value]>,
) -> Result<&'static str, TestCaseError> {
    prop_assert!(found.headers.len() <= fixture.blocks.len());
    let mut verdict = "nobody";
    for (header, (block, receipts)) in found.headers.iter().zip(&fixture.blocks) {
        prop_assert_eq!(*header, reference::header(block));
        if found.hits.contains(&header.block) {
            verdict = "a hit";
            continue;
        }
        for leg in unlogged(fixture, block, receipts) {
            prop_assert!(leg.recipient != *who, "{leg:?} is passed over");
        }
        let Some(shown) = shown else { continue };
        let number = header.block.number;
        let is_here = |log: &&Value| parsed(&log["blockHash"]) == Some(B256::from(header.block.hash.0));
        let stands_right = shown.iter().filter(is_here).all(|log| log["blockNumber"] == block["number"]);
        let all = logs_of(fixture, block, receipts);
        for log in all.as_array().unwrap().iter().filter(|log| names(log, who)) {
            let Some(wanted) = source(fixture, number, log) else { continue };
            prop_assert!(shown.iter().any(|other| is_of(other, wanted)), "{log} is passed over");
            prop_assert!(!stands_right || !shown.contains(log), "{log} is shown, and passed over");
        }
    }
    prop_assert!(found.hits.iter().all(|hit| found.headers.iter().any(|header| header.block == *hit)));
    Ok(verdict)
}

/// A character of the text is another one.
fn spoil(text: &mut String, at: Index, character: usize) {
    if text.is_ascii() && !text.is_empty() {
        let at = at.index(text.len());
        text.replace_range(at..=at, CHARACTERS[character]);
    }
}

#[test]
fn a_search_is_refused_or_passes_over_nothing_that_was_shown() {
    let (corpus, fixtures) = fixtures();
    let doors: Vec<RefCell<Door>> = fixtures.iter().map(|_| RefCell::new(Door::open())).collect();
    let counts = Counts { bounded: 500, full: 200_000 };
    let character = prop::option::weighted(0.2, (any::<Index>(), 0..CHARACTERS.len()));
    let input = (0..fixtures.len(), any::<Index>(), vec(lie(), 0..=2), character);
    let tally = fuzz("searches by logs", &counts, &input, |(at, who, lies, character)| {
        let fixture = &fixtures[at];
        let who = somebody(fixture, who);
        let all = fixture.blocks.iter().map(|(block, receipts)| logs_of(fixture, block, receipts));
        let mut logs = vec![all.flat_map(|logs| logs.as_array().unwrap().clone()).collect::<Value>()];
        let mut rest = fixture.blocks.iter().map(|(block, _)| (BLOCK, block.clone())).collect();
        lies.iter().for_each(|lie: &Lie| lie.report(&mut logs, &mut rest, &corpus));
        let mut text = mutate::text(&logs[0]);
        character.into_iter().for_each(|(at, character)| spoil(&mut text, at, character));
        let lay = || {
            let rest = rest.iter().map(|(method, value)| (*method, mutate::text(value)));
            Table::new(rest.chain([(LOGS, text.clone())]), None)
        };
        let (first, last) = (fixture.first(), fixture.first() - 1 + u64::try_from(fixture.blocks.len()).unwrap());
        let watched = |address: &ChainAddress| *address == who;
        let found = doors[at]
            .borrow_mut()
            .ask(&fixture.network, lay, async |source| source.candidates(first..=last, Watched::Asked(&watched)).await);
        let verdict = match found {
            Err(error) => {
                prop_assert!(!lies.is_empty() || character.is_some(), "the truth was refused: {error}");
                "refused"
            }
            Ok(Found::Named(named)) => return Err(TestCaseError::fail(format!("{named:?}"))),
            Ok(Found::Linked(found)) => {
                let shown: Option<Vec<Value>> = serde_json::from_str(&text).ok();
                check(fixture, &who, &found, shown.as_deref())?
            }
        };
        Ok(std::iter::once(verdict.to_owned()).chain(lies.iter().map(|lie| format!("by {}", lie.name()))).collect())
    });
    for verdict in ["refused", "nobody", "a hit"] {
        assert!(tally[verdict] > 50, "{tally:?}");
    }
    let hit = tally.keys().filter(|what| what.starts_with("by ")).count();
    assert_eq!(hit, LIES.len() + PLAIN_CHANGES, "{tally:?}");
}
