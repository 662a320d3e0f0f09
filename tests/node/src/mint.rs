//! Makes blocks: runs transactions on the accounts, computes the roots, writes the texts.

use std::sync::Arc;

use alloy::consensus::proofs::{calculate_withdrawals_root, ordered_trie_root_with_encoder};
use alloy::consensus::{EMPTY_ROOT_HASH, Header, Receipt, ReceiptEnvelope, TxReceipt};
use alloy::eips::Encodable2718;
use alloy::eips::eip4895::Withdrawal;
use alloy::eips::eip7685::EMPTY_REQUESTS_HASH;
use alloy::primitives::{Address, B256, Bloom, Bytes, U256};
use landfall_chain::{
    Address as ChainAddress, AssetId, AssetTransfer, Lane, SenderRule, TxId, TxLife, TxRef, U256 as ChainU256,
    number_equal_legs,
};

use crate::accounts::Accounts;
use crate::block::{Block, LedgerLeg, MadeOf, MinedTx};
use crate::text;
use crate::tx::{BASE_FEE, Envelope, Frame, FrameKind, Kind, TRANSFER, Tx};
use crate::wallet::{PAYERS, payer};

const GENESIS_SECS: u64 = 1_700_000_000;
const BLOCK_SECS: u64 = 12;
const GAS_LIMIT_MIN: u64 = 36_000_000;
const WEI_PER_GWEI: u64 = 1_000_000_000;
/// Who gets what is paid above the base fee.
pub(crate) const PRODUCER: Address = Address::repeat_byte(0xfe);

/// Where a block is made.
pub(crate) struct Place<'a> {
    pub(crate) chain_id: u64,
    pub(crate) parent: &'a Block,
    /// Makes the hash of a block that has the same content as another.
    pub(crate) salt: B256,
}

/// Block 0: every payer owns 2^100 wei.
pub(crate) fn genesis(salt: B256) -> Block {
    let mut accounts = Accounts::default();
    for index in 0..PAYERS {
        accounts.add(payer(index), U256::from(1) << 100);
    }
    let header = Header { timestamp: GENESIS_SECS, mix_hash: salt, ..header_of(&accounts, &[]) };
    finish(&header, Vec::new(), Vec::new(), Contents { accounts, ..Contents::default() })
}

pub(crate) fn block(place: &Place<'_>, txs: Vec<Tx>, withdrawals: Vec<Withdrawal>) -> Block {
    let Place { chain_id, parent, salt } = *place;
    let accounts = parent.accounts().expect("a recorded block has no state to mine on");
    let mut contents = Contents { accounts: Accounts::clone(accounts), ..Contents::default() };
    for tx in &txs {
        contents.run(tx, tx.envelope(chain_id));
    }
    for withdrawal in &withdrawals {
        let wei = U256::from(withdrawal.amount) * U256::from(WEI_PER_GWEI);
        contents.accounts.add(withdrawal.address, wei);
    }
    let number = parent.number + 1;
    let header = Header {
        number,
        parent_hash: parent.hash,
        timestamp: GENESIS_SECS + number * BLOCK_SECS,
        mix_hash: salt,
        transactions_root: root(contents.envelopes.iter().map(|envelope| envelope.encoded.clone())),
        receipts_root: root(txs.iter().zip(&contents.receipts).map(|(tx, receipt)| {
            let mut encoded = receipt.encoded_2718();
            tx.kind.name_anew(&mut encoded);
            encoded
        })),
        logs_bloom: contents.receipts.iter().fold(Bloom::ZERO, |all, receipt| all | receipt.bloom()),
        gas_used: contents.gas_used,
        gas_limit: GAS_LIMIT_MIN.max(2 * contents.gas_used),
        ..header_of(&contents.accounts, &withdrawals)
    };
    finish(&header, txs, withdrawals, contents)
}

/// What does not depend on the place. With the fields of Prague.
fn header_of(accounts: &Accounts, withdrawals: &[Withdrawal]) -> Header {
    Header {
        beneficiary: PRODUCER,
        state_root: accounts.root(),
        gas_limit: GAS_LIMIT_MIN,
        extra_data: Bytes::from_static(b"landfall"),
        base_fee_per_gas: Some(BASE_FEE),
        withdrawals_root: Some(calculate_withdrawals_root(withdrawals)),
        blob_gas_used: Some(0),
        excess_blob_gas: Some(0),
        parent_beacon_block_root: Some(B256::repeat_byte(3)),
        requests_hash: Some(EMPTY_REQUESTS_HASH),
        ..Header::default()
    }
}

/// What comes of a block's transactions.
#[derive(Default)]
struct Contents {
    accounts: Accounts,
    envelopes: Vec<Envelope>,
    receipts: Vec<ReceiptEnvelope>,
    /// What the roots prove, and what only a trace shows.
    plain: Vec<AssetTransfer>,
    inner: Vec<AssetTransfer>,
    gas_used: u64,
}

