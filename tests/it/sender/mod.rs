//! Sending transfers over a simulated chain and real stores of both engines. Each scene compares the record with the
//! chain's own ledger: how often each intent paid.

mod books;
mod cancellations;
mod clearings;
mod clocks;
mod copies;
mod delegates;
mod doctor;
mod dry_runs;
mod faults;
mod foreign;
mod gas;
mod guarded_refills;
mod guards;
mod heals;
mod histories;
mod known;
mod life;
mod means;
mod mistakes;
mod prices;
mod reclaims;
mod recovery;
mod refills;
mod reports;
mod responses;
mod restore;
mod sponsors;
mod stops;
mod sweeps;
mod switches;
mod tiers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use landfall::balance::{Held, UNREAD_MAX};
use landfall::event::TransferEvent;
use landfall::gas::GasCurrency;
use landfall::registry;
use landfall::sender::{SendError, Sender, Ticked};
use landfall::store::wallets::{self, Wallet};
use landfall::store::{balances, sponsors as records, transfers};
use landfall::time::Timestamp;
use landfall::transfer::{Announcement, Evidence, Obstacle, Order, State, Transfer, TransferId, TransferKind};
use landfall::watcher::{BalanceWatch, BalancesRead};
use landfall_chain::{Address, Delegate, Family, KeyPath, Route, U256};
use landfall_sim::{Payment, SimLeg, SimSigner, SimTx, WEALTH};
use serde_json::Value;

use crate::harness::books::{EventRow, rows};
use crate::harness::postgres::{Engine, TestStore};
use crate::harness::world::{CHAIN, FINALITY_DEPTH, TOKEN, World, address, erc3009, poll_for, report, sent_by};

const STRANGER: u8 = 0x77;
const BOB: u8 = 0xb0;
const PAYER: u8 = 0x01;
/// What Alice was paid, in base units of the token.
const USDC: u64 = 10_000_000;
/// More blocks than a window and finality take.
const BLOCKS_MAX: u32 = 60;
/// More ticks than a moment has work for.
const TICKS_MAX: u32 = 50;

/// A world in which Alice has money at an address of ours, and a sender of it.
struct Bench {
    world: World,
    signer: SimSigner,
    sender: Sender<landfall_sim::SimChain>,
    /// How many senders there were: each is a process of its own.
    processes: u32,
    /// How many transactions Alice's key made by itself.
    by_hand: u64,
}

/// An attempt as it is on record: sponsor, nonce, try, transfer, whether it is signed.
type AttemptRow = (Vec<u8>, i64, i64, String, Option<Vec<u8>>);

/// A change as it is on record: transfer, state, evidence, when, and the block that showed it.
type ChangeRow = (String, String, String, i64, Option<i64>);

/// Of the payload of a transfer's event: what its change alone decides.
const DECIDED: [&str; 8] = [
    "/id",
    "/type",
    "/data/id",
    "/data/status",
    "/data/updated_at",
    "/data/failure_details/code",
    "/data/stage",
    "/data/block_number",
];

fn alice() -> Address {
    SimSigner::address(&KeyPath::of_wallet(Family::Evm, "alice", ""))
}

impl Bench {
    /// With so many sponsors.
    async fn on(engine: Engine, sponsors: u32) -> Self {
        Bench::by_route(TestStore::fresh(engine).await, 1, sponsors, erc3009()).await
    }

