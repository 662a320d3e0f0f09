//! Transfers and the states that they entered.
//!
//! A transfer is recorded in the transaction that claims its request. Its states are insert-only history beside it.

use std::cmp::Reverse;

use landfall_chain::{AssetId, Chain, TxId};
use sqlx::FromRow;

use crate::store::deposits::{address, amount_bytes, amount_of};
use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, ORGANIZATION, StoreError, Tx, parsed, uint};
use crate::time::Timestamp;
use crate::transfer::{RequestId, State, Transfer, TransferId, TransferStatus};

/// Which transfers a list shows, newest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TransferFilter {
    pub account_id: Option<String>,
    /// Only of these identities; of all where there is none.
    pub identity_ids: Vec<String>,
    pub chain: Option<Chain>,
    pub symbol: Option<String>,
    pub status: Option<TransferStatus>,
    pub request_id: Option<RequestId>,
    /// On `created_at`, inclusive.
    pub start: Option<Timestamp>,
    /// On `created_at`, inclusive.
    pub end: Option<Timestamp>,
    /// Only transfers after this one in the list.
    pub after: Option<(Timestamp, TransferId)>,
}

statements! {
    INSERT = "INSERT INTO transfers (id, organization_id, request_id, account_id, identity_id, chain, asset, symbol, decimals, \
              amount, amount_text, source, destination, destination_account_id, state, status, created_us, updated_us, deadline_us) \
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $17, $18)";
    CHANGED = "INSERT INTO transfer_changes (transfer_id, position, at_us, state, evidence) \
               SELECT $1, COUNT(*), $2, $3, $4 FROM transfer_changes WHERE transfer_id = $1";
    BY_ID = "SELECT * FROM transfers WHERE id = $1 AND organization_id = $2";
    LIST = "SELECT * FROM transfers WHERE organization_id = $1 \
            AND (CAST($2 AS TEXT) IS NULL OR chain = $2) AND (CAST($3 AS TEXT) IS NULL OR symbol = $3) \
            AND (CAST($4 AS TEXT) IS NULL OR status = $4) \
            AND created_us >= $5 AND (created_us, id" [" COLLATE \"C\""] ") < ($6, $7) \
            ORDER BY created_us DESC, id" [" COLLATE \"C\""] " DESC LIMIT $8";
    OF_ACCOUNT = "SELECT * FROM transfers WHERE account_id = $1 \
            AND (CAST($2 AS TEXT) IS NULL OR chain = $2) AND (CAST($3 AS TEXT) IS NULL OR symbol = $3) \
            AND (CAST($4 AS TEXT) IS NULL OR status = $4) \
            AND created_us >= $5 AND (created_us, id" [" COLLATE \"C\""] ") < ($6, $7) \
            ORDER BY created_us DESC, id" [" COLLATE \"C\""] " DESC LIMIT $8";
    OF_IDENTITY = "SELECT * FROM transfers WHERE identity_id = $1 \
            AND (CAST($2 AS TEXT) IS NULL OR chain = $2) AND (CAST($3 AS TEXT) IS NULL OR symbol = $3) \
            AND (CAST($4 AS TEXT) IS NULL OR status = $4) \
            AND created_us >= $5 AND (created_us, id" [" COLLATE \"C\""] ") < ($6, $7) \
            ORDER BY created_us DESC, id" [" COLLATE \"C\""] " DESC LIMIT $8";
}

#[derive(FromRow)]
struct TransferRow {
    id: String,
    request_id: String,
    account_id: String,
    identity_id: String,
    chain: String,
    asset: Vec<u8>,
    symbol: String,
    decimals: i64,
    amount: Vec<u8>,
    source: Vec<u8>,
    destination: Vec<u8>,
    destination_account_id: Option<String>,
    state: String,
    failure_code: Option<String>,
    reason: Option<String>,
    tx_id: Option<Vec<u8>>,
    created_us: i64,
    updated_us: i64,
    submitted_us: Option<i64>,
    confirmed_us: Option<i64>,
    deadline_us: i64,
}

/// Records a transfer that was accepted.
pub async fn insert(tx: &mut Tx, transfer: &Transfer) -> Result<(), StoreError> {
    let id = transfer.id.to_string();
    let (state, created) = (transfer.state, transfer.created_at.0);
    let inserted = execute!(
        tx,
        INSERT,
        &id,
        ORGANIZATION,
        transfer.request_id.to_string(),
        &transfer.account_id,
        &transfer.identity_id,
        transfer.chain.name(),
        transfer.asset.to_bytes(),
        &transfer.symbol,
        i64::from(transfer.decimals),
        amount_bytes(&transfer.amount),
        transfer.amount.to_string(),
        transfer.source.as_bytes(),
        transfer.destination.as_bytes(),
        transfer.destination_account_id.as_deref(),
        state.name(),
        state.status().name(),
        created,
        transfer.deadline.0
    )?;
    expect_one("insert a transfer", inserted)?;
    let changed = execute!(tx, CHANGED, &id, created, state.name(), "accepted")?;
    expect_one("record a change of a transfer", changed)
}

pub async fn by_id(connection: &mut impl Connection, id: TransferId) -> Result<Option<Transfer>, StoreError> {
    fetch_optional!(connection, TransferRow, BY_ID, id.to_string(), ORGANIZATION)?.map(Transfer::try_from).transpose()
}

