//! Delivers events to webhooks and sinks: claimed for a time, sent, acknowledged.
//!
//! Promises: at least once; in order per deposit at each webhook; nothing is dropped. No transaction is open while a
//! receiver is waited for. What a crash interrupts is claimed again when its lease ends.
//!
//! It knows neither chains nor deposits: only rows with bytes to send. How an attempt is made is decided by `send`
//! alone.

mod acknowledge;
mod ahead;
mod breaker;
mod claim;
mod client;
mod complaints;
mod nats;
mod schedule;
mod send;
mod shared_clock;
mod slots;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_chain::retry::jitter;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::delivery::client::Clients;
use crate::resolver::Resolver;
use crate::store::deliveries::{AttemptLog, Claimed};
use crate::store::{Db, StoreError};
use crate::time::{Clock, Pulse};
use acknowledge::Ended;
use ahead::Ahead;
use claim::Found;
use complaints::Complaints;
use shared_clock::SharedClock;
use slots::Slots;

pub use nats::{DUPLICATE_WINDOW, Nats, NatsOptions, REPLICAS_MAX};

/// Longer than an attempt can take, so that nobody else takes over one that is still under way.
const LEASE: Duration = Duration::from_secs(60);
/// How often new events are searched for.
const POLL: Duration = Duration::from_millis(100);
/// How often a tick claims again while names are being resolved: together longer than a name may take.
const NAME_POLLS_MAX: u32 = 60;
/// How soon it claims again if more is due.
const POLL_FOR_MORE: Duration = Duration::from_millis(10);
const POLL_AFTER_ERROR: Duration = Duration::from_secs(1);
/// For how long a stopping process tries again to record ended attempts, counted from the first failure. The supervisor
/// may cut that short.
const ACKNOWLEDGE_AFTER_STOP: Duration = Duration::from_secs(5);
/// Ended attempts are recorded together after this time, or when there are [`ACKNOWLEDGE_MAX`].
const ACKNOWLEDGE_AFTER: Duration = Duration::from_millis(20);
const ACKNOWLEDGE_MAX: usize = 100;

/// Sends what is due.
#[derive(Clone, Debug)]
pub struct Delivery {
    db: Db,
    clients: Arc<Clients>,
    nats: Option<Arc<Nats>>,
    clock: Clock,
    random: fn() -> u64,
    /// The number at which this process's claims begin.
    owner: u64,
    ahead: Arc<Mutex<Ahead>>,
    complaints: Arc<Mutex<Complaints>>,
    shared: Option<SharedClock>,
}

/// What a tick did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Delivered {
    pub delivered: usize,
    pub to_be_retried: usize,
}

/// A delivery, and how its attempt went; `None` when it was not made.
type Attempted = (Claimed, Option<AttemptLog>);

/// Attempts under way, and ended ones that are not on record yet. Both hold their slots.
#[derive(Debug, Default)]
struct Work {
    attempts: JoinSet<Attempted>,
    ended: Vec<Ended>,
    slots: Slots,
    acknowledge_at: Option<Instant>,
    /// The store refused to record the ended attempts.
    is_behind: bool,
    /// When a stopping process gives up recording them.
    give_up_at: Option<Instant>,
}

impl Delivery {
    /// # Errors
    /// When the HTTP client cannot be built, for example without any root certificates.
    pub fn new(db: Db, clock: Clock, random: fn() -> u64) -> Result<Self, reqwest::Error> {
        Ok(Delivery {
            db,
            clients: Arc::new(Clients::new(Resolver::system())?),
            nats: None,
            clock,
            random,
            owner: random(),
            ahead: Arc::default(),
            complaints: Arc::default(),
            shared: None,
        })
    }

    /// Resolves names with `resolver`.
    ///
    /// # Errors
    /// As [`Delivery::new`].
    pub fn resolving_by(self, resolver: Resolver) -> Result<Self, reqwest::Error> {
        Ok(Delivery { clients: Arc::new(Clients::new(resolver)?), ..self })
    }

    /// Publishes to a stream, too.
    pub fn publishing_to(self, nats: Arc<Nats>) -> Self {
        Delivery { nats: Some(nats), ..self }
    }

    /// One bounded step: claims what is due and has a slot, attempts all of it, acknowledges all of it.
    ///
    /// # Errors
    /// When the store fails; what was sent but not acknowledged is sent again later.
    pub async fn tick(&self) -> Result<Delivered, StoreError> {
        let mut work = Work::default();
        let found = self.claim_awaiting_names(&work.slots).await?;
        self.begin(&mut work, found);
        let mut done = Delivered::default();
        while !work.is_done() {
            let due = work.due();
            tokio::select! {
                Some(ended) = work.attempts.join_next() => work.end(ended),
                () = sleep_until(due), if work.acknowledge_at.is_some() => {
                    let Delivered { delivered, to_be_retried } = self.acknowledge(&work.ended).await?;
                    work.acknowledged(work.ended.len());
                    done.delivered += delivered;
                    done.to_be_retried += to_be_retried;
                }
            }
        }
        Ok(done)
    }

