//! Reads a Solana network: tip, headers, blocks with their content, where a transaction is.
//!
//! Slots are listed first and then read, each at the endpoint that leads, and at the others when that one does not
//! have it. A few slots up to the newest block need no list: each block names its parent. Promises: the returned
//! blocks are linked. No error, no null and no empty list counts as an empty slot. Where two endpoints must agree, a
//! full read returns only a block that two reported alike, or the reason why not. Of the candidates a sample is
//! compared too, at the latest before it counts as final. All others are one endpoint's report, and say so. The
//! instructions of a transaction are asked for only where balances do not show who paid, and decide nothing else.
//! Deliberately not here: when two report a block alike (`quorum`), and how long the second one is waited for
//! (`second_wait`).

use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt, TryStreamExt, stream};
use landfall_chain::{
    AssetTransfer, Block, BlockRef, BlockSource, Debits, Endpoints, Fate, Header, Lane, Legs, Network, Payer, Read,
    ReadProof, Searching, SenderRule, SourceError, Tip, TxRef,
};
use landfall_rpc::{EndpointUrl, Need, Responses};
use tokio::sync::Notify;
use tokio::time::Instant;
use url::Url;

use crate::calls::{
    BLOCK, BLOCKS, Paid, Reader, Reading, TRANSACTION, Wanted, read_fate, read_header, read_slots, read_time,
};
use crate::cross_check::CrossCheck;
use crate::dialect::{Endpoint, Pool, Solana, is_not_found};
use crate::error::SolanaError;
use crate::networks;
use crate::options::Options;
use crate::pay::asking::LatelyRead;
use crate::quorum::{self, Agreed, Reported, Testimony, Witnessed};
use crate::readings::{KeptReading, Readings};
use crate::rules::Rules;
use crate::sample::Sample;
use crate::second_wait::{Lacked, Patience};
use crate::walk::{Linked, NOT_FOUND_MAX, linked};

/// How many slots one read covers at most; the rest is not returned. Fork points are searched in as many.
const SLOTS_MAX: u64 = 256;
/// How many transactions are asked for at once.
const TRANSACTIONS_MAX: usize = 4;
/// Up to how many slots are read without a list, one block after the other from the newest one down.
const NEAR_SLOTS_MAX: u64 = 10;
/// How many blocks below one without a time are read for one that has it.
const TIMELESS_MAX: usize = 32;

/// One Solana network, read over JSON-RPC.
#[derive(Debug)]
pub struct SolanaSource {
    pub(crate) reader: Reader,
    pub(crate) pool: Pool,
    /// What was reported of the chain's end.
    reported: Mutex<Option<Tip>>,
    pub(crate) readings: Readings,
    sample: Sample,
    patience: Patience,
    pub(crate) cross_check: CrossCheck,
    pub(crate) searching: Searching,
    pub(crate) lately: LatelyRead,
}

impl SolanaSource {
    /// A source over `urls`. Touches no network.
    ///
    /// # Errors
    /// A network of another family, and a URL that cannot be used.
    pub fn new(network: &Network, urls: &[Url]) -> Result<Self, SolanaError> {
        SolanaSource::at(network, urls.iter().cloned().map(EndpointUrl::from).collect(), &Options::default())
    }

    /// As [`SolanaSource::new`], with headers, and with what an operator sets beside the network's facts.
    ///
    /// # Errors
    /// As [`SolanaSource::new`], and a header that cannot be sent.
    pub fn at(network: &Network, urls: Vec<EndpointUrl>, options: &Options) -> Result<Self, SolanaError> {
        let chain = network.chain;
        let genesis = networks::genesis(chain).ok_or(SolanaError::NotSolana { chain })?;
        let genesis = options.genesis.unwrap_or(genesis);
        let pool = Pool::over(Solana::new(genesis, &network.finality, options.poll), chain, urls, options.timings)?;
        let rules = Rules::of(network).with_options(options);
        let reader = Reader::new(rules, options.max_transaction_version);
        let (readings, sample, cross_check) = (Readings::default(), Sample::default(), CrossCheck::default());
        let (reported, searching, patience) =
            (Mutex::new(None), Searching::default(), Patience::of(options.timings.second_wait));
        let lately = LatelyRead::default();
        Ok(SolanaSource { reader, pool, reported, readings, sample, patience, cross_check, searching, lately })
    }

