//! Delivery, seen from the receiver: which bytes arrive, when, in which order, and what is written down of it.
//!
//! Events come from a watched world; receivers are small servers on this machine that answer as a test says.
//! `Delivery::tick` is driven by the world's clock; only the limit of 15 s is waited for in real time.

pub(crate) mod clocks;
pub(crate) mod crashes;
pub(crate) mod dns;
pub(crate) mod engine;
pub(crate) mod failing;
pub(crate) mod feed_processes;
pub(crate) mod guard;
pub(crate) mod instances;
pub(crate) mod names;
pub(crate) mod nats;
pub(crate) mod webhook_urls;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, Response, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream;
use landfall::delivery::{Delivered, Delivery};
use landfall::store::deliveries::{Claim, Queue};
use landfall::store::endpoints;
use landfall::store::webhooks::{self, WebhookRow};
use landfall::store::{Connection, Db, Engine as Connected};
use landfall::time::Pulse;
use landfall_sim::{SimLeg, SimTx};
use sha2::{Digest, Sha256};
use sqlx_macros::FromRow;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::delivery::engine::until;
use crate::harness::books::events;
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{FINALITY_DEPTH, World, address};

pub(crate) const ALICE: u8 = 0xa1;
pub(crate) const PAYER: u8 = 0x01;
const LEASE: Duration = Duration::from_secs(60);
pub(crate) const MICROSECOND: Duration = Duration::from_micros(1);
/// The key of every webhook here.
const KEY: [u8; 32] = [0x5a; 32];

/// What a receiver does with a request.
pub(crate) enum Answer {
    Status(u16),
    /// This 3xx, to there.
    Redirect(u16, String),
    /// This status, and this Retry-After.
    Busy(u16, String),
    /// 500 with this body.
    Fault(Vec<u8>),
    /// 200 after this time.
    Late(Duration),
    /// This status once there is a permit for it, or no more are needed.
    Held(Arc<Semaphore>, u16),
    /// 200 at once, then a byte every 100 ms for ever.
    Drip,
    /// 200 and a body that breaks off.
    Torn,
    /// Nothing, ever.
    Silence,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A server that records what it gets; it ends when it is dropped.
pub(crate) struct Receiver {
    address: SocketAddr,
    received: Arc<Mutex<Vec<Received>>>,
    arrived: Arc<Notify>,
    under_way: Arc<UnderWay>,
    _server: JoinSet<()>,
}

/// Requests that are not answered yet: how many now, and at most.
#[derive(Default)]
struct UnderWay {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl UnderWay {
    fn begin(&self) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
    }

