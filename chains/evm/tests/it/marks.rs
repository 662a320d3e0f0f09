//! Which intents a block shows to be used, and what for: by its receipts, and as candidates by its logs.

use std::collections::BTreeSet;

use alloy::primitives::{Address as Plain, B256, Log, U256, address, keccak256};
use landfall_chain::{
    Address, AddressSource, AssetId, Block, BlockSource, Chain, Effect, Found, IntentKey, Lane, Mark, Native, Network,
    Proof, Read, ReadProof, Watched,
};
use landfall_evm::network;
use serde_json::{Value, json};

use crate::mint::{self, Tx, log, transfer};
use crate::node::{self, Answer, Ledger, Node};

const USDC: Plain = address!("A0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48");
const USDT: Plain = address!("dAC17F958D2ee523a2206206994597C13D831ec7");
const EURC: Plain = address!("1aBaEA1f7C830bD89Acc67eC4af516284b1bC33c");
const PAYER: Plain = Plain::repeat_byte(0xaa);
const OTHER: Plain = Plain::repeat_byte(0xab);
const ALICE: Plain = Plain::repeat_byte(0xa1);
const KEY: IntentKey = IntentKey([7; 24]);
const LISTED: Read = Read { proof: ReadProof::Candidate, ..Read::FULL };

fn mainnet() -> Network {
    Network { native: Native::TOP_LEVEL, ..node::mainnet() }
}

/// The same where no token has a route.
fn without_routes() -> Network {
    let mut network = mainnet();
    network.assets.iter_mut().for_each(|asset| asset.route = None);
    network.delegates.clear();
    network
}

fn used_with(token: Plain, payer: Plain, nonce: [u8; 32]) -> Log {
    log(token, &[keccak256("AuthorizationUsed(address,bytes32)"), payer.into_word(), nonce.into()], &[])
}

fn used(token: Plain, payer: Plain, key: IntentKey) -> Log {
    used_with(token, payer, key.evm_nonce())
}

fn cancelled(token: Plain, payer: Plain, key: IntentKey) -> Log {
    let event = keccak256("AuthorizationCanceled(address,bytes32)");
    log(token, &[event, payer.into_word(), B256::from(key.evm_nonce())], &[])
}

fn paid(destination: Plain, amount: u64) -> Effect {
    Effect::Paid { destination: Address::Evm(destination.into()), amount: U256::from(amount) }
}

fn effects(block: &Block) -> Vec<(Address, IntentKey, Effect)> {
    block.marks.iter().map(|mark| (mark.payer, mark.key, mark.effect)).collect()
}

async fn node(ledger: Ledger) -> Node {
    Node::start(move |method, params| ledger.answer(method, params)).await
}

async fn read(network: Network, blocks: Vec<Vec<Tx>>, read: Read) -> Vec<Block> {
    let last = 4 + u64::try_from(blocks.len()).unwrap();
    let node = node(Ledger::of(mint::chain(5, blocks))).await;
    let source = node.source(network);
    source.blocks(5..=last, read).await.unwrap()
}

/// What a block with one transaction that wrote `logs` shows.
async fn marks_of(logs: Vec<Log>) -> Vec<(Address, IntentKey, Effect)> {
    effects(&read(mainnet(), vec![vec![Tx { logs, ..Tx::default() }]], Read::FULL).await[0])
}

#[tokio::test]
async fn a_key_that_is_used_right_before_the_payers_payment_paid_it() {
    let logs = vec![used(USDC, PAYER, KEY), transfer(USDC, PAYER, ALICE, 7)];
    let txs = vec![Tx::default(), Tx { nonce: 1, logs, ..Tx::default() }];
    let block = &read(mainnet(), vec![txs], Read::FULL).await[0];
    let expected = Mark {
        tx: block.transfers[0].tx,
        payer: Address::Evm(PAYER.into()),
        key: KEY,
        asset: AssetId::Token(Address::Evm(USDC.into())),
        effect: paid(ALICE, 7),
    };
    assert_eq!(block.marks, [expected]);
    assert_eq!(block.txs[1], expected.tx.id);
}

