//! Accounts as clients see them: with their addresses and what they have of their identity, one or page by page.
//!
//! Pages are ordered by time and id, newest first. Ids are compared by their bytes on both engines, so that pages of
//! several identities merge without a gap. A page is bounded by accounts and by addresses.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use landfall_chain::{Address, Chain};
use sqlx_macros::FromRow;

use crate::account::{AccountStatus, AccountType};
use crate::identity::{IdentityStatus, IdentityType, SubStatus};
use crate::store::accounts::ADDRESSES_MAX;
use crate::store::sql::{fetch_all, fetch_optional, statements};
use crate::store::{Connection, ORGANIZATION, StoreError, int, parsed};
use crate::time::Timestamp;

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Account {
    pub id: String,
    /// Empty when no request opened it.
    pub request_id: String,
    pub kind: AccountType,
    pub addresses: Vec<(Chain, Address)>,
    /// Those of them whose keys the signer holds.
    pub managed: BTreeSet<Address>,
    pub created_at: Timestamp,
    pub identity_id: String,
    pub identity_kind: IdentityType,
    pub identity_status: IdentityStatus,
    pub identity_sub_status: Option<SubStatus>,
}

/// Each chain and address of an account; with a tag if its key is held.
type AddressRow = (Chain, Address, Option<String>);

/// Which accounts are asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AccountFilter {
    /// Of these identities; empty for all.
    pub identity_ids: Vec<String>,
    /// Only accounts after this one in the list.
    pub after: Option<(Timestamp, String)>,
}

statements! {
    BY_ID = "SELECT page.id, page.request_id, page.type, page.created_us, page.identity_id, identities.type AS identity_type, \
             identities.status, identities.sub_status FROM accounts AS page JOIN identities ON identities.id = page.identity_id \
             WHERE page.id = $1 AND page.organization_id = $2";
    IDENTITY = "SELECT identities.id, identities.status FROM accounts JOIN identities ON identities.id = accounts.identity_id \
                WHERE accounts.id = $1 AND accounts.organization_id = $2";
    NEWEST = "SELECT page.id, page.request_id, page.type, page.created_us, page.identity_id, identities.type AS identity_type, \
              identities.status, identities.sub_status \
              FROM (SELECT * FROM accounts WHERE organization_id = $1 AND (created_us, id" [" COLLATE \"C\""] ") < ($2, $3) \
              ORDER BY created_us DESC, id" [" COLLATE \"C\""] " DESC LIMIT $4) AS page \
              JOIN identities ON identities.id = page.identity_id \
              ORDER BY page.created_us DESC, page.id" [" COLLATE \"C\""] " DESC";
    OF_IDENTITY = "SELECT page.id, page.request_id, page.type, page.created_us, page.identity_id, identities.type AS identity_type, \
              identities.status, identities.sub_status \
              FROM (SELECT * FROM accounts WHERE organization_id = $1 AND identity_id = $5 \
              AND (created_us, id" [" COLLATE \"C\""] ") < ($2, $3) \
              ORDER BY created_us DESC, id" [" COLLATE \"C\""] " DESC LIMIT $4) AS page \
              JOIN identities ON identities.id = page.identity_id \
              ORDER BY page.created_us DESC, page.id" [" COLLATE \"C\""] " DESC";
    // Both families are named for the index, which begins with it.
    ADDRESSES = "SELECT w.chain, w.address, wallets.tag FROM watched_addresses AS w \
                 LEFT JOIN wallets ON wallets.family IN ('evm', 'solana') AND wallets.address = w.address \
                 AND wallets.account_id = w.account_id WHERE w.account_id = $1 ORDER BY w.chain, w.address";
}

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
}

pub async fn by_id(connection: &mut impl Connection, id: &str) -> Result<Option<Account>, StoreError> {
    let Some(row) = fetch_optional!(connection, Row, BY_ID, id, ORGANIZATION)? else { return Ok(None) };
    Ok(Some(account(row, addresses(connection, id).await?)?))
}