    fn end(&self) {
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A row of `attempts`.
#[derive(Clone, PartialEq, Eq, Debug, FromRow)]
pub(crate) struct Attempt {
    pub(crate) webhook_id: String,
    pub(crate) attempt: i64,
    pub(crate) status: Option<i64>,
    pub(crate) error: String,
    response_head: String,
}

impl Receiver {
    /// One that answers the requests in turn as `script` says, and 200 behind its end.
    pub(crate) async fn scripted(script: impl IntoIterator<Item = Answer>) -> Self {
        let script = Mutex::new(script.into_iter().collect::<std::collections::VecDeque<_>>());
        Receiver::new(move |_| script.lock().unwrap().pop_front().unwrap_or(Answer::Status(200))).await
    }

    pub(crate) async fn new(answer: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Self {
        Receiver::at("127.0.0.1:0".parse().unwrap(), answer).await
    }

    async fn at(address: SocketAddr, answer: impl Fn(&Received) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (received, arrived) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
        let (log, signal, answer) = (Arc::clone(&received), Arc::clone(&arrived), Arc::new(answer));
        let under_way = Arc::new(UnderWay::default());
        let count = Arc::clone(&under_way);
        let router = Router::new().fallback(move |request: Request| {
            let (log, signal, answer) = (Arc::clone(&log), Arc::clone(&signal), Arc::clone(&answer));
            let count = Arc::clone(&count);
            async move {
                count.begin();
                let (head, body) = request.into_parts();
                let body = to_bytes(body, usize::MAX).await.unwrap();
                assert_eq!(head.method, "POST");
                let received = Received { path: head.uri.to_string(), headers: head.headers, body };
                let answer = answer(&received);
                log.lock().unwrap().push(received);
                signal.notify_one();
                let response = respond(answer).await;
                count.end();
                response
            }
        });
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, router).await.unwrap() });
        Receiver { address, received, arrived, under_way, _server: server }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// How many requests waited for their answers at once, at most.
    pub(crate) fn most_at_once(&self) -> usize {
        self.under_way.most.load(Ordering::SeqCst)
    }

    /// How many requests wait for their answers now.
    pub(crate) fn waiting(&self) -> usize {
        self.under_way.now.load(Ordering::SeqCst)
    }

    /// Waits for a request.
    pub(crate) async fn arrived(&self) {
        self.arrived.notified().await;
    }

    /// Every body so far, in the order of arrival.
    pub(crate) fn bodies(&self) -> Vec<String> {
        self.received().iter().map(|received| String::from_utf8(received.body.to_vec()).unwrap()).collect()
    }
}

async fn respond(answer: Answer) -> Response<Body> {
    let ok = || Response::builder().status(200);
    match answer {
        Answer::Status(status) => Response::builder().status(status).body(Body::empty()),
        Answer::Redirect(status, to) => {
            Response::builder().status(status).header(header::LOCATION, to).body(Body::empty())
        }
        Answer::Busy(status, after) => {
            Response::builder().status(status).header(header::RETRY_AFTER, after).body(Body::empty())
        }
        Answer::Fault(body) => Response::builder().status(500).body(Body::from(body)),
        Answer::Late(time) => {
            tokio::time::sleep(time).await;
            ok().body(Body::empty())
        }
        Answer::Held(permits, status) => {
            if let Ok(permit) = permits.acquire().await {
                permit.forget();
            }
            Response::builder().status(status).body(Body::empty())
        }
        Answer::Drip => {
            let drops = stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                Some((Ok::<_, Infallible>("."), ()))
            });
            ok().body(Body::from_stream(drops))
        }
        Answer::Torn => {
            let torn = stream::unfold(false, |begun| async move {
                // The beginning is on its way before the connection ends.
                tokio::time::sleep(Duration::from_millis(if begun { 300 } else { 0 })).await;
                Some((if begun { Err(std::io::Error::other("torn")) } else { Ok("the beginning") }, true))
            });
            ok().body(Body::from_stream(torn))
        }
        Answer::Silence => std::future::pending().await,
    }
    .unwrap()
}

#[tokio::test]
async fn an_event_arrives_with_the_headers_of_standard_webhooks_and_the_stored_bytes() {
    let receiver = Receiver::scripted([]).await;
    let mut world = world(Engine::Sqlite).await;
    register(&world, "hook", &receiver.url("/in?tenant=a%20b")).await;
    pay(&mut world, &[5]).await;
    assert_eq!(tick(&world).await, Delivered { delivered: 1, to_be_retried: 0 });

    let [received] = &receiver.received()[..] else { panic!("one request") };
    let [event] = &events(world.db()).await[..] else { panic!("one event") };
    assert_eq!(received.body, event.payload.as_bytes());
    assert_eq!(received.path, "/in?tenant=a%20b");
    let timestamp = (world.now().0 / 1_000_000).to_string();
    let signature = signature(&[event.id.as_bytes(), b".", timestamp.as_bytes(), b".", &received.body].concat());
    let expected = [
        ("accept", "*/*"),
        ("content-length", &received.body.len().to_string()),
        ("content-type", "application/json"),
        ("host", &receiver.address.to_string()),
        ("user-agent", concat!("Landfall/", env!("CARGO_PKG_VERSION"))),
        ("webhook-id", &event.id),
        ("webhook-signature", &format!("v1,{signature}")),
        ("webhook-timestamp", &timestamp),
    ];
    let mut found: Vec<_> =
        received.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    found.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(tick(&world).await, Delivered::default(), "what has arrived is not sent again");
    world.close().await;
}

