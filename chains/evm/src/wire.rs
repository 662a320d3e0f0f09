//! What is read of a node's answers: borrowed structs that hold the fields a proof or a leg needs, no more.
//!
//! Fields that a node adds are ignored, as are the places of transactions, receipts and logs within their block: the
//! roots prove those. Fields of only some types of transaction are optional here, and required where the transaction
//! is encoded. Nothing here is believed: `proof` decides.

use alloy::primitives::{Address, B256};
use serde::{Deserialize, Deserializer};

use crate::hex::{Amount, Data, Quantity, Unproved};
use crate::stack::Stack;

/// A block's header, and its transactions as `T`: all of them, or `IgnoredAny`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", bound(deserialize = "T: Deserialize<'de>"))]
pub(crate) struct WireBlock<'a, T> {
    pub(crate) hash: B256,
    pub(crate) parent_hash: B256,
    pub(crate) sha3_uncles: B256,
    pub(crate) miner: Address,
    pub(crate) state_root: B256,
    pub(crate) transactions_root: B256,
    pub(crate) receipts_root: B256,
    #[serde(borrow)]
    pub(crate) logs_bloom: Data<'a>,
    pub(crate) difficulty: Amount,
    pub(crate) number: Quantity,
    pub(crate) gas_limit: Quantity,
    pub(crate) gas_used: Quantity,
    pub(crate) timestamp: Quantity,
    #[serde(borrow)]
    pub(crate) extra_data: Data<'a>,
    pub(crate) mix_hash: B256,
    #[serde(borrow)]
    pub(crate) nonce: Data<'a>,
    /// London (EIP-1559).
    pub(crate) base_fee_per_gas: Option<Amount>,
    /// Shanghai (EIP-4895).
    pub(crate) withdrawals_root: Option<B256>,
    /// Cancun (EIP-4844 and EIP-4788).
    pub(crate) blob_gas_used: Option<Quantity>,
    pub(crate) excess_blob_gas: Option<Quantity>,
    pub(crate) parent_beacon_block_root: Option<B256>,
    /// Prague (EIP-7685).
    pub(crate) requests_hash: Option<B256>,
    /// Amsterdam (EIP-7928 and EIP-7843).
    pub(crate) block_access_list_hash: Option<B256>,
    pub(crate) slot_number: Option<Quantity>,
    pub(crate) transactions: T,
    /// The body's part of Shanghai.
    pub(crate) withdrawals: Option<Vec<WireWithdrawal>>,
}

