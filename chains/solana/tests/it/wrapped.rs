//! Wrapped SOL, as a token and as SOL: no lamport counts twice, and own SOL that changes its form is no deposit.

use landfall_chain::{Asset, Chain};
use landfall_solana::{Rules, Wrapped, network};

use crate::fixtures::{WRAPPED_SOL, asset, credits, debits, read, refusals};
use crate::generated::load_one;
use crate::made::{Made, RENT, associated_of, key};

fn listed() -> Rules {
    let mut network = network(Chain::SolanaMainnet).unwrap();
    network.assets.push(Asset {
        id: asset(WRAPPED_SOL),
        symbol: "WSOL".to_owned(),
        decimals: 9,
        from_block: 0,
        route: None,
    });
    Rules::of(&network)
}

/// As a token that is not listed, as one that is, as SOL.
fn rules() -> [Rules; 3] {
    let plain = Rules::of(&network(Chain::SolanaMainnet).unwrap());
    [plain.clone(), listed(), plain.with_wrapped(Wrapped::Native)]
}

fn credits_by_rule(made: &Made) -> [Vec<String>; 3] {
    rules().map(|rules| credits(&read(&rules, &[made.tx()]).unwrap()))
}

fn lines(amounts: &[(&str, &str, u64)]) -> Vec<String> {
    let mut lines: Vec<_> =
        amounts.iter().map(|(owner, asset, amount)| format!("{} {asset} {amount}", key(owner))).collect();
    lines.sort();
    lines
}

fn wrapped(made: Made, owner: &str, lamports: [u64; 2], held: [Option<u64>; 2]) -> Made {
    made.tokens_at(associated_of(&key(owner), WRAPPED_SOL), owner, WRAPPED_SOL, lamports, held)
}

#[test]
fn wrapped_sol_that_others_send_counts_once_under_each_rule() {
    let made = Made::default().account("A", [100, 100]).account("W", [10, 10]);
    let made = wrapped(made, "A", [RENT + 50, RENT + 20], [Some(50), Some(20)]);
    let made = wrapped(made, "W", [RENT, RENT + 30], [Some(0), Some(30)]);
    let token = lines(&[("W", WRAPPED_SOL, 30)]);
    assert_eq!(credits_by_rule(&made), [vec![], token, lines(&[("W", "SOL", 30)])]);
    let as_sol = read(&rules()[2], &[made.tx()]).unwrap();
    assert_eq!(debits(&as_sol), lines(&[("A", "SOL", 30)]));
    assert_eq!(as_sol.block.transfers[0].sender.to_string(), key("A"));
}

#[test]
fn wrapping_and_unwrapping_ones_own_is_no_deposit() {
    let wrap = wrapped(Made::default().account("W", [50 + RENT, 0]), "W", [0, RENT + 50], [None, Some(50)]);
    assert!(credits_by_rule(&wrap).iter().all(Vec::is_empty));
    let unwrap = wrapped(Made::default().account("W", [0, 50 + RENT]), "W", [RENT + 50, 0], [Some(50), None]);
    assert!(credits_by_rule(&unwrap).iter().all(Vec::is_empty));
    let why = refusals(&read(&listed(), &[unwrap.tx()]).unwrap());
    assert_eq!(why, {
        let mut both =
            vec![format!("{} SOL {RENT} rent_refund", key("W")), format!("{} SOL 50 self_transfer", key("W"))];
        both.sort();
        both
    });
}

#[test]
fn a_deposit_beside_an_own_unwrapping_is_credited() {
    let made = Made::default().account("W", [0, 57 + RENT]).account("A", [7, 0]);
    let made = wrapped(made, "W", [RENT + 50, 0], [Some(50), None]);
    let expected = lines(&[("W", "SOL", 7)]);
    assert_eq!(credits_by_rule(&made), [expected.clone(), expected.clone(), expected]);
}

#[test]
fn lamports_that_came_earlier_count_when_the_token_program_is_reported() {
    let made = wrapped(Made::default().account("A", [9, 9]), "W", [RENT + 40, RENT + 40], [Some(0), Some(40)]);
    let token = lines(&[("W", WRAPPED_SOL, 40)]);
    assert_eq!(credits_by_rule(&made), [vec![], token, lines(&[("W", "SOL", 40)])]);
    // And a payment in the same transaction is not taken for what came back.
    let made = Made::default().account("A", [9, 2]).account("W", [0, 7]);
    let made = wrapped(made, "W", [RENT + 40, RENT + 40], [Some(0), Some(40)]);
    let both = lines(&[("W", "SOL", 7), ("W", WRAPPED_SOL, 40)]);
    assert_eq!(credits_by_rule(&made), [lines(&[("W", "SOL", 7)]), both, lines(&[("W", "SOL", 47)])]);
}

#[test]
fn sol_that_is_bought_with_wrapped_sol_is_a_credit_where_that_is_another_asset() {
    let made = Made::default().account("P", [90, 60]).account("W", [0, 30]);
    let made = wrapped(made, "W", [RENT + 31, RENT], [Some(31), Some(0)]);
    let made = wrapped(made, "P", [RENT, RENT + 31], [Some(0), Some(31)]);
    let [off, token, native] = credits_by_rule(&made);
    assert_eq!(off, lines(&[("W", "SOL", 30)]));
    assert_eq!(token, lines(&[("W", "SOL", 30), ("P", WRAPPED_SOL, 31)]));
    assert_eq!(native, lines(&[("P", "SOL", 1)]));
}

#[test]
fn as_sol_what_lies_in_another_account_of_the_owner_is_ineligible() {
    let made = Made::default().account("A", [100, 70]);
    let made = made.tokens("other", "W", WRAPPED_SOL, [RENT, RENT + 30], [Some(0), Some(30)]);
    let candidate = read(&rules()[2], &[made.tx()]).unwrap();
    assert_eq!(credits(&candidate), Vec::<String>::new());
    assert_eq!(refusals(&candidate), [format!("{} SOL 30 ineligible_token_account", key("W"))]);
}

#[test]
fn what_real_programs_unwrap_and_wrap_counts_once_under_each_rule() {
    for name in ["ptoken_unwrap_lamports", "wsol_wrap_to_watched_owner"] {
        let tx = [load_one(name)["json"].clone()];
        let sums = rules().map(|rules| credits(&read(&rules, &tx).unwrap()));
        if name.starts_with("ptoken") {
            let expected = ["DRe5toWZcWEiyhDTM8sbjTPZHx5bCheizFzL9oEisG7x SOL 1000000".to_owned()];
            assert!(sums.iter().all(|sum| sum[..] == expected), "{sums:?}");
        } else {
            let w = "48Rtpgcf4SmXzvDqtU1ipw41fZJEwyaRjhHx3SuCkqdB";
            assert_eq!(sums[0], Vec::<String>::new());
            assert_eq!(sums[1], [format!("{w} {WRAPPED_SOL} 3000000")]);
            assert_eq!(sums[2], [format!("{w} SOL 3000000")]);
        }
    }
}
