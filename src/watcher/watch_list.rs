//! The watch list in memory: address -> account, loaded once, then followed by its change sequence.
//!
//! Matching costs one look-up per leg, however many addresses there are. Clones share one list: two workers of a chain
//! do not hold it twice, and whoever follows it does so for both.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use landfall_chain::{Address, Chain};

use crate::store::{Connection, StoreError, accounts};

const PAGE_ROWS: u32 = 10_000;

/// The watched addresses of one chain.
#[derive(Clone, Debug)]
pub(super) struct WatchList {
    chain: Chain,
    members: Arc<RwLock<Members>>,
}

#[derive(Default, Debug)]
struct Members {
    accounts: HashMap<Address, Arc<str>>,
    /// The number of the newest address in it; every older one is in it, too.
    seq: u64,
}

impl WatchList {
    pub(super) fn new(chain: Chain) -> Self {
        WatchList { chain, members: Arc::default() }
    }

    /// Takes in what was added since the last time. Taking in the same page twice, as two who follow at one time do,
    /// changes nothing.
    pub(super) async fn follow(&self, connection: &mut impl Connection) -> Result<(), StoreError> {
        loop {
            let seq = self.read().seq;
            let page = accounts::watched_since(connection, self.chain, seq, PAGE_ROWS).await?;
            let Some(last) = page.last().map(|last| last.seq) else { return Ok(()) };
            let mut members = self.write();
            for watched in page {
                members.accounts.insert(watched.address, watched.account_id.into());
            }
            members.seq = members.seq.max(last);
        }
    }

    /// The account whose address this is.
    pub(super) fn account(&self, address: &Address) -> Option<Arc<str>> {
        self.read().accounts.get(address).cloned()
    }

    /// Whether everything up to number `seq` is in it.
    pub(super) fn is_current(&self, seq: u64) -> bool {
        self.read().seq >= seq
    }

    fn read(&self) -> RwLockReadGuard<'_, Members> {
        // Nothing panics while it holds the lock, and a half taken page is taken again.
        self.members.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Members> {
        self.members.write().unwrap_or_else(PoisonError::into_inner)
    }
}
