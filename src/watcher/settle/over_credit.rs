//! Deposits that are credited and were not paid, or would be: an incident for each, which a person resolves.
//!
//! CONFIRMED is never left. If an accepted reorg disconnects a deposit's block, the deposit stays CONFIRMED. It is
//! listed until its leg is final again or a person has resolved it; to resolve it means that the credit was undone in
//! the books of the service. Until then, what else its transaction pays to the same recipient is not confirmed beyond
//! what the chain shows. That stays PENDING and is listed too; nothing else waits for it.

use landfall_chain::{BlockRef, Chain, Lane};
use tracing::{error, info};

use crate::deposit::{Deposit, DepositStatus};
use crate::incident::{Incident, IncidentKind};
use crate::store::cursors::Cursor;
use crate::store::deposits::{self, SeenIn, Settleable};
use crate::store::{StoreError, Tx, incidents};
use crate::time::Timestamp;
use crate::watcher::TickError;
use crate::watcher::books::Books;
use crate::watcher::settle::evidence::Excess;

const KIND: IncidentKind = IncidentKind::OverCredited;

/// Opens an incident for each CONFIRMED deposit above the fork point of an accepted reorg. Called before the blocks are
/// disconnected.
pub(in crate::watcher) async fn taken_back(
    tx: &mut Tx,
    chain: Chain,
    fork_point: &BlockRef,
    now: Timestamp,
) -> Result<(), StoreError> {
    for Settleable { deposit, block } in deposits::confirmed_in(tx, chain, fork_point.number).await? {
        let what = format!(
            "deposit {} of {} base units in transaction {} is CONFIRMED, and an accepted reorg took back block {block}, \
             which it was in. When its leg is in a final block again, this is resolved by itself, unless only a trace \
             shows it; then compare, and resolve it. When its transaction \
             cannot be mined any more, take the credit back in your books, then `landfall incident resolve`: here it \
             stays CONFIRMED",
            deposit.id, deposit.amount, deposit.tx.id
        );
        meet(tx, &deposit, &block, what, now).await?;
    }
    Ok(())
}

/// Leaves a deposit of a final block PENDING, because its transaction would be credited with more than it paid.
pub(in crate::watcher) async fn hold(
    tx: &mut Tx,
    deposit: &Deposit,
    block: &BlockRef,
    Excess { credited, paid, of }: &Excess,
    now: Timestamp,
) -> Result<(), StoreError> {
    let what = format!(
        "deposit {} is in final block {block} and stays PENDING: with it, {credited} base units would be confirmed of \
         what {of} paid to {}, and it paid {paid}. See the incidents of the transaction's CONFIRMED deposits: \
         when one of them is resolved, this one is looked at again",
        deposit.id, deposit.recipient
    );
    meet(tx, deposit, block, what, now).await
}

async fn meet(
    tx: &mut Tx,
    deposit: &Deposit,
    block: &BlockRef,
    what: String,
    now: Timestamp,
) -> Result<(), StoreError> {
    let incident = Incident::open(deposit.chain, KIND, what, Some(block.number), now).about(deposit.id);
    if incidents::meet(tx, &incident).await? {
        error!(chain = %deposit.chain, tx = %deposit.tx.id, "incident {} on {}: {}", incident.id, deposit.chain, incident.what);
    }
    Ok(())
}

impl<S> Books<S> {
    /// Resolves the incidents of deposits that are paid after all, and of those that FAILED. What only a trace shows is
    /// resolved by a person.
    pub(in crate::watcher) async fn close_over_credited(&self, now: Timestamp) -> Result<(), TickError> {
        if incidents::of_deposits(&mut self.db.read().await?, self.chain(), KIND).await?.is_empty() {
            return Ok(());
        }
        let mut tx = self.db.begin().await?;
        let Cursor { finalized, .. } = Cursor::lock(&mut tx, self.chain()).await?;
        let through = finalized.map_or(0, |finalized| finalized.number);
        for incident in incidents::of_deposits(&mut tx, self.chain(), KIND).await? {
            let Some(id) = incident.deposit else { continue };
            let status = deposits::by_id(&mut tx, id).await?.map(|deposit| deposit.status);
            let seen_in = deposits::seen_in(&mut tx, id).await?;
            let why = match (status, seen_in) {
                (Some(DepositStatus::Confirmed), Some(SeenIn { block, lane: Lane::Block, canonical: true, .. }))
                    if block.number <= through =>
                {
                    format!("its leg is in final block {block}")
                }
                (Some(DepositStatus::Failed), _) => "it is FAILED".to_owned(),
                _ => continue,
            };
            info!(chain = %self.chain(), "incident {} is over: {why}", incident.id);
            incidents::resolve(&mut tx, &incident.id, &why, now).await?;
        }
        Ok(tx.commit().await?)
    }
}
