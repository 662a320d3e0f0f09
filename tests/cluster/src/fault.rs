//! How a node misbehaves.

use std::time::Duration;

use landfall_node::strikes::Named;

use crate::refusal::Refusal;

/// One way to misbehave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// A call is refused.
    Refuse(Refusal),
    /// A result that is there is null.
    Null,
    /// A transaction of a block has no `meta`: it is null, or it is left out.
    NullMeta,
    NoMeta,
    /// A transaction of a block does not show whether it failed.
    NoErr,
    /// A block does not report its time.
    NoTime,
    /// A block reports all its transactions but the first.
    LeftOut,
    /// Token balances stand in another order.
    Unordered,
    /// Lists leave out a slot, or are empty.
    ShortList,
    EmptyList,
    /// Lists name every slot, also those without a block.
    LongList,
    /// Blocks have fallen into a hole of the ledger: neither lists nor blocks show every third slot.
    Hole,
    /// The same, and the next block is said to stand on the one before: every third slot looks skipped.
    LinkedOver,
    /// What lies more than so many slots behind is gone.
    Pruned(u64),
    /// A block stands on another one than it does.
    WrongParent,
    /// The node follows a branch that never wins.
    AnotherFork,
    /// The node is so many slots behind.
    Stale(u64),
    /// The node is so many slots behind at every other call.
    HeadBack(u64),
    /// A newest block is reported so many slots above all that there is.
    HeadAhead(u64),
    /// A gateway drops `minContextSlot`: where the node has not come so far, a list is empty.
    AnyContext,
    /// A block of another branch is called final; one above the newest one is; the newest one is.
    FinalOnFork,
    FinalAhead,
    FinalEarly,
    /// Nothing newer becomes final.
    FinalStill,
    /// Another cluster's genesis hash.
    WrongGenesis,
    /// HTTP 429, with and without a `Retry-After`.
    TooManyRequests {
        retry_after_secs: Option<u64>,
    },
    /// HTTP 502 with a page instead of an answer.
    ServerError,
    /// A page instead of an answer, and HTTP 200.
    Page,
    /// The connection is reset instead of an answer.
    Reset,
    /// The answer comes, but takes so long, a few bytes at a time.
    Drip(Duration),
    /// The answer ends in the middle.
    Truncated,
    /// The answer is said to be compressed, and ends in the middle of that.
    BrokenGzip,
    /// The answer is to another question.
    WrongId,
}

impl Fault {
    /// Every fault but the refusals, at sizes that fit a ledger of some hundred slots. A new one comes last: seeds go
    /// by places.
    pub const OTHERS: [Fault; 33] = [
        Fault::Null,
        Fault::NullMeta,
        Fault::NoMeta,
        Fault::NoErr,
        Fault::NoTime,
        Fault::LeftOut,
        Fault::Unordered,
        Fault::ShortList,
        Fault::EmptyList,
        Fault::Hole,
        Fault::LinkedOver,
        Fault::Pruned(3),
        Fault::WrongParent,
        Fault::AnotherFork,
        Fault::Stale(4),
        Fault::HeadBack(3),
        Fault::FinalOnFork,
        Fault::FinalAhead,
        Fault::FinalEarly,
        Fault::FinalStill,
        Fault::WrongGenesis,
        Fault::TooManyRequests { retry_after_secs: None },
        Fault::TooManyRequests { retry_after_secs: Some(1) },
        Fault::ServerError,
        Fault::Page,
        Fault::Reset,
        Fault::Drip(Duration::from_millis(200)),
        Fault::Truncated,
        Fault::BrokenGzip,
        Fault::WrongId,
        Fault::LongList,
        Fault::HeadAhead(1_000),
        Fault::AnyContext,
    ];

    /// Every fault.
    pub fn all() -> Vec<Fault> {
        Refusal::ALL.into_iter().map(Fault::Refuse).chain(Fault::OTHERS).collect()
    }

    /// Whether it strikes a whole request, before or behind its answer.
    pub(crate) const fn is_of_transport(&self) -> bool {
        matches!(
            self,
            Fault::TooManyRequests { .. }
                | Fault::ServerError
                | Fault::Page
                | Fault::Reset
                | Fault::Drip(_)
                | Fault::Truncated
                | Fault::BrokenGzip
                | Fault::WrongId
        )
    }

    /// Whether it changes what the node has.
    pub(crate) const fn is_of_view(&self) -> bool {
        matches!(
            self,
            Fault::Hole
                | Fault::LinkedOver
                | Fault::Pruned(_)
                | Fault::AnotherFork
                | Fault::Stale(_)
                | Fault::HeadBack(_)
                | Fault::AnyContext
                | Fault::FinalEarly
                | Fault::FinalStill
        )
    }

    /// A word for it; the same for all sizes of a fault.
    pub const fn name(&self) -> &'static str {
        match self {
            Fault::Refuse(refusal) => refusal.name(),
            Fault::Null => "null",
            Fault::NullMeta => "null meta",
            Fault::NoMeta => "no meta",
            Fault::NoErr => "no err",
            Fault::NoTime => "no time",
            Fault::LeftOut => "transactions left out",
            Fault::Unordered => "balances in another order",
            Fault::ShortList => "short list",
            Fault::EmptyList => "empty list",
            Fault::LongList => "long list",
            Fault::Hole => "hole in the ledger",
            Fault::LinkedOver => "blocks linked over",
            Fault::Pruned(_) => "pruned ledger",
            Fault::WrongParent => "wrong parent",
            Fault::AnotherFork => "another fork",
            Fault::Stale(_) => "stale head",
            Fault::HeadBack(_) => "head going back",
            Fault::HeadAhead(_) => "head far ahead",
            Fault::AnyContext => "minContextSlot dropped",
            Fault::FinalOnFork => "finalized on another fork",
            Fault::FinalAhead => "finalized ahead",
            Fault::FinalEarly => "finalized too early",
            Fault::FinalStill => "finality stands still",
            Fault::WrongGenesis => "wrong genesis hash",
            Fault::TooManyRequests { retry_after_secs: None } => "429",
            Fault::TooManyRequests { retry_after_secs: Some(_) } => "429 with Retry-After",
            Fault::ServerError => "502",
            Fault::Page => "a page instead of an answer",
            Fault::Reset => "reset",
            Fault::Drip(_) => "slow drip",
            Fault::Truncated => "truncated JSON",
            Fault::BrokenGzip => "broken gzip",
            Fault::WrongId => "wrong id",
        }
    }
}

impl Named for Fault {
    fn name(&self) -> &'static str {
        Fault::name(self)
    }
}
