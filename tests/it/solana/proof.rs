//! The watcher on Solana with several endpoints. Only what two report alike is recorded, the record and the status show
//! what a deposit is based on, and only what two call final is CONFIRMED.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use landfall::account::{AccountType, NewAccount};
use landfall::deposit::{Deposit, DepositStatus, LegHash};
use landfall::health::Status;
use landfall::registry;
use landfall::store::cursors::Cursor;
use landfall::store::deposits::{self, DepositFilter};
use landfall::time::{Clock, Pulse, Timestamp};
use landfall::watcher::{Follower, Settings, Start, TickError};
use landfall_chain::{Address, Chain, EndpointState, Endpoints, Lane, ReadProof};
use landfall_cluster::{Block, Fault, Instead, Ledger, Node, Tx, When};
use landfall_solana::{SolanaSource, network};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::harness::postgres::{Engine, TestStore};
use crate::harness::solana_line::source;
use crate::harness::world::FAILED_GRACE;
use crate::solana::{OURS, payment};

const CHAIN: Chain = Chain::SolanaMainnet;
const NOW: Timestamp = Timestamp(1_800_000_000_000_000);
/// No block that was asked for in vain rests longer.
const REST: Duration = Duration::from_secs(60);
const PAYER: Address = Address::Solana([0x22; 32]);

/// Nodes with one chain, whose slot 14 pays us, and a watcher over them.
struct Scene {
    nodes: Vec<Node>,
    endpoints: Endpoints,
    store: TestStore,
    watcher: Follower<Arc<SolanaSource>>,
    now: Timestamp,
}

fn paying(latest: u64) -> Ledger {
    let ledger = Ledger::of((10..=latest).filter(|slot| *slot != 12));
    ledger.put(14, payment());
    ledger
}

/// Has a block report another payment.
fn report(block: &mut Block, change: impl FnOnce(&mut Value)) {
    block.txs[0] = block.txs[0].changed(change);
}

/// We get one lamport more than we do.
fn one_more(block: &mut Block) {
    report(block, |tx| {
        let reported = &mut tx["meta"]["postBalances"][1];
        *reported = json!(reported.as_u64().unwrap() + 1);
    });
}

fn watcher(source: SolanaSource, store: &TestStore) -> Follower<Arc<SolanaSource>> {
    let (start, proof, poll) = (Start::Number(11), ReadProof::Candidate, Duration::from_millis(10));
    let settings = Settings { start, proof, poll, failed_grace: FAILED_GRACE, finality_stall: None, block_stall: None };
    let endpoints = source.endpoints();
    Follower::new(Arc::new(source), endpoints, store.db.clone(), network(CHAIN).unwrap(), settings)
}

impl Scene {
    /// The first of the nodes is a block ahead: it leads.
    async fn of(count: usize) -> Self {
        let mut nodes = vec![Node::start(&paying(17)).await];
        for _ in 1..count {
            nodes.push(Node::start(&paying(16)).await);
        }
        let source = source(&nodes.iter().collect::<Vec<_>>());
        source.check().await.unwrap();
        let (store, endpoints) = (TestStore::fresh(Engine::Sqlite).await, source.endpoints());
        let (id, addresses) = ("ours".to_owned(), [(CHAIN, OURS)].into());
        let account = NewAccount { id, identity_id: None, kind: AccountType::Segregated, addresses };
        registry::add_accounts(&store.db, &[account], NOW).await.unwrap();
        let watcher = watcher(source, &store);
        Scene { nodes, endpoints, store, watcher, now: NOW }
    }

    async fn ticks(&mut self, count: usize) -> Option<String> {
        let mut failure = None;
        for _ in 0..count {
            let error = self.watcher.tick(self.now).await.err();
            assert!(error.as_ref().is_none_or(TickError::may_pass), "{error:?}");
            failure = error.map(|error| text_of(&error));
        }
        failure
    }

    async fn deposit(&self) -> Option<(Deposit, String)> {
        let mut reader = self.store.db.read().await.unwrap();
        let found = deposits::list(&mut reader, &DepositFilter::default(), 10).await.unwrap();
        assert!(found.len() < 2, "{found:?}");
        let deposit = found.into_iter().next()?;
        let seen_in = deposits::seen_in(&mut reader, deposit.id).await.unwrap().unwrap();
        Some((deposit, seen_in.proof))
    }

