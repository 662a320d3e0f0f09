//! What operators decide about identities: suspended, reinstated, terminated. Each with who and why on record.
//!
//! Nothing stops watching: an account that is frozen or closed by it still gets money, and its deposits are recorded.

use crate::identity::{Change, DEFAULT_IDENTITY, Identity, InvalidTransition};
use crate::operator::{DecideError, Operator};
use crate::store::identities::{self, Decided};
use crate::store::{Db, StoreError};

/// Why an identity was not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeIdentityError {
    #[error("there is no identity {0}; `landfall identity list` shows those that are")]
    Unknown(String),
    #[error("identity {id}: {error}")]
    Refused { id: String, error: InvalidTransition },
    #[error("the identity {DEFAULT_IDENTITY} cannot be terminated: accounts that name no identity belong to it")]
    Default,
    #[error(transparent)]
    Decide(#[from] DecideError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Operator<'_> {
    /// Changes an identity's status; the identity after it.
    ///
    /// # Errors
    /// See [`ChangeIdentityError`].
    pub async fn change_identity(&self, db: &Db, id: &str, change: Change) -> Result<Identity, ChangeIdentityError> {
        if id == DEFAULT_IDENTITY && change == Change::Terminate {
            return Err(ChangeIdentityError::Default);
        }
        let mut tx = self.begin(db).await?;
        let before = identities::lock(&mut tx, id).await?.ok_or_else(|| ChangeIdentityError::Unknown(id.to_owned()))?;
        let refused = |error| ChangeIdentityError::Refused { id: id.to_owned(), error };
        let after = before.change(change).map_err(refused)?;
        let decided = Decided { at: self.now, actor: self.actor, reason: self.reason };
        identities::change(&mut tx, &before, &after, &decided).await?;
        tx.commit().await?;
        Ok(after)
    }
}
