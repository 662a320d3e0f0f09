//! What a node's pool takes of those who hand it transactions, and in which words it refuses the rest.
//!
//! The rules are those of geth (`core/txpool/legacypool/legacypool.go` and `core/txpool/validation.go`, v1.16). The words are
//! those of five clients, with their sources in `chains/evm/testdata/broadcast.json`. For tests before a node that has none of
//! these rules: who asks it names what the chain knows of the sender.
//! Deliberately not here: the pool's size in all, and what it forgets with time.

use std::collections::BTreeMap;

use alloy::consensus::transaction::SignerRecoverable;
use alloy::consensus::{Transaction, TxEnvelope};
use alloy::eips::Decodable2718;
use alloy::primitives::{Address, B256, Bytes, U256};

/// How many transactions a sender may have in the pool (`AccountSlots`).
pub const SLOTS: usize = 16;
/// By how much each fee of a replacement must be higher, in percent (`PriceBump`).
const BUMP_PERCENT: u128 = 10;

/// Whose words are used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Client {
    Geth,
    Reth,
    Erigon,
    Nethermind,
    Besu,
}

/// A transaction that is handed over.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    pub hash: B256,
    pub sender: Address,
    /// `None` creates a contract.
    pub to: Option<Address>,
    pub nonce: u64,
    pub gas_limit: u64,
    /// In wei.
    pub max_fee: u128,
    pub tip: u128,
    pub value: U256,
    pub input: Bytes,
    /// The wallets whose code it sets.
    pub authorities: Vec<Address>,
}

/// What the chain knows of a sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sender {
    /// How many transactions of it blocks show.
    pub nonce: u64,
    /// In wei.
    pub balance: U256,
    /// It has code by EIP-7702.
    pub is_delegated: bool,
}

/// Why it is refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Refusal {
    Known,
    NonceUsed,
    Gapped,
    Replacement,
    Poor,
    Full,
    InFlight,
    Reserved,
    GasTooLow,
}

/// What is in the pool, by sender and nonce.
#[derive(Clone, Default, Debug)]
pub struct Pool {
    pooled: BTreeMap<(Address, u64), Offer>,
}

impl Client {
    pub const ALL: [Client; 5] = [Client::Geth, Client::Reth, Client::Erigon, Client::Nethermind, Client::Besu];

    /// What it answers.
    #[must_use]
    pub fn words(self, refusal: Refusal, offer: &Offer, sender: Sender) -> String {
        let (nonce, next, cost) = (offer.nonce, sender.nonce, offer.cost());
        let fixed = match (self, refusal) {
            (Client::Geth | Client::Reth, Refusal::NonceUsed) => {
                return format!("nonce too low: next nonce {next}, tx nonce {nonce}");
            }
            (Client::Geth, Refusal::Gapped) => {
                return format!("nonce too high: tx nonce {nonce}, gapped nonce {next}");
            }
            (Client::Geth, Refusal::Poor) => {
                let (balance, over) = (sender.balance, cost.saturating_sub(sender.balance));
                return format!(
                    "insufficient funds for gas * price + value: balance {balance}, tx cost {cost}, overshot {over}"
                );
            }
            (Client::Reth, Refusal::Poor) => {
                return format!("insufficient funds for gas * price + value: have {} want {cost}", sender.balance);
            }
            (Client::Geth, Refusal::GasTooLow) => {
                return format!(
                    "intrinsic gas too low: gas {}, minimum needed {}",
                    offer.gas_limit,
                    offer.gas_limit + 1
                );
            }
            (Client::Nethermind, Refusal::NonceUsed) => {
                return format!("OldNonce, Current nonce: {next}, nonce of rejected tx: {nonce}");
            }
            (Client::Nethermind, Refusal::Gapped) => {
                return format!("NonceGap, Future nonce. Expected nonce: {next}");
            }
            (Client::Geth | Client::Reth, Refusal::Known) => "already known",
            (Client::Erigon, Refusal::Known) => "ALREADY_EXISTS: already known",
            (Client::Nethermind, Refusal::Known) => "AlreadyKnown",
            (Client::Besu, Refusal::Known) => "Known transaction",
            (Client::Erigon, Refusal::NonceUsed) => "INTERNAL_ERROR: nonce too low",
            (Client::Besu, Refusal::NonceUsed) => "Nonce too low",
            (Client::Reth | Client::Erigon, Refusal::Gapped) => "nonce too high",
            (Client::Besu, Refusal::Gapped) => "Transaction nonce is too distant from current sender nonce",
            (Client::Geth | Client::Reth, Refusal::Replacement) => "replacement transaction underpriced",
            (Client::Erigon, Refusal::Replacement) => "INTERNAL_ERROR: could not replace existing tx",
            (Client::Nethermind, Refusal::Replacement) => "ReplacementNotAllowed",
            (Client::Besu, Refusal::Replacement) => "Replacement transaction underpriced",
            (Client::Erigon, Refusal::Poor) => "INTERNAL_ERROR: insufficient funds",
            (Client::Nethermind, Refusal::Poor) => "InsufficientFunds",
            (Client::Besu, Refusal::Poor) => "Upfront cost exceeds account balance",
            (Client::Geth | Client::Reth | Client::Besu, Refusal::Full) => "txpool is full",
            (Client::Erigon, Refusal::Full) => "INTERNAL_ERROR: pending sub-pool is full",
            (Client::Nethermind, Refusal::Full) => "FeeTooLowToCompete",
            (Client::Nethermind, Refusal::InFlight) => "NotCurrentNonceForDelegation",
            (Client::Geth | Client::Reth | Client::Erigon | Client::Besu, Refusal::InFlight) => {
                "in-flight transaction limit reached for delegated accounts"
            }
            (Client::Erigon, Refusal::Reserved) => {
                "INTERNAL_ERROR: EIP-7702 transaction with authority already reserved"
            }
            (Client::Nethermind, Refusal::Reserved) => "DelegatorHasPendingTx",
            (Client::Geth | Client::Reth | Client::Besu, Refusal::Reserved) => "authority already reserved",
            (Client::Reth, Refusal::GasTooLow) => "intrinsic gas too low",
            (Client::Erigon, Refusal::GasTooLow) => "INTERNAL_ERROR: IntrinsicGas",
            (Client::Nethermind, Refusal::GasTooLow) => "intrinsic gas too low: gas 21000, minimum needed 22000",
            (Client::Besu, Refusal::GasTooLow) => "Intrinsic gas exceeds gas limit",
        };
        fixed.to_owned()
    }
}

