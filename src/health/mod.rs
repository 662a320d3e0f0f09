//! What the store shows of the watchers and the queue: the status report, and whether all is well.
//!
//! It reads the store and never a node, so every process reports the same.

mod admin;
mod assets;
mod balances;
mod feed;
mod metrics;
mod nobodys;
mod paying;
mod sender;
mod sinks;
mod webhooks;

use std::collections::BTreeSet;
use std::time::Duration;

use landfall_chain::Chain;
use serde::Serialize;

use crate::health::paying::Sending;
use crate::incident::Incident;
use crate::overrides::Decision;
use crate::store::status::{self, ChainStatus, EndpointRow, QueueStatus};
use crate::store::traces::{self, Doubts, TraceStatus};
use crate::store::{Db, StoreError, asset_facts, incidents, overrides};
use crate::time::Timestamp;

pub use admin::{Started, router};
pub use assets::AssetReport;
pub use feed::FeedReport;
pub use metrics::{COMPLAINTS, METRICS, Metric};
pub use nobodys::NobodysReport;
pub use paying::{GasReport, SignerReport};
pub use sender::{SenderReport, SponsorReport};
pub use sinks::SinkReport;
pub use webhooks::{FailureReport, WebhookReport};

/// The beginning of an alarm of an open incident.
const INCIDENT: &str = "incident ";
/// A watcher that has reported nothing for so long counts as gone.
const HEARTBEAT_MAX: Duration = Duration::from_secs(30);

