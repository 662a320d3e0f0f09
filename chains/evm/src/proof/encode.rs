//! Headers, transactions and receipts as consensus encodes them: what is hashed to prove a block.
//!
//! Sources:
//! - the yellow paper (legacy, receipts), EIP-2718 with 2930, 1559, 4844 and 7702 (typed)
//! - EIP-1559, 4895, 4844, 4788, 7685, 7928, 7843 (header fields, in this order at the header's end)
//! - the OP stack's `specs/protocol/deposits.md` and op-geth's `core/types/receipt.go` (0x7e)
//! - PIP-74 and bor's `core/types/tx_state_sync.go` (0x7f)
//!
//! It does not judge: a wrong value makes a wrong hash. Only what cannot be encoded at all is an error.

use alloy::primitives::{Address, B256, keccak256};

use crate::hex::{Amount, Data};
use crate::proof::rlp::Rlp;
use crate::wire::{Kind, WireAccess, WireAuthorization, WireBlock, WireLog, WireReceipt, WireTx};

/// A field that its type of transaction or receipt must have, and does not.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0} is missing")]
pub(crate) struct Missing(pub(crate) &'static str);

/// `miner` is what the block states, unless its node is known to state another one than the header's.
pub(crate) fn header<T>(block: &WireBlock<'_, T>, miner: Address, out: &mut Vec<u8>) {
    Rlp(out).list(|rlp| {
        rlp.bytes(&block.parent_hash.0);
        rlp.bytes(&block.sha3_uncles.0);
        rlp.bytes(miner.as_slice());
        rlp.bytes(&block.state_root.0);
        rlp.bytes(&block.transactions_root.0);
        rlp.bytes(&block.receipts_root.0);
        rlp.data(&block.logs_bloom);
        rlp.amount(block.difficulty.0);
        rlp.number(block.number.0);
        rlp.number(block.gas_limit.0);
        rlp.number(block.gas_used.0);
        rlp.number(block.timestamp.0);
        rlp.data(&block.extra_data);
        rlp.bytes(&block.mix_hash.0);
        rlp.data(&block.nonce);
        header_of_later_forks(block, rlp);
    });
}

fn header_of_later_forks<T>(block: &WireBlock<'_, T>, rlp: &mut Rlp<'_>) {
    if let Some(fee) = block.base_fee_per_gas {
        rlp.amount(fee.0);
    }
    if let Some(root) = block.withdrawals_root {
        rlp.bytes(&root.0);
    }
    if let Some(gas) = block.blob_gas_used {
        rlp.number(gas.0);
    }
    if let Some(gas) = block.excess_blob_gas {
        rlp.number(gas.0);
    }
    if let Some(root) = block.parent_beacon_block_root {
        rlp.bytes(&root.0);
    }
    if let Some(hash) = block.requests_hash {
        rlp.bytes(&hash.0);
    }
    if let Some(hash) = block.block_access_list_hash {
        rlp.bytes(&hash.0);
    }
    if let Some(slot) = block.slot_number {
        rlp.number(slot.0);
    }
}

/// The leaf of the transactions trie, whose hash is the transaction's hash. `raw` is the encoding as a node returned
/// it, for the one type whose content nodes do not report otherwise.
pub(crate) fn transaction(
    kind: Kind,
    tx: &WireTx<'_>,
    raw: Option<&Data<'_>>,
    out: &mut Vec<u8>,
) -> Result<(), Missing> {
    match kind {
        Kind::Legacy | Kind::AccessList | Kind::DynamicFee | Kind::Blob | Kind::SetCode => signed(kind, tx, out),
        Kind::Deposit => deposit(tx, out),
        Kind::StateSync => state_sync(raw, out),
    }
}

fn signed(kind: Kind, tx: &WireTx<'_>, out: &mut Vec<u8>) -> Result<(), Missing> {
    let fields = TxFields::of(kind, tx)?;
    let mut rlp = Rlp(out);
    if let Some(byte) = kind.byte() {
        rlp.raw(byte);
    }
    rlp.list(|rlp| {
        fields.chain_id.iter().for_each(|amount| rlp.amount(amount.0));
        rlp.number(tx.nonce.0);
        fields.fees.iter().flatten().for_each(|amount| rlp.amount(amount.0));
        rlp.number(tx.gas.0);
        rlp.bytes(tx.to.as_ref().map_or(&[], |to| to.as_slice()));
        rlp.amount(tx.value.0);
        rlp.data(&tx.input);
        if let Some(list) = fields.access {
            rlp.list(|rlp| list.iter().for_each(|entry| access(entry, rlp)));
        }
        if let Some((fee, hashes)) = fields.blobs {
            rlp.amount(fee.0);
            rlp.list(|rlp| hashes.iter().for_each(|hash| rlp.bytes(&hash.0)));
        }
        if let Some(list) = fields.authorizations {
            rlp.list(|rlp| list.iter().for_each(|entry| authorization(entry, rlp)));
        }
        fields.signature.iter().for_each(|amount| rlp.amount(amount.0));
    });
    Ok(())
}

/// A deposit of the OP stack has no signature and no nonce, but its `from` is part of it.
fn deposit(tx: &WireTx<'_>, out: &mut Vec<u8>) -> Result<(), Missing> {
    let source = tx.source_hash.ok_or(Missing("sourceHash"))?;
    let mut rlp = Rlp(out);
    rlp.raw(0x7e);
    rlp.list(|rlp| {
        rlp.bytes(&source.0);
        rlp.bytes(tx.from.as_slice());
        rlp.bytes(tx.to.as_ref().map_or(&[], |to| to.as_slice()));
        // No mint and a mint of zero are the same, an empty string.
        rlp.amount(tx.mint.map_or_else(Default::default, |mint| mint.0));
        rlp.amount(tx.value.0);
        rlp.number(tx.gas.0);
        rlp.number(u64::from(tx.is_system_tx == Some(true) || tx.is_system_transaction == Some(true)));
        rlp.data(&tx.input);
    });
    Ok(())
}

/// 0x7f and a list of [id, contract, data, L1 transaction hash], used as it is: its hash and the root disprove a false
/// one. Its type must be checked, though: under this name a node could hide a transaction that pays somebody.
fn state_sync(raw: Option<&Data<'_>>, out: &mut Vec<u8>) -> Result<(), Missing> {
    let raw = raw.ok_or(Missing("its encoding"))?;
    if raw.first_byte() != Some(0x7f) {
        return Err(Missing("the 0x7f in front of its encoding"));
    }
    raw.append_to(out);
    Ok(())
}

/// The fields that only some types have, in the order of encoding.
struct TxFields<'t> {
    chain_id: Option<Amount>,
    fees: [Option<Amount>; 2],
    access: Option<&'t [WireAccess]>,
    blobs: Option<(Amount, &'t [B256])>,
    authorizations: Option<&'t [WireAuthorization]>,
    signature: [Amount; 3],
}

impl<'t> TxFields<'t> {
    fn of(kind: Kind, tx: &'t WireTx<'_>) -> Result<Self, Missing> {
        let typed = kind != Kind::Legacy;
        let dynamic = matches!(kind, Kind::DynamicFee | Kind::Blob | Kind::SetCode);
        let chain_id = if typed { Some(tx.chain_id.ok_or(Missing("chainId"))?) } else { None };
        let fees = if dynamic {
            let priority = tx.max_priority_fee_per_gas.ok_or(Missing("maxPriorityFeePerGas"))?;
            [Some(priority), Some(tx.max_fee_per_gas.ok_or(Missing("maxFeePerGas"))?)]
        } else {
            [Some(tx.gas_price.ok_or(Missing("gasPrice"))?), None]
        };
        // A missing list is an empty one, or the hash is another.
        let access = typed.then(|| tx.access_list.as_deref().unwrap_or_default());
        let blobs = if kind == Kind::Blob {
            let fee = tx.max_fee_per_blob_gas.ok_or(Missing("maxFeePerBlobGas"))?;
            Some((fee, tx.blob_versioned_hashes.as_deref().unwrap_or_default()))
        } else {
            None
        };
        let authorizations = (kind == Kind::SetCode).then(|| tx.authorization_list.as_deref().unwrap_or_default());
        let parity = if typed { tx.y_parity.or(tx.v) } else { tx.v };
        let signature = [parity.ok_or(Missing("v"))?, tx.r.ok_or(Missing("r"))?, tx.s.ok_or(Missing("s"))?];
        Ok(TxFields { chain_id, fees, access, blobs, authorizations, signature })
    }
}

fn access(entry: &WireAccess, rlp: &mut Rlp<'_>) {
    rlp.list(|rlp| {
        rlp.bytes(entry.address.as_slice());
        rlp.list(|rlp| entry.storage_keys.iter().flatten().for_each(|key| rlp.bytes(&key.0)));
    });
}

fn authorization(entry: &WireAuthorization, rlp: &mut Rlp<'_>) {
    rlp.list(|rlp| {
        rlp.amount(entry.chain_id.0);
        rlp.bytes(entry.address.as_slice());
        rlp.number(entry.nonce.0);
        rlp.amount(entry.y_parity.or(entry.v).map_or_else(Default::default, |parity| parity.0));
        rlp.amount(entry.r.0);
        rlp.amount(entry.s.0);
    });
}

/// The leaf of the receipts trie.
pub(crate) fn receipt(kind: Kind, receipt: &WireReceipt<'_>, out: &mut Vec<u8>) -> Result<(), Missing> {
    // Some nodes write an empty `root` beside the status.
    let root = receipt.root.and_then(|root| root.to_array::<32>());
    if receipt.status.is_none() && root.is_none() {
        return Err(Missing("status"));
    }
    let mut rlp = Rlp(out);
    if let Some(byte) = kind.byte() {
        rlp.raw(byte);
    }
    rlp.list(|rlp| {
        match (receipt.status, root) {
            (Some(status), _) => rlp.number(status.0),
            (None, root) => rlp.bytes(root.as_ref().map_or(&[], |root| root.as_slice())),
        }
        rlp.number(receipt.cumulative_gas_used.0);
        rlp.data(&receipt.logs_bloom);
        rlp.list(|rlp| receipt.logs.iter().for_each(|entry| log(entry, rlp)));
        // From Regolith to Canyon op-geth computed the root without the nonce that its receipts have
        // (`EncodeIndex`); the version, which is new in Canyon, says that both are in the root.
        if let (Kind::Deposit, Some(version)) = (kind, receipt.deposit_receipt_version) {
            receipt.deposit_nonce.iter().for_each(|nonce| rlp.number(nonce.0));
            rlp.number(version.0);
        }
    });
    Ok(())
}

fn log(entry: &WireLog<'_>, rlp: &mut Rlp<'_>) {
    rlp.list(|rlp| {
        rlp.bytes(entry.address.as_slice());
        rlp.list(|rlp| entry.topics.iter().for_each(|topic| rlp.bytes(&topic.0)));
        rlp.data(&entry.data);
    });
}

/// The address of the contract that `signer` creates with its transaction `nonce`.
pub(crate) fn created_contract(signer: &Address, nonce: u64) -> [u8; 20] {
    let mut out = Vec::with_capacity(32);
    Rlp(&mut out).list(|rlp| {
        rlp.bytes(signer.as_slice());
        rlp.number(nonce);
    });
    let hash = keccak256(&out);
    let mut address = [0; 20];
    address.copy_from_slice(&hash[12..]);
    address
}
