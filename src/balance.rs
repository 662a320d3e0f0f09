//! What an account has of an asset, and how much of it may be spent, from what its addresses held at final blocks. Also
//! whether what an address holds is explained by what it held before and what moved since.
//!
//! Promises: an account has no balance at all while one of its addresses is not known, or while something may have left
//! without being seen. An amount that is not certain is in `total` and not in `available`. Pure.

use std::cmp::Ordering;
use std::time::Duration;

use landfall_chain::{Address, AssetId, BlockHash, Chain, U256};

use crate::account::AccountStatus;
use crate::time::Timestamp;

/// How long the newest blocks of a chain may have been unread: nothing on record shows what left in them.
pub const UNREAD_MAX: Duration = Duration::from_secs(5 * 60);
/// How far a watcher's clock may be ahead of ours; the same value as in `health`.
pub const AHEAD_MAX: Duration = Duration::from_secs(30);

/// What one address held of an asset after a final block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Held {
    pub asset: AssetId,
    pub amount: U256,
    /// The number of that block.
    pub number: u64,
    /// `None` where a chain reports only the number.
    pub hash: Option<BlockHash>,
    pub read_at: Timestamp,
    /// How much of `amount` is from deposits that are not CONFIRMED.
    pub pending: U256,
    /// How much left the address in blocks after that one.
    pub spent: U256,
    /// How much transfers have reserved that are not terminal. What a block already shows gone is taken off twice until
    /// the transfer is CONFIRMED, never not at all.
    pub reserved: U256,
    /// From this block on everything that leaves is seen: the address is watched, and the asset followed. `None` if
    /// there is no such block on record.
    pub seen_from: Option<u64>,
    /// The newest block that was connected long ago and not searched yet for what leaves; `None` if there is none.
    pub unsearched: Option<u64>,
}

/// What an account has of an asset, in base units.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Balance {
    pub total: U256,
    pub available: U256,
    /// The oldest of the blocks, and of the readings, that it is made of.
    pub number: u64,
    pub read_at: Timestamp,
}

/// What an address held of an asset after two final blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Readings {
    pub chain: Chain,
    pub address: Address,
    pub asset: AssetId,
    /// After the older block.
    pub had: HeldAfter,
    /// After the newer one.
    pub has: HeldAfter,
}

/// An amount and the block after which it was held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeldAfter {
    pub number: u64,
    /// In base units.
    pub amount: U256,
}

/// The movements on record between two readings, in base units.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Moved {
    /// Including PENDING deposits.
    pub came: U256,
    /// How much of it is PENDING.
    pub pending: U256,
    pub left: U256,
}

/// By how many base units an address holds more or less than the older reading and the movements give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unexplained {
    /// So much came, or did not leave, without a record.
    More(U256),
    /// So much left, or did not come, without a record.
    Less(U256),
}

/// More than 2^256 - 1 base units.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the balances of its addresses make more than 2^256 - 1 base units")]
pub struct TooLarge;

impl Held {
    /// How much of it may be spent. `None` if some may have left in blocks that were not searched for it. What left up
    /// to the block of the reading is not in `amount`.
    pub fn available(&self) -> Option<U256> {
        let is_seen = self.seen_from.is_some_and(|from| from <= self.number.saturating_add(1))
            && self.unsearched.is_none_or(|number| number <= self.number);
        let is_known = is_seen || self.amount.is_zero();
        is_known.then(|| {
            let taken = [self.pending, self.spent, self.reserved];
            taken.into_iter().fold(self.amount, |left, taken| left.saturating_sub(taken))
        })
    }
}

impl Readings {
    /// The difference that `moved` leaves unexplained, if any. A token whose contract reports absurd amounts saturates.
    pub fn unexplained(&self, moved: &Moved) -> Option<Unexplained> {
        let explained = self.had.amount.saturating_add(moved.came);
        let reported = self.has.amount.saturating_add(moved.left);
        match reported.cmp(&explained) {
            Ordering::Equal => None,
            Ordering::Greater => Some(Unexplained::More(reported - explained)),
            Ordering::Less => Some(Unexplained::Less(explained - reported)),
        }
    }

