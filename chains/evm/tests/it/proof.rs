//! Made blocks prove; a block with any one thing changed does not, and the error says which check saw it.

use alloy::consensus::TxType;
use alloy::primitives::{Address, Bytes};
use alloy::rlp::Encodable;
use landfall_chain::{BlockSource, Chain, Read, SourceErrorKind, TxId};
use serde_json::{Value, json};

use crate::forge::{self, Entry};
use crate::mint::{self, Tx};
use crate::node::{self, Ledger, Node, mainnet};

/// One block with a transaction of every type and several shapes of each field.
fn all_types() -> (Value, Value) {
    let kinds = [TxType::Legacy, TxType::Eip2930, TxType::Eip1559, TxType::Eip4844, TxType::Eip7702];
    let to = Address::repeat_byte(7);
    let txs: Vec<Tx> = (0..200_u64)
        .zip(kinds.into_iter().cycle())
        .map(|(nonce, kind)| Tx {
            from: mint::signer(1),
            kind,
            nonce,
            value: nonce * 1_000,
            to: (nonce % 7 != 0 || nonce % 5 > 2).then_some(to),
            input: Bytes::from(vec![u8::try_from(nonce).unwrap(); usize::try_from(nonce % 60).unwrap()]),
            success: nonce % 3 != 0,
            logs: (0..nonce % 4).map(|amount| mint::transfer(to, to, Address::ZERO, amount)).collect(),
        })
        .collect();
    mint::block(5, alloy::primitives::B256::repeat_byte(1), &txs)
}

#[tokio::test]
async fn every_type_of_transaction_proves() {
    let ledger = Ledger::of([all_types()]);
    let node = Node::start(move |method, params| ledger.answer(method, params)).await;
    let blocks = node.source(mainnet()).blocks(5..=5, Read::FULL).await.unwrap();
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
    let error = source.blocks(5..=5, Read::FULL).await.expect_err("a tampered block was accepted");
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
async fn lists_that_are_null_and_a_recovery_id_under_its_old_name_are_proved_by_the_hash() {
    // The second entry of made access lists has no keys; some nodes write both ids, some only the old one.
    let (mut block, receipts) = all_types();
    let txs = block["transactions"].as_array_mut().unwrap();
    for tx in txs.iter_mut().filter(|tx| tx["accessList"].is_array()) {
        assert_eq!(tx["accessList"][1]["storageKeys"], json!([]));
        tx["accessList"][1]["storageKeys"] = Value::Null;
    }
    for grant in txs.iter_mut().filter_map(|tx| tx["authorizationList"].as_array_mut()).flatten() {
        let parity = grant.as_object_mut().unwrap().remove("yParity").unwrap();
        grant["v"] = parity;
    }
    let read = forge::read(Chain::EthereumMainnet, (block.clone(), receipts.clone())).await.unwrap();
    assert_eq!(read.txs.len(), 200);
    // A synthetic transaction with an empty access list, encoded by hand.
    let (one, price, gas, to) = (1_u64, 9_u64, 21_000_u64, Address::repeat_byte(0xbb));
    let (nothing, none) = (Bytes::new(), Vec::<u64>::new());
    let fields: [&dyn Encodable; 11] = [&one, &0_u64, &price, &gas, &to, &0_u64, &nothing, &none, &one, &one, &one];
    let json = json!({
        "type": "0x1", "chainId": "0x1", "nonce": "0x0", "gasPrice": "0x9", "gas": "0x5208", "to": to, "value": "0x0",
        "from": Address::ZERO, "input": "0x", "accessList": null, "v": "0x1", "r": "0x1", "s": "0x1",
    });
    let leaf = forge::typed(1, &fields);
    let entry = Entry { leaf, json, success: true, logs: Vec::new(), deposit_nonce: None, version: None };
    let empty = forge::block(&[entry], &[]);
    assert_eq!(forge::read(Chain::EthereumMainnet, empty).await.unwrap().txs.len(), 1);
    // What is not empty, and not zero, cannot be left out.
    for (path, index) in [
        ("/transactions/1/accessList", 1),
        ("/transactions/3/blobVersionedHashes", 3),
        ("/transactions/4/authorizationList", 4),
        ("/transactions/4/authorizationList/1/v", 4),
    ] {
        let mut block = block.clone();
        change(&mut block, path, Some(Value::Null));
        let (kind, text) = refusal(block, receipts.clone()).await;
        assert!(text.contains(&format!("transaction {index} does not hash to its stated hash")), "{path}: {text}");
        assert_eq!(kind, SourceErrorKind::Transient);
    }
}

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
        ("/7/logs/0", None, RECEIPTS_ROOT),
        ("/8/transactionHash", Some(word(9)), "receipt 8 belongs to another transaction or block"),
        ("/8/blockHash", Some(word(9)), "receipt 8 belongs to another transaction or block"),
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
async fn what_a_receipt_says_of_its_place_stands_in_no_root_and_refuses_nobody() {
    let (block, receipts) = all_types();
    let truth = forge::read(Chain::EthereumMainnet, (block.clone(), receipts.clone())).await.unwrap();
    let fields = ["/8/transactionIndex", "/7/logs/0/logIndex", "/7/logs/1/logIndex", "/7/logs/1/blockHash"];
    for text in node::ANYTHING {
        let mut receipts = receipts.clone();
        fields.iter().for_each(|path| change(&mut receipts, path, Some(json!(node::MARK))));
        let read = forge::read_with_text(Chain::EthereumMainnet, (block.clone(), receipts), text).await;
        let read = read.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!((read.transfers, read.fees), (truth.transfers.clone(), truth.fees.clone()), "{text}");
    }
    let mut receipts = receipts;
    fields.iter().for_each(|path| change(&mut receipts, path, None));
    let read = forge::read(Chain::EthereumMainnet, (block, receipts)).await.unwrap();
    assert_eq!((read.transfers, read.fees), (truth.transfers, truth.fees), "left out");
}

#[tokio::test]
async fn a_node_that_numbers_the_logs_of_each_transaction_from_zero_is_read() {
    let (block, mut receipts) =
        Ledger::recorded(Chain::EthereumMainnet, "eth_mainnet", 16_899_757).blocks.into_values().next().unwrap();
    let truth = forge::read(Chain::EthereumMainnet, (block.clone(), receipts.clone())).await.unwrap();
    for receipt in receipts.as_array_mut().unwrap() {
        receipt["transactionIndex"] = json!("0x0");
        for (index, log) in (0_u64..).zip(receipt["logs"].as_array_mut().unwrap()) {
            log["logIndex"] = json!(format!("{index:#x}"));
        }
    }
    let read = forge::read(Chain::EthereumMainnet, (block, receipts)).await.unwrap();
    assert_eq!(read.transfers, truth.transfers);
}

#[tokio::test]
async fn a_recorded_block_with_a_forged_amount_is_refused() {
    let Ledger { blocks, .. } = Ledger::recorded(Chain::EthereumMainnet, "eth_mainnet", 16_899_757);
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
    let error = source.blocks(16_899_757..=16_899_757, Read::FULL).await.unwrap_err().to_string();
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
            let error = node.source(mainnet()).blocks(5..=5, Read::FULL).await.unwrap_err();
            assert_eq!(error.kind, SourceErrorKind::Transient, "{path} {value}: {error}");
        }
        for path in ["/7/logs", "/7/logs/0/data", "/7/logs/0/topics", "/7/status", "/7/logsBloom", "/7/type"] {
            let mut receipts = receipts.clone();
            change(&mut receipts, path, Some(value.clone()));
            refusal(block.clone(), receipts).await;
        }
    }
}
