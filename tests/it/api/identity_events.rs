//! Events of identities: each change is reported once, in its transaction, in order, to whoever gets events, in the
//! same ways as changes of deposits.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use landfall::account::{AccountType, NewAccount};
use landfall::api::openapi_json;
use landfall::delivery::Delivered;
use landfall::deposit::DepositStatus::{Confirmed, Failed, Pending};
use landfall::feed::{Numberer, Ticked};
use landfall::identity::{Change, Identity, IdentityStatus, IdentityType, NewIdentity, SubStatus};
use landfall::operator::Operator;
use landfall::registry::{self, AddAccountsError};
use landfall::store::accounts::{AddAccountError, WatchLists};
use landfall::store::feed::{self, FeedFilter};
use landfall::store::identities::{self, Decided};
use landfall::store::replay::{self, EventFilter};
use landfall::store::{Connection, Db, Engine as Connected, webhooks};
use landfall::time::Timestamp;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, SqlSafeStr};
use tokio::task::JoinSet;

use crate::delivery::engine::done;
use crate::delivery::{Answer, Receiver, pay, register, signature, tick, world};
use crate::harness::books;
use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::world::World;

const NOW: Timestamp = Timestamp(1_800_000_000_000_000);
const OLGA: Operator<'static> = Operator { actor: "olga", reason: "a court's order", now: NOW, dry_run: false };
/// Of (acme, SUSPENDED, 0), (acme, ACTIVE, 1) and (acme, TERMINATED, 2) at [`NOW`], derived in Python.
const IDS: [&str; 3] = [
    "3d89f80e-7f7a-8952-b8c0-30a2c82a48b4",
    "790b244b-cb55-8fcd-b637-ecd53ccb056c",
    "71052e55-d0ae-8ead-ac5f-8790f26a9553",
];
/// As many accounts as one event names.
const AFFECTED_MAX: usize = 500;

#[test]
fn the_document_says_how_many_accounts_an_event_names() {
    let document: Value = serde_json::from_str(&openapi_json()).unwrap();
    let reported = &document["components"]["schemas"]["IdentityStatusUpdate"]["properties"]["affected_account_ids"];
    assert_eq!(reported["maxItems"], AFFECTED_MAX);
}

/// An event as it stands in its table.
type Row = (String, String, String, String, String, String, i64, i64, String);

async fn rows(db: &Db) -> Vec<Row> {
    let text = "SELECT id, aggregatetype, aggregateid, type, account_id, status, position, created_us, payload FROM events \
                WHERE type = 'identity_status_update' ORDER BY aggregateid, position";
    match db.read().await.unwrap().engine() {
        Connected::Postgres(connection) => sqlx::query_as(text).fetch_all(connection).await.unwrap(),
        Connected::Sqlite(connection) => sqlx::query_as(text).fetch_all(connection).await.unwrap(),
    }
}

async fn payloads(db: &Db) -> Vec<Value> {
    rows(db).await.iter().map(|row| serde_json::from_str(&row.8).unwrap()).collect()
}

async fn run(db: &Db, text: impl SqlSafeStr) {
    let mut tx = db.begin().await.unwrap();
    match tx.engine() {
        Connected::Postgres(connection) => drop(sqlx::query(text).execute(connection).await.unwrap()),
        Connected::Sqlite(connection) => drop(sqlx::query(text).execute(connection).await.unwrap()),
    }
    tx.commit().await.unwrap();
}

fn account(id: &str, identity: &str) -> NewAccount {
    let (identity_id, kind) = (Some(identity.to_owned()), AccountType::Segregated);
    NewAccount { id: id.to_owned(), identity_id, kind, addresses: [].into() }
}

/// An identity with these accounts, opened one after the other.
async fn add(db: &Db, id: &str, accounts: &[&str]) {
    let new = NewIdentity { kind: IdentityType::Business, label: "Acme".to_owned(), fiat_operations_enabled: false };
    registry::add_identity(db, id, &new, NOW).await.unwrap();
    open(db, id, accounts).await;
}

async fn open(db: &Db, identity: &str, accounts: &[&str]) {
    for (secs, id) in (1..).zip(accounts) {
        let now = NOW.plus(Duration::from_secs(secs));
        registry::add_accounts(db, &[account(id, identity)], now).await.unwrap();
    }
}

