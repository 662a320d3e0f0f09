//! What is mined: transactions, with what they do.
//!
//! A transaction's hash is that of its envelope: mined again with other logs or frames it is the same transaction,
//! executed differently. A failed one moves nothing and has no logs, whatever is written in it.

use alloy::consensus::{SignableTransaction, TxEip1559, TxEip2930, TxEnvelope, TxLegacy};
use alloy::eips::Encodable2718;
use alloy::primitives::{Address, B256, Bytes, Log, LogData, Signature, TxKind, U256, b256, keccak256};

use crate::wallet;

/// keccak256("Transfer(address,address,uint256)").
pub const TRANSFER: B256 = b256!("ddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");

/// What the block takes for gas, in wei; what is above goes to the block's producer.
pub(crate) const BASE_FEE: u64 = 7;
const GAS_PRICE: u128 = 9;

/// A transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tx {
    /// Who signs and pays, see [`crate::payer`].
    pub payer: usize,
    pub nonce: u64,
    pub kind: Kind,
    /// `None` creates a contract.
    pub to: Option<Address>,
    /// In wei.
    pub value: U256,
    pub input: Bytes,
    pub success: bool,
    pub logs: Vec<Log>,
    /// What it calls in turn.
    pub frames: Vec<Frame>,
}

/// The envelope.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// 0x0, with a chain id.
    Legacy,
    /// 0x1
    AccessList,
    /// 0x2
    DynamicFee,
    /// What is in a 0x2, under the byte of a type that nobody knows yet.
    Newer(u8),
}

/// A signed transaction, as its chain encodes it and as nodes show it.
pub(crate) struct Envelope {
    pub(crate) hash: B256,
    pub(crate) encoded: Vec<u8>,
    /// What does not depend on its block.
    pub(crate) json: String,
}

/// A call inside of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    pub kind: FrameKind,
    pub from: Address,
    pub to: Address,
    /// In wei.
    pub value: U256,
    /// It, and everything in it, came to nothing.
    pub is_reverted: bool,
    pub frames: Vec<Frame>,
}

/// How it calls.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    Call,
    /// Borrows code: its value is the caller's own and moves nowhere.
    DelegateCall,
    Create,
    SelfDestruct,
}

impl Tx {
    /// A plain payment.
    pub fn pay(payer: usize, nonce: u64, to: Address, wei: u64) -> Self {
        Tx { value: U256::from(wei), ..Tx::call(payer, nonce, to, Vec::new()) }
    }

    /// A call of `contract` that writes these logs.
    pub fn call(payer: usize, nonce: u64, contract: Address, logs: Vec<Log>) -> Self {
        // Both kinds of everyday use, in turn.
        let kind = if nonce.is_multiple_of(2) { Kind::DynamicFee } else { Kind::Legacy };
        let (to, value, input) = (Some(contract), U256::ZERO, Bytes::new());
        Tx { payer, nonce, kind, to, value, input, success: true, logs, frames: Vec::new() }
    }

    /// A payment of a token, with the calldata of `transfer(address,uint256)`.
    pub fn token(payer: usize, nonce: u64, token: Address, to: Address, amount: u64) -> Self {
        let amount = U256::from(amount);
        let input = [&[0xa9, 0x05, 0x9c, 0xbb], to.into_word().as_slice(), &amount.to_be_bytes::<32>()].concat();
        let log = transfer(token, wallet::payer(payer), to, amount);
        Tx { input: input.into(), ..Tx::call(payer, nonce, token, vec![log]) }
    }

    /// A payment through `contract`, which hands it on to `to` inside of the transaction.
    pub fn forward(payer: usize, nonce: u64, contract: Address, to: Address, wei: u64) -> Self {
        let frame = Frame::call(contract, to, U256::from(wei));
        Tx { frames: vec![frame], ..Tx::pay(payer, nonce, contract, wei) }
    }

