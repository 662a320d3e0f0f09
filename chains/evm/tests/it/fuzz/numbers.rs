//! Numbers, bytes and addresses: what alloy writes is read as the same, and what means nothing is an error.
//!
//! Reading is judged by what it comes to: a header or a transaction that was read otherwise than it was written hashes
//! to something else, and is refused. So these are also the round trips of every encoding that is hashed.

use std::cell::RefCell;

use alloy::consensus::proofs::calculate_transaction_root;
use alloy::consensus::{Header, SignableTransaction, TxEip1559, TxEip2930, TxEip4844, TxEip7702, TxEnvelope, TxLegacy};
use alloy::eips::eip2930::{AccessList, AccessListItem};
use alloy::eips::eip7702::{Authorization, SignedAuthorization};
use alloy::primitives::{Address, B64, B256, Bytes, Signature, U256};
use landfall_chain::{BlockSource, Chain, Read, TxId};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::{Value, json};

use super::corpus::{BLOCK, Corpus, RECEIPTS, listing};
use super::node::{Door, Table};
use super::reference;
use super::run::{Counts, fuzz};
use crate::mint;

const QUANTITIES: [&str; 6] = ["number", "gasLimit", "gasUsed", "timestamp", "difficulty", "baseFeePerGas"];
const DATA: [&str; 3] = ["extraData", "logsBloom", "nonce"];

/// Small ones, powers of two and their neighbours, and any.
fn u64s() -> impl Strategy<Value = u64> {
    let edges = (0..64_u32, 0..3_u64).prop_map(|(bits, offset)| (1_u64 << bits).wrapping_add(offset).wrapping_sub(1));
    prop_oneof![0..3_u64, edges, any::<u64>()]
}

fn u256s() -> impl Strategy<Value = U256> {
    let edges = (0..256_usize, 0..3_u64)
        .prop_map(|(bits, offset)| (U256::ONE << bits).wrapping_add(U256::from(offset)).wrapping_sub(U256::ONE));
    prop_oneof![u64s().prop_map(U256::from), edges, any::<[u8; 32]>().prop_map(U256::from_be_bytes)]
}

fn words() -> impl Strategy<Value = B256> {
    prop_oneof![4 => any::<[u8; 32]>(), 1 => Just([0; 32])].prop_map(B256::from)
}

fn addresses() -> impl Strategy<Value = Address> {
    prop_oneof![4 => any::<[u8; 20]>(), 1 => Just([0; 20])].prop_map(Address::from)
}

/// Around the lengths at which RLP changes its form.
fn bytes() -> impl Strategy<Value = Bytes> {
    let lengths = prop_oneof![6 => 0..4_usize, 3 => 50..60_usize, 1 => 250..260_usize];
    lengths.prop_flat_map(|length| vec(any::<u8>(), length)).prop_map(Bytes::from)
}

/// A header of any fork: its later fields end somewhere.
fn headers() -> impl Strategy<Value = Header> {
    let later = (0..=8_usize, u64s(), words(), u64s(), u64s(), words());
    let numbers = (u64s(), u64s(), u64s(), u64s(), u256s());
    (numbers, words(), addresses(), bytes(), any::<u64>(), later).prop_map(
        |((number, gas_limit, gas_used, timestamp, difficulty), word, beneficiary, extra_data, nonce, later)| {
            let (fork, fee, root, gas, slot, hash) = later;
            Header {
                parent_hash: word,
                mix_hash: hash,
                beneficiary,
                difficulty,
                number,
                gas_limit,
                gas_used,
                timestamp,
                extra_data,
                nonce: B64::from(nonce),
                base_fee_per_gas: (fork > 0).then_some(fee),
                withdrawals_root: (fork > 1).then_some(root),
                blob_gas_used: (fork > 2).then_some(gas),
                excess_blob_gas: (fork > 3).then_some(slot),
                parent_beacon_block_root: (fork > 4).then_some(hash),
                requests_hash: (fork > 5).then_some(root),
                block_access_list_hash: (fork > 6).then_some(hash),
                slot_number: (fork > 7).then_some(slot),
                ..Header::default()
            }
        },
    )
}