    /// How much less is held than the CONFIRMED deposits and all other movements but PENDING ones give; `None` if it is
    /// held.
    pub fn short_of(&self, moved: &Moved) -> Option<U256> {
        let sure = moved.came.saturating_sub(moved.pending);
        let explained = self.had.amount.saturating_add(sure);
        let reported = self.has.amount.saturating_add(moved.left);
        explained.checked_sub(reported).filter(|short| !short.is_zero())
    }
}

impl Moved {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: &Moved) -> Self {
        Moved {
            came: self.came.saturating_add(other.came),
            pending: self.pending.saturating_add(other.pending),
            left: self.left.saturating_add(other.left),
        }
    }
}

impl Balance {
    /// What an account in this state has of `asset`; `addresses` holds all that is known of each address. `None` if
    /// there are none, or if the balance, or its available part, is not known of one of them.
    ///
    /// # Errors
    /// A sum that is no amount.
    pub fn of<'h>(
        asset: &AssetId,
        status: AccountStatus,
        addresses: impl IntoIterator<Item = &'h [Held]>,
    ) -> Result<Option<Self>, TooLarge> {
        let mut sum: Option<Balance> = None;
        for known in addresses {
            let Some(held) = known.iter().find(|held| held.asset == *asset) else { return Ok(None) };
            let available = match status {
                AccountStatus::Active => held.available(),
                // Nothing may be spent.
                AccountStatus::Frozen | AccountStatus::Closed => Some(U256::ZERO),
            };
            let Some(available) = available else { return Ok(None) };
            let before = sum.unwrap_or(Balance {
                total: U256::ZERO,
                available: U256::ZERO,
                number: held.number,
                read_at: held.read_at,
            });
            let add = |sum: U256, more: U256| sum.checked_add(more).ok_or(TooLarge);
            sum = Some(Balance {
                total: add(before.total, held.amount)?,
                available: add(before.available, available)?,
                number: before.number.min(held.number),
                read_at: before.read_at.min(held.read_at),
            });
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(amount: u64, pending: u64, spent: u64, number: u64) -> Vec<Held> {
        let [amount, pending, spent] = [amount, pending, spent].map(U256::from);
        let read_at = Timestamp::from_secs(number);
        let (seen_from, unsearched) = (Some(0), None);
        vec![Held {
            asset: AssetId::Native,
            amount,
            number,
            hash: None,
            read_at,
            pending,
            spent,
            reserved: U256::ZERO,
            seen_from,
            unsearched,
        }]
    }

    fn of(status: AccountStatus, addresses: &[Vec<Held>]) -> Option<(u64, u64, u64)> {
        let balance = Balance::of(&AssetId::Native, status, addresses.iter().map(Vec::as_slice)).unwrap();
        balance.map(|balance| (balance.total.to::<u64>(), balance.available.to::<u64>(), balance.number))
    }

    #[test]
    fn what_is_pending_and_what_left_since_is_not_available() {
        let active = |addresses: &[Vec<Held>]| of(AccountStatus::Active, addresses);
        assert_eq!(active(&[held(10, 0, 0, 7)]), Some((10, 10, 7)));
        assert_eq!(active(&[held(10, 3, 2, 7)]), Some((10, 5, 7)));
        // What left one address may have come after its block: the balance of another address does not cover it.
        assert_eq!(active(&[held(10, 8, 9, 7), held(5, 0, 0, 9)]), Some((15, 5, 7)));
    }

    #[test]
    fn an_account_with_an_address_that_is_not_known_has_no_balance() {
        assert_eq!(of(AccountStatus::Active, &[held(10, 0, 0, 7), Vec::new()]), None);
        assert_eq!(of(AccountStatus::Active, &[]), None);
        let other =
            Held { asset: AssetId::Token(landfall_chain::Address::Evm([1; 20])), ..held(1, 0, 0, 1)[0].clone() };
        assert_eq!(of(AccountStatus::Active, &[vec![other]]), None);
    }

    #[test]
    fn what_may_have_left_without_being_seen_is_not_known_to_be_available() {
        let seen = |from, amount, number| vec![Held { seen_from: from, ..held(amount, 0, 0, number)[0].clone() }];
        let active = |addresses: &[Vec<Held>]| of(AccountStatus::Active, addresses);
        // Everything that leaves is seen from block 8 on, and the reading is true after block 7.
        assert_eq!(active(&[seen(Some(8), 10, 7)]), Some((10, 10, 7)));
        assert_eq!(active(&[seen(Some(9), 10, 7)]), None);
        assert_eq!(active(&[seen(None, 10, 7)]), None);
        assert_eq!(
            active(&[seen(Some(0), 10, 7), seen(Some(9), 10, 7)]),
            None,
            "nor does another address stand for it"
        );
        // An address that holds nothing has nothing that could leave.
        assert_eq!(active(&[seen(Some(9), 0, 7)]), Some((0, 0, 7)));
        assert_eq!(of(AccountStatus::Frozen, &[seen(Some(9), 10, 7)]), Some((10, 0, 7)));
    }

    #[test]
    fn what_may_have_left_in_a_block_that_waits_to_be_searched_is_not_known_to_be_available() {
        let waiting = |unsearched, amount, number| vec![Held { unsearched, ..held(amount, 0, 0, number)[0].clone() }];
        let active = |addresses: &[Vec<Held>]| of(AccountStatus::Active, addresses);
        assert_eq!(active(&[waiting(Some(8), 10, 7)]), None);
        assert_eq!(active(&[waiting(Some(8), 0, 7)]), Some((0, 0, 7)), "from nothing nothing leaves");
        // What left in block 8 is not in a reading after block 8.
        assert_eq!(active(&[waiting(Some(8), 10, 8)]), Some((10, 10, 8)));
        assert_eq!(of(AccountStatus::Frozen, &[waiting(Some(8), 10, 7)]), Some((10, 0, 7)));
    }

    #[test]
    fn a_balance_is_short_of_what_is_confirmed_and_not_of_what_is_pending() {
        let short = |had: u64, has: u64, [came, pending, left]: [u64; 3]| {
            let [had, has] =
                [(7, had), (9, has)].map(|(number, amount)| HeldAfter { number, amount: U256::from(amount) });
            let [came, pending, left] = [came, pending, left].map(U256::from);
            let (address, asset) = (Address::Evm([1; 20]), AssetId::Native);
            let readings = Readings { chain: Chain::EthereumTestnet, address, asset, had, has };
            readings.short_of(&Moved { came, pending, left }).map(|short| short.to::<u64>())
        };
        assert_eq!(short(5, 12, [10, 0, 3]), None);
        assert_eq!(short(5, 11, [10, 0, 3]), Some(1));
        assert_eq!(short(5, 11, [10, 4, 3]), None, "what is PENDING may be none");
        assert_eq!(short(5, 7, [10, 4, 3]), Some(1));
        assert_eq!(short(5, 13, [10, 0, 3]), None, "more is no contradiction");
    }

    #[test]
    fn nothing_of_an_account_that_is_not_active_is_available() {
        for status in [AccountStatus::Frozen, AccountStatus::Closed] {
            assert_eq!(of(status, &[held(10, 0, 0, 7)]), Some((10, 0, 7)));
        }
    }

    #[test]
    fn a_sum_that_is_no_amount_is_an_error() {
        let most = || vec![Held { amount: U256::MAX, ..held(0, 0, 0, 1)[0].clone() }];
        let addresses = [most(), held(1, 0, 0, 1)];
        let sum = Balance::of(&AssetId::Native, AccountStatus::Active, addresses.iter().map(Vec::as_slice));
        assert_eq!(sum, Err(TooLarge));
    }
}
