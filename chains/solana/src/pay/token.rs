//! The instructions that pay: SOL by the system program; a token by `transferChecked` to the recipient's associated
//! account, which is made first if that was decided. Also which mints are not sent.

use landfall_chain::{Address, AssetId, GuardTerms, Intent, Route, Terms};
use solana_sdk::instruction::Instruction;
use solana_sdk::pubkey::Pubkey;

use crate::ata::{self, TokenProgram};
use crate::pay::guard::{SYSTEM, readonly, signer, writable};
use crate::pay::{PayError, solana};

/// `SystemInstruction::Transfer` (solana-system-interface `instruction.rs`).
const TRANSFER: u32 = 2;
/// `TokenInstruction::TransferChecked` of both token programs.
const TRANSFER_CHECKED: u8 = 12;
/// `MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr`
const MEMO: Pubkey = Pubkey::new_from_array([
    5, 74, 83, 90, 153, 41, 33, 6, 77, 36, 232, 113, 96, 218, 56, 124, 124, 53, 181, 221, 188, 146, 187, 129, 228, 31,
    168, 64, 65, 5, 68, 141,
]);
/// `AssociatedTokenAccountInstruction::CreateIdempotent`.
const CREATE_IDEMPOTENT: u8 = 1;

/// The extensions of a mint with which it is sent, and what arrives is what was sent. With any other one, and with one that
/// is not known, it is not.
const SENDABLE: [&str; 15] = [
    "mint_close_authority",
    "confidential_transfer_mint",
    "default_account_state",
    "interest_bearing_config",
    "permanent_delegate",
    "confidential_transfer_fee_config",
    "metadata_pointer",
    "token_metadata",
    "group_pointer",
    "token_group",
    "group_member_pointer",
    "token_group_member",
    "confidential_mint_burn",
    "scaled_ui_amount",
    "permissioned_burn",
];
const TRANSFER_FEE: &str = "transfer_fee_config";

/// The instructions that pay what `intent` says. Only with `makes_account` is the recipient's account made where it is
/// missing, and `sponsor` pays for it. With `memo` the transfer's id stands right in front of what pays.
pub(super) fn payment(sponsor: &[u8; 32], intent: &Intent, terms: &GuardTerms) -> Result<Vec<Instruction>, PayError> {
    let GuardTerms { memo, makes_account, .. } = *terms;
    let Intent { payer, destination, amount, .. } = intent;
    let Route::Guard { decimals, .. } = &intent.route else { return Err(PayError::OtherRoute(intent.route.name())) };
    let (from, to) = (solana(payer)?, solana(destination)?);
    let amount = u64::try_from(*amount).map_err(|_| PayError::Amount(*amount))?;
    let Some((mint, program)) = token(intent)? else {
        if makes_account {
            return Err(PayError::Message("SOL needs no account of a token".to_owned()));
        }
        let data = [&TRANSFER.to_le_bytes()[..], &amount.to_le_bytes()].concat();
        return Ok(vec![Instruction { program_id: SYSTEM, accounts: vec![signer(&from, true), writable(&to)], data }]);
    };
    let [source, target] = accounts(intent, &mint, program)?;
    let keeper = program.key();
    let named = [readonly(&to), readonly(&mint), readonly(&SYSTEM.to_bytes()), readonly(&keeper)];
    let make = makes_account.then(|| Instruction {
        program_id: Pubkey::new_from_array(ata::PROGRAM),
        accounts: [signer(sponsor, true), writable(&target)].into_iter().chain(named).collect(),
        data: vec![CREATE_IDEMPOTENT],
    });
    let pay = Instruction {
        program_id: Pubkey::new_from_array(keeper),
        accounts: vec![writable(&source), readonly(&mint), writable(&target), signer(&from, false)],
        data: [&[TRANSFER_CHECKED][..], &amount.to_le_bytes(), &[*decimals]].concat(),
    };
    let memo = memo.then(|| Instruction { program_id: MEMO, accounts: Vec::new(), data: id_text(&intent.transfer_id) });
    Ok([make, memo, Some(pay)].into_iter().flatten().collect())
}

/// The transfer's id as the API shows it: a UUID with hyphens.
fn id_text(id: &[u8; 16]) -> Vec<u8> {
    let mut text = Vec::with_capacity(36);
    for (at, byte) in id.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push(b'-');
        }
        text.extend(format!("{byte:02x}").bytes());
    }
    text
}

/// The mint of an intent and the program that keeps it; `None` of the native currency.
pub(super) fn token(intent: &Intent) -> Result<Option<([u8; 32], TokenProgram)>, PayError> {
    let Route::Guard { program, .. } = &intent.route else { return Err(PayError::OtherRoute(intent.route.name())) };
    let wrong = || PayError::Program(intent.asset);
    match (&intent.asset, program) {
        (AssetId::Native, None) => Ok(None),
        (AssetId::Token(mint), Some(Address::Solana(program))) => {
            Ok(Some((solana(mint)?, TokenProgram::of_key(program).ok_or_else(wrong)?)))
        }
        (AssetId::Native, Some(_)) | (AssetId::Token(_), None | Some(Address::Evm(_))) => Err(wrong()),
    }
}

