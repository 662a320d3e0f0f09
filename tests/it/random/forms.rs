//! Amounts as text, ids and addresses as bytes and text: what is accepted is written back as it was, and noise is an
//! error and never a panic.
//!
//! Random inputs, a hundred times as many in the full run; `LANDFALL_SEED` repeats them.

use std::cell::RefCell;
use std::collections::BTreeMap;

use landfall::amount::{from_decimal, to_decimal};
use landfall_chain::{Address, AssetId, Family, TxId, TxLife, U256};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};

use crate::harness::lanes::{full, given_seed};

const BOUNDED: u32 = 4_000;
const FULL: u32 = 400_000;

/// Puts inputs to `check`, which says what became of each, and counts that.
fn fuzz<S: Strategy>(
    what: &str,
    strategy: &S,
    check: impl Fn(S::Value) -> Result<&'static str, TestCaseError>,
) -> BTreeMap<&'static str, u64> {
    let (mode, cases) = if full() { ("full", FULL) } else { ("bounded", BOUNDED) };
    let seed = given_seed();
    println!("{mode}: {cases} inputs of {what} with LANDFALL_SEED={seed}");
    let config = Config { cases, failure_persistence: None, rng_seed: RngSeed::Fixed(seed), ..Config::default() };
    let tally = RefCell::new(BTreeMap::new());
    let ran = TestRunner::new(config).run(strategy, |input| {
        let outcome = check(input)?;
        *tally.borrow_mut().entry(outcome).or_default() += 1;
        Ok(())
    });
    if let Err(failure) = ran {
        panic!("{what}, LANDFALL_SEED={seed}: {failure}");
    }
    let tally = tally.into_inner();
    println!("{mode}: {cases} inputs of {what}: {tally:?}");
    tally
}

/// Any number of bits, and the neighbours of the powers of ten.
fn amounts() -> impl Strategy<Value = U256> {
    let sized = (any::<[u8; 32]>(), 0..256_usize).prop_map(|(bytes, shift)| U256::from_be_bytes(bytes) >> shift);
    let tens = (0..77_u64, 0..3_u64)
        .prop_map(|(power, offset)| U256::from(10).pow(U256::from(power)) + U256::from(offset) - U256::ONE);
    prop_oneof![sized, tens, Just(U256::MAX)]
}

/// Exactly one text of each amount: digits, at most one point with digits on both sides, no zero that says nothing.
fn is_canonical(text: &str) -> bool {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "1"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    digits(whole) && digits(fraction) && (whole == "0" || !whole.starts_with('0')) && !fraction.ends_with('0')
}

/// The text without the zeros that say nothing, when it is a number with at most `decimals` decimals at all.
fn canonical(text: &str, decimals: u8) -> Option<String> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
    let (kept, fraction_kept) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    if !digits(whole) || !digits(fraction) || fraction_kept.len() > usize::from(decimals) {
        return None;
    }
    let kept = if kept.is_empty() { "0" } else { kept };
    Some(if fraction_kept.is_empty() { kept.to_owned() } else { format!("{kept}.{fraction_kept}") })
}

#[test]
fn an_amount_survives_its_text() {
    fuzz("amounts", &(amounts(), any::<u8>()), |(amount, decimals)| {
        let text = to_decimal(amount, decimals);
        prop_assert!(is_canonical(&text), "{}", text);
        prop_assert_eq!(from_decimal(&text, decimals), Ok(amount));
        // An independent reading: the digits without the point are the base units, with the zeros that were left out.
        let fraction = text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        let digits = format!("{}{}", text.replace('.', ""), "0".repeat(usize::from(decimals) - fraction));
        let units = amount.to_string();
        prop_assert_eq!(digits.trim_start_matches('0'), units.trim_start_matches('0'));
        Ok("survived")
    });
}

