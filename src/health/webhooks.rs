//! Webhooks in the status report: which of them fail, are put aside or hold events back, and whether events that are
//! due are sent. Nothing is dropped, so events that nobody cares for would wait for ever.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::store::deliveries::Failure;
use crate::store::endpoints::Status;
use crate::store::status::{self, WebhookStatus};
use crate::store::{Connection, StoreError};
use crate::time::Timestamp;
use crate::webhook::closed_words;

/// A pause that holds events back for longer was probably forgotten.
const PAUSE_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// So many attempts in a row take most of a day. An event that failed so often needs a person.
const FAILURES_MAX: u64 = 13;

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct WebhookReport {
    pub id: String,
    /// ACTIVE, FAILING (it is probed), PAUSED, GONE (it answered 410).
    pub status: &'static str,
    /// Since when; null when it never changed.
    pub since: Option<String>,
    /// Deliveries that have not arrived.
    pub pending: u64,
    /// How many of them have failed for seven days; one of these is tried every six hours.
    pub held: u64,
    /// For how long the oldest that is due has been due; null when none is.
    pub oldest_due_secs: Option<u64>,
    /// How often a delivery that is tried next has failed in a row; the highest number.
    pub failures: u64,
    /// How a delivery that has not arrived failed last; null if none failed.
    pub last_failure: Option<FailureReport>,
    #[serde(skip)]
    state: Status,
    #[serde(skip)]
    state_secs: u64,
}

/// How an attempt failed, as a fixed phrase: readers of a report must not see a client's hosts. `landfall event show`
/// has the full error.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FailureReport {
    pub at: String,
    pub event_id: String,
    pub error: String,
}

impl From<Failure> for FailureReport {
    fn from(Failure { event_id, at, error }: Failure) -> Self {
        FailureReport { at: at.to_string(), event_id, error: closed_words(&error).to_owned() }
    }
}

impl fmt::Display for FailureReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let FailureReport { at, event_id, error } = self;
        write!(f, "{error} (at {at}, `landfall event show {event_id}`)")
    }
}

impl WebhookReport {
    pub(super) async fn read(connection: &mut impl Connection, now: Timestamp) -> Result<Vec<Self>, StoreError> {
        let webhooks = status::webhooks(connection).await?;
        Ok(webhooks.into_iter().map(|webhook| WebhookReport::of(webhook, now)).collect())
    }

    fn of(webhook: WebhookStatus, now: Timestamp) -> Self {
        let WebhookStatus { id, status, since, pending, held, due_at, failures, last_failure } = webhook;
        WebhookReport {
            id,
            status: status.name(),
            since: (since > Timestamp::EPOCH).then(|| since.to_string()),
            pending,
            held,
            oldest_due_secs: due_at.filter(|at| *at <= now).map(|at| now.since(at).as_secs()),
            failures,
            last_failure: last_failure.map(FailureReport::from),
            state: status,
            state_secs: now.since(since).as_secs(),
        }
    }

    /// For how long something has been due that nothing holds up.
    pub(super) fn late_secs(&self) -> Option<u64> {
        self.oldest_due_secs.filter(|_| self.state == Status::Active)
    }

