//! Limits how many new token accounts of recipients sponsors pay for: the recipient may close the account and keep its
//! rent.
//!
//! A transfer beyond the limit is not sent. It waits and is tried again up to its deadline.

use std::time::Duration;

use landfall_chain::{Sending, U256};

use crate::sender::open::OpenTransfer;
use crate::store::{StoreError, Tx, attempts};
use crate::time::Timestamp;
use crate::transfer::Transfer;

const DAY: Duration = Duration::from_secs(24 * 3_600);
/// An account that is missing within so long after it was paid for was closed: it is not paid for again.
const PAID_FOR: Duration = Duration::from_secs(30 * 24 * 3_600);

/// Why no account of the token is paid for now; `None` where it is. What an attempt of the transfer pays for already counts
/// once.
pub(super) async fn refused(
    tx: &mut Tx,
    of: &OpenTransfer,
    sending: &Sending,
    now: Timestamp,
) -> Result<Option<String>, StoreError> {
    if of.attempts.iter().any(|attempt| attempt.guarding.is_some_and(|guarding| guarding.makes_account)) {
        return Ok(None);
    }
    let (transfer, to, per_day) = (&of.transfer, of.transfer.destination, sending.new_accounts_per_day);
    let least = least_of(sending, transfer);
    if transfer.amount < least {
        let what = format!("{to} has no account of the token, and none is paid for with less than {least} base units");
        return Ok(Some(what));
    }
    if attempts::is_account_paid_for(tx, transfer, now.minus(PAID_FOR)).await? {
        return Ok(Some(format!("{to} closed its account of the token, which was paid for within 30 days")));
    }
    let made = attempts::accounts_of_payer(tx, transfer, now.minus(DAY)).await?;
    let why = format!("{to} has no account of the token, and {per_day} new ones are paid for within a day");
    Ok((made >= per_day.into()).then_some(why))
}

/// The least that is paid into a new account, in base units of the transfer's token, rounded up.
fn least_of(sending: &Sending, transfer: &Transfer) -> U256 {
    let scale = |digits: u8| U256::from(10).saturating_pow(U256::from(digits));
    let units = U256::from(sending.new_account_least).saturating_mul(scale(transfer.decimals));
    units.div_ceil(scale(Sending::LEAST_DECIMALS))
}
