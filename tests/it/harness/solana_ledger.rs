//! A made-up ledger of Solana: owners, their token accounts, and transactions that move between them. It knows at every
//! moment what each owner has, so that books can be held against it.
//!
//! A transaction is what its work changed, reported as a node reports it in mode `accounts`. No code of the product
//! computes here.
//!
//! `landfall_cluster::Tx` makes a transaction of payments and lets every account hold the same before each, so that a
//! node's tests need no history: books cannot be held against that. Here balances live on, and accounts are opened,
//! wrapped into and closed. Nothing here knows slots or nodes: `Tx::raw` makes blocks of it.

use std::collections::{BTreeMap, BTreeSet};

use landfall_chain::{Address, AssetId, Chain, Family, TxId};
use serde_json::{Value, json};

/// Two are ours, two are not.
pub(crate) const OWNERS: [u8; 4] = [0x21, 0x22, 0x23, 0x24];
pub(crate) const OURS: [u8; 2] = [0x21, 0x22];
pub(crate) const RENT: u64 = 2_039_280;
pub(crate) const FEE: u64 = 5_000;
pub(crate) const SPL_TOKEN: &str = "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA";
pub(crate) const TOKEN_2022: &str = "TokenzQdBNbLqP5VEhdkAS6EPFLC1PHnBqCXEpPxuEb";
const USDC: &str = "EPjFWdd5AufqSSqeM2qN1xzybapC8G4wEGGkZwyTDt1v";
const WRAPPED_SOL: &str = "So11111111111111111111111111111111111111112";

/// Where tokens of the older program belong, by owner: USDC, wrapped SOL. Computed by a script of its own.
const ASSOCIATED: [[&str; 2]; 4] = [
    ["CnZFPMbmRzmQKdqynScw5QLvhhuYK7sre4jv72Z4WTXM", "HtUqKHv8xkWxkmcPvuUYWBwA6ephVwG5GUW91HzNmwsD"],
    ["CzLs8LdpjofzBXcqpQZjkErYQ5XXKhkeUCgTErLmTreN", "61PCaY5HJKeC1vqTVY56MJtG4vh4rKxvwGn6G6oVy8Ca"],
    ["3naBpdXUvSQiJ3nVdGTPMZEpKejXVcjJ8rCN9C9rPMgd", "2RTmpfXx8JhhxJRAwnRiDgejcCVBBCHrW64sH7L2gSdr"],
    ["nPB2Fj7jSfvDVdSY4M4Y9gUqawQpXBZCVSB8e4W1tu9", "GHCUe9ECbHphNGJ4VLSKNJhszio2WTVmj8eKosDcdiYH"],
];

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Mint {
    Usdc,
    Wrapped,
    /// Nobody lists it.
    Spam,
}

