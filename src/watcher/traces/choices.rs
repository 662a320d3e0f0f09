//! Which of the reported legs to an address make up what its balance says it received.
//!
//! Legs of one transaction with one amount are interchangeable: only how many of them were paid can be known. Pure; all
//! amounts are base units, and more than zero.
//! Promises: a leg is in every choice, in none, or neither. What is too much to search counts as neither, never as a
//! choice.

use landfall_chain::U256;

/// How many different legs are searched for a choice.
const LEGS_MAX: usize = 16;
/// How many partial choices are tried: many legs with one amount have more of them than anybody needs.
const STEPS_MAX: u32 = 200_000;

/// Equal legs of one transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::watcher) struct Equal {
    pub(in crate::watcher) amount: U256,
    pub(in crate::watcher) count: u32,
}

/// Of equal legs, how many at least and at most are in a choice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::watcher) struct Paid {
    pub(in crate::watcher) least: u32,
    pub(in crate::watcher) most: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::watcher) enum Choices {
    /// In the order of the legs.
    Explained(Vec<Paid>),
    /// No choice makes up the sum.
    None,
    /// There is too much to search.
    Many,
}

/// The choices of `legs` that make up `sum`.
pub(in crate::watcher) fn choices(legs: &[Equal], sum: U256) -> Choices {
    let total = legs
        .iter()
        .try_fold(U256::ZERO, |total, legs| total.checked_add(legs.amount.checked_mul(U256::from(legs.count))?));
    let exactly = |count: fn(&Equal) -> u32| {
        Choices::Explained(legs.iter().map(|legs| Paid { least: count(legs), most: count(legs) }).collect())
    };
    // Amounts are more than zero, so all and nothing are one choice each, however many legs there are.
    if sum.is_zero() {
        return exactly(|_| 0);
    }
    match total {
        Some(total) if total == sum => return exactly(|legs| legs.count),
        Some(total) if total < sum => return Choices::None,
        _ if legs.len() > LEGS_MAX => return Choices::Many,
        Some(_) | None => {}
    }
    let mut search = Search { legs, found: None, chosen: Vec::with_capacity(legs.len()), steps: 0 };
    search.choose(sum);
    match search.found {
        _ if search.steps > STEPS_MAX => Choices::Many,
        Some(found) => Choices::Explained(found),
        None => Choices::None,
    }
}

struct Search<'l> {
    legs: &'l [Equal],
    found: Option<Vec<Paid>>,
    chosen: Vec<u32>,
    steps: u32,
}

impl Search<'_> {
    /// Tries each number of the next legs that fits into what is left, at most sixteen deep.
    fn choose(&mut self, left: U256) {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return;
        }
        let Some(Equal { amount, count }) = self.legs.get(self.chosen.len()).copied() else {
            if left.is_zero() {
                self.take_in();
            }
            return;
        };
        let mut left = Some(left);
        for chosen in 0..=count {
            let Some(rest) = left else { break };
            self.chosen.push(chosen);
            self.choose(rest);
            self.chosen.pop();
            left = rest.checked_sub(amount);
        }
    }

    fn take_in(&mut self) {
        match &mut self.found {
            None => self.found = Some(self.chosen.iter().map(|&count| Paid { least: count, most: count }).collect()),
            Some(found) => {
                for (paid, &count) in found.iter_mut().zip(&self.chosen) {
                    *paid = Paid { least: paid.least.min(count), most: paid.most.max(count) };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(legs: &[(u64, u32)], sum: u64) -> Choices {
        let legs: Vec<Equal> =
            legs.iter().map(|&(amount, count)| Equal { amount: U256::from(amount), count }).collect();
        choices(&legs, U256::from(sum))
    }

    fn explained(paid: &[(u32, u32)]) -> Choices {
        Choices::Explained(paid.iter().map(|&(least, most)| Paid { least, most }).collect())
    }

    #[test]
    fn a_leg_is_in_every_choice_in_none_or_neither() {
        // Of six equal legs of one transaction one fits: the first.
        assert_eq!(of(&[(10, 6)], 10), explained(&[(1, 1)]));
        assert_eq!(of(&[(10, 1), (7, 1)], 10), explained(&[(1, 1), (0, 0)]));
        assert_eq!(of(&[(10, 1), (10, 1)], 10), explained(&[(0, 1), (0, 1)]));
        assert_eq!(of(&[(10, 1), (10, 1), (3, 1)], 13), explained(&[(0, 1), (0, 1), (1, 1)]));
        assert_eq!(of(&[(4, 1), (3, 1), (7, 1)], 7), explained(&[(0, 1), (0, 1), (0, 1)]));
        assert_eq!(of(&[(4, 2), (3, 1)], 0), explained(&[(0, 0), (0, 0)]));
        assert_eq!(of(&[(4, 2), (3, 1)], 11), explained(&[(2, 2), (1, 1)]));
        assert_eq!(of(&[(4, 2), (3, 1)], 12), Choices::None);
        assert_eq!(of(&[(4, 2), (3, 1)], 5), Choices::None);
        assert_eq!(of(&[], 0), explained(&[]));
        assert_eq!(of(&[], 1), Choices::None);
    }

    #[test]
    fn more_than_sixteen_different_legs_have_many_choices_but_all_and_none() {
        let seventeen: Vec<(u64, u32)> = (1..=17).map(|amount| (amount, 1)).collect();
        assert_eq!(of(&seventeen, 5), Choices::Many);
        assert_eq!(of(&seventeen, 17 * 18 / 2), explained(&[(1, 1); 17]));
        assert_eq!(of(&seventeen, 0), explained(&[(0, 0); 17]));
        assert_eq!(of(&seventeen[..16], 1), explained(&[&[(1, 1)][..], &[(0, 0); 15][..]].concat()));
    }

    #[test]
    fn what_takes_too_long_to_be_searched_has_many_choices() {
        assert_eq!(of(&[(2, 50_000), (3, 50_000), (5, 50_000)], 200_001), Choices::Many);
        // Amounts whose sum is beyond 2^256 are searched like any other.
        let legs = [Equal { amount: U256::MAX, count: 2 }, Equal { amount: U256::from(3), count: 1 }];
        assert_eq!(choices(&legs, U256::from(3)), explained(&[(0, 0), (1, 1)]));
    }
}
