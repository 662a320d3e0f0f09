//! Ends transfers that ran out of time, by proof and never by the wall clock: DROPPED, or FAILED if it is known what
//! kept the transfer from being signed. Nothing ends without the proof, because a copy of the store may have signed
//! what this one did not.
//!
//! The proof: a final block whose time is not before the deadline, all blocks up to it connected without a use of the
//! intent, and the intent unused in the state of the final block.
//! A transaction that makes a guard does not name the deadline: it dies with its blockhash. So the final block must
//! also be more than 150 blocks higher than the first one that is a minute beyond the deadline. If the store was set
//! back, a guard that is missing may have been taken back (`past`).

use std::time::Duration;

use landfall_chain::{BlockRef, KeyReport, Maker, PayingChain};
use tracing::error;

use crate::sender::open::{Open, OpenTransfer};
use crate::sender::settle::{Found, apply};
use crate::sender::{Resting, SendError, Sender, gas};
use crate::store::cursors::{self, Cursor};
use crate::store::gas_ledger;
use crate::store::recoveries;
use crate::time::{Clock, Timestamp};
use crate::transfer::{Evidence, State, TransferId};

/// How many are proved in a tick: each costs requests.
const PROVED_MAX: usize = 20;
/// The block whose hash a transaction names is within the window by the chain's time; so much is added for what is not exact
/// about that.
const BLOCKHASH_SKEW: Duration = Duration::from_secs(60);
/// In so many blocks on top of that of its blockhash a transaction may land (agave: `MAX_PROCESSING_AGE`).
pub(super) const BLOCKHASH_BLOCKS: u64 = 150;

/// That a transfer was never paid.
struct Proved {
    id: TransferId,
    /// Somebody else made its guard.
    maker: Option<Maker>,
    /// The endpoints that report the state of its key.
    reported_by: Vec<String>,
}

