//! What sending costs, entry by entry; insert only. An entry is priced once, at once or later.
//!
//! Beside it stand the sums of its priced costs (`gas_credit`): the row that is locked, so that nobody spends the credit
//! twice. And what is held of it (`gas_holds`). They change in the transaction of the entry.

use landfall_chain::{Address, BlockHash, BlockRef, Chain, TxId, U256};
use sqlx_macros::FromRow;

use crate::gas::{Bearer, Cost, Credit, EntryKind, GRANT, GasCurrency, NetworkFee, Observation, Split, Usd};
use crate::store::attempts::Purpose;
use crate::store::deposits::{address, amount_bytes, amount_of};
use crate::store::error::expect_one;
use crate::store::movements::tx_id;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, ORGANIZATION, StoreError, Tx, hash, int, parsed, uint};
use crate::time::Timestamp;
use crate::transfer::TransferId;

/// An entry of the ledger.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub kind: EntryKind,
    /// Of what it is: a GRANT is of no transfer.
    pub transfer: Option<OfTransfer>,
    /// The transaction that cost it, and its block.
    pub landed: Option<(TxId, BlockRef)>,
    /// Who bears a cost.
    pub bearer: Option<Bearer>,
    pub at: Timestamp,
    /// `None` until there is a price.
    pub pricing: Option<Pricing>,
}

/// What an entry is of, and how much of the native currency it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OfTransfer {
    /// `None` of a refill, and of a cost whose transfer is not on record.
    pub id: Option<TransferId>,
    pub chain: Chain,
    pub route: String,
    /// Base units.
    pub amount: U256,
    /// What of it is rent of accounts that the transaction made and that does not come back.
    pub rent: u64,
    pub symbol: String,
    pub decimals: u8,
}

/// What an entry is in USD.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pricing {
    pub usd: Usd,
    /// Of a cost.
    pub split: Split,
    /// `None` where it is an amount of USD from the beginning.
    pub by: Option<Observation>,
    pub at: Timestamp,
}

/// An entry, and whose transfer it is of.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    pub entry: Entry,
    /// Its name, by which pages go.
    pub key: String,
    pub account_id: Option<String>,
    pub identity_id: Option<String>,
}

/// A transaction of a sponsor in a final block.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Landed {
    pub tx: TxId,
    pub block: BlockRef,
    pub sponsor: Address,
    /// Its fee.
    pub fee: U256,
    pub transfer_id: TransferId,
    pub purpose: Purpose,
    /// What it locked in the guard that it made; `None` where it made none.
    pub locked: Option<u64>,
    /// What else it took of the sponsor: rent of an account that it gave the recipient.
    pub rent: u64,
}

/// An entry that waits for a price.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unpriced {
    pub key: String,
    pub entry: Entry,
}

