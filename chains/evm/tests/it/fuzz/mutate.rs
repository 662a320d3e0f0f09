//! Changes to what a node answers, from a wrong digit to a header that is forged to fit.
//!
//! Each change is a line in [`CHANGES`]: it takes dice and the answers, and may find nothing to do.

use std::fmt;

use alloy::consensus::{Header, TxEnvelope};
use alloy::eips::Encodable2718;
use alloy::primitives::{Bytes, keccak256};
use landfall_chain::U256;
use serde_json::{Map, Value, json};

use super::corpus::{Answer, BLOCK, Corpus, Fixture, RAW_TX, RECEIPTS};

/// Dice that fall the same for the same number (splitmix64).
pub(super) struct Dice(u64);

/// One change. Equal ones do the same to the same answers.
#[derive(Clone)]
pub(super) struct Change {
    pub(super) kind: usize,
    pub(super) dice: u64,
}

type Apply = fn(&mut Dice, &mut Vec<Answer>, &Corpus);

pub(super) const CHANGES: [(&str, Apply); 29] = [
    ("digit", |dice, answers, _| on_node(dice, answers, digit)),
    ("number", |dice, answers, _| on_node(dice, answers, change_number)),
    ("spelling", |dice, answers, _| on_node(dice, answers, spelling)),
    ("replace", |dice, answers, _| on_node(dice, answers, |dice, node| *node = odd_value(dice))),
    ("text", |dice, answers, _| on_node(dice, answers, odd_text)),
    ("remove", |dice, answers, _| on_container(dice, answers, remove)),
    ("duplicate", |dice, answers, _| on_container(dice, answers, duplicate)),
    ("swap", |dice, answers, _| on_container(dice, answers, swap)),
    ("reverse", |dice, answers, _| on_container(dice, answers, reverse)),
    ("insert", |dice, answers, _| on_container(dice, answers, insert)),
    ("rename", |dice, answers, _| on_container(dice, answers, rename)),
    ("copy", copy),
    ("graft", |dice, answers, corpus| graft(dice, answers, corpus)),
    ("other answer", |dice, answers, corpus| other_answer(dice, answers, corpus)),
    ("other block", other_block),
    ("mixed branches", mix_branches),
    ("move log", |dice, answers, _| move_log(dice, answers, true)),
    ("copy log", |dice, answers, _| move_log(dice, answers, false)),
    ("drop log", drop_log),
    ("swap receipts", swap_receipts),
    ("status", status),
    ("sender", sender),
    ("type", change_type),
    ("recipient or value", payment),
    ("everywhere", everywhere),
    ("hidden withdrawals", hide_withdrawals),
    ("forged transaction", forge_tx),
    ("hidden transaction", hide_tx),
    ("forged header", forge_header),
];

/// In front of the number of one of [`TEXTS`], which takes the place of the whole JSON string.
const MARK: &str = "the text ";
/// What serde_json's own values cannot hold, and what stands beside the value it replaces.
const TEXTS: [&str; 12] = [
    "1e999",
    "-0",
    "123456789012345678901234567890123456789012345678901234567890",
    "0x1",
    "",
    DEEP,
    r#""\ud800""#,
    r#""0x\u0031""#,
    r#""0x1","value":"0xffff""#,
    r#""0x1","logs":[],"transactions":[]"#,
    r#""0x1","status":"0x1","hash":null"#,
    "null",
];
/// Stands for a list that is nested deeper than a stack.
const DEEP: &str = "deep";
const DEPTH: usize = 100_000;
const NAMES: [&str; 40] = [
    "hash",
    "number",
    "timestamp",
    "baseFeePerGas",
    "withdrawalsRoot",
    "withdrawals",
    "blobGasUsed",
    "excessBlobGas",
    "parentBeaconBlockRoot",
    "requestsHash",
    "blockAccessListHash",
    "slotNumber",
    "transactions",
    "receiptsRoot",
    "transactionsRoot",
    "from",
    "to",
    "value",
    "nonce",
    "type",
    "chainId",
    "gasPrice",
    "accessList",
    "yParity",
    "v",
    "r",
    "sourceHash",
    "mint",
    "isSystemTx",
    "authorizationList",
    "status",
    "root",
    "logs",
    "topics",
    "data",
    "address",
    "logIndex",
    "depositNonce",
    "depositReceiptVersion",
    "blockHash",
];

