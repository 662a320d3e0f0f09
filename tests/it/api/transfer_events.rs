//! Events of transfers, written in a transaction as the sender writes them: under which ids they come, in which order, and
//! that webhooks, the feed and replays have each of them.

use std::time::Duration;

use landfall::delivery::Delivered;
use landfall::deposit::DepositStatus::{Confirmed, Failed};
use landfall::event::TransferEvent;
use landfall::feed::Numberer;
use landfall::store::feed::{self, FeedFilter};
use landfall::store::replay::{self, EventFilter, EventRow};
use landfall::store::{events, transfers, webhooks};
use landfall::transfer::{Announcement, FailureCode, State, Transfer};
use landfall_chain::TxId;
use serde_json::{Value, json};

use crate::api::transfers::{Bench, PATH, REQUEST, end, pay};
use crate::delivery::engine::done;
use crate::delivery::{self, Receiver, register, tick};
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{FINALITY_DEPTH, World};

/// The vectors of the design.
const SUBMITTED: &str = "8a0c38a1-686b-8f4c-91e6-2684db8e61c9";
const CONFIRMED: &str = "327349b5-6fed-8889-ac2d-fa344d4fbd3a";

/// A transfer of Alice's that was accepted.
pub(crate) async fn accepted(bench: &Bench) -> Transfer {
    let shown = bench.accepted(&pay(REQUEST, "2.5")).await;
    stored(&bench.world, shown["id"].as_str().unwrap()).await
}

pub(crate) async fn stored(world: &World, id: &str) -> Transfer {
    let found = transfers::by_id(&mut world.db().read().await.unwrap(), id.parse().unwrap()).await;
    found.unwrap().expect("the transfer is there")
}

/// The transfer as the sender leaves it in this state.
pub(crate) fn in_state(world: &World, transfer: &Transfer, state: State) -> Transfer {
    let is_included = matches!(state, State::Included | State::Confirmed);
    Transfer {
        state,
        reason: state.failure().map(|_| "no block includes it".to_owned()),
        tx: is_included.then_some(TxId::Evm([0x11; 32])),
        submitted_at: transfer.submitted_at.or(Some(world.now())),
        confirmed_at: (state == State::Confirmed).then(|| world.now()),
        updated_at: world.now(),
        ..transfer.clone()
    }
}

/// Writes what is announced in a transaction, as the sender will.
pub(crate) async fn announce(
    world: &World,
    transfer: &Transfer,
    announcement: Announcement,
    block: Option<u64>,
) -> TransferEvent {
    let mut tx = world.db().begin().await.unwrap();
    let (position, before) = events::place(&mut tx, transfer.id, announcement).await.unwrap();
    let event = TransferEvent::announced(transfer, announcement, before, block);
    events::append_transfer(&mut tx, &event, position, world.now()).await.unwrap();
    tx.commit().await.unwrap();
    event
}

/// A transfer that is displaced once, included again and CONFIRMED.
async fn life(world: &mut World, transfer: &Transfer) -> Vec<TransferEvent> {
    let mut announced = Vec::new();
    for (state, announcement, block) in [
        (State::Carried, Announcement::Submitted, None),
        (State::Included, Announcement::Included, Some(7)),
        (State::Carried, Announcement::Displaced, Some(7)),
        (State::Included, Announcement::Included, Some(8)),
        (State::Confirmed, Announcement::Confirmed, Some(8)),
    ] {
        announced.push(announce(world, &in_state(world, transfer, state), announcement, block).await);
        world.pass(Duration::from_secs(1));
    }
    announced
}

fn data(event: &TransferEvent) -> Value {
    serde_json::from_str::<Value>(&event.payload).unwrap()["data"].clone()
}

async fn listed(world: &World, transfer: &Transfer) -> Vec<EventRow> {
    let account = Some("alice".to_owned());
    let filter = EventFilter { account, from: transfer.created_at, to: world.now(), pending: false };
    let (rows, _) = replay::list(&mut world.db().read().await.unwrap(), &filter, None, 100).await.unwrap();
    rows.into_iter().filter(|row| row.aggregateid == transfer.id.to_string()).collect()
}

async fn fed(world: &World, account: &str, kind: Option<&str>) -> Vec<String> {
    let filter = FeedFilter { account_id: Some(account.to_owned()), kind: kind.map(str::to_owned) };
    let mut reader = world.db().read().await.unwrap();
    let last = feed::last(&mut reader).await.unwrap();
    let page = feed::page(&mut reader, &filter, (0, last), 100).await.unwrap();
    page.into_iter().map(|event| event.payload).filter(|payload| payload.contains("\"transfer_")).collect()
}

async fn deliver(world: &World) {
    while tick(world).await != Delivered::default() {}
}

