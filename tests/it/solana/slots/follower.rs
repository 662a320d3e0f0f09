//! One ledger, its nodes, and who follows them; the ledger says what is true.
//!
//! Promises: a deposit that became CONFIRMED in a tick is looked up in the ledger before the next one: was its slot
//! final? Each is counted by its identity, so nothing can hide behind an equal amount.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall::account::{AccountType, NewAccount};
use landfall::deposit::{DepositStatus, Leg, LegHash};
use landfall::incident::IncidentKind;
use landfall::operator::Operator;
use landfall::overrides::Override;
use landfall::registry;
use landfall::store::cursors::Cursor;
use landfall::store::deposits::{self, DepositFilter};
use landfall::store::{Connection, Engine as Connected, incidents, overrides};
use landfall::time::{Clock, Pulse, Timestamp};
use landfall::watcher::{Backfill, Follower, Job, Rescan, Scope, Settings, Start, TickError, Ticked};
use landfall_chain::{Address, AssetId, Chain, EndpointState, Endpoints, Network, ReadProof, TxId, U256};
use landfall_cluster::{Finality, Ledger, Node};
use landfall_solana::{EndpointUrl, Options, Sample, SolanaSource, Timings, network};
use tokio_util::sync::CancellationToken;

use crate::harness::postgres::{Engine, TestStore};
use crate::harness::world::{FAILED_GRACE, cut_off};

pub(super) const CHAIN: Chain = Chain::SolanaMainnet;
pub(super) const FIRST_SLOT: u64 = 1_000;
/// How long nothing may be got on with once every node behaves: longer than the longest quarantine.
const REST_MAX: Duration = Duration::from_secs(90);
const PAUSE: Duration = Duration::from_millis(20);
/// Each tick has a time of its own.
const TICK: Duration = Duration::from_millis(10);
/// How many blocks the ledger goes on at the end: further than any node lied about what is final.
const GO_ON: u64 = 5;
/// How long a block rests at first that was asked for in vain.
const WITHHELD_REST: Duration = Duration::from_secs(1);
const DEPOSITS_MAX: u32 = 1_000_000;

pub(super) struct Followed {
    pub(super) ledger: Ledger,
    pub(super) nodes: Vec<Node>,
    /// CONFIRMED while their slot was not final, or never paid.
    pub(super) early: Vec<String>,
    store: TestStore,
    sample: Sample,
    timings: Timings,
    watcher: Follower<Arc<SolanaSource>>,
    endpoints: Endpoints,
    watched: BTreeSet<Address>,
    now: Timestamp,
    /// What is final pays, by slot; through the slot that it was last asked for.
    truth: BTreeMap<LegHash, u64>,
    known_through: u64,
}

/// What the store has, compared with what the ledger knows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Audit {
    /// Legs of final blocks to watched addresses.
    pub(super) legs: usize,
    /// Of those, not CONFIRMED.
    pub(super) missing: usize,
    /// CONFIRMED, and no leg of a final block.
    pub(super) phantom: usize,
    /// CONFIRMED or announced more than once.
    pub(super) twice: usize,
    /// CONFIRMED before their slot was final.
    pub(super) early: usize,
    /// PENDING, although all that ever was is final.
    pub(super) undecided: usize,
    /// Believed for a while, and FAILED.
    pub(super) failed: usize,
}

impl Audit {
    pub(super) fn is_clean(&self) -> bool {
        (self.missing, self.phantom, self.twice, self.early, self.undecided) == (0, 0, 0, 0, 0)
    }
}

impl Followed {
    /// Follows `ledger` through so many nodes.
    pub(super) async fn new(ledger: Ledger, nodes: usize, watched: &[Address]) -> Self {
        Followed::comparing(ledger, nodes, watched, Sample::default()).await
    }

