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
/// Moves value from within, from deep within, by a frame that is undone, with borrowed code, and for somebody else.
pub(crate) const ROUTER: Address = Address::Evm([0xc4; 20]);
/// Moves value in every way that a trace can show, in one transaction.
pub(crate) const INSIDE: Address = Address::Evm([0xc5; 20]);
/// Says what it likes; a configuration may list it.
pub(crate) const ODD_TOKEN: Address = Address::Evm([0xc6; 20]);
/// The same code, listed nowhere: keeps a hundredth of what it announces.
pub(crate) const FEE_TOKEN: Address = Address::Evm([0xc7; 20]);
/// The test chains' USDC once more, at an address that is not USDC's.
pub(crate) const FAKE_USDC: Address = Address::Evm([0xc8; 20]);
/// A token of which nothing has been minted; a configuration may list it.
pub(crate) const BIG_TOKEN: Address = Address::Evm([0xc9; 20]);

const TOKEN: &str = include_str!("../../nodes/contracts/Token.json");
const ODD: &str = include_str!("../../nodes/contracts/OddToken.json");

const COMPILED: [(Address, &str); 9] = [
    (PAY_BY_BLOCK, include_str!("../../nodes/contracts/PayByBlock.json")),
    (REVERT_ON_ODD_BLOCK, include_str!("../../nodes/contracts/RevertOnOddBlock.json")),
    (NOISE, include_str!("../../nodes/contracts/Noise.json")),
    (ROUTER, include_str!("../../nodes/contracts/Router.json")),
    (INSIDE, include_str!("../../nodes/contracts/Inside.json")),
    (ODD_TOKEN, ODD),
    (FEE_TOKEN, ODD),
    (FAKE_USDC, TOKEN),
    (BIG_TOKEN, TOKEN),
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
    call("pay(address,address)", &[word(token), word(to)])
}

/// `pay(address,address,uint256)` of RevertOnOddBlock.
pub(crate) fn pay_unless_odd(token: &Address, to: &Address, amount: u64) -> String {
    call("pay(address,address,uint256)", &[word(token), word(to), number(amount)])
}

/// `shout(uint256)` of Noise.
pub(crate) fn shout(logs: u64) -> String {
    call("shout(uint256)", &[number(logs)])
}

/// The bytes of a call whose arguments are all of one word.
pub(crate) fn call(signature: &str, arguments: &[U256]) -> String {
    use sha3::{Digest, Keccak256};
    let selector = hex::encode(&Keccak256::digest(signature.as_bytes())[..4]);
    let words: String = arguments.iter().map(|argument| hex::encode(argument.to_be_bytes::<32>())).collect();
    format!("0x{selector}{words}")
}

/// The ABI's address.
pub(crate) fn word(address: &Address) -> U256 {
    U256::from_be_slice(address.as_bytes())
}

/// The ABI's uint256.
pub(crate) fn number(number: u64) -> U256 {
    U256::from(number)
}
