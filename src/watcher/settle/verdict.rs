//! The judge: what is to become of a deposit, and the one place where that is done.
//!
//! Promises:
//! - A final block is judged by its proved roots and by rows, never by a trace. What a trace showed needs a witness that
//!   was kept of that very block.
//! - What is CONFIRMED never exceeds what was paid (`evidence`), whichever reading confirmed the rest.
//! - FAILED only in a block that is final for all. Where a tier or an operator calls a block final earlier, a deposit
//!   may be confirmed by the same judgement, and nothing else is done.
//! - Deposits of a network that is not traced any more are judged in the same way.
//!
//! Verdicts are pure; `judge` and [`apply`] read and write the rows under the cursor's lock.

use landfall_chain::{Block, BlockRef, Chain, Lane, Network, Payer, U256};
use tracing::{info, warn};

use crate::deposit::{Deposit, DepositStatus};
use crate::overrides::AuditEntry;
use crate::store::cursors::{self, Cursor};
use crate::store::deposits;
use crate::store::witnesses::{self, Kept, SeenInTrace};
use crate::store::{Db, StoreError, Tx, asset_facts, audit, traces};
use crate::time::Timestamp;
use crate::watcher::balances::short;
use crate::watcher::books::leg::{announce, leg_in, paid_by, prove_signer, shows};
use crate::watcher::books::replace_record::is_weaker;
use crate::watcher::error::{TickError, or_reason};
use crate::watcher::settle::early::Grant;
use crate::watcher::settle::evidence::{Credited, Excess, Paid, paid_in_tx};
use crate::watcher::settle::over_credit;

/// What is to become of a PENDING deposit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::watcher) enum Verdict {
    Confirm(Payer),
    /// Why it is FAILED.
    Fail(String),
    /// It waits for a person.
    Hold(Excess),
    /// It was missing and is in this block of ours, where that lane shows it: it is judged from there.
    Include(BlockRef, Lane),
    /// A second witness of what a trace shows is needed; operators see why there is none.
    Doubt {
        why: String,
        allowed: Option<U256>,
    },
    Wait,
    /// The block that may hold it cannot be read: this time does not count as missing.
    Withhold,
}

/// A deposit that is neither believed nor denied yet.
#[derive(Clone, Debug)]
pub(in crate::watcher) struct Doubted {
    pub(in crate::watcher) deposit: Deposit,
    pub(in crate::watcher) why: String,
    /// How much the balances allow to have been paid to its recipient inside of the block's transactions, in base
    /// units; `None` where they cannot decide.
    pub(in crate::watcher) allowed: Option<U256>,
}

/// Why a block counts as final.
#[derive(Clone, Debug)]
pub(in crate::watcher) enum FinalBy {
    /// By our record: it is not above the newest final block of our chain.
    Record,
    /// The caller has compared it with what the source calls final, even above our chain.
    Source,
    /// It is not final for all.
    Grant(Grant),
}

/// The deposits of one block that one lane showed.
pub(in crate::watcher) struct OfBlock {
    pub(in crate::watcher) seen_in: BlockRef,
    pub(in crate::watcher) lane: Lane,
    pub(in crate::watcher) deposits: Vec<Deposit>,
    pub(in crate::watcher) final_by: FinalBy,
}

/// How a deposit comes to be judged.
#[derive(Clone, Copy, Debug)]
pub(in crate::watcher) struct Case<'c> {
    /// Which lane shows it, or looks for it.
    pub(in crate::watcher) lane: Lane,
    /// The block that it is in; of a missing one, the newest final block.
    pub(in crate::watcher) block: BlockRef,
    pub(in crate::watcher) is_missing: bool,
    /// The operator's reason, where an override lets it be confirmed.
    pub(in crate::watcher) override_reason: Option<&'c str>,
    pub(in crate::watcher) now: Timestamp,
}

/// What was settled.
#[derive(Default, Debug)]
pub(in crate::watcher) struct Settled {
    pub(in crate::watcher) confirmed: u64,
    pub(in crate::watcher) failed: u64,
    /// These are to be put off.
    pub(in crate::watcher) doubted: Vec<Doubted>,
}