#[tokio::test]
async fn a_key_that_no_payment_of_its_payer_stands_behind_paid_nothing() {
    let uses = used(USDC, PAYER, KEY);
    let cases = [
        ("nothing behind it", vec![uses.clone()]),
        ("another payer", vec![uses.clone(), transfer(USDC, OTHER, ALICE, 7)]),
        ("another token", vec![uses.clone(), transfer(EURC, PAYER, ALICE, 7)]),
        ("no amount", vec![uses, log(USDC, &[mint::TRANSFER, PAYER.into_word(), ALICE.into_word()], &[])]),
    ];
    for (what, logs) in cases {
        assert_eq!(marks_of(logs).await, [(Address::Evm(PAYER.into()), KEY, Effect::Nothing)], "{what}");
    }
}

#[tokio::test]
async fn a_payment_of_the_payer_that_stands_apart_proves_neither_that_it_was_paid_nor_that_it_was_not() {
    let uses = used(USDC, PAYER, KEY);
    let cases = [
        ("the payment stands before it", vec![transfer(USDC, PAYER, ALICE, 7), uses.clone()]),
        ("another log between", vec![uses.clone(), transfer(USDT, OTHER, ALICE, 1), transfer(USDC, PAYER, ALICE, 7)]),
    ];
    for (what, logs) in cases {
        assert_eq!(marks_of(logs).await, [], "{what}");
    }
}

#[tokio::test]
async fn each_of_several_keys_in_a_transaction_has_its_own_payment() {
    let second = IntentKey([8; 24]);
    let logs = vec![
        used(USDC, PAYER, KEY),
        transfer(USDC, PAYER, ALICE, 1),
        used(EURC, OTHER, KEY),
        transfer(EURC, OTHER, ALICE, 2),
        cancelled(USDC, PAYER, second),
        used(USDC, PAYER, second),
        used(USDC, OTHER, second),
        transfer(USDC, OTHER, PAYER, 3),
    ];
    let (payer, other) = (Address::Evm(PAYER.into()), Address::Evm(OTHER.into()));
    let expected = [
        (payer, KEY, paid(ALICE, 1)),
        (other, KEY, paid(ALICE, 2)),
        (payer, second, Effect::Cancelled),
        (payer, second, Effect::Nothing),
        (other, second, paid(PAYER, 3)),
    ];
    assert_eq!(marks_of(logs).await, expected);
}

#[tokio::test]
async fn what_is_no_use_of_an_intent_leaves_no_mark() {
    let event = keccak256("AuthorizationUsed(address,bytes32)");
    let (no_address, nonce) = (B256::repeat_byte(0xaa), B256::from(KEY.evm_nonce()));
    let cases = [
        ("a token without a route", vec![used(USDT, PAYER, KEY), transfer(USDT, PAYER, ALICE, 7)]),
        ("a token that is not listed", vec![used(ALICE, PAYER, KEY), transfer(ALICE, PAYER, ALICE, 7)]),
        ("a nonce that no intent has", vec![used_with(USDC, PAYER, [7; 32]), transfer(USDC, PAYER, ALICE, 7)]),
        ("no address", vec![log(USDC, &[event, no_address, nonce], &[])]),
        ("too few topics", vec![log(USDC, &[event, PAYER.into_word()], nonce.as_slice())]),
    ];
    for (what, logs) in cases {
        assert_eq!(marks_of(logs).await, [], "{what}");
    }
    let logs = vec![used(USDC, PAYER, KEY), transfer(USDC, PAYER, ALICE, 7)];
    let blocks = vec![vec![Tx { logs, ..Tx::default() }]];
    assert_eq!(read(without_routes(), blocks, Read::FULL).await[0].marks, []);
}

#[tokio::test]
async fn only_the_lane_of_the_roots_shows_marks() {
    let logs = vec![used(USDC, PAYER, KEY), transfer(USDC, PAYER, ALICE, 7)];
    let ledger = Ledger::of(mint::chain(5, vec![vec![Tx { logs, ..Tx::default() }]]));
    let node = Node::start(move |method, params| match method {
        "debug_traceBlockByHash" | "debug_traceBlockByNumber" => {
            Ok(json!([{ "txHash": ledger.blocks[&5].1[0]["transactionHash"], "result": {
                "type": "CALL", "from": PAYER, "to": Plain::repeat_byte(0xbb), "value": "0x0", "gas": "0x1",
                "gasUsed": "0x1", "input": "0x" } }]))
        }
        _ => ledger.answer(method, params),
    })
    .await;
    let source = node.source(node::mainnet());
    assert_eq!(source.blocks(5..=5, Read::FULL).await.unwrap()[0].marks.len(), 1);
    let traced = source.blocks(5..=5, Read { lane: Lane::Traces, ..Read::FULL }).await.unwrap();
    assert_eq!(traced[0].marks, []);
}

