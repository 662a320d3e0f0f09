//! Takes back what guards hold, when a CONFIRMED transfer needs its guard no more. It goes to the sponsor that paid for
//! it.
//!
//! Nobody waits for it, so it comes last and offers no priority fee. A transaction takes a few guards of one sponsor,
//! and that sponsor carries it. Promises:
//! - A guard is taken back only when final blocks show that `guard_retention_hours` are over, and that each blockhash
//!   of that time is dead. Their own time and count decide, never the wall clock.
//! - A reclaim is recorded before it is signed, and its bytes before they are sent. Our own final blocks decide what
//!   became of it. If a guard is taken twice, the second transaction fails.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use futures_util::future::join_all;
use landfall_chain::{
    Address, Asset, BlockRef, Family, Intent, KeyPath, Network, PayingChain, RECLAIM_GUARDS_MAX, Reclaim, ReclaimQuote,
    Route, SignRequest, Signed,
};
use tracing::{debug, error, info, warn};

use crate::sender::expire::BLOCKHASH_BLOCKS;
use crate::sender::{SendError, Sender, gas};
use crate::store::cursors::{self, Cursor};
use crate::store::guards::{self, End, Guard, Reclaiming, Shown};
use crate::store::sponsors::{self, Sponsor};
use crate::store::{Connection, StoreError, attempts, halts, transfers};
use crate::time::{Clock, Timestamp};
use crate::transfer::{SponsorState, Transfer, TransferId};

/// How often there is a look at what may be taken back.
const PLAN_EVERY: Duration = Duration::from_secs(10);
/// How many transactions are made then, and how many guards are looked at for them.
const PLANNED_MAX: usize = 16;
const READ_MAX: u32 = 256;
/// And for how long they are asked about: less than the lease, so that nobody takes over meanwhile.
const PLAN_TIME_MAX: Duration = Duration::from_secs(3);
/// A guard that could not be taken back is left alone for so long, and then taken by itself.
const REFUSED_PAUSE: Duration = Duration::from_secs(3_600);
/// How many such are remembered. To forget them costs requests and fees only.
const REFUSED_MAX: usize = 10_000;
/// How often the same bytes are sent again, and for how long.
const RESEND: Duration = Duration::from_secs(10);
const RESEND_FOR: Duration = Duration::from_secs(90);

/// What this process remembers of it.
#[derive(Debug, Default)]
pub(super) struct Reclaims {
    planned_at: Option<Timestamp>,
    /// Until when guards are left alone; behind that they are taken alone.
    refused: HashMap<TransferId, Timestamp>,
}

/// A guard that is to be taken back, and what its transfer's payer signed.
struct Due {
    id: TransferId,
    intent: Intent,
}

impl Reclaims {
    fn refuse(&mut self, ids: impl IntoIterator<Item = TransferId>, now: Timestamp) {
        if self.refused.len() > REFUSED_MAX {
            self.refused.clear();
        }
        self.refused.extend(ids.into_iter().map(|id| (id, now.plus(REFUSED_PAUSE))));
    }

    fn rests(&self, id: &TransferId, now: Timestamp) -> bool {
        self.refused.get(id).is_some_and(|until| now < *until)
    }
}

impl<C: PayingChain> Sender<C> {
    /// Settles what blocks show of reclaims, sends them again, and makes new ones where the signer `may_sign`.
    pub(super) async fn reclaim(&mut self, may_sign: bool, clock: &Clock) -> Result<(), SendError> {
        if !makes_guards(&self.network) {
            return Ok(());
        }
        self.settle_reclaims(clock.now()).await?;
        if may_sign && !halts::is_halted(&mut self.db.read().await?, self.network.chain).await? {
            self.plan_reclaims(clock).await?;
            self.sign_reclaims(clock).await?;
            self.send_reclaims(clock).await?;
        }
        Ok(())
    }

