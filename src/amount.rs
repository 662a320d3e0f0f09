//! Amounts: integers in base units inside, canonical decimals of the major unit at the edges.
//!
//! Canonical means: no exponent, no sign, no leading zeros but one before the point, no trailing zeros behind it,
//! no point without digits behind it. Every amount has exactly one such text, and reading is exact or refused.

use landfall_chain::U256;

/// Why a text is no amount of an asset.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum AmountError {
    #[error("{0:?} is no decimal number: expected digits, and at most one point with digits on both sides")]
    Malformed(String),
    #[error("{text:?} has more than the {decimals} decimals of its asset")]
    TooPrecise { text: String, decimals: u8 },
    #[error("{0:?} is more than 2^256 - 1 base units")]
    TooLarge(String),
}

/// Why a text is no amount that can be paid.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PayableError {
    #[error(transparent)]
    Amount(#[from] AmountError),
    #[error("{0:?} cannot be paid: expected more than 0, without a 0 in front of other digits")]
    NotPayable(String),
}

/// The canonical decimal of `base_units`: 1500000 with 6 decimals is `1.5`.
pub fn to_decimal(base_units: U256, decimals: u8) -> String {
    let digits = base_units.to_string();
    let decimals = usize::from(decimals);
    let padded = format!("{digits:0>width$}", width = decimals + 1);
    let (whole, fraction) = padded.split_at(padded.len() - decimals);
    match fraction.trim_end_matches('0') {
        "" => whole.to_owned(),
        fraction => format!("{whole}.{fraction}"),
    }
}

/// Reads a decimal of the major unit into base units. Leading and trailing zeros are accepted.
///
/// # Errors
/// Anything but digits with at most one point, more decimals than the asset has, more than 2^256 - 1 base units.
pub fn from_decimal(text: &str, decimals: u8) -> Result<U256, AmountError> {
    let malformed = || AmountError::Malformed(text.to_owned());
    let (whole, fraction) = match text.split_once('.') {
        Some((whole, fraction)) if !fraction.is_empty() => (whole, fraction),
        Some(_) => return Err(malformed()),
        None => (text, ""),
    };
    if whole.is_empty() || !text.bytes().all(|b| b.is_ascii_digit() || b == b'.') || fraction.contains('.') {
        return Err(malformed());
    }
    let fraction = fraction.trim_end_matches('0');
    let decimals_given = fraction.len();
    if decimals_given > usize::from(decimals) {
        return Err(AmountError::TooPrecise { text: text.to_owned(), decimals });
    }
    let digits = format!("{whole}{fraction:0<width$}", width = usize::from(decimals));
    let digits = digits.trim_start_matches('0');
    // 2^256 - 1 has 78 digits; the length is checked first so that a long text costs nothing.
    if digits.len() > 78 {
        return Err(AmountError::TooLarge(text.to_owned()));
    }
    if digits.is_empty() {
        return Ok(U256::ZERO);
    }
    U256::from_str_radix(digits, 10).map_err(|_| AmountError::TooLarge(text.to_owned()))
}

/// As [`from_decimal`], for what a client wants to pay: more than 0, in digits that nobody reads two ways.
///
/// # Errors
/// As there; 0; a leading zero; more decimals than the asset has, even if they are zeros.
pub fn payable(text: &str, decimals: u8) -> Result<U256, PayableError> {
    let amount = from_decimal(text, decimals)?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    if fraction.len() > usize::from(decimals) {
        return Err(AmountError::TooPrecise { text: text.to_owned(), decimals }.into());
    }
    if amount.is_zero() || (whole.len() > 1 && whole.starts_with('0')) {
        return Err(PayableError::NotPayable(text.to_owned()));
    }
    Ok(amount)
}
