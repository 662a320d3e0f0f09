//! Landfall: watches chains for money that arrives at a custody service's accounts.
//!
//! The pipeline, once for all chains:
//!
//! ```text
//! tip -> fork point (disconnect what is stale) -> blocks(cursor+1 ..= last), fetched ahead in parallel
//!     -> match with the watch list -> ONE transaction { block, deposits, events, cursor by compare-and-set }
//!     -> settle what is final:        ONE transaction { re-derived evidence, status, events }
//! ```
//!
//! What each module is for, and which may name which: `ARCHITECTURE.md`; `tests/it/rules/layers.rs` keeps it so.

// Floor 2, pure: the things of the domain, and how they may change.
pub mod account; // accounts, and the addresses that they have
pub mod amount; // base units as decimal text, and back
pub mod balance; // how much of an asset an account holds, and how much of it may be spent
pub mod deposit; // deposits, their ids and their states
pub mod event; // what clients are sent, byte for byte
pub mod gas; // what sending costs, and who bears it
pub mod identity; // who owns accounts
pub mod incident; // what a person must check
pub mod key; // API keys, scopes, signed requests
pub mod overrides; // what operators put in place of a rule
pub mod policy; // limits that operators put on transfers
pub mod printable; // what may stand in a line of a log
pub mod random; // random bytes, as an argument
pub mod request; // request ids, so that a request may come twice
pub mod secrets;
pub mod sender; // values that are never shown
pub mod time; // moments, and the clock as an argument
pub mod transfer; // money that accounts send, its ids and its states
pub mod webhook; // where webhooks may lead, and how they are signed

// Floor 3: all SQL, and those who register and decide through it.
pub mod hosts; // under which host names the routes without a key are served
pub mod lease; // work that only one process at a time may do
pub mod operator; // what operators decide, audited
pub mod registry; // registers identities, accounts, transfers, keys and webhooks, for operators and clients
pub mod resolver; // the addresses of webhooks' names, vetted
pub mod store; // SQLite and PostgreSQL

// Floor 4: they never name each other and meet in the store.
pub mod api; // HTTP for clients
pub mod delivery; // sends events to webhooks and NATS
pub mod doctor; // what sending needs, asked for now
pub mod feed; // numbers events for clients that read them in sequence
pub mod health; // status, health, the admin port
pub mod prices; // reads what native currencies cost
pub mod receiver; // the other end of a webhook
pub mod watcher; // follows a chain

// Above: the configuration, the composition root, the program.
pub mod app; // starts and stops everything, and knows which chains exist
pub mod cli; // a file for each noun of the command line
pub mod config; // the configuration, checked before anything opens
pub mod sandbox; // the main job on private chains, and its books
pub mod telemetry; // logging, to stderr
