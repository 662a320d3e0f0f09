//! A block that this version cannot prove, with the real EVM source before real sockets: its chain stops in front of
//! it, says that an upgrade is needed, and passes over nothing.

use std::time::Duration;

use landfall::deposit::DepositStatus::Pending;
use landfall::health::{ChainReport, Status};
use landfall::incident::IncidentKind;
use landfall::store::deposits::{self, DepositFilter};
use landfall::store::incidents;
use landfall_chain::Address;
use landfall_node::{Chain, Kind, Tx};
use tokio_util::sync::CancellationToken;

use crate::harness::follower::{Followed, Mode, network};
use crate::harness::world::CHAIN;

const ALICE: [u8; 20] = [0xa1; 20];
const MINUTE: Duration = Duration::from_secs(60);
const UNKNOWN: u8 = 0x05;

/// What `status` says of the chain; nothing while its watcher has said nothing.
async fn report(follower: &Followed) -> Option<ChainReport> {
    Status::read(follower.db(), follower.now()).await.unwrap().chains.into_iter().next()
}

/// Runs a watcher until it says that the chain is halted; what `status` says then.
async fn halted(follower: &Followed) -> ChainReport {
    let stop = CancellationToken::new();
    let look = async {
        while report(follower).await.is_none_or(|report| report.state != "halted") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        stop.cancel();
    };
    let both = async { tokio::join!(follower.run(stop.clone()), look) };
    tokio::time::timeout(MINUTE, both).await.expect("it halts");
    report(follower).await.expect("it said so")
}

#[tokio::test]
async fn a_type_that_this_version_lacks_halts_its_chain_in_front_of_its_block() {
    for (mode, seeds) in Mode::ALL.into_iter().flat_map(|mode| [(mode, vec![1]), (mode, vec![1, 2])]) {
        let chain = Chain::of(&network(mode), 5);
        let mut follower = Followed::new(chain.clone(), mode, &seeds, vec![Address::Evm(ALICE)]).await;
        let before = chain.mine(vec![Tx::pay(0, 0, ALICE.into(), 5)]);
        while !follower.is_there().await {
            follower.tick().await.unwrap();
        }
        // It pays nobody whom we know, among others that are of known types, and what follows pays Alice.
        let newer = Tx { kind: Kind::Newer(UNKNOWN), ..Tx::pay(1, 0, [0xee; 20].into(), 6) };
        let block = chain.mine(vec![Tx::pay(0, 1, [0xee; 20].into(), 7), newer]);
        chain.mine(vec![Tx::pay(0, 2, ALICE.into(), 8)]);

        let report = halted(&follower).await;
        let name = format!("{} of {} endpoints", mode.name(), seeds.len());
        assert_eq!(report.cursor, Some(before.number), "{name}");
        let words = format!(
            "block {block} holds a transaction of type 0x05, which this version of landfall cannot prove; an \
             upgrade is needed"
        );
        assert!(report.reason.contains(&words), "{name}: {}", report.reason);
        let incidents = incidents::open(&mut follower.db().read().await.unwrap()).await.unwrap();
        let met: Vec<_> = incidents.iter().map(|incident| (incident.chain, incident.kind)).collect();
        assert_eq!(met, [(CHAIN, IncidentKind::UpgradeNeeded)], "{name}");
        assert!(report.alarms.iter().any(|alarm| alarm.contains(&incidents[0].id)), "{name}: {:?}", report.alarms);

        // Another process does no better, and what came before is neither decided nor lost.
        follower.restart();
        let error = loop {
            match follower.tick().await {
                Err(error) if !error.may_pass() => break error,
                Ok(ticked) => assert_eq!(ticked.connected, 0, "{name}"),
                Err(_) => {}
            }
        };
        assert_eq!(error.incident(), Some(IncidentKind::UpgradeNeeded), "{name}: {error}");
        assert_eq!(follower.cursor().await, before, "{name}");
        let mut reader = follower.db().read().await.unwrap();
        let deposits = deposits::list(&mut reader, &DepositFilter::default(), 10).await.unwrap();
        assert_eq!(deposits.iter().map(|deposit| deposit.status).collect::<Vec<_>>(), [Pending], "{name}");
    }
}
