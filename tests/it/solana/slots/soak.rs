//! The soak: 25,000 random slots, 1,000,000 in the full run, with everything at once that goes wrong.
//!
//! There are skipped slots, rollbacks at `confirmed`, nodes that lag, ledgers with holes, and storms of errors and lies
//! at one node of two. Finality stalls, jumps and changes its rule; processes crash in the middle of a tick and
//! restart. At the end the deposits are those that the ledger paid, each once, and none was CONFIRMED before its slot
//! was final. The slots are dealt to lanes, each a ledger and a store of its own. A lane's seed repeats its ledger and
//! its faults: `LANDFALL_LANE=SEED` runs that one alone. What threads and sockets make of them is not repeated to the
//! last bit.

use std::time::Instant;

use landfall_chain::{Address, AssetId};
use landfall_cluster::{Fault, Finality, Ledger, Payment, Refusal, Tx, Version, When};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::follower::{Audit, FIRST_SLOT, Followed, usdc};
use crate::harness::lanes::{full, given_seed, on_every_processor};

const SLOTS: u64 = 25_000;
const SLOTS_FULL: u64 = 1_000_000;
const SLOTS_OF_LANE: u64 = 2_500;
/// A lane waits more than it works. So many leave room for the tests beside them; the full count takes what there is.
const AT_ONCE: usize = 6;
const AT_ONCE_FULL: usize = 20;
const SKIP_PERCENT: u32 = 5;
const PAYERS: u8 = 5;
pub(super) const WATCHED: [Address; 3] =
    [Address::Solana([0xa1; 32]), Address::Solana([0xa2; 32]), Address::Solana([0xa3; 32])];
const STRANGER: Address = Address::Solana([0xee; 32]);
/// What strikes in storms: all that costs no named pauses in real time, which `faults` tries one by one.
const STORMS: [Fault; 31] = [
    Fault::Null,
    Fault::NullMeta,
    Fault::NoErr,
    Fault::NoTime,
    Fault::ShortList,
    Fault::EmptyList,
    Fault::LongList,
    Fault::Hole,
    Fault::Pruned(6),
    Fault::WrongParent,
    Fault::AnotherFork,
    Fault::HeadBack(3),
    Fault::FinalOnFork,
    Fault::FinalAhead,
    Fault::FinalEarly,
    Fault::ServerError,
    Fault::Page,
    Fault::Reset,
    Fault::Truncated,
    Fault::BrokenGzip,
    Fault::WrongId,
    Fault::Refuse(Refusal::BlockNotAvailable),
    Fault::Refuse(Refusal::SlotSkipped),
    Fault::Refuse(Refusal::LongTermStorageSlotSkipped),
    Fault::Refuse(Refusal::NodeUnhealthy),
    Fault::Refuse(Refusal::BlockStatusNotAvailableYet),
    Fault::Refuse(Refusal::TransactionVersion(1)),
    Fault::Refuse(Refusal::MinContextSlotNotReached),
    Fault::Refuse(Refusal::LongTermStorageUnreachable),
    Fault::TooManyRequests { retry_after_secs: None },
    Fault::LinkedOver,
];

/// What was done, and what came of it.
#[derive(Default, Debug)]
struct Tally {
    slots: u64,
    skipped: u64,
    forks: u64,
    taken_back: u64,
    storms: u64,
    strikes: u64,
    lags: u64,
    holes: u64,
    restarts: u64,
    crashes: u64,
    ticks: u64,
    failed_ticks: u64,
    deposits: usize,
    failed: usize,
    broken: Vec<String>,
}

struct Lane {
    seed: u64,
    rng: StdRng,
    follower: Followed,
    /// The highest slot that was produced or skipped.
    slot: u64,
    next_id: u64,
    /// Rolled back, and not landed again yet.
    floating: Vec<Tx>,
    /// For how many steps the trouble stays.
    trouble: u64,
    tally: Tally,
}

