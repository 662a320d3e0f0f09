//! The sink that publishes events to a stream of NATS JetStream.
//!
//! Promises: an event counts as delivered only when the stream's server has confirmed that it is stored. Each event is
//! published under its own id, and the stream keeps ids for seven days: an event that is sent again, because its result
//! is not known, is stored once. While the stream cannot be reached, or is not as it must be (`stream`), nothing is
//! claimed for it. The events wait and no attempt is spent.
//!
//! A connection is used until it breaks, then another is made. What was under way on it ends at once, with an unknown
//! result.

mod link;
mod stream;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_nats::jetstream::Context;
use async_nats::jetstream::message::PublishMessage;
use landfall_chain::{Retry, with_causes};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::store::deliveries::Claimed;
use crate::store::sinks::{self, Kind, SinkReport, State};
use crate::store::{Db, StoreError};
use crate::time::{Clock, Pulse};
use link::Link;

pub use link::NatsOptions;
pub use stream::{DUPLICATE_WINDOW, REPLICAS_MAX};

/// How often the stream is checked, and its state recorded again.
const CHECK_EVERY: Duration = Duration::from_secs(10);
const RETRY_FIRST: Duration = Duration::from_millis(250);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// Publishes to a stream.
#[derive(Debug)]
pub struct Nats {
    options: NatsOptions,
    /// Names this process.
    owner: String,
    /// Set while the stream is there and as it must be.
    link: Mutex<Option<Link>>,
    /// What was logged last, so that it is logged once.
    reported: Mutex<(Option<State>, String)>,
}

impl Nats {
    /// Publishes nothing before it runs.
    pub fn new(options: NatsOptions, owner: String) -> Self {
        Nats { options, owner, link: Mutex::default(), reported: Mutex::default() }
    }

    /// From now on events are kept for the stream.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn register(&self, db: &Db, clock: &Clock) -> Result<(), StoreError> {
        let mut tx = db.begin().await?;
        sinks::ensure(&mut tx, sinks::NATS, Kind::Nats, &self.url(), clock.now()).await?;
        tx.commit().await
    }

    /// How the endpoint names the stream.
    pub(super) fn url(&self) -> String {
        format!("nats:{}", self.options.stream)
    }

    /// Keeps a connection and checks the stream, until `stop`.
    pub async fn run(&self, db: Db, clock: Clock, random: fn() -> u64, pulse: Pulse, stop: CancellationToken) {
        let mut retry = Retry::new(RETRY_FIRST, RETRY_MAX);
        let keep = async {
            loop {
                pulse.beat(clock.now());
                match link::connect(&self.options).await {
                    Ok(link) => {
                        if self.keep(link, &db, &clock, &pulse).await {
                            retry.reset();
                        }
                    }
                    Err(why) => self.say(&db, &clock, State::Away, &why).await,
                }
                sleep(retry.next_delay(random())).await;
            }
        };
        stop.run_until_cancelled(keep).await;
        self.set(None);
    }

    /// Checks the stream now and then, until the connection breaks or this server cannot reach the stream. Returns
    /// whether it could be reached before.
    async fn keep(&self, link: Link, db: &Db, clock: &Clock, pulse: &Pulse) -> bool {
        let mut was_there = false;
        while !link.broken.is_cancelled() {
            pulse.beat(clock.now());
            match stream::check(&link.context, &self.options).await {
                Ok(()) => {
                    was_there = true;
                    self.set(Some(link.clone()));
                    self.say(db, clock, State::Up, "").await;
                }
                Err(fault) => {
                    self.set(None);
                    self.say(db, clock, fault.state, &fault.what).await;
                    if fault.state == State::Away {
                        return was_there;
                    }
                }
            }
            // Neither result is an error: the connection broke, or the next check is due.
            let _ = tokio::time::timeout(CHECK_EVERY, link.broken.cancelled()).await;
        }
        self.set(None);
        self.say(db, clock, State::Away, "the connection broke").await;
        was_there
    }

    async fn say(&self, db: &Db, clock: &Clock, state: State, reason: &str) {
        self.report(state, reason);
        let report = SinkReport { owner: &self.owner, state, reason };
        let written = async {
            let mut tx = db.begin().await?;
            sinks::say(&mut tx, sinks::NATS, report, clock.now()).await?;
            tx.commit().await
        };
        if let Err(error) = written.await {
            warn!("what is known of the NATS stream cannot be written down: {error}");
        }
    }

    /// Logs what has changed.
    fn report(&self, state: State, reason: &str) {
        let now = (Some(state), reason.to_owned());
        let mut reported = self.reported.lock().unwrap_or_else(PoisonError::into_inner);
        if *reported == now {
            return;
        }
        *reported = now;
        let stream = &self.options.stream;
        match state {
            State::Up => info!("events are published to the NATS stream {stream}"),
            State::Away | State::Refused => {
                warn!("no events are published to the NATS stream {stream}, they wait: {reason}")
            }
        }
    }

    fn set(&self, link: Option<Link>) {
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = link;
    }

    fn link(&self) -> Option<Link> {
        let link = self.link.lock().unwrap_or_else(PoisonError::into_inner).clone();
        link.filter(|link| !link.broken.is_cancelled())
    }

    /// Whether events should be claimed for it.
    pub(super) fn is_up(&self) -> bool {
        self.link().is_some()
    }

    /// Publishes an event and waits until the stream confirms it; returns its place in the stream.
    ///
    /// # Errors
    /// A message for operators. The event may have been stored all the same.
    pub(super) async fn publish(&self, claimed: &Claimed) -> Result<String, String> {
        let link = self.link().ok_or("there is no connection to the stream")?;
        tokio::select! {
            stored = store(&link.context, &self.options, claimed) => stored,
            () = link.broken.cancelled() => Err("the connection broke before the stream had answered".to_owned()),
        }
    }
}

async fn store(context: &Context, options: &NatsOptions, claimed: &Claimed) -> Result<String, String> {
    let Claimed { account_id, aggregate_id, .. } = claimed;
    let whom = if account_id.is_empty() { aggregate_id } else { account_id };
    let subject = stream::subject(&options.subject, &claimed.event_type, whom);
    let message = PublishMessage::build()
        .payload(claimed.payload.clone().into())
        .message_id(&claimed.event_id)
        .expected_stream(&options.stream);
    let sent = context.send_publish(subject, message).await.map_err(|error| with_causes(&error))?;
    let stored = sent.await.map_err(|error| with_causes(&error))?;
    let again = if stored.duplicate { ", stored before" } else { "" };
    Ok(format!("sequence {} of stream {}{again}", stored.sequence, stored.stream))
}