#[test]
fn a_header_is_read_as_it_was_written() {
    let (network, door) = (listing(Chain::EthereumMainnet), RefCell::new(Door::open()));
    let counts = Counts { bounded: 1_000, full: 100_000 };
    fuzz("random headers", &counts, &headers(), |header| {
        let mut json = serde_json::to_value(&header).unwrap();
        json["hash"] = json!(header.hash_slow());
        json["transactions"] = json!([]);
        let (number, lay) = (header.number, || Table::new([(BLOCK, json.to_string())], None));
        let read = door.borrow_mut().ask(&network, lay, async |source| source.headers(number..=number).await);
        let read = read.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(read, [reference::header(&json)]);
        Ok(Vec::new())
    });
}

type Parts =
    (u64, u64, u64, U256, Bytes, Address, Vec<(Address, Vec<B256>)>, Vec<B256>, Vec<(U256, Address, u64, U256)>);

fn parts() -> impl Strategy<Value = Parts> {
    let access = vec((addresses(), vec(words(), 0..3)), 0..3);
    let authorizations = vec((u256s(), addresses(), u64s(), u256s()), 0..3);
    (u64s(), u64s(), u64s(), u256s(), bytes(), addresses(), access, vec(words(), 0..3), authorizations)
}

fn transactions() -> impl Strategy<Value = TxEnvelope> {
    (0..5_u8, parts(), u256s(), u256s(), any::<bool>()).prop_map(|(kind, parts, r, s, odd)| {
        let signature = Signature::new(r, s, odd);
        let (nonce, gas_limit, chain_id, value, input, to, access, hashes, authorizations) = parts;
        let item = |(address, storage_keys)| AccessListItem { address, storage_keys };
        let access_list = AccessList(access.into_iter().map(item).collect());
        let signed = |(number, address, nonce, chain_id)| {
            SignedAuthorization::new_unchecked(Authorization { chain_id, address, nonce }, u8::from(odd), number, r)
        };
        let authorization_list = authorizations.into_iter().map(signed).collect();
        let (fee, tip) = (u128::from(gas_limit) << 60, u128::from(nonce));
        let dynamic = TxEip1559 {
            chain_id,
            nonce,
            gas_limit,
            max_fee_per_gas: fee,
            max_priority_fee_per_gas: tip,
            to: to.into(),
            value,
            access_list: access_list.clone(),
            input: input.clone(),
        };
        let gas_price = fee;
        // EIP-155 counts up from twice the chain id.
        let legacy_id = (nonce % 2 == 0).then_some(chain_id >> 2);
        match kind {
            0 => TxLegacy { chain_id: legacy_id, nonce, gas_price, gas_limit, to: to.into(), value, input }
                .into_signed(signature)
                .into(),
            1 => TxEip2930 { chain_id, nonce, gas_price, gas_limit, to: to.into(), value, access_list, input }
                .into_signed(signature)
                .into(),
            2 => dynamic.into_signed(signature).into(),
            3 => TxEip4844 {
                chain_id,
                nonce,
                gas_limit,
                max_fee_per_gas: fee,
                max_priority_fee_per_gas: tip,
                to,
                value,
                access_list,
                blob_versioned_hashes: hashes,
                max_fee_per_blob_gas: tip,
                input,
            }
            .into_signed(signature)
            .into(),
            _ => TxEip7702 {
                chain_id,
                nonce,
                gas_limit,
                max_fee_per_gas: fee,
                max_priority_fee_per_gas: tip,
                to,
                value,
                access_list,
                authorization_list,
                input,
            }
            .into_signed(signature)
            .into(),
        }
    })
}

/// A block with these transactions, of which the first is of `mint`, and with them their receipts.
fn block_of(envelopes: &[TxEnvelope]) -> (Value, Value) {
    let tx = |envelope: &TxEnvelope| mint::Tx { kind: envelope.tx_type(), ..mint::Tx::default() };
    let (mut block, mut receipts) = mint::block(5, B256::ZERO, &envelopes.iter().map(tx).collect::<Vec<_>>());
    let root = calculate_transaction_root(envelopes);
    for (index, envelope) in envelopes.iter().enumerate() {
        block["transactions"][index] = serde_json::to_value(envelope).unwrap();
        block["transactions"][index]["from"] = json!(Address::repeat_byte(0xaa));
        receipts[index]["transactionHash"] = json!(envelope.tx_hash());
    }
    let block = mint::with_header(block, |header| header.transactions_root = root);
    super::lies::name_block(receipts.as_array_mut().unwrap(), &block["hash"]);
    (block, receipts)
}

