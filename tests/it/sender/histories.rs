//! Seeded random histories of sending. Transfers are accepted while the chain mines, forks and forgets, fees rise, answers
//! are lost, the signer is away, money goes and comes, somebody else uses a sponsor's key, and processes crash at any
//! await or run two at once. In every fifth history a copy of the store runs beside it from some step on, with the same
//! keys; in every other fifth the store is set back to an earlier step, with the signer's journal or without it.
//!
//! At each fourth step Alice may spend no more than she owns. At the end all is quiet, and each transfer has ended. What is
//! CONFIRMED paid once and exactly; what is FAILED or DROPPED never paid, and nothing that was ever signed for it can
//! be paid any more; nothing is reserved, and each sponsor owns what the ledger says. Each store announced what the
//! changes of its transfers call for, in their order.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use landfall::incident::IncidentKind;
use landfall::operator::{CancelError, Operator};
use landfall::registry::{self, AcceptError};
use landfall::store::ORGANIZATION;
use landfall::store::cursors::Cursor;
use landfall::store::transfers::{self, TransferFilter};
use landfall::transfer::{State, TransferId, TransferStatus};
use landfall::watcher::{BalanceWatch, BalancesRead};
use landfall_chain::{Effect, Mark, Route};
use landfall_sim::{Fault, SendFault, SimChain, SimSigner, SimTx};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::gas::assert_ledger_even;
use super::{Bench, LEASE_OVER, PAYER, USDC, alice, assert_truthful, by_delegate, may_pass, sender, token};
use crate::harness::lanes::{full, given_seed, on_every_processor};
use crate::harness::postgres::{Engine, TestStore};
use crate::harness::tally::Tally;
use crate::harness::world::{CHAIN, FINALITY_DEPTH, TOKEN, address, erc3009, report};

const STEPS: u32 = 40;
const REORG_DEPTH_MAX: u64 = 8;
const SPONSORS_MAX: u32 = 4;
/// Steps between two comparisons of what may be spent with what the chain says.
const COMPARED_EVERY: u32 = 4;
/// A store is set back by fewer steps than these.
const SET_BACK_MAX: u32 = 12;
/// How many run side by side, each with a store of its own.
const LANES: usize = 4;
const LANES_OF_PROCESSOR: usize = 2;
/// Seeds that once showed a fault: they are run always, beside those of the run. Of these a third sends by a delegate.
const ONCE_FAILED: [u64; 2] = [217_434_880, 110_091_282];
/// Histories between two words about how far it is.
const REPORT_EVERY: u64 = 500;

/// What a bounded run may have none of.
const RARE: [&str; 6] = [
    "dropped CANCELLED",
    "dropped NEVER_SIGNED",
    "failed ACCOUNT_NOT_ACTIVE",
    "failed CANCELLED",
    "failed SIMULATION_FAILED",
    "healed",
];
/// All that has to happen in a full or bounded run, in the order of the alphabet.
const HAPPENS: [&str; 44] = [
    "accepted",
    "balances compared",
    "blocks",
    "cancelled",
    "confirmed",
    "copies of the store",
    "crashes",
    "delegates taken away",
    "dropped CANCELLED",
    "dropped NEVER_SIGNED",
    "dropped WINDOW_ELAPSED",
    "failed ACCOUNT_NOT_ACTIVE",
    "failed CANCELLED",
    "failed SIMULATION_FAILED",
    "failed ticks",
    "fault: fail",
    "fault: lag",
    "fault: late",
    "foreign uses",
    "forgotten pools",
    "gaps refused",
    "healed",
    "money gone",
    "more than one attempt",
    "never signed",
    "not ours alone",
    "ours alone",
    "paid by a later attempt",
    "payments displaced",
    "quarantined sponsors",
    "raised fees",
    "refused for want of money",
    "reorgs",
    "send: forgotten",
    "send: lost",
    "send: nonce used",
    "send: refused",
    "send: silent",
    "signer away",
    "stores set back",
    "time leaps",
    "wallets released",
    "with a rival",
    "with gaps filled",
];

