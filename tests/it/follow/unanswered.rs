//! Nothing is FAILED while an endpoint that may know its transaction cannot be asked, in both lanes and families. An
//! alarm names the deposit and the endpoint, until the endpoint answers or is taken out of the configuration.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use landfall::deposit::DepositStatus::{Failed, Pending};
use landfall::store::cursors::Cursor;
use landfall::watcher::explain::{ExplainError, explain};
use landfall::watcher::{Follower, Settings, Start, TraceLane};
use landfall_chain::{BlockRef, BlockSource, Endpoints, Family, Fate, ReadProof, SourceError, TxId, TxRef};
use landfall_cluster::{Fault, Ledger as Cluster, When};
use landfall_evm::EvmSource;
use landfall_node::{Chain, Server};
use landfall_sim::{SimChain, SimLeg, SimTx};
use landfall_solana::network as solana_network;

use crate::harness::follower::{Mode, network};
use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::solana_ledger::Ledger;
use crate::harness::solana_line::{CHAIN as SOLANA, Line, source, with};
use crate::harness::through::{OnTheWay, Through};
use crate::harness::world::{FAILED_GRACE, FINALITY_DEPTH, World, address, report};

const ALICE: u8 = 0xa1;
const PAYER: u8 = 0x01;
const STATUSES: &str = "getSignatureStatuses";

/// A line before two nodes whose blocks hold a payment that a rollback takes out again, and whose second node cannot be
/// asked where a transaction is; it is final, and the grace is over.
async fn rolled_back(engine: Engine) -> Line {
    let tx = Ledger::new().tx(0x23, |it| it.send(0x23, 0x21, 5));
    let blocks = with(Cluster::of(10..=15), 12, [tx]);
    let network = solana_network(SOLANA).unwrap();
    let mut line = Line::of(network, TestStore::fresh(engine).await, blocks, 2).await;
    line.catch_up().await;
    line.nodes[1].confine(STATUSES);
    line.nodes[1].misbehave(Fault::ServerError, When::Always);
    look(&mut line, 16).await;
    assert_eq!((line.amounts().await, alarm(&line)), (vec![(5, Pending)], None));
    line.now = line.now.plus(FAILED_GRACE);
    look(&mut line, 17).await;
    line
}

/// Another block is final, and the payment in none: what is missing is looked for once more. A node that failed at that
/// is left alone for a little, and nothing newer is final meanwhile.
async fn look(line: &mut Line, slot: u64) {
    line.replace_record(&Cluster::of(10..=slot).forked_at(12));
    line.finalize(slot);
    for _ in 0..3_000 {
        line.try_tick().await.inspect_err(|error| assert!(error.may_pass(), "{error}")).ok();
        let cursor = Cursor::load(&mut line.store.db.read().await.unwrap(), SOLANA).await.unwrap();
        if cursor.finalized.is_some_and(|finalized| finalized.number == slot) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("slot {slot} does not come to be final: {:?}", line.watcher.alarms(line.now));
}

/// What is warned of deposits in no block.
fn alarm(line: &Line) -> Option<String> {
    let mut alarms = line.watcher.alarms(line.now).into_iter().filter(|alarm| alarm.contains("stays PENDING"));
    let first = alarms.next();
    assert_eq!(alarms.next(), None, "one at a time");
    first
}

#[tokio::test]
async fn a_deposit_in_no_block_does_not_fail_while_an_endpoint_that_may_know_it_cannot_be_asked() {
    for engine in ENGINES {
        let mut line = rolled_back(engine).await;
        let deposit = line.deposit().await;
        assert_eq!(deposit.status, Pending);
        let text = alarm(&line).unwrap();
        let (id, tx) = (deposit.id.to_string(), deposit.tx.id.to_string());
        for named in [&*id, &tx, line.nodes[1].id(), STATUSES] {
            assert!(text.contains(named), "{named}: {text}");
        }
        assert!(text.ends_with("bring them back, or take them out of chains.SOLANA_MAINNET.rpc"), "{text}");

        // However long that lasts. It answers again, and does not know it either.
        line.now = line.now.plus(10 * FAILED_GRACE);
        look(&mut line, 18).await;
        assert_eq!((line.deposit().await.status, alarm(&line)), (Pending, Some(text)));
        line.nodes[1].behave();
        look(&mut line, 19).await;
        assert_eq!((line.deposit().await.status, alarm(&line)), (Failed, None));
    }
}

#[tokio::test]
async fn what_keeps_a_deposit_pending_ends_when_its_endpoint_is_taken_out_of_the_configuration() {
    let mut line = rolled_back(Engine::Sqlite).await;
    assert_eq!(line.deposit().await.status, Pending);
    line.source = Arc::new(source(&[&line.nodes[0]]));
    line.watcher = line.another();
    look(&mut line, 18).await;
    assert_eq!((line.deposit().await.status, alarm(&line)), (Failed, None));
}

#[tokio::test]
async fn the_alarm_of_a_missing_deposit_is_over_when_it_is_in_a_block_again() {
    let mut line = rolled_back(Engine::Sqlite).await;
    assert!(alarm(&line).is_some());
    let tx = Ledger::new().tx(0x23, |it| it.send(0x23, 0x21, 5));
    let blocks = with(Cluster::of(10..=18).forked_at(12), 18, [tx]);
    line.nodes.iter().for_each(|node| node.show(&blocks));
    line.catch_up().await;
    assert_eq!((line.amounts().await, alarm(&line)), (vec![(5, Pending)], None));
    let at_slot_18 = line.deposits().await[0].1;
    assert!(at_slot_18, "it is in a block that counts");
}

#[tokio::test]
async fn a_transaction_of_an_evm_chain_is_not_unknown_to_explain_while_an_endpoint_cannot_be_asked() {
    let chain = Chain::of(&network(Mode::Receipts), 1);
    chain.mine_empty(5);
    let servers = [Server::start(chain.clone(), 1).await.unwrap(), Server::start(chain, 2).await.unwrap()];
    let urls: Vec<_> = servers.iter().map(|server| server.url().parse().unwrap()).collect();
    let network = network(Mode::Receipts);
    let source = EvmSource::new(network.clone(), &urls).unwrap();
    source.check().await.unwrap();
    let store = TestStore::fresh(Engine::Sqlite).await;
    let tx = TxId::parse(Family::Evm, &format!("0x{}", "7".repeat(64))).unwrap();
    assert_eq!(explain(&source, &store.db, &network, tx).await.unwrap(), None);
    servers[1].set_missing(&["eth_getTransactionReceipt"]);
    let error = explain(&source, &store.db, &network, tx).await.unwrap_err();
    assert!(matches!(&error, ExplainError::Unanswered { .. }), "{error}");
    assert!(error.to_string().contains(servers[1].id()), "{error}");
}

/// An endpoint that may know transactions cannot be asked while this says so.
struct Silent(Arc<AtomicBool>);

impl OnTheWay for Silent {
    fn fate<'a>(
        &'a self,
        chain: &'a SimChain,
        tx: &'a TxRef,
        at: &'a BlockRef,
    ) -> BoxFuture<'a, Result<Fate, SourceError>> {
        Box::pin(async move {
            let (endpoints, why) = ("gone:8545".to_owned(), "endpoint gone:8545 is gone".to_owned());
            match BlockSource::fate(chain, tx, at).await? {
                Fate::Unknown if self.0.load(Ordering::Relaxed) => Ok(Fate::Unanswered { endpoints, why }),
                fate => Ok(fate),
            }
        })
    }
}

