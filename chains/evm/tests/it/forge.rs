//! Synthetic blocks: of transactions that alloy has no types for, encoded by alloy's RLP and tries after the
//! specifications, none of it by the crate's code.

use alloy::consensus::proofs::{calculate_withdrawals_root, ordered_trie_root_with_encoder};
use alloy::consensus::{EMPTY_ROOT_HASH, Header};
use alloy::eips::eip4895::Withdrawal;
use alloy::primitives::{Address, B256, Bytes, Log, U256, keccak256, logs_bloom};
use alloy::rlp::{Encodable, encode_list};
use landfall_chain::{
    Address as ChainAddress, AssetId, AssetTransfer, Block, BlockSource, Chain, Network, Read, SourceError,
};
use landfall_evm::network;
use serde_json::{Value, json};

use crate::node::{Ledger, Node, chain_id};

/// A transaction, encoded and as a node shows it (without its hash and place), and what became of it.
pub(crate) struct Entry {
    pub(crate) leaf: Vec<u8>,
    pub(crate) json: Value,
    pub(crate) success: bool,
    pub(crate) logs: Vec<Log>,
    /// Stands in the receipt's JSON.
    pub(crate) deposit_nonce: Option<u64>,
    /// Stands in the receipt's JSON, and brings itself and the nonce into the root.
    pub(crate) version: Option<u64>,
}

impl Entry {
    /// The type; a legacy transaction begins with its list.
    fn kind(&self) -> u8 {
        if self.leaf[0] < 0xc0 { self.leaf[0] } else { 0 }
    }
}

/// What an OP-stack deposit is made of.
pub(crate) struct Deposit {
    pub(crate) from: Address,
    pub(crate) to: Option<Address>,
    pub(crate) mint: Option<u64>,
    pub(crate) value: u64,
    pub(crate) system: bool,
}

impl Default for Deposit {
    fn default() -> Self {
        let (from, to) = (Address::repeat_byte(0xa1), Some(Address::repeat_byte(0xb2)));
        Deposit { from, to, mint: None, value: 0, system: false }
    }
}

impl Deposit {
    /// A successful one of the time after Canyon.
    pub(crate) fn entry(&self) -> Entry {
        let (source, data) = (B256::repeat_byte(0x51), Bytes::from_static(&[1, 2, 3]));
        let to = Bytes::from(self.to.map_or_else(Vec::new, |to| to.to_vec()));
        let (mint, system) = (self.mint.unwrap_or_default(), self.system);
        let leaf = typed(0x7e, &[&source, &self.from, &to, &mint, &self.value, &100_000_u64, &system, &data]);
        let mut json = json!({
            "type": "0x7e", "sourceHash": source, "from": self.from, "to": self.to, "value": hex(self.value),
            "gas": "0x186a0", "input": data, "nonce": "0x9", "gasPrice": "0x0", "v": "0x0", "r": "0x0", "s": "0x0",
        });
        // As op-geth does it: what is not there is left out.
        if let Some(mint) = self.mint {
            json["mint"] = json!(hex(mint));
        }
        if self.system {
            json["isSystemTx"] = json!(true);
        }
        Entry { leaf, json, success: true, logs: Vec::new(), deposit_nonce: Some(4), version: Some(1) }
    }
}

/// A successful transaction of a type that this version does not know, with these logs.
pub(crate) fn newer(kind: u8, logs: Vec<Log>) -> Entry {
    let (from, to) = (Address::repeat_byte(0xaa), Address::repeat_byte(0xfa));
    let leaf = typed(kind, &[&1_u64, &to]);
    let json = json!({
        "type": hex(kind.into()), "from": from, "to": to, "nonce": "0x1", "value": "0x0", "gas": "0x186a0", "input": "0x",
    });
    Entry { leaf, json, success: true, logs, deposit_nonce: None, version: None }
}

/// Block 16 and its receipts.
pub(crate) fn block(entries: &[Entry], withdrawals: &[Withdrawal]) -> (Value, Value) {
    let receipts: Vec<Vec<u8>> = entries.iter().zip(1..).map(|(entry, index)| receipt_leaf(entry, index)).collect();
    let header = Header {
        number: 16,
        timestamp: 1_700_000_000,
        transactions_root: root(entries.iter().map(|entry| entry.leaf.clone()).collect()),
        receipts_root: root(receipts),
        logs_bloom: logs_bloom(entries.iter().flat_map(|entry| &entry.logs)),
        base_fee_per_gas: Some(7),
        withdrawals_root: Some(calculate_withdrawals_root(withdrawals)),
        ..Header::default()
    };
    let hash = header.hash_slow();
    let mut block = serde_json::to_value(&header).unwrap();
    block["hash"] = json!(hash);
    block["withdrawals"] = json!(withdrawals);
    block["transactions"] = entries.iter().map(tx_json).collect();
    let mut next_log = 0_u64;
    let receipts = entries.iter().zip(0..).map(|(entry, index)| receipt_json(entry, index, hash, &mut next_log));
    let receipts = receipts.collect();
    (block, receipts)
}

