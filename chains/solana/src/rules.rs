//! What decides about credits on one network: the listed mints, and what wrapped SOL is.
//!
//! A mint counts only under its own token program. A mint that an operator listed without naming the program counts
//! under either.

use std::collections::{BTreeMap, BTreeSet};

use hashbrown::HashMap;
use landfall_chain::{Address, AssetId, Network};
use serde::Deserialize;

use crate::ata::{self, SPL_TOKEN, TOKEN_2022, TokenProgram};
use crate::base58;
use crate::error::Unusable;
use crate::networks;
use crate::options::Options;
use crate::tx::Holding;

/// The mint of wrapped SOL under the older token program; its accounts hold as many lamports as tokens.
pub const WRAPPED_SOL: &str = "So11111111111111111111111111111111111111112";

/// What wrapped SOL is. Either way no lamport counts twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wrapped {
    /// A token like others: credited where it is listed. Wrapping and unwrapping one's own is no deposit.
    Token,
    /// SOL: credited together with it.
    Native,
}

/// What decides about credits on one network.
#[derive(Clone, Debug)]
pub struct Rules {
    pub(crate) wrapped: Wrapped,
    mints: HashMap<String, Mint>,
}

/// A listed mint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mint {
    pub(crate) key: [u8; 32],
    program: Option<TokenProgram>,
    decimals: u8,
    from_slot: u64,
}

/// A token account that counts for an owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenPlace {
    pub(crate) account: [u8; 32],
    pub(crate) program: TokenProgram,
    pub(crate) mint: [u8; 32],
}

/// Whether a mint is listed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Listed<'r> {
    As(&'r Mint, TokenProgram),
    /// Listed, but not under the program that keeps this balance.
    UnderAnother,
    No,
}

impl Rules {
    /// What `network` lists; what its file says beside that comes from there.
    pub fn of(network: &Network) -> Self {
        let facts = networks::of(network.chain);
        let program_of = |id| {
            let programs = facts.as_ref().map_or(&[][..], |facts| facts.programs.as_slice());
            programs.iter().find(|(other, _)| *other == id).map(|(_, program)| *program)
        };
        let mut mints = HashMap::new();
        for asset in &network.assets {
            if let AssetId::Token(mint @ Address::Solana(key)) = asset.id {
                let (decimals, from_slot) = (asset.decimals, asset.from_block);
                mints.insert(mint.to_string(), Mint { key, program: program_of(asset.id), decimals, from_slot });
            }
        }
        Rules { wrapped: facts.map_or(Wrapped::Token, |facts| facts.wrapped), mints }
    }

    /// The same, with an operator's settings.
    #[must_use]
    pub fn with_options(mut self, options: &Options) -> Self {
        for (id, program) in &options.programs {
            if let AssetId::Token(mint) = id
                && let Some(mint) = self.mints.get_mut(&mint.to_string())
            {
                mint.program = Some(*program);
            }
        }
        let wrapped = options.wrapped.unwrap_or(self.wrapped);
        self.with_wrapped(wrapped)
    }

    /// The same, with another setting for wrapped SOL.
    #[must_use]
    pub fn with_wrapped(self, wrapped: Wrapped) -> Self {
        Rules { wrapped, ..self }
    }

    /// All of it, as a text that is the same for the same rules.
    pub(crate) fn words(&self) -> String {
        let mints: BTreeMap<&String, &Mint> = self.mints.iter().collect();
        format!("{:?} {mints:?}", self.wrapped)
    }

    /// The program that a token balance of `mint` counts as being of, where a node does not report it.
    pub(crate) fn counts_as(&self, mint: &str) -> &'static str {
        match self.mints.get(mint).and_then(|mint| mint.program) {
            Some(TokenProgram::Token2022) => TOKEN_2022,
            Some(TokenProgram::SplToken) | None => SPL_TOKEN,
        }
    }

    /// The programs under which `mint` is listed; none where it is not.
    pub(crate) fn programs_of(&self, mint: &str) -> impl Iterator<Item = TokenProgram> {
        self.mints.get(mint).into_iter().flat_map(Mint::programs)
    }

    /// The accounts through which `owner` can be credited: the owner's own, and the associated ones of each listed
    /// mint, under both programs where the mint's is not known. Other token accounts are not eligible. Wrapped SOL is
    /// always among them: what comes there and is no credit stands on record, and whoever pays into it need not name
    /// its owner.
    pub(crate) fn accounts_of(&self, owner: &[u8; 32]) -> Vec<[u8; 32]> {
        let mut accounts = BTreeSet::new();
        for mint in self.mints.values() {
            accounts.extend(mint.programs().filter_map(|program| ata::of(owner, program, &mint.key)));
        }
        let wrapped = base58::key(WRAPPED_SOL);
        accounts.extend(wrapped.and_then(|mint| ata::of(owner, TokenProgram::SplToken, &mint)));
        std::iter::once(*owner).chain(accounts).collect()
    }

    /// The token accounts in which `owner` has a listed asset: the associated ones of its mint; for SOL, that of
    /// wrapped SOL if that counts as SOL.
    pub(crate) fn places_of(&self, owner: &[u8; 32], asset: &AssetId) -> Vec<TokenPlace> {
        let place = |program, mint| ata::of(owner, program, &mint).map(|account| TokenPlace { account, program, mint });
        match asset {
            AssetId::Native if self.wrapped == Wrapped::Native => {
                base58::key(WRAPPED_SOL).and_then(|mint| place(TokenProgram::SplToken, mint)).into_iter().collect()
            }
            AssetId::Native => Vec::new(),
            AssetId::Token(mint) => {
                let mint = self.mints.get(&mint.to_string());
                mint.into_iter()
                    .flat_map(|mint| mint.programs().filter_map(|program| place(program, mint.key)))
                    .collect()
            }
        }
    }

    /// The mint of a token balance in `slot`, where it is listed.
    ///
    /// # Errors
    /// Other decimals than were listed: either is wrong, and an amount would be a thousandfold.
    pub(crate) fn listed(&self, holding: &Holding<'_>, index: usize, slot: u64) -> Result<Listed<'_>, Unusable> {
        let mint = self.mints.get(holding.mint).filter(|mint| slot >= mint.from_slot);
        let Some(mint) = mint else { return Ok(Listed::No) };
        let reported = holding.program.map(TokenProgram::of);
        let program = match (mint.program, reported) {
            (Some(listed), None) => listed,
            (Some(listed), Some(Some(reported))) if listed == reported => listed,
            (None, Some(Some(reported))) => reported,
            (None, None) => TokenProgram::SplToken,
            (Some(_) | None, Some(_)) => return Ok(Listed::UnderAnother),
        };
        let (reported, listed) = (holding.decimals, mint.decimals);
        if reported != listed {
            return Err(Unusable::Decimals { index, mint: holding.mint.to_owned(), reported, listed });
        }
        Ok(Listed::As(mint, program))
    }
}

impl Mint {
    /// The program under which it is listed, or both.
    fn programs(&self) -> impl Iterator<Item = TokenProgram> + use<> {
        let listed = self.program;
        TokenProgram::ALL.into_iter().filter(move |one| listed.is_none_or(|listed| listed == *one))
    }
}
