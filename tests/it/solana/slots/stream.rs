//! A subscription to slots that is cut: it only wakes up, so what came meanwhile is read as all else is.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use landfall::account::{AccountType, NewAccount};
use landfall::registry;
use landfall::store::deposits::{self, DepositFilter};
use landfall::time::{Clock, Pulse};
use landfall::watcher::{Follower, Settings, Start};
use landfall_chain::{Address, ReadProof};
use landfall_cluster::{Ledger, Node, Tx};
use landfall_solana::SolanaSource;
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;

use super::follower::{CHAIN, FIRST_SLOT, mainnet};
use crate::harness::postgres::{Engine, TestStore};
use crate::harness::world::FAILED_GRACE;

const OURS: Address = Address::Solana([0xa1; 32]);
const PAYER: Address = Address::Solana([0x01; 32]);
/// Nobody looks by himself.
const POLL: Duration = Duration::from_secs(24 * 3_600);
const PAUSE: Duration = Duration::from_millis(50);

async fn accept(listener: &TcpListener) -> WebSocketStream<TcpStream> {
    let (stream, _) = listener.accept().await.unwrap();
    let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
    let asked = socket.next().await.unwrap().unwrap();
    assert!(asked.to_text().unwrap().contains("slotSubscribe"), "{asked}");
    socket.send(Message::text(r#"{"jsonrpc":"2.0","result":0,"id":1}"#)).await.unwrap();
    socket
}

fn pay(ledger: &Ledger) {
    let slot = ledger.latest().number + 1;
    ledger.produce(slot, vec![Tx::sol(slot, PAYER, OURS, slot)]);
}

/// Reports slots, each once, until so many payments are on record.
async fn report_until(socket: &mut WebSocketStream<TcpStream>, store: &TestStore, slot: &mut u64, count: usize) {
    loop {
        let filter = DepositFilter::default();
        let found = deposits::list(&mut store.db.read().await.unwrap(), &filter, 1_000).await.unwrap().len();
        assert!(found <= count, "{found}");
        if found == count {
            return;
        }
        *slot += 1;
        let result = format!(r#"{{"parent":{},"root":1,"slot":{slot}}}"#, *slot - 1);
        let news = format!(
            r#"{{"jsonrpc":"2.0","method":"slotNotification","params":{{"result":{result},"subscription":0}}}}"#
        );
        socket.send(Message::text(news)).await.unwrap();
        tokio::time::sleep(PAUSE).await;
    }
}

#[tokio::test]
async fn yellowstone_what_was_paid_while_a_slot_subscription_was_cut_is_credited() {
    let ledger = Ledger::of(FIRST_SLOT..=FIRST_SLOT + 5);
    let node = Node::start(&ledger).await;
    let store = TestStore::fresh(Engine::Sqlite).await;
    let (id, addresses) = ("ours".to_owned(), [(CHAIN, OURS)].into());
    let account = NewAccount { id, identity_id: None, kind: AccountType::Segregated, addresses };
    registry::add_accounts(&store.db, &[account], Clock::system().now()).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let urls = [node.url(), format!("ws://{}/", listener.local_addr().unwrap())].map(|url| url.parse().unwrap());
    let source = SolanaSource::new(&mainnet(), &urls).unwrap();
    let (start, proof) = (Start::Number(FIRST_SLOT + 1), ReadProof::Candidate);
    let settings =
        Settings { start, proof, poll: POLL, failed_grace: FAILED_GRACE, finality_stall: None, block_stall: None };
    let (listening, wake_up, endpoints) = (source.listen(), source.wake_up(), source.endpoints());
    let watcher = Follower::new(Arc::new(source), endpoints, store.db.clone(), mainnet(), settings).woken_by(wake_up);
    let (clock, pulse) = (Clock::system(), Pulse::new("solana", Clock::system().now()));
    let running = watcher.run(clock, || 7, pulse, CancellationToken::new());
    let story = async {
        let mut reported = ledger.latest().number;
        let mut socket = accept(&listener).await;
        pay(&ledger);
        report_until(&mut socket, &store, &mut reported, 1).await;
        drop(socket);
        (0..5).for_each(|_| pay(&ledger));
        let mut socket = accept(&listener).await;
        // The stream begins at the newest slot.
        reported = reported.max(ledger.latest().number);
        report_until(&mut socket, &store, &mut reported, 6).await;
        pay(&ledger);
        report_until(&mut socket, &store, &mut reported, 7).await;
    };
    tokio::select! {
        () = running => panic!("it was not told to stop"),
        () = listening => panic!("it listens for ever"),
        () = story => {}
    }
}
