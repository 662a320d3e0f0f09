//! How many attempts may be under way: in all, of those that are repeated, and at each endpoint.
//!
//! Promises: repeated attempts leave a quarter of all slots to first attempts. From that quarter an endpoint gets one
//! slot while none of its first attempts is under way. So 48 slow endpoints that take all they may leave one each to
//! 128 others. If more endpoints are slow, all wait for them, 15 s at a time, until they have failed often enough to
//! open their breakers. An attempt counts from its claim until its result is on record.

use std::collections::HashMap;

use crate::store::deliveries::{Claimed, Taken};
use crate::store::endpoints::Busy;

/// How many attempts are under way at once, at all endpoints together.
const IN_FLIGHT_MAX: u32 = 512;
/// So many slots are for all attempts, repeated ones too. The others are for the first one of each endpoint.
const SHARED_MAX: u32 = IN_FLIGHT_MAX / 4 * 3;
/// How many attempts at one endpoint are under way at once.
pub(super) const ENDPOINT_IN_FLIGHT_MAX: u32 = 8;

/// The attempts under way in this process.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Slots {
    all: Count,
    of: HashMap<String, Count>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Count {
    first: u32,
    again: u32,
}

impl Count {
    fn sum(self) -> u32 {
        self.first + self.again
    }
}

impl Slots {
    pub(super) fn are_free(&self) -> bool {
        self.all.sum() < IN_FLIGHT_MAX
    }

    /// Whether nothing is under way at an endpoint.
    pub(super) fn has_none(&self, endpoint: &Busy) -> bool {
        self.of(endpoint).sum() == 0
    }

    /// How many repeated attempts may begin at an endpoint.
    pub(super) fn left_again(&self, endpoint: &Busy) -> u32 {
        self.own(endpoint).min(self.shared())
    }

    /// How many first attempts may begin at an endpoint.
    pub(super) fn left_first(&self, endpoint: &Busy) -> u32 {
        let reserved = u32::from(self.of(endpoint).first == 0 && self.are_free());
        self.own(endpoint).min(self.shared().max(reserved))
    }

    pub(super) fn take(&mut self, endpoint: &Busy, taken: Taken) {
        let Taken { first, again, .. } = taken;
        if first + again > 0 {
            for count in [&mut self.all, self.of.entry(endpoint.id.clone()).or_default()] {
                *count = Count { first: count.first + first, again: count.again + again };
            }
        }
    }

    /// Gives back the slot that [`Slots::take`] took for one of them.
    pub(super) fn free(&mut self, claimed: &Claimed) {
        let [first, again] = [claimed.is_first(), !claimed.is_first()].map(u32::from);
        let less =
            |count: Count| Count { first: count.first.saturating_sub(first), again: count.again.saturating_sub(again) };
        self.all = less(self.all);
        if let Some(count) = self.of.get_mut(&claimed.webhook_id) {
            *count = less(*count);
            if count.sum() == 0 {
                self.of.remove(&claimed.webhook_id);
            }
        }
    }

    fn of(&self, endpoint: &Busy) -> Count {
        self.of.get(&endpoint.id).copied().unwrap_or_default()
    }

    fn shared(&self) -> u32 {
        SHARED_MAX.saturating_sub(self.all.sum())
    }

    fn own(&self, endpoint: &Busy) -> u32 {
        endpoint.health.in_flight_max.min(ENDPOINT_IN_FLIGHT_MAX).saturating_sub(self.of(endpoint).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::endpoints::{Health, Status};
    use crate::store::sinks::Kind;
    use crate::time::Timestamp;

    fn endpoint(number: u32) -> Busy {
        let at = Timestamp(0);
        let (status, since, probe_at, probed_at) = (Status::Active, at, at, at);
        let health = Health { status, since, failures: 0, strain: 0, in_flight_max: 8, probe_at, probed_at };
        let id = format!("hook-{number}");
        let (releasing, first, again, lapsed, waiting, held, any) = (false, true, true, false, false, false, true);
        Busy {
            id,
            kind: Kind::Webhook,
            url: String::new(),
            health,
            releasing,
            first,
            again,
            lapsed,
            waiting,
            held,
            any,
        }
    }

    fn first(count: u32) -> Taken {
        Taken { first: count, ..Taken::default() }
    }

    fn again(count: u32) -> Taken {
        Taken { again: count, ..Taken::default() }
    }

    fn claimed(number: u32, attempt: u32) -> Claimed {
        Claimed {
            event_id: String::new(),
            webhook_id: format!("hook-{number}"),
            aggregate_id: String::new(),
            position: 0,
            attempt,
            failures: 0,
            event_type: String::new(),
            account_id: String::new(),
            payload: String::new(),
            kind: Kind::Webhook,
            url: String::new(),
            allowed_networks: String::new(),
            signing_key: String::new(),
        }
    }

    #[test]
    fn as_many_slow_endpoints_as_take_all_shared_slots_leave_one_each_to_128_others() {
        let mut slots = Slots::default();
        for slow in 0..48 {
            assert_eq!(slots.left_first(&endpoint(slow)), 8);
            slots.take(&endpoint(slow), first(8));
        }
        assert_eq!((slots.left_first(&endpoint(48)), slots.left_again(&endpoint(48))), (1, 0));
        for other in 48..176 {
            assert_eq!(slots.left_first(&endpoint(other)), 1);
            slots.take(&endpoint(other), first(1));
            assert_eq!(slots.left_first(&endpoint(other)), 0, "one each");
        }
        assert!(!slots.are_free());
        assert_eq!(slots.left_first(&endpoint(176)), 0);
    }

    #[test]
    fn what_was_attempted_before_leaves_a_quarter_to_first_attempts() {
        let mut slots = Slots::default();
        let mut taken = 0;
        for number in 0..100 {
            let left = slots.left_again(&endpoint(number)).min(6);
            slots.take(&endpoint(number), again(left));
            taken += left;
        }
        assert_eq!(taken, 384);
        let firsts: u32 = (0..100).map(|number| slots.left_first(&endpoint(number))).sum();
        assert_eq!(firsts, 100, "also where others are made again");
    }

    #[test]
    fn what_has_ended_gives_back_what_it_took() {
        let mut slots = Slots::default();
        slots.take(&endpoint(1), first(1));
        let before = slots.clone();
        slots.take(&endpoint(1), Taken { first: 1, again: 1, aside: 3 });
        slots.take(&endpoint(2), again(1));
        [claimed(1, 1), claimed(1, 2), claimed(2, 9)].iter().for_each(|ended| slots.free(ended));
        assert_eq!(slots, before);
        slots.free(&claimed(1, 1));
        assert_eq!(slots, Slots::default());
    }
}
