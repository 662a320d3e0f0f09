//! The watcher on Solana: the same pipeline over slots, from a scripted node to a deposit on record.

pub(crate) mod assets;
pub(crate) mod books;
pub(crate) mod calls;
pub(crate) mod explain;
pub(crate) mod past;
pub(crate) mod proof;
pub(crate) mod rescan;
pub(crate) mod run;
pub(crate) mod senders;
pub(crate) mod slots;

use std::sync::Arc;
use std::time::Duration;

use landfall::account::{AccountType, NewAccount};
use landfall::deposit::{Deposit, DepositStatus};
use landfall::registry;
use landfall::store::deposits::{self, DepositFilter};
use landfall::time::Timestamp;
use landfall::watcher::{Follower, Settings, Start, Ticked};
use landfall_chain::{Address, AssetId, BlockRef, Chain, ReadProof, U256};
use landfall_cluster::{Ledger, Node, TIME, Tx, hash};
use landfall_solana::{SolanaSource, network};

use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::solana_line::source;
use crate::harness::world::FAILED_GRACE;

pub(crate) const OURS: Address = Address::Solana([0x21; 32]);
const PAYER: Address = Address::Solana([0x22; 32]);
const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

/// Two million lamports from the payer to us, and the fee of five thousand.
pub(crate) fn payment() -> Tx {
    Tx::sol(7, PAYER, OURS, 2_000_000)
}

async fn watcher(node: &Node, store: &TestStore) -> Follower<Arc<SolanaSource>> {
    watcher_from(11, node, store).await
}

async fn watcher_from(start: u64, node: &Node, store: &TestStore) -> Follower<Arc<SolanaSource>> {
    watcher_of(start, ReadProof::Candidate, &[node], store).await
}

async fn watcher_of(start: u64, proof: ReadProof, nodes: &[&Node], store: &TestStore) -> Follower<Arc<SolanaSource>> {
    let addresses = [(Chain::SolanaMainnet, OURS)].into();
    let id = "ours".to_owned();
    let account = NewAccount { id, identity_id: None, kind: AccountType::Segregated, addresses };
    registry::add_accounts(&store.db, &[account], NOW).await.unwrap();
    let (start, poll) = (Start::Number(start), Duration::from_millis(10));
    let settings = Settings { start, proof, poll, failed_grace: FAILED_GRACE, finality_stall: None, block_stall: None };
    let source = Arc::new(source(nodes));
    let endpoints = source.endpoints();
    Follower::new(source, endpoints, store.db.clone(), network(Chain::SolanaMainnet).unwrap(), settings)
}

async fn tick(watcher: &mut Follower<Arc<SolanaSource>>) -> Ticked {
    watcher.tick(NOW).await.unwrap()
}

/// How many blocks five ticks disconnect and how many deposits they confirm. While a fork is found, one may end in an
/// error.
async fn five_ticks(watcher: &mut Follower<Arc<SolanaSource>>) -> (u64, u64) {
    let (mut disconnected, mut confirmed) = (0, 0);
    for _ in 0..5 {
        let ticked = watcher.tick(NOW).await.unwrap_or_default();
        (disconnected, confirmed) = (disconnected + ticked.disconnected, confirmed + ticked.confirmed);
    }
    (disconnected, confirmed)
}

