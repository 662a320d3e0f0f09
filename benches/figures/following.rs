//! Solana followed in full, from HTTP to the store: what a block of mainnet's size costs, and what is asked of a node.
//!
//! The node is a process of its own, and so is its follower, so the processor time of the follower is Landfall's alone,
//! and all of it. It includes HTTP over the loopback device, gunzip, JSON-RPC, the reading of blocks, their parents,
//! every look-up in the watch list, and the transaction that records them. First it catches up by ticks. Then it reads
//! the same blocks again as `landfall backfill --from --to` does. Then it runs as `landfall run` does, with balances,
//! while the node makes five blocks a second. Nobody in these blocks is ours: the calls for blocks that pay us are
//! counted on a small chain, here too.

use std::io::{BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use landfall::account::{AccountType, NewAccount};
use landfall::registry;
use landfall::store::Db;
use landfall::store::cursors::Cursor;
use landfall::time::{Clock, Pulse};
use landfall::watcher::{Backfill, BalanceWatch, Follower, Job, Scope, Settings, Start};
use landfall_chain::{Address, AssetId, Network, ReadProof};
use landfall_cluster::{Finality, Ledger, Node, Tx};
use landfall_solana::{EndpointUrl, HOLDINGS_PAUSE, Options, POLL, SolanaSource};
use tokio_util::sync::CancellationToken;
use url::Url;

use crate::cluster::{Cluster, FIRST_SLOT, line};
use crate::solana::CHAIN;
use crate::store::{self, Store};
use crate::{Size, process, ratio};

pub(crate) const FOLLOW: &str = "follow-solana";
const SLOT: Duration = Duration::from_millis(200);
/// Of so many blocks one pays us, where that is looked at.
const HIT_EVERY: u64 = 4;
const HIT_BLOCKS: u64 = 200;
/// How often it is looked whether the newest block is connected.
const LOOK: Duration = Duration::from_millis(100);

/// What catching up and following cost with the owners that are in the store.
pub(crate) async fn measure(size: Size, store: &Store, owners: u64) -> anyhow::Result<()> {
    // More than what is not final yet.
    let (past, live) = (size.pick(40, 100, 200), size.pick(15, 100, 150));
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
    let (read_again, filled_in) = two(&line(&mut output)?)?;
    writeln!(input, "run")?;
    // It has its list by then.
    line(&mut output)?;
    cluster.take_counts()?;
    let begun = Instant::now();
    writeln!(input, "{}", cluster.live(live, SLOT)?)?;
    let used: f64 = line(&mut output)?.parse()?;
    let (wall, (blocks, light)) = (begun.elapsed().as_secs_f64(), cluster.take_counts()?);
    child.wait()?;
    let [past, live, blocks, light] = [past, live, blocks, light].map(|count| u32::try_from(count).map(f64::from));
    let (past, live, blocks, light) = (past?, live?, blocks?, light?);
    println!(
        "{owners} owners: backfill of {read_again} blocks by --from --to at {:.0} blocks/s per core, {:.2} ms each (goal >= 100)",
        ratio(read_again, filled_in),
        ratio(filled_in * 1_000.0, read_again)
    );
    println!(
        "{owners} owners: caught up at {:.0} blocks/s per core, {:.2} ms each (goal >= 100); followed at 5 blocks/s: {:.1}% of \
         a core (goal < 6), {:.2} getBlock a block (goal <= 1), {:.2} light calls/s, balances included (goal <= 1.5)",
        ratio(past, caught_up),
        ratio(caught_up * 1_000.0, past),
        ratio(used * 100.0, wall),
        ratio(blocks, live),
        ratio(light, wall)
    );
    // It has a chain and owners of its own.
    if owners == 1 { measure_hits().await } else { Ok(()) }
}

/// The process that follows: what it is reported are the slots to reach, what it reports are seconds of processor time.
pub(crate) async fn follow(words: &[String]) -> anyhow::Result<()> {
    let [path, url] = words else { anyhow::bail!("{FOLLOW} takes two words") };
    let (db, clock) = (store::open(path).await?, Clock::system());
    let mut catching_up = watcher(url.parse()?, &db, Duration::ZERO)?;
    while !catching_up.tick(clock.now()).await?.caught_up {}
    println!("ready");
    let last = reported()?.parse()?;
    let begun = process::cpu()?;
    while reached(&db).await? < last {
        catching_up.tick(clock.now()).await?;
    }
    println!("{}", (process::cpu()? - begun).as_secs_f64());
    drop(catching_up);
    let (blocks, used) = backfill(url.parse()?, &db, &clock).await?;
    println!("{blocks} {used}");
    reported()?;
    let (source, stop) = (source(vec![url.parse()?], POLL)?, CancellationToken::new());
    let balances = balances(Arc::clone(&source), &db)?;
    let mut watcher = watcher_over(source, &db, POLL)?;
    // It has the list, which takes long for many, and has found its place.
    while !watcher.tick(clock.now()).await?.caught_up {}
    let running = watcher.run(clock.clone(), || 7, Pulse::new("solana", clock.now()), stop.clone());
    let balances = balances.run(clock.clone(), || 7, Pulse::new("balances", clock.now()), stop.clone());
    let until_reached = async {
        let begun = process::cpu()?;
        println!("running");
        let last = tokio::task::spawn_blocking(reported).await??.parse()?;
        while reached(&db).await? < last {
            tokio::time::sleep(LOOK).await;
        }
        stop.cancel();
        anyhow::Ok(process::cpu()? - begun)
    };
    let ((), (), used) = tokio::join!(running, balances, until_reached);
    println!("{}", used?.as_secs_f64());
    Ok(())
}

/// Reads all that is final again, as `landfall backfill --from --to` does; how many blocks that were, and the seconds
/// of processor time.
async fn backfill(url: Url, db: &Db, clock: &Clock) -> anyhow::Result<(u64, f64)> {
    let finalized = Cursor::load(&mut db.read().await?, CHAIN).await?.finalized.context("something is final")?.number;
    let (from, proof) = (FIRST_SLOT + 1, ReadProof::Candidate);
    let job = Job { from, to: Some(finalized), proof, scope: Scope::All, dry_run: false };
    let mut backfill = Backfill::begin(watcher(url, db, Duration::ZERO)?, job).await?;
    let begun = process::cpu()?;
    while !backfill.is_done() {
        backfill.step(clock.now()).await?;
    }
    Ok((finalized + 1 - from, (process::cpu()? - begun).as_secs_f64()))
}

/// How often blocks are asked for that pay us, of a node and of two that must agree: a small chain is followed by ticks
/// until all that it pays is CONFIRMED.
async fn measure_hits() -> anyhow::Result<()> {
    for nodes in [1, 2] {
        let (store, ledger) = (Store::fresh(CHAIN).await?, Ledger::starting_at(FIRST_SLOT));
        ledger.set_finality(Finality::AtOnce);
        ledger.grow(Vec::new());
        let [ours, payer] = [Address::Solana([0xa2; 32]), Address::Solana([0x01; 32])];
        let (id, addresses) = ("hits".to_owned(), [(CHAIN, ours)].into());
        let account = NewAccount { id, identity_id: None, kind: AccountType::Segregated, addresses };
        registry::add_accounts(&store.db, &[account], Clock::system().now()).await?;
        let mut started = Vec::new();
        for _ in 0..nodes {
            started.push(Node::start(&ledger).await);
        }
        let urls = started.iter().map(|node| node.url().parse()).collect::<Result<Vec<Url>, _>>()?;
        let (mut watcher, clock) = (watcher_of(urls, &store.db, Duration::ZERO)?, Clock::system());
        while !watcher.tick(clock.now()).await?.caught_up {}
        started.iter().for_each(Node::forget_counts);
        let mut confirmed = 0;
        for block in 1..=HIT_BLOCKS {
            let paid = block.is_multiple_of(HIT_EVERY).then(|| Tx::sol(block, payer, ours, block));
            ledger.grow(paid.into_iter().collect());
            confirmed += watcher.tick(clock.now()).await?.confirmed;
        }
        while confirmed < HIT_BLOCKS / HIT_EVERY {
            confirmed += watcher.tick(clock.now()).await?.confirmed;
        }
        let calls = started.iter().map(|node| node.calls("getBlock", None)).collect::<Vec<_>>();
        println!(
            "each fourth of {HIT_BLOCKS} blocks pays us: {calls:?} getBlock at the endpoints, one by one (goal: at most \
             {HIT_BLOCKS} at each), for {confirmed} deposits CONFIRMED"
        );
    }
    Ok(())
}

fn two(words: &str) -> anyhow::Result<(f64, f64)> {
    let (one, other) = words.split_once(' ').context("two numbers")?;
    Ok((one.parse()?, other.parse()?))
}

fn reported() -> anyhow::Result<String> {
    line(&mut std::io::stdin().lock())
}

async fn reached(db: &Db) -> anyhow::Result<u64> {
    Ok(Cursor::load(&mut db.read().await?, CHAIN).await?.at.map_or(0, |at| at.number))
}

fn watcher(url: Url, db: &Db, poll: Duration) -> anyhow::Result<Follower<Arc<SolanaSource>>> {
    watcher_of(vec![url], db, poll)
}

fn watcher_of(urls: Vec<Url>, db: &Db, poll: Duration) -> anyhow::Result<Follower<Arc<SolanaSource>>> {
    watcher_over(source(urls, poll)?, db, poll)
}

fn source(urls: Vec<Url>, poll: Duration) -> anyhow::Result<Arc<SolanaSource>> {
    let options = Options { poll, ..Options::default() };
    let urls = urls.into_iter().map(EndpointUrl::from).collect();
    Ok(Arc::new(SolanaSource::at(&network()?, urls, &options)?))
}

fn network() -> anyhow::Result<Network> {
    landfall_solana::network(CHAIN).context("it is embedded")
}

/// As `landfall run` reads what the owners hold.
fn balances(source: Arc<SolanaSource>, db: &Db) -> anyhow::Result<BalanceWatch<Arc<SolanaSource>>> {
    let network = network()?;
    let assets: Vec<AssetId> = network.assets.iter().map(|asset| asset.id).collect();
    let most = u32::try_from(source.owners_of_a_call(&assets))?;
    Ok(BalanceWatch::new(source, db.clone(), &network, most, "figures".to_owned()).pausing(HOLDINGS_PAUSE))
}

fn watcher_over(source: Arc<SolanaSource>, db: &Db, poll: Duration) -> anyhow::Result<Follower<Arc<SolanaSource>>> {
    let network = network()?;
    let settings = Settings {
        start: Start::Number(FIRST_SLOT + 1),
        proof: ReadProof::Candidate,
        poll,
        failed_grace: Duration::from_secs(3_600),
        finality_stall: None,
        block_stall: None,
    };
    let endpoints = source.endpoints();
    Ok(Follower::new(source, endpoints, db.clone(), network, settings))
}
