//! What operators decide about a chain: halt, resume, and overrides of a rule. Each has a reason and an entry in the
//! audit. The audit also holds what people do about identities, the delivery of events and API keys.
//!
//! An override of a rule ends by time or when it is cleared. It never changes what a deposit needs in order to be
//! credited: a leg in a block of our own chain, read again and proved again.

use landfall_chain::{BlockHash, BlockRef, Chain};

use crate::incident::short_id;
use crate::time::Timestamp;

/// A decision of an operator for a chain's watcher.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Override {
    /// Do nothing from the next tick on.
    Halt,
    /// A halted watcher goes on when it reads an id that it did not know when it halted.
    Resume { id: String },
    /// Disconnect blocks although they were final or hold CONFIRMED deposits, down to this block and no deeper, once.
    AcceptReorg { down_to: u64 },
    /// So many endpoints need to agree on what is final.
    Agree { endpoints: u32 },
    /// This block of ours counts as final for confirming.
    ConfirmThrough(BlockRef),
}

/// A decision with its reason and its time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Decision {
    pub action: Override,
    pub reason: String,
    /// From then on it is no longer in force.
    pub until: Timestamp,
    pub created_at: Timestamp,
}

/// The decisions in force that a chain's watcher must follow.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Overrides {
    /// Why it is halted.
    pub halted: Option<String>,
    /// The id of the last resumption; empty before the first.
    pub resumed: String,
    /// The fork point down to which a reorg is accepted, and why.
    pub accepted: Option<(u64, String)>,
    pub agree: Option<u32>,
    /// A block that counts as final, and why.
    pub confirm: Option<(BlockRef, String)>,
}

/// Who does something that the audit records, why and when.
#[derive(Clone, Copy, Debug)]
pub struct Author<'a> {
    pub actor: &'a str,
    /// Empty if no reason was asked for.
    pub reason: &'a str,
    pub now: Timestamp,
}

/// An entry of the audit: who decided what, and why. It names things by their ids and holds no secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditEntry {
    pub at: Timestamp,
    pub actor: String,
    pub action: String,
    /// `None` if it is about no single chain.
    pub chain: Option<Chain>,
    pub what: String,
    pub reason: String,
}

impl Override {
    /// The kind that is stored and shown. One of each kind is in force on a chain.
    pub const fn kind(&self) -> &'static str {
        match self {
            Override::Halt => "halt",
            Override::Resume { .. } => "resume",
            Override::AcceptReorg { .. } => "accept_reorg",
            Override::Agree { .. } => "finality",
            Override::ConfirmThrough(_) => "confirm",
        }
    }

    /// The value that is stored beside the kind.
    pub fn value(&self) -> String {
        match self {
            Override::Halt => String::new(),
            Override::Resume { id } => id.clone(),
            Override::AcceptReorg { down_to } => down_to.to_string(),
            Override::Agree { endpoints } => endpoints.to_string(),
            Override::ConfirmThrough(block) => format!("{} {}", block.number, block.hash),
        }
    }

    /// Parses what [`Override::kind`] and [`Override::value`] returned.
    ///
    /// # Errors
    /// A text that is not of that form.
    pub fn read(kind: &str, value: &str) -> Result<Self, String> {
        let malformed = || format!("unknown override {kind:?} with value {value:?}");
        match kind {
            "halt" => Ok(Override::Halt),
            "resume" => Ok(Override::Resume { id: value.to_owned() }),
            "accept_reorg" => value.parse().map(|down_to| Override::AcceptReorg { down_to }).map_err(|_| malformed()),
            "finality" => value.parse().map(|endpoints| Override::Agree { endpoints }).map_err(|_| malformed()),
            "confirm" => {
                let (number, hash) = value.split_once(' ').ok_or_else(malformed)?;
                let hash = hex::decode_to_array(hash).map(BlockHash).map_err(|_| malformed())?;
                Ok(Override::ConfirmThrough(BlockRef { number: number.parse().map_err(|_| malformed())?, hash }))
            }
            _ => Err(malformed()),
        }
    }

    /// Whether it overrides a rule: it is then shown while in force, and ended by clearing.
    pub const fn replaces_a_rule(&self) -> bool {
        match self {
            Override::Halt | Override::Resume { .. } => false,
            Override::AcceptReorg { .. } | Override::Agree { .. } | Override::ConfirmThrough(_) => true,
        }
    }
}

impl Overrides {
    /// Those of `decisions` that are in force at `now`.
    pub fn of(decisions: Vec<Decision>, now: Timestamp) -> Self {
        let mut orders = Overrides::default();
        for Decision { action, reason, .. } in decisions.into_iter().filter(|decision| decision.until > now) {
            match action {
                Override::Halt => orders.halted = Some(reason),
                Override::Resume { id } => orders.resumed = id,
                Override::AcceptReorg { down_to } => orders.accepted = Some((down_to, reason)),
                Override::Agree { endpoints } => orders.agree = Some(endpoints),
                Override::ConfirmThrough(block) => orders.confirm = Some((block, reason)),
            }
        }
        orders
    }
}

impl Author<'_> {
    pub fn entry(&self, chain: Option<Chain>, action: &str, what: &str) -> AuditEntry {
        let Author { actor, reason, now } = *self;
        let [actor, action, what, reason] = [actor, action, what, reason].map(str::to_owned);
        AuditEntry { at: now, actor, action, chain, what, reason }
    }
}

impl AuditEntry {
    /// The chain's name; empty where there is none.
    pub fn chain_name(&self) -> &'static str {
        self.chain.map_or("", Chain::name)
    }

    /// What identifies it. The same person deciding the same for the same reason in the same microsecond did it once.
    pub fn id(&self) -> String {
        let AuditEntry { at, actor, action, what, reason, .. } = self;
        short_id("aud", &[&at.0.to_string(), actor, action, self.chain_name(), what, reason])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_read_back_from_what_is_stored() {
        let words = [
            Override::Halt,
            Override::Resume { id: "aud_1".to_owned() },
            Override::AcceptReorg { down_to: 7 },
            Override::Agree { endpoints: 1 },
            Override::ConfirmThrough(BlockRef { number: 9, hash: BlockHash([0xab; 32]) }),
        ];
        for action in words {
            assert_eq!(Override::read(action.kind(), &action.value()), Ok(action));
        }
        for (kind, value) in
            [("stop", ""), ("finality", "all"), ("confirm", "9"), ("confirm", "9 0x1"), ("accept_reorg", "")]
        {
            assert!(Override::read(kind, value).is_err(), "{kind} {value}");
        }
    }

    #[test]
    fn a_word_counts_until_its_time_and_not_at_it() {
        let decision = |until| Decision {
            action: Override::Agree { endpoints: 1 },
            reason: "node down".to_owned(),
            until: Timestamp(until),
            created_at: Timestamp(1),
        };
        assert_eq!(Overrides::of(vec![decision(5)], Timestamp(4)).agree, Some(1));
        assert_eq!(Overrides::of(vec![decision(5)], Timestamp(5)), Overrides::default());
    }
}
