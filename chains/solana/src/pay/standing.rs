//! Checks the accounts of a payment before it is signed: whether the recipient is a wallet, whether enough is there,
//! and whether a memo is demanded. Pure.
//!
//! Offsets are those of spl-token-2022-interface 3.1.2 (`state.rs`, `extension/mod.rs`), and the same under both token
//! programs. Promises: an account that cannot be read is no reason against a payment, since the whole transaction is
//! tried before it is signed. Nothing here is evidence: a moment later the accounts may have changed.

use landfall_chain::{Address, Intent, U256, Unpayable};
use solana_address::bytes_are_curve_point;

use crate::ata::TokenProgram;
use crate::pay::guard::SYSTEM;

const MINT_BYTES: usize = 82;
/// A token account without extensions: owner, amount and state stand here.
const TOKEN_ACCOUNT_BYTES: usize = 165;
const OWNER: usize = 32;
const AMOUNT: usize = 64;
const STATE: usize = 108;
const FROZEN: u8 = 2;
/// What an account with extensions is, behind those bytes, and of each extension its type and length.
const KIND_MINT: u8 = 1;
const KIND_TOKEN_ACCOUNT: u8 = 2;
const EXTENSION_HEAD: usize = 4;
/// `ExtensionType::MemoTransfer`: its one byte says whether each payment needs a memo.
const MEMO_TRANSFER: u16 = 8;

/// An account as a node reports it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Account {
    pub(super) lamports: u64,
    pub(super) owner: String,
    pub(super) data: Vec<u8>,
}

/// Why something cannot be paid now.
pub(super) type Why = (Unpayable, String);

/// Why nothing is paid to an address: what is sent to a program's or a token's account is lost.
pub(super) fn no_wallet(address: &Address, account: Option<&Account>) -> Option<String> {
    let Address::Solana(key) = address else { return Some(format!("{address} is not of Solana")) };
    match account {
        Some(Account { owner, data, .. }) if *owner != SYSTEM.to_string() || !data.is_empty() => {
            let what = match (TokenProgram::of(owner), kind(data)) {
                (Some(_), Some(Kind::TokenAccount(wallet))) => {
                    format!("a token account; send to the wallet that owns it, {wallet}")
                }
                (Some(_), Some(Kind::Mint)) => "a mint; send to a wallet".to_owned(),
                (Some(_), None) | (None, _) => format!("an account of {owner}; send to a wallet"),
            };
            Some(format!("{address} is {what}"))
        }
        None if !bytes_are_curve_point(key) => {
            Some(format!("{address} has no account, and no key can have it; send to a wallet"))
        }
        Some(_) | None => None,
    }
}

enum Kind {
    TokenAccount(Address),
    Mint,
}

fn kind(data: &[u8]) -> Option<Kind> {
    match data.get(TOKEN_ACCOUNT_BYTES) {
        Some(&KIND_MINT) => return Some(Kind::Mint),
        Some(&KIND_TOKEN_ACCOUNT) | None => {}
        Some(_) => return None,
    }
    if data.len() == MINT_BYTES {
        return Some(Kind::Mint);
    }
    let owner = data.get(OWNER..AMOUNT).filter(|_| data.len() >= TOKEN_ACCOUNT_BYTES)?;
    Some(Kind::TokenAccount(Address::Solana(owner.try_into().ok()?)))
}

/// Why SOL cannot be paid: an account owns nothing, or as much as it must have to stay, which is `rent`.
pub(super) fn unpayable_sol(intent: &Intent, [payer, recipient]: [Option<&Account>; 2], rent: u64) -> Option<Why> {
    let owns = |account: Option<&Account>| U256::from(account.map_or(0, |account| account.lamports));
    let (held, amount, rent) = (owns(payer), intent.amount, U256::from(rent));
    let funds = |why| Some((Unpayable::Funds, why));
    let Some(left) = held.checked_sub(amount) else {
        return funds(format!("{} has {held} lamports, and {amount} are to be paid", intent.payer));
    };
    if !left.is_zero() && left < rent {
        let payer = intent.payer;
        return funds(format!("{payer} would keep {left} lamports, and must keep none or at least {rent}"));
    }
    let arrives = owns(recipient).saturating_add(amount);
    if arrives < rent {
        return funds(format!("{} would have {arrives} lamports, and must have at least {rent}", intent.destination));
    }
    None
}

