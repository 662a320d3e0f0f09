//! Random lies: whatever a node answers, nothing panics, and nothing but the truth is ever a credit.
//!
//! - `run`: how many inputs, from which seed, and what became of them
//! - `node`: says what lies on its table, over the smallest HTTP there is
//! - `corpus`, `reference`: true blocks, and what they pay by the plainest possible code
//! - `ask`: the questions, what a node answers to each, and the judgement
//! - `structure`: changed blocks and headers; `mutate`, `lies`, `walk`: what is changed in them, how and where
//! - `bytes`: bodies that are no answer at all, or not the one that was asked for
//! - `logs`: which logs are legs
//! - `traced`: true traces; `frames`: what is told
//! - `chain_logs`: native currency that the chain itself logs
//! - `numbers`: numbers, bytes and transactions as alloy writes them, and as nobody should

mod ask;
mod bytes;
mod chain_logs;
mod corpus;
mod frames;
mod lies;
mod logs;
mod mutate;
mod node;
mod numbers;
mod reference;
mod run;
mod structure;
mod traced;
mod walk;
