//! How a node misbehaves; when, is `strikes`'s.

use std::time::Duration;

use crate::strikes::Named;

/// One way to misbehave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// `eth_getLogs` finds nothing.
    EmptyLogs,
    /// A block that is there is `null`.
    NullBlock,
    /// Receipts that are there are `null`.
    NullReceipts,
    /// A block with transactions has no receipts.
    EmptyReceipts,
    /// HTTP 429, with and without a `Retry-After`.
    TooManyRequests { retry_after_secs: Option<u64> },
    /// HTTP 500, 502, 503 or 504, in turn, with a page instead of an answer.
    ServerError,
    /// The connection is reset instead of an answer.
    Reset,
    /// The answer comes, but takes so long, a few bytes at a time.
    Drip(Duration),
    /// The answer ends in the middle.
    Truncated,
    /// The answer is to another question.
    WrongId,
    /// The second half of a batch is answered from another fork.
    TornBatch,
    /// The last call of a batch is not answered.
    PartialBatch,
    /// A batch is refused as a whole, in this of the ways of [`NO_BATCHES`].
    NoBatches(usize),
    /// The node follows a fork that never wins.
    AnotherFork,
    /// The node is so many blocks behind.
    Stale(u64),
    /// The node is so many blocks behind at every other request.
    HeadBack(u64),
    /// A block of another fork is called final.
    FinalOnFork,
    /// A block above the newest one is called final.
    FinalAhead,
    /// The newest block is called final. One node alone cannot be convicted of this; blocks on top are wanted too.
    FinalEarly,
    /// Receipts, logs, traces and bodies of blocks more than so many behind are gone.
    Pruned(u64),
    /// A log stands twice.
    DuplicateLog,
    /// Logs and receipts name another block.
    WrongBlockHash,
    /// The answer has so many bytes and makes no sense; how many they are is not reported beforehand.
    Huge(usize),
    /// The node says that it serves another chain.
    WrongChainId,
    /// Receipts have no status.
    MissingStatus,
    /// A block with transactions has no traces.
    EmptyTraces,
    /// Failed frames of a trace show no error.
    UnmarkedRevert,
    /// `debug_traceBlockByHash` ends in an internal error; `trace_block` works.
    TraceError,
}

/// How nodes refuse every batch: the HTTP status, and what stands in the body.
pub const NO_BATCHES: [(&str, &str); 8] = [
    ("400 Bad Request", "Batch requests are not supported"),
    ("405 Method Not Allowed", "<html><h1>405 Not Allowed</h1></html>"),
    ("500 Internal Server Error", ""),
    ("200 OK", "one call at a time"),
    ("200 OK", r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}"#),
    ("200 OK", r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"Invalid Request"}}"#),
    ("200 OK", r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32005,"message":"limit exceeded"}}"#),
    ("400 Bad Request", r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no arrays"}}"#),
];

impl Fault {
    /// Every fault, at sizes that fit a chain of a few dozen blocks.
    pub const ALL: [Fault; 29] = [
        Fault::EmptyLogs,
        Fault::NullBlock,
        Fault::NullReceipts,
        Fault::EmptyReceipts,
        Fault::TooManyRequests { retry_after_secs: None },
        Fault::TooManyRequests { retry_after_secs: Some(1) },
        Fault::ServerError,
        Fault::Reset,
        Fault::Drip(Duration::from_millis(200)),
        Fault::Truncated,
        Fault::WrongId,
        Fault::TornBatch,
        Fault::PartialBatch,
        Fault::NoBatches(0),
        Fault::AnotherFork,
        Fault::Stale(4),
        Fault::HeadBack(3),
        Fault::FinalOnFork,
        Fault::FinalAhead,
        Fault::FinalEarly,
        Fault::Pruned(3),
        Fault::DuplicateLog,
        Fault::WrongBlockHash,
        Fault::Huge(200_000_000),
        Fault::WrongChainId,
        Fault::MissingStatus,
        Fault::EmptyTraces,
        Fault::UnmarkedRevert,
        Fault::TraceError,
    ];

    /// A word for it; the same for all sizes of a fault.
    pub const fn name(&self) -> &'static str {
        match self {
            Fault::EmptyLogs => "empty logs",
            Fault::NullBlock => "null block",
            Fault::NullReceipts => "null receipts",
            Fault::EmptyReceipts => "empty receipts",
            Fault::TooManyRequests { retry_after_secs: None } => "429",
            Fault::TooManyRequests { retry_after_secs: Some(_) } => "429 with Retry-After",
            Fault::ServerError => "5xx",
            Fault::Reset => "reset",
            Fault::Drip(_) => "slow drip",
            Fault::Truncated => "truncated JSON",
            Fault::WrongId => "wrong id",
            Fault::TornBatch => "torn batch",
            Fault::PartialBatch => "batch answered in part",
            Fault::NoBatches(_) => "no batches",
            Fault::AnotherFork => "another fork",
            Fault::Stale(_) => "stale head",
            Fault::HeadBack(_) => "head going back",
            Fault::FinalOnFork => "finalized on another fork",
            Fault::FinalAhead => "finalized ahead",
            Fault::FinalEarly => "finalized too early",
            Fault::Pruned(_) => "pruned history",
            Fault::DuplicateLog => "duplicate log",
            Fault::WrongBlockHash => "wrong block hash",
            Fault::Huge(_) => "huge answer",
            Fault::WrongChainId => "wrong chain id",
            Fault::MissingStatus => "missing status",
            Fault::EmptyTraces => "empty traces",
            Fault::UnmarkedRevert => "reverted frame without error",
            Fault::TraceError => "one method of tracing broken",
        }
    }
}

impl Named for Fault {
    fn name(&self) -> &'static str {
        Fault::name(self)
    }
}
