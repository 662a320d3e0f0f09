//! Takes delegates away from wallets that need them no more.
//!
//! It begins when a transfer that a delegate paid has ended, and no other payment of its wallet waits. So a reorg
//! brings back a payment that needs the delegate only where a tier had confirmed it, and then a person has decided. None
//! is taken away only to be given again. The chain's state decides: a wallet without listed code needs nothing, whatever is on record. Up to 20 wallets share a transaction.
//!
//! Promises: a wallet signs one thing for each of its nonces, to give or to take, so a late transaction does no harm.
//! It ends when a final block shows no delegate.

use futures_util::future::join_all;
use landfall_chain::{
    Address, Authorization, BlockRef, CLEARINGS_MAX, KeyPath, PayingChain, SIGN_REQUESTS_MAX, SignRequest, SourceError,
};
use tracing::warn;

use crate::sender::{Resting, SendError, Sender};
use crate::store::authorizations;
use crate::store::clearings::{self, Tuple, Wanted};
use crate::store::cursors::Cursor;
use crate::time::{Clock, Timestamp};

/// How many wallets are looked at in a tick.
const WANTED_MAX: u32 = 200;
/// For how long others are waited for, to share a transaction.
const SHARED_AFTER_SECS: u64 = 30;

/// What becomes of a wallet.
enum Found {
    /// This nonce of it takes its delegate away.
    Make(u64),
    /// The nonce for which that was signed is over, and the delegate acts still.
    Renew,
    /// A final block shows that none acts for it.
    Done,
    /// Not yet.
    Wait,
}

impl<C: PayingChain> Sender<C> {
    /// Finds what is to be taken away, and signs it.
    pub(super) async fn clear(&mut self, clock: &Clock) -> Result<(), SendError> {
        let now = clock.now();
        if !self.network.sending.clears_delegates {
            return Ok(());
        }
        let mut reader = self.db.read().await?;
        let wanted = clearings::wanted(&mut reader, self.network.chain, WANTED_MAX).await?;
        let finalized = Cursor::load(&mut reader, self.network.chain).await?.finalized;
        drop(reader);
        let Some(finalized) = finalized.filter(|_| !wanted.is_empty()) else { return Ok(()) };
        self.make(&wanted, &finalized, now).await?;
        self.sign_clearings(clock).await
    }

    /// Whether a wallet may have a delegate that nothing needs.
    pub(super) async fn wants_clearing(&self) -> Result<bool, SendError> {
        let may = self.network.sending.clears_delegates;
        Ok(may && !clearings::wanted(&mut self.db.read().await?, self.network.chain, 1).await?.is_empty())
    }

    /// Records what takes delegates away, and what has none any more.
    async fn make(&mut self, wanted: &[Wanted], finalized: &BlockRef, now: Timestamp) -> Result<(), SendError> {
        let idle: Vec<&Wanted> = wanted
            .iter()
            .filter(|wanted| !wanted.is_needed && !self.rests(Resting::Wallet(wanted.wallet), now))
            .collect();
        let waiting = || idle.iter().filter(|wanted| wanted.nonce.is_none());
        let has_waited = waiting().any(|wanted| now.since(wanted.since).as_secs() >= SHARED_AFTER_SECS);
        let is_ripe = has_waited || waiting().count() >= CLEARINGS_MAX;
        let asked: Vec<&Wanted> = waiting().filter(|_| is_ripe).take(CLEARINGS_MAX).copied().collect();
        let asked: Vec<&Wanted> = idle.iter().filter(|it| it.nonce.is_some()).copied().chain(asked).collect();
        if asked.is_empty() {
            return Ok(());
        }
        let answers = join_all(asked.iter().map(|wanted| self.found(wanted, finalized))).await;
        let mut tx = self.begin_sending(now).await?;
        let (chain, mut carried_by) = (self.network.chain, None);
        for (wanted, found) in asked.into_iter().zip(answers) {
            let wallet = &wanted.wallet;
            match found {
                Ok(Found::Make(nonce)) => {
                    let clearing = self.clearing(*wallet, nonce);
                    let carried_by = *carried_by.get_or_insert(wanted.transfer_id);
                    clearings::make(&mut tx, chain, &clearing, (wanted.transfer_id, carried_by), now).await?;
                }
                Ok(Found::Renew) => clearings::renew(&mut tx, chain, wallet).await?,
                Ok(Found::Done) => clearings::remove(&mut tx, chain, wallet).await?,
                Ok(Found::Wait) => {}
                Err(error) => warn!("what acts for {wallet} on {chain} is asked again: {error}"),
            }
            self.rest(Resting::Wallet(*wallet), now);
        }
        Ok(self.commit(tx, now).await?)
    }

    async fn found(&self, wanted: &Wanted, finalized: &BlockRef) -> Result<Found, SourceError> {
        let acts = self.chain.delegated(&wanted.wallet).await?;
        Ok(match (acts, wanted.nonce) {
            (Some(nonce), None) => Found::Make(nonce),
            (Some(nonce), Some(made)) if nonce > made => Found::Renew,
            (Some(_), Some(_)) => Found::Wait,
            // A reorg may bring it back.
            (None, _) if self.chain.is_delegated(&wanted.wallet, finalized).await? => Found::Wait,
            (None, _) => Found::Done,
        })
    }

    /// Signs what is on record and not signed yet.
    async fn sign_clearings(&mut self, clock: &Clock) -> Result<(), SendError> {
        let chain = self.network.chain;
        let under_way = clearings::under_way(&mut self.db.read().await?, chain).await?;
        let unsigned = under_way.into_iter().flat_map(|clearing| clearing.tuples);
        let unsigned: Vec<Tuple> = unsigned.filter(|tuple| tuple.signature.is_none()).take(SIGN_REQUESTS_MAX).collect();
        if unsigned.is_empty() {
            return Ok(());
        }
        let request = |Tuple { wallet, nonce, account_id, source_tag, .. }: &Tuple| {
            let path = KeyPath::of_wallet(chain.family(), account_id, source_tag);
            SignRequest::Clear { path, clearing: self.clearing(*wallet, *nonce) }
        };
        let requests: Vec<SignRequest> = unsigned.iter().map(request).collect();
        let answers = self.signer.sign(&requests).await?;
        let (now, signer) = (clock.now(), self.signer.id().to_owned());
        let mut tx = self.begin(now).await?;
        self.seen(&mut tx, &answers).await?;
        for (Tuple { wallet, nonce, .. }, answer) in unsigned.into_iter().zip(answers) {
            match answer {
                Ok(signed) => {
                    let by = (signer.as_str(), signed.seq);
                    authorizations::sign(&mut tx, chain, (wallet, nonce), &signed.bytes, by, now).await?;
                }
                Err(refusal) => {
                    warn!("the delegate of {wallet} on {chain} stays: {refusal}");
                    clearings::renew(&mut tx, chain, &wallet).await?;
                }
            }
        }
        Ok(self.commit(tx, now).await?)
    }

    /// Whether it would still take something away: what stands on the chain has that nonce, and a delegate.
    pub(super) async fn is_live(&self, tuple: &Tuple) -> Result<bool, SourceError> {
        Ok(self.chain.delegated(&tuple.wallet).await? == Some(tuple.nonce))
    }

    pub(super) fn clearing(&self, wallet: Address, nonce: u64) -> Authorization {
        Authorization::clearing(self.network.chain_ref.clone(), wallet, nonce)
    }
}