/// The associated accounts of payer and recipient.
pub(super) fn accounts(intent: &Intent, mint: &[u8; 32], program: TokenProgram) -> Result<[[u8; 32]; 2], PayError> {
    let of = |owner: &Address| {
        let no_account = PayError::NoAccount { owner: *owner, asset: intent.asset };
        ata::of(&solana(owner)?, program, mint).ok_or(no_account)
    };
    Ok([of(&intent.payer)?, of(&intent.destination)?])
}

/// Why a mint with these terms is not sent; `None` where it is.
pub(super) fn unsendable(terms: &Terms, decimals: u8) -> Option<String> {
    if terms.decimals != decimals {
        return Some(format!("it has {} decimals, and is listed with {decimals}", terms.decimals));
    }
    let keeps = terms.transfer_fee.is_some_and(|fee| fee.basis_points > 0 && fee.maximum > 0);
    let not_sent = |name: &&String| !SENDABLE.contains(&name.as_str()) && (name.as_str() != TRANSFER_FEE || keeps);
    terms.extensions.iter().find(not_sent).map(|name| format!("it has the extension {name}"))
}

#[cfg(test)]
mod tests {
    use landfall_chain::TransferFee;

    use super::*;
    use crate::pay::guard::tests::{MINT, intent, terms};

    #[test]
    fn sol_moves_by_the_system_program_and_tokens_to_the_associated_account() {
        let made = GuardTerms { makes_account: true, ..terms() };
        let sol = payment(&[1; 32], &intent([9; 32], false), &terms()).unwrap();
        let [pay] = sol.as_slice() else { panic!("{sol:?}") };
        assert_eq!((pay.program_id, pay.data.as_slice()), (SYSTEM, &[2, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0][..]));
        let token = payment(&[1; 32], &intent([9; 32], true), &made).unwrap();
        let [make, pay] = token.as_slice() else { panic!("{token:?}") };
        let [source, target] = [[9; 32], [2; 32]].map(|owner| ata::of(&owner, TokenProgram::Token2022, &MINT).unwrap());
        assert_eq!((make.data.as_slice(), make.accounts[1].pubkey.to_bytes()), (&[1][..], target));
        assert_eq!(pay.program_id.to_bytes(), TokenProgram::Token2022.key());
        assert_eq!(pay.data, [12, 5, 0, 0, 0, 0, 0, 0, 0, 6]);
        let named: Vec<[u8; 32]> = pay.accounts.iter().map(|account| account.pubkey.to_bytes()).collect();
        assert_eq!(named, [source, MINT, target, [9; 32]]);
        let there = payment(&[1; 32], &intent([9; 32], true), &terms()).unwrap();
        assert_eq!(there, std::slice::from_ref(pay), "an account that stood is not made again");
        let nothing = payment(&[1; 32], &intent([9; 32], false), &made).unwrap_err();
        assert_eq!(nothing, PayError::Message("SOL needs no account of a token".to_owned()));
    }

    #[test]
    fn a_memo_is_the_id_of_the_transfer_right_in_front_of_what_pays() {
        assert_eq!(MEMO.to_string(), "MemoSq4gqABAXKb96qnH8TysNcWxMyWCqXgDLGmfcHr");
        let of = |memo| {
            let terms = GuardTerms { memo, makes_account: true, ..terms() };
            payment(&[1; 32], &intent([9; 32], true), &terms).unwrap()
        };
        let (without, with) = (of(false), of(true));
        let [make, memo, pay] = with.as_slice() else { panic!("{with:?}") };
        assert_eq!([make, pay], [&without[0], &without[1]]);
        assert_eq!((memo.program_id, memo.accounts.len()), (MEMO, 0));
        assert_eq!(memo.data, b"bac872c0-9656-8527-b18f-fc8f02a10278");
    }

    #[test]
    fn a_mint_that_may_deliver_less_or_nothing_is_not_sent() {
        let of = |names: &[&str]| Terms {
            decimals: 6,
            freeze_authority: None,
            permanent_delegate: None,
            transfer_fee: None,
            extensions: names.iter().map(|name| (*name).to_owned()).collect(),
            risks: Vec::new(),
        };
        assert_eq!(unsendable(&of(&[]), 6), None);
        assert_eq!(unsendable(&of(&SENDABLE), 6), None);
        assert_eq!(unsendable(&of(&[]), 9).unwrap(), "it has 6 decimals, and is listed with 9");
        for name in ["transfer_hook", "pausable", "non_transferable", "default_account_state_frozen", "unknown_99"] {
            assert_eq!(unsendable(&of(&["token_metadata", name]), 6), Some(format!("it has the extension {name}")));
        }
        let with_fee = |basis_points| {
            let transfer_fee = Some(TransferFee { basis_points, maximum: 5 });
            unsendable(&Terms { transfer_fee, ..of(&[TRANSFER_FEE]) }, 6)
        };
        assert_eq!((with_fee(0), with_fee(1)), (None, Some("it has the extension transfer_fee_config".to_owned())));
    }
}
