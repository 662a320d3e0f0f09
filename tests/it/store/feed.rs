//! The feed's numbers: given once, without gaps, in the order of commits, by one process at a time. So it is after a
//! crash, a pause, with a clock that is wrong, and for events that are older than the feed.

use std::task::Poll;
use std::time::{Duration, Instant};

use landfall::event::{Event, TestEvent};
use landfall::feed::{Numberer, Ticked};
use landfall::store::events::{self, History};
use landfall::store::feed::{self, FeedFilter, Numbered};
use landfall::store::{Connection, Db, Engine as Connected, StoreError, Tx, leases};
use landfall::time::Timestamp;
use sqlx::AssertSqlSafe;

use super::cast::{NOW, deposit, insert, prepare, register, rows, run, write};
use crate::harness::lanes::full;
use crate::harness::postgres::{Engine, TestStore};

/// As long as the numberer's own.
const LEASE: Duration = Duration::from_secs(10);
const SECOND: Duration = Duration::from_secs(1);

on_both_engines!(
    events_are_numbered_once_without_gaps_in_the_order_of_their_times,
    an_earlier_event_of_a_deposit_has_the_lower_number_whatever_the_clocks_said,
    one_numbers_at_a_time_and_another_takes_over_from_who_is_gone,
    a_holder_that_was_paused_beyond_its_lease_writes_nothing,
    a_lease_from_a_clock_that_is_ahead_holds_nobody_up,
    a_lease_that_is_renewed_after_another_read_its_clock_stays_with_its_holder,
    a_numbering_that_is_cut_off_anywhere_leaves_no_gap_and_numbers_nothing_twice,
    many_events_are_numbered_in_their_order_and_in_batches,
    what_shows_that_a_webhook_works_is_not_in_the_feed,
    a_page_has_what_its_filter_lets_through,
    pages_and_numbering_use_their_indexes,
    the_columns_are_those_of_debeziums_outbox_router_and_events_are_only_added,
);

fn numberer(store: &TestStore, owner: &str) -> Numberer {
    Numberer::new(store.db.clone(), owner.to_owned())
}

/// Writes the event of a deposit that has entered its next status, at a time.
async fn announce(store: &TestStore, tag: u8, at: Timestamp) -> String {
    let mut tx = store.db.begin().await.unwrap();
    let id = announce_in(&mut tx, tag, at).await;
    tx.commit().await.unwrap();
    id
}

async fn announce_in(tx: &mut Tx, tag: u8, at: Timestamp) -> String {
    let pending = deposit(tag);
    let history = History::of(tx, pending.id).await.unwrap();
    let entries = history.entries(pending.status);
    let event = if history.entries(pending.status) == 0 {
        Event::entered(&pending, 0)
    } else if history.entries(pending.clone().fail().unwrap().status) < entries {
        Event::entered(&pending.fail().unwrap(), entries - 1)
    } else {
        Event::entered(&pending, entries)
    };
    events::append(tx, &event, &history, at).await.unwrap();
    event.id.to_string()
}

/// The ids of what is numbered; asserts that the numbers are 1, 2, 3 ..
async fn numbered(db: &Db) -> Vec<String> {
    let found: Vec<(i64, String)> =
        rows(db, "SELECT feed_seq, id FROM events WHERE feed_seq IS NOT NULL ORDER BY feed_seq").await;
    for (index, (seq, _)) in (1..).zip(&found) {
        assert_eq!(*seq, index, "the numbers have a gap: {found:?}");
    }
    found.into_iter().map(|(_, id)| id).collect()
}

async fn unnumbered(db: &Db) -> i64 {
    rows::<(i64,)>(db, "SELECT COUNT(*) FROM events WHERE feed_seq IS NULL").await[0].0
}

/// Asserts that of each deposit an earlier event has the lower number.
async fn assert_in_order(db: &Db) {
    let text = "SELECT COUNT(*) FROM events AS a JOIN events AS b ON a.aggregateid = b.aggregateid \
                AND a.position < b.position WHERE b.feed_seq IS NOT NULL AND (a.feed_seq IS NULL OR a.feed_seq > b.feed_seq)";
    assert_eq!(rows::<(i64,)>(db, text).await, [(0,)], "a later event of a deposit overtook an earlier one");
}

