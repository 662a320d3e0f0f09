//! What sending costs, in the native currency and in USD, who bears it, and how much of it the credit pays.
//!
//! Money is integers: native base units are exact, USD are millionths, and each entry is rounded up. The credit is given
//! once; what it does not cover is billed.
//!
//! It does not know SQL, where prices come from, nor who asks.

use std::fmt;
use std::str::FromStr;

use landfall_chain::{AssetId, BlockRef, Network, TxId, U256};
use serde::Deserialize;

use crate::amount::{AmountError, from_decimal, to_decimal};
use crate::time::Timestamp;

/// What every organization is given once: the interface's 100 USD.
pub const GRANT: Usd = Usd(100_000_000);
/// Decimals of [`Usd`].
const USD_DECIMALS: u8 = 6;
/// Decimals of [`Price`]: cheap currencies cost fractions of a millionth.
pub const PRICE_DECIMALS: u8 = 12;
/// No currency costs so many USD.
const PRICE_USD_MAX: u64 = 1_000_000_000;

/// Millionths of a USD.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Usd(pub u64);

/// What one major unit of a native currency costs, in 10^-12 USD; more than 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Price(U256);

/// A price, who says so, and since when.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observation {
    pub symbol: String,
    pub price: Price,
    pub source: PriceSource,
    pub at: Timestamp,
}

/// Where a price comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PriceSource {
    /// A person set it.
    Table,
    /// It was read from a URL.
    Http,
}

/// Why a text is no price.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PriceError {
    #[error("{0:?} is no price: expected more than 0 and less than {PRICE_USD_MAX} USD")]
    Range(String),
    #[error(transparent)]
    Amount(#[from] AmountError),
}

/// What transactions of a chain are paid in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GasCurrency {
    pub symbol: String,
    pub decimals: u8,
    /// What carrying a transfer is taken to cost before one of its route is final, in base units.
    pub first_cost: U256,
}

/// What happens to a transfer that the credit does not cover any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverCredit {
    /// It goes on, and is billed.
    #[default]
    Bill,
    /// It is refused.
    Refuse,
}

/// What an entry of the ledger records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntryKind {
    /// The credit that the organization is given.
    Grant,
    /// What an accepted transfer may cost.
    Hold,
    /// The end of a hold.
    Release,
    /// What a transaction in a final block cost.
    Cost,
}

/// Who bears a cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bearer {
    Customer,
    Platform,
}

/// What a transaction that a sponsor paid for was made for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// It carried the payment.
    Carrier,
    /// It carried the payment, failed, and nothing had paid before it.
    RevertedCarrier,
    /// It failed because another one of ours had paid already.
    SecondCarrier,
    /// It brought an account's own money together.
    Sweep,
    /// It ended what a person had cancelled.
    Cancellation,
    /// It took away the delegate that a payment needed.
    Clearing,
    /// It took back what guards hold.
    Reclaim,
    /// It gave a sponsor what it pays with.
    Refill,
    /// It is ours, and in no attempt on record: the store that had it was set back, or is another one with the same keys.
    Unrecorded,
}

/// To whom a cost goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChargedTo {
    Credit,
    Billed,
    Platform,
}

/// How a cost is divided. Its parts add up to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Split {
    pub credit: Usd,
    pub billed: Usd,
    pub platform: Usd,
}

/// What an organization was given, and what became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Credit {
    pub granted: Usd,
    /// What costs took of it.
    pub used: Usd,
    /// What transfers under way may cost.
    pub held: Usd,
    /// What costs took beyond it.
    pub billed: Usd,
    /// What nobody is charged for.
    pub platform: Usd,
}

/// What a transfer's transactions cost.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetworkFee {
    /// Base units of the native currency.
    pub amount: U256,
    pub symbol: String,
    pub decimals: u8,
    /// `None` until all of it is priced.
    pub charged: Option<(Usd, ChargedTo)>,
}

/// One cost of a transfer: how much, who bears it, and how it was divided, if it is priced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cost {
    pub amount: U256,
    pub bearer: Bearer,
    pub split: Option<Split>,
}