    /// With another choice of the blocks that are compared although they concern nobody.
    #[must_use]
    pub fn with_sample(self, sample: Sample) -> Self {
        SolanaSource { sample, ..self }
    }

    /// Sets how many endpoints must agree on what is final, and whether two must report a block alike: with 1, one
    /// endpoint's report counts. Without this call it is two, or one where there is only one. An operator may override
    /// it at run time: [`Endpoints::override_agree`].
    ///
    /// # Errors
    /// More than are configured, and zero.
    pub fn set_agree(&self, agree: usize) -> Result<(), SolanaError> {
        Ok(self.pool.set_agree(agree)?)
    }

    /// The states of the endpoints; clones share them.
    pub fn endpoints(&self) -> Endpoints {
        self.pool.endpoints()
    }

    /// Notified when there may be a new block, if a `ws` URL says so while [`SolanaSource::listen`] runs.
    pub fn wake_up(&self) -> Arc<Notify> {
        self.pool.wake_up()
    }

    /// Listens for wake-ups, for ever. Without a `ws` URL it does nothing.
    pub fn listen(&self) -> impl Future<Output = ()> + Send + 'static {
        self.pool.listen()
    }

    /// For the start: asks every endpoint for its genesis hash that has not reported it yet.
    ///
    /// # Errors
    /// Permanent when an endpoint serves another cluster; transient when one cannot be asked.
    pub async fn check(&self) -> Result<(), SourceError> {
        Ok(self.pool.check().await?)
    }
}

impl BlockSource for SolanaSource {
    async fn tip(&self) -> Result<Tip, SourceError> {
        let tip = self.pool.tip().await?;
        *self.reported.lock().unwrap_or_else(PoisonError::into_inner) = Some(tip.clone());
        Ok(tip)
    }

    async fn headers(&self, range: RangeInclusive<u64>) -> Result<Vec<Header>, SourceError> {
        let range = narrow(range);
        let headers = self.walk(&range, |wanted| self.header(wanted)).await?;
        Ok(self.timed(headers).await?)
    }

    async fn blocks(&self, range: RangeInclusive<u64>, read: Read) -> Result<Vec<Block>, SourceError> {
        let range = narrow(range);
        // A slot of which a reading is kept, and which is wanted in full, is known to hold a block.
        let is_known =
            read.proof == ReadProof::Full && range.start() == range.end() && self.readings.of(*range.start()).is_some();
        let block = |wanted| self.block(wanted, read);
        let blocks = if is_known {
            linked(*range.start(), vec![by_slot(*range.start())], block).await?
        } else {
            self.walk(&range, block).await?
        };
        let mut blocks = self.timed(blocks).await?;
        if read.lane == Lane::Traces {
            // Balances have shown all of it in the other lane.
            for block in &mut blocks {
                block.transfers.clear();
                block.debits = Debits::Net(Vec::new());
                block.unattributed.clear();
                block.fees.clear();
                block.marks.clear();
                block.rejected.clear();
            }
        }
        Ok(blocks)
    }

    async fn final_at(&self, number: u64) -> Result<Option<BlockRef>, SourceError> {
        Ok(self.pool.final_at(number).await?)
    }

    async fn cross_check(
        &self,
        below: &BlockRef,
        range: RangeInclusive<u64>,
        ours: &[BlockRef],
        may_come: bool,
    ) -> Result<Option<u64>, SourceError> {
        Ok(self.look_at(below, &range, ours, may_come).await?)
    }

