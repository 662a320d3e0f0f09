//! What an account has at its further addresses is brought to the address that pays: once, seen by no client, and no
//! deposit where it arrives.

use std::time::Duration;

use landfall::account::{AccountType, NewAccount};
use landfall::balance::{Held, UNREAD_MAX};
use landfall::gas::{Bearer, GasCurrency};
use landfall::overrides::Author;
use landfall::registry::{self, AcceptError, SweepOrder, Swept};
use landfall::request::Made;
use landfall::store::transfers::{self, TransferFilter};
use landfall::store::wallets::{self, Wallet};
use landfall::store::{balances, deposits, gas_ledger};
use landfall::transfer::{State, TransferKind};
use landfall::watcher::{BalanceWatch, BalancesRead};
use landfall_chain::{Address, Family, KeyPath, Route, U256};
use landfall_sim::{SimLeg, SimSigner, SimTx, WEALTH};

use super::{Bench, PAYER, STRANGER, by_delegate, token};
use crate::harness::books::rows;
use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::world::{CHAIN, FINALITY_DEPTH, TOKEN, address, erc3009, report};

const CAROL: &str = "carol";
const TAGS: [&str; 4] = ["", "r-1", "r-2", "r-3"];

fn of(tag: &str) -> Address {
    SimSigner::address(&KeyPath::of_wallet(Family::Evm, CAROL, tag))
}

fn order(bench: &Bench, n: u32) -> SweepOrder {
    let network = &bench.world.network;
    SweepOrder {
        request_id: format!("00000000-0000-4000-8000-{n:012}").parse().unwrap(),
        account_id: CAROL.to_owned(),
        chain: CHAIN,
        chain_ref: network.chain_ref.clone(),
        asset: network.asset(&TOKEN).unwrap().clone(),
        gas: GasCurrency::of(network).unwrap(),
    }
}

async fn swept(bench: &Bench, n: u32, dry_run: bool) -> Result<Swept, AcceptError> {
    report(&bench.world).await;
    let by = Author { actor: "ops", reason: "to pay from one address", now: bench.world.now() };
    registry::sweep(bench.world.db(), &order(bench, n), (true, dry_run), &by).await
}

/// Carol has an address that pays and three more, two of which were paid.
async fn bench(engine: Engine) -> Bench {
    bench_by(engine, erc3009()).await
}

/// As [`bench`], with a token that is sent in this way.
async fn bench_by(engine: Engine, route: Route) -> Bench {
    let mut bench = Bench::by_route(TestStore::fresh(engine).await, 1, 1, route).await;
    // Everybody owns a sum beyond all belief at first.
    for tag in TAGS {
        let all = SimLeg { amount: U256::from(WEALTH), ..token(of(tag), address(PAYER), 0) };
        bench.world.chain.mine(vec![SimTx::new(of(tag), 0, vec![all])]);
    }
    // Before anybody watches: it is no spending of ours.
    bench.follow().await;
    let addresses = TAGS.iter().map(|tag| (CHAIN, of(tag))).collect();
    let kind = AccountType::Omnibus;
    let account = NewAccount { id: CAROL.to_owned(), identity_id: None, kind, addresses };
    registry::add_accounts(bench.world.db(), &[account], bench.world.now()).await.unwrap();
    let mut tx = bench.world.db().begin().await.unwrap();
    for tag in TAGS {
        let path = KeyPath::of_wallet(Family::Evm, CAROL, tag).to_string();
        let (account_id, tag, key_id) = (CAROL.to_owned(), tag.to_owned(), "sim".to_owned());
        let wallet = Wallet { address: of(&tag), account_id, tag, path, key_id };
        wallets::add(&mut tx, &wallet, bench.world.now()).await.unwrap();
    }
    tx.commit().await.unwrap();
    for (tag, amount) in [("r-1", 700), ("r-2", 30)] {
        let paid = bench.by_hand(vec![token(address(PAYER), of(tag), amount)]);
        bench.world.chain.mine(vec![paid]);
    }
    bench.blocks(FINALITY_DEPTH + 1).await;
    read_balances(&bench).await;
    bench
}

