//! Identities in their core: who the accounts of an organization belong to, and what their states allow.
//!
//! Invariants: TERMINATED is never left. Each change of the status ends the sub-status. An account's state is derived
//! from its identity's and stored nowhere. An identity's state does not affect money that arrives: all of it is
//! recorded. Compliance itself is not here: whoever registers an identity has onboarded it, so it is ACTIVE from then
//! on.

use std::fmt;
use std::str::FromStr;

use crate::printable::is_control;
use crate::request::{self, Request, RequestIdError};

/// The identity of accounts that name none. It exists from the first day.
pub const DEFAULT_IDENTITY: &str = "default";
const ID_CHARS_MAX: usize = 128;
pub const LABEL_CHARS_MAX: usize = 256;

/// Whether an identity is a person.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdentityType {
    Individual,
    Business,
}

/// Where an identity stands with compliance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IdentityStatus {
    PendingOnboarding,
    Active,
    Suspended,
    Rejected,
    Terminated,
}

/// What an identity waits for, if it waits for something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubStatus {
    Created,
    ComplianceChecksInProgress,
    IdvRequired,
    IdvRequested,
    IdvInProgress,
    IdvExpired,
    RfiRequired,
}

/// An identity, without its accounts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    pub id: String,
    pub kind: IdentityType,
    /// Chosen by the client; may be empty.
    pub label: String,
    pub fiat_operations_enabled: bool,
    pub status: IdentityStatus,
    pub sub_status: Option<SubStatus>,
}

/// What a client or an operator gives to register an identity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NewIdentity {
    pub kind: IdentityType,
    pub label: String,
    pub fiat_operations_enabled: bool,
}

/// What a person decides about an identity.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    Suspend,
    Reinstate,
    Terminate,
}

/// An identity's state does not allow a change.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("an identity that is {from} cannot be {change}")]
pub struct InvalidTransition {
    pub from: IdentityStatus,
    pub change: &'static str,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{what} {id:?}: expected 1 to 128 visible ASCII characters without spaces")]
pub struct IdError {
    pub what: &'static str,
    pub id: String,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a label has at most 256 characters, none of them a control character")]
pub struct LabelError;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unknown {what} {text:?}: expected {expected}")]
pub struct UnknownName {
    what: &'static str,
    text: String,
    expected: String,
}

impl IdentityType {
    pub const ALL: [IdentityType; 2] = [IdentityType::Individual, IdentityType::Business];

    pub const fn name(self) -> &'static str {
        match self {
            IdentityType::Individual => "INDIVIDUAL",
            IdentityType::Business => "BUSINESS",
        }
    }
}

impl IdentityStatus {
    pub const ALL: [IdentityStatus; 5] = [
        IdentityStatus::PendingOnboarding,
        IdentityStatus::Active,
        IdentityStatus::Suspended,
        IdentityStatus::Rejected,
        IdentityStatus::Terminated,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            IdentityStatus::PendingOnboarding => "PENDING_ONBOARDING",
            IdentityStatus::Active => "ACTIVE",
            IdentityStatus::Suspended => "SUSPENDED",
            IdentityStatus::Rejected => "REJECTED",
            IdentityStatus::Terminated => "TERMINATED",
        }
    }

    /// Whether new accounts may be opened. A suspension ends, and accounts opened during it are frozen until then.
    pub const fn may_open_accounts(self) -> bool {
        match self {
            IdentityStatus::PendingOnboarding | IdentityStatus::Active | IdentityStatus::Suspended => true,
            IdentityStatus::Rejected | IdentityStatus::Terminated => false,
        }
    }

    /// # Errors
    /// When this status does not allow the change.
    pub const fn after(self, change: Change) -> Result<Self, InvalidTransition> {
        match (self, change) {
            (IdentityStatus::Active, Change::Suspend) => Ok(IdentityStatus::Suspended),
            (IdentityStatus::Suspended, Change::Reinstate) => Ok(IdentityStatus::Active),
            (
                IdentityStatus::PendingOnboarding
                | IdentityStatus::Active
                | IdentityStatus::Suspended
                | IdentityStatus::Rejected,
                Change::Terminate,
            ) => Ok(IdentityStatus::Terminated),
            (
                IdentityStatus::PendingOnboarding
                | IdentityStatus::Suspended
                | IdentityStatus::Rejected
                | IdentityStatus::Terminated,
                Change::Suspend,
            )
            | (
                IdentityStatus::PendingOnboarding
                | IdentityStatus::Active
                | IdentityStatus::Rejected
                | IdentityStatus::Terminated,
                Change::Reinstate,
            )
            | (IdentityStatus::Terminated, Change::Terminate) => {
                Err(InvalidTransition { from: self, change: change.done() })
            }
        }
    }
}

impl SubStatus {
    pub const ALL: [SubStatus; 7] = [
        SubStatus::Created,
        SubStatus::ComplianceChecksInProgress,
        SubStatus::IdvRequired,
        SubStatus::IdvRequested,
        SubStatus::IdvInProgress,
        SubStatus::IdvExpired,
        SubStatus::RfiRequired,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            SubStatus::Created => "CREATED",
            SubStatus::ComplianceChecksInProgress => "COMPLIANCE_CHECKS_IN_PROGRESS",
            SubStatus::IdvRequired => "IDV_REQUIRED",
            SubStatus::IdvRequested => "IDV_REQUESTED",
            SubStatus::IdvInProgress => "IDV_IN_PROGRESS",
            SubStatus::IdvExpired => "IDV_EXPIRED",
            SubStatus::RfiRequired => "RFI_REQUIRED",
        }
    }

    /// The text of a sub-status, or of none, where a text is needed.
    pub fn text(sub_status: Option<Self>) -> &'static str {
        sub_status.map_or("", SubStatus::name)
    }
}

