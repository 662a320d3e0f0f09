//! MetaMask's delegation framework at the addresses that the network's file lists. The stage's second account owns the
//! manager and may pause it.

use landfall::sandbox::delegate;
use landfall_chain::{Address, Chain, Delegate, U256};
use serde_json::json;

use crate::contracts::{call, number, word};
use crate::stage::Stage;

/// Where everything stands.
pub(crate) struct Contracts {
    pub(crate) implementation: Address,
    pub(crate) manager: Address,
    pub(crate) ids: Address,
    pub(crate) times: Address,
    pub(crate) executions: Address,
    /// Who may pause the manager.
    pub(crate) owner: Address,
}

/// Places the contracts.
pub(crate) async fn place(stage: &Stage) -> Contracts {
    let listed = landfall_evm::network(Chain::EthereumTestnet).unwrap().delegates[0];
    let Delegate::Metamask { implementation, manager, ids, times, executions } = listed else {
        panic!("the network lists it")
    };
    let owner = stage.node.accounts().await.unwrap()[1];
    delegate::place(&stage.node, &listed, &owner).await.unwrap();
    Contracts { implementation, manager, ids, times, executions, owner }
}

impl Contracts {
    /// Sends a call from an account that is no payer of the stage's; mined with the next block.
    pub(crate) async fn call(&self, stage: &Stage, to: &Address, data: &str) -> String {
        let from = self.owner.to_string();
        let tx = json!([{ "from": from, "to": to.to_string(), "data": data, "gas": "0x100000" }]);
        stage.node.rpc("eth_sendTransaction", tx).await.unwrap().as_str().unwrap().to_owned()
    }

    /// Stops the manager, or lets it go on.
    pub(crate) async fn pause(&self, stage: &Stage, is_paused: bool) {
        let function = if is_paused { "pause()" } else { "unpause()" };
        self.call(stage, &self.manager, &call(function, &[])).await;
        stage.node.mine(1).await.unwrap();
    }

    /// `IdEnforcer.beforeHook`, which anybody may call: it logs a use with the caller as its manager.
    pub(crate) async fn forge(&self, stage: &Stage, payer: &Address, id: &[u8; 32]) -> String {
        let function = "beforeHook(bytes,bytes,bytes32,bytes,bytes32,address,address)";
        // terms, args and execution stand behind: 32 bytes, none, none.
        let head = [
            number(7 * 32),
            number(9 * 32),
            number(0),
            number(10 * 32),
            number(0),
            word(payer),
            word(&self.owner),
            number(32),
            U256::from_be_bytes(*id),
            number(0),
            number(0),
        ];
        self.call(stage, &self.ids, &call(function, &head)).await
    }

    /// Whether the manager used an id of a wallet.
    pub(crate) async fn is_used(&self, stage: &Stage, wallet: &Address, id: &[u8; 32]) -> bool {
        let arguments = [word(&self.manager), word(wallet), U256::from_be_bytes(*id)];
        let data = call("getIsUsed(address,address,uint256)", &arguments);
        let asked = json!([{ "to": self.ids.to_string(), "data": data }, "latest"]);
        let answer = stage.node.rpc("eth_call", asked).await.unwrap();
        U256::from_str_radix(answer.as_str().unwrap().trim_start_matches("0x"), 16).unwrap() == U256::ONE
    }
}
