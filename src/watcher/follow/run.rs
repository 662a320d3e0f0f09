//! The loop around a watcher's ticks: how long it waits between them, and what it reports meanwhile.
//!
//! Promises: it may be stopped at any await. Whatever happens, it reports often enough that the process is alive. A
//! halted chain waits for a person and never ends.

use std::time::Duration;

use landfall_chain::{BlockSource, Retry};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::store::StoreError;
use crate::time::{Clock, Pulse};
use crate::watcher::follow::status;
use crate::watcher::{Follower, HEARTBEAT, RETRY_MAX, TickError};

/// How often a halted chain checks whether it is resumed, and reports that it is alive.
const LOOK_FOR_RESUMPTION: Duration = Duration::from_secs(1);
/// A tick that takes longer hangs: it no longer counts as a sign of life.
pub(in crate::watcher) const TICK_TIME_MAX: Duration = Duration::from_secs(600);
/// However long a tick took, this part of the poll is waited for after it.
const REST_PART: u32 = 4;

impl<S: BlockSource> Follower<S> {
    /// Ticks until `stop`, which may come at any await of a tick. After a permanent error the chain is halted: it
    /// reports this and waits for a person.
    pub async fn run(mut self, clock: Clock, random: fn() -> u64, pulse: Pulse, stop: CancellationToken) {
        let mut reporter = status::Reporter::new(self.chain(), self.settings.proof);
        let mut retry = Retry::new(self.settings.poll, RETRY_MAX);
        // Must come first: later writes replace what is on record.
        match self.take_up_alarms().await {
            Ok(()) => reporter.warn(self.alarms.texts(clock.now()), self.alarms.finalized_at()),
            Err(error) => warn!(chain = %self.chain(), "what was warned of cannot be read: {error}"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = self.load(&mut reporter, &clock, &pulse) => {}
        }
        while !stop.is_cancelled() {
            pulse.beat(clock.now());
            let begun = Instant::now();
            let (db, endpoints) = (self.db.clone(), self.endpoints.clone());
            let outcome = tokio::select! {
                () = stop.cancelled() => return,
                outcome = self.tick(clock.now()) => outcome,
                never = reporter.beat(&db, &endpoints, &clock, &pulse) => match never {},
            };
            reporter.log(&outcome, clock.now());
            let succeeded = outcome.is_ok();
            reporter.warn(self.alarms.texts(clock.now()), self.alarms.finalized_at());
            let pause = match &outcome {
                Ok(ticked) => {
                    retry.reset();
                    // Also after a reorg: two nodes on two branches must not be asked in a tight loop. Nor may a source
                    // that does not show the blocks it reports.
                    let is_idle = ticked.caught_up || ticked.connected == 0;
                    let rests = ticked.disconnected > 0 || is_idle && !ticked.more_to_settle;
                    if rests { self.settings.poll } else { Duration::ZERO }
                }
                Err(TickError::Store(StoreError::Moved { .. })) => Duration::ZERO,
                Err(error) if error.may_pass() => retry.next_delay(random()),
                Err(_) => HEARTBEAT,
            };
            if let Err(error) = reporter.record(&self.db, &self.endpoints, outcome, clock.now()).await {
                warn!(chain = %self.chain(), "the state of {} was not recorded: {error}", self.chain());
            }
            if reporter.is_halted() {
                self.await_resumption(&mut reporter, &clock, &pulse, &stop).await;
                continue;
            }
            let pause = if succeeded { rest(pause, begun.elapsed()) } else { pause };
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
                // After an error the growing pause holds, even if a newer block is signalled.
                () = self.wake_up.notified(), if succeeded => {}
            }
        }
    }

    /// Loads the watch list page by page, and reports after each that the process is alive: a long list takes longer
    /// than `health` waits. The first tick meets an error of this again, and reports it.
    async fn load(&self, reporter: &mut status::Reporter, clock: &Clock, pulse: &Pulse) {
        loop {
            let page = async { self.watch_list.follow_page(&mut self.db.read().await?).await };
            match page.await {
                Ok(is_more) => {
                    pulse.beat(clock.now());
                    reporter.say_loaded(&self.db, &self.endpoints, self.watch_list.len(), clock.now()).await;
                    if !is_more {
                        return;
                    }
                }
                Err(error) => {
                    warn!(chain = %self.chain(), "the watch list cannot be read: {error}");
                    return;
                }
            }
        }
    }

    /// Waits until a person resumes the chain, or `stop`. Reports meanwhile that the process is alive.
    async fn await_resumption(
        &mut self,
        reporter: &mut status::Reporter,
        clock: &Clock,
        pulse: &Pulse,
        stop: &CancellationToken,
    ) {
        while !stop.is_cancelled() {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_FOR_RESUMPTION) => {}
            }
            reporter.say_alive(&self.db, &self.endpoints, clock, pulse).await;
            let met = self.resumed.clone();
            match self.read_orders(clock.now()).await {
                Ok(orders) if met.as_ref().is_some_and(|met| *met != orders.resumed) => {
                    info!(chain = %self.chain(), "{} is resumed", self.chain());
                    return reporter.start_anew();
                }
                Ok(orders) => self.resumed = Some(orders.resumed),
                Err(error) => warn!(chain = %self.chain(), "whether to resume cannot be read: {error}"),
            }
        }
    }
}

/// How long to wait after a tick that `took` so long, so that the next one starts a `poll` after it. A slower node
/// still gets a part of the poll as a pause.
fn rest(poll: Duration, took: Duration) -> Duration {
    poll.saturating_sub(took).max(poll / REST_PART)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_begins_a_poll_after_the_one_before_it_unless_that_was_slow() {
        let ms = Duration::from_millis;
        let cases =
            [(100, 0, 100), (100, 55, 45), (100, 75, 25), (100, 90, 25), (100, 400, 25), (0, 400, 0), (0, 0, 0)];
        for (poll, took, expected) in cases {
            assert_eq!(rest(ms(poll), ms(took)), ms(expected), "{poll} {took}");
        }
    }
}
