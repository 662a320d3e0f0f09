//! Looks up what the names of webhooks stand for, and lets through only what a webhook may be sent to.
//!
//! Promises: of a name's addresses every one is vetted, and one that must not be reached refuses them all: who answers
//! differently to each question gains nothing by mixing. For deliveries the system is asked for a name once at a time, on a thread of
//! its own, and what it answers serves all attempts for some seconds: a name that nobody answers for holds up its own webhook only.
//! After 5 s it counts as failed, and the system may go on for longer; what there is no place for has not failed. Those who register
//! have few places of their own. It connects to nothing: who does, connects to an address that was given out here and asks for no other.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;
use url::Url;

use crate::webhook::{AllowedNetworks, Scheme, Target, WebhookUrlError, target, vet_address};

const TIME_MAX: Duration = Duration::from_secs(5);
/// More are a mistake or an attack.
const ADDRESSES_MAX: usize = 64;

/// How many names are looked up at once for those who register a webhook. What nobody answers holds one of tokio's threads for as
/// long as the system waits.
const REGISTERED_AT_ONCE: usize = 32;
/// How many names are asked for at once for deliveries. Each is a thread and a file of the process for as long as the system waits.
const ASKED_AT_ONCE: u64 = 512;
/// How many, when the name could not be looked up the last time: those that never answer leave places to all others.
const FAILED_AT_ONCE: u64 = ASKED_AT_ONCE / 2;
/// Of a thread that asks. The system's part of it needs some kilobytes.
const STACK_BYTES: usize = 512 * 1024;
/// How long an answer serves attempts before the name is asked for again, and how long until that is answered.
const ANSWER_LIFE: Duration = Duration::from_secs(10);
const ANSWER_LIFE_MAX: Duration = Duration::from_secs(60);
/// How long it counts that a name could not be looked up: for the attempts that waited for it together.
const FAILURE_LIFE: Duration = Duration::from_secs(1);
/// How long it is remembered.
const FAILURE_KEPT: Duration = Duration::from_secs(600);

/// Tells addresses of names. Tests pass their own.
#[derive(Clone)]
pub struct Resolver {
    source: Source,
    registering: Arc<Semaphore>,
    names: Arc<Mutex<Names>>,
    answered: Arc<Notify>,
}

/// What deliveries know of names.
#[derive(Default)]
struct Names {
    of: HashMap<String, Known>,
    /// How many the system is asked for now.
    asked: u64,
}

#[derive(Default)]
struct Known {
    /// Since when the system is asked.
    asked_at: Option<Instant>,
    answer: watch::Sender<Option<Answer>>,
}

/// What the system said last, and when.
#[derive(Clone)]
struct Answer {
    at: Instant,
    addresses: Result<Vec<IpAddr>, Arc<io::Error>>,
}

/// How far a name is.
enum Asked {
    Answered(Answer),
    /// Nobody has answered in time, and the system still waits.
    InVain,
    /// Until then an answer may come.
    Awaited(watch::Receiver<Option<Answer>>, Instant),
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
    Failed(#[source] Arc<io::Error>),
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
        let registering = Arc::new(Semaphore::new(REGISTERED_AT_ONCE));
        Resolver { source, registering, names: Arc::default(), answered: Arc::default() }
    }

    /// Whether an attempt at this name has nothing to wait for: it was answered for some seconds ago at most, or is asked for in vain. Else
    /// it is asked for, as soon as there is a place.
    pub fn is_looked_up(&self, name: &str) -> bool {
        !matches!(self.asked_for(name), Asked::Awaited(..))
    }

    /// Done when a name was answered for.
    pub async fn answered(&self) {
        self.answered.notified().await;
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
        let answer = match self.asked_for(name) {
            Asked::Answered(answer) => Some(answer),
            Asked::InVain => None,
            Asked::Awaited(mut answers, until) => {
                let came = tokio::time::timeout_at(until, answers.changed()).await;
                came.ok().and_then(|_| answers.borrow().clone())
            }
        };
        vetted(answer.ok_or(ResolveError::TimedOut)?.addresses, scheme, allowed)
    }

