//! A balance that contradicts CONFIRMED deposits: an incident of each address and asset, until a person resolves it.

use std::sync::Arc;
use std::time::Duration;

use landfall::deposit::DepositStatus::{Confirmed, Pending};
use landfall::incident::Incident;
use landfall::store::incidents;
use landfall::watcher::BalanceWatch;
use landfall_chain::{AssetId, Chain, Native, NativeSource, U256};
use landfall_cluster::{Ledger as Cluster, Tx};
use landfall_sim::{SimLeg, WEALTH};
use serde_json::json;

use crate::harness::postgres::{ENGINES, TestStore};
use crate::harness::solana_ledger::{Ledger, owner};
use crate::harness::solana_line::Line;
use crate::harness::world::{CHAIN, FINALITY_DEPTH, TOKEN, World, address, report};
use crate::past::unexplained::{Bench, leg, watch};

const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;
const PAYER: u8 = 0x01;
const ETH: AssetId = AssetId::Native;
const MINUTE: Duration = Duration::from_secs(60);

/// The incidents of this kind, oldest first: resolved ones too.
async fn shorts(world: &World) -> Vec<Incident> {
    let mut all = world.incidents().await;
    all.retain(|incident| incident.kind.name() == "balance_short");
    all
}

/// The only one.
async fn the_short(world: &World) -> Incident {
    let all = shorts(world).await;
    let [incident] = &all[..] else { panic!("one incident: {all:?}") };
    incident.clone()
}

/// Whether it names the deposit with this amount.
async fn names(world: &World, incident: &Incident, amount: u64) -> bool {
    let deposits = world.deposits().await;
    let deposit = deposits.iter().find(|deposit| deposit.amount == U256::from(amount));
    incident.what.contains(&deposit.expect("a deposit with this amount").id.to_string())
}

async fn resolve(world: &World, incident: &Incident) {
    world.operator().resolve(world.db(), &incident.id).await.unwrap();
}

#[tokio::test]
async fn a_balance_that_contradicts_confirmed_credits_is_an_incident_that_names_them_until_a_person_resolves_it() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        bench.pay(PAYER, vec![leg(TOKEN, PAYER, ALICE, 7)]).await;
        let since = bench.world.chain.finalized().unwrap().number;
        // Two legs are reported, and one of them never came.
        bench.mine(PAYER, vec![leg(TOKEN, PAYER, ALICE, 40), leg(TOKEN, PAYER, ALICE, 2), leg(ETH, PAYER, ALICE, 9)]);
        bench.world.chain.shift_balance(address(ALICE), TOKEN, -40);
        bench.settle().await;
        let through = bench.world.chain.finalized().unwrap().number;
        let incident = the_short(&bench.world).await;
        let expected = format!(
            "{} on {CHAIN} holds 40 base units of USDC less than it should by its CONFIRMED deposits: after block {since} it \
             held {}, 42 came and 0 left, and after block {through} it holds {}; CONFIRMED in between: deposit ",
            address(ALICE),
            WEALTH + 7,
            WEALTH + 9,
        );
        assert!(incident.what.starts_with(&expected), "{}", incident.what);
        for (amount, is_inside) in [(40, true), (2, true), (7, false), (9, false)] {
            assert_eq!(bench.world.status_of(amount).await, Confirmed);
            assert_eq!(names(&bench.world, &incident, amount).await, is_inside, "{amount}: {}", incident.what);
        }
        assert_eq!((incident.chain, incident.block_number), (CHAIN, Some(through)));
        assert_eq!((incident.deposit, incident.holding), (None, Some((address(ALICE), TOKEN))));
        let alarms = report(&bench.world).await.alarms;
        assert!(
            alarms.iter().any(|alarm| alarm.contains(&format!("incident {}, balance_short", incident.id))),
            "{alarms:?}"
        );

        // Neither time, nor a restart, nor that it is held after all resolves it, or opens another.
        bench.next_day().await;
        bench.restart().await;
        bench.world.chain.shift_balance(address(ALICE), TOKEN, 40);
        bench.pay(PAYER, vec![leg(TOKEN, PAYER, ALICE, 3)]).await;
        bench.next_day().await;
        assert_eq!(the_short(&bench.world).await, incident);

        resolve(&bench.world, &incident).await;
        // The next comparison starts from what was read then.
        bench.pay(PAYER, vec![leg(TOKEN, PAYER, ALICE, 4)]).await;
        bench.next_day().await;
        assert_eq!(shorts(&bench.world).await.len(), 1);
        assert!(the_short(&bench.world).await.resolved_at.is_some());
        bench.mine(PAYER, vec![leg(TOKEN, PAYER, ALICE, 50)]);
        bench.world.chain.shift_balance(address(ALICE), TOKEN, -1);
        bench.settle().await;
        let [_, another] = &shorts(&bench.world).await[..] else { panic!("another one") };
        assert_eq!(another.resolved_at, None);
        for (amount, is_inside) in [(50, true), (40, false), (4, false)] {
            assert_eq!(names(&bench.world, another, amount).await, is_inside, "{amount}: {}", another.what);
        }
        bench.world.abandon();
    }
}

