//! Tip, headers, blocks and fate; above all: what is absent is never taken for an answer.

use alloy::primitives::Address;
use landfall_chain::{
    Address as ChainAddress, BlockHash, BlockRef, BlockSource, Fate, FinalityRule, Network, Read, SourceErrorKind,
    TxId, TxLife, TxRef,
};
use serde_json::{Value, json};

use crate::mint::{self, Tx};
use crate::node::{Answer, Ledger, Node, mainnet};

/// Blocks 5 to 9 with one payment each, 7 final.
fn ledger() -> Ledger {
    let paying = |nonce| vec![Tx { nonce, value: 1, ..Tx::default() }];
    Ledger { finalized: Some(7), ..Ledger::of(mint::chain(5, (0..5).map(paying).collect())) }
}

fn reference(ledger: &Ledger, number: u64) -> BlockRef {
    ledger.reference(number)
}

fn with_finality(finality: FinalityRule) -> Network {
    Network { finality: finality.into(), ..mainnet() }
}

#[tokio::test]
async fn any_number_of_blocks_costs_one_request() {
    let ledger = ledger();
    let node = Node::start(move |method, params| ledger.answer(method, params)).await;
    let source = node.source(mainnet());
    source.check().await.unwrap();
    node.take_requests();
    let blocks = source.blocks(5..=9, Read::FULL).await.unwrap();
    assert_eq!(node.take_requests(), 1);
    assert_eq!(source.tip().await.unwrap().latest.number, 9);
    assert_eq!(source.blocks(9..=9, Read::FULL).await.unwrap().len(), 1);
    assert_eq!(node.take_requests(), 2, "a live block, the tip included");
    assert_eq!(blocks.iter().map(|block| block.header.block.number).collect::<Vec<_>>(), [5, 6, 7, 8, 9]);
    assert!(blocks.windows(2).all(|pair| pair[0].header.block == pair[1].header.parent));
    let headers = source.headers(5..=9).await.unwrap();
    assert_eq!(node.take_requests(), 1);
    assert_eq!(headers, blocks.iter().map(|block| block.header).collect::<Vec<_>>());
}

#[tokio::test]
async fn blocks_without_transactions_cost_one_request() {
    let ledger = Ledger::of(mint::chain(5, vec![vec![], vec![]]));
    let node = Node::start(move |method, params| ledger.answer(method, params)).await;
    let source = node.source(mainnet());
    source.check().await.unwrap();
    node.take_requests();
    assert_eq!(source.blocks(5..=6, Read::FULL).await.unwrap().len(), 2);
    assert_eq!(node.take_requests(), 1);
    #[expect(clippy::reversed_empty_ranges, reason = "what is tested")]
    let nothing = source.blocks(6..=5, Read::FULL).await.unwrap();
    assert_eq!((nothing.len(), node.take_requests()), (0, 0));
}

#[tokio::test]
async fn a_missing_block_ends_the_answer() {
    let mut ledger = ledger();
    ledger.blocks.remove(&7);
    let node = Node::start(move |method, params| ledger.answer(method, params)).await;
    let source = node.source(mainnet());
    assert_eq!(source.blocks(5..=9, Read::FULL).await.unwrap().len(), 2);
    assert_eq!(source.headers(5..=9).await.unwrap().len(), 2);
    assert_eq!(source.blocks(10..=12, Read::FULL).await.unwrap(), []);
}

#[tokio::test]
async fn a_batch_torn_by_a_reorg_ends_at_the_tear() {
    let mut ledger = ledger();
    let other = mint::block(7, alloy::primitives::B256::repeat_byte(9), &[Tx::default()]);
    ledger.blocks.insert(7, other);
    let node = Node::start(move |method, params| ledger.answer(method, params)).await;
    let source = node.source(mainnet());
    assert_eq!(source.blocks(5..=9, Read::FULL).await.unwrap().len(), 2);
    assert_eq!(source.headers(5..=9).await.unwrap().len(), 2);
}

