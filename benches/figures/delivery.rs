//! Delivery on loopback, from a store on either engine: webhooks a second, the time from the commit of an event to its
//! first attempt, and memory at a backlog. Also what receivers that are dead or drip do to the others.
//!
//! The receivers are another process, and so is the delivery whose memory is measured. Events are written by SQL of
//! this program's own: what a watcher does meanwhile is measured elsewhere.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use landfall::delivery::Delivery;
use landfall::random;
use landfall::store::webhooks::{self, WebhookRow};
use landfall::store::{Connection, Db, Engine};
use landfall::time::{Clock, Pulse, Timestamp};
use landfall::webhook::signing_key;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::database::Place;
use crate::hooks::Hooks;
use crate::{Size, process, ratio};

pub(crate) const DELIVER: &str = "deliver";
const MIB: f64 = 1_048_576.0;
/// As many bytes as an event of a deposit has.
const PAYLOAD_BYTES: usize = 640;
/// How many events a receiver has waiting that never answers as it should.
const BAD_BACKLOG: u64 = 1_000;
const BEAT: Duration = Duration::from_millis(20);
const ENDPOINTS: u64 = 20;
/// Events in one transaction: each has a delivery to each endpoint, and a statement of the store has a time.
const WRITTEN_AT_ONCE_MAX: u64 = 5_000;

pub(crate) async fn measure(size: Size) -> anyhow::Result<()> {
    let hooks = Hooks::start()?;
    for place in Place::all() {
        println!("{}:", place.engine());
        on(&place, &hooks, size).await?;
    }
    Ok(())
}

/// All figures of one engine.
async fn on(place: &Place, hooks: &Hooks, size: Size) -> anyhow::Result<()> {
    let first = async |load: Load| place.with(async |url| first_attempts(url, hooks, load).await).await;
    place.with(async |url| throughput(url, hooks, size.pick(2_000, 40_000, 200_000)).await).await?;
    let secs = size.pick(1, 20, 60);
    let (idle, _) = first(Load { endpoints: ENDPOINTS, a_second: 4, secs, spoilt: false }).await?;
    println!("  commit to first attempt, idle: p99 {idle:.0} ms (goal < 250)");
    let (busy, reached) = first(Load { endpoints: ENDPOINTS, a_second: 200, secs, spoilt: false }).await?;
    println!("  commit to first attempt, at {reached:.0} of 200 a second: p99 {busy:.0} ms (goal < 1000)");
    let many = Load { endpoints: size.pick(100, 1_000, 1_000), a_second: 100, secs, spoilt: false };
    let mut pairs = Vec::new();
    for _ in 0..size.pick(1, 3, 3) {
        let (alone, _) = first(many).await?;
        pairs.push((alone, first(Load { spoilt: true, ..many }).await?.0));
    }
    // One pair differs from the next by more than the goal.
    pairs.sort_by(|(one, with), (other, and)| ratio(*with, *one).total_cmp(&ratio(*and, *other)));
    let (alone, beside) = *pairs.get(pairs.len() / 2).context("a pair")?;
    let more = 100.0 * (ratio(beside, alone) - 1.0);
    println!(
        "  p99 of {} endpoints: {alone:.0} ms, beside a dead and a dripping one {beside:.0} ms: {more:+.0}% (goal < +10%; of {} \
         pairs the one in the middle)",
        many.endpoints,
        pairs.len()
    );
    place.with(async |url| backlog(url, hooks, size).await).await
}

async fn throughput(url: &str, hooks: &Hooks, deliveries: u64) -> anyhow::Result<()> {
    let bench = Bench::new(url, hooks, ENDPOINTS).await?;
    bench.write(deliveries / ENDPOINTS, "").await?;
    let begun = Instant::now();
    let running = bench.run()?;
    while bench.number("SELECT COUNT(*) FROM deliveries WHERE state = 'PENDING'").await? > 0 {
        tokio::time::sleep(BEAT).await;
    }
    let a_second = ratio(float(deliveries)?, begun.elapsed().as_secs_f64());
    running.end().await?;
    println!("  webhooks a second to {ENDPOINTS} endpoints, {deliveries} of them: {a_second:.0} (goal >= 500)");
    Ok(())
}

/// Events that are written while the delivery runs, each for one endpoint.
#[derive(Clone, Copy)]
struct Load {
    endpoints: u64,
    a_second: u64,
    secs: u64,
    /// Two more endpoints never answer as they should, and have a backlog.
    spoilt: bool,
}

