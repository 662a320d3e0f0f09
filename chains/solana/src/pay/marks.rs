//! The marks of intents in a transaction of a block: accounts that came into being, who signed, and who paid whom.
//!
//! A payment is a transaction that succeeded and that the payer signed, in which the guard went from no lamports up,
//! the payer lost an amount, and one other owner gained exactly that. Blocks name accounts and no seeds. So each
//! account that came into being is reported as if it were a guard, and whoever knows the intent knows which one is.
//! Promises: only balances decide. There is no mark of an asset that moved to more than one owner, or of which less
//! arrived than was sent. Nor is there one if each of two accounts that came into being could be the guard of a payment
//! to the other.

use landfall_chain::{Address, AssetId, Effect, IntentKey, Mark, TxRef, U256};

use crate::base58;
use crate::credit::address;
use crate::error::Unusable;
use crate::rules::{Listed, Rules};
use crate::tx::Tx;

/// What owners gained and lost of one asset.
struct Moved<'a> {
    asset: AssetId,
    changes: Vec<(&'a str, i128)>,
}

/// The marks of a transaction in `slot`.
pub(crate) fn of_tx(rules: &Rules, tx: &Tx<'_>, reference: TxRef, slot: u64) -> Result<Vec<Mark>, Unusable> {
    let mut marks = Vec::new();
    if tx.failed || !tx.makes_accounts() {
        return Ok(marks);
    }
    let mut all = vec![lamports(tx)];
    tokens(rules, tx, slot, &mut all)?;
    for made in tx.made() {
        let key = IntentKey::of_account(&base58::key(made).ok_or(Unusable::Key { index: tx.index })?);
        for moved in &all {
            // The guard itself is no recipient.
            let mut gains = moved.changes.iter().filter(|(owner, change)| *change > 0 && *owner != made);
            let (Some((recipient, amount)), None) = (gains.next(), gains.next()) else { continue };
            let paid =
                |payer: &&&str| moved.changes.iter().any(|(owner, change)| owner == *payer && *change == -amount);
            for payer in tx.signers().iter().filter(paid) {
                let (destination, amount) = (address(tx, recipient)?, U256::from(amount.unsigned_abs()));
                let effect = Effect::Paid { destination, amount };
                let payer: Address = address(tx, payer)?;
                marks.push(Mark { tx: reference, payer, key, asset: moved.asset, effect });
            }
        }
    }
    let could_be_another = |mark: &Mark| {
        let same = |other: &&Mark| (other.payer, other.asset) == (mark.payer, mark.asset) && other.key != mark.key;
        marks.iter().filter(same).any(|other| other.effect != mark.effect)
    };
    Ok(marks.iter().filter(|mark| !could_be_another(mark)).copied().collect())
}

/// What accounts changed by that are no token accounts; what the fee cost its payer is added back.
fn lamports<'a>(tx: &Tx<'a>) -> Moved<'a> {
    let of = |account: usize| (tx.keys[account], tx.lamports_change(account));
    let accounts = (0..tx.keys.len()).filter(|account| !tx.is_token_account(*account)).map(of);
    Moved { asset: AssetId::Native, changes: accounts.filter(|(_, change)| *change != 0).collect() }
}

