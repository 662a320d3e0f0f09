//! What the store has made of a chain, compared with what the chain itself knows.
//!
//! True is what stands in blocks that the chain calls final: every leg of a listed asset to a watched address that this
//! mode can see. Promises: each is counted by its identity, so nothing can hide behind an equal amount.

use std::collections::{BTreeMap, BTreeSet};

use landfall::deposit::{Deposit, DepositStatus, Leg, LegHash};
use landfall::store::deposits::{self, DepositFilter};
use landfall::store::traces;
use landfall_chain::{Address, AssetId, AssetTransfer, Lane, Network, SenderRule, TxId, TxLife, TxRef, U256};
use landfall_node::{BAIT, Block};
use sha2::{Digest, Sha256};

use super::{Followed, Mode, network};
use crate::harness::books;

const DEPOSITS_MAX: u32 = 1_000_000;
const WEI_PER_GWEI: u64 = 1_000_000_000;

/// What the store has, compared with what the chain knows.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Audit {
    /// Legs of final blocks to watched addresses.
    pub(crate) legs: usize,
    /// What they are.
    pub(crate) kinds: Kinds,
    /// Of those, not CONFIRMED.
    pub(crate) missing: usize,
    /// CONFIRMED, and no leg of a final block.
    pub(crate) phantom: usize,
    /// CONFIRMED or announced more than once.
    /// Why deposits of traces are doubtful.
    pub(crate) doubts: Vec<String>,
    pub(crate) twice: usize,
    /// PENDING, although all that ever was is final.
    pub(crate) undecided: usize,
    /// Believed for a while, and FAILED.
    pub(crate) failed: usize,
    /// Seen on a branch that never won, and believed for a while.
    pub(crate) baits: usize,
}

/// Legs by what they are.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Kinds {
    pub(crate) tokens: usize,
    /// A transaction's own value.
    pub(crate) native: usize,
    pub(crate) withdrawals: usize,
    /// Value that moved inside of a transaction.
    pub(crate) inner: usize,
}

impl Audit {
    pub(crate) fn is_clean(&self) -> bool {
        (self.missing, self.phantom, self.twice, self.undecided) == (0, 0, 0, 0)
    }
}

impl Kinds {
    pub(crate) fn add(&mut self, other: Kinds) {
        self.tokens += other.tokens;
        self.native += other.native;
        self.withdrawals += other.withdrawals;
        self.inner += other.inner;
    }

    fn count(&mut self, lane: Lane, transfer: &AssetTransfer) {
        let kind = match (transfer.asset, lane, transfer.tx.life) {
            (AssetId::Token(_), ..) => &mut self.tokens,
            (AssetId::Native, Lane::Traces, _) => &mut self.inner,
            (AssetId::Native, Lane::Block, TxLife::Block) => &mut self.withdrawals,
            (AssetId::Native, Lane::Block, _) => &mut self.native,
        };
        *kind += 1;
    }
}

impl Followed {
    pub(crate) async fn audit(&self) -> Audit {
        let through = self.chain.finalized().map_or(0, |finalized| finalized.number);
        let network = network(self.mode);
        let (mut legs, mut kinds) = (BTreeSet::new(), Kinds::default());
        for block in self.chain.blocks().iter().filter(|block| block.number() <= through) {
            for (lane, transfer) in self.legs(&network, block) {
                let AssetTransfer { tx, asset, recipient, amount, nth, .. } = transfer;
                let leg = Leg { chain_ref: &network.chain_ref, tx: tx.id, asset, recipient, amount, nth };
                legs.insert(leg.hash());
                kinds.count(lane, &transfer);
            }
        }
        let db = &self.store.db;
        let all = deposits::list(&mut db.read().await.unwrap(), &DepositFilter::default(), DEPOSITS_MAX).await.unwrap();
        let of_status = |status| all.iter().filter(move |deposit| deposit.status == status);
        let recomputed = |deposit: &Deposit| {
            let Deposit { tx, asset, recipient, amount, nth, .. } = *deposit;
            Leg { chain_ref: &network.chain_ref, tx: tx.id, asset, recipient, amount, nth }.hash()
        };
        let confirmed: Vec<LegHash> = of_status(DepositStatus::Confirmed).map(recomputed).collect();
        let mut announced: BTreeMap<String, u64> = BTreeMap::new();
        for event in books::events(db).await.into_iter().filter(|event| event.status == "CONFIRMED") {
            *announced.entry(event.aggregateid).or_default() += 1;
        }
        let distinct: BTreeSet<LegHash> = confirmed.iter().copied().collect();
        let repeated = announced.values().filter(|times| **times > 1).count();
        Audit {
            legs: legs.len(),
            kinds,
            missing: legs.difference(&distinct).count(),
            phantom: distinct.difference(&legs).count(),
            twice: confirmed.len() - distinct.len() + repeated,
            undecided: of_status(DepositStatus::Pending).count(),
            failed: of_status(DepositStatus::Failed).count(),
            doubts: traces::doubts(&mut db.read().await.unwrap())
                .await
                .unwrap()
                .into_iter()
                .map(|it| it.reason)
                .collect(),
            baits: all.iter().filter(|deposit| deposit.amount == U256::from(BAIT)).count(),
        }
    }

    /// What the block pays to watched addresses in listed assets, as far as this mode can see it.
    fn legs(&self, network: &Network, block: &Block) -> Vec<(Lane, AssetTransfer)> {
        let of_txs = block.ledger().iter().map(|leg| (leg.lane, leg.transfer.clone()));
        let withdrawals = block.withdrawals().iter();
        let withdrawals = withdrawals.map(|one| (Lane::Block, withdrawal(one.index, one.address.into(), one.amount)));
        let is_seen = |lane| lane == Lane::Block || self.mode == Mode::Traces;
        let legs = of_txs.chain(withdrawals);
        let ours = legs.filter(|(lane, leg)| is_seen(*lane) && self.watched.contains(&leg.recipient));
        ours.filter(|(_, leg)| network.asset(&leg.asset).is_some()).collect()
    }
}

/// The leg of a beacon withdrawal, by DESIGN's words and not by the source's code.
fn withdrawal(index: u64, recipient: [u8; 20], gwei: u64) -> AssetTransfer {
    let name = [&13_u32.to_be_bytes()[..], b"withdrawal/v1", &8_u32.to_be_bytes(), &index.to_be_bytes()].concat();
    AssetTransfer {
        tx: TxRef { id: TxId::Evm(Sha256::digest(name).into()), life: TxLife::Block },
        asset: AssetId::Native,
        sender: Address::Evm([0; 20]),
        sender_rule: SenderRule::Reported,
        recipient: Address::Evm(recipient),
        amount: U256::from(gwei) * U256::from(WEI_PER_GWEI),
        nth: 0,
    }
}
