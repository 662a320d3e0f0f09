//! A leg to a watched address and the deposit that it becomes. Every leg is recorded here, by `record` alone.
//!
//! Promises: one leg is one deposit, however often and in whatever block it is met. A deposit that becomes PENDING is
//! announced in the same transaction. Who paid is what the block that counts reports. Deliberately not here: confirming
//! and failing (`settle`, `witness`).

use landfall_chain::{
    Address, Asset, AssetTransfer, Chain, Header, Lane, Network, Payer, SenderRule, Signers, SourceError, TxId, TxLife,
    TxRef,
};
use tracing::info;

use crate::deposit::{Deposit, DepositStatus, Leg, LegHash};
use crate::event::Event;
use crate::store::{StoreError, Tx, accounts, deposits, events, transfers, wallets, witnesses};
use crate::time::Timestamp;
use crate::watcher::TickError;

/// A leg to a watched address, about to be recorded.
pub(in crate::watcher) struct WatchedLeg<'a> {
    network: &'a Network,
    pub(in crate::watcher) transfer: &'a AssetTransfer,
    asset: &'a Asset,
}

impl<'a> WatchedLeg<'a> {
    /// A transfer to a watched address; `None` if its asset is not listed.
    pub(in crate::watcher) fn of(network: &'a Network, transfer: &'a AssetTransfer) -> Option<Self> {
        Some(WatchedLeg { network, transfer, asset: network.asset(&transfer.asset)? })
    }

    /// Its identity.
    pub(in crate::watcher) fn hash(&self) -> LegHash {
        leg_of(&self.network.chain_ref, self.transfer).hash()
    }

    pub(in crate::watcher) fn tx(&self) -> TxId {
        self.transfer.tx.id
    }

    pub(in crate::watcher) fn recipient(&self) -> &Address {
        &self.transfer.recipient
    }

    /// Records the leg as seen in a block by this lane; returns the deposit, and whether it became PENDING by it. A
    /// FAILED deposit stays FAILED if the balances of this very block exclude it, whoever reports it: then `None`.
    pub(in crate::watcher) async fn record(
        &self,
        tx: &mut Tx,
        header: &Header,
        lane: Lane,
        now: Timestamp,
    ) -> Result<Option<(Deposit, bool)>, TickError> {
        let leg_hash = self.hash();
        let known = deposits::by_leg(tx, &leg_hash).await?;
        let seen_in = header.block;
        let (deposit, became_pending) = match known {
            None => {
                let deposit = self.new_deposit(tx, leg_hash, header).await?;
                deposits::insert(tx, &deposit).await?;
                (deposit, true)
            }
            Some(deposit) => match deposit.status {
                DepositStatus::Failed
                    if witnesses::is_denied_in(tx, deposit.chain, deposit.id, &seen_in.hash).await? =>
                {
                    return Ok(None);
                }
                DepositStatus::Failed => {
                    let deposit = paid_by(tx, deposit, self.transfer.payer()).await?.revive()?;
                    deposits::set_status(tx, &deposit, DepositStatus::Failed).await?;
                    (deposit, true)
                }
                DepositStatus::Pending => {
                    let was_silent = deposit.is_self_transfer;
                    let deposit = paid_by(tx, deposit, self.transfer.payer()).await?;
                    let is_announced_now = was_silent && !deposit.is_self_transfer;
                    (deposit, is_announced_now)
                }
                DepositStatus::Confirmed => (deposit, false),
            },
        };
        deposits::include(tx, &deposit, &seen_in, lane).await?;
        if became_pending {
            announce(tx, &deposit, now).await?;
            info!(chain = %deposit.chain, tx = %deposit.tx.id, block = seen_in.number, "deposit {} pending", deposit.id);
        }
        Ok(Some((deposit, became_pending)))
    }

    /// The store alone knows whose address it is: the watch list is long, and a hit is rare.
    async fn new_deposit(&self, tx: &mut Tx, leg_hash: LegHash, header: &Header) -> Result<Deposit, StoreError> {
        let WatchedLeg { network, transfer, asset } = self;
        let account_id = accounts::owner(tx, network.chain, &transfer.recipient).await?.ok_or_else(|| {
            let reason = format!("{} is matched, and is nobody's", transfer.recipient);
            StoreError::Inconsistent { what: "watch list", reason }
        })?;
        let source_account_id = accounts::owner(tx, network.chain, &transfer.sender).await?;
        let is_of_one = source_account_id.as_ref() == Some(&account_id);
        let is_self_transfer = is_self_transfer(tx, network.chain, transfer, is_of_one).await?;
        Ok(Deposit {
            id: leg_hash.deposit_id(),
            leg_hash,
            account_id,
            source_account_id,
            chain: network.chain,
            tx: transfer.tx,
            asset: transfer.asset,
            sender: transfer.sender,
            sender_rule: transfer.sender_rule,
            recipient: transfer.recipient,
            amount: transfer.amount,
            nth: transfer.nth,
            symbol: asset.symbol.clone(),
            decimals: asset.decimals,
            status: DepositStatus::Pending,
            created_at: Timestamp::from_secs(header.time_secs),
            confirmed_at: None,
            is_self_transfer,
        })
    }
}

