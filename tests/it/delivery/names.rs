//! Names of webhooks that nobody answers for, and webhooks at which all fails: they hold up themselves and no other
//! webhook, and fill no log.

use std::io::Write;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use landfall::delivery::{Delivered, Delivery};
use landfall::event::TestEvent;
use landfall::registry;
use landfall::resolver::Resolver;
use landfall::store::deliveries;
use landfall::store::events;
use landfall::store::webhooks::{self, WebhookRow};
use landfall::time::{Clock, Pulse, Timestamp};
use sha2::{Digest, Sha256};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::delivery::guard::Listener;
use crate::harness::postgres::{ENGINES, Engine, TestStore};

/// More than were once asked for at a time, and fewer than one client may register.
const HOSTILE: usize = 420;
const PATIENCE: Duration = Duration::from_secs(60);
/// Longer than anything takes that waits for no name, even on a busy machine, and shorter than a name is waited for.
const AT_ONCE: Duration = Duration::from_secs(4);

async fn add(store: &TestStore, rows: impl IntoIterator<Item = (String, String)>) {
    let mut tx = store.db.begin().await.unwrap();
    for (id, url) in rows {
        let row = WebhookRow {
            id: id.clone(),
            url,
            label: String::new(),
            allowed_networks: "127.0.0.0/8".parse().unwrap(),
            signing_key_id: format!("key of {id}"),
            signing_key: landfall::webhook::signing_key([1; 32]),
        };
        webhooks::insert(&mut tx, &row, Timestamp(0)).await.unwrap();
        let event = TestEvent::new(&id, &Sha256::digest(&id).into(), Timestamp(0));
        events::append_test(&mut tx, &event, Timestamp(0)).await.unwrap();
    }
    tx.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_nobody_answers_for_hold_up_no_other_webhook_and_count_against_none() {
    for engine in ENGINES {
        let (store, receiver) = (TestStore::fresh(engine).await, Listener::start().await);
        let ((open, gate), hostile, others) =
            (mpsc::channel::<()>(), Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (gate, asked, asked_well) = (Mutex::new(gate), Arc::clone(&hostile), Arc::clone(&others));
        let resolver = Resolver::new(move |name| {
            if name == "well.inside" {
                asked_well.fetch_add(1, Ordering::Relaxed);
            } else {
                asked.fetch_add(1, Ordering::Relaxed);
                // Until the test ends.
                let _ = gate.lock().unwrap().recv();
            }
            Ok(vec!["127.0.0.1".parse().unwrap()])
        });
        add(&store, (0..HOSTILE).map(|at| (format!("hook-{at}"), format!("http://{at}.hostile.inside:9/")))).await;
        let delivery = Delivery::new(store.db.clone(), Clock::system(), || 200).unwrap();
        let delivery = delivery.resolving_by(resolver).unwrap();
        let (stop, mut running) = (CancellationToken::new(), JoinSet::new());
        running.spawn(delivery.run(Pulse::new("delivery", Timestamp(0)), stop.clone()));
        let begun = Instant::now();
        while hostile.load(Ordering::Relaxed) < 400 && begun.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let url = format!("http://well.inside:{}/", receiver.address.port());
        add(&store, [("well".to_owned(), url)]).await;
        let mut sent = 1;
        loop {
            let begun = Instant::now();
            while receiver.responses().len() < sent && begun.elapsed() < PATIENCE {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            assert!(begun.elapsed() < AT_ONCE, "{engine:?}: event {sent} took {:?}", begun.elapsed());
            if sent == 6 {
                break;
            }
            sent += 1;
            registry::test_webhook(&store.db, "well", &[u8::try_from(sent).unwrap(); 32], Timestamp(1)).await.unwrap();
        }
        assert!(others.load(Ordering::Relaxed) < 6, "one answer serves several attempts");
        drop(open);
        stop.cancel();
        tokio::time::timeout(PATIENCE, running.join_all()).await.unwrap();
        let event = TestEvent::new("well", &[2; 32], Timestamp(1)).id.to_string();
        let attempt = deliveries::last_attempt(&mut store.db.read().await.unwrap(), &event, "well").await.unwrap();
        let (number, log) = attempt.expect("it was attempted");
        assert_eq!((number, log.error.as_str()), (1, ""), "{engine:?}");
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// The lines that say that an attempt failed.
    fn complaints(&self) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(" failed")).map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn however_many_attempts_at_a_webhook_fail_the_log_says_so_once_a_minute() {
    let (log, clock) = (Log::default(), Arc::new(AtomicI64::new(Timestamp::from_secs(1_750_000_000).0)));
    let (writer, now) = (log.clone(), Arc::clone(&clock));
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    // While there is one alone, whether a line is wanted is decided by whichever test comes to it first.
    let _second = tracing::Dispatch::new(tracing_subscriber::registry());
    let store = TestStore::fresh(Engine::Sqlite).await;
    add(&store, ["bad", "worse"].map(|id| (id.to_owned(), "http://127.0.0.1:9/".to_owned()))).await;
    for number in 10..20 {
        registry::test_webhook(&store.db, "bad", &[number; 32], Timestamp(0)).await.unwrap();
    }
    let clock_of_delivery = Clock::new(move || Timestamp(now.load(Ordering::Relaxed)));
    let delivery = Delivery::new(store.db.clone(), clock_of_delivery, || 200).unwrap();
    assert_eq!(delivery.tick().await.unwrap(), Delivered { delivered: 0, to_be_retried: 9 });
    let complaints = log.complaints();
    assert_eq!(complaints.len(), 2, "one for each of both: {complaints:#?}");
    clock.fetch_add(61_000_000, Ordering::Relaxed);
    let Delivered { to_be_retried: again, .. } = delivery.tick().await.unwrap();
    assert!(again >= 1);
    let complaints = log.complaints();
    let of_bad: Vec<_> = complaints.iter().filter(|line| line.contains("webhook=bad")).collect();
    assert_eq!(of_bad.len(), 2, "{complaints:#?}");
    assert!(of_bad[1].contains(" failed, as 7 others did there"), "{complaints:#?}");
}
