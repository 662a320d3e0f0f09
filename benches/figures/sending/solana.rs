//! USDC on a real cluster of surfpool: each payment makes its guard.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use landfall::amount::to_decimal;
use landfall::sandbox::surfpool::{Surfpool, SurfpoolOptions};
use landfall_chain::{Address, AssetId, Chain, Family, U256};

use crate::caller::quantiles;
use crate::sending::bench::{Bench, CALLERS, Order, SPONSORS, float};
use crate::sending::door::Door;
use crate::{Size, ratio};

const CHAIN: Chain = Chain::SolanaDevnet;
/// Every payment pays one base unit of a token with 6 decimals.
const DECIMALS: u8 = 6;
/// What each payer owns of the token, in base units.
const OWNS: u64 = 10_000_000_000;
/// What each sponsor owns, in lamports. Who gives it on surfpool has 10 SOL in all.
const SPONSOR_OWNS: u64 = 500_000_000;
/// Who is paid has an account of the token already.
const BOB: &str = "H1WzkjCHNvGD2fKsM5Cee54W3kryZRLsFHYFPxgfH3fN";

/// The cluster, and the door before it.
struct Cluster {
    surfpool: Surfpool,
    mint: Address,
    door: Door,
}

pub(crate) async fn on(url: &str, engine: &str, size: Size) -> anyhow::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "the benchmark's own setting: the script that tests use")]
    let Ok(script) = std::env::var("LANDFALL_SURFPOOL") else {
        println!("Solana is not measured: LANDFALL_SURFPOOL names no script");
        return Ok(());
    };
    let mut bench = bench(url, PathBuf::from(script)).await?;
    bench.node.door.take_counts()?;
    let (count, had, begun) = (size.pick(20, 1_500, 5_000), bench.paid().await?, Instant::now());
    let times = bench.ask_for(count, None).await?;
    bench.until_paid(had + count, async || bench.paid().await).await?;
    let a_second = float(count)? / begun.elapsed().as_secs_f64();
    bench.until_confirmed().await?;
    println!("{engine}, surfpool: {count} transfers with guards, {SPONSORS} sponsors, {CALLERS} callers");
    println!("  paid a second: {a_second:.0} (goal >= 50)");
    let (p50, p99) = quantiles(times);
    println!("  POST, {CALLERS} at a time: p50 {p50:.1} ms, p99 {p99:.1} ms (no goal)");
    let calls = bench.node.door.take_counts()?;
    // Each slot is read once, whatever is sent.
    let of_slots = ["getBlock", "getSlot", "getBlockHeight", "getBlocks", "getVersion", "getHealth", "getEpochInfo"];
    let of_transfers = calls.iter().filter(|(method, _)| !of_slots.contains(&method.as_str()));
    let per = ratio(float(of_transfers.map(|(_, calls)| calls).sum())?, float(count)?);
    println!("  calls of the node for each transfer, without what each slot takes: {per:.2} (goal <= 5)");
    for (method, calls) in &calls {
        println!("    {method}: {:.2} for each", ratio(float(*calls)?, float(count)?));
    }
    Ok(())
}

async fn bench(url: &str, script: PathBuf) -> anyhow::Result<Bench<Cluster>> {
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("surfpool.log");
    let surfpool = Surfpool::start(&SurfpoolOptions { script, log, keep: false }).await?;
    let network = landfall_solana::network(CHAIN).context("it is embedded")?;
    let usdc = network.assets.iter().find(|asset| asset.symbol == "USDC").context("a listed token")?;
    let AssetId::Token(mint) = usdc.id else { anyhow::bail!("USDC is a token") };
    surfpool.make_token(&mint, DECIMALS).await?;
    surfpool.pay(&bob()?, U256::ONE, Some(&mint)).await?;
    let door = Door::start(surfpool.url())?;
    let genesis = surfpool.genesis().await?;
    let section = format!("rpc = [\"{}\"]\ngenesis = \"{genesis}\"\nstart = \"finalized\"\npoll_ms = 100\n", door.url);
    let order = Order { chain: CHAIN, symbol: "USDC", amount: to_decimal(U256::ONE, DECIMALS), to: bob()? };
    let node = Cluster { surfpool, mint, door };
    let (bench, poor) = Bench::over((folder, node), url, (&section, "SOL"), order).await?;
    for sponsor in &poor.sponsors {
        bench.node.surfpool.pay(sponsor, U256::from(SPONSOR_OWNS), None).await?;
    }
    for payer in &poor.payers {
        bench.node.surfpool.pay(payer, U256::from(OWNS), Some(&mint)).await?;
    }
    Ok(bench)
}

impl Bench<Cluster> {
    async fn paid(&self) -> anyhow::Result<u64> {
        let Cluster { surfpool, mint, .. } = &self.node;
        Ok(u64::try_from(surfpool.balance_of(mint, &bob()?).await?)?)
    }
}

fn bob() -> anyhow::Result<Address> {
    Address::parse(Family::Solana, BOB).context("an address")
}