#[tokio::test]
async fn each_attempt_is_signed_with_its_own_time_over_the_same_bytes() {
    let receiver = Receiver::scripted([Answer::Status(500)]).await;
    let mut world = world(Engine::Sqlite).await;
    register(&world, "hook", &receiver.url("/")).await;
    pay(&mut world, &[5]).await;
    tick(&world).await;
    world.pass(Duration::from_secs(2));
    tick(&world).await;
    let [first, second] = &receiver.received()[..] else { panic!("two requests") };
    assert_eq!((&first.body, &first.headers["webhook-id"]), (&second.body, &second.headers["webhook-id"]));
    for (received, secs) in [(first, world.now().0 / 1_000_000 - 2), (second, world.now().0 / 1_000_000)] {
        let timestamp = received.headers["webhook-timestamp"].to_str().unwrap();
        assert_eq!(timestamp, secs.to_string());
        let id = received.headers["webhook-id"].as_bytes();
        let signature = signature(&[id, b".", timestamp.as_bytes(), b".", &received.body].concat());
        assert_eq!(received.headers["webhook-signature"], format!("v1,{signature}"));
    }
    world.close().await;
}

#[tokio::test]
async fn attempts_are_made_by_the_schedule_with_jitter_within_a_fifth_for_ever() {
    const WAITS_SECS: [u64; 13] = [2, 5, 15, 60, 300, 900, 1_800, 3_600, 7_200, 14_400, 21_600, 21_600, 21_600];
    let randoms: [(fn() -> u64, u32); 3] = [(|| 0, 800), (|| 200, 1_000), (|| 400, 1_200)];
    for (random, permille) in randoms {
        let receiver = Receiver::new(|_| Answer::Status(500)).await;
        let mut world = world(Engine::Sqlite).await;
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &[5]).await;
        let delivery = Delivery::new(world.db().clone(), world.clock(), random).unwrap();
        let failed = Delivered { delivered: 0, to_be_retried: 1 };
        assert_eq!(delivery.tick().await.unwrap(), failed, "the first is made at once");
        for (attempt, secs) in (1..).zip(WAITS_SECS) {
            let wait = Duration::from_secs(secs) / 1_000 * permille;
            world.pass(wait - MICROSECOND);
            assert_eq!(delivery.tick().await.unwrap(), Delivered::default(), "{wait:?} after attempt {attempt}");
            world.pass(MICROSECOND);
            assert_eq!(delivery.tick().await.unwrap(), failed, "{wait:?} after attempt {attempt}");
        }
        assert_eq!(receiver.received().len(), WAITS_SECS.len() + 1);
        world.close().await;
    }
}

#[tokio::test]
async fn r9_a_later_event_is_not_sent_before_the_earlier_was_accepted_and_other_deposits_go_on() {
    for engine in ENGINES {
        let refused = Arc::new(Mutex::new(true));
        let refuses = Arc::clone(&refused);
        let receiver = Receiver::new(move |received| {
            let of_five = amount_and_status(&received.body).0 == "0.000000000000000005";
            Answer::Status(if of_five && *refuses.lock().unwrap() { 503 } else { 200 })
        })
        .await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &[5, 7]).await;
        world.chain.mine_empty(FINALITY_DEPTH);
        world.catch_up().await;
        assert_eq!(events(world.db()).await.len(), 4, "both are CONFIRMED already");

        let delivery = delivery(&world);
        let mut done = Vec::new();
        for wait_secs in [0, 0, 2, 5] {
            world.pass(Duration::from_secs(wait_secs));
            let Delivered { delivered, to_be_retried } = delivery.tick().await.unwrap();
            done.push((delivered, to_be_retried));
        }
        assert_eq!(done, [(1, 1), (1, 0), (0, 1), (0, 1)], "5 is held, 7 is not");
        *refused.lock().unwrap() = false;
        world.pass(Duration::from_secs(15));
        delivery.tick().await.unwrap();
        delivery.tick().await.unwrap();
        let received = receiver.received();
        let of = |amount: &str| {
            let all = received.iter().map(|received| amount_and_status(&received.body));
            all.filter(|(of, _)| of.ends_with(amount)).map(|(_, status)| status).collect::<Vec<_>>()
        };
        assert_eq!(of("5"), ["PENDING", "PENDING", "PENDING", "PENDING", "CONFIRMED"]);
        assert_eq!(of("7"), ["PENDING", "CONFIRMED"]);
        world.close().await;
    }
}

