//! A block, and how a node writes it.
//!
//! Its hash is made of its slot and of the branch that it was produced on, so that a test can name it.

use landfall_chain::{Address, BlockHash, BlockRef};
use serde_json::json;

use crate::tx::{Shape, Tx};

/// When slot 0 was, in seconds since 1970; each slot is a second after the one before it.
pub const TIME: u64 = 1_790_000_000;

/// A block.
#[derive(Clone, Debug)]
pub struct Block {
    pub slot: u64,
    pub parent: BlockRef,
    pub branch: u64,
    /// How many blocks there are below it.
    pub height: u64,
    /// As nodes report it; `None` where they do not.
    pub time: Option<i64>,
    pub txs: Vec<Tx>,
}

/// What of a block's transactions is reported.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Details {
    None,
    Signatures,
    Whole(Shape),
}

/// The hash of the block that was produced in `slot` on this branch; branches count from 0.
pub fn hash(slot: u64, branch: u64) -> BlockHash {
    let mut bytes = [0xb1; 32];
    bytes[..8].copy_from_slice(&slot.to_be_bytes());
    bytes[8..16].copy_from_slice(&branch.to_be_bytes());
    BlockHash(bytes)
}

/// The same as text.
pub(crate) fn base58(hash: BlockHash) -> String {
    Address::Solana(hash.0).to_string()
}

impl Block {
    /// Its slot and hash.
    pub fn reference(&self) -> BlockRef {
        BlockRef { number: self.slot, hash: hash(self.slot, self.branch) }
    }

    /// The newest version among its transactions; `None` where all are legacy.
    pub(crate) fn version(&self) -> Option<u8> {
        self.txs.iter().filter_map(|tx| tx.version.number()).max()
    }

    /// The result of `getBlock`.
    pub(crate) fn text(&self, details: Details) -> String {
        let mut block = json!({
            "blockhash": base58(self.reference().hash), "previousBlockhash": base58(self.parent.hash),
            "parentSlot": self.parent.number, "blockTime": self.time, "blockHeight": self.height,
        });
        let texts: Vec<&str> = match details {
            Details::None => return block.to_string(),
            Details::Signatures => {
                block["signatures"] = self.txs.iter().map(Tx::signature).collect();
                return block.to_string();
            }
            Details::Whole(shape) => self.txs.iter().map(|tx| tx.text(shape)).collect(),
        };
        let mut text = block.to_string();
        text.truncate(text.len() - 1);
        format!(r#"{text},"transactions":[{}]}}"#, texts.join(","))
    }
}