/// A token account: of whom, of what, and which of several.
pub(crate) type Account = (u8, Mint, Place);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Place {
    Associated,
    Stray,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Held {
    lamports: u64,
    tokens: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    owners: BTreeMap<u8, u64>,
    accounts: BTreeMap<Account, Held>,
    /// How many transactions there were: each has a signature of its own.
    pub(crate) txs: u64,
    /// The program that keeps tokens.
    pub(crate) program: Option<&'static str>,
}

pub(crate) fn owner(who: u8) -> Address {
    Address::Solana([who; 32])
}

pub(crate) fn asset(mint: Mint) -> AssetId {
    AssetId::Token(Address::parse(Family::Solana, &mint.key()).unwrap())
}

/// Mainnet, with wrapped SOL listed.
pub(crate) fn listing_wrapped() -> landfall_chain::Network {
    let mut network = landfall_solana::network(Chain::SolanaMainnet).unwrap();
    let id = asset(Mint::Wrapped);
    network.assets.push(landfall_chain::Asset {
        id,
        symbol: "WSOL".to_owned(),
        decimals: 9,
        from_block: 0,
        route: None,
    });
    network
}

impl Mint {
    fn key(self) -> String {
        match self {
            Mint::Usdc => USDC.to_owned(),
            Mint::Wrapped => WRAPPED_SOL.to_owned(),
            Mint::Spam => Address::Solana([0x66; 32]).to_string(),
        }
    }

    fn decimals(self) -> u8 {
        match self {
            Mint::Usdc => 6,
            Mint::Wrapped => 9,
            Mint::Spam => 0,
        }
    }
}

fn key((who, mint, place): Account) -> String {
    let at = OWNERS.iter().position(|owner| *owner == who).unwrap();
    match (place, mint) {
        (Place::Associated, Mint::Usdc) => ASSOCIATED[at][0].to_owned(),
        (Place::Associated, Mint::Wrapped) => ASSOCIATED[at][1].to_owned(),
        (_, mint) => {
            let mut bytes = [0x99; 32];
            bytes[..3].copy_from_slice(&[who, mint.decimals(), u8::from(place == Place::Stray)]);
            Address::Solana(bytes).to_string()
        }
    }
}

impl Ledger {
    /// Everybody has SOL, and USDC in the associated account.
    pub(crate) fn new() -> Self {
        let mut ledger = Ledger::default();
        for who in OWNERS {
            ledger.owners.insert(who, 1_000_000_000_000);
            ledger.accounts.insert((who, Mint::Usdc, Place::Associated), Held { lamports: RENT, tokens: 1_000_000 });
        }
        ledger
    }

    /// What `who` has of an asset: lamports of its own account, or tokens in all accounts.
    pub(crate) fn balance(&self, who: u8, mint: Option<Mint>) -> u64 {
        let Some(mint) = mint else { return self.owners[&who] };
        let of = self.accounts.iter().filter(|((owner, of, _), _)| (*owner, *of) == (who, mint));
        of.map(|(_, held)| held.tokens).sum()
    }

    pub(crate) fn tokens(&self, account: Account) -> Option<u64> {
        self.accounts.get(&account).map(|held| held.tokens)
    }

    pub(crate) fn send(&mut self, from: u8, to: u8, lamports: u64) {
        *self.owners.get_mut(&from).unwrap() -= lamports;
        *self.owners.get_mut(&to).unwrap() += lamports;
    }

    /// Makes a token account that `payer` pays for, unless it is there.
    pub(crate) fn open(&mut self, account: Account, payer: u8) {
        if !self.accounts.contains_key(&account) {
            *self.owners.get_mut(&payer).unwrap() -= RENT;
            self.accounts.insert(account, Held { lamports: RENT, tokens: 0 });
        }
    }

    /// Closes it: what is in it goes to its owner.
    pub(crate) fn close(&mut self, account: Account) {
        let held = self.accounts.remove(&account).unwrap();
        *self.owners.get_mut(&account.0).unwrap() += held.lamports;
        assert!(held.tokens == 0 || account.1 == Mint::Wrapped);
    }

    pub(crate) fn pay(&mut self, from: Account, to: Account, tokens: u64) {
        assert_eq!(from.1, to.1);
        let lamports = if from.1 == Mint::Wrapped { tokens } else { 0 };
        let source = self.accounts.get_mut(&from).unwrap();
        (source.tokens, source.lamports) = (source.tokens - tokens, source.lamports - lamports);
        let target = self.accounts.get_mut(&to).unwrap();
        (target.tokens, target.lamports) = (target.tokens + tokens, target.lamports + lamports);
    }

    pub(crate) fn mint(&mut self, to: Account, tokens: u64) {
        self.accounts.get_mut(&to).unwrap().tokens += tokens;
    }

    pub(crate) fn wrap(&mut self, from: u8, to: Account, lamports: u64) {
        *self.owners.get_mut(&from).unwrap() -= lamports;
        let held = self.accounts.get_mut(&to).unwrap();
        (held.tokens, held.lamports) = (held.tokens + lamports, held.lamports + lamports);
    }

    /// A transaction that does `work` and whose fee `payer` pays.
    pub(crate) fn tx(&mut self, payer: u8, work: impl FnOnce(&mut Ledger)) -> Value {
        let before = self.clone();
        work(self);
        self.reported(&before, payer, &Value::Null)
    }

    /// A transaction that fails: it costs its fee.
    pub(crate) fn failed(&mut self, payer: u8) -> Value {
        let before = self.clone();
        self.reported(&before, payer, &json!({ "InstructionError": [0, { "Custom": 1 }] }))
    }

    fn reported(&mut self, before: &Ledger, payer: u8, error: &Value) -> Value {
        *self.owners.get_mut(&payer).unwrap() -= FEE;
        self.txs += 1;
        let mut signature = [0x51; 64];
        signature[..8].copy_from_slice(&self.txs.to_be_bytes());
        let others = OWNERS.iter().filter(|who| **who != payer && self.owners[*who] != before.owners[*who]);
        let owners: Vec<u8> = std::iter::once(payer).chain(others.copied()).collect();
        let all: BTreeSet<Account> = self.accounts.keys().chain(before.accounts.keys()).copied().collect();
        let touched = all.into_iter().filter(|account| self.accounts.get(account) != before.accounts.get(account));
        let accounts: Vec<Account> = touched.collect();
        let keys = owners.iter().map(|who| owner(*who).to_string()).chain(accounts.iter().copied().map(key));
        let keys: Vec<Value> = keys.map(|key| json!({ "pubkey": key, "writable": true, "signer": false })).collect();
        let lamports = |side: &Ledger| -> Vec<u64> {
            let of = accounts.iter().map(|account| side.accounts.get(account).map_or(0, |held| held.lamports));
            owners.iter().map(|who| side.owners[who]).chain(of).collect()
        };
        let tokens = |side: &Ledger| -> Vec<Value> {
            let of =
                accounts.iter().enumerate().filter_map(|(at, account)| Some((at, account, side.tokens(*account)?)));
            of.map(|(at, (who, mint, _), tokens)| {
                json!({
                    "accountIndex": owners.len() + at, "mint": mint.key(), "owner": owner(*who).to_string(),
                    "programId": self.program.unwrap_or(SPL_TOKEN),
                    "uiTokenAmount": { "amount": tokens.to_string(), "decimals": mint.decimals(), "uiAmount": null },
                })
            })
            .collect()
        };
        json!({
            "transaction": { "signatures": [TxId::Solana(signature).to_string()], "accountKeys": keys },
            "meta": {
                "err": error, "fee": FEE, "preBalances": lamports(before), "postBalances": lamports(self),
                "preTokenBalances": tokens(before), "postTokenBalances": tokens(self),
            },
            "version": 0,
        })
    }
}
