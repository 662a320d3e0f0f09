//! What a watcher reports of itself: to the log when something changes, to the store at each tick.

use std::convert::Infallible;
use std::time::Duration;

use landfall_chain::{Chain, Endpoints, Proof, ReadProof, with_causes};
use tracing::{error, info, warn};

use crate::store::status::{self, ChainStatus};
use crate::store::{Db, StoreError};
use crate::time::{Clock, Pulse, Timestamp};
use crate::watcher::HEARTBEAT;
use crate::watcher::follow::run::TICK_TIME_MAX;
use crate::watcher::{Pace, TickError, Ticked};

/// How often an unchanged state is recorded.
const RECORD_EVERY: Duration = Duration::from_secs(1);

/// The states of a chain, as `status` shows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Starting,
    CatchingUp,
    Following,
    /// The last tick failed in a way that may pass.
    Failing,
    /// A person must act.
    Halted,
}

/// Remembers the last report, so that the log has changes only.
#[derive(Debug)]
pub(in crate::watcher) struct Reporter {
    state: State,
    status: ChainStatus,
    read: ReadProof,
    /// While catching up.
    pace: Option<Pace>,
    /// Something has changed since it was last written.
    is_news: bool,
    /// A step has succeeded, or a person has resumed the chain: the halt of an earlier process is over.
    goes_on: bool,
}

impl State {
    const fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::CatchingUp => "catching_up",
            State::Following => "following",
            State::Failing => "failing",
            State::Halted => "halted",
        }
    }
}

impl Reporter {
    pub(in crate::watcher) fn new(chain: Chain, read: ReadProof) -> Self {
        let proof = Proof::at_least(chain.family(), read, 1);
        let status = ChainStatus {
            chain,
            state: State::Starting.name().to_owned(),
            reason: String::new(),
            proof: proof.name().to_owned(),
            latest: None,
            finalized: None,
            cursor: None,
            caught_up_at: Timestamp::EPOCH,
            heartbeat_at: Timestamp::EPOCH,
            endpoints: Vec::new(),
            finalized_at: Timestamp::EPOCH,
            alarms: Vec::new(),
        };
        Reporter { state: State::Starting, status, read, pace: None, is_news: true, goes_on: false }
    }

    pub(in crate::watcher) fn is_halted(&self) -> bool {
        self.state == State::Halted
    }

    /// Logs how a tick ended, if that is new, and from time to time how far catching up has come.
    pub(in crate::watcher) fn log(&mut self, outcome: &Result<Ticked, TickError>, now: Timestamp) {
        let chain = self.status.chain;
        match outcome {
            Ok(ticked) if ticked.caught_up => self.pace = None,
            Ok(ticked) => {
                let pace = self.pace.get_or_insert_with(|| Pace::new(now));
                pace.add(ticked.connected);
                if let Some(line) = pace.line(ticked.behind, self.status.chain.family().numbers(), now) {
                    info!(%chain, "{chain} catches up: {line}");
                }
            }
            Err(_) => {}
        }
        let (state, reason) = match outcome {
            Ok(ticked) if ticked.caught_up => (State::Following, String::new()),
            Ok(_) => (State::CatchingUp, String::new()),
            Err(TickError::Store(StoreError::Moved { .. })) => return,
            Err(error) if error.may_pass() => (State::Failing, with_causes(error)),
            Err(error) => (State::Halted, with_causes(error)),
        };
        if state != self.state || reason != self.status.reason {
            self.is_news = true;
            match state {
                State::Starting | State::CatchingUp | State::Following => info!(%chain, "{chain} is {}", state.name()),
                State::Failing => warn!(%chain, "{chain} is failing and will be tried again: {reason}"),
                State::Halted => error!(%chain, "{chain} is halted: {reason}"),
            }
        }
        self.goes_on |= outcome.is_ok();
        self.state = state;
        state.name().clone_into(&mut self.status.state);
        self.status.reason = reason;
    }

    pub(in crate::watcher) async fn record(
        &mut self,
        db: &Db,
        endpoints: &Endpoints,
        outcome: Result<Ticked, TickError>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let before = self.status.clone();
        if let Ok(Ticked { tip: Some(tip), caught_up, still_since, .. }) = outcome {
            self.status.latest = Some(tip.latest.number);
            self.status.finalized = tip.finalized.map(|finalized| finalized.number).max(self.status.finalized);
            if caught_up {
                // A block that stays the same for too long may not be the newest one.
                self.status.caught_up_at = still_since.map_or(now, |since| since.min(self.status.caught_up_at));
            }
        }
        if self.status.caught_up_at == Timestamp::EPOCH {
            let earlier = status::caught_up_at(&mut db.read().await?, self.status.chain).await?;
            self.status.caught_up_at = earlier.unwrap_or(Timestamp::EPOCH);
        }
        // Each write waits for the disk: when only time has passed, one a second is enough.
        let is_news = ChainStatus { caught_up_at: before.caught_up_at, ..self.status.clone() } != before;
        if is_news || self.is_news || now.since(self.status.heartbeat_at) >= RECORD_EVERY {
            self.write(db, endpoints, now).await?;
        }
        Ok(())
    }

