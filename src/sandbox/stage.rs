//! The stage of the play: the node, the people who are paid, the receiver, and how to wait for something.
//!
//! Promises: no wait goes on for longer than [`STANDSTILL_MAX`] without anything new. Blocks are mined only when a
//! payment or a wait asks for one, so that a reorg hits the intended block.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Context, bail};
use landfall_chain::{Address, Asset, AssetId, BlockRef, Chain, Network, U256};
use tokio::time::Instant;

use crate::account::{AccountType, NewAccount};
use crate::amount::from_decimal;
use crate::random;
use crate::receiver::Receiver;
use crate::registry;
use crate::sandbox::anvil::{Anvil, TxRequest};
use crate::sandbox::books::{Evidence, Holding, Shown};
use crate::sandbox::client::Api;
use crate::sandbox::cluster::Cluster;
use crate::sandbox::screen::Screen;
use crate::sandbox::surfpool::Surfpool;
use crate::sandbox::token;
use crate::store::cursors::Cursor;
use crate::store::{Db, status, unexplained};
use crate::time::Clock;

/// How long nothing new may come before the play gives up. It does not bound the whole play, which takes longer on a
/// slow machine.
const STANDSTILL_MAX: Duration = Duration::from_secs(90);
/// How often a block comes: for people who follow, and for machines.
const BLOCK_TIME: Duration = Duration::from_millis(700);
const BLOCK_TIME_ONCE: Duration = Duration::from_millis(200);
const TURN_TIME: Duration = Duration::from_millis(25);
/// What the payer has to give, in base units of the token.
const TOKENS_MINTED: u64 = 1_000_000_000_000;
/// So many are counted on each chain. One is a fault already.
const UNEXPLAINED_MAX: u32 = 100;
/// So that there is a final block before the first deposit.
const FIRST_BLOCKS: u64 = 3;

/// What the stage stands on.
#[derive(Clone, Copy, Debug)]
pub(super) struct House<'h> {
    pub(super) anvil: &'h Anvil,
    pub(super) surfpool: Option<&'h Surfpool>,
    pub(super) receiver: &'h Receiver,
    pub(super) db: &'h Db,
    pub(super) api: &'h Api,
}

/// How the play is shown.
#[derive(Clone, Copy, Debug)]
pub(super) struct Show {
    pub(super) screen: Screen,
    /// At the speed of machines.
    pub(super) once: bool,
}

/// An account and its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Person {
    pub(super) account_id: &'static str,
    pub(super) address: Address,
}

/// A transaction that pays someone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Payment {
    /// A description for people.
    pub(super) what: String,
    /// How many deposits it makes.
    pub(super) legs: usize,
    to: Address,
    value: U256,
    data: String,
}

/// Whether a wait makes blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mining {
    On,
    Off,
}

#[derive(Debug)]
pub(super) struct Stage<'h> {
    pub(super) house: House<'h>,
    pub(super) screen: Screen,
    pub(super) payer: Address,
    pub(super) alice: Person,
    pub(super) bob: Person,
    /// The same people on Solana, if there is a cluster.
    pub(super) cluster: Option<Cluster<'h>>,
    chain: Chain,
    native: Asset,
    usdc: Asset,
    token: Address,
    nonce: u64,
    /// How many of the receiver's events are on the screen.
    shown: usize,
    /// Their ids: one that comes again is nothing new.
    known: BTreeSet<String>,
    block_time: Duration,
    mined_at: Instant,
    /// When the last new event came or the last wait ended, whichever is later.
    moved_at: Instant,
}

/// Deploys the network's tokens on the node, and mines the first blocks; returns the account that has all the money.
pub(super) async fn prepare(anvil: &Anvil, network: &Network) -> anyhow::Result<Address> {
    let (_, token) = usdc_of(network)?;
    let payer = *anvil.accounts().await?.first().context("the node has no accounts")?;
    anvil.place_tokens(network).await?;
    let data = token::mint(&payer, U256::from(TOKENS_MINTED));
    anvil.send(&TxRequest { from: payer, nonce: 0, to: token, value: U256::ZERO, data }).await?;
    anvil.mine(FIRST_BLOCKS).await?;
    Ok(payer)
}

/// The network's USDC and its contract.
pub(super) fn usdc_of(network: &Network) -> anyhow::Result<(&Asset, Address)> {
    let listed = network.assets.iter().find_map(|asset| match asset.id {
        AssetId::Token(contract) if asset.symbol == "USDC" => Some((asset, contract)),
        AssetId::Token(_) | AssetId::Native => None,
    });
    listed.context("the network lists no USDC")
}

