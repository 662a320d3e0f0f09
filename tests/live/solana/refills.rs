//! A sponsor below its floor, on a real cluster: the treasury refills it once, and then it carries a payment.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use solana_sdk::pubkey::Pubkey;
use solana_sdk::signature::{Keypair, Signer as _};

use crate::solana::follower::CHAIN;
use crate::solana::programs::TOKEN;
use crate::solana::stage::Stage;
use crate::solana::transfers::{Bench, SOL, lamports_of};
use crate::stage::Engine;

/// Longer than the sender waits between two checks of what sponsors own, twice.
const PATIENCE: Duration = Duration::from_secs(200);
/// Each sponsor has one SOL.
const KEYS: &str = "signer = \"keystore:keys\"\npassphrase_file = \"passphrase\"\n\
                    [chains.SOLANA_DEVNET.transfers]\nfloor = \"1.5\"\nrefill_to = \"2\"";

impl Bench {
    fn listed(&self, number: usize) -> Value {
        let listed = self.stage.ok(&["sponsor", "list", "--json"]);
        serde_json::from_str(listed.lines().nth(number).unwrap()).unwrap()
    }

    fn shown(&self, number: &str) -> Value {
        self.stage.json(&["sponsor", "show", number, "--chain", CHAIN.name()])
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sponsor_below_its_floor_is_refilled_once_and_then_carries_a_payment() {
    let stage = Stage::new(Engine::Postgres).await;
    let bench = Bench::signing_by(stage, (TOKEN, "spl_token"), KEYS, None).await;
    let (chain, cluster) = (["--chain", CHAIN.name(), "--reason", "a test"], &bench.stage.cluster);
    bench.stage.ok(&[&["sponsor", "pause", "1"][..], &chain].concat());
    bench.stage.ok(&[&["sponsor", "add", "--treasury"][..], &chain].concat());
    let listed = bench.listed(2);
    assert_eq!((&listed["role"], &listed["state"]), (&json!("treasury"), &json!("active")), "{listed}");
    let treasury: Pubkey = listed["address"].as_str().unwrap().parse().unwrap();
    bench.stage.pay_sol(&treasury, 5 * SOL).await;
    let (sponsor, begun) = (bench.sponsors[0], Instant::now());
    while cluster.lamports(&sponsor).await <= SOL {
        assert!(begun.elapsed() < PATIENCE, "{}", bench.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    println!("refilled after {} ms", begun.elapsed().as_millis());
    assert_eq!(cluster.lamports(&sponsor).await, 2 * SOL);
    let refill = loop {
        let refills = bench.shown("0")["refills"].take();
        let [refill] = &refills.as_array().unwrap()[..] else { panic!("{refills}") };
        if refill["state"] == "landed" {
            break refill.clone();
        }
        assert!(begun.elapsed() < PATIENCE, "{refill}: {}", bench.log());
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    assert_eq!(refill["amount"], json!(SOL.to_string()), "{refill}");
    let ledger = bench.stage.ok(&["gas", "ledger", "--json"]);
    let entries = ledger.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let costs: Vec<Value> = entries.filter(|entry| entry["route"] == "refill").collect();
    let [cost] = &costs[..] else { panic!("{costs:?}") };
    assert_eq!((&cost["borne_by"], &cost["transaction_hash"]), (&json!("PLATFORM"), &refill["transaction_hash"]));
    let (spent, rent) = (lamports_of(cost["amount"].as_str().unwrap()), cluster.rent(0).await);
    assert_eq!(cluster.lamports(&treasury).await + SOL + spent, 5 * SOL, "to the lamport");
    assert!(spent > rent && spent < rent + 1_000_000, "{spent} of which {rent} is rent");
    println!("the treasury gave 1 SOL for {spent} lamports, of which {rent} stay in the guard");
    // It is not poor any more, and carries.
    let carol = Keypair::new().pubkey();
    let id = bench.send(1, ("SOL", "0.25"), &carol).await;
    bench.until_confirmed(&id).await;
    assert_eq!(cluster.lamports(&carol).await, SOL / 4);
    assert!(cluster.lamports(&sponsor).await < 2 * SOL, "it paid");
    // Longer than until the next check of what sponsors own.
    while begun.elapsed() < PATIENCE / 2 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(bench.shown("2")["refills"].as_array().unwrap().len(), 1, "one refill");
    let health = bench.stage.run(&["health"]);
    assert_eq!(health.status.code(), Some(0), "{}", String::from_utf8_lossy(&health.stdout));
    let (code, _) = bench.service.unwrap().stop();
    assert_eq!(code, Some(0));
}
