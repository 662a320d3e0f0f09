//! Blocks that real nodes gave, served again as they were.

use alloy::primitives::{Address, B256};
use serde_json::Value;

use crate::block::{Block, MadeOf, MinedLog, MinedTx};
use crate::chain::Chain;

impl Chain {
    /// Takes in a block as `eth_getBlockByNumber` gave it, whole, its receipts as `eth_getBlockReceipts` gave them,
    /// and the answer of the `callTracer` where there is one.
    ///
    /// # Panics
    /// What is given is no such answer.
    pub fn add_recorded(&self, block: &Value, receipts: &Value, traces: Option<&Value>) {
        let (mut txs, mut logs) = (Vec::new(), Vec::new());
        let receipts = receipts.as_array().expect("a list of receipts");
        let listed = block["transactions"].as_array().expect("a block with its transactions");
        for (index, (tx, receipt)) in listed.iter().zip(receipts).enumerate() {
            let receipt_text = receipt.to_string();
            let mut searched = 0;
            for log in receipt["logs"].as_array().expect("a receipt with logs") {
                let text = log.to_string();
                // A value written alone is written as it is within another.
                let start = searched + receipt_text[searched..].find(&text).expect("a log stands in its receipt");
                searched = start + text.len();
                let topics = log["topics"].as_array().expect("a log has topics").iter().map(hash).collect();
                let address: Address = text_of(&log["address"]).parse().expect("an address");
                logs.push(MinedLog { address, topics, tx: index, start, end: searched });
            }
            txs.push(MinedTx { hash: hash(&tx["hash"]), json: tx.to_string(), receipt: receipt_text, raw: None });
        }
        let mut header = block.clone();
        header.as_object_mut().expect("a block").remove("transactions");
        let mut header = header.to_string();
        header.pop();
        self.insert(Block {
            number: number(&block["number"]),
            hash: hash(&block["hash"]),
            parent: hash(&block["parentHash"]),
            time_secs: number(&block["timestamp"]),
            header,
            txs,
            logs,
            made_of: MadeOf::Record { traces: traces.map(Value::to_string) },
        });
    }
}

fn text_of(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn hash(value: &Value) -> B256 {
    text_of(value).parse().expect("32 bytes")
}

fn number(value: &Value) -> u64 {
    u64::from_str_radix(text_of(value).trim_start_matches("0x"), 16).expect("a number")
}
