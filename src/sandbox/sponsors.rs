//! The sponsors of the sandbox: one on each chain pays the gas. What each is given is recorded here. So the chain's own
//! balance shows to the last unit what it spent.

use std::time::Duration;

use anyhow::{Context, ensure};
use landfall_chain::{Address, Asset, AssetId, Chain, Family, Network, U256};
use tokio::time::Instant;

use crate::amount::from_decimal;
use crate::gas::EntryKind;
use crate::operator::Operator;
use crate::sandbox::anvil::TxRequest;
use crate::sandbox::books::Spent;
use crate::sandbox::stage::House;
use crate::store::{Db, gas_ledger, sponsors};
use crate::time::Clock;
use crate::transfer::SponsorState;

/// What a sponsor is given, in the native currency.
const FUNDS: &str = "1";
/// The account of the node that funds: the first one pays in the play, the second owns contracts.
const FUNDER: usize = 2;
const DERIVED_TIME_MAX: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
/// More entries than the play makes.
const ENTRIES_MAX: u32 = 1_000;

/// A sponsor that is funded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Sponsored {
    pub(super) chain: Chain,
    pub(super) address: Address,
    native: Asset,
    funds: U256,
}

/// Who decides in the play.
pub(super) fn operator() -> Operator<'static> {
    Operator { actor: "sandbox", reason: "the play", now: Clock::system().now(), dry_run: false }
}

/// Asks for a sponsor on each chain, waits until Landfall has derived its address, and funds it.
pub(super) async fn set_up(house: House<'_>, networks: &[Network]) -> anyhow::Result<Vec<Sponsored>> {
    let mut sponsored = Vec::new();
    for network in networks {
        let chain = network.chain;
        operator().add_sponsors(house.db, chain, 1).await?;
        let address = derived(house.db, chain).await?;
        let native = network.asset(&AssetId::Native).context("the network has no native currency")?.clone();
        let funds = from_decimal(FUNDS, native.decimals)?;
        match (chain.family(), house.surfpool) {
            (Family::Evm, _) => {
                let from = *house.anvil.accounts().await?.get(FUNDER).context("the node has too few accounts")?;
                let tx = TxRequest { from, nonce: 0, to: address, value: funds, data: "0x".to_owned() };
                house.anvil.send(&tx).await?;
                house.anvil.mine(1).await?;
            }
            (Family::Solana, Some(node)) => drop(node.pay(&address, funds, None).await?),
            (Family::Solana, None) => continue,
        }
        sponsored.push(Sponsored { chain, address, native, funds });
    }
    Ok(sponsored)
}

async fn derived(db: &Db, chain: Chain) -> anyhow::Result<Address> {
    let begun = Instant::now();
    loop {
        let known = sponsors::of_chain(&mut db.read().await?, chain).await?;
        if let Some(address) = known.first().and_then(|sponsor| sponsor.address) {
            return Ok(address);
        }
        ensure!(begun.elapsed() < DERIVED_TIME_MAX, "no address was derived for the sponsor on {chain}");
        tokio::time::sleep(POLL).await;
    }
}

impl Sponsored {
    /// What it spent, by the chain's balance, and what of it is in the ledger. `locked` is what `guards` transfers left in
    /// their guards, which is no cost.
    pub(super) async fn spent(&self, house: House<'_>, guards: u64) -> anyhow::Result<Spent> {
        let Sponsored { chain, address, native, funds } = self;
        let (balance, locked) = match house.surfpool.filter(|_| chain.family() == Family::Solana) {
            Some(node) => (node.balance(address).await?, node.rent(0).await? * U256::from(guards)),
            None => (house.anvil.balance(address).await?, U256::ZERO),
        };
        let listed = gas_ledger::newest(&mut house.db.read().await?, None, ENTRIES_MAX).await?;
        let costs = listed.into_iter().map(|listed| listed.entry).filter(|entry| entry.kind == EntryKind::Cost);
        let of_chain = costs.filter_map(|entry| entry.transfer).filter(|transfer| transfer.chain == *chain);
        let booked = of_chain.fold(U256::ZERO, |sum, transfer| sum + transfer.amount);
        let gone = funds.saturating_sub(balance).saturating_sub(locked);
        Ok(Spent { symbol: native.symbol.clone(), decimals: native.decimals, gone, booked })
    }

    /// Lets it carry nothing, or lets it go on.
    pub(super) async fn pause(&self, db: &Db, is_paused: bool) -> anyhow::Result<()> {
        let (active, paused) = (SponsorState::Active, SponsorState::Paused);
        let states = if is_paused { (active, paused) } else { (paused, active) };
        Ok(operator().set_sponsor(db, self.chain, 0, states).await?)
    }
}
