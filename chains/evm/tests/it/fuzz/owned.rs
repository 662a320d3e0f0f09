//! Balances: whatever a node says is owned, and however it proves it, it is refused or the truth.
//!
//! The state root proves a balance, so here nothing is anybody's word. The truth is what anvil told of the accounts of
//! `testdata/anvil_inside_accounts.json`, as `nodes/contracts/Inside.sol` moves it.

use std::cell::RefCell;

use alloy::primitives::{Address, Bytes, U256, address, keccak256};
use landfall_chain::{Address as ChainAddress, AddressSource, BlockRef};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::corpus::{BLOCK, Corpus};
use super::mutate::{self, CHANGES, Change};
use super::node::{Door, Table};
use super::run::{Counts, fuzz};
use super::walk::Dice;
use crate::accounts::Accounts;
use crate::node::mainnet;

const HEADER: &str = "eth_getBlockByHash";
const PROOF: &str = "eth_getProof";
const RECIPIENT: Address = Address::repeat_byte(0xb2);
const NOBODY: Address = Address::repeat_byte(0xee);
const CONTRACT: Address = address!("5fbdb2315678afecb367f032d93f642f64180aa3");
const OWNERS: [Address; 3] = [RECIPIENT, CONTRACT, NOBODY];
/// Who owned what at blocks 1 and 2.
const OWNED: [(usize, Address, u64); 6] =
    [(0, RECIPIENT, 0), (1, RECIPIENT, 60), (0, CONTRACT, 0), (1, CONTRACT, 910), (0, NOBODY, 0), (1, NOBODY, 0)];
/// The changes of `mutate` that know nothing of blocks stand first.
const PLAIN_CHANGES: usize = 12;

type Report = fn(&mut Dice, &mut Value, &Accounts);

/// Lies about one answer to `eth_getProof`.
const LIES: [(&str, Report); 8] = [
    ("another balance", |dice, proof, _| {
        proof["balance"] = json!(dice.of(&["0x0", "0x1", "0x3b", "0x3d", "0x3c0", "0xffffffffffffffffffffffff"]));
    }),
    ("another account or block", |dice, proof, accounts| *proof = any_proof(dice, accounts)),
    ("nodes of another proof", |dice, proof, accounts| {
        proof["accountProof"] = any_proof(dice, accounts)["accountProof"].clone();
    }),
    ("nothing owned, and the proof cut", |dice, proof, _| {
        proof["balance"] = json!("0x0");
        if let Some(nodes) = proof["accountProof"].as_array_mut() {
            nodes.truncate(dice.below(nodes.len() + 1));
        }
    }),
    ("nothing owned, and an empty trie", |dice, proof, _| {
        proof["balance"] = json!("0x0");
        proof["accountProof"] = json!([dice.of(&["0x80", "0xc0", "0x", "0x00"])]);
    }),
    ("leaf forged", forge_leaf),
    ("node by its hash", |dice, proof, _| with_node(dice, proof, |node| keccak256(&node).to_vec())),
    ("node cut", |dice, proof, _| {
        let keep = dice.below(64);
        with_node(dice, proof, |mut node| {
            node.truncate(keep);
            node
        });
    }),
];

fn any_proof(dice: &mut Dice, accounts: &Accounts) -> Value {
    accounts.proof(dice.below(2), dice.of(&OWNERS))
}

fn with_node(dice: &mut Dice, proof: &mut Value, change: impl FnOnce(Vec<u8>) -> Vec<u8>) {
    let Some(nodes) = proof["accountProof"].as_array_mut().filter(|nodes| !nodes.is_empty()) else { return };
    let at = dice.below(nodes.len());
    let Some(Ok(node)) = nodes[at].as_str().map(str::parse::<Bytes>) else { return };
    nodes[at] = json!(Bytes::from(change(node.to_vec())));
}

