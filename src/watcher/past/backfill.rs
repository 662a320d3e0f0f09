//! Reads a past range of final blocks again, for what was not watched when it was read: the time before an address was
//! added, an asset that was listed later.
//!
//! Promises:
//! - It reads final blocks only. It never moves the cursor, and leaves what is above the cursor to `run`, beside which
//!   it may work.
//! - It records the same deposits with the same events as connecting would have. To repeat it changes nothing.
//! - It reads the lane of the roots first, then, on a traced network, that of the traces: what roots prove never waits
//!   for a trace. It is done only after the last trace.
//! - Without an end it leaves no gap to `run`: it reads up to where its addresses are watched from and waits for that
//!   to be final. On chains that are searched by address it reads all that is final and that `run` has read.
//! - Where it stopped is on record for each lane: the same command continues there. If the watch list or the assets
//!   have changed, it starts again.

use std::collections::{BTreeSet, VecDeque};

use landfall_chain::{
    Address, AddressSource, Block, BlockSource, Chain, Found, Lane, NativeSource, Proof, ReadProof, Search, Searching,
    Watched,
};
use sha2::{Digest, Sha256};

use crate::store::backfills::{self, BackfillRow};
use crate::store::{Connection, accounts, deposits};
use crate::time::Timestamp;
use crate::watcher::books::Books;
use crate::watcher::past::final_range::{Full, Hit, Past};
use crate::watcher::past::{Progress, Span, first_read};
use crate::watcher::read::Window;
use crate::watcher::{BackfillError, Follower, TickError, TraceLane};

/// How many of the blocks that a search named are read in one step.
const STEP_HITS_MAX: usize = 100;
/// The recorded last block of a job without an end, so that the job is found again when more is final.
const NO_END: u64 = i64::MAX.unsigned_abs() - 1;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Job {
    /// Both inclusive. Without `to`, the end is the last block that `run` does not read for the addresses. On chains
    /// that are searched by address it is the last block that is final and that `run` has read, if that is higher.
    pub from: u64,
    pub to: Option<u64>,
    /// How the roots are searched. The trace of every block is read all the same: nothing names the blocks that need
    /// it.
    pub proof: ReadProof,
    pub scope: Scope,
    /// Count what would be recorded, and record nothing, not even the progress.
    pub dry_run: bool,
}

/// For which addresses.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    All,
    Account(String),
    Addresses(BTreeSet<Address>),
}

#[derive(Debug)]
pub struct Backfill<S> {
    books: Books<S>,
    job: Job,
    /// The addresses of the scope; empty for all.
    only: BTreeSet<Address>,
    /// The basis of the rows that this job reads and writes: other watch lists and assets have another one.
    basis: String,
    progress: Progress,
    /// The last block that is known to be final and read by `run`; what lies above is waited for.
    reach: u64,
    has_end: bool,
    roots: Window,
    traces: Option<Traces<S>>,
    /// What a search from `Progress::next` on found while no endpoint could say whether its end is final. To search
    /// again may cost some hundred requests.
    untied: Option<Found>,
    /// What a search has named and no step has read yet, and how far it reached.
    ahead: VecDeque<Hit>,
    searched: Option<u64>,
}

/// The lane of the traces, behind that of the roots.
#[derive(Debug)]
struct Traces<S> {
    lane: TraceLane<S>,
    window: Window,
    /// Of `Progress::found`, those that a trace showed.
    found: u64,
}