impl Offer {
    /// What these bytes are; `None` where they are no signed transaction.
    #[must_use]
    pub fn read(raw: &[u8]) -> Option<Self> {
        let tx = TxEnvelope::decode_2718_exact(raw).ok()?;
        let tuples = tx.authorization_list().unwrap_or_default();
        Some(Offer {
            hash: *tx.tx_hash(),
            sender: tx.recover_signer().ok()?,
            to: tx.to(),
            nonce: tx.nonce(),
            gas_limit: tx.gas_limit(),
            max_fee: tx.max_fee_per_gas(),
            tip: tx.max_priority_fee_per_gas().unwrap_or_else(|| tx.max_fee_per_gas()),
            value: tx.value(),
            input: tx.input().clone(),
            authorities: tuples.iter().filter_map(|tuple| tuple.recover_authority().ok()).collect(),
        })
    }

    /// The most that it may cost its sender, in wei.
    fn cost(&self) -> U256 {
        U256::from(self.max_fee) * U256::from(self.gas_limit) + self.value
    }
}

impl Pool {
    /// Takes it, in the place of one with the same nonce if its fees are high enough.
    ///
    /// # Errors
    /// Why it is refused; then the pool is as it was.
    pub fn offer(&mut self, offer: Offer, sender: Sender) -> Result<(), Refusal> {
        self.pooled.retain(|(of, nonce), _| *of != offer.sender || *nonce >= sender.nonce);
        let before = self.pooled.get(&(offer.sender, offer.nonce));
        if before.is_some_and(|before| before.hash == offer.hash) {
            return Err(Refusal::Known);
        }
        if offer.nonce < sender.nonce {
            return Err(Refusal::NonceUsed);
        }
        let beside: Vec<&Offer> = self.of(&offer.sender).filter(|pooled| pooled.nonce != offer.nonce).collect();
        let has_all_before = (sender.nonce..offer.nonce).all(|nonce| beside.iter().any(|it| it.nonce == nonce));
        let is_authority = self.pooled.values().any(|pooled| pooled.authorities.contains(&offer.sender));
        if (sender.is_delegated || is_authority) && !beside.is_empty() {
            return Err(Refusal::InFlight);
        }
        if !has_all_before {
            return Err(Refusal::Gapped);
        }
        if offer.authorities.iter().any(|authority| self.of(authority).count() > 1) {
            return Err(Refusal::Reserved);
        }
        let costs = beside.iter().map(|pooled| pooled.cost()).fold(offer.cost(), U256::saturating_add);
        if costs > sender.balance {
            return Err(Refusal::Poor);
        }
        let is_raise = |now: u128, before: u128| now * 100 >= before * (100 + BUMP_PERCENT);
        match before {
            Some(before) if !is_raise(offer.max_fee, before.max_fee) || !is_raise(offer.tip, before.tip) => {
                return Err(Refusal::Replacement);
            }
            None if beside.len() >= SLOTS => return Err(Refusal::Full),
            Some(_) | None => {}
        }
        self.pooled.insert((offer.sender, offer.nonce), offer);
        Ok(())
    }

