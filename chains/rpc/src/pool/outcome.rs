//! How one read went at the endpoints that were asked for it, one after the other.
//!
//! Promises: what one endpoint alone does not understand is its own failure. What it does not have is no failure. That
//! an upgrade is needed is the answer only when no endpoint contradicts it, and two report it where there are two.

use landfall_chain::BlockRef;

use crate::dialect::{Dialect, Fault};
use crate::pool::Pool;
use crate::pool::endpoint::Endpoint;
use crate::pool::reads::Need;

/// How a read went at the endpoints that were asked so far.
pub(crate) struct Outcome<'a, D: Dialect> {
    pool: &'a Pool<D>,
    last: Option<D::Error>,
    /// Which endpoints show a block that this version is too old for.
    too_new: Vec<(&'a Endpoint<D>, BlockRef, D::Error)>,
}

impl<'a, D: Dialect> Outcome<'a, D> {
    pub(crate) fn new(pool: &'a Pool<D>) -> Self {
        Outcome { pool, last: None, too_new: Vec::new() }
    }

    /// # Errors
    /// What no other endpoint can answer either.
    pub(crate) fn failed(&mut self, endpoint: &'a Endpoint<D>, error: D::Error) -> Result<(), D::Error> {
        match D::fault(&error) {
            Fault::TooNew { block, .. } => self.too_new.push((endpoint, block, error)),
            Fault::Permanent | Fault::WrongChain => return Err(error),
            Fault::NotFound => {
                endpoint.not_found(&error);
                self.last = Some(error);
            }
            Fault::Failing | Fault::Unsound => {
                endpoint.failed(&error);
                self.last = Some(error);
            }
        }
        Ok(())
    }

    /// An endpoint that failed before is not asked again: its failure is known, and counted once.
    pub(crate) fn failed_before(&mut self, error: &D::Error) {
        self.last = Some(error.clone());
    }

    /// Another endpoint's answer was understood: then one that showed something newer is wrong.
    pub(crate) fn one_understands(&mut self) {
        self.one_understands_through(u64::MAX);
    }

    /// The same for an answer that ends at block `last`: it says nothing of later blocks.
    pub(crate) fn one_understands_through(&mut self, last: u64) {
        for (endpoint, _, error) in self.too_new.extract_if(.., |(_, block, _)| block.number <= last) {
            endpoint.failed(&endpoint.alone(&error));
        }
    }

    /// Why the read came to nothing.
    pub(crate) fn error(mut self) -> D::Error {
        if self.too_new.is_empty() {
            return self.last.unwrap_or_else(|| self.pool.nobody());
        }
        if let Some(error) = self.upgrade_needed() {
            return error;
        }
        let (endpoint, _, error) = self.too_new.remove(0);
        let alone = endpoint.alone(&error);
        self.one_understands();
        endpoint.failed(&alone);
        alone
    }

    /// What was shown that only a newer version could judge, and that no other answer refuted.
    pub(crate) fn newer(self) -> Option<D::Error> {
        let (endpoint, _, error) = self.too_new.first()?;
        Some(self.upgrade_needed().unwrap_or_else(|| endpoint.alone(error)))
    }

    /// That an upgrade is needed, where no endpoint contradicts it, and two report it where there are two.
    fn upgrade_needed(&self) -> Option<D::Error> {
        let (_, block, error) = self.too_new.first()?;
        let alike = self.too_new.iter().filter(|(_, other, _)| other == block).count();
        let is_sure = self.last.is_none() && alike == self.too_new.len() && alike >= self.pool.of_this_chain().min(2);
        is_sure.then(|| error.clone())
    }
}

impl<D: Dialect> Endpoint<D> {
    /// It showed less than its own newest block says it has.
    pub fn shows_too_little(&self, need: Need, shown: usize) -> D::Error {
        let (first, last) = (need.first, need.last);
        let head = self.head().unwrap_or_default();
        let reason = format!("shows {shown} of the blocks {first} to {last}, although its newest block is {head}");
        self.unusable(D::BLOCKS, &reason)
    }

    /// Why it did not report what others did.
    pub(crate) fn as_its_own(&self, error: D::Error) -> D::Error {
        if matches!(D::fault(&error), Fault::TooNew { .. }) { self.alone(&error) } else { error }
    }

    /// No other endpoint reports the same of the block.
    fn alone(&self, error: &D::Error) -> D::Error {
        self.unusable(D::BLOCKS, &format!("no other endpoint says so: {error}"))
    }
}
