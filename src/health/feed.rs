//! The feed in the status report: how far it is numbered, and since when an event waits for its number. Readers of the
//! feed get no event before that, so a feed that stands still is a fault.

use std::time::Duration;

use serde::Serialize;

use crate::store::{Connection, StoreError, feed};
use crate::time::Timestamp;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct FeedReport {
    /// The number of the newest event; 0 while there is none.
    pub last: u64,
    /// The age of the oldest event without a number; null when each has one.
    pub lag_secs: Option<u64>,
}

impl FeedReport {
    pub(super) async fn read(connection: &mut impl Connection, now: Timestamp) -> Result<Self, StoreError> {
        let oldest = feed::oldest_unnumbered(connection).await?;
        let last = feed::last(connection).await?;
        Ok(FeedReport { last, lag_secs: oldest.map(|at| now.since(at).as_secs()) })
    }

    pub(super) fn complaint(&self, lag_max: Duration) -> Option<String> {
        let lag = self.lag_secs.filter(|lag| *lag > lag_max.as_secs())?;
        Some(format!("feed: an event waits for its number for {lag} s; is `landfall run` running?"))
    }
}
