//! Several views of one chain, of which one may lie: what can still be reported to a source that proves every block
//! and asks several endpoints.
//!
//! One view answers each call, except what is final, which as many as must agree report alike. The lies are those that
//! no proof finds: a stale head, a real fork shown as canonical, blocks left out, a false fate. Agreement refuses a
//! false final block.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use landfall_chain::{
    AccountState, Address, AddressSource, AssetTransfer, Block, BlockHash, BlockRef, BlockSource, Fate, Found, Header,
    Lane, Legs, Payer, Read, Search, SourceError, Tip, TxRef, Watched,
};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::SimChain;
use crate::ledger::{SimBlock, State};

/// What the lying view says instead of the truth.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lie {
    /// It is so many blocks behind.
    StaleHead(u64),
    /// The branch that was dropped last is canonical.
    OtherFork,
    /// The newest block is so many numbers higher, with a hash that no block has.
    ForgedTip(u64),
    /// Its newest block is final.
    FalseFinal,
    /// Every second block of a list is missing.
    LeftOut,
    /// Every transaction was replaced by another.
    FalseFate,
}

/// One chain seen by several views; clones share it. With one honest view it is the chain itself.
#[derive(Clone)]
pub struct SimPool {
    chain: SimChain,
    pool: Arc<Mutex<Pool>>,
}

struct Pool {
    views: usize,
    agree: usize,
    /// An operator's override of `agree`.
    override_agree: Option<usize>,
    lie: Option<Lie>,
    /// Of ten calls, so many are answered by the liar.
    liar_answers: u32,
    /// The liar answers where the chain ends, and nothing else.
    tip_only: bool,
    rng: StdRng,
    reported: BTreeMap<&'static str, u64>,
}

impl Lie {
    /// Its name in a tally.
    pub const fn name(self) -> &'static str {
        match self {
            Lie::StaleHead(_) => "stale head",
            Lie::OtherFork => "other fork",
            Lie::ForgedTip(_) => "forged tip",
            Lie::FalseFinal => "false final",
            Lie::LeftOut => "left out",
            Lie::FalseFate => "false fate",
        }
    }
}

impl SimPool {
    /// The chain itself: one view, which does not lie.
    pub fn of(chain: SimChain) -> Self {
        let rng = StdRng::seed_from_u64(0);
        let pool = Pool {
            views: 1,
            agree: 1,
            override_agree: None,
            lie: None,
            liar_answers: 0,
            tip_only: false,
            rng,
            reported: BTreeMap::new(),
        };
        SimPool { chain, pool: Arc::new(Mutex::new(pool)) }
    }

    /// From now on `views` views, of which `agree` must report the same final block; `seed` decides who answers.
    pub fn spread(&self, views: usize, agree: usize, seed: u64) {
        let mut pool = self.lock();
        (pool.views, pool.agree, pool.rng) = (views.max(1), agree.max(1), StdRng::seed_from_u64(seed));
    }

    /// How many views must agree from now on, in place of the usual number; `None` goes back to it.
    pub fn override_agree(&self, agree: Option<usize>) {
        self.lock().override_agree = agree;
    }

    /// From now on one view reports this; `None` makes it honest. Of ten calls it answers `liar_answers`.
    pub fn lie(&self, lie: Option<Lie>, liar_answers: u32) {
        let mut pool = self.lock();
        (pool.lie, pool.liar_answers, pool.tip_only) = (lie, liar_answers, false);
    }

    /// From now on one view reports this of where the chain ends; the others answer everything else.
    pub fn lie_about_the_tip(&self, lie: Lie) {
        let mut pool = self.lock();
        (pool.lie, pool.liar_answers, pool.tip_only) = (Some(lie), 10, true);
    }

