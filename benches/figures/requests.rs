//! HTTP requests per live block: what one block costs at the node, however many addresses are watched.

use landfall::time::Clock;
use landfall::watcher::{TraceLane, Watcher};
use landfall_chain::{Native, NativeSource, ReadProof};
use landfall_evm::EvmSource;
use std::sync::Arc;

use crate::node::{Made, Node};
use crate::store::{PAYEE, Store, watcher};
use crate::{LOGGED, Size, network, token};

const TXS: usize = 20;
const LOGS: usize = 40;
const FINALITY_DEPTH: u64 = 3;

/// A way of watching, and how many requests a block may cost.
struct Way {
    name: &'static str,
    proof: ReadProof,
    native: Native,
    goal: u64,
}

const TRACED: Native = Native { source: NativeSource::Trace, eip7708_from: None };
const WAYS: [Way; 4] = [
    Way { name: "receipts, without traces", proof: ReadProof::Full, native: Native::TOP_LEVEL, goal: 2 },
    Way { name: "receipts, with traces", proof: ReadProof::Full, native: TRACED, goal: 3 },
    Way { name: "logs, native by transactions", proof: ReadProof::Listed, native: Native::TOP_LEVEL, goal: 2 },
    Way { name: "logs, native by logs", proof: ReadProof::Listed, native: LOGGED, goal: 2 },
];

/// What is driven.
struct Driven {
    node: Node,
    watcher: Watcher<Arc<EvmSource>>,
    lane: Option<TraceLane<Arc<EvmSource>>>,
    clock: Clock,
}

pub(crate) async fn measure(size: Size) -> anyhow::Result<()> {
    let blocks = size.pick(5, 50, 50);
    for way in WAYS {
        for watched in [1, size.pick(1_000, 10_000, 10_000_000)] {
            let network = network(way.native)?;
            let made =
                Made { blocks: 5, txs: TXS, logs: LOGS, listed: token(&network)?, finality_depth: FINALITY_DEPTH };
            let node = Node::start(&made)?;
            let store = Store::fresh(network.chain).await?;
            if watched > 1 {
                store.watch(network.chain, watched - 1).await?;
            }
            let watcher = watcher(&network, &node.url, &store.db, way.proof)?;
            let lane = watcher.trace_lane();
            let mut driven = Driven { node, watcher, lane, clock: Clock::system() };
            driven.catch_up().await?;
            let quiet = driven.per_block(blocks, false).await?;
            let idle = driven.idle().await?;
            let hit = driven.per_block(blocks, true).await?;
            println!(
                "requests per live block, {}, {watched} watched: {quiet} (goal <= {}); polls that find nothing new: {idle}; \
                 a block with a hit, until all is confirmed: {hit}",
                way.name, way.goal
            );
        }
    }
    Ok(())
}

impl Driven {
    async fn tick(&mut self) -> anyhow::Result<u64> {
        let ticked = self.watcher.tick(self.clock.now()).await?;
        let traced = match &self.lane {
            Some(lane) => lane.tick(self.clock.now()).await?.traced,
            None => 0,
        };
        Ok(ticked.connected + traced)
    }

    async fn catch_up(&mut self) -> anyhow::Result<()> {
        while self.tick().await? > 0 {}
        Ok(())
    }

    /// One poll for each block.
    async fn per_block(&mut self, blocks: u64, pays: bool) -> anyhow::Result<String> {
        self.node.take_counts()?;
        for _ in 0..blocks {
            self.node.mine(TXS, LOGS, pays.then(|| PAYEE.into()))?;
            anyhow::ensure!(self.tick().await? > 0, "the block was not connected");
        }
        self.told(blocks)
    }

    async fn idle(&mut self) -> anyhow::Result<String> {
        self.node.take_counts()?;
        anyhow::ensure!(self.tick().await? == 0, "something was connected");
        self.told(1)
    }

    fn told(&mut self, per: u64) -> anyhow::Result<String> {
        let asked = self.node.take_counts()?;
        let (whole, rest) = (asked.requests / per, asked.requests % per * 100 / per);
        Ok(format!("{whole}.{rest:02} [{}]", asked.calls))
    }
}