#[tokio::test]
async fn e2_missing_receipts_are_an_error_that_names_all() {
    let ledger = ledger();
    for absent in [Value::Null, json!([])] {
        let (ledger, block) = (ledger.clone(), reference(&ledger, 5));
        let node = Node::start(move |method, params| match method {
            "eth_getBlockReceipts" => Ok(absent.clone()),
            _ => ledger.answer(method, params),
        })
        .await;
        let error = node.source(mainnet()).blocks(5..=9, Read::FULL).await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Transient);
        let expected = format!("no receipts for block {block} with 1 transactions");
        let text = error.to_string();
        assert!(text.contains(&expected) && text.contains(node.id()) && text.contains("ETHEREUM_MAINNET"), "{text}");
    }
}

#[tokio::test]
async fn another_block_than_the_one_asked_for_is_an_error() {
    let ledger = ledger();
    let node = Node::start(move |method, params| match method {
        "eth_getBlockByNumber" => ledger.answer(method, &json!(["0x6", params[1]])),
        _ => ledger.answer(method, params),
    })
    .await;
    let source = node.source(mainnet());
    for error in [source.blocks(5..=5, Read::FULL).await.unwrap_err(), source.headers(5..=5).await.unwrap_err()] {
        assert!(error.to_string().contains("asked for block 5, but got block 6"), "{error}");
        assert_eq!(error.kind, SourceErrorKind::Transient);
    }
}

#[tokio::test]
async fn the_tip_follows_the_networks_finality_rule() {
    let full = ledger();
    let cases = [
        (FinalityRule::FINALIZED, Some(7), 1),
        (FinalityRule::SAFE, Some(7), 1),
        (FinalityRule::confirmations(0), Some(9), 1),
        (FinalityRule::confirmations(4), Some(5), 1),
        // Block 0 exists on the chain but this node has it not; block -1 exists nowhere.
        (FinalityRule::confirmations(9), None, 2),
        (FinalityRule::confirmations(10), None, 1),
    ];
    let ledger = full.clone();
    let node = Node::start(move |method, params| ledger.answer(method, params)).await;
    for (finality, finalized, requests) in cases {
        let source = node.source(with_finality(finality));
        source.check().await.unwrap();
        node.take_requests();
        let tip = source.tip().await.unwrap();
        assert_eq!(tip.latest, reference(&full, 9));
        assert_eq!(tip.finalized, finalized.map(|number| reference(&full, number)), "{finality:?}");
        assert_eq!(node.take_requests(), requests, "{finality:?}");
        assert_eq!(source.endpoints().snapshot()[0].latest, Some(9));
    }
}

#[tokio::test]
async fn a_node_without_a_final_block_has_none_and_any_other_refusal_is_an_error() {
    let cases: [(Answer, bool); 6] = [
        (Ok(Value::Null), true),
        (Err((-32000, "finalized block not found".to_owned())), true),
        (Err((-32000, "safe block not found".to_owned())), true),
        (Err((-39001, "Unknown block".to_owned())), true),
        (Err((-32005, "rate limit exceeded".to_owned())), false),
        (Err((-32601, "method not found".to_owned())), false),
    ];
    for (answer, none) in cases {
        let (ledger, expected) = (ledger(), answer.clone());
        let node = Node::start(
            move |method, params| {
                if params[0] == "finalized" { answer.clone() } else { ledger.answer(method, params) }
            },
        )
        .await;
        let tip = node.source(mainnet()).tip().await;
        match tip {
            Ok(tip) => assert!(none && tip.finalized.is_none(), "{expected:?}"),
            Err(error) => assert!(!none && error.kind == SourceErrorKind::Transient, "{expected:?}: {error}"),
        }
    }
}

#[tokio::test]
async fn a_final_block_above_the_latest_is_not_believed() {
    let full = ledger();
    let above = full.clone();
    let node = Node::start(move |method, params| {
        let tag = if params[0] == "latest" { json!(["0x6", false]) } else { json!(["0x7", false]) };
        if method == "eth_chainId" { above.answer(method, params) } else { above.answer(method, &tag) }
    })
    .await;
    let error = node.source(mainnet()).tip().await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Transient);
    assert!(error.to_string().contains("is called final, but the latest is 6"), "{error}");
}