#[tokio::test]
async fn only_a_2xx_counts_as_arrived_and_everything_else_is_sent_again() {
    const ARRIVED: [u16; 6] = [200, 201, 202, 204, 206, 299];
    const REFUSED: [u16; 17] = [300, 304, 305, 399, 400, 401, 403, 404, 408, 409, 410, 422, 429, 500, 502, 503, 599];
    let receiver = Receiver::new(|received| Answer::Status(received.path[1..].parse().unwrap())).await;
    let mut world = world(Engine::Sqlite).await;
    for status in ARRIVED.iter().chain(&REFUSED) {
        register(&world, &status.to_string(), &receiver.url(&format!("/{status}"))).await;
    }
    pay(&mut world, &[5]).await;
    let expected = Delivered { delivered: ARRIVED.len(), to_be_retried: REFUSED.len() };
    assert_eq!(tick(&world).await, expected);
    world.pass(Duration::from_secs(2));
    let wanted = REFUSED.len() - 1;
    assert_eq!(tick(&world).await, Delivered { delivered: 0, to_be_retried: wanted }, "410 wants none");
    for Attempt { webhook_id, status, error, .. } in attempts(world.db()).await {
        assert_eq!(status.unwrap().to_string(), webhook_id);
        let arrived = ARRIVED.map(|status| status.to_string()).contains(&webhook_id);
        assert_eq!(error.is_empty(), arrived, "{error}");
        assert!(arrived || error.starts_with(&format!("the receiver answered {webhook_id}")), "{error}");
    }
    world.close().await;
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_counts_as_failed() {
    let elsewhere = Receiver::scripted([]).await;
    let (to, codes) = (elsewhere.url("/stolen"), [301, 302, 303, 307, 308]);
    let receiver = Receiver::scripted(codes.map(|code| Answer::Redirect(code, to.clone()))).await;
    let mut world = world(Engine::Sqlite).await;
    register(&world, "hook", &receiver.url("/")).await;
    pay(&mut world, &[5]).await;
    for (code, wait_secs) in codes.into_iter().zip([0, 2, 5, 15, 60]) {
        world.pass(Duration::from_secs(wait_secs));
        assert_eq!(tick(&world).await, Delivered { delivered: 0, to_be_retried: 1 }, "{code}");
    }
    assert_eq!(elsewhere.received().len(), 0);
    let statuses: Vec<_> = attempts(world.db()).await.into_iter().map(|attempt| attempt.status.unwrap()).collect();
    assert_eq!(statuses, codes.map(i64::from));
    world.close().await;
}

#[tokio::test]
async fn an_answer_that_is_not_complete_within_15_s_counts_as_failed_and_holds_up_nobody() {
    let permits = Arc::new(Semaphore::new(0));
    let held = Arc::clone(&permits);
    let receiver = Receiver::new(move |received| match received.path.as_str() {
        "/drip" => Answer::Drip,
        "/silence" => Answer::Silence,
        "/late" => Answer::Held(Arc::clone(&held), 200),
        _ => Answer::Status(200),
    })
    .await;
    let mut world = world(Engine::Sqlite).await;
    for name in ["drip", "silence", "late", "prompt"] {
        register(&world, name, &receiver.url(&format!("/{name}"))).await;
    }
    pay(&mut world, &[5]).await;
    let started = Instant::now();
    let delivery = delivery(&world);
    let mut ticking = std::pin::pin!(delivery.tick());
    let acknowledged = async |names: &[&str]| {
        let attempts = attempts(world.db()).await;
        attempts.iter().map(|attempt| attempt.webhook_id.as_str()).eq(names.iter().copied())
    };
    let early = async {
        until("the prompt one", async || acknowledged(&["prompt"]).await).await;
        permits.close();
        until("the late one", async || acknowledged(&["late", "prompt"]).await).await;
    };
    tokio::select! {
        _ = &mut ticking => panic!("nothing is acknowledged while the others are waited for"),
        () = early => {}
    }
    assert_eq!(ticking.await.unwrap(), Delivered { delivered: 2, to_be_retried: 2 });
    let secs = started.elapsed().as_secs_f64();
    assert!(secs >= 14.9, "it took {secs} s");
    for Attempt { webhook_id, status, error, .. } in attempts(world.db()).await {
        let (expected, expected_error) = match webhook_id.as_str() {
            "drip" => (Some(200), "no complete answer within 15 s"),
            "silence" => (None, "no complete answer within 15 s"),
            _ => (Some(200), ""),
        };
        assert_eq!((status, error.as_str()), (expected, expected_error), "{webhook_id}");
    }
    world.close().await;
}

#[tokio::test]
async fn of_an_endless_answer_no_more_than_16_kib_are_read_and_1_kib_is_kept() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = world(Engine::Sqlite).await;
    register(&world, "hook", &format!("http://{}/", listener.local_addr().unwrap())).await;
    pay(&mut world, &[5]).await;
    let mut answering = JoinSet::new();
    answering.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(stream.read(&mut [0; 4_096]).await.unwrap() > 0, "the request");
        stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").await.unwrap();
        stream.write_all(&[b'x'; 16 * 1024]).await.unwrap();
        // The answer is not at its end: whoever wants one byte more waits until the attempt's time is over.
        while stream.read(&mut [0; 4_096]).await.is_ok_and(|count| count > 0) {}
    });
    assert_eq!(
        tick(&world).await,
        Delivered { delivered: 1, to_be_retried: 0 },
        "it was not read to the limit of time"
    );
    answering.join_next().await.unwrap().unwrap();
    let [attempt] = &attempts(world.db()).await[..] else { panic!("one attempt") };
    assert_eq!((attempt.status, attempt.error.as_str()), (Some(200), ""));
    assert_eq!(attempt.response_head, "x".repeat(1_024));
    world.close().await;
}