/// What owners of listed tokens changed by, all accounts of an owner together.
fn tokens<'a>(rules: &Rules, tx: &Tx<'a>, slot: u64, all: &mut Vec<Moved<'a>>) -> Result<(), Unusable> {
    for holding in &tx.tokens {
        let Listed::As(mint, _) = rules.listed(holding, tx.index, slot)? else { continue };
        let Some(owner) = holding.owner else { continue };
        let asset = AssetId::Token(Address::Solana(mint.key));
        let at = all.iter().position(|moved| moved.asset == asset).unwrap_or_else(|| {
            all.push(Moved { asset, changes: Vec::new() });
            all.len() - 1
        });
        let changes = &mut all[at].changes;
        match changes.iter_mut().find(|(other, _)| *other == owner) {
            Some((_, change)) => *change += holding.change(),
            None => changes.push((owner, holding.change())),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use landfall_chain::{Chain, Legs};
    use serde_json::{Value, json};

    use super::*;
    use crate::{Asked, network};

    const SPONSOR: [u8; 32] = [1; 32];
    const PAYER: [u8; 32] = [2; 32];
    const BOB: [u8; 32] = [3; 32];
    const GUARD: [u8; 32] = [4; 32];
    const OTHER: [u8; 32] = [5; 32];
    const RENT: i64 = 890_880;
    const USDC: &str = "4zMMC9srt5Ri5X14GAgXhaHii3GnPAEERYPJgZJDncDU";

    fn text(key: [u8; 32]) -> String {
        Address::Solana(key).to_string()
    }

    /// A transaction of these accounts, with what each had before and has after; so many of the first ones signed.
    fn tx(signers: usize, accounts: &[([u8; 32], i64, i64)], tokens: [Value; 2], err: Value) -> Value {
        let signatures: Vec<String> =
            (0..signers).map(|nth| bs58::encode([u8::try_from(nth).unwrap() + 9; 64]).into_string()).collect();
        let key = |(key, ..): &([u8; 32], i64, i64)| json!({ "pubkey": text(*key), "signer": false, "source": "transaction", "writable": true });
        let keys: Vec<Value> = accounts.iter().map(key).collect();
        let lamports = |after: bool| -> Vec<i64> {
            accounts.iter().map(|(_, before, now)| if after { *now } else { *before }).collect()
        };
        let [pre, post] = tokens;
        json!({
            "transaction": { "signatures": signatures, "accountKeys": keys },
            "meta": {
                "err": err, "fee": 10_000, "preBalances": lamports(false), "postBalances": lamports(true),
                "preTokenBalances": pre, "postTokenBalances": post,
            },
        })
    }

    fn tokens(holdings: &[(usize, [u8; 32], u64)]) -> Value {
        let holding = |(account, owner, amount): &(usize, [u8; 32], u64)| {
            json!({
                "accountIndex": account, "mint": USDC, "owner": text(*owner),
                "programId": "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA",
                "uiTokenAmount": { "amount": amount.to_string(), "decimals": 6 },
            })
        };
        holdings.iter().map(holding).collect()
    }

    fn none() -> [Value; 2] {
        [json!([]), json!([])]
    }

    fn marks(tx: Value) -> Vec<Mark> {
        let hash = |byte| bs58::encode([byte; 32]).into_string();
        let block = json!({
            "blockhash": hash(1), "previousBlockhash": hash(2), "parentSlot": 6, "blockTime": 1_790_000_000,
            "transactions": [tx],
        });
        let asked = Asked { slot: 7, time_secs: 0, legs: Legs::Creditable };
        let rules = Rules::of(&network(Chain::SolanaDevnet).unwrap());
        crate::block(&rules, &block.to_string(), &asked).unwrap().block.marks
    }

    fn shown(marks: &[Mark]) -> Vec<(Address, IntentKey, AssetId, Effect)> {
        marks.iter().map(|mark| (mark.payer, mark.key, mark.asset, mark.effect)).collect()
    }

    fn paid(asset: AssetId, made: [u8; 32], amount: u64) -> (Address, IntentKey, AssetId, Effect) {
        let effect = Effect::Paid { destination: Address::Solana(BOB), amount: U256::from(amount) };
        (Address::Solana(PAYER), IntentKey::of_account(&made), asset, effect)
    }

    /// Sponsor, payer, guard, Bob: what each has before and after.
    fn sol(guard: (i64, i64), bob: (i64, i64)) -> [([u8; 32], i64, i64); 4] {
        let (made, gained) = (guard.1 - guard.0, bob.1 - bob.0);
        [
            (SPONSOR, 9_000_000, 9_000_000 - 10_000 - made),
            (PAYER, 5_000_000, 5_000_000 - gained),
            (GUARD, guard.0, guard.1),
            (BOB, bob.0, bob.1),
        ]
    }

    #[test]
    fn a_payment_of_sol_is_shown_by_its_guard_who_signed_and_what_the_recipient_gained() {
        let there = marks(tx(2, &sol((0, RENT), (50, 1_000_050)), none(), Value::Null));
        assert_eq!(shown(&there), [paid(AssetId::Native, GUARD, 1_000_000)]);
        // A recipient that comes into being may be a guard too, for all that a block says.
        let new = marks(tx(2, &sol((0, RENT), (0, 1_000_000)), none(), Value::Null));
        let of_payer: Vec<_> = shown(&new).into_iter().filter(|(payer, ..)| *payer == Address::Solana(PAYER)).collect();
        assert_eq!(of_payer, [paid(AssetId::Native, GUARD, 1_000_000)]);
        assert_eq!(new.len(), 2, "the sponsor paid for the guard, and nobody has Bob's address for a guard");
    }

    #[test]
    fn what_failed_or_was_not_signed_by_the_payer_or_made_no_guard_shows_nothing() {
        let accounts = sol((0, RENT), (50, 1_000_050));
        let failed = json!({ "InstructionError": [0, { "Custom": 0 }] });
        assert_eq!(marks(tx(2, &accounts, none(), failed)), []);
        assert_eq!(marks(tx(1, &accounts, none(), Value::Null)), []);
        // Somebody sent lamports to the guard before.
        assert_eq!(marks(tx(2, &sol((1, RENT), (50, 1_000_050)), none(), Value::Null)), []);
        assert_eq!(marks(tx(2, &sol((RENT, RENT), (50, 1_000_050)), none(), Value::Null)), []);
    }

    #[test]
    fn what_went_to_two_or_cost_the_payer_another_amount_shows_nothing() {
        let mut two = sol((0, RENT), (50, 1_000_050)).to_vec();
        two[1].2 -= 7;
        assert_eq!(marks(tx(2, &two, none(), Value::Null)), [], "the payer lost more than Bob gained");
        two.push((OTHER, 1, 8));
        assert_eq!(marks(tx(2, &two, none(), Value::Null)), [], "two gained");
    }

    #[test]
    fn two_accounts_that_came_into_being_with_one_sum_show_no_guard() {
        let of_payer = |rent| {
            let marks = marks(tx(2, &sol((0, rent), (0, RENT)), none(), Value::Null));
            marks.into_iter().filter(|mark| mark.payer == Address::Solana(PAYER)).count()
        };
        assert_eq!((of_payer(RENT), of_payer(RENT + 1)), (0, 1));
    }

    #[test]
    fn a_payment_of_a_token_is_shown_by_what_owners_gained_and_lost_of_it() {
        let accounts = [
            (SPONSOR, 9_000_000, 9_000_000 - 10_000 - RENT - 2_039_280),
            (PAYER, 0, 0),
            (GUARD, 0, RENT),
            ([6; 32], 2_039_280, 2_039_280),
            ([7; 32], 0, 2_039_280),
        ];
        let of = |arrived: u64| {
            let after = tokens(&[(3, PAYER, 700), (4, BOB, arrived)]);
            marks(tx(2, &accounts, [tokens(&[(3, PAYER, 1_000)]), after], Value::Null))
        };
        let usdc = AssetId::Token(Address::parse(landfall_chain::Family::Solana, USDC).unwrap());
        assert_eq!(shown(&of(300)), [paid(usdc, GUARD, 300)]);
        assert_eq!(of(299), [], "a part of it was kept");
    }
}
