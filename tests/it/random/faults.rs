//! Whatever a node does: nothing missed, nothing phantom, nothing twice.
//!
//! A chain with deposits, noise and reorgs is followed while each fault of `landfall_node::Fault`, alone and in pairs,
//! strikes at random moments, in every way to read a chain that it can spoil. Afterwards the nodes behave, and the
//! books must be those of the chain: everything CONFIRMED that is final, all else FAILED, nothing left open.
//! With a second, healthy endpoint the cursor must keep up; with none, trouble must show and pass by itself.

mod history;
mod huge;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use landfall_chain::Address;
use landfall_node::{Chain, Fault, Tx, When};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::harness::follower::{Followed, Kinds, Mode, network};
use crate::harness::lanes::{full, given_seed, on_every_processor};
use history::{Case, FINALITY_DEPTH, Outcome, WATCHED, differ, is_consistent};

const PAIRS: usize = 16;
/// How far the cursor, and the traces, may be behind after one retry, while another endpoint is healthy.
const BEHIND_MAX: u64 = 2;
/// Large enough to be unusable. What is too large to be read at all, `huge` shows at the real process: here several
/// histories share a thread, and while one reads 128 MiB the answers of the healthy endpoints time out too.
const HUGE: usize = 5_000_000;
/// Histories at once on a processor: most of their time they wait.
const AT_ONCE: usize = 8;

#[test]
fn no_single_fault_loses_or_invents_a_deposit() {
    let (mut all, mut seed) = (Vec::new(), 100);
    for mode in Mode::ALL {
        for fault in faults().into_iter().filter(|fault| matters(fault, mode)) {
            let cases = with_and_without(vec![fault], mode, seed);
            seed += 20 * u64::try_from(cases.len()).unwrap();
            all.push((fault, mode, cases));
        }
    }
    // Every second one in a bounded run: each is there in half of the commits.
    let (kind, first, step) = if full() { ("full", 0, 1) } else { ("bounded", usize::from(given_seed() % 2 == 1), 2) };
    let what = format!("{kind}: of {} single faults each {step}th from number {first}", all.len());
    let taken: Vec<_> = all.into_iter().skip(first).step_by(step).collect();
    let matrix = check(taken.iter().flat_map(|(.., cases)| cases.clone()).collect(), &what);
    for (fault, mode, _) in taken {
        let strikes = matrix.strikes.get(&(fault.name(), mode)).copied().unwrap_or_default();
        println!("{:30} {:10} {strikes:5} strikes", fault.name(), mode.name());
        assert!(strikes > 0, "{} never struck where a chain is read by {}", fault.name(), mode.name());
    }
    let Kinds { tokens, native, withdrawals, inner } = matrix.kinds;
    println!("{tokens} tokens, {native} native, {withdrawals} withdrawals, {inner} inside of transactions");
    assert!([tokens, native, withdrawals, inner].iter().all(|count| *count > 100), "{:?}", matrix.kinds);
}

#[test]
fn no_pair_of_faults_loses_or_invents_a_deposit() {
    let faults = faults();
    let mut pairs: Vec<Vec<Fault>> = Vec::new();
    for (index, first) in faults.iter().enumerate() {
        pairs.extend(faults[index + 1..].iter().map(|second| vec![*first, *second]));
    }
    let (all, base) = (pairs.len(), given_seed());
    // The same pairs in each bounded run: until all of them were run, a new one may need a person to judge it.
    let mut rng = StdRng::seed_from_u64(40);
    while !full() && pairs.len() > PAIRS {
        pairs.swap_remove(rng.random_range(0..pairs.len()));
    }
    let count = pairs.len();
    let kind = if full() { "full" } else { "bounded" };
    let counts = format!("{kind}: {count} of {all} pairs of faults from LANDFALL_SEED={base}");
    let mut cases = Vec::new();
    for pair in pairs {
        let mut modes = modes_of(&pair);
        if !full() {
            modes = vec![modes[rng.random_range(0..modes.len())]];
        }
        for mode in modes {
            let seed = 10_000 + base + 20 * u64::try_from(cases.len()).unwrap();
            cases.extend(with_and_without(pair.clone(), mode, seed));
        }
    }
    check(cases, &counts);
}

#[tokio::test]
async fn a_node_that_never_ends_its_answer_is_given_up_on_and_another_asked_or_it_again_where_there_is_none() {
    let beside_another = async {
        let failed = gets_over_an_endless_answer(&[1, 2]).await;
        assert!(failed <= 1, "{failed} failures");
    };
    let alone = async {
        let failed = gets_over_an_endless_answer(&[1]).await;
        assert!(failed >= 1, "nothing showed");
    };
    tokio::join!(beside_another, alone);
}