    /// The same, with another choice of the blocks that are compared.
    pub(super) async fn comparing(ledger: Ledger, nodes: usize, watched: &[Address], sample: Sample) -> Self {
        let store = TestStore::fresh(Engine::Sqlite).await;
        let now = Timestamp(1_800_000_000_000_000);
        let account = |(number, address): (usize, &Address)| NewAccount {
            id: format!("account-{number}"),
            identity_id: None,
            kind: AccountType::Segregated,
            addresses: [(CHAIN, *address)].into(),
        };
        let accounts: Vec<NewAccount> = watched.iter().enumerate().map(account).collect();
        registry::add_accounts(&store.db, &accounts, now).await.unwrap();
        let mut started = Vec::new();
        for _ in 0..nodes {
            started.push(Node::start(&ledger).await);
        }
        let timings = Timings::SHORT;
        let (watcher, endpoints) = watcher(&started, &store, sample, timings);
        Followed {
            ledger,
            nodes: started,
            early: Vec::new(),
            store,
            sample,
            timings,
            watcher,
            endpoints,
            watched: watched.iter().copied().collect(),
            now,
            truth: BTreeMap::new(),
            known_through: 0,
        }
    }

    pub(super) async fn tick(&mut self) -> Result<Ticked, TickError> {
        self.now = self.now.plus(TICK);
        let ticked = self.watcher.tick(self.now).await;
        // An error may come behind what was confirmed.
        if ticked.as_ref().map_or(true, |ticked| ticked.confirmed > 0) {
            self.check_confirmed().await;
        }
        ticked
    }

    /// A tick that is cut off after its `wakeups`-th await, as a crash would; nothing but the store survives.
    pub(super) async fn crash_within(&mut self, wakeups: u32) -> bool {
        self.now = self.now.plus(TICK);
        let is_cut_off = cut_off(self.watcher.tick(self.now), wakeups).await;
        self.restart();
        self.check_confirmed().await;
        is_cut_off
    }

    /// A tick of each of two processes on one store, at the same time; they may hinder each other, but not for good.
    pub(super) async fn tick_beside_another(&mut self) {
        self.now = self.now.plus(TICK);
        let (mut rival, _) = self.another();
        let (ours, theirs) = tokio::join!(self.watcher.tick(self.now), rival.tick(self.now));
        for outcome in [ours, theirs] {
            outcome.inspect_err(|error| assert!(error.may_pass(), "{error}")).ok();
        }
        self.check_confirmed().await;
    }

    /// A tick that another process on the store overtakes, while it waits for its first answer to `method`. The other
    /// process connects what there is `more`, and knows of nothing final that would have to be checked.
    pub(super) async fn tick_around_another<T>(
        &mut self,
        method: &str,
        more: impl FnOnce() -> T,
    ) -> Result<Ticked, TickError> {
        self.now = self.now.plus(TICK);
        let (mut rival, _) = self.another();
        let asked = |nodes: &[Node]| nodes.iter().map(|node| node.calls(method, None)).sum::<u64>();
        let before = asked(&self.nodes);
        let ticked = {
            let mut tick = pin!(self.watcher.tick(self.now));
            while asked(&self.nodes) == before {
                tokio::select! {
                    biased;
                    _ = &mut tick => panic!("it asks for no {method}"),
                    () = tokio::task::yield_now() => {}
                }
            }
            more();
            self.nodes.iter().for_each(|node| node.call_final(FIRST_SLOT));
            rival.tick(self.now).await.unwrap();
            self.nodes.iter().for_each(|node| node.call_final(None));
            tick.await
        };
        self.check_confirmed().await;
        ticked
    }

    /// Searches all that is final for what named the address, as another process.
    pub(super) async fn backfill(&self, address: Address) -> Result<(), TickError> {
        let scope = Scope::Addresses([address].into());
        let job = Job { from: 0, to: None, proof: ReadProof::Candidate, scope, dry_run: false };
        let (other, _) = self.another();
        let mut backfill = Backfill::begin(other, job).await.unwrap();
        while !backfill.is_done() && backfill.waits_for().is_none() {
            backfill.step(self.now).await?;
        }
        Ok(())
    }

    /// Compares these slots with what is on record, and mends it, as another process.
    pub(super) async fn repair(&self, slots: RangeInclusive<u64>) -> Result<(), TickError> {
        let (other, _) = self.another();
        let mut rescan = Rescan::begin(other, *slots.start(), *slots.end(), true).await.unwrap();
        while !rescan.is_done() {
            rescan.step(self.now).await?;
        }
        Ok(())
    }

    /// Follows as the product does, for so long.
    pub(super) async fn run_for(&mut self, time: Duration) {
        let (stop, clock) = (CancellationToken::new(), Clock::system());
        let (watcher, pulse) = (self.another().0, Pulse::new("solana", clock.now()));
        let running = watcher.run(clock, || 7, pulse, stop.clone());
        let stopping = async {
            tokio::time::sleep(time).await;
            stop.cancel();
        };
        tokio::join!(running, stopping);
        self.restart();
    }

