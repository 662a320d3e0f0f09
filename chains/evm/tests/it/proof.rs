//! Recorded and made blocks prove; a block with any one thing changed does not, and the error says which check saw it.

use alloy::consensus::TxType;
use alloy::primitives::{Address, Bytes};
use landfall_chain::{
    Address as ChainAddress, Asset, AssetId, BlockSource, Family, Network, Proof, SourceErrorKind, TxId,
};
use serde_json::{Value, json};

use crate::mint::{self, Tx};
use crate::node::{Ledger, Node, mainnet};

fn listing(contracts: &[&str]) -> Network {
    let mut network = mainnet();
    for contract in contracts {
        let contract = ChainAddress::parse(Family::Evm, contract).unwrap();
        network.assets.push(Asset { id: AssetId::Token(contract), symbol: contract.to_string(), decimals: 18 });
    }
    network
}

#[tokio::test]
async fn recorded_blocks_prove() {
    // Number, transactions, legs with USDC listed (counted by a script over the JSON, not by this crate).
    for (number, txs, legs) in [(468_179, 1, 0), (4_370_006, 64, 7), (7_280_016, 91, 43), (16_899_757, 147, 73 + 11)] {
        let ledger = Ledger::recorded(number);
        let node = Node::start(move |method, params| ledger.answer(method, params)).await;
        let blocks = node.source(mainnet()).blocks(number..=number).await.unwrap();
        assert_eq!(blocks.len(), 1);
        assert_eq!(blocks[0].proof, Proof::Roots);
        assert_eq!((blocks[0].txs.len(), blocks[0].transfers.len()), (txs, legs), "{number}");
    }
}

#[tokio::test]
async fn the_legs_of_a_recorded_block_are_those_written_down_by_hand() {
    const BAT: &str = "0x0d8775f648430679a709e98d2b0cb6250d2887ef";
    const OMG: &str = "0xd26114cd6ee289accf82350c8d8487fedb8a0c07";
    // The OMG one is a sweep: its signer is the recipient, the sender is another.
    let expected = "\
        61d92893 native 69ea6b31ef305d6b99bb2d4c9d99456fa108b02a d1f34dc6b5d55e8040db54f55fd1e180d3b54f93 3000000000000000\n\
        18507e71 BAT fbb1b73c4f0bda4f67dca266ce6ef42f520fbb98 4dc13078776561275afb811c98b32d659f00c605 853913793100000000000\n\
        5eaf490d OMG a5d334876493831ade6c8681b75623bc3e005f5f fbb1b73c4f0bda4f67dca266ce6ef42f520fbb98 200095855930000000000\n\
        f61c57a5 native dd8c5bfe09d6f2a8b9054ffd83da98f52f26c15c 8d12a197cb00d4747a1fe03395095ce2a5cc6819 144351154000000000\n\
        538483f9 native 215c86bc952b0d98c4b2313a0a9ae56fa33c7f5d 5d8e9a4b36589e6a3a820de41c693b8651eed04b 270403532000000000\n\
        6c49c671 native 44de2e2b1f378d51e0d2a2ae5ebe4d427ab955a9 b9ddcddba5d5ccfefc63321d8db7b05f1e9567fa 19364070000000000\n\
        6e2ca73c native df2c94453c39ae8df0cad78fc8cb4d6ed54b4e3a 008ef0e604fb49d668d9315c06aefb3d59a49c38 124767404000000000\n\
        0ee1211e native 45690335ffb5c44dad712882854b1c589522fc24 3f165fea4a171377d78af26cb988663aea137b03 50000000000000000\n\
        bb4ee2f3 native 23f28731980af955bb97da67cc9e2a512ee5157a 2479ce552d2c2abe17ddaa6c539a068138a56940 50537890000000000\n";
    let ledger = Ledger::recorded(4_370_006);
    let node = Node::start(move |method, params| ledger.answer(method, params)).await;
    let blocks = node.source(listing(&[BAT, OMG])).blocks(4_370_006..=4_370_006).await.unwrap();
    let hex = |bytes: &[u8]| alloy::hex::encode(bytes);
    let line = |transfer: &landfall_chain::AssetTransfer| {
        let asset = match transfer.asset {
            AssetId::Native => "native",
            AssetId::Token(contract) if contract == ChainAddress::parse(Family::Evm, BAT).unwrap() => "BAT",
            AssetId::Token(_) => "OMG",
        };
        let tx = hex(&transfer.tx.id.as_bytes()[..4]);
        let (sender, recipient) = (hex(transfer.sender.as_bytes()), hex(transfer.recipient.as_bytes()));
        assert_eq!(transfer.nth, 0);
        format!("{tx} {asset} {sender} {recipient} {}\n", transfer.amount)
    };
    assert_eq!(blocks[0].transfers.iter().map(line).collect::<String>(), expected);
    let parent = blocks[0].header.parent;
    assert_eq!(parent.number, 4_370_005);
    assert_eq!(blocks[0].header.time_secs, 0x59e4_4269);
}

