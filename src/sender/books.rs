//! Compares what each sponsor owns with the ledger, at the start and every hour. Between two final blocks it owns less by the
//! costs that are booked and by what guards locked, and more by what came and by what reclaims took back, to the base unit.
//!
//! What it owns is what as many endpoints as must agree report; what it spent is what was booked. So a cost that nobody booked
//! is noticed. Promises:
//! - Compared is only what is settled: both blocks are final, and all up to there is booked and judged, its reclaims ended.
//! - A difference is an incident, one of each sponsor, which a person resolves. It holds nothing up.
//! - More than there should be counts only where all that comes is seen.
//!
//! What a transaction took that nobody here signed is taken for explained: its incident is `foreign_spend`.

use std::time::Duration;

use landfall_chain::{Address, AssetId, BlockRef, Chain, PayingChain, SourceError, U256};
use tracing::{error, warn};

use crate::balance::{self, HeldAfter, Moved, Unexplained};
use crate::gas::GasCurrency;
use crate::incident::{Incident, IncidentKind};
use crate::sender::report::ASKED_TIME_MAX;
use crate::sender::sponsors::CHECK_EVERY;
use crate::sender::{SendError, Sender};
use crate::store::cursors::{self, Cursor};
use crate::store::sponsor_books::{self, Kept, Owned};
use crate::store::sponsors::{self, Sponsor};
use crate::store::{Connection, StoreError, Tx, balances, gas_ledger, guards, incidents, spends, traces};
use crate::time::{Clock, Timestamp};

const KIND: IncidentKind = IncidentKind::LedgerDiffers;
/// How soon sponsors are asked for again where one was not reported.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// What this process has read and not compared yet. To forget it costs requests only.
#[derive(Debug, Default)]
pub(super) struct Readings {
    read_at: Option<Timestamp>,
    /// Not all sponsors were reported.
    is_missing: bool,
    waiting: Vec<Reading>,
}

/// What was reported of a sponsor.
#[derive(Clone, Copy, Debug)]
struct Reading {
    sponsor: u32,
    address: Address,
    has: HeldAfter,
}

/// A reading beside the one before.
struct Compared {
    kept: Kept,
    /// What moved between the two.
    moved: Moved,
    difference: Option<Unexplained>,
}

impl Readings {
    fn are_due(&self, now: Timestamp) -> bool {
        let pause = if self.is_missing { AGAIN_AFTER } else { CHECK_EVERY };
        self.read_at.is_none_or(|at| now < at || now.since(at) >= pause)
    }
}

impl<C: PayingChain> Sender<C> {
    /// Reads what sponsors own when it is time to, and compares what was read once it is settled.
    pub(super) async fn check_books(&mut self, recovers: bool, clock: &Clock) -> Result<(), SendError> {
        // Until a chain has recovered, the costs of the lost store are not all booked. What is not listed, or not shown, is never
        // booked.
        if recovers || !self.network.sending.shows_each_cost || GasCurrency::of(&self.network).is_none() {
            return Ok(());
        }
        self.read_sponsors(clock.now()).await?;
        let waiting = self.readings.waiting.clone();
        let Some(through) = waiting.iter().map(|reading| reading.has.number).max() else { return Ok(()) };
        if !self.is_settled(through).await? {
            return Ok(());
        }
        for reading in waiting {
            self.compare_books(&reading, clock.now()).await?;
        }
        self.readings.waiting.clear();
        Ok(())
    }

