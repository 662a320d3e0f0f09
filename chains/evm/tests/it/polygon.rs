//! Polygon's state-syncs, before PIP-74 (recorded) and after it (synthetic: no such block is at hand). [E18]

use std::sync::Arc;

use alloy::primitives::{Address, B256, Bytes, address, keccak256};
use axum::response::IntoResponse;
use landfall_chain::{BlockSource, Chain, Read, ReadProof, SourceErrorKind, TxId, TxLife, U256};
use landfall_evm::network;
use serde_json::{Value, json};

use crate::forge::{self, Entry, short};
use crate::mint::{self, transfer};
use crate::node::{self, Ledger, Node, chain_id};

const USDC: Address = address!("3c499c542cEF5E3811e1192ce70d8cC03d5c3359");
const BOB: Address = Address::repeat_byte(0xb2);

/// As bor and Erigon encode it: 0x7f, then a list of [id, contract, data, hash of the L1 transaction].
pub(crate) fn state_sync() -> Entry {
    let event = |id: u64, data: &'static [u8]| {
        let (contract, data, tx) = (Address::repeat_byte(0x10), Bytes::from_static(data), B256::repeat_byte(0x11));
        forge::typed(0xff, &[&id, &contract, &data, &tx]).split_off(1)
    };
    let events = [event(1, b"alpha"), event(2, &[])].concat();
    let mut leaf = vec![0x7f];
    alloy::rlp::Header { list: true, payload_length: events.len() }.encode(&mut leaf);
    leaf.extend_from_slice(&events);
    // What bor tells of it: no payload.
    let json = json!({
        "type": "0x7f", "from": Address::ZERO, "to": Address::ZERO, "value": "0x0", "gas": "0x0", "input": "0x",
        "nonce": "0x0", "gasPrice": "0x0", "v": "0x0", "r": "0x0", "s": "0x0",
    });
    let logs = vec![transfer(USDC, Address::ZERO, BOB, 5)];
    Entry { leaf, json, success: true, logs, deposit_nonce: None, version: None }
}

pub(crate) fn raw(entry: &Entry) -> Value {
    json!(Bytes::from(entry.leaf.clone()))
}

#[tokio::test]
async fn e18_a_synthetic_state_sync_is_proved_by_its_encoding_and_pays_by_its_logs() {
    let entry = state_sync();
    let (raw, hash) = (raw(&entry), keccak256(&entry.leaf));
    let block = forge::read_with_raw(Chain::PolygonMainnet, forge::block(&[entry], &[]), raw).await.unwrap();
    assert_eq!(block.txs, [TxId::Evm(hash.0)]);
    assert_eq!(block.transfers.iter().map(short).collect::<Vec<_>>(), [('T', Address::ZERO, BOB, 5, 0)]);
    assert_eq!(block.transfers[0].tx.life, TxLife::Block);
}

#[tokio::test]
async fn a_block_whose_node_states_the_validator_as_its_miner_is_proved_on_polygon_and_nowhere_else() {
    // Erigon's answer; the header of Polygon has nobody there.
    let (mut block, receipts) = mint::block(16, B256::repeat_byte(1), &[mint::Tx::default()]);
    assert_eq!(block["miner"], json!(Address::ZERO));
    block["miner"] = json!(Address::repeat_byte(0x83));
    for chain in [Chain::PolygonMainnet, Chain::PolygonAmoy] {
        assert_eq!(forge::read(chain, (block.clone(), receipts.clone())).await.unwrap().header.block.number, 16);
    }
    let headers = async |block: &Value| {
        let known = Ledger::of([(block.clone(), receipts.clone())]);
        let ledger = Ledger { chain_id: chain_id(Chain::PolygonMainnet), ..known };
        let node = Node::start(move |method, params| ledger.answer(method, params)).await;
        node.source(network(Chain::PolygonMainnet).unwrap()).headers(16..=16).await
    };
    assert_eq!(headers(&block).await.unwrap().len(), 1);
    let refused = "the header does not hash to it";
    let error = forge::read(Chain::EthereumMainnet, (block.clone(), receipts.clone())).await.unwrap_err();
    assert!(error.to_string().contains(refused), "{error}");
    // Nothing else of the header is forgiven with it.
    block["timestamp"] = json!("0x1");
    let error = headers(&block).await.unwrap_err();
    assert!(error.to_string().contains(refused), "{error}");
}

