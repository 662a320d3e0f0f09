//! USDC on a real anvil with a block each second, behind a door with the rules of a geth pool.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use landfall::amount::to_decimal;
use landfall::sandbox::anvil::{Anvil, AnvilOptions, TxRequest};
use landfall::sandbox::token;
use landfall_chain::{Address, Chain, Family, U256};
use serde_json::json;

use crate::caller::quantiles;
use crate::sending::bench::{Bench, CALLERS, Order, SPONSORS, float};
use crate::sending::door::Door;
use crate::{LOGGED, Size, network, process, ratio, token as listed_token};

const CHAIN: Chain = Chain::EthereumTestnet;
const CHAIN_ID: u64 = 11_155_111;
/// So many a second are asked for when the time to the first signature counts.
const PACE: u32 = 50;
/// How long the chain is watched while nothing is sent, or nothing changes.
const IDLE: Duration = Duration::from_secs(10);
/// A block is final so late that none of those that are watched is.
const LATE: &str = "\"confirmations\"\nconfirmations = 200";
pub(crate) const FINALIZED: &str = "\"finalized\"";
/// Every payment pays one base unit of a token with 6 decimals.
const DECIMALS: u8 = 6;
/// What each sponsor owns: 1,000 ether, in wei.
const SPONSOR_OWNS: &str = "0x3635c9adc5dea00000";

/// The node, and the door before it.
pub(crate) struct Ethereum {
    pub(crate) anvil: Anvil,
    token: Address,
    door: Door,
}

/// How many transfers of the token anvil takes in a second, from accounts that it signs for.
pub(crate) async fn raw(size: Size) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir()?;
    let (node, token) = chain(folder.path()).await?;
    let (payers, count) = (node.accounts().await?, size.pick(20, 400, 1_000));
    for payer in &payers {
        let data = token::mint(payer, U256::from(1_000_000));
        node.send(&TxRequest { from: *payer, nonce: 0, to: token, value: U256::ZERO, data }).await?;
    }
    node.mine(1).await?;
    let begun = Instant::now();
    let sending = payers.iter().map(async |payer| {
        for nonce in 1..=count {
            let data = token::transfer(&bob()?, U256::ONE);
            node.send(&TxRequest { from: *payer, nonce, to: token, value: U256::ZERO, data }).await?;
        }
        anyhow::Ok(())
    });
    futures_util::future::try_join_all(sending).await?;
    node.mine(1).await?;
    let paid = u64::try_from(payers.len())? * count;
    while node.balance_of(&token, &bob()?).await? < U256::from(paid) {
        node.mine(1).await?;
    }
    Ok(float(paid)? / begun.elapsed().as_secs_f64())
}

pub(crate) async fn on(url: &str, engine: &str, raw: f64, size: Size) -> anyhow::Result<()> {
    let mut bench = bench(url, FINALIZED).await?;
    bench.node.anvil.mine_every(1).await?;
    let idle = bench.watched(size).await?;

    let (count, cpu, begun) = (size.pick(40, 3_000, 20_000), bench.cpu()?, Instant::now());
    let (blocks, of_node) = (bench.blocks().await?, process::cpu_of(bench.node.anvil.pid())?);
    let times = bench.ask_for(count, None).await?;
    let accepted = begun.elapsed();
    bench.until_paid(count, async || bench.paid().await).await?;
    let took = begun.elapsed();
    bench.until_confirmed().await?;
    let calls = bench.node.door.take_counts()?;
    let (blocks, cpu) = (bench.blocks().await? - blocks, bench.cpu()?.saturating_sub(cpu));
    let of_node = process::cpu_of(bench.node.anvil.pid())?.saturating_sub(of_node);
    let a_second = float(count)? / took.as_secs_f64();
    println!("{engine}: {count} transfers, {SPONSORS} sponsors, {CALLERS} callers with an account each");
    println!("  paid a second: {a_second:.0} (goal >= 100), {:.2} of what anvil takes alone", ratio(a_second, raw));
    println!("  accepted a second: {:.0} (no goal)", float(count)? / accepted.as_secs_f64());
    let (p50, p99) = quantiles(times);
    println!("  POST, {CALLERS} at a time: p50 {p50:.1} ms, p99 {p99:.1} ms (no goal)");
    let per = (sum(&calls)? - idle.a_block()? * float(blocks)?) / float(count)?;
    println!("  calls of the node for each transfer: {per:.2} (goal <= 4)");
    for (method, calls) in &calls {
        let of_block = ratio(float(idle.calls.get(method).copied().unwrap_or(0))?, float(idle.blocks)?);
        let each = ratio(float(*calls)?, float(count)?);
        println!("    {method}: {each:.2} for each, {of_block:.2} in each block where nothing is sent");
    }
    let each = |of: Duration| anyhow::Ok(of.as_secs_f64() * 1_000.0 / float(count)?);
    println!("  processor time of service and signer for each transfer: {:.1} ms (no goal)", each(cpu)?);
    println!("  processor time of anvil for each transfer: {:.1} ms (no goal)", each(of_node)?);

    let paced = size.pick(50, 1_000, 6_000);
    let times = bench.ask_for(paced, Some(PACE)).await?;
    bench.until_confirmed().await?;
    let (p50, p99) = quantiles(times);
    println!("  POST at {PACE} a second: p50 {p50:.1} ms, p99 {p99:.1} ms (goal < 30)");
    let (p50, p99) = quantiles(bench.until_submitted(paced).await?);
    println!("  from acceptance to SUBMITTED at {PACE} a second: p50 {p50:.0} ms, p99 {p99:.0} ms (goal < 1000)");
    Ok(())
}

