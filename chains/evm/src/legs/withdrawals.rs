//! Beacon withdrawals (EIP-4895): stakers' money that appears in a block without a transaction.
//!
//! Promises: only what the header's `withdrawalsRoot` commits to makes a leg; amounts come in gwei and leave in wei.
//! Not on the OP stack, where that field is the storage root of a contract (Isthmus) and nothing is ever withdrawn.

use landfall_chain::{Address, AssetId, AssetTransfer, SenderRule, TxId, TxLife, TxRef, U256};
use sha2::{Digest, Sha256};

use crate::proof::pieces::Pieces;
use crate::proof::rlp::Rlp;
use crate::proof::trie;
use crate::stack::Stack;
use crate::wire::{WireBlock, WireWithdrawal};

const WEI_PER_GWEI: u128 = 1_000_000_000;

/// The withdrawals of a block that can be proved and credited.
pub(crate) fn of_block<'b, T>(stack: Stack, block: &'b WireBlock<'_, T>) -> &'b [WireWithdrawal] {
    match stack {
        Stack::Ethereum | Stack::Polygon => block.withdrawals.as_deref().unwrap_or_default(),
        Stack::Op => &[],
    }
}

/// Whether they are those of the header. A missing list is an empty one: the root decides.
pub(crate) fn are_proved<T>(stack: Stack, block: &WireBlock<'_, T>) -> bool {
    let withdrawals = of_block(stack, block);
    match (stack, block.withdrawals_root) {
        (Stack::Op, _) => true,
        (Stack::Ethereum | Stack::Polygon, None) => withdrawals.is_empty(),
        (Stack::Ethereum | Stack::Polygon, Some(root)) => {
            let mut leaves = Pieces::default();
            withdrawals.iter().for_each(|withdrawal| leaves.push(|out| encode(withdrawal, out)));
            root == trie::root(&leaves)
        }
    }
}

fn encode(withdrawal: &WireWithdrawal, out: &mut Vec<u8>) {
    Rlp(out).list(|rlp| {
        rlp.number(withdrawal.index.0);
        rlp.number(withdrawal.validator_index.0);
        rlp.bytes(withdrawal.address.as_slice());
        rlp.number(withdrawal.amount.0);
    });
}

/// The leg of a proved withdrawal. Its sender is the zero address: the beacon chain has none.
pub(crate) fn leg(withdrawal: &WireWithdrawal) -> Option<AssetTransfer> {
    // 2^64 gwei are less than 2^94 wei.
    let amount = U256::from(u128::from(withdrawal.amount.0) * WEI_PER_GWEI);
    (!amount.is_zero()).then(|| AssetTransfer {
        tx: TxRef { id: id(withdrawal), life: TxLife::Block },
        asset: AssetId::Native,
        sender: Address::Evm([0; 20]),
        sender_rule: SenderRule::Reported,
        recipient: Address::Evm(withdrawal.address.into()),
        amount,
        nth: 0,
    })
}

/// `SHA-256(lp("withdrawal/v1") lp(index))`, where lp puts the length in front as 4 bytes, big endian. It stands for a
/// transaction hash, which a withdrawal does not have; the index is unique on its chain.
pub(crate) fn id(withdrawal: &WireWithdrawal) -> TxId {
    let mut hash = Sha256::new();
    hash.update(13_u32.to_be_bytes());
    hash.update(b"withdrawal/v1");
    hash.update(8_u32.to_be_bytes());
    hash.update(withdrawal.index.0.to_be_bytes());
    TxId::Evm(hash.finalize().into())
}
