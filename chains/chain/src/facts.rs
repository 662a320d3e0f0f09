//! What a chain itself says of an asset that is listed.
//!
//! Invariant: it is one endpoint's word, and is put before people. No credit is decided by it, and none waits for it.

use crate::{Address, AssetId, SourceError};

/// What a chain says of an asset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssetFacts {
    /// The program that keeps it: by its name where it keeps tokens, else by its address.
    pub program: String,
    /// The programs under which it is listed, by their names.
    pub listed_programs: Vec<String>,
    /// What its keeper says of it; `None` where that is no program for tokens, so that nothing of it can be read.
    pub terms: Option<Terms>,
}

/// The terms on which an asset is held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    /// How many decimals the major unit has.
    pub decimals: u8,
    /// Who may freeze single holdings.
    pub freeze_authority: Option<Address>,
    /// Who may take from any holding.
    pub permanent_delegate: Option<Address>,
    /// What is kept of each transfer, as it was last set: it may come into force later.
    pub transfer_fee: Option<TransferFee>,
    /// What else it can do, by name, in the order of the chain.
    pub extensions: Vec<String>,
    /// Those of them by which others than its owner may move, stop, hide or shrink a holding, and those that are not known.
    pub risks: Vec<String>,
}

/// What an asset keeps of each transfer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TransferFee {
    /// Hundredths of a percent.
    pub basis_points: u16,
    /// At most so many base units.
    pub maximum: u64,
}

/// A chain that can be asked what its assets are.
pub trait AssetSource: Send + Sync + 'static {
    /// What `asset` is by now: an answer of before the final block number `reached` does not count. `None` where a
    /// chain has nothing to say of it. It retries nothing, and that it fails says nothing of the asset.
    fn facts(
        &self,
        asset: &AssetId,
        reached: Option<u64>,
    ) -> impl Future<Output = Result<Option<AssetFacts>, SourceError>> + Send;
}

impl AssetFacts {
    /// Whether it is kept by a program under which it is listed.
    pub fn is_under_its_program(&self) -> bool {
        self.listed_programs.contains(&self.program)
    }
}