async fn status(db: &Db, id: &str) -> IdentityStatus {
    identities::by_id(&mut db.read().await.unwrap(), id).await.unwrap().unwrap().status
}

/// What an event reports: the status, and whose.
fn reported(event: &Value) -> (String, Vec<String>) {
    let data = &event["data"];
    let accounts = data["affected_account_ids"].as_array().unwrap().iter().map(|id| id.as_str().unwrap().to_owned());
    (data["identity"]["status"].as_str().unwrap().to_owned(), accounts.collect())
}

#[tokio::test]
async fn each_change_is_reported_once_with_the_fields_of_the_interface() {
    for engine in ENGINES {
        let store = TestStore::fresh(engine).await;
        add(&store.db, "acme", &["b", "a"]).await;
        add(&store.db, "other", &["c"]).await;
        assert_eq!(rows(&store.db).await, [], "{engine:?}: who is registered has no status before");
        for change in [Change::Suspend, Change::Reinstate, Change::Terminate] {
            OLGA.change_identity(&store.db, "acme", change).await.unwrap();
            OLGA.change_identity(&store.db, "acme", change).await.unwrap_err();
        }
        let expected = [("ACTIVE", "SUSPENDED"), ("SUSPENDED", "ACTIVE"), ("ACTIVE", "TERMINATED")];
        let row = |(position, (id, (before, after))): (i64, (&str, (&str, &str)))| {
            let payload = format!(
                "{{\"id\":\"{id}\",\"type\":\"identity_status_update\",\"data\":{{\"identity\":{{\"id\":\"acme\",\
                 \"label\":\"Acme\",\"identity_type\":\"BUSINESS\",\"status\":\"{after}\",\"sub_status\":\"\"}},\
                 \"affected_account_ids\":[\"b\",\"a\"],\"status_reason\":\"a court's order\",\
                 \"previous_status\":\"{before}\",\"previous_sub_status\":\"\"}}}}"
            );
            let [id, of, acme, kind, none, after] =
                [id, "identity", "acme", "identity_status_update", "", after].map(str::to_owned);
            (id, of, acme, kind, none, after, position, NOW.0, payload)
        };
        let expected: Vec<Row> = (0..).zip(IDS.into_iter().zip(expected)).map(row).collect();
        assert_eq!(rows(&store.db).await, expected, "{engine:?}");
    }
}

#[tokio::test]
async fn a_change_that_ends_a_sub_status_reports_the_one_before() {
    for engine in ENGINES {
        let store = TestStore::fresh(engine).await;
        add(&store.db, "acme", &[]).await;
        run(&store.db, "UPDATE identities SET sub_status = 'RFI_REQUIRED', type = 'INDIVIDUAL' WHERE id = 'acme'")
            .await;
        OLGA.change_identity(&store.db, "acme", Change::Suspend).await.unwrap();
        let data = &payloads(&store.db).await[0]["data"];
        assert_eq!(data["previous_sub_status"], SubStatus::RfiRequired.name());
        assert_eq!(
            (&data["identity"]["sub_status"], &data["identity"]["identity_type"]),
            (&json!(""), &json!("INDIVIDUAL"))
        );
        assert_eq!(data["affected_account_ids"], json!([]), "{engine:?}: it has none, and is told of all the same");
    }
}

#[tokio::test]
async fn a_change_and_its_event_are_there_both_or_neither() {
    for engine in ENGINES {
        let store = TestStore::fresh(engine).await;
        add(&store.db, "acme", &["a"]).await;
        // The first statement, one between, and the last.
        for table in ["identity_changes", "events", "deliveries"] {
            run(&store.db, AssertSqlSafe(format!("ALTER TABLE {table} RENAME TO lost"))).await;
            OLGA.change_identity(&store.db, "acme", Change::Suspend).await.unwrap_err();
            run(&store.db, AssertSqlSafe(format!("ALTER TABLE lost RENAME TO {table}"))).await;
            assert_eq!(status(&store.db, "acme").await, IdentityStatus::Active, "{engine:?}: without {table}");
            assert_eq!(rows(&store.db).await, [], "{engine:?}: without {table}");
        }
        OLGA.change_identity(&store.db, "acme", Change::Suspend).await.unwrap();
        assert_eq!(payloads(&store.db).await.len(), 1, "{engine:?}");
    }
}

