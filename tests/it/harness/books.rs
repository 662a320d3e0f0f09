//! What must hold of every store, whatever happened: the books.
//!
//! Reads the tables with SQL of its own, so that a mistake in the store's reading cannot hide one in its writing.

use std::collections::{BTreeMap, BTreeSet};

use landfall::deposit::{Deposit, DepositStatus, Leg, LegHash};
use landfall::event::EventId;
use landfall::store::cursors::Cursor;
use landfall::store::{Connection, Db, Engine, accounts, movements};
use landfall_chain::{Address, AssetTransfer, Lane, U256};
use serde_json::Value;
use sqlx::FromRow;
use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;

use crate::harness::world::{CHAIN, World};

/// An event as it stands in its table.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, sqlx_macros::FromRow)]
pub(crate) struct EventRow {
    pub(crate) aggregateid: String,
    pub(crate) position: i64,
    pub(crate) id: String,
    pub(crate) status: String,
    pub(crate) nth_entry: i64,
    pub(crate) payload: String,
}

/// A leg of a final block and the block's number.
pub(crate) struct FinalLeg {
    pub(crate) transfer: AssetTransfer,
    pub(crate) number: u64,
}

/// Every event of deposits, by deposit and position.
pub(crate) async fn events(db: &Db) -> Vec<EventRow> {
    let text = "SELECT aggregateid, position, id, status, nth_entry, payload FROM events WHERE aggregatetype = 'deposit' \
                ORDER BY aggregateid, position";
    rows(db, text).await
}

/// The legs of final blocks, as the chain itself knows them.
pub(crate) fn final_legs(world: &World) -> BTreeMap<LegHash, FinalLeg> {
    let through = world.chain.finalized().map_or(0, |finalized| finalized.number);
    let network = &world.network;
    let mut legs = BTreeMap::new();
    for block in world.chain.blocks().iter().filter(|block| block.header.block.number <= through) {
        let is_traced = network.native.is_traced(block.header.block.number);
        let inner = if is_traced { block.to_block(Lane::Traces).transfers } else { Vec::new() };
        let transfers = block.to_block(Lane::Block).transfers.into_iter().chain(inner);
        for transfer in transfers.filter(|transfer| network.asset(&transfer.asset).is_some()) {
            let hash = Leg {
                chain_ref: &network.chain_ref,
                tx: transfer.tx.id,
                asset: transfer.asset,
                recipient: transfer.recipient,
                amount: transfer.amount,
                nth: transfer.nth,
            }
            .hash();
            legs.insert(hash, FinalLeg { transfer: transfer.clone(), number: block.header.block.number });
        }
    }
    legs
}

/// Asserts what holds at every moment: CONFIRMED only what is final, events that fold to the deposits, ids that are
/// pure functions of the leg.
pub(crate) async fn assert_balanced(world: &World) {
    let deposits = world.deposits().await;
    let (final_legs, network) = (final_legs(world), &world.network);
    let mut events: BTreeMap<String, Vec<EventRow>> = BTreeMap::new();
    for event in self::events(world.db()).await {
        events.entry(event.aggregateid.clone()).or_default().push(event);
    }
    let ids: BTreeSet<&String> = events.values().flatten().map(|event| &event.id).collect();
    assert_eq!(ids.len(), events.values().flatten().count(), "an event id stands twice");
    assert_eq!(events.len(), deposits.len(), "events of a deposit that is not there");

    let mut credited: BTreeMap<LegHash, U256> = BTreeMap::new();
    for deposit in &deposits {
        assert_eq!(deposit.leg_hash.deposit_id(), deposit.id);
        if deposit.status == DepositStatus::Confirmed {
            assert!(final_legs.contains_key(&deposit.leg_hash), "{} is confirmed and in no final block", deposit.id);
            assert_eq!(credited.insert(deposit.leg_hash, deposit.amount), None, "{} is credited twice", deposit.id);
            let leg = &final_legs[&deposit.leg_hash].transfer;
            let recorded = (deposit.tx, deposit.asset, deposit.recipient, deposit.sender, deposit.amount, deposit.nth);
            assert_eq!(recorded, (leg.tx, leg.asset, leg.recipient, leg.sender, leg.amount, leg.nth), "{}", deposit.id);
            let asset = network.asset(&leg.asset).expect("a listed asset");
            assert_eq!((&deposit.symbol, deposit.decimals), (&asset.symbol, asset.decimals));
        }
        let of_deposit = events.get(&deposit.id.to_string()).expect("a deposit has events");
        if deposit.status == DepositStatus::Confirmed {
            assert_reported_as_it_is(of_deposit.last().expect("one at least"), deposit);
        }
        assert_events(of_deposit, &deposit.leg_hash, deposit.status);
    }
    assert_identities_are_reported(world.db()).await;
    assert_balances(world).await;
}

