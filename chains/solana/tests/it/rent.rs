//! Rent: what comes back from an own token account is no deposit, and never hides one.

use landfall_chain::Chain;
use landfall_solana::{Rules, network};

use crate::fixtures::{credits, debits, read, refusals};
use crate::made::{Made, RENT, USDC, key};

fn reported(made: &Made) -> (Vec<String>, Vec<String>) {
    let candidate = read(&Rules::of(&network(Chain::SolanaMainnet).unwrap()), &[made.tx()]).unwrap();
    (credits(&candidate), refusals(&candidate))
}

fn credited(name: &str, amount: u64) -> Vec<String> {
    vec![format!("{} SOL {amount}", key(name))]
}

fn refunded(name: &str, amount: u64) -> Vec<String> {
    vec![format!("{} SOL {amount} rent_refund", key(name))]
}

#[test]
fn the_rent_of_an_own_account_that_is_closed_is_no_deposit() {
    let made = Made::default().account("W", [10, 10 + RENT]).tokens("W's", "W", USDC, [RENT, 0], [Some(0), None]);
    assert_eq!(reported(&made), (vec![], refunded("W", RENT)));
}

#[test]
fn an_own_account_that_held_too_much_is_no_deposit_either() {
    let made = Made::default().account("A", [9, 9]).account("W", [10, 35]);
    let made = made.tokens("W's", "W", USDC, [RENT + 25, RENT], [Some(3), Some(3)]);
    assert_eq!(reported(&made), (vec![], refunded("W", 25)));
}

#[test]
fn a_deposit_beside_a_refund_is_credited() {
    let made = Made::default().account("A", [100, 95]).account("W", [10, 15 + RENT]);
    let made = made.tokens("W's", "W", USDC, [RENT, 0], [Some(0), None]);
    assert_eq!(reported(&made), (credited("W", 5), refunded("W", RENT)));
}

#[test]
fn a_deposit_beside_rent_that_moves_from_one_own_account_to_the_next_is_credited() {
    let made = Made::default().account("A", [100, 95]).account("W", [10, 15]);
    let made = made.tokens("old", "W", USDC, [RENT, 0], [Some(0), None]);
    let made = made.tokens("new", "W", USDC, [0, RENT], [None, Some(0)]);
    assert_eq!(reported(&made), (credited("W", 5), vec![]));
}

#[test]
fn rent_that_others_pay_for_us_is_no_deposit_and_their_debit() {
    let made = Made::default().account("A", [RENT, 0]).account("W", [10, 10]);
    let made = made.tokens("W's", "W", USDC, [0, RENT], [None, Some(0)]);
    assert_eq!(reported(&made), (vec![], vec![]));
    let rules = Rules::of(&network(Chain::SolanaMainnet).unwrap());
    assert_eq!(debits(&read(&rules, &[made.tx()]).unwrap()), [format!("{} SOL {RENT}", key("A"))]);
}

#[test]
fn lamports_of_a_token_account_are_never_sol_of_whom_its_address_is() {
    // Somebody has the address of a token account watched.
    let made = Made::default().account("A", [100, 0]).tokens("W", "B", USDC, [RENT, RENT + 100], [Some(0), Some(0)]);
    assert_eq!(reported(&made), (vec![], vec![]));
}

#[test]
fn dust_is_recorded() {
    let made = Made::default().account("A", [20, 0]).account("V", [0, 19]).account("W", [0, 1]);
    assert!(reported(&made).0.contains(&credited("W", 1)[0]));
}
