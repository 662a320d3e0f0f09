//! The store's conformance suite: the same tests on SQLite and on PostgreSQL, a fresh database each.
//!
//! The tests are written once and listed in `on_both_engines!`, which makes one of each engine from each; one that is
//! not listed does not compile. What is looked up behind the store's back is looked up with SQL of the test's own.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use landfall::account::{AccountType, NewAccount};
use landfall::deposit::DepositStatus::{Confirmed, Failed, Pending};
use landfall::deposit::{Deposit, DepositId, Leg, LegHash};
use landfall::event::Event;
use landfall::store::accounts::{self, AddAccountError, WatchLists};
use landfall::store::cursors::{self, Cursor};
use landfall::store::deliveries::{self, Claimed};
use landfall::store::deposits::{self, DepositFilter};
use landfall::store::events::{self, History};
use landfall::store::keys::{self, KeyRow};
use landfall::store::status::{self, ChainStatus, QueueStatus};
use landfall::store::webhooks::{self, WebhookRow};
use landfall::store::{Connection, Db, Engine as Connected, MIGRATIONS, OpenError, StoreError, StoreUrl, Tx};
use landfall::time::Timestamp;
use landfall_chain::{
    Address, AssetId, Block, BlockHash, BlockRef, Chain, EndpointState, EndpointStatus, Header, Proof, TxId, TxLife,
    TxRef, U256,
};
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Executor as _, FromRow, SqlSafeStr as _, Statement as _};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::postgres::{ENGINES, Engine, TestStore, folder};

const CHAIN: Chain = Chain::EthereumTestnet;
const OTHER_CHAIN: Chain = Chain::BaseSepolia;
const NOW: Timestamp = Timestamp(1_800_000_000_000_000);
const LEASE: Duration = Duration::from_secs(60);
/// What engines compatible with PostgreSQL lack, what SQLite lacks, and what reads clocks or dice in the database.
const NOT_PORTABLE: [&str; 23] = [
    "ADVISORY",
    "LISTEN",
    "NOTIFY",
    "SERIAL",
    "BIGSERIAL",
    "AUTOINCREMENT",
    "TIMESTAMP",
    "TIMESTAMPTZ",
    "JSON",
    "JSONB",
    "NUMERIC",
    "INTEGER",
    "UUID",
    "UNNEST",
    "ANY",
    "ILIKE",
    "ROWID",
    "PRAGMA",
    "TRIGGER",
    "FUNCTION",
    "NOW",
    "CURRENT_TIMESTAMP",
    "RANDOM",
];

macro_rules! on_both_engines {
    ($($test:ident),+ $(,)?) => {
        mod sqlite {
            use super::{Engine, TestStore};
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(TestStore::fresh(Engine::Sqlite).await).await;
                }
            )+
        }

        mod postgres {
            use super::{Engine, TestStore};
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test(TestStore::fresh(Engine::Postgres).await).await;
                }
            )+
        }
    };
}

on_both_engines!(
    every_statement_can_be_prepared_and_takes_the_parameters_it_is_given,
    migrating_again_changes_nothing,
    two_who_migrate_at_once_both_succeed,
    an_older_or_newer_schema_is_told_and_not_used,
    a_cursor_is_placed_once,
    a_cursor_moves_only_from_where_it_stands,
    an_older_final_block_changes_nothing,
    disconnecting_a_block_deletes_nothing_and_it_can_be_connected_again,
    two_canonical_blocks_at_one_number_are_refused,
    pruning_keeps_blocks_in_which_a_deposit_was_seen,
    every_field_of_a_deposit_survives,
    a_leg_is_refused_the_second_time,
    a_status_changes_only_from_what_it_was,
    a_confirmed_deposit_stays_confirmed,
    a_confirmed_deposit_without_its_time_is_refused,
    pending_deposits_in_canonical_blocks_are_settleable_up_to_a_height,
    a_pending_deposit_in_no_canonical_block_is_missing_once_its_height_is_final,
    what_is_missing_longest_is_looked_for_first_and_what_was_never_looked_for_before_all,
    confirmed_amounts_are_those_of_one_transaction_asset_and_recipient,
    confirmed_deposits_above_a_block_are_counted,
    deposits_are_listed_by_each_filter_with_both_bounds_included,
    deposits_made_at_one_moment_are_listed_page_by_page_without_loss,
    an_event_is_refused_the_second_time,
    events_of_a_deposit_are_numbered_in_order_and_their_entries_counted,
    an_event_is_delivered_to_each_active_webhook_of_its_moment,
    a_rolled_back_event_leaves_no_delivery,
    a_claim_takes_what_is_due_in_order_and_no_more_than_its_limit,
    a_claim_keeps_its_limit_when_the_planner_believes_that_there_is_one_delivery,
    a_later_event_of_a_deposit_waits_for_the_earlier_at_the_same_webhook_only,
    a_lease_that_ends_gives_the_delivery_to_the_next,
    a_late_acknowledgement_changes_nothing,
    two_who_claim_at_once_never_get_the_same_delivery,
    an_address_is_watched_from_the_block_behind_the_cursor,
    adding_the_same_again_changes_nothing,
    what_contradicts_the_record_is_refused_with_what_is_recorded,
    two_who_add_on_two_chains_do_not_wait_for_each_other_for_ever,
    two_who_add_one_new_account_on_different_chains_both_succeed,
    a_rolled_back_address_leaves_the_watch_list_unchanged,
    keys_are_found_by_id_and_no_more_than_the_most_are_taken,
    a_watchers_word_replaces_its_former_one,
    the_queue_tells_what_is_undelivered_since_when,
    a_transaction_that_is_dropped_is_rolled_back,
    a_transaction_that_is_cut_off_anywhere_leaves_all_or_nothing,
);

// The texts.

async fn every_statement_can_be_prepared_and_takes_the_parameters_it_is_given(store: TestStore) {
    let mut reader = store.db.read().await.unwrap();
    for sql in landfall::store::statements() {
        let count = match reader.engine() {
            Connected::Postgres(connection) => {
                let statement = connection.prepare(sql.postgres.into_sql_str()).await;
                let statement = statement.unwrap_or_else(|error| panic!("{}: {error}\n{}", sql.name, sql.postgres));
                statement.parameters().map(|parameters| parameters.either(<[_]>::len, |count| count))
            }
            Connected::Sqlite(connection) => {
                let statement = connection.prepare(sql.sqlite.into_sql_str()).await;
                let statement = statement.unwrap_or_else(|error| panic!("{}: {error}\n{}", sql.name, sql.sqlite));
                statement.parameters().map(|parameters| parameters.either(<[_]>::len, |count| count))
            }
        };
        assert_eq!(count, Some(sql.params()), "{} has gaps between its parameters: {}", sql.name, sql.postgres);
    }
}

#[test]
fn a_statement_has_a_name_of_its_own() {
    let mut texts: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for sql in landfall::store::statements() {
        texts.entry(sql.name).or_default().push(sql.postgres);
    }
    texts.retain(|_, texts| texts.len() > 1);
    assert!(texts.is_empty(), "an error that names one of these does not say which failed: {texts:#?}");
}

#[test]
fn statements_keep_to_the_portable_subset() {
    for sql in landfall::store::statements() {
        for text in [sql.postgres, sql.sqlite] {
            let words = words(text);
            for word in NOT_PORTABLE {
                assert!(!words.contains(word), "{} says {word}, which is not portable: {text}", sql.name);
            }
            let ordered = !words.contains("LIMIT") || text.contains("ORDER BY");
            assert!(ordered, "{} takes some rows in any order: {text}", sql.name);
            let nested = ["AS (INSERT", "AS (UPDATE", "AS (DELETE"].into_iter().find(|write| text.contains(write));
            assert_eq!(nested, None, "{} writes inside a WITH: {text}", sql.name);
            assert!(!text.contains('?'), "{} has a parameter without a number: {text}", sql.name);
        }
        assert!(!sql.sqlite.contains("FOR UPDATE"), "{}: FOR UPDATE belongs in brackets: {}", sql.name, sql.sqlite);
        let destructive = words(sql.postgres).contains("DELETE") && !sql.postgres.contains("WHERE");
        assert!(!destructive, "{} deletes everything: {}", sql.name, sql.postgres);
    }
    for (version, _, text) in MIGRATIONS {
        let code: String = text.lines().filter(|line| !line.trim_start().starts_with("--")).collect();
        for word in NOT_PORTABLE {
            assert!(!words(&code).contains(word), "migration {version} says {word}, which is not portable");
        }
    }
}

fn words(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(str::to_ascii_uppercase).collect()
}

// The schema.

async fn migrating_again_changes_nothing(store: TestStore) {
    let before: Vec<(i64, Vec<u8>)> = rows(&store.db, "SELECT version, checksum FROM _sqlx_migrations").await;
    assert_eq!(before.len(), MIGRATIONS.len());
    store.db.migrate().await.unwrap();
    store.db.check_schema().await.unwrap();
    let again = Db::open(&store.url.parse().unwrap()).await.unwrap();
    again.migrate().await.unwrap();
    assert_eq!(rows::<(i64, Vec<u8>)>(&again, "SELECT version, checksum FROM _sqlx_migrations").await, before);
}

