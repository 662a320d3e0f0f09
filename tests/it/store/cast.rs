//! What the tests share: one cast of accounts, deposits and blocks, and short words for what a test does to a store.
//!
//! What is looked up behind the store's back is looked up with [`rows`], with SQL of the test's own.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use landfall::account::{AccountType, NewAccount};
use landfall::deposit::DepositStatus::Pending;
use landfall::deposit::{Deposit, DepositId, Leg};
use landfall::event::Event;
use landfall::store::accounts::{AddAccountError, WatchLists};
use landfall::store::cursors::{self, Cursor};
use landfall::store::deliveries::{Claim, Claimed, Queue};
use landfall::store::deposits::{self, DepositFilter};
use landfall::store::endpoints;
use landfall::store::events::{self, History};
use landfall::store::webhooks::{self, WebhookRow};
use landfall::store::{Connection, Db, Engine as Connected, StoreError, Tx};
use landfall::time::Timestamp;
use landfall_chain::{
    Address, AssetId, Block, BlockHash, BlockRef, Chain, Debits, Header, Lane, Proof, SenderRule, Signers, TxId,
    TxLife, TxRef, U256,
};
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, FromRow, PgConnection, SqlSafeStr};

use crate::harness::postgres::TestStore;

pub(super) const CHAIN: Chain = Chain::EthereumTestnet;
pub(super) const OTHER_CHAIN: Chain = Chain::BaseSepolia;
pub(super) const NOW: Timestamp = Timestamp(1_800_000_000_000_000);
pub(super) const LEASE: Duration = Duration::from_secs(60);

pub(super) fn address(who: u8) -> Address {
    Address::Evm([who; 20])
}

/// A PENDING deposit of alice's that differs from those of other tags in everything that makes its id.
pub(super) fn deposit(tag: u8) -> Deposit {
    let tx = TxRef { id: TxId::Evm([tag; 32]), life: TxLife::Nonce { signer: address(1), nonce: u64::from(tag) } };
    let (asset, recipient, amount) = (AssetId::Native, address(0xa1), U256::from(tag));
    let leg = Leg { chain_ref: "eip155:11155111", tx: tx.id, asset, recipient, amount, nth: 0 }.hash();
    Deposit {
        id: leg.deposit_id(),
        leg_hash: leg,
        account_id: "alice".to_owned(),
        source_account_id: None,
        chain: CHAIN,
        tx,
        asset,
        sender: address(1),
        sender_rule: SenderRule::Reported,
        recipient,
        amount,
        nth: 0,
        symbol: "ETH".to_owned(),
        decimals: 18,
        status: Pending,
        created_at: NOW,
        confirmed_at: None,
        is_self_transfer: false,
    }
}

/// One of several blocks at `number`.
pub(super) fn block(number: u64, tag: u8) -> Block {
    let named = |number: u64| {
        let mut hash = [tag; 32];
        hash[..8].copy_from_slice(&number.to_be_bytes());
        BlockRef { number, hash: BlockHash(hash) }
    };
    let header = Header { block: named(number), parent: named(number.saturating_sub(1)), time_secs: 12 * number };
    Block {
        header,
        txs: Vec::new(),
        transfers: Vec::new(),
        debits: Debits::ByLegs,
        unattributed: Vec::new(),
        fees: Vec::new(),
        marks: Vec::new(),
        rejected: Vec::new(),
        fee_recipient: None,
        proof: Proof::Roots,
        signers: Signers::default(),
        inside: None,
    }
}

pub(super) fn account(id: &str, addresses: &[(Chain, Address)]) -> NewAccount {
    let addresses = addresses.iter().copied().collect();
    NewAccount { id: id.to_owned(), identity_id: None, kind: AccountType::Segregated, addresses }
}

/// Does `work` in a transaction of its own.
pub(super) async fn write<T>(store: &TestStore, work: impl AsyncFnOnce(&mut Tx) -> T) -> T {
    let mut tx = store.db.begin().await.unwrap();
    let done = work(&mut tx).await;
    tx.commit().await.unwrap();
    done
}

