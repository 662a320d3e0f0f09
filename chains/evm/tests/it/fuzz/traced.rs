//! What moves inside of transactions, as random traces tell it: a true trace has exactly its legs, in both forms, told
//! as one endpoint's word. No root covers a trace.

use std::cell::RefCell;
use std::collections::HashMap;

use alloy::primitives::{Address, U256};
use landfall_chain::{AssetId, Block, BlockSource, Proof, SourceError, TxId};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::Value;

use super::corpus::{BLOCK, RECEIPTS};
use super::frames::{Form, Moved, block, insides, told, traces};
use super::node::{Door, Table};
use super::reference::{self, word};
use super::run::{Counts, fuzz};
use crate::trace::{LISTED, traced};

type Leg = (TxId, Address, Address, U256, u32);

fn table((block, receipts): &(Value, Value), form: Form, traces: &str) -> Table {
    let answers = [(BLOCK, block.to_string()), (RECEIPTS, receipts.to_string()), (form.method(), traces.to_owned())];
    Table::new(answers, None)
}

/// The legs of the lane of traces when this moved: numbered behind the transactions' own values.
fn legs((block, receipts): &(Value, Value), moved: &[Moved]) -> Vec<Leg> {
    let plain = |address: landfall_chain::Address| Address::from_slice(address.as_bytes());
    let own = reference::told(&traced(), block, receipts).legs;
    let mut seen: HashMap<(TxId, Address, U256), u32> = HashMap::new();
    own.iter().filter(|leg| leg.asset == AssetId::Native).for_each(|leg| {
        *seen.entry((leg.tx.id, plain(leg.recipient), leg.amount)).or_default() += 1;
    });
    let numbered = moved.iter().map(|(tx, from, to, amount)| {
        let id = TxId::Evm(word(&block["transactions"][*tx]["hash"]).0);
        let next = seen.entry((id, *to, *amount)).or_default();
        *next += 1;
        (id, *from, *to, *amount, *next - 1)
    });
    numbered.collect()
}

fn read_legs(block: &Block) -> Vec<Leg> {
    let plain = |address: landfall_chain::Address| Address::from_slice(address.as_bytes());
    let leg = |leg: &landfall_chain::AssetTransfer| {
        assert_eq!(leg.asset, AssetId::Native);
        (leg.tx.id, plain(leg.sender), plain(leg.recipient), leg.amount, leg.nth)
    };
    block.transfers.iter().map(leg).collect()
}

fn only(read: Result<Vec<Block>, SourceError>) -> Result<Option<Block>, TestCaseError> {
    let Ok(mut blocks) = read else { return Ok(None) };
    prop_assert_eq!(blocks.len(), 1);
    Ok(Some(blocks.remove(0)))
}

#[test]
fn a_true_trace_has_exactly_its_legs_in_both_forms() {
    let (door, made) = (RefCell::new(Door::open()), block());
    let counts = Counts { bounded: 1_000, full: 150_000 };
    let tally = fuzz("traces", &counts, &(insides(), select(&Form::ALL)), |(insides, form)| {
        let text = traces(&made, &insides, form).to_string();
        let lay = || table(&made, form, &text);
        let read = door.borrow_mut().ask(&traced(), lay, async |source| source.blocks(5..=5, LISTED).await);
        let read = only(Ok(read.map_err(|error| TestCaseError::fail(error.to_string()))?))?.unwrap();
        let expected = legs(&made, &told(&text, form, &made.1).unwrap());
        prop_assert_eq!(read_legs(&read), expected.clone());
        prop_assert_eq!(read.proof, Proof::OneEndpoint);
        let equal = expected.iter().filter(|leg| leg.4 > 0).count();
        Ok([vec!["legs".to_owned(); expected.len()], vec!["equal legs".to_owned(); equal]].concat())
    });
    assert!(tally["legs"] > 500 && tally["equal legs"] > 20, "{tally:?}");
}
