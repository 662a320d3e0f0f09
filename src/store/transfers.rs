//! Transfers and the states that they entered.
//!
//! A transfer is recorded in the transaction that claims its request. Its states are insert-only history beside it.

use std::cmp::Reverse;

use landfall_chain::{Address, AssetId, BlockHash, BlockRef, Chain, TxId, U256};
use sqlx_macros::FromRow;

use crate::gas::{ChargedTo, NetworkFee, Usd};
use crate::store::deposits::{address, amount_bytes, amount_of};
use crate::store::error::expect_one;
use crate::store::marks::intent_key;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, ORGANIZATION, StoreError, Tx, hash, int, parsed, uint};
use crate::time::Timestamp;
use crate::transfer::{
    Evidence, FailureCode, Obstacle, RequestId, State, Transfer, TransferId, TransferKind, TransferStatus,
};

/// Which transfers a list shows, newest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TransferFilter {
    /// Of all kinds where there is none.
    pub kind: Option<TransferKind>,
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
              amount, amount_text, source, destination, destination_account_id, state, status, created_us, updated_us, deadline_us, \
              route, intent_key, kind, source_tag, version) \
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $17, $18, $19, $20, $21, $22, 0)";
    // Only by who read the row as it stands.
    CHANGE = "UPDATE transfers SET state = $1, status = $2, failure_code = $3, reason = $4, tx_id = $5, updated_us = $6, \
              submitted_us = $7, confirmed_us = $8, version = version + 1 WHERE id = $9 AND state = $10 AND version = $11";
    // So many that are to be sent, and as many that wait for finality or a proof; of each each account in its turn. Nobody's
    // many keep another's few from being seen, nor what waits what is to be sent.
    UNFINISHED = "SELECT * FROM (SELECT turned.*, ROW_NUMBER() OVER (PARTITION BY waits ORDER BY turn, created_us, id) AS place FROM \
                  (SELECT classed.*, ROW_NUMBER() OVER (PARTITION BY account_id, waits ORDER BY created_us, id) AS turn FROM \
                  (SELECT transfers.*, CASE WHEN state = 'included' OR deadline_us <= $3 THEN 1 ELSE 0 END AS waits \
                  FROM transfers WHERE chain = $1 AND status IN ('ACCEPTED', 'SUBMITTED')) AS classed) AS turned) AS unfinished \
                  WHERE place <= $2 ORDER BY turn, created_us, id";
    CANCEL = "UPDATE transfers SET cancelled_us = COALESCE(cancelled_us, $1), obstacle = $3, reason = NULL \
              WHERE id = $2 AND status IN ('ACCEPTED', 'SUBMITTED')";
    OBSTRUCT = "UPDATE transfers SET obstacle = $1, reason = $3 WHERE id = $2 AND status = 'ACCEPTED' AND cancelled_us IS NULL";
    CLEAR = "UPDATE transfers SET obstacle = NULL, reason = NULL WHERE id = $1 AND status = 'ACCEPTED' AND cancelled_us IS NULL";
    IS_SWEEP = "SELECT 1 FROM transfer_attempts AS a JOIN transfers AS t ON t.id = a.transfer_id \
                WHERE a.chain = $1 AND a.tx_id = $2 AND t.kind = 'SWEEP' AND t.destination = $3 AND t.amount = $4";
    // CROSS JOIN, so that SQLite begins with the few that are not terminal.
    DISPLACED = "SELECT c.transfer_id, COUNT(*) FROM transfers AS t CROSS JOIN transfer_changes AS c \
                 WHERE t.chain = $1 AND t.status IN ('ACCEPTED', 'SUBMITTED') AND c.transfer_id = t.id AND c.evidence = $2 \
                 GROUP BY c.transfer_id";
    // The time of the block stands beside it, for blocks are pruned.
    CHANGED = "INSERT INTO transfer_changes (transfer_id, position, at_us, state, evidence, block_number, block_hash, block_time_us, \
               reported_by) SELECT $1, COUNT(*), $2, $3, $4, $5, $6, (SELECT time_us FROM blocks WHERE chain = $7 AND hash = $6), $8 \
               FROM transfer_changes WHERE transfer_id = $1";
    HISTORY = "SELECT at_us, state, evidence, block_number, block_hash, block_time_us, reported_by FROM transfer_changes \
               WHERE transfer_id = $1 ORDER BY position";
    ENDS = "SELECT (SELECT account_id FROM watched_addresses WHERE chain = $1 AND address = $2) AS payer, \
            (SELECT account_id FROM watched_addresses WHERE chain = $1 AND address = $3) AS payee, \
            EXISTS (SELECT 1 FROM sponsors WHERE chain = $1 AND address = $3) AS is_to_sponsor, \
            EXISTS (SELECT 1 FROM sending_halts WHERE chain = $1) AS is_halted";
    BY_ID = "SELECT * FROM transfers WHERE id = $1 AND organization_id = $2";
    LIST = "SELECT * FROM transfers WHERE organization_id = $1 \
            AND (CAST($2 AS TEXT) IS NULL OR chain = $2) AND (CAST($3 AS TEXT) IS NULL OR symbol = $3) \
            AND (CAST($4 AS TEXT) IS NULL OR status = $4) AND (CAST($9 AS TEXT) IS NULL OR kind = $9) \
            AND created_us >= $5 AND (created_us, id" [" COLLATE \"C\""] ") < ($6, $7) \
            ORDER BY created_us DESC, id" [" COLLATE \"C\""] " DESC LIMIT $8";
    // By the index of what is not CONFIRMED, of which there is little.
    OF_STATUS = "SELECT * FROM transfers WHERE organization_id = $1 AND status = $4 AND status <> 'CONFIRMED' \
            AND (CAST($2 AS TEXT) IS NULL OR chain = $2) AND (CAST($3 AS TEXT) IS NULL OR symbol = $3) \
            AND (CAST($9 AS TEXT) IS NULL OR kind = $9) \
            AND (CAST($10 AS TEXT) IS NULL OR account_id = $10) AND (CAST($11 AS TEXT) IS NULL OR identity_id = $11) \
            AND created_us >= $5 AND (created_us, id" [" COLLATE \"C\""] ") < ($6, $7) \
            ORDER BY created_us DESC, id" [" COLLATE \"C\""] " DESC LIMIT $8";
    OF_ACCOUNT = "SELECT * FROM transfers WHERE account_id = $1 \
            AND (CAST($2 AS TEXT) IS NULL OR chain = $2) AND (CAST($3 AS TEXT) IS NULL OR symbol = $3) \
            AND (CAST($4 AS TEXT) IS NULL OR status = $4) AND (CAST($9 AS TEXT) IS NULL OR kind = $9) \
            AND created_us >= $5 AND (created_us, id" [" COLLATE \"C\""] ") < ($6, $7) \
            ORDER BY created_us DESC, id" [" COLLATE \"C\""] " DESC LIMIT $8";
    OF_IDENTITY = "SELECT * FROM transfers WHERE identity_id = $1 \
            AND (CAST($2 AS TEXT) IS NULL OR chain = $2) AND (CAST($3 AS TEXT) IS NULL OR symbol = $3) \
            AND (CAST($4 AS TEXT) IS NULL OR status = $4) AND (CAST($9 AS TEXT) IS NULL OR kind = $9) \
            AND created_us >= $5 AND (created_us, id" [" COLLATE \"C\""] ") < ($6, $7) \
            ORDER BY created_us DESC, id" [" COLLATE \"C\""] " DESC LIMIT $8";
}

