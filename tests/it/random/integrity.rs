//! Our row of the table of integrity results (README): 45,000 Transfers, answers that are empty though they must not
//! be, and reorgs. Others lost up to 27,090 of them and said that they had finished.
//!
//! Each block has 90 Transfers of a listed token to 90 recipients. The three columns are those of the table, each
//! followed by receipts and by logs at the same time. The fourth is ours: accounts that are added after all blocks have
//! passed, found by a backfill. The full run watches all recipients in 500 blocks, otherwise one of ten, evenly spread,
//! in half of them.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use landfall::watcher::{Job, Scope};
use landfall_chain::{Address, ReadProof};
use landfall_node::busy::{Busy, recipient};
use landfall_node::{Chain, Fault, LogLimits, Tx, When};
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::harness::follower::{Audit, Followed, Mode, network, usdc};
use crate::harness::lanes::full;

const TRANSFERS: usize = 90;
const TXS: usize = 9;
const FINALITY_DEPTH: u64 = 12;
/// At which block how many are replaced.
const REORGS: [(u64, u64); 2] = [(100, 6), (200, 3)];
const SEED: u64 = 61;
/// The widest range that a backfill may ask for the logs of, so that it must ask often.
const LOG_BLOCKS_MAX: u64 = 10;
/// How long a backfill leaves a node alone that has failed.
const PAUSE: Duration = Duration::from_millis(20);

#[tokio::test]
async fn backfill_with_30_percent_of_the_answers_empty() {
    let mut run = Run::followed(&[Mode::Receipts, Mode::Logs]).await;
    run.mine_all();
    run.misbehave(30);
    run.catch_up().await;
    run.close("backfill, 30% empty answers").await;
}

#[tokio::test]
async fn live_with_2_reorgs() {
    let mut run = Run::followed(&[Mode::Receipts, Mode::Logs]).await;
    run.live().await;
    run.close("live, 2 reorgs (6 and 3 deep)").await;
}

#[tokio::test]
async fn live_with_20_percent_of_the_answers_empty_and_2_reorgs() {
    let mut run = Run::followed(&[Mode::Receipts, Mode::Logs]).await;
    run.misbehave(20);
    run.live().await;
    run.close("live, 20% empty answers + 2 reorgs").await;
}

#[tokio::test]
async fn accounts_added_late_by_a_backfill_with_30_percent_of_the_answers_empty() {
    let mut run = Run::followed(&[]).await;
    run.mine_all();
    // Nobody is watched while the chain passes.
    let mut line = Line::of(&run.chain, Mode::Logs, Vec::new()).await;
    line.catch_up().await;
    line.follower.settle(FINALITY_DEPTH).await.unwrap();
    assert_eq!(line.follower.audit().await, Audit::default());
    line.follower.watch(watched()).await;
    line.follower.servers[0].set_log_limits(LogLimits { blocks_max: LOG_BLOCKS_MAX, ..LogLimits::default() });
    line.misbehave(30);
    line.backfill().await;
    run.lines.push(line);
    run.close("accounts added late, backfill by logs, 30% empty answers").await;
}

/// One column of the table.
struct Run {
    chain: Chain,
    lines: Vec<Line>,
    busy: Busy,
    rng: StdRng,
    begun: Instant,
}

/// One way to follow its chain.
struct Line {
    follower: Followed,
    mode: Mode,
    /// The faults that the node was given.
    armed: Vec<Fault>,
    failed: u64,
}

impl Run {
    /// Whose chain is followed in these ways.
    async fn followed(modes: &[Mode]) -> Self {
        let begun = Instant::now();
        let busy = Busy {
            chain_id: 11_155_111,
            blocks: 0,
            txs: TXS,
            logs: TRANSFERS,
            listed_percent: 100,
            listed: usdc(),
            native: 0,
            seed: SEED,
        };
        let chain = Chain::of(&network(Mode::Receipts), SEED);
        chain.set_finality_depth(Some(FINALITY_DEPTH));
        let mut lines = Vec::new();
        for mode in modes {
            lines.push(Line::of(&chain, *mode, watched()).await);
        }
        Run { chain, lines, busy, rng: StdRng::seed_from_u64(SEED), begun }
    }

    fn mine(&mut self, number: u64) {
        let txs = self.busy.block(number, &mut self.rng);
        self.chain.mine(txs);
    }