    /// Sets the alarms that are on; logs what is new, once, and what is over.
    pub(in crate::watcher) fn warn(&mut self, alarms: Vec<String>, finalized_at: Timestamp) {
        let chain = self.status.chain;
        for alarm in alarms.iter().filter(|alarm| !self.status.alarms.contains(alarm)) {
            warn!(%chain, "alarm on {chain}: {alarm}");
        }
        for alarm in self.status.alarms.iter().filter(|alarm| !alarms.contains(alarm)) {
            info!(%chain, "alarm on {chain} is over: {alarm}");
        }
        self.is_news |= self.status.alarms != alarms;
        (self.status.alarms, self.status.finalized_at) = (alarms, finalized_at);
    }

    /// Reports that the process is alive while a tick is under way, for as long as a tick may take; then that it hangs.
    pub(in crate::watcher) async fn beat(
        &mut self,
        db: &Db,
        endpoints: &Endpoints,
        clock: &Clock,
        pulse: &Pulse,
    ) -> Infallible {
        let begun = clock.now();
        loop {
            tokio::time::sleep(HEARTBEAT).await;
            if clock.now().since(begun) > TICK_TIME_MAX {
                break;
            }
            self.say_alive(db, endpoints, clock, pulse).await;
        }
        let alarm = format!("the watcher hangs: its step began at {begun} and has not ended");
        error!(chain = %self.status.chain, "alarm on {}: {alarm}", self.status.chain);
        self.status.alarms.push(alarm);
        let last_sign_of_life = self.status.heartbeat_at;
        if let Err(error) = self.write(db, endpoints, last_sign_of_life).await {
            warn!(chain = %self.status.chain, "the state of {} was not recorded: {error}", self.status.chain);
        }
        std::future::pending().await
    }

    /// Reports once that the process is alive.
    pub(in crate::watcher) async fn say_alive(&mut self, db: &Db, endpoints: &Endpoints, clock: &Clock, pulse: &Pulse) {
        pulse.beat(clock.now());
        if let Err(error) = self.write(db, endpoints, clock.now()).await {
            warn!(chain = %self.status.chain, "the state of {} was not recorded: {error}", self.status.chain);
        }
    }

    /// Reports how many addresses of the watch list are loaded, once in a while.
    pub(in crate::watcher) async fn say_loaded(
        &mut self,
        db: &Db,
        endpoints: &Endpoints,
        count: usize,
        now: Timestamp,
    ) {
        if now.since(self.status.heartbeat_at) < RECORD_EVERY {
            return;
        }
        self.status.reason = format!("loads the watch list: {count} addresses");
        if let Err(error) = self.write(db, endpoints, now).await {
            warn!(chain = %self.status.chain, "the state of {} was not recorded: {error}", self.status.chain);
        }
    }

    /// A person has resumed the chain.
    pub(in crate::watcher) fn start_anew(&mut self) {
        self.goes_on = true;
        self.state = State::Starting;
        State::Starting.name().clone_into(&mut self.status.state);
        self.status.reason.clear();
    }

    async fn write(&mut self, db: &Db, endpoints: &Endpoints, now: Timestamp) -> Result<(), StoreError> {
        self.status.heartbeat_at = now;
        // An operator may change how many must agree while it runs.
        let proof = Proof::at_least(self.status.chain.family(), self.read, endpoints.agree());
        proof.name().clone_into(&mut self.status.proof);
        let mut tx = db.begin().await?;
        let said = self.said(status::halted(&mut tx, self.status.chain).await?);
        status::record(&mut tx, &said, &endpoints.snapshot()).await?;
        tx.commit().await?;
        self.is_news = false;
        Ok(())
    }

    /// What is written. A restart ends no halt: what an earlier process `halted` for stands until a step succeeds or a
    /// person resumes it. The other lane and backfills depend on that.
    fn said(&mut self, halted: Option<String>) -> ChainStatus {
        self.goes_on |= halted.is_none();
        let knows_less = !self.goes_on && matches!(self.state, State::Starting | State::Failing);
        match halted.filter(|_| knows_less) {
            Some(reason) => ChainStatus { state: State::Halted.name().to_owned(), reason, ..self.status.clone() },
            None => self.status.clone(),
        }
    }
}