/// Whose the two ends of a transfer are.
#[derive(Clone, PartialEq, Eq, Debug, FromRow)]
pub struct Ends {
    /// The accounts that own the addresses on that chain.
    pub payer: Option<String>,
    pub payee: Option<String>,
    /// The destination pays for transactions of ours.
    pub is_to_sponsor: bool,
    /// A person has stopped the sending on that chain.
    pub is_halted: bool,
}

#[derive(FromRow)]
struct TransferRow {
    id: String,
    request_id: String,
    kind: String,
    account_id: String,
    identity_id: String,
    chain: String,
    asset: Vec<u8>,
    symbol: String,
    decimals: i64,
    amount: Vec<u8>,
    source: Vec<u8>,
    source_tag: String,
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
    is_signed: bool,
    route: String,
    intent_key: Vec<u8>,
    cancelled_us: Option<i64>,
    obstacle: Option<String>,
    version: i64,
    fee_amount: Option<Vec<u8>>,
    fee_symbol: Option<String>,
    fee_decimals: Option<i64>,
    fee_usd: Option<i64>,
    fee_charged_to: Option<String>,
}

/// Whose these addresses are; without a `source`, no account owns it.
pub async fn ends(
    connection: &mut impl Connection,
    chain: Chain,
    (source, destination): (Option<&Address>, &Address),
) -> Result<Ends, StoreError> {
    let ends =
        fetch_optional!(connection, Ends, ENDS, chain.name(), source.map(Address::as_bytes), destination.as_bytes())?;
    ends.ok_or_else(|| StoreError::inconsistent("ends of a transfer", "there is no row"))
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
        transfer.deadline.0,
        &transfer.route,
        &transfer.intent_key.0[..],
        transfer.kind.name(),
        &transfer.source_tag
    )?;
    expect_one("insert a transfer", inserted)?;
    let (number, hash, reported_by) = (None::<i64>, None::<&[u8]>, None::<&str>);
    let (name, chain) = (state.name(), transfer.chain.name());
    let changed = execute!(tx, CHANGED, &id, created, name, "accepted", number, hash, chain, reported_by)?;
    expect_one("record a change of a transfer", changed)
}

