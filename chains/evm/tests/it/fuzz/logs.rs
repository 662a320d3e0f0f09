//! Random logs in blocks whose roots are right: exactly those are legs that are, in the order in which they ran.
//!
//! The reference reads the same JSON with other code; alloy encodes and hashes it.

use std::cell::RefCell;

use alloy::consensus::proofs::calculate_receipt_root;
use alloy::consensus::{ReceiptEnvelope, TxType};
use alloy::primitives::{Address, B256, Log, U256};
use landfall_chain::{BlockSource, Chain, Read};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::corpus::{BLOCK, RECEIPTS, USDC, listing, with_true_senders};
use super::lies::name_block;
use super::node::{Door, Table};
use super::reference::{self, Reported};
use super::run::{Counts, fuzz};
use crate::mint::{self, TRANSFER, Tx};

const PEOPLE: [Address; 3] = [Address::ZERO, Address::repeat_byte(0x0a), Address::repeat_byte(0x0b)];
const KINDS: [TxType; 5] = [TxType::Legacy, TxType::Eip2930, TxType::Eip1559, TxType::Eip4844, TxType::Eip7702];

/// What a receipt says of success.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Status {
    Success,
    Failure,
    /// Before Byzantium.
    Absent,
}

/// A transaction and what became of it.
#[derive(Clone, Debug)]
struct Ran {
    kind: TxType,
    to: Option<Address>,
    value: u64,
    status: Status,
    logs: Vec<Log>,
    input: Vec<u8>,
}

impl Ran {
    fn tx(self, nonce: u64) -> Tx {
        let Ran { kind, to, value, status, logs, input } = self;
        Tx { kind, to, value, nonce, logs, input: input.into(), success: status == Status::Success, ..Tx::default() }
    }
}

fn topic() -> impl Strategy<Value = B256> {
    let person = select(&PEOPLE).prop_map(|address| address.into_word());
    // One of the upper twelve bytes is not zero.
    let dirty = (select(&PEOPLE), 0..12_usize, 1..=u8::MAX).prop_map(|(address, at, byte)| {
        let mut word = address.into_word();
        word[at] = byte;
        word
    });
    prop_oneof![8 => person, 1 => dirty, 1 => any::<[u8; 32]>().prop_map(B256::from)]
}

fn a_log() -> impl Strategy<Value = Log> {
    let contract = prop_oneof![4 => Just(USDC), 1 => any::<[u8; 20]>().prop_map(Address::from), 1 => select(&PEOPLE)];
    let first = prop_oneof![8 => Just(TRANSFER), 1 => topic()];
    let shape = prop_oneof![4 => Just(2_usize), 1 => 0..=4_usize];
    let topics = prop_oneof![
        9 => (first, shape.prop_flat_map(|count| vec(topic(), count)))
            .prop_map(|(first, others)| [vec![first], others].concat()),
        1 => Just(Vec::new()),
    ];
    let amount = prop_oneof![6 => 0..3_u64, 1 => any::<u64>()].prop_map(|amount| U256::from(amount).to_be_bytes_vec());
    let data = prop_oneof![6 => amount, 1 => vec(any::<u8>(), 32), 2 => vec(any::<u8>(), 0..=100)];
    (contract, topics, data).prop_map(|(contract, topics, data)| mint::log(contract, &topics, &data))
}

fn ran() -> impl Strategy<Value = Ran> {
    let status = prop_oneof![6 => Just(Status::Success), 1 => Just(Status::Failure), 1 => Just(Status::Absent)];
    let to = prop_oneof![5 => select(&PEOPLE).prop_map(Some), 1 => Just(None)];
    // A third of the transactions pay everything twice over.
    let logs = (vec(a_log(), 0..6), 0..3)
        .prop_map(|(logs, times)| if times == 0 { [logs.clone(), logs].concat() } else { logs });
    let parts = (select(&KINDS), to, 0..3_u64, status, logs, vec(any::<u8>(), 0..40));
    parts.prop_map(|(kind, to, value, status, logs, input)| Ran { kind, to, value, status, logs, input })
}

/// The block with the receipts of another time, and a header that says so.
fn with_absent_statuses((block, mut receipts): (Value, Value), statuses: &[Status]) -> (Value, Value) {
    for (receipt, _) in receipts.as_array_mut().unwrap().iter_mut().zip(statuses).filter(|(_, s)| **s == Status::Absent)
    {
        receipt.as_object_mut().unwrap().remove("status");
        receipt["root"] = json!(B256::repeat_byte(7));
    }
    let envelopes: Vec<ReceiptEnvelope> = serde_json::from_value(receipts.clone()).unwrap();
    let block = mint::with_header(block, |header| header.receipts_root = calculate_receipt_root(&envelopes));
    name_block(receipts.as_array_mut().unwrap(), &block["hash"]);
    (block, receipts)
}

#[test]
fn exactly_the_logs_that_pay_are_legs() {
    let (network, door) = (listing(Chain::EthereumMainnet), RefCell::new(Door::open()));
    let counts = Counts { bounded: 1_000, full: 200_000 };
    let tally = fuzz("blocks with random logs", &counts, &vec(ran(), 1..5), |ran| {
        let statuses: Vec<Status> = ran.iter().map(|ran| ran.status).collect();
        let txs: Vec<Tx> = (0..).zip(ran).map(|(nonce, ran)| ran.tx(nonce)).collect();
        let made = with_true_senders(mint::block(5, B256::repeat_byte(1), &txs));
        let (block, receipts) = with_absent_statuses(made, &statuses);
        let lay = || Table::new([(BLOCK, block.to_string()), (RECEIPTS, receipts.to_string())], None);
        let read = door.borrow_mut().ask(&network, lay, async |source| source.blocks(5..=5, Read::FULL).await);
        let mut blocks = read.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(blocks.len(), 1);
        let read = blocks.remove(0);
        let reported = Reported { header: read.header, txs: read.txs, legs: read.transfers };
        let expected = reference::reported(&network, &block, &receipts);
        let repeated = expected.legs.iter().any(|leg| leg.nth > 0);
        prop_assert_eq!(&reported, &expected);
        let logs: usize = txs.iter().map(|tx| tx.logs.len()).sum();
        let count = |what: &str, count: usize| vec![what.to_owned(); count];
        Ok([count("legs", expected.legs.len()), count("logs", logs), count("with equal legs", repeated.into())]
            .concat())
    });
    assert!(tally["legs"] > 1_000 && tally["logs"] > 2 * tally["legs"] && tally["with equal legs"] > 100, "{tally:?}");
}
