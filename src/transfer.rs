//! A transfer: money that an account sends. Its identity, its states, and what moves it from one to the next.
//!
//! Invariants:
//! - the id is a pure function of the organization and the client's request id: a restored store, or a copy of it, gives
//!   the same request the same transfer;
//! - a state changes only by evidence, as the table of [`State::after`] says; CONFIRMED, FAILED and DROPPED are terminal.
//!
//! It does not know blocks, SQL, keys or the clock.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use landfall_chain::{Address, Asset, AssetId, Chain, IntentKey, Refill, Route, TxId, U256, Unpayable, hash_of};
use uuid::Uuid;

use crate::deposit::uuid_of;
use crate::gas::{GasCurrency, NetworkFee};
use crate::request::{self, Request};
use crate::time::Timestamp;

/// How long after its acceptance a transfer may be included: the interface's number.
pub const WINDOW: Duration = Duration::from_secs(300);
/// What was signed up to now is over for every block whose time is so much later: a window, and a minute for what clocks
/// differ by. It is how long a sender recovers at least.
pub const RECOVERY_TIME: Duration = Duration::from_secs(300 + 60);
/// What another delegate may have paid is known in a final block whose time is so much later. All that was signed before is
/// over then: half a minute more than [`RECOVERY_TIME`], by which a signer's clock may be ahead.
pub const DELEGATE_TIME: Duration = Duration::from_secs(300 + 60 + 30);

/// UUIDv8 of a hash over the organization and the request id.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct TransferId(pub Uuid);

/// What a transfer is for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransferKind {
    /// A client asked for it.
    Payment,
    /// An operator brings an account's money together at the address that pays. No client sees it, no limit counts it, and
    /// the platform bears what it costs.
    Sweep,
}

/// A client's name for its request: any UUID but the nil one, in one spelling.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(Uuid);

/// The states of the interface.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TransferStatus {
    Accepted,
    Submitted,
    Confirmed,
    Failed,
    Dropped,
}

/// A status, and within SUBMITTED how far it has come, which clients are not shown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    Accepted,
    /// An attempt was handed to a node, or may have been; no canonical block shows the payment.
    Carried,
    /// A canonical block shows the payment.
    Included,
    /// The window is over: no further attempt is signed or sent, and proof is awaited.
    Expiring,
    Confirmed,
    Failed(FailureCode),
    Dropped(FailureCode),
}

/// Why a transfer is FAILED or DROPPED: the closed list of `failure_details.code`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FailureCode {
    WindowElapsed,
    NeverSigned,
    Cancelled,
    Reverted,
    SimulationFailed,
    InsufficientFunds,
    AccountNotActive,
    DestinationRefused,
    TokenPaused,
    IntentAlreadyUsed,
    GuardTaken,
    SenderStopped,
}

/// Why a transfer of which nothing was signed cannot be done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Obstacle {
    Cancelled,
    SimulationFailed,
    InsufficientFunds,
    AccountNotActive,
    DestinationRefused,
    TokenPaused,
}

/// Whether an address that pays for transactions is used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SponsorState {
    Active,
    /// A person stopped it.
    Paused,
    /// Somebody else uses its key.
    Quarantined,
}

/// What is known of a transfer, and proved where it decides.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Evidence {
    /// An attempt is on record and was handed to a node, or may have been.
    HandedOver,
    /// What [`Evidence::NeverUsed`] is, and it is known what kept this store from signing it.
    Impossible(Obstacle),
    /// The payment, exactly, is in a canonical block.
    Included,
    /// The block that included it was disconnected.
    Displaced,
    /// The block that includes it is final by the network's rule.
    Final,
    /// A carrier reverted and used up nothing.
    CarrierReverted,
    /// In a final block the intent was used up without a payment.
    UsedUp,
    /// In a final block the intent was used by another content than ours, and that transaction was found.
    UsedByAnother,
    /// Every attempt is dead, and at a finalized slot the guard stands that another maker put there.
    GuardTaken,
    /// Our own cancellation of the intent is in a final block.
    CancelledOnChain,
    /// The deadline has passed by the wall clock.
    WindowOver,
    /// A final block whose time is not before the deadline, all blocks up to it without a use of the intent, and the
    /// intent unused in that block's state. `signed`: by this store. `halted`: a person had stopped the sender.
    NeverUsed { signed: bool, halted: bool },
}

