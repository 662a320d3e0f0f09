//! What a mint's account says: made accounts, accounts that spl-token-2022-interface wrote itself, and bytes that are none.

use landfall_chain::{Address, Terms, TransferFee};
use landfall_solana::TokenProgram::{SplToken, Token2022};
use landfall_solana::mint::{MintError, terms};
use proptest::prelude::*;
use solana_sdk::pubkey::Pubkey;
use spl_token_2022_interface::extension::confidential_transfer::ConfidentialTransferMint;
use spl_token_2022_interface::extension::default_account_state::DefaultAccountState;
use spl_token_2022_interface::extension::interest_bearing_mint::InterestBearingConfig;
use spl_token_2022_interface::extension::metadata_pointer::MetadataPointer;
use spl_token_2022_interface::extension::mint_close_authority::MintCloseAuthority;
use spl_token_2022_interface::extension::non_transferable::NonTransferable;
use spl_token_2022_interface::extension::pausable::PausableConfig;
use spl_token_2022_interface::extension::permanent_delegate::PermanentDelegate;
use spl_token_2022_interface::extension::scaled_ui_amount::ScaledUiAmountConfig;
use spl_token_2022_interface::extension::transfer_fee::TransferFeeConfig;
use spl_token_2022_interface::extension::transfer_hook::TransferHook;
use spl_token_2022_interface::extension::{
    AccountType, BaseStateWithExtensionsMut, ExtensionType, StateWithExtensionsMut,
};
use spl_token_2022_interface::state::Mint;

/// 82 bytes: six decimals, initialized, and somebody who may freeze, or nobody.
fn bare(is_freezable: bool) -> Vec<u8> {
    let mut account = vec![0; 82];
    (account[44], account[45], account[46]) = (6, 1, u8::from(is_freezable));
    account[50..].fill(3);
    account
}

/// With these extensions, and what stands behind them.
fn made(extensions: &[(u16, &[u8])], behind: &[u8]) -> Vec<u8> {
    let mut account = bare(false);
    account.resize(165, 0);
    account.push(1);
    for (number, value) in extensions {
        account.extend(number.to_le_bytes());
        account.extend(u16::try_from(value.len()).unwrap().to_le_bytes());
        account.extend_from_slice(value);
    }
    account.extend_from_slice(behind);
    account
}

fn reported(extensions: &[&str], risks: &[&str]) -> Terms {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Terms {
        decimals: 6,
        freeze_authority: None,
        permanent_delegate: None,
        transfer_fee: None,
        extensions: owned(extensions),
        risks: owned(risks),
    }
}

#[test]
fn s12_extensions_are_reported_in_their_order_and_the_risks_among_them() {
    let two = [(12, [7; 32].as_slice()), (18, &[0; 64])];
    let cases: [(Vec<u8>, Terms); 10] = [
        (bare(false), reported(&[], &[])),
        (made(&[], &[]), reported(&[], &[])),
        (
            made(&two, &[]),
            Terms {
                permanent_delegate: Some(Address::Solana([7; 32])),
                ..reported(&["permanent_delegate", "metadata_pointer"], &["permanent_delegate"])
            },
        ),
        // Nobody is one, and it stays a risk: who may set it is not looked at.
        (made(&[(12, &[0; 32])], &[]), reported(&["permanent_delegate"], &["permanent_delegate"])),
        (made(&[(6, &[1])], &[]), reported(&["default_account_state"], &[])),
        (made(&[(6, &[2])], &[]), reported(&["default_account_state_frozen"], &["default_account_state_frozen"])),
        (made(&[(9, &[])], &[]), reported(&["non_transferable"], &["non_transferable"])),
        // A kind that this version does not know may be anything, and the next one is reported all the same.
        (
            made(&[(4_711, &[1, 2]), (26, &[0; 33])], &[]),
            reported(&["unknown_4711", "pausable"], &["unknown_4711", "pausable"]),
        ),
        // Only token accounts have it.
        (made(&[(2, &[0; 8])], &[]), reported(&["unknown_2"], &["unknown_2"])),
        (made(&[(3, &[0; 32])], &[0; 37]), reported(&["mint_close_authority"], &["mint_close_authority"])),
    ];
    for (account, expected) in cases {
        assert_eq!(terms(Token2022, &account), Ok(expected), "{account:?}");
    }
    for program in [SplToken, Token2022] {
        assert_eq!(
            terms(program, &bare(true)),
            Ok(Terms { freeze_authority: Some(Address::Solana([3; 32])), ..reported(&[], &[]) })
        );
    }
}

