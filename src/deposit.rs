//! A deposit: its identity, its states, and how it changes.
//!
//! Invariants:
//! - the id is a pure function of chain content (the leg); block, position, sender, account and time are left out,
//!   so a reorg, a rebuild or a second indexer gives the same id;
//! - a status changes only by the transitions here; CONFIRMED is terminal.
//!
//! It does not know blocks, SQL or the clock.

use std::fmt;
use std::str::FromStr;

use landfall_chain::{Address, AssetId, Chain, Payer, SenderRule, TxId, TxRef, U256, hash_of};
use uuid::Uuid;

use crate::time::Timestamp;

/// One movement of value to one address: the content of a deposit's id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leg<'a> {
    /// CAIP-2, for example `eip155:8453`.
    pub chain_ref: &'a str,
    pub tx: TxId,
    pub asset: AssetId,
    pub recipient: Address,
    /// Base units.
    pub amount: U256,
    /// 0, 1, 2.. among the transaction's legs with equal asset, recipient and amount.
    pub nth: u32,
}

/// SHA-256 over the leg's fields, each with its length before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LegHash(pub [u8; 32]);

/// UUIDv8 of the leg hash's first 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DepositId(pub Uuid);

/// The states of the interface; `DEPOSIT_STATUS_UNSPECIFIED` is none of them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DepositStatus {
    Pending,
    Confirmed,
    Failed,
}

/// A transition that the state table does not have.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a deposit that is {from} cannot become {to}")]
pub struct InvalidTransition {
    pub from: DepositStatus,
    pub to: DepositStatus,
}

/// A leg to a watched address, with its owner and status.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deposit {
    pub id: DepositId,
    pub leg_hash: LegHash,
    pub account_id: String,
    /// The account that paid, when the sender is one of ours.
    pub source_account_id: Option<String>,
    pub chain: Chain,
    pub tx: TxRef,
    pub asset: AssetId,
    pub sender: Address,
    /// How the sender is known.
    pub sender_rule: SenderRule,
    pub recipient: Address,
    /// Base units.
    pub amount: U256,
    pub nth: u32,
    pub symbol: String,
    pub decimals: u8,
    pub status: DepositStatus,
    /// Time of the first including block, then immutable.
    pub created_at: Timestamp,
    /// When it was decided, once CONFIRMED.
    pub confirmed_at: Option<Timestamp>,
    /// It came from another address of the same account whose key is held here. It is kept for the books, and is no
    /// deposit of a client: no event is written of it.
    pub is_self_transfer: bool,
}

impl Leg<'_> {
    pub fn hash(&self) -> LegHash {
        let amount = self.amount.to_be_bytes::<32>();
        let nth = self.nth.to_be_bytes();
        let asset = self.asset.to_bytes();
        let fields: [&[u8]; 7] = [
            b"deposit/v1",
            self.chain_ref.as_bytes(),
            self.tx.as_bytes(),
            &asset,
            self.recipient.as_bytes(),
            &amount,
            &nth,
        ];
        LegHash(hash_of(fields))
    }
}

impl LegHash {
    pub fn deposit_id(&self) -> DepositId {
        DepositId(uuid_of(&self.0))
    }
}

