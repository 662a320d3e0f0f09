//! Rows of the catalogue of failures that are about nodes, with the real EVM source before real sockets. They are a
//! final block that stands still (R7), a rollup's depth (R8), ranges that fail in the middle (R12), empty answers (P1),
//! and nodes of another network or fork (P2).
//!
//! `faults.rs` throws every fault at random; here each row is played step by step, with what must be seen on the way.

use std::sync::Arc;
use std::time::Duration;

use landfall::account::{AccountType, NewAccount};
use landfall::deposit::DepositStatus::{self, Confirmed, Pending};
use landfall::registry;
use landfall::store::cursors::Cursor;
use landfall::store::deposits::{self, DepositFilter};
use landfall::store::movements;
use landfall::time::Timestamp;
use landfall::watcher::{Backfill, Follower, Job, Scope, Settings, Start, TickError, Ticked, block_stall};
use landfall_chain::{
    Address, AssetId, Chain as Name, EndpointState, EndpointStatus, Endpoints, FinalityRule, Native, NativeSource,
    Network, ReadProof, U256,
};
use landfall_evm::EvmSource;
use landfall_node::{Chain, Fault, Server, Tx, When};
use serde_json::Value;

use crate::harness::follower::{Mode, network, usdc};
use crate::harness::postgres::{Engine, TestStore};
use crate::harness::world::{CHAIN, FAILED_GRACE};

const ALICE: [u8; 20] = [0xa1; 20];
const FINALITY_DEPTH: u64 = 6;
const MINUTE: Duration = Duration::from_secs(60);
const STALL: Duration = Duration::from_secs(1_800);
/// How many ticks a thing may take.
const TICKS_MAX: usize = 200;

/// A watcher of Alice before some servers.
struct Line {
    servers: Vec<Server>,
    store: TestStore,
    endpoints: Endpoints,
    watcher: Follower<Arc<EvmSource>>,
    network: Network,
    proof: ReadProof,
    now: Timestamp,
}

impl Line {
    /// Before one server for each chain.
    async fn of(chains: &[&Chain], proof: ReadProof) -> Line {
        Line::on(network(Mode::Receipts), chains, proof).await
    }

    async fn on(network: Network, chains: &[&Chain], proof: ReadProof) -> Line {
        let mut servers = Vec::new();
        for (chain, seed) in chains.iter().zip(1..) {
            servers.push(Server::start((*chain).clone(), seed).await.unwrap());
        }
        let store = TestStore::fresh(Engine::Sqlite).await;
        let now = Timestamp(1_800_000_000_000_000);
        let alice = NewAccount {
            id: "alice".to_owned(),
            identity_id: None,
            kind: AccountType::Segregated,
            addresses: [(CHAIN, Address::Evm(ALICE))].into(),
        };
        registry::add_accounts(&store.db, &[alice], now).await.unwrap();
        let (watcher, endpoints) = watcher(&network, &servers, &store, proof, Start::Number(1));
        Line { servers, store, endpoints, watcher, network, proof, now }
    }

    /// A new process: all it knows is what is on record.
    fn restart(&mut self) {
        (self.watcher, self.endpoints) =
            watcher(&self.network, &self.servers, &self.store, self.proof, Start::Number(1));
    }

    async fn tick(&mut self) -> Result<Ticked, TickError> {
        self.watcher.tick(self.now).await
    }

