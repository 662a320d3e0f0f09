//! All SQL, and nothing but SQL: each file is a table or two, each function a statement or two over domain types.
//!
//! The owner of an invariant opens the transaction (the watcher, the delivery, the CLI) and passes it in. An UPDATE
//! repeats the old state in its WHERE, and its caller gets the number of rows that it touched. No rule lives here.
//!
//! # Errors
//! Every function here fails in the same way, with a [`StoreError`], and its doc does not repeat this. The error is one
//! that [`StoreError::may_pass`] if the database was away or busy. It needs a person if a constraint, a number of rows
//! or a stored value contradicts the books.

pub mod account_pages;
pub mod accounts;
pub mod ahead;
pub mod asset_facts;
pub mod attempts;
pub mod audit;
pub mod authorizations;
pub mod backfills;
pub mod balances;
pub mod cancellations;
pub mod clearings;
pub mod coverage;
pub mod cursors;
mod db;
pub mod delegates;
pub mod deliveries;
pub mod deposit_pages;
pub mod deposits;
pub mod endpoints;
mod error;
pub mod events;
pub mod feed;
pub mod gas_ledger;
pub mod guards;
pub mod halts;
pub mod identities;
pub mod incidents;
pub mod journals;
pub mod keys;
pub mod leases;
pub mod marks;
pub mod movements;
pub mod native_settings;
pub mod nonces;
pub mod overrides;
pub mod policies;
pub mod prices;
pub mod recoveries;
pub mod refills;
pub mod replay;
pub mod requests;
pub mod sender_reports;
pub mod shared_clock;
pub mod sinks;
pub mod spends;
pub mod sponsor_books;
pub mod sponsors;
mod sql;
pub mod status;
pub mod traces;
pub mod transfers;
pub mod unattributed;
pub mod unexplained;
pub mod wallets;
pub mod webhooks;
pub mod witnesses;

use landfall_chain::Address;

pub use db::{Db, MIGRATIONS, Pools, Reader, StoreUrl, Tx};
pub use error::{OpenError, StoreError};
pub use sql::{Connection, Engine, Sql};

/// The one organization of this deployment. Keys, accounts and webhooks carry it, so that to have more takes only a
/// migration.
pub const ORGANIZATION: &str = "default";

/// Every SQL text of the store, for the test that prepares each on both engines.
pub fn statements() -> impl Iterator<Item = Sql> {
    [
        account_pages::STATEMENTS,
        accounts::STATEMENTS,
        ahead::STATEMENTS,
        asset_facts::STATEMENTS,
        attempts::STATEMENTS,
        audit::STATEMENTS,
        authorizations::STATEMENTS,
        backfills::STATEMENTS,
        balances::STATEMENTS,
        cancellations::STATEMENTS,
        clearings::STATEMENTS,
        coverage::STATEMENTS,
        cursors::STATEMENTS,
        db::STATEMENTS,
        delegates::STATEMENTS,
        deliveries::STATEMENTS,
        deposit_pages::STATEMENTS,
        deposits::STATEMENTS,
        endpoints::STATEMENTS,
        events::STATEMENTS,
        feed::STATEMENTS,
        gas_ledger::STATEMENTS,
        guards::STATEMENTS,
        halts::STATEMENTS,
        identities::STATEMENTS,
        incidents::STATEMENTS,
        journals::STATEMENTS,
        keys::STATEMENTS,
        leases::STATEMENTS,
        marks::STATEMENTS,
        movements::STATEMENTS,
        native_settings::STATEMENTS,
        nonces::STATEMENTS,
        overrides::STATEMENTS,
        policies::STATEMENTS,
        prices::STATEMENTS,
        recoveries::STATEMENTS,
        refills::STATEMENTS,
        replay::STATEMENTS,
        requests::STATEMENTS,
        sender_reports::STATEMENTS,
        shared_clock::STATEMENTS,
        sinks::STATEMENTS,
        spends::STATEMENTS,
        sponsor_books::STATEMENTS,
        sponsors::STATEMENTS,
        status::STATEMENTS,
        traces::STATEMENTS,
        transfers::STATEMENTS,
        unattributed::STATEMENTS,
        unexplained::STATEMENTS,
        wallets::STATEMENTS,
        webhooks::STATEMENTS,
        witnesses::STATEMENTS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// Addresses of one chain as a statement takes them.
struct Listed {
    /// Concatenated.
    bytes: Vec<u8>,
    /// How many bytes each has.
    width: i32,
    len: i32,
}

impl Listed {
    fn of(addresses: &[Address]) -> Self {
        let width = addresses.first().map_or(0, |address| address.as_bytes().len());
        let bytes = addresses.iter().flat_map(|address| address.as_bytes()).copied().collect();
        let [width, len] = [width, addresses.len()].map(|count| i32::try_from(count).unwrap_or(i32::MAX));
        Listed { bytes, width, len }
    }
}

/// A number as the database keeps it. Numbers beyond 2^63 do not occur and saturate.
fn int(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

/// A number as the database kept it.
fn uint<T: TryFrom<i64>>(what: &'static str, number: i64) -> Result<T, StoreError> {
    T::try_from(number).map_err(|_| StoreError::inconsistent(what, number))
}

fn parsed<T: std::str::FromStr<Err: ToString>>(what: &'static str, text: &str) -> Result<T, StoreError> {
    text.parse().map_err(|error: T::Err| StoreError::inconsistent(what, error.to_string()))
}

fn hash(what: &'static str, bytes: &[u8]) -> Result<[u8; 32], StoreError> {
    bytes.try_into().map_err(|_| StoreError::inconsistent(what, format!("{} bytes", bytes.len())))
}