async fn an_older_or_newer_schema_is_told_and_not_used(store: TestStore) {
    let expected = MIGRATIONS.last().unwrap().0;
    run(&store.db, "UPDATE _sqlx_migrations SET version = version + 1000").await;
    let error = store.db.check_schema().await.unwrap_err();
    let newer = format!("the store's schema is version {}, this program needs version {expected}", expected + 1000);
    assert!(error.to_string().starts_with(&newer), "{error}");
    assert!(!error.may_pass());
    assert!(matches!(store.db.migrate().await, Err(OpenError::Migrate(_))), "a newer schema is not written to");

    run(&store.db, "DELETE FROM _sqlx_migrations").await;
    let error = store.db.check_schema().await.unwrap_err().to_string();
    let none =
        format!("the store's schema is version none, this program needs version {expected}: run `landfall migrate`");
    assert_eq!(error, none);
}

async fn two_who_migrate_at_once_both_succeed(store: TestStore) {
    let folder = folder();
    let url = match &store.db {
        Db::Postgres(_) => {
            run(&store.db, "DROP SCHEMA public CASCADE").await;
            run(&store.db, "CREATE SCHEMA public").await;
            store.url.clone()
        }
        Db::Sqlite { .. } => format!("sqlite:{}", folder.path().join("landfall.db").display()),
    };
    let mut migrating = JoinSet::new();
    let start = Arc::new(Barrier::new(2));
    for _ in 0..2 {
        let (db, start) = (Db::open(&url.parse().unwrap()).await.unwrap(), Arc::clone(&start));
        migrating.spawn(async move {
            start.wait().await;
            db.migrate().await?;
            db.check_schema().await
        });
    }
    for migrated in migrating.join_all().await {
        assert!(migrated.is_ok(), "two instances that start together: {migrated:?}");
    }
}

#[tokio::test]
async fn both_engines_have_the_same_tables_columns_and_keys() {
    let [sqlite, postgres] = [TestStore::fresh(ENGINES[0]).await, TestStore::fresh(ENGINES[1]).await];
    let columns = "SELECT t.name, c.name, c.type, CASE WHEN c.\"notnull\" THEN 'NOT NULL' ELSE 'NULL' END \
                   FROM sqlite_master AS t JOIN pragma_table_info(t.name) AS c \
                   WHERE t.type = 'table' AND t.name NOT LIKE '\\_sqlx%' ESCAPE '\\'";
    let columns: BTreeSet<[String; 4]> = rows(&sqlite.db, columns).await.into_iter().map(four).collect();
    let expected = "SELECT CAST(table_name AS TEXT), CAST(column_name AS TEXT), \
                    REPLACE(UPPER(CAST(data_type AS TEXT)), 'BYTEA', 'BLOB'), \
                    CASE is_nullable WHEN 'NO' THEN 'NOT NULL' ELSE 'NULL' END FROM information_schema.columns \
                    WHERE table_schema = 'public' AND table_name NOT LIKE '\\_sqlx%'";
    let expected: BTreeSet<[String; 4]> = rows(&postgres.db, expected).await.into_iter().map(four).collect();
    assert_same("column", &columns, &expected);
    let types: BTreeSet<&str> = columns.iter().map(|[_, _, kind, _]| kind.as_str()).collect();
    assert_eq!(types, ["BIGINT", "BLOB", "BOOLEAN", "TEXT"].into(), "the portable types");

    let references = "SELECT t.name, f.\"from\", f.\"table\" FROM sqlite_master AS t \
                      JOIN pragma_foreign_key_list(t.name) AS f WHERE t.type = 'table'";
    let references: BTreeSet<(String, String, String)> = rows(&sqlite.db, references).await.into_iter().collect();
    let expected = "SELECT CAST(CAST(f.conrelid AS regclass) AS TEXT), CAST(c.attname AS TEXT), \
                    CAST(CAST(f.confrelid AS regclass) AS TEXT) FROM pg_constraint AS f \
                    JOIN pg_attribute AS c ON c.attrelid = f.conrelid AND c.attnum = f.conkey[1] WHERE f.contype = 'f'";
    let expected: BTreeSet<(String, String, String)> = rows(&postgres.db, expected).await.into_iter().collect();
    assert_same("reference", &references, &expected);
}

#[tokio::test]
async fn both_engines_have_the_same_indexes() {
    let [sqlite, postgres] = [TestStore::fresh(ENGINES[0]).await, TestStore::fresh(ENGINES[1]).await];
    type Row = (String, String, bool, bool, String, bool);
    let text = "SELECT t.name, i.name, i.\"unique\" <> 0, i.partial <> 0, c.name, c.\"desc\" <> 0 FROM sqlite_master AS t \
                JOIN pragma_index_list(t.name) AS i JOIN pragma_index_xinfo(i.name) AS c \
                WHERE t.type = 'table' AND c.\"key\" = 1 AND t.name NOT LIKE '\\_sqlx%' ESCAPE '\\' ORDER BY i.name, c.seqno";
    let mut indexes: BTreeMap<(String, String, bool, bool), Vec<String>> = BTreeMap::new();
    for (table, name, unique, partial, column, falling) in rows::<Row>(&sqlite.db, text).await {
        let column = if falling { format!("{column} DESC") } else { column };
        indexes.entry((table, name, unique, partial)).or_default().push(column);
    }
    let indexes: BTreeSet<_> = indexes
        .into_iter()
        .map(|((table, _, unique, partial), columns)| (table, unique, partial, columns.join(", ")))
        .collect();

    let text = "SELECT CAST(tablename AS TEXT), indexdef FROM pg_indexes \
                WHERE schemaname = 'public' AND tablename NOT LIKE '\\_sqlx%'";
    let expected = rows::<(String, String)>(&postgres.db, text).await.into_iter().map(|(table, text)| {
        let (head, rest) = text.split_once(" USING btree (").unwrap();
        let (columns, rest) = rest.split_once(')').unwrap();
        (table, head.starts_with("CREATE UNIQUE"), rest.starts_with(" WHERE"), columns.replace('"', ""))
    });
    assert_same("index", &indexes, &expected.collect());
}

fn four((a, b, c, d): (String, String, String, String)) -> [String; 4] {
    [a, b, c, d]
}

fn assert_same<T: Ord + std::fmt::Debug>(what: &str, sqlite: &BTreeSet<T>, postgres: &BTreeSet<T>) {
    assert!(!sqlite.is_empty(), "no {what} was found");
    let only = |these: &BTreeSet<T>, those: &BTreeSet<T>| format!("{:#?}", these.difference(those).collect::<Vec<_>>());
    let (only_sqlite, only_postgres) = (only(sqlite, postgres), only(postgres, sqlite));
    assert!(sqlite == postgres, "{what} on SQLite only: {only_sqlite}\n{what} on PostgreSQL only: {only_postgres}");
}

// The cursor and its blocks.

async fn a_cursor_is_placed_once(store: TestStore) {
    assert_eq!(cursor(&store).await, Cursor { at: None, finalized: None, watch_seq: 0 });
    let (first, second) = (block(5, 1).header.block, block(6, 1).header.block);
    write(&store, async |tx| {
        Cursor::lock(tx, CHAIN).await.unwrap();
        Cursor::place(tx, CHAIN, &first).await.unwrap();
        let refused = Cursor::place(tx, CHAIN, &second).await.unwrap_err();
        assert!(matches!(refused, StoreError::Moved { chain: CHAIN }), "{refused:?}");
        assert!(refused.may_pass());
    })
    .await;
    assert_eq!(cursor(&store).await.at, Some(first));
    let other = Cursor::load(&mut store.db.read().await.unwrap(), OTHER_CHAIN).await.unwrap();
    assert_eq!(other.at, None, "another chain has a cursor of its own");
}

async fn a_cursor_moves_only_from_where_it_stands(store: TestStore) {
    let [old, stale, new, back] = [(5, 1), (5, 2), (6, 1), (4, 1)].map(|(number, tag)| block(number, tag).header.block);
    write(&store, async |tx| {
        Cursor::lock(tx, CHAIN).await.unwrap();
        Cursor::place(tx, CHAIN, &old).await.unwrap();
        for wrong in [&stale, &new] {
            let refused = Cursor::shift(tx, CHAIN, wrong, &new).await;
            assert!(matches!(refused, Err(StoreError::Moved { chain: CHAIN })), "{refused:?}");
        }
    })
    .await;
    assert_eq!(cursor(&store).await.at, Some(old), "nothing has changed");
    write(&store, async |tx| Cursor::shift(tx, CHAIN, &old, &new).await.unwrap()).await;
    assert_eq!(cursor(&store).await.at, Some(new));
    write(&store, async |tx| Cursor::shift(tx, CHAIN, &new, &back).await.unwrap()).await;
    assert_eq!(cursor(&store).await.at, Some(back), "a reorg takes it back");
}

async fn an_older_final_block_changes_nothing(store: TestStore) {
    let newer = block(10, 1).header.block;
    write(&store, async |tx| {
        Cursor::lock(tx, CHAIN).await.unwrap();
        Cursor::finalize(tx, CHAIN, &newer).await.unwrap();
        for older in [block(9, 1), block(10, 2)] {
            Cursor::finalize(tx, CHAIN, &older.header.block).await.unwrap();
        }
    })
    .await;
    assert_eq!(cursor(&store).await.finalized, Some(newer), "also not another block at the same number");
    let newest = block(11, 2).header.block;
    write(&store, async |tx| Cursor::finalize(tx, CHAIN, &newest).await.unwrap()).await;
    assert_eq!(cursor(&store).await.finalized, Some(newest));
}

