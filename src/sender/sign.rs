//! Has the signer sign a transfer for the first time. The intent is on record before the signer is asked, and the
//! signature before it is used.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use landfall_chain::{BlockRef, KeyPath, PayingChain, Readiness, SIGN_REQUESTS_MAX, SignRequest, Signed};
use tracing::{error, warn};

use crate::account::AccountStatus;
use crate::sender::diagnostic::diagnostic;
use crate::sender::open::{Open, OpenTransfer, secs};
use crate::sender::{HEAD_AGE_SECS, LEFT_MIN_SECS, Resting, SendError, Sender};
use crate::store::{accounts, attempts, delegates, gas_ledger, transfers, wallets};
use crate::time::{Clock, Timestamp};
use crate::transfer::{DELEGATE_TIME, Obstacle, State, TransferId};

/// The newest block may also be so many block times old, if that is longer.
const HEAD_AGE_BLOCKS: u64 = 5;
/// Why a wallet signs nothing that spent what nobody here signed for.
const QUARANTINED: &str = "a person must first check what left its address";

impl<C: PayingChain> Sender<C> {
    /// Signs what was accepted and may be signed.
    pub(super) async fn sign(&mut self, open: &Open, clock: &Clock) -> Result<(), SendError> {
        let now = clock.now();
        let is_fresh = self.is_head_fresh(open, now);
        let was_old = std::mem::replace(&mut self.is_head_old, !is_fresh);
        if !is_fresh && !was_old {
            let (chain, head) = (self.network.chain, open.head_time);
            let newest = head.map_or_else(|| "of no known time".to_owned(), |head| format!("of {head}"));
            warn!(%chain, "nothing is signed on {chain}: its newest connected block is {newest}, and this host says {now}");
        }
        if !is_fresh {
            return Ok(());
        }
        let final_time = open.finalized.map(|(_, time)| time);
        let may_be_signed = |of: &&OpenTransfer| {
            let is_first = of.transfer.state == State::Accepted
                && of.transfer.cancelled_at.is_none()
                && of.signed().is_none()
                // By the host's clock and by the chain's.
                && secs(open.head_time.map_or(now, |head| now.max(head))) + LEFT_MIN_SECS <= of.deadline_secs();
            (is_first || of.is_healed(final_time, now)) && !self.rests(Resting::Transfer(of.transfer.id), now)
        };
        // What only the credit may pay waits until it is known what it costs.
        let unpriced = gas_ledger::waiting(&mut self.db.read().await?, self.network.chain).await?;
        let may_be_signed = |of: &&OpenTransfer| may_be_signed(of) && !unpriced.contains(&of.transfer.id);
        let unsigned: Vec<&OpenTransfer> =
            open.transfers.iter().filter(may_be_signed).take(SIGN_REQUESTS_MAX).collect();
        if unsigned.is_empty() {
            return Ok(());
        }
        let ready = self.ready(&unsigned, open.finalized, now).await?;
        let requests = self.intend(&ready, now).await?;
        if requests.is_empty() {
            return Ok(());
        }
        let asked: Vec<SignRequest> = requests.iter().map(|(.., request)| request.clone()).collect();
        let signed = self.signer.sign(&asked).await?;
        let now = clock.now();
        let mut tx = self.begin(now).await?;
        self.seen(&mut tx, &signed).await?;
        let signer = self.signer.id().to_owned();
        for ((of, deadline_secs, _), signed) in requests.iter().zip(signed) {
            let id = of.transfer.id;
            match signed {
                Ok(Signed { bytes, seq, .. }) => {
                    attempts::sign_intent(&mut tx, (id, *deadline_secs), &bytes, (&signer, seq), now).await?;
                }
                Err(refusal) => {
                    warn!(transfer = %id, "transfer {id} is not signed: {refusal}");
                    self.rest(Resting::Transfer(id), now);
                }
            }
        }
        self.commit(tx, now).await?;
        Ok(())
    }

    /// Whether the chain's own time is known well enough for a deadline to mean something.
    fn is_head_fresh(&self, open: &Open, now: Timestamp) -> bool {
        let age_max = HEAD_AGE_SECS.max(HEAD_AGE_BLOCKS * self.network.block_time_ms / 1_000);
        open.head_time.is_some_and(|head| now.since(head).as_secs() <= age_max)
    }

