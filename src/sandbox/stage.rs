//! The stage of the play: the node, the people who are paid, the receiver, and how to wait for something.
//!
//! Promises: no wait goes on for longer than [`STANDSTILL_MAX`] without anything new. Blocks are mined only when a
//! payment or a wait asks for one, so that a reorg hits the intended block.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use landfall_chain::{Address, Asset, AssetId, BlockRef, Chain, Network, Route, U256};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::account::{AccountType, NewAccount};
use crate::amount::from_decimal;
use crate::identity::NewIdentity;
use crate::random;
use crate::receiver::{Received, Receiver};
use crate::registry;
use crate::sandbox::anvil::{Anvil, TxRequest};
use crate::sandbox::books::{Evidence, Holding, Shown};
use crate::sandbox::client::Api;
use crate::sandbox::cluster::Cluster;
use crate::sandbox::screen::{Screen, short, stage_or_status};
use crate::sandbox::sponsors::{self, Sponsored};
use crate::sandbox::surfpool::Surfpool;
use crate::sandbox::{delegate, token};
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
/// Whose accounts a client opens.
const IDENTITY: &str = "sandbox";
/// Whose addresses Landfall only watches.
const BOB: &str = "bob";
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
    pub(super) derived: &'h Derived,
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
pub(super) struct Person<'h> {
    /// For people.
    pub(super) name: &'static str,
    pub(super) account_id: &'h str,
    pub(super) address: Address,
}

/// The accounts that have an address which Landfall derived, on each chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Derived {
    pub(super) alice: Opened,
    pub(super) carol: Opened,
}

/// An account that a client opened, and its addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Opened {
    account_id: String,
    addresses: Vec<(Chain, Address)>,
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
    pub(super) alice: Person<'h>,
    pub(super) bob: Person<'h>,
    /// The same people on Solana, and one more, if there is a cluster.
    pub(super) cluster: Option<Cluster<'h>>,
    pub(super) sponsored: Vec<Sponsored>,
    pub(super) chain: Chain,
    pub(super) native: Asset,
    pub(super) usdc: Asset,
    pub(super) token: Address,
    /// How many transfers were asked for on Solana, and how many were dropped with a proof that the node's own state bears.
    pub(super) asked_on_solana: u64,
    pub(super) proved: usize,
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

