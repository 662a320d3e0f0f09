//! The rebuild: the same chain read again into an empty store gives the same ids, byte for byte.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::stage::{Engine, Stage, address};

const ALICE: u8 = 0xa1;

#[tokio::test(flavor = "multi_thread")]
async fn a_rebuilt_store_has_the_same_deposit_ids_dedup_keys_and_event_ids() {
    let mut stage = Stage::new(Engine::Sqlite).await;
    stage.set_up("alice", &address(ALICE)).await;
    let service = stage.start();
    stage.until_caught_up().await;
    // The first run sees each deposit PENDING, one of them in two blocks.
    for amount in 1..=5_u64 {
        let paid = stage.pay_token(address(ALICE), amount * 1_000_000).await;
        stage.node.mine(1).await.unwrap();
        stage.until_status(&amount.to_string(), "PENDING").await;
        if amount == 3 {
            stage.node.reorg(1).await.unwrap();
            stage.until_caught_up().await;
            stage.send_again(&paid).await;
            stage.node.mine(1).await.unwrap();
        }
    }
    stage.node.mine(3).await.unwrap();
    let all_confirmed = |d: &[Value]| d.len() == 5 && d.iter().all(|d| d["status"] == "CONFIRMED");
    let first = stage.until("five CONFIRMED", all_confirmed).await;
    let first_events = events(&stage, 10).await;
    assert_eq!(service.stop().0, Some(0));

    // The second one sees all of them final at once.
    stage.configure("sqlite:rebuilt.db", "");
    stage.set_up("alice", &address(ALICE)).await;
    let before = stage.receiver.log().len();
    let service = stage.start();
    let second = stage.until("five CONFIRMED again", all_confirmed).await;
    let second_events = events(&stage, before + 10).await.split_off(before);
    assert_eq!(service.stop().0, Some(0));

    assert_eq!(identities(&second), identities(&first));
    assert_eq!(by_deposit(&second_events), by_deposit(&first_events));
}

fn identities(deposits: &[Value]) -> BTreeMap<String, String> {
    deposits.iter().map(|d| (d["id"].to_string(), d["dedup_key"].to_string())).collect()
}

/// (deposit, status) -> event id.
fn by_deposit(events: &[(String, String, String)]) -> BTreeMap<(String, String), String> {
    let named = events.iter().map(|(deposit, status, id)| ((deposit.clone(), status.clone()), id.clone()));
    named.collect()
}

/// The first `count` events that arrived, as (deposit, status, id).
async fn events(stage: &Stage, count: usize) -> Vec<(String, String, String)> {
    for _ in 0..1_200 {
        let log = stage.receiver.log();
        if log.len() >= count {
            let named = log.iter().map(|e| (e.field("id").to_owned(), e.field("status").to_owned(), e.id.clone()));
            return named.collect();
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{} of {count} events arrived", stage.receiver.log().len());
}
