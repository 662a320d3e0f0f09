//! Deliveries that a clock running ahead has put off: none waits for a time that no rule of ours gives.
//!
//! Promises: whatever a clock wrote while it was ahead, the event is attempted within two minutes of our own clock, or
//! by its schedule. A lease may be that of another process, whose clock is not ours. So it ends only after we have seen
//! it for as long as a lease lasts, and then its attempt is over.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tracing::warn;

use crate::delivery::{Delivery, LEASE, schedule};
use crate::store::StoreError;
use crate::store::ahead::{self, AheadLease, Bounds};
use crate::time::Timestamp;

/// Clocks of processes may differ by so much without any consequence.
const TOLERANCE: Duration = Duration::from_secs(60);
/// How often the record is searched for such times.
const EVERY: Duration = Duration::from_secs(60);
/// An event that waits for an earlier one is due again within this time.
const WAITING_MAX: Duration = Duration::from_secs(60 * 60);
/// After so many failures the waits are still short.
const SOON_FAILURES: u32 = 5;

/// When the record was last searched, and the leases that end too far ahead: of which endpoint, and since when we have
/// seen them.
#[derive(Debug)]
pub(super) struct Ahead {
    looked_at: Timestamp,
    seen: BTreeMap<(String, AheadLease), Timestamp>,
}

impl Default for Ahead {
    fn default() -> Self {
        Ahead { looked_at: Timestamp(i64::MIN), seen: BTreeMap::new() }
    }
}

impl Delivery {
    /// Searches for such times now and then, and also when our own clock went back.
    pub(super) async fn bring_back(&self, now: Timestamp) -> Result<(), StoreError> {
        let looked_at = lock(&self.ahead).looked_at;
        if looked_at <= now && now.since(looked_at) < EVERY {
            return Ok(());
        }
        let bounds = bounds(now);
        let mut reader = self.db.read().await?;
        let endpoints = ahead::endpoints(&mut reader, bounds).await?;
        let mut leases = Vec::new();
        for id in &endpoints {
            let of_endpoint = ahead::leases(&mut reader, id, bounds).await?;
            leases.extend(of_endpoint.into_iter().map(|lease| (id.clone(), lease)));
        }
        drop(reader);
        let over = lock(&self.ahead).see(leases, now);
        if !endpoints.is_empty() {
            let mut tx = self.db.begin().await?;
            let mut count = 0;
            for id in &endpoints {
                count += ahead::make_due(&mut tx, id, bounds).await?;
            }
            for (id, lease) in &over {
                count += ahead::end_lease(&mut tx, id, lease, now).await?;
            }
            tx.commit().await?;
            if count > 0 {
                warn!("{count} deliveries were put off by a clock that is ahead of ours, and are due now");
            }
        }
        lock(&self.ahead).looked_at = now;
        Ok(())
    }
}

impl Ahead {
    /// The leases that we have seen for as long as a lease lasts.
    fn see(&mut self, leases: Vec<(String, AheadLease)>, now: Timestamp) -> Vec<(String, AheadLease)> {
        let before = std::mem::take(&mut self.seen);
        let since = |lease: &_| before.get(lease).copied().filter(|since| *since <= now).unwrap_or(now);
        self.seen = leases.into_iter().map(|lease| (since(&lease), lease)).map(|(at, lease)| (lease, at)).collect();
        let is_over = |(_, since): &(&_, &Timestamp)| now.since(**since) >= LEASE;
        self.seen.iter().filter(is_over).map(|(lease, _)| lease.clone()).collect()
    }
}

/// The latest times that our rules can give, plus what clocks may differ.
fn bounds(now: Timestamp) -> Bounds {
    let within = |time: Duration| now.plus(time + TOLERANCE);
    Bounds {
        now,
        written: within(Duration::ZERO),
        leased: within(LEASE),
        waiting: within(WAITING_MAX),
        soon: within(schedule::longest_wait(SOON_FAILURES)),
        soon_failures: SOON_FAILURES,
        last: within(schedule::longest_wait(u32::MAX)),
    }
}

fn lock(ahead: &Mutex<Ahead>) -> std::sync::MutexGuard<'_, Ahead> {
    ahead.lock().unwrap_or_else(PoisonError::into_inner)
}