/// One block with a transaction of every type and several shapes of each field.
fn all_types() -> (Value, Value) {
    let kinds = [TxType::Legacy, TxType::Eip2930, TxType::Eip1559, TxType::Eip4844, TxType::Eip7702];
    let to = Address::repeat_byte(7);
    let txs: Vec<Tx> = (0..200_u64)
        .zip(kinds.into_iter().cycle())
        .map(|(nonce, kind)| Tx {
            kind,
            nonce,
            value: nonce * 1_000,
            to: (nonce % 7 != 0 || nonce % 5 > 2).then_some(to),
            input: Bytes::from(vec![u8::try_from(nonce).unwrap(); usize::try_from(nonce % 60).unwrap()]),
            success: nonce % 3 != 0,
            logs: (0..nonce % 4).map(|amount| mint::transfer(to, to, Address::ZERO, amount)).collect(),
            ..Tx::default()
        })
        .collect();
    mint::block(5, alloy::primitives::B256::repeat_byte(1), &txs)
}

#[tokio::test]
async fn every_type_of_transaction_proves() {
    let ledger = Ledger::of([all_types()]);
    let node = Node::start(move |method, params| ledger.answer(method, params)).await;
    let blocks = node.source(mainnet()).blocks(5..=5).await.unwrap();
    assert_eq!(blocks[0].txs.len(), 200);
    assert!(matches!(blocks[0].txs[0], TxId::Evm(_)));
}

/// A pointer into the block or its receipts, what to put there (or take away), and what the error must say.
type Tamper = (&'static str, Option<Value>, &'static str);

async fn refusal(block: Value, receipts: Value) -> (SourceErrorKind, String) {
    let mut ledger = Ledger::of([(block, receipts.clone())]);
    // The receipts are handed out whatever hash is asked for.
    ledger.blocks.values_mut().for_each(|entry| entry.1 = receipts.clone());
    let node = Node::start(move |method, params| match method {
        "eth_getBlockReceipts" => Ok(receipts.clone()),
        _ => ledger.answer(method, params),
    })
    .await;
    let source = node.source(mainnet());
    let error = source.blocks(5..=5).await.expect_err("a tampered block was accepted");
    (error.kind, error.to_string())
}

fn change(target: &mut Value, path: &str, value: Option<Value>) {
    let (parent, key) = path.rsplit_once('/').unwrap();
    match (target.pointer_mut(parent).unwrap(), value) {
        (Value::Array(items), None) => drop(items.remove(key.parse().unwrap())),
        (Value::Array(items), Some(value)) => items[key.parse::<usize>().unwrap()] = value,
        (Value::Object(fields), None) => assert!(fields.remove(key).is_some(), "{path}"),
        (Value::Object(fields), Some(value)) => assert_ne!(fields.insert(key.to_owned(), value.clone()), Some(value)),
        _ => panic!("{path}"),
    }
}

