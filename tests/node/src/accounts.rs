//! The accounts after a block: nonces and balances, their trie's root, and proofs of single accounts.
//!
//! Balances are exact: fees are paid, the base fee is burnt. An account that pays inside of a transaction has code, the
//! same for all; no account has storage. The root is computed over all accounts at each block: hundreds of accounts
//! that own something are cheap, many thousands are not (token balances are in no account).

use std::collections::BTreeMap;

use alloy::primitives::{Address, B256, Bytes, KECCAK256_EMPTY, U256, keccak256};
use alloy::rlp::encode;
use alloy_trie::proof::ProofRetainer;
use alloy_trie::{HashBuilder, Nibbles, TrieAccount};

/// What one account has.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Account {
    pub(crate) nonce: u64,
    pub(crate) balance: U256,
    pub(crate) has_code: bool,
}

/// The code of those who have any.
pub(crate) const CODE: [u8; 1] = [0];

impl Account {
    pub(crate) fn code_hash(&self) -> B256 {
        if self.has_code { keccak256(CODE) } else { KECCAK256_EMPTY }
    }

    fn leaf(&self) -> TrieAccount {
        let (nonce, balance, code_hash) = (self.nonce, self.balance, self.code_hash());
        TrieAccount { nonce, balance, code_hash, ..TrieAccount::default() }
    }
}

/// All accounts, by the hash of their address.
#[derive(Clone, Default, Debug)]
pub(crate) struct Accounts(BTreeMap<B256, Account>);

impl Accounts {
    pub(crate) fn get(&self, address: Address) -> Account {
        self.0.get(&keccak256(address)).copied().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, address: Address, wei: U256) {
        self.change(address, |account| {
            account.balance = account.balance.checked_add(wei).expect("less than 2^256 wei")
        });
    }

    pub(crate) fn take(&mut self, address: Address, wei: U256) {
        self.change(address, |account| {
            let rest = account.balance.checked_sub(wei);
            account.balance = rest.unwrap_or_else(|| panic!("{address} pays {wei} wei and has {}", account.balance));
        });
    }

    /// The account runs code.
    pub(crate) fn run_code(&mut self, address: Address) {
        self.change(address, |account| account.has_code = true);
    }

    /// The account has used `nonce`.
    pub(crate) fn use_nonce(&mut self, address: Address, nonce: u64) {
        self.change(address, |account| account.nonce = account.nonce.max(nonce + 1));
    }

    pub(crate) fn root(&self) -> B256 {
        self.fill(HashBuilder::default()).root()
    }

    /// The nodes from the root to where the account is, or would be.
    pub(crate) fn proof(&self, address: Address) -> Vec<Bytes> {
        let retainer = ProofRetainer::new(vec![Nibbles::unpack(keccak256(address))]);
        let mut builder = self.fill(HashBuilder::default().with_proof_retainer(retainer));
        builder.root();
        builder.take_proof_nodes().into_nodes_sorted().into_iter().map(|(_, node)| node).collect()
    }

    fn fill(&self, mut builder: HashBuilder) -> HashBuilder {
        for (key, account) in &self.0 {
            builder.add_leaf(Nibbles::unpack(key), &encode(account.leaf()));
        }
        builder
    }

    fn change(&mut self, address: Address, change: impl FnOnce(&mut Account)) {
        let key = keccak256(address);
        let account = self.0.entry(key).or_default();
        change(account);
        // EIP-161: an empty account is none.
        if *account == Account::default() {
            self.0.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use alloy_trie::proof::verify_proof;

    use super::*;

    #[test]
    fn accounts_and_their_absence_are_proved_against_the_root() {
        let mut accounts = Accounts::default();
        for who in 1..100 {
            accounts.add(Address::repeat_byte(who), U256::from(who));
        }
        accounts.use_nonce(Address::repeat_byte(7), 4);
        accounts.take(Address::repeat_byte(8), U256::from(8));
        let root = accounts.root();
        for who in [1, 7, 8, 99, 200] {
            let address = Address::repeat_byte(who);
            let account = accounts.get(address);
            let expected = (account != Account::default()).then(|| encode(account.leaf()));
            verify_proof(root, Nibbles::unpack(keccak256(address)), expected, &accounts.proof(address)).unwrap();
        }
        assert_eq!(
            accounts.get(Address::repeat_byte(7)),
            Account { nonce: 5, balance: U256::from(7), has_code: false }
        );
    }
}