impl Usd {
    pub fn plus(self, other: Usd) -> Usd {
        Usd(self.0.saturating_add(other.0))
    }

    /// Zero where `other` is more.
    pub fn minus(self, other: Usd) -> Usd {
        Usd(self.0.saturating_sub(other.0))
    }
}

/// A decimal of USD.
impl fmt::Display for Usd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_decimal(U256::from(self.0), USD_DECIMALS))
    }
}

/// The most that one entry may be: 1,000,000 USD, in micro-USD.
const ENTRY_MICRO_USD_MAX: u64 = 1_000_000_000_000;

impl FromStr for Usd {
    type Err = AmountError;

    fn from_str(text: &str) -> Result<Self, AmountError> {
        let micro = from_decimal(text, USD_DECIMALS)?;
        u64::try_from(micro).map(Usd).map_err(|_| AmountError::TooLarge(text.to_owned()))
    }
}

impl Price {
    /// What so many base units cost, rounded up.
    pub fn of(self, amount: U256, decimals: u8) -> Usd {
        let unit = U256::from(10).checked_pow(U256::from(decimals)).unwrap_or(U256::MAX);
        let finer = U256::from(10).pow(U256::from(PRICE_DECIMALS - USD_DECIMALS));
        // What nobody can have paid stays at a bound, so that no sum of entries is beyond what is stored.
        let scaled = amount.saturating_mul(self.0).div_ceil(unit).div_ceil(finer);
        Usd(u64::try_from(scaled).unwrap_or(u64::MAX).min(ENTRY_MICRO_USD_MAX))
    }

    /// The most base units that cost no more than `usd`.
    pub fn buys(self, usd: Usd, decimals: u8) -> U256 {
        let unit = U256::from(10).checked_pow(U256::from(decimals)).unwrap_or(U256::MAX);
        let finer = U256::from(10).pow(U256::from(PRICE_DECIMALS - USD_DECIMALS));
        U256::from(usd.0).saturating_mul(finer).saturating_mul(unit) / self.0
    }

    /// Whether it is at least so many times `other`, or `other` so many times this one.
    pub fn is_times(self, other: Price, times: u64) -> bool {
        let times = U256::from(times);
        self.0 >= other.0 * times || other.0 >= self.0 * times
    }
}

/// A decimal of USD.
impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_decimal(self.0, PRICE_DECIMALS))
    }
}

impl FromStr for Price {
    type Err = PriceError;

    fn from_str(text: &str) -> Result<Self, PriceError> {
        let price = from_decimal(text, PRICE_DECIMALS)?;
        let most = U256::from(PRICE_USD_MAX) * U256::from(10).pow(U256::from(PRICE_DECIMALS));
        if price.is_zero() || price >= most { Err(PriceError::Range(text.to_owned())) } else { Ok(Price(price)) }
    }
}

impl PriceSource {
    const ALL: [PriceSource; 2] = [PriceSource::Table, PriceSource::Http];

    /// The name that is stored and shown.
    pub const fn name(self) -> &'static str {
        match self {
            PriceSource::Table => "table",
            PriceSource::Http => "http",
        }
    }
}

impl FromStr for PriceSource {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = PriceSource::ALL.into_iter().find(|source| source.name() == text);
        known.ok_or_else(|| format!("unknown source of a price {text:?}"))
    }
}

impl GasCurrency {
    /// The native currency of a network, if that is listed.
    pub fn of(network: &Network) -> Option<Self> {
        let native = network.asset(&AssetId::Native)?;
        let (symbol, decimals) = (native.symbol.clone(), native.decimals);
        Some(GasCurrency { symbol, decimals, first_cost: U256::from(network.sending.first_cost) })
    }
}

/// What each of `count` bears of a cost that they share; the first what is left. Nobody bears nothing of it.
pub fn shares(amount: U256, count: usize) -> Vec<U256> {
    let of = U256::from(count.max(1));
    let each = amount / of;
    let mut shares = vec![each; count.max(1)];
    shares[0] += amount - each * of;
    shares
}

/// What is held of a transfer that is expected to cost `estimate`: half as much again, for fees rise.
pub fn hold_of(estimate: U256) -> U256 {
    estimate.saturating_add(estimate.div_ceil(U256::from(2)))
}