/// Adds an account; all or nothing.
pub(super) async fn add(store: &TestStore, account: &NewAccount) -> Result<(), AddAccountError> {
    let chains = account.addresses.iter().map(|(chain, _)| *chain).collect();
    let mut tx = store.db.begin().await?;
    let mut lists = WatchLists::lock(&mut tx, &chains).await?;
    lists.add(&mut tx, account, NOW).await?;
    lists.publish(&mut tx).await?;
    Ok(tx.commit().await?)
}

/// Alice, watched on the chain.
pub(super) async fn prepare(store: &TestStore) {
    add(store, &account("alice", &[(CHAIN, address(0xa1))])).await.unwrap();
}

pub(super) async fn insert(store: &TestStore, deposit: Deposit) -> Deposit {
    prepare(store).await;
    write(store, async |tx| deposits::insert(tx, &deposit).await.unwrap()).await;
    deposit
}

pub(super) async fn include(store: &TestStore, deposit: &Deposit, block: &Block) {
    write(store, async |tx| deposits::include(tx, deposit, &block.header.block, Lane::Block).await.unwrap()).await;
}

pub(super) async fn append(store: &TestStore, event: &Event) -> Result<(), StoreError> {
    let mut tx = store.db.begin().await?;
    let history = History::of(&mut tx, event.deposit_id).await?;
    events::append(&mut tx, event, &history, NOW).await?;
    tx.commit().await
}

pub(super) async fn connect(store: &TestStore, blocks: &[Block]) {
    write(store, async |tx| {
        Cursor::lock(tx, CHAIN).await.unwrap();
        for block in blocks {
            cursors::connect(tx, CHAIN, block, true).await.unwrap();
        }
    })
    .await;
}

pub(super) fn webhook(id: &str) -> WebhookRow {
    WebhookRow {
        id: id.to_owned(),
        url: format!("https://{id}.example/"),
        label: String::new(),
        allowed_networks: landfall::webhook::AllowedNetworks::default(),
        signing_key_id: format!("key-of-{id}"),
        signing_key: "whsec_AAAA".to_owned(),
    }
}

pub(super) async fn register(store: &TestStore, id: &str) {
    write(store, async |tx| webhooks::insert(tx, &webhook(id), NOW).await.unwrap()).await;
}

/// One event for one webhook, claimed at [`NOW`].
pub(super) async fn claimed_once(store: &TestStore) -> Claimed {
    let deposit = insert(store, deposit(1)).await;
    register(store, "hook").await;
    append(store, &Event::entered(&deposit, 0)).await.unwrap();
    claim(store, NOW, 9).await.remove(0)
}

/// Leases at most `limit` at each endpoint, as the delivery does.
pub(super) async fn claim(store: &TestStore, now: Timestamp, limit: u32) -> Vec<Claimed> {
    write(store, async |tx| claim_in(tx, now, limit).await).await
}

pub(super) async fn claim_in(tx: &mut Tx, now: Timestamp, limit: u32) -> Vec<Claimed> {
    static OWNER: AtomicI64 = AtomicI64::new(1);
    let claim = Claim { owner: OWNER.fetch_add(1, Ordering::Relaxed), now, lease_until: now.plus(LEASE) };
    for endpoint in endpoints::busy(tx, now).await.unwrap() {
        let mut left = limit;
        for queue in [Queue::Lapsed, Queue::Waiting, Queue::Again, Queue::First] {
            while left > 0 {
                let taken = claim.take(tx, &endpoint.id, queue, left).await.unwrap();
                left -= taken.count();
                if taken.aside == 0 {
                    break;
                }
            }
        }
    }
    claim.taken(tx).await.unwrap()
}

pub(super) async fn cursor(store: &TestStore) -> Cursor {
    Cursor::load(&mut store.db.read().await.unwrap(), CHAIN).await.unwrap()
}