/// Asserts that each change of an identity has its one event, in the order of the changes.
async fn assert_identities_are_reported(db: &Db) {
    type Change = (String, String, i64);
    let changed = "SELECT identity_id, status, at_us FROM identity_changes ORDER BY identity_id, position";
    let changed: Vec<Change> = rows(db, changed).await;
    let reported = "SELECT aggregateid, status, created_us FROM events WHERE aggregatetype = 'identity' ORDER BY aggregateid, position";
    let reported: Vec<Change> = rows(db, reported).await;
    assert_eq!(reported, changed, "the events of identities are not their changes");
}

/// Asserts that for each watched address what is on record, in less out and fees, is what the chain itself says it owns
/// more than before it was watched.
async fn assert_balances(world: &World) {
    let mut reader = world.db().read().await.unwrap();
    let cursor = Cursor::load(&mut reader, CHAIN).await.unwrap().at;
    let blocks = world.chain.blocks();
    // A world that was left in the middle of a reorg, or of its traces, has nothing to compare with.
    let Some(at) = cursor.filter(|at| blocks.iter().any(|block| block.header.block == *at)) else { return };
    let untraced: Vec<(i64,)> = rows(world.db(), "SELECT number FROM blocks WHERE canonical AND NOT traced").await;
    if !untraced.is_empty() {
        return;
    }
    let credits = "SELECT deposits.recipient, deposits.asset, deposits.amount, blocks.number FROM deposits \
                   JOIN inclusions ON inclusions.deposit_id = deposits.id \
                   JOIN blocks ON blocks.chain = inclusions.chain AND blocks.hash = inclusions.block_hash \
                   WHERE blocks.canonical AND deposits.status <> 'FAILED'";
    type Credit = (Vec<u8>, Vec<u8>, Vec<u8>, i64);
    let credits: Vec<Credit> = rows(world.db(), credits).await;
    let watched: Vec<(Vec<u8>,)> =
        rows(world.db(), "SELECT address FROM watched_addresses WHERE chain = 'ETHEREUM_TESTNET'").await;
    for (bytes,) in watched {
        let address = Address::from_bytes(&bytes).unwrap();
        let from = accounts::watched_from(&mut reader, CHAIN, &address).await.unwrap().unwrap();
        for asset in world.network.assets.iter().map(|asset| asset.id) {
            let of_asset = credits.iter().filter(|(to, what, _, number)| {
                *to == bytes && *what == asset.to_bytes() && *number >= i64::try_from(from).unwrap()
            });
            let paid_in: U256 = of_asset.map(|(_, _, amount, _)| U256::from_be_slice(amount)).sum();
            let spent = movements::spent(&mut reader, CHAIN, &address, &asset, &(from..=at.number)).await.unwrap();
            let before = world.chain.balance(&address, &asset, from.saturating_sub(1));
            let after = world.chain.balance(&address, &asset, at.number);
            assert_eq!(
                before + paid_in,
                after + spent.debits + spent.fees,
                "{asset} of {address} from block {from} on"
            );
        }
    }
}