impl EntryKind {
    const ALL: [EntryKind; 4] = [EntryKind::Grant, EntryKind::Hold, EntryKind::Release, EntryKind::Cost];

    /// The name that is stored and shown.
    pub const fn name(self) -> &'static str {
        match self {
            EntryKind::Grant => "GRANT",
            EntryKind::Hold => "HOLD",
            EntryKind::Release => "RELEASE",
            EntryKind::Cost => "COST",
        }
    }
}

impl FromStr for EntryKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = EntryKind::ALL.into_iter().find(|kind| kind.name() == text);
        known.ok_or_else(|| format!("unknown kind of an entry {text:?}"))
    }
}

impl Bearer {
    const ALL: [Bearer; 2] = [Bearer::Customer, Bearer::Platform];

    /// The name that is stored and shown.
    pub const fn name(self) -> &'static str {
        match self {
            Bearer::Customer => "CUSTOMER",
            Bearer::Platform => "PLATFORM",
        }
    }
}

impl FromStr for Bearer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Bearer::ALL.into_iter().find(|bearer| bearer.name() == text);
        known.ok_or_else(|| format!("unknown bearer of a cost {text:?}"))
    }
}

impl Cause {
    /// What `tx`, an attempt of a transfer in the final block `number`, was for. `paid` is the transaction that paid the
    /// transfer, and its block.
    pub fn of(tx: TxId, number: u64, paid: Option<(TxId, BlockRef)>) -> Self {
        match paid {
            Some((paying, _)) if paying == tx => Cause::Carrier,
            Some((_, block)) if block.number <= number => Cause::SecondCarrier,
            Some(_) | None => Cause::RevertedCarrier,
        }
    }

    pub const fn bearer(self) -> Bearer {
        match self {
            Cause::Carrier | Cause::RevertedCarrier | Cause::Cancellation | Cause::Clearing => Bearer::Customer,
            // We sent it beside the one that paid, or for ourselves, or do not know what for.
            Cause::SecondCarrier | Cause::Sweep | Cause::Reclaim | Cause::Refill | Cause::Unrecorded => {
                Bearer::Platform
            }
        }
    }
}

impl ChargedTo {
    const ALL: [ChargedTo; 3] = [ChargedTo::Credit, ChargedTo::Billed, ChargedTo::Platform];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            ChargedTo::Credit => "CREDIT",
            ChargedTo::Billed => "BILLED",
            ChargedTo::Platform => "PLATFORM",
        }
    }

    pub const fn names() -> [&'static str; 3] {
        [ChargedTo::Credit.name(), ChargedTo::Billed.name(), ChargedTo::Platform.name()]
    }
}

impl FromStr for ChargedTo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = ChargedTo::ALL.into_iter().find(|charged| charged.name() == text);
        known.ok_or_else(|| format!("unknown charge of a cost {text:?}"))
    }
}

impl Split {
    pub fn sum(self) -> Usd {
        self.credit.plus(self.billed).plus(self.platform)
    }

    /// To whom all of it counts as charged: what is billed in part is billed.
    const fn charged_to(self) -> ChargedTo {
        if self.billed.0 > 0 {
            ChargedTo::Billed
        } else if self.credit.0 > 0 || self.platform.0 == 0 {
            ChargedTo::Credit
        } else {
            ChargedTo::Platform
        }
    }
}

impl Credit {
    /// What may still be spent of it: neither used nor held.
    pub fn remaining(self) -> Usd {
        self.granted.minus(self.used).minus(self.held)
    }

    /// The credit after such a cost.
    #[must_use]
    pub fn after(self, split: Split) -> Self {
        let (used, billed) = (self.used.plus(split.credit), self.billed.plus(split.billed));
        Credit { used, billed, platform: self.platform.plus(split.platform), ..self }
    }

    /// How a cost is divided: the customer's goes to the credit as far as that reaches, and is billed beyond.
    pub fn split(self, cost: Usd, bearer: Bearer) -> Split {
        match bearer {
            Bearer::Platform => Split { platform: cost, ..Split::default() },
            Bearer::Customer => {
                let credit = cost.min(self.granted.minus(self.used));
                Split { credit, billed: cost.minus(credit), ..Split::default() }
            }
        }
    }
}

