//! The books of Solana: an owner has what came, less what went, whatever the transactions were and however often the
//! chain was rolled back. What came without being a deposit is in the inbox, once, with its reason.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use landfall::balance::{HeldAfter, Readings};
use landfall::deposit::Deposit;
use landfall::deposit::DepositStatus::{Confirmed, Pending};
use landfall::incident::IncidentKind;
use landfall::store::{Reader, incidents, movements, unattributed, unexplained};
use landfall::watcher::{Backfill, BalanceWatch};
use landfall_chain::{AssetId, Chain, U256};
use landfall_cluster::{Fault, Finality, Ledger as Cluster, Refusal, TIME, Tx, When};
use landfall_solana::{Wrapped, network};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::harness::books::events;
use crate::harness::postgres::{ENGINES, Engine, TestStore};
use crate::harness::solana_ledger::{
    Account, FEE, Ledger, Mint, OURS, OWNERS, Place, RENT, SPL_TOKEN, TOKEN_2022, asset, listing_wrapped, owner,
};
use crate::harness::solana_line::{CHAIN, Line, with};
use crate::solana::past::by_slots;

const ASSETS: [Option<Mint>; 3] = [None, Some(Mint::Usdc), Some(Mint::Wrapped)];

fn id(mint: Option<Mint>) -> AssetId {
    mint.map_or(AssetId::Native, asset)
}

/// One thing that owners do.
fn act(ledger: &mut Ledger, rng: &mut StdRng) {
    let pick = |rng: &mut StdRng| OWNERS[rng.random_range(0..OWNERS.len())];
    let (who, other, amount) = (pick(rng), pick(rng), rng.random_range(1..500));
    let place = if rng.random_bool(0.7) { Place::Associated } else { Place::Stray };
    let account = |who: u8, mint: Mint| -> Account { (who, mint, place) };
    match rng.random_range(0..8) {
        0 | 1 => ledger.send(who, other, amount),
        2 | 3 => {
            let (from, to) = ((who, Mint::Usdc, Place::Associated), account(other, Mint::Usdc));
            ledger.open(to, pick(rng));
            ledger.pay(from, to, amount);
        }
        4 => {
            let to = account(other, Mint::Wrapped);
            ledger.open(to, who);
            ledger.wrap(who, to, amount);
        }
        5 => {
            let (from, to) = (account(who, Mint::Wrapped), (other, Mint::Wrapped, Place::Associated));
            if let Some(held) = ledger.tokens(from).filter(|held| *held > 0) {
                ledger.open(to, other);
                ledger.pay(from, to, amount.min(held));
            }
        }
        6 => {
            if ledger.tokens(account(who, Mint::Wrapped)).is_some() {
                ledger.close(account(who, Mint::Wrapped));
            }
        }
        _ => {
            // Everything of a stray account goes back, and the account is closed.
            let (from, to) = ((who, Mint::Usdc, Place::Stray), (who, Mint::Usdc, Place::Associated));
            if let Some(held) = ledger.tokens(from) {
                ledger.pay(from, to, held);
                ledger.close(from);
            }
        }
    }
}

/// Some transactions: of one thing or of several, and some that fail.
fn random_txs(ledger: &mut Ledger, rng: &mut StdRng) -> Vec<Value> {
    let count = rng.random_range(0..5);
    let tx = |_| {
        let payer = OWNERS[rng.random_range(0..OWNERS.len())];
        if rng.random_bool(0.15) {
            return ledger.failed(payer);
        }
        let acts = rng.random_range(1..4);
        ledger.tx(payer, |ledger| (0..acts).for_each(|_| act(ledger, rng)))
    };
    (0..count).map(tx).collect()
}

