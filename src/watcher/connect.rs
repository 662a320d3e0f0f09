//! Connects blocks: fetched ahead in parallel, linked by parent, matched with the watch list, recorded in one
//! transaction for each read.
//!
//! What a source left out or tore apart shows in the parent links; the cursor then stays where the links hold.

use std::ops::RangeInclusive;

use futures_util::{StreamExt, stream};
use landfall_chain::{Asset, AssetTransfer, Block, BlockRef, BlockSource, Network, Read, Tip};
use tracing::info;

use crate::deposit::{Deposit, DepositStatus, Leg, LegHash};
use crate::event::Event;
use crate::store::cursors::{self, Cursor};
use crate::store::{Db, StoreError, Tx, deposits, events};
use crate::time::Timestamp;
use crate::watcher::watch_list::WatchList;
use crate::watcher::{TickError, Ticked, Watcher};

/// How many blocks one read asks for at most, and one transaction records. After a read that failed it is half as many,
/// after each that did not, one more: what is too much for a node at once is asked for in parts.
pub(super) const READ_BLOCKS_MAX: u64 = 20;
/// How many reads are under way at once; with the above it bounds what is in memory.
const READS_AHEAD_MAX: usize = 4;
/// How many blocks a tick connects at most.
const TICK_BLOCKS_MAX: u64 = 100;
/// How many final blocks stay on record below the newest final one, for finding fork points.
pub(super) const FINAL_BLOCKS_KEPT: u64 = 1_024;
/// How far back each transaction looks for blocks to forget: more than it ever adds.
const PRUNE_WINDOW: u64 = 4_096;

impl<S: BlockSource> Watcher<S> {
    /// Connects what comes after `at`, as far as the source has it and a tick goes. When the first block does not stand
    /// on `at`, that is a reorg, to be taken back.
    pub(super) async fn connect(
        &mut self,
        mut at: BlockRef,
        tip: &Tip,
        now: Timestamp,
        ticked: &mut Ticked,
    ) -> Result<Connected, TickError> {
        let Watcher { source, db, network, watch_list, read_width, .. } = self;
        let mut books = Books { db, network, watch_list };
        let mut reads = stream::iter(ranges(at.number, tip.latest.number, *read_width))
            .map(|range| source.blocks(range, Read::FULL))
            .buffered(READS_AHEAD_MAX);
        let mut is_stale = false;
        while let Some(read) = reads.next().await {
            *read_width = if read.is_ok() { (*read_width + 1).min(READ_BLOCKS_MAX) } else { (*read_width / 2).max(1) };
            let blocks = read?;
            let linked = linked(&at, &blocks);
            if !linked.is_empty() {
                at = books.record(&at, linked, tip.finalized, now, ticked).await?;
            }
            if linked.len() < blocks.len() {
                is_stale = linked.is_empty();
                break;
            }
        }
        Ok(Connected { at, is_stale })
    }
}

/// Where connecting ended.
pub(super) struct Connected {
    pub(super) at: BlockRef,
    /// What the source shows next does not stand on it.
    pub(super) is_stale: bool,
}

/// Where blocks are recorded, and what they are matched with.
struct Books<'w> {
    db: &'w Db,
    network: &'w Network,
    watch_list: &'w mut WatchList,
}

impl Books<'_> {
    /// Records blocks that stand on `at`, what they credit, and the cursor, in one transaction; the last of them.
    async fn record(
        &mut self,
        at: &BlockRef,
        blocks: &[Block],
        finalized: Option<BlockRef>,
        now: Timestamp,
        ticked: &mut Ticked,
    ) -> Result<BlockRef, TickError> {
        let Books { db, network, watch_list } = self;
        let chain = network.chain;
        let mut tx = db.begin().await?;
        let cursor = Cursor::lock(&mut tx, chain).await?;
        if cursor.at != Some(*at) {
            return Err(StoreError::Moved { chain }.into());
        }
        if !watch_list.is_current(cursor.watch_seq) {
            watch_list.follow(&mut tx).await?;
        }
        let (mut last, mut pending) = (*at, 0);
        for block in blocks {
            cursors::connect(&mut tx, chain, block).await?;
            for leg in block.transfers.iter().filter_map(|transfer| WatchedLeg::of(transfer, network, watch_list)) {
                pending += u64::from(leg.record(&mut tx, block, now).await?);
            }
            last = block.header.block;
        }
        Cursor::shift(&mut tx, chain, at, &last).await?;
        if let Some(finalized) = finalized {
            let below = last.number.min(finalized.number).saturating_sub(FINAL_BLOCKS_KEPT);
            cursors::prune(&mut tx, chain, below.saturating_sub(PRUNE_WINDOW), below).await?;
        }
        tx.commit().await?;
        ticked.connected += u64::try_from(blocks.len()).unwrap_or(u64::MAX);
        ticked.pending += pending;
        Ok(last)
    }
}

