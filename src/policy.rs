//! Limits that operators put on transfers: of one account, one identity, or everybody.
//!
//! Amounts are in the major unit of the currency, so that no price decides. All policies that apply to a transfer must
//! leave room for it; where they differ, the narrower counts. What FAILED or was DROPPED does not count.
//!
//! It does not know SQL, nor who asks.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use landfall_chain::{Chain, Network, U256, hash_of};

use crate::amount::{PayableError, payable, to_decimal};
use crate::deposit::uuid_of;
use crate::time::Timestamp;

/// Decimals of [`Major`]: as many as any asset that is known has.
const SCALE: u8 = 36;
/// How many limits one policy has at most.
pub const LIMITS_MAX: usize = 32;
/// How many policies are in force at most: each transfer is held against those that apply to it.
pub const POLICIES_MAX: u64 = 1_000;
/// How many bytes the symbol of a currency has at most.
const SYMBOL_BYTES_MAX: usize = 32;

/// An amount in the major unit of its currency. Amounts of one currency add up, however many decimals it has on each
/// chain. What would be more than 2^256 stays at that: it is beyond every limit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Major(U256);

/// Whose transfers a policy limits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PolicyScope {
    /// All of the organization with this id.
    Organization(String),
    /// Of all accounts of the identity, together.
    Identity(String),
    Account(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PolicyStatus {
    Active,
    Removed,
}

/// What a limit counts together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Period {
    /// One transfer.
    Transaction,
    /// The last 24 hours.
    Day,
    /// The last 7 days.
    Week,
    /// The last 30 days.
    Month,
}

/// The most that may be sent of a currency in a period: so much, so often, or both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PolicyLimit {
    pub period: Period,
    pub symbol: String,
    pub amount: Option<Major>,
    pub count: Option<u64>,
}

/// What operators allow to be sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Policy {
    pub id: String,
    pub label: String,
    pub status: PolicyStatus,
    pub scope: PolicyScope,
    /// Only transfers on this chain; on all where there is none.
    pub chain: Option<Chain>,
    pub limits: Vec<PolicyLimit>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// What was sent of a currency in a period.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Used {
    pub amount: Major,
    pub count: u64,
}

/// A limit that leaves no room for a transfer, and what it leaves.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("policy {policy_id} leaves {left}")]
pub struct Exceeded {
    pub policy_id: String,
    /// The limit, as if it were what is left.
    pub left: PolicyLimit,
}

/// Why limits make no policy.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PolicyError {
    #[error("a policy has 1 to {LIMITS_MAX} limits: --limit DAY:USDC:amount=1000,count=10")]
    Limits,
    #[error("{symbol} for a {} is limited twice; write one limit with the amount and the count", period.name())]
    Twice { period: Period, symbol: String },
    #[error("{symbol} is not listed on {place}: they are {listed}")]
    NotListed { symbol: String, place: String, listed: String },
    #[error("{amount} {symbol} has more decimals than {symbol} has")]
    TooPrecise { amount: Major, symbol: String },
}

/// Why a text is no limit.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    #[error("expected PERIOD:SYMBOL:amount=A, PERIOD:SYMBOL:count=N or both, as in DAY:USDC:amount=1000,count=10")]
    Form,
    #[error("{0:?} is no period: expected TRANSACTION, DAY, WEEK or MONTH")]
    Period(String),
    #[error("a count of transactions in one transaction says nothing: give it a DAY, WEEK or MONTH")]
    CountOfOne,
    #[error("{0:?} is no count: expected a whole number from 1 on")]
    Count(String),
    #[error(transparent)]
    Amount(#[from] PayableError),
}

impl Major {
    /// An amount of an asset with so many decimals. What is finer than the scale is rounded up.
    pub fn of(base_units: U256, decimals: u8) -> Self {
        let power = |exponent: u8| U256::from(10).checked_pow(U256::from(exponent)).unwrap_or(U256::MAX);
        Major(match SCALE.checked_sub(decimals) {
            Some(finer) => base_units.saturating_mul(power(finer)),
            None => base_units.div_ceil(power(decimals - SCALE)),
        })
    }

    pub fn plus(self, other: Major) -> Major {
        Major(self.0.saturating_add(other.0))
    }

    /// How much more it is than `other`; zero where it is not.
    fn beyond(self, other: Major) -> Major {
        Major(self.0.saturating_sub(other.0))
    }

    /// Whether an asset with so many decimals has such an amount.
    pub fn fits(self, decimals: u8) -> bool {
        let finer = SCALE.saturating_sub(decimals);
        U256::from(10).checked_pow(U256::from(finer)).is_some_and(|unit| (self.0 % unit).is_zero())
    }
}

impl fmt::Display for Major {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_decimal(self.0, SCALE))
    }
}

impl FromStr for Major {
    type Err = PayableError;

