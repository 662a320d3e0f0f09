//! Endpoints that speak JSON-RPC: how they are asked, which of them is asked, and what they agree on.
//!
//! - `pool`: the endpoints of one network; within: where they are (`places`), one endpoint ([`Endpoint`], `calls`), what
//!   it was found to serve (`learnt`), who leads (`heads`), what is agreed on as final (`agree`), who serves a read and
//!   how it went (`reads`, `outcome`), how one poll went (`poll`), connections that only say when to look (`wake`)
//! - `http`: batches over HTTP, the answers in them (`envelope`), and what of a failure may be reported (`answer`)
//! - `limits`: what a node or provider means when it says no
//! - `dialect`: what only a family of chains can say: how to poll, what is final by what was reported, how bad a failure is
//! - `error`: what can go wrong whatever the family
//!
//! Promises: no secret of a URL or header leaves this crate; every request ends; what one endpoint says is its own word
//! until others agree. Deliberately not here: what blocks hold and what proves them; that is each family's.
#![deny(clippy::float_arithmetic)]

mod dialect;
mod error;
mod http;
mod limits;
mod pool;

pub use dialect::{Dialect, Fault, HeadReport, Question, Subscription};
pub use error::RpcError;
pub use http::answer::{Answer, Raw};
pub use http::{Call, NodeError};
pub use limits::{Codes, Limit};
pub use pool::Pool;
pub use pool::endpoint::Endpoint;
pub use pool::places::EndpointUrl;
pub use pool::reads::{Need, Responses};
