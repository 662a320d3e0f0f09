//! The page of the restore, word by word: a store is backed up, pays, is set back, and each step of
//! `docs/operate/backup-and-restore.md` is taken in its order.

use std::fs;
use std::path::Path;
use std::time::Duration;

use landfall::transfer::{FailureCode, State};

use super::{BLOCKS_MAX, BOB, Bench, LEASE_OVER, sender};
use crate::harness::postgres::ENGINES;
use crate::harness::world::{CHAIN, address};

/// The steps as the page has them, each up to the end of its first sentence.
const STEPS: [&str; 11] = [
    "Stop every `run`.",
    "Put the copy in place of the store.",
    "Sending: `landfall sender recover --reason \"the store was set back\"`.",
    "Add again the accounts that were added by command or import since the copy.",
    "Revoke again the API keys that were revoked since.",
    "Rotate the webhook keys that were rotated since.",
    "Start `run`.",
    "Have clients send again the requests for accounts that they made since the copy.",
    "Sending: wait until `landfall sender status` shows no chain that recovers.",
    "Sending: have clients send again the requests for transfers that they made since the copy.",
    "See what is left: `landfall incident list`.",
];

#[test]
fn the_steps_of_the_page_are_those_that_the_scene_takes() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/operate/backup-and-restore.md"));
    let page = page.unwrap();
    let (_, section) = page.split_once("\n## Restore\n").unwrap();
    let (section, _) = section.split_once("\n##").unwrap();
    let numbered = section.lines().filter_map(|line| line.split_once(". "));
    let steps: Vec<&str> = numbered.filter(|(number, _)| number.parse::<u32>().is_ok()).map(|(_, step)| step).collect();
    assert_eq!(steps.len(), STEPS.len(), "{steps:?}");
    for (step, expected) in steps.iter().zip(STEPS) {
        assert!(step.starts_with(expected), "{step}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_restored_as_the_page_says_pays_nothing_twice_and_finds_what_was_paid() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        let old = bench.accept(1, 1_000).await;
        assert_eq!(bench.until_ended(old).await, State::Confirmed);
        let known = bench.accept(2, 1_000).await;
        let backup = bench.world.store.back_up().await;
        // Since then: what was on record is paid, so is a new one, and one is carried and lost.
        let lost = bench.accept(3, 1_000).await;
        assert_eq!(bench.until_ended(lost).await, State::Confirmed);
        let paid = bench.shown(lost).await;
        bench.world.watch("bob", address(BOB)).await;
        let unpaid = bench.accept(4, 1_000).await;
        bench.settle().await;
        bench.world.chain.forget_pool();

        // 1, 2: nobody runs, and the copy stands in the store's place. The signer keeps its journal.
        let restored = bench.world.store.restored(&backup).await;
        let world = bench.world.beside(restored);
        std::mem::replace(&mut bench.world, world).abandon();
        // 3
        bench.world.operator().recover_sending(bench.world.db(), &[CHAIN]).await.unwrap();
        // 4; here no key and no webhook was changed (5, 6).
        bench.world.watch("bob", address(BOB)).await;
        // 7
        bench.world.pass(LEASE_OVER);
        bench.sender = sender(&bench.world, &bench.signer, 1_000);
        bench.follow().await;
        assert_eq!(bench.state(old).await, State::Confirmed);
        assert_eq!(bench.state(known).await, State::Confirmed, "the blocks show it");
        // 8: no account was made by a client. 9
        let signed = bench.signer.seq();
        bench.until_recovered().await;
        assert_eq!(bench.signer.seq(), signed, "nothing is signed before");
        // 10: the same request is the same transfer, by the same block.
        assert_eq!(bench.accept(3, 1_000).await, lost);
        bench.settle().await;
        let found = bench.shown(lost).await;
        assert_eq!((found.state, found.tx, bench.payments(lost).len()), (State::Confirmed, paid.tx, 1));
        assert_eq!(bench.history(lost).await, ["accepted", "carried", "included", "confirmed"]);
        // What the journal has and no block shows is not signed with another deadline.
        assert_eq!(bench.accept(4, 1_000).await, unpaid);
        assert_eq!(bench.until_ended(unpaid).await, State::Dropped(FailureCode::WindowElapsed));
        // 11
        let behind = bench.behind().await;
        assert_eq!(behind.len(), 1, "a person is told");
        bench.world.operator().resolve(bench.world.db(), &behind[0].id).await.unwrap();
        assert_eq!(bench.behind().await, []);
        let next = bench.accept(5, 1_000).await;
        assert_eq!(bench.until_ended(next).await, State::Confirmed);
        bench.world.pass(Duration::from_secs(60));
        bench.blocks(u64::from(BLOCKS_MAX)).await;
        assert!(!bench.recovers().await, "it is over");
        assert_eq!(bench.behind().await, []);
        bench.close().await;
    }
}
