//! The NATS sink without a real server: which events are published when and under which id, which wait for others, what
//! clients see of it, and what is reported of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall::delivery::{DUPLICATE_WINDOW, Delivered, Delivery, Nats, NatsOptions};
use landfall::identity::{Change, IdentityType, NewIdentity};
use landfall::registry;
use landfall::store::endpoints::{self, Health, Status};
use landfall::store::sinks::{self, Kind, NATS, SinkReport, SinkStatus, State};
use landfall::store::{Db, Pools};
use landfall::time::{Pulse, Timestamp};
use landfall::transfer::{self, Announcement, FailureCode};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api::transfer_events::{accepted, announce, in_state};
use crate::api::transfers::Bench;
use crate::delivery::{Receiver, amount_and_status, attempts, delivery, pay, register, tick, world};
use crate::harness::nats_double::{Answer, NatsDouble, Published};
use crate::harness::postgres::{ENGINES, TestStore, folder};
use crate::harness::world::{FINALITY_DEPTH, World};

const WINDOW_SECS: u64 = DUPLICATE_WINDOW.as_secs();
/// Of nobody.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----
MIIBeDCCAR+gAwIBAgIUASzle4lWyybnDdHYVG53b1CTF0YwCgYIKoZIzj0EAwIw
ETEPMA0GA1UEAwwGYSB0ZXN0MCAXDTI2MTEyMjIyNDAzNVoYDzIxMjYxMDI5MjI0
MDM1WjARMQ8wDQYDVQQDDAZhIHRlc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AATSTdrKc0764oabZBaaFiI33UMbC2YCeZtVZ6vKUAaMLF6uuR0nOp9Qy6+UMYdt
zKdZFlvR0JqA7cyE3kFO5Eevo1MwUTAdBgNVHQ4EFgQUOSO4ADWGs86gvmdIFcx9
6xEKzLowHwYDVR0jBBgwFoAUOSO4ADWGs86gvmdIFcx96xEKzLowDwYDVR0TAQH/
BAUwAwEB/zAKBggqhkjOPQQDAgNHADBEAiBjRyxtrU6V1iFFUM/NkSJMuAieZC6a
EPMLi3b2TMOBbwIgNKIg+NMdX4DfcY0RLkNfcMLF6RfFh3ImT24eiD6u1uI=
-----END CERTIFICATE-----
";
/// Where nobody listens.
const NOWHERE: &str = "nats://127.0.0.1:9";

/// A sink of a world, and who keeps its connection.
struct Sink {
    nats: Arc<Nats>,
    _runs: JoinSet<()>,
}

impl Sink {
    async fn of(world: &World, url: &str) -> Self {
        Sink::with(world, options(url)).await
    }

    async fn with(world: &World, options: NatsOptions) -> Self {
        let nats = Arc::new(Nats::new(options, "me".to_owned()));
        nats.register(world.db(), &world.clock()).await.unwrap();
        let (runs, db, clock) = (Arc::clone(&nats), world.db().clone(), world.clock());
        let pulse = Pulse::new("nats", world.now());
        let mut running = JoinSet::new();
        running.spawn(async move { runs.run(db, clock, || 200, pulse, CancellationToken::new()).await });
        Sink { nats, _runs: running }
    }

    /// A delivery that publishes, too.
    fn delivery(&self, world: &World) -> Delivery {
        delivery(world).publishing_to(Arc::clone(&self.nats))
    }

    async fn tick(&self, world: &World) -> Delivered {
        self.delivery(world).tick().await.unwrap()
    }
}

fn options(url: &str) -> NatsOptions {
    NatsOptions {
        urls: vec![url.parse().unwrap()],
        credentials: None,
        ca: None,
        stream: "LANDFALL".to_owned(),
        subject: "landfall".to_owned(),
        replicas: 1,
    }
}

async fn status(db: &Db) -> SinkStatus {
    sinks::all(&mut db.read().await.unwrap()).await.unwrap().remove(0)
}