/// All that has to happen with guards too, in a bounded run.
const HAPPENS_WITH_GUARDS: [&str; 8] = [
    "confirmed",
    "copies of the store",
    "crashes",
    "dropped WINDOW_ELAPSED",
    "more than one attempt",
    "paid by a later attempt",
    "payments displaced",
    "send: silent",
];

#[test]
fn random_histories_of_sending_pay_each_transfer_once_or_prove_that_it_never_was() {
    let (count, mode) = if full() { (100_000, "full") } else { (120, "bounded") };
    let (begun, base) = (Instant::now(), given_seed());
    let seeds: Vec<u64> = ONCE_FAILED.into_iter().chain(base..base + count).collect();
    let done = AtomicU64::new(0);
    let tallies = on_every_processor((0..LANES).collect(), LANES_OF_PROCESSOR, async |lane| {
        let mut tally = Tally::default();
        let shelf = TestStore::fresh(Engine::Sqlite).await;
        for seed in seeds.iter().skip(lane).step_by(LANES) {
            let by_delegate_too = seed.is_multiple_of(3) && !ONCE_FAILED.contains(seed);
            let route = if by_delegate_too { by_delegate(0xd0) } else { erc3009() };
            history(shelf.again().await, *seed, route, &mut tally).await;
            let done = done.fetch_add(1, Ordering::Relaxed) + 1;
            if done.is_multiple_of(REPORT_EVERY) {
                println!("{done} of {count} histories in {} s", begun.elapsed().as_secs());
            }
        }
        tally
    });
    let tally = Tally::sum(tallies);
    println!("{mode}: {count} histories from seed {base} in {} s:{tally}", begun.elapsed().as_secs());
    tally.assert_happened(&HAPPENS, &RARE);
}

#[tokio::test]
async fn random_histories_of_sending_on_postgresql_too() {
    let (count, mode) = if full() { (1_000, "full") } else { (2, "bounded") };
    let mut tally = Tally::default();
    let base = given_seed();
    let shelf = TestStore::fresh(Engine::Postgres).await;
    for seed in base..base + count {
        history(shelf.again().await, seed, erc3009(), &mut tally).await;
    }
    println!("{mode}: {count} histories from seed {base} on PostgreSQL:{tally}");
}

/// As on Solana: attempts have no nonce, and each makes the guard.
#[test]
fn random_histories_with_guards_pay_each_transfer_once_or_prove_that_it_never_was() {
    let (count, mode) = if full() { (20_000, "full") } else { (40, "bounded") };
    let (begun, base) = (Instant::now(), given_seed());
    let tallies = on_every_processor((0..LANES).collect(), LANES_OF_PROCESSOR, async |lane| {
        let mut tally = Tally::default();
        let shelf = TestStore::fresh(Engine::Sqlite).await;
        for seed in (base..base + count).skip(lane).step_by(LANES) {
            let guard = Route::Guard { program: None, decimals: 6 };
            history(shelf.again().await, seed, guard, &mut tally).await;
        }
        tally
    });
    let tally = Tally::sum(tallies);
    println!("{mode}: {count} histories with guards from seed {base} in {} s:{tally}", begun.elapsed().as_secs());
    tally.assert_happen(HAPPENS_WITH_GUARDS);
}

/// Names the history that a failed assertion belongs to.
struct Name(u64);

impl Drop for Name {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("this was seed {}", self.0);
        }
    }
}

struct History {
    rng: StdRng,
    bench: Bench,
    requests: u32,
    sponsors: u32,
    /// Whether Alice's money is where it was.
    is_funded: bool,
    /// Whether somebody spent what we hold the keys of.
    is_robbed: bool,
    is_away: bool,
    /// Whether each transaction makes a guard.
    is_guarded: bool,
    /// A copy of the store, with processes and a journal of its own.
    copy: Option<Bench>,
    /// What signed before the journal was set back, too.
    lost: Vec<SimSigner>,
}

