//! What operators decide about identities: suspended, reinstated, terminated. Each change is recorded with who and why,
//! and announced by events, in one transaction.
//!
//! Nothing stops watching: an account that is frozen or closed by it still receives money, and its deposits are
//! recorded.

use crate::event::{AFFECTED_ACCOUNTS_MAX, IdentityChanged, IdentityEvent};
use crate::identity::{Change, DEFAULT_IDENTITY, Identity, InvalidTransition};
use crate::operator::{DecideError, Operator};
use crate::store::identities::{self, Decided};
use crate::store::{Db, StoreError, Tx, events};

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
    /// Changes an identity's status; returns the identity after the change.
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
        let changed = IdentityChanged { before: &before, after: &after, reason: self.reason, at: self.now };
        announce(&mut tx, &changed).await?;
        self.record(&mut tx, audited(change), id).await?;
        self.end(tx).await?;
        Ok(after)
    }
}

/// The name of a change in the audit.
fn audited(change: Change) -> &'static str {
    match change {
        Change::Suspend => "suspend_identity",
        Change::Reinstate => "reinstate_identity",
        Change::Terminate => "terminate_identity",
    }
}

/// Writes the event of a change; several if the identity has more accounts than one event names. An account that is
/// opened meanwhile waits for the identity's lock, or was opened before it was taken.
async fn announce(tx: &mut Tx, changed: &IdentityChanged<'_>) -> Result<(), StoreError> {
    let id = &changed.after.id;
    let mut position = events::next_position(tx, id).await?;
    let mut last = None;
    loop {
        let (accounts, next) = identities::accounts_behind(tx, id, last.as_ref(), AFFECTED_ACCOUNTS_MAX).await?;
        // An identity without accounts gets one event. After a full last part there is no empty event.
        if last.is_none() || !accounts.is_empty() {
            events::append_identity(tx, &IdentityEvent::changed(changed, &accounts, position), changed.at).await?;
            position += 1;
        }
        if next.is_none() {
            return Ok(());
        }
        last = next;
    }
}
