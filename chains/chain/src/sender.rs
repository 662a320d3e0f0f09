//! How the sender of a transfer is known.
//!
//! On EVM the leg names it. On Solana, where a transfer is a net gain, one of four rules names it, and the rule is
//! recorded beside it. A sender never decides about a credit: no id is made of it.

use std::fmt;
use std::str::FromStr;

use crate::Address;

/// How a sender is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SenderRule {
    /// The leg itself names it.
    Reported,
    /// No other owner lost of the asset.
    OnlyPayer,
    /// An instruction sent to the recipient.
    Instruction,
    /// It was minted: the mint authority.
    Mint,
    /// Nothing else is known: who paid the fee.
    FeePayer,
    /// Who paid the fee stands in: the balances do not show it, and no endpoint was asked, could be asked, or knew the
    /// transaction yet.
    StandIn,
}

/// Who paid, and how that is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Payer {
    /// Who paid.
    pub sender: Address,
    /// How that is known.
    pub rule: SenderRule,
}

impl SenderRule {
    const ALL: [SenderRule; 6] = [
        SenderRule::Reported,
        SenderRule::OnlyPayer,
        SenderRule::Instruction,
        SenderRule::Mint,
        SenderRule::FeePayer,
        SenderRule::StandIn,
    ];

    /// The name that is stored and shown.
    pub const fn name(self) -> &'static str {
        match self {
            SenderRule::Reported => "reported",
            SenderRule::OnlyPayer => "only_payer",
            SenderRule::Instruction => "instruction",
            SenderRule::Mint => "mint",
            SenderRule::FeePayer => "fee_payer",
            SenderRule::StandIn => "stand_in",
        }
    }
}

impl fmt::Display for SenderRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SenderRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = SenderRule::ALL.into_iter().find(|rule| rule.name() == text);
        known.ok_or_else(|| format!("unknown rule of a sender {text:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_storage() {
        for rule in SenderRule::ALL {
            assert_eq!(rule.to_string().parse(), Ok(rule));
        }
        assert!("nobody".parse::<SenderRule>().is_err());
    }
}
