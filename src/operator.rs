//! What operators decide: about chains (halt, resume, overrides, resolved incidents), about identities, and about the
//! delivery of events. Each decision is recorded with who, when and why, in one transaction: in the audit (`landfall
//! audit list`), for identities also with the identity (`landfall identity show`).
//!
//! The watchers read the decisions at each tick; nothing here calls a watcher. Time and the person are arguments.
//! A decision ends by `Operator::end`, so that a dry run changes nothing.

mod deposits;
mod identities;
mod policies;
mod prices;
mod sending;
mod sponsors;
mod transfers;

use std::time::Duration;

use landfall_chain::{BlockRef, Chain};

use crate::deposit::{DepositId, DepositStatus};
use crate::incident::{Incident, IncidentKind};
use crate::overrides::{AuditEntry, Author, Decision, Override};
use crate::printable::is_control;
use crate::store::{self, Db, StoreError, Tx, audit, cursors, incidents, overrides};
use crate::time::Timestamp;

pub use self::deposits::DecideDepositError;
pub use identities::ChangeIdentityError;
pub use policies::PolicyChangeError;
pub use prices::SetPriceError;
pub use sponsors::SponsorError;
pub use transfers::CancelError;

/// Within this time an accepted reorg must be done; after it, it must be accepted anew.
const ACCEPT_TIME: Duration = Duration::from_secs(3_600);
/// The reason is sent with the event of an identity, which must not be too large for a receiver.
const REASON_BYTES_MAX: usize = 4_096;
/// For decisions that are in force until a person ends them.
const FOR_EVER: Timestamp = Timestamp(i64::MAX);

/// Who decides, why and when.
#[derive(Clone, Copy, Debug)]
pub struct Operator<'a> {
    pub actor: &'a str,
    pub reason: &'a str,
    pub now: Timestamp,
    /// Each decision is only tried: it returns what it would, and nothing changes.
    pub dry_run: bool,
}

