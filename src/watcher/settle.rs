//! Settles: CONFIRMED or FAILED, on evidence from a final block of our own chain, read again and proved again.
//!
//! A block is final when the source's final block has the hash that our chain has at its number: then everything
//! below hangs on it by parent links. One comparison proves all of it, and nothing is settled before it holds.

use std::collections::BTreeMap;

use futures_util::{StreamExt, stream};
use landfall_chain::{Block, BlockRef, BlockSource, Fate, Read, Tip, U256};
use tracing::{info, warn};

use crate::deposit::{Deposit, DepositStatus};
use crate::store::Tx;
use crate::store::cursors::{self, Cursor};
use crate::store::deposits::{self, Missing};
use crate::time::Timestamp;
use crate::watcher::connect::{announce, leg_of};
use crate::watcher::{TickError, Ticked, Watcher};

/// How many deposits a tick settles at most, in how many blocks, and how many missing ones it looks for.
const TICK_DEPOSITS_MAX: u32 = 500;
const TICK_EVIDENCE_MAX: usize = 20;
const TICK_MISSING_MAX: u32 = 10;
/// How many blocks are read again at once.
const READS_AHEAD_MAX: usize = 4;

impl<S: BlockSource> Watcher<S> {
    pub(super) async fn settle(
        &self,
        at: &BlockRef,
        tip: &Tip,
        now: Timestamp,
        ticked: &mut Ticked,
    ) -> Result<(), TickError> {
        self.note_final(at, tip).await?;
        let mut reader = self.db.read().await?;
        let Some(finalized) = Cursor::load(&mut reader, self.chain()).await?.finalized else { return Ok(()) };
        let settleable = deposits::settleable(&mut reader, self.chain(), finalized.number, TICK_DEPOSITS_MAX).await?;
        let missing = deposits::missing(&mut reader, self.chain(), finalized.number, TICK_MISSING_MAX).await?;
        drop(reader);

        let list_is_cut = u32::try_from(settleable.len()) == Ok(TICK_DEPOSITS_MAX);
        let mut by_block: BTreeMap<u64, (BlockRef, Vec<Deposit>)> = BTreeMap::new();
        for settleable in settleable {
            let (_, deposits) =
                by_block.entry(settleable.block.number).or_insert_with(|| (settleable.block, Vec::new()));
            deposits.push(settleable.deposit);
        }
        let blocks_are_left = list_is_cut || by_block.len() > TICK_EVIDENCE_MAX;
        let missing_are_left = u32::try_from(missing.len()) == Ok(TICK_MISSING_MAX);
        let mut reads = stream::iter(by_block.into_values().take(TICK_EVIDENCE_MAX))
            .map(async |(seen_in, deposits)| (self.evidence(&seen_in).await, deposits))
            .buffered(READS_AHEAD_MAX);
        // What cannot be read now must not hold up the rest: it is told at the end.
        let mut unread = Ok(());
        while let Some((evidence, deposits)) = reads.next().await {
            match evidence {
                Ok(Some(evidence)) => self.judge(&evidence, deposits, now, ticked).await?,
                Ok(None) => {}
                Err(error) => unread = unread.and(Err(error)),
            }
        }
        for missing in missing {
            match self.trace(&missing.deposit, &finalized).await {
                Ok(trace) => self.look_for(missing, trace, &finalized, now, ticked).await?,
                Err(error) => unread = unread.and(Err(error)),
            }
        }
        // Blocks that cannot be read again yet must not be asked for in a tight loop.
        ticked.more_to_settle = missing_are_left || blocks_are_left && ticked.confirmed > 0;
        unread
    }