    async fn settle_reclaims(&mut self, now: Timestamp) -> Result<(), SendError> {
        let chain = self.network.chain;
        let mut reader = self.db.read().await?;
        let open = guards::open(&mut reader, chain).await?;
        let Some(finalized) = Cursor::load(&mut reader, chain).await?.finalized.filter(|_| !open.is_empty()) else {
            return Ok(());
        };
        let mut is_any = false;
        for reclaim in &open {
            is_any |= ended(&mut reader, &self.network, reclaim, &finalized).await?.is_some();
        }
        drop(reader);
        if !is_any {
            return Ok(());
        }
        let mut tx = self.begin(now).await?;
        // No block is disconnected, and none becomes final, before the end of the transaction.
        let Some(finalized) = Cursor::lock(&mut tx, chain).await?.finalized else { return Ok(()) };
        for reclaim in guards::open(&mut tx, chain).await? {
            let Some((end, shown)) = ended(&mut tx, &self.network, &reclaim, &finalized).await? else { continue };
            if let Some(shown) = shown {
                gas::book_reclaim(&mut tx, &self.network, (&reclaim, &shown), now).await?;
            }
            guards::end(&mut tx, chain, &reclaim, end).await?;
            let (count, sponsor) = (reclaim.guards.len(), reclaim.sponsor);
            match end {
                End::Landed => info!(%chain, "what {count} guards held is with sponsor {sponsor} again"),
                End::Failed => {
                    warn!(%chain, "a reclaim of {count} guards of sponsor {sponsor} failed; each is tried alone");
                    self.reclaims.refuse(reclaim.guards.iter().map(|(id, _)| *id), now);
                }
                End::Dead => debug!(%chain, "a reclaim of {count} guards of sponsor {sponsor} was not included"),
            }
        }
        Ok(self.commit(tx, now).await?)
    }

    /// Records what is to be taken back now.
    async fn plan_reclaims(&mut self, clock: &Clock) -> Result<(), SendError> {
        let (chain, now) = (self.network.chain, clock.now());
        if self.reclaims.planned_at.is_some_and(|at| at <= now && now.since(at) < PLAN_EVERY) {
            return Ok(());
        }
        self.reclaims.planned_at = Some(now);
        let mut reader = self.db.read().await?;
        let cursor = Cursor::load(&mut reader, chain).await?;
        let (Some(recent), Some(finalized)) = (cursor.at, cursor.finalized) else { return Ok(()) };
        let due = self.not_needed(&mut reader, &finalized, now).await?;
        if due.is_empty() {
            return Ok(());
        }
        let known = sponsors::of_chain(&mut reader, chain).await?;
        drop(reader);
        for (sponsor, batch) in batches(due, &self.reclaims).into_iter().take(PLANNED_MAX) {
            let is_it = |known: &&Sponsor| known.address == Some(sponsor) && known.state == SponsorState::Active;
            if clock.now().since(now) > PLAN_TIME_MAX {
                break;
            }
            // One that is too poor to carry payments takes back what it has locked all the same.
            if known.iter().find(is_it).is_none() {
                continue;
            }
            let Some((guards, compute_limit)) =
                self.quote_reclaim(&sponsor, &batch, [&recent, &finalized], now).await?
            else {
                continue;
            };
            let (recorded_at, number) = (clock.now(), 0);
            let (signed, sent_at) = (None, None);
            let reclaim = Reclaiming { sponsor, number, recent, compute_limit, recorded_at, signed, sent_at, guards };
            let mut tx = self.begin_sending(recorded_at).await?;
            guards::record(&mut tx, chain, &reclaim).await?;
            self.commit(tx, recorded_at).await?;
        }
        Ok(())
    }

    /// The guards that nothing needs any more: behind the retention, by the time of final blocks, with so many of them on top
    /// that each blockhash of that time is dead.
    async fn not_needed(
        &self,
        reader: &mut impl Connection,
        finalized: &BlockRef,
        now: Timestamp,
    ) -> Result<Vec<(Guard, Due)>, SendError> {
        let chain = self.network.chain;
        let Some(time) = cursors::time_of(reader, chain, finalized).await? else { return Ok(Vec::new()) };
        let retention = Duration::from_secs(u64::from(self.network.sending.guard_retention_hours) * 3_600);
        let mut standing = guards::standing(reader, chain, time.minus(retention), READ_MAX).await?;
        // The oldest first: what holds of the last one holds of all.
        while let Some(last) = standing.last() {
            let since = last.made_at.plus(retention);
            if cursors::higher_than(reader, chain, finalized.number, since).await? > BLOCKHASH_BLOCKS {
                break;
            }
            standing.pop();
        }
        let mut due = Vec::new();
        for guard in standing {
            if self.reclaims.rests(&guard.transfer_id, now) {
                continue;
            }
            if let Some((_, intent)) = self.signed_for(reader, guard.transfer_id).await? {
                due.push((guard, Due { id: guard.transfer_id, intent }));
            }
        }
        Ok(due)
    }

