//! Follows one chain: finds deposits in proved blocks, takes reorgs back, settles what is final.
//!
//! Promises:
//! - the cursor moves only in the transaction that records everything the blocks below it credit;
//! - a block is connected only on its parent, so the connected chain hangs together;
//! - CONFIRMED and FAILED are decided only on evidence of a final block of that chain: read again, or kept of the very block
//!   since it was connected, where its chain has no roots that a second read could prove it by.
//!
//! A tick is bounded, may be dropped at any await, and starts from what is on record. Live and catch-up are one path.

mod alarms;
mod asset_watch;
mod backfill;
mod balance_watch;
mod connect;
mod early_witness;
mod error;
mod evidence;
pub mod explain;
mod final_blocks;
mod fork;
mod grants;
mod kept_witness;
mod movements;
mod native_change;
mod over_credit;
mod pace;
mod past;
mod payers;
mod report;
mod rescan;
mod second_witness;
mod settle;
mod stride;
mod told_blocks;
mod trace_lane;
mod watch_list;
mod witness;

use std::sync::Arc;
use std::time::Duration;

use landfall_chain::{
    BlockRef, BlockSource, Chain, Endpoints, Header, NativeSource, Network, ReadProof, Tip, with_causes,
};
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::decision::Orders;
use crate::incident::{Incident, IncidentKind};
use crate::store::cursors::{self, Cursor};
use crate::store::{Db, StoreError, accounts, incidents, native_settings, overrides, status};
use crate::time::{Clock, Pulse, Timestamp};

use alarms::Alarms;
pub use asset_watch::AssetWatch;
pub use backfill::{Backfill, Job, Scope};
pub use balance_watch::{BalanceWatch, BalancesRead};
pub use error::{Replaced, TickError};
pub use pace::Pace;
pub use past::{BackfillError, Progress, Span};
use payers::Payers;
pub use rescan::{Difference, Rescan};
use told_blocks::ToldBlocks;
pub use trace_lane::{TraceLane, Traced, not_traced};
use watch_list::WatchList;

/// How a chain is followed, beyond what its network fixes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The first block to read, while no cursor is on record.
    pub start: Start,
    /// How strongly a block is proved before it is connected. One that credits is proved in full all the same.
    pub proof: ReadProof,
    /// How often the newest block is asked for: from the begin of one tick to that of the next, while there is nothing to
    /// catch up with.
    pub poll: Duration,
    /// How long a deposit may be in no block, after its height became final, before it is FAILED.
    pub failed_grace: Duration,
    /// How long the newest final block may stand still before it is an alarm; `None` leaves it to the network's rule.
    pub finality_stall: Option<Duration>,
}

