//! `landfall event list|show|replay` and `webhook pause|resume`: the real binary on a store that a world has filled.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use landfall::delivery::Delivered;
use landfall::event::TestEvent;
use landfall::store::sinks::{self, Kind, NATS};
use landfall::store::status::{self, ChainStatus};
use landfall::store::{Connection, Engine as Connected, events};
use landfall::time::{Clock, Timestamp};
use landfall_chain::Chain;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::delivery::engine::write;
use crate::delivery::{Answer, Receiver, amount_and_status, delivery, pay, register, tick, world};
use crate::harness::postgres::{ENGINES, Engine, folder};
use crate::harness::world::{FINALITY_DEPTH, World};

/// A folder with a configuration that names the world's store.
struct Desk(TempDir);

impl Desk {
    fn of(world: &World) -> Self {
        let desk = Desk(folder());
        let config = format!(
            "[store]\nurl = \"{}\"\n[api]\nenvironment = \"test\"\n\
             [chains.ETHEREUM_TESTNET]\nrpc = [\"http://127.0.0.1:9/\"]\n",
            world.store.url
        );
        std::fs::write(desk.0.path().join("landfall.toml"), config).unwrap();
        desk
    }

    /// The exit code, what was printed, and what was said to stderr.
    fn run(&self, arguments: &[&str]) -> (Option<i32>, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_landfall"))
            .current_dir(self.0.path())
            .env("LANDFALL_ACTOR", "olga")
            .args(arguments)
            .output();
        let output = output.unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    /// The JSON lines of a command that must succeed.
    fn json(&self, arguments: &[&str]) -> Vec<Value> {
        let (code, printed, said) = self.run(&[arguments, &["--json"]].concat());
        assert_eq!(code, Some(0), "{arguments:?}: {said}");
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Two deposits of alice, reported in four events that have arrived.
async fn reported(world: &mut World, receiver: &Receiver) {
    register(world, "hook", &receiver.url("/")).await;
    pay(world, &[5, 7]).await;
    world.pass(Duration::from_secs(1));
    world.chain.mine_empty(FINALITY_DEPTH);
    world.catch_up().await;
    for _ in 0..2 {
        assert_eq!(tick(world).await, Delivered { delivered: 2, to_be_retried: 0 });
    }
}

#[tokio::test]
async fn events_are_listed_and_one_is_shown_with_its_deliveries_and_attempts() {
    for engine in ENGINES {
        let receiver = Receiver::scripted([Answer::Fault(b"not now".to_vec())]).await;
        let mut world = world(engine).await;
        let desk = Desk::of(&world);
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &[5]).await;
        tick(&world).await;

        let [listed] = &desk.json(&["event", "list", "--account", "alice"])[..] else { panic!("one event") };
        assert_eq!((&listed["status"], &listed["pending"]), (&Value::from("PENDING"), &Value::from(1)));
        assert_eq!(desk.json(&["event", "list", "--pending"]).len(), 1);
        assert_eq!(desk.json(&["event", "list", "--account", "bob"]).len(), 0);
        assert_eq!(desk.json(&["event", "list", "--to", "2001-01-01T00:00:00Z"]).len(), 0);

        let id = listed["id"].as_str().unwrap();
        let shown = desk.json(&["event", "show", id]).remove(0);
        assert_eq!(shown["payload"]["id"], id, "the bytes that are sent");
        let delivery = &shown["deliveries"][0];
        assert_eq!((&delivery["webhook_id"], &delivery["state"]), (&Value::from("hook"), &Value::from("AGAIN")));
        assert_eq!(
            (&delivery["log"][0]["status"], &delivery["log"][0]["response_head"]),
            (&500.into(), &"not now".into())
        );
        let (code, printed, said) = desk.run(&["event", "show", "no-such-id"]);
        assert_eq!((code, printed.as_str()), (Some(1), ""));
        assert_eq!(said.trim_end(), "landfall: there is no event no-such-id");
        world.close().await;
    }
}

#[tokio::test]
async fn the_last_failure_of_a_webhook_is_shown_wherever_one_asks_how_it_does() {
    for engine in ENGINES {
        let receiver = Receiver::scripted([Answer::Status(502)]).await;
        let mut world = world(engine).await;
        let desk = Desk::of(&world);
        register(&world, "hook", &receiver.url("/")).await;
        pay(&mut world, &[5]).await;
        let id = desk.json(&["event", "list"]).remove(0)["id"].as_str().unwrap().to_owned();
        assert!(!desk.run(&["webhook", "show", "hook"]).1.contains("last failure"), "{engine:?}");
        tick(&world).await;
        write(&world, "UPDATE webhooks SET status = 'FAILING', status_since_us = 1").await;
        for command in [&["webhook", "show", "hook"][..], &["status"], &["health"]] {
            let (_, printed, said) = desk.run(command);
            assert!(printed.contains("the receiver answered 502 Bad Gateway (at 20"), "{command:?}: {printed}{said}");
            assert!(printed.contains(&format!("`landfall event show {id}`")), "{command:?}: {printed}");
        }
        let (_, printed, _) = desk.run(&["health"]);
        assert!(printed.contains("`landfall webhook resume hook --reason TEXT` sends them at once"), "{printed}");
        assert_eq!(desk.json(&["webhook", "show", "hook"])[0]["last_failure"]["event_id"], id.as_str());
        assert_eq!(desk.json(&["status"])[0]["webhooks"][0]["last_failure"]["event_id"], id.as_str());
        world.close().await;
    }
}

#[tokio::test]
async fn a_chain_that_is_not_configured_any_more_is_reported_as_such_and_not_with_its_last_failure() {
    for engine in ENGINES {
        let world = world(engine).await;
        let desk = Desk::of(&world);
        let mut tx = world.db().begin().await.unwrap();
        for chain in [Chain::EthereumTestnet, Chain::BaseMainnet] {
            let status = ChainStatus {
                chain,
                state: "failing".to_owned(),
                reason: format!("{chain}: no node answers"),
                proof: String::new(),
                latest: Some(9),
                finalized: None,
                cursor: None,
                caught_up_at: world.now(),
                // Who follows the one has said so just now; the other was followed long ago.
                heartbeat_at: if chain == Chain::BaseMainnet { Timestamp(1) } else { Clock::system().now() },
                endpoints: Vec::new(),
                finalized_at: world.now(),
                alarms: vec!["finality stalls".to_owned()],
            };
            status::record(&mut tx, &status, &[]).await.unwrap();
        }
        tx.commit().await.unwrap();
        let chains = desk.json(&["status"]).remove(0)["chains"].clone();
        let reported = |nth: usize| ["chain", "state", "reason"].map(|field| chains[nth][field].as_str().unwrap());
        assert_eq!(reported(0), ["BASE_MAINNET", "not configured any more", ""], "{engine:?}");
        assert_eq!(reported(1), ["ETHEREUM_TESTNET", "failing", "no node answers"], "{engine:?}");
        assert_eq!((&chains[0]["alarms"], &chains[0]["latest"]), (&json!([]), &json!(9)), "{engine:?}");
        let (_, printed, _) = desk.run(&["status"]);
        assert_eq!(printed.matches("no node answers").count(), 1, "{printed}");
        world.close().await;
    }
}

#[tokio::test]
async fn events_of_an_identity_are_listed_shown_and_sent_again_from_the_command_line() {
    for engine in ENGINES {
        let receiver = Receiver::scripted([]).await;
        let world = world(engine).await;
        let desk = Desk::of(&world);
        register(&world, "hook", &receiver.url("/")).await;
        let (code, _, said) = desk.run(&["identity", "suspend", "default", "--reason", "a fraud report"]);
        assert_eq!(code, Some(0), "{said}");
        let audited = desk.json(&["audit", "list"]).remove(0);
        let audited = ["action", "what", "reason"].map(|field| audited[field].as_str().unwrap());
        assert_eq!(audited, ["suspend_identity", "default", "a fraud report"], "{engine:?}");
        assert_eq!(desk.json(&["chain", "audit"]).len(), 0, "{engine:?}: it is about no chain");
        let listed = desk.json(&["event", "list", "--account", "alice"]);
        let [event] = &listed[..] else { panic!("{listed:?}") };
        let fields = ["type", "aggregate_id", "account_id", "status"].map(|field| event[field].as_str().unwrap());
        assert_eq!(fields, ["identity_status_update", "default", "", "SUSPENDED"], "{engine:?}");
        let id = event["id"].as_str().unwrap();
        let (_, printed, _) = desk.run(&["event", "list"]);
        assert!(
            printed.ends_with(&format!("{id} identity_status_update SUSPENDED of default, pending at 1 webhooks\n")),
            "{printed}"
        );
        assert_eq!(tick(&world).await, Delivered { delivered: 1, to_be_retried: 0 });
        let shown = desk.json(&["event", "show", id]).remove(0);
        assert_eq!(shown["payload"]["data"]["status_reason"], "a fraud report");
        assert_eq!(shown["deliveries"][0]["state"], "DELIVERED");
        for which in [[id].as_slice(), &["--account", "alice"]] {
            let said = desk.json(&[&["event", "replay", "--reason", "a test"], which].concat()).remove(0);
            assert_eq!((&said["events"], &said["deliveries"]), (&1.into(), &1.into()), "{engine:?} {which:?}");
            assert_eq!(tick(&world).await, Delivered { delivered: 1, to_be_retried: 0 });
        }
        let bodies = receiver.bodies();
        assert_eq!((bodies.len(), &bodies[0]), (3, &bodies[2]), "{engine:?}: the same bytes each time");
        world.close().await;
    }
}

/// One that came between would be sent before an earlier one of its deposit that is to be sent again.
#[tokio::test]
async fn a_replay_waits_for_events_that_are_being_written() {
    let receiver = Receiver::scripted([]).await;
    let mut world = world(Engine::Postgres).await;
    reported(&mut world, &receiver).await;
    let desk = Desk::of(&world);
    let mut writing = world.db().begin().await.unwrap();
    let test = TestEvent::new("hook", &[7; 32], world.now());
    events::append_test(&mut writing, &test, world.now()).await.unwrap();
    // One that comes meanwhile, and arrives by itself, is not sent again.
    for text in [
        "INSERT INTO events (id, aggregatetype, aggregateid, type, payload, organization_id, account_id, status, nth_entry, position, \
         created_us) SELECT 'later', aggregatetype, 'later', type, payload, organization_id, account_id, status, nth_entry, 0, \
         created_us + 1 FROM events WHERE account_id = 'alice' ORDER BY created_us DESC LIMIT 1",
        "INSERT INTO deliveries (event_id, webhook_id, aggregateid, position, state, attempt, next_us) \
         VALUES ('later', 'hook', 'later', 0, 'DELIVERED', 1, 0)",
    ] {
        let Connected::Postgres(connection) = writing.engine() else { panic!("PostgreSQL") };
        assert_eq!(sqlx::query(text).execute(connection).await.unwrap().rows_affected(), 1);
    }
    let replay = ["event", "replay", "--account", "alice", "--reason", "a test"];
    let replaying = tokio::task::spawn_blocking(move || desk.run(&replay));
    let waiting =
        "SELECT COUNT(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    let begun = Instant::now();
    let waits = async || {
        let mut reader = world.db().read().await.unwrap();
        let Connected::Postgres(connection) = reader.engine() else { panic!("PostgreSQL") };
        sqlx::query_scalar::<_, i64>(waiting).fetch_one(connection).await.unwrap() > 0
    };
    while !waits().await {
        assert!(!replaying.is_finished() && begun.elapsed() < Duration::from_secs(60), "it did not wait");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    writing.commit().await.unwrap();
    let (code, replayed, said) = replaying.await.unwrap();
    assert_eq!(code, Some(0), "{said}");
    assert!(replayed.starts_with("4 events are sent again"), "{replayed}");
    for table in ["deliveries WHERE event_id", "events WHERE id"] {
        write(&world, format!("DELETE FROM {table} = 'later'")).await;
    }
    world.close().await;
}

#[tokio::test]
async fn a_replay_sends_again_in_order_and_a_dry_run_changes_nothing() {
    for engine in ENGINES {
        let receiver = Receiver::scripted([]).await;
        let mut world = world(engine).await;
        let desk = Desk::of(&world);
        reported(&mut world, &receiver).await;
        let said = desk.json(&["event", "replay", "--account", "alice", "--dry-run"]).remove(0);
        assert_eq!((&said["events"], &said["deliveries"], &said["dry_run"]), (&4.into(), &4.into(), &true.into()));
        // Between two times, both inclusive.
        let listed = desk.json(&["event", "list"]);
        let at = |nth: usize| listed[nth]["created_at"].as_str().unwrap();
        assert!(at(1) < at(2), "{listed:?}");
        for (range, events) in [([at(0), at(1)], 2), ([at(2), at(3)], 2), ([at(1), at(2)], 4)] {
            let range = ["--from", range[0], "--to", range[1]];
            let said = desk.json(&[["event", "replay", "--dry-run"].as_slice(), &range].concat()).remove(0);
            assert_eq!((&said["events"], &said["deliveries"]), (&events.into(), &events.into()), "{range:?}");
        }
        world.pass(Duration::from_secs(1_000_000_000));
        assert_eq!(tick(&world).await, Delivered::default(), "nothing has changed");

        let id = desk.json(&["event", "list"])[0]["id"].as_str().unwrap().to_owned();
        desk.json(&["event", "replay", &id, "--reason", "a test"]);
        assert_eq!(tick(&world).await, Delivered { delivered: 1, to_be_retried: 0 });
        desk.json(&["event", "replay", "--from", "2001-01-01T00:00:00Z", "--reason", "a test"]);
        for _ in 0..2 {
            assert_eq!(tick(&world).await, Delivered { delivered: 2, to_be_retried: 0 }, "PENDING, then CONFIRMED");
        }
        let statuses: Vec<String> = receiver.received().iter().map(|got| amount_and_status(&got.body).1).collect();
        assert_eq!(statuses[5..], ["PENDING", "PENDING", "CONFIRMED", "CONFIRMED"]);

        // A receiver that came later gets what was before, when it is named.
        let late = Receiver::scripted([]).await;
        register(&world, "late", &late.url("/")).await;
        let said =
            desk.json(&["event", "replay", "--account", "alice", "--webhook", "late", "--reason", "a test"]).remove(0);
        assert_eq!(said["deliveries"], 4);
        for _ in 0..2 {
            tick(&world).await;
        }
        assert_eq!((late.received().len(), receiver.received().len()), (4, 9), "that one only");
        assert_eq!(desk.run(&["event", "replay", "no-such-id", "--reason", "a test"]).0, Some(2));
        // All events are never meant by nothing, nor all for one webhook, nor all up to some time.
        let said = "landfall: say which events: the id of one, --account ID, or since when by --from TIME\n";
        for which in [&[][..], &["--webhook", "late"], &["--to", "2001-01-01T00:00:00Z"]] {
            let command = [&["event", "replay", "--reason", "a test"], which].concat();
            assert_eq!(desk.run(&command), (Some(2), String::new(), said.to_owned()));
        }
        let (_, usage, _) = desk.run(&["event", "replay", "--help"]);
        assert!(
            usage.contains("Usage: landfall event replay <ID | --account ID | --from TIME [--to TIME]>"),
            "{usage}"
        );
        let of_nobody = ["event", "replay", "--account", "", "--reason", "a test"];
        assert_eq!(desk.run(&of_nobody).0, Some(2), "nor by a variable of the shell that is not set");
        world.close().await;
    }
}

#[tokio::test]
async fn a_later_event_that_is_under_way_is_called_off_by_a_replay_and_sent_behind_the_earlier_one() {
    for engine in ENGINES {
        let answers =
            [200, 200, 200, 200].map(Answer::Status).into_iter().chain([Answer::Late(Duration::from_secs(1))]);
        let receiver = Receiver::scripted(answers).await;
        let mut world = world(engine).await;
        let desk = Desk::of(&world);
        reported(&mut world, &receiver).await;
        let events = desk.json(&["event", "list"]);
        let confirmed = events.iter().find(|event| event["status"] == "CONFIRMED").unwrap();
        desk.json(&["event", "replay", confirmed["id"].as_str().unwrap(), "--reason", "a test"]);
        let slow = delivery(&world);
        let (late, ()) = tokio::join!(slow.tick(), async {
            while receiver.received().len() < 5 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            desk.json(&["event", "replay", "--account", "alice", "--reason", "a test"]);
        });
        assert_eq!(late.unwrap(), Delivered::default(), "{engine:?}: its end no longer counts");
        while tick(&world).await != Delivered::default() {}
        let deposit = amount_and_status(&receiver.received()[4].body).0;
        let reported = receiver.received().iter().map(|got| amount_and_status(&got.body)).collect::<Vec<_>>();
        let statuses: Vec<&str> =
            reported.iter().filter(|reported| reported.0 == deposit).map(|reported| reported.1.as_str()).collect();
        assert_eq!(statuses, ["PENDING", "CONFIRMED", "CONFIRMED", "PENDING", "CONFIRMED"], "{engine:?}");
        world.close().await;
    }
}

#[tokio::test]
async fn a_paused_webhook_gets_nothing_and_all_of_it_when_it_is_resumed() {
    for engine in ENGINES {
        let receiver = Receiver::scripted([]).await;
        let mut world = world(engine).await;
        let desk = Desk::of(&world);
        register(&world, "hook", &receiver.url("/")).await;
        assert_eq!(desk.run(&["webhook", "pause", "hook", "--reason", "a test"]).0, Some(0));
        pay(&mut world, &[5, 7]).await;
        assert_eq!(tick(&world).await, Delivered::default());
        assert_eq!(desk.run(&["webhook", "resume", "hook", "--reason", "a test"]).0, Some(0));
        for _ in 0..2 {
            assert_eq!(tick(&world).await, Delivered { delivered: 1, to_be_retried: 0 }, "one at first");
        }
        for verb in ["pause", "resume"] {
            assert_eq!(desk.run(&["webhook", verb, "nobody", "--reason", "a test"]).0, Some(2));
        }
        assert_eq!(desk.run(&["webhook", "resume", "hook", "--reason", "a test"]).0, Some(2), "it is not paused");
        world.close().await;
    }
}

#[tokio::test]
async fn a_webhook_that_is_paused_again_stays_paused_since_the_first_time_and_the_audit_hears_of_it_once() {
    for engine in ENGINES {
        let world = world(engine).await;
        let desk = Desk::of(&world);
        register(&world, "hook", "http://127.0.0.1:9/").await;
        let since = async || status::webhooks(&mut world.db().read().await.unwrap()).await.unwrap()[0].since;
        let pause = |reason| assert_eq!(desk.run(&["webhook", "pause", "hook", "--reason", reason]).0, Some(0));
        pause("a night's work");
        let first = since().await;
        pause("did I?");
        assert_eq!(since().await, first, "{engine:?}");
        let expected = ["pause_webhook", "hook", "a night's work"].map(str::to_owned);
        assert_eq!(audit(&desk), [expected], "{engine:?}");
        world.close().await;
    }
}

#[tokio::test]
async fn a_replay_says_how_many_it_leaves_out_because_their_status_is_not_sent() {
    const HINT: &str = "left out, for their status is not sent: see `landfall webhook statuses`";
    for engine in ENGINES {
        let receiver = Receiver::scripted([]).await;
        let mut world = world(engine).await;
        let desk = Desk::of(&world);
        reported(&mut world, &receiver).await;
        let pending = desk.json(&["event", "list"])[0]["id"].as_str().unwrap().to_owned();
        let replay = |more: &[&str]| desk.run(&[&["event", "replay", "--reason", "a test"], more].concat()).1;
        assert_eq!(replay(&[&pending]), "1 events are sent again, in 1 deliveries\n");
        assert_eq!(desk.run(&["webhook", "statuses", "CONFIRMED", "FAILED", "--reason", "a test"]).0, Some(0));
        let one = format!("0 events are sent again, in 0 deliveries; 1 {HINT}\n");
        assert_eq!(replay(&[&pending]), one, "{engine:?}");
        let all = format!("2 events would be sent again, in 2 deliveries; 2 {HINT}\n");
        assert_eq!(replay(&["--account", "alice", "--dry-run"]), all, "{engine:?}");
        let said = desk.json(&["event", "replay", "--account", "alice", "--dry-run"]).remove(0);
        assert_eq!((&said["events"], &said["left_out"]), (&2.into(), &2.into()), "{engine:?}");
        write(&world, "UPDATE events SET type = 'transfer_failed' WHERE status = 'PENDING'").await;
        let others = desk.json(&["event", "replay", "--account", "alice", "--dry-run"]).remove(0);
        assert_eq!((&others["events"], &others["left_out"]), (&4.into(), &0.into()), "{engine:?}: of another type");
        world.close().await;
    }
}

/// The audit, oldest first: what was done to what, and why.
fn audit(desk: &Desk) -> Vec<[String; 3]> {
    let entries = desk.json(&["audit", "list"]);
    assert!(
        entries.iter().all(|entry| entry["chain"].is_null()
            && entry["actor"].as_str().is_some_and(|actor| actor.starts_with("olga (as "))),
        "{entries:?}"
    );
    let reported = |entry: &Value| ["action", "what", "reason"].map(|field| entry[field].as_str().unwrap().to_owned());
    entries.iter().rev().map(reported).collect()
}

#[tokio::test]
async fn what_a_person_does_about_deliveries_needs_a_reason_and_stands_in_the_audit() {
    for engine in ENGINES {
        let mut world = world(engine).await;
        let desk = Desk::of(&world);
        let url = "https://203.0.113.1/a-secret-path";
        let add = ["webhook", "add", "--url", url, "--allow-private", "203.0.113.0/24", "--json"];
        let added: Value = serde_json::from_str(&desk.run(&add).1).unwrap();
        let id = added["id"].as_str().unwrap();
        pay(&mut world, &[5]).await;
        let event = desk.json(&["event", "list"])[0]["id"].as_str().unwrap().to_owned();
        let done: [(&[&str], &str); 9] = [
            (&["webhook", "pause", id], "pause_webhook"),
            (&["webhook", "resume", id], "resume_webhook"),
            (&["webhook", "rotate", id], "rotate_webhook_key"),
            (&["webhook", "statuses", "FAILED", "CONFIRMED"], "send_statuses"),
            (&["webhook", "statuses", "all"], "send_statuses"),
            (&["event", "replay", &event], "replay"),
            (&["event", "replay", "--account", "alice", "--from", "2001-01-01T00:00:00Z", "--webhook", id], "replay"),
            (&["event", "replay", "--from", "2001-01-01T00:00:00Z", "--to", "2001-01-02T00:00:00Z"], "replay"),
            (&["webhook", "remove", id], "remove_webhook"),
        ];
        let mut keys = added["secret"].to_string();
        for (command, _) in done {
            for reason in [&[][..], &["--reason", " "]] {
                assert_eq!(desk.run(&[command, reason].concat()).0, Some(2), "{engine:?}: {command:?} {reason:?}");
            }
            assert_eq!(audit(&desk).len(), 1 + done.iter().take_while(|done| done.0 != command).count(), "{command:?}");
            let (code, printed, said) = desk.run(&[command, &["--reason", "a night's work"]].concat());
            assert_eq!(code, Some(0), "{engine:?}: {command:?}: {said}");
            keys += &printed;
        }
        // What changes nothing, or cannot be done, leaves nothing behind.
        for command in [
            &["event", "replay", &event, "--dry-run"][..],
            &["webhook", "statuses"],
            &["webhook", "pause", id, "--reason", "again"],
            &["webhook", "rotate", "nobody", "--reason", "x"],
            &["event", "replay", "no-such-id", "--reason", "x"],
        ] {
            desk.run(command);
        }
        let found = audit(&desk);
        let actions: Vec<&str> = found.iter().map(|[action, ..]| action.as_str()).collect();
        let expected: Vec<&str> = ["add_webhook"].into_iter().chain(done.map(|(_, action)| action)).collect();
        assert_eq!(actions, expected, "{engine:?}");
        assert!(found[1..].iter().all(|[.., reason]| reason == "a night's work"), "{found:?}");
        let what: Vec<&str> = found.iter().map(|[_, what, _]| what.as_str()).collect();
        let key = what[3].strip_prefix(&format!("{id} to sk_")).unwrap_or_else(|| panic!("{what:?}"));
        assert!(key.len() == 16 && keys.contains(key), "the key's id: {what:?}");
        let all_of = format!("events of alice from 2001-01-01T00:00:00Z to {id}");
        assert_eq!(
            [what[0], what[1], what[2], what[4], what[5]],
            [id, id, id, "FAILED CONFIRMED", "PENDING CONFIRMED FAILED"]
        );
        let span = "events from 2001-01-01T00:00:00Z until 2001-01-02T00:00:00Z to all";
        assert_eq!(what[6..], [format!("{event} to all").as_str(), &all_of, span, id], "{engine:?}");
        let (_, text, _) = desk.run(&["audit", "list"]);
        assert!(
            text.contains(" - olga (as ") && text.contains(&format!(") pause_webhook {id} (a night's work)\n")),
            "{text}"
        );
        assert!(!text.contains("whsec_") && !text.contains("secret-path") && !text.contains("203.0.113.1"), "{text}");
        world.abandon();
    }
}

/// Refuses changes of deliveries as a deadlock does, while `is_refused` holds of how many there were.
async fn deadlock(world: &World, is_refused: &str) {
    for text in [
        "DROP TRIGGER IF EXISTS refuse ON deliveries".to_owned(),
        "DROP SEQUENCE IF EXISTS changes".to_owned(),
        "CREATE SEQUENCE changes".to_owned(),
        // What a sequence has given stays given when the transaction is taken back.
        format!(
            "CREATE OR REPLACE FUNCTION refuse() RETURNS trigger AS $$ BEGIN IF nextval('changes') {is_refused} THEN \
             RAISE EXCEPTION USING ERRCODE = '40P01'; END IF; RETURN NEW; END $$ LANGUAGE plpgsql"
        ),
        "CREATE TRIGGER refuse BEFORE UPDATE ON deliveries FOR EACH ROW EXECUTE FUNCTION refuse()".to_owned(),
    ] {
        write(world, text).await;
    }
}

#[tokio::test]
async fn a_replay_tries_again_what_may_pass() {
    let mut world = world(Engine::Postgres).await;
    let desk = Desk::of(&world);
    register(&world, "hook", "http://127.0.0.1:9/").await;
    // One more than five pages.
    pay(&mut world, &(1..=501).collect::<Vec<_>>()).await;
    write(&world, "UPDATE deliveries SET state = 'DELIVERED'").await;
    let replay = ["event", "replay", "--from", "2001-01-01T00:00:00Z", "--reason", "a test"];
    deadlock(&world, "<= 2").await;
    assert_eq!(desk.json(&replay)[0]["events"], 501);
    world.abandon();
}

#[tokio::test]
async fn a_replay_that_stops_says_how_far_it_came() {
    let mut world = world(Engine::Postgres).await;
    let desk = Desk::of(&world);
    register(&world, "hook", "http://127.0.0.1:9/").await;
    // One more than five pages.
    pay(&mut world, &(1..=501).collect::<Vec<_>>()).await;
    write(&world, "UPDATE deliveries SET state = 'DELIVERED'").await;
    let replay = ["event", "replay", "--from", "2001-01-01T00:00:00Z", "--reason", "a test"];
    deadlock(&world, "> 500").await;
    let (code, printed, said) = desk.run(&replay);
    assert_eq!((code, printed.as_str()), (Some(2), ""), "{said}");
    let at = world.now();
    let expected =
        format!("landfall: stopped: 500 events are sent again, up to {at}; the same command with --from {at} goes on");
    assert!(said.starts_with(&expected), "{said}");
    deadlock(&world, "> 0").await;
    let (code, _, said) = desk.run(&replay);
    assert!(code == Some(2) && said.starts_with("landfall: stopped: nothing is sent again: "), "{said}");
    world.abandon();
}

#[tokio::test]
async fn what_a_receiver_answers_is_shown_without_what_controls_a_terminal() {
    let receiver = Receiver::scripted([Answer::Fault(b"no\x1b]0;owned\x07\r\nnot now".to_vec())]).await;
    let mut world = world(Engine::Sqlite).await;
    let desk = Desk::of(&world);
    register(&world, "hook", &receiver.url("/")).await;
    pay(&mut world, &[5]).await;
    tick(&world).await;
    let id = desk.json(&["event", "list"])[0]["id"].as_str().unwrap().to_owned();
    // Where the answer is shown in place of a status.
    write(&world, "UPDATE attempts SET status = NULL, error = ''").await;
    let (code, printed, _) = desk.run(&["event", "show", &id]);
    assert_eq!(code, Some(0));
    assert!(printed.contains("no\\u001b]0;owned\\u0007\\r\\nnot now after"), "{printed:?}");
    world.close().await;
}

#[tokio::test]
async fn what_a_removed_webhook_holds_is_sent_to_another_by_a_replay() {
    for engine in ENGINES {
        let mut world = world(engine).await;
        let desk = Desk::of(&world);
        register(&world, "old", "http://127.0.0.1:9/").await;
        pay(&mut world, &[5, 7]).await;
        world.chain.mine_empty(FINALITY_DEPTH);
        world.catch_up().await;
        assert_eq!(desk.json(&["event", "list", "--pending"]).len(), 4);
        assert_eq!(desk.run(&["webhook", "remove", "old", "--reason", "a test"]).0, Some(0));
        let removed = desk.json(&["webhook", "list", "--removed"]);
        assert_eq!(
            (removed.len(), &removed[0]["id"], &removed[0]["held"]),
            (1, &"old".into(), &4.into()),
            "{engine:?}"
        );
        // It waits for nobody, and `status` and `event list` say the same.
        assert_eq!(desk.json(&["event", "list", "--pending"]).len(), 0, "{engine:?}");
        assert_eq!(desk.json(&["status"])[0]["events"]["pending"], 0, "{engine:?}");
        let id = desk.json(&["event", "list"])[0]["id"].as_str().unwrap().to_owned();
        let held = &desk.json(&["event", "show", &id])[0]["deliveries"][0];
        assert_eq!((&held["webhook_id"], &held["state"]), (&"old".into(), &"FIRST".into()), "{engine:?}: it is kept");

        let receiver = Receiver::scripted([]).await;
        register(&world, "anew", &receiver.url("/")).await;
        assert_eq!(
            tick(&world).await,
            Delivered::default(),
            "{engine:?}: of what was before it gets nothing by itself"
        );
        desk.json(&["event", "replay", "--from", "2001-01-01T00:00:00Z", "--webhook", "anew", "--reason", "a test"]);
        while tick(&world).await != Delivered::default() {}
        let reported: Vec<_> = receiver.received().iter().map(|got| amount_and_status(&got.body)).collect();
        assert_eq!(reported.len(), 4, "{engine:?}: all of them");
        let amounts: BTreeSet<&String> = reported.iter().map(|(amount, _)| amount).collect();
        for amount in amounts {
            let statuses = reported.iter().filter(|reported| reported.0 == *amount).map(|reported| reported.1.as_str());
            assert_eq!(statuses.collect::<Vec<_>>(), ["PENDING", "CONFIRMED"], "{engine:?}: in order");
        }
        world.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_test_event_reports_by_its_exit_whether_it_arrived() {
    let receiver = Receiver::scripted([Answer::Status(200), Answer::Fault(b"not now".to_vec())]).await;
    let world = world(Engine::Sqlite).await;
    let desk = Desk::of(&world);
    register(&world, "hook", &receiver.url("/")).await;
    let test = async || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_landfall"));
        command.current_dir(desk.0.path()).args(["webhook", "test", "hook", "--json"]).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        while child.try_wait().unwrap().is_none() {
            tick(&world).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), serde_json::from_slice::<Value>(&output.stdout).unwrap_or_default(), said)
    };
    let (code, arrived, said) = test().await;
    assert_eq!((code, &arrived["arrived"], &arrived["status"]), (Some(0), &true.into(), &200.into()), "{said}");
    let (code, refused, said) = test().await;
    assert_eq!((code, &refused["arrived"], &refused["status"]), (Some(1), &false.into(), &500.into()), "{said}");
    let envelope: Value = serde_json::from_slice(&receiver.received()[0].body).unwrap();
    assert_eq!((&envelope["id"], &envelope["type"]), (&arrived["event_id"], &"webhook_test".into()));

    assert_eq!(desk.run(&["webhook", "pause", "hook", "--reason", "a test"]).0, Some(0));
    let paused =
        "landfall: webhook hook is PAUSED, and is sent nothing until `landfall webhook resume hook --reason TEXT`\n";
    assert_eq!(test().await, (Some(2), Value::Null, paused.to_owned()), "at once, and not after half a minute");
    assert_eq!(receiver.received().len(), 2);
    world.abandon();
}

#[tokio::test]
async fn a_sink_is_paused_resumed_and_given_up_when_it_is_no_longer_configured() {
    for engine in ENGINES {
        let world = world(engine).await;
        let desk = Desk::of(&world);
        let none = desk.run(&["webhook", "remove", "nats", "--reason", "a test"]);
        assert_eq!(none, (Some(2), String::new(), "landfall: there is no nats to remove\n".to_owned()), "{engine:?}");
        let mut tx = world.db().begin().await.unwrap();
        sinks::ensure(&mut tx, NATS, Kind::Nats, "nats:LANDFALL", world.now()).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(desk.run(&["webhook", "pause", "nats", "--reason", "a test"]).0, Some(0));
        let status = &desk.json(&["status"])[0]["sinks"][0];
        assert_eq!(
            (&status["id"], &status["status"], &status["state"]),
            (&"nats".into(), &"PAUSED".into(), &"silent".into())
        );
        assert_eq!(desk.run(&["webhook", "resume", "nats", "--reason", "a test"]).0, Some(0));
        assert_eq!(desk.run(&["webhook", "list"]).1, "", "{engine:?}");
        let said = "landfall: nats is a stream and no webhook: `landfall status` shows it\n";
        assert_eq!(desk.run(&["webhook", "show", "nats"]), (Some(2), String::new(), said.to_owned()), "{engine:?}");

        let path = desk.0.path().join("landfall.toml");
        let config = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, format!("{config}[nats]\nurls = [\"nats://127.0.0.1:9\"]\n")).unwrap();
        let (code, _, said) = desk.run(&["webhook", "remove", "nats", "--reason", "a test"]);
        assert_eq!((code, said.contains("take the section [nats] out of")), (Some(2), true), "{engine:?}: {said}");
        std::fs::write(&path, config).unwrap();
        let (code, printed, _) = desk.run(&["webhook", "remove", "nats", "--reason", "a test"]);
        assert_eq!((code, printed.as_str()), (Some(0), "nats is removed; what was not delivered to it is held\n"));
        assert_eq!(desk.json(&["status"])[0]["sinks"], serde_json::json!([]), "{engine:?}");
        world.close().await;
    }
}
