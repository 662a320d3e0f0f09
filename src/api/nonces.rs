//! The nonces of signed requests that only read: each is accepted once in this process. The memory is bounded. When it
//! is full of nonces that could still be used, signed reads are refused rather than one of them accepted twice.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::key::request_signature::Nonce;
use crate::time::Timestamp;

/// About 30 MB. At 100 requests a second for each key, 50 keys use so many in 100 s.
const NONCES_MAX: usize = 500_000;

#[derive(Debug, Default)]
pub(super) struct Nonces(Mutex<HashMap<[u8; 32], Timestamp>>);

/// What became of a nonce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Taken {
    First,
    Again,
    Full,
}

impl Nonces {
    pub(super) fn take(&self, nonce: Nonce, now: Timestamp) -> Taken {
        self.take_of(NONCES_MAX, nonce, now)
    }

    /// Forgets nonces that can no longer be used.
    pub(super) fn forget(&self, now: Timestamp) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, expires| *expires >= now);
    }

    fn take_of(&self, most: usize, nonce: Nonce, now: Timestamp) -> Taken {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.get(&nonce.hash).is_some_and(|expires| *expires >= now) {
            return Taken::Again;
        }
        if taken.len() >= most {
            return Taken::Full;
        }
        taken.insert(nonce.hash, nonce.expires);
        Taken::First
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nonce(number: u8) -> Nonce {
        Nonce { hash: [number; 32], expires: Timestamp(10) }
    }

    #[test]
    fn a_nonce_is_taken_once_and_none_is_forgotten_while_it_could_be_used() {
        let nonces = Nonces::default();
        let take = |number, now| nonces.take_of(2, nonce(number), Timestamp(now));
        assert_eq!([take(1, 0), take(2, 0), take(3, 0)], [Taken::First, Taken::First, Taken::Full]);
        assert_eq!([take(1, 10), take(2, 10)], [Taken::Again, Taken::Again]);
        nonces.forget(Timestamp(10));
        assert_eq!(take(1, 10), Taken::Again);
        nonces.forget(Timestamp(11));
        assert_eq!([take(3, 11), take(1, 11)], [Taken::First, Taken::First]);
    }
}