/// A watcher of the world's chain and store, and its lane of the traces, before such endpoints.
fn before(world: &World, silent: &Arc<AtomicBool>) -> (Follower<Through>, TraceLane<Through>) {
    let (start, proof, poll) = (Start::Number(1), ReadProof::Full, Duration::from_millis(10));
    let settings = Settings { start, proof, poll, failed_grace: FAILED_GRACE, finality_stall: None, block_stall: None };
    let source = Through::new(&world.chain, Arc::new(Silent(Arc::clone(silent))));
    let endpoints = Endpoints::new(["sim".to_owned()]);
    let watcher = Follower::new(source, endpoints, world.db().clone(), world.network.clone(), settings);
    let lane = watcher.trace_lane().expect("a network that is traced");
    (watcher, lane)
}

#[tokio::test]
async fn a_deposit_of_a_trace_does_not_fail_either_and_the_reason_names_deposit_and_endpoint() {
    for engine in ENGINES {
        let mut world = World::traced(engine, 3).await;
        world.watch("alice", address(ALICE)).await;
        world.chain.mine_empty(1);
        world.chain.mine(vec![SimTx::new(address(PAYER), 0, vec![SimLeg::inner(address(PAYER), address(ALICE), 5)])]);
        world.catch_up().await;
        world.chain.fork_at(1);
        world.chain.mine_empty(2 * FINALITY_DEPTH);
        let silent = Arc::new(AtomicBool::new(true));
        let (mut watcher, lane) = before(&world, &silent);
        let deposit = world.deposits().await.remove(0);
        for _ in 0..3 {
            watcher.tick(world.now()).await.unwrap();
            lane.tick(world.now()).await.unwrap();
        }
        assert_eq!(report(&world).await.traces_alarm, "", "its grace has begun");
        world.pass(FAILED_GRACE);
        world.chain.mine_empty(1);
        for _ in 0..2 {
            watcher.tick(world.now()).await.unwrap();
            lane.tick(world.now()).await.unwrap();
        }
        assert_eq!(world.status_of(5).await, Pending);
        let alarm = report(&world).await.traces_alarm;
        assert!(alarm.contains(&deposit.id.to_string()) && alarm.contains("gone:8545"), "{alarm}");
        silent.store(false, Ordering::Relaxed);
        world.chain.mine_empty(1);
        world.catch_up().await;
        assert_eq!(world.status_of(5).await, Failed);
        world.close().await;
    }
}
