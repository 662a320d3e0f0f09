//! The lane of the traces: finds value that moves inside of transactions, which no root covers, beside and behind the
//! lane of the roots. It is a worker of its own, so that a slow or failing trace never delays a token by one poll.
//!
//! Promises:
//! - Where two endpoints trace, both are asked at once, and the proof of each block's trace is on record.
//! - A block that cannot be traced is put off alone.
//! - It traces only connected blocks, and records a trace only while its block is canonical, in one transaction.
//! - A block is complete for the native currency when its trace is on record; until then `traced` stays below it. A
//!   block that two endpoints report differently is not complete, but each report is recorded: balances may decide
//!   which is right.
//! - A block that was connected to be traced, and that the chain's own logs cover by now, is read by its logs. What
//!   they show belongs to the lane of the roots.
//! - It moves no cursor and disconnects nothing: the other lane does.
//!
//! What it found is witnessed in `early_witness` and settled in `witness`. What one endpoint alone reported is traced
//! again in `trace_again`.

pub(super) mod balances;
pub(super) mod choices;
pub(super) mod early_witness;
pub(super) mod trace_again;
pub(super) mod witness;

use std::ops::Deref;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use landfall_chain::{
    AddressSource, Block, BlockRef, BlockSource, Lane, Legs, Native, NativeSource, Network, Proof, Read, ReadProof,
    Retry, with_causes,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::store::cursors::{self, Cursor};
use crate::store::traces::TraceFailure;
use crate::store::{Db, StoreError, native_settings, traces, witnesses};
use crate::time::{Clock, Pulse, Timestamp};
use crate::watcher::books::Books;
use crate::watcher::books::record::Whose;
use crate::watcher::error::or_reason;
use crate::watcher::read::FINAL_BLOCKS_KEPT;
use crate::watcher::traces::trace_again::Again;
use crate::watcher::traces::witness::pause_after;
use crate::watcher::{HEARTBEAT, RETRY_MAX, Settings, TickError, halted};

/// How many blocks a tick traces at most: from each end of what is untraced, and of those that failed before.
const TICK_BLOCKS_MAX: u32 = 8;
/// How many traces are read at once.
pub(in crate::watcher) const READS_AHEAD_MAX: usize = 4;
/// When a second endpoint takes longer than this and reports nothing, one is asked alone for a while: a second endpoint
/// that never answers must not delay every deposit.
const SECOND_WAIT_MAX: Duration = Duration::from_secs(2);
const ALONE: Duration = Duration::from_secs(60);
/// How often an unchanged state is recorded.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// A read from one endpoint.
pub(in crate::watcher) const LISTED: Read =
    Read { lane: Lane::Traces, proof: ReadProof::Candidate, legs: Legs::Creditable };

#[derive(Debug)]
pub struct TraceLane<S> {
    books: Books<S>,
    pub(in crate::watcher) settings: Settings,
    /// When a block was last traced, by this worker's clock.
    traced_at: AtomicI64,
    /// Until when one endpoint is asked alone.
    alone_until: AtomicI64,
    again: Mutex<Again>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traced {
    /// Blocks whose traces are on record now.
    pub traced: u64,
    /// Deposits that became PENDING, including those that became so again.
    pub pending: u64,
    pub confirmed: u64,
    pub failed: u64,
    /// Deposits whose presence in their block, or absence, has a second witness now.
    pub witnessed: u64,
    /// Deposits that were not witnessed and are tried again later.
    pub doubted: u64,
    /// Blocks that could not be traced, while others could, and are tried again later.
    pub put_off: u64,
    /// More is left than one tick handles.
    pub more: bool,
}

/// Whether a reading of a block's traces is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::watcher) enum Reading {
    Whole,
    /// Another endpoint reported the block differently.
    Disputed,
}

/// Records that a network is not traced (any more), so that nothing waits for its traces. Returns whether the lane
/// still has work:
/// - deposits found by traces are not settled yet;
/// - an older process may still find some;
/// - blocks that were to be traced must still be read by the chain's own logs.
///
/// # Errors
/// When the store cannot be written.
pub async fn not_traced(db: &Db, network: &Network) -> Result<bool, StoreError> {
    let (chain, mut tx) = (network.chain, db.begin().await?);
    traces::forget(&mut tx, chain).await?;
    let are_unread = match read_from(&network.native) {
        Some(from) => traces::are_untraced(&mut tx, chain, from..=u64::MAX).await?,
        None => false,
    };
    let newest = native_settings::newest(&mut tx, chain).await?.map(|(_, newest)| newest.source);
    let was_traced = newest == Some(NativeSource::Trace) && newest != Some(network.native.source);
    let is_work_left = are_unread || was_traced || witnesses::are_left(&mut tx, chain).await?;
    tx.commit().await?;
    Ok(is_work_left)
}

/// From which number on blocks that were connected to be traced can be read: by their traces, or by the chain's own
/// logs if those show what moves inside. `None` if neither is possible.
fn read_from(native: &Native) -> Option<u64> {
    match native.source {
        NativeSource::Trace | NativeSource::LogTransfer => Some(0),
        NativeSource::TopLevel => native.eip7708_from,
    }
}

/// Source, store, network and watch list are the lane's own.
impl<S> Deref for TraceLane<S> {
    type Target = Books<S>;

    fn deref(&self) -> &Books<S> {
        &self.books
    }
}

impl<S> TraceLane<S> {
    pub(in crate::watcher) fn new(books: Books<S>, settings: Settings) -> Self {
        let (traced_at, alone_until) = (AtomicI64::new(i64::MIN), AtomicI64::new(i64::MIN));
        let again = Mutex::default();
        TraceLane { books, settings, traced_at, alone_until, again }
    }

    pub(in crate::watcher) fn again(&self) -> MutexGuard<'_, Again> {
        self.again.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the network is traced. If it is not any more, the lane only settles what it found before.
    pub(in crate::watcher) fn is_traced(&self) -> bool {
        self.network.native.source == NativeSource::Trace
    }

    /// The lane that shows what moves inside of the transactions of block `number`: its trace, or the logs, which its
    /// roots prove.
    fn lane_of(&self, number: u64) -> Lane {
        if self.network.native.is_traced(number) { Lane::Traces } else { Lane::Block }
    }

    /// Writes why the lane makes no progress, and how far it is.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn say(&self, reason: &str, now: Timestamp) -> Result<(), StoreError> {
        let mut tx = self.db.begin().await?;
        traces::say(&mut tx, self.chain(), reason, now).await?;
        tx.commit().await
    }

    /// Writes the state of the lane; where the network is not traced, only trouble and its end.
    async fn report(&self, reason: &str, now: Timestamp) -> Result<(), StoreError> {
        if self.is_traced() || !reason.is_empty() {
            return self.say(reason, now).await;
        }
        let mut tx = self.db.begin().await?;
        traces::forget(&mut tx, self.chain()).await?;
        tx.commit().await
    }
}