/// What a transfer's transactions cost who is charged for it: the customer's share, or all of it where the customer
/// bears none. `None` before any of them is final.
pub fn network_fee(costs: &[Cost], currency: &GasCurrency) -> Option<NetworkFee> {
    let bearer =
        [Bearer::Customer, Bearer::Platform].into_iter().find(|of| costs.iter().any(|cost| cost.bearer == *of))?;
    let (mut amount, mut charged) = (U256::ZERO, Some(Split::default()));
    for cost in costs.iter().filter(|cost| cost.bearer == bearer) {
        amount = amount.saturating_add(cost.amount);
        charged = charged.zip(cost.split).map(|(sum, split)| Split {
            credit: sum.credit.plus(split.credit),
            billed: sum.billed.plus(split.billed),
            platform: sum.platform.plus(split.platform),
        });
    }
    let charged = charged.map(|split| (split.sum(), split.charged_to()));
    Some(NetworkFee { amount, symbol: currency.symbol.clone(), decimals: currency.decimals, charged })
}

#[cfg(test)]
mod tests {
    use landfall_chain::BlockHash;

    use super::*;

    fn price(text: &str) -> Price {
        text.parse().unwrap()
    }

    fn usd(text: &str) -> Usd {
        Usd(u64::try_from(from_decimal(text, USD_DECIMALS).unwrap()).unwrap())
    }

    fn credit(used: &str, held: &str) -> Credit {
        Credit { granted: GRANT, used: usd(used), held: usd(held), ..Credit::default() }
    }

