//! What of a chain's transfers is under way, and what of it a person should check.

use std::time::Duration;

use landfall_chain::Chain;
use serde::Serialize;

use crate::store::cursors::{self, Cursor};
use crate::store::{
    Connection, StoreError, delegates, halts, journals, leases, recoveries, sender_reports, sponsors, transfers,
};
use crate::time::Timestamp;
use crate::transfer::{SponsorState, State, Transfer};

/// How many open transfers are counted.
const COUNTED_MAX: u32 = 10_000;
/// A chain on which nothing is sent for so long, though something should be, is an alarm.
const LEADERLESS_MAX: Duration = Duration::from_secs(30);
/// A transfer that is not sent after so long is an alarm.
const UNSENT_MAX: Duration = Duration::from_secs(60);
/// A transfer of which nothing is proved when a final block is so far behind its deadline is an alarm.
const UNPROVED_FINAL_MAX: Duration = Duration::from_secs(10 * 60);
/// The same by the clock, where blocks do not get on. Finality takes some 20 minutes on the slowest chains.
const UNPROVED_MAX: Duration = Duration::from_secs(30 * 60);
/// A sponsor that owns too little for so long is an alarm.
const POOR_MAX: Duration = Duration::from_secs(5 * 60);

/// What of a chain's transfers is under way.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SenderReport {
    /// `sending`, `halted` by a person, `recovering`, or `leaderless`: no process sends.
    pub state: &'static str,
    /// Since when, by whom and why sending is stopped; null where it is not.
    pub halted: Option<String>,
    /// Since when, until a final block of which time, and why nothing is signed for now; null where the chain does not recover.
    pub recovering: Option<String>,
    /// Which delegate pays new transfers, with all its addresses; null before the first transfer that a delegate pays.
    pub delegate: Option<String>,
    /// The process that sends; null while none does.
    pub leader: Option<String>,
    /// How many transfers were accepted and not sent yet.
    pub waiting: usize,
    /// How many were handed to nodes, or are in a block that is not final.
    pub in_flight: usize,
    /// How many ran out of time and wait for a proof.
    pub expiring: usize,
    /// The age of the oldest of all of them.
    pub oldest_secs: Option<u64>,
    pub sponsors: Vec<SponsorReport>,
    /// Why nothing is signed before a person adopts the signer.
    #[serde(skip)]
    strange_signer: Option<String>,
    /// For how long no process has sent. Where none ever did, as old as the oldest transfer.
    #[serde(skip)]
    leaderless: Duration,
    /// How many were not sent for long, and of how many nothing was proved for long.
    #[serde(skip)]
    unsent: usize,
    #[serde(skip)]
    unproved: usize,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SponsorReport {
    pub number: u32,
    /// It carries nothing, and refills the others.
    pub is_treasury: bool,
    /// Null until a process with a signer has derived it.
    pub address: Option<String>,
    /// `active`, `paused` or `quarantined`.
    pub state: &'static str,
    /// For how long it has owned too little, as nodes say; null while it owns enough.
    pub poor_secs: Option<u64>,
}

impl SenderReport {
    /// Reads the store; `None` for a chain that has neither transfers under way nor sponsors, and neither is stopped
    /// nor recovers.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read(
        connection: &mut impl Connection,
        chain: Chain,
        now: Timestamp,
    ) -> Result<Option<Self>, StoreError> {
        let open = transfers::unfinished(connection, chain, COUNTED_MAX, now).await?;
        let sponsors = sponsors::of_chain(connection, chain).await?;
        let halted = halts::all(connection).await?.into_iter().find(|halt| halt.chain == chain);
        let recovery = recoveries::of_chain(connection, chain).await?;
        if open.is_empty() && sponsors.is_empty() && halted.is_none() && recovery.is_none() {
            return Ok(None);
        }
        let final_time = match Cursor::load(connection, chain).await?.finalized {
            Some(at) => cursors::time_of(connection, chain, &at).await?,
            None => None,
        };
        let reported = sender_reports::last(connection, chain).await?;
        let leader = leases::holder(connection, &format!("sender {chain}"), now).await?;
        let sent_at = reported.map(|reported| reported.heartbeat_at).or(open.first().map(|of| of.created_at));
        let count = |wanted: &dyn Fn(&Transfer) -> bool| open.iter().filter(|of| wanted(of)).count();
        Ok(Some(SenderReport {
            state: match (&halted, &leader, &recovery) {
                (Some(_), ..) => "halted",
                (None, None, _) => "leaderless",
                (None, Some(_), Some(_)) => "recovering",
                (None, Some(_), None) => "sending",
            },
            halted: halted.map(|halt| format!("{} by {}: {}", halt.since, halt.actor, halt.reason)),
            recovering: recovery
                .map(|it| format!("since {} until a final block of {}: {}", it.since, it.until, it.reason)),
            delegate: delegates::taken(connection, chain).await?.pop().map(|taken| taken.delegate),
            leaderless: sent_at.filter(|_| leader.is_none()).map_or(Duration::ZERO, |at| now.since(at)),
            leader,
            waiting: count(&|of| of.state == State::Accepted),
            in_flight: count(&|of| matches!(of.state, State::Carried | State::Included)),
            expiring: count(&|of| of.state == State::Expiring),
            oldest_secs: open.first().map(|of| now.since(of.created_at).as_secs()),
            sponsors: sponsors.iter().map(|sponsor| SponsorReport::of(sponsor, now)).collect(),
            strange_signer: journals::of_chain(connection, chain).await?.and_then(|known| known.strange),
            unsent: count(&|of| {
                // One with an obstacle waits for its proof.
                of.state == State::Accepted && of.obstacle.is_none() && now.since(of.created_at) > UNSENT_MAX
            }),
            unproved: count(&|of| is_unproved(of, final_time, now)),
        }))
    }

    /// What a person should check.
    pub(super) fn alarms(&self) -> Vec<String> {
        let mut alarms = Vec::new();
        let is_open = self.waiting + self.in_flight + self.expiring > 0;
        let is_ready = self.sponsors.iter().any(|sponsor| sponsor.state == SponsorState::Active.name());
        if (is_open || is_ready) && self.leaderless > LEADERLESS_MAX {
            alarms.push("no process sends its transfers; is `landfall run` running with its signer?".to_owned());
        }
        if self.unsent > 0 && self.halted.is_none() && self.recovering.is_none() {
            let (unsent, secs) = (self.unsent, UNSENT_MAX.as_secs());
            alarms
                .push(format!("{unsent} transfers were not sent within {secs} s; the log of `landfall run` says why"));
        }
        alarms.extend(self.strange_signer.iter().map(|why| format!("nothing is signed: {why}")));
        if self.unproved > 0 {
            let (unproved, minutes) = (self.unproved, UNPROVED_FINAL_MAX.as_secs() / 60);
            alarms.push(format!(
                "{unproved} transfers ran out of time, and {minutes} minutes behind finality nothing is proved of them; see `landfall transfer explain`"
            ));
        }
        for SponsorReport { number, is_treasury, address, state, poor_secs } in &self.sponsors {
            if *state == SponsorState::Quarantined.name() {
                alarms.push(format!(
                    "sponsor {number} is quarantined: somebody else uses its key, or the store is an old copy"
                ));
            }
            if poor_secs.is_some_and(|secs| secs > POOR_MAX.as_secs()) && *state == SponsorState::Active.name() {
                let address = address.as_deref().unwrap_or("its address");
                let what = if *is_treasury { "refill others" } else { "pay for transactions" };
                alarms.push(format!("sponsor {number} owns too little to {what}: fund {address}"));
            }
        }
        alarms
    }
}

