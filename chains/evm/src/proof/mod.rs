//! Whether a block is what its hash says: the heart of this crate.
//!
//! Proved by recomputing: the header's hash; each transaction's hash and the transactions root over them; the receipts
//! root; the withdrawals root. So the chain committed to number, parent and time, every transaction's recipient, value
//! and nonce, every receipt's status and logs, and every withdrawal. It also checks that receipts are of their
//! transactions and of this block. The places that they and their logs state are not read: the root proves the order,
//! and nodes err in numbers that no root covers.
//! No root holds a transaction's `from`, only the signature, which costs an elliptic-curve operation to recover. It is
//! proved here where it decides whether there is a leg and whose (a payment to oneself, a creation). For every other
//! transaction it is proved on demand (`signer`), for a caller who must believe a leg's sender or a nonce's owner.
//! Not proved: that the block is canonical (parent links and the tip show that), and what receipts hold beside status,
//! gas and logs (`fees` says what that means). Of a 0x7e transaction `from` is proved and the nonce is not; of a 0x7f
//! one only its hash.

pub(crate) mod bloom;
pub(crate) mod encode;
mod keccak;
pub(crate) mod pieces;
pub(crate) mod rlp;
pub(crate) mod trie;

use alloy::primitives::{B256, keccak256};
use landfall_chain::{BlockHash, BlockRef, Chain, Header};

use crate::error::Check;
use crate::hex::Data;
use crate::legs::withdrawals;
use crate::polygon;
use crate::proof::encode::Missing;
use crate::proof::keccak::keccak256_of_each;
use crate::proof::pieces::Pieces;
use crate::signer;
use crate::stack::Stack;
use crate::wire::{Kind, WireBlock, WireReceipt, WireTx};

