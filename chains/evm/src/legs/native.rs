//! Native currency that moves, as a proved block shows it: one source for each block.
//!
//! A transaction itself shows its own value. Where the chain logs movements of value (Polygon; EIP-7708), these logs
//! are the one source: they show the own value too, so it is not counted again.
//! Sources: bor `core/bor_fee_log.go` and `core/evm.go` (`Transfer`); EIP-7708. Polygon's `LogFeeTransfer` has another
//! topic and is none of these. Polygon logs calls and creations only: what SELFDESTRUCT pays is added to a balance
//! without a log (`core/vm/instructions.go`), and is not seen there. EIP-7708 logs that too.
//! Promises: a log counts only when it has the whole shape that the chain gives it. A payment that the chain should
//! have logged, and has not, is noticed ([`Source::lacks`]): then this is the wrong source.

use alloy::primitives::{Address, B256, address, b256};
use landfall_chain::{Native, NativeSource, U256};

use crate::legs::{Movement, TRANSFER, address_of};
use crate::proof::encode::created_contract;
use crate::wire::{Kind, WireLog, WireReceipt, WireTx};

/// Who logs native movements. Both have the shape of a token, and listing one would count everything twice.
pub(crate) const CHAIN_LOGS: [Address; 2] = [POLYGON_POL, SYSTEM];
/// Where Polygon's POL lives as a contract, and whom bor lets log its movements.
pub(crate) const POLYGON_POL: Address = address!("0000000000000000000000000000000000001010");
/// Whom EIP-7708 lets log them.
pub(crate) const SYSTEM: Address = address!("fffffffffffffffffffffffffffffffffffffffe");

/// keccak256("LogTransfer(address,address,address,uint256,uint256,uint256,uint256,uint256)").
pub(crate) const LOG_TRANSFER: B256 = b256!("e6497e3ee548a3372136af2fcb0696db31fc6cf20260707645068bd3fe97f3c4");
/// The amount, and the balances of both sides before and after it.
const LOG_TRANSFER_BYTES: usize = 5 * 32;

/// What shows native movements in one block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// Each transaction shows its own value. What moves inside of it is for traces, or not seen at all.
    OwnValues,
    /// Polygon's `LogTransfer` shows everything but self-destructions.
    LogTransfers,
    /// The `Transfer` of EIP-7708 shows everything but payments to oneself.
    SystemLogs,
}

impl Source {
    pub(crate) fn of(native: Native, number: u64) -> Self {
        match native.source {
            // Inclusive: with 100, block 100 is the first.
            _ if native.eip7708_from.is_some_and(|from| number >= from) => Source::SystemLogs,
            NativeSource::LogTransfer => Source::LogTransfers,
            NativeSource::TopLevel | NativeSource::Trace => Source::OwnValues,
        }
    }

    /// The movement that a log of a successful transaction reports.
    pub(crate) fn movement(self, log: &WireLog<'_>) -> Option<Movement> {
        match self {
            Source::OwnValues => None,
            Source::LogTransfers => log_transfer(log),
            Source::SystemLogs => system_log(log),
        }
    }

    /// Whether a successful transaction shows a movement that is missing in the chain's logs. Only what the roots
    /// cover is compared: a lie about the signer must not look like a chain with other rules.
    pub(crate) fn lacks(self, own: &Movement, receipt: &WireReceipt<'_>) -> bool {
        let reports =
            |log| self.movement(log).is_some_and(|it| (it.recipient, it.amount) == (own.recipient, own.amount));
        let moves = !own.amount.is_zero() && own.sender != own.recipient;
        self != Source::OwnValues && moves && !receipt.logs.iter().any(reports)
    }
}

/// A transaction's own value, zero or not, whether it succeeded or not.
pub(crate) fn own_value(kind: Kind, wire: &WireTx<'_>, receipt: &WireReceipt<'_>) -> Option<Movement> {
    // The receipt's `contractAddress` is in no root; the address follows from the signer and a proved nonce.
    let nonce = match kind {
        Kind::Legacy | Kind::AccessList | Kind::DynamicFee | Kind::Blob | Kind::SetCode => Some(wire.nonce),
        // Proved since Canyon. Before, value sent with a creation is not credited: nobody watches such an address.
        Kind::Deposit => receipt.deposit_receipt_version.and(receipt.deposit_nonce),
        // Its value is in no root and has no meaning.
        Kind::StateSync => return None,
    };
    let recipient = match wire.to {
        Some(to) => to.into(),
        None => created_contract(&wire.from, nonce?.0),
    };
    Some(Movement::native(wire.from.into(), recipient, wire.value.0))
}

/// The contract at the same address may log a `LogTransfer` of another token too; the first topic differs.
fn log_transfer(log: &WireLog<'_>) -> Option<Movement> {
    let [LOG_TRANSFER, token, sender, recipient] = log.topics.as_slice() else { return None };
    if log.address != POLYGON_POL || *token != POLYGON_POL.into_word() {
        return None;
    }
    let words = log.data.to_array::<LOG_TRANSFER_BYTES>()?;
    let amount = U256::from_be_bytes(*words.first_chunk::<32>()?);
    Some(Movement::native(address_of(sender)?, address_of(recipient)?, amount))
}

fn system_log(log: &WireLog<'_>) -> Option<Movement> {
    let [TRANSFER, sender, recipient] = log.topics.as_slice() else { return None };
    if log.address != SYSTEM {
        return None;
    }
    let amount = U256::from_be_bytes(log.data.to_array::<32>()?);
    Some(Movement::native(address_of(sender)?, address_of(recipient)?, amount))
}
