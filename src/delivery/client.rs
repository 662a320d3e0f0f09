//! Connections to receivers: only to addresses that were vetted for the webhook whose event is sent.
//!
//! A name is looked up by us at each new connection, every address is vetted, and one of those is connected to, with the
//! name as SNI and Host. Addresses in the URL never reach a resolver and are vetted here. No redirects, no proxies.
//! Webhooks that may reach different networks never share a connection: each set of networks has a client of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use landfall_chain::with_causes;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::redirect::Policy;
use url::Url;

use crate::resolver::Resolver;
use crate::webhook::{AllowedNetworks, Scheme, Target, target, vet_address};

/// How many sets of networks keep their connections; beyond it all begin anew.
const CLIENTS_MAX: usize = 64;

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
        // Installed once per process; a second time changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let clients = Clients { resolver, made: Mutex::default() };
        // Most webhooks reach the internet only; what is wrong with building clients shows now.
        clients.client(Scheme::Https, &AllowedNetworks::default())?;
        Ok(clients)
    }

    /// The client for a webhook's URL, when it may be sent to at all.
    ///
    /// # Errors
    /// In words for operators.
    pub(super) fn for_url(&self, url: &Url, allowed: &AllowedNetworks) -> Result<reqwest::Client, String> {
        if let Target::Address(address) = target(url).map_err(|error| error.to_string())? {
            vet_address(url, address, allowed).map_err(|error| error.to_string())?;
        }
        let scheme = Scheme::of(url).map_err(|error| error.to_string())?;
        self.client(scheme, allowed).map_err(describe)
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

/// A client that goes where it is told and nowhere else.
fn build(guard: Guard) -> reqwest::Result<reqwest::Client> {
    let is_encrypted = guard.scheme == Scheme::Https;
    let builder = reqwest::Client::builder()
        .https_only(is_encrypted)
        .dns_resolver(Arc::new(guard))
        .redirect(Policy::none())
        .no_proxy()
        // What an answer says is of little use; unpacking a hostile one is work for nothing.
        .no_gzip()
        .user_agent(concat!("Landfall/", env!("CARGO_PKG_VERSION")));
    // The system's certificates are read for each client that has a use for them.
    if is_encrypted { builder.build() } else { builder.tls_certs_only([]).build() }
}

/// An error and its causes in one line; reqwest's own text says little.
pub(super) fn describe(error: reqwest::Error) -> String {
    with_causes(&error.without_url())
}
