//! Which endpoint is asked, what is told of it, and what never is.

use std::io::Write;
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use landfall_chain::{BlockSource, Chain, EndpointState, FinalityRule, Read, SourceErrorKind};
use landfall_evm::{EndpointUrl, EvmSource, Timings, network};
use serde_json::json;
use tracing_subscriber::filter::LevelFilter;

use crate::mint::{self, Tx};
use crate::node::{LEFT_OUT, Ledger, Node, mainnet};

fn ledger() -> Ledger {
    Ledger { finalized: Some(5), ..Ledger::of(mint::chain(5, vec![vec![Tx::default()]])) }
}

async fn good() -> Node {
    Node::start(|method, params| ledger().answer(method, params)).await
}

fn source(hosts: &[&str]) -> EvmSource {
    let urls: Vec<url::Url> = hosts.iter().map(|host| format!("http://{host}").parse().unwrap()).collect();
    EvmSource::new(mainnet(), &urls).unwrap()
}

/// Nobody listens there: the port was free a moment ago and belongs to no test.
async fn dead() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    listener.local_addr().unwrap().to_string()
}

fn states(source: &EvmSource) -> Vec<EndpointState> {
    source.endpoints().snapshot().into_iter().map(|status| status.state).collect()
}

/// Log lines of everything down to TRACE.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn no_secret_of_a_url_is_ever_reported() {
    const KEYS: [&str; 6] =
        ["kanary-user", "kanary-pass", "kanary-path", "kanary-name", "kanary-value", "kanary-header"];
    let secret = |host: &str| {
        let url = format!("http://kanary-user:kanary-pass@{host}/v2/kanary-path?kanary-name=kanary-value");
        let header = ("authorization".to_owned(), "Bearer kanary-header".to_owned());
        let url = EndpointUrl { url: url.parse().unwrap(), headers: vec![header] };
        assert!(!format!("{url:?}").contains("kanary"));
        EvmSource::at(mainnet(), vec![url], Timings::PRODUCTION).unwrap()
    };
    let lines = Lines::default();
    let writer = lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .with_span_events(tracing_subscriber::fmt::format::FmtSpan::FULL)
        .with_writer(move || writer.clone());
    let guard = tracing::subscriber::set_default(subscriber.finish());
    tracing::trace!("the subscriber listens");
    let repeat = "kanary-path is no key, nor is kanary-value of kanary-user:kanary-pass, kanary-header";
    let node = good().await;
    let rude = Node::start(move |_, _| Err((-32000, repeat.to_owned()))).await;
    let forbidden = Node::start_http(StatusCode::FORBIDDEN, move |_, _| Ok(json!(repeat))).await;
    let redirect = Node::start_http(StatusCode::MOVED_PERMANENTLY, move |_, _| Ok(json!(repeat))).await;
    let silly = Node::start(move |_, _| Ok(json!(repeat))).await;
    let wrong = Node::start(|_, _| Ok(json!("0x5"))).await;
    let dead = dead().await;
    let mut reported = String::new();
    for host in [node.id(), rude.id(), forbidden.id(), redirect.id(), silly.id(), wrong.id(), &dead] {
        let source = secret(host);
        let check = source.check().await;
        let (tip, blocks) = (source.tip().await, source.blocks(5..=5, Read::FULL).await);
        assert_eq!(check.is_ok(), host == node.id(), "{host}: {check:?}");
        reported +=
            &format!("{check:?} {tip:?} {blocks:?} {source:?} {source:#?} {:?}\n", source.endpoints().snapshot());
        reported += &check.map_err(|error| error.to_string()).err().unwrap_or_default();
    }
    for (text, reason) in
        [("ftp://kanary-path@host/", "is neither http nor https nor wss"), ("data:kanary-path", "neither")]
    {
        let error = EvmSource::new(mainnet(), &[text.parse().unwrap()]).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
        reported += &format!("{error} {error:?}");
    }
    drop(guard);
    reported += &String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
    assert!(reported.contains("the subscriber listens"));
    for key in KEYS {
        let at = reported.find(key);
        assert_eq!(at, None, "{key} was told: {:?}", at.map(|at| &reported[at.saturating_sub(200)..at + 20]));
    }
    for expected in ["HTTP status 403", "HTTP status 301", "*** is no key", "cannot connect: Connection refused"] {
        assert!(reported.contains(expected), "{expected}");
    }
}