impl<C: PayingChain> Sender<C> {
    /// Proves that what ran out of time was never paid; returns how many transfers were dropped for it. `halted`: a
    /// person has stopped the sending.
    pub(super) async fn expire(&mut self, open: &Open, halted: bool, clock: &Clock) -> Result<usize, SendError> {
        let (chain, now) = (self.network.chain, clock.now());
        let Some((at, time)) = open.finalized else { return Ok(0) };
        // Before nodes are asked: while the signer is away, that would be in vain at each tick.
        if !self.journal.is_known(time) {
            return Ok(0);
        }
        let mut proved: Vec<Proved> = Vec::new();
        let is_due = |of: &&OpenTransfer| is_over(of, time) && !self.rests(Resting::Transfer(of.transfer.id), now);
        // What ends later than one that may still land may still land.
        let (mut due, mut lands_from): (Vec<&OpenTransfer>, u64) = (Vec::new(), u64::MAX);
        for of in open.transfers.iter().filter(is_due) {
            if due.len() == PROVED_MAX || of.deadline_secs() >= lands_from {
                continue;
            }
            if self.are_dead(of, &at).await? {
                due.push(of);
            } else {
                lands_from = of.deadline_secs();
            }
        }
        for of in due {
            let id = of.transfer.id;
            // What cannot be proved now rests, so that it keeps no other from its proof.
            let why = match self.intent(&of.transfer, of.deadline_secs()) {
                None => "its asset is not listed with this route any more".to_owned(),
                Some(intent) => match self.chain.key_report(&intent, &at).await {
                    Ok(KeyReport { is_used: false, reported_by }) => match self.unknown_past(of, &intent, &at).await? {
                        None => {
                            proved.push(Proved { id, maker: None, reported_by });
                            continue;
                        }
                        Some(why) => why,
                    },
                    Ok(KeyReport { is_used: true, reported_by }) => match self.chain.maker(&intent, &at).await {
                        // Behind one that was taken back anybody may have made another.
                        Ok(Some(maker)) if !maker.is_payers => match self.unknown_past(of, &intent, &at).await? {
                            None => {
                                proved.push(Proved { id, maker: Some(maker), reported_by });
                                continue;
                            }
                            Some(why) => why,
                        },
                        Ok(Some(Maker { tx, .. })) => format!("{tx} of the payer's own key made its guard"),
                        Ok(None) => "its key is used, and no block that we connected shows it".to_owned(),
                        Err(error) => error.to_string(),
                    },
                    Err(error) => error.to_string(),
                },
            };
            error!(%chain, transfer = %id, "of transfer {id} nothing can be proved now: {why}");
            self.rest(Resting::Transfer(id), now);
        }
        if proved.is_empty() {
            return Ok(0);
        }
        // The signer may have signed since, for a copy of this store: with a later deadline, or for the first time.
        self.journal.forget_time();
        self.compare(clock).await?;
        if !self.journal.is_known(time) {
            return Ok(0);
        }
        let now = clock.now();
        let mut tx = self.begin(now).await?;
        let cursor = Cursor::lock(&mut tx, chain).await?;
        if recoveries::of_chain(&mut tx, chain).await?.is_some() {
            return Ok(0);
        }
        // What landed and did not pay is known by what it cost.
        gas::book(&mut tx, &self.network, cursor.finalized.map(|at| at.number), now).await?;
        let open = Open::read(&mut tx, chain, now).await?;
        // A person may have accepted another branch meanwhile.
        let stands = cursors::canonical_at(&mut tx, chain, at.number).await? == Some(at.hash);
        let mut changed = 0;
        for of in open.transfers.iter().filter(|of| stands && is_over(of, time)) {
            let Some(Proved { maker, reported_by, .. }) = proved.iter().find(|proved| proved.id == of.transfer.id)
            else {
                continue;
            };
            let landed = match of.is_guarded() && of.transfer.state == State::Expiring {
                true => gas_ledger::landed_of(&mut tx, of.transfer.id).await?,
                false => None,
            };
            let never = |evidence| Found { evidence, tx: None, block: Some(at), reported_by: reported_by.clone() };
            let found = match (maker, of.obstacle(), landed) {
                // Whoever made it: no transaction that would make it can land.
                (Some(Maker { tx, .. }), ..) => Found { tx: Some(*tx), ..never(Evidence::GuardTaken) },
                // What landed has made no guard, so it failed, and no other one can land any more.
                (None, _, Some((tx, block))) => {
                    Found { evidence: Evidence::UsedUp, tx: Some(tx), block: Some(block), reported_by: Vec::new() }
                }
                (None, Some(obstacle), None) => never(Evidence::Impossible(obstacle)),
                (None, None, None) => never(Evidence::NeverUsed { signed: !of.intents.is_empty(), halted }),
            };
            changed += usize::from(apply(&mut tx, &of.transfer, &[found], now).await?.is_some());
        }
        self.commit(tx, now).await?;
        Ok(changed)
    }

    /// Whether what may have been signed within the window cannot land behind the final block `at`.
    async fn are_dead(&self, of: &OpenTransfer, at: &BlockRef) -> Result<bool, SendError> {
        if !of.is_guarded() {
            return Ok(true);
        }
        let since = Timestamp::from_secs(of.deadline_secs()).plus(BLOCKHASH_SKEW);
        let mut reader = self.db.read().await?;
        let higher = cursors::higher_than(&mut reader, self.network.chain, at.number, since).await?;
        Ok(higher > BLOCKHASH_BLOCKS)
    }
}

/// Whether a final block of this `time` proves that no block can pay it any more, and none that we know used its key.
fn is_over(of: &OpenTransfer, time: Timestamp) -> bool {
    let waits = match of.transfer.state {
        State::Accepted | State::Expiring => true,
        State::Carried | State::Included | State::Confirmed | State::Failed(_) | State::Dropped(_) => false,
    };
    waits && of.marks.is_empty() && time >= Timestamp::from_secs(of.deadline_secs())
}
