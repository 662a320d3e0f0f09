//! What moved according to a proved block, and which of it is a credit.
//!
//! Tokens: `Transfer` with three topics and 32 bytes of data, from a listed contract. Native: see `native`; and with
//! every source what an OP-stack deposit mints, and beacon withdrawals behind all transactions. An amount of zero, a
//! payment to oneself, a receipt without status (before Byzantium) and a status other than 1 never make a leg, but a
//! mint stays when its deposit fails. Calldata is never read. Each movement is judged once: it is a leg, or it has a
//! verdict, which is returned to a caller who asks to have it explained.
//! Promises: the roots cover every field that makes a leg, and a signature proves `from` where it decides one.

pub(crate) mod fees;
pub(crate) mod native;
pub(crate) mod withdrawals;

use std::collections::HashMap;

use alloy::primitives::{B256, b256};
use landfall_chain::{
    Address, Asset, AssetId, AssetTransfer, Delegate, Legs, Native, NativeSource, Network, Rejected, Route, SenderRule,
    TxId, TxLife, TxRef, U256, Verdict, number_equal_legs,
};

use crate::error::EvmError;
use crate::legs::native::Source;
use crate::networks;
use crate::proof::Refusal;
use crate::stack::Stack;
use crate::wire::{Kind, WireBlock, WireLog, WireReceipt, WireTx};

/// keccak256("Transfer(address,address,uint256)"); ERC-721 has the same, with a fourth topic.
pub(crate) const TRANSFER: B256 = b256!("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");

/// Who pays what comes from outside of the chain.
const NOBODY: [u8; 20] = [0; 20];

/// What decides about legs on one network.
#[derive(Debug)]
pub(crate) struct Rules {
    pub(crate) stack: Stack,
    pub(crate) listed: Listed,
    /// Those of them that take intents.
    pub(crate) sendable: Listed,
    /// What acts for wallets that pay.
    pub(crate) delegates: Vec<Delegate>,
    pub(crate) native: Native,
}

/// The contracts whose logs are believed, and from which block on.
#[derive(Debug)]
pub(crate) struct Listed(HashMap<[u8; 20], u64>);

/// What moved in a block.
#[derive(Debug)]
pub(crate) struct Judged {
    pub(crate) transfers: Vec<AssetTransfer>,
    /// Only where it was asked for.
    pub(crate) rejected: Vec<Rejected>,
}

/// Value that a transaction claims to have moved.
pub(crate) struct Movement {
    pub(crate) asset: AssetId,
    pub(crate) sender: [u8; 20],
    pub(crate) recipient: [u8; 20],
    pub(crate) amount: U256,
}

impl Rules {
    /// # Errors
    /// Facts that cannot be: another chain's native source; a token where the chain itself logs native movements.
    pub(crate) fn of(network: &Network) -> Result<Self, EvmError> {
        let (chain, stack, native) = (network.chain, networks::stack(network.chain), network.native);
        if native.source == NativeSource::LogTransfer && stack != Stack::Polygon {
            return Err(EvmError::NoTransferLogs { chain });
        }
        let listed = Listed::of(network);
        match native::CHAIN_LOGS.into_iter().find(|contract| listed.0.contains_key(&contract.into_array())) {
            Some(contract) => Err(EvmError::NoToken { chain, contract: Address::Evm(contract.into()) }),
            None => {
                let (sendable, delegates) = (Listed::sendable(network), network.delegates.clone());
                Ok(Rules { stack, listed, sendable, delegates, native })
            }
        }
    }

    /// Whether any asset is sent by an intent.
    pub(crate) fn take_intents(&self) -> bool {
        !self.sendable.is_empty() || !self.delegates.is_empty()
    }
}

impl Listed {
    pub(crate) fn of(network: &Network) -> Self {
        Listed::those(network, |_| true)
    }

    /// The tokens that take intents.
    fn sendable(network: &Network) -> Self {
        Listed::those(network, |asset| matches!(asset.route, Some(Route::Erc3009 { .. })))
    }

