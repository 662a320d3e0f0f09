//! A mint's account: decimals, who may freeze or take, what a transfer costs, and the extensions of Token-2022.
//!
//! The first 82 bytes are the same under both token programs. A mint with extensions is filled up with zeros to the
//! 165 bytes of a token account. Then come the kind of the account and the extensions, each as type, length and value.
//! Offsets and numbers are those of spl-token-2022-interface 3.1.2 (`extension/mod.rs`, `state.rs`). Promises: an
//! account that is not whole, or whose extensions overlap, is an error, never a part of the list. An unknown type is
//! reported by its number and counts as a risk. Of the values, only those are read that say who may
//! take, what is kept of a transfer, and in which state accounts begin.

use landfall_chain::{Address, Terms, TransferFee};

use crate::ata::TokenProgram;

const MINT_BYTES: usize = 82;
/// Where the fields of a mint stand: behind its authority and its supply.
const DECIMALS: usize = 44;
const INITIALIZED: usize = 45;
const FREEZE_AUTHORITY: usize = 46;
const FREEZE_AUTHORITY_KEY: usize = 50;
/// How long a token account is without extensions: a mint with extensions is filled up to here, and its kind follows.
const TOKEN_ACCOUNT_BYTES: usize = 165;
const KIND_MINT: u8 = 1;
/// An account of this length is a multisig, whatever it holds: mints avoid it.
const MULTISIG_BYTES: usize = 355;
/// Nothing is written behind it.
const END: u16 = 0;
const TRANSFER_FEE: u16 = 1;
/// Where the newest fee stands in its extension: behind two authorities, what is withheld and the fee before.
const NEWER_FEE_MAXIMUM: usize = 98;
const NEWER_FEE_POINTS: usize = 106;
const PERMANENT_DELEGATE: u16 = 12;
const DEFAULT_ACCOUNT_STATE: u16 = 6;
const STATE_FROZEN: u8 = 2;
const FROZEN_BY_DEFAULT: &str = "default_account_state_frozen";

/// The extensions that a mint may have:
/// - number and name
/// - whether others than the owner may move, stop, hide or shrink a holding by it
/// - how many bytes it has, where that is always the same
///
/// The numbers between belong to token accounts.
const EXTENSIONS: [(u16, &str, bool, Option<usize>); 19] = [
    (TRANSFER_FEE, "transfer_fee_config", true, Some(108)),
    (3, "mint_close_authority", true, Some(32)),
    (4, "confidential_transfer_mint", true, Some(65)),
    (DEFAULT_ACCOUNT_STATE, "default_account_state", false, Some(1)),
    (9, "non_transferable", true, Some(0)),
    (10, "interest_bearing_config", false, Some(52)),
    (PERMANENT_DELEGATE, "permanent_delegate", true, Some(32)),
    (14, "transfer_hook", true, Some(64)),
    (16, "confidential_transfer_fee_config", true, Some(129)),
    (18, "metadata_pointer", false, Some(64)),
    (19, "token_metadata", false, None),
    (20, "group_pointer", false, Some(64)),
    (21, "token_group", false, Some(80)),
    (22, "group_member_pointer", false, Some(64)),
    (23, "token_group_member", false, Some(72)),
    (24, "confidential_mint_burn", true, Some(196)),
    (25, "scaled_ui_amount", false, Some(56)),
    (26, "pausable", true, Some(33)),
    (28, "permissioned_burn", false, Some(32)),
];

/// Why an account is no mint that can be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MintError {
    #[error("an account of {0} bytes is no mint")]
    Length(usize),
    #[error("the mint is not initialized")]
    NotInitialized,
    #[error("byte {0} of the mint is none that a mint has there")]
    Field(usize),
    #[error("the extension at byte {at} is cut off: {left} bytes are left")]
    CutOff { at: usize, left: usize },
    /// A length that is not the extension's own hides what follows, or makes another of it.
    #[error("extension {number} does not have {length} bytes")]
    Value { number: u16, length: usize },
    #[error("extension {0} stands there twice")]
    Twice(u16),
    #[error("something stands behind the last extension, at byte {0}")]
    Behind(usize),
}