async fn page(db: &Db, filter: &FeedFilter, after: u64, limit: u32) -> Vec<Numbered> {
    let mut reader = db.read().await.unwrap();
    let last = feed::last(&mut reader).await.unwrap();
    feed::page(&mut reader, filter, (after, last), limit).await.unwrap()
}

fn id_of(event: &Numbered) -> String {
    let envelope: serde_json::Value = serde_json::from_str(&event.payload).unwrap();
    envelope["id"].as_str().unwrap().to_owned()
}

async fn events_are_numbered_once_without_gaps_in_the_order_of_their_times(store: TestStore) {
    prepare(&store).await;
    let mut numberer = numberer(&store, "a");
    assert_eq!(numberer.tick(NOW).await.unwrap(), Ticked::Numbered(0));
    let mut expected = Vec::new();
    for (tag, secs) in [(1, 3), (2, 1), (3, 2)] {
        write(&store, async |tx| landfall::store::deposits::insert(tx, &deposit(tag)).await.unwrap()).await;
        expected.push((secs, announce(&store, tag, NOW.plus(SECOND * secs)).await));
    }
    expected.sort();
    assert_eq!(numberer.tick(NOW).await.unwrap(), Ticked::Numbered(3));
    let mut expected: Vec<String> = expected.into_iter().map(|(_, id)| id).collect();
    assert_eq!(numbered(&store.db).await, expected);
    // Older by its time, but later: behind.
    expected.push(announce(&store, 2, NOW).await);
    assert_eq!(numberer.tick(NOW).await.unwrap(), Ticked::Numbered(1));
    assert_eq!(numberer.tick(NOW).await.unwrap(), Ticked::Numbered(0));
    assert_eq!(numbered(&store.db).await, expected);
}

async fn an_earlier_event_of_a_deposit_has_the_lower_number_whatever_the_clocks_said(store: TestStore) {
    for tag in 1..=3 {
        insert_once(&store, tag).await;
    }
    // Who wrote the later events had a clock that was behind.
    for (tag, secs) in [(1, 90), (1, 10), (1, 50), (2, 40), (2, 5), (3, 20)] {
        announce(&store, tag, NOW.plus(SECOND * secs)).await;
    }
    let mut tx = store.db.begin().await.unwrap();
    // One event is wanted, and what its deposit has before it comes with it.
    assert_eq!(feed::number(&mut tx, 1).await.unwrap(), 2);
    tx.commit().await.unwrap();
    assert_in_order(&store.db).await;
    assert_eq!(numberer(&store, "a").tick(NOW).await.unwrap(), Ticked::Numbered(4));
    assert_in_order(&store.db).await;
    assert_eq!(numbered(&store.db).await.len(), 6);
}

async fn insert_once(store: &TestStore, tag: u8) {
    if rows::<(i64,)>(&store.db, "SELECT COUNT(*) FROM accounts").await == [(0,)] {
        prepare(store).await;
    }
    write(store, async |tx| landfall::store::deposits::insert(tx, &deposit(tag)).await.unwrap()).await;
}

