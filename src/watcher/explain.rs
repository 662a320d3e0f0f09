//! Why each leg of a transaction is a credit or none: the question that a client's support asks.
//!
//! Reads the transaction's block again, with everything in it that looks like a credit. For each leg it says what is on
//! record or why it is no credit, with a code of the closed list ([`Verdict`]). It changes nothing.

use landfall_chain::{
    AssetTransfer, Block, BlockRef, BlockSource, Chain, Family, Fate, Lane, Legs, Network, Read, ReadProof, Rejected,
    SourceError, TxId, TxLife, TxRef, Verdict,
};

use crate::deposit::{Deposit, DepositStatus};
use crate::store::cursors::Cursor;
use crate::store::deposits::{self, SeenIn};
use crate::store::{Db, Reader, StoreError, accounts, asset_facts, incidents, traces};
use crate::watcher::books::leg::leg_of;

/// What is known of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// The block it is in; `None` if it is in none (any more) and only our record knows it.
    pub block: Option<BlockRef>,
    /// Whether that block can no longer be replaced.
    pub is_final: bool,
    pub traces: TraceReading,
    /// The legs that the roots show, then those that the trace shows, then those that are only on record.
    pub legs: Vec<ExplainedLeg>,
}

/// Whether value that moved inside of the transaction was looked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TraceReading {
    Read,
    /// The network is not traced at this block.
    NotTraced,
    /// The trace cannot be read now; why.
    Unavailable(String),
    /// The transaction is in no block.
    NoBlock,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExplainedLeg {
    pub lane: Lane,
    pub transfer: AssetTransfer,
    pub verdict: Verdict,
    /// What the code alone does not say; may be empty.
    pub why: String,
    pub deposit: Option<Deposit>,
}

/// Why there is no explanation.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    #[error(transparent)]
    Source(#[from] SourceError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(
        "{chain}: block {block}, in which the transaction is said to be, is not shown; the chain may be moving, ask again"
    )]
    Moving { chain: Chain, block: BlockRef },
    #[error(
        "{chain}: no endpoint that answers knows the transaction, and others that may know it could not be asked: {why}; ask again \
         when they answer, or take them out of chains.{chain}.rpc"
    )]
    Unanswered { chain: Chain, why: String },
}

/// What became of each leg of transaction `tx`; `None` if neither the chain nor our record knows it.
///
/// # Errors
/// When the chain or the store cannot be read now.
pub async fn explain<S: BlockSource>(
    source: &S,
    db: &Db,
    network: &Network,
    tx: TxId,
) -> Result<Option<Explanation>, ExplainError> {
    let tip = source.tip().await?;
    let mut reader = db.read().await?;
    let mut recorded = Vec::new();
    for deposit in deposits::of_tx(&mut reader, network.chain, &tx).await? {
        let seen_in = deposits::seen_in(&mut reader, deposit.id).await?;
        recorded.push(Recorded { deposit, seen_in, is_shown: false });
    }
    // Only its block is asked for, so what it uses up does not matter.
    let fate = source.fate(&TxRef { id: tx, life: TxLife::Block }, &tip.latest).await?;
    let place = match fate {
        Fate::In(block) => Some(block),
        // A withdrawal has no hash that a node knows.
        Fate::Superseded(_) | Fate::Unknown | Fate::Unanswered { .. } => recorded.iter().find_map(Recorded::canonical),
    };
    if place.is_none() && recorded.is_empty() {
        return match fate {
            Fate::Unanswered { why, .. } => Err(ExplainError::Unanswered { chain: network.chain, why }),
            Fate::In(_) | Fate::Superseded(_) | Fate::Unknown => Ok(None),
        };
    }
    let cursor = Cursor::load(&mut reader, network.chain).await?;
    let mut explainer = Explainer { network, reader, cursor, finalized: tip.finalized, recorded, legs: Vec::new() };
    let mut traces = TraceReading::NoBlock;
    if let Some(block) = place {
        let roots = read(source, network, &block, Lane::Block).await?;
        explainer.add(&roots, Lane::Block, &tx).await?;
        traces = if network.native.is_traced(block.number) {
            match read(source, network, &block, Lane::Traces).await {
                Ok(traces) => {
                    explainer.add(&traces, Lane::Traces, &tx).await?;
                    TraceReading::Read
                }
                Err(error) => TraceReading::Unavailable(error.to_string()),
            }
        } else {
            TraceReading::NotTraced
        };
    }
    let is_final = place.zip(tip.finalized).is_some_and(|(block, finalized)| block.number <= finalized.number);
    Ok(Some(Explanation { block: place, is_final, legs: explainer.finish(place, &traces).await?, traces }))
}

