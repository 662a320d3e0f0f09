//! What must hold of every store, whatever happened: the books.
//!
//! Reads the tables with SQL of its own, so that a mistake in the store's reading cannot hide one in its writing.

use std::collections::{BTreeMap, BTreeSet};

use landfall::deposit::{DepositStatus, Leg, LegHash};
use landfall::event::EventId;
use landfall::store::{Connection, Db, Engine};
use landfall_chain::{Address, AssetTransfer, U256};
use serde_json::Value;

use crate::world::{World, network};

/// An event as it stands in its table.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, sqlx::FromRow)]
pub(crate) struct EventRow {
    pub(crate) aggregateid: String,
    pub(crate) position: i64,
    pub(crate) id: String,
    pub(crate) status: String,
    pub(crate) nth_entry: i64,
    pub(crate) payload: String,
}

/// The first block in which the address is matched, as it was told to its owner.
pub(crate) async fn watched_from(db: &Db, address: &Address) -> u64 {
    let text = "SELECT from_number FROM watched_addresses WHERE address = $1";
    let mut reader = db.read().await.unwrap();
    let (number,): (i64,) = match reader.engine() {
        Engine::Postgres(connection) => {
            sqlx::query_as(text).bind(address.as_bytes()).fetch_one(connection).await.unwrap()
        }
        Engine::Sqlite(connection) => {
            sqlx::query_as(text).bind(address.as_bytes()).fetch_one(connection).await.unwrap()
        }
    };
    u64::try_from(number).unwrap()
}

/// A leg of a final block and the block's number.
pub(crate) struct FinalLeg {
    pub(crate) transfer: AssetTransfer,
    pub(crate) number: u64,
}

/// Every event, by deposit and position.
pub(crate) async fn events(db: &Db) -> Vec<EventRow> {
    let text =
        "SELECT aggregateid, position, id, status, nth_entry, payload FROM events ORDER BY aggregateid, position";
    let mut reader = db.read().await.unwrap();
    match reader.engine() {
        Engine::Postgres(connection) => sqlx::query_as(text).fetch_all(connection).await.unwrap(),
        Engine::Sqlite(connection) => sqlx::query_as(text).fetch_all(connection).await.unwrap(),
    }
}

/// The legs of final blocks, as the chain itself knows them.
pub(crate) fn final_legs(world: &World) -> BTreeMap<LegHash, FinalLeg> {
    let through = world.chain.finalized().map_or(0, |finalized| finalized.number);
    let network = network();
    let mut legs = BTreeMap::new();
    for block in world.chain.blocks().iter().filter(|block| block.header.block.number <= through) {
        for transfer in block.to_block().transfers.iter().filter(|transfer| network.asset(&transfer.asset).is_some()) {
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
    let (final_legs, network) = (final_legs(world), network());
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
        assert_events(of_deposit, &deposit.leg_hash, deposit.status);
    }
}

/// Asserts that everything final and watched is CONFIRMED, and nothing else is: for a world at rest.
pub(crate) async fn assert_settled(world: &World, watched_from: &BTreeMap<landfall_chain::Address, u64>) {
    let deposits = world.deposits().await;
    let statuses: BTreeMap<LegHash, DepositStatus> =
        deposits.into_iter().map(|deposit| (deposit.leg_hash, deposit.status)).collect();
    for (leg, FinalLeg { transfer, number }) in final_legs(world) {
        let recipient = transfer.recipient;
        if watched_from.get(&recipient).is_some_and(|from| number >= *from) {
            let status = statuses.get(&leg);
            let confirmed = status == Some(&DepositStatus::Confirmed);
            assert!(confirmed, "a leg to {recipient} in final block {number} is {status:?}");
        }
    }
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

fn assert_payload(event: &EventRow, leg: &LegHash) {
    let status: DepositStatus = event.status.parse().unwrap();
    assert_eq!(event.id, EventId::of(leg, status, u32::try_from(event.nth_entry).unwrap()).to_string());
    let envelope: Value = serde_json::from_str(&event.payload).unwrap();
    let keys: Vec<&str> = envelope.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys.len(), 3, "the envelope is exactly id, type, data");
    assert_eq!(envelope["id"], event.id.as_str());
    assert_eq!(envelope["type"], "deposit_v2");
    let data = envelope["data"].as_object().unwrap();
    assert_eq!(data.len(), 13, "data has exactly the 13 fields of the interface");
    assert_eq!(data["id"], event.aggregateid.as_str());
    assert_eq!(data["status"], event.status.as_str());
    assert_eq!(data["dedup_key"], EventId::dedup_key(leg).to_string().as_str());
    if event.position == 0 {
        assert_eq!(data["dedup_key"], event.id.as_str(), "the first event's id is the dedup_key");
    }
}