#[test]
fn a_text_is_an_amount_or_an_error() {
    let text = prop_oneof![
        4 => "[0-9]{0,30}(\\.[0-9]{0,30})?",
        1 => "0{0,90}[0-9]{70,80}(\\.0{0,90})?",
        1 => "[0-9]{0,3}[-+eE_ ,.x\u{0}٣]{0,2}[0-9]{0,3}",
        1 => ".{0,40}",
        1 => (amounts(), any::<u8>()).prop_map(|(amount, decimals)| to_decimal(amount, decimals)),
    ];
    let tally = fuzz("texts of amounts", &(text, 0..40_u8), |(text, decimals)| {
        let expected = canonical(&text, decimals);
        match from_decimal(&text, decimals) {
            Ok(amount) => {
                prop_assert_eq!(Some(to_decimal(amount, decimals)), expected);
                Ok("read")
            }
            Err(_) => {
                // A number that is refused is too large: more base units than a word holds.
                if let Some(number) = expected {
                    let fraction = number.split_once('.').map_or(0, |(_, fraction)| fraction.len());
                    let zeros = "0".repeat(usize::from(decimals) - fraction);
                    let units = format!("{}{zeros}", number.replace('.', ""));
                    let (units, most) = (units.trim_start_matches('0').to_owned(), U256::MAX.to_string());
                    prop_assert!((units.len(), &units) > (most.len(), &most), "{}", text);
                    return Ok("too large");
                }
                Ok("no number")
            }
        }
    });
    assert!(tally.values().all(|count| *count > 100) && tally.len() == 3, "{tally:?}");
}

/// Of all lengths, mostly those that stored forms have, mostly with one of their tags.
fn stored() -> impl Strategy<Value = Vec<u8>> {
    const LENGTHS: [usize; 10] = [0, 1, 9, 20, 21, 29, 32, 33, 41, 64];
    let length = prop_oneof![4 => proptest::sample::select(&LENGTHS), 1 => 0..100_usize];
    let tag = prop_oneof![4 => 0..4_u8, 1 => any::<u8>()];
    (length.prop_flat_map(|length| vec(any::<u8>(), length)), tag).prop_map(|(mut bytes, tag)| {
        if let Some(first) = bytes.first_mut() {
            *first = tag;
        }
        bytes
    })
}

#[test]
fn stored_bytes_are_written_back_or_refused() {
    let tally = fuzz("stored bytes", &stored(), |bytes| {
        let asset = AssetId::from_bytes(&bytes).map(AssetId::to_bytes);
        let life = TxLife::from_bytes(&bytes).map(TxLife::to_bytes);
        let tx = TxId::from_bytes(&bytes).map(|id| id.as_bytes().to_vec());
        let address = Address::from_bytes(&bytes).map(|address| address.as_bytes().to_vec());
        let all = [asset.ok(), life.ok(), tx.ok(), address.ok()];
        for written in all.iter().flatten() {
            prop_assert_eq!(written, &bytes);
        }
        // Which lengths there are, and of those with a tag which tags.
        let tag = bytes.first().copied();
        let expected = [
            matches!((bytes.len(), tag), (1, Some(0)) | (21, Some(1)) | (33, Some(2))),
            matches!((bytes.len(), tag), (1, Some(2)) | (29 | 41, Some(1))),
            matches!(bytes.len(), 32 | 64),
            matches!(bytes.len(), 20 | 32),
        ];
        prop_assert_eq!(all.map(|written| written.is_some()), expected);
        Ok(if expected.contains(&true) { "read" } else { "refused" })
    });
    assert!(tally.values().all(|count| *count > 100) && tally.len() == 2, "{tally:?}");
}

#[test]
fn a_text_is_an_address_or_an_error() {
    let evm = vec(any::<u8>(), 20).prop_map(|bytes| Address::from_bytes(&bytes).unwrap().to_string());
    let solana = vec(any::<u8>(), 32).prop_map(|bytes| Address::from_bytes(&bytes).unwrap().to_string());
    let text = prop_oneof![
        evm.clone(),
        evm.clone().prop_map(|text| text.to_lowercase()),
        evm.prop_map(|text| format!("0x{}", text[2..].to_uppercase())),
        solana,
        "(0x|0X|0x0x|)[0-9a-fA-Fg]{38,42}",
        "1{0,4}[1-9A-HJ-NP-Za-km-z]{30,46}",
        ".{0,50}",
    ];
    let tally = fuzz("texts of addresses", &text, |text| {
        let evm = Address::parse(Family::Evm, &text);
        let solana = Address::parse(Family::Solana, &text);
        if let Ok(address) = evm {
            prop_assert!(matches!(address, Address::Evm(_)));
            prop_assert!(address.to_string().eq_ignore_ascii_case(&text), "{}", text);
            let mixed = text[2..].to_lowercase() != text[2..] && text[2..].to_uppercase() != text[2..];
            prop_assert!(!mixed || address.to_string() == text, "{}", text);
        }
        if let Ok(address) = solana {
            prop_assert!(matches!(address, Address::Solana(_)));
            prop_assert_eq!(address.to_string(), text);
        }
        Ok(if evm.is_ok() || solana.is_ok() { "read" } else { "refused" })
    });
    assert!(tally.values().all(|count| *count > 100) && tally.len() == 2, "{tally:?}");
}
