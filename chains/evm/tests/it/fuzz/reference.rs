//! What a block pays, read from its JSON by the plainest possible code, and by none of the crate's.
//!
//! Believes what it reads: it is asked only about blocks that are true, or were accepted.

use alloy::primitives::{Address, B256, address, b256, keccak256};
use landfall_chain::{
    Address as ChainAddress, AssetId, AssetTransfer, BlockHash, BlockRef, Chain, Header, NativeSource, Network,
    SenderRule, TxId, TxLife, TxRef, U256,
};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::mint::TRANSFER;

pub(super) const POL: Address = address!("0000000000000000000000000000000000001010");
pub(super) const SYSTEM: Address = address!("fffffffffffffffffffffffffffffffffffffffe");
pub(super) const LOG_TRANSFER: B256 = b256!("e6497e3ee548a3372136af2fcb0696db31fc6cf20260707645068bd3fe97f3c4");

/// What a source tells of a block.
#[derive(Debug, PartialEq)]
pub(super) struct Reported {
    pub(super) header: Header,
    pub(super) txs: Vec<TxId>,
    pub(super) legs: Vec<AssetTransfer>,
}

pub(super) fn reported(network: &Network, block: &Value, receipts: &Value) -> Reported {
    let (mut txs, mut legs) = (Vec::new(), Vec::new());
    let logged = logged_by(network, small(&block["number"]));
    for (tx, receipt) in list(&block["transactions"]).iter().zip(list(receipts)) {
        if !is_pseudo(network, block, tx) {
            txs.push(TxId::Evm(word(&tx["hash"]).0));
            of_transaction(network, logged, tx, receipt, &mut legs);
        }
    }
    if !is_op(network.chain) {
        for withdrawal in list(&block["withdrawals"]) {
            let id = withdrawal_id(small(&withdrawal["index"]));
            txs.push(id);
            let tx = TxRef { id, life: TxLife::Block };
            let wei = number(&withdrawal["amount"]) * U256::from(1_000_000_000);
            push(&mut legs, tx, AssetId::Native, Address::ZERO, address(&withdrawal["address"]), wei);
        }
    }
    Reported { header: header(block), txs, legs }
}

pub(super) fn header(block: &Value) -> Header {
    let (number, hash) = (small(&block["number"]), BlockHash(word(&block["hash"]).0));
    let parent = BlockRef { number: number.saturating_sub(1), hash: BlockHash(word(&block["parentHash"]).0) };
    Header { block: BlockRef { number, hash }, parent, time_secs: small(&block["timestamp"]) }
}

/// Who logs native movements in a block of this number, where anybody does.
fn logged_by(network: &Network, number: u64) -> Option<Address> {
    let since = network.native.eip7708_from.filter(|from| *from <= number);
    let on_polygon = (network.native.source == NativeSource::LogTransfer).then_some(POL);
    since.map(|_| SYSTEM).or(on_polygon)
}

/// Whether a successful transaction moved value that the chain should have logged, and has not.
pub(super) fn is_unlogged(network: &Network, block: &Value, receipts: &Value) -> bool {
    let Some(by) = logged_by(network, small(&block["number"])) else { return false };
    let unlogged = |(tx, receipt): (&Value, &Value)| {
        let (from, amount) = (address(&tx["from"]), number(&tx["value"]));
        let to = if tx["to"].is_null() { from.create(small(&tx["nonce"])) } else { address(&tx["to"]) };
        let reported =
            |log| native_log(by, log).is_some_and(|(_, recipient, moved)| (recipient, moved) == (to, amount));
        let moves = number(&receipt["status"]) == U256::ONE && !amount.is_zero() && from != to;
        moves && !list(&receipt["logs"]).iter().any(reported)
    };
    list(&block["transactions"]).iter().zip(list(receipts)).any(unlogged)
}

fn of_transaction(
    network: &Network,
    logged: Option<Address>,
    tx: &Value,
    receipt: &Value,
    legs: &mut Vec<AssetTransfer>,
) {
    let (kind, from) = (number(&tx["type"]).to::<u64>(), address(&tx["from"]));
    let nonce = if kind == 0x7e { depositor_nonce(receipt) } else { Some(small(&tx["nonce"])) };
    let life = match nonce {
        Some(nonce) if kind <= 4 => TxLife::Nonce { signer: ChainAddress::Evm(from.into()), nonce },
        _ => TxLife::Block,
    };
    let tx_ref = TxRef { id: TxId::Evm(word(&tx["hash"]).0), life };
    if kind == 0x7e {
        push(legs, tx_ref, AssetId::Native, Address::ZERO, from, number(&tx["mint"]));
    }
    if receipt["status"].is_null() || number(&receipt["status"]) != U256::ONE {
        return;
    }
    let to = if tx["to"].is_null() { nonce.map(|nonce| from.create(nonce)) } else { Some(address(&tx["to"])) };
    if let (true, Some(to), None) = (kind != 0x7f, to, logged) {
        push(legs, tx_ref, AssetId::Native, from, to, number(&tx["value"]));
    }
    for log in list(&receipt["logs"]) {
        if let Some((from, to, amount)) = logged.and_then(|by| native_log(by, log)) {
            push(legs, tx_ref, AssetId::Native, from, to, amount);
        } else {
            of_log(network, tx_ref, log, legs);
        }
    }
}

