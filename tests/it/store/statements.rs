//! The texts: each is known to both engines with the parameters it is given, has a name of its own, and keeps to
//! the subset of SQL that is portable.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use landfall::deposit::DepositId;
use landfall::store::account_pages::{self, AccountFilter};
use landfall::store::ahead::{self, Bounds};
use landfall::store::deposits::{self, Fits};
use landfall::store::status::{self, QueueStatus};
use landfall::store::{
    Connection, Engine as Connected, MIGRATIONS, Pools, deliveries, endpoints, identities, traces, witnesses,
};
use landfall::time::Timestamp;
use landfall_chain::{AssetId, Block, Chain, Lane, U256};
use sqlx::{AssertSqlSafe, Executor as _, SqlSafeStr as _, Statement as _};

use super::cast::{CHAIN, NOW, Reads, block, claimed_once, connect, deposit, prepare, run, write};
use crate::harness::postgres::{Engine, TestStore};

/// What engines compatible with PostgreSQL do not have, what SQLite does not have, and what reads clocks or dice in the
/// database.
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

on_both_engines!(
    every_statement_can_be_prepared_and_takes_the_parameters_it_is_given,
    a_page_of_an_account_reads_what_it_shows_whatever_it_is_filtered_by,
    a_page_of_accounts_reads_what_it_shows_though_all_were_imported_at_once,
    how_old_a_backlog_is_is_reported_without_reading_the_events_of_all_of_it,
    what_is_to_be_sent_is_found_past_any_number_of_deleted_webhooks,
);

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

