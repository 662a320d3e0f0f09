//! What an endpoint has not is asked of another one, and the endpoint is as good as before for all else.
//!
//! Two such things are known: the encoding of Polygon's state-syncs, for which some providers serve no method, and the
//! state roots in the receipts of before Byzantium, which reth and Erigon do not keep.

use landfall_chain::{Block, BlockSource, Chain, EndpointState, Network, Proof, Read, SourceError, SourceErrorKind};
use landfall_evm::{EvmSource, network};
use serde_json::{Value, json};

use crate::forge;
use crate::node::{Answer, Ledger, Live, chain_id, led_by_first, until};
use crate::polygon::{raw, state_sync};

const RAW: [&str; 3] =
    ["eth_getRawTransactionByBlockHashAndIndex", "eth_getRawTransactionByHash", "debug_getRawTransaction"];
const OLD: u64 = 468_179;

type Lie = fn(&str, &Value) -> Option<Answer>;

/// A source with these nodes, which asks the first one first, and the nodes.
async fn nodes(network: Network, ledger: &Ledger, lies: &[Lie]) -> (EvmSource, Vec<Live>) {
    let mut nodes = Vec::new();
    for lie in lies {
        let node = Live::start(ledger.clone()).await;
        node.lie(*lie);
        nodes.push(node);
    }
    let source = led_by_first(network, &nodes.iter().collect::<Vec<_>>()).await;
    nodes.iter().for_each(|node| drop(node.take_calls()));
    (source, nodes)
}

async fn read(source: &EvmSource, number: u64) -> Result<Block, SourceError> {
    source.blocks(number..=number, Read::FULL).await.map(|mut blocks| blocks.remove(0))
}

/// How the first endpoint stands after another poll.
async fn first(source: &EvmSource) -> (EndpointState, String) {
    source.tip().await.unwrap();
    let status = source.endpoints().snapshot().remove(0);
    (status.state, status.reason)
}

/// As reth and Erigon tell them: without the root, with a status.
fn without_roots(method: &str, _: &Value) -> Option<Answer> {
    (method == "eth_getBlockReceipts").then(|| {
        let mut receipts = old().blocks[&OLD].1.clone();
        for receipt in receipts.as_array_mut().unwrap() {
            receipt.as_object_mut().unwrap().remove("root");
            receipt["status"] = json!("0x1");
        }
        Ok(receipts)
    })
}

fn another_root(method: &str, _: &Value) -> Option<Answer> {
    (method == "eth_getBlockReceipts").then(|| {
        let mut receipts = old().blocks[&OLD].1.clone();
        receipts[0]["root"] = json!(format!("0x{}", "17".repeat(32)));
        Ok(receipts)
    })
}

fn honest(_: &str, _: &Value) -> Option<Answer> {
    None
}

fn old() -> Ledger {
    Ledger::recorded(Chain::EthereumMainnet, "eth_mainnet", OLD)
}

#[tokio::test]
async fn a_block_of_before_byzantium_is_left_to_an_endpoint_that_keeps_state_roots() {
    let mainnet = network(Chain::EthereumMainnet).unwrap();
    let (source, nodes) = nodes(mainnet, &old(), &[without_roots, honest]).await;
    assert_eq!(read(&source, OLD).await.unwrap().proof, Proof::Roots);
    assert!(nodes[0].take_calls().iter().any(|(method, _)| method == "eth_getBlockReceipts"), "it was asked first");
    let (state, reason) = first(&source).await;
    assert_eq!(state, EndpointState::Healthy);
    assert!(reason.contains("keeps no state roots in the receipts of before Byzantium"), "{reason}");
}

#[tokio::test]
async fn where_nobody_keeps_state_roots_only_the_old_blocks_wait_and_say_for_what() {
    let mainnet = network(Chain::EthereumMainnet).unwrap();
    let (source, nodes) = nodes(mainnet, &old(), &[without_roots]).await;
    for _ in 0..3 {
        let error = read(&source, OLD).await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Transient);
        let expected = format!("endpoint {} keeps no state roots", nodes[0].node.id());
        assert!(error.to_string().contains(&expected), "{error}");
        assert_eq!(first(&source).await.0, EndpointState::Healthy, "it neither rests nor is quarantined");
    }
    assert_eq!(source.headers(OLD..=OLD).await.unwrap().len(), 1);
}