/// What the record makes of an owner's balance, and what it is.
async fn assert_books(line: &Line, before: &Ledger, after: &Ledger) -> [U256; 4] {
    let (mut sums, range) = ([U256::ZERO; 4], 0..=u64::MAX);
    let deposits = line.deposits().await;
    let mut reader = line.store.db.read().await.unwrap();
    for (who, mint) in OURS.into_iter().flat_map(|who| ASSETS.map(|mint| (who, mint))) {
        let (address, asset) = (owner(who), id(mint));
        let of = deposits.iter().filter(|(it, counts)| *counts && it.recipient == address && it.asset == asset);
        let came: U256 = of.map(|(deposit, _)| deposit.amount).sum();
        let else_came = unattributed::arrived(&mut reader, CHAIN, &address, &asset, &range).await.unwrap();
        let spent = movements::spent(&mut reader, CHAIN, &address, &asset, &range).await.unwrap();
        assert_explained(&mut reader, before, after, (who, mint)).await;
        let had = U256::from(before.balance(who, mint));
        let has = U256::from(after.balance(who, mint));
        assert_eq!(had + came + else_came, has + spent.debits + spent.fees, "{who:#x} {mint:?}");
        for (sum, part) in sums.iter_mut().zip([came, else_came, spent.debits, spent.fees]) {
            *sum += part;
        }
    }
    sums
}

/// What is read of an owner, before and after, is explained: its SOL always, and a token unless some of it came to
/// another account of the owner's, or stands in one. Wrapped SOL is not compared.
async fn assert_explained(reader: &mut Reader, before: &Ledger, after: &Ledger, (who, mint): (u8, Option<Mint>)) {
    if mint == Some(Mint::Wrapped) {
        return;
    }
    let held = |ledger: &Ledger| match mint {
        Some(mint) => ledger.tokens((who, mint, Place::Associated)).unwrap_or_default(),
        None => ledger.balance(who, None),
    };
    let at = |number: u64, ledger: &Ledger| HeldAfter { number, amount: U256::from(held(ledger)) };
    let (had, has) = (at(0, before), at(i64::MAX.unsigned_abs(), after));
    let readings = Readings { chain: CHAIN, address: owner(who), asset: id(mint), had, has };
    let moved = unexplained::moved(reader, &readings).await.unwrap().unwrap();
    if let Some(difference) = readings.unexplained(&moved) {
        let is_elsewhere = mint.is_some_and(|mint| after.tokens((who, mint, Place::Stray)).is_some());
        let is_unseen = unexplained::is_unseen(reader, &readings).await.unwrap();
        assert!(mint.is_some() && (is_elsewhere || is_unseen), "{who:#x} {mint:?}: {difference:?}");
    }
}

async fn random_books(engine: Engine, seed: u64) -> BTreeSet<String> {
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut ledger, mut blocks) = (Ledger::new(), Cluster::of((100..150).filter(|slot| slot % 7 != 3)));
    let before = ledger.clone();
    let fork = 120;
    let slots: Vec<u64> = blocks.blocks().iter().map(|block| block.slot).filter(|slot| *slot > 100).collect();
    let mut at_fork = before.clone();
    for slot in &slots {
        let txs = random_txs(&mut ledger, &mut rng);
        if *slot < fork {
            at_fork = ledger.clone();
        }
        blocks = with(blocks, *slot, txs);
    }
    let mut line = Line::of(listing_wrapped(), TestStore::fresh(engine).await, blocks.clone(), 1).await;
    line.catch_up().await;
    assert_books(&line, &before, &ledger).await;

    // Another branch, with other transactions, and longer.
    let txs = ledger.txs;
    let mut ledger = at_fork;
    ledger.txs = txs;
    let other = Cluster::of((100..160).filter(|slot| slot % 7 != 3)).forked_at(fork);
    for slot in other.blocks().iter().map(|block| block.slot) {
        let txs = if slot < fork {
            blocks.block(slot).unwrap().txs.clone()
        } else {
            random_txs(&mut ledger, &mut rng).iter().map(Tx::raw).collect()
        };
        other.amend(slot, |block| block.txs = txs);
    }
    line.replace_record(&other);
    line.catch_up().await;
    assert_books(&line, &before, &ledger).await;
    line.finalize(159);
    line.catch_up().await;
    let sums = assert_books(&line, &before, &ledger).await;
    assert!(sums.iter().all(|sum| *sum > U256::ZERO), "nothing of a kind: {sums:?}");
    let counted = line.deposits().await.into_iter().filter(|(_, counts)| *counts);
    assert!(counted.into_iter().all(|(deposit, _)| deposit.status == Confirmed));
    line.inbox(true).await.into_iter().map(|arrival| arrival.reason).collect()
}