/// What is announced to clients of a change.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Announcement {
    Submitted,
    Included,
    Displaced,
    Confirmed,
    Failed,
    Dropped,
}

/// Evidence that the table does not have for a state.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a transfer that is {from:?} is not changed by {evidence:?}")]
pub struct InvalidTransition {
    pub from: State,
    pub evidence: Evidence,
}

/// What must be paid, as a client asked for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Order {
    pub request_id: RequestId,
    pub account_id: String,
    pub chain: Chain,
    /// CAIP-2 of the chain.
    pub chain_ref: String,
    pub asset: Asset,
    /// Base units; more than 0.
    pub amount: U256,
    pub destination: Address,
    /// What the chain's transactions are paid in.
    pub gas: GasCurrency,
}

/// Money that an account sends, with its state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transfer {
    pub id: TransferId,
    pub kind: TransferKind,
    pub request_id: RequestId,
    pub account_id: String,
    pub identity_id: String,
    pub chain: Chain,
    pub asset: AssetId,
    pub symbol: String,
    pub decimals: u8,
    /// Base units; more than 0.
    pub amount: U256,
    /// The address that pays, a function of the account and of `source_tag` alone.
    pub source: Address,
    /// The tag of that wallet: empty for the account's paying address.
    pub source_tag: String,
    pub destination: Address,
    /// The account that is paid, when the destination is one of ours.
    pub destination_account_id: Option<String>,
    pub state: State,
    /// Diagnostic text of a FAILED or DROPPED one.
    pub reason: Option<String>,
    /// Of the canonical block that includes it, or of the transaction with which it failed.
    pub tx: Option<TxId>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub submitted_at: Option<Timestamp>,
    pub confirmed_at: Option<Timestamp>,
    /// Stands in each signature; only healing moves it.
    pub deadline: Timestamp,
    /// Its payer's key has signed it. That of one that was handed over may be on record in a store that is lost.
    pub is_signed: bool,
    /// The name of the route: it is fixed when the transfer is accepted.
    pub route: String,
    /// What the chain takes once, as its blocks show it ([`IntentKey::shown`]).
    pub intent_key: IntentKey,
    /// When a person asked for its end: nothing is signed or sent for it from then on.
    pub cancelled_at: Option<Timestamp>,
    /// What last kept it from being signed, if something is known to have.
    pub obstacle: Option<Obstacle>,
    /// How often it was changed.
    pub version: u32,
    /// What its transactions in final blocks cost who is charged; `None` before there is one.
    pub network_fee: Option<NetworkFee>,
}

impl Order {
    /// The request that asks for it; its digest is the same however the destination was written.
    pub fn request(&self) -> Request {
        let (asset, amount) = (self.asset.id.to_bytes(), self.amount.to_be_bytes::<32>());
        let fields: [&[u8]; 5] =
            [self.account_id.as_bytes(), &asset, self.chain.name().as_bytes(), self.destination.as_bytes(), &amount];
        request::of(&self.request_id.to_string(), "transfer/v1", fields).expect("a UUID is a plain id")
    }
}

impl TransferId {
    /// The id of what a client's request makes.
    pub fn of(organization: &str, request_id: RequestId) -> Self {
        let request_id = request_id.to_string();
        let fields: [&[u8]; 3] = [b"transfer/v1", organization.as_bytes(), request_id.as_bytes()];
        TransferId(uuid_of(&hash_of(fields)))
    }

