//! The recorded answers of `testdata/` (see SOURCES.md there), and each transaction in every shape that nodes give.
//!
//! A `base64` transaction reports its account keys in its bytes only; here they are taken out, for comparison.

use std::fs;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use landfall_chain::{Address, Asset, AssetId, Chain, Family, Legs, Network};
use landfall_solana::{Asked, Candidate, Rules, Unusable, block, network};
use serde_json::{Value, json};

pub(crate) const SLOT: u64 = 447_120_001;
pub(crate) const WRAPPED_SOL: &str = "So11111111111111111111111111111111111111112";

pub(crate) fn load(path: &str) -> Value {
    let path = format!("{}/testdata/{path}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_json::from_str(&text).unwrap()
}

/// The transactions of a `getBlock` or `getTransaction` answer.
pub(crate) fn transactions(answer: &Value) -> Vec<Value> {
    let answer = answer.get("result").unwrap_or(answer);
    match answer.get("transactions") {
        Some(transactions) => transactions.as_array().unwrap().clone(),
        None => vec![whole(answer)],
    }
}

/// The transaction, with a key made up for each balance where only what became of it was recorded.
fn whole(tx: &Value) -> Value {
    let Some(balances) = tx.get("preBalances") else { return tx.clone() };
    let numbers = 1..=u8::try_from(balances.as_array().unwrap().len()).unwrap();
    let keys: Vec<Value> = numbers.map(|number| json!({ "pubkey": base58(&[number; 32]) })).collect();
    let signatures = [base58(&[1; 64])];
    json!({ "meta": tx, "transaction": { "signatures": signatures, "message": { "accountKeys": keys } } })
}

pub(crate) fn block_of(transactions: &[Value]) -> Value {
    json!({
        "blockhash": "GdY1gj7F8vq1nCy4dgCZK42WV19bkfQ4cp2e9evK18ry",
        "previousBlockhash": "7KpgQJdgXdPhzj69gCnyvyBiw9s6DZ5gmfNrhQr3XW1t",
        "parentSlot": SLOT - 1,
        "blockHeight": 400_000_000,
        "blockTime": 1_790_000_000,
        "transactions": transactions,
    })
}

/// A transaction in the shape `accounts`, which is what we ask for.
pub(crate) fn accounts_shape(tx: &Value) -> Value {
    let (mut tx, keys) = (tx.clone(), keys(tx));
    let signatures = match &tx["transaction"] {
        Value::Array(encoded) => json!([first_signature(&decoded(encoded))]),
        body => body["signatures"].clone(),
    };
    let keys: Vec<Value> = keys
        .iter()
        .map(|key| json!({ "pubkey": key, "signer": false, "writable": true, "source": "transaction" }))
        .collect();
    tx["transaction"] = json!({ "signatures": signatures, "accountKeys": keys });
    let meta = tx["meta"].as_object_mut().unwrap();
    for left_out in
        ["loadedAddresses", "innerInstructions", "logMessages", "returnData", "computeUnitsConsumed", "rewards"]
    {
        meta.remove(left_out);
    }
    tx
}

/// All account keys of a transaction, in whatever shape it is.
pub(crate) fn keys(tx: &Value) -> Vec<String> {
    let text = |key: &Value| key.as_str().or_else(|| key["pubkey"].as_str()).unwrap().to_owned();
    let of = |list: &Value| list.as_array().into_iter().flatten().map(text).collect::<Vec<_>>();
    let loaded = &tx["meta"]["loadedAddresses"];
    let loaded = [of(&loaded["writable"]), of(&loaded["readonly"])].concat();
    match &tx["transaction"] {
        Value::Array(encoded) => [encoded_keys(&decoded(encoded)), loaded].concat(),
        body => {
            let listed = body.get("accountKeys").unwrap_or(&body["message"]["accountKeys"]);
            if listed[0].is_string() { [of(listed), loaded].concat() } else { of(listed) }
        }
    }
}

fn decoded(encoded: &[Value]) -> Vec<u8> {
    assert_eq!(encoded[1], "base64");
    BASE64_STANDARD.decode(encoded[0].as_str().unwrap()).unwrap()
}

fn base58(bytes: &[u8]) -> String {
    bs58::encode(bytes).into_string()
}

/// Version 1 (SIMD-0385) begins with 0x81, a header of 3 bytes, a mask of 4, a blockhash of 32, and two counts; its
/// signatures stand at the end. Before it, signatures come first, and a version only where the first bit is set.
fn encoded_keys(bytes: &[u8]) -> Vec<String> {
    let list = |at: usize, count: u8| bytes[at..].chunks(32).take(usize::from(count)).map(base58).collect();
    if bytes[0] == 0x81 {
        return list(42, bytes[41]);
    }
    assert!(bytes[0] < 0x80, "a count of signatures that takes one byte");
    let message = 1 + 64 * usize::from(bytes[0]);
    let header = message + usize::from(bytes[message] >= 0x80);
    list(header + 4, bytes[header + 3])
}

fn first_signature(bytes: &[u8]) -> String {
    if bytes[0] == 0x81 {
        let count = usize::from(bytes[1]);
        return base58(&bytes[bytes.len() - 64 * count..][..64]);
    }
    base58(&bytes[1..65])
}

/// The network, with every mint that `transactions` report.
pub(crate) fn listing(transactions: &[Value]) -> Network {
    let mut network = network(Chain::SolanaMainnet).unwrap();
    for tx in transactions {
        for side in ["preTokenBalances", "postTokenBalances"] {
            for balance in tx["meta"][side].as_array().into_iter().flatten() {
                let id = asset(balance["mint"].as_str().unwrap());
                let decimals = u8::try_from(balance["uiTokenAmount"]["decimals"].as_u64().unwrap()).unwrap();
                if network.asset(&id).is_none() {
                    network.assets.push(Asset { id, symbol: String::new(), decimals, from_block: 0, route: None });
                }
            }
        }
    }
    network
}

pub(crate) fn asset(text: &str) -> AssetId {
    if text == "SOL" { AssetId::Native } else { AssetId::Token(address(text)) }
}

pub(crate) fn address(text: &str) -> Address {
    Address::parse(Family::Solana, text).unwrap()
}

pub(crate) fn asked(legs: Legs) -> Asked {
    Asked { slot: SLOT, time_secs: 1, legs }
}

pub(crate) fn read(rules: &Rules, transactions: &[Value]) -> Result<Candidate, Unusable> {
    let answer = serde_json::to_string(&block_of(transactions)).unwrap();
    block(rules, &answer, &asked(Legs::Explained))
}

/// One leg or debit as text: owner, asset, amount.
pub(crate) fn line(owner: &Address, asset: &AssetId, amount: &impl ToString) -> String {
    let asset = if *asset == AssetId::Native { "SOL".to_owned() } else { asset.to_string() };
    format!("{owner} {asset} {}", amount.to_string())
}

/// What of a candidate is credited.
pub(crate) fn credits(candidate: &Candidate) -> Vec<String> {
    let transfers = candidate.block.transfers.iter();
    let mut lines: Vec<_> = transfers.map(|leg| line(&leg.recipient, &leg.asset, &leg.amount)).collect();
    lines.sort();
    lines
}

pub(crate) fn debits(candidate: &Candidate) -> Vec<String> {
    let mut lines: Vec<_> =
        candidate.block.debits().iter().map(|leg| line(&leg.sender, &leg.asset, &leg.amount)).collect();
    lines.sort();
    lines
}

/// What is no credit, with its code.
pub(crate) fn refusals(candidate: &Candidate) -> Vec<String> {
    let leg = |leg: &landfall_chain::AssetTransfer| line(&leg.recipient, &leg.asset, &leg.amount);
    let rejected = candidate.block.unattributed.iter().chain(&candidate.block.rejected);
    let mut lines: Vec<_> = rejected.map(|it| format!("{} {}", leg(&it.transfer), it.verdict)).collect();
    lines.sort();
    lines
}
