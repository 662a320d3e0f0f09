//! The real USDC: Circle's FiatTokenV2_2 behind its proxy, where the stage's network lists USDC.
//!
//! The stage's payer has every role: it makes money, pauses and blacklists. `sandbox::token` writes the calls that both
//! tokens have.

use landfall_chain::{Address, U256};
use serde_json::{Value, json};

use crate::contracts::{call, number, word};
use crate::stage::Stage;

/// The library that checks signatures, which the implementation calls.
const SIGNATURE_CHECKER: Address = Address::Evm([0xca; 20]);
/// The code behind the proxy.
const IMPLEMENTATION: Address = Address::Evm([0xcb; 20]);
/// Who may replace the implementation, and may not call the token. Not the zero address, from which `eth_call` calls.
const ADMIN: Address = Address::Evm([0xcc; 20]);
/// Keccak-256 of `org.zeppelinos.proxy.implementation` and of `org.zeppelinos.proxy.admin`: the proxy's own storage
/// (`UpgradeabilityProxy.sol`, `AdminUpgradeabilityProxy.sol`).
const IMPLEMENTATION_SLOT: &str = "0x7050c9e0f4ca769c69bd3a8ef740bc37934f8e2c036e5a723fd8ee048ed3f8c3";
const ADMIN_SLOT: &str = "0x10d6a54a4754c8869d6886b5f5d7fbfa5b4522237ea5c60d11bc4e7a1ff9390b";

/// Replaces the stage's token by the real one, whose name in its EIP-712 domain is `name`, and whose version is 2.
pub(crate) async fn place(stage: &mut Stage, name: &str) {
    let checker = compiled(include_str!("../../nodes/contracts/SignatureChecker.json"));
    let proxy = compiled(include_str!("../../nodes/contracts/FiatTokenProxy.json"));
    let token = compiled(include_str!("../../nodes/contracts/FiatTokenV2_2.json"));
    let (link, library) =
        (token["links"]["SignatureChecker"].as_str().unwrap(), hex::encode(SIGNATURE_CHECKER.as_bytes()));
    let linked = runtime(&token).replace(link, &library);
    stage.node.set_code(&SIGNATURE_CHECKER, runtime(&checker)).await.unwrap();
    stage.node.set_code(&IMPLEMENTATION, &linked).await.unwrap();
    stage.node.set_code(&stage.token, runtime(&proxy)).await.unwrap();
    for (slot, address) in [(IMPLEMENTATION_SLOT, IMPLEMENTATION), (ADMIN_SLOT, ADMIN)] {
        let stored = format!("{:#066x}", word(&address));
        stage.node.rpc("anvil_setStorageAt", json!([stage.token.to_string(), slot, stored])).await.unwrap();
    }
    let (token, owner) = (stage.token, word(&stage.payer));
    for data in initializations(name, owner) {
        stage.call(token, data).await;
    }
    stage.node.mine(1).await.unwrap();
}

/// In this order, each once. The owner may mint without a limit that a test could meet.
fn initializations(name: &str, owner: U256) -> [String; 5] {
    let initialize = "initialize(string,string,string,uint8,address,address,address,address)";
    [
        call_with_texts(initialize, &[name, "USDC", "USD"], &[number(6), owner, owner, owner, owner]),
        call_with_texts("initializeV2(string)", &[name], &[]),
        call("initializeV2_1(address)", &[owner]),
        // An array without items is encoded as a text without letters.
        call_with_texts("initializeV2_2(address[],string)", &["", "USDC"], &[]),
        call("configureMinter(address,uint256)", &[owner, U256::MAX >> 1]),
    ]
}

/// The bytes of a call whose first arguments are texts of at most 32 bytes, and the others of one word.
fn call_with_texts(signature: &str, texts: &[&str], words: &[U256]) -> String {
    let (mut offsets, mut contents) = (Vec::new(), Vec::new());
    for text in texts {
        offsets.push(U256::from(32 * (texts.len() + words.len() + contents.len())));
        contents.push(U256::from(text.len()));
        if !text.is_empty() {
            let mut letters = [0; 32];
            letters[..text.len()].copy_from_slice(text.as_bytes());
            contents.push(U256::from_be_bytes(letters));
        }
    }
    call(signature, &[&offsets, words, &contents].concat())
}

fn compiled(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn runtime(compiled: &Value) -> &str {
    compiled["runtime"].as_str().unwrap()
}
