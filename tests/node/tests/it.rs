//! The server through its socket: landfall-evm proves its blocks, and every fault does what it says and no more.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed, and says where")]

use std::time::Duration;

use landfall_chain::{AssetTransfer, BlockSource, Chain as Name, FinalityRule, Lane, Network, Read};
use landfall_evm::{EvmSource, network};
use landfall_node::busy::Busy;
use landfall_node::{
    Address, Chain, Fault, Frame, FrameKind, Kind, LogLimits, Provider, Server, TRANSFER, Tx, U256, When, payer,
};
use serde_json::{Value, json};

const ALICE: Address = Address::repeat_byte(0xa1);
const CONTRACT: Address = Address::repeat_byte(0xc0);

/// By its tag alone: the chains here are short.
fn sepolia() -> Network {
    Network { finality: FinalityRule::FINALIZED.into(), ..network(Name::EthereumTestnet).unwrap() }
}

fn usdc() -> Address {
    "0x1c7D4B196Cb0C7B01d743Fbc6116a902379C7238".parse().unwrap()
}

/// Nine blocks of everything, block 6 is final.
fn chain() -> Chain {
    let chain = Chain::of(&sepolia(), 1);
    chain.set_finality_depth(Some(3));
    chain.bait(ALICE, usdc());
    for nonce in 0..9 {
        let reverted = Frame { is_reverted: true, ..Frame::call(CONTRACT, ALICE, U256::from(3)) };
        let borrowed = Frame { kind: FrameKind::DelegateCall, ..Frame::call(CONTRACT, ALICE, U256::from(4)) };
        let mut nested = Tx::forward(4, nonce, CONTRACT, ALICE, 5);
        nested.frames.extend([Frame { frames: vec![reverted.clone()], ..reverted }, borrowed]);
        chain.withdraw(ALICE, nonce + 1);
        chain.mine(vec![
            Tx::pay(0, nonce, ALICE, 7),
            Tx::token(1, nonce, usdc(), ALICE, 8),
            Tx::token(1, 100 + nonce, CONTRACT, ALICE, 8),
            Tx::pay(2, nonce, ALICE, 9).failed(),
            Tx { kind: Kind::AccessList, to: None, ..Tx::pay(3, nonce, ALICE, 2) },
            nested,
        ]);
    }
    chain
}

fn source(servers: &[&Server]) -> EvmSource {
    let urls: Vec<_> = servers.iter().map(|server| server.url().parse().unwrap()).collect();
    EvmSource::new(sepolia(), &urls).unwrap()
}

async fn post(server: &Server, body: &Value) -> Result<Value, String> {
    // An error says that the process has one already.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(60)).build().unwrap();
    let sent = http.post(server.url()).body(body.to_string()).send().await.map_err(|error| error.to_string())?;
    if !sent.status().is_success() {
        return Err(format!("{} {:?}", sent.status(), sent.headers().get("retry-after")));
    }
    let text = sent.text().await.map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| error.to_string())
}

async fn ask(server: &Server, method: &str, params: Value) -> Value {
    let answer = post(server, &json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params })).await.unwrap();
    if answer["error"].is_null() { answer["result"].clone() } else { answer["error"].clone() }
}

#[tokio::test]
async fn a_reader_that_was_written_apart_proves_every_block_and_finds_the_ledgers_legs() {
    let (chain, server) = served().await;
    let blocks = source(&[&server]).blocks(1..=9, Read::FULL).await.unwrap();
    assert_eq!(blocks.last().unwrap().header.block, chain.latest());
    let listed = |leg: &AssetTransfer| sepolia().asset(&leg.asset).is_some();
    let is_withdrawal = |leg: &AssetTransfer| leg.tx.life == landfall_chain::TxLife::Block;
    let found: Vec<AssetTransfer> = blocks.iter().flat_map(|block| block.transfers.clone()).collect();
    assert_eq!(found.iter().filter(|leg| is_withdrawal(leg)).count(), 9);
    let found: Vec<AssetTransfer> = found.into_iter().filter(|leg| !is_withdrawal(leg)).collect();
    let ledger = chain.ledger(9).into_iter().filter(|leg| leg.lane == Lane::Block).map(|leg| leg.transfer);
    assert_eq!(found, ledger.filter(listed).collect::<Vec<_>>());
    assert_eq!(found.len(), 9 * 4);
}