    /// The id of what empties the address `swept` when an operator's request asks for it. No client's request makes it.
    pub fn of_sweep(organization: &str, request_id: RequestId, swept: &Address) -> Self {
        let request_id = request_id.to_string();
        let (kind, organization) = (TransferKind::Sweep.name().as_bytes(), organization.as_bytes());
        let fields = [b"transfer/house/v1", kind, organization, request_id.as_bytes(), swept.as_bytes()];
        TransferId(uuid_of(&hash_of(fields)))
    }

    /// What stands in a transfer's place where a treasury refills a sponsor, with this nonce on the chain with this CAIP-2
    /// name. No transfer has it.
    pub fn of_refill(chain_ref: &str, treasury: &Address, nonce: u64) -> Self {
        TransferId(Uuid::from_bytes(Refill::id(chain_ref, treasury, nonce)))
    }

    /// The key of its intent on the chain with this CAIP-2 name, as blocks show that `payer` used it.
    pub fn intent_key(self, chain_ref: &str, payer: &Address) -> IntentKey {
        IntentKey::of(chain_ref, self.0.as_bytes()).shown(payer)
    }
}

impl Transfer {
    /// Whether a delegate pays it. Its route names the delegate, too.
    pub fn is_by_delegate(&self) -> bool {
        self.route.split(' ').next() == Some(Route::DELEGATE)
    }
}

impl TransferKind {
    /// The name that is stored and shown.
    pub const fn name(self) -> &'static str {
        match self {
            TransferKind::Payment => "PAYMENT",
            TransferKind::Sweep => "SWEEP",
        }
    }
}

impl FromStr for TransferKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = [TransferKind::Payment, TransferKind::Sweep].into_iter().find(|kind| kind.name() == text);
        known.ok_or_else(|| format!("unknown kind of a transfer {text:?}"))
    }
}

impl TransferStatus {
    pub const ALL: [TransferStatus; 5] = [
        TransferStatus::Accepted,
        TransferStatus::Submitted,
        TransferStatus::Confirmed,
        TransferStatus::Failed,
        TransferStatus::Dropped,
    ];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            TransferStatus::Accepted => "ACCEPTED",
            TransferStatus::Submitted => "SUBMITTED",
            TransferStatus::Confirmed => "CONFIRMED",
            TransferStatus::Failed => "FAILED",
            TransferStatus::Dropped => "DROPPED",
        }
    }

    pub const fn is_terminal(self) -> bool {
        match self {
            TransferStatus::Accepted | TransferStatus::Submitted => false,
            TransferStatus::Confirmed | TransferStatus::Failed | TransferStatus::Dropped => true,
        }
    }
}

