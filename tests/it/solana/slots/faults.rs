//! Whatever a Solana node does: nothing missed, nothing phantom, nothing twice, nothing early.
//!
//! A ledger with payments, skipped slots and rollbacks is followed while each fault, alone and in pairs, strikes at
//! random moments. With a second, healthy node the cursor must keep up; with none, trouble must show, and pass when the
//! node behaves.

use std::collections::BTreeMap;
use std::time::Instant;

use landfall_chain::Address;
use landfall_cluster::{Fault, Finality, Ledger, Node, Refusal, Tx, When};
use landfall_solana::Sample;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::follower::{Audit, FIRST_SLOT, Followed, usdc};
use super::soak::WATCHED;
use crate::harness::lanes::{full, given_seed, on_every_processor};

const STEPS: u64 = 24;
const ROLL_BACK_AT: [u64; 2] = [9, 17];
/// When the faults wait until every node is trusted, and move to the other one, if there is one.
const MOVES_AT: [u64; 2] = [8, 16];
const PAIRS: usize = 24;
/// How many blocks the cursor may be behind after one retry, while another node is healthy: no more than one step
/// brings, and one with a rollback brings up to eight.
const BEHIND_MAX: usize = 8;
const TICKS_MAX: u32 = 8;
const AT_ONCE: usize = 8;
const SECOND: &str = ", a second node";

#[derive(Clone, Debug)]
struct Case {
    faults: Vec<Fault>,
    with_healthy: bool,
    seed: u64,
}

#[derive(Default, Debug)]
struct Outcome {
    audit: Audit,
    struck: Vec<u64>,
    failed_ticks: u64,
    /// The most blocks behind after one retry.
    behind: usize,
    /// Ticks that a fault struck, that left the cursor behind and said nothing.
    silent: u64,
    halts: Vec<String>,
    stuck: Option<String>,
}

#[test]
fn no_single_fault_of_a_solana_node_loses_or_invents_a_deposit() {
    let faults: Vec<Fault> = faults();
    let mut cases = Vec::new();
    for fault in &faults {
        cases.extend(with_and_without(&[*fault], 20_000 + 10 * u64::try_from(cases.len()).unwrap()));
    }
    let strikes = check(cases, "every single fault");
    for fault in faults {
        let struck = strikes.get(fault.name()).copied().unwrap_or_default();
        println!("{:30} {struck:5} strikes", fault.name());
        assert!(struck > 0, "{} never struck", fault.name());
    }
}

#[test]
fn no_pair_of_faults_of_a_solana_node_loses_or_invents_a_deposit() {
    let faults = faults();
    let mut pairs: Vec<[Fault; 2]> = Vec::new();
    for (index, first) in faults.iter().enumerate() {
        pairs.extend(faults[index + 1..].iter().map(|second| [*first, *second]));
    }
    let (all, base) = (pairs.len(), given_seed());
    // The same pairs in each bounded run: until all of them were run, a new one may need a person to judge it.
    let mut rng = StdRng::seed_from_u64(40);
    while !full() && pairs.len() > PAIRS {
        pairs.swap_remove(rng.random_range(0..pairs.len()));
    }
    let (count, kind) = (pairs.len(), if full() { "full" } else { "bounded" });
    let mut cases = Vec::new();
    for pair in pairs {
        cases.extend(with_and_without(&pair, 40_000 + base + 10 * u64::try_from(cases.len()).unwrap()));
    }
    check(cases, &format!("{kind}: {count} of {all} pairs of faults of a Solana node from LANDFALL_SEED={base}"));
}

