//! What can go wrong with one call.

use std::time::Duration;

/// How the next call misbehaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It answers with a transient error.
    Fail,
    /// It answers after this time.
    Late(Duration),
    /// It answers with blocks after this time, as they were before it.
    Slow(Duration),
    /// It answers with nothing: no headers, no blocks, an unknown fate. A tip has no empty answer and fails.
    Empty,
    /// It answers as a node would that is so many blocks behind.
    Lag(u64),
}