impl State {
    /// The name that is stored; the code of a failure stands beside it.
    pub const fn name(self) -> &'static str {
        match self {
            State::Accepted => "accepted",
            State::Carried => "carried",
            State::Included => "included",
            State::Expiring => "expiring",
            State::Confirmed => "confirmed",
            State::Failed(_) => "failed",
            State::Dropped(_) => "dropped",
        }
    }

    /// Reads [`State::name`] and, beside it, the failure's code.
    pub fn read(name: &str, failure: Option<FailureCode>) -> Option<Self> {
        let known = [State::Accepted, State::Carried, State::Included, State::Expiring, State::Confirmed];
        let failed = failure.into_iter().flat_map(|code| [State::Failed(code), State::Dropped(code)]);
        known.into_iter().filter(|_| failure.is_none()).chain(failed).find(|state| state.name() == name)
    }

    pub const fn status(self) -> TransferStatus {
        match self {
            State::Accepted => TransferStatus::Accepted,
            State::Carried | State::Included | State::Expiring => TransferStatus::Submitted,
            State::Confirmed => TransferStatus::Confirmed,
            State::Failed(_) => TransferStatus::Failed,
            State::Dropped(_) => TransferStatus::Dropped,
        }
    }

    pub const fn failure(self) -> Option<FailureCode> {
        match self {
            State::Failed(code) | State::Dropped(code) => Some(code),
            State::Accepted | State::Carried | State::Included | State::Expiring | State::Confirmed => None,
        }
    }

    /// The state behind this evidence, and what is announced to clients, if anything.
    ///
    /// A use of the intent proves that an attempt was handed over. So who finds one of an ACCEPTED transfer, as after a
    /// restore, first applies [`Evidence::HandedOver`].
    ///
    /// # Errors
    /// Evidence that the table does not have for this state.
    pub fn after(self, evidence: Evidence) -> Result<(State, Option<Announcement>), InvalidTransition> {
        use Evidence::{
            CancelledOnChain, CarrierReverted, Displaced, Final, GuardTaken, HandedOver, Impossible, NeverUsed,
            UsedByAnother, UsedUp, WindowOver,
        };
        let failed = |code| Ok((State::Failed(code), Some(Announcement::Failed)));
        let dropped = |code| Ok((State::Dropped(code), Some(Announcement::Dropped)));
        match (self, evidence) {
            // Terminal: nothing changes it.
            (State::Confirmed | State::Failed(_) | State::Dropped(_), _) => Ok((self, None)),

            (State::Accepted, HandedOver) => Ok((State::Carried, Some(Announcement::Submitted))),
            (State::Accepted, Impossible(obstacle)) => failed(obstacle.code()),
            (State::Accepted, NeverUsed { signed: true, .. }) => dropped(FailureCode::WindowElapsed),
            (State::Accepted, NeverUsed { signed: false, halted: false }) => dropped(FailureCode::NeverSigned),
            (State::Accepted, NeverUsed { signed: false, halted: true }) => dropped(FailureCode::SenderStopped),

            // A further attempt, and a carrier that failed for nothing, leave it as it is.
            (State::Carried | State::Included | State::Expiring, HandedOver | CarrierReverted) => Ok((self, None)),
            (State::Carried, WindowOver) => Ok((State::Expiring, None)),
            (State::Included | State::Expiring, WindowOver) => Ok((self, None)),
            (State::Carried | State::Expiring, Evidence::Included) => {
                Ok((State::Included, Some(Announcement::Included)))
            }
            (State::Carried | State::Expiring, UsedUp) => failed(FailureCode::Reverted),
            (State::Carried | State::Expiring, UsedByAnother) => failed(FailureCode::IntentAlreadyUsed),
            // Somebody may take it before anything is handed over.
            (State::Accepted | State::Carried | State::Expiring, GuardTaken) => failed(FailureCode::GuardTaken),
            (State::Carried | State::Expiring, CancelledOnChain) => dropped(FailureCode::Cancelled),
            (State::Included, Displaced) => Ok((State::Carried, Some(Announcement::Displaced))),
            (State::Included, Final) => Ok((State::Confirmed, Some(Announcement::Confirmed))),
            (State::Expiring, NeverUsed { .. }) => dropped(FailureCode::WindowElapsed),

            (State::Accepted, Evidence::Included | Displaced | Final | CarrierReverted | WindowOver)
            | (State::Accepted, UsedUp | UsedByAnother | CancelledOnChain)
            | (State::Carried, Impossible(_) | Displaced | Final | NeverUsed { .. })
            | (State::Included, Impossible(_) | Evidence::Included | UsedUp | UsedByAnother | GuardTaken)
            | (State::Included, CancelledOnChain | NeverUsed { .. })
            | (State::Expiring, Impossible(_) | Displaced | Final) => Err(InvalidTransition { from: self, evidence }),
        }
    }
}

impl Obstacle {
    pub const ALL: [Obstacle; 6] = [
        Obstacle::Cancelled,
        Obstacle::SimulationFailed,
        Obstacle::InsufficientFunds,
        Obstacle::AccountNotActive,
        Obstacle::DestinationRefused,
        Obstacle::TokenPaused,
    ];

