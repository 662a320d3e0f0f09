//! Which deliveries are attempted next, and from which slots.
//!
//! Each endpoint has slots of its own (`slots`). So a slow endpoint takes nothing from the others, and repeated
//! attempts never hold up new events. A failing endpoint gets one event now and then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::delivery::send::ATTEMPT_TIME_MAX;
use crate::delivery::shared_clock::DIFFERENCE_MAX;
use crate::delivery::slots::Slots;
use crate::delivery::{Delivery, LEASE, schedule};
use crate::store::deliveries::{Claim, Claimed, Queue};
use crate::store::endpoints::{self, Busy, Health, Status};
use crate::store::sinks::Kind;
use crate::store::{StoreError, Tx};
use crate::time::Timestamp;

/// An attempt that begins within this time of its claim ends within its lease. This holds even where another process's
/// clock is ahead of this one by twice the tolerated difference.
const BEGIN_WITHIN: Duration =
    Duration::from_secs(LEASE.as_secs() - ATTEMPT_TIME_MAX.as_secs() - 2 * DIFFERENCE_MAX.as_secs());
/// How often a queue is asked for more when some of the claimed events had to wait for earlier ones.
const ROUNDS_MAX: u32 = 16;
/// How many events that failed are released at a time.
const RELEASE_MAX: u32 = 1_000;

/// The result of a claim.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) claimed: Vec<Claimed>,
    /// Including the slots that were taken.
    pub(super) slots: Slots,
    /// An attempt that is not begun by then is not made: it could not end within its lease.
    pub(super) begin_by: Timestamp,
    /// The same by a clock that never goes back.
    pub(super) begin_within: Instant,
    /// More is probably due.
    pub(super) more: bool,
    /// More is due at endpoints whose names are not resolved yet.
    pub(super) awaits_names: bool,
}

impl Delivery {
    /// A number that no other claim has. The claims of a process count up from its own beginning.
    fn next_owner(&self) -> i64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = self.owner.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        i64::from_ne_bytes(number.to_ne_bytes())
    }

    /// Whether this process can send to the endpoint now; another process may.
    fn serves(&self, endpoint: &Busy) -> bool {
        match endpoint.kind {
            Kind::Webhook => true,
            // Another process may be configured with another stream. If both published, each stream would get only some
            // of the events.
            Kind::Nats => self.nats.as_ref().is_some_and(|nats| nats.is_up() && endpoint.url == nats.url()),
        }
    }

    /// Leases deliveries that are due and have a slot.
    pub(super) async fn claim(&self, slots: &Slots) -> Result<Found, StoreError> {
        self.set_clock().await?;
        let now = self.clock.now();
        let begin_within = Instant::now() + BEGIN_WITHIN;
        self.bring_back(now).await?;
        // Nothing is locked while nothing is due.
        let mut busy = endpoints::busy(&mut self.db.read().await?, now).await?;
        busy.retain(|endpoint| is_due(endpoint, now) && self.serves(endpoint));
        let due = busy.len();
        // A delivery that waits for a name holds no slot. The wait for our resolver does not count against the
        // endpoint.
        busy.retain(|endpoint| endpoint.kind == Kind::Nats || self.clients.is_looked_up(&endpoint.url));
        let awaits_names = busy.len() < due;
        if busy.is_empty() {
            let (claimed, slots) = (Vec::new(), slots.clone());
            return Ok(Found { claimed, slots, begin_by: now, begin_within, more: false, awaits_names });
        }
        // A random order, so that no endpoint is always served first.
        let random = (self.random)();
        let first = usize::try_from(random % u64::try_from(busy.len()).unwrap_or(1)).unwrap_or_default();
        busy.rotate_left(first);
        let claim = Claim { owner: self.next_owner(), now, lease_until: now.plus(LEASE) };
        let mut taking = Taking { claim, slots: slots.clone(), more: false };
        let mut tx = self.db.begin().await?;
        for endpoint in &busy {
            taking.serve(&mut tx, endpoint, now).await?;
        }
        let claimed = claim.taken(&mut tx).await?;
        tx.commit().await?;
        let Taking { slots, more, .. } = taking;
        let begin_by = now.plus(BEGIN_WITHIN);
        Ok(Found { claimed, slots, begin_by, begin_within, more, awaits_names })
    }
}

/// A claim in the making.
struct Taking {
    claim: Claim,
    slots: Slots,
    more: bool,
}

impl Taking {
    async fn serve(&mut self, tx: &mut Tx, endpoint: &Busy, now: Timestamp) -> Result<(), StoreError> {
        match endpoint.health.status {
            Status::Failing => self.probe(tx, endpoint, now).await,
            Status::Active => {
                self.release(tx, endpoint, now).await?;
                self.looked_for(tx, endpoint).await?;
                self.held(tx, endpoint, now).await?;
                let left = self.slots.left_again(endpoint);
                self.again(tx, endpoint, if endpoint.first { left * 3 / 4 } else { left }).await?;
                self.first(tx, endpoint).await?;
                // New events may have to wait for earlier ones and leave slots unused.
                self.again(tx, endpoint, if endpoint.first { self.slots.left_again(endpoint) } else { 0 }).await
            }
            Status::Paused | Status::Gone | Status::Deleted => Ok(()),
        }
    }

