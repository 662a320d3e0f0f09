//! What a watcher reads of a chain.
//!
//! Invariant: an answer that is empty, short or missing is never proof of anything. The source itself proves what it
//! returns as a block. Only parent links prove that a number holds no block.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::Arc;

use crate::{
    Address, AssetFacts, AssetId, AssetSource, AssetTransfer, Block, BlockRef, Header, HoldingSource, Holdings, Payer,
    Proof, Searching, Tip, TxRef, U256,
};

/// A chain that can be read. Every call is bounded in time and retries nothing: the caller decides.
pub trait BlockSource: Send + Sync + 'static {
    /// The newest block and the newest final one.
    fn tip(&self) -> impl Future<Output = Result<Tip, SourceError>> + Send;

    /// The headers of `range` that are canonical now, ascending. Both ends are inclusive: `5..=7` is three numbers.
    /// Fewer come back when the source does not have them (yet), and on chains that skip numbers: none where the whole
    /// range is skipped. A number that is left out proves nothing; only the parent of the next block does.
    fn headers(&self, range: RangeInclusive<u64>) -> impl Future<Output = Result<Vec<Header>, SourceError>> + Send;

    /// As [`BlockSource::headers`], with the content of each block that `read` asks for.
    fn blocks(
        &self,
        range: RangeInclusive<u64>,
        read: Read,
    ) -> impl Future<Output = Result<Vec<Block>, SourceError>> + Send;

    /// The block at `number`, when as many endpoints as must agree call it canonical and final. `None` when it is not
    /// final yet. For blocks without links to those that we have connected.
    fn final_at(&self, number: u64) -> impl Future<Output = Result<Option<BlockRef>, SourceError>> + Send;

    /// Reads connected blocks again before they count as final. `ours` are all our blocks in `range`, ascending;
    /// `below` is the one under them; the end of the range is final. Returns the lowest number at which as many
    /// endpoints as must agree show another block, or another content, than the one we connected. `None` where they
    /// show the same, and on chains whose roots prove both. A block that no other endpoint has is passed over. If it
    /// `may_come`, because it was made just now, it is an error at the first checks.
    fn cross_check(
        &self,
        below: &BlockRef,
        range: RangeInclusive<u64>,
        ours: &[BlockRef],
        may_come: bool,
    ) -> impl Future<Output = Result<Option<u64>, SourceError>> + Send;

    /// What became of a transaction, judged at the final block `at`.
    fn fate(&self, tx: &TxRef, at: &BlockRef) -> impl Future<Output = Result<Fate, SourceError>> + Send;

    /// Who paid each of `transfers`, which `block` showed, in their order.
    /// - The block shows the sender: that one.
    /// - It does not ([`crate::SenderRule::StandIn`]): the endpoints are asked, which may cost a request for each leg.
    ///   So ask only for legs that are about to be recorded.
    /// - Every endpoint says that it cannot report it: [`crate::SenderRule::FeePayer`].
    /// - None can report it, and one does not know the transaction (yet): it stays [`crate::SenderRule::StandIn`].
    /// - None reports it, and one failed or could not be asked: an error.
    fn payers(
        &self,
        block: &BlockRef,
        transfers: &[AssetTransfer],
    ) -> impl Future<Output = Result<Vec<Payer>, SourceError>> + Send;

    /// What decides about credits beside the facts of the network. The text changes when a block that is read again
    /// may credit otherwise. Empty where those facts are all.
    fn rules(&self) -> String {
        String::new()
    }
}

/// What single addresses need of a chain.
pub trait AddressSource: Send + Sync + 'static {
    /// How it searches: this decides what a search costs.
    fn search(&self) -> Search;

    /// Where in `range`, a range of final blocks, to look for movements to or from addresses that are `watched`. Both
    /// ends are inclusive. It proves no movement. The blocks that it leaves out hold none, as far as the search came.
    fn candidates(
        &self,
        range: RangeInclusive<u64>,
        watched: Watched<'_>,
    ) -> impl Future<Output = Result<Found, SourceError>> + Send;

    /// Where it says how far [`AddressSource::candidates`] has come while that runs. `None` where a search takes no
    /// longer than any other step.
    fn searching(&self) -> Option<Searching> {
        None
    }

    /// What each address is after `at`, in the order of `addresses`. The block's state root proves it, or as many
    /// endpoints as must agree reported it alike. A permanent error on chains whose blocks have no such root;
    /// [`SourceError::is_state_gone`] where every endpoint answered that it does not have that state.
    fn account_states(
        &self,
        addresses: &[Address],
        at: &BlockRef,
    ) -> impl Future<Output = Result<Vec<AccountState>, SourceError>> + Send;
}

/// What an address is after a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccountState {
    /// What it owns of the native currency, in base units.
    pub balance: U256,
    /// Whether it has code. An address without code cannot lose anything inside of a transaction.
    pub has_code: bool,
}

