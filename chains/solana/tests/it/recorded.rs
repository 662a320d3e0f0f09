//! Recorded answers of mainnet and devnet: what every owner gained is what a script adds up that knows nothing of this
//! crate (`testdata/expected.py`), and every shape of a transaction reports the same.

use std::collections::BTreeMap;

use landfall_chain::Legs;
use landfall_solana::{Candidate, Rules, Unusable, block};
use serde_json::Value;

use crate::fixtures::{accounts_shape, asked, listing, load, read, transactions};

/// What owners gained of listed assets, whatever became of it: the verdicts part it and take nothing away.
fn gains(candidate: &Candidate) -> Vec<String> {
    let unattributed = candidate.block.unattributed.iter().map(|it| &it.transfer);
    let legs = candidate.block.transfers.iter().chain(unattributed);
    let mut sums: BTreeMap<String, u128> = BTreeMap::new();
    for leg in legs {
        let asset = if leg.asset == landfall_chain::AssetId::Native { "SOL".to_owned() } else { leg.asset.to_string() };
        *sums.entry(format!("{} {asset}", leg.recipient)).or_default() += u128::try_from(leg.amount).unwrap();
    }
    sums.into_iter().map(|(what, amount)| format!("{what} {amount}")).collect()
}

fn expected(gains: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut lines: Vec<String> = gains
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_array().unwrap().iter().map(text).collect::<Vec<_>>().join(" "))
        .collect();
    lines.sort();
    lines
}

#[test]
fn every_recorded_transaction_comes_to_what_a_script_adds_up() {
    let all = load("expected.json");
    let (mut read_txs, mut gained) = (0, 0);
    for (path, txs) in all.as_object().unwrap() {
        let answer = load(path);
        let answer = answer.get("json").unwrap_or(&answer);
        for (index, (mut tx, wanted)) in transactions(answer).into_iter().zip(txs.as_array().unwrap()).enumerate() {
            let rules = Rules::of(&listing(std::slice::from_ref(&tx)));
            let signature = tx.pointer_mut("/transaction/signatures/0");
            if let Some(signature) = signature.filter(|it| it.as_str().is_some_and(|it| it.starts_with("signature-"))) {
                // Some had theirs taken out, and are whole but for that.
                *signature = bs58::encode([1; 64]).into_string().into();
            }
            let candidate = read(&rules, std::slice::from_ref(&tx));
            match wanted {
                Value::Null => assert!(matches!(candidate, Err(Unusable::Balances { .. })), "{path}: {candidate:?}"),
                Value::String(_) => assert!(matches!(candidate, Err(Unusable::Owner { .. })), "{path}: {candidate:?}"),
                _ if path.contains("signatures") => {
                    assert!(matches!(candidate, Err(Unusable::Signature { index: 0 })), "{path}: {candidate:?}");
                }
                wanted => {
                    let candidate = candidate.unwrap_or_else(|error| panic!("{path} {index}: {error}"));
                    assert_eq!(gains(&candidate), expected(wanted), "{path} {index}");
                    assert_eq!(read(&rules, &[accounts_shape(&tx)]), Ok(candidate), "{path} {index} as accounts");
                    (read_txs, gained) = (read_txs + 1, gained + wanted.as_array().unwrap().len());
                }
            }
        }
    }
    assert_eq!((read_txs, gained), (124, 74));
}

#[test]
fn a_whole_block_reads_the_same_in_every_encoding() {
    let shapes =
        ["json", "json_parsed", "base64"].map(|shape| load(&format!("solders/get_block_{shape}_encoding.json")));
    let txs = transactions(&shapes[0]);
    let rules = Rules::of(&listing(&txs));
    let asked = landfall_solana::Asked { slot: 147_078_735, ..asked(Legs::Explained) };
    let mut candidates = Vec::new();
    for (shape, file) in ["json", "json_parsed", "base64"].into_iter().zip(&shapes) {
        let mut result = file["result"].clone();
        if shape != "base64" {
            candidates.push(block(&rules, &serde_json::to_string(&result).unwrap(), &asked).unwrap());
        }
        let converted: Vec<Value> = transactions(file).iter().map(accounts_shape).collect();
        result["transactions"] = converted.into();
        candidates.push(block(&rules, &serde_json::to_string(&result).unwrap(), &asked).unwrap());
    }
    let first = &candidates[0];
    assert_eq!((first.block.txs.len(), first.block.fees.len()), (25, 25));
    assert_eq!((first.block.header.parent.number, first.block.header.time_secs), (147_078_734, 1_657_486_664));
    assert!(candidates.iter().all(|other| other == first), "five readings of one block");
}

#[test]
fn a_transaction_reads_the_same_in_every_encoding() {
    let of = |shape: &str| accounts_shape(&load(&format!("solders/get_transaction_{shape}_encoding.json"))["result"]);
    let rules = Rules::of(&listing(&[]));
    let first = read(&rules, &[of("json")]).unwrap();
    assert_eq!(first.block.fees.len(), 1);
    for shape in ["json_parsed", "base64"] {
        assert_eq!(read(&rules, &[of(shape)]).as_ref(), Ok(&first), "{shape}");
    }
}

#[test]
fn a_block_of_before_owners_were_reported_reads_while_its_mints_are_not_listed() {
    let answer = load("chainstorage/block.json");
    let txs = transactions(&answer);
    let none = Rules::of(&listing(&[]));
    let candidate = read(&none, &txs).unwrap();
    assert_eq!((candidate.block.txs.len(), candidate.block.fees.len()), (4, 4));
    let listed = read(&Rules::of(&listing(&txs)), &txs);
    assert!(matches!(listed, Err(Unusable::Owner { index: 1, .. })), "{listed:?}");
}
