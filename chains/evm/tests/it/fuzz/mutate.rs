//! Changes to what a node answers, from a wrong digit to a header that is forged to fit.
//!
//! Each change is a line in [`CHANGES`]: it takes dice and the answers, and may find nothing to do. Those that know
//! what a block is are in `lies`.

use std::fmt;

use landfall_chain::U256;
use serde_json::{Map, Value, json};

use super::corpus::{Answer, Corpus};
use super::lies::{
    change_type, drop_log, everywhere, forge_header, forge_tx, graft, hide_tx, hide_withdrawals, mix_branches,
    move_log, other_answer, other_block, payment, sender, status, swap_receipts,
};
use super::walk::{Dice, any_node, on_container, on_node};

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
        CHANGES[self.kind].1(&mut Dice::new(self.dice), answers, corpus);
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#x})", self.name(), self.dice)
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

pub(super) fn digit(dice: &mut Dice, value: &mut Value) {
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