async fn disconnecting_a_block_deletes_nothing_and_it_can_be_connected_again(store: TestStore) {
    connect(&store, &[block(1, 1), block(2, 1), block(3, 1)]).await;
    let gone = write(&store, async |tx| cursors::disconnect(tx, CHAIN, &block(1, 1).header.block).await.unwrap()).await;
    assert_eq!(gone, 2, "the fork point itself stays");
    assert_eq!(canonical(&store, 0, 9).await, [block(1, 1).header.block]);
    assert_eq!(rows::<(i64,)>(&store.db, "SELECT COUNT(*) FROM blocks").await, [(3,)]);
    let again = write(&store, async |tx| cursors::disconnect(tx, CHAIN, &block(1, 1).header.block).await.unwrap());
    assert_eq!(again.await, 0);

    connect(&store, &[block(2, 2), block(3, 1)]).await;
    assert_eq!(canonical(&store, 0, 9).await, [block(3, 1), block(2, 2), block(1, 1)].map(|block| block.header.block));
    assert_eq!(canonical(&store, 2, 2).await, [block(2, 2).header.block], "both bounds are included");
    let mut reader = store.db.read().await.unwrap();
    assert_eq!(cursors::canonical_at(&mut reader, CHAIN, 2).await.unwrap(), Some(block(2, 2).header.block.hash));
    assert_eq!(cursors::canonical_at(&mut reader, CHAIN, 4).await.unwrap(), None);
    assert_eq!(cursors::oldest_from(&mut reader, CHAIN, 0).await.unwrap(), Some(1));
    assert_eq!(cursors::oldest_from(&mut reader, CHAIN, 2).await.unwrap(), Some(2));
    assert_eq!(cursors::oldest_from(&mut reader, OTHER_CHAIN, 0).await.unwrap(), None);
}

async fn two_canonical_blocks_at_one_number_are_refused(store: TestStore) {
    connect(&store, &[block(1, 1)]).await;
    let mut tx = store.db.begin().await.unwrap();
    let refused = cursors::connect(&mut tx, CHAIN, &block(1, 2)).await.unwrap_err();
    assert!(matches!(refused, StoreError::Failed { .. }) && !refused.may_pass(), "{refused:?}");
    drop(tx);
    assert_eq!(canonical(&store, 0, 9).await, [block(1, 1).header.block]);
}

async fn pruning_keeps_blocks_in_which_a_deposit_was_seen(store: TestStore) {
    connect(&store, &[1, 2, 3, 4].map(|number| block(number, 1))).await;
    let seen = insert(&store, deposit(1)).await;
    include(&store, &seen, &block(2, 1)).await;
    let pruned = write(&store, async |tx| cursors::prune(tx, CHAIN, 0, 4).await.unwrap()).await;
    assert_eq!(pruned, 2, "1 and 3: 2 has a deposit, 4 is not below 4");
    assert_eq!(canonical(&store, 0, 9).await, [block(4, 1), block(2, 1)].map(|block| block.header.block));
}

// Deposits.

async fn every_field_of_a_deposit_survives(store: TestStore) {
    let evm = Deposit { source_account_id: Some("alice".to_owned()), ..deposit(1) };
    let solana = Deposit {
        chain: Chain::SolanaMainnet,
        tx: TxRef { id: TxId::Solana([9; 64]), life: evm.tx.life },
        asset: AssetId::Token(Address::Solana([7; 32])),
        sender: Address::Solana([0; 32]),
        recipient: Address::Solana([0xff; 32]),
        symbol: "ÜSD\u{20bf}".to_owned(),
        ..deposit(2)
    };
    let extreme = Deposit {
        asset: AssetId::Token(address(3)),
        tx: TxRef { life: TxLife::Nonce { signer: address(9), nonce: u64::MAX }, ..evm.tx },
        amount: U256::MAX,
        nth: u32::MAX,
        decimals: u8::MAX,
        created_at: Timestamp(i64::MAX),
        ..deposit(3)
    };
    let least = Deposit { amount: U256::from(1), nth: 0, decimals: 0, created_at: Timestamp(-1), ..deposit(4) };
    prepare(&store).await;
    let mut reader = store.db.read().await.unwrap();
    for given in [evm, solana, extreme, least] {
        write(&store, async |tx| deposits::insert(tx, &given).await.unwrap()).await;
        assert_eq!(deposits::by_id(&mut reader, given.id).await.unwrap().as_ref(), Some(&given));
        assert_eq!(deposits::by_leg(&mut reader, &given.leg_hash).await.unwrap(), Some(given));
    }
    let confirmed = deposit(1).confirm(NOW).unwrap();
    write(&store, async |tx| deposits::set_status(tx, &confirmed, Pending).await.unwrap()).await;
    let read = deposits::by_id(&mut reader, confirmed.id).await.unwrap().unwrap();
    assert_eq!((read.status, read.confirmed_at), (Confirmed, Some(NOW)));
    assert_eq!(deposits::by_id(&mut reader, deposit(5).id).await.unwrap(), None);
    assert_eq!(deposits::by_leg(&mut reader, &LegHash([5; 32])).await.unwrap(), None);
    let texts: Vec<(String,)> = rows(&store.db, "SELECT amount_text FROM deposits ORDER BY amount DESC").await;
    assert_eq!(texts[0].0, U256::MAX.to_string(), "for people, and the bytes order as the numbers do");
    assert_eq!(texts.last().unwrap().0, "1");
}

async fn a_leg_is_refused_the_second_time(store: TestStore) {
    let first = insert(&store, deposit(1)).await;
    let same_id = Deposit { leg_hash: LegHash([9; 32]), ..first.clone() };
    let same_leg = Deposit { id: deposit(2).id, ..first.clone() };
    for second in [first.clone(), same_id, same_leg] {
        let mut tx = store.db.begin().await.unwrap();
        let refused = deposits::insert(&mut tx, &second).await.unwrap_err();
        assert!(matches!(refused, StoreError::Failed { .. }) && !refused.may_pass(), "{refused:?}");
    }
    assert_eq!(list(&store, &DepositFilter::default(), 9).await, [first]);
}

async fn a_status_changes_only_from_what_it_was(store: TestStore) {
    let pending = insert(&store, deposit(1)).await;
    let confirmed = pending.clone().confirm(NOW).unwrap();
    let failed = pending.clone().fail().unwrap();
    write(&store, async |tx| {
        let refused = deposits::set_status(tx, &confirmed, Failed).await.unwrap_err();
        assert!(matches!(refused, StoreError::RowsAffected { expected: 1, actual: 0, .. }), "{refused:?}");
        deposits::set_status(tx, &failed, Pending).await.unwrap();
        let refused = deposits::set_status(tx, &confirmed, Pending).await.unwrap_err();
        assert!(matches!(refused, StoreError::RowsAffected { expected: 1, actual: 0, .. }), "{refused:?}");
        let revived = failed.clone().revive().unwrap();
        deposits::set_status(tx, &revived, Failed).await.unwrap();
        let unknown = deposit(2).confirm(NOW).unwrap();
        assert!(deposits::set_status(tx, &unknown, Pending).await.is_err());
    })
    .await;
    assert_eq!(list(&store, &DepositFilter::default(), 9).await, [pending]);
}

async fn a_confirmed_deposit_stays_confirmed(store: TestStore) {
    let pending = insert(&store, deposit(1)).await;
    let confirmed = pending.clone().confirm(NOW).unwrap();
    write(&store, async |tx| deposits::set_status(tx, &confirmed, Pending).await.unwrap()).await;
    let failed = Deposit { status: Failed, ..pending.clone() };
    let later = Deposit { confirmed_at: Some(NOW.plus(LEASE)), ..confirmed.clone() };
    for to in [&pending, &failed, &later] {
        for from in [Pending, Failed, Confirmed] {
            let mut tx = store.db.begin().await.unwrap();
            let changed = deposits::set_status(&mut tx, to, from).await;
            assert!(changed.is_err(), "CONFIRMED at {NOW} became {} at {:?}", to.status, to.confirmed_at);
        }
    }
    assert_eq!(list(&store, &DepositFilter::default(), 9).await, [confirmed]);
}

async fn a_confirmed_deposit_without_its_time_is_refused(store: TestStore) {
    let pending = insert(&store, deposit(1)).await;
    let without = Deposit { status: Confirmed, ..pending.clone() };
    let too_early = Deposit { confirmed_at: Some(NOW), ..pending.clone() };
    for contradiction in [without, too_early] {
        let mut tx = store.db.begin().await.unwrap();
        let refused = deposits::set_status(&mut tx, &contradiction, Pending).await;
        assert!(matches!(refused, Err(StoreError::Failed { .. })), "{refused:?}");
    }
    assert_eq!(list(&store, &DepositFilter::default(), 9).await, [pending]);
}

async fn pending_deposits_in_canonical_blocks_are_settleable_up_to_a_height(store: TestStore) {
    connect(&store, &[block(1, 1), block(2, 1), block(3, 1)]).await;
    let mut placed = Vec::new();
    for (tag, number) in [(1, 3), (2, 2), (3, 2), (4, 1), (5, 1)] {
        let deposit = insert(&store, deposit(tag)).await;
        include(&store, &deposit, &block(number, 1)).await;
        placed.push((number, deposit.id));
    }
    insert(&store, deposit(6)).await;
    let (done, lost) = (deposit(4).confirm(NOW).unwrap(), deposit(5).fail().unwrap());
    write(&store, async |tx| {
        deposits::set_status(tx, &done, Pending).await.unwrap();
        deposits::set_status(tx, &lost, Pending).await.unwrap();
    })
    .await;
    placed.retain(|(_, id)| *id != done.id && *id != lost.id);
    placed.sort_by_key(|(number, id)| (*number, id.to_string()));
    assert_eq!(settleable(&store, 3, 9).await, placed, "lowest blocks first, and none in no block");
    assert_eq!(settleable(&store, 2, 9).await, placed[..2], "the height is included");
    assert_eq!(settleable(&store, 3, 2).await, placed[..2], "no more than the limit");
    assert_eq!(settleable(&store, 1, 9).await, [], "what is CONFIRMED or FAILED is not asked for again");

    write(&store, async |tx| cursors::disconnect(tx, CHAIN, &block(2, 1).header.block).await.unwrap()).await;
    assert_eq!(settleable(&store, 3, 9).await, placed[..2], "a disconnected block is no evidence");
}

