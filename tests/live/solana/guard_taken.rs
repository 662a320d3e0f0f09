//! `GUARD_TAKEN`, as the API reports it on a real cluster: somebody sends lamports to the address of a guard before a
//! payment makes it. The address follows from the request and from who pays.
//!
//! What was handed to a node before its guard was taken is not shown here: it waits for the host's clock, which is
//! nobody's to set. `tests/it/sender/guards.rs` shows that.

use std::time::{Duration, Instant};

use landfall::store::ORGANIZATION;
use landfall::transfer::TransferId;
use landfall_chain::IntentKey;
use serde_json::{Value, json};
use solana_sdk::pubkey::Pubkey;
use solana_sdk::signature::{Keypair, Signer as _};

use crate::solana::follower::CHAIN;
use crate::solana::programs::TOKEN;
use crate::solana::transfers::{Bench, CHAIN_REF, SOL};
use crate::stage::Engine;

/// Beyond each deadline and the minute behind it, also where the cluster's clock is late.
const LEAP_SECS: u64 = 500;
/// Longer than 150 blocks and those that make them final take, twice.
const PATIENCE: Duration = Duration::from_secs(180);

/// The transfer that alice's request will make, and its guard.
fn foreseen(alice: &Pubkey, nth: u32) -> (String, Pubkey) {
    let id = TransferId::of(ORGANIZATION, format!("00000000-0000-4000-8000-{nth:012}").parse().unwrap());
    let guard = IntentKey::of(CHAIN_REF, id.0.as_bytes()).guard(&alice.to_bytes());
    (id.to_string(), Pubkey::new_from_array(guard))
}

/// Lets no sponsor carry anything new, or lets all go on: `pause`, `resume`.
fn sponsors(bench: &Bench, verb: &str) {
    for number in ["0", "1"] {
        bench.stage.ok(&["sponsor", verb, number, "--chain", CHAIN.name(), "--reason", "a test"]);
    }
}

async fn until_failed(bench: &Bench, id: &str) -> Value {
    let begun = Instant::now();
    loop {
        let transfer = bench.get(&format!("/v2/crypto/transfers/{id}")).await;
        if transfer["status"] == "FAILED" {
            return transfer;
        }
        assert_eq!(transfer["status"], "ACCEPTED", "{transfer:#}");
        assert!(begun.elapsed() < PATIENCE, "{:#}\n{}", bench.explained(id), bench.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t26_a_guard_that_was_made_before_the_request_or_behind_the_signature_is_guard_taken_and_nothing_is_paid() {
    let bench = Bench::new(Engine::Sqlite, (TOKEN, "spl_token")).await;
    let (stage, cluster, carol) = (&bench.stage, &bench.stage.cluster, Keypair::new().pubkey());
    let [(of_token, early), (of_sol, late)] = [1, 2].map(|nth| foreseen(&bench.alice, nth));
    // As much as the guard would be made with.
    let rent = cluster.rent(0).await;

    let before = stage.pay_sol(&early, rent).await;
    sponsors(&bench, "pause");
    assert_eq!(bench.send(1, ("TOK", "2.5"), &bench.bob).await, of_token);
    assert_eq!(bench.send(2, ("SOL", "0.25"), &carol).await, of_sol);
    for id in [&of_token, &of_sol] {
        let is_signed = |explained: &Value| explained["intents"][0]["signed"] == true;
        stage.until("its signature", || bench.explained(id), is_signed).await;
    }
    let behind = stage.pay_sol(&late, rent).await;
    sponsors(&bench, "resume");
    for id in [&of_token, &of_sol] {
        let is_tried = |explained: &String| explained.contains("kept from being sent by SIMULATION_FAILED");
        stage.until("a try", || stage.ok(&["transfer", "explain", id]), is_tried).await;
    }
    bench.until_available("TOK", "7.5").await;

    cluster.leap(LEAP_SECS).await;
    for (id, taken) in [(&of_token, before), (&of_sol, behind)] {
        let failed = until_failed(&bench, id).await;
        let failure = &failed["failure_details"];
        let by = json!(taken.tx.to_string());
        assert_eq!((&failure["code"], &failure["transaction_hash"]), (&json!("GUARD_TAKEN"), &by), "{failed:#}");
        assert!(failure["reason"].as_str().unwrap().contains("made by somebody else"), "{failure}");
        stage.until("one event", || bench.events(id), |events| *events == ["FAILED"]).await;
        let explained = bench.explained(id);
        assert_eq!((&explained["attempts"], &explained["marks"]), (&json!([]), &json!([])), "{explained:#}");
    }
    bench.until_available("TOK", "10").await;
    bench.until_available("SOL", "1").await;
    assert_eq!(cluster.tokens(&bench.token.ata(&bench.alice)).await, 10_000_000);
    assert_eq!((cluster.tokens(&bench.token.ata(&bench.bob)).await, cluster.lamports(&carol).await), (0, 0));
    for untouched in [&bench.alice, &bench.sponsors[0], &bench.sponsors[1]] {
        assert_eq!(cluster.lamports(untouched).await, SOL, "nobody of ours paid anything");
    }
    for guard in [&early, &late] {
        assert_eq!(cluster.lamports(guard).await, rent);
    }
    let (code, _) = bench.service.unwrap().stop();
    assert_eq!(code, Some(0));
}