async fn until_state(world: &World, wanted: State) -> SinkStatus {
    let begun = Instant::now();
    loop {
        let status = status(world.db()).await;
        if status.state == Some(wanted) {
            return status;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{status:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Waits until a connection was made for the `count`-th time, and is used.
async fn until_up(world: &World, double: &NatsDouble, count: usize) {
    let begun = Instant::now();
    while double.connections() < count {
        assert!(begun.elapsed() < Duration::from_secs(60), "{} connections", double.connections());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    until_state(world, State::Up).await;
}

fn done(delivered: usize, to_be_retried: usize) -> Delivered {
    Delivered { delivered, to_be_retried }
}

fn reported(published: &[Published]) -> Vec<(String, String)> {
    published.iter().map(|message| amount_and_status(message.payload.as_bytes())).collect()
}

async fn confirm(world: &mut World) {
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
}

#[tokio::test]
async fn while_the_stream_cannot_be_reached_nothing_is_attempted_and_webhooks_get_theirs() {
    for engine in ENGINES {
        let mut world = world(engine).await;
        let receiver = Receiver::scripted([]).await;
        register(&world, "hook", &receiver.url("/")).await;
        let sink = Sink::of(&world, NOWHERE).await;
        pay(&mut world, &[5, 7]).await;
        assert!(until_state(&world, State::Away).await.reason.contains("127.0.0.1:9"));
        assert_eq!(sink.tick(&world).await, done(2, 0), "{engine:?}: the webhook's");
        assert_eq!(sink.tick(&world).await, done(0, 0), "{engine:?}");
        assert_eq!(receiver.bodies().len(), 2);
        assert!(attempts(world.db()).await.iter().all(|attempt| attempt.webhook_id == "hook"), "{engine:?}");
        let status = status(world.db()).await;
        assert_eq!((status.status.as_str(), status.pending), ("ACTIVE", 2), "{engine:?}: no failure counts");
        world.close().await;
    }
}

#[tokio::test]
async fn an_event_is_delivered_when_the_stream_has_said_so_and_published_again_under_its_id_otherwise() {
    for engine in ENGINES {
        let mut world = world(engine).await;
        let double = NatsDouble::start([Answer::Cut], WINDOW_SECS).await;
        let sink = Sink::of(&world, &double.url).await;
        pay(&mut world, &[5]).await;
        confirm(&mut world).await;
        until_up(&world, &double, 1).await;
        assert_eq!(sink.tick(&world).await, done(0, 1), "{engine:?}: nobody knows whether it was stored");
        until_up(&world, &double, 2).await;
        assert_eq!(sink.tick(&world).await, done(0, 0), "{engine:?}: CONFIRMED waits for PENDING");
        world.pass(Duration::from_secs(2));
        assert_eq!(sink.tick(&world).await, done(1, 0), "{engine:?}");
        assert_eq!(sink.tick(&world).await, done(1, 0), "{engine:?}");
        let published = double.published();
        let [first, again, confirmed] = &published[..] else { panic!("{published:?}") };
        assert_eq!(
            (first.header("Nats-Msg-Id"), &first.payload),
            (again.header("Nats-Msg-Id"), &again.payload),
            "{engine:?}"
        );
        let pair = |status: &str| ("0.000000000000000005".to_owned(), status.to_owned());
        assert_eq!(reported(&published), [pair("PENDING"), pair("PENDING"), pair("CONFIRMED")]);
        for message in [first, confirmed] {
            let envelope: serde_json::Value = serde_json::from_str(&message.payload).unwrap();
            assert_eq!(envelope["id"], message.header("Nats-Msg-Id"));
            assert_eq!(
                (message.subject.as_str(), message.header("Nats-Expected-Stream")),
                ("landfall.deposit_v2.alice", "LANDFALL")
            );
        }
        assert_ne!(first.header("Nats-Msg-Id"), confirmed.header("Nats-Msg-Id"));
        world.close().await;
    }
}

#[tokio::test]
async fn an_event_of_an_identity_is_published_under_that_one() {
    for engine in ENGINES {
        let world = world(engine).await;
        let double = NatsDouble::start([], WINDOW_SECS).await;
        let sink = Sink::of(&world, &double.url).await;
        let new = NewIdentity { kind: IdentityType::Business, label: String::new(), fiat_operations_enabled: false };
        registry::add_identity(world.db(), "a.b", &new, world.now()).await.unwrap();
        world.operator().change_identity(world.db(), "a.b", Change::Suspend).await.unwrap();
        until_up(&world, &double, 1).await;
        assert_eq!(sink.tick(&world).await, done(1, 0), "{engine:?}");
        let [published] = &double.published()[..] else { panic!("one message") };
        assert_eq!(published.subject, "landfall.identity_status_update.a%2Eb");
        let envelope: serde_json::Value = serde_json::from_str(&published.payload).unwrap();
        assert_eq!(
            (&envelope["id"], &envelope["data"]["identity"]["id"]),
            (&published.header("Nats-Msg-Id").into(), &"a.b".into())
        );
        world.close().await;
    }
}

#[tokio::test]
async fn an_event_of_a_transfer_is_published_under_its_account() {
    for engine in ENGINES {
        let bench = Bench::on(engine).await;
        let double = NatsDouble::start([], WINDOW_SECS).await;
        let sink = Sink::of(&bench.world, &double.url).await;
        let transfer = accepted(&bench).await;
        let dropped = in_state(&bench.world, &transfer, transfer::State::Dropped(FailureCode::WindowElapsed));
        let submitted = announce(&bench.world, &transfer, Announcement::Submitted, None).await;
        let dropped = announce(&bench.world, &dropped, Announcement::Dropped, None).await;
        until_up(&bench.world, &double, 1).await;
        while sink.tick(&bench.world).await != done(0, 0) {}
        let published = double.published();
        let found = published.iter().map(|message| (message.subject.as_str(), &message.payload));
        let expected = [
            ("landfall.transfer_submitted.alice", &submitted.payload),
            ("landfall.transfer_failed.alice", &dropped.payload),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected, "{engine:?}");
        assert_eq!(published[0].header("Nats-Msg-Id"), submitted.id.to_string(), "{engine:?}");
        bench.world.abandon();
    }
}

#[tokio::test]
async fn what_a_stream_refuses_is_reported_and_retried_by_the_schedule() {
    for engine in ENGINES {
        let mut world = world(engine).await;
        let double = NatsDouble::start([Answer::Refused], WINDOW_SECS).await;
        let sink = Sink::of(&world, &double.url).await;
        pay(&mut world, &[5]).await;
        until_up(&world, &double, 1).await;
        assert_eq!(sink.tick(&world).await, done(0, 1), "{engine:?}");
        let attempt = attempts(world.db()).await.remove(0);
        assert_eq!((attempt.webhook_id.as_str(), attempt.status), ("nats", None));
        assert!(attempt.error.contains("maximum messages exceeded\u{fffd}"), "{attempt:?}");
        world.pass(Duration::from_secs(2));
        assert_eq!(sink.tick(&world).await, done(1, 0), "{engine:?}");
        world.close().await;
    }
}

#[tokio::test]
async fn a_stream_that_refuses_event_after_event_is_probed_by_one_and_then_gets_all_in_order() {
    for engine in ENGINES {
        let mut world = world(engine).await;
        // Eight at once, which open it; then a probe that fails, too.
        let double = NatsDouble::start([Answer::Refused; 9], WINDOW_SECS).await;
        let sink = Sink::of(&world, &double.url).await;
        pay(&mut world, &(1..=20).collect::<Vec<_>>()).await;
        confirm(&mut world).await;
        until_up(&world, &double, 1).await;
        let delivery = sink.delivery(&world);
        assert_eq!(delivery.tick().await.unwrap(), done(0, 8), "{engine:?}: what may be under way at once");
        assert_eq!(status(world.db()).await.status, "FAILING", "{engine:?}");
        assert_eq!(delivery.tick().await.unwrap(), done(0, 0), "{engine:?}: nothing before the probe");
        world.pass(Duration::from_secs(2));
        assert_eq!(delivery.tick().await.unwrap(), done(0, 1), "{engine:?}: one probe");
        assert_eq!(delivery.tick().await.unwrap(), done(0, 0), "{engine:?}");
        world.pass(Duration::from_secs(5));
        assert_eq!(delivery.tick().await.unwrap(), done(1, 0), "{engine:?}: the probe that arrives");
        assert_eq!(status(world.db()).await.status, "ACTIVE", "{engine:?}");
        let mut delivered = 1;
        loop {
            let Delivered { delivered: more, to_be_retried } = delivery.tick().await.unwrap();
            assert_eq!(to_be_retried, 0, "{engine:?}");
            if more == 0 {
                break;
            }
            delivered += more;
        }
        assert_eq!((delivered, double.published().len()), (40, 49), "{engine:?}: no attempt was spent on the rest");
        let mut statuses: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (amount, status) in reported(&double.published()[9..]) {
            statuses.entry(amount).or_default().push(status);
        }
        assert!(statuses.values().all(|each| each == &["PENDING", "CONFIRMED"]), "{engine:?}: {statuses:?}");
        world.close().await;
    }
}

#[tokio::test]
async fn a_stream_that_forgets_ids_too_soon_gets_nothing() {
    for engine in ENGINES {
        let mut world = world(engine).await;
        let double = NatsDouble::start([], WINDOW_SECS - 1).await;
        let sink = Sink::of(&world, &double.url).await;
        pay(&mut world, &[5]).await;
        let refused = until_state(&world, State::Refused).await;
        assert!(refused.reason.contains("it must be 7 days"), "{refused:?}");
        assert_eq!(sink.tick(&world).await, done(0, 0), "{engine:?}");
        assert_eq!(double.published(), []);
        world.close().await;
    }
}

#[tokio::test]
async fn a_process_that_publishes_nowhere_leaves_the_events_of_the_stream_to_others() {
    for engine in ENGINES {
        let mut world = world(engine).await;
        let double = NatsDouble::start([], WINDOW_SECS).await;
        let sink = Sink::of(&world, &double.url).await;
        pay(&mut world, &[5, 7]).await;
        until_up(&world, &double, 1).await;
        assert_eq!(tick(&world).await, done(0, 0), "{engine:?}: it has no section [nats]");
        assert_eq!(sink.tick(&world).await, done(2, 0), "{engine:?}");
        world.close().await;
    }
}

#[tokio::test]
async fn a_process_that_names_another_stream_than_the_last_that_was_started_leaves_it_the_events() {
    for engine in ENGINES {
        let mut world = world(engine).await;
        let double = NatsDouble::start([], WINDOW_SECS).await;
        let sink = Sink::of(&world, &double.url).await;
        pay(&mut world, &[5]).await;
        until_up(&world, &double, 1).await;
        let mut tx = world.db().begin().await.unwrap();
        sinks::ensure(&mut tx, NATS, Kind::Nats, "nats:ANOTHER", world.now()).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(sink.tick(&world).await, done(0, 0), "{engine:?}: it is another's by now");
        assert_eq!(double.published(), []);
        sink.nats.register(world.db(), &world.clock()).await.unwrap();
        assert_eq!(sink.tick(&world).await, done(1, 0), "{engine:?}");
        world.close().await;
    }
}

#[tokio::test]
async fn who_names_the_certificates_to_trust_is_never_connected_without_tls() {
    let world = world(ENGINES[0]).await;
    let double = NatsDouble::start([], WINDOW_SECS).await;
    let folder = folder();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, CERTIFICATE).unwrap();
    let options = NatsOptions { ca: Some(ca), ..options(&double.url) };
    let _sink = Sink::with(&world, options).await;
    until_state(&world, State::Away).await;
    assert_eq!(double.published(), []);
    world.close().await;
}

#[tokio::test]
async fn a_sink_that_is_paused_keeps_its_events_also_over_a_restart_and_one_that_was_given_up_begins_anew() {
    for engine in ENGINES {
        let mut world = world(engine).await;
        let double = NatsDouble::start([], WINDOW_SECS).await;
        let sink = Sink::of(&world, &double.url).await;
        let mut tx = world.db().begin().await.unwrap();
        assert!(endpoints::pause(&mut tx, NATS, world.now()).await.unwrap());
        tx.commit().await.unwrap();
        sink.nats.register(world.db(), &world.clock()).await.unwrap();
        pay(&mut world, &[5]).await;
        until_up(&world, &double, 1).await;
        assert_eq!(sink.tick(&world).await, done(0, 0), "{engine:?}");
        let mut tx = world.db().begin().await.unwrap();
        assert!(endpoints::resume(&mut tx, NATS, world.now()).await.unwrap());
        tx.commit().await.unwrap();
        assert_eq!(sink.tick(&world).await, done(1, 0), "{engine:?}");

        let refusing =
            "UPDATE webhooks SET status = 'FAILING', failures = 9, strain = 500, probe_us = 9000000000000000";
        match world.db().pools() {
            Pools::Sqlite { write, .. } => drop(sqlx::query(refusing).execute(write).await.unwrap()),
            Pools::Postgres(pool) => drop(sqlx::query(refusing).execute(pool).await.unwrap()),
        }
        let mut tx = world.db().begin().await.unwrap();
        assert!(sinks::give_up(&mut tx, NATS, world.now()).await.unwrap());
        assert!(!sinks::give_up(&mut tx, NATS, world.now()).await.unwrap(), "{engine:?}: once");
        tx.commit().await.unwrap();
        pay(&mut world, &[7]).await;
        assert_eq!(sinks::all(&mut world.db().read().await.unwrap()).await.unwrap(), []);
        sink.nats.register(world.db(), &world.clock()).await.unwrap();
        pay(&mut world, &[9]).await;
        let busy = endpoints::busy(&mut world.db().read().await.unwrap(), world.now()).await.unwrap().remove(0);
        let Health { status, failures, strain, in_flight_max, .. } = busy.health;
        assert_eq!((status, failures, strain, in_flight_max, busy.releasing), (Status::Active, 0, 0, 1, true));
        assert_eq!(sink.tick(&world).await, done(1, 0), "{engine:?}: the events that come from now on");
        assert_eq!(reported(&double.published())[1].0, "0.000000000000000009");
        world.close().await;
    }
}

#[tokio::test]
async fn of_several_processes_the_word_of_one_that_is_up_stands_while_it_is_repeated() {
    for engine in ENGINES {
        let store = TestStore::fresh(engine).await;
        let at = |secs: i64| Timestamp(secs * 1_000_000);
        let say = async |owner: &str, state: State, secs: i64| {
            let mut tx = store.db.begin().await.unwrap();
            sinks::ensure(&mut tx, NATS, Kind::Nats, "nats:LANDFALL", at(secs)).await.unwrap();
            let word = SinkReport { owner, state, reason: owner };
            sinks::say(&mut tx, NATS, word, at(secs)).await.unwrap();
            tx.commit().await.unwrap();
            let status = status(&store.db).await;
            (status.reason, status.state.unwrap(), status.since.0 / 1_000_000)
        };
        let reported = |owner: &str, state, since| (owner.to_owned(), state, since);
        assert_eq!(say("a", State::Away, 100).await, reported("a", State::Away, 100));
        assert_eq!(say("b", State::Away, 110).await, reported("b", State::Away, 100), "{engine:?}: since the first");
        assert_eq!(say("a", State::Up, 120).await, reported("a", State::Up, 120));
        assert_eq!(say("b", State::Refused, 149).await, reported("a", State::Up, 120), "{engine:?}: a publishes");
        assert_eq!(say("b", State::Refused, 150).await, reported("b", State::Refused, 150), "{engine:?}: a is silent");
        assert_eq!(say("a", State::Up, 151).await, reported("a", State::Up, 151));
        assert_eq!(say("a", State::Away, 152).await, reported("a", State::Away, 152), "{engine:?}: its own word");
    }
}