/// Seeds that once broke a promise. `LANDFALL_FAULT="null + short list, a second node:20725:300"` runs, in their place,
/// what is printed by that name with so many seeds from there on.
#[test]
fn what_once_broke_a_promise_breaks_none() {
    #[expect(clippy::disallowed_methods, reason = "the test's own environment")]
    let asked = std::env::var("LANDFALL_FAULT").ok();
    let found = "finalized ahead, a second node:20725:8".to_owned();
    let what = asked.unwrap_or(found);
    let [name, first, count] = what.split(':').collect::<Vec<_>>()[..] else { panic!("NAME:SEED:COUNT, not {what}") };
    let (first, count): (u64, u64) = (first.parse().unwrap(), count.parse().unwrap());
    check((first..first + count).map(|seed| named(name, seed)).collect(), &what);
}

/// The case that is printed by this name.
fn named(name: &str, seed: u64) -> Case {
    let (names, with_healthy) = name.strip_suffix(SECOND).map_or((name, false), |names| (names, true));
    let of_name = |name| faults().into_iter().find(|fault| fault.name() == name).expect("the name of a fault");
    Case { faults: names.split(" + ").map(of_name).collect(), with_healthy, seed }
}

/// Those that a watcher can meet: it asks for no signatures of addresses.
fn faults() -> Vec<Fault> {
    let unmet = Fault::Refuse(Refusal::FilterTransactionNotFound);
    Fault::all().into_iter().filter(|fault| *fault != unmet).collect()
}

fn with_and_without(faults: &[Fault], seed: u64) -> Vec<Case> {
    let both = [(false, seed), (true, seed + 5)].into_iter();
    let asked = both.filter(|(with_healthy, _)| *with_healthy || !faults.iter().any(is_undetectable));
    asked.map(|(with_healthy, seed)| Case { faults: faults.to_vec(), with_healthy, seed }).collect()
}

/// Runs the cases, some of them at once; every broken promise is reported. How often each fault struck.
fn check(cases: Vec<Case>, what: &str) -> BTreeMap<&'static str, u64> {
    let begun = Instant::now();
    let each = async |case: Case| (case.run().await, case);
    let mut reported = on_every_processor(cases, AT_ONCE, each);
    reported.sort_by_key(|(_, case)| case.seed);
    let (mut strikes, mut broken, mut legs) = (BTreeMap::new(), Vec::new(), 0);
    for (outcome, case) in &reported {
        println!("{:60} {outcome:?}", case.name());
        legs += outcome.audit.legs;
        for (fault, struck) in case.faults.iter().zip(&outcome.struck) {
            *strikes.entry(fault.name()).or_default() += struck;
        }
        broken.extend(promises_broken(case, outcome));
    }
    let (histories, sum, took) = (reported.len(), strikes.values().sum::<u64>(), begun.elapsed().as_secs());
    println!("{what}: {histories} histories, {legs} legs, {sum} strikes, in {took} s");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    strikes
}

fn promises_broken(case: &Case, outcome: &Outcome) -> Vec<String> {
    let mut broken = Vec::new();
    let mut check = |holds: bool, what: String| {
        if !holds {
            broken.push(format!("{} (seed {}): {what}", case.name(), case.seed));
        }
    };
    // Chance pays some histories little.
    check(outcome.audit.is_clean() && outcome.audit.legs > 5, format!("{:?}", outcome.audit));
    check(outcome.stuck.is_none(), format!("{:?}", outcome.stuck));
    if case.with_healthy {
        let is_unproved = case.faults.iter().any(is_disputed);
        check(is_unproved || outcome.behind <= BEHIND_MAX, format!("{} blocks behind after one retry", outcome.behind));
    } else {
        check(outcome.silent == 0, format!("{} ticks left the cursor behind and said nothing", outcome.silent));
        let must_show = case.faults.iter().any(shows) && outcome.struck.iter().all(|struck| *struck > 4);
        check(!must_show || outcome.failed_ticks > 0, format!("{:?} strikes and no trouble shown", outcome.struck));
    }
    let may_halt = case.faults.iter().any(needs_a_person);
    check(may_halt || outcome.halts.is_empty(), format!("halted: {}", outcome.halts.join("; ")));
    let is_paged = case.with_healthy || !case.faults.iter().all(needs_a_person) || !outcome.halts.is_empty();
    check(is_paged, "a lone node needs a person, and nobody was told".to_owned());
    broken
}

