//! Random lies: whatever a node answers, nothing panics, and nothing but the truth is ever a credit.
//!
//! - `run`: how many inputs, from which seed, and what became of them
//! - `node`: says what lies on its table, over the smallest HTTP there is
//! - `corpus`, `reference`: true blocks, and what they pay by the plainest possible code
//! - `ask`: the questions, what a node answers to each, and the judgement
//! - `structure`: changed blocks and headers; `mutate`, `lies`, `walk`: what is changed in them, how and where
//! - `bytes`: bodies that are no answer at all, or not the one that was asked for
//! - `logs`: which logs are legs
//! - `traced`: traces by one endpoint and by two; `frames`, `frame_lies`, `pair`: what is reported, by whom, and how falsely
//! - `chain_logs`: native currency that the chain itself logs
//! - `listed`: blocks by their logs; `searched`: where to look in a range; `owned`: balances and their proofs
//! - `numbers`: numbers, bytes and transactions as alloy writes them, and as nobody should

mod ask;
mod bytes;
mod chain_logs;
mod corpus;
mod frame_lies;
mod frames;
mod lies;
mod listed;
mod logs;
mod mutate;
mod node;
mod numbers;
mod owned;
mod pair;
mod reference;
mod run;
mod searched;
mod structure;
mod traced;
mod walk;