/// At most `limit` transfers, newest first.
pub async fn list(
    connection: &mut impl Connection,
    filter: &TransferFilter,
    limit: u32,
) -> Result<Vec<Transfer>, StoreError> {
    if let Some(request_id) = filter.request_id {
        let found = by_id(connection, TransferId::of(ORGANIZATION, request_id)).await?;
        return Ok(found.into_iter().filter(|transfer| filter.lets_through(transfer)).collect());
    }
    let mut found = match &filter.account_id {
        Some(account) => page(connection, Of::Account(account), filter, limit).await?,
        None if filter.identity_ids.is_empty() => page(connection, Of::Organization, filter, limit).await?,
        None => {
            // One page of each: with all identities in one condition, the engines sort every transfer of theirs.
            let mut found = Vec::new();
            for identity in &filter.identity_ids {
                found.extend(page(connection, Of::Identity(identity), filter, limit).await?);
            }
            found
        }
    };
    // An account has one identity: all of its transfers are let through, or none.
    found.retain(|transfer| filter.identity_ids.is_empty() || filter.identity_ids.contains(&transfer.identity_id));
    found.sort_unstable_by_key(|transfer| Reverse((transfer.created_at, transfer.id.0)));
    found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(found)
}

/// Whose transfers a page is read of.
#[derive(Clone, Copy)]
enum Of<'f> {
    Organization,
    Account(&'f str),
    Identity(&'f str),
}

async fn page(
    connection: &mut impl Connection,
    of: Of<'_>,
    filter: &TransferFilter,
    limit: u32,
) -> Result<Vec<Transfer>, StoreError> {
    let TransferFilter { chain, symbol, status, .. } = filter;
    let (chain, symbol, status) = (chain.map(Chain::name), symbol.as_deref(), status.map(TransferStatus::name));
    let (start, (before, before_id), limit) = (filter.start(), filter.before(), i64::from(limit));
    macro_rules! rows {
        ($sql:ident, $of:expr) => {
            fetch_all!(connection, TransferRow, $sql, $of, chain, symbol, status, start, before, before_id, limit)?
        };
    }
    let rows = match of {
        Of::Organization => rows!(LIST, ORGANIZATION),
        Of::Account(account) => rows!(OF_ACCOUNT, account),
        Of::Identity(identity) => rows!(OF_IDENTITY, identity),
    };
    rows.into_iter().map(Transfer::try_from).collect()
}

impl TransferFilter {
    /// The first time, inclusive.
    fn start(&self) -> i64 {
        self.start.map_or(i64::MIN, |at| at.0)
    }

    /// All transfers of the page are before this time and id: one bound for both the place in the list and the end time,
    /// as for deposits. "g" sorts after every hexadecimal digit.
    fn before(&self) -> (i64, String) {
        let end = (self.end.map_or(i64::MAX, |at| at.0), "g".to_owned());
        match self.after {
            Some((at, id)) => end.min((at.0, id.to_string())),
            None => end,
        }
    }

    fn lets_through(&self, transfer: &Transfer) -> bool {
        let TransferFilter { account_id, identity_ids, chain, symbol, status, .. } = self;
        let place = (transfer.created_at.0, transfer.id.to_string());
        account_id.as_ref().is_none_or(|account| *account == transfer.account_id)
            && (identity_ids.is_empty() || identity_ids.contains(&transfer.identity_id))
            && chain.is_none_or(|chain| chain == transfer.chain)
            && symbol.as_ref().is_none_or(|symbol| *symbol == transfer.symbol)
            && status.is_none_or(|status| status == transfer.state.status())
            && place.0 >= self.start()
            && place < self.before()
    }
}

impl TryFrom<TransferRow> for Transfer {
    type Error = StoreError;

    fn try_from(row: TransferRow) -> Result<Self, StoreError> {
        let failure = row.failure_code.as_deref().map(|code| parsed("failure code", code)).transpose()?;
        let state = State::read(&row.state, failure);
        let tx = row.tx_id.as_deref().map(TxId::from_bytes).transpose();
        Ok(Transfer {
            id: parsed("transfer id", &row.id)?,
            request_id: parsed("request id", &row.request_id)?,
            account_id: row.account_id,
            identity_id: row.identity_id,
            chain: parsed("chain", &row.chain)?,
            asset: AssetId::from_bytes(&row.asset).map_err(|error| StoreError::inconsistent("asset", error))?,
            symbol: row.symbol,
            decimals: uint("decimals", row.decimals)?,
            amount: amount_of(&row.amount)?,
            source: address("source", &row.source)?,
            destination: address("destination", &row.destination)?,
            destination_account_id: row.destination_account_id,
            state: state.ok_or_else(|| StoreError::inconsistent("state of a transfer", row.state))?,
            reason: row.reason,
            tx: tx.map_err(|error| StoreError::inconsistent("tx_id", error))?,
            created_at: Timestamp(row.created_us),
            updated_at: Timestamp(row.updated_us),
            submitted_at: row.submitted_us.map(Timestamp),
            confirmed_at: row.confirmed_us.map(Timestamp),
            deadline: Timestamp(row.deadline_us),
        })
    }
}
