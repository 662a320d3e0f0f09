//! Leases: who does the work that only one process may do at a time. Each has an end and an epoch.
//!
//! Promises: each time a lease is taken it has a higher epoch, and [`hold`] succeeds only for the newest one. Called
//! first in a transaction, it locks the row to its end: the holder writes what else that transaction writes, or nobody
//! does, however long a process was paused. Processes' clocks decide only who waits for whom, never who may write.

use std::time::Duration;

use crate::store::sql::{execute, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx};
use crate::time::Timestamp;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lease {
    name: String,
    owner: String,
    epoch: i64,
}

statements! {
    ENSURE = "INSERT INTO leases (name, owner, epoch, expires_us) VALUES ($1, '', 0, 0) ON CONFLICT (name) DO NOTHING";
    EXPIRES = "SELECT expires_us FROM leases WHERE name = $1";
    HOLDER = "SELECT owner FROM leases WHERE name = $1 AND expires_us > $2";
    TAKE = "UPDATE leases SET owner = $2, epoch = epoch + 1, expires_us = $4 \
            WHERE name = $1 AND (expires_us <= $3 OR expires_us > $5) RETURNING epoch";
    HOLD = "UPDATE leases SET expires_us = $4 WHERE name = $1 AND owner = $2 AND epoch = $3";
}

/// An end beyond this was written by a clock that is ahead: nobody waits for it. It allows for a lease that was renewed
/// after we read our clock, which ends a little later than ours would.
fn farthest(now: Timestamp, time: Duration) -> Timestamp {
    now.plus(time * 2)
}

/// Who has the lease, as its process called itself; `None` where it ran out.
pub async fn holder(
    connection: &mut impl Connection,
    name: &str,
    now: Timestamp,
) -> Result<Option<String>, StoreError> {
    Ok(fetch_optional!(connection, (String,), HOLDER, name, now.0)?.map(|(owner,)| owner))
}

/// Whether the lease seems free: a cheap check before [`take`].
pub async fn is_free(
    connection: &mut impl Connection,
    name: &str,
    now: Timestamp,
    time: Duration,
) -> Result<bool, StoreError> {
    let row = fetch_optional!(connection, (i64,), EXPIRES, name)?;
    Ok(row.is_none_or(|(expires,)| expires <= now.0 || expires > farthest(now, time).0))
}

/// Takes the lease until `time` from now on; `None` while another process has it.
pub async fn take(
    tx: &mut Tx,
    name: &str,
    owner: &str,
    now: Timestamp,
    time: Duration,
) -> Result<Option<Lease>, StoreError> {
    execute!(tx, ENSURE, name)?;
    let (expires, farthest) = (now.plus(time).0, farthest(now, time).0);
    let row = fetch_optional!(tx, (i64,), TAKE, name, owner, now.0, expires, farthest)?;
    Ok(row.map(|(epoch,)| Lease { name: name.to_owned(), owner: owner.to_owned(), epoch }))
}

/// Keeps the lease until then, and keeps all others from it until the end of the transaction. False if another process
/// has taken it: then this transaction must write nothing.
pub async fn hold(tx: &mut Tx, lease: &Lease, until: Timestamp) -> Result<bool, StoreError> {
    Ok(execute!(tx, HOLD, &lease.name, &lease.owner, lease.epoch, until.0)? == 1)
}

/// Lets another process take the lease at once; false if one already has.
pub async fn release(tx: &mut Tx, lease: &Lease) -> Result<bool, StoreError> {
    hold(tx, lease, Timestamp::EPOCH).await
}
