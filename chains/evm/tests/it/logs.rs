//! Blocks by their logs: candidates that leave out no block that may credit, whatever the answers leave out.

use std::collections::BTreeSet;

use alloy::primitives::{Address, B256, address};
use landfall_chain::{
    Address as ChainAddress, AssetId, Block, BlockSource, Chain, Native, NativeSource, Network, Proof, Read, ReadProof,
    SourceErrorKind,
};
use landfall_evm::network;
use serde_json::{Value, json};

use crate::forge::{self, short};
use crate::mint::{self, Tx, log, transfer};
use crate::node::{self, Answer, Ledger, Node, chain_id};

const USDC: Address = address!("A0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48");
const FAKE: Address = Address::repeat_byte(0xfa);
const PAYER: Address = Address::repeat_byte(0xaa);
const ALICE: Address = Address::repeat_byte(0xa1);
const LISTED: Read = Read { proof: ReadProof::Candidate, ..Read::FULL };

/// Without traces: where they are read, so are receipts.
fn mainnet() -> Network {
    Network { native: Native::TOP_LEVEL, ..node::mainnet() }
}

fn paying(logs: Vec<alloy::primitives::Log>) -> Vec<Tx> {
    vec![Tx { logs, ..Tx::default() }]
}

/// Block 5 pays USDC, 6 pays a fake, 7 is empty, 8 pays USDC twice.
fn ledger() -> Ledger {
    let blocks = vec![
        paying(vec![transfer(USDC, PAYER, ALICE, 7)]),
        paying(vec![transfer(FAKE, PAYER, ALICE, 7)]),
        vec![],
        paying(vec![transfer(USDC, PAYER, ALICE, 8), transfer(FAKE, PAYER, ALICE, 1), transfer(USDC, PAYER, ALICE, 9)]),
    ];
    Ledger::of(mint::chain(5, blocks))
}

async fn node(answer: impl Fn(&Ledger, &str, &Value) -> Answer + Send + Sync + 'static) -> Node {
    let ledger = ledger();
    Node::start(move |method, params| answer(&ledger, method, params)).await
}

/// With `eth_getLogs` answering what `change` makes of the truth.
async fn lying(change: impl Fn(Value) -> Value + Send + Sync + 'static) -> Node {
    node(move |ledger, method, params| match method {
        "eth_getLogs" => Ok(change(ledger.answer(method, params)?)),
        _ => ledger.answer(method, params),
    })
    .await
}

fn proofs(blocks: &[Block]) -> Vec<Proof> {
    blocks.iter().map(|block| block.proof).collect()
}

#[tokio::test]
async fn blocks_by_their_logs_cost_two_requests_and_show_who_may_be_paid() {
    let node = node(|ledger, method, params| ledger.answer(method, params)).await;
    let source = node.source(mainnet());
    source.check().await.unwrap();
    node.take_requests();
    let blocks = source.blocks(5..=8, LISTED).await.unwrap();
    assert_eq!(node.take_requests(), 2);
    assert_eq!(proofs(&blocks), [Proof::Bloom; 4]);
    let legs: Vec<_> = blocks.iter().map(|block| block.transfers.iter().map(short).collect::<Vec<_>>()).collect();
    let usdc = |amount| ('T', PAYER, ALICE, amount, 0);
    assert_eq!(legs, [vec![usdc(7)], vec![], vec![], vec![usdc(8), usdc(9)]]);
    let full = source.blocks(5..=8, Read::FULL).await.unwrap();
    for (block, full) in blocks.iter().zip(&full) {
        assert_eq!((block.header, &block.txs, &block.transfers), (full.header, &full.txs, &full.transfers));
    }
    assert_eq!(blocks[0].fees[0].payer, ChainAddress::Evm(PAYER.into()), "who pays a fee may be ours");
}

#[tokio::test]
async fn a_live_block_by_its_logs_costs_two_requests_the_tip_included() {
    let node = node(|ledger, method, params| ledger.answer(method, params)).await;
    let source = node.source(mainnet());
    source.check().await.unwrap();
    node.take_requests();
    let tip = source.tip().await.unwrap().latest;
    let blocks = source.blocks(8..=8, LISTED).await.unwrap();
    assert_eq!(node.take_requests(), 2);
    assert_eq!((blocks[0].header.block, blocks[0].transfers.len()), (tip, 2));
}

#[tokio::test]
async fn a_tip_that_another_node_reported_is_read_by_number() {
    let node = node(|ledger, method, params| match method {
        "eth_getBlockByHash" => Ok(Value::Null),
        "eth_getLogs" if params[0]["blockHash"].is_null() => panic!("by range"),
        _ => ledger.answer(method, params),
    })
    .await;
    let source = node.source(mainnet());
    source.tip().await.unwrap();
    assert_eq!(source.blocks(8..=8, LISTED).await.unwrap()[0].transfers.len(), 2);
}

