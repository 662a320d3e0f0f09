//! A simulated chain whose answers a test changes on their way: lists of headers that leave blocks out, and an address
//! that is added while the source is asked who paid.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use landfall::account::{AccountType, NewAccount};
use landfall::registry;
use landfall::store::Db;
use landfall::store::cursors::Cursor;
use landfall::watcher::{Backfill, Job, Scope, Settings, Start, Watcher};
use landfall_chain::{
    AccountState, Address, AddressSource, AssetTransfer, Block, BlockRef, BlockSource, Endpoints, Fate, Found, Header,
    Payer, Read, ReadProof, Search, SenderRule, SourceError, Tip, TxRef, Watched,
};
use landfall_sim::{SimChain, SimLeg, SimTx};

use crate::harness::postgres::{Engine, TestStore};
use crate::harness::world::{CHAIN, FAILED_GRACE, World, address, network};

const ALICE: u8 = 0xa1;
const CAROL: u8 = 0xc0;
const PAYER: u8 = 0x01;

type Change = dyn Fn(u64, &RangeInclusive<u64>, Vec<Header>) -> Vec<Header> + Send + Sync;

#[derive(Clone)]
struct Changed {
    chain: SimChain,
    /// What becomes of a list of headers; reported is how often it was asked for before.
    headers: Arc<Change>,
    lists: Arc<AtomicU64>,
    /// To whom Carol is added when it is asked who paid, and how many legs that was asked of.
    db: Db,
    named: Arc<AtomicU64>,
}

impl Changed {
    fn new(
        world: &World,
        headers: impl Fn(u64, &RangeInclusive<u64>, Vec<Header>) -> Vec<Header> + Send + Sync + 'static,
    ) -> Self {
        let (lists, named) = (Arc::default(), Arc::default());
        Changed { chain: world.chain.clone(), headers: Arc::new(headers), lists, db: world.db().clone(), named }
    }

    fn watcher(self, start: u64) -> Watcher<Changed> {
        let (start, proof, poll) = (Start::Number(start), ReadProof::Full, Duration::from_millis(10));
        let settings =
            Settings { start, proof, poll, failed_grace: FAILED_GRACE, finality_stall: None, block_stall: None };
        let db = self.db.clone();
        Watcher::new(self, Endpoints::new(["sim".to_owned()]), db, network(), settings)
    }
}

impl BlockSource for Changed {
    async fn tip(&self) -> Result<Tip, SourceError> {
        self.chain.tip().await
    }

    async fn headers(&self, range: RangeInclusive<u64>) -> Result<Vec<Header>, SourceError> {
        let times = self.lists.fetch_add(1, Ordering::Relaxed);
        Ok((self.headers)(times, &range, self.chain.headers(range.clone()).await?))
    }

    /// No block shows who paid.
    async fn blocks(&self, range: RangeInclusive<u64>, read: Read) -> Result<Vec<Block>, SourceError> {
        let mut blocks = BlockSource::blocks(&self.chain, range, read).await?;
        for leg in blocks.iter_mut().flat_map(|block| &mut block.transfers) {
            leg.sender_rule = SenderRule::StandIn;
        }
        Ok(blocks)
    }

    async fn final_at(&self, number: u64) -> Result<Option<BlockRef>, SourceError> {
        self.chain.final_at(number).await
    }

    async fn cross_check(
        &self,
        below: &BlockRef,
        range: RangeInclusive<u64>,
        ours: &[BlockRef],
        may_come: bool,
    ) -> Result<Option<u64>, SourceError> {
        self.chain.cross_check(below, range, ours, may_come).await
    }

    async fn fate(&self, tx: &TxRef, at: &BlockRef) -> Result<Fate, SourceError> {
        self.chain.fate(tx, at).await
    }

    async fn payers(&self, _: &BlockRef, transfers: &[AssetTransfer]) -> Result<Vec<Payer>, SourceError> {
        if self.named.fetch_add(1, Ordering::Relaxed) == 0 {
            let (id, addresses) = ("carol".to_owned(), [(CHAIN, address(CAROL))].into());
            let carol = NewAccount { id, identity_id: None, kind: AccountType::Segregated, addresses };
            registry::add_accounts(&self.db, &[carol], landfall::time::Timestamp::EPOCH).await.unwrap();
        }
        Ok(transfers.iter().map(|leg| Payer { sender: leg.sender, rule: SenderRule::Instruction }).collect())
    }
}

impl AddressSource for Changed {
    fn search(&self) -> Search {
        self.chain.search()
    }

    async fn candidates(&self, range: RangeInclusive<u64>, watched: Watched<'_>) -> Result<Found, SourceError> {
        self.chain.candidates(range, watched).await
    }

    async fn account_states(&self, addresses: &[Address], at: &BlockRef) -> Result<Vec<AccountState>, SourceError> {
        self.chain.account_states(addresses, at).await
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
    let source = Changed::new(&world, whole);
    let job = Job { from: 1, to: Some(10), proof: ReadProof::Full, scope: Scope::All, dry_run: false };
    let mut backfill = Backfill::begin(source.watcher(1), job).await.unwrap();
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
    let source = Changed::new(&world, move |_, asked, mut headers| {
        headers.retain(|header| !hidden(header.block.number, asked));
        headers
    });
    let mut watcher = source.watcher(5);
    for _ in 0..3 {
        let error = watcher.tick(world.now()).await.unwrap_err();
        assert!(error.may_pass(), "{error}");
        assert_eq!(cursor(&world).await, None);
    }
    let mut watcher = Changed::new(&world, whole).watcher(5);
    while !watcher.tick(world.now()).await.unwrap().caught_up {}
    assert_eq!(world.deposits().await.len(), 1);
    world.abandon();
}

#[tokio::test]
async fn the_block_to_start_above_is_named_by_the_one_that_stands_on_it() {
    let world = paying_at_5().await;
    // It is left out where it is asked for first.
    let source = Changed::new(&world, |times, _, headers| if times == 0 { Vec::new() } else { headers });
    let mut watcher = source.watcher(5);
    watcher.tick(world.now()).await.unwrap();
    assert_eq!(world.deposits().await.len(), 1);
    world.abandon();
}
