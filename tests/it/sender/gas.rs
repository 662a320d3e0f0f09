//! What sending costs: booked when its block is final, held before, priced, and charged to the credit, to the customer
//! or to nobody. The ledger is compared with the chain's own.

use std::collections::{BTreeMap, BTreeSet};

use landfall::gas::{Credit, GRANT, OverCredit, Price, Usd};
use landfall::registry::{self, AcceptError, Terms};
use landfall::store::cursors::Cursor;
use landfall::store::gas_ledger::{self, Listed};
use landfall::store::sponsors;
use landfall::transfer::{FailureCode, State, TransferId};
use landfall_chain::{Address, AssetId, TxId, U256};
use landfall_sim::{SimTx, WEALTH};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{Bench, LEASE_OVER, PAYER, USDC, alice, token};
use crate::cli::Desk;
use crate::harness::books::rows;
use crate::harness::postgres::{ENGINES, Engine};
use crate::harness::world::{CHAIN, FINALITY_DEPTH, World, address, report};

/// What a carrier costs, in wei: at 3,000 USD it is 0.003 USD.
const COST: u64 = 1_000_000_000_000;
const REFUSE: Terms = Terms { can_sign: true, over_credit: OverCredit::Refuse };

impl Bench {
    pub(super) async fn set_price(&self, usd: &str) {
        let (price, networks): (Price, _) = (usd.parse().unwrap(), [self.world.network.clone()]);
        self.world.operator().set_price(self.world.db(), "ETH", price, &networks).await.unwrap();
    }

    async fn credit(&self) -> Credit {
        gas_ledger::credit(&mut self.world.db().read().await.unwrap()).await.unwrap()
    }

    async fn unpriced(&self) -> u64 {
        gas_ledger::unpriced_costs(&mut self.world.db().read().await.unwrap()).await.unwrap()
    }

    /// As [`Bench::accept`], where nothing is to be billed.
    async fn accept_within_credit(&self, n: u32, amount: u64) -> Result<TransferId, AcceptError> {
        report(&self.world).await;
        let order = self.order(n, amount);
        let accepted = registry::accept_transfer(self.world.db(), &order, REFUSE, self.world.now()).await;
        accepted.map(|(transfer, _)| transfer.id)
    }

    /// The `data` of the event that it is CONFIRMED.
    async fn announced_final(&self, id: TransferId) -> Value {
        let text = "SELECT aggregateid, payload FROM events WHERE type = 'transfer_reconciliation' ORDER BY position";
        let payloads: Vec<(String, String)> = rows(self.world.db(), text).await;
        let of = payloads.into_iter().filter(|(of, _)| *of == id.to_string()).map(|(_, payload)| payload);
        let data = of.map(|payload| serde_json::from_str::<Value>(&payload).unwrap()["data"].take());
        data.into_iter().find(|data| data["stage"] == "CONFIRMED").unwrap()
    }
}

fn usd(micros: u64) -> Usd {
    Usd(micros)
}

/// The kinds of entries of a transfer, in their order.
async fn kinds(world: &World, id: TransferId) -> Vec<&'static str> {
    let of = |listed: &Listed| listed.entry.transfer.as_ref().and_then(|of| of.id) == Some(id);
    ledger(world).await.iter().rev().filter(|listed| of(listed)).map(|listed| listed.entry.kind.name()).collect()
}

/// Every entry, newest first.
pub(super) async fn ledger(world: &World) -> Vec<Listed> {
    let mut reader = world.db().read().await.unwrap();
    let (mut all, mut page) = (Vec::new(), gas_ledger::newest(&mut reader, None, 7).await.unwrap());
    while let Some(last) = page.last().cloned() {
        all.append(&mut page);
        page = gas_ledger::newest(&mut reader, Some((last.entry.at, &last.key)), 7).await.unwrap();
    }
    all
}

