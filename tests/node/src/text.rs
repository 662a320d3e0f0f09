//! Blocks as nodes write them: JSON, ready to be sent. Everything in it is hexadecimal, so nothing needs escaping.

use std::fmt::Write;

use alloy::consensus::{Header, ReceiptEnvelope, TxReceipt};
use alloy::eips::eip4895::Withdrawal;
use alloy::primitives::{B256, Bytes, Log};

use crate::block::{Block, MinedLog, MinedTx};
use crate::tx::{Envelope, Kind, Tx};
use crate::wallet::payer;

/// Writes the transactions of one block.
pub(crate) struct Writer {
    pub(crate) number: u64,
    pub(crate) hash: B256,
    pub(crate) logs: Vec<MinedLog>,
}

/// All of a block but its transactions and the last brace.
pub(crate) fn header(header: &Header, hash: B256, withdrawals: &[Withdrawal]) -> String {
    let mut text = open_ended(serde_json::to_string(header).expect("plain data"));
    let withdrawals = serde_json::to_string(withdrawals).expect("plain data");
    put(&mut text, format_args!(r#","hash":"{hash}","size":"0x400","uncles":[],"withdrawals":{withdrawals}"#));
    text
}

/// A block with its transactions, or with their hashes.
pub(crate) fn block(block: &Block, is_full: bool) -> String {
    let txs: usize = block.txs.iter().map(|tx| if is_full { tx.json.len() + 1 } else { 69 }).sum();
    let mut text = String::with_capacity(block.header.len() + txs + 32);
    text.push_str(&block.header);
    text.push_str(r#","transactions":["#);
    for (index, tx) in block.txs.iter().enumerate() {
        text.push_str(if index == 0 { "" } else { "," });
        if is_full {
            text.push_str(&tx.json);
        } else {
            put(&mut text, format_args!(r#""{}""#, tx.hash));
        }
    }
    text.push_str("]}");
    text
}

pub(crate) fn receipts(block: &Block) -> String {
    list(block.txs.iter().map(|tx| tx.receipt.as_str()))
}

/// A JSON list of texts.
pub(crate) fn list<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> String {
    let mut text = String::with_capacity(texts.clone().map(|text| text.len() + 1).sum::<usize>() + 2);
    text.push('[');
    for (index, item) in texts.enumerate() {
        text.push_str(if index == 0 { "" } else { "," });
        text.push_str(item);
    }
    text.push(']');
    text
}

impl Writer {
    pub(crate) fn tx(&mut self, index: usize, tx: &Tx, envelope: &Envelope, receipt: &ReceiptEnvelope) -> MinedTx {
        let (number, hash, from) = (self.number, self.hash, payer(tx.payer));
        let mut json = open_ended(envelope.json.clone());
        put(&mut json, format_args!(r#","from":"{from:#x}","blockHash":"{hash}","blockNumber":"{number:#x}""#));
        put(&mut json, format_args!(r#","transactionIndex":"{index:#x}""#));
        if matches!(tx.kind, Kind::DynamicFee | Kind::Newer(_)) {
            put(&mut json, format_args!(r#","gasPrice":"{:#x}""#, Tx::gas_price()));
        }
        json.push('}');
        let raw = Bytes::from(envelope.encoded.clone());
        let receipt = self.receipt(index, tx, envelope, receipt);
        MinedTx { hash: envelope.hash, json, receipt, raw: Some(format!(r#""{raw}""#)) }
    }

    fn receipt(&mut self, index: usize, tx: &Tx, envelope: &Envelope, receipt: &ReceiptEnvelope) -> String {
        let (number, hash) = (self.number, self.hash);
        let mut text = String::with_capacity(1_200 + 700 * tx.logs.len());
        let kind = tx.kind.byte();
        put(&mut text, format_args!(r#"{{"transactionHash":"{}","transactionIndex":"{index:#x}""#, envelope.hash));
        put(&mut text, format_args!(r#","blockHash":"{hash}","blockNumber":"{number:#x}","type":"{kind:#x}""#));
        put(&mut text, format_args!(r#","from":"{:#x}","to":"#, payer(tx.payer)));
        match tx.to {
            Some(to) => put(&mut text, format_args!(r#""{to:#x}","contractAddress":null"#)),
            None => put(&mut text, format_args!(r#"null,"contractAddress":"{:#x}""#, crate::mint::recipient(tx))),
        }
        let (gas, price, success) = (tx.gas(), Tx::gas_price(), u8::from(tx.success));
        put(
            &mut text,
            format_args!(r#","status":"{success:#x}","gasUsed":"{gas:#x}","effectiveGasPrice":"{price:#x}""#),
        );
        put(&mut text, format_args!(r#","cumulativeGasUsed":"{:#x}""#, receipt.cumulative_gas_used()));
        put(&mut text, format_args!(r#","logsBloom":"{:#x}","logs":["#, receipt.bloom()));
        for (at, log) in receipt.logs().iter().enumerate() {
            text.push_str(if at == 0 { "" } else { "," });
            let start = text.len();
            self.log(&mut text, index, envelope, log);
            let (address, topics, end) = (log.address, log.topics().to_vec(), text.len());
            self.logs.push(MinedLog { address, topics, tx: index, start, end });
        }
        text.push_str("]}");
        text
    }

    fn log(&self, text: &mut String, tx: usize, envelope: &Envelope, log: &Log) {
        let (number, hash, index) = (self.number, self.hash, self.logs.len());
        put(text, format_args!(r#"{{"address":"{:#x}","topics":["#, log.address));
        for (at, topic) in log.topics().iter().enumerate() {
            put(text, format_args!(r#"{}"{topic}""#, if at == 0 { "" } else { "," }));
        }
        put(text, format_args!(r#"],"data":"{}","blockNumber":"{number:#x}""#, log.data.data));
        put(text, format_args!(r#","transactionHash":"{}","transactionIndex":"{tx:#x}""#, envelope.hash));
        put(text, format_args!(r#","blockHash":"{hash}","logIndex":"{index:#x}","removed":false}}"#));
    }
}

/// An object's text without its last brace.
fn open_ended(mut text: String) -> String {
    text.pop();
    text
}

pub(crate) fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    text.write_fmt(what).expect("a string takes everything");
}