    /// Those whose route works as the network's facts say.
    async fn ready<'o>(
        &mut self,
        unsigned: &[&'o OpenTransfer],
        finalized: Option<(BlockRef, Timestamp)>,
        now: Timestamp,
    ) -> Result<Vec<&'o OpenTransfer>, SendError> {
        let asked = unsigned.iter().map(async |of| {
            let intent = self.intent(&of.transfer, of.next_deadline_secs(now));
            match &intent {
                Some(intent) => self.chain.readiness(intent).await,
                None => Ok(Readiness::NotReady("its asset is not listed with this route any more".to_owned())),
            }
        });
        let answers = join_all(asked).await;
        let answers = unsigned.iter().zip(answers).map(|(of, answer)| (*of, of.transfer.id, answer)).collect();
        let (mut ready, mut obstructed) = (Vec::new(), Vec::new());
        for (of, readiness) in self.answered(answers, now)? {
            let id = of.transfer.id;
            match readiness {
                Readiness::Ready => match self.why_not_first(of, finalized, now).await? {
                    None => ready.push(of),
                    Some(why) => {
                        error!(transfer = %id, "transfer {id} is not signed: {why}");
                        self.rest(Resting::Transfer(id), now);
                    }
                },
                Readiness::NotReady(why) => {
                    warn!(transfer = %id, "transfer {id} is not signed: {why}");
                    self.rest(Resting::Transfer(id), now);
                }
                Readiness::Unpayable(what, why) => {
                    warn!(transfer = %id, "transfer {id} is not signed: {why}");
                    obstructed.push((id, what.into(), why));
                }
            }
        }
        self.obstruct(&obstructed, now).await?;
        Ok(ready)
    }

    /// Why it may have been paid before, by a store that is lost or by another delegate; `finalized` is the newest final block,
    /// with its time.
    async fn why_not_first(
        &self,
        of: &OpenTransfer,
        finalized: Option<(BlockRef, Timestamp)>,
        now: Timestamp,
    ) -> Result<Option<String>, SendError> {
        if of.transfer.is_by_delegate() && of.intents.is_empty() {
            let taken = delegates::taken(&mut self.db.read().await?, self.network.chain).await?;
            let of_route = taken.iter().rfind(|taken| taken.route() == of.transfer.route);
            // Nobody had to take the first one, so nothing was signed for another before it.
            let from = of_route.filter(|taken| taken.number > 0).map(|taken| taken.since.plus(DELEGATE_TIME));
            if let Some(from) = from.filter(|from| finalized.is_none_or(|(_, time)| time < *from)) {
                let what = "its delegate was taken, and what others have paid is known in a final block of";
                return Ok(Some(format!("{what} {from}")));
            }
            if of.transfer.state != State::Accepted && self.network.delegates.len() > 1 {
                let what = "a block that is gone showed that a store which is lost had it paid, nobody knows by which delegate";
                return Ok(Some(what.to_owned()));
            }
        }
        if of.transfer.is_by_delegate() && self.network.delegates.len() > 1 && finalized.is_none() {
            return Ok(Some("no final block is known yet that shows what other delegates have paid".to_owned()));
        }
        match self.intent(&of.transfer, of.next_deadline_secs(now)).zip(finalized) {
            Some((intent, (at, _))) => self.unknown_past(of, &intent, &at).await,
            None => Ok(None),
        }
    }

    /// Records why transfers cannot be signed or carried now, and leaves them alone for a while. It is no evidence: they
    /// are tried again up to their deadline, and fail with it once it is proved that nobody paid them.
    pub(super) async fn obstruct(
        &mut self,
        obstructed: &[(TransferId, Obstacle, String)],
        now: Timestamp,
    ) -> Result<(), SendError> {
        if obstructed.is_empty() {
            return Ok(());
        }
        let mut tx = self.begin(now).await?;
        for (id, obstacle, why) in obstructed {
            transfers::obstruct(&mut tx, *id, *obstacle, Some(&diagnostic(why))).await?;
            self.rest(Resting::Transfer(*id), now);
        }
        self.commit(tx, now).await?;
        Ok(())
    }

    /// Records what is going to be signed. An account that is not active any more pays nothing, nor does a wallet that is
    /// quarantined: that is recorded, and its transfers fail once it is proved that nobody paid them.
    async fn intend<'o>(
        &mut self,
        ready: &[&'o OpenTransfer],
        now: Timestamp,
    ) -> Result<Vec<(&'o OpenTransfer, u64, SignRequest)>, SendError> {
        let mut requests = Vec::new();
        if ready.is_empty() {
            return Ok(requests);
        }
        let mut tx = self.begin_sending(now).await?;
        let quarantined = wallets::quarantined(&mut tx, self.network.chain.family()).await?;
        let mut statuses = BTreeMap::new();
        for id in ready.iter().map(|of| &of.transfer.identity_id).collect::<BTreeSet<_>>() {
            statuses.insert(id, AccountStatus::of(accounts::lock_status(&mut tx, id).await?));
        }
        for of in ready {
            let transfer = &of.transfer;
            let status = statuses[&transfer.identity_id];
            let why = quarantined.contains(&transfer.source).then_some(QUARANTINED);
            if status != AccountStatus::Active || why.is_some() {
                transfers::obstruct(&mut tx, transfer.id, Obstacle::AccountNotActive, why).await?;
                self.rest(Resting::Transfer(transfer.id), now);
                continue;
            }
            let deadline_secs = of.next_deadline_secs(now);
            let Some(intent) = self.intent(transfer, deadline_secs) else { continue };
            if transfer.obstacle.is_some() {
                transfers::clear(&mut tx, transfer.id).await?;
            }
            attempts::intend(&mut tx, transfer.id, deadline_secs, now).await?;
            let path = KeyPath::of_wallet(transfer.chain.family(), &transfer.account_id, &transfer.source_tag);
            let heals = of.intents.iter().filter(|earlier| earlier.deadline_secs < deadline_secs).count();
            requests.push((*of, deadline_secs, SignRequest::Intent { path, intent, heals }));
        }
        self.commit(tx, now).await?;
        Ok(requests)
    }
}
