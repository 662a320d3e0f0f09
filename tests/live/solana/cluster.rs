//! A Solana cluster of one's own: `solana-test-validator` where one is found on the PATH, else surfpool.
//!
//! surfpool comes with its chain mended, by `nodes/surfpool/mended.mjs`, which says what it mends and why; the
//! validator is taken as it is. Either ends with its owner. Transactions are signed here, with real keys, and sent as
//! they are: what fails is recorded as failed. What an account holds is asked of the node's accounts, which is not
//! where Landfall looks.

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use landfall::sandbox::surfpool::{Surfpool, SurfpoolOptions};
use landfall_chain::{Address, BlockHash, TxId, U256};
use serde_json::{Value, json};
use solana_sdk::hash::Hash;
use solana_sdk::message::VersionedMessage;
use solana_sdk::pubkey::Pubkey;
use solana_sdk::signature::{Keypair, Signature, Signer};

use crate::stage::variable;

const VALIDATOR: &str = "solana-test-validator";
/// The first version of it that decodes transactions of version 1, which the tests send.
const VALIDATOR_FIRST: [u64; 3] = [4, 2, 2];
/// What the payer is given, in lamports.
const FUNDS: u64 = 9_000_000_000;
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

pub(crate) struct Cluster {
    // What runs ends when it is dropped.
    _surfpool: Option<Surfpool>,
    _validator: Option<Validator>,
    client: reqwest::Client,
    pub(crate) url: String,
    /// Has SOL, and pays for everything.
    pub(crate) payer: Keypair,
    pub(crate) genesis: BlockHash,
}

struct Validator(Child);

/// A transaction that landed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Landed {
    pub(crate) tx: TxId,
    pub(crate) slot: u64,
    pub(crate) failed: bool,
}