/// Tells a source how many endpoints must agree on what is final: an operator's word, or `None` for the usual number.
pub struct AgreeDoor(Box<dyn Fn(Option<u32>) + Send + Sync>);

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
    /// Where the last tick looked in vain for the next block.
    absent: Option<connect::Absent>,
    alarms: Alarms,
    payers: Payers,
    agree: AgreeDoor,
    told: ToldBlocks,
    /// The block from which the next tick settles: those below had their turn.
    settle_from: u64,
    /// The id of the last resumption that a tick met; `None` before the first tick.
    resumed: Option<String>,
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
        let alarms = Alarms::new(settings.finality_stall.unwrap_or_else(|| alarms::stall_after(&network)));
        let (read_width, agree) = (connect::READ_BLOCKS_MAX, AgreeDoor(Box::new(|_| ())));
        Watcher {
            source,
            endpoints,
            db,
            network,
            settings,
            watch_list,
            wake_up: Arc::default(),
            read_width,
            absent: None,
            alarms,
            payers: Payers::default(),
            agree,
            told: ToldBlocks::default(),
            settle_from: 0,
            resumed: None,
        }
    }

    /// With something that tells when to look before the next poll is due.
    pub fn woken_by(mut self, wake_up: Arc<Notify>) -> Self {
        self.wake_up = wake_up;
        self
    }

    /// The worker beside this one that reads traces; `None` where the network needs none.
    pub fn trace_lane(&self) -> Option<TraceLane<S>>
    where
        S: Clone,
    {
        let is_traced = self.network.native.source == NativeSource::Trace;
        is_traced.then(|| self.leftover_lane())
    }

    /// The worker that settles what was found by traces before the network was told not to be traced any more.
    pub fn leftover_lane(&self) -> TraceLane<S>
    where
        S: Clone,
    {
        let Watcher { source, db, network, settings, watch_list, .. } = self;
        TraceLane::new(source.clone(), db.clone(), network.clone(), *settings, watch_list.clone())
    }

    /// Hands operators' words on how many endpoints must agree to `door`, at each tick.
    #[must_use]
    pub fn with_agree(mut self, door: impl Fn(Option<u32>) + Send + Sync + 'static) -> Self {
        self.agree = AgreeDoor(Box::new(door));
        self
    }

    /// What is to be warned of now.
    pub fn alarms(&self, now: Timestamp) -> Vec<String> {
        self.alarms.texts(now)
    }

    /// One bounded step: orders, tip, fork point, connect, settle. What a person must look at is on record as an incident
    /// when it returns.
    ///
    /// # Errors
    /// What was committed before the error stays; the next tick starts from it.
    pub async fn tick(&mut self, now: Timestamp) -> Result<Ticked, TickError> {
        let outcome = self.step(now).await;
        if let Err(error) = &outcome
            && let Some(kind) = error.incident()
        {
            self.record_incident(kind, error, now).await?;
        }
        outcome
    }

    async fn step(&mut self, now: Timestamp) -> Result<Ticked, TickError> {
        let orders = self.orders(now).await?;
        self.watch_list.follow(&mut self.db.read().await?).await?;
        let tip = self.source.tip().await?;
        self.alarms.observe(&tip, now);
        let mut ticked = Ticked { tip: Some(tip.clone()), ..Ticked::default() };
        let mut at = match Cursor::load(&mut self.db.read().await?, self.chain()).await?.at {
            Some(at) => at,
            None => self.take_up(&tip).await?,
        };
        if self.is_off_chain(&at, &tip).await? {
            at = match self.disconnect(&at, &tip, &orders, now, &mut ticked).await? {
                Some(fork_point) => fork_point,
                // The block that it was taken up at is gone, and nothing stood on it.
                None => return Ok(ticked),
            };
        }
        let connected = self.connect(at, &tip, now, &mut ticked).await?;
        if connected.stray.is_some() {
            match self.disconnect(&connected.at, &tip, &orders, now, &mut ticked).await? {
                Some(fork_point) => at = fork_point,
                None => return Ok(ticked),
            }
        } else {
            at = connected.at;
        }
        if at.number < tip.latest.number && ticked.connected + ticked.disconnected == 0 && self.absent.is_none() {
            let what = match connected.stray {
                // A link that is false leads to no fork.
                Some(next) => format!("block {} is shown next, and stands on {}, not on {at}", next.block, next.parent),
                None => format!("the newest block is {}, but no block on top of {at} is shown", tip.latest),
            };
            return Err(TickError::Contradiction { chain: self.chain(), what });
        }
        self.settle(&at, &tip, &orders, now, &mut ticked).await?;
        ticked.behind = tip.latest.number.saturating_sub(at.number);
        ticked.caught_up = ticked.behind == 0;
        Ok(ticked)
    }

    /// Ticks until `stop`, which may come at any await of a tick. After a permanent error the chain is halted: it says so
    /// and waits for a person.
    pub async fn run(mut self, clock: Clock, random: fn() -> u64, pulse: Pulse, stop: CancellationToken) {
        let mut reporter = report::Reporter::new(self.chain(), self.settings.proof);
        let mut retry = landfall_chain::Retry::new(self.settings.poll, RETRY_MAX);
        tokio::select! {
            () = stop.cancelled() => return,
            () = self.load(&mut reporter, &clock, &pulse) => {}
        }
        while !stop.is_cancelled() {
            pulse.beat(clock.now());
            let begun = Instant::now();
            let (db, endpoints) = (self.db.clone(), self.endpoints.clone());
            let outcome = tokio::select! {
                () = stop.cancelled() => return,
                outcome = self.tick(clock.now()) => outcome,
                never = reporter.beat(&db, &endpoints, &clock, &pulse) => match never {},
            };
            reporter.log(&outcome, clock.now());
            let succeeded = outcome.is_ok();
            reporter.warn(self.alarms.texts(clock.now()), self.alarms.finalized_at());
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
                self.await_resumption(&mut reporter, &clock, &pulse, &stop).await;
                continue;
            }
            let pause = if succeeded { rest(pause, begun.elapsed()) } else { pause };
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
                // After an error the growing pause holds, whoever says that there is something new.
                () = self.wake_up.notified(), if succeeded => {}
            }
        }
    }

    /// Takes in the watch list page by page, and says after each that the process is alive: a long list takes longer
    /// than `health` waits. What fails here the first tick meets again, and tells it.
    async fn load(&self, reporter: &mut report::Reporter, clock: &Clock, pulse: &Pulse) {
        loop {
            let page = async { self.watch_list.follow_page(&mut self.db.read().await?).await };
            match page.await {
                Ok(is_more) => {
                    pulse.beat(clock.now());
                    reporter.say_loaded(&self.db, &self.endpoints, self.watch_list.len(), clock.now()).await;
                    if !is_more {
                        return;
                    }
                }
                Err(error) => {
                    warn!(chain = %self.chain(), "the watch list cannot be read: {error}");
                    return;
                }
            }
        }
    }

    /// Until a person resumes the chain, or `stop`. Says that the process is alive meanwhile.
    async fn await_resumption(
        &mut self,
        reporter: &mut report::Reporter,
        clock: &Clock,
        pulse: &Pulse,
        stop: &CancellationToken,
    ) {
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_FOR_RESUMPTION) => {}
            }
            reporter.say_alive(&self.db, &self.endpoints, clock, pulse).await;
            let met = self.resumed.clone();
            match self.read_orders(clock.now()).await {
                Ok(orders) if met.as_ref().is_some_and(|met| *met != orders.resumed) => {
                    info!(chain = %self.chain(), "{} is resumed", self.chain());
                    return reporter.start_anew();
                }
                Ok(orders) => self.resumed = Some(orders.resumed),
                Err(error) => warn!(chain = %self.chain(), "whether to resume cannot be read: {error}"),
            }
        }
    }

    /// What operators want now.
    async fn orders(&mut self, now: Timestamp) -> Result<Orders, TickError> {
        if self.resumed.is_none()
            && let Some(told) = status::finalized(&mut self.db.read().await?, self.chain()).await?
        {
            self.alarms.take_up(told);
        }
        if self.resumed.is_none() {
            self.note_native(now).await?;
        }
        let orders = self.read_orders(now).await?;
        self.resumed = Some(orders.resumed.clone());
        (self.agree.0)(orders.agree);
        match orders.halted {
            Some(reason) => Err(TickError::HaltedByOperator { chain: self.chain(), reason }),
            None => Ok(orders),
        }
    }

    async fn read_orders(&self, now: Timestamp) -> Result<Orders, StoreError> {
        Ok(Orders::of(overrides::of_chain(&mut self.db.read().await?, self.chain()).await?, now))
    }

    async fn record_incident(&self, kind: IncidentKind, error: &TickError, now: Timestamp) -> Result<(), StoreError> {
        let incident = Incident::open(self.chain(), kind, with_causes(error), error.fork_point(), now);
        let mut tx = self.db.begin().await?;
        let is_new = incidents::meet(&mut tx, &incident).await?;
        tx.commit().await?;
        if is_new {
            error!(chain = %self.chain(), "incident {} on {}: {kind}", incident.id, self.chain());
        }
        Ok(())
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
        let header = &self.anchor(number, tip).await?;
        // A header is one endpoint's word. What stands on a block that is no final one would never be taken back.
        let expected = tip.finalized.filter(|finalized| finalized.number == number);
        if let Some(expected) = expected.filter(|expected| *expected != header.block) {
            let what = format!("block {expected}, to start from, is final, but {} is shown", header.block);
            return Err(TickError::Contradiction { chain: self.chain(), what });
        }
        let mut tx = self.db.begin().await?;
        Cursor::lock(&mut tx, self.chain()).await?;
        cursors::anchor(&mut tx, self.chain(), header).await?;
        Cursor::place(&mut tx, self.chain(), &header.block).await?;
        accounts::raise_from(&mut tx, self.chain(), header.block.number + 1).await?;
        native_settings::begin(&mut tx, self.chain(), header.block.number + 1, &self.network.native).await?;
        tx.commit().await?;
        info!(chain = %self.chain(), "{} is watched from block {}", self.chain(), header.block.number + 1);
        Ok(header.block)
    }
}