/// Records what became of a transfer by `evidence`, as the history names it, in which block that stands, and which endpoints
/// reported it. `before` is what was read; if somebody changed the row meanwhile, it is an error.
pub async fn change(
    tx: &mut Tx,
    before: &Transfer,
    after: &Transfer,
    (evidence, block, reported_by): (&str, Option<BlockRef>, &[String]),
) -> Result<(), StoreError> {
    let (id, state) = (after.id.to_string(), after.state);
    let changed = execute!(
        tx,
        CHANGE,
        state.name(),
        state.status().name(),
        state.failure().map(FailureCode::name),
        after.reason.as_deref(),
        after.tx.as_ref().map(TxId::as_bytes),
        after.updated_at.0,
        after.submitted_at.map(|at| at.0),
        after.confirmed_at.map(|at| at.0),
        &id,
        before.state.name(),
        i64::from(before.version)
    )?;
    expect_one("change a transfer", changed)?;
    let (number, hash) = (block.map(|block| int(block.number)), block.as_ref().map(|block| &block.hash.0[..]));
    let (at, chain) = (after.updated_at.0, after.chain.name());
    let reported_by = Some(reported_by.join(" ")).filter(|names| !names.is_empty());
    let recorded = execute!(tx, CHANGED, &id, at, state.name(), evidence, number, hash, chain, reported_by)?;
    expect_one("record a change of a transfer", recorded)
}

/// Records that a person asked for its end; returns whether it had not ended.
pub async fn cancel(tx: &mut Tx, id: TransferId, now: Timestamp) -> Result<bool, StoreError> {
    Ok(execute!(tx, CANCEL, now.0, id.to_string(), Obstacle::Cancelled.code().name())? > 0)
}

/// Records what keeps it from being signed or carried, and why, while it is ACCEPTED. What a person cancelled stays so.
pub async fn obstruct(tx: &mut Tx, id: TransferId, obstacle: Obstacle, why: Option<&str>) -> Result<(), StoreError> {
    execute!(tx, OBSTRUCT, obstacle.code().name(), id.to_string(), why).map(drop)
}

/// Nothing keeps it from being signed any more.
pub async fn clear(tx: &mut Tx, id: TransferId) -> Result<(), StoreError> {
    execute!(tx, CLEAR, id.to_string()).map(drop)
}

/// Whether a transaction is an attempt at a sweep that brings so much to this address.
pub async fn is_sweep(
    connection: &mut impl Connection,
    chain: Chain,
    id: &TxId,
    (to, amount): (&Address, &U256),
) -> Result<bool, StoreError> {
    let (to, amount) = (to.as_bytes(), amount_bytes(amount));
    Ok(!fetch_all!(connection, (i32,), IS_SWEEP, chain.name(), id.as_bytes(), to, amount)?.is_empty())
}

/// How often reorgs took back each transfer of the chain that is not terminal.
pub async fn displaced(connection: &mut impl Connection, chain: Chain) -> Result<Vec<(TransferId, usize)>, StoreError> {
    let rows = fetch_all!(connection, (String, i64), DISPLACED, chain.name(), Evidence::Displaced.name())?;
    let times = |(id, times): (String, i64)| Ok((parsed("transfer id", &id)?, uint("number of displacements", times)?));
    rows.into_iter().map(times).collect()
}

/// A state that a transfer entered, and by which evidence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Change {
    pub at: Timestamp,
    pub state: String,
    pub evidence: String,
    /// The block that showed it.
    pub block: Option<BlockRef>,
    /// Its time, as the chain says it.
    pub block_time: Option<Timestamp>,
    /// The endpoints that reported the state of the key in that block; none where our own blocks showed it.
    pub reported_by: Vec<String>,
}

