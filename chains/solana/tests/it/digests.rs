//! What two endpoints must report alike of a block: whatever changes a credit, a debit, a fee or a sender changes the digest, and
//! what honest nodes report differently does not.

use std::cell::Cell;
use std::collections::BTreeSet;

use landfall_chain::Legs;
use landfall_solana::{Candidate, Rules, Wrapped, block};
use proptest::prelude::*;
use proptest::sample::Index;
use serde_json::{Value, json};

use crate::fixtures::{accounts_shape, asked, block_of, listing, load, transactions};
use crate::generated::{NAMES, load_one};
use crate::made::{Made, RENT, USDC, associated, key};
use crate::witnesses::payments;

/// Blocks of a few recorded transactions each, in the shape that we ask for.
fn corpus() -> Vec<Value> {
    let mut txs: Vec<Value> = NAMES.into_iter().map(|name| accounts_shape(&load_one(name)["json"])).collect();
    for path in ["metamask/swap-sol-to-usdc.json", "metamask/spam-2.json", "chainstorage/block_account_deletion.json"] {
        txs.extend(transactions(&load(path)).iter().map(accounts_shape));
    }
    txs.extend(payments());
    txs.chunks(3).map(block_of).collect()
}

fn rules(corpus: &[Value]) -> [Rules; 2] {
    let txs: Vec<Value> = corpus.iter().flat_map(transactions).collect();
    let rules = Rules::of(&listing(&txs));
    [rules.clone().with_wrapped(Wrapped::Native), rules]
}

fn read(rules: &Rules, reported: &Value) -> Option<Candidate> {
    block(rules, &serde_json::to_string(reported).unwrap(), &asked(Legs::Creditable)).ok()
}

/// What of a block is recorded: the order of legs within a transaction is no part of it.
fn recorded(candidate: &Candidate) -> (Vec<String>, BTreeSet<String>, BTreeSet<String>) {
    let header = format!("{:?} {:?}", candidate.block.header.block, candidate.block.header.parent);
    let legs = candidate.block.transfers.iter().map(|it| format!("{it:?}"));
    let legs = legs.chain(candidate.block.unattributed.iter().map(|it| format!("{it:?}"))).collect();
    let debits = candidate.block.debits().iter().map(|it| format!("{it:?}"));
    let fees = candidate.block.fees.iter().map(|fee| format!("{fee:?}"));
    let txs = candidate.block.txs.iter().map(|tx| format!("{tx:?}"));
    (txs.chain([header]).collect(), legs, debits.chain(fees).collect())
}

/// The paths of all values within, the parts before what holds them.
fn paths(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(name, value)| paths(value, &format!("{at}/{name}"), found)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, value)| paths(value, &format!("{at}/{index}"), found));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    found.push(at.to_owned());
}

/// Changes one value, or takes it away, or puts another one of the block in its place.
fn change(block: &mut Value, at: Index, other: Index, how: u8) {
    let mut all = Vec::new();
    paths(block, "", &mut all);
    let (path, other) = (&all[at.index(all.len())], &all[other.index(all.len())]);
    let other = block.pointer(other).cloned().unwrap();
    let (holder, name) = path.rsplit_once('/').unwrap_or_default();
    if how == 0 {
        match block.pointer_mut(holder) {
            Some(Value::Object(fields)) => drop(fields.remove(name)),
            Some(Value::Array(items)) => {
                // The block itself has no name, also where another value of it stands in its place.
                if let Some(at) = name.parse().ok().filter(|at: &usize| *at < items.len()) {
                    drop(items.remove(at));
                }
            }
            _ => {}
        }
        return;
    }
    let value = block.pointer_mut(path).unwrap();
    *value = match (how, value.clone()) {
        (1, Value::Number(number)) => json!(number.as_u64().unwrap_or_default().wrapping_add(1)),
        (1, Value::String(text)) => match text.parse::<u64>() {
            Ok(number) => json!(number.wrapping_add(1).to_string()),
            Err(_) => other,
        },
        (1, Value::Null) => json!({ "InstructionError": [1, { "Custom": 1 }] }),
        (2, _) => Value::Null,
        (3, Value::Number(_)) => json!(0),
        (3, Value::String(_)) => json!("11111111111111111111111111111111"),
        (_, _) => other,
    };
}

/// What is done to a block as it is reported.
type Change = fn(&mut Value);

#[test]
fn whatever_changes_what_is_recorded_changes_the_digest() {
    let corpus = corpus();
    let rules = rules(&corpus);
    let counts = [const { Cell::new(0_usize) }; 3];
    let count = |at: usize, is_one: bool| counts[at].set(counts[at].get() + usize::from(is_one));
    proptest!(ProptestConfig::with_cases(8_000), |(
        at in any::<Index>(), changes in proptest::collection::vec((any::<Index>(), any::<Index>(), 0_u8..5), 1..3),
        native in any::<bool>(),
    )| {
        let (reported, rules) = (&corpus[at.index(corpus.len())], &rules[usize::from(native)]);
        let mut otherwise = reported.clone();
        changes.into_iter().for_each(|(at, other, how)| change(&mut otherwise, at, other, how));
        let (one, other) = (read(rules, reported).unwrap(), read(rules, &otherwise));
        if let Some(other) = other {
            let is_same = recorded(&one) == recorded(&other);
            count(0, true);
            count(1, !is_same);
            count(2, one.digest == other.digest && *reported != otherwise);
            prop_assert!(is_same || one.digest != other.digest, "{reported}\n{otherwise}");
            prop_assert_eq!(one.digest == other.digest, one.digest.difference(&other.digest).is_none());
        }
    });
    let [read_both, changed, alike] = counts.map(Cell::into_inner);
    assert!(read_both > 2_500 && changed > 300 && alike > 300, "{read_both} read, {changed} changed, {alike} alike");
}

