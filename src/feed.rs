//! Numbers events for the feed: one process at a time, under a lease, in the order in which they were committed.
//!
//! Promises: each event has one number, given once; numbers have no gaps, so who reads on behind the last one that was
//! seen misses nothing, also no event whose transaction was open for long; of one deposit an earlier event has the lower
//! number. A number is written in a transaction that holds the lease, so a holder that was paused and goes on after
//! another has taken over writes nothing. Events are written elsewhere; nobody else writes numbers.

use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::lease::Turn;
use crate::store::{Db, StoreError, feed};
use crate::time::{Clock, Pulse, Timestamp};

const LEASE_NAME: &str = "feed";
/// How long nobody else takes over from a holder that says nothing.
const LEASE: Duration = Duration::from_secs(10);
/// How many events one transaction numbers, or a few more.
const BATCH: u32 = 500;
/// How often unnumbered events are looked for.
const POLL: Duration = Duration::from_millis(100);
/// How often who does not hold the lease looks whether it is free, and who has failed tries again.
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
    /// A numberer that differs from all others by `owner`.
    pub fn new(db: Db, owner: String) -> Self {
        Numberer { db, turn: Turn::new(LEASE_NAME, owner, LEASE) }
    }

    /// One bounded step: takes the lease where it is free, numbers a batch where there is one.
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

    /// Ticks until `stop`, and lets somebody else take over then.
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

    /// Lets somebody else take over at once.
    ///
    /// # Errors
    /// When the store fails: then the lease runs out by itself.
    pub async fn release(&mut self) -> Result<(), StoreError> {
        self.turn.release(&self.db).await
    }

    /// Numbers a batch, when the lease is still held.
    async fn number(&mut self, now: Timestamp) -> Result<Ticked, StoreError> {
        let mut tx = self.db.begin().await?;
        // First: it keeps all others from numbering up to the commit.
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