#[tokio::test]
async fn where_no_bloom_holds_a_listed_contract_no_logs_are_asked_for() {
    let node = node(|ledger, method, params| match method {
        "eth_getLogs" => panic!("it was asked for logs"),
        _ => ledger.answer(method, params),
    })
    .await;
    let source = node.source(mainnet());
    source.check().await.unwrap();
    node.take_requests();
    assert_eq!(source.blocks(6..=7, LISTED).await.unwrap().len(), 2);
    assert_eq!(node.take_requests(), 1);
}

#[tokio::test]
async fn logs_that_the_bloom_promises_and_nobody_shows_are_read_as_receipts() {
    let node = lying(|_| json!([])).await;
    let source = node.source(mainnet());
    source.check().await.unwrap();
    let blocks = source.blocks(5..=8, LISTED).await.unwrap();
    assert_eq!(proofs(&blocks), [Proof::Roots, Proof::Bloom, Proof::Bloom, Proof::Roots]);
    assert_eq!(blocks.iter().map(|block| block.transfers.len()).collect::<Vec<_>>(), [1, 0, 0, 2]);
    source.tip().await.unwrap();
    assert_eq!(source.blocks(8..=8, LISTED).await.unwrap()[0].proof, Proof::Roots, "at the head too");
}

#[tokio::test]
async fn removed_logs_are_no_logs() {
    let node = lying(|mut logs| {
        logs.as_array_mut().unwrap().iter_mut().for_each(|log| log["removed"] = json!(true));
        logs
    })
    .await;
    let blocks = node.source(mainnet()).blocks(5..=5, LISTED).await.unwrap();
    assert_eq!((blocks[0].proof, blocks[0].transfers.len()), (Proof::Roots, 1));
}

#[tokio::test]
async fn a_log_that_the_bloom_excludes_is_a_lie() {
    let invented = |ledger: &Ledger| {
        let (block, receipts) = &ledger.blocks[&6];
        let mut log = receipts[0]["logs"][0].clone();
        log["address"] = json!(USDC);
        log["blockNumber"] = block["number"].clone();
        log["transactionHash"] = receipts[0]["transactionHash"].clone();
        log["transactionIndex"] = json!("0x0");
        json!([log])
    };
    let eurc: ChainAddress = ChainAddress::Evm([0xee; 20]);
    let mut network = mainnet();
    // A second listed contract, which is in the block: only so its logs are asked for at all.
    network.assets.push(landfall_chain::Asset {
        id: AssetId::Token(ChainAddress::Evm(FAKE.into())),
        symbol: "F".to_owned(),
        decimals: 1,
        from_block: 0,
        route: None,
    });
    network.assets.push(landfall_chain::Asset {
        id: AssetId::Token(eurc),
        symbol: "E".to_owned(),
        decimals: 1,
        from_block: 0,
        route: None,
    });
    let node = node(move |ledger, method, params| match method {
        "eth_getLogs" => {
            let mut logs = ledger.answer(method, params)?;
            let mut lie = invented(ledger);
            lie[0]["logIndex"] = json!("0x1");
            logs.as_array_mut().unwrap().push(lie[0].clone());
            Ok(logs)
        }
        _ => ledger.answer(method, params),
    })
    .await;
    let error = node.source(network).blocks(6..=6, LISTED).await.unwrap_err();
    assert!(error.to_string().contains("the header's logsBloom excludes a log that was shown"), "{error}");
    assert_eq!(error.kind, SourceErrorKind::Transient);
}

#[tokio::test]
async fn logs_of_another_block_or_transaction_are_refused() {
    let changes: [fn(&mut Value); 5] = [
        |log| log["blockHash"] = json!(B256::repeat_byte(7)),
        |log| log["blockNumber"] = json!("0x1"),
        |log| log["transactionHash"] = json!(B256::repeat_byte(7)),
        |log| log["address"] = json!(FAKE),
        |log| log["topics"][0] = json!(B256::repeat_byte(7)),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let node = lying(move |mut logs| {
            change(&mut logs[0]);
            logs
        })
        .await;
        let error = node.source(mainnet()).blocks(8..=8, LISTED).await.expect_err("a wrong log was accepted");
        assert!(error.to_string().contains("unusable answer to eth_getLogs"), "{index}: {error}");
    }
    let node = lying(|_| Value::Null).await;
    assert!(node.source(mainnet()).blocks(8..=8, LISTED).await.is_err(), "null is no answer");
}

