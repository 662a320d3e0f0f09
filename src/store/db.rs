//! The database: SQLite for one machine, PostgreSQL for more, behind one type.
//!
//! Promises: a transaction that may write takes SQLite's write lock at its beginning (a deferred one that has read
//! before fails at once). A commit is on disk when it returns. A failed commit has an unknown outcome: read again. A
//! share has connections of its own, and takes none from others.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migration, MigrationType, Migrator};
use sqlx::pool::{PoolConnection, PoolOptions};
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, Connection as _, Database, PgPool, Postgres, SqlSafeStr, Sqlite, SqlitePool, Transaction};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::warn;
use url::Url;

use crate::secrets::is_doubtful;
use crate::store::error::{COMMIT, hidden};
use crate::store::sql::{Connection, Engine, fetch_optional, statements};
use crate::store::{OpenError, StoreError};

const READERS_MAX: u32 = 8;
const POSTGRES_CONNECTIONS_MAX: u32 = 12;
/// How many prepared statements a connection keeps: more than the store has, so that none is parsed twice.
const STATEMENTS_KEPT: usize = 512;
/// How long to wait for a connection, and for SQLite's write lock.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// How long it is waited for whether a server's port can be reached at all, when no connection was had in time.
const REACH_MAX: Duration = Duration::from_secs(1);
/// What a URL says of encryption by.
const SAYS_SSL_MODE: [&str; 2] = ["sslmode", "ssl-mode"];
/// The other parameters that the driver reads from a URL (sqlx-postgres 0.9, options/parse.rs), besides
/// `options[NAME]`.
const PARAMETERS: [&str; 16] = [
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "statement-cache-capacity",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
    "options",
];
/// How long a PostgreSQL connection may be idle before it is pinged when it is taken.
const UNASKED_MAX: Duration = Duration::from_millis(100);

/// How many tries in a row may fail while no other process makes progress.
const MIGRATE_TRIES_MAX: u32 = 5;
const MIGRATE_PAUSE: Duration = Duration::from_millis(200);

/// The migrations, in order: (version, description, text for both engines).
pub const MIGRATIONS: &[(i64, &str, &str)] = &[
    (1, "init", include_str!("../../migrations/0001_init.sql")),
    (2, "transfers", include_str!("../../migrations/0002_transfers.sql")),
];

/// What migrations leave to the engine: the type of bytes, and what makes a text compare by its bytes (SQLite always
/// does).
const POSTGRES_WORDS: [(&str, &str); 2] = [("{{blob}}", "BYTEA"), ("{{by_bytes}}", " COLLATE \"C\"")];
const SQLITE_WORDS: [(&str, &str); 2] = [("{{blob}}", "BLOB"), ("{{by_bytes}}", "")];

#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    Sqlite(PathBuf),
    Postgres(Box<str>),
}

/// The database; clones share its connections.
#[derive(Clone, Debug)]
pub struct Db {
    pools: Pools,
    share: Option<Share>,
}

#[derive(Clone, Debug)]
pub enum Pools {
    Postgres(PgPool),
    /// One writer: SQLite allows no second.
    Sqlite {
        read: SqlitePool,
        write: SqlitePool,
    },
}

/// How many of this handle's users may read and write at the same time, or wait for a connection; others wait before
/// them.
#[derive(Clone, Debug)]
struct Share {
    readers: Arc<Semaphore>,
    writers: Arc<Semaphore>,
}

/// A connection to read with.
#[derive(Debug)]
pub struct Reader {
    connection: ReadConnection,
    _place: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
enum ReadConnection {
    Postgres(PoolConnection<Postgres>),
    Sqlite(PoolConnection<Sqlite>),
}

/// A transaction that writes. Dropped without [`Tx::commit`] it is rolled back.
#[derive(Debug)]
pub struct Tx {
    transaction: OpenTransaction,
    _place: Option<OwnedSemaphorePermit>,
}

#[derive(Debug)]
enum OpenTransaction {
    Postgres(Transaction<'static, Postgres>),
    Sqlite(Transaction<'static, Sqlite>),
}

statements! {
    SCHEMA_VERSION = "SELECT CAST(MAX(version) AS BIGINT) FROM _sqlx_migrations WHERE success";
}

impl FromStr for StoreUrl {
    type Err = OpenError;

    fn from_str(text: &str) -> Result<Self, OpenError> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() || path.starts_with(':') || path.contains('?') {
                return Err(OpenError::Url);
            }
            Ok(StoreUrl::Sqlite(path.into()))
        } else if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            let (url, options) = read(text).ok_or(OpenError::Unclear)?;
            match unencrypted(&url, &options) {
                Some(host) => Err(OpenError::Unencrypted { host }),
                None => Ok(StoreUrl::Postgres(text.into())),
            }
        } else {
            Err(OpenError::Url)
        }
    }
}

