//! `GET /v2/events`: what a reader of the feed is given, how it goes on, how it waits, and that those who wait take
//! nothing from others. How events get their numbers is `store::feed`'s to test.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use landfall::api::{Api, Limits, Settings, openapi_json};
use landfall::deposit::{Deposit, DepositStatus};
use landfall::event::{Event, TestEvent};
use landfall::feed::{Numberer, Ticked};
use landfall::identity::Change;
use landfall::key::{ApiKey, Environment, Scope};
use landfall::operator::Operator;
use landfall::overrides::Author;
use landfall::registry::{self, NewWebhook};
use landfall::resolver::Resolver;
use landfall::store::deposits;
use landfall::store::events::{self, History};
use landfall::store::feed::{self, FeedFilter};
use landfall::time::{Clock, Timestamp};
use landfall::webhook::AllowedNetworks;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::api::json_schema::{assert_valid, faults};
use crate::api::{deposit, ensure_account};
use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::world::tester;

const NOON: i64 = 1_750_000_000_000_000;
const NOW: Timestamp = Timestamp(NOON);
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// The longest wait that may be asked for.
const WAIT: Duration = Duration::from_secs(25);
const PAUSE: Duration = Duration::from_millis(10);
/// How often a request is sent that may be given the seat of another whose time was just over.
const TRIES_MAX: usize = 3;
const BAD_INTEGER: &str = "must be an integer from 0 to";

/// A served store with one key, a numberer that is driven, and the loop that wakes requests.
struct Feed {
    store: TestStore,
    api: Api,
    key: ApiKey,
    numberer: Numberer,
    stop: CancellationToken,
    made: u32,
    /// How often requests that wait on and on were sent again.
    sent_again: Arc<AtomicUsize>,
    _running: JoinSet<()>,
}

struct Answer {
    status: StatusCode,
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    events: Vec<Entry>,
    next: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    seq: u64,
    event: Box<RawValue>,
}

impl Feed {
    async fn on(engine: Engine, limits: Limits) -> Self {
        let store = TestStore::fresh(engine).await;
        let (random, stop) = ([1; ApiKey::RANDOM_BYTES], CancellationToken::new());
        let what = ("test", &Scope::Read.into());
        let key = registry::create_key(&store.db, Environment::Test, what, &random, &tester(NOW)).await.unwrap();
        let settings = Settings { limits, ..Settings::of(Environment::Test) };
        let api = Api::new(store.db.clone(), settings, Clock::system()).stopped_by(stop.clone());
        let mut running = JoinSet::new();
        running.spawn(api.clone().run(stop.clone()));
        let numberer = Numberer::new(store.db.clone(), "test".to_owned());
        Feed { store, api, key, numberer, stop, made: 0, sent_again: Arc::default(), _running: running }
    }

    /// A key beside those that there are.
    async fn another_key(&mut self) -> ApiKey {
        self.made += 1;
        let mut random = [0; ApiKey::RANDOM_BYTES];
        random[..4].copy_from_slice(&self.made.to_be_bytes());
        let what = ("another", &Scope::Read.into());
        registry::create_key(&self.store.db, Environment::Test, what, &random, &tester(NOW)).await.unwrap()
    }

    /// A new deposit of this account, announced and numbered; its event's bytes.
    async fn announce(&mut self, account: &str) -> String {
        self.made += 1;
        let deposit = Deposit { account_id: account.to_owned(), ..deposit(self.made, NOON) };
        let event = Event::entered(&deposit, 0);
        let mut tx = self.store.db.begin().await.unwrap();
        ensure_account(&mut tx, account).await;
        deposits::insert(&mut tx, &deposit).await.unwrap();
        let history = History::of(&mut tx, deposit.id).await.unwrap();
        events::append(&mut tx, &event, &history, NOW.plus(Duration::from_secs(self.made.into()))).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(self.numberer.tick(NOW).await.unwrap(), Ticked::Numbered(1));
        event.payload
    }

