//! Prices that are read from a URL: a server that answers whatever a case wants, and both engines.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall::prices::{PriceFeed, PriceReader, QuoteRule};
use landfall::store::prices;
use landfall::time::{Clock, Timestamp};
use landfall_node::http::{Manner, Reply, accept};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::Bench;
use crate::harness::postgres::{ENGINES, Engine, TestStore};

const NOW: Timestamp = Timestamp(1_800_000_000_000_000);
const MAX_AGE: Duration = Duration::from_secs(900);

/// Answers with a status and a body, until it is told others.
struct Answers {
    url: String,
    answer: Arc<Mutex<(&'static str, String)>>,
    _server: JoinSet<()>,
}

impl Answers {
    async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}/latest?key=canary", listener.local_addr().unwrap());
        let answer = Arc::new(Mutex::new(("200 OK", String::new())));
        let (given, mut server) = (Arc::clone(&answer), JoinSet::new());
        server.spawn(accept(listener, move |_| {
            let (status, body) = given.lock().unwrap().clone();
            let body = body.into_bytes();
            let (retry_after_secs, is_gzip, latency) = (None, false, Duration::ZERO);
            Reply { status, retry_after_secs, is_gzip, body, manner: Manner::Whole, latency }
        }));
        Answers { url, answer, _server: server }
    }

    fn give(&self, status: &'static str, body: &str) {
        *self.answer.lock().unwrap() = (status, body.to_owned());
    }
}

#[tokio::test]
async fn a_price_from_a_url_is_recorded_where_it_is_new_and_believed_on_sqlite() {
    is_recorded(Engine::Sqlite).await;
}

#[tokio::test]
async fn a_price_from_a_url_is_recorded_where_it_is_new_and_believed_on_postgresql() {
    is_recorded(Engine::Postgres).await;
}

async fn is_recorded(engine: Engine) {
    let (store, answers) = (TestStore::fresh(engine).await, Answers::start().await);
    let price = |text: &str| text.parse().unwrap();
    let rule = QuoteRule { price: "/eth".to_owned(), time: None, least: price("500"), most: price("20000") };
    let feed = PriceFeed {
        url: answers.url.parse().unwrap(),
        every: Duration::from_secs(60),
        max_age: MAX_AGE,
        quotes: [("ETH".to_owned(), rule)].into(),
    };
    let reader = PriceReader::new(feed, store.db.clone()).unwrap();
    let at = |secs: u64| NOW.plus(Duration::from_secs(secs));
    let last = async |now: Timestamp| {
        let last = prices::of_moment(&mut store.db.read().await.unwrap(), "ETH", now).await.unwrap();
        last.map(|last| (last.price.to_string(), last.source.name(), last.at))
    };
    let recorded = |text: &str, secs: u64| Some((text.to_owned(), "http", at(secs)));
    let cases = [
        ("503 Service Unavailable", r#"{"eth":3000}"#, None),
        ("200 OK", "three thousand", None),
        ("200 OK", r#"{"eth":3000.5}"#, recorded("3000.5", 120)),
        // The same, while the last one is good for long.
        ("200 OK", r#"{"eth":"3000.50"}"#, recorded("3000.5", 120)),
        ("200 OK", r#"{"eth":3001}"#, recorded("3001", 240)),
        ("200 OK", r#"{"eth":499}"#, recorded("3001", 240)),
        ("200 OK", r#"{"eth":"a lot"}"#, recorded("3001", 240)),
        ("200 OK", r#"{"btc":3001}"#, recorded("3001", 240)),
        ("302 Found", r#"{"eth":3002}"#, recorded("3001", 240)),
    ];
    for (nth, (status, body, expected)) in (0_u64..).zip(cases) {
        answers.give(status, body);
        reader.tick(&Clock::new(move || at(60 * nth))).await.unwrap();
        assert_eq!(last(at(60 * nth)).await, expected, "{engine:?}: {status} {body}");
    }
    // It is good for less than half of its time.
    answers.give("200 OK", r#"{"eth":3001}"#);
    reader.tick(&Clock::new(move || at(700))).await.unwrap();
    assert_eq!(last(at(700)).await, recorded("3001", 700));
    let until = prices::good_until(&mut store.db.read().await.unwrap(), "ETH").await.unwrap();
    assert_eq!(until, Some(at(700).plus(MAX_AGE)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_price_an_hour_old_or_a_hundred_times_off_is_not_taken_and_the_last_one_grows_old_as_an_alarm() {
    for engine in ENGINES {
        let (mut bench, answers) = (Bench::on(engine, 1).await, Answers::start().await);
        bench.settle().await;
        let price = |text: &str| text.parse().unwrap();
        let (pointer, time) = ("/eth".to_owned(), Some("/at".to_owned()));
        let rule = QuoteRule { price: pointer, time, least: price("1"), most: price("999999999") };
        let feed = PriceFeed {
            url: answers.url.parse().unwrap(),
            every: Duration::from_secs(60),
            max_age: MAX_AGE,
            quotes: [("ETH".to_owned(), rule)].into(),
        };
        let reader = PriceReader::new(feed, bench.world.db().clone()).unwrap();
        // What is the last one behind such an answer, and since when.
        let last = async |bench: &Bench, eth: &str, secs_ago: i64| {
            let (db, now) = (bench.world.db(), bench.world.now());
            let at = now.0 / 1_000_000 - secs_ago;
            answers.give("200 OK", &format!(r#"{{"eth":{eth},"at":{at}}}"#));
            reader.tick(&bench.world.clock()).await.unwrap();
            let last = prices::of_moment(&mut db.read().await.unwrap(), "ETH", now).await.unwrap().unwrap();
            (last.price.to_string(), last.at)
        };
        let first = ("3000".to_owned(), bench.world.now());
        assert_eq!(last(&bench, "3000", 0).await, first, "{engine:?}");
        for (eth, secs_ago) in [(r#""three thousand""#, 0), ("3001", 3_600), ("300000", 0), ("30", 0)] {
            bench.pass(60).await;
            assert_eq!(last(&bench, eth, secs_ago).await, first, "{engine:?}: {eth} of {secs_ago} s ago");
        }
        // It was good for 15 minutes, and that it is older is an alarm after 5 more.
        bench.pass(900 + 300 - 4 * 60).await;
        bench.assert_healthy().await;
        bench.pass(1).await;
        bench.assert_unhealthy("the price of ETH is older than").await;
        let newer = ("3001".to_owned(), bench.world.now());
        assert_eq!(last(&bench, "3001", 0).await, newer, "{engine:?}");
        bench.assert_healthy().await;
        bench.close().await;
    }
}
