//! The types that all chains share: no I/O, no SDK, no async runtime.
//!
//! - [`network`]: the chains of the interface and the facts about each
//! - [`address`], [`tx`], [`asset`]: who, where and what, as bytes with one text form each
//! - [`block`]: blocks, headers, the tip, and what proves them
//! - [`nobody`]: addresses that are nobody's, by family and network
//! - [`finality`]: when a block counts as final
//! - [`verdict`], [`sender`], [`signers`]: why a movement is a credit or none; how its sender is known; who signed it
//! - [`source`]: what a watcher reads of a chain, and how a read fails
//! - [`searching`]: how far a search of single addresses has come
//! - [`facts`]: what a chain itself says of the assets that are listed
//! - [`holdings`]: what addresses hold at a final block
//! - [`hashing`]: hashes of lists of fields
//! - [`intent`], [`mark`]: what a payer signs for a transfer and the chain takes once; what a block shows of it
//! - [`delegate`]: code that acts for a wallet, so that somebody else can pay for its payment
//! - [`signing`], [`paying`]: what is asked of who holds the keys, and of a chain on which a sponsor pays
//! - [`endpoint`]: the health of the nodes behind a source
//! - [`causes`]: an error with what caused it
//! - [`retry`]: how long to wait before trying again
//!
//! Promises: a value that parses prints back to one canonical text; amounts are integers in base units.
#![warn(missing_docs)]
#![deny(clippy::wildcard_enum_match_arm, clippy::float_arithmetic)]

pub mod address;
pub mod asset;
pub mod block;
pub mod causes;
pub mod delegate;
pub mod endpoint;
pub mod facts;
pub mod finality;
pub mod hashing;
mod hex_form;
pub mod holdings;
pub mod intent;
pub mod mark;
pub mod network;
pub mod nobody;
pub mod paying;
pub mod retry;
pub mod searching;
pub mod sender;
pub mod signers;
pub mod signing;
pub mod source;
pub mod tx;
pub mod verdict;

pub use address::Address;
pub use asset::{AssetId, AssetTransfer, number_equal_legs};
pub use block::{Block, BlockHash, BlockRef, Debits, Fee, Header, Inside, Proof, Rejected, Tip};
pub use causes::with_causes;
pub use delegate::{Acting, Authorization, CLEARINGS_MAX, Delegate, SignedAuthorization};
pub use endpoint::{EndpointState, EndpointStatus, Endpoints, Refused};
pub use facts::{AssetFacts, AssetSource, Terms, TransferFee, reported_alike};
pub use finality::{Finality, FinalityRule, RuleError, RuleName, Tag, Tier};
pub use hashing::hash_of;
pub use holdings::{Holding, HoldingSource, Holdings, ReportedHolding, holdings_reported_alike};
pub use intent::{Intent, IntentKey, Route, SignedIntent};
pub use mark::{Effect, Mark};
pub use network::{Asset, Chain, Family, Native, NativeSource, Network, Sending};
pub use nobody::{Nobodys, nobodys, what_of_nobody};
pub use paying::{
    BroadcastResponse, FeeMarket, GuardQuote, KeyReport, Maker, PayingChain, Quote, Readiness, ReclaimQuote, Unpayable,
};
pub use retry::Retry;
pub use ruint::aliases::U256;
pub use searching::{Pages, Searched, Searching};
pub use sender::{Payer, SenderRule};
pub use signers::Signers;
pub use signing::{
    Carried, Carrier, GUARD_RENT_MAX, GUARD_RETENTION_HOURS_MIN, GuardTerms, Guarded, GuardedRefill,
    JOURNAL_ENTRIES_MAX, JournalPage, Journaled, KeyPath, RECLAIM_GUARDS_MAX, Reclaim, Refill, Refusal,
    SIGN_REQUESTS_MAX, Seed, SignRequest, Signed, Signer, SignerUnavailable, Signing,
};
pub use source::{
    AccountState, AddressSource, BlockSource, Candidates, Fate, Found, Lane, Legs, Named, Read, ReadProof, Search,
    SourceError, SourceErrorKind, UnknownProof, Watched,
};
pub use tx::{TxId, TxLife, TxRef};
pub use verdict::Verdict;
