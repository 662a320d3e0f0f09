//! A receiver that takes its time, for tests of who sends what how often. It verifies nothing: `verifiers` and the
//! sandbox's receiver do.

use std::collections::{BTreeMap, BTreeSet};
use std::future::IntoFuture;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::routing::post;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A request, in the order of arrival. What an event has not is empty.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Arrived {
    pub(crate) event: String,
    pub(crate) deposit: String,
    pub(crate) status: String,
}

/// A running receiver; it ends with its owner.
pub(crate) struct Hook {
    pub(crate) url: String,
    shared: Arc<Shared>,
    _server: JoinSet<std::io::Result<()>>,
}

struct Shared {
    reported: Mutex<Vec<Arrived>>,
    /// Answers are given while it is open.
    open: watch::Sender<bool>,
    /// Each answer takes another part of this.
    latency_ms: u64,
    turn: AtomicU64,
}

impl Hook {
    pub(crate) async fn start(latency: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let latency_ms = u64::try_from(latency.as_millis()).unwrap().max(1);
        let (reported, open, turn) = (Mutex::default(), watch::Sender::new(true), AtomicU64::new(0));
        let shared = Arc::new(Shared { reported, open, latency_ms, turn });
        let router = Router::new().route("/", post(receive)).with_state(Arc::clone(&shared));
        let mut server = JoinSet::new();
        server.spawn(axum::serve(listener, router).into_future());
        Hook { url, shared, _server: server }
    }

    /// Whether answers are given; those that wait are given then.
    pub(crate) fn set_open(&self, open: bool) {
        self.shared.open.send_replace(open);
    }

    /// Every request so far.
    pub(crate) fn reported(&self) -> Vec<Arrived> {
        self.shared.reported.lock().unwrap().clone()
    }

    /// How often each event came.
    pub(crate) fn times(&self) -> BTreeMap<String, usize> {
        let mut times = BTreeMap::new();
        self.reported().into_iter().for_each(|reported| *times.entry(reported.event).or_default() += 1);
        times
    }

    /// Waits until `wanted`.
    pub(crate) async fn until(&self, what: &str, patience: Duration, wanted: impl Fn(&[Arrived]) -> bool) {
        let begun = Instant::now();
        while !wanted(&self.reported()) {
            assert!(begun.elapsed() < patience, "{what} did not come true: {} requests", self.reported().len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Both events of each of so many deposits came, the later one behind the earlier, however often; what came again
    /// behind the later one is reported.
    pub(crate) fn assert_all_in_order(&self, deposits: usize) -> Vec<Arrived> {
        let mut first: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut behind = Vec::new();
        for reported in self.reported() {
            let statuses = first.entry(reported.deposit.clone()).or_default();
            if !statuses.contains(&reported.status) {
                statuses.push(reported.status.clone());
            } else if statuses.last() != Some(&reported.status) {
                behind.push(reported);
            }
        }
        assert_eq!(first.len(), deposits, "every deposit is told");
        for (deposit, statuses) in first {
            assert_eq!(statuses, ["PENDING", "CONFIRMED"], "{deposit}");
        }
        behind
    }

    /// The events that came more than once.
    pub(crate) fn repeated(&self) -> BTreeSet<String> {
        self.times().into_iter().filter(|(_, times)| *times > 1).map(|(event, _)| event).collect()
    }
}

async fn receive(State(shared): State<Arc<Shared>>, body: String) {
    let envelope: Value = serde_json::from_str(&body).unwrap();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let data = &envelope["data"];
    let reported = Arrived { event: text(&envelope["id"]), deposit: text(&data["id"]), status: text(&data["status"]) };
    shared.reported.lock().unwrap().push(reported);
    let millis = shared.turn.fetch_add(7, Ordering::Relaxed) % shared.latency_ms;
    tokio::time::sleep(Duration::from_millis(millis)).await;
    // It ends with the hook.
    let _ = shared.open.subscribe().wait_for(|open| *open).await;
}
