//! The Solana side of the stage: who is paid there, in which asset, and what the cluster reports that they hold.
//!
//! Promises: each payment is a real transaction. Nothing is mined and nothing is reorganised: slots come by themselves.

use anyhow::Context;
use landfall_chain::{Address, Asset, AssetId, Chain, Network};

use crate::amount::from_decimal;
use crate::sandbox::books::Holding;
use crate::sandbox::stage::{Person, usdc_of};
use crate::sandbox::surfpool::Surfpool;

/// The network that the cluster stands in for.
pub(super) const CHAIN: Chain = Chain::SolanaDevnet;

/// A payment of the play.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pay {
    pub(super) to: Who,
    pub(super) amount: &'static str,
    pub(super) is_native: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Who {
    Alice,
    Bob,
    Carol,
}

#[derive(Clone, Debug)]
pub(super) struct Cluster<'h> {
    pub(super) node: &'h Surfpool,
    pub(super) alice: Person<'h>,
    pub(super) bob: Person<'h>,
    /// Who sends what she has here.
    pub(super) carol: Person<'h>,
    pub(super) native: Asset,
    pub(super) usdc: Asset,
    mint: Address,
}

/// Makes the network's token on the cluster.
pub(super) async fn prepare(node: &Surfpool, network: &Network) -> anyhow::Result<()> {
    let (usdc, mint) = usdc_of(network)?;
    Ok(node.make_token(&mint, usdc.decimals).await?)
}

impl<'h> Cluster<'h> {
    pub(super) fn of(
        node: &'h Surfpool,
        network: &Network,
        [alice, bob, carol]: [Person<'h>; 3],
    ) -> anyhow::Result<Self> {
        let (usdc, mint) = usdc_of(network)?;
        let native = network.asset(&AssetId::Native).context("the network has no native currency")?.clone();
        Ok(Cluster { node, alice, bob, carol, native, usdc: usdc.clone(), mint })
    }

    /// Pays; returns a description and the transaction's signature.
    pub(super) async fn pay(&self, payment: &Pay) -> anyhow::Result<(String, String)> {
        let to = match payment.to {
            Who::Alice => self.alice,
            Who::Bob => self.bob,
            Who::Carol => self.carol,
        };
        let (asset, mint) = if payment.is_native { (&self.native, None) } else { (&self.usdc, Some(&self.mint)) };
        let tx = self.node.pay(&to.address, from_decimal(payment.amount, asset.decimals)?, mint).await?;
        Ok((format!("{} {} to {}", payment.amount, asset.symbol, to.name), tx))
    }

    /// What the cluster reports of a person's holdings.
    pub(super) async fn holdings(&self) -> anyhow::Result<Vec<Holding>> {
        let mut holdings = Vec::new();
        for Person { name, address, .. } in [self.alice, self.bob, self.carol] {
            let balances = [
                (&self.native, self.node.balance(&address).await?),
                (&self.usdc, self.node.balance_of(&self.mint, &address).await?),
            ];
            for (Asset { symbol, decimals, .. }, balance) in balances {
                holdings.push(Holding { name, address, symbol: symbol.clone(), decimals: *decimals, balance });
            }
        }
        Ok(holdings)
    }
}
