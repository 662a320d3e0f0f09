//! Reads a past range of final blocks again, for what was not watched when it was read: the gap before an address was
//! added, an asset that was listed later.
//!
//! Promises: reads final blocks only; never moves the cursor, and leaves what is above it to `run`, beside which it may
//! work; records the same deposits with the same events as connecting would have; again is a no-op. Where it stopped is
//! on record: the same command goes on there, unless the watch list or the assets have changed, which begins it again.

use std::collections::{BTreeSet, VecDeque};

use landfall_chain::{Address, AddressSource, Block, BlockRef, BlockSource, Chain, ReadProof};
use sha2::{Digest, Sha256};
use tracing::info;

use crate::store::backfills::{self, BackfillRow};
use crate::store::cursors::Cursor;
use crate::store::{Connection, StoreError, accounts, deposits};
use crate::time::Timestamp;
use crate::watcher::{TickError, Watcher};

/// How many blocks that a search named one step reads.
const STEP_HITS_MAX: usize = 100;

/// What is to be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// Both inclusive.
    pub from: u64,
    pub to: u64,
    pub proof: ReadProof,
    pub scope: Scope,
    /// Count what would be recorded, and record nothing, not even how far it came.
    pub dry_run: bool,
}

/// For whom.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// Every watched address.
    All,
    /// The addresses of an account.
    Account(String),
    Addresses(BTreeSet<Address>),
}

/// Why a range is not read.
#[derive(Debug, thiserror::Error)]
pub enum BackfillError {
    #[error("{chain}: from block {from} to block {to} is no range")]
    NoRange { chain: Chain, from: u64, to: u64 },
    #[error("{chain}: block {to} is not final yet; the newest final block is {}",
        finalized.map_or("not known".to_owned(), |finalized| finalized.number.to_string()))]
    NotFinal { chain: Chain, to: u64, finalized: Option<BlockRef> },
    #[error(
        "{chain}: block {from} is above block {cursor}, which is as far as `landfall run` has come; it reads the rest itself"
    )]
    NotRead { chain: Chain, from: u64, cursor: u64 },
    #[error("{address} is not watched on {chain}; add it with `landfall account add` first")]
    NotWatched { chain: Chain, address: Address },
    #[error("account {account} has no address on {chain}")]
    NoAddress { chain: Chain, account: String },
    #[error(transparent)]
    Tick(#[from] TickError),
}

/// A backfill under way.
#[derive(Debug)]
pub struct Backfill<S> {
    watcher: Watcher<S>,
    job: Job,
    /// The addresses of the scope; empty for all.
    only: BTreeSet<Address>,
    /// What the row on record holds when this was begun: other watch lists and assets make another.
    basis: String,
    /// The last block that is read: that of the job, or the cursor's.
    until: u64,
    /// The next block to read.
    next: u64,
    pending: u64,
    confirmed: u64,
    /// What a search has named and no step has read yet, and how far it reached.
    ahead: VecDeque<BlockRef>,
    searched: Option<u64>,
}

impl<S: BlockSource + AddressSource> Backfill<S> {
    /// Checks the job, and takes up where the same one stopped.
    ///
    /// # Errors
    /// See [`BackfillError`].
    pub async fn begin(watcher: Watcher<S>, job: Job) -> Result<Self, BackfillError> {
        let chain = watcher.chain();
        let until = watcher.check_range(job.from, job.to).await?;
        let mut reader = watcher.db.read().await?;
        watcher.watch_list.follow(&mut reader).await?;
        let only = addresses(&watcher, &mut reader, &job.scope).await?;
        let seq = Cursor::load(&mut reader, chain).await?.watch_seq;
        let basis = basis(&watcher, if only.is_empty() { seq } else { 0 });
        let mut backfill = Backfill {
            next: first_read(job.from),
            watcher,
            job,
            only,
            basis,
            until,
            pending: 0,
            confirmed: 0,
            ahead: VecDeque::new(),
            searched: None,
        };
        let row = backfills::load(&mut reader, chain, &backfill.row()).await?;
        // One that is done is begun again: nothing is recorded twice.
        let row = row.filter(|row| row.basis == backfill.basis && row.next <= backfill.job.to && !backfill.job.dry_run);
        if let Some(row) = row {
            (backfill.next, backfill.pending) = (row.next, row.found);
        }
        Ok(backfill)
    }

    /// Reads and records some blocks. May be dropped at any await: what is not on record is read again.
    ///
    /// # Errors
    /// See [`TickError`]; nothing of the step but what it had committed stays.
    pub async fn step(&mut self, now: Timestamp) -> Result<(), TickError> {
        if self.is_done() {
            return Ok(());
        }
        let (blocks, through) = match self.job.proof {
            ReadProof::Full => {
                let blocks = self.watcher.final_blocks(self.next, self.until).await?;
                let through = blocks.last().map_or(self.next, |block| block.header.block.number);
                (blocks, through)
            }
            ReadProof::Listed => self.hits().await?,
        };
        let Backfill { watcher, only, job, .. } = self;
        let wanted = |address: &Address| only.is_empty() || only.contains(address);
        if job.dry_run {
            self.pending += self.would_record(&blocks).await?;
        } else {
            let ticked = watcher.credit_final(&blocks, &wanted, now).await?;
            self.pending += ticked.pending;
            self.confirmed += ticked.confirmed;
        }
        if self.job.proof == ReadProof::Listed {
            self.ahead.drain(..blocks.len());
        }
        self.next = through + 1;
        if !self.job.dry_run {
            let mut tx = self.watcher.db.begin().await?;
            backfills::save(&mut tx, self.watcher.chain(), &self.row(), now).await?;
            tx.commit().await?;
        }
        Ok(())
    }