/// What runs at every tick, poll or request, and the index that keeps it from walking over all that ever was.
const HOT: [(&str, &str); 97] = [
    ("transfers::UNFINISHED", "INDEX transfers_unfinished"),
    ("transfers::DISPLACED", "INDEX transfers_unfinished"),
    ("attempts::INTENTS", "INDEX transfers_unfinished"),
    ("attempts::OF_UNFINISHED", "INDEX transfers_unfinished"),
    ("attempts::ACCOUNTS_OF_RECIPIENT", "INDEX transfers_destination (destination=? AND chain=? AND created_us>?"),
    ("cancellations::OF_UNFINISHED", "INDEX transfers_unfinished"),
    ("gas_ledger::UNPRICED_COSTS", "SEARCH l USING"),
    ("delegates::TAKEN", "INDEX sqlite_autoindex_delegates_1"),
    ("attempts::OF_CLEARING", "INDEX transfer_attempts_transfer"),
    ("clearings::WANTED", "INDEX transfers_unfinished"),
    ("clearings::TUPLES", "SEARCH c USING"),
    ("clearings::BEARERS", "INDEX authorizations_carried_by"),
    ("accounts::OWNERS", "SEARCH w USING"),
    ("deposits::SETTLEABLE", "INDEX deposits_pending"),
    ("deposits::SETTLEABLE", "SEARCH f USING"),
    ("deposits::PENDING_OF", "INDEX deposits_pending"),
    ("deposits::SET_DECIMALS", "INDEX deposits_pending"),
    ("deposits::MISSING", "INDEX deposits_pending"),
    // To the place where a page begins, not down to it from the newest.
    (
        "deposit_pages::LIST_OF_ACCOUNT",
        "INDEX deposits_account (organization_id=? AND account_id=? AND created_us>? AND (created_us,id)<",
    ),
    (
        "deposit_pages::LIST_OF_KIND",
        "INDEX deposits_kind (account_id=? AND chain=? AND symbol=? AND asset=? AND created_us>? AND (created_us,id)<",
    ),
    ("deposit_pages::KINDS", "INDEX deposits_kind (account_id=? AND chain>?)"),
    ("deposit_pages::KINDS", "INDEX deposits_kind (account_id=? AND chain=? AND symbol>?)"),
    ("deposit_pages::KINDS", "INDEX deposits_kind (account_id=? AND chain=? AND symbol=? AND asset>?)"),
    ("deposit_pages::NOT_FAILED", "INDEX deposits_kind (account_id=? AND chain=? AND symbol=? AND asset=?)"),
    ("deposits::LIST", "INDEX deposits_newest (organization_id=? AND created_us>? AND (created_us,id)<"),
    ("deposits::SETTLEABLE_BY_TIER", "INDEX deposits_pending"),
    // From the newest blocks, not from every CONFIRMED deposit.
    ("deposits::CONFIRMED_ABOVE", "INDEX blocks_number"),
    ("deposits::CONFIRMED_OF", "INDEX deposits_tx"),
    ("cursors::PRUNE", "INDEX blocks_number"),
    ("cursors::CANONICAL_AT", "INDEX blocks_canonical"),
    ("cursors::CANONICAL_FROM", "INDEX blocks_canonical"),
    ("cursors::CANONICAL_THROUGH", "INDEX blocks_number (chain=? AND number<?)"),
    ("cursors::PASSED_OVER", "INDEX blocks_number (chain=? AND number>?)"),
    ("cursors::PASSED_OVER", "INDEX sqlite_autoindex_blocks_1 (chain=? AND hash=?)"),
    ("traces::OLDEST", "INDEX blocks_untraced"),
    ("traces::NEWEST", "INDEX blocks_untraced"),
    ("traces::REPORTED_BY", "INDEX blocks_traced_by"),
    ("traces::REPORTED_ALONE", "INDEX blocks_traced_by (chain=? AND traced_by=? AND number>?)"),
    ("traces::SETTLEABLE", "INDEX deposits_pending"),
    ("traces::UNTRACED_IN", "INDEX blocks_untraced"),
    ("traces::UNTRACED_SINCE", "INDEX blocks_untraced"),
    ("identities::ACCOUNTS_BEHIND", "INDEX accounts_identity (identity_id=? AND (created_us,id)>"),
    ("accounts::REPORTED_LATER", "INDEX watched_addresses_from"),
    ("accounts::LOWER_FROM", "(chain=? AND seq>? AND seq<?)"),
    ("movements::DEBITED", "INDEX debits_sender"),
    ("movements::PAID", "INDEX fees_payer"),
    (
        "unexplained::MOVED",
        "INDEX inclusions_recipient (chain=? AND recipient=? AND block_number>? AND block_number<?)",
    ),
    (
        "unexplained::MOVED",
        "INDEX unattributed_recipient (chain=? AND recipient=? AND block_number>? AND block_number<?)",
    ),
    ("unexplained::MOVED", "INDEX debits_sender (chain=? AND sender=? AND block_number>? AND block_number<?)"),
    ("unexplained::MOVED", "INDEX fees_payer (chain=? AND payer=? AND block_number>? AND block_number<?)"),
    (
        "unexplained::ARE_TOO_MANY",
        "INDEX inclusions_recipient (chain=? AND recipient=? AND block_number>? AND block_number<?)",
    ),
    ("unexplained::IS_UNSEEN", "INDEX unattributed_stray"),
    (
        "unexplained::CONFIRMED",
        "INDEX inclusions_recipient (chain=? AND recipient=? AND block_number>? AND block_number<?)",
    ),
    ("unexplained::ACROSS", "INDEX unexplained_address (chain=? AND address=? AND asset=? AND to_number>?)"),
    ("unexplained::OF_INCIDENT", "INDEX unexplained_incident"),
    ("unexplained::LIST", "(chain=? AND (to_number,address,asset)<"),
    ("balances::BASES", "SEARCH b USING"),
    ("deliveries::TAKE", "INDEX deliveries_queue"),
    ("deliveries::PARK", "INDEX deliveries_owner"),
    ("deliveries::GIVE_BACK", "INDEX deliveries_owner"),
    ("deliveries::TAKEN", "INDEX deliveries_owner"),
    ("deliveries::NEXT", "INDEX deliveries_order"),
    ("deliveries::AGE", "INDEX deliveries_queue (webhook_id=? AND queue=?)"),
    ("status::QUEUE", "INDEX deliveries_queue"),
    ("endpoints::BUSY", "INDEX webhooks_kept"),
    ("endpoints::BUSY", "INDEX deliveries_queue (webhook_id=?)"),
    ("ahead::ENDPOINTS", "INDEX webhooks_kept"),
    ("ahead::ENDPOINTS", "INDEX deliveries_queue (webhook_id=?)"),
    ("endpoints::RELEASE_HELD", "INDEX deliveries_queue"),
    ("endpoints::RELEASE_AGAIN", "INDEX deliveries_queue"),
    ("accounts::WATCHED_SINCE", "INDEX sponsors_watched"),
    ("marks::UNKNOWN", "INDEX marks_unknown"),
    ("marks::OF_UNFINISHED", "INDEX transfers_unfinished"),
    ("marks::OF_UNFINISHED", "INDEX marks_intent"),
    ("marks::GRANTABLE", "INDEX transfers_unfinished"),
    ("marks::GRANTABLE", "INDEX marks_intent"),
    ("marks::GRANTED_THROUGH", "INDEX marks_granted"),
    ("marks::GRANTED_ABOVE", "INDEX marks_granted"),
    ("marks::WITHDRAW", "INDEX marks_granted"),
    ("policies::LOCK_APPLYING", "INDEX policies_active"),
    ("policies::USED_BY_ALL", "INDEX transfers_newest (organization_id=? AND created_us>?"),
    ("policies::USED_BY_IDENTITY", "INDEX transfers_identity (identity_id=? AND created_us>?"),
    ("policies::USED_BY_ACCOUNT", "INDEX transfers_account (account_id=? AND created_us>?"),
    ("transfers::OF_STATUS", "INDEX transfers_status (organization_id=? AND status=? AND created_us>?"),
    ("gas_ledger::LANDED", "INDEX fees_payer (chain=? AND payer=? AND block_number>? AND block_number<?)"),
    ("gas_ledger::LAST_COST", "INDEX gas_ledger_route"),
    ("sponsor_books::PAID", "INDEX fees_payer (chain=? AND payer=? AND block_number>? AND block_number<?)"),
    ("sponsor_books::MOVED", "INDEX fees_payer (chain=? AND payer=? AND block_number>? AND block_number<?)"),
    ("sponsor_books::MOVED", "INDEX gas_ledger_tx (chain=? AND tx_id=?)"),
    ("sponsor_books::MOVED", "INDEX debits_sender (chain=? AND sender=? AND block_number>? AND block_number<?)"),
    (
        "sponsor_books::MOVED",
        "INDEX unattributed_recipient (chain=? AND recipient=? AND block_number>? AND block_number<?)",
    ),
    ("gas_ledger::COSTS_OF", "INDEX gas_ledger_transfer"),
    ("gas_ledger::NEWEST", "INDEX gas_ledger_newest"),
    ("gas_ledger::PRICED_BETWEEN", "INDEX gas_pricings_at"),
    ("feed::LAST", "INDEX events_feed"),
    ("feed::OLDEST_UNNUMBERED", "INDEX events_unnumbered"),
    ("feed::NUMBER", "INDEX events_unnumbered"),
];

