//! Frames: random trees of them, reported in both forms that nodes have, and what they move by the plainest possible code.
//!
//! The reference reads the JSON that the node showed, changed or not, with none of the crate's code: nothing but the
//! node's word says what moves inside of a transaction. Only success is proved, by the receipt.

use alloy::primitives::{Address, B256, U256};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::corpus::with_true_senders;
use super::reference::address;
use crate::mint::{self, Tx};
use crate::trace::{FLAT, NESTED, failed, flat, frame, nested};

pub(super) const KINDS: [&str; 7] =
    ["CALL", "CREATE", "CREATE2", "SELFDESTRUCT", "DELEGATECALL", "CALLCODE", "STATICCALL"];
pub(super) const PEOPLE: [Address; 4] =
    [Address::repeat_byte(0x0a), Address::repeat_byte(0x0b), Address::repeat_byte(0xbb), Address::ZERO];

/// How a node reports traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Form {
    Nested,
    Flat,
}

/// A frame inside of a transaction.
#[derive(Clone, Debug)]
pub(super) struct Inner {
    kind: &'static str,
    from: Address,
    to: Address,
    value: u64,
    failed: bool,
    calls: Vec<Inner>,
}

/// What a node's word says to have moved: the transaction's place in its block, from, to, amount.
pub(super) type Moved = (usize, Address, Address, U256);

impl Form {
    pub(super) const ALL: [Form; 2] = [Form::Nested, Form::Flat];

    pub(super) fn method(self) -> &'static str {
        match self {
            Form::Nested => NESTED,
            Form::Flat => FLAT,
        }
    }
}

impl Inner {
    /// Inside of a frame that runs as `around`: who destroys itself is no other.
    fn json(&self, around: Address) -> Value {
        let from = if self.kind == "SELFDESTRUCT" { around } else { self.from };
        let runs_as = if matches!(self.kind, "DELEGATECALL" | "CALLCODE") { self.from } else { self.to };
        let calls = self.calls.iter().map(|call| call.json(runs_as)).collect();
        let frame = frame(self.kind, from, self.to, self.value, calls);
        if self.failed { failed(frame) } else { frame }
    }
}

/// A block with transactions that call, fail and create; two of them pay by their own value what is also paid inside.
pub(super) fn block() -> (Value, Value) {
    let txs = [
        Tx { from: mint::signer(1), to: Some(PEOPLE[0]), value: 1, ..Tx::default() },
        Tx { nonce: 1, ..Tx::default() },
        Tx { nonce: 2, value: 2, success: false, ..Tx::default() },
        Tx { from: mint::signer(2), to: None, value: 1, ..Tx::default() },
    ];
    with_true_senders(mint::block(5, B256::repeat_byte(1), &txs))
}

/// What is inside of each transaction of [`block`].
pub(super) fn insides() -> impl Strategy<Value = Vec<Vec<Inner>>> {
    let fields = || (select(&KINDS), select(&PEOPLE), select(&PEOPLE), 0..3_u64, prop::bool::weighted(0.15));
    let inner = |(kind, from, to, value, failed): (&'static str, _, _, _, bool), calls| {
        // It calls nobody, and its failure would be that of the frame around it.
        let ends = kind == "SELFDESTRUCT";
        Inner { kind, from, to, value, failed: failed && !ends, calls: if ends { Vec::new() } else { calls } }
    };
    let leaf = fields().prop_map(move |fields| inner(fields, Vec::new()));
    let tree = leaf.prop_recursive(6, 12, 3, move |calls| {
        (fields(), vec(calls, 0..3)).prop_map(move |(fields, calls)| inner(fields, calls))
    });
    vec(vec(tree, 0..3), 4)
}

/// The traces of `block`, whose transactions' insides these are.
pub(super) fn traces((block, receipts): &(Value, Value), insides: &[Vec<Inner>], form: Form) -> Value {
    let root = |((tx, receipt), inside): ((&Value, &Value), &Vec<Inner>)| {
        let from = address(&tx["from"]);
        let created = || from.create(u64::from_str_radix(&tx["nonce"].as_str().unwrap()[2..], 16).unwrap());
        let (kind, to) = if tx["to"].is_null() { ("CREATE", created()) } else { ("CALL", address(&tx["to"])) };
        let value = u64::from_str_radix(&tx["value"].as_str().unwrap()[2..], 16).unwrap();
        let root = frame(kind, from, to, value, inside.iter().map(|call| call.json(to)).collect());
        if receipt["status"] == "0x1" { root } else { failed(root) }
    };
    let txs = block["transactions"].as_array().unwrap().iter().zip(receipts.as_array().unwrap());
    let roots: Vec<Value> = txs.zip(insides).map(root).collect();
    let nested = nested(block, &roots);
    match form {
        Form::Nested => nested,
        Form::Flat => flat(block, &nested),
    }
}