/// Deploys the network's tokens and its delegate on the node, and mines the first blocks; returns the account that has all
/// the money.
pub(super) async fn prepare(anvil: &Anvil, network: &Network) -> anyhow::Result<Address> {
    let (_, token) = usdc_of(network)?;
    let accounts = anvil.accounts().await?;
    let [payer, owner, ..] = accounts[..] else { bail!("the node has no accounts") };
    anvil.place_tokens(network).await?;
    if let Some(Route::Delegate(listed)) = network.asset(&AssetId::Native).and_then(|asset| asset.route.as_ref()) {
        delegate::place(anvil, listed, &owner).await?;
    }
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
async fn watch(db: &Db, account_id: &str, addresses: &[(Chain, Address)]) -> anyhow::Result<()> {
    let specs: Vec<String> = addresses.iter().map(|(chain, address)| format!("{chain}={address}")).collect();
    let account = NewAccount::from_specs(account_id, AccountType::Segregated, &specs)?;
    registry::add_accounts(db, &[account], Clock::system().now()).await?;
    Ok(())
}

/// Opens accounts whose addresses Landfall derives, as a client does. Who opens them is a new identity.
pub(super) async fn open(db: &Db, api: &Api) -> anyhow::Result<Derived> {
    let house = NewIdentity { kind: "BUSINESS".parse()?, label: String::new(), fiat_operations_enabled: false };
    registry::add_identity(db, IDENTITY, &house, Clock::system().now()).await?;
    Ok(Derived { alice: open_one(api, "alice").await?, carol: open_one(api, "carol").await? })
}

async fn open_one(api: &Api, name: &str) -> anyhow::Result<Opened> {
    let asked = json!({ "request_id": name, "identity_id": IDENTITY, "type": "SEGREGATED" });
    let (status, account) = api.post("/v2/accounts", &asked).await?;
    ensure!(status == 201, "the account of {name} was not opened, {status}: {account}");
    let mut addresses = Vec::new();
    for item in account["addresses"].as_array().into_iter().flatten() {
        for chain in item["chains"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            let chain: Chain = chain.parse()?;
            let address = item["address"].as_str().context("an address is a text")?;
            addresses.push((chain, Address::parse(chain.family(), address)?));
        }
    }
    let account_id = account["id"].as_str().context("an account has an id")?.to_owned();
    Ok(Opened { account_id, addresses })
}

impl Opened {
    fn on(&self, name: &'static str, chain: Chain) -> anyhow::Result<Person<'_>> {
        let derived = self.addresses.iter().find(|(on, _)| *on == chain);
        let (_, address) = derived.with_context(|| format!("{name} has no address on {chain}"))?;
        Ok(Person { name, account_id: &self.account_id, address: *address })
    }
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
        let Derived { alice, carol } = house.derived;
        let new_bob = |address| Person { name: BOB, account_id: BOB, address };
        let bob = new_bob(Address::Evm(random::bytes()));
        let mut bobs = vec![(network.chain, bob.address)];
        let mut cluster = None;
        if let (Some(node), Some(network)) = (house.surfpool, solana) {
            let bob = new_bob(Address::Solana(random::bytes()));
            bobs.push((network.chain, bob.address));
            let people = [alice.on("alice", network.chain)?, bob, carol.on("carol", network.chain)?];
            cluster = Some(Cluster::of(node, network, people)?);
        }
        watch(house.db, BOB, &bobs).await?;
        let networks: Vec<Network> = [Some(network), solana].into_iter().flatten().cloned().collect();
        let sponsored = sponsors::set_up(house, &networks).await?;
        let alice = alice.on("alice", network.chain)?;
        let native = network.asset(&AssetId::Native).context("the network has no native currency")?;
        let (chain, now) = (network.chain, Instant::now());
        Ok(Stage {
            house,
            screen,
            payer,
            alice,
            bob,
            cluster,
            sponsored,
            chain,
            native: native.clone(),
            usdc: usdc.clone(),
            token,
            asked_on_solana: 0,
            proved: 0,
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

    pub(super) fn native(&self, to: Person<'_>, amount: &str) -> anyhow::Result<Payment> {
        let value = from_decimal(amount, self.native.decimals)?;
        let what = format!("{amount} {} to {}", self.native.symbol, to.name);
        Ok(Payment { what, legs: 1, to: to.address, value, data: "0x".to_owned() })
    }

    pub(super) fn usdc(&self, to: Person<'_>, amount: &str) -> anyhow::Result<Payment> {
        let data = token::transfer(&to.address, from_decimal(amount, self.usdc.decimals)?);
        let what = format!("{amount} {} to {}", self.usdc.symbol, to.name);
        Ok(Payment { what, legs: 1, to: self.token, value: U256::ZERO, data })
    }

    /// All of them in one transaction.
    pub(super) fn usdc_to_each(&self, legs: &[(Person<'_>, &str)]) -> anyhow::Result<Payment> {
        let mut what = Vec::new();
        let mut transfers = Vec::new();
        for (to, amount) in legs {
            what.push(format!("{amount} {} to {}", self.usdc.symbol, to.name));
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
    pub(super) async fn turn(&mut self, mining: Mining, waiting_for: &str) -> anyhow::Result<()> {
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
            let name = self.people().find(|person| person.account_id == received.field("account_id"));
            self.screen.event(&received, name.map_or("", |person| person.name));
            self.shown += 1;
            if self.known.insert(received.id) {
                self.moved_at = Instant::now();
            }
        }
    }

    /// Everybody who has an account, on each chain.
    pub(super) fn people(&self) -> impl Iterator<Item = Person<'h>> {
        let on_solana = self.cluster.iter().flat_map(|cluster| [cluster.alice, cluster.bob, cluster.carol]);
        [self.alice, self.bob].into_iter().chain(on_solana)
    }

    /// How often a transfer was reported as `what`: a stage of the reconciliation, or a status.
    pub(super) fn times_reported(&self, id: &str, what: &str) -> usize {
        let log = self.house.receiver.log();
        let is_it = |received: &&Received| received.field("id") == id && stage_or_status(received) == what;
        log.iter().filter(is_it).map(|received| &received.id).collect::<BTreeSet<_>>().len()
    }

    /// Waits until a transfer is reported as `what`.
    pub(super) async fn until_reported(&mut self, mining: Mining, id: &str, what: &str) -> anyhow::Result<()> {
        while self.times_reported(id, what) == 0 {
            self.turn(mining, &format!("an event that transfer {id} is {what}")).await?;
        }
        self.moved_at = Instant::now();
        Ok(())
    }

    /// Takes the newest block back, in which `gone` was, and waits until Landfall has followed.
    pub(super) async fn reorganise(&mut self, gone: &str) -> anyhow::Result<()> {
        let was = self.house.anvil.block("latest").await?;
        self.house.anvil.reorg(1).await?;
        let is = self.until_followed().await?;
        let (was_hash, is_hash) = (short(&was.hash.to_string()), short(&is.hash.to_string()));
        let number = was.number;
        self.screen.reorg(&format!("block {number} was {was_hash}, is {is_hash}; {gone} is in no block"));
        Ok(())
    }

    /// What the receiver, the chain, the store and the API report at this moment.
    pub(super) async fn evidence(&self) -> anyhow::Result<Evidence> {
        let mut holdings = Vec::new();
        let mut shown_by_api = Shown::new();
        let mut transfers_by_api = Shown::new();
        for person in [self.alice, self.bob] {
            let Person { name, account_id, address } = person;
            let balances = [
                (&self.native, self.house.anvil.balance(&address).await?),
                (&self.usdc, self.house.anvil.balance_of(&self.token, &address).await?),
            ];
            for (Asset { symbol, decimals, .. }, balance) in balances {
                holdings.push(Holding { name, address, symbol: symbol.clone(), decimals: *decimals, balance });
            }
            shown_by_api.extend(self.house.api.deposits(account_id).await?);
            transfers_by_api.extend(self.house.api.transfers(account_id).await?);
        }
        if let Some(cluster) = &self.cluster {
            holdings.extend(cluster.holdings().await?);
            let carol = cluster.carol.account_id;
            shown_by_api.extend(self.house.api.deposits(carol).await?);
            transfers_by_api.extend(self.house.api.transfers(carol).await?);
        }
        let mut spent = Vec::new();
        for sponsor in &self.sponsored {
            spent.push(sponsor.spent(self.house, self.asked_on_solana).await?);
        }
        let mut reader = self.house.db.read().await?;
        let undelivered = status::queue(&mut reader).await?.pending;
        let mut unexplained = 0;
        for chain in Chain::ALL {
            unexplained += unexplained::list(&mut reader, chain, None, UNEXPLAINED_MAX).await?.len();
        }
        let (received, refused) = (self.house.receiver.log(), self.house.receiver.refused());
        let proved = self.proved;
        Ok(Evidence {
            received,
            refused,
            holdings,
            undelivered,
            unexplained,
            shown_by_api,
            transfers_by_api,
            spent,
            proved,
        })
    }
}