#[tokio::test]
async fn a_receiver_that_was_down_gets_everything_in_order_when_it_is_back() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let mut world = world(Engine::Sqlite).await;
    register(&world, "hook", &format!("http://{address}/")).await;
    pay(&mut world, &[5]).await;
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    let delivery = delivery(&world);
    for wait_secs in [0, 2, 5, 15] {
        world.pass(Duration::from_secs(wait_secs));
        assert_eq!(delivery.tick().await.unwrap(), Delivered { delivered: 0, to_be_retried: 1 });
    }
    for Attempt { status, error, .. } in attempts(world.db()).await {
        assert_eq!(status, None);
        assert!(error.contains("Connection refused"), "{error}");
        assert!(!error.contains(&address.to_string()), "a URL may hold secrets: {error}");
    }

    let receiver = Receiver::at(address, |_| Answer::Status(204)).await;
    assert_eq!(delivery.tick().await.unwrap(), Delivered::default(), "not before its time");
    world.pass(Duration::from_secs(60));
    delivery.tick().await.unwrap();
    delivery.tick().await.unwrap();
    let stored: Vec<String> = events(world.db()).await.into_iter().map(|event| event.payload).collect();
    assert_eq!(receiver.bodies(), stored, "PENDING, then CONFIRMED");
    world.close().await;
}

