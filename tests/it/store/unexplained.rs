//! What is on record to have moved between two readings: each kind of movement, of these blocks, this address and this
//! asset only.

use landfall::balance::{HeldAfter, Moved, Readings, Unexplained};
use landfall::deposit::DepositStatus::Pending;
use landfall::store::unexplained::{self, Entry};
use landfall::store::{Pools, cursors, deposits, movements, unattributed};
use landfall_chain::{
    Address, AssetId, AssetTransfer, Fee, Lane, Rejected, SenderRule, TxId, TxLife, TxRef, U256, Verdict,
};
use sqlx::AssertSqlSafe;

use super::cast::{CHAIN, NOW, OTHER_CHAIN, Reads, address, block, connect, deposit, include, insert, run, write};
use crate::harness::postgres::TestStore;

on_both_engines!(
    every_kind_of_movement_between_two_readings_counts_once_and_no_other,
    what_may_have_moved_elsewhere_is_not_compared,
    thousands_of_movements_are_not_summed_up,
    pages_hold_each_entry_once_newest_first,
    what_moved_in_a_few_blocks_is_found_among_many_deposits_of_an_address,
);

const ALICE: u8 = 0xa1;
const OTHER: AssetId = AssetId::Token(Address::Evm([0x70; 20]));

/// Nothing is held at the end that was not at the beginning.
fn between(from: u64, to: u64) -> Readings {
    let at = |number| HeldAfter { number, amount: U256::ZERO };
    Readings { chain: CHAIN, address: address(ALICE), asset: AssetId::Native, had: at(from), has: at(to) }
}

async fn moved(store: &TestStore, readings: &Readings) -> (u64, u64) {
    let moved = unexplained::moved(&mut store.db.read().await.unwrap(), readings).await.unwrap();
    let Moved { came, left, .. } = moved.expect("not too many");
    (came.try_into().unwrap(), left.try_into().unwrap())
}

async fn is_unseen(store: &TestStore, readings: &Readings) -> bool {
    unexplained::is_unseen(&mut store.db.read().await.unwrap(), readings).await.unwrap()
}

fn transfer(asset: AssetId, from: u8, to: u8, amount: u64) -> AssetTransfer {
    let (tx, sender_rule) = (TxRef { id: TxId::Evm([7; 32]), life: TxLife::Block }, SenderRule::Reported);
    AssetTransfer {
        tx,
        asset,
        sender: address(from),
        sender_rule,
        recipient: address(to),
        amount: U256::from(amount),
        nth: 0,
    }
}

async fn arrive(store: &TestStore, number: u64, tag: u8, rejected: Rejected) {
    let (at, leg) = (block(number, 1).header.block, deposit(tag).leg_hash);
    write(store, async |tx| unattributed::insert(tx, CHAIN, &at, &leg, &rejected).await.unwrap()).await;
}

async fn debit(store: &TestStore, number: u64, tag: u8, gone: AssetTransfer) {
    let (at, leg) = (block(number, 1).header.block, deposit(tag).leg_hash);
    write(store, async |tx| movements::debit(tx, CHAIN, &at, Lane::Block, &leg, &gone).await.unwrap()).await;
}