#[tokio::test]
async fn a_value_of_a_synthetic_state_sync_is_not_believed() {
    let entry = state_sync();
    let raw = raw(&entry);
    let (mut block, receipts) = forge::block(&[entry], &[]);
    // Neither is in its encoding: a node can write anything there.
    block["transactions"][0]["value"] = json!("0xffffffff");
    block["transactions"][0]["to"] = json!(BOB);
    let block = forge::read_with_raw(Chain::PolygonMainnet, (block, receipts), raw).await.unwrap();
    assert_eq!(block.transfers.len(), 1, "{:?}", block.transfers);
    assert_eq!(short(&block.transfers[0]), ('T', Address::ZERO, BOB, 5, 0));
}

#[tokio::test]
async fn a_synthetic_state_sync_without_its_true_encoding_is_refused() {
    let (block, receipts) = forge::block(&[state_sync()], &[]);
    let mut changed = state_sync().leaf;
    *changed.last_mut().unwrap() ^= 1;
    let hash = "transaction 0 does not hash to its stated hash";
    for (raw, expected) in [
        (Value::Null, "gives the encoding of no state-sync"),
        (json!("0x"), "gives the encoding of no state-sync"),
        (json!("0x02c0"), "the 0x7f in front of its encoding is missing"),
        (json!(Bytes::from(changed)), hash),
        (json!(7), "gave an unusable answer to eth_getRawTransactionByBlockHashAndIndex"),
    ] {
        let read = forge::read_with_raw(Chain::PolygonMainnet, (block.clone(), receipts.clone()), raw).await;
        let error = read.expect_err("a tampered block was accepted");
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.kind, SourceErrorKind::Transient);
    }
}

#[tokio::test]
async fn a_payment_cannot_be_hidden_as_a_state_sync() {
    // The chain holds an ordinary transaction; the node calls it 0x7f, and gives its true encoding.
    let tx = mint::Tx { value: 9, ..mint::Tx::default() };
    let (mut block, receipts) = mint::block(16, B256::repeat_byte(1), &[tx]);
    let envelope: alloy::consensus::TxEnvelope = serde_json::from_value(block["transactions"][0].clone()).unwrap();
    let mut leaf = Vec::new();
    alloy::eips::Encodable2718::encode_2718(&envelope, &mut leaf);
    block["transactions"][0]["type"] = json!("0x7f");
    let read = forge::read_with_raw(Chain::PolygonMainnet, (block, receipts), json!(Bytes::from(leaf))).await;
    let error = read.expect_err("a tampered block was accepted").to_string();
    assert!(error.contains("the 0x7f in front of its encoding is missing"), "{error}");
}

#[tokio::test]
async fn the_state_sync_of_the_newest_block_costs_no_further_request() {
    let entry = state_sync();
    let raw = raw(&entry);
    let ledger = Ledger { chain_id: chain_id(Chain::PolygonMainnet), ..Ledger::of([forge::block(&[entry], &[])]) };
    let hash = ledger.blocks[&16].0["hash"].clone();
    let node = Node::start(move |method, params| match method {
        "eth_getRawTransactionByBlockHashAndIndex" => {
            assert_eq!(*params, json!([hash, "0x0"]));
            Ok(raw.clone())
        }
        _ => ledger.answer(method, params),
    })
    .await;
    let source = node.source(network(Chain::PolygonMainnet).unwrap());
    source.check().await.unwrap();
    node.take_requests();
    for read in [Read::FULL, Read { proof: ReadProof::Candidate, ..Read::FULL }] {
        source.tip().await.unwrap();
        assert_eq!(source.blocks(16..=16, read).await.unwrap().len(), 1);
        assert_eq!(node.take_requests(), 2, "the poll that tells of the block, and one that reads it");
    }
}