    /// How often each lie was reported where the truth was another. A false final block counts when it was refused.
    /// "refused final" counts how often too few called the newest final block so for another reason.
    pub fn reported(&self) -> BTreeMap<&'static str, u64> {
        self.lock().reported.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Pool> {
        // A test that panicked has failed already.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lie, when the liar answers this call.
    fn answering_lie(&self, is_tip: bool) -> Option<Lie> {
        let mut pool = self.lock();
        let lie = pool.lie.filter(|_| is_tip || !pool.tip_only)?;
        let answers = pool.liar_answers;
        (pool.rng.random_range(0..10) < answers).then_some(lie)
    }

    fn report(&self, what: &'static str, is_untrue: bool) {
        if is_untrue {
            *self.lock().reported.entry(what).or_default() += 1;
        }
    }

    /// The newest block that enough views call final, of those that any of them calls so. Each agrees to what its own
    /// chain has at or below its own final block.
    fn agreed(&self, of: impl Fn(&View) -> Option<BlockRef>) -> (Option<BlockRef>, Option<String>) {
        let (views, agree, lie) = {
            let pool = self.lock();
            (pool.views, pool.override_agree.unwrap_or(pool.agree), pool.lie)
        };
        let honest = View::honest(&self.chain);
        let liar = lie.map(|lie| View::lying(&self.chain, lie));
        let views: Vec<&View> =
            (0..views).map(|index| liar.as_ref().filter(|_| index == 0).unwrap_or(&honest)).collect();
        let vouched = |block: &BlockRef| {
            let vouches = |view: &&&View| {
                of(view).is_some_and(|newest| newest.number >= block.number)
                    && view.at(block.number) == Some(block.hash)
            };
            views.iter().filter(vouches).count()
        };
        let reported: Vec<BlockRef> = views.iter().filter_map(|view| of(view)).collect();
        let newest = reported.iter().map(|block| block.number).max();
        let agreed = reported.into_iter().filter(|block| vouched(block) >= agree).max_by_key(|block| block.number);
        let is_behind = agreed.map(|block| block.number) < newest;
        let what = if lie == Some(Lie::FalseFinal) { Lie::FalseFinal.name() } else { "refused final" };
        self.report(what, is_behind);
        let waiting = is_behind.then(|| format!("{agree} endpoints must agree, and fewer do"));
        (agreed, waiting)
    }
}

/// The chain as one view shows it.
struct View {
    blocks: Vec<SimBlock>,
    latest: BlockRef,
    finalized: Option<BlockRef>,
    tiers: Vec<Option<BlockRef>>,
}

impl View {
    fn honest(chain: &SimChain) -> Self {
        let state = chain.lock();
        View::of(&state, state.blocks.clone())
    }

    fn of(state: &State, blocks: Vec<SimBlock>) -> Self {
        let latest = blocks.last().map_or(state.latest().header.block, |block| block.header.block);
        // What is final stays so on every branch that still has it.
        let has = |block: &BlockRef| blocks.iter().any(|known| known.header.block == *block);
        let finalized = state.finalized().filter(has);
        let tiers = state.tiers(&blocks);
        View { blocks, latest, finalized, tiers }
    }

    fn lying(chain: &SimChain, lie: Lie) -> Self {
        let state = chain.lock();
        let mut blocks = state.blocks.clone();
        match lie {
            Lie::StaleHead(behind) => {
                let keep = blocks.len().saturating_sub(usize::try_from(behind).unwrap_or(usize::MAX)).max(1);
                blocks.truncate(keep);
            }
            Lie::OtherFork => {
                if let Some(first) = state.dropped.first()
                    && let Some(at) = blocks.iter().position(|block| block.header.block == first.header.parent)
                {
                    blocks.truncate(at + 1);
                    blocks.extend(state.dropped.iter().cloned());
                }
            }
            Lie::ForgedTip(_) | Lie::FalseFinal | Lie::LeftOut | Lie::FalseFate => {}
        }
        let mut view = View::of(&state, blocks);
        match lie {
            Lie::ForgedTip(above) => {
                view.latest = BlockRef { number: view.latest.number + above, hash: BlockHash([0xf0; 32]) }
            }
            Lie::FalseFinal => {
                view.finalized = Some(view.latest);
                view.tiers = vec![Some(view.latest); view.tiers.len()];
            }
            Lie::StaleHead(_) | Lie::OtherFork | Lie::LeftOut | Lie::FalseFate => {}
        }
        view
    }

    fn at(&self, number: u64) -> Option<BlockHash> {
        let found = self.blocks.binary_search_by_key(&number, |block| block.header.block.number);
        found.ok().map(|index| self.blocks[index].header.block.hash)
    }

    fn range(&self, range: RangeInclusive<u64>) -> &[SimBlock] {
        let from = self.blocks.partition_point(|block| block.header.block.number < *range.start());
        let to = self.blocks.partition_point(|block| block.header.block.number <= *range.end());
        &self.blocks[from..to.max(from)]
    }
}

impl SimPool {
    /// What the lying view shows of `range`; `None` when an honest one answers.
    fn lied(&self, range: RangeInclusive<u64>) -> Option<Vec<SimBlock>> {
        let lie = self.answering_lie(false)?;
        let truth = View::honest(&self.chain).range(range.clone()).to_vec();
        let mut reported = View::lying(&self.chain, lie).range(range).to_vec();
        if lie == Lie::LeftOut {
            reported =
                reported.into_iter().enumerate().filter(|(index, _)| index % 2 == 0).map(|(_, block)| block).collect();
        }
        self.report(lie.name(), reported != truth);
        Some(reported)
    }

