//! How nodes refuse a call: the codes and words of agave's `custom_error.rs`, and those of JSON-RPC and of providers.

use serde_json::{Value, json};

use crate::answer::Refused;

/// One way to refuse.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    BlockCleanedUp,
    PreflightFailure,
    BlockNotAvailable,
    NodeUnhealthy,
    SlotSkipped,
    LongTermStorageSlotSkipped,
    KeyExcluded,
    HistoryNotAvailable,
    Scan,
    BlockStatusNotAvailableYet,
    /// A transaction of this version, whatever was asked for.
    TransactionVersion(u8),
    MinContextSlotNotReached,
    LongTermStorageUnreachable,
    FilterTransactionNotFound,
    NoSlotHistory,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
    RateLimited,
    /// Any other code: of calls that we do not make, or of tomorrow.
    Other(i64),
}

/// The methods that report one slot.
const OF_SLOTS: [&str; 2] = ["getBlock", "getBlockTime"];

impl Refusal {
    /// Those that have a reaction of their own, and those of JSON-RPC.
    pub const ALL: [Refusal; 20] = [
        Refusal::BlockCleanedUp,
        Refusal::PreflightFailure,
        Refusal::BlockNotAvailable,
        Refusal::NodeUnhealthy,
        Refusal::SlotSkipped,
        Refusal::LongTermStorageSlotSkipped,
        Refusal::KeyExcluded,
        Refusal::HistoryNotAvailable,
        Refusal::Scan,
        Refusal::BlockStatusNotAvailableYet,
        Refusal::TransactionVersion(1),
        Refusal::MinContextSlotNotReached,
        Refusal::LongTermStorageUnreachable,
        Refusal::FilterTransactionNotFound,
        Refusal::NoSlotHistory,
        Refusal::InvalidRequest,
        Refusal::MethodNotFound,
        Refusal::InvalidParams,
        Refusal::Internal,
        Refusal::RateLimited,
    ];

    pub const fn code(self) -> i64 {
        match self {
            Refusal::BlockCleanedUp => -32_001,
            Refusal::PreflightFailure => -32_002,
            Refusal::BlockNotAvailable => -32_004,
            Refusal::NodeUnhealthy => -32_005,
            Refusal::SlotSkipped => -32_007,
            Refusal::LongTermStorageSlotSkipped => -32_009,
            Refusal::KeyExcluded => -32_010,
            Refusal::HistoryNotAvailable => -32_011,
            Refusal::Scan => -32_012,
            Refusal::BlockStatusNotAvailableYet => -32_014,
            Refusal::TransactionVersion(_) => -32_015,
            Refusal::MinContextSlotNotReached => -32_016,
            Refusal::LongTermStorageUnreachable => -32_019,
            Refusal::FilterTransactionNotFound => -32_020,
            Refusal::NoSlotHistory => -32_021,
            Refusal::InvalidRequest => -32_600,
            Refusal::MethodNotFound => -32_601,
            Refusal::InvalidParams => -32_602,
            Refusal::Internal => -32_603,
            Refusal::RateLimited => -32_429,
            Refusal::Other(code) => code,
        }
    }

