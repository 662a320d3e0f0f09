//! Two nodes and one source that asks both. Each has a table of its own.
//!
//! As with the one-node door, both nodes are honest for a moment before each input, and a source that does not believe
//! them, or does not ask both because of what it learnt before, is made anew, and the input is put to it again.

use std::sync::{Arc, Mutex};

use landfall_chain::{BlockSource, EndpointState, Network};
use landfall_evm::EvmSource;
use tokio::runtime::Runtime;

use super::node::{CHAIN_ID, Table, chain_id, honest, lock, node};

/// The two nodes and the source.
pub(super) struct Pair {
    runtime: Runtime,
    nodes: [(Arc<Mutex<Table>>, String); 2],
    source: Option<EvmSource>,
    network: Network,
}

impl Pair {
    pub(super) fn open(network: Network) -> Pair {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let nodes = [node(&runtime), node(&runtime)];
        Pair { runtime, nodes, source: None, network }
    }

    /// What `question` learns while these tables lie there; both are asked for `method`.
    pub(super) fn ask<'d, T: 'd>(
        &'d mut self,
        lay: impl Fn(usize) -> Table,
        method: &str,
        question: impl AsyncFn(&EvmSource) -> T,
    ) -> T {
        for _ in 0..3 {
            let source = self.ready();
            for (index, (table, _)) in self.nodes.iter().enumerate() {
                *lock(table) = lay(index).and(CHAIN_ID, chain_id(&self.network));
            }
            let learnt = self.runtime.block_on(question(&source));
            if self.nodes.iter().all(|(table, _)| lock(table).served(method) > 0) {
                self.source = Some(source);
                return learnt;
            }
        }
        panic!("the source does not ask both nodes");
    }

    /// A source to which both nodes have reported their chain id, and nothing that was ever final.
    fn ready(&mut self) -> EvmSource {
        if let Some(source) = self.source.take().filter(|source| self.greets(source)) {
            return source;
        }
        let urls: Vec<_> = self.nodes.iter().map(|(_, url)| url.parse().unwrap()).collect();
        let source = EvmSource::new(self.network.clone(), &urls).unwrap();
        assert!(self.greets(&source), "honest nodes are believed");
        source
    }

    fn greets(&self, source: &EvmSource) -> bool {
        self.nodes.iter().for_each(|(table, _)| *lock(table) = honest(chain_id(&self.network)));
        let believes = self.runtime.block_on(source.tip()).is_ok_and(|tip| tip.finalized.is_none());
        let states = source.endpoints().snapshot();
        believes && states.iter().all(|endpoint| endpoint.state == EndpointState::Healthy)
    }
}