impl<S: BlockSource> Watcher<S> {
    /// The block that the first one above `number` stands on: the one at `number`, or where that was skipped an earlier
    /// one, by the parent of the next block that is shown.
    async fn anchor(&self, number: u64, tip: &Tip) -> Result<Header, TickError> {
        if let Some(header) = self.source.headers(number..=number).await?.first() {
            return Ok(*header);
        }
        let missing = |what: String| TickError::Contradiction { chain: self.chain(), what };
        let latest = tip.latest.number;
        let mut last = number;
        for _ in 0..ANCHOR_READS_MAX {
            if last >= latest {
                break;
            }
            let first = last + 1;
            last = latest.min(last.saturating_add(ANCHOR_READ));
            let above = self.source.headers(first..=last).await?;
            let Some(parent) = above.first().map(|header| header.parent).filter(|parent| parent.number <= number)
            else {
                continue;
            };
            let below = self.source.headers(parent.number..=parent.number).await?;
            return below.into_iter().find(|header| header.block == parent).ok_or_else(|| {
                missing(format!("block {parent}, to start from, is what the next one stands on, and is not shown"))
            });
        }
        let what =
            format!("block {number}, to start from, is not there yet, nor one above it that tells what it stands on");
        Err(missing(format!("{what} (the newest is {latest})")))
    }
}