#[tokio::test]
async fn a_crash_at_any_await_of_a_change_leaves_it_reported_or_undone() {
    /// More than a change has.
    const AWAITS_MAX: u32 = 100;
    for engine in ENGINES {
        let store = TestStore::fresh(engine).await;
        let (mut crashes, mut quiet) = (0, 0);
        for awaits in 0..AWAITS_MAX {
            let id = format!("acme-{awaits}");
            add(&store.db, &id, &[]).await;
            let mut change = Box::pin(OLGA.change_identity(&store.db, &id, Change::Suspend));
            let mut left = awaits;
            let is_cut_off = poll_fn(|cx| match change.as_mut().poll(cx) {
                Poll::Ready(done) => Poll::Ready(done.map(|_| false).unwrap()),
                Poll::Pending if left == 0 => Poll::Ready(true),
                Poll::Pending => {
                    left -= 1;
                    Poll::Pending
                }
            })
            .await;
            drop(change);
            crashes += u32::from(is_cut_off);
            quiet = if is_cut_off { 0 } else { quiet + 1 };
            // What was cut off at its commit may be about to happen: its lock is waited for.
            let mut tx = store.db.begin().await.unwrap();
            let found = identities::lock(&mut tx, &id).await.unwrap().unwrap();
            let decided = identities::decisions(&mut tx, &id).await.unwrap().len();
            drop(tx);
            let events = rows(&store.db).await.iter().filter(|row| row.2 == id).count();
            let is_suspended = found.status == IdentityStatus::Suspended;
            assert_eq!(
                (events, decided),
                (usize::from(is_suspended), usize::from(is_suspended)),
                "{engine:?}: {awaits}"
            );
            if quiet > 3 {
                break;
            }
        }
        println!("{engine:?}: cut off at {crashes} awaits");
        // How many awaits are waited at depends on how quick the database is.
        assert!(crashes > 0 && quiet > 3, "{crashes} crashes");
    }
}

#[tokio::test]
async fn events_of_an_identity_arrive_signed_in_their_order_and_no_muted_status_keeps_them() {
    for engine in ENGINES {
        let receiver = Receiver::scripted([Answer::Status(500)]).await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        let mut tx = world.db().begin().await.unwrap();
        webhooks::mute(&mut tx, &[Pending, Confirmed, Failed]).await.unwrap();
        tx.commit().await.unwrap();
        for change in [Change::Suspend, Change::Reinstate] {
            world.operator().change_identity(world.db(), "default", change).await.unwrap();
            world.pass(Duration::from_secs(1));
        }
        pay(&mut world, &[5]).await;
        assert_eq!(tick(&world).await, done(0, 1), "{engine:?}: the first was refused");
        assert_eq!(tick(&world).await, Delivered::default(), "{engine:?}: and the second waits for it");
        world.pass(Duration::from_secs(2));
        assert_eq!(tick(&world).await, done(1, 0), "{engine:?}");
        assert_eq!(tick(&world).await, done(1, 0), "{engine:?}");
        let received = receiver.received();
        let statuses = received.iter().map(|got| reported(&serde_json::from_slice(&got.body).unwrap()));
        let alice = vec!["alice".to_owned()];
        let expected = ["SUSPENDED", "SUSPENDED", "ACTIVE"].map(|status| (status.to_owned(), alice.clone()));
        assert_eq!(statuses.collect::<Vec<_>>(), expected, "{engine:?}");
        let stored = rows(world.db()).await;
        for (got, row) in received.iter().zip([&stored[0], &stored[0], &stored[1]]) {
            assert_eq!(
                (got.headers["webhook-id"].to_str().unwrap(), &got.body[..]),
                (row.0.as_str(), row.8.as_bytes())
            );
            let timestamp = &got.headers["webhook-timestamp"];
            let signed = [row.0.as_bytes(), b".", timestamp.as_bytes(), b".", row.8.as_bytes()].concat();
            assert_eq!(got.headers["webhook-signature"], format!("v1,{}", signature(&signed)));
        }
        assert_eq!(books::events(world.db()).await.len(), 1, "{engine:?}: the deposit's event is there, and muted");
        world.close().await;
    }
}

