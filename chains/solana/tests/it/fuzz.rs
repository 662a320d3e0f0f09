//! Random bytes and broken answers: nothing panics, and what is read of them holds together.

use landfall_chain::{Chain, Legs, U256};
use landfall_solana::{Candidate, Rules, Unusable, Wrapped, block, network, sender};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use crate::fixtures::{accounts_shape, asked, block_of, listing, load};
use crate::generated::{NAMES, load_one};

/// Bytes of answers that are worth breaking.
fn corpus() -> Vec<Vec<u8>> {
    let mut answers: Vec<Vec<u8>> = NAMES
        .into_iter()
        .flat_map(|name| {
            let file = load_one(name);
            [accounts_shape(&file["json"]), file["json"].clone(), file["jsonParsed"].clone()]
        })
        .map(|tx| serde_json::to_vec(&block_of(&[tx])).unwrap())
        .collect();
    answers.push(serde_json::to_vec(&load("chainstorage/block_with_versioned_tx.json")).unwrap());
    answers
}

fn rules() -> [Rules; 2] {
    let txs: Vec<_> = NAMES.into_iter().map(|name| load_one(name)["json"].clone()).collect();
    let rules = Rules::of(&listing(&txs));
    [rules.clone().with_wrapped(Wrapped::Native), rules]
}

/// What holds of every candidate, however it came about.
fn holds_together(read: &Result<Candidate, Unusable>) {
    let Ok(candidate) = read else { return };
    let block = &candidate.block;
    assert!(block.unattributed.iter().all(|it| it.transfer.amount > U256::ZERO));
    assert!(block.header.parent.number < block.header.block.number);
    for leg in block.transfers.iter().chain(block.debits()) {
        assert!(leg.amount > U256::ZERO);
        assert!(block.txs.contains(&leg.tx.id));
        let same = |other: &&landfall_chain::AssetTransfer| {
            (other.tx.id, other.asset, other.recipient) == (leg.tx.id, leg.asset, leg.recipient)
        };
        assert!(block.transfers.iter().filter(same).count() <= 1, "one leg per transaction, asset and owner");
    }
}

/// Puts `bytes` in the place of some.
fn broken(answer: &[u8], breaks: &[(Index, u8, Vec<u8>)]) -> Vec<u8> {
    let mut answer = answer.to_vec();
    for (at, length, bytes) in breaks {
        if answer.is_empty() {
            break;
        }
        let at = at.index(answer.len());
        let end = answer.len().min(at + usize::from(*length));
        answer.splice(at..end, bytes.iter().copied());
    }
    answer
}

/// Bytes that answers are made of, more often than others.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..6),
        vec(proptest::sample::select(b"0123456789-.e\"[]{},:ntzA".to_vec()), 0..8),
        Just(b"null".to_vec()),
        Just(b"18446744073709551615".to_vec()),
        Just(b"\"\\u0041\"".to_vec()),
    ]
}

#[test]
fn broken_answers_never_panic_and_what_is_read_holds_together() {
    let (corpus, rules) = (corpus(), rules());
    let breaks = vec((any::<Index>(), 0_u8..12, piece()), 1..4);
    proptest!(ProptestConfig::with_cases(4_000), |(at in any::<Index>(), breaks in breaks, native in any::<bool>())| {
        let answer = broken(&corpus[at.index(corpus.len())], &breaks);
        holds_together(&block(&rules[usize::from(native)], &String::from_utf8_lossy(&answer), &asked(Legs::Explained)));
    });
}

#[test]
fn random_bytes_are_no_answer() {
    let rules = Rules::of(&network(Chain::SolanaMainnet).unwrap());
    proptest!(ProptestConfig::with_cases(2_000), |(bytes in vec(any::<u8>(), 0..300))| {
        prop_assert!(block(&rules, &String::from_utf8_lossy(&bytes), &asked(Legs::Explained)).is_err());
    });
    for depth in [100, 10_000] {
        let nested = format!("{{\"unknown\":{}", "[".repeat(depth));
        assert!(block(&rules, &nested, &asked(Legs::Explained)).is_err(), "{depth}");
    }
}

#[test]
fn broken_transactions_never_panic_when_a_sender_is_looked_for() {
    let files: Vec<_> = NAMES.into_iter().map(|name| load_one(name)["json"].clone()).collect();
    let rules = rules();
    let legs: Vec<_> = files
        .iter()
        .flat_map(|tx| {
            let read = crate::fixtures::read(&rules[1], std::slice::from_ref(tx)).unwrap();
            let answer = serde_json::to_vec(tx).unwrap();
            read.block.transfers.into_iter().map(move |leg| (answer.clone(), leg))
        })
        .collect();
    let breaks = vec((any::<Index>(), 0_u8..12, piece()), 1..4);
    proptest!(ProptestConfig::with_cases(3_000), |(at in any::<Index>(), breaks in breaks)| {
        let (answer, leg) = &legs[at.index(legs.len())];
        // Whoever is named, or nobody: no panic is what counts.
        let named = sender::by_instructions(&rules[1], &String::from_utf8_lossy(&broken(answer, &breaks)), leg);
        prop_assert!(named.is_ok() || named.is_err_and(|error| !error.to_string().is_empty()));
    });
}
