//! A crash at every await of a delivery: between the claim and the attempt, between the answer and its acknowledgement.
//! Whatever was cut off, the next process sends it, and nothing overtakes an earlier event of its deposit.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Poll;
use std::time::Duration;

use landfall::delivery::Delivered;

use crate::delivery::engine::assert_all_in_order;
use crate::delivery::{Answer, Receiver, delivery, pay, register, tick, world};
use crate::harness::postgres::ENGINES;
use crate::harness::world::{FINALITY_DEPTH, World};

/// More than a tick has with what is due here.
const AWAITS: u32 = 45;

/// Drives a tick until it has waited so often; whether it was cut off.
async fn cut_off(world: &World, awaits: u32) -> bool {
    let delivery = delivery(world);
    let mut tick = pin!(delivery.tick());
    let mut left = awaits;
    poll_fn(|cx| match tick.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(done.map(|_| false).unwrap()),
        Poll::Pending if left == 0 => Poll::Ready(true),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

#[tokio::test]
async fn a_crash_at_any_await_of_a_delivery_loses_nothing_and_keeps_the_order() {
    for engine in ENGINES {
        // Every fifth is refused, so that what is due again is cut off, too.
        let turn = AtomicU32::new(1);
        let receiver = Receiver::new(move |_| {
            let refused = turn.fetch_add(1, Ordering::Relaxed).is_multiple_of(5);
            Answer::Status(if refused { 503 } else { 200 })
        })
        .await;
        let mut world = world(engine).await;
        register(&world, "hook", &receiver.url("/")).await;
        let mut crashes = 0;
        for awaits in 0..AWAITS {
            pay(&mut world, &[100 + u64::from(awaits)]).await;
            world.chain.mine_empty(FINALITY_DEPTH);
            world.catch_up().await;
            crashes += u32::from(cut_off(&world, awaits).await);
            // Beyond the lease of what was cut off.
            world.pass(Duration::from_secs(61));
            crashes += u32::from(cut_off(&world, AWAITS - awaits).await);
            world.pass(Duration::from_secs(61));
        }
        println!("{engine:?}: cut off {crashes} times, {} requests", receiver.received().len());
        // How often a tick has to wait is the machine's: on a busy one what is asked of the store is often there at
        // once.
        assert!(crashes > AWAITS / 8, "{crashes} crashes");
        let mut quiet = 0;
        while quiet < 30 {
            quiet = if tick(&world).await == Delivered::default() { quiet + 1 } else { 0 };
            world.pass(Duration::from_secs(61));
        }
        assert_all_in_order(&world, &receiver).await;
        world.close().await;
    }
}