pub(super) async fn canonical(store: &TestStore, from: u64, to: u64) -> Vec<BlockRef> {
    cursors::canonical_in(&mut store.db.read().await.unwrap(), CHAIN, from, to).await.unwrap()
}

pub(super) async fn list(store: &TestStore, filter: &DepositFilter, limit: u32) -> Vec<Deposit> {
    deposits::list(&mut store.db.read().await.unwrap(), filter, limit).await.unwrap()
}

pub(super) async fn settleable(store: &TestStore, through: u64, limit: u32) -> Vec<(u64, DepositId)> {
    let mut reader = store.db.read().await.unwrap();
    let settleable = deposits::settleable(&mut reader, CHAIN, (0, through), limit).await.unwrap();
    let found = settleable.into_iter().map(|found| {
        assert_eq!(found.block, block(found.block.number, 1).header.block);
        (found.block.number, found.deposit.id)
    });
    found.collect()
}

pub(super) async fn missing(store: &TestStore, through: u64, limit: u32) -> Vec<DepositId> {
    let mut reader = store.db.read().await.unwrap();
    let missing = deposits::missing(&mut reader, CHAIN, Lane::Block, through, limit).await.unwrap();
    missing.into_iter().map(|missing| missing.deposit.id).collect()
}

/// Reads with a text of the test's own.
pub(super) async fn rows<R>(db: &Db, text: &str) -> Vec<R>
where
    R: for<'r> FromRow<'r, PgRow> + for<'r> FromRow<'r, SqliteRow> + Send + Unpin,
{
    let text = AssertSqlSafe(text.to_owned());
    match db.read().await.unwrap().engine() {
        Connected::Postgres(connection) => sqlx::query_as(text).fetch_all(connection).await.unwrap(),
        Connected::Sqlite(connection) => sqlx::query_as(text).fetch_all(connection).await.unwrap(),
    }
}

/// Writes with a text of the test's own.
pub(super) async fn run(db: &Db, text: impl SqlSafeStr) {
    let mut tx = db.begin().await.unwrap();
    match tx.engine() {
        Connected::Postgres(connection) => drop(sqlx::query(text).execute(connection).await.unwrap()),
        Connected::Sqlite(connection) => drop(sqlx::query(text).execute(connection).await.unwrap()),
    }
    tx.commit().await.unwrap();
}

/// What is read from here on: rows of a table as PostgreSQL counts them, steps of SQLite.
pub(super) struct Reads {
    table: &'static str,
    /// What PostgreSQL still counts of what its connection read before.
    before: u64,
    steps: Arc<AtomicU64>,
}

impl Reads {
    pub(super) async fn begin(tx: &mut Tx, table: &'static str) -> Self {
        let (mut before, steps) = (0, Arc::new(AtomicU64::new(0)));
        match tx.engine() {
            Connected::Postgres(connection) => before = rows_read(connection, table).await,
            Connected::Sqlite(connection) => {
                let counted = Arc::clone(&steps);
                let count = move || counted.fetch_add(1, Ordering::Relaxed) < u64::MAX;
                connection.lock_handle().await.unwrap().set_progress_handler(1, count);
            }
        }
        Self { table, before, steps }
    }

    /// Asserts that no more was read since: so many rows, or so many steps.
    pub(super) async fn assert_few(&self, tx: &mut Tx, rows_max: u64, steps_max: u64, what: &str) {
        let (read, most, of) = match tx.engine() {
            Connected::Postgres(connection) => {
                (rows_read(connection, self.table).await - self.before, rows_max, self.table)
            }
            Connected::Sqlite(_) => (self.steps.load(Ordering::Relaxed), steps_max, "steps of SQLite"),
        };
        println!("{what}: {read} {of}");
        assert!(read <= most, "{what}: {read} {of}");
    }
}

async fn rows_read(connection: &mut PgConnection, table: &str) -> u64 {
    let text = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = $1";
    let (read,): (i64,) = sqlx::query_as(text).bind(table).fetch_one(connection).await.unwrap();
    u64::try_from(read).unwrap()
}
