//! Which deliveries are attempted next, and at whose cost.
//!
//! Each endpoint has slots of its own (`slots`), so that a slow one takes nothing from the others and what failed never
//! keeps back what is new. A failing endpoint gets one event now and then.

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

/// An attempt that begins within this time of its claim ends within its lease, also where another's clock is ahead of this
/// one by as much as both may be off.
const BEGIN_WITHIN: Duration =
    Duration::from_secs(LEASE.as_secs() - ATTEMPT_TIME_MAX.as_secs() - 2 * DIFFERENCE_MAX.as_secs());
/// How often a queue is looked at for more when what was taken had to stand aside.
const ROUNDS_MAX: u32 = 16;
/// How many of those that failed are let go at a time.
const RELEASE_MAX: u32 = 1_000;

/// What a claim found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) claimed: Vec<Claimed>,
    /// With those that were taken.
    pub(super) slots: Slots,
    /// What is not begun by then is not begun at all: it could not end within its lease.
    pub(super) begin_by: Timestamp,
    /// The same, should the clock go back.
    pub(super) begin_within: Instant,
    /// There is probably more.
    pub(super) more: bool,
    /// More is due at endpoints whose names were not answered for yet.
    pub(super) awaits_names: bool,
}

impl Delivery {
    /// A number that no other claim has: those of a process follow each other, from wherever it began.
    fn next_owner(&self) -> i64 {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = self.owner.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        i64::from_ne_bytes(number.to_ne_bytes())
    }

    /// Whether this process can send to it now; another may.
    fn serves(&self, endpoint: &Busy) -> bool {
        match endpoint.kind {
            Kind::Webhook => true,
            // Another's configuration may name another stream: to publish to both would give each only some of the events.
            Kind::Nats => self.nats.as_ref().is_some_and(|nats| nats.is_up() && endpoint.url == nats.url()),
        }
    }

    /// Leases what is due and has a slot.
    pub(super) async fn claim(&self, slots: &Slots) -> Result<Found, StoreError> {
        self.set_clock().await?;
        let now = self.clock.now();
        let begin_within = Instant::now() + BEGIN_WITHIN;
        self.bring_back(now).await?;
        // Nothing is locked while there is nothing to do.
        let mut busy = endpoints::busy(&mut self.db.read().await?, now).await?;
        busy.retain(|endpoint| is_due(endpoint, now) && self.serves(endpoint));
        let due = busy.len();
        // Who waits for a name holds no slot, and what of it is our own doing counts against nobody.
        busy.retain(|endpoint| endpoint.kind == Kind::Nats || self.clients.is_looked_up(&endpoint.url));
        let awaits_names = busy.len() < due;
        if busy.is_empty() {
            let (claimed, slots) = (Vec::new(), slots.clone());
            return Ok(Found { claimed, slots, begin_by: now, begin_within, more: false, awaits_names });
        }
        // Nobody is always the first to be served.
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
                // What is new may be behind what is not, and leave slots.
                self.again(tx, endpoint, if endpoint.first { self.slots.left_again(endpoint) } else { 0 }).await
            }
            Status::Paused | Status::Gone | Status::Deleted => Ok(()),
        }
    }

    /// One event, alone: one that has not failed before those that have, and of these the one whose turn is next, so that
    /// none that is refused for ever stands before all others.
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

    /// Those of whose attempt nobody heard, and those that nobody called.
    async fn looked_for(&mut self, tx: &mut Tx, endpoint: &Busy) -> Result<(), StoreError> {
        for (is_due, queue) in [(endpoint.lapsed, Queue::Lapsed), (endpoint.waiting, Queue::Waiting)] {
            let limit = self.slots.left_again(endpoint);
            if is_due {
                self.queue(tx, endpoint, queue, limit).await?;
            }
        }
        Ok(())
    }

    /// One of those that are held, for all of them.
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

    /// A quarter of the endpoint's slots, too, is for first attempts, and the last one, as long as there are any.
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

/// Whether what was never attempted has waited for a probe for long enough.
fn is_overdue(health: &Health, now: Timestamp) -> bool {
    health.probed_at.max(health.since) <= now.minus(schedule::FIRST_WAIT_MAX)
}

/// Whether something may be attempted, as far as one can see from outside.
fn is_due(endpoint: &Busy, now: Timestamp) -> bool {
    let Busy { health, releasing, first, again, lapsed, waiting, held, any, .. } = endpoint;
    let may_probe = health.probe_at <= now;
    match health.status {
        Status::Failing => (may_probe && (*any || *lapsed || *waiting)) || (*first && is_overdue(health, now)),
        Status::Active => *releasing || *first || *again || *lapsed || *waiting || (*held && may_probe),
        Status::Paused | Status::Gone | Status::Deleted => false,
    }
}