/// A deposit of the transaction, and where it was seen.
struct Recorded {
    deposit: Deposit,
    seen_in: Option<SeenIn>,
    is_shown: bool,
}

impl Recorded {
    fn canonical(&self) -> Option<BlockRef> {
        self.seen_in.as_ref().filter(|seen| seen.canonical).map(|seen| seen.block)
    }
}

struct Explainer<'n> {
    network: &'n Network,
    reader: Reader,
    cursor: Cursor,
    /// The newest final block, as the endpoints report it.
    finalized: Option<BlockRef>,
    recorded: Vec<Recorded>,
    legs: Vec<ExplainedLeg>,
}

impl Explainer<'_> {
    /// Adds what the block shows of the transaction.
    async fn add(&mut self, block: &Block, lane: Lane, tx: &TxId) -> Result<(), StoreError> {
        for transfer in block.transfers.iter().filter(|transfer| transfer.tx.id == *tx) {
            let leg = self.leg(transfer, lane, &block.header.block).await?;
            self.legs.push(leg);
        }
        for rejected in
            block.unattributed.iter().chain(&block.rejected).filter(|rejected| rejected.transfer.tx.id == *tx)
        {
            let (transfer, verdict) = (rejected.transfer.clone(), rejected.verdict);
            let why = self.why_rejected(rejected, block.header.block.number);
            self.legs.push(ExplainedLeg { lane, transfer, verdict, why, deposit: None });
        }
        Ok(())
    }

    /// Why the chain itself shows a leg to be no credit, where the code does not say it all; may be empty.
    fn why_rejected(&self, Rejected { transfer, verdict }: &Rejected, number: u64) -> String {
        if *verdict != Verdict::UnlistedToken {
            return String::new();
        }
        match self.network.asset(&transfer.asset) {
            None => "its token is not listed".to_owned(),
            Some(asset) if number < asset.from_block => {
                format!("its token is listed from block {} on", asset.from_block)
            }
            Some(_) => match self.network.chain.family() {
                Family::Evm => "its contract is listed, but this Transfer tells no amount (ERC-721)".to_owned(),
                Family::Solana => "its token is listed under another program".to_owned(),
            },
        }
    }

    async fn leg(
        &mut self,
        transfer: &AssetTransfer,
        lane: Lane,
        block: &BlockRef,
    ) -> Result<ExplainedLeg, StoreError> {
        let hash = leg_of(&self.network.chain_ref, transfer).hash();
        let known = self.recorded.iter_mut().find(|recorded| recorded.deposit.leg_hash == hash);
        let deposit = known.map(|known| {
            known.is_shown = true;
            known.deposit.clone()
        });
        let (verdict, why) = match &deposit {
            Some(deposit) => self.of_deposit(deposit, block).await?,
            None => self.without_deposit(transfer, lane, block).await?,
        };
        Ok(ExplainedLeg { lane, transfer: transfer.clone(), verdict, why, deposit })
    }

    /// The verdict on a leg that the chain shows now and that is on record.
    async fn of_deposit(&mut self, deposit: &Deposit, block: &BlockRef) -> Result<(Verdict, String), StoreError> {
        Ok(match deposit.status {
            DepositStatus::Confirmed => (Verdict::Credited, String::new()),
            DepositStatus::Pending => (Verdict::Pending, self.why_pending(deposit, block).await?),
            // The closed list has no code for FAILED, and needs none: what the chain shows will be PENDING again.
            DepositStatus::Failed => {
                let then = match self.cursor.at {
                    Some(at) if block.number <= at.number => {
                        "our chain has passed this block without it: read it again (landfall rescan --repair)"
                    }
                    Some(_) | None => "PENDING again once this block is connected",
                };
                (Verdict::Pending, format!("was FAILED while it was in no block; {then}"))
            }
        })
    }

    /// What a deposit that `block` shows is waiting for.
    async fn why_pending(&mut self, deposit: &Deposit, block: &BlockRef) -> Result<String, StoreError> {
        if let Some(doubt) = traces::doubt_of(&mut self.reader, deposit.id).await? {
            return Ok(doubt);
        }
        let mut open = incidents::open(&mut self.reader).await?.into_iter();
        if let Some(incident) = open.find(|incident| incident.deposit == Some(deposit.id)) {
            return Ok(format!("waits for a person: incident {} ({})", incident.id, incident.kind.name()));
        }
        if asset_facts::confirmable(&mut self.reader, deposit.chain).await?.excludes(&deposit.asset, deposit.decimals) {
            let why = "nothing of its token is CONFIRMED before the chain says of it what is listed (incident asset_mismatch, and \
                       landfall status)";
            return Ok(why.to_owned());
        }
        let is_final =
            |finalized: Option<BlockRef>| finalized.is_some_and(|finalized| block.number <= finalized.number);
        let why = match (is_final(self.finalized), is_final(self.cursor.finalized)) {
            (false, _) => "waits for its block to be final",
            (true, false) => {
                "its block is final, and does not count as final here yet (landfall status says what that waits for)"
            }
            (true, true) => {
                "its block is final, and is to be read again as it must be (where that lasts, landfall status says why)"
            }
        };
        Ok(why.to_owned())
    }

    /// The verdict on a leg that the chain shows now and that is not on record.
    async fn without_deposit(
        &mut self,
        transfer: &AssetTransfer,
        lane: Lane,
        block: &BlockRef,
    ) -> Result<(Verdict, String), StoreError> {
        let chain = self.network.chain;
        if self.network.asset(&transfer.asset).is_none() {
            return Ok((Verdict::UnlistedToken, "its token is not listed".to_owned()));
        }
        let Some(from) = accounts::watched_from(&mut self.reader, chain, &transfer.recipient).await? else {
            for other in Chain::ALL.into_iter().filter(|other| *other != chain) {
                if accounts::watched_from(&mut self.reader, other, &transfer.recipient).await?.is_some() {
                    return Ok((Verdict::ChainNotRegistered, format!("its recipient is watched on {other}")));
                }
            }
            return Ok((Verdict::NotWatched, String::new()));
        };
        if block.number < from {
            return Ok((Verdict::NotWatchedThen, format!("its recipient is watched from block {from} on")));
        }
        let why = match (self.cursor.at, lane) {
            (Some(at), Lane::Block) if block.number <= at.number => {
                "our chain has passed its block without it: read the block again (landfall backfill)".to_owned()
            }
            (Some(at), Lane::Traces) if block.number <= at.number => {
                "the trace of its block is not on record yet".to_owned()
            }
            (Some(at), _) => format!("our chain stands at block {} and has not reached its block", at.number),
            (None, _) => "the chain has not been read yet".to_owned(),
        };
        Ok((Verdict::Pending, why))
    }

    /// Adds what is on record and was not shown.
    async fn finish(
        mut self,
        place: Option<BlockRef>,
        reading: &TraceReading,
    ) -> Result<Vec<ExplainedLeg>, StoreError> {
        for Recorded { deposit, seen_in, is_shown } in self.recorded {
            if is_shown {
                continue;
            }
            let lane = seen_in.map_or(Lane::Block, |seen| seen.lane);
            let no_trace = lane == Lane::Traces && !matches!(reading, TraceReading::Read);
            let (verdict, why) = match (deposit.status, place) {
                (DepositStatus::Confirmed, _) => (Verdict::Credited, "on record; not shown now".to_owned()),
                (DepositStatus::Pending, None) => (Verdict::Pending, "its transaction is in no block now".to_owned()),
                (DepositStatus::Pending, Some(_)) if no_trace => {
                    (Verdict::Unproved, "PENDING, and no trace that could show it can be had now".to_owned())
                }
                (DepositStatus::Pending, Some(_)) => {
                    (Verdict::Unproved, "PENDING, and its transaction's block does not show it".to_owned())
                }
                (DepositStatus::Failed, _) => (Verdict::Unproved, "FAILED: it is in no final block".to_owned()),
            };
            let Deposit { tx, asset, sender, sender_rule, recipient, amount, nth, .. } = deposit;
            let transfer = AssetTransfer { tx, asset, sender, sender_rule, recipient, amount, nth };
            self.legs.push(ExplainedLeg { lane, transfer, verdict, why, deposit: Some(deposit) });
        }
        Ok(self.legs)
    }
}

async fn read<S: BlockSource>(
    source: &S,
    network: &Network,
    wanted: &BlockRef,
    lane: Lane,
) -> Result<Block, ExplainError> {
    let read = Read { lane, proof: ReadProof::Full, legs: Legs::Explained };
    let blocks = source.blocks(wanted.number..=wanted.number, read).await?;
    let shown = blocks.into_iter().find(|block| block.header.block == *wanted);
    shown.ok_or(ExplainError::Moving { chain: network.chain, block: *wanted })
}
