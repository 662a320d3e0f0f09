//! Whatever a node does: nothing missed, nothing phantom, nothing twice.
//!
//! A chain with deposits, noise and reorgs is followed while each fault of `landfall_node::Fault`, alone and in pairs,
//! strikes at random moments. Afterwards the nodes behave, and the books must be those of the chain.
//! With a second, healthy endpoint the cursor must keep up; with none, trouble must show and pass by itself.

use std::time::{Duration, Instant};

use landfall_chain::Address;
use landfall_node::{Chain, Fault, Server, Tx, When};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::follower::{Audit, Follower, full, network, usdc};

const STEPS: u64 = 30;
const REORG_AT: [u64; 2] = [11, 21];
const REORG_DEPTH_MAX: u64 = 3;
const FINALITY_DEPTH: u64 = 6;
const PAYERS: usize = 4;
const WATCHED: [[u8; 20]; 3] = [[0xa1; 20], [0xa2; 20], [0xa3; 20]];
const PAIRS: usize = 40;
/// How many ticks a step may take while each gets on.
const TICKS_MAX: u32 = 10;
/// How far the cursor may be behind after one retry, while another endpoint is healthy.
const BEHIND_MAX: u64 = 2;
/// More answers of this size would only take time.
const HUGE_IN_PAIRS: usize = 5_000_000;

/// What the endpoint pool does not do yet: with these faults a second endpoint helps too little. Empty it with the pool
/// that keeps a head for each endpoint and lets endpoints agree.
const UNTIL_THE_POOL: [(Fault, Spared, &str); 3] = [
    (Fault::Stale(4), Spared::Delay, "an endpoint that lags is believed as long as it answers"),
    (Fault::HeadBack(3), Spared::Delay, "as above"),
    (Fault::FinalEarly, Spared::All, "one endpoint's word makes a block final"),
];

/// Which promises are not asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Spared {
    Delay,
    All,
}

#[tokio::test]
async fn no_single_fault_loses_or_invents_a_deposit() {
    let alone = Fault::ALL.into_iter().filter(|fault| *fault != Fault::FinalEarly).map(|fault| (fault, false));
    let with_healthy = Fault::ALL.into_iter().map(|fault| (fault, true));
    let cases = (100..).step_by(10).zip(alone.chain(with_healthy));
    let cases = cases.map(|(seed, (fault, with_healthy))| Case { faults: vec![fault], with_healthy, seed });
    check(cases.collect(), "every single fault").await;
}

#[tokio::test]
async fn no_pair_of_faults_loses_or_invents_a_deposit() {
    let smaller = |fault| if let Fault::Huge(_) = fault { Fault::Huge(HUGE_IN_PAIRS) } else { fault };
    let faults = Fault::ALL.map(smaller);
    let mut pairs: Vec<Vec<Fault>> = Vec::new();
    for (index, first) in faults.iter().enumerate() {
        pairs.extend(faults[index + 1..].iter().map(|second| vec![*first, *second]));
    }
    let (all, mut rng) = (pairs.len(), StdRng::seed_from_u64(40));
    while !full() && pairs.len() > PAIRS {
        pairs.swap_remove(rng.random_range(0..pairs.len()));
    }
    let mode = format!("{} of {all} pairs of faults ({})", pairs.len(), if full() { "full" } else { "bounded" });
    let mut cases = Vec::new();
    for (seed, faults) in (1_000..).step_by(10).zip(pairs) {
        // One node alone cannot be convicted of naming a block final too early.
        if !faults.contains(&Fault::FinalEarly) {
            cases.push(Case { faults: faults.clone(), with_healthy: false, seed });
        }
        cases.push(Case { faults, with_healthy: true, seed: seed + 5 });
    }
    check(cases, &mode).await;
}

#[tokio::test]
async fn a_node_that_never_ends_its_answer_is_given_up_on_and_another_asked() {
    let chain = Chain::of(&network(), 1);
    let mut follower = Follower::new(chain, &[1, 2], WATCHED.map(Address::Evm).to_vec()).await;
    follower.chain.mine(vec![Tx::pay(0, 0, WATCHED[0].into(), 5)]);
    follower.servers[0].misbehave(Fault::Drip(Duration::from_secs(3_600)), When::Next(1));
    let begun = Instant::now();
    let mut failed = 0;
    while !follower.is_there().await {
        failed += u32::from(follower.tick().await.is_err());
    }
    assert!(failed <= 1 && begun.elapsed() < Duration::from_secs(20), "{failed} failures, {:?}", begun.elapsed());
}

