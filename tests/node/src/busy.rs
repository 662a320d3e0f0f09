//! Big chains at once, for benchmarks and counts.

use alloy::primitives::{Address, Log, address};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::chain::Chain;
use crate::tx::{Tx, transfer};
use crate::wallet::LIAR;
use crate::{U256, payer};

/// What a busy chain is made of.
#[derive(Clone, Copy, Debug)]
pub struct Busy {
    pub chain_id: u64,
    pub blocks: u64,
    /// In each block.
    pub txs: usize,
    /// In each block, shared out among its transactions; each an ERC-20 Transfer.
    pub logs: usize,
    /// So many of 100 logs are of a listed token.
    pub listed_percent: u32,
    pub listed: Address,
    /// So many of the logs are none of a token, but those by which the chain itself reports native movements
    /// (EIP-7708).
    pub native: usize,
    pub seed: u64,
}

/// Whose logs report native movements.
const SYSTEM: Address = address!("fffffffffffffffffffffffffffffffffffffffe");

/// The recipient of the busy chain's log number `index` in block `number`: every log pays somebody else.
pub fn recipient(number: u64, index: usize) -> Address {
    let mut bytes = [0xb5; 20];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes[8..16].copy_from_slice(&index.to_be_bytes());
    bytes.into()
}

impl Chain {
    /// A chain with so many blocks above block 0.
    pub fn busy(busy: &Busy) -> Self {
        let chain = Chain::new(busy.chain_id, busy.seed);
        let mut rng = StdRng::seed_from_u64(busy.seed);
        for number in 1..=busy.blocks {
            chain.mine(busy.block(number, &mut rng));
        }
        chain
    }
}

impl Busy {
    /// The transactions of block `number`.
    pub fn block(&self, number: u64, rng: &mut StdRng) -> Vec<Tx> {
        let unlisted = Address::repeat_byte(0x71);
        let mut logs: Vec<Log> = Vec::with_capacity(self.logs);
        for index in 0..self.logs {
            let is_listed = rng.random_range(0..100) < self.listed_percent;
            let contract = match index {
                _ if index < self.native => SYSTEM,
                _ if is_listed => self.listed,
                _ => unlisted,
            };
            let amount = U256::from(rng.random_range(1..u64::MAX));
            logs.push(transfer(contract, payer(index % LIAR), recipient(number, index), amount));
        }
        let mut logs = logs.into_iter();
        let mut txs = Vec::with_capacity(self.txs);
        for index in 0..self.txs {
            // The rest is shared among the rest, so that all logs find a place.
            let share = logs.len().div_ceil(self.txs - index);
            let nonce = number * u64::try_from(self.txs).expect("small") + u64::try_from(index).expect("small");
            txs.push(Tx::call(index % LIAR, nonce, self.listed, logs.by_ref().take(share).collect()));
        }
        txs
    }
}