#[tokio::test]
async fn a_connection_that_is_closed_without_an_answer_is_written_down_and_tried_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut world = world(Engine::Sqlite).await;
    register(&world, "hook", &format!("http://{}/", listener.local_addr().unwrap())).await;
    pay(&mut world, &[5]).await;
    let mut rude = JoinSet::new();
    rude.spawn(async move {
        loop {
            drop(listener.accept().await.unwrap());
        }
    });
    assert_eq!(tick(&world).await, Delivered { delivered: 0, to_be_retried: 1 });
    let [attempt] = &attempts(world.db()).await[..] else { panic!("one attempt") };
    assert_eq!(attempt.status, None);
    assert!(attempt.error.starts_with("error sending request"), "{}", attempt.error);
    world.close().await;
}

#[tokio::test]
async fn r10_what_was_sent_and_not_acknowledged_is_sent_again_with_the_same_bytes_and_id() {
    for engine in ENGINES {
        let receiver = Receiver::scripted([Answer::Silence]).await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &[5]).await;
        let crashed = delivery(&world);
        tokio::select! {
            _ = crashed.tick() => panic!("nothing is answered"),
            () = receiver.arrived.notified() => {}
        }
        drop(crashed);

        world.pass(LEASE - MICROSECOND);
        assert_eq!(tick(&world).await, Delivered::default(), "it may still be under way");
        world.pass(MICROSECOND);
        assert_eq!(tick(&world).await, Delivered { delivered: 1, to_be_retried: 0 });
        let [first, second] = &receiver.received()[..] else { panic!("two requests") };
        assert_eq!((&first.body, &first.headers["webhook-id"]), (&second.body, &second.headers["webhook-id"]));
        let [attempt] = &attempts(world.db()).await[..] else { panic!("the crash wrote nothing down") };
        assert_eq!(attempt.attempt, 2);
        world.close().await;
    }
}

#[tokio::test]
async fn two_webhooks_do_not_wait_for_each_other() {
    let (good, bad) = (Receiver::scripted([]).await, Receiver::new(|_| Answer::Status(500)).await);
    let mut world = world(Engine::Sqlite).await;
    register(&world, "good", &good.url("/")).await;
    register(&world, "bad", &bad.url("/")).await;
    pay(&mut world, &[5, 7]).await;
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    let delivery = delivery(&world);
    assert_eq!(delivery.tick().await.unwrap(), Delivered { delivered: 2, to_be_retried: 2 });
    assert_eq!(delivery.tick().await.unwrap(), Delivered { delivered: 2, to_be_retried: 0 });
    let mut arrived = good.bodies();
    arrived.sort();
    let mut stored: Vec<String> = events(world.db()).await.into_iter().map(|event| event.payload).collect();
    stored.sort();
    assert_eq!(arrived, stored);
    assert!(bad.received().iter().all(|received| amount_and_status(&received.body).1 == "PENDING"));
    world.close().await;
}

#[tokio::test]
async fn a_webhook_gets_the_events_that_come_after_it() {
    let receiver = Receiver::scripted([]).await;
    let mut world = world(Engine::Sqlite).await;
    pay(&mut world, &[5]).await;
    register(&world, "hook", &receiver.url("/")).await;
    assert_eq!(tick(&world).await, Delivered::default());
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    assert_eq!(tick(&world).await, Delivered { delivered: 1, to_be_retried: 0 });
    assert_eq!(amount_and_status(&receiver.received()[0].body).1, "CONFIRMED");
    world.close().await;
}

#[tokio::test]
async fn every_attempt_is_written_down_whatever_bytes_were_answered() {
    for engine in ENGINES {
        let odd = b"a NUL \0, no UTF-8 \xff\xfe, and \xe2\x82".to_vec();
        // The cut at 1 KiB is inside a character.
        let long = format!("{}\u{20bf}{}", "y".repeat(1_023), "z".repeat(5_000)).into_bytes();
        let receiver = Receiver::scripted([Answer::Fault(odd), Answer::Fault(long), Answer::Torn]).await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &[5]).await;
        for wait_secs in [0, 2, 5] {
            world.pass(Duration::from_secs(wait_secs));
            tick(&world).await;
        }
        let attempts = attempts(world.db()).await;
        assert_eq!(attempts.iter().map(|attempt| attempt.attempt).collect::<Vec<_>>(), [1, 2, 3]);
        let heads: Vec<&str> = attempts.iter().map(|attempt| attempt.response_head.as_str()).collect();
        let cut = format!("{}\u{fffd}", "y".repeat(1_023));
        assert_eq!(heads[..2], ["a NUL \u{fffd}, no UTF-8 \u{fffd}\u{fffd}, and \u{fffd}", &cut]);
        assert_eq!(attempts[0].error, "the receiver answered 500 Internal Server Error");
        assert_eq!((attempts[2].status, attempts[2].error.as_str()), (Some(200), ""), "a 200 arrived, torn or not");
        assert_eq!(attempts[2].response_head, "the beginning");
        world.close().await;
    }
}

