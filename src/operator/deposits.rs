//! What a person decides about a doubtful deposit: a trace reported it, and neither balances nor two engines decide.
//!
//! Promises: only a doubtful deposit in a canonical block is decided. A person cannot confirm what balances exclude,
//! nor more of a block than they allow. A decided deposit is settled like any other, once its block is final.

use landfall_chain::{Address, U256};

use crate::deposit::{Deposit, DepositId, DepositStatus};
use crate::operator::{DecideError, Operator};
use crate::store::cursors::Cursor;
use crate::store::witnesses::{Kept, SeenInTrace, WitnessedBy};
use crate::store::{Db, StoreError, deposits, traces, witnesses};

/// Why a deposit was not decided.
#[derive(Debug, thiserror::Error)]
pub enum DecideDepositError {
    #[error("there is no deposit {0}; `landfall deposit list` shows those that are")]
    Unknown(DepositId),
    #[error("deposit {id} is {status}, which nobody changes")]
    Settled { id: DepositId, status: DepositStatus },
    #[error(
        "deposit {0}: the balances of its recipient exclude it, so that nobody can confirm it; it fails when its block is final"
    )]
    Excluded(DepositId),
    #[error(
        "deposit {id}: the balances of {recipient} allow {allowed} base units inside of its block, and {believed} of them are \
         those of other deposits, which are CONFIRMED or decided"
    )]
    TooMuch { id: DepositId, recipient: Address, allowed: U256, believed: U256 },
    #[error(
        "deposit {0} is not doubtful: it is settled without a person; `landfall deposit show` says what it waits for"
    )]
    NotDoubtful(DepositId),
    #[error(transparent)]
    Decide(#[from] DecideError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Operator<'_> {
    /// Decides whether a doubtful deposit was paid; returns the deposit.
    ///
    /// # Errors
    /// See [`DecideDepositError`].
    pub async fn decide_deposit(&self, db: &Db, id: DepositId, paid: bool) -> Result<Deposit, DecideDepositError> {
        let mut tx = self.begin(db).await?;
        let deposit = deposits::by_id(&mut tx, id).await?.ok_or(DecideDepositError::Unknown(id))?;
        // The watcher takes the same lock to judge deposits.
        Cursor::lock(&mut tx, deposit.chain).await?;
        if deposit.status != DepositStatus::Pending {
            return Err(DecideDepositError::Settled { id, status: deposit.status });
        }
        let doubt = match witnesses::doubt_in(&mut tx, id).await? {
            Some(doubt) => doubt,
            None if !paid && traces::give_up(&mut tx, id).await? => {
                self.write_down(&mut tx, deposit.chain, "decide_deposit", &format!("{id} fail")).await?;
                self.end(tx).await?;
                return Ok(deposit);
            }
            None if witnesses::is_excluded(&mut tx, id).await? => return Err(DecideDepositError::Excluded(id)),
            None => return Err(DecideDepositError::NotDoubtful(id)),
        };
        let sighted = witnesses::in_block(&mut tx, deposit.chain, &doubt.block.hash).await?;
        let to_it = |it: &&SeenInTrace| (it.deposit.recipient, it.deposit.asset) == (deposit.recipient, deposit.asset);
        let others = || sighted.iter().filter(to_it).filter(|it| it.deposit.id != id);
        let believed = sum(others().filter(|it| is_believed(it)));
        if let Some(allowed) = doubt.allowed.filter(|_| paid)
            && believed.checked_add(deposit.amount).is_none_or(|sum| sum > allowed)
        {
            return Err(DecideDepositError::TooMuch { id, recipient: deposit.recipient, allowed, believed });
        }
        let of_tx = others().filter(|it| it.deposit.tx.id == deposit.tx.id);
        let kept = Kept {
            by: WitnessedBy::Person,
            is_shown: paid,
            sender: deposit.sender,
            paid_in_tx: doubt.allowed.unwrap_or_else(|| sum(of_tx).saturating_add(deposit.amount)),
            paid_in_block: doubt.allowed.unwrap_or_else(|| sum(others()).saturating_add(deposit.amount)),
        };
        witnesses::keep(&mut tx, deposit.chain, id, &doubt.block.hash, &kept).await?;
        let what = format!("{id} {} in block {}", if paid { "confirm" } else { "fail" }, doubt.block.number);
        self.write_down(&mut tx, deposit.chain, "decide_deposit", &what).await?;
        self.end(tx).await?;
        Ok(deposit)
    }
}

fn is_believed(SeenInTrace { deposit, kept }: &SeenInTrace) -> bool {
    deposit.status == DepositStatus::Confirmed
        || deposit.status == DepositStatus::Pending && kept.is_some_and(|kept| kept.is_shown)
}

fn sum<'s>(sighted: impl Iterator<Item = &'s SeenInTrace>) -> U256 {
    sighted.fold(U256::ZERO, |sum, it| sum.saturating_add(it.deposit.amount))
}