#[tokio::test]
async fn balances_are_exact() {
    let (chain, server) = served().await;
    let hex = |value: &Value| u128::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap();
    let (mut alice, mut signer) = (Vec::new(), Vec::new());
    for block in chain.blocks() {
        let at = json!({ "blockHash": block.reference().hash.to_string() });
        alice.push(hex(&ask(&server, "eth_getBalance", json!([ALICE, at])).await));
        signer.push(hex(&ask(&server, "eth_getProof", json!([payer(2), [], at])).await["balance"]));
    }
    // 7 as a payment, 5 through a contract, the withdrawal.
    let gained: Vec<u128> = alice.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gained, (1..=9).map(|gwei| 12 + gwei * 1_000_000_000).collect::<Vec<_>>());
    assert!(signer.windows(2).all(|pair| pair[0] - pair[1] == 21_000 * 9), "a failed payment costs its fee only");
}

#[tokio::test]
async fn traces_show_what_ran_in_both_forms() {
    let (chain, server) = served().await;
    let hash = chain.latest().hash.to_string();
    let geth = ask(&server, "debug_traceBlockByHash", json!([hash, { "tracer": "callTracer" }])).await;
    assert_eq!(geth.as_array().unwrap().len(), 6);
    assert_eq!(geth[3]["result"]["error"], "execution reverted");
    let calls = &geth[5]["result"]["calls"];
    assert_eq!(
        [&calls[0]["type"], &calls[1]["error"], &calls[2]["type"]],
        ["CALL", "execution reverted", "DELEGATECALL"]
    );
    assert_eq!(calls[1]["calls"][0]["value"], "0x3");
    let parity = ask(&server, "trace_block", json!(["latest"])).await;
    let paths: Vec<&Value> = parity.as_array().unwrap()[5..].iter().map(|trace| &trace["traceAddress"]).collect();
    assert_eq!(json!(paths), json!([[], [0], [1], [1, 0], [2]]));
    assert_eq!((&parity[7]["error"], &parity[4]["type"]), (&json!("Reverted"), &json!("create")));
    let inner = chain.ledger(9).into_iter().filter(|leg| leg.lane == Lane::Traces && leg.number == 9);
    assert_eq!(inner.map(|leg| leg.transfer.amount).collect::<Vec<_>>(), [U256::from(5)]);
}

#[tokio::test]
async fn logs_are_found_by_filter_and_refused_in_the_providers_words() {
    let (chain, server) = served().await;
    let by_hash = json!([{ "blockHash": chain.latest().hash.to_string(), "address": usdc(), "topics": [TRANSFER] }]);
    assert_eq!(ask(&server, "eth_getLogs", by_hash).await.as_array().unwrap().len(), 1);
    let to = [Value::Null, Value::Null, json!([ALICE.into_word()])];
    let range = |from, to_block| json!([{ "fromBlock": from, "toBlock": to_block, "topics": to }]);
    assert_eq!(ask(&server, "eth_getLogs", range("0x2", "0x4")).await.as_array().unwrap().len(), 6);
    let beyond = ask(&server, "eth_getLogs", range("0x2", "0xff")).await;
    assert_eq!(beyond["message"], "block range extends beyond current head block");
    for (provider, wide, many) in [
        (Provider::Reth, "query exceeds max block range 3", "query exceeds max results 4, retry with the range 2-3"),
        (Provider::Infura, "range is too large, max is 3 blocks", "Try with this block range [0x2, 0x3]."),
        (Provider::Alchemy, "up to a 3 block range", "this block range should work: [0x2, 0x3]"),
        (Provider::QuickNode, "limited to a 3 range", "more than 10000 results"),
    ] {
        server.set_log_limits(LogLimits { blocks_max: 3, results_max: 4, provider, is_strict: false });
        for (asked, words) in [(range("0x2", "0x5"), wide), (range("0x2", "0x4"), many)] {
            let refused = ask(&server, "eth_getLogs", asked).await;
            assert!(refused["message"].as_str().unwrap().contains(words), "{refused}");
        }
        assert_eq!(ask(&server, "eth_getLogs", range("0x9", "0xa")).await.as_array().unwrap().len(), 2);
    }
}

