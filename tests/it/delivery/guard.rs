//! Where deliveries go, seen from internal machines that must receive nothing: the guard at every connection.
//!
//! The resolver is the test's. An internal receiver is a bare listener that keeps what it gets.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use landfall::delivery::{Delivered, Delivery};
use landfall::overrides::Author;
use landfall::registry::{self, NewWebhook};
use landfall::resolver::Resolver;
use landfall::store::deliveries;
use landfall::store::webhooks;
use landfall::time::{Clock, Timestamp};
use landfall::webhook::AllowedNetworks;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::harness::postgres::{Engine, TestStore};

pub(crate) const PUBLIC: &str = "93.184.216.34";
pub(crate) const BLOCKED: &str = "the name stands for an address that this webhook must not reach";

/// A listener that keeps the beginning of what each connection says, and answers 200 to it.
pub(crate) struct Listener {
    pub(crate) address: SocketAddr,
    responses: Arc<Mutex<Vec<Vec<u8>>>>,
    _server: JoinSet<()>,
}

impl Listener {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, responses) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let log = Arc::clone(&responses);
        let mut server = JoinSet::new();
        server.spawn(async move {
            loop {
                let (mut connection, _) = listener.accept().await.unwrap();
                let mut said = vec![0; 4_096];
                let length = connection.read(&mut said).await.unwrap_or(0);
                said.truncate(length);
                log.lock().unwrap().push(said);
                let _ =
                    connection.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
            }
        });
        Listener { address, responses, _server: server }
    }

    pub(crate) fn responses(&self) -> Vec<Vec<u8>> {
        self.responses.lock().unwrap().clone()
    }
}

/// A store with one webhook and a test event for it; the delivery that is to send it.
pub(crate) struct Scene {
    store: TestStore,
    delivery: Delivery,
    webhook: String,
    event: String,
}

impl Scene {
    pub(crate) async fn new(resolver: Resolver, url: &str, allowed: &str) -> Self {
        let store = TestStore::fresh(Engine::Sqlite).await;
        let allowed: AllowedNetworks = allowed.parse().unwrap();
        let webhook = NewWebhook { url, label: "", allowed_networks: &allowed, ed25519: false };
        let by = Author { actor: "test", reason: "", now: Timestamp(0) };
        let added = registry::add_webhook(&store.db, Some(&resolver), &webhook, &[7; 84], &by).await.unwrap();
        let event = registry::test_webhook(&store.db, &added.id, &[9; 32], Timestamp(0)).await.unwrap().id.to_string();
        let delivery = Delivery::new(store.db.clone(), Clock::system(), || 200).unwrap();
        let delivery = delivery.resolving_by(resolver).unwrap();
        Scene { store, delivery, webhook: added.id, event }
    }

    /// What is written down of the attempt that is made now.
    pub(crate) async fn error(&self) -> String {
        let done = self.delivery.tick().await.unwrap();
        assert_eq!(done.delivered + done.to_be_retried, 1);
        let mut reader = self.store.db.read().await.unwrap();
        let attempt = deliveries::last_attempt(&mut reader, &self.event, &self.webhook).await.unwrap();
        attempt.unwrap().1.error
    }
}

/// Gives the first answer once and the second ever after.
fn rebinding(first: &'static str, then: &'static str) -> (Resolver, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let resolver = Resolver::new(move |_| {
        let answer = if count.fetch_add(1, Ordering::SeqCst) == 0 { first } else { then };
        Ok(answer.split(' ').map(|address| address.parse::<IpAddr>().unwrap()).collect())
    });
    (resolver, asked)
}

#[tokio::test]
async fn a_name_that_turns_to_a_machine_inside_after_its_registration_is_not_connected_to() {
    for then in ["127.0.0.1", "93.184.216.34 127.0.0.1", "127.0.0.1 93.184.216.34", "::ffff:127.0.0.1", "0.0.0.0"] {
        let inside = Listener::start().await;
        let (resolver, asked) = rebinding(PUBLIC, then);
        let url = format!("https://rebinding.example.com:{}/", inside.address.port());
        let scene = Scene::new(resolver, &url, "").await;
        assert_eq!(asked.load(Ordering::SeqCst), 1, "it was looked at when it was registered");
        let error = scene.error().await;
        assert!(error.contains(BLOCKED), "{then}: {error}");
        assert_eq!(asked.load(Ordering::SeqCst), 2, "it was looked at when it was connected to, and once only");
        assert!(inside.responses().is_empty(), "{then}: somebody inside was spoken to");
    }
}