/// The books of the gas: the sums are those of the entries, what is held is of transfers under way alone, and each cost is
/// what the chain's own ledger says that a final transaction of ours cost, once.
pub(super) async fn assert_ledger_even(world: &World) {
    let entries = ledger(world).await;
    let mut sums = Credit::default();
    let (mut costs, mut holds): (BTreeMap<TxId, U256>, BTreeSet<TransferId>) = (BTreeMap::new(), BTreeSet::new());
    let mut booked = BTreeSet::new();
    // By a clock that was set back a release may be of an earlier time than its hold.
    let (releases, others): (Vec<_>, Vec<_>) =
        entries.iter().rev().partition(|listed| listed.entry.kind.name() == "RELEASE");
    for Listed { entry, .. } in others.into_iter().chain(releases) {
        let of = entry.transfer.as_ref().and_then(|of| of.id);
        let worth = entry.pricing.as_ref().map_or(Usd::default(), |pricing| pricing.usd);
        match entry.kind.name() {
            "GRANT" => sums.granted = sums.granted.plus(worth),
            "HOLD" => {
                assert!(holds.insert(of.unwrap()), "{of:?} is held twice");
                sums.held = sums.held.plus(worth);
            }
            "RELEASE" => {
                assert!(holds.remove(&of.unwrap()), "{of:?} is not held");
                sums.held = sums.held.minus(worth);
            }
            _ => {
                let split = entry.pricing.as_ref().map(|pricing| pricing.split).unwrap_or_default();
                assert_eq!(split.sum(), worth);
                (sums.used, sums.billed) = (sums.used.plus(split.credit), sums.billed.plus(split.billed));
                sums.platform = sums.platform.plus(split.platform);
                let (tx, block) = entry.landed.unwrap();
                // What several share is divided.
                let part = entry.transfer.as_ref().unwrap();
                assert!(booked.insert((tx, of)), "{tx} is booked twice for {of:?}");
                *costs.entry(tx).or_default() += part.amount;
                let is_there = world.chain.blocks().iter().any(|mined| mined.header.block == block);
                assert!(is_there, "{block} with {tx} is not on the chain");
            }
        }
    }
    assert_eq!(gas_ledger::credit(&mut world.db().read().await.unwrap()).await.unwrap(), sums_or_fresh(sums));
    assert!(sums.used <= GRANT);
    let open: Vec<(String,)> =
        rows(world.db(), "SELECT id FROM transfers WHERE status IN ('ACCEPTED', 'SUBMITTED') ORDER BY id").await;
    let open: BTreeSet<TransferId> = open.iter().map(|(id,)| id.parse().unwrap()).collect();
    assert_eq!(holds, open, "what is held is of transfers under way");
    assert_eq!(costs, landed(world).await);
}

/// Before anybody asked, nothing is on record of the credit that will be given.
fn sums_or_fresh(sums: Credit) -> Credit {
    if sums == Credit::default() { Credit { granted: GRANT, ..sums } } else { sums }
}