impl std::fmt::Debug for AgreeDoor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AgreeDoor")
    }
}

/// How many numbers one read covers that looks for the block to start above, and how many reads a tick makes for it.
const ANCHOR_READ: u64 = 256;
const ANCHOR_READS_MAX: usize = 16;
/// How often a chain that does nothing says that it is there; `health` misses it after 30 s.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// How often a halted chain looks whether it is resumed, and says that it is there.
const LOOK_FOR_RESUMPTION: Duration = Duration::from_secs(1);
/// A tick that is older is hanging: it no longer counts as a sign of life.
const TICK_TIME_MAX: Duration = Duration::from_secs(600);
/// However long a tick took, this part of the poll is waited for behind it.
const REST_PART: u32 = 4;
/// The longest wait between two tries; well below the 30 s after which `health` misses the heartbeat.
const RETRY_MAX: Duration = Duration::from_secs(10);

/// How long is waited behind a tick that `took` so long, so that the next one begins a `poll` after it; a node that is
/// slower than that is left alone for a while all the same.
fn rest(poll: Duration, took: Duration) -> Duration {
    poll.saturating_sub(took).max(poll / REST_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_begins_a_poll_after_the_one_before_it_unless_that_was_slow() {
        let ms = Duration::from_millis;
        let cases =
            [(100, 0, 100), (100, 55, 45), (100, 75, 25), (100, 90, 25), (100, 400, 25), (0, 400, 0), (0, 0, 0)];
        for (poll, took, expected) in cases {
            assert_eq!(rest(ms(poll), ms(took)), ms(expected), "{poll} {took}");
        }
    }
}
