//! Transactions of real programs on surfpool: what each was made to pay is what is read, in every shape.

use landfall_chain::{Legs, Payer, SenderRule, Verdict};
use landfall_solana::{Candidate, Rules, sender};
use serde_json::Value;

use crate::fixtures::{accounts_shape, asset, credits, line, listing, load, read, refusals};

/// The owners that these pay.
const WATCHED: [&str; 2] =
    ["48Rtpgcf4SmXzvDqtU1ipw41fZJEwyaRjhHx3SuCkqdB", "DRe5toWZcWEiyhDTM8sbjTPZHx5bCheizFzL9oEisG7x"];
pub(crate) const NAMES: [&str; 27] = [
    "multi_assets_one_tx",
    "ptoken_batch_two_transfers",
    "ptoken_unwrap_lamports",
    "sol_failed",
    "sol_in_and_out_net_zero",
    "sol_transfer_legacy",
    "sol_transfer_sponsored",
    "sol_transfer_v1",
    "sol_two_senders",
    "spl_close_account_rent_refund",
    "spl_failed",
    "spl_mint_to",
    "spl_own_accounts_move",
    "spl_set_authority_owner_change",
    "spl_transfer_checked_new_ata",
    "spl_transfer_unchecked",
    "t22_close_account_rent_refund",
    "t22_failed",
    "t22_mint_to",
    "t22_own_accounts_move",
    "t22_permanent_delegate_clawback",
    "t22_set_authority_owner_change",
    "t22_transfer_checked_new_ata",
    "t22_transfer_checked_with_fee",
    "t22_transfer_fee_1pct",
    "t22_transfer_unchecked",
    "wsol_wrap_to_watched_owner",
];

pub(crate) fn load_one(name: &str) -> Value {
    load(&format!("surfpool_generated/{name}.json"))
}

/// What the second owner got, by the balances in the file, where the file lists the first one's only: the lamports that the
/// first one passed on.
const NOT_LISTED: [(&str, &str, &str); 1] = [("sol_in_and_out_net_zero", "SOL", "4000000")];

/// What was paid by the file and by [`NOT_LISTED`]: owner, asset, amount.
fn expected(name: &str, file: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let paid = file["expected"].as_array().unwrap().iter();
    let mut lines: Vec<String> =
        paid.map(|it| [text(&it["owner"]), text(&it["asset"]), text(&it["amount"])].join(" ")).collect();
    let second = NOT_LISTED.into_iter().filter(|(file, ..)| *file == name);
    lines.extend(second.map(|(_, asset, amount)| [WATCHED[1], asset, amount].join(" ")));
    lines.sort();
    lines
}

/// What the two owners received: credited, or into an account of theirs that is not eligible.
fn received(candidate: &Candidate) -> Vec<String> {
    let unattributed = candidate.block.unattributed.iter();
    let ineligible = unattributed.filter(|it| it.verdict == Verdict::IneligibleTokenAccount).map(|it| &it.transfer);
    let legs = candidate.block.transfers.iter().chain(ineligible);
    let mut lines: Vec<String> = legs.map(|leg| line(&leg.recipient, &leg.asset, &leg.amount)).collect();
    lines.retain(|line| WATCHED.iter().any(|owner| line.starts_with(owner)));
    lines.sort();
    lines
}

#[test]
fn every_transaction_pays_what_it_was_made_to_pay_in_every_shape() {
    for name in NAMES {
        let file = load_one(name);
        let rules = Rules::of(&listing(&[file["json"].clone()]));
        let mut shapes = vec![
            ("json", file["json"].clone()),
            ("jsonParsed", file["jsonParsed"].clone()),
            ("accounts", accounts_shape(&file["json"])),
            ("accounts of jsonParsed", accounts_shape(&file["jsonParsed"])),
            ("base64", accounts_shape(&file["base64"])),
        ];
        if let Some(raw) = file.get("json_raw_surfpool") {
            shapes.push(("a closed account that is still told", raw.clone()));
        }
        let first = read(&rules, &[shapes[0].1.clone()]).unwrap();
        assert_eq!(received(&first), expected(name, &file), "{name}");
        for (shape, tx) in shapes {
            let mut candidate = read(&rules, &[tx]).unwrap();
            if shape.starts_with("a closed") {
                candidate.block.txs.clone_from(&first.block.txs);
            }
            assert_eq!(candidate, first, "{name} as {shape}");
        }
    }
}

