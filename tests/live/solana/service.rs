//! The program itself on Solana, as operators run it: from a payment to the webhook, past slots beside the service, why
//! a leg is a credit or none, wake-ups, and what is known of mints.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use solana_sdk::instruction::Instruction;
use solana_sdk::pubkey::Pubkey;
use solana_sdk::signature::{Signature, Signer};

use crate::solana::follower::CHAIN;
use crate::solana::programs::{self as call, DELEGATE_MINT_BYTES, FEE_MINT_BYTES, MINT_BYTES, TOKEN, TOKEN_2022};
use crate::solana::stage::{PATIENCE, Stage, listed};
use crate::stage::Engine;

/// The longest poll that may be configured.
const RARE_POLL_MS: u64 = 60_000;
/// Those that come one behind the other.
const PAYMENTS: u64 = 3;

#[tokio::test(flavor = "multi_thread")]
async fn sol_goes_through_the_whole_program_to_the_webhook_and_is_explained_on_sqlite() {
    from_slot_to_webhook(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sol_goes_through_the_whole_program_to_the_webhook_and_is_explained_on_postgresql() {
    from_slot_to_webhook(Engine::Postgres).await;
}

async fn from_slot_to_webhook(engine: Engine) {
    let stage = Stage::new(engine).await;
    let alice = Pubkey::new_unique();
    stage.watch("alice", &alice);
    let service = stage.start();
    stage.until("the chain is followed", || stage.status(), |status| status["state"] == "following").await;
    let landed = stage.pay_sol(&alice, 1_500_000_000).await;
    let tx = landed.tx.to_string();
    stage.until("a deposit", || stage.deposits(), |deposits| deposits.len() == 1).await;
    let deposit = stage.until_status("1.5", "CONFIRMED").await;
    assert_eq!((&deposit["transaction_hash"], &deposit["currency_symbol"]), (&json!(tx), &json!("SOL")), "{deposit}");
    assert!(stage.cluster.slot("finalized").await >= landed.slot, "CONFIRMED above what is final");
    stage.until_reported(1).await;

    let reported = stage.json(&["deposit", "explain", CHAIN.name(), &tx]);
    assert_eq!(
        (&reported["block"]["number"], &reported["block"]["final"]),
        (&json!(landed.slot), &json!(true)),
        "{reported}"
    );
    assert_eq!(reported["traces"]["state"], "not_traced");
    let legs = reported["legs"].as_array().unwrap();
    let [leg] = legs.as_slice() else { panic!("one leg: {reported}") };
    let payer = stage.cluster.payer.pubkey().to_string();
    assert_eq!(
        (&leg["verdict"], &leg["amount"], &leg["source_address"]),
        (&"credited".into(), &"1.5".into(), &payer.into())
    );
    assert_eq!((&leg["deposit"]["id"], &leg["deposit"]["account_id"]), (&deposit["id"], &"alice".into()));
    let table = stage.ok(&["deposit", "explain", CHAIN.name(), &tx]);
    assert!(table.starts_with(&tx) && table.contains("credited             1.5 SOL from "), "{table}");
    let unknown = Signature::from([7; 64]).to_string();
    let output = stage.run(&["deposit", "explain", CHAIN.name(), &unknown, "--json"]);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(1), [].as_slice()));

    let health = stage.until("healthy", || stage.run(&["health"]), |health| health.status.success()).await;
    assert_eq!(health.stdout, b"healthy\n");
    let (code, took) = service.stop();
    assert_eq!(code, Some(0));
    assert!(took < PATIENCE, "{took:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn payments_from_before_an_owner_was_added_are_found_by_address_or_by_slots_beside_the_service() {
    let stage = Stage::new(Engine::Sqlite).await;
    let token = stage.make_token(TOKEN, MINT_BYTES, |_, _| None).await;
    stage.configure(&[], 100, &listed("TOK", &token, 6, "spl_token"));
    let [alice, bob, carol] = [(); 3].map(|()| Pubkey::new_unique());
    stage.watch("alice", &alice);
    let service = stage.start();
    stage.until("the chain is followed", || stage.status(), |status| status["state"] == "following").await;
    let first = stage.pay_sol(&bob, 1_100_000_000).await.slot;
    stage.pay(&token, &bob, 2_000_000).await;
    stage.pay_sol(&carol, 1_200_000_000).await;
    let last = stage.pay(&token, &carol, 3_000_000).await.slot;
    stage.until_final(last).await;
    assert!(stage.deposits().is_empty());

    stage.watch("bob", &bob);
    stage.watch("carol", &carol);
    let (from, to) = (first.to_string(), last.to_string());
    // The cluster did not begin with slot 1: what it keeps must be said.
    let oldest = stage.cluster.rpc("getFirstAvailableBlock", json!([])).await.as_u64().unwrap();
    let chain = CHAIN.name();
    if oldest > 1 {
        let refused = stage.run(&["backfill", "--chain", chain, "--address", &bob.to_string()]);
        let line = String::from_utf8(refused.stderr).unwrap();
        assert!(line.contains(&format!("begins at slot {oldest}: add an endpoint that keeps more")), "{line}");
        assert!(!refused.status.success() && stage.deposits().is_empty());
    }
    let oldest = oldest.to_string();
    let by_address = |owner: &Pubkey| {
        stage.json(&["backfill", "--chain", chain, "--address", &owner.to_string(), "--from", &oldest])
    };
    let by_slots = || stage.json(&["backfill", "--chain", CHAIN.name(), "--from", &from, "--to", &to]);
    let done = by_address(&bob);
    assert_eq!((&done["found"], &done["done"]), (&json!(2), &json!(true)), "{done}");
    let done = by_slots();
    assert_eq!((&done["found"], &done["done"]), (&json!(2), &json!(true)), "Carol's two: {done}");
    for done in [by_address(&bob), by_address(&carol), by_slots()] {
        assert_eq!((&done["found"], &done["done"]), (&json!(0), &json!(true)), "again: {done}");
    }
    let mut found: Vec<String> = Vec::new();
    for deposit in stage.deposits() {
        assert_eq!(deposit["status"], "CONFIRMED", "{deposit}");
        let field = |name: &str| deposit[name].as_str().unwrap();
        found.push(format!("{} {} {}", field("account_id"), field("amount"), field("currency_symbol")));
    }
    found.sort_unstable();
    assert_eq!(found, ["bob 1.1 SOL", "bob 2 TOK", "carol 1.2 SOL", "carol 3 TOK"]);

    // The service goes on, and knows them by now.
    stage.pay_sol(&bob, 1_300_000_000).await;
    stage.until_status("1.3", "CONFIRMED").await;
    stage.until_reported(5).await;
    assert_eq!(service.stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slot_subscription_wakes_up_long_before_the_next_poll_and_is_never_read_from() {
    let stage = Stage::new(Engine::Sqlite).await;
    let ws = stage.cluster.ws().await;
    stage.configure(&[&ws], RARE_POLL_MS, "");
    let alice = Pubkey::new_unique();
    stage.watch("alice", &alice);
    let service = stage.start();
    stage.until("the chain is followed", || stage.status(), |status| status["state"] == "following").await;
    let begun = Instant::now();
    for number in 1..=PAYMENTS {
        stage.pay_sol(&alice, number * 1_000_000_000).await;
        let amount = json!(number.to_string());
        let seen = |deposits: &Vec<Value>| deposits.iter().any(|deposit| deposit["amount"] == amount);
        stage.until("the payment is seen", || stage.deposits(), seen).await;
    }
    // By polls alone each but the first would take a whole one.
    let took = begun.elapsed();
    assert!(took < Duration::from_millis((PAYMENTS - 1) * RARE_POLL_MS), "{took:?}");
    println!("{PAYMENTS} payments, one behind the other, were seen after {} ms", took.as_millis());
    let status = stage.status();
    let id = format!("{} (wake-ups)", ws.split_once("//").unwrap().1.trim_end_matches('/'));
    let endpoints = status["endpoints"].as_array().unwrap();
    let of_wakes = endpoints.iter().find(|endpoint| endpoint["id"] == id);
    let of_wakes = of_wakes.unwrap_or_else(|| panic!("{id} is shown: {status}"));
    assert_eq!(
        (&of_wakes["latest"], &of_wakes["reason"]),
        (&Value::Null, &json!("wake-ups only")),
        "no word of its is kept"
    );
    assert_eq!(service.stop().0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn s12_what_listed_mints_are_is_shown_and_what_the_configuration_has_wrong_is_an_incident() {
    let stage = Stage::new(Engine::Sqlite).await;
    let fee = stage.make_token(TOKEN_2022, FEE_MINT_BYTES, |it, payer| Some(it.initialize_fee(payer, 150))).await;
    let delegate = stage
        .make_token(TOKEN_2022, DELEGATE_MINT_BYTES, |it, payer| Some(it.initialize_permanent_delegate(payer)))
        .await;
    let fake = stage.make_token(TOKEN, MINT_BYTES, |_, _| None).await;
    let list = [listed("FEE", &fee, 6, "token_2022"), listed("PERM", &delegate, 9, "token_2022")];
    stage.configure(&[], 100, &list.concat());
    let alice = Pubkey::new_unique();
    stage.watch("alice", &alice);
    // A block that moves what is listed with other decimals stops the chain: none is read here.
    stage.until_all_is_final().await;
    let service = stage.start();
    stage.until("the chain is followed", || stage.status(), |status| status["state"] == "following").await;

    // 1.5% stays behind; of an unlisted mint nothing counts.
    stage.pay(&fee, &alice, 1_000_000).await;
    let spam = stage.pay(&fake, &alice, 77).await.tx.to_string();
    stage.until_status("0.985", "CONFIRMED").await;
    let reported = stage.json(&["deposit", "explain", CHAIN.name(), &spam]);
    let legs = reported["legs"].as_array().unwrap().iter().filter(|leg| leg["asset"] == fake.mint.to_string());
    let [leg] = legs.collect::<Vec<_>>()[..] else { panic!("one leg of it: {reported}") };
    assert_eq!((&leg["verdict"], &leg["base_units"]), (&json!("unlisted_token"), &json!("77")), "{reported}");
    assert_eq!((&leg["reason"], &leg["amount"]), (&json!("its token is not listed"), &Value::Null));
    assert_eq!(
        stage.ok(&["deposit", "unattributed"]).matches("unlisted_token").count(),
        0,
        "anybody can make any amount of it"
    );
    let wrapped = stage.send(&wrap_to(&stage, &alice), &[]).await.tx.to_string();
    let table = stage
        .until(
            "its block is read",
            || stage.run(&["deposit", "explain", CHAIN.name(), &wrapped]),
            |it| it.status.success(),
        )
        .await;
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(
        table.contains("unlisted_token") && table.contains("(its token is not listed; wrapped SOL: list its mint in "),
        "{table}"
    );

    let is_reported = |status: &Value| {
        let assets = status["assets"].as_array().unwrap();
        let reported =
            |symbol: &str| assets.iter().any(|asset| asset["symbol"] == symbol && !asset["reported_at"].is_null());
        reported("FEE") && reported("PERM")
    };
    let status = stage.until("both mints are looked at", || stage.status(), is_reported).await;
    let of =
        |symbol: &str| status["assets"].as_array().unwrap().iter().find(|asset| asset["symbol"] == symbol).unwrap();
    let payer = stage.cluster.payer.pubkey().to_string();
    let asset = of("FEE");
    assert_eq!(
        (&asset["program"], &asset["decimals"], &asset["differs"]),
        (&json!("token_2022"), &json!(6), &json!(""))
    );
    assert_eq!(
        (&asset["extensions"], &asset["transfer_fee_basis_points"]),
        (&json!(["transfer_fee_config"]), &json!(150))
    );
    let asset = of("PERM");
    assert_eq!(
        (&asset["extensions"], &asset["risks"]),
        (&json!(["permanent_delegate"]), &json!(["permanent_delegate"]))
    );
    assert_eq!((&asset["permanent_delegate"], &asset["freeze_authority"]), (&json!(payer), &Value::Null));
    assert_eq!(asset["differs"], "it has 6 decimals, and is listed with 9");
    let lines = stage.ok(&["status"]);
    let line = format!("PERM ({}): kept by token_2022; 6 decimals; {payer} may take it from anybody; ", delegate.mint);
    assert!(lines.contains(&line), "{lines}");
    let health = stage.run(&["health"]);
    let said = String::from_utf8(health.stdout).unwrap();
    assert!(health.status.code() == Some(1) && said.contains("asset_mismatch, is open"), "{said}");
    assert_eq!(service.stop().0, Some(0));
}

/// Wrapped SOL for somebody: lamports into the associated account, and the program is made to count them.
fn wrap_to(stage: &Stage, owner: &Pubkey) -> Vec<Instruction> {
    let payer = stage.cluster.payer.pubkey();
    let token = call::Token { mint: call::WRAPPED_SOL, program: TOKEN, decimals: 9 };
    let account = token.ata(owner);
    vec![token.make_ata(&payer, owner), call::transfer(&payer, &account, 40), token.sync_native(&account)]
}