/// The identity of an account, and what it allows; `None` if there is no such account.
pub async fn identity(
    connection: &mut impl Connection,
    id: &str,
) -> Result<Option<(String, AccountStatus)>, StoreError> {
    let row = fetch_optional!(connection, (String, String), IDENTITY, id, ORGANIZATION)?;
    let read =
        |(identity, status): (String, String)| Ok((identity, AccountStatus::of(parsed("identity status", &status)?)));
    row.map(read).transpose()
}

/// At most `limit` accounts, newest first, and whether there are more. A page ends before the account with which it
/// would have more addresses than one account may have.
pub async fn list(
    connection: &mut impl Connection,
    filter: &AccountFilter,
    limit: usize,
) -> Result<(Vec<Account>, bool), StoreError> {
    let rows = newest(connection, filter, limit.saturating_add(1)).await?;
    let (count, mut left) = (rows.len(), int(ADDRESSES_MAX));
    let mut page = Vec::with_capacity(count);
    for row in rows.into_iter().take(limit) {
        let addresses = addresses(connection, &row.id).await?;
        let more = int(addresses.len());
        // An account that has more than allowed is returned all the same.
        if more > left && !page.is_empty() {
            break;
        }
        left -= more;
        page.push(account(row, addresses)?);
    }
    let is_cut = page.len() < count;
    Ok((page, is_cut))
}

/// At most `limit` accounts, without their addresses.
async fn newest(
    connection: &mut impl Connection,
    filter: &AccountFilter,
    limit: usize,
) -> Result<Vec<Row>, StoreError> {
    let (at, id) = filter.after.as_ref().map_or((i64::MAX, ""), |(at, id)| (at.0, id.as_str()));
    let limit_rows = int(limit);
    if filter.identity_ids.is_empty() {
        return fetch_all!(connection, Row, NEWEST, ORGANIZATION, at, id, limit_rows);
    }
    // One page of each: with all identities in one condition, the engines sort every account of theirs.
    let mut found = Vec::new();
    for identity in &filter.identity_ids {
        found.extend(fetch_all!(connection, Row, OF_IDENTITY, ORGANIZATION, at, id, limit_rows, identity)?);
    }
    found.sort_by(|a, b| (Reverse(a.created_us), Reverse(&a.id)).cmp(&(Reverse(b.created_us), Reverse(&b.id))));
    found.truncate(limit);
    Ok(found)
}

async fn addresses(connection: &mut impl Connection, id: &str) -> Result<Vec<AddressRow>, StoreError> {
    let rows = fetch_all!(connection, (String, Vec<u8>, Option<String>), ADDRESSES, id)?;
    let read = |(chain, bytes, tag): (String, Vec<u8>, Option<String>)| {
        let address =
            Address::from_bytes(&bytes).map_err(|error| StoreError::inconsistent("watched address", error))?;
        Ok((parsed("chain", &chain)?, address, tag))
    };
    rows.into_iter().map(read).collect()
}

fn account(row: Row, addresses: Vec<AddressRow>) -> Result<Account, StoreError> {
    let sub_status = &row.sub_status;
    Ok(Account {
        kind: parsed("account type", &row.r#type)?,
        managed: addresses.iter().filter(|(.., tag)| tag.is_some()).map(|(_, address, _)| *address).collect(),
        addresses: addresses.into_iter().map(|(chain, address, _)| (chain, address)).collect(),
        created_at: Timestamp(row.created_us),
        identity_kind: parsed("identity type", &row.identity_type)?,
        identity_status: parsed("identity status", &row.status)?,
        identity_sub_status: (!sub_status.is_empty()).then(|| parsed("identity sub-status", sub_status)).transpose()?,
        id: row.id,
        request_id: row.request_id,
        identity_id: row.identity_id,
    })
}
