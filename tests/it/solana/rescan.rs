//! `landfall rescan` on Solana: slots are proved again, and reported is where the record says otherwise.

use landfall::deposit::DepositStatus::Confirmed;
use landfall::store::unattributed;
use landfall::watcher::{Difference, Movement, Rescan};
use landfall_chain::{Proof, U256};
use landfall_cluster::{Ledger, Node, Tx, hash};
use serde_json::{Value, json};

use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::solana_ledger::TOKEN_2022;
use crate::past::rescan::execute;
use crate::solana::past::{CHAIN, NOW, OURS, PAYER, deposits_of, held, landfall, store, usdc, watcher};

/// We were paid in slots 14 and 20; 17 is skipped, and all is settled up to 30.
async fn settled(engine: Engine) -> (Ledger, Node, TestStore) {
    let ledger = Ledger::of((10..=30).filter(|slot| *slot != 17));
    [14, 20].into_iter().for_each(|slot| ledger.put(slot, Tx::sol(slot, PAYER, OURS, slot)));
    ledger.finalize(30);
    let (node, store) = (Node::start(&ledger).await, store(engine).await);
    let ticked = watcher(&[&node], &store, 11).tick(NOW).await.unwrap();
    assert_eq!((ticked.pending, ticked.confirmed), (2, 2));
    (ledger, node, store)
}

async fn rescan(node: &Node, store: &TestStore, to: u64, repair: bool) -> Vec<Difference> {
    let mut rescan = Rescan::begin(watcher(&[node], store, 11), 11, to, repair).await.unwrap();
    let mut differences = Vec::new();
    while !rescan.is_done() {
        rescan.step(NOW).await.unwrap();
        differences.extend(rescan.take_differences());
    }
    assert_eq!((rescan.next(), rescan.progress().proof), (to + 1, Some(Proof::OneEndpoint)));
    differences
}

#[tokio::test]
async fn slots_that_agree_with_the_record_differ_nowhere_also_where_the_last_one_is_skipped() {
    for engine in ENGINES {
        let (_, node, store) = settled(engine).await;
        for to in [16, 17, 30] {
            assert_eq!(rescan(&node, &store, to, false).await, [], "{engine:?} {to}");
        }
    }
}

#[tokio::test]
async fn a_deposit_that_is_missing_is_reported_with_whose_word_it_is_and_mended() {
    for engine in ENGINES {
        let (_, node, store) = settled(engine).await;
        for text in [
            "DELETE FROM inclusions WHERE deposit_id IN (SELECT id FROM deposits WHERE amount_text = '20')",
            "DELETE FROM events WHERE aggregateid IN (SELECT id FROM deposits WHERE amount_text = '20')",
            "DELETE FROM deposits WHERE amount_text = '20'",
        ] {
            execute(&store.db, text).await;
        }
        assert_eq!(deposits_of(&store).await.len(), 1);
        let found = rescan(&node, &store, 30, false).await;
        assert!(matches!(found.as_slice(), [Difference::Missing { block, .. }] if block.number == 20), "{found:?}");
        assert!(found[0].to_string().ends_with("is not on record (says one endpoint)"), "{}", found[0]);
        assert_eq!(rescan(&node, &store, 30, true).await.len(), 1);
        let deposits = deposits_of(&store).await;
        assert!(deposits.iter().any(|it| it.amount == U256::from(20) && it.status == Confirmed), "{deposits:?}");
        assert_eq!(rescan(&node, &store, 30, false).await, []);
    }
}

#[tokio::test]
async fn what_came_and_is_no_deposit_is_reported_where_it_is_missing_or_too_much_and_mended() {
    for engine in ENGINES {
        let ledger = Ledger::of(10..=30);
        ledger.put(15, held(1, usdc(), TOKEN_2022, [Some(1), Some(5_000_001)]));
        ledger.finalize(30);
        let (node, store) = (Node::start(&ledger).await, store(engine).await);
        watcher(&[&node], &store, 11).tick(NOW).await.unwrap();
        assert_eq!(rescan(&node, &store, 30, false).await, [], "{engine:?}");
        let arrivals = async || {
            let mut reader = store.db.read().await.unwrap();
            unattributed::list(&mut reader, CHAIN, true, None, 10).await.unwrap()
        };
        let before = arrivals().await;
        assert!(matches!(before.as_slice(), [one] if one.amount == U256::from(5_000_000)), "{before:?}");
        execute(&store.db, "DELETE FROM unattributed").await;
        let found = rescan(&node, &store, 30, true).await;
        let [Difference::Unbooked { block, movement: Movement::Arrival, of: OURS, .. }] = found.as_slice() else {
            panic!("{found:?}")
        };
        assert_eq!((block.number, arrivals().await), (15, before));
        execute(&store.db, "UPDATE unattributed SET reason = 'not_associated'").await;
        let found = rescan(&node, &store, 30, false).await;
        let [too_much, missing] = found.as_slice() else { panic!("{found:?}") };
        assert!(matches!(too_much, Difference::Unmoved { movement: Movement::Arrival, of: OURS, .. }), "{too_much:?}");
        assert!(matches!(missing, Difference::Unbooked { movement: Movement::Arrival, .. }), "{missing:?}");
    }
}