/// The states that the transfer entered, in their order.
pub async fn history(connection: &mut impl Connection, id: TransferId) -> Result<Vec<Change>, StoreError> {
    type Row = (i64, String, String, Option<i64>, Option<Vec<u8>>, Option<i64>, Option<String>);
    let change = |(at, state, evidence, number, bytes, time, reported_by): Row| {
        let block = number.zip(bytes).map(|(number, bytes)| {
            Ok::<_, StoreError>(BlockRef {
                number: uint("block number", number)?,
                hash: BlockHash(hash("block hash", &bytes)?),
            })
        });
        let (block, block_time) = (block.transpose()?, time.map(Timestamp));
        let reported_by = reported_by.iter().flat_map(|names| names.split(' ')).map(str::to_owned).collect();
        Ok(Change { at: Timestamp(at), state, evidence, block, block_time, reported_by })
    };
    fetch_all!(connection, Row, HISTORY, id.to_string())?.into_iter().map(change).collect()
}

/// At most `limit` transfers of the chain that are to be sent, and as many that wait for finality or a proof; the oldest
/// first. Where there are more, each account has its turn.
pub async fn unfinished(
    connection: &mut impl Connection,
    chain: Chain,
    limit: u32,
    now: Timestamp,
) -> Result<Vec<Transfer>, StoreError> {
    let rows = fetch_all!(connection, TransferRow, UNFINISHED, chain.name(), i64::from(limit), now.0)?;
    let mut found = rows.into_iter().map(Transfer::try_from).collect::<Result<Vec<_>, _>>()?;
    found.sort_unstable_by_key(|transfer| (transfer.created_at, transfer.id.0));
    Ok(found)
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
    let TransferFilter { kind, chain, symbol, status, .. } = filter;
    let kind = kind.map(TransferKind::name);
    let (chain, symbol, status) = (chain.map(Chain::name), symbol.as_deref(), status.map(TransferStatus::name));
    let (start, (before, before_id), limit) = (filter.start(), filter.before(), i64::from(limit));
    macro_rules! rows {
        ($sql:ident, $of:expr $(, $more:expr)*) => {
            fetch_all!(
                connection,
                TransferRow,
                $sql,
                $of,
                chain,
                symbol,
                status,
                start,
                before,
                before_id,
                limit,
                kind
                $(, $more)*
            )?
        };
    }
    let is_rare = filter.status.is_some_and(|status| status != TransferStatus::Confirmed);
    let rows = match of {
        _ if is_rare => {
            let (account, identity) = match of {
                Of::Organization => (None, None),
                Of::Account(account) => (Some(account), None),
                Of::Identity(identity) => (None, Some(identity)),
            };
            rows!(OF_STATUS, ORGANIZATION, account, identity)
        }
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
        let TransferFilter { kind, account_id, identity_ids, chain, symbol, status, .. } = self;
        let place = (transfer.created_at.0, transfer.id.to_string());
        account_id.as_ref().is_none_or(|account| *account == transfer.account_id)
            && (identity_ids.is_empty() || identity_ids.contains(&transfer.identity_id))
            && kind.is_none_or(|kind| kind == transfer.kind)
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
            kind: parsed("kind of a transfer", &row.kind)?,
            request_id: parsed("request id", &row.request_id)?,
            account_id: row.account_id,
            identity_id: row.identity_id,
            chain: parsed("chain", &row.chain)?,
            asset: AssetId::from_bytes(&row.asset).map_err(|error| StoreError::inconsistent("asset", error))?,
            symbol: row.symbol,
            decimals: uint("decimals", row.decimals)?,
            amount: amount_of(&row.amount)?,
            source: address("source", &row.source)?,
            source_tag: row.source_tag,
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
            is_signed: row.is_signed,
            route: row.route,
            intent_key: intent_key(&row.intent_key)?,
            cancelled_at: row.cancelled_us.map(Timestamp),
            obstacle: row.obstacle.as_deref().map(|name| parsed("obstacle", name)).transpose()?,
            version: uint("version", row.version)?,
            network_fee: match (row.fee_amount, row.fee_symbol, row.fee_decimals) {
                (Some(amount), Some(symbol), Some(decimals)) => Some(NetworkFee {
                    amount: amount_of(&amount)?,
                    symbol,
                    decimals: uint("decimals", decimals)?,
                    charged: charged(row.fee_usd, row.fee_charged_to)?,
                }),
                _ => None,
            },
        })
    }
}

fn charged(usd: Option<i64>, to: Option<String>) -> Result<Option<(Usd, ChargedTo)>, StoreError> {
    let charged = usd.zip(to).map(|(usd, to)| Ok((Usd(uint("network fee", usd)?), parsed("charge", &to)?)));
    charged.transpose()
}