#[tokio::test]
async fn the_signing_key_appears_nowhere_but_in_its_row() {
    let receiver = Receiver::scripted([Answer::Status(500)]).await;
    let mut world = world(Engine::Sqlite).await;
    let key = STANDARD.encode(KEY);
    register(&world, "hook", &receiver.url("/")).await;
    let broken = WebhookRow { signing_key: format!("whsec_{key}!"), ..webhook("broken", &receiver.url("/")) };
    assert!(!format!("{broken:?}").contains(&key));
    insert(&world, &broken).await;
    pay(&mut world, &[5]).await;
    let mut tx = world.db().begin().await.unwrap();
    let claim = Claim { owner: 7, now: world.now(), lease_until: world.now() };
    for webhook in ["hook", "broken"] {
        claim.take(&mut tx, webhook, Queue::First, 9).await.unwrap();
    }
    let claimed = claim.taken(&mut tx).await.unwrap();
    drop(tx);
    assert_eq!(claimed.len(), 2);
    assert!(claimed.iter().all(|claimed| claimed.signing_key.contains(&key)));

    let delivery = delivery(&world);
    delivery.tick().await.unwrap();
    let attempts = attempts(world.db()).await;
    assert_eq!(attempts[0].error, "the stored signing key cannot be read");
    assert_eq!(receiver.received().len(), 1, "what cannot be signed is not sent");
    for shown in [format!("{claimed:?}"), format!("{delivery:?}"), format!("{attempts:?}"), format!("{receiver:?}")] {
        assert!(!shown.contains(&key), "{shown}");
    }
    world.close().await;
}

#[tokio::test]
async fn a_running_delivery_sends_what_comes_and_ends_when_what_is_under_way_is_done() {
    let receiver = Receiver::scripted([Answer::Status(200), Answer::Late(Duration::from_secs(1))]).await;
    let mut world = world(Engine::Sqlite).await;
    register(&world, "hook", &receiver.url("/")).await;
    let stop = CancellationToken::new();
    let mut running = JoinSet::new();
    running.spawn(delivery(&world).run(Pulse::new("delivery", world.now()), stop.clone()));
    pay(&mut world, &[5]).await;
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    for _ in 0..2 {
        let arrived = tokio::time::timeout(Duration::from_secs(60), receiver.arrived.notified()).await;
        arrived.expect("within a poll");
    }
    stop.cancel();
    let ended = tokio::time::timeout(Duration::from_secs(60), running.join_next()).await;
    ended.expect("in the time of the answer").unwrap().unwrap();
    let arrived = attempts(world.db()).await.iter().filter(|attempt| attempt.error.is_empty()).count();
    assert_eq!(arrived, 2, "what was under way is acknowledged");
    world.close().await;
}

