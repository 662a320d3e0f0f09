//! The sandbox's folder: configuration, store, keystore and the nodes' logs. Removed at the end unless it is to be kept.

use std::fs::DirBuilder;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use landfall_chain::Chain;

use crate::config::Config;
use crate::random;
use crate::sandbox::keys;

/// Often enough for people to follow, and for a block every few hundred milliseconds.
const POLL_MS: u64 = 200;
/// Nothing here is worth an hour of waiting.
const FAILED_GRACE_SECS: u64 = 10;

/// A chain, and the node that stands in for it.
#[derive(Clone, Debug)]
pub(super) struct Followed {
    pub(super) chain: Chain,
    pub(super) rpc: String,
    /// The genesis hash that the node reports, if it is needed.
    pub(super) genesis: Option<String>,
}

#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    keep: bool,
}

impl Folder {
    /// A new folder that only its owner can read: here if it is to be kept, else among the temporary ones.
    pub(super) fn create(keep: bool) -> anyhow::Result<Self> {
        let parent = if keep { std::env::current_dir()? } else { std::env::temp_dir() };
        let path = parent.join(format!("landfall-sandbox-{}", hex::encode(random::bytes::<6>())));
        let created = DirBuilder::new().mode(0o700).create(&path);
        created.with_context(|| format!("cannot make the folder {}", path.display()))?;
        Ok(Folder { path, keep })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn log_of(&self, node: &str) -> PathBuf {
        self.path.join(format!("{node}.log"))
    }

    pub(super) fn config_path(&self) -> PathBuf {
        self.path.join("landfall.toml")
    }

    /// Writes the configuration of a Landfall that follows these chains, and reads it as `run` does. Delegates stay: a run ends
    /// before they would be taken away, and its books are compared with the chain then.
    pub(super) fn configure(&self, chains: &[Followed]) -> anyhow::Result<Config> {
        let store = toml::Value::String(format!("sqlite:{}", self.path.join("landfall.db").display()));
        let [api, admin] = free_addresses()?;
        let mut text = format!(
            "# Written by `landfall sandbox`; chain, accounts and money are for play.\n\
             [store]\nurl = {store}\n\n\
             [api]\nlisten = \"{api}\"\nenvironment = \"test\"\n\n\
             [admin]\nlisten = \"{admin}\"\n\n\
             [transfers]\nsigner = \"keystore:{}\"\npassphrase_file = \"{}\"\ndelegation = \"sticky\"\n",
            keys::KEYSTORE,
            keys::PASSPHRASE
        );
        for Followed { chain, rpc, genesis } in chains {
            let genesis = genesis.as_ref().map_or(String::new(), |genesis| format!("genesis = \"{genesis}\"\n"));
            text += &format!(
                "\n[chains.{chain}]\nrpc = [\"{rpc}\"]\n{genesis}start = \"finalized\"\npoll_ms = {POLL_MS}\n\
                 failed_grace_secs = {FAILED_GRACE_SECS}\nfinality = \"finalized\"\n"
            );
        }
        let path = self.config_path();
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Config::load(&path, |_| None)?)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.keep
            && let Err(error) = std::fs::remove_dir_all(&self.path)
        {
            eprintln!("sandbox: {} is left behind: {error}", self.path.display());
        }
    }
}

/// Two addresses of this machine on which nobody listens at this moment.
fn free_addresses() -> std::io::Result<[SocketAddr; 2]> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let (first, second) = (listen()?, listen()?);
    Ok([first.local_addr()?, second.local_addr()?])
}
