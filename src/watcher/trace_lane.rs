//! The lane of the traces: value that moves inside of transactions, which no root covers, found behind the lane of the
//! roots and beside it. A worker of its own, so that a slow or failing trace never delays a token by one poll.
//!
//! Promises: it traces only what is connected, and records it only while that is canonical, in one transaction; a block
//! is complete for the native currency when its trace is on record, and until then `traced` stays below it.
//! It moves no cursor and takes nothing back: what is disconnected is the other lane's to see. What it found is settled
//! in `witness`.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use landfall_chain::{AddressSource, Block, BlockRef, BlockSource, Chain, Lane, Legs, Network, Read, ReadProof, Retry};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::store::cursors::{self, Cursor};
use crate::store::{Db, StoreError, accounts, traces};
use crate::time::{Clock, Pulse, Timestamp};
use crate::watcher::connect::{FINAL_BLOCKS_KEPT, WatchedLeg, prove_signer};
use crate::watcher::movements::{self, Whose};
use crate::watcher::report::chain_of;
use crate::watcher::watch_list::WatchList;
use crate::watcher::{HEARTBEAT, RETRY_MAX, Settings, TickError};

/// How many blocks a tick traces at most, from each end of what is untraced.
const TICK_BLOCKS_MAX: u32 = 8;
/// How many traces are read at once.
const READS_AHEAD_MAX: usize = 4;
/// How often an unchanged state is recorded.
const SAY_EVERY: Duration = Duration::from_secs(1);

/// Reads the traces of one chain.
#[derive(Debug)]
pub struct TraceLane<S> {
    pub(super) source: S,
    pub(super) db: Db,
    pub(super) network: Network,
    pub(super) settings: Settings,
    watch_list: WatchList,
}

/// What a tick of the lane did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traced {
    /// Blocks whose traces are on record now.
    pub traced: u64,
    /// Deposits that became PENDING, also again.
    pub pending: u64,
    pub confirmed: u64,
    pub failed: u64,
    /// Deposits that were not witnessed and are tried again later.
    pub doubted: u64,
    /// There is more than one tick takes.
    pub more: bool,
}

/// Records that a network is not traced (any more), so that nobody waits for its traces.
///
/// # Errors
/// When the store cannot be written.
pub async fn not_traced(db: &Db, chain: Chain) -> Result<(), StoreError> {
    let mut tx = db.begin().await?;
    traces::forget(&mut tx, chain).await?;
    tx.commit().await
}

impl<S> TraceLane<S> {
    pub(super) fn new(source: S, db: Db, network: Network, settings: Settings, watch_list: WatchList) -> Self {
        TraceLane { source, db, network, settings, watch_list }
    }

    pub(super) fn chain(&self) -> Chain {
        self.network.chain
    }

    /// Writes why the lane does not get on, and how far it is.
    ///
    /// # Errors
    /// When the store cannot be written.
    pub async fn say(&self, reason: &str, now: Timestamp) -> Result<(), StoreError> {
        let mut tx = self.db.begin().await?;
        traces::say(&mut tx, self.chain(), reason, now).await?;
        tx.commit().await
    }
}

impl<S: BlockSource + AddressSource> TraceLane<S> {
    /// One bounded step: trace what is connected, settle what is final.
    ///
    /// # Errors
    /// What was committed before the error stays; what cannot be traced now holds up nothing that can.
    pub async fn tick(&self, now: Timestamp) -> Result<Traced, TickError> {
        self.watch_list.follow(&mut self.db.read().await?).await?;
        let mut traced = Traced::default();
        let untraced = self.trace(now, &mut traced).await;
        let settled = self.settle(now, &mut traced).await;
        untraced.and(settled)?;
        Ok(traced)
    }