#[tokio::test]
async fn what_runs_all_the_time_uses_its_index_on_sqlite() {
    let store = TestStore::fresh(Engine::Sqlite).await;
    let mut tx = store.db.begin().await.unwrap();
    for (name, index) in HOT {
        let sql = landfall::store::statements().find(|sql| sql.name.ends_with(&format!("::{name}"))).unwrap();
        let Connected::Sqlite(connection) = tx.engine() else { panic!("SQLite") };
        let text = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {}", sql.sqlite));
        let plan: Vec<(i64, i64, i64, String)> = sqlx::query_as(text).fetch_all(connection).await.unwrap();
        let steps: Vec<&str> = plan.iter().map(|(.., step)| step.as_str()).collect();
        assert!(steps.iter().any(|step| step.contains(index)), "{name} does not use {index}: {steps:#?}");
    }
}

/// How many deposits there are, in one block of ten, where the database knows nothing about its rows yet, as after a
/// first start.
const DEPOSITS: u8 = 200;

#[tokio::test]
async fn sqlite_prepares_a_statement_once_whatever_is_bound_to_it() {
    let store = TestStore::fresh(Engine::Sqlite).await;
    let mut reader = store.db.read().await.unwrap();
    let Connected::Sqlite(connection) = reader.engine() else { panic!("SQLite") };
    let options: Vec<(String,)> = sqlx::query_as("PRAGMA compile_options").fetch_all(connection).await.unwrap();
    let is_stable = options.iter().any(|(option,)| option == "ENABLE_QPSG");
    assert!(is_stable, "SQLite was built without what .cargo/config.toml says: {options:?}");
}

