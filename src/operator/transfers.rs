//! Operators cancel a transfer. The decision is in the audit; the sender carries it out.

use crate::operator::{DecideError, Operator};
use crate::store::attempts;
use crate::store::{Db, StoreError, transfers};
use crate::transfer::{Transfer, TransferId, TransferStatus};

/// Why a transfer was not cancelled.
#[derive(Debug, thiserror::Error)]
pub enum CancelError {
    #[error("no transfer {0} is on record; `landfall transfer list` shows those that are")]
    Unknown(TransferId),
    #[error("transfer {id} is {status} already, and stays so")]
    Ended { id: TransferId, status: TransferStatus },
    #[error(transparent)]
    Decide(#[from] DecideError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Operator<'_> {
    /// Asks for the end of a transfer: no payment of it is signed or sent from now on. Returns it, and whether its payer has
    /// signed, or may have: then it may still be paid until its deadline, or until the chain has taken the cancellation.
    ///
    /// # Errors
    /// See [`CancelError`].
    pub async fn cancel_transfer(&self, db: &Db, id: TransferId) -> Result<(Transfer, bool), CancelError> {
        let mut tx = self.begin(db).await?;
        let cancelled = transfers::cancel(&mut tx, id, self.now).await?;
        let transfer = transfers::by_id(&mut tx, id).await?.ok_or(CancelError::Unknown(id))?;
        if !cancelled {
            return Err(CancelError::Ended { id, status: transfer.state.status() });
        }
        let is_signed = !attempts::intents_of(&mut tx, id).await?.is_empty();
        self.write_down(&mut tx, transfer.chain, "cancel_transfer", &id.to_string()).await?;
        self.end(tx).await.map_err(DecideError::Store)?;
        Ok((transfer, is_signed))
    }
}
