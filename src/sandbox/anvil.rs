//! A private anvil: a real Ethereum node that mines and reorganises on command.
//!
//! Promises: it listens on 127.0.0.1 on a port that was free. It ends with its owner unless it is to be kept. Every
//! call ends within a minute. Blocks come only on command, and a block is final when two others stand on it.
//!
//! It knows no token: `token` writes the calls. Retries nothing.

use std::path::PathBuf;
use std::process::Command;

use landfall_chain::{Address, AssetId, BlockHash, BlockRef, Family, Network, Route, TxId, U256};
use serde_json::{Value, json};

use crate::sandbox::node::{Launch, Node, NodeError};
use crate::sandbox::token;

/// What anvil prints before the address it listens on.
const LISTENING: &str = "Listening on 127.0.0.1:";
/// Enough for a few token transfers. Unused gas costs nothing.
const GAS: u64 = 500_000;
/// Far above the base fee of an idle chain, which begins at 1 gwei and falls.
const MAX_FEE_WEI: u64 = 100_000_000_000;
const PRIORITY_FEE_WEI: u64 = 1_000_000_000;

/// How a node is started.
#[derive(Clone, Debug)]
pub struct AnvilOptions {
    /// The program: a path, or a name that is searched on PATH.
    pub binary: PathBuf,
    pub chain_id: u64,
    /// Of the OP stack: it accepts deposit transactions (type 0x7e).
    pub op_stack: bool,
    /// Where its output goes; overwritten.
    pub log: PathBuf,
    /// It outlives its owner, even one that is ended at a terminal by Ctrl-C.
    pub keep: bool,
}

/// A running node.
#[derive(Debug)]
pub struct Anvil {
    node: Node,
}

/// A transaction that an unlocked account of the node signs. Two equal ones have the same hash; so one can be mined
/// again after a reorg.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TxRequest {
    pub from: Address,
    pub nonce: u64,
    pub to: Address,
    pub value: U256,
    /// The call, as hexadecimal digits with 0x; `0x` for none.
    pub data: String,
}

impl Anvil {
    /// Starts a node and waits until it answers.
    ///
    /// # Errors
    /// See [`NodeError`]; what was started is ended.
    pub async fn start(options: &AnvilOptions) -> Result<Self, NodeError> {
        let mut command = Command::new(&options.binary);
        command
            .args(["--host", "127.0.0.1", "--port", "0", "--chain-id", &options.chain_id.to_string()])
            // Then the final block is the latest one minus two. Transactions are mined in the order of arrival, the
            // first one first.
            .args(["--slots-in-an-epoch", "1", "--no-mining", "--order", "fifo"]);
        if options.op_stack {
            command.arg("--optimism");
        }
        let launch = Launch { name: "anvil", command, probe: "eth_chainId", log: &options.log, keep: options.keep };
        let url = |line: &str| {
            let port: u16 = line.strip_prefix(LISTENING)?.trim().parse().ok()?;
            Some(format!("http://127.0.0.1:{port}"))
        };
        Ok(Anvil { node: Node::start(launch, url).await? })
    }