/// What the account of a mint, which `program` keeps, says.
///
/// # Errors
/// It is not whole, or no mint.
pub fn terms(program: TokenProgram, account: &[u8]) -> Result<Terms, MintError> {
    let (mint, behind) = account.split_at_checked(MINT_BYTES).ok_or(MintError::Length(account.len()))?;
    match mint[INITIALIZED] {
        0 => return Err(MintError::NotInitialized),
        1 => {}
        _ => return Err(MintError::Field(INITIALIZED)),
    }
    let freeze_authority = match mint[FREEZE_AUTHORITY..FREEZE_AUTHORITY_KEY] {
        [0, 0, 0, 0] => None,
        [1, 0, 0, 0] => Some(Address::Solana(bytes_at(mint, FREEZE_AUTHORITY_KEY))),
        _ => return Err(MintError::Field(FREEZE_AUTHORITY)),
    };
    let mut terms = Terms {
        decimals: mint[DECIMALS],
        freeze_authority,
        permanent_delegate: None,
        transfer_fee: None,
        extensions: Vec::new(),
        risks: Vec::new(),
    };
    match program {
        _ if behind.is_empty() => {}
        TokenProgram::SplToken => return Err(MintError::Length(account.len())),
        TokenProgram::Token2022 => {
            for (number, value) in entries(account)? {
                let (name, is_risk) = name(number, value)?;
                match number {
                    TRANSFER_FEE => terms.transfer_fee = Some(newer_fee(value)),
                    PERMANENT_DELEGATE => terms.permanent_delegate = somebody(value),
                    _ => {}
                }
                if is_risk {
                    terms.risks.push(name.clone());
                }
                terms.extensions.push(name);
            }
        }
    }
    Ok(terms)
}

/// An extension's name, and whether it is a risk.
fn name(number: u16, value: &[u8]) -> Result<(String, bool), MintError> {
    let Some((_, name, is_risk, bytes)) = EXTENSIONS.iter().find(|(known, ..)| *known == number) else {
        return Ok((format!("unknown_{number}"), true));
    };
    if bytes.is_some_and(|bytes| bytes != value.len()) {
        return Err(MintError::Value { number, length: value.len() });
    }
    if number == DEFAULT_ACCOUNT_STATE && value == [STATE_FROZEN] {
        return Ok((FROZEN_BY_DEFAULT.to_owned(), true));
    }
    Ok(((*name).to_owned(), *is_risk))
}

/// The fee that was set last.
fn newer_fee(value: &[u8]) -> TransferFee {
    TransferFee {
        basis_points: u16::from_le_bytes(bytes_at(value, NEWER_FEE_POINTS)),
        maximum: u64::from_le_bytes(bytes_at(value, NEWER_FEE_MAXIMUM)),
    }
}

/// An account that may be nobody's: 32 zeros.
fn somebody(value: &[u8]) -> Option<Address> {
    Some(bytes_at(value, 0)).filter(|key| *key != [0; 32]).map(Address::Solana)
}

/// `N` bytes of what was found to be long enough; `name` compares the lengths of values.
fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; N])
}

/// The extensions of an account that is longer than a mint: numbers and values, in their order.
fn entries(account: &[u8]) -> Result<Vec<(u16, &[u8])>, MintError> {
    let Some((kind, mut rest)) = account.get(TOKEN_ACCOUNT_BYTES..).and_then(<[u8]>::split_first) else {
        return Err(MintError::Length(account.len()));
    };
    if account.len() == MULTISIG_BYTES {
        return Err(MintError::Length(account.len()));
    }
    if let Some(at) = account[MINT_BYTES..TOKEN_ACCOUNT_BYTES].iter().position(|byte| *byte != 0) {
        return Err(MintError::Field(MINT_BYTES + at));
    }
    if *kind != KIND_MINT {
        return Err(MintError::Field(TOKEN_ACCOUNT_BYTES));
    }
    let mut entries: Vec<(u16, &[u8])> = Vec::new();
    while !rest.is_empty() {
        let at = account.len() - rest.len();
        let cut_off = MintError::CutOff { at, left: rest.len() };
        let (number, behind) = two_bytes(rest).ok_or(cut_off)?;
        if number == END {
            let stray = behind.iter().position(|byte| *byte != 0);
            return stray.map_or(Ok(entries), |stray| Err(MintError::Behind(at + 2 + stray)));
        }
        let (length, behind) = two_bytes(behind).ok_or(cut_off)?;
        let (value, behind) = behind.split_at_checked(usize::from(length)).ok_or(cut_off)?;
        if entries.iter().any(|(known, _)| *known == number) {
            return Err(MintError::Twice(number));
        }
        entries.push((number, value));
        rest = behind;
    }
    Ok(entries)
}

/// Two bytes, the lower one first, and what stands behind them.
fn two_bytes(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (number, behind) = bytes.split_first_chunk()?;
    Some((u16::from_le_bytes(*number), behind))
}