/// Where nobody says otherwise, these are no node's trouble but the operator's.
fn needs_a_person(fault: &Fault) -> bool {
    matches!(fault, Fault::WrongGenesis | Fault::Refuse(Refusal::TransactionVersion(_)))
}

/// What one node alone cannot be convicted of: nothing that it shows contradicts anything else.
fn is_undetectable(fault: &Fault) -> bool {
    matches!(fault, Fault::FinalEarly | Fault::LeftOut | Fault::LinkedOver)
}

/// What two must report of the same blocks to be found out: who of them is right is not known, and it shows as an error
/// until the one that is wrong behaves.
fn is_disputed(fault: &Fault) -> bool {
    matches!(fault, Fault::WrongParent | Fault::LeftOut | Fault::LinkedOver)
}

/// A node that is merely behind, or on a branch, is right in itself: nothing shows that there is more.
fn is_consistent(fault: &Fault) -> bool {
    matches!(fault, Fault::AnotherFork | Fault::Stale(_) | Fault::HeadBack(_) | Fault::Drip(_))
}

/// Whether a lone node's fault must be seen: not what is made good at once, and not what is right in itself.
fn shows(fault: &Fault) -> bool {
    let is_made_good = matches!(
        fault,
        Fault::ShortList | Fault::LongList | Fault::NoTime | Fault::Unordered | Fault::FinalStill | Fault::FinalOnFork
    );
    !is_consistent(fault) && !is_made_good && !matches!(fault, Fault::FinalEarly | Fault::Pruned(_) | Fault::Hole)
}

impl Case {
    fn name(&self) -> String {
        let names: Vec<&str> = self.faults.iter().map(Fault::name).collect();
        format!("{}{}", names.join(" + "), if self.with_healthy { SECOND } else { "" })
    }

    async fn run(&self) -> Outcome {
        let ledger = Ledger::starting_at(FIRST_SLOT);
        ledger.set_finality(Finality::Behind(6));
        let nodes = if self.with_healthy { 2 } else { 1 };
        // Of blocks that are not compared, one may leave out what it wants.
        let one_in = if self.faults.contains(&Fault::LeftOut) { 1 } else { Sample::default().one_in };
        let follower = Followed::comparing(ledger, nodes, &WATCHED, Sample { one_in, ..Sample::default() }).await;
        for node in &follower.nodes {
            node.set_bait(vec![Tx::sol(u64::MAX, Address::Solana([9; 32]), WATCHED[0], 666)]);
        }
        let rng = StdRng::seed_from_u64(self.seed);
        let mut history = History {
            case: self,
            rng,
            follower,
            next_id: 1,
            until: 0,
            liar: 0,
            moves: false,
            outcome: Outcome::default(),
        };
        for step in 1..=STEPS {
            history.step(step).await;
        }
        let History { mut follower, mut outcome, .. } = history;
        let struck = |fault: &Fault| follower.nodes.iter().map(|node| node.struck(*fault)).sum();
        outcome.struck = self.faults.iter().map(struck).collect();
        outcome.stuck = follower.settle().await.err();
        outcome.audit = follower.audit().await;
        outcome
    }
}

struct History<'c> {
    case: &'c Case,
    rng: StdRng,
    follower: Followed,
    next_id: u64,
    /// Until which step the lasting faults stay.
    until: u64,
    liar: usize,
    moves: bool,
    outcome: Outcome,
}