async fn a_pending_deposit_in_no_canonical_block_is_missing_once_its_height_is_final(store: TestStore) {
    connect(&store, &[block(1, 1), block(2, 1), block(3, 1)]).await;
    let orphan = insert(&store, deposit(1)).await;
    include(&store, &orphan, &block(2, 1)).await;
    let twice = insert(&store, deposit(2)).await;
    include(&store, &twice, &block(2, 1)).await;
    assert_eq!(missing(&store, 9, 9).await, [], "both are in a canonical block");

    write(&store, async |tx| cursors::disconnect(tx, CHAIN, &block(1, 1).header.block).await.unwrap()).await;
    connect(&store, &[block(2, 2), block(3, 2)]).await;
    include(&store, &twice, &block(3, 2)).await;
    assert_eq!(missing(&store, 1, 9).await, [], "block 2 is not final yet");
    assert_eq!(missing(&store, 2, 9).await, [orphan.id], "2 is final, and the other is in another block");

    write(&store, async |tx| cursors::disconnect(tx, CHAIN, &block(2, 2).header.block).await.unwrap()).await;
    assert_eq!(missing(&store, 2, 9).await, [orphan.id], "the other was seen at 3, above what is final");
    assert_eq!(BTreeSet::from_iter(missing(&store, 3, 9).await), [orphan.id, twice.id].into());
    assert_eq!(missing(&store, 3, 1).await.len(), 1, "no more than the limit");
    let mut reader = store.db.read().await.unwrap();
    for (deposit, through, expected) in [(&orphan, 1, false), (&orphan, 2, true), (&twice, 2, false), (&twice, 3, true)]
    {
        assert_eq!(deposits::is_missing(&mut reader, deposit, through).await.unwrap(), expected);
    }
    let failed = orphan.clone().fail().unwrap();
    write(&store, async |tx| deposits::set_status(tx, &failed, Pending).await.unwrap()).await;
    assert!(!deposits::is_missing(&mut reader, &orphan, 3).await.unwrap(), "FAILED is decided");
    assert_eq!(missing(&store, 3, 9).await, [twice.id]);
    assert_eq!(deposits::missing(&mut reader, OTHER_CHAIN, 3, 9).await.unwrap(), []);
}

async fn what_is_missing_longest_is_looked_for_first_and_what_was_never_looked_for_before_all(store: TestStore) {
    connect(&store, &[block(1, 1)]).await;
    let [young, old, never] = [deposit(1), deposit(2), deposit(3)];
    for deposit in [&young, &old, &never] {
        insert(&store, deposit.clone()).await;
        include(&store, deposit, &block(1, 1)).await;
    }
    write(&store, async |tx| {
        cursors::disconnect(tx, CHAIN, &block(0, 1).header.block).await.unwrap();
        deposits::set_missing_since(tx, young.id, NOW).await.unwrap();
        deposits::set_missing_since(tx, old.id, Timestamp(5)).await.unwrap();
        deposits::set_missing_since(tx, old.id, NOW).await.unwrap();
    })
    .await;
    assert_eq!(missing(&store, 1, 9).await, [never.id, old.id, young.id]);
    let mut reader = store.db.read().await.unwrap();
    let since: Vec<_> = deposits::missing(&mut reader, CHAIN, 1, 9).await.unwrap().iter().map(|m| m.since).collect();
    assert_eq!(since, [None, Some(Timestamp(5)), Some(NOW)], "the earlier time stays");

    include(&store, &old, &block(1, 1)).await;
    assert_eq!(missing(&store, 1, 9).await, {
        let mut never_looked_for = [never.id, old.id];
        never_looked_for.sort_by_key(DepositId::to_string);
        [never_looked_for[0], never_looked_for[1], young.id]
    });
}

async fn confirmed_amounts_are_those_of_one_transaction_asset_and_recipient(store: TestStore) {
    let of = deposit(1);
    let leg = |tag: u8, amount: u64| Deposit { tx: of.tx, amount: U256::from(amount), ..deposit(tag) };
    let others = [
        Deposit { asset: AssetId::Native, ..leg(4, 100) },
        Deposit { recipient: address(9), ..leg(5, 200) },
        Deposit { tx: deposit(6).tx, ..leg(6, 300) },
        Deposit { chain: OTHER_CHAIN, ..leg(7, 400) },
    ];
    let of = Deposit { asset: AssetId::Token(address(7)), ..of };
    let same = [leg(2, 5), leg(3, 7)].map(|leg| Deposit { asset: of.asset, ..leg });
    let others = others.map(|other| match other.asset {
        AssetId::Native if other.amount == U256::from(100) => other,
        _ => Deposit { asset: of.asset, ..other },
    });
    insert(&store, of.clone()).await;
    for given in same.into_iter().chain(others) {
        let confirmed = insert(&store, given).await.confirm(NOW).unwrap();
        write(&store, async |tx| deposits::set_status(tx, &confirmed, Pending).await.unwrap()).await;
    }
    let amounts = write(&store, async |tx| deposits::confirmed_of(tx, &of).await.unwrap()).await;
    assert_eq!(BTreeSet::from_iter(amounts), [U256::from(5), U256::from(7)].into(), "and not the PENDING one itself");
}

async fn confirmed_deposits_above_a_block_are_counted(store: TestStore) {
    connect(&store, &[block(1, 1), block(2, 1)]).await;
    for (tag, number, confirmed) in [(1, 1, true), (2, 2, true), (3, 2, false)] {
        let deposit = insert(&store, deposit(tag)).await;
        include(&store, &deposit, &block(number, 1)).await;
        if confirmed {
            let confirmed = deposit.confirm(NOW).unwrap();
            write(&store, async |tx| deposits::set_status(tx, &confirmed, Pending).await.unwrap()).await;
        }
    }
    let mut reader = store.db.read().await.unwrap();
    for (above, count) in [(0, 2), (1, 1), (2, 0)] {
        assert_eq!(deposits::confirmed_above(&mut reader, CHAIN, above).await.unwrap(), count, "above {above}");
    }
    assert_eq!(deposits::confirmed_above(&mut reader, OTHER_CHAIN, 0).await.unwrap(), 0);
}

async fn deposits_are_listed_by_each_filter_with_both_bounds_included(store: TestStore) {
    prepare(&store).await;
    add(&store, &account("bob", &[(CHAIN, address(0xb0))])).await.unwrap();
    let at = |tag: u8, micros: i64| Deposit { created_at: Timestamp(micros), ..deposit(tag) };
    let first = at(1, 10);
    let second = Deposit { account_id: "bob".to_owned(), ..at(2, 20) };
    let third = Deposit { chain: OTHER_CHAIN, ..at(3, 30) };
    let fourth = Deposit { symbol: "USDC".to_owned(), ..at(4, 40) };
    for deposit in [&first, &second, &third, &fourth] {
        write(&store, async |tx| deposits::insert(tx, deposit).await.unwrap()).await;
    }
    let all = DepositFilter::default();
    let between = |start: i64, end: i64| DepositFilter {
        start: Some(Timestamp(start)),
        end: Some(Timestamp(end)),
        ..DepositFilter::default()
    };
    let cases = [
        (all.clone(), vec![&fourth, &third, &second, &first]),
        (DepositFilter { account_id: Some("bob".to_owned()), ..all.clone() }, vec![&second]),
        (DepositFilter { account_id: Some("carol".to_owned()), ..all.clone() }, vec![]),
        (DepositFilter { account_id: Some("b%".to_owned()), ..all.clone() }, vec![]),
        (DepositFilter { chain: Some(OTHER_CHAIN), ..all.clone() }, vec![&third]),
        (DepositFilter { symbol: Some("USDC".to_owned()), ..all.clone() }, vec![&fourth]),
        (DepositFilter { symbol: Some("usdc".to_owned()), ..all.clone() }, vec![]),
        (between(20, 30), vec![&third, &second]),
        (between(21, 29), vec![]),
        (between(20, 20), vec![&second]),
        (between(30, 20), vec![]),
        (between(i64::MIN, i64::MAX), vec![&fourth, &third, &second, &first]),
        (DepositFilter { after: Some((Timestamp(30), third.id)), ..all.clone() }, vec![&second, &first]),
        (DepositFilter { after: Some((Timestamp(25), fourth.id)), ..all }, vec![&second, &first]),
        (DepositFilter { after: Some((Timestamp(30), third.id)), ..between(15, 99) }, vec![&second]),
    ];
    for (filter, expected) in cases {
        assert_eq!(list(&store, &filter, 9).await.iter().collect::<Vec<_>>(), expected, "{filter:?}");
    }
}

