//! The signer through its doors: a keystore in a directory, its journal, and the port.
#![expect(clippy::unwrap_used, reason = "a test fails where it unwraps")]

mod caps;
mod guarded;
mod journal;
mod keystore;
mod rotation;
mod signing;
mod socket;
mod world;
