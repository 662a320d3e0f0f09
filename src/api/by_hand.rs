//! What operators ask for at the command line that clients ask for here: by the same forms, through the same doors, and with
//! the same refusals.
//!
//! Who asks is in the audit. Deliberately not here: keys, scopes and rates, which are of clients.

use std::collections::BTreeSet;

use landfall_chain::{Address, Chain, Network, Signer};

use crate::api::addresses::{self, NewAddressForm};
use crate::api::problem::Problem;
use crate::api::transfers::{self, NewTransferForm};
use crate::overrides::Author;
use crate::registry::{self, Terms};
use crate::request::Made;
use crate::store::Db;
use crate::transfer::Transfer;

/// Why nothing was done: what a client would be answered, and what it means.
#[derive(Debug, thiserror::Error)]
#[error("{code}: {detail}. {meaning}")]
pub struct Refusal {
    pub code: &'static str,
    pub detail: String,
    pub meaning: &'static str,
}

/// A transfer that is asked for, as a client would.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransferAsked {
    pub request_id: String,
    pub account_id: String,
    pub symbol: String,
    /// In the asset's major unit.
    pub amount: String,
    pub destination: String,
    pub chain: Chain,
}

/// Accepts a transfer on the chains of `networks`, once, with an entry in the audit. `dry_run` changes nothing.
///
/// # Errors
/// See [`Refusal`]: nothing was changed then.
pub async fn create_transfer(
    db: &Db,
    networks: &[Network],
    (terms, dry_run): (Terms, bool),
    asked: TransferAsked,
    by: &Author<'_>,
) -> Result<(Transfer, Made), Refusal> {
    let form = NewTransferForm::by_hand(asked);
    let field = form.destination_field();
    let order = form.read(networks)?;
    let accepted = registry::accept_transfer_by(db, &order, (terms, dry_run), by).await;
    Ok(accepted.map_err(|error| transfers::refusal(error, &order.asset, field))?)
}

/// Gives an account a further address on each family of the chains, once, with an entry in the audit. `dry_run` changes nothing.
///
/// # Errors
/// See [`Refusal`]: nothing was changed then.
pub async fn add_addresses(
    db: &Db,
    signer: Option<&dyn Signer>,
    account_id: &str,
    (request_id, chains): (String, &[Chain]),
    (dry_run, by): (bool, &Author<'_>),
) -> Result<(Vec<Address>, Made), Refusal> {
    let chains = chains.iter().map(|chain| chain.name().to_owned()).collect();
    let (request, chains) = NewAddressForm { request_id, chains }.read(account_id)?;
    // Operators see whose every address is.
    let refused = |error| addresses::refusal(error, true);
    let derived = registry::derive_further(db, signer, &request, account_id, &chains).await.map_err(refused)?;
    let would_be: BTreeSet<Address> = derived.addresses().map(|(_, address)| address).collect();
    // Of a request that is on record nothing is derived.
    if dry_run && !would_be.is_empty() {
        return Ok((would_be.into_iter().collect(), Made::Now));
    }
    Ok(registry::add_addresses(db, &request, account_id, &derived, by).await.map_err(refused)?)
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        let (code, detail) = (problem.code(), problem.detail().to_owned());
        Refusal { code: code.name(), detail, meaning: code.meaning() }
    }
}