    fn mine_all(&mut self) {
        (1..=blocks()).for_each(|number| self.mine(number));
    }

    fn misbehave(&mut self, percent: u32) {
        self.lines.iter_mut().for_each(|line| line.misbehave(percent));
    }

    /// A block at a time, each followed to the end before the next.
    async fn live(&mut self) {
        for number in 1..=blocks() {
            self.mine(number);
            self.catch_up().await;
            // What replaces the newest blocks is seen when the next one stands on it.
            if let Some((_, depth)) = REORGS.iter().find(|(at, _)| *at == number) {
                self.reorganise(number - depth, *depth);
            }
        }
    }

    /// The newest blocks are replaced by as many that hold the same transactions the other way round.
    fn reorganise(&mut self, keep: u64, depth: u64) {
        let mut dropped: Vec<Tx> = self.chain.fork_at(keep);
        assert_eq!(dropped.len(), TXS * usize::try_from(depth).unwrap());
        dropped.reverse();
        for txs in dropped.chunks(TXS) {
            self.chain.mine(txs.to_vec());
        }
    }

    async fn catch_up(&mut self) {
        join_all(self.lines.iter_mut().map(Line::catch_up)).await;
    }

    /// Prints the column, which must be zeros.
    async fn close(self, column: &str) {
        let took = self.begun.elapsed().as_secs();
        let (transfers, share) = (blocks() * u64::try_from(TRANSFERS).unwrap(), share());
        let kind = if share == 1 { "full" } else { "bounded, 1 of 10 recipients watched" };
        for Line { mut follower, mode, armed, failed } in self.lines {
            let struck: Vec<(&str, u64)> =
                armed.iter().map(|fault| (fault.name(), follower.servers[0].struck(*fault))).collect();
            follower.settle(FINALITY_DEPTH).await.unwrap();
            let Audit { legs, missing, phantom, twice, .. } = follower.audit().await;
            let (requests, mode) = (follower.servers[0].counts().requests, mode.name());
            println!(
                "landfall | {column} | by {mode} | {missing} missing / {phantom} phantom / {twice} twice of {legs} deposits \
                 in {transfers} Transfers ({kind}; struck: {struck:?}; {failed} failures, {requests} requests, {took} s)",
            );
            assert!(struck.iter().all(|(_, times)| *times > 0), "{column}, by {mode}: not tried: {struck:?}");
            assert_eq!(legs, usize::try_from(blocks()).unwrap() * TRANSFERS / share, "{column}, by {mode}");
            assert_eq!((missing, phantom, twice), (0, 0, 0), "{column}, by {mode}");
        }
    }
}

impl Line {
    async fn of(chain: &Chain, mode: Mode, watched: Vec<Address>) -> Self {
        let follower = Followed::new(chain.clone(), mode, &[SEED], watched).await;
        Line { follower, mode, armed: Vec::new(), failed: 0 }
    }

    fn misbehave(&mut self, percent: u32) {
        self.armed.push(Fault::EmptyReceipts);
        // Nobody else asks for logs.
        self.armed.extend((self.mode == Mode::Logs).then_some(Fault::EmptyLogs));
        for fault in &self.armed {
            self.follower.servers[0].misbehave(*fault, When::Percent(percent));
        }
    }

    async fn catch_up(&mut self) {
        while !self.follower.is_there().await {
            match self.follower.tick().await {
                Ok(_) => {}
                Err(error) if error.may_pass() => self.failed += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Of all that is there, by logs.
    async fn backfill(&mut self) {
        let job = Job { from: 1, to: Some(blocks()), proof: ReadProof::Candidate, scope: Scope::All, dry_run: false };
        let mut backfill = self.follower.backfill(job).await;
        while !backfill.is_done() {
            if let Err(error) = backfill.step(self.follower.now()).await {
                assert!(error.may_pass(), "{error}");
                self.failed += 1;
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn blocks() -> u64 {
    if full() { 500 } else { 120 }
}

/// Of how many recipients one is watched.
fn share() -> usize {
    if full() { 1 } else { 10 }
}

fn watched() -> Vec<Address> {
    let of_block = |number| (0..TRANSFERS).step_by(share()).map(move |index| recipient(number, index));
    (1..=blocks()).flat_map(of_block).map(|address| Address::Evm(address.into())).collect()
}