#[tokio::test]
async fn a_node_that_refuses_a_batch_for_the_encoding_in_it_is_asked_without() {
    let block = mint::block(16, B256::repeat_byte(1), &[mint::Tx::default()]);
    let ledger = Arc::new(Ledger { chain_id: chain_id(Chain::PolygonMainnet), ..Ledger::of([block]) });
    let node = Node::start_raw(move |_, body| {
        let error = json!({ "code": -32_600, "message": "unsupported methods in batch call" });
        let reply = if body.contains("eth_getRawTransactionByBlockHashAndIndex") {
            json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string()
        } else {
            node::reply(&body, &|method: &str, params: &Value| ledger.answer(method, params))
        };
        async move { ([("content-type", "application/json")], reply).into_response() }
    })
    .await;
    let source = node.source(network(Chain::PolygonMainnet).unwrap());
    source.tip().await.unwrap();
    node.take_requests();
    assert_eq!(source.blocks(16..=16, Read::FULL).await.unwrap().len(), 1);
    assert_eq!(node.take_requests(), 2);
}

#[tokio::test]
async fn a_state_sync_is_foreseen_of_the_block_that_was_reported_only() {
    // Of two branches, each with its own block 16.
    let elsewhere = Entry { logs: vec![transfer(USDC, Address::ZERO, BOB, 6)], ..state_sync() };
    let [reported, read] = [state_sync(), elsewhere]
        .map(|entry| Ledger { chain_id: chain_id(Chain::PolygonMainnet), ..Ledger::of([forge::block(&[entry], &[])]) });
    let (encoding, hash) = (raw(&state_sync()), read.blocks[&16].0["hash"].clone());
    let node = Node::start(move |method, params| match method {
        "eth_getRawTransactionByBlockHashAndIndex" if params[0] == hash => Ok(encoding.clone()),
        "eth_getRawTransactionByBlockHashAndIndex" => Ok(Value::Null),
        _ if params[0] == "latest" => reported.answer(method, params),
        _ => read.answer(method, params),
    })
    .await;
    let source = node.source(network(Chain::PolygonMainnet).unwrap());
    source.tip().await.unwrap();
    let blocks = source.blocks(16..=16, Read::FULL).await.unwrap();
    assert_eq!(blocks[0].transfers[0].amount, U256::from(6));
}

/// Block 10,000,000, with the pseudo transaction as its sixth and last.
fn with_pseudo() -> (Value, Value) {
    let ledger = Ledger::recorded(Chain::PolygonMainnet, "polygon_mainnet", 10_000_000);
    ledger.blocks.into_values().next().unwrap()
}

fn without_last(mut items: Value) -> Value {
    items.as_array_mut().unwrap().pop();
    items
}

#[tokio::test]
async fn e18_a_recorded_pseudo_transaction_is_set_aside_wherever_a_node_shows_it() {
    let (block, receipts) = with_pseudo();
    let mut bare = block.clone();
    bare["transactions"] = without_last(block["transactions"].clone());
    let expected = forge::read(Chain::PolygonMainnet, (block.clone(), receipts.clone())).await.unwrap();
    assert_eq!(expected.txs.len(), 5);
    for (block, receipts) in [
        (block, without_last(receipts.clone())),
        (bare.clone(), receipts.clone()),
        (bare.clone(), without_last(receipts.clone())),
    ] {
        assert_eq!(forge::read(Chain::PolygonMainnet, (block, receipts)).await.unwrap(), expected);
    }
}

#[tokio::test]
async fn what_only_looks_like_a_pseudo_transaction_is_refused() {
    let (block, receipts) = with_pseudo();
    let not_alike = [
        ("hash", json!(B256::repeat_byte(7))),
        ("from", json!(BOB)),
        ("to", json!(BOB)),
        ("to", Value::Null),
        ("value", json!("0x1")),
        ("type", json!("0x2")),
    ];
    for (field, value) in not_alike {
        let mut block = block.clone();
        block["transactions"][5][field] = value;
        let read = forge::read(Chain::PolygonMainnet, (block, receipts.clone())).await;
        assert!(read.is_err(), "{field}");
    }
    // Not the last; on another chain.
    let mut swapped = block.clone();
    swapped["transactions"].as_array_mut().unwrap().swap(4, 5);
    assert!(forge::read(Chain::PolygonMainnet, (swapped, receipts.clone())).await.is_err());
    assert!(forge::read(Chain::EthereumMainnet, (block, receipts)).await.is_err());
}

