//! Reports that this process sends, whether its signer answers, and which sponsors own too little. `status` and
//! `health` read it, and decide what is wrong.

use std::time::Duration;

use futures_util::future::join_all;
use landfall_chain::{Address, AssetId, BroadcastResponse, PayingChain, SourceError, U256};
use tracing::warn;

use crate::sender::{Resting, SendError, Sender};
use crate::store::{StoreError, Tx, sender_reports, sponsors};
use crate::time::Timestamp;

/// How often it is reported.
const EVERY: Duration = Duration::from_secs(10);
/// How often it is asked what sponsors own.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How long the signer, its journal and the nodes are waited for: all together less than the lease, so that nobody takes over
/// meanwhile.
pub(super) const ASKED_TIME_MAX: Duration = Duration::from_secs(3);

impl<C: PayingChain> Sender<C> {
    /// Reports if it is time to, and asks the signer for an address.
    pub(super) async fn report(&mut self, now: Timestamp) -> Result<(), SendError> {
        if self.reported_at.is_some_and(|at| now.since(at) < EVERY && now >= at) {
            return Ok(());
        }
        let path = [self.sponsor_path(0)];
        let away = match tokio::time::timeout(ASKED_TIME_MAX, self.signer.addresses(&path)).await {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("it did not answer within {} s", ASKED_TIME_MAX.as_secs())),
        };
        let native = self.network.asset(&AssetId::Native);
        let symbol = native.map_or(String::new(), |asset| asset.symbol.clone());
        let mut tx = self.begin(now).await?;
        sender_reports::record(&mut tx, self.network.chain, &symbol, away.as_deref(), now).await?;
        self.commit(tx, now).await?;
        self.reported_at = Some(now);
        Ok(())
    }

    /// Looks now and then whether each sponsor owns as much as it should. One that cannot be asked for keeps what is on
    /// record. A treasury should own as much as a refill may take.
    pub(super) async fn check_means(&mut self, now: Timestamp) -> Result<(), SendError> {
        if self.looked_at.is_some_and(|at| now.since(at) < LOOK_EVERY && now >= at) {
            return Ok(());
        }
        self.looked_at = Some(now);
        let (chain, sending) = (self.network.chain, self.network.sending);
        let late = |_| Err(SourceError::transient("nobody answers in time"));
        let surcharge = tokio::time::timeout(ASKED_TIME_MAX, self.chain.surcharge()).await.unwrap_or_else(late);
        match &surcharge {
            Ok(surcharge) => self.surcharge = *surcharge,
            Err(error) => warn!(%chain, "what {chain} takes on top of gas is not known: {error}"),
        }
        let floor = sending.floor_with(self.surcharge);
        let known = sponsors::of_chain(&mut self.db.read().await?, chain).await?;
        let asked =
            known.iter().filter_map(|of| Some((of.is_treasury, of.address?))).map(async |(is_treasury, address)| {
                let owned = tokio::time::timeout(ASKED_TIME_MAX, self.chain.owned(&address)).await;
                let late = |_| Err(SourceError::transient("nobody answers in time"));
                let least = if is_treasury { U256::from(sending.refill_to) } else { floor };
                (address, least, owned.unwrap_or_else(late))
            });
        let answers: Vec<(Address, U256, Result<U256, SourceError>)> = join_all(asked).await;
        self.owned = answers.iter().filter_map(|(of, _, owned)| Some((*of, *owned.as_ref().ok()?))).collect();
        self.owned_is_new = true;
        let mut tx = self.begin(now).await?;
        if surcharge.is_ok() {
            sender_reports::surcharged(&mut tx, chain, self.surcharge).await?;
        }
        for (address, least, owned) in answers {
            match owned {
                Ok(owned) if owned < least => sponsors::poor(&mut tx, chain, &address, now).await?,
                Ok(_) => sponsors::funded(&mut tx, chain, &address).await?,
                Err(error) => warn!(%chain, "what sponsor {address} owns is not known: {error}"),
            }
        }
        Ok(self.commit(tx, now).await?)
    }

    /// Notes that a node says that a sponsor owns too little.
    pub(super) async fn note_means(
        &self,
        tx: &mut Tx,
        sponsor: &Address,
        response: BroadcastResponse,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        match response {
            BroadcastResponse::Poor => sponsors::poor(tx, self.network.chain, sponsor, now).await,
            BroadcastResponse::Pooled
            | BroadcastResponse::Known
            | BroadcastResponse::NonceUsed
            | BroadcastResponse::Underpriced
            | BroadcastResponse::Gapped
            | BroadcastResponse::Delegated
            | BroadcastResponse::Reserved
            | BroadcastResponse::Refused
            | BroadcastResponse::Expired
            | BroadcastResponse::Unknown => Ok(()),
        }
    }

    /// A sponsor that owns too little for a guard carries nothing new for a while.
    pub(super) async fn rest_poor(&mut self, sponsor: &Address, now: Timestamp) -> Result<(), SendError> {
        let mut tx = self.begin(now).await?;
        self.note_means(&mut tx, sponsor, BroadcastResponse::Poor, now).await?;
        self.commit(tx, now).await?;
        self.rest(Resting::Sponsor(*sponsor), now);
        Ok(())
    }
}
