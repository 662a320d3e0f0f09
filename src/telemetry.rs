//! Logging: to stderr, so that stdout is a command's result and nothing else.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Whose own lines are never shown: it logs the URLs that it was given with their passwords. What matters of it we say.
const SILENT: &str = "async_nats=off";

/// Logs from here on; `filter` is a directive such as `info` or `landfall=debug`.
pub fn log_to_stderr(filter: &str) {
    let filter = EnvFilter::new(format!("{filter},{SILENT}"));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
}
