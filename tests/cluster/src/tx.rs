//! Transactions: what they pay, and how nodes write them.
//!
//! [`Tx::paying`] makes the balances from the payments, so that both say the same; [`Tx::raw`] takes whatever a test
//! wants nodes to report. Promises: a recipient of tokens is not among the accounts unless it signs or is paid SOL too,
//! as on the real chain; a transaction that failed pays nothing and costs its fee.

use std::sync::Arc;

use landfall_chain::{Address, AssetId, TxId};
use serde_json::{Value, json};

const SYSTEM: &str = "11111111111111111111111111111111";
const SPL_TOKEN: &str = "TokenkegQfeZyiNwAJbNbGKPFXCWuBvf9Ss623VQ5DA";
const ASSOCIATED: &str = "ATokenGPvbdGVxr1b2hvZbsiqW5xWH25efTNsLJA8knL";
/// What a transaction costs its payer.
pub const FEE: u64 = 5_000;
/// What every account holds before a transaction, of lamports and of tokens.
const HELD: u64 = 1_000_000_000_000;
const TOKEN_DECIMALS: u8 = 6;

/// Value that moves from one owner to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Payment {
    pub asset: AssetId,
    pub sender: Address,
    pub recipient: Address,
    pub amount: u64,
}

/// The format of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    Legacy,
    Number(u8),
}

/// How a node writes a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    Accounts,
    Json,
}

/// A transaction; clones share what it says.
#[derive(Clone, Debug)]
pub struct Tx {
    pub version: Version,
    /// What it pays; nothing when it failed.
    pub payments: Arc<[Payment]>,
    signature: Arc<str>,
    /// All accounts that it names.
    keys: Arc<[String]>,
    is_failed: bool,
    /// In the shapes `accounts` and `json`.
    texts: [Arc<str>; 2],
}

/// The accounts of a transaction in the making, with their balances before and after.
#[derive(Default)]
struct Accounts {
    keys: Vec<String>,
    lamports: Vec<[u64; 2]>,
    tokens: Vec<Held>,
    instructions: Vec<Value>,
}

/// What a token account holds of its mint before and after.
struct Held {
    at: usize,
    mint: Address,
    owner: Address,
    amounts: [u64; 2],
}

impl Version {
    pub(crate) fn number(self) -> Option<u8> {
        match self {
            Version::Legacy => None,
            Version::Number(number) => Some(number),
        }
    }

    fn json(self) -> Value {
        self.number().map_or_else(|| json!("legacy"), |number| json!(number))
    }
}

impl Tx {
    /// A transaction that makes these payments; its signature is made of `id`, and `payer` signs it and pays the fee.
    pub fn paying(id: u64, payer: Address, payments: &[Payment]) -> Self {
        Tx::made(id, payer, payments, Version::Number(0), false)
    }

    /// One payment of SOL, by who sends it.
    pub fn sol(id: u64, sender: Address, recipient: Address, amount: u64) -> Self {
        Tx::paying(id, sender, &[Payment { asset: AssetId::Native, sender, recipient, amount }])
    }

    /// One payment of a token of the older program, of 6 decimals, into the recipient's associated account.
    pub fn token(id: u64, mint: Address, sender: Address, recipient: Address, amount: u64) -> Self {
        Tx::paying(id, sender, &[Payment { asset: AssetId::Token(mint), sender, recipient, amount }])
    }

    /// As [`Tx::paying`], but it fails: the same accounts, and nothing moves but the fee.
    pub fn failing(id: u64, payer: Address, payments: &[Payment]) -> Self {
        Tx::made(id, payer, payments, Version::Number(0), true)
    }

    /// The same of another format.
    #[must_use]
    pub fn with_version(mut self, version: Version) -> Self {
        for text in &mut self.texts {
            let mut value: Value = serde_json::from_str(text).expect("it was JSON");
            value["version"] = version.json();
            *text = value.to_string().into();
        }
        self.version = version;
        self
    }