/// The reads of one tick: blocks `at + 1 ..= latest`, cut to what a tick connects, `width` blocks each.
fn ranges(at: u64, latest: u64, width: u64) -> impl Iterator<Item = RangeInclusive<u64>> {
    let last = latest.min(at.saturating_add(TICK_BLOCKS_MAX));
    let mut first = at + 1;
    std::iter::from_fn(move || {
        let range = first..=last.min(first + (width - 1));
        first = range.end() + 1;
        (!range.is_empty()).then_some(range)
    })
}

/// The blocks of the front that stand on `at` and on each other.
fn linked<'b>(at: &BlockRef, blocks: &'b [Block]) -> &'b [Block] {
    let mut parent = *at;
    let broken = blocks.iter().position(|block| {
        let stands = block.header.parent == parent && block.header.block.number > parent.number;
        parent = block.header.block;
        !stands
    });
    &blocks[..broken.unwrap_or(blocks.len())]
}

/// A leg to a watched address, about to be recorded.
struct WatchedLeg<'a> {
    network: &'a Network,
    transfer: &'a AssetTransfer,
    asset: &'a Asset,
    account: &'a str,
    source_account: Option<&'a str>,
}

impl<'a> WatchedLeg<'a> {
    /// The transfer, when it moves a listed asset to a watched address.
    fn of(transfer: &'a AssetTransfer, network: &'a Network, watch_list: &'a WatchList) -> Option<Self> {
        Some(WatchedLeg {
            network,
            transfer,
            asset: network.asset(&transfer.asset)?,
            account: watch_list.account(&transfer.recipient)?,
            source_account: watch_list.account(&transfer.sender),
        })
    }

    /// Records the leg as seen in `block`; whether the deposit became PENDING by it.
    async fn record(&self, tx: &mut Tx, block: &Block, now: Timestamp) -> Result<bool, TickError> {
        let leg_hash = leg_of(&self.network.chain_ref, self.transfer).hash();
        let known = deposits::by_leg(tx, &leg_hash).await?;
        let seen_in = block.header.block;
        let (deposit, became_pending) = match known {
            None => {
                let deposit = self.new_deposit(leg_hash, block);
                deposits::insert(tx, &deposit).await?;
                (deposit, true)
            }
            Some(deposit) => match deposit.status {
                DepositStatus::Failed => {
                    let deposit = deposit.revive()?;
                    deposits::set_status(tx, &deposit, DepositStatus::Failed).await?;
                    (deposit, true)
                }
                DepositStatus::Pending | DepositStatus::Confirmed => (deposit, false),
            },
        };
        deposits::include(tx, &deposit, &seen_in).await?;
        if became_pending {
            announce(tx, &deposit, now).await?;
            info!(chain = %deposit.chain, tx = %deposit.tx.id, block = seen_in.number, "deposit {} pending", deposit.id);
        }
        Ok(became_pending)
    }

    fn new_deposit(&self, leg_hash: LegHash, block: &Block) -> Deposit {
        let WatchedLeg { network, transfer, asset, account, source_account } = self;
        Deposit {
            id: leg_hash.deposit_id(),
            leg_hash,
            account_id: (*account).to_owned(),
            source_account_id: source_account.map(str::to_owned),
            chain: network.chain,
            tx: transfer.tx,
            asset: transfer.asset,
            sender: transfer.sender,
            recipient: transfer.recipient,
            amount: transfer.amount,
            nth: transfer.nth,
            symbol: asset.symbol.clone(),
            decimals: asset.decimals,
            status: DepositStatus::Pending,
            created_at: Timestamp::from_secs(block.header.time_secs),
            confirmed_at: None,
        }
    }
}

/// Writes the event of the status that `deposit` has just entered.
pub(super) async fn announce(tx: &mut Tx, deposit: &Deposit, now: Timestamp) -> Result<(), StoreError> {
    let history = events::History::of(tx, deposit.id).await?;
    let event = Event::entered(deposit, history.entries(deposit.status));
    events::append(tx, &event, &history, now).await
}

/// The identity of a transfer on a chain.
pub(super) fn leg_of<'a>(chain_ref: &'a str, transfer: &AssetTransfer) -> Leg<'a> {
    let AssetTransfer { tx, asset, recipient, amount, nth, .. } = *transfer;
    Leg { chain_ref, tx: tx.id, asset, recipient, amount, nth }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_reads_in_ranges_without_gaps_and_stops_at_its_limit() {
        assert_eq!(ranges(5, 5, 20).count(), 0);
        assert_eq!(ranges(9, 5, 20).count(), 0);
        assert_eq!(ranges(5, 6, 20).collect::<Vec<_>>(), [6..=6]);
        assert_eq!(ranges(0, 41, 20).collect::<Vec<_>>(), [1..=20, 21..=40, 41..=41]);
        assert_eq!(ranges(0, 3, 1).collect::<Vec<_>>(), [1..=1, 2..=2, 3..=3]);
        assert_eq!(ranges(10, u64::MAX, 20).map(|r| r.end() - r.start() + 1).sum::<u64>(), TICK_BLOCKS_MAX);
    }
}