async fn history(store: TestStore, seed: u64, route: Route, tally: &mut Tally) {
    let _name = Name(seed);
    let mut rng = StdRng::seed_from_u64(seed);
    let is_file = store.url.starts_with("sqlite:");
    let sponsors = rng.random_range(1..=3);
    let is_guarded = matches!(route, Route::Guard { .. });
    let bench = Bench::by_route(store, seed, sponsors, route).await;
    if rng.random_bool(0.3) {
        bench.world.chain.refuse_gaps(true);
        tally.count("gaps refused");
    }
    let (requests, is_funded, is_robbed, is_away, copy) = (0, true, false, false, None);
    let lost = Vec::new();
    let mut history = History { rng, bench, requests, sponsors, is_funded, is_robbed, is_away, is_guarded, copy, lost };
    let saved_at = (is_file && seed % 5 == 2).then(|| history.rng.random_range(0..STEPS - SET_BACK_MAX));
    let mut saved: Option<(u32, Bench)> = None;
    let copied_at = (is_file && seed.is_multiple_of(5)).then(|| history.rng.random_range(0..STEPS));
    for step in 0..STEPS {
        if copied_at == Some(step) {
            history.copy = Some(history.bench.copied().await);
            tally.count("copies of the store");
        }
        if saved_at == Some(step) {
            saved = Some((step + history.rng.random_range(1..SET_BACK_MAX), history.bench.copied().await));
        }
        if let Some((_, earlier)) = saved.take_if(|(at, _)| *at == step) {
            history.set_back(earlier, tally).await;
        }
        history.step(tally).await;
        history.go_on_with_the_copy().await;
        if history.rng.random_bool(0.8) {
            history.follow(tally).await;
        }
        for _ in 0..history.rng.random_range(0..3) {
            history.tick(tally).await;
        }
        if step % COMPARED_EVERY == COMPARED_EVERY - 1 {
            history.assert_covered(tally).await;
        }
    }
    history.come_to_rest().await;
    history.assert_even(tally).await;
    if let Some(copy) = history.copy {
        copy.close().await;
    }
    history.bench.world.close().await;
}

impl History {
    async fn step(&mut self, tally: &mut Tally) {
        let chain = self.bench.world.chain.clone();
        match self.rng.random_range(0..100) {
            0..22 => self.accept(tally).await,
            22..50 => {
                let most = self.rng.random_range(0..6);
                chain.mine_some(most);
                tally.count("blocks");
            }
            50..58 => self.reorganise(tally),
            58..65 => self.lose(),
            65..69 => {
                chain.forget_pool();
                tally.count("forgotten pools");
            }
            69..72 => {
                self.is_away = !self.is_away;
                self.bench.signer.away(self.is_away);
                tally.count("signer away");
            }
            72..75 => {
                self.bench.world.pass(Duration::from_secs(self.rng.random_range(1..90)));
                tally.count("time leaps");
            }
            75..77 => {
                chain.skip(self.rng.random_range(1..10));
                tally.count("time leaps");
            }
            77..84 => {
                let wakeups = self.rng.random_range(0..80);
                self.bench.crash_within(wakeups).await;
                tally.count("crashes");
                if self.rng.random_bool(0.7) {
                    self.bench.world.pass(LEASE_OVER);
                }
            }
            84..88 => self.tick_with_rival(tally).await,
            88..90 => chain.set_base_fee(1_000_000_000 << self.rng.random_range(0..6)),
            90..92 => self.move_money(tally),
            92 if self.rng.random_bool(0.3) => self.use_foreign(tally),
            93..96 => self.misbehave(),
            96 if self.requests > 0 => self.cancel(tally).await,
            97 if self.sponsors < SPONSORS_MAX => {
                self.bench.add_sponsors(1).await;
                self.sponsors += 1;
            }
            _ => self.tick(tally).await,
        }
    }

