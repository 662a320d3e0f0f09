//! Resolves the names of webhooks, and returns only addresses that a webhook may be sent to.
//!
//! Promises: every address of a name is vetted, and one bad address refuses all of them, so a server that answers each
//! question differently gains nothing by mixing them. For deliveries a name is asked for once at a time, on a thread of
//! its own, and the answer serves all attempts for some seconds. So a name that nobody answers holds up only its own
//! webhook. After 5 s a question counts as failed, though the system may go on with it. A name that finds no place has
//! not failed. Registrations have a few places of their own. It connects to nothing: a caller connects to an address
//! that was returned here and resolves no other.

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
/// A name with more addresses is a mistake or an attack.
const ADDRESSES_MAX: usize = 64;

/// How many names are resolved at once for registrations. A name that nobody answers holds one of tokio's threads for
/// as long as the system waits.
const REGISTERED_AT_ONCE: usize = 32;
/// How many names are asked for at once for deliveries. Each takes a thread and a file of the process for as long as
/// the system waits.
const ASKED_AT_ONCE: u64 = 512;
/// A name that failed last time is asked for only while fewer than so many are. So names that never answer leave places
/// to all others.
const FAILED_AT_ONCE: u64 = ASKED_AT_ONCE / 2;
/// The stack of a thread that asks. The system's part of it needs some kilobytes.
const STACK_BYTES: usize = 512 * 1024;
/// How long an answer serves attempts before the name is asked for again, and how long until that is answered.
const ANSWER_LIFE: Duration = Duration::from_secs(10);
const ANSWER_LIFE_MAX: Duration = Duration::from_secs(60);
/// How long a failure counts: for the attempts that waited for the name together.
const FAILURE_LIFE: Duration = Duration::from_secs(1);
/// How long a failure is remembered.
const FAILURE_KEPT: Duration = Duration::from_secs(600);

/// Returns addresses of names. Tests pass their own.
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
    /// How many names the system is asked for now.
    asked: u64,
}

#[derive(Default)]
struct Known {
    /// When the system was asked.
    asked_at: Option<Instant>,
    answer: watch::Sender<Option<Answer>>,
}

/// The system's last answer, and when it came.
#[derive(Clone)]
struct Answer {
    at: Instant,
    addresses: Result<Vec<IpAddr>, Arc<io::Error>>,
}

/// How far the answer for a name is.
enum Asked {
    Answered(Answer),
    /// Nobody has answered in time; the system still waits.
    InVain,
    /// An answer may come until then.
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
    /// Does not name the address: a client must not learn our internal network by asking.
    #[error("the name stands for an address that this webhook must not reach")]
    Blocked,
}

impl Resolver {
    /// The system's resolver.
    pub fn system() -> Self {
        Resolver::of(Source::System)
    }

    /// A resolver that tests pass.
    pub fn new(lookup: impl Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync + 'static) -> Self {
        Resolver::of(Source::Given(Arc::new(lookup)))
    }

    fn of(source: Source) -> Self {
        let registering = Arc::new(Semaphore::new(REGISTERED_AT_ONCE));
        Resolver { source, registering, names: Arc::default(), answered: Arc::default() }
    }

    /// Whether an attempt at this name need not wait: the name was answered at most some seconds ago, or its time for
    /// an answer is over. Otherwise it is asked for, as soon as there is a place.
    pub fn is_looked_up(&self, name: &str) -> bool {
        !matches!(self.asked_for(name), Asked::Awaited(..))
    }

    /// Done when a name was answered for.
    pub async fn answered(&self) {
        self.answered.notified().await;
    }

    /// The addresses of `name`, if a webhook with this scheme and these networks may be sent to every one of them.
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
            // Also if others hold all places.
            (Some(answer), _) => Asked::Answered(answer),
            (None, Some(at)) if now.duration_since(at) >= TIME_MAX => Asked::InVain,
            (_, at) => Asked::Awaited(known.answer.subscribe(), at.unwrap_or(now) + TIME_MAX),
        };
        names.asked += u64::from(is_begun);
        asked
    }

    /// Asks the system on a thread of its own; false if there is none. At the process's end nobody waits for the
    /// thread, which may take long.
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

    /// Vets the addresses that a URL's host has now. A name that cannot be resolved is accepted: it may not have been
    /// set up yet, and each connection is vetted again. So is a name for which registrations had no place in time.
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

    /// As [`Resolver::vetted`], with a question of its own. The wait for a place counts as well.
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

    /// `permit` is given back when the system has ended, even if nobody waits for it any more.
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
            // The port comes from the URL later.
            Source::System => Ok((name, 0).to_socket_addrs()?.map(|address| address.ip()).collect()),
            Source::Given(lookup) => lookup(name),
        }
    }
}

impl Names {
    /// Forgets answers that no attempt may use any more.
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

    /// The last answer, if it is younger than `life`; a failure only if it is new.
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