#[tokio::test]
async fn the_tips_header_is_proved_too() {
    let ledger = ledger();
    let node = Node::start(move |method, params| {
        let mut answer = ledger.answer(method, params)?;
        if let Some(time) = answer.get_mut("timestamp") {
            *time = json!("0x1");
        }
        Ok(answer)
    })
    .await;
    let error = node.source(mainnet()).tip().await.unwrap_err();
    assert!(error.to_string().contains("the header does not hash to it"), "{error}");
}

#[tokio::test]
async fn a_transaction_is_in_a_block_or_superseded_or_unknown() {
    let block = BlockRef { number: 5, hash: BlockHash([7; 32]) };
    let at = BlockRef { number: 9, hash: BlockHash([9; 32]) };
    let signer = ChainAddress::Evm(Address::repeat_byte(0xaa).into());
    let tx = TxRef { id: TxId::Evm([1; 32]), life: TxLife::Nonce { signer, nonce: 3 } };
    let place = json!({ "blockHash": block.hash.to_string(), "blockNumber": "0x5", "status": "0x1" });
    let pruned = || Err((-32000, "missing trie node".to_owned()));
    let cases: [(Answer, Answer, Option<Fate>); 6] = [
        (Ok(place.clone()), Ok(json!("0x4")), Some(Fate::In(block))),
        (Ok(place), pruned(), Some(Fate::In(block))),
        (Ok(Value::Null), Ok(json!("0x4")), Some(Fate::Superseded(at))),
        (Ok(Value::Null), Ok(json!("0x3")), Some(Fate::Unknown)),
        // The state of the final block may be gone from a node; that must not hold up what else is looked for.
        (Ok(Value::Null), pruned(), Some(Fate::Unknown)),
        (Err((-32000, "transaction indexing is in progress".to_owned())), Ok(json!("0x4")), None),
    ];
    for (receipt, count, expected) in cases {
        let node = Node::start(move |method, params| match method {
            "eth_getTransactionReceipt" => receipt.clone(),
            "eth_getTransactionCount" => {
                assert_eq!(params[0], signer.to_string());
                assert_eq!(params[1], json!({ "blockHash": at.hash.to_string(), "requireCanonical": true }));
                count.clone()
            }
            _ => ledger().answer(method, params),
        })
        .await;
        match node.source(mainnet()).fate(&tx, &at).await.unwrap() {
            Fate::Unanswered { endpoints, why } => assert!(expected.is_none() && endpoints == node.id(), "{why}"),
            fate => assert_eq!(Some(fate), expected),
        }
    }
    let solana = ChainAddress::Solana([1; 32]);
    let foreign_life = TxRef { life: TxLife::Nonce { signer: solana, nonce: 3 }, ..tx };
    let foreign = TxRef { id: TxId::Solana([1; 64]), ..tx };
    let node = Node::start(|method, params| ledger().answer(method, params)).await;
    for foreign in [foreign, foreign_life] {
        let error = node.source(mainnet()).fate(&foreign, &at).await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Permanent);
    }
}

#[tokio::test]
async fn what_lives_with_its_block_is_in_a_block_or_unknown_and_never_superseded() {
    let block = BlockRef { number: 5, hash: BlockHash([7; 32]) };
    let at = BlockRef { number: 9, hash: BlockHash([9; 32]) };
    let tx = TxRef { id: TxId::Evm([1; 32]), life: TxLife::Block };
    let place = json!({ "blockHash": block.hash.to_string(), "blockNumber": "0x5" });
    for (receipt, expected) in [(place, Fate::In(block)), (Value::Null, Fate::Unknown)] {
        // It is asked for nobody's nonce: the ledger knows no such method.
        let node = Node::start(move |method, params| match method {
            "eth_getTransactionReceipt" => Ok(receipt.clone()),
            _ => ledger().answer(method, params),
        })
        .await;
        assert_eq!(node.source(mainnet()).fate(&tx, &at).await.unwrap(), expected);
    }
}