    fn from_str(text: &str) -> Result<Self, PayableError> {
        payable(text, SCALE).map(Major)
    }
}

impl PolicyScope {
    /// The name on the wire.
    pub const fn name(&self) -> &'static str {
        match self {
            PolicyScope::Organization(_) => "ORGANIZATION",
            PolicyScope::Identity(_) => "IDENTITY",
            PolicyScope::Account(_) => "ACCOUNT",
        }
    }

    pub fn id(&self) -> &str {
        let (PolicyScope::Organization(id) | PolicyScope::Identity(id) | PolicyScope::Account(id)) = self;
        id
    }

    /// Reads [`PolicyScope::name`] and [`PolicyScope::id`].
    ///
    /// # Errors
    /// A name that is none.
    pub fn read(name: &str, id: String) -> Result<Self, String> {
        match name {
            "ORGANIZATION" => Ok(PolicyScope::Organization(id)),
            "IDENTITY" => Ok(PolicyScope::Identity(id)),
            "ACCOUNT" => Ok(PolicyScope::Account(id)),
            _ => Err(format!("unknown scope of a policy {name:?}")),
        }
    }
}

impl PolicyStatus {
    pub const ALL: [PolicyStatus; 2] = [PolicyStatus::Active, PolicyStatus::Removed];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            PolicyStatus::Active => "ACTIVE",
            PolicyStatus::Removed => "REMOVED",
        }
    }
}

impl FromStr for PolicyStatus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = PolicyStatus::ALL.into_iter().find(|status| status.name() == text);
        known.ok_or_else(|| format!("unknown status of a policy {text:?}"))
    }
}

impl Period {
    pub const ALL: [Period; 4] = [Period::Transaction, Period::Day, Period::Week, Period::Month];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            Period::Transaction => "TRANSACTION",
            Period::Day => "DAY",
            Period::Week => "WEEK",
            Period::Month => "MONTH",
        }
    }

    /// How far it reaches back: what was accepted exactly so long ago does not count any more. `None` for one transfer.
    pub const fn length(self) -> Option<Duration> {
        const DAY_SECS: u64 = 24 * 3_600;
        match self {
            Period::Transaction => None,
            Period::Day => Some(Duration::from_secs(DAY_SECS)),
            Period::Week => Some(Duration::from_secs(7 * DAY_SECS)),
            Period::Month => Some(Duration::from_secs(30 * DAY_SECS)),
        }
    }
}

impl FromStr for Period {
    type Err = LimitError;

    fn from_str(text: &str) -> Result<Self, LimitError> {
        let known = Period::ALL.into_iter().find(|period| period.name() == text);
        known.ok_or_else(|| LimitError::Period(text.to_owned()))
    }
}

impl PolicyLimit {
    /// What it leaves when so much was `used`, if that is too little for a transfer of `asked`.
    fn leaves_too_little(&self, used: Used, asked: Major) -> Option<PolicyLimit> {
        let amount = self.amount.map(|most| most.beyond(used.amount));
        let count = self.count.map(|most| most.saturating_sub(used.count));
        let is_room = amount.is_none_or(|left| asked <= left) && count.is_none_or(|left| left > 0);
        (!is_room).then(|| PolicyLimit { amount, count, ..self.clone() })
    }

    /// By how narrow it is: one that allows no further transfer first, then by amount.
    fn narrowness(&self) -> Major {
        if self.count == Some(0) { Major::default() } else { self.amount.unwrap_or(Major(U256::MAX)) }
    }
}

impl fmt::Display for PolicyLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PolicyLimit { period, symbol, amount, count } = self;
        let amount = amount.map(|amount| format!("{amount} {symbol}"));
        let count = count.map(|count| format!("{count} transfers of {symbol}"));
        let parts: Vec<String> = [amount, count].into_iter().flatten().collect();
        let period = match period {
            Period::Transaction => "in one transfer",
            Period::Day => "in 24 hours",
            Period::Week => "in 7 days",
            Period::Month => "in 30 days",
        };
        write!(f, "{} {period}", parts.join(" and "))
    }
}

impl FromStr for PolicyLimit {
    type Err = LimitError;

    /// Reads `DAY:USDC:amount=1000,count=10`.
    fn from_str(text: &str) -> Result<Self, LimitError> {
        let mut parts = text.splitn(3, ':');
        let (Some(period), Some(symbol), Some(most)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(LimitError::Form);
        };
        let period: Period = period.parse()?;
        let is_symbol = !symbol.is_empty() && symbol.len() <= SYMBOL_BYTES_MAX;
        let (mut amount, mut count) = (None, None);
        for part in most.split(',') {
            match part.split_once('=') {
                Some(("amount", text)) if amount.is_none() => amount = Some(text.parse::<Major>()?),
                Some(("count", text)) if count.is_none() => {
                    let number = text.parse().ok().filter(|number| (1..=u64::from(u32::MAX)).contains(number));
                    count = Some(number.ok_or_else(|| LimitError::Count(text.to_owned()))?);
                }
                Some(_) | None => return Err(LimitError::Form),
            }
        }
        if count.is_some() && period == Period::Transaction {
            return Err(LimitError::CountOfOne);
        }
        if is_symbol {
            Ok(PolicyLimit { period, symbol: symbol.to_owned(), amount, count })
        } else {
            Err(LimitError::Form)
        }
    }
}