/// Reads with a text of the test's own.
pub(crate) async fn rows<R>(db: &Db, text: &'static str) -> Vec<R>
where
    R: for<'r> FromRow<'r, PgRow> + for<'r> FromRow<'r, SqliteRow> + Send + Unpin,
{
    match db.read().await.unwrap().engine() {
        Engine::Postgres(connection) => sqlx::query_as(text).fetch_all(connection).await.unwrap(),
        Engine::Sqlite(connection) => sqlx::query_as(text).fetch_all(connection).await.unwrap(),
    }
}

/// Asserts that everything final and watched is CONFIRMED: for a world at rest. That nothing else is,
/// [`assert_balanced`] says.
pub(crate) async fn assert_settled(world: &World, watched_from: &BTreeMap<landfall_chain::Address, u64>) {
    if let Some(FinalLeg { transfer, number }) = unsettled(world, watched_from).await.first() {
        panic!("a leg in final block {number} is not CONFIRMED: {transfer:?}");
    }
}

/// What is final and watched and not CONFIRMED.
pub(crate) async fn unsettled(world: &World, watched_from: &BTreeMap<landfall_chain::Address, u64>) -> Vec<FinalLeg> {
    let deposits = world.deposits().await.into_iter();
    let confirmed: BTreeSet<LegHash> =
        deposits.filter(|deposit| deposit.status == DepositStatus::Confirmed).map(|deposit| deposit.leg_hash).collect();
    let is_watched = |leg: &FinalLeg| watched_from.get(&leg.transfer.recipient).is_some_and(|from| leg.number >= *from);
    let left = final_legs(world).into_iter().filter(|(hash, leg)| is_watched(leg) && !confirmed.contains(hash));
    left.map(|(_, leg)| leg).collect()
}

fn assert_events(events: &[EventRow], leg: &LegHash, status: DepositStatus) {
    let mut entries: BTreeMap<&str, i64> = BTreeMap::new();
    let mut last = "";
    for (position, event) in events.iter().enumerate() {
        assert_eq!(event.position, i64::try_from(position).unwrap());
        let entry = entries.entry(&event.status).or_default();
        assert_eq!(event.nth_entry, *entry);
        *entry += 1;
        let allowed = matches!(
            (last, event.status.as_str()),
            ("", "PENDING") | ("PENDING", "CONFIRMED" | "FAILED") | ("FAILED", "PENDING")
        );
        assert!(allowed, "{last} -> {}", event.status);
        last = &event.status;
        assert_payload(event, leg);
    }
    assert_eq!(last, status.name(), "the events do not fold to the deposit's status");
}

/// What CONFIRMED reports of the payer is what the record has, which is what the final chain has.
fn assert_reported_as_it_is(event: &EventRow, deposit: &Deposit) {
    let envelope: Value = serde_json::from_str(&event.payload).unwrap();
    let expected = if deposit.source_account_id.is_some() { "ACCOUNT" } else { "ON_CHAIN" };
    assert_eq!(envelope["data"]["source_type"], expected);
    assert_eq!(envelope["data"]["source_address"], deposit.sender.to_string());
}

/// As the interface's reference has them, in the order of the alphabet.
const DATA_FIELDS: [&str; 13] = [
    "account_address",
    "account_id",
    "amount",
    "confirmed_at",
    "created_at",
    "currency_symbol",
    "dedup_key",
    "destination_chain",
    "id",
    "source_address",
    "source_type",
    "status",
    "transaction_hash",
];

fn assert_payload(event: &EventRow, leg: &LegHash) {
    let status: DepositStatus = event.status.parse().unwrap();
    assert_eq!(event.id, EventId::of(leg, status, u32::try_from(event.nth_entry).unwrap()).to_string());
    let envelope: Value = serde_json::from_str(&event.payload).unwrap();
    let keys: Vec<&str> = envelope.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys.len(), 3, "the envelope is exactly id, type, data");
    assert_eq!(envelope["id"], event.id.as_str());
    assert_eq!(envelope["type"], "deposit_v2");
    let data = envelope["data"].as_object().unwrap();
    let mut fields: Vec<&str> = data.keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, DATA_FIELDS, "data has exactly the 13 fields of the interface");
    assert_eq!(data["id"], event.aggregateid.as_str());
    assert_eq!(data["status"], event.status.as_str());
    assert_eq!(data["dedup_key"], EventId::dedup_key(leg).to_string().as_str());
    if event.position == 0 {
        assert_eq!(data["dedup_key"], event.id.as_str(), "the first event's id is the dedup_key");
    }
}