/// Numbers of the events that an account is reported, and which of both types they are.
async fn feed_of(db: &Db, account: &str, kind: Option<&str>, (after, limit): (u64, u32)) -> Vec<u64> {
    let filter = FeedFilter { account_id: Some(account.to_owned()), kind: kind.map(str::to_owned) };
    let mut reader = db.read().await.unwrap();
    let last = feed::last(&mut reader).await.unwrap();
    let page = feed::page(&mut reader, &filter, (after, last), limit).await.unwrap();
    page.into_iter().map(|event| event.seq).collect()
}

#[tokio::test]
async fn each_account_is_reported_its_own_events_and_its_identitys_in_one_sequence() {
    for engine in ENGINES {
        let mut world = world(engine).await;
        open(world.db(), "default", &["bob"]).await;
        add(world.db(), "acme", &["carol"]).await;
        let mut numberer = Numberer::new(world.db().clone(), "test".to_owned());
        let change = async |world: &World, id: &str, change| {
            world.operator().change_identity(world.db(), id, change).await.unwrap();
            world.pass(Duration::from_secs(1));
        };
        pay(&mut world, &[5]).await;
        world.pass(Duration::from_secs(1));
        change(&world, "default", Change::Suspend).await;
        change(&world, "acme", Change::Suspend).await;
        pay(&mut world, &[7]).await;
        world.pass(Duration::from_secs(1));
        change(&world, "default", Change::Reinstate).await;
        assert_eq!(numberer.tick(world.now()).await.unwrap(), Ticked::Numbered(5));
        let all = (0, 100);
        let (deposit, identity) = (Some("deposit_v2"), Some("identity_status_update"));
        let cases = [
            ("alice", None, all, vec![1, 2, 4, 5]),
            ("alice", None, (0, 2), vec![1, 2]),
            ("alice", None, (2, 1), vec![4]),
            ("alice", None, (4, 9), vec![5]),
            ("alice", deposit, all, vec![1, 4]),
            ("alice", identity, all, vec![2, 5]),
            ("alice", identity, (2, 9), vec![5]),
            ("bob", None, all, vec![2, 5]),
            ("bob", deposit, all, vec![]),
            ("carol", None, all, vec![3]),
            ("acme", None, all, vec![]),
        ];
        for (account, kind, range, expected) in cases {
            assert_eq!(feed_of(world.db(), account, kind, range).await, expected, "{engine:?}: {account} {kind:?}");
        }
        world.close().await;
    }
}

#[tokio::test]
async fn events_of_an_identity_are_listed_and_sent_again_by_each_of_its_accounts() {
    for engine in ENGINES {
        let receiver = Receiver::scripted([]).await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        open(world.db(), "default", &["bob"]).await;
        add(world.db(), "acme", &["carol"]).await;
        for (id, change) in [("default", Change::Suspend), ("acme", Change::Suspend), ("default", Change::Reinstate)] {
            world.operator().change_identity(world.db(), id, change).await.unwrap();
        }
        pay(&mut world, &[5]).await;
        while tick(&world).await != Delivered::default() {}
        assert_eq!(receiver.received().len(), 4, "{engine:?}");
        for (account, expected) in [("alice", 3), ("bob", 2), ("carol", 1), ("nobody", 0)] {
            let account = Some(account.to_owned());
            let filter = EventFilter { account, from: Timestamp::EPOCH, to: Timestamp(i64::MAX), pending: false };
            let (mut found, mut after) = (Vec::new(), None);
            loop {
                let mut reader = world.db().read().await.unwrap();
                // One at a time: also events of one moment are all met.
                let (page, next) = replay::list(&mut reader, &filter, after.as_ref(), 1).await.unwrap();
                found.extend(page);
                if next.is_none() {
                    break;
                }
                after = next;
            }
            assert_eq!(found.len(), expected, "{engine:?}: {filter:?}");
            let before = receiver.received().len();
            let mut tx = world.db().begin().await.unwrap();
            for event in &found {
                assert_eq!(replay::replay(&mut tx, &event.id, None, world.now()).await.unwrap(), 1);
            }
            tx.commit().await.unwrap();
            while tick(&world).await != Delivered::default() {}
            let again: Vec<Value> =
                receiver.received()[before..].iter().map(|got| serde_json::from_slice(&got.body).unwrap()).collect();
            assert_eq!(again.len(), expected, "{engine:?}");
            let statuses =
                again.iter().filter(|event| event["type"] == "identity_status_update").map(|event| reported(event).0);
            let expected = if expected == 1 { vec!["SUSPENDED"] } else { vec!["SUSPENDED", "ACTIVE"] };
            assert!(again.is_empty() || statuses.collect::<Vec<_>>() == expected, "{engine:?}: in their order");
        }
        world.close().await;
    }
}

