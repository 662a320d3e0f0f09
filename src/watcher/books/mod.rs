//! What is recorded of a block: which of its legs are whose, who paid them, and what left watched addresses.
//!
//! [`Books`] is what every worker of a chain shares: where its blocks come from and where they are recorded. A worker owns
//! one, and beside it only its own state.

pub(super) mod leg;
pub(super) mod matched;
pub(super) mod movements;
pub(super) mod record;
pub(super) mod replace_record;
pub(super) mod senders;
pub(super) mod watch_list;

use landfall_chain::{Block, Chain, Network};

use crate::deposit::Deposit;
use crate::store::cursors::Cursor;
use crate::store::{Db, StoreError, Tx};
use crate::watcher::books::leg::shows;
use crate::watcher::books::matched::Matched;
use crate::watcher::books::watch_list::WatchList;

/// A chain's blocks, and the record of them. Clones share the watch list.
#[derive(Clone, Debug)]
pub struct Books<S> {
    pub(in crate::watcher) source: S,
    pub(in crate::watcher) db: Db,
    pub(in crate::watcher) network: Network,
    pub(in crate::watcher) watch_list: WatchList,
}

impl<S> Books<S> {
    pub(in crate::watcher) fn new(source: S, db: Db, network: Network) -> Self {
        let watch_list = WatchList::new(network.chain);
        Books { source, db, network, watch_list }
    }

    pub(in crate::watcher) fn chain(&self) -> Chain {
        self.network.chain
    }

    /// What of `block` is somebody's.
    pub(in crate::watcher) fn select(&self, block: &Block) -> Matched {
        self.watch_list.select(&self.network, block)
    }

    /// Selects from `block` anew if addresses were added since it was `matched`; returns whether they were. `cursor` is
    /// the chain's, locked in this transaction: nobody adds an address until it ends.
    pub(in crate::watcher) async fn select_again(
        &self,
        tx: &mut Tx,
        cursor: &Cursor,
        block: &Block,
        matched: &mut Matched,
    ) -> Result<bool, StoreError> {
        if matched.is_current(cursor) {
            return Ok(false);
        }
        if self.watch_list.seq() < cursor.watch_seq {
            self.watch_list.follow(tx).await?;
        }
        *matched = self.select(block).named_as(matched);
        Ok(true)
    }

    pub(in crate::watcher) fn has_leg(&self, block: &Block, deposit: &Deposit) -> bool {
        shows(&self.network, &block.transfers, deposit)
    }

    /// Whether the block at `number`, and all below it, may count as final: where parent links do not prove it, they
    /// were cross-checked.
    pub(in crate::watcher) fn is_looked_at(&self, cursor: &Cursor, number: u64) -> bool {
        self.chain().family().has_roots() || cursor.looked >= number
    }
}
