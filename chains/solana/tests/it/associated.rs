//! Whose associated account a token account is, which is found once for each owner in a block.

use landfall_chain::Chain;
use landfall_solana::{Candidate, Rules, network};
use serde_json::{Value, json};

use crate::fixtures::{credits, read, refusals};
use crate::made::{Made, RENT, USDC, associated, key};

fn reported(txs: &[Value]) -> Candidate {
    read(&Rules::of(&network(Chain::SolanaMainnet).unwrap()), txs).unwrap()
}

/// A pays 5 USDC into the account where those of W belong, which is `owner`'s.
fn paid(owner: &str, signature: u8) -> Value {
    let lamports = [RENT; 2];
    let payer = Made::default().account("A", [900_000; 2]).tokens("B", "A", USDC, lamports, [Some(50), Some(45)]);
    let mut tx = payer.tokens_at(associated(&key("W")), owner, USDC, lamports, [Some(0), Some(5)]).tx();
    tx["transaction"]["signatures"] = json!([bs58::encode([signature; 64]).into_string()]);
    tx
}

#[test]
fn an_account_that_changes_hands_within_a_block_is_judged_for_each_owner() {
    let credited = format!("{} {USDC} 5", key("W"));
    let refused = format!("{} {USDC} 5 ineligible_token_account", key("V"));
    for owners in [["W", "V"], ["V", "W"]] {
        let candidate = reported(&[paid(owners[0], 1), paid(owners[1], 2)]);
        assert_eq!(
            (credits(&candidate), refusals(&candidate)),
            (vec![credited.clone()], vec![refused.clone()]),
            "{owners:?}"
        );
    }
}
