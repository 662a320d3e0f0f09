//! What the family of a chain must define for the pool, and the types that they share.
//!
//! Promises: nothing here knows a method or a field of any chain. A family says how an endpoint is polled, what its
//! report makes final, how bad a failure is for the endpoint, and what its nodes' own codes mean. All else is the
//! pool's. Proofs have no name here: a family hands over only what it has proved.

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt;

use landfall_chain::{BlockHash, BlockRef};

use crate::error::RpcError;
use crate::limits::Codes;
use crate::pool::endpoint::Endpoint;

/// How the nodes of one network speak: a family's own part of what the pool does.
pub trait Dialect: fmt::Debug + Send + Sync + Sized + 'static {
    type Error: Error + From<RpcError> + Clone + Send + Sync + 'static;
    /// The part of a poll, beside blocks, that decides what is final.
    type Marks: Send;
    /// What is remembered of one endpoint's earlier marks, where a rule needs it.
    type Memory: Default + Send;

    /// What its nodes' own error codes mean.
    const CODES: &'static Codes;
    /// How many calls a request holds at most; 1 where nodes serve no batches.
    const BATCH_MAX: usize;
    /// The method that blocks are read with: an error about a list of blocks names it.
    const BLOCKS: &'static str;
    /// What distinguishes one chain from another, in words for operators.
    const IDENTITY: &'static str;
    /// What an endpoint showed when it left quarantine, in such words.
    const SOUND: &'static str;
    const SUBSCRIPTION: Subscription;

    /// What `error` says of the endpoint that was asked.
    fn fault(error: &Self::Error) -> Fault;

    /// Asks for the newest block and for what is final, in one request where that is possible. What comes back is
    /// proved as far as the chain allows.
    fn poll(
        &self,
        endpoint: &Endpoint<Self>,
        question: &Question,
    ) -> impl Future<Output = Result<HeadReport<Self::Marks>, Self::Error>> + Send;

    /// How many rules of finality the network has: its own, then those of its tiers.
    fn rules(&self) -> usize;

    /// The newest number that is final by `word`, for each of the rules. It is called once for each report that is
    /// believed, in their order.
    fn finals(&self, word: &HeadReport<Self::Marks>, memory: &mut Self::Memory) -> Vec<Option<u64>>;
}

/// What the pool asks in a poll beside the newest block and the final ones.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Question {
    /// Whether the endpoint must report which chain it serves; another one is [`Fault::WrongChain`].
    pub which_chain: bool,
    /// The hashes of these blocks, where the endpoint has them.
    pub numbers: BTreeSet<u64>,
}

/// What an endpoint reported at one moment.
#[derive(Clone, Debug)]
pub struct HeadReport<M> {
    pub latest: BlockRef,
    /// Of all blocks that it named or was asked for.
    pub hashes: BTreeMap<u64, BlockHash>,
    pub marks: M,
}

/// What a failure says of the endpoint that was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It did not serve: it cools down, and others are asked.
    Failing,
    /// It does not have what was asked for, and serves all else: others are asked, and its state stays. In a poll this
    /// is a failure, for then nothing else is known of the endpoint.
    NotFound,
    /// What it reported is false: quarantine.
    Unsound,
    /// It serves another chain: quarantine, until it is pointed elsewhere.
    WrongChain,
    /// It shows what only a newer version, or another configuration, could judge. This is its own failure, until all
    /// show the same: the same block in reads, the same `what` in polls.
    TooNew { block: BlockRef, what: String },
    /// Nothing: no other endpoint can answer either, and trying again is useless until a person acts.
    Permanent,
}

/// How to subscribe to new heads over WebSocket.
#[derive(Clone, Copy, Debug)]
pub struct Subscription {
    /// The whole request.
    pub request: &'static str,
    /// What distinguishes one new head from another; `None` for a message that is no new head.
    pub head: fn(&str) -> Option<String>,
}