impl Contents {
    fn run(&mut self, tx: &Tx, envelope: Envelope) {
        let (from, gas) = (payer(tx.payer), tx.gas());
        let fee = |wei: u128| U256::from(wei * u128::from(gas));
        self.accounts.take(from, fee(Tx::gas_price()));
        self.accounts.add(PRODUCER, fee(Tx::gas_price() - u128::from(BASE_FEE)));
        self.accounts.use_nonce(from, tx.nonce);
        self.gas_used += gas;
        let life = TxLife::Nonce { signer: address(from), nonce: tx.nonce };
        let reference = TxRef { id: TxId::Evm(envelope.hash.0), life };
        if tx.success {
            let to = recipient(tx);
            self.move_value(from, to, tx.value);
            self.plain.extend(leg(reference, AssetId::Native, from, to, tx.value));
            self.plain.extend(tx.logs.iter().filter_map(|log| token_leg(reference, log)));
            tx.frames.iter().for_each(|frame| self.run_frame(reference, frame));
        }
        let logs = if tx.success { tx.logs.clone() } else { Vec::new() };
        let receipt = Receipt { status: tx.success.into(), cumulative_gas_used: self.gas_used, logs }.with_bloom();
        self.receipts.push(match tx.kind {
            Kind::Legacy => ReceiptEnvelope::Legacy(receipt),
            Kind::AccessList => ReceiptEnvelope::Eip2930(receipt),
            Kind::DynamicFee | Kind::Newer(_) => ReceiptEnvelope::Eip1559(receipt),
        });
        self.envelopes.push(envelope);
    }

    fn run_frame(&mut self, tx: TxRef, frame: &Frame) {
        if frame.is_reverted {
            return;
        }
        if frame.kind != FrameKind::DelegateCall {
            if !frame.value.is_zero() {
                self.accounts.run_code(frame.from);
            }
            self.move_value(frame.from, frame.to, frame.value);
            self.inner.extend(leg(tx, AssetId::Native, frame.from, frame.to, frame.value));
        }
        frame.frames.iter().for_each(|frame| self.run_frame(tx, frame));
    }

    fn move_value(&mut self, from: Address, to: Address, wei: U256) {
        if !wei.is_zero() {
            self.accounts.take(from, wei);
            self.accounts.add(to, wei);
        }
    }
}

fn finish(header: &Header, txs: Vec<Tx>, withdrawals: Vec<Withdrawal>, contents: Contents) -> Block {
    let hash = header.hash_slow();
    let Contents { accounts, envelopes, receipts, mut plain, inner, .. } = contents;
    let proved = plain.len();
    plain.extend(inner);
    number_equal_legs(&mut plain);
    let lane = |index| if index < proved { Lane::Block } else { Lane::Traces };
    let ledger = (0..).zip(plain);
    let ledger = ledger.map(|(at, transfer)| LedgerLeg { number: header.number, lane: lane(at), transfer }).collect();
    let mut writer = text::Writer { number: header.number, hash, logs: Vec::new() };
    let mined: Vec<MinedTx> =
        (0..).zip(&txs).map(|(at, tx)| writer.tx(at, tx, &envelopes[at], &receipts[at])).collect();
    Block {
        number: header.number,
        hash,
        parent: header.parent_hash,
        time_secs: header.timestamp,
        header: text::header(header, hash, &withdrawals),
        txs: mined,
        logs: writer.logs,
        made_of: MadeOf::Txs { txs, withdrawals, accounts: Arc::new(accounts), ledger },
    }
}

fn root(leaves: impl Iterator<Item = Vec<u8>>) -> B256 {
    let leaves: Vec<Vec<u8>> = leaves.collect();
    if leaves.is_empty() {
        return EMPTY_ROOT_HASH;
    }
    ordered_trie_root_with_encoder(&leaves, |leaf, out| out.extend_from_slice(leaf))
}

/// Whom the transaction itself pays.
pub(crate) fn recipient(tx: &Tx) -> Address {
    tx.to.unwrap_or_else(|| payer(tx.payer).create(tx.nonce))
}

fn token_leg(tx: TxRef, log: &alloy::primitives::Log) -> Option<AssetTransfer> {
    let [TRANSFER, from, to] = log.topics() else { return None };
    let amount = U256::from_be_bytes::<32>(log.data.data.as_ref().try_into().ok()?);
    let asset = AssetId::Token(address(log.address));
    leg(tx, asset, Address::from_word(*from), Address::from_word(*to), amount)
}

fn leg(tx: TxRef, asset: AssetId, from: Address, to: Address, amount: U256) -> Option<AssetTransfer> {
    let moves = !amount.is_zero() && from != to;
    let amount = ChainU256::from_be_bytes(amount.to_be_bytes::<32>());
    moves.then(|| AssetTransfer {
        tx,
        asset,
        sender: address(from),
        sender_rule: SenderRule::Reported,
        recipient: address(to),
        amount,
        nth: 0,
    })
}

fn address(address: Address) -> ChainAddress {
    ChainAddress::Evm(address.into())
}