    /// Ticks until `stop`, which may come at any await. Books that contradict themselves stop it for a person; a trace
    /// that cannot be had, for whatever reason, is asked for again.
    pub async fn run(self, clock: Clock, random: fn() -> u64, pulse: Pulse, stop: CancellationToken) {
        let mut retry = Retry::new(self.settings.poll, RETRY_MAX);
        let (mut said, mut said_at) = (String::new(), Timestamp::EPOCH);
        loop {
            let outcome = tokio::select! {
                () = stop.cancelled() => return,
                outcome = beating(self.tick(clock.now()), &clock, &pulse) => outcome,
            };
            let (pause, reason) = match &outcome {
                Ok(traced) => {
                    retry.reset();
                    (if traced.more { Duration::ZERO } else { self.settings.poll }, String::new())
                }
                Err(error) => (retry.next_delay(random()), chain_of(error)),
            };
            if reason != said {
                self.log(&reason);
            }
            if reason != said || clock.now().since(said_at) >= SAY_EVERY {
                match self.say(&reason, clock.now()).await {
                    Ok(()) => (said, said_at) = (reason, clock.now()),
                    Err(error) => warn!(chain = %self.chain(), "the state of the traces was not recorded: {error}"),
                }
            }
            if let Err(error) = &outcome
                && !error.may_pass()
                && !matches!(error, TickError::Source(_))
            {
                error!(chain = %self.chain(), "the traces of {} are halted until a restart: {error}", self.chain());
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = beating(std::future::pending::<()>(), &clock, &pulse) => {}
                }
                return;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Traces the oldest and the newest blocks that have not been traced.
    async fn trace(&self, now: Timestamp, traced: &mut Traced) -> Result<(), TickError> {
        let untraced = traces::untraced(&mut self.db.read().await?, self.chain(), TICK_BLOCKS_MAX).await?;
        let list_is_cut = u32::try_from(untraced.len()).is_ok_and(|count| count >= TICK_BLOCKS_MAX);
        let read = Read { lane: Lane::Traces, proof: ReadProof::Listed, legs: Legs::Creditable };
        let mut reads =
            stream::iter(untraced).map(async |wanted| self.read_again(&wanted, read).await).buffered(READS_AHEAD_MAX);
        let mut unread = Ok(());
        while let Some(block) = reads.next().await {
            let recorded = match block {
                Ok(block) => self.record(&block, now, traced).await,
                Err(error) => Err(error),
            };
            unread = unread.and(recorded);
        }
        traced.more = list_is_cut && traced.traced > 0;
        unread
    }

    /// The very block `wanted`.
    pub(super) async fn read_again(&self, wanted: &BlockRef, read: Read) -> Result<Block, TickError> {
        let blocks = self.source.blocks(wanted.number..=wanted.number, read).await?;
        blocks.into_iter().find(|block| block.header.block == *wanted).ok_or_else(|| {
            let what = format!("the {} of block {wanted} are asked for, and it is not shown", read.lane.name());
            TickError::Contradiction { chain: self.chain(), what }
        })
    }

    /// Records what a trace shows of a block, in one transaction; nothing when it was disconnected meanwhile, and
    /// nothing twice.
    pub(super) async fn record(&self, block: &Block, now: Timestamp, traced: &mut Traced) -> Result<(), TickError> {
        let (chain, at, network) = (self.chain(), &block.header.block, &self.network);
        let mut tx = self.db.begin().await?;
        let cursor = Cursor::lock(&mut tx, chain).await?;
        if cursors::canonical_at(&mut tx, chain, at.number).await? != Some(at.hash) {
            return Ok(());
        }
        if !self.watch_list.is_current(cursor.watch_seq) {
            self.watch_list.follow(&mut tx).await?;
        }
        let mut pending = 0;
        for leg in block.transfers.iter().filter_map(|transfer| WatchedLeg::of(transfer, network, &self.watch_list)) {
            // The list is newer than the block: who was added behind it is watched from a later one.
            let from = accounts::watched_from(&mut tx, chain, &leg.transfer.recipient).await?;
            if from.is_some_and(|from| from <= at.number) {
                prove_signer(&block.signers, &leg.transfer.tx)?;
                pending += u64::from(leg.record(&mut tx, block, Lane::Traces, now).await?);
            }
        }
        movements::record(&mut tx, network, &self.watch_list, block, Lane::Traces, Whose::WatchedThen).await?;
        traces::mark(&mut tx, chain, at).await?;
        // The other lane has kept it for this one and does not come back to it.
        let kept_from = cursor.finalized.map_or(0, |finalized| finalized.number.saturating_sub(FINAL_BLOCKS_KEPT));
        if at.number < kept_from {
            cursors::prune(&mut tx, chain, at.number, at.number + 1).await?;
        }
        tx.commit().await?;
        traced.traced += 1;
        traced.pending += pending;
        Ok(())
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

/// Does `work`, and says meanwhile that the worker is there: a trace may take longer than a pulse.
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
