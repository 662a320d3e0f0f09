//! What a chain last reported of each listed asset, why the last check reported nothing, and which assets are held.
//!
//! Nothing is CONFIRMED of an asset that is held, or with other decimals than were reported ([`confirmable`]; the lists
//! of `deposits` leave such deposits out). What was reported stays on record when a later check fails, and so does the
//! hold. What is no longer listed is removed.

use std::collections::BTreeMap;

use landfall_chain::{Address, Asset, AssetFacts, AssetId, Chain, Terms, TransferFee};
use sqlx_macros::FromRow;

use crate::store::error::expect_one;
use crate::store::sql::{execute, fetch_all, fetch_optional, statements};
use crate::store::{Connection, StoreError, Tx, int, parsed, uint};
use crate::time::Timestamp;

/// A listed asset, and what is on record of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssetRow {
    pub chain: Chain,
    pub asset: AssetId,
    pub symbol: String,
    /// `None` while nothing was ever reported.
    pub reported: Option<ReportedAsset>,
    /// Why the last check reported nothing; empty if it did.
    pub reason: String,
    /// Nothing of it is CONFIRMED.
    pub is_held: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportedAsset {
    pub at: Timestamp,
    /// `None` if there is no code at its address.
    pub program: Option<String>,
    /// `None` if the program keeps no tokens.
    pub terms: Option<Terms>,
    /// How it differs from what is listed; empty if it does not.
    pub differs: String,
}

/// By asset: whether it is held, and the decimals that the chain reported.
#[derive(Debug)]
pub struct Confirmable(BTreeMap<AssetId, (bool, Option<u8>)>);

statements! {
    REPORT = "INSERT INTO asset_facts (chain, asset, symbol, reported_us, program, decimals, freeze_authority, permanent_delegate, \
            fee_basis_points, fee_maximum, extensions, risks, differs, reason, is_held) \
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, '', $14) ON CONFLICT (chain, asset) DO UPDATE SET \
            symbol = excluded.symbol, reported_us = excluded.reported_us, program = excluded.program, decimals = excluded.decimals, \
            freeze_authority = excluded.freeze_authority, permanent_delegate = excluded.permanent_delegate, \
            fee_basis_points = excluded.fee_basis_points, fee_maximum = excluded.fee_maximum, \
            extensions = excluded.extensions, risks = excluded.risks, differs = excluded.differs, reason = '', \
            is_held = excluded.is_held";
    // A failed check proves nothing: an asset that was never reported is released after enough of them, and a reported
    // difference stays.
    FAIL = "INSERT INTO asset_facts (chain, asset, symbol, extensions, risks, differs, reason) \
            VALUES ($1, $2, $3, '[]', '[]', '', $4) \
            ON CONFLICT (chain, asset) DO UPDATE SET symbol = excluded.symbol, reason = excluded.reason, \
            is_held = CASE WHEN asset_facts.reported_us IS NULL AND $5 THEN FALSE ELSE asset_facts.is_held END";
    EXPECT = "INSERT INTO asset_facts (chain, asset, symbol, extensions, risks, differs, reason, is_held) \
              VALUES ($1, $2, $3, '[]', '[]', '', '', TRUE) ON CONFLICT (chain, asset) DO NOTHING";
    HOLD = "UPDATE asset_facts SET is_held = $1 WHERE chain = $2 AND asset = $3";
    CONFIRMABLE = "SELECT asset, is_held, decimals FROM asset_facts WHERE chain = $1 ORDER BY asset";
    OF = "SELECT * FROM asset_facts WHERE chain = $1 AND asset = $2";
    FORGET = "DELETE FROM asset_facts WHERE chain = $1 AND asset = $2";
    ALL = "SELECT * FROM asset_facts ORDER BY chain, symbol, asset";
}

#[derive(FromRow)]
struct Row {
    chain: String,
    asset: Vec<u8>,
    symbol: String,
    reported_us: Option<i64>,
    program: Option<String>,
    decimals: Option<i64>,
    freeze_authority: Option<String>,
    permanent_delegate: Option<String>,
    fee_basis_points: Option<i64>,
    fee_maximum: Option<String>,
    extensions: String,
    risks: String,
    differs: String,
    reason: String,
    is_held: bool,
}

/// Records what the chain reports of an asset, how that differs from what is listed, and whether it is held for that.
pub async fn report(
    tx: &mut Tx,
    chain: Chain,
    asset: &Asset,
    facts: &AssetFacts,
    (differs, is_held): (&str, bool),
    at: Timestamp,
) -> Result<(), StoreError> {
    let terms = facts.terms.as_ref();
    let fee = terms.and_then(|terms| terms.transfer_fee);
    let reported = execute!(
        tx,
        REPORT,
        chain.name(),
        asset.id.to_bytes(),
        &asset.symbol,
        at.0,
        &facts.program,
        terms.map(|terms| int(terms.decimals)),
        terms.and_then(|terms| terms.freeze_authority).map(|who| who.to_string()),
        terms.and_then(|terms| terms.permanent_delegate).map(|who| who.to_string()),
        fee.map(|fee| int(fee.basis_points)),
        fee.map(|fee| fee.maximum.to_string()),
        names(terms.map_or(&[][..], |terms| &terms.extensions[..])),
        names(terms.map_or(&[][..], |terms| &terms.risks[..])),
        differs,
        is_held,
    )?;
    expect_one("record what a chain says of an asset", reported)
}

