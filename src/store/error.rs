//! How the store fails, and whether trying again can help: decided here, once.

use std::fmt;
use std::path::PathBuf;

use crate::secrets::{WRITTEN, without};
use crate::store::StoreUrl;

/// What a failed commit is named by.
pub(super) const COMMIT: &str = "commit";

/// A statement that failed, or rows that contradict what must hold.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Connection lost, lock not free, server restarting: the same call may succeed later.
    #[error("store unavailable at {statement}")]
    Unavailable {
        statement: &'static str,
        #[source]
        error: SqlError,
    },
    #[error("statement {statement} failed")]
    Failed {
        statement: &'static str,
        #[source]
        error: SqlError,
    },
    /// Another transaction moved the cursor or changed the watch list since it was read.
    #[error("the cursor of {chain} has moved or its watch list has changed")]
    Moved { chain: landfall_chain::Chain },
    #[error("{what} touched {actual} rows instead of {expected}")]
    RowsAffected { what: &'static str, expected: u64, actual: u64 },
    #[error("stored {what} cannot be read: {reason}")]
    Inconsistent { what: &'static str, reason: String },
}

/// What the engine says, without the line of PostgreSQL's own source, which is of no use to an operator.
#[derive(Debug)]
pub struct SqlError(sqlx::Error);

/// Why the store cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("store.url: expected sqlite:PATH or postgres://USER@HOST/DATABASE")]
    Url,
    #[error("store.url: the URL cannot be taken apart: expected postgres://USER:PASSWORD@HOST/DATABASE, {WRITTEN}")]
    Unclear,
    #[error(
        "store.url: {host} is another machine, and the URL does not say whether to encrypt: write ?sslmode=verify-full \
         (with &sslrootcert=FILE where the certificate is of your own), or ?sslmode=disable on a network of your own"
    )]
    Unencrypted { host: String },
    #[error("cannot write {}: {error}; check the path and its permissions", path.display())]
    File { path: PathBuf, error: std::io::Error },
    #[error("there is no store at {} yet: `landfall run` or `landfall migrate` makes it", path.display())]
    Missing { path: PathBuf },
    #[error("cannot connect to {url}: {error}")]
    Connect { url: StoreUrl, error: SqlError },
    #[error(
        "{url} keeps text as {encoding}, which has no place for all that others send: make the database anew with \
         CREATE DATABASE .. ENCODING 'UTF8' TEMPLATE template0"
    )]
    Encoding { url: StoreUrl, encoding: String },
    #[error("cannot migrate the store: {}", without_line(&.0.to_string()))]
    Migrate(Box<sqlx::migrate::MigrateError>),
    #[error("{}: {}",
        found.map_or("the store has no tables yet".to_owned(),
            |found| format!("the store's schema is version {found}, this program needs version {expected}")),
        if found.is_some_and(|found| found > *expected) { "a newer program has migrated it; run that one" }
        else { "run `landfall migrate`" })]
    Schema { expected: i64, found: Option<i64> },
    #[error(transparent)]
    Store(StoreError),
}

impl StoreError {
    pub(super) fn of(statement: &'static str, error: sqlx::Error) -> Self {
        if may_pass(&error) {
            StoreError::Unavailable { statement, error: SqlError(error) }
        } else {
            StoreError::Failed { statement, error: SqlError(error) }
        }
    }

    pub(super) fn inconsistent(what: &'static str, reason: impl ToString) -> Self {
        StoreError::Inconsistent { what, reason: reason.to_string() }
    }

    /// Whether no connection was free in time: nothing was begun.
    pub fn is_crowded_out(&self) -> bool {
        matches!(self, StoreError::Unavailable { error: SqlError(sqlx::Error::PoolTimedOut), .. })
    }

    /// Whether the database could not be reached, and nothing was changed. What is lost while a transaction is committed may have
    /// been changed.
    pub fn is_away(&self) -> bool {
        match self {
            StoreError::Unavailable { statement, error: SqlError(error) } if *statement != COMMIT => match error {
                sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::WorkerCrashed => true,
                // Connection exception; shutdown, crash, start.
                sqlx::Error::Database(error) => error
                    .code()
                    .is_some_and(|code| code.len() == 5 && (code.starts_with("08") || code.starts_with("57P"))),
                _ => false,
            },
            _ => false,
        }
    }

    /// Whether it failed because a table is missing: SQLSTATE 42P01, or SQLite's message.
    pub(super) fn is_missing_table(&self) -> bool {
        let StoreError::Failed { error: SqlError(sqlx::Error::Database(error)), .. } = self else { return false };
        error.code().is_some_and(|code| code == "42P01") || error.message().starts_with("no such table")
    }

    /// Whether others held for too long what its transaction needed: a row, SQLite's write lock, or a connection. Then
    /// the transaction has done nothing.
    pub fn is_locked_out(&self) -> bool {
        match self {
            StoreError::Unavailable { error: SqlError(sqlx::Error::PoolTimedOut), .. } => true,
            StoreError::Unavailable { error: SqlError(sqlx::Error::Database(error)), .. } => {
                error.code().is_some_and(|code| code_is_of_locks(&code))
            }
            _ => false,
        }
    }