/// A transaction of any type up to 0x04, of 0x7e and of 0x7f.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireTx<'a> {
    pub(crate) hash: B256,
    pub(crate) from: Address,
    /// Absent or null creates a contract.
    pub(crate) to: Option<Address>,
    /// Some nodes leave it out where the receipts are pruned that they take a deposit's nonce from (OP stack). Nothing
    /// is made of it there; where it is encoded, the hash decides.
    #[serde(default, deserialize_with = "or_zero")]
    pub(crate) nonce: Quantity,
    pub(crate) value: Amount,
    pub(crate) gas: Quantity,
    #[serde(borrow)]
    pub(crate) input: Data<'a>,
    /// Old nodes leave it out: legacy.
    #[serde(rename = "type")]
    pub(crate) kind: Option<Quantity>,
    pub(crate) chain_id: Option<Amount>,
    pub(crate) gas_price: Option<Amount>,
    pub(crate) max_priority_fee_per_gas: Option<Amount>,
    pub(crate) max_fee_per_gas: Option<Amount>,
    pub(crate) max_fee_per_blob_gas: Option<Amount>,
    /// Of this and the next two, some nodes write null for an empty one.
    pub(crate) blob_versioned_hashes: Option<Vec<B256>>,
    pub(crate) access_list: Option<Vec<WireAccess>>,
    pub(crate) authorization_list: Option<Vec<WireAuthorization>>,
    /// Of an OP-stack deposit, whose `nonce` is in no root: op-geth takes it from the receipt.
    pub(crate) source_hash: Option<B256>,
    /// Nodes leave it out or write null where nothing is minted.
    pub(crate) mint: Option<Amount>,
    /// op-geth writes the first, and only when it is true; the deposit's specification names the second.
    pub(crate) is_system_tx: Option<bool>,
    pub(crate) is_system_transaction: Option<bool>,
    /// The recovery id of a legacy transaction, with the chain id in it since EIP-155.
    pub(crate) v: Option<Amount>,
    /// The recovery id of every other type; nodes of before 2023 write it in `v` only.
    pub(crate) y_parity: Option<Amount>,
    pub(crate) r: Option<Amount>,
    pub(crate) s: Option<Amount>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireAccess {
    pub(crate) address: Address,
    pub(crate) storage_keys: Option<Vec<B256>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireAuthorization {
    pub(crate) chain_id: Amount,
    pub(crate) address: Address,
    pub(crate) nonce: Quantity,
    /// As in a transaction: some nodes write it in `v` only.
    pub(crate) y_parity: Option<Amount>,
    pub(crate) v: Option<Amount>,
    pub(crate) r: Amount,
    pub(crate) s: Amount,
}

/// A beacon withdrawal (EIP-4895).
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireWithdrawal {
    /// Counts all withdrawals of the chain.
    pub(crate) index: Quantity,
    pub(crate) validator_index: Quantity,
    pub(crate) address: Address,
    /// In gwei.
    pub(crate) amount: Quantity,
}

/// A receipt of any type up to 0x04, of 0x7e and of 0x7f.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WireReceipt<'a> {
    pub(crate) transaction_hash: B256,
    pub(crate) block_hash: B256,
    #[serde(rename = "type")]
    pub(crate) kind: Option<Quantity>,
    /// Since Byzantium: 1 is success.
    pub(crate) status: Option<Quantity>,
    /// Before Byzantium: the state root. It does not say whether the transaction succeeded.
    #[serde(borrow)]
    pub(crate) root: Option<Data<'a>>,
    pub(crate) cumulative_gas_used: Quantity,
    #[serde(borrow)]
    pub(crate) logs_bloom: Data<'a>,
    #[serde(borrow)]
    pub(crate) logs: Vec<WireLog<'a>>,
    /// Of an OP-stack deposit: the nonce that its sender had, since Regolith.
    pub(crate) deposit_nonce: Option<Quantity>,
    /// Since Canyon: that both stand in the receipts root.
    pub(crate) deposit_receipt_version: Option<Quantity>,
    /// Of a blob transaction. These and what follows are in no root; only fees are made of them.
    #[serde(default)]
    pub(crate) blob_gas_used: Unproved<Quantity>,
    #[serde(default)]
    pub(crate) blob_gas_price: Unproved<Amount>,
    /// Of a signed transaction on the OP stack: what L1 cost it.
    #[serde(default)]
    pub(crate) l1_fee: Unproved<Amount>,
    /// Since Isthmus, unless both are zero.
    #[serde(default)]
    pub(crate) operator_fee_scalar: Unproved<Amount>,
    #[serde(default)]
    pub(crate) operator_fee_constant: Unproved<Amount>,
}

#[derive(Deserialize)]
pub(crate) struct WireLog<'a> {
    pub(crate) address: Address,
    pub(crate) topics: Vec<B256>,
    #[serde(borrow)]
    pub(crate) data: Data<'a>,
}

/// Where a transaction is, when the node knows it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WirePlace {
    pub(crate) block_hash: B256,
    pub(crate) block_number: Quantity,
}

/// The types in a block, read from answers that cannot be read otherwise.
#[derive(Deserialize)]
pub(crate) struct WireTypes {
    pub(crate) hash: B256,
    pub(crate) number: Quantity,
    pub(crate) transactions: Vec<WireType>,
}

#[derive(Deserialize)]
pub(crate) struct WireType {
    #[serde(rename = "type")]
    pub(crate) kind: Option<Quantity>,
}

fn or_zero<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Quantity, D::Error> {
    Ok(Option::<Quantity>::deserialize(deserializer)?.unwrap_or_default())
}

/// The types of EIP-2718 that this version can encode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Legacy,
    AccessList,
    DynamicFee,
    Blob,
    SetCode,
    /// Derived from L1 by an OP-stack chain.
    Deposit,
    /// Derived from L1 by Polygon (PIP-74).
    StateSync,
}

impl Kind {
    /// From the `type` of a transaction or receipt on a chain of this stack. An unknown one is the error.
    pub(crate) fn parse(kind: Option<Quantity>, stack: Stack) -> Result<Self, u64> {
        match (kind.map_or(0, |kind| kind.0), stack) {
            (0, _) => Ok(Kind::Legacy),
            (1, _) => Ok(Kind::AccessList),
            (2, _) => Ok(Kind::DynamicFee),
            (3, _) => Ok(Kind::Blob),
            (4, _) => Ok(Kind::SetCode),
            (0x7e, Stack::Op) => Ok(Kind::Deposit),
            (0x7f, Stack::Polygon) => Ok(Kind::StateSync),
            (unknown, _) => Err(unknown),
        }
    }

    /// The byte in front of the envelope; legacy has none.
    pub(crate) fn byte(self) -> Option<u8> {
        match self {
            Kind::Legacy => None,
            Kind::AccessList => Some(1),
            Kind::DynamicFee => Some(2),
            Kind::Blob => Some(3),
            Kind::SetCode => Some(4),
            Kind::Deposit => Some(0x7e),
            Kind::StateSync => Some(0x7f),
        }
    }
}