    /// Where it answers JSON-RPC.
    pub fn url(&self) -> &str {
        self.node.url()
    }

    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.node.pid()
    }

    /// One call.
    ///
    /// # Errors
    /// If the node cannot be reached or returns an error, with the node's own message.
    pub async fn rpc(&self, method: &str, params: Value) -> Result<Value, NodeError> {
        self.node.rpc(method, params).await
    }

    /// The accounts that it signs for, each with 10,000 of the native currency.
    ///
    /// # Errors
    /// As [`Anvil::rpc`].
    pub async fn accounts(&self) -> Result<Vec<Address>, NodeError> {
        let method = "eth_accounts";
        let accounts = self.rpc(method, json!([])).await?;
        let accounts = accounts.as_array().into_iter().flatten();
        accounts.map(|account| self.node.read(method, account, |text| Address::parse(Family::Evm, text).ok())).collect()
    }

    /// Deploys each token that `network` lists, with the name that its signatures are made for; a token without a
    /// contract would be an incident.
    ///
    /// # Errors
    /// As [`Anvil::rpc`].
    pub async fn place_tokens(&self, network: &Network) -> Result<(), NodeError> {
        for asset in &network.assets {
            if let AssetId::Token(contract) = &asset.id {
                self.set_code(contract, &token::runtime_code()).await?;
                if let Some(Route::Erc3009 { name, .. }) = &asset.route {
                    let slot = json!([contract.to_string(), token::NAME_SLOT, token::name_word(name)]);
                    self.rpc("anvil_setStorageAt", slot).await?;
                }
            }
        }
        Ok(())
    }

    /// Makes `code` the contract at `address`, from the next block on.
    ///
    /// # Errors
    /// As [`Anvil::rpc`].
    pub async fn set_code(&self, address: &Address, code: &str) -> Result<(), NodeError> {
        self.rpc("anvil_setCode", json!([address.to_string(), code])).await.map(drop)
    }

    /// Signs a transaction and puts it into the pool; the next block holds it.
    ///
    /// # Errors
    /// As [`Anvil::rpc`].
    pub async fn send(&self, tx: &TxRequest) -> Result<TxId, NodeError> {
        let method = "eth_sendTransaction";
        let request = json!({
            "from": tx.from.to_string(),
            "nonce": format!("{:#x}", tx.nonce),
            "to": tx.to.to_string(),
            "value": format!("{:#x}", tx.value),
            "data": tx.data,
            "gas": format!("{GAS:#x}"),
            "maxFeePerGas": format!("{MAX_FEE_WEI:#x}"),
            "maxPriorityFeePerGas": format!("{PRIORITY_FEE_WEI:#x}"),
        });
        let hash = self.rpc(method, json!([request])).await?;
        self.node.read(method, &hash, hash_bytes).map(TxId::Evm)
    }

    /// Mines `count` blocks; the first takes in what the pool holds.
    ///
    /// # Errors
    /// As [`Anvil::rpc`].
    pub async fn mine(&self, count: u64) -> Result<(), NodeError> {
        for _ in 0..count {
            self.rpc("evm_mine", json!([])).await?;
        }
        Ok(())
    }

    /// Its clock, which its blocks' times come from, goes so far ahead.
    ///
    /// # Errors
    /// As [`Anvil::rpc`].
    pub async fn put_forward(&self, secs: u64) -> Result<(), NodeError> {
        self.rpc("evm_increaseTime", json!([secs])).await.map(drop)
    }

    /// How many transactions wait in its pool.
    ///
    /// # Errors
    /// As [`Anvil::rpc`].
    pub async fn pooled(&self) -> Result<U256, NodeError> {
        let method = "txpool_status";
        self.node.read(method, &self.rpc(method, json!([])).await?["pending"], quantity)
    }

    /// The time of a block, in seconds since 1970.
    ///
    /// # Errors
    /// As [`Anvil::rpc`], and when there is none.
    pub async fn time_of(&self, block: &BlockRef) -> Result<U256, NodeError> {
        let method = "eth_getBlockByHash";
        let shown = self.rpc(method, json!([format!("0x{}", hex::encode(block.hash.0)), false])).await?;
        self.node.read(method, &shown["timestamp"], quantity)
    }

    /// Whether `owner`'s one-time key is used at `token`, at this block.
    ///
    /// # Errors
    /// As [`Anvil::rpc`], and when there is no token.
    pub async fn is_used(
        &self,
        token: &Address,
        owner: &Address,
        key: &[u8; 24],
        at: &BlockRef,
    ) -> Result<bool, NodeError> {
        let method = "eth_call";
        let call = json!({ "to": token.to_string(), "data": token::authorization_state(owner, key) });
        let at = format!("{:#x}", at.number);
        Ok(!self.node.read(method, &self.rpc(method, json!([call, at])).await?, quantity)?.is_zero())
    }

    /// From now on a block comes every `secs` seconds by itself.
    ///
    /// # Errors
    /// As [`Anvil::rpc`].
    pub async fn mine_every(&self, secs: u64) -> Result<(), NodeError> {
        self.rpc("evm_setIntervalMining", json!([secs])).await.map(drop)
    }

    /// Replaces the newest `depth` blocks by as many empty ones. The node forgets the transactions that were in them.
    ///
    /// # Errors
    /// As [`Anvil::rpc`].
    pub async fn reorg(&self, depth: u64) -> Result<(), NodeError> {
        self.rpc("anvil_reorg", json!([depth, []])).await.map(drop)
    }

    /// The block that `tag` names: `latest`, `finalized`, or a number in hexadecimal digits with 0x.
    ///
    /// # Errors
    /// As [`Anvil::rpc`], and when there is none.
    pub async fn block(&self, tag: &str) -> Result<BlockRef, NodeError> {
        let method = "eth_getBlockByNumber";
        let block = self.rpc(method, json!([tag, false])).await?;
        let number = self.node.read(method, &block["number"], |text| quantity(text)?.try_into().ok())?;
        let hash = self.node.read(method, &block["hash"], hash_bytes).map(BlockHash)?;
        Ok(BlockRef { number, hash })
    }

    /// What `address` has of the native currency, in base units, at the newest block.
    ///
    /// # Errors
    /// As [`Anvil::rpc`].
    pub async fn balance(&self, address: &Address) -> Result<U256, NodeError> {
        let method = "eth_getBalance";
        self.node.read(method, &self.rpc(method, json!([address.to_string(), "latest"])).await?, quantity)
    }

    /// What `address` has of `token`, in base units, at the newest block.
    ///
    /// # Errors
    /// As [`Anvil::rpc`], and when there is no token.
    pub async fn balance_of(&self, token: &Address, address: &Address) -> Result<U256, NodeError> {
        let method = "eth_call";
        let call = json!({ "to": token.to_string(), "data": token::balance_of(address) });
        self.node.read(method, &self.rpc(method, json!([call, "latest"])).await?, quantity)
    }
}