impl Change {
    pub(super) fn name(&self) -> &'static str {
        CHANGES[self.kind].0
    }

    pub(super) fn apply(&self, answers: &mut Vec<Answer>, corpus: &Corpus) {
        CHANGES[self.kind].1(&mut Dice(self.dice), answers, corpus);
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#x})", self.name(), self.dice)
    }
}

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 0 up to, but not, `count`.
    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.roll() % u64::try_from(count).unwrap()).unwrap()
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn of<'t, T>(&mut self, items: &'t [T]) -> &'t T {
        &items[self.below(items.len())]
    }
}

/// The answer as text, with what no value can hold.
pub(super) fn text(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(MARK) {
        return text;
    }
    let deep = || ["[".repeat(DEPTH), "]".repeat(DEPTH)].concat();
    let put = |put: &str| if put == DEEP { deep() } else { put.to_owned() };
    let marked = |text: &String, index: usize| text.contains(&format!("{MARK}{index}\""));
    (0..).zip(TEXTS).fold(text, |text, (index, odd)| {
        if marked(&text, index) { text.replace(&format!("\"{MARK}{index}\""), &put(odd)) } else { text }
    })
}

fn on_node(dice: &mut Dice, answers: &mut [Answer], change: fn(&mut Dice, &mut Value)) {
    let node = any_node(dice, answers);
    change(dice, node);
}

fn on_container(dice: &mut Dice, answers: &mut [Answer], change: fn(&mut Dice, &mut Value)) {
    let container = any_container(dice, answers);
    change(dice, container);
}

/// A node of one of the answers, seldom one with nodes below it.
fn any_node<'v>(dice: &mut Dice, answers: &'v mut [Answer]) -> &'v mut Value {
    let index = dice.below(answers.len());
    node(dice, &mut answers[index].1)
}

fn node<'v>(dice: &mut Dice, value: &'v mut Value) -> &'v mut Value {
    let (count, full) = (children(value), full_children(value));
    if count == 0 || dice.one_in(12) {
        return value;
    }
    let index = if !full.is_empty() && dice.one_in(2) { *dice.of(&full) } else { dice.below(count) };
    node(dice, child(value, index))
}

/// A node that has nodes below it, where there is one.
fn any_container<'v>(dice: &mut Dice, answers: &'v mut [Answer]) -> &'v mut Value {
    let index = dice.below(answers.len());
    container(dice, &mut answers[index].1)
}

fn container<'v>(dice: &mut Dice, value: &'v mut Value) -> &'v mut Value {
    let full = full_children(value);
    if full.is_empty() || dice.one_in(3) {
        return value;
    }
    let index = *dice.of(&full);
    container(dice, child(value, index))
}

fn children(value: &Value) -> usize {
    match value {
        Value::Object(fields) => fields.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    }
}

fn child(value: &mut Value, index: usize) -> &mut Value {
    match value {
        Value::Object(fields) => fields.values_mut().nth(index).unwrap(),
        Value::Array(items) => &mut items[index],
        _ => panic!("a leaf has no children"),
    }
}

/// Which children have children.
fn full_children(value: &Value) -> Vec<usize> {
    let is_full = |(index, child): (usize, &Value)| (children(child) > 0).then_some(index);
    match value {
        Value::Object(fields) => (0..).zip(fields.values()).filter_map(is_full).collect(),
        Value::Array(items) => (0..).zip(items).filter_map(is_full).collect(),
        _ => Vec::new(),
    }
}