    /// Asks what sponsors own after the newest final block, of those whose movements are all seen from there on.
    async fn read_sponsors(&mut self, now: Timestamp) -> Result<(), SendError> {
        if !self.readings.are_due(now) {
            return Ok(());
        }
        let chain = self.network.chain;
        let mut reader = self.db.read().await?;
        let known = sponsors::of_chain(&mut reader, chain).await?;
        let finalized = Cursor::load(&mut reader, chain).await?.finalized;
        drop(reader);
        let Some(at) = finalized else { return Ok(()) };
        let derived = known.iter().filter_map(|of: &Sponsor| Some((of.number, of.address?, of.seen_from?)));
        let (asked, early): (Vec<_>, Vec<_>) = derived.partition(|(.., from)| *from <= at.number.saturating_add(1));
        self.readings = Readings { read_at: Some(now), is_missing: !early.is_empty(), waiting: Vec::new() };
        if asked.is_empty() {
            return Ok(());
        }
        let addresses: Vec<Address> = asked.iter().map(|(_, address, _)| *address).collect();
        let answer = tokio::time::timeout(ASKED_TIME_MAX, self.chain.holdings(&addresses, &[AssetId::Native], &at));
        let late = |_| Err(SourceError::transient("nobody answers in time"));
        let mut amounts = match answer.await.unwrap_or_else(late) {
            Ok(holdings) => holdings.amounts.into_iter(),
            Err(error) => {
                warn!(%chain, "what sponsors own on {chain} after block {at} is not known: {error}");
                Vec::new().into_iter()
            }
        };
        for (sponsor, address, _) in asked {
            match amounts.next().and_then(|held| held.into_iter().next().flatten()) {
                Some(held) => {
                    let has = HeldAfter { number: held.number, amount: held.amount };
                    self.readings.waiting.push(Reading { sponsor, address, has });
                }
                None => self.readings.is_missing = true,
            }
        }
        Ok(())
    }