impl History<'_> {
    async fn step(&mut self, step: u64) {
        if MOVES_AT.contains(&step) {
            self.follower.regain_trust().await;
            self.moves = true;
        }
        self.misbehave(step);
        if ROLL_BACK_AT.contains(&step) {
            self.roll_back();
        }
        for _ in 0..self.rng.random_range(1..4) {
            self.produce(Vec::new());
        }
        self.follow().await;
    }

    /// Now and then the faults begin: some for a few calls, some for a few steps.
    fn misbehave(&mut self, step: u64) {
        if self.until == step || self.moves {
            self.follower.nodes.iter().for_each(Node::behave);
        }
        // Before the first tick too: the genesis hash is asked once.
        if step != 1 && !self.moves && (self.until > step || self.rng.random_bool(0.6)) {
            return;
        }
        self.follower.nodes.iter().for_each(Node::behave);
        let count = self.follower.nodes.len();
        let moves = std::mem::take(&mut self.moves);
        self.liar = match self.follower.distrusted().first() {
            Some(distrusted) => *distrusted,
            None if moves => (self.liar + 1) % count,
            None => self.rng.random_range(0..count),
        };
        for fault in &self.case.faults {
            let stays = self.rng.random_bool(0.5);
            let when = if stays { When::Always } else { When::Next(self.rng.random_range(1..4)) };
            self.follower.nodes[self.liar].misbehave(*fault, when);
        }
        self.until = step + self.rng.random_range(1..5);
    }

    /// A block, some slots on, with a few payments beside what is given.
    fn produce(&mut self, mut txs: Vec<Tx>) {
        for _ in 0..self.rng.random_range(0..3) {
            let (id, to) = (self.case.seed * 1_000 + self.next_id, self.rng.random_range(0..4));
            let to = WATCHED.get(to).copied().unwrap_or(Address::Solana([0xee; 32]));
            let (sender, amount) = (Address::Solana([self.rng.random_range(1..4); 32]), self.rng.random_range(1..50));
            self.next_id += 1;
            txs.push(match self.rng.random_range(0..6) {
                0 => Tx::failing(id, sender, &Tx::sol(id, sender, to, amount).payments),
                1 | 2 => Tx::token(id, usdc(), sender, to, amount),
                _ => Tx::sol(id, sender, to, amount),
            });
        }
        let slot = self.follower.ledger.latest().number + self.rng.random_range(1..10) / 8 + 1;
        self.follower.ledger.produce(slot, txs);
    }

    /// Some blocks are replaced: what was in them lands again, or is lost.
    fn roll_back(&mut self) {
        let ledger = &self.follower.ledger;
        let (latest, finalized) = (ledger.latest().number, ledger.finalized().number);
        let gone = ledger.roll_back_to(latest.saturating_sub(self.rng.random_range(1..4)).max(finalized));
        for tx in gone {
            if self.rng.random_bool(0.9) {
                self.produce(vec![tx]);
            }
        }
        self.produce(Vec::new());
    }

    /// Ticks until the newest block is connected, or until a retry did not help either.
    async fn follow(&mut self) {
        let mut retries = u32::from(self.case.with_healthy);
        for _ in 0..TICKS_MAX {
            let before = self.struck();
            let ticked = self.follower.tick().await;
            let is_there = self.follower.is_there().await;
            let goes_on = match ticked {
                Ok(ticked) => {
                    let gets_on = ticked.connected + ticked.disconnected > 0;
                    let is_struck = self.struck() > before && !self.case.faults.iter().any(is_consistent);
                    self.outcome.silent += u64::from(is_struck && !gets_on && !is_there);
                    gets_on
                }
                Err(error) => {
                    self.outcome.failed_ticks += 1;
                    if !error.may_pass() {
                        self.outcome.halts.push(error.to_string());
                        self.follower.restart();
                    }
                    false
                }
            };
            if is_there || !goes_on && retries == 0 {
                break;
            }
            retries -= u32::from(!goes_on);
        }
        let cursor = self.follower.cursor().await.unwrap_or(FIRST_SLOT);
        self.outcome.behind = self.outcome.behind.max(self.follower.ledger.blocks_above(cursor));
    }

    fn struck(&self) -> u64 {
        let of_node = |node: &Node| self.case.faults.iter().map(|fault| node.struck(*fault)).sum::<u64>();
        self.follower.nodes.iter().map(of_node).sum()
    }
}