async fn read_balances(bench: &Bench) {
    let world = &bench.world;
    let mut watch = BalanceWatch::new(world.chain.clone(), world.db().clone(), &world.network, 20, "two".to_owned());
    world.pass(Duration::from_secs(120));
    report(world).await;
    for _ in 0..100 {
        if watch.tick(world.now(), 0).await.unwrap() == BalancesRead::default() {
            return;
        }
    }
    panic!("balances are never read");
}

async fn available(bench: &Bench, tag: &str) -> U256 {
    let since = bench.world.now().minus(UNREAD_MAX);
    let known = balances::of_account(&mut bench.world.db().read().await.unwrap(), CAROL, since).await.unwrap();
    let known = known.iter().find(|known| known.address == of(tag)).unwrap();
    known.held.iter().find(|held| held.asset == TOKEN).and_then(Held::available).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sweep_brings_all_to_the_address_that_pays_once_and_no_client_sees_it() {
    for engine in ENGINES {
        let mut bench = bench(engine).await;
        assert_eq!(swept(&bench, 1, true).await.unwrap().transfers.len(), 2);
        let none: Vec<(String,)> = rows(bench.world.db(), "SELECT id FROM transfers").await;
        assert_eq!(none, [], "a dry run changes nothing");

        let first = swept(&bench, 1, false).await.unwrap();
        let paid: Vec<(Address, u64)> =
            first.transfers.iter().map(|(of, _)| (of.source, of.amount.try_into().unwrap())).collect();
        assert_eq!(paid, [(of("r-1"), 700), (of("r-2"), 30)]);
        assert!(first.transfers.iter().all(|(it, _)| it.destination == of("") && it.kind == TransferKind::Sweep));
        assert_eq!(available(&bench, "r-1").await, U256::ZERO, "it is reserved");
        let again = swept(&bench, 1, false).await.unwrap();
        assert!(again.transfers.iter().all(|(_, made)| *made == Made::Before));
        assert_eq!(swept(&bench, 2, false).await.unwrap().transfers, [], "nothing is left to sweep");

        for (transfer, _) in &first.transfers {
            assert_eq!(bench.until_ended(transfer.id).await, State::Confirmed);
            // As where a node does not say who paid.
            let (id, to) = (bench.shown(transfer.id).await.tx.unwrap(), &transfer.destination);
            let mut reader = bench.world.db().read().await.unwrap();
            let (stranger, little) = (address(STRANGER), U256::from(1));
            for (to, amount, is_one) in
                [(to, &transfer.amount, true), (&stranger, &transfer.amount, false), (to, &little, false)]
            {
                let found = transfers::is_sweep(&mut reader, CHAIN, &id, (to, amount)).await.unwrap();
                assert_eq!(found, is_one, "{to} {amount}");
            }
        }
        bench.blocks(FINALITY_DEPTH).await;
        read_balances(&bench).await;
        assert_eq!((available(&bench, "r-1").await, available(&bench, "").await), (U256::ZERO, U256::from(730)));
        assert_no_client_sees_it(&bench).await;
        assert!(matches!(
            refused(&bench, |order| order.account_id = "nobody".to_owned()).await,
            AcceptError::NoAccount(_)
        ));
        assert!(matches!(refused(&bench, |order| order.asset.route = None).await, AcceptError::NotSendable { .. }));
        bench.close().await;
    }
}

/// Why a sweep that is asked for otherwise is refused.
async fn refused(bench: &Bench, change: impl FnOnce(&mut SweepOrder)) -> AcceptError {
    let mut order = order(bench, 9);
    change(&mut order);
    let by = Author { actor: "ops", reason: "a test", now: bench.world.now() };
    registry::sweep(bench.world.db(), &order, (true, false), &by).await.unwrap_err()
}

async fn assert_no_client_sees_it(bench: &Bench) {
    let db = bench.world.db();
    let mut reader = db.read().await.unwrap();
    let of_clients = TransferFilter { kind: Some(TransferKind::Payment), ..TransferFilter::default() };
    assert_eq!(transfers::list(&mut reader, &of_clients, 10).await.unwrap(), []);
    let listed = deposits::list(&mut reader, &deposits::DepositFilter::default(), 10).await.unwrap();
    assert!(listed.iter().all(|deposit| deposit.sender == address(PAYER)), "{listed:?}");
    drop(reader);
    let events: Vec<(String,)> = rows(db, "SELECT id FROM events WHERE aggregatetype = 'transfer'").await;
    assert_eq!(events, []);
    let kept: Vec<(String, String)> =
        rows(db, "SELECT amount_text, status FROM deposits WHERE is_self_transfer ORDER BY amount_text").await;
    let confirmed = |amount: &str| (amount.to_owned(), "CONFIRMED".to_owned());
    assert_eq!(kept, [confirmed("30"), confirmed("700")], "they are kept for the books");
    let silent: Vec<(String,)> = rows(
        db,
        "SELECT events.id FROM events JOIN deposits ON deposits.id = events.aggregateid WHERE deposits.is_self_transfer",
    )
    .await;
    assert_eq!(silent, []);
    let borne: Vec<(String,)> = rows(db, "SELECT DISTINCT bearer FROM gas_ledger WHERE kind = 'COST'").await;
    assert_eq!(borne, [("PLATFORM".to_owned(),)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_account_pays_another_of_ours_is_a_deposit() {
    let mut bench = bench(Engine::Sqlite).await;
    let id = bench.accept(1, 1_000).await;
    let carol = bench.order(2, 5);
    let to_carol = landfall::transfer::Order { destination: of("r-3"), ..carol };
    report(&bench.world).await;
    let paid = registry::accept_transfer(bench.world.db(), &to_carol, true, bench.world.now()).await.unwrap().0;
    assert_eq!(bench.until_ended(id).await, State::Confirmed);
    assert_eq!(bench.until_ended(paid.id).await, State::Confirmed);
    let listed = deposits::list(&mut bench.world.db().read().await.unwrap(), &Default::default(), 10).await.unwrap();
    let of_carol = listed.iter().find(|deposit| deposit.recipient == of("r-3")).unwrap();
    assert_eq!((of_carol.is_self_transfer, of_carol.source_account_id.as_deref()), (false, Some("alice")));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_delegates_of_several_swept_addresses_are_taken_away_together_and_the_cost_is_divided() {
    let mut bench = bench_by(Engine::Sqlite, by_delegate(0xd1)).await;
    bench.world.chain.set_carrier_fee(7);
    let swept = swept(&bench, 1, false).await.unwrap();
    for (transfer, _) in &swept.transfers {
        assert_eq!(bench.until_ended(transfer.id).await, State::Confirmed);
    }
    let acts = |bench: &Bench| ["r-1", "r-2"].map(|tag| bench.world.chain.acts_for(&of(tag)));
    assert_eq!(acts(&bench), [true; 2]);
    bench.blocks(FINALITY_DEPTH + 10).await;
    assert_eq!((acts(&bench), bench.world.chain.clearings()), ([false; 2], vec![2]));
    let mut parts = Vec::new();
    for (transfer, _) in &swept.transfers {
        let costs = gas_ledger::costs_of(&mut bench.world.db().read().await.unwrap(), transfer.id).await.unwrap();
        assert!(costs.iter().all(|cost| cost.bearer == Bearer::Platform));
        parts.push(costs.iter().map(|cost| u64::try_from(cost.amount).unwrap()).sum::<u64>() - 7);
    }
    parts.sort_unstable();
    assert_eq!(parts, [3, 4], "evenly, and what is left to the first");
    bench.close().await;
}