async fn every_kind_of_movement_between_two_readings_counts_once_and_no_other(store: TestStore) {
    let blocks: Vec<_> = (1..=9).map(|number| block(number, 1)).collect();
    connect(&store, &blocks).await;
    // At the older block, above it, at the newer one, and above that.
    for (tag, at) in [(1, 3), (2, 4), (4, 7), (8, 8)] {
        let came = insert_another(&store, tag).await;
        for _ in 0..2 {
            include(&store, &came, &blocks[at - 1]).await;
        }
    }
    assert_eq!(moved(&store, &between(3, 7)).await, (6, 0));
    for (tag, verdict, counts) in
        [(20, Verdict::RentRefund, true), (21, Verdict::SelfTransfer, true), (22, Verdict::UnlistedToken, false)]
    {
        let (before, _) = moved(&store, &between(3, 7)).await;
        arrive(&store, 7, tag, Rejected { transfer: transfer(AssetId::Native, 9, ALICE, 100), verdict }).await;
        let expected = before + if counts { 100 } else { 0 };
        assert_eq!(moved(&store, &between(3, 7)).await, (expected, 0), "{verdict}");
    }
    for (number, amount) in [(3, 1), (4, 10), (7, 20), (8, 40)] {
        debit(&store, number, u8::try_from(number).unwrap() + 40, transfer(AssetId::Native, ALICE, 9, amount)).await;
        let fee = Fee {
            tx: transfer(OTHER, 1, 2, 1).tx,
            payer: address(ALICE),
            amount: U256::from(amount * 1_000),
            outlay: 0,
            proved: true,
        };
        let at = blocks[usize::try_from(number).unwrap() - 1].header.block;
        write(&store, async |tx| movements::fee(tx, CHAIN, &at, &fee).await.unwrap()).await;
    }
    // Of another asset and of others.
    debit(&store, 5, 60, transfer(OTHER, ALICE, 9, 3)).await;
    debit(&store, 5, 61, transfer(AssetId::Native, 9, ALICE, 3)).await;
    assert_eq!(moved(&store, &between(3, 7)).await, (206, 30_030));
    // Fees are of the native currency.
    assert_eq!(moved(&store, &Readings { asset: OTHER, ..between(3, 7) }).await, (0, 3));
    assert_eq!(moved(&store, &Readings { chain: OTHER_CHAIN, ..between(3, 7) }).await, (0, 0));
    assert_eq!(moved(&store, &Readings { address: address(9), ..between(3, 7) }).await, (0, 3));

    // What a trace invented came to nobody, and what is in no block of ours did not move.
    let invented = deposits::by_id(&mut store.db.read().await.unwrap(), deposit(4).id).await.unwrap().unwrap();
    let failed = invented.fail().unwrap();
    write(&store, async |tx| deposits::set_status(tx, &failed, Pending).await.unwrap()).await;
    assert_eq!(moved(&store, &between(3, 7)).await, (202, 30_030));
    let fork_point = blocks[4].header.block;
    write(&store, async |tx| cursors::disconnect(tx, CHAIN, &fork_point).await.unwrap()).await;
    assert_eq!(moved(&store, &between(3, 7)).await, (2, 10_010));

    let mut readings = between(3, 7);
    readings.had.amount = U256::from(50_000);
    for (held, expected) in
        [(39_992, None), (39_993, Some(Unexplained::More(U256::ONE))), (0, Some(Unexplained::Less(U256::from(39_992))))]
    {
        readings.has.amount = U256::from(held);
        let moved = unexplained::moved(&mut store.db.read().await.unwrap(), &readings).await.unwrap().unwrap();
        assert_eq!(readings.unexplained(&moved), expected);
    }
}

/// Deposits of one account: it is added once.
async fn insert_another(store: &TestStore, tag: u8) -> landfall::deposit::Deposit {
    if tag == 1 {
        return insert(store, deposit(tag)).await;
    }
    let deposit = deposit(tag);
    write(store, async |tx| deposits::insert(tx, &deposit).await.unwrap()).await;
    deposit
}

async fn what_may_have_moved_elsewhere_is_not_compared(store: TestStore) {
    let blocks: Vec<_> = (1..=9).map(|number| block(number, 1)).collect();
    connect(&store, &blocks).await;
    let came = insert(&store, deposit(1)).await;
    include(&store, &came, &blocks[4]).await;
    assert!(!is_unseen(&store, &between(3, 7)).await);
    // Some stands in another account of hers, since whenever, and may go from there.
    let verdict = Verdict::IneligibleTokenAccount;
    arrive(&store, 2, 20, Rejected { transfer: transfer(OTHER, 9, ALICE, 100), verdict }).await;
    assert!(!is_unseen(&store, &between(3, 7)).await);
    assert!(is_unseen(&store, &Readings { asset: OTHER, ..between(3, 7) }).await);
}