const HEADER: &str = "the header does not hash to it; the endpoint lies, or the chain has a header field";
const TX_ROOT: &str = "do not make up the header's transactionsRoot";
const RECEIPTS_ROOT: &str = "do not make up the header's receiptsRoot";

#[tokio::test]
async fn a_block_with_anything_changed_is_refused() {
    let word = |byte: u8| json!(alloy::primitives::B256::repeat_byte(byte));
    let address = json!(Address::repeat_byte(0x99));
    let cases: Vec<Tamper> = vec![
        ("/parentHash", Some(word(9)), HEADER),
        ("/timestamp", Some(json!("0x1")), HEADER),
        ("/receiptsRoot", Some(word(9)), HEADER),
        ("/extraData", Some(json!("0x")), HEADER),
        ("/baseFeePerGas", Some(json!("0x8")), HEADER),
        ("/requestsHash", None, HEADER),
        ("/hash", Some(word(9)), HEADER),
        ("/transactions/1/value", Some(json!("0xffff")), "transaction 1 does not hash to its stated hash"),
        ("/transactions/2/to", Some(address.clone()), "transaction 2 does not hash to its stated hash"),
        ("/transactions/3/nonce", Some(json!("0x9")), "transaction 3 does not hash to its stated hash"),
        ("/transactions/4/type", Some(json!("0x2")), "transaction 4 does not hash to its stated hash"),
        ("/transactions/4/hash", Some(word(9)), "transaction 4 does not hash to its stated hash"),
        ("/transactions/199", None, TX_ROOT),
        ("/transactions/0", None, TX_ROOT),
        ("/transactions/2/maxFeePerGas", None, "a transaction at index 2: maxFeePerGas is missing"),
        ("/transactions/3/r", None, "a transaction at index 3: r is missing"),
    ];
    let (block, receipts) = all_types();
    for (path, value, expected) in cases {
        let mut block = block.clone();
        change(&mut block, path, value);
        let (kind, text) = refusal(block, receipts.clone()).await;
        assert!(text.contains(expected), "{path}: {text}");
        assert_eq!(kind, SourceErrorKind::Transient, "{path}");
    }
    let cases: Vec<Tamper> = vec![
        ("/7/logs/0/data", Some(word(9)), RECEIPTS_ROOT),
        ("/7/logs/0/address", Some(address), RECEIPTS_ROOT),
        ("/7/logs/0/topics/2", Some(word(9)), RECEIPTS_ROOT),
        ("/0/status", Some(json!("0x1")), RECEIPTS_ROOT),
        ("/1/cumulativeGasUsed", Some(json!("0x1")), RECEIPTS_ROOT),
        ("/1/type", Some(json!("0x2")), RECEIPTS_ROOT),
        ("/1/status", None, "a receipt at index 1: status is missing"),
        ("/199", None, "200 transactions, but 199 receipts"),
        ("/0", None, "200 transactions, but 199 receipts"),
        ("/7/logs/0", None, "the logs of receipt 7 belong to another block, or their indexes have a gap"),
        ("/7/logs/0/logIndex", Some(json!("0x0")), "the logs of receipt 7"),
        ("/7/logs/1/blockHash", Some(word(9)), "the logs of receipt 7"),
        ("/8/transactionHash", Some(word(9)), "receipt 8 belongs to another transaction, place or block"),
        ("/8/transactionIndex", Some(json!("0x9")), "receipt 8 belongs to another"),
        ("/8/blockHash", Some(word(9)), "receipt 8 belongs to another"),
    ];
    for (path, value, expected) in cases {
        let mut receipts = receipts.clone();
        change(&mut receipts, path, value);
        let (kind, text) = refusal(block.clone(), receipts).await;
        assert!(text.contains(expected), "{path}: {text}");
        assert_eq!(kind, SourceErrorKind::Transient, "{path}");
    }
}

