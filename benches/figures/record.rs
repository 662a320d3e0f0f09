//! What `POST /v2/crypto/transfers` and lists of transfers take while a million transfers are on record: copies of one
//! that the service paid, with its changes, its intent, its attempt and its entries in the ledger, of the same account.
//! On SQLite, and on PostgreSQL where `LANDFALL_TEST_POSTGRES` names a server.

use std::time::{Duration, Instant};

use anyhow::Context;
use landfall::store::{Connection, Db, Engine, Tx};
use landfall::time::Clock;
use serde_json::Value;

use crate::Size;
use crate::caller::{Caller, quantiles};
use crate::database::Place;
use crate::sending::bench::Bench;
use crate::sending::evm::{self, Ethereum};

/// So many a second are asked for.
const PACE: u32 = 100;
/// How many copies are written in one transaction.
const CHUNK: u64 = 50_000;
/// The copies lie so far apart: a million of them fill some 58 days.
const APART_US: u64 = 5_000_000;
const NUMBERS: &str =
    "WITH RECURSIVE numbers (n) AS (SELECT CAST($1 AS BIGINT) + 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $2)";
/// Of each table the columns in which a copy differs from its template.
const COPIED: [(&str, &[&str]); 7] = [
    ("requests", &["request_id", "object_id", "created_us"]),
    (
        "transfers",
        &["id", "request_id", "intent_key", "created_us", "updated_us", "submitted_us", "confirmed_us", "deadline_us"],
    ),
    ("transfer_changes", &["transfer_id", "at_us"]),
    ("intents", &["transfer_id", "recorded_us", "signed_us"]),
    ("transfer_attempts", &["transfer_id", "sponsor", "nonce", "tx_id", "recorded_us"]),
    ("gas_ledger", &["entry", "transfer_id", "tx_id", "at_us"]),
    ("gas_pricings", &["entry", "at_us"]),
];

pub(crate) async fn measure(size: Size) -> anyhow::Result<()> {
    for place in Place::all() {
        place.with(async |url| on(url, place.engine(), size).await).await?;
    }
    Ok(())
}

async fn on(url: &str, engine: &str, size: Size) -> anyhow::Result<()> {
    let mut bench = evm::bench(url, evm::FINALIZED).await?;
    bench.node.anvil.mine_every(1).await?;
    bench.ask_for(1, None).await?;
    bench.until_confirmed().await?;
    // Its cost is booked and priced a moment later.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let (count, begun) = (size.pick(2_000, 1_000_000, 1_000_000), Instant::now());
    bench.stop();
    fill(url, count).await?;
    println!("{engine}: {count} transfers on record, written in {:.0} s", begun.elapsed().as_secs_f64());
    bench.start().await?;
    let paced = size.pick(50, 2_000, 6_000);
    let (p50, p99) = quantiles(bench.ask_for(paced, Some(PACE)).await?);
    println!("  POST at {PACE} a second: p50 {p50:.1} ms, p99 {p99:.1} ms (goal < 30)");
    bench.until_confirmed().await?;
    lists(&bench, count, size).await
}

/// Pages from the newest on, and from places among the copies.
async fn lists(bench: &Bench<Ethereum>, count: u64, size: Size) -> anyhow::Result<()> {
    let mut caller = Caller::new(bench.api, &bench.key).await?;
    let pages = size.pick(10, 300, 1_000);
    let account = format!("/v2/crypto/transfers?account_id={}&limit=25", bench.accounts[0]);
    let all = "/v2/crypto/transfers?limit=25".to_owned();
    for (of, list) in [("of all", &all), ("of the account", &account)] {
        caller.measure(&format!("first pages {of}"), (0..pages).map(|_| list.clone())).await?;
        for (name, mille) in [("in the middle", 500), ("at the end", 950)] {
            // Copies lie behind the one transfer that is no copy, and all others are newer.
            let behind = i64::try_from(count * APART_US / 1_000 * mille)?;
            let end = chrono::DateTime::from_timestamp_micros(Clock::system().now().0 - behind).context("a time")?;
            let end = end.format("%Y-%m-%dT%H:%M:%SZ");
            let first: Value = serde_json::from_slice(&caller.get(&format!("{list}&end_time={end}")).await?)?;
            let mut cursor = first["cursor"].as_str().context("a page behind it")?.to_owned();
            let mut times = Vec::new();
            for _ in 0..pages {
                let begun = Instant::now();
                let page = caller.get(&format!("{list}&end_time={end}&cursor={cursor}")).await?;
                times.push(begun.elapsed());
                let page: Value = serde_json::from_slice(&page)?;
                match page["cursor"].as_str() {
                    Some(next) => next.clone_into(&mut cursor),
                    None => break,
                }
            }
            let (p50, p99) = quantiles(times);
            println!("  pages {name} {of}: p50 {p50:.2} ms, p99 {p99:.2} ms (goal < 10)");
        }
    }
    for status in ["ACCEPTED", "SUBMITTED", "FAILED", "DROPPED"] {
        let path = format!("{all}&status={status}");
        caller.measure(&format!("{status}, of which there is none"), (0..pages.min(20)).map(|_| path.clone())).await?;
    }
    Ok(())
}

