//! What moves, and one movement of it.

use std::collections::HashMap;
use std::fmt;

use crate::{Address, Payer, SenderRule, TxId, TxRef, U256};

/// An asset's identity on its chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AssetId {
    /// The native currency.
    Native,
    /// A token: the contract on EVM, the mint on Solana.
    Token(Address),
}

/// A stored asset id that cannot be read back.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a stored asset id of {0} bytes with an unknown form")]
pub struct AssetIdError(pub usize);

impl AssetId {
    const NATIVE: u8 = 0;
    const EVM_TOKEN: u8 = 1;
    const SOLANA_TOKEN: u8 = 2;

    /// Its form in a deposit's identity: `0x00` | `0x01` and the 20-byte contract | `0x02` and the 32-byte mint.
    pub fn to_bytes(self) -> Vec<u8> {
        match self {
            AssetId::Native => vec![AssetId::NATIVE],
            AssetId::Token(Address::Evm(contract)) => [&[AssetId::EVM_TOKEN], contract.as_slice()].concat(),
            AssetId::Token(Address::Solana(mint)) => [&[AssetId::SOLANA_TOKEN], mint.as_slice()].concat(),
        }
    }

    /// Reads [`AssetId::to_bytes`].
    ///
    /// # Errors
    /// A tag or length that `to_bytes` does not write.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, AssetIdError> {
        let unknown = || AssetIdError(bytes.len());
        let (tag, rest) = bytes.split_first().ok_or_else(unknown)?;
        match (*tag, rest.len()) {
            (AssetId::NATIVE, 0) => Ok(AssetId::Native),
            (AssetId::EVM_TOKEN, 20) | (AssetId::SOLANA_TOKEN, 32) => {
                Address::from_bytes(rest).map(AssetId::Token).map_err(|_| unknown())
            }
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for AssetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AssetId::Native => f.write_str("native"),
            AssetId::Token(address) => address.fmt(f),
        }
    }
}

/// One movement of value to one address, as an adapter hands it over: the leg, its sender and its transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AssetTransfer {
    /// The transaction it happened in.
    pub tx: TxRef,
    /// What moved.
    pub asset: AssetId,
    /// Who paid: the token's sender, or the signer for native value.
    pub sender: Address,
    /// How the sender is known.
    pub sender_rule: SenderRule,
    /// Who received.
    pub recipient: Address,
    /// How much, in base units; never zero.
    pub amount: U256,
    /// 0, 1, 2.. among the transaction's legs with equal asset, recipient and amount, in execution order.
    pub nth: u32,
}

impl AssetTransfer {
    /// Who paid, and how that is known.
    pub fn payer(&self) -> Payer {
        Payer { sender: self.sender, rule: self.sender_rule }
    }
}

/// Sets `nth` of every transfer. `transfers` stands in execution order and holds *all* creditable legs of each
/// transaction in it: counting only the watched ones would let ids depend on who was watched.
pub fn number_equal_legs(transfers: &mut [AssetTransfer]) {
    let mut seen: HashMap<(TxId, AssetId, Address, U256), u32> = HashMap::with_capacity(transfers.len());
    for transfer in transfers {
        let next = seen.entry((transfer.tx.id, transfer.asset, transfer.recipient, transfer.amount)).or_default();
        transfer.nth = *next;
        *next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TxLife;

    fn transfer(tx: u8, recipient: u8, amount: u64) -> AssetTransfer {
        let sender = Address::Evm([1; 20]);
        AssetTransfer {
            tx: TxRef { id: TxId::Evm([tx; 32]), life: TxLife::Nonce { signer: sender, nonce: 0 } },
            asset: AssetId::Native,
            sender,
            sender_rule: SenderRule::Reported,
            recipient: Address::Evm([recipient; 20]),
            amount: U256::from(amount),
            nth: 0,
        }
    }

    #[test]
    fn equal_legs_of_one_transaction_are_counted_and_others_are_not() {
        let mut transfers = [
            transfer(1, 1, 5),
            transfer(1, 1, 5),
            transfer(1, 2, 5),
            transfer(1, 1, 6),
            transfer(2, 1, 5),
            transfer(1, 1, 5),
        ];
        number_equal_legs(&mut transfers);
        assert_eq!(transfers.map(|t| t.nth), [0, 1, 0, 0, 0, 2]);
    }

    #[test]
    fn asset_ids_survive_storage() {
        for id in [AssetId::Native, AssetId::Token(Address::Evm([4; 20])), AssetId::Token(Address::Solana([5; 32]))] {
            assert_eq!(AssetId::from_bytes(&id.to_bytes()), Ok(id));
        }
        for bytes in [&[][..], &[0, 0], &[1; 20], &[2; 21], &[3; 21]] {
            assert_eq!(AssetId::from_bytes(bytes), Err(AssetIdError(bytes.len())));
        }
    }
}