/// Why a token cannot be paid from one account to another.
pub(super) fn unpayable_token(intent: &Intent, [source, target]: [Option<&Account>; 2]) -> Option<Why> {
    let is_frozen = |account: Option<&Account>| account.is_some_and(|account| account.data.get(STATE) == Some(&FROZEN));
    let held = source.and_then(|account| account.data.get(AMOUNT..)?.first_chunk());
    let held = U256::from(held.map_or(0, |amount| u64::from_le_bytes(*amount)));
    let Intent { payer, destination, amount, .. } = intent;
    if held < *amount {
        let why = format!("the associated account of {payer} has {held} base units, and {amount} are to be paid");
        return Some((Unpayable::Funds, why));
    }
    if let Some(why) = target.and_then(|target| not_of(destination, target)) {
        return Some((Unpayable::Destination, why));
    }
    if is_frozen(target) {
        return Some((Unpayable::Destination, format!("the associated account of {destination} is frozen")));
    }
    is_frozen(source).then(|| (Unpayable::Refused, format!("the associated account of {payer} is frozen")))
}

/// Why the account at the recipient's associated address is not the recipient's: its owner may have given it away
/// (`SetAuthority`), and what comes there is another's.
pub(super) fn not_of(destination: &Address, target: &Account) -> Option<String> {
    TokenProgram::of(&target.owner)?;
    let owner = target.data.get(OWNER..AMOUNT).and_then(|owner| Some(Address::Solana(owner.try_into().ok()?)))?;
    (owner != *destination).then(|| format!("the associated account of {destination} belongs to {owner} now"))
}