async fn pages_hold_each_entry_once_newest_first(store: TestStore) {
    insert(&store, deposit(1)).await;
    let all = [(9, OTHER), (9, AssetId::Native), (7, AssetId::Native), (5, OTHER), (5, AssetId::Native)];
    for (number, asset) in all {
        let readings = Readings { asset, ..between(number - 1, number) };
        for _ in 0..2 {
            write(&store, async |tx| unexplained::insert(tx, &readings, NOW).await.unwrap()).await;
        }
    }
    for limit in 1..=6 {
        let (mut listed, mut after): (Vec<(u64, AssetId)>, Option<Entry>) = (Vec::new(), None);
        loop {
            let mut reader = store.db.read().await.unwrap();
            let page = unexplained::list(&mut reader, CHAIN, after.as_ref(), limit).await.unwrap();
            assert_eq!(unexplained::list(&mut reader, OTHER_CHAIN, None, limit).await.unwrap(), []);
            listed.extend(page.iter().map(|entry| (entry.readings.has.number, entry.readings.asset)));
            assert!(page.iter().all(|entry| entry.account_id.as_deref() == Some("alice") && entry.found_at == NOW));
            match page.into_iter().last() {
                Some(last) => after = Some(last),
                None => break,
            }
        }
        assert_eq!(listed, all, "{limit}");
    }
}

async fn thousands_of_movements_are_not_summed_up(store: TestStore) {
    connect(&store, &[block(4, 1), block(5, 1)]).await;
    debit(&store, 4, 1, transfer(AssetId::Native, ALICE, 9, 7)).await;
    let hash = match store.db.pools() {
        Pools::Postgres(_) => "DECODE(LPAD(TO_HEX(n), 64, '0'), 'hex')",
        Pools::Sqlite { .. } => "CAST(printf('%032d', n) AS BLOB)",
    };
    for (more, expected) in [("1, 9999", Some((0, 70_000))), ("10000, 10000", None)] {
        let (first, last) = more.split_once(", ").unwrap();
        let copies = format!(
            "WITH RECURSIVE numbers (n) AS (SELECT CAST({first} AS BIGINT) UNION ALL SELECT n + 1 FROM numbers WHERE n < {last}), \
             one AS (SELECT * FROM debits LIMIT 1) INSERT INTO debits (chain, block_hash, block_number, lane, leg_hash, tx_id, asset, \
             sender, recipient, amount, amount_text) SELECT chain, block_hash, block_number, lane, {hash}, tx_id, asset, sender, \
             recipient, amount, amount_text FROM one, numbers"
        );
        run(&store.db, AssertSqlSafe(copies)).await;
        let reported = unexplained::moved(&mut store.db.read().await.unwrap(), &between(3, 7)).await.unwrap();
        let sums = |Moved { came, left, .. }| -> (u64, u64) { (came.try_into().unwrap(), left.try_into().unwrap()) };
        assert_eq!(reported.map(sums), expected);
        assert_eq!(moved(&store, &between(4, 7)).await, (0, 0));
    }
}

/// In how many blocks something came.
const MANY: u64 = 20_000;
/// What SQLite may do to find what came in three of them: to walk over all takes several steps for each.
const STEPS_MAX: u64 = 1_000;

async fn what_moved_in_a_few_blocks_is_found_among_many_deposits_of_an_address(store: TestStore) {
    let came = insert(&store, deposit(1)).await;
    connect(&store, &[block(10_001, 1)]).await;
    let hash = match store.db.pools() {
        Pools::Postgres(_) => "DECODE(LPAD(TO_HEX(n), 64, '0'), 'hex')",
        Pools::Sqlite { .. } => "CAST(printf('%032d', n) AS BLOB)",
    };
    let copy = format!(
        "WITH RECURSIVE numbers (n) AS (SELECT CAST(1 AS BIGINT) UNION ALL SELECT n + 1 FROM numbers WHERE n < {MANY}) \
         INSERT INTO inclusions (deposit_id, chain, block_hash, block_number, lane, recipient) \
         SELECT id, chain, {hash}, n, 'roots', recipient FROM deposits, numbers"
    );
    run(&store.db, AssertSqlSafe(copy)).await;
    include(&store, &came, &block(10_001, 1)).await;
    let mut tx = store.db.begin().await.unwrap();
    let reads = Reads::begin(&mut tx, "inclusions").await;
    let readings = between(10_000, 10_003);
    assert_eq!(unexplained::moved(&mut tx, &readings).await.unwrap().unwrap().came, came.amount);
    assert!(!unexplained::is_unseen(&mut tx, &readings).await.unwrap());
    reads.assert_few(&mut tx, 10, STEPS_MAX, "what moved in three blocks").await;
}