#[tokio::test]
async fn what_settles_finds_blocks_by_their_hash_on_postgresql_before_it_has_statistics() {
    let store = TestStore::fresh(Engine::Postgres).await;
    prepare(&store).await;
    let blocks: Vec<Block> = (1..=10 * u64::from(DEPOSITS)).map(|number| block(number, 0)).collect();
    connect(&store, &blocks).await;
    write(&store, async |tx| {
        for (tag, block) in (1..=DEPOSITS).zip(blocks.iter().step_by(10)) {
            let lane = if tag % 2 == 0 { Lane::Block } else { Lane::Traces };
            deposits::insert(tx, &deposit(tag)).await.unwrap();
            deposits::include(tx, &deposit(tag), &block.header.block, lane).await.unwrap();
        }
    })
    .await;
    let (through, half) = (u64::MAX >> 1, usize::from(DEPOSITS) / 2);
    let fits = Fits { asset: AssetId::Native, least: U256::ZERO, most: U256::MAX };
    let mut tx = store.db.begin().await.unwrap();
    let reads = Reads::begin(&mut tx, "blocks").await;
    let found = [
        deposits::settleable(&mut tx, CHAIN, (0, through), 500).await.unwrap(),
        deposits::settleable_by_tier(&mut tx, CHAIN, &fits, (0, through), 500).await.unwrap(),
        traces::settleable(&mut tx, CHAIN, through, NOW, 500).await.unwrap(),
        witnesses::due(&mut tx, CHAIN, None, NOW, 500).await.unwrap(),
    ];
    assert_eq!(found.map(|found| found.len()), [half; 4]);
    let (most, what) = (4 * u64::from(DEPOSITS), format!("for 4 times {half} deposits"));
    reads.assert_few(&mut tx, most, 0, &what).await;
}

/// How many deposits an account has beside three of another asset, or on another chain; and how many accounts there
/// are.
const MANY: i64 = 20_000;
/// What may be read for a page of ten.
const ROWS_MAX: u64 = 60;
/// What SQLite may do for it: to walk over all that the account has takes several steps for each deposit.
const STEPS_MAX: u64 = 5_000;

async fn a_page_of_an_account_reads_what_it_shows_whatever_it_is_filtered_by(store: TestStore) {
    prepare(&store).await;
    write(&store, async |tx| deposits::insert(tx, &deposit(1)).await.unwrap()).await;
    let one = deposit(1);
    // Copies of one deposit, each with an id and a time of its own.
    let [id, leg] = match store.db.pools() {
        Pools::Postgres(_) => ["LPAD(TO_HEX(n), 8, '0')", "DECODE(LPAD(TO_HEX(n), 64, '0'), 'hex')"],
        Pools::Sqlite { .. } => ["printf('%08x', n)", "CAST(printf('%032d', n) AS BLOB)"],
    };
    let copy = format!(
        "WITH RECURSIVE numbers (n) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT n + 1 FROM numbers WHERE n < {MANY}) \
         INSERT INTO deposits (id, leg_hash, organization_id, account_id, chain, tx_id, tx_life, asset, sender, sender_rule, recipient, \
         amount, amount_text, nth, symbol, decimals, status, created_us) \
         SELECT {id} || '-0000-8000-8000-000000000000', {leg}, organization_id, account_id, \
         CASE WHEN n % 7000 = 0 THEN 'BASE_SEPOLIA' ELSE chain END, tx_id, tx_life, asset, sender, sender_rule, recipient, amount, \
         amount_text, nth, CASE WHEN n % 7000 = 1 THEN 'EURC' ELSE 'USDC' END, decimals, status, n * 1000000 FROM deposits, numbers"
    );
    run(&store.db, AssertSqlSafe(copy)).await;
    run(&store.db, AssertSqlSafe(format!("DELETE FROM deposits WHERE id = '{}'", one.id))).await;
    let all =
        deposits::DepositFilter { account_id: Some(one.account_id.clone()), ..deposits::DepositFilter::default() };
    let lowest: DepositId = "00000000-0000-8000-8000-000000000000".parse().unwrap();
    let at = |n: i64| Some((Timestamp(n * 1_000_000), lowest));
    let chain = Some(Chain::BaseSepolia);
    let (rare, usual) = (Some("EURC".to_owned()), Some("USDC".to_owned()));
    let filters = [
        ("the first page", all.clone(), 10, MANY),
        ("a page far down", deposits::DepositFilter { after: at(MANY / 2), ..all.clone() }, 10, MANY / 2 - 1),
        ("the last page", deposits::DepositFilter { after: at(8), ..all.clone() }, 7, 7),
        ("a rare asset", deposits::DepositFilter { symbol: rare.clone(), ..all.clone() }, 3, 14_001),
        ("a rare chain", deposits::DepositFilter { chain, ..all.clone() }, 2, 14_000),
        (
            "a rare asset on its chain",
            deposits::DepositFilter { symbol: rare, chain: Some(CHAIN), ..all.clone() },
            3,
            14_001,
        ),
        (
            "nothing",
            deposits::DepositFilter { symbol: usual.clone(), chain: Some(Chain::BaseMainnet), ..all.clone() },
            0,
            0,
        ),
        ("the usual asset", deposits::DepositFilter { symbol: usual, ..all }, 10, MANY),
    ];
    for (what, filter, count, newest) in filters {
        let mut tx = store.db.begin().await.unwrap();
        let reads = Reads::begin(&mut tx, "deposits").await;
        let found = deposits::list(&mut tx, &filter, 10).await.unwrap();
        assert_eq!(found.len(), count, "{what}");
        assert!(found.is_sorted_by_key(|deposit| std::cmp::Reverse((deposit.created_at, deposit.id.0))), "{what}");
        assert!(
            found.first().is_none_or(|first| first.created_at == Timestamp(newest * 1_000_000)),
            "{what}: {newest}"
        );
        reads.assert_few(&mut tx, ROWS_MAX, STEPS_MAX, &format!("{what}, to show {count}")).await;
    }
}