/// An account with an unused address on each chain, watched from now on.
async fn watch(db: &Db, account_id: &'static str, addresses: &[(Chain, Address)]) -> anyhow::Result<()> {
    let specs: Vec<String> = addresses.iter().map(|(chain, address)| format!("{chain}={address}")).collect();
    let account = NewAccount::from_specs(account_id, AccountType::Segregated, &specs)?;
    registry::add_accounts(db, &[account], Clock::system().now()).await?;
    Ok(())
}

impl<'h> Stage<'h> {
    /// `payer` is the account that [`prepare`] returned; `solana` is the network that the cluster stands in for.
    pub(super) async fn set(
        house: House<'h>,
        network: &Network,
        solana: Option<&Network>,
        payer: Address,
        show: Show,
    ) -> anyhow::Result<Self> {
        let Show { screen, once } = show;
        let (usdc, token) = usdc_of(network)?;
        let [alice, bob] =
            ["alice", "bob"].map(|account_id| Person { account_id, address: Address::Evm(random::bytes()) });
        let mut addresses = [alice, bob].map(|person| vec![(network.chain, person.address)]);
        let mut cluster = None;
        if let (Some(node), Some(network)) = (house.surfpool, solana) {
            let people = [alice, bob].map(|person| Person { address: Address::Solana(random::bytes()), ..person });
            for (addresses, person) in addresses.iter_mut().zip(people) {
                addresses.push((network.chain, person.address));
            }
            cluster = Some(Cluster::of(node, network, people)?);
        }
        for (person, addresses) in [alice, bob].into_iter().zip(&addresses) {
            watch(house.db, person.account_id, addresses).await?;
        }
        let native = network.asset(&AssetId::Native).context("the network has no native currency")?;
        let (chain, now) = (network.chain, Instant::now());
        Ok(Stage {
            house,
            screen,
            payer,
            alice,
            bob,
            cluster,
            chain,
            native: native.clone(),
            usdc: usdc.clone(),
            token,
            nonce: 1,
            shown: 0,
            known: BTreeSet::new(),
            block_time: if once { BLOCK_TIME_ONCE } else { BLOCK_TIME },
            mined_at: now,
            moved_at: now,
        })
    }

    /// The number of the payer's next transaction.
    pub(super) fn next_nonce(&mut self) -> u64 {
        let nonce = self.nonce;
        self.nonce += 1;
        nonce
    }

    pub(super) fn native(&self, to: Person, amount: &str) -> anyhow::Result<Payment> {
        let value = from_decimal(amount, self.native.decimals)?;
        let what = format!("{amount} {} to {}", self.native.symbol, to.account_id);
        Ok(Payment { what, legs: 1, to: to.address, value, data: "0x".to_owned() })
    }

    pub(super) fn usdc(&self, to: Person, amount: &str) -> anyhow::Result<Payment> {
        let data = token::transfer(&to.address, from_decimal(amount, self.usdc.decimals)?);
        let what = format!("{amount} {} to {}", self.usdc.symbol, to.account_id);
        Ok(Payment { what, legs: 1, to: self.token, value: U256::ZERO, data })
    }

    /// All of them in one transaction.
    pub(super) fn usdc_to_each(&self, legs: &[(Person, &str)]) -> anyhow::Result<Payment> {
        let mut what = Vec::new();
        let mut transfers = Vec::new();
        for (to, amount) in legs {
            what.push(format!("{amount} {} to {}", self.usdc.symbol, to.account_id));
            transfers.push((to.address, from_decimal(amount, self.usdc.decimals)?));
        }
        let (what, data) = (what.join(", "), token::pay(&transfers));
        Ok(Payment { what, legs: legs.len(), to: self.token, value: U256::ZERO, data })
    }

    /// Sends a payment and mines it; returns the transaction's hash.
    pub(super) async fn pay(&mut self, payment: &Payment, nonce: u64) -> anyhow::Result<String> {
        let Payment { to, value, ref data, .. } = *payment;
        let tx = self.house.anvil.send(&TxRequest { from: self.payer, nonce, to, value, data: data.clone() }).await?;
        let tx = tx.to_string();
        self.screen.sent(&payment.what, &tx);
        self.next_block().await?;
        Ok(tx)
    }

    /// Mines a block if the time for one has come.
    pub(super) async fn next_block(&mut self) -> anyhow::Result<()> {
        while self.mined_at.elapsed() < self.block_time {
            self.turn(Mining::Off, "the time of the next block").await?;
        }
        self.moved_at = Instant::now();
        self.mine().await
    }

