//! Changes that know what a block is: another block's content, logs and receipts that move, forged transactions and
//! headers, whatever a careful liar would try to make them fit.

use alloy::consensus::{Header, TxEnvelope};
use alloy::eips::Encodable2718;
use alloy::primitives::{Bytes, keccak256};
use serde_json::{Map, Value, json};

use super::corpus::{Answer, BLOCK, Corpus, Fixture, RAW_TX, RECEIPTS};
use super::mutate::digit;
use super::walk::{Dice, any_node};

/// Something of another block at the same place.
pub(super) fn graft(dice: &mut Dice, answers: &mut [Answer], corpus: &Corpus) {
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

pub(super) fn other_answer(dice: &mut Dice, answers: &mut [Answer], corpus: &Corpus) {
    let index = dice.below(answers.len());
    let donor = donor(dice, corpus);
    if let Some((_, other)) = donor.into_iter().find(|(method, _)| *method == answers[index].0) {
        answers[index].1 = other;
    }
}

pub(super) fn other_block(dice: &mut Dice, answers: &mut Vec<Answer>, corpus: &Corpus) {
    *answers = donor(dice, corpus);
}

/// Some answers are those of another branch at the same height, as from a node that changes its mind.
pub(super) fn mix_branches(dice: &mut Dice, answers: &mut Vec<Answer>, corpus: &Corpus) {
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

pub(super) fn move_log(dice: &mut Dice, answers: &mut Vec<Answer>, away: bool) {
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

pub(super) fn drop_log(dice: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
    let Some(receipts) = receipts(answers) else { return };
    let Some((from, at)) = a_log(dice, receipts) else { return };
    if let Some(logs) = receipts[from]["logs"].as_array_mut() {
        logs.remove(at);
    }
    number_logs(dice, receipts);
}

/// Two receipts change places, and each says that it belongs where it is.
pub(super) fn swap_receipts(dice: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
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

pub(super) fn status(dice: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
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

pub(super) fn sender(dice: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
    if let Some(tx) = a_tx(dice, answers) {
        let address = an_address(dice, tx);
        tx.insert("from".to_owned(), address);
    }
}

pub(super) fn payment(dice: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
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
pub(super) fn change_type(dice: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
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
pub(super) fn everywhere(dice: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
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
pub(super) fn hide_withdrawals(dice: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
    let Some((_, Value::Object(block))) = answers.iter_mut().find(|(method, _)| *method == BLOCK) else { return };
    block.remove("withdrawals");
    if let Some(root) = block.remove("withdrawalsRoot") {
        let later = dice.of(&["parentBeaconBlockRoot", "requestsHash", "blockAccessListHash"]);
        block.insert((*later).to_owned(), root);
    }
}

/// A transaction with other content hashes to itself again, and its receipt says that it is of it.
pub(super) fn forge_tx(dice: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
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

/// A transaction is called a state-sync of Polygon, whose content only its encoding reports.
pub(super) fn hide_tx(dice: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
    let Some(tx) = a_tx(dice, answers) else { return };
    let Ok(envelope) = serde_json::from_value::<TxEnvelope>(Value::Object(tx.clone())) else { return };
    tx.insert("type".to_owned(), json!("0x7f"));
    answers.retain(|(method, _)| *method != RAW_TX);
    answers.push((RAW_TX, json!(Bytes::from(envelope.encoded_2718()))));
}

/// What was changed before gets a header that hashes to itself, and receipts that say they are of it.
pub(super) fn forge_header(_: &mut Dice, answers: &mut Vec<Answer>, _: &Corpus) {
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