impl<S: BlockSource + AddressSource> TraceLane<S> {
    /// One bounded step: trace what is connected, seek witnesses of what was found, settle what is final.
    ///
    /// # Errors
    /// What was committed before the error stays. What cannot be traced now delays nothing that can.
    pub async fn tick(&self, now: Timestamp) -> Result<Traced, TickError> {
        if self.is_halted().await? {
            return Ok(Traced::default());
        }
        self.watch_list.follow(&mut self.db.read().await?).await?;
        let mut traced = Traced::default();
        let mut fresh = Vec::new();
        let untraced = self.trace(now, &mut fresh, &mut traced).await;
        let witnessed = self.seek_witnesses(fresh, now, &mut traced).await;
        let settled = self.settle(now, &mut traced).await;
        untraced.and(witnessed).and(settled)?;
        Ok(traced)
    }

    /// Whether a person halted the chain: that halts this lane too. If the other lane has halted it, traces are still
    /// read, because nodes forget them, but nothing is settled.
    pub(in crate::watcher) async fn is_halted(&self) -> Result<bool, TickError> {
        let halted = halted(&mut self.db.read().await?, self.chain()).await?;
        Ok(matches!(halted, Some(TickError::HaltedByOperator { .. })))
    }

    /// Ticks until `stop`, which may come at any await. It halts for a person if the books contradict themselves. A
    /// trace that cannot be read, for whatever reason, is requested again.
    pub async fn run(self, clock: Clock, random: fn() -> u64, pulse: Pulse, stop: CancellationToken) {
        let error = tokio::select! {
            () = stop.cancelled() => return,
            error = self.keep_tracing(&clock, random, &pulse) => error,
            error = self.keep_tracing_again(&clock) => error,
        };
        error!(chain = %self.chain(), "the traces of {} are halted until a restart: {error}", self.chain());
        tokio::select! {
            () = stop.cancelled() => {}
            () = beating(std::future::pending::<()>(), &clock, &pulse) => {}
        }
    }