#[tokio::test]
async fn what_an_owner_has_is_what_came_less_what_went_over_random_blocks_and_reorgs() {
    let mut reasons = BTreeSet::new();
    for seed in 0..20 {
        reasons.extend(random_books(Engine::Sqlite, seed).await);
    }
    for seed in 100..103 {
        reasons.extend(random_books(Engine::Postgres, seed).await);
    }
    let all = ["ineligible_token_account", "rent_refund", "self_transfer"].map(str::to_owned);
    assert_eq!(reasons, all.into());
}

/// What is in the inbox: owner, asset, amount, reason.
async fn inbox(line: &Line) -> Vec<String> {
    let of = |it: landfall::store::unattributed::Arrival| {
        format!("{} {} {} {}", it.account_id.unwrap(), it.asset, it.amount, it.reason)
    };
    line.inbox(false).await.into_iter().map(of).collect()
}

#[tokio::test]
async fn what_cannot_be_credited_is_in_the_inbox_once_with_its_reason_and_goes_with_its_block() {
    for engine in ENGINES {
        let mut ledger = Ledger::new();
        let stray = (0x21, Mint::Usdc, Place::Stray);
        let spam = (0x21, Mint::Spam, Place::Associated);
        let tx = ledger.tx(0x23, |ledger| {
            ledger.open(stray, 0x23);
            ledger.pay((0x23, Mint::Usdc, Place::Associated), stray, 7);
            ledger.open(spam, 0x23);
            ledger.mint(spam, 1_000_000);
        });
        let blocks = with(Cluster::of(10..=15), 12, [tx.clone()]);
        let network = network(Chain::SolanaMainnet).unwrap();
        let mut line = Line::of(network, TestStore::fresh(engine).await, blocks, 1).await;
        line.catch_up().await;
        let expected = [format!("account 33 {} 7 ineligible_token_account", asset(Mint::Usdc))];
        assert_eq!(inbox(&line).await, expected, "a token that nobody lists is not recorded: anybody can send it");
        assert_eq!(line.amounts().await, []);
        let arrival = line.inbox(false).await.remove(0);
        assert_eq!((arrival.sender, arrival.block.number, arrival.is_final), (owner(0x23), 12, false));

        // The same transaction in another block, after a rollback: still once.
        let blocks = with(Cluster::of(10..=17).forked_at(12), 14, [tx]);
        line.replace_record(&blocks);
        line.catch_up().await;
        assert_eq!(inbox(&line).await, expected);
        assert_eq!(line.inbox(false).await[0].block.number, 14);
        line.finalize(17);
        line.catch_up().await;
        assert_eq!(inbox(&line).await, expected);
        assert!(line.inbox(false).await[0].is_final);
        // And it is gone with its block.
        let before = line.inbox(false).await.remove(0);
        let mut reader = line.store.db.read().await.unwrap();
        let page = unattributed::list(&mut reader, CHAIN, false, Some(&before), 10).await.unwrap();
        assert_eq!(page, [], "the next page is empty");
    }
}

#[tokio::test]
async fn a_listed_mint_under_another_program_is_in_the_inbox() {
    let mut ledger = Ledger::new();
    ledger.program = Some(TOKEN_2022);
    let to = (0x21, Mint::Usdc, Place::Associated);
    let txs = [ledger.tx(0x23, |ledger| ledger.pay((0x23, Mint::Usdc, Place::Associated), to, 9)), {
        ledger.program = Some(SPL_TOKEN);
        ledger.tx(0x23, |ledger| ledger.pay((0x23, Mint::Usdc, Place::Associated), to, 8))
    }];
    let network = network(Chain::SolanaMainnet).unwrap();
    let blocks = with(Cluster::of(10..=13), 12, txs);
    let mut line = Line::of(network, TestStore::fresh(Engine::Sqlite).await, blocks, 1).await;
    line.catch_up().await;
    assert_eq!(line.amounts().await, [(8, Pending)]);
    assert_eq!(inbox(&line).await, [format!("account 33 {} 9 unlisted_token", asset(Mint::Usdc))]);
}

