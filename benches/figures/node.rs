//! The node: a process of its own that shows a busy chain. This process sends it commands on its standard input.
//!
//! `mine TXS LOGS [ADDRESS]` mines a block, which may pay an address, and answers when it was there (microseconds since
//! 1970). `latency MS` delays answers. `counts` answers how many requests came since the last `counts`, and how many
//! calls of each method. It ends with its input.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use landfall::time::{Clock, Timestamp};
use landfall_node::busy::Busy;
use landfall_node::{Address, Chain, Server, Tx};
use rand::SeedableRng;
use rand::rngs::StdRng;
use url::Url;

pub(crate) const SERVE: &str = "serve";
const SEPOLIA: u64 = 11_155_111;
const SEED: u64 = 7;
/// Nonces of payments stand above all others.
const PAYMENT_NONCES: u64 = 1 << 40;

/// A node, until it is dropped.
pub(crate) struct Node {
    pub(crate) url: Url,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// What its chain is made of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Made {
    pub(crate) blocks: u64,
    /// In each block.
    pub(crate) txs: usize,
    pub(crate) logs: usize,
    pub(crate) listed: Address,
    /// A block is final when so many stand on it.
    pub(crate) finality_depth: u64,
}

/// So many of 100 logs are of the listed token.
pub(crate) const LISTED_PERCENT: u32 = 25;

/// What a node was asked.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) requests: u64,
    pub(crate) calls: String,
}

impl Node {
    /// # Errors
    /// The process cannot be started.
    pub(crate) fn start(made: &Made) -> anyhow::Result<Self> {
        let Made { blocks, txs, logs, listed, finality_depth } = made;
        let words = [blocks.to_string(), txs.to_string(), logs.to_string(), listed.to_string()];
        let mut child = Command::new(std::env::current_exe()?)
            .arg(SERVE)
            .args(words)
            .arg(finality_depth.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let input = child.stdin.take().context("a pipe")?;
        let mut output = BufReader::new(child.stdout.take().context("a pipe")?);
        let url = line(&mut output)?.parse()?;
        Ok(Node { url, child, input, output })
    }

    /// Mines a block; when it was there.
    pub(crate) fn mine(&mut self, txs: usize, logs: usize, pay: Option<Address>) -> anyhow::Result<Timestamp> {
        let pay = pay.map_or_else(String::new, |pay| pay.to_string());
        Ok(Timestamp(self.report(&format!("mine {txs} {logs} {pay}"))?.parse()?))
    }

    pub(crate) fn set_latency(&mut self, latency: Duration) -> anyhow::Result<()> {
        self.report(&format!("latency {}", latency.as_millis())).map(drop)
    }

    /// What it was asked since this was last asked.
    pub(crate) fn take_counts(&mut self) -> anyhow::Result<Asked> {
        let reported = self.report("counts")?;
        let (requests, calls) = reported.split_once(' ').unwrap_or((&reported, ""));
        Ok(Asked { requests: requests.parse()?, calls: calls.to_owned() })
    }

    fn report(&mut self, what: &str) -> anyhow::Result<String> {
        writeln!(self.input, "{what}")?;
        line(&mut self.output)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn line(output: &mut impl BufRead) -> anyhow::Result<String> {
    let mut line = String::new();
    anyhow::ensure!(output.read_line(&mut line)? > 0, "the node has ended");
    Ok(line.trim().to_owned())
}

/// The node's own process.
pub(crate) async fn serve(words: &[String]) -> anyhow::Result<()> {
    let [blocks, txs, logs, listed, finality_depth] = words else { anyhow::bail!("{SERVE} takes five words") };
    let busy = Busy {
        chain_id: SEPOLIA,
        blocks: blocks.parse()?,
        txs: txs.parse()?,
        logs: logs.parse()?,
        listed_percent: LISTED_PERCENT,
        listed: listed.parse()?,
        native: 1,
        seed: SEED,
    };
    let chain = Chain::busy(&busy);
    chain.set_finality_depth(Some(finality_depth.parse()?));
    let server = Server::start(chain.clone(), SEED).await?;
    println!("{}", server.url());
    let (reported, mut report) = tokio::sync::mpsc::channel::<String>(1);
    let reader = std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(Result::ok) {
            if reported.blocking_send(line).is_err() {
                break;
            }
        }
    });
    let (clock, mut rng) = (Clock::system(), StdRng::seed_from_u64(SEED));
    while let Some(reported) = report.recv().await {
        let words: Vec<&str> = reported.split_whitespace().collect();
        match words.as_slice() {
            ["mine", txs, logs, pay @ ..] => {
                let number = chain.latest().number + 1;
                let mut txs = Busy { txs: txs.parse()?, logs: logs.parse()?, ..busy }.block(number, &mut rng);
                for to in pay {
                    txs.push(Tx::token(0, PAYMENT_NONCES + number, busy.listed, to.parse()?, number));
                }
                chain.mine(txs);
                println!("{}", clock.now().0);
            }
            ["latency", ms] => {
                server.set_latency(Duration::from_millis(ms.parse()?));
                println!("done");
            }
            ["counts"] => {
                let counts = server.take_counts();
                let calls: Vec<String> =
                    counts.calls.iter().map(|(method, calls)| format!("{method} {calls}")).collect();
                println!("{} {}", counts.requests, calls.join(", "));
            }
            other => anyhow::bail!("{other:?} is not understood"),
        }
    }
    reader.join().ok().context("the reader of the input failed")
}
