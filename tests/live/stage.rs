//! The harness: a node with a token, a webhook receiver, a store and the real program, used as an operator would.

use std::fs::File;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use landfall::receiver::Receiver;
use landfall::sandbox::anvil::{Anvil, AnvilOptions, TxRequest};
use landfall::sandbox::token;
use landfall::time::Clock;
use landfall_chain::{Address, AssetId, Chain, Family, TxId, U256};
use landfall_signer::{NewKeystore, Passphrase, Words};
use serde_json::{Value, json};
use sqlx::Connection;
use tempfile::TempDir;
use tokio::net::TcpSocket;

use crate::contracts;

pub(crate) const CHAIN_ID: u64 = 11_155_111;
/// How long anything may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// What opens the keystores.
pub(crate) const PASSPHRASE: &str = "correct horse battery staple";

/// What the log says of a balance that is not explained.
pub(crate) const UNEXPLAINED: &str = "nothing is credited for it";

/// Where the store of a stage is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Engine {
    Sqlite,
    Postgres,
}

pub(crate) struct Stage {
    pub(crate) node: Anvil,
    pub(crate) receiver: Receiver,
    pub(crate) folder: TempDir,
    /// An unlocked account of the node that pays.
    pub(crate) payer: Address,
    pub(crate) token: Address,
    /// The URL of the store that it began with.
    pub(crate) store: String,
    nonce: u64,
}

/// A running `landfall run`; killed when dropped.
pub(crate) struct Service {
    child: Child,
    log: PathBuf,
}

