//! The first deposit of SOL, end to end, on both engines: PENDING once its block is confirmed, CONFIRMED not before the
//! cluster calls that block final.

use landfall::deposit::{Deposit, DepositStatus};
use landfall_chain::{Address, U256};
use landfall_solana::network;
use solana_sdk::message::{Message, VersionedMessage};
use solana_sdk::pubkey::Pubkey;
use solana_sdk::signature::Signer;

use crate::solana::cluster::Cluster;
use crate::solana::follower::{CHAIN, Followed};
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
    let mut follower = Followed::start(engine, &cluster, &network(CHAIN).unwrap(), &[("alice", alice)]).await;

    let blockhash = cluster.blockhash().await;
    let message = Message::new_with_blockhash(&[transfer(&payer, &alice, LAMPORTS)], Some(&payer), &blockhash);
    let landed = cluster.send(VersionedMessage::Legacy(message), &[&cluster.payer]).await.unwrap();
    assert!(!landed.failed);
    follower.follow(landed.slot).await;
    let first = only(follower.deposits().await);
    // Asked behind it: what is not final even now was PENDING. Where the machine stood still it may have been final
    // before the first tick, which then does both.
    if cluster.slot("finalized").await < landed.slot {
        assert_eq!(first.status, DepositStatus::Pending);
    }
    let deposit = loop {
        // Asked before: while the cluster did not call it final, nothing can be CONFIRMED; afterwards it may or may not
        // be yet.
        let was_final = cluster.slot("finalized").await >= landed.slot;
        let deposit = only(follower.deposits().await);
        if deposit.status == DepositStatus::Confirmed {
            break deposit;
        }
        assert_eq!(deposit.status, DepositStatus::Pending);
        if was_final {
            follower.settle(landed.slot).await;
        } else {
            follower.tick().await;
        }
    };
    let is_final = cluster.slot("finalized").await >= landed.slot;
    assert!(is_final, "CONFIRMED above the newest final block");
    assert_eq!(follower.reported(&deposit).await, [1, 1], "PENDING and CONFIRMED, each once");
    assert_eq!((deposit.tx.id, deposit.amount), (landed.tx, U256::from(LAMPORTS)));
    assert_eq!((deposit.sender, deposit.recipient), (of(&payer), of(&alice)));
    assert_eq!(cluster.lamports(&alice).await, LAMPORTS, "the chain's own balance");
}

fn only(deposits: Vec<Deposit>) -> Deposit {
    let [deposit]: [Deposit; 1] = deposits.try_into().unwrap_or_else(|deposits| panic!("{deposits:?}"));
    deposit
}

fn of(key: &Pubkey) -> Address {
    Address::Solana(key.to_bytes())
}