async fn one_numbers_at_a_time_and_another_takes_over_from_who_is_gone(store: TestStore) {
    insert_once(&store, 1).await;
    let (mut one, mut other) = (numberer(&store, "one"), numberer(&store, "other"));
    assert_eq!(one.tick(NOW).await.unwrap(), Ticked::Numbered(0));
    announce(&store, 1, NOW).await;
    assert_eq!(other.tick(NOW.plus(LEASE / 2)).await.unwrap(), Ticked::Aside);
    assert_eq!(unnumbered(&store.db).await, 1, "it is not its turn");
    // With nothing to number the holder still says that it is there.
    assert_eq!(one.tick(NOW.plus(LEASE / 2)).await.unwrap(), Ticked::Numbered(1));
    assert_eq!(one.tick(NOW.plus(LEASE)).await.unwrap(), Ticked::Numbered(0));
    assert_eq!(other.tick(NOW.plus(LEASE + SECOND)).await.unwrap(), Ticked::Aside);
    // The holder is gone; then it comes back as another, and must wait in its turn.
    announce(&store, 1, NOW).await;
    assert_eq!(other.tick(NOW.plus(LEASE * 2)).await.unwrap(), Ticked::Numbered(1));
    assert_eq!(numberer(&store, "one again").tick(NOW.plus(LEASE * 2)).await.unwrap(), Ticked::Aside);
    // Who stops in an orderly way lets others go on at once.
    other.release().await.unwrap();
    announce(&store, 1, NOW).await;
    assert_eq!(numberer(&store, "one again").tick(NOW.plus(LEASE * 2)).await.unwrap(), Ticked::Numbered(1));
    assert_eq!(numbered(&store.db).await.len(), 3);
}

async fn a_holder_that_was_paused_beyond_its_lease_writes_nothing(store: TestStore) {
    insert_once(&store, 1).await;
    let (mut paused, mut other) = (numberer(&store, "paused"), numberer(&store, "other"));
    assert_eq!(paused.tick(NOW).await.unwrap(), Ticked::Numbered(0));
    announce(&store, 1, NOW).await;
    assert_eq!(other.tick(NOW.plus(LEASE)).await.unwrap(), Ticked::Numbered(1));
    announce(&store, 1, NOW).await;
    // It goes on where it stood, and by its own clock its lease is good.
    assert_eq!(paused.tick(NOW.plus(SECOND)).await.unwrap(), Ticked::Aside);
    assert_eq!(unnumbered(&store.db).await, 1, "a fenced holder numbered an event");
    paused.release().await.unwrap();
    assert_eq!(other.tick(NOW.plus(LEASE)).await.unwrap(), Ticked::Numbered(1), "nor did it end the other's lease");
    assert_eq!(numbered(&store.db).await.len(), 2);
}

async fn a_lease_from_a_clock_that_is_ahead_holds_nobody_up(store: TestStore) {
    insert_once(&store, 1).await;
    let mut ahead = numberer(&store, "ahead");
    ahead.tick(NOW.plus(LEASE * 1_000)).await.unwrap();
    announce(&store, 1, NOW).await;
    let mut other = numberer(&store, "other");
    assert_eq!(other.tick(NOW).await.unwrap(), Ticked::Numbered(1));
    announce(&store, 1, NOW).await;
    assert_eq!(ahead.tick(NOW.plus(LEASE * 1_000)).await.unwrap(), Ticked::Aside, "and it is fenced off");
    assert_eq!(numbered(&store.db).await.len(), 1);
}

async fn a_lease_that_is_renewed_after_another_read_its_clock_stays_with_its_holder(store: TestStore) {
    insert_once(&store, 1).await;
    announce(&store, 1, NOW).await;
    let (mut holder, mut other) = (numberer(&store, "holder"), numberer(&store, "other"));
    assert_eq!(holder.tick(NOW.plus(SECOND)).await.unwrap(), Ticked::Numbered(1));
    announce(&store, 1, NOW).await;
    assert_eq!(other.tick(NOW).await.unwrap(), Ticked::Aside);
    assert_eq!(holder.tick(NOW.plus(SECOND)).await.unwrap(), Ticked::Numbered(1));
}