    /// With a token that is sent in this way.
    async fn by_route(store: TestStore, seed: u64, sponsors: u32, route: Route) -> Self {
        let mut world = World::of_sending(seed, store, route);
        let mut watch =
            BalanceWatch::new(world.chain.clone(), world.db().clone(), &world.network, 20, "one".to_owned());
        watch.tick(world.now(), 0).await.unwrap();
        world.watch("alice", alice()).await;
        world.chain.mine_empty(FINALITY_DEPTH + 1);
        world.catch_up().await;
        // Everybody owns a sum beyond all belief at first.
        let all = SimLeg { amount: U256::from(WEALTH), ..token(alice(), address(PAYER), 0) };
        world.chain.mine(vec![SimTx::new(alice(), 0, vec![all])]);
        world.chain.mine(vec![SimTx::new(address(PAYER), 0, vec![token(address(PAYER), alice(), USDC)])]);
        world.chain.mine_empty(FINALITY_DEPTH);
        world.keep_time();
        world.catch_up().await;
        while watch.tick(world.now(), 0).await.unwrap() != BalancesRead::default() {}
        manage(&world).await;
        let signer = SimSigner::of(world.chain.clone());
        let sender = sender(&world, &signer, 0);
        let bench = Bench { world, signer, sender, processes: 1, by_hand: 1 };
        bench.add_sponsors(sponsors).await;
        bench
    }

    async fn add_sponsors(&self, count: u32) {
        let mut tx = self.world.db().begin().await.unwrap();
        for _ in 0..count {
            records::add(&mut tx, CHAIN, false, self.world.now()).await.unwrap();
        }
        tx.commit().await.unwrap();
    }

    /// The address of the sponsor with this number.
    fn sponsor(&self, number: u32) -> Address {
        SimSigner::address(&KeyPath::of_sponsor(Family::Evm, &self.world.network.chain_ref, number))
    }

    /// What Alice's client asks for: `n` makes its request id.
    fn order(&self, n: u32, amount: u64) -> Order {
        let asset = self.world.network.asset(&TOKEN).unwrap().clone();
        let request_id = format!("00000000-0000-4000-8000-{n:012}").parse().unwrap();
        let (chain_ref, destination) = (self.world.network.chain_ref.clone(), address(STRANGER));
        let (account_id, amount) = ("alice".to_owned(), U256::from(amount));
        let gas = GasCurrency::of(&self.world.network).unwrap();
        Order { request_id, account_id, chain: CHAIN, chain_ref, asset, amount, destination, gas }
    }

    async fn accept(&self, n: u32, amount: u64) -> TransferId {
        report(&self.world).await;
        let order = self.order(n, amount);
        registry::accept_transfer(self.world.db(), &order, true, self.world.now()).await.unwrap().0.id
    }

    async fn shown(&self, id: TransferId) -> Transfer {
        transfers::by_id(&mut self.world.db().read().await.unwrap(), id).await.unwrap().unwrap()
    }

    async fn state(&self, id: TransferId) -> State {
        self.shown(id).await.state
    }

    /// The states that it entered, in their order.
    async fn history(&self, id: TransferId) -> Vec<String> {
        let text = "SELECT transfer_id, state FROM transfer_changes ORDER BY transfer_id, position";
        let changes: Vec<(String, String)> = rows(self.world.db(), text).await;
        changes.into_iter().filter(|(of, _)| *of == id.to_string()).map(|(_, state)| state).collect()
    }

    /// The same with their evidence.
    async fn changes(&self, id: TransferId) -> Vec<transfers::Change> {
        transfers::history(&mut self.world.db().read().await.unwrap(), id).await.unwrap()
    }

    async fn attempts(&self) -> Vec<AttemptRow> {
        let text = "SELECT sponsor, nonce, try, transfer_id, tx_id FROM transfer_attempts ORDER BY sponsor, nonce, try";
        rows(self.world.db(), text).await
    }

    /// The payments of its intent in canonical blocks.
    fn payments(&self, id: TransferId) -> Vec<Payment> {
        let key = id.intent_key(&self.world.network.chain_ref, &alice());
        self.world.chain.payments().remove(&key).unwrap_or_default()
    }

    /// What the newest final block says of the time.
    fn final_time(&self) -> Timestamp {
        let (at, blocks) = (self.world.chain.finalized().unwrap().number, self.world.chain.blocks());
        let block = blocks.iter().find(|block| block.header.block.number == at).unwrap();
        Timestamp::from_secs(block.header.time_secs)
    }

