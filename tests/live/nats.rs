//! Events in a real JetStream: each once and in order for each deposit, whoever is killed, whatever gets lost, and
//! however long the server is away; and nothing else waits for it meanwhile.

use std::time::{Duration, Instant};

use async_nats::jetstream::stream::Config;
use landfall::sandbox::token;
use landfall_chain::U256;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::Value;

use crate::hook::{Arrived, Hook};
use crate::nats_server::{LossyDoor, NatsServer, assert_each_once_and_in_order};
use crate::stage::{Engine, Stage, address, full};

const ALICE: u8 = 0xa1;
const BLOCK_DEPOSITS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(60);
/// What a kill interrupts is attempted again when its lease of 60 s ends.
const LEASES_PATIENCE: Duration = Duration::from_secs(180);

/// A stage whose account is called `account`, with a section [nats] and a webhook.
async fn stage(engine: Engine, url: &str, account: &str, hook: &Hook) -> Stage {
    let stage = Stage::new(engine).await;
    let path = stage.folder.path().join("landfall.toml");
    let config = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{config}[nats]\nurls = [\"{url}\"]\n")).unwrap();
    let spec = format!("ETHEREUM_TESTNET={}", address(ALICE));
    stage.ok(&["account", "add", "--account", account, "--type", "SEGREGATED", "--address", &spec]);
    stage.ok(&["webhook", "add", "--url", &hook.url, "--allow-private", "127.0.0.0/8", "--json"]);
    stage
}

/// One block with deposits.
async fn pay(stage: &mut Stage) {
    let legs = [(address(ALICE), U256::ONE); BLOCK_DEPOSITS];
    stage.call(stage.token, token::pay(&legs)).await;
    stage.node.mine(1).await.unwrap();
}

