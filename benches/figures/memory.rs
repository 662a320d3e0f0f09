//! Memory: what `landfall run` needs beside the watch list, and what one watched address adds to it.
//!
//! The program follows a busy chain with one address, with traces and balances, until it is warm. Then this process
//! adds the others to the store, and the program watches them too. Their balances are not due: how many of these are
//! read at once does not depend on how many there are.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use landfall::store::Db;
use landfall::store::cursors::Cursor;
use landfall_chain::{Chain, Native};

use crate::node::{Made, Node};
use crate::store::Store;
use crate::{Size, network, process, ratio, token};

const TXS: usize = 180;
const LOGS: usize = 400;
/// How long it may take until the newest block is connected; 10,000,000 addresses are loaded before.
const CONNECTED_WITHIN: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_millis(10);
/// What the other lanes do with the newest blocks is done by then.
const WARM: Duration = Duration::from_secs(5);

pub(crate) async fn measure(size: Size) -> anyhow::Result<()> {
    let addresses = size.pick(20_000_u32, 1_000_000, 10_000_000);
    let network = network(Native::TOP_LEVEL)?;
    let made =
        Made { blocks: size.pick(20, 200, 200), txs: TXS, logs: LOGS, listed: token(&network)?, finality_depth: 5 };
    let mut node = Node::start(&made)?;
    let store = Store::fresh(network.chain).await?;
    let config = format!(
        "[store]\nurl = \"sqlite:{}\"\n[api]\nlisten = \"127.0.0.1:0\"\nenvironment = \"test\"\n[admin]\nlisten = \
         \"127.0.0.1:0\"\n[chains.{}]\nrpc = [\"{}\"]\nstart = 1\npoll_ms = 100\n",
        store.path(),
        network.chain,
        node.url
    );
    let program = Program::start(&store, &config)?;
    connected(&store.db, network.chain, made.blocks).await?;
    tokio::time::sleep(WARM).await;
    let before = process::resident(program.id())?;
    store.watch(network.chain, addresses.into()).await?;
    let begun = Instant::now();
    node.mine(TXS, LOGS, None)?;
    connected(&store.db, network.chain, made.blocks + 1).await?;
    let secs = begun.elapsed().as_secs_f64();
    tokio::time::sleep(WARM).await;
    let [after, peak] = [process::resident(program.id())?, process::resident_peak(program.id())?];
    let kib = |bytes: u64| u32::try_from(bytes / 1_024).map(f64::from);
    let (before, after, peak) = (kib(before)?, kib(after)?, kib(peak)?);
    println!(
        "bytes of memory per watched address in `landfall run`, {addresses} of them: {:.1} (goal <= 60)",
        ratio((after - before) * 1_024.0, addresses.into())
    );
    println!("MB of memory beside them: {:.0} (goal <= 150)", before / 1_024.0);
    println!("taken up in {secs:.1} s; MB of memory at the peak: {:.0}, then {:.0}", peak / 1_024.0, after / 1_024.0);
    Ok(())
}

/// `landfall run`, until it is dropped.
struct Program(Child);

impl Program {
    fn start(store: &Store, config: &str) -> anyhow::Result<Self> {
        let path = store.beside("landfall.toml");
        std::fs::write(&path, config)?;
        let child = Command::new(env!("CARGO_BIN_EXE_landfall"))
            .args(["run", "--config"])
            .arg(path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Program(child))
    }

    fn id(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until this block is connected.
async fn connected(db: &Db, chain: Chain, number: u64) -> anyhow::Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < CONNECTED_WITHIN {
        let at = Cursor::load(&mut db.read().await?, chain).await?.at;
        if at.is_some_and(|at| at.number >= number) {
            return Ok(());
        }
        tokio::time::sleep(LOOK).await;
    }
    Err(anyhow::anyhow!("block {number} is not connected")).context("`landfall run`")
}