impl Change {
    /// The participle for messages: what has happened to the identity.
    pub const fn done(self) -> &'static str {
        match self {
            Change::Suspend => "suspended",
            Change::Reinstate => "reinstated",
            Change::Terminate => "terminated",
        }
    }
}

impl Identity {
    /// A new identity. Whoever registers it has onboarded it.
    pub fn register(id: String, new: &NewIdentity) -> Self {
        let NewIdentity { kind, label, fiat_operations_enabled } = new.clone();
        Identity { id, kind, label, fiat_operations_enabled, status: IdentityStatus::Active, sub_status: None }
    }

    /// The identity after a change. A request for information ends with the status that it was raised in.
    ///
    /// # Errors
    /// When its status does not allow the change.
    pub fn change(&self, change: Change) -> Result<Self, InvalidTransition> {
        Ok(Identity { status: self.status.after(change)?, sub_status: None, ..self.clone() })
    }

    /// Whether `new` would register the same identity.
    pub fn is(&self, new: &NewIdentity) -> bool {
        self.kind == new.kind && self.label == new.label && self.fiat_operations_enabled == new.fiat_operations_enabled
    }
}

impl NewIdentity {
    /// The request that registers it.
    ///
    /// # Errors
    /// A request id that is empty, long or not plain.
    pub fn request(&self, id: &str) -> Result<Request, RequestIdError> {
        let fiat: &[u8] = if self.fiat_operations_enabled { b"1" } else { b"0" };
        request::of(id, "identity/v1", [self.kind.name().as_bytes(), self.label.as_bytes(), fiat])
    }
}

macro_rules! named {
    ($name:ident, $what:literal) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }

        impl FromStr for $name {
            type Err = UnknownName;

            fn from_str(text: &str) -> Result<Self, UnknownName> {
                let expected = || $name::ALL.map($name::name).join(" or ");
                let unknown = || UnknownName { what: $what, text: text.to_owned(), expected: expected() };
                $name::ALL.into_iter().find(|known| known.name() == text).ok_or_else(unknown)
            }
        }
    };
}

named!(IdentityType, "identity type");
named!(IdentityStatus, "identity status");
named!(SubStatus, "identity sub-status");

/// Checks an id that a person chose.
///
/// # Errors
/// One that is empty, long or not plain.
pub fn check_id(what: &'static str, id: &str) -> Result<(), IdError> {
    let plain = !id.is_empty() && id.len() <= ID_CHARS_MAX && id.bytes().all(|b| b.is_ascii_graphic());
    if plain { Ok(()) } else { Err(IdError { what, id: id.to_owned() }) }
}

/// Checks a label. It may hold no control characters, and no replacement character, which shows broken text.
///
/// # Errors
/// One that is long or has such characters.
pub fn check_label(label: &str) -> Result<(), LabelError> {
    let plain = !label.contains(|c: char| is_control(c) || c == char::REPLACEMENT_CHARACTER);
    if plain && label.chars().count() <= LABEL_CHARS_MAX { Ok(()) } else { Err(LabelError) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_leads_from_the_states_that_allow_it_and_from_no_other() {
        use IdentityStatus::{Active, PendingOnboarding, Rejected, Suspended, Terminated};
        let cases = [
            (PendingOnboarding, [None, None, Some(Terminated)]),
            (Active, [Some(Suspended), None, Some(Terminated)]),
            (Suspended, [None, Some(Active), Some(Terminated)]),
            (Rejected, [None, None, Some(Terminated)]),
            (Terminated, [None, None, None]),
        ];
        for (from, expected) in cases {
            let changes = [Change::Suspend, Change::Reinstate, Change::Terminate];
            assert_eq!(changes.map(|change| from.after(change).ok()), expected, "{from}");
        }
        let refused = Terminated.after(Change::Reinstate).unwrap_err();
        assert_eq!(refused.to_string(), "an identity that is TERMINATED cannot be reinstated");
    }

    #[test]
    fn a_change_of_the_status_ends_the_sub_status() {
        let new = NewIdentity { kind: IdentityType::Business, label: "acme".into(), fiat_operations_enabled: true };
        let identity = Identity { sub_status: Some(SubStatus::RfiRequired), ..Identity::register("a".into(), &new) };
        let suspended = identity.change(Change::Suspend).unwrap();
        assert_eq!((suspended.status, suspended.sub_status), (IdentityStatus::Suspended, None));
        assert!(suspended.is(&new), "nothing else changes");
    }

    #[test]
    fn names_are_read_back_and_others_are_refused_with_what_to_write() {
        for status in IdentityStatus::ALL {
            assert_eq!(status.name().parse(), Ok(status));
        }
        for sub_status in SubStatus::ALL {
            assert_eq!(sub_status.name().parse(), Ok(sub_status));
        }
        let refused = "individual".parse::<IdentityType>().unwrap_err().to_string();
        assert_eq!(refused, "unknown identity type \"individual\": expected INDIVIDUAL or BUSINESS");
    }

    #[test]
    fn a_label_may_be_empty_and_has_no_control_characters() {
        assert_eq!(check_label(""), Ok(()));
        assert_eq!(check_label(&"é".repeat(LABEL_CHARS_MAX)), Ok(()));
        for label in
            ["\0", "a\nb", "\u{9b}", "\u{2028}", "\u{202e}", "\u{2066}", "\u{fffd}", &"a".repeat(LABEL_CHARS_MAX + 1)]
        {
            assert_eq!(check_label(label), Err(LabelError), "{label:?}");
        }
    }
}