impl Cluster {
    /// Starts one and waits until it has a final block.
    pub(crate) async fn start(folder: &Path) -> Self {
        let payer = Keypair::new();
        let (validator, surfpool) = match on_path(VALIDATOR) {
            true => (Some(validator(folder, &payer)), None),
            false => (None, Some(surfpool(folder, &payer).await)),
        };
        let url = validator.as_ref().map(|(_, url)| url.as_str()).or(surfpool.as_ref().map(Surfpool::url));
        let url = url.unwrap().to_owned();
        // Once per process; a second time changes nothing.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // The script closes a connection that was idle for some seconds, perhaps just as a call begins.
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).build().unwrap();
        let (_surfpool, _validator) = (surfpool, validator.map(|(validator, _)| validator));
        let mut cluster = Cluster { _surfpool, _validator, client, url, payer, genesis: BlockHash([0; 32]) };
        let begun = Instant::now();
        // Slot 0 stands on itself, and no chain is followed from there.
        let is_up = |slot: Result<Value, String>| slot.is_ok_and(|slot| slot.as_u64() > Some(0));
        while !is_up(cluster.ask("getSlot", json!([{ "commitment": "finalized" }])).await) {
            assert!(begun.elapsed() < PATIENCE, "the cluster does not come up");
            tokio::time::sleep(POLL).await;
        }
        while cluster.lamports(&cluster.payer.pubkey()).await < FUNDS {
            assert!(begun.elapsed() < PATIENCE, "the payer has no money");
            tokio::time::sleep(POLL).await;
        }
        let genesis = cluster.rpc("getGenesisHash", json!([])).await;
        cluster.genesis = BlockHash(key(genesis.as_str().unwrap()).to_bytes());
        cluster
    }

    /// One call.
    pub(crate) async fn ask(&self, method: &str, params: Value) -> Result<Value, String> {
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let request = self.client.post(&self.url).header("content-type", "application/json").body(call.to_string());
        let answer = request.send().await.map_err(|error| error.to_string())?;
        let text = answer.text().await.map_err(|error| error.to_string())?;
        let mut answer: Value = serde_json::from_str(&text).map_err(|error| format!("{error} in {text}"))?;
        match answer.get("error") {
            Some(error) => Err(error.to_string()),
            None => Ok(answer["result"].take()),
        }
    }

    /// One call that must succeed.
    pub(crate) async fn rpc(&self, method: &str, params: Value) -> Value {
        self.ask(method, params).await.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Blocks are so much later: on surfpool at once, on a validator when that time is over.
    pub(crate) async fn leap(&self, secs: u64) {
        if self.ask("landfall_leap", json!([secs])).await.is_err() {
            tokio::time::sleep(Duration::from_secs(secs)).await;
        }
    }

    /// A blockhash to sign with. At `processed`: see `mended.mjs`.
    pub(crate) async fn blockhash(&self) -> Hash {
        let latest = self.rpc("getLatestBlockhash", json!([{ "commitment": "processed" }])).await;
        latest["value"]["blockhash"].as_str().unwrap().parse().unwrap()
    }

    /// The newest slot of a commitment.
    pub(crate) async fn slot(&self, commitment: &str) -> u64 {
        self.rpc("getSlot", json!([{ "commitment": commitment }])).await.as_u64().unwrap()
    }

    /// Lamports that an account of so many bytes must have.
    pub(crate) async fn rent(&self, bytes: u64) -> u64 {
        self.rpc("getMinimumBalanceForRentExemption", json!([bytes])).await.as_u64().unwrap()
    }

    /// Where subscriptions are taken.
    pub(crate) async fn ws(&self) -> String {
        if let Ok(url) = self.ask("landfall_ws", json!([])).await {
            return url.as_str().unwrap().to_owned();
        }
        // A validator takes them at the next port.
        let mut url: url::Url = self.url.parse().unwrap();
        url.set_port(url.port().map(|port| port + 1)).unwrap();
        url.set_scheme("ws").unwrap();
        url.to_string()
    }

    /// The account's lamports, as the node keeps it.
    pub(crate) async fn lamports(&self, account: &Pubkey) -> u64 {
        let how = json!([account.to_string(), { "commitment": "confirmed" }]);
        self.rpc("getBalance", how).await["value"].as_u64().unwrap()
    }

    /// What a token account holds, in base units; nothing where there is none.
    pub(crate) async fn tokens(&self, account: &Pubkey) -> u64 {
        let how = json!([account.to_string(), { "commitment": "confirmed" }]);
        let Ok(answer) = self.ask("getTokenAccountBalance", how).await else { return 0 };
        answer["value"]["amount"].as_str().unwrap().parse().unwrap()
    }

    /// Signs, sends, and waits until it is confirmed, or the cluster's refusal.
    pub(crate) async fn send(&self, message: VersionedMessage, signers: &[&Keypair]) -> Result<Landed, String> {
        let (bytes, signature) = signed(&message, signers);
        let how = json!({ "encoding": "base64", "skipPreflight": true, "preflightCommitment": "processed" });
        self.ask("sendTransaction", json!([STANDARD.encode(bytes), how])).await?;
        let begun = Instant::now();
        loop {
            let asked = json!([[signature.to_string()]]);
            let status = self.rpc("getSignatureStatuses", asked).await["value"][0].take();
            if status["confirmationStatus"] == "confirmed" || status["confirmationStatus"] == "finalized" {
                let (slot, failed) = (status["slot"].as_u64().unwrap(), !status["err"].is_null());
                let tx = TxId::Solana(signature.as_ref().try_into().unwrap());
                return Ok(Landed { tx, slot, failed });
            }
            assert!(begun.elapsed() < PATIENCE, "{signature} did not land: {status}");
            tokio::time::sleep(POLL).await;
        }
    }
}

