//! Incidents: what a person must look at. One of a kind is open on a chain at a time, or for a deposit, or for an address and
//! an asset, where it names them; meeting it again renews it.
//!
//! An incident is resolved by a person, with a reason, or by the decision that ends it (an accepted reorg). It does
//! not know how it is met, nor what is done about it.

use std::fmt;
use std::str::FromStr;

use landfall_chain::{Address, AssetId, Chain};
use sha2::{Digest, Sha256};

use crate::deposit::{DepositId, update_with_length};
use crate::time::Timestamp;

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum IncidentKind {
    /// A block that was final, or held a CONFIRMED deposit, is no longer canonical.
    PostFinalityReorg,
    /// A reorg reaches below the oldest block on record.
    DeepReorg,
    /// A deposit is CONFIRMED, and an accepted reorg took back its block; or confirming a deposit would credit a
    /// transaction with more than it paid. It names the deposit.
    OverCredited,
    /// A proved block is read otherwise than before.
    LegMissing,
    /// A block needs a newer version to be proved.
    UpgradeNeeded,
    /// The source refuses for good for another reason.
    SourceRefused,
    /// The store contradicts itself.
    InconsistentStore,
    /// A changed setting would have shown more in blocks that were followed without it.
    CoverageGap,
    /// A chain says otherwise of a listed asset than the configuration does.
    AssetMismatch,
    /// An address holds less than its CONFIRMED deposits make. It names the address and the asset.
    BalanceShort,
}

/// Something that a person must look at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Incident {
    pub id: String,
    pub chain: Chain,
    pub kind: IncidentKind,
    /// In words, as it was last met.
    pub what: String,
    /// Of a reorg the fork point, of a deposit the block that it was seen in, of a balance the one after which it was read.
    pub block_number: Option<u64>,
    /// The deposit that it is about.
    pub deposit: Option<DepositId>,
    /// Whose balance of which asset it is about.
    pub holding: Option<(Address, AssetId)>,
    pub opened_at: Timestamp,
    /// When it was last met.
    pub seen_at: Timestamp,
    pub resolved_at: Option<Timestamp>,
    /// Why it is resolved; empty while it is open.
    pub resolution: String,
}

impl IncidentKind {
    const ALL: [IncidentKind; 10] = [
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
        }
    }
}

impl Incident {
    /// A new one, met at `at`.
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

/// A name for a record that is told apart by these fields, short enough to be typed.
pub(crate) fn short_id(prefix: &str, fields: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for field in [prefix].iter().chain(fields) {
        update_with_length(&mut hasher, field.as_bytes());
    }
    format!("{prefix}_{}", hex::encode(&hasher.finalize()[..8]))
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
