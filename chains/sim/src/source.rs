//! The chain as a source: what a node that knows it would answer, faults included.

use std::ops::RangeInclusive;

use landfall_chain::{
    Address, AddressSource, Block, BlockRef, BlockSource, Candidates, Fate, Header, Read, ReadProof, SourceError, Tip,
    TxLife, TxRef, U256,
};

use crate::ledger::{SimBlock, State};
use crate::{Fault, SimChain};

impl BlockSource for SimChain {
    async fn tip(&self) -> Result<Tip, SourceError> {
        let fault = self.call().await?;
        let state = self.lock();
        let behind = match fault {
            Some(Fault::Empty) => return Err(failure("tip")),
            Some(Fault::Lag(behind)) => behind,
            Some(Fault::Fail | Fault::Late(_)) | None => 0,
        };
        let latest = state.latest().header.block.number.saturating_sub(behind);
        let latest = state.at_or_below(latest);
        // A node that lags knows less that is final, too.
        let finalized = state.finalized().filter(|finalized| finalized.number <= latest.number);
        Ok(Tip { latest, finalized, tiers: Vec::new(), waiting: None })
    }

    async fn headers(&self, range: RangeInclusive<u64>) -> Result<Vec<Header>, SourceError> {
        let fault = self.call().await?;
        let state = self.lock();
        Ok(state.served(range, fault).iter().map(|block| block.header).collect())
    }

    async fn blocks(&self, range: RangeInclusive<u64>, read: Read) -> Result<Vec<Block>, SourceError> {
        let fault = self.call().await?;
        let state = self.lock();
        let to_block = match read.proof {
            ReadProof::Full => SimBlock::to_block,
            ReadProof::Listed => SimBlock::to_candidates,
        };
        Ok(state.served(range, fault).iter().map(to_block).collect())
    }

    async fn final_at(&self, number: u64) -> Result<Option<BlockRef>, SourceError> {
        let fault = self.call().await?;
        let state = self.lock();
        let is_final = state.finalized().is_some_and(|finalized| number <= finalized.number);
        Ok(state.served(number..=number, fault).first().filter(|_| is_final).map(|block| block.header.block))
    }

    async fn fate(&self, tx: &TxRef, at: &BlockRef) -> Result<Fate, SourceError> {
        let fault = self.call().await?;
        let state = self.lock();
        let known = state.served(0..=u64::MAX, fault);
        if let Some(block) = known.iter().find(|block| block.txs.iter().any(|mined| mined.tx.id == tx.id)) {
            return Ok(Fate::In(block.header.block));
        }
        let TxLife::Nonce { signer, nonce } = tx.life else { return Ok(Fate::Unknown) };
        let used_up = known.iter().take_while(|block| block.header.block.number <= at.number).any(|block| {
            block.txs.iter().any(|mined| match mined.tx.life {
                TxLife::Nonce { signer: other, nonce: used } => other == signer && used >= nonce,
                TxLife::Block => false,
            })
        });
        Ok(if used_up { Fate::Superseded(*at) } else { Fate::Unknown })
    }
}

impl AddressSource for SimChain {
    async fn candidates(
        &self,
        range: RangeInclusive<u64>,
        watched: &(dyn Fn(&Address) -> bool + Sync),
    ) -> Result<Candidates, SourceError> {
        let fault = self.call().await?;
        let state = self.lock();
        let served = state.served(range, fault);
        let is_hit = |block: &&SimBlock| {
            let mut legs = block.txs.iter().flat_map(|tx| &tx.legs);
            // Every seventh block is a false alarm, as blooms give them.
            block.header.block.number.is_multiple_of(7)
                || legs.any(|leg| watched(&leg.recipient) || watched(&leg.sender))
        };
        Ok(Candidates {
            headers: served.iter().map(|block| block.header).collect(),
            hits: served.iter().filter(is_hit).map(|block| block.header.block).collect(),
        })
    }

    async fn balances(&self, _: &[Address], _: &BlockRef) -> Result<Vec<U256>, SourceError> {
        Err(SourceError::permanent("the sim keeps no balances"))
    }
}

impl SimChain {
    /// Counts a call and takes its fault.
    async fn call(&self) -> Result<Option<Fault>, SourceError> {
        self.before_call();
        let fault = {
            let mut state = self.lock();
            state.calls += 1;
            state.faults.pop_front()
        };
        match fault {
            Some(Fault::Fail) => Err(failure("call")),
            Some(Fault::Late(time)) => {
                tokio::time::sleep(time).await;
                Ok(fault)
            }
            Some(Fault::Empty | Fault::Lag(_)) | None => Ok(fault),
        }
    }
}

impl State {
    fn at_or_below(&self, number: u64) -> BlockRef {
        let above = self.blocks.partition_point(|block| block.header.block.number <= number);
        self.blocks[above.saturating_sub(1)].header.block
    }

    /// The blocks of `range` that a node with this fault has.
    fn served(&self, range: RangeInclusive<u64>, fault: Option<Fault>) -> &[SimBlock] {
        let known = match fault {
            Some(Fault::Empty) => 0,
            Some(Fault::Lag(behind)) => {
                let latest = self.latest().header.block.number.saturating_sub(behind);
                self.blocks.partition_point(|block| block.header.block.number <= latest)
            }
            Some(Fault::Fail | Fault::Late(_)) | None => self.blocks.len(),
        };
        let known = &self.blocks[..known];
        let from = known.partition_point(|block| block.header.block.number < *range.start());
        let to = known.partition_point(|block| block.header.block.number <= *range.end());
        &known[from..to.max(from)]
    }
}

fn failure(what: &str) -> SourceError {
    SourceError::transient(format!("the sim was told to fail this {what}"))
}