#[tokio::test]
async fn each_address_and_asset_has_an_incident_of_its_own_and_what_is_short_besides_is_added_to_it() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        bench.world.watch("bob", address(BOB)).await;
        bench.settle().await;
        bench.mine(PAYER, vec![leg(TOKEN, PAYER, ALICE, 40), leg(ETH, PAYER, ALICE, 500), leg(TOKEN, PAYER, BOB, 60)]);
        for (who, asset, by) in [(ALICE, TOKEN, -40), (ALICE, ETH, -500), (BOB, TOKEN, -6)] {
            bench.world.chain.shift_balance(address(who), asset, by);
        }
        bench.settle().await;
        let open = shorts(&bench.world).await;
        let of = |who: u8, symbol: &str| {
            let begins = format!("{} on {CHAIN} holds ", address(who));
            let is_of = |it: &&Incident| it.what.starts_with(&begins) && it.what.contains(&format!("of {symbol} less"));
            open.iter().find(is_of).expect("an incident of it").clone()
        };
        assert_eq!(open.len(), 3, "{open:?}");
        let (tokens, _) = (of(ALICE, "USDC"), [of(ALICE, "ETH"), of(BOB, "USDC")]);

        bench.world.pass(MINUTE);
        bench.mine(PAYER, vec![leg(TOKEN, PAYER, ALICE, 80)]);
        bench.world.chain.shift_balance(address(ALICE), TOKEN, -3);
        bench.settle().await;
        let renewed = incidents::by_id(&mut bench.world.db().read().await.unwrap(), &tokens.id).await.unwrap().unwrap();
        assert_eq!(shorts(&bench.world).await.len(), 3, "no further one");
        assert!(renewed.seen_at > tokens.seen_at);
        for amount in [40, 80] {
            assert!(names(&bench.world, &renewed, amount).await, "{amount}: {}", renewed.what);
        }
        for short in ["holds 40 base units", "holds 3 base units"] {
            assert!(renewed.what.contains(short), "{}", renewed.what);
        }
        bench.world.abandon();
    }
}

#[tokio::test]
async fn what_is_more_and_what_is_less_without_a_confirmed_credit_is_no_incident() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        bench.world.chain.shift_balance(address(ALICE), TOKEN, 30);
        bench.pay(PAYER, vec![leg(TOKEN, PAYER, ALICE, 40)]).await;
        assert_eq!(bench.reported().await, [(ALICE, TOKEN, 30)]);
        // As a token that rebases.
        bench.world.chain.shift_balance(address(ALICE), TOKEN, -5);
        bench.pay(ALICE, vec![leg(TOKEN, ALICE, PAYER, 1)]).await;
        assert_eq!(bench.reported().await, [(ALICE, TOKEN, 30), (ALICE, TOKEN, -5)]);
        assert_eq!(bench.world.incidents().await, []);
        bench.world.abandon();
    }
}

#[tokio::test]
async fn where_the_network_does_not_see_what_leaves_a_balance_contradicts_nothing() {
    for engine in ENGINES {
        let mut bench = Bench::of(World::on(engine, 1).await).await;
        bench.pay(PAYER, vec![leg(ETH, PAYER, ALICE, 500)]).await;
        // As an inner call that pays on.
        let paid_on = SimLeg::inner(address(ALICE), address(PAYER), 100);
        bench.pay(PAYER, vec![paid_on, leg(ETH, PAYER, ALICE, 60)]).await;
        assert_eq!(bench.world.status_of(60).await, Confirmed);
        assert_eq!(bench.world.incidents().await, []);
        // Where it does, it would.
        bench.world.network.native = Native { source: NativeSource::Trace, eip7708_from: None };
        bench.restart().await;
        bench.settle().await;
        bench.pay(PAYER, vec![leg(ETH, PAYER, ALICE, 70)]).await;
        bench.mine(PAYER, vec![leg(ETH, PAYER, ALICE, 80)]);
        bench.world.chain.shift_balance(address(ALICE), ETH, -80);
        bench.settle().await;
        assert!(names(&bench.world, &the_short(&bench.world).await, 80).await);
        bench.world.abandon();
    }
}

