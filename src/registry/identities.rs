//! Identities, as operators and clients register them.
//!
//! Registering the same identity again changes nothing, whoever does it. Another one under the same id is refused.

use uuid::Uuid;

use crate::identity::{self, IdError, Identity, LabelError, NewIdentity};
use crate::overrides::Author;
use crate::registry::{ReplayError, record};
use crate::request::{Made, Request};
use crate::store::requests::{self, Known};
use crate::store::{Db, ORGANIZATION, StoreError, identities};
use crate::time::Timestamp;

/// Why an operator's identity was not registered.
#[derive(Debug, thiserror::Error)]
pub enum AddIdentityError {
    #[error(transparent)]
    Id(#[from] IdError),
    #[error(transparent)]
    Label(#[from] LabelError),
    #[error("identity id {id}: a UUID of version 8 names a deposit or an event; choose another id, or another version")]
    OfDeposits { id: String },
    #[error("identity {id} is there already, with another type, label or entitlement")]
    Other { id: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Registers an identity under an id that the operator chose. No such id may be that of a deposit: its events would get
/// the places of the deposit's events.
///
/// # Errors
/// See [`AddIdentityError`].
pub async fn add_identity(db: &Db, id: &str, new: &NewIdentity, now: Timestamp) -> Result<Identity, AddIdentityError> {
    identity::check_id("identity id", id)?;
    if Uuid::parse_str(id).is_ok_and(|uuid| uuid.get_version_num() == 8) {
        return Err(AddIdentityError::OfDeposits { id: id.to_owned() });
    }
    identity::check_label(&new.label)?;
    let mut tx = db.begin().await?;
    let identity = identities::ensure(&mut tx, id, new, now).await?;
    if !identity.is(new) {
        return Err(AddIdentityError::Other { id: id.to_owned() });
    }
    tx.commit().await?;
    Ok(identity)
}

/// Registers the identity that a request asks for, once, with an entry in the audit; returns its id.
///
/// # Errors
/// When another request had this id.
pub async fn open_identity(
    db: &Db,
    request: &Request,
    new: &NewIdentity,
    by: &Author<'_>,
) -> Result<(String, Made), ReplayError> {
    let now = by.now;
    let id = request.object_id("idn", ORGANIZATION);
    let mut tx = db.begin().await?;
    match requests::claim(&mut tx, request, &id, now).await? {
        Known::New => {}
        Known::Same { object_id } => return Ok((object_id, Made::Before)),
        Known::Other { .. } => return Err(ReplayError::Mismatch),
    }
    // An operator may have registered it again under this id.
    if !identities::ensure(&mut tx, &id, new, now).await?.is(new) {
        return Err(ReplayError::Mismatch);
    }
    record(&mut tx, by, "open_identity", &id).await?;
    tx.commit().await?;
    Ok((id, Made::Now))
}