#[tokio::test]
async fn an_address_that_is_stored_without_leave_is_not_connected_to() {
    let inside = Listener::start().await;
    let port = inside.address.port();
    let resolver = Resolver::new(|_| Err(io::ErrorKind::NotFound.into()));
    let scene = Scene::new(resolver, "https://example.com/", "").await;
    // As if somebody had got past the registration: the guard stands at the connection too.
    for host in ["127.0.0.1", "[::ffff:127.0.0.1]", "2130706433", "0.0.0.0"] {
        for scheme in ["http", "https"] {
            let mut tx = scene.store.db.begin().await.unwrap();
            let row = webhooks::WebhookRow {
                id: format!("{scheme}-{host}"),
                url: format!("{scheme}://{host}:{port}/"),
                label: String::new(),
                allowed_networks: AllowedNetworks::default(),
                signing_key_id: "key".into(),
                signing_key: landfall::webhook::signing_key([1; 32]),
            };
            webhooks::insert(&mut tx, &row, Timestamp(0)).await.unwrap();
            tx.commit().await.unwrap();
            let random = [u8::try_from(host.len()).unwrap(), u8::try_from(scheme.len()).unwrap()].repeat(16);
            let random = random.try_into().unwrap();
            let event = registry::test_webhook(&scene.store.db, &row.id, &random, Timestamp(0)).await.unwrap();
            scene.delivery.tick().await.unwrap();
            let mut reader = scene.store.db.read().await.unwrap();
            let attempt = deliveries::last_attempt(&mut reader, &event.id.to_string(), &row.id).await.unwrap();
            let error = attempt.unwrap().1.error;
            assert!(error.ends_with("is not reachable from the internet"), "{}: {error}", row.url);
        }
    }
    assert!(inside.responses().is_empty());
}

#[tokio::test]
async fn the_vetted_address_is_connected_to_under_the_name_of_the_url() {
    let inside = Listener::start().await;
    let port = inside.address.port();
    // The system knows no such name: only our answer leads there.
    let resolver = || {
        Resolver::new(
            |name| if name == "ledger.inside" { Ok(vec!["127.0.0.1".parse().unwrap()]) } else { Ok(Vec::new()) },
        )
    };
    let plain = Scene::new(resolver(), &format!("http://ledger.inside:{port}/in"), "127.0.0.0/8").await;
    assert_eq!(plain.delivery.tick().await.unwrap(), Delivered { delivered: 1, to_be_retried: 0 });
    let responses = String::from_utf8(inside.responses().remove(0)).unwrap();
    assert!(responses.starts_with("POST /in HTTP/1.1\r\n"), "{responses}");
    assert!(responses.contains(&format!("host: ledger.inside:{port}\r\n")), "{responses}");

    let encrypted = Scene::new(resolver(), &format!("https://ledger.inside:{port}/in"), "127.0.0.0/8").await;
    assert!(!encrypted.error().await.is_empty(), "the listener speaks no TLS");
    let hello = inside.responses().remove(1);
    assert_eq!(hello[0], 22, "a TLS handshake");
    let name = b"ledger.inside";
    assert!(hello.windows(name.len()).any(|window| window == name), "SNI has the name");
}

#[tokio::test]
async fn webhooks_with_other_leave_never_share_a_connection() {
    let inside = Listener::start().await;
    let resolver = Resolver::new(|_| Ok(vec!["127.0.0.1".parse().unwrap()]));
    let url = format!("http://ledger.inside:{}/", inside.address.port());
    let scene = Scene::new(resolver, &url, "127.0.0.0/8").await;
    assert_eq!(scene.delivery.tick().await.unwrap().delivered, 1);
    let mut tx = scene.store.db.begin().await.unwrap();
    let row = webhooks::WebhookRow {
        id: "other".into(),
        url,
        label: String::new(),
        allowed_networks: "10.0.0.0/8".parse().unwrap(),
        signing_key_id: "key".into(),
        signing_key: landfall::webhook::signing_key([1; 32]),
    };
    webhooks::insert(&mut tx, &row, Timestamp(0)).await.unwrap();
    tx.commit().await.unwrap();
    registry::test_webhook(&scene.store.db, "other", &[8; 32], Timestamp(0)).await.unwrap();
    assert_eq!(scene.delivery.tick().await.unwrap(), Delivered { delivered: 0, to_be_retried: 1 });
    assert_eq!(inside.responses().len(), 1);
}
