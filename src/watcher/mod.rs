//! Follows one chain: finds deposits in proved blocks, undoes reorgs, settles what is final.
//!
//! Promises:
//! - The cursor moves only in the transaction that records everything the blocks up to it credit.
//! - A block is connected only on its parent, so the connected chain hangs together.
//! - CONFIRMED and FAILED are decided only on evidence of a final block of that chain. Its block is read again; where
//!   the chain has no roots to prove a second read by, what was kept of that very block since it was connected is
//!   enough.
//!
//! A tick is bounded, may be dropped at any await, and starts from what is on record. Live and catch-up are one path.

mod assets;
mod balances;
mod books;
mod error;
pub mod explain;
mod follow;
mod past;
mod read;
mod retries;
mod settle;
mod traces;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use landfall_chain::{
    BlockRef, BlockSource, Chain, Endpoints, NativeSource, Network, ReadProof, SourceErrorKind, Tip, with_causes,
};
use tokio::sync::Notify;
use tracing::error;

use crate::incident::{Incident, IncidentKind};
use crate::overrides::{Decision, Override, Overrides};
use crate::store::cursors::Cursor;
use crate::store::{Connection, Db, StoreError, incidents, overrides, status};
use crate::time::Timestamp;

pub use assets::AssetWatch;
pub use balances::{BalanceWatch, BalancesRead};
use books::Books;
pub use books::movements::Movement;
use books::senders::Senders;
pub use error::{Replaced, TickError};
use follow::alarms::Alarms;
pub use follow::alarms::block_stall;
use follow::connect;
pub use past::backfill::{Backfill, Job, Scope};
pub use past::progress::{Pace, search_line};
pub use past::rescan::{Difference, Rescan};
pub use past::{BackfillError, Progress, Span};
use retries::Retries;
use settle::reported_blocks::ReportedBlocks;
pub use traces::{TraceLane, Traced, not_traced};

/// How often an idle chain reports that it is alive; `health` misses it after 30 s.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The longest wait between two tries; well below the 30 s after which `health` misses the heartbeat.
const RETRY_MAX: Duration = Duration::from_secs(10);
/// How long to wait before a final block that was not shown is asked for again. To read it costs megabytes where two
/// endpoints must report it.
const WITHHELD_PAUSE_FIRST: Duration = Duration::from_secs(1);
const WITHHELD_PAUSE_MAX: Duration = Duration::from_secs(60);

/// How a chain is followed, beyond what its network fixes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The first block to read, while no cursor is on record.
    pub start: Start,
    /// How strongly a block is proved before it is connected. One that credits is proved in full all the same.
    pub proof: ReadProof,
    /// How often the newest block is asked for while there is nothing to catch up with: the time from the start of one
    /// tick to the start of the next.
    pub poll: Duration,
    /// How long a deposit may be in no block, after its height became final, before it is FAILED.
    pub failed_grace: Duration,
    /// How long the newest final block may stand still before it is an alarm; `None` leaves it to the network's rule.
    pub finality_stall: Option<Duration>,
    /// How long the newest block may stay the same before it is an alarm; `None` where blocks come on demand.
    pub block_stall: Option<Duration>,
}

/// Sets how many endpoints of a source must agree on what is final: an operator's number, or `None` for the usual one.
pub struct AgreeDoor(Box<dyn Fn(Option<u32>) + Send + Sync>);

/// Where to start following a chain that was never watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// Above the newest final block.
    Finalized,
    /// At this block, inclusive: with 100, block 100 is the first that is read.
    Number(u64),
}

