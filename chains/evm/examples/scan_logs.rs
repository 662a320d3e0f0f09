//! How many Transfer logs one CPU-second of this process scans: `cargo run --release -p landfall-evm --example scan_logs`.
//!
//! A second process serves blocks of 400 logs, of which 100 are of a listed token, with true headers and blooms; this
//! one asks `EvmSource::candidates` for all of them with a million watched addresses. Counted are the logs that were
//! served, against user and system time of this process.
#![expect(clippy::unwrap_used, reason = "a measurement that cannot go on should say where")]

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;

use alloy::consensus::Header;
use alloy::primitives::{Address, B256, U256, keccak256};
use axum::Router;
use landfall_chain::{Address as ChainAddress, AddressSource, AssetId, Chain, Native, NativeSource, Network};
use landfall_evm::{EvmSource, network};
use serde_json::{Value, json};

const BLOCKS: u64 = 6_000;
const LISTED_LOGS: u64 = 100;
const OTHER_LOGS: u64 = 300;
const WATCHED: u64 = 1_000_000;
/// One log in so many pays a watched address.
const HIT_EVERY: u64 = 20_000;
const TRANSFER: &str = "0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    if std::env::args().nth(1).as_deref() == Some("serve") {
        serve().await;
    } else {
        measure().await;
    }
}

async fn measure() {
    let mut server =
        Command::new(std::env::current_exe().unwrap()).arg("serve").stdout(Stdio::piped()).spawn().unwrap();
    let mut address = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let watched: HashSet<ChainAddress> = (0..WATCHED).map(|index| ChainAddress::Evm(account(index).into())).collect();
    let source = EvmSource::new(logged(), &[format!("http://{}", address.trim()).parse().unwrap()]).unwrap();
    source.check().await.unwrap();
    for round in 1..=3 {
        let before = cpu_ticks();
        let found = source.candidates(1..=BLOCKS, &|address| watched.contains(address)).await.unwrap();
        let ticks = cpu_ticks() - before;
        assert_eq!(u64::try_from(found.headers.len()).unwrap(), BLOCKS);
        let logs = BLOCKS * LISTED_LOGS;
        println!(
            "round {round}: {logs} Transfer logs in {BLOCKS} blocks, {} hits, {} ms of CPU: {} logs per CPU-second",
            found.hits.len(),
            ticks * 10,
            logs * 100 / ticks.max(1)
        );
    }
    server.kill().unwrap();
    server.wait().unwrap();
}

/// User and system time of this process, in hundredths of a second (`man 5 proc`).
fn cpu_ticks() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Native movements are logged on it: headers are enough.
fn logged() -> Network {
    let native = Native { source: NativeSource::LogTransfer, eip7708_from: None };
    Network { native, ..network(Chain::EthereumMainnet).unwrap() }
}

fn token() -> Address {
    match logged().assets[1].id {
        AssetId::Token(ChainAddress::Evm(token)) => token.into(),
        other => panic!("{other} is no token"),
    }
}

fn account(index: u64) -> Address {
    Address::from_slice(&keccak256(index.to_be_bytes())[12..])
}

/// A block's header and its listed logs, as text.
struct Served {
    header: String,
    logs: String,
}

async fn serve() {
    let blocks: Arc<Vec<Served>> = Arc::new(blocks());
    let router = Router::new().fallback(move |body: String| {
        let reply = reply(&blocks, &body);
        async move { ([("content-type", "application/json")], reply) }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    axum::serve(listener, router).await.unwrap();
}

fn blocks() -> Vec<Served> {
    let token = token();
    let mut parent = B256::ZERO;
    (1..=BLOCKS)
        .map(|number| {
            let mut bloom = alloy::primitives::Bloom::ZERO;
            let mut accrue = |item: &[u8]| bloom.accrue(alloy::primitives::BloomInput::Raw(item));
            accrue(token.as_slice());
            accrue(&TRANSFER.parse::<B256>().unwrap().0);
            for index in 0..OTHER_LOGS {
                accrue(keccak256((number * OTHER_LOGS + index).to_le_bytes()).as_slice());
            }
            let header = Header {
                number,
                parent_hash: parent,
                transactions_root: parent,
                logs_bloom: bloom,
                ..Header::default()
            };
            parent = header.hash_slow();
            let mut json = serde_json::to_value(&header).unwrap();
            json["hash"] = json!(parent);
            json["transactions"] = json!([]);
            Served { header: json.to_string(), logs: logs(number, parent, token) }
        })
        .collect()
}

fn logs(number: u64, block: B256, token: Address) -> String {
    let mut text = String::new();
    for index in 0..LISTED_LOGS {
        let at = number * LISTED_LOGS + index;
        let to = account(if at.is_multiple_of(HIT_EVERY) { at % WATCHED } else { WATCHED + at });
        let comma = if index == 0 { "" } else { "," };
        let (from, amount) = (account(2 * WATCHED + at).into_word(), U256::from(at).to_be_bytes::<32>());
        write!(
            text,
            "{comma}{{\"address\":\"{token:#x}\",\"topics\":[\"{TRANSFER}\",\"{from}\",\"{}\"],\"data\":\"{}\",\
             \"blockNumber\":\"{number:#x}\",\"transactionHash\":\"{}\",\"transactionIndex\":\"{index:#x}\",\
             \"blockHash\":\"{block}\",\"logIndex\":\"{index:#x}\",\"removed\":false}}",
            to.into_word(),
            B256::from(amount),
            keccak256(at.to_be_bytes()),
        )
        .unwrap();
    }
    text
}

fn reply(blocks: &[Served], body: &str) -> String {
    let calls: Value = serde_json::from_str(body).unwrap();
    let answers: Vec<String> = match &calls {
        Value::Array(calls) => calls.iter().map(|call| answer(blocks, call)).collect(),
        call => return answer(blocks, call),
    };
    format!("[{}]", answers.join(","))
}

fn answer(blocks: &[Served], call: &Value) -> String {
    let number = |text: &Value| usize::from_str_radix(&text.as_str().unwrap()[2..], 16).unwrap();
    let params = &call["params"];
    let result = match call["method"].as_str().unwrap() {
        "eth_chainId" => "\"0x1\"".to_owned(),
        "eth_getBlockByNumber" => blocks[number(&params[0]) - 1].header.clone(),
        "eth_getLogs" => {
            let range = number(&params[0]["fromBlock"]) - 1..number(&params[0]["toBlock"]);
            let logs: Vec<&str> = blocks[range].iter().map(|block| block.logs.as_str()).collect();
            format!("[{}]", logs.join(","))
        }
        method => panic!("{method} is not served"),
    };
    format!("{{\"jsonrpc\":\"2.0\",\"id\":{},\"result\":{result}}}", call["id"])
}
