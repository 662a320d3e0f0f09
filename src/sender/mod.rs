//! Sends transfers of one chain: signs what was accepted, lets a sponsor carry it, and settles it by what blocks show.
//!
//! One process at a time does so, under a lease. A tick does this, in order:
//! - recover, if the store may be an old copy (`compare`, `recover`)
//! - book what final blocks show that it cost (`gas`), and settle by marks (`settle`)
//! - sign (`sign`, `cancel`, `clear`), after quarantining addresses whose key somebody else uses (`foreign`,
//!   `sponsors`)
//! - plan what sponsors are given (`refill`)
//! - carry (`carry`, `guarded`)
//! - prove what ran out of time (`expire`)
//! - take guards back (`reclaim`)
//!
//! Each hour it compares what sponsors own with the ledger (`books`).
//!
//! Promises:
//! - What is signed or sent is on record before. After a crash the same bytes are sent, or the same fields signed,
//!   again.
//! - No answer of a node changes the state of a transfer. Only blocks that we connected do, and what final ones prove.
//! - A process whose lease another has taken over writes nothing, and so sends nothing new.

mod authorize;
mod books;
mod cancel;
mod carry;
mod clear;
mod compare;
mod diagnostic;
mod expire;
mod fees;
mod foreign;
mod gas;
mod guarded;
mod load;
mod means;
mod new_accounts;
mod open;
mod past;
mod plan;
mod reclaim;
mod recover;
mod refill;
mod report;
mod settle;
mod sign;
mod sponsors;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use landfall_chain::{Address, Intent, Network, PayingChain, Signer, SignerUnavailable, SourceError, U256};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::lease::Turn;
use crate::sender::books::Readings;
use crate::sender::compare::Journal;
use crate::sender::reclaim::Reclaims;
use crate::sender::sponsors::Keys;
use crate::store::attempts::Purpose;
use crate::store::{Db, StoreError, Tx, halts, recoveries};
use crate::time::{Clock, Pulse, Timestamp};
use crate::transfer::{Transfer, TransferId};

/// After so long without a report from the holder, another process may take over.
const LEASE: Duration = Duration::from_secs(15);
/// How often there is a look at what is to be done.
const POLL: Duration = Duration::from_millis(200);
/// How often a process without the lease checks whether it is free. Also how soon it tries again after an error.
const POLL_ASIDE: Duration = Duration::from_secs(1);
/// How many transfers one tick has in hand. The others wait for their turn, the oldest first.
const IN_HAND_MAX: u32 = 1_000;
/// The newest block may be this old; else the chain's time is not known, and nothing is signed.
const HEAD_AGE_SECS: u64 = 60;
/// With less left of the window nothing is signed for the first time.
const LEFT_MIN_SECS: u64 = 30;
/// How long after a try that a node refused the same is tried again.
const REFUSED_PAUSE: Duration = Duration::from_secs(10);
/// How long a sponsor that nodes do not serve carries nothing new. Longer than its bytes wait to be sent again, so that
/// it rests until a node takes them.
const SPONSOR_PAUSE: Duration = Duration::from_secs(30);
/// How often it is asked whether a delegate acts for a wallet that is to have none, and what became of a refill's nonce.
const WALLET_PAUSE: Duration = Duration::from_secs(60);

/// Sends transfers of one chain, when it is its turn.
#[derive(Debug)]
pub struct Sender<C> {
    chain: C,
    db: Db,
    network: Network,
    signer: Arc<dyn Signer>,
    turn: Turn,
    /// How many transactions this process has committed: what was read before the last one may not be so any more.
    writes: u64,
    /// How far the signer's journal was compared since this process sends.
    journal: Journal,
    /// Until when a transfer, a sponsor or a wallet is left alone. To forget it costs requests only.
    rests: HashMap<Resting, Timestamp>,
    /// How many transactions of a sponsor the newest block showed, and when that was asked for.
    landed: HashMap<Address, (u64, Timestamp)>,
    /// When this process last reported that it sends, and when it last asked what sponsors own.
    reported_at: Option<Timestamp>,
    looked_at: Option<Timestamp>,
    /// What each sponsor owned when it was last asked for, and whether a refill was planned by that since.
    owned: BTreeMap<Address, U256>,
    owned_is_new: bool,
    /// What the chain then took of a usual transaction on top of gas.
    surcharge: U256,
    /// Nothing is signed for the chain's newest block is too old; said once.
    is_head_old: bool,
    keys: Keys,
    readings: Readings,
    /// Which guards are left alone. To forget it costs requests and fees only.
    reclaims: Reclaims,
}

/// What is left alone for a while.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Resting {
    Transfer(TransferId),
    Sponsor(Address),
    Wallet(Address),
    /// What takes delegates away.
    Clearing(TransferId),
    Refill(TransferId),
    /// Whether the nonce of a refill is used, or its guard stands.
    RefillEnd(TransferId),
}

