//! Which deliveries are attempted next, and at whose cost.
//!
//! Each endpoint has slots of its own, so that a slow one takes nothing from the others; of all slots a quarter is kept
//! for first attempts, so that what failed never keeps back what is new. A failing endpoint gets one event now and then.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::delivery::breaker::ENDPOINT_IN_FLIGHT_MAX;
use crate::delivery::send::ATTEMPT_TIME_MAX;
use crate::delivery::{Delivery, LEASE, schedule};
use crate::store::deliveries::{Claim, Claimed, Queue};
use crate::store::endpoints::{self, Busy, Status};
use crate::store::sinks::Kind;
use crate::store::{StoreError, Tx};
use crate::time::Timestamp;

/// How many attempts are under way at once, at all endpoints together.
pub(super) const IN_FLIGHT_MAX: u32 = 256;
/// How many of them may be made again.
const AGAIN_MAX: u32 = IN_FLIGHT_MAX / 4 * 3;
/// How often a queue is looked at for more when what was taken had to stand aside.
const ROUNDS_MAX: u32 = 16;
/// How many of those that failed are let go at a time.
const RELEASE_MAX: u32 = 1_000;

/// What is under way in this process.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots {
    all: u32,
    again: u32,
    of: HashMap<String, u32>,
}

/// What a claim found.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) claimed: Vec<Claimed>,
    /// What is not begun by then is not begun at all: it could not end within its lease.
    pub(super) begin_by: Timestamp,
    /// There is probably more.
    pub(super) more: bool,
}

impl Slots {
    pub(super) fn take(&mut self, claimed: &Claimed) {
        self.all += 1;
        self.again += u32::from(claimed.failures > 0);
        *self.of.entry(claimed.webhook_id.clone()).or_default() += 1;
    }

    pub(super) fn free(&mut self, claimed: &Claimed) {
        self.all = self.all.saturating_sub(1);
        self.again = self.again.saturating_sub(u32::from(claimed.failures > 0));
        if let Some(count) = self.of.get_mut(&claimed.webhook_id) {
            *count -= 1;
            if *count == 0 {
                self.of.remove(&claimed.webhook_id);
            }
        }
    }

    pub(super) fn are_free(&self) -> bool {
        self.all < IN_FLIGHT_MAX
    }

    fn of(&self, endpoint: &Busy) -> u32 {
        self.of.get(&endpoint.id).copied().unwrap_or_default()
    }

    fn again_left(&self) -> u32 {
        AGAIN_MAX.saturating_sub(self.again)
    }

    /// How many attempts may be begun at an endpoint.
    fn left(&self, endpoint: &Busy) -> u32 {
        let own = endpoint.health.in_flight_max.min(ENDPOINT_IN_FLIGHT_MAX).saturating_sub(self.of(endpoint));
        own.min(IN_FLIGHT_MAX.saturating_sub(self.all))
    }