async fn a_page_of_accounts_reads_what_it_shows_though_all_were_imported_at_once(store: TestStore) {
    prepare(&store).await;
    let copy = format!(
        "WITH RECURSIVE numbers (n) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT n + 1 FROM numbers WHERE n < {MANY}) \
         INSERT INTO accounts (id, organization_id, identity_id, type, created_us) \
         SELECT 'account-' || (100000 + n), organization_id, identity_id, type, created_us FROM accounts, numbers"
    );
    run(&store.db, AssertSqlSafe(copy)).await;
    // As a database does by itself after so many.
    run(&store.db, "ANALYZE").await;
    let name = |n: i64| format!("account-{}", 100_000 + n);
    let after = Some((NOW, name(MANY / 2)));
    let all = AccountFilter::default();
    let of_one = AccountFilter { identity_ids: vec!["default".to_owned()], ..all.clone() };
    for (what, filter, newest) in [
        ("the first page", all.clone(), "alice".to_owned()),
        ("a page far down", AccountFilter { after: after.clone(), ..all }, name(MANY / 2 - 1)),
        ("the first page of an identity", of_one.clone(), "alice".to_owned()),
        ("a page of an identity far down", AccountFilter { after, ..of_one }, name(MANY / 2 - 1)),
    ] {
        let mut tx = store.db.begin().await.unwrap();
        let reads = Reads::begin(&mut tx, "accounts").await;
        let (found, is_cut) = account_pages::list(&mut tx, &filter, 10).await.unwrap();
        assert_eq!((found.len(), is_cut, &found[0].id), (10, true, &newest), "{what}");
        reads.assert_few(&mut tx, ROWS_MAX, STEPS_MAX, what).await;
    }
    let mut tx = store.db.begin().await.unwrap();
    let reads = Reads::begin(&mut tx, "accounts").await;
    let last = (NOW.0, name(MANY / 2));
    let (found, _) = identities::accounts_behind(&mut tx, "default", Some(&last), 10).await.unwrap();
    assert_eq!((found.len(), &found[0]), (10, &name(MANY / 2 + 1)));
    reads.assert_few(&mut tx, ROWS_MAX, STEPS_MAX, "a part of an identity's accounts").await;
}

