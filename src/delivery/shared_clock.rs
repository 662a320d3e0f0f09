//! Deliveries on several machines use one clock, the database's. Leases are times: a machine whose clock is ahead would
//! see the leases of others as ended, and one whose clock is behind would lose its own to others.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use crate::delivery::Delivery;
use crate::store::{StoreError, shared_clock};
use crate::time::{Clock, Timestamp};

/// How often the clocks are compared.
const EVERY: Duration = Duration::from_secs(60);
/// An answer that took longer says too little.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// Clocks that differ by less count as one: the lease has time to spare for it.
pub(super) const DIFFERENCE_MAX: Duration = Duration::from_secs(10);

/// How far the database's clock is ahead of this machine's; 0 while the two count as one.
#[derive(Clone, Debug)]
pub(super) struct SharedClock {
    own: Clock,
    ahead_us: Arc<AtomicI64>,
    looked_at: Arc<Mutex<Option<Instant>>>,
}

impl SharedClock {
    /// This machine's clock.
    pub(super) fn own(&self) -> &Clock {
        &self.own
    }

    fn is_fresh(&self) -> bool {
        let looked_at = self.looked_at.lock().unwrap_or_else(PoisonError::into_inner);
        looked_at.is_some_and(|at| at.elapsed() < EVERY)
    }
}

impl Delivery {
    /// Uses the database's clock from now on, where machines share a database.
    #[must_use]
    pub fn by_the_shared_clock(self) -> Self {
        let (own, ahead_us) = (self.clock.clone(), Arc::new(AtomicI64::new(0)));
        let shared = SharedClock { own: own.clone(), ahead_us: Arc::clone(&ahead_us), looked_at: Arc::default() };
        let now = move || Timestamp(own.now().0.saturating_add(ahead_us.load(Ordering::Relaxed)));
        Delivery { clock: Clock::new(now), shared: Some(shared), ..self }
    }

    /// Asks the database for its time now and then.
    pub(super) async fn set_clock(&self) -> Result<(), StoreError> {
        let Some(shared) = self.shared.as_ref().filter(|shared| !shared.is_fresh()) else { return Ok(()) };
        let mut reader = self.db.read().await?;
        let (asked, began) = (shared.own.now(), Instant::now());
        let theirs = shared_clock::now(&mut reader).await?;
        let took = began.elapsed();
        if took > ANSWER_MAX {
            return Ok(());
        }
        *shared.looked_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(began);
        let Some(theirs) = theirs else { return Ok(()) };
        let difference = theirs.0.saturating_sub(asked.plus(took / 2).0);
        let is_wrong = Duration::from_micros(difference.unsigned_abs()) > DIFFERENCE_MAX;
        let was_wrong = shared.ahead_us.swap(if is_wrong { difference } else { 0 }, Ordering::Relaxed) != 0;
        if is_wrong && !was_wrong {
            let (secs, which) = (difference.abs() / 1_000_000, if difference < 0 { "ahead of" } else { "behind" });
            warn!("this machine's clock is {secs} s {which} the database's, by which deliveries go");
        }
        Ok(())
    }
}
