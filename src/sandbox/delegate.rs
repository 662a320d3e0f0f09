//! Delegates on a private anvil: MetaMask's delegation framework, as npm has compiled it, at the addresses that a network
//! lists, and Landfall's own.
//!
//! The constructors make the code at other addresses, and it is copied from there. The code uses its own address only
//! for the domain, which it then makes anew (OpenZeppelin's `EIP712`). It also serves the tests on a real node.

use anyhow::{Context, ensure};
use landfall_chain::{Address, Delegate};
use serde_json::{Value, json};

use crate::sandbox::anvil::Anvil;

/// EntryPoint 0.7, which the implementation is built with.
const ENTRY_POINT: &str = "0000000000000000000000000000000071727de22e5e9d8baf0edac6f37da032";
const MANAGER: &str = include_str!("../../nodes/contracts/DelegationManager.json");
const IMPLEMENTATION: &str = include_str!("../../nodes/contracts/EIP7702StatelessDeleGator.json");
const IDS: &str = include_str!("../../nodes/contracts/IdEnforcer.json");
const TIMES: &str = include_str!("../../nodes/contracts/TimestampEnforcer.json");
const OWN: &str = include_str!("../../nodes/contracts/OwnDelegate.json");
const EXECUTIONS: &str = include_str!("../../nodes/contracts/ExactExecutionEnforcer.json");
/// `Ownable._owner`, which the constructor wrote elsewhere.
const OWNER_SLOT: &str = "0x0000000000000000000000000000000000000000000000000000000000000000";

/// Places the contracts, in a few blocks. `owner`, an account that the node signs for, may pause MetaMask's manager.
///
/// # Errors
/// If the node refuses.
pub async fn place(anvil: &Anvil, delegate: &Delegate, owner: &Address) -> anyhow::Result<()> {
    let (implementation, manager, ids, times, executions) = match delegate {
        Delegate::Metamask { implementation, manager, ids, times, executions } => {
            (implementation, manager, ids, times, executions)
        }
        // Its code is the same wherever it stands.
        Delegate::Own { implementation } => {
            let compiled: Value = serde_json::from_str(OWN)?;
            let code = compiled["runtime"].as_str().context("the compiler's output has the code")?;
            return Ok(anvil.set_code(implementation, code).await?);
        }
    };
    let of = |address: &Address| format!("{:0>64}", hex::encode(address.as_bytes()));
    let compiled = [
        (manager, MANAGER, of(owner)),
        (implementation, IMPLEMENTATION, format!("{}{ENTRY_POINT}", of(manager))),
        (ids, IDS, String::new()),
        (times, TIMES, String::new()),
        (executions, EXECUTIONS, String::new()),
    ];
    for (address, compiled, arguments) in compiled {
        let compiled: Value = serde_json::from_str(compiled)?;
        let creation = compiled["creation"].as_str().context("the compiler's output has the code")?;
        let code = created(anvil, owner, &format!("{creation}{arguments}")).await?;
        anvil.set_code(address, &code).await?;
    }
    anvil.rpc("anvil_setStorageAt", json!([manager.to_string(), OWNER_SLOT, format!("0x{}", of(owner))])).await?;
    Ok(())
}

/// The code that a constructor makes.
async fn created(anvil: &Anvil, from: &Address, creation: &str) -> anyhow::Result<String> {
    let tx = json!([{ "from": from.to_string(), "data": creation, "gas": "0xa00000" }]);
    let hash = anvil.rpc("eth_sendTransaction", tx).await?;
    anvil.mine(1).await?;
    let receipt = anvil.rpc("eth_getTransactionReceipt", json!([hash])).await?;
    ensure!(receipt["status"] == "0x1", "a contract of the delegate was not made: {receipt}");
    let code = anvil.rpc("eth_getCode", json!([receipt["contractAddress"], "latest"])).await?;
    Ok(code.as_str().context("the node reports code")?.to_owned())
}