    async fn status(&self) -> Option<DepositStatus> {
        self.deposit().await.map(|(deposit, _)| deposit.status)
    }

    async fn cursor(&self) -> u64 {
        let mut reader = self.store.db.read().await.unwrap();
        Cursor::load(&mut reader, CHAIN).await.unwrap().at.unwrap().number
    }

    /// How often each node was asked for the block in `slot`.
    fn reads_of(&self, slot: u64) -> Vec<u64> {
        self.nodes.iter().map(|node| node.calls("getBlock", Some(slot))).collect()
    }

    /// The next block, at once.
    fn make_final(&self, slot: u64) {
        for node in &self.nodes {
            node.ledger().produce(slot, Vec::new());
            node.call_final(slot);
        }
    }

    fn finalize(&self, slots: &[u64]) {
        self.nodes.iter().zip(slots).for_each(|(node, slot)| node.call_final(*slot));
    }
}

/// An error and what caused it.
fn text_of(error: &dyn std::error::Error) -> String {
    let cause = error.source().map(text_of).unwrap_or_default();
    format!("{error}: {cause}")
}

#[tokio::test]
async fn a_deposit_stands_on_two_endpoints_words_and_each_is_asked_once_for_its_block() {
    let mut scene = Scene::of(2).await;
    assert_eq!(scene.ticks(1).await, None);
    let (pending, proof) = scene.deposit().await.unwrap();
    assert_eq!((pending.status, proof.as_str()), (DepositStatus::Pending, "two_endpoints"));
    assert_eq!(scene.cursor().await, 17);
    // Slot 10 was asked for its header, to begin above it.
    for slot in [11, 13, 14, 15, 16, 17] {
        assert_eq!(scene.nodes[0].calls("getBlock", Some(slot)), 1, "{slot}");
        assert_eq!(scene.nodes[1].calls("getBlock", Some(slot)), u64::from(slot == 14), "{slot}");
    }
    scene.finalize(&[16, 16]);
    assert_eq!(scene.ticks(2).await, None);
    assert_eq!(scene.status().await, Some(DepositStatus::Confirmed));
    assert_eq!(scene.reads_of(14), [1, 1]);
}

#[tokio::test]
async fn what_a_process_did_not_read_itself_is_read_again_by_two_before_it_is_confirmed() {
    let mut scene = Scene::of(2).await;
    assert_eq!(scene.ticks(1).await, None);
    let source = source(&scene.nodes.iter().collect::<Vec<_>>());
    scene.watcher = watcher(source, &scene.store);
    scene.finalize(&[16, 16]);
    assert_eq!(scene.ticks(2).await, None);
    let (deposit, proof) = scene.deposit().await.unwrap();
    assert_eq!((deposit.status, proof.as_str()), (DepositStatus::Confirmed, "two_endpoints"));
    assert_eq!(scene.reads_of(14), [2, 2]);
}

#[tokio::test]
async fn a_deposit_that_its_block_did_not_report_is_never_confirmed_by_what_the_block_reported() {
    let mut scene = Scene::of(1).await;
    assert_eq!(scene.ticks(1).await, None);
    let (reported, _) = scene.deposit().await.unwrap();
    let at = scene.nodes[0].ledger().block(14).unwrap().reference();
    let leg_hash = LegHash([7; 32]);
    let invented = Deposit { id: leg_hash.deposit_id(), leg_hash, nth: 1, ..reported.clone() };
    let mut tx = scene.store.db.begin().await.unwrap();
    deposits::insert(&mut tx, &invented).await.unwrap();
    deposits::include(&mut tx, &invented, &at, Lane::Block).await.unwrap();
    tx.commit().await.unwrap();
    scene.finalize(&[16]);
    let error = scene.watcher.tick(NOW).await.unwrap_err();
    assert!(matches!(error, TickError::LegMissing { deposit, .. } if deposit == invented.id), "{error}");
    assert_eq!(scene.reads_of(14), [2], "it is looked for in the block itself");
}

#[tokio::test]
async fn with_one_endpoint_a_deposit_stands_on_its_word_and_says_so() {
    let mut scene = Scene::of(1).await;
    scene.finalize(&[16]);
    assert_eq!(scene.ticks(2).await, None);
    let (deposit, proof) = scene.deposit().await.unwrap();
    assert_eq!((deposit.status, proof.as_str()), (DepositStatus::Confirmed, "one_endpoint"));
    assert_eq!(scene.reads_of(14), [1], "what it told when it came is all that it could tell when it is final");
}