/// Records why a check reported nothing of an asset; what was reported before stays. If `is_given_up`, an asset of
/// which nothing was ever reported is released.
pub async fn fail(
    tx: &mut Tx,
    chain: Chain,
    asset: &Asset,
    (reason, is_given_up): (&str, bool),
) -> Result<(), StoreError> {
    let failed = execute!(tx, FAIL, chain.name(), asset.id.to_bytes(), &asset.symbol, reason, is_given_up)?;
    expect_one("record that a chain says nothing of an asset", failed)
}

/// Holds an asset that is not on record: the chain must be asked first.
pub async fn expect(tx: &mut Tx, chain: Chain, asset: &Asset) -> Result<(), StoreError> {
    execute!(tx, EXPECT, chain.name(), asset.id.to_bytes(), &asset.symbol).map(drop)
}

/// Holds an asset that is on record, or releases it.
pub async fn hold(tx: &mut Tx, chain: Chain, asset: &AssetId, is_held: bool) -> Result<(), StoreError> {
    execute!(tx, HOLD, is_held, chain.name(), asset.to_bytes()).map(drop)
}

/// Which of a chain's assets may be CONFIRMED, and with which decimals.
pub async fn confirmable(connection: &mut impl Connection, chain: Chain) -> Result<Confirmable, StoreError> {
    let rows = fetch_all!(connection, (Vec<u8>, bool, Option<i64>), CONFIRMABLE, chain.name())?;
    let assets = rows.into_iter().map(|(asset, is_held, decimals)| {
        let decimals = decimals.map(|decimals| uint("decimals", decimals)).transpose()?;
        Ok::<_, StoreError>((id(&asset)?, (is_held, decimals)))
    });
    Ok(Confirmable(assets.collect::<Result<_, _>>()?))
}

impl Confirmable {
    /// Whether nothing of the asset may be CONFIRMED with these decimals: it is held, or the chain reported other ones.
    pub fn excludes(&self, asset: &AssetId, decimals: u8) -> bool {
        let known = self.0.get(asset);
        known.is_some_and(|(is_held, reported)| *is_held || reported.is_some_and(|reported| reported != decimals))
    }
}

pub async fn of(
    connection: &mut impl Connection,
    chain: Chain,
    asset: &AssetId,
) -> Result<Option<AssetRow>, StoreError> {
    fetch_optional!(connection, Row, OF, chain.name(), asset.to_bytes())?.map(AssetRow::try_from).transpose()
}

pub async fn forget(tx: &mut Tx, chain: Chain, asset: &AssetId) -> Result<(), StoreError> {
    execute!(tx, FORGET, chain.name(), asset.to_bytes()).map(drop)
}

/// What is on record of the assets of all chains, by chain and symbol.
pub async fn all(connection: &mut impl Connection) -> Result<Vec<AssetRow>, StoreError> {
    fetch_all!(connection, Row, ALL)?.into_iter().map(AssetRow::try_from).collect()
}

fn names(names: &[String]) -> String {
    serde_json::to_string(names).unwrap_or_else(|_| "[]".to_owned())
}

impl TryFrom<Row> for AssetRow {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let chain = parsed::<Chain>("chain", &row.chain)?;
        let asset = id(&row.asset)?;
        let terms = row.decimals.map(|decimals| terms(chain, decimals, &row)).transpose()?;
        let reported = row.reported_us.map(|at| ReportedAsset {
            at: Timestamp(at),
            program: row.program,
            terms,
            differs: row.differs,
        });
        Ok(AssetRow { chain, asset, symbol: row.symbol, reported, reason: row.reason, is_held: row.is_held })
    }
}

fn id(bytes: &[u8]) -> Result<AssetId, StoreError> {
    AssetId::from_bytes(bytes).map_err(|error| StoreError::inconsistent("asset", error))
}

fn terms(chain: Chain, decimals: i64, row: &Row) -> Result<Terms, StoreError> {
    let who = |text: &Option<String>| {
        let address = text.as_ref().map(|text| Address::parse(chain.family(), text)).transpose();
        address.map_err(|error| StoreError::inconsistent("authority", error))
    };
    let names = |text: &str| serde_json::from_str(text).map_err(|error| StoreError::inconsistent("extensions", error));
    let fee = row.fee_basis_points.zip(row.fee_maximum.as_ref()).map(|(points, maximum)| {
        Ok::<_, StoreError>(TransferFee { basis_points: uint("fee", points)?, maximum: parsed("fee", maximum)? })
    });
    Ok(Terms {
        decimals: uint("decimals", decimals)?,
        freeze_authority: who(&row.freeze_authority)?,
        permanent_delegate: who(&row.permanent_delegate)?,
        transfer_fee: fee.transpose()?,
        extensions: names(&row.extensions)?,
        risks: names(&row.risks)?,
    })
}