/// Judges deposits of one block by its `roots`, read and proved again, in one transaction. Nothing is done if the block
/// does not count (any more).
pub(in crate::watcher) async fn judge(
    db: &Db,
    network: &Network,
    roots: &Block,
    OfBlock { lane, deposits, final_by, .. }: OfBlock,
    now: Timestamp,
) -> Result<Settled, TickError> {
    let (chain, block, mut settled) = (network.chain, roots.header.block, Settled::default());
    let mut tx = db.begin().await?;
    // Also keeps the block canonical until the commit: disconnecting takes the same lock.
    let cursor = Cursor::lock(&mut tx, chain).await?;
    if !is_ours(&mut tx, chain, &block).await? || !final_by.counts(&mut tx, chain, &cursor, &block).await? {
        return Ok(settled);
    }
    // Another process connected it on less meanwhile: its record is replaced first.
    if is_weaker(&mut tx, chain, roots).await? {
        return Ok(settled);
    }
    // A deposit is proved as its block was when it was last read.
    cursors::strengthen(&mut tx, chain, &block, roots.proof).await?;
    let seen = match (lane, &final_by) {
        (Lane::Traces, _) | (Lane::Block, FinalBy::Grant(_)) => {
            witnesses::in_block(&mut tx, chain, &block.hash).await?
        }
        (Lane::Block, FinalBy::Record | FinalBy::Source) => Vec::new(),
    };
    let confirmable = asset_facts::confirmable(&mut tx, chain).await?;
    for deposit in deposits {
        // Settled by another process since it was listed?
        let recorded = deposits::by_leg(&mut tx, &deposit.leg_hash).await?;
        let Some(deposit) = recorded.filter(|recorded| recorded.status == DepositStatus::Pending) else { continue };
        if confirmable.excludes(&deposit.asset, deposit.decimals) {
            continue;
        }
        let seen = seen.iter().find(|seen| seen.deposit.id == deposit.id);
        let lane = if seen.is_some() { Lane::Traces } else { lane };
        let verdict = match (lane, seen) {
            (Lane::Block, _) => {
                let credited = Credited::of(&mut tx, network, &block, lane, &deposit).await?;
                by_block(network, roots, &deposit, &credited)?
            }
            (Lane::Traces, Some(SeenInTrace { kept: Some(kept), .. })) => {
                let credited = Credited::of(&mut tx, network, &block, lane, &deposit).await?;
                by_witness(network, roots, &deposit, kept, &credited)?
            }
            (Lane::Traces, _) => Verdict::Wait,
        };
        let case = Case { lane, block, is_missing: false, override_reason: final_by.override_reason(), now };
        apply(&mut tx, deposit, final_by.limit(verdict), &case, &mut settled).await?;
    }
    tx.commit().await?;
    Ok(settled)
}

/// Judges a deposit by the roots of its block. It is the very block that the deposit was seen in. So if the leg is not
/// in it now, we read it otherwise than then: an error, and no reason to fail a deposit.
fn by_block(network: &Network, roots: &Block, deposit: &Deposit, credited: &Credited) -> Result<Verdict, TickError> {
    let Some(leg) = leg_in(network, &roots.transfers, deposit) else {
        return Err(TickError::LegMissing { chain: network.chain, block: roots.header.block, deposit: deposit.id });
    };
    prove_signer(&roots.signers, &deposit.tx)?;
    let excess = credited.excess_by_roots(network, roots, deposit);
    Ok(excess.map_or(Verdict::Confirm(leg.payer()), Verdict::Hold))
}

/// Judges a deposit by the roots of its block and what was kept of its trace.
fn by_witness(
    network: &Network,
    roots: &Block,
    deposit: &Deposit,
    kept: &Kept,
    credited: &Credited,
) -> Result<Verdict, TickError> {
    if let Some(why) = unfit(network, roots, deposit, kept)? {
        return Ok(Verdict::Doubt { why, allowed: None });
    }
    let block = &roots.header.block;
    if !kept.is_shown {
        return Ok(Verdict::Fail(format!("a trace showed it in final block {}, which is without it", block.number)));
    }
    // Where the chain's own logs show what moves inside, the roots include it by now: it must not count twice.
    let inside = if network.native.is_logged(block.number) { U256::ZERO } else { kept.paid_in_tx };
    let in_tx = paid_in_tx(&roots.transfers, deposit).saturating_add(inside);
    let excess = credited.excess_by_trace(block, Paid { in_tx, in_block: kept.paid_in_block }, deposit);
    Ok(excess.map_or(Verdict::Confirm(kept.payer()), Verdict::Hold))
}

