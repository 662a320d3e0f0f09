//! Memory: what the process needs beside the watch list, and what one watched address adds to it.
//!
//! A third process follows the chain with one address, as long as it takes to be warm; then this one adds the others to
//! the store, and the third one follows the list.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::Context;
use landfall::time::Clock;
use landfall_chain::{Native, ReadProof};

use crate::node::{Made, Node};
use crate::store::{self, Store};
use crate::{Size, network, process, ratio, token};

pub(crate) const LOAD: &str = "load";
const MIB: f64 = 1_048_576.0;

pub(crate) async fn measure(size: Size) -> anyhow::Result<()> {
    let addresses = size.pick(20_000_u32, 1_000_000, 10_000_000);
    let network = network(Native::TOP_LEVEL)?;
    let made =
        Made { blocks: size.pick(20, 200, 200), txs: 180, logs: 400, listed: token(&network)?, finality_depth: 5 };
    let node = Node::start(&made)?;
    let store = Store::fresh(network.chain).await?;
    let mut child = Command::new(std::env::current_exe()?)
        .args([LOAD, &store.path(), node.url.as_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut told = BufReader::new(child.stdout.take().context("a pipe")?).lines();
    let mut told = move || anyhow::Ok(told.next().context("the process has ended")??);
    let before: f64 = told()?.parse()?;
    store.watch(network.chain, addresses.into()).await?;
    writeln!(child.stdin.take().context("a pipe")?, "go")?;
    let words = told()?;
    let words: Vec<f64> = words.split(' ').map(str::parse).collect::<Result<_, _>>()?;
    let [after, peak, secs] = words.as_slice() else { anyhow::bail!("three figures") };
    child.wait()?;
    println!(
        "bytes of memory per watched address, {addresses} of them: {:.1} (goal <= 60)",
        ratio(after - before, addresses.into())
    );
    println!("MB of memory beside them: {:.0} (goal <= 150)", before / MIB);
    println!("loaded in {secs:.1} s; MB of memory at the peak: {:.0}, then {:.0}", peak / MIB, after / MIB);
    Ok(())
}

/// The third process.
pub(crate) async fn load(words: &[String]) -> anyhow::Result<()> {
    let [path, url] = words else { anyhow::bail!("{LOAD} takes two words") };
    let db = store::open(path).await?;
    let network = network(Native::TOP_LEVEL)?;
    let mut watcher = store::watcher(&network, &[url.parse()?], &db, ReadProof::Full)?;
    let clock = Clock::system();
    while !watcher.tick(clock.now()).await?.caught_up {}
    println!("{}", process::resident()?);
    std::io::stdin().lock().read_line(&mut String::new())?;
    let begun = Instant::now();
    watcher.tick(clock.now()).await?;
    let secs = begun.elapsed().as_secs_f64();
    println!("{} {} {secs}", process::resident()?, process::resident_peak()?);
    Ok(())
}