    #[test]
    fn a_price_is_more_than_nothing_and_less_than_any_currency_costs() {
        for (text, shown) in [("3000", "3000"), ("0.213457", "0.213457"), ("0.000000000001", "0.000000000001")] {
            assert_eq!(price(text).to_string(), shown);
        }
        assert_eq!(price("999999999.999999999999").to_string(), "999999999.999999999999");
        for text in ["0", "0.0", "-1", "1000000000", "1e3", "", "NaN", "1,5", "0.0000000000001", "+1", " 1"] {
            assert!(text.parse::<Price>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn each_cost_is_rounded_up_to_a_millionth() {
        let ether = |wei: u64| price("3000").of(U256::from(wei), 18);
        assert_eq!(ether(0), Usd(0));
        assert_eq!(ether(1), Usd(1), "3e-15 USD");
        assert_eq!(ether(79_000_000_000_000), usd("0.237"));
        assert_eq!(ether(79_000_000_000_001), usd("0.237001"));
        assert_eq!(price("150.5").of(U256::from(10_000), 9), usd("0.001505"));
        assert_eq!(price("1").of(U256::MAX, 0), Usd(ENTRY_MICRO_USD_MAX));
    }

    #[test]
    fn what_a_sum_buys_costs_no_more_and_one_unit_more_does() {
        for (text, decimals) in [("3000", 18), ("0.213457", 18), ("0.000000000001", 18), ("150.5", 9), ("7", 0)] {
            for sum in ["1", "0.000001", "100", "33.333333"] {
                let most = price(text).buys(usd(sum), decimals);
                assert!(price(text).of(most, decimals) <= usd(sum), "{text} {sum}");
                assert!(price(text).of(most + U256::from(1), decimals) > usd(sum), "{text} {sum}");
            }
        }
    }

    #[test]
    fn half_as_much_again_is_held() {
        for (estimate, held) in [(0, 0), (1, 2), (2, 3), (3, 5), (1_000, 1_500)] {
            assert_eq!(hold_of(U256::from(estimate)), U256::from(held));
        }
        assert_eq!(hold_of(U256::MAX), U256::MAX);
    }

    /// The table of who bears what.
    #[test]
    fn the_customer_bears_what_its_transfer_took_and_the_platform_what_we_sent_beside() {
        let block = |number| BlockRef { number, hash: BlockHash([1; 32]) };
        let (paying, other) = (TxId::Evm([1; 32]), TxId::Evm([2; 32]));
        for (tx, number, paid, cause, bearer) in [
            (paying, 7, Some((paying, block(7))), Cause::Carrier, Bearer::Customer),
            (other, 6, Some((paying, block(7))), Cause::RevertedCarrier, Bearer::Customer),
            (other, 7, None, Cause::RevertedCarrier, Bearer::Customer),
            (other, 7, Some((paying, block(7))), Cause::SecondCarrier, Bearer::Platform),
            (other, 8, Some((paying, block(7))), Cause::SecondCarrier, Bearer::Platform),
        ] {
            assert_eq!(Cause::of(tx, number, paid), cause);
            assert_eq!(cause.bearer(), bearer, "{cause:?}");
        }
        assert_eq!([Cause::Sweep, Cause::Reclaim, Cause::Unrecorded].map(Cause::bearer), [Bearer::Platform; 3]);
        assert_eq!([Cause::Cancellation, Cause::Clearing].map(Cause::bearer), [Bearer::Customer; 2]);
    }

    #[test]
    fn what_several_share_is_divided_evenly_and_the_first_bears_what_is_left() {
        for (amount, count, first, each) in [(0, 1, 0, 0), (7, 1, 7, 7), (7, 3, 3, 2), (6, 3, 2, 2), (1, 20, 1, 0)] {
            let shares = shares(U256::from(amount), count);
            assert_eq!((shares.len(), shares[0]), (count, U256::from(first)), "{amount} {count}");
            assert!(shares[1..].iter().all(|share| *share == U256::from(each)));
            assert_eq!(shares.iter().sum::<U256>(), U256::from(amount));
        }
    }

    #[test]
    fn the_credit_pays_first_the_entry_that_crosses_it_is_split_and_the_rest_is_billed() {
        for (used, cost, from_credit, billed) in [
            ("0", "0.5", "0.5", "0"),
            ("99.5", "0.5", "0.5", "0"),
            ("99.9", "0.5", "0.1", "0.4"),
            ("100", "0.5", "0", "0.5"),
            ("0", "250", "100", "150"),
        ] {
            // What others hold does not decide what this one cost.
            let split = credit(used, "50").split(usd(cost), Bearer::Customer);
            assert_eq!((split.credit, split.billed), (usd(from_credit), usd(billed)), "{used} {cost}");
            assert_eq!(split.sum(), usd(cost));
            let ours = credit(used, "0").split(usd(cost), Bearer::Platform);
            assert_eq!((ours, ours.sum()), (Split { platform: usd(cost), ..Split::default() }, usd(cost)));
        }
    }

    #[test]
    fn what_is_held_may_not_be_spent_twice() {
        assert_eq!(credit("10", "30").remaining(), usd("60"));
        assert_eq!(credit("80", "30").remaining(), Usd(0));
    }

    #[test]
    fn a_transfers_fee_is_the_sum_of_what_its_customer_bears() {
        let currency = GasCurrency { symbol: "ETH".to_owned(), decimals: 18, first_cost: U256::ZERO };
        let cost = |amount: u64, bearer, split| Cost { amount: U256::from(amount), bearer, split };
        let of =
            |credit: &str, billed: &str| Some(Split { credit: usd(credit), billed: usd(billed), ..Split::default() });
        let ours = cost(9, Bearer::Platform, Some(Split { platform: usd("9"), ..Split::default() }));
        let fee = |costs: &[Cost]| network_fee(costs, &currency).map(|fee| (fee.amount, fee.charged));
        assert_eq!(fee(&[]), None);
        let carrier = cost(5, Bearer::Customer, of("1", "0"));
        assert_eq!(fee(&[carrier, ours]), Some((U256::from(5), Some((usd("1"), ChargedTo::Credit)))));
        let crossing = cost(7, Bearer::Customer, of("1", "2"));
        assert_eq!(fee(&[carrier, crossing]), Some((U256::from(12), Some((usd("4"), ChargedTo::Billed)))));
        assert_eq!(fee(&[carrier, cost(7, Bearer::Customer, None)]), Some((U256::from(12), None)));
        assert_eq!(fee(&[ours]), Some((U256::from(9), Some((usd("9"), ChargedTo::Platform)))));
    }
}