/// Why the roots, read again, contradict what was kept; `None` where they do not.
fn unfit(network: &Network, roots: &Block, deposit: &Deposit, kept: &Kept) -> Result<Option<String>, TickError> {
    let proved = prove_signer(&roots.signers, &deposit.tx).map_err(TickError::from);
    if let Err(why) = or_reason(proved)? {
        return Ok(Some(why));
    }
    if network.asset(&deposit.asset).is_none() {
        return Ok(Some("its asset is not listed any more".to_owned()));
    }
    let is_logged = network.native.is_logged(roots.header.block.number);
    Ok(match (kept.is_shown, shows(network, &roots.transfers, deposit)) {
        (false, true) => Some("a witness of the trace denies it, and the roots of its block show it".to_owned()),
        (true, false) if is_logged => {
            Some("a witness of the trace bears it out, and the chain's own logs do not show it".to_owned())
        }
        (true | false, _) => None,
    })
}

/// Does what the verdict says: writes the status and its event, or what operators and the next search need. `settled`
/// collects what became of it.
pub(in crate::watcher) async fn apply(
    tx: &mut Tx,
    deposit: Deposit,
    verdict: Verdict,
    case: &Case<'_>,
    settled: &mut Settled,
) -> Result<(), TickError> {
    let Case { lane, block, is_missing, override_reason, now } = *case;
    let (chain, id) = (deposit.chain, deposit.id);
    match verdict {
        Verdict::Confirm(payer) => {
            let deposit = paid_by(tx, deposit, payer).await?;
            info!(%chain, tx = %deposit.tx.id, block = block.number, "deposit {id} confirmed");
            if let Some(reason) = override_reason {
                let what = format!("deposit {id} in block {block}");
                audit::append(tx, &audited(chain, "confirmed_by_override", what, reason, now)).await?;
            }
            enter(tx, deposit.confirm(now)?, lane, now).await?;
            settled.confirmed += 1;
        }
        Verdict::Fail(why) => {
            warn!(%chain, tx = %deposit.tx.id, "deposit {id} failed: {why}");
            enter(tx, deposit.fail()?, lane, now).await?;
            settled.failed += 1;
        }
        Verdict::Hold(excess) => over_credit::hold(tx, &deposit, &block, &excess, now).await?,
        Verdict::Include(block, lane) => deposits::include(tx, &deposit, &block, lane).await?,
        Verdict::Withhold => deposits::withhold(tx, id, block.number).await?,
        Verdict::Wait if !is_missing => {}
        Verdict::Wait => deposits::miss(tx, id, block.number, now).await?,
        Verdict::Doubt { why, allowed } => {
            if is_missing {
                deposits::miss(tx, id, block.number, now).await?;
            }
            settled.doubted.push(Doubted { deposit, why, allowed });
        }
    }
    Ok(())
}

/// Writes the status to which a PENDING deposit has changed, and its event.
async fn enter(tx: &mut Tx, deposit: Deposit, lane: Lane, now: Timestamp) -> Result<(), TickError> {
    if lane == Lane::Traces {
        // It waits for no witness any more.
        traces::settled(tx, deposit.id).await?;
    }
    deposits::set_status(tx, &deposit, DepositStatus::Pending).await?;
    if deposit.status == DepositStatus::Confirmed {
        short::confirmed(tx, &deposit, now).await?;
    }
    Ok(announce(tx, &deposit, now).await?)
}

/// Whether `block` is on our chain.
pub(in crate::watcher) async fn is_ours(tx: &mut Tx, chain: Chain, block: &BlockRef) -> Result<bool, StoreError> {
    Ok(cursors::canonical_at(tx, chain, block.number).await? == Some(block.hash))
}

/// An audit entry for what a watcher does because an operator asked for it.
pub(in crate::watcher) fn audited(
    chain: Chain,
    action: &str,
    what: String,
    reason: &str,
    now: Timestamp,
) -> AuditEntry {
    let [actor, action, reason] = ["landfall", action, reason].map(str::to_owned);
    AuditEntry { at: now, actor, action, chain: Some(chain), what, reason }
}

impl FinalBy {
    /// Whether a block of ours counts as final. What is final for all is never disconnected, and all blocks below a
    /// granted one hang on it.
    async fn counts(&self, tx: &mut Tx, chain: Chain, cursor: &Cursor, block: &BlockRef) -> Result<bool, StoreError> {
        match self {
            FinalBy::Record => Ok(cursor.finalized.is_some_and(|finalized| block.number <= finalized.number)),
            FinalBy::Source => Ok(true),
            FinalBy::Grant(grant) => is_ours(tx, chain, &grant.through).await,
        }
    }

