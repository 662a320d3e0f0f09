//! Finds what left our addresses without a signature of ours. That wallet or sponsor signs nothing more until a person
//! has checked it.
//!
//! Only final blocks are judged, after the signer's journal was compared: what another store had the same signer sign
//! is ours. While the chain recovers, what sponsors paid counts as signed by the lost store.
//! Promise: nothing is called foreign only because a node reported it, because a reorg disconnected a block, or because
//! this store is an old copy that was noticed.

use landfall_chain::{Address, AssetId, Chain, PayingChain, U256};
use tracing::{error, info};

use crate::incident::{Incident, IncidentKind};
use crate::sender::{SendError, Sender, gas};
use crate::store::cursors::Cursor;
use crate::store::spends::{self, Evidence, Spend};
use crate::store::sponsors::{self, Sponsor};
use crate::store::{Connection, StoreError, Tx, incidents, recoveries, wallets};
use crate::time::{Clock, Timestamp};
use crate::transfer::SponsorState;

/// How many are judged in a tick.
const JUDGED_MAX: u32 = 1_000;

/// What a spend turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Judged {
    /// A signature of ours explains it, or there is nothing to explain any more.
    Ours,
    /// The store that was set back may have signed it.
    Lost,
    /// A treasury gave it to its own sponsors, and a copy of this store may have signed it.
    Refilled,
    /// It was sent before the sponsor was ours to use, or a person has released it since.
    Before,
    /// Nobody here signed for what left of this asset.
    Foreign(AssetId),
}

/// Whose address a spend is of.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Spender {
    Wallet,
    Sponsor(Sponsor),
}

impl<C: PayingChain> Sender<C> {
    /// Judges what left our addresses in final blocks, and quarantines those of which nothing of ours explains it.
    pub(super) async fn explain_spends(&mut self, clock: &Clock) -> Result<(), SendError> {
        let chain = self.network.chain;
        let mut reader = self.db.read().await?;
        let Some(finalized) = Cursor::load(&mut reader, chain).await?.finalized else { return Ok(()) };
        let waiting = spends::waiting(&mut reader, chain, finalized.number, JUDGED_MAX).await?;
        if waiting.is_empty() {
            return Ok(());
        }
        let judged = judge_all(&mut reader, chain, waiting).await?;
        drop(reader);
        if judged.iter().any(|(.., judged)| matches!(judged, Judged::Foreign(_))) {
            // Another store may have asked the same signer since.
            self.journal.forget_time();
            self.compare(clock).await?;
            if !self.journal.is_compared() {
                return Ok(());
            }
        }
        let now = clock.now();
        let (mut tx, mut unrecorded) = (self.begin(now).await?, Vec::new());
        // No block is disconnected before the end of the transaction.
        let Some(finalized) = Cursor::lock(&mut tx, chain).await?.finalized else { return Ok(()) };
        let waiting = spends::waiting(&mut tx, chain, finalized.number, JUDGED_MAX).await?;
        for (spend, spender, judged) in judge_all(&mut tx, chain, waiting).await? {
            let Spend { tx: of, block, spender: address, .. } = &spend;
            match judged {
                Judged::Ours | Judged::Before => {}
                Judged::Lost => {
                    info!(%chain, "{of} in block {block} is of {address}, and not on record; the chain recovers")
                }
                // Its nonce is used: the hourly check counts it.
                Judged::Refilled => {
                    info!(%chain, "{of} in block {block} refilled sponsors by {address}, and is not on record");
                    if let Some(nonce) = spend.nonce {
                        sponsors::journaled(&mut tx, chain, address, nonce).await?;
                    }
                }
                Judged::Foreign(asset) => {
                    let what = what_is_foreign(&spend, &spender, &asset);
                    self.quarantine(&mut tx, (*address, &spender), (asset, &what, block.number), now).await?;
                }
            }
            let is_foreign = matches!(judged, Judged::Before | Judged::Foreign(_));
            spends::judged(&mut tx, chain, &spend, is_foreign).await?;
            if spend.is_canonical && !is_foreign && matches!(spender, Spender::Sponsor(_)) {
                unrecorded.push(spend);
            }
        }
        gas::book_unrecorded(&mut tx, &self.network, &unrecorded, now).await?;
        Ok(self.commit(tx, now).await?)
    }