    /// When each deposit was created, in seconds, in their order.
    pub(super) async fn created(&self) -> Vec<u64> {
        let text = "SELECT created_us, id FROM deposits WHERE created_us > $1 ORDER BY rowid";
        let rows = self.rows::<(i64, String)>(text, 0).await;
        rows.into_iter().map(|(created, _)| u64::try_from(created / 1_000_000).unwrap()).collect()
    }

    /// As another process on the same store.
    fn another(&self) -> (Follower<Arc<SolanaSource>>, Endpoints) {
        watcher(&self.nodes, &self.store, self.sample, self.timings)
    }

    /// From now on it is a new process whose waits are production's: for tests that say how long something lasts.
    pub(super) fn wait_as_in_production(&mut self) {
        self.timings = Timings::PRODUCTION;
        self.restart();
    }

    /// A new process: all it knows is what is on record.
    pub(super) fn restart(&mut self) {
        (self.watcher, self.endpoints) = self.another();
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now.plus(time);
    }

    /// So many endpoints must agree; `None` is the usual number.
    pub(super) fn override_agree(&self, agree: Option<usize>) {
        self.endpoints.override_agree(agree);
    }

    /// Accepts, as a person does, that what counted as final was replaced; the fork point.
    pub(super) async fn accept_reorg(&self) -> u64 {
        let operator = Operator { actor: "a person", reason: "a test", now: self.now, dry_run: false };
        operator.accept_reorg(&self.store.db, CHAIN).await.unwrap()
    }

    /// How many reorgs below what counted as final a person must decide on.
    pub(super) async fn reorgs(&self) -> usize {
        let open = incidents::open(&mut self.store.db.read().await.unwrap()).await.unwrap();
        open.iter().filter(|incident| incident.kind == IncidentKind::PostFinalityReorg).count()
    }

    /// The words in force that stand in place of a rule.
    pub(super) async fn overrides(&self) -> Vec<Override> {
        let decisions = overrides::of_chain(&mut self.store.db.read().await.unwrap(), CHAIN).await.unwrap();
        decisions.into_iter().map(|decision| decision.action).filter(Override::replaces_a_rule).collect()
    }

    /// How many deposits were seen in the block of this slot that is canonical.
    pub(super) async fn pays_in(&self, slot: u64) -> usize {
        let text = "SELECT blocks.number, inclusions.block_hash FROM inclusions JOIN blocks ON blocks.hash = inclusions.block_hash \
                    WHERE blocks.canonical AND blocks.number = $1";
        self.rows::<(i64, Vec<u8>)>(text, i64::try_from(slot).unwrap()).await.len()
    }

    /// What counts of all that is on record: deposits with their status, debits, fees and what else came, in order.
    pub(super) async fn books(&self) -> Vec<(String, String, String, String)> {
        let text = "SELECT 'deposit' AS what, d.id AS id, d.status AS of, d.amount_text AS amount FROM inclusions AS i \
                    JOIN deposits AS d ON d.id = i.deposit_id JOIN blocks AS b ON b.hash = i.block_hash \
                    WHERE b.canonical AND b.number > $1 \
                    UNION ALL SELECT 'debit', hex(m.leg_hash), hex(m.sender), m.amount_text FROM debits AS m \
                    JOIN blocks AS b ON b.hash = m.block_hash WHERE b.canonical \
                    UNION ALL SELECT 'fee', hex(m.tx_id), hex(m.payer), m.amount_text FROM fees AS m \
                    JOIN blocks AS b ON b.hash = m.block_hash WHERE b.canonical \
                    UNION ALL SELECT 'else', hex(m.leg_hash), m.reason, m.amount_text FROM unattributed AS m \
                    JOIN blocks AS b ON b.hash = m.block_hash WHERE b.canonical ORDER BY what, id, of, amount";
        self.rows(text, 0).await
    }

    /// Whether a block of this slot is on record.
    pub(super) async fn has(&self, slot: u64) -> bool {
        let text = "SELECT number FROM blocks WHERE number = $1";
        !self.rows::<(i64,)>(text, i64::try_from(slot).unwrap()).await.is_empty()
    }