statements! {
    OPEN = "INSERT INTO gas_credit (organization_id, granted, used, billed, platform) VALUES ($1, $2, 0, 0, 0) \
            ON CONFLICT (organization_id) DO NOTHING";
    IS_GIVEN = "SELECT 1 FROM gas_credit WHERE organization_id = $1";
    LOCK = "SELECT 1 FROM gas_credit WHERE organization_id = $1" [" FOR UPDATE"] "";
    CREDIT = "SELECT granted, used, billed, platform, (SELECT CAST(COALESCE(SUM(usd), 0) AS BIGINT) FROM gas_holds) AS held \
              FROM gas_credit WHERE organization_id = $1";
    CHANGE = "UPDATE gas_credit SET used = used + $1, billed = billed + $2, platform = platform + $3 WHERE organization_id = $4";
    HOLD = "INSERT INTO gas_holds (entry, usd) VALUES ($1, $2)";
    RELEASE = "DELETE FROM gas_holds WHERE entry = $1";
    APPEND = "INSERT INTO gas_ledger (entry, organization_id, kind, transfer_id, chain, route, symbol, decimals, amount, amount_text, rent, \
              tx_id, block_number, block_hash, bearer, at_us) \
              VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) ON CONFLICT (entry) DO NOTHING";
    PRICE = "INSERT INTO gas_pricings (entry, usd, credit, billed, platform, price, source, observed_us, at_us) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
    WAIT = "INSERT INTO gas_unpriced (entry, chain, at_us) VALUES ($1, $2, $3)";
    PRICED = "DELETE FROM gas_unpriced WHERE entry = $1";
    UNPRICED = "SELECT u.entry AS key, l.kind, l.transfer_id, l.chain, l.route, l.symbol, l.decimals, l.amount, l.rent, l.tx_id, l.block_number, \
                l.block_hash, l.bearer, l.at_us, CAST(NULL AS BIGINT) AS usd, CAST(NULL AS BIGINT) AS credit, CAST(NULL AS BIGINT) AS billed, \
                CAST(NULL AS BIGINT) AS platform, CAST(NULL AS TEXT) AS price, CAST(NULL AS TEXT) AS source, CAST(NULL AS BIGINT) AS observed_us, \
                CAST(NULL AS BIGINT) AS priced_us, t.account_id, t.identity_id \
                FROM gas_unpriced AS u JOIN gas_ledger AS l ON l.entry = u.entry LEFT JOIN transfers AS t ON t.id = l.transfer_id \
                WHERE u.chain = $1 ORDER BY u.at_us, u.entry LIMIT $2";
    UNPRICED_COSTS = "SELECT COUNT(*) FROM gas_unpriced AS u CROSS JOIN gas_ledger AS l WHERE l.entry = u.entry AND l.kind = 'COST'";
    UNPRICED_SINCE = "SELECT COUNT(*), MIN(at_us) FROM gas_unpriced WHERE chain = $1";
    WAITING = "SELECT l.transfer_id FROM gas_unpriced AS u JOIN gas_ledger AS l ON l.entry = u.entry WHERE u.chain = $1 AND l.kind = 'HOLD'";
    LAST_COST = "SELECT amount, rent FROM gas_ledger WHERE chain = $1 AND route = $2 AND kind = 'COST' AND bearer = 'CUSTOMER' \
                 ORDER BY at_us DESC, entry DESC LIMIT 1";
    OF_KEY = "SELECT l.entry AS key, l.kind, l.transfer_id, l.chain, l.route, l.symbol, l.decimals, l.amount, l.rent, l.tx_id, l.block_number, \
              l.block_hash, l.bearer, l.at_us, p.usd, p.credit, p.billed, p.platform, p.price, p.source, p.observed_us, p.at_us AS priced_us, \
              t.account_id, t.identity_id \
              FROM gas_ledger AS l LEFT JOIN gas_pricings AS p ON p.entry = l.entry LEFT JOIN transfers AS t ON t.id = l.transfer_id \
              WHERE l.entry = $1";
    COSTS_OF = "SELECT l.amount, l.bearer, p.usd, p.credit, p.billed, p.platform FROM gas_ledger AS l \
                LEFT JOIN gas_pricings AS p ON p.entry = l.entry WHERE l.transfer_id = $1 AND l.kind = 'COST' ORDER BY l.entry";
    LANDED_OF = "SELECT tx_id, block_number, block_hash FROM gas_ledger WHERE transfer_id = $1 AND kind = 'COST' \
                 ORDER BY block_number DESC, entry DESC LIMIT 1";
    SET_FEE = "UPDATE transfers SET fee_amount = $1, fee_symbol = $2, fee_decimals = $3, fee_usd = $4, fee_charged_to = $5 WHERE id = $6";
    // What its sponsors paid in canonical blocks, for transactions that are on record. CROSS JOIN, so that SQLite begins with
    // the few sponsors; OFFSET 0, so that PostgreSQL does also without statistics.
    LANDED = "SELECT f.tx_id, f.block_number, f.block_hash, f.payer, f.amount, f.outlay, a.transfer_id, a.guard_rent, a.purpose \
              FROM sponsors AS s CROSS JOIN" [" LATERAL (SELECT * FROM"] " fees AS f" [" WHERE f.chain = s.chain AND f.payer = s.address \
              AND f.block_number > $2 AND f.block_number <= $3 OFFSET 0) AS f"] " CROSS JOIN" [" LATERAL (SELECT * FROM"] " blocks AS b"
              [" WHERE b.chain = f.chain AND b.hash = f.block_hash OFFSET 0) AS b"] " CROSS JOIN" [" LATERAL (SELECT * FROM"]
              " transfer_attempts AS a" [" WHERE a.chain = f.chain AND a.tx_id = f.tx_id OFFSET 0) AS a"] " \
              WHERE s.chain = $1 AND f.chain = s.chain AND f.payer = s.address AND f.block_number > $2 AND f.block_number <= $3 \
              AND b.chain = f.chain AND b.hash = f.block_hash AND b.canonical AND a.chain = f.chain AND a.tx_id = f.tx_id \
              ORDER BY f.block_number, f.tx_id LIMIT $4";
    BOOKED = "SELECT number FROM gas_booked WHERE chain = $1";
    BOOK = "INSERT INTO gas_booked (chain, number) VALUES ($1, $2) ON CONFLICT (chain) DO UPDATE SET number = excluded.number";
    NEWEST = "SELECT l.entry AS key, l.kind, l.transfer_id, l.chain, l.route, l.symbol, l.decimals, l.amount, l.rent, l.tx_id, l.block_number, \
              l.block_hash, l.bearer, l.at_us, p.usd, p.credit, p.billed, p.platform, p.price, p.source, p.observed_us, p.at_us AS priced_us, \
              t.account_id, t.identity_id \
              FROM gas_ledger AS l LEFT JOIN gas_pricings AS p ON p.entry = l.entry LEFT JOIN transfers AS t ON t.id = l.transfer_id \
              WHERE (l.at_us, l.entry) < ($1, $2) ORDER BY l.at_us DESC, l.entry DESC LIMIT $3";
    PRICED_BETWEEN = "SELECT l.entry AS key, l.kind, l.transfer_id, l.chain, l.route, l.symbol, l.decimals, l.amount, l.rent, l.tx_id, l.block_number, \
                      l.block_hash, l.bearer, l.at_us, p.usd, p.credit, p.billed, p.platform, p.price, p.source, p.observed_us, p.at_us AS priced_us, \
                      t.account_id, t.identity_id \
                      FROM gas_pricings AS p JOIN gas_ledger AS l ON l.entry = p.entry LEFT JOIN transfers AS t ON t.id = l.transfer_id \
                      WHERE (p.at_us, p.entry) > ($1, $2) AND p.at_us < $3 AND l.kind = 'COST' ORDER BY p.at_us, p.entry LIMIT $4";
}