    /// Ticks until an error that needs a person.
    async fn keep_tracing(&self, clock: &Clock, random: fn() -> u64, pulse: &Pulse) -> TickError {
        let mut retry = Retry::new(self.settings.poll, RETRY_MAX);
        let (mut said, mut said_at) = (String::new(), Timestamp::EPOCH);
        loop {
            let outcome = beating(self.tick(clock.now()), clock, pulse).await;
            let (pause, reason) = match &outcome {
                Ok(traced) => {
                    retry.reset();
                    (if traced.more { Duration::ZERO } else { self.settings.poll }, String::new())
                }
                Err(error) => (retry.next_delay(random()), with_causes(error)),
            };
            if reason != said {
                self.log(&reason);
            }
            let is_due = self.is_traced() && clock.now().since(said_at) >= SAY_EVERY;
            if reason != said || is_due {
                match self.report(&reason, clock.now()).await {
                    Ok(()) => (said, said_at) = (reason, clock.now()),
                    Err(error) => warn!(chain = %self.chain(), "the state of the traces was not recorded: {error}"),
                }
            }
            match outcome {
                Err(error) if needs_a_person(&error) => return error,
                _ => tokio::time::sleep(pause).await,
            }
        }
    }

    /// Traces the oldest and the newest blocks that have not been traced, and those that failed and are due again. Adds
    /// those that concern us to `fresh`.
    async fn trace(&self, now: Timestamp, fresh: &mut Vec<Block>, traced: &mut Traced) -> Result<(), TickError> {
        let Some(from) = read_from(&self.network.native) else { return Ok(()) };
        let untraced = traces::untraced(&mut self.db.read().await?, self.chain(), from, now, TICK_BLOCKS_MAX).await?;
        let list_is_cut = u32::try_from(untraced.len()).is_ok_and(|count| count >= TICK_BLOCKS_MAX);
        let mut reads = stream::iter(untraced)
            .map(async |wanted| (wanted, self.first_read(&wanted, now).await))
            .buffered(READS_AHEAD_MAX);
        let (mut failed, mut others) = (Vec::new(), false);
        while let Some((wanted, block)) = reads.next().await {
            let recorded = match block {
                Ok(block) => self.take_in(block, Reading::Whole, now, fresh, traced).await,
                Err(error) => {
                    if is_disputed(&error) {
                        self.hear_each(&wanted, now, fresh, traced).await?;
                    }
                    Err(error)
                }
            };
            match recorded {
                // No endpoint was asked for a trace.
                Ok(Proof::Roots) => {}
                Ok(Proof::Bloom | Proof::TwoEndpoints | Proof::OneEndpoint) => {
                    others = true;
                    self.traced_at.store(now.0, Ordering::Relaxed);
                }
                Err(error @ (TickError::Source(_) | TickError::Contradiction { .. })) => failed.push((wanted, error)),
                Err(error) => return Err(error),
            }
        }
        drop(reads);
        traced.more = list_is_cut && traced.traced > 0;
        self.put_off(failed, others, now, traced).await
    }

