//! The watch list in memory: which addresses are watched, loaded once, then followed by its change sequence.
//!
//! Matching costs one look-up per leg, however many addresses there are. An address costs its bytes and 6 to 11 more,
//! so 10,000,000 of them fit. The list does not know the owners: a hit is rare, and the transaction that records it
//! asks the store. Clones share one list: two workers of a chain do not hold it twice, and when one follows it, both
//! see the change.

use std::collections::HashSet;
use std::hash::BuildHasher;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};
use landfall_chain::{Address, AssetId, AssetTransfer, Block, Chain, Network, Rejected, TxLife, Verdict};

use crate::store::{Connection, StoreError, accounts};
use crate::watcher::books::matched::Matched;

const PAGE_ROWS: u32 = 10_000;
/// How many addresses lie side by side in one piece: nothing is copied when more come.
const CHUNK: usize = 1 << 16;

/// The watched addresses of one chain.
#[derive(Clone, Debug)]
pub(in crate::watcher) struct WatchList {
    chain: Chain,
    members: Arc<RwLock<Members>>,
}

#[derive(Default, Debug)]
struct Members {
    /// One set for each family: an `Address` takes the space of the longer kind and a tag.
    evm: Set<20>,
    solana: Set<32>,
    /// Who pays for transactions of ours: of them what leaves is recorded, and what comes of the native currency. None of it
    /// is a deposit.
    sponsors: HashSet<Address>,
    /// The number of the newest address in the list; every older one is in it, too.
    seq: u64,
}

/// Addresses in the order in which they came, and a table of their places. Spare room in the table costs four bytes a
/// place, not a whole address.
#[derive(Default, Debug)]
struct Set<const BYTES: usize> {
    chunks: Vec<Vec<[u8; BYTES]>>,
    places: HashTable<u32>,
    /// Fast, and seeded anew in each process. A hostile look-up adds nothing to the table.
    hasher: DefaultHashBuilder,
}

impl<const BYTES: usize> Set<BYTES> {
    fn insert(&mut self, address: [u8; BYTES]) {
        let Set { chunks, places, hasher } = self;
        let is_there = |place: &u32| *at(chunks, *place) == address;
        let entry = places.entry(hasher.hash_one(address), is_there, |place| hasher.hash_one(at(chunks, *place)));
        let Entry::Vacant(vacant) = entry else { return };
        let len = chunks.last().map_or(0, |last| (chunks.len() - 1) * CHUNK + last.len());
        vacant.insert(u32::try_from(len).expect("fewer than 2^32 addresses are watched"));
        if len.is_multiple_of(CHUNK) {
            chunks.push(Vec::new());
        }
        if let Some(last) = chunks.last_mut() {
            last.push(address);
        }
    }

    fn contains(&self, address: &[u8; BYTES]) -> bool {
        self.places.find(self.hasher.hash_one(address), |place| at(&self.chunks, *place) == address).is_some()
    }

    fn len(&self) -> usize {
        self.places.len()
    }
}

fn at<const BYTES: usize>(chunks: &[Vec<[u8; BYTES]>], place: u32) -> &[u8; BYTES] {
    let place = place as usize;
    &chunks[place / CHUNK][place % CHUNK]
}

impl Members {
    fn contains(&self, address: &Address) -> bool {
        match address {
            Address::Evm(address) => self.evm.contains(address),
            Address::Solana(address) => self.solana.contains(address),
        }
    }

    fn follows_spending_of(&self, address: &Address) -> bool {
        self.contains(address) || self.sponsors.contains(address)
    }

    /// What came to members and is no deposit, and what came to sponsors of the native currency. Where a block reports what a
    /// transaction took of its payer, what it brought that payer is a part of it.
    fn arrivals(&self, block: &Block) -> Vec<Rejected> {
        let is_outlay = |leg: &AssetTransfer| {
            leg.tx.life == TxLife::Block
                && block.fees.iter().any(|fee| (fee.tx.id, fee.payer) == (leg.tx.id, leg.recipient))
        };
        let came = |leg: &AssetTransfer| {
            leg.asset == AssetId::Native && self.sponsors.contains(&leg.recipient) && !is_outlay(leg)
        };
        let mut arrivals = among(&block.unattributed, |Rejected { transfer, .. }| {
            self.contains(&transfer.recipient) || came(transfer)
        });
        let legs = block.transfers.iter().filter(|leg| came(leg));
        arrivals.extend(legs.map(|leg| Rejected { transfer: leg.clone(), verdict: Verdict::OwnGasTopup }));
        arrivals
    }
}

impl WatchList {
    pub(in crate::watcher) fn new(chain: Chain) -> Self {
        WatchList { chain, members: Arc::default() }
    }

    /// Adds what was added to the store since the last time. Two may follow at once: to add the same page twice changes
    /// nothing.
    pub(in crate::watcher) async fn follow(&self, connection: &mut impl Connection) -> Result<(), StoreError> {
        while self.follow_page(connection).await? {}
        Ok(())
    }

    /// As [`WatchList::follow`], but one page only; returns whether it held anything.
    pub(in crate::watcher) async fn follow_page(&self, connection: &mut impl Connection) -> Result<bool, StoreError> {
        let seq = self.read().seq;
        let page = accounts::watched_since(connection, self.chain, seq, PAGE_ROWS).await?;
        let Some(last) = page.last().map(|last| last.seq) else { return Ok(false) };
        let mut members = self.write();
        for watched in page {
            match watched.address {
                address if watched.is_sponsor => drop(members.sponsors.insert(address)),
                Address::Evm(address) => members.evm.insert(address),
                Address::Solana(address) => members.solana.insert(address),
            };
        }
        members.seq = members.seq.max(last);
        Ok(true)
    }

    pub(in crate::watcher) fn len(&self) -> usize {
        let members = self.read();
        members.evm.len() + members.solana.len()
    }

    pub(in crate::watcher) fn contains(&self, address: &Address) -> bool {
        self.read().contains(address)
    }

    /// What of `block` is somebody's on the list.
    pub(in crate::watcher) fn select(&self, network: &Network, block: &Block) -> Matched {
        let members = self.read();
        let is_listed = |asset: &AssetId| network.asset(asset).is_some();
        Matched {
            header: block.header,
            proof: block.proof,
            signers: block.signers.clone(),
            watch_seq: members.seq,
            legs: among(&block.transfers, |leg| members.contains(&leg.recipient) && is_listed(&leg.asset)),
            debits: among(block.debits(), |debit| {
                members.follows_spending_of(&debit.sender) && is_listed(&debit.asset)
            }),
            fees: among(&block.fees, |fee| members.follows_spending_of(&fee.payer)),
            marks: among(&block.marks, |mark| members.contains(&mark.payer)),
            arrivals: members.arrivals(block),
        }
    }

    /// The number up to which the list holds every address.
    pub(in crate::watcher) fn seq(&self) -> u64 {
        self.read().seq
    }

    fn read(&self) -> RwLockReadGuard<'_, Members> {
        // Nothing panics while it holds the lock, and a page that was added by half is added again.
        self.members.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Members> {
        self.members.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those of `items` that are ours. With a long list each look-up waits for memory; the look-ups of one call wait
/// together.
fn among<T: Clone>(items: &[T], is_ours: impl Fn(&T) -> bool) -> Vec<T> {
    items.iter().filter(|item| is_ours(item)).cloned().collect()
}
