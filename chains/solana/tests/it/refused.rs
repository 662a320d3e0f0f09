//! Answers that are not whole are no blocks; what only a newer chain knows is read over.

use landfall_chain::{Chain, Legs};
use landfall_solana::{Rules, Unusable, block, network};
use serde_json::{Value, json};

use crate::fixtures::{SLOT, asked, block_of, credits, load, read, transactions};
use crate::made::{Made, RENT, USDC, associated, key};

fn rules() -> Rules {
    Rules::of(&network(Chain::SolanaMainnet).unwrap())
}

fn paid() -> Value {
    Made::default()
        .account("A", [100, 50])
        .account("W", [0, 50])
        .tokens_at(associated(&key("W")), "W", USDC, [RENT; 2], [Some(0), Some(7)])
        .tx()
}

/// What `change` makes of a block with one transaction before and one behind the changed one.
fn changed(change: impl Fn(&mut Value)) -> Result<Vec<String>, Unusable> {
    let mut txs = [paid(), paid(), paid()];
    for (tx, byte) in txs.iter_mut().zip(1..) {
        tx["transaction"]["signatures"] = json!([bs58::encode([byte; 64]).into_string()]);
    }
    change(&mut txs[1]);
    read(&rules(), &txs).map(|candidate| credits(&candidate))
}

#[test]
fn one_transaction_that_is_not_whole_makes_the_block_unusable() {
    assert_eq!(changed(|_| ()).unwrap().len(), 6);
    let balances = |keys, pre, post| Unusable::Balances { index: 1, keys, pre, post };
    let json = |error: &Unusable| matches!(error, Unusable::Json { what: "a block", .. });
    type Change = fn(&mut Value);
    let exact: [(Change, Unusable); 15] = [
        (|tx| tx["meta"] = Value::Null, Unusable::NoMeta { index: 1 }),
        (|tx| drop(tx.as_object_mut().unwrap().remove("meta")), Unusable::NoMeta { index: 1 }),
        (|tx| drop(tx["meta"]["preBalances"].as_array_mut().unwrap().pop()), balances(3, 2, 3)),
        (|tx| drop(tx["meta"]["postBalances"].as_array_mut().unwrap().pop()), balances(3, 3, 2)),
        (|tx| tx["transaction"]["accountKeys"] = json!([]), balances(0, 3, 3)),
        (|tx| tx["transaction"]["accountKeys"] = Value::Null, balances(0, 3, 3)),
        (|tx| tx["transaction"]["signatures"] = json!([]), Unusable::Signature { index: 1 }),
        (|tx| tx["transaction"]["signatures"] = json!([""]), Unusable::Signature { index: 1 }),
        (
            |tx| {
                tx["transaction"]["signatures"] = json!([bs58::encode([1; 64]).into_string()]);
                tx["meta"]["fee"] = 1.into();
            },
            Unusable::Twice { index: 1 },
        ),
        (
            |tx| tx["meta"]["postTokenBalances"][0]["accountIndex"] = 3.into(),
            Unusable::TokenAccount { index: 1, account: 3 },
        ),
        (
            |tx| {
                let again = tx["meta"]["postTokenBalances"][0].clone();
                tx["meta"]["postTokenBalances"].as_array_mut().unwrap().push(again);
            },
            Unusable::TokenAccount { index: 1, account: 2 },
        ),
        (
            |tx| tx["meta"]["postTokenBalances"][0]["uiTokenAmount"]["amount"] = "7.0".into(),
            Unusable::Amount { index: 1 },
        ),
        (
            |tx| tx["meta"]["postTokenBalances"][0]["uiTokenAmount"]["amount"] = "18446744073709551616".into(),
            Unusable::Amount { index: 1 },
        ),
        (
            |tx| tx["meta"]["preTokenBalances"][0]["uiTokenAmount"]["decimals"] = 9.into(),
            Unusable::Decimals { index: 1, mint: USDC.to_owned(), reported: 9, listed: 6 },
        ),
        (|tx| tx["transaction"]["accountKeys"][0]["pubkey"] = "0".into(), Unusable::Key { index: 1 }),
    ];
    for (at, (change, expected)) in exact.into_iter().enumerate() {
        assert_eq!(changed(change), Err(expected), "{at}");
    }
    let unread: [Change; 8] = [
        |tx| drop(tx["meta"].as_object_mut().unwrap().remove("err")),
        |tx| drop(tx["meta"].as_object_mut().unwrap().remove("fee")),
        |tx| drop(tx["meta"].as_object_mut().unwrap().remove("postTokenBalances")),
        |tx| tx["meta"]["preTokenBalances"] = Value::Null,
        |tx| tx["meta"]["postBalances"][1] = (-1).into(),
        |tx| tx["meta"]["postBalances"][1] = json!(50.5),
        |tx| tx["transaction"] = json!(["AAAA", "base64"]),
        |tx| tx["meta"]["postTokenBalances"][0]["uiTokenAmount"]["amount"] = 7.into(),
    ];
    for (at, change) in unread.into_iter().enumerate() {
        assert!(changed(change).is_err_and(|error| json(&error)), "{at}");
    }
    let ownerless = changed(|tx| drop(tx["meta"]["postTokenBalances"][0].as_object_mut().unwrap().remove("owner")));
    assert_eq!(ownerless, Err(Unusable::Owner { index: 1, mint: USDC.to_owned() }));
}

