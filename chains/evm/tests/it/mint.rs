//! Blocks made to measure. Everything is encoded and hashed by alloy's own types, none of it by the crate's code:
//! a made block that proves shows that both encode alike.
//! Who has a key here signs truly; everybody else's signature is the same made-up one.

use alloy::consensus::proofs::{calculate_receipt_root, calculate_transaction_root};
use alloy::consensus::{
    EMPTY_ROOT_HASH, Header, Receipt, ReceiptEnvelope, SignableTransaction, Signed, TxEip1559, TxEip2930, TxEip4844,
    TxEip7702, TxEnvelope, TxLegacy, TxReceipt, TxType,
};
use alloy::eips::eip2930::{AccessList, AccessListItem};
use alloy::eips::eip7702::{Authorization, SignedAuthorization};
use alloy::primitives::{Address, B256, Bytes, Log, LogData, Signature, TxKind, U256, b256, keccak256, logs_bloom};
use alloy::signers::k256::ecdsa::SigningKey;
use serde_json::{Value, json};

/// Somebody who signs truly: the account of the key `[seed; 32]`.
pub(crate) fn signer(seed: u8) -> Address {
    Address::from_private_key(&key(seed))
}

fn key(seed: u8) -> SigningKey {
    SigningKey::from_slice(&[seed; 32]).unwrap()
}

/// Keys in use.
const SEEDS: std::ops::RangeInclusive<u8> = 1..=3;

pub(crate) const TRANSFER: B256 = b256!("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");

/// A transaction and what became of it.
pub(crate) struct Tx {
    pub(crate) kind: TxType,
    pub(crate) from: Address,
    pub(crate) to: Option<Address>,
    pub(crate) value: u64,
    pub(crate) nonce: u64,
    pub(crate) input: Bytes,
    pub(crate) success: bool,
    pub(crate) logs: Vec<Log>,
}

impl Default for Tx {
    fn default() -> Self {
        Tx {
            kind: TxType::Eip1559,
            from: Address::repeat_byte(0xaa),
            to: Some(Address::repeat_byte(0xbb)),
            value: 0,
            nonce: 0,
            input: Bytes::new(),
            success: true,
            logs: Vec::new(),
        }
    }
}

/// A log as any contract can make one.
pub(crate) fn log(contract: Address, topics: &[B256], data: &[u8]) -> Log {
    Log { address: contract, data: LogData::new_unchecked(topics.to_vec(), data.to_vec().into()) }
}

/// An ordinary ERC-20 `Transfer`.
pub(crate) fn transfer(contract: Address, from: Address, to: Address, amount: u64) -> Log {
    log(contract, &[TRANSFER, from.into_word(), to.into_word()], &U256::from(amount).to_be_bytes::<32>())
}

/// Blocks `first..`, one for each list of transactions, linked by parent hash.
pub(crate) fn chain(first: u64, blocks: Vec<Vec<Tx>>) -> Vec<(Value, Value)> {
    let mut parent = B256::repeat_byte(1);
    let mut made = Vec::new();
    for (number, txs) in (first..).zip(blocks) {
        let (block, receipts) = block(number, parent, &txs);
        parent = block["hash"].as_str().unwrap().parse().unwrap();
        made.push((block, receipts));
    }
    made
}

/// One block and its receipts as a node of the Prague fork returns them.
pub(crate) fn block(number: u64, parent: B256, txs: &[Tx]) -> (Value, Value) {
    let envelopes: Vec<TxEnvelope> = txs.iter().map(envelope).collect();
    let receipts: Vec<ReceiptEnvelope> = txs.iter().zip(1..).map(|(tx, index)| receipt(tx, index)).collect();
    let header = Header {
        number,
        parent_hash: parent,
        timestamp: 1_700_000_000 + number,
        transactions_root: calculate_transaction_root(&envelopes),
        receipts_root: calculate_receipt_root(&receipts),
        logs_bloom: logs_bloom(txs.iter().flat_map(|tx| &tx.logs)),
        extra_data: Bytes::from_static(b"landfall"),
        base_fee_per_gas: Some(7),
        withdrawals_root: Some(EMPTY_ROOT_HASH),
        blob_gas_used: Some(0),
        excess_blob_gas: Some(131_072),
        parent_beacon_block_root: Some(B256::repeat_byte(3)),
        requests_hash: Some(B256::repeat_byte(4)),
        ..Header::default()
    };
    let hash = header.hash_slow();
    let mut block = serde_json::to_value(&header).unwrap();
    block["hash"] = json!(hash);
    block["withdrawals"] = json!([]);
    block["transactions"] = envelopes.iter().zip(txs).map(|(envelope, tx)| tx_json(envelope, tx)).collect();
    let mut next_log = 0_u64;
    let receipts = txs.iter().zip(&envelopes).zip(&receipts).enumerate();
    let receipts = receipts
        .map(|(index, ((tx, envelope), receipt))| receipt_json(index, tx, envelope, receipt, hash, &mut next_log));
    let receipts = receipts.collect();
    (block, receipts)
}

