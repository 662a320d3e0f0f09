//! How much of an asset may be signed for: by one transfer, and within 24 hours.
//!
//! What counts is in the journal: each transfer once, when it was first signed for, by the signer's own clock, whatever became of
//! it. So it is the same after each start, and no store that was set back makes room. A clock that is ahead does.

use std::collections::{BTreeMap, HashMap};

use landfall_chain::{Refusal, U256, hash_of};

const DAY_SECS: u64 = 86_400;
/// Sums are kept by the minute: one counts for up to a minute longer than a day.
const PART_SECS: u64 = 60;
/// Sums are forgotten when a newer one is so far ahead: a clock that is set back by a day finds all that counts.
const KEPT_SECS: u64 = 2 * DAY_SECS;

/// What may be signed of one asset, in base units; `None`: any amount.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cap {
    /// By one transfer.
    pub transfer: Option<U256>,
    /// By all within 24 hours.
    pub day: Option<U256>,
}

/// What was signed for, by asset and minute.
#[derive(Debug, Default)]
pub(crate) struct Spent(HashMap<[u8; 32], BTreeMap<u64, U256>>);

impl Cap {
    /// `spent` is what was signed for within the last 24 hours.
    pub(crate) fn check(&self, amount: U256, spent: U256, what: &str) -> Result<(), Refusal> {
        match (self.transfer, self.day) {
            (Some(most), _) if amount > most => {
                Err(Refusal(format!("{amount} of {what} in one transfer, and the cap is {most}")))
            }
            (_, Some(most)) if spent.saturating_add(amount) > most => Err(Refusal(format!(
                "{spent} of {what} were signed for within 24 hours, and with {amount} more it would be above the cap of {most}"
            ))),
            (_, _) => Ok(()),
        }
    }
}

impl Spent {
    pub(crate) fn add(&mut self, [chain_ref, asset]: [&str; 2], at: u64, amount: U256) {
        let parts = self.0.entry(hash_of([chain_ref, asset].map(str::as_bytes))).or_default();
        let sum = parts.entry(at / PART_SECS).or_default();
        *sum = sum.saturating_add(amount);
        *parts = parts.split_off(&(at.saturating_sub(KEPT_SECS) / PART_SECS));
    }

    /// Takes out what was added last.
    pub(crate) fn take_out(&mut self, [chain_ref, asset]: [&str; 2], at: u64, amount: U256) {
        let parts = self.0.get_mut(&hash_of([chain_ref, asset].map(str::as_bytes)));
        if let Some(sum) = parts.and_then(|parts| parts.get_mut(&(at / PART_SECS))) {
            *sum = sum.saturating_sub(amount);
        }
    }

    /// What counts at `now`: also what a clock that was ahead put behind it.
    pub(crate) fn within_day(&self, [chain_ref, asset]: [&str; 2], now: u64) -> U256 {
        let parts = self.0.get(&hash_of([chain_ref, asset].map(str::as_bytes)));
        let recent = parts.into_iter().flat_map(|parts| parts.range(now.saturating_sub(DAY_SECS) / PART_SECS..));
        recent.fold(U256::ZERO, |sum, (_, part)| sum.saturating_add(*part))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USDC: [&str; 2] = ["eip155:8453", "0x3"];
    const NOON: u64 = 1_800_000_000;

    fn of(units: u64) -> U256 {
        U256::from(units)
    }

    #[test]
    fn what_was_signed_for_counts_for_a_day_and_up_to_a_minute_more() {
        let mut spent = Spent::default();
        spent.add(USDC, NOON, of(5));
        spent.add(USDC, NOON + 30, of(7));
        spent.add(["eip155:1", "0x3"], NOON, of(100));
        spent.add(["eip155:8453", "0x4"], NOON, of(100));
        for (now, expected) in [
            (NOON, 12),
            (NOON + DAY_SECS, 12),
            (NOON + DAY_SECS + PART_SECS - 1, 12),
            (NOON + DAY_SECS + PART_SECS, 0),
            // A clock that was set back.
            (NOON - 3_600, 12),
        ] {
            assert_eq!(spent.within_day(USDC, now), of(expected), "{now}");
        }
        spent.take_out(USDC, NOON + 30, of(7));
        assert_eq!(spent.within_day(USDC, NOON), of(5));
        spent.add(USDC, NOON + DAY_SECS, of(1));
        assert_eq!(spent.within_day(USDC, NOON), of(6), "it is kept for a clock that is set back");
        spent.add(USDC, NOON + KEPT_SECS + PART_SECS, U256::MAX);
        assert_eq!(spent.0.values().map(BTreeMap::len).sum::<usize>(), 4, "what is old is forgotten");
        spent.add(USDC, NOON + KEPT_SECS + PART_SECS, of(1));
        assert_eq!(spent.within_day(USDC, NOON + KEPT_SECS), U256::MAX, "no sum wraps around");
    }

    #[test]
    fn a_cap_is_reached_and_never_passed() {
        let cap = |transfer: Option<u64>, day: Option<u64>| Cap { transfer: transfer.map(of), day: day.map(of) };
        let cases = [
            (cap(None, None), 1_000, 1_000, true),
            (cap(Some(5), None), 5, 1_000, true),
            (cap(Some(5), None), 6, 0, false),
            (cap(None, Some(10)), 4, 6, true),
            (cap(None, Some(10)), 5, 6, false),
            (cap(None, Some(10)), 11, 0, false),
            (cap(Some(5), Some(10)), 5, 6, false),
        ];
        for (cap, amount, spent, expected) in cases {
            assert_eq!(cap.check(of(amount), of(spent), "x").is_ok(), expected, "{cap:?} {amount} {spent}");
        }
        assert!(cap(None, Some(10)).check(U256::MAX, U256::MAX, "x").is_err());
        let why = cap(None, Some(10)).check(of(5), of(6), "0x3 on eip155:8453").unwrap_err().0;
        assert_eq!(
            why,
            "6 of 0x3 on eip155:8453 were signed for within 24 hours, and with 5 more it would be above the cap of 10"
        );
    }
}