#[tokio::test]
async fn the_numbers_of_logs_and_transactions_refuse_nobody_who_lists_logs() {
    let truth = node(|ledger, method, params| ledger.answer(method, params)).await;
    let truth = truth.source(mainnet()).blocks(8..=8, LISTED).await.unwrap();
    for text in node::ANYTHING {
        let ledger = ledger();
        let node = Node::start_marked(text, move |method, params| {
            let mut answer = ledger.answer(method, params)?;
            if method == "eth_getLogs" {
                for log in answer.as_array_mut().unwrap() {
                    (log["logIndex"], log["transactionIndex"]) = (json!(node::MARK), json!(node::MARK));
                }
            }
            Ok(answer)
        })
        .await;
        let blocks = node.source(mainnet()).blocks(8..=8, LISTED).await;
        let blocks = blocks.unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(blocks[0].transfers, truth[0].transfers, "{text}");
    }
    // Whoever may be paid is read in full before anything is recorded: an order, or a log shown twice, costs that read.
    for lie in [|logs: Value| json!([logs[1], logs[0]]), |logs: Value| json!([logs[0], logs[1], logs[1]])] {
        let node = lying(lie).await;
        let source = node.source(mainnet());
        let listed = source.blocks(8..=8, LISTED).await.unwrap().remove(0);
        let paid = |block: &Block| block.transfers.iter().map(|leg| leg.recipient).collect::<BTreeSet<_>>();
        assert_eq!((listed.proof, paid(&listed)), (Proof::Bloom, paid(&truth[0])));
        assert_eq!(source.blocks(8..=8, Read::FULL).await.unwrap()[0].transfers, truth[0].transfers);
    }
}

#[tokio::test]
async fn a_hidden_transaction_is_found_out_and_a_value_is_a_candidate_though_it_may_have_failed() {
    let failed = Tx { value: 3, success: false, to: Some(ALICE), ..Tx::default() };
    let ledger = Ledger::of(mint::chain(5, vec![vec![failed]]));
    let lie = ledger.clone();
    let truth = Node::start(move |method, params| ledger.answer(method, params)).await;
    let source = truth.source(mainnet());
    let full = source.blocks(5..=5, Read::FULL).await.unwrap();
    assert_eq!(full[0].transfers, []);
    // Its bloom is empty although it has a transaction: it is read with receipts at once.
    assert_eq!(source.blocks(5..=5, LISTED).await.unwrap()[0].proof, Proof::Roots);

    let both = vec![
        Tx { value: 3, success: false, to: Some(ALICE), ..Tx::default() },
        Tx { nonce: 1, logs: vec![transfer(FAKE, PAYER, ALICE, 1)], ..Tx::default() },
    ];
    let ledger = Ledger::of(mint::chain(5, vec![both]));
    let hiding = ledger.clone();
    let truth = Node::start(move |method, params| ledger.answer(method, params)).await;
    let blocks = truth.source(mainnet()).blocks(5..=5, LISTED).await.unwrap();
    assert_eq!(blocks[0].transfers.iter().map(short).collect::<Vec<_>>(), [('N', PAYER, ALICE, 3, 0)]);
    let node = Node::start(move |method, params| {
        let mut answer = hiding.answer(method, params)?;
        if method == "eth_getBlockByNumber" {
            // There is no block where it is asked for a final one.
            answer.get_mut("transactions").map(|txs| txs.as_array_mut().unwrap().remove(0));
        }
        Ok(answer)
    })
    .await;
    let error = node.source(mainnet()).blocks(5..=5, LISTED).await.expect_err("a transaction was hidden");
    assert!(error.to_string().contains("do not make up the header's transactionsRoot"), "{error}");
    drop(lie);
}

#[tokio::test]
async fn a_type_of_the_future_asks_for_an_upgrade_whatever_the_bloom_says() {
    // Without a log the bloom says nothing, and receipts are asked for; a fake's log is no reason to ask for any; a listed
    // token's is, and pays somebody.
    let cases = [vec![], vec![transfer(FAKE, PAYER, ALICE, 1)], vec![transfer(USDC, PAYER, ALICE, 1)]];
    for (logs, is_bare) in cases.into_iter().flat_map(|logs| [(logs.clone(), false), (logs, true)]) {
        let (mut block, receipts) = forge::block(&[forge::newer(5, logs.clone())], &[]);
        if is_bare {
            // It may lack what every type has today.
            let fields = block["transactions"][0].as_object_mut().unwrap();
            for name in ["nonce", "gas", "input", "value"] {
                fields.remove(name);
            }
        }
        let ledger = Ledger::of([(block, receipts)]);
        let node = Node::start(move |method, params| ledger.answer(method, params)).await;
        let source = node.source(mainnet());
        // By number, and then at the head by hash.
        for _ in 0..2 {
            let error = source.blocks(16..=16, LISTED).await.expect_err("a block with a type that nobody knows");
            assert!(error.needs_upgrade && error.kind == SourceErrorKind::Permanent, "{logs:?} {is_bare}: {error}");
            let text = error.to_string();
            assert!(
                text.contains("holds a transaction of type 0x05") && text.contains("an upgrade is needed"),
                "{text}"
            );
            assert_eq!(source.tip().await.unwrap().latest.number, 16);
        }
    }
}