    /// Whether the block `through` is final, and all that sponsors paid for up to it is booked, judged, and ended.
    async fn is_settled(&self, through: u64) -> Result<bool, StoreError> {
        let (chain, mut reader) = (self.network.chain, self.db.read().await?);
        let finalized = Cursor::load(&mut reader, chain).await?.finalized;
        if finalized.is_none_or(|finalized| finalized.number < through)
            || !gas_ledger::landed(&mut reader, chain, through, 1).await?.is_empty()
            || !spends::waiting(&mut reader, chain, through, 1).await?.is_empty()
        {
            return Ok(false);
        }
        for reclaim in guards::open(&mut reader, chain).await? {
            if guards::shown(&mut reader, chain, &reclaim, through).await?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Compares a settled reading with the one before, and puts it in its place.
    async fn compare_books(&mut self, reading: &Reading, now: Timestamp) -> Result<(), SendError> {
        let (chain, Reading { address, has, .. }) = (self.network.chain, reading);
        // There may be many movements, and nobody waits for this.
        let before = compared(&mut self.db.read().await?, chain, reading).await?;
        let mut tx = self.begin(now).await?;
        // No block is disconnected before the end of the transaction.
        Cursor::lock(&mut tx, chain).await?;
        let Some(hash) = cursors::canonical_at(&mut tx, chain, has.number).await? else { return Ok(()) };
        let newest = Owned { block: BlockRef { number: has.number, hash }, amount: has.amount };
        let kept = sponsor_books::of_sponsor(&mut tx, chain, address).await?;
        let is_even = before.as_ref().is_some_and(|it| it.difference.is_none() && Some(it.kept) == kept);
        let compared = if is_even { before } else { compared(&mut tx, chain, reading).await? };
        let kept = match (compared, kept) {
            (Some(compared), _) => self.judge_books(&mut tx, reading, newest, &compared, now).await?,
            (None, None) => Kept { newest, since: None },
            // A newer one is on record.
            (None, Some(_)) => return Ok(()),
        };
        sponsor_books::keep(&mut tx, chain, address, &kept).await?;
        Ok(self.commit(tx, now).await?)
    }

    /// What is on record from now on. A difference is an incident, or renews the open one, which then counts from its first
    /// reading.
    async fn judge_books(
        &self,
        tx: &mut Tx,
        reading: &Reading,
        newest: Owned,
        compared: &Compared,
        now: Timestamp,
    ) -> Result<Kept, StoreError> {
        let (chain, address, Compared { kept, moved, difference }) = (self.network.chain, reading.address, compared);
        let counts = match difference {
            Some(Unexplained::Less(_)) => true,
            Some(Unexplained::More(_)) => is_all_seen(tx, chain, [&kept.newest, &newest]).await?,
            None => false,
        };
        let open = incidents::of_balance(tx, chain, KIND, &address, &AssetId::Native).await?;
        let since = match kept.since.filter(|_| open.is_some()) {
            Some((had, before)) => Some((had, before.plus(moved))),
            None => counts.then_some((kept.newest, *moved)),
        };
        if let Some((had, moved)) = since.filter(|_| counts)
            && let Some(difference) = readings(chain, address, &had, reading.has).unexplained(&moved)
        {
            let what = self.what_differs(reading, [&had, &newest], &moved, difference);
            let incident = Incident::open(chain, KIND, what, Some(newest.block.number), now);
            let incident = incident.about_balance(address, AssetId::Native);
            if incidents::meet(tx, &incident).await? {
                error!(%chain, "incident {} on {chain}: {}", incident.id, incident.what);
            }
        }
        Ok(Kept { newest, since })
    }

    /// What differs, and what to do about it.
    fn what_differs(
        &self,
        Reading { sponsor, address, .. }: &Reading,
        [had, has]: [&Owned; 2],
        moved: &Moved,
        difference: Unexplained,
    ) -> String {
        let (chain, noun) = (self.network.chain, self.network.chain.family().number());
        let symbol = self.network.asset(&AssetId::Native).map_or("", |native| native.symbol.as_str());
        let differs = match difference {
            Unexplained::More(by) => format!("{by} base units of {symbol} more"),
            Unexplained::Less(by) => format!("{by} base units of {symbol} less"),
        };
        let should: U256 = had.amount.saturating_add(moved.came).saturating_sub(moved.left);
        format!(
            "sponsor {sponsor} ({address}) on {chain} owns {differs} than the ledger says: after {noun} {} it owned {}, {} came \
             and {} left by the ledger, so that it should own {should}, and after {noun} {} it owns {}. Compare its transactions \
             in these blocks with `landfall gas ledger`. Then `landfall incident resolve`; nothing else resolves this, and the \
             next comparison starts from the newest reading",
            had.block, had.amount, moved.came, moved.left, has.block, has.amount
        )
    }
}

/// `None` before the first reading, and where one as new is on record.
async fn compared(
    connection: &mut impl Connection,
    chain: Chain,
    Reading { address, has, .. }: &Reading,
) -> Result<Option<Compared>, StoreError> {
    let kept = sponsor_books::of_sponsor(connection, chain, address).await?;
    let Some(kept) = kept.filter(|kept| kept.newest.block.number < has.number) else { return Ok(None) };
    let between = (kept.newest.block.number, has.number);
    let moved = sponsor_books::moved(connection, chain, address, between).await?;
    let difference = readings(chain, *address, &kept.newest, *has).unexplained(&moved);
    Ok(Some(Compared { kept, moved, difference }))
}

/// Whether all that came between two readings is on record.
async fn is_all_seen(
    connection: &mut impl Connection,
    chain: Chain,
    [had, has]: [&Owned; 2],
) -> Result<bool, StoreError> {
    let behind = had.block.number.saturating_add(1)..=has.block.number;
    let followed = balances::followed(connection, chain).await?;
    let native = followed.iter().find(|followed| followed.asset == AssetId::Native);
    let is_seen = native.and_then(|native| native.explained_from).is_some_and(|from| from <= *behind.start());
    Ok(is_seen && !traces::are_untraced(connection, chain, behind).await?)
}

fn readings(chain: Chain, address: Address, had: &Owned, has: HeldAfter) -> balance::Readings {
    let had = HeldAfter { number: had.block.number, amount: had.amount };
    balance::Readings { chain, address, asset: AssetId::Native, had, has }
}
