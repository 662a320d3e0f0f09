//! Solana at 10,000,000 owners: what they cost in memory, what matching a block of mainnet's size costs, and
//! (`following`) what it costs to read and follow such blocks.
//!
//! As in `memory`, a process of its own loads the owners. The matched block is `landfall_cluster::recorded`, read once:
//! its 1,228 transactions have fees, legs, debits and movements that are no credit, and all are looked up. Nobody in it
//! is watched. The figure covers all of connecting the block but reading it: every look-up, and the transaction that
//! records it.

use std::io::{BufRead, BufReader, Write};
use std::ops::RangeInclusive;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context;
use landfall::time::Clock;
use landfall::watcher::{Follower, Settings, Start};
use landfall_chain::{
    AssetTransfer, Block, BlockHash, BlockRef, BlockSource, Chain, Endpoints, Fate, Header, Legs, Payer, Read,
    ReadProof, SourceError, Tip, TxRef,
};
use landfall_cluster::recorded;
use landfall_solana::{Asked, Rules};
use std::sync::Arc;

use crate::store::{self, Store};
use crate::{Size, following, process, ratio};

pub(crate) const LOAD: &str = "load-solana";
pub(crate) const CHAIN: Chain = Chain::SolanaMainnet;
const MIB: f64 = 1_048_576.0;
const SLOT: u64 = 447_120_001;
/// As many as make a second of processor time.
const BLOCKS: u64 = 1_000;

pub(crate) async fn measure(size: Size) -> anyhow::Result<()> {
    let owners = size.pick(20_000_u32, 1_000_000, 10_000_000);
    let store = Store::fresh(CHAIN).await?;
    following::measure(size, &store, 1).await?;
    store.forget_blocks(CHAIN).await?;
    match_with(&store, owners).await?;
    following::measure(size, &store, owners.into()).await
}