#[tokio::test]
async fn a_payment_that_two_endpoints_report_differently_is_not_recorded_until_a_third_decides() {
    let lies: [fn(&mut Block); 3] =
        [one_more, |block| block.txs.clear(), |block| report(block, |tx| tx["meta"]["err"] = json!("AccountNotFound"))];
    for lie in lies {
        let mut scene = Scene::of(2).await;
        scene.nodes[1].ledger().amend(14, lie);
        let error = scene.ticks(3).await.unwrap();
        assert!(scene.nodes.iter().all(|node| error.contains(node.id())), "{error}");
        assert!(error.contains("differently"), "{error}");
        assert_eq!((scene.deposit().await, scene.cursor().await), (None, 13), "what is before it is on record");
        let mut scene = Scene::of(3).await;
        scene.nodes[0].ledger().amend(14, one_more);
        scene.finalize(&[16, 16, 16]);
        assert_eq!(scene.ticks(3).await, None);
        let (deposit, proof) = scene.deposit().await.unwrap();
        assert_eq!((deposit.amount.to_string().as_str(), proof.as_str()), ("2000000", "two_endpoints"));
        assert_eq!(deposit.status, DepositStatus::Confirmed);
        assert_eq!(scene.endpoints.snapshot()[0].state, EndpointState::Quarantined);
    }
}

#[tokio::test]
async fn one_endpoints_word_makes_a_deposit_pending_and_never_confirmed_unless_a_person_says_so() {
    for is_allowed in [false, true] {
        let mut scene = Scene::of(2).await;
        scene.nodes[1].answer_instead(14, Instead::Null);
        // A chain does not stand still because one of two endpoints does not report a block.
        assert_eq!(scene.ticks(2).await, None);
        assert_eq!(scene.cursor().await, 17);
        let (deposit, proof) = scene.deposit().await.unwrap();
        assert_eq!((deposit.status, proof.as_str()), (DepositStatus::Pending, "one_endpoint"));
        scene.finalize(&[16, 16]);
        // What it misses it may have at the next check, and at the tenth nobody waits for it any more.
        assert_eq!(scene.ticks(12).await, None);
        assert_eq!(scene.status().await, Some(DepositStatus::Pending));
        if is_allowed {
            // The watcher hands on operators' words by its own door, which is nobody's here.
            scene.endpoints.override_agree(Some(1));
        } else {
            scene.nodes[1].behave();
            scene.now = scene.now.plus(REST);
        }
        assert_eq!(scene.ticks(2).await, None);
        let (deposit, proof) = scene.deposit().await.unwrap();
        let level = if is_allowed { "one_endpoint" } else { "two_endpoints" };
        assert_eq!((deposit.status, proof.as_str()), (DepositStatus::Confirmed, level));
    }
}

#[tokio::test]
async fn a_final_block_that_one_endpoint_alone_shows_holds_up_its_own_deposits_and_nothing_else() {
    let mut scene = Scene::of(2).await;
    scene.nodes[1].answer_instead(14, Instead::Null);
    assert_eq!(scene.ticks(2).await, None);
    scene.finalize(&[16, 16]);
    assert_eq!(scene.ticks(12).await, None);
    let asked = scene.reads_of(14);
    assert_eq!(scene.ticks(50).await, None);
    assert_eq!(scene.reads_of(14), asked, "it rests before it is asked for again");

    // Whoever is paid meanwhile waits for nothing.
    for node in &scene.nodes {
        let latest = node.ledger().latest().number;
        for slot in latest + 1..18 {
            node.ledger().produce(slot, Vec::new());
        }
        node.ledger().produce(18, vec![Tx::sol(18, PAYER, OURS, 18)]);
        node.ledger().produce(19, Vec::new());
    }
    assert_eq!(scene.ticks(1).await, None);
    scene.finalize(&[19, 19]);
    assert_eq!(scene.ticks(12).await, None);
    let all = async |scene: &Scene| {
        let mut reader = scene.store.db.read().await.unwrap();
        let all = deposits::list(&mut reader, &DepositFilter::default(), 10).await.unwrap();
        all.into_iter().map(|deposit| (deposit.amount.to::<u64>(), deposit.status)).collect::<BTreeMap<_, _>>()
    };
    let expected = BTreeMap::from([(2_000_000, DepositStatus::Pending), (18, DepositStatus::Confirmed)]);
    assert_eq!(all(&scene).await, expected);

    // Asked for each time that it has rested, and reported once it lasts.
    for _ in 0..10 {
        scene.now = scene.now.plus(REST);
        assert_eq!((scene.ticks(3).await, scene.watcher.alarms(scene.now).len()), (None, 0));
    }
    assert_eq!(scene.reads_of(14)[1], asked[1] + 10, "{asked:?}");
    scene.now = scene.now.plus(REST);
    assert_eq!(scene.ticks(1).await, None);
    let reported = scene.watcher.alarms(scene.now);
    let [alarm] = reported.as_slice() else { panic!("{reported:?}") };
    assert!(alarm.contains("the deposits of block 14") && alarm.contains(scene.nodes[1].id()), "{alarm}");
    scene.nodes[1].behave();
    scene.now = scene.now.plus(REST);
    assert_eq!(scene.ticks(2).await, None);
    assert!(all(&scene).await.into_values().all(|status| status == DepositStatus::Confirmed));
    assert!(scene.watcher.alarms(scene.now).is_empty());
}

