//! Events: what clients are sent, as the bytes that are signed.
//!
//! Invariants:
//! - the id of a deposit's event is a pure function of the leg, the status, and how often the deposit had entered that
//!   status before;
//! - the id of an identity's event is a pure function of the change, its moment included: if a person decides the same
//!   again, for example in a restored store, that is another change;
//! - the envelope is exactly `{id, type, data}`, and `data` has exactly the fields of the interface.

use std::fmt;

use landfall_chain::hash_of;
use serde::Serialize;
use uuid::Uuid;

use crate::amount;
use crate::deposit::{Deposit, DepositId, DepositStatus, LegHash, uuid_of};
use crate::identity::{Identity, IdentityStatus, SubStatus};
use crate::time::Timestamp;

/// The `type` of every deposit event.
pub const DEPOSIT_EVENT: &str = "deposit_v2";
/// The `type` of every event of an identity.
pub const IDENTITY_EVENT: &str = "identity_status_update";
/// The `type` of an event whose only purpose is to show that a webhook works.
pub const TEST_EVENT: &str = "webhook_test";
/// The `type`s of the events that are in the feed.
pub const FEED_TYPES: [&str; 2] = [DEPOSIT_EVENT, IDENTITY_EVENT];
/// How many accounts one event of an identity names; there is a further event for each 500 more. With the longest ids
/// the body is some 130 kB. NATS takes 1 MiB, as do many receivers, and a page of the feed holds 100 events.
pub const AFFECTED_ACCOUNTS_MAX: u32 = 500;

/// The envelope's `id`; that of a deposit's first event is its `dedup_key`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EventId(pub Uuid);

/// A change of a deposit, ready to be stored and sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Event {
    pub id: EventId,
    pub deposit_id: DepositId,
    pub account_id: String,
    pub status: DepositStatus,
    /// How often the deposit had entered this status before.
    pub nth_entry: u32,
    /// The envelope, byte for byte as it is signed and sent.
    pub payload: String,
}

/// A change of an identity's status, or what this means for some of its accounts, ready to be stored and sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IdentityEvent {
    pub id: EventId,
    pub identity_id: String,
    pub status: IdentityStatus,
    /// Its number among the events of the identity, from 0.
    pub position: u32,
    /// The envelope, byte for byte as it is signed and sent.
    pub payload: String,
}

/// The change of an identity, why and when.
#[derive(Clone, Copy, Debug)]
pub struct IdentityChanged<'a> {
    pub before: &'a Identity,
    pub after: &'a Identity,
    pub reason: &'a str,
    pub at: Timestamp,
}

/// Sent to a webhook to show that it works. It is about no deposit, and its id is random, so each one is new.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TestEvent {
    pub id: EventId,
    pub webhook_id: String,
    /// The envelope, byte for byte as it is signed and sent.
    pub payload: String,
}

/// The `data` of a `deposit_v2` event: the 13 fields of the interface in its order.
#[derive(Serialize, Debug)]
pub struct DepositData<'a> {
    pub id: String,
    pub dedup_key: String,
    pub account_id: &'a str,
    pub account_address: String,
    pub source_type: &'static str,
    pub source_address: String,
    pub currency_symbol: &'a str,
    pub amount: String,
    pub destination_chain: &'static str,
    pub transaction_hash: String,
    pub status: &'static str,
    pub confirmed_at: String,
    pub created_at: String,
}

/// The `data` of an `identity_status_update` event: the fields of the interface in its order.
#[derive(Serialize)]
struct IdentityData<'a> {
    identity: IdentityReported<'a>,
    affected_account_ids: &'a [String],
    status_reason: &'a str,
    previous_status: &'static str,
    previous_sub_status: &'static str,
}

#[derive(Serialize)]
struct IdentityReported<'a> {
    id: &'a str,
    label: &'a str,
    identity_type: &'static str,
    status: &'static str,
    sub_status: &'static str,
}

#[derive(Serialize)]
struct Envelope<D> {
    id: String,
    r#type: &'static str,
    data: D,
}