    /// A word for it: its code.
    pub const fn name(self) -> &'static str {
        match self {
            Refusal::BlockCleanedUp => "-32001",
            Refusal::PreflightFailure => "-32002",
            Refusal::BlockNotAvailable => "-32004",
            Refusal::NodeUnhealthy => "-32005",
            Refusal::SlotSkipped => "-32007",
            Refusal::LongTermStorageSlotSkipped => "-32009",
            Refusal::KeyExcluded => "-32010",
            Refusal::HistoryNotAvailable => "-32011",
            Refusal::Scan => "-32012",
            Refusal::BlockStatusNotAvailableYet => "-32014",
            Refusal::TransactionVersion(_) => "-32015",
            Refusal::MinContextSlotNotReached => "-32016",
            Refusal::LongTermStorageUnreachable => "-32019",
            Refusal::FilterTransactionNotFound => "-32020",
            Refusal::NoSlotHistory => "-32021",
            Refusal::InvalidRequest => "-32600",
            Refusal::MethodNotFound => "-32601",
            Refusal::InvalidParams => "-32602",
            Refusal::Internal => "-32603",
            Refusal::RateLimited => "-32429",
            Refusal::Other(_) => "another code",
        }
    }

    /// Whether agave may say so to a call of `method`: what it says of slots it says where one is asked for.
    pub(crate) fn fits(self, method: &str) -> bool {
        match self {
            Refusal::BlockCleanedUp
            | Refusal::BlockNotAvailable
            | Refusal::SlotSkipped
            | Refusal::LongTermStorageSlotSkipped
            | Refusal::BlockStatusNotAvailableYet => OF_SLOTS.contains(&method),
            Refusal::TransactionVersion(_) => matches!(method, "getBlock" | "getTransaction"),
            Refusal::FilterTransactionNotFound => method == "getSignaturesForAddress",
            Refusal::PreflightFailure
            | Refusal::NodeUnhealthy
            | Refusal::KeyExcluded
            | Refusal::HistoryNotAvailable
            | Refusal::Scan
            | Refusal::MinContextSlotNotReached
            | Refusal::LongTermStorageUnreachable
            | Refusal::NoSlotHistory
            | Refusal::InvalidRequest
            | Refusal::MethodNotFound
            | Refusal::InvalidParams
            | Refusal::Internal
            | Refusal::RateLimited
            | Refusal::Other(_) => true,
        }
    }

    /// In agave's words; `asked` is the first parameter of the call.
    pub(crate) fn to_call(self, asked: &Value) -> Refused {
        let asked = asked.as_str().map_or_else(|| asked.to_string(), str::to_owned);
        let message = match self {
            Refusal::BlockCleanedUp => {
                format!("Block {asked} cleaned up, does not exist on node. First available block: 999999999")
            }
            Refusal::PreflightFailure => "Transaction simulation failed: Blockhash not found".to_owned(),
            Refusal::BlockNotAvailable => format!("Block not available for slot {asked}"),
            Refusal::NodeUnhealthy => "Node is behind by 42 slots".to_owned(),
            Refusal::SlotSkipped => {
                format!("Slot {asked} was skipped, or missing due to ledger jump to recent snapshot")
            }
            Refusal::LongTermStorageSlotSkipped => {
                format!("Slot {asked} was skipped, or missing in long-term storage")
            }
            Refusal::KeyExcluded => {
                format!("{asked} excluded from account secondary indexes; this RPC method unavailable for key")
            }
            Refusal::HistoryNotAvailable => "Transaction history is not available from this node".to_owned(),
            Refusal::Scan => "scan aborted".to_owned(),
            Refusal::BlockStatusNotAvailableYet => format!("Block status not yet available for slot {asked}"),
            Refusal::TransactionVersion(version) => format!(
                "Transaction version ({version}) is not supported by the requesting client. Please try the request \
                 again with the following configuration parameter: \"maxSupportedTransactionVersion\": {version}"
            ),
            Refusal::MinContextSlotNotReached => "Minimum context slot has not been reached".to_owned(),
            Refusal::LongTermStorageUnreachable => "Failed to query long-term storage; please try again".to_owned(),
            Refusal::FilterTransactionNotFound => format!("Transaction {asked} not found"),
            Refusal::NoSlotHistory => "No slot history".to_owned(),
            Refusal::InvalidRequest => "Invalid request".to_owned(),
            Refusal::MethodNotFound => "Method not found".to_owned(),
            Refusal::InvalidParams => "Invalid params".to_owned(),
            Refusal::Internal => "Internal error".to_owned(),
            Refusal::RateLimited => "too many requests".to_owned(),
            Refusal::Other(_) => "of another kind".to_owned(),
        };
        let data = match self {
            Refusal::NodeUnhealthy => Some(json!({ "numSlotsBehind": 42 })),
            Refusal::MinContextSlotNotReached => Some(json!({ "contextSlot": 1 })),
            _ => None,
        };
        Refused { code: self.code(), message, data }
    }
}