async fn deposits_made_at_one_moment_are_listed_page_by_page_without_loss(store: TestStore) {
    prepare(&store).await;
    let mut expected = Vec::new();
    write(&store, async |tx| {
        for tag in 1..=20 {
            let deposit = Deposit { created_at: Timestamp(i64::from(tag / 10)), ..deposit(tag) };
            deposits::insert(tx, &deposit).await.unwrap();
            expected.push(deposit);
        }
    })
    .await;
    expected.sort_by_key(|deposit| std::cmp::Reverse((deposit.created_at, deposit.id.to_string())));
    for limit in [1, 3, 7, 20] {
        let mut filter = DepositFilter::default();
        let mut listed = Vec::new();
        while let page @ [.., last] = list(&store, &filter, limit).await.as_slice() {
            assert!(page.len() <= usize::try_from(limit).unwrap());
            filter.after = Some((last.created_at, last.id));
            listed.extend_from_slice(page);
            assert!(listed.len() <= expected.len(), "in pages of {limit}, one is listed twice");
        }
        assert_eq!(listed, expected, "in pages of {limit}");
    }
}

// Events.

async fn an_event_is_refused_the_second_time(store: TestStore) {
    let deposit = insert(&store, deposit(1)).await;
    append(&store, &Event::entered(&deposit, 0)).await.unwrap();
    let again = append(&store, &Event::entered(&deposit, 0)).await.unwrap_err();
    assert!(matches!(again, StoreError::Failed { .. }) && !again.may_pass(), "{again:?}");

    let mut tx = store.db.begin().await.unwrap();
    let stale = History::of(&mut tx, DepositId(uuid::Uuid::nil())).await.unwrap();
    let same_place = events::append(&mut tx, &Event::entered(&deposit, 1), &stale, NOW).await;
    assert!(matches!(same_place, Err(StoreError::Failed { .. })), "two events cannot be first");
    drop(tx);
    assert_eq!(crate::books::events(&store.db).await.len(), 1);
}

async fn events_of_a_deposit_are_numbered_in_order_and_their_entries_counted(store: TestStore) {
    let deposit = insert(&store, deposit(1)).await;
    let other = insert(&store, self::deposit(2)).await;
    let failed = deposit.clone().fail().unwrap();
    append(&store, &Event::entered(&other, 0)).await.unwrap();
    let given = [Event::entered(&deposit, 0), Event::entered(&failed, 0), Event::entered(&deposit, 1)];
    for event in &given {
        append(&store, event).await.unwrap();
    }
    let stored = crate::books::events(&store.db).await;
    let stored = stored.iter().filter(|event| event.aggregateid == deposit.id.to_string());
    for ((position, stored), given) in stored.enumerate().zip(&given) {
        assert_eq!(stored.position, i64::try_from(position).unwrap());
        assert_eq!((&stored.id, &stored.payload), (&given.id.to_string(), &given.payload));
        assert_eq!((stored.status.as_str(), stored.nth_entry), (given.status.name(), i64::from(given.nth_entry)));
    }
    let history = write(&store, async |tx| History::of(tx, deposit.id).await.unwrap()).await;
    assert_eq!([Pending, Failed, Confirmed].map(|status| history.entries(status)), [2, 1, 0]);
    let outbox = "SELECT id, aggregatetype, aggregateid, type, payload FROM events WHERE position = 2";
    let outbox: Vec<(String, String, String, String, String)> = rows(&store.db, outbox).await;
    let [.., last] = given;
    let (id, payload) = (last.id.to_string(), last.payload);
    let expected = (id, "deposit".to_owned(), deposit.id.to_string(), "deposit_v2".to_owned(), payload);
    assert_eq!(outbox, [expected], "as Debezium's outbox router reads it");
}

async fn an_event_is_delivered_to_each_active_webhook_of_its_moment(store: TestStore) {
    let deposit = insert(&store, deposit(1)).await;
    for webhook in ["active", "also", "paused"] {
        register(&store, webhook).await;
    }
    run(&store.db, "UPDATE webhooks SET status = 'PAUSED' WHERE id = 'paused'").await;
    let event = Event::entered(&deposit, 0);
    append(&store, &event).await.unwrap();
    register(&store, "later").await;
    let text = "SELECT webhook_id, event_id, state, attempt, next_us FROM deliveries ORDER BY webhook_id";
    let delivery = |webhook: &str| (webhook.to_owned(), event.id.to_string(), "PENDING".to_owned(), 0, NOW.0);
    let expected: [(String, String, String, i64, i64); 2] = [delivery("active"), delivery("also")];
    assert_eq!(rows::<(String, String, String, i64, i64)>(&store.db, text).await, expected);
}

async fn a_rolled_back_event_leaves_no_delivery(store: TestStore) {
    let deposit = insert(&store, deposit(1)).await;
    register(&store, "hook").await;
    let mut tx = store.db.begin().await.unwrap();
    let history = History::of(&mut tx, deposit.id).await.unwrap();
    events::append(&mut tx, &Event::entered(&deposit, 0), &history, NOW).await.unwrap();
    drop(tx);
    assert_eq!(claim(&store, NOW, 9).await, []);
    let text = "SELECT (SELECT COUNT(*) FROM events) + (SELECT COUNT(*) FROM deliveries)";
    assert_eq!(rows::<(i64,)>(&store.db, text).await, [(0,)]);
}

// Deliveries.

async fn a_claim_takes_what_is_due_in_order_and_no_more_than_its_limit(store: TestStore) {
    const COUNT: u8 = 150;
    prepare(&store).await;
    for webhook in ["a", "b"] {
        register(&store, webhook).await;
    }
    let mut ids = Vec::new();
    write(&store, async |tx| {
        for tag in 1..=COUNT {
            let deposit = deposit(tag);
            deposits::insert(tx, &deposit).await.unwrap();
            let history = History::of(tx, deposit.id).await.unwrap();
            let event = Event::entered(&deposit, 0);
            let at = Timestamp(NOW.0 + i64::from(tag / 10));
            events::append(tx, &event, &history, at).await.unwrap();
            ids.extend(["a", "b"].map(|webhook| (at, event.id.to_string(), webhook.to_owned())));
        }
    })
    .await;
    ids.sort();
    let due: Vec<_> = ids.iter().filter(|(at, ..)| *at <= NOW).map(|(_, event, hook)| (event, hook)).collect();
    let claimed = claim(&store, NOW, 1_000).await;
    let found: BTreeSet<_> = claimed.iter().map(|claimed| (&claimed.event_id, &claimed.webhook_id)).collect();
    assert_eq!(found, due.iter().copied().collect(), "only what is due");

    let later = NOW.plus(Duration::from_secs(1));
    let mut rest = ids.split_off(due.len());
    for (round, limit) in [1, 2, 7, 32, 1, 100, 7, 1_000].into_iter().enumerate() {
        if round == 4 {
            // The planner now knows the table, and may choose another way.
            run(&store.db, "ANALYZE").await;
        }
        let taken = rest.len().min(usize::try_from(limit).unwrap());
        let expected: BTreeSet<_> = rest.drain(..taken).map(|(_, event, hook)| (event, hook)).collect();
        let claimed = claim(&store, later, limit).await;
        assert_eq!(claimed.len(), taken, "round {round}: a limit of {limit}");
        let found: BTreeSet<_> = claimed.into_iter().map(|claimed| (claimed.event_id, claimed.webhook_id)).collect();
        assert_eq!(found, expected, "round {round}: what has waited longest comes first");
    }
    assert_eq!(claim(&store, later, 1_000).await, [], "every delivery is claimed once");
}

async fn a_claim_keeps_its_limit_when_the_planner_believes_that_there_is_one_delivery(store: TestStore) {
    prepare(&store).await;
    register(&store, "hook").await;
    let event = |tag| Event::entered(&deposit(tag), 0);
    insert(&store, deposit(1)).await;
    append(&store, &event(1)).await.unwrap();
    run(&store.db, "ANALYZE").await;
    // They fit on the one page that the planner has seen.
    for tag in 2..=30 {
        insert(&store, deposit(tag)).await;
        append(&store, &event(tag)).await.unwrap();
    }
    for limit in [1, 2, 7] {
        let claimed = claim(&store, NOW, limit).await.len();
        assert_eq!(claimed, usize::try_from(limit).unwrap(), "more are under way than there may be");
    }
}

async fn a_later_event_of_a_deposit_waits_for_the_earlier_at_the_same_webhook_only(store: TestStore) {
    for webhook in ["a", "b"] {
        register(&store, webhook).await;
    }
    let [one, two] = [insert(&store, deposit(1)).await, insert(&store, deposit(2)).await];
    let confirmed = one.clone().confirm(NOW).unwrap();
    let [first, second, unrelated] =
        [Event::entered(&one, 0), Event::entered(&confirmed, 0), Event::entered(&two, 0)].map(Arc::new);
    for event in [&first, &second, &unrelated] {
        append(&store, event).await.unwrap();
    }
    let name = |event: &Event, webhook: &str| (event.id.to_string(), webhook.to_owned());
    let claimed = claim(&store, NOW, 9).await;
    let found: BTreeSet<_> =
        claimed.iter().map(|claimed| (claimed.event_id.clone(), claimed.webhook_id.clone())).collect();
    let expected = [name(&first, "a"), name(&first, "b"), name(&unrelated, "a"), name(&unrelated, "b")];
    assert_eq!(found, expected.into(), "another deposit is not held");

    let of = |webhook: &str| {
        let first = first.id.to_string();
        claimed.iter().find(|claimed| claimed.event_id == first && claimed.webhook_id == webhook).unwrap()
    };
    assert!(write(&store, async |tx| deliveries::delivered(tx, of("a")).await.unwrap()).await);
    let next = NOW.plus(Duration::from_secs(2));
    assert!(write(&store, async |tx| deliveries::retry_at(tx, of("b"), next).await.unwrap()).await);
    let claimed = claim(&store, NOW, 9).await;
    assert_eq!(claimed.len(), 1, "held at b, where the first is to be sent again");
    assert_eq!((claimed[0].event_id.clone(), claimed[0].webhook_id.clone()), name(&second, "a"));
    assert_eq!(claimed[0].payload, second.payload);
    let claimed = claim(&store, next, 9).await;
    assert_eq!((claimed[0].event_id.clone(), claimed[0].attempt), (first.id.to_string(), 2));
    assert_eq!(claimed.len(), 1);
}

