//! Keys, watchers' reports of their chains, and the length of the queue.

use std::collections::BTreeMap;

use landfall::key::{Environment, Scope};
use landfall::store::StoreError;
use landfall::store::cursors::Cursor;
use landfall::store::deliveries;
use landfall::store::keys::{self, KeyRow};
use landfall::store::status::{self, ChainStatus, QueueStatus};
use landfall::time::Timestamp;
use landfall_chain::{EndpointState, EndpointStatus};

use super::cast::{CHAIN, LEASE, NOW, block, claimed_once, write};
use crate::harness::postgres::TestStore;

on_both_engines!(
    keys_are_found_by_id_and_no_more_than_the_most_are_taken,
    a_watchers_word_replaces_its_former_one,
    the_queue_reports_what_is_undelivered_since_when,
);

async fn keys_are_found_by_id_and_no_more_than_the_most_are_taken(store: TestStore) {
    let key = KeyRow {
        id: "k1".to_owned(),
        name: "it's \"one\"".to_owned(),
        secret_hash: vec![0, 1, 0xff],
        environment: Environment::Live,
        scopes: Scope::Read.into(),
    };
    let other = KeyRow {
        id: "k2".to_owned(),
        name: String::new(),
        secret_hash: vec![2; 32],
        environment: Environment::Test,
        scopes: Scope::Admin.into(),
    };
    for key in [&key, &other] {
        write(&store, async |tx| assert!(keys::insert(tx, key, 2, NOW).await.unwrap())).await;
    }
    let mut tx = store.db.begin().await.unwrap();
    assert!(matches!(keys::insert(&mut tx, &key, 3, NOW).await, Err(StoreError::Failed { .. })), "an id is given once");
    drop(tx);
    let third = KeyRow { id: "k3".to_owned(), ..key.clone() };
    write(&store, async |tx| assert!(!keys::insert(tx, &third, 2, NOW).await.unwrap(), "there are two already")).await;
    let mut reader = store.db.read().await.unwrap();
    let known = keys::known(&mut reader, "k1").await.unwrap().unwrap().key;
    let of =
        |KeyRow { id, name, secret_hash, environment, scopes }: KeyRow| (id, name, secret_hash, environment, scopes);
    assert_eq!(of(known), of(key));
    assert!(keys::known(&mut reader, "K1").await.unwrap().is_none());
    let listed = keys::list(&mut reader).await.unwrap();
    let of: Vec<_> = listed.iter().map(|key| (&*key.id, key.environment)).collect();
    assert_eq!(of, [("k1", Environment::Live), ("k2", Environment::Test)]);
}

async fn a_watchers_word_replaces_its_former_one(store: TestStore) {
    let endpoint = |id: &str, state, latest: Option<u64>| {
        let reason = if state == EndpointState::Healthy { "" } else { "refused" };
        let (id, reason, latency_ms) = (id.to_owned(), reason.to_owned(), latest.map(|_| 12));
        EndpointStatus { id, state, reason, latest, latency_ms, refused: BTreeMap::new() }
    };
    let word = ChainStatus {
        chain: CHAIN,
        state: "behind".to_owned(),
        reason: "catching up".to_owned(),
        proof: "roots".to_owned(),
        latest: Some(u64::from(u32::MAX)),
        finalized: None,
        cursor: None,
        caught_up_at: Timestamp::EPOCH,
        heartbeat_at: NOW,
        endpoints: Vec::new(),
        finalized_at: NOW,
        alarms: vec!["it's \"stalled\"".to_owned()],
    };
    let endpoints = [endpoint("z:1", EndpointState::Healthy, Some(5)), endpoint("a:1", EndpointState::Failing, None)];
    let mut reader = store.db.read().await.unwrap();
    assert_eq!(status::caught_up_at(&mut reader, CHAIN).await.unwrap(), None);
    write(&store, async |tx| status::record(tx, &word, &endpoints).await.unwrap()).await;
    let [read] = &status::chains(&mut reader).await.unwrap()[..] else { panic!("one chain") };
    assert_eq!(ChainStatus { endpoints: Vec::new(), ..read.clone() }, word);
    let found =
        read.endpoints.iter().map(|e| (e.id.as_str(), e.state.as_str(), e.reason.as_str(), e.latest, e.latency_ms));
    let found: Vec<_> = found.collect();
    let expected = [("z:1", "healthy", "", Some(5), Some(12)), ("a:1", "failing", "refused", None, None)];
    assert_eq!(found, expected, "as configured");

    let at = block(7, 1).header.block;
    write(&store, async |tx| {
        Cursor::lock(tx, CHAIN).await.unwrap();
        Cursor::place(tx, CHAIN, &at).await.unwrap();
    })
    .await;
    let newer = ChainStatus { finalized: Some(6), caught_up_at: NOW, heartbeat_at: NOW.plus(LEASE), ..word };
    write(&store, async |tx| status::record(tx, &newer, &endpoints[1..]).await.unwrap()).await;
    let [read] = &status::chains(&mut reader).await.unwrap()[..] else { panic!("one chain") };
    assert_eq!(read.endpoints.iter().map(|endpoint| endpoint.id.as_str()).collect::<Vec<_>>(), ["a:1"]);
    assert_eq!(ChainStatus { endpoints: Vec::new(), ..read.clone() }, ChainStatus { cursor: Some(7), ..newer.clone() });
    assert_eq!(status::caught_up_at(&mut reader, CHAIN).await.unwrap(), Some(NOW));
    let anew = ChainStatus { latest: None, caught_up_at: Timestamp::EPOCH, finalized_at: Timestamp::EPOCH, ..newer };
    write(&store, async |tx| status::record(tx, &anew, &[]).await.unwrap()).await;
    assert_eq!(status::caught_up_at(&mut reader, CHAIN).await.unwrap(), Some(NOW), "a restart was never caught up");
    let reported = status::last(&mut reader, CHAIN).await.unwrap().unwrap();
    assert_eq!((reported.latest, reported.finalized, reported.finalized_at), (Some(u64::from(u32::MAX)), Some(6), NOW));
    assert_eq!((reported.heartbeat_at, reported.alarms), (NOW.plus(LEASE), anew.alarms));
}

async fn the_queue_reports_what_is_undelivered_since_when(store: TestStore) {
    let mut reader = store.db.read().await.unwrap();
    assert_eq!(status::queue(&mut reader).await.unwrap(), QueueStatus { pending: 0, oldest_at: None });
    let claimed = claimed_once(&store).await;
    assert_eq!(status::queue(&mut reader).await.unwrap(), QueueStatus { pending: 1, oldest_at: Some(NOW) });
    write(&store, async |tx| deliveries::delivered(tx, &claimed, NOW).await.unwrap()).await;
    assert_eq!(status::queue(&mut reader).await.unwrap(), QueueStatus { pending: 0, oldest_at: None });
}