    /// Some of the blocks that a search has named, and the block through which all is done with them.
    async fn hits(&mut self) -> Result<(Vec<Block>, u64), TickError> {
        let searched = match self.searched.filter(|searched| *searched >= self.next) {
            Some(searched) => searched,
            None => {
                let Backfill { watcher, only, .. } = &*self;
                let wanted = |address: &Address| {
                    if only.is_empty() { watcher.watch_list.contains(address) } else { only.contains(address) }
                };
                let scanned = watcher.scan(self.next, self.until, &wanted).await?;
                self.ahead = scanned.hits.into();
                *self.searched.insert(scanned.last.number)
            }
        };
        let hits: Vec<BlockRef> = self.ahead.iter().take(STEP_HITS_MAX).copied().collect();
        let blocks = self.watcher.full_blocks(&hits).await?;
        let through = if hits.len() < self.ahead.len() { hits.last().map(|hit| hit.number) } else { None };
        Ok((blocks, through.unwrap_or(searched)))
    }

    async fn would_record(&self, blocks: &[Block]) -> Result<u64, TickError> {
        let wanted = |address: &Address| self.only.is_empty() || self.only.contains(address);
        let mut reader = self.watcher.db.read().await?;
        let mut count = 0;
        for leg in blocks.iter().flat_map(|block| self.watcher.wanted_legs(block, &wanted)) {
            count += u64::from(deposits::by_leg(&mut reader, &leg.hash()).await?.is_none());
        }
        Ok(count)
    }

    pub fn is_done(&self) -> bool {
        self.next > self.until
    }

    pub fn progress(&self) -> Progress {
        let Backfill { job, until, next, pending, confirmed, .. } = self;
        Progress { from: job.from, until: *until, next: *next, found: *pending, confirmed: *confirmed }
    }

    fn row(&self) -> BackfillRow {
        let Job { from, to, proof, .. } = self.job;
        let proof = match proof {
            ReadProof::Full => "receipts",
            ReadProof::Listed => "logs",
        };
        let scope = self.only.iter().map(Address::to_string).collect::<Vec<_>>().join(",");
        let basis = self.basis.clone();
        BackfillRow { from, to, proof: proof.to_owned(), scope, basis, next: self.next, found: self.pending }
    }
}

/// How far a backfill or rescan has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    pub from: u64,
    /// The last block that is read; less than what was asked for where `run` has not come as far.
    pub until: u64,
    pub next: u64,
    /// Deposits that became PENDING, or would, or differ.
    pub found: u64,
    pub confirmed: u64,
}

impl<S: BlockSource> Watcher<S> {
    /// The last block of the range that may be read: all of it is final, and `run` has come as far, if it ever ran.
    pub(super) async fn check_range(&self, from: u64, to: u64) -> Result<u64, BackfillError> {
        let chain = self.chain();
        if from > to {
            return Err(BackfillError::NoRange { chain, from, to });
        }
        if self.source.final_at(to).await.map_err(TickError::from)?.is_none() {
            let finalized = self.source.tip().await.map_err(TickError::from)?.finalized;
            return Err(BackfillError::NotFinal { chain, to, finalized });
        }
        let load = async |db: &crate::store::Db| Cursor::load(&mut db.read().await?, chain).await;
        let Some(cursor) = load(&self.db).await?.at else { return Ok(to) };
        if cursor.number < from {
            return Err(BackfillError::NotRead { chain, from, cursor: cursor.number });
        }
        if cursor.number < to {
            info!(%chain, "blocks above {} are left to `landfall run`, which has not read them yet", cursor.number);
        }
        Ok(to.min(cursor.number))
    }
}

/// The addresses of a scope; none for all.
async fn addresses<S: BlockSource>(
    watcher: &Watcher<S>,
    connection: &mut impl Connection,
    scope: &Scope,
) -> Result<BTreeSet<Address>, BackfillError> {
    let chain = watcher.chain();
    match scope {
        Scope::All => Ok(BTreeSet::new()),
        Scope::Account(account) => {
            let addresses = accounts::addresses_of(connection, chain, account).await?;
            let no_address = || BackfillError::NoAddress { chain, account: account.clone() };
            if addresses.is_empty() { Err(no_address()) } else { Ok(addresses.into_iter().collect()) }
        }
        Scope::Addresses(addresses) => match addresses.iter().find(|address| !watcher.watch_list.contains(address)) {
            Some(address) => Err(BackfillError::NotWatched { chain, address: *address }),
            None => Ok(addresses.clone()),
        },
    }
}

/// Block 0 has no transactions and no parent.
pub(super) fn first_read(from: u64) -> u64 {
    from.max(1)
}

/// What was looked for: the number of the newest watched address, and a hash of the listed assets.
fn basis<S>(watcher: &Watcher<S>, seq: u64) -> String {
    let mut hash = Sha256::new();
    let mut assets: Vec<Vec<u8>> = watcher.network.assets.iter().map(|asset| asset.id.to_bytes()).collect();
    assets.sort_unstable();
    assets.iter().for_each(|asset| hash.update(asset));
    hash.update(format!("{:?}", watcher.network.native));
    format!("{seq}/{}", hex::encode(hash.finalize()))
}

impl From<StoreError> for BackfillError {
    fn from(error: StoreError) -> Self {
        BackfillError::Tick(error.into())
    }
}