async fn a_lease_that_ends_gives_the_delivery_to_the_next(store: TestStore) {
    let lost = claimed_once(&store).await;
    assert_eq!(lost.attempt, 1);
    assert_eq!(claim(&store, Timestamp(NOW.plus(LEASE).0 - 1), 9).await, [], "a microsecond too early");
    let taken = claim(&store, NOW.plus(LEASE), 9).await;
    assert_eq!(taken, [Claimed { attempt: 2, ..lost }], "the same bytes to the same place");
}

async fn a_late_acknowledgement_changes_nothing(store: TestStore) {
    let late = claimed_once(&store).await;
    let again = claim(&store, NOW.plus(LEASE), 9).await.remove(0);
    let table = "SELECT state, attempt, next_us, lease_until_us FROM deliveries";
    let before: Vec<(String, i64, i64, i64)> = rows(&store.db, table).await;
    let held = write(&store, async |tx| {
        [deliveries::delivered(tx, &late).await.unwrap(), deliveries::retry_at(tx, &late, NOW).await.unwrap()]
    });
    assert_eq!(held.await, [false, false]);
    assert_eq!(rows::<(String, i64, i64, i64)>(&store.db, table).await, before);

    assert!(write(&store, async |tx| deliveries::delivered(tx, &again).await.unwrap()).await);
    for claimed in [&late, &again] {
        let held = write(&store, async |tx| {
            [deliveries::delivered(tx, claimed).await.unwrap(), deliveries::retry_at(tx, claimed, NOW).await.unwrap()]
        });
        assert_eq!(held.await, [false, false], "what has arrived is not sent again");
    }
    assert_eq!(claim(&store, Timestamp(i64::MAX), 9).await, []);
}

async fn two_who_claim_at_once_never_get_the_same_delivery(store: TestStore) {
    const COUNT: u8 = 120;
    prepare(&store).await;
    register(&store, "hook").await;
    for tag in 1..=COUNT {
        insert(&store, deposit(tag)).await;
        append(&store, &Event::entered(&deposit(tag), 0)).await.unwrap();
    }
    let mut claimers = JoinSet::new();
    let start = Arc::new(Barrier::new(2));
    for _ in 0..2 {
        let (db, start) = (store.db.clone(), Arc::clone(&start));
        claimers.spawn(async move {
            start.wait().await;
            let mut mine = Vec::new();
            // What the other holds locked at the moment is skipped: one empty answer is not the end.
            let mut empty = 0;
            while empty < 3 {
                let mut tx = db.begin().await.unwrap();
                let claimed = deliveries::claim(&mut tx, NOW, NOW.plus(LEASE), 7).await.unwrap();
                tx.commit().await.unwrap();
                empty = if claimed.is_empty() { empty + 1 } else { 0 };
                mine.extend(claimed);
            }
            mine
        });
    }
    let claimed = claimers.join_all().await.concat();
    assert!(claimed.iter().all(|claimed| claimed.attempt == 1));
    let ids: BTreeSet<&str> = claimed.iter().map(|claimed| claimed.event_id.as_str()).collect();
    assert_eq!((ids.len(), claimed.len()), (usize::from(COUNT), usize::from(COUNT)), "each exactly once");
}

// Accounts and watch lists.

async fn an_address_is_watched_from_the_block_behind_the_cursor(store: TestStore) {
    add(&store, &account("early", &[(CHAIN, address(1))])).await.unwrap();
    connect(&store, &[block(7, 1)]).await;
    write(&store, async |tx| Cursor::place(tx, CHAIN, &block(7, 1).header.block).await.unwrap()).await;
    add(&store, &account("late", &[(CHAIN, address(2)), (OTHER_CHAIN, address(2))])).await.unwrap();
    assert_eq!(cursor(&store).await.watch_seq, 2);

    let mut reader = store.db.read().await.unwrap();
    let accounts = accounts::list(&mut reader).await.unwrap();
    let found: Vec<_> = accounts.iter().map(|account| (account.id.as_str(), account.addresses.clone())).collect();
    let early = vec![(CHAIN, address(1), 0)];
    let late = vec![(OTHER_CHAIN, address(2), 0), (CHAIN, address(2), 8)];
    assert_eq!(found, [("early", early), ("late", late)]);
    assert!(accounts.iter().all(|account| account.kind == AccountType::Segregated && account.identity_id == "default"));

    let watched = accounts::watched_since(&mut reader, CHAIN, 0, 9).await.unwrap();
    let found: Vec<_> =
        watched.iter().map(|watched| (watched.seq, watched.address, watched.account_id.as_str())).collect();
    assert_eq!(found, [(1, address(1), "early"), (2, address(2), "late")]);
    assert_eq!(accounts::watched_since(&mut reader, CHAIN, 1, 9).await.unwrap(), watched[1..]);
    assert_eq!(accounts::watched_since(&mut reader, CHAIN, 0, 1).await.unwrap(), watched[..1]);
    assert_eq!(accounts::watched_since(&mut reader, CHAIN, 2, 9).await.unwrap(), []);
}

async fn adding_the_same_again_changes_nothing(store: TestStore) {
    let once = account("alice", &[(CHAIN, address(1))]);
    add(&store, &once).await.unwrap();
    let before = accounts::list(&mut store.db.read().await.unwrap()).await.unwrap();
    add(&store, &once).await.unwrap();
    let named = NewAccount { identity_id: Some("default".to_owned()), ..once };
    add(&store, &named).await.unwrap();
    assert_eq!(accounts::list(&mut store.db.read().await.unwrap()).await.unwrap(), before);
    assert_eq!(cursor(&store).await.watch_seq, 1, "watchers have nothing to read again");
    add(&store, &account("alice", &[(CHAIN, address(2))])).await.unwrap();
    assert_eq!(cursor(&store).await.watch_seq, 2, "an account can get more addresses");
}

async fn what_contradicts_the_record_is_refused_with_what_is_recorded(store: TestStore) {
    let alice = account("alice", &[(CHAIN, address(1))]);
    add(&store, &alice).await.unwrap();
    let cases = [
        (
            account("bob", &[(CHAIN, address(1))]),
            format!("{} on ETHEREUM_TESTNET belongs to account alice already", address(1)),
        ),
        (
            NewAccount { kind: AccountType::Omnibus, ..alice.clone() },
            "account alice exists with type SEGREGATED, not OMNIBUS".to_owned(),
        ),
        (
            NewAccount { identity_id: Some("acme".to_owned()), ..alice },
            "account alice exists with identity default, not acme".to_owned(),
        ),
        (
            NewAccount { identity_id: Some("acme".to_owned()), ..account("bob", &[(CHAIN, address(2))]) },
            "there is no identity acme".to_owned(),
        ),
    ];
    for (given, expected) in cases {
        let refused = add(&store, &given).await.unwrap_err();
        assert!(!matches!(refused, AddAccountError::Store(_)), "{refused:?}");
        assert_eq!(refused.to_string(), expected);
    }
    let mut reader = store.db.read().await.unwrap();
    assert_eq!(accounts::list(&mut reader).await.unwrap().len(), 1, "nothing of it stays");
    add(&store, &account("bob", &[(OTHER_CHAIN, address(1))])).await.unwrap();
}

async fn two_who_add_on_two_chains_do_not_wait_for_each_other_for_ever(store: TestStore) {
    const ROUNDS: u8 = 20;
    let mut adders = JoinSet::new();
    for (who, chains) in [(1, [CHAIN, OTHER_CHAIN]), (2, [OTHER_CHAIN, CHAIN])] {
        let db = store.db.clone();
        adders.spawn(async move {
            for round in 0..ROUNDS {
                let address = Address::Evm([[who; 10], [round; 10]].concat().try_into().unwrap());
                let account = account(&format!("{who}-{round}"), &chains.map(|chain| (chain, address)));
                let mut tx = db.begin().await.unwrap();
                let mut lists = WatchLists::lock(&mut tx, &chains.into()).await.unwrap();
                lists.add(&mut tx, &account, NOW).await.unwrap();
                lists.publish(&mut tx).await.unwrap();
                tx.commit().await.unwrap();
            }
        });
    }
    adders.join_all().await;
    let mut reader = store.db.read().await.unwrap();
    for chain in [CHAIN, OTHER_CHAIN] {
        let watched = accounts::watched_since(&mut reader, chain, 0, 1_000).await.unwrap();
        let seqs: Vec<u64> = watched.iter().map(|watched| watched.seq).collect();
        assert_eq!(seqs, (1..=u64::from(2 * ROUNDS)).collect::<Vec<_>>(), "without a gap on {chain}");
    }
}