    /// What a transaction of Solana used up is not known, so its fate is never that it can no longer land.
    async fn fate(&self, tx: &TxRef, at: &BlockRef) -> Result<Fate, SourceError> {
        let id = tx.id;
        let read = move |endpoint| -> BoxRead<'_, _> { Box::pin(async move { read_fate(endpoint, &id).await }) };
        Ok(self.pool.fate(at, read).await?)
    }

    async fn payers(&self, block: &BlockRef, transfers: &[AssetTransfer]) -> Result<Vec<Payer>, SourceError> {
        let slot = block.number;
        let asked = stream::iter(transfers.to_vec()).map(|transfer| self.payer(slot, transfer));
        Ok(asked.buffered(TRANSACTIONS_MAX).try_collect().await?)
    }

    fn rules(&self) -> String {
        self.reader.rules.words()
    }
}

impl SolanaSource {
    /// What `read` shows of the range, linked.
    async fn walk<T, F>(
        &self,
        range: &RangeInclusive<u64>,
        read: impl Fn(Wanted) -> F + Sync,
    ) -> Result<Vec<T>, SolanaError>
    where
        T: Linked + Send,
        F: Future<Output = Result<T, SolanaError>> + Send,
    {
        let first = *range.start();
        if let Some(newest) = self.near(range) {
            match linked(first, vec![newest], &read).await {
                Err(error) if !error.is_permanent() => {}
                found => return found,
            }
        }
        // What is missing then is read by the list, which shows what there is below.
        let slots = self.slots(range).await?.into_iter().map(by_slot);
        match linked(first, slots.collect(), &read).await {
            Err(error) if is_not_found(&error) && self.is_jumped_over(range).await => Ok(Vec::new()),
            shown => shown,
        }
    }

    /// Whether the next block above `range` stands on one below it, so that what a list names in it may be no block.
    /// An empty answer proves nothing: the caller goes on to that block, whose parent does.
    async fn is_jumped_over(&self, range: &RangeInclusive<u64>) -> bool {
        let above = range.end().saturating_add(1);
        if self.newest_reported().is_some_and(|newest| newest.number < above) {
            return false;
        }
        for slot in self.slots(&narrow(above..=u64::MAX)).await.unwrap_or_default().into_iter().take(NOT_FOUND_MAX) {
            match self.header(by_slot(slot)).await {
                Ok(next) => return next.parent.number < *range.start(),
                Err(error) if is_not_found(&error) => {}
                Err(_) => return false,
            }
        }
        false
    }

    fn newest_reported(&self) -> Option<BlockRef> {
        self.tip_reported().map(|tip| tip.latest)
    }