/// A native movement as the chain itself logs it: from, to, amount. Polygon: four topics, the second of them POL's own
/// address, and five words. EIP-7708: the `Transfer` of a token that is none.
fn native_log(by: Address, log: &Value) -> Option<(Address, Address, U256)> {
    let topics: Vec<B256> = list(&log["topics"]).iter().map(word).collect();
    let data = log["data"].as_str().unwrap();
    let (ends, words) = match topics.as_slice() {
        [LOG_TRANSFER, token, from, to] if by == POL && *token == POL.into_word() => ([from, to], 5),
        [TRANSFER, from, to] if by == SYSTEM => ([from, to], 1),
        _ => return None,
    };
    let clean = ends.iter().all(|end| end.starts_with(&[0; 12]));
    let shaped = address(&log["address"]) == by && clean && data.len() == 2 + 64 * words;
    let [from, to] = ends.map(|end| Address::from_word(*end));
    shaped.then(|| (from, to, U256::from_str_radix(&data[2..66], 16).unwrap()))
}

/// Three topics, the first of them the event's; two clean addresses; 32 bytes; a listed contract.
fn of_log(network: &Network, tx: TxRef, log: &Value, legs: &mut Vec<AssetTransfer>) {
    let asset = AssetId::Token(ChainAddress::Evm(address(&log["address"]).into()));
    let topics: Vec<B256> = list(&log["topics"]).iter().map(word).collect();
    let data = log["data"].as_str().unwrap();
    let listed = network.assets.iter().any(|listed| listed.id == asset);
    if listed && topics.len() == 3 && topics[0] == TRANSFER && data.len() == 2 + 64 {
        let clean = topics[1..].iter().all(|topic| topic.starts_with(&[0; 12]));
        let [from, to] = [topics[1], topics[2]].map(Address::from_word);
        if clean {
            push(legs, tx, asset, from, to, number(&log["data"]));
        }
    }
}

/// Adds a leg, numbered among its equals, unless it moves nothing or only from itself to itself.
fn push(legs: &mut Vec<AssetTransfer>, tx: TxRef, asset: AssetId, from: Address, to: Address, amount: U256) {
    if amount.is_zero() || from == to {
        return;
    }
    let (sender, recipient) = (ChainAddress::Evm(from.into()), ChainAddress::Evm(to.into()));
    let equal =
        |leg: &&AssetTransfer| (leg.tx.id, leg.asset, leg.recipient, leg.amount) == (tx.id, asset, recipient, amount);
    let nth = u32::try_from(legs.iter().filter(equal).count()).unwrap();
    legs.push(AssetTransfer { tx, asset, sender, sender_rule: SenderRule::Reported, recipient, amount, nth });
}

/// The nonce of an OP-stack deposit's sender, where the receipts root covers it.
fn depositor_nonce(receipt: &Value) -> Option<u64> {
    let covered = !receipt["depositReceiptVersion"].is_null() && !receipt["depositNonce"].is_null();
    covered.then(|| small(&receipt["depositNonce"]))
}

/// What Polygon's nodes add to a block is in no root.
fn is_pseudo(network: &Network, block: &Value, tx: &Value) -> bool {
    let number = small(&block["number"]).to_be_bytes();
    let name = [b"matic-bor-receipt-".as_slice(), &number, word(&block["hash"]).as_slice()].concat();
    network.chain == Chain::PolygonMainnet && word(&tx["hash"]) == keccak256(name)
}

fn withdrawal_id(index: u64) -> TxId {
    let text =
        [&13_u32.to_be_bytes(), b"withdrawal/v1".as_slice(), &8_u32.to_be_bytes(), &index.to_be_bytes()].concat();
    TxId::Evm(Sha256::digest(text).into())
}

fn is_op(chain: Chain) -> bool {
    matches!(chain, Chain::BaseMainnet | Chain::OptimismMainnet)
}

/// What is left out, or null, is an empty list, and the number zero.
fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn number(value: &Value) -> U256 {
    value.as_str().map_or(U256::ZERO, |text| U256::from_str_radix(&text[2..], 16).unwrap())
}

fn small(value: &Value) -> u64 {
    number(value).to()
}

pub(super) fn word(value: &Value) -> B256 {
    value.as_str().unwrap().parse().unwrap()
}

pub(super) fn address(value: &Value) -> Address {
    value.as_str().unwrap().parse().unwrap()
}
