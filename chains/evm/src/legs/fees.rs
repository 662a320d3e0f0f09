//! What the transactions of a proved block cost those who sent them.
//!
//! Execution: the gas used, which the receipts root covers, times the price that header and transaction say. Failed
//! transactions pay as well. Deposits of the OP stack (0x7e) and state-syncs (0x7f) pay nothing.
//! No root covers two parts, which are fields of the receipt:
//! - the price of a blob (its amount of gas follows from the transaction)
//! - on the OP stack, the fee for L1 and the parameters of the operator's fee
//!
//! They are what one node reports: no deposit ever depends on them.
//! Promises: checked integers. A fee is left out, and never guessed, if a part of it is missing, cannot be read, or
//! contradicts what is proved. The payer is the stated signer, who is proved as `signer` says.

use landfall_chain::{Address, Fee, TxLife, U256};

use crate::hex::{Amount, Quantity, Unproved};
use crate::legs::reference;
use crate::stack::Stack;
use crate::wire::{Kind, WireBlock, WireReceipt, WireTx};

/// EIP-4844: `GAS_PER_BLOB`.
const GAS_PER_BLOB: u64 = 131_072;
/// Isthmus (`specs/protocol/isthmus/exec-engine.md`): the operator's scalar is in millionths of a wei.
const ISTHMUS_DIVISOR: U256 = U256::from_limbs([1_000_000, 0, 0, 0]);
/// Jovian (`specs/protocol/jovian/exec-engine.md`): it is in hundreds of wei.
const JOVIAN_FACTOR: U256 = U256::from_limbs([100, 0, 0, 0]);
/// The header's extra data since Jovian: a version, 8 bytes of EIP-1559 parameters, 8 bytes of minimal base fee.
const JOVIAN_EXTRA_BYTES: usize = 17;
const JOVIAN_EXTRA_VERSION: u8 = 1;

/// What is the same for all transactions of a block.
struct Prices {
    stack: Stack,
    base_fee: Option<U256>,
    is_jovian: bool,
}

/// The fees of all transactions that paid one, in order.
pub(crate) fn of_block(stack: Stack, block: &WireBlock<'_, Vec<WireTx<'_>>>, receipts: &[WireReceipt<'_>]) -> Vec<Fee> {
    let prices = Prices { stack, base_fee: block.base_fee_per_gas.map(|fee| fee.0), is_jovian: is_jovian(block) };
    let mut gas_before = 0_u64;
    let mut fees = Vec::with_capacity(receipts.len());
    for (tx, receipt) in block.transactions.iter().zip(receipts) {
        let gas = receipt.cumulative_gas_used.0.checked_sub(gas_before);
        gas_before = receipt.cumulative_gas_used.0;
        let fee = Kind::parse(tx.kind, stack).ok().zip(gas).and_then(|(kind, gas)| prices.fee(kind, tx, receipt, gas));
        fees.extend(fee.filter(|fee| !fee.amount.is_zero()));
    }
    fees
}

/// To whom a proved header says that the fees go. Polygon's names nobody: there the fees go to the validator who
/// sealed it.
pub(crate) fn recipient<T>(stack: Stack, block: &WireBlock<'_, T>) -> Option<Address> {
    (stack != Stack::Polygon).then(|| Address::Evm(block.miner.into()))
}

fn is_jovian<T>(block: &WireBlock<'_, T>) -> bool {
    block.extra_data.len() == JOVIAN_EXTRA_BYTES && block.extra_data.first_byte() == Some(JOVIAN_EXTRA_VERSION)
}

impl Prices {
    fn fee(&self, kind: Kind, tx: &WireTx<'_>, receipt: &WireReceipt<'_>, gas: u64) -> Option<Fee> {
        let reference = reference(kind, tx);
        let TxLife::Nonce { signer: payer, .. } = reference.life else { return None };
        let execution = self.gas_price(kind, tx)?.checked_mul(U256::from(gas))?;
        let blobs = if kind == Kind::Blob { blob_fee(tx, receipt)? } else { U256::ZERO };
        let rollup = if self.stack == Stack::Op { self.rollup_fee(receipt, gas)? } else { U256::ZERO };
        let amount = execution.checked_add(blobs)?.checked_add(rollup)?;
        // In fields that no root covers a node may report more or less than it was.
        let proved = kind != Kind::Blob && self.stack != Stack::Op;
        Some(Fee { tx: reference, payer, amount, outlay: 0, proved })
    }

    fn gas_price(&self, kind: Kind, tx: &WireTx<'_>) -> Option<U256> {
        match kind {
            Kind::Legacy | Kind::AccessList => tx.gas_price.map(|price| price.0),
            Kind::DynamicFee | Kind::Blob | Kind::SetCode => {
                let most = tx.max_fee_per_gas?.0;
                // A tip that would overflow is more than any maximum.
                let wanted = self.base_fee?.saturating_add(tx.max_priority_fee_per_gas?.0);
                Some(most.min(wanted))
            }
            Kind::Deposit | Kind::StateSync => None,
        }
    }

    /// What the OP stack takes on top: for L1, and since Isthmus for the operator. Receipts leave the operator's
    /// parameters out while both are zero (op-geth `core/types/receipt.go`).
    fn rollup_fee(&self, receipt: &WireReceipt<'_>, gas: u64) -> Option<U256> {
        let or_zero = |amount| match amount {
            Unproved::Absent => Some(U256::ZERO),
            Unproved::Read(Amount(amount)) => Some(amount),
            Unproved::Unreadable => None,
        };
        let scaled = or_zero(receipt.operator_fee_scalar)?.checked_mul(U256::from(gas))?;
        let scaled = if self.is_jovian { scaled.checked_mul(JOVIAN_FACTOR)? } else { scaled / ISTHMUS_DIVISOR };
        let operator = scaled.checked_add(or_zero(receipt.operator_fee_constant)?)?;
        let Unproved::Read(Amount(l1)) = receipt.l1_fee else { return None };
        l1.checked_add(operator)
    }
}

fn blob_fee(tx: &WireTx<'_>, receipt: &WireReceipt<'_>) -> Option<U256> {
    let blobs = u64::try_from(tx.blob_versioned_hashes.as_ref()?.len()).ok()?;
    let gas = blobs.checked_mul(GAS_PER_BLOB)?;
    let Unproved::Read(Amount(price)) = receipt.blob_gas_price else { return None };
    (receipt.blob_gas_used == Unproved::Read(Quantity(gas))).then(|| price.checked_mul(U256::from(gas)))?
}