#[derive(FromRow)]
struct CreditRow {
    granted: i64,
    used: i64,
    held: i64,
    billed: i64,
    platform: i64,
}

#[derive(FromRow)]
struct Row {
    key: String,
    kind: String,
    transfer_id: Option<String>,
    chain: Option<String>,
    route: Option<String>,
    symbol: Option<String>,
    decimals: Option<i64>,
    amount: Option<Vec<u8>>,
    rent: Option<i64>,
    tx_id: Option<Vec<u8>>,
    block_number: Option<i64>,
    block_hash: Option<Vec<u8>>,
    bearer: Option<String>,
    at_us: i64,
    usd: Option<i64>,
    credit: Option<i64>,
    billed: Option<i64>,
    platform: Option<i64>,
    price: Option<String>,
    source: Option<String>,
    observed_us: Option<i64>,
    priced_us: Option<i64>,
    account_id: Option<String>,
    identity_id: Option<String>,
}

/// The credit, locked for the transaction.
pub async fn lock(tx: &mut Tx, now: Timestamp) -> Result<Credit, StoreError> {
    give(tx, now).await?;
    // What others held before the lock was ours is read behind it.
    fetch_optional!(tx, (i32,), LOCK, ORGANIZATION)?;
    credit(tx).await
}

/// Records that the credit was given, once.
pub async fn give(tx: &mut Tx, now: Timestamp) -> Result<(), StoreError> {
    // An INSERT would wait for whoever changes the row.
    if fetch_optional!(tx, (i32,), IS_GIVEN, ORGANIZATION)?.is_some() {
        return Ok(());
    }
    if execute!(tx, OPEN, ORGANIZATION, usd_int(GRANT))? == 1 {
        let pricing = Some(Pricing { usd: GRANT, split: Split::default(), by: None, at: now });
        let grant =
            Entry { kind: EntryKind::Grant, transfer: None, landed: None, bearer: None, at: now, pricing: None };
        append(tx, &Entry { pricing, ..grant }).await?;
    }
    Ok(())
}

