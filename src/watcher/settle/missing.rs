//! Searches for a deposit whose height is final and that is in no block of our chain.
//!
//! Both lanes ask what became of its transaction, and read the final block that is said to hold it. What a trace of that
//! block shows, the lane of the traces adds. What follows from it is decided here for both.
//! Promises: FAILED only on proof, or after the grace. Nothing is FAILED while an endpoint that may know the transaction
//! cannot be asked, or while a block that may hold it is not traced yet. A deposit that is in a block of ours after all
//! is judged from there.

use landfall_chain::{Block, BlockHash, BlockRef, BlockSource, Fate, Lane, Network};

use crate::deposit::Deposit;
use crate::store::Db;
use crate::store::cursors::{self, Cursor};
use crate::store::deposits::{self, Missing};
use crate::time::Timestamp;
use crate::watcher::books::leg::shows;
use crate::watcher::settle::verdict::{Case, Settled, Verdict, apply};
use crate::watcher::{Follower, TickError};

/// What was found out about the transaction of a missing deposit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::watcher) enum Found {
    /// No final block is said to hold it.
    Nowhere(Fate),
    /// This final block is said to hold it, and need not be read now.
    Unread(BlockRef),
    /// The final block that is said to hold it cannot be read for now.
    Withheld,
    /// In this final block, which was read, is what the second says.
    In(BlockRef, Leg),
    /// Nothing could be found out; why.
    Failed(String),
    /// A person decided that it was not paid.
    GivenUp,
}

/// What a block shows of a missing deposit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::watcher) enum Leg {
    Shown(Lane),
    /// The block has the transaction, without the leg.
    Missing,
    /// The block has the transaction, and whether the leg is in it is not known; why.
    Doubtful(String),
    NoTransaction,
}

/// Whether blocks are still to be traced that may hold a missing deposit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::watcher) enum Untraced {
    None,
    Some,
    /// Nobody will trace them; why.
    Forever(String),
}

/// A search for a missing deposit, and what is known beside what it found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::watcher) struct Search {
    pub(in crate::watcher) lane: Lane,
    pub(in crate::watcher) untraced: Untraced,
    /// The grace is over.
    pub(in crate::watcher) is_over: bool,
}

/// Settles a missing deposit by what was found, in one transaction.
pub(in crate::watcher) async fn settle_missing(
    db: &Db,
    network: &Network,
    (deposit, found, search): (Deposit, Found, Search),
    finalized: &BlockRef,
    now: Timestamp,
) -> Result<Settled, TickError> {
    let mut settled = Settled::default();
    let mut tx = db.begin().await?;
    Cursor::lock(&mut tx, network.chain).await?;
    // Connected again meanwhile, or settled by another process? Then it is no longer missing.
    if !deposits::is_missing(&mut tx, &deposit, search.lane, finalized.number).await? {
        return Ok(settled);
    }
    let ours = match &found {
        Found::Unread(block) | Found::In(block, _) => {
            cursors::canonical_at(&mut tx, network.chain, block.number).await?
        }
        Found::Nowhere(_) | Found::Withheld | Found::Failed(_) | Found::GivenUp => None,
    };
    let verdict = match of_missing(&deposit, &found, ours, &search) {
        // A deposit of an unlisted asset is not judged: we would not see its leg if it were there.
        Verdict::Fail(_) if network.asset(&deposit.asset).is_none() => Verdict::Wait,
        verdict => verdict,
    };
    let case = Case { lane: search.lane, block: *finalized, is_missing: true, override_reason: None, now };
    apply(&mut tx, deposit, verdict, &case, &mut settled).await?;
    tx.commit().await?;
    Ok(settled)
}