    /// Somebody else may have the key of a sponsor: it carries nothing more. `number` is that of the block that shows it.
    pub(super) async fn quarantine_sponsor(
        &self,
        tx: &mut Tx,
        sponsor: &Sponsor,
        (what, number): (&str, u64),
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let Some(address) = sponsor.address else { return Ok(()) };
        let spender = Spender::Sponsor(sponsor.clone());
        self.quarantine(tx, (address, &spender), (AssetId::Native, what, number), now).await
    }

    async fn quarantine(
        &self,
        tx: &mut Tx,
        (address, spender): (Address, &Spender),
        (asset, what, number): (AssetId, &str, u64),
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let chain = self.network.chain;
        error!(%chain, "{what}; it signs nothing more before a person releases it");
        match spender {
            Spender::Wallet => wallets::quarantine(tx, &address, now).await?,
            Spender::Sponsor(sponsor) => {
                let state = sponsors::state(tx, chain, sponsor.number).await?;
                if state != SponsorState::Quarantined {
                    sponsors::set_state(tx, chain, sponsor.number, (state, SponsorState::Quarantined)).await?;
                }
            }
        }
        let incident = Incident::open(chain, IncidentKind::ForeignSpend, what.to_owned(), Some(number), now);
        incidents::meet(tx, &incident.about_balance(address, asset)).await.map(drop)
    }
}

async fn judge_all(
    connection: &mut impl Connection,
    chain: Chain,
    waiting: Vec<Spend>,
) -> Result<Vec<(Spend, Spender, Judged)>, StoreError> {
    let sponsors = sponsors::of_chain(connection, chain).await?;
    let recovers = recoveries::of_chain(connection, chain).await?.is_some();
    let mut judged = Vec::new();
    for spend in waiting {
        let is_it = |sponsor: &&Sponsor| sponsor.address == Some(spend.spender);
        let spender = sponsors.iter().find(is_it).cloned().map_or(Spender::Wallet, Spender::Sponsor);
        let evidence = spends::evidence(connection, chain, &spend).await?;
        let as_judged = judge(&spend, &spender, &evidence, recovers);
        judged.push((spend, spender, as_judged));
    }
    Ok(judged)
}

/// What explains a spend, by what is on record of it.
fn judge(spend: &Spend, spender: &Spender, evidence: &Evidence, recovers: bool) -> Judged {
    let Evidence { is_ours, carries, has_fee, left, paid, is_to_sponsors } = evidence;
    if *is_ours || !spend.is_canonical {
        return Judged::Ours;
    }
    // Whoever carried it, an intent of the wallet explains what it paid, and no more than that.
    let unpaid = left.iter().map(|(asset, _)| *asset).find(|asset| sum(left, asset) > sum(paid, asset));
    match spender {
        // No transaction is a wallet's own.
        Spender::Wallet if *has_fee => Judged::Foreign(AssetId::Native),
        Spender::Wallet => unpaid.map_or(Judged::Ours, Judged::Foreign),
        // A copy of this store carries what is ours, too.
        Spender::Sponsor(_) if *carries => Judged::Ours,
        Spender::Sponsor(of) if of.is_treasury && *is_to_sponsors => Judged::Refilled,
        Spender::Sponsor(of) if spend.nonce.zip(of.first_nonce).is_some_and(|(nonce, first)| nonce < first) => {
            Judged::Before
        }
        Spender::Sponsor(_) if !*has_fee && unpaid.is_none() => Judged::Ours,
        Spender::Sponsor(_) if recovers => Judged::Lost,
        Spender::Sponsor(_) => Judged::Foreign(unpaid.unwrap_or(AssetId::Native)),
    }
}

fn sum(amounts: &[(AssetId, U256)], of: &AssetId) -> U256 {
    let amounts = amounts.iter().filter(|(asset, _)| asset == of);
    amounts.fold(U256::ZERO, |sum, (_, amount)| sum.saturating_add(*amount))
}

fn what_is_foreign(spend: &Spend, spender: &Spender, asset: &AssetId) -> String {
    let Spend { tx, block, spender: address, nonce, .. } = spend;
    let with = nonce.map(|nonce| format!(" with nonce {nonce}")).unwrap_or_default();
    match spender {
        Spender::Wallet => format!(
            "{asset} left wallet {address} by transaction {tx} in block {block}{with}, and nothing that was signed here explains it"
        ),
        Spender::Sponsor(Sponsor { number, .. }) => format!(
            "sponsor {number} ({address}) spent by transaction {tx} in block {block}{with}, and nothing that was signed here \
             explains it"
        ),
    }
}

#[cfg(test)]
mod tests {
    use landfall_chain::{BlockHash, BlockRef, TxId};

    use super::*;

