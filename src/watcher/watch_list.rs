//! The watch list in memory: address -> account, loaded once, then followed by its change sequence.
//!
//! Matching costs one look-up per leg, however many addresses there are.

use std::collections::HashMap;
use std::sync::Arc;

use landfall_chain::{Address, Chain};

use crate::store::{Connection, StoreError, accounts};

const PAGE_ROWS: u32 = 10_000;

/// The watched addresses of one chain.
#[derive(Debug)]
pub(super) struct WatchList {
    chain: Chain,
    accounts: HashMap<Address, Arc<str>>,
    /// The number of the newest address in it.
    seq: u64,
}

impl WatchList {
    pub(super) fn new(chain: Chain) -> Self {
        WatchList { chain, accounts: HashMap::new(), seq: 0 }
    }

    /// Takes in what was added since the last time; how many there were.
    pub(super) async fn follow(&mut self, connection: &mut impl Connection) -> Result<usize, StoreError> {
        let before = self.accounts.len();
        loop {
            let page = accounts::watched_since(connection, self.chain, self.seq, PAGE_ROWS).await?;
            let Some(last) = page.last() else { return Ok(self.accounts.len() - before) };
            self.seq = last.seq;
            for watched in page {
                self.accounts.insert(watched.address, watched.account_id.into());
            }
        }
    }

    /// The account whose address this is.
    pub(super) fn account(&self, address: &Address) -> Option<&str> {
        self.accounts.get(address).map(AsRef::as_ref)
    }

    /// Whether everything up to number `seq` is in it.
    pub(super) fn is_current(&self, seq: u64) -> bool {
        self.seq >= seq
    }
}
