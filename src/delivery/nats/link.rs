//! One connection to a NATS server, from its start until it breaks.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::context::ContextBuilder;
use async_nats::{ConnectOptions, Event};
use landfall_chain::with_causes;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;
use url::Url;

use crate::delivery::send::ATTEMPT_TIME_MAX;

/// For each address of each server.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(4);
/// For all of them.
const ALL_TIME_MAX: Duration = Duration::from_secs(15);
/// A server that answers none of two or three pings counts as gone.
const PING_EVERY: Duration = Duration::from_secs(5);

/// Where events are published, as an operator sets it.
#[derive(Clone)]
pub struct NatsOptions {
    /// Servers of one cluster, `nats://` or `tls://`; a user and a password in one are secrets.
    pub urls: Vec<Url>,
    /// A file with a user's JWT and seed.
    pub credentials: Option<PathBuf>,
    /// Certificates to trust in place of the machine's own. If set, no server is used without TLS.
    pub ca: Option<PathBuf>,
    pub stream: String,
    /// What all subjects begin with.
    pub subject: String,
    /// How many servers store the stream if we make it.
    pub replicas: usize,
}

/// A connection that has not been seen to break.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) context: Context,
    pub(super) broken: CancellationToken,
}

/// Connects to one of the servers.
///
/// # Errors
/// A message for operators.
pub(super) async fn connect(options: &NatsOptions) -> Result<Link, String> {
    let broken = CancellationToken::new();
    let seen = broken.clone();
    let mut connecting = ConnectOptions::new()
        .name("landfall")
        .connection_timeout(CONNECT_TIME_MAX)
        .ping_interval(PING_EVERY)
        // Each server is tried once. If the connection breaks later, the caller makes another.
        .max_reconnects(options.urls.len())
        .event_callback(move |event| {
            let seen = seen.clone();
            async move { responses(&event, &seen) }
        });
    if let Some(path) = &options.ca {
        // An operator who names certificates wants no connection without TLS.
        connecting = connecting.add_root_certificates(path.clone()).require_tls(true);
    }
    if let Some(path) = &options.credentials {
        let read = connecting.credentials_file(path).await;
        connecting = read.map_err(|error| format!("the credentials in {} cannot be used: {error}", path.display()))?;
    }
    let urls: Vec<&str> = options.urls.iter().map(Url::as_str).collect();
    let connected = timeout(ALL_TIME_MAX, connecting.connect(urls)).await;
    let client = connected
        .map_err(|_| format!("{} did not answer within {} s", hosts(options), ALL_TIME_MAX.as_secs()))?
        .map_err(|error| format!("{}: {}", hosts(options), with_causes(&error)))?;
    let context = ContextBuilder::new().timeout(ATTEMPT_TIME_MAX).build(client);
    Ok(Link { context, broken })
}

fn responses(event: &Event, broken: &CancellationToken) {
    match event {
        Event::Disconnected | Event::Closed | Event::Draining | Event::LameDuckMode => broken.cancel(),
        // Refusals that no call returns, such as a publication without the permission.
        Event::ServerError(error) => warn!("the NATS server says: {error}"),
        Event::ClientError(_) | Event::SlowConsumer(_) | Event::Connected => {}
    }
}

/// The servers, without secrets.
fn hosts(options: &NatsOptions) -> String {
    let host = |url: &Url| match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (host, _) => host.unwrap_or_default().to_owned(),
    };
    options.urls.iter().map(host).collect::<Vec<_>>().join(", ")
}

impl fmt::Debug for NatsOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsOptions").field("hosts", &hosts(self)).field("stream", &self.stream).finish_non_exhaustive()
    }
}