impl<S: BlockSource + AddressSource + Clone> Backfill<S> {
    /// Checks the job, and continues where the same one stopped.
    ///
    /// # Errors
    /// See [`BackfillError`].
    pub async fn begin(follower: Follower<S>, mut job: Job) -> Result<Self, BackfillError> {
        let lane = follower.trace_lane();
        let books = follower.books;
        let (chain, search) = (books.chain(), books.source.search());
        let reach = match job.to {
            Some(to) => books.check_range(job.from, to).await?,
            None if search == Search::ByAddress && job.proof == ReadProof::Full => {
                return Err(BackfillError::NoEnd { chain });
            }
            None if search == Search::ByRange && job.scope == Scope::All => return Err(BackfillError::NoEnd { chain }),
            None => books.newest_past().await?.ok_or(BackfillError::NothingFinal { chain })?,
        };
        if !job.dry_run {
            books.check_not_halted().await?;
        }
        let mut reader = books.db.read().await?;
        books.watch_list.follow(&mut reader).await?;
        let only = addresses(&books, &mut reader, &job.scope).await?;
        if only.is_empty() && job.to.is_none() {
            return Err(BackfillError::NoScope { chain });
        }
        drop(reader);
        let (mut until, mut has_end) = (reach, true);
        if job.to.is_none() {
            match (search, books.last_unwatched(&only).await?) {
                (Search::ByRange, None) => return Err(BackfillError::NoEnd { chain }),
                (Search::ByRange, Some(last)) => until = *job.to.insert(last),
                (Search::ByAddress, None) => has_end = false,
                (Search::ByAddress, Some(last)) => until = last.max(reach),
            }
            if search == Search::ByAddress && job.from > until.saturating_add(1) {
                return Err(BackfillError::Above { chain, from: job.from, until });
            }
        }
        // The number of the list as it is now: addresses that are added later are not claimed to be searched for.
        let seq = books.watch_list.seq();
        let basis = basis(&books, if only.is_empty() { seq } else { 0 });
        let span = books.traced_span(first_read(job.from), until);
        let traces = lane.filter(|_| span.is_some()).map(|lane| Traces { lane, window: Window::traces(), found: 0 });
        let progress = Progress::begun(job.from, until, span);
        let (mut roots, ahead) = (Window::roots(), VecDeque::new());
        roots.read.proof = job.proof;
        let mut backfill = Backfill {
            books,
            job,
            only,
            basis,
            progress,
            reach,
            has_end,
            roots,
            traces,
            untied: None,
            ahead,
            searched: None,
        };
        backfill.resume().await?;
        Ok(backfill)
    }

    /// Continues where the same job stopped, if it did.
    async fn resume(&mut self) -> Result<(), BackfillError> {
        if self.job.dry_run {
            return Ok(());
        }
        let mut reader = self.books.db.read().await?;
        let mut stopped = Vec::new();
        for row in self.rows() {
            let row = backfills::load(&mut reader, self.books.chain(), &row).await?;
            stopped.push(row.filter(|row| row.basis == self.basis));
        }
        // A job that is done starts again: nothing is recorded twice.
        if stopped.iter().flatten().all(|row| row.next > row.to) && stopped.iter().all(Option::is_some) {
            return Ok(());
        }
        let mut stopped = stopped.into_iter();
        if let Some(row) = stopped.next().flatten() {
            self.progress.proof = row.level;
            self.progress.next = row.next;
            self.progress.found = row.found;
        }
        if let (Some(row), Some(span), Some(traces)) =
            (stopped.next().flatten(), &mut self.progress.traces, &mut self.traces)
        {
            span.next = row.next;
            traces.found = row.found;
            self.progress.found += row.found;
        }
        Ok(())
    }

    /// Reads and records some blocks, or none while it waits ([`Backfill::waits_for`]). May be dropped at any await:
    /// what is not on record is read again.
    ///
    /// # Errors
    /// See [`TickError`]; of the failed step only what it had committed stays.
    pub async fn step(&mut self, now: Timestamp) -> Result<(), TickError> {
        if self.progress.next <= self.progress.until {
            self.look_for_more().await?;
            if self.waits_for().is_some() {
                return Ok(());
            }
            self.step_roots(now).await?;
        } else if let Some(span) = self.progress.untraced() {
            self.step_traces(span, now).await?;
        } else {
            return Ok(());
        }
        if !self.job.dry_run {
            let mut tx = self.books.db.begin().await?;
            for row in self.rows() {
                backfills::save(&mut tx, self.books.chain(), &row, now).await?;
            }
            tx.commit().await?;
        }
        Ok(())
    }

    /// Checks whether all that was waited for is final by now. A part of it does not count: each part would be a search
    /// of its own.
    async fn look_for_more(&mut self) -> Result<(), TickError> {
        if self.waits_for().is_some()
            && let Some(past) = self.books.newest_past().await?
            && past >= self.progress.until
        {
            self.reach = past;
        }
        Ok(())
    }

