//! An account's deposits, newest first, from any place on.
//!
//! Promises: a page costs what it shows, however many deposits the account has and however few of them are asked for. So what is
//! asked for by chain alone, or by symbol alone, is read kind by kind: a kind is a chain and a symbol, an account has few, and each
//! is in order in its index. Deposits of one time are ordered by the bytes of their ids on both engines, as they are merged here.

use landfall_chain::{AssetId, Chain};

use crate::deposit::Deposit;
use crate::store::deposits::{DepositFilter, DepositRow};
use crate::store::sql::{fetch_all, statements};
use crate::store::{Connection, ORGANIZATION, StoreError, parsed};

/// Deposits of an account on one chain and with one symbol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Kind {
    pub chain: Chain,
    pub symbol: String,
    /// What the oldest and the newest of them are of.
    pub assets: [AssetId; 2],
}

statements! {
    LIST_OF_ACCOUNT = "SELECT * FROM deposits WHERE organization_id = $1 AND account_id = $2 \
                       AND created_us >= $3 AND (created_us, id" [" COLLATE \"C\""] ") < ($4, $5) \
                       ORDER BY created_us DESC, id" [" COLLATE \"C\""] " DESC LIMIT $6";
    // With the organization as it stands SQLite would take the index of all that the account has.
    LIST_OF_KIND = "SELECT * FROM deposits WHERE organization_id || '' = $1 AND account_id = $2 AND chain = $7 AND symbol = $8 \
                    AND created_us >= $3 AND (created_us, id" [" COLLATE \"C\""] ") < ($4, $5) \
                    ORDER BY created_us DESC, id" [" COLLATE \"C\""] " DESC LIMIT $6";
    // From each chain to the next one, and from each symbol on it to the next one, each found in the index: the deposits between are not
    // read. Compared one by one: of a pair SQLite would begin at the kind that it has, and walk over all of it.
    KINDS = "WITH RECURSIVE chains (chain) AS (SELECT CAST('' AS TEXT) UNION ALL SELECT \
             (SELECT next.chain FROM deposits AS next WHERE next.account_id = $1 AND next.chain > chains.chain ORDER BY next.chain LIMIT 1) \
             FROM chains WHERE chains.chain IS NOT NULL), \
             kinds (chain, symbol) AS (SELECT chain, CAST('' AS TEXT) FROM chains \
             WHERE chain <> '' AND (CAST($2 AS TEXT) IS NULL OR chain = $2) UNION ALL SELECT kinds.chain, \
             (SELECT next.symbol FROM deposits AS next WHERE next.account_id = $1 AND next.chain = kinds.chain \
              AND next.symbol > kinds.symbol ORDER BY next.symbol LIMIT 1) \
             FROM kinds WHERE kinds.symbol IS NOT NULL) SELECT chain, symbol, \
             (SELECT oldest.asset FROM deposits AS oldest WHERE oldest.account_id = $1 AND oldest.chain = kinds.chain \
              AND oldest.symbol = kinds.symbol ORDER BY oldest.created_us LIMIT 1), \
             (SELECT newest.asset FROM deposits AS newest WHERE newest.account_id = $1 AND newest.chain = kinds.chain \
              AND newest.symbol = kinds.symbol ORDER BY newest.created_us DESC LIMIT 1) FROM kinds WHERE symbol <> '' \
             AND (CAST($3 AS TEXT) IS NULL OR symbol = $3)";
}

/// A chain, a symbol, and the assets of the oldest and the newest of these deposits.
type KindRow = (String, String, Vec<u8>, Vec<u8>);

/// All kinds of deposits that the account ever got.
pub async fn kinds(connection: &mut impl Connection, account: &str) -> Result<Vec<Kind>, StoreError> {
    let any: Option<String> = None;
    let rows = fetch_all!(connection, KindRow, KINDS, account, any.clone(), any)?;
    let mut kinds = Vec::with_capacity(rows.len());
    for (chain, symbol, oldest, newest) in rows {
        let chain = parsed("chain", &chain)?;
        let asset =
            |bytes: Vec<u8>| AssetId::from_bytes(&bytes).map_err(|error| StoreError::inconsistent("asset", error));
        kinds.push(Kind { chain, symbol, assets: [asset(oldest)?, asset(newest)?] });
    }
    Ok(kinds)
}

/// At most `limit` deposits of this account, newest first.
pub(super) async fn of_account(
    connection: &mut impl Connection,
    account: &str,
    filter: &DepositFilter,
    limit: u32,
) -> Result<Vec<Deposit>, StoreError> {
    let (chain, symbol) = (filter.chain.map(|chain| chain.name().to_owned()), filter.symbol.clone());
    let kinds = match (chain, symbol) {
        (None, None) => return of_kind(connection, account, None, filter, limit).await,
        (Some(chain), Some(symbol)) => vec![(chain, symbol)],
        (chain, symbol) => {
            let rows = fetch_all!(connection, KindRow, KINDS, account, chain, symbol)?;
            rows.into_iter().map(|(chain, symbol, ..)| (chain, symbol)).collect()
        }
    };
    let mut found = Vec::new();
    for kind in &kinds {
        found.extend(of_kind(connection, account, Some(kind), filter, limit).await?);
    }
    found.sort_unstable_by_key(|deposit| std::cmp::Reverse((deposit.created_at, deposit.id.0)));
    found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    Ok(found)
}

/// As [`of_account`], of one kind or of all of them.
async fn of_kind(
    connection: &mut impl Connection,
    account: &str,
    kind: Option<&(String, String)>,
    filter: &DepositFilter,
    limit: u32,
) -> Result<Vec<Deposit>, StoreError> {
    let (start, (before, before_id), limit) = (filter.start(), filter.before(), i64::from(limit));
    let rows = match kind {
        None => {
            fetch_all!(connection, DepositRow, LIST_OF_ACCOUNT, ORGANIZATION, account, start, before, before_id, limit)?
        }
        Some((chain, symbol)) => fetch_all!(
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
            symbol
        )?,
    };
    rows.into_iter().map(Deposit::try_from).collect()
}