#[test]
fn s12_an_account_that_is_not_whole_is_an_error_and_never_a_part_of_the_list() {
    let changed = |account: Vec<u8>, at: usize, byte: u8| {
        let mut account = account;
        account[at] = byte;
        account
    };
    let good = made(&[(12, &[7; 32]), (26, &[0; 33])], &[]);
    let long = good.len();
    let cases = [
        (Vec::new(), MintError::Length(0)),
        (vec![0; 81], MintError::Length(81)),
        (vec![0; 82], MintError::NotInitialized),
        (changed(bare(false), 45, 2), MintError::Field(45)),
        (changed(bare(false), 46, 2), MintError::Field(46)),
        (changed(bare(false), 49, 1), MintError::Field(46)),
        (good[..83].to_vec(), MintError::Length(83)),
        (good[..165].to_vec(), MintError::Length(165)),
        (changed(good.clone(), 100, 9), MintError::Field(100)),
        // A token account, and one of no kind.
        (changed(good.clone(), 165, 2), MintError::Field(165)),
        (changed(good.clone(), 165, 0), MintError::Field(165)),
        (made(&[(19, &[0; 185])], &[]), MintError::Length(355)),
        (good[..167].to_vec(), MintError::CutOff { at: 166, left: 1 }),
        (good[..169].to_vec(), MintError::CutOff { at: 166, left: 3 }),
        (good[..long - 1].to_vec(), MintError::CutOff { at: 202, left: 36 }),
        // One byte too many or too few is called its own: the next begins within it, or behind its begin.
        (changed(good.clone(), 168, 33), MintError::Value { number: 12, length: 33 }),
        (changed(good.clone(), 168, 31), MintError::CutOff { at: 201, left: 38 }),
        (made(&[(12, &[7; 32]), (12, &[7; 32])], &[]), MintError::Twice(12)),
        (made(&[(12, &[7; 32])], &[0, 0, 0, 5]), MintError::Behind(205)),
    ];
    for (account, error) in cases {
        assert_eq!(terms(Token2022, &account), Err(error), "{account:?}");
    }
    assert_eq!(terms(SplToken, &good), Err(MintError::Length(long)), "the older program knows no extensions");
    // However it is cut, it is a mint without extensions, with the first alone, whole, or an error.
    let whole: Vec<usize> = (0..=long).filter(|end| terms(Token2022, &good[..*end]).is_ok()).collect();
    assert_eq!(whole, [82, 166, 202, long]);
}

/// `TransferFeeConfig` becomes `transfer_fee_config`.
fn snake(name: &str) -> String {
    let mut text = String::new();
    for character in name.chars() {
        if character.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.extend(character.to_lowercase());
    }
    text
}

#[test]
fn the_numbers_names_and_lengths_are_those_of_the_programs_own_interface() {
    let mut of_mints = 0;
    for number in 1..=u16::MAX {
        let known = ExtensionType::try_from(number).ok();
        let of_mint = known.filter(|known| known.get_account_type() == AccountType::Mint);
        let name = of_mint.map_or_else(|| format!("unknown_{number}"), |known| snake(&format!("{known:?}")));
        // What the interface does not know the length of is as long as it likes.
        let whole = of_mint.and_then(|known| ExtensionType::try_calculate_account_len::<Mint>(&[known]).ok());
        let value = vec![0; whole.map_or(3, |whole| whole - 166 - 4)];
        let reported = terms(Token2022, &made(&[(number, &value)], &[])).unwrap();
        assert_eq!(reported.extensions, [name]);
        let longer = terms(Token2022, &made(&[(number, &[value.as_slice(), &[0]].concat())], &[]));
        let expected = MintError::Value { number, length: value.len() + 1 };
        assert_eq!(longer.err(), whole.map(|_| expected), "{number}");
        of_mints += usize::from(of_mint.is_some());
    }
    assert_eq!(of_mints, 19);
}

macro_rules! written {
    ($($extension:ty),*) => {{
        let types = [$(<$extension as spl_token_2022_interface::extension::Extension>::TYPE),*];
        let mut account = vec![0; ExtensionType::try_calculate_account_len::<Mint>(&types).unwrap()];
        let mut state = StateWithExtensionsMut::<Mint>::unpack_uninitialized(&mut account).unwrap();
        $(state.init_extension::<$extension>(true).unwrap();)*
        state.base = Mint { decimals: 6, is_initialized: true, freeze_authority: Some([3; 32].into()).into(), ..Mint::default() };
        state.pack_base();
        state.init_account_type().unwrap();
        (types.map(|kind| snake(&format!("{kind:?}"))), account)
    }};
}

