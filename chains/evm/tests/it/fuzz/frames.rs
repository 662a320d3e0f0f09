//! Frames: random trees of them, told in both forms that nodes have, and what they move by the plainest possible code.
//!
//! The reference reads the JSON that the node showed, changed or not, with none of the crate's code: nothing but the
//! node's word says what moves inside of a transaction. Only success is proved, by the receipt.

use alloy::primitives::{Address, U256};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::corpus::with_true_senders;
use super::reference::{address, word};
use crate::mint::{self, Tx};
use crate::trace::{FLAT, NESTED, failed, flat, frame, nested};

const KINDS: [&str; 7] = ["CALL", "CREATE", "CREATE2", "SELFDESTRUCT", "DELEGATECALL", "CALLCODE", "STATICCALL"];
const PEOPLE: [Address; 4] =
    [Address::repeat_byte(0x0a), Address::repeat_byte(0x0b), Address::repeat_byte(0xbb), Address::ZERO];

/// How a node tells traces.
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
    with_true_senders(mint::block(5, alloy::primitives::B256::repeat_byte(1), &txs))
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

/// What the text says to have moved inside of the transactions that succeeded. `None` where no reader of JSON but one
/// made for it gets through: nested too deep, or with an escape that means nothing.
pub(super) fn told(text: &str, form: Form, receipts: &Value) -> Option<Vec<Moved>> {
    let traces: Value = serde_json::from_str(text).ok()?;
    let mut moved = Vec::new();
    match form {
        Form::Nested => {
            for (tx, trace) in traces.as_array()?.iter().enumerate() {
                for call in list(&trace["result"]["calls"]) {
                    of_nested(tx, call, is_failed(&trace["result"]), &mut moved);
                }
            }
        }
        Form::Flat => of_flat(traces.as_array()?, &mut moved),
    }
    moved.retain(|(tx, ..)| receipts[tx]["status"] == "0x1");
    Some(moved)
}

fn of_nested(tx: usize, frame: &Value, around_failed: bool, moved: &mut Vec<Moved>) {
    let failed = around_failed || is_failed(frame);
    if !failed && KINDS[..4].iter().any(|kind| frame["type"] == *kind) {
        push(tx, [&frame["from"], &frame["to"], &frame["value"]], moved);
    }
    list(&frame["calls"]).iter().for_each(|call| of_nested(tx, call, failed, moved));
}

/// Frames of one transaction stand together; a frame failed when it or any that its way leads through did.
fn of_flat(frames: &[Value], moved: &mut Vec<Moved>) {
    let frames: Vec<&Value> = frames.iter().filter(|frame| !frame["transactionHash"].is_null()).collect();
    let groups = frames.chunk_by(|a, b| word(&a["transactionHash"]) == word(&b["transactionHash"]));
    for (tx, group) in groups.enumerate() {
        let way = |frame: &Value| -> Vec<u64> {
            list(&frame["traceAddress"]).iter().map(|step| step.as_u64().unwrap()).collect()
        };
        let mut inside: Vec<&Value> = group.iter().copied().filter(|frame| !way(frame).is_empty()).collect();
        inside.sort_by_key(|frame| way(frame));
        for frame in inside {
            let failed = group.iter().any(|other| is_failed(other) && way(frame).starts_with(&way(other)));
            let action = &frame["action"];
            let ends = match frame["type"].as_str().unwrap() {
                "call" if action["callType"] == "call" => [&action["from"], &action["to"], &action["value"]],
                "create" => [&action["from"], &frame["result"]["address"], &action["value"]],
                "suicide" | "selfdestruct" => [&action["address"], &action["refundAddress"], &action["balance"]],
                _ => continue,
            };
            if !failed {
                push(tx, ends, moved);
            }
        }
    }
}

fn push(tx: usize, [from, to, value]: [&Value; 3], moved: &mut Vec<Moved>) {
    let digits = value.as_str().unwrap().strip_prefix("0x").unwrap();
    let (from, to, amount) = (address(from), address(to), U256::from_str_radix(digits, 16).unwrap());
    if !amount.is_zero() && from != to {
        moved.push((tx, from, to, amount));
    }
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
        assert_eq!(told(&text, form, &block.1), Some(vec![(0, PEOPLE[0], PEOPLE[1], U256::from(5))]), "{form:?}");
    }
    assert_eq!(told("[", Form::Flat, &json!([])), None);
}