#[test]
fn random_slots_end_with_what_the_ledger_paid_each_once_and_nothing_early() {
    let begun = Instant::now();
    #[expect(clippy::disallowed_methods, reason = "the test's own environment")]
    let one = std::env::var("LANDFALL_LANE").ok().map(|seed| seed.parse::<u64>().unwrap());
    let (slots, at_once) = if full() { (SLOTS_FULL, AT_ONCE_FULL) } else { (SLOTS, AT_ONCE) };
    let base = 500_000 + given_seed();
    let lanes: Vec<u64> = one.map_or_else(|| (base..base + slots / SLOTS_OF_LANE).collect(), |seed| vec![seed]);
    let mut all = Tally::default();
    for tally in on_every_processor(lanes.clone(), at_once, async |seed| Lane::run(seed).await) {
        all.add(tally);
    }
    let kind = if full() { "full" } else { "bounded" };
    let Tally { slots, skipped, forks, taken_back, storms, strikes, lags, holes, restarts, crashes, .. } = all;
    let Tally { ticks, failed_ticks, deposits, failed, .. } = all;
    println!(
        "{kind}, lanes {} to {}: {slots} slots, {skipped} skipped, {forks} forks ({taken_back} blocks), {storms} storms \
         ({strikes} faults), {lags} lags, {holes} holes, {restarts} restarts, {crashes} of them in a tick, {ticks} ticks \
         ({failed_ticks} failed), {deposits} deposits, {failed} that never became final, in {} s",
        lanes[0],
        lanes[lanes.len() - 1],
        begun.elapsed().as_secs(),
    );
    assert!(all.broken.is_empty(), "{}", all.broken.join("\n"));
    let hit = [skipped, forks, taken_back, storms, strikes, lags, holes, restarts, crashes, failed_ticks];
    assert!(one.is_some() || failed > 0 && hit.iter().all(|count| *count > 0), "something of it never happened");
    assert!(deposits > 100 && usize::try_from(slots / 20).unwrap() < deposits, "too few deposits to say anything");
}

impl Tally {
    fn add(&mut self, other: Tally) {
        self.slots += other.slots;
        self.skipped += other.skipped;
        self.forks += other.forks;
        self.taken_back += other.taken_back;
        self.storms += other.storms;
        self.strikes += other.strikes;
        self.lags += other.lags;
        self.holes += other.holes;
        self.restarts += other.restarts;
        self.crashes += other.crashes;
        self.ticks += other.ticks;
        self.failed_ticks += other.failed_ticks;
        self.deposits += other.deposits;
        self.failed += other.failed;
        self.broken.extend(other.broken);
    }
}

impl Lane {
    async fn run(seed: u64) -> Tally {
        let ledger = Ledger::starting_at(FIRST_SLOT);
        ledger.set_finality(Finality::Behind(31));
        let follower = Followed::new(ledger, 2, &WATCHED).await;
        for node in &follower.nodes {
            node.set_gzip(seed.is_multiple_of(8));
            node.set_bait(vec![Tx::sol(u64::MAX, Address::Solana([9; 32]), WATCHED[0], 666)]);
        }
        let mut lane = Lane {
            seed,
            rng: StdRng::seed_from_u64(seed),
            follower,
            slot: FIRST_SLOT,
            next_id: 1,
            floating: Vec::new(),
            trouble: 0,
            tally: Tally::default(),
        };
        while lane.tally.slots < SLOTS_OF_LANE {
            lane.step().await;
        }
        lane.end().await
    }

    async fn step(&mut self) {
        if self.trouble == 0 {
            self.follower.behave();
        }
        self.trouble = self.trouble.saturating_sub(1);
        if self.trouble == 0 && self.rng.random_bool(0.3) {
            self.begin_trouble();
        }
        if self.rng.random_bool(0.08) {
            self.change_finality();
        }
        if self.rng.random_bool(0.12) {
            self.roll_back();
        }
        for _ in 0..self.rng.random_range(1..60) {
            self.produce();
        }
        self.follow().await;
    }

    fn produce(&mut self) {
        self.slot += 1;
        self.tally.slots += 1;
        if self.rng.random_ratio(SKIP_PERCENT, 100) {
            self.tally.skipped += 1;
            return;
        }
        let mut txs = Vec::new();
        if !self.floating.is_empty() && self.rng.random_bool(0.3) {
            let at = self.rng.random_range(0..self.floating.len());
            txs.push(self.floating.swap_remove(at));
        }
        while self.rng.random_bool(0.25) {
            txs.push(self.tx());
        }
        self.follower.ledger.produce(self.slot, txs);
    }