    /// A transaction as a node writes it in the shape `accounts`, whatever that says; in the shape `json` it has the
    /// same keys and balances, and no instructions.
    pub fn raw(value: &Value) -> Self {
        let keys = value["transaction"]["accountKeys"].as_array().map(Vec::as_slice).unwrap_or_default();
        let pubkeys: Vec<&Value> = keys.iter().map(|key| &key["pubkey"]).collect();
        let mut whole = value.clone();
        whole["transaction"]["message"] = json!({ "accountKeys": pubkeys, "instructions": [] });
        Tx {
            version: value["version"].as_u64().map_or(Version::Legacy, |version| {
                Version::Number(u8::try_from(version).expect("a version is a byte"))
            }),
            payments: Arc::new([]),
            signature: value["transaction"]["signatures"][0].as_str().unwrap_or_default().into(),
            keys: keys.iter().filter_map(|key| Some(key["pubkey"].as_str()?.to_owned())).collect(),
            is_failed: !value["meta"]["err"].is_null(),
            texts: [value.to_string().into(), whole.to_string().into()],
        }
    }

    /// The same with its text in the shape `accounts` changed: what a node makes of it, and not what it pays.
    #[must_use]
    pub fn changed(&self, change: impl FnOnce(&mut Value)) -> Self {
        let mut value = serde_json::from_str(&self.texts[0]).expect("it was JSON");
        change(&mut value);
        Tx { texts: [value.to_string().into(), Arc::clone(&self.texts[1])], ..self.clone() }
    }

    /// Its signature as bytes.
    ///
    /// # Panics
    /// A raw transaction has none.
    pub fn id(&self) -> TxId {
        let bytes = bs58::decode(&*self.signature).into_vec().ok().and_then(|bytes| bytes.try_into().ok());
        TxId::Solana(bytes.expect("a signature of 64 bytes"))
    }

    /// Its signature, in base58.
    pub fn signature(&self) -> &str {
        &self.signature
    }

    /// Whether it names this account.
    pub(crate) fn names(&self, key: &str) -> bool {
        self.keys.iter().any(|known| known == key)
    }

    pub(crate) fn err(&self) -> Value {
        if self.is_failed { failure() } else { Value::Null }
    }

    pub(crate) fn text(&self, shape: Shape) -> &str {
        match shape {
            Shape::Accounts => &self.texts[0],
            Shape::Json => &self.texts[1],
        }
    }

    fn made(id: u64, payer: Address, payments: &[Payment], version: Version, is_failed: bool) -> Self {
        let signature = bs58::encode(signature(id)).into_string();
        let mut accounts = Accounts::default();
        accounts.place(&payer.to_string());
        for payment in payments {
            accounts.pay(payment, is_failed);
        }
        accounts.lamports[0][0] += FEE;
        let Accounts { keys, lamports, tokens, instructions } = accounts;
        let [pre, post] = [0, 1].map(|side| tokens.iter().map(|held| held.json(side)).collect::<Vec<Value>>());
        let [before, after] = [0, 1].map(|at| lamports.iter().map(|held| held[at]).collect::<Vec<u64>>());
        let err = if is_failed { failure() } else { Value::Null };
        let meta = json!({
            "err": err, "fee": FEE, "preBalances": before, "postBalances": after, "preTokenBalances": pre,
            "postTokenBalances": post, "innerInstructions": null,
        });
        let reported = |(at, key): (usize, &String)| json!({ "pubkey": key, "signer": at == 0, "writable": true, "source": "transaction" });
        let listed: Vec<Value> = keys.iter().enumerate().map(reported).collect();
        let [as_accounts, as_json] = [
            json!({ "signatures": [signature], "accountKeys": listed }),
            json!({ "signatures": [signature], "message": {
                "accountKeys": keys, "instructions": instructions, "recentBlockhash": SYSTEM,
                "header": { "numRequiredSignatures": 1, "numReadonlySignedAccounts": 0, "numReadonlyUnsignedAccounts": 0 },
            } }),
        ]
        .map(|body| json!({ "transaction": body, "meta": meta, "version": version.json() }).to_string().into());
        let payments = if is_failed { &[] } else { payments }.into();
        Tx {
            version,
            payments,
            signature: signature.into(),
            keys: keys.into(),
            is_failed,
            texts: [as_accounts, as_json],
        }
    }
}