/// The credit at this moment; before anybody has asked for it, what will be given.
pub async fn credit(connection: &mut impl Connection) -> Result<Credit, StoreError> {
    let row = fetch_optional!(connection, CreditRow, CREDIT, ORGANIZATION)?;
    row.map_or(Ok(Credit { granted: GRANT, ..Credit::default() }), CreditRow::credit)
}

/// Records an entry, and its price if it has one; returns whether it was new. The caller holds [`lock`] if it is a cost with
/// a price.
pub async fn append(tx: &mut Tx, entry: &Entry) -> Result<bool, StoreError> {
    let Entry { kind, transfer, landed, bearer, at, pricing } = entry;
    let (key, of) = (key(entry), transfer.as_ref());
    let appended = execute!(
        tx,
        APPEND,
        &key,
        ORGANIZATION,
        kind.name(),
        of.and_then(|of| of.id).map(|id| id.to_string()),
        of.map(|of| of.chain.name()),
        of.map(|of| of.route.as_str()),
        of.map(|of| of.symbol.as_str()),
        of.map(|of| i64::from(of.decimals)),
        of.map(|of| amount_bytes(&of.amount)),
        of.map(|of| of.amount.to_string()),
        of.map(|of| int(of.rent)),
        landed.as_ref().map(|(tx, _)| tx.as_bytes()),
        landed.as_ref().map(|(_, block)| int(block.number)),
        landed.as_ref().map(|(_, block)| &block.hash.0[..]),
        bearer.map(Bearer::name),
        at.0
    )?;
    if appended == 1
        && let Some(pricing) = pricing
    {
        set_price(tx, (&key, *kind), pricing).await?;
    }
    Ok(appended == 1)
}

/// An entry without a price waits for one.
pub async fn wait(tx: &mut Tx, chain: Chain, entry: &Entry) -> Result<(), StoreError> {
    let waits = execute!(tx, WAIT, key(entry), chain.name(), entry.at.0)?;
    expect_one("let an entry wait for a price", waits)
}

/// Records what an entry that waited is in USD. The caller holds [`lock`].
pub async fn price(tx: &mut Tx, (key, kind): (&str, EntryKind), pricing: &Pricing) -> Result<(), StoreError> {
    execute!(tx, PRICED, key)?;
    set_price(tx, (key, kind), pricing).await
}

/// Records what an entry is in USD, and changes what is held, or the sums.
async fn set_price(tx: &mut Tx, (key, kind): (&str, EntryKind), pricing: &Pricing) -> Result<(), StoreError> {
    let Pricing { usd, split, by, at } = pricing;
    let parts = [*usd, split.credit, split.billed, split.platform].map(usd_int);
    let (price, source) = (by.as_ref().map(|by| by.price.to_string()), by.as_ref().map(|by| by.source.name()));
    let observed = by.as_ref().map(|by| by.at.0);
    let [amount, credit, billed, platform] = parts;
    let priced = execute!(tx, PRICE, key, amount, credit, billed, platform, price, source, observed, at.0)?;
    expect_one("price an entry", priced)?;
    let changed = match kind {
        EntryKind::Hold => execute!(tx, HOLD, key, amount)?,
        EntryKind::Cost => execute!(tx, CHANGE, credit, billed, platform, ORGANIZATION)?,
        EntryKind::Grant | EntryKind::Release => return Ok(()),
    };
    expect_one("change what is held, or the sums of the ledger", changed)
}