fn digit(dice: &mut Dice, value: &mut Value) {
    if let Value::String(text) = value
        && text.is_ascii()
        && text.len() > 2
    {
        let at = 2 + dice.below(text.len() - 2);
        let digit = *dice.of(&["0", "1", "2", "3", "7", "8", "a", "f", "g", "F"]);
        text.replace_range(at..=at, digit);
    }
}

fn change_number(dice: &mut Dice, value: &mut Value) {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x"));
    let Some(Ok(number)) = digits.map(|digits| U256::from_str_radix(digits, 16)) else { return };
    let one = U256::ONE;
    let changed =
        [number.wrapping_add(one), number.wrapping_sub(one), number << 1, number >> 1, U256::ZERO, one, !number];
    *value = json!(format!("{:#x}", dice.of(&changed)));
}

/// Other ways to write the same, and ways that only look like it.
fn spelling(dice: &mut Dice, value: &mut Value) {
    let Some(digits) = value.as_str().and_then(|text| text.strip_prefix("0x")) else { return };
    *value = json!(match dice.below(9) {
        0 => format!("0x{}", digits.to_uppercase()),
        1 => format!("0X{digits}"),
        2 => format!("0x0{digits}"),
        3 => format!("0x{digits:0>66}"),
        4 => digits.to_owned(),
        5 => format!("0x{}", digits.get(1..).unwrap_or_default()),
        6 => format!(" 0x{digits}"),
        7 => format!("0x0x{digits}"),
        _ => format!("0x{digits}\u{e9}"),
    });
}

fn odd_text(dice: &mut Dice, value: &mut Value) {
    *value = json!(format!("{MARK}{}", dice.below(TEXTS.len())));
}

fn odd_value(dice: &mut Dice) -> Value {
    let deep = (0..dice.below(300)).fold(json!("0x1"), |inner, _| json!([inner]));
    let values = [
        Value::Null,
        json!(true),
        json!([]),
        json!({}),
        json!([null]),
        json!(1),
        json!(-1),
        json!(u64::MAX),
        json!(1.5),
        json!(""),
        json!("0x"),
        json!("0x0"),
        json!("0x1"),
        json!("0xé"),
        json!(format!("0x{}", "f".repeat(64))),
        json!(format!("0x{}", "f".repeat(65))),
        json!(format!("0x{}", "ab".repeat(20_000))),
        json!("\u{0}\n\"\\"),
        json!({ "hash": null, "logs": [] }),
        deep,
    ];
    dice.of(&values).clone()
}

fn remove(dice: &mut Dice, container: &mut Value) {
    match container {
        Value::Object(fields) if !fields.is_empty() => {
            let name = fields.keys().nth(dice.below(fields.len())).unwrap().clone();
            fields.remove(&name);
        }
        Value::Array(items) if !items.is_empty() => drop(items.remove(dice.below(items.len()))),
        _ => {}
    }
}

fn duplicate(dice: &mut Dice, container: &mut Value) {
    if let Value::Array(items) = container
        && !items.is_empty()
    {
        let item = dice.of(items).clone();
        items.insert(dice.below(items.len() + 1), item);
    }
}

fn swap(dice: &mut Dice, container: &mut Value) {
    match container {
        Value::Object(fields) if fields.len() > 1 => {
            let names: Vec<String> = fields.keys().cloned().collect();
            let (one, other) = (dice.of(&names), dice.of(&names));
            let (first, second) = (fields[one].clone(), fields[other].clone());
            fields.insert(one.clone(), second);
            fields.insert(other.clone(), first);
        }
        Value::Array(items) if items.len() > 1 => {
            let (one, other) = (dice.below(items.len()), dice.below(items.len()));
            items.swap(one, other);
        }
        _ => {}
    }
}

fn reverse(_: &mut Dice, container: &mut Value) {
    if let Value::Array(items) = container {
        items.reverse();
    }
}

fn insert(dice: &mut Dice, container: &mut Value) {
    if let Value::Object(fields) = container {
        let put = if dice.one_in(2) { odd_value(dice) } else { a_field_of(dice, fields) };
        fields.insert((*dice.of(&NAMES)).to_owned(), put);
    }
}