    fn tx(&mut self) -> Tx {
        let id = (self.seed << 24) + self.next_id;
        self.next_id += 1;
        let sender = Address::Solana([self.rng.random_range(1..=PAYERS); 32]);
        let mut to: Vec<Address> = WATCHED.into_iter().chain([STRANGER]).collect();
        to.rotate_left(self.rng.random_range(0..4));
        let asset = if self.rng.random_bool(0.3) { AssetId::Token(usdc()) } else { AssetId::Native };
        let payment = |recipient, amount| Payment { asset, sender, recipient, amount };
        let (one, other) = (self.rng.random_range(1..1_000), self.rng.random_range(1..1_000));
        let both = [payment(to[0], one), payment(to[1], other)];
        match self.rng.random_range(0..10) {
            0 => Tx::failing(id, sender, &both),
            1 | 2 => Tx::paying(id, sender, &both).with_version(Version::Number(1)),
            3 => Tx::paying(id, sender, &both[..1]).with_version(Version::Legacy),
            _ => Tx::paying(id, sender, &both[..1]),
        }
    }

    /// Some blocks that are not final go; what was in them lands again, later, or never.
    fn roll_back(&mut self) {
        let ledger = &self.follower.ledger;
        let (latest, finalized) = (ledger.latest().number, ledger.finalized().number);
        let to = latest.saturating_sub(self.rng.random_range(1..12)).max(finalized);
        if to == latest {
            return;
        }
        self.tally.taken_back += u64::try_from(ledger.blocks_above(to)).unwrap();
        let gone = ledger.roll_back_to(to);
        self.tally.forks += 1;
        self.slot = to;
        for tx in gone {
            if !self.rng.random_bool(0.15) {
                self.floating.push(tx);
            }
        }
    }

    fn change_finality(&mut self) {
        let rule = match self.rng.random_range(0..6) {
            0 => Finality::Stalled,
            1 => Finality::AtOnce,
            2 => Finality::Behind(4),
            _ => Finality::Behind(31),
        };
        self.follower.ledger.set_finality(rule);
    }

    /// At one node, or a hole or a lag, for some steps; the other one is sound.
    fn begin_trouble(&mut self) {
        self.follower.behave();
        self.trouble = self.rng.random_range(1..4);
        let node = &self.follower.nodes[self.rng.random_range(0..2)];
        match self.rng.random_range(0..6) {
            0 => {
                self.tally.lags += 1;
                node.lag(self.rng.random_range(1..80));
            }
            1 => {
                self.tally.holes += 1;
                let from = self.slot + self.rng.random_range(0..40);
                node.lose(from..from + self.rng.random_range(1..20));
            }
            _ => {
                self.tally.storms += 1;
                for _ in 0..self.rng.random_range(1..3) {
                    let fault = STORMS[self.rng.random_range(0..STORMS.len())];
                    let when = match self.rng.random_range(0..3) {
                        0 => When::Always,
                        1 => When::Percent(30),
                        _ => When::Next(self.rng.random_range(1..6)),
                    };
                    node.misbehave(fault, when);
                }
            }
        }
    }

    async fn follow(&mut self) {
        for _ in 0..self.rng.random_range(1..4) {
            if self.rng.random_bool(0.02) {
                self.tally.restarts += 1;
                self.follower.restart();
            }
            if self.rng.random_bool(0.03) {
                let wakeups = self.rng.random_range(0..60);
                self.tally.restarts += 1;
                self.tally.crashes += u64::from(self.follower.crash_within(wakeups).await);
                continue;
            }
            self.tally.ticks += 1;
            if let Err(error) = self.follower.tick().await {
                self.tally.failed_ticks += 1;
                if !error.may_pass() {
                    self.say(format!("halted in slot {}: {error}", self.slot));
                    self.follower.restart();
                }
            }
        }
    }

    async fn end(mut self) -> Tally {
        if let Err(stuck) = self.follower.settle().await {
            self.say(stuck);
        }
        let audit = self.follower.audit().await;
        let Audit { legs, failed, .. } = audit;
        if !audit.is_clean() {
            self.say(format!("{audit:?} {}", self.follower.early.join("; ")));
        }
        let struck = |fault| self.follower.nodes.iter().map(move |node| node.struck(fault)).sum::<u64>();
        self.tally.strikes = STORMS.into_iter().map(struck).sum();
        (self.tally.deposits, self.tally.failed) = (legs, failed);
        self.tally
    }

    fn say(&mut self, what: String) {
        self.tally.broken.push(format!("lane {}: {what}", self.seed));
    }
}
