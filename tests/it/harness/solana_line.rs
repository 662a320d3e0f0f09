//! A watcher of Solana before scripted nodes, with its store: the harness of the tests about books, senders and
//! verdicts.

use std::sync::Arc;
use std::time::Duration;

use landfall::account::{AccountType, NewAccount};
use landfall::deposit::{Deposit, DepositStatus};
use landfall::registry;
use landfall::store::deposits::{self, DepositFilter};
use landfall::store::unattributed::{self, Arrival};
use landfall::time::Timestamp;
use landfall::watcher::{Follower, Settings, Start, TickError, Ticked};
use landfall_chain::{Address, Chain, Network, ReadProof};
use landfall_cluster::{Ledger, Node, Tx};
use landfall_solana::{EndpointUrl, Options, Sample, SolanaSource, Timings, Wrapped, network};
use serde_json::Value;

use crate::harness::postgres::TestStore;
use crate::harness::solana_ledger::{OURS, owner};
use crate::harness::world::FAILED_GRACE;

pub(crate) const CHAIN: Chain = Chain::SolanaMainnet;
const TICKS_MAX: usize = 100;

pub(crate) struct Line {
    pub(crate) nodes: Vec<Node>,
    pub(crate) store: TestStore,
    pub(crate) source: Arc<SolanaSource>,
    pub(crate) network: Network,
    pub(crate) watcher: Follower<Arc<SolanaSource>>,
    pub(crate) now: Timestamp,
}

/// A source over these nodes, which compares no blocks but those that are read in full.
pub(crate) fn source(nodes: &[&Node]) -> SolanaSource {
    let urls: Vec<_> = nodes.iter().map(|node| node.url().parse().unwrap()).collect();
    let source = SolanaSource::new(&network(CHAIN).unwrap(), &urls).unwrap();
    source.with_sample(Sample { one_in: 0, key: 0 })
}

/// A source over these nodes whose waits are short.
fn source_of(network: &Network, nodes: &[Node], options: Options) -> SolanaSource {
    let urls = nodes.iter().map(|node| EndpointUrl::from(node.url().parse::<url::Url>().unwrap())).collect();
    SolanaSource::at(network, urls, &Options { timings: Timings::SHORT, ..options }).unwrap()
}

/// Of a watcher that starts after the block in slot `first`.
fn settings(first: u64) -> Settings {
    let (start, proof, poll) = (Start::Number(first + 1), ReadProof::Candidate, Duration::from_millis(10));
    Settings { start, proof, poll, failed_grace: FAILED_GRACE, finality_stall: None, block_stall: None }
}

/// The same blocks with these transactions in `slot`.
pub(crate) fn with(blocks: Ledger, slot: u64, txs: impl IntoIterator<Item = Value>) -> Ledger {
    txs.into_iter().for_each(|tx| blocks.put(slot, Tx::raw(&tx)));
    blocks
}

impl Line {
    /// Of our two owners, before as many nodes with these blocks, started after the first block.
    pub(crate) async fn of(network: Network, store: TestStore, blocks: Ledger, nodes: usize) -> Line {
        let first = blocks.blocks()[0].slot;
        let mut started = Vec::new();
        for _ in 0..nodes {
            started.push(Node::start(&blocks).await);
        }
        let source = Arc::new(source_of(&network, &started, Options::default()));
        let endpoints = source.endpoints();
        let watcher = Follower::new(Arc::clone(&source), endpoints, store.db.clone(), network.clone(), settings(first));
        let line = Line { nodes: started, store, source, network, watcher, now: Timestamp(1_800_000_000_000_000) };
        for who in OURS {
            line.watch(&format!("account {who}"), owner(who)).await;
        }
        line
    }

    /// From now on it is a watcher of a new process, to whom wrapped SOL is that.
    pub(crate) fn count_wrapped_as(&mut self, wrapped: Wrapped) {
        let options = Options { wrapped: Some(wrapped), ..Options::default() };
        self.source = Arc::new(source_of(&self.network, &self.nodes, options));
        self.watcher = self.another();
    }

