//! Decides whether something may have been paid before by what the sender does not ask itself: at another delegate, or by a
//! guard that is missing now.
//!
//! Each delegate takes a key once, for itself. So a key must be unused at all that are listed, and all that were ever in
//! use must be listed.
//!
//! A lost store may have paid and then taken the guard back. A store that was set back reads the blocks since then again.
//! So it knows all that was paid by the wallets that it had. For a wallet that came on record later one of these is needed:
//! - our own marks reach back to where the store was set back, by `landfall backfill`;
//! - as many endpoints as must agree list what named the guard since.
//!
//! Without either nothing is signed, and there is no verdict.

use landfall_chain::{BlockRef, Intent, PayingChain, Route};

use crate::sender::open::OpenTransfer;
use crate::sender::{SendError, Sender};
use crate::store::{coverage, delegates, recoveries};
use crate::transfer::Transfer;

impl<C: PayingChain> Sender<C> {
    /// Why it is not known that the intent was paid neither by another delegate nor by a guard that was taken back, up to the
    /// final block `at`; `None` where it is.
    pub(super) async fn unknown_past(
        &self,
        of: &OpenTransfer,
        intent: &Intent,
        at: &BlockRef,
    ) -> Result<Option<String>, SendError> {
        match of.transfer.is_by_delegate() {
            true => self.unknown_elsewhere(intent, at).await,
            false => self.unknown_guard(of, intent, at).await,
        }
    }

    async fn unknown_elsewhere(&self, intent: &Intent, at: &BlockRef) -> Result<Option<String>, SendError> {
        let taken = delegates::taken(&mut self.db.read().await?, self.network.chain).await?;
        let listed = &self.network.delegates;
        if let Some(missing) = taken.iter().find(|taken| !listed.iter().any(|listed| taken.is(listed))) {
            let what = "was in use here and is not listed any more, so nobody knows what it has paid";
            return Ok(Some(format!("delegate {} {what}", missing.delegate)));
        }
        for route in listed.iter().copied().map(Route::Delegate).filter(|route| *route != intent.route) {
            let elsewhere = Intent { route, ..intent.clone() };
            match self.chain.is_used(&elsewhere, at).await {
                Ok(false) => {}
                Ok(true) => return Ok(Some(format!("its key is used at {}", elsewhere.route))),
                Err(error) => return Ok(Some(error.to_string())),
            }
        }
        Ok(None)
    }

    async fn unknown_guard(
        &self,
        of: &OpenTransfer,
        intent: &Intent,
        at: &BlockRef,
    ) -> Result<Option<String>, SendError> {
        if !of.is_guarded() {
            return Ok(None);
        }
        let (chain, Transfer { account_id, source, .. }) = (self.network.chain, &of.transfer);
        let mut reader = self.db.read().await?;
        let Some(set_back) = recoveries::set_back_of(&mut reader, chain).await? else { return Ok(None) };
        let known = coverage::of_account(&mut reader, account_id).await?;
        drop(reader);
        let from = known.iter().find(|it| it.chain == chain && it.address == *source).map(|it| it.matched_from());
        if from.is_some_and(|from| from <= set_back.saturating_add(1)) {
            return Ok(None);
        }
        Ok(match self.chain.was_made(intent, set_back, at).await {
            Ok(false) => None,
            Ok(true) => Some(format!(
                "the store was set back to block {set_back}, and its guard was made and taken back since: `landfall backfill` \
                 {source} from there on"
            )),
            Err(error) => Some(format!(
                "the store was set back to block {set_back}, and what {source} paid since is not on record; `landfall backfill` \
                 it from there on, or add an endpoint that keeps that history: {error}"
            )),
        })
    }
}
