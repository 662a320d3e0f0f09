//! `GET /v2/crypto/deposits` on loopback, on stores of millions of deposits: how long pages take, and how many requests
//! a second are answered. The pages are those at the beginning, in the middle and at the end of two accounts: one has
//! all deposits, the other has half of them beside 100,000 others. Also first pages, and pages of rare deposits.
//!
//! The service is another process with a listener of its own. Deposits are written by SQL of this program's own, with
//! ids in no order, as real ones have. On SQLite, and on PostgreSQL where `LANDFALL_TEST_POSTGRES` names a server.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use landfall::api::{Api, Limits, Settings};
use landfall::app::Serving;
use landfall::deposit::{Deposit, DepositStatus, Leg};
use landfall::key::{ApiKey, Environment, Scope};
use landfall::overrides::Author;
use landfall::registry;
use landfall::store::{Connection, Db, Engine, Reader, Tx, deposits};
use landfall::time::{Clock, Timestamp};
use landfall_chain::{Address, AssetId, Chain, SenderRule, TxId, TxLife, TxRef, U256};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::Size;
use crate::caller::Caller;
use crate::database::Place;

pub(crate) const SERVE: &str = "serve-api";
/// The account that has all deposits of its store, or half of them where others have the rest.
const WHALE: &str = "acc_whale";
/// How many accounts share the other store.
const ACCOUNTS: u64 = 100_000;
/// How many requests ask at the same time when as many as can be are to be answered.
const CALLERS: usize = 16;
/// How many deposits are written in a transaction of SQLite's: each writes nearly all pages of the indexes of what is
/// in no order; and of PostgreSQL's, in the time that a statement may take.
const CHUNKS: [u64; 2] = [1_000_000, 25_000];
/// KiB that SQLite keeps of them meanwhile.
const CACHE: &str = "PRAGMA cache_size = -2000000";

pub(crate) async fn measure(size: Size) -> anyhow::Result<()> {
    let deposits = size.pick(20_000, 1_000_000, 10_000_000);
    for place in Place::all() {
        for accounts in [1, ACCOUNTS] {
            place.with(async |url| on(url, deposits, accounts, size).await).await?;
        }
    }
    Ok(())
}

/// All figures of one store.
async fn on(url: &str, deposits: u64, accounts: u64, size: Size) -> anyhow::Result<()> {
    let db = Db::open(&url.parse()?).await?;
    db.migrate().await?;
    let begun = Instant::now();
    let engine = fill(&db, deposits, accounts).await?;
    let random = [7; ApiKey::RANDOM_BYTES];
    let what = ("bench", &Scope::Read.into());
    let by = Author { actor: "bench", reason: "", now: Timestamp::EPOCH };
    let key = registry::create_key(&db, Environment::Test, what, &random, &by).await?;
    println!(
        "{engine}: {deposits} deposits of {accounts} account(s), written in {:.0} s",
        begun.elapsed().as_secs_f64()
    );
    db.close().await;
    let service = Service::start(url)?;
    let mut caller = Caller::new(service.address, &key.reveal()).await?;
    let pages = size.pick(100, 1_000, 1_000);
    let mut places = Places { deposits, accounts, next: 0 };
    let list = format!("/v2/crypto/deposits?account_id={WHALE}&limit=25");
    let cursor = cursor(&caller.get(&list).await?)?;
    for (what, from, to) in [
        ("first pages", deposits - 1_000, deposits),
        ("middle pages", deposits / 2 - 1_000, deposits / 2 + 1_000),
        ("last pages", 1, 1_000),
        ("pages anywhere", 1, deposits),
    ] {
        let paths = (0..pages).map(|_| format!("{list}&cursor={}", behind(&cursor, places.between(from, to))));
        caller.measure(what, paths).await?;
    }
    if accounts == 1 {
        for (what, filter) in [
            ("a rare asset", "currency_symbol=EURC"),
            ("a rare chain", "destination_chain=OPTIMISM_MAINNET"),
            ("an asset's only deposits on a chain", "currency_symbol=EURC&destination_chain=POLYGON_MAINNET"),
            ("the usual asset", "currency_symbol=USDC"),
        ] {
            caller.measure(what, (0..pages).map(|_| format!("{list}&{filter}"))).await?;
        }
    }
    let any = |places: &mut Places| format!("/v2/crypto/deposits?account_id={}", places.account());
    caller.measure("the first page of any account", (0..pages).map(|_| any(&mut places))).await?;
    // As many as are not asked for twice: first pages of any account, and pages anywhere of the largest.
    let mixed = (0..size.pick(200, 20_000, 50_000)).map(|n| match n % 2 {
        0 => any(&mut places),
        _ => format!("{list}&cursor={}", behind(&cursor, places.between(1, deposits))),
    });
    throughput(&service, &key.reveal(), mixed.collect(), size).await
}