/// What transactions of ours cost in final blocks, as the chain itself has it: those on record, and those of sponsors that
/// nobody else signed.
async fn landed(world: &World) -> BTreeMap<TxId, U256> {
    let finalized = Cursor::load(&mut world.db().read().await.unwrap(), CHAIN).await.unwrap().finalized;
    let text = "SELECT s.tx_id, FALSE AS is_recorded FROM spends AS s JOIN sponsors AS p ON p.address = s.spender \
                JOIN blocks AS b ON b.hash = s.block_hash WHERE b.canonical AND NOT s.is_open AND NOT s.is_foreign \
                UNION ALL SELECT tx_id, TRUE FROM transfer_attempts WHERE tx_id IS NOT NULL \
                UNION ALL SELECT tx_id, TRUE FROM reclaims WHERE tx_id IS NOT NULL ORDER BY is_recorded";
    let attempts: Vec<(Vec<u8>, bool)> = rows(world.db(), text).await;
    let ours: BTreeMap<TxId, bool> =
        attempts.iter().map(|(id, is_recorded)| (TxId::from_bytes(id).unwrap(), *is_recorded)).collect();
    let known = sponsors::of_chain(&mut world.db().read().await.unwrap(), CHAIN).await.unwrap();
    let sponsors: BTreeSet<Address> = known.iter().filter_map(|sponsor| sponsor.address).collect();
    let treasury = known.iter().find(|sponsor| sponsor.is_treasury).and_then(|sponsor| sponsor.address);
    let is_final = |number: u64| finalized.is_some_and(|finalized| number <= finalized.number);
    let (blocks, guards) = (world.chain.blocks(), world.chain.guards());
    let blocks = blocks.iter().filter(|block| is_final(block.header.block.number));
    let txs = blocks.flat_map(|block| &block.txs).filter_map(|tx| Some((tx, *ours.get(&tx.tx.id)?)));
    let cost = |tx: &SimTx, is_recorded: bool| {
        let given = tx.legs.iter().filter(|leg| leg.asset == AssetId::Native && leg.sender == tx.fee_payer);
        // What a guard holds is locked, as far as anybody knows of the guard, and what a sponsor is given stays ours: neither
        // is a cost.
        let given = given.filter(|leg| !sponsors.contains(&leg.recipient));
        // That of a refill stays for good.
        let is_locked = is_recorded && treasury != Some(tx.fee_payer);
        let rent = given.filter(|leg| !is_locked || !guards.contains(&leg.recipient)).map(|leg| leg.amount);
        tx.fee + rent.sum::<U256>()
    };
    txs.map(|(tx, is_recorded)| (tx.tx.id, cost(tx, is_recorded))).collect()
}

/// What refills in canonical blocks up to `through` took of each sponsor, and gave it.
async fn refilled(world: &World, through: u64) -> BTreeMap<Vec<u8>, (U256, U256)> {
    let text = "SELECT d.sender, d.recipient, d.amount, d.block_number FROM sponsors AS s CROSS JOIN debits AS d CROSS JOIN blocks AS b \
                WHERE s.is_treasury AND d.sender = s.address AND d.recipient IN (SELECT address FROM sponsors) AND b.chain = d.chain AND b.hash = d.block_hash AND b.canonical \
                ORDER BY d.leg_hash";
    let given = rows::<(Vec<u8>, Vec<u8>, Vec<u8>, i64)>(world.db(), text).await;
    let mut refilled: BTreeMap<Vec<u8>, (U256, U256)> = BTreeMap::new();
    for (from, to, amount, _) in given.into_iter().filter(|(.., number)| u64::try_from(*number).unwrap() <= through) {
        let amount = U256::from_be_slice(&amount);
        refilled.entry(from).or_default().0 += amount;
        refilled.entry(to).or_default().1 += amount;
    }
    refilled
}