    /// The block as two endpoints trace it, or as one does if there is no second; by its logs where those show it.
    async fn first_read(&self, wanted: &BlockRef, now: Timestamp) -> Result<Block, TickError> {
        if self.lane_of(wanted.number) == Lane::Block {
            return self.read_again(wanted, Read::FULL).await;
        }
        let is_alone = now.0 < self.alone_until.load(Ordering::Relaxed);
        let proof = if is_alone { ReadProof::Candidate } else { ReadProof::Full };
        let begun = Instant::now();
        let block = self.read_again(wanted, Read { proof, ..LISTED }).await?;
        if !is_alone && block.proof == Proof::OneEndpoint && begun.elapsed() > SECOND_WAIT_MAX {
            self.alone_until.store(now.plus(ALONE).0, Ordering::Relaxed);
        }
        Ok(block)
    }

    /// Records a reading, and adds it to `fresh` if it concerns us; returns its proof.
    async fn take_in(
        &self,
        block: Block,
        reading: Reading,
        now: Timestamp,
        fresh: &mut Vec<Block>,
        traced: &mut Traced,
    ) -> Result<Proof, TickError> {
        let concerns_us = self.record(&block, reading, now, traced).await?;
        let proof = block.proof;
        if concerns_us && block.inside.is_some() {
            fresh.push(block);
        }
        Ok(proof)
    }

    /// Records what each of two endpoints reports of a block on which they differ. Whether it counts as traced stays as
    /// it was.
    pub(in crate::watcher) async fn hear_each(
        &self,
        wanted: &BlockRef,
        now: Timestamp,
        fresh: &mut Vec<Block>,
        traced: &mut Traced,
    ) -> Result<(), TickError> {
        for _ in 0..2 {
            let Ok(block) = or_reason(self.read_again(wanted, LISTED).await)? else { continue };
            or_reason(self.take_in(block, Reading::Disputed, now, fresh, traced).await)?.ok();
        }
        Ok(())
    }

    /// Puts failed blocks off, each by itself, longer each time while `others` can be traced, now or since the block
    /// was last tried. When none can, the blocks are not the cause, and the first error is returned.
    async fn put_off(
        &self,
        failed: Vec<(BlockRef, TickError)>,
        others: bool,
        now: Timestamp,
        traced: &mut Traced,
    ) -> Result<(), TickError> {
        if failed.is_empty() {
            return Ok(());
        }
        let (chain, traced_at) = (self.chain(), self.traced_at.load(Ordering::Relaxed));
        let mut all = Ok(());
        let mut tx = self.db.begin().await?;
        for (block, error) in failed {
            let before = traces::failure(&mut tx, chain, &block).await?;
            let is_its_own = others || before.is_some_and(|before| traced_at > before.tried_at.0);
            let tries = before.map_or(0, |before| before.tries).saturating_add(u32::from(is_its_own));
            // The first failure may be a momentary one; so is every failure while nothing can be traced.
            let pause = if is_its_own && tries > 1 { pause_after(tries - 2) } else { Duration::ZERO };
            let reason = with_causes(&error);
            if is_its_own && tries == 2 {
                warn!(%chain, block = block.number, "block {} cannot be traced and is put off: {reason}", block.number);
            }
            let failure = TraceFailure { tries, tried_at: now };
            traces::put_off(&mut tx, chain, &block, failure, now.plus(pause), &reason).await?;
            if is_its_own {
                traced.put_off += 1;
            } else {
                all = all.and(Err(error));
            }
        }
        tx.commit().await?;
        all
    }

