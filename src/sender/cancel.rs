//! Cancels a payment that was signed: has its payer sign the cancellation, which is on record before.
//!
//! It decides nothing. The chain takes the payment's key once: for the payment or for the cancellation, whichever comes
//! first.

use landfall_chain::{KeyPath, PayingChain, SIGN_REQUESTS_MAX, SignRequest};
use tracing::warn;

use crate::sender::load::may_be_ended;
use crate::sender::open::{Open, OpenTransfer};
use crate::sender::{Resting, SendError, Sender};
use crate::store::cancellations;
use crate::time::Clock;

impl<C: PayingChain> Sender<C> {
    /// Signs the end of what was cancelled.
    pub(super) async fn cancel(&mut self, open: &Open, clock: &Clock) -> Result<(), SendError> {
        let now = clock.now();
        let is_due = |of: &&OpenTransfer| {
            let is_signed = of.cancellation.is_some();
            !is_signed && may_be_ended(of, open.head_time) && !self.rests(Resting::Transfer(of.transfer.id), now)
        };
        let requests = open.transfers.iter().filter(is_due).filter_map(|of| {
            let transfer = &of.transfer;
            let intent = self.intent(transfer, of.signed()?.deadline_secs)?;
            let path = KeyPath::of_wallet(transfer.chain.family(), &transfer.account_id, &transfer.source_tag);
            Some((transfer.id, SignRequest::Cancel { path, intent }))
        });
        let (ids, requests): (Vec<_>, Vec<_>) = requests.take(SIGN_REQUESTS_MAX).unzip();
        if requests.is_empty() {
            return Ok(());
        }
        let mut tx = self.begin_sending(now).await?;
        for id in &ids {
            cancellations::intend(&mut tx, *id, now).await?;
        }
        self.commit(tx, now).await?;
        let answers = self.signer.sign(&requests).await?;
        let (now, signer) = (clock.now(), self.signer.id().to_owned());
        let mut tx = self.begin(now).await?;
        self.seen(&mut tx, &answers).await?;
        for (id, answer) in ids.into_iter().zip(answers) {
            match answer {
                Ok(signed) => cancellations::sign(&mut tx, id, &signed.bytes, (&signer, signed.seq), now).await?,
                Err(refusal) => {
                    warn!(transfer = %id, "the end of transfer {id} is not signed: {refusal}");
                    self.rest(Resting::Transfer(id), now);
                }
            }
        }
        Ok(self.commit(tx, now).await?)
    }
}