/// Runs the cases on two threads; every broken promise is told.
async fn check(cases: Vec<Case>, mode: &str) {
    let begun = Instant::now();
    let count = cases.len();
    let halves = (0..2).map(|half| {
        let cases: Vec<Case> = cases.iter().skip(half).step_by(2).cloned().collect();
        tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let run = |case: Case| (runtime.block_on(history(&case)), case);
            cases.into_iter().map(run).collect::<Vec<_>>()
        })
    });
    let mut broken = Vec::new();
    let (mut legs, mut struck) = (0, 0);
    for half in halves.collect::<Vec<_>>() {
        for (outcome, case) in half.await.unwrap() {
            println!("{:60} {outcome:?}", case.name());
            legs += outcome.audit.legs;
            struck += outcome.struck;
            broken.extend(faults_of(&case, &outcome));
        }
    }
    println!("{mode}: {count} histories, {legs} legs, {struck} strikes, in {} s", begun.elapsed().as_secs());
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The promises that a history broke.
fn faults_of(case: &Case, outcome: &Outcome) -> Vec<String> {
    let spared = |what| {
        let of_case = |(fault, spared, _): &(Fault, Spared, &str)| case.faults.contains(fault) && *spared == what;
        case.with_healthy && UNTIL_THE_POOL.iter().any(of_case)
    };
    if spared(Spared::All) {
        return Vec::new();
    }
    let name = case.name();
    let mut broken = Vec::new();
    let mut check = |holds: bool, what: String| {
        if !holds {
            broken.push(format!("{name} (seed {}): {what}", case.seed));
        }
    };
    check(outcome.audit.is_clean() && outcome.audit.legs > 20, format!("{:?}", outcome.audit));
    check(outcome.stuck.is_none(), format!("{:?}", outcome.stuck));
    check(outcome.silent == 0, format!("{} ticks left the cursor behind and said nothing", outcome.silent));
    if case.with_healthy {
        let keeps_up = outcome.behind <= BEHIND_MAX || spared(Spared::Delay);
        check(keeps_up, format!("{} blocks behind after one retry", outcome.behind));
    } else if case.faults.iter().any(shows) {
        check(outcome.failed_ticks > 0, format!("{} strikes and no trouble shown", outcome.struck));
    }
    // Otherwise it was not tried whether a phantom can be had.
    let is_lured = outcome.audit.baits > 0 || case.with_healthy || case.faults != [Fault::AnotherFork];
    check(is_lured, "the fork was never followed".to_owned());
    let may_halt = case.faults.contains(&Fault::WrongChainId);
    check(may_halt || outcome.halts.is_empty(), format!("halted: {}", outcome.halts.join("; ")));
    broken
}

/// One history.
#[derive(Clone, Debug)]
struct Case {
    faults: Vec<Fault>,
    with_healthy: bool,
    seed: u64,
}

/// What came of it.
#[derive(Default, Debug)]
struct Outcome {
    audit: Audit,
    struck: u64,
    ticks: u64,
    failed_ticks: u64,
    /// The most blocks behind after one retry.
    behind: u64,
    /// Ticks that a fault struck, that left the cursor behind and said nothing.
    silent: u64,
    /// Errors that need a person, by their words.
    halts: Vec<String>,
    stuck: Option<String>,
}

impl Case {
    fn name(&self) -> String {
        let names: Vec<&str> = self.faults.iter().map(Fault::name).collect();
        format!("{}{}", names.join(" + "), if self.with_healthy { ", a second endpoint" } else { "" })
    }
}

/// The state of one history beside the follower.
struct History {
    rng: StdRng,
    nonces: [u64; PAYERS],
    /// Until which step the faults stay that were told to stay.
    until: u64,
    outcome: Outcome,
}

async fn history(case: &Case) -> Outcome {
    let chain = Chain::of(&network(), case.seed);
    chain.set_finality_depth(Some(FINALITY_DEPTH));
    chain.bait(WATCHED[0].into(), usdc());
    let seeds = if case.with_healthy { vec![case.seed, case.seed + 1] } else { vec![case.seed] };
    let mut follower = Follower::new(chain, &seeds, WATCHED.map(Address::Evm).to_vec()).await;
    let rng = StdRng::seed_from_u64(case.seed ^ 0x5eed);
    let mut history = History { rng, nonces: [0; PAYERS], until: 0, outcome: Outcome::default() };
    for step in 1..=STEPS {
        history.misbehave(case, &follower, step);
        if REORG_AT.contains(&step) {
            history.reorganise(&follower.chain);
        } else {
            history.mine(&follower.chain, Vec::new());
        }
        history.follow(case, &mut follower).await;
    }
    let mut outcome = history.outcome;
    outcome.struck = struck(case, &follower);
    outcome.stuck = follower.settle(FINALITY_DEPTH).await.err();
    outcome.audit = follower.audit().await;
    outcome
}