/// The time from the commit to the first attempt that 99 of 100 events do not exceed, in ms, at the good endpoints; and
/// how many events a second were written in truth.
async fn first_attempts(url: &str, hooks: &Hooks, load: Load) -> anyhow::Result<(f64, f64)> {
    let bench = Bench::new(url, hooks, load.endpoints).await?;
    // Nobody listens there once this is dropped.
    let nobody = TcpListener::bind("127.0.0.1:0").await?.local_addr()?;
    let bad = [("drip", hooks.url("drip")), ("dead", format!("http://{nobody}/"))];
    for (id, url) in bad.iter().filter(|_| load.spoilt) {
        bench.register(id, url).await?;
        bench.write(BAD_BACKLOG, id).await?;
    }
    let running = bench.run()?;
    let mut beat = tokio::time::interval(Duration::from_secs(1) / u32::try_from(load.a_second)?);
    let begun = Instant::now();
    for n in 0..load.a_second * load.secs {
        beat.tick().await;
        bench.write(1, &endpoint(n % load.endpoints)).await?;
    }
    let reached = ratio(float(load.a_second * load.secs)?, begun.elapsed().as_secs_f64());
    while bench.number("SELECT COUNT(*) FROM deliveries WHERE state = 'PENDING' AND webhook_id LIKE 'good%'").await? > 0
    {
        tokio::time::sleep(BEAT).await;
    }
    let text = "SELECT started_us - created_us AS us FROM attempts JOIN events ON events.id = event_id \
                WHERE attempt = 1 AND webhook_id LIKE 'good%' ORDER BY us";
    let times = bench.numbers(text).await?;
    running.abort();
    let at = (times.len() * 99).div_ceil(100).saturating_sub(1);
    let micros = *times.get(at).context("no attempt was made")?;
    Ok((float(u64::try_from(micros.max(0))?)? / 1_000.0, reached))
}

/// The most memory that a delivery takes which finds a backlog and works off a part of it.
async fn backlog(url: &str, hooks: &Hooks, size: Size) -> anyhow::Result<()> {
    let (deliveries, attempts) = (size.pick(20_000, 1_000_000, 1_000_000), size.pick(1_000, 100_000, 500_000));
    let bench = Bench::new(url, hooks, ENDPOINTS).await?;
    bench.write(deliveries / ENDPOINTS, "").await?;
    let mut child = Command::new(std::env::current_exe()?)
        .args([DELIVER, url])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    while bench.number("SELECT COUNT(*) FROM attempts").await? < attempts {
        anyhow::ensure!(child.try_wait()?.is_none(), "the delivery ended by itself");
        tokio::time::sleep(50 * BEAT).await;
    }
    writeln!(child.stdin.take().context("a pipe")?, "stop")?;
    let mut reported = String::new();
    BufReader::new(child.stdout.take().context("a pipe")?).read_line(&mut reported)?;
    child.wait()?;
    let peak: f64 = reported.trim().parse()?;
    println!(
        "  MB of memory at a backlog of {deliveries}, {attempts} of them attempted: {:.0} at the peak (goal < 300)",
        peak / MIB
    );
    Ok(())
}

/// The other process: delivers until its input says something, then reports the most memory it had.
pub(crate) async fn deliver(words: &[String]) -> anyhow::Result<()> {
    let [url] = words else { anyhow::bail!("{DELIVER} takes one word") };
    let db = Db::open(&url.parse()?).await?;
    let clock = Clock::system();
    let pulse = Pulse::new("delivery", clock.now());
    let stop = CancellationToken::new();
    let mut running = JoinSet::new();
    running.spawn(Delivery::new(db, clock, random::number)?.run(pulse, stop.clone()));
    tokio::task::spawn_blocking(|| std::io::stdin().lock().read_line(&mut String::new())).await??;
    println!("{}", process::resident_peak(std::process::id())?);
    stop.cancel();
    running.join_all().await;
    Ok(())
}

/// A store with endpoints.
struct Bench {
    db: Db,
}