    /// What a person should check.
    pub(super) fn complaints(&self, lag_max: Duration) -> Vec<String> {
        let WebhookReport { id, pending, held, failures, state, state_secs, .. } = self;
        let since = self.since.as_deref().unwrap_or("the beginning");
        let reported = match state {
            Status::Active => self.late_secs().filter(|secs| *secs > lag_max.as_secs()).map(|secs| {
                format!("a delivery has been due for {secs} s; is `landfall run` running, and can it keep up?")
            }),
            // If an event arrives now and then, FAILING begins anew each time, and events may be late all the same.
            Status::Failing if self.oldest_due_secs.unwrap_or_default().max(*state_secs) > lag_max.as_secs() => {
                Some(format!(
                    "fails since {since}, {pending} deliveries wait; once it is mended, `landfall webhook resume {id} --reason TEXT` \
                     sends them at once"
                ))
            }
            Status::Gone => Some(format!(
                "answered 410 at {since}, {pending} deliveries wait for `landfall webhook resume {id} --reason TEXT`"
            )),
            Status::Paused if *pending > 0 && *state_secs > PAUSE_MAX.as_secs() => Some(format!(
                "paused since {since}, {pending} deliveries wait for `landfall webhook resume {id} --reason TEXT`"
            )),
            Status::Failing | Status::Paused | Status::Deleted => None,
        };
        let held = (*held > 0).then(|| format!("{held} deliveries failed for seven days and are held"));
        // Too few failures for FAILING, for example if a receiver cannot read one of the events.
        let failing = (*state == Status::Active && *failures >= FAILURES_MAX)
            .then(|| format!("a delivery failed {failures} times in a row; see `landfall event list --pending`"));
        let last = self.last_failure.as_ref().map_or_else(String::new, |failure| format!("; last failure: {failure}"));
        reported.into_iter().chain(failing).chain(held).map(|what| format!("webhook {id}: {what}{last}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

    fn report(status: Status, since_secs: u64, change: impl FnOnce(&mut WebhookStatus)) -> WebhookReport {
        let since = NOW.minus(Duration::from_secs(since_secs));
        let mut webhook = WebhookStatus {
            id: "hook".to_owned(),
            status,
            since,
            pending: 0,
            held: 0,
            due_at: None,
            failures: 0,
            last_failure: None,
        };
        change(&mut webhook);
        WebhookReport::of(webhook, NOW)
    }

    fn complaints(report: &WebhookReport) -> String {
        report.complaints(Duration::from_secs(60)).join("; ")
    }

    #[test]
    fn each_condition_that_holds_events_back_is_reported_with_what_to_do() {
        let due = |secs| move |webhook: &mut WebhookStatus| webhook.due_at = Some(NOW.minus(Duration::from_secs(secs)));
        assert_eq!(complaints(&report(Status::Active, 9, due(60))), "");
        let late = complaints(&report(Status::Active, 9, due(61)));
        assert_eq!(
            late,
            "webhook hook: a delivery has been due for 61 s; is `landfall run` running, and can it keep up?"
        );
        assert_eq!(complaints(&report(Status::Active, 9, |webhook| webhook.due_at = Some(NOW.plus(PAUSE_MAX)))), "");

        let waiting = |webhook: &mut WebhookStatus| webhook.pending = 3;
        assert_eq!(complaints(&report(Status::Failing, 60, waiting)), "", "it may pass");
        let open = complaints(&report(Status::Failing, 61, waiting));
        let expected = "webhook hook: fails since 2027-01-15T07:58:59Z, 3 deliveries wait; once it is mended, `landfall webhook \
                        resume hook --reason TEXT` sends them at once";
        assert_eq!(open, expected);
        let failure = Failure {
            event_id: "e1".to_owned(),
            at: NOW,
            error: "its URL may not be sent to: 10.0.0.1 is inside".to_owned(),
        };
        let failed = complaints(&report(Status::Failing, 61, |webhook| {
            webhook.pending = 3;
            webhook.last_failure = Some(failure);
        }));
        let last = "; last failure: its URL may not be sent to (at 2027-01-15T08:00:00Z, `landfall event show e1`)";
        assert_eq!(failed, format!("{expected}{last}"));
        let flapping = complaints(&report(Status::Failing, 5, due(7_200)));
        assert!(flapping.starts_with("webhook hook: fails since 2027-01-15T07:59:55Z"), "{flapping}");
        assert_eq!(complaints(&report(Status::Failing, 5, due(60))), "");
        let gone = complaints(&report(Status::Gone, 1, waiting));
        assert!(gone.ends_with("3 deliveries wait for `landfall webhook resume hook --reason TEXT`"), "{gone}");
        assert_eq!(complaints(&report(Status::Paused, 86_400, waiting)), "", "a person meant it");
        assert!(complaints(&report(Status::Paused, 86_401, waiting)).contains("paused since"));
        assert_eq!(complaints(&report(Status::Paused, 86_401, |_| {})), "", "it holds nothing back");
        let failing = |status, failures| complaints(&report(status, 9, |webhook| webhook.failures = failures));
        assert_eq!(failing(Status::Active, 12), "", "a receiver may be mended within a day");
        let expected = "webhook hook: a delivery failed 13 times in a row; see `landfall event list --pending`";
        assert_eq!(failing(Status::Active, 13), expected);
        assert_eq!(failing(Status::Paused, 13), "", "nothing is tried there");
        let held = complaints(&report(Status::Active, 9, |webhook| webhook.held = 2));
        assert_eq!(held, "webhook hook: 2 deliveries failed for seven days and are held");
    }
}