/// The endpoint that reported its new block first left it out, and it is searched for there; at that moment the second
/// endpoint does not have the block.
#[tokio::test]
async fn a_missing_deposit_is_looked_for_again_as_soon_as_two_show_its_block() {
    for is_deaf in [false, true] {
        let mut scene = Scene::of(2).await;
        assert_eq!(scene.ticks(2).await, None);
        let mut moved = Vec::new();
        for node in &scene.nodes {
            moved = node.ledger().roll_back_to(13);
            for slot in [15, 16, 18] {
                node.ledger().produce(slot, Vec::new());
            }
        }
        scene.nodes[1].answer_instead(15, Instead::Null);
        for _ in 0..10 {
            scene.ticks(1).await;
        }
        assert_eq!((scene.cursor().await, scene.status().await), (18, Some(DepositStatus::Pending)));
        for node in &scene.nodes {
            moved.iter().for_each(|tx| node.ledger().put(15, tx.clone()));
        }
        scene.finalize(&[18, 18]);
        assert_eq!(scene.ticks(12).await, None);
        assert_eq!(scene.status().await, Some(DepositStatus::Pending));
        // However long that lasts, also in another process, and though nobody who knows where it is can be asked for a
        // moment.
        for slot in [19, 20, 21] {
            scene.now = scene.now.plus(FAILED_GRACE * 2);
            scene.make_final(slot);
            assert_eq!(scene.ticks(3).await, None);
            assert_eq!(scene.status().await, Some(DepositStatus::Pending));
            let source = source(&scene.nodes.iter().collect::<Vec<_>>());
            scene.watcher = watcher(source, &scene.store);
        }
        if is_deaf {
            scene.nodes[0].confine("getSignatureStatuses");
            scene.nodes[0].misbehave(Fault::ServerError, When::Always);
            scene.make_final(22);
            scene.ticks(3).await;
            assert_eq!(scene.status().await, Some(DepositStatus::Pending));
            scene.nodes[0].behave();
            // It was missing since then.
            scene.now = scene.now.plus(FAILED_GRACE);
        }
        scene.nodes[1].behave();
        scene.make_final(23);
        let source = source(&scene.nodes.iter().collect::<Vec<_>>());
        scene.watcher = watcher(source, &scene.store);
        assert_eq!(scene.ticks(3).await, None);
        assert_eq!(scene.status().await, Some(DepositStatus::Confirmed));
    }
}

#[tokio::test]
async fn nothing_is_confirmed_on_one_endpoints_word_of_what_is_final() {
    // It lags; it stalls; it calls everything final; it calls another branch final.
    let spoils: [fn(&Scene); 4] = [
        |scene| {
            scene.nodes[1].show(&paying(14));
            scene.finalize(&[16, 13]);
        },
        |scene| scene.finalize(&[16, 11]),
        |scene| scene.finalize(&[11, 16]),
        |scene| {
            scene.nodes[1].show(&paying(16).forked_at(15));
            scene.finalize(&[16, 16]);
        },
    ];
    for (number, spoil) in spoils.into_iter().enumerate() {
        let mut scene = Scene::of(2).await;
        assert_eq!(scene.ticks(1).await, None);
        spoil(&scene);
        for _ in 0..4 {
            scene.ticks(1).await;
            assert_eq!(scene.status().await, Some(DepositStatus::Pending), "{number}");
        }
        scene.nodes[1].show(&paying(16));
        scene.finalize(&[16, 16]);
        scene.ticks(3).await;
        assert_eq!(scene.status().await, Some(DepositStatus::Confirmed), "{number}");
    }
}

