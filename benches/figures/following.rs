//! Solana followed in full, from HTTP to the store: what a block of mainnet's size costs, and what is asked of a node.
//!
//! The node is a process of its own, and so is who follows it: its processor time is Landfall's alone, and all of it. In it are
//! HTTP over the loopback device, gunzip, JSON-RPC, the reading of blocks, their parents, every look-up in the watch list and
//! the transaction that records them. First it catches up by ticks; then it runs as `landfall run` does, while the node makes
//! five blocks a second.

use std::io::{BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use landfall::store::Db;
use landfall::store::cursors::Cursor;
use landfall::time::{Clock, Pulse};
use landfall::watcher::{Settings, Start, Watcher};
use landfall_chain::ReadProof;
use landfall_solana::{EndpointUrl, Options, SolanaSource};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::cluster::{Cluster, FIRST_SLOT, line};
use crate::solana::CHAIN;
use crate::store::{self, Store};
use crate::{Size, process, ratio};

pub(crate) const FOLLOW: &str = "follow-solana";
/// As `landfall run` polls.
const POLL: Duration = Duration::from_millis(900);
const SLOT: Duration = Duration::from_millis(200);
/// How often it is looked whether the newest block is connected.
const LOOK: Duration = Duration::from_millis(100);

/// What catching up and following cost with the owners that are in the store.
pub(crate) async fn measure(size: Size, store: &Store, owners: u64) -> anyhow::Result<()> {
    let (past, live) = (size.pick(4, 100, 200), size.pick(5, 100, 150));
    store.forget_blocks(CHAIN).await?;
    let mut cluster = Cluster::start()?;
    cluster.grow(1)?;
    let mut child = Command::new(std::env::current_exe()?)
        .args([FOLLOW, &store.path(), cluster.url.as_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("a pipe")?;
    let mut output = BufReader::new(child.stdout.take().context("a pipe")?);
    line(&mut output)?;
    writeln!(input, "{}", cluster.grow(past)?)?;
    let caught_up: f64 = line(&mut output)?.parse()?;
    cluster.take_counts()?;
    let begun = Instant::now();
    writeln!(input, "run")?;
    line(&mut output)?;
    writeln!(input, "{}", cluster.live(live, SLOT)?)?;
    let used: f64 = line(&mut output)?.parse()?;
    let (wall, (blocks, light)) = (begun.elapsed().as_secs_f64(), cluster.take_counts()?);
    child.wait()?;
    let [past, live, blocks, light] = [past, live, blocks, light].map(|count| u32::try_from(count).map(f64::from));
    let (past, live, blocks, light) = (past?, live?, blocks?, light?);
    println!(
        "{owners} owners: caught up at {:.0} blocks/s per core, {:.2} ms each (goal >= 100); followed at 5 blocks/s: {:.1}% of \
         a core (goal < 6), {:.2} getBlock a block (goal <= 1), {:.2} light calls/s (goal <= 1.5)",
        ratio(past, caught_up),
        ratio(caught_up * 1_000.0, past),
        ratio(used * 100.0, wall),
        ratio(blocks, live),
        ratio(light, wall)
    );
    Ok(())
}

/// The process that follows: what it is told are the slots to reach, what it tells are seconds of processor time.
pub(crate) async fn follow(words: &[String]) -> anyhow::Result<()> {
    let [path, url] = words else { anyhow::bail!("{FOLLOW} takes two words") };
    let (db, clock) = (store::open(path).await?, Clock::system());
    let mut catching_up = watcher(url.parse()?, &db, Duration::ZERO)?;
    while !catching_up.tick(clock.now()).await?.caught_up {}
    println!("ready");
    let last = told()?.parse()?;
    let begun = process::cpu()?;
    while reached(&db).await? < last {
        catching_up.tick(clock.now()).await?;
    }
    println!("{}", (process::cpu()? - begun).as_secs_f64());
    drop(catching_up);
    told()?;
    let (watcher, stop) = (watcher(url.parse()?, &db, POLL)?, CancellationToken::new());
    let running = watcher.run(clock.clone(), || 7, Pulse::new("solana", clock.now()), stop.clone());
    let until_reached = async {
        // It has the list, and has found its place.
        tokio::time::sleep(POLL).await;
        let begun = process::cpu()?;
        println!("running");
        let last = tokio::task::spawn_blocking(told).await??.parse()?;
        while reached(&db).await? < last {
            tokio::time::sleep(LOOK).await;
        }
        stop.cancel();
        anyhow::Ok(process::cpu()? - begun)
    };
    let ((), used) = tokio::join!(running, until_reached);
    println!("{}", used?.as_secs_f64());
    Ok(())
}

fn told() -> anyhow::Result<String> {
    line(&mut std::io::stdin().lock())
}

async fn reached(db: &Db) -> anyhow::Result<u64> {
    Ok(Cursor::load(&mut db.read().await?, CHAIN).await?.at.map_or(0, |at| at.number))
}

fn watcher(url: Url, db: &Db, poll: Duration) -> anyhow::Result<Watcher<SolanaSource>> {
    let network = landfall_solana::network(CHAIN).context("it is embedded")?;
    let options = Options { poll, ..Options::default() };
    let source = SolanaSource::at(&network, vec![EndpointUrl::from(url)], &options)?;
    let settings = Settings {
        start: Start::Number(FIRST_SLOT + 1),
        proof: ReadProof::Listed,
        poll,
        failed_grace: Duration::from_secs(3_600),
        finality_stall: None,
    };
    let endpoints = source.endpoints();
    Ok(Watcher::new(source, endpoints, db.clone(), network, settings))
}