    /// Whether the same call may succeed later without a person doing anything.
    pub fn may_pass(&self) -> bool {
        match self {
            StoreError::Unavailable { .. } | StoreError::Moved { .. } => true,
            // A row that a constraint refuses contradicts the books: a person's; so is one with data that the database never
            // takes. What fails for a reason that nobody thought of has changed nothing, and is tried again, loudly.
            StoreError::Failed { error: SqlError(error), .. } => !is_refusal(error),
            StoreError::RowsAffected { .. } | StoreError::Inconsistent { .. } => false,
        }
    }
}

impl OpenError {
    /// Whether the same call may succeed later: a server that is down or starting.
    pub fn may_pass(&self) -> bool {
        match self {
            OpenError::Connect { error: SqlError(error), .. } => may_pass(error),
            OpenError::Store(error) => error.may_pass(),
            OpenError::Url
            | OpenError::Unclear
            | OpenError::Unencrypted { .. }
            | OpenError::File { .. }
            | OpenError::Missing { .. }
            | OpenError::Encoding { .. }
            | OpenError::Migrate(_)
            | OpenError::Schema { .. } => false,
        }
    }
}

impl From<sqlx::Error> for SqlError {
    fn from(error: sqlx::Error) -> Self {
        SqlError(error)
    }
}

/// The whole of it: it has no source that would be shown beside it.
impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(without_line(&self.0.to_string()))
    }
}

impl std::error::Error for SqlError {}

/// The driver ends what PostgreSQL says with the line of PostgreSQL's source that says it.
fn without_line(said: &str) -> &str {
    match said.rsplit_once(" at line ") {
        Some((words, line)) if !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit()) => words,
        _ => said,
    }
}

/// Checks that a statement touched exactly one row.
pub(super) fn expect_one(what: &'static str, actual: u64) -> Result<(), StoreError> {
    expect(what, 1, actual)
}

/// Checks that a statement touched exactly so many rows.
pub(super) fn expect(what: &'static str, expected: u64, actual: u64) -> Result<(), StoreError> {
    if actual == expected { Ok(()) } else { Err(StoreError::RowsAffected { what, expected, actual }) }
}

/// The same error without these values of the store's URL, which a server repeats in its refusals; `may_pass` stays the
/// same.
pub(super) fn hidden(error: sqlx::Error, values: Vec<String>) -> sqlx::Error {
    let text = error.as_database_error().map_or_else(|| error.to_string(), |refusal| refusal.message().to_owned());
    let shown = without(&text, values);
    if shown == text {
        error
    } else if may_pass(&error) {
        sqlx::Error::Io(std::io::Error::other(shown))
    } else {
        sqlx::Error::Configuration(shown.into())
    }
}

fn may_pass(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed => true,
        sqlx::Error::Database(error) => error.code().is_some_and(|code| code_may_pass(&code)),
        _ => false,
    }
}

fn is_refusal(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| {
        // Data exception: for example text that the database's encoding cannot hold. SQLite has no code of five digits.
        let is_of_data = error.code().is_some_and(|code| code.len() == 5 && code.starts_with("22"));
        is_of_data || !matches!(error.kind(), sqlx::error::ErrorKind::Other)
    })
}

/// SQLSTATEs of PostgreSQL (appendix A of its manual) and result codes of SQLite (sqlite.org/rescode.html).
fn code_may_pass(code: &str) -> bool {
    // SQLite's codes have four digits at most.
    if code.len() == 5 {
        // Connection exception, insufficient resources, operator intervention (shutdown, restart), system error.
        let class = ["08", "53", "57", "58"].iter().any(|class| code.starts_with(class));
        // Session ended while idle in its transaction.
        return class || code == "25P03" || code_is_of_locks(code);
    }
    // IOERR, FULL, CANTOPEN, with any extension: a full disk can be emptied.
    code_is_of_locks(code) || code.parse::<u32>().is_ok_and(|code| [10, 13, 14].contains(&(code & 0xff)))
}

/// Serialization failure, deadlock, lock not available; BUSY, LOCKED.
fn code_is_of_locks(code: &str) -> bool {
    if code.len() == 5 {
        return ["40001", "40P01", "55P03"].contains(&code);
    }
    code.parse::<u32>().is_ok_and(|code| [5, 6].contains(&(code & 0xff)))
}

#[cfg(test)]
mod tests {
    use super::without_line;

    #[test]
    fn a_line_of_the_servers_source_is_not_shown() {
        let cases = [
            (
                "error returned from database: role \"x\" does not exist at line 948",
                "error returned from database: role \"x\" does not exist",
            ),
            ("syntax error at line one", "syntax error at line one"),
            ("pool closed", "pool closed"),
            (" at line 7", ""),
        ];
        for (said, shown) in cases {
            assert_eq!(without_line(said), shown);
        }
    }
}