async fn deposit(store: &TestStore) -> Deposit {
    let mut reader = store.db.read().await.unwrap();
    let mut found = deposits::list(&mut reader, &DepositFilter::default(), 10).await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[tokio::test]
async fn sol_is_pending_when_its_slot_is_confirmed_and_confirmed_when_it_is_final() {
    let ledger = Ledger::of([10, 11, 14, 15]);
    ledger.put(14, payment());
    let node = Node::start(&ledger).await;
    let store = TestStore::fresh(Engine::Sqlite).await;
    let mut watcher = watcher(&node, &store).await;
    let ticked = tick(&mut watcher).await;
    assert_eq!((ticked.connected, ticked.pending, ticked.confirmed), (3, 1, 0));
    let pending = deposit(&store).await;
    assert_eq!((pending.status, pending.confirmed_at), (DepositStatus::Pending, None));
    assert_eq!((pending.asset, pending.amount), (AssetId::Native, U256::from(2_000_000)));
    assert_eq!((pending.sender, pending.recipient), (PAYER, OURS));
    assert_eq!(pending.created_at, Timestamp::from_secs(TIME + 14));

    ledger.finalize(11);
    assert_eq!(tick(&mut watcher).await.confirmed, 0, "the block below it is final, and it is not");
    ledger.finalize(15);
    assert_eq!(tick(&mut watcher).await.confirmed, 1);
    let confirmed = deposit(&store).await;
    assert_eq!((confirmed.status, confirmed.id), (DepositStatus::Confirmed, pending.id));
}

#[tokio::test]
async fn sol_whose_slot_is_rolled_back_and_lands_in_another_is_credited_once() {
    let ledger = Ledger::of([10, 11, 14, 15]);
    ledger.put(14, payment());
    let node = Node::start(&ledger).await;
    let store = TestStore::fresh(Engine::Sqlite).await;
    let mut watcher = watcher(&node, &store).await;
    tick(&mut watcher).await;
    let first = deposit(&store).await;

    // The same transaction in another slot of another fork.
    let moved = ledger.roll_back_to(11);
    ledger.produce(12, Vec::new());
    ledger.produce(16, moved);
    ledger.produce(17, Vec::new());
    assert_eq!(five_ticks(&mut watcher).await, (2, 0));
    assert_eq!((deposit(&store).await.id, deposit(&store).await.status), (first.id, DepositStatus::Pending));
    ledger.finalize(17);
    assert_eq!(tick(&mut watcher).await.confirmed, 1);
    let confirmed = deposit(&store).await;
    assert_eq!((confirmed.id, confirmed.amount), (first.id, first.amount));
    assert_eq!(confirmed.created_at, first.created_at);
}

/// The other fork is final up to the very slot that was newest, so that only hashes report the two apart.
#[tokio::test]
async fn what_is_final_in_the_slots_of_pending_blocks_takes_their_place_before_anything_is_confirmed() {
    for engine in ENGINES {
        let ledger = Ledger::of([10, 11, 14, 15]);
        ledger.put(14, payment());
        let node = Node::start(&ledger).await;
        let store = TestStore::fresh(engine).await;
        let mut watcher = watcher(&node, &store).await;
        assert_eq!(tick(&mut watcher).await.pending, 1);
        let replaced = deposit(&store).await.id;

        ledger.roll_back_to(11);
        ledger.produce(14, vec![Tx::sol(8, PAYER, OURS, 500)]);
        ledger.produce(15, Vec::new());
        ledger.finalize(15);
        assert_eq!(five_ticks(&mut watcher).await, (2, 1));
        let later = NOW.plus(FAILED_GRACE);
        ledger.produce(16, Vec::new());
        ledger.finalize(16);
        assert_eq!(watcher.tick(later).await.unwrap().failed, 1);
        let mut reader = store.db.read().await.unwrap();
        for deposit in deposits::list(&mut reader, &DepositFilter::default(), 10).await.unwrap() {
            let expected = if deposit.id == replaced {
                (2_000_000, DepositStatus::Failed)
            } else {
                (500, DepositStatus::Confirmed)
            };
            assert_eq!((deposit.amount, deposit.status), (U256::from(expected.0), expected.1));
        }
    }
}

/// Longer than what is looked at at once for where the fork begins.
#[tokio::test]
async fn what_was_dropped_above_a_long_run_of_skipped_slots_is_taken_back() {
    for (engine, dropped) in ENGINES.into_iter().flat_map(|engine| [(engine, 60), (engine, 500)]) {
        let ledger = Ledger::of([10, 11, dropped]);
        ledger.put(dropped, payment());
        let node = Node::start(&ledger).await;
        let store = TestStore::fresh(engine).await;
        let mut watcher = watcher(&node, &store).await;
        // A tick looks through a hundred slots.
        let mut pending = 0;
        for _ in 0..=dropped / 100 {
            pending += tick(&mut watcher).await.pending;
        }
        assert_eq!(pending, 1);
        let moved = ledger.roll_back_to(11);
        ledger.produce(dropped + 1, moved);
        ledger.produce(dropped + 2, Vec::new());
        ledger.finalize(dropped + 2);
        let (found, behind) = (five_ticks(&mut watcher).await, five_ticks(&mut watcher).await);
        assert_eq!((found.0 + behind.0, found.1 + behind.1), (1, 1), "{engine:?}, {dropped}");
        assert_eq!(deposit(&store).await.status, DepositStatus::Confirmed);
    }
}

/// What is in its place begins further above than what a tick looks through: nothing that is final shows that it is
/// gone.
#[tokio::test]
async fn what_was_dropped_below_a_long_run_of_skipped_slots_is_taken_back() {
    for (engine, skipped) in ENGINES.into_iter().flat_map(|engine| [(engine, 101), (engine, 250), (engine, 500)]) {
        for is_final in [false, true] {
            let ledger = Ledger::of([10, 11, 12]);
            ledger.put(12, payment());
            let node = Node::start(&ledger).await;
            let store = TestStore::fresh(engine).await;
            let mut watcher = watcher(&node, &store).await;
            assert_eq!(tick(&mut watcher).await.pending, 1);
            let moved = ledger.roll_back_to(11);
            ledger.produce(12 + skipped, moved);
            ledger.produce(13 + skipped, Vec::new());
            if is_final {
                ledger.finalize(13 + skipped);
            }
            for _ in 0..20 {
                watcher.tick(NOW).await.unwrap();
            }
            ledger.finalize(13 + skipped);
            tick(&mut watcher).await;
            let deposit = deposit(&store).await;
            assert_eq!(deposit.status, DepositStatus::Confirmed, "{engine:?}, {skipped}, {is_final}");
        }
    }
}

#[tokio::test]
async fn a_transaction_that_failed_in_a_final_slot_may_land_later_and_is_not_failed_before_the_grace() {
    for lands in [true, false] {
        let ledger = Ledger::of([10, 11, 14, 15]);
        ledger.put(14, payment());
        let node = Node::start(&ledger).await;
        let store = TestStore::fresh(Engine::Sqlite).await;
        let mut watcher = watcher(&node, &store).await;
        tick(&mut watcher).await;
        let first = deposit(&store).await;

        ledger.roll_back_to(11);
        ledger.produce(16, vec![Tx::failing(7, PAYER, &payment().payments)]);
        ledger.produce(17, Vec::new());
        ledger.finalize(17);
        for _ in 0..5 {
            // While the fork is found, one may end in an error.
            assert_eq!(watcher.tick(NOW).await.map_or(0, |ticked| ticked.failed), 0);
        }
        // With each further final block it is looked for again.
        let almost = NOW.plus(FAILED_GRACE - Duration::from_millis(1));
        let next = |slot: u64, txs: Vec<Tx>| {
            ledger.produce(slot, txs);
            ledger.finalize(slot);
        };
        let (read, _) = node.blocks_and_light_calls();
        next(18, Vec::new());
        assert_eq!(watcher.tick(almost).await.unwrap().failed, 0);
        assert_eq!(deposit(&store).await.status, DepositStatus::Pending);
        let (read_now, _) = node.blocks_and_light_calls();
        assert_eq!(read_now, read + 1, "the new block; what has the transaction is not read again for that");
        if lands {
            next(19, vec![payment()]);
            let ticked = watcher.tick(almost).await.unwrap();
            assert_eq!((ticked.confirmed, ticked.failed), (1, 0));
            let confirmed = deposit(&store).await;
            assert_eq!((confirmed.id, confirmed.status), (first.id, DepositStatus::Confirmed));
        } else {
            next(19, Vec::new());
            assert_eq!(watcher.tick(NOW.plus(FAILED_GRACE)).await.unwrap().failed, 1);
            assert_eq!(deposit(&store).await.status, DepositStatus::Failed);
        }
    }
}

#[tokio::test]
async fn the_cursor_stays_below_what_a_ledger_lost_and_goes_on_when_it_is_there() {
    let ledger = Ledger::of(10..=16);
    ledger.put(13, payment());
    let node = Node::start(&ledger).await;
    let store = TestStore::fresh(Engine::Sqlite).await;
    let mut watcher = watcher(&node, &store).await;
    node.lose([13]);
    assert_eq!(tick(&mut watcher).await.connected, 2);
    for _ in 0..3 {
        let error = watcher.tick(NOW).await.unwrap_err();
        assert!(error.may_pass() && error.to_string().contains("does not tell block 13"), "{error}");
    }
    node.find_all();
    let ticked = tick(&mut watcher).await;
    assert_eq!((ticked.connected, ticked.pending), (4, 1));
    assert_eq!(ticked.tip.unwrap().latest, BlockRef { number: 16, hash: hash(16, 0) });
    assert_eq!(deposit(&store).await.status, DepositStatus::Pending);
}

#[tokio::test]
async fn a_chain_is_taken_up_also_where_the_slots_before_the_first_one_were_skipped() {
    let ledger = Ledger::of([10, 400, 401]);
    ledger.put(400, payment());
    for start in [11, 12, 399, 400] {
        let node = Node::start(&ledger).await;
        let store = TestStore::fresh(Engine::Sqlite).await;
        let mut watcher = watcher_from(start, &node, &store).await;
        let mut connected = 0;
        // A look covers fewer slots than are empty here.
        for _ in 0..5 {
            connected += tick(&mut watcher).await.connected;
        }
        assert_eq!(connected, 2, "from {start}");
        assert_eq!(deposit(&store).await.status, DepositStatus::Pending, "from {start}");
    }
}

#[tokio::test]
async fn a_slot_that_a_ledger_lost_is_no_skipped_one_to_start_above() {
    let node = Node::start(&Ledger::of(10..=16)).await;
    let store = TestStore::fresh(Engine::Sqlite).await;
    let mut watcher = watcher_from(14, &node, &store).await;
    node.lose([13]);
    for _ in 0..3 {
        let error = watcher.tick(NOW).await.unwrap_err();
        assert!(error.may_pass(), "{error}");
    }
    node.find_all();
    assert_eq!(tick(&mut watcher).await.connected, 3);
}

#[tokio::test]
async fn what_pays_us_is_read_again_with_all_the_proof_that_can_be_had_and_nothing_else_is() {
    let ledger = Ledger::of([10, 11, 14, 15]);
    ledger.put(14, payment());
    // With one endpoint there is nothing to gain, and it must not go on for ever.
    for others in [0, 1_u64] {
        let (node, other) = (Node::start(&ledger).await, Node::start(&ledger).await);
        let nodes = if others == 0 { vec![&node] } else { vec![&node, &other] };
        let store = TestStore::fresh(Engine::Sqlite).await;
        let mut watcher = watcher_of(11, ReadProof::Candidate, &nodes, &store).await;
        let ticked = tick(&mut watcher).await;
        assert_eq!((ticked.connected, ticked.pending), (3, 1), "{others} others");
        let calls = |slot| node.calls("getBlock", Some(slot)) + other.calls("getBlock", Some(slot));
        assert_eq!((calls(11), calls(15)), (1, 1), "{others} others");
        assert_eq!(calls(14), 1 + others, "{others} others");
        assert_eq!(deposit(&store).await.status, DepositStatus::Pending);
    }
}