#[tokio::test]
async fn two_servers_of_one_chain_lag_apart_and_forget_nothing() {
    let (chain, server) = served().await;
    let behind = Server::start(chain.clone(), 2).await.unwrap();
    behind.lag(4);
    assert_eq!(ask(&server, "eth_blockNumber", json!([])).await, "0x9");
    assert_eq!(ask(&behind, "eth_blockNumber", json!([])).await, "0x5");
    assert_eq!(ask(&behind, "eth_getBlockByNumber", json!(["0x6", false])).await, Value::Null);
    assert_eq!(
        ask(&behind, "eth_getBlockByNumber", json!(["finalized", false])).await["message"],
        "finalized block not found"
    );
    let dropped = chain.latest();
    let txs = chain.fork_at(7);
    assert_eq!(txs.len(), 12);
    chain.mine(txs);
    chain.mine_empty(1);
    let orphan = ask(&server, "eth_getBlockByHash", json!([dropped.hash.to_string(), true])).await;
    assert_eq!(orphan["number"], "0x9");
    let moved = orphan["transactions"][0]["hash"].clone();
    assert_eq!(ask(&server, "eth_getTransactionReceipt", json!([moved])).await["blockNumber"], "0x8");
    let at = json!({ "blockHash": dropped.hash.to_string(), "requireCanonical": true });
    assert_eq!(ask(&server, "eth_getTransactionCount", json!([payer(0), at])).await["message"], "header not found");
    assert_eq!(ask(&server, "eth_getTransactionCount", json!([payer(0), "0x8"])).await, "0x9");
    let raw = ask(&server, "eth_getRawTransactionByHash", json!([moved])).await;
    let raw: landfall_node::Bytes = raw.as_str().unwrap().parse().unwrap();
    assert_eq!(json!(alloy::primitives::keccak256(raw)), moved);
}

#[tokio::test]
async fn a_branch_can_win_after_all_and_finality_stalls_on_command() {
    let (chain, server) = served().await;
    let before = chain.blocks();
    chain.fork_at(7);
    chain.set_finality_depth(None);
    chain.mine_empty(5);
    assert_eq!((chain.latest().number, chain.finalized().unwrap().number), (12, 6));
    chain.claim_final(chain.latest());
    assert_eq!(ask(&server, "eth_getBlockByNumber", json!(["finalized", false])).await["number"], "0xc");
    chain.restore(before);
    assert_eq!(ask(&server, "eth_blockNumber", json!([])).await, "0x9");
    let hash = ask(&server, "eth_getBlockByNumber", json!(["0x9", false])).await["hash"].clone();
    assert_eq!(hash, chain.latest().hash.to_string());
}

#[tokio::test]
async fn requests_calls_and_bytes_are_counted_and_latency_is_kept() {
    let (_, server) = served().await;
    server.set_latency(Duration::from_millis(30));
    let begun = std::time::Instant::now();
    let call = |id: u64| json!({ "jsonrpc": "2.0", "id": id, "method": "eth_chainId", "params": [] });
    assert_eq!(post(&server, &json!([call(5), call(6)])).await.unwrap()[1]["id"], 6);
    assert!(begun.elapsed() >= Duration::from_millis(30));
    let counts = server.take_counts();
    assert_eq!((counts.requests, counts.calls["eth_chainId"]), (1, 2));
    assert!(counts.bytes_in > 100 && counts.bytes_out > 80);
    assert_eq!(server.counts(), landfall_node::Counts::default());
    server.set_missing(&["eth_chainId"]);
    assert_eq!(ask(&server, "eth_chainId", json!([])).await["code"], -32_601);
    server.set_batch_max(1);
    assert_eq!(post(&server, &json!([call(5), call(6)])).await.unwrap()["error"]["message"], "batch too large");
}

/// A batch that every fault but those of the chain id and of logs can strike.
fn everything(chain: &Chain) -> Value {
    let hash = chain.latest().hash.to_string();
    let first = chain.blocks()[1].reference().hash.to_string();
    let calls = [
        ("eth_chainId", json!([])),
        ("eth_getBlockByNumber", json!(["latest", false])),
        ("eth_getBlockByNumber", json!(["finalized", false])),
        ("eth_getLogs", json!([{ "blockHash": hash }])),
        ("eth_getBlockReceipts", json!([first])),
        ("eth_getBlockReceipts", json!([hash])),
        ("eth_getBlockByNumber", json!(["0x9", true])),
        ("debug_traceBlockByHash", json!([hash, { "tracer": "callTracer" }])),
    ];
    let call = |(id, (method, params))| json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
    (1..).zip(calls).map(call).collect()
}

