//! Incidents: what a person must check. One of a kind is open at a time on a chain, or for a deposit, or for an address
//! and an asset, where the incident names them. When it is found again, the open one is renewed.
//!
//! A person resolves an incident, with a reason, or the decision that ends it does (an accepted reorg). This module
//! knows neither how incidents are found nor what is done about them.

use std::fmt;
use std::str::FromStr;

use landfall_chain::{Address, AssetId, Chain, hash_of};

use crate::deposit::DepositId;
use crate::time::Timestamp;

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum IncidentKind {
    /// A block that was final, or held a CONFIRMED deposit, is no longer canonical.
    PostFinalityReorg,
    /// A reorg reaches below the oldest block on record.
    DeepReorg,
    /// A deposit is CONFIRMED, and an accepted reorg disconnected its block. Or confirming a deposit would credit a
    /// transaction with more than it paid. It names the deposit.
    OverCredited,
    /// A proved block, read again, does not show the leg of a deposit that was recorded from it.
    LegMissing,
    /// Only a newer version can prove a block.
    UpgradeNeeded,
    /// The source refuses permanently for another reason.
    SourceRefused,
    /// The store contradicts itself.
    InconsistentStore,
    /// A changed setting would have shown more in blocks that were followed without it.
    CoverageGap,
    /// A chain reports a listed asset differently than it is configured.
    AssetMismatch,
    /// An address holds less than its CONFIRMED deposits amount to. It names the address and the asset.
    BalanceShort,
    /// The store knows less than the signer's journal, or than blocks show of our wallets: it may be an old copy.
    StoreBehind,
    /// Something left a wallet or a sponsor that no signature of ours explains. It names the address and the asset.
    ForeignSpend,
    /// A sponsor owns otherwise than the ledger says. It names the address and the asset.
    LedgerDiffers,
}

/// Something that a person must check.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Incident {
    pub id: String,
    pub chain: Chain,
    pub kind: IncidentKind,
    /// The message, as of the last time that it was found.
    pub what: String,
    /// For a reorg the fork point, for a deposit the block it was seen in, for a balance the block after which it was
    /// read.
    pub block_number: Option<u64>,
    /// The deposit that it is about.
    pub deposit: Option<DepositId>,
    /// The address and asset whose balance it is about.
    pub holding: Option<(Address, AssetId)>,
    pub opened_at: Timestamp,
    /// When it was found last.
    pub seen_at: Timestamp,
    pub resolved_at: Option<Timestamp>,
    /// Why it was resolved; empty while it is open.
    pub resolution: String,
}

impl IncidentKind {
    const ALL: [IncidentKind; 13] = [
        IncidentKind::PostFinalityReorg,
        IncidentKind::DeepReorg,
        IncidentKind::OverCredited,
        IncidentKind::LegMissing,
        IncidentKind::UpgradeNeeded,
        IncidentKind::SourceRefused,
        IncidentKind::InconsistentStore,
        IncidentKind::CoverageGap,
        IncidentKind::AssetMismatch,
        IncidentKind::BalanceShort,
        IncidentKind::StoreBehind,
        IncidentKind::ForeignSpend,
        IncidentKind::LedgerDiffers,
    ];

    /// The name that is stored and shown.
    pub const fn name(self) -> &'static str {
        match self {
            IncidentKind::PostFinalityReorg => "post_finality_reorg",
            IncidentKind::DeepReorg => "deep_reorg",
            IncidentKind::OverCredited => "over_credited",
            IncidentKind::LegMissing => "leg_missing",
            IncidentKind::UpgradeNeeded => "upgrade_needed",
            IncidentKind::SourceRefused => "source_refused",
            IncidentKind::InconsistentStore => "inconsistent_store",
            IncidentKind::CoverageGap => "coverage_gap",
            IncidentKind::AssetMismatch => "asset_mismatch",
            IncidentKind::BalanceShort => "balance_short",
            IncidentKind::StoreBehind => "store_behind",
            IncidentKind::ForeignSpend => "foreign_spend",
            IncidentKind::LedgerDiffers => "ledger_differs",
        }
    }
}

impl Incident {
    /// A new one, found at `at`.
    pub fn open(chain: Chain, kind: IncidentKind, what: String, block_number: Option<u64>, at: Timestamp) -> Self {
        let id = short_id("inc", &[chain.name(), kind.name(), &at.0.to_string(), &what]);
        let resolution = String::new();
        let (opened_at, seen_at) = (at, at);
        Incident {
            id,
            chain,
            kind,
            what,
            block_number,
            deposit: None,
            holding: None,
            opened_at,
            seen_at,
            resolved_at: None,
            resolution,
        }
    }

    /// The same, about a deposit.
    #[must_use]
    pub fn about(self, deposit: DepositId) -> Self {
        Incident { deposit: Some(deposit), ..self }
    }

    /// The same, about what an address holds of an asset.
    #[must_use]
    pub fn about_balance(self, address: Address, asset: AssetId) -> Self {
        Incident { holding: Some((address, asset)), ..self }
    }
}

impl fmt::Display for IncidentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for IncidentKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = IncidentKind::ALL.into_iter().find(|kind| kind.name() == text);
        known.ok_or_else(|| format!("unknown kind of incident {text:?}"))
    }
}

/// A name for a record that these fields identify, short enough to type.
pub(crate) fn short_id(prefix: &str, fields: &[&str]) -> String {
    let hash = hash_of([prefix].iter().chain(fields).map(|field| field.as_bytes()));
    format!("{prefix}_{}", hex::encode(&hash[..8]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_from_its_name() {
        for kind in IncidentKind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
        assert!("reorg".parse::<IncidentKind>().is_err());
    }
}
