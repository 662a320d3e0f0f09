//! Puts attempts that have ended on record: in groups, because the commit is what costs.
//!
//! Promises: only the attempt that holds the lease changes anything, at its endpoint too. A group that the store
//! refuses is tried again whole. One row that the store always refuses does not hold up the others.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use tracing::{debug, info, warn};

use crate::delivery::breaker::{self, Ending, Outcome};
use crate::delivery::{Delivered, Delivery, schedule};
use crate::store::deliveries::{self, AttemptLog, Claimed, Queue};
use crate::store::endpoints::{self, Status};
use crate::store::sinks::Kind;
use crate::store::{StoreError, Tx};
use crate::time::Timestamp;
use crate::webhook::closed_words;

/// An attempt that has ended.
pub(super) type Ended = (Claimed, AttemptLog);

impl Delivery {
    /// Records the results of attempts: all or none.
    pub(super) async fn acknowledge(&self, ended: &[Ended]) -> Result<Delivered, StoreError> {
        let now = self.clock.now();
        let mut done = Delivered::default();
        let mut endings: BTreeMap<&str, Vec<Ending>> = BTreeMap::new();
        let mut tx = self.db.begin().await?;
        for (claimed, log) in ended {
            let ending = self.ending(&mut tx, claimed, log).await?;
            if !self.record(&mut tx, claimed, log, now).await? {
                warn!(
                    "{claimed:?} ended after its lease, was acknowledged before, or is to be sent behind an earlier event"
                );
                continue;
            }
            deliveries::log(&mut tx, claimed, log).await?;
            endings.entry(&claimed.webhook_id).or_default().push(ending);
            match ending.outcome {
                Outcome::Arrived => done.delivered += 1,
                Outcome::Failed | Outcome::Gone => done.to_be_retried += 1,
            }
        }
        let mut changed = Vec::new();
        for (webhook, endings) in endings {
            changed.extend(learn(&mut tx, webhook, &endings, now).await?.map(|status| (webhook, status)));
        }
        tx.commit().await?;
        ended.iter().for_each(|(claimed, log)| self.report(claimed, log, now));
        for (webhook, status) in changed {
            info!(webhook = %webhook, "webhook {webhook} is {} from now on", status.name());
        }
        Ok(done)
    }

    /// As [`Delivery::acknowledge`], one by one, until the store is away. Returns how many are done, and why not more.
    /// An attempt that the store refuses is made again when its lease ends.
    pub(super) async fn acknowledge_each(&self, ended: &[Ended]) -> (usize, Option<StoreError>) {
        for (done, one) in ended.iter().enumerate() {
            match self.acknowledge(std::slice::from_ref(one)).await {
                Ok(_) => {}
                Err(error) if error.may_pass() => return (done, Some(error)),
                Err(error) => warn!("{:?} is not acknowledged and will be sent again: {error}", one.0),
            }
        }
        (ended.len(), None)
    }

    fn report(&self, claimed: &Claimed, log: &AttemptLog, now: Timestamp) {
        let Claimed { event_id, webhook_id, .. } = claimed;
        if log.error.is_empty() {
            return debug!(event = %event_id, webhook = %webhook_id, "{claimed:?} arrived");
        }
        let why = match claimed.kind {
            Kind::Webhook => closed_words(&log.error),
            // The stream is the operator's own server: its error may be shown in full.
            Kind::Nats => &log.error,
        };
        let mut complaints = self.complaints.lock().unwrap_or_else(PoisonError::into_inner);
        match complaints.left_out(webhook_id, now) {
            None => {}
            Some(0) => warn!(event = %event_id, webhook = %webhook_id, "{claimed:?} failed: {why}"),
            Some(others) => warn!(
                event = %event_id, webhook = %webhook_id,
                "{claimed:?} failed, as {others} others did there since that was said last: {why}"
            ),
        }
    }

    async fn ending(&self, tx: &mut Tx, claimed: &Claimed, log: &AttemptLog) -> Result<Ending, StoreError> {
        let outcome = match log.status {
            _ if log.error.is_empty() => Outcome::Arrived,
            Some(410) => Outcome::Gone,
            _ => Outcome::Failed,
        };
        let Claimed { event_id, webhook_id, failures, .. } = claimed;
        let before = match outcome {
            Outcome::Failed if *failures > 0 => deliveries::last_attempt(tx, event_id, webhook_id).await?,
            Outcome::Arrived | Outcome::Failed | Outcome::Gone => None,
        };
        let attempted_at = before.map(|(_, before)| before.started_at);
        let (began_at, failures, random) = (log.started_at, *failures, (self.random)());
        Ok(Ending { outcome, began_at, failures, attempted_at, retry_after: log.retry_after, random })
    }

    async fn record(
        &self,
        tx: &mut Tx,
        claimed: &Claimed,
        log: &AttemptLog,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        if log.error.is_empty() {
            return deliveries::delivered(tx, claimed, now).await;
        }
        let failures = claimed.failures.saturating_add(1);
        let wait = schedule::wait_after(failures, log.retry_after, (self.random)());
        let queue = if schedule::is_held(failures) { Queue::Held } else { Queue::Again };
        // A probe that fails within the first hour is not counted for its event; with so many probes it would otherwise
        // be held within that hour.
        let uncounted = now.minus(schedule::PROBED_OFTEN);
        deliveries::retry_at(tx, claimed, now.plus(wait), queue, uncounted).await
    }
}

/// Records what the results mean for the endpoint. Returns its status if that has changed.
async fn learn(tx: &mut Tx, webhook: &str, endings: &[Ending], now: Timestamp) -> Result<Option<Status>, StoreError> {
    let Some(before) = endpoints::health(tx, webhook).await? else { return Ok(None) };
    let after = breaker::after_all(before, endings, now);
    if after != before {
        endpoints::set_health(tx, webhook, before.status, after).await?;
    }
    // The first arrival at a failing endpoint, or of a held event, releases all the others.
    let was_away = |ending: &Ending| before.status == Status::Failing || schedule::is_held(ending.failures);
    if endings.iter().any(|ending| ending.outcome == Outcome::Arrived && was_away(ending)) {
        endpoints::set_releasing(tx, webhook).await?;
    }
    Ok((after.status != before.status).then_some(after.status))
}
