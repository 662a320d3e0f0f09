//! Blocks and what is known about them.

use std::fmt;

use crate::{AssetTransfer, TxId};

/// A block's hash (EVM) or blockhash (Solana).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockHash(pub [u8; 32]);

/// A block, named so that it cannot be mistaken for another at the same number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BlockRef {
    /// Position: the number on EVM, the slot on Solana.
    pub number: u64,
    /// Its hash.
    pub hash: BlockHash,
}

/// A block's id, its parent's, and when it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The block.
    pub block: BlockRef,
    /// The block it stands on. On chains that skip, `parent.number` may be less than `block.number - 1`.
    pub parent: BlockRef,
    /// Seconds since 1970, as the chain says.
    pub time_secs: u64,
}

/// How strongly a block's content is proved.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Proof {
    /// Header hash, transactions root and receipts root were recomputed from the content.
    Roots,
}

/// A block with everything in it that could be a credit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// Its header.
    pub header: Header,
    /// Every transaction in it, in order.
    pub txs: Vec<TxId>,
    /// Every creditable leg of every transaction in it, in execution order, `nth` set.
    pub transfers: Vec<AssetTransfer>,
    /// What stands behind this content.
    pub proof: Proof,
}

/// Where a chain ends now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tip {
    /// The newest block.
    pub latest: BlockRef,
    /// The newest block that can no longer be replaced, by the network's finality rule; `None` while there is none.
    pub finalized: Option<BlockRef>,
}

impl Proof {
    /// The name that is stored and shown.
    pub const fn name(self) -> &'static str {
        match self {
            Proof::Roots => "roots",
        }
    }
}

impl fmt::Display for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode_prefixed(self.0))
    }
}

impl fmt::Debug for BlockHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for BlockRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.number, self.hash)
    }
}

impl fmt::Debug for BlockRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