    async fn mine(&mut self) -> anyhow::Result<()> {
        self.house.anvil.mine(1).await?;
        self.mined_at = Instant::now();
        self.screen.mined(&self.house.anvil.block("latest").await?, &self.house.anvil.block("finalized").await?);
        Ok(())
    }

    /// Waits until `tx` is reported to have `status`, with each of its legs.
    pub(super) async fn until(&mut self, mining: Mining, tx: &str, status: &str, legs: usize) -> anyhow::Result<()> {
        while self.deposits_of(tx, status).len() < legs {
            self.turn(mining, &format!("an event that {tx} is {status}")).await?;
        }
        self.moved_at = Instant::now();
        Ok(())
    }

    /// Waits until Landfall's cursor is the node's newest block.
    pub(super) async fn until_followed(&mut self) -> anyhow::Result<BlockRef> {
        let latest = self.house.anvil.block("latest").await?;
        while Cursor::load(&mut self.house.db.read().await?, self.chain).await?.at != Some(latest) {
            self.turn(Mining::Off, &format!("the watcher at block {latest}")).await?;
        }
        self.moved_at = Instant::now();
        Ok(latest)
    }

    /// The ids of the deposits of `tx` that were reported with `status`.
    pub(super) fn deposits_of(&self, tx: &str, status: &str) -> Vec<String> {
        let log = self.house.receiver.log();
        let reported = log
            .iter()
            .filter(|reported| reported.field("transaction_hash") == tx && reported.field("status") == status);
        let mut ids: Vec<_> = reported.map(|reported| reported.field("id").to_owned()).collect();
        ids.sort();
        ids.dedup();
        ids
    }

    /// One step of a wait. It is an error if nothing new has come for too long.
    async fn turn(&mut self, mining: Mining, waiting_for: &str) -> anyhow::Result<()> {
        if self.is_late() {
            bail!("nothing new came for {} s, still waiting for {waiting_for}", STANDSTILL_MAX.as_secs());
        }
        self.pass_a_moment(mining).await
    }

    /// Shows what has arrived, and mines if the time for a block has come.
    pub(super) async fn pass_a_moment(&mut self, mining: Mining) -> anyhow::Result<()> {
        self.show_arrivals();
        if mining == Mining::On && self.mined_at.elapsed() >= self.block_time {
            self.mine().await?;
        }
        tokio::time::sleep(TURN_TIME).await;
        Ok(())
    }

    /// Whether nothing new has come for too long.
    pub(super) fn is_late(&self) -> bool {
        self.moved_at.elapsed() >= STANDSTILL_MAX
    }

    /// Shows what arrives, for ever.
    pub(super) async fn watch_on(&mut self) -> Infallible {
        loop {
            self.show_arrivals();
            tokio::time::sleep(TURN_TIME).await;
        }
    }

    pub(super) fn show_arrivals(&mut self) {
        for received in self.house.receiver.log_after(self.shown) {
            self.screen.event(&received);
            self.shown += 1;
            if self.known.insert(received.id) {
                self.moved_at = Instant::now();
            }
        }
    }

    /// What the receiver, the chain, the store and the API report at this moment.
    pub(super) async fn evidence(&self) -> anyhow::Result<Evidence> {
        let mut holdings = Vec::new();
        let mut shown_by_api = Shown::new();
        for person in [self.alice, self.bob] {
            let Person { account_id, address } = person;
            let balances = [
                (&self.native, self.house.anvil.balance(&address).await?),
                (&self.usdc, self.house.anvil.balance_of(&self.token, &address).await?),
            ];
            for (Asset { symbol, decimals, .. }, balance) in balances {
                holdings.push(Holding { account_id, address, symbol: symbol.clone(), decimals: *decimals, balance });
            }
            shown_by_api.extend(self.house.api.deposits(account_id).await?);
        }
        if let Some(cluster) = &self.cluster {
            holdings.extend(cluster.holdings().await?);
        }
        let mut reader = self.house.db.read().await?;
        let undelivered = status::queue(&mut reader).await?.pending;
        let mut unexplained = 0;
        for chain in Chain::ALL {
            unexplained += unexplained::list(&mut reader, chain, None, UNEXPLAINED_MAX).await?.len();
        }
        let (received, refused) = (self.house.receiver.log(), self.house.receiver.refused());
        Ok(Evidence { received, refused, holdings, undelivered, unexplained, shown_by_api })
    }
}