    fn is_plain(&self) -> bool {
        let pool = self.lock();
        pool.views == 1 && pool.lie.is_none()
    }
}

impl BlockSource for SimPool {
    async fn tip(&self) -> Result<Tip, SourceError> {
        let tip = self.chain.tip().await?;
        if self.is_plain() {
            return Ok(tip);
        }
        let latest = match self.answering_lie(true) {
            Some(lie) => {
                let reported = View::lying(&self.chain, lie).latest;
                self.report(lie.name(), reported != tip.latest);
                reported
            }
            None => tip.latest,
        };
        let (finalized, waiting) = self.agreed(|view| view.finalized);
        let tiers = (0..tip.tiers.len()).map(|index| self.agreed(|view| view.tiers[index]).0).collect();
        Ok(Tip { latest, finalized, tiers, waiting, forked: None })
    }

    async fn headers(&self, range: RangeInclusive<u64>) -> Result<Vec<Header>, SourceError> {
        let truth = self.chain.headers(range.clone()).await?;
        let lied = self.lied(range);
        Ok(lied.map_or(truth, |reported| reported.iter().map(|block| block.header).collect()))
    }

    async fn blocks(&self, range: RangeInclusive<u64>, read: Read) -> Result<Vec<Block>, SourceError> {
        let truth = BlockSource::blocks(&self.chain, range.clone(), read).await?;
        let lied = self.lied(range);
        Ok(lied.map_or(truth, |reported| reported.iter().map(|block| read_as(block, read)).collect()))
    }

    async fn final_at(&self, number: u64) -> Result<Option<BlockRef>, SourceError> {
        let truth = self.chain.final_at(number).await?;
        if self.is_plain() {
            return Ok(truth);
        }
        let at = |view: &View| {
            let hash = view.finalized.filter(|finalized| finalized.number >= number).and_then(|_| view.at(number));
            hash.map(|hash| BlockRef { number, hash })
        };
        Ok(self.agreed(at).0)
    }

    /// As on a chain whose roots prove both.
    async fn cross_check(
        &self,
        _: &BlockRef,
        _: RangeInclusive<u64>,
        _: &[BlockRef],
        _: bool,
    ) -> Result<Option<u64>, SourceError> {
        Ok(None)
    }

    /// Each leg names it.
    async fn payers(&self, _: &BlockRef, transfers: &[AssetTransfer]) -> Result<Vec<Payer>, SourceError> {
        Ok(transfers.iter().map(AssetTransfer::payer).collect())
    }

    async fn fate(&self, tx: &TxRef, at: &BlockRef) -> Result<Fate, SourceError> {
        let truth = self.chain.fate(tx, at).await?;
        let reported = match self.answering_lie(false) {
            Some(Lie::FalseFate) => Fate::Superseded(*at),
            Some(lie @ (Lie::OtherFork | Lie::StaleHead(_))) => {
                let view = View::lying(&self.chain, lie);
                let holds = |block: &&SimBlock| block.txs.iter().any(|mined| mined.tx.id == tx.id);
                view.blocks.iter().find(holds).map_or(Fate::Unknown, |block| Fate::In(block.header.block))
            }
            Some(Lie::ForgedTip(_) | Lie::FalseFinal | Lie::LeftOut) | None => return Ok(truth),
        };
        self.report("false fate", reported != truth);
        Ok(reported)
    }
}

impl AddressSource for SimPool {
    fn search(&self) -> Search {
        self.chain.search()
    }

    async fn candidates(&self, range: RangeInclusive<u64>, watched: Watched<'_>) -> Result<Found, SourceError> {
        self.chain.candidates(range, watched).await
    }

    /// Proved by the state root: nobody can lie about it.
    async fn account_states(&self, addresses: &[Address], at: &BlockRef) -> Result<Vec<AccountState>, SourceError> {
        self.chain.account_states(addresses, at).await
    }
}

fn read_as(block: &SimBlock, read: Read) -> Block {
    let mut block = match read.lane {
        Lane::Block => block.to_block(Lane::Block),
        Lane::Traces => block.as_reported().to_block(Lane::Traces),
    };
    if read.legs == Legs::Creditable {
        block.rejected.clear();
    }
    block
}

impl std::fmt::Debug for SimPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SimPool of {:?}", self.chain)
    }
}