fn events(stage: &Stage) -> Vec<Value> {
    stage.ok(&["event", "list", "--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What `status` says of the sink.
fn sink(stage: &Stage) -> Value {
    let status: Value = serde_json::from_str(&stage.ok(&["status", "--json"])).unwrap();
    status["sinks"][0].clone()
}

async fn until_sink(stage: &Stage, what: &str, patience: Duration, wanted: impl Fn(&Value) -> bool) -> Value {
    let begun = Instant::now();
    loop {
        let sink = sink(stage);
        if wanted(&sink) {
            return sink;
        }
        assert!(begun.elapsed() < patience, "{what} did not come true: {sink}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until every event of so many deposits is acknowledged, and looks at the stream.
async fn assert_all_arrived(stage: &Stage, server: &NatsServer, deposits: usize, account: &str) {
    server.until_stored(2 * deposits, LEASES_PATIENCE).await;
    until_sink(stage, "nothing pending", LEASES_PATIENCE, |sink| sink["pending"] == 0).await;
    let events = events(stage);
    assert_eq!(events.len(), 2 * deposits);
    assert_each_once_and_in_order(&server.stored().await, &events, account);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_is_in_the_stream_once_and_status_reports_of_it() {
    let server = NatsServer::start();
    let hook = Hook::start(Duration::from_millis(1)).await;
    let mut stage = stage(Engine::Sqlite, &server.url(), "a.b", &hook).await;
    let service = stage.start();
    until_sink(&stage, "up", PATIENCE, |sink| sink["state"] == "up").await;
    for _ in 0..3 {
        pay(&mut stage).await;
    }
    stage.node.mine(3).await.unwrap();
    assert_all_arrived(&stage, &server, 3 * BLOCK_DEPOSITS, "a%2Eb").await;
    let config = server.context().await.get_stream("LANDFALL").await.unwrap().cached_info().config.clone();
    assert_eq!(config.duplicate_window, Duration::from_secs(7 * 24 * 3_600));

    // Sent again within the window, an event is acknowledged and not stored again.
    let event = events(&stage).remove(0)["id"].as_str().unwrap().to_owned();
    stage.ok(&["event", "replay", &event, "--webhook", "nats", "--reason", "a test"]);
    until_sink(&stage, "sent again", PATIENCE, |sink| sink["pending"] == 0).await;
    let shown: Value = serde_json::from_str(&stage.ok(&["event", "show", &event, "--json"])).unwrap();
    assert!(shown.to_string().contains("of stream LANDFALL, stored before"), "{shown}");
    assert_eq!(server.stored().await.len(), 6 * BLOCK_DEPOSITS);

    assert_eq!(
        stage.run(&["webhook", "remove", "nats", "--reason", "a test"]).status.code(),
        Some(2),
        "while it is configured"
    );
    assert!(stage.ok(&["status"]).contains("nats ACTIVE, up for"));
    assert_eq!(service.stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_again_and_again_loses_nothing_and_keeps_back_no_webhook() {
    let (rounds, mode) = if full() { (30, "full") } else { (5, "bounded") };
    let mut rng = StdRng::seed_from_u64(20_261_122);
    let mut server = NatsServer::start();
    let hook = Hook::start(Duration::from_millis(1)).await;
    let mut stage = stage(Engine::Sqlite, &server.url(), "alice", &hook).await;
    let service = stage.start();
    for round in 1..=rounds {
        until_sink(&stage, "up", PATIENCE, |sink| sink["state"] == "up").await;
        let reported = 2 * round * BLOCK_DEPOSITS;
        if round % 2 == 0 {
            // Somewhere between the first message of the block and the last, or a little later.
            let before = server.stored().await.len();
            pay(&mut stage).await;
            server.until_stored(before + rng.random_range(1..BLOCK_DEPOSITS), PATIENCE).await;
        } else {
            // What it is sent dies with it: the webhook's were claimed together with its own.
            server.signal("STOP");
            pay(&mut stage).await;
            hook.until("claims", PATIENCE, |_| hook.times().len() >= reported - BLOCK_DEPOSITS).await;
        }
        server.kill();
        pay(&mut stage).await;
        hook.until("webhooks go on", PATIENCE, |_| hook.times().len() >= reported).await;
        until_sink(&stage, "away", PATIENCE, |sink| sink["state"] == "away").await;
        server.start_again();
    }
    stage.node.mine(3).await.unwrap();
    assert_all_arrived(&stage, &server, 2 * rounds * BLOCK_DEPOSITS, "alice").await;
    stage.until_healthy().await;
    println!("{mode}: {rounds} kills of nats-server, {} events, each once", 4 * rounds * BLOCK_DEPOSITS);
    assert_eq!(service.stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn acknowledgements_that_get_lost_store_nothing_twice() {
    const LOST: usize = 4;
    let server = NatsServer::start();
    let hook = Hook::start(Duration::from_millis(1)).await;
    let door = LossyDoor::before(&server).await;
    let mut stage = stage(Engine::Sqlite, &door.url, "alice", &hook).await;
    let service = stage.start();
    until_sink(&stage, "up", PATIENCE, |sink| sink["state"] == "up").await;
    door.lose(LOST);
    for _ in 0..4 {
        pay(&mut stage).await;
    }
    stage.node.mine(3).await.unwrap();
    let begun = Instant::now();
    while door.left_to_lose() > 0 {
        assert!(begun.elapsed() < LEASES_PATIENCE, "{} are left to lose: {}", door.left_to_lose(), sink(&stage));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_all_arrived(&stage, &server, 4 * BLOCK_DEPOSITS, "alice").await;
    assert_eq!(service.stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stands_still_is_waited_for_and_keeps_back_no_webhook() {
    let server = NatsServer::start();
    let hook = Hook::start(Duration::from_millis(1)).await;
    let mut stage = stage(Engine::Sqlite, &server.url(), "alice", &hook).await;
    let service = stage.start();
    until_sink(&stage, "up", PATIENCE, |sink| sink["state"] == "up").await;
    server.signal("STOP");
    pay(&mut stage).await;
    stage.node.mine(3).await.unwrap();
    hook.until("webhooks go on", PATIENCE, |_| hook.times().len() == 2 * BLOCK_DEPOSITS).await;
    let waiting = until_sink(&stage, "away", PATIENCE, |sink| sink["state"] == "away").await;
    assert_eq!(waiting["pending"], 2 * BLOCK_DEPOSITS);
    server.signal("CONT");
    assert_all_arrived(&stage, &server, BLOCK_DEPOSITS, "alice").await;
    assert_eq!(service.stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_of_landfall_in_the_middle_of_publishing_loses_nothing_on_sqlite() {
    kills(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_9_of_landfall_in_the_middle_of_publishing_loses_nothing_on_postgresql() {
    kills(Engine::Postgres).await;
}

async fn kills(engine: Engine) {
    let (count, mode) = if full() { (100, "full") } else { (8, "bounded") };
    let mut rng = StdRng::seed_from_u64(20_261_123);
    let server = NatsServer::start();
    let hook = Hook::start(Duration::from_millis(1)).await;
    let mut stage = stage(engine, &server.url(), "alice", &hook).await;
    let (mut in_the_middle, mut blocks) = (0, 0);
    for round in 0..count {
        let before = server.stored().await.len();
        let service = stage.start();
        pay(&mut stage).await;
        blocks += 1;
        server.until_stored(before + rng.random_range(1..=BLOCK_DEPOSITS), PATIENCE).await;
        if round % 2 == 0 {
            service.kill();
        } else {
            // It publishes, and of the next block the server acknowledges nothing: this kill does not come too late.
            let known = stage.until("every block", |deposits| deposits.len() == blocks * BLOCK_DEPOSITS).await;
            server.signal("STOP");
            pay(&mut stage).await;
            blocks += 1;
            let is_new = |reported: &Arrived| known.iter().all(|deposit| deposit["id"] != reported.deposit.as_str());
            hook.until("claims", PATIENCE, |reported| reported.iter().any(is_new)).await;
            service.kill();
            server.signal("CONT");
        }
        in_the_middle += usize::from(sink(&stage)["pending"] != 0);
    }
    assert!(2 * in_the_middle >= count, "{} of {count} kills came too late", count - in_the_middle);
    stage.node.mine(3).await.unwrap();
    let service = stage.start();
    assert_all_arrived(&stage, &server, blocks * BLOCK_DEPOSITS, "alice").await;
    println!(
        "{mode}, {engine:?}: {in_the_middle} of {count} kills in the middle, {} events, each once",
        2 * blocks * BLOCK_DEPOSITS
    );
    assert_eq!(service.stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_with_a_short_duplicate_window_is_refused_until_it_is_mended() {
    let server = NatsServer::start();
    let hook = Hook::start(Duration::from_millis(1)).await;
    let short = Config {
        name: "LANDFALL".to_owned(),
        subjects: vec!["landfall.>".to_owned()],
        duplicate_window: Duration::from_secs(120),
        ..Config::default()
    };
    let context = server.context().await;
    context.create_stream(short.clone()).await.unwrap();
    let mut stage = stage(Engine::Sqlite, &server.url(), "alice", &hook).await;
    let service = stage.start();
    pay(&mut stage).await;
    stage.node.mine(3).await.unwrap();
    let is_refused = |sink: &Value| sink["state"] == "refused" && sink["secs"] != 0;
    let refused = until_sink(&stage, "refused", PATIENCE, is_refused).await;
    let expected = "stream LANDFALL knows messages again for 120 s only, so that an event could be stored twice; it must be 7 days: \
                    `nats stream edit LANDFALL --dupe-window 168h`";
    assert_eq!(refused["reason"], expected);
    hook.until("webhooks go on", PATIENCE, |_| hook.times().len() == 2 * BLOCK_DEPOSITS).await;
    assert_eq!(server.stored().await, []);
    let complained = stage.run(&["health", "--max-lag", "0s"]);
    assert_eq!(complained.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&complained.stdout).contains("nats: refused for"), "{complained:?}");

    context.update_stream(Config { duplicate_window: Duration::from_secs(7 * 24 * 3_600), ..short }).await.unwrap();
    assert_all_arrived(&stage, &server, BLOCK_DEPOSITS, "alice").await;
    assert_eq!(service.stop().0, Some(0));
}