/// Requests a second, of callers that each wait for their answer before they ask again.
async fn throughput(service: &Service, key: &str, paths: Vec<String>, size: Size) -> anyhow::Result<()> {
    let time = Duration::from_secs(size.pick(1, 10, 30));
    let mut asking = JoinSet::new();
    for place in 0..CALLERS {
        let mut caller = Caller::new(service.address, key).await?;
        let (mut paths, begun) = (paths.clone(), Instant::now());
        let part = paths.len() / CALLERS * place;
        paths.rotate_left(part);
        asking.spawn(async move {
            let mut answered = 0_u32;
            for path in paths.iter().cycle() {
                if begun.elapsed() >= time {
                    break;
                }
                caller.get(path).await?;
                answered += 1;
            }
            anyhow::Ok(answered)
        });
    }
    let answered: u32 = asking.join_all().await.into_iter().sum::<anyhow::Result<u32>>()?;
    let a_second = f64::from(answered) / time.as_secs_f64();
    println!("  requests a second, {CALLERS} callers: {a_second:.0} (goal >= 2000)");
    Ok(())
}

/// Writes deposits, each a second younger than the one before; the engine's name. Every second is the whale's, the
/// others are everybody's in turn. The six oldest of an account that has all of them are of an asset, and on chains,
/// that it has no others of.
async fn fill(db: &Db, deposits: u64, accounts: u64) -> anyhow::Result<&'static str> {
    let mut tx = db.begin().await?;
    let (engine, chunk) = match tx.engine() {
        Engine::Sqlite(connection) => {
            sqlx::query(CACHE).execute(connection).await?;
            ("SQLite", CHUNKS[0])
        }
        Engine::Postgres(_) => ("PostgreSQL", CHUNKS[1]),
    };
    // Puts numbers below 2^32 in another order: 2654435761 is odd.
    let mixed = "(n * 2654435761) % 4294967296";
    let (id, bytes) = match tx.engine() {
        Engine::Sqlite(_) => (format!("printf('%08x', {mixed})"), format!("CAST(printf('%032d', {mixed}) AS BLOB)")),
        Engine::Postgres(_) => {
            (format!("LPAD(TO_HEX({mixed}), 8, '0')"), format!("DECODE(LPAD(TO_HEX({mixed}), 64, '0'), 'hex')"))
        }
    };
    let account = "CASE WHEN n % 2 = 0 OR (n / 2) % $3 = 0 THEN 'acc_whale' ELSE 'acc_' || ((n / 2) % $3) END";
    let copies = format!(
        "{NUMBERS} INSERT INTO deposits (id, leg_hash, organization_id, account_id, chain, tx_id, tx_life, asset, sender, sender_rule, \
         recipient, amount, amount_text, nth, symbol, decimals, status, created_us, confirmed_us) \
         SELECT {id} || '-0000-8000-8000-000000000000', {bytes}, organization_id, {account}, \
         CASE WHEN n > 6 THEN chain WHEN n > 3 THEN 'POLYGON_MAINNET' ELSE 'OPTIMISM_MAINNET' END, {bytes}, tx_life, asset, sender, \
         sender_rule, recipient, amount, amount_text, nth, CASE WHEN n > 6 OR n <= 3 THEN symbol ELSE 'EURC' END, decimals, \
         'CONFIRMED', n * 1000000, n * 1000000 FROM deposits AS template, numbers WHERE template.account_id = 'template'"
    );
    run(&mut tx, ACCOUNTS_OF, [0, i64::try_from(accounts)?, i64::try_from(accounts)?]).await?;
    deposits::insert(&mut tx, &template()).await?;
    tx.commit().await?;
    let mut written = 0;
    while written < deposits {
        let through = deposits.min(written + chunk);
        let mut tx = db.begin().await?;
        run(&mut tx, &copies, [i64::try_from(written)?, i64::try_from(through)?, i64::try_from(accounts)?]).await?;
        tx.commit().await?;
        written = through;
    }
    settle(&mut db.read().await?).await?;
    Ok(engine)
}

/// Does now what PostgreSQL would do later because of so many new rows. During the measurement it would take a part of
/// the machine, which it never takes where rows come one by one.
async fn settle(reader: &mut Reader) -> anyhow::Result<()> {
    if let Engine::Postgres(connection) = reader.engine() {
        for text in ["SET statement_timeout = 0", "VACUUM (ANALYZE) deposits", "CHECKPOINT"] {
            sqlx::query(text).execute(&mut *connection).await?;
        }
    }
    Ok(())
}

