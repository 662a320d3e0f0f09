//! Who agrees with a trace: another endpoint's, or the balances of the recipient, which the state root proves.
//!
//! Balances show only what is left of all that came and went: value that never came is hidden by value that never left. So
//! they count only where a trace cannot lie on both sides: nothing left the address inside of transactions, neither in this
//! reading nor in an earlier one of the block, what it paid for transactions is proved in full, the block's fees did not go to
//! it, and what is CONFIRMED of the block by traces, or witnessed already, is told by this reading too. Everywhere else a second trace is the only witness.

use landfall_chain::{
    Address, AddressSource, AssetId, AssetTransfer, Block, BlockRef, BlockSource, Network, Proof, U256,
};

use crate::deposit::{Deposit, DepositStatus};
use crate::store::witnesses::Sighted;
use crate::store::{Connection, StoreError, Tx, movements, witnesses};
use crate::watcher::TickError;
use crate::watcher::evidence::{Excess, shows};
use crate::watcher::leg::prove_signer;
use crate::watcher::trace_lane::TraceLane;
use crate::watcher::witness::{Evidence, Witnessed};

impl<S: BlockSource + AddressSource> TraceLane<S> {
    /// Whether a second endpoint or the balances of `address` agree with what the trace shows of it, or does not show
    /// where that is to be judged.
    pub(super) async fn agree(
        &self,
        evidence: &Evidence,
        address: &Address,
        is_shown: bool,
    ) -> Result<Witnessed, TickError> {
        if evidence.is_told_twice() {
            return Ok(Ok(()));
        }
        if let Some(what) = self.cancels_out(evidence, address).await? {
            let number = evidence.roots.header.block.number;
            return Ok(Err(format!(
                "one endpoint's trace is all there is of block {number}, and the balances of {address} are no witness of \
                 it: {what}, so that two lies could cancel out; a second endpoint that traces must agree"
            )));
        }
        self.prove_payers(evidence, address, is_shown)?;
        let header = evidence.roots.header;
        let [before, after] = [header.parent, header.block].map(async |at| {
            let balances = self.source.balances(std::slice::from_ref(address), &at).await?;
            balances.first().copied().ok_or_else(|| {
                let what = format!("no balance of {address} was told at block {at}");
                TickError::Contradiction { chain: self.chain(), what }
            })
        });
        let (before, after) = futures_util::future::try_join(before, after).await?;
        let (paid_in, paid_out) = moved(evidence, address);
        // before + in == after + out, without a subtraction that could wrap.
        let balanced = paid_in.and_then(|paid_in| before.checked_add(paid_in));
        let spent = paid_out.and_then(|paid_out| after.checked_add(paid_out));
        Ok(match (balanced, spent) {
            (Some(balanced), Some(spent)) if balanced == spent => Ok(()),
            _ => Err(format!(
                "one endpoint's trace shows it, and the balances of {address} do not agree: {before} base units before \
                 block {} and {after} after it",
                header.block.number
            )),
        })
    }

    /// What of `address` in the block could be told wrong together with something that came in.
    async fn cancels_out(&self, evidence: &Evidence, address: &Address) -> Result<Option<String>, TickError> {
        let Evidence { roots, traces, .. } = evidence;
        let mut legs = traces.transfers.iter().filter(|leg| leg.asset == AssetId::Native);
        if legs.any(|leg| leg.sender == *address) {
            return Ok(Some("value left it inside of transactions, too".to_owned()));
        }
        if roots.fee_recipient == Some(*address) {
            return Ok(Some("the fees of the block went to it, too".to_owned()));
        }
        if roots.fees.iter().any(|fee| fee.payer == *address && !fee.proved) {
            return Ok(Some("it paid for a transaction, of which a part is the node's word".to_owned()));
        }
        let mut reader = self.db.read().await?;
        if movements::left_inside(&mut reader, self.chain(), &roots.header.block, address).await? {
            return Ok(Some("an earlier reading showed value leave it inside of transactions".to_owned()));
        }
        Ok(contradicted(&mut reader, &self.network, evidence, address).await?)
    }

    /// That those paid for transactions who are said to: `from` is in no root. Where something is said to be absent, the
    /// others did not pay in its place.
    fn prove_payers(&self, evidence: &Evidence, address: &Address, is_shown: bool) -> Result<(), TickError> {
        let roots = &evidence.roots;
        let of_fees = roots.fees.iter().filter(|fee| !is_shown || fee.payer == *address).map(|fee| &fee.tx);
        let of_legs = roots.transfers.iter().filter(|leg| leg.sender == *address).map(|leg| &leg.tx);
        for tx in of_fees.chain(of_legs) {
            prove_signer(&roots.signers, tx)?;
        }
        Ok(())
    }
}