/// Ends the hold of a transfer that has ended, once. One that waited for a price waits no more.
pub async fn release(tx: &mut Tx, id: TransferId, now: Timestamp) -> Result<(), StoreError> {
    let hold = format!("{} {id}", EntryKind::Hold.name());
    let Some(row) = fetch_optional!(tx, Row, OF_KEY, &hold)? else { return Ok(()) };
    let held = Listed::try_from(row)?.entry;
    match held.pricing {
        Some(_) => execute!(tx, RELEASE, &hold)?,
        None => execute!(tx, PRICED, &hold)?,
    };
    let pricing = held.pricing.map(|pricing| Pricing { at: now, ..pricing });
    append(tx, &Entry { kind: EntryKind::Release, at: now, pricing, ..held }).await.map(drop)
}

/// What the last final transaction of a route on a chain cost, of those that customers bear, without rent: few transfers make
/// an account.
pub async fn last_cost(
    connection: &mut impl Connection,
    chain: Chain,
    route: &str,
) -> Result<Option<U256>, StoreError> {
    let row = fetch_optional!(connection, (Vec<u8>, Option<i64>), LAST_COST, chain.name(), route)?;
    let cost = |(amount, rent): (Vec<u8>, Option<i64>)| {
        let rent: u64 = uint("rent", rent.unwrap_or_default())?;
        Ok(amount_of(&amount)?.saturating_sub(U256::from(rent)))
    };
    row.map(cost).transpose()
}

/// At most `limit` transactions of sponsors in final blocks that are not booked yet, the lowest block first. `through` is
/// the newest final block.
pub async fn landed(
    connection: &mut impl Connection,
    chain: Chain,
    through: u64,
    limit: u32,
) -> Result<Vec<Landed>, StoreError> {
    let booked = fetch_optional!(connection, (i64,), BOOKED, chain.name())?.map_or(-1, |(number,)| number);
    // Behind an accepted reorg less is final than was.
    let (from, to) = (booked.min(int(through)), int(through));
    type Row = (Vec<u8>, i64, Vec<u8>, Vec<u8>, Vec<u8>, String, String, Option<i64>, String);
    let rows = fetch_all!(connection, Row, LANDED, chain.name(), from, to, i64::from(limit))?;
    let landed = |(tx, number, block, sponsor, fee, outlay, transfer, guard, purpose): Row| {
        let hash = BlockHash(hash("block hash", &block)?);
        let outlay = parsed::<i128>("outlay", &outlay)?.max(0);
        // What failed has made nothing, and took nothing but its fee.
        let guard = guard.map(|rent| uint::<u64>("rent", rent)).transpose()?.filter(|rent| outlay >= i128::from(*rent));
        let rent = outlay - guard.map_or(outlay, i128::from);
        Ok(Landed {
            tx: tx_id(&tx)?,
            block: BlockRef { number: uint("block number", number)?, hash },
            sponsor: address("sponsor", &sponsor)?,
            fee: amount_of(&fee)?,
            transfer_id: parsed("transfer id", &transfer)?,
            purpose: parsed("purpose", &purpose)?,
            locked: guard,
            rent: u64::try_from(rent).map_err(|error| StoreError::inconsistent("outlay", error))?,
        })
    };
    rows.into_iter().map(landed).collect()
}

/// What landed up to block `number` is booked.
pub async fn booked(tx: &mut Tx, chain: Chain, number: u64) -> Result<(), StoreError> {
    execute!(tx, BOOK, chain.name(), int(number)).map(drop)
}

/// At most `limit` entries of a chain that wait for a price, the oldest first.
pub async fn unpriced(connection: &mut impl Connection, chain: Chain, limit: u32) -> Result<Vec<Unpriced>, StoreError> {
    let rows = fetch_all!(connection, Row, UNPRICED, chain.name(), i64::from(limit))?;
    let unpriced = |row: Row| Listed::try_from(row).map(|Listed { key, entry, .. }| Unpriced { key, entry });
    rows.into_iter().map(unpriced).collect()
}