    pub const fn code(self) -> FailureCode {
        match self {
            Obstacle::Cancelled => FailureCode::Cancelled,
            Obstacle::SimulationFailed => FailureCode::SimulationFailed,
            Obstacle::InsufficientFunds => FailureCode::InsufficientFunds,
            Obstacle::AccountNotActive => FailureCode::AccountNotActive,
            Obstacle::DestinationRefused => FailureCode::DestinationRefused,
            Obstacle::TokenPaused => FailureCode::TokenPaused,
        }
    }
}

impl FailureCode {
    pub const ALL: [FailureCode; 12] = [
        FailureCode::WindowElapsed,
        FailureCode::NeverSigned,
        FailureCode::Cancelled,
        FailureCode::Reverted,
        FailureCode::SimulationFailed,
        FailureCode::InsufficientFunds,
        FailureCode::AccountNotActive,
        FailureCode::DestinationRefused,
        FailureCode::TokenPaused,
        FailureCode::IntentAlreadyUsed,
        FailureCode::GuardTaken,
        FailureCode::SenderStopped,
    ];

    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            FailureCode::WindowElapsed => "WINDOW_ELAPSED",
            FailureCode::NeverSigned => "NEVER_SIGNED",
            FailureCode::Cancelled => "CANCELLED",
            FailureCode::Reverted => "REVERTED",
            FailureCode::SimulationFailed => "SIMULATION_FAILED",
            FailureCode::InsufficientFunds => "INSUFFICIENT_FUNDS",
            FailureCode::AccountNotActive => "ACCOUNT_NOT_ACTIVE",
            FailureCode::DestinationRefused => "DESTINATION_REFUSED",
            FailureCode::TokenPaused => "TOKEN_PAUSED",
            FailureCode::IntentAlreadyUsed => "INTENT_ALREADY_USED",
            FailureCode::GuardTaken => "GUARD_TAKEN",
            FailureCode::SenderStopped => "SENDER_STOPPED",
        }
    }
}

impl Announcement {
    /// The name that goes into the event's id.
    pub const fn name(self) -> &'static str {
        match self {
            Announcement::Submitted => "SUBMITTED",
            Announcement::Included => "INCLUDED",
            Announcement::Displaced => "DISPLACED",
            Announcement::Confirmed => "CONFIRMED",
            Announcement::Failed => "FAILED",
            Announcement::Dropped => "DROPPED",
        }
    }
}

impl fmt::Display for TransferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl FromStr for TransferId {
    type Err = String;

    /// Reads the form that is printed and no other, as a deposit's id is read.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse().map(TransferId) {
            Ok(id) if id.to_string() == text => Ok(id),
            Ok(_) | Err(_) => Err(format!("{text:?} is no transfer id: expected a UUID in lower case with hyphens")),
        }
    }
}

impl RequestId {
    /// A UUIDv4 of random bytes.
    pub fn random(bytes: [u8; 16]) -> Self {
        RequestId(uuid::Builder::from_random_bytes(bytes).into_uuid())
    }
}

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl FromStr for RequestId {
    type Err = &'static str;

    /// Takes a UUID with hyphens in either case: upper case is the same id.
    fn from_str(text: &str) -> Result<Self, &'static str> {
        let read = Uuid::try_parse(text).ok().filter(|id| !id.is_nil());
        let read = read.filter(|id| id.to_string().eq_ignore_ascii_case(text));
        read.map(RequestId).ok_or("must be a UUID with hyphens that is not all zeros")
    }
}

impl SponsorState {
    const ALL: [SponsorState; 3] = [SponsorState::Active, SponsorState::Paused, SponsorState::Quarantined];

    /// The name that is stored and shown.
    pub const fn name(self) -> &'static str {
        match self {
            SponsorState::Active => "active",
            SponsorState::Paused => "paused",
            SponsorState::Quarantined => "quarantined",
        }
    }
}

impl FromStr for SponsorState {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = SponsorState::ALL.into_iter().find(|state| state.name() == text);
        known.ok_or_else(|| format!("unknown state of a sponsor {text:?}"))
    }
}