#[test]
fn a_debit_is_the_same_in_whatever_order_a_node_lists_token_balances() {
    // Two lose as much each, and two gain: whom a debit names, and which of two equal ones it is, must not hang on the order.
    let tx = Made::default()
        .account("payer", [5_000_000; 2])
        .tokens("from A", "A", USDC, [RENT; 2], [Some(10), Some(0)])
        .tokens("from B", "B", USDC, [RENT; 2], [Some(10), Some(0)])
        .tokens_at(associated(&key("C")), "C", USDC, [RENT; 2], [Some(0), Some(12)])
        .tokens_at(associated(&key("D")), "D", USDC, [RENT; 2], [Some(0), Some(8)])
        .tx();
    let rules = &rules(&[block_of(std::slice::from_ref(&tx))])[1];
    let reported = |tx: &Value| read(rules, &block_of(std::slice::from_ref(tx))).unwrap();
    let one = reported(&tx);
    assert_eq!(one.block.debits().iter().map(|debit| debit.nth).collect::<Vec<_>>(), [0, 1]);
    for order in 1..16_u32 {
        let mut otherwise = tx.clone();
        for (side, bits) in [("preTokenBalances", order & 3), ("postTokenBalances", order >> 2)] {
            let held = otherwise["meta"][side].as_array_mut().unwrap();
            held.rotate_left(bits as usize);
            if bits == 3 {
                held.reverse();
            }
        }
        let other = reported(&otherwise);
        assert_eq!((other.digest, other.block.debits()), (one.digest, one.block.debits()), "{order}");
        assert_eq!(other.block.transfers, one.block.transfers, "{order}");
    }
}

#[test]
fn what_honest_nodes_report_differently_changes_nothing() {
    let corpus = corpus();
    let rules = &rules(&corpus)[1];
    let as_reported =
        |reported: &Value| (read(rules, reported).unwrap().digest, recorded(&read(rules, reported).unwrap()));
    let ways: [(&str, Change); 7] = [
        ("token balances in another order", |block| {
            each(block, |tx| {
                for side in ["preTokenBalances", "postTokenBalances"] {
                    tx["meta"][side].as_array_mut().unwrap().reverse();
                }
            })
        }),
        ("no time yet", |block| block["blockTime"] = Value::Null),
        ("no height", |block| drop(block.as_object_mut().unwrap().remove("blockHeight"))),
        ("fields of tomorrow", |block| {
            block["rewards"] = json!([{ "lamports": 1 }]);
            each(block, |tx| {
                tx["version"] = json!(7);
                tx["meta"]["costUnits"] = json!(7);
                tx["meta"]["loadedAddresses"] = json!({ "writable": [], "readonly": [] });
                tx["transaction"]["accountKeys"][0]["source"] = json!("transaction");
            });
        }),
        ("errors in other words", |block| {
            each(block, |tx| {
                if !tx["meta"]["err"].is_null() {
                    tx["meta"]["err"] = json!("AccountNotFound");
                    tx["meta"]["status"] = json!({ "Err": "AccountNotFound" });
                }
            })
        }),
        ("amounts as fractions, too", |block| {
            each(block, |tx| {
                for side in ["preTokenBalances", "postTokenBalances"] {
                    for balance in tx["meta"][side].as_array_mut().unwrap() {
                        balance["uiTokenAmount"]["uiAmount"] = Value::Null;
                        balance["uiTokenAmount"]["uiAmountString"] = json!("1");
                    }
                }
            })
        }),
        ("keys without attributes", |block| {
            each(block, |tx| {
                for key in tx["transaction"]["accountKeys"].as_array_mut().unwrap() {
                    *key = json!({ "pubkey": key["pubkey"] });
                }
            })
        }),
    ];
    for reported in &corpus {
        for (what, way) in ways {
            let mut otherwise = reported.clone();
            way(&mut otherwise);
            assert_eq!(as_reported(&otherwise), as_reported(reported), "{what}");
        }
    }
}

fn each(block: &mut Value, change: impl Fn(&mut Value)) {
    block["transactions"].as_array_mut().unwrap().iter_mut().for_each(change);
}

#[test]
fn what_a_closed_account_is_still_said_to_hold_changes_nothing() {
    let rules = &rules(&corpus())[1];
    let closed = crate::made::Made::default()
        .account("payer", [1_000, 1_000 + crate::made::RENT])
        .tokens("gone", "payer", crate::made::USDC, [crate::made::RENT, 0], [Some(5), None])
        .tx();
    let mut still_reported = closed.clone();
    still_reported["meta"]["postTokenBalances"] = closed["meta"]["preTokenBalances"].clone();
    let [one, other] = [closed, still_reported].map(|tx| read(rules, &block_of(&[tx])).unwrap());
    assert_eq!((one.digest, recorded(&one)), (other.digest, recorded(&other)));
}

proptest! {
    #[test]
    fn token_balances_in_any_order_come_to_the_same(seed in any::<u64>()) {
        let corpus = corpus();
        let rules = &rules(&corpus)[1];
        for reported in &corpus {
            let mut otherwise = reported.clone();
            each(&mut otherwise, |tx| {
                for side in ["preTokenBalances", "postTokenBalances"] {
                    tx["meta"][side].as_array_mut().unwrap().sort_by_key(|balance| {
                        let account = balance["accountIndex"].as_u64().unwrap();
                        (account + 1).wrapping_mul(seed | 1).rotate_left(17)
                    });
                }
            });
            let (one, other) = (read(rules, reported).unwrap(), read(rules, &otherwise).unwrap());
            prop_assert_eq!(one.digest, other.digest);
            prop_assert_eq!(recorded(&one), recorded(&other));
        }
    }
}