/// Copies of what is on record of the one transfer, each older than the one before.
async fn fill(url: &str, count: u64) -> anyhow::Result<()> {
    let db = Db::open(&url.parse()?).await?;
    let mut written = 0;
    while written < count {
        let through = count.min(written + CHUNK);
        let mut tx = db.begin().await?;
        for (table, differing) in COPIED {
            let copy = copy(&mut tx, table, differing).await?;
            run(&mut tx, &copy, (written, through)).await?;
        }
        tx.commit().await?;
        written = through;
    }
    if let Engine::Postgres(connection) = db.read().await?.engine() {
        // Does now what PostgreSQL would do a while later.
        for text in ["SET statement_timeout = 0", "VACUUM (ANALYZE)", "CHECKPOINT"] {
            sqlx::query(text).execute(&mut *connection).await?;
        }
    }
    db.close().await;
    Ok(())
}

/// Copies all rows of the table that are no copies.
async fn copy(tx: &mut Tx, table: &str, differing: &[&str]) -> anyhow::Result<String> {
    let columns: Vec<(String,)> = match tx.engine() {
        Engine::Sqlite(connection) => {
            sqlx::query_as("SELECT name FROM pragma_table_info($1)").bind(table).fetch_all(connection).await?
        }
        Engine::Postgres(connection) => {
            sqlx::query_as("SELECT column_name::TEXT FROM information_schema.columns WHERE table_name = $1")
                .bind(table)
                .fetch_all(connection)
                .await?
        }
    };
    let is_postgres = matches!(tx.engine(), Engine::Postgres(_));
    let (digits, bytes, nobody) = match is_postgres {
        true => {
            ("LPAD(n::TEXT, 12, '0')", "CONVERT_TO(LPAD(n::TEXT, 32, '0'), 'UTF8')", "DECODE(REPEAT('00', 20), 'hex')")
        }
        false => ("printf('%012d', n)", "CAST(printf('%032d', n) AS BLOB)", "ZEROBLOB(20)"),
    };
    let of = |column: &str| match column {
        _ if !differing.contains(&column) => column.to_owned(),
        // 24 of the 32 bytes.
        "intent_key" => format!("SUBSTR({bytes}, 9)"),
        "tx_id" => format!("CASE WHEN {column} IS NULL THEN NULL ELSE {bytes} END"),
        "sponsor" => nobody.to_owned(),
        "nonce" => "n".to_owned(),
        "entry" => format!("entry || ' copy ' || {digits}"),
        column if column.ends_with("_us") => format!("{column} - n * {APART_US}"),
        _ => format!("'c0000000-0000-8000-8000-' || {digits}"),
    };
    let names: Vec<&str> = columns.iter().map(|(name,)| name.as_str()).collect();
    let values: Vec<String> = names.iter().map(|name| of(name)).collect();
    let is_template = match table {
        "requests" => "object_id NOT LIKE 'c0000000-%' AND object_id IN (SELECT id FROM transfers)",
        "transfers" => "id NOT LIKE 'c0000000-%'",
        "gas_ledger" | "gas_pricings" => "entry NOT LIKE '% copy %'",
        _ => "transfer_id NOT LIKE 'c0000000-%'",
    };
    let (names, values) = (names.join(", "), values.join(", "));
    Ok(format!(
        "{NUMBERS} INSERT INTO {table} ({names}) SELECT {values} FROM numbers, (SELECT * FROM {table} WHERE {is_template}) AS template"
    ))
}

async fn run(tx: &mut Tx, text: &str, (behind, through): (u64, u64)) -> anyhow::Result<()> {
    let (behind, through) = (i64::try_from(behind)?, i64::try_from(through)?);
    let text = sqlx::AssertSqlSafe(text.to_owned());
    let touched = match tx.engine() {
        Engine::Sqlite(connection) => {
            sqlx::query(text).bind(behind).bind(through).execute(connection).await?.rows_affected()
        }
        Engine::Postgres(connection) => {
            sqlx::query(text).bind(behind).bind(through).execute(connection).await?.rows_affected()
        }
    };
    anyhow::ensure!(touched > 0, "nothing was copied");
    Ok(())
}
