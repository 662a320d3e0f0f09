//! Stores for tests: a fresh SQLite file or a fresh PostgreSQL database each.
//!
//! `scripts/test` starts a private PostgreSQL and names it in `LANDFALL_TEST_POSTGRES`. Without it these tests fail;
//! they are never skipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use landfall::store::{Connection, Db, Engine as Connected, Pools, StoreUrl};
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, Database, Pool, SqlSafeStr, SqlStr, SqliteConnection};
use tempfile::TempDir;
use tokio::sync::OnceCell;

/// A migrated SQLite file, and a migrated PostgreSQL database, that are made once and copied: making a schema costs
/// more than most tests.
static FILE: OnceCell<(TempDir, PathBuf)> = OnceCell::const_new();
static DATABASE: OnceCell<String> = OnceCell::const_new();
static EMPTYING: OnceCell<Vec<SqlStr>> = OnceCell::const_new();

/// How long a test waits for a connection: a machine may stand still for longer than the product waits.
const PATIENCE: Duration = Duration::from_secs(60);
const OPEN_TRIES_MAX: usize = 3;

/// The engines every store test runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Engine {
    Sqlite,
    Postgres,
}

pub(crate) const ENGINES: [Engine; 2] = [Engine::Sqlite, Engine::Postgres];

/// A fresh, migrated store; the folder lives as long as it is needed.
#[derive(Debug)]
pub(crate) struct TestStore {
    pub(crate) db: Db,
    pub(crate) url: String,
    /// Lives as long as a store in it.
    folder: Option<Arc<TempDir>>,
}

/// A copy of a store: a SQLite file, or what `pg_dump` wrote.
#[derive(Debug)]
pub(crate) struct Backup {
    file: PathBuf,
    _folder: TempDir,
}

impl TestStore {
    pub(crate) async fn fresh(engine: Engine) -> Self {
        let (url, folder) = match engine {
            Engine::Sqlite => {
                let folder = folder();
                let file = folder.path().join("landfall.db");
                let (_, migrated) = FILE.get_or_init(migrated_file).await;
                std::fs::copy(migrated, &file).unwrap();
                (format!("sqlite:{}", file.display()), Some(Arc::new(folder)))
            }
            Engine::Postgres => {
                let migrated = DATABASE.get_or_init(migrated_database).await;
                (create_database(&format!("TEMPLATE {migrated} STRATEGY FILE_COPY")).await, None)
            }
        };
        let db = patient(open(&url).await).await;
        TestStore { db, url, folder }
    }

    /// On PostgreSQL, where texts are ordered as this language orders words.
    pub(crate) async fn ordered_as(language: &str) -> Self {
        let options = format!("ENCODING 'UTF8' LOCALE_PROVIDER icu ICU_LOCALE '{language}' TEMPLATE template0");
        let url = create_database(&options).await;
        migrate(&url).await;
        TestStore { db: patient(open(&url).await).await, url, folder: None }
    }
}

impl TestStore {
    /// A copy of the store as it stands, in a file of its own.
    pub(crate) async fn copied(&self) -> Self {
        let Pools::Sqlite { write, .. } = self.db.pools() else { panic!("SQLite") };
        let folder = folder();
        let file = folder.path().join("landfall.db");
        let copy = AssertSqlSafe(format!("VACUUM INTO '{}'", file.display()));
        sqlx::query(copy).execute(write).await.unwrap();
        let url = format!("sqlite:{}", file.display());
        TestStore { db: patient(open(&url).await).await, url, folder: Some(Arc::new(folder)) }
    }

    /// As `docs/operate/backup-and-restore.md` says, while the store is in use.
    pub(crate) async fn back_up(&self) -> Backup {
        let folder = folder();
        let file = folder.path().join("copy");
        match self.db.pools() {
            Pools::Sqlite { write, .. } => {
                let copy = AssertSqlSafe(format!("VACUUM INTO '{}'", file.display()));
                sqlx::query(copy).execute(write).await.unwrap();
            }
            Pools::Postgres(_) => {
                postgres_tool("pg_dump", &["--format=custom", "--file", file.to_str().unwrap(), &self.url]);
            }
        }
        Backup { file, _folder: folder }
    }

    /// Sets the store back to what it was: on SQLite the copy takes the place of its files, on PostgreSQL an empty database is
    /// filled. Who had it open finds it closed.
    pub(crate) async fn restored(&self, backup: &Backup) -> Self {
        self.db.close().await;
        let url = match self.db.pools() {
            Pools::Sqlite { .. } => {
                let file = self.url.strip_prefix("sqlite:").unwrap();
                for part in ["", "-wal", "-shm"] {
                    std::fs::remove_file(format!("{file}{part}")).ok();
                }
                std::fs::copy(&backup.file, file).unwrap();
                self.url.clone()
            }
            Pools::Postgres(_) => {
                let url = create_database("").await;
                postgres_tool("pg_restore", &["--dbname", &url, backup.file.to_str().unwrap()]);
                url
            }
        };
        TestStore { db: patient(open(&url).await).await, url, folder: self.folder.clone() }
    }

    /// The same store, emptied: for tests that need many. Making and opening one costs more than what they do in it.
    pub(crate) async fn again(&self) -> Self {
        let deletions = EMPTYING.get_or_init(deletions).await;
        let mut tx = self.db.begin().await.unwrap();
        for deletion in deletions.iter().cloned() {
            match tx.engine() {
                Connected::Sqlite(connection) => drop(sqlx::query(deletion).execute(connection).await.unwrap()),
                Connected::Postgres(connection) => drop(sqlx::query(deletion).execute(connection).await.unwrap()),
            }
        }
        tx.commit().await.unwrap();
        TestStore { db: self.db.clone(), url: self.url.clone(), folder: None }
    }
}

