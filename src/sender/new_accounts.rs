//! Limits how many new token accounts of recipients sponsors pay for: the recipient may close the account and keep its
//! rent.
//!
//! A transfer beyond the limit is not sent. It waits and is tried again up to its deadline.

use std::time::Duration;

use crate::sender::open::OpenTransfer;
use crate::store::{StoreError, Tx, attempts};
use crate::time::Timestamp;

const DAY: Duration = Duration::from_secs(24 * 3_600);
/// An account that is missing within so long after it was paid for was closed: it is not paid for again.
const PAID_FOR: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Why no account of the token is paid for now; `None` where it is. What an attempt of the transfer pays for already counts
/// once.
pub(super) async fn refused(
    tx: &mut Tx,
    of: &OpenTransfer,
    per_day: u32,
    now: Timestamp,
) -> Result<Option<String>, StoreError> {
    if of.attempts.iter().any(|attempt| attempt.guarding.is_some_and(|guarding| guarding.makes_account)) {
        return Ok(None);
    }
    let (transfer, to) = (&of.transfer, of.transfer.destination);
    if attempts::is_account_paid_for(tx, transfer, now.minus(PAID_FOR)).await? {
        return Ok(Some(format!("{to} closed its account of the token, which was paid for within 30 days")));
    }
    let made = attempts::accounts_of_payer(tx, transfer, now.minus(DAY)).await?;
    let why = format!("{to} has no account of the token, and {per_day} new ones are paid for within a day");
    Ok((made >= per_day.into()).then_some(why))
}