#[derive(Debug)]
pub struct Follower<S> {
    books: Books<S>,
    endpoints: Endpoints,
    settings: Settings,
    wake_up: Arc<Notify>,
    /// How many blocks a read asks for now.
    read_width: u64,
    /// Above which block, and up to which number, the source showed no block in the last tick.
    absent: Option<connect::Absent>,
    alarms: Alarms,
    payers: Senders,
    /// For replacing a record by what two report: a success of other requests does not end this wait.
    replacing_record: Senders,
    agree: AgreeDoor,
    reported: ReportedBlocks,
    /// Final blocks that are not shown as they must be: their deposits wait, and nothing else does.
    withheld: Retries<BlockRef>,
    /// The block from which the next tick settles: those below had their turn.
    settle_from: u64,
    /// What an earlier watcher warned of was loaded.
    has_taken_up: bool,
    /// The setting with which the chain is followed from here on is on record.
    has_noted_native: bool,
    /// The id of the last resumption that a tick met; `None` before the first tick.
    resumed: Option<String>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ticked {
    pub disconnected: u64,
    pub connected: u64,
    /// Deposits that became PENDING, including those that became so again.
    pub pending: u64,
    pub confirmed: u64,
    pub failed: u64,
    /// How many numbers are left to the newest block.
    pub behind: u64,
    /// The cursor stands at the newest block.
    pub caught_up: bool,
    /// More is final than one tick settles.
    pub more_to_settle: bool,
    /// Since when no newer block has been reported, if that is too long: then being caught up says little.
    pub still_since: Option<Timestamp>,
    pub tip: Option<Tip>,
}

impl<S: BlockSource> Follower<S> {
    pub fn new(source: S, endpoints: Endpoints, db: Db, network: Network, settings: Settings) -> Self {
        let stall_after = settings.finality_stall.unwrap_or_else(|| follow::alarms::stall_after(&network));
        let alarms = Alarms::new(stall_after, settings.block_stall);
        let (read_width, agree) = (read::READ_BLOCKS_MAX, AgreeDoor(Box::new(|_| ())));
        Follower {
            books: Books::new(source, db, network),
            endpoints,
            settings,
            wake_up: Arc::default(),
            read_width,
            absent: None,
            alarms,
            payers: Senders::default(),
            replacing_record: Senders::default(),
            agree,
            reported: ReportedBlocks::default(),
            withheld: Retries::new(WITHHELD_PAUSE_FIRST, WITHHELD_PAUSE_MAX),
            settle_from: 0,
            has_taken_up: false,
            has_noted_native: false,
            resumed: None,
        }
    }

    /// Adds a signal that starts a tick before the next poll is due.
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

    /// The worker that settles what was found by traces while the network was still traced.
    pub fn leftover_lane(&self) -> TraceLane<S>
    where
        S: Clone,
    {
        TraceLane::new(self.books.clone(), self.settings)
    }

    /// At each tick, passes to `door` how many endpoints must agree by an operator's override (`None`: no override).
    #[must_use]
    pub fn with_agree(mut self, door: impl Fn(Option<u32>) + Send + Sync + 'static) -> Self {
        self.agree = AgreeDoor(Box::new(door));
        self
    }

    /// The alarms that are on now.
    pub fn alarms(&self, now: Timestamp) -> Vec<String> {
        self.alarms.texts(now)
    }

