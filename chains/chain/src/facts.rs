//! What a chain itself says of an asset that is listed.
//!
//! Promises: a fact is what as many endpoints as must agree report alike. An endpoint that fails, or reports something
//! else, says nothing of the asset. What follows from a fact is decided elsewhere.

use crate::{Address, AssetId, SourceError};

/// What a chain says of an asset.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssetFacts {
    /// The program that keeps it: its name where it keeps tokens, else its address; on EVM chains `contract`. `None`
    /// where there is no code at its address.
    pub program: Option<String>,
    /// The programs under which it is listed, by their names.
    pub listed_programs: Vec<String>,
    /// What its keeper says of it. `None` where nothing can be read: the program is none for tokens, or the contract
    /// does not answer.
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
    /// Those of them by which others than its owner may move, stop, hide or shrink a holding, and those that we do not
    /// know.
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
    /// What `asset` is by now: a response from before the final block number `reached` does not count. `None` where a
    /// chain says nothing of it. It retries nothing, and its failure says nothing of the asset.
    fn facts(
        &self,
        asset: &AssetId,
        reached: u64,
    ) -> impl Future<Output = Result<Option<AssetFacts>, SourceError>> + Send;
}

impl AssetFacts {
    /// Whether it is kept by a program under which it is listed.
    pub fn is_under_its_program(&self) -> bool {
        self.program.as_ref().is_some_and(|program| self.listed_programs.contains(program))
    }
}

/// What `agree` of the endpoints report alike, if so many do.
pub fn reported_alike(reported: &[AssetFacts], agree: usize) -> Option<&AssetFacts> {
    reported.iter().find(|facts| reported.iter().filter(|other| other == facts).count() >= agree.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_asset_is_counts_when_as_many_report_it_as_must_agree() {
        let of = |name: &str| AssetFacts { program: Some(name.to_owned()), listed_programs: Vec::new(), terms: None };
        let cases = [
            ("", 1, None),
            ("a", 0, Some("a")),
            ("a", 2, None),
            ("ab", 2, None),
            ("aba", 2, Some("a")),
            ("abb", 2, Some("b")),
            ("abb", 3, None),
        ];
        for (reported, agree, expected) in cases {
            let all: Vec<AssetFacts> = reported.chars().map(|name| of(&name.to_string())).collect();
            assert_eq!(reported_alike(&all, agree), expected.map(of).as_ref(), "{reported}, {agree}");
        }
    }
}