/// The verdict on a missing deposit. `ours` is the hash that our chain has at the number of the block that was found.
fn of_missing(
    deposit: &Deposit,
    found: &Found,
    ours: Option<BlockHash>,
    Search { lane, untraced, is_over }: &Search,
) -> Verdict {
    let doubt = |why: String| Verdict::Doubt { why, allowed: None };
    let unless_untraced = |verdict: Verdict| match untraced {
        Untraced::None => verdict,
        Untraced::Some => Verdict::Wait,
        Untraced::Forever(why) => doubt(why.clone()),
    };
    let fail_if = |is_sure: bool, why: String| if is_sure { Verdict::Fail(why) } else { Verdict::Wait };
    let nowhere = || unless_untraced(fail_if(*is_over, "its transaction stayed in no block".to_owned()));
    // The index that named the block may be stale. Where only a trace shows the leg, a block that is not on record
    // proves nothing.
    let elsewhere = |block: &BlockRef| match (ours, lane) {
        (None, Lane::Traces) => doubt(format!("it is in block {block}, which is not on record (any more)")),
        (Some(_), _) | (None, Lane::Block) => nowhere(),
    };
    match found {
        Found::GivenUp => Verdict::Fail("a person decided that it was not paid".to_owned()),
        Found::Failed(why) => doubt(why.clone()),
        Found::Withheld => Verdict::Withhold,
        Found::Nowhere(Fate::In(_)) => Verdict::Wait,
        Found::Nowhere(Fate::Superseded(by)) => {
            unless_untraced(Verdict::Fail(format!("another transaction took its place by final block {}", by.number)))
        }
        Found::Nowhere(Fate::Unknown) => nowhere(),
        // Nothing is judged while an endpoint that may know it cannot be asked, however long that lasts.
        Found::Nowhere(Fate::Unanswered { why, .. }) => match lane {
            Lane::Traces if *is_over => doubt(unanswered(deposit, why)),
            Lane::Traces | Lane::Block => Verdict::Wait,
        },
        Found::Unread(block) => match (ours, lane) {
            (Some(ours), _) if ours == block.hash => Verdict::Wait,
            (None, Lane::Block) => Verdict::Wait,
            (Some(_), _) | (None, Lane::Traces) => elsewhere(block),
        },
        Found::In(block, leg) if ours == Some(block.hash) => match leg {
            Leg::Shown(lane) => Verdict::Include(*block, *lane),
            Leg::Missing => {
                // Where no roots prove the block, a failed transaction may be sent again and land: on Solana it need
                // not use up its nonce.
                let is_sure = deposit.chain.family().has_roots() || *is_over;
                fail_if(is_sure, format!("its transaction is in final block {} without it", block.number))
            }
            Leg::Doubtful(why) => doubt(why.clone()),
            Leg::NoTransaction => nowhere(),
        },
        // A proved block at a final height holds it, but is not on our record (any more): no reason to fail it.
        Found::In(_, Leg::Shown(_)) => Verdict::Wait,
        Found::In(block, Leg::Missing | Leg::Doubtful(_) | Leg::NoTransaction) => elsewhere(block),
    }
}

/// The final block that is said to hold the transaction; `None` if none is.
pub(in crate::watcher) fn final_block(fate: &Fate, finalized: &BlockRef) -> Option<BlockRef> {
    match fate {
        Fate::In(block) => Some(*block).filter(|block| block.number <= finalized.number),
        Fate::Superseded(_) | Fate::Unknown | Fate::Unanswered { .. } => None,
    }
}

/// What the proved `roots` of a block show of the deposit: its leg, or only whether the transaction is there.
pub(in crate::watcher) fn leg_by_roots(network: &Network, roots: &Block, deposit: &Deposit) -> Leg {
    match shows(network, &roots.transfers, deposit) {
        true => Leg::Shown(Lane::Block),
        false if roots.txs.contains(&deposit.tx.id) => Leg::Missing,
        false => Leg::NoTransaction,
    }
}

/// Why a deposit in no block does not become FAILED, and what a person can do about it.
pub(in crate::watcher) fn unanswered(deposit: &Deposit, why: &str) -> String {
    let Deposit { id, tx, chain, .. } = deposit;
    format!(
        "deposit {id} (transaction {}) is in no block and stays PENDING, for endpoints that may know it could not be asked: {why}; \
         bring them back, or take them out of chains.{chain}.rpc",
        tx.id
    )
}