impl Stage {
    /// A node with the token and contracts, a receiver, a configuration; nothing runs yet.
    pub(crate) async fn new(engine: Engine) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let node = node(folder.path(), CHAIN_ID).await;
        let network = landfall_evm::network(Chain::EthereumTestnet).unwrap();
        let token = network.assets.iter().find(|asset| asset.symbol == "USDC").unwrap().id;
        let AssetId::Token(token) = token else { panic!("USDC is a token") };
        contracts::place(&node).await;
        let receiver = Receiver::start(Clock::system()).await.unwrap();
        let payer = node.accounts().await.unwrap()[0];
        let store = match engine {
            Engine::Sqlite => "sqlite:landfall.db".to_owned(),
            Engine::Postgres => crate::postgres::fresh_database().await,
        };
        let mut stage = Stage { node, receiver, folder, payer, token, store, nonce: 0 };
        stage.configure(&stage.store, "");
        for holder in [payer, contracts::PAY_BY_BLOCK, contracts::REVERT_ON_ODD_BLOCK] {
            stage.call(token, token::mint(&holder, U256::from(1_000_000_000_000_u64))).await;
        }
        stage.node.mine(4).await.unwrap();
        stage
    }

    /// Writes the configuration; `more` is put behind the chain's keys.
    pub(crate) fn configure(&self, store: &str, more: &str) {
        let config = format!(
            "[store]\nurl = \"{store}\"\n[api]\nlisten = \"127.0.0.1:0\"\nenvironment = \"test\"\n[admin]\nlisten = \"127.0.0.1:0\"\n\
             [chains.ETHEREUM_TESTNET]\nrpc = [\"{}\"]\nstart = 0\npoll_ms = 50\nfailed_grace_secs = 2\n\
             finality = \"finalized\"\n{more}",
            self.node.url()
        );
        std::fs::write(self.folder.path().join("landfall.toml"), config).unwrap();
    }

    /// Replaces a text of the configuration; the whole of it.
    pub(crate) fn replace_in_config(&self, from: &str, to: &str) -> String {
        let path = self.folder.path().join("landfall.toml");
        let config = std::fs::read_to_string(&path).unwrap().replace(from, to);
        std::fs::write(&path, &config).unwrap();
        config
    }

    /// Forges the books of a stage on SQLite.
    pub(crate) async fn sqlite(&self, text: &'static str) {
        let path = self.folder.path().join("landfall.db");
        let mut connection = sqlx::SqliteConnection::connect(&format!("sqlite:{}", path.display())).await.unwrap();
        sqlx::raw_sql(text).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
    }

    /// Adds an account, and the receiver as a webhook.
    pub(crate) async fn set_up(&self, account: &str, address: &Address) {
        let spec = format!("ETHEREUM_TESTNET={address}");
        self.ok(&["account", "add", "--account", account, "--type", "SEGREGATED", "--address", &spec]);
        let added =
            self.ok(&["webhook", "add", "--url", self.receiver.url(), "--allow-private", "127.0.0.0/8", "--json"]);
        let added: Value = serde_json::from_str(&added).unwrap();
        self.receiver.set_key(added["secret"].as_str().unwrap());
    }

    /// Runs the program in the folder.
    pub(crate) fn run(&self, arguments: &[&str]) -> std::process::Output {
        program(self.folder.path()).args(arguments).output().unwrap()
    }

    /// The result of a command that must succeed.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts `landfall run`.
    pub(crate) fn start(&self) -> Service {
        Service::start(self.folder.path())
    }

    /// Every deposit, as the program lists them.
    pub(crate) fn deposits(&self) -> Vec<Value> {
        self.ok(&["deposit", "list", "--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// `status --json`, of the only chain.
    pub(crate) fn status(&self) -> Value {
        let status: Value = serde_json::from_str(&self.ok(&["status", "--json"])).unwrap();
        status["chains"][0].clone()
    }

    /// Waits until the deposits are as `wanted`; otherwise fails with what they are.
    pub(crate) async fn until(&self, what: &str, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let begun = Instant::now();
        loop {
            let deposits = self.deposits();
            if wanted(&deposits) {
                return deposits;
            }
            assert!(begun.elapsed() < PATIENCE, "{what} did not come true: {deposits:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until the deposit of this amount has this status.
    pub(crate) async fn until_status(&self, amount: &str, status: &str) {
        let what = format!("{amount} {status}");
        self.until(&what, |deposits| deposits.iter().any(|d| d["amount"] == amount && d["status"] == status)).await;
    }

    /// Waits until the cursor stands at the node's newest block.
    pub(crate) async fn until_caught_up(&self) {
        let latest = self.node.block("latest").await.unwrap().number;
        let begun = Instant::now();
        while self.status()["cursor"] != latest {
            assert!(begun.elapsed() < PATIENCE, "block {latest} is not reached: {}", self.status());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until `health` finds nothing: where the machine stood still, it may find that for a while.
    pub(crate) async fn until_healthy(&self) {
        let begun = Instant::now();
        loop {
            let health = self.run(&["health"]);
            if health.status.success() {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{}", String::from_utf8_lossy(&health.stdout));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Sends a call of a contract with the payer's next nonce.
    pub(crate) async fn call(&mut self, to: Address, data: String) -> TxRequest {
        self.send(to, U256::ZERO, data).await
    }

    /// Sends native value with the payer's next nonce.
    pub(crate) async fn pay_native(&mut self, to: Address, amount: u64) -> TxRequest {
        self.send(to, U256::from(amount), "0x".to_owned()).await
    }

    /// Sends tokens with the payer's next nonce.
    pub(crate) async fn pay_token(&mut self, to: Address, amount: u64) -> TxRequest {
        self.call(self.token, token::transfer(&to, U256::from(amount))).await
    }

    /// Sends the same transaction once more: it has the same hash.
    pub(crate) async fn send_again(&self, tx: &TxRequest) -> TxId {
        self.node.send(tx).await.unwrap()
    }

    /// A node takes back the nonces of what a reorg dropped; so must we.
    pub(crate) fn disconnect_to(&mut self, transactions: u64) {
        self.nonce -= transactions;
    }

    async fn send(&mut self, to: Address, value: U256, data: String) -> TxRequest {
        let tx = TxRequest { from: self.payer, nonce: self.nonce, to, value, data };
        self.nonce += 1;
        self.node.send(&tx).await.unwrap();
        tx
    }
}

impl Service {
    pub(crate) fn start(folder: &Path) -> Self {
        Service::of(folder, &mut program(folder))
    }

    /// As `start`, with these variables in its environment.
    pub(crate) fn start_with(folder: &Path, variables: &[(&str, &str)]) -> Self {
        Service::of(folder, program(folder).envs(variables.iter().copied()))
    }

    /// A signer in a process of its own, as `[transfers] signer = "unix:signer.sock"` asks for.
    pub(crate) fn start_signer(folder: &Path) -> Self {
        Service::start_signer_with(folder, &[])
    }

    /// As `start_signer`, with these variables in its environment.
    pub(crate) fn start_signer_with(folder: &Path, variables: &[(&str, &str)]) -> Self {
        let args = ["signer", "serve", "keys", "--passphrase-file", "passphrase", "--socket", "signer.sock"];
        Service::spawn(folder.join("signer.log"), program(folder).args(args).envs(variables.iter().copied()))
    }

    fn of(folder: &Path, program: &mut Command) -> Self {
        Service::spawn(folder.join("landfall.log"), program.arg("run"))
    }

    fn spawn(log: PathBuf, program: &mut Command) -> Self {
        let output = File::options().create(true).append(true).open(&log).unwrap();
        let child = program.stdout(Stdio::null()).stderr(output).spawn().unwrap();
        Service { child, log }
    }

    /// kill -9.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM; the exit code and how long it took. What addresses held on the way was explained.
    pub(crate) fn stop(mut self) -> (Option<i32>, Duration) {
        assert!(!self.log().contains(UNEXPLAINED), "{}", self.log());
        let begun = Instant::now();
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let status = self.child.wait().unwrap();
        (status.code(), begun.elapsed())
    }

    /// Stops it where it stands, or lets it go on: STOP, CONT.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended by itself.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A contract pays `to`; the next block holds it. The hash.
pub(crate) async fn pay_inside(stage: &Stage, to: &Address, wei: u64) -> String {
    let from = stage.node.accounts().await.unwrap()[1];
    let request = json!({
        "from": from.to_string(),
        "to": contracts::ROUTER.to_string(),
        "value": format!("{wei:#x}"),
        "data": contracts::call("pay(address)", &[contracts::word(to)]),
    });
    let hash = stage.node.rpc("eth_sendTransaction", json!([request])).await.unwrap();
    hash.as_str().unwrap().to_owned()
}

/// A private anvil, with the tokens that its network lists.
pub(crate) async fn node(folder: &Path, chain_id: u64) -> Anvil {
    start(folder, chain_id, false).await
}

/// A private anvil of the OP stack.
pub(crate) async fn op_stack_node(folder: &Path, chain_id: u64) -> Anvil {
    start(folder, chain_id, true).await
}

async fn start(folder: &Path, chain_id: u64, op_stack: bool) -> Anvil {
    let log = folder.join(format!("anvil-{chain_id}.log"));
    let node = Anvil::start(&AnvilOptions { binary: anvil(), chain_id, op_stack, log, keep: false }).await.unwrap();
    let chain_ref = format!("eip155:{chain_id}");
    if let Some(network) = landfall_evm::networks().iter().find(|network| network.chain_ref == chain_ref) {
        node.place_tokens(network).await.unwrap();
    }
    node
}

/// A fresh address, one for each number.
pub(crate) fn address(who: u8) -> Address {
    Address::parse(Family::Evm, &format!("0x{}", hex::encode([who; 20]))).unwrap()
}

/// A keystore `keys` that the file `passphrase` opens, with less work than that of operators: processes are started often.
/// The seeds in it, of wallets and of sponsors.
pub(crate) fn make_keystore(folder: &Path) -> [Words; 2] {
    let path = folder.join("passphrase");
    std::fs::write(&path, PASSPHRASE).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let passphrase = Passphrase::from_file(&path).unwrap();
    let seeds = [Words::random().unwrap(), Words::random().unwrap()];
    let [wallets, sponsors] = &seeds;
    let created_at = u64::try_from(Clock::system().now().0 / 1_000_000).unwrap();
    let new = NewKeystore { wallets, sponsors, passphrase: &passphrase, work_factor: 10, created_at };
    new.create(&folder.join("keys")).unwrap();
    seeds
}

pub(crate) fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A port for a program that starts later, and what keeps it until then: nobody else gets it, and it refuses
/// connections.
pub(crate) fn kept_port() -> (u16, TcpSocket) {
    let kept = TcpSocket::new_v4().unwrap();
    kept.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    (kept.local_addr().unwrap().port(), kept)
}

/// A variable that `scripts/test` sets.
pub(crate) fn variable(name: &str) -> String {
    #[expect(clippy::disallowed_methods, reason = "the test's own environment, set by scripts/test")]
    let value = std::env::var(name);
    value.unwrap_or_else(|_| panic!("{name} is not set: run scripts/test, which installs and starts what is needed"))
}

/// Whether the full counts are asked for.
pub(crate) fn full() -> bool {
    #[expect(clippy::disallowed_methods, reason = "the test's own environment")]
    let full = std::env::var("LANDFALL_FULL");
    full.is_ok_and(|value| value == "1")
}

/// The first seed of this run: `LANDFALL_SEED`, which `scripts/test` takes from the commit; else 0.
pub(crate) fn given_seed() -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the test's own environment")]
    let seed = std::env::var("LANDFALL_SEED");
    seed.map_or(0, |seed| seed.parse().unwrap())
}

/// The program.
pub(crate) fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_landfall")
}

pub(crate) fn program(folder: &Path) -> Command {
    let mut command = Command::new(binary());
    command.current_dir(folder);
    command
}

fn anvil() -> PathBuf {
    variable("LANDFALL_ANVIL").into()
}