    /// Suspends an identity; its event's bytes.
    async fn suspend(&mut self, identity: &str) -> String {
        let operator = Operator { actor: "olga", reason: "a test", now: NOW, dry_run: false };
        operator.change_identity(&self.store.db, identity, Change::Suspend).await.unwrap();
        assert_eq!(self.numberer.tick(NOW).await.unwrap(), Ticked::Numbered(1));
        let mut reader = self.store.db.read().await.unwrap();
        let last = feed::last(&mut reader).await.unwrap();
        feed::page(&mut reader, &FeedFilter::default(), (last - 1, last), 1).await.unwrap().remove(0).payload
    }

    async fn get(&self, query: &str) -> Answer {
        get(&self.api, &self.key, &format!("/v2/events{query}")).await
    }

    async fn list(&self, query: &str) -> List {
        self.get(query).await.list()
    }

    /// A request that is under way.
    fn ask(&self, asking: &mut JoinSet<Answer>, query: &str) {
        let (api, key, path) = (self.api.clone(), self.key.clone(), format!("/v2/events{query}"));
        asking.spawn(async move { get(&api, &key, &path).await });
    }

    /// A request that waits on and on: it is sent again when its time is over, and when others took the room meanwhile.
    fn ask_on(&self, asking: &mut JoinSet<Answer>, query: &str) {
        let (api, key, path) = (self.api.clone(), self.key.clone(), format!("/v2/events{query}"));
        let sent_again = Arc::clone(&self.sent_again);
        asking.spawn(async move {
            loop {
                let asked = Instant::now();
                let answer = get(&api, &key, &path).await;
                let goes_on = match answer.status {
                    StatusCode::OK => asked.elapsed() >= WAIT && answer.list().events.is_empty(),
                    status => status == StatusCode::TOO_MANY_REQUESTS || answer.text.contains("OVERLOADED"),
                };
                if !goes_on {
                    return answer;
                }
                sent_again.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(PAUSE).await;
            }
        });
    }

    fn sent_again(&self) -> usize {
        self.sent_again.load(Ordering::Relaxed)
    }

    /// How a request is refused that would wait beside so many others.
    async fn refused_beside(&self, count: usize) -> Answer {
        for _ in 0..TRIES_MAX {
            until_waiting(self, count).await;
            let answer = self.get("?wait=25").await;
            if answer.status != StatusCode::OK {
                return answer;
            }
        }
        panic!("nobody is refused beside {count} that wait");
    }
}

impl Answer {
    fn list(&self) -> List {
        assert_eq!(self.status, StatusCode::OK, "{}", self.text);
        serde_json::from_str(&self.text).unwrap()
    }

    fn detail(&self) -> String {
        let problem: Value = serde_json::from_str(&self.text).unwrap();
        problem["detail"].as_str().unwrap_or_default().to_owned()
    }
}

impl List {
    fn seqs(&self) -> Vec<u64> {
        self.events.iter().map(|entry| entry.seq).collect()
    }
}

async fn get(api: &Api, key: &ApiKey, path: &str) -> Answer {
    let request = Request::get(path).header("authorization", format!("Bearer {}", key.reveal()));
    let response = api.router().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status();
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    Answer { status, text: String::from_utf8(bytes.to_vec()).unwrap() }
}

/// Cuts nothing off, however slow the machine is.
fn patient() -> Limits {
    Limits { request_timeout: PATIENCE, ..Limits::default() }
}