/// A PostgreSQL URL in its parts; `None` if there is any doubt about them.
fn taken_apart(text: &str) -> Option<Url> {
    if is_doubtful(text) || text.contains('#') { None } else { Url::parse(text).ok() }
}

/// The same, with the options that the driver makes of it.
fn read(text: &str) -> Option<(Url, PgConnectOptions)> {
    let url = taken_apart(text)?;
    let options = PgConnectOptions::from_str(text).ok()?;
    // The driver would look up an IPv6 address in its brackets as a name.
    let host = options.get_host().trim_matches(['[', ']']).to_owned();
    Some((url, options.host(&host)))
}

/// The parts of the URL that are never shown: all but host, port and database.
fn values(url: &Url, options: &PgConnectOptions) -> Vec<String> {
    let mut values = vec![options.get_username().to_owned(), url.password().unwrap_or_default().to_owned()];
    for (name, value) in url.query_pairs().filter(|(name, _)| !SAYS_SSL_MODE.contains(&&**name)) {
        // The driver's names are no secrets, except the name in `options[NAME]`.
        if !is_known(&name) || name.contains('[') {
            values.push(name.trim_start_matches("options[").trim_end_matches(']').to_owned());
        }
        values.extend(value.split([' ', '=']).map(str::to_owned));
        values.push(value.into_owned());
    }
    values
}

/// Whether the driver uses such a parameter.
fn is_known(name: &str) -> bool {
    SAYS_SSL_MODE.contains(&name) || PARAMETERS.contains(&name) || name.starts_with("options[") && name.ends_with(']')
}

/// Logs which parameters are ignored. The driver would log them with their values.
fn report_unknown(url: &Url) {
    for (name, value) in url.query_pairs().filter(|(name, _)| !is_known(name)) {
        // A malformed name may be a part of a password.
        let is_name = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') && !value.is_empty();
        let name = if is_name { &*name } else { "with an odd name or without a value" };
        warn!("store.url: a parameter that nobody knows is ignored: {name}");
    }
}

/// The host, if it is another machine and the URL does not say whether to encrypt. The driver would connect without
/// encryption if the server, or a machine in between, says that it cannot encrypt.
fn unencrypted(url: &Url, options: &PgConnectOptions) -> Option<String> {
    let host = options.get_host();
    let address: Option<IpAddr> = host.parse().ok();
    let is_here = options.get_socket().is_some()
        || host.starts_with('/')
        || host.eq_ignore_ascii_case("localhost")
        || address.is_some_and(|address| address.is_loopback());
    let says = url.query_pairs().any(|(name, _)| SAYS_SSL_MODE.contains(&&*name));
    (!is_here && !says).then(|| host.to_owned())
}

