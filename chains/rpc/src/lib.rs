//! Endpoints that speak JSON-RPC: how they are asked, which of them is asked, and what they agree on.
//!
//! - `pool`: the endpoints of one network
//!   - `places`: where they are
//!   - `endpoint`, `calls`, `pace`, `learnt`: one endpoint, what it is asked, how fast, what it was found to serve
//!   - `poll`, `wake`: how one poll went; connections that only say when to poll
//!   - `agree`, `branches`, `heads`: what is agreed on as final, which branch they follow, who leads
//!   - `reads`, `outcome`, `fates`: who serves a read, how it went, what became of a transaction
//!   - `broadcast`: who is handed a transaction
//! - `http`: batches over HTTP, the answers in them (`envelope`), and what of a failure may be reported (`answer`)
//! - `lately`: what was reported lately and need not be asked for again at once
//! - `limits`: what a node or provider means when it refuses
//! - `dialect`: what only a family of chains can say: how to poll, what a report makes final, how bad a failure is
//! - `error`: what can go wrong in every family
//! - `timings`: how long endpoints are waited for and left alone
//!
//! Promises: no secret of a URL or header leaves this crate. Every request ends. What one endpoint reports counts as
//! one endpoint's report until others agree. Deliberately not here: what blocks hold and what proves them; that is
//! each family's.
#![deny(clippy::float_arithmetic)]

mod dialect;
mod error;
mod http;
mod lately;
mod limits;
mod pool;
mod timings;

pub use dialect::{Dialect, Fault, HeadReport, Question, Subscription};
pub use error::RpcError;
pub use http::answer::{Answer, Raw};
pub use http::{Call, NodeError};
pub use lately::Lately;
pub use limits::{Codes, Limit};
pub use pool::Pool;
pub use pool::broadcast::{Words, refusal};
pub use pool::endpoint::Endpoint;
pub use pool::places::EndpointUrl;
pub use pool::reads::{Need, Responses};
pub use timings::{Doubling, Timings};