    /// Reads the very block `wanted`.
    pub(in crate::watcher) async fn read_again(&self, wanted: &BlockRef, read: Read) -> Result<Block, TickError> {
        let blocks = self.source.blocks(wanted.number..=wanted.number, read).await?;
        blocks.into_iter().find(|block| block.header.block == *wanted).ok_or_else(|| {
            let what = format!("the {} of block {wanted} are asked for, and it is not shown", read.lane.name());
            TickError::Contradiction { chain: self.chain(), what }
        })
    }

    /// The block's traces as two endpoints report them, or as one does if there is no second or the two differ. If they
    /// differ, an address that either reports as created may have run code.
    pub(in crate::watcher) async fn read_traces(&self, wanted: &BlockRef) -> Result<(Block, Reading), TickError> {
        match self.read_again(wanted, Read { proof: ReadProof::Full, ..LISTED }).await {
            Err(error) if is_disputed(&error) => {
                let other = self.read_again(wanted, LISTED).await?;
                let mut one = self.read_again(wanted, LISTED).await?;
                if let (Some(inside), Some(other)) = (one.inside.as_mut().map(Arc::make_mut), other.inside) {
                    inside.ran_code.extend(other.ran_code.iter().copied());
                }
                Ok((one, Reading::Disputed))
            }
            read => Ok((read?, Reading::Whole)),
        }
    }

    /// Records what a trace shows of a block, or its logs, in one transaction. Nothing is recorded if it was
    /// disconnected meanwhile, and nothing twice. Returns whether the block concerns us: it pays us, or moves what is
    /// ours away.
    pub(in crate::watcher) async fn record(
        &self,
        block: &Block,
        reading: Reading,
        now: Timestamp,
        traced: &mut Traced,
    ) -> Result<bool, TickError> {
        let (chain, at) = (self.chain(), &block.header.block);
        let mut matched = self.select(block);
        let mut tx = self.db.begin().await?;
        let cursor = Cursor::lock(&mut tx, chain).await?;
        if cursors::canonical_at(&mut tx, chain, at.number).await? != Some(at.hash) {
            return Ok(false);
        }
        self.select_again(&mut tx, &cursor, block, &mut matched).await?;
        let door = (self.lane_of(at.number), Whose::WatchedThen);
        let recorded = self.record_block(&mut tx, &cursor, &matched, door, now).await?;
        if reading == Reading::Whole {
            traces::mark(&mut tx, chain, at, block.proof).await?;
            // The other lane has kept it for this one and does not return to it.
            let kept_from = cursor.finalized.map_or(0, |finalized| finalized.number.saturating_sub(FINAL_BLOCKS_KEPT));
            if at.number < kept_from {
                cursors::prune(&mut tx, chain, at.number, at.number + 1).await?;
            }
        }
        tx.commit().await?;
        traced.traced += u64::from(reading == Reading::Whole);
        traced.pending += recorded.pending;
        Ok(recorded.concerns_us)
    }

    fn log(&self, reason: &str) {
        let chain = self.chain();
        if reason.is_empty() {
            info!(%chain, "the traces of {chain} are read again");
        } else {
            warn!(
                %chain,
                "the traces of {chain} cannot be read and will be tried again: {reason}; if its nodes offer none, declare \
                 native = \"top_level\" and do without the value that moves inside of transactions"
            );
        }
    }
}

/// Whether the lane halts at this error: a node's response about a trace never halts it.
pub(in crate::watcher) fn needs_a_person(error: &TickError) -> bool {
    !error.may_pass() && !matches!(error, TickError::Source(_))
}

pub(in crate::watcher) fn is_disputed(error: &TickError) -> bool {
    matches!(error, TickError::Source(error) if error.is_disputed)
}

/// Does `work`, and reports meanwhile that the worker is alive: a trace may take longer than a pulse.
async fn beating<T>(work: impl Future<Output = T>, clock: &Clock, pulse: &Pulse) -> T {
    tokio::pin!(work);
    loop {
        pulse.beat(clock.now());
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(HEARTBEAT) => {}
        }
    }
}