/// Whether a token account takes no payment without a memo in front of it.
pub(super) fn demands_memo(target: Option<&Account>) -> bool {
    let extensions = target.and_then(|account| account.data.get(TOKEN_ACCOUNT_BYTES..)?.split_first());
    let Some((&KIND_TOKEN_ACCOUNT, mut rest)) = extensions else { return false };
    while let Some((&[kind, kind_high, length, length_high], behind)) = rest.split_first_chunk::<EXTENSION_HEAD>() {
        let length = usize::from(u16::from_le_bytes([length, length_high]));
        let Some((value, more)) = behind.split_at_checked(length) else { return false };
        if u16::from_le_bytes([kind, kind_high]) == MEMO_TRANSFER {
            return value == [1];
        }
        rest = more;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ata::{SPL_TOKEN, TOKEN_2022};
    use crate::pay::guard::tests::intent;

    /// On the curve, and not.
    const WALLET: Address = Address::Solana([9; 32]);

    fn nobodys() -> Address {
        let is_none = |byte: &u8| !bytes_are_curve_point([*byte; 32]);
        Address::Solana([(0..=u8::MAX).find(is_none).unwrap(); 32])
    }

    fn account(owner: &str, data: Vec<u8>) -> Account {
        Account { lamports: 1, owner: owner.to_owned(), data }
    }

    fn tokens(amount: u64, state: u8, extensions: &[u8]) -> Account {
        let mut data = vec![7; TOKEN_ACCOUNT_BYTES];
        data[AMOUNT..AMOUNT + 8].copy_from_slice(&amount.to_le_bytes());
        data[STATE] = state;
        data.extend(extensions);
        account(TOKEN_2022, data)
    }

    #[test]
    fn what_is_no_wallet_is_named_with_what_to_send_to_instead() {
        let wallet = account(&SYSTEM.to_string(), Vec::new());
        assert_eq!([no_wallet(&WALLET, Some(&wallet)), no_wallet(&nobodys(), Some(&wallet))], [None, None]);
        let said = |account: &Account| no_wallet(&WALLET, Some(account)).unwrap();
        let owner = Address::Solana([7; 32]);
        let token_account = format!("{WALLET} is a token account; send to the wallet that owns it, {owner}");
        assert_eq!(said(&tokens(1, 1, &[])), token_account);
        assert_eq!(said(&tokens(1, 1, &[KIND_TOKEN_ACCOUNT, 0, 0])), token_account);
        let mint = format!("{WALLET} is a mint; send to a wallet");
        assert_eq!(said(&account(SPL_TOKEN, vec![0; MINT_BYTES])), mint);
        assert_eq!(said(&tokens(0, 0, &[KIND_MINT, 0, 0])), mint);
        let nonce = account(&SYSTEM.to_string(), vec![0; 80]);
        assert_eq!(said(&nonce), format!("{WALLET} is an account of {SYSTEM}; send to a wallet"));
        assert!(said(&account("Stake", vec![0; 200])).contains("is an account of Stake; send to a wallet"));
        assert!(no_wallet(&nobodys(), None).unwrap().contains("has no account, and no key can have it"));
    }

    #[test]
    fn sol_leaves_an_account_with_nothing_or_with_what_it_must_have() {
        let of = |payer: u64, recipient: u64, amount: u64| {
            let intent = Intent { amount: U256::from(amount), ..intent([9; 32], false) };
            let owns = |lamports| Account { lamports, ..Account::default() };
            let accounts = [owns(payer), owns(recipient)];
            unpayable_sol(&intent, [Some(&accounts[0]), (recipient > 0).then_some(&accounts[1])], 100)
        };
        for (payer, recipient, amount) in [(500, 0, 500), (500, 0, 400), (500, 100, 1), (500, 99, 400), (500, 0, 100)] {
            assert_eq!(of(payer, recipient, amount), None, "{payer} {recipient} {amount}");
        }
        let why = |of: Option<Why>| of.map(|(what, why)| (what == Unpayable::Funds, why)).unwrap();
        assert!(why(of(500, 100, 501)).1.contains("has 500 lamports, and 501 are to be paid"));
        assert!(why(of(500, 100, 401)).1.contains("would keep 99 lamports, and must keep none or at least 100"));
        assert!(why(of(500, 0, 99)).1.contains("would have 99 lamports, and must have at least 100"));
        assert!(unpayable_sol(&intent([9; 32], false), [None, None], 1).is_some(), "there is no payer");
    }

    #[test]
    fn a_token_needs_enough_and_accounts_that_are_not_frozen() {
        let (intent, enough) = (intent([9; 32], true), tokens(5, 1, &[]));
        let what = |source: Option<&Account>, target: Option<&Account>| {
            unpayable_token(&intent, [source, target]).map(|(what, _)| what)
        };
        let of_recipient = |state| {
            let mut account = tokens(0, state, &[]);
            account.data[OWNER..AMOUNT].copy_from_slice(intent.destination.as_bytes());
            account
        };
        assert_eq!(what(Some(&enough), None), None);
        assert_eq!(what(Some(&enough), Some(&of_recipient(1))), None);
        assert_eq!(what(Some(&tokens(4, 1, &[])), None), Some(Unpayable::Funds));
        assert_eq!(what(None, None), Some(Unpayable::Funds));
        assert_eq!(what(Some(&enough), Some(&of_recipient(FROZEN))), Some(Unpayable::Destination));
        assert_eq!(what(Some(&tokens(5, FROZEN, &[])), None), Some(Unpayable::Refused));
    }

    #[test]
    fn nothing_is_paid_to_an_account_that_was_given_to_another() {
        let (intent, given) = (intent([9; 32], true), tokens(0, 1, &[]));
        let (what, why) = unpayable_token(&intent, [Some(&tokens(5, 1, &[])), Some(&given)]).unwrap();
        let owner = Address::Solana([7; 32]);
        assert!(what == Unpayable::Destination && why.ends_with(&format!("belongs to {owner} now")), "{why}");
        // Lamports that somebody sent there before it is made are no account of a token.
        assert_eq!(not_of(&intent.destination, &account(&SYSTEM.to_string(), given.data)), None);
    }

    #[test]
    fn only_an_account_that_says_so_demands_a_memo() {
        let immutable_owner = [7, 0, 0, 0];
        let of = |extensions: &[u8]| demands_memo(Some(&tokens(0, 1, extensions)));
        let with = |memo: &[u8]| of(&[&[KIND_TOKEN_ACCOUNT], &immutable_owner[..], memo].concat());
        assert!(with(&[8, 0, 1, 0, 1]));
        for none in [&[8, 0, 1, 0, 0][..], &[8, 0, 1, 0], &[8, 0, 9, 0, 1], &[8, 0], &[]] {
            assert!(!with(none), "{none:?}");
        }
        assert!(!of(&[KIND_MINT, 8, 0, 1, 0, 1]) && !of(&[]) && !demands_memo(None));
    }
}