impl Evidence {
    /// The name that the history records.
    pub const fn name(self) -> &'static str {
        match self {
            Evidence::HandedOver => "handed_over",
            Evidence::Impossible(_) => "impossible",
            Evidence::Included => "included",
            Evidence::Displaced => "displaced",
            Evidence::Final => "final",
            Evidence::CarrierReverted => "carrier_reverted",
            Evidence::UsedUp => "used_up",
            Evidence::UsedByAnother => "used_by_another",
            Evidence::GuardTaken => "guard_taken",
            Evidence::CancelledOnChain => "cancelled_on_chain",
            Evidence::WindowOver => "window_over",
            Evidence::NeverUsed { .. } => "never_used",
        }
    }
}

impl From<Unpayable> for Obstacle {
    fn from(unpayable: Unpayable) -> Self {
        match unpayable {
            Unpayable::Funds => Obstacle::InsufficientFunds,
            Unpayable::Destination => Obstacle::DestinationRefused,
            Unpayable::Paused => Obstacle::TokenPaused,
            Unpayable::Refused => Obstacle::SimulationFailed,
        }
    }
}

impl FromStr for Obstacle {
    type Err = String;

    /// Reads the name of its code.
    fn from_str(text: &str) -> Result<Self, String> {
        let known = Obstacle::ALL.into_iter().find(|obstacle| obstacle.code().name() == text);
        known.ok_or_else(|| format!("unknown obstacle {text:?}"))
    }
}

impl fmt::Display for TransferStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for TransferStatus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = TransferStatus::ALL.into_iter().find(|status| status.name() == text);
        known.ok_or_else(|| format!("unknown transfer status {text:?}"))
    }
}

