//! The contracts of `nodes/contracts` beside the token: where they stand and how they are called.

use landfall::sandbox::anvil::Anvil;
use landfall_chain::{Address, U256};
use serde_json::Value;

/// Pays `1000 + block.number` of its tokens.
pub(crate) const PAY_BY_BLOCK: Address = Address::Evm([0xc1; 20]);
/// Pays an amount of its tokens, and reverts in blocks with odd numbers.
pub(crate) const REVERT_ON_ODD_BLOCK: Address = Address::Evm([0xc2; 20]);
/// Emits logs that mean nothing.
pub(crate) const NOISE: Address = Address::Evm([0xc3; 20]);

const COMPILED: [(Address, &str); 3] = [
    (PAY_BY_BLOCK, include_str!("../../nodes/contracts/PayByBlock.json")),
    (REVERT_ON_ODD_BLOCK, include_str!("../../nodes/contracts/RevertOnOddBlock.json")),
    (NOISE, include_str!("../../nodes/contracts/Noise.json")),
];

/// Places the contracts.
pub(crate) async fn place(node: &Anvil) {
    for (address, compiled) in COMPILED {
        let compiled: Value = serde_json::from_str(compiled).unwrap();
        node.set_code(&address, compiled["runtime"].as_str().unwrap()).await.unwrap();
    }
}

/// `pay(address,address)` of PayByBlock.
pub(crate) fn pay_by_block(token: &Address, to: &Address) -> String {
    format!("0x{}{}{}", selector("pay(address,address)"), word(token), word(to))
}

/// `pay(address,address,uint256)` of RevertOnOddBlock.
pub(crate) fn pay_unless_odd(token: &Address, to: &Address, amount: u64) -> String {
    let amount = hex::encode(U256::from(amount).to_be_bytes::<32>());
    format!("0x{}{}{}{amount}", selector("pay(address,address,uint256)"), word(token), word(to))
}

/// `shout(uint256)` of Noise.
pub(crate) fn shout(logs: u64) -> String {
    format!("0x{}{}", selector("shout(uint256)"), hex::encode(U256::from(logs).to_be_bytes::<32>()))
}

fn selector(signature: &str) -> String {
    use sha3::{Digest, Keccak256};
    hex::encode(&Keccak256::digest(signature.as_bytes())[..4])
}

fn word(address: &Address) -> String {
    format!("{:0>64}", hex::encode(address.as_bytes()))
}