/// `status --json`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Status {
    pub chains: Vec<ChainReport>,
    pub events: EventsReport,
    pub feed: FeedReport,
    pub webhooks: Vec<WebhookReport>,
    /// Where events are published beside the webhooks.
    pub sinks: Vec<SinkReport>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct ChainReport {
    pub chain: &'static str,
    pub state: String,
    pub reason: String,
    pub latest: Option<u64>,
    pub finalized: Option<u64>,
    pub cursor: Option<u64>,
    /// How many blocks the cursor is behind the newest.
    pub lag_blocks: Option<u64>,
    /// How long ago the cursor was last at the newest block; null if it never was.
    pub lag_secs: Option<u64>,
    pub proof: String,
    pub endpoints: Vec<EndpointReport>,
    /// The block up to which the native currency is complete; null where a network is not traced.
    pub traced: Option<u64>,
    /// How long ago every connected block was traced; null if that never was so, or nothing is traced.
    pub traces_lag_secs: Option<u64>,
    /// Why traces are behind; empty when all is well.
    pub traces_reason: String,
    /// What waits for a second witness, and why; empty when nothing does.
    pub traces_alarm: String,
    /// How many of these are in final blocks and were tried often.
    #[serde(skip)]
    unwitnessed_for_long: u64,
    /// The newest block on record whose trace two endpoints reported, and the newest whose trace only one reported.
    /// Null if there is none.
    pub traces_by_two: Option<u64>,
    pub traces_by_one: Option<u64>,
    /// How many blocks are put off because they cannot be traced, and why one of them is.
    pub traces_put_off: u64,
    pub traces_put_off_reason: String,
    #[serde(skip)]
    is_traced: bool,
    /// What a person should check: finality that stalls, endpoints that do not agree, open incidents.
    pub alarms: Vec<String>,
    /// Operators' overrides that are in force.
    pub overrides: Vec<OverrideReport>,
    /// What the chain itself reports of the listed assets; empty on a chain that reports nothing of them.
    pub assets: Vec<AssetReport>,
    /// Watched addresses that became nobody's after they were added, at most 20.
    pub nobodys: Vec<NobodysReport>,
    /// What of its transfers is under way; null where nothing is, and it has no sponsors.
    pub sender: Option<SenderReport>,
    /// What the process that sends last reported of its signer, and of gas; null where `sender` is, or nobody ever sent.
    pub signer: Option<SignerReport>,
    pub gas: Option<GasReport>,
    #[serde(skip)]
    silent_secs: u64,
    /// How far ahead of this machine's clock the watcher's last report is.
    #[serde(skip)]
    ahead_secs: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct EndpointReport {
    pub id: String,
    pub state: String,
    pub reason: String,
    pub latest: Option<u64>,
    /// Its latency: a moving average; null before the first answer.
    pub latency_ms: Option<u64>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct OverrideReport {
    pub kind: &'static str,
    pub value: String,
    pub reason: String,
    pub until: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct EventsReport {
    /// Deliveries that have not arrived yet.
    pub pending: u64,
    /// The age of the oldest of their events.
    pub oldest_secs: Option<u64>,
    /// For how long the oldest delivery has been due that nothing holds up.
    pub oldest_due_secs: Option<u64>,
}

impl Status {
    /// Reads the store.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read(db: &Db, now: Timestamp) -> Result<Self, StoreError> {
        let mut reader = db.read().await?;
        let traces = traces::statuses(&mut reader).await?;
        let doubts = traces::doubts(&mut reader).await?;
        let incidents = incidents::open(&mut reader).await?;
        let assets = asset_facts::all(&mut reader).await?;
        let mut chains = Vec::new();
        for chain in status::chains(&mut reader).await? {
            let decisions = overrides::of_chain(&mut reader, chain.chain).await?;
            let traces = traces.iter().find(|traces| traces.chain == chain.chain);
            let of_chain = assets.iter().filter(|asset| asset.chain == chain.chain).map(AssetReport::of).collect();
            let unreported = balances::alarms(&mut reader, chain.chain, now).await?;
            let nobodys = NobodysReport::read(&mut reader, chain.chain).await?;
            let sending = Sending::read(&mut reader, chain.chain, now).await?;
            let mut report =
                ChainReport { assets: of_chain, nobodys, ..ChainReport::of(chain, &incidents, decisions, now) };
            report.alarms.extend(unreported);
            report.alarms.extend(sending.alarms());
            (report.sender, report.signer, report.gas) = (sending.sender, sending.signer, sending.gas);
            chains.push(match traces {
                Some(traces) => report.traced(traces, now),
                None => report.doubted(&doubts),
            });
        }
        let QueueStatus { pending, oldest_at } = status::queue(&mut reader).await?;
        let feed = FeedReport::read(&mut reader, now).await?;
        let webhooks = WebhookReport::read(&mut reader, now).await?;
        let oldest_secs = oldest_at.map(|at| now.since(at).as_secs());
        let sinks = SinkReport::read(&mut reader, now).await?;
        let oldest_due_secs = webhooks.iter().filter_map(WebhookReport::late_secs).max();
        let events = EventsReport { pending, oldest_secs, oldest_due_secs };
        Ok(Status { chains, events, feed, webhooks, sinks })
    }

    /// Without the watchers' old reports of chains that are not in `configured`, if nobody has followed such a chain
    /// for 30 s. Another process may follow it. Its open incidents are kept.
    #[must_use]
    pub fn of_configured(mut self, configured: &BTreeSet<Chain>) -> Self {
        for report in &mut self.chains {
            let is_silent = report.silent_secs > HEARTBEAT_MAX.as_secs();
            if is_silent && !configured.iter().any(|chain| chain.name() == report.chain) {
                "not configured any more".clone_into(&mut report.state);
                report.alarms.retain(|alarm| alarm.starts_with(INCIDENT));
                report.endpoints.clear();
                [report.lag_blocks, report.lag_secs] = [None; 2];
                [&mut report.reason, &mut report.proof, &mut report.traces_reason].into_iter().for_each(String::clear);
            }
        }
        self
    }

    /// What is wrong with the `expected` chains, the feed, webhooks and sinks; empty when all is well.
    pub fn complaints(&self, expected: &BTreeSet<Chain>, lag_max: Duration) -> Vec<String> {
        let mut complaints = Vec::new();
        for chain in expected {
            match self.chains.iter().find(|report| report.chain == chain.name()) {
                Some(report) => {
                    let what = report.complaint(lag_max).into_iter().chain(report.traces_complaint(lag_max));
                    let what = what.chain(report.witness_complaint());
                    let what = what.chain(report.alarms.iter().cloned());
                    complaints.extend(what.map(|what| format!("{chain}: {what}")));
                }
                None => complaints.push(format!("{chain}: never watched; is `landfall run` running?")),
            }
        }
        complaints.extend(self.feed.complaint(lag_max));
        complaints.extend(self.webhooks.iter().flat_map(|webhook| webhook.complaints(lag_max)));
        complaints.extend(self.sinks.iter().filter_map(|sink| sink.complaint(lag_max)));
        complaints
    }
}

impl ChainReport {
    fn of(status: ChainStatus, incidents: &[Incident], decisions: Vec<Decision>, now: Timestamp) -> Self {
        let ever_caught_up = status.caught_up_at != Timestamp::EPOCH;
        let of_chain = incidents.iter().filter(|incident| incident.chain == status.chain).map(alarm);
        let alarms = status.alarms.into_iter().chain(of_chain).collect();
        // The line is shown below the chain's name.
        let named = format!("{}: ", status.chain);
        let reason = status.reason.strip_prefix(&named).unwrap_or(&status.reason).to_owned();
        let in_force = |decision: &Decision| decision.action.replaces_a_rule() && decision.until > now;
        ChainReport {
            chain: status.chain.name(),
            state: status.state,
            reason,
            latest: status.latest,
            finalized: status.finalized,
            cursor: status.cursor,
            lag_blocks: status.latest.zip(status.cursor).map(|(latest, cursor)| latest.saturating_sub(cursor)),
            lag_secs: ever_caught_up.then(|| now.since(status.caught_up_at).as_secs()),
            proof: status.proof,
            endpoints: status.endpoints.into_iter().map(EndpointReport::from).collect(),
            traced: None,
            traces_lag_secs: None,
            traces_reason: String::new(),
            traces_alarm: String::new(),
            unwitnessed_for_long: 0,
            traces_by_two: None,
            traces_by_one: None,
            traces_put_off: 0,
            traces_put_off_reason: String::new(),
            is_traced: false,
            alarms,
            overrides: decisions.into_iter().filter(in_force).map(OverrideReport::from).collect(),
            assets: Vec::new(),
            nobodys: Vec::new(),
            sender: None,
            signer: None,
            gas: None,
            silent_secs: now.since(status.heartbeat_at).as_secs(),
            ahead_secs: status.heartbeat_at.max(status.caught_up_at).since(now).as_secs(),
        }
    }

    /// With the report of the trace lane.
    fn traced(self, traces: &TraceStatus, now: Timestamp) -> Self {
        let ever_caught_up = traces.caught_up_at != Timestamp::EPOCH;
        ChainReport {
            traced: traces.traced,
            traces_lag_secs: ever_caught_up.then(|| now.since(traces.caught_up_at).as_secs()),
            traces_reason: traces.reason.clone(),
            traces_alarm: unwitnessed(traces.unwitnessed, &traces.unwitnessed_reason),
            unwitnessed_for_long: traces.unwitnessed_for_long,
            traces_by_two: traces.by_two,
            traces_by_one: traces.by_one,
            traces_put_off: traces.put_off,
            traces_put_off_reason: traces.put_off_reason.clone(),
            is_traced: true,
            ..self
        }
    }

    /// With the doubtful deposits that are left where the network is not traced any more.
    fn doubted(self, doubts: &[Doubts]) -> Self {
        let Some(left) = doubts.iter().find(|doubts| doubts.chain.name() == self.chain) else { return self };
        let traces_alarm = unwitnessed(left.count, &left.reason);
        ChainReport { traces_alarm, unwitnessed_for_long: left.for_long, ..self }
    }

    /// Deposits that stay PENDING unless a person decides.
    fn witness_complaint(&self) -> Option<String> {
        let count = self.unwitnessed_for_long;
        (count > 0).then(|| format!("{count} of final blocks wait for long: {}", self.traces_alarm))
    }

    /// The complaint if the native currency should be complete and is not.
    fn traces_complaint(&self, lag_max: Duration) -> Option<String> {
        let why = [&self.traces_reason, &self.traces_put_off_reason].into_iter().find(|reason| !reason.is_empty());
        let why = why.map_or(String::new(), |reason| format!(" ({reason})"));
        match self.traces_lag_secs {
            _ if !self.is_traced => None,
            None => Some(format!("its traces have not caught up yet{why}")),
            Some(lag) if lag > lag_max.as_secs() => Some(format!("its traces are {lag} s behind{why}")),
            Some(_) => None,
        }
    }

    fn complaint(&self, lag_max: Duration) -> Option<String> {
        if self.silent_secs > HEARTBEAT_MAX.as_secs() {
            return Some(format!("no sign of life for {} s; is `landfall run` running?", self.silent_secs));
        }
        // With such a time nobody would notice that the process has ended.
        if self.ahead_secs > HEARTBEAT_MAX.as_secs() {
            return Some(format!(
                "its last sign of life is {} s in the future: the clock of the machine of `landfall run`, or of this one, is wrong",
                self.ahead_secs
            ));
        }
        if self.state == "halted" {
            let said = self.reason.starts_with("halted ");
            return Some(if said { self.reason.clone() } else { format!("halted: {}", self.reason) });
        }
        let why = if self.reason.is_empty() { String::new() } else { format!(" ({})", self.reason) };
        match self.lag_secs {
            None => Some(format!("has not caught up yet{why}")),
            Some(lag) if lag > lag_max.as_secs() => Some(format!("{lag} s behind{why}")),
            Some(_) => None,
        }
    }
}

fn alarm(incident: &Incident) -> String {
    let Incident { id, kind, opened_at, .. } = incident;
    format!("{INCIDENT}{id}, {kind}, is open since {opened_at}; see `landfall incident show {id}`")
}

impl From<Decision> for OverrideReport {
    fn from(Decision { action, reason, until, .. }: Decision) -> Self {
        OverrideReport { kind: action.kind(), value: action.value(), reason, until: until.to_string() }
    }
}

impl From<EndpointRow> for EndpointReport {
    fn from(row: EndpointRow) -> Self {
        let EndpointRow { id, state, reason, latest, latency_ms } = row;
        EndpointReport { id, state, reason, latest, latency_ms }
    }
}

/// What a person should know of doubtful deposits; empty if there is none.
fn unwitnessed(count: u64, reason: &str) -> String {
    if count == 0 {
        return String::new();
    }
    format!("doubtful deposits, PENDING: {count}; {reason}; a person may decide (landfall deposit decide)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_of_life_in_the_future_is_none() {
        let now = Timestamp(1_800_000_000_000_000);
        let complaint = |read_ahead_secs, ahead_secs| {
            let status = ChainStatus {
                chain: Chain::BaseMainnet,
                state: "following".to_owned(),
                reason: String::new(),
                proof: String::new(),
                latest: None,
                finalized: None,
                cursor: None,
                caught_up_at: now.plus(Duration::from_secs(read_ahead_secs)),
                heartbeat_at: now.plus(Duration::from_secs(ahead_secs)),
                endpoints: Vec::new(),
                finalized_at: now,
                alarms: Vec::new(),
            };
            ChainReport::of(status, &[], Vec::new(), now).complaint(Duration::from_secs(60))
        };
        assert_eq!(complaint(30, 30), None, "clocks differ a little");
        for reported in [complaint(0, 31), complaint(31, 0)] {
            let reported = reported.unwrap();
            assert!(reported.starts_with("its last sign of life is 31 s in the future: the clock of"), "{reported}");
        }
    }
}
