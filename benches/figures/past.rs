//! What `landfall backfill` does: its engine over a store, with the watch list of that store.

use std::time::{Duration, Instant};

use landfall::time::Clock;
use landfall::watcher::{Backfill, Job, Scope};
use landfall_chain::{Network, ReadProof};
use url::Url;

use crate::process;
use crate::store::{Store, watcher};

/// A chain that was followed to its end, and a store in which more are watched since.
pub(crate) struct Past {
    urls: [Url; 1],
    store: Store,
    blocks: u64,
}

/// What reading all of it took.
#[derive(Clone, Copy, Default)]
pub(crate) struct Took {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
    /// Of processor time, before the first block: mostly the watch list.
    pub(crate) begin: Duration,
}

impl Past {
    /// Follows the node's chain through block `blocks`, then watches so many addresses more.
    pub(crate) async fn new(network: &Network, url: &Url, blocks: u64, watched: u64) -> anyhow::Result<Self> {
        let (store, urls) = (Store::fresh(network.chain).await?, [url.clone()]);
        let mut following = watcher(network, &urls, &store.db, ReadProof::Full)?;
        while !following.tick(Clock::system().now()).await?.caught_up {}
        store.watch(network.chain, watched).await?;
        Ok(Past { urls, store, blocks })
    }

    /// Backfills all blocks for all addresses, on a network whose native movements are seen in the way of `network`.
    pub(crate) async fn read(&self, network: &Network, proof: ReadProof) -> anyhow::Result<Took> {
        let clock = Clock::system();
        let begin = process::cpu()?;
        let job = Job { from: 1, to: Some(self.blocks), proof, scope: Scope::All, dry_run: false };
        let mut backfill = Backfill::begin(watcher(network, &self.urls, &self.store.db, proof)?, job).await?;
        let (begun, cpu) = (Instant::now(), process::cpu()?);
        while !backfill.is_done() {
            backfill.step(clock.now()).await?;
        }
        let progress = backfill.progress();
        anyhow::ensure!((progress.until, progress.found) == (self.blocks, 0), "another job was done: {progress:?}");
        Ok(Took { wall: begun.elapsed(), cpu: process::cpu()? - cpu, begin: cpu - begin })
    }
}

impl std::ops::AddAssign for Took {
    fn add_assign(&mut self, other: Self) {
        self.wall += other.wall;
        self.cpu += other.cpu;
        self.begin += other.begin;
    }
}
