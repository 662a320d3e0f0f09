//! Blocks and what is known about them.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{Address, AssetTransfer, Family, Mark, ReadProof, Signers, TxId, TxRef, U256, Verdict};

/// A block's hash (EVM) or blockhash (Solana).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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
    /// The header hash was recomputed, and the logs agree with its bloom. What is there is a candidate; logs that were
    /// left out may go unnoticed.
    Bloom,
    /// Two endpoints reported the same; no root covers it.
    TwoEndpoints,
    /// One endpoint reported it; no root covers it.
    OneEndpoint,
}

/// A block with everything in it that could be a credit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Block {
    /// Its header.
    pub header: Header,
    /// Every transaction in it, in order.
    pub txs: Vec<TxId>,
    /// Every creditable leg of every transaction in it that the read's lane shows, in execution order, `nth` set.
    pub transfers: Vec<AssetTransfer>,
    /// What left addresses.
    pub debits: Debits,
    /// What addresses received that is no credit, each with the reason. It still counts in their books, once. Every
    /// read reports it; the sender is not always known.
    pub unattributed: Vec<Rejected>,
    /// What each transaction cost its payer; failed ones too. Only in the lane of the roots.
    pub fees: Vec<Fee>,
    /// Each use of an intent's one-time key, whoever's it is. Only in the lane of the roots.
    pub marks: Vec<Mark>,
    /// Movements that are no credit, with the reason; only when the read asked to explain them.
    pub rejected: Vec<Rejected>,
    /// To whom the header, which its hash covers, says that the fees of its transactions go. They are no leg, but they
    /// change its balance. `None` where no header says so.
    pub fee_recipient: Option<Address>,
    /// How strongly this content is proved.
    pub proof: Proof,
    /// Proves on demand who signed.
    pub signers: Signers,
    /// What a report of traces is judged by; only in the lane of the traces, and only where a trace was needed.
    pub inside: Option<Arc<Inside>>,
}

/// What a block's report of traces is judged by: what is proved of the block, and who reported.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Inside {
    /// The same block as its roots prove it.
    pub roots: Block,
    /// Addresses that may have run code in the block although they have none before and after it: those that the
    /// traces say were created, and those that a delegation names (EIP-7702).
    pub ran_code: BTreeSet<Address>,
    /// Who paid for a transaction of the block whose fee is not reported in full.
    pub unreported_fees: BTreeSet<Address>,
    /// Whether two of those who reported the same run different software: then one program's mistake cannot be in
    /// both.
    pub by_two_engines: bool,
}

/// What left addresses by a block, of listed assets; the cost of transactions stands apart.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Debits {
    /// Each transfer is the debit of its sender.
    ByLegs,
    /// What each `sender` lost by a transaction, net, in execution order, `nth` set. Where transfers are net gains,
    /// they do not show it: several senders may have paid for one. The recipient is one who gained, or the sender
    /// itself where nobody did.
    Net(Vec<AssetTransfer>),
}

/// What a transaction cost, in base units of the native currency.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fee {
    /// The transaction.
    pub tx: TxRef,
    /// Who paid.
    pub payer: Address,
    /// All of it: execution, blobs, and what a rollup adds for L1.
    pub amount: U256,
    /// What else it took of the payer's own balance, in the same base units; less than 0 where it brought some. Known where
    /// blocks report balances (Solana): rent of accounts that it made, for example. 0 elsewhere.
    pub outlay: i128,
    /// Whether the block's roots prove all of it. If not, one part is only what the node reported: the cost of a blob,
    /// or what a rollup adds.
    pub proved: bool,
}

/// A movement that looks like a credit and is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rejected {
    /// What it claims; `nth` is 0.
    pub transfer: AssetTransfer,
    /// Why it is none.
    pub verdict: Verdict,
}

/// Where a chain ends now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tip {
    /// The newest block.
    pub latest: BlockRef,
    /// The newest block that can no longer be replaced, by the network's finality rule; `None` while there is none.
    pub finalized: Option<BlockRef>,
    /// The same by the rule of each of the network's tiers, in their order.
    pub tiers: Vec<Option<BlockRef>>,
    /// Why nothing newer is final, where it is not just a matter of time: too few endpoints agree.
    pub waiting: Option<String>,
    /// Who shows what, where endpoints differ about a block near the newest: one of their branches will not last.
    pub forked: Option<String>,
}

impl Block {
    /// What left addresses.
    pub fn debits(&self) -> &[AssetTransfer] {
        match &self.debits {
            Debits::ByLegs => &self.transfers,
            Debits::Net(debits) => debits,
        }
    }
}

/// A word that names no level of proof.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown level of proof '{0}'")]
pub struct UnknownLevel(String);

impl FromStr for Proof {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Self, UnknownLevel> {
        Proof::ALL.into_iter().find(|proof| proof.name() == text).ok_or_else(|| UnknownLevel(text.to_owned()))
    }
}

impl Proof {
    /// The strongest first.
    pub const ALL: [Proof; 4] = [Proof::Roots, Proof::Bloom, Proof::TwoEndpoints, Proof::OneEndpoint];

    /// The least that proves a block that is recorded with a credit, on a chain of `family` whose blocks are read as
    /// `read` says, while so many endpoints must `agree`. On an EVM chain whose blocks are read by their logs it is
    /// their bloom, although a block that credits is read with its receipts.
    pub const fn at_least(family: Family, read: ReadProof, agree: usize) -> Proof {
        match (family, read) {
            (Family::Evm, ReadProof::Full) => Proof::Roots,
            (Family::Evm, ReadProof::Candidate) => Proof::Bloom,
            (Family::Solana, _) if agree > 1 => Proof::TwoEndpoints,
            (Family::Solana, _) => Proof::OneEndpoint,
        }
    }

    /// The name that is stored and shown.
    pub const fn name(self) -> &'static str {
        match self {
            Proof::Roots => "roots",
            Proof::Bloom => "bloom",
            Proof::TwoEndpoints => "two_endpoints",
            Proof::OneEndpoint => "one_endpoint",
        }
    }

    /// The weaker of two: both have at least this one.
    #[must_use]
    pub fn weaker(self, other: Proof) -> Proof {
        let strength = |proof: &Proof| match proof {
            Proof::Roots => 3,
            Proof::Bloom => 2,
            Proof::TwoEndpoints => 1,
            Proof::OneEndpoint => 0,
        };
        std::cmp::min_by_key(self, other, strength)
    }
}

impl BlockHash {
    /// As the nodes of a family write it: hexadecimal on EVM, base58 on Solana.
    pub fn text(&self, family: Family) -> String {
        match family {
            Family::Evm => self.to_string(),
            Family::Solana => bs58::encode(self.0).into_string(),
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