/// Another wraps 30 for us, and we wrap 40 ourselves; then we unwrap all of it.
fn wrapping(ledger: &mut Ledger) -> [Value; 3] {
    let ours = (0x21, Mint::Wrapped, Place::Associated);
    [
        ledger.tx(0x23, |ledger| {
            ledger.open(ours, 0x23);
            ledger.wrap(0x23, ours, 30);
        }),
        ledger.tx(0x21, |ledger| ledger.wrap(0x21, ours, 40)),
        ledger.tx(0x21, |ledger| ledger.close(ours)),
    ]
}

#[tokio::test]
async fn s7_wrapped_sol_is_a_deposit_where_it_is_listed_and_in_the_inbox_where_it_is_not() {
    for engine in ENGINES {
        for is_listed in [true, false] {
            let (mut ledger, mut blocks) = (Ledger::new(), Cluster::of(10..=15));
            let before = ledger.clone();
            for (slot, tx) in (11..).zip(wrapping(&mut ledger)) {
                blocks = with(blocks, slot, [tx]);
            }
            let network = if is_listed { listing_wrapped() } else { network(Chain::SolanaMainnet).unwrap() };
            let mut line = Line::of(network, TestStore::fresh(engine).await, blocks, 1).await;
            line.finalize(15);
            line.catch_up().await;
            let wrapped = asset(Mint::Wrapped);
            if is_listed {
                assert_eq!(line.amounts().await, [(30, Confirmed)]);
                assert_eq!(line.deposit().await.asset, wrapped);
                assert_eq!(inbox(&line).await, Vec::<String>::new());
                assert_books(&line, &before, &ledger).await;
            } else {
                assert_eq!(line.amounts().await, []);
                assert_eq!(
                    inbox(&line).await,
                    [format!("account 33 {wrapped} 30 unlisted_token")],
                    "not what we wrapped"
                );
            }
            let back = line.inbox(true).await;
            let of_sol = |reason: &str| back.iter().find(|it| it.asset == AssetId::Native && it.reason == reason);
            assert_eq!(of_sol("self_transfer").map(|it| it.amount), Some(U256::from(70)));
            assert_eq!(of_sol("rent_refund").map(|it| it.amount), Some(U256::from(RENT)));
        }
    }
}

#[tokio::test]
async fn what_was_credited_as_one_form_of_sol_is_not_credited_as_the_other_one_under_another_setting() {
    for engine in ENGINES {
        for [first, then] in [[Wrapped::Token, Wrapped::Native], [Wrapped::Native, Wrapped::Token]] {
            let (mut ledger, blocks) = (Ledger::new(), Cluster::of(10..=15));
            let ours = (0x21, Mint::Wrapped, Place::Associated);
            let txs = [
                ledger.tx(0x23, |ledger| {
                    ledger.open(ours, 0x23);
                    ledger.wrap(0x23, ours, 30);
                }),
                // Beside SOL of its own, which is no wrapped SOL under either setting.
                ledger.tx(0x23, |ledger| {
                    ledger.wrap(0x23, ours, 40);
                    ledger.send(0x23, 0x21, 7);
                }),
            ];
            let blocks = with(with(blocks, 11, [txs[0].clone()]), 12, [txs[1].clone()]);
            let mut line = Line::of(listing_wrapped(), TestStore::fresh(engine).await, blocks, 1).await;
            line.count_wrapped_as(first);
            line.finalize(14);
            line.catch_up().await;
            let confirmed = async |line: &Line| -> u64 {
                let amounts = line.amounts().await;
                amounts.into_iter().filter(|(_, status)| *status == Confirmed).map(|(amount, _)| amount).sum()
            };
            assert_eq!(confirmed(&line).await, 77, "{first:?}");
            line.count_wrapped_as(then);
            let mut backfill = Backfill::begin(line.another(), by_slots(11, 14)).await.unwrap();
            while !backfill.is_done() {
                backfill.step(line.now).await.unwrap();
            }
            assert_eq!(confirmed(&line).await, 77, "{first:?}, then {then:?}: {:?}", line.amounts().await);
            let mut reader = line.store.db.read().await.unwrap();
            let held = incidents::of_deposits(&mut reader, CHAIN, IncidentKind::OverCredited).await.unwrap();
            assert!(!held.is_empty() && held.iter().all(|it| it.what.contains("stays PENDING")), "{held:?}");
        }
    }
}