const NUMBERS: &str =
    "WITH RECURSIVE numbers (n) AS (SELECT CAST($1 AS BIGINT) + 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $2)";
const ACCOUNTS_OF: &str = "WITH RECURSIVE numbers (n) AS (SELECT CAST($1 AS BIGINT) - 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < $2) \
     INSERT INTO accounts (id, organization_id, identity_id, type, created_us) SELECT CASE WHEN n = -1 THEN 'template' \
     WHEN n % $3 = 0 THEN 'acc_whale' ELSE 'acc_' || n END, 'default', 'default', 'OMNIBUS', 0 FROM numbers WHERE n <> 0";

async fn run(tx: &mut Tx, text: &str, binds: [i64; 3]) -> anyhow::Result<()> {
    let text = sqlx::AssertSqlSafe(text.to_owned());
    let touched = match tx.engine() {
        Engine::Sqlite(connection) => {
            let query = binds.iter().fold(sqlx::query(text), |query, bind| query.bind(bind));
            query.execute(connection).await?.rows_affected()
        }
        Engine::Postgres(connection) => {
            let query = binds.iter().fold(sqlx::query(text), |query, bind| query.bind(bind));
            query.execute(connection).await?.rows_affected()
        }
    };
    anyhow::ensure!(touched > 0, "nothing was written");
    Ok(())
}

/// What all others are copies of.
fn template() -> Deposit {
    let address = Address::Evm([0xa1; 20]);
    let tx = TxRef { id: TxId::Evm([0xff; 32]), life: TxLife::Nonce { signer: address, nonce: 0 } };
    let (asset, amount) = (AssetId::Token(address), U256::from(1_250_500_000));
    let leg = Leg { chain_ref: "eip155:8453", tx: tx.id, asset, recipient: address, amount, nth: 0 }.hash();
    Deposit {
        id: leg.deposit_id(),
        leg_hash: leg,
        account_id: "template".to_owned(),
        source_account_id: None,
        chain: Chain::BaseMainnet,
        tx,
        asset,
        sender: address,
        sender_rule: SenderRule::Reported,
        recipient: address,
        amount,
        nth: 0,
        symbol: "USDC".to_owned(),
        decimals: 6,
        status: DepositStatus::Pending,
        created_at: Timestamp::EPOCH,
        confirmed_at: None,
        is_self_transfer: false,
    }
}

/// Numbers that look drawn at random, the same in each run.
struct Places {
    deposits: u64,
    accounts: u64,
    next: u64,
}

impl Places {
    /// From `from` to `to`, both inclusive, and of those that there are.
    fn between(&mut self, from: u64, to: u64) -> u64 {
        self.next = self.next.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let (from, to) = (from.max(1), to.min(self.deposits));
        from + (self.next >> 33) % (to - from + 1)
    }

    fn account(&mut self) -> String {
        match self.between(1, self.deposits) % self.accounts {
            0 => WHALE.to_owned(),
            n => format!("acc_{n}"),
        }
    }
}

/// The `cursor` of a page.
fn cursor(body: &[u8]) -> anyhow::Result<Vec<u8>> {
    let page: serde_json::Value = serde_json::from_slice(body)?;
    let cursor = page["cursor"].as_str().context("there is another page")?;
    Ok(BASE64_URL_SAFE_NO_PAD.decode(cursor)?)
}

/// The same cursor, but behind the `n`-th deposit: its last 24 bytes are a time and an id.
fn behind(cursor: &[u8], n: u64) -> String {
    let mut bytes = cursor[..cursor.len() - 24].to_vec();
    bytes.extend((n * 1_000_000).to_be_bytes());
    bytes.extend([0; 16]);
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// The process that answers, until it is dropped.
struct Service {
    address: SocketAddr,
    child: Child,
}

impl Service {
    fn start(url: &str) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.args([SERVE, url]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut address = String::new();
        BufReader::new(child.stdout.take().context("a pipe")?).read_line(&mut address)?;
        Ok(Service { address: address.trim().parse()?, child })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other process: the API as `landfall run` serves it, without rates.
pub(crate) fn serve(words: &[String]) -> anyhow::Result<()> {
    let [url] = words else { anyhow::bail!("{SERVE} takes one word") };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let db = Db::open(&url.parse()?).await?;
        let limits = Limits { ip_requests_per_sec: 0, key_requests_per_sec: 0, ..Limits::default() };
        let settings = Settings { limits, ..Settings::of(Environment::Test) };
        let router = Api::new(db, settings, Clock::system()).router();
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        println!("{}", listener.local_addr()?);
        Serving::of(4 * CALLERS).serve(listener, router, &CancellationToken::new()).await;
        Ok(())
    })
}
