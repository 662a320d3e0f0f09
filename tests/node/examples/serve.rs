//! Serves a busy chain until it is killed, so that a benchmark can count its own processor time apart from the node's.
//!
//! `cargo run --release -p landfall-node --example serve -- BLOCKS TXS LOGS LISTED_PERCENT LISTED_CONTRACT SEED`

use landfall_node::busy::Busy;
use landfall_node::{Chain, Server};

const SEPOLIA: u64 = 11_155_111;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [blocks, txs, logs, listed_percent, listed, seed] = words.as_slice() else {
        return Err("BLOCKS TXS LOGS LISTED_PERCENT LISTED_CONTRACT SEED".into());
    };
    let busy = Busy {
        chain_id: SEPOLIA,
        blocks: blocks.parse()?,
        txs: txs.parse()?,
        logs: logs.parse()?,
        listed_percent: listed_percent.parse()?,
        listed: listed.parse()?,
        native: 0,
        seed: seed.parse()?,
    };
    let chain = Chain::busy(&busy);
    chain.set_finality_depth(Some(0));
    let server = Server::start(chain, busy.seed).await?;
    println!("{}", server.url());
    std::future::pending().await
}