#[tokio::test]
async fn s9_what_we_pay_the_fee_of_is_credited_in_full_and_the_fee_is_on_record_also_of_what_failed() {
    for engine in ENGINES {
        let mut ledger = Ledger::new();
        let before = ledger.clone();
        let txs = [ledger.tx(0x21, |ledger| ledger.send(0x23, 0x21, 50)), ledger.failed(0x21), ledger.failed(0x23)];
        let network = network(Chain::SolanaMainnet).unwrap();
        let blocks = with(Cluster::of(10..=13), 12, txs);
        let mut line = Line::of(network, TestStore::fresh(engine).await, blocks, 1).await;
        line.finalize(13);
        line.catch_up().await;
        assert_eq!(line.amounts().await, [(50, Confirmed)]);
        let mut reader = line.store.db.read().await.unwrap();
        let spent = movements::spent(&mut reader, CHAIN, &owner(0x21), &AssetId::Native, &(0..=99)).await.unwrap();
        assert_eq!((spent.debits, spent.fees), (U256::ZERO, U256::from(2 * FEE)));
        let others = movements::spent(&mut reader, CHAIN, &owner(0x23), &AssetId::Native, &(0..=99)).await.unwrap();
        assert_eq!((others.debits, others.fees), (U256::ZERO, U256::ZERO), "nobody watches the other one");
        drop(reader);
        assert_books(&line, &before, &ledger).await;
    }
}

#[tokio::test]
async fn s13_what_is_confirmed_only_is_pending_and_what_is_finalized_is_confirmed() {
    for engine in ENGINES {
        let mut ledger = Ledger::new();
        let mut blocks = Cluster::of(10..=60);
        for (slot, amount) in [(11, 1), (30, 2), (59, 3)] {
            blocks = with(blocks, slot, [ledger.tx(0x23, |ledger| ledger.send(0x23, 0x21, amount))]);
        }
        let network = network(Chain::SolanaMainnet).unwrap();
        let mut line = Line::of(network, TestStore::fresh(engine).await, blocks, 1).await;
        line.catch_up().await;
        assert_eq!(line.amounts().await, [(1, Pending), (2, Pending), (3, Pending)], "49 slots on top are no finality");
        line.finalize(30);
        line.catch_up().await;
        assert_eq!(line.amounts().await, [(1, Confirmed), (2, Confirmed), (3, Pending)]);
        // As one round of votes may finalize what was just confirmed.
        line.finalize(60);
        line.catch_up().await;
        assert_eq!(line.amounts().await, [(1, Confirmed), (2, Confirmed), (3, Confirmed)]);
    }
}