async fn a_numbering_that_is_cut_off_anywhere_leaves_no_gap_and_numbers_nothing_twice(store: TestStore) {
    const TRIES: u8 = 80;
    // More than there are in the work; how many there are depends on how quick the database is.
    const AWAITS_MAX: u8 = 16;
    prepare(&store).await;
    let mut before: Vec<String> = Vec::new();
    let (mut cut_off, mut whole) = (0, 0);
    for tag in 1..=TRIES {
        insert_once(&store, tag).await;
        announce(&store, tag, NOW).await;
        announce(&store, tag, NOW).await;
        // Each is a process of its own, which takes over from one that was killed.
        let mut numberer = numberer(&store, &tag.to_string());
        let mut work = Box::pin(numberer.tick(NOW.plus(LEASE * u32::from(tag))));
        let mut awaits_left = tag % AWAITS_MAX;
        let ended = std::future::poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(ticked) => Poll::Ready(Some(ticked.unwrap())),
            Poll::Pending if awaits_left == 0 => Poll::Ready(None),
            Poll::Pending => {
                awaits_left -= 1;
                Poll::Pending
            }
        });
        match ended.await {
            Some(_) => whole += 1,
            None => cut_off += 1,
        }
        drop(work);
        let now = numbered(&store.db).await;
        assert_eq!(now[..before.len()], before, "a number was given again");
        before = now;
    }
    assert!(cut_off > 0 && whole > 0, "{cut_off} cut off, {whole} not: some must be, and some must not");
    let mut last = numberer(&store, "last");
    while last.tick(NOW.plus(LEASE * 1_000)).await.unwrap() != Ticked::Numbered(0) {}
    assert_eq!(numbered(&store.db).await.len(), usize::from(TRIES) * 2);
    assert_in_order(&store.db).await;
}

async fn many_events_are_numbered_in_their_order_and_in_batches(store: TestStore) {
    const DEPOSITS: i64 = 600;
    for (status, position, later) in [("PENDING", 0, 0), ("CONFIRMED", 1, 2_500)] {
        // Two at a time.
        run_text(&store.db, &made_up("account", status, position, DEPOSITS, &format!("(n / 2) * 1000 + {later}")))
            .await;
    }
    assert_eq!(unnumbered(&store.db).await, DEPOSITS * 2);
    let (mut numberer, mut batches) = (numberer(&store, "a"), Vec::new());
    loop {
        match numberer.tick(NOW).await.unwrap() {
            Ticked::Numbered(0) => break,
            Ticked::Numbered(count) => batches.push(count),
            Ticked::Aside => panic!("nobody else is there"),
        }
    }
    assert_eq!(batches, [500, 500, 200]);
    let expected = "SELECT id FROM events ORDER BY created_us, aggregateid, position";
    let expected: Vec<(String,)> = rows(&store.db, expected).await;
    let expected: Vec<String> = expected.into_iter().map(|(id,)| id).collect();
    assert_eq!(numbered(&store.db).await, expected);
    assert_in_order(&store.db).await;
}

/// Inserts so many events of as many deposits, one for each.
fn made_up(account: &str, status: &str, position: u8, count: i64, created_us: &str) -> String {
    format!(
        "WITH RECURSIVE numbers (n) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT n + 1 FROM numbers WHERE n < {count}) \
         INSERT INTO events (id, aggregatetype, aggregateid, type, payload, organization_id, account_id, status, nth_entry, \
         position, created_us) SELECT '{account}-{status}-' || n, 'deposit', '{account}-' || n, 'deposit_v2', '{{}}', 'default', \
         '{account}', '{status}', 0, {position}, {created_us} FROM numbers"
    )
}

async fn run_text(db: &Db, text: &str) {
    let mut tx = db.begin().await.unwrap();
    let text = AssertSqlSafe(text.to_owned());
    match tx.engine() {
        Connected::Postgres(connection) => drop(sqlx::query(text).execute(connection).await.unwrap()),
        Connected::Sqlite(connection) => drop(sqlx::query(text).execute(connection).await.unwrap()),
    }
    tx.commit().await.unwrap();
}

async fn what_shows_that_a_webhook_works_is_not_in_the_feed(store: TestStore) {
    insert(&store, deposit(1)).await;
    register(&store, "hook").await;
    let event = TestEvent::new("hook", &[7; 32], NOW);
    write(&store, async |tx| events::append_test(tx, &event, NOW).await.unwrap()).await;
    let announced = announce(&store, 1, NOW.plus(SECOND)).await;
    assert_eq!(numberer(&store, "a").tick(NOW).await.unwrap(), Ticked::Numbered(1));
    assert_eq!(numbered(&store.db).await, [announced]);
    let mut reader = store.db.read().await.unwrap();
    assert_eq!(feed::oldest_unnumbered(&mut reader).await.unwrap(), None, "and waits for no number");
}