    /// Records the source's final block as ours, when it is and is newer than the one on record.
    async fn note_final(&self, at: &BlockRef, tip: &Tip) -> Result<(), TickError> {
        let Some(finalized) = tip.finalized.filter(|finalized| finalized.number <= at.number) else { return Ok(()) };
        let mut reader = self.db.read().await?;
        let known = Cursor::load(&mut reader, self.chain()).await?.finalized;
        drop(reader);
        if known.is_some_and(|known| known.number >= finalized.number) {
            return Ok(());
        }
        let mut tx = self.db.begin().await?;
        Cursor::lock(&mut tx, self.chain()).await?;
        match cursors::canonical_at(&mut tx, self.chain(), finalized.number).await? {
            Some(ours) if ours == finalized.hash => Cursor::finalize(&mut tx, self.chain(), &finalized).await?,
            Some(ours) => {
                let what = format!("block {finalized} is called final, but below {at} stands {ours} at its number");
                return Err(TickError::Contradiction { chain: self.chain(), what });
            }
            None => return Ok(()),
        }
        Ok(tx.commit().await?)
    }

    /// The final block `wanted`, read again; `None` while the source shows another one there.
    async fn evidence(&self, wanted: &BlockRef) -> Result<Option<Block>, TickError> {
        let blocks = self.source.blocks(wanted.number..=wanted.number, Read::FULL).await?;
        let evidence = blocks.into_iter().next().filter(|block| block.header.block == *wanted);
        if evidence.is_none() {
            warn!(chain = %self.chain(), "final block {wanted} cannot be read again yet; its deposits wait");
        }
        Ok(evidence)
    }

    /// Confirms the deposits of a final block, in one transaction. It is the very block that they were seen in, so a
    /// leg that is not in it now can only mean that we read it otherwise than then: no reason to fail a deposit.
    pub(super) async fn judge(
        &self,
        evidence: &Block,
        deposits: Vec<Deposit>,
        now: Timestamp,
        ticked: &mut Ticked,
    ) -> Result<(), TickError> {
        let mut tx = self.db.begin().await?;
        // Also keeps the block canonical until the commit: who disconnects takes the same lock.
        Cursor::lock(&mut tx, self.chain()).await?;
        let block = evidence.header.block;
        if !self.is_ours(&mut tx, &block).await? {
            return Ok(());
        }
        for deposit in deposits {
            // Settled by another process since it was listed?
            let recorded = deposits::by_leg(&mut tx, &deposit.leg_hash).await?;
            let Some(deposit) = recorded.filter(|recorded| recorded.status == DepositStatus::Pending) else { continue };
            if !self.has_leg(evidence, &deposit) {
                return Err(TickError::ReadOtherwise { chain: self.chain(), block, deposit: deposit.id });
            }
            self.guard_sum(&mut tx, evidence, &deposit).await?;
            info!(chain = %self.chain(), tx = %deposit.tx.id, block = block.number, "deposit {} confirmed", deposit.id);
            enter(&mut tx, deposit.confirm(now)?, now).await?;
            ticked.confirmed += 1;
        }
        Ok(tx.commit().await?)
    }

    /// Judges a deposit whose height is final and that is in no block of our chain.
    async fn look_for(
        &self,
        missing: Missing,
        (fate, evidence): (Fate, Option<Block>),
        finalized: &BlockRef,
        now: Timestamp,
        ticked: &mut Ticked,
    ) -> Result<(), TickError> {
        let Missing { deposit, since } = missing;
        let mut tx = self.db.begin().await?;
        Cursor::lock(&mut tx, self.chain()).await?;
        // Connected again meanwhile, or settled by another process? Then it is no longer missing.
        if !deposits::is_missing(&mut tx, &deposit, finalized.number).await? {
            return Ok(());
        }
        let found = match &evidence {
            Some(block) => self.is_ours(&mut tx, &block.header.block).await?.then_some(block),
            None => None,
        };
        let is_shown = evidence.as_ref().is_some_and(|block| self.has_leg(block, &deposit));
        let gone = since.is_some_and(|since| now.since(since) >= self.settings.failed_grace);
        let verdict = match (fate, found) {
            // Seen in a block of ours after all (it was read while its asset was not listed): settled from there.
            (_, Some(block)) if is_shown => {
                deposits::include(&mut tx, &deposit, &block.header.block).await?;
                return Ok(tx.commit().await?);
            }
            (_, Some(block)) if block.txs.contains(&deposit.tx.id) => {
                Some(format!("its transaction is in final block {} without it", block.header.block.number))
            }
            // A proved block at a final height holds it, but is not on our record (any more): no reason to fail it.
            (_, None) if is_shown => None,
            (Fate::Superseded(by), _) => {
                Some(format!("another transaction took its place by final block {}", by.number))
            }
            (Fate::In(block), _) if block.number > finalized.number => None,
            // In no block, or in one that is not on our final chain: stale words of an index.
            (Fate::In(_) | Fate::Unknown, _) => gone.then(|| "its transaction stayed in no block".to_owned()),
        };
        // What we would not see if it were there is not judged.
        match verdict.filter(|_| self.network.asset(&deposit.asset).is_some()) {
            Some(why) => self.fail(&mut tx, deposit, &why, now, ticked).await?,
            None => deposits::miss(&mut tx, deposit.id, finalized.number, now).await?,
        }
        Ok(tx.commit().await?)
    }