impl DepositStatus {
    /// The name on the wire.
    pub const fn name(self) -> &'static str {
        match self {
            DepositStatus::Pending => "PENDING",
            DepositStatus::Confirmed => "CONFIRMED",
            DepositStatus::Failed => "FAILED",
        }
    }

    /// Its leg is in a final block.
    ///
    /// # Errors
    /// From any state but PENDING.
    pub fn confirm(self) -> Result<Self, InvalidTransition> {
        match self {
            DepositStatus::Pending => Ok(DepositStatus::Confirmed),
            from @ (DepositStatus::Confirmed | DepositStatus::Failed) => {
                Err(InvalidTransition { from, to: DepositStatus::Confirmed })
            }
        }
    }

    /// It is proved that its leg is in no final block and cannot be.
    ///
    /// # Errors
    /// From any state but PENDING.
    pub fn fail(self) -> Result<Self, InvalidTransition> {
        match self {
            DepositStatus::Pending => Ok(DepositStatus::Failed),
            from @ (DepositStatus::Confirmed | DepositStatus::Failed) => {
                Err(InvalidTransition { from, to: DepositStatus::Failed })
            }
        }
    }

    /// Its transaction was mined after all.
    ///
    /// # Errors
    /// From any state but FAILED.
    pub fn revive(self) -> Result<Self, InvalidTransition> {
        match self {
            DepositStatus::Failed => Ok(DepositStatus::Pending),
            from @ (DepositStatus::Pending | DepositStatus::Confirmed) => {
                Err(InvalidTransition { from, to: DepositStatus::Pending })
            }
        }
    }
}

impl Deposit {
    /// Who paid, and how that is known.
    pub fn payer(&self) -> Payer {
        Payer { sender: self.sender, rule: self.sender_rule }
    }

    /// The same deposit, confirmed at `at`.
    ///
    /// # Errors
    /// When it is not PENDING.
    pub fn confirm(self, at: Timestamp) -> Result<Self, InvalidTransition> {
        Ok(Deposit { status: self.status.confirm()?, confirmed_at: Some(at), ..self })
    }

    /// The same deposit, failed.
    ///
    /// # Errors
    /// When it is not PENDING.
    pub fn fail(self) -> Result<Self, InvalidTransition> {
        Ok(Deposit { status: self.status.fail()?, ..self })
    }

    /// The same deposit, pending again.
    ///
    /// # Errors
    /// When it is not FAILED.
    pub fn revive(self) -> Result<Self, InvalidTransition> {
        Ok(Deposit { status: self.status.revive()?, ..self })
    }
}

impl fmt::Display for DepositId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hyphenated().fmt(f)
    }
}

impl FromStr for DepositId {
    type Err = String;

    /// Reads the form that is printed and no other: a second spelling would be a second name of the same money.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse().map(DepositId) {
            Ok(id) if id.to_string() == text => Ok(id),
            Ok(_) | Err(_) => Err(format!("{text:?} is no deposit id: expected a UUID in lower case with hyphens")),
        }
    }
}

impl fmt::Display for DepositStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for DepositStatus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [DepositStatus::Pending, DepositStatus::Confirmed, DepositStatus::Failed]
            .into_iter()
            .find(|status| status.name() == text)
            .ok_or_else(|| format!("unknown deposit status {text:?}"))
    }
}

/// UUIDv8 (RFC 9562) of the first 16 bytes.
pub(crate) fn uuid_of(hash: &[u8; 32]) -> Uuid {
    let (head, _) = hash.split_first_chunk::<16>().expect("32 is more than 16");
    Uuid::new_v8(*head)
}

#[cfg(test)]
mod tests {
    use super::*;
    use DepositStatus::{Confirmed, Failed, Pending};

    #[test]
    fn the_state_table_has_three_transitions_and_no_other() {
        for from in [Pending, Confirmed, Failed] {
            assert_eq!(from.confirm().is_ok(), from == Pending);
            assert_eq!(from.fail().is_ok(), from == Pending);
            assert_eq!(from.revive().is_ok(), from == Failed);
        }
        assert_eq!(Confirmed.fail().unwrap_err().to_string(), "a deposit that is CONFIRMED cannot become FAILED");
    }

    #[test]
    fn a_deposit_id_has_one_spelling() {
        let text = "615684f4-6776-8c35-b3dd-17080e18a784";
        assert_eq!(text.parse::<DepositId>().unwrap().to_string(), text);
        for other in [&text.to_uppercase(), &text.replace('-', ""), &format!("{{{text}}}"), ""] {
            assert!(other.parse::<DepositId>().is_err(), "{other}");
        }
    }
}