    const TOKEN: AssetId = AssetId::Token(Address::Evm([3; 20]));

    fn spend(nonce: Option<u64>) -> Spend {
        let block = BlockRef { number: 7, hash: BlockHash([7; 32]) };
        Spend { block, tx: TxId::Evm([1; 32]), spender: Address::Evm([2; 20]), nonce, is_canonical: true }
    }

    fn sponsor() -> Spender {
        Spender::Sponsor(Sponsor {
            number: 0,
            is_treasury: false,
            address: Some(Address::Evm([2; 20])),
            state: SponsorState::Active,
            first_nonce: Some(5),
            journal_nonce: 0,
            seen_from: Some(1),
            poor_since: None,
        })
    }

    fn of(asset: AssetId, amount: u64) -> (AssetId, U256) {
        (asset, U256::from(amount))
    }

    #[test]
    fn what_left_is_explained_by_what_was_signed_here_and_by_nothing_else() {
        use AssetId::Native;
        use Judged::{Before, Foreign, Lost, Ours, Refilled};
        let fee = Evidence { has_fee: true, ..Evidence::default() };
        let left = |left: Vec<_>, paid: Vec<_>| Evidence { left, paid, ..Evidence::default() };
        let exact = left(vec![of(TOKEN, 5)], vec![of(TOKEN, 5)]);
        let more = left(vec![of(TOKEN, 5), of(TOKEN, 1)], vec![of(TOKEN, 5)]);
        let another = left(vec![of(TOKEN, 5), of(Native, 1)], vec![of(TOKEN, 5)]);
        let two = left(vec![of(TOKEN, 5), of(TOKEN, 7)], vec![of(TOKEN, 7), of(TOKEN, 5)]);
        let wallet = || Spender::Wallet;
        let to_sponsors = Evidence { has_fee: true, is_to_sponsors: true, ..left(vec![of(Native, 5)], vec![]) };
        let treasury = || match sponsor() {
            Spender::Sponsor(of) => Spender::Sponsor(Sponsor { is_treasury: true, ..of }),
            wallet @ Spender::Wallet => wallet,
        };
        let cases = [
            (wallet(), spend(None), exact.clone(), false, Ours),
            (wallet(), spend(None), two, false, Ours),
            (wallet(), spend(None), more, false, Foreign(TOKEN)),
            (wallet(), spend(None), another, false, Foreign(Native)),
            (wallet(), spend(None), left(vec![of(TOKEN, 5)], vec![]), false, Foreign(TOKEN)),
            // What a lost store signed of a wallet shows as an intent, so a recovery hides nothing.
            (wallet(), spend(None), left(vec![of(TOKEN, 5)], vec![]), true, Foreign(TOKEN)),
            (wallet(), spend(Some(0)), fee.clone(), true, Foreign(Native)),
            (wallet(), spend(Some(0)), Evidence { is_ours: true, ..fee.clone() }, false, Ours),
            (wallet(), spend(None), Evidence::default(), false, Ours),
            (sponsor(), spend(Some(5)), fee.clone(), false, Foreign(Native)),
            (sponsor(), spend(Some(5)), fee.clone(), true, Lost),
            (sponsor(), spend(Some(4)), fee.clone(), false, Before),
            (sponsor(), spend(Some(5)), Evidence { carries: true, ..fee.clone() }, false, Ours),
            (sponsor(), spend(Some(5)), Evidence { is_ours: true, ..fee.clone() }, false, Ours),
            (sponsor(), spend(None), left(vec![of(Native, 5)], vec![]), false, Foreign(Native)),
            // A copy of this store refills with the same key; anything else of a treasury is foreign as of any sponsor.
            (treasury(), spend(Some(5)), to_sponsors.clone(), false, Refilled),
            (treasury(), spend(Some(5)), fee.clone(), false, Foreign(Native)),
            (
                treasury(),
                spend(Some(5)),
                Evidence { has_fee: true, ..left(vec![of(Native, 5)], vec![]) },
                false,
                Foreign(Native),
            ),
            (sponsor(), spend(Some(5)), to_sponsors, false, Foreign(Native)),
            // Another reading of the block does not show it any more.
            (sponsor(), spend(None), Evidence::default(), false, Ours),
            (sponsor(), Spend { is_canonical: false, ..spend(Some(5)) }, fee, false, Ours),
        ];
        for (spender, spend, evidence, recovers, expected) in cases {
            assert_eq!(judge(&spend, &spender, &evidence, recovers), expected, "{spend:?} {spender:?} {evidence:?}");
        }
    }
}
