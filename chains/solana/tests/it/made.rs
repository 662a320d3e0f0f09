//! Transactions made for a test: accounts with their lamports, and what token accounts hold.

use serde_json::{Value, json};

use crate::fixtures::WRAPPED_SOL;

pub(crate) const SPL_TOKEN: &str = "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA";
pub(crate) const USDC: &str = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v";
pub(crate) const RENT: u64 = 2_039_280;
pub(crate) const FEE: u64 = 5_000;

/// An account that nobody else is, by a letter.
pub(crate) fn key(name: &str) -> String {
    let mut bytes = [b'.'; 32];
    bytes[..name.len()].copy_from_slice(name.as_bytes());
    bs58::encode(bytes).into_string()
}

/// A transaction that succeeded; the first account paid the fee, which its balances here do not show.
#[derive(Clone, Debug, Default)]
pub(crate) struct Made {
    accounts: Vec<(String, [u64; 2])>,
    tokens: [Vec<Value>; 2],
}

impl Made {
    /// An account, with its lamports before and after, as they would be without the fee.
    #[must_use]
    pub(crate) fn account(mut self, name: &str, lamports: [u64; 2]) -> Self {
        self.accounts.push((key(name), lamports));
        self
    }

    /// A token account, with lamports, and what it held of a mint before and after; `None` where it was not there.
    #[must_use]
    pub(crate) fn tokens(
        self,
        name: &str,
        owner: &str,
        mint: &str,
        lamports: [u64; 2],
        held: [Option<u64>; 2],
    ) -> Self {
        self.tokens_at(key(name), owner, mint, lamports, held)
    }

    /// As [`Made::tokens`], at this very address.
    #[must_use]
    pub(crate) fn tokens_at(
        mut self,
        address: String,
        owner: &str,
        mint: &str,
        lamports: [u64; 2],
        held: [Option<u64>; 2],
    ) -> Self {
        let decimals = if mint == WRAPPED_SOL { 9 } else { 6 };
        for (side, held) in self.tokens.iter_mut().zip(held) {
            side.extend(held.map(|amount| {
                json!({
                    "accountIndex": self.accounts.len(), "mint": mint, "owner": key(owner), "programId": SPL_TOKEN,
                    "uiTokenAmount": { "amount": amount.to_string(), "decimals": decimals, "uiAmount": 0.1 },
                })
            }));
        }
        self.accounts.push((address, lamports));
        self
    }

    pub(crate) fn tx(&self) -> Value {
        let keys: Vec<Value> =
            self.accounts.iter().map(|(key, _)| json!({ "pubkey": key, "writable": true })).collect();
        let [mut pre, post] = [0, 1].map(|at| self.accounts.iter().map(|(_, held)| held[at]).collect::<Vec<u64>>());
        pre[0] += FEE;
        json!({
            "transaction": { "signatures": [bs58::encode([7; 64]).into_string()], "accountKeys": keys },
            "meta": {
                "err": null, "fee": FEE, "preBalances": pre, "postBalances": post,
                "preTokenBalances": self.tokens[0], "postTokenBalances": self.tokens[1],
            },
            "version": 7,
        })
    }
}

/// Where an owner's USDC belongs.
pub(crate) fn associated(owner: &str) -> String {
    associated_of(owner, USDC)
}

/// Where an owner's tokens of a mint of the older program belong: the first seed from 255 down that leads off the curve.
pub(crate) fn associated_of(owner: &str, mint: &str) -> String {
    let bytes = |text: &str| bs58::decode(text).into_vec().unwrap();
    let seeds = [bytes(owner), bytes(SPL_TOKEN), bytes(mint)];
    let seeds: Vec<&[u8]> = seeds.iter().map(Vec::as_slice).collect();
    let program: [u8; 32] = bytes("ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL").try_into().unwrap();
    let program = solana_address::Address::new_from_array(program);
    bs58::encode(solana_address::Address::find_program_address(&seeds, &program).0.to_bytes()).into_string()
}
