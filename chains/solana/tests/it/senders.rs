//! Who paid: by balances where exactly one lost, by instructions where they must be asked, and by which rule.

use landfall_chain::{AssetTransfer, SenderRule, TxId};
use landfall_solana::{Rules, Unusable, Wrapped, sender};
use serde_json::{Value, json};

use crate::fixtures::{WRAPPED_SOL, keys, listing, read};
use crate::generated::load_one;
use crate::made::{Made, RENT, USDC, associated, associated_of, key};

const A: &str = "3ZGsyvK3wQ6zZD4bC9Zk28oFPcYGkfKivzJG6uhzdusT";
const W: &str = "48Rtpgcf4SmXzvDqtU1ipw41fZJEwyaRjhHx3SuCkqdB";

/// The leg to `owner`, and how its sender is known.
fn leg(rules: &Rules, tx: &Value, owner: &str) -> (AssetTransfer, SenderRule) {
    let candidate = read(rules, std::slice::from_ref(tx)).unwrap();
    let leg = candidate.block.transfers.into_iter().find(|leg| leg.recipient.to_string() == owner).unwrap();
    let rule = leg.sender_rule;
    (leg, rule)
}

fn by_instructions(tx: &Value, leg: &AssetTransfer) -> (String, SenderRule) {
    by_rules(&Rules::of(&listing(&[])), tx, leg)
}

fn by_rules(rules: &Rules, tx: &Value, leg: &AssetTransfer) -> (String, SenderRule) {
    let payer = sender::by_instructions(rules, &serde_json::to_string(tx).unwrap(), leg).unwrap();
    (payer.sender.to_string(), payer.rule)
}

#[test]
fn balances_name_the_sender_where_exactly_one_lost() {
    for (name, sender) in [
        ("sol_transfer_legacy", A),
        ("sol_transfer_v1", A),
        ("sol_transfer_sponsored", "6FyiB5GYmUhdLjzDduTGtX9Y9CoCmha4TjhcAo4WYAb6"),
        ("t22_transfer_fee_1pct", A),
    ] {
        let tx = load_one(name)["json"].clone();
        let (leg, rule) = leg(&Rules::of(&listing(std::slice::from_ref(&tx))), &tx, W);
        assert_eq!((leg.sender.to_string().as_str(), rule), (sender, SenderRule::OnlyPayer), "{name}");
        // Both ways lead to the same.
        assert_eq!(by_instructions(&tx, &leg), (sender.to_owned(), SenderRule::Instruction), "{name}");
    }
}

#[test]
fn of_several_senders_the_one_who_sent_most_is_named() {
    let tx = load_one("sol_two_senders")["json"].clone();
    let (leg, rule) = leg(&Rules::of(&listing(&[])), &tx, W);
    assert_eq!(rule, SenderRule::StandIn, "balances do not tell");
    let all = keys(&tx);
    let lost = |key: &str| {
        let at = all.iter().position(|other| other == key).unwrap();
        let side = |side: &str| tx["meta"][side][at].as_u64().unwrap();
        side("preBalances") - side("postBalances")
    };
    let (b, c) = ("6FyiB5GYmUhdLjzDduTGtX9Y9CoCmha4TjhcAo4WYAb6", "DRe5toWZcWEiyhDTM8sbjTPZHx5bCheizFzL9oEisG7x");
    let most = if lost(b) >= lost(c) { b } else { c };
    assert_ne!(lost(b), lost(c));
    assert_eq!(by_instructions(&tx, &leg), (most.to_owned(), SenderRule::Instruction));
}

#[test]
fn what_was_minted_comes_from_the_mint_authority() {
    for name in ["spl_mint_to", "t22_mint_to"] {
        let tx = load_one(name)["json"].clone();
        let (leg, rule) = leg(&Rules::of(&listing(std::slice::from_ref(&tx))), &tx, W);
        assert_eq!(rule, SenderRule::StandIn);
        assert_eq!(by_instructions(&tx, &leg), (A.to_owned(), SenderRule::Mint), "{name}");
    }
}