    fn reserve(&mut self, endpoint: &Busy, count: u32, again: bool) {
        self.all += count;
        self.again += if again { count } else { 0 };
        *self.of.entry(endpoint.id.clone()).or_default() += count;
    }
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
            Kind::Nats => self.nats.as_ref().is_some_and(|nats| nats.is_up()),
        }
    }

    /// Leases what is due and has a slot.
    pub(super) async fn claim(&self, slots: &Slots) -> Result<Found, StoreError> {
        let now = self.clock.now();
        // Nothing is locked while there is nothing to do.
        let mut busy = endpoints::busy(&mut self.db.read().await?, now).await?;
        busy.retain(|endpoint| is_due(endpoint, now) && self.serves(endpoint));
        if busy.is_empty() {
            return Ok(Found { claimed: Vec::new(), begin_by: now, more: false });
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
        Ok(Found { claimed, begin_by: now.plus(LEASE - ATTEMPT_TIME_MAX), more: taking.more })
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
            Status::Open => self.probe(tx, endpoint, now).await,
            Status::Active => {
                self.release(tx, endpoint, now).await?;
                self.looked_for(tx, endpoint).await?;
                self.held(tx, endpoint, now).await?;
                self.again(tx, endpoint).await?;
                self.first(tx, endpoint).await
            }
            Status::Paused | Status::Gone | Status::Deleted => Ok(()),
        }
    }

    /// One event, alone: one that has not failed before those that have, and of these the one whose turn is next, so that
    /// none that is refused for ever stands before all others.
    async fn probe(&mut self, tx: &mut Tx, endpoint: &Busy, now: Timestamp) -> Result<(), StoreError> {
        let is_free = self.slots.of(endpoint) == 0 && self.slots.are_free() && self.slots.again_left() > 0;
        if !is_free || !endpoints::take_probe(tx, &endpoint.id, now, now.plus(LEASE)).await? {
            return Ok(());
        }
        for queue in [Queue::Lapsed, Queue::First, Queue::Again, Queue::Held] {
            for _ in 0..ROUNDS_MAX {
                let (taken, aside) = self.claim.take_one(tx, &endpoint.id, queue).await?;
                self.slots.reserve(endpoint, taken, true);
                if taken > 0 {
                    return Ok(());
                }
                if aside == 0 {
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
            endpoints::released(tx, &endpoint.id).await?;
        }
        Ok(())
    }

    /// Those of whose attempt nobody heard, and those that nobody called.
    async fn looked_for(&mut self, tx: &mut Tx, endpoint: &Busy) -> Result<(), StoreError> {
        for (is_due, queue) in [(endpoint.lapsed, Queue::Lapsed), (endpoint.waiting, Queue::Waiting)] {
            let limit = self.slots.left(endpoint).min(self.slots.again_left());
            if is_due {
                self.queue(tx, endpoint, queue, limit).await?;
            }
        }
        Ok(())
    }

    /// One of those that are held, for all of them.
    async fn held(&mut self, tx: &mut Tx, endpoint: &Busy, now: Timestamp) -> Result<(), StoreError> {
        let limit = self.slots.left(endpoint).min(self.slots.again_left()).min(1);
        if !endpoint.held || endpoint.health.probe_at > now || limit == 0 {
            return Ok(());
        }
        if endpoints::take_probe(tx, &endpoint.id, now, now.plus(schedule::LAST_WAIT)).await? {
            self.queue(tx, endpoint, Queue::Held, limit).await?;
        }
        Ok(())
    }

    /// A quarter of the endpoint's slots, too, is for first attempts, and the last one.
    async fn again(&mut self, tx: &mut Tx, endpoint: &Busy) -> Result<(), StoreError> {
        let left = self.slots.left(endpoint);
        let share = if endpoint.first { left * 3 / 4 } else { left };
        let limit = share.min(self.slots.again_left());
        let again = endpoint.again || endpoint.releasing;
        if again { self.queue(tx, endpoint, Queue::Again, limit).await } else { Ok(()) }
    }

    async fn first(&mut self, tx: &mut Tx, endpoint: &Busy) -> Result<(), StoreError> {
        let limit = self.slots.left(endpoint);
        if endpoint.first { self.queue(tx, endpoint, Queue::First, limit).await } else { Ok(()) }
    }

    async fn queue(&mut self, tx: &mut Tx, endpoint: &Busy, queue: Queue, limit: u32) -> Result<(), StoreError> {
        let mut left = limit;
        for _ in 0..ROUNDS_MAX {
            if left == 0 {
                return Ok(());
            }
            let (taken, aside) = self.claim.take(tx, &endpoint.id, queue, left).await?;
            self.slots.reserve(endpoint, taken, queue != Queue::First);
            left = left.saturating_sub(taken);
            if aside == 0 {
                return Ok(());
            }
        }
        self.more = true;
        Ok(())
    }
}

/// Whether something may be attempted, as far as one can see from outside.
fn is_due(endpoint: &Busy, now: Timestamp) -> bool {
    let Busy { health, releasing, first, again, lapsed, waiting, held, any, .. } = endpoint;
    let may_probe = health.probe_at <= now;
    match health.status {
        Status::Open => may_probe && (*any || *lapsed),
        Status::Active => *releasing || *first || *again || *lapsed || *waiting || (*held && may_probe),
        Status::Paused | Status::Gone | Status::Deleted => false,
    }
}
