//! The workers that run, each by its name, and the pulses of their loops.
//!
//! Promises: if a worker ends unasked, all end. A stop waits until workers have finished their step, and cuts off what
//! takes too long; the next start does that work again.

use std::time::Duration;

use axum::Router;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use crate::app::Serving;
use crate::time::{Clock, Pulse};

/// How long workers get to finish their step.
const STOP_TIME_MAX: Duration = Duration::from_secs(8);

#[derive(Debug)]
pub(super) struct Workers {
    running: JoinSet<String>,
    pulses: Vec<Pulse>,
    clock: Clock,
    stop: CancellationToken,
}

/// A worker ended although nobody had asked it to.
#[derive(Debug, thiserror::Error)]
#[error("{0} ended unasked")]
pub struct WorkerEnded(String);

impl Workers {
    pub(super) fn new(clock: Clock) -> Self {
        Workers { running: JoinSet::new(), pulses: Vec::new(), clock, stop: CancellationToken::new() }
    }

    /// Cancelled when all workers are to end.
    pub(super) fn stop(&self) -> CancellationToken {
        self.stop.clone()
    }

    /// The pulses of the workers with loops.
    pub(super) fn pulses(&self) -> Vec<Pulse> {
        self.pulses.clone()
    }

    /// Runs `work`, which ends when [`Workers::stop`] is cancelled.
    pub(super) fn spawn(&mut self, name: &str, work: impl Future<Output = ()> + Send + 'static) {
        let name = name.to_owned();
        self.running.spawn(async move {
            work.await;
            name
        });
    }

    /// Runs a loop that beats the pulse that it is given in each turn.
    pub(super) fn spawn_turning<W>(
        &mut self,
        name: impl ToString,
        work: impl FnOnce(Clock, Pulse, CancellationToken) -> W,
    ) where
        W: Future<Output = ()> + Send + 'static,
    {
        let pulse = Pulse::new(name, self.clock.now());
        self.spawn(pulse.name(), work(self.clock.clone(), pulse.clone(), self.stop()));
        self.pulses.push(pulse);
    }

    /// Serves `router` at `listener`; at the stop it finishes the requests that are under way.
    pub(super) fn serve(&mut self, name: &str, how: Serving, listener: TcpListener, router: Router) {
        let stop = self.stop();
        self.spawn(name, async move { how.serve(listener, router, &stop).await });
    }

    /// Waits until `asked` is done, then ends all.
    ///
    /// # Errors
    /// When one ended before.
    pub(super) async fn run_until(mut self, asked: impl Future<Output = ()>) -> Result<(), WorkerEnded> {
        let ended = tokio::select! {
            () = asked => None,
            ended = self.running.join_next() => Some(ended.map_or_else(String::new, |ended| match ended {
                Ok(name) => name,
                Err(panic) => panic.to_string(),
            })),
        };
        self.stop.cancel();
        let finish = async { while self.running.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_TIME_MAX, finish).await.is_err() {
            warn!("some work was cut off; it is done again at the next start");
            self.running.shutdown().await;
        }
        ended.map_or(Ok(()), |name| {
            error!("{name} ended unasked");
            Err(WorkerEnded(name))
        })
    }
}
