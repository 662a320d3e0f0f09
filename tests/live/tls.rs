//! RPC and webhooks over TLS, with a certificate that only the process under test trusts. `https` is read from and sent
//! to, and `wss` wakes up; with a certificate that is not trusted none of these works.
//!
//! Anvil and our receiver speak no TLS: they stand behind a server that does, and hands on every byte. The certificates
//! end in 2120; nobody kept the key that signed them, and the server's own opens nothing else.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use crate::hook::Hook;
use crate::stage::{Engine, Service, Stage, address};

const ALICE: u8 = 0xa1;
const PATIENCE: Duration = Duration::from_secs(60);
/// The slowest poll that can be configured.
const POLL: Duration = Duration::from_secs(60);
const PAYMENTS: u64 = 4;
const SECRET: &str = "kanary";

/// A server before anvil; it ends with its owner.
pub(crate) struct Terminator {
    /// Host and port.
    pub(crate) address: String,
    pub(crate) _task: JoinSet<()>,
}

impl Terminator {
    async fn start(node: &str) -> Self {
        Terminator::at("127.0.0.1:0", node).await
    }

    /// Before this server; also at another address than its certificate's.
    pub(crate) async fn at(listen: &str, node: &str) -> Self {
        let certificate = CertificateDer::from_pem_file(file("server.pem")).unwrap();
        let key = PrivateKeyDer::from_pem_file(file("server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(vec![certificate], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind(listen).await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let node = node.trim_start_matches("http://").trim_end_matches('/').to_owned();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.spawn(hand_on(acceptor.clone(), stream, node.clone()));
            }
        });
        Terminator { address, _task: task }
    }
}

/// Both ways until either ends; who does not like the certificate leaves.
async fn hand_on(acceptor: TlsAcceptor, stream: TcpStream, node: String) {
    let Ok(mut client) = acceptor.accept(stream).await else { return };
    let mut server = TcpStream::connect(node).await.unwrap();
    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
}

pub(crate) fn file(name: &str) -> String {
    format!("{}/tests/live/tls/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// What is known of the endpoint whose name ends so.
fn endpoint(stage: &Stage, ends: &str) -> Value {
    let status = stage.status();
    let endpoints = status["endpoints"].as_array().unwrap();
    endpoints.iter().find(|it| it["id"].as_str().unwrap().ends_with(ends)).unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_behind_tls_is_read_from_and_wakes_up_long_before_the_next_poll() {
    let mut stage = Stage::new(Engine::Sqlite).await;
    stage.set_up("alice", &address(ALICE)).await;
    let node = stage.node.url().to_owned();
    let Terminator { address: tls, _task } = Terminator::start(&node).await;
    stage.replace_in_config(&format!("\"{node}\""), &format!("\"https://{tls}/\", \"wss://{tls}/?key={SECRET}\""));
    stage.replace_in_config("poll_ms = 50", &format!("poll_ms = {}", POLL.as_millis()));
    // Nobody else is trusted.
    let service = Service::start_with(stage.folder.path(), &[("SSL_CERT_FILE", &file("ca.pem"))]);
    stage.until_caught_up().await;
    let begun = Instant::now();
    while endpoint(&stage, "(wake-ups)")["state"] != "healthy" {
        assert!(begun.elapsed() < PATIENCE, "nothing wakes up: {} {}", stage.status(), service.log());
        stage.node.mine(1).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let begun = Instant::now();
    for payment in 1..=PAYMENTS {
        stage.pay_native(address(ALICE), payment).await;
        stage.node.mine(1).await.unwrap();
        stage.until_status(&format!("0.00000000000000000{payment}"), "PENDING").await;
    }
    // By polls alone each but the first would take a whole one.
    let (took, polls) = (begun.elapsed(), (PAYMENTS - 1) * POLL.as_secs());
    assert!(took.as_secs() < polls, "{PAYMENTS} payments took {took:?}");
    assert!(!service.log().contains(SECRET) && !stage.status().to_string().contains(SECRET));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_trusted_wakes_nobody_and_is_reported_without_secrets_while_polling_goes_on() {
    let mut stage = Stage::new(Engine::Sqlite).await;
    stage.set_up("alice", &address(ALICE)).await;
    let node = stage.node.url().to_owned();
    let Terminator { address: tls, _task } = Terminator::start(&node).await;
    let untrusted = format!("\"{node}\", \"https://{tls}/{SECRET}\", \"wss://{tls}/?key={SECRET}\"");
    stage.replace_in_config(&format!("\"{node}\""), &untrusted);
    stage.replace_in_config("poll_ms = 50", "poll_ms = 50\nagree = 1");
    let service = stage.start();
    stage.pay_native(address(ALICE), 7).await;
    stage.node.mine(1).await.unwrap();
    stage.until_status("0.000000000000000007", "PENDING").await;
    let begun = Instant::now();
    let is_reported = |ends: &str| endpoint(&stage, ends)["reason"].as_str().unwrap().contains("certificate");
    while !(is_reported("(wake-ups)") && is_reported(&tls) && service.log().contains("wakes nobody")) {
        assert!(begun.elapsed() < PATIENCE, "it is not told: {} {}", stage.status(), service.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // It goes on.
    stage.pay_native(address(ALICE), 8).await;
    stage.node.mine(1).await.unwrap();
    stage.until_status("0.000000000000000008", "PENDING").await;
    let (log, status) = (service.log(), stage.status().to_string());
    assert!(log.contains("certificate") && !log.contains(SECRET) && !status.contains(SECRET), "{log}\n{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webhook_behind_tls_gets_every_event_and_one_under_another_name_than_its_certificates_gets_none() {
    let mut stage = Stage::new(Engine::Sqlite).await;
    stage.set_up("alice", &address(ALICE)).await;
    let [hook, other] = [Hook::start(Duration::from_millis(1)).await, Hook::start(Duration::from_millis(1)).await];
    let named = Terminator::start(&hook.url).await;
    let misnamed = Terminator::at("127.0.0.2:0", &other.url).await;
    for server in [&named, &misnamed] {
        let url = format!("https://{}/", server.address);
        stage.ok(&["webhook", "add", "--url", &url, "--allow-private", "127.0.0.0/8"]);
    }
    let service = Service::start_with(stage.folder.path(), &[("SSL_CERT_FILE", &file("ca.pem"))]);
    stage.pay_native(address(ALICE), 7).await;
    stage.node.mine(3).await.unwrap();
    hook.until("PENDING and CONFIRMED", PATIENCE, |reported| reported.len() == 2).await;
    assert_eq!(hook.assert_all_in_order(1), []);
    let begun = Instant::now();
    while !service.log().contains("certificate not accepted") {
        assert!(begun.elapsed() < PATIENCE, "nobody refused the certificate: {}", service.log());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(other.reported(), []);
}