/// How many ticks failed until a block was connected whose first node to be asked never ends its answer, once.
async fn gets_over_an_endless_answer(seeds: &[u64]) -> u32 {
    let chain = Chain::of(&network(Mode::Receipts), 1);
    let watched = WATCHED.map(Address::Evm).to_vec();
    let mut follower = Followed::new(chain, Mode::Receipts, seeds, watched).await;
    follower.chain.mine(vec![Tx::pay(0, 0, WATCHED[0].into(), 5)]);
    follower.servers[0].misbehave(Fault::Drip(Duration::from_secs(3_600)), When::Next(1));
    let begun = Instant::now();
    let mut failed = 0;
    while !follower.is_there().await {
        failed += u32::from(follower.tick().await.is_err());
    }
    assert!(begun.elapsed() < Duration::from_secs(60), "{failed} failures, {:?}", begun.elapsed());
    failed
}

#[tokio::test]
async fn a_lone_node_that_named_a_false_block_final_and_then_failed_a_proof_is_believed_again() {
    let chain = Chain::of(&network(Mode::Receipts), 1);
    chain.set_finality_depth(Some(FINALITY_DEPTH));
    let watched = WATCHED.map(Address::Evm).to_vec();
    let mut follower = Followed::new(chain.clone(), Mode::Receipts, &[1], watched).await;
    chain.mine_empty(2 * FINALITY_DEPTH);
    follower.tick().await.unwrap();
    follower.servers[0].misbehave(Fault::FinalOnFork, When::Always);
    follower.tick().await.unwrap();
    // With so many on top it counts.
    chain.mine_empty(FINALITY_DEPTH / 2);
    assert!(follower.tick().await.is_err(), "no block of ours is called final");
    follower.servers[0].behave();
    follower.servers[0].misbehave(Fault::WrongBlockHash, When::Always);
    // Receipts that are all of another block are no lie, but one of several is.
    chain.mine(vec![Tx::pay(0, 0, WATCHED[0].into(), 5), Tx::pay(1, 0, [0xee; 20].into(), 5)]);
    while follower.servers[0].struck(Fault::WrongBlockHash) == 0 {
        assert!(follower.tick().await.is_err());
    }
    follower.settle(FINALITY_DEPTH).await.unwrap();
    let audit = follower.audit().await;
    assert!(audit.legs == 1 && audit.is_clean(), "{audit:?}");
}

#[tokio::test]
async fn a_node_at_which_one_method_of_tracing_is_broken_puts_no_block_off() {
    let chain = Chain::of(&network(Mode::Traces), 1);
    chain.set_finality_depth(Some(FINALITY_DEPTH));
    let watched = WATCHED.map(Address::Evm).to_vec();
    let mut follower = Followed::new(chain.clone(), Mode::Traces, &[1], watched).await;
    follower.servers[0].misbehave(Fault::TraceError, When::Always);
    for nonce in 0..5 {
        chain.mine(vec![Tx::forward(0, nonce, [0xc0; 20].into(), WATCHED[0].into(), 100 + nonce)]);
        while !follower.is_there().await {
            follower.tick().await.unwrap();
        }
        let traced = follower.trace().await.unwrap();
        assert_eq!((traced.traced, traced.pending, follower.untraced().await), (1, 1, 0), "{nonce}");
    }
    assert_eq!(follower.servers[0].struck(Fault::TraceError), 1, "what works is remembered");
    follower.settle(FINALITY_DEPTH).await.unwrap();
    let audit = follower.audit().await;
    assert!(audit.kinds.inner == 5 && audit.is_clean(), "{audit:?}");
}

/// All of them, none so large that only reading it takes seconds.
fn faults() -> Vec<Fault> {
    let smaller = |fault| if let Fault::Huge(_) = fault { Fault::Huge(HUGE) } else { fault };
    Fault::ALL.map(smaller).into()
}

/// Whether the fault spoils an answer that is asked for in this mode.
fn matters(fault: &Fault, mode: Mode) -> bool {
    match fault {
        Fault::EmptyLogs => mode == Mode::Logs,
        Fault::EmptyTraces | Fault::UnmarkedRevert | Fault::TraceError => mode == Mode::Traces,
        _ => true,
    }
}

/// The modes in which both matter; where there is none, those in which the first does.
fn modes_of(pair: &[Fault]) -> Vec<Mode> {
    let both = |mode: &Mode| pair.iter().all(|fault| matters(fault, *mode));
    let modes: Vec<Mode> = Mode::ALL.into_iter().filter(both).collect();
    let of_first = Mode::ALL.into_iter().filter(|mode| matters(&pair[0], *mode));
    if modes.is_empty() { of_first.collect() } else { modes }
}

/// The faults at the only endpoint, at one of two, and at one of three where two cannot be distinguished.
fn with_and_without(faults: Vec<Fault>, mode: Mode, seed: u64) -> Vec<Case> {
    let asked = (0..=2_u64).filter(|healthy| *healthy < 2 || faults.iter().any(differ));
    asked.map(|healthy| Case { faults: faults.clone(), mode, healthy, seed: seed + 5 * healthy }).collect()
}