/// What is known of `address` in the evidence's block and told otherwise by this reading of it: a deposit that traces
/// CONFIRMED and that is not in it, or one whose witness says the opposite. One of the two readings is wrong.
pub(super) async fn contradicted(
    connection: &mut impl Connection,
    network: &Network,
    Evidence { roots, traces, .. }: &Evidence,
    address: &Address,
) -> Result<Option<String>, StoreError> {
    for Sighted { deposit, kept } in sighted(connection, network, &roots.header.block, address).await? {
        let is_shown = shows(network, &traces.transfers, &deposit) || shows(network, &roots.transfers, &deposit);
        let what = match (deposit.status, kept) {
            (DepositStatus::Confirmed, _) if !is_shown => "CONFIRMED of this block, is not in this reading of it",
            (DepositStatus::Confirmed, _) => continue,
            (_, Some(kept)) if kept.is_shown && !is_shown => "which has a witness, is not in this reading of it",
            (_, Some(kept)) if !kept.is_shown && is_shown => "which a witness denies, is in this reading of it",
            (_, _) => continue,
        };
        return Ok(Some(format!("deposit {}, {what}", deposit.id)));
    }
    Ok(None)
}

/// What `transfers` of a block pay to the deposit's recipient in its asset.
pub(super) fn paid_in_block(transfers: &[AssetTransfer], deposit: &Deposit) -> U256 {
    let is_same = |leg: &&AssetTransfer| (leg.asset, leg.recipient) == (deposit.asset, deposit.recipient);
    transfers.iter().filter(is_same).fold(U256::ZERO, |sum, leg| sum.saturating_add(leg.amount))
}

/// What would be too much, were the deposit CONFIRMED: of one block never more is CONFIRMED by traces for an address than
/// was `paid` to it inside of the transactions. Two readings that tell the same value of different transactions would credit
/// it twice.
pub(super) async fn guard_block_sum(
    tx: &mut Tx,
    network: &Network,
    block: &BlockRef,
    paid: U256,
    deposit: &Deposit,
) -> Result<Option<Excess>, StoreError> {
    let sighted = sighted(tx, network, block, &deposit.recipient).await?;
    let confirmed = sighted.iter().map(|sighted| &sighted.deposit);
    let mut same = confirmed.filter(|it| it.status == DepositStatus::Confirmed && it.asset == deposit.asset);
    let credited = same.try_fold(deposit.amount, |sum, confirmed| sum.checked_add(confirmed.amount));
    let of = format!("the inside of the transactions of block {}", block.number);
    Ok(Excess::unless_paid(credited, paid, of))
}

/// What would be too much, were the deposit CONFIRMED that the chain's own logs show in the block `roots`: where a trace told
/// the block before, and what was CONFIRMED by it is not among the logs, the same value would be credited twice.
pub(super) async fn guard_logged(
    tx: &mut Tx,
    network: &Network,
    roots: &Block,
    deposit: &Deposit,
) -> Result<Option<Excess>, StoreError> {
    let block = roots.header.block;
    if deposit.asset != AssetId::Native || !network.native.is_logged(block.number) {
        return Ok(None);
    }
    let sighted = sighted(tx, network, &block, &deposit.recipient).await?;
    let confirmed = sighted.iter().map(|sighted| &sighted.deposit).filter(|it| it.status == DepositStatus::Confirmed);
    let mut denied = confirmed.filter(|it| it.asset == deposit.asset && !shows(network, &roots.transfers, it));
    let paid = paid_in_block(&roots.transfers, deposit);
    let credited = denied.try_fold(paid, |sum, denied| sum.checked_add(denied.amount));
    Ok(Excess::unless_paid(credited, paid, format!("block {}", block.number)))
}

async fn sighted(
    connection: &mut impl Connection,
    network: &Network,
    block: &BlockRef,
    address: &Address,
) -> Result<Vec<Sighted>, StoreError> {
    let mut sighted = witnesses::in_block(connection, network.chain, &block.hash).await?;
    sighted.retain(|sighted| sighted.deposit.recipient == *address);
    Ok(sighted)
}

impl Evidence {
    /// Whether two endpoints told the same of what is inside.
    pub(super) fn is_told_twice(&self) -> bool {
        self.traces.proof == Proof::TwoEndpoints
    }
}

/// What the block moved of the native currency to `address` and away from it, fees included; `None` beyond 2^256.
fn moved(evidence: &Evidence, address: &Address) -> (Option<U256>, Option<U256>) {
    let Evidence { roots, traces, .. } = evidence;
    let (mut paid_in, mut paid_out) = (Some(U256::ZERO), Some(U256::ZERO));
    let add = |sum: &mut Option<U256>, amount: U256| *sum = sum.and_then(|sum| sum.checked_add(amount));
    for transfer in roots.transfers.iter().chain(&traces.transfers).filter(|leg| leg.asset == AssetId::Native) {
        if transfer.recipient == *address {
            add(&mut paid_in, transfer.amount);
        }
        if transfer.sender == *address {
            add(&mut paid_out, transfer.amount);
        }
    }
    roots.fees.iter().filter(|fee| fee.payer == *address).for_each(|fee| add(&mut paid_out, fee.amount));
    (paid_in, paid_out)
}
