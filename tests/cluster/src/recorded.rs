//! A block of mainnet's size, put together from recorded transactions: 1,228 of them in some 2.9 MB in the shape
//! `accounts`, as mainnet's blocks were counted in February 2026.
//!
//! The recorded transactions are those of `chains/solana/testdata` (see SOURCES.md there). 740 are votes: one recorded
//! vote, each time with a voter, a vote account, balances and a signature of its own. Without these, equal texts would
//! unpack faster than any real block. 488 are others: each of `OTHERS` in turn, as recorded, with a signature of its
//! own. Of the 24 in the block of solders only three are used, for most of them are the same swap. Votes stand between
//! the others, as they do on mainnet. The answer is agave's in this shape: no logs, no instructions, and no name of a
//! block in a transaction.

use std::fs;

use landfall_chain::BlockRef;
use serde_json::{Map, Value, json};

use crate::block::{Block, Details, TIME, hash};
use crate::tx::{Shape, Tx};

pub const VOTES: usize = 740;
pub const OTHER_TXS: usize = 488;
/// Files of transactions, and how many of each that are no votes.
const OTHERS: [(&str, usize); 20] = [
    ("metamask/address-1_transaction-2.json", 1),
    ("metamask/address-1_transaction-4.json", 1),
    ("metamask/address-2_transaction-1.json", 1),
    ("metamask/address-2_transaction-3.json", 1),
    ("metamask/native-sol-transfer.json", 1),
    ("metamask/send-usdc-transfer-to-self-2.json", 1),
    ("metamask/send-usdc-transfer.json", 1),
    ("metamask/spam-2.json", 1),
    ("metamask/swap-failed-transaction.json", 1),
    ("metamask/swap-sol-to-obric.json", 1),
    ("metamask/swap-sol-to-sahur.json", 1),
    ("metamask/swap-sol-to-usdc.json", 1),
    ("metamask/swap-trump-to-jup.json", 1),
    ("metamask/swap-usdc-to-cobie.json", 1),
    ("chainstorage/block_account_deletion.json", 1),
    ("chainstorage/block_new_token_account.json", 1),
    ("chainstorage/block_with_versioned_tx.json", 1),
    ("chainstorage/block_241043141_v2.json", 1),
    ("chainstorage/client_block.json", 4),
    ("solders/get_block_json_encoding.json", 3),
];
const VOTE_FILE: &str = "chainstorage/client_block.json";
const VOTE_PROGRAM: &str = "Vote111111111111111111111111111111111111111";
/// What is reported of a transaction's effects in the shape `accounts`.
const META: [&str; 7] =
    ["err", "fee", "preBalances", "postBalances", "preTokenBalances", "postTokenBalances", "status"];

/// The transactions of such a block; other ones for another `seed`.
///
/// # Panics
/// The recorded ones are not there.
pub fn mainnet_like(seed: u64) -> Vec<Tx> {
    let recorded = |path: &str| transactions(path).into_iter().map(|tx| accounts_shape(&tx));
    let others: Vec<Value> =
        OTHERS.iter().flat_map(|(path, count)| recorded(path).filter(|tx| !is_vote(tx)).take(*count)).collect();
    let vote = recorded(VOTE_FILE).find(is_vote).expect("a vote");
    let mut others = others.iter().cycle().take(OTHER_TXS);
    let mut txs = Vec::with_capacity(VOTES + OTHER_TXS);
    for number in 0..VOTES + OTHER_TXS {
        // As many votes are behind each transaction as there should be.
        let is_next_a_vote = (number + 1) * VOTES / (VOTES + OTHER_TXS) > number * VOTES / (VOTES + OTHER_TXS);
        let mut random = Random::new(seed, number);
        let mut tx =
            if is_next_a_vote { of_its_own(&vote, &mut random) } else { others.next().expect("enough").clone() };
        tx["transaction"]["signatures"] = json!([random.base58::<64>()]);
        txs.push(Tx::raw(&tx));
    }
    txs
}

/// What a node answers to `getBlock` of such a block in `slot`.
pub fn answer(slot: u64, txs: Vec<Tx>) -> String {
    let parent = BlockRef { number: slot - 1, hash: hash(slot - 1, 0) };
    let time = i64::try_from(TIME + slot).ok();
    Block { slot, parent, branch: 0, height: slot, time, txs }.text(Details::Whole(Shape::Accounts))
}

fn transactions(path: &str) -> Vec<Value> {
    let path = format!("{}/../../chains/solana/testdata/{path}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let answer: Value = serde_json::from_str(&text).expect("JSON");
    let answer = answer.get("result").unwrap_or(&answer);
    answer["transactions"].as_array().cloned().unwrap_or_else(|| vec![answer.clone()])
}

/// A recorded transaction of the shape `json`, in the shape `accounts`.
fn accounts_shape(tx: &Value) -> Value {
    let meta = tx["meta"].as_object().expect("meta");
    let kept: Map<String, Value> =
        META.iter().filter_map(|name| Some(((*name).to_owned(), meta.get(*name)?.clone()))).collect();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut keys = list(&tx["transaction"]["message"]["accountKeys"]);
    // With attributes, those from lookup tables stand among them.
    if let Some(loaded) = meta.get("loadedAddresses").filter(|_| keys.iter().all(Value::is_string)) {
        keys.extend(list(&loaded["writable"]).into_iter().chain(list(&loaded["readonly"])));
    }
    let reported = |(at, key): (usize, Value)| {
        let key = key.get("pubkey").cloned().unwrap_or(key);
        json!({ "pubkey": key, "signer": at == 0, "source": "transaction", "writable": true })
    };
    let keys: Vec<Value> = keys.into_iter().enumerate().map(reported).collect();
    json!({
        "transaction": { "accountKeys": keys, "signatures": tx["transaction"]["signatures"] },
        "meta": kept, "version": tx.get("version").cloned().unwrap_or_else(|| json!("legacy")),
    })
}

fn is_vote(tx: &Value) -> bool {
    let keys = tx["transaction"]["accountKeys"].as_array().into_iter().flatten();
    keys.into_iter().any(|key| key["pubkey"] == VOTE_PROGRAM)
}

/// A vote as another validator's.
fn of_its_own(vote: &Value, random: &mut Random) -> Value {
    let mut vote = vote.clone();
    for account in 0..2 {
        vote["transaction"]["accountKeys"][account]["pubkey"] = json!(random.base58::<32>());
        let before = random.next() >> 30;
        let fee = if account == 0 { vote["meta"]["fee"].as_u64().expect("a fee") } else { 0 };
        vote["meta"]["preBalances"][account] = json!(before + fee);
        vote["meta"]["postBalances"][account] = json!(before);
    }
    vote
}

/// SplitMix64: the same numbers for the same seed.
struct Random(u64);

impl Random {
    fn new(seed: u64, number: usize) -> Self {
        let mut random = Random(seed << 32 | u64::try_from(number).expect("64 bits"));
        // Two that begin beside each other must not meet.
        random.0 = random.next();
        random
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn base58<const BYTES: usize>(&mut self) -> String {
        let mut bytes = [0; BYTES];
        bytes.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&self.next().to_be_bytes()));
        bs58::encode(bytes).into_string()
    }
}
