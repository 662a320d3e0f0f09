//! Numbers events for the feed: one process at a time, under a lease, in the order in which they were committed.
//!
//! Promises: each event has one number, given once. Numbers have no gaps, so a client that reads on after the last
//! number it has seen misses nothing, not even an event whose transaction was open for long. Of one deposit an earlier
//! event has the lower number. A number is written in a transaction that holds the lease. So a holder that was paused,
//! and goes on after another has taken over, writes nothing. Events are written elsewhere; nobody else writes numbers.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::lease::Turn;
use crate::store::{Db, StoreError, feed};
use crate::time::{Clock, Pulse, Timestamp};

const LEASE_NAME: &str = "feed";
/// After so long without a report from the holder, another process may take over.
const LEASE: Duration = Duration::from_secs(10);
/// How many events one transaction numbers, give or take a few.
const BATCH: u32 = 500;
/// How often events without a number are searched for.
const POLL: Duration = Duration::from_millis(100);
/// How often a process without the lease checks whether it is free. Also how soon it tries again after an error.
const POLL_ASIDE: Duration = Duration::from_secs(1);

/// Numbers events, when it is its turn.
#[derive(Debug)]
pub struct Numberer {
    db: Db,
    turn: Turn,
}

/// What a tick did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ticked {
    /// Another process has the lease.
    Aside,
    /// So many events were numbered; there may be more.
    Numbered(u64),
}

impl Numberer {
    /// A numberer that `owner` distinguishes from all others.
    pub fn new(db: Db, owner: String) -> Self {
        Numberer { db, turn: Turn::new(LEASE_NAME, owner, LEASE) }
    }

    /// One bounded step: takes the lease if it is free, numbers a batch if there is one.
    ///
    /// # Errors
    /// When the store fails; nothing is half done.
    pub async fn tick(&mut self, now: Timestamp) -> Result<Ticked, StoreError> {
        if !self.turn.is_ours() {
            if !self.turn.take(&self.db, now).await? {
                return Ok(Ticked::Aside);
            }
            info!("this process numbers the events of the feed");
            return self.number(now).await;
        }
        let mut reader = self.db.read().await?;
        let has_work = feed::oldest_unnumbered(&mut reader).await?.is_some();
        drop(reader);
        if !has_work && !self.turn.is_due(now) {
            return Ok(Ticked::Numbered(0));
        }
        self.number(now).await
    }

    /// Ticks until `stop`, then releases the lease.
    pub async fn run(mut self, clock: Clock, pulse: Pulse, stop: CancellationToken) {
        while !stop.is_cancelled() {
            pulse.beat(clock.now());
            let pause = match self.tick(clock.now()).await {
                Ok(Ticked::Numbered(0)) => POLL,
                Ok(Ticked::Numbered(_)) => Duration::ZERO,
                Ok(Ticked::Aside) => POLL_ASIDE,
                Err(error) => {
                    warn!("events cannot be numbered for the feed and will be tried again: {error}");
                    POLL_ASIDE
                }
            };
            stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        }
        if let Err(error) = self.release().await {
            warn!("the lease of the feed runs out by itself, since it cannot be given up: {error}");
        }
    }

    /// Releases the lease, so that another process may take over at once.
    ///
    /// # Errors
    /// When the store fails: then the lease runs out by itself.
    pub async fn release(&mut self) -> Result<(), StoreError> {
        self.turn.release(&self.db).await
    }

    /// Numbers a batch, if the lease is still held.
    async fn number(&mut self, now: Timestamp) -> Result<Ticked, StoreError> {
        let mut tx = self.db.begin().await?;
        // First of all, because it keeps all others from numbering up to the commit.
        if !self.turn.hold(&mut tx, now).await? {
            warn!("another process has taken over the numbering of the feed; this one writes nothing");
            return Ok(Ticked::Aside);
        }
        let numbered = feed::number(&mut tx, BATCH).await?;
        tx.commit().await?;
        self.turn.held(now);
        Ok(Ticked::Numbered(numbered))
    }
}
