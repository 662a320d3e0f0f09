//! Two real `landfall run` on one PostgreSQL: one numbers the feed, the other takes over from one that hangs, and what
//! hung writes nothing when it goes on. A stop is not held up by who waits for an event.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use landfall::key::{ApiKey, Environment, Scope};
use landfall::registry;
use landfall::store::{Connection, Db, Engine as Connected};
use landfall::time::{Clock, Timestamp};
use sqlx::AssertSqlSafe;

use crate::cli::{CONFIG, Desk};
use crate::harness::postgres::{Engine, TestStore};
use crate::harness::world::tester;

const PATIENCE: Duration = Duration::from_secs(60);
/// The longest wait that may be asked for.
const WAIT: Duration = Duration::from_secs(25);
/// Longer than the second after which who does not hold the lease looks again.
const LOOK: Duration = Duration::from_secs(2);
/// How often is done anew what the machine was too slow for.
const TRIES_MAX: usize = 3;

/// A running `landfall run`; killed when it is dropped.
struct Instance {
    child: Child,
    address: String,
    _desk: Desk,
}

impl Instance {
    fn start(store: &TestStore) -> Self {
        let config = format!("[store]\nurl = \"{}\"\n[admin]\nlisten = \"127.0.0.1:0\"\n{CONFIG}", store.url);
        let desk = Desk::new(&config.replace("[api]\n", "[api]\nlisten = \"127.0.0.1:0\"\n"));
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
        command.current_dir(desk.path("")).arg("run").stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let reported = lines.find_map(|line| Some(line.ok()?.split_once("listening on http://")?.1.to_owned()));
        // What it says later is read, so that it is never held up by it.
        std::thread::spawn(move || lines.for_each(drop));
        let address: String =
            reported.expect("it says where it listens").chars().take_while(|c| !c.is_whitespace()).collect();
        Instance { child, address, _desk: desk }
    }

    fn signal(&self, name: &str) {
        let done = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status().unwrap();
        assert!(done.success());
    }