#[test]
fn a_transaction_is_read_as_it_was_written() {
    let (network, door) = (listing(Chain::EthereumMainnet), RefCell::new(Door::open()));
    let counts = Counts { bounded: 1_000, full: 100_000 };
    fuzz("blocks with random transactions", &counts, &vec(transactions(), 1..4), |envelopes| {
        let (block, receipts) = block_of(&envelopes);
        let lay = || Table::new([(BLOCK, block.to_string()), (RECEIPTS, receipts.to_string())], None);
        let read = door.borrow_mut().ask(&network, lay, async |source| source.blocks(5..=5, Read::FULL).await);
        let mut read = read.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(read.len(), 1);
        let read = read.remove(0);
        prop_assert_eq!(read.txs, envelopes.iter().map(|envelope| TxId::Evm(envelope.tx_hash().0)).collect::<Vec<_>>());
        prop_assert_eq!(read.transfers, reference::reported(&network, &block, &receipts).legs);
        Ok(envelopes.iter().map(|envelope| format!("{:?}", envelope.tx_type())).collect())
    });
}

/// Other spellings of the same, near misses, and noise.
fn respelled(text: String) -> impl Strategy<Value = String> {
    let digits = text[2..].to_owned();
    let miss = text.clone();
    prop_oneof![
        (0..80_usize).prop_map({
            let digits = digits.clone();
            move |zeros| format!("0x{}{digits}", "0".repeat(zeros))
        }),
        Just(format!("0x{}", digits.to_uppercase())),
        Just(format!("0x{}", digits.trim_start_matches('0'))),
        Just(digits.clone()),
        Just(format!("0X{digits}")),
        // What a number would be that is cut to 64 or 256 bits.
        Just(format!("0x1{digits:0>16}")),
        Just(format!("0x1{digits:0>64}")),
        (any::<Index>(), "[0-9a-gA-GxX+_ \\-é\u{0}]{0,3}").prop_map(move |(at, put)| {
            let mut text = miss.clone();
            text.insert_str(at.index(text.len()), &put);
            text
        }),
        "(0x|0X|)[0-9a-fA-Fg]{0,70}",
        ".{0,20}",
    ]
}

/// The value of a number or the bytes, when the text means any: 0x and hexadecimal digits, for bytes an even number.
fn meaning(text: &str, is_data: bool) -> Option<String> {
    let digits = text.strip_prefix("0x")?.to_ascii_lowercase();
    let hexadecimal = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let fits = if is_data { digits.len() % 2 == 0 } else { !digits.is_empty() };
    let significant = if is_data { digits.as_str() } else { digits.trim_start_matches('0') };
    (hexadecimal && fits).then(|| significant.to_owned())
}

#[test]
fn a_text_is_read_exactly_when_it_means_the_same() {
    let (corpus, door) = (Corpus::new(), RefCell::new(Door::open()));
    let fixture = &corpus.fixtures[0];
    let (block, number) = (&fixture.blocks[0].0, fixture.first());
    let text = |field: &str| block[field].as_str().unwrap().to_owned();
    let fields: Vec<&'static str> = [QUANTITIES.as_slice(), &DATA].concat();
    let texts: Vec<(&'static str, String)> = fields.iter().map(|field| (*field, text(field))).collect();
    let input = select(texts).prop_flat_map(|(field, text)| (Just(field), respelled(text)));
    let counts = Counts { bounded: 1_000, full: 200_000 };
    let tally = fuzz("texts of numbers and bytes", &counts, &input, |(field, put)| {
        let is_data = DATA.contains(&field);
        let same = meaning(&put, is_data).is_some_and(|value| Some(value) == meaning(&text(field), is_data));
        let mut changed = block.clone();
        changed[field] = json!(put);
        let lay = || Table::new([(BLOCK, changed.to_string())], None);
        let read = door.borrow_mut().ask(&fixture.network, lay, async |source| source.headers(number..=number).await);
        // Escaped text is refused unread: no digit needs escaping.
        prop_assert_eq!(read.is_ok_and(|headers| headers.len() == 1), same, "{} = {:?}", field, put);
        Ok(vec![format!("read: {same}")])
    });
    assert!(tally["read: true"] > 100 && tally["read: false"] > 100, "{tally:?}");
}
