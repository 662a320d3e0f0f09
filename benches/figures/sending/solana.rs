//! USDC on a real cluster of surfpool: each payment makes its guard.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use landfall::amount::to_decimal;
use landfall::sandbox::surfpool::{Surfpool, SurfpoolOptions};
use landfall_chain::{Address, AssetId, Chain, Family, U256};

use crate::caller::quantiles;
use crate::database::Place;
use crate::sending::bench::{Bench, CALLERS, Order, SPONSORS, STANDSTILL_MAX, float};
use crate::sending::door::Door;
use crate::{Size, process, ratio};

const CHAIN: Chain = Chain::SolanaDevnet;
/// So many a second are asked for when calls count: what surfpool carries with ease.
const PACE: u32 = 5;
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

pub(crate) async fn measure(size: Size) -> anyhow::Result<()> {
    #[expect(clippy::disallowed_methods, reason = "the benchmark's own setting: the script that tests use")]
    let Ok(script) = std::env::var("LANDFALL_SURFPOOL") else {
        println!("payments on Solana are not measured: LANDFALL_SURFPOOL names no script");
        return Ok(());
    };
    let script = PathBuf::from(script);
    let raw = raw(&script, size).await?;
    println!("surfpool alone takes {raw:.0} token transfers a second, of which it signs each");
    for place in Place::all() {
        place.with(async |url| on(url, place.engine(), script.clone(), (raw, size)).await).await?;
    }
    Ok(())
}

/// How many transfers of the token surfpool takes in a second, from the account that it signs for.
async fn raw(script: &Path, size: Size) -> anyhow::Result<f64> {
    let folder = tempfile::tempdir()?;
    let (surfpool, mint) = cluster(folder.path(), script.to_owned()).await?;
    let (had, count) = (surfpool.balance_of(&mint, &bob()?).await?, size.pick(20, 500, 5_000));
    let begun = Instant::now();
    let sending = (0..CALLERS).map(async |lane| {
        // Equal ones in one slot would be the same transaction, and he has got 1.
        for nth in (0..count).skip(lane).step_by(CALLERS) {
            surfpool.pay(&bob()?, U256::from(nth + 2), Some(&mint)).await?;
        }
        anyhow::Ok(())
    });
    futures_util::future::try_join_all(sending).await?;
    let paid = U256::from(count * (count + 3) / 2);
    while surfpool.balance_of(&mint, &bob()?).await? < had + paid {
        anyhow::ensure!(begun.elapsed() < STANDSTILL_MAX, "not all is paid");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(float(count)? / begun.elapsed().as_secs_f64())
}

async fn on(url: &str, engine: &str, script: PathBuf, (raw, size): (f64, Size)) -> anyhow::Result<()> {
    let mut bench = bench(url, script).await?;
    let (count, had, begun) = (size.pick(20, 500, 5_000), bench.paid().await?, Instant::now());
    let (cpu, of_node) = (bench.cpu()?, process::cpu_of(bench.node.surfpool.pid())?);
    let times = bench.ask_for(count, None).await?;
    bench.until_paid(had + count, async || bench.paid().await).await?;
    let a_second = float(count)? / begun.elapsed().as_secs_f64();
    bench.until_confirmed().await?;
    let cpu = bench.cpu()?.saturating_sub(cpu);
    let of_node = process::cpu_of(bench.node.surfpool.pid())?.saturating_sub(of_node);
    println!("{engine}: {count} transfers with guards, {SPONSORS} sponsors, {CALLERS} callers with an account each");
    println!("  paid a second: {a_second:.0} (goal >= 50), {:.2} of what surfpool takes alone", ratio(a_second, raw));
    let (p50, p99) = quantiles(times);
    println!("  POST, {CALLERS} at a time: p50 {p50:.1} ms, p99 {p99:.1} ms (no goal)");
    let each = |of: Duration| anyhow::Ok(of.as_secs_f64() * 1_000.0 / float(count)?);
    println!("  processor time of service and signer for each transfer: {:.1} ms (no goal)", each(cpu)?);
    println!("  processor time of surfpool for each transfer: {:.1} ms (no goal)", each(of_node)?);

    let paced = size.pick(20, 200, 1_000);
    bench.node.door.take_counts()?;
    let times = bench.ask_for(paced, Some(PACE)).await?;
    bench.until_confirmed().await?;
    let calls = bench.node.door.take_counts()?;
    // Each slot is polled for and read once, whatever is sent.
    let of_slots = ["getBlock", "getSlot", "getLatestBlockhash", "getBlocks", "getGenesisHash"];
    let of_transfers = calls.iter().filter(|(method, _)| !of_slots.contains(&method.as_str()));
    let per = ratio(float(of_transfers.map(|(_, calls)| calls).sum())?, float(paced)?);
    println!(
        "  calls of the node for each transfer at {PACE} a second: {per:.2} (goal <= 5), without what each slot takes"
    );
    for (method, calls) in &calls {
        println!("    {method}: {:.2} for each", ratio(float(*calls)?, float(paced)?));
    }
    let (p50, p99) = quantiles(times);
    println!("  POST at {PACE} a second: p50 {p50:.1} ms, p99 {p99:.1} ms (no goal)");
    let (p50, p99) = quantiles(bench.until_submitted(paced).await?);
    println!("  from acceptance to SUBMITTED at {PACE} a second: p50 {p50:.0} ms, p99 {p99:.0} ms (no goal)");
    Ok(())
}

/// A cluster with a listed token, of which Bob has one base unit.
async fn cluster(folder: &Path, script: PathBuf) -> anyhow::Result<(Surfpool, Address)> {
    let log = folder.join("surfpool.log");
    let surfpool = Surfpool::start(&SurfpoolOptions { script, log, keep: false }).await?;
    let network = landfall_solana::network(CHAIN).context("it is embedded")?;
    let usdc = network.assets.iter().find(|asset| asset.symbol == "USDC").context("a listed token")?;
    let AssetId::Token(mint) = usdc.id else { anyhow::bail!("USDC is a token") };
    surfpool.make_token(&mint, DECIMALS).await?;
    surfpool.pay(&bob()?, U256::ONE, Some(&mint)).await?;
    Ok((surfpool, mint))
}

async fn bench(url: &str, script: PathBuf) -> anyhow::Result<Bench<Cluster>> {
    let folder = tempfile::tempdir()?;
    let (surfpool, mint) = cluster(folder.path(), script).await?;
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