impl FromStr for FailureCode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = FailureCode::ALL.into_iter().find(|code| code.name() == text);
        known.ok_or_else(|| format!("unknown failure code {text:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATES: [State; 7] = [
        State::Accepted,
        State::Carried,
        State::Included,
        State::Expiring,
        State::Confirmed,
        State::Failed(FailureCode::Reverted),
        State::Dropped(FailureCode::WindowElapsed),
    ];
    const EVIDENCE: [Evidence; 19] = [
        Evidence::HandedOver,
        Evidence::Impossible(Obstacle::Cancelled),
        Evidence::Impossible(Obstacle::SimulationFailed),
        Evidence::Impossible(Obstacle::InsufficientFunds),
        Evidence::Impossible(Obstacle::AccountNotActive),
        Evidence::Impossible(Obstacle::DestinationRefused),
        Evidence::Impossible(Obstacle::TokenPaused),
        Evidence::Included,
        Evidence::Displaced,
        Evidence::Final,
        Evidence::CarrierReverted,
        Evidence::UsedUp,
        Evidence::UsedByAnother,
        Evidence::GuardTaken,
        Evidence::CancelledOnChain,
        Evidence::WindowOver,
        Evidence::NeverUsed { signed: false, halted: false },
        Evidence::NeverUsed { signed: false, halted: true },
        Evidence::NeverUsed { signed: true, halted: false },
    ];

    fn request() -> RequestId {
        "00000000-0000-4000-8000-000000000001".parse().unwrap()
    }

    #[test]
    fn the_ids_of_the_vector_never_change() {
        let id = TransferId::of("default", request());
        assert_eq!(id.to_string(), "bac872c0-9656-8527-b18f-fc8f02a10278");
        let swept = [1, 2].map(|byte| TransferId::of_sweep("default", request(), &Address::Evm([byte; 20])));
        assert!(
            swept[0] != swept[1] && !swept.contains(&id),
            "each address has its own, and no client's request has it"
        );
    }

    #[test]
    fn a_request_id_is_a_uuid_in_either_case_and_nothing_else() {
        let text = "3e5bdac9-1418-4d93-8a0e-406a58d72251";
        assert_eq!(text.to_uppercase().parse::<RequestId>().unwrap().to_string(), text);
        let bare = text.replace('-', "");
        for other in
            ["", "1", "00000000-0000-0000-0000-000000000000", &bare, &format!("{{{text}}}"), &format!(" {text}")]
        {
            assert!(other.parse::<RequestId>().is_err(), "{other:?}");
        }
    }

    /// A row for each state, a character for each evidence. `-` is an error, `=` leaves the state or announces nothing; a
    /// letter is the first one of what is announced.
    #[test]
    fn every_state_and_evidence_has_its_outcome() {
        //           handed, impossible x6, included, displaced, final, reverted, used up, by another, guard, cancelled,
        //           window over, never used, never used while halted
        let table = [
            (State::Accepted, "SFFFFFF------F-", "-DDD"),
            (State::Carried, "=------I--=FFFD", "=---"),
            (State::Included, "=-------DC=----", "=---"),
            (State::Expiring, "=------I--=FFFD", "=DDD"),
            (State::Confirmed, "===============", "===="),
            (State::Failed(FailureCode::Reverted), "===============", "===="),
            (State::Dropped(FailureCode::WindowElapsed), "===============", "===="),
        ];
        assert_eq!(table.map(|(state, ..)| state), STATES);
        for (state, first, second) in table {
            let outcomes: Vec<char> = first.chars().chain(second.chars()).collect();
            assert_eq!(outcomes.len(), EVIDENCE.len(), "{state:?}");
            for (evidence, outcome) in EVIDENCE.into_iter().zip(outcomes) {
                let shown = match state.after(evidence) {
                    Err(_) => '-',
                    Ok((_, None)) => '=',
                    Ok((_, Some(announcement))) => announcement.name().chars().next().unwrap(),
                };
                assert_eq!(shown, outcome, "{state:?} {evidence:?}");
            }
        }
    }

    #[test]
    fn a_state_is_read_from_its_name_and_code() {
        for state in STATES {
            assert_eq!(State::read(state.name(), state.failure()), Some(state));
        }
        assert_eq!(State::read("failed", None), None);
        assert_eq!(State::read("confirmed", Some(FailureCode::Reverted)), None);
    }

    #[test]
    fn what_is_not_announced_changes_no_status() {
        for state in STATES {
            for evidence in EVIDENCE {
                let Ok((after, announced)) = state.after(evidence) else { continue };
                let is_displaced = evidence == Evidence::Displaced || evidence == Evidence::Included;
                assert_eq!(announced.is_some(), is_announced(state, after) || (is_displaced && after != state));
            }
        }
    }

    fn is_announced(before: State, after: State) -> bool {
        before.status() != after.status()
    }

    #[test]
    fn each_failure_is_reached_and_only_by_what_it_says() {
        let mut reached = Vec::new();
        for state in STATES.into_iter().filter(|state| !state.status().is_terminal()) {
            for evidence in EVIDENCE {
                if let Ok((after, _)) = state.after(evidence) {
                    reached.extend(after.failure());
                }
            }
        }
        for code in FailureCode::ALL {
            assert!(reached.contains(&code), "{code:?}");
            assert_eq!(code.name().parse(), Ok(code));
        }
    }

    /// No sequence of evidence leads out of a terminal state, or twice to CONFIRMED. Walks every sequence of six.
    #[test]
    fn no_sequence_of_evidence_leads_from_a_terminal_state_or_pays_twice() {
        fn walk(state: State, confirmed: u32, depth: u32) {
            assert!(confirmed <= 1);
            if depth == 0 {
                return;
            }
            for evidence in EVIDENCE {
                let Ok((after, announced)) = state.after(evidence) else { continue };
                if state.status().is_terminal() {
                    assert_eq!((after, announced), (state, None));
                    continue;
                }
                walk(after, confirmed + u32::from(announced == Some(Announcement::Confirmed)), depth - 1);
            }
        }
        walk(State::Accepted, 0, 6);
    }
}