#[tokio::test]
async fn a_credit_that_becomes_confirmed_after_its_balance_was_compared_is_contradicted_then() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        // It waits for its witness.
        bench.world.chain.withhold_balances(true);
        let inner = SimLeg::inner(address(PAYER), address(ALICE), 100);
        bench.mine(PAYER, vec![inner, leg(ETH, PAYER, ALICE, 5)]);
        bench.world.chain.mine_empty(1);
        bench.world.chain.shift_balance(address(ALICE), ETH, -100);
        bench.settle().await;
        assert_eq!((bench.world.status_of(5).await, bench.world.status_of(100).await), (Confirmed, Pending));
        assert_eq!(bench.reported().await, [(ALICE, ETH, -100)]);
        assert_eq!(shorts(&bench.world).await, [], "what is CONFIRMED is held");
        bench.world.chain.withhold_balances(false);
        bench.world.pass(60 * MINUTE);
        bench.world.catch_up().await;
        assert_eq!(bench.world.status_of(100).await, Confirmed);
        let incident = the_short(&bench.world).await;
        for amount in [5, 100] {
            assert!(names(&bench.world, &incident, amount).await, "{amount}: {}", incident.what);
        }
        bench.world.abandon();
    }
}

#[tokio::test]
async fn of_several_processes_that_read_balances_one_opens_the_incident_and_once() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine).await;
        let mut others = [watch(&bench.world, "two"), watch(&bench.world, "three")];
        bench.mine(PAYER, vec![leg(TOKEN, PAYER, ALICE, 40)]);
        bench.world.chain.shift_balance(address(ALICE), TOKEN, -4);
        bench.follow(FINALITY_DEPTH).await;
        for other in &mut others {
            bench.world.pass(2 * MINUTE);
            let now = bench.world.now();
            let (one, another) = tokio::join!(bench.watch.tick(now, 0), other.tick(now, 0));
            one.unwrap();
            another.unwrap();
        }
        bench.read_all().await;
        let incident = the_short(&bench.world).await;
        assert_eq!(incident.opened_at, incident.seen_at, "met once");
        resolve(&bench.world, &incident).await;
        bench.restart().await;
        bench.next_day().await;
        for other in &mut others {
            bench.world.pass(2 * MINUTE);
            other.tick(bench.world.now(), 0).await.unwrap();
        }
        assert!(the_short(&bench.world).await.resolved_at.is_some());
        bench.world.abandon();
    }
}

#[tokio::test]
async fn on_solana_too_a_balance_that_contradicts_a_confirmed_credit_is_an_incident() {
    for engine in ENGINES {
        let (mut ledger, blocks) = (Ledger::new(), Cluster::of(10..=14));
        let network = landfall_solana::network(Chain::SolanaMainnet).unwrap();
        let mut line = Line::of(network, TestStore::fresh(engine).await, blocks.clone(), 2).await;
        let (source, db) = (Arc::clone(&line.source), line.store.db.clone());
        let mut watch = BalanceWatch::new(source, db, &line.network, 20, "one".to_owned());
        // What the blocks report never comes to the account.
        let account = json!({
            "data": ["", "base64"], "executable": false, "lamports": 1_000_000, "owner": "11111111111111111111111111111111",
            "rentEpoch": 0, "space": 0,
        });
        line.nodes.iter().for_each(|node| node.report_account(&owner(0x21).to_string(), account.clone()));
        for amount in [None, None, Some(1_000_000)] {
            let txs = amount.map(|amount| Tx::raw(&ledger.tx(0x23, |ledger| ledger.send(0x23, 0x21, amount))));
            blocks.finalize(blocks.grow(txs.into_iter().collect()).number);
            line.catch_up().await;
            for _ in 0..3 {
                watch.tick(line.now, 0).await.unwrap();
            }
            line.now = line.now.plus(25 * 60 * MINUTE);
        }
        let mut reader = line.store.db.read().await.unwrap();
        let open = incidents::open(&mut reader).await.unwrap();
        let [incident] = &open[..] else { panic!("one incident: {open:?}") };
        let begins = format!("{} on SOLANA_MAINNET holds 1000000 base units of SOL less", owner(0x21));
        assert!(incident.what.starts_with(&begins), "{}", incident.what);
        assert!(incident.what.contains(&line.deposit().await.id.to_string()), "{}", incident.what);
    }
}
