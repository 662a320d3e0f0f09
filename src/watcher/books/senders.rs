//! Names who paid what is about to be recorded, where the block alone does not show it.
//!
//! A sender decides no credit, and is written once: events that were written keep what they say. While no endpoint can
//! be asked, a block waits a little and no longer: a deposit must not wait for a name. After that the fee payer stands
//! in, and the record says so. The sender is asked for once more before the event CONFIRMED is written, which does not
//! wait.

use std::time::Duration;

use landfall_chain::{AssetTransfer, BlockSource, Header, Payer, SenderRule, SourceError};
use tracing::warn;

use crate::time::Timestamp;
use crate::watcher::books::matched::Matched;

/// How long blocks wait in all while every request fails.
pub(in crate::watcher) const PAYERS_WAIT: Duration = Duration::from_secs(60);
/// In a younger block, a transaction that no endpoint knows may be known in a moment: each endpoint has its own index.
const YOUNG_MAX: Duration = Duration::from_secs(120);

/// Since when no endpoint could be asked.
#[derive(Debug, Default)]
pub(in crate::watcher) struct Senders {
    failing: Option<Failing>,
}

#[derive(Clone, Copy, Debug)]
struct Failing {
    since: Timestamp,
    last: Timestamp,
}

impl Senders {
    /// Names who paid what is `matched`.
    ///
    /// # Errors
    /// A transient error while no endpoint can be asked, for at most `PAYERS_WAIT`. After that it returns `Ok`, and the
    /// fee payer stands in.
    pub(in crate::watcher) async fn name<S: BlockSource>(
        &mut self,
        source: &S,
        matched: &mut Matched,
        now: Timestamp,
    ) -> Result<(), SourceError> {
        if !matched.legs.iter().any(is_unnamed) {
            return Ok(());
        }
        let Err(error) = name(source, &matched.header, &mut matched.legs, now).await else {
            self.failing = None;
            return Ok(());
        };
        // A failure of long ago is not part of this outage.
        let before = self.failing.filter(|failing| now.since(failing.last) < PAYERS_WAIT);
        let since = before.map_or(now, |failing| failing.since);
        self.failing = Some(Failing { since, last: now });
        if now.since(since) < PAYERS_WAIT {
            return Err(SourceError::transient(error));
        }
        warn!(block = matched.header.block.number, "who paid cannot be asked, and the fee payer stands in: {error}");
        Ok(())
    }
}

/// Names who paid those of `legs` whose sender their block does not show.
///
/// # Errors
/// When no endpoint can be asked now, or when none knows a transaction of a young block yet. What could be named is
/// named even then.
pub(in crate::watcher) async fn name<'l, S: BlockSource>(
    source: &S,
    header: &Header,
    legs: impl IntoIterator<Item = &'l mut AssetTransfer>,
    now: Timestamp,
) -> Result<(), SourceError> {
    let at = header.block;
    let is_young = now.since(Timestamp::from_secs(header.time_secs)) < YOUNG_MAX;
    let mut legs: Vec<&mut AssetTransfer> = legs.into_iter().filter(|leg| is_unnamed(leg)).collect();
    if legs.is_empty() {
        return Ok(());
    }
    let asked: Vec<AssetTransfer> = legs.iter().map(|leg| (**leg).clone()).collect();
    let payers = source.payers(&at, &asked).await?;
    let mut unknown = None;
    for (leg, Payer { sender, rule }) in legs.iter_mut().zip(payers) {
        leg.sender = sender;
        leg.sender_rule = match rule {
            SenderRule::StandIn if !is_young => SenderRule::FeePayer,
            rule => rule,
        };
        unknown = unknown.or(is_unnamed(leg).then_some(leg.tx.id));
    }
    unknown.map_or(Ok(()), |tx| {
        let why = format!("block {at} is young, and no endpoint knows transaction {tx} yet, which tells who paid");
        Err(SourceError::transient(why))
    })
}

/// Whether nobody has named who paid the leg.
pub(in crate::watcher) fn is_unnamed(leg: &AssetTransfer) -> bool {
    leg.sender_rule == SenderRule::StandIn
}