async fn a_page_has_what_its_filter_lets_through(store: TestStore) {
    for account in ["a", "b"] {
        run_text(&store.db, &made_up(account, "PENDING", 0, 6, "n")).await;
    }
    run(&store.db, "UPDATE events SET type = 'other' WHERE aggregateid IN ('a-2', 'b-2', 'b-6')").await;
    assert_eq!(numberer(&store, "a").tick(NOW).await.unwrap(), Ticked::Numbered(12));
    let all: Vec<(i64, String, String)> =
        rows(&store.db, "SELECT feed_seq, account_id, type FROM events ORDER BY feed_seq").await;
    let accounts = [None, Some("a"), Some("b"), Some("c")];
    let kinds = [None, Some("deposit_v2"), Some("other"), Some("none")];
    for (account, kind) in accounts.iter().flat_map(|account| kinds.map(|kind| (account, kind))) {
        let filter = FeedFilter { account_id: account.map(str::to_owned), kind: kind.map(str::to_owned) };
        for after in 0..=12 {
            for limit in [1, 3, 100] {
                let wanted = all.iter().filter(|(seq, of_account, of_kind)| {
                    *seq > after
                        && account.is_none_or(|account| account == of_account)
                        && kind.is_none_or(|kind| kind == of_kind)
                });
                let wanted: Vec<i64> = wanted.map(|(seq, ..)| *seq).take(limit).collect();
                let found = page(&store.db, &filter, after.try_into().unwrap(), limit.try_into().unwrap()).await;
                let found: Vec<i64> = found.iter().map(|event| event.seq.try_into().unwrap()).collect();
                assert_eq!(found, wanted, "{filter:?} after {after}, {limit} at most");
            }
        }
    }
    // Nothing above what was asked for, though it is there.
    let mut reader = store.db.read().await.unwrap();
    let found = feed::page(&mut reader, &FeedFilter::default(), (3, 5), 100).await.unwrap();
    assert_eq!(found.iter().map(|event| event.seq).collect::<Vec<_>>(), [4, 5]);
}

/// What a page reads, with values for its parameters; which index it must use, and how many of its columns must find
/// the rows.
const PLANS: [(&str, &str, &[&str]); 5] = [
    ("feed::PAGE", "events_feed", &[]),
    ("feed::PAGE_OF_ACCOUNT", "events_feed_account", &["early"]),
    ("feed::PAGE_OF_TYPE", "events_feed_type", &["rare"]),
    ("feed::PAGE_OF_BOTH", "events_feed_account_type", &["most", "rare"]),
    ("feed::PAGE_OF_IDENTITY", "events_feed_identity", &["most"]),
];

/// The full run makes 10,000,000 events, and the output says what reading them takes.
async fn pages_and_numbering_use_their_indexes(store: TestStore) {
    let count: i64 = if full() { 10_000_000 } else { 30_000 };
    println!("{count} events");
    // A third is of an account that has them all at the beginning: who guesses that the rest has as many walks over it.
    let early = count / 3;
    for (account, from, to) in [("early", 0, early), ("most", early, count)] {
        for from in (from..to).step_by(100_000) {
            run_text(&store.db, &made_up_numbered(account, from, to.min(from + 100_000))).await;
        }
    }
    assert_eq!(feed::last(&mut store.db.read().await.unwrap()).await.unwrap(), u64::try_from(count).unwrap());
    run(&store.db, "ANALYZE").await;
    for (name, index, values) in PLANS {
        let plan = explain(&store.db, name, (early + 100, count), values).await;
        println!("{name}: {plan}");
        let uses = plan.contains(&format!("{index} ")) || plan.contains(&format!("{index}\n"));
        assert!(
            uses && !plan.contains("Seq Scan") && !plan.contains("Sort") && !plan.contains("TEMP B-TREE"),
            "{name}: {plan}"
        );
        assert!(!plan.contains("Filter:"), "{name} reads rows that it does not show: {plan}");
    }
    let mut longest = Duration::ZERO;
    let mut reader = store.db.read().await.unwrap();
    for kind in [None, Some("rare"), Some("deposit_v2")] {
        for account in [None, Some("early"), Some("most"), Some("nobody")] {
            let filter = FeedFilter { account_id: account.map(str::to_owned), kind: kind.map(str::to_owned) };
            for after in (0..count).step_by(usize::try_from(count / 20).unwrap()) {
                let started = Instant::now();
                let last = feed::last(&mut reader).await.unwrap();
                feed::page(&mut reader, &filter, (after.try_into().unwrap(), last), 100).await.unwrap();
                longest = longest.max(started.elapsed());
            }
        }
    }
    println!("the longest of 240 pages took {longest:?}");
    drop(reader);
    run_text(&store.db, &made_up("new", "PENDING", 0, 1_000, "n")).await;
    let started = Instant::now();
    assert_eq!(numberer(&store, "a").tick(NOW).await.unwrap(), Ticked::Numbered(500));
    println!("numbering 500 of 1,000 new events took {:?}", started.elapsed());
}