    /// Everything in it is forgotten.
    pub fn forget(&mut self) {
        self.pooled.clear();
    }

    fn of(&self, sender: &Address) -> impl Iterator<Item = &Offer> {
        self.pooled.range((*sender, 0)..=(*sender, u64::MAX)).map(|(_, pooled)| pooled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RICH: Sender = Sender { nonce: 3, balance: U256::from_limbs([1_000_000_000, 0, 0, 0]), is_delegated: false };

    fn offer(nonce: u64, max_fee: u128) -> Offer {
        let hash = B256::from(U256::from(nonce) * U256::from(1_000_000) + U256::from(max_fee));
        let (sender, to) = (Address::with_last_byte(1), Some(Address::with_last_byte(2)));
        let (value, input) = (U256::ZERO, Bytes::new());
        Offer { hash, sender, to, nonce, gas_limit: 21_000, max_fee, tip: max_fee, value, input, authorities: vec![] }
    }

    #[test]
    fn nonces_follow_each_other() {
        let mut pool = Pool::default();
        assert_eq!(pool.offer(offer(2, 100), RICH), Err(Refusal::NonceUsed));
        assert_eq!(pool.offer(offer(4, 100), RICH), Err(Refusal::Gapped));
        assert_eq!(pool.offer(offer(3, 100), RICH), Ok(()));
        assert_eq!(pool.offer(offer(3, 100), RICH), Err(Refusal::Known));
        assert_eq!(pool.offer(offer(4, 100), RICH), Ok(()));
        // What a block shows leaves the pool.
        assert_eq!(pool.offer(offer(5, 100), Sender { nonce: 5, ..RICH }), Ok(()));
        assert_eq!(pool.of(&Address::with_last_byte(1)).count(), 1);
    }

    #[test]
    fn a_replacement_offers_a_tenth_more_of_both_fees() {
        let mut pool = Pool::default();
        pool.offer(offer(3, 100), RICH).unwrap();
        assert_eq!(pool.offer(offer(3, 109), RICH), Err(Refusal::Replacement));
        assert_eq!(pool.offer(Offer { tip: 109, ..offer(3, 120) }, RICH), Err(Refusal::Replacement));
        assert_eq!(pool.offer(offer(3, 110), RICH), Ok(()));
    }

    #[test]
    fn sixteen_of_a_sender_and_what_it_can_pay() {
        let mut pool = Pool::default();
        for nonce in 3..3 + 16 {
            assert_eq!(pool.offer(offer(nonce, 10), RICH), Ok(()), "{nonce}");
        }
        assert_eq!(pool.offer(offer(19, 10), RICH), Err(Refusal::Full));
        assert_eq!(pool.offer(offer(18, 11), RICH), Ok(()), "one in the place of another");
        let mut pool = Pool::default();
        let poor = Sender { balance: U256::from(3 * 21_000), ..RICH };
        assert_eq!(pool.offer(offer(3, 2), poor), Ok(()));
        assert_eq!(pool.offer(offer(4, 2), poor), Err(Refusal::Poor), "both together cost too much");
    }

    #[test]
    fn a_delegated_sender_has_one_and_an_authority_with_two_is_reserved() {
        let mut pool = Pool::default();
        let delegated = Sender { is_delegated: true, ..RICH };
        assert_eq!(pool.offer(offer(3, 10), delegated), Ok(()));
        assert_eq!(pool.offer(offer(4, 10), delegated), Err(Refusal::InFlight));
        assert_eq!(pool.offer(offer(3, 20), delegated), Ok(()), "the one is replaced");
        pool.offer(offer(4, 10), RICH).unwrap();
        let other =
            Offer { sender: Address::with_last_byte(9), authorities: vec![Address::with_last_byte(1)], ..offer(3, 10) };
        assert_eq!(pool.offer(other, RICH), Err(Refusal::Reserved));
    }
}
