//! SQL texts and how they are run: one text for both engines, the number of binds checked at compile time.
//!
//! `statements!` declares a room's texts and lists them, so that a test prepares each on both engines. `[bracketed]`
//! parts of a text exist on PostgreSQL only. `execute!`, `fetch_all!` and `fetch_optional!` run one. On SQLite a
//! forgotten bind would silently be NULL: here it does not compile.

use sqlx::{PgConnection, SqliteConnection};

/// A statement in both dialects.
#[derive(Clone, Copy, Debug)]
pub struct Sql {
    pub name: &'static str,
    pub postgres: &'static str,
    pub sqlite: &'static str,
}

/// A connection of either engine, borrowed for one statement.
#[derive(Debug)]
pub enum Engine<'c> {
    Postgres(&'c mut PgConnection),
    Sqlite(&'c mut SqliteConnection),
}

/// Something that statements run on: a connection or a transaction.
pub trait Connection: Send {
    fn engine(&mut self) -> Engine<'_>;
}

impl Sql {
    /// The number of parameters: the highest `$n` of the text.
    pub const fn params(&self) -> usize {
        highest_parameter(self.postgres)
    }
}

const fn highest_parameter(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut highest = 0;
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'$' {
            let mut number = 0;
            while at + 1 < bytes.len() && bytes[at + 1].is_ascii_digit() {
                at += 1;
                number = number * 10 + (bytes[at] - b'0') as usize;
            }
            if number > highest {
                highest = number;
            }
        }
        at += 1;
    }
    highest
}

macro_rules! statements {
    ($($(#[$comment:meta])* $name:ident = $text:literal $([$postgres:literal] $rest:literal)*;)+) => {
        $(
            $(#[$comment])*
            const $name: $crate::store::sql::Sql = $crate::store::sql::Sql {
                name: concat!(module_path!(), "::", stringify!($name)),
                postgres: concat!($text $(, $postgres, $rest)*),
                sqlite: concat!($text $(, $rest)*),
            };
        )+
        /// Every statement of this room.
        pub(super) const STATEMENTS: &[$crate::store::sql::Sql] = &[$($name),+];
    };
}

macro_rules! count {
    () => { 0 };
    ($head:expr $(, $tail:expr)*) => { 1 + $crate::store::sql::count!($($tail),*) };
}

/// Runs `$sql` in the arm of the engine and names the statement in the error.
macro_rules! run {
    ($connection:expr, $sql:ident, ($($bind:expr),*), |$c:ident, $text:ident| $query:expr) => {{
        const _: () = assert!($sql.params() == $crate::store::sql::count!($($bind),*), "binds and parameters differ");
        match $crate::store::sql::Connection::engine($connection) {
            $crate::store::sql::Engine::Postgres($c) => { let $text = $sql.postgres; $query }
            $crate::store::sql::Engine::Sqlite($c) => { let $text = $sql.sqlite; $query }
        }
        .map_err(|error| $crate::store::StoreError::of($sql.name, error))
    }};
}

/// Runs a statement; returns the number of rows that it touched.
macro_rules! execute {
    ($connection:expr, $sql:ident $(, $bind:expr)* $(,)?) => {
        $crate::store::sql::run!($connection, $sql, ($($bind),*), |c, text| {
            sqlx::query(text)$(.bind($bind))*.execute(c).await.map(|done| done.rows_affected())
        })
    };
}

/// Runs a query; returns all of its rows.
macro_rules! fetch_all {
    ($connection:expr, $row:ty, $sql:ident $(, $bind:expr)* $(,)?) => {
        $crate::store::sql::run!($connection, $sql, ($($bind),*), |c, text| {
            sqlx::query_as::<_, $row>(text)$(.bind($bind))*.fetch_all(c).await
        })
    };
}

/// Runs a query; returns its row, if there is one.
macro_rules! fetch_optional {
    ($connection:expr, $row:ty, $sql:ident $(, $bind:expr)* $(,)?) => {
        $crate::store::sql::run!($connection, $sql, ($($bind),*), |c, text| {
            sqlx::query_as::<_, $row>(text)$(.bind($bind))*.fetch_optional(c).await
        })
    };
}

pub(crate) use {count, execute, fetch_all, fetch_optional, run, statements};

#[cfg(test)]
mod tests {
    use super::highest_parameter;

    #[test]
    fn the_highest_parameter_is_found() {
        let cases = [("", 0), ("SELECT 1", 0), ("a = $1 AND b = $2 OR c = $1", 2), ("$12", 12), ("$", 0)];
        for (text, highest) in cases {
            assert_eq!(highest_parameter(text), highest, "{text}");
        }
    }
}
