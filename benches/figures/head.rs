//! Head latency: from the moment the node has a block to PENDING committed, as another process sees it in the store.

use std::time::Duration;

use landfall::store::Db;
use landfall::store::deposits::{self, DepositFilter};
use landfall::time::{Clock, Pulse, Timestamp};
use landfall_chain::{Native, ReadProof, U256};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::node::{Made, Node};
use crate::store::{PAYEE, POLL, Store, watcher};
use crate::{Size, network, token};

const TXS: usize = 180;
const LOGS: usize = 400;
/// How often the store is looked at; what this adds is counted as latency.
const LOOK: Duration = Duration::from_millis(1);
/// A block is looked for so long.
const SEEN_WITHIN: Duration = Duration::from_secs(30);
const FINALITY_DEPTH: u64 = 64;
/// Over the goal's poll and round trips.
const MARGIN: Duration = Duration::from_millis(20);

pub(crate) async fn measure(size: Size) -> anyhow::Result<()> {
    let blocks: u64 = size.pick(5, 200, 1_000);
    for latency in [0, 50].map(Duration::from_millis) {
        let network = network(Native::TOP_LEVEL)?;
        let made = Made { blocks: 5, txs: TXS, logs: LOGS, listed: token(&network)?, finality_depth: FINALITY_DEPTH };
        let mut node = Node::start(&made)?;
        let store = Store::fresh(network.chain).await?;
        let (clock, stop) = (Clock::system(), CancellationToken::new());
        node.set_latency(latency)?;
        let watcher = watcher(&network, std::slice::from_ref(&node.url), &store.db, ReadProof::Full)?;
        let mut workers = JoinSet::new();
        let pulse = Pulse::new("head", clock.now());
        workers.spawn(watcher.run(clock.clone(), landfall::random::number, pulse, stop.clone()));
        tokio::time::sleep(Duration::from_secs(2)).await;
        let mut latencies = Vec::new();
        for block in 0..blocks {
            // Blocks come at every phase of the poll.
            tokio::time::sleep(POLL.mul_f64(0.01 * f64::from(u32::try_from(block * 37 % 100)?))).await;
            let mined = node.mine(TXS, LOGS, Some(PAYEE.into()))?;
            let seen = seen(&store.db, &clock, made.blocks + block + 1).await?;
            latencies.push(seen.since(mined));
        }
        stop.cancel();
        workers.join_all().await;
        latencies.sort_unstable();
        let at = |percent: usize| latencies.get((latencies.len() * percent / 100).min(latencies.len() - 1));
        let goal = POLL + 2 * latency + MARGIN;
        println!(
            "head latency over {blocks} blocks, RPC latency {} ms, polls of {} ms: p50 {:.1?}, p99 {:.1?} (goal <= {:.0?})",
            latency.as_millis(),
            POLL.as_millis(),
            at(50).copied().unwrap_or_default(),
            at(99).copied().unwrap_or_default(),
            goal
        );
    }
    Ok(())
}

/// When the payment of block `number`, which is of that amount, is on record.
async fn seen(db: &Db, clock: &Clock, number: u64) -> anyhow::Result<Timestamp> {
    let begun = clock.now();
    while clock.now().since(begun) < SEEN_WITHIN {
        let newest = deposits::list(&mut db.read().await?, &DepositFilter::default(), 1).await?;
        if newest.first().is_some_and(|deposit| deposit.amount == U256::from(number)) {
            return Ok(clock.now());
        }
        tokio::time::sleep(LOOK).await;
    }
    anyhow::bail!("block {number} was not seen within {SEEN_WITHIN:?}")
}
