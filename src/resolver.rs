//! Looks up what the names of webhooks stand for, and lets through only what a webhook may be sent to.
//!
//! Promises: of a name's addresses every one is vetted, and one that must not be reached refuses them all: who answers
//! differently to each question gains nothing by mixing. It takes 5 s and some addresses at most. It connects to nothing:
//! who does, connects to an address that was given out here and asks for no other.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use url::Url;

use crate::webhook::{AllowedNetworks, Scheme, Target, WebhookUrlError, target, vet_address};

const TIME_MAX: Duration = Duration::from_secs(5);
/// More are a mistake or an attack.
const ADDRESSES_MAX: usize = 64;

/// Tells addresses of names. Tests pass their own.
#[derive(Clone)]
pub struct Resolver(Source);

type Lookup = dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync;

#[derive(Clone)]
enum Source {
    System,
    Given(Arc<Lookup>),
}

/// Why a name gave no address to connect to.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    #[error("the name could not be looked up")]
    Failed(#[source] io::Error),
    #[error("the name was not looked up within {} s", TIME_MAX.as_secs())]
    TimedOut,
    #[error("the name has {0} addresses")]
    Count(usize),
    /// Without the address: who may ask for names must not map our inside.
    #[error("the name stands for an address that this webhook must not reach")]
    Blocked,
}

impl Resolver {
    /// The system's resolver.
    pub fn system() -> Self {
        Resolver(Source::System)
    }

    /// A resolver of one's own.
    pub fn new(lookup: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        Resolver(Source::Given(Arc::new(lookup)))
    }

    /// The addresses of `name`, when a webhook with this scheme and these networks may be sent to every one of them.
    ///
    /// # Errors
    /// See [`ResolveError`].
    pub async fn vetted(
        &self,
        name: &str,
        scheme: Scheme,
        allowed: &AllowedNetworks,
    ) -> Result<Vec<IpAddr>, ResolveError> {
        let addresses = tokio::time::timeout(TIME_MAX, self.look_up(name)).await;
        let addresses = addresses.map_err(|_| ResolveError::TimedOut)?.map_err(ResolveError::Failed)?;
        if addresses.is_empty() || addresses.len() > ADDRESSES_MAX {
            return Err(ResolveError::Count(addresses.len()));
        }
        let vetted = addresses.iter().all(|address| scheme.may_reach(*address, allowed));
        if vetted { Ok(addresses) } else { Err(ResolveError::Blocked) }
    }

    /// Vets what a URL's host stands for now. A name that cannot be looked up is let through: whoever is to have it may not
    /// have it yet, and each connection is vetted again.
    ///
    /// # Errors
    /// A host that this webhook must not reach.
    pub async fn vet(&self, url: &Url, allowed: &AllowedNetworks) -> Result<(), WebhookUrlError> {
        match target(url)? {
            Target::Address(address) => vet_address(url, address, allowed),
            Target::Name(name) => match self.vetted(&name, Scheme::of(url)?, allowed).await {
                Ok(_) | Err(ResolveError::Failed(_) | ResolveError::TimedOut) => Ok(()),
                Err(ResolveError::Count(_) | ResolveError::Blocked) => Err(WebhookUrlError::Private(name)),
            },
        }
    }

    async fn look_up(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        match &self.0 {
            // The port is the connection's business.
            Source::System => Ok(tokio::net::lookup_host((name, 0)).await?.map(|address| address.ip()).collect()),
            Source::Given(lookup) => lookup(name),
        }
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Source::System => "Resolver::system",
            Source::Given(_) => "Resolver",
        })
    }
}
