//! Settles by witnesses that were kept (see `early_witness`). When the block is final, its hash is compared and its
//! roots are read again, which any full node has. No trace and no balance is asked for.
//!
//! Promises:
//! - What is CONFIRMED of a transaction, or inside of a block, never exceeds what the witnessed reading paid. It does
//!   not matter which reading confirmed the rest.
//! - FAILED only in a block that is final for all. Where a tier or an operator calls a block final earlier, `settle`
//!   may confirm by the same judgement, and does nothing else.
//! - Deposits of a network that is not traced any more are settled in the same way.

use landfall_chain::{AddressSource, Block, BlockRef, BlockSource, Lane, Network, U256};
use tracing::info;

use crate::deposit::{Deposit, DepositStatus};
use crate::store::cursors::{self, Cursor};
use crate::store::traces::Tried;
use crate::store::witnesses::{Kept, SeenInTrace};
use crate::store::{StoreError, Tx, traces, witnesses};
use crate::time::Timestamp;
use crate::watcher::TickError;
use crate::watcher::books::leg::shows;
use crate::watcher::books::leg::{paid_by, prove_signer};
use crate::watcher::error::or_reason;
use crate::watcher::settle::enter;
use crate::watcher::settle::evidence::{Excess, guard_sum, paid_in_tx};
use crate::watcher::settle::over_credit;
use crate::watcher::traces::balances::guard_block_sum;
use crate::watcher::traces::early_witness::Doubted;
use crate::watcher::traces::witness::FinalBy;
use crate::watcher::traces::{TraceLane, Traced};

/// What the reading that counts pays to a deposit's recipient in its asset.
#[derive(Clone, Copy, Debug)]
pub(in crate::watcher) struct Paid {
    /// By its transaction, inside and outside.
    pub(in crate::watcher) in_tx: U256,
    pub(in crate::watcher) in_block: U256,
}

/// What is to become of a deposit whose witness was kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::watcher) enum WitnessVerdict {
    Holds,
    /// The witness denies it.
    Denied,
    /// The roots contradict what was kept; why.
    Unfit(String),
    TooMuch(Excess),
}

impl<S: BlockSource + AddressSource> TraceLane<S> {
    /// Settles those of `due`, deposits of the final block `roots`, whose witness was kept.
    pub(in crate::watcher) async fn judge_kept(
        &self,
        roots: &Block,
        due: &[Deposit],
        final_by: FinalBy,
        now: Timestamp,
        traced: &mut Traced,
    ) -> Result<(), TickError> {
        let (chain, block) = (self.chain(), roots.header.block);
        let mut tx = self.db.begin().await?;
        // Also keeps the block canonical until the commit: disconnecting takes the same lock.
        let cursor = Cursor::lock(&mut tx, chain).await?;
        let is_final = match final_by {
            FinalBy::Record => cursor.finalized.is_some_and(|finalized| block.number <= finalized.number),
            FinalBy::Tie => true,
        };
        if !is_final || cursors::canonical_at(&mut tx, chain, block.number).await? != Some(block.hash) {
            return Ok(());
        }
        for SeenInTrace { deposit, kept } in witnesses::in_block(&mut tx, chain, &block.hash).await? {
            // Settled by another process since it was listed?
            let is_due = deposit.status == DepositStatus::Pending && due.iter().any(|due| due.id == deposit.id);
            if let Some(kept) = kept.filter(|_| is_due) {
                self.judge_one(&mut tx, roots, deposit, &kept, now, traced).await?;
            }
        }
        Ok(tx.commit().await?)
    }