#[tokio::test]
async fn a_recorded_block_with_a_forged_amount_is_refused() {
    let Ledger { blocks, .. } = Ledger::recorded(16_899_757);
    let (_, (block, receipts)) = blocks.into_iter().next().unwrap();
    let with_log = receipts.as_array().unwrap().iter().position(|receipt| receipt["logs"][0]["data"] != "0x").unwrap();
    let mut forged = receipts;
    change(&mut forged, &format!("/{with_log}/logs/0/data"), Some(json!(alloy::primitives::B256::repeat_byte(9))));
    let node = Node::start(move |method, params| match method {
        "eth_getBlockReceipts" => Ok(forged.clone()),
        _ => Ledger::of([(block.clone(), Value::Null)]).answer(method, params),
    })
    .await;
    let source = node.source(mainnet());
    let error = source.blocks(16_899_757..=16_899_757).await.unwrap_err().to_string();
    assert!(error.contains(RECEIPTS_ROOT), "{error}");
    assert!(error.contains("ETHEREUM_MAINNET") && error.contains(node.id()), "{error}");
    assert!(error.contains("block 16899757 (0x"), "{error}");
}

#[tokio::test]
async fn swapped_receipts_and_a_self_consistent_forgery_are_refused() {
    let (block, receipts) = all_types();
    let mut swapped = receipts.clone();
    swapped.as_array_mut().unwrap().swap(3, 4);
    assert!(refusal(block.clone(), swapped).await.1.contains("receipt 3 belongs to another"));
    // A node that forges a header over another block's content is convicted by the roots.
    let root = alloy::primitives::B256::repeat_byte(9);
    let forged = mint::with_header(block, |header| header.transactions_root = root);
    assert!(refusal(forged, receipts).await.1.contains(TX_ROOT));
}

#[tokio::test]
async fn a_type_of_the_future_asks_for_an_upgrade() {
    let (block, receipts) = all_types();
    let mut deposit = block.clone();
    change(&mut deposit, "/transactions/0/type", Some(json!("0x7e")));
    let mut bare = deposit.clone();
    for field in ["nonce", "gas", "input", "r"] {
        change(&mut bare, &format!("/transactions/0/{field}"), None);
    }
    for block in [deposit, bare] {
        let (kind, text) = refusal(block, receipts.clone()).await;
        assert_eq!(kind, SourceErrorKind::Permanent);
        assert!(
            text.contains("holds a transaction of type 0x7e, which this version of landfall cannot prove"),
            "{text}"
        );
        assert!(text.contains("block 5 (0x"), "{text}");
    }
    let mut receipts = receipts;
    change(&mut receipts, "/0/type", Some(json!("0x7f")));
    let (kind, text) = refusal(block, receipts).await;
    assert_eq!(kind, SourceErrorKind::Permanent);
    assert!(text.contains("holds a receipt of type 0x7f"), "{text}");
}

#[tokio::test]
async fn nonsense_is_an_error_and_no_panic() {
    let (block, receipts) = all_types();
    let nonsense = [
        json!(1),
        json!("x"),
        json!([]),
        json!({}),
        json!([null]),
        json!("0x"),
        json!("0xzz"),
        json!("0x+1"),
        json!("\u{e9}"),
        json!(true),
        json!(format!("0x{}", "f".repeat(65))),
    ];
    for value in nonsense {
        for path in
            ["/number", "/hash", "/logsBloom", "/transactions/1/value", "/transactions/1/input", "/transactions"]
        {
            let mut block = block.clone();
            change(&mut block, path, Some(value.clone()));
            let node = Node::start(move |method, params| match method {
                "eth_chainId" => Ledger { chain_id: 1, ..Ledger::default() }.answer(method, params),
                _ => Ok(block.clone()),
            })
            .await;
            let error = node.source(mainnet()).blocks(5..=5).await.unwrap_err();
            assert_eq!(error.kind, SourceErrorKind::Transient, "{path} {value}: {error}");
        }
        for path in ["/7/logs", "/7/logs/0/data", "/7/logs/0/topics", "/7/status", "/7/logsBloom", "/7/type"] {
            let mut receipts = receipts.clone();
            change(&mut receipts, path, Some(value.clone()));
            refusal(block.clone(), receipts).await;
        }
    }
}