/// What so many owners cost a process, beside the one that is in the store.
async fn match_with(store: &Store, owners: u32) -> anyhow::Result<()> {
    let mut child = Command::new(std::env::current_exe()?)
        .args([LOAD, &store.path()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut reported = BufReader::new(child.stdout.take().context("a pipe")?).lines();
    let mut reported = move || -> anyhow::Result<Vec<f64>> {
        let line = reported.next().context("the process has ended")??;
        Ok(line.split(' ').map(str::parse).collect::<Result<_, _>>()?)
    };
    let before = reported()?;
    store.watch(CHAIN, owners.into()).await?;
    writeln!(child.stdin.take().context("a pipe")?, "go")?;
    let after = reported()?;
    child.wait()?;
    let ([few_ms, resident, _], [many_ms, loaded, peak]) = (before.as_slice(), after.as_slice()) else {
        anyhow::bail!("three figures each")
    };
    println!(
        "MB of memory with {owners} owners: {:.0}, at the peak {:.0} (goal <= 600 for 10000000); bytes per owner: {:.1}",
        loaded / MIB,
        peak / MIB,
        ratio(loaded - resident, owners.into())
    );
    let block = block()?;
    println!(
        "ms of processor time to match and record a block of {} transactions: {many_ms:.2} (goal <= 1), {few_ms:.2} with one \
         owner; ratio {:.2}; what names an owner in it: {} fees, {} legs, {} debits, {} that are no credit",
        block.txs.len(),
        ratio(*many_ms, *few_ms),
        block.fees.len(),
        block.transfers.len(),
        block.debits().len(),
        block.unattributed.len()
    );
    Ok(())
}

/// The other process.
pub(crate) async fn load(words: &[String]) -> anyhow::Result<()> {
    let [path] = words else { anyhow::bail!("{LOAD} takes one word") };
    let db = store::open(path).await?;
    let network = landfall_solana::network(CHAIN).context("it is embedded")?;
    let source = Arc::new(Made { block: block()?, latest: AtomicU64::new(1) });
    let endpoints = Endpoints::new(["made".to_owned()]);
    // Where two must agree, each block is looked through once more for whether to read it in full.
    endpoints.set_agree(2);
    let settings = Settings {
        start: Start::Number(1),
        proof: ReadProof::Candidate,
        poll: store::POLL,
        failed_grace: Duration::from_secs(3_600),
        finality_stall: None,
        block_stall: None,
    };
    let mut watcher = Follower::new(Arc::clone(&source), endpoints, db, network, settings);
    let few = connect(&mut watcher, &source).await?;
    println!("{few} {} {}", process::resident(std::process::id())?, process::resident_peak(std::process::id())?);
    std::io::stdin().lock().read_line(&mut String::new())?;
    // Loads the list.
    watcher.tick(Clock::system().now()).await?;
    let (resident, peak) = (process::resident(std::process::id())?, process::resident_peak(std::process::id())?);
    println!("{} {resident} {peak}", connect(&mut watcher, &source).await?);
    Ok(())
}

/// Milliseconds of processor time for each of [`BLOCKS`] more blocks, without what the source takes to show them.
async fn connect(watcher: &mut Follower<Arc<Made>>, source: &Made) -> anyhow::Result<f64> {
    let clock = Clock::system();
    watcher.tick(clock.now()).await?;
    let first = source.latest.fetch_add(BLOCKS, Ordering::Relaxed) + 1;
    let begun = process::cpu()?;
    while !watcher.tick(clock.now()).await?.caught_up {}
    let connected = process::cpu()? - begun;
    let begun = process::cpu()?;
    for number in first..first + BLOCKS {
        std::hint::black_box(source.at(number));
    }
    let shown = process::cpu()? - begun;
    Ok(ratio(connected.saturating_sub(shown).as_secs_f64() * 1_000.0, 1_000.0))
}

/// The same block at each number.
#[derive(Debug)]
struct Made {
    block: Block,
    latest: AtomicU64,
}

impl Made {
    fn at(&self, number: u64) -> Block {
        let header = Header { block: reference(number), parent: reference(number.saturating_sub(1)), time_secs: 1 };
        Block { header, ..self.block.clone() }
    }
}

impl BlockSource for Made {
    async fn tip(&self) -> Result<Tip, SourceError> {
        let latest = reference(self.latest.load(Ordering::Relaxed));
        Ok(Tip { latest, finalized: None, tiers: Vec::new(), waiting: None, forked: None })
    }

    async fn headers(&self, range: RangeInclusive<u64>) -> Result<Vec<Header>, SourceError> {
        Ok(range.map(|number| self.at(number).header).collect())
    }

    async fn blocks(&self, range: RangeInclusive<u64>, _: Read) -> Result<Vec<Block>, SourceError> {
        Ok(range.map(|number| self.at(number)).collect())
    }

    async fn final_at(&self, _: u64) -> Result<Option<BlockRef>, SourceError> {
        Ok(None)
    }

    async fn cross_check(
        &self,
        _: &BlockRef,
        _: RangeInclusive<u64>,
        _: &[BlockRef],
        _: bool,
    ) -> Result<Option<u64>, SourceError> {
        Ok(None)
    }

    async fn fate(&self, _: &TxRef, _: &BlockRef) -> Result<Fate, SourceError> {
        Ok(Fate::Unknown)
    }

    async fn payers(&self, _: &BlockRef, transfers: &[AssetTransfer]) -> Result<Vec<Payer>, SourceError> {
        Ok(transfers.iter().map(AssetTransfer::payer).collect())
    }
}

/// The block of mainnet's size, as one endpoint reports it.
fn block() -> anyhow::Result<Block> {
    let network = landfall_solana::network(CHAIN).context("it is embedded")?;
    let answer = recorded::answer(SLOT, recorded::mainnet_like(1));
    let asked = Asked { slot: SLOT, time_secs: 1, legs: Legs::Creditable };
    Ok(landfall_solana::block(&Rules::of(&network), &answer, &asked)?.block)
}

fn reference(number: u64) -> BlockRef {
    let mut hash = [0xb1; 32];
    hash[..8].copy_from_slice(&number.to_be_bytes());
    BlockRef { number, hash: BlockHash(hash) }
}