async fn two_who_add_one_new_account_on_different_chains_both_succeed(store: TestStore) {
    let mut first = store.db.begin().await.unwrap();
    let mut lists = WatchLists::lock(&mut first, &[CHAIN].into()).await.unwrap();
    lists.add(&mut first, &account("alice", &[(CHAIN, address(1))]), NOW).await.unwrap();
    let mut second = JoinSet::new();
    let db = store.db.clone();
    second.spawn(async move {
        let mut tx = db.begin().await?;
        let mut lists = WatchLists::lock(&mut tx, &[OTHER_CHAIN].into()).await?;
        lists.add(&mut tx, &account("alice", &[(OTHER_CHAIN, address(1))]), NOW).await?;
        lists.publish(&mut tx).await?;
        tx.commit().await?;
        Ok::<(), AddAccountError>(())
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    lists.publish(&mut first).await.unwrap();
    first.commit().await.unwrap();
    let second = second.join_all().await.remove(0);
    assert!(second.is_ok(), "the account was added by another meanwhile: {second:?}");
    let accounts = accounts::list(&mut store.db.read().await.unwrap()).await.unwrap();
    assert_eq!(accounts.iter().map(|account| account.addresses.len()).collect::<Vec<_>>(), [2]);
}

async fn a_rolled_back_address_leaves_the_watch_list_unchanged(store: TestStore) {
    prepare(&store).await;
    let before = cursor(&store).await;
    let mut tx = store.db.begin().await.unwrap();
    let mut lists = WatchLists::lock(&mut tx, &[CHAIN].into()).await.unwrap();
    lists.add(&mut tx, &account("bob", &[(CHAIN, address(0xb0))]), NOW).await.unwrap();
    lists.publish(&mut tx).await.unwrap();
    drop(tx);
    assert_eq!(cursor(&store).await, before);
    let mut reader = store.db.read().await.unwrap();
    assert_eq!(accounts::watched_since(&mut reader, CHAIN, before.watch_seq, 9).await.unwrap(), []);
    assert_eq!(accounts::list(&mut reader).await.unwrap().len(), 1);
}

// Keys, watchers' words, the queue.

async fn keys_are_found_by_id_and_no_more_than_the_most_are_taken(store: TestStore) {
    let key = KeyRow { id: "k1".to_owned(), name: "it's \"one\"".to_owned(), secret_hash: vec![0, 1, 0xff] };
    let other = KeyRow { id: "k2".to_owned(), name: String::new(), secret_hash: vec![2; 32] };
    for key in [&key, &other] {
        write(&store, async |tx| assert!(keys::insert(tx, key, 2, NOW).await.unwrap())).await;
    }
    let mut tx = store.db.begin().await.unwrap();
    assert!(matches!(keys::insert(&mut tx, &key, 3, NOW).await, Err(StoreError::Failed { .. })), "an id is given once");
    drop(tx);
    let third = KeyRow { id: "k3".to_owned(), ..key.clone() };
    write(&store, async |tx| assert!(!keys::insert(tx, &third, 2, NOW).await.unwrap(), "there are two already")).await;
    let mut reader = store.db.read().await.unwrap();
    assert_eq!(keys::by_id(&mut reader, "k1").await.unwrap(), Some(key));
    assert_eq!(keys::by_id(&mut reader, "K1").await.unwrap(), None);
}

async fn a_watchers_word_replaces_its_former_one(store: TestStore) {
    let endpoint = |id: &str, state, latest| {
        let reason = if state == EndpointState::Healthy { "" } else { "refused" };
        EndpointStatus { id: id.to_owned(), state, reason: reason.to_owned(), latest }
    };
    let word = ChainStatus {
        chain: CHAIN,
        state: "behind".to_owned(),
        reason: "catching up".to_owned(),
        proof: "roots".to_owned(),
        latest: Some(u64::from(u32::MAX)),
        finalized: None,
        cursor: None,
        caught_up_at: Timestamp::EPOCH,
        heartbeat_at: NOW,
        endpoints: Vec::new(),
    };
    let endpoints = [endpoint("z:1", EndpointState::Healthy, Some(5)), endpoint("a:1", EndpointState::Failing, None)];
    let mut reader = store.db.read().await.unwrap();
    assert_eq!(status::caught_up_at(&mut reader, CHAIN).await.unwrap(), None);
    write(&store, async |tx| status::record(tx, &word, &endpoints).await.unwrap()).await;
    let [read] = &status::chains(&mut reader).await.unwrap()[..] else { panic!("one chain") };
    assert_eq!(ChainStatus { endpoints: Vec::new(), ..read.clone() }, word);
    let found: Vec<_> =
        read.endpoints.iter().map(|e| (e.id.as_str(), e.state.as_str(), e.reason.as_str(), e.latest)).collect();
    assert_eq!(found, [("z:1", "healthy", "", Some(5)), ("a:1", "failing", "refused", None)], "as configured");

    let at = block(7, 1).header.block;
    write(&store, async |tx| {
        Cursor::lock(tx, CHAIN).await.unwrap();
        Cursor::place(tx, CHAIN, &at).await.unwrap();
    })
    .await;
    let newer = ChainStatus { finalized: Some(6), caught_up_at: NOW, heartbeat_at: NOW.plus(LEASE), ..word };
    write(&store, async |tx| status::record(tx, &newer, &endpoints[1..]).await.unwrap()).await;
    let [read] = &status::chains(&mut reader).await.unwrap()[..] else { panic!("one chain") };
    assert_eq!(read.endpoints.iter().map(|endpoint| endpoint.id.as_str()).collect::<Vec<_>>(), ["a:1"]);
    assert_eq!(ChainStatus { endpoints: Vec::new(), ..read.clone() }, ChainStatus { cursor: Some(7), ..newer });
    assert_eq!(status::caught_up_at(&mut reader, CHAIN).await.unwrap(), Some(NOW));
}

async fn the_queue_tells_what_is_undelivered_since_when(store: TestStore) {
    let mut reader = store.db.read().await.unwrap();
    assert_eq!(status::queue(&mut reader).await.unwrap(), QueueStatus { pending: 0, oldest_at: None });
    let claimed = claimed_once(&store).await;
    assert_eq!(status::queue(&mut reader).await.unwrap(), QueueStatus { pending: 1, oldest_at: Some(NOW) });
    write(&store, async |tx| deliveries::delivered(tx, &claimed).await.unwrap()).await;
    assert_eq!(status::queue(&mut reader).await.unwrap(), QueueStatus { pending: 0, oldest_at: None });
}

// Transactions.

async fn a_transaction_that_is_dropped_is_rolled_back(store: TestStore) {
    prepare(&store).await;
    let mut tx = store.db.begin().await.unwrap();
    deposits::insert(&mut tx, &deposit(1)).await.unwrap();
    assert_eq!(list(&store, &DepositFilter::default(), 9).await, [], "nobody sees it before the commit");
    drop(tx);
    assert_eq!(list(&store, &DepositFilter::default(), 9).await, []);
    insert(&store, deposit(1)).await;
    assert_eq!(list(&store, &DepositFilter::default(), 9).await, [deposit(1)], "and nothing is held up");
}

async fn a_transaction_that_is_cut_off_anywhere_leaves_all_or_nothing(store: TestStore) {
    const TRIES: u8 = 100;
    // More than there are in the work; how many there are depends on how quick the database is.
    const AWAITS_MAX: u8 = 20;
    prepare(&store).await;
    let mut ended = 0;
    for tag in 1..=TRIES {
        let awaits = tag % AWAITS_MAX;
        let deposit = deposit(tag);
        let mut work = Box::pin(async {
            let mut tx = store.db.begin().await.unwrap();
            deposits::insert(&mut tx, &deposit).await.unwrap();
            let history = History::of(&mut tx, deposit.id).await.unwrap();
            events::append(&mut tx, &Event::entered(&deposit, 0), &history, NOW).await.unwrap();
            tx.commit().await.unwrap();
        });
        let mut awaits_left = awaits;
        let reached_its_end = std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending if awaits_left == 0 => Poll::Ready(false),
            Poll::Pending => {
                awaits_left -= 1;
                Poll::Pending
            }
        });
        ended += u8::from(reached_its_end.await);
        drop(work);
        // One look: a commit that was cut off may still be under way.
        let text = format!(
            "SELECT (SELECT COUNT(*) FROM deposits WHERE id = '{0}'), (SELECT COUNT(*) FROM events WHERE aggregateid = '{0}')",
            deposit.id
        );
        let [(there, announced)] = rows::<(i64, i64)>(&store.db, &text).await[..] else { panic!("one row") };
        assert_eq!(there, announced, "cut off after {awaits} awaits");
    }
    assert!(ended > 0 && ended < TRIES, "{ended} of {TRIES} ended: some must be cut off, and some must not");
}

// Opening.

#[tokio::test]
async fn a_sqlite_file_is_readable_by_its_owner_alone() {
    let store = TestStore::fresh(Engine::Sqlite).await;
    prepare(&store).await;
    let path = Path::new(store.url.strip_prefix("sqlite:").unwrap());
    let files: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 2, "the database and its write-ahead log");
    for file in files {
        let mode = fs::metadata(&file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600, "{}: keys are in it", file.display());
    }
}

