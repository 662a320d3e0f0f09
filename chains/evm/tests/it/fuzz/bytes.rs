//! Bodies that are no answer: noise, text cut off or spliced, torn batches, wrong ids, errors in the place of results.
//!
//! Never a panic, and never anything but an error or the truth. The chain id is asked for before everything else, and
//! has inputs of its own.

use std::cell::RefCell;
use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

use super::ask::{Ask, Case, TRUE};
use super::corpus::Corpus;
use super::mutate::{self, CHANGES, Change};
use super::node::{Door, Spoil};
use super::run::{Counts, fuzz};

/// What happens to one body.
#[derive(Clone, Debug)]
enum Fault {
    Noise(Vec<u8>),
    /// What looks like JSON, or like hexadecimal digits.
    Words(Vec<&'static str>),
    Cut(Index),
    Flip(Index, u8),
    Insert(Index, Vec<u8>),
    /// A part of the body, from and up to, copied over what begins somewhere else.
    Splice(Index, Index, Index),
    /// Changes to the batch as a value: its entries, their ids and results.
    Batch(Vec<Change>),
    Ids(IdFault),
    /// An error in the place of an entry's result, or beside it.
    Error(Index, i64, &'static str, bool),
}

#[derive(Clone, Copy, Debug)]
enum IdFault {
    Rotated,
    AllTheFirst,
    Increased,
    Text,
    Null,
    Huge,
    Fraction,
    NoBatch,
    /// Another order with the right ids is no fault at all.
    Reversed,
}

const WORDS: [&str; 26] = [
    "[",
    "]",
    "{",
    "}",
    "\"",
    ":",
    ",",
    "0x",
    "0x0",
    "\"0x1\"",
    "null",
    "true",
    "-",
    "1",
    "e",
    "9999999999999999999",
    ".5",
    "\\u0000",
    "\\ud800",
    "\"id\":",
    "\"result\":",
    "\"error\":",
    "\"jsonrpc\":\"2.0\"",
    "\"hash\":",
    " ",
    "\u{e9}",
];
const ERRORS: [&str; 5] =
    ["", "finalized block not found", "unknown block", "limit exceeded \u{0}\n\u{1b}[31m", "\u{1f4a9} of many words"];

fn fault() -> impl Strategy<Value = Fault> {
    let change = (0..CHANGES.len(), any::<u64>()).prop_map(|(kind, dice)| Change { kind, dice });
    const IDS: [IdFault; 9] = [
        IdFault::Rotated,
        IdFault::AllTheFirst,
        IdFault::Increased,
        IdFault::Text,
        IdFault::Null,
        IdFault::Huge,
        IdFault::Fraction,
        IdFault::NoBatch,
        IdFault::Reversed,
    ];
    const CODES: [i64; 5] = [-32_601, -39_001, 3, i64::MIN, i64::MAX];
    prop_oneof![
        vec(any::<u8>(), 0..200).prop_map(Fault::Noise),
        vec(select(&WORDS), 0..40).prop_map(Fault::Words),
        any::<Index>().prop_map(Fault::Cut),
        (any::<Index>(), any::<u8>()).prop_map(|(at, byte)| Fault::Flip(at, byte)),
        (any::<Index>(), vec(any::<u8>(), 1..20)).prop_map(|(at, bytes)| Fault::Insert(at, bytes)),
        any::<(Index, Index, Index)>().prop_map(|(from, until, to)| Fault::Splice(from, until, to)),
        vec(change, 1..=3).prop_map(Fault::Batch),
        select(&IDS).prop_map(Fault::Ids),
        (any::<Index>(), select(&CODES), select(&ERRORS), any::<bool>())
            .prop_map(|(at, code, message, beside)| Fault::Error(at, code, message, beside)),
    ]
}

impl Fault {
    fn name(&self) -> &'static str {
        match self {
            Fault::Noise(_) => "noise",
            Fault::Words(_) => "words",
            Fault::Cut(_) => "cut",
            Fault::Flip(..) => "flip",
            Fault::Insert(..) => "insert",
            Fault::Splice(..) => "splice",
            Fault::Batch(_) => "batch",
            Fault::Ids(_) => "ids",
            Fault::Error(..) => "error",
        }
    }

    fn spoil(&self, mut body: Vec<u8>, corpus: &Corpus) -> Vec<u8> {
        match self {
            Fault::Noise(noise) => noise.clone(),
            Fault::Words(words) => words.concat().into_bytes(),
            Fault::Cut(at) => body[..at.index(body.len())].to_vec(),
            Fault::Flip(at, byte) => {
                let at = at.index(body.len());
                body[at] = *byte;
                body
            }
            Fault::Insert(at, bytes) => {
                let at = at.index(body.len());
                drop(body.splice(at..at, bytes.iter().copied()));
                body
            }
            Fault::Splice(from, until, to) => {
                let (from, until, to) = (from.index(body.len()), until.index(body.len()), to.index(body.len()));
                let part = body[from.min(until)..from.max(until)].to_vec();
                let end = body.len().min(to + part.len());
                drop(body.splice(to..end, part));
                body
            }
            Fault::Batch(changes) => {
                let mut answers = vec![("the whole batch", serde_json::from_slice(&body).unwrap())];
                changes.iter().for_each(|change| change.apply(&mut answers, corpus));
                mutate::text(&answers[0].1).into_bytes()
            }
            Fault::Ids(fault) => {
                let Value::Array(entries) = serde_json::from_slice(&body).unwrap() else { return body };
                change_ids(*fault, entries).to_string().into_bytes()
            }
            Fault::Error(at, code, message, beside) => {
                let Value::Array(mut entries) = serde_json::from_slice(&body).unwrap() else { return body };
                let at = at.index(entries.len());
                entries[at]["error"] = json!({ "code": code, "message": message });
                if !beside {
                    entries[at].as_object_mut().unwrap().remove("result");
                }
                json!(entries).to_string().into_bytes()
            }
        }
    }
}

fn change_ids(fault: IdFault, mut entries: Vec<Value>) -> Value {
    let mut ids: Vec<Value> = entries.iter().map(|entry| entry["id"].clone()).collect();
    let each = |change: fn(&Value) -> Value, ids: &mut Vec<Value>| ids.iter_mut().for_each(|id| *id = change(id));
    match fault {
        IdFault::Rotated => ids.rotate_left(1),
        IdFault::AllTheFirst => {
            let first = ids[0].clone();
            ids.fill(first);
        }
        IdFault::Increased => each(|id| json!(id.as_u64().unwrap() + 1), &mut ids),
        IdFault::Text => each(|id| json!(id.to_string()), &mut ids),
        IdFault::Null => ids.fill(Value::Null),
        IdFault::Huge => ids.fill(json!(u64::MAX)),
        IdFault::Fraction => each(|id| json!(id.as_f64().unwrap() + 0.5), &mut ids),
        IdFault::NoBatch => return entries.remove(0),
        IdFault::Reversed => {
            entries.reverse();
            return json!(entries);
        }
    }
    entries.iter_mut().zip(ids).for_each(|(entry, id)| entry["id"] = id);
    json!(entries)
}

/// Spoils one body of those that a question needs: the first or the second.
fn spoiler(fault: &Fault, mut turns_before: usize, corpus: &Arc<Corpus>) -> Spoil {
    let (fault, corpus) = (fault.clone(), corpus.clone());
    Box::new(move |body| {
        if turns_before > 0 {
            turns_before -= 1;
            return body;
        }
        turns_before = usize::MAX;
        fault.spoil(body, &corpus)
    })
}

#[test]
fn a_spoilt_body_is_an_error_or_the_truth() {
    let (corpus, door) = (Arc::new(Corpus::new()), RefCell::new(Door::open()));
    let input = (0..corpus.small, select(&Ask::ALL), 0..2_usize, fault());
    let counts = Counts { bounded: 1_000, full: 200_000 };
    let tally = fuzz("spoilt bodies", &counts, &input, |(fixture, ask, turn, fault)| {
        let case = Case::true_one(&corpus, &corpus.fixtures[fixture], ask);
        let outcome = case.put(&mut door.borrow_mut(), &case.texts(), || Some(spoiler(&fault, turn, &corpus)))?;
        Ok(vec![format!("{ask:?} {outcome}"), format!("by {}", fault.name())])
    });
    for ask in [Ask::Blocks, Ask::Headers, Ask::Tip, Ask::FinalAt] {
        assert!(tally[&format!("{ask:?} {TRUE}")] > 10, "{tally:?}");
    }
}

/// Results that are not what their method gives, in a whole batch.
#[test]
fn noise_in_the_place_of_a_result_is_an_error_or_the_truth() {
    let (corpus, door) = (Corpus::new(), RefCell::new(Door::open()));
    let noise = vec(select(&WORDS), 0..30).prop_map(|words| words.concat());
    let input =
        (0..corpus.small, select(&Ask::ALL), any::<Index>(), prop_oneof![noise, ".{0,60}", "\"0x[0-9a-fx]{0,70}\""]);
    let counts = Counts { bounded: 1_000, full: 100_000 };
    fuzz("noise as a result", &counts, &input, |(fixture, ask, at, noise)| {
        let case = Case::true_one(&corpus, &corpus.fixtures[fixture], ask);
        let mut texts = case.texts();
        let at = at.index(texts.len());
        let method = texts[at].0;
        texts[at].1 = noise;
        let outcome = case.put(&mut door.borrow_mut(), &texts, || None)?;
        Ok(vec![format!("{ask:?} {outcome}"), method.to_owned()])
    });
}

#[test]
fn a_node_whose_chain_id_is_noise_is_never_believed() {
    let (corpus, door) = (Corpus::new(), RefCell::new(Door::open()));
    let noise = vec(select(&WORDS), 0..10).prop_map(|words| words.concat());
    let id = prop_oneof![noise, "\"0x[0-9a-f]{1,3}\"", Just("\"0x1\"".to_owned()), Just("\"0x0001\"".to_owned())];
    let counts = Counts { bounded: 300, full: 20_000 };
    let fixture = &corpus.fixtures[0];
    let tally = fuzz("chain ids", &counts, &id, |id| {
        // Space around a value is JSON's own.
        let id = id.trim_matches(' ');
        let is_one = id
            .strip_prefix("\"0x")
            .and_then(|id| id.strip_suffix('"'))
            .is_some_and(|id| id.bytes().all(|digit| digit.is_ascii_hexdigit()) && id.trim_start_matches('0') == "1");
        let believed = door.borrow_mut().believes_chain_id(&fixture.network, id);
        prop_assert_eq!(believed, is_one);
        Ok(vec![format!("believed: {believed}")])
    });
    assert_eq!(tally.len(), 2, "{tally:?}");
}
