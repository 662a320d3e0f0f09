//! The rows of our catalogue of failures that concern what a block says: S1 to S12 and S14, by their numbers.
//!
//! S13 (what is final) and S15 (nothing is measured in slots) are the watcher's; here only the network's rule is held.

use landfall_chain::{AssetId, Chain, FinalityRule};
use landfall_solana::{Rules, network};
use serde_json::json;

use crate::fixtures::{address, block_of, credits, debits, keys, listing, load, read, refusals, transactions};
use crate::generated::load_one;
use crate::made::{FEE, Made, RENT, USDC, associated, key};

const W: &str = "48Rtpgcf4SmXzvDqtU1ipw41fZJEwyaRjhHx3SuCkqdB";

fn usdc() -> Rules {
    Rules::of(&network(Chain::SolanaMainnet).unwrap())
}

fn generated(name: &str) -> (landfall_solana::Candidate, serde_json::Value) {
    let tx = load_one(name)["json"].clone();
    (read(&Rules::of(&listing(std::slice::from_ref(&tx))), std::slice::from_ref(&tx)).unwrap(), tx)
}

#[test]
fn s1_a_transfer_to_an_existing_token_account_is_seen_though_the_owner_is_not_named() {
    let (candidate, tx) = generated("spl_transfer_unchecked");
    assert!(!keys(&tx).contains(&W.to_owned()), "the owner is no account of the transaction");
    assert_eq!(credits(&candidate), [format!("{W} 5ozRbbjgGAjhmf5wQq5L64Mh9pEDW4Uj4CH25SH8RFkc 700000")]);
}

#[test]
fn s2_what_lands_in_another_token_account_of_the_owner_is_not_credited_and_reported() {
    let text = load_one("spl_transfer_unchecked")["json"].to_string();
    let tx: serde_json::Value = serde_json::from_str(&text).unwrap();
    let balances = tx["meta"]["postTokenBalances"].as_array().unwrap();
    let at = balances.iter().find(|it| it["owner"] == W).unwrap()["accountIndex"].as_u64().unwrap();
    let associated = &keys(&tx)[usize::try_from(at).unwrap()];
    let other: serde_json::Value = serde_json::from_str(&text.replace(associated.as_str(), &key("other"))).unwrap();
    let candidate = read(&Rules::of(&listing(&[tx])), &[other]).unwrap();
    assert_eq!(credits(&candidate), Vec::<String>::new());
    let why = format!("{W} 5ozRbbjgGAjhmf5wQq5L64Mh9pEDW4Uj4CH25SH8RFkc 700000 ineligible_token_account");
    assert_eq!(refusals(&candidate), [why]);
}

#[test]
fn s2_only_the_part_that_lands_elsewhere_is_ineligible() {
    let w = key("W");
    let associated = associated(&w);
    let made = |ata: [u64; 2], other: [u64; 2]| {
        let held = |held: [u64; 2]| held.map(Some);
        let tx = Made::default()
            .account("A", [9, 9])
            .tokens_at(associated.clone(), "W", USDC, [RENT; 2], held(ata))
            .tokens("other", "W", USDC, [RENT; 2], held(other))
            .tokens("A's", "A", USDC, [RENT; 2], [Some(1_000), Some(0)]);
        let candidate = read(&usdc(), &[tx.tx()]).unwrap();
        (credits(&candidate), refusals(&candidate))
    };
    let credited = |amount: u64| format!("{w} {USDC} {amount}");
    let refused = |amount: u64| format!("{w} {USDC} {amount} ineligible_token_account");
    assert_eq!(made([0, 5], [0, 3]), (vec![credited(5)], vec![refused(3)]));
    assert_eq!(made([0, 10], [4, 0]), (vec![credited(6)], vec![]), "4 came from the owner's other account");
    assert_eq!(made([4, 0], [0, 10]), (vec![], vec![refused(6)]));
    assert_eq!(made([7, 2], [0, 5]).0, Vec::<String>::new(), "a move within");
    assert_eq!(made([7, 2], [0, 3]), (vec![], vec![]), "an outflow");
}

#[test]
fn s3_a_funded_account_that_is_handed_over_is_seen_by_its_owner_and_is_ineligible() {
    for (name, mint) in [
        ("spl_set_authority_owner_change", "5ozRbbjgGAjhmf5wQq5L64Mh9pEDW4Uj4CH25SH8RFkc"),
        ("t22_set_authority_owner_change", "25JMrxiPdo7qkCJtwykDMS1fah7JbRstsLy7HyCxa13G"),
    ] {
        let (candidate, _) = generated(name);
        assert_eq!(credits(&candidate), Vec::<String>::new());
        assert_eq!(refusals(&candidate), [format!("{W} {mint} 900000 ineligible_token_account")]);
        assert_eq!(debits(&candidate), [format!("6FyiB5GYmUhdLjzDduTGtX9Y9CoCmha4TjhcAo4WYAb6 {mint} 900000")]);
    }
}