    async fn judge_one(
        &self,
        tx: &mut Tx,
        roots: &Block,
        deposit: Deposit,
        kept: &Kept,
        now: Timestamp,
        traced: &mut Traced,
    ) -> Result<(), TickError> {
        let (chain, block) = (self.chain(), roots.header.block);
        match by_witness(tx, &self.network, roots, &deposit, kept).await? {
            WitnessVerdict::Holds => {}
            WitnessVerdict::Unfit(why) => {
                let tried = Tried { block: Some(block.hash), is_final: true, at: now };
                return self.doubt(tx, &Doubted { deposit, why, allowed: None }, tried, traced).await;
            }
            WitnessVerdict::Denied => {
                let why = format!("a trace showed it in final block {}, which is without it", block.number);
                return self.fail(tx, deposit, &why, now, traced).await;
            }
            WitnessVerdict::TooMuch(excess) => {
                return Ok(over_credit::hold(tx, &deposit, &block, &excess, now).await?);
            }
        }
        let deposit = paid_by(tx, deposit, kept.payer()).await?;
        traces::settled(tx, deposit.id).await?;
        info!(%chain, tx = %deposit.tx.id, block = block.number, "deposit {} confirmed", deposit.id);
        enter(tx, deposit.confirm(now)?, now).await?;
        traced.confirmed += 1;
        Ok(())
    }

    /// Why the block's trace is not read; `None` where it is.
    pub(in crate::watcher) fn not_traced(&self, block: &BlockRef) -> Option<String> {
        let (chain, number) = (self.chain(), block.number);
        (!self.network.native.is_traced(number)).then(|| {
            format!(
                "block {number} is not traced any more, by chains.{chain}.native or chains.{chain}.eip7708_from, and its trace \
                 had no second witness before; have it traced again until this is settled, or, where the chain's own logs \
                 tell what moves inside of transactions, read the block again (landfall backfill)"
            )
        })
    }

    /// Why blocks that were connected to be traced stay untraced; `None` where the lane will still come to them.
    pub(in crate::watcher) fn never_traced(&self) -> Option<String> {
        let chain = self.chain();
        (!self.is_traced()).then(|| {
            format!(
                "it is in no block of ours, and blocks that may show it were to be traced and are not any more, by \
                 chains.{chain}.native; have them traced again until this is settled"
            )
        })
    }
}

/// Judges a deposit by the roots of its block, read again, and what was kept of its trace.
pub(in crate::watcher) async fn by_witness(
    tx: &mut Tx,
    network: &Network,
    roots: &Block,
    deposit: &Deposit,
    kept: &Kept,
) -> Result<WitnessVerdict, TickError> {
    if let Some(why) = unfit(network, roots, deposit, kept)? {
        return Ok(WitnessVerdict::Unfit(why));
    }
    if !kept.is_shown {
        return Ok(WitnessVerdict::Denied);
    }
    let (block, by_roots) = (roots.header.block, paid_in_tx(&roots.transfers, deposit));
    // Where the chain's own logs show what moves inside, the roots include it by now: it must not count twice.
    let inside = if network.native.is_logged(block.number) { U256::ZERO } else { kept.paid_in_tx };
    let paid = Paid { in_tx: by_roots.saturating_add(inside), in_block: kept.paid_in_block };
    let excess = guard(tx, network, &block, paid, deposit).await?;
    Ok(excess.map_or(WitnessVerdict::Holds, WitnessVerdict::TooMuch))
}

/// Why the roots, read again, contradict what was kept; `None` where they do not.
fn unfit(network: &Network, roots: &Block, deposit: &Deposit, kept: &Kept) -> Result<Option<String>, TickError> {
    if let Err(why) = or_reason(prove_signer(&roots.signers, &deposit.tx).map_err(TickError::from))? {
        return Ok(Some(why));
    }
    if network.asset(&deposit.asset).is_none() {
        return Ok(Some("its asset is not listed any more".to_owned()));
    }
    let is_logged = network.native.is_logged(roots.header.block.number);
    Ok(match (kept.is_shown, shows(network, &roots.transfers, deposit)) {
        (false, true) => Some("a witness of the trace denies it, and the roots of its block show it".to_owned()),
        (true, false) if is_logged => {
            Some("a witness of the trace bears it out, and the chain's own logs do not show it".to_owned())
        }
        (true | false, _) => None,
    })
}

/// What would be credited in excess if the deposit became CONFIRMED; `None` if nothing.
pub(in crate::watcher) async fn guard(
    tx: &mut Tx,
    network: &Network,
    block: &BlockRef,
    paid: Paid,
    deposit: &Deposit,
) -> Result<Option<Excess>, StoreError> {
    match guard_sum(tx, Lane::Traces, paid.in_tx, deposit).await? {
        None => guard_block_sum(tx, network, block, paid.in_block, deposit).await,
        excess => Ok(excess),
    }
}
