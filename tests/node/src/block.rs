//! A block that a node has: its place in the chain, and its parts as the bytes that nodes send.

use std::sync::Arc;

use alloy::eips::eip4895::Withdrawal;
use alloy::primitives::{Address, B256};
use landfall_chain::{AssetTransfer, BlockHash, BlockRef, Lane};

use crate::accounts::Accounts;
use crate::tx::Tx;

/// A block. Made once, never changed.
#[derive(Debug)]
pub struct Block {
    pub(crate) number: u64,
    pub(crate) hash: B256,
    pub(crate) parent: B256,
    pub(crate) time_secs: u64,
    /// The block's JSON without its transactions and the brace at its end.
    pub(crate) header: String,
    pub(crate) txs: Vec<MinedTx>,
    pub(crate) logs: Vec<MinedLog>,
    pub(crate) made_of: MadeOf,
}

/// A transaction in its block.
#[derive(Debug)]
pub(crate) struct MinedTx {
    pub(crate) hash: B256,
    pub(crate) json: String,
    pub(crate) receipt: String,
    /// Its encoding, where it is known.
    pub(crate) raw: Option<String>,
}

/// A log in its block.
#[derive(Debug)]
pub(crate) struct MinedLog {
    pub(crate) address: Address,
    pub(crate) topics: Vec<B256>,
    /// Its transaction's place, and where it stands in that one's receipt.
    pub(crate) tx: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// What a block was made of.
#[derive(Debug)]
pub(crate) enum MadeOf {
    Txs {
        txs: Vec<Tx>,
        withdrawals: Vec<Withdrawal>,
        accounts: Arc<Accounts>,
        ledger: Vec<LedgerLeg>,
    },
    /// A real node's answers; its traces where it gave some.
    Record {
        traces: Option<String>,
    },
}

/// One movement of value, as the chain itself knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LedgerLeg {
    /// The block's.
    pub number: u64,
    /// Whether the roots prove it, or only a trace shows it.
    pub lane: Lane,
    pub transfer: AssetTransfer,
}

impl Block {
    /// Number and hash.
    pub fn reference(&self) -> BlockRef {
        BlockRef { number: self.number, hash: BlockHash(self.hash.0) }
    }

    pub fn number(&self) -> u64 {
        self.number
    }

    /// Seconds since 1970.
    pub fn time_secs(&self) -> u64 {
        self.time_secs
    }

    /// The transactions that it was mined with.
    pub fn txs(&self) -> &[Tx] {
        match &self.made_of {
            MadeOf::Txs { txs, .. } => txs,
            MadeOf::Record { .. } => &[],
        }
    }

    /// What moved in it through transactions, of every asset, `nth` set.
    pub fn ledger(&self) -> &[LedgerLeg] {
        match &self.made_of {
            MadeOf::Txs { ledger, .. } => ledger,
            MadeOf::Record { .. } => &[],
        }
    }

    /// What was withdrawn in it from the beacon chain.
    pub fn withdrawals(&self) -> &[Withdrawal] {
        match &self.made_of {
            MadeOf::Txs { withdrawals, .. } => withdrawals,
            MadeOf::Record { .. } => &[],
        }
    }

    pub(crate) fn accounts(&self) -> Option<&Arc<Accounts>> {
        match &self.made_of {
            MadeOf::Txs { accounts, .. } => Some(accounts),
            MadeOf::Record { .. } => None,
        }
    }

    pub(crate) fn log_text(&self, log: &MinedLog) -> &str {
        &self.txs[log.tx].receipt[log.start..log.end]
    }
}
