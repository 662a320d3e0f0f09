//! Lets a sender recover whose store may be an old copy. Meanwhile nothing is signed, and nothing is DROPPED.
//!
//! A recovery begins when a person asks for it, or when one of these is noticed:
//! - blocks show keys of ours used for transfers that are not on record;
//! - the signer's journal has signatures that are not on record (`compare`).
//!
//! It ends by itself, with a final block after the end of all that may have been signed before; everything up to there
//! is on record then.
//! Promise: marks of transfers count all the while, since they need no complete store.

use std::time::Duration;

use landfall_chain::{Chain, PayingChain};
use tracing::{error, info};

use crate::incident::{Incident, IncidentKind};
use crate::sender::expire::BLOCKHASH_BLOCKS;
use crate::sender::reclaim::makes_guards;
use crate::sender::{SendError, Sender};
use crate::store::cursors::{self, Cursor};
use crate::store::marks::{self, Unknown};
use crate::store::recoveries::{self, Recovery};
use crate::store::{Connection, StoreError, Tx, incidents};
use crate::time::Timestamp;
use crate::transfer::RECOVERY_TIME;

/// How many marks are looked at in a tick.
const UNKNOWN_MAX: u32 = 1_000;
/// So much later than a deadline a final block must be.
const SKEW: Duration = Duration::from_secs(60);

/// What was noticed that the store does not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Noticed {
    /// The latest deadline that is known to have been signed.
    deadline: Option<Timestamp>,
}

/// How far final blocks have come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reached {
    /// The time of the newest final block.
    time: Option<Timestamp>,
    /// How much higher it is than the first block behind all deadlines; `None` where nothing outlives its deadline.
    higher: Option<u64>,
    /// The time of the newest connected block.
    head: Option<Timestamp>,
}

/// What follows for a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// It sends.
    Send,
    /// It recovers, until a final block of this time.
    Begin { until: Timestamp },
    /// It goes on recovering.
    Wait,
    /// It has recovered.
    End,
}

/// What is on record, read at one moment.
struct Known {
    recovery: Option<Recovery>,
    unknown: Vec<Unknown>,
    reached: Reached,
}

impl<C: PayingChain> Sender<C> {
    /// Begins and ends the chain's recovery; returns whether it recovers.
    pub(super) async fn recover(&mut self, now: Timestamp) -> Result<bool, SendError> {
        let known = self.known(&mut self.db.read().await?).await?;
        match known.step(now) {
            Step::Send if known.unknown.is_empty() => return Ok(false),
            Step::Wait if known.unknown.is_empty() => return Ok(true),
            Step::Send | Step::Wait | Step::Begin { .. } | Step::End => {}
        }
        let chain = self.network.chain;
        let mut tx = self.begin(now).await?;
        // No block is connected or disconnected before the end of the transaction.
        Cursor::lock(&mut tx, chain).await?;
        let known = self.known(&mut tx).await?;
        for unknown in &known.unknown {
            marks::notice(&mut tx, chain, unknown).await?;
        }
        let strange: Vec<&Unknown> = known.unknown.iter().filter(|unknown| !unknown.is_explained).collect();
        if let Some(first) = strange.first() {
            let Unknown { tx: of, payer, block, .. } = first;
            let others = strange.len() - 1;
            let what = format!(
                "transaction {of} in block {block} used the key of {payer} for a transfer that is not on record, and {others} \
                 others did: this store may be an old copy, or another one sends with the same keys"
            );
            let incident = Incident::open(chain, IncidentKind::StoreBehind, what, Some(block.number), now);
            incidents::meet(&mut tx, &incident).await?;
        }
        let step = known.step(now);
        match step {
            Step::Begin { until } => {
                let reason = "blocks show payments of transfers that are not on record";
                recoveries::begin(&mut tx, chain, reason, (now, until)).await?;
                if let Some(first) = strange.first() {
                    recoveries::set_back_to(&mut tx, chain, first.block.number.saturating_sub(1)).await?;
                }
                error!(%chain, "transfers on {chain} recover until a final block of {until}: {reason}");
            }
            Step::End => {
                let until = known.recovery.as_ref().map_or(now, |recovery| recovery.until);
                recoveries::end(&mut tx, chain, until).await?;
                info!(%chain, "transfers on {chain} have recovered; sending goes on");
            }
            Step::Send | Step::Wait => {}
        }
        self.commit(tx, now).await?;
        Ok(matches!(step, Step::Begin { .. } | Step::Wait))
    }

    async fn known(&self, connection: &mut impl Connection) -> Result<Known, StoreError> {
        let chain = self.network.chain;
        let unknown = marks::unknown(connection, chain, UNKNOWN_MAX).await?;
        let mut reached = Reached { time: None, higher: None, head: None };
        let cursor = Cursor::load(connection, chain).await?;
        if let Some(at) = cursor.at {
            reached.head = cursors::time_of(connection, chain, &at).await?;
        }
        let recovery = recoveries::of_chain(connection, chain).await?;
        if let Some(Recovery { until, .. }) = &recovery
            && let Some(at) = cursor.finalized
        {
            reached.time = cursors::time_of(connection, chain, &at).await?;
            // A transaction that makes a guard does not name the deadline, and dies with its blockhash.
            if makes_guards(&self.network) {
                reached.higher = Some(cursors::higher_than(connection, chain, at.number, *until).await?);
            }
        }
        Ok(Known { recovery, unknown, reached })
    }
}