    fn those(network: &Network, is_one: impl Fn(&Asset) -> bool) -> Self {
        let contract = |id: &AssetId| match id {
            AssetId::Token(Address::Evm(contract)) => Some(*contract),
            AssetId::Token(Address::Solana(_)) | AssetId::Native => None,
        };
        let assets = network.assets.iter().filter(|asset| is_one(asset));
        Listed(assets.filter_map(|asset| Some((contract(&asset.id)?, asset.from_block))).collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `contract` is believed in block `number`.
    pub(crate) fn holds(&self, contract: &[u8; 20], number: u64) -> bool {
        self.0.get(contract).is_some_and(|from| number >= *from)
    }
}

impl Movement {
    pub(crate) fn native(sender: [u8; 20], recipient: [u8; 20], amount: U256) -> Self {
        Movement { asset: AssetId::Native, sender, recipient, amount }
    }

    /// Why it is no leg, whatever became of its transaction.
    pub(crate) fn defect(&self) -> Option<Verdict> {
        match self {
            Movement { amount, .. } if amount.is_zero() => Some(Verdict::ZeroValue),
            Movement { sender, recipient, .. } if sender == recipient => Some(Verdict::SelfTransfer),
            Movement { .. } => None,
        }
    }

    /// Without `nth`: that is for a caller who knows the other legs.
    pub(crate) fn transfer(&self, tx: TxRef) -> AssetTransfer {
        let Movement { asset, amount, .. } = *self;
        let (sender, recipient) = (Address::Evm(self.sender), Address::Evm(self.recipient));
        AssetTransfer { tx, asset, sender, sender_rule: SenderRule::Reported, recipient, amount, nth: 0 }
    }
}

/// Every movement of the block, in execution order; legs are numbered. `pseudo` is the receipt that Polygon's nodes
/// put behind those of the block, which nothing proves.
///
/// # Errors
/// A payment that the network's native source should report, and does not.
pub(crate) fn of_block(
    rules: &Rules,
    block: &WireBlock<'_, Vec<WireTx<'_>>>,
    receipts: &[WireReceipt<'_>],
    pseudo: Option<&WireReceipt<'_>>,
    asked: Legs,
) -> Result<Judged, Refusal> {
    let number = block.number.0;
    let judged = Judged { transfers: Vec::new(), rejected: Vec::new() };
    let mut judge = Judge { listed: &rules.listed, number, source: Source::of(rules.native, number), asked, judged };
    for (index, (wire, receipt)) in block.transactions.iter().zip(receipts).enumerate() {
        // A block with another type was refused before.
        let Ok(kind) = Kind::parse(wire.kind, rules.stack) else { continue };
        let tx = reference(kind, wire);
        if let Some(minted) = minted(kind, wire) {
            judge.movement(tx, &minted, None);
        }
        if let Some(own) = native::own_value(kind, wire, receipt) {
            judge.own_value(tx, &own, receipt).map_err(|Unlogged| Refusal::Unlogged { index })?;
        }
        judge.logs(tx, receipt, failure(receipt));
    }
    if let Some(pseudo) = pseudo {
        let tx = TxRef { id: TxId::Evm(pseudo.transaction_hash.0), life: TxLife::Block };
        judge.logs(tx, pseudo, Some(Verdict::Unproved));
    }
    let mut judged = judge.judged;
    judged.transfers.extend(withdrawals::of_block(rules.stack, block).iter().filter_map(withdrawals::leg));
    number_equal_legs(&mut judged.transfers);
    Ok(judged)
}

/// The movements of one block, judged one after the other.
struct Judge<'r> {
    listed: &'r Listed,
    number: u64,
    source: Source,
    asked: Legs,
    judged: Judged,
}

/// A payment that the chain's logs do not report.
struct Unlogged;

impl Judge<'_> {
    /// Adds a movement: as a leg, unless `doubt` or its own shape says that it is none.
    fn movement(&mut self, tx: TxRef, movement: &Movement, doubt: Option<Verdict>) {
        let transfer = movement.transfer(tx);
        match doubt.or_else(|| movement.defect()) {
            None => self.judged.transfers.push(transfer),
            Some(verdict) if self.asked == Legs::Explained => self.judged.rejected.push(Rejected { transfer, verdict }),
            Some(_) => {}
        }
    }

    fn own_value(&mut self, tx: TxRef, own: &Movement, receipt: &WireReceipt<'_>) -> Result<(), Unlogged> {
        let doubt = failure(receipt);
        if doubt.is_none() && self.source.lacks(own, receipt) {
            return Err(Unlogged);
        }
        let is_logged = match self.source {
            Source::OwnValues => false,
            Source::LogTransfers => doubt.is_none(),
            // EIP-7708 logs no payment to oneself.
            Source::SystemLogs => doubt.is_none() && own.sender != own.recipient,
        };
        // A call that moves nothing claims nothing, unless the transaction shows nothing else.
        let claims = if own.amount.is_zero() { receipt.logs.is_empty() } else { !is_logged };
        if claims {
            self.movement(tx, own, doubt);
        }
        Ok(())
    }

    fn logs(&mut self, tx: TxRef, receipt: &WireReceipt<'_>, doubt: Option<Verdict>) {
        for log in &receipt.logs {
            if let Some(movement) = self.source.movement(log) {
                self.movement(tx, &movement, doubt);
            } else if self.listed.holds(&log.address.into(), self.number)
                && let Some(movement) = token(log)
            {
                self.movement(tx, &movement, doubt);
            } else if self.asked == Legs::Explained
                && let Some(movement) = token(log).or_else(|| collectible(log))
            {
                self.movement(tx, &movement, Some(Verdict::UnlistedToken));
            }
        }
    }
}

/// Why nothing in a transaction is a credit, if so. No status counts as a failure: the transaction is not known to
/// have succeeded.
fn failure(receipt: &WireReceipt<'_>) -> Option<Verdict> {
    match receipt.status {
        Some(status) if status.0 == 1 => None,
        Some(_) => Some(Verdict::RevertedTx),
        None => Some(Verdict::NoStatus),
    }
}

/// The transaction, with the signer that the node names.
pub(crate) fn reference(kind: Kind, wire: &WireTx<'_>) -> TxRef {
    let life = match kind {
        Kind::Legacy | Kind::AccessList | Kind::DynamicFee | Kind::Blob | Kind::SetCode => {
            TxLife::Nonce { signer: Address::Evm(wire.from.into()), nonce: wire.nonce.0 }
        }
        // Derived from L1, not signed: on another branch it runs with another nonce and is the same transaction.
        Kind::Deposit | Kind::StateSync => TxLife::Block,
    };
    TxRef { id: TxId::Evm(wire.hash.0), life }
}

/// Whether a deposit of the OP stack creates a contract. Its nonce is only in the receipts root, so only its receipt
/// shows whom it pays.
pub(crate) fn creates_by_deposit(stack: Stack, wire: &WireTx<'_>) -> bool {
    wire.to.is_none() && Kind::parse(wire.kind, stack) == Ok(Kind::Deposit)
}

/// What a deposit of the OP stack mints for its sender. "This is unconditional, and does not revert on deposit
/// failure" (specs/protocol/deposits.md), and comes before everything else.
pub(crate) fn minted(kind: Kind, wire: &WireTx<'_>) -> Option<Movement> {
    let mint = wire.mint.filter(|mint| kind == Kind::Deposit && !mint.0.is_zero())?;
    Some(Movement::native(NOBODY, wire.from.into(), mint.0))
}

/// What an ERC-20 `Transfer` reports, whoever logged it.
pub(crate) fn token(log: &WireLog<'_>) -> Option<Movement> {
    let [TRANSFER, sender, recipient] = log.topics.as_slice() else { return None };
    let amount = U256::from_be_bytes(log.data.to_array::<32>()?);
    moved(log, sender, recipient, amount)
}

/// What an ERC-721 `Transfer` reports: one piece, whose number is the fourth topic. Never a credit.
fn collectible(log: &WireLog<'_>) -> Option<Movement> {
    let [TRANSFER, sender, recipient, _] = log.topics.as_slice() else { return None };
    moved(log, sender, recipient, U256::ONE)
}

fn moved(log: &WireLog<'_>, sender: &B256, recipient: &B256, amount: U256) -> Option<Movement> {
    let asset = AssetId::Token(Address::Evm(log.address.into()));
    Some(Movement { asset, sender: address_of(sender)?, recipient: address_of(recipient)?, amount })
}

/// The address in a topic; `None` where the upper 12 bytes say that it is none.
pub(crate) fn address_of(topic: &B256) -> Option<[u8; 20]> {
    let (upper, address) = topic.0.split_first_chunk::<12>()?;
    if *upper == [0; 12] { address.try_into().ok() } else { None }
}
