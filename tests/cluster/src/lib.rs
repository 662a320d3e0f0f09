//! A Solana ledger in memory and JSON-RPC nodes that show it, each with a view and with faults of its own.
//!
//! - [`ledger`]: the chain of one branch and its verbs: produce, skip, roll back, branch off, finalize; [`block`]: a
//!   block
//! - [`tx`]: what stands in blocks, and the payments that it makes; [`recorded`]: a block of mainnet's size
//! - [`node`]: one endpoint: what of a ledger it shows, and the counts; `view`: the same as the methods see it
//! - `answer`, `history`: the methods, as agave answers them; [`refusal`]: its codes and words
//! - [`fault`]: how a node misbehaves; `spoil`: what that makes of an answer
//!
//! Sockets, and when faults strike, are landfall-node's. Promises: the same calls give the same ledger; two blocks of
//! two branches never have the same hash; what a ledger says is final, and what was paid by then, is what is true.
//! Deliberately not here: programs and balances that live on. A test decides what a transaction does.

pub mod block;
pub mod fault;
pub mod ledger;
pub mod node;
pub mod recorded;
pub mod refusal;
pub mod tx;

mod answer;
mod history;
mod spoil;
mod view;

pub use block::{Block, TIME, hash};
pub use fault::Fault;
pub use landfall_node::When;
pub use ledger::{Finality, Ledger};
pub use node::{Before, Counts, GENESIS, Instead, Lists, MethodAnswer, Node, OwnAnswer, SlotOrder};
pub use refusal::Refusal;
pub use tx::{FEE, Payment, Tx, Version};
