//! Accounts as clients see them: with their addresses and what they have of their identity, one or page by page.
//!
//! Pages are ordered by time and id, newest first; ids by their bytes on both engines, so that pages of several identities
//! merge without a gap.

use std::cmp::Reverse;

use landfall_chain::{Address, Chain};
use sqlx::FromRow;

use crate::account::{AccountStatus, AccountType};
use crate::identity::{IdentityStatus, IdentityType, SubStatus};
use crate::store::sql::{fetch_all, fetch_optional, statements};
use crate::store::{Connection, ORGANIZATION, StoreError, parsed};
use crate::time::Timestamp;

/// An account.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    pub id: String,
    /// Empty when no request opened it.
    pub request_id: String,
    pub kind: AccountType,
    pub addresses: Vec<(Chain, Address)>,
    pub created_at: Timestamp,
    pub identity_id: String,
    pub identity_kind: IdentityType,
    pub identity_status: IdentityStatus,
    pub identity_sub_status: Option<SubStatus>,
}

/// Which accounts are asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AccountFilter {
    /// Of these identities; empty for all.
    pub identity_ids: Vec<String>,
    /// Behind this one.
    pub after: Option<(Timestamp, String)>,
}

statements! {
    BY_ID = "SELECT page.id, page.request_id, page.type, page.created_us, page.identity_id, identities.type AS identity_type, \
             identities.status, identities.sub_status, watched_addresses.chain, watched_addresses.address \
             FROM accounts AS page JOIN identities ON identities.id = page.identity_id \
             LEFT JOIN watched_addresses ON watched_addresses.account_id = page.id \
             WHERE page.id = $1 AND page.organization_id = $2 ORDER BY watched_addresses.address, watched_addresses.chain";
    STATUS = "SELECT identities.status FROM accounts JOIN identities ON identities.id = accounts.identity_id \
              WHERE accounts.id = $1 AND accounts.organization_id = $2";
    NEWEST = "SELECT page.id, page.request_id, page.type, page.created_us, page.identity_id, identities.type AS identity_type, \
              identities.status, identities.sub_status, watched_addresses.chain, watched_addresses.address \
              FROM (SELECT * FROM accounts WHERE organization_id = $1 AND (created_us, id" [" COLLATE \"C\""] ") < ($2, $3) \
              ORDER BY created_us DESC, id" [" COLLATE \"C\""] " DESC LIMIT $4) AS page \
              JOIN identities ON identities.id = page.identity_id \
              LEFT JOIN watched_addresses ON watched_addresses.account_id = page.id \
              ORDER BY page.created_us DESC, page.id" [" COLLATE \"C\""] " DESC, watched_addresses.address, watched_addresses.chain";
    OF_IDENTITY = "SELECT page.id, page.request_id, page.type, page.created_us, page.identity_id, identities.type AS identity_type, \
              identities.status, identities.sub_status, watched_addresses.chain, watched_addresses.address \
              FROM (SELECT * FROM accounts WHERE organization_id = $1 AND identity_id = $5 \
              AND (created_us, id" [" COLLATE \"C\""] ") < ($2, $3) \
              ORDER BY created_us DESC, id" [" COLLATE \"C\""] " DESC LIMIT $4) AS page \
              JOIN identities ON identities.id = page.identity_id \
              LEFT JOIN watched_addresses ON watched_addresses.account_id = page.id \
              ORDER BY page.created_us DESC, page.id" [" COLLATE \"C\""] " DESC, watched_addresses.address, watched_addresses.chain";
}

/// An account and one of its addresses.
#[derive(FromRow)]
struct Row {
    id: String,
    request_id: String,
    r#type: String,
    created_us: i64,
    identity_id: String,
    identity_type: String,
    status: String,
    sub_status: String,
    /// `None` when it has no address.
    chain: Option<String>,
    address: Option<Vec<u8>>,
}

/// The account with this id.
pub async fn by_id(connection: &mut impl Connection, id: &str) -> Result<Option<Account>, StoreError> {
    Ok(accounts(fetch_all!(connection, Row, BY_ID, id, ORGANIZATION)?)?.pop())
}

/// What an account's identity lets it do, without its addresses; `None` when there is no such account.
pub async fn status(connection: &mut impl Connection, id: &str) -> Result<Option<AccountStatus>, StoreError> {
    let row = fetch_optional!(connection, (String,), STATUS, id, ORGANIZATION)?;
    row.map(|(status,)| parsed("identity status", &status).map(AccountStatus::of)).transpose()
}

/// At most `limit` accounts, newest first.
pub async fn list(
    connection: &mut impl Connection,
    filter: &AccountFilter,
    limit: u32,
) -> Result<Vec<Account>, StoreError> {
    let (at, id) = filter.after.as_ref().map_or((i64::MAX, ""), |(at, id)| (at.0, id.as_str()));
    let limit_rows = i64::from(limit);
    if filter.identity_ids.is_empty() {
        return accounts(fetch_all!(connection, Row, NEWEST, ORGANIZATION, at, id, limit_rows)?);
    }
    // A page of each: with all in one condition, the engines sort every account of theirs.
    let mut found = Vec::new();
    for identity in &filter.identity_ids {
        found.extend(fetch_all!(connection, Row, OF_IDENTITY, ORGANIZATION, at, id, limit_rows, identity)?);
    }
    let mut found = accounts(found)?;
    found.sort_by(|a, b| (Reverse(a.created_at), Reverse(&a.id)).cmp(&(Reverse(b.created_at), Reverse(&b.id))));
    found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(found)
}

/// The accounts of rows in which each account's stand together.
fn accounts(rows: Vec<Row>) -> Result<Vec<Account>, StoreError> {
    let mut accounts: Vec<Account> = Vec::new();
    for row in rows {
        let address = row.chain.zip(row.address).map(|(chain, bytes)| {
            let address =
                Address::from_bytes(&bytes).map_err(|error| StoreError::inconsistent("watched address", error))?;
            Ok::<_, StoreError>((parsed("chain", &chain)?, address))
        });
        let address = address.transpose()?;
        if let Some(last) = accounts.last_mut().filter(|last| last.id == row.id) {
            last.addresses.extend(address);
            continue;
        }
        let sub_status = &row.sub_status;
        accounts.push(Account {
            kind: parsed("account type", &row.r#type)?,
            addresses: address.into_iter().collect(),
            created_at: Timestamp(row.created_us),
            identity_kind: parsed("identity type", &row.identity_type)?,
            identity_status: parsed("identity status", &row.status)?,
            identity_sub_status: (!sub_status.is_empty())
                .then(|| parsed("identity sub-status", sub_status))
                .transpose()?,
            id: row.id,
            request_id: row.request_id,
            identity_id: row.identity_id,
        });
    }
    Ok(accounts)
}