/// Whether it is neither paid nor ended long after a final block, or the clock, passed its deadline.
fn is_unproved(of: &Transfer, final_time: Option<Timestamp>, now: Timestamp) -> bool {
    let is_far_behind = final_time.is_some_and(|time| time.since(of.deadline) > UNPROVED_FINAL_MAX);
    of.state != State::Included && (is_far_behind || now.since(of.deadline) > UNPROVED_MAX)
}

impl SponsorReport {
    fn of(sponsor: &sponsors::Sponsor, now: Timestamp) -> Self {
        let sponsors::Sponsor { number, is_treasury, address, state, poor_since, .. } = sponsor;
        SponsorReport {
            number: *number,
            is_treasury: *is_treasury,
            address: address.map(|address| address.to_string()),
            state: state.name(),
            poor_secs: poor_since.map(|since| now.since(since).as_secs()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> SenderReport {
        SenderReport {
            state: "sending",
            halted: None,
            recovering: None,
            delegate: None,
            leader: Some("one".to_owned()),
            waiting: 1,
            in_flight: 1,
            expiring: 1,
            oldest_secs: Some(7),
            sponsors: with_sponsor("active", Some(300)),
            leaderless: Duration::from_secs(30),
            strange_signer: None,
            unsent: 0,
            unproved: 0,
        }
    }

    fn with_sponsor(state: &'static str, poor_secs: Option<u64>) -> Vec<SponsorReport> {
        vec![SponsorReport { number: 3, is_treasury: false, address: None, state, poor_secs }]
    }

    fn with(sponsors: Vec<SponsorReport>) -> SenderReport {
        SenderReport { sponsors, ..report() }
    }

    #[test]
    fn what_is_under_way_is_no_alarm_and_each_thing_that_stands_still_is_one() {
        assert_eq!(report().alarms(), Vec::<String>::new());
        let leaderless = SenderReport { leaderless: Duration::from_secs(31), ..report() };
        let cases = [
            (leaderless.clone(), "no process sends its transfers"),
            (
                SenderReport { waiting: 0, in_flight: 0, expiring: 0, ..leaderless.clone() },
                "no process sends its transfers",
            ),
            (SenderReport { strange_signer: Some("it is another".to_owned()), ..report() }, "nothing is signed"),
            (SenderReport { unsent: 2, ..report() }, "2 transfers were not sent within 60 s"),
            (SenderReport { unproved: 1, ..report() }, "10 minutes behind finality nothing is proved of them"),
            (with(with_sponsor("quarantined", Some(400))), "sponsor 3 is quarantined"),
            (with(with_sponsor("active", Some(301))), "sponsor 3 owns too little to pay for transactions"),
            (
                with(
                    with_sponsor("active", Some(301))
                        .into_iter()
                        .map(|of| SponsorReport { is_treasury: true, ..of })
                        .collect(),
                ),
                "sponsor 3 owns too little to refill others",
            ),
        ];
        for (report, expected) in cases {
            let alarms = report.alarms();
            assert!(alarms.len() == 1 && alarms[0].contains(expected), "{alarms:?}");
        }
        let stopped = SenderReport { unsent: 2, halted: Some("now by olga: a test".to_owned()), ..report() };
        assert_eq!(stopped.alarms(), Vec::<String>::new(), "a person stopped it");
        assert_eq!(with(with_sponsor("paused", Some(301))).alarms(), Vec::<String>::new(), "a person paused it");
        let unused = SenderReport { waiting: 0, in_flight: 0, expiring: 0, sponsors: Vec::new(), ..leaderless };
        assert_eq!(unused.alarms(), Vec::<String>::new(), "nobody wants to send there");
        let recovering = SenderReport { unsent: 2, recovering: Some("since now: a test".to_owned()), ..report() };
        assert_eq!(recovering.alarms(), Vec::<String>::new(), "it waits for its final block");
    }
}