#[tokio::test]
async fn an_identity_with_very_many_accounts_is_reported_in_parts_that_every_receiver_takes() {
    for engine in ENGINES {
        let store = TestStore::fresh(engine).await;
        for (id, count, parts) in
            [("full", 2 * AFFECTED_MAX, 2), ("more", AFFECTED_MAX + 1, 2), ("few", AFFECTED_MAX, 1)]
        {
            add(&store.db, id, &[]).await;
            // The longest ids there may be, of characters that JSON writes as two.
            let rest = "\\".repeat(128 - 12);
            let text = format!(
                "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count}) \
                 INSERT INTO accounts (id, organization_id, identity_id, type, created_us) \
                 SELECT '{id:>4}' || (10000000 + n) || '{rest}', 'default', '{id}', 'OMNIBUS', n / 3 FROM numbers"
            );
            run(&store.db, AssertSqlSafe(text)).await;
            OLGA.change_identity(&store.db, id, Change::Suspend).await.unwrap();
            let events: Vec<Row> = rows(&store.db).await.into_iter().filter(|row| row.2 == id).collect();
            assert_eq!(
                events.iter().map(|row| row.6).collect::<Vec<_>>(),
                (0..parts).collect::<Vec<_>>(),
                "{engine:?}"
            );
            assert!(events.iter().all(|row| row.8.len() < 1 << 20), "{engine:?}: {} bytes", events[0].8.len());
            let named = events.iter().flat_map(|row| reported(&serde_json::from_str(&row.8).unwrap()).1);
            let mut reader = store.db.read().await.unwrap();
            let (accounts, _) = identities::accounts_behind(&mut reader, id, None, u32::MAX).await.unwrap();
            assert!(named.eq(accounts), "{engine:?}: each account once, oldest first");
        }
    }
}

#[tokio::test]
async fn who_opens_an_account_meanwhile_is_reported_of_or_waits_for_the_change() {
    // SQLite has one writer: there one is over before the other begins.
    let store = TestStore::fresh(Engine::Postgres).await;
    add(&store.db, "acme", &["a"]).await;
    let soon = Duration::from_millis(300);

    let mut opening = store.db.begin().await.unwrap();
    let mut lists = WatchLists::lock(&mut opening, &[].into()).await.unwrap();
    lists.add(&mut opening, &account("b", "acme"), NOW.plus(Duration::from_secs(9))).await.unwrap();
    let (db, mut changing) = (store.db.clone(), JoinSet::new());
    changing.spawn(async move { OLGA.change_identity(&db, "acme", Change::Suspend).await.unwrap() });
    assert!(tokio::time::timeout(soon, changing.join_next()).await.is_err(), "the account is not there yet");
    opening.commit().await.unwrap();
    let suspended: Identity = changing.join_next().await.unwrap().unwrap();
    assert_eq!(reported(&payloads(&store.db).await[0]), ("SUSPENDED".to_owned(), vec!["a".to_owned(), "b".to_owned()]));

    let mut terminating = store.db.begin().await.unwrap();
    identities::lock(&mut terminating, "acme").await.unwrap();
    let terminated = suspended.change(Change::Terminate).unwrap();
    let decided = Decided { at: NOW, actor: "olga", reason: "a test" };
    identities::change(&mut terminating, &suspended, &terminated, &decided).await.unwrap();
    let (db, mut adding) = (store.db.clone(), JoinSet::new());
    adding.spawn(async move { registry::add_accounts(&db, &[account("c", "acme")], NOW).await });
    assert!(tokio::time::timeout(soon, adding.join_next()).await.is_err(), "nobody knows yet whether it may be opened");
    terminating.commit().await.unwrap();
    let refused = adding.join_next().await.unwrap().unwrap().unwrap_err();
    let AddAccountsError::Refused { error: AddAccountError::Closed { status, .. }, .. } = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(status, IdentityStatus::Terminated);
}