/// Host, port and database; nothing if there is any doubt about them.
impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            StoreUrl::Postgres(text) => match taken_apart(text) {
                Some(url) => {
                    let port = url.port().unwrap_or(5432);
                    write!(f, "postgres://{}:{port}{}", url.host_str().unwrap_or_default(), url.path())
                }
                None => f.write_str("postgres://"),
            },
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Db {
    /// Opens the database; creates a SQLite file that is missing.
    ///
    /// # Errors
    /// See [`OpenError`]; one that [`OpenError::may_pass`] is worth another try.
    pub async fn open(url: &StoreUrl) -> Result<Self, OpenError> {
        match url {
            StoreUrl::Sqlite(path) => open_sqlite(path).await,
            StoreUrl::Postgres(text) => open_postgres(url, text).await,
        }
    }

    /// Brings the schema to this program's version; does nothing if it is there. Of two that migrate at once, one
    /// fails; at its next try it finds the work done. It keeps trying as long as the other makes progress.
    ///
    /// # Errors
    /// When a migration fails, or the schema is newer than this program.
    pub async fn migrate(&self) -> Result<(), OpenError> {
        let (mut tries, mut reached) = (0, None);
        loop {
            let migrated = match &self.pools {
                Pools::Postgres(pool) => migrate_postgres(pool).await,
                Pools::Sqlite { write, .. } => migrator(SQLITE_WORDS).run(write).await,
            };
            let Err(error) = migrated else { return Ok(()) };
            let version = self.schema_version().await.ok().flatten();
            tries = if version > reached { 1 } else { tries + 1 };
            reached = version.max(reached);
            if tries >= MIGRATE_TRIES_MAX {
                return Err(OpenError::Migrate(Box::new(error)));
            }
            tokio::time::sleep(MIGRATE_PAUSE).await;
        }
    }

    /// The schema's version; `None` if there is no schema at all.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn schema_version(&self) -> Result<Option<i64>, OpenError> {
        let mut reader = self.read().await.map_err(OpenError::Store)?;
        match fetch_optional!(&mut reader, (Option<i64>,), SCHEMA_VERSION) {
            Ok(row) => Ok(row.and_then(|(version,)| version)),
            // Only this error means that there is no schema. After any other, nothing may be migrated.
            Err(error) if error.is_missing_table() => Ok(None),
            Err(error) => Err(OpenError::Store(error)),
        }
    }

    /// Checks that the schema is the one that this program was written for.
    ///
    /// # Errors
    /// When it is older, newer or not there.
    pub async fn check_schema(&self) -> Result<(), OpenError> {
        let expected = MIGRATIONS.last().map_or(0, |(version, ..)| *version);
        let found = self.schema_version().await?;
        if found == Some(expected) { Ok(()) } else { Err(OpenError::Schema { expected, found }) }
    }

    /// A connection to read with.
    ///
    /// # Errors
    /// When none is free in time.
    pub async fn read(&self) -> Result<Reader, StoreError> {
        let _place = place(self.share.as_ref().map(|share| &share.readers)).await?;
        let connection = match &self.pools {
            Pools::Postgres(pool) => match pool.acquire().await {
                Ok(connection) => Ok(ReadConnection::Postgres(connection)),
                Err(error) => Err(unconnected(pool, error).await),
            },
            Pools::Sqlite { read, .. } => read.acquire().await.map(ReadConnection::Sqlite),
        };
        let connection = connection.map_err(|error| StoreError::of("connect", error))?;
        Ok(Reader { connection, _place })
    }

    /// Begins a transaction that writes.
    ///
    /// # Errors
    /// When no connection, or on SQLite the write lock, is free in time.
    pub async fn begin(&self) -> Result<Tx, StoreError> {
        let _place = place(self.share.as_ref().map(|share| &share.writers)).await?;
        let transaction = match &self.pools {
            Pools::Postgres(pool) => match pool.begin().await {
                Ok(transaction) => Ok(OpenTransaction::Postgres(transaction)),
                Err(error) => Err(unconnected(pool, error).await),
            },
            Pools::Sqlite { write, .. } => write.begin_with("BEGIN IMMEDIATE").await.map(OpenTransaction::Sqlite),
        };
        let transaction = transaction.map_err(|error| StoreError::of("begin", error))?;
        Ok(Tx { transaction, _place })
    }

    /// The same database through this many connections of its own, shared by all clones of this handle: they take none
    /// from others. SQLite has one writer, so `writers` limits how many of these wait for it.
    #[must_use]
    pub fn with_share(&self, readers: u32, writers: u32) -> Self {
        // A dropped connection stays busy until its statement has ended. A mere count of holders would let others in
        // before.
        let pools = match &self.pools {
            Pools::Postgres(pool) => {
                let options = PgConnectOptions::clone(&pool.connect_options());
                Pools::Postgres(postgres_pool(readers + writers).connect_lazy_with(options))
            }
            Pools::Sqlite { read, write } => {
                let options = SqliteConnectOptions::clone(&read.connect_options());
                Pools::Sqlite { read: sqlite_pool(readers).connect_lazy_with(options), write: write.clone() }
            }
        };
        let [readers, writers] = [readers, writers]
            .map(|most| usize::try_from(most).unwrap_or(Semaphore::MAX_PERMITS))
            .map(|most| Arc::new(Semaphore::new(most)));
        Db { pools, share: Some(Share { readers, writers }) }
    }

    /// The connections, for callers that need the driver itself.
    pub fn pools(&self) -> &Pools {
        &self.pools
    }

    /// Waits for open connections to end.
    pub async fn close(&self) {
        match &self.pools {
            Pools::Postgres(pool) => pool.close().await,
            Pools::Sqlite { read, write } => {
                read.close().await;
                write.close().await;
            }
        }
    }
}

impl Tx {
    /// Makes the changes durable.
    ///
    /// # Errors
    /// The outcome is then unknown: read again before doing anything else.
    pub async fn commit(self) -> Result<(), StoreError> {
        let committed = match self.transaction {
            OpenTransaction::Postgres(tx) => tx.commit().await,
            OpenTransaction::Sqlite(tx) => tx.commit().await,
        };
        committed.map_err(|error| StoreError::of(COMMIT, error))
    }
}

