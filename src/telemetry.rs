//! Logging: to stderr, so that stdout is a command's result and nothing else.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

/// Logs from here on; `filter` is a directive such as `info` or `landfall=debug`, `info` by default.
pub fn log_to_stderr(filter: Option<&str>) {
    // sqlx tells of every slow statement and hyper of every connection at info.
    let filter = EnvFilter::new(filter.unwrap_or("info,sqlx=warn,hyper=warn"));
    let colours = std::io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(std::io::stderr).init();
}