/// As the product opens it: what waited for too long is tried again.
async fn open(url: &str) -> Db {
    let url: StoreUrl = url.parse().unwrap();
    for _ in 1..OPEN_TRIES_MAX {
        match Db::open(&url).await {
            Err(error) if error.may_pass() => println!("{error}"),
            opened => return opened.unwrap(),
        }
    }
    Db::open(&url).await.unwrap()
}

/// The same store, where no time between two statements ends a transaction. What rows and tables are waited for stays
/// the product's.
async fn patient(db: Db) -> Db {
    let patient = match db.pools() {
        Pools::Postgres(pool) => {
            let options = PgConnectOptions::clone(&pool.connect_options());
            Pools::Postgres(waiting_long(pool, options.options([("idle_in_transaction_session_timeout", "0")])).await)
        }
        Pools::Sqlite { read, write } => Pools::Sqlite {
            write: waiting_long(write, SqliteConnectOptions::clone(&write.connect_options())).await,
            read: waiting_long(read, SqliteConnectOptions::clone(&read.connect_options())).await,
        },
    };
    db.close().await;
    patient.into()
}

async fn waiting_long<DB: Database>(
    pool: &Pool<DB>,
    options: <DB::Connection as sqlx::Connection>::Options,
) -> Pool<DB> {
    pool.options().clone().acquire_timeout(PATIENCE).connect_with(options).await.unwrap()
}

/// What empties all tables, none before those that refer to it: a pragma that defers these checks would have SQLite
/// prepare every statement of the connection anew. Both engines have the same tables.
async fn deletions() -> Vec<SqlStr> {
    let (_, migrated) = FILE.get_or_init(migrated_file).await;
    let connection = &mut SqliteConnection::connect(&format!("sqlite:{}", migrated.display())).await.unwrap();
    let of_ours = "type = 'table' AND name NOT LIKE '\\_sqlx%' ESCAPE '\\' AND name NOT LIKE 'sqlite%'";
    let names = AssertSqlSafe(format!("SELECT name FROM sqlite_master WHERE {of_ours}"));
    let names: Vec<(String,)> = sqlx::query_as(names).fetch_all(&mut *connection).await.unwrap();
    let references = "SELECT m.name, f.\"table\" FROM sqlite_master m JOIN pragma_foreign_key_list(m.name) f";
    let mut references: Vec<(String, String)> = sqlx::query_as(references).fetch_all(connection).await.unwrap();
    let mut left: Vec<String> = names.into_iter().map(|(name,)| name).collect();
    references.retain(|(from, to)| from != to);
    let mut ordered = Vec::new();
    while !left.is_empty() {
        let is_free = |name: &String| !references.iter().any(|(from, to)| to == name && left.contains(from));
        let (free, held): (Vec<String>, Vec<String>) = left.iter().cloned().partition(is_free);
        assert!(!free.is_empty(), "tables refer to each other in a circle: {held:?}");
        ordered.extend(free);
        left = held;
    }
    let kept = |name: &String| name != "identities";
    ordered
        .iter()
        .filter(|name| kept(name))
        .map(|name| AssertSqlSafe(format!("DELETE FROM {name}")).into_sql_str())
        .collect()
}

async fn migrated_file() -> (TempDir, PathBuf) {
    let folder = folder();
    let file = folder.path().join("template.db");
    migrate(&format!("sqlite:{}", file.display())).await;
    (folder, file)
}

/// Its name.
async fn migrated_database() -> String {
    let url = create_database("").await;
    migrate(&url).await;
    url.rsplit_once('/').unwrap().1.to_owned()
}

/// Closed again: SQLite's log is folded into the file, and PostgreSQL copies no database that somebody uses.
async fn migrate(url: &str) {
    let db = open(url).await;
    db.migrate().await.unwrap();
    db.close().await;
}

/// A temporary folder, in memory where the system has one: SQLite waits for the disk at each commit.
pub(crate) fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory).unwrap() } else { TempDir::new().unwrap() }
}

/// Runs a program that comes with the server.
fn postgres_tool(name: &str, args: &[&str]) {
    #[expect(clippy::disallowed_methods, reason = "the test's own environment, set by scripts/test")]
    let folder = std::env::var("LANDFALL_TEST_PG_BIN").expect("LANDFALL_TEST_PG_BIN is set by scripts/test");
    let output = Command::new(Path::new(&folder).join(name)).args(args).output().unwrap();
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
}

/// The URL of a database that nobody else uses.
pub(crate) async fn create_database(options: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    #[expect(clippy::disallowed_methods, reason = "the test's own environment, set by scripts/test")]
    let server = std::env::var("LANDFALL_TEST_POSTGRES")
        .expect("LANDFALL_TEST_POSTGRES is not set: run scripts/test, which installs and starts a PostgreSQL server");
    let name = format!("it_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let Ok(mut admin) = sqlx::PgConnection::connect(&server).await else {
        panic!("no PostgreSQL server answers at {server}")
    };
    sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name} {options}"))).execute(&mut admin).await.unwrap();
    admin.close().await.unwrap();
    let (base, _) = server.rsplit_once('/').unwrap();
    format!("{base}/{name}")
}