    pub(crate) fn tip_reported(&self) -> Option<Tip> {
        self.reported.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The newest block, where all of a few slots lie up to it.
    fn near(&self, range: &RangeInclusive<u64>) -> Option<Wanted> {
        let newest = self.newest_reported()?;
        let is_near =
            !range.is_empty() && newest.number == *range.end() && range.end() - range.start() < NEAR_SLOTS_MAX;
        is_near.then_some(Wanted { slot: newest.number, hash: Some(newest.hash) })
    }

    /// The slots of `range` that hold a block, as reported by the first endpoint that names any. A node with a hole in
    /// its ledger leaves slots out. That all of them are empty is returned only after every endpoint was asked, and
    /// even then proves nothing.
    async fn slots(&self, range: &RangeInclusive<u64>) -> Result<Vec<u64>, SolanaError> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let need = Need { first: *range.start(), last: *range.end(), methods: &[BLOCKS] };
        let reached = self.newest_reported().map(|reported| reported.number.min(*range.end()));
        let read = |endpoint| -> BoxRead<'_, _> {
            let (range, reached) = (range.clone(), reached.map(|reached| reached_by(endpoint, need.first, reached)));
            Box::pin(async move {
                let slots = read_slots(endpoint, range, "confirmed", reached).await?;
                Ok(Some(slots).filter(|slots| !slots.is_empty()))
            })
        };
        Ok(self.first_to_know(self.pool.candidates(need).await, read).await?.unwrap_or_default())
    }

    /// What the first of `endpoints` reports that knows anything; `None` when none does, which is no failure of
    /// theirs.
    async fn first_to_know<'a, T>(
        &'a self,
        endpoints: Vec<&'a Endpoint>,
        read: impl Fn(&'a Endpoint) -> BoxRead<'a, Option<T>> + Send,
    ) -> Result<Option<T>, SolanaError> {
        let (mut is_answered, mut last) = (false, None);
        for endpoint in endpoints {
            let begun = Instant::now();
            match read(endpoint).await {
                Ok(reported) => {
                    endpoint.answered(begun, None);
                    is_answered = true;
                    if reported.is_some() {
                        return Ok(reported);
                    }
                }
                Err(error) if error.is_permanent() => return Err(error),
                Err(error) => {
                    // One that does not have it yet stays as healthy as before.
                    if is_not_found(&error) {
                        endpoint.answered(begun, None);
                    } else {
                        endpoint.failed(&error);
                    }
                    last = Some(error);
                }
            }
        }
        if is_answered { Ok(None) } else { Err(last.unwrap_or_else(|| self.pool.nobody())) }
    }

    /// Who paid, as the first endpoint reports that can. It is the fee payer only when each says that it cannot report
    /// it. An endpoint that failed, or must not be asked now, may know it: an error. One that does not know the
    /// transaction may not know it yet: it stays the stand-in.
    async fn payer(&self, slot: u64, transfer: AssetTransfer) -> Result<Payer, SolanaError> {
        if transfer.sender_rule != SenderRule::StandIn {
            return Ok(transfer.payer());
        }
        let endpoints = self.pool.of_use(Need { first: slot, last: slot, methods: &[TRANSACTION] }).await;
        let mut last = (endpoints.is_empty() || self.pool.misses_somebody()).then(|| self.pool.nobody());
        let mut rule = SenderRule::FeePayer;
        for endpoint in endpoints {
            match self.reader.payer(endpoint, slot, &transfer).await {
                Ok(Paid::By(payer)) => return Ok(payer),
                Ok(Paid::NotYet) => rule = SenderRule::StandIn,
                Ok(Paid::Unreported) => {}
                Err(error) => last = Some(error),
            }
        }
        last.map_or(Ok(Payer { sender: transfer.sender, rule }), Err)
    }

    pub(crate) async fn header(&self, wanted: Wanted) -> Result<Header, SolanaError> {
        let read = move |endpoint| -> BoxRead<'_, _> {
            Box::pin(async move {
                let header = read_header(endpoint, wanted.slot).await?;
                wanted.check(endpoint, &header)?;
                self.cross_check.check(endpoint, &header)?;
                Ok(header)
            })
        };
        self.pool.call(need(wanted.slot), read).await
    }

    async fn block(&self, wanted: Wanted, read: Read) -> Result<Block, SolanaError> {
        let must = self.pool.must_agree();
        if must <= 1 {
            return Ok(self.reported_by_one(wanted, read.legs).await?.1.block);
        }
        let slot = wanted.slot;
        match read.proof {
            ReadProof::Full => {
                let reading = self.readings.of(slot);
                let reported = match &reading {
                    Some(reading) => self.as_reported(reading).await,
                    None => Vec::new(),
                };
                let finalized = self.tip_reported().and_then(|tip| tip.finalized);
                let is_final = finalized.is_some_and(|finalized| slot <= finalized.number);
                let patience = if is_final { Duration::ZERO } else { self.patience.most };
                let agreed = self.reported_by_two(wanted, read.legs, reported, patience).await;
                // It was read as a candidate before, and if that is used, it must be compared before it counts as
                // final.
                if let (Err(SolanaError::Unwitnessed { .. }), Some(reading)) = (&agreed, reading) {
                    self.readings.keep(KeptReading { owed: true, ..reading });
                }
                Ok(agreed?.block)
            }
            ReadProof::Candidate => {
                let (endpoint, Reading { digest, block }) = self.reported_by_one(wanted, read.legs).await?;
                // An owed block that is connected anew must be compared too.
                let is_owed = self.readings.of(slot).is_some_and(|reading| reading.owed);
                let owed = is_owed || self.sample.picks(&block.header.block.hash);
                if owed {
                    let reported = vec![(endpoint, Witnessed { digest, block: Some(block.clone()) })];
                    match self.reported_by_two(wanted, read.legs, reported, Duration::ZERO).await {
                        // It waits for no second endpoint: the block is compared before it counts as final, and at
                        // once where it concerns somebody.
                        Err(SolanaError::Unwitnessed { .. }) => {}
                        reported => return Ok(reported?.block),
                    }
                }
                self.readings.keep(KeptReading { endpoint: endpoint.id.clone(), digest, owed });
                Ok(block)
            }
        }
    }

    async fn reported_by_one(&self, wanted: Wanted, legs: Legs) -> Result<(&Endpoint, Reading), SolanaError> {
        let read = move |endpoint| -> BoxRead<'_, _> {
            Box::pin(async move { Ok((endpoint, self.read(endpoint, wanted, legs).await?)) })
        };
        self.pool.call(need(wanted.slot), read).await
    }

    async fn read(&self, endpoint: &Endpoint, wanted: Wanted, legs: Legs) -> Result<Reading, SolanaError> {
        let reading = self.reader.block(endpoint, wanted, legs).await?;
        self.cross_check.check(endpoint, &reading.block.header)?;
        Ok(reading)
    }

    /// A report that was kept, if its endpoint is still believed.
    pub(crate) async fn as_reported(&self, reading: &KeptReading) -> Vec<Reported<'_>> {
        let endpoints = self.pool.of_use(need(reading.digest.block.number)).await;
        let reported_by = endpoints.into_iter().find(|endpoint| endpoint.id == reading.endpoint);
        reported_by.map(|endpoint| (endpoint, Witnessed { digest: reading.digest, block: None })).into_iter().collect()
    }

    /// The block as two endpoints report it, see [`SolanaSource::hear_two`]. One that reports it otherwise than two
    /// others is put into quarantine.
    async fn reported_by_two<'p>(
        &'p self,
        wanted: Wanted,
        legs: Legs,
        reported: Vec<Reported<'p>>,
        patience: Duration,
    ) -> Result<Agreed<'p>, SolanaError> {
        let agreed = self.believed(self.hear_two(wanted, legs, reported, patience).await?)?;
        self.readings.forget(wanted.slot);
        Ok(agreed)
    }

    /// What endpoints report of a block, until two report it alike; `reported` is what is known of it already. One
    /// that does not have it yet is waited for up to `patience`, if that is worth it, and asked again when a poll
    /// shows that it has come further. One that fails is not asked again meanwhile.
    pub(crate) async fn hear_two<'p>(
        &'p self,
        wanted: Wanted,
        legs: Legs,
        mut reported: Vec<Reported<'p>>,
        patience: Duration,
    ) -> Result<Testimony<'p>, SolanaError> {
        let lacked = Arc::new(Lacked::default());
        let read = |endpoint: &'p Endpoint| -> BoxRead<'p, Witnessed> {
            let lacked = Arc::clone(&lacked);
            Box::pin(async move {
                lacked.check(endpoint, wanted.slot)?;
                let head = endpoint.head();
                let read = self.read(endpoint, wanted, legs).await;
                let read = read.inspect_err(|error| lacked.note(endpoint, head, error))?;
                lacked.forget(endpoint);
                self.patience.reported(endpoint, wanted.slot);
                Ok(read.into())
            })
        };
        let (begun, mut failed) = (Instant::now(), Vec::new());
        loop {
            let responses = self.pool.call_each_but(failed, need(wanted.slot), reported, read, quorum::agree).await?;
            let Responses { reported: all, failed: at_it, missing, is_not_found, unanswered } = responses;
            (reported, failed) = (all, at_it);
            if !quorum::agree(&reported) && reported.len() > 1 && reported.iter().any(|(_, one)| one.block.is_none()) {
                // What was reported before may be out of date: it is reported anew before any endpoint counts as
                // contradicting it.
                self.readings.doubt(wanted.slot);
                reported.retain(|(_, one)| one.block.is_some());
                continue;
            }
            let is_over = begun.elapsed() >= patience;
            if quorum::agree(&reported) || !is_not_found || is_over || !self.patience.is_left(&lacked) {
                if is_not_found && is_over && !patience.is_zero() && !quorum::agree(&reported) {
                    self.patience.is_spent(&lacked, wanted.slot);
                }
                return Ok(Testimony { reported, missing, all_lack: is_not_found && unanswered.is_empty() });
            }
            tokio::time::sleep(self.pool.timings().second_wait_check).await;
            self.pool.look().await;
        }
    }

    /// What two of them report alike.
    pub(crate) fn believed<'p>(&self, responses: Testimony<'p>) -> Result<Agreed<'p>, SolanaError> {
        let Testimony { reported, missing, all_lack } = responses;
        let believed = quorum::believed(self.pool.chain(), reported, &missing);
        let mut agreed = believed.map_err(|error| match error {
            SolanaError::Unwitnessed { chain, reported, missing, .. } => {
                SolanaError::Unwitnessed { chain, reported, missing, all_lack }
            }
            error => error,
        })?;
        for (endpoint, error) in agreed.wrong.drain(..) {
            endpoint.failed(&error);
        }
        Ok(agreed)
    }

    /// The same, each with a time. Where a node does not report one (yet), it is the time that another one reports, or
    /// that of the nearest block below that has one.
    async fn timed<T: Linked>(&self, mut shown: Vec<T>) -> Result<Vec<T>, SolanaError> {
        let mut below = None;
        for header in shown.iter_mut().map(Linked::header_mut) {
            if header.time_secs == 0 {
                header.time_secs = self.time_of(header, below).await?;
            }
            below = Some(header.time_secs);
        }
        Ok(shown)
    }

    /// The time of a block that was read without one; `below` is that of its parent, where that is known.
    async fn time_of(&self, untimed: &Header, below: Option<u64>) -> Result<u64, SolanaError> {
        let mut header = *untimed;
        for _ in 0..TIMELESS_MAX {
            if let Some(reported) = self.reported_time(&header.block).await? {
                return Ok(reported);
            }
            if let Some(below) = below {
                return Ok(below);
            }
            header = self.header(Wanted { slot: header.parent.number, hash: Some(header.parent.hash) }).await?;
            if header.time_secs > 0 {
                return Ok(header.time_secs);
            }
        }
        Err(SolanaError::NoTime { chain: self.pool.chain(), block: untimed.block })
    }

    /// The time of this block as any endpoint reports it; `None` when none does.
    async fn reported_time(&self, block: &BlockRef) -> Result<Option<u64>, SolanaError> {
        let wanted = Wanted { slot: block.number, hash: Some(block.hash) };
        let read = move |endpoint| -> BoxRead<'_, _> { Box::pin(read_time(endpoint, wanted)) };
        match self.pool.call(need(wanted.slot), read).await {
            Ok(reported) => Ok(Some(reported)),
            Err(error) if is_not_found(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

pub(crate) type BoxRead<'a, T> = BoxFuture<'a, Result<T, SolanaError>>;

/// How far a node must have come to list the slots from `first` up to `reached` for `endpoint`: as far as its own
/// newest block. It need not have what another one reported.
fn reached_by(endpoint: &Endpoint, first: u64, reached: u64) -> u64 {
    reached.min(endpoint.head().unwrap_or_default().max(first))
}

/// Whatever block is in `slot`.
fn by_slot(slot: u64) -> Wanted {
    Wanted { slot, hash: None }
}

fn need(slot: u64) -> Need {
    Need { first: slot, last: slot, methods: &[BLOCK] }
}

/// The front of `range`.
fn narrow(range: RangeInclusive<u64>) -> RangeInclusive<u64> {
    let (first, last) = range.into_inner();
    first..=last.min(first.saturating_add(SLOTS_MAX - 1))
}