    /// One bounded step: overrides, tip, fork point, connect, settle. When it returns, what a person must look at is on
    /// record as an incident.
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
        let tip = self.source.tip().await;
        self.alarms.responses(&self.endpoints.snapshot(), now);
        let tip = tip?;
        self.alarms.observe(&tip, now);
        let still_since = self.alarms.still_since();
        let mut ticked = Ticked { tip: Some(tip.clone()), still_since, ..Ticked::default() };
        let cursor = Cursor::load(&mut self.db.read().await?, self.chain()).await?;
        let mut at = match cursor.at {
            Some(at) => at,
            None => self.anchor(&tip).await?,
        };
        if self.is_off_chain(&at, &tip).await? {
            at = match self.disconnect(&at, &tip, &orders, now, &mut ticked).await? {
                Some(fork_point) => fork_point,
                // The anchor block is gone, and nothing stood on it.
                None => return Ok(ticked),
            };
        } else if let Some(finalized) = cursor.finalized {
            self.refuse_set_back(&finalized, &tip)?;
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
        let is_stuck = ticked.connected + ticked.disconnected == 0 && self.absent.is_none();
        if at.number < tip.latest.number && is_stuck && connected.unread.is_none() {
            let what = match connected.stray {
                // A false parent link leads to no fork.
                Some(next) => format!("block {} is shown next, and stands on {}, not on {at}", next.block, next.parent),
                None => format!("the newest block is {}, but no block on top of {at} is shown", tip.latest),
            };
            return Err(TickError::Contradiction { chain: self.chain(), what });
        }
        // A disagreement is returned as an error after everything else is done.
        let mut disputed = Ok(());
        match self.cross_check(&at, &tip, &orders).await {
            Ok(None) => self.alarms.looked(None, now),
            Ok(Some(number)) => at = self.disconnect_to(&at, number, &orders, now, &mut ticked).await?,
            // An endpoint that cannot be reached delays only what would become final by it.
            Err(TickError::Source(error)) if !error.is_disputed && error.kind == SourceErrorKind::Transient => {
                self.alarms.looked(Some(with_causes(&error)), now);
            }
            Err(error) => {
                self.reported.forget_alone();
                disputed = Err(error);
            }
        }
        if ticked.disconnected > 0 {
            self.alarms.taken_back(&tip, now);
            ticked.still_since = None;
        }
        self.alarms.reached(&at, cursor.finalized.as_ref(), &tip);
        self.settle(&at, &tip, &orders, now, &mut ticked).await?;
        disputed?;
        if let Some(error) = connected.unread {
            return Err(error.into());
        }
        ticked.behind = tip.latest.number.saturating_sub(at.number);
        ticked.caught_up = ticked.behind == 0;
        Ok(ticked)
    }

    /// A source that ends below what is final here knows less than we do, so its reports are refused.
    fn refuse_set_back(&self, finalized: &BlockRef, tip: &Tip) -> Result<(), TickError> {
        let newest = tip.finalized.filter(|reported| reported.number > tip.latest.number).unwrap_or(tip.latest);
        if newest.number >= finalized.number {
            return Ok(());
        }
        let what = format!(
            "the newest block is told to be {newest}, below block {finalized}, which is final here: what the endpoints \
             know was set back, or lags far behind"
        );
        Err(TickError::Contradiction { chain: self.chain(), what })
    }

    /// Loads, once, what an earlier watcher warned of.
    async fn take_up_alarms(&mut self) -> Result<(), StoreError> {
        if !self.has_taken_up {
            if let Some(reported) = status::last(&mut self.db.read().await?, self.chain()).await? {
                self.alarms.resume(reported);
            }
            self.has_taken_up = true;
        }
        Ok(())
    }

    /// The overrides that apply now; an error if an operator has halted the chain.
    async fn orders(&mut self, now: Timestamp) -> Result<Overrides, TickError> {
        self.take_up_alarms().await?;
        if !self.has_noted_native {
            self.note_native(now).await?;
            self.has_noted_native = true;
        }
        let orders = self.read_orders(now).await?;
        self.resumed = Some(orders.resumed.clone());
        (self.agree.0)(orders.agree);
        match orders.halted {
            Some(reason) => Err(TickError::HaltedByOperator { chain: self.chain(), reason }),
            None => Ok(orders),
        }
    }

    async fn read_orders(&self, now: Timestamp) -> Result<Overrides, StoreError> {
        Ok(Overrides::of(overrides::of_chain(&mut self.db.read().await?, self.chain()).await?, now))
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
}

/// Source, store, network and watch list are the watcher's own.
impl<S> Deref for Follower<S> {
    type Target = Books<S>;

    fn deref(&self) -> &Books<S> {
        &self.books
    }
}

/// Why nothing may be settled on the chain now, by any process: a person has halted it, or must decide.
async fn halted(connection: &mut impl Connection, chain: Chain) -> Result<Option<TickError>, StoreError> {
    let decisions = overrides::of_chain(connection, chain).await?;
    // A halt has no end but a resumption, which removes it.
    if let Some(Decision { reason, .. }) = decisions.into_iter().find(|decision| decision.action == Override::Halt) {
        return Ok(Some(TickError::HaltedByOperator { chain, reason }));
    }
    let halted = status::halted(connection, chain).await?;
    Ok(halted.map(|_| TickError::Halted { chain }))
}

impl std::fmt::Debug for AgreeDoor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AgreeDoor")
    }
}
