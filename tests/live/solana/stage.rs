//! The harness of the whole program on a cluster: a configuration, a webhook receiver, `landfall` as an operator uses
//! it.
//!
//! What is waited for comes within a minute, or the test fails with what there is instead.

use std::path::Path;
use std::process::Output;
use std::time::{Duration, Instant};

use landfall::receiver::Receiver;
use landfall::time::Clock;
use landfall_chain::Family;
use serde_json::Value;
use solana_sdk::instruction::Instruction;
use solana_sdk::message::{Message, VersionedMessage};
use solana_sdk::pubkey::Pubkey;
use solana_sdk::signature::{Keypair, Signer};
use tempfile::TempDir;

use crate::postgres::fresh_database;
use crate::solana::cluster::{Cluster, Landed};
use crate::solana::follower::CHAIN;
use crate::solana::programs::{self as call, Token};
use crate::stage::{Engine, Service, program};

pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);
pub(crate) const DECIMALS: u8 = 6;
/// What the payer has of each token.
const MINTED: u64 = 1_000_000_000;

pub(crate) struct Stage {
    pub(crate) cluster: Cluster,
    pub(crate) receiver: Receiver,
    folder: TempDir,
    store: String,
}

impl Stage {
    /// A cluster, a receiver and a place for a configuration; nothing runs yet.
    pub(crate) async fn new(engine: Engine) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let cluster = Cluster::start(folder.path()).await;
        let receiver = Receiver::start(Clock::system()).await.unwrap();
        let store = match engine {
            Engine::Sqlite => "sqlite:landfall.db".to_owned(),
            Engine::Postgres => fresh_database().await,
        };
        let stage = Stage { cluster, receiver, folder, store };
        stage.configure(&[], 100, "");
        let added =
            stage.ok(&["webhook", "add", "--url", stage.receiver.url(), "--allow-private", "127.0.0.0/8", "--json"]);
        let added: Value = serde_json::from_str(&added).unwrap();
        stage.receiver.set_key(added["secret"].as_str().unwrap());
        stage
    }

    /// Writes the configuration: these URLs beside the cluster's own, and what is put behind the chain's keys.
    pub(crate) fn configure(&self, urls: &[&str], poll_ms: u64, more: &str) {
        let urls: Vec<String> = [self.cluster.url.as_str()].iter().chain(urls).map(|url| format!("{url:?}")).collect();
        let config = format!(
            "[store]\nurl = \"{}\"\n[api]\nlisten = \"127.0.0.1:0\"\nenvironment = \"test\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [chains.{CHAIN}]\nrpc = [{}]\ngenesis = \"{}\"\nstart = \"finalized\"\npoll_ms = {poll_ms}\n{more}",
            self.store,
            urls.join(", "),
            self.cluster.genesis.text(Family::Solana)
        );
        std::fs::write(self.folder.path().join("landfall.toml"), config).unwrap();
    }

    /// Where the API listens, from the next start on.
    pub(crate) fn listen(&self, address: &str) {
        let path = self.folder.path().join("landfall.toml");
        let config = std::fs::read_to_string(&path).unwrap();
        let listen = format!("[api]\nlisten = {address:?}");
        std::fs::write(&path, config.replacen("[api]\nlisten = \"127.0.0.1:0\"", &listen, 1)).unwrap();
    }

    /// By way of which URL the program reaches the cluster, from the next start on.
    pub(crate) fn reach(&self, url: &str) {
        let path = self.folder.path().join("landfall.toml");
        let config = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, config.replace(&self.cluster.url, url)).unwrap();
    }

    /// Where the program runs.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn watch(&self, account: &str, owner: &Pubkey) {
        let spec = format!("{CHAIN}={owner}");
        self.ok(&["account", "add", "--account", account, "--type", "SEGREGATED", "--address", &spec]);
    }

    /// Starts `landfall run`.
    pub(crate) fn start(&self) -> Service {
        Service::start(self.folder.path())
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        program(self.folder.path()).args(arguments).output().unwrap()
    }

    /// The result of a command that must succeed.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same, as JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> Value {
        let text = self.ok(&[arguments, &["--json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{arguments:?}: {error} in {text}"))
    }

    /// Every deposit, as the program lists them.
    pub(crate) fn deposits(&self) -> Vec<Value> {
        self.ok(&["deposit", "list", "--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// `status --json`, of the only chain; null before it was ever watched.
    pub(crate) fn status(&self) -> Value {
        self.json(&["status"])["chains"][0].clone()
    }

    /// Asks until the answer is as wanted.
    pub(crate) async fn until<T: std::fmt::Debug>(
        &self,
        what: &str,
        ask: impl Fn() -> T,
        wanted: impl Fn(&T) -> bool,
    ) -> T {
        let begun = Instant::now();
        loop {
            let answer = ask();
            if wanted(&answer) {
                return answer;
            }
            assert!(begun.elapsed() < PATIENCE, "{what} did not come true: {answer:#?}\n{:#?}", self.status());
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until the deposit of this amount has this status.
    pub(crate) async fn until_status(&self, amount: &str, status: &str) -> Value {
        let is_it = |deposit: &Value| deposit["amount"] == amount && deposit["status"] == status;
        let what = format!("{amount} {status}");
        let deposits = self.until(&what, || self.deposits(), |deposits| deposits.iter().any(is_it)).await;
        deposits.into_iter().find(is_it).unwrap()
    }

    /// Waits until the block of this slot is final and connected.
    pub(crate) async fn until_final(&self, slot: u64) {
        let is_there = |status: &Value| {
            let reached = |key: &str| status[key].as_u64().is_some_and(|number| number >= slot);
            reached("finalized") && reached("cursor")
        };
        self.until(&format!("slot {slot} is final"), || self.status(), is_there).await;
    }

    /// Waits until all that has landed so far is final.
    pub(crate) async fn until_all_is_final(&self) {
        let (newest, begun) = (self.cluster.slot("confirmed").await, Instant::now());
        while self.cluster.slot("finalized").await < newest {
            assert!(begun.elapsed() < PATIENCE, "slot {newest} does not become final");
            tokio::time::sleep(POLL).await;
        }
    }

    /// Waits until the receiver has each status of each deposit, in this order.
    pub(crate) async fn until_reported(&self, deposits: usize) {
        let reported = || -> Vec<(String, String)> {
            let log = self.receiver.log();
            log.iter().map(|event| (event.field("id").to_owned(), event.field("status").to_owned())).collect()
        };
        let reported = self.until("every event arrives", reported, |reported| reported.len() >= 2 * deposits).await;
        for deposit in self.deposits() {
            let of = reported.iter().filter(|(id, _)| deposit["id"] == id.as_str());
            let statuses: Vec<&str> = of.map(|(_, status)| status.as_str()).collect();
            assert_eq!(statuses, ["PENDING", "CONFIRMED"], "{deposit}");
        }
        assert_eq!((reported.len(), self.receiver.refused()), (2 * deposits, 0));
    }

    /// Sends what the payer signs, and `signers` beside it.
    pub(crate) async fn send(&self, calls: &[Instruction], signers: &[&Keypair]) -> Landed {
        let payer = &self.cluster.payer;
        let blockhash = self.cluster.blockhash().await;
        let message = Message::new_with_blockhash(calls, Some(&payer.pubkey()), &blockhash);
        let signers: Vec<&Keypair> = [payer].into_iter().chain(signers.iter().copied()).collect();
        let landed = self.cluster.send(VersionedMessage::Legacy(message), &signers).await.unwrap();
        assert!(!landed.failed);
        landed
    }

    pub(crate) async fn pay_sol(&self, to: &Pubkey, lamports: u64) -> Landed {
        self.send(&[call::transfer(&self.cluster.payer.pubkey(), to, lamports)], &[]).await
    }

    /// Pays tokens to the owner's associated account, which is made where it is not there.
    pub(crate) async fn pay(&self, token: &Token, to: &Pubkey, amount: u64) -> Landed {
        let payer = self.cluster.payer.pubkey();
        let pay = token.transfer(&token.ata(&payer), &token.ata(to), &payer, amount);
        self.send(&[token.make_ata(&payer, to), pay], &[]).await
    }

    /// Makes a token of which the payer has plenty; `extension` is called before the mint is made one.
    pub(crate) async fn make_token(
        &self,
        program: Pubkey,
        bytes: u64,
        extension: impl Fn(&Token, &Pubkey) -> Option<Instruction>,
    ) -> Token {
        let (payer, mint) = (self.cluster.payer.pubkey(), Keypair::new());
        let token = Token { mint: mint.pubkey(), program, decimals: DECIMALS };
        let rent = self.cluster.rent(bytes).await;
        let mut calls = vec![call::create_account(&payer, &token.mint, rent, bytes, &program)];
        calls.extend(extension(&token, &payer));
        calls.extend([token.initialize_mint(&payer), token.make_ata(&payer, &payer)]);
        calls.push(token.mint_to(&token.ata(&payer), &payer, MINTED));
        self.send(&calls, &[&mint]).await;
        token
    }
}

/// A token as the configuration lists it.
pub(crate) fn listed(symbol: &str, token: &Token, decimals: u8, program: &str) -> String {
    format!(
        "[[chains.{CHAIN}.assets]]\nsymbol = \"{symbol}\"\ncontract = \"{}\"\ndecimals = {decimals}\nfrom = 0\nprogram = \"{program}\"\n",
        token.mint
    )
}
