//! Solana through the crate's doors: recorded answers, made ones, bytes that are no answer at all, and nodes that lack,
//! lag and refuse.
//!
//! - `fixtures`: the recorded answers, in every shape that nodes give
//! - `recorded`: what each of them comes to, held to sums of a script that knows nothing of this crate
//! - `generated`: transactions of real programs, with what they were made to pay
//! - `rows`: the rows S1 to S14 of our catalogue of failures
//! - `wrapped`, `rent`: own SOL that changes its form is no deposit, and what comes with it is one
//! - `refused`: answers that are not whole; `repeated`: transactions that stand in a block several times
//! - `senders`: who paid, by which rule; `payers`: who is asked for it, and what refusals come to
//! - `pay`: what is asked of endpoints to make guards and to judge them
//! - `mints`: what the account of a mint says; `assets`: what nodes tell of listed mints
//! - `fuzz`: random bytes and broken answers
//! - `sources`: sources over the nodes of landfall-cluster; `slots`: what holes, forks and skipped
//!   slots come to; `refusals`: what each refusal does; `heads`: where the chain ends, what is final, which cluster it is;
//!   `polls`: what is kept of that, and what it costs
//! - `witnesses`: blocks that two endpoints must report alike, and what they do not report alike; `digests`: what of a block
//!   that is; `agreeing`: what is final when endpoints lag, stall and lie
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed, and says where")]

mod agreeing;
mod assets;
mod associated;
mod digests;
mod fixtures;
mod fuzz;
mod generated;
mod heads;
mod holdings;
mod made;
mod mints;
mod pay;
mod payers;
mod polls;
mod recorded;
mod refusals;
mod refused;
mod rent;
mod repeated;
mod rows;
mod senders;
mod slots;
mod sources;
mod witnesses;
mod wrapped;
