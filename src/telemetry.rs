//! Logging: to stderr, so that stdout is a command's result and nothing else.
//!
//! On a terminal bars may stand below the log. They are removed for each line, and drawn again. A terminal that is gone
//! ends nothing.

use std::io::{IsTerminal, Write};

use indicatif::MultiProgress;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt, registry};

/// Crates whose own lines are never logged, at any level: they log URLs with passwords, parameters with their values,
/// and lines of files with passwords. We log what matters of them.
const SILENT: [&str; 2] = ["async_nats", "sqlx_postgres"];

/// Logs from now on: by `filter`, a directive such as `info` or `landfall=debug`, or by `usual` if it is unset or
/// empty. Returns the bars below the log.
pub fn log_to_stderr(filter: Option<&str>, usual: &str) -> MultiProgress {
    let filter = filter.filter(|filter| !filter.trim().is_empty()).unwrap_or(usual);
    let spoken = filter_fn(|about| !SILENT.iter().any(|silent| about.target().starts_with(silent)));
    let colours = std::io::stderr().is_terminal();
    let bars = MultiProgress::new();
    let above = AboveBars(bars.clone());
    let writer = move || above.clone();
    // A failed write would be reported on stderr, which panics where the terminal is gone.
    let log = fmt::layer().log_internal_errors(false).with_ansi(colours).with_writer(writer);
    registry().with(EnvFilter::new(filter)).with(spoken).with(log).init();
    bars
}

/// Writes whole lines to stderr.
#[derive(Clone)]
struct AboveBars(MultiProgress);

impl Write for AboveBars {
    fn write(&mut self, lines: &[u8]) -> std::io::Result<usize> {
        // Without this, drawing bars on a terminal that is gone would panic.
        self.0.clear()?;
        self.0.suspend(|| std::io::stderr().write_all(lines))?;
        Ok(lines.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stderr().flush()
    }
}