impl<S: BlockSource> Follower<S> {
    /// Looks for `missing` in blocks, and settles it by what is found.
    pub(in crate::watcher) async fn look_for(
        &mut self,
        Missing { deposit, since }: Missing,
        finalized: &BlockRef,
        now: Timestamp,
    ) -> Result<Settled, TickError> {
        let fate = self.source.fate(&deposit.tx, finalized).await?;
        let over_since = since.filter(|since| now.since(*since) >= self.settings.failed_grace);
        self.alarms.sought(&deposit, over_since, &fate);
        let is_over = over_since.is_some();
        let found = match final_block(&fate, finalized) {
            None => Found::Nowhere(fate),
            // Where no roots prove the block, it is read when the search begins, and at its end.
            Some(block) if self.chain().family().has_roots() || since.is_none() || is_over => {
                self.find_in(block, &deposit, now).await?
            }
            Some(block) => Found::Unread(block),
        };
        let search = Search { lane: Lane::Block, untraced: Untraced::None, is_over };
        settle_missing(&self.db, &self.network, (deposit, found, search), finalized, now).await
    }

    /// What the final `block` shows of the deposit.
    async fn find_in(&mut self, block: BlockRef, deposit: &Deposit, now: Timestamp) -> Result<Found, TickError> {
        if self.withheld.rests(&block, now) {
            return Ok(Found::Withheld);
        }
        match self.evidence(&block).await? {
            Ok(roots) => {
                self.withheld.succeeded(&block);
                Ok(Found::In(block, leg_by_roots(&self.network, &roots, deposit)))
            }
            Err(unshown) => {
                let found = if unshown.rests { Found::Withheld } else { Found::Unread(block) };
                self.withheld.failed(block, unshown.why, unshown.rests, now);
                Ok(found)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use landfall_chain::Chain;

    use super::*;
    use crate::watcher::settle::verdict::tests::deposit;

    fn block(number: u64, hash: u8) -> BlockRef {
        BlockRef { number, hash: BlockHash([hash; 32]) }
    }

    /// How the verdict begins, so that a table of them can be read.
    fn said(verdict: Verdict) -> String {
        match verdict {
            Verdict::Fail(why) => format!("fail: {}", why.split(' ').take(3).collect::<Vec<_>>().join(" ")),
            Verdict::Doubt { why, .. } => format!("doubt: {}", why.split(' ').next().unwrap_or_default()),
            Verdict::Include(_, Lane::Block) => "include".to_owned(),
            Verdict::Include(_, Lane::Traces) => "include inside".to_owned(),
            verdict => format!("{verdict:?}"),
        }
    }

    /// What each lane says of `found`: first during the grace, then after it.
    fn verdicts(found: &Found, ours: Option<u8>, chain: Chain, untraced: &Untraced) -> [String; 4] {
        let ours = ours.map(|hash| BlockHash([hash; 32]));
        let of = |lane, is_over| {
            let untraced = if lane == Lane::Block { Untraced::None } else { untraced.clone() };
            said(of_missing(&deposit(chain), found, ours, &Search { lane, untraced, is_over }))
        };
        [of(Lane::Block, false), of(Lane::Block, true), of(Lane::Traces, false), of(Lane::Traces, true)]
    }

    #[test]
    fn what_becomes_of_a_missing_deposit_by_fate_evidence_grace_and_lane() {
        const WAIT: &str = "Wait";
        const GONE: &str = "fail: its transaction stayed";
        const WITHOUT: &str = "fail: its transaction is";
        const TAKEN: &str = "fail: another transaction took";
        let (at, unanswered) = (block(7, 1), Fate::Unanswered { endpoints: "a".to_owned(), why: "b".to_owned() });
        let (same, other) = (Some(1), Some(2));
        let doubtful = Leg::Doubtful("why".to_owned());
        for (found, ours, expected) in [
            (Found::Nowhere(Fate::In(at)), None, [WAIT; 4]),
            (Found::Nowhere(Fate::Superseded(at)), None, [TAKEN; 4]),
            (Found::Nowhere(Fate::Unknown), None, [WAIT, GONE, WAIT, GONE]),
            (Found::Nowhere(unanswered), None, [WAIT, WAIT, WAIT, "doubt: deposit"]),
            (Found::Unread(at), same, [WAIT; 4]),
            (Found::Unread(at), other, [WAIT, GONE, WAIT, GONE]),
            (Found::Unread(at), None, [WAIT, WAIT, "doubt: it", "doubt: it"]),
            (Found::Withheld, None, ["Withhold"; 4]),
            (Found::Failed("why".to_owned()), None, ["doubt: why"; 4]),
            (Found::GivenUp, None, ["fail: a person decided"; 4]),
            (Found::In(at, Leg::Shown(Lane::Block)), same, ["include"; 4]),
            (Found::In(at, Leg::Shown(Lane::Traces)), same, ["include inside"; 4]),
            (Found::In(at, Leg::Shown(Lane::Block)), other, [WAIT; 4]),
            (Found::In(at, Leg::Shown(Lane::Block)), None, [WAIT; 4]),
            (Found::In(at, Leg::Missing), same, [WITHOUT; 4]),
            (Found::In(at, Leg::Missing), other, [WAIT, GONE, WAIT, GONE]),
            (Found::In(at, Leg::Missing), None, [WAIT, GONE, "doubt: it", "doubt: it"]),
            (Found::In(at, doubtful.clone()), same, ["doubt: why"; 4]),
            (Found::In(at, doubtful.clone()), other, [WAIT, GONE, WAIT, GONE]),
            (Found::In(at, doubtful), None, [WAIT, GONE, "doubt: it", "doubt: it"]),
            (Found::In(at, Leg::NoTransaction), same, [WAIT, GONE, WAIT, GONE]),
            (Found::In(at, Leg::NoTransaction), other, [WAIT, GONE, WAIT, GONE]),
            (Found::In(at, Leg::NoTransaction), None, [WAIT, GONE, "doubt: it", "doubt: it"]),
        ] {
            let verdicts = verdicts(&found, ours, Chain::EthereumMainnet, &Untraced::None);
            assert_eq!(verdicts, expected.map(str::to_owned), "{found:?}, and at its number is {ours:?}");
        }
    }

    #[test]
    fn where_no_roots_prove_a_block_a_transaction_that_failed_there_may_land_during_the_grace() {
        let found = Found::In(block(7, 1), Leg::Missing);
        let [early, late, ..] = verdicts(&found, Some(1), Chain::SolanaMainnet, &Untraced::None);
        assert_eq!((early.as_str(), late.as_str()), ("Wait", "fail: its transaction is"));
    }

    #[test]
    fn what_no_trace_has_shown_is_not_failed_while_a_block_is_untraced() {
        let never = Untraced::Forever("why".to_owned());
        for (found, ours) in [
            (Found::Nowhere(Fate::Unknown), None),
            (Found::Nowhere(Fate::Superseded(block(7, 1))), None),
            (Found::In(block(7, 1), Leg::NoTransaction), Some(1)),
            (Found::Unread(block(7, 1)), Some(2)),
        ] {
            for (untraced, expected) in [(&Untraced::Some, "Wait"), (&never, "doubt: why")] {
                let [.., late] = verdicts(&found, ours, Chain::EthereumMainnet, untraced);
                assert_eq!(late, expected, "{found:?}");
            }
        }
    }

    #[test]
    fn only_a_block_up_to_the_newest_final_one_is_searched() {
        assert_eq!(final_block(&Fate::In(block(7, 1)), &block(7, 2)), Some(block(7, 1)));
        for fate in [Fate::In(block(8, 1)), Fate::Superseded(block(7, 1)), Fate::Unknown] {
            assert_eq!(final_block(&fate, &block(7, 2)), None);
        }
    }
}