    async fn step_roots(&mut self, now: Timestamp) -> Result<(), TickError> {
        let (next, until) = (self.progress.next, self.progress.until.min(self.reach));
        let by_range = self.books.source.search() == Search::ByRange;
        let (blocks, through) = if self.job.proof == ReadProof::Candidate && (by_range || !self.only.is_empty()) {
            self.hits().await?
        } else {
            let Past { blocks, through } = self.books.final_blocks(next, until, &mut self.roots).await?;
            blocks.iter().for_each(|block| self.progress.stands_on(block.proof));
            let Full { blocks, unread } = self.in_full(blocks).await?;
            (blocks, unread.map_or(through, |number| number - 1))
        };
        if self.job.dry_run {
            self.progress.found += self.would_record(&blocks).await?;
        } else {
            let ticked = self.books.credit_final(&blocks, &wanted(&self.only), now).await?;
            self.progress.found += ticked.pending;
            self.progress.confirmed += ticked.confirmed;
        }
        self.ahead.retain(|hit| hit.number() > through);
        blocks.iter().for_each(|block| self.progress.stands_on(block.proof));
        self.progress.next = through + 1;
        Ok(())
    }

    /// Of blocks that were read with a weaker proof: those that concern us, read in full.
    async fn in_full(&self, blocks: Vec<Block>) -> Result<Full, TickError> {
        if self.job.proof == ReadProof::Full {
            return Ok(Full { blocks, unread: None });
        }
        let wanted = wanted(&self.only);
        let ours = blocks.iter().filter(|block| self.books.concerns(block, &wanted));
        let hits: Vec<Hit> = ours.map(|block| Hit::Tied(block.header.block)).collect();
        self.books.full_blocks(&hits).await
    }

    async fn step_traces(&mut self, span: Span, now: Timestamp) -> Result<(), TickError> {
        let Some(traces) = &mut self.traces else { return Ok(()) };
        let Past { blocks, through } = self.books.final_blocks(span.next, span.until, &mut traces.window).await?;
        let found = if self.job.dry_run {
            self.would_record(&blocks).await?
        } else {
            let traced = self.books.credit_traced(&traces.lane, &blocks, &wanted(&self.only), now).await?;
            self.progress.confirmed += traced.confirmed;
            self.progress.doubted += traced.doubted;
            traced.pending
        };
        self.progress.found += found;
        if let Some(traces) = &mut self.traces {
            traces.found += found;
            self.progress.traces = Some(Span { next: through + 1, ..span });
        }
        Ok(())
    }

    /// Some of the blocks that a search has named, and the number through which all is searched and read.
    async fn hits(&mut self) -> Result<(Vec<Block>, u64), TickError> {
        let (next, until) = (self.progress.next, self.progress.until.min(self.reach));
        let searched = match self.searched.filter(|searched| *searched >= next) {
            Some(searched) => searched,
            None => {
                let Backfill { books, only, untied, .. } = self;
                let all = |address: &Address| books.watch_list.contains(address);
                let watched = if only.is_empty() { Watched::Asked(&all) } else { Watched::Listed(only) };
                let found = match untied {
                    Some(found) => found,
                    None => untied.insert(books.search(next, until, watched).await?),
                };
                let scanned = books.scanned(next, found).await;
                // If an endpoint contradicts the search, it is made anew.
                if !matches!(scanned, Err(TickError::Source(_))) {
                    self.untied = None;
                }
                let scanned = scanned?;
                self.ahead = scanned.hits.into();
                self.progress.stands_on(scanned.proof);
                *self.searched.insert(scanned.through)
            }
        };
        let hits: Vec<Hit> = self.ahead.iter().take(STEP_HITS_MAX).copied().collect();
        let Full { blocks, unread } = self.books.full_blocks(&hits).await?;
        let of_these = if hits.len() < self.ahead.len() { hits.last().map(Hit::number) } else { None };
        let through = unread.map(|number| number - 1).or(of_these);
        Ok((blocks, through.unwrap_or(searched)))
    }

    async fn would_record(&self, blocks: &[Block]) -> Result<u64, TickError> {
        let wanted = wanted(&self.only);
        let mut reader = self.books.db.read().await?;
        let mut count = 0;
        for block in blocks {
            let matched = self.books.select(block);
            for leg in matched.watched_legs(&self.books.network).filter(|leg| wanted(leg.recipient())) {
                count += u64::from(deposits::by_leg(&mut reader, &leg.hash()).await?.is_none());
            }
        }
        Ok(count)
    }

    pub fn is_done(&self) -> bool {
        self.progress.is_done()
    }