/// How many costs wait for a price.
pub async fn unpriced_costs(connection: &mut impl Connection) -> Result<u64, StoreError> {
    let row = fetch_optional!(connection, (i64,), UNPRICED_COSTS)?;
    row.map_or(Ok(0), |(count,)| uint("count of unpriced costs", count))
}

/// How many entries of a chain wait for a price, and since when the oldest does.
pub async fn unpriced_since(
    connection: &mut impl Connection,
    chain: Chain,
) -> Result<(u64, Option<Timestamp>), StoreError> {
    let row = fetch_optional!(connection, (i64, Option<i64>), UNPRICED_SINCE, chain.name())?;
    let (count, since) = row.unwrap_or_default();
    Ok((uint("count of unpriced entries", count)?, since.map(Timestamp)))
}

/// The transfers of a chain that may not be sent before there is a price.
pub async fn waiting(connection: &mut impl Connection, chain: Chain) -> Result<Vec<TransferId>, StoreError> {
    let rows = fetch_all!(connection, (String,), WAITING, chain.name())?;
    rows.iter().map(|(id,)| parsed("transfer id", id)).collect()
}

/// What a transfer cost so far.
pub async fn costs_of(connection: &mut impl Connection, id: TransferId) -> Result<Vec<Cost>, StoreError> {
    type Row = (Vec<u8>, String, Option<i64>, Option<i64>, Option<i64>, Option<i64>);
    let rows = fetch_all!(connection, Row, COSTS_OF, id.to_string())?;
    let cost = |(amount, bearer, _, credit, billed, platform): Row| {
        let split = split(credit, billed, platform)?;
        Ok(Cost { amount: amount_of(&amount)?, bearer: parsed("bearer", &bearer)?, split })
    };
    rows.into_iter().map(cost).collect()
}

/// The last of its transactions in final blocks, by what they cost.
pub async fn landed_of(
    connection: &mut impl Connection,
    id: TransferId,
) -> Result<Option<(TxId, BlockRef)>, StoreError> {
    type Row = (Vec<u8>, i64, Vec<u8>);
    let row = fetch_optional!(connection, Row, LANDED_OF, id.to_string())?;
    let landed = |(tx, number, block): Row| {
        let hash = BlockHash(hash("block hash", &block)?);
        Ok((tx_id(&tx)?, BlockRef { number: uint("block number", number)?, hash }))
    };
    row.map(landed).transpose()
}

/// Records with a transfer what its transactions cost.
pub async fn set_fee(tx: &mut Tx, id: TransferId, fee: &NetworkFee) -> Result<(), StoreError> {
    let NetworkFee { amount, symbol, decimals, charged } = fee;
    let (usd, to) = (charged.map(|(usd, _)| usd_int(usd)), charged.map(|(_, to)| to.name()));
    let set = execute!(tx, SET_FEE, amount_bytes(amount), symbol, i64::from(*decimals), usd, to, id.to_string())?;
    expect_one("record what a transfer cost", set)
}

/// At most `limit` entries, newest first, behind the one with this time and key.
pub async fn newest(
    connection: &mut impl Connection,
    after: Option<(Timestamp, &str)>,
    limit: u32,
) -> Result<Vec<Listed>, StoreError> {
    let (at, key) = after.map_or((i64::MAX, ""), |(at, key)| (at.0, key));
    let rows = fetch_all!(connection, Row, NEWEST, at, key, i64::from(limit))?;
    rows.into_iter().map(Listed::try_from).collect()
}

/// At most `limit` costs that were priced from `from` on and before `to`, the earliest first, behind the one with this key.
pub async fn priced_between(
    connection: &mut impl Connection,
    (from, after): (Timestamp, &str),
    to: Timestamp,
    limit: u32,
) -> Result<Vec<Listed>, StoreError> {
    let rows = fetch_all!(connection, Row, PRICED_BETWEEN, from.0, after, to.0, i64::from(limit))?;
    rows.into_iter().map(Listed::try_from).collect()
}