/// Block 5 cancels, 6 pays by an intent of EURC and USDC besides, 7 pays USDC, 8 is empty.
fn listed() -> Ledger {
    let both = vec![used(EURC, PAYER, KEY), transfer(EURC, PAYER, ALICE, 7), transfer(USDC, OTHER, ALICE, 2)];
    let blocks = [vec![cancelled(USDC, PAYER, KEY)], both, vec![transfer(USDC, OTHER, ALICE, 1)]];
    let sent = |logs| vec![Tx { from: OTHER, logs, ..Tx::default() }];
    let mut blocks: Vec<Vec<Tx>> = blocks.into_iter().map(sent).collect();
    blocks.push(Vec::new());
    Ledger::of(mint::chain(5, blocks))
}

#[tokio::test]
async fn blocks_by_their_logs_show_the_same_marks() {
    let node = node(listed()).await;
    let source = node.source(mainnet());
    let listed = source.blocks(5..=8, LISTED).await.unwrap();
    let full = source.blocks(5..=8, Read::FULL).await.unwrap();
    assert!(listed.iter().all(|block| block.proof == Proof::Bloom), "no log is missing, so no receipts are read");
    let marks = |blocks: &[Block]| blocks.iter().map(|block| block.marks.clone()).collect::<Vec<_>>();
    assert_eq!(marks(&listed), marks(&full));
    assert_eq!(marks(&full).iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 0, 0]);
}

#[tokio::test]
async fn a_use_that_the_bloom_promises_and_nobody_shows_is_read_in_the_receipts() {
    let ledger = listed();
    let node = Node::start(move |method, params| -> Answer {
        let mut answer = ledger.answer(method, params)?;
        if method == "eth_getLogs" {
            let event = json!(keccak256("AuthorizationCanceled(address,bytes32)"));
            answer.as_array_mut().unwrap().retain(|log| log["topics"][0] != event);
        }
        Ok(answer)
    })
    .await;
    let blocks = node.source(mainnet()).blocks(5..=6, LISTED).await.unwrap();
    assert_eq!((blocks[0].proof, blocks[1].proof), (Proof::Roots, Proof::Bloom));
    assert_eq!(effects(&blocks[0]), [(Address::Evm(PAYER.into()), KEY, Effect::Cancelled)]);
}

#[tokio::test]
async fn a_search_finds_what_watched_payers_used_and_cancelled() {
    let mut ledger = listed();
    ledger.finalized = Some(8);
    let node = node(ledger).await;
    let source = node.source(mainnet());
    for (who, expected) in [(PAYER, vec![5, 6]), (Plain::repeat_byte(0xc1), vec![])] {
        let watched = BTreeSet::from([Address::Evm(who.into())]);
        let is_watched = |address: &Address| watched.contains(address);
        let found = source.candidates(5..=8, Watched::Asked(&is_watched)).await.unwrap();
        let Found::Linked(found) = found else { panic!("by range") };
        assert_eq!(found.hits.iter().map(|hit| hit.number).collect::<Vec<_>>(), expected, "{who}");
    }
}

#[tokio::test]
async fn where_no_token_has_a_route_no_more_is_asked_for() {
    let asked = |network: Network| async move {
        let ledger = listed();
        let topics = std::sync::Arc::new(std::sync::Mutex::new(Vec::<Value>::new()));
        let seen = topics.clone();
        let node = Node::start(move |method, params| {
            if method == "eth_getLogs" {
                seen.lock().unwrap().push(params[0].clone());
            }
            ledger.answer(method, params)
        })
        .await;
        node.source(network).blocks(7..=7, LISTED).await.unwrap();
        let filter = topics.lock().unwrap()[0].clone();
        let count = |list: &Value| list.as_array().unwrap().len();
        (count(&filter["address"]), count(&filter["topics"][0]))
    };
    assert_eq!(asked(without_routes()).await, (3, 1));
    // The two contracts of the delegate, with a topic each, and of tokens that take intents two topics more.
    assert_eq!(asked(mainnet()).await, (5, 5));
    assert!(network(Chain::EthereumMainnet).unwrap().assets.iter().any(|asset| asset.route.is_some()));
}