    /// A watcher of another process.
    pub(crate) fn another(&self) -> Follower<Arc<SolanaSource>> {
        let (source, endpoints) = (Arc::clone(&self.source), self.source.endpoints());
        let settings = settings(self.nodes[0].ledger().blocks()[0].slot);
        Follower::new(source, endpoints, self.store.db.clone(), self.network.clone(), settings)
    }

    /// From now on it is a watcher of a new process, and a final block that stands still for so long is an alarm.
    pub(crate) fn warn_after(&mut self, stall: Duration) {
        let (source, endpoints) = (Arc::clone(&self.source), self.source.endpoints());
        let settings = Settings { finality_stall: Some(stall), ..settings(self.nodes[0].ledger().blocks()[0].slot) };
        self.watcher = Follower::new(source, endpoints, self.store.db.clone(), self.network.clone(), settings);
    }

    pub(crate) async fn watch(&self, id: &str, address: Address) {
        self.watch_on(CHAIN, id, address).await;
    }

    pub(crate) async fn watch_on(&self, chain: Chain, id: &str, address: Address) {
        let (id, addresses) = (id.to_owned(), [(chain, address)].into());
        let account = NewAccount { id, identity_id: None, kind: AccountType::Segregated, addresses };
        registry::add_accounts(&self.store.db, &[account], self.now).await.unwrap();
    }

    /// Every node has other blocks now.
    pub(crate) fn replace_record(&self, blocks: &Ledger) {
        for node in &self.nodes {
            node.show(blocks);
            node.call_final(None);
        }
    }

    pub(crate) fn finalize(&self, slot: u64) {
        self.nodes.iter().for_each(|node| node.call_final(slot));
    }

    pub(crate) async fn try_tick(&mut self) -> Result<Ticked, TickError> {
        self.watcher.tick(self.now).await
    }

    /// Ticks until nothing happens any more, twice. Failures that may pass do.
    pub(crate) async fn catch_up(&mut self) {
        let mut quiet = 0;
        for _ in 0..TICKS_MAX {
            match self.try_tick().await {
                Ok(ticked) if ticked.connected + ticked.disconnected + ticked.confirmed + ticked.failed == 0 => {
                    quiet += 1
                }
                Ok(_) => quiet = 0,
                Err(error) => {
                    assert!(error.may_pass(), "{error}");
                    quiet = 0;
                }
            }
            if quiet == 2 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it does not come to rest");
    }

    /// Every deposit, with whether it is in a block that counts, by amount.
    pub(crate) async fn deposits(&self) -> Vec<(Deposit, bool)> {
        let mut reader = self.store.db.read().await.unwrap();
        let mut all = Vec::new();
        for deposit in deposits::list(&mut reader, &DepositFilter::default(), 100_000).await.unwrap() {
            let seen = deposits::seen_in(&mut reader, deposit.id).await.unwrap();
            all.push((deposit, seen.is_some_and(|seen| seen.canonical)));
        }
        all.sort_unstable_by_key(|(deposit, _)| deposit.amount);
        all
    }

    /// The one deposit that there is.
    pub(crate) async fn deposit(&self) -> Deposit {
        let all = self.deposits().await;
        let [(deposit, _)] = all.as_slice() else { panic!("one deposit: {all:?}") };
        deposit.clone()
    }

    /// Amount and status of each deposit, by amount.
    pub(crate) async fn amounts(&self) -> Vec<(u64, DepositStatus)> {
        self.deposits().await.into_iter().map(|(deposit, _)| (deposit.amount.to(), deposit.status)).collect()
    }

    pub(crate) async fn inbox(&self, all: bool) -> Vec<Arrival> {
        let mut reader = self.store.db.read().await.unwrap();
        unattributed::list(&mut reader, CHAIN, all, None, 100_000).await.unwrap()
    }
}