/// A block of Polygon with one transaction of type 2 that has this log.
fn polygon(number: u64, logs: Vec<alloy::primitives::Log>) -> Ledger {
    let block = mint::block(number, B256::repeat_byte(1), &paying(logs));
    Ledger { chain_id: chain_id(Chain::PolygonMainnet), ..Ledger::of([block]) }
}

fn polygon_network() -> Network {
    let native = Native { source: NativeSource::LogTransfer, eip7708_from: None };
    Network { native, ..network(Chain::PolygonMainnet).unwrap() }
}

#[tokio::test]
async fn a_sprint_block_of_polygon_is_read_with_receipts() {
    for (number, proof) in [(31, Proof::Bloom), (32, Proof::Roots), (33, Proof::Bloom)] {
        let ledger = polygon(number, vec![transfer(FAKE, PAYER, ALICE, 1)]);
        let node = Node::start(move |method, params| ledger.answer(method, params)).await;
        let blocks = node.source(polygon_network()).blocks(number..=number, LISTED).await.unwrap();
        assert_eq!(proofs(&blocks), [proof], "{number}");
    }
}

#[tokio::test]
async fn native_movements_that_the_chain_logs_are_candidates() {
    let pol = address!("0000000000000000000000000000000000001010");
    let signature = "LogTransfer(address,address,address,uint256,uint256,uint256,uint256,uint256)";
    let topic = alloy::primitives::keccak256(signature);
    let mut data = alloy::primitives::U256::from(5).to_be_bytes::<32>().to_vec();
    data.extend([0; 128]);
    let moved = log(pol, &[topic, pol.into_word(), PAYER.into_word(), ALICE.into_word()], &data);
    let ledger = polygon(33, vec![moved]);
    let node = Node::start(move |method, params| ledger.answer(method, params)).await;
    let blocks = node.source(polygon_network()).blocks(33..=33, LISTED).await.unwrap();
    assert_eq!(blocks[0].transfers.iter().map(short).collect::<Vec<_>>(), [('N', PAYER, ALICE, 5, 0)]);

    let system = address!("fffffffffffffffffffffffffffffffffffffffe");
    let ledger = Ledger::of([mint::block(33, B256::repeat_byte(1), &paying(vec![transfer(system, PAYER, ALICE, 6)]))]);
    for (from, legs) in [(33, vec![('N', PAYER, ALICE, 6, 0)]), (34, vec![])] {
        let ledger = ledger.clone();
        let node = Node::start(move |method, params| ledger.answer(method, params)).await;
        let native = Native { source: NativeSource::TopLevel, eip7708_from: Some(from) };
        let blocks = node.source(Network { native, ..mainnet() }).blocks(33..=33, LISTED).await.unwrap();
        assert_eq!(blocks[0].transfers.iter().map(short).collect::<Vec<_>>(), legs, "{from}");
    }
}

#[tokio::test]
async fn mints_and_withdrawals_are_candidates() {
    let deposit = forge::Deposit { mint: Some(5), ..forge::Deposit::default() };
    let mut entry = deposit.entry();
    entry.logs = vec![transfer(FAKE, PAYER, ALICE, 1)];
    let ledger = Ledger { chain_id: chain_id(Chain::BaseMainnet), ..Ledger::of([forge::block(&[entry], &[])]) };
    let node = Node::start(move |method, params| ledger.answer(method, params)).await;
    let base = Network { native: Native::TOP_LEVEL, ..network(Chain::BaseMainnet).unwrap() };
    let blocks = node.source(base).blocks(16..=16, LISTED).await.unwrap();
    assert_eq!(blocks[0].proof, Proof::Bloom);
    assert_eq!(blocks[0].transfers.iter().map(short).collect::<Vec<_>>(), [('N', Address::ZERO, deposit.from, 5, 0)]);

    let withdrawal = alloy::eips::eip4895::Withdrawal { index: 1, validator_index: 2, address: ALICE, amount: 3 };
    let ledger = Ledger::of([forge::block(&[], &[withdrawal])]);
    let node = Node::start(move |method, params| ledger.answer(method, params)).await;
    let blocks = node.source(mainnet()).blocks(16..=16, LISTED).await.unwrap();
    assert_eq!(
        blocks[0].transfers.iter().map(short).collect::<Vec<_>>(),
        [('N', Address::ZERO, ALICE, 3_000_000_000, 0)]
    );
}
