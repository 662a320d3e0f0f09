//! Traces again what one endpoint alone reported, once two can report it: it may have left out a leg, and no deposit
//! and no witness would show that.
//!
//! Promises: a block that was traced while no second endpoint could be asked, or while it lagged, is later asked of
//! two, as long as the block is kept for finality. If they differ then, what each of them reports is recorded. If two
//! never reported any block, nothing is asked twice. It works beside the lane, which waits for none of this, and rarely
//! while it has no success.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use landfall_chain::{AddressSource, Block, BlockHash, BlockRef, BlockSource, Proof, Read, ReadProof, with_causes};
use tracing::{debug, warn};

use crate::store::cursors::Cursor;
use crate::store::traces::{self, Tried as Sought};
use crate::time::{Clock, Timestamp};
use crate::watcher::TickError;
use crate::watcher::error::or_reason;
use crate::watcher::read::FINAL_BLOCKS_KEPT;
use crate::watcher::retries::Retries;
use crate::watcher::traces::{LISTED, READS_AHEAD_MAX, Reading, TraceLane, Traced, is_disputed, needs_a_person};

/// How many of the newest blocks from one endpoint are considered.
const BLOCKS_MAX: u32 = 4_096;
/// How long a block waits before it is traced again: the second endpoint may only be late. Twice as long after each
/// failure. Also how long to wait after no success, or when nothing is due.
const PAUSE: Duration = Duration::from_secs(30);
const PAUSE_MAX: Duration = Duration::from_secs(600);

#[derive(Debug)]
pub(in crate::watcher) struct Again {
    /// When the next try is due.
    next: Timestamp,
    /// Whether two endpoints reported a block at the last try: then several are tried at once, without a pause.
    two_report: bool,
    /// The blocks from one endpoint.
    alone: Retries<BlockHash>,
}

/// What two endpoints report of a block.
enum SecondTrace {
    Alike(Box<Block>),
    Differently,
}

impl Default for Again {
    fn default() -> Self {
        Again { next: Timestamp::EPOCH, two_report: false, alone: Retries::new(PAUSE, PAUSE_MAX) }
    }
}

impl Again {
    /// Which of `alone`, blocks from one endpoint, newest first, to try now: those tried least, from both ends. Nodes
    /// forget the oldest, and so does the record.
    fn wanted(&mut self, alone: &[BlockRef], now: Timestamp) -> Vec<BlockRef> {
        let hashes: HashSet<BlockHash> = alone.iter().map(|block| block.hash).collect();
        self.alone.retain(|hash| hashes.contains(hash));
        for block in alone {
            if self.alone.tries(&block.hash) == 0 {
                self.put_off(block, now);
            }
        }
        let retries = &self.alone;
        let due = || alone.iter().filter(move |block| !retries.rests(&block.hash, now));
        let least = due().map(|block| retries.tries(&block.hash)).min();
        let mut due: VecDeque<BlockRef> =
            due().filter(|block| Some(retries.tries(&block.hash)) == least).copied().collect();
        let at_once = if self.two_report { READS_AHEAD_MAX } else { 1 };
        (0..at_once).map_while(|nth| if nth % 2 == 0 { due.pop_front() } else { due.pop_back() }).collect()
    }

    /// The block still stands on one endpoint's report.
    fn put_off(&mut self, block: &BlockRef, now: Timestamp) {
        self.alone.failed(block.hash, "one endpoint reported it".to_owned(), true, now);
    }
}