#[tokio::test]
async fn another_block_one_that_is_not_there_and_a_deposit_too_many_are_reported() {
    for engine in ENGINES {
        let (_, node, store) = settled(engine).await;
        // The chain has no block in 20, nothing for us in 14, and from 25 on it is another branch.
        let other = Ledger::of((10..=24).filter(|slot| ![17, 20].contains(slot)));
        let other = other.branch_at(24);
        for slot in 25..=30 {
            other.produce(slot, Vec::new());
        }
        other.finalize(30);
        node.show(&other);
        let found = rescan(&node, &store, 30, true).await;
        let [Difference::NotThere { block, .. }, Difference::NoBlock { ours, deposits }, replaced @ ..] =
            found.as_slice()
        else {
            panic!("{found:?}")
        };
        assert_eq!((block.number, ours.number, ours.hash), (14, 20, hash(20, 0)), "{engine:?}");
        assert!(matches!(deposits.as_slice(), [(_, Confirmed)]), "{deposits:?}");
        assert!(found[1].to_string().contains("(CONFIRMED) was seen in it"), "{}", found[1]);
        let numbers: Vec<u64> = replaced
            .iter()
            .map(|difference| match difference {
                Difference::OtherBlock { finalized, ours } if *ours == hash(finalized.number, 0) => finalized.number,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(numbers, (25..=30).collect::<Vec<_>>());
        assert_eq!(deposits_of(&store).await.len(), 2, "nothing is ever taken away");
    }
}

#[tokio::test]
async fn with_json_each_line_of_the_real_command_is_an_object_and_the_last_one_reports_how_it_went() {
    let (_, node, store) = settled(Engine::Sqlite).await;
    let other = Ledger::of((10..=30).filter(|slot| ![17, 20].contains(slot)));
    other.finalize(30);
    node.show(&other);
    let deposits = deposits_of(&store).await;
    let [first, second] = [14, 20].map(|amount| deposits.iter().find(|it| it.amount == U256::from(amount)).unwrap());
    let folder = crate::harness::postgres::folder();
    let config = format!(
        "[store]\nurl = \"{}\"\n[api]\nenvironment = \"live\"\n[chains.SOLANA_MAINNET]\nrpc = [\"{}\"]\n",
        store.url,
        node.url()
    );
    std::fs::write(folder.path().join("landfall.toml"), config).unwrap();
    let range = ["rescan", "--chain", "SOLANA_MAINNET", "--from", "11", "--to", "20", "--json"];
    let (code, reported, said) = landfall(folder.path(), &range).await;
    assert_eq!(code, Some(1), "{reported}{said}");
    let reported: Vec<Value> = reported.lines().map(|line| serde_json::from_str(line).expect(line)).collect();
    let [not_there, no_block, summary] = reported.as_slice() else { panic!("{reported:?}") };
    let of = |id: &landfall::deposit::DepositId| json!([{ "deposit_id": id.to_string(), "status": "CONFIRMED" }]);
    for (line, difference, slot, deposit) in [(not_there, "not_there", 14, first), (no_block, "no_block", 20, second)] {
        assert_eq!((&line["difference"], &line["block_number"]), (&json!(difference), &json!(slot)), "{line}");
        assert_eq!((&line["deposits"], &line["chain"]), (&of(&deposit.id), &json!("SOLANA_MAINNET")), "{line}");
        assert!(line["reason"].as_str().unwrap().contains(&deposit.id.to_string()), "{line}");
    }
    assert_eq!((&not_there["proof"], &no_block["proof"]), (&json!("one_endpoint"), &Value::Null));
    assert_eq!((&summary["found"], &summary["next"], &summary["done"]), (&json!(2), &json!(21), &json!(true)));
}
