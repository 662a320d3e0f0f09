//! Backfill with `proof = "receipts"`: reading proved blocks, and all that `landfall backfill` does. Beside it a loop
//! that only downloads the same answers and parses them into borrowed structs.

use std::fmt;
use std::hint::black_box;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use landfall_chain::{BlockSource, Native, Read, ReadProof};
use landfall_evm::EvmSource;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::json;
use url::Url;

use crate::node::{Made, Node};
use crate::past::{Past, Took};
use crate::{Size, network, process, ratio, token};

const TXS: usize = 180;
const LOGS: usize = 400;
/// As the watcher reads: blocks in a request, and requests at once.
const WIDTH: u64 = 20;
const AHEAD: usize = 4;
/// How often one is measured after the other.
const ROUNDS: u32 = 5;
const TIMEOUT: Duration = Duration::from_secs(15);

/// Blocks per second.
struct Speed {
    wall: f64,
    cpu: f64,
}

pub(crate) async fn measure(size: Size) -> anyhow::Result<()> {
    let blocks = size.pick(20, 400, 400);
    let least = size.pick(Duration::from_millis(200), Duration::from_secs(5), Duration::from_secs(20));
    let network = network(Native::TOP_LEVEL)?;
    let made = Made { blocks, txs: TXS, logs: LOGS, listed: token(&network)?, finality_depth: 0 };
    let node = Node::start(&made)?;
    let many = size.pick(10_000, 1_000_000, 1_000_000);
    let past = Past::new(&network, &node.url, blocks, many).await?;
    let source = EvmSource::new(network.clone(), std::slice::from_ref(&node.url))?;
    source.check().await?;
    let http = reqwest::Client::builder().timeout(TIMEOUT).no_proxy().build()?;
    let proved = async |first: u64| {
        let blocks = source.blocks(first..=first + (WIDTH - 1), Read::FULL).await?;
        anyhow::ensure!(u64::try_from(blocks.len())? == WIDTH, "blocks are missing");
        black_box(blocks);
        Ok(())
    };
    let downloaded = async |first: u64| download(&http, &node.url, first).await;
    // In turn, so that what else the machine does meets both alike.
    let (mut proving, mut downloading, mut backfilling) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        downloading.push(speed(blocks, least / ROUNDS, &downloaded).await?);
        proving.push(speed(blocks, least / ROUNDS, &proved).await?);
        let (mut took, mut rounds) = (Took::default(), 0_u32);
        while took.cpu < least / ROUNDS {
            took += past.read(&network, ReadProof::Full).await?;
            rounds += 1;
        }
        backfilling.push(Speed::of(blocks, rounds, took.wall, took.cpu)?);
    }
    println!(
        "blocks per second, downloaded and parsed only: {:.0} (CPU-second: {:.0})",
        mean(&downloading).wall,
        mean(&downloading).cpu
    );
    report("proved by the source alone", &proving, &downloading);
    report(
        &format!("read by all that `landfall backfill` does over a store of {many} watched addresses"),
        &backfilling,
        &downloading,
    );
    let peak = process::resident_peak(std::process::id())?;
    println!("  MB of memory at the peak of this process so far, the plain loop's included: {}", peak >> 20);
    Ok(())
}

fn report(what: &str, speeds: &[Speed], downloading: &[Speed]) {
    let worst = speeds
        .iter()
        .zip(downloading)
        .map(|(speed, parsed)| ratio(speed.cpu, parsed.cpu))
        .fold(f64::INFINITY, f64::min);
    let (speed, parsed) = (mean(speeds), mean(downloading));
    println!(
        "blocks per second, {what}: {:.0} (CPU-second: {:.0}); against downloaded: {:.2} by wall time (goal >= 0.5), {:.2} by \
         processor time ({worst:.2} in the worst of {ROUNDS} rounds)",
        speed.wall,
        speed.cpu,
        ratio(speed.wall, parsed.wall),
        ratio(speed.cpu, parsed.cpu)
    );
}

