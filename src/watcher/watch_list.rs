//! The watch list in memory: which addresses are watched, loaded once, then followed by its change sequence.
//!
//! Matching costs one look-up per leg, however many addresses there are, and an address costs its bytes in a hash table:
//! 24 to 48 of memory, so that 10,000,000 of them fit. Whose they are is not in it: a hit is rare, and the transaction
//! that records it asks the store. Clones share one list: two workers of a chain do not hold it twice, and whoever
//! follows it does so for both.

use std::collections::HashSet;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use landfall_chain::{Address, Chain};

use crate::store::{Connection, StoreError, accounts};

const PAGE_ROWS: u32 = 10_000;
/// The more, the less is held twice while one grows; each costs some bytes when it is empty.
const PARTS: usize = 64;

/// The watched addresses of one chain.
#[derive(Clone, Debug)]
pub(super) struct WatchList {
    chain: Chain,
    members: Arc<RwLock<Members>>,
}

#[derive(Default, Debug)]
struct Members {
    /// Apart by family: an `Address` takes the space of the longer kind and a tag.
    evm: Parts<20>,
    solana: Parts<32>,
    /// The number of the newest address in it; every older one is in it, too.
    seq: u64,
}

/// Addresses in parts by their last byte, which nobody chooses: each part grows by itself. While a table grows, the old one
/// and the new one, twice as large, are both held; of all addresses at once that would be half as much again.
#[derive(Debug)]
struct Parts<const BYTES: usize>(Vec<HashSet<[u8; BYTES]>>);

impl<const BYTES: usize> Default for Parts<BYTES> {
    fn default() -> Self {
        Parts(vec![HashSet::new(); PARTS])
    }
}

impl<const BYTES: usize> Parts<BYTES> {
    fn part(address: &[u8; BYTES]) -> usize {
        usize::from(address[BYTES - 1]) % PARTS
    }

    fn insert(&mut self, address: [u8; BYTES]) {
        self.0[Self::part(&address)].insert(address);
    }

    fn contains(&self, address: &[u8; BYTES]) -> bool {
        self.0[Self::part(address)].contains(address)
    }

    fn len(&self) -> usize {
        self.0.iter().map(HashSet::len).sum()
    }
}

impl WatchList {
    pub(super) fn new(chain: Chain) -> Self {
        WatchList { chain, members: Arc::default() }
    }

    /// Takes in what was added since the last time. Taking in the same page twice, as two who follow at one time do,
    /// changes nothing.
    pub(super) async fn follow(&self, connection: &mut impl Connection) -> Result<(), StoreError> {
        while self.follow_page(connection).await? {}
        Ok(())
    }

    /// As [`WatchList::follow`], of one page; whether there was anything.
    pub(super) async fn follow_page(&self, connection: &mut impl Connection) -> Result<bool, StoreError> {
        let seq = self.read().seq;
        let page = accounts::watched_since(connection, self.chain, seq, PAGE_ROWS).await?;
        let Some(last) = page.last().map(|last| last.seq) else { return Ok(false) };
        let mut members = self.write();
        for watched in page {
            match watched.address {
                Address::Evm(address) => members.evm.insert(address),
                Address::Solana(address) => members.solana.insert(address),
            };
        }
        members.seq = members.seq.max(last);
        Ok(true)
    }

    /// How many addresses are in it.
    pub(super) fn len(&self) -> usize {
        let members = self.read();
        members.evm.len() + members.solana.len()
    }

    pub(super) fn contains(&self, address: &Address) -> bool {
        let members = self.read();
        match address {
            Address::Evm(address) => members.evm.contains(address),
            Address::Solana(address) => members.solana.contains(address),
        }
    }

    /// The number up to which it holds every address.
    pub(super) fn seq(&self) -> u64 {
        self.read().seq
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