fn a_field_of(dice: &mut Dice, fields: &Map<String, Value>) -> Value {
    fields.values().nth(dice.below(fields.len().max(1))).cloned().unwrap_or_default()
}

fn rename(dice: &mut Dice, container: &mut Value) {
    if let Value::Object(fields) = container
        && !fields.is_empty()
    {
        let name = fields.keys().nth(dice.below(fields.len())).unwrap().clone();
        let value = fields.remove(&name).unwrap();
        fields.insert((*dice.of(&NAMES)).to_owned(), value);
    }
}

fn copy(dice: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
    let copied = any_node(dice, answers).clone();
    *any_node(dice, answers) = copied;
}

/// Something of another block at the same place.
fn graft(dice: &mut Dice, answers: &mut [Answer], corpus: &Corpus) {
    let index = dice.below(answers.len());
    let (method, value) = &mut answers[index];
    let donor = donor(dice, corpus);
    if let Some((_, other)) = donor.iter().find(|(other, _)| other == method) {
        graft_at(dice, value, other);
    }
}

fn graft_at(dice: &mut Dice, value: &mut Value, other: &Value) {
    match (&mut *value, other) {
        (Value::Object(fields), Value::Object(others)) if !fields.is_empty() && !dice.one_in(8) => {
            let name = fields.keys().nth(dice.below(fields.len())).unwrap().clone();
            if let Some(other) = others.get(&name) {
                graft_at(dice, &mut fields[&name], other);
            }
        }
        (Value::Array(items), Value::Array(others)) if !items.is_empty() && !others.is_empty() && !dice.one_in(4) => {
            let index = dice.below(items.len());
            graft_at(dice, &mut items[index], &others[index % others.len()]);
        }
        _ => *value = other.clone(),
    }
}

fn donor(dice: &mut Dice, corpus: &Corpus) -> Vec<Answer> {
    dice.of(&corpus.fixtures[..corpus.small]).answers()
}

fn other_answer(dice: &mut Dice, answers: &mut [Answer], corpus: &Corpus) {
    let index = dice.below(answers.len());
    let donor = donor(dice, corpus);
    if let Some((_, other)) = donor.into_iter().find(|(method, _)| *method == answers[index].0) {
        answers[index].1 = other;
    }
}

fn other_block(dice: &mut Dice, answers: &mut Vec<Answer>, corpus: &Corpus) {
    *answers = donor(dice, corpus);
}

/// Some answers are those of another branch at the same height, as from a node that changes its mind.
fn mix_branches(dice: &mut Dice, answers: &mut Vec<Answer>, corpus: &Corpus) {
    let Some(height) = answers.first().and_then(|(_, block)| block.get("number")) else { return };
    let small = &corpus.fixtures[..corpus.small];
    let branches: Vec<&Fixture> = small.iter().filter(|fixture| fixture.blocks[0].0["number"] == *height).collect();
    if branches.is_empty() {
        return;
    }
    for (answer, other) in answers.iter_mut().zip(dice.of(&branches).answers()) {
        if answer.0 == other.0 && dice.one_in(2) {
            answer.1 = other.1;
        }
    }
}

/// The first receipts among the answers.
fn receipts(answers: &mut [Answer]) -> Option<&mut Vec<Value>> {
    let found = answers.iter_mut().find(|(method, _)| *method == RECEIPTS)?;
    found.1.as_array_mut().filter(|receipts| !receipts.is_empty())
}

fn a_log(dice: &mut Dice, receipts: &[Value]) -> Option<(usize, usize)> {
    let count = |receipt: &Value| receipt["logs"].as_array().map_or(0, Vec::len);
    let all: Vec<(usize, usize)> =
        (0..).zip(receipts).flat_map(|(at, receipt)| (0..count(receipt)).map(move |log| (at, log))).collect();
    (!all.is_empty()).then(|| *dice.of(&all))
}

