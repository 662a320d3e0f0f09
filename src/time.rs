//! Points in time, in microseconds, and the one place that reads the clock.
//!
//! Rooms get the time as an argument or a [`Clock`]; nothing else asks the system.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};

/// Microseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp(pub i64);

/// Returns the time. Tests pass their own.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

/// When a worker's loop last turned; clones share it.
#[derive(Clone, Debug)]
pub struct Pulse {
    name: String,
    last: Arc<AtomicI64>,
}

impl Timestamp {
    /// Stands for "not yet" where the interface requires a time.
    pub const EPOCH: Timestamp = Timestamp(0);

    /// From whole seconds, as in block headers. Seconds beyond the year 292277 saturate.
    pub fn from_secs(secs: u64) -> Self {
        Timestamp(i64::try_from(secs).unwrap_or(i64::MAX).saturating_mul(1_000_000))
    }

    pub fn plus(self, duration: Duration) -> Self {
        Timestamp(self.0.saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    pub fn minus(self, duration: Duration) -> Self {
        Timestamp(self.0.saturating_sub(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)))
    }

    /// How long ago `earlier` was; zero when it is later.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// RFC 3339 in UTC with `Z`; 0, 3 or 6 digits of fraction, as many as are needed.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = DateTime::<Utc>::from_timestamp_micros(self.0).unwrap_or(DateTime::<Utc>::MAX_UTC);
        f.write_str(&time.to_rfc3339_opts(SecondsFormat::AutoSi, true))
    }
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        #[expect(clippy::disallowed_methods, reason = "the one place that reads the clock")]
        let now = || {
            let since_epoch = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            Timestamp(i64::try_from(since_epoch.unwrap_or_default().as_micros()).unwrap_or(i64::MAX))
        };
        Clock::new(now)
    }

    /// A clock that a caller passes.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Clock(Arc::new(now))
    }

    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl Pulse {
    /// The pulse of a worker that starts now.
    pub fn new(name: impl ToString, now: Timestamp) -> Self {
        Pulse { name: name.to_string(), last: Arc::new(AtomicI64::new(now.0)) }
    }

    pub fn beat(&self, now: Timestamp) {
        self.last.store(now.0, Ordering::Relaxed);
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn last(&self) -> Timestamp {
        Timestamp(self.last.load(Ordering::Relaxed))
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_print_in_rfc_3339_with_the_digits_they_need() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (1_750_000_000_000_000, "2025-06-15T15:06:40Z"),
            (1_750_000_000_500_000, "2025-06-15T15:06:40.500Z"),
            (1_750_000_000_000_001, "2025-06-15T15:06:40.000001Z"),
        ];
        for (micros, text) in cases {
            assert_eq!(Timestamp(micros).to_string(), text);
        }
    }
}