/// The books of the sponsors: what each owned at first, less what it owns behind the newest final block, is what its
/// transactions cost, rent that was given away included, and what was locked in guards, less what came back of them; and what
/// refills gave and brought.
pub(super) async fn assert_sponsors_even(world: &World) {
    let finalized = Cursor::load(&mut world.db().read().await.unwrap(), CHAIN).await.unwrap().finalized.unwrap();
    let text = "SELECT sponsor, tx_id FROM transfer_attempts WHERE tx_id IS NOT NULL \
                UNION SELECT sponsor, tx_id FROM reclaims WHERE tx_id IS NOT NULL ORDER BY tx_id";
    let attempts: Vec<(Vec<u8>, Vec<u8>)> = rows(world.db(), text).await;
    let payer: BTreeMap<TxId, Vec<u8>> =
        attempts.into_iter().map(|(sponsor, tx)| (TxId::from_bytes(&tx).unwrap(), sponsor)).collect();
    let mut spent: BTreeMap<Vec<u8>, U256> = BTreeMap::new();
    for Listed { entry, .. } in ledger(world).await {
        if let (Some((tx, _)), Some(of)) = (entry.landed, entry.transfer) {
            *spent.entry(payer[&tx].clone()).or_default() += of.amount;
        }
    }
    let text = "SELECT sponsor, lamports, CASE WHEN state = 'reclaimed' THEN reclaim_lamports ELSE 0 END FROM guards ORDER BY transfer_id";
    let guards: Vec<(Vec<u8>, i64, i64)> = rows(world.db(), text).await;
    let mut back: BTreeMap<Vec<u8>, U256> = BTreeMap::new();
    for (sponsor, locked, reclaimed) in guards {
        *back.entry(sponsor.clone()).or_default() += U256::from(reclaimed);
        *spent.entry(sponsor).or_default() += U256::from(locked);
    }
    let given_and_received = refilled(world, finalized.number).await;
    let sponsors: Vec<(Vec<u8>,)> =
        rows(world.db(), "SELECT address FROM sponsors WHERE address IS NOT NULL ORDER BY number").await;
    assert!(!sponsors.is_empty());
    for (bytes,) in sponsors {
        let address = Address::from_bytes(&bytes).unwrap();
        let owns = world.chain.balance(&address, &AssetId::Native, finalized.number);
        let (given, received) = given_and_received.get(&bytes).copied().unwrap_or_default();
        let expected = spent.remove(&bytes).unwrap_or_default();
        let back = back.remove(&bytes).unwrap_or_default();
        assert_eq!(U256::from(WEALTH) + back + received, owns + expected + given, "to the last base unit");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_transfer_cost_is_held_before_and_charged_to_the_credit_when_it_is_final() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        bench.world.chain.set_carrier_fee(COST);
        bench.set_price("3000").await;
        let id = bench.accept(1, 1_000).await;
        // Half as much again as the network's figure, rounded up.
        assert_eq!(bench.credit().await, Credit { granted: GRANT, held: usd(1), ..Credit::default() });
        bench.settle().await;
        bench.blocks(FINALITY_DEPTH).await;
        assert_eq!(bench.state(id).await, State::Included);
        assert_eq!(kinds(&bench.world, id).await, ["HOLD"], "its block is not final");
        assert_eq!(bench.shown(id).await.network_fee, None);
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
        assert_eq!(kinds(&bench.world, id).await, ["HOLD", "COST", "RELEASE"]);
        assert_eq!(bench.credit().await, Credit { granted: GRANT, used: usd(3_000), ..Credit::default() });
        let fee = json!({
            "amount": "0.000001", "currency_symbol": "ETH", "usd": "0.003", "paid_by": "SPONSOR", "charged_to": "CREDIT",
        });
        assert_eq!(bench.announced_final(id).await["network_fee"], fee, "its event has it already");
        // The next one may cost what this one did.
        let next = bench.accept(2, 1_000).await;
        assert_eq!(bench.credit().await.held, usd(4_500));
        assert_eq!(bench.until_ended(next).await, State::Confirmed);
        assert_eq!(bench.credit().await, Credit { granted: GRANT, used: usd(6_000), ..Credit::default() });
        bench.close().await;
    }
}

