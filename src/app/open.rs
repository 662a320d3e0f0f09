//! Opening the store, and bringing its schema to this version where that is allowed.

use std::time::Duration;

use landfall_chain::Retry;
use tracing::warn;

use crate::config::Config;
use crate::random;
use crate::store::{Db, OpenError, StoreUrl};

const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Whether opening a store may change its schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Migrate {
    Always,
    /// Only a store that has no schema at all.
    IfEmpty,
    Never,
}

/// Opens the store to serve it; waits for a server that is down.
///
/// # Errors
/// Those that do not pass by waiting.
pub(super) async fn open(config: &Config, migrate: Migrate) -> Result<Db, OpenError> {
    patiently(async || open_once(&config.store, migrate).await).await
}

/// Repeats `work` while it fails for a reason that may pass: a server that is down, a lock that somebody else holds.
///
/// # Errors
/// Those that do not pass by waiting.
pub(super) async fn patiently<T>(mut work: impl AsyncFnMut() -> Result<T, OpenError>) -> Result<T, OpenError> {
    let mut retry = Retry::new(RETRY_FIRST, RETRY_MAX);
    loop {
        match work().await {
            Err(error) if error.may_pass() => {
                warn!("{error}; trying again");
                tokio::time::sleep(retry.next_delay(random::number())).await;
            }
            done => return done,
        }
    }
}

/// Opens the store, once.
///
/// # Errors
/// See [`OpenError`].
pub async fn open_once(url: &StoreUrl, migrate: Migrate) -> Result<Db, OpenError> {
    let db = Db::open(url).await?;
    let may_migrate = match migrate {
        Migrate::Always => true,
        Migrate::IfEmpty => db.schema_version().await?.is_none(),
        Migrate::Never => false,
    };
    if may_migrate {
        db.migrate().await?;
    }
    db.check_schema().await?;
    Ok(db)
}
