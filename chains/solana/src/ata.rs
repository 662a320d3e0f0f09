//! Where an owner's tokens belong: the associated token account, an address derived from owner, token program and mint.
//!
//! Each of the two token programs leads to another address. What lies elsewhere belongs to the owner too, but nobody
//! sends there by the rules, and whoever set it up may still control it.

use landfall_chain::{Address, Route};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use solana_address::bytes_are_curve_point;

/// The two programs that keep token accounts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Deserialize)]
pub enum TokenProgram {
    #[serde(rename = "spl_token")]
    SplToken,
    #[serde(rename = "token_2022")]
    Token2022,
}

pub(crate) const SPL_TOKEN: &str = "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA";
pub(crate) const TOKEN_2022: &str = "TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb";
/// `ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL`
pub(crate) const PROGRAM: [u8; 32] = [
    140, 151, 37, 143, 78, 36, 137, 241, 187, 61, 16, 41, 20, 142, 13, 131, 11, 90, 19, 153, 218, 255, 16, 132, 4, 142,
    123, 216, 219, 233, 248, 89,
];
/// Fifteen of sixteen associated accounts are among so many hashes: each hash is a point or not with the same chance.
const FIRST_FEW: usize = 4;
/// What marks the hash of a derived address (solana-address: `PDA_MARKER`).
const DERIVED: &[u8] = b"ProgramDerivedAddress";
/// [`SPL_TOKEN`]
const SPL_TOKEN_KEY: [u8; 32] = [
    6, 221, 246, 225, 215, 101, 161, 147, 217, 203, 225, 70, 206, 235, 121, 172, 28, 180, 133, 237, 95, 91, 55, 145,
    58, 140, 245, 133, 126, 255, 0, 169,
];
/// [`TOKEN_2022`]
const TOKEN_2022_KEY: [u8; 32] = [
    6, 221, 246, 225, 238, 117, 143, 222, 24, 66, 93, 188, 228, 108, 205, 218, 182, 26, 252, 77, 131, 185, 13, 39, 254,
    189, 249, 40, 216, 161, 139, 252,
];

impl TokenProgram {
    /// Both of them.
    pub const ALL: [TokenProgram; 2] = [TokenProgram::SplToken, TokenProgram::Token2022];

    /// The name that is shown and configured.
    pub const fn name(self) -> &'static str {
        match self {
            TokenProgram::SplToken => "spl_token",
            TokenProgram::Token2022 => "token_2022",
        }
    }

    pub(crate) fn of(text: &str) -> Option<Self> {
        match text {
            SPL_TOKEN => Some(TokenProgram::SplToken),
            TOKEN_2022 => Some(TokenProgram::Token2022),
            _ => None,
        }
    }

    /// Its address.
    pub const fn key(self) -> [u8; 32] {
        match self {
            TokenProgram::SplToken => SPL_TOKEN_KEY,
            TokenProgram::Token2022 => TOKEN_2022_KEY,
        }
    }

    /// How a mint of it is sent.
    pub const fn route(self, decimals: u8) -> Route {
        Route::Guard { program: Some(Address::Solana(self.key())), decimals }
    }

    pub(crate) fn of_key(key: &[u8; 32]) -> Option<Self> {
        TokenProgram::ALL.into_iter().find(|program| program.key() == *key)
    }
}

/// The owner's associated token account of `mint`: the first of the [`hashes`] that is no point on the curve
/// (`find_program_address`). `None` when all are, which has never been seen.
pub(crate) fn of(owner: &[u8; 32], program: TokenProgram, mint: &[u8; 32]) -> Option<[u8; 32]> {
    hashes(owner, program, mint).find(|hash| !bytes_are_curve_point(hash))
}

/// Whether `account` is that account.
///
/// For the first few hashes it does not check that they are off the curve, which is what costs. To make a token
/// account at a hash on the curve, one would need the key of a point that he could not choose. The hashes before it
/// are not checked either: at any but the right one only the program could sign, and it makes none there.
pub(crate) fn is_of(account: &[u8; 32], owner: &[u8; 32], program: TokenProgram, mint: &[u8; 32]) -> bool {
    hashes(owner, program, mint).take(FIRST_FEW).any(|hash| hash == *account)
        || of(owner, program, mint) == Some(*account)
}

/// The hashes of these, from bump 255 down.
fn hashes(owner: &[u8; 32], program: TokenProgram, mint: &[u8; 32]) -> impl Iterator<Item = [u8; 32]> {
    let seeds = Sha256::new().chain_update(owner).chain_update(program.key()).chain_update(mint);
    let of_bump = move |bump| seeds.clone().chain_update([bump]).chain_update(PROGRAM).chain_update(DERIVED);
    (0..=u8::MAX).rev().map(move |bump| of_bump(bump).finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base58;

    #[test]
    fn the_programs_are_those_of_their_names() {
        assert_eq!(base58::key("ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL"), Some(PROGRAM));
        assert_eq!(base58::key(SPL_TOKEN), Some(SPL_TOKEN_KEY));
        assert_eq!(base58::key(TOKEN_2022), Some(TOKEN_2022_KEY));
        assert_eq!(TokenProgram::of(SPL_TOKEN), Some(TokenProgram::SplToken));
        assert_eq!(TokenProgram::of(TOKEN_2022), Some(TokenProgram::Token2022));
        assert_eq!(TokenProgram::of("11111111111111111111111111111111"), None);
    }
}