/// What the text says to have moved inside of the transactions that succeeded, whatever is told of others. `None` where
/// it is nonsense, or no reader of JSON but one made for it gets through: nested too deep, an escape that means nothing.
pub(super) fn reported(text: &str, form: Form, receipts: &Value) -> Option<Vec<Moved>> {
    let traces: Value = serde_json::from_str(text).ok()?;
    let succeeded = |tx: usize| receipts[tx]["status"] == "0x1";
    let mut moved = Vec::new();
    match form {
        Form::Nested => {
            for (tx, trace) in traces.as_array()?.iter().enumerate().filter(|(tx, _)| succeeded(*tx)) {
                let root = &trace["result"];
                for call in list(&root["calls"]) {
                    of_nested(tx, call, (nested_account(root), is_failed(root)), &mut moved)?;
                }
            }
        }
        Form::Flat => {
            let frames = traces.as_array()?.iter().filter(|frame| !frame["transactionHash"].is_null());
            let frames: Vec<&Value> = frames.collect();
            let groups = frames.chunk_by(|a, b| hash(&a["transactionHash"]) == hash(&b["transactionHash"]));
            for (tx, group) in groups.enumerate().filter(|(tx, _)| succeeded(*tx)) {
                of_flat(tx, group, &mut moved)?;
            }
        }
    }
    Some(moved)
}

/// `around`: as whom the frame around it runs, and whether that failed or stands in one that did.
fn of_nested(tx: usize, frame: &Value, around: (Option<Address>, bool), moved: &mut Vec<Moved>) -> Option<()> {
    let failed = around.1 || is_failed(frame);
    if !failed && KINDS[..4].iter().any(|kind| frame["type"] == *kind) {
        // Who destroys itself is the account that runs, whoever is named.
        let payer = if frame["type"] == "SELFDESTRUCT" { around.0 } else { None };
        let payer = payer.or_else(|| who(&frame["from"]));
        push(tx, (payer?, who(&frame["to"])?, &frame["value"]), moved)?;
    }
    list(&frame["calls"]).iter().try_for_each(|call| of_nested(tx, call, (nested_account(frame), failed), moved))
}

fn nested_account(frame: &Value) -> Option<Address> {
    match frame["type"].as_str()? {
        "DELEGATECALL" | "CALLCODE" => who(&frame["from"]),
        "CALL" | "CREATE" | "CREATE2" | "STATICCALL" => who(&frame["to"]),
        _ => None,
    }
}

/// The frames of one transaction, which stand together; one failed when it or any that its way leads through did.
fn of_flat(tx: usize, group: &[&Value], moved: &mut Vec<Moved>) -> Option<()> {
    let way = |frame: &Value| list(&frame["traceAddress"]).iter().map(Value::as_u64).collect::<Option<Vec<u64>>>();
    let mut inside: Vec<(Vec<u64>, &Value)> = Vec::new();
    for frame in group {
        inside.push((way(frame)?, *frame));
    }
    inside.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (way, frame) in inside.iter().filter(|(way, _)| !way.is_empty()) {
        let failed = inside.iter().any(|(other, around)| is_failed(around) && way.starts_with(other));
        let around = inside.iter().find(|(other, _)| *other == way[..way.len() - 1]).map(|(_, around)| *around);
        let action = &frame["action"];
        let (payer, recipient, value) = match frame["type"].as_str()? {
            "call" if action["callType"] == "call" => (who(&action["from"]), &action["to"], &action["value"]),
            "create" => (who(&action["from"]), &frame["result"]["address"], &action["value"]),
            "suicide" | "selfdestruct" => {
                let payer = around.and_then(flat_account).or_else(|| who(&action["address"]));
                (payer, &action["refundAddress"], &action["balance"])
            }
            _ => continue,
        };
        if !failed {
            push(tx, (payer?, who(recipient)?, value), moved)?;
        }
    }
    Some(())
}

fn flat_account(frame: &Value) -> Option<Address> {
    match (frame["type"].as_str()?, frame["action"]["callType"].as_str()) {
        ("call", Some("delegatecall" | "callcode")) => who(&frame["action"]["from"]),
        ("call", Some("call" | "staticcall")) => who(&frame["action"]["to"]),
        ("create", _) => who(&frame["result"]["address"]),
        _ => None,
    }
}

fn push(tx: usize, (from, to, value): (Address, Address, &Value), moved: &mut Vec<Moved>) -> Option<()> {
    let amount = U256::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok()?;
    if !amount.is_zero() && from != to {
        moved.push((tx, from, to, amount));
    }
    Some(())
}

fn who(value: &Value) -> Option<Address> {
    value.as_str()?.parse().ok()
}

fn hash(value: &Value) -> Option<B256> {
    value.as_str()?.parse().ok()
}

fn is_failed(frame: &Value) -> bool {
    frame.get("error").is_some_and(|error| !error.is_null())
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

#[test]
fn the_reference_reads_both_forms_alike() {
    let block = block();
    let paid = Inner { kind: "CALL", from: PEOPLE[0], to: PEOPLE[1], value: 5, failed: false, calls: vec![] };
    let undone = Inner { failed: true, calls: vec![paid.clone()], ..paid.clone() };
    let insides =
        [vec![paid.clone(), undone], vec![], vec![paid.clone()], vec![Inner { kind: "DELEGATECALL", ..paid }]];
    for form in Form::ALL {
        let text = traces(&block, &insides, form).to_string();
        assert_eq!(reported(&text, form, &block.1), Some(vec![(0, PEOPLE[0], PEOPLE[1], U256::from(5))]), "{form:?}");
    }
    assert_eq!(reported("[", Form::Flat, &json!([])), None);
    let nonsense = traces(&block, &insides, Form::Nested).to_string().replace("0x5", "five");
    assert_eq!(reported(&nonsense, Form::Nested, &block.1), None);
}
