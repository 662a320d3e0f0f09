//! Whether endpoints that traced the same blocks agree on them, and what is believed then.
//!
//! A reading is compared by what makes a deposit: of each transaction, who received how much, and how often. Order and
//! sender are not compared, for honest nodes differ in both: in older ones a self-destruction stands before what came
//! before it, and names the caller as the sender. Promises: for each block alone, two readings that agree are
//! believed, whatever a third one says. Where several have reported it and no two agree, none is.

use std::collections::HashMap;

use landfall_chain::{Address, BlockRef, Chain, Proof, TxId, U256};

use crate::dialect::Endpoint;
use crate::error::EvmError;
use crate::traces::engine::Engine;
use crate::traces::frames::{self, Moved, ProvedTx};

/// A block, and of its transactions those that must be traced: all or none.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) at: BlockRef,
    pub(crate) txs: Vec<ProvedTx>,
}

/// What an endpoint reported of each block that was asked for, and the engine that it ran.
#[derive(Debug)]
pub(crate) struct Reading<'p> {
    pub(crate) endpoint: &'p Endpoint,
    pub(crate) engine: Engine,
    pub(crate) moved: Vec<Moved>,
}

/// What is believed of a block, and by how many endpoints' reports.
#[derive(Debug)]
pub(crate) struct Believed {
    pub(crate) moved: Moved,
    pub(crate) proof: Proof,
    /// Whether two that reported the same run different engines.
    pub(crate) by_two_engines: bool,
}

/// How often who received how much in which transaction.
type Received = HashMap<(TxId, Address, U256), usize>;

/// Whether two of the readings agree, for each block.
pub(crate) fn agree(asked: &[Asked], readings: &[Reading<'_>]) -> bool {
    readings.len() > 1 && (0..asked.len()).all(|index| agreed(readings, index).is_some())
}

/// What is believed of each block.
///
/// # Errors
/// Several endpoints reported a block, and no two of them the same.
pub(crate) fn believed(
    chain: Chain,
    asked: &[Asked],
    mut readings: Vec<Reading<'_>>,
) -> Result<Vec<Believed>, EvmError> {
    let mut believed = Vec::with_capacity(asked.len());
    for (index, block) in asked.iter().enumerate() {
        let (reading, proof) = match agreed(&readings, index) {
            _ if block.txs.is_empty() => (None, Proof::Roots),
            Some(reading) => (Some(reading), Proof::TwoEndpoints),
            None if readings.len() == 1 => (Some(0), Proof::OneEndpoint),
            None => return Err(differ(chain, block, index, &readings)),
        };
        let by_two_engines = reading.is_some_and(|reading| is_by_two_engines(&readings, index, reading));
        let reported = reading.and_then(|reading| readings.get_mut(reading)?.moved.get_mut(index));
        let moved = reported.map(std::mem::take).unwrap_or_default();
        believed.push(Believed { moved, proof, by_two_engines });
    }
    Ok(believed)
}

/// The first reading of the block at `index` that another one confirms.
fn agreed(readings: &[Reading<'_>], index: usize) -> Option<usize> {
    let received: Vec<Received> = readings.iter().map(|reading| received(reading, index)).collect();
    received.iter().enumerate().position(|(at, one)| received[at + 1..].contains(one))
}

/// Whether one that reported the block at `index` as the reading `believed` does runs another engine.
fn is_by_two_engines(readings: &[Reading<'_>], index: usize, believed: usize) -> bool {
    let agreed = received(&readings[believed], index);
    let alike = readings.iter().filter(|reading| received(reading, index) == agreed);
    alike.clone().any(|one| alike.clone().any(|other| one.engine.differs_from(other.engine)))
}

fn received(reading: &Reading<'_>, index: usize) -> Received {
    let mut received = Received::new();
    for leg in reading.moved.get(index).into_iter().flat_map(|moved| &moved.legs) {
        *received.entry((leg.tx.id, leg.recipient, leg.amount)).or_default() += 1;
    }
    received
}

fn differ(chain: Chain, block: &Asked, index: usize, readings: &[Reading<'_>]) -> EvmError {
    let reported: Vec<Received> = readings.iter().map(|reading| received(reading, index)).collect();
    let mut ids: Vec<TxId> = Vec::new();
    for one in &reported {
        let differing = one.iter().filter(|(key, count)| reported.iter().any(|other| other.get(*key) != Some(*count)));
        ids.extend(differing.map(|((tx, ..), _)| *tx));
    }
    // The order of asking says nothing of who lies.
    let mut endpoints: Vec<&str> = readings.iter().map(|reading| reading.endpoint.id.as_str()).collect();
    endpoints.sort_unstable();
    EvmError::TracesDiffer {
        chain,
        endpoints: endpoints.join(" and "),
        block: block.at,
        tx: frames::first_of(&block.txs, &ids).unwrap_or_default(),
    }
}
