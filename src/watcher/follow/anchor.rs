//! Sets the anchor of a chain that was never watched: its cursor becomes the block below the first that is to be read.
//!
//! Promises: where a final block was asked for, the anchor is final. It is never a guess: where the number was skipped,
//! the parent of the next block is the anchor.

use landfall_chain::{BlockRef, BlockSource, FinalityRule, Header, Tip};
use tracing::info;

use crate::store::cursors::{self, Cursor};
use crate::store::native_settings;
use crate::watcher::{Follower, Start, TickError};

/// How many numbers one read for the anchor covers, and how many such reads a tick makes.
const ANCHOR_READ: u64 = 256;
const ANCHOR_READS_MAX: usize = 16;

impl<S: BlockSource> Follower<S> {
    pub(in crate::watcher) async fn anchor(&mut self, tip: &Tip) -> Result<BlockRef, TickError> {
        let number = match self.settings.start {
            Start::Finalized => tip.finalized.map(|finalized| finalized.number).ok_or_else(|| {
                let what = none_final(tip, &self.network.finality.rule);
                TickError::Contradiction { chain: self.chain(), what }
            })?,
            Start::Number(first) => first.saturating_sub(1),
        };
        let header = &self.anchor_header(number, tip).await?;
        // One endpoint reports a header. If our first block were on a false branch, it would never be disconnected.
        let expected = tip.finalized.filter(|finalized| finalized.number == number);
        if let Some(expected) = expected.filter(|expected| *expected != header.block) {
            let what = format!("block {expected}, to start from, is final, but {} is shown", header.block);
            return Err(TickError::Contradiction { chain: self.chain(), what });
        }
        let mut tx = self.db.begin().await?;
        Cursor::lock(&mut tx, self.chain()).await?;
        cursors::anchor(&mut tx, self.chain(), header).await?;
        Cursor::place(&mut tx, self.chain(), &header.block).await?;
        native_settings::begin(&mut tx, self.chain(), header.block.number + 1, &self.network.native).await?;
        tx.commit().await?;
        info!(chain = %self.chain(), "{} is watched from block {}", self.chain(), header.block.number + 1);
        Ok(header.block)
    }

    /// The anchor: the block at `number`, or if that was skipped, the parent of the next block that is shown.
    async fn anchor_header(&self, number: u64, tip: &Tip) -> Result<Header, TickError> {
        if let Some(header) = self.source.headers(number..=number).await?.first() {
            return Ok(*header);
        }
        let missing = |what: String| TickError::Contradiction { chain: self.chain(), what };
        let latest = tip.latest.number;
        let mut last = number;
        for _ in 0..ANCHOR_READS_MAX {
            if last >= latest {
                break;
            }
            let first = last + 1;
            last = latest.min(last.saturating_add(ANCHOR_READ));
            let above = self.source.headers(first..=last).await?;
            let Some(parent) = above.first().map(|header| header.parent).filter(|parent| parent.number <= number)
            else {
                continue;
            };
            let below = self.source.headers(parent.number..=parent.number).await?;
            return below.into_iter().find(|header| header.block == parent).ok_or_else(|| {
                missing(format!("block {parent}, to start from, is what the next one stands on, and is not shown"))
            });
        }
        let what =
            format!("block {number}, to start from, is not there yet, nor one above it that tells what it stands on");
        Err(missing(format!("{what} (the newest is {latest})")))
    }
}

/// Why there is no block to start above, and what can be done.
fn none_final(tip: &Tip, rule: &FinalityRule) -> String {
    let newest = tip.latest.number;
    let why = match &tip.waiting {
        Some(waiting) => format!("{waiting}; the newest is {newest}"),
        None if newest < rule.confirmations => {
            let must = rule.confirmations;
            format!(
                "{must} blocks must stand on one that the node calls final (`confirmations`), and the newest is {newest}"
            )
        }
        None => format!("the nodes show none that the finality rule takes, and the newest is {newest}"),
    };
    format!("no block is final yet, so there is none to start above: {why}. Wait, or set start to a block number")
}

#[cfg(test)]
mod tests {
    use landfall_chain::{BlockHash, Tag};

    use super::*;

    #[test]
    fn that_no_block_is_final_is_reported_with_what_is_missing() {
        let block = |number| BlockRef { number, hash: BlockHash([1; 32]) };
        let tip = |waiting| Tip { latest: block(7), finalized: None, tiers: Vec::new(), waiting, forked: None };
        let rule = |confirmations| FinalityRule { tag: Some(Tag::Finalized), confirmations, l1_blocks: 0 };
        let waiting = "1 of the 2 endpoints that must agree call any block final";
        for (waiting, confirmations, why) in [
            (None, 32, "32 blocks must stand on one that the node calls final (`confirmations`), and the newest is 7"),
            (None, 7, "the nodes show none that the finality rule takes, and the newest is 7"),
            (
                Some(waiting.to_owned()),
                32,
                "1 of the 2 endpoints that must agree call any block final; the newest is 7",
            ),
        ] {
            let said = none_final(&tip(waiting), &rule(confirmations));
            let expected = format!(
                "no block is final yet, so there is none to start above: {why}. Wait, or set start to a block number"
            );
            assert_eq!(said, expected);
        }
    }
}