    /// What Alice has of the token, as the store knows it.
    async fn held(&self) -> Held {
        let mut reader = self.world.db().read().await.unwrap();
        let known = balances::of_account(&mut reader, "alice", self.world.now().minus(UNREAD_MAX)).await.unwrap();
        known.into_iter().flat_map(|known| known.held).find(|held| held.asset == TOKEN).unwrap()
    }

    /// What Alice may spend.
    async fn available(&self) -> U256 {
        self.held().await.available().unwrap()
    }

    /// A tick of which nothing may go wrong.
    async fn tick(&mut self) -> Ticked {
        self.sender.tick(&self.world.clock()).await.unwrap().unwrap()
    }

    /// Ticks until there is nothing to do at this moment.
    async fn settle(&mut self) {
        for _ in 0..TICKS_MAX {
            let Ticked { changed, sent, .. } = self.tick().await;
            if (changed, sent) == (0, 0) {
                return;
            }
        }
        panic!("the sender does not come to rest");
    }

    /// The blocks that there are are followed, the clock goes with them, and the sender does what follows.
    async fn follow(&mut self) {
        self.world.keep_time();
        self.world.catch_up().await;
        self.settle().await;
    }

    /// A block of what is in the pool.
    async fn block(&mut self) {
        self.world.chain.mine_pool();
        self.follow().await;
    }

    async fn blocks(&mut self, count: u64) {
        for _ in 0..count {
            self.block().await;
        }
    }

    /// As many blocks as it takes until this transfer has ended.
    async fn until_ended(&mut self, id: TransferId) -> State {
        for _ in 0..BLOCKS_MAX {
            let state = self.state(id).await;
            if state.status().is_terminal() {
                return state;
            }
            self.block().await;
        }
        panic!("{id} does not end: {:?}", self.shown(id).await);
    }

    /// Another process on the same store, once the lease of the one before has run out.
    fn restart(&mut self) {
        self.sender = sender(&self.world, &self.signer, self.processes);
        self.processes += 1;
    }

    /// A tick that is cut off after its `wakeups`-th await, as a crash would, and a new process. Whether it was cut off.
    async fn crash_within(&mut self, wakeups: u32) -> bool {
        let outcome = poll_for(self.sender.tick(&self.world.clock()), wakeups).await;
        if let Some(Err(error)) = &outcome {
            assert!(may_pass(error), "{error}");
        }
        self.restart();
        outcome.is_none()
    }

    /// What is paid out of Alice's address without us, or to it.
    fn by_hand(&mut self, legs: Vec<SimLeg>) -> SimTx {
        self.by_hand += 1;
        SimTx::new(address(PAYER), self.by_hand, legs)
    }

    /// Ends the bench: the books balance, and what is on record of each transfer is what the chain's ledger says.
    async fn close(self) {
        assert_truthful(&self.world).await;
        gas::assert_ledger_even(&self.world).await;
        assert_eq!(self.differing().await, [], "sponsors own what the ledger says");
        self.world.close().await;
    }
}

/// The record against the ledger: a transfer is CONFIRMED or included where its intent paid, once and exactly, and what
/// is FAILED or DROPPED paid nothing. What became of it is announced.
async fn assert_truthful(world: &World) {
    let text = "SELECT id FROM transfers ORDER BY id";
    let ids: Vec<(String,)> = rows(world.db(), text).await;
    let payments = world.chain.payments();
    let mut all = Vec::new();
    for (id,) in ids {
        let id: TransferId = id.parse().unwrap();
        let transfer = transfers::by_id(&mut world.db().read().await.unwrap(), id).await.unwrap().unwrap();
        let paid = payments.get(&transfer.intent_key).cloned().unwrap_or_default();
        assert!(paid.len() <= 1, "{id} paid twice: {paid:?}");
        match transfer.state {
            State::Confirmed | State::Included => {
                let [Payment { tx, destination, amount, .. }] = paid[..] else { panic!("{id} never paid") };
                assert_eq!(
                    (transfer.tx, transfer.destination, transfer.amount),
                    (Some(tx), destination, amount),
                    "{id} paid something else"
                );
            }
            State::Failed(_) | State::Dropped(_) => assert_eq!(paid, [], "{id} is {:?} and paid", transfer.state),
            State::Accepted | State::Carried | State::Expiring => {}
        }
        all.push(transfer);
    }
    assert_histories_end_once(world).await;
    assert_announced(world, &all).await;
}

