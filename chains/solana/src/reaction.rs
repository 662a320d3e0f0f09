//! What follows when a node refuses a call: one table, by the codes of agave's `custom_error.rs` and of providers.
//!
//! No answer among them says "this slot is empty": the next block's parent says that (`links`). Deliberately not here:
//! a null, which is an answer without what was asked for (`calls`). No answer, other statuses of HTTP and what is no
//! JSON say nothing of Solana (`landfall_rpc`: the endpoint cools down, and another is asked).

/// What to do about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reaction {
    /// The slot stays open: not there yet, or not there any more, or empty. Wait, then list the slots again and let
    /// the parents decide; a block that must be there is asked for elsewhere.
    LeaveOpen,
    /// As before, but this node will not get it any more: ask one that keeps more history.
    AskArchive,
    /// It will be there in about a slot: ask another endpoint meanwhile, and this one again with the next try.
    AskAgain,
    /// Ask another endpoint: this one is behind, broken, or does not know what others know.
    AskElsewhere,
    /// Ask another endpoint, and this one only after a pause that grows.
    BackOff,
    /// Ask for transactions up to this version, where the node names it; where that was done before, a person must act.
    RaiseVersion { to: Option<u8> },
    /// This endpoint can never answer such calls: it cools down, and its status says what a person should do about it.
    /// If it lasts for five minutes it is an alarm of the chain, until the endpoint answers one.
    Drop,
    /// Our question was wrong for it: the same, and a person must look at it.
    Page,
}

const NAMED_VERSION: &str = "\"maxSupportedTransactionVersion\":";
const NEEDED_VERSION: &str = "version (";

impl Reaction {
    /// What follows from a JSON-RPC error.
    pub fn to(code: i64, message: &str) -> Self {
        match code {
            // BlockNotAvailable; SlotSkipped, which counts what fell into a hole of the ledger too.
            -32004 | -32007 => Reaction::LeaveOpen,
            // BlockCleanedUp; LongTermStorageSlotSkipped, whose storage has holes.
            -32001 | -32009 => Reaction::AskArchive,
            // BlockStatusNotAvailableYet; LongTermStorageUnreachable.
            -32014 | -32019 => Reaction::AskAgain,
            // NodeUnhealthy; MinContextSlotNotReached; FilterTransactionNotFound.
            -32005 | -32016 | -32020 => Reaction::AskElsewhere,
            // UnsupportedTransactionVersion.
            -32015 => Reaction::RaiseVersion { to: version(message) },
            // TransactionHistoryNotAvailable; KeyExcludedFromSecondaryIndex, ScanError; NoSlotHistory.
            -32012..=-32010 | -32021 => Reaction::Drop,
            // Invalid request, unknown method, wrong parameters.
            -32602..=-32600 => Reaction::Page,
            // What providers report for too many calls; every unknown code.
            -32429 | 429 => Reaction::BackOff,
            _ => Reaction::AskElsewhere,
        }
    }

    /// What a person should know of an endpoint that refuses so.
    pub(crate) const fn advice(self) -> Option<&'static str> {
        match self {
            Reaction::Drop => Some("it never will: have its history and indexes switched on, or take it out"),
            Reaction::Page => Some("what is asked for is not understood there, and a person must look"),
            Reaction::LeaveOpen
            | Reaction::AskArchive
            | Reaction::AskAgain
            | Reaction::AskElsewhere
            | Reaction::BackOff
            | Reaction::RaiseVersion { .. } => None,
        }
    }
}

/// The version that the node names as what is needed.
fn version(message: &str) -> Option<u8> {
    let number = |mark: &str| {
        let rest = message[message.find(mark)? + mark.len()..].trim_start();
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    };
    number(NAMED_VERSION).or_else(|| number(NEEDED_VERSION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_has_its_reaction() {
        let cases = [
            (-32001, "Block 5 cleaned up, does not exist on node. First available block: 9", Reaction::AskArchive),
            (-32002, "Transaction simulation failed: Blockhash not found", Reaction::AskElsewhere),
            (-32004, "Block not available for slot 5", Reaction::LeaveOpen),
            (-32005, "Node is behind by 42 slots", Reaction::AskElsewhere),
            (-32007, "Slot 5 was skipped, or missing due to ledger jump to recent snapshot", Reaction::LeaveOpen),
            (-32009, "Slot 5 was skipped, or missing in long-term storage", Reaction::AskArchive),
            (-32010, "excluded from account secondary indexes", Reaction::Drop),
            (-32011, "Transaction history is not available from this node", Reaction::Drop),
            (-32012, "scan error", Reaction::Drop),
            (-32014, "Block status not yet available for slot 5", Reaction::AskAgain),
            (-32016, "Minimum context slot has not been reached", Reaction::AskElsewhere),
            (-32019, "Failed to query long-term storage; please try again", Reaction::AskAgain),
            (-32020, "Transaction not found", Reaction::AskElsewhere),
            (-32021, "No slot history", Reaction::Drop),
            (-32022, "of a newer node", Reaction::AskElsewhere),
            (-32600, "Invalid request", Reaction::Page),
            (-32601, "Method not found", Reaction::Page),
            (-32602, "Invalid params", Reaction::Page),
            (-32429, "too many requests", Reaction::BackOff),
            (429, "rate limited", Reaction::BackOff),
            (-32603, "Internal error", Reaction::AskElsewhere),
            (-32099, "of tomorrow", Reaction::AskElsewhere),
        ];
        for (code, message, expected) in cases {
            assert_eq!(Reaction::to(code, message), expected, "{code}");
        }
    }

    #[test]
    fn an_unsupported_transaction_raises_the_version_to_the_one_that_is_named() {
        let cases = [
            (
                "Transaction version (1) is not supported by the requesting client. Please try the request again with \
                 the following configuration parameter: \"maxSupportedTransactionVersion\": 1",
                Some(1),
            ),
            ("Transaction version (2) is not supported", Some(2)),
            ("Transaction version (300) is not supported", None),
            ("\"maxSupportedTransactionVersion\":", None),
            ("no", None),
        ];
        for (message, to) in cases {
            assert_eq!(Reaction::to(-32015, message), Reaction::RaiseVersion { to }, "{message}");
        }
    }
}