#[tokio::test]
async fn an_endpoint_of_another_chain_is_quarantined_and_never_asked_again() {
    let node = good().await;
    let sepolia = network(Chain::EthereumTestnet).unwrap();
    let source = node.source(sepolia);
    let expected = format!(
        "endpoint {} serves chain id 1, but ETHEREUM_TESTNET is chain id 11155111; check chains.ETHEREUM_TESTNET.rpc",
        node.id()
    );
    for error in [source.tip().await.unwrap_err(), source.check().await.unwrap_err()] {
        assert_eq!((error.kind, error.to_string()), (SourceErrorKind::Permanent, expected.clone()));
    }
    let error = source.blocks(5..=5, Read::FULL).await.unwrap_err();
    assert_eq!((error.kind, error.to_string()), (SourceErrorKind::Permanent, expected.clone()));
    assert_eq!(node.take_requests(), 1);
    let status = source.endpoints().snapshot().remove(0);
    assert_eq!((status.state, status.reason), (EndpointState::Quarantined, expected));
}

#[tokio::test]
async fn a_wrong_endpoint_beside_a_right_one_fails_the_check_but_not_the_reading() {
    let (wrong, right) = (Node::start(|_, _| Ok(json!("0x5"))).await, good().await);
    let source = source(&[wrong.id(), right.id()]);
    assert_eq!(source.check().await.unwrap_err().kind, SourceErrorKind::Permanent);
    assert_eq!(source.tip().await.unwrap().latest.number, 5);
    assert_eq!(states(&source), [EndpointState::Quarantined, EndpointState::Healthy]);
}

#[tokio::test]
async fn beside_a_dead_endpoint_a_good_one_serves() {
    let (dead, right) = (dead().await, good().await);
    let source = source(&[&dead, right.id()]);
    assert_eq!(states(&source), [EndpointState::Untried; 2]);
    let error = source.check().await.unwrap_err();
    assert_eq!(error.kind, SourceErrorKind::Transient);
    assert!(error.to_string().contains(&dead), "{error}");
    source.tip().await.unwrap();
    assert_eq!(states(&source), [EndpointState::Failing, EndpointState::Healthy]);
    let reason = source.endpoints().snapshot().remove(0).reason;
    let expected = format!("ETHEREUM_MAINNET: endpoint {dead} failed eth_chainId: cannot connect: Connection refused");
    assert!(reason.starts_with(&expected), "{reason}");
    assert_eq!(source.blocks(5..=5, Read::FULL).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_batch_that_is_refused_or_left_out_in_part_is_an_error() {
    for (code, expected) in [(-32005, "\"too large\" (code -32005)"), (LEFT_OUT, "leaves out a part of the batch")] {
        let node = Node::start(move |method, params| match method {
            "eth_getBlockByNumber" if params[0] == "0x6" => Err((code, "too large".to_owned())),
            _ => ledger().answer(method, params),
        })
        .await;
        let error = node.source(mainnet()).blocks(5..=6, Read::FULL).await.unwrap_err();
        assert_eq!(error.kind, SourceErrorKind::Transient);
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[tokio::test]
async fn endpoints_are_named_by_host_and_port() {
    let urls = [
        "http://a.example/1",
        "https://a.example/2",
        "https://a.example:443/3",
        "http://[::1]:8545/x",
        "wss://a.example/4",
        "wss://a.example/5",
    ];
    let urls: Vec<url::Url> = urls.iter().map(|url| url.parse().unwrap()).collect();
    let source = EvmSource::new(mainnet(), &urls).unwrap();
    let ids: Vec<String> = source.endpoints().snapshot().into_iter().map(|status| status.id).collect();
    let http = ["a.example:80", "a.example:443", "a.example:443#2", "[::1]:8545"];
    assert_eq!(ids[..4], http);
    assert_eq!(ids[4..], ["a.example:443 (wake-ups)", "a.example:443#2 (wake-ups)"]);
}

#[tokio::test]
async fn what_cannot_be_a_source_is_refused_before_any_socket_opens() {
    let error = EvmSource::new(mainnet(), &[]).unwrap_err();
    assert_eq!(error.to_string(), "ETHEREUM_MAINNET: no endpoint is configured; set chains.ETHEREUM_MAINNET.rpc");
    let mut other = mainnet();
    other.chain = Chain::SolanaMainnet;
    let url: [url::Url; 1] = ["http://localhost".parse().unwrap()];
    assert_eq!(EvmSource::new(other, &url).unwrap_err().to_string(), "SOLANA_MAINNET is no EVM chain");
    let mut other = mainnet();
    other.chain_ref = "solana:1".to_owned();
    assert!(EvmSource::new(other, &url).unwrap_err().to_string().contains("has not the form eip155:<chain id>"));
}

#[tokio::test]
async fn confirmations_work_where_the_tags_are_unknown() {
    let node = Node::start(|method, params| match params[0].as_str() {
        Some("finalized" | "safe") => Err((-32602, "invalid argument 0".to_owned())),
        _ => ledger().answer(method, params),
    })
    .await;
    let mut network = mainnet();
    network.finality = FinalityRule::confirmations(0).into();
    assert_eq!(node.source(network).tip().await.unwrap().finalized.unwrap().number, 5);
    let error = node.source(mainnet()).tip().await.unwrap_err();
    assert!(error.to_string().contains("invalid argument 0"), "{error}");
}