/// What is asked for in each block while transfers wait for blocks to be final, and while none does.
pub(crate) async fn with_open_ones(url: &str, engine: &str, size: Size) -> anyhow::Result<()> {
    let mut bench = bench(url, LATE).await?;
    bench.node.anvil.mine_every(1).await?;
    let (open, none) = (size.pick(20, 1_000, 1_000), bench.watched(size).await?.a_block()?);
    bench.ask_for(open, None).await?;
    bench.until_paid(open, async || bench.paid().await).await?;
    // The last of them is seen in a block.
    tokio::time::sleep(IDLE / 5).await;
    let some = bench.watched(size).await?.a_block()?;
    println!("{engine}: calls in each block with {open} open: {some:.2}, with none {none:.2} (goal: equal)");
    Ok(())
}

/// What was asked for while so many blocks came.
struct Watched {
    calls: BTreeMap<String, u64>,
    blocks: u64,
}

impl Watched {
    fn a_block(&self) -> anyhow::Result<f64> {
        Ok(ratio(sum(&self.calls)?, float(self.blocks)?))
    }
}

fn sum(calls: &BTreeMap<String, u64>) -> anyhow::Result<f64> {
    float(calls.values().sum())
}

/// A service that sends, its chain, and payers with money. `finality` is the rule of the configuration.
pub(crate) async fn bench(url: &str, finality: &str) -> anyhow::Result<Bench<Ethereum>> {
    let folder = tempfile::tempdir()?;
    let (anvil, token) = chain(folder.path()).await?;
    let door = Door::start(anvil.url())?;
    let section = format!("rpc = [\"{}\"]\nstart = 0\nfinality = {finality}\n", door.url);
    let order = Order { chain: CHAIN, symbol: "USDC", amount: to_decimal(U256::ONE, DECIMALS), to: bob()? };
    let node = Ethereum { anvil, token, door };
    let (bench, poor) = Bench::over((folder, node), url, (&section, "ETH"), order).await?;
    let node = &bench.node.anvil;
    for sponsor in poor.sponsors {
        node.rpc("anvil_setBalance", json!([sponsor.to_string(), SPONSOR_OWNS])).await?;
    }
    let funder = node.accounts().await?[0];
    for (nonce, payer) in (0..).zip(&poor.payers) {
        let data = token::mint(payer, U256::from(1_000_000_000_000_u64));
        node.send(&TxRequest { from: funder, nonce, to: token, value: U256::ZERO, data }).await?;
    }
    node.mine(3).await?;
    Ok(bench)
}

impl Bench<Ethereum> {
    async fn paid(&self) -> anyhow::Result<u64> {
        Ok(u64::try_from(self.node.anvil.balance_of(&self.node.token, &bob()?).await?)?)
    }

    async fn blocks(&self) -> anyhow::Result<u64> {
        let number = self.node.anvil.rpc("eth_blockNumber", json!([])).await?;
        let digits = number.as_str().context("a block number")?.trim_start_matches("0x");
        Ok(u64::from_str_radix(digits, 16)?)
    }

    /// What is asked for while nothing is asked of the service.
    async fn watched(&mut self, size: Size) -> anyhow::Result<Watched> {
        let blocks = self.blocks().await?;
        self.node.door.take_counts()?;
        tokio::time::sleep(size.pick(IDLE / 5, IDLE, IDLE)).await;
        let calls = self.node.door.take_counts()?;
        Ok(Watched { calls, blocks: self.blocks().await? - blocks })
    }
}

/// A chain with the listed tokens.
async fn chain(folder: &Path) -> anyhow::Result<(Anvil, Address)> {
    #[expect(clippy::disallowed_methods, reason = "the benchmark's own setting: the node that tests use")]
    let binary = std::env::var("LANDFALL_ANVIL").map_or_else(|_| PathBuf::from("anvil"), PathBuf::from);
    let log = folder.join("anvil.log");
    let node = Anvil::start(&AnvilOptions { binary, chain_id: CHAIN_ID, op_stack: false, log, keep: false }).await?;
    let network = network(LOGGED)?;
    node.place_tokens(&network).await?;
    Ok((node, Address::Evm(listed_token(&network)?.into())))
}

fn bob() -> anyhow::Result<Address> {
    Address::parse(Family::Evm, "0xb0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0").context("an address")
}
