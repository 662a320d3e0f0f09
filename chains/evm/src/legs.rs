//! The creditable movements of a proved block.
//!
//! Tokens: `Transfer` with three topics and 32 bytes of data, from a listed contract. Native: the value of a
//! successful top-level transaction. An amount of zero, a payment to oneself, a receipt without status (before
//! Byzantium) and a status other than 1 never make a leg. Calldata is never looked at.
//! Deliberately not here yet: value moved inside a transaction, withdrawals.

use std::collections::HashSet;

use alloy::primitives::{B256, b256};
use landfall_chain::{Address, AssetId, AssetTransfer, Network, TxId, TxLife, TxRef, U256, number_equal_legs};

use crate::encode::created_contract;
use crate::wire::{WireBlock, WireLog, WireReceipt, WireTx};

/// keccak256("Transfer(address,address,uint256)"); ERC-721 has the same, with a fourth topic.
const TRANSFER: B256 = b256!("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");

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
    block: &WireBlock<'_, Vec<WireTx<'_>>>,
    receipts: &[WireReceipt<'_>],
    listed: &Listed,
) -> Vec<AssetTransfer> {
    let mut transfers = Vec::new();
    for (tx, receipt) in block.transactions.iter().zip(receipts) {
        // No status and a failed transaction are the same here: not known to have succeeded.
        if receipt.status.is_some_and(|status| status.0 == 1) {
            transfers.extend(native(tx));
            transfers.extend(receipt.logs.iter().filter_map(|log| token(tx, log, listed)));
        }
    }
    number_equal_legs(&mut transfers);
    transfers
}

fn native(tx: &WireTx<'_>) -> Option<AssetTransfer> {
    // The receipt's `contractAddress` is in no root; the address follows from the signer and the proved nonce.
    let recipient = tx.to.map_or_else(|| created_contract(&tx.from, tx.nonce.0), |to| to.into());
    leg(tx, AssetId::Native, tx.from.into(), recipient, tx.value.0)
}

fn token(tx: &WireTx<'_>, log: &WireLog<'_>, listed: &Listed) -> Option<AssetTransfer> {
    let contract: [u8; 20] = log.address.into();
    let [TRANSFER, sender, recipient] = log.topics.as_slice() else { return None };
    if !listed.0.contains(&contract) {
        return None;
    }
    let amount = U256::from_be_bytes(log.data.to_array::<32>()?);
    leg(tx, AssetId::Token(Address::Evm(contract)), address(sender)?, address(recipient)?, amount)
}

fn leg(tx: &WireTx<'_>, asset: AssetId, sender: [u8; 20], recipient: [u8; 20], amount: U256) -> Option<AssetTransfer> {
    if amount.is_zero() || sender == recipient {
        return None;
    }
    let life = TxLife::Nonce { signer: Address::Evm(tx.from.into()), nonce: tx.nonce.0 };
    Some(AssetTransfer {
        tx: TxRef { id: TxId::Evm(tx.hash.0), life },
        asset,
        sender: Address::Evm(sender),
        recipient: Address::Evm(recipient),
        amount,
        nth: 0,
    })
}

/// The address in a topic; `None` where the upper 12 bytes say that it is none.
fn address(topic: &B256) -> Option<[u8; 20]> {
    let (upper, address) = topic.0.split_first_chunk::<12>()?;
    if *upper == [0; 12] { address.try_into().ok() } else { None }
}
