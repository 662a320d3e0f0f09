//! Events: what clients are sent, as the bytes that are signed.
//!
//! Invariants:
//! - the id of a deposit's event is a pure function of the leg, the status, and how often the deposit had entered that
//!   status before;
//! - the id of a transfer's event is a pure function of the transfer, what is announced, and how often that was announced
//!   before;
//! - the id of an identity's event is a pure function of the change, its moment included: if a person decides the same
//!   again, for example in a restored store, that is another change;
//! - the envelope is exactly `{id, type, data}`, and `data` has exactly the fields of the interface;
//! - `data` of a transfer's event is the transfer as the API shows it at that moment.

use std::fmt;

use landfall_chain::hash_of;
use serde::Serialize;
use uuid::Uuid;

use crate::amount;
use crate::deposit::{Deposit, DepositId, DepositStatus, LegHash, uuid_of};
use crate::gas::NetworkFee;
use crate::identity::{Identity, IdentityStatus, SubStatus};
use crate::time::Timestamp;
use crate::transfer::{Announcement, Transfer, TransferId};

/// The `type` of every deposit event.
pub const DEPOSIT_EVENT: &str = "deposit_v2";
/// The `type` of every event of an identity.
pub const IDENTITY_EVENT: &str = "identity_status_update";
/// The `type` of an event whose only purpose is to show that a webhook works.
pub const TEST_EVENT: &str = "webhook_test";
/// The `type` of the event that a transfer was handed to a node, or may have been.
pub const TRANSFER_SUBMITTED_EVENT: &str = "transfer_submitted";
/// The `type` of the events of what a transfer's block becomes.
pub const TRANSFER_RECONCILIATION_EVENT: &str = "transfer_reconciliation";
/// The `type` of the event that a transfer is FAILED or DROPPED.
pub const TRANSFER_FAILED_EVENT: &str = "transfer_failed";
/// The `type`s of the events that are in the feed.
pub const FEED_TYPES: [&str; 5] =
    [DEPOSIT_EVENT, IDENTITY_EVENT, TRANSFER_SUBMITTED_EVENT, TRANSFER_RECONCILIATION_EVENT, TRANSFER_FAILED_EVENT];
/// Who pays the fee of every transfer's transactions.
pub const SPONSOR: &str = "SPONSOR";
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

/// What is announced of a transfer, ready to be stored and sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransferEvent {
    pub id: EventId,
    pub transfer_id: TransferId,
    /// The account that pays.
    pub account_id: String,
    pub announcement: Announcement,
    /// How often the transfer was announced so before.
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

/// A transfer as the API and its events show it.
#[derive(Serialize, Debug)]
pub struct TransferData<'a> {
    pub id: String,
    pub request_id: String,
    pub account_id: &'a str,
    pub identity_id: &'a str,
    pub source_address: String,
    pub address_destination: DestinationData,
    pub destination_address: String,
    pub destination_chain: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_account_id: Option<&'a str>,
    pub currency_symbol: &'a str,
    pub amount: String,
    pub status: &'static str,
    pub transaction_hash: String,
    pub created_at: String,
    pub updated_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submitted_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confirmed_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure_details: Option<FailureData<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_fee: Option<FeeData<'a>>,
}

/// What the transactions of a transfer cost.
#[derive(Serialize, Debug)]
pub struct FeeData<'a> {
    pub amount: String,
    pub currency_symbol: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd: Option<String>,
    pub paid_by: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub charged_to: Option<&'static str>,
}

/// Where a transfer goes.
#[derive(Serialize, Debug)]
pub struct DestinationData {
    pub address: String,
    pub chain: &'static str,
}

/// Why a transfer is FAILED or DROPPED.
#[derive(Serialize, Debug)]
pub struct FailureData<'a> {
    pub code: &'static str,
    pub reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction_hash: Option<String>,
}