/// Inserts the events with these numbers, `to` inclusive; one in 100,000 is of a rare type, and the first of them are.
fn made_up_numbered(account: &str, from: i64, to: i64) -> String {
    format!(
        "WITH RECURSIVE numbers (n) AS (SELECT CAST({from} + 1 AS BIGINT) UNION ALL SELECT n + 1 FROM numbers WHERE n < {to}) \
         INSERT INTO events (id, aggregatetype, aggregateid, type, payload, organization_id, account_id, status, nth_entry, \
         position, created_us, feed_seq) SELECT 'numbered-' || n, 'deposit', 'd-' || n, \
         CASE WHEN n % 100000 < 10 THEN 'rare' ELSE 'deposit_v2' END, '{{}}', 'default', '{account}', 'PENDING', 0, 0, n, n FROM numbers"
    )
}

/// The plan of a page's text with values in the place of its parameters.
async fn explain(db: &Db, name: &str, (after, through): (i64, i64), values: &[&str]) -> String {
    let sql = landfall::store::statements().find(|sql| sql.name.ends_with(name)).unwrap();
    let mut text = sql.postgres.to_owned();
    let mut literals = vec!["'default'".to_owned(), after.to_string(), through.to_string(), "100".to_owned()];
    literals.extend(values.iter().map(|value| format!("'{value}'")));
    for (number, literal) in (1..).zip(literals) {
        text = text.replace(&format!("${number}"), &literal);
    }
    let mut reader = db.read().await.unwrap();
    match reader.engine() {
        Connected::Postgres(connection) => {
            let text = AssertSqlSafe(format!("EXPLAIN {text}"));
            let steps: Vec<(String,)> = sqlx::query_as(text).fetch_all(connection).await.unwrap();
            steps.into_iter().map(|(step,)| step + "\n").collect()
        }
        Connected::Sqlite(connection) => {
            let text = AssertSqlSafe(format!("EXPLAIN QUERY PLAN {text}"));
            let steps: Vec<(i64, i64, i64, String)> = sqlx::query_as(text).fetch_all(connection).await.unwrap();
            steps.into_iter().map(|(.., step)| step + "\n").collect()
        }
    }
}

/// The Outbox Event Router's defaults: the columns that it looks for, and that updates of the table are none of its
/// business.
async fn the_columns_are_those_of_debeziums_outbox_router_and_events_are_only_added(store: TestStore) {
    insert(&store, deposit(1)).await;
    let id = announce(&store, 1, NOW).await;
    let text = "SELECT id, aggregatetype, aggregateid, type, payload FROM events";
    let before: Vec<(String, String, String, String, String)> = rows(&store.db, text).await;
    let deposit = deposit(1);
    let payload = Event::entered(&deposit, 0).payload;
    let expected = (id, "deposit".to_owned(), deposit.id.to_string(), "deposit_v2".to_owned(), payload);
    assert_eq!(before, [expected]);
    assert_eq!(numberer(&store, "a").tick(NOW).await.unwrap(), Ticked::Numbered(1));
    let after: Vec<(String, String, String, String, String)> = rows(&store.db, text).await;
    assert_eq!(after, before, "the number changes nothing of what is routed");
}

