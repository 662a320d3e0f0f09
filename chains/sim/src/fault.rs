//! What can go wrong with one call.

use std::time::Duration;

use landfall_chain::Address;

/// How the next call misbehaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// It answers with a transient error.
    Fail,
    /// It answers with a permanent error: what it is asked for is not offered.
    Refuse,
    /// It answers after this time.
    Late(Duration),
    /// It answers not before [`crate::SimChain::release`]; a call for blocks with what they were when it was asked.
    Held,
    /// It answers with nothing: no headers, no blocks, an unknown fate. A tip has no empty answer and fails.
    Empty,
    /// It answers as a node would that is so many blocks behind.
    Lag(u64),
    /// Blocks: the first transaction pays this address so much more, says the node.
    Invent(Address, u64),
    /// Blocks: the first transaction pays this address so much more and takes it away again, says the node.
    Churn(Address, u64),
    /// Blocks: all that was paid to this address was one leg of the first transaction, says the node.
    Merge(Address),
    /// Blocks: nothing was paid to this address, says the node.
    Hide(Address),
    /// Blocks: no transaction was signed by whom the node names.
    Forge,
}

impl Fault {
    /// Whether it reports another block than there is.
    pub(crate) const fn is_lie(self) -> bool {
        matches!(self, Fault::Invent(..) | Fault::Churn(..) | Fault::Merge(_) | Fault::Hide(_))
    }

    /// Its name in a tally.
    pub const fn name(self) -> &'static str {
        match self {
            Fault::Fail => "fail",
            Fault::Refuse => "refuse",
            Fault::Late(_) => "late",
            Fault::Held => "held",
            Fault::Empty => "empty",
            Fault::Lag(_) => "lag",
            Fault::Invent(..) => "invent",
            Fault::Churn(..) => "churn",
            Fault::Merge(_) => "merge",
            Fault::Hide(_) => "hide",
            Fault::Forge => "forge",
        }
    }
}