/// Something was noticed that the store does not know; `deadline` is the latest that is known to have been signed.
pub(super) async fn notice(
    tx: &mut Tx,
    chain: Chain,
    deadline: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let until = recoveries::of_chain(tx, chain).await?.map(|recovery| recovery.until);
    let nothing = Reached { time: None, higher: None, head: None };
    if let Step::Begin { until } = step(until, Some(Noticed { deadline }), nothing, now) {
        let reason = "the signer's journal has signatures that are not on record";
        recoveries::begin(tx, chain, reason, (now, until)).await?;
        error!(%chain, "transfers on {chain} recover until a final block of {until}: {reason}");
    }
    Ok(())
}

impl Known {
    fn step(&self, now: Timestamp) -> Step {
        let is_strange = self.unknown.iter().any(|unknown| !unknown.is_explained);
        let noticed = is_strange.then_some(Noticed { deadline: None });
        step(self.recovery.as_ref().map(|recovery| recovery.until), noticed, self.reached, now)
    }
}

/// What follows where the chain recovers until `until`, or does not, and this was noticed.
fn step(until: Option<Timestamp>, noticed: Option<Noticed>, reached: Reached, now: Timestamp) -> Step {
    let behind = noticed.and_then(|noticed| noticed.deadline).map(|deadline| deadline.plus(SKEW));
    match (until, noticed) {
        (None, None) => Step::Send,
        (None, Some(_)) => Step::Begin { until: now.plus(RECOVERY_TIME).max(behind.unwrap_or(now)) },
        // What a copy of the store signs all the while is no reason to wait longer, unless its deadline is known.
        (Some(until), Some(_)) => match behind.filter(|behind| *behind > until) {
            Some(until) => Step::Begin { until },
            None => Step::Wait,
        },
        // By a clock that is behind the chain's, it began too early, and begins anew.
        (Some(until), None) if now < until && reached.head.is_some_and(|head| head > until.plus(SKEW)) => {
            Step::Begin { until: reached.head.unwrap_or(now).plus(RECOVERY_TIME) }
        }
        (Some(until), None) => {
            let is_dead = reached.higher.is_none_or(|higher| higher > BLOCKHASH_BLOCKS);
            if is_dead && reached.time.is_some_and(|time| time >= until) { Step::End } else { Step::Wait }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(secs: i64) -> Timestamp {
        Timestamp(secs * 1_000_000)
    }

    fn reached(secs: Option<i64>, higher: Option<u64>) -> Reached {
        Reached { time: secs.map(at), higher, head: Some(at(1_000)) }
    }

    /// A final block that is late enough, and a newest one of this time.
    fn ahead(secs: i64) -> Reached {
        Reached { head: Some(at(secs)), ..reached(Some(1_500), None) }
    }

    #[test]
    fn it_begins_with_what_is_noticed_and_ends_with_a_final_block_behind_all_that_was_signed() {
        let nothing = reached(None, None);
        let (mark, early, late) = (
            Some(Noticed { deadline: None }),
            Some(Noticed { deadline: Some(at(1_200)) }),
            Some(Noticed { deadline: Some(at(1_330)) }),
        );
        let cases = [
            (None, None, nothing, Step::Send),
            (None, None, reached(Some(9_000), None), Step::Send),
            (None, mark, nothing, Step::Begin { until: at(1_360) }),
            (None, early, nothing, Step::Begin { until: at(1_360) }),
            (None, late, nothing, Step::Begin { until: at(1_390) }),
            // Already it recovers: only a later deadline makes it longer, and what is noticed never ends it.
            (Some(1_360), mark, reached(Some(1_360), None), Step::Wait),
            (Some(1_360), early, nothing, Step::Wait),
            (Some(1_360), late, nothing, Step::Begin { until: at(1_390) }),
            // No final block, an early one, and the first that is late enough.
            (Some(1_360), None, nothing, Step::Wait),
            (Some(1_360), None, reached(Some(1_359), None), Step::Wait),
            (Some(1_360), None, reached(Some(1_360), None), Step::End),
            // A guard's transaction lives for 150 blocks on top of that.
            (Some(1_360), None, reached(Some(1_400), Some(0)), Step::Wait),
            (Some(1_360), None, reached(Some(1_400), Some(150)), Step::Wait),
            (Some(1_360), None, reached(Some(1_400), Some(151)), Step::End),
            (Some(1_360), None, reached(Some(1_359), Some(151)), Step::Wait),
            // The clock shows 1,000: the chain is ahead of it.
            (Some(1_360), None, ahead(1_420), Step::End),
            (Some(1_360), None, ahead(1_421), Step::Begin { until: at(1_781) }),
            // It is over by the clock, too.
            (Some(900), None, ahead(1_421), Step::End),
        ];
        for (until, noticed, reached, expected) in cases {
            let stepped = step(until.map(at), noticed, reached, at(1_000));
            assert_eq!(stepped, expected, "{until:?} {noticed:?} {reached:?}");
        }
    }
}
