//! Has payers sign what lets a delegate act for them (EIP-7702). It is on record before it is signed, and again with
//! its signature before it is used.
//!
//! The chain's state decides whether an authorization is needed, never the record: a reorg may take a delegate away
//! again, and a wallet that has one needs none.

use std::collections::{BTreeMap, HashMap};

use futures_util::future::join_all;
use landfall_chain::{
    Acting, Address, Authorization, KeyPath, PayingChain, SIGN_REQUESTS_MAX, SignRequest, SignedAuthorization,
};
use tracing::warn;

use crate::sender::open::OpenTransfer;
use crate::sender::{Resting, SendError, Sender};
use crate::store::{authorizations, wallets};
use crate::time::Clock;
use crate::transfer::TransferId;

/// By wallet and nonce.
type Signatures = BTreeMap<(Address, u64), Vec<u8>>;

impl<C: PayingChain> Sender<C> {
    /// What the carrier of each transfer brings beside its intent; a transfer that cannot be carried now is left out.
    pub(super) async fn authorize(
        &mut self,
        due: &[&OpenTransfer],
        clock: &Clock,
    ) -> Result<HashMap<TransferId, Option<SignedAuthorization>>, SendError> {
        let asked = due.iter().map(async |of| match self.signed_intent(of) {
            Some(signed) => Some(self.chain.acting(&signed.intent).await),
            None => None,
        });
        let (mut brought, mut wanted) = (HashMap::new(), Vec::new());
        let answers = join_all(asked).await;
        let answers = due.iter().zip(answers).filter_map(|(of, answer)| Some((*of, of.transfer.id, answer?))).collect();
        for (of, acting) in self.answered(answers, clock.now())? {
            let id = of.transfer.id;
            match acting {
                Acting::Already => {
                    brought.insert(id, None);
                }
                Acting::With(authorization) => wanted.push((of, authorization)),
                Acting::Never(why) => {
                    warn!(transfer = %id, "transfer {id} cannot be carried now and will be tried again: {why}");
                    self.rest(Resting::Transfer(id), clock.now());
                }
            }
        }
        if wanted.is_empty() {
            return Ok(brought);
        }
        let signatures = self.sign_authorizations(&wanted, clock).await?;
        for (of, authorization) in wanted {
            let id = of.transfer.id;
            match signatures.get(&(authorization.wallet, authorization.nonce)) {
                Some(signature) => {
                    let signature = signature.clone();
                    brought.insert(id, Some(SignedAuthorization { authorization, signature }));
                }
                None => self.rest(Resting::Transfer(id), clock.now()),
            }
        }
        Ok(brought)
    }

    /// Records and signs what is wanted, each wallet and nonce once. What the signer refuses is left out.
    async fn sign_authorizations(
        &mut self,
        wanted: &[(&OpenTransfer, Authorization)],
        clock: &Clock,
    ) -> Result<Signatures, SendError> {
        let (now, chain) = (clock.now(), self.network.chain);
        let (mut signatures, mut unsigned) = (Signatures::new(), BTreeMap::new());
        let mut tx = self.begin_sending(now).await?;
        let quarantined = wallets::quarantined(&mut tx, chain.family()).await?;
        for (of, authorization) in wanted.iter().filter(|(of, _)| !quarantined.contains(&of.transfer.source)) {
            authorizations::intend(&mut tx, chain, authorization, now).await?;
            let place = (authorization.wallet, authorization.nonce);
            let recorded = authorizations::find(&mut tx, chain, &authorization.wallet, authorization.nonce).await?;
            match recorded.filter(|recorded| recorded.implementation == authorization.implementation) {
                Some(recorded) => match recorded.signature {
                    Some(signature) => {
                        signatures.insert(place, signature);
                    }
                    None => {
                        let path = KeyPath::of_wallet(chain.family(), &of.transfer.account_id, &of.transfer.source_tag);
                        let authorization = authorization.clone();
                        unsigned.insert(place, SignRequest::Authorization { path, authorization });
                    }
                },
                None => warn!(
                    transfer = %of.transfer.id,
                    "nonce {} of {} was given to another delegate; {} is not authorized",
                    place.1, place.0, authorization.implementation
                ),
            }
        }
        self.commit(tx, now).await?;
        if unsigned.is_empty() {
            return Ok(signatures);
        }
        let (places, requests): (Vec<(Address, u64)>, Vec<SignRequest>) = unsigned.into_iter().unzip();
        let mut answers = Vec::new();
        for part in requests.chunks(SIGN_REQUESTS_MAX) {
            answers.extend(self.signer.sign(part).await?);
        }
        let (now, signer) = (clock.now(), self.signer.id().to_owned());
        let mut tx = self.begin(now).await?;
        self.seen(&mut tx, &answers).await?;
        for (place, answer) in places.into_iter().zip(answers) {
            match answer {
                Ok(signed) => {
                    let by = (signer.as_str(), signed.seq);
                    authorizations::sign(&mut tx, chain, place, &signed.bytes, by, now).await?;
                    signatures.insert(place, signed.bytes);
                }
                Err(refusal) => warn!("no delegate is authorized for {} on {chain}: {refusal}", place.0),
            }
        }
        self.commit(tx, now).await?;
        Ok(signatures)
    }
}
