//! The Solana node: a process of its own that shows blocks of mainnet's size. This process sends it commands on its
//! standard input.
//!
//! `grow BLOCKS` adds so many at once, `live BLOCKS MS` adds one every so many milliseconds. Both answer with the
//! newest slot when the blocks are there. `counts` answers how many blocks and light calls it was asked for since the
//! last `counts`. It ends with its input. Answers are compressed, as those of providers are.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use landfall_cluster::{Finality, Ledger, Node, recorded};
use url::Url;

pub(crate) const SERVE: &str = "serve-solana";
pub(crate) const FIRST_SLOT: u64 = 1_000;
const FINALITY_BLOCKS: usize = 31;
const SEED: u64 = 1;

/// A node, until it is dropped.
pub(crate) struct Cluster {
    pub(crate) url: Url,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Cluster {
    /// # Errors
    /// The process cannot be started.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg(SERVE).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("a pipe")?;
        let mut output = BufReader::new(child.stdout.take().context("a pipe")?);
        let url = line(&mut output)?.parse()?;
        Ok(Cluster { url, child, input, output })
    }

    /// Adds so many blocks; the newest slot.
    pub(crate) fn grow(&mut self, blocks: u64) -> anyhow::Result<u64> {
        Ok(self.report(&format!("grow {blocks}"))?.parse()?)
    }

    /// The same, one every `slot`.
    pub(crate) fn live(&mut self, blocks: u64, slot: Duration) -> anyhow::Result<u64> {
        Ok(self.report(&format!("live {blocks} {}", slot.as_millis()))?.parse()?)
    }

    /// How often it was asked for a whole block, and how often for anything else, since this was last asked.
    pub(crate) fn take_counts(&mut self) -> anyhow::Result<(u64, u64)> {
        let reported = self.report("counts")?;
        let (blocks, others) = reported.split_once(' ').context("two numbers")?;
        Ok((blocks.parse()?, others.parse()?))
    }

    fn report(&mut self, what: &str) -> anyhow::Result<String> {
        writeln!(self.input, "{what}")?;
        line(&mut self.output)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process of ours says next.
pub(crate) fn line(output: &mut impl BufRead) -> anyhow::Result<String> {
    let mut line = String::new();
    anyhow::ensure!(output.read_line(&mut line)? > 0, "the process has ended");
    Ok(line.trim().to_owned())
}

/// The node's own process.
pub(crate) async fn serve() -> anyhow::Result<()> {
    let txs = recorded::mainnet_like(SEED);
    let ledger = Ledger::starting_at(FIRST_SLOT);
    ledger.set_finality(Finality::Behind(FINALITY_BLOCKS));
    let node = Node::start(&ledger).await;
    // To look for what so many transactions left costs more than all that is measured.
    node.forget_accounts();
    println!("{}", node.url());
    let (reported, mut report) = tokio::sync::mpsc::channel::<String>(1);
    let reader = std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if reported.blocking_send(line).is_err() {
                break;
            }
        }
    });
    while let Some(reported) = report.recv().await {
        let words: Vec<&str> = reported.split_whitespace().collect();
        match words.as_slice() {
            ["grow", blocks] => {
                for _ in 0..blocks.parse()? {
                    ledger.grow(txs.clone());
                }
                println!("{}", ledger.latest().number);
            }
            ["live", blocks, ms] => {
                let mut slots = tokio::time::interval(Duration::from_millis(ms.parse()?));
                for _ in 0..blocks.parse()? {
                    slots.tick().await;
                    ledger.grow(txs.clone());
                }
                println!("{}", ledger.latest().number);
            }
            ["counts"] => {
                let (blocks, light) = node.blocks_and_light_calls();
                node.forget_counts();
                println!("{blocks} {light}");
            }
            other => anyhow::bail!("{other:?} is not understood"),
        }
    }
    reader.join().ok().context("the reader of the input failed")
}