impl Policy {
    /// A policy in force from `now` on.
    ///
    /// # Errors
    /// No limit, too many, or two for the same period and currency.
    pub fn new(
        label: String,
        scope: PolicyScope,
        chain: Option<Chain>,
        limits: Vec<PolicyLimit>,
        now: Timestamp,
    ) -> Result<Self, PolicyError> {
        if limits.is_empty() || limits.len() > LIMITS_MAX {
            return Err(PolicyError::Limits);
        }
        for (nth, limit) in limits.iter().enumerate() {
            let is_same = |other: &&PolicyLimit| (other.period, &other.symbol) == (limit.period, &limit.symbol);
            if let Some(PolicyLimit { period, symbol, .. }) = limits[..nth].iter().find(is_same) {
                return Err(PolicyError::Twice { period: *period, symbol: symbol.clone() });
            }
        }
        let (at, on) = (now.0.to_string(), chain.map_or("", Chain::name));
        let mut fields = vec!["policy/v1".to_owned(), label.clone(), scope.name().to_owned(), scope.id().to_owned()];
        fields.extend([on.to_owned(), at]);
        fields.extend(limits.iter().map(PolicyLimit::to_string));
        let id = uuid_of(&hash_of(fields.iter().map(String::as_bytes))).to_string();
        let status = PolicyStatus::Active;
        Ok(Policy { id, label, status, scope, chain, limits, created_at: now, updated_at: now })
    }

    /// Checks that its currencies are listed where it applies. A limit of what nobody can send would look like one.
    ///
    /// # Errors
    /// A currency that is not listed, or an amount that it cannot have.
    pub fn check_listed(&self, networks: &[Network]) -> Result<(), PolicyError> {
        let applies = |network: &&Network| self.chain.is_none_or(|chain| chain == network.chain);
        let assets: Vec<_> = networks.iter().filter(applies).flat_map(|network| &network.assets).collect();
        for PolicyLimit { symbol, amount, .. } in &self.limits {
            let decimals = assets.iter().filter(|asset| asset.symbol == *symbol).map(|asset| asset.decimals).max();
            let Some(decimals) = decimals else {
                let listed: BTreeSet<&str> = assets.iter().map(|asset| asset.symbol.as_str()).collect();
                let listed = listed.into_iter().collect::<Vec<_>>().join(", ");
                let place = self.chain.map_or("any chain that is followed".to_owned(), |chain| chain.to_string());
                return Err(PolicyError::NotListed { symbol: symbol.clone(), place, listed });
            };
            if let Some(amount) = amount.filter(|amount| !amount.fits(decimals)) {
                return Err(PolicyError::TooPrecise { amount, symbol: symbol.clone() });
            }
        }
        Ok(())
    }
}

