//! Random lies: whatever a node answers, nothing panics, and nothing but the truth is ever a credit.
//!
//! - `run`: how many inputs, from which seed, and what became of them
//! - `node`: says what lies on its table, over the smallest HTTP there is
//! - `corpus`, `reference`: true blocks, and what they pay by the plainest possible code
//! - `ask`: the questions, what a node answers to each, and the judgement
//! - `mutate`, `structure`: changed blocks and headers
//! - `bytes`: bodies that are no answer at all, or not the one that was asked for
//! - `logs`: which logs are legs
//! - `numbers`: numbers, bytes and transactions as alloy writes them, and as nobody should

mod ask;
mod bytes;
mod corpus;
mod logs;
mod mutate;
mod node;
mod numbers;
mod reference;
mod run;
mod structure;
