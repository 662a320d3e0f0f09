//! Delivers events to webhooks: claimed for a time, signed, sent, acknowledged.
//!
//! Promises: at least once; in order per deposit at each webhook; nothing is dropped. A transaction is never open
//! while a receiver is waited for. What a crash interrupts is claimed again when its lease ends.
//!
//! It does not know chains or deposits: only rows with bytes to send.

mod client;
mod schedule;
mod send;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use landfall_chain::retry::jitter;
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};

use crate::delivery::client::Clients;
use crate::resolver::Resolver;
use crate::store::deliveries::{self, AttemptLog, Claimed};
use crate::store::{Db, StoreError};
use crate::time::{Clock, Pulse, Timestamp};

/// How many attempts are under way at once.
const IN_FLIGHT_MAX: usize = 32;
/// Longer than an attempt can take, so that nobody else takes over one that is still under way.
const LEASE: Duration = Duration::from_secs(60);
/// How often new events are looked for.
const POLL: Duration = Duration::from_millis(200);
const POLL_AFTER_ERROR: Duration = Duration::from_secs(1);

/// Sends what is due.
#[derive(Clone, Debug)]
pub struct Delivery {
    db: Db,
    clients: Arc<Clients>,
    clock: Clock,
    random: fn() -> u64,
}

/// What a tick did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Delivered {
    pub delivered: usize,
    pub to_be_retried: usize,
}

impl Delivery {
    /// # Errors
    /// When the HTTP client cannot be built, for example without any root certificates.
    pub fn new(db: Db, clock: Clock, random: fn() -> u64) -> Result<Self, reqwest::Error> {
        Ok(Delivery { db, clients: Arc::new(Clients::new(Resolver::system())?), clock, random })
    }

    /// Looks names up with `resolver`.
    ///
    /// # Errors
    /// As [`Delivery::new`].
    pub fn resolving_by(self, resolver: Resolver) -> Result<Self, reqwest::Error> {
        Ok(Delivery { clients: Arc::new(Clients::new(resolver)?), ..self })
    }

    /// One bounded step: claims what is due, attempts all of it, acknowledges all of it.
    ///
    /// # Errors
    /// When the store fails; what was sent but not acknowledged is sent again later.
    pub async fn tick(&self) -> Result<Delivered, StoreError> {
        let claimed = self.claim(IN_FLIGHT_MAX).await?;
        let mut attempts: FuturesUnordered<_> = claimed.into_iter().map(|claimed| self.attempt(claimed)).collect();
        let mut done = Delivered::default();
        while let Some((claimed, log)) = attempts.next().await {
            if self.acknowledge(&claimed, &log).await? {
                done.delivered += 1;
            } else {
                done.to_be_retried += 1;
            }
        }
        Ok(done)
    }

    /// Claims, attempts and acknowledges until `stop`; what is under way then is finished first.
    pub async fn run(self, pulse: Pulse, stop: CancellationToken) {
        let mut attempts = FuturesUnordered::new();
        let mut pause = Duration::ZERO;
        loop {
            pulse.beat(self.clock.now());
            tokio::select! {
                Some((claimed, log)) = attempts.next() => {
                    if let Err(error) = self.acknowledge(&claimed, &log).await {
                        warn!("{claimed:?} is not acknowledged and will be sent again: {error}");
                    }
                    // Its deposit's next event may be due.
                    pause = Duration::ZERO;
                }
                () = tokio::time::sleep(pause), if attempts.len() < IN_FLIGHT_MAX && !stop.is_cancelled() => {
                    pause = match self.claim(IN_FLIGHT_MAX - attempts.len()).await {
                        Ok(claimed) => {
                            attempts.extend(claimed.into_iter().map(|claimed| self.attempt(claimed)));
                            POLL
                        }
                        Err(error) => {
                            warn!("deliveries cannot be claimed and will be tried again: {error}");
                            POLL_AFTER_ERROR
                        }
                    };
                }
                () = stop.cancelled(), if attempts.is_empty() => return,
            }
        }
    }

    async fn claim(&self, limit: usize) -> Result<Vec<Claimed>, StoreError> {
        let now = self.clock.now();
        let mut tx = self.db.begin().await?;
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let claimed = deliveries::claim(&mut tx, now, now.plus(LEASE), limit).await?;
        tx.commit().await?;
        Ok(claimed)
    }

    async fn attempt(&self, claimed: Claimed) -> (Claimed, AttemptLog) {
        let log = send::attempt(&self.clients, &claimed, &self.clock).await;
        (claimed, log)
    }

    /// Records how the attempt went; whether it arrived.
    async fn acknowledge(&self, claimed: &Claimed, log: &AttemptLog) -> Result<bool, StoreError> {
        let arrived = log.error.is_empty();
        let mut tx = self.db.begin().await?;
        let held = if arrived {
            deliveries::delivered(&mut tx, claimed).await?
        } else {
            deliveries::retry_at(&mut tx, claimed, self.next_attempt(claimed.attempt)).await?
        };
        deliveries::log(&mut tx, claimed, log).await?;
        tx.commit().await?;
        if !held {
            warn!("{claimed:?} ended after its lease, or was acknowledged before");
        } else if arrived {
            debug!(event = %claimed.event_id, webhook = %claimed.webhook_id, "{claimed:?} arrived");
        } else {
            warn!(event = %claimed.event_id, webhook = %claimed.webhook_id, "{claimed:?} failed: {}", log.error);
        }
        Ok(arrived)
    }

    fn next_attempt(&self, attempt: u32) -> Timestamp {
        self.clock.now().plus(jitter(schedule::wait_after(attempt), (self.random)()))
    }
}