/// Two transactions: the later number commits first. Who reads by a number that the database gives at insertion skips
/// the other for ever; who reads the feed does not.
#[tokio::test]
async fn an_event_that_commits_late_is_not_skipped() {
    let store = TestStore::fresh(Engine::Postgres).await;
    for tag in 1..=2 {
        insert_once(&store, tag).await;
    }
    run(&store.db, "CREATE TABLE naive (seq BIGINT GENERATED ALWAYS AS IDENTITY, event_id TEXT)").await;
    let note = async |tx: &mut Tx, id: &str| {
        let Connected::Postgres(connection) = tx.engine() else { panic!("PostgreSQL") };
        sqlx::query("INSERT INTO naive (event_id) VALUES ($1)").bind(id).execute(connection).await.unwrap();
    };
    let (mut early, mut late) = (store.db.begin().await.unwrap(), store.db.begin().await.unwrap());
    let first = announce_in(&mut early, 1, NOW).await;
    note(&mut early, &first).await;
    let second = announce_in(&mut late, 2, NOW.plus(SECOND)).await;
    note(&mut late, &second).await;
    late.commit().await.unwrap();

    let mut numberer = numberer(&store, "a");
    numberer.tick(NOW).await.unwrap();
    let seen = page(&store.db, &FeedFilter::default(), 0, 10).await;
    assert_eq!(seen.iter().map(id_of).collect::<Vec<_>>(), [second.as_str()]);
    let naive: Vec<(i64, String)> = rows(&store.db, "SELECT seq, event_id FROM naive WHERE seq > 0 ORDER BY seq").await;
    assert_eq!(naive, [(2, second.clone())]);

    early.commit().await.unwrap();
    numberer.tick(NOW).await.unwrap();
    let naive: Vec<(i64, String)> = rows(&store.db, "SELECT seq, event_id FROM naive WHERE seq > 2 ORDER BY seq").await;
    assert_eq!(naive, [], "this is the gap: who goes on behind 2 never reads 1");
    let seen = page(&store.db, &FeedFilter::default(), seen[0].seq, 10).await;
    assert_eq!(
        seen.iter().map(id_of).collect::<Vec<_>>(),
        [first.as_str()],
        "the event that committed late was skipped"
    );
    assert_eq!(numbered(&store.db).await, [second, first]);
}

/// Paused where it hurts most: behind the fence, before its commit.
#[tokio::test]
async fn a_holder_that_is_paused_within_its_transaction_numbers_alone_or_not_at_all() {
    let store = TestStore::fresh(Engine::Postgres).await;
    insert_once(&store, 1).await;
    announce(&store, 1, NOW).await;
    let mut tx = store.db.begin().await.unwrap();
    let lease = leases::take(&mut tx, "feed", "paused", NOW, LEASE).await.unwrap().unwrap();
    tx.commit().await.unwrap();
    for commits in [false, true] {
        let mut paused = store.db.begin().await.unwrap();
        assert!(leases::hold(&mut paused, &lease, NOW.plus(LEASE)).await.unwrap());
        assert_eq!(feed::number(&mut paused, 10).await.unwrap(), 1);
        let mut other = numberer(&store, "other");
        let waits: Result<Ticked, StoreError> = other.tick(NOW.plus(LEASE)).await;
        assert!(waits.as_ref().is_err_and(StoreError::may_pass), "{waits:?}");
        assert_eq!(unnumbered(&store.db).await, 1);
        if commits {
            paused.commit().await.unwrap();
            assert_eq!(other.tick(NOW.plus(LEASE * 2)).await.unwrap(), Ticked::Numbered(0));
        } else {
            drop(paused);
        }
    }
    assert_eq!(numbered(&store.db).await.len(), 1);
    let mut tx = store.db.begin().await.unwrap();
    assert!(!leases::hold(&mut tx, &lease, NOW.plus(LEASE)).await.unwrap(), "now the other has it");
}
