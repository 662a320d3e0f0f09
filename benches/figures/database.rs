//! Empty databases, for figures of both engines: SQLite in a folder, and PostgreSQL where `LANDFALL_TEST_POSTGRES`
//! names a server.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context;
use sqlx::Connection;

/// Where databases are made.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Sqlite,
    /// The server's URL, with a database of its own.
    Postgres(String),
}

impl Place {
    /// All that can be measured; says so where that is not PostgreSQL.
    pub(crate) fn all() -> Vec<Place> {
        #[expect(clippy::disallowed_methods, reason = "the benchmark's own setting: the server that tests use")]
        let server = std::env::var("LANDFALL_TEST_POSTGRES");
        let Ok(server) = server else {
            println!("PostgreSQL is not measured: LANDFALL_TEST_POSTGRES names no server");
            return vec![Place::Sqlite];
        };
        vec![Place::Sqlite, Place::Postgres(server)]
    }

    pub(crate) fn engine(&self) -> &'static str {
        match self {
            Place::Sqlite => "SQLite",
            Place::Postgres(_) => "PostgreSQL",
        }
    }

    /// Measures on an empty database, which it names by its URL, and which goes away afterwards.
    pub(crate) async fn with<T>(&self, measure: impl AsyncFnOnce(&str) -> anyhow::Result<T>) -> anyhow::Result<T> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        match self {
            Place::Sqlite => {
                let folder = tempfile::tempdir()?;
                measure(&format!("sqlite:{}", folder.path().join("figures.db").display())).await
            }
            Place::Postgres(server) => {
                let name = format!("figures_{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
                let (base, _) = server.rsplit_once('/').context("a URL with a database")?;
                admin(server, &format!("CREATE DATABASE {name}")).await?;
                let measured = measure(&format!("{base}/{name}")).await;
                admin(server, &format!("DROP DATABASE {name} WITH (FORCE)")).await?;
                measured
            }
        }
    }
}

async fn admin(server: &str, text: &str) -> anyhow::Result<()> {
    let mut admin = sqlx::PgConnection::connect(server).await?;
    sqlx::query(sqlx::AssertSqlSafe(text.to_owned())).execute(&mut admin).await?;
    admin.close().await?;
    Ok(())
}
