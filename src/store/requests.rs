//! Requests on record, so that a repeated one makes nothing new.
//!
//! A request is recorded in the transaction of what it makes. A second one waits at the unique key until the first one
//! ends. Then it reads what that recorded, or takes its place if that made nothing.

use crate::request::Request;
use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_optional, statements};
use crate::store::{Connection, ORGANIZATION, StoreError, Tx, hash};
use crate::time::Timestamp;

/// What is known of a request's id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Known {
    /// Nothing: the id is now this request's.
    New,
    /// The same request made this object.
    Same { object_id: String },
    /// Another request, which made this object, has this id.
    Other { object_id: String },
}

statements! {
    CLAIM = "INSERT INTO requests (organization_id, request_id, digest, object_id, created_us) VALUES ($1, $2, $3, $4, $5) \
             ON CONFLICT (organization_id, request_id) DO NOTHING";
    LOAD = "SELECT digest, object_id FROM requests WHERE organization_id = $1 AND request_id = $2";
}

/// Whether a request with this id is on record, be it the same or another.
pub async fn is_known(connection: &mut impl Connection, request: &Request) -> Result<bool, StoreError> {
    let recorded = fetch_optional!(connection, (Vec<u8>, String), LOAD, ORGANIZATION, &request.id)?;
    Ok(recorded.is_some())
}

/// Records `request`, which makes `object_id` in this transaction, unless its id is taken.
pub async fn claim(tx: &mut Tx, request: &Request, object_id: &str, now: Timestamp) -> Result<Known, StoreError> {
    let Request { id, digest } = request;
    let claimed = execute!(tx, CLAIM, ORGANIZATION, id, &digest[..], object_id, now.0)?;
    if claimed != 0 {
        expect_one("record a request", claimed)?;
        return Ok(Known::New);
    }
    let recorded = fetch_optional!(tx, (Vec<u8>, String), LOAD, ORGANIZATION, id)?;
    let (recorded, object_id) = recorded.ok_or_else(|| StoreError::inconsistent("request", "it is not there"))?;
    Ok(if hash("digest of a request", &recorded)? == *digest {
        Known::Same { object_id }
    } else {
        Known::Other { object_id }
    })
}