fn envelope(tx: &Tx) -> TxEnvelope {
    let from = tx.from;
    let (nonce, value, input) = (tx.nonce, U256::from(tx.value), tx.input.clone());
    let (to, call) = (tx.to.map_or(TxKind::Create, TxKind::Call), tx.to.unwrap_or_default());
    let access_list = AccessList(vec![
        AccessListItem { address: Address::repeat_byte(5), storage_keys: vec![B256::repeat_byte(6), B256::ZERO] },
        AccessListItem::default(),
    ]);
    match tx.kind {
        TxType::Legacy => {
            let chain_id = tx.nonce.is_multiple_of(2).then_some(1);
            let legacy = TxLegacy { chain_id, nonce, gas_price: 9, gas_limit: 21_000, to, value, input };
            signed(from, legacy).into()
        }
        TxType::Eip2930 => {
            let tx = TxEip2930 { chain_id: 1, nonce, gas_price: 9, gas_limit: 21_000, to, value, access_list, input };
            signed(from, tx).into()
        }
        TxType::Eip1559 => {
            let tx = TxEip1559 { chain_id: 1, nonce, max_fee_per_gas: 9, to, value, access_list, input, ..fees() };
            signed(from, tx).into()
        }
        TxType::Eip4844 => {
            let blob_versioned_hashes = vec![B256::repeat_byte(1), B256::repeat_byte(2)];
            let tx = TxEip4844 {
                chain_id: 1,
                nonce,
                gas_limit: 21_000,
                max_fee_per_gas: 9,
                max_priority_fee_per_gas: 0,
                to: call,
                value,
                access_list,
                blob_versioned_hashes,
                max_fee_per_blob_gas: 1_000_000,
                input,
            };
            signed(from, tx).into()
        }
        TxType::Eip7702 => {
            let granted = |nonce, parity| {
                let inner = Authorization { chain_id: U256::from(1), address: Address::repeat_byte(8), nonce };
                SignedAuthorization::new_unchecked(inner, parity, U256::from(3), U256::MAX)
            };
            let tx = TxEip7702 {
                chain_id: 1,
                nonce,
                gas_limit: 21_000,
                max_fee_per_gas: 9,
                max_priority_fee_per_gas: 1,
                to: call,
                value,
                access_list,
                authorization_list: vec![granted(0, 0), granted(u64::MAX, 1)],
                input,
            };
            signed(from, tx).into()
        }
    }
}

fn signed<T: SignableTransaction<Signature>>(from: Address, tx: T) -> Signed<T> {
    let Some(seed) = SEEDS.into_iter().find(|seed| signer(*seed) == from) else {
        return tx.into_signed(Signature::test_signature());
    };
    let (signature, recovery) = key(seed).sign_prehash_recoverable(tx.signature_hash().as_slice()).unwrap();
    tx.into_signed(Signature::from((signature, recovery)))
}

fn fees() -> TxEip1559 {
    TxEip1559 { gas_limit: 21_000, max_priority_fee_per_gas: 1, ..TxEip1559::default() }
}

fn receipt(tx: &Tx, index: u64) -> ReceiptEnvelope {
    let receipt =
        Receipt { status: tx.success.into(), cumulative_gas_used: index * 21_000, logs: tx.logs.clone() }.with_bloom();
    match tx.kind {
        TxType::Legacy => ReceiptEnvelope::Legacy(receipt),
        TxType::Eip2930 => ReceiptEnvelope::Eip2930(receipt),
        TxType::Eip1559 => ReceiptEnvelope::Eip1559(receipt),
        TxType::Eip4844 => ReceiptEnvelope::Eip4844(receipt),
        TxType::Eip7702 => ReceiptEnvelope::Eip7702(receipt),
    }
}

fn tx_json(envelope: &TxEnvelope, tx: &Tx) -> Value {
    let mut json = serde_json::to_value(envelope).unwrap();
    json["from"] = json!(tx.from);
    json
}

fn receipt_json(
    index: usize,
    tx: &Tx,
    envelope: &TxEnvelope,
    receipt: &ReceiptEnvelope,
    block: B256,
    next_log: &mut u64,
) -> Value {
    let log = |log: &Log| {
        let at = *next_log;
        *next_log += 1;
        json!({
            "address": log.address, "topics": log.topics(), "data": log.data.data,
            "blockHash": block, "logIndex": format!("{at:#x}"), "removed": false,
        })
    };
    let logs: Vec<Value> = tx.logs.iter().map(log).collect();
    json!({
        "transactionHash": envelope.hash(), "transactionIndex": format!("{index:#x}"), "blockHash": block,
        "type": format!("{:#x}", u8::from(tx.kind)), "status": if tx.success { "0x1" } else { "0x0" },
        "cumulativeGasUsed": format!("{:#x}", receipt.cumulative_gas_used()), "logsBloom": receipt.bloom(),
        "logs": logs, "contractAddress": null, "from": tx.from, "to": tx.to,
    })
}

/// The block with another header field, hashing to itself again: only the content can convict it.
pub(crate) fn with_header(mut block: Value, change: impl FnOnce(&mut Header)) -> Value {
    let mut header: Header = serde_json::from_value(block.clone()).unwrap();
    change(&mut header);
    for (key, value) in serde_json::to_value(&header).unwrap().as_object().unwrap() {
        block[key] = value.clone();
    }
    block["hash"] = json!(header.hash_slow());
    block
}

#[test]
fn the_topic_is_the_hash_of_the_events_signature() {
    assert_eq!(TRANSFER, keccak256("Transfer(address,address,uint256)"));
}
