//! A simulated chain whose answers a test changes on their way: lists of headers that leave blocks out, and an address
//! that is added while the source is asked who paid.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use landfall::account::{AccountType, NewAccount};
use landfall::registry;
use landfall::store::Db;
use landfall::store::cursors::Cursor;
use landfall::watcher::{Backfill, Follower, Job, Scope, Settings, Start};
use landfall_chain::{
    AssetTransfer, Block, BlockRef, BlockSource, Endpoints, Header, Payer, Read, ReadProof, SenderRule, SourceError,
};
use landfall_sim::{SimChain, SimLeg, SimTx};

use crate::harness::postgres::{Engine, TestStore};
use crate::harness::through::{OnTheWay, Through};
use crate::harness::world::{CHAIN, FAILED_GRACE, World, address, network};

const ALICE: u8 = 0xa1;
const CAROL: u8 = 0xc0;
const PAYER: u8 = 0x01;

type Change = dyn Fn(u64, &RangeInclusive<u64>, Vec<Header>) -> Vec<Header> + Send + Sync;

struct Changed {
    /// What becomes of a list of headers; reported is how often it was asked for before.
    headers: Box<Change>,
    lists: AtomicU64,
    /// To whom Carol is added when it is asked who paid, and how many legs that was asked of.
    db: Db,
    named: AtomicU64,
}

/// A watcher of the world's chain whose answers are changed.
fn watcher(
    world: &World,
    start: u64,
    headers: impl Fn(u64, &RangeInclusive<u64>, Vec<Header>) -> Vec<Header> + Send + Sync + 'static,
) -> Follower<Through> {
    let (start, proof, poll) = (Start::Number(start), ReadProof::Full, Duration::from_millis(10));
    let settings = Settings { start, proof, poll, failed_grace: FAILED_GRACE, finality_stall: None, block_stall: None };
    let (headers, db) = (Box::new(headers), world.db().clone());
    let changed = Changed { headers, lists: AtomicU64::new(0), db: db.clone(), named: AtomicU64::new(0) };
    let source = Through::new(&world.chain, Arc::new(changed));
    Follower::new(source, Endpoints::new(["sim".to_owned()]), db, network(), settings)
}

impl OnTheWay for Changed {
    fn headers<'a>(
        &'a self,
        chain: &'a SimChain,
        range: RangeInclusive<u64>,
    ) -> BoxFuture<'a, Result<Vec<Header>, SourceError>> {
        Box::pin(async move {
            let times = self.lists.fetch_add(1, Ordering::Relaxed);
            Ok((self.headers)(times, &range, BlockSource::headers(chain, range.clone()).await?))
        })
    }

    /// No block shows who paid.
    fn blocks<'a>(
        &'a self,
        chain: &'a SimChain,
        range: RangeInclusive<u64>,
        read: Read,
    ) -> BoxFuture<'a, Result<Vec<Block>, SourceError>> {
        Box::pin(async move {
            let mut blocks = BlockSource::blocks(chain, range, read).await?;
            for leg in blocks.iter_mut().flat_map(|block| &mut block.transfers) {
                leg.sender_rule = SenderRule::StandIn;
            }
            Ok(blocks)
        })
    }

    fn payers<'a>(
        &'a self,
        _: &'a SimChain,
        _: &'a BlockRef,
        transfers: &'a [AssetTransfer],
    ) -> BoxFuture<'a, Result<Vec<Payer>, SourceError>> {
        Box::pin(async move {
            if self.named.fetch_add(1, Ordering::Relaxed) == 0 {
                let (id, addresses) = ("carol".to_owned(), [(CHAIN, address(CAROL))].into());
                let carol = NewAccount { id, identity_id: None, kind: AccountType::Segregated, addresses };
                registry::add_accounts(&self.db, &[carol], landfall::time::Timestamp::EPOCH).await.unwrap();
            }
            Ok(transfers.iter().map(|leg| Payer { sender: leg.sender, rule: SenderRule::Instruction }).collect())
        })
    }
}

fn whole(_: u64, _: &RangeInclusive<u64>, headers: Vec<Header>) -> Vec<Header> {
    headers
}

#[tokio::test]
async fn who_paid_an_address_that_is_added_while_a_past_block_is_credited_is_asked_too() {
    let mut world = World::new(1).await;
    world.chain.mine_empty(2);
    let legs = [ALICE, CAROL].map(|to| SimLeg::native(address(PAYER), address(to), u64::from(to)));
    world.chain.mine(vec![SimTx::new(address(PAYER), 1, legs.into())]);
    world.chain.mine_empty(20);
    world.catch_up().await;
    world.watch("alice", address(ALICE)).await;
    let job = Job { from: 1, to: Some(10), proof: ReadProof::Full, scope: Scope::All, dry_run: false };
    let mut backfill = Backfill::begin(watcher(&world, 1, whole), job).await.unwrap();
    for _ in 0..10 {
        backfill.step(world.now()).await.unwrap();
    }
    assert!(backfill.is_done());
    let deposits = world.deposits().await;
    assert_eq!(deposits.len(), 2, "{deposits:?}");
    for deposit in deposits {
        assert_eq!(deposit.sender_rule, SenderRule::Instruction, "{}", deposit.recipient);
    }
    world.close().await;
}

/// A chain of which block 5 pays, to be watched from there on.
async fn paying_at_5() -> World {
    let world = World::from(Start::Number(5), SimChain::new(7), TestStore::fresh(Engine::Sqlite).await);
    world.watch("alice", address(ALICE)).await;
    world.chain.mine_empty(4);
    world.chain.mine(vec![SimTx::new(address(PAYER), 1, vec![SimLeg::native(address(PAYER), address(ALICE), 5)])]);
    world.chain.mine_empty(20);
    world
}

async fn cursor(world: &World) -> Option<u64> {
    Cursor::load(&mut world.db().read().await.unwrap(), CHAIN).await.unwrap().at.map(|at| at.number)
}

#[tokio::test]
async fn a_list_that_leaves_out_the_first_block_to_watch_is_no_place_to_start_from() {
    let world = paying_at_5().await;
    let hidden = |number: u64, asked: &RangeInclusive<u64>| {
        let is_alone = asked.start() == asked.end();
        number == 4 || !is_alone && (5..=6).contains(&number)
    };
    let mut watcher = watcher(&world, 5, move |_, asked, mut headers| {
        headers.retain(|header| !hidden(header.block.number, asked));
        headers
    });
    for _ in 0..3 {
        let error = watcher.tick(world.now()).await.unwrap_err();
        assert!(error.may_pass(), "{error}");
        assert_eq!(cursor(&world).await, None);
    }
    let mut watcher = self::watcher(&world, 5, whole);
    while !watcher.tick(world.now()).await.unwrap().caught_up {}
    assert_eq!(world.deposits().await.len(), 1);
    world.abandon();
}

#[tokio::test]
async fn the_block_to_start_above_is_named_by_the_one_that_stands_on_it() {
    let world = paying_at_5().await;
    // It is left out where it is asked for first.
    let mut watcher = watcher(&world, 5, |times, _, headers| if times == 0 { Vec::new() } else { headers });
    watcher.tick(world.now()).await.unwrap();
    assert_eq!(world.deposits().await.len(), 1);
    world.abandon();
}