/// The `data` of a transfer's event. Only reconciliation has a stage and its block.
#[derive(Serialize)]
struct AnnouncedData<'a> {
    #[serde(flatten)]
    transfer: TransferData<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stage: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    block_number: Option<u64>,
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

    /// The id of the event that `transfer` is announced so for the `nth_entry`-th time, counted from 0.
    pub fn of_transfer(transfer: TransferId, announcement: Announcement, nth_entry: u32) -> Self {
        let nth_entry = nth_entry.to_be_bytes();
        let fields: [&[u8]; 4] =
            [b"transfer_event/v1", transfer.0.as_bytes(), announcement.name().as_bytes(), &nth_entry];
        EventId(uuid_of(&hash_of(fields)))
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

impl TransferEvent {
    /// The event that `transfer`, as it is from now on, is announced so for the `nth_entry`-th time, counted from 0.
    /// `block_number`: of the block that includes it or did, for INCLUDED, DISPLACED and CONFIRMED; else `None`.
    pub fn announced(
        transfer: &Transfer,
        announcement: Announcement,
        nth_entry: u32,
        block_number: Option<u64>,
    ) -> Self {
        let id = EventId::of_transfer(transfer.id, announcement, nth_entry);
        let kind = kind_of(announcement);
        let stage = (kind == TRANSFER_RECONCILIATION_EVENT).then(|| announcement.name());
        let block_number = block_number.filter(|_| stage.is_some());
        let data = AnnouncedData { transfer: TransferData::of(transfer), stage, block_number };
        let envelope = Envelope { id: id.to_string(), r#type: kind, data };
        TransferEvent {
            id,
            transfer_id: transfer.id,
            account_id: transfer.account_id.clone(),
            announcement,
            nth_entry,
            payload: serde_json::to_string(&envelope).expect("strings and numbers always serialise"),
        }
    }

    /// The envelope's `type`.
    pub const fn kind(&self) -> &'static str {
        kind_of(self.announcement)
    }
}

const fn kind_of(announcement: Announcement) -> &'static str {
    match announcement {
        Announcement::Submitted => TRANSFER_SUBMITTED_EVENT,
        Announcement::Included | Announcement::Displaced | Announcement::Confirmed => TRANSFER_RECONCILIATION_EVENT,
        Announcement::Failed | Announcement::Dropped => TRANSFER_FAILED_EVENT,
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

impl<'a> TransferData<'a> {
    pub fn of(transfer: &'a Transfer) -> Self {
        let text = |at: Option<Timestamp>| at.map(|at| at.to_string());
        let (destination, chain) = (transfer.destination.to_string(), transfer.chain.name());
        let tx = transfer.tx.map(|tx| tx.to_string());
        let failure = transfer.state.failure();
        let is_signed = transfer.is_signed || transfer.submitted_at.is_some();
        let has_ended = transfer.state.status().is_terminal();
        TransferData {
            id: transfer.id.to_string(),
            request_id: transfer.request_id.to_string(),
            account_id: &transfer.account_id,
            identity_id: &transfer.identity_id,
            source_address: transfer.source.to_string(),
            address_destination: DestinationData { address: destination.clone(), chain },
            destination_address: destination,
            destination_chain: chain,
            destination_account_id: transfer.destination_account_id.as_deref(),
            currency_symbol: &transfer.symbol,
            amount: amount::to_decimal(transfer.amount, transfer.decimals),
            status: transfer.state.status().name(),
            transaction_hash: tx.clone().filter(|_| failure.is_none()).unwrap_or_default(),
            created_at: transfer.created_at.to_string(),
            updated_at: transfer.updated_at.to_string(),
            submitted_at: text(transfer.submitted_at),
            confirmed_at: text(transfer.confirmed_at),
            failure_details: failure.map(|code| FailureData {
                code: code.name(),
                reason: transfer.reason.as_deref().unwrap_or_default(),
                transaction_hash: tx,
            }),
            expires_at: text(Some(transfer.deadline).filter(|_| is_signed)),
            network_fee: transfer.network_fee.as_ref().filter(|_| has_ended).map(FeeData::of),
        }
    }
}

impl<'a> FeeData<'a> {
    fn of(fee: &'a NetworkFee) -> Self {
        let NetworkFee { amount, symbol, decimals, charged } = fee;
        FeeData {
            amount: amount::to_decimal(*amount, *decimals),
            currency_symbol: symbol,
            usd: charged.map(|(usd, _)| usd.to_string()),
            paid_by: SPONSOR,
            charged_to: charged.map(|(_, to)| to.name()),
        }
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of the transfer of organization `default` and request 00000000-0000-4000-8000-000000000001.
    #[test]
    fn the_ids_of_a_transfers_events_never_change() {
        let transfer: TransferId = "bac872c0-9656-8527-b18f-fc8f02a10278".parse().unwrap();
        let id = |announcement| EventId::of_transfer(transfer, announcement, 0).to_string();
        assert_eq!(id(Announcement::Submitted), "8a0c38a1-686b-8f4c-91e6-2684db8e61c9");
        assert_eq!(id(Announcement::Confirmed), "327349b5-6fed-8889-ac2d-fa344d4fbd3a");
        let again = EventId::of_transfer(transfer, Announcement::Submitted, 1).to_string();
        assert_ne!(again, id(Announcement::Submitted));
    }
}