/// A liar that is careful: the indexes have no gap again.
fn number_logs(dice: &mut Dice, receipts: &mut [Value]) {
    if dice.one_in(4) {
        return;
    }
    let logs = receipts.iter_mut().filter_map(|receipt| receipt.get_mut("logs")?.as_array_mut()).flatten();
    for (index, log) in (0_u64..).zip(logs) {
        if let Some(log) = log.as_object_mut() {
            log.insert("logIndex".to_owned(), json!(format!("{index:#x}")));
        }
    }
}

fn move_log(dice: &mut Dice, answers: &mut Vec<Answer>, away: bool) {
    let Some(receipts) = receipts(answers) else { return };
    let Some((from, at)) = a_log(dice, receipts) else { return };
    let log = receipts[from]["logs"][at].clone();
    if away && let Some(logs) = receipts[from]["logs"].as_array_mut() {
        logs.remove(at);
    }
    let to = dice.below(receipts.len());
    if let Some(logs) = receipts[to].get_mut("logs").and_then(Value::as_array_mut) {
        logs.insert(dice.below(logs.len() + 1), log);
    }
    number_logs(dice, receipts);
}

fn drop_log(dice: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
    let Some(receipts) = receipts(answers) else { return };
    let Some((from, at)) = a_log(dice, receipts) else { return };
    if let Some(logs) = receipts[from]["logs"].as_array_mut() {
        logs.remove(at);
    }
    number_logs(dice, receipts);
}

/// Two receipts change places, and each says that it belongs where it is.
fn swap_receipts(dice: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
    let Some(receipts) = receipts(answers) else { return };
    let (one, other) = (dice.below(receipts.len()), dice.below(receipts.len()));
    receipts.swap(one, other);
    for name in ["transactionHash", "transactionIndex"] {
        let places = (receipts[one].get(name).cloned(), receipts[other].get(name).cloned());
        if let (Some(first), Some(second)) = places {
            (receipts[one][name], receipts[other][name]) = (second, first);
        }
    }
    number_logs(dice, receipts);
}

fn status(dice: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
    let Some(receipts) = receipts(answers) else { return };
    let index = dice.below(receipts.len());
    let Some(receipt) = receipts[index].as_object_mut() else { return };
    match dice.below(4) {
        0 => drop(receipt.remove("status")),
        1 => drop(receipt.insert("root".to_owned(), json!(format!("0x{}", "11".repeat(32))))),
        2 => drop(receipt.insert("status".to_owned(), json!("0x1"))),
        _ => drop(receipt.insert("status".to_owned(), json!("0x0"))),
    }
}

/// A transaction among the answers.
fn a_tx<'v>(dice: &mut Dice, answers: &'v mut [Answer]) -> Option<&'v mut Map<String, Value>> {
    let found = answers.iter_mut().find(|(method, _)| *method == BLOCK)?;
    let txs = found.1.get_mut("transactions")?.as_array_mut().filter(|txs| !txs.is_empty())?;
    let index = dice.below(txs.len());
    txs[index].as_object_mut()
}

fn an_address(dice: &mut Dice, tx: &Map<String, Value>) -> Value {
    let addresses = ["from", "to"].map(|name| tx.get(name).cloned().unwrap_or_default());
    let byte = dice.of(&["00", "0a", "0b", "99"]);
    if dice.one_in(2) { dice.of(&addresses).clone() } else { json!(format!("0x{}", byte.repeat(20))) }
}

fn sender(dice: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
    if let Some(tx) = a_tx(dice, answers) {
        let address = an_address(dice, tx);
        tx.insert("from".to_owned(), address);
    }
}

fn payment(dice: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
    let Some(tx) = a_tx(dice, answers) else { return };
    let (address, which) = (an_address(dice, tx), dice.below(3));
    if which != 0 {
        tx.insert("to".to_owned(), address);
    }
    if which != 1 {
        tx.insert("value".to_owned(), json!("0x7"));
    }
}