    /// Ticks until `chain` is followed to its newest block and nothing happens any more, twice. Failures that may pass
    /// do.
    async fn catch_up(&mut self, chain: &Chain) {
        let mut quiet = 0;
        for _ in 0..TICKS_MAX {
            match self.tick().await {
                Ok(ticked) if ticked.confirmed + ticked.failed + ticked.connected + ticked.disconnected == 0 => {
                    quiet += u32::from(self.cursor().await == chain.latest().number);
                    if quiet == 2 {
                        return;
                    }
                }
                Ok(_) => quiet = 0,
                Err(error) => assert!(error.may_pass(), "{error}"),
            }
            // A node that failed is left alone for a little.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("block {} is not reached: {:?}", chain.latest(), self.endpoints.snapshot());
    }

    async fn cursor(&self) -> u64 {
        let cursor = Cursor::load(&mut self.store.db.read().await.unwrap(), CHAIN).await.unwrap();
        cursor.at.map_or(0, |at| at.number)
    }

    /// Amounts and statuses, by amount.
    async fn deposits(&self) -> Vec<(u64, DepositStatus)> {
        let mut reader = self.store.db.read().await.unwrap();
        let all = deposits::list(&mut reader, &DepositFilter::default(), 1_000_000).await.unwrap();
        let mut all: Vec<(u64, DepositStatus)> =
            all.iter().map(|deposit| (deposit.amount.try_into().unwrap_or(u64::MAX), deposit.status)).collect();
        all.sort_unstable_by_key(|(amount, _)| *amount);
        all
    }

    fn endpoint(&self, index: usize) -> EndpointStatus {
        self.endpoints.snapshot().remove(index)
    }
}

fn watcher(
    network: &Network,
    servers: &[Server],
    store: &TestStore,
    proof: ReadProof,
    start: Start,
) -> (Follower<Arc<EvmSource>>, Endpoints) {
    let urls: Vec<_> = servers.iter().map(|server| server.url().parse().unwrap()).collect();
    let source = Arc::new(EvmSource::new(network.clone(), &urls).unwrap());
    let endpoints = source.endpoints();
    let poll = Duration::from_millis(10);
    let (finality_stall, block_stall) = (Some(STALL), Some(block_stall(network)));
    let settings = Settings { start, proof, poll, failed_grace: FAILED_GRACE, finality_stall, block_stall };
    (Follower::new(source, endpoints.clone(), store.db.clone(), network.clone(), settings), endpoints)
}

fn chain(seed: u64) -> Chain {
    let chain = Chain::of(&network(Mode::Receipts), seed);
    chain.set_finality_depth(Some(FINALITY_DEPTH));
    chain
}

/// A chain with the same blocks so far, which will go another way.
fn branch(trunk: &Chain, seed: u64) -> Chain {
    let branch = chain(seed);
    branch.restore(trunk.blocks());
    branch
}

#[tokio::test]
async fn r8_under_each_delivered_rule_a_deposit_waits_for_its_last_block_on_top_however_early_the_tag() {
    for delivered in landfall_evm::networks() {
        let rule = delivered.finality.rule;
        assert!(rule.tag.is_some() && rule.confirmations >= 32, "{}: {rule:?}", delivered.chain);
        let chain = chain(10);
        let on = Network { finality: delivered.finality, ..network(Mode::Receipts) };
        let mut line = Line::on(on, &[&chain], ReadProof::Full).await;
        chain.set_finality_depth(Some(1));
        chain.mine(vec![pays(0, 5)]);
        chain.mine_empty(rule.confirmations - 1);
        line.catch_up(&chain).await;
        assert_eq!(line.deposits().await, [(5, Pending)], "{}", delivered.chain);
        chain.mine_empty(1);
        line.catch_up(&chain).await;
        assert_eq!(line.deposits().await, [(5, Confirmed)], "{}", delivered.chain);
    }
}

/// Whether a sequencer makes its blocks and L1 makes them final.
pub(crate) fn is_rollup(chain: landfall_chain::Chain) -> bool {
    ["BASE", "OPTIMISM"].iter().any(|name| chain.name().starts_with(name))
}

fn pays(nonce: u64, amount: u64) -> Tx {
    Tx::token(0, nonce, usdc(), ALICE.into(), amount)
}

#[tokio::test]
async fn r7_while_a_nodes_final_block_stands_still_deposits_wait_with_an_alarm() {
    let chain = chain(7);
    let mut line = Line::of(&[&chain], ReadProof::Full).await;
    chain.mine_empty(FINALITY_DEPTH + 2);
    line.catch_up(&chain).await;
    let finalized = chain.finalized().unwrap().number;
    chain.set_finality_depth(None);
    chain.mine(vec![pays(0, 5)]);
    for minute in 1..=31 {
        line.now = line.now.plus(MINUTE);
        chain.mine_empty(4);
        line.catch_up(&chain).await;
        assert_eq!(line.watcher.alarms(line.now).len(), usize::from(minute > 30), "minute {minute}");
        assert_eq!(line.deposits().await, [(5, Pending)], "124 blocks on top are no finality where the tag decides");
    }
    let alarms = line.watcher.alarms(line.now);
    assert!(alarms[0].starts_with(&format!("finality stalled: block {finalized} is final since ")), "{alarms:?}");
    chain.set_finality_depth(Some(FINALITY_DEPTH));
    line.catch_up(&chain).await;
    assert_eq!((line.deposits().await, line.watcher.alarms(line.now)), (vec![(5, Confirmed)], vec![]));
}

#[tokio::test]
async fn a_lone_node_whose_newest_block_stands_still_is_right_in_itself_and_an_alarm() {
    let chain = chain(9);
    let mut line = Line::of(&[&chain], ReadProof::Full).await;
    chain.mine_empty(FINALITY_DEPTH + 2);
    line.catch_up(&chain).await;
    let latest = chain.latest().number;
    chain.mine(vec![pays(0, 5)]);
    for minute in 1..=6 {
        line.servers[0].behave();
        line.servers[0].misbehave(Fault::Stale(chain.latest().number - latest), When::Always);
        line.now = line.now.plus(MINUTE);
        line.tick().await.unwrap();
        assert_eq!((line.cursor().await, line.deposits().await), (latest, vec![]));
        assert_eq!(line.watcher.alarms(line.now).len(), usize::from(minute > 5), "minute {minute}");
        chain.mine_empty(5);
    }
    let alarms = line.watcher.alarms(line.now);
    assert!(alarms[0].starts_with(&format!("no newer block than {latest} is told since ")), "{alarms:?}");
    line.servers[0].behave();
    line.catch_up(&chain).await;
    assert_eq!((line.deposits().await, line.watcher.alarms(line.now)), (vec![(5, Confirmed)], vec![]));
}

#[tokio::test]
async fn r8_whatever_stands_on_a_deposit_of_a_rollup_it_waits_for_the_tag() {
    // The blocks are as Ethereum makes them; the rule is the one that a rollup is delivered with.
    for rollup in landfall_evm::networks().into_iter().filter(|network| is_rollup(network.chain)) {
        let chain = chain(8);
        let on = Network { finality: rollup.finality, ..network(Mode::Receipts) };
        let mut line = Line::on(on, &[&chain], ReadProof::Full).await;
        chain.mine_empty(FINALITY_DEPTH + 2);
        line.catch_up(&chain).await;
        chain.set_finality_depth(None);
        chain.mine(vec![pays(0, 5)]);
        // More than exchanges wait for there: they are still only what the sequencer reports.
        chain.mine_empty(600);
        line.catch_up(&chain).await;
        assert_eq!(line.deposits().await, [(5, Pending)], "{}", rollup.chain);
        // What the sequencer takes back as long as nothing of it stands on L1.
        let latest = chain.latest().number;
        chain.fork_at(FINALITY_DEPTH + 2);
        chain.mine(vec![pays(0, 7)]);
        chain.mine_empty(latest);
        chain.set_finality_depth(Some(FINALITY_DEPTH));
        line.catch_up(&chain).await;
        line.now = line.now.plus(FAILED_GRACE);
        chain.mine_empty(1);
        line.catch_up(&chain).await;
        assert_eq!(line.deposits().await, [(5, DepositStatus::Failed), (7, Confirmed)], "{}", rollup.chain);
    }
}

#[tokio::test]
async fn r12_a_range_that_fails_anywhere_and_a_long_stop_leave_no_block_unread() {
    let faults = [Fault::NullBlock, Fault::NullReceipts, Fault::EmptyReceipts, Fault::ServerError, Fault::Truncated];
    for fault in faults {
        let chain = chain(12);
        let mut line = Line::of(&[&chain], ReadProof::Full).await;
        for nonce in 0..100 {
            chain.mine(vec![pays(nonce, nonce + 1)]);
        }
        line.servers[0].misbehave(fault, When::Percent(20));
        let mut failed = 0;
        for _ in 0..40 {
            failed += u64::from(line.tick().await.is_err_and(|error| {
                assert!(error.may_pass(), "{error}");
                true
            }));
            let (cursor, found) = (line.cursor().await, line.deposits().await.len());
            assert_eq!(u64::try_from(found).unwrap(), cursor.min(100), "{fault:?}: the cursor passes nothing unread");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(failed > 0 && line.servers[0].struck(fault) > 0, "{fault:?} was not met");
        line.servers[0].behave();
        // Down for longer than a tick reads.
        for nonce in 100..400 {
            chain.mine(vec![pays(nonce, nonce + 1)]);
        }
        line.restart();
        chain.mine_empty(FINALITY_DEPTH);
        line.catch_up(&chain).await;
        let expected: Vec<(u64, DepositStatus)> = (1..=400).map(|amount| (amount, Confirmed)).collect();
        assert_eq!(line.deposits().await, expected, "{fault:?}");
    }
}

#[tokio::test]
async fn p1_logs_that_a_node_leaves_out_are_found_by_the_bloom() {
    let chain = chain(1);
    let mut line = Line::of(&[&chain], ReadProof::Candidate).await;
    line.servers[0].misbehave(Fault::EmptyLogs, When::Always);
    for nonce in 0..20 {
        chain.mine(if nonce % 2 == 0 { vec![pays(nonce / 2, nonce + 1)] } else { Vec::new() });
        // The newest block, and ranges behind it.
        if nonce % 5 == 0 {
            line.catch_up(&chain).await;
        }
    }
    line.catch_up(&chain).await;
    assert!(line.servers[0].struck(Fault::EmptyLogs) > 0, "it was asked for logs and showed none");
    chain.mine_empty(FINALITY_DEPTH);
    line.catch_up(&chain).await;
    let expected: Vec<(u64, DepositStatus)> = (0..20).step_by(2).map(|nonce| (nonce + 1, Confirmed)).collect();
    assert_eq!(line.deposits().await, expected);
}

#[tokio::test]
async fn p1_an_endpoint_that_answers_with_nothing_is_refused_and_another_is_asked() {
    for fault in [Fault::EmptyReceipts, Fault::NullReceipts, Fault::NullBlock] {
        let chain = chain(2);
        let mut line = Line::of(&[&chain, &chain], ReadProof::Full).await;
        // The faster one is asked, and which that is the sockets decide: the fault is with the one of most answers.
        let asked = |server: &Server| server.counts().calls.get("eth_getBlockReceipts").copied().unwrap_or(0);
        for nonce in 0..10 {
            if line.servers.iter().all(|server| server.struck(fault) == 0) {
                line.servers.iter().for_each(Server::behave);
                line.servers.iter().max_by_key(|server| asked(server)).unwrap().misbehave(fault, When::Always);
            }
            chain.mine(vec![pays(nonce, nonce + 1)]);
            line.catch_up(&chain).await;
            assert_eq!(u64::try_from(line.deposits().await.len()).unwrap(), nonce + 1, "{fault:?}");
        }
        let (met, other): (Vec<_>, Vec<_>) = line.servers.iter().partition(|server| server.struck(fault) > 0);
        assert_eq!((met.len(), other.len()), (1, 1), "{fault:?} is met at one of them");
        assert!(asked(other[0]) > 0, "{fault:?}: the other one was asked");
        // Alone it is believed nothing of either: the cursor stays.
        let mut alone = Line::of(&[&chain], ReadProof::Full).await;
        alone.servers[0].misbehave(fault, When::Always);
        for _ in 0..5 {
            assert!(alone.tick().await.is_err_and(|error| error.may_pass()), "{fault:?}");
        }
        assert_eq!((alone.cursor().await, alone.deposits().await), (0, vec![]), "{fault:?}");
    }
}

#[tokio::test]
async fn p2_a_node_of_another_network_is_left_out_and_confirms_nothing() {
    let (ours, other) = (chain(1), Chain::new(1, 2));
    other.set_finality_depth(Some(FINALITY_DEPTH));
    let mut line = Line::of(&[&ours, &other], ReadProof::Full).await;
    for nonce in 0..10 {
        ours.mine(vec![pays(nonce, nonce + 1)]);
        other.mine(vec![pays(nonce, 1_000 + nonce)]);
        other.mine_empty(1);
        line.catch_up(&ours).await;
    }
    let foreign = line.endpoint(1);
    assert_eq!(foreign.state, EndpointState::Quarantined, "{foreign:?}");
    assert!(foreign.reason.contains("chain id 1"), "{foreign:?}");
    let expected: Vec<(u64, DepositStatus)> = (1..=10).map(|amount| (amount, Pending)).collect();
    assert_eq!(line.deposits().await, expected, "two must agree on what is final, and only one is of this chain");
    let waiting = line.tick().await.unwrap().tip.unwrap().waiting.unwrap();
    assert!(waiting.contains("1 of the 2 endpoints that must agree"), "{waiting}");
    line.endpoints.override_agree(Some(1));
    ours.mine_empty(FINALITY_DEPTH);
    line.catch_up(&ours).await;
    assert!(line.deposits().await.iter().all(|(amount, status)| *amount <= 10 && *status == Confirmed));
}

#[tokio::test]
async fn p2_two_nodes_on_two_forks_confirm_nothing_until_they_agree() {
    let ours = chain(1);
    ours.mine_empty(FINALITY_DEPTH + 4);
    let other = branch(&ours, 2);
    let mut line = Line::of(&[&ours, &other], ReadProof::Full).await;
    line.catch_up(&ours).await;
    ours.mine(vec![pays(0, 5)]);
    other.mine(vec![pays(0, 7)]);
    let mut waiting = None;
    for _ in 0..2 * FINALITY_DEPTH {
        ours.mine_empty(1);
        other.mine_empty(1);
        match line.tick().await {
            Ok(ticked) => waiting = ticked.tip.and_then(|tip| tip.waiting).or(waiting),
            Err(error) => assert!(error.may_pass(), "{error}"),
        }
        let deposits = line.deposits().await;
        assert!(deposits.iter().all(|(_, status)| *status == Pending), "each calls its own branch final: {deposits:?}");
    }
    assert!(!line.deposits().await.is_empty(), "nothing was tried");
    let waiting = waiting.expect("it is told why nothing is final");
    assert!(waiting.starts_with("1 of 2 endpoints agree on block ") && waiting.contains(" shows 0x"), "{waiting}");
    // The other one finds the way back to the chain.
    other.restore(ours.blocks());
    other.claim_final(ours.finalized().unwrap());
    ours.mine_empty(1);
    other.restore(ours.blocks());
    other.claim_final(ours.finalized().unwrap());
    line.catch_up(&ours).await;
    let confirmed: Vec<u64> = line
        .deposits()
        .await
        .into_iter()
        .filter(|(_, status)| *status == Confirmed)
        .map(|(amount, _)| amount)
        .collect();
    assert_eq!(confirmed, [5]);
}

#[tokio::test]
async fn p2_of_three_nodes_the_one_on_another_fork_is_left_out_with_its_reason() {
    let ours = chain(1);
    ours.mine_empty(FINALITY_DEPTH + 4);
    let other = branch(&ours, 2);
    let mut line = Line::of(&[&other, &ours, &ours], ReadProof::Full).await;
    line.catch_up(&ours).await;
    ours.mine(vec![pays(0, 5)]);
    other.mine(vec![pays(0, 7)]);
    for _ in 0..=FINALITY_DEPTH {
        ours.mine_empty(1);
        other.mine_empty(1);
        if let Err(error) = line.tick().await {
            assert!(error.may_pass(), "{error}");
        }
    }
    line.catch_up(&ours).await;
    let deposits = line.deposits().await;
    assert!(deposits.contains(&(5, Confirmed)) && !deposits.contains(&(7, Confirmed)), "{deposits:?}");
    let alone = line.endpoint(0);
    assert_eq!(alone.state, EndpointState::Quarantined, "{alone:?}");
    assert!(alone.reason.contains("final"), "{alone:?}");
    assert!([1, 2].iter().all(|index| line.endpoint(*index).state == EndpointState::Healthy));
}

#[tokio::test]
async fn what_a_rollups_transactions_paid_for_l1_too_is_on_record_with_their_fees() {
    const NUMBER: u64 = 109_860_869;
    let read = |part: &str| -> Value {
        let file = format!("chains/evm/testdata/optimism_mainnet_{NUMBER}_{part}.json");
        serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
    };
    let receipts = read("receipts");
    let network = Network {
        native: Native { source: NativeSource::TopLevel, eip7708_from: None },
        finality: FinalityRule::FINALIZED.into(),
        ..landfall_evm::network(Name::OptimismMainnet).unwrap()
    };
    let chain = Chain::empty(10, 0);
    chain.add_recorded(&read("block"), &receipts, None);
    chain.claim_final(chain.latest());
    let line = Line::on(network, &[&chain], ReadProof::Full).await;
    let number = |field: &Value| field.as_str().unwrap().parse::<U256>().unwrap();
    // The first is the chain's own deposit, which costs nothing.
    let paid = receipts.as_array().unwrap()[1..].iter().map(|receipt| {
        let payer = receipt["from"].as_str().unwrap().parse::<landfall_node::Address>().unwrap();
        let [used, price, l1] = ["gasUsed", "effectiveGasPrice", "l1Fee"].map(|field| number(&receipt[field]));
        (Address::Evm(payer.into()), used * price + l1)
    });
    let paid: Vec<(Address, U256)> = paid.collect();
    assert_eq!(paid.len(), 7);
    let payers = NewAccount {
        id: "payers".to_owned(),
        identity_id: None,
        kind: AccountType::Segregated,
        addresses: paid.iter().map(|(payer, _)| (Name::OptimismMainnet, *payer)).collect(),
    };
    registry::add_accounts(&line.store.db, &[payers], line.now).await.unwrap();
    let another = || watcher(&line.network, &line.servers, &line.store, line.proof, Start::Finalized).0;
    another().tick(line.now).await.unwrap();
    // Its parent is not recorded: the chain is started on it, and it is read as a past one.
    let job = Job { from: NUMBER, to: Some(NUMBER), proof: line.proof, scope: Scope::All, dry_run: false };
    let mut backfill = Backfill::begin(another(), job).await.unwrap();
    while !backfill.is_done() {
        backfill.step(line.now).await.unwrap();
    }
    let mut reader = line.store.db.read().await.unwrap();
    for (payer, fee) in paid {
        let at = NUMBER..=NUMBER;
        let spent = movements::spent(&mut reader, Name::OptimismMainnet, &payer, &AssetId::Native, &at).await.unwrap();
        assert_eq!(spent.fees, fee, "{payer}");
    }
}
