//! Compares the signer's journal with the store: when this process begins to send, and every minute.
//!
//! What is signed is on record before the signer is asked. So an entry that the store does not know means that the
//! store is an old copy, or that another store has the same signer. Then the chain recovers. Of such entries these are
//! put on record: deadlines of known transfers, what lets delegates act, refills, and which nonces of sponsors were used.
//!
//! Promise: nothing is signed by a signer with another name, or by one whose journal misses entries that were seen,
//! until a person adopts it.

use std::time::Duration;

use landfall_chain::{Chain, Journaled, PayingChain, Signed, SignerUnavailable, TxId};
use tracing::{error, info, warn};
use uuid::Uuid;

use crate::incident::{Incident, IncidentKind};
use crate::sender::report::ASKED_TIME_MAX;
use crate::sender::{SendError, Sender, recover};
use crate::store::journals::{self, Compared};
use crate::store::{
    Connection, StoreError, Tx, attempts, authorizations, cancellations, guards, incidents, refills, spends, sponsors,
    transfers,
};
use crate::time::{Clock, Timestamp};
use crate::transfer::{RECOVERY_TIME, TransferId};

/// How often the journal is compared.
const COMPARE_EVERY: Duration = Duration::from_secs(60);
/// After a signer that was away, or is not the one of this store.
const AWAY_PAUSE: Duration = Duration::from_secs(5);
/// How many parts of the journal are compared in a tick.
const PAGES_MAX: usize = 20;
/// And for how long.
const PAGES_TIME_MAX: Duration = Duration::from_secs(1);

/// How far this process has come with the journal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Journal {
    /// It was compared to its end since this process sends, and is the one of this store.
    is_ours: bool,
    /// When it was last tried, and how long that is good for.
    tried: Option<(Timestamp, Duration)>,
    /// Since when this process sends.
    since: Option<Timestamp>,
}

/// A part of the journal that was compared.
enum Page {
    More,
    Last,
    /// The journal is not the one of this store.
    Strange,
}

impl Journal {
    /// Of a process that begins to send.
    pub(super) fn since(now: Timestamp) -> Self {
        Journal { since: Some(now), ..Journal::default() }
    }

    /// Whether the signer may be asked to sign.
    pub(super) fn is_ours(&self) -> bool {
        self.is_ours
    }

    /// Whether it was just compared to its end.
    pub(super) fn is_compared(&self) -> bool {
        self.is_ours && self.tried.is_some_and(|(_, pause)| pause == COMPARE_EVERY)
    }

    /// Whether a final block of this `time` is a proof although a copy of this store may have signed. It is where the journal
    /// was just compared to its end, and where all that was signed before this process sends is over.
    pub(super) fn is_known(&self, time: Timestamp) -> bool {
        self.is_compared() || self.since.is_some_and(|since| time >= since.plus(RECOVERY_TIME))
    }

    /// It is compared at once, if it was compared to its end before; a signer that is away has its pause.
    pub(super) fn forget_time(&mut self) {
        self.tried = self.tried.filter(|(_, pause)| *pause != COMPARE_EVERY);
    }
}