/// The narrowest of the limits that leave too little room for a transfer of `asked`, which is counted against each with
/// what its period `used`.
///
/// # Errors
/// That limit.
pub fn allow<'p>(
    counted: impl IntoIterator<Item = (&'p Policy, &'p PolicyLimit, Used)>,
    asked: Major,
) -> Result<(), Exceeded> {
    let exceeded = counted.into_iter().filter_map(|(policy, limit, used)| {
        let left = limit.leaves_too_little(used, asked)?;
        Some(Exceeded { policy_id: policy.id.clone(), left })
    });
    match exceeded
        .min_by(|one, other| (one.left.narrowness(), &one.policy_id).cmp(&(other.left.narrowness(), &other.policy_id)))
    {
        Some(narrowest) => Err(narrowest),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(text: &str) -> PolicyLimit {
        text.parse().unwrap()
    }

    fn policy(label: &str, limits: &[&str]) -> Policy {
        let limits = limits.iter().copied().map(limit).collect();
        Policy::new(label.to_owned(), PolicyScope::Account("alice".to_owned()), None, limits, Timestamp(1)).unwrap()
    }

    fn major(text: &str) -> Major {
        text.parse().unwrap()
    }

    fn used(amount: &str, count: u64) -> Used {
        Used { amount: major(amount), count }
    }

    #[test]
    fn amounts_of_one_currency_add_up_whatever_decimals_it_has() {
        let six = Major::of(U256::from(1_500_000), 6);
        let eighteen = Major::of(U256::from(10).pow(U256::from(18)), 18);
        assert_eq!(six.plus(eighteen).to_string(), "2.5");
        assert_eq!(Major::of(U256::from(1), 37), Major::of(U256::from(10), 37), "finer than the scale rounds up");
        assert_eq!(Major::of(U256::MAX, 0), Major(U256::MAX));
        assert!(Major(U256::MAX).plus(six) == Major(U256::MAX));
        assert!(major("0.000001").fits(6) && !major("0.0000001").fits(6) && major("7").fits(0));
    }

    #[test]
    fn a_limit_is_read_in_one_way_and_said_in_words() {
        for (text, said) in [
            ("DAY:USDC:amount=1000,count=10", "1000 USDC and 10 transfers of USDC in 24 hours"),
            ("WEEK:EURC:count=3", "3 transfers of EURC in 7 days"),
            ("MONTH:ETH:amount=0.5", "0.5 ETH in 30 days"),
            ("TRANSACTION:USDC:amount=0.000001", "0.000001 USDC in one transfer"),
        ] {
            assert_eq!(limit(text).to_string(), said);
        }
        for text in [
            "",
            "DAY",
            "DAY:USDC",
            "DAY:USDC:",
            "DAY::amount=1",
            "day:USDC:amount=1",
            "YEAR:USDC:amount=1",
            "DAY:USDC:amount=0",
            "DAY:USDC:amount=-1",
            "DAY:USDC:amount=1e3",
            "DAY:USDC:amount=01",
            "DAY:USDC:count=0",
            "DAY:USDC:count=-1",
            "DAY:USDC:count=1.5",
            "DAY:USDC:amount=1,amount=2",
            "DAY:USDC:amount=1;count=2",
            "TRANSACTION:USDC:count=1",
            "DAY:USDC:most=1",
        ] {
            assert!(text.parse::<PolicyLimit>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_policy_has_limits_and_none_of_them_twice() {
        let of = |limits: &[&str]| {
            let limits = limits.iter().copied().map(limit).collect();
            Policy::new(String::new(), PolicyScope::Organization("default".to_owned()), None, limits, Timestamp(1))
        };
        assert_eq!(of(&[]).unwrap_err(), PolicyError::Limits);
        assert_eq!(of(&["DAY:USDC:count=1"; LIMITS_MAX + 1]).unwrap_err(), PolicyError::Limits);
        let twice = of(&["DAY:USDC:amount=1", "WEEK:USDC:amount=1", "DAY:USDC:count=1"]);
        assert_eq!(twice.unwrap_err(), PolicyError::Twice { period: Period::Day, symbol: "USDC".to_owned() });
        assert!(of(&["DAY:USDC:amount=1", "WEEK:USDC:amount=1", "DAY:EURC:amount=1"]).is_ok());
    }

    #[test]
    fn a_transfer_fits_into_exactly_what_is_left() {
        for (text, used, asked, left) in [
            ("DAY:USDC:amount=10", used("4", 1), "6", None),
            ("DAY:USDC:amount=10", used("4", 1), "6.000001", Some("6 USDC in 24 hours")),
            ("DAY:USDC:amount=10", used("11", 1), "1", Some("0 USDC in 24 hours")),
            ("DAY:USDC:count=2", used("4", 1), "1000", None),
            ("DAY:USDC:count=2", used("4", 2), "1", Some("0 transfers of USDC in 24 hours")),
            ("DAY:USDC:amount=10,count=2", used("4", 2), "1", Some("6 USDC and 0 transfers of USDC in 24 hours")),
            ("TRANSACTION:USDC:amount=5", Used::default(), "5", None),
            ("TRANSACTION:USDC:amount=5", Used::default(), "5.1", Some("5 USDC in one transfer")),
        ] {
            let found = limit(text).leaves_too_little(used, major(asked)).map(|left| left.to_string());
            assert_eq!(found.as_deref(), left, "{text} {asked}");
        }
    }

    #[test]
    fn of_policies_that_contradict_the_narrower_counts() {
        let (wide, narrow) = (policy("wide", &["DAY:USDC:amount=100"]), policy("narrow", &["DAY:USDC:amount=5"]));
        let often = policy("often", &["DAY:USDC:count=3"]);
        let counted = |count| {
            [&wide, &narrow, &often].map(|policy| (policy, &policy.limits[0], Used { count, ..Used::default() }))
        };
        assert_eq!(allow(counted(0), major("5")), Ok(()));
        // What is too much for both is refused by the narrower.
        for asked in ["6", "101"] {
            let refused = allow(counted(0), major(asked)).unwrap_err();
            assert_eq!(
                (refused.policy_id, refused.left.to_string()),
                (narrow.id.clone(), "5 USDC in 24 hours".to_owned())
            );
        }
        assert_eq!(allow(counted(3), major("101")).unwrap_err().policy_id, often.id, "it allows nothing at all");
    }
}