/// A delivery under way.
struct Running {
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl Bench {
    async fn new(url: &str, hooks: &Hooks, endpoints: u64) -> anyhow::Result<Self> {
        let bench = Bench { db: Db::open(&url.parse()?).await? };
        bench.db.migrate().await?;
        for n in 0..endpoints {
            bench.register(&endpoint(n), &hooks.url("ok")).await?;
        }
        Ok(bench)
    }

    async fn register(&self, id: &str, url: &str) -> anyhow::Result<()> {
        let webhook = WebhookRow {
            id: id.to_owned(),
            url: url.to_owned(),
            label: String::new(),
            allowed_networks: "127.0.0.0/8".parse()?,
            signing_key_id: format!("key-of-{id}"),
            signing_key: signing_key([7; 32]),
        };
        let mut tx = self.db.begin().await?;
        webhooks::insert(&mut tx, &webhook, Timestamp::EPOCH).await?;
        Ok(tx.commit().await?)
    }

    /// Writes events, for one endpoint or, when it has no name, for all.
    async fn write(&self, events: u64, endpoint: &str) -> anyhow::Result<()> {
        let mut left = events;
        while left > 0 {
            let part = left.min(WRITTEN_AT_ONCE_MAX);
            self.write_at_once(part, endpoint).await?;
            left -= part;
        }
        Ok(())
    }

    async fn write_at_once(&self, events: u64, endpoint: &str) -> anyhow::Result<()> {
        const DELIVERIES: &str = "INSERT INTO deliveries (event_id, webhook_id, aggregateid, position, state, attempt, next_us) \
             SELECT events.id, webhooks.id, aggregateid, 0, 'PENDING', 0, events.created_us FROM events, webhooks \
             WHERE events.status = 'NEW' AND events.created_us = $1 AND ($2 = '' OR webhooks.id = $2)";
        const WRITTEN: &str = "UPDATE events SET status = 'PENDING' WHERE created_us = $1 AND status = 'NEW'";
        let now = Clock::system().now().0;
        let mut tx = self.db.begin().await?;
        let (numbers, random) = match tx.engine() {
            Engine::Sqlite(_) => (
                "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $1)",
                "LOWER(HEX(RANDOMBLOB(16)))",
            ),
            Engine::Postgres(_) => (
                "WITH numbers (n) AS (SELECT GENERATE_SERIES(1, $1))",
                "REPLACE(CAST(GEN_RANDOM_UUID() AS TEXT), '-', '')",
            ),
        };
        let events_text = format!(
            "{numbers} INSERT INTO events (id, aggregatetype, aggregateid, type, payload, organization_id, account_id, status, nth_entry, \
             position, created_us) SELECT {random}, 'deposit', {random}, 'deposit_v2', $2, 'bench', 'payee', 'NEW', 0, 0, $3 FROM numbers"
        );
        let events_text = sqlx::AssertSqlSafe(events_text);
        let (events, payload) = (i64::try_from(events)?, "x".repeat(PAYLOAD_BYTES));
        let touched = match tx.engine() {
            Engine::Sqlite(c) => [
                sqlx::query(events_text).bind(events).bind(payload).bind(now).execute(&mut *c).await?.rows_affected(),
                sqlx::query(DELIVERIES).bind(now).bind(endpoint).execute(&mut *c).await?.rows_affected(),
                sqlx::query(WRITTEN).bind(now).execute(c).await?.rows_affected(),
            ],
            Engine::Postgres(c) => [
                sqlx::query(events_text).bind(events).bind(payload).bind(now).execute(&mut *c).await?.rows_affected(),
                sqlx::query(DELIVERIES).bind(now).bind(endpoint).execute(&mut *c).await?.rows_affected(),
                sqlx::query(WRITTEN).bind(now).execute(c).await?.rows_affected(),
            ],
        };
        anyhow::ensure!(!touched.contains(&0), "nothing was written");
        Ok(tx.commit().await?)
    }

    fn run(&self) -> anyhow::Result<Running> {
        let (clock, stop) = (Clock::system(), CancellationToken::new());
        let pulse = Pulse::new("delivery", clock.now());
        let mut tasks = JoinSet::new();
        tasks.spawn(Delivery::new(self.db.clone(), clock, random::number)?.run(pulse, stop.clone()));
        Ok(Running { tasks, stop })
    }

    async fn number(&self, text: &'static str) -> anyhow::Result<i64> {
        self.numbers(text).await?.first().copied().context("a number")
    }

    async fn numbers(&self, text: &'static str) -> anyhow::Result<Vec<i64>> {
        Ok(match self.db.read().await?.engine() {
            Engine::Sqlite(connection) => sqlx::query_scalar(text).fetch_all(connection).await?,
            Engine::Postgres(connection) => sqlx::query_scalar(text).fetch_all(connection).await?,
        })
    }
}

impl Running {
    async fn end(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        self.tasks.join_next().await.context("it runs")??;
        Ok(())
    }

    /// What drips would be waited for.
    fn abort(mut self) {
        self.tasks.abort_all();
    }
}

fn endpoint(n: u64) -> String {
    format!("good-{n:04}")
}

fn float(number: u64) -> anyhow::Result<f64> {
    Ok(u32::try_from(number)?.into())
}