/// What was counted over all histories.
#[derive(Default)]
struct Matrix {
    kinds: Kinds,
    strikes: BTreeMap<(&'static str, Mode), u64>,
    /// Histories in which all was quiet at the end before all that is final was settled.
    waited: usize,
}

/// Runs the cases, some of them at once; every broken promise is reported.
fn check(cases: Vec<Case>, what: &str) -> Matrix {
    let begun = Instant::now();
    let each = async |case: Case| (case.run().await, case);
    let mut reported = on_every_processor(cases, AT_ONCE, each);
    reported.sort_by_key(|(_, case)| case.seed);
    let (mut matrix, mut broken) = (Matrix::default(), Vec::new());
    for (outcome, case) in &reported {
        println!("{:60} {outcome:?}", case.name());
        matrix.kinds.add(outcome.audit.kinds);
        matrix.waited += usize::from(outcome.waits > 0);
        for (fault, struck) in case.faults.iter().zip(&outcome.struck) {
            *matrix.strikes.entry((fault.name(), case.mode)).or_default() += struck;
        }
        broken.extend(promises_broken(case, outcome));
    }
    let strikes: u64 = matrix.strikes.values().sum();
    let (histories, took) = (reported.len(), begun.elapsed().as_secs());
    println!("{what}: {histories} histories, {:?}, {strikes} strikes, in {took} s", matrix.kinds);
    println!("in {} histories finality was waited for after everything else was done", matrix.waited);
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    matrix
}

fn promises_broken(case: &Case, outcome: &Outcome) -> Vec<String> {
    let name = case.name();
    let mut broken = Vec::new();
    let mut check = |holds: bool, what: String| {
        if !holds {
            broken.push(format!("{name} (seed {}): {what}", case.seed));
        }
    };
    if case.is_its_word_alone() && outcome.stuck.is_some() {
        // It was believed, and what shows that it was wrong waits for a person; nothing is credited twice.
        let is_reported = |halt: &String| halt.contains("was final and is no longer canonical");
        let halted = outcome.halts.first().is_some_and(is_reported) && outcome.halts.iter().all(is_reported);
        check(halted && outcome.audit.twice == 0, format!("{:?}, {:?}", outcome.stuck, outcome.audit));
        return broken;
    }
    check(outcome.audit.is_clean() && outcome.audit.legs > 20, format!("{:?}", outcome.audit));
    check(outcome.stuck.is_none(), format!("{:?}, {:?}", outcome.stuck, outcome.waited_for));
    if case.healthy > 0 {
        check(outcome.behind <= BEHIND_MAX, format!("{} blocks behind after one retry", outcome.behind));
        let waits = case.is_undecided();
        check(waits || outcome.untraced <= BEHIND_MAX, format!("{} not traced after one retry", outcome.untraced));
    } else {
        check(outcome.silent == 0, format!("{} ticks left the cursor behind and said nothing", outcome.silent));
        // Beside another fault it strikes seldom: then the other method may have reported the trace in the same tick.
        let made_good = case.faults.len() > 1 && outcome.by_other_method > 0;
        // What an endpoint that refuses batches is asked call by call arrives whole.
        let is_call_by_call = case.faults.iter().any(|fault| matches!(fault, Fault::NoBatches(_)));
        let is_made_good = |fault: &Fault| {
            made_good && matches!(fault, Fault::EmptyTraces)
                || is_call_by_call && matches!(fault, Fault::PartialBatch | Fault::TornBatch)
        };
        // Of two faults of what is final the one that calls the newest block so reports it.
        let early = case.faults.contains(&Fault::FinalEarly);
        let is_hidden = |fault: &Fault| early && matches!(fault, Fault::FinalOnFork | Fault::FinalAhead);
        let must_show =
            case.faults.iter().any(|fault| shows(fault, case.mode) && !is_made_good(fault) && !is_hidden(fault));
        check(!must_show || outcome.failed_ticks > 0, format!("{:?} strikes and no trouble shown", outcome.struck));
    }
    // Otherwise it was not tried whether a phantom can be had.
    let lured = match case.faults[..] {
        [Fault::AnotherFork] => outcome.audit.baits > 0,
        [Fault::UnmarkedRevert] => outcome.audit.failed > 0,
        _ => true,
    };
    check(lured || case.healthy > 0, "the lie was never believed, not for a while either".to_owned());
    check(case.halts_alone() || outcome.halts.is_empty(), format!("halted: {}", outcome.halts.join("; ")));
    broken
}

/// Whether the fault must be seen. These faults need not be:
/// - a trace that is right in itself;
/// - a block that is called final with too few on top;
/// - empty logs: a block whose bloom holds a listed contract and that shows no log is read by its receipts;
/// - refused batches and a failed method of tracing: calls are made one by one, and the other method is asked;
/// - a fault of answers that are not asked for.
fn shows(fault: &Fault, mode: Mode) -> bool {
    let is_made_good = matches!(fault, Fault::EmptyLogs | Fault::NoBatches(_) | Fault::TraceError);
    let is_unseen = matches!(fault, Fault::UnmarkedRevert | Fault::FinalEarly);
    matters(fault, mode) && !is_consistent(fault) && !is_unseen && !is_made_good
}