    /// The slots whose blocks two endpoints reported.
    pub(super) async fn reported_by_two(&self) -> Vec<u64> {
        let text = "SELECT number FROM blocks WHERE proof = 'two_endpoints' AND number > $1 ORDER BY number";
        self.rows::<(i64,)>(text, 0).await.into_iter().map(|(number,)| u64::try_from(number).unwrap()).collect()
    }

    /// The newest connected slot.
    pub(super) async fn cursor(&self) -> Option<u64> {
        let cursor = Cursor::load(&mut self.store.db.read().await.unwrap(), CHAIN).await.unwrap();
        cursor.at.map(|at| at.number)
    }

    /// The newest slot that counts as final.
    pub(super) async fn finalized(&self) -> Option<u64> {
        let cursor = Cursor::load(&mut self.store.db.read().await.unwrap(), CHAIN).await.unwrap();
        cursor.finalized.map(|block| block.number)
    }

    pub(super) async fn is_there(&self) -> bool {
        let cursor = Cursor::load(&mut self.store.db.read().await.unwrap(), CHAIN).await.unwrap();
        cursor.at == Some(self.ledger.latest())
    }

    pub(super) fn distrusted(&self) -> Vec<usize> {
        let is_out = |state| matches!(state, EndpointState::Failing | EndpointState::Quarantined);
        let states = self.endpoints.snapshot().into_iter().map(|endpoint| endpoint.state);
        states.enumerate().filter(|(_, state)| is_out(*state)).map(|(index, _)| index).collect()
    }

    pub(super) fn behave(&self) {
        for node in &self.nodes {
            node.behave();
            node.find_all();
            node.lag(0);
            node.show(&self.ledger);
        }
    }