#[tokio::test]
async fn that_an_endpoint_was_in_quarantine_is_still_reported_when_it_lacks_something_later() {
    let mainnet = network(Chain::EthereumMainnet).unwrap();
    let (source, nodes) = nodes(mainnet, &old(), &[another_root]).await;
    read(&source, OLD).await.unwrap_err();
    nodes[0].lie(without_roots);
    until("it is back", async || source.tip().await.is_ok()).await;
    assert!(read(&source, OLD).await.unwrap_err().to_string().contains("keeps no state roots"));
    let (state, reason) = first(&source).await;
    assert_eq!(state, EndpointState::Healthy);
    assert!(reason.contains("back from quarantine") && reason.contains("receiptsRoot"), "{reason}");
    assert!(reason.contains("keeps no state roots in the receipts of before Byzantium"), "{reason}");
}

#[tokio::test]
async fn a_false_state_root_is_a_lie_all_the_same() {
    let mainnet = network(Chain::EthereumMainnet).unwrap();
    let (source, _nodes) = nodes(mainnet, &old(), &[another_root]).await;
    let error = read(&source, OLD).await.unwrap_err();
    assert!(error.to_string().contains("receiptsRoot"), "{error}");
    assert_eq!(source.endpoints().snapshot()[0].state, EndpointState::Quarantined);
}

fn with_state_sync() -> Ledger {
    Ledger { chain_id: chain_id(Chain::PolygonMainnet), ..Ledger::of([forge::block(&[state_sync()], &[])]) }
}

fn encodes(method: &str, _: &Value) -> Option<Answer> {
    (method == RAW[1]).then(|| Ok(raw(&state_sync())))
}

/// No say of the method: asked too much.
fn busy(method: &str, _: &Value) -> Option<Answer> {
    (method == RAW[1]).then(|| Err((-32_005, "rate limit exceeded".to_owned())))
}

#[tokio::test]
async fn e18_a_synthetic_state_sync_is_left_to_an_endpoint_that_gives_its_encoding() {
    let polygon = network(Chain::PolygonMainnet).unwrap();
    let (source, nodes) = nodes(polygon, &with_state_sync(), &[honest, encodes]).await;
    assert_eq!(read(&source, 16).await.unwrap().transfers.len(), 1);
    let asked: Vec<String> = nodes[0].take_calls().into_iter().map(|(method, _)| method).collect();
    assert!(RAW.iter().all(|method| asked.iter().any(|asked| asked == method)), "{asked:?}");
    // From now on the other one is asked first.
    assert_eq!(read(&source, 16).await.unwrap().transfers.len(), 1);
    assert_eq!(nodes[0].take_calls(), []);
    let (state, reason) = first(&source).await;
    assert_eq!(state, EndpointState::Healthy);
    assert!(RAW.iter().all(|method| reason.contains(method)), "{reason}");
}

#[tokio::test]
async fn where_nobody_gives_the_encoding_of_a_state_sync_the_error_names_endpoint_and_methods() {
    let polygon = network(Chain::PolygonMainnet).unwrap();
    let (source, nodes) = nodes(polygon, &with_state_sync(), &[honest]).await;
    let error = read(&source, 16).await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Transient);
    let said = error.to_string();
    assert!(said.contains(&format!("endpoint {} gives the encoding of no state-sync (0x7f)", nodes[0].node.id())));
    assert!(RAW.iter().all(|method| said.contains(&format!("{method}: the node says"))), "{said}");
    assert_eq!(first(&source).await.0, EndpointState::Healthy);
}

#[tokio::test]
async fn an_endpoint_that_was_asked_too_much_does_not_lack_a_method() {
    let polygon = network(Chain::PolygonMainnet).unwrap();
    let (source, _nodes) = nodes(polygon, &with_state_sync(), &[busy]).await;
    let error = read(&source, 16).await.unwrap_err().to_string();
    assert!(error.contains("failed eth_getRawTransactionByHash") && error.contains("rate limit"), "{error}");
}