    /// The same transaction, failed.
    #[must_use]
    pub fn failed(self) -> Self {
        Tx { success: false, ..self }
    }

    /// Another transaction with the same nonce: only one of the two can land.
    #[must_use]
    pub fn replaced_by(&self, tx: Tx) -> Self {
        Tx { payer: self.payer, nonce: self.nonce, ..tx }
    }

    /// Signed, for a chain.
    pub(crate) fn envelope(&self, chain_id: u64) -> Envelope {
        let known = self.known_envelope(chain_id);
        let (known_hash, mut encoded) = (*known.hash(), known.encoded_2718());
        let mut json = serde_json::to_string(&known).expect("plain data");
        self.kind.name_anew(&mut encoded);
        let hash = keccak256(&encoded);
        if let Kind::Newer(kind) = self.kind {
            json = json.replace(r#""type":"0x2""#, &format!(r#""type":"{kind:#x}""#));
            json = json.replace(&known_hash.to_string(), &hash.to_string());
        }
        Envelope { hash, encoded, json }
    }

    fn known_envelope(&self, chain_id: u64) -> TxEnvelope {
        let Tx { nonce, value, .. } = *self;
        let (to, input) = (self.to.map_or(TxKind::Create, TxKind::Call), self.input.clone());
        let (gas_limit, gas_price) = (self.gas(), GAS_PRICE);
        match self.kind {
            Kind::Legacy => {
                self.sign(TxLegacy { chain_id: Some(chain_id), nonce, gas_price, gas_limit, to, value, input })
            }
            Kind::AccessList => {
                let access_list = Default::default();
                self.sign(TxEip2930 { chain_id, nonce, gas_price, gas_limit, to, value, access_list, input })
            }
            Kind::DynamicFee | Kind::Newer(_) => self.sign(TxEip1559 {
                chain_id,
                nonce,
                gas_limit,
                max_fee_per_gas: 2 * gas_price,
                max_priority_fee_per_gas: gas_price - u128::from(BASE_FEE),
                to,
                value,
                access_list: Default::default(),
                input,
            }),
        }
    }

    fn sign<T: SignableTransaction<Signature>>(&self, tx: T) -> TxEnvelope
    where
        TxEnvelope: From<alloy::consensus::Signed<T>>,
    {
        let signature = wallet::sign(self.payer, tx.signature_hash());
        tx.into_signed(signature).into()
    }

    /// Gas used, and the limit: made up, but growing with what is done.
    pub(crate) fn gas(&self) -> u64 {
        let work = self.logs.len() + self.frames.len();
        21_000 + 2_000 * u64::try_from(work).expect("no transaction has that many logs")
    }

    /// What it pays for each unit of gas, in wei.
    pub(crate) const fn gas_price() -> u128 {
        GAS_PRICE
    }
}

impl Kind {
    /// The byte of its type; that of a legacy transaction is written nowhere.
    pub(crate) const fn byte(self) -> u8 {
        match self {
            Kind::Legacy => 0,
            Kind::AccessList => 1,
            Kind::DynamicFee => 2,
            Kind::Newer(kind) => kind,
        }
    }

    /// Puts the byte of a newer type in front of what was encoded as a 0x2.
    pub(crate) fn name_anew(self, encoded: &mut [u8]) {
        if let (Kind::Newer(kind), Some(first)) = (self, encoded.first_mut()) {
            *first = kind;
        }
    }
}

impl Frame {
    /// A plain call.
    pub fn call(from: Address, to: Address, value: U256) -> Self {
        Frame { kind: FrameKind::Call, from, to, value, is_reverted: false, frames: Vec::new() }
    }
}

/// An ordinary ERC-20 `Transfer`.
pub fn transfer(contract: Address, from: Address, to: Address, amount: U256) -> Log {
    let topics = vec![TRANSFER, from.into_word(), to.into_word()];
    Log { address: contract, data: LogData::new_unchecked(topics, amount.to_be_bytes::<32>().into()) }
}