    /// What was signed last for a transfer; `None` where its asset is not listed any more.
    async fn signed_for(
        &self,
        connection: &mut impl Connection,
        id: TransferId,
    ) -> Result<Option<(Transfer, Intent)>, SendError> {
        let signed = attempts::intents_of(connection, id).await?;
        let signed = signed.into_iter().rfind(|intent| intent.signature.is_some());
        let Some((transfer, signed)) = transfers::by_id(connection, id).await?.zip(signed) else { return Ok(None) };
        let intent = self.intent(&transfer, signed.deadline_secs);
        Ok(intent.map(|intent| (transfer, intent)))
    }

    /// What each guard holds, and the compute limit; `None` where not all of them can be taken back together now. One that is
    /// not there any more is noted.
    async fn quote_reclaim(
        &mut self,
        sponsor: &Address,
        batch: &[Due],
        [recent, finalized]: [&BlockRef; 2],
        now: Timestamp,
    ) -> Result<Option<(Vec<(TransferId, u64)>, u32)>, SendError> {
        let chain = self.network.chain;
        let intents: Vec<Intent> = batch.iter().map(|due| due.intent.clone()).collect();
        match self.chain.reclaim_quote(sponsor, &intents, recent).await? {
            ReclaimQuote::Terms { lamports, compute_limit } => {
                let guards = batch.iter().zip(lamports).map(|(due, lamports)| (due.id, lamports)).collect();
                return Ok(Some((guards, compute_limit)));
            }
            ReclaimQuote::Absent(absent) => {
                for due in absent.iter().filter_map(|at| batch.get(*at)) {
                    // Another store with the same keys may have taken it back.
                    match self.chain.is_used(&due.intent, finalized).await {
                        Ok(false) => {
                            warn!(%chain, transfer = %due.id, "the guard of transfer {} is gone, by no reclaim on record", due.id);
                            let mut tx = self.begin(now).await?;
                            guards::gone(&mut tx, due.id).await?;
                            self.commit(tx, now).await?;
                        }
                        Ok(true) | Err(_) => self.reclaims.refuse([due.id], now),
                    }
                }
            }
            ReclaimQuote::Refused(said) => {
                warn!(%chain, "{} guards of sponsor {sponsor} cannot be taken back now: {said}", batch.len());
                self.reclaims.refuse(batch.iter().map(|due| due.id), now);
            }
            ReclaimQuote::Poor => self.rest_poor(sponsor, now).await?,
            ReclaimQuote::NotYet => {}
        }
        Ok(None)
    }

    /// Signs what is on record and not signed; what the signer refuses is taken off the record.
    async fn sign_reclaims(&mut self, clock: &Clock) -> Result<(), SendError> {
        let chain = self.network.chain;
        let mut reader = self.db.read().await?;
        let open = guards::open(&mut reader, chain).await?;
        let known = sponsors::of_chain(&mut reader, chain).await?;
        let mut requests = Vec::new();
        for reclaim in open.into_iter().filter(|reclaim| reclaim.signed.is_none()).take(PLANNED_MAX) {
            let (mut payers, mut intents) = (Vec::new(), Vec::new());
            for (id, lamports) in &reclaim.guards {
                let Some((transfer, intent)) = self.signed_for(&mut reader, *id).await? else { continue };
                payers.push(KeyPath::of_wallet(chain.family(), &transfer.account_id, &transfer.source_tag));
                intents.push((intent, *lamports));
            }
            let sponsor = known.iter().find(|known| known.address == Some(reclaim.sponsor));
            let number = sponsor.filter(|it| it.state != SponsorState::Quarantined).map(|it| it.number);
            let Some(number) = number.filter(|_| intents.len() == reclaim.guards.len()) else { continue };
            let Reclaiming { sponsor, recent, compute_limit, .. } = reclaim;
            let asked = Reclaim { sponsor, guards: intents, blockhash: recent.hash, compute_limit };
            requests.push((reclaim, SignRequest::Reclaim { path: self.sponsor_path(number), payers, reclaim: asked }));
        }
        drop(reader);
        if requests.is_empty() {
            return Ok(());
        }
        let asked: Vec<SignRequest> = requests.iter().map(|(_, request)| request.clone()).collect();
        let answers = self.signer.sign(&asked).await?;
        let now = clock.now();
        let mut tx = self.begin_sending(now).await?;
        self.seen(&mut tx, &answers).await?;
        for ((reclaim, _), answer) in requests.into_iter().zip(answers) {
            match answer {
                Ok(Signed { bytes, tx: Some(id), .. }) => guards::sign(&mut tx, chain, &reclaim, (&bytes, &id)).await?,
                Ok(Signed { tx: None, .. }) => warn!(%chain, "the signer gave a reclaim no id"),
                Err(refusal) => {
                    error!(%chain, "a reclaim of {} guards is not signed: {refusal}", reclaim.guards.len());
                    // Nothing of it can have left.
                    guards::end(&mut tx, chain, &reclaim, End::Dead).await?;
                    self.reclaims.refuse(reclaim.guards.iter().map(|(id, _)| *id), now);
                }
            }
        }
        Ok(self.commit(tx, now).await?)
    }