/// How a source searches for addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Search {
    /// Through the blocks of the range, for any number of addresses: the cost grows with the range.
    ByRange,
    /// Through the transactions that name each address: the cost grows with these, not with the range. The addresses
    /// must be [`Watched::Listed`].
    ByAddress,
}

/// The addresses that a search is for.
#[derive(Clone, Copy)]
pub enum Watched<'a> {
    /// Too many to list: a function says whether an address is one of them.
    Asked(&'a (dyn Fn(&Address) -> bool + Sync)),
    /// These.
    Listed(&'a BTreeSet<Address>),
}

/// What a search found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Found {
    /// By [`Search::ByRange`].
    Linked(Candidates),
    /// By [`Search::ByAddress`].
    Named(Named),
}

/// Where to look in a range of blocks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Candidates {
    /// The headers from the first number of the range on, each the parent of the next; fewer when the source does not
    /// have them.
    pub headers: Vec<Header>,
    /// The blocks of these that must be read, ascending.
    pub hits: Vec<BlockRef>,
}

/// Where addresses were named. Nothing links these blocks to each other or to a final one: each must be asked for with
/// [`BlockSource::final_at`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Named {
    /// How far it was searched, inclusive: the end of the range, unless there was too much for one search.
    pub through: u64,
    /// The numbers of the blocks that must be read, ascending.
    pub numbers: Vec<u64>,
    /// Who says that these are all.
    pub proof: Proof,
}

impl Watched<'_> {
    /// Whether `address` is one of them.
    pub fn contains(&self, address: &Address) -> bool {
        match self {
            Watched::Asked(contains) => contains(address),
            Watched::Listed(addresses) => addresses.contains(address),
        }
    }
}

impl fmt::Debug for Watched<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Watched::Asked(_) => f.write_str("Asked"),
            Watched::Listed(addresses) => f.debug_tuple("Listed").field(addresses).finish(),
        }
    }
}

/// Several workers may read one source.
impl<S: BlockSource> BlockSource for Arc<S> {
    async fn tip(&self) -> Result<Tip, SourceError> {
        (**self).tip().await
    }

    async fn headers(&self, range: RangeInclusive<u64>) -> Result<Vec<Header>, SourceError> {
        (**self).headers(range).await
    }

    async fn blocks(&self, range: RangeInclusive<u64>, read: Read) -> Result<Vec<Block>, SourceError> {
        (**self).blocks(range, read).await
    }

    async fn final_at(&self, number: u64) -> Result<Option<BlockRef>, SourceError> {
        (**self).final_at(number).await
    }

    async fn cross_check(
        &self,
        below: &BlockRef,
        range: RangeInclusive<u64>,
        ours: &[BlockRef],
        may_come: bool,
    ) -> Result<Option<u64>, SourceError> {
        (**self).cross_check(below, range, ours, may_come).await
    }

    async fn fate(&self, tx: &TxRef, at: &BlockRef) -> Result<Fate, SourceError> {
        (**self).fate(tx, at).await
    }

    async fn payers(&self, block: &BlockRef, transfers: &[AssetTransfer]) -> Result<Vec<Payer>, SourceError> {
        (**self).payers(block, transfers).await
    }

    fn rules(&self) -> String {
        (**self).rules()
    }
}

impl<S: AddressSource> AddressSource for Arc<S> {
    fn search(&self) -> Search {
        (**self).search()
    }

    async fn candidates(&self, range: RangeInclusive<u64>, watched: Watched<'_>) -> Result<Found, SourceError> {
        (**self).candidates(range, watched).await
    }

    fn searching(&self) -> Option<Searching> {
        (**self).searching()
    }

    async fn account_states(&self, addresses: &[Address], at: &BlockRef) -> Result<Vec<AccountState>, SourceError> {
        (**self).account_states(addresses, at).await
    }
}

impl<S: AssetSource> AssetSource for Arc<S> {
    async fn facts(&self, asset: &AssetId, reached: u64) -> Result<Option<AssetFacts>, SourceError> {
        (**self).facts(asset, reached).await
    }
}

impl<S: HoldingSource> HoldingSource for Arc<S> {
    async fn holdings(
        &self,
        addresses: &[Address],
        assets: &[AssetId],
        at: &BlockRef,
    ) -> Result<Holdings, SourceError> {
        (**self).holdings(addresses, assets, at).await
    }
}

/// What is read of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read {
    /// Which movements.
    pub lane: Lane,
    /// How strongly they must be proved.
    pub proof: ReadProof,
    /// Whether what is no credit is reported too.
    pub legs: Legs,
}

