//! How much is signed for: caps of one asset, counted by the journal, whatever the store says and however often it starts.

use std::fs;
use std::sync::atomic::Ordering;

use landfall_chain::{AssetId, Intent, SignRequest, Signer, U256};
use landfall_signer::{Cap, Policy, Sendable};

use crate::world::{CHAIN, NOW, TOKEN, World, by_delegate, intent, of_intent, one, route, wallet};

const DAY: u64 = 86_400;

/// Of the token 6 in one transfer and 12 a day, in units of a million; of the native currency any amount.
fn policy() -> Policy {
    let (token, cap) = (AssetId::Token(TOKEN), |units: u64| Some(U256::from(units * 1_000_000)));
    let assets = vec![(token, route()), (AssetId::Native, by_delegate(0))];
    let caps = vec![(token, Cap { transfer: cap(6), day: cap(12) })];
    Policy::new([Sendable { chain_ref: CHAIN.to_owned(), assets, caps, cost_max: 10_u128.pow(16), refill_max: 0 }])
}

/// Pays 5 at `now`.
fn paying(transfer: u8, now: u64) -> Intent {
    Intent { deadline: now + 300, ..intent(transfer) }
}

fn native(transfer: u8) -> Intent {
    Intent { asset: AssetId::Native, route: by_delegate(0), ..intent(transfer) }
}

#[tokio::test]
async fn what_is_above_a_cap_is_refused_until_a_day_has_passed_and_what_was_signed_before_is_signed_again() {
    let world = World::new();
    let signer = world.open_by(policy());
    let whale = Intent { amount: U256::from(6_000_001), ..intent(9) };
    let why = one(&signer, of_intent(whale)).await.unwrap_err().0;
    assert_eq!(why, format!("6000001 of {TOKEN} on {CHAIN} in one transfer, and the cap is 6000000"));
    let first = one(&signer, of_intent(intent(1))).await.unwrap();
    // In one call too: what stands before it counts.
    let both = signer.sign(&[of_intent(intent(2)), of_intent(intent(3))]).await.unwrap();
    assert!(both[0].is_ok());
    let why = both[1].as_ref().unwrap_err().0.clone();
    assert_eq!(
        why,
        format!(
            "10000000 of {TOKEN} on {CHAIN} were signed for within 24 hours, and with 5000000 more it would be above the cap \
             of 12000000"
        )
    );
    assert_eq!(signer.newest_seq(), 2, "what is refused is in no entry");
    assert_eq!(one(&signer, of_intent(intent(1))).await.unwrap(), first);
    let small = Intent { amount: U256::from(2_000_000), ..intent(4) };
    assert!(one(&signer, of_intent(small)).await.is_ok(), "up to the cap");
    assert!(one(&signer, of_intent(native(5))).await.is_ok(), "another asset has no cap");
    // A later deadline is no second payment.
    let healed = SignRequest::Intent { path: wallet(), intent: paying(1, NOW + 20), heals: 1 };
    assert!(one(&signer, healed).await.is_ok());

    drop(signer);
    let signer = world.open_by(policy());
    assert!(one(&signer, of_intent(intent(3))).await.is_err(), "the journal says it after a start");
    world.now.store(NOW + DAY, Ordering::Relaxed);
    assert!(one(&signer, of_intent(paying(3, NOW + DAY))).await.is_err());
    world.now.store(NOW + DAY + 60, Ordering::Relaxed);
    assert!(one(&signer, of_intent(paying(3, NOW + DAY + 60))).await.is_ok());
}

#[tokio::test]
async fn what_could_not_be_written_does_not_count() {
    let world = World::new();
    let signer = world.open_by(policy());
    assert!(one(&signer, of_intent(intent(1))).await.is_ok());
    drop(signer);
    // A line that a crash tore was never signed for.
    let journal = fs::read(world.journal()).unwrap();
    fs::write(world.journal(), &journal[..journal.len() - 1]).unwrap();
    let signer = world.open_by(policy());
    for transfer in [2, 3] {
        assert!(one(&signer, of_intent(intent(transfer))).await.is_ok());
    }
    assert!(one(&signer, of_intent(intent(4))).await.is_err());
}