/// The leaf says what is claimed; what is above it still names the true one.
fn forge_leaf(dice: &mut Dice, proof: &mut Value, _: &Accounts) {
    let put = u8::try_from(dice.below(256)).unwrap();
    proof["balance"] = json!(format!("{put:#x}"));
    let Some(nodes) = proof["accountProof"].as_array_mut() else { return };
    let Some(Some(Ok(leaf))) = nodes.last().map(|leaf| leaf.as_str().map(str::parse::<Bytes>)) else { return };
    let mut leaf = leaf.to_vec();
    if let Some(at) = leaf.iter().position(|byte| *byte == 0x3c) {
        leaf[at] = put;
    }
    *nodes.last_mut().unwrap() = json!(Bytes::from(leaf));
}

#[derive(Clone, Debug)]
enum Lie {
    Plain(Change),
    Proof(usize, u64),
}

fn lie() -> impl Strategy<Value = Lie> {
    let plain = (0..PLAIN_CHANGES, any::<u64>()).prop_map(|(kind, dice)| Lie::Plain(Change { kind, dice }));
    prop_oneof![plain, (0..LIES.len(), any::<u64>()).prop_map(|(kind, dice)| Lie::Proof(kind, dice))]
}

impl Lie {
    fn name(&self) -> &'static str {
        match self {
            Lie::Plain(change) => CHANGES[change.kind].0,
            Lie::Proof(kind, _) => LIES[*kind].0,
        }
    }

    fn report(&self, answers: &mut Vec<(&'static str, Value)>, accounts: &Accounts, corpus: &Corpus) {
        match self {
            Lie::Plain(change) => change.apply(answers, corpus),
            Lie::Proof(kind, dice) => {
                let dice = &mut Dice::new(*dice);
                let proofs: Vec<usize> = (0..answers.len()).filter(|index| answers[*index].0 == PROOF).collect();
                let at = *dice.of(&proofs);
                // What was made of it before may be no proof any more.
                if answers[at].1.is_object() {
                    LIES[*kind].1(dice, &mut answers[at].1, accounts);
                }
            }
        }
    }
}

#[test]
fn a_false_proof_is_refused_or_the_truth() {
    let (door, corpus, accounts) = (RefCell::new(Door::open()), Corpus::new(), Accounts::recorded());
    let blocks = accounts.blocks();
    let counts = Counts { bounded: 500, full: 150_000 };
    let input = (0..2_usize, vec(select(&OWNERS), 1..=3), vec(lie(), 0..=2));
    let tally = fuzz("account proofs", &counts, &input, |(at, owners, lies)| {
        let mut answers = vec![(HEADER, accounts.header_of(at))];
        answers.extend(owners.iter().map(|owner| (PROOF, accounts.proof(at, owner))));
        lies.iter().for_each(|lie| lie.report(&mut answers, &accounts, &corpus));
        // Whom to ask is reported by a poll, and not lied about.
        let newest = accounts.header_of(1).to_string();
        let lay = || {
            let reported = answers.iter().map(|(method, value)| (*method, mutate::text(value)));
            Table::new(reported, None).and(BLOCK, newest.clone())
        };
        let keys: Vec<ChainAddress> = owners.iter().map(|owner| ChainAddress::Evm((*owner).into())).collect();
        let block: BlockRef = blocks[at];
        let read = door.borrow_mut().ask(&mainnet(), lay, async |source| source.account_states(&keys, &block).await);
        let verdict = match read {
            Err(error) => {
                prop_assert!(!lies.is_empty(), "the truth was refused: {error}");
                "refused"
            }
            Ok(reported) => {
                let owned = |owner: &Address| OWNED.iter().find(|owned| (owned.0, owned.1) == (at, *owner)).unwrap().2;
                let reported: Vec<U256> = reported.iter().map(|state| state.balance).collect();
                prop_assert_eq!(reported, owners.iter().map(|owner| U256::from(owned(owner))).collect::<Vec<_>>());
                "true"
            }
        };
        Ok(std::iter::once(verdict.to_owned()).chain(lies.iter().map(|lie| format!("by {}", lie.name()))).collect())
    });
    assert!(tally["refused"] > 100 && tally["true"] > 100, "{tally:?}");
    let hit = tally.keys().filter(|what| what.starts_with("by ")).count();
    assert_eq!(hit, LIES.len() + PLAIN_CHANGES, "{tally:?}");
}