/// What makes an entry the only one: its kind, and what it is of.
fn key(entry: &Entry) -> String {
    let kind = entry.kind.name();
    match (&entry.transfer, &entry.landed) {
        (None, _) => format!("{kind} {ORGANIZATION}"),
        (Some(OfTransfer { id: Some(id), .. }), None) => format!("{kind} {id}"),
        (Some(OfTransfer { id: None, chain, .. }), None) => format!("{kind} {chain}"),
        (Some(OfTransfer { id: Some(id), chain, .. }), Some((tx, _))) => format!("{kind} {chain} {tx} {id}"),
        (Some(OfTransfer { id: None, chain, .. }), Some((tx, _))) => format!("{kind} {chain} {tx}"),
    }
}

fn usd_int(usd: Usd) -> i64 {
    int(usd.0)
}

fn usd_of(what: &'static str, micros: i64) -> Result<Usd, StoreError> {
    uint(what, micros).map(Usd)
}

fn split(credit: Option<i64>, billed: Option<i64>, platform: Option<i64>) -> Result<Option<Split>, StoreError> {
    let (Some(credit), Some(billed), Some(platform)) = (credit, billed, platform) else { return Ok(None) };
    let part = |micros| usd_of("part of a cost", micros);
    Ok(Some(Split { credit: part(credit)?, billed: part(billed)?, platform: part(platform)? }))
}

impl CreditRow {
    fn credit(self) -> Result<Credit, StoreError> {
        let CreditRow { granted, used, held, billed, platform } = self;
        Ok(Credit {
            granted: usd_of("credit", granted)?,
            used: usd_of("used credit", used)?,
            held: usd_of("held credit", held)?,
            billed: usd_of("billed costs", billed)?,
            platform: usd_of("costs of the platform", platform)?,
        })
    }
}

impl OfTransfer {
    /// So much of the chain's currency; of a transfer, if it is of one that is on record.
    pub fn new(id: Option<TransferId>, chain: Chain, route: &str, amount: U256, currency: &GasCurrency) -> Self {
        let (route, symbol) = (route.to_owned(), currency.symbol.clone());
        OfTransfer { id, chain, route, amount, rent: 0, symbol, decimals: currency.decimals }
    }
}

impl TryFrom<Row> for Listed {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let id = row.transfer_id.map(|id| parsed("transfer id", &id)).transpose()?;
        let transfer = match (row.chain, row.route, row.symbol, row.decimals, row.amount) {
            (Some(chain), Some(route), Some(symbol), Some(decimals), Some(amount)) => Some(OfTransfer {
                id,
                chain: parsed("chain", &chain)?,
                route,
                amount: amount_of(&amount)?,
                rent: uint("rent", row.rent.unwrap_or_default())?,
                symbol,
                decimals: uint("decimals", decimals)?,
            }),
            _ => None,
        };
        let landed = match (row.tx_id, row.block_number, row.block_hash) {
            (Some(id), Some(number), Some(block)) => {
                let hash = BlockHash(hash("block hash", &block)?);
                Some((tx_id(&id)?, BlockRef { number: uint("block number", number)?, hash }))
            }
            _ => None,
        };
        let by = match (row.price, row.source, row.observed_us, &transfer) {
            (Some(price), Some(source), Some(observed), Some(of)) => Some(Observation {
                symbol: of.symbol.clone(),
                price: parsed("price", &price)?,
                source: parsed("source of a price", &source)?,
                at: Timestamp(observed),
            }),
            _ => None,
        };
        let split = split(row.credit, row.billed, row.platform)?;
        let pricing = match (row.usd, split, row.priced_us) {
            (Some(usd), Some(split), Some(at)) => {
                Some(Pricing { usd: usd_of("usd", usd)?, split, by, at: Timestamp(at) })
            }
            _ => None,
        };
        let entry = Entry {
            kind: parsed("kind of an entry", &row.kind)?,
            transfer,
            landed,
            bearer: row.bearer.map(|bearer| parsed("bearer", &bearer)).transpose()?,
            at: Timestamp(row.at_us),
            pricing,
        };
        Ok(Listed { entry, key: row.key, account_id: row.account_id, identity_id: row.identity_id })
    }
}