    /// Claims. If everything that is due waits for names, it waits until one of them is answered, or its time for an
    /// answer is over.
    async fn claim_awaiting_names(&self, slots: &Slots) -> Result<Found, StoreError> {
        for _ in 0..NAME_POLLS_MAX {
            let found = self.claim(slots).await?;
            if !(found.awaits_names && found.claimed.is_empty()) {
                return Ok(found);
            }
            let _ = tokio::time::timeout(POLL, self.clients.answered()).await;
        }
        self.claim(slots).await
    }

    /// Claims, attempts and acknowledges until `stop`, then finishes what is under way.
    pub async fn run(self, pulse: Pulse, stop: CancellationToken) {
        let mut work = Work::default();
        let mut claim_at = Instant::now();
        loop {
            // Readers of the pulse compare it with this machine's clock.
            pulse.beat(self.shared.as_ref().map_or(&self.clock, SharedClock::own).now());
            // While ended attempts are not on record, nothing is claimed: once their leases end, a claim would make
            // these attempts again.
            let may_claim = work.slots.are_free() && !work.is_behind && !stop.is_cancelled();
            let due = work.due();
            tokio::select! {
                Some(ended) = work.attempts.join_next() => work.end(ended),
                () = sleep_until(due), if work.acknowledge_at.is_some() => {
                    if self.acknowledge_all(&mut work, &stop).await {
                        // The next events of these deposits may be due now, and slots are free.
                        claim_at = claim_at.min(Instant::now() + POLL_FOR_MORE);
                    }
                }
                () = self.clients.answered(), if may_claim => claim_at = Instant::now(),
                () = sleep_until(claim_at), if may_claim => claim_at = Instant::now() + self.claim_more(&mut work).await,
                () = stop.cancelled(), if work.is_done() => return,
            }
        }
    }

    /// Claims and begins attempts; returns the pause until the next claim.
    async fn claim_more(&self, work: &mut Work) -> Duration {
        match self.claim(&work.slots).await {
            Ok(found) => {
                let more = found.more || !found.claimed.is_empty();
                self.begin(work, found);
                if more { POLL_FOR_MORE } else { jitter(POLL, (self.random)()) }
            }
            Err(error) => {
                warn!("deliveries cannot be claimed and will be tried again: {error}");
                POLL_AFTER_ERROR
            }
        }
    }

    /// Begins attempts. A process that was paused between its claim and here sends nothing: by now the delivery may be
    /// another's, and a later event of its deposit may have arrived.
    fn begin(&self, work: &mut Work, found: Found) {
        let Found { claimed, slots, begin_by, begin_within, .. } = found;
        work.slots = slots;
        for claimed in claimed {
            let (clients, nats, clock) = (Arc::clone(&self.clients), self.nats.clone(), self.clock.clone());
            work.attempts.spawn(async move {
                if clock.now() > begin_by || Instant::now() > begin_within {
                    return (claimed, None);
                }
                let log = send::attempt(&clients, nats.as_deref(), &claimed, &clock).await;
                (claimed, Some(log))
            });
        }
    }

    /// Records the ended attempts; whether all of them are done. It waits for a store that is away, for some time even
    /// after `stop`: otherwise the events that arrived would be sent twice.
    async fn acknowledge_all(&self, work: &mut Work, stop: &CancellationToken) -> bool {
        let (done, error) = match self.acknowledge(&work.ended).await {
            Ok(_) => (work.ended.len(), None),
            Err(error) if error.may_pass() => (0, Some(error)),
            Err(_) => self.acknowledge_each(&work.ended).await,
        };
        work.acknowledged(done);
        let Some(error) = error else { return true };
        let (left, now) = (work.ended.len(), Instant::now());
        if stop.is_cancelled() && *work.give_up_at.get_or_insert(now + ACKNOWLEDGE_AFTER_STOP) <= now {
            warn!("{left} attempts are not acknowledged and will be made again: {error}");
            work.acknowledged(left);
            return true;
        }
        warn!("{left} attempts cannot be acknowledged and will be tried again: {error}");
        work.acknowledge_at = Some(now + POLL_AFTER_ERROR);
        work.is_behind = true;
        false
    }
}

impl Work {
    fn end(&mut self, ended: Result<Attempted, JoinError>) {
        match ended {
            Ok((claimed, Some(log))) => self.ended.push((claimed, log)),
            Ok((claimed, None)) => {
                warn!("{claimed:?} is not made: too little of its lease is left");
                return self.slots.free(&claimed);
            }
            // Its slot would be lost, so the whole worker ends, and is reported.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
        let now = Instant::now();
        let at = self.acknowledge_at.get_or_insert(now + ACKNOWLEDGE_AFTER);
        if self.ended.len() == ACKNOWLEDGE_MAX {
            *at = now.min(*at);
        }
    }

    /// The first `count` of the ended attempts are done.
    fn acknowledged(&mut self, count: usize) {
        self.ended.drain(..count).for_each(|(claimed, _)| self.slots.free(&claimed));
        self.acknowledge_at = None;
        self.is_behind = false;
    }

    fn due(&self) -> Instant {
        self.acknowledge_at.unwrap_or_else(Instant::now)
    }

    fn is_done(&self) -> bool {
        self.attempts.is_empty() && self.ended.is_empty()
    }
}