/// As when the rule of finality changes: it stands still for a while, what is only confirmed may be taken back, and
/// then all of it is final at once.
#[tokio::test]
async fn while_finality_stalls_deposits_wait_with_an_alarm_and_what_catches_up_is_confirmed_once() {
    const MINUTE: Duration = Duration::from_secs(60);
    for engine in ENGINES {
        let mut ledger = Ledger::new();
        let blocks = Cluster::of(10..=14);
        blocks.set_finality(Finality::Stalled);
        blocks.finalize(11);
        for (slot, amount) in [(12, 1), (13, 2)] {
            blocks.put(slot, Tx::raw(&ledger.tx(0x23, |ledger| ledger.send(0x23, 0x21, amount))));
        }
        let network = network(Chain::SolanaMainnet).unwrap();
        let mut line = Line::of(network, TestStore::fresh(engine).await, blocks.clone(), 2).await;
        line.warn_after(10 * MINUTE);
        line.catch_up().await;
        let since = line.now;
        for minute in 1..=10 {
            line.now = line.now.plus(MINUTE);
            blocks.grow(Vec::new());
            line.catch_up().await;
            assert_eq!(line.watcher.alarms(line.now), Vec::<String>::new(), "minute {minute}");
        }
        // What pays 2 is taken back, and what pays 1 comes in another slot.
        let kept = blocks.roll_back_to(11).swap_remove(0);
        let next = 30;
        blocks.produce(next, Vec::new());
        blocks.produce(next + 1, vec![kept]);
        line.now = line.now.plus(MINUTE);
        line.catch_up().await;
        let stalled = format!("finality stalled: block 11 is final since {since}");
        assert_eq!(line.watcher.alarms(line.now), [stalled]);
        assert_eq!(line.amounts().await, [(1, Pending), (2, Pending)], "nothing is CONFIRMED, and nothing FAILED");
        let ids = |all: Vec<(Deposit, bool)>| all.into_iter().map(|(deposit, in_block)| (deposit.id, in_block));
        let before: Vec<_> = ids(line.deposits().await).collect();
        assert_eq!([before[0].1, before[1].1], [true, false]);

        blocks.set_finality(Finality::AtOnce);
        line.catch_up().await;
        assert_eq!(line.watcher.alarms(line.now), Vec::<String>::new(), "it goes by itself");
        assert_eq!(line.amounts().await, [(1, Confirmed), (2, Pending)], "what is in no block waits for its grace");
        assert_eq!(ids(line.deposits().await).collect::<Vec<_>>(), before);
        let reported = events(&line.store.db).await;
        let of = |status: &str| reported.iter().filter(|event| event.status == status).count();
        assert_eq!((of("PENDING"), of("CONFIRMED"), of("FAILED")), (2, 1, 0));
    }
}

#[tokio::test]
async fn s14_lamports_that_came_by_no_transaction_are_reported_once_and_are_no_deposit() {
    const DAY: Duration = Duration::from_secs(25 * 60 * 60);
    for engine in ENGINES {
        let blocks = Cluster::of(10..=14);
        let mut line = Line::of(network(CHAIN).unwrap(), TestStore::fresh(engine).await, blocks.clone(), 2).await;
        let (source, db) = (Arc::clone(&line.source), line.store.db.clone());
        let mut watch = BalanceWatch::new(source, db, &line.network, 20, "one".to_owned());
        let mut read = 0;
        // All is read before it comes, and once more on each of two days behind.
        for lamports in [1_000_000, 1_000_000, 1_000_007, 1_000_007] {
            let account = json!({
                "data": ["", "base64"], "executable": false, "lamports": lamports, "owner": "11111111111111111111111111111111",
                "rentEpoch": 0, "space": 0,
            });
            line.nodes.iter().for_each(|node| node.report_account(&owner(0x21).to_string(), account.clone()));
            blocks.finalize(blocks.grow(Vec::new()).number);
            line.catch_up().await;
            for _ in 0..3 {
                read += watch.tick(line.now, 0).await.unwrap().read;
            }
            line.now = line.now.plus(DAY);
        }
        assert_eq!(read, 4 * OURS.len());
        let mut reader = line.store.db.read().await.unwrap();
        let entries = unexplained::list(&mut reader, CHAIN, None, 10).await.unwrap();
        let [entry] = entries.as_slice() else { panic!("one: {entries:?}") };
        let Readings { address, asset, had, has, .. } = entry.readings;
        assert_eq!((address, asset), (owner(0x21), AssetId::Native));
        assert_eq!((had.amount, has.amount), (U256::from(1_000_000), U256::from(1_000_007)));
        assert_eq!((line.deposits().await.len(), line.inbox(true).await.len()), (0, 0));
    }
}

