//! One history: a chain with deposits, noise and reorgs, and servers that misbehave at random moments.
//!
//! With a second endpoint, the faults are first at one server and later at another, and never at one while the source
//! still does without another: one is always healthy, and the source knows it. If two contradict each other and neither
//! can be shown to be wrong, a third, honest one is there too. Deposits come in every way that a follower can see:
//! tokens, native value, withdrawals, and value that moves inside of transactions, reverted value too.

use landfall::watcher::TickError;
use landfall_chain::Address;
use landfall_node::{Chain, Fault, Frame, FrameKind, Server, Tx, U256, When};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::harness::follower::{Audit, Followed, Mode, network, usdc};

const STEPS: u64 = 30;
const REORG_AT: [u64; 2] = [11, 21];
const REORG_DEPTH_MAX: u64 = 3;
pub(super) const FINALITY_DEPTH: u64 = 6;
/// At which steps the faults wait until every server is trusted, and move to another one, if there is one.
const MOVES_AT: [u64; 2] = [10, 20];
const PAYERS: usize = 4;
const CONTRACT: [u8; 20] = [0xc0; 20];
const RELAY: [u8; 20] = [0xc1; 20];
const NOT_LISTED: [u8; 20] = [0x71; 20];
pub(super) const WATCHED: [[u8; 20]; 3] = [[0xa1; 20], [0xa2; 20], [0xa3; 20]];
/// How many ticks a step may take while each gets on.
const TICKS_MAX: u32 = 10;

/// One history, as it is ordered.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) faults: Vec<Fault>,
    pub(super) mode: Mode,
    /// How many endpoints are honest beside the one that is not.
    pub(super) healthy: u64,
    pub(super) seed: u64,
}

/// What came of it.
#[derive(Default, Debug)]
pub(super) struct Outcome {
    pub(super) audit: Audit,
    /// How often each of the case's faults has struck.
    pub(super) struck: Vec<u64>,
    pub(super) ticks: u64,
    pub(super) failed_ticks: u64,
    /// The most blocks behind after one retry, and the most that were not traced then.
    pub(super) behind: u64,
    pub(super) untraced: u64,
    /// Ticks that a fault struck, that left the cursor behind and said nothing.
    pub(super) silent: u64,
    /// How often the other method of tracing was asked, which makes good what one answered empty.
    pub(super) by_other_method: u64,
    /// How often all was quiet at the end although not all that is final was settled, and what was waited for last.
    pub(super) waits: u64,
    pub(super) waited_for: String,
    /// Errors that need a person, by their words.
    pub(super) halts: Vec<String>,
    pub(super) stuck: Option<String>,
}

impl Case {
    pub(super) fn name(&self) -> String {
        let names: Vec<&str> = self.faults.iter().map(Fault::name).collect();
        let healthy = match self.healthy {
            0 => "",
            1 => ", a second endpoint",
            _ => ", two more endpoints",
        };
        format!("{} ({}{healthy})", names.join(" + "), self.mode.name())
    }

    /// Two that report different traces of a block are both wrong until a third, or one of them, says otherwise; and
    /// which of two branches will win, neither of two endpoints can report.
    pub(super) fn is_undecided(&self) -> bool {
        self.healthy == 1 && self.faults.iter().any(differ)
    }

    /// A lone endpoint that shows another branch and calls it final: nothing can be held against it until it shows the
    /// other.
    pub(super) fn is_its_word_alone(&self) -> bool {
        self.healthy == 0 && [Fault::AnotherFork, Fault::FinalEarly].iter().all(|fault| self.faults.contains(fault))
    }

    /// A lone endpoint of another chain ends the watcher, until a person resumes it.
    pub(super) fn halts_alone(&self) -> bool {
        self.healthy == 0 && self.faults.contains(&Fault::WrongChainId)
    }