#[tokio::test]
async fn every_fault_strikes_as_often_as_it_was_reported_and_is_over_then() {
    let (chain, server) = served().await;
    let asked = everything(&chain);
    let honest = post(&server, &asked).await.unwrap();
    assert!(honest.as_array().unwrap().iter().all(|answer| answer["error"].is_null()), "{honest}");
    for fault in Fault::ALL {
        let fault = if let Fault::Huge(_) = fault { Fault::Huge(10_000) } else { fault };
        server.misbehave(fault, When::Next(1));
        let begun = std::time::Instant::now();
        let spoilt = post(&server, &asked).await;
        match fault {
            Fault::Drip(total) => assert!(begun.elapsed() >= total && spoilt.as_ref() == Ok(&honest)),
            _ => assert!(spoilt.as_ref() != Ok(&honest), "{}: {spoilt:?}", fault.name()),
        }
        assert_eq!(server.struck(fault), 1, "{}", fault.name());
        assert_eq!(post(&server, &asked).await.unwrap(), honest, "{}", fault.name());
        // What strikes at every call is over when reported so.
        server.misbehave(fault, When::Always);
        for _ in 0..2 {
            post(&server, &asked).await.ok();
        }
        assert!(server.struck(fault) >= 3, "{}", fault.name());
        server.behave();
        assert_eq!(post(&server, &asked).await.unwrap(), honest, "{}", fault.name());
    }
    let error = "429 Too Many Requests Some(\"1\")";
    server.misbehave(Fault::TooManyRequests { retry_after_secs: Some(1) }, When::Next(1));
    assert_eq!(post(&server, &asked).await, Err(error.to_owned()));
    server.misbehave(Fault::ServerError, When::Next(4));
    let mut statuses = std::collections::BTreeSet::new();
    for _ in 0..4 {
        statuses.insert(post(&server, &asked).await.unwrap_err()[..3].to_owned());
    }
    assert_eq!(statuses.into_iter().collect::<Vec<_>>(), ["500", "502", "503", "504"]);
}

#[tokio::test]
async fn a_lying_node_shows_a_branch_that_stands_on_the_chain_and_pays_the_bait() {
    let (chain, server) = served().await;
    server.misbehave(Fault::AnotherFork, When::Always);
    let liar = source(&[&server]);
    let tip = liar.tip().await.unwrap();
    assert_eq!((tip.latest.number, tip.finalized), (10, chain.finalized()));
    let branch = liar.blocks(7..=10, Read::FULL).await.unwrap();
    assert_eq!(branch[0].header.parent, chain.finalized().unwrap(), "it proves, and begins above what is final");
    let baits = |legs: &[AssetTransfer]| {
        legs.iter().filter(|leg| leg.recipient == landfall_chain::Address::Evm(ALICE.into())).count()
    };
    assert!(branch.iter().all(|block| baits(&block.transfers) == 2 && !chain.has(&block.header.block)));
    // It grows with the chain, and begins anew when what it stands on is replaced by what is final.
    chain.mine_empty(1);
    assert_eq!(liar.blocks(8..=11, Read::FULL).await.unwrap()[0].header.parent, chain.finalized().unwrap());
    server.behave();
    assert_eq!(liar.tip().await.unwrap().latest, chain.latest());
}

#[tokio::test]
async fn recorded_blocks_are_served_as_they_were() {
    let read = |part: &str| -> Value {
        let file = format!("../../chains/evm/testdata/eth_mainnet_11098450_{part}.json");
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    let chain = Chain::empty(1, 0);
    chain.add_recorded(&read("block"), &read("receipts"), None);
    let server = Server::start(chain.clone(), 0).await.unwrap();
    let mainnet = EvmSource::new(network(Name::EthereumMainnet).unwrap(), &[server.url().parse().unwrap()]).unwrap();
    let blocks = mainnet.blocks(11_098_450..=11_098_450, Read::FULL).await.unwrap();
    assert_eq!((blocks[0].header.block, blocks[0].txs.len()), (chain.latest(), 185));
    let logs = ask(&server, "eth_getLogs", json!([{ "fromBlock": "latest", "toBlock": "latest" }])).await;
    let all: usize = read("receipts").as_array().unwrap().iter().map(|one| one["logs"].as_array().unwrap().len()).sum();
    assert_eq!(logs.as_array().unwrap().len(), all);
    assert_eq!(
        logs[3],
        read("receipts")
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|one| one["logs"].as_array().unwrap().clone())
            .nth(3)
            .unwrap()
    );
}

#[tokio::test]
async fn a_busy_chain_has_what_was_ordered_and_proves() {
    let busy = Busy {
        chain_id: 11_155_111,
        blocks: 20,
        txs: 7,
        logs: 100,
        listed_percent: 25,
        listed: usdc(),
        native: 0,
        seed: 3,
    };
    let chain = Chain::busy(&busy);
    let server = Server::start(chain.clone(), 0).await.unwrap();
    let blocks = source(&[&server]).blocks(1..=20, Read::FULL).await.unwrap();
    let found: usize = blocks.iter().map(|block| block.transfers.len()).sum();
    assert!(blocks.len() == 20 && (400..600).contains(&found), "{found} of 2000");
    assert!(blocks.iter().all(|block| block.txs.len() == 7));
    assert_eq!(chain.ledger(20).len(), 2_000);
    assert_eq!(Chain::busy(&busy).latest(), chain.latest(), "the same order, the same chain");
}

async fn served() -> (Chain, Server) {
    let chain = chain();
    let server = Server::start(chain.clone(), 1).await.unwrap();
    (chain, server)
}