    fn asked_for(&self, name: &str) -> Asked {
        let (mut names, now) = (self.names(), Instant::now());
        if let Some(answer) = names.of.get(name).and_then(|known| known.last(now, ANSWER_LIFE)) {
            return Asked::Answered(answer);
        }
        if !names.of.contains_key(name) {
            names.forget(now);
        }
        let under_way = names.asked;
        let known = names.of.entry(name.to_owned()).or_default();
        let has_place = under_way < if known.has_failed() { FAILED_AT_ONCE } else { ASKED_AT_ONCE };
        let is_begun = known.asked_at.is_none() && has_place && self.ask(name);
        if is_begun {
            known.asked_at = Some(now);
        }
        let asked = match (known.last(now, ANSWER_LIFE_MAX), known.asked_at) {
            // Also where others have all places.
            (Some(answer), _) => Asked::Answered(answer),
            (None, Some(at)) if now.duration_since(at) >= TIME_MAX => Asked::InVain,
            (_, at) => Asked::Awaited(known.answer.subscribe(), at.unwrap_or(now) + TIME_MAX),
        };
        names.asked += u64::from(is_begun);
        asked
    }

    /// Asks the system, beside; false when it has no thread for that. Nobody waits for it at the end: it may take long.
    fn ask(&self, name: &str) -> bool {
        let (resolver, name) = (self.clone(), name.to_owned());
        let asking = move || {
            let addresses = resolver.source.addresses(&name).map_err(Arc::new);
            let mut names = resolver.names();
            names.asked = names.asked.saturating_sub(1);
            if let Some(known) = names.of.get_mut(&name) {
                known.asked_at = None;
                known.answer.send_replace(Some(Answer { at: Instant::now(), addresses }));
            }
            drop(names);
            resolver.answered.notify_one();
        };
        thread::Builder::new().name("look-up".to_owned()).stack_size(STACK_BYTES).spawn(asking).is_ok()
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Vets what a URL's host stands for now. A name that cannot be looked up is let through: whoever is to have it may not
    /// have it yet, and each connection is vetted again. So is one for which there was no place in time among those who register at once.
    ///
    /// # Errors
    /// A host that this webhook must not reach.
    pub async fn vet(&self, url: &Url, allowed: &AllowedNetworks) -> Result<(), WebhookUrlError> {
        match target(url)? {
            Target::Address(address) => vet_address(url, address, allowed),
            Target::Name(name) => match self.vetted_now(&name, Scheme::of(url)?, allowed).await {
                Ok(_) | Err(ResolveError::Failed(_) | ResolveError::TimedOut) => Ok(()),
                Err(ResolveError::Count(_) | ResolveError::Blocked) => Err(WebhookUrlError::Private(name)),
            },
        }
    }

    /// As [`Resolver::vetted`], by an answer of its own, one of some at once; the wait for its turn counts.
    async fn vetted_now(
        &self,
        name: &str,
        scheme: Scheme,
        allowed: &AllowedNetworks,
    ) -> Result<Vec<IpAddr>, ResolveError> {
        let looking = async {
            let permit = Arc::clone(&self.registering).acquire_owned().await.map_err(io::Error::other)?;
            self.look_up(name, permit).await
        };
        let addresses = tokio::time::timeout(TIME_MAX, looking).await.map_err(|_| ResolveError::TimedOut)?;
        vetted(addresses.map_err(Arc::new), scheme, allowed)
    }

    /// `permit` is given back when the system has ended, also where nobody waits for it any more.
    async fn look_up(&self, name: &str, permit: OwnedSemaphorePermit) -> io::Result<Vec<IpAddr>> {
        let (source, name) = (self.source.clone(), name.to_owned());
        let looking = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            source.addresses(&name)
        });
        looking.await.map_err(io::Error::other)?
    }
}

impl Source {
    fn addresses(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        match self {
            // The port is the connection's business.
            Source::System => Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect()),
            Source::Given(lookup) => lookup(name),
        }
    }
}

impl Names {
    /// Lets go of what serves nobody any more.
    fn forget(&mut self, now: Instant) {
        self.of.retain(|_, known| {
            let life = if known.has_failed() { FAILURE_KEPT } else { ANSWER_LIFE_MAX };
            let is_young = |answer: &Answer| now.duration_since(answer.at) < life;
            known.asked_at.is_some() || known.answer.borrow().as_ref().is_some_and(is_young)
        });
    }
}

impl Known {
    fn has_failed(&self) -> bool {
        self.answer.borrow().as_ref().is_some_and(|answer| answer.addresses.is_err())
    }

    /// The last answer, when it is younger than `life`, or has failed just now.
    fn last(&self, now: Instant, life: Duration) -> Option<Answer> {
        let answer = self.answer.borrow().clone()?;
        let life = if answer.addresses.is_ok() { life } else { FAILURE_LIFE };
        (now.duration_since(answer.at) < life).then_some(answer)
    }
}

fn vetted(
    addresses: Result<Vec<IpAddr>, Arc<io::Error>>,
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