#[test]
fn mints_that_the_programs_own_interface_wrote_are_read_as_it_wrote_them() {
    // As the dollar of a payment company has them, without the metadata; then the others.
    let (like_a_dollar, account) = written!(
        MintCloseAuthority,
        PermanentDelegate,
        TransferFeeConfig,
        ConfidentialTransferMint,
        TransferHook,
        MetadataPointer
    );
    let reported = terms(Token2022, &account).unwrap();
    assert_eq!((reported.decimals, reported.freeze_authority), (6, Some(Address::Solana([3; 32]))));
    assert_eq!(
        (reported.permanent_delegate, reported.transfer_fee),
        (None, Some(TransferFee { basis_points: 0, maximum: 0 }))
    );
    assert_eq!(reported.extensions, like_a_dollar);
    assert_eq!(reported.risks, like_a_dollar[..5]);
    let (others, account) =
        written!(DefaultAccountState, NonTransferable, InterestBearingConfig, PausableConfig, ScaledUiAmountConfig);
    let reported = terms(Token2022, &account).unwrap();
    assert_eq!(reported.extensions, others);
    assert_eq!(reported.risks, ["non_transferable", "pausable"]);
}

#[test]
fn s12_of_a_fee_the_one_that_was_set_last_is_reported_and_of_a_delegate_who_it_is() {
    let types = [ExtensionType::TransferFeeConfig, ExtensionType::PermanentDelegate];
    let mut account = vec![0; ExtensionType::try_calculate_account_len::<Mint>(&types).unwrap()];
    let mut state = StateWithExtensionsMut::<Mint>::unpack_uninitialized(&mut account).unwrap();
    let fee = state.init_extension::<TransferFeeConfig>(true).unwrap();
    (fee.older_transfer_fee.transfer_fee_basis_points, fee.older_transfer_fee.maximum_fee) =
        (1_u16.into(), 2_u64.into());
    (fee.newer_transfer_fee.transfer_fee_basis_points, fee.newer_transfer_fee.maximum_fee) =
        (300_u16.into(), 70_000_u64.into());
    (fee.newer_transfer_fee.epoch, fee.withheld_amount) = (u64::MAX.into(), u64::MAX.into());
    state.init_extension::<PermanentDelegate>(true).unwrap().delegate = Pubkey::from([8; 32]).into();
    state.base = Mint { decimals: 6, is_initialized: true, ..Mint::default() };
    state.pack_base();
    state.init_account_type().unwrap();
    let reported = terms(Token2022, &account).unwrap();
    assert_eq!(reported.transfer_fee, Some(TransferFee { basis_points: 300, maximum: 70_000 }));
    assert_eq!(reported.permanent_delegate, Some(Address::Solana([8; 32])));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        for program in [SplToken, Token2022] {
            drop(terms(program, &bytes));
            // The same bytes where extensions stand.
            drop(terms(program, &made(&[], &bytes)));
        }
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else(
        lengths in proptest::collection::btree_map(1_000_u16..2_000, 0..90_usize, 0..12),
        cut in any::<proptest::sample::Index>(),
    ) {
        let values: Vec<(u16, Vec<u8>)> = lengths.iter().map(|(number, length)| (*number, vec![0xff; *length])).collect();
        let entries: Vec<(u16, &[u8])> = values.iter().map(|(number, value)| (*number, value.as_slice())).collect();
        let account = made(&entries, &[]);
        prop_assume!(account.len() != 355);
        let names: Vec<String> = lengths.keys().map(|number| format!("unknown_{number}")).collect();
        prop_assert_eq!(terms(Token2022, &account).unwrap().extensions, names.clone());
        // Cut anywhere: the front of the list where an extension ends there, else nothing.
        let cut = &account[..166 + cut.index(account.len() - 165)];
        if let Ok(reported) = terms(Token2022, cut) {
            let ends: usize = entries[..reported.extensions.len()].iter().map(|(_, value)| 4 + value.len()).sum();
            prop_assert_eq!(cut.len(), 166 + ends);
            prop_assert_eq!(&reported.extensions[..], &names[..reported.extensions.len()]);
        }
    }
}
