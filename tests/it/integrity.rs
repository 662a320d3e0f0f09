//! Our row of the table of integrity results: 45,000 Transfers, answers that are empty though they must not be, and
//! reorgs. Others lost up to 27,090 of them and said that they had finished.
//!
//! Each block has 90 Transfers of a listed token to 90 recipients. Every block is read and proved in either mode;
//! `LANDFALL_FULL=1` watches all recipients, otherwise one of ten, evenly spread.

use std::time::Instant;

use landfall_chain::Address;
use landfall_node::busy::{Busy, recipient};
use landfall_node::{Chain, Fault, Tx, When};
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::follower::{Audit, Follower, Mode, full, network, usdc};

const BLOCKS: u64 = 500;
const TRANSFERS: usize = 90;
const TXS: usize = 9;
const FINALITY_DEPTH: u64 = 12;
/// At which block how many are replaced.
const REORGS: [(u64, u64); 2] = [(200, 6), (400, 3)];
const SEED: u64 = 61;

#[tokio::test]
async fn backfill_with_30_percent_of_the_answers_empty() {
    let mut run = Run::new().await;
    for number in 1..=BLOCKS {
        run.mine(number);
    }
    run.misbehave(30);
    run.catch_up().await;
    run.close("backfill, 30% empty answers").await;
}

#[tokio::test]
async fn live_with_2_reorgs() {
    let mut run = Run::new().await;
    run.live().await;
    run.close("live, 2 reorgs (6 and 3 deep)").await;
}

#[tokio::test]
async fn live_with_20_percent_of_the_answers_empty_and_2_reorgs() {
    let mut run = Run::new().await;
    run.misbehave(20);
    run.live().await;
    run.close("live, 20% empty answers + 2 reorgs").await;
}

/// One column of the table.
struct Run {
    follower: Follower,
    busy: Busy,
    rng: StdRng,
    share: usize,
    failed_ticks: u64,
    begun: Instant,
}

impl Run {
    async fn new() -> Self {
        let begun = Instant::now();
        let busy = Busy {
            chain_id: 11_155_111,
            blocks: 0,
            txs: TXS,
            logs: TRANSFERS,
            listed_percent: 100,
            listed: usdc(),
            seed: SEED,
        };
        let chain = Chain::of(&network(Mode::Receipts), SEED);
        chain.set_finality_depth(Some(FINALITY_DEPTH));
        let share = if full() { 1 } else { 10 };
        let of_block = |number| (0..TRANSFERS).step_by(share).map(move |index| recipient(number, index));
        let watched = (1..=BLOCKS).flat_map(of_block).map(|address| Address::Evm(address.into())).collect();
        let follower = Follower::new(chain, Mode::Receipts, &[SEED], watched).await;
        Run { follower, busy, rng: StdRng::seed_from_u64(SEED), share, failed_ticks: 0, begun }
    }

    fn mine(&mut self, number: u64) {
        let txs = self.busy.block(number, &mut self.rng);
        self.follower.chain.mine(txs);
    }

    fn misbehave(&self, percent: u32) {
        for fault in [Fault::EmptyReceipts, Fault::EmptyLogs] {
            self.follower.servers[0].misbehave(fault, When::Percent(percent));
        }
    }

    /// A block at a time, each followed to the end before the next.
    async fn live(&mut self) {
        for number in 1..=BLOCKS {
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
        let chain = &self.follower.chain;
        let mut dropped: Vec<Tx> = chain.fork_at(keep);
        assert_eq!(dropped.len(), TXS * usize::try_from(depth).unwrap());
        dropped.reverse();
        for txs in dropped.chunks(TXS) {
            chain.mine(txs.to_vec());
        }
    }

    async fn catch_up(&mut self) {
        while !self.follower.is_there().await {
            match self.follower.tick().await {
                Ok(_) => {}
                Err(error) if error.may_pass() => self.failed_ticks += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Prints the column, which must be zeros.
    async fn close(mut self, column: &str) {
        let empty =
            self.follower.servers[0].struck(Fault::EmptyReceipts) + self.follower.servers[0].struck(Fault::EmptyLogs);
        self.follower.settle(FINALITY_DEPTH).await.unwrap();
        let Audit { legs, missing, phantom, twice, .. } = self.follower.audit().await;
        let requests = self.follower.servers[0].counts().requests;
        let mode = if self.share == 1 { "full" } else { "bounded, 1 of 10 recipients watched" };
        println!(
            "landfall | {column} | {missing} missing / {phantom} phantom / {twice} twice of {legs} deposits in {} \
             Transfers ({mode}; {empty} empty answers, {} failed ticks, {requests} requests, {} s)",
            BLOCKS * u64::try_from(TRANSFERS).unwrap(),
            self.failed_ticks,
            self.begun.elapsed().as_secs(),
        );
        assert_eq!(legs, usize::try_from(BLOCKS).unwrap() * TRANSFERS / self.share);
        assert_eq!((missing, phantom, twice), (0, 0, 0));
    }
}
