//! What a sponsor offers for gas, and for compute units: pure.

use landfall_chain::FeeMarket;

/// What a transaction offers for a unit of gas, in base units of the native currency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Offer {
    pub(super) max_fee: u128,
    pub(super) tip: u128,
}

/// The least price of a compute unit that is offered, and the most that all units of an attempt may cost: in millionths of
/// a lamport, and in lamports.
const COMPUTE_PRICE_LEAST: u128 = 1_000;
const COMPUTE_COST_MAX: u128 = 1_000_000;
const MILLIONTHS: u128 = 1_000_000;

/// What an attempt offers for a compute unit of `limit`: no less than the market, and half as much again as the attempt
/// `before`.
pub(super) fn compute_price(market: u128, before: Option<u128>, limit: u32) -> u128 {
    let raised = before.map_or(0, |before| before.saturating_add(before.div_ceil(2)));
    let most = COMPUTE_COST_MAX * MILLIONTHS / u128::from(limit.max(1));
    market.max(raised).max(COMPUTE_PRICE_LEAST).min(most)
}

impl Offer {
    /// The offer of a first attempt: it stays good while the base fee doubles.
    pub(super) fn first(market: FeeMarket) -> Self {
        let FeeMarket { base_fee, tip } = market;
        Offer { max_fee: base_fee.saturating_mul(2).saturating_add(tip), tip }
    }

    /// The offer that replaces this one: an eighth more, for nodes take no less than a tenth, and no less than the market
    /// as far as `most` allows it. `None` where `most` does not allow an eighth more.
    pub(super) fn raised(self, market: FeeMarket, most: Option<u128>) -> Option<Self> {
        let market = Offer::first(market);
        let eighth_more = |wei: u128| wei.saturating_add(wei.div_ceil(8)).saturating_add(1);
        let least = Offer { max_fee: eighth_more(self.max_fee), tip: eighth_more(self.tip) };
        let most = most.unwrap_or(u128::MAX);
        if least.max_fee > most || least.tip > most {
            return None;
        }
        Some(Offer { max_fee: least.max_fee.max(market.max_fee), tip: least.tip.max(market.tip) }.within(most))
    }

    /// The offer, or `most` where it is more.
    pub(super) fn within(self, most: u128) -> Self {
        Offer { max_fee: self.max_fee.min(most), tip: self.tip.min(most) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attempt_offers_half_as_much_again_and_never_more_than_may_be_spent() {
        let cases = [
            (0, None, 1_000),
            (5_000, None, 5_000),
            (5_000, Some(1_000), 5_000),
            (0, Some(1_000), 1_500),
            (0, Some(1_501), 2_252),
            (0, Some(u128::MAX), 50_000_000),
            (u128::MAX, None, 50_000_000),
        ];
        for (market, before, expected) in cases {
            assert_eq!(compute_price(market, before, 20_000), expected, "{market} {before:?}");
        }
    }

    #[test]
    fn a_first_offer_bears_twice_the_base_fee() {
        let market = FeeMarket { base_fee: 7, tip: 3 };
        assert_eq!(Offer::first(market), Offer { max_fee: 17, tip: 3 });
        let absurd = FeeMarket { base_fee: u128::MAX, tip: 3 };
        assert_eq!(Offer::first(absurd).max_fee, u128::MAX);
    }

    #[test]
    fn no_offer_is_beyond_what_an_operator_allows() {
        assert_eq!(Offer { max_fee: 100, tip: 30 }.within(20), Offer { max_fee: 20, tip: 20 });
        let (offer, dear) = (Offer { max_fee: 80, tip: 8 }, FeeMarket { base_fee: 500, tip: 50 });
        for (most, expected) in [
            (None, Some(Offer { max_fee: 1_050, tip: 50 })),
            (Some(100), Some(Offer { max_fee: 100, tip: 50 })),
            (Some(91), Some(Offer { max_fee: 91, tip: 50 })),
            // A node would not take it in place of the one before.
            (Some(90), None),
        ] {
            assert_eq!(offer.raised(dear, most), expected, "{most:?}");
        }
    }

    #[test]
    fn a_replacement_offers_a_tenth_more_at_least_and_no_less_than_the_market() {
        for (max_fee, tip) in [(1, 0), (9, 1), (1_000, 100), (123_456_789, 1_000_001)] {
            let raised = Offer { max_fee, tip }.raised(FeeMarket { base_fee: 0, tip: 0 }, None).unwrap();
            assert!(raised.max_fee * 10 >= max_fee * 11 && raised.tip * 10 >= tip * 11, "{max_fee} {tip}");
            assert!(raised.max_fee > max_fee && raised.tip > tip);
        }
        let market = FeeMarket { base_fee: 500, tip: 50 };
        assert_eq!(Offer { max_fee: 10, tip: 1 }.raised(market, None), Some(Offer { max_fee: 1_050, tip: 50 }));
    }
}