impl History {
    /// Now and then the faults begin: some for a few calls, some for a few steps, at one server and then at the other,
    /// never at both.
    fn misbehave(&mut self, case: &Case, follower: &Follower, step: u64) {
        if self.until == step {
            follower.servers.iter().for_each(Server::behave);
        }
        // Before the first tick too: the chain id is asked once.
        if step != 1 && (self.until > step || self.rng.random_bool(0.6)) {
            return;
        }
        follower.servers.iter().for_each(Server::behave);
        let server = &follower.servers[self.rng.random_range(0..follower.servers.len())];
        for fault in &case.faults {
            let costs_time = matches!(fault, Fault::Huge(_));
            let stays = self.rng.random_bool(0.5) && !costs_time;
            server.misbehave(*fault, if stays { When::Always } else { When::Next(self.rng.random_range(1..3)) });
        }
        self.until = step + self.rng.random_range(1..5);
    }

    fn mine(&mut self, chain: &Chain, mut txs: Vec<Tx>) {
        for _ in 0..self.rng.random_range(1..5) {
            txs.push(self.tx());
        }
        if self.rng.random_bool(0.2) {
            chain.withdraw(self.somebody(), self.rng.random_range(1..100));
        }
        chain.mine(txs);
    }

    fn tx(&mut self) -> Tx {
        let payer = self.rng.random_range(0..PAYERS);
        let (nonce, to, amount) = (self.nonces[payer], self.somebody(), self.rng.random_range(1..50));
        self.nonces[payer] += 1;
        match self.rng.random_range(0..10) {
            0..4 => Tx::token(payer, nonce, usdc(), to, amount),
            4..7 => Tx::pay(payer, nonce, to, amount),
            7 => Tx::token(payer, nonce, [0x71; 20].into(), to, amount),
            8 => Tx::pay(payer, nonce, to, amount).failed(),
            _ => {
                // Twice the same in one transaction, and noise between.
                let paid = Tx::token(payer, nonce, usdc(), to, amount).logs.remove(0);
                let noise = Tx::token(payer, nonce, [0x71; 20].into(), to, amount).logs.remove(0);
                Tx::call(payer, nonce, [0xc0; 20].into(), vec![paid.clone(), noise, paid])
            }
        }
    }

    fn somebody(&mut self) -> landfall_node::Address {
        let everybody = [WATCHED.as_slice(), &[[0xee; 20]]].concat();
        everybody[self.rng.random_range(0..everybody.len())].into()
    }

    /// Some blocks are replaced by one more: their transactions move, or are replaced, or fail now, or are lost.
    fn reorganise(&mut self, chain: &Chain) {
        let latest = chain.latest().number;
        let depth = self.rng.random_range(1..=REORG_DEPTH_MAX);
        let dropped = chain.fork_at(latest - depth);
        let mut blocks = vec![Vec::new(); usize::try_from(depth + 1).unwrap()];
        for tx in dropped {
            let at = self.rng.random_range(0..blocks.len());
            match self.rng.random_range(0..10) {
                0 => {}
                1 => blocks[at].push(tx.replaced_by(self.tx())),
                2 => blocks[at].push(tx.failed()),
                _ => blocks[at].push(tx),
            }
        }
        blocks.into_iter().for_each(|txs| self.mine(chain, txs));
    }

    /// Ticks until the newest block is connected, or until a retry did not help either.
    async fn follow(&mut self, case: &Case, follower: &mut Follower) {
        let mut retries = u32::from(case.with_healthy);
        for _ in 0..TICKS_MAX {
            let before = struck(case, follower);
            let ticked = follower.tick().await;
            self.outcome.ticks += 1;
            let is_there = follower.is_there().await;
            let goes_on = match ticked {
                Ok(ticked) => {
                    let gets_on = ticked.connected + ticked.disconnected > 0;
                    let is_struck = struck(case, follower) > before && !case.faults.iter().any(is_consistent);
                    self.outcome.silent += u64::from(is_struck && !gets_on && !is_there);
                    gets_on
                }
                Err(error) => {
                    self.outcome.failed_ticks += 1;
                    if !error.may_pass() {
                        self.outcome.halts.push(error.to_string());
                        follower.restart();
                    }
                    false
                }
            };
            if is_there || !goes_on && retries == 0 {
                break;
            }
            retries -= u32::from(!goes_on);
        }
        let (latest, cursor) = (follower.chain.latest().number, follower.cursor().await.number);
        self.outcome.behind = self.outcome.behind.max(latest.saturating_sub(cursor));
    }
}

fn struck(case: &Case, follower: &Follower) -> u64 {
    follower.servers.iter().flat_map(|server| case.faults.iter().map(|fault| server.struck(*fault))).sum()
}

/// Whether the fault must be seen: not what only takes time, nor what spoils answers that are not asked for today.
fn shows(fault: &Fault) -> bool {
    !is_consistent(fault) && !matches!(fault, Fault::Drip(_) | Fault::EmptyLogs | Fault::UnmarkedRevert)
}

/// A node that is merely behind, or on a branch, is right in itself: nothing shows that there is more. A torn batch can
/// end on a branch that stands on the chain.
fn is_consistent(fault: &Fault) -> bool {
    matches!(fault, Fault::AnotherFork | Fault::TornBatch | Fault::Stale(_) | Fault::HeadBack(_))
}
