//! Delivers events to webhooks and sinks: claimed for a time, sent, acknowledged.
//!
//! Promises: at least once; in order per deposit at each webhook; nothing is dropped. A transaction is never open
//! while a receiver is waited for. What a crash interrupts is claimed again when its lease ends.
//!
//! It does not know chains or deposits: only rows with bytes to send. How an attempt is made is `send`'s alone.

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
/// How often new events are looked for.
const POLL: Duration = Duration::from_millis(100);
/// How often that is done in a tick while names are looked up: for longer than one may take.
const NAME_POLLS_MAX: u32 = 60;
/// How soon again when there is more.
const POLL_FOR_MORE: Duration = Duration::from_millis(10);
const POLL_AFTER_ERROR: Duration = Duration::from_secs(1);
/// How long after the first time that what has ended cannot be written down, once it is to stop, it is tried again. Who stops the
/// process may cut that short.
const ACKNOWLEDGE_AFTER_STOP: Duration = Duration::from_secs(5);
/// What has ended is written down together after this time, or when there is so much of it.
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
    /// Where the numbers of this process's claims begin.
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

/// Attempts under way, and those that have ended and are not on record yet: these keep their slots.
#[derive(Debug, Default)]
struct Work {
    attempts: JoinSet<Attempted>,
    ended: Vec<Ended>,
    slots: Slots,
    acknowledge_at: Option<Instant>,
    /// What has ended could not be written down, for the store did not take it.
    is_behind: bool,
    /// When that is given up, where it is to stop.
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

    /// Looks names up with `resolver`.
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

    /// Where all that is due is due at names that were not answered for, it waits until one of them is, or is asked for in vain.
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

    /// Claims, attempts and acknowledges until `stop`; what is under way then is finished first.
    pub async fn run(self, pulse: Pulse, stop: CancellationToken) {
        let mut work = Work::default();
        let mut claim_at = Instant::now();
        loop {
            // Whoever looks at the pulse goes by this machine's clock.
            pulse.beat(self.shared.as_ref().map_or(&self.clock, SharedClock::own).now());
            // When the leases of what could not be written down have ended, a claim would take it for what nobody heard of.
            let may_claim = work.slots.are_free() && !work.is_behind && !stop.is_cancelled();
            let due = work.due();
            tokio::select! {
                Some(ended) = work.attempts.join_next() => work.end(ended),
                () = sleep_until(due), if work.acknowledge_at.is_some() => {
                    if self.acknowledge_all(&mut work, &stop).await {
                        // The next events of these deposits may be due, and slots are free.
                        claim_at = claim_at.min(Instant::now() + POLL_FOR_MORE);
                    }
                }
                () = self.clients.answered(), if may_claim => claim_at = Instant::now(),
                () = sleep_until(claim_at), if may_claim => claim_at = Instant::now() + self.claim_more(&mut work).await,
                () = stop.cancelled(), if work.is_done() => return,
            }
        }
    }

    /// Claims and begins; how long to wait until the next time.
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

    /// A process that stood still between its claim and here sends nothing: the delivery may be another's by now, and
    /// a later event of its deposit may have arrived.
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

    /// Records what has ended; whether all of it is done with. A store that is away is waited for, also for some time once
    /// it is to stop: what arrived meanwhile would be sent twice otherwise.
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
            // Its slot would be lost: the whole worker ends, and is reported.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
        let now = Instant::now();
        let at = self.acknowledge_at.get_or_insert(now + ACKNOWLEDGE_AFTER);
        if self.ended.len() == ACKNOWLEDGE_MAX {
            *at = now.min(*at);
        }
    }

    /// The first so many of what has ended are done with.
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