/// Proves that a transaction with a nonce was signed by the signer that it names: nothing else in a block proves that.
pub(in crate::watcher) fn prove_signer(signers: &Signers, tx: &TxRef) -> Result<(), SourceError> {
    match tx.life {
        TxLife::Nonce { .. } => signers.prove(tx),
        TxLife::Block => Ok(()),
    }
}

/// The deposit with `payer`, as its leg in the block that counts now reports. The sender is not part of a leg's
/// identity: executed in another block, the same leg may have another sender. Events that were written keep what they
/// say. A sender that was known stays when none is known now.
pub(in crate::watcher) async fn paid_by(tx: &mut Tx, deposit: Deposit, payer: Payer) -> Result<Deposit, StoreError> {
    let Payer { sender, rule } = match payer.rule {
        SenderRule::FeePayer | SenderRule::StandIn => Payer { sender: deposit.sender, rule: deposit.sender_rule },
        SenderRule::Reported | SenderRule::OnlyPayer | SenderRule::Instruction | SenderRule::Mint => payer,
    };
    let source_account_id = accounts::owner(tx, deposit.chain, &sender).await?;
    let is_known =
        (deposit.sender, deposit.sender_rule) == (sender, rule) && deposit.source_account_id == source_account_id;
    let shown = AssetTransfer {
        tx: deposit.tx,
        asset: deposit.asset,
        sender,
        sender_rule: rule,
        recipient: deposit.recipient,
        amount: deposit.amount,
        nth: deposit.nth,
    };
    let is_of_one = source_account_id.as_ref() == Some(&deposit.account_id);
    // What was announced stays a deposit.
    let is_self_transfer = deposit.is_self_transfer && is_self_transfer(tx, deposit.chain, &shown, is_of_one).await?;
    let deposit = Deposit { sender, sender_rule: rule, source_account_id, is_self_transfer, ..deposit };
    if !is_known {
        deposits::set_sender(tx, &deposit).await?;
    }
    Ok(deposit)
}

/// Whether the leg only moves an account's money between two addresses whose keys are held here. Only our own signature can
/// make one, so nobody hides a deposit behind it. Who is named without having signed counts as nobody: then our own record
/// of the transaction decides. `is_of_one`: sender and recipient are the same account's on this chain.
async fn is_self_transfer(tx: &mut Tx, chain: Chain, leg: &AssetTransfer, is_of_one: bool) -> Result<bool, StoreError> {
    match leg.sender_rule {
        SenderRule::Reported | SenderRule::OnlyPayer | SenderRule::Instruction => {
            Ok(is_of_one && wallets::are_of_one(tx, &leg.sender, &leg.recipient).await?)
        }
        SenderRule::FeePayer | SenderRule::StandIn | SenderRule::Mint => {
            transfers::is_sweep(tx, chain, &leg.tx.id, (&leg.recipient, &leg.amount)).await
        }
    }
}

/// Writes the event of the status that `deposit` has just entered.
pub(in crate::watcher) async fn announce(tx: &mut Tx, deposit: &Deposit, now: Timestamp) -> Result<(), StoreError> {
    if deposit.is_self_transfer {
        return Ok(());
    }
    let history = events::History::of(tx, deposit.id).await?;
    let event = Event::entered(deposit, history.entries(deposit.status));
    events::append(tx, &event, &history, now).await
}

/// The identity of a transfer on a chain.
pub(in crate::watcher) fn leg_of<'a>(chain_ref: &'a str, transfer: &AssetTransfer) -> Leg<'a> {
    let AssetTransfer { tx, asset, recipient, amount, nth, .. } = *transfer;
    Leg { chain_ref, tx: tx.id, asset, recipient, amount, nth }
}

/// The deposit's leg among `transfers`; `None` also if its asset is not listed (any more).
pub(in crate::watcher) fn leg_in<'t>(
    network: &Network,
    transfers: &'t [AssetTransfer],
    deposit: &Deposit,
) -> Option<&'t AssetTransfer> {
    let is_listed = network.asset(&deposit.asset).is_some();
    let mut of_tx = transfers.iter().filter(|transfer| is_listed && transfer.tx.id == deposit.tx.id);
    of_tx.find(|transfer| leg_of(&network.chain_ref, transfer).hash() == deposit.leg_hash)
}

pub(in crate::watcher) fn shows(network: &Network, transfers: &[AssetTransfer], deposit: &Deposit) -> bool {
    leg_in(network, transfers, deposit).is_some()
}
