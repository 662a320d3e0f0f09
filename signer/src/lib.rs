//! The signer: holds the keys, judges what is to be signed, journals it, and only then signs.
//!
//! - [`words`], `keys`: the words of a seed, and the keys and addresses that follow from them
//! - `token`: an HSM in the place of the sponsors' seed, with the feature `pkcs11`
//! - [`passphrase`], [`keystore`]: the seeds, sealed in a directory that one process at a time may use
//! - [`policy`]: what may be signed; everything else is refused; [`caps`]: how much of each asset
//! - [`journal`]: what was signed, in a file whose entries are chained by hashes; it is the second fence
//! - [`embedded`]: [`Embedded`], the signer inside of the process
//! - [`socket`]: the signer in a process of its own, and how another one asks it
//!
//! Promises: no signature leaves before its entry is on disk; one transfer never gets a second content; equal requests
//! give equal bytes; no key, word or passphrase is ever printed. Deliberately not here: the store, the network, and what
//! becomes of a transaction.
#![deny(clippy::float_arithmetic)]

pub mod caps;
pub mod embedded;
pub mod journal;
pub mod keystore;
pub mod passphrase;
pub mod policy;
pub mod socket;
pub mod words;

mod keys;
mod token;

pub use caps::Cap;
pub use embedded::{Clock, Embedded};
pub use journal::{JournalError, Verified, verify};
pub use keystore::{JOURNAL, Keystore, KeystoreError, NewKeystore, WORK_FACTOR};
pub use passphrase::{Passphrase, PassphraseError};
pub use policy::{Policy, Sendable};
pub use socket::{Remote, ServeError, Server};
pub use token::{Token, TokenError, TokenPlace};
pub use words::{Words, WordsError};