/// Why a block is not accepted.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It contradicts its header.
    Unproved(Check),
    /// It holds something newer than this version.
    Unknown { what: &'static str, kind: u64 },
    /// It pays, and the chain wrote no log of it, although the network's facts say that it does.
    Unlogged { index: usize },
    /// An entry cannot be encoded.
    Incomplete { what: &'static str, index: usize, missing: Missing },
}

/// The header, when it hashes to the block's hash.
pub(crate) fn header<T>(chain: Chain, block: &WireBlock<'_, T>) -> Result<Header, Refusal> {
    let hashes = |miner| {
        let mut encoded = Vec::with_capacity(1024);
        encode::header(block, miner, &mut encoded);
        keccak256(&encoded) == block.hash
    };
    if has_gap(block) || !hashes(block.miner) && !polygon::miner(chain).is_some_and(hashes) {
        return Err(Refusal::Unproved(Check::HeaderHash));
    }
    let number = block.number.0;
    Ok(Header {
        block: BlockRef { number, hash: BlockHash(block.hash.0) },
        // The genesis block has no parent: its parent hash is zero, which no block has.
        parent: BlockRef { number: number.saturating_sub(1), hash: BlockHash(block.parent_hash.0) },
        time_secs: block.timestamp.0,
    })
}

/// Whether a later fork's field is there and an earlier one is not. The encoding does not name the field of a hash: a
/// withdrawals root under a later name would hash alike, and hide the withdrawals.
fn has_gap<T>(block: &WireBlock<'_, T>) -> bool {
    let present = [
        block.base_fee_per_gas.is_some(),
        block.withdrawals_root.is_some(),
        block.blob_gas_used.is_some(),
        block.excess_blob_gas.is_some(),
        block.parent_beacon_block_root.is_some(),
        block.requests_hash.is_some(),
        block.block_access_list_hash.is_some(),
        block.slot_number.is_some(),
    ];
    present.windows(2).any(|pair| !pair[0] && pair[1])
}

/// The transactions of a block whose header is proved, as they are encoded. `raw` is the encoding of the 0x7f one,
/// where there is one.
pub(crate) fn transactions(
    stack: Stack,
    block: &WireBlock<'_, Vec<WireTx<'_>>>,
    raw: Option<&Data<'_>>,
) -> Result<Leaves, Refusal> {
    let leaves = encoded(stack, block, raw)?;
    let hashes = keccak256_of_each(&leaves.iter().collect::<Vec<_>>());
    if let Some(index) = block.transactions.iter().zip(hashes).position(|(tx, hash)| tx.hash != hash) {
        return Err(Refusal::Unproved(Check::TransactionHash(index)));
    }
    rooted(stack, block, leaves)
}

/// As [`transactions`], without their hashes, which are no part of the root: for a caller who wants to know whom they
/// name, and does not use the hashes.
pub(crate) fn unnamed_transactions(stack: Stack, block: &WireBlock<'_, Vec<WireTx<'_>>>) -> Result<(), Refusal> {
    rooted(stack, block, encoded(stack, block, None)?).map(drop)
}

fn encoded(stack: Stack, block: &WireBlock<'_, Vec<WireTx<'_>>>, raw: Option<&Data<'_>>) -> Result<Leaves, Refusal> {
    let encode = |kind, tx: &WireTx<'_>, out: &mut Vec<u8>| encode::transaction(kind, tx, raw, out);
    let kind = |tx: &WireTx<'_>| Kind::parse(tx.kind, stack);
    Leaves::encode("a transaction", &block.transactions, kind, encode)
}

/// The leaves, when the header commits to them.
fn rooted(stack: Stack, block: &WireBlock<'_, Vec<WireTx<'_>>>, leaves: Leaves) -> Result<Leaves, Refusal> {
    if leaves.root() != block.transactions_root {
        return Err(Refusal::Unproved(Check::TransactionsRoot));
    }
    signer::prove_where_it_decides(stack, block, &leaves)?;
    Ok(leaves)
}

/// The receipts of a block whose transactions are proved.
pub(crate) fn receipts(
    stack: Stack,
    block: &WireBlock<'_, Vec<WireTx<'_>>>,
    receipts: &[WireReceipt<'_>],
) -> Result<(), Refusal> {
    let count = block.transactions.len();
    if receipts.len() != count {
        return Err(Refusal::Unproved(Check::ReceiptCount { transactions: count, receipts: receipts.len() }));
    }
    places(block, receipts)?;
    let kind = |receipt: &WireReceipt<'_>| Kind::parse(receipt.kind, stack);
    let leaves = Leaves::encode("a receipt", receipts, kind, encode::receipt)?;
    if leaves.root() != block.receipts_root {
        return Err(Refusal::Unproved(Check::ReceiptsRoot));
    }
    Ok(())
}

/// The withdrawals of a block whose header is proved.
pub(crate) fn withdrawals<T>(stack: Stack, block: &WireBlock<'_, T>) -> Result<(), Refusal> {
    if withdrawals::are_proved(stack, block) { Ok(()) } else { Err(Refusal::Unproved(Check::WithdrawalsRoot)) }
}

/// That each receipt is of this block and of the transaction at its place.
fn places(block: &WireBlock<'_, Vec<WireTx<'_>>>, receipts: &[WireReceipt<'_>]) -> Result<(), Refusal> {
    let is_of = |(tx, receipt): (&WireTx<'_>, &WireReceipt<'_>)| {
        receipt.transaction_hash == tx.hash && receipt.block_hash == block.hash
    };
    match block.transactions.iter().zip(receipts).position(|pair| !is_of(pair)) {
        Some(index) => Err(Refusal::Unproved(Check::ReceiptPlace(index))),
        None => Ok(()),
    }
}

/// The size of most leaves, to begin with.
const LEAF_BYTES: usize = 256;

/// The leaves of one trie, encoded.
pub(crate) struct Leaves(Pieces);

impl Leaves {
    fn encode<T>(
        what: &'static str,
        items: &[T],
        kind: impl Fn(&T) -> Result<Kind, u64>,
        encode: impl Fn(Kind, &T, &mut Vec<u8>) -> Result<(), Missing>,
    ) -> Result<Self, Refusal> {
        let mut leaves = Pieces::with_capacity(items.len(), LEAF_BYTES);
        for (index, item) in items.iter().enumerate() {
            let kind = kind(item).map_err(|kind| Refusal::Unknown { what, kind })?;
            let encoded = leaves.push(|out| encode(kind, item, out));
            encoded.map_err(|missing| Refusal::Incomplete { what, index, missing })?;
        }
        Ok(Leaves(leaves))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter()
    }

    /// Frees what was reserved for more, for a caller who keeps it.
    pub(crate) fn shrink(&mut self) {
        self.0.shrink();
    }

    fn root(&self) -> B256 {
        trie::root(&self.0)
    }
}