    async fn accept(&mut self, tally: &mut Tally) {
        report(&self.bench.world).await;
        for _ in 0..self.rng.random_range(1..4) {
            self.requests += 1;
            // Sometimes what was asked for before.
            let n = if self.rng.random_bool(0.1) { self.rng.random_range(1..=self.requests) } else { self.requests };
            let amount = if self.rng.random_bool(0.05) { USDC } else { u64::from(n) };
            let order = self.bench.order(n, amount);
            let world = &self.bench.world;
            // It comes to both, to the copy alone, or to the original alone; and never to one of them later.
            if let Some(copy) = self.copy.as_ref().filter(|_| n == self.requests && self.rng.random_bool(0.7)) {
                report(&copy.world).await;
                registry::accept_transfer(copy.world.db(), &order, true, world.now()).await.ok();
                if self.rng.random_bool(0.2) {
                    continue;
                }
            } else if self.copy.is_some() && n != self.requests {
                continue;
            }
            match registry::accept_transfer(world.db(), &order, true, world.now()).await {
                Ok(_) => tally.count("accepted"),
                Err(AcceptError::Insufficient { .. }) => tally.count("refused for want of money"),
                Err(AcceptError::Duplicate { .. } | AcceptError::Mismatch { .. }) => {}
                Err(AcceptError::Quarantined(_)) => {
                    world.operator().release_wallets(world.db(), "alice").await.unwrap();
                    tally.count("wallets released");
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn cancel(&mut self, tally: &mut Tally) {
        let world = &self.bench.world;
        let request_id = self.bench.order(self.rng.random_range(1..=self.requests), 1).request_id;
        let operator = Operator { actor: "ops", reason: "asked for", now: world.now(), dry_run: false };
        match operator.cancel_transfer(world.db(), TransferId::of(ORGANIZATION, request_id)).await {
            Ok(_) => tally.count("cancelled"),
            Err(CancelError::Unknown(_) | CancelError::Ended { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }

    /// An earlier copy of the store takes its place, as the page of the restore says; or nobody says so, and the journal does.
    async fn set_back(&mut self, earlier: Bench, tally: &mut Tally) {
        let with_journal = self.rng.random_bool(0.3);
        self.lost.push(self.bench.signer.clone());
        self.bench.set_back_to(earlier, with_journal);
        self.bench.signer.away(self.is_away);
        let world = &self.bench.world;
        world.pass(LEASE_OVER);
        if with_journal || self.is_away || self.rng.random_bool(0.5) {
            world.operator().recover_sending(world.db(), &[CHAIN]).await.unwrap();
        } else {
            self.tick(tally).await;
        }
        tally.count("stores set back");
    }

    /// The copy's processes do what they do, whatever comes of it.
    async fn go_on_with_the_copy(&mut self) {
        let Some(copy) = &mut self.copy else { return };
        for _ in 0..self.rng.random_range(0..4) {
            copy.world.tick_or_fail_for_now().await;
        }
        if self.rng.random_bool(0.1) {
            copy.crash_within(self.rng.random_range(0..80)).await;
        }
        for _ in 0..self.rng.random_range(0..3) {
            if let Err(error) = copy.sender.tick(&copy.world.clock()).await {
                assert!(may_pass(&error), "{error}");
            }
        }
    }

    fn reorganise(&mut self, tally: &mut Tally) {
        let chain = &self.bench.world.chain;
        let latest = chain.latest().number;
        let floor = chain.finalized().map_or(0, |finalized| finalized.number);
        let keep = latest.saturating_sub(self.rng.random_range(1..=REORG_DEPTH_MAX)).max(floor);
        if keep == latest {
            return;
        }
        let dropped = chain.fork_at(keep);
        tally.count("reorgs");
        tally.add(
            "payments displaced",
            u64::try_from(dropped.iter().filter(|tx| !tx.marks.is_empty()).count()).unwrap(),
        );
        if self.rng.random_bool(0.3) {
            chain.forget_pool();
        }
        // What is no carrier stays where it was: Alice's own money.
        let mut others: Vec<SimTx> = dropped.into_iter().filter(is_by_hand).collect();
        for _ in 0..self.rng.random_range(1..=latest - keep + 1) {
            chain.mine(std::mem::take(&mut others));
            if self.rng.random_bool(0.5) {
                chain.mine_some(self.rng.random_range(0..4));
            }
        }
    }

    fn lose(&mut self) {
        for _ in 0..self.rng.random_range(1..6) {
            let fault = match self.rng.random_range(0..6) {
                0 | 1 => SendFault::Silent,
                2 => SendFault::Lost,
                3 => SendFault::Forgotten,
                4 => SendFault::Refused,
                _ => SendFault::NonceUsed,
            };
            self.bench.world.chain.script_sends([fault]);
        }
    }

    /// Two processes at once; the second one takes over where the lease of the first has run out.
    async fn tick_with_rival(&mut self, tally: &mut Tally) {
        let mut rival = sender(&self.bench.world, &self.bench.signer, self.bench.processes);
        self.bench.processes += 1;
        if self.rng.random_bool(0.5) {
            self.bench.world.pass(LEASE_OVER);
        }
        let clock = self.bench.world.clock();
        let (ours, theirs) = tokio::join!(self.bench.sender.tick(&clock), rival.tick(&clock));
        for outcome in [&ours, &theirs] {
            if let Err(error) = outcome {
                assert!(may_pass(error), "{error}");
            }
        }
        if matches!(theirs, Ok(Some(_))) {
            self.bench.sender = rival;
        }
        tally.count("with a rival");
    }

    fn move_money(&mut self, tally: &mut Tally) {
        let latest = self.bench.world.chain.latest().number;
        let held = self.bench.world.chain.balance(&alice(), &TOKEN, latest);
        let amount = u64::try_from(held).unwrap();
        let leg =
            if self.is_funded { token(alice(), address(PAYER), amount) } else { token(address(PAYER), alice(), USDC) };
        let moved = self.bench.by_hand(vec![leg]);
        self.bench.world.chain.mine(vec![moved]);
        self.is_robbed |= self.is_funded;
        self.is_funded = !self.is_funded;
        tally.count("money gone");
    }

    /// Somebody else uses the next nonce of a sponsor.
    fn use_foreign(&mut self, tally: &mut Tally) {
        let sponsor = self.bench.sponsor(self.rng.random_range(0..self.sponsors));
        let chain = &self.bench.world.chain;
        let first = chain.sent(&sponsor);
        let foreign = (first..first + self.rng.random_range(1..3)).map(|nonce| SimTx::new(sponsor, nonce, Vec::new()));
        chain.mine(foreign.collect());
        self.is_robbed = true;
        tally.count("foreign uses");
    }

    fn misbehave(&mut self) {
        for _ in 0..self.rng.random_range(1..5) {
            let fault = match self.rng.random_range(0..3) {
                0 => Fault::Fail,
                1 => Fault::Lag(self.rng.random_range(1..6)),
                _ => Fault::Late(Duration::ZERO),
            };
            self.bench.world.chain.script([fault]);
        }
    }

    /// The watcher goes on as far as it gets.
    async fn follow(&mut self, tally: &mut Tally) {
        if self.rng.random_bool(0.9) {
            self.bench.world.keep_time();
        }
        for _ in 0..6 {
            if self.bench.world.tick_or_fail_for_now().await.is_none() {
                tally.count("failed ticks");
            }
        }
    }

    async fn tick(&mut self, tally: &mut Tally) {
        let clock = self.bench.world.clock();
        if let Err(error) = self.bench.sender.tick(&clock).await {
            assert!(may_pass(&error), "{error}");
            tally.count("failed ticks");
        }
    }

    /// Nothing goes wrong any more. First there is time to pay, then there is none.
    async fn come_to_rest(&mut self) {
        let world = &self.bench.world;
        world.chain.behave();
        world.chain.take_sends();
        world.chain.set_base_fee(1_000_000_000);
        self.bench.signer.away(false);
        world.pass(LEASE_OVER);
        // Three heals last a quarter of an hour.
        for round in 0..160 {
            self.bench.block().await;
            if let Some(copy) = &mut self.copy {
                copy.follow().await;
            }
            if round == 20 {
                self.bench.world.chain.skip(30);
            }
            if round > 40 && self.is_guarded {
                // A blockhash dies by blocks, not by time.
                self.bench.world.chain.mine_empty(9);
            }
            if self.open().await == 0 && round > 3 {
                break;
            }
        }
        if self.open().await > 0 {
            let mut reader = self.bench.world.db().read().await.unwrap();
            let stuck = transfers::unfinished(&mut reader, CHAIN, 10, self.bench.world.now()).await.unwrap();
            panic!("transfers are stuck: {stuck:?}");
        }
        self.bench.blocks(FINALITY_DEPTH).await;
        if let Some(copy) = &mut self.copy {
            copy.follow().await;
        }
        // A new process compares the books at once.
        self.bench.restart();
        self.bench.world.pass(LEASE_OVER);
        self.bench.follow().await;
        assert_eq!(self.bench.differing().await, [], "sponsors own what the ledger says");
    }

    /// Whether nobody but this store takes what we hold the keys of.
    fn is_ours_alone(&self) -> bool {
        !self.is_robbed && self.copy.is_none() && self.lost.is_empty()
    }

    /// What Alice may spend is no more than she owns on the chain, as far as the store has followed it. Where nobody
    /// else takes it, what is spent and promised is never more than there was.
    async fn assert_covered(&self, tally: &mut Tally) {
        for bench in std::iter::once(&self.bench).chain(&self.copy) {
            let (world, chain) = (&bench.world, &bench.world.chain);
            let at = Cursor::load(&mut world.db().read().await.unwrap(), CHAIN).await.unwrap().at.unwrap();
            let held = bench.held().await;
            let taken = held.pending + held.spent + held.reserved;
            assert!(!self.is_ours_alone() || taken <= held.amount, "more is promised than there was: {held:?}");
            // A store that has not followed a reorg yet stands on no block of the chain.
            if chain.blocks().iter().any(|block| block.header.block == at) {
                let owned = chain.balance(&alice(), &TOKEN, at.number);
                assert!(held.available().unwrap() <= owned, "{owned} base units are owned after {at:?}: {held:?}");
                tally.count("balances compared");
            }
        }
    }

    /// How many have not ended, in either store.
    async fn open(&self) -> usize {
        let mut open = 0;
        for bench in std::iter::once(&self.bench).chain(&self.copy) {
            let mut reader = bench.world.db().read().await.unwrap();
            open += transfers::unfinished(&mut reader, CHAIN, 1_000, bench.world.now()).await.unwrap().len();
        }
        open
    }

    async fn assert_even(&self, tally: &mut Tally) {
        let (bench, world) = (&self.bench, &self.bench.world);
        assert_truthful(world).await;
        assert_ledger_even(world).await;
        let mut reader = world.db().read().await.unwrap();
        let all = transfers::list(&mut reader, &TransferFilter::default(), 10_000).await.unwrap();
        drop(reader);
        let final_number = world.chain.finalized().unwrap().number;
        let blocks = world.chain.blocks();
        let final_time =
            blocks.iter().find(|block| block.header.block.number == final_number).unwrap().header.time_secs;
        let finals = blocks.iter().filter(|block| block.header.block.number <= final_number);
        let final_marks = finals.flat_map(|block| &block.txs).flat_map(|tx| &tx.marks);
        let attempts = bench.attempts().await;
        for transfer in &all {
            let signers = std::iter::once(bench).chain(&self.copy).map(|bench| &bench.signer).chain(&self.lost);
            let deadline = signers.filter_map(|signer| signer.deadline(transfer.id.0.as_bytes())).max();
            if deadline.is_none() {
                tally.count("never signed");
            }
            match transfer.state {
                State::Confirmed => {
                    tally.count("confirmed");
                    let paid = bench.payments(transfer.id);
                    assert!(paid[0].block.number <= final_number, "{} is not final", transfer.id);
                    let of: Vec<_> =
                        attempts.iter().filter(|(_, _, _, of, _)| *of == transfer.id.to_string()).collect();
                    if self.copy.is_none() && of.len() > 1 {
                        tally.count("more than one attempt");
                        let first = of[0].4.as_deref();
                        if first != Some(paid[0].tx.as_bytes()) {
                            tally.count("paid by a later attempt");
                        }
                    }
                }
                State::Failed(code) | State::Dropped(code) => {
                    let is_over = deadline.is_none_or(|deadline| deadline <= final_time);
                    let is_cancelled =
                        |mark: &Mark| (mark.key, mark.effect) == (transfer.intent_key, Effect::Cancelled);
                    let is_dead = is_over || final_marks.clone().any(is_cancelled);
                    assert!(is_dead, "{} is {:?} and can still be paid", transfer.id, transfer.state);
                    tally.count(&format!("{} {}", transfer.state.name(), code.name()));
                }
                State::Accepted | State::Carried | State::Included | State::Expiring => panic!("it has ended"),
            }
            assert!(transfer.state.status() != TransferStatus::Accepted);
        }
        let text = "SELECT transfer_id FROM intents GROUP BY transfer_id HAVING COUNT(*) > 1";
        let healed: Vec<(String,)> = crate::harness::books::rows(world.db(), text).await;
        tally.add("healed", u64::try_from(healed.len()).unwrap());
        let raised = attempts.windows(2).filter(|pair| {
            let [before, after] = pair else { return false };
            (&before.0, before.1) == (&after.0, after.1)
        });
        for pair in raised {
            tally.count(if pair[0].3 == pair[1].3 { "raised fees" } else { "with gaps filled" });
        }
        for _ in world.chain.clearings() {
            tally.count("delegates taken away");
        }
        let text = "SELECT number FROM sponsors WHERE state = 'quarantined'";
        let quarantined: Vec<(i64,)> = crate::harness::books::rows(world.db(), text).await;
        tally.add("quarantined sponsors", u64::try_from(quarantined.len()).unwrap());
        let is_ours_alone = self.is_ours_alone();
        let incidents = world.incidents().await.into_iter();
        let foreign: Vec<_> = incidents.filter(|it| it.kind == IncidentKind::ForeignSpend).collect();
        assert!(!is_ours_alone || foreign.is_empty(), "nobody else spent anything: {foreign:?}");
        tally.count(if is_ours_alone { "ours alone" } else { "not ours alone" });
        for (fault, times) in world.chain.sends_struck() {
            tally.add(&format!("send: {fault}"), times);
        }
        for ((_, fault), times) in world.chain.struck() {
            tally.add(&format!("fault: {fault}"), times);
        }
        self.assert_nothing_is_reserved().await;
        // What a store that was set back had signed, and no store knows any more, may be paid until its window is over.
        if !self.lost.is_empty() {
            world.chain.skip(60);
            world.chain.mine_empty(160);
        }
        // What was ever signed, whoever signed it, pays nothing more.
        let paid = world.chain.payments();
        world.chain.pool_all();
        world.chain.mine_pool();
        assert_eq!(world.chain.payments(), paid);
    }

    async fn assert_nothing_is_reserved(&self) {
        let world = &self.bench.world;
        let mut watch: BalanceWatch<SimChain> =
            BalanceWatch::new(world.chain.clone(), world.db().clone(), &world.network, 20, "two".to_owned());
        world.pass(Duration::from_secs(120));
        report(world).await;
        for _ in 0..100 {
            if watch.tick(world.now(), 0).await.unwrap() == BalancesRead::default() {
                break;
            }
        }
        let held = world.chain.balance(&alice(), &TOKEN, world.chain.latest().number);
        assert_eq!(self.bench.available().await, held);
    }
}

/// Whether no sponsor of ours signed it.
fn is_by_hand(tx: &SimTx) -> bool {
    tx.marks.is_empty() && !tx.legs.is_empty()
}