    /// Claims one event, alone: first one that has not failed; of those that have failed, the one whose turn is next.
    /// So an event that is always refused does not block all others.
    async fn probe(&mut self, tx: &mut Tx, endpoint: &Busy, now: Timestamp) -> Result<(), StoreError> {
        let is_free = self.slots.has_none(endpoint) && self.slots.left_again(endpoint) > 0;
        let since = endpoint.first.then(|| now.minus(schedule::FIRST_WAIT_MAX));
        if !is_free || !endpoints::take_probe(tx, &endpoint.id, now, now.plus(LEASE), since).await? {
            return Ok(());
        }
        for queue in [Queue::Lapsed, Queue::First, Queue::Waiting, Queue::Again, Queue::Held] {
            for _ in 0..ROUNDS_MAX {
                let taken = self.claim.take_one(tx, &endpoint.id, queue).await?;
                self.slots.take(endpoint, taken);
                if taken.count() > 0 {
                    return Ok(());
                }
                if taken.aside == 0 {
                    break;
                }
            }
        }
        Ok(())
    }

    async fn release(&mut self, tx: &mut Tx, endpoint: &Busy, now: Timestamp) -> Result<(), StoreError> {
        if !endpoint.releasing {
            return Ok(());
        }
        self.more = true;
        let held = endpoints::release_held(tx, &endpoint.id, now, RELEASE_MAX).await?;
        let again = endpoints::release_again(tx, &endpoint.id, now, RELEASE_MAX).await?;
        if held + again == 0 {
            endpoints::released(tx, &endpoint.id, now).await?;
        }
        Ok(())
    }

    /// Deliveries whose lease ended without a result, and waiting ones whose time has come although no acknowledgement
    /// has made them due.
    async fn looked_for(&mut self, tx: &mut Tx, endpoint: &Busy) -> Result<(), StoreError> {
        for (is_due, queue) in [(endpoint.lapsed, Queue::Lapsed), (endpoint.waiting, Queue::Waiting)] {
            let limit = self.slots.left_again(endpoint);
            if is_due {
                self.queue(tx, endpoint, queue, limit).await?;
            }
        }
        Ok(())
    }

    /// One held event, which stands for all.
    async fn held(&mut self, tx: &mut Tx, endpoint: &Busy, now: Timestamp) -> Result<(), StoreError> {
        let limit = self.slots.left_again(endpoint).min(1);
        if !endpoint.held || endpoint.health.probe_at > now || limit == 0 {
            return Ok(());
        }
        if endpoints::take_probe(tx, &endpoint.id, now, now.plus(schedule::LAST_WAIT), None).await? {
            self.queue(tx, endpoint, Queue::Held, limit).await?;
        }
        Ok(())
    }

    /// A quarter of the endpoint's slots, and its last slot, are kept for first attempts while there are any.
    async fn again(&mut self, tx: &mut Tx, endpoint: &Busy, limit: u32) -> Result<(), StoreError> {
        let again = endpoint.again || endpoint.releasing;
        if again { self.queue(tx, endpoint, Queue::Again, limit).await } else { Ok(()) }
    }

    async fn first(&mut self, tx: &mut Tx, endpoint: &Busy) -> Result<(), StoreError> {
        let limit = self.slots.left_first(endpoint);
        if endpoint.first { self.queue(tx, endpoint, Queue::First, limit).await } else { Ok(()) }
    }

    async fn queue(&mut self, tx: &mut Tx, endpoint: &Busy, queue: Queue, limit: u32) -> Result<(), StoreError> {
        let mut left = limit;
        for _ in 0..ROUNDS_MAX {
            if left == 0 {
                return Ok(());
            }
            let taken = self.claim.take(tx, &endpoint.id, queue, left).await?;
            self.slots.take(endpoint, taken);
            left = left.saturating_sub(taken.count());
            if taken.aside == 0 {
                return Ok(());
            }
        }
        self.more = true;
        Ok(())
    }
}

/// Whether an event that was never attempted has waited long enough for a probe.
fn is_overdue(health: &Health, now: Timestamp) -> bool {
    health.probed_at.max(health.since) <= now.minus(schedule::FIRST_WAIT_MAX)
}

/// Whether something may be attempted, as far as the endpoint's row shows.
fn is_due(endpoint: &Busy, now: Timestamp) -> bool {
    let Busy { health, releasing, first, again, lapsed, waiting, held, any, .. } = endpoint;
    let may_probe = health.probe_at <= now;
    match health.status {
        Status::Failing => (may_probe && (*any || *lapsed || *waiting)) || (*first && is_overdue(health, now)),
        Status::Active => *releasing || *first || *again || *lapsed || *waiting || (*held && may_probe),
        Status::Paused | Status::Gone | Status::Deleted => false,
    }
}