impl<C: PayingChain> Sender<C> {
    /// Compares what is new in the journal, when that is due. While the signer is away, that is tried again.
    pub(super) async fn compare(&mut self, clock: &Clock) -> Result<(), SendError> {
        let (begun, since) = (clock.now(), self.journal.since);
        let is_tried = |(at, pause): (Timestamp, Duration)| at <= begun && begun.since(at) < pause;
        if self.journal.tried.is_some_and(is_tried) {
            return Ok(());
        }
        for _ in 0..PAGES_MAX {
            let now = clock.now();
            if now.since(begun) > PAGES_TIME_MAX {
                break;
            }
            match self.compare_page(now).await {
                Ok(Page::More) => {}
                Ok(Page::Last) => {
                    self.journal = Journal { is_ours: true, tried: Some((now, COMPARE_EVERY)), since };
                    return Ok(());
                }
                Ok(Page::Strange) => {
                    self.journal = Journal { is_ours: false, tried: Some((now, AWAY_PAUSE)), since };
                    return Ok(());
                }
                Err(SendError::Signer(away)) => {
                    warn!(chain = %self.network.chain, "the signer's journal is compared once it can be asked: {away}");
                    self.journal.tried = Some((now, AWAY_PAUSE));
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn compare_page(&mut self, now: Timestamp) -> Result<Page, SendError> {
        let chain = self.network.chain;
        let known = journals::of_chain(&mut self.db.read().await?, chain).await?;
        let behind = known.as_ref().map_or(0, |known| known.through);
        let asked = self.signer.journal(&self.network.chain_ref, behind);
        let page = tokio::time::timeout(ASKED_TIME_MAX, asked).await.unwrap_or_else(|_| {
            let secs = ASKED_TIME_MAX.as_secs();
            Err(SignerUnavailable(format!("it did not give its journal within {secs} s")))
        })?;
        let signer = self.signer.id().to_owned();
        if let Some(why) = known.as_ref().and_then(|known| strange(known, &signer, page.newest)) {
            if known.is_none_or(|known| known.strange.as_ref() != Some(&why)) {
                let mut tx = self.begin(now).await?;
                journals::strange(&mut tx, chain, &why).await?;
                self.commit(tx, now).await?;
                error!(%chain, "nothing is signed on {chain}: {why}");
            }
            return Ok(Page::Strange);
        }
        let (mut missing, mut unknown) = (Vec::new(), Vec::new());
        let mut reader = self.db.read().await?;
        for (_, entry) in &page.entries {
            if !is_on_record(&mut reader, chain, entry).await? {
                missing.push(entry);
            }
            // Another store may have given the same nonce to the same transfer, and offered another fee.
            if let Some((tx, transfer)) = transaction(entry)
                && !spends::is_attempt(&mut reader, chain, tx).await?
            {
                unknown.push((tx, transfer));
            }
        }
        drop(reader);
        let newest = page.newest.max(known.as_ref().map_or(0, |known| known.newest));
        let compared = Compared { signer, through: page.through, newest, strange: None };
        if known.as_ref() != Some(&compared) {
            let mut tx = self.begin(now).await?;
            for entry in &missing {
                put_on_record(&mut tx, chain, entry, now).await?;
            }
            for unknown in unknown {
                spends::journaled(&mut tx, chain, unknown).await?;
            }
            journals::compared(&mut tx, chain, &compared.signer, (page.through, newest)).await?;
            if !missing.is_empty() {
                self.notice_missing(&mut tx, &missing, now).await?;
            }
            self.commit(tx, now).await?;
        }
        Ok(if page.through >= page.newest { Page::Last } else { Page::More })
    }

    /// The chain recovers, and it is an incident.
    async fn notice_missing(&self, tx: &mut Tx, missing: &[&Journaled], now: Timestamp) -> Result<(), StoreError> {
        let chain = self.network.chain;
        let deadline = |entry: &&Journaled| match entry {
            Journaled::Intent { deadline, .. } => Some(Timestamp::from_secs(*deadline)),
            Journaled::Cancellation { .. }
            | Journaled::Authorization(_)
            | Journaled::Carrier { .. }
            | Journaled::Refill { .. }
            | Journaled::Reclaim { .. } => None,
        };
        let latest = missing.iter().filter_map(deadline).max();
        let what = format!(
            "the journal of the signer has {} signatures that are not on record: this store may be an old copy, or another \
             one has the same signer",
            missing.len()
        );
        info!(%chain, "{what}");
        incidents::meet(tx, &Incident::open(chain, IncidentKind::StoreBehind, what, None, now)).await?;
        recover::notice(tx, chain, latest, now).await
    }

    /// Records the newest entry of the journal that these answers show.
    pub(super) async fn seen<E>(&self, tx: &mut Tx, answers: &[Result<Signed, E>]) -> Result<(), StoreError> {
        match answers.iter().flatten().map(|signed| signed.seq).max() {
            Some(newest) => journals::seen(tx, self.network.chain, newest).await,
            None => Ok(()),
        }
    }
}

/// Why the journal of `signer`, whose newest entry this is, is not the one that is on record.
fn strange(known: &Compared, signer: &str, newest: u64) -> Option<String> {
    let adopt = "see that it is meant, then `landfall signer adopt`";
    if known.signer != signer {
        return Some(format!("the signer is {signer}, and {} is the one of this store; {adopt}", known.signer));
    }
    let seen = known.newest;
    (newest < seen)
        .then(|| format!("the signer's journal ends with entry {newest}, and entry {seen} was seen; {adopt}"))
}

/// The sponsor's transaction that was signed, and for which transfer.
fn transaction(entry: &Journaled) -> Option<(&TxId, Option<TransferId>)> {
    match entry {
        Journaled::Carrier { transfer_id, tx, .. } => Some((tx, transfer_id.as_ref().map(id_of))),
        Journaled::Refill { tx, .. } | Journaled::Reclaim { tx, .. } => Some((tx, None)),
        Journaled::Intent { .. } | Journaled::Cancellation { .. } | Journaled::Authorization(_) => None,
    }
}

async fn is_on_record(connection: &mut impl Connection, chain: Chain, entry: &Journaled) -> Result<bool, StoreError> {
    match entry {
        Journaled::Intent { transfer_id, deadline } => {
            attempts::is_intended(connection, id_of(transfer_id), *deadline).await
        }
        Journaled::Cancellation { transfer_id } => cancellations::is_intended(connection, id_of(transfer_id)).await,
        Journaled::Authorization(it) => {
            let recorded = authorizations::find(connection, chain, &it.wallet, it.nonce).await?;
            Ok(recorded.is_some_and(|recorded| recorded.implementation == it.implementation))
        }
        Journaled::Carrier { transfer_id: Some(transfer_id), sponsor, nonce, tx: _ } => {
            attempts::is_recorded(connection, chain, id_of(transfer_id), (sponsor, *nonce)).await
        }
        Journaled::Carrier { transfer_id: None, sponsor, nonce, tx: _ } => match nonce {
            Some(nonce) => attempts::is_given(connection, chain, (sponsor, *nonce)).await,
            None => Ok(true),
        },
        Journaled::Refill { treasury, nonce, refill, tx: _ } => {
            refills::is_given(connection, chain, (treasury, *nonce), refill).await
        }
        Journaled::Reclaim { sponsor, blockhash, tx: _ } => {
            guards::is_recorded(connection, chain, (sponsor, blockhash)).await
        }
    }
}

/// Of a transfer that is not on record nothing can be: the same request makes it again, and its deadline is then later.
async fn put_on_record(tx: &mut Tx, chain: Chain, entry: &Journaled, now: Timestamp) -> Result<(), StoreError> {
    match entry {
        Journaled::Intent { transfer_id, deadline } => {
            let known = transfers::by_id(tx, id_of(transfer_id)).await?;
            match known.filter(|transfer| !transfer.state.status().is_terminal()) {
                Some(transfer) => attempts::intend(tx, transfer.id, *deadline, now).await,
                None => Ok(()),
            }
        }
        // A person has cancelled it, and nothing more is signed for it.
        Journaled::Cancellation { transfer_id } => {
            let id = id_of(transfer_id);
            if transfers::cancel(tx, id, now).await? {
                cancellations::intend(tx, id, now).await?;
            }
            Ok(())
        }
        Journaled::Authorization(it) => authorizations::intend(tx, chain, it, now).await,
        Journaled::Carrier { sponsor, nonce, .. } => match nonce {
            Some(nonce) => sponsors::journaled(tx, chain, sponsor, *nonce).await,
            None => Ok(()),
        },
        // It is carried again if its nonce is not used, and with that nothing else ever is.
        Journaled::Refill { treasury, nonce, refill, .. } => {
            refills::put(tx, chain, (treasury, *nonce), refill, now).await?;
            sponsors::journaled(tx, chain, treasury, *nonce).await
        }
        // That its guards are there no more is seen when they are to be taken back.
        Journaled::Reclaim { .. } => Ok(()),
    }
}

fn id_of(bytes: &[u8; 16]) -> TransferId {
    TransferId(Uuid::from_bytes(*bytes))
}