    /// In a block that is not final for all, what is not to be CONFIRMED waits until it is.
    fn limit(&self, verdict: Verdict) -> Verdict {
        match (self, verdict) {
            (FinalBy::Grant(_), Verdict::Fail(_) | Verdict::Doubt { .. }) => Verdict::Wait,
            (_, verdict) => verdict,
        }
    }

    fn override_reason(&self) -> Option<&str> {
        match self {
            FinalBy::Record | FinalBy::Source => None,
            FinalBy::Grant(grant) => grant.reason.as_deref(),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use landfall_chain::{
        Address, Asset, AssetId, AssetTransfer, BlockHash, Debits, FinalityRule, Header, Native, NativeSource, Proof,
        SenderRule, Sending, Signers, TxId, TxLife, TxRef,
    };

    use super::*;
    use crate::deposit::Leg;
    use crate::store::witnesses::WitnessedBy;

    const SENDER: Address = Address::Evm([1; 20]);
    const PAYER: Payer = Payer { sender: SENDER, rule: SenderRule::Reported };
    /// Where the chain's own logs begin.
    const LOGGED: u64 = 100;

    fn amount(units: u64) -> U256 {
        U256::from(units)
    }

    fn leg(units: u64) -> AssetTransfer {
        AssetTransfer {
            tx: TxRef { id: TxId::Evm([7; 32]), life: TxLife::Block },
            asset: AssetId::Native,
            sender: SENDER,
            sender_rule: SenderRule::Reported,
            recipient: Address::Evm([2; 20]),
            amount: amount(units),
            nth: 0,
        }
    }

    /// A PENDING deposit of 5 base units.
    pub(in crate::watcher::settle) fn deposit(chain: Chain) -> Deposit {
        let AssetTransfer { tx, asset, sender, sender_rule, recipient, amount, nth } = leg(5);
        let leg_hash = Leg { chain_ref: "eip155:1", tx: tx.id, asset, recipient, amount, nth }.hash();
        Deposit {
            id: leg_hash.deposit_id(),
            leg_hash,
            account_id: "alice".to_owned(),
            source_account_id: None,
            chain,
            tx,
            asset,
            sender,
            sender_rule,
            recipient,
            amount,
            nth,
            symbol: "ETH".to_owned(),
            decimals: 18,
            status: DepositStatus::Pending,
            created_at: Timestamp::EPOCH,
            confirmed_at: None,
            is_self_transfer: false,
        }
    }

    fn network(is_listed: bool) -> Network {
        let native = Asset { id: AssetId::Native, symbol: "ETH".to_owned(), decimals: 18, from_block: 0, route: None };
        Network {
            chain: Chain::EthereumMainnet,
            chain_ref: "eip155:1".to_owned(),
            block_time_ms: 12_000,
            finality: FinalityRule::FINALIZED.into(),
            native: Native { source: NativeSource::Trace, eip7708_from: Some(LOGGED) },
            wrapped: None,
            delegates: Vec::new(),
            sending: Sending::usual(30_000),
            assets: if is_listed { vec![native] } else { Vec::new() },
        }
    }

    fn roots(number: u64, transfers: Vec<AssetTransfer>) -> Block {
        let block = BlockRef { number, hash: BlockHash([9; 32]) };
        Block {
            header: Header { block, parent: block, time_secs: 1 },
            txs: Vec::new(),
            transfers,
            debits: Debits::Net(Vec::new()),
            unattributed: Vec::new(),
            fees: Vec::new(),
            marks: Vec::new(),
            rejected: Vec::new(),
            fee_recipient: None,
            proof: Proof::Roots,
            signers: Signers::default(),
            inside: None,
        }
    }

    /// The verdict in a word, and what it would credit of how much.
    fn said(verdict: &Verdict) -> String {
        match verdict {
            Verdict::Confirm(payer) if *payer == PAYER => "confirm".to_owned(),
            Verdict::Fail(_) => "fail".to_owned(),
            Verdict::Hold(Excess { credited, paid, .. }) => format!("hold {credited} of {paid}"),
            Verdict::Doubt { why, allowed: None } => format!("doubt: {}", why.rsplit(' ').next().unwrap_or_default()),
            verdict => format!("{verdict:?}"),
        }
    }

    #[test]
    fn by_its_block_a_deposit_is_confirmed_up_to_what_was_paid() {
        let of = |in_tx: &[u64], in_other_form: &[u64], by_traces: &[u64]| Credited {
            in_tx: in_tx.iter().copied().map(amount).collect(),
            in_other_form: in_other_form.iter().copied().map(amount).collect(),
            by_traces: by_traces
                .iter()
                .map(|units| Deposit {
                    leg_hash: crate::deposit::LegHash([3; 32]),
                    amount: amount(*units),
                    ..deposit(Chain::EthereumMainnet)
                })
                .collect(),
        };
        let paid = |legs: &[u64]| roots(7, legs.iter().copied().map(leg).collect());
        for (paid, credited, expected) in [
            (paid(&[5]), of(&[], &[], &[]), "confirm"),
            (paid(&[5, 3]), of(&[3], &[], &[]), "confirm"),
            (paid(&[5, 2]), of(&[3], &[], &[]), "hold 8 of 7"),
            (paid(&[5, 3]), of(&[3], &[], &[1]), "hold 9 of 8"),
        ] {
            let verdict = by_block(&network(true), &paid, &deposit(Chain::EthereumMainnet), &credited).unwrap();
            assert_eq!(said(&verdict), expected, "{credited:?}");
        }
        let credited = of(&[], &[1], &[]);
        let wrapped = Network { wrapped: Some(AssetId::Token(Address::Evm([8; 20]))), ..network(true) };
        let verdict = by_block(&wrapped, &paid(&[5]), &deposit(Chain::EthereumMainnet), &credited).unwrap();
        assert_eq!(said(&verdict), "hold 6 of 5", "both forms of the native currency are one sum");
        let missing = by_block(&network(true), &paid(&[4]), &deposit(Chain::EthereumMainnet), &credited);
        assert!(matches!(missing, Err(TickError::LegMissing { .. })), "{missing:?}");
    }

    #[test]
    fn by_its_witness_a_deposit_is_confirmed_failed_held_or_doubted() {
        let kept = |is_shown, paid_in_tx: u64, paid_in_block: u64| Kept {
            by: WitnessedBy::Balances,
            is_shown,
            sender: SENDER,
            paid_in_tx: amount(paid_in_tx),
            paid_in_block: amount(paid_in_block),
        };
        let beside = Deposit { amount: amount(2), ..deposit(Chain::EthereumMainnet) };
        for (number, legs, kept, in_tx, by_traces, expected) in [
            (7, vec![], kept(true, 5, 5), vec![], vec![], "confirm"),
            (7, vec![], kept(false, 0, 0), vec![], vec![], "fail"),
            (7, vec![leg(5)], kept(false, 0, 0), vec![], vec![], "doubt: it"),
            (7, vec![leg(5)], kept(true, 5, 5), vec![], vec![], "confirm"),
            (7, vec![], kept(true, 5, 9), vec![amount(2)], vec![], "hold 7 of 5"),
            // What the roots show of the transaction counts beside what moved inside.
            (7, vec![leg(2)], kept(true, 5, 5), vec![amount(2)], vec![], "confirm"),
            (7, vec![], kept(true, 5, 6), vec![], vec![beside], "hold 7 of 6"),
            // The logs of the chain must show it, and it counts once.
            (LOGGED, vec![], kept(true, 5, 5), vec![], vec![], "doubt: it"),
            (LOGGED, vec![leg(5)], kept(true, 5, 5), vec![amount(1)], vec![], "hold 6 of 5"),
            (LOGGED, vec![leg(5)], kept(true, 5, 5), vec![], vec![], "confirm"),
        ] {
            let credited = Credited { in_tx, by_traces, ..Credited::default() };
            let (network, roots) = (network(true), roots(number, legs));
            let verdict = by_witness(&network, &roots, &deposit(Chain::EthereumMainnet), &kept, &credited).unwrap();
            assert_eq!(said(&verdict), expected, "{number} {kept:?} {credited:?}");
        }
        let (roots, kept) = (roots(7, Vec::new()), kept(true, 5, 5));
        let unlisted =
            by_witness(&network(false), &roots, &deposit(Chain::EthereumMainnet), &kept, &Credited::default());
        assert_eq!(said(&unlisted.unwrap()), "doubt: more");
    }

    #[test]
    fn where_a_block_is_not_final_for_all_only_a_credit_is_decided() {
        let granted = FinalBy::Grant(Grant { through: roots(9, Vec::new()).header.block, reason: None });
        for (verdict, under_a_grant) in [
            (Verdict::Confirm(PAYER), "confirm"),
            (Verdict::Fail("why".to_owned()), "Wait"),
            (Verdict::Doubt { why: "why".to_owned(), allowed: None }, "Wait"),
        ] {
            assert_eq!(FinalBy::Record.limit(verdict.clone()), verdict);
            assert_eq!(said(&granted.limit(verdict)), under_a_grant);
        }
    }
}