#[tokio::test]
async fn what_is_announced_of_a_transfer_comes_in_its_order_by_webhook_and_feed_and_again_by_replay() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        let receiver = Receiver::scripted([]).await;
        register(&bench.world, "hook", &receiver.url("/")).await;
        let transfer = accepted(&bench).await;
        let announced = life(&mut bench.world, &transfer).await;
        let world = &bench.world;
        let ids: Vec<String> = announced.iter().map(|event| event.id.to_string()).collect();
        assert_eq!((ids[0].as_str(), ids[4].as_str()), (SUBMITTED, CONFIRMED));
        assert_ne!(ids[1], ids[3], "{engine:?}: the second INCLUDED is another event");

        let rows = listed(world, &transfer).await;
        let stored = rows.iter().map(|row| (row.position, row.r#type.as_str(), row.status.as_str(), &row.id));
        let reconciliation = "transfer_reconciliation";
        let expected = [
            (0, "transfer_submitted", "SUBMITTED", &ids[0]),
            (1, reconciliation, "INCLUDED", &ids[1]),
            (2, reconciliation, "DISPLACED", &ids[2]),
            (3, reconciliation, "INCLUDED", &ids[3]),
            (4, reconciliation, "CONFIRMED", &ids[4]),
        ];
        assert_eq!(stored.collect::<Vec<_>>(), expected, "{engine:?}");
        assert!(rows.iter().all(|row| row.account_id == "alice"), "{engine:?}");

        let bodies: Vec<String> = announced.into_iter().map(|event| event.payload).collect();
        assert_eq!(tick(world).await, done(1, 0), "{engine:?}: each waits for the one before");
        deliver(world).await;
        assert_eq!(receiver.bodies(), bodies, "{engine:?}");

        assert!(fed(world, "alice", None).await.is_empty(), "{engine:?}: no number, no place in the feed");
        Numberer::new(world.db().clone(), "test".to_owned()).tick(world.now()).await.unwrap();
        assert_eq!(fed(world, "alice", None).await, bodies, "{engine:?}");
        assert_eq!(fed(world, "alice", Some("transfer_submitted")).await, bodies[..1], "{engine:?}");
        assert_eq!(fed(world, "alice", Some(reconciliation)).await, bodies[1..], "{engine:?}");
        assert!(fed(world, "bob", None).await.is_empty(), "{engine:?}");

        let mut tx = world.db().begin().await.unwrap();
        for id in &ids {
            assert_eq!(replay::replay(&mut tx, id, None, world.now()).await.unwrap(), 1, "{engine:?}");
        }
        tx.commit().await.unwrap();
        deliver(world).await;
        assert_eq!(receiver.bodies(), [bodies.clone(), bodies].concat(), "{engine:?}");
        bench.world.abandon();
    }
}

#[tokio::test]
async fn an_event_of_a_transfer_is_refused_the_second_time_and_rolled_back_with_its_change() {
    for engine in ENGINES {
        let bench = Bench::on(engine).await;
        let transfer = accepted(&bench).await;
        let event = TransferEvent::announced(&transfer, Announcement::Submitted, 0, None);
        let mut tx = bench.world.db().begin().await.unwrap();
        events::append_transfer(&mut tx, &event, 0, bench.world.now()).await.unwrap();
        drop(tx);
        assert_eq!(listed(&bench.world, &transfer).await, [], "{engine:?}");
        announce(&bench.world, &transfer, Announcement::Submitted, None).await;
        let mut tx = bench.world.db().begin().await.unwrap();
        assert!(events::append_transfer(&mut tx, &event, 1, bench.world.now()).await.is_err(), "{engine:?}");
        drop(tx);
        bench.world.abandon();
    }
}

#[tokio::test]
async fn an_event_shows_the_transfer_as_the_api_does() {
    let bench = Bench::on(Engine::Sqlite).await;
    let transfer = accepted(&bench).await;
    let id = transfer.id.to_string();
    let (_, shown) = bench.get(&format!("{PATH}/{id}")).await;
    assert_eq!(data(&TransferEvent::announced(&transfer, Announcement::Submitted, 0, Some(7))), shown);
    for (status, announcement) in
        [("CONFIRMED", Announcement::Confirmed), ("FAILED", Announcement::Failed), ("DROPPED", Announcement::Dropped)]
    {
        end(&bench.world, &id, status).await;
        let transfer = stored(&bench.world, &id).await;
        let (_, mut shown) = bench.get(&format!("{PATH}/{id}")).await;
        assert_eq!(shown["status"], status);
        if announcement == Announcement::Confirmed {
            shown["stage"] = json!("CONFIRMED");
            shown["block_number"] = json!(7);
        }
        assert_eq!(data(&TransferEvent::announced(&transfer, announcement, 0, Some(7))), shown);
    }
    bench.world.abandon();
}

#[tokio::test]
async fn statuses_of_deposits_that_are_muted_mute_no_transfer() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        let receiver = Receiver::scripted([]).await;
        register(&bench.world, "hook", &receiver.url("/")).await;
        let mut tx = bench.world.db().begin().await.unwrap();
        webhooks::mute(&mut tx, &[Confirmed, Failed]).await.unwrap();
        tx.commit().await.unwrap();
        delivery::pay(&mut bench.world, &[5]).await;
        bench.world.chain.mine_empty(FINALITY_DEPTH);
        bench.world.catch_up().await;
        let (transfer, world) = (accepted(&bench).await, &bench.world);
        let of = |state| in_state(world, &transfer, state);
        let confirmed = announce(world, &of(State::Confirmed), Announcement::Confirmed, Some(7)).await;
        let failed = of(State::Failed(FailureCode::Reverted));
        let failed = announce(world, &failed, Announcement::Failed, None).await;
        deliver(world).await;
        let bodies = receiver.bodies();
        let pending = bodies.iter().filter(|body| body.contains("\"deposit_v2\""));
        let pending: Vec<_> = pending.map(|body| delivery::amount_and_status(body.as_bytes()).1).collect();
        assert_eq!(pending, ["PENDING"], "{engine:?}: the deposit's CONFIRMED is muted");
        let of_transfer: Vec<_> = bodies.iter().filter(|body| body.contains("\"transfer_")).collect();
        assert_eq!(of_transfer, [&confirmed.payload, &failed.payload], "{engine:?}");
        let mut tx = world.db().begin().await.unwrap();
        let again = replay::replay(&mut tx, &confirmed.id.to_string(), Some("hook"), world.now()).await.unwrap();
        assert_eq!(again, 1, "{engine:?}: nor is it left out of a replay");
        drop(tx);
        bench.world.abandon();
    }
}