impl Connection for Tx {
    fn engine(&mut self) -> Engine<'_> {
        match &mut self.transaction {
            OpenTransaction::Postgres(tx) => Engine::Postgres(tx),
            OpenTransaction::Sqlite(tx) => Engine::Sqlite(tx),
        }
    }
}

impl Connection for Reader {
    fn engine(&mut self) -> Engine<'_> {
        match &mut self.connection {
            ReadConnection::Postgres(connection) => Engine::Postgres(connection),
            ReadConnection::Sqlite(connection) => Engine::Sqlite(connection),
        }
    }
}

impl From<Pools> for Db {
    fn from(pools: Pools) -> Self {
        Db { pools, share: None }
    }
}

async fn place(share: Option<&Arc<Semaphore>>) -> Result<Option<OwnedSemaphorePermit>, StoreError> {
    let Some(share) = share else { return Ok(None) };
    let place = tokio::time::timeout(WAIT_MAX, Arc::clone(share).acquire_owned()).await;
    place.ok().and_then(Result::ok).map(Some).ok_or_else(|| StoreError::of("connect", sqlx::Error::PoolTimedOut))
}

/// A pool whose connections stay as long as the pool. sqlx's sweep for old ones reads a count of idle connections that
/// may briefly be below zero. Then it loops forever, uses up a processor, and the program never ends
/// (transact-rs/sqlx#3645, still in 0.9.0).
fn lasting<DB: Database>(connections_max: u32) -> PoolOptions<DB> {
    PoolOptions::new().max_connections(connections_max).acquire_timeout(WAIT_MAX).idle_timeout(None).max_lifetime(None)
}

/// A file does not disconnect: to ping each connection would double the work of short reads.
fn sqlite_pool(connections_max: u32) -> PoolOptions<Sqlite> {
    lasting(connections_max).test_before_acquire(false)
}

/// The one connection that writes. Where a commit fails, as on a full disk, SQLite has rolled back already. sqlx 0.9 counts
/// the transaction as open all the same, and would never begin another one: a new connection takes its place.
fn sqlite_writer() -> PoolOptions<Sqlite> {
    sqlite_pool(1).after_release(|connection, _| {
        Box::pin(async move {
            if connection.is_in_transaction() {
                // A rollback may be under way: the answer comes behind it.
                connection.ping().await?;
            }
            Ok(!connection.is_in_transaction())
        })
    })
}

/// sqlx pings a connection when it is given back; by default also each time that it is taken.
fn postgres_pool(connections_max: u32) -> PoolOptions<Postgres> {
    lasting::<Postgres>(connections_max).test_before_acquire(false).before_acquire(|connection, taken| {
        Box::pin(async move { Ok(taken.idle_for < UNASKED_MAX || connection.ping().await.is_ok()) })
    })
}

async fn open_sqlite(path: &Path) -> Result<Db, OpenError> {
    create_private(path).map_err(|error| OpenError::File { path: path.to_owned(), error })?;
    tighten(path);
    let options = SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        // NORMAL could lose the last commits when the power fails; a delivered event must not be forgotten.
        .synchronous(SqliteSynchronous::Full)
        .foreign_keys(true)
        .statement_cache_capacity(STATEMENTS_KEPT)
        .busy_timeout(WAIT_MAX);
    let open = |error: sqlx::Error| OpenError::Connect { url: StoreUrl::Sqlite(path.to_owned()), error: error.into() };
    let write = sqlite_writer().connect_with(options.clone()).await.map_err(open)?;
    let read = sqlite_pool(READERS_MAX).connect_with(options.read_only(true)).await.map_err(open)?;
    Ok(Pools::Sqlite { read, write }.into())
}

/// Creates the file if it is missing, readable by its owner alone: signing keys are in it. Also reports early, in the
/// system's words, if it cannot be written.
fn create_private(path: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    std::fs::OpenOptions::new().create(true).append(true).mode(0o600).open(path).map(drop)
}

/// Removes the permissions of others on a file that existed before, such as one restored from a copy, and on SQLite's
/// files beside it.
fn tighten(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    for end in ["", "-wal", "-shm"] {
        let mut file = path.as_os_str().to_owned();
        file.push(end);
        // A file that is not there yet gets the permissions of the first.
        let Ok(metadata) = std::fs::metadata(&file) else { continue };
        let mut permissions = metadata.permissions();
        if permissions.mode() & 0o077 == 0 {
            continue;
        }
        permissions.set_mode(permissions.mode() & 0o700);
        if let Err(error) = std::fs::set_permissions(&file, permissions) {
            let file = Path::new(&file).display();
            warn!(
                "store.url: others than its owner may read {file}, in which signing keys are, and that cannot be changed: {error}"
            );
        }
    }
}