#[tokio::test]
async fn a_sqlite_path_that_cannot_be_written_is_named_with_the_reason() {
    let folder = folder();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let read_only = folder.path().join("read-only.db");
    OpenOptions::new().create(true).write(true).truncate(true).mode(0o400).open(&read_only).unwrap();
    let mut cases = vec![
        (folder.path().join("missing").join("landfall.db"), "No such file or directory"),
        (folder.path().to_owned(), "Is a directory"),
        (file.join("landfall.db"), "Not a directory"),
    ];
    // Root may write what nobody may.
    if OpenOptions::new().append(true).open(&read_only).is_err() {
        cases.push((read_only.clone(), "Permission denied"));
    } else {
        Db::open(&StoreUrl::Sqlite(read_only)).await.unwrap();
    }
    for (path, reason) in cases {
        let error = Db::open(&StoreUrl::Sqlite(path.clone())).await.unwrap_err();
        assert!(matches!(error, OpenError::File { .. }), "{error:?}");
        assert!(!error.may_pass());
        let text = error.to_string();
        assert!(text.starts_with(&format!("cannot write {}: {reason}", path.display())), "{text}");
        assert!(text.ends_with("; check the path and its permissions"), "{text}");
    }
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_and_left_as_it_is() {
    let folder = folder();
    let path = folder.path().join("notes.txt");
    let notes = "not a database, but somebody's notes\n".repeat(100);
    fs::write(&path, &notes).unwrap();
    let url: StoreUrl = format!("sqlite:{}", path.display()).parse().unwrap();
    let error = Db::open(&url).await.unwrap_err();
    assert!(error.to_string().contains("notes.txt") && error.to_string().contains("file is not a database"), "{error}");
    assert!(!error.may_pass());
    assert_eq!(fs::read_to_string(&path).unwrap(), notes);
}

#[test]
fn a_store_url_is_read_and_never_shown_with_its_password() {
    let cases = [
        ("sqlite:landfall.db", "sqlite:landfall.db"),
        ("sqlite:///var/lib/landfall.db", "sqlite:/var/lib/landfall.db"),
        ("sqlite:/var/lib/landfall.db", "sqlite:/var/lib/landfall.db"),
        ("postgres://user:hunter2@db.example:6543/money", "postgres://db.example:6543/money"),
        ("postgresql://user:hunter2@db.example/money", "postgres://db.example:5432/money"),
        ("postgres://db.example/money?user=u&password=hunter2", "postgres://db.example:5432/money"),
        ("postgres://user:hunter2@[::1]:6543/money", "postgres://[::1]:6543/money"),
        ("postgres://user:hunter2@bad host/money", "postgres://"),
        ("postgres://user:hunter2@host:port/money", "postgres://"),
    ];
    for (given, shown) in cases {
        let url: StoreUrl = given.parse().unwrap();
        assert_eq!(url.to_string(), shown);
        assert_eq!(format!("{url:?}"), shown);
    }
    for given in
        ["", "landfall.db", "sqlite:", "sqlite://", "sqlite::memory:", "sqlite:a.db?mode=ro", "mysql://u:hunter2@h/d"]
    {
        let error = given.parse::<StoreUrl>().unwrap_err();
        assert_eq!(error.to_string(), "store.url: expected sqlite:PATH or postgres://USER@HOST/DATABASE", "{given}");
    }
}

#[tokio::test]
async fn a_postgres_server_that_is_down_may_come_back_and_a_wrong_database_may_not() {
    let free = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url: StoreUrl = format!("postgres://user:hunter2@{free}/money").parse().unwrap();
    let error = Db::open(&url).await.unwrap_err();
    assert!(error.may_pass(), "{error:?}");
    assert!(error.to_string().starts_with(&format!("cannot connect to postgres://{free}/money: ")), "{error}");
    assert!(!error.to_string().contains("hunter2") && !format!("{error:?}").contains("hunter2"), "{error:?}");

    let store = TestStore::fresh(Engine::Postgres).await;
    let (server, _) = store.url.rsplit_once('/').unwrap();
    let url: StoreUrl = format!("{server}/no_such_database").parse().unwrap();
    let error = Db::open(&url).await.unwrap_err();
    assert!(error.to_string().contains("database \"no_such_database\" does not exist"), "{error}");
    assert!(!error.may_pass(), "somebody must create it");

    let url: StoreUrl = "postgres://user:hunter2@host:port/money".parse().unwrap();
    let error = Db::open(&url).await.unwrap_err();
    assert!(matches!(error, OpenError::Url), "{error:?}");
}

// What the tests share.

fn address(who: u8) -> Address {
    Address::Evm([who; 20])
}

/// A PENDING deposit of alice's that differs from those of other tags in everything that makes its id.
fn deposit(tag: u8) -> Deposit {
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
        recipient,
        amount,
        nth: 0,
        symbol: "ETH".to_owned(),
        decimals: 18,
        status: Pending,
        created_at: NOW,
        confirmed_at: None,
    }
}

/// One of several blocks at `number`.
fn block(number: u64, tag: u8) -> Block {
    let named = |number: u64| {
        let mut hash = [tag; 32];
        hash[..8].copy_from_slice(&number.to_be_bytes());
        BlockRef { number, hash: BlockHash(hash) }
    };
    let header = Header { block: named(number), parent: named(number.saturating_sub(1)), time_secs: 12 * number };
    Block { header, txs: Vec::new(), transfers: Vec::new(), proof: Proof::Roots }
}

fn account(id: &str, addresses: &[(Chain, Address)]) -> NewAccount {
    let addresses = addresses.iter().copied().collect();
    NewAccount { id: id.to_owned(), identity_id: None, kind: AccountType::Segregated, addresses }
}

/// Does `work` in a transaction of its own.
async fn write<T>(store: &TestStore, work: impl AsyncFnOnce(&mut Tx) -> T) -> T {
    let mut tx = store.db.begin().await.unwrap();
    let done = work(&mut tx).await;
    tx.commit().await.unwrap();
    done
}

/// Adds an account; all or nothing.
async fn add(store: &TestStore, account: &NewAccount) -> Result<(), AddAccountError> {
    let chains = account.addresses.iter().map(|(chain, _)| *chain).collect();
    let mut tx = store.db.begin().await?;
    let mut lists = WatchLists::lock(&mut tx, &chains).await?;
    lists.add(&mut tx, account, NOW).await?;
    lists.publish(&mut tx).await?;
    Ok(tx.commit().await?)
}

/// Alice, watched on the chain.
async fn prepare(store: &TestStore) {
    add(store, &account("alice", &[(CHAIN, address(0xa1))])).await.unwrap();
}

async fn insert(store: &TestStore, deposit: Deposit) -> Deposit {
    prepare(store).await;
    write(store, async |tx| deposits::insert(tx, &deposit).await.unwrap()).await;
    deposit
}

async fn include(store: &TestStore, deposit: &Deposit, block: &Block) {
    write(store, async |tx| deposits::include(tx, deposit, &block.header.block).await.unwrap()).await;
}

async fn append(store: &TestStore, event: &Event) -> Result<(), StoreError> {
    let mut tx = store.db.begin().await?;
    let history = History::of(&mut tx, event.deposit_id).await?;
    events::append(&mut tx, event, &history, NOW).await?;
    tx.commit().await
}

async fn connect(store: &TestStore, blocks: &[Block]) {
    write(store, async |tx| {
        Cursor::lock(tx, CHAIN).await.unwrap();
        for block in blocks {
            cursors::connect(tx, CHAIN, block).await.unwrap();
        }
    })
    .await;
}

async fn register(store: &TestStore, id: &str) {
    let webhook = WebhookRow {
        id: id.to_owned(),
        url: format!("https://{id}.example/"),
        label: String::new(),
        allow_private: false,
        signing_key_id: format!("key-of-{id}"),
        signing_key: "whsec_AAAA".to_owned(),
    };
    write(store, async |tx| webhooks::insert(tx, &webhook, NOW).await.unwrap()).await;
}

/// One event for one webhook, claimed at [`NOW`].
async fn claimed_once(store: &TestStore) -> Claimed {
    let deposit = insert(store, deposit(1)).await;
    register(store, "hook").await;
    append(store, &Event::entered(&deposit, 0)).await.unwrap();
    claim(store, NOW, 9).await.remove(0)
}

async fn claim(store: &TestStore, now: Timestamp, limit: u32) -> Vec<Claimed> {
    write(store, async |tx| deliveries::claim(tx, now, now.plus(LEASE), limit).await.unwrap()).await
}

async fn cursor(store: &TestStore) -> Cursor {
    Cursor::load(&mut store.db.read().await.unwrap(), CHAIN).await.unwrap()
}

async fn canonical(store: &TestStore, from: u64, to: u64) -> Vec<BlockRef> {
    cursors::canonical_in(&mut store.db.read().await.unwrap(), CHAIN, from, to).await.unwrap()
}

async fn list(store: &TestStore, filter: &DepositFilter, limit: u32) -> Vec<Deposit> {
    deposits::list(&mut store.db.read().await.unwrap(), filter, limit).await.unwrap()
}

async fn settleable(store: &TestStore, through: u64, limit: u32) -> Vec<(u64, DepositId)> {
    let mut reader = store.db.read().await.unwrap();
    let settleable = deposits::settleable(&mut reader, CHAIN, through, limit).await.unwrap();
    let found = settleable.into_iter().map(|found| {
        assert_eq!(found.block, block(found.block.number, 1).header.block);
        (found.block.number, found.deposit.id)
    });
    found.collect()
}

async fn missing(store: &TestStore, through: u64, limit: u32) -> Vec<DepositId> {
    let mut reader = store.db.read().await.unwrap();
    let missing = deposits::missing(&mut reader, CHAIN, through, limit).await.unwrap();
    missing.into_iter().map(|missing| missing.deposit.id).collect()
}

/// Reads with a text of the test's own.
async fn rows<R>(db: &Db, text: &str) -> Vec<R>
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
async fn run(db: &Db, text: &'static str) {
    let mut tx = db.begin().await.unwrap();
    match tx.engine() {
        Connected::Postgres(connection) => drop(sqlx::query(text).execute(connection).await.unwrap()),
        Connected::Sqlite(connection) => drop(sqlx::query(text).execute(connection).await.unwrap()),
    }
    tx.commit().await.unwrap();
}