    /// Runs it.
    pub(super) async fn run(&self) -> Outcome {
        let chain = Chain::of(&network(self.mode), self.seed);
        chain.set_finality_depth(Some(FINALITY_DEPTH));
        chain.bait(WATCHED[0].into(), usdc());
        let seeds: Vec<u64> = (self.seed..=self.seed + self.healthy).collect();
        let mut follower = Followed::new(chain, self.mode, &seeds, WATCHED.map(Address::Evm).to_vec()).await;
        let mut history = History::new(self);
        for step in 1..=STEPS {
            if MOVES_AT.contains(&step) {
                follower.regain_trust().await;
                history.moves = true;
            }
            history.misbehave(&follower, step);
            if REORG_AT.contains(&step) {
                history.reorganise(&follower.chain);
            } else {
                history.mine(&follower.chain, Vec::new());
            }
            history.follow(&mut follower).await;
            history.trace(&follower).await;
        }
        let mut outcome = history.outcome;
        outcome.struck = self.faults.iter().map(|fault| struck(&follower, fault)).collect();
        let calls = |server: &Server| server.counts().calls.get("trace_block").copied().unwrap_or(0);
        outcome.by_other_method = follower.servers.iter().map(calls).sum();
        if self.halts_alone() {
            follower.restart();
        }
        outcome.stuck = follower.settle(FINALITY_DEPTH).await.err();
        outcome.audit = follower.audit().await;
        (outcome.waits, outcome.waited_for) = (follower.waits, follower.waited_for);
        outcome
    }

    fn struck(&self, follower: &Followed) -> u64 {
        self.faults.iter().map(|fault| struck(follower, fault)).sum()
    }
}

/// The state of one history beside the follower.
struct History<'c> {
    case: &'c Case,
    rng: StdRng,
    nonces: [u64; PAYERS],
    /// Until which step the lasting faults stay.
    until: u64,
    /// Whose turn it was last, and whether it is another's now.
    liar: usize,
    moves: bool,
    outcome: Outcome,
}

impl<'c> History<'c> {
    fn new(case: &'c Case) -> Self {
        let rng = StdRng::seed_from_u64(case.seed ^ 0x5eed);
        History { case, rng, nonces: [0; PAYERS], until: 0, liar: 0, moves: false, outcome: Outcome::default() }
    }

    /// Now and then the faults begin: some for a few calls, some for a few steps.
    fn misbehave(&mut self, follower: &Followed, step: u64) {
        if self.until == step || self.moves {
            follower.servers.iter().for_each(Server::behave);
        }
        // Before the first tick too: the chain id is asked once.
        if step != 1 && !self.moves && (self.until > step || self.rng.random_bool(0.6)) {
            return;
        }
        follower.servers.iter().for_each(Server::behave);
        self.liar = self.next_liar(follower);
        for fault in &self.case.faults {
            let costs_time = matches!(fault, Fault::Huge(_));
            let stays = self.rng.random_bool(0.5) && !costs_time;
            let when = if stays { When::Always } else { When::Next(self.rng.random_range(1..3)) };
            follower.servers[self.liar].misbehave(*fault, when);
        }
        self.until = step + self.rng.random_range(1..5);
    }

    fn next_liar(&mut self, follower: &Followed) -> usize {
        let count = follower.servers.len();
        let moves = std::mem::take(&mut self.moves);
        match follower.distrusted().first() {
            Some(distrusted) => *distrusted,
            None if moves => (self.liar + 1) % count,
            None => self.rng.random_range(0..count),
        }
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
        match self.rng.random_range(0..14) {
            0..4 => Tx::token(payer, nonce, usdc(), to, amount),
            4..7 => Tx::pay(payer, nonce, to, amount),
            7 => Tx::token(payer, nonce, NOT_LISTED.into(), to, amount),
            8 => Tx::pay(payer, nonce, to, amount).failed(),
            9 => {
                // Twice the same in one transaction, and noise between.
                let paid = Tx::token(payer, nonce, usdc(), to, amount).logs.remove(0);
                let noise = Tx::token(payer, nonce, NOT_LISTED.into(), to, amount).logs.remove(0);
                Tx::call(payer, nonce, CONTRACT.into(), vec![paid.clone(), noise, paid])
            }
            _ => self.inner(payer, nonce, to, amount),
        }
    }

