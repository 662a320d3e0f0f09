//! An account's deposits, newest first, from any place on.
//!
//! Promises: the cost of a page depends on what it shows, however many deposits the account has and however few match.
//! So a filter by chain or symbol is read kind by kind. A kind is a chain, a symbol and an asset; an account has few of
//! them, and each is in order in its index. Deposits of the same time are ordered by the bytes of their ids on both
//! engines, because they are merged here.

use landfall_chain::{AssetId, Chain};

use crate::deposit::Deposit;
use crate::store::deposits::{DepositFilter, DepositRow};
use crate::store::sql::{fetch_all, fetch_optional, statements};
use crate::store::{Connection, ORGANIZATION, StoreError, parsed};

/// Deposits of an account on one chain, with one symbol and of one asset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kind {
    pub chain: Chain,
    pub symbol: String,
    pub asset: AssetId,
}

statements! {
    LIST_OF_ACCOUNT = "SELECT * FROM deposits WHERE organization_id = $1 AND account_id = $2 AND NOT is_self_transfer \
                       AND created_us >= $3 AND (created_us, id" [" COLLATE \"C\""] ") < ($4, $5) \
                       ORDER BY created_us DESC, id" [" COLLATE \"C\""] " DESC LIMIT $6";
    // With a plain condition on the organization, SQLite would use the index of everything that the account has.
    LIST_OF_KIND = "SELECT * FROM deposits WHERE organization_id || '' = $1 AND account_id = $2 AND chain = $7 AND symbol = $8 \
                    AND asset = $9 AND NOT is_self_transfer AND created_us >= $3 AND (created_us, id" [" COLLATE \"C\""] ") < ($4, $5) \
                    ORDER BY created_us DESC, id" [" COLLATE \"C\""] " DESC LIMIT $6";
    // Steps from each chain to the next, from each symbol on it to the next, and from each asset to the next. Each step
    // is one index look-up; the deposits between are not read. The columns are compared one by one: for a pair, SQLite
    // would begin at the current kind and walk over all of it.
    KINDS = "WITH RECURSIVE chains (chain) AS (SELECT CAST('' AS TEXT) UNION ALL SELECT \
             (SELECT next.chain FROM deposits AS next WHERE next.account_id = $1 AND next.chain > chains.chain ORDER BY next.chain LIMIT 1) \
             FROM chains WHERE chains.chain IS NOT NULL), \
             symbols (chain, symbol) AS (SELECT chain, CAST('' AS TEXT) FROM chains \
             WHERE chain <> '' AND (CAST($2 AS TEXT) IS NULL OR chain = $2) UNION ALL SELECT symbols.chain, \
             (SELECT next.symbol FROM deposits AS next WHERE next.account_id = $1 AND next.chain = symbols.chain \
              AND next.symbol > symbols.symbol ORDER BY next.symbol LIMIT 1) \
             FROM symbols WHERE symbols.symbol IS NOT NULL), \
             kinds (chain, symbol, asset) AS (SELECT chain, symbol, \
             (SELECT least.asset FROM deposits AS least WHERE least.account_id = $1 AND least.chain = symbols.chain \
              AND least.symbol = symbols.symbol ORDER BY least.asset LIMIT 1) \
             FROM symbols WHERE symbol <> '' AND (CAST($3 AS TEXT) IS NULL OR symbol = $3) UNION ALL SELECT kinds.chain, kinds.symbol, \
             (SELECT next.asset FROM deposits AS next WHERE next.account_id = $1 AND next.chain = kinds.chain \
              AND next.symbol = kinds.symbol AND next.asset > kinds.asset ORDER BY next.asset LIMIT 1) \
             FROM kinds WHERE kinds.asset IS NOT NULL) SELECT chain, symbol, asset FROM kinds WHERE asset IS NOT NULL";
    NOT_FAILED = "SELECT 1 FROM deposits WHERE account_id = $1 AND chain = $2 AND symbol = $3 AND asset = $4 \
                  AND status <> 'FAILED' ORDER BY created_us DESC LIMIT 1";
}

type KindRow = (String, String, Vec<u8>);

/// All kinds of deposits that the account ever received.
pub async fn kinds(connection: &mut impl Connection, account: &str) -> Result<Vec<Kind>, StoreError> {
    let any: Option<String> = None;
    let rows = fetch_all!(connection, KindRow, KINDS, account, any.clone(), any)?;
    let kind = |(chain, symbol, asset): KindRow| {
        let asset = AssetId::from_bytes(&asset).map_err(|error| StoreError::inconsistent("asset", error))?;
        Ok(Kind { chain: parsed("chain", &chain)?, symbol, asset })
    };
    rows.into_iter().map(kind).collect()
}

/// Whether a deposit of this kind is not FAILED. It walks over the FAILED ones that are newer than the newest other.
pub async fn is_any_not_failed(
    connection: &mut impl Connection,
    account: &str,
    Kind { chain, symbol, asset }: &Kind,
) -> Result<bool, StoreError> {
    let found = fetch_optional!(connection, (i32,), NOT_FAILED, account, chain.name(), symbol, asset.to_bytes())?;
    Ok(found.is_some())
}

/// At most `limit` deposits of this account, newest first.
pub(super) async fn of_account(
    connection: &mut impl Connection,
    account: &str,
    filter: &DepositFilter,
    limit: u32,
) -> Result<Vec<Deposit>, StoreError> {
    let (chain, symbol) = (filter.chain.map(|chain| chain.name().to_owned()), filter.symbol.clone());
    if chain.is_none() && symbol.is_none() {
        return of_kind(connection, account, None, filter, limit).await;
    }
    let mut found = Vec::new();
    for kind in &fetch_all!(connection, KindRow, KINDS, account, chain, symbol)? {
        found.extend(of_kind(connection, account, Some(kind), filter, limit).await?);
    }
    found.sort_unstable_by_key(|deposit| std::cmp::Reverse((deposit.created_at, deposit.id.0)));
    found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(found)
}

/// As [`of_account`], for one kind or for all of them.
async fn of_kind(
    connection: &mut impl Connection,
    account: &str,
    kind: Option<&KindRow>,
    filter: &DepositFilter,
    limit: u32,
) -> Result<Vec<Deposit>, StoreError> {
    let (start, (before, before_id), limit) = (filter.start(), filter.before(), i64::from(limit));
    let rows = match kind {
        None => {
            fetch_all!(connection, DepositRow, LIST_OF_ACCOUNT, ORGANIZATION, account, start, before, before_id, limit)?
        }
        Some((chain, symbol, asset)) => fetch_all!(
            connection,
            DepositRow,
            LIST_OF_KIND,
            ORGANIZATION,
            account,
            start,
            before,
            before_id,
            limit,
            chain,
            symbol,
            asset
        )?,
    };
    rows.into_iter().map(Deposit::try_from).collect()
}
