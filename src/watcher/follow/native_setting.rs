//! Notices that the network's setting of how native movements are seen has changed. Names the blocks that this leaves
//! unread: those followed with a setting that did not show what the new one shows.
//!
//! Promises: each such change is an incident that names the ranges and the command that reads them; it reads nothing
//! itself. A process with one setting stops where another process was started with another. Otherwise the record of
//! which block was followed with which setting would be false.
//! Deliberately not here: blocks that were connected to be traced and are not traced yet; the lane of the traces has
//! them.

use std::ops::RangeInclusive;

use landfall_chain::{BlockSource, Native, Network};
use tracing::warn;

use crate::incident::{Incident, IncidentKind};
use crate::store::cursors::Cursor;
use crate::store::{Tx, incidents, native_settings};
use crate::time::Timestamp;
use crate::watcher::{Follower, TickError};

impl<S: BlockSource> Follower<S> {
    /// Records with which setting the blocks above the cursor are followed, if it is a new one.
    pub(in crate::watcher) async fn note_native(&self, now: Timestamp) -> Result<(), TickError> {
        let (chain, native) = (self.chain(), self.network.native);
        let mut settings = native_settings::of_chain(&mut self.db.read().await?, chain).await?;
        if settings.last().is_some_and(|(_, last)| *last == native) {
            return Ok(());
        }
        let mut tx = self.db.begin().await?;
        // What is below the cursor when this is written was followed with the old setting.
        let Some(at) = Cursor::lock(&mut tx, chain).await?.at else { return Ok(()) };
        let from = at.number + 1;
        native_settings::put(&mut tx, chain, from, &native).await?;
        settings.retain(|(earlier, _)| *earlier < from);
        let unread = unread(&settings, &native, at.number);
        if !unread.is_empty() {
            let what = self.advice(&unread);
            warn!(%chain, "{what}");
            let incident = Incident::open(chain, IncidentKind::CoverageGap, what, None, now);
            incidents::meet(&mut tx, &incident).await?;
        }
        tx.commit().await?;
        Ok(())
    }

    fn advice(&self, unread: &[RangeInclusive<u64>]) -> String {
        let chain = self.chain();
        let ranges: Vec<String> = unread.iter().map(|range| format!("{} to {}", range.start(), range.end())).collect();
        let commands = unread
            .iter()
            .map(|range| format!("`landfall backfill --chain {chain} --from {} --to {}`", range.start(), range.end()));
        format!(
            "with the new setting of native or eip7708_from, what moved inside of transactions would be seen in blocks that \
             were followed without it: {}; what those paid is missed until it is looked for: {}; then resolve this incident",
            ranges.join(" and "),
            commands.collect::<Vec<_>>().join(" and ")
        )
    }
}

/// Requires that the blocks connected in `tx` are followed with the setting that is on record.
pub(in crate::watcher) async fn require_setting(tx: &mut Tx, network: &Network) -> Result<(), TickError> {
    let (chain, ours) = (network.chain, &network.native);
    match native_settings::newest(tx, chain).await? {
        Some((_, newest)) if newest != *ours => {
            let what = format!(
                "another process was started later with {}, this one follows {chain} with {}: stop this one, or start it anew with \
                 the setting that is meant",
                words(&newest),
                words(ours)
            );
            Err(TickError::Contradiction { chain, what })
        }
        _ => Ok(()),
    }
}

fn words(native: &Native) -> String {
    let from = native.eip7708_from.map(|from| format!(", eip7708_from = {from}")).unwrap_or_default();
    format!("native = \"{}\"{from}", native.source.name())
}

/// The numbers up to `through` whose blocks were followed with one of `settings`, each from its number on, and would
/// show more with `native`; ascending ranges.
fn unread(settings: &[(u64, Native)], native: &Native, through: u64) -> Vec<RangeInclusive<u64>> {
    let ends = settings.iter().skip(1).map(|(from, _)| *from).chain([through.saturating_add(1)]);
    let mut ranges: Vec<RangeInclusive<u64>> = Vec::new();
    for ((from, was), end) in settings.iter().zip(ends) {
        // What a setting shows changes at one number only.
        let mut edges: Vec<u64> = [Some(*from), was.eip7708_from, native.eip7708_from, Some(end)]
            .into_iter()
            .flatten()
            .map(|edge| edge.clamp(*from, end.max(*from)))
            .collect();
        edges.sort_unstable();
        for pair in edges.windows(2).filter(|pair| pair[0] < pair[1] && is_unread(was, native, pair[0])) {
            match ranges.last_mut().filter(|last| *last.end() + 1 == pair[0]) {
                Some(last) => *last = *last.start()..=pair[1] - 1,
                None => ranges.push(pair[0]..=pair[1] - 1),
            }
        }
    }
    ranges
}

/// Whether block `number` shows with `native` what it did not show with the setting `was`. Logs that no longer count as
/// the chain's own were none when they were read.
fn is_unread(was: &Native, native: &Native, number: u64) -> bool {
    let was_read = was.is_traced(number) || was.is_logged(number) && native.is_logged(number);
    !was_read && (native.is_traced(number) || native.is_logged(number))
}

#[cfg(test)]
mod tests {
    use landfall_chain::NativeSource;

    use super::*;

    const TRACED: Native = Native { source: NativeSource::Trace, eip7708_from: None };

    fn logged(from: u64) -> Native {
        Native { eip7708_from: Some(from), ..TRACED }
    }

    #[test]
    fn what_a_changed_setting_leaves_unread_is_reported_in_whole_ranges() {
        let top = Native::TOP_LEVEL;
        let logs = Native { source: NativeSource::LogTransfer, eip7708_from: None };
        let cases = [
            (vec![(0, TRACED)], TRACED, vec![]),
            (vec![(10, top)], TRACED, vec![10..=99]),
            (vec![(10, top)], logs, vec![10..=99]),
            (vec![(10, TRACED)], top, vec![]),
            (vec![(10, TRACED)], logged(50), vec![]),
            // The fork comes later than the setting said: its logs were not there.
            (vec![(10, logged(50))], logged(80), vec![50..=79]),
            (vec![(10, logged(50))], TRACED, vec![50..=99]),
            (vec![(10, logged(50))], logged(30), vec![]),
            (vec![(10, top)], Native { eip7708_from: Some(40), ..top }, vec![40..=99]),
            (vec![(10, top)], logged(200), vec![10..=99]),
            (vec![(10, top), (20, TRACED), (60, top)], TRACED, vec![10..=19, 60..=99]),
            (vec![(10, top), (20, logged(30))], TRACED, vec![10..=19, 30..=99]),
            (vec![(10, top), (20, logged(15))], TRACED, vec![10..=99]),
            (vec![(100, top)], TRACED, vec![]),
            (vec![(150, top)], TRACED, vec![]),
            (vec![], TRACED, vec![]),
        ];
        for (settings, native, expected) in cases {
            assert_eq!(unread(&settings, &native, 99), expected, "{settings:?} -> {native:?}");
        }
    }
}
