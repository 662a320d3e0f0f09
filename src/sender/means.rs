//! What a carrier may cost: what its sponsor owns, and what an operator allows.
//!
//! What a sponsor owns is one endpoint's report, at most a minute old. It only keeps a nonce from being given to a transaction
//! that nodes would drop.

use futures_util::future::join_all;
use landfall_chain::{Address, FeeMarket, PayingChain, U256};
use tracing::warn;

use crate::gas::{GasCurrency, Usd};
use crate::sender::Sender;
use crate::sender::fees::Offer;
use crate::sender::report::ASKED_TIME_MAX;
use crate::sender::sponsors::Sponsors;
use crate::store::{StoreError, Tx, prices};
use crate::time::Timestamp;
use crate::transfer::SponsorState;

/// What a carrier with this limit may cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Bounds {
    pub(super) gas_limit: u64,
    /// What the chain takes of it on top of gas.
    pub(super) surcharge: U256,
    /// The most for a unit of gas.
    pub(super) max_fee: Option<u128>,
    /// The most for all of it, in base units of the native currency.
    pub(super) budget: Option<U256>,
}

impl Bounds {
    /// What it costs its sponsor at most, and what a node wants the sponsor to own.
    pub(super) fn cost(&self, offer: Offer) -> U256 {
        let gas = U256::from(self.gas_limit).saturating_mul(U256::from(offer.max_fee));
        gas.saturating_add(self.surcharge)
    }

    /// The most that may be offered for a unit of gas; `None`: as much as the market asks for.
    pub(super) fn most(&self) -> Option<u128> {
        let by_cost = self.budget.map(|budget| {
            let units = budget.saturating_sub(self.surcharge) / U256::from(self.gas_limit.max(1));
            u128::try_from(units).unwrap_or(u128::MAX)
        });
        self.max_fee.into_iter().chain(by_cost).min()
    }

    /// What is offered before anything else was at its nonce.
    pub(super) fn first(&self, market: FeeMarket) -> Offer {
        Offer::first(market).within(self.max_fee.unwrap_or(u128::MAX))
    }

    /// Whether the first offer costs no more than all of it may.
    pub(super) fn allows(&self, offer: Offer) -> bool {
        self.budget.is_none_or(|budget| self.cost(offer) <= budget)
    }
}

impl<C: PayingChain> Sender<C> {
    /// What one transaction may cost by the newest price; `None` where there is no price, or no bound.
    pub(super) async fn budget(&self, tx: &mut Tx, now: Timestamp) -> Result<Option<U256>, StoreError> {
        let Some(most) = self.network.sending.max_cost_micro_usd else { return Ok(None) };
        let Some(currency) = GasCurrency::of(&self.network) else { return Ok(None) };
        let newest = prices::of_moment(tx, &currency.symbol, now).await?;
        Ok(newest.map(|newest| newest.price.buys(Usd(most), currency.decimals)))
    }

    /// Whether this sponsor owns so much, as far as that was asked.
    pub(super) fn owns(&self, sponsor: &Address, amount: U256) -> bool {
        self.owned.get(sponsor).is_none_or(|owned| *owned >= amount)
    }

    /// Whether some sponsor that carries new things owns so much.
    pub(super) fn is_any_able(&self, sponsors: &Sponsors, amount: U256) -> bool {
        let mut carrying =
            sponsors.values().filter(|(ready, state)| *state == SponsorState::Active && !ready.is_treasury);
        carrying.any(|(ready, _)| self.owns(&ready.address, amount))
    }

    /// Asks again of who owned less than `amount`: somebody may have funded it since.
    pub(super) async fn ask_means(&mut self, sponsors: &Sponsors, amount: U256) {
        let active = sponsors.values().filter(|(ready, state)| *state == SponsorState::Active && !ready.is_treasury);
        let poor = active.map(|(ready, _)| ready.address).filter(|address| !self.owns(address, amount));
        let asked = poor.map(async |address| {
            let owned = tokio::time::timeout(ASKED_TIME_MAX, self.chain.owned(&address)).await;
            (address, owned.ok().and_then(Result::ok))
        });
        let answers = join_all(asked).await;
        for (address, owned) in answers {
            match owned {
                Some(owned) => drop(self.owned.insert(address, owned)),
                None => warn!("what sponsor {address} on {} owns is not known", self.network.chain),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_a_carrier_costs_is_within_what_is_allowed_and_what_a_rollup_takes_counts() {
        let of = |max_fee, budget: Option<u64>| Bounds {
            gas_limit: 100,
            surcharge: U256::from(5_000),
            max_fee,
            budget: budget.map(U256::from),
        };
        let cases = [
            (of(None, None), None),
            (of(Some(7), None), Some(7)),
            (of(None, Some(15_000)), Some(100)),
            (of(None, Some(15_099)), Some(100)),
            (of(Some(99), Some(15_000)), Some(99)),
            (of(Some(101), Some(15_000)), Some(100)),
            (of(None, Some(5_000)), Some(0)),
            (of(Some(7), Some(1)), Some(0)),
        ];
        for (bounds, most) in cases {
            assert_eq!(bounds.most(), most, "{bounds:?}");
        }
        let (bounds, offer) = (of(None, Some(15_000)), |max_fee| Offer { max_fee, tip: 1 });
        assert_eq!(bounds.cost(offer(100)), U256::from(15_000));
        assert!(bounds.allows(offer(100)) && !bounds.allows(offer(101)));
        assert_eq!(of(Some(7), None).first(FeeMarket { base_fee: 50, tip: 3 }), Offer { max_fee: 7, tip: 3 });
    }
}