#[tokio::test]
async fn the_status_says_what_stands_behind_deposits_now() {
    for (count, override_agree, expected) in
        [(1, None, "one_endpoint"), (2, None, "two_endpoints"), (2, Some(1), "one_endpoint")]
    {
        let Scene { nodes, endpoints, store, watcher, .. } = Scene::of(count).await;
        endpoints.override_agree(override_agree);
        let (stop, clock) = (CancellationToken::new(), Clock::system());
        let pulse = Pulse::new("solana", clock.now());
        let mut running = JoinSet::new();
        running.spawn(watcher.run(clock, || 7, pulse, stop.clone()));
        let shown = async {
            loop {
                let status = Status::read(&store.db, NOW).await.unwrap();
                if let Some(chain) = status.chains.first().filter(|chain| chain.state == "following") {
                    return chain.proof.clone();
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let shown = tokio::time::timeout(Duration::from_secs(60), shown).await.unwrap();
        assert_eq!(shown, expected, "{count} {override_agree:?}");
        stop.cancel();
        running.join_all().await;
        drop(nodes);
    }
}

/// The rows of a block do not say who reported them, so a new process reads the block again.
#[tokio::test]
async fn what_the_only_endpoint_left_denies_is_not_confirmed() {
    let mut scene = Scene::of(2).await;
    scene.nodes[0].ledger().amend(14, one_more);
    scene.nodes[1].answer_instead(14, Instead::Null);
    assert_eq!(scene.ticks(2).await, None);
    let (deposit, proof) = scene.deposit().await.unwrap();
    assert_eq!((deposit.status, proof.as_str()), (DepositStatus::Pending, "one_endpoint"));
    assert_eq!(deposit.amount.to_string(), "2000001");
    // The operator takes the endpoint that made the payment up out of the configuration.
    scene.nodes[1].behave();
    scene.nodes[1].ledger().produce(17, Vec::new());
    scene.watcher = watcher(source(&[&scene.nodes[1]]), &scene.store);
    scene.finalize(&[16, 16]);
    let mut errors = Vec::new();
    for _ in 0..4 {
        errors.extend(scene.watcher.tick(NOW).await.err());
    }
    let (deposit, proof) = scene.deposit().await.unwrap();
    assert_eq!(deposit.status, DepositStatus::Pending, "{} {proof}", deposit.amount);
    // It was read again, and its leg is not there.
    assert!(errors.iter().any(|error| matches!(error, TickError::LegMissing { .. })), "{errors:?}");
}

/// What was CONFIRMED early is connected again with another amount, which a hash does not cover.
#[tokio::test]
async fn a_transaction_is_never_credited_with_more_than_its_newest_reading_paid() {
    let mut scene = Scene::of(1).await;
    assert_eq!(scene.ticks(1).await, None);
    let author = landfall::operator::Operator { actor: "a person", reason: "why", now: NOW, dry_run: false };
    author.confirm_through(&scene.store.db, CHAIN, 14, REST).await.unwrap();
    assert_eq!(scene.ticks(1).await, None);
    assert_eq!(scene.status().await, Some(DepositStatus::Confirmed));
    let ledger = scene.nodes[0].ledger();
    ledger.amend(14, one_more);
    let mut tx = scene.store.db.begin().await.unwrap();
    let below = ledger.block(13).unwrap().reference();
    Cursor::lock(&mut tx, CHAIN).await.unwrap();
    landfall::store::cursors::disconnect(&mut tx, CHAIN, &below).await.unwrap();
    let at = ledger.block(17).unwrap().reference();
    Cursor::shift(&mut tx, CHAIN, &at, &below).await.unwrap();
    tx.commit().await.unwrap();
    scene.ticks(1).await;
    scene.finalize(&[16]);
    scene.ticks(2).await;
    let mut reader = scene.store.db.read().await.unwrap();
    let found = deposits::list(&mut reader, &DepositFilter::default(), 10).await.unwrap();
    let text: Vec<_> = found.iter().map(|it| format!("{} {}", it.amount, it.status)).collect();
    assert_eq!(found.iter().filter(|it| it.status == DepositStatus::Confirmed).count(), 1, "{text:?}");
}
