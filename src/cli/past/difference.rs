//! A difference of `landfall rescan --json`: one JSON object on each line, all of the same shape.

use landfall_chain::{Address, BlockRef, Chain, Proof, TxId};
use serde::Serialize;

use crate::deposit::{DepositId, DepositStatus};
use crate::watcher::{Difference, Movement};

#[derive(Serialize)]
pub(super) struct DifferenceLine {
    chain: &'static str,
    /// `other_block`, `no_block`, `missing`, `failed`, `unseen`, `not_there`, `unbooked` or `unmoved`.
    difference: &'static str,
    /// The number of the final block, or slot; of `no_block` that of ours.
    block_number: u64,
    block_hash: String,
    /// What our record has in place of the final block.
    #[serde(skip_serializing_if = "Option::is_none")]
    our_hash: Option<String>,
    deposits: Vec<DepositLine>,
    /// `debit`, `fee` or `arrival`.
    #[serde(skip_serializing_if = "Option::is_none")]
    movement: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    transaction_hash: Option<String>,
    /// How the block that differs is proved; absent if the block itself differs.
    #[serde(skip_serializing_if = "Option::is_none")]
    proof: Option<&'static str>,
    /// The sentence that is printed without `--json`.
    reason: String,
}

/// The deposit that it is about.
#[derive(Serialize)]
struct DepositLine {
    deposit_id: String,
    /// As on record; absent if it is not there.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
}

impl DifferenceLine {
    pub(super) fn of(chain: Chain, difference: &Difference) -> Self {
        let line = DifferenceLine { reason: difference.to_string(), ..DifferenceLine::at(chain, difference.block()) };
        match difference {
            Difference::OtherBlock { ours, .. } => {
                DifferenceLine { difference: "other_block", our_hash: Some(ours.to_string()), ..line }
            }
            Difference::NoBlock { deposits, .. } => {
                let deposits = deposits.iter().map(|(id, status)| deposit(*id, Some(*status))).collect();
                DifferenceLine { difference: "no_block", deposits, ..line }
            }
            Difference::Missing { deposit: id, tx, recipient, proof, .. } => {
                DifferenceLine { difference: "missing", transaction_hash: Some(tx.to_string()), ..line }
                    .with_deposit(*id, None, *proof)
                    .with_address(*recipient)
            }
            Difference::Failed { deposit: id, recipient, proof, .. } => DifferenceLine { difference: "failed", ..line }
                .with_deposit(*id, Some(DepositStatus::Failed), *proof)
                .with_address(*recipient),
            Difference::Unseen { deposit: id, status, recipient, proof, .. } => {
                DifferenceLine { difference: "unseen", ..line }
                    .with_deposit(*id, Some(*status), *proof)
                    .with_address(*recipient)
            }
            Difference::NotThere { deposit: id, status, proof, .. } => {
                DifferenceLine { difference: "not_there", ..line }.with_deposit(*id, Some(*status), *proof)
            }
            Difference::Unbooked { movement, of, tx, proof, .. } => {
                DifferenceLine { difference: "unbooked", ..line }.with_movement(*movement, tx, *proof).with_address(*of)
            }
            Difference::Unmoved { movement, of, tx, proof, .. } => {
                DifferenceLine { difference: "unmoved", ..line }.with_movement(*movement, tx, *proof).with_address(*of)
            }
        }
    }

    fn at(chain: Chain, block: BlockRef) -> Self {
        DifferenceLine {
            chain: chain.name(),
            difference: "",
            block_number: block.number,
            block_hash: block.hash.to_string(),
            our_hash: None,
            deposits: Vec::new(),
            movement: None,
            address: None,
            transaction_hash: None,
            proof: None,
            reason: String::new(),
        }
    }

    fn with_deposit(self, id: DepositId, status: Option<DepositStatus>, proof: Proof) -> Self {
        DifferenceLine { deposits: vec![deposit(id, status)], proof: Some(proof.name()), ..self }
    }

    fn with_movement(self, movement: Movement, tx: &TxId, proof: Proof) -> Self {
        let (movement, transaction_hash) = (Some(movement.to_string()), Some(tx.to_string()));
        DifferenceLine { movement, transaction_hash, proof: Some(proof.name()), ..self }
    }

    fn with_address(self, address: Address) -> Self {
        DifferenceLine { address: Some(address.to_string()), ..self }
    }
}

fn deposit(id: DepositId, status: Option<DepositStatus>) -> DepositLine {
    DepositLine { deposit_id: id.to_string(), status: status.map(DepositStatus::name) }
}