#[test]
fn s4_sol_that_no_transfer_instruction_moved_is_credited() {
    let (candidate, _) = generated("ptoken_unwrap_lamports");
    assert_eq!(credits(&candidate), ["DRe5toWZcWEiyhDTM8sbjTPZHx5bCheizFzL9oEisG7x SOL 1000000"]);
    // Somebody else's token account is closed to ours: its rent is a deposit.
    let closed = Made::default().account("A", [9, 9]).account("W", [100, 100 + RENT]);
    let closed = closed.tokens("A's", "A", USDC, [RENT, 0], [Some(0), None]);
    let candidate = read(&usdc(), &[closed.tx()]).unwrap();
    assert_eq!(credits(&candidate), [format!("{} SOL {RENT}", key("W"))]);
    assert_eq!(candidate.block.transfers[0].sender, address(&key("A")), "who owned the account has paid");
}

#[test]
fn s5_what_a_transfer_fee_withholds_is_not_credited() {
    let mint = "F5Y9KqH3JQsdmNbTBfTZAMaH74Gus41hg5ab9UFn8Z9j";
    for (name, amount) in [("t22_transfer_fee_1pct", 990_000), ("t22_transfer_checked_with_fee", 495_000)] {
        let (candidate, _) = generated(name);
        assert_eq!(credits(&candidate), [format!("{W} {mint} {amount}")]);
    }
    let (candidate, _) = generated("t22_transfer_fee_1pct");
    let lost: Vec<_> = debits(&candidate).into_iter().filter(|line| line.contains(mint)).collect();
    assert_eq!(
        lost,
        [format!("3ZGsyvK3wQ6zZD4bC9Zk28oFPcYGkfKivzJG6uhzdusT {mint} 1000000")],
        "the payer lost all of it"
    );
}

#[test]
fn s6_in_and_out_in_one_transaction_is_one_net_credit() {
    let (candidate, _) = generated("sol_in_and_out_net_zero");
    assert!(!credits(&candidate).iter().any(|line| line.starts_with(W)), "net zero");
    let (candidate, _) = generated("multi_assets_one_tx");
    assert_eq!(credits(&candidate).len(), 3, "twice of one mint is one leg");
    // +1 +1 -0.5, and the fee: one leg of 1.5.
    let tx = Made::default().account("W", [10, 25]).account("A", [30, 10]).account("B", [0, 5]);
    let candidate = read(&usdc(), &[tx.tx()]).unwrap();
    assert_eq!(credits(&candidate), {
        let mut both = vec![format!("{} SOL 15", key("W")), format!("{} SOL 5", key("B"))];
        both.sort();
        both
    });
    assert_eq!(debits(&candidate), [format!("{} SOL 20", key("A"))]);
}

#[test]
fn s7_wrapped_sol_is_no_sol_and_off_by_default() {
    let tx = [load_one("wsol_wrap_to_watched_owner")["json"].clone()];
    let candidate = read(&usdc(), &tx).unwrap();
    assert_eq!(credits(&candidate), Vec::<String>::new());
    assert_eq!(
        refusals(&candidate),
        [format!("{W} So11111111111111111111111111111111111111112 3000000 unlisted_token")]
    );
    let candidate = read(&Rules::of(&listing(&tx)), &tx).unwrap();
    assert_eq!(credits(&candidate), [format!("{W} So11111111111111111111111111111111111111112 3000000")]);
}

#[test]
fn s8_a_failed_transaction_credits_nothing_and_costs_its_fee() {
    for name in ["sol_failed", "spl_failed", "t22_failed"] {
        let (candidate, tx) = generated(name);
        assert_eq!((credits(&candidate), debits(&candidate)), (vec![], vec![]), "{name}");
        assert_eq!(candidate.block.fees[0].amount.to_string(), tx["meta"]["fee"].to_string(), "{name}");
        assert_eq!(candidate.block.fees[0].payer, address(&keys(&tx)[0]), "{name}");
    }
    // Its balances say otherwise: still nothing, whatever the error is called.
    let mut tx = Made::default().account("A", [100, 50]).account("W", [0, 50]).tx();
    for error in [json!("OfTomorrow"), json!({ "InstructionError": [0, { "Custom": 1 }] }), json!({}), json!(false)] {
        tx["meta"]["err"] = error;
        assert_eq!(credits(&read(&usdc(), &[tx.clone()]).unwrap()), Vec::<String>::new());
    }
}

#[test]
fn s9_the_fee_that_our_own_wallet_paid_is_added_back() {
    let tx = Made::default().account("W", [100, 150]).account("A", [90, 40]);
    let value = tx.tx();
    let reported = |side: &str| value["meta"][side][0].as_u64().unwrap();
    assert_eq!(reported("postBalances") + FEE, reported("preBalances") + 50, "the fee is in the balances");
    let candidate = read(&usdc(), &[value]).unwrap();
    assert_eq!(credits(&candidate), [format!("{} SOL 50", key("W"))]);
    assert_eq!(candidate.block.fees[0].payer, address(&key("W")));
    assert_eq!(candidate.block.fees[0].amount.to_string(), FEE.to_string());
    assert_eq!(debits(&candidate), [format!("{} SOL 50", key("A"))]);
    // Alone, a fee is neither a gain nor a loss.
    let candidate = read(&usdc(), &[Made::default().account("W", [100, 100]).tx()]).unwrap();
    assert_eq!((credits(&candidate), debits(&candidate)), (vec![], vec![]));
}