#[tokio::test]
async fn the_cost_that_crosses_the_credit_is_split_the_rest_is_billed_and_the_bill_is_the_ledgers() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    // 40 USD each.
    bench.world.chain.set_carrier_fee(80_000_000_000_000_000);
    bench.set_price("500").await;
    let mut charged = Vec::new();
    for n in 0..4 {
        let id = bench.accept(n, 1_000).await;
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
        let fee = bench.shown(id).await.network_fee.unwrap();
        charged.extend(fee.charged.map(|(usd, to)| (usd.to_string(), to.name())));
    }
    let of = |to| ("40".to_owned(), to);
    assert_eq!(charged, [of("CREDIT"), of("CREDIT"), of("BILLED"), of("BILLED")]);
    let expected = Credit { granted: GRANT, used: GRANT, billed: usd(60_000_000), ..Credit::default() };
    assert_eq!(bench.credit().await, expected);
    let desk = Desk::new(&format!("store.url = \"{}\"\n{}", bench.world.store.url, crate::cli::CONFIG));
    let month = bench.world.now().to_string()[..7].to_owned();
    let bill: Value = serde_json::from_str(&desk.ok(&["gas", "bill", "--month", &month, "--json"])).unwrap();
    assert_eq!((&bill["credit_usd"], &bill["billed_usd"]), (&json!("100"), &json!("60")));
    let csv = desk.ok(&["gas", "bill", "--month", &month]);
    let lines: Vec<Vec<&str>> = csv.lines().skip(1).map(|line| line.split(',').collect()).collect();
    let parts: Vec<(&str, &str)> = lines.iter().map(|line| (line[1], line[2])).collect();
    assert_eq!(parts, [("CREDIT", "40"), ("CREDIT", "40"), ("CREDIT", "20"), ("BILLED", "20"), ("BILLED", "40")]);
    assert_eq!(desk.ok(&["gas", "bill", "--month", "2001-01"]).lines().count(), 1, "nothing but the header");
    let shown: Value = serde_json::from_str(&desk.ok(&["gas", "show", "--json"])).unwrap();
    assert_eq!(
        (&shown["used_usd"], &shown["billable_usd"], &shown["remaining_usd"]),
        (&json!("100"), &json!("60"), &json!("0"))
    );
    let listed = desk.ok(&["gas", "ledger", "--json"]);
    let entries: Vec<Value> = listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(entries.len(), 1 + 4 * 3);
    let crossing = entries.iter().filter(|entry| entry["billed_usd"] == "20" && entry["credit_usd"] == "20").count();
    assert_eq!(crossing, 1);
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_price_transfers_go_on_and_the_first_later_price_counts() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        bench.world.chain.set_carrier_fee(COST);
        let id = bench.accept(1, 1_000).await;
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
        assert_eq!((bench.credit().await, bench.unpriced().await), (Credit { granted: GRANT, ..Credit::default() }, 1));
        let fee = json!({ "amount": "0.000001", "currency_symbol": "ETH", "paid_by": "SPONSOR" });
        assert_eq!(bench.announced_final(id).await["network_fee"], fee);
        for price in ["1000", "2000"] {
            bench.world.pass(std::time::Duration::from_secs(1));
            bench.set_price(price).await;
        }
        bench.settle().await;
        assert_eq!((bench.credit().await.used, bench.unpriced().await), (usd(1_000), 0));
        let (worth, to) = bench.shown(id).await.network_fee.unwrap().charged.unwrap();
        assert_eq!((worth, to.name()), (usd(1_000), "CREDIT"));
        // What comes later is priced by the newest.
        let next = bench.accept(2, 1_000).await;
        assert_eq!(bench.credit().await.held, usd(3_000));
        assert_eq!(bench.until_ended(next).await, State::Confirmed);
        assert_eq!(bench.credit().await.used, usd(3_000));
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fifty_at_once_hold_no_more_than_the_credit_where_nothing_is_billed() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        // 2 USD: 3 are held of each.
        bench.world.chain.set_carrier_fee(4_000_000_000_000_000);
        bench.set_price("500").await;
        let first = bench.accept_within_credit(0, 1_000).await.unwrap();
        assert_eq!(bench.until_ended(first).await, State::Confirmed);
        report(&bench.world).await;
        let mut asked = JoinSet::new();
        for n in 1..=50 {
            let (db, order, now) = (bench.world.db().clone(), bench.order(n, 1_000), bench.world.now());
            asked.spawn(async move { registry::accept_transfer(&db, &order, REFUSE, now).await });
        }
        let answers = asked.join_all().await;
        let accepted = answers.iter().filter(|answer| answer.is_ok()).count();
        let exhausted = |answer: &&Result<_, AcceptError>| {
            let left = AcceptError::CreditExhausted { needed: Some(usd(3_000_000)), remaining: usd(2_000_000) };
            answer.as_ref().err().map(ToString::to_string) == Some(left.to_string())
        };
        // 98 USD are left.
        assert_eq!((accepted, answers.iter().filter(exhausted).count()), (32, 18), "{engine:?}");
        assert_eq!(bench.credit().await.held, usd(96_000_000));
        // They cost less than was held of them.
        bench.settle().await;
        bench.blocks(FINALITY_DEPTH + 20).await;
        assert_eq!(bench.credit().await, Credit { granted: GRANT, used: usd(66_000_000), ..Credit::default() });
        let more = bench.accept_within_credit(60, 1_000).await.unwrap();
        assert_eq!(bench.until_ended(more).await, State::Confirmed);
        bench.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_nothing_is_billed_a_transfer_waits_unsigned_for_its_price_and_no_longer_than_its_window() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        bench.world.chain.set_carrier_fee(COST);
        let dropped = bench.accept_within_credit(1, 1_000).await.unwrap();
        assert_eq!(bench.until_ended(dropped).await, State::Dropped(FailureCode::NeverSigned));
        assert_eq!(bench.attempts().await, []);
        assert_eq!(kinds(&bench.world, dropped).await, ["HOLD", "RELEASE"]);
        let waiting = bench.accept_within_credit(2, 1_000).await.unwrap();
        bench.blocks(2).await;
        assert_eq!(bench.state(waiting).await, State::Accepted);
        bench.set_price("3000").await;
        bench.settle().await;
        assert_eq!(bench.state(waiting).await, State::Carried);
        assert_eq!(bench.until_ended(waiting).await, State::Confirmed);
        assert_eq!(bench.credit().await, Credit { granted: GRANT, used: usd(3_000), ..Credit::default() });
        bench.close().await;
    }
}