#[tokio::test]
async fn an_endpoint_that_refuses_for_good_is_an_alarm_of_the_chain_until_it_serves() {
    const MINUTE: Duration = Duration::from_secs(60);
    let never = "it never will: have its history and indexes switched on, or take it out";
    let wrong = "what is asked for is not understood there, and a person must look";
    let cases = [
        (Refusal::HistoryNotAvailable, Some(never)),
        (Refusal::InvalidParams, Some(wrong)),
        (Refusal::NodeUnhealthy, None),
    ];
    for (refusal, advice) in cases {
        let (mut ledger, blocks) = (Ledger::new(), Cluster::of(10..=11));
        let mut pay = |amount| blocks.grow(vec![Tx::raw(&ledger.tx(0x23, |ledger| ledger.send(0x23, 0x21, amount)))]);
        let network = network(Chain::SolanaMainnet).unwrap();
        let mut line = Line::of(network, TestStore::fresh(Engine::Sqlite).await, blocks.clone(), 2).await;
        line.catch_up().await;
        line.nodes[1].confine("getBlock");
        line.nodes[1].misbehave(Fault::Refuse(refusal), When::Always);
        let since = line.now;
        for minute in 0..=5 {
            pay(1 + minute);
            line.catch_up().await;
            assert_eq!(line.watcher.alarms(line.now), Vec::<String>::new(), "{refusal:?}, minute {minute}");
            line.now = line.now.plus(MINUTE);
        }
        pay(7);
        line.catch_up().await;
        let (reported, begin) = (
            line.watcher.alarms(line.now),
            format!("since {since}, endpoint {} refuses getBlock with transactions: ", line.nodes[1].id()),
        );
        let is_reported =
            |advice: &str| matches!(&reported[..], [one] if one.starts_with(&begin) && one.ends_with(advice));
        assert!(advice.map_or(reported.is_empty(), is_reported), "{refusal:?}: {reported:?}");
        line.nodes[1].behave();
        pay(8);
        line.catch_up().await;
        assert_eq!(line.watcher.alarms(line.now), Vec::<String>::new(), "{refusal:?}: it goes by itself");
    }
}

#[tokio::test]
async fn s15_slots_of_200_ms_and_of_400_ms_give_the_same_deposits() {
    let mut reported = Vec::new();
    for slot_ms in [400, 200] {
        let mut ledger = Ledger::new();
        // The same 40 seconds; payments at the same moments, and empty blocks between.
        let (first, last) = (400_000 / slot_ms, 440_000 / slot_ms);
        let mut blocks = Cluster::of(first..=last);
        for slot in first..=last {
            let time = i64::try_from(TIME + slot * slot_ms / 1_000).unwrap();
            blocks.amend(slot, |block| block.time = Some(time));
        }
        for (at_ms, amount) in [(404_000, 1), (404_400, 2), (420_000, 3), (436_800, 4)] {
            let slot = at_ms / slot_ms;
            blocks = with(blocks, slot, [ledger.tx(0x23, |ledger| ledger.send(0x23, 0x21, amount))]);
        }
        let network = network(Chain::SolanaMainnet).unwrap();
        let mut line = Line::of(network, TestStore::fresh(Engine::Sqlite).await, blocks, 1).await;
        line.catch_up().await;
        let mut seen = vec![line.amounts().await];
        for at_ms in [404_000, 420_000, 440_000] {
            line.finalize(at_ms / slot_ms);
            line.catch_up().await;
            seen.push(line.amounts().await);
        }
        let deposits: Vec<_> = line.deposits().await.into_iter().map(|(deposit, _)| deposit).collect();
        assert_eq!(deposits.len(), 4);
        reported.push((seen, deposits));
    }
    assert_eq!(reported[0], reported[1]);
}