/// Nothing follows what is terminal, and nothing is entered that is entered already.
async fn assert_histories_end_once(world: &World) {
    let text = "SELECT transfer_id, state FROM transfer_changes ORDER BY transfer_id, position";
    let changes: Vec<(String, String)> = rows(world.db(), text).await;
    let mut last: BTreeMap<String, String> = BTreeMap::new();
    for (id, state) in changes {
        if let Some(before) = last.insert(id.clone(), state.clone()) {
            assert!(!["confirmed", "failed", "dropped"].contains(&before.as_str()), "{id}: {before} -> {state}");
            assert_ne!(before, state, "{id}");
        }
    }
}

/// The events of each transfer are those that its changes call for, in their order, each with its number and its id.
async fn assert_announced(world: &World, all: &[Transfer]) {
    let text = "SELECT transfer_id, state, evidence, at_us, block_number FROM transfer_changes \
                ORDER BY transfer_id, position";
    let recorded: Vec<ChangeRow> = rows(world.db(), text).await;
    let text = "SELECT aggregateid, position, id, status, nth_entry, payload FROM events \
                WHERE aggregatetype = 'transfer' ORDER BY aggregateid, position";
    let written: Vec<EventRow> = rows(world.db(), text).await;
    let mut changes: BTreeMap<String, Vec<ChangeRow>> = BTreeMap::new();
    for change in recorded {
        changes.entry(change.0.clone()).or_default().push(change);
    }
    let mut events: BTreeMap<String, Vec<EventRow>> = BTreeMap::new();
    for event in written {
        events.entry(event.aggregateid.clone()).or_default().push(event);
    }
    for transfer in all {
        let id = transfer.id.to_string();
        let mut called = called_for(transfer, &changes.remove(&id).unwrap_or_default());
        if transfer.kind == TransferKind::Sweep {
            // What an operator asked for is announced to nobody.
            called.clear();
        }
        assert_events(transfer, &events.remove(&id).unwrap_or_default(), &called);
    }
    assert!(events.is_empty(), "events of transfers that are not there: {events:?}");
}

fn assert_events(transfer: &Transfer, events: &[EventRow], called: &[TransferEvent]) {
    type Short<'e> = (i64, String, &'e str, i64);
    let written = events.iter().map(|event| (event.position, event.id.clone(), &event.status[..], event.nth_entry));
    let expected = (0..).zip(called).map(|(position, event)| {
        (position, event.id.to_string(), event.announcement.name(), i64::from(event.nth_entry))
    });
    let (written, expected): (Vec<Short<'_>>, Vec<Short<'_>>) = (written.collect(), expected.collect());
    assert_eq!(written, expected, "{} is not announced as its changes call for", transfer.id);
    for (event, called) in events.iter().zip(called) {
        let [written, expected] =
            [&event.payload, &called.payload].map(|text| serde_json::from_str::<Value>(text).unwrap());
        for field in DECIDED {
            assert_eq!(written.pointer(field), expected.pointer(field), "{field} of {written:#}");
        }
    }
}

