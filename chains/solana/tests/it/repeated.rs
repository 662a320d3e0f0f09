//! One transaction that stands in a block several times: one of a durable nonce may have failed before it succeeded (SIMD-0297).

use landfall_chain::{Chain, U256};
use landfall_solana::{Candidate, Rules, Unusable, network};
use serde_json::{Value, json};

use crate::fixtures::{credits, debits, read, refusals};
use crate::made::{FEE, Made, key};

const NOTHING: [String; 0] = [];

fn reported(txs: &[Value]) -> Result<Candidate, Unusable> {
    read(&Rules::of(&network(Chain::SolanaMainnet).unwrap()), txs)
}

/// A pays W 30, and the fee; before it has this.
fn paid(before: u64) -> Value {
    Made::default().account("A", [before, before - 30]).account("W", [0, 30]).tx()
}

/// The same failed.
fn failed(before: u64) -> Value {
    let mut tx = Made::default().account("A", [before; 2]).account("W", [0; 2]).tx();
    tx["meta"]["err"] = json!({ "InstructionError": [0, { "Custom": 1 }] });
    tx
}

fn fees(candidate: &Candidate) -> Vec<U256> {
    candidate.block.fees.iter().map(|fee| fee.amount).collect()
}

#[test]
fn what_failed_before_and_behind_its_success_is_one_transaction() {
    let alone = reported(&[paid(900)]).unwrap();
    let orders = [
        vec![failed(90_000), paid(80_000)],
        vec![paid(90_000), failed(80_000)],
        vec![failed(90_000), failed(80_000), paid(70_000), failed(60_000)],
    ];
    for txs in orders {
        let candidate = reported(&txs).unwrap();
        assert_eq!(credits(&candidate), [format!("{} SOL 30", key("W"))]);
        assert_eq!(debits(&candidate), [format!("{} SOL 30", key("A"))]);
        assert_eq!(refusals(&candidate), NOTHING, "it succeeded");
        assert_eq!(candidate.block.txs, alone.block.txs, "it stands there once");
        assert_eq!(fees(&candidate), [U256::from(FEE * u64::try_from(txs.len()).unwrap())], "each cost its fee");
        assert_ne!(candidate.digest, alone.digest, "two must tell alike how often");
    }
}

#[test]
fn what_failed_each_time_pays_nobody_and_each_fee() {
    let candidate = reported(&[failed(90_000), failed(80_000)]).unwrap();
    assert_eq!((credits(&candidate), debits(&candidate)), (Vec::new(), Vec::new()));
    assert_eq!(refusals(&candidate), [format!("{} SOL 0 reverted_tx", key("A"))]);
    assert_eq!(fees(&candidate), [U256::from(2 * FEE)]);
}

/// agave keeps what became of a transaction by its signature and slot: it reports the last of it each time.
#[test]
fn one_record_that_is_reported_each_time_counts_once() {
    for tx in [paid(90_000), failed(90_000)] {
        let (once, twice) = (reported(std::slice::from_ref(&tx)).unwrap(), reported(&[tx.clone(), tx]).unwrap());
        assert_eq!(once.block, twice.block);
        assert_ne!(once.digest, twice.digest);
    }
}

#[test]
fn two_that_succeeded_and_two_payers_are_no_block() {
    let mut by_another = failed(90_000);
    by_another["transaction"]["accountKeys"].as_array_mut().unwrap().reverse();
    let cases = [
        (vec![paid(90_000), paid(80_000)], 1),
        (vec![paid(90_000), failed(80_000), paid(70_000)], 2),
        (vec![paid(90_000), failed(80_000), paid(90_000)], 2),
        (vec![paid(90_000), by_another.clone()], 1),
        (vec![by_another, paid(90_000)], 1),
    ];
    for (txs, index) in cases {
        assert_eq!(reported(&txs).unwrap_err(), Unusable::Twice { index });
    }
}