impl Drop for Validator {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A transaction as it goes over the wire, and its first signature. Version 1 has its signatures behind the message,
/// without their number.
fn signed(message: &VersionedMessage, signers: &[&Keypair]) -> (Vec<u8>, Signature) {
    let (bytes, count) = (message.serialize(), message.header().num_required_signatures);
    let keys = &message.static_account_keys()[..usize::from(count)];
    let sign = |key: &Pubkey| signers.iter().find(|signer| signer.pubkey() == *key).unwrap().sign_message(&bytes);
    let signatures: Vec<Signature> = keys.iter().map(sign).collect();
    let (first, all) = (signatures[0], signatures.iter().flat_map(|signature| signature.as_ref().to_vec()));
    let wire = match message {
        VersionedMessage::V1(_) => bytes.iter().copied().chain(all).collect(),
        VersionedMessage::Legacy(_) | VersionedMessage::V0(_) => {
            [count].into_iter().chain(all).chain(bytes.iter().copied()).collect()
        }
    };
    (wire, first)
}

pub(crate) fn key(text: &str) -> Pubkey {
    text.parse().unwrap()
}

fn on_path(program: &str) -> bool {
    let path = variable("PATH");
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

async fn surfpool(folder: &Path, payer: &Keypair) -> Surfpool {
    let (script, log) = (variable("LANDFALL_SURFPOOL").into(), folder.join("surfpool.log"));
    let surfpool = Surfpool::start(&SurfpoolOptions { script, log, keep: false }).await.unwrap();
    surfpool.pay(&Address::Solana(payer.pubkey().to_bytes()), U256::from(FUNDS), None).await.unwrap();
    surfpool
}

/// The payer has all there is, from its genesis on.
fn validator(folder: &Path, payer: &Keypair) -> (Validator, String) {
    let version = Command::new(VALIDATOR).arg("--version").output().unwrap().stdout;
    if let Some(too_old) = too_old(&String::from_utf8_lossy(&version)) {
        panic!("{too_old}");
    }
    let (rpc, faucet, gossip) = (free_port(), free_port(), free_port());
    let mut child = Command::new(VALIDATOR)
        .args(["--quiet", "--bind-address", "127.0.0.1", "--mint", &payer.pubkey().to_string()])
        .args(["--ledger", folder.join("ledger").to_str().unwrap(), "--rpc-port", &rpc.to_string()])
        .args(["--faucet-port", &faucet.to_string(), "--gossip-port", &gossip.to_string()])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", rpc)).is_err() {
        if child.try_wait().unwrap().is_some() {
            let mut words = String::new();
            child.stdout.take().unwrap().read_to_string(&mut words).unwrap();
            panic!("{VALIDATOR} ended at its start: {words}");
        }
        assert!(begun.elapsed() < PATIENCE, "{VALIDATOR} does not listen");
        std::thread::sleep(POLL);
    }
    (Validator(child), format!("http://127.0.0.1:{rpc}"))
}

/// What a person should do about a validator that reports this of its version; nothing when it will do.
fn too_old(reported: &str) -> Option<String> {
    let version = reported.split_whitespace().nth(1).unwrap_or_default();
    let numbers: Option<Vec<u64>> =
        version.split('-').next().map(|it| it.split('.').map_while(|it| it.parse().ok()).collect());
    let will_do = numbers.is_some_and(|numbers| numbers.len() == 3 && numbers[..] >= VALIDATOR_FIRST[..]);
    let [major, minor, patch] = VALIDATOR_FIRST;
    (!will_do).then(|| {
        format!(
            "{VALIDATOR} on the PATH is of version {version:?}, and the tests need {major}.{minor}.{patch} or newer: update it, or \
             take it off the PATH, and they use surfpool"
        )
    })
}

#[test]
fn a_validator_that_is_too_old_is_reported_apart_by_its_version() {
    for reported in ["4.2.2 (src:00000000; feat:1, client:Agave)", "4.2.3", "4.3.0-beta.1 (src:1)", "5.0.0", "10.0.0"] {
        assert_eq!(too_old(&format!("{VALIDATOR} {reported}\n")), None, "{reported}");
    }
    for reported in ["4.2.1 (src:00000000; feat:1, client:Agave)", "4.1.9", "3.9.9", "4", "", "of tomorrow"] {
        let said = too_old(&format!("{VALIDATOR} {reported}\n")).unwrap();
        assert!(said.contains("the tests need 4.2.2 or newer: update it, or take it off the PATH"), "{said}");
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
