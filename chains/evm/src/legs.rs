//! The creditable movements of a proved block.
//!
//! Tokens: `Transfer` with three topics and 32 bytes of data, from a listed contract. Native: the value of a
//! successful top-level transaction, what an OP-stack deposit mints, beacon withdrawals behind all transactions. An
//! amount of zero, a payment to oneself, a receipt without status (before Byzantium) and a status other than 1 never
//! make a leg, but a mint stays when its deposit fails. Calldata is never looked at.
//! Promises: the roots cover every field that makes a leg. A signed transaction's `from`, which they do not cover,
//! names a sender, unmakes a payment to oneself, and names the contract that it creates.
//! Deliberately not here yet: value moved inside a transaction, POL that a state-sync moved.

use std::collections::HashSet;

use alloy::primitives::{B256, b256};
use landfall_chain::{Address, AssetId, AssetTransfer, Network, TxId, TxLife, TxRef, U256, number_equal_legs};

use crate::encode::created_contract;
use crate::stack::Stack;
use crate::wire::{Kind, WireBlock, WireLog, WireReceipt, WireTx};
use crate::withdrawals;

/// keccak256("Transfer(address,address,uint256)"); ERC-721 has the same, with a fourth topic.
const TRANSFER: B256 = b256!("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");

/// Who pays what comes from outside of the chain.
const NOBODY: [u8; 20] = [0; 20];

/// The contracts whose logs are believed.
#[derive(Debug)]
pub(crate) struct Listed(HashSet<[u8; 20]>);

impl Listed {
    pub(crate) fn of(network: &Network) -> Self {
        let contract = |id: &AssetId| match id {
            AssetId::Token(Address::Evm(contract)) => Some(*contract),
            AssetId::Token(Address::Solana(_)) | AssetId::Native => None,
        };
        Listed(network.assets.iter().filter_map(|asset| contract(&asset.id)).collect())
    }
}

/// Every creditable leg of the block, in execution order, numbered.
pub(crate) fn of_block(
    stack: Stack,
    block: &WireBlock<'_, Vec<WireTx<'_>>>,
    receipts: &[WireReceipt<'_>],
    listed: &Listed,
) -> Vec<AssetTransfer> {
    let mut transfers = Vec::new();
    for (wire, receipt) in block.transactions.iter().zip(receipts) {
        // A block with another type was refused before.
        let Ok(kind) = Kind::parse(wire.kind, stack) else { continue };
        let tx = reference(kind, wire);
        transfers.extend(minted(kind, tx, wire));
        // No status and a failed transaction are the same here: not known to have succeeded.
        if receipt.status.is_some_and(|status| status.0 == 1) {
            transfers.extend(native(kind, tx, wire, receipt));
            transfers.extend(receipt.logs.iter().filter_map(|log| token(tx, log, listed)));
        }
    }
    transfers.extend(withdrawals::of_block(stack, block).iter().filter_map(withdrawals::leg));
    number_equal_legs(&mut transfers);
    transfers
}

/// A transaction as others refer to it.
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

/// What a deposit of the OP stack mints for its sender. "This is unconditional, and does not revert on deposit
/// failure" (specs/protocol/deposits.md), and comes before everything else.
fn minted(kind: Kind, tx: TxRef, wire: &WireTx<'_>) -> Option<AssetTransfer> {
    let mint = wire.mint.filter(|_| kind == Kind::Deposit)?;
    leg(tx, AssetId::Native, NOBODY, wire.from.into(), mint.0)
}

fn native(kind: Kind, tx: TxRef, wire: &WireTx<'_>, receipt: &WireReceipt<'_>) -> Option<AssetTransfer> {
    // The receipt's `contractAddress` is in no root; the address follows from the signer and a proved nonce.
    let nonce = match kind {
        Kind::Legacy | Kind::AccessList | Kind::DynamicFee | Kind::Blob | Kind::SetCode => Some(wire.nonce),
        // Proved since Canyon. Before, value sent with a creation is not credited: nobody watches such an address.
        Kind::Deposit => receipt.deposit_receipt_version.and(receipt.deposit_nonce),
        // Its value is in no root and has no meaning.
        Kind::StateSync => return None,
    };
    let recipient = match wire.to {
        Some(to) => to.into(),
        None => created_contract(&wire.from, nonce?.0),
    };
    leg(tx, AssetId::Native, wire.from.into(), recipient, wire.value.0)
}

fn token(tx: TxRef, log: &WireLog<'_>, listed: &Listed) -> Option<AssetTransfer> {
    let contract: [u8; 20] = log.address.into();
    let [TRANSFER, sender, recipient] = log.topics.as_slice() else { return None };
    if !listed.0.contains(&contract) {
        return None;
    }
    let amount = U256::from_be_bytes(log.data.to_array::<32>()?);
    leg(tx, AssetId::Token(Address::Evm(contract)), address(sender)?, address(recipient)?, amount)
}

fn leg(tx: TxRef, asset: AssetId, sender: [u8; 20], recipient: [u8; 20], amount: U256) -> Option<AssetTransfer> {
    if amount.is_zero() || sender == recipient {
        return None;
    }
    Some(AssetTransfer { tx, asset, sender: Address::Evm(sender), recipient: Address::Evm(recipient), amount, nth: 0 })
}

/// The address in a topic; `None` where the upper 12 bytes say that it is none.
fn address(topic: &B256) -> Option<[u8; 20]> {
    let (upper, address) = topic.0.split_first_chunk::<12>()?;
    if *upper == [0; 12] { address.try_into().ok() } else { None }
}
