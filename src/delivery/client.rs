//! Connections to receivers: only to addresses that were vetted for the webhook whose event is sent.
//!
//! We resolve a name before an attempt is claimed. Every address is vetted at each new connection, and the connection
//! goes to one of them, with the name as SNI and Host. An address in the URL never reaches a resolver and is vetted
//! here. No redirects, no proxies. Webhooks that may reach different networks never share a connection: each set of
//! networks has a client of its own. An error begins with one of a fixed set of phrases, which may be logged; what
//! follows may name the receiver.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use landfall_chain::with_causes;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use url::Url;

use crate::resolver::{ResolveError, Resolver};
use crate::webhook::{AllowedNetworks, Scheme, Target, WebhookUrlError, target, vet_address};

/// How many sets of networks keep their connections. Beyond this number all clients are made anew.
const CLIENTS_MAX: usize = 64;
/// An unused connection is closed after this time. Each is a file of the process, and a burst leaves up to eight to
/// each receiver.
const IDLE_TIME_MAX: Duration = Duration::from_secs(10);

/// The clients that requests are made with.
#[derive(Debug)]
pub(super) struct Clients {
    resolver: Resolver,
    made: Mutex<BTreeMap<(Scheme, AllowedNetworks), reqwest::Client>>,
}

/// Resolves for one client.
struct Guard {
    resolver: Resolver,
    scheme: Scheme,
    allowed: AllowedNetworks,
}

impl Clients {
    /// # Errors
    /// When no client can be built, for example without any root certificates.
    pub(super) fn new(resolver: Resolver) -> reqwest::Result<Self> {
        // Installed once per process; a second call changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let clients = Clients { resolver, made: Mutex::default() };
        // Most webhooks reach the internet only. If clients cannot be built at all, that shows now.
        clients.client(Scheme::Https, &AllowedNetworks::default())?;
        Ok(clients)
    }

    /// The client for a webhook's URL, if it may be sent to at all.
    ///
    /// # Errors
    /// A message for operators.
    pub(super) fn for_url(&self, url: &Url, allowed: &AllowedNetworks) -> Result<reqwest::Client, String> {
        let refused = |error: WebhookUrlError| format!("its URL may not be sent to: {error}");
        if let Target::Address(address) = target(url).map_err(refused)? {
            vet_address(url, address, allowed).map_err(refused)?;
        }
        let scheme = Scheme::of(url).map_err(refused)?;
        self.client(scheme, allowed).map_err(describe)
    }

    /// Whether an attempt at this URL has no name to wait for. If it has, the name is asked for.
    pub(super) fn is_looked_up(&self, url: &str) -> bool {
        match Url::parse(url).map(|url| target(&url)) {
            Ok(Ok(Target::Name(name))) => self.resolver.is_looked_up(&name),
            // There is no name to resolve. If the URL is wrong, the attempt will report it.
            Ok(Ok(Target::Address(_)) | Err(_)) | Err(_) => true,
        }
    }

    /// Done when a name was answered for that an attempt waits for.
    pub(super) async fn answered(&self) {
        self.resolver.answered().await;
    }

    fn client(&self, scheme: Scheme, allowed: &AllowedNetworks) -> reqwest::Result<reqwest::Client> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (scheme, allowed.clone());
        if let Some(client) = made.get(&key) {
            return Ok(client.clone());
        }
        if made.len() >= CLIENTS_MAX {
            made.clear();
        }
        let guard = Guard { resolver: self.resolver.clone(), scheme, allowed: allowed.clone() };
        let client = build(guard)?;
        made.insert(key, client.clone());
        Ok(client)
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let Guard { resolver, scheme, allowed } = self;
        let (resolver, scheme, allowed) = (resolver.clone(), *scheme, allowed.clone());
        Box::pin(async move {
            let vetted = resolver.vetted(name.as_str(), scheme, &allowed).await?;
            // The port is the URL's.
            Ok(Box::new(vetted.into_iter().map(|address| SocketAddr::new(address, 0))) as Addrs)
        })
    }
}

/// A client that connects to the vetted addresses and nowhere else.
fn build(guard: Guard) -> reqwest::Result<reqwest::Client> {
    let is_encrypted = guard.scheme == Scheme::Https;
    let builder = reqwest::Client::builder()
        .https_only(is_encrypted)
        .dns_resolver(Arc::new(guard))
        .redirect(Policy::none())
        .no_proxy()
        // We hardly use what an answer contains, and unpacking a hostile one would be work for nothing.
        .no_gzip()
        .pool_idle_timeout(IDLE_TIME_MAX)
        .user_agent(concat!("Landfall/", env!("CARGO_PKG_VERSION")));
    // The system's certificates are read only for clients that use TLS.
    if is_encrypted { builder.build() } else { builder.tls_certs_only([]).build() }
}

/// An error in one line: its kind, one of a fixed set of phrases, then a colon and its causes.
pub(super) fn describe(error: reqwest::Error) -> String {
    let error = error.without_url();
    let causes = error.source().map_or_else(String::new, |cause| format!(": {}", with_causes(cause)));
    format!("{error} ({}){causes}", kind(&error))
}

/// The kind of an error, without a name, an address, or any text that the other side chose.
fn kind(error: &reqwest::Error) -> String {
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref::<ResolveError>() {
            return error.to_string();
        }
        if let Some(error) = error.downcast_ref::<rustls::Error>() {
            let is_of_certificate = matches!(error, rustls::Error::InvalidCertificate(_));
            return if is_of_certificate { "certificate not accepted" } else { "no TLS" }.to_owned();
        }
        cause = match error.downcast_ref::<io::Error>().map(|error| (error.get_ref(), error.kind())) {
            // The error inside is not its `source`.
            Some((Some(inner), _)) => Some(inner),
            Some((None, kind)) => return kind.to_string(),
            None => error.source(),
        };
    }
    let word = if error.is_connect() { "not connected" } else { "no whole answer" };
    word.to_owned()
}