fn quantity(text: &str) -> Option<U256> {
    U256::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn hash_bytes(text: &str) -> Option<[u8; 32]> {
    hex::decode(text).ok()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_and_hashes_are_read_as_nodes_write_them() {
        assert_eq!(quantity("0x0"), Some(U256::ZERO));
        assert_eq!(quantity("0xaa36a7"), Some(U256::from(11_155_111)));
        assert_eq!(quantity(&format!("0x{}", "f".repeat(64))), Some(U256::MAX));
        assert_eq!(hash_bytes(&format!("0x{}", "11".repeat(32))), Some([0x11; 32]));
        for bad in ["", "12", "0xg", &format!("0x1{}", "0".repeat(64))] {
            assert_eq!(quantity(bad), None, "{bad}");
            assert_eq!(hash_bytes(bad), None, "{bad}");
        }
    }

    #[tokio::test]
    async fn a_node_that_is_missing_says_what_installs_it() {
        let folder = tempfile::tempdir().unwrap();
        let (binary, log) = (folder.path().join("anvil"), folder.path().join("log"));
        let error =
            Anvil::start(&AnvilOptions { binary, chain_id: 1, op_stack: false, log, keep: false }).await.unwrap_err();
        assert!(error.to_string().contains("scripts/sandbox installs anvil"), "{error}");
    }

    #[tokio::test]
    async fn a_node_that_ends_at_its_start_is_reported_at_once_with_its_last_words() {
        let folder = tempfile::tempdir().unwrap();
        // `cat` takes none of the arguments.
        let options = AnvilOptions {
            binary: "cat".into(),
            chain_id: 1,
            op_stack: false,
            log: folder.path().join("log"),
            keep: false,
        };
        let error = Anvil::start(&options).await.unwrap_err().to_string();
        assert!(error.starts_with("anvil ended at its start; its last words: \""), "{error}");
        assert!(!error.ends_with("\"\""), "{error}");
    }
}
