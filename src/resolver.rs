//! Looks up what the names of webhooks stand for, and lets through only what a webhook may be sent to.
//!
//! Promises: of a name's addresses every one is vetted, and one that must not be reached refuses them all: who answers
//! differently to each question gains nothing by mixing. It takes 5 s and some addresses at most, with the wait for its turn; the
//! system may go on with a question for longer, so only some are asked at once, fewer for those who register. It connects to
//! nothing: who does, connects to an address that was given out here and asks for no other.

use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use url::Url;

use crate::webhook::{AllowedNetworks, Scheme, Target, WebhookUrlError, target, vet_address};

const TIME_MAX: Duration = Duration::from_secs(5);
/// More are a mistake or an attack.
const ADDRESSES_MAX: usize = 64;

/// How many names are looked up at once for those who register a webhook. What nobody answers holds a thread for as long as
/// the system waits, and deliveries look up names on the same threads.
const REGISTERED_AT_ONCE: usize = 32;
/// How many for deliveries. With those they leave some of the 512 threads that tokio has for what blocks to others.
const DELIVERED_AT_ONCE: usize = 416;

/// Tells addresses of names. Tests pass their own.
#[derive(Clone)]
pub struct Resolver {
    source: Source,
    registering: Arc<Semaphore>,
    delivering: Arc<Semaphore>,
}

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
        Resolver::of(Source::System)
    }

    /// A resolver of one's own.
    pub fn new(lookup: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        Resolver::of(Source::Given(Arc::new(lookup)))
    }

    fn of(source: Source) -> Self {
        let [registering, delivering] =
            [REGISTERED_AT_ONCE, DELIVERED_AT_ONCE].map(|most| Arc::new(Semaphore::new(most)));
        Resolver { source, registering, delivering }
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
        self.vetted_among(&self.delivering, name, scheme, allowed).await
    }

    /// Vets what a URL's host stands for now. A name that cannot be looked up is let through: whoever is to have it may not
    /// have it yet, and each connection is vetted again. So is one for which there was no place in time among those who register at once.
    ///
    /// # Errors
    /// A host that this webhook must not reach.
    pub async fn vet(&self, url: &Url, allowed: &AllowedNetworks) -> Result<(), WebhookUrlError> {
        match target(url)? {
            Target::Address(address) => vet_address(url, address, allowed),
            Target::Name(name) => match self.vetted_among(&self.registering, &name, Scheme::of(url)?, allowed).await {
                Ok(_) | Err(ResolveError::Failed(_) | ResolveError::TimedOut) => Ok(()),
                Err(ResolveError::Count(_) | ResolveError::Blocked) => Err(WebhookUrlError::Private(name)),
            },
        }
    }

    /// As [`Resolver::vetted`], one of so many at once.
    async fn vetted_among(
        &self,
        among: &Arc<Semaphore>,
        name: &str,
        scheme: Scheme,
        allowed: &AllowedNetworks,
    ) -> Result<Vec<IpAddr>, ResolveError> {
        let looking = async {
            let permit = Arc::clone(among).acquire_owned().await.map_err(io::Error::other)?;
            self.look_up(name, permit).await
        };
        vetted(tokio::time::timeout(TIME_MAX, looking).await.map_err(|_| ResolveError::TimedOut)?, scheme, allowed)
    }

    /// `permit` is given back when the system has ended, also where nobody waits for it any more.
    async fn look_up(&self, name: &str, permit: OwnedSemaphorePermit) -> io::Result<Vec<IpAddr>> {
        let (source, name) = (self.source.clone(), name.to_owned());
        let looking = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            match source {
                // The port is the connection's business.
                Source::System => Ok((name.as_str(), 0).to_socket_addrs()?.map(|address| address.ip()).collect()),
                Source::Given(lookup) => lookup(&name),
            }
        });
        looking.await.map_err(io::Error::other)?
    }
}

fn vetted(
    addresses: io::Result<Vec<IpAddr>>,
    scheme: Scheme,
    allowed: &AllowedNetworks,
) -> Result<Vec<IpAddr>, ResolveError> {
    let addresses = addresses.map_err(ResolveError::Failed)?;
    if addresses.is_empty() || addresses.len() > ADDRESSES_MAX {
        return Err(ResolveError::Count(addresses.len()));
    }
    let is_vetted = addresses.iter().all(|address| scheme.may_reach(*address, allowed));
    if is_vetted { Ok(addresses) } else { Err(ResolveError::Blocked) }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.source {
            Source::System => "Resolver::system",
            Source::Given(_) => "Resolver",
        })
    }
}
