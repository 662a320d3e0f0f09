//! A dry run of a decision about sending checks what the decision would, says what it would do, and changes nothing.

use std::process::Output;
use std::sync::Arc;
use std::time::Duration;

use landfall::policy::{Policy, PolicyScope};
use landfall::store::{Connection, Db, Engine as Connected};
use serde_json::Value;
use sqlx::AssertSqlSafe;

use super::Bench;
use crate::cli::{CONFIG, Desk, text};
use crate::harness::postgres::{ENGINES, Engine};
use crate::past::rescan::execute;

const ON: [&str; 2] = ["--chain", "ETHEREUM_TESTNET"];
const WHY: [&str; 2] = ["--reason", "a test"];

/// Each is possible behind those before it.
fn decisions<'a>(transfer: &'a str, policy: &'a str) -> Vec<Vec<&'a str>> {
    let on_chain = |command: &[&'static str]| [command, &ON].concat();
    vec![
        on_chain(&["sponsor", "add"]),
        on_chain(&["sponsor", "add", "--treasury"]),
        on_chain(&["sponsor", "pause", "0"]),
        on_chain(&["sponsor", "resume", "0"]),
        on_chain(&["sponsor", "quarantine", "0"]),
        on_chain(&["sponsor", "release", "0"]),
        vec!["policy", "add", "--limit", "DAY:ETH:amount=1000"],
        vec!["policy", "remove", policy],
        vec!["gas", "price", "set", "ETH", "3000"],
        on_chain(&["sender", "halt"]),
        on_chain(&["sender", "resume"]),
        on_chain(&["sender", "recover"]),
        vec!["signer", "adopt"],
        vec!["account", "release", "alice"],
        vec!["transfer", "cancel", transfer],
    ]
}

/// Every row of every table, as text.
async fn everything(db: &Db) -> Vec<String> {
    let (mut reader, mut found) = (db.read().await.unwrap(), Vec::new());
    match reader.engine() {
        Connected::Postgres(connection) => {
            let tables = "SELECT CAST(table_name AS TEXT) FROM information_schema.tables WHERE table_schema = 'public'";
            let tables: Vec<(String,)> = sqlx::query_as(tables).fetch_all(&mut *connection).await.unwrap();
            for (table,) in tables {
                let rows = AssertSqlSafe(format!("SELECT CAST(whole AS TEXT) FROM \"{table}\" AS whole"));
                let rows: Vec<(String,)> = sqlx::query_as(rows).fetch_all(&mut *connection).await.unwrap();
                found.extend(rows.into_iter().map(|(row,)| format!("{table} {row}")));
            }
        }
        Connected::Sqlite(connection) => {
            let tables = "SELECT m.name, GROUP_CONCAT('quote(\"' || c.name || '\")', ' || '' '' || ') FROM sqlite_master AS m \
                          JOIN pragma_table_info(m.name) AS c WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%' GROUP BY m.name";
            let tables: Vec<(String, String)> = sqlx::query_as(tables).fetch_all(&mut *connection).await.unwrap();
            for (table, columns) in tables {
                let rows = AssertSqlSafe(format!("SELECT {columns} FROM \"{table}\""));
                let rows: Vec<(String,)> = sqlx::query_as(rows).fetch_all(&mut *connection).await.unwrap();
                found.extend(rows.into_iter().map(|(row,)| format!("{table} {row}")));
            }
        }
    }
    found.sort_unstable();
    found
}

fn beside_audit(rows: &[String]) -> Vec<&String> {
    rows.iter().filter(|row| !row.starts_with("audit ")).collect()
}

/// How many entries the audit has.
fn audited(rows: &[String]) -> usize {
    rows.len() - beside_audit(rows).len()
}

/// How many objects were printed.
fn objects(output: &Output) -> usize {
    let printed = text(&output.stdout);
    let objects: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(objects.iter().all(Value::is_object), "{printed}");
    objects.len()
}

/// The command, while a process with a signer derives what it adds.
async fn run(bench: &mut Bench, desk: &Arc<Desk>, command: &[&str]) -> Output {
    if !command.starts_with(&["sponsor", "add"]) {
        return desk.run(command);
    }
    let (desk, command) = (Arc::clone(desk), command.iter().map(|part| (*part).to_owned()).collect::<Vec<String>>());
    let running =
        tokio::task::spawn_blocking(move || desk.run(&command.iter().map(String::as_str).collect::<Vec<&str>>()));
    while !running.is_finished() {
        bench.tick().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    running.await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_of_each_decision_changes_no_row_and_without_it_the_decision_is_taken_and_in_the_audit() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        let transfer = bench.accept(1, 1_000_000).await.to_string();
        bench.settle().await;
        let of_alice = PolicyScope::Account("alice".to_owned());
        let limits = vec!["DAY:USDC:amount=1".parse().unwrap()];
        let policy = Policy::new("a test".to_owned(), of_alice, None, limits, bench.world.now()).unwrap();
        let networks = [bench.world.network.clone()];
        bench.world.operator().add_policy(bench.world.db(), &policy, &networks).await.unwrap();
        execute(bench.world.db(), "UPDATE wallets SET quarantined_us = 1").await;
        let url = &bench.world.store.url;
        let desk = Desk::new(&format!("store.url = \"{url}\"\n[transfers]\nsigner = \"unix:signer.sock\"\n{CONFIG}"));
        let desk = Arc::new(desk);
        for command in decisions(&transfer, &policy.id) {
            let command = [&command[..], &WHY].concat();
            let before = everything(bench.world.db()).await;
            let tried = desk.run(&[&command[..], &["--dry-run"]].concat());
            let (printed, said) = (text(&tried.stdout), text(&tried.stderr));
            assert_eq!(tried.status.code(), Some(0), "{engine:?} {command:?}: {said}");
            assert!(printed.contains("would") || command.starts_with(&["policy", "add"]), "{command:?}: {printed}");
            assert!(said.contains("landfall: nothing was changed"), "{command:?}: {said}");
            if engine == Engine::Sqlite {
                let tried = desk.run(&[&command[..], &["--dry-run", "--json"]].concat());
                assert_eq!(objects(&tried), 1, "{command:?}: {}", text(&tried.stderr));
            }
            assert_eq!(everything(bench.world.db()).await, before, "{engine:?} {command:?}");
            let taken = run(&mut bench, &desk, &[&command[..], &["--json"]].concat()).await;
            assert_eq!(taken.status.code(), Some(0), "{engine:?} {command:?}: {}", text(&taken.stderr));
            assert_eq!(objects(&taken), 1, "{engine:?} {command:?}");
            assert!(!text(&taken.stderr).contains("nothing was changed"), "{command:?}");
            let after = everything(bench.world.db()).await;
            assert_eq!(audited(&after), audited(&before) + 1, "{engine:?} {command:?}");
            assert_ne!(beside_audit(&after), beside_audit(&before), "{engine:?} {command:?}");
        }
        // What would be refused is refused: nothing of it is possible a second time.
        for command in [
            &["sponsor", "release", "0", "--chain", "ETHEREUM_TESTNET"][..],
            &["sponsor", "add", "--treasury", "--chain", "ETHEREUM_TESTNET"],
            &["policy", "remove", policy.id.as_str()],
            &["account", "release", "alice"],
            &["transfer", "cancel", "00000000-0000-8000-8000-000000000000"],
        ] {
            let refused = desk.refused(&[command, &WHY, &["--dry-run"]].concat());
            assert!(!refused.contains("nothing was changed"), "{command:?}: {refused}");
        }
        bench.world.abandon();
    }
}