/// What the changes of a transfer call for, in their order; of each payload only what is [`DECIDED`] counts.
fn called_for(transfer: &Transfer, changes: &[ChangeRow]) -> Vec<TransferEvent> {
    let (mut state, mut included, mut called) = (State::Accepted, None, Vec::<TransferEvent>::new());
    let [(_, first, by, ..), others @ ..] = changes else { panic!("{} was never accepted", transfer.id) };
    assert_eq!((first.as_str(), by.as_str()), ("accepted", "accepted"), "{}", transfer.id);
    for (_, name, evidence, at, number) in others {
        let (after, announced) = behind(transfer, state, (name, evidence));
        state = after;
        let Some(announcement) = announced else { continue };
        let number = number.map(|number| u64::try_from(number).unwrap());
        // What a reorg took back is announced with the block that had it.
        let shown = if announcement == Announcement::Displaced { included } else { number };
        if announcement == Announcement::Included {
            included = number;
        }
        let before = called.iter().filter(|event| event.announcement == announcement).count();
        let then = Transfer { state, updated_at: Timestamp(*at), ..transfer.clone() };
        called.push(TransferEvent::announced(&then, announcement, u32::try_from(before).unwrap(), shown));
    }
    assert_eq!(state, transfer.state, "{}: its changes lead elsewhere", transfer.id);
    called
}

/// The state of this name to which evidence of this name leads, and what it announces. Of a failure the history has no
/// code: the transfer has it.
fn behind(transfer: &Transfer, before: State, (name, evidence): (&str, &str)) -> (State, Option<Announcement>) {
    let named = every_evidence().filter(|it| it.name() == evidence);
    let mut found = named
        .filter_map(|it| before.after(it).ok())
        .filter(|(after, _)| after.name() == name && (after.failure().is_none() || *after == transfer.state));
    found.next().unwrap_or_else(|| panic!("{}: {evidence} leads from {before:?} to no {name}", transfer.id))
}

fn every_evidence() -> impl Iterator<Item = Evidence> {
    let bare = [
        Evidence::HandedOver,
        Evidence::Included,
        Evidence::Displaced,
        Evidence::Final,
        Evidence::CarrierReverted,
        Evidence::UsedUp,
        Evidence::UsedByAnother,
        Evidence::GuardTaken,
        Evidence::CancelledOnChain,
        Evidence::WindowOver,
    ];
    let never = [(true, false), (false, false), (false, true)];
    let never = never.map(|(signed, halted)| Evidence::NeverUsed { signed, halted });
    bare.into_iter().chain(Obstacle::ALL.map(Evidence::Impossible)).chain(never)
}

fn sender(world: &World, signer: &SimSigner, process: u32) -> Sender<landfall_sim::SimChain> {
    let owner = format!("process {process}");
    Sender::new(world.chain.clone(), world.db().clone(), world.network.clone(), Arc::new(signer.clone()), owner)
}

fn may_pass(error: &SendError) -> bool {
    match error {
        SendError::Store(error) => error.may_pass(),
        SendError::Chain(_)
        | SendError::Signer(_)
        | SendError::Halted
        | SendError::Recovering
        | SendError::TakenOver => true,
    }
}

/// From now on the token is sent so, by processes that start from now on.
fn send_by(world: &mut World, route: Route) {
    sent_by(&mut world.network, route);
}

/// A delegate at addresses that begin with `byte`.
fn by_delegate(byte: u8) -> Route {
    let [implementation, manager, ids, times, executions] =
        [1, 2, 3, 4, 5].map(|nth| Address::Evm([[byte, nth]; 10].concat().try_into().unwrap()));
    Route::Delegate(Delegate::Metamask { implementation, manager, ids, times, executions })
}

/// Notes that we hold the key of Alice's address.
async fn manage(world: &World) {
    let path = KeyPath::of_wallet(Family::Evm, "alice", "");
    let (account_id, tag) = ("alice".to_owned(), String::new());
    let wallet = Wallet { address: alice(), account_id, tag, path: path.to_string(), key_id: "sim".to_owned() };
    let mut tx = world.db().begin().await.unwrap();
    wallets::add(&mut tx, &wallet, world.now()).await.unwrap();
    tx.commit().await.unwrap();
}

fn token(sender: Address, recipient: Address, amount: u64) -> SimLeg {
    SimLeg { asset: TOKEN, ..SimLeg::native(sender, recipient, amount) }
}

/// Longer than the lease of a process that is gone.
const LEASE_OVER: Duration = Duration::from_secs(16);
