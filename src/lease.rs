//! Work that only one process at a time may do.
//!
//! Promises: at most one process holds the turn, until another takes over. [`Turn::hold`] comes first in a transaction.
//! It keeps all others out until the commit, and fails for a process that was paused while another took over. If the
//! holder reports nothing for the time of the lease, another process may take over.

use std::time::Duration;

use crate::store::leases::{self, Lease};
use crate::store::{Db, StoreError, Tx};
use crate::time::Timestamp;

/// A process's claim to some work.
#[derive(Debug)]
pub struct Turn {
    name: String,
    owner: String,
    /// After so long without a report from the holder, another process may take over. The holder reports after a third
    /// of it.
    time: Duration,
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    lease: Lease,
    /// When it was last recorded that it is held.
    said_at: Timestamp,
}

impl Turn {
    /// A claim to the work `name`, which `owner` distinguishes from all others.
    pub fn new(name: impl Into<String>, owner: String, time: Duration) -> Self {
        Turn { name: name.into(), owner, time, held: None }
    }

    /// Whether this process holds the turn, as far as it knows.
    pub fn is_ours(&self) -> bool {
        self.held.is_some()
    }

    /// Whether it must report again that it is there.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.held.as_ref().is_some_and(|held| now.since(held.said_at) >= self.time / 3 || now < held.said_at)
    }

    /// Takes the turn if it is free; whether it did so just now.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn take(&mut self, db: &Db, now: Timestamp) -> Result<bool, StoreError> {
        let mut reader = db.read().await?;
        let is_free = leases::is_free(&mut reader, &self.name, now, self.time).await?;
        drop(reader);
        if !is_free {
            return Ok(false);
        }
        let mut tx = db.begin().await?;
        let taken = leases::take(&mut tx, &self.name, &self.owner, now, self.time).await?;
        tx.commit().await?;
        self.held = taken.map(|lease| Held { lease, said_at: now });
        Ok(self.is_ours())
    }

    /// Keeps the turn, and keeps everybody else from it up to the end of the transaction. False if another process has
    /// taken over: then this transaction must write nothing.
    ///
    /// # Errors
    /// When the store fails.
    pub async fn hold(&mut self, tx: &mut Tx, now: Timestamp) -> Result<bool, StoreError> {
        let Some(held) = &mut self.held else { return Ok(false) };
        if !leases::hold(tx, &held.lease, now.plus(self.time)).await? {
            self.held = None;
            return Ok(false);
        }
        Ok(true)
    }

    /// To be called when the transaction of [`Turn::hold`] is committed.
    pub fn held(&mut self, now: Timestamp) {
        if let Some(held) = &mut self.held {
            held.said_at = now;
        }
    }

    /// Releases the turn, so that another process may take it at once.
    ///
    /// # Errors
    /// When the store fails: then the lease runs out by itself.
    pub async fn release(&mut self, db: &Db) -> Result<(), StoreError> {
        let Some(Held { lease, .. }) = self.held.take() else { return Ok(()) };
        let mut tx = db.begin().await?;
        leases::release(&mut tx, &lease).await?;
        tx.commit().await
    }
}