fn no_rates() -> Limits {
    Limits { ip_requests_per_sec: 0, key_requests_per_sec: 0, ..patient() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_feed_gives_the_very_bytes_that_webhooks_are_sent_in_one_sequence() {
    for engine in ENGINES {
        let mut feed = Feed::on(engine, patient()).await;
        let empty = feed.list("").await;
        assert_eq!((empty.seqs(), empty.next), (vec![], 0));
        let mut sent = Vec::new();
        for account in ["a", "b", "a", "b", "a"] {
            sent.push(feed.announce(account).await);
        }
        let all = feed.list("").await;
        assert_eq!((all.seqs(), all.next), (vec![1, 2, 3, 4, 5], 5));
        let given: Vec<&str> = all.events.iter().map(|entry| entry.event.get()).collect();
        assert_eq!(given, sent, "byte for byte");
        let (mut after, mut read) = (0, Vec::new());
        loop {
            let page = feed.list(&format!("?after={after}&limit=2")).await;
            read.extend(page.events.iter().map(|entry| entry.event.get().to_owned()));
            after = page.next;
            if page.events.is_empty() {
                break;
            }
        }
        assert_eq!((read, after), (sent.clone(), 5));
        // A test event of a webhook is sent, and is not in the feed.
        let inside: AllowedNetworks = "0.0.0.0/0".parse().unwrap();
        let hook = NewWebhook { url: "https://203.0.113.1/", label: "", allowed_networks: &inside, ed25519: false };
        let by = Author { actor: "test", reason: "", now: NOW };
        let hook =
            registry::add_webhook(&feed.store.db, Some(&Resolver::system()), &hook, &[9; 84], &by).await.unwrap();
        let test: TestEvent = registry::test_webhook(&feed.store.db, &hook.id, &[5; 32], NOW).await.unwrap();
        assert!(test.payload.contains("webhook_test"));
        feed.announce("b").await;
        assert_eq!(feed.list("?after=5").await.seqs(), [6]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filtered_reader_gets_on_although_nothing_matches() {
    for engine in ENGINES {
        let mut feed = Feed::on(engine, patient()).await;
        for account in ["a", "b", "b", "a", "b"] {
            feed.announce(account).await;
        }
        let page = feed.list("?account_id=a&limit=1").await;
        assert_eq!((page.seqs(), page.next), (vec![1], 1), "a full page ends where it ends");
        let page = feed.list("?account_id=a&limit=1&after=1").await;
        assert_eq!((page.seqs(), page.next), (vec![4], 4));
        let page = feed.list("?account_id=a&limit=1&after=4").await;
        assert_eq!((page.seqs(), page.next), (vec![], 5), "nothing more for a, up to here");
        let page = feed.list("?account_id=a&type=deposit_v2").await;
        assert_eq!((page.seqs(), page.next), (vec![1, 4], 5), "one that is not full was read to the end");
        let page = feed.list("?account_id=nobody").await;
        assert_eq!((page.seqs(), page.next), (vec![], 5));
        feed.announce("a").await;
        assert_eq!(feed.list("?account_id=a&after=5").await.seqs(), [6]);
    }
}

#[tokio::test]
async fn what_the_feed_does_not_know_is_refused() {
    let mut feed = Feed::on(Engine::Sqlite, no_rates()).await;
    feed.announce("a").await;
    let known = "is unknown: the parameters are after, account_id, type, limit, wait";
    let beyond = "after is beyond the newest event, 1: the store was built anew, or this is no `next` of this feed";
    let after = format!("after {BAD_INTEGER} 9007199254740992");
    let types = "type must be one of deposit_v2, identity_status_update, transfer_submitted, transfer_reconciliation, \
                 transfer_failed";
    let types = types.to_owned();
    let cases = [
        ("?cursor=1", format!("cursor {known}")),
        ("?accountId=a", format!("accountId {known}")),
        ("?after=-1", after.clone()),
        ("?after=01", after.clone()),
        ("?after=", after.clone()),
        ("?after=1.0", after.clone()),
        ("?after=9007199254740993", after.clone()),
        ("?after=99999999999999999999", after),
        ("?after=0&after=0", "after must not be repeated".to_owned()),
        ("?after=2", beyond.to_owned()),
        ("?after=2&wait=25", beyond.to_owned()),
        ("?after=9007199254740992&account_id=nobody", beyond.to_owned()),
        ("?account_id=", "account_id must not be empty".to_owned()),
        ("?account_id=a%00", "account_id must be UTF-8 without control characters".to_owned()),
        ("?type=deposit", types.clone()),
        ("?type=webhook_test", types),
        ("?limit=0", "limit must be an integer from 1 to 100".to_owned()),
        ("?limit=101", "limit must be an integer from 1 to 100".to_owned()),
        ("?wait=26", format!("wait {BAD_INTEGER} 25")),
        ("?wait=-1", format!("wait {BAD_INTEGER} 25")),
        ("?wait=1s", format!("wait {BAD_INTEGER} 25")),
    ];
    for (query, detail) in cases {
        let refused = feed.get(query).await;
        assert_eq!((refused.status.as_u16(), refused.detail()), (400, detail), "{query}");
    }
    for fine in ["?after=1", "?after=0&wait=0&limit=100&type=deposit_v2&account_id=a", "?wait=25"] {
        feed.list(fine).await;
    }
}

#[tokio::test]
async fn the_document_says_what_the_feed_answers() {
    let mut feed = Feed::on(Engine::Sqlite, patient()).await;
    feed.announce("a").await;
    let document: Value = serde_json::from_str(&openapi_json()).unwrap();
    let operation = &document["paths"]["/v2/events"]["get"];
    assert_eq!(operation["x-landfall-extension"], true);
    let names = operation["parameters"].as_array().unwrap().iter().map(|parameter| parameter["name"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["after", "account_id", "type", "limit", "wait"]);
    let schemas = &document["components"]["schemas"];
    let answer: Value = serde_json::from_str(&feed.get("").await.text).unwrap();
    let entry = &answer["events"][0];
    let parts = [
        ("EventList", &answer),
        ("FeedEntry", entry),
        ("DepositEnvelope", &entry["event"]),
        ("DepositEvent", &entry["event"]["data"]),
    ];
    for (schema, shown) in parts {
        let mut fields: Vec<_> = shown.as_object().unwrap().keys().collect();
        let mut properties: Vec<_> = schemas[schema]["properties"].as_object().unwrap().keys().collect();
        fields.sort();
        properties.sort();
        assert_eq!(fields, properties, "{schema}");
        assert_eq!(schemas[schema]["required"].as_array().unwrap().len(), fields.len(), "{schema}");
        assert_eq!(schemas[schema]["additionalProperties"], false, "{schema}");
    }
    feed.suspend("default").await;
    let both = feed.get("").await;
    let envelope = &serde_json::from_str::<Value>(&both.text).unwrap()["events"][1]["event"];
    let schema = &operation["responses"]["200"]["content"]["application/json"]["schema"];
    assert_valid(&document, schema, &serde_json::from_str(&both.text).unwrap(), "both types");
    for other in ["deposit_v2", "webhook_test"] {
        let mut mistaken = envelope.clone();
        mistaken["type"] = Value::from(other);
        assert!(!faults(&document, &schemas["EventEnvelope"], &mistaken, "").is_empty(), "{other} has other data");
    }
}

// On one thread whoever is reported is reported before any of them is answered.
#[tokio::test]
async fn events_of_an_identity_are_given_to_whoever_reads_or_waits_for_one_of_its_accounts() {
    for engine in ENGINES {
        let mut feed = Feed::on(engine, patient()).await;
        for account in ["a", "b"] {
            feed.announce(account).await;
        }
        let mut asking = JoinSet::new();
        for query in [
            "?after=2&wait=25",
            "?after=2&wait=25&account_id=a",
            "?after=2&wait=25&account_id=b&type=identity_status_update",
        ] {
            feed.ask(&mut asking, query);
        }
        let mut others = JoinSet::new();
        for query in ["?after=2&wait=25&account_id=c", "?after=2&wait=25&account_id=a&type=deposit_v2"] {
            feed.ask(&mut others, query);
        }
        until_waiting(&feed, 5).await;
        let sent = feed.suspend("default").await;
        for answer in tokio::time::timeout(PATIENCE, asking.join_all()).await.expect("they were told") {
            let list = answer.list();
            assert_eq!((list.seqs(), list.next), (vec![3], 3), "{engine:?}");
            assert_eq!(list.events[0].event.get(), sent, "byte for byte");
        }
        feed.stop.cancel();
        for answer in others.join_all().await {
            let list = answer.list();
            assert_eq!((list.seqs(), list.next), (vec![], 3), "{engine:?}: it is not for them, and they get on");
        }
        assert_eq!(feed.list("?account_id=a").await.seqs(), [1, 3]);
        assert_eq!(feed.list("?type=identity_status_update").await.seqs(), [3]);
        assert_eq!(feed.list("?account_id=a&limit=1&after=1").await.next, 3);
    }
}

// On one thread whoever is reported is reported before any of them is answered.
#[tokio::test]
async fn a_request_that_waits_is_answered_as_soon_as_there_is_an_event_for_it() {
    for engine in ENGINES {
        let mut feed = Feed::on(engine, patient()).await;
        feed.announce("a").await;
        let started = Instant::now();
        assert_eq!(feed.list("?wait=25").await.seqs(), [1], "what is there needs no waiting");
        assert!(started.elapsed() < WAIT);

        let mut asking = JoinSet::new();
        for query in
            ["?after=1&wait=25", "?after=1&wait=25&account_id=b", "?after=1&wait=25&account_id=b&type=deposit_v2"]
        {
            feed.ask(&mut asking, query);
        }
        let mut others = JoinSet::new();
        feed.ask(&mut others, "?after=1&wait=25&account_id=c");
        until_waiting(&feed, 4).await;
        let sent = feed.announce("b").await;
        for answer in tokio::time::timeout(PATIENCE, asking.join_all()).await.expect("they were told") {
            let list = answer.list();
            assert_eq!((list.seqs(), list.next), (vec![2], 2));
            assert_eq!(list.events[0].event.get(), sent);
        }
        assert!(others.try_join_next().is_none(), "nothing came for c");
        // At the end all that came meanwhile is behind it.
        feed.stop.cancel();
        let list = others.join_next().await.unwrap().unwrap().list();
        assert_eq!((list.seqs(), list.next), (vec![], 2));
    }
}

/// Until so many requests wait: they have given up their places.
async fn until_waiting(feed: &Feed, count: usize) {
    let waiting = async {
        while feed.api.waiting() < count {
            tokio::time::sleep(PAUSE).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_ends_when_its_time_is_over_and_not_when_other_requests_would_be_cut_off() {
    let limits = Limits { request_timeout: Duration::from_secs(2), ..Limits::default() };
    let mut feed = Feed::on(Engine::Sqlite, limits).await;
    feed.announce("a").await;
    let started = Instant::now();
    let list = feed.list("?after=1&wait=3").await;
    assert_eq!((list.seqs(), list.next), (vec![], 1));
    assert!(started.elapsed() >= Duration::from_secs(3), "it was answered early: {:?}", started.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_that_wait_take_nothing_from_others() {
    for engine in ENGINES {
        // Fewer places and connections than there are that wait; a key has a quarter of them.
        let limits = Limits { concurrent_requests: 16, ..no_rates() };
        let mut feed = Feed::on(engine, limits).await;
        feed.announce("a").await;
        let mut asking = JoinSet::new();
        for number in 0..100 {
            feed.ask_on(&mut asking, "?after=1&wait=25");
            until_waiting(&feed, number + 1).await;
        }
        let (started, mut answered) = (Instant::now(), 0);
        while answered < 200 {
            let sent_again = feed.sent_again();
            until_waiting(&feed, 100).await;
            let mut at_once = JoinSet::new();
            for path in ["/v2/crypto/deposits?account_id=a", "/v2/accounts", "/v2/events", "/v2/assets"] {
                let (api, key) = (feed.api.clone(), feed.key.clone());
                at_once.spawn(async move { get(&api, &key, path).await });
            }
            let answers = at_once.join_all().await;
            // Who does not wait just then takes a place.
            if feed.sent_again() > sent_again {
                continue;
            }
            for answer in answers {
                assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
                answered += 1;
            }
        }
        println!("{engine:?}: 200 requests beside 100 that wait took {:?}", started.elapsed());
        let started = Instant::now();
        feed.announce("b").await;
        for answer in tokio::time::timeout(Duration::from_secs(20), asking.join_all()).await.expect("they were told") {
            assert_eq!(answer.list().seqs(), [2]);
        }
        println!("{engine:?}: all 100 were answered {:?} after the event was written", started.elapsed());
        assert_eq!(feed.api.waiting(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_wait_than_may_and_who_goes_away_makes_room() {
    let limits = Limits { concurrent_requests: 2_000, ..no_rates() };
    let mut feed = Feed::on(Engine::Sqlite, limits).await;
    let mut asking = JoinSet::new();
    for number in 1..=2 {
        for _ in 0..200 {
            feed.ask_on(&mut asking, "?wait=25");
        }
        let refused = feed.refused_beside(200 * number).await;
        assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
        let detail = "200 requests wait for events with this API key, which is as many as may at a time";
        assert_eq!(refused.detail(), detail);
        assert_eq!(feed.list("").await.next, 0, "who does not wait is answered");
        feed.key = feed.another_key().await;
    }
    let refused = feed.refused_beside(400).await;
    assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(refused.text.contains("OVERLOADED"), "{}", refused.text);
    // Clients that hang up.
    asking.shutdown().await;
    assert_eq!(feed.api.waiting(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_ends_those_that_wait_at_once() {
    let mut feed = Feed::on(Engine::Sqlite, patient()).await;
    feed.announce("a").await;
    let (mut asking, asked) = (JoinSet::new(), Instant::now());
    for query in ["?after=1&wait=25", "?after=0&wait=25&account_id=b"] {
        feed.ask(&mut asking, query);
    }
    until_waiting(&feed, 2).await;
    feed.stop.cancel();
    for answer in asking.join_all().await {
        let list = answer.list();
        assert_eq!((list.seqs(), list.next), (vec![], 1));
    }
    assert!(asked.elapsed() < WAIT, "the stop waited for who waited: {:?}", asked.elapsed());
}

#[tokio::test]
async fn an_event_without_a_number_is_reported_by_the_status_when_it_waits_too_long() {
    for engine in ENGINES {
        let mut feed = Feed::on(engine, patient()).await;
        feed.announce("a").await;
        let health = async |at: Timestamp| {
            let status = landfall::health::Status::read(&feed.store.db, at).await.unwrap();
            (status.feed, status.complaints(&[].into(), Duration::from_secs(60)))
        };
        let (report, complaints) = health(NOW.plus(PATIENCE * 10)).await;
        assert_eq!((report.last, report.lag_secs, complaints), (1, None, vec![]));
        let failed = deposit(1, NOON).fail().unwrap();
        assert_eq!(failed.status, DepositStatus::Failed);
        let mut tx = feed.store.db.begin().await.unwrap();
        let history = History::of(&mut tx, failed.id).await.unwrap();
        events::append(&mut tx, &Event::entered(&failed, 0), &history, NOW).await.unwrap();
        tx.commit().await.unwrap();
        let (report, complaints) = health(NOW.plus(Duration::from_secs(60))).await;
        assert_eq!((report.last, report.lag_secs, complaints), (1, Some(60), vec![]));
        let (_, complaints) = health(NOW.plus(Duration::from_secs(61))).await;
        assert_eq!(complaints, ["feed: an event waits for its number for 61 s; is `landfall run` running?"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_key_that_is_revoked_while_it_waits_is_reported_nothing() {
    for engine in ENGINES {
        let mut feed = Feed::on(engine, no_rates()).await;
        feed.announce("a").await;
        let (kept, revoked) = (feed.key.clone(), feed.another_key().await);
        let mut asking = JoinSet::new();
        feed.ask(&mut asking, "?after=1&wait=25");
        feed.key = revoked.clone();
        feed.ask(&mut asking, "?after=1&wait=25");
        until_waiting(&feed, 2).await;
        landfall::registry::revoke_key(&feed.store.db, revoked.id(), &tester(NOW)).await.unwrap();
        feed.announce("a").await;
        feed.key = kept;
        let answers = tokio::time::timeout(Duration::from_secs(20), asking.join_all()).await.expect("they were told");
        let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status.as_u16()).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 401]);
        let refused = answers.iter().find(|answer| answer.status == StatusCode::UNAUTHORIZED).unwrap();
        assert!(refused.detail().contains("revoked") && !refused.text.contains("deposit_v2"), "{}", refused.text);
    }
}
