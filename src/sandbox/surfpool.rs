//! A private Solana cluster: surfpool, as `nodes/surfpool.mjs` starts it; that file says which parts of its chain it
//! corrects.
//!
//! Promises: it listens on 127.0.0.1. It ends with its owner unless it is to be kept. Every call ends within a minute.
//! Ten slots come each second, and a block is final when 31 slots stand on it. It has no reorgs. The script signs each
//! payment, so no SDK is named here.

use std::path::PathBuf;
use std::process::Command;

use landfall_chain::{Address, U256};
use serde_json::{Value, json};

use crate::sandbox::node::{Launch, Node, NodeError};

/// How a cluster is started.
#[derive(Clone, Debug)]
pub struct SurfpoolOptions {
    /// `nodes/surfpool.mjs`.
    pub script: PathBuf,
    /// Where its output goes; overwritten.
    pub log: PathBuf,
    /// It outlives its owner, even one that is ended at a terminal by Ctrl-C.
    pub keep: bool,
}

/// A running cluster.
#[derive(Debug)]
pub struct Surfpool {
    node: Node,
}

impl Surfpool {
    /// Starts a cluster and waits until it has a final block.
    ///
    /// # Errors
    /// See [`NodeError`]; what was started is ended.
    pub async fn start(options: &SurfpoolOptions) -> Result<Self, NodeError> {
        let mut command = Command::new("node");
        command.arg(&options.script);
        if options.keep {
            command.arg("--keep");
        }
        let launch = Launch { name: "surfpool", command, probe: "getHealth", log: &options.log, keep: options.keep };
        let url = |line: &str| Some(serde_json::from_str::<Value>(line).ok()?["url"].as_str()?.to_owned());
        Ok(Surfpool { node: Node::start(launch, url).await? })
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
    /// If the cluster cannot be reached or returns an error, with the cluster's own message.
    pub async fn rpc(&self, method: &str, params: Value) -> Result<Value, NodeError> {
        self.node.rpc(method, params).await
    }

    /// Its genesis hash, in base58: each cluster has its own.
    ///
    /// # Errors
    /// As [`Surfpool::rpc`].
    pub async fn genesis(&self) -> Result<String, NodeError> {
        let method = "getGenesisHash";
        self.node.read(method, &self.rpc(method, json!([])).await?, |text| Some(text.to_owned()))
    }

    /// Makes a token at `mint`, of which the payer has plenty.
    ///
    /// # Errors
    /// As [`Surfpool::rpc`].
    pub async fn make_token(&self, mint: &Address, decimals: u8) -> Result<(), NodeError> {
        self.rpc("landfall_mint", json!([mint.to_string(), decimals])).await.map(drop)
    }

    /// Pays SOL, or tokens to the owner's associated account; returns the transaction's signature.
    ///
    /// # Errors
    /// As [`Surfpool::rpc`].
    pub async fn pay(&self, to: &Address, amount: U256, mint: Option<&Address>) -> Result<String, NodeError> {
        let (to, amount) = (to.to_string(), amount.to_string());
        let params = match mint {
            Some(mint) => json!([to, amount, mint.to_string()]),
            None => json!([to, amount]),
        };
        let method = "landfall_pay";
        self.node.read(method, &self.rpc(method, params).await?, |text| Some(text.to_owned()))
    }

    /// How much SOL `owner` holds, in base units.
    ///
    /// # Errors
    /// As [`Surfpool::rpc`].
    pub async fn balance(&self, owner: &Address) -> Result<U256, NodeError> {
        let how = json!([owner.to_string(), { "commitment": "confirmed" }]);
        let method = "getBalance";
        let answer = self.rpc(method, how).await?;
        let lamports = answer["value"].as_u64();
        lamports.map(U256::from).ok_or_else(|| self.node.fault(method, format!("unexpected answer {answer}")))
    }

    /// What an account of so many bytes must hold at least, in base units.
    ///
    /// # Errors
    /// As [`Surfpool::rpc`].
    pub async fn rent(&self, bytes: u64) -> Result<U256, NodeError> {
        let method = "getMinimumBalanceForRentExemption";
        let answer = self.rpc(method, json!([bytes])).await?;
        answer.as_u64().map(U256::from).ok_or_else(|| self.node.fault(method, format!("unexpected answer {answer}")))
    }

    /// How much of `mint` `owner` holds, in base units, in all accounts.
    ///
    /// # Errors
    /// As [`Surfpool::rpc`], and an amount that is none.
    pub async fn balance_of(&self, mint: &Address, owner: &Address) -> Result<U256, NodeError> {
        let method = "getTokenAccountsByOwner";
        let how = json!({ "encoding": "jsonParsed", "commitment": "confirmed" });
        let answer = self.rpc(method, json!([owner.to_string(), { "mint": mint.to_string() }, how])).await?;
        let Some(accounts) = answer["value"].as_array() else {
            return Err(self.node.fault(method, format!("unexpected answer {answer}")));
        };
        let mut sum = U256::ZERO;
        for account in accounts {
            let amount = &account["account"]["data"]["parsed"]["info"]["tokenAmount"]["amount"];
            sum = sum.saturating_add(self.node.read(method, amount, |text| text.parse().ok())?);
        }
        Ok(sum)
    }
}