#[test]
fn a_batch_without_inner_instructions_names_its_senders() {
    let tx = load_one("ptoken_batch_two_transfers")["json"].clone();
    let rules = Rules::of(&listing(std::slice::from_ref(&tx)));
    for owner in [W, "DRe5toWZcWEiyhDTM8sbjTPZHx5bCheizFzL9oEisG7x"] {
        let (leg, _) = leg(&rules, &tx, owner);
        assert_eq!(by_instructions(&tx, &leg), (A.to_owned(), SenderRule::Instruction), "{owner}");
    }
}

#[test]
fn an_unwrapping_to_us_comes_from_the_accounts_owner_and_wrapping_from_who_paid() {
    let tx = load_one("ptoken_unwrap_lamports")["json"].clone();
    let (unwrapped, _) = leg(&Rules::of(&listing(&[])), &tx, "DRe5toWZcWEiyhDTM8sbjTPZHx5bCheizFzL9oEisG7x");
    assert_eq!(by_instructions(&tx, &unwrapped), (W.to_owned(), SenderRule::Instruction));
    let tx = load_one("wsol_wrap_to_watched_owner")["json"].clone();
    for rules in
        [Rules::of(&listing(std::slice::from_ref(&tx))), Rules::of(&listing(&[])).with_wrapped(Wrapped::Native)]
    {
        let (wrapped, rule) = leg(&rules, &tx, W);
        assert_eq!((wrapped.sender.to_string().as_str(), rule), (A, SenderRule::OnlyPayer));
        assert_eq!(by_rules(&rules, &tx, &wrapped), (A.to_owned(), SenderRule::Instruction), "{WRAPPED_SOL}");
    }
}

#[test]
fn who_pays_wrapped_sol_pays_sol_only_where_it_is_sol() {
    let made = Made::default().account("F", [9, 9]).account("A", [90, 40]).account("B", [80, 70]).account("W", [0, 10]);
    let account = associated_of(&key("W"), WRAPPED_SOL);
    let made = made.tokens_at(account, "W", WRAPPED_SOL, [RENT, RENT + 50], [Some(0), Some(50)]);
    let tx = with(&made, &[(SYSTEM, &[1, 4], &system(2, 50)), (SYSTEM, &[2, 3], &system(2, 10))]);
    for (wrapped, amount, sender) in [(Wrapped::Token, 10, "B"), (Wrapped::Native, 60, "A")] {
        let rules = Rules::of(&listing(&[])).with_wrapped(wrapped);
        let (paid, rule) = leg(&rules, &tx, &key("W"));
        assert_eq!((paid.amount.to::<u64>(), rule), (amount, SenderRule::StandIn), "{wrapped:?}");
        assert_eq!(by_rules(&rules, &tx, &paid), (key(sender), SenderRule::Instruction), "{wrapped:?}");
    }
}

#[test]
fn what_comes_by_an_account_that_is_made_and_closed_on_the_way_comes_from_who_closed_it() {
    // P makes T, puts 40 into it and closes it to W; F gives W 1 and somebody else 5.
    let made = Made::default().account("F", [9, 3]).account("P", [90, 50]).account("T", [0, 0]);
    let made = made.account("V", [0, 5]).account("W", [0, 41]);
    let close = (TOKEN, &[2, 4, 1][..], &[9][..]);
    let (fill, tip) = (system(0, 40), system(2, 1));
    let tx = with(&made, &[(SYSTEM, &[1, 2], &fill), (SYSTEM, &[0, 4], &tip), close]);
    let (paid, rule) = leg(&Rules::of(&listing(&[])), &tx, &key("W"));
    assert_eq!(rule, SenderRule::StandIn);
    assert_eq!(by_instructions(&tx, &paid), (key("P"), SenderRule::Instruction));
    // What was in it before weighs as well.
    let made = Made::default().account("F", [9, 3]).account("P", [90, 90]).account("T", [40, 0]);
    let made = made.account("V", [0, 5]).account("W", [0, 41]);
    let tx = with(&made, &[(SYSTEM, &[0, 4], &tip), close]);
    let (paid, rule) = leg(&Rules::of(&listing(&[])), &tx, &key("W"));
    assert_eq!(rule, SenderRule::StandIn);
    assert_eq!(by_instructions(&tx, &paid), (key("P"), SenderRule::Instruction));
}

