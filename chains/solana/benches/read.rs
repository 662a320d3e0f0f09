//! Prints how fast blocks of mainnet's size are read, on one core: gunzip, parse, match.
//!
//! The block is put together from recorded transactions as mainnet's were counted in February 2026: 1,228 of them, 740 of
//! which are votes. Run it with `cargo bench -p landfall-solana --bench read`. The goal: 100 blocks/s.

#[path = "../tests/it/fixtures.rs"]
#[expect(dead_code, clippy::unwrap_used, reason = "it is of the tests, which use more of it")]
mod fixtures;

use std::hint::black_box;
use std::io::{Read, Write};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use landfall_chain::{Chain, Legs};
use landfall_solana::{Rules, block, network};
use serde_json::{Value, json};

use fixtures::{accounts_shape, asked, block_of, load, transactions};

const VOTES: usize = 740;
const OTHERS: usize = 488;
const ROUNDS: u32 = 60;
const GOAL_PER_SEC: u32 = 100;
const FILES: [&str; 14] = [
    "metamask/send-usdc-transfer.json",
    "metamask/swap-sol-to-usdc.json",
    "metamask/swap-trump-to-jup.json",
    "metamask/swap-usdc-to-cobie.json",
    "metamask/swap-sol-to-obric.json",
    "metamask/swap-sol-to-sahur.json",
    "metamask/swap-failed-transaction.json",
    "metamask/native-sol-transfer.json",
    "metamask/spam-2.json",
    "metamask/address-1_transaction-2.json",
    "chainstorage/block_account_deletion.json",
    "chainstorage/block_new_token_account.json",
    "chainstorage/block_with_versioned_tx.json",
    "solders/get_block_json_encoding.json",
];

fn main() {
    let answer = serde_json::to_vec(&block_of(&mainnet_like())).expect("json");
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&answer).expect("memory");
    let packed = encoder.finish().expect("memory");
    let rules = Rules::of(&network(Chain::SolanaMainnet).expect("embedded"));
    let asked = asked(Legs::Creditable);
    let candidate = block(&rules, &answer, &asked).expect("a block");
    let mut text = Vec::new();
    let unpack = best(|| {
        text.clear();
        GzDecoder::new(packed.as_slice()).read_to_end(&mut text).expect("gzip");
        black_box(&text);
    });
    assert!(text == answer);
    let read = best(|| drop(black_box(block(&rules, black_box(&text), &asked))));
    let whole = unpack + read;
    let per_sec = Duration::from_secs(1).as_micros() / whole.as_micros();
    println!(
        "one block: {} transactions, {} legs, {} KB, {} KB packed",
        candidate.block.txs.len(),
        candidate.block.transfers.len(),
        answer.len() / 1_000,
        packed.len() / 1_000
    );
    println!("unpacked in {unpack:?}, parsed and matched in {read:?}");
    println!("{per_sec} blocks/s on one core (goal: {GOAL_PER_SEC})");
}

/// The best of some: what else runs here is not of interest.
fn best(mut run: impl FnMut()) -> Duration {
    let times = (0..ROUNDS).map(|_| {
        let begun = Instant::now();
        run();
        begun.elapsed()
    });
    times.min().expect("some")
}

fn mainnet_like() -> Vec<Value> {
    let others: Vec<Value> = FILES.iter().flat_map(|path| transactions(&load(path))).collect();
    let votes = transactions(&load("chainstorage/client_block.json"));
    let vote = votes.first().expect("a vote");
    let all = std::iter::repeat_n(vote, VOTES).chain(others.iter().cycle().take(OTHERS));
    all.enumerate().map(|(number, tx)| own_signature(&accounts_shape(tx), number)).collect()
}

/// The transaction as another one.
fn own_signature(tx: &Value, number: usize) -> Value {
    let mut tx = tx.clone();
    let mut signature = [0xA5_u8; 64];
    for (byte, seed) in signature.iter_mut().zip((1_usize..).map(|at| (number + 1).wrapping_mul(at * 2_654_435_761))) {
        *byte = seed.to_be_bytes()[5];
    }
    signature[..8].copy_from_slice(&(number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes());
    tx["transaction"]["signatures"] = json!([bs58::encode(signature).into_string()]);
    tx
}