async fn how_old_a_backlog_is_is_reported_without_reading_the_events_of_all_of_it(store: TestStore) {
    let (first, second) = (claimed_once(&store).await, NOW.plus(Duration::from_secs(1)));
    // Copies of the one event, each a second later than the one before, due when it was made.
    let copies = |table: &str, columns: &str, values: &str| {
        let text = format!(
            "WITH RECURSIVE numbers (n) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT n + 1 FROM numbers WHERE n < {MANY}) \
             INSERT INTO {table} ({columns}) SELECT 'event-' || n, 'aggregate-' || n, {values}, 0 FROM {table}, numbers"
        );
        AssertSqlSafe(text)
    };
    let events = "id, aggregateid, aggregatetype, type, payload, organization_id, account_id, status, nth_entry, created_us, position";
    let values =
        "aggregatetype, type, payload, organization_id, account_id, status, nth_entry, created_us + n * 1000000";
    run(&store.db, copies("events", events, values)).await;
    let deliveries = "event_id, aggregateid, webhook_id, state, attempt, queue, next_us, position";
    let values = format!("webhook_id, state, 0, 'FIRST', {} + n * 1000000", NOW.0);
    run(&store.db, copies("deliveries", deliveries, &values)).await;
    run(&store.db, "ANALYZE").await;
    let count = u64::try_from(MANY).unwrap();
    for (pending, oldest_at) in [(count + 1, NOW), (count, second)] {
        let mut tx = store.db.begin().await.unwrap();
        if let Connected::Postgres(connection) = tx.engine() {
            // As with a million, of which it looks up single ones rather than read all.
            for way in ["seqscan", "hashjoin", "mergejoin"] {
                let text = AssertSqlSafe(format!("SET LOCAL enable_{way} = off"));
                sqlx::query(text).execute(&mut *connection).await.unwrap();
            }
        }
        let reads = Reads::begin(&mut tx, "events").await;
        let oldest_at = Some(oldest_at);
        assert_eq!(status::queue(&mut tx).await.unwrap(), QueueStatus { pending, oldest_at });
        // SQLite walks over the queue's index to count it.
        reads.assert_few(&mut tx, 1_001, 10 * count, &format!("how old {pending} are")).await;
        deliveries::delivered(&mut tx, &first, NOW).await.unwrap();
        tx.commit().await.unwrap();
    }
}

async fn what_is_to_be_sent_is_found_past_any_number_of_deleted_webhooks(store: TestStore) {
    claimed_once(&store).await;
    // Copies of the one webhook and of its delivery.
    let numbers = format!(
        "WITH RECURSIVE numbers (n) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT n + 1 FROM numbers WHERE n < {MANY})"
    );
    let webhooks = "organization_id, url, label, signing_key_id, signing_key, signing_key_created_us, created_us";
    let text = format!(
        "{numbers} INSERT INTO webhooks (id, status, {webhooks}) SELECT 'gone-' || n, 'DELETED', {webhooks} FROM webhooks, numbers"
    );
    run(&store.db, AssertSqlSafe(text)).await;
    let deliveries = "event_id, aggregateid, position, state, attempt, queue, next_us";
    let text = format!(
        "{numbers} INSERT INTO deliveries (webhook_id, {deliveries}) SELECT 'gone-' || n, {deliveries} FROM deliveries, numbers"
    );
    run(&store.db, AssertSqlSafe(text)).await;
    run(&store.db, "ANALYZE").await;
    let bounds = Bounds { now: NOW, written: NOW, leased: NOW, waiting: NOW, soon: NOW, soon_failures: 5, last: NOW };
    let mut tx = store.db.begin().await.unwrap();
    for table in ["webhooks", "deliveries"] {
        let reads = Reads::begin(&mut tx, table).await;
        let busy = endpoints::busy(&mut tx, NOW).await.unwrap();
        assert_eq!(busy.iter().map(|busy| busy.id.as_str()).collect::<Vec<_>>(), ["hook"]);
        // Its lease ends later.
        assert_eq!(ahead::endpoints(&mut tx, bounds).await.unwrap(), ["hook"]);
        reads.assert_few(&mut tx, ROWS_MAX, STEPS_MAX, table).await;
    }
}

fn words(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').map(str::to_ascii_uppercase).collect()
}