async fn speed(blocks: u64, least: Duration, read: &impl AsyncFn(u64) -> anyhow::Result<()>) -> anyhow::Result<Speed> {
    let (begun, cpu) = (Instant::now(), process::cpu()?);
    let mut rounds = 0_u32;
    // So much processor time: how long that takes is for what else the machine does.
    while process::cpu()? - cpu < least {
        let parts = stream::iter((0..blocks / WIDTH).map(|part| part * WIDTH + 1));
        parts.map(|first| read(first)).buffered(AHEAD).try_collect::<Vec<()>>().await?;
        rounds += 1;
    }
    Speed::of(blocks / WIDTH * WIDTH, rounds, begun.elapsed(), process::cpu()? - cpu)
}

impl Speed {
    fn of(blocks: u64, rounds: u32, wall: Duration, cpu: Duration) -> anyhow::Result<Self> {
        let read = f64::from(rounds) * f64::from(u32::try_from(blocks)?);
        Ok(Speed { wall: ratio(read, wall.as_secs_f64()), cpu: ratio(read, cpu.as_secs_f64()) })
    }
}

fn mean(speeds: &[Speed]) -> Speed {
    let count = speeds.iter().map(|_| 1.0).sum::<f64>();
    let of = |figure: fn(&Speed) -> f64| speeds.iter().map(figure).sum::<f64>() / count;
    Speed { wall: of(|speed| speed.wall), cpu: of(|speed| speed.cpu) }
}

/// The same request that a proved read sends, its answer parsed and no more.
async fn download(http: &reqwest::Client, url: &Url, first: u64) -> anyhow::Result<()> {
    let calls: Vec<serde_json::Value> = (first..first + WIDTH)
        .flat_map(|number| {
            let at = format!("{number:#x}");
            [
                json!({ "jsonrpc": "2.0", "id": 2 * number, "method": "eth_getBlockByNumber", "params": [at, true] }),
                json!({ "jsonrpc": "2.0", "id": 2 * number + 1, "method": "eth_getBlockReceipts", "params": [at] }),
            ]
        })
        .collect();
    let request = http.post(url.clone()).header("content-type", "application/json").body(serde_json::to_vec(&calls)?);
    let body = request.send().await?.bytes().await?;
    let Answers(answers) = serde_json::from_slice(&body)?;
    anyhow::ensure!(2 * answers.len() == calls.len(), "answers are missing");
    black_box(&answers);
    Ok(())
}

/// A block and its receipts in turn.
struct Answers<'a>(Vec<(Answer<Block<'a>>, Answer<Vec<Receipt<'a>>>)>);

impl<'de: 'a, 'a> Deserialize<'de> for Answers<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InTurn<'a>(PhantomData<&'a ()>);

        impl<'de: 'a, 'a> Visitor<'de> for InTurn<'a> {
            type Value = Answers<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("blocks and their receipts in turn")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut answers: A) -> Result<Self::Value, A::Error> {
                let mut all = Vec::new();
                while let Some(block) = answers.next_element()? {
                    let receipts = answers.next_element()?.ok_or_else(|| A::Error::custom("no receipts"))?;
                    all.push((block, receipts));
                }
                Ok(Answers(all))
            }
        }
        deserializer.deserialize_seq(InTurn(PhantomData))
    }
}

#[derive(Deserialize)]
#[expect(dead_code, reason = "parsed, and not looked at")]
struct Answer<T> {
    id: u64,
    result: T,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "parsed, and not looked at")]
struct Block<'a> {
    hash: &'a str,
    parent_hash: &'a str,
    number: &'a str,
    timestamp: &'a str,
    logs_bloom: &'a str,
    transactions_root: &'a str,
    receipts_root: &'a str,
    #[serde(borrow)]
    transactions: Vec<Tx<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "parsed, and not looked at")]
struct Tx<'a> {
    hash: &'a str,
    from: &'a str,
    to: Option<&'a str>,
    nonce: &'a str,
    value: &'a str,
    gas: &'a str,
    input: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "parsed, and not looked at")]
struct Receipt<'a> {
    transaction_hash: &'a str,
    status: Option<&'a str>,
    cumulative_gas_used: &'a str,
    logs_bloom: &'a str,
    #[serde(borrow)]
    logs: Vec<Log<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(dead_code, reason = "parsed, and not looked at")]
struct Log<'a> {
    address: &'a str,
    #[serde(borrow)]
    topics: Vec<&'a str>,
    data: &'a str,
    log_index: &'a str,
}
