//! Prints how fast blocks of mainnet's size are read, on one core, beside a plain loop over the same bytes.
//!
//! The block is `landfall_cluster::recorded`: 1,228 recorded transactions, 740 of which are votes, in 2.9 MB. In what is
//! reported are: gunzip (zlib-rs), JSON, every check of a transaction, fees, legs, debits and their senders, where tokens belong,
//! and the digest that a second endpoint's must equal. Not in it: HTTP and the envelope of JSON-RPC, the comparison of two
//! digests and of one parent link, the watch list and the store: `benches/figures` of the program, section `solana`, has
//! all of that. The plain loop unpacks and parses into structs of what is needed, and does nothing with it.
//! Run it with `cargo bench -p landfall-solana --bench read`. Times are of the processor, not of the clock, and the best of
//! some batches: what else runs here is not of interest, as far as that can be. The goal: 100 blocks/s.

use std::hint::black_box;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use landfall_chain::{Chain, Legs};
use landfall_cluster::recorded;
use landfall_solana::{Asked, Rules, block, network};
use serde::Deserialize;
use serde::de::IgnoredAny;

const SLOT: u64 = 447_120_001;
const BATCHES: u32 = 5;
const ROUNDS: u32 = 80;
const GOAL_PER_SEC: u128 = 100;
/// How many blocks a second there are once slots take 200 ms, and how much of a core following them may cost.
const LIVE_PER_SEC: u128 = 5;
const LIVE_PERCENT: u128 = 6;

fn main() {
    let answer = recorded::answer(SLOT, recorded::mainnet_like(1));
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(answer.as_bytes()).expect("memory");
    let packed = encoder.finish().expect("memory");
    let rules = Rules::of(&network(Chain::SolanaMainnet).expect("embedded"));
    let asked = Asked { slot: SLOT, time_secs: 1, legs: Legs::Creditable };
    let candidate = block(&rules, &answer, &asked).expect("a block");
    let mut text = Vec::new();
    let mut unpack = || {
        text.clear();
        GzDecoder::new(packed.as_slice()).read_to_end(&mut text).expect("gzip");
        assert!(text.len() == answer.len());
    };
    let unpacked = best(&mut unpack);
    let plain = unpacked + best(|| drop(black_box(plain_block(black_box(answer.as_bytes())))));
    let whole = unpacked + best(|| drop(black_box(block(&rules, black_box(&answer), &asked))));
    let per_sec = Duration::from_secs(1).as_nanos() / whole.as_nanos();
    let (bytes, packed_bytes) = (answer.len() / 1_000, packed.len() / 1_000);
    let (txs, legs) = (candidate.block.txs.len(), candidate.block.transfers.len());
    println!("one block: {txs} transactions, {legs} legs, {bytes} KB, {packed_bytes} KB packed");
    println!("unpacked in {unpacked:?}; unpacked and parsed in a plain loop: {plain:?}; read by us: {whole:?}");
    println!("ours to the plain loop: {} in 100", whole.as_nanos() * 100 / plain.as_nanos());
    println!(
        "{per_sec} blocks/s on one core, {} MB/s (goal: {GOAL_PER_SEC} blocks/s)",
        per_sec * bytes as u128 / 1_000
    );
    let live = whole.as_nanos() * LIVE_PER_SEC * 1_000 / Duration::from_secs(1).as_nanos();
    println!("following {LIVE_PER_SEC} blocks/s: {}.{}% of a core (goal: < {LIVE_PERCENT}%)", live / 10, live % 10);
}

/// The processor time of one run: the least of some batches, for it is counted by the clock's ticks.
fn best(mut run: impl FnMut()) -> Duration {
    let batches = (0..BATCHES).map(|_| {
        let begun = used();
        (0..ROUNDS).for_each(|_| run());
        used().saturating_sub(begun) / ROUNDS
    });
    batches.min().expect("some")
}

/// How long this thread has run, as Linux counts it (`schedstat`); by the clock where it does not.
fn used() -> Duration {
    static BEGUN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let reported = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = reported.and_then(|reported| reported.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| BEGUN.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}

/// What is needed of a block.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "parsing it is what is measured")]
struct Plain<'a> {
    blockhash: &'a str,
    previous_blockhash: &'a str,
    parent_slot: u64,
    #[serde(borrow)]
    transactions: Vec<PlainTx<'a>>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "parsing it is what is measured")]
struct PlainTx<'a> {
    #[serde(borrow)]
    transaction: PlainBody<'a>,
    #[serde(borrow)]
    meta: PlainMeta<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "parsing it is what is measured")]
struct PlainBody<'a> {
    #[serde(borrow)]
    signatures: Vec<&'a str>,
    #[serde(borrow)]
    account_keys: Vec<PlainKey<'a>>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "parsing it is what is measured")]
struct PlainKey<'a> {
    pubkey: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "parsing it is what is measured")]
struct PlainMeta<'a> {
    err: Option<IgnoredAny>,
    fee: u64,
    pre_balances: Vec<u64>,
    post_balances: Vec<u64>,
    #[serde(borrow)]
    pre_token_balances: Vec<PlainTokens<'a>>,
    #[serde(borrow)]
    post_token_balances: Vec<PlainTokens<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "parsing it is what is measured")]
struct PlainTokens<'a> {
    account_index: usize,
    mint: &'a str,
    owner: Option<&'a str>,
    program_id: Option<&'a str>,
    #[serde(borrow)]
    ui_token_amount: PlainAmount<'a>,
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "parsing it is what is measured")]
struct PlainAmount<'a> {
    amount: &'a str,
    decimals: u8,
}

fn plain_block(text: &[u8]) -> Plain<'_> {
    serde_json::from_str(std::str::from_utf8(text).expect("text")).expect("a block")
}