    /// How long it took to end with 0 after it was asked to.
    async fn stop(mut self) -> Duration {
        let started = Instant::now();
        self.signal("TERM");
        let ended = tokio::task::spawn_blocking(move || self.child.wait().unwrap());
        let status = tokio::time::timeout(PATIENCE, ended).await.expect("it ends").unwrap();
        assert!(status.success(), "{status}");
        started.elapsed()
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes so many events, each in a transaction of its own.
async fn write_events(db: &Db, from: i64, count: i64) {
    for number in from..from + count {
        let text = format!(
            "INSERT INTO events (id, aggregatetype, aggregateid, type, payload, organization_id, account_id, status, nth_entry, \
             position, created_us) VALUES ('e{number}', 'deposit', 'd{number}', 'deposit_v2', '{{}}', 'default', 'a', 'PENDING', \
             0, 0, {number})"
        );
        let mut tx = db.begin().await.unwrap();
        let Connected::Postgres(connection) = tx.engine() else { panic!("PostgreSQL") };
        sqlx::query(AssertSqlSafe(text)).execute(connection).await.unwrap();
        tx.commit().await.unwrap();
    }
}

async fn read<T>(db: &Db, text: &'static str) -> Vec<T>
where
    T: for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow> + Send + Unpin,
{
    let mut reader = db.read().await.unwrap();
    let Connected::Postgres(connection) = reader.engine() else { panic!("PostgreSQL") };
    sqlx::query_as(text).fetch_all(connection).await.unwrap()
}

/// Until so many events are numbered: how long it took.
async fn until_numbered(db: &Db, count: i64) -> Duration {
    let started = Instant::now();
    let numbered = async {
        while read::<(i64,)>(db, "SELECT COUNT(feed_seq) FROM events").await != [(count,)] {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, numbered).await.unwrap_or_else(|_| panic!("{count} events are not numbered"));
    started.elapsed()
}

/// Under which epoch the feed is numbered, and until when.
async fn lease(db: &Db) -> (i64, Timestamp) {
    let (epoch, expires) = read::<(i64, i64)>(db, "SELECT epoch, expires_us FROM leases WHERE name = 'feed'").await[0];
    (epoch, Timestamp(expires))
}

/// The epoch under which more events are numbered, and how many there are then: one process holds the lease, and goes
/// on holding it while the other looks whether it is free. A lease that ran out meanwhile decides nothing.
async fn numbered_under_one_epoch(db: &Db, mut count: i64) -> (i64, i64) {
    for _ in 0..TRIES_MAX {
        let (epoch, expires) = lease(db).await;
        write_events(db, count + 1, 20).await;
        count += 20;
        until_numbered(db, count).await;
        tokio::time::sleep(LOOK).await;
        let (epoch_then, _) = lease(db).await;
        if Clock::system().now() < expires {
            assert_eq!(epoch_then, epoch, "one holds it, and goes on holding it");
            return (epoch, count);
        }
    }
    panic!("{TRIES_MAX} times the lease ran out while nobody was stopped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_processes_numbers_and_the_other_takes_over_from_one_that_hangs() {
    let store = TestStore::fresh(Engine::Postgres).await;
    let (one, other) = (Instance::start(&store), Instance::start(&store));
    write_events(&store.db, 1, 20).await;
    until_numbered(&store.db, 20).await;
    let before: Vec<(String, i64)> = read(&store.db, "SELECT id, feed_seq FROM events ORDER BY id").await;
    let (epoch, mut expected) = numbered_under_one_epoch(&store.db, 20).await;
    // One of them is the holder at first, and the other is when that hangs.
    for hanging in [&one, &other, &one] {
        hanging.signal("STOP");
        write_events(&store.db, expected + 1, 20).await;
        expected += 20;
        println!("numbered {:?} after one of two processes was stopped", until_numbered(&store.db, expected).await);
        // It goes on while the other works.
        write_events(&store.db, expected + 1, 20).await;
        hanging.signal("CONT");
        expected += 20;
        until_numbered(&store.db, expected).await;
    }
    assert!(lease(&store.db).await.0 > epoch, "nobody ever took over");
    let after: Vec<(i64,)> = read(&store.db, "SELECT feed_seq FROM events ORDER BY feed_seq").await;
    assert_eq!(after, (1..=expected).map(|seq| (seq,)).collect::<Vec<_>>());
    let text = "SELECT id, feed_seq FROM events WHERE feed_seq <= 20 ORDER BY id";
    assert_eq!(read::<(String, i64)>(&store.db, text).await, before, "a number was changed");
    for instance in [one, other] {
        instance.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_stopped_answers_who_waits_and_ends() {
    let store = TestStore::fresh(Engine::Postgres).await;
    let what = ("test", &Scope::Read.into());
    let (random, by) = ([3; ApiKey::RANDOM_BYTES], tester(Timestamp(1)));
    let key = registry::create_key(&store.db, Environment::Test, what, &random, &by).await.unwrap();
    write_events(&store.db, 1, 1).await;
    for _ in 0..TRIES_MAX {
        let (answer, took) = stopped_while_one_waits(&store, &key).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("{\"events\":[],\"next\":1}"), "{answer}");
        // Later it says nothing of the stop: the time of the wait was over.
        if took < WAIT {
            return;
        }
    }
    panic!("who waits is not answered before its time is over");
}

/// What a request for an event that does not come is answered by a process that is stopped, and how long it took.
async fn stopped_while_one_waits(store: &TestStore, key: &ApiKey) -> (String, Duration) {
    let instance = Instance::start(store);
    until_numbered(&store.db, 1).await;
    let used = async || read::<(Option<i64>,)>(&store.db, "SELECT last_used_us FROM api_keys").await;
    let before = used().await;
    let get =
        format!("GET /v2/events?after=1&wait=25 HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {}\r\n\r\n", key.reveal());
    let (address, begun) = (instance.address.clone(), Instant::now());
    let asked = tokio::task::spawn_blocking(move || {
        use std::io::{Read as _, Write as _};
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(get.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        (answer, begun.elapsed())
    });
    // When the use of its key is on record, it is past the door.
    let is_used = async {
        while used().await == before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, is_used).await.unwrap();
    println!("stopped {:?} after it was asked to, with a request that waits", instance.stop().await);
    asked.await.unwrap()
}

#[tokio::test]
async fn what_a_paused_process_has_locked_is_free_after_ten_seconds() {
    let store = TestStore::fresh(Engine::Postgres).await;
    // As a process opens it: the store of a test waits for as long as it takes.
    let db = Db::open(&store.url.parse().unwrap()).await.unwrap();
    let text = "SHOW idle_in_transaction_session_timeout";
    assert_eq!(read::<(String,)>(&db, text).await, [("10s".to_owned(),)]);
}