    /// Value that moves inside of a transaction, or only seems to.
    fn inner(&mut self, payer: usize, nonce: u64, to: landfall_node::Address, amount: u64) -> Tx {
        let (contract, relay, wei) = (CONTRACT.into(), RELAY.into(), U256::from(amount));
        let pays = Frame::call(contract, to, wei);
        let through = Frame { frames: vec![Frame::call(relay, to, wei)], ..Frame::call(contract, relay, wei) };
        let frame = match self.rng.random_range(0..7) {
            0 => pays,
            1 => Frame { kind: FrameKind::SelfDestruct, ..pays },
            2 => through,
            // What is around the payment is taken back, and the payment with it.
            3 => Frame { is_reverted: true, ..through },
            4 => Frame { is_reverted: true, ..pays },
            5 => Frame { kind: FrameKind::DelegateCall, ..pays },
            // A watched address hands on what it was paid. One endpoint's trace of that has no witness, where it is
            // paid inside of the same block too.
            _ => {
                let hand = if self.case.healthy > 0 { to } else { relay };
                let hands_on = Frame::call(hand, self.somebody(), wei);
                return Tx { frames: vec![hands_on], ..Tx::pay(payer, nonce, hand, amount) };
            }
        };
        Tx { frames: vec![frame], ..Tx::pay(payer, nonce, contract, amount) }
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
    async fn follow(&mut self, follower: &mut Followed) {
        let mut retries = u32::from(self.case.healthy > 0);
        for _ in 0..TICKS_MAX {
            let before = self.case.struck(follower);
            let ticked = follower.tick().await;
            self.outcome.ticks += 1;
            let is_there = follower.is_there().await;
            let goes_on = match ticked {
                Ok(ticked) => {
                    let gets_on = ticked.connected + ticked.disconnected > 0;
                    let is_struck = self.case.struck(follower) > before && !self.case.faults.iter().any(is_consistent);
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
        // Of two branches either may be connected.
        let behind = if self.case.is_undecided() { follower.behind_in_height().await } else { follower.behind().await };
        self.outcome.behind = self.outcome.behind.max(behind);
    }

    /// Ticks the lane of the traces until every connected block is traced, or until a retry did not help either.
    async fn trace(&mut self, follower: &Followed) {
        let mut retries = u32::from(self.case.healthy > 0);
        for _ in 0..TICKS_MAX {
            let before = follower.untraced().await;
            let traced = follower.trace().await;
            let left = follower.untraced().await;
            match traced {
                Ok(_) => self.outcome.silent += u64::from(left == before && follower.unreported().await > 0),
                Err(error) => {
                    self.outcome.failed_ticks += 1;
                    // What a node says of a trace is never the end of the lane.
                    if !error.may_pass() && !matches!(error, TickError::Source(_)) {
                        self.outcome.halts.push(error.to_string());
                    }
                }
            }
            if left == 0 || left == before && retries == 0 {
                break;
            }
            retries -= u32::from(left == before);
        }
        self.outcome.untraced = self.outcome.untraced.max(follower.untraced().await);
    }
}

fn struck(follower: &Followed, fault: &Fault) -> u64 {
    follower.servers.iter().map(|server| server.struck(*fault)).sum()
}

/// Whether two endpoints contradict each other by it and neither can be shown to lie.
pub(super) fn differ(fault: &Fault) -> bool {
    matches!(fault, Fault::UnmarkedRevert | Fault::AnotherFork)
}

/// A node that is merely behind, or on a branch, is right in itself: nothing shows that there is more. A torn batch can
/// end on a branch that stands on the chain, and what comes slowly is old by then.
pub(super) fn is_consistent(fault: &Fault) -> bool {
    matches!(fault, Fault::AnotherFork | Fault::TornBatch | Fault::Stale(_) | Fault::HeadBack(_) | Fault::Drip(_))
}