    /// Whether it ends where it was asked to, or where `run` continues; on a chain that was never followed that is
    /// unknown.
    pub fn has_end(&self) -> bool {
        self.has_end
    }

    pub fn chain(&self) -> Chain {
        self.books.chain()
    }

    /// The last block to read, if the job waits until that is final and `run` has read it; else `None`.
    pub fn waits_for(&self) -> Option<u64> {
        let Progress { next, until, .. } = self.progress;
        (next <= until && next > self.reach).then_some(until)
    }

    /// How far a search of single addresses has come, which may take long within one step.
    pub fn searching(&self) -> Option<Searching> {
        self.books.source.searching()
    }

    /// The noun for what the progress counts.
    pub fn numbers(&self) -> &'static str {
        self.books.chain().family().numbers()
    }

    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Whether value that moves inside of transactions is left out.
    pub fn leaves_out_inner_value(&self) -> bool {
        self.books.network.leaves_out_inner_value()
    }

    /// Whether fees of watched payers may be left out. Where the chain itself logs its native currency, a search by
    /// logs reads no transactions, and no log shows a fee. On the OP stack transactions are read for their mints; there
    /// this is true although fees are not left out.
    pub fn leaves_out_fees(&self) -> bool {
        let native = self.books.network.native;
        let is_logged = native.eip7708_from.is_some_and(|from| from <= self.progress.until);
        self.job.proof == ReadProof::Candidate && (is_logged || native.source == NativeSource::LogTransfer)
    }

    /// The progress of each lane, for the record: the roots, then the traces if there are any.
    fn rows(&self) -> Vec<BackfillRow> {
        let Job { from, proof, .. } = self.job;
        let to = self.job.to.unwrap_or(NO_END);
        let scope = self.only.iter().map(Address::to_string).collect::<Vec<_>>().join(",");
        let of_lane = |lane: Lane, next: u64, found: u64, level: Option<Proof>| BackfillRow {
            from,
            to,
            proof,
            lane,
            scope: scope.clone(),
            basis: self.basis.clone(),
            next,
            found,
            level,
        };
        let Progress { next, until, found, proof: level, .. } = self.progress;
        let next = if next > until && self.job.to.is_none() { NO_END + 1 } else { next };
        let traced = self.traces.as_ref().map_or(0, |traces| traces.found);
        let mut rows = vec![of_lane(Lane::Block, next, found - traced, level)];
        // Where the last blocks need no trace, the end of the traces is the end of all.
        let through = |span: Span| if span.is_done() { until + 1 } else { span.next };
        rows.extend(self.progress.traces.map(|span| of_lane(Lane::Traces, through(span), traced, None)));
        rows
    }
}

/// Whether an address is in the scope; an empty scope is for all.
fn wanted(only: &BTreeSet<Address>) -> impl Fn(&Address) -> bool + Sync {
    move |address| only.is_empty() || only.contains(address)
}

/// The addresses of a scope; empty for all.
async fn addresses<S>(
    books: &Books<S>,
    connection: &mut impl Connection,
    scope: &Scope,
) -> Result<BTreeSet<Address>, BackfillError> {
    let chain = books.chain();
    match scope {
        Scope::All => Ok(BTreeSet::new()),
        Scope::Account(account) => {
            let addresses = accounts::addresses_of(connection, chain, account).await?;
            let no_address = || BackfillError::NoAddress { chain, account: account.clone() };
            if addresses.is_empty() { Err(no_address()) } else { Ok(addresses.into_iter().collect()) }
        }
        Scope::Addresses(addresses) => match addresses.iter().find(|address| !books.watch_list.contains(address)) {
            Some(address) => Err(BackfillError::NotWatched { chain, address: *address }),
            None => Ok(addresses.clone()),
        },
    }
}

/// What was searched for: the number of the newest watched address (0 for a job with addresses of its own), and a hash
/// of everything that decides credits.
fn basis<S: BlockSource>(books: &Books<S>, seq: u64) -> String {
    let mut hash = Sha256::new();
    let mut assets: Vec<String> = books.network.assets.iter().map(|asset| format!("{asset:?}\n")).collect();
    assets.sort_unstable();
    assets.iter().for_each(|asset| hash.update(asset));
    hash.update(format!("{:?}\n{}", books.network.native, books.source.rules()));
    format!("{seq}/{}", hex::encode(hash.finalize()))
}