/// Two ways to see movements. Each leg is seen in one of them only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Lane {
    /// What the block's roots prove: tokens, a transaction's own value, mints, withdrawals.
    Block,
    /// What only a trace shows: value that moved inside of transactions. Its `nth` continues behind the legs of the
    /// roots.
    Traces,
}

/// How strongly a read is proved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadProof {
    /// Enough to say which blocks may hold a credit: [`crate::Proof::Bloom`], or one endpoint's trace. Where no root
    /// covers a block's content, one endpoint's report of it; for some blocks, two endpoints' reports.
    Candidate,
    /// All that the chain allows: [`crate::Proof::Roots`], or two endpoints' traces where there are two. Where no root
    /// covers a block's content, two endpoints' reports, unless an operator lets one suffice.
    Full,
}

/// A name that no proof has.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown proof {0:?}; expected receipts or logs")]
pub struct UnknownProof(String);

/// Which legs a read reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Legs {
    /// The credits.
    Creditable,
    /// Also everything that looks like one, see [`crate::Block::rejected`].
    Explained,
}

impl Read {
    /// What the roots prove, proved by them.
    pub const FULL: Read = Read { lane: Lane::Block, proof: ReadProof::Full, legs: Legs::Creditable };
}

impl ReadProof {
    const ALL: [ReadProof; 2] = [ReadProof::Full, ReadProof::Candidate];

    /// The name that is stored, and that operators give it: what the blocks of an EVM chain are read with.
    pub const fn name(self) -> &'static str {
        match self {
            ReadProof::Full => "receipts",
            ReadProof::Candidate => "logs",
        }
    }
}

impl FromStr for ReadProof {
    type Err = UnknownProof;

    fn from_str(text: &str) -> Result<Self, UnknownProof> {
        ReadProof::ALL.into_iter().find(|proof| proof.name() == text).ok_or_else(|| UnknownProof(text.to_owned()))
    }
}

impl Lane {
    /// The name that is stored and shown.
    pub const fn name(self) -> &'static str {
        match self {
            Lane::Block => "roots",
            Lane::Traces => "traces",
        }
    }
}

/// What became of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The source says it is in this block. Read the block before believing it.
    In(BlockRef),
    /// What it needed was used up by another transaction at or before this block: it can never land.
    Superseded(BlockRef),
    /// Every endpoint was asked, and none knows it; it may still land.
    Unknown,
    /// No endpoint that answered knows it, and others that may know it could not be asked.
    Unanswered {
        /// Their names.
        endpoints: String,
        /// Why not.
        why: String,
    },
}

/// Whether the same call may succeed later without a person doing anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SourceErrorKind {
    /// Try again, soon or elsewhere.
    Transient,
    /// Trying again is useless: a person must act.
    Permanent,
}

/// A failed read, with what the caller needs to know, decided where the failure was seen.
pub struct SourceError {
    /// Transient or permanent.
    pub kind: SourceErrorKind,
    /// Whether only a newer version can read it; such a failure is permanent.
    pub needs_upgrade: bool,
    /// Whether several endpoints reported what was asked for, and no two of them the same; such a failure is
    /// transient. A [`ReadProof::Candidate`] read still returns what one of them reports, each time another one.
    pub is_disputed: bool,
    /// Whether one endpoint reported what was asked for, while no second one did, which must report it alike; such a
    /// failure is transient. A [`ReadProof::Candidate`] read returns what the one reports.
    pub is_unwitnessed: bool,
    /// Whether every endpoint answered that it does not serve the state that was asked for. Such a failure is
    /// transient, for an operator may name another endpoint.
    pub is_state_gone: bool,
    cause: Box<dyn Error + Send + Sync>,
}

impl SourceError {
    /// A failure that may pass.
    pub fn transient(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        SourceError::of(SourceErrorKind::Transient, cause.into())
    }

    /// A failure that stays until a person acts.
    pub fn permanent(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        SourceError::of(SourceErrorKind::Permanent, cause.into())
    }

    fn of(kind: SourceErrorKind, cause: Box<dyn Error + Send + Sync>) -> Self {
        SourceError {
            kind,
            needs_upgrade: false,
            is_disputed: false,
            is_unwitnessed: false,
            is_state_gone: false,
            cause,
        }
    }

    /// No second endpoint reported it.
    pub fn unwitnessed(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        SourceError { is_unwitnessed: true, ..SourceError::transient(cause) }
    }

    /// No endpoint serves that state.
    pub fn state_gone(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        SourceError { is_state_gone: true, ..SourceError::transient(cause) }
    }

    /// No two endpoints reported the same.
    pub fn disputed(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        SourceError { is_disputed: true, ..SourceError::transient(cause) }
    }

    /// A failure that stays until a newer version runs.
    pub fn upgrade_needed(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        SourceError { needs_upgrade: true, ..SourceError::permanent(cause) }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)
    }
}

impl fmt::Debug for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.cause)
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.cause.source()
    }
}