impl Accounts {
    /// Where `key` stands.
    fn place(&mut self, key: &str) -> usize {
        self.keys.iter().position(|known| known == key).unwrap_or_else(|| {
            self.keys.push(key.to_owned());
            self.lamports.push([HELD; 2]);
            self.keys.len() - 1
        })
    }

    fn pay(&mut self, payment: &Payment, is_failed: bool) {
        let Payment { asset, sender, recipient, amount } = payment;
        let moved = if is_failed { 0 } else { *amount };
        let AssetId::Token(mint) = asset else {
            let [from, to] = [sender, recipient].map(|owner| self.place(&owner.to_string()));
            self.lamports[from][1] -= moved;
            self.lamports[to][1] += moved;
            let program = self.place(SYSTEM);
            self.call(program, &[from, to], &[&2_u32.to_le_bytes()[..], &amount.to_le_bytes()].concat());
            return;
        };
        let signer = self.place(&sender.to_string());
        let [from, to] = [sender, recipient].map(|owner| self.place(&associated(owner, mint, SPL_TOKEN)));
        self.holder(from, *mint, *sender).amounts[1] -= moved;
        self.holder(to, *mint, *recipient).amounts[1] += moved;
        let [mint, program] = [mint.to_string().as_str(), SPL_TOKEN].map(|key| self.place(key));
        // TransferChecked.
        let data = [&[12][..], &amount.to_le_bytes(), &[TOKEN_DECIMALS]].concat();
        self.call(program, &[from, mint, to, signer], &data);
    }

    /// The tokens of the account at this place.
    fn holder(&mut self, at: usize, mint: Address, owner: Address) -> &mut Held {
        let known = self.tokens.iter().position(|held| held.at == at).unwrap_or_else(|| {
            self.tokens.push(Held { at, mint, owner, amounts: [HELD; 2] });
            self.tokens.len() - 1
        });
        &mut self.tokens[known]
    }

    fn call(&mut self, program: usize, accounts: &[usize], data: &[u8]) {
        let data = bs58::encode(data).into_string();
        self.instructions.push(json!({ "programIdIndex": program, "accounts": accounts, "data": data }));
    }
}

impl Held {
    /// Before is side 0, after is side 1.
    fn json(&self, side: usize) -> Value {
        json!({
            "accountIndex": self.at, "mint": self.mint.to_string(), "owner": self.owner.to_string(),
            "programId": SPL_TOKEN,
            "uiTokenAmount": { "amount": self.amounts[side].to_string(), "decimals": TOKEN_DECIMALS, "uiAmount": 0.1 },
        })
    }
}

/// Where an owner's tokens of a mint belong under a token program.
pub fn associated(owner: &Address, mint: &Address, program: &str) -> String {
    let bytes = |text: &str| bs58::decode(text).into_vec().expect("base58");
    let (token, program) = (bytes(program), bytes(ASSOCIATED).try_into().expect("32 bytes"));
    let seeds = [owner.as_bytes(), &token, mint.as_bytes()];
    let program = solana_address::Address::new_from_array(program);
    bs58::encode(solana_address::Address::find_program_address(&seeds, &program).0.to_bytes()).into_string()
}

/// A signature that no other id has. Their order in base58 has nothing to do with that of their ids.
pub fn signature(id: u64) -> [u8; 64] {
    let mut bytes = [0x51; 64];
    bytes[..8].copy_from_slice(&id.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes());
    bytes[8..16].copy_from_slice(&id.to_be_bytes());
    bytes
}

fn failure() -> Value {
    json!({ "InstructionError": [0, { "Custom": 1 }] })
}