/// A transaction of `made` with instructions: program, accounts, data.
fn with(made: &Made, instructions: &[(&str, &[usize], &[u8])]) -> Value {
    let mut tx = made.tx();
    let mut keys = tx["transaction"]["accountKeys"].as_array().unwrap().clone();
    let mut listed = Vec::new();
    for (program, accounts, data) in instructions {
        for side in ["preBalances", "postBalances"] {
            tx["meta"][side].as_array_mut().unwrap().push(1.into());
        }
        let data = bs58::encode(data).into_string();
        listed.push(json!({ "programIdIndex": keys.len(), "accounts": accounts, "data": data }));
        keys.push(json!({ "pubkey": program }));
    }
    tx["transaction"]["message"] = json!({ "accountKeys": keys, "instructions": listed });
    tx["transaction"].as_object_mut().unwrap().remove("accountKeys");
    tx["meta"]["innerInstructions"] = Value::Null;
    tx
}

const SYSTEM: &str = "11111111111111111111111111111111";
const TOKEN: &str = crate::made::SPL_TOKEN;

fn system(number: u32, lamports: u64) -> Vec<u8> {
    [number.to_le_bytes().as_slice(), &lamports.to_le_bytes()].concat()
}

#[test]
fn of_who_lost_only_who_sent_to_us_counts() {
    // Two pay, one of them somebody else; the fee payer none.
    let made = Made::default().account("F", [9, 9]).account("A", [90, 60]).account("B", [80, 30]);
    let made = made.account("V", [0, 50]).account("W", [0, 30]);
    let seed = [3_u32.to_le_bytes().as_slice(), &[1; 32], &2_u64.to_le_bytes(), b"ab", &30_u64.to_le_bytes()].concat();
    for (accounts, data) in [
        (&[1, 4][..], system(2, 30)),
        (&[1, 4], system(0, 30)),
        (&[1, 4], system(5, 30)),
        (&[1, 1, 4], system(11, 30)),
        (&[1, 4], seed),
    ] {
        let tx = with(&made, &[(SYSTEM, &[2, 3], &system(2, 50)), (SYSTEM, accounts, &data)]);
        let (leg, rule) = leg(&Rules::of(&listing(&[])), &tx, &key("W"));
        assert_eq!((leg.sender.to_string(), rule), (key("F"), SenderRule::StandIn), "by balances alone");
        assert_eq!(by_instructions(&tx, &leg), (key("A"), SenderRule::Instruction), "{data:?}");
    }
    // Of unknown programs nothing is known.
    let tx = with(&made, &[(&key("router"), &[1, 4], &system(2, 30))]);
    let (leg, _) = leg(&Rules::of(&listing(&[])), &tx, &key("W"));
    assert_eq!(by_instructions(&tx, &leg), (key("F"), SenderRule::FeePayer));
}

/// The same, where its first instruction calls all those behind it but the last one.
fn called(mut tx: Value) -> Value {
    let listed = tx["transaction"]["message"]["instructions"].as_array().unwrap().clone();
    let (first, last) = (listed.first().unwrap(), listed.last().unwrap());
    tx["meta"]["innerInstructions"] = json!([{ "index": 0, "instructions": listed[1..listed.len() - 1] }]);
    tx["transaction"]["message"]["instructions"] = json!([first, last]);
    tx
}