impl Resting {
    /// What rests where the attempts of this transfer, or of this refill, cannot be made now.
    const fn of(purpose: Purpose, id: TransferId) -> Self {
        match purpose {
            Purpose::Payment | Purpose::Cancellation => Resting::Transfer(id),
            Purpose::Clearing => Resting::Clearing(id),
            Purpose::Refill => Resting::Refill(id),
        }
    }
}

/// What a tick did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ticked {
    /// How many transfers are not terminal.
    pub open: usize,
    /// How many of them changed their state.
    pub changed: usize,
    /// How many transactions were handed to a node, for the first time or again.
    pub sent: usize,
}

/// Why a tick ended early. What it had done stays, and the next tick goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the chain cannot be asked: {0}")]
    Chain(#[from] SourceError),
    #[error(transparent)]
    Signer(#[from] SignerUnavailable),
    /// A person has stopped the sending meanwhile.
    #[error("an operator has stopped the sending")]
    Halted,
    /// The store may be an old copy, and a recovery has begun meanwhile.
    #[error("the chain recovers: the store may be an old copy")]
    Recovering,
    /// Another process sends now.
    #[error("another process has taken over")]
    TakenOver,
}

impl<C: PayingChain> Sender<C> {
    /// A sender that `owner` distinguishes from all others.
    pub fn new(chain: C, db: Db, network: Network, signer: Arc<dyn Signer>, owner: String) -> Self {
        let turn = Turn::new(format!("sender {}", network.chain), owner, LEASE);
        let (journal, rests, landed) = (Journal::default(), HashMap::new(), HashMap::new());
        let (reported_at, looked_at, owned, surcharge) = (None, None, BTreeMap::new(), U256::ZERO);
        let (keys, readings, reclaims) = (Keys::default(), Readings::default(), Reclaims::default());
        Sender {
            chain,
            db,
            network,
            signer,
            turn,
            writes: 0,
            journal,
            rests,
            landed,
            reported_at,
            looked_at,
            owned,
            owned_is_new: false,
            surcharge,
            is_head_old: false,
            keys,
            readings,
            reclaims,
        }
    }

    /// One bounded step. `None`: another process sends.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn tick(&mut self, clock: &Clock) -> Result<Option<Ticked>, SendError> {
        let now = clock.now();
        if !self.is_our_turn(now).await? {
            return Ok(None);
        }
        self.report(now).await?;
        self.check_means(now).await?;
        // A rest that ends later than any that begins now was set by a clock that was ahead.
        let latest = now.plus(WALLET_PAUSE);
        self.rests.retain(|_, until| *until > now && *until <= latest);
        self.compare(clock).await?;
        let recovers = self.recover(now).await?;
        let may_sign = !recovers && self.journal.is_ours();
        self.keep_books(now).await?;
        let (changed, open) = self.settle(now).await?;
        let mut ticked = Ticked { open: open.transfers.len(), changed, sent: 0 };
        let read_at = self.writes;
        if changed > 0 {
            // What has ended holds its nonce no more: how far the chain has come with it is asked for anew.
            self.landed.clear();
        }
        self.explain_spends(clock).await?;
        self.check_keys(recovers, clock).await?;
        self.check_books(recovers, clock).await?;
        // A step that fails keeps no other from being taken: while the signer is away, what is signed is sent again, and
        // what ran out of time ends.
        let derived = self.derive_sponsors(now).await;
        let refilled = self.refill(&open, may_sign, clock).await;
        let is_refilling = !open.refills.is_empty() || refilled.as_ref().is_ok_and(|is_made| *is_made);
        let is_clearing = !open.clearings.is_empty() || self.wants_clearing().await?;
        if ticked.open > 0 || is_clearing || is_refilling {
            // A person has stopped it: nothing is signed or sent, and what was sent is settled all the same.
            let halted = halts::is_halted(&mut self.db.read().await?, self.network.chain).await?;
            let (mut signed, mut carried) = (Ok(()), Ok(Ticked::default()));
            let (mut ended, mut cleared) = (Ok(()), Ok(()));
            if !halted && may_sign {
                signed = self.sign(&open, clock).await;
                ended = self.cancel(&open, clock).await;
                cleared = self.clear(clock).await;
            }
            if !halted {
                carried = self.carry((&open, read_at), may_sign, clock).await;
            }
            if !recovers {
                ticked.changed += self.expire(&open, halted, clock).await?;
            }
            let carried = carried?;
            signed.and(ended).and(cleared)?;
            ticked.changed += carried.changed;
            ticked.sent += carried.sent;
        }
        derived?;
        refilled?;
        self.reclaim(may_sign, clock).await?;
        Ok(Some(ticked))
    }

    /// Ticks until `stop`, then releases the lease.
    pub async fn run(mut self, clock: Clock, pulse: Pulse, stop: CancellationToken) {
        let chain = self.network.chain;
        while !stop.is_cancelled() {
            pulse.beat(clock.now());
            let pause = match stop.run_until_cancelled(self.tick(&clock)).await {
                None => break,
                Some(Ok(Some(ticked))) if ticked.changed > 0 => Duration::ZERO,
                Some(Ok(Some(_))) => POLL,
                Some(Ok(None)) => POLL_ASIDE,
                Some(Err(SendError::TakenOver)) => {
                    warn!(%chain, "another process sends transfers on {chain} now; this one writes nothing");
                    POLL_ASIDE
                }
                Some(Err(error)) => {
                    warn!(%chain, "transfers on {chain} wait and will be tried again: {error}");
                    POLL_ASIDE
                }
            };
            stop.run_until_cancelled(tokio::time::sleep(pause)).await;
        }
        if let Err(error) = self.release().await {
            warn!(%chain, "the lease of the sender on {chain} runs out by itself, since it cannot be given up: {error}");
        }
    }

    /// Lets another process take over at once.
    ///
    /// # Errors
    /// When the store fails: then the lease runs out by itself.
    pub async fn release(&mut self) -> Result<(), StoreError> {
        self.turn.release(&self.db).await
    }

    async fn is_our_turn(&mut self, now: Timestamp) -> Result<bool, SendError> {
        if !self.turn.is_ours() {
            self.journal = Journal::since(now);
            if !self.turn.take(&self.db, now).await? {
                return Ok(false);
            }
            info!(chain = %self.network.chain, "this process sends transfers on {}", self.network.chain);
            return Ok(true);
        }
        if self.turn.is_due(now) {
            let tx = self.begin(now).await?;
            self.commit(tx, now).await?;
        }
        Ok(true)
    }

    /// A transaction in which this process is the one that sends: nobody takes over before its end.
    async fn begin(&mut self, now: Timestamp) -> Result<Tx, SendError> {
        let mut tx = self.db.begin().await?;
        if !self.turn.hold(&mut tx, now).await? {
            return Err(SendError::TakenOver);
        }
        Ok(tx)
    }

    /// As [`Sender::begin`], before something is signed or sent for the first time: never while a person has stopped it,
    /// nor while the chain recovers.
    async fn begin_sending(&mut self, now: Timestamp) -> Result<Tx, SendError> {
        let mut tx = self.begin(now).await?;
        if halts::is_halted(&mut tx, self.network.chain).await? {
            return Err(SendError::Halted);
        }
        if recoveries::of_chain(&mut tx, self.network.chain).await?.is_some() {
            return Err(SendError::Recovering);
        }
        Ok(tx)
    }

    async fn commit(&mut self, tx: Tx, now: Timestamp) -> Result<(), StoreError> {
        tx.commit().await?;
        self.writes += 1;
        self.turn.held(now);
        Ok(())
    }

    /// What a transfer's payer signs until `deadline_secs`; `None` where its asset, or the delegate that pays it, is not listed
    /// any more, or it is sent otherwise than when it was accepted.
    fn intent(&self, transfer: &Transfer, deadline_secs: u64) -> Option<Intent> {
        let asset = self.network.asset(&transfer.asset)?;
        let route = self.network.routes(asset).find(|route| route.to_string() == transfer.route)?;
        Some(Intent {
            transfer_id: *transfer.id.0.as_bytes(),
            chain_ref: self.network.chain_ref.clone(),
            route,
            asset: asset.id,
            payer: transfer.source,
            destination: transfer.destination,
            amount: transfer.amount,
            deadline: deadline_secs,
        })
    }

    /// What was answered of each. What cannot be asked of one alone keeps no other from its turn: that one rests.
    ///
    /// # Errors
    /// When nothing was answered.
    fn answered<K, T>(
        &mut self,
        answers: Vec<(K, TransferId, Result<T, SourceError>)>,
        now: Timestamp,
    ) -> Result<Vec<(K, T)>, SendError> {
        let is_any = answers.iter().any(|(.., answer)| answer.is_ok());
        let mut answered = Vec::new();
        for (of, id, answer) in answers {
            match answer {
                Ok(answer) => answered.push((of, answer)),
                Err(error) if is_any => {
                    warn!(transfer = %id, "transfer {id} waits and will be tried again: {error}");
                    self.rest(Resting::Transfer(id), now);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(answered)
    }

    fn rests(&self, what: Resting, now: Timestamp) -> bool {
        self.rests.get(&what).is_some_and(|until| *until > now)
    }

    fn rest(&mut self, what: Resting, now: Timestamp) {
        let pause = match what {
            Resting::Transfer(_) => REFUSED_PAUSE,
            Resting::Sponsor(_) => SPONSOR_PAUSE,
            Resting::Wallet(_) | Resting::Clearing(_) | Resting::Refill(_) | Resting::RefillEnd(_) => WALLET_PAUSE,
        };
        self.rests.insert(what, now.plus(pause));
    }
}