impl<S: BlockSource + AddressSource> TraceLane<S> {
    /// Traces again, beside the lane, until an error that needs a person.
    pub(in crate::watcher) async fn keep_tracing_again(&self, clock: &Clock) -> TickError {
        loop {
            match self.trace_again(clock.now()).await {
                Err(error) if needs_a_person(&error) => return error,
                // The lane meets this error too, and reports it.
                Err(error) => {
                    debug!(chain = %self.chain(), "what one endpoint told alone is not traced again for now: {}", with_causes(&error));
                    tokio::time::sleep(PAUSE).await;
                }
                Ok(_) => {
                    // If two report, it continues at once; otherwise `next` decides when.
                    let pause = if self.again().two_report { Duration::ZERO } else { self.settings.poll };
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Traces some of the blocks from one endpoint again, if two endpoints report blocks.
    ///
    /// # Errors
    /// Errors of the store. A trace that cannot be read is tried again later.
    pub async fn trace_again(&self, now: Timestamp) -> Result<Traced, TickError> {
        let mut traced = Traced::default();
        if self.again().next > now {
            return Ok(traced);
        }
        let mut wanted = self.reported_alone(now).await?;
        if !wanted.is_empty() && self.is_halted().await? {
            wanted.clear();
        }
        let mut reads =
            stream::iter(wanted).map(async |wanted| (wanted, self.ask_two(&wanted).await)).buffered(READS_AHEAD_MAX);
        let mut two_report = false;
        while let Some((wanted, read)) = reads.next().await {
            let (chain, number) = (self.chain(), wanted.number);
            match or_reason(read)? {
                Ok(Some(SecondTrace::Alike(block))) => {
                    two_report = true;
                    if let Err(reason) = or_reason(self.take_in_again(*block, now, &mut traced).await)? {
                        debug!(%chain, block = number, "what two tell is not recorded: {reason}");
                        self.again().put_off(&wanted, now);
                    }
                }
                Ok(Some(SecondTrace::Differently)) => {
                    two_report = true;
                    // No endpoint may know better any more: the block stays complete, and the legs wait for a witness.
                    warn!(%chain, block = number, "two endpoints tell different traces of a block that one told alone");
                    self.hear_each(&wanted, now, &mut Vec::new(), &mut traced).await?;
                    self.again().put_off(&wanted, now);
                }
                read @ (Ok(None) | Err(_)) => {
                    let reason = read.err().unwrap_or_else(|| "one endpoint tells it".to_owned());
                    debug!(%chain, block = number, "two do not tell the trace of the block: {reason}");
                    self.again().put_off(&wanted, now);
                }
            }
        }
        let mut again = self.again();
        again.two_report = two_report;
        if !two_report {
            again.next = now.plus(PAUSE);
        }
        Ok(traced)
    }

    /// Records what two endpoints report of a block, and judges it.
    async fn take_in_again(&self, block: Block, now: Timestamp, traced: &mut Traced) -> Result<(), TickError> {
        if self.record(&block, Reading::Whole, now, traced).await? {
            let tried = Sought { block: Some(block.header.block.hash), is_final: false, at: now };
            let doubted = self.keep_witnesses(&self.evidence_of(block, Reading::Whole)?, traced).await?;
            self.put_off_witness(doubted, tried, traced).await?;
        }
        Ok(())
    }

    /// The blocks to try now; none if two endpoints never reported one.
    async fn reported_alone(&self, now: Timestamp) -> Result<Vec<BlockRef>, TickError> {
        let (chain, mut reader) = (self.chain(), self.db.read().await?);
        if traces::reported_by(&mut reader, chain, Proof::TwoEndpoints).await?.is_none() {
            return Ok(Vec::new());
        }
        let finalized = Cursor::load(&mut reader, chain).await?.finalized;
        let from = finalized.map_or(0, |finalized| finalized.number.saturating_sub(FINAL_BLOCKS_KEPT));
        let mut alone = traces::reported_alone(&mut reader, chain, from, BLOCKS_MAX).await?;
        alone.retain(|block| self.network.native.is_traced(block.number));
        Ok(self.again().wanted(&alone, now))
    }

    /// What two endpoints report of `wanted`; `None` if only one does.
    async fn ask_two(&self, wanted: &BlockRef) -> Result<Option<SecondTrace>, TickError> {
        match self.read_again(wanted, Read { proof: ReadProof::Full, ..LISTED }).await {
            Ok(block) => Ok((block.proof == Proof::TwoEndpoints).then(|| SecondTrace::Alike(Box::new(block)))),
            Err(error) if is_disputed(&error) => Ok(Some(SecondTrace::Differently)),
            Err(error) => Err(error),
        }
    }
}