    async fn is_ours(&self, tx: &mut Tx, block: &BlockRef) -> Result<bool, TickError> {
        Ok(cursors::canonical_at(tx, self.chain(), block.number).await? == Some(block.hash))
    }

    /// What the source says became of the deposit's transaction, with the block, when it is a final one.
    async fn trace(&self, deposit: &Deposit, finalized: &BlockRef) -> Result<(Fate, Option<Block>), TickError> {
        let fate = self.source.fate(&deposit.tx, finalized).await?;
        let evidence = match fate {
            Fate::In(block) if block.number <= finalized.number => self.evidence(&block).await?,
            Fate::In(_) | Fate::Superseded(_) | Fate::Unknown => None,
        };
        Ok((fate, evidence))
    }

    async fn fail(
        &self,
        tx: &mut Tx,
        deposit: Deposit,
        why: &str,
        now: Timestamp,
        ticked: &mut Ticked,
    ) -> Result<(), TickError> {
        warn!(chain = %self.chain(), tx = %deposit.tx.id, "deposit {} failed: {why}", deposit.id);
        enter(tx, deposit.fail()?, now).await?;
        ticked.failed += 1;
        Ok(())
    }

    pub(super) fn has_leg(&self, block: &Block, deposit: &Deposit) -> bool {
        let chain_ref = &self.network.chain_ref;
        let is_listed = self.network.asset(&deposit.asset).is_some();
        let mut of_tx = block.transfers.iter().filter(|transfer| is_listed && transfer.tx.id == deposit.tx.id);
        of_tx.any(|transfer| leg_of(chain_ref, transfer).hash() == deposit.leg_hash)
    }

    /// Per transaction, asset and recipient, what is CONFIRMED never exceeds what was paid.
    async fn guard_sum(&self, tx: &mut Tx, evidence: &Block, deposit: &Deposit) -> Result<(), TickError> {
        let same = evidence.transfers.iter().filter(|transfer| {
            (transfer.tx.id, transfer.asset, transfer.recipient) == (deposit.tx.id, deposit.asset, deposit.recipient)
        });
        let paid = same.fold(U256::ZERO, |sum, transfer| sum.saturating_add(transfer.amount));
        let confirmed = deposits::confirmed_of(tx, deposit).await?;
        let credited = confirmed.iter().try_fold(deposit.amount, |sum, amount| sum.checked_add(*amount));
        match credited {
            Some(credited) if credited <= paid => Ok(()),
            Some(_) | None => Err(TickError::OverCredited {
                chain: self.chain(),
                tx: deposit.tx.id,
                credited: credited.map_or("more than 2^256".to_owned(), |credited| credited.to_string()),
                paid: paid.to_string(),
            }),
        }
    }
}

/// Writes the status that a PENDING deposit has left PENDING for, and its event.
async fn enter(tx: &mut Tx, deposit: Deposit, now: Timestamp) -> Result<(), TickError> {
    deposits::set_status(tx, &deposit, DepositStatus::Pending).await?;
    Ok(announce(tx, &deposit, now).await?)
}