#[test]
fn what_an_instruction_calls_names_senders_in_its_place() {
    let router = key("router");
    // Two sent as much: the one who did first is named, by what the router called.
    let made = Made::default().account("F", [9, 9]).account("A", [90, 60]).account("B", [80, 50]);
    let made = made.account("W", [0, 60]);
    let sent = system(2, 30);
    let tx = called(with(&made, &[(&router, &[], &[1]), (SYSTEM, &[1, 3], &sent), (SYSTEM, &[2, 3], &sent)]));
    let (paid, rule) = leg(&Rules::of(&listing(&[])), &tx, &key("W"));
    assert_eq!(rule, SenderRule::StandIn, "balances do not tell");
    assert_eq!(by_instructions(&tx, &paid), (key("A"), SenderRule::Instruction));

    // A batch of two transfers that was called.
    let made = Made::default()
        .account("F", [9, 9])
        .tokens("A's", "A", USDC, [5; 2], [Some(70), Some(40)])
        .tokens("B's", "B", USDC, [5; 2], [Some(10), Some(0)])
        .tokens_at(associated(&key("W")), "W", USDC, [5; 2], [Some(0), Some(30)])
        .tokens("V's", "V", USDC, [5; 2], [Some(0), Some(10)]);
    let one = |amount: u64| [&[3, 9, 3][..], &amount.to_le_bytes()].concat();
    let batch = [vec![255], one(10), one(30)].concat();
    let accounts = [2, 4, 0, 1, 3, 0];
    let tx = called(with(&made, &[(&router, &[], &[1]), (TOKEN, &accounts, &batch), (&router, &[], &[2])]));
    let (paid, rule) = leg(&Rules::of(&listing(&[])), &tx, &key("W"));
    assert_eq!(rule, SenderRule::StandIn);
    assert_eq!(by_instructions(&tx, &paid), (key("A"), SenderRule::Instruction));
}

#[test]
fn the_owner_is_named_and_not_the_delegate_who_signed() {
    let made = Made::default()
        .account("delegate", [9, 9])
        .tokens("A's", "A", USDC, [5; 2], [Some(70), Some(40)])
        .tokens("B's", "B", USDC, [5; 2], [Some(10), Some(0)])
        .tokens_at(associated(&key("W")), "W", USDC, [5; 2], [Some(0), Some(30)])
        .tokens("V's", "V", USDC, [5; 2], [Some(0), Some(10)]);
    let transfer = [&[3][..], &30_u64.to_le_bytes()].concat();
    let checked = [&[12][..], &30_u64.to_le_bytes(), &[6]].concat();
    let rules = Rules::of(&listing(&[]));
    for (accounts, data) in [(&[1, 3, 0][..], transfer), (&[1, 0, 3, 0], checked)] {
        let tx = with(&made, &[(TOKEN, accounts, &data)]);
        let (leg, rule) = leg(&rules, &tx, &key("W"));
        assert_eq!(rule, SenderRule::StandIn);
        assert_eq!(by_instructions(&tx, &leg), (key("A"), SenderRule::Instruction));
    }
    // Whatever a batch claims, nothing is read beyond its end.
    for batch in [&[255_u8][..], &[255, 9], &[255, 3, 200, 3], &[255, 200, 9, 3], &[255, 0, 0, 0, 0]] {
        let tx = with(&made, &[(TOKEN, &[1, 3, 0], batch)]);
        let (leg, _) = leg(&rules, &tx, &key("W"));
        assert_eq!(by_instructions(&tx, &leg), (key("delegate"), SenderRule::FeePayer));
    }
}

#[test]
fn an_answer_that_is_not_whole_names_nobody() {
    let tx = load_one("sol_two_senders")["json"].clone();
    let (mut leg, _) = leg(&Rules::of(&listing(&[])), &tx, W);
    let rules = Rules::of(&listing(&[]));
    let ask =
        |tx: &Value, leg: &AssetTransfer| sender::by_instructions(&rules, &serde_json::to_string(tx).unwrap(), leg);
    assert_eq!(ask(&Value::Null, &leg), Err(Unusable::Null));
    let mut broken = tx.clone();
    broken["transaction"]["message"]["instructions"][0]["accounts"][0] = 200.into();
    assert_eq!(ask(&broken, &leg), Err(Unusable::Instruction));
    let mut broken = tx.clone();
    broken["transaction"]["message"]["instructions"][0]["data"] = "0OIl".into();
    assert_eq!(ask(&broken, &leg), Err(Unusable::Instruction));
    let mut broken = tx.clone();
    broken["meta"] = Value::Null;
    assert_eq!(ask(&broken, &leg), Err(Unusable::NoMeta { index: 0 }));
    leg.tx.id = TxId::Solana([1; 64]);
    assert_eq!(ask(&tx, &leg), Err(Unusable::OtherTransaction));
}
