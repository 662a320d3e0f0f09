//! Follows one chain: finds deposits in proved blocks, takes reorgs back, settles what is final.
//!
//! Promises:
//! - the cursor moves only in the transaction that records everything the blocks below it credit;
//! - a block is connected only on its parent, so the connected chain hangs together;
//! - CONFIRMED and FAILED are decided only on evidence read again from a final block of that chain.
//!
//! A tick is bounded, may be dropped at any await, and starts from what is on record. Live and catch-up are one path.

mod backfill;
mod connect;
mod error;
mod final_blocks;
mod fork;
mod pace;
mod report;
mod rescan;
mod settle;
mod watch_list;

use std::sync::Arc;
use std::time::Duration;

use landfall_chain::{BlockRef, BlockSource, Chain, Endpoints, Network, ReadProof, Tip};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::store::cursors::{self, Cursor};
use crate::store::{Db, StoreError, accounts};
use crate::time::{Clock, Pulse, Timestamp};

pub use backfill::{Backfill, BackfillError, Job, Progress, Scope};
pub use error::TickError;
pub use pace::Pace;
pub use rescan::{Difference, Rescan};
use watch_list::WatchList;

/// How a chain is followed, beyond what its network fixes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The first block to read, while no cursor is on record.
    pub start: Start,
    /// How strongly a block is proved before it is connected. One that credits is proved in full all the same.
    pub proof: ReadProof,
    /// How long a tick that found nothing new waits for the next.
    pub poll: Duration,
    /// How long a deposit may be in no block, after its height became final, before it is FAILED.
    pub failed_grace: Duration,
}

/// Where a chain that was never watched is taken up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// Above the newest final block.
    Finalized,
    /// At this block, inclusive: with 100, block 100 is the first that is read.
    Number(u64),
}

/// Follows one chain of one source.
#[derive(Debug)]
pub struct Watcher<S> {
    source: S,
    endpoints: Endpoints,
    db: Db,
    network: Network,
    settings: Settings,
    watch_list: WatchList,
    wake_up: Arc<Notify>,
    /// How many blocks a read asks for now.
    read_width: u64,
}

/// What a tick did.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ticked {
    pub disconnected: u64,
    pub connected: u64,
    /// Deposits that became PENDING, also again.
    pub pending: u64,
    pub confirmed: u64,
    pub failed: u64,
    /// How many blocks are left to the newest one.
    pub behind: u64,
    /// The cursor stands at the newest block.
    pub caught_up: bool,
    /// More is final than one tick settles.
    pub more_to_settle: bool,
    pub tip: Option<Tip>,
}

impl<S: BlockSource> Watcher<S> {
    pub fn new(source: S, endpoints: Endpoints, db: Db, network: Network, settings: Settings) -> Self {
        let watch_list = WatchList::new(network.chain);
        let wake_up = Arc::default();
        Watcher { source, endpoints, db, network, settings, watch_list, wake_up, read_width: connect::READ_BLOCKS_MAX }
    }

    /// With something that tells when to look before the next poll is due.
    pub fn woken_by(mut self, wake_up: Arc<Notify>) -> Self {
        self.wake_up = wake_up;
        self
    }

    /// One bounded step: tip, fork point, connect, settle.
    ///
    /// # Errors
    /// What was committed before the error stays; the next tick starts from it.
    pub async fn tick(&mut self, now: Timestamp) -> Result<Ticked, TickError> {
        self.watch_list.follow(&mut self.db.read().await?).await?;
        let tip = self.source.tip().await?;
        let mut ticked = Ticked { tip: Some(tip.clone()), ..Ticked::default() };
        let mut at = match Cursor::load(&mut self.db.read().await?, self.chain()).await?.at {
            Some(at) => at,
            None => self.take_up(&tip).await?,
        };
        if self.is_off_chain(&at, &tip).await? {
            at = self.disconnect(&at, &tip, &mut ticked).await?;
        }
        at = self.connect(at, &tip, now, &mut ticked).await?;
        self.settle(&at, &tip, now, &mut ticked).await?;
        ticked.behind = tip.latest.number.saturating_sub(at.number);
        ticked.caught_up = ticked.behind == 0;
        Ok(ticked)
    }

    /// Ticks until `stop`. After a permanent error the chain is halted: it says so and waits for a person.
    pub async fn run(mut self, clock: Clock, random: fn() -> u64, pulse: Pulse, stop: CancellationToken) {
        let mut reporter = report::Reporter::new(self.chain(), self.settings.proof);
        let mut retry = landfall_chain::Retry::new(self.settings.poll, RETRY_MAX);
        while !stop.is_cancelled() {
            pulse.beat(clock.now());
            let outcome = self.tick(clock.now()).await;
            reporter.log(&outcome, clock.now());
            let succeeded = outcome.is_ok();
            let pause = match &outcome {
                Ok(ticked) => {
                    retry.reset();
                    // After a reorg too: two nodes on two branches must not be asked in a tight loop.
                    let rests = ticked.disconnected > 0 || ticked.caught_up && !ticked.more_to_settle;
                    if rests { self.settings.poll } else { Duration::ZERO }
                }
                Err(TickError::Store(StoreError::Moved { .. })) => Duration::ZERO,
                Err(error) if error.may_pass() => retry.next_delay(random()),
                Err(_) => HEARTBEAT,
            };
            if let Err(error) = reporter.record(&self.db, &self.endpoints, outcome, clock.now()).await {
                warn!(chain = %self.chain(), "the state of {} was not recorded: {error}", self.chain());
            }
            if reporter.is_halted() {
                return reporter.beat_until(&self.db, &self.endpoints, &clock, &pulse, stop).await;
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
                // After an error the growing pause holds, whoever says that there is something new.
                () = self.wake_up.notified(), if succeeded => {}
            }
        }
    }

    fn chain(&self) -> Chain {
        self.network.chain
    }

    /// Sets the cursor of a chain that was never watched.
    async fn take_up(&mut self, tip: &Tip) -> Result<BlockRef, TickError> {
        let number = match self.settings.start {
            Start::Finalized => tip.finalized.map(|finalized| finalized.number).ok_or_else(|| {
                let what =
                    "no block is final yet, so there is none to start above; set start to a block number".to_owned();
                TickError::Contradiction { chain: self.chain(), what }
            })?,
            Start::Number(first) => first.saturating_sub(1),
        };
        let headers = self.source.headers(number..=number).await?;
        let Some(header) = headers.first() else {
            let what = format!("block {number}, to start from, is not there yet (the newest is {})", tip.latest.number);
            return Err(TickError::Contradiction { chain: self.chain(), what });
        };
        let mut tx = self.db.begin().await?;
        Cursor::lock(&mut tx, self.chain()).await?;
        cursors::anchor(&mut tx, self.chain(), header).await?;
        Cursor::place(&mut tx, self.chain(), &header.block).await?;
        accounts::raise_from(&mut tx, self.chain(), header.block.number + 1).await?;
        tx.commit().await?;
        info!(chain = %self.chain(), "{} is watched from block {}", self.chain(), header.block.number + 1);
        Ok(header.block)
    }
}

/// How often a chain that does nothing says that it is there; `health` misses it after 30 s.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The longest wait between two tries; well below the 30 s after which `health` misses the heartbeat.
const RETRY_MAX: Duration = Duration::from_secs(10);
