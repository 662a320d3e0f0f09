//! The first deposit of SOL, end to end, on both engines: PENDING once its block is confirmed, CONFIRMED not before the cluster
//! calls that block final.

use landfall::deposit::DepositStatus;
use landfall_chain::{Address, U256};
use landfall_solana::network;
use solana_sdk::message::{Message, VersionedMessage};
use solana_sdk::pubkey::Pubkey;
use solana_sdk::signature::Signer;

use crate::solana::cluster::Cluster;
use crate::solana::follower::{CHAIN, Follower};
use crate::solana::programs::transfer;
use crate::stage::Engine;

const LAMPORTS: u64 = 1_500_000_000;

#[tokio::test(flavor = "multi_thread")]
async fn s13_sol_is_pending_once_confirmed_and_confirmed_once_final_on_sqlite() {
    from_slot_to_deposit(Engine::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s13_sol_is_pending_once_confirmed_and_confirmed_once_final_on_postgresql() {
    from_slot_to_deposit(Engine::Postgres).await;
}

async fn from_slot_to_deposit(engine: Engine) {
    let folder = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(folder.path()).await;
    let (payer, alice) = (cluster.payer.pubkey(), Pubkey::new_unique());
    let mut follower = Follower::start(engine, &cluster, &network(CHAIN).unwrap(), &[("alice", alice)]).await;

    let blockhash = cluster.blockhash().await;
    let message = Message::new_with_blockhash(&[transfer(&payer, &alice, LAMPORTS)], Some(&payer), &blockhash);
    let landed = cluster.send(VersionedMessage::Legacy(message), &[&cluster.payer]).await.unwrap();
    assert!(!landed.failed);
    follower.follow(landed.slot).await;
    let mut seen = Vec::new();
    let deposit = loop {
        // Asked before: while the cluster did not call it final, nothing can be CONFIRMED; afterwards it may or may not be yet.
        let was_final = cluster.slot("finalized").await >= landed.slot;
        let deposits = follower.deposits().await;
        let [deposit] = deposits.as_slice() else { panic!("{deposits:?}") };
        if seen.last() != Some(&deposit.status) {
            seen.push(deposit.status);
        }
        if deposit.status == DepositStatus::Confirmed {
            break deposit.clone();
        }
        if was_final {
            follower.settle(landed.slot).await;
        } else {
            follower.tick().await;
        }
    };
    let is_final = cluster.slot("finalized").await >= landed.slot;
    assert!(is_final, "CONFIRMED above the newest final block");
    assert_eq!(seen, [DepositStatus::Pending, DepositStatus::Confirmed]);
    assert_eq!(follower.told(&deposit).await, [1, 1]);
    assert_eq!((deposit.tx.id, deposit.amount), (landed.tx, U256::from(LAMPORTS)));
    assert_eq!((deposit.sender, deposit.recipient), (of(&payer), of(&alice)));
    assert_eq!(cluster.lamports(&alice).await, LAMPORTS, "the chain's own balance");
}

fn of(key: &Pubkey) -> Address {
    Address::Solana(key.to_bytes())
}
