//! Logging: to stderr, so that stdout is a command's result and nothing else.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Whose own lines are never shown: it logs the URLs that it was given with their passwords. What matters of it we say.
const SILENT: &str = "async_nats=off";

/// Logs from here on: by `filter`, a directive such as `info` or `landfall=debug`, or by `usual` where it is unset or empty.
pub fn log_to_stderr(filter: Option<&str>, usual: &str) {
    let filter = filter.filter(|filter| !filter.trim().is_empty()).unwrap_or(usual);
    let filter = EnvFilter::new(format!("{filter},{SILENT}"));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
}