#[tokio::test]
async fn a_synthetic_block_with_nothing_but_a_pseudo_transaction_is_empty() {
    let (mut block, _) = forge::block(&[], &[]);
    let hash: B256 = block["hash"].as_str().unwrap().parse().unwrap();
    let pseudo = keccak256([b"matic-bor-receipt-".as_slice(), &16_u64.to_be_bytes(), hash.as_slice()].concat());
    let (recorded, receipts) = with_pseudo();
    let (mut tx, mut receipt) = (recorded["transactions"][5].clone(), receipts[5].clone());
    tx["hash"] = json!(pseudo);
    receipt["transactionHash"] = json!(pseudo);
    block["transactions"] = json!([tx]);
    let read = forge::read(Chain::PolygonMainnet, (block, json!([receipt]))).await.unwrap();
    assert_eq!((read.txs.len(), read.transfers.len()), (0, 0));
}

/// A node that gives the encoding in answer to `known` only, and says no to the other ways to ask.
async fn read_by(
    known: &'static str,
    answer: Value,
) -> Result<(landfall_chain::Block, usize), landfall_chain::SourceError> {
    let entry = state_sync();
    let (hash, raw) = (json!(keccak256(&entry.leaf)), raw(&entry));
    let ledger = Ledger { chain_id: chain_id(Chain::PolygonMainnet), ..Ledger::of([forge::block(&[entry], &[])]) };
    let node = Node::start(move |method, params| match method {
        method if method == known => {
            assert!(params[0] == hash || params[1] == "0x0", "{params}");
            Ok(raw.clone())
        }
        // What nodes say to a place that they do not know, or that have no such method.
        "eth_getRawTransactionByBlockHashAndIndex" if answer != "unknown method" => Ok(answer.clone()),
        _ => ledger.answer(method, params),
    })
    .await;
    let source = node.source(network(Chain::PolygonMainnet).unwrap());
    source.check().await.unwrap();
    node.take_requests();
    let block = source.blocks(16..=16, Read::FULL).await?.remove(0);
    Ok((block, node.take_requests()))
}

#[tokio::test]
async fn the_encoding_of_a_synthetic_state_sync_is_asked_for_in_other_ways_where_the_first_is_not_there() {
    let ways = [
        ("eth_getRawTransactionByBlockHashAndIndex", 1),
        ("eth_getRawTransactionByHash", 3),
        ("debug_getRawTransaction", 4),
    ];
    for (method, requests) in ways {
        for answer in [Value::Null, json!("0x"), json!("unknown method")] {
            let (block, asked) = read_by(method, answer).await.unwrap();
            assert_eq!(block.transfers.iter().map(short).collect::<Vec<_>>(), [('T', Address::ZERO, BOB, 5, 0)]);
            assert_eq!(asked, requests, "{method}");
        }
    }
    let error = read_by("none of them", json!("unknown method")).await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Transient);
    assert!(error.to_string().contains("gives the encoding of no state-sync"), "{error}");
}

#[tokio::test]
async fn e18_a_synthetic_state_sync_pays_in_pol_by_its_transfer_logs() {
    // [E18] POL over the bridge: the contract at 0x1010 pays it out.
    let pol = address!("0000000000000000000000000000000000001010");
    let topic = keccak256("LogTransfer(address,address,address,uint256,uint256,uint256,uint256,uint256)");
    let words = [7_u64, 100, 0, 93, 7].map(|word| alloy::primitives::U256::from(word).to_be_bytes::<32>()).concat();
    let paid = mint::log(pol, &[topic, pol.into_word(), pol.into_word(), BOB.into_word()], &words);
    let entry = Entry { logs: vec![paid], ..state_sync() };
    let raw = raw(&entry);
    let block = forge::read_with_raw(Chain::PolygonMainnet, forge::block(&[entry], &[]), raw).await.unwrap();
    assert_eq!(block.transfers.iter().map(short).collect::<Vec<_>>(), [('N', pol, BOB, 7, 0)]);
    assert_eq!((block.transfers[0].tx.life, block.fees.len()), (TxLife::Block, 0));
}