#[derive(Serialize)]
struct TestData<'a> {
    webhook_id: &'a str,
    created_at: String,
}

impl EventId {
    pub fn of(leg: &LegHash, status: DepositStatus, nth_entry: u32) -> Self {
        let nth_entry = nth_entry.to_be_bytes();
        let fields: [&[u8]; 4] = [b"event/v1", &leg.0, status.name().as_bytes(), &nth_entry];
        EventId(uuid_of(&hash_of(fields)))
    }

    /// The id of the event PENDING/0. It names the deposit in every event and answer, for ever.
    pub fn dedup_key(leg: &LegHash) -> Self {
        EventId::of(leg, DepositStatus::Pending, 0)
    }
}

impl Event {
    /// The event of `deposit` entering its present status for the `nth_entry`-th time, counted from 0.
    pub fn entered(deposit: &Deposit, nth_entry: u32) -> Self {
        let id = EventId::of(&deposit.leg_hash, deposit.status, nth_entry);
        let envelope = Envelope { id: id.to_string(), r#type: DEPOSIT_EVENT, data: DepositData::of(deposit) };
        Event {
            id,
            deposit_id: deposit.id,
            account_id: deposit.account_id.clone(),
            status: deposit.status,
            nth_entry,
            payload: serde_json::to_string(&envelope).expect("strings always serialise"),
        }
    }
}

impl IdentityEvent {
    /// The event of a change for these accounts of the identity, at this position among its events.
    pub fn changed(changed: &IdentityChanged<'_>, affected_account_ids: &[String], position: u32) -> Self {
        let IdentityChanged { before, after, reason, at } = *changed;
        let (position_bytes, at_bytes) = (position.to_be_bytes(), at.0.to_be_bytes());
        let fields: [&[u8]; 5] =
            [b"identity_event/v1", after.id.as_bytes(), after.status.name().as_bytes(), &position_bytes, &at_bytes];
        let id = EventId(uuid_of(&hash_of(fields)));
        let data = IdentityData {
            identity: IdentityReported {
                id: &after.id,
                label: &after.label,
                identity_type: after.kind.name(),
                status: after.status.name(),
                sub_status: SubStatus::text(after.sub_status),
            },
            affected_account_ids,
            status_reason: reason,
            previous_status: before.status.name(),
            previous_sub_status: SubStatus::text(before.sub_status),
        };
        let envelope = Envelope { id: id.to_string(), r#type: IDENTITY_EVENT, data };
        let payload = serde_json::to_string(&envelope).expect("strings always serialise");
        IdentityEvent { id, identity_id: after.id.clone(), status: after.status, position, payload }
    }
}

impl TestEvent {
    pub fn new(webhook_id: &str, random: &[u8; 32], now: Timestamp) -> Self {
        let id = EventId(uuid_of(random));
        let data = TestData { webhook_id, created_at: now.to_string() };
        let envelope = Envelope { id: id.to_string(), r#type: TEST_EVENT, data };
        let payload = serde_json::to_string(&envelope).expect("strings always serialise");
        TestEvent { id, webhook_id: webhook_id.to_owned(), payload }
    }
}

impl<'a> DepositData<'a> {
    pub fn of(deposit: &'a Deposit) -> Self {
        DepositData {
            id: deposit.id.to_string(),
            dedup_key: EventId::dedup_key(&deposit.leg_hash).to_string(),
            account_id: &deposit.account_id,
            account_address: deposit.recipient.to_string(),
            source_type: if deposit.source_account_id.is_some() { "ACCOUNT" } else { "ON_CHAIN" },
            source_address: deposit.sender.to_string(),
            currency_symbol: &deposit.symbol,
            amount: amount::to_decimal(deposit.amount, deposit.decimals),
            destination_chain: deposit.chain.name(),
            transaction_hash: deposit.tx.id.to_string(),
            status: deposit.status.name(),
            confirmed_at: deposit.confirmed_at.unwrap_or(Timestamp::EPOCH).to_string(),
            created_at: deposit.created_at.to_string(),
        }
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}
