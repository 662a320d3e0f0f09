//! How far backfills have come: one row for each range and for whom it is read, of as many addresses as there are.

use landfall::store::backfills::{self, BackfillRow};
use landfall_chain::{Address, Lane, Proof, ReadProof};

use super::cast::{CHAIN, NOW, write};
use crate::harness::postgres::TestStore;

on_both_engines!(the_progress_of_many_addresses_is_found_again_and_is_no_others);

/// For the first so many addresses, none of which is like another: an index packs what repeats.
fn row(addresses: u64) -> BackfillRow {
    let of = |number: u64| {
        let mix = |part: u64| (number * 3 + part).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes();
        Address::Evm([mix(1), mix(2), mix(3)].concat()[..20].try_into().unwrap()).to_string()
    };
    BackfillRow {
        from: 1,
        to: 100,
        proof: ReadProof::Full,
        lane: Lane::Block,
        scope: (0..addresses).map(of).collect::<Vec<_>>().join(","),
        basis: "basis".to_owned(),
        next: 1,
        found: 0,
        level: None,
    }
}

async fn the_progress_of_many_addresses_is_found_again_and_is_no_others(store: TestStore) {
    for (addresses, next) in [(1, 10), (10_000, 20), (61, 30), (10_000, 40)] {
        let level = (next > 10).then_some(Proof::TwoEndpoints);
        let saved = BackfillRow { next, level, ..row(addresses) };
        write(&store, async |tx| backfills::save(tx, CHAIN, &saved, NOW).await.unwrap()).await;
        let found = backfills::load(&mut store.db.read().await.unwrap(), CHAIN, &row(addresses)).await.unwrap();
        assert_eq!(found, Some(saved));
    }
    for (addresses, next) in [(1, Some(10)), (10_000, Some(40)), (61, Some(30)), (9_999, None)] {
        let found = backfills::load(&mut store.db.read().await.unwrap(), CHAIN, &row(addresses)).await.unwrap();
        assert_eq!(found.map(|found| found.next), next, "{addresses}");
    }
}