/// Whose signature stands under a transaction is not asked: what an owner swaps leaves it and comes to it.
#[test]
fn s9_what_an_owner_swaps_under_its_own_signature_is_a_debit_and_a_credit() {
    let swap = Made::default()
        .account("W", [100, 130])
        .account("pool", [90, 60])
        .tokens_at(associated(&key("W")), "W", USDC, [RENT; 2], [Some(70), Some(20)])
        .tokens("pool's", "pool", USDC, [RENT; 2], [Some(0), Some(50)]);
    for is_signer in [true, false] {
        let mut tx = swap.tx();
        tx["transaction"]["accountKeys"][0]["signer"] = json!(is_signer);
        let candidate = read(&usdc(), &[tx]).unwrap();
        let line = |who: &str, asset: &str, amount: u64| format!("{} {asset} {amount}", key(who));
        assert!(credits(&candidate).contains(&line("W", "SOL", 30)), "{:?}", credits(&candidate));
        assert!(debits(&candidate).contains(&line("W", USDC, 50)), "{:?}", debits(&candidate));
        assert!(!credits(&candidate).iter().any(|credit| credit.contains(&format!("{} {USDC}", key("W")))));
    }
}

#[test]
fn s10_a_transfer_below_the_rent_of_a_fresh_account_failed_and_is_no_credit() {
    let tx = load("metamask/spam-2.json");
    assert!(tx["meta"]["err"]["InsufficientFundsForRent"].is_object());
    let candidate = read(&usdc(), &[tx]).unwrap();
    assert_eq!(credits(&candidate), Vec::<String>::new());
    assert!(refusals(&candidate)[0].ends_with(" SOL 0 reverted_tx"));
}

#[test]
fn s11_accounts_from_lookup_tables_are_seen() {
    let txs = transactions(&load("chainstorage/block_with_versioned_tx.json"));
    let all = keys(&txs[0]);
    assert_eq!(all.len(), 6 + 24 + 11);
    let candidate = read(&Rules::of(&listing(&txs)), &txs).unwrap();
    let unattributed = candidate.block.unattributed.iter().map(|it| &it.transfer);
    let gains = candidate.block.transfers.iter().chain(unattributed).count();
    assert_eq!(gains, 7, "of these no owner stands among the 6 accounts of the message alone");
}

#[test]
fn s12_a_clawback_without_our_signature_is_a_debit() {
    let (candidate, tx) = generated("t22_permanent_delegate_clawback");
    let w = tx["meta"]["preTokenBalances"].as_array().unwrap().iter().find(|it| it["owner"] == W).unwrap();
    let lost = format!("{W} {} 400000", w["mint"].as_str().unwrap());
    assert!(debits(&candidate).contains(&lost), "{:?}", debits(&candidate));
    assert!(!credits(&candidate).iter().any(|line| line.starts_with(W)));
}

#[test]
fn s12_a_mint_counts_under_its_listed_program_only() {
    let mut tx = Made::default()
        .account("A", [9, 9])
        .tokens_at(associated(&key("W")), "W", USDC, [RENT; 2], [Some(0), Some(7)])
        .tx();
    assert_eq!(credits(&read(&usdc(), &[tx.clone()]).unwrap()), [format!("{} {USDC} 7", key("W"))]);
    for program in ["TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb", "11111111111111111111111111111111"] {
        for side in ["preTokenBalances", "postTokenBalances"] {
            tx["meta"][side][0]["programId"] = program.into();
        }
        let candidate = read(&usdc(), &[tx.clone()]).unwrap();
        assert_eq!(credits(&candidate), Vec::<String>::new());
        assert_eq!(refusals(&candidate), [format!("{} {USDC} 7 unlisted_token", key("W"))]);
    }
}

#[test]
fn s13_what_confirmed_waits_for_is_the_nodes_finalized() {
    for network in landfall_solana::networks() {
        assert_eq!(network.finality.rule, FinalityRule::FINALIZED);
        assert_eq!(network.assets[0].id, AssetId::Native);
    }
}

#[test]
fn s14_rewards_of_a_block_are_no_deposits() {
    let txs = [load_one("sol_transfer_legacy")["json"].clone()];
    let mut answer = block_of(&txs);
    let read = |answer: &serde_json::Value| {
        let answer = serde_json::to_string(answer).unwrap();
        landfall_solana::block(&usdc(), &answer, &crate::fixtures::asked(landfall_chain::Legs::Explained)).unwrap()
    };
    let without = read(&answer);
    answer["rewards"] = json!([{ "pubkey": W, "lamports": 1_000_000, "postBalance": 9, "rewardType": "Staking" }]);
    assert_eq!(read(&answer), without);
}