#[test]
fn every_sender_is_the_one_that_it_was_made_with() {
    let mut checked = 0;
    for name in NAMES {
        let file = load_one(name);
        let (json, rules) = (&file["json"], Rules::of(&listing(&[file["json"].clone()])));
        let candidate = read(&rules, std::slice::from_ref(json)).unwrap();
        let unattributed = candidate.block.unattributed.iter().map(|it| &it.transfer);
        let legs: Vec<_> = candidate.block.transfers.iter().chain(unattributed).collect();
        for paid in file["expected"].as_array().unwrap() {
            let wanted = (paid["owner"].as_str().unwrap(), asset(paid["asset"].as_str().unwrap()));
            let leg = legs.iter().find(|leg| (leg.recipient.to_string().as_str(), leg.asset) == wanted).unwrap();
            let asked = serde_json::to_string(json).unwrap();
            let Payer { sender, rule } = match leg.sender_rule {
                SenderRule::OnlyPayer => leg.payer(),
                _ => sender::by_instructions(&rules, &asked, leg).unwrap(),
            };
            match &paid["source"] {
                Value::String(source) => assert_eq!(sender.to_string(), *source, "{name} by {rule:?}"),
                Value::Array(several) => {
                    assert_eq!(rule, SenderRule::Instruction, "{name}");
                    assert!(several.iter().any(|source| *source == sender.to_string()), "{name}: {sender}");
                }
                _ => assert_eq!(rule, SenderRule::Mint, "{name}: minted"),
            }
            checked += 1;
        }
    }
    assert_eq!(checked, 21);
}

#[test]
fn what_is_no_credit_says_why() {
    let why = |name: &str| {
        let file = load_one(name);
        refusals(&read(&Rules::of(&listing(&[file["json"].clone()])), &[file["json"].clone()]).unwrap())
    };
    let w = WATCHED[0];
    let payer = "3ZGsyvK3wQ6zZD4bC9Zk28oFPcYGkfKivzJG6uhzdusT";
    for program in ["spl", "t22"] {
        let mint = if program == "spl" {
            "5ozRbbjgGAjhmf5wQq5L64Mh9pEDW4Uj4CH25SH8RFkc"
        } else {
            "25JMrxiPdo7qkCJtwykDMS1fah7JbRstsLy7HyCxa13G"
        };
        let cases = [
            ("failed", format!("{payer} SOL 0 reverted_tx")),
            ("own_accounts_move", format!("{w} {mint} 100000 self_transfer")),
            ("set_authority_owner_change", format!("{w} {mint} 900000 ineligible_token_account")),
        ];
        for (name, expected) in cases {
            assert_eq!(why(&format!("{program}_{name}")), [expected], "{program}_{name}");
        }
        let closed = why(&format!("{program}_close_account_rent_refund"));
        assert!(
            closed.iter().any(|line| line.starts_with(&format!("{w} SOL ")) && line.ends_with("rent_refund")),
            "{closed:?}"
        );
    }
}

#[test]
fn what_came_is_reported_to_all_and_what_did_not_come_to_who_asks() {
    let reported = |name: &str, legs: Legs| {
        let tx = [load_one(name)["json"].clone()];
        let answer = serde_json::to_string(&crate::fixtures::block_of(&tx)).unwrap();
        let asked = crate::fixtures::asked(legs);
        let candidate = landfall_solana::block(&Rules::of(&listing(&tx)), &answer, &asked).unwrap();
        assert_eq!(credits(&candidate), Vec::<String>::new());
        refusals(&candidate)
    };
    let why = |reported: &[String]| {
        reported.iter().map(|line| line.split(' ').next_back().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for (name, kept, asked) in [
        ("spl_set_authority_owner_change", vec!["ineligible_token_account"], vec!["ineligible_token_account"]),
        ("spl_own_accounts_move", vec![], vec!["self_transfer"]),
        ("spl_failed", vec![], vec!["reverted_tx"]),
    ] {
        assert_eq!(why(&reported(name, Legs::Creditable)), kept, "{name}");
        assert_eq!(why(&reported(name, Legs::Explained)), asked, "{name}");
    }
}