/// Why a decision was not taken.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    #[error("a decision needs a reason: --reason TEXT")]
    Reason,
    #[error("the reason is {0} bytes long; at most {REASON_BYTES_MAX} are taken")]
    LongReason(usize),
    #[error("a reason is one line without control characters")]
    ReasonText,
    #[error("{chain}: no reorg below what was final is open; `landfall incident list` shows what is")]
    NoReorg { chain: Chain },
    #[error("{chain}: at least 1 endpoint must report what is final")]
    NoEndpoint { chain: Chain },
    #[error("{chain}: block {number} is not on our chain's record; `landfall status` shows how far that reaches")]
    NotOurs { chain: Chain, number: u64 },
    #[error("{chain}: no override is in force")]
    NothingToClear { chain: Chain },
    #[error("there is no open incident {id}; `landfall incident list` shows those that are")]
    NoIncident { id: String },
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Operator<'_> {
    /// Stops a chain at its next tick, until it is resumed.
    ///
    /// # Errors
    /// See [`DecideError`].
    pub async fn halt(&self, db: &Db, chain: Chain) -> Result<(), DecideError> {
        let mut tx = self.begin(db).await?;
        self.put(&mut tx, chain, Override::Halt, FOR_EVER).await?;
        Ok(self.end(tx).await?)
    }

    /// Lets a halted chain go on, whoever halted it.
    ///
    /// # Errors
    /// See [`DecideError`].
    pub async fn resume(&self, db: &Db, chain: Chain) -> Result<(), DecideError> {
        let mut tx = self.begin(db).await?;
        overrides::remove(&mut tx, chain, Override::Halt.kind()).await?;
        self.put_resume(&mut tx, chain).await?;
        Ok(self.end(tx).await?)
    }

    /// Lets a chain that halted on a reorg below what was final follow it, down to the fork point in the incident.
    /// Returns the number of that block. Deposits that are CONFIRMED stay so.
    ///
    /// # Errors
    /// When there is no such incident.
    pub async fn accept_reorg(&self, db: &Db, chain: Chain) -> Result<u64, DecideError> {
        let mut tx = self.begin(db).await?;
        let open = incidents::open(&mut tx).await?;
        let reorg = open.iter().find(|found| found.chain == chain && found.kind == IncidentKind::PostFinalityReorg);
        let down_to = reorg.and_then(|reorg| reorg.block_number).ok_or(DecideError::NoReorg { chain })?;
        self.put(&mut tx, chain, Override::AcceptReorg { down_to }, self.now.plus(ACCEPT_TIME)).await?;
        self.put_resume(&mut tx, chain).await?;
        self.end(tx).await?;
        Ok(down_to)
    }

    /// For some time, only `endpoints` endpoints need to agree on what is final.
    ///
    /// # Errors
    /// See [`DecideError`].
    pub async fn agree(&self, db: &Db, chain: Chain, endpoints: u32, time: Duration) -> Result<(), DecideError> {
        if endpoints == 0 {
            return Err(DecideError::NoEndpoint { chain });
        }
        let mut tx = self.begin(db).await?;
        self.put(&mut tx, chain, Override::Agree { endpoints }, self.now.plus(time)).await?;
        Ok(self.end(tx).await?)
    }

    /// For some time, a block of ours counts as final for confirming; returns that block.
    ///
    /// # Errors
    /// When no block with this number is on our canonical record.
    pub async fn confirm_through(
        &self,
        db: &Db,
        chain: Chain,
        number: u64,
        time: Duration,
    ) -> Result<BlockRef, DecideError> {
        let mut tx = self.begin(db).await?;
        let hash =
            cursors::canonical_at(&mut tx, chain, number).await?.ok_or(DecideError::NotOurs { chain, number })?;
        let block = BlockRef { number, hash };
        self.put(&mut tx, chain, Override::ConfirmThrough(block), self.now.plus(time)).await?;
        self.end(tx).await?;
        Ok(block)
    }

    /// Ends every override of a rule; returns how many there were.
    ///
    /// # Errors
    /// When there was none.
    pub async fn clear(&self, db: &Db, chain: Chain) -> Result<usize, DecideError> {
        let mut tx = self.begin(db).await?;
        let decisions = overrides::of_chain(&mut tx, chain).await?;
        let actions: Vec<Override> = decisions.into_iter().map(|decision| decision.action).collect();
        let mut cleared = 0;
        for action in actions.iter().filter(|action| action.replaces_a_rule()) {
            overrides::remove(&mut tx, chain, action.kind()).await?;
            self.write_down(&mut tx, chain, "clear", &format!("{} {}", action.kind(), action.value())).await?;
            cleared += 1;
        }
        if cleared == 0 {
            return Err(DecideError::NothingToClear { chain });
        }
        self.end(tx).await?;
        Ok(cleared)
    }

    /// Closes an incident.
    ///
    /// # Errors
    /// When there is no open one with this id.
    pub async fn resolve(&self, db: &Db, id: &str) -> Result<(), DecideError> {
        let mut tx = self.begin(db).await?;
        let unknown = || DecideError::NoIncident { id: id.to_owned() };
        let incident = incidents::by_id(&mut tx, id).await?.ok_or_else(unknown)?;
        if !incidents::resolve(&mut tx, id, self.reason, self.now).await? {
            return Err(unknown());
        }
        self.write_down(&mut tx, incident.chain, "resolve", &format!("{id} {}", incident.kind)).await?;
        if let Some(deposit) = incident.deposit {
            self.cross_check(&mut tx, deposit, &incident).await?;
        }
        Ok(self.end(tx).await?)
    }

    /// PENDING deposits of the resolved deposit's transaction, which waited because of it, are judged again.
    async fn cross_check(&self, tx: &mut Tx, resolved: DepositId, by: &Incident) -> Result<(), StoreError> {
        let Some(resolved) = store::deposits::by_id(tx, resolved).await? else { return Ok(()) };
        for incident in incidents::of_tx(tx, &resolved, by.kind).await? {
            let Some(waiting) = incident.deposit else { continue };
            let waiting = store::deposits::by_id(tx, waiting).await?;
            if waiting.is_some_and(|waiting| waiting.status == DepositStatus::Pending) {
                incidents::resolve(tx, &incident.id, &format!("judged again after {}", by.id), self.now).await?;
            }
        }
        Ok(())
    }

    /// Who decides, if the reason can be recorded.
    ///
    /// # Errors
    /// Without a reason, or with one that cannot be shown.
    pub fn author(&self) -> Result<Author<'_>, DecideError> {
        let Operator { actor, reason, now, .. } = *self;
        if reason.trim().is_empty() {
            return Err(DecideError::Reason);
        }
        if reason.len() > REASON_BYTES_MAX {
            return Err(DecideError::LongReason(reason.len()));
        }
        if reason.contains(is_control) {
            return Err(DecideError::ReasonText);
        }
        Ok(Author { actor, reason, now })
    }

    /// Records a decision about no single chain, in the transaction of the decision.
    ///
    /// # Errors
    /// See [`DecideError`].
    pub async fn record(&self, tx: &mut Tx, action: &str, what: &str) -> Result<(), DecideError> {
        Ok(audit::append(tx, &self.author()?.entry(None, action, what)).await?)
    }

    async fn begin(&self, db: &Db) -> Result<Tx, DecideError> {
        self.author()?;
        Ok(db.begin().await?)
    }

    /// What was only tried is rolled back.
    async fn end(&self, tx: Tx) -> Result<(), StoreError> {
        if self.dry_run { Ok(()) } else { tx.commit().await }
    }

    async fn put(&self, tx: &mut Tx, chain: Chain, action: Override, until: Timestamp) -> Result<(), StoreError> {
        let (kind, value) = (action.kind(), action.value());
        let reason = self.reason.to_owned();
        overrides::put(tx, chain, &Decision { action, reason, until, created_at: self.now }).await?;
        let until = if until == FOR_EVER { String::new() } else { format!(" until {until}") };
        self.write_down(tx, chain, kind, format!("{value}{until}").trim_start()).await
    }

    /// The id of a resumption is that of its entry in the audit.
    async fn put_resume(&self, tx: &mut Tx, chain: Chain) -> Result<(), StoreError> {
        let entry = self.entry(chain, "resume", "");
        audit::append(tx, &entry).await?;
        let (action, reason) = (Override::Resume { id: entry.id() }, self.reason.to_owned());
        overrides::put(tx, chain, &Decision { action, reason, until: FOR_EVER, created_at: self.now }).await
    }

    async fn write_down(&self, tx: &mut Tx, chain: Chain, action: &str, what: &str) -> Result<(), StoreError> {
        audit::append(tx, &self.entry(chain, action, what)).await
    }

    fn entry(&self, chain: Chain, action: &str, what: &str) -> AuditEntry {
        let Operator { actor, reason, now, .. } = *self;
        Author { actor, reason, now }.entry(Some(chain), action, what)
    }
}
