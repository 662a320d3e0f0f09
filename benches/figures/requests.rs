//! HTTP requests per live block: what one block costs at the endpoint that is read from, and at a second one, however
//! many addresses are watched.

use landfall::time::Clock;
use landfall::watcher::{Follower, TraceLane};
use landfall_chain::{Native, NativeSource, ReadProof};
use landfall_evm::EvmSource;
use std::sync::Arc;

use crate::node::{Asked, Made, Node};
use crate::store::{PAYEE, Store, watcher};
use crate::{LOGGED, Size, network, token};

const TXS: usize = 20;
const LOGS: usize = 40;
const FINALITY_DEPTH: u64 = 3;
/// What is final is agreed on a poll or two later.
const FILL_MAX: u64 = 4 * FINALITY_DEPTH;

/// A way of watching, and how many requests a block may cost.
struct Way {
    name: &'static str,
    proof: ReadProof,
    native: Native,
    goal: u64,
}

const TRACED: Native = Native { source: NativeSource::Trace, eip7708_from: None };
const WAYS: [Way; 5] = [
    Way { name: "receipts, without traces", proof: ReadProof::Full, native: Native::TOP_LEVEL, goal: 2 },
    Way { name: "receipts, with traces", proof: ReadProof::Full, native: TRACED, goal: 3 },
    Way { name: "logs, with traces", proof: ReadProof::Candidate, native: TRACED, goal: 3 },
    Way { name: "logs, native by transactions", proof: ReadProof::Candidate, native: Native::TOP_LEVEL, goal: 2 },
    Way { name: "logs, native by logs", proof: ReadProof::Candidate, native: LOGGED, goal: 2 },
];

/// What the endpoints were asked, by request and call.
struct Reported {
    first: String,
    second: String,
}

/// What became of a tick.
struct Done {
    /// Blocks that were connected or traced.
    read: u64,
    confirmed: u64,
}

/// What is driven.
struct Driven {
    /// Two of the same chain.
    nodes: [Node; 2],
    watcher: Follower<Arc<EvmSource>>,
    lane: Option<TraceLane<Arc<EvmSource>>>,
    clock: Clock,
}

pub(crate) async fn measure(size: Size) -> anyhow::Result<()> {
    let blocks = size.pick(3, 50, 50);
    for watched in [1, size.pick(1_000, 10_000, 10_000_000)] {
        // Filled once: millions take minutes.
        let filled = Store::fresh(network(TRACED)?.chain).await?;
        if watched > 1 {
            filled.watch(network(TRACED)?.chain, watched - 1).await?;
        }
        filled.db.close().await;
        for way in WAYS {
            let network = network(way.native)?;
            let made =
                Made { blocks: 5, txs: TXS, logs: LOGS, listed: token(&network)?, finality_depth: FINALITY_DEPTH };
            let nodes = [Node::start(&made)?, Node::start(&made)?];
            let store = filled.copy().await?;
            let urls = [nodes[0].url.clone(), nodes[1].url.clone()];
            let watcher = watcher(&network, &urls, &store.db, way.proof)?;
            let lane = watcher.trace_lane();
            let mut driven = Driven { nodes, watcher, lane, clock: Clock::system() };
            driven.catch_up().await?;
            let quiet = driven.per_block(blocks, false).await?;
            let idle = driven.idle().await?;
            driven.fill().await?;
            let hit = driven.per_block(blocks, true).await?;
            println!(
                "requests per live block, {}, {watched} watched: {} (goal <= {}); polls that find nothing new: {}; a block with a \
                 hit, the confirmation of one included: {}",
                way.name, quiet.first, way.goal, idle.first, hit.first
            );
            println!(
                "  at the second endpoint: {}; polls that find nothing new: {}; a block with a hit: {}",
                quiet.second, idle.second, hit.second
            );
        }
    }
    Ok(())
}

impl Driven {
    async fn tick(&mut self) -> anyhow::Result<Done> {
        let ticked = self.watcher.tick(self.clock.now()).await?;
        let traced = match &self.lane {
            Some(lane) => lane.tick(self.clock.now()).await?.traced,
            None => 0,
        };
        Ok(Done { read: ticked.connected + traced, confirmed: ticked.confirmed })
    }

    async fn catch_up(&mut self) -> anyhow::Result<()> {
        while self.tick().await?.read > 0 {}
        Ok(())
    }

    /// Blocks with hits, until with each one that is found an earlier one is confirmed.
    async fn fill(&mut self) -> anyhow::Result<()> {
        for _ in 0..FILL_MAX {
            if self.follow(true).await?.confirmed > 0 {
                return Ok(());
            }
        }
        anyhow::bail!("of {FILL_MAX} blocks with a hit none was confirmed")
    }

    /// One poll for each block. As many hits are confirmed as are found.
    async fn per_block(&mut self, blocks: u64, pays: bool) -> anyhow::Result<Reported> {
        self.take_counts()?;
        let mut confirmed = 0;
        for _ in 0..blocks {
            confirmed += self.follow(pays).await?.confirmed;
        }
        let hits = if pays { blocks } else { 0 };
        anyhow::ensure!(confirmed == hits, "{confirmed} of {hits} hits were confirmed");
        self.reported(blocks)
    }

    /// A new block, and a poll.
    async fn follow(&mut self, pays: bool) -> anyhow::Result<Done> {
        for node in &mut self.nodes {
            node.mine(TXS, LOGS, pays.then(|| PAYEE.into()))?;
        }
        let done = self.tick().await?;
        anyhow::ensure!(done.read > 0, "the block was not connected");
        Ok(done)
    }

    async fn idle(&mut self) -> anyhow::Result<Reported> {
        self.take_counts()?;
        anyhow::ensure!(self.tick().await?.read == 0, "something was connected");
        self.reported(1)
    }

    fn reported(&mut self, per: u64) -> anyhow::Result<Reported> {
        let text = |asked: Asked| {
            let (whole, rest) = (asked.requests / per, asked.requests % per * 100 / per);
            format!("{whole}.{rest:02} [{}]", asked.calls)
        };
        let [first, second] = self.take_counts()?.map(text);
        Ok(Reported { first, second })
    }

    /// What each was asked since this was last asked; first the one that was asked for more, which is the one that is
    /// read from.
    fn take_counts(&mut self) -> anyhow::Result<[Asked; 2]> {
        let [one, other] = &mut self.nodes;
        let (one, other) = (one.take_counts()?, other.take_counts()?);
        Ok(if one.requests < other.requests { [other, one] } else { [one, other] })
    }
}