    async fn send_reclaims(&mut self, clock: &Clock) -> Result<(), SendError> {
        let (chain, now) = (self.network.chain, clock.now());
        let is_due = |reclaim: &Reclaiming| {
            let waits = reclaim.sent_at.is_none_or(|at| now.since(at) >= RESEND || now < at);
            waits && now.since(reclaim.recorded_at) < RESEND_FOR
        };
        let mut open = guards::open(&mut self.db.read().await?, chain).await?;
        open.retain(|reclaim| reclaim.signed.is_some() && is_due(reclaim));
        if open.is_empty() {
            return Ok(());
        }
        let sending = open.iter().filter_map(|reclaim| reclaim.signed.as_ref());
        join_all(sending.map(async |(raw, id)| self.chain.broadcast(id, raw).await)).await;
        let now = clock.now();
        let mut tx = self.begin(now).await?;
        for reclaim in &open {
            guards::sent(&mut tx, chain, reclaim, now).await?;
        }
        Ok(self.commit(tx, now).await?)
    }
}

/// Whether transactions that pay here make guards.
pub(super) fn makes_guards(network: &Network) -> bool {
    let is_guarded = |asset: &Asset| matches!(asset.route, Some(Route::Guard { .. }));
    network.chain.family() == Family::Solana || network.assets.iter().any(is_guarded)
}

/// What final blocks say became of it; `None` while it may still land.
async fn ended(
    connection: &mut impl Connection,
    network: &Network,
    reclaim: &Reclaiming,
    finalized: &BlockRef,
) -> Result<Option<(End, Option<Shown>)>, StoreError> {
    if let Some(shown) = guards::shown(connection, network.chain, reclaim, finalized.number).await? {
        let all: u64 = reclaim.guards.iter().map(|(_, lamports)| *lamports).sum();
        let end = if shown.brought == all { End::Landed } else { End::Failed };
        return Ok(Some((end, Some(shown))));
    }
    let higher = cursors::higher_by(connection, network.chain, (reclaim.recent.number, finalized.number)).await?;
    Ok((higher > BLOCKHASH_BLOCKS).then_some((End::Dead, None)))
}

/// Those of each sponsor together, as many as always fit; what was refused before alone.
fn batches(due: Vec<(Guard, Due)>, reclaims: &Reclaims) -> Vec<(Address, Vec<Due>)> {
    let mut batches = Vec::new();
    let mut together: BTreeMap<Address, Vec<Due>> = BTreeMap::new();
    for (guard, due) in due {
        if reclaims.refused.contains_key(&due.id) {
            batches.push((guard.sponsor, vec![due]));
            continue;
        }
        let batch = together.entry(guard.sponsor).or_default();
        batch.push(due);
        if batch.len() == RECLAIM_GUARDS_MAX {
            batches.push((guard.sponsor, std::mem::take(batch)));
        }
    }
    batches.extend(together.into_iter().filter(|(_, batch)| !batch.is_empty()));
    batches
}