/// The server's error names a role that is gone, or that has too many connections.
fn without_user(pool: &PgPool, error: sqlx::Error) -> sqlx::Error {
    hidden(error, vec![pool.connect_options().get_username().to_owned()])
}

/// Why no connection was had. The driver waits for a server whose port is refused, and then says only that it took too long.
async fn unconnected(pool: &PgPool, error: sqlx::Error) -> sqlx::Error {
    without_user(pool, refused(&pool.connect_options(), error).await)
}

/// The same, with what keeps the server from being reached where that is why it took too long.
async fn refused(options: &PgConnectOptions, error: sqlx::Error) -> sqlx::Error {
    if !matches!(error, sqlx::Error::PoolTimedOut) {
        return error;
    }
    match tokio::time::timeout(REACH_MAX, reach(options)).await {
        Ok(Err(why)) => sqlx::Error::Io(why),
        // It is there: others have all the connections that there may be.
        Ok(Ok(())) | Err(_) => error,
    }
}

async fn reach(options: &PgConnectOptions) -> std::io::Result<()> {
    let (host, port) = (options.get_host(), options.get_port());
    let folder = options.get_socket().map(PathBuf::as_path).or_else(|| host.starts_with('/').then(|| Path::new(host)));
    match folder {
        Some(folder) => UnixStream::connect(folder.join(format!(".s.PGSQL.{port}"))).await.map(drop),
        None => TcpStream::connect((host, port)).await.map(drop),
    }
}

async fn open_postgres(url: &StoreUrl, text: &str) -> Result<Db, OpenError> {
    let (written, options) = read(text).ok_or(OpenError::Unclear)?;
    let values = values(&written, &options);
    report_unknown(&written);
    let options = options.application_name("landfall").statement_cache_capacity(STATEMENTS_KEPT).options([
        ("statement_timeout", "30s"),
        ("lock_timeout", "5s"),
        // What a process that is paused in a transaction has locked, above all the feed's numbering, is free after
        // this.
        ("idle_in_transaction_session_timeout", "10s"),
        // Who waited for a lock must see what its holder committed: another default would count money from before.
        ("default_transaction_isolation", "read committed"),
        // The planner takes some short statements for long ones (recursive ones, tables without statistics). To compile
        // such a statement took a thousand times as long as to run it, at each execution.
        ("jit", "off"),
    ]);
    let connect = |error| OpenError::Connect { url: url.clone(), error: hidden(error, values.clone()).into() };
    let pool = match postgres_pool(POSTGRES_CONNECTIONS_MAX).connect_with(options.clone()).await {
        Ok(pool) => pool,
        Err(error) => return Err(connect(refused(&options, error).await)),
    };
    let encoding: String = sqlx::query_scalar("SHOW server_encoding").fetch_one(&pool).await.map_err(connect)?;
    match encoding.as_str() {
        // SQL_ASCII, of a cluster that was created without a locale, keeps all bytes as they come.
        "UTF8" | "SQL_ASCII" => Ok(Pools::Postgres(pool).into()),
        _ => Err(OpenError::Encoding { url: url.clone(), encoding }),
    }
}

/// Uses a connection of its own, since an index over many rows takes longer than any other statement may.
async fn migrate_postgres(pool: &PgPool) -> Result<(), MigrateError> {
    let options = PgConnectOptions::clone(&pool.connect_options()).options([("statement_timeout", "0")]);
    let patient = lasting::<Postgres>(1).connect_with(options).await.map_err(|error| without_user(pool, error))?;
    let migrated = migrator(POSTGRES_WORDS).run(&patient).await;
    patient.close().await;
    migrated
}

fn migrator(words: [(&str, &str); 2]) -> Migrator {
    let migrations = MIGRATIONS.iter().map(|(version, description, text)| {
        let text = words.iter().fold((*text).to_owned(), |text, (word, ours)| text.replace(word, ours));
        let text = AssertSqlSafe(text).into_sql_str();
        Migration::new(*version, (*description).into(), MigrationType::Simple, text, false)
    });
    let mut migrator = Migrator::with_migrations(migrations.collect());
    // The lock would be PostgreSQL's advisory one, which compatible distributed engines do not have.
    migrator.set_locking(false);
    migrator
}