    /// Every node behaves, until the source trusts all of them again.
    pub(super) async fn regain_trust(&mut self) {
        self.behave();
        let begun = Instant::now();
        while !self.distrusted().is_empty() && begun.elapsed() < REST_MAX {
            self.tick().await.ok();
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Every node behaves and the ledger goes on until all that ever was is final, and every grace has passed.
    pub(super) async fn settle(&mut self) -> Result<(), String> {
        self.behave();
        for _ in 0..2 {
            let latest = self.ledger.latest().number;
            for slot in latest + 1..=latest + GO_ON {
                self.ledger.produce(slot, Vec::new());
            }
            self.ledger.set_finality(Finality::AtOnce);
            self.rest().await?;
            self.pass(FAILED_GRACE);
        }
        self.rest().await
    }

    /// Ticks until the newest block is connected, and what is final is settled.
    async fn rest(&mut self) -> Result<(), String> {
        let (mut begun, mut why) = (Instant::now(), String::new());
        while begun.elapsed() < REST_MAX {
            match self.tick().await {
                Ok(ticked) if ticked.connected + ticked.disconnected + ticked.confirmed + ticked.failed > 0 => {
                    begun = Instant::now();
                }
                Ok(ticked) if ticked.more_to_settle => {}
                Ok(ticked) => {
                    let mut reader = self.store.db.read().await.unwrap();
                    let cursor = Cursor::load(&mut reader, CHAIN).await.unwrap();
                    if (cursor.at, cursor.finalized) == (Some(self.ledger.latest()), Some(self.ledger.finalized())) {
                        let through = (0, self.ledger.finalized().number);
                        if deposits::settleable(&mut reader, CHAIN, through, 1).await.unwrap().is_empty() {
                            return Ok(());
                        }
                        // Its block could not be read as it must be, and rests.
                        self.pass(WITHHELD_REST);
                    }
                    why = ticked.tip.and_then(|tip| tip.waiting).unwrap_or_default();
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) if !error.may_pass() => return Err(format!("does not come to rest: {error}")),
                Err(error) => {
                    why = error.to_string();
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
        Err(format!("does not come to rest: {why}"))
    }

    /// Takes in what became final, and what is CONFIRMED since this tick must be of it.
    async fn check_confirmed(&mut self) {
        self.learn_truth();
        let text = "SELECT leg_hash, id FROM deposits WHERE confirmed_us = $1";
        let now = self.now.0;
        for (leg, id) in self.rows::<(Vec<u8>, String)>(text, now).await {
            if !self.truth.contains_key(&LegHash(leg.try_into().unwrap())) {
                self.early.push(format!("{id}, while slot {} was final", self.known_through));
            }
        }
    }

    fn learn_truth(&mut self) {
        let through = self.ledger.finalized().number;
        let network = network(CHAIN).unwrap();
        let mut sums: BTreeMap<(TxId, AssetId, Address), (u64, u64)> = BTreeMap::new();
        for (slot, tx, payment) in self.ledger.paid_above(self.known_through) {
            if self.watched.contains(&payment.recipient) && network.asset(&payment.asset).is_some() {
                let sum = sums.entry((tx.id(), payment.asset, payment.recipient)).or_default();
                *sum = (slot, sum.1 + payment.amount);
            }
        }
        for ((tx, asset, recipient), (slot, amount)) in sums {
            let leg = Leg { chain_ref: &network.chain_ref, tx, asset, recipient, amount: U256::from(amount), nth: 0 };
            self.truth.insert(leg.hash(), slot);
        }
        self.known_through = through;
    }

    pub(super) async fn audit(&mut self) -> Audit {
        self.learn_truth();
        let db = &self.store.db;
        let all = deposits::list(&mut db.read().await.unwrap(), &DepositFilter::default(), DEPOSITS_MAX).await.unwrap();
        let network = network(CHAIN).unwrap();
        let of_status = |status| all.iter().filter(move |deposit| deposit.status == status);
        let hashes: Vec<LegHash> = of_status(DepositStatus::Confirmed)
            .map(|deposit| {
                let landfall::deposit::Deposit { tx, asset, recipient, amount, nth, .. } = *deposit;
                Leg { chain_ref: &network.chain_ref, tx: tx.id, asset, recipient, amount, nth }.hash()
            })
            .collect();
        let distinct: BTreeSet<LegHash> = hashes.iter().copied().collect();
        let truth: BTreeSet<LegHash> = self.truth.keys().copied().collect();
        let announced = "SELECT aggregateid, COUNT(*) FROM events WHERE status = 'CONFIRMED' GROUP BY aggregateid \
                         HAVING COUNT(*) > $1";
        let repeated = self.rows::<(String, i64)>(announced, 1).await.len();
        Audit {
            legs: truth.len(),
            missing: truth.difference(&distinct).count(),
            phantom: distinct.difference(&truth).count(),
            twice: hashes.len() - distinct.len() + repeated,
            early: self.early.len(),
            undecided: of_status(DepositStatus::Pending).count(),
            failed: of_status(DepositStatus::Failed).count(),
        }
    }

    /// Reads with a text of the test's own.
    async fn rows<R>(&self, text: &'static str, given: i64) -> Vec<R>
    where
        R: for<'r> sqlx::FromRow<'r, sqlx::sqlite::SqliteRow> + Send + Unpin,
    {
        let mut reader = self.store.db.read().await.unwrap();
        let Connected::Sqlite(connection) = reader.engine() else { panic!("SQLite") };
        sqlx::query_as(text).bind(given).fetch_all(connection).await.unwrap()
    }
}

pub(super) fn mainnet() -> Network {
    network(CHAIN).unwrap()
}

/// The listed token.
pub(super) fn usdc() -> Address {
    let token = mainnet().assets.iter().find_map(|asset| match asset.id {
        AssetId::Token(mint) => Some(mint),
        AssetId::Native => None,
    });
    token.expect("mainnet lists USDC")
}

fn watcher(
    nodes: &[Node],
    store: &TestStore,
    sample: Sample,
    timings: Timings,
) -> (Follower<Arc<SolanaSource>>, Endpoints) {
    let urls = nodes.iter().map(|node| EndpointUrl::from(node.url().parse::<url::Url>().unwrap())).collect();
    let options = Options { timings, ..Options::default() };
    let source = Arc::new(SolanaSource::at(&mainnet(), urls, &options).unwrap().with_sample(sample));
    let (start, poll) = (Start::Number(FIRST_SLOT + 1), Duration::from_millis(10));
    // As the product follows Solana.
    let proof = ReadProof::Candidate;
    let settings = Settings { start, proof, poll, failed_grace: FAILED_GRACE, finality_stall: None, block_stall: None };
    let endpoints = source.endpoints();
    (Follower::new(source, endpoints.clone(), store.db.clone(), mainnet(), settings), endpoints)
}