/// The block as `chain` reads it from a node that has only this.
pub(crate) async fn read(chain: Chain, block: (Value, Value)) -> Result<Block, SourceError> {
    read_with_raw(chain, block, Value::Null).await
}

/// The same from a node that answers `raw` to the question for a transaction's encoding.
pub(crate) async fn read_with_raw(chain: Chain, block: (Value, Value), raw: Value) -> Result<Block, SourceError> {
    let ledger = Ledger { chain_id: chain_id(chain), ..Ledger::of([block]) };
    let number = *ledger.blocks.keys().next().unwrap();
    let node = Node::start(move |method, params| match method {
        "eth_getRawTransactionByBlockHashAndIndex" => Ok(raw.clone()),
        _ => ledger.answer(method, params),
    })
    .await;
    let blocks = node.source(network(chain).unwrap()).blocks(number..=number, Read::FULL).await;
    blocks.map(|mut blocks| blocks.remove(0))
}

/// The same from a node that writes `text` wherever the mark stands ([`node::MARK`]).
pub(crate) async fn read_with_text(
    chain: Chain,
    block: (Value, Value),
    text: &'static str,
) -> Result<Block, SourceError> {
    let ledger = Ledger { chain_id: chain_id(chain), ..Ledger::of([block]) };
    let number = *ledger.blocks.keys().next().unwrap();
    let node = Node::start_marked(text, move |method, params| ledger.answer(method, params)).await;
    let blocks = node.source(network(chain).unwrap()).blocks(number..=number, Read::FULL).await;
    blocks.map(|mut blocks| blocks.remove(0))
}

/// The block as a source with these facts reads it.
pub(crate) async fn read_as(network: Network, block: (Value, Value), read: Read) -> Result<Block, SourceError> {
    let ledger = Ledger { chain_id: chain_id(network.chain), ..Ledger::of([block]) };
    let number = *ledger.blocks.keys().next().unwrap();
    let node = Node::start(move |method, params| ledger.answer(method, params)).await;
    let blocks = node.source(network).blocks(number..=number, read).await;
    blocks.map(|mut blocks| blocks.remove(0))
}

/// Asset (`N` or `T`), sender, recipient, amount, nth.
pub(crate) fn short(leg: &AssetTransfer) -> (char, Address, Address, u64, u32) {
    let plain = |address: ChainAddress| Address::from_slice(address.as_bytes());
    let asset = if leg.asset == AssetId::Native { 'N' } else { 'T' };
    (asset, plain(leg.sender), plain(leg.recipient), leg.amount.try_into().unwrap(), leg.nth)
}

/// A type's byte and a list.
pub(crate) fn typed(kind: u8, fields: &[&dyn Encodable]) -> Vec<u8> {
    let mut out = vec![kind];
    encode_list::<_, dyn Encodable>(fields, &mut out);
    out
}

pub(crate) fn hex(number: u64) -> String {
    format!("{number:#x}")
}

fn root(leaves: Vec<Vec<u8>>) -> B256 {
    if leaves.is_empty() {
        return EMPTY_ROOT_HASH;
    }
    ordered_trie_root_with_encoder(&leaves, |leaf, out| out.extend_from_slice(leaf))
}

fn receipt_leaf(entry: &Entry, index: u64) -> Vec<u8> {
    let (status, gas, bloom) = (entry.success, index * 21_000, logs_bloom(&entry.logs));
    let mut fields: Vec<&dyn Encodable> = vec![&status, &gas, &bloom, &entry.logs];
    if let Some(version) = &entry.version {
        fields.extend(entry.deposit_nonce.as_ref().map(|nonce| nonce as &dyn Encodable));
        fields.push(version);
    }
    let leaf = typed(entry.kind(), &fields);
    if entry.kind() == 0 { leaf[1..].to_vec() } else { leaf }
}

fn tx_json(entry: &Entry) -> Value {
    let mut json = entry.json.clone();
    json["hash"] = json!(keccak256(&entry.leaf));
    json
}

fn receipt_json(entry: &Entry, index: u64, block: B256, next_log: &mut u64) -> Value {
    let log = |log: &Log| {
        let at = *next_log;
        *next_log += 1;
        json!({
            "address": log.address, "topics": log.topics(), "data": log.data.data, "blockHash": block,
            "logIndex": hex(at),
        })
    };
    let logs: Vec<Value> = entry.logs.iter().map(log).collect();
    let mut json = json!({
        "transactionHash": keccak256(&entry.leaf), "transactionIndex": hex(index), "blockHash": block,
        "type": format!("{:#x}", entry.kind()), "status": hex(u64::from(entry.success)),
        "cumulativeGasUsed": hex((index + 1) * 21_000), "logsBloom": logs_bloom(&entry.logs), "logs": logs,
    });
    for (name, value) in [("depositNonce", entry.deposit_nonce), ("depositReceiptVersion", entry.version)] {
        if let Some(value) = value {
            json[name] = json!(hex(value));
        }
    }
    json
}

#[test]
fn wei_of_the_largest_withdrawal_fit() {
    assert!(U256::from(u64::MAX) * U256::from(1_000_000_000_u64) < U256::from(1) << 94);
}
