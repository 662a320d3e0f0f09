//! Decides whether a guard that is missing now may have stood before: a lost store may have paid and then taken the
//! guard back.
//!
//! A store that was set back reads the blocks since then again. So it knows all that was paid by the wallets that it
//! had. For a wallet that came on record later one of these is needed:
//! - our own marks reach back to where the store was set back, by `landfall backfill`;
//! - as many endpoints as must agree list what named the guard since.
//!
//! Without either nothing is signed, and there is no verdict.

use landfall_chain::{BlockRef, Intent, PayingChain};

use crate::sender::open::OpenTransfer;
use crate::sender::{SendError, Sender};
use crate::store::{coverage, recoveries};
use crate::transfer::Transfer;

impl<C: PayingChain> Sender<C> {
    /// Why it is not known that the guard of `intent` was never there, up to the final block `at`; `None` where it is, and
    /// where there is none.
    pub(super) async fn unknown_past(
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