#[test]
fn what_a_newer_chain_knows_is_read_over() {
    let known = changed(|_| ()).unwrap();
    type Change = fn(&mut Value);
    let newer: [Change; 5] = [
        |tx| tx["version"] = 9.into(),
        |tx| tx["version"] = json!({ "of": "tomorrow" }),
        |tx| tx["meta"]["costUnits"] = json!({ "deep": [[[]]] }),
        |tx| tx["transaction"]["config"] = json!({ "computeUnitLimit": 9 }),
        |tx| tx["transaction"]["accountKeys"][0]["source"] = "ofTomorrow".into(),
    ];
    for (at, change) in newer.into_iter().enumerate() {
        assert_eq!(changed(change).as_ref(), Ok(&known), "{at}");
    }
    let failed = changed(|tx| tx["meta"]["err"] = json!({ "OfTomorrow": 1 })).unwrap();
    assert_eq!(failed.len(), 4, "an error that nobody has heard of is an error");
}

#[test]
fn a_block_that_is_not_whole_is_none() {
    let whole = block_of(&[paid()]);
    let read = |answer: &Value| block(&rules(), &serde_json::to_string(answer).unwrap(), &asked(Legs::Creditable));
    assert_eq!(read(&whole).unwrap().block.header.time_secs, 1_790_000_000);
    assert_eq!(read(&Value::Null), Err(Unusable::Null));
    for left_out in ["transactions", "blockhash", "previousBlockhash", "parentSlot"] {
        let mut answer = whole.clone();
        answer.as_object_mut().unwrap().remove(left_out);
        assert!(matches!(read(&answer), Err(Unusable::Json { .. })), "{left_out}");
        answer[left_out] = Value::Null;
        assert!(matches!(read(&answer), Err(Unusable::Json { .. })), "{left_out} null");
    }
    let with = |name: &str, value: Value| {
        let mut answer = whole.clone();
        answer[name] = value;
        read(&answer)
    };
    assert_eq!(with("blockhash", "0x00".into()), Err(Unusable::Hash { what: "blockhash" }));
    assert_eq!(with("previousBlockhash", "".into()), Err(Unusable::Hash { what: "previousBlockhash" }));
    assert_eq!(with("parentSlot", SLOT.into()), Err(Unusable::Parent { slot: SLOT, parent: SLOT }));
    for time in [Value::Null, 0.into(), (-5).into()] {
        assert_eq!(with("blockTime", time).unwrap().block.header.time_secs, 1, "that of a block nearby");
    }
}

#[test]
fn recorded_answers_without_metas_or_signatures_are_no_blocks() {
    for (path, expected) in [
        ("block_no_preBalances", Unusable::NoMeta { index: 0 }),
        ("client_block_without_parent_hash", Unusable::NoMeta { index: 0 }),
        ("client_block_transaction_no_signatures", Unusable::Signature { index: 0 }),
        ("client_block_transaction_signatures_empty_string", Unusable::Signature { index: 0 }),
    ] {
        let txs = transactions(&load(&format!("chainstorage/{path}.json")));
        assert_eq!(read(&rules(), &txs), Err(expected), "{path}");
    }
    let torn = transactions(&load("metamask/swap-a16z-usdt-sol.json"));
    assert_eq!(read(&rules(), &torn), Err(Unusable::Balances { index: 0, keys: 37, pre: 32, post: 32 }));
}

#[test]
fn a_mint_counts_from_its_first_slot_on() {
    let mut network = network(Chain::SolanaMainnet).unwrap();
    for (from, legs) in [(SLOT, 2), (SLOT + 1, 1)] {
        network.assets[1].from_block = from;
        let candidate = read(&Rules::of(&network), &[paid()]).unwrap();
        assert_eq!(candidate.block.transfers.len(), legs, "{from}");
    }
}