#[tokio::test]
async fn what_arrived_is_acknowledged_though_the_store_is_away_for_a_moment_while_it_stops() {
    let permits = Arc::new(Semaphore::new(0));
    let receiver = Receiver::scripted([Answer::Held(Arc::clone(&permits), 200)]).await;
    let mut world = world(Engine::Postgres).await;
    register(&world, "hook", &receiver.url("/")).await;
    let stop = CancellationToken::new();
    let mut running = JoinSet::new();
    running.spawn(delivery(&world).run(Pulse::new("delivery", world.now()), stop.clone()));
    pay(&mut world, &[5]).await;
    tokio::time::timeout(Duration::from_secs(60), receiver.arrived.notified()).await.expect("within a poll");
    // Who holds a row that is needed for it.
    let mut holder = world.db().begin().await.unwrap();
    endpoints::set_releasing(&mut holder, "hook").await.unwrap();
    stop.cancel();
    permits.add_permits(1);
    // Longer than one try waits.
    tokio::time::sleep(Duration::from_secs(7)).await;
    drop(holder);
    let ended = tokio::time::timeout(Duration::from_secs(60), running.join_next()).await;
    ended.expect("in the time of a try").unwrap().unwrap();
    let attempts = attempts(world.db()).await;
    assert_eq!(attempts.iter().map(|attempt| attempt.error.as_str()).collect::<Vec<_>>(), [""], "it is not sent again");
    world.close().await;
}

// What the tests share.

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiver").field("received", &self.received()).finish_non_exhaustive()
    }
}

/// HMAC-SHA256 with [`KEY`], by its definition (RFC 2104) and in base64.
pub(crate) fn signature(text: &[u8]) -> String {
    let padded = |with: u8| {
        let mut block = [with; 64];
        block.iter_mut().zip(KEY).for_each(|(byte, key)| *byte ^= key);
        block
    };
    let inner = Sha256::digest([&padded(0x36), text].concat());
    STANDARD.encode(Sha256::digest([&padded(0x5c)[..], &inner].concat()))
}

pub(crate) async fn world(engine: Engine) -> World {
    let world = World::on(engine, 11).await;
    world.watch("alice", address(ALICE)).await;
    world.chain.mine_empty(1);
    world
}

/// Mines a payment of each amount to alice, and lets the watcher see them.
pub(crate) async fn pay(world: &mut World, amounts: &[u64]) {
    let legs = amounts.iter().map(|amount| SimLeg::native(address(PAYER), address(ALICE), *amount)).collect();
    // A transaction of its own each time: its hash is made of who sent it and the nonce.
    let nonce = world.chain.blocks().len().try_into().unwrap();
    world.chain.mine(vec![SimTx::new(address(PAYER), nonce, legs)]);
    world.catch_up().await;
}

fn webhook(id: &str, url: &str) -> WebhookRow {
    WebhookRow {
        id: id.to_owned(),
        url: url.to_owned(),
        label: String::new(),
        allowed_networks: "127.0.0.0/8".parse().unwrap(),
        signing_key_id: "key-1".to_owned(),
        signing_key: format!("whsec_{}", STANDARD.encode(KEY)),
    }
}

pub(crate) async fn register(world: &World, id: &str, url: &str) {
    insert(world, &webhook(id, url)).await;
}

async fn insert(world: &World, webhook: &WebhookRow) {
    let mut tx = world.db().begin().await.unwrap();
    webhooks::insert(&mut tx, webhook, world.now()).await.unwrap();
    tx.commit().await.unwrap();
}

/// A delivery whose waits have no jitter.
pub(crate) fn delivery(world: &World) -> Delivery {
    Delivery::new(world.db().clone(), world.clock(), || 200).unwrap()
}

pub(crate) async fn tick(world: &World) -> Delivered {
    delivery(world).tick().await.unwrap()
}

pub(crate) fn amount_and_status(body: &[u8]) -> (String, String) {
    let envelope: serde_json::Value = serde_json::from_slice(body).unwrap();
    let text = |field: &str| envelope["data"][field].as_str().unwrap().to_owned();
    (text("amount"), text("status"))
}

/// Every attempt, by webhook and number.
pub(crate) async fn attempts(db: &Db) -> Vec<Attempt> {
    let text = "SELECT webhook_id, attempt, status, error, response_head FROM attempts ORDER BY webhook_id, attempt";
    match db.read().await.unwrap().engine() {
        Connected::Postgres(connection) => sqlx::query_as(text).fetch_all(connection).await.unwrap(),
        Connected::Sqlite(connection) => sqlx::query_as(text).fetch_all(connection).await.unwrap(),
    }
}