/// The type of a transaction, and mostly that of its receipt with it.
fn change_type(dice: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
    let kind = json!(dice.of(&["0x0", "0x1", "0x2", "0x3", "0x4", "0x5", "0x64", "0x7e", "0x7f"]));
    let Some(tx) = a_tx(dice, answers) else { return };
    tx.insert("type".to_owned(), kind.clone());
    let hash = tx.get("hash").cloned();
    let together = !dice.one_in(4);
    for receipt in receipts(answers).into_iter().flatten().filter(|_| together) {
        if receipt.get("transactionHash") == hash.as_ref() {
            receipt["type"] = kind.clone();
        }
    }
}

/// A text becomes another one wherever it stands: a hash, say, in its transaction, its receipt and its logs.
fn everywhere(dice: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
    let Some(old) = any_node(dice, answers).as_str().map(str::to_owned) else { return };
    let mut new = json!(old);
    digit(dice, &mut new);
    answers.iter_mut().for_each(|(_, answer)| put_everywhere(answer, &json!(old), &new));
}

fn put_everywhere(value: &mut Value, old: &Value, new: &Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(|child| put_everywhere(child, old, new)),
        Value::Array(items) => items.iter_mut().for_each(|child| put_everywhere(child, old, new)),
        leaf if leaf == old => *leaf = new.clone(),
        _ => {}
    }
}

/// Their root stands under the name of a later field, where it hashes alike.
fn hide_withdrawals(dice: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
    let Some((_, Value::Object(block))) = answers.iter_mut().find(|(method, _)| *method == BLOCK) else { return };
    block.remove("withdrawals");
    if let Some(root) = block.remove("withdrawalsRoot") {
        let later = dice.of(&["parentBeaconBlockRoot", "requestsHash", "blockAccessListHash"]);
        block.insert((*later).to_owned(), root);
    }
}

/// A transaction with other content hashes to itself again, and its receipt says that it is of it.
fn forge_tx(dice: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
    let Some(tx) = a_tx(dice, answers) else { return };
    let (name, put) =
        *dice.of(&[("value", "0xffff"), ("nonce", "0x9"), ("to", "0x9999999999999999999999999999999999999999")]);
    tx.insert(name.to_owned(), json!(put));
    let Ok(envelope) = serde_json::from_value::<TxEnvelope>(Value::Object(tx.clone())) else { return };
    // alloy takes the hash that stands there for its hash.
    let hash = json!(keccak256(envelope.encoded_2718()));
    let Some(old) = tx.insert("hash".to_owned(), hash.clone()) else { return };
    answers.iter_mut().for_each(|(_, answer)| put_everywhere(answer, &old, &hash));
}

/// A transaction is called a state-sync of Polygon, whose content only its encoding tells.
fn hide_tx(dice: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
    let Some(tx) = a_tx(dice, answers) else { return };
    let Ok(envelope) = serde_json::from_value::<TxEnvelope>(Value::Object(tx.clone())) else { return };
    tx.insert("type".to_owned(), json!("0x7f"));
    answers.retain(|(method, _)| *method != RAW_TX);
    answers.push((RAW_TX, json!(Bytes::from(envelope.encoded_2718()))));
}

/// What was changed before gets a header that hashes to itself, and receipts that say they are of it.
fn forge_header(_: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
    let Some((_, block)) = answers.iter_mut().find(|(method, _)| *method == BLOCK) else { return };
    let Ok(header) = serde_json::from_value::<Header>(block.clone()) else { return };
    let hash = json!(header.hash_slow());
    block["hash"] = hash.clone();
    if let Some(receipts) = receipts(answers) {
        name_block(receipts, &hash);
    }
}

/// Says in every receipt and log that it is of the block `hash`.
pub(super) fn name_block(receipts: &mut [Value], hash: &Value) {
    for receipt in receipts.iter_mut().filter_map(Value::as_object_mut) {
        receipt.insert("blockHash".to_owned(), hash.clone());
        let logs = receipt.get_mut("logs").and_then(Value::as_array_mut);
        for log in logs.into_iter().flatten().filter_map(Value::as_object_mut) {
            log.insert("blockHash".to_owned(), hash.clone());
        }
    }
}