#[tokio::test]
async fn a_used_up_credit_refuses_what_would_be_billed_and_nothing_else() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    // 120 USD.
    bench.world.chain.set_carrier_fee(240_000_000_000_000_000);
    bench.set_price("500").await;
    let first = bench.accept_within_credit(0, 1_000).await.unwrap();
    assert_eq!(bench.until_ended(first).await, State::Confirmed);
    let refused = bench.accept_within_credit(1, 1_000).await.unwrap_err();
    assert_eq!(refused.to_string(), "0 USD are left of the gas credit");
    // The same request is taken where it may be billed.
    let billed = bench.accept(1, 1_000).await;
    assert_eq!(bench.until_ended(billed).await, State::Confirmed);
    assert_eq!(bench.credit().await.billed, usd(140_000_000));
    bench.close().await;
}

#[tokio::test]
async fn a_carrier_that_failed_costs_its_customer_too() {
    let mut bench = Bench::on(Engine::Sqlite, 1).await;
    bench.world.chain.set_carrier_fee(COST);
    bench.set_price("3000").await;
    let id = bench.accept(1, 9_000_000).await;
    bench.settle().await;
    // Somebody else has Alice's money for a while.
    let gone = bench.by_hand(vec![token(alice(), address(PAYER), USDC)]);
    bench.world.chain.mine(vec![gone]);
    bench.block().await;
    bench.blocks(5).await;
    let back = bench.by_hand(vec![token(address(PAYER), alice(), USDC)]);
    bench.world.chain.mine(vec![back]);
    bench.follow().await;
    assert_eq!(bench.until_ended(id).await, State::Confirmed);
    let fee = bench.shown(id).await.network_fee.unwrap();
    assert_eq!((fee.amount, fee.charged.unwrap().0), (U256::from(2 * COST), usd(6_000)));
    bench.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_await_books_each_cost_once() {
    for engine in ENGINES {
        let mut bench = Bench::on(engine, 1).await;
        bench.world.chain.set_carrier_fee(COST);
        bench.set_price("3000").await;
        let id = bench.accept(1, 1_000).await;
        bench.settle().await;
        bench.blocks(FINALITY_DEPTH).await;
        bench.world.chain.mine_pool();
        bench.world.keep_time();
        bench.world.catch_up().await;
        let mut crashes = 0;
        while bench.crash_within(crashes).await {
            bench.world.pass(LEASE_OVER);
            crashes += 1;
        }
        assert!(crashes > 5, "{crashes}");
        assert_eq!(bench.until_ended(id).await, State::Confirmed);
        assert_eq!(bench.credit().await, Credit { granted: GRANT, used: usd(3_000), ..Credit::default() });
        bench.close().await;
    }
}
