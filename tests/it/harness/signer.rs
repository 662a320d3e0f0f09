//! A signer without keys: its addresses follow from their paths, its journal is empty, it counts how often it is asked, and it can be away.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use landfall_chain::{
    Address, Family, JournalPage, KeyPath, Refusal, SignRequest, Signed, Signer, SignerUnavailable, Signing, hash_of,
};

#[derive(Debug, Default)]
pub(crate) struct SignerDouble {
    away: AtomicBool,
    asked: AtomicUsize,
}

impl SignerDouble {
    pub(crate) fn set_away(&self, away: bool) {
        self.away.store(away, Ordering::Relaxed);
    }

    /// How often it was asked for addresses.
    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }

    /// What it answers for a path.
    pub(crate) fn address(path: &KeyPath) -> Address {
        let hash = hash_of([path.to_string().as_bytes()]);
        match path.family {
            Family::Evm => Address::Evm(*hash.first_chunk().unwrap()),
            Family::Solana => Address::Solana(hash),
        }
    }
}

impl Signer for SignerDouble {
    fn id(&self) -> &str {
        "double"
    }

    fn addresses<'s>(&'s self, paths: &'s [KeyPath]) -> Signing<'s, Vec<Address>> {
        Box::pin(async {
            self.asked.fetch_add(1, Ordering::Relaxed);
            if self.away.load(Ordering::Relaxed) {
                return Err(SignerUnavailable("it is away".to_owned()));
            }
            Ok(paths.iter().map(SignerDouble::address).collect())
        })
    }

    fn sign<'s>(&'s self, requests: &'s [SignRequest]) -> Signing<'s, Vec<Result<Signed, Refusal>>> {
        Box::pin(async { Ok(requests.iter().map(|_| Err(Refusal("it has no keys".to_owned()))).collect()) })
    }

    fn journal<'s>(&'s self, _: &'s str, behind: u64) -> Signing<'s, JournalPage> {
        Box::pin(async move { Ok(JournalPage { newest: 0, through: behind, entries: Vec::new() }) })
    }
}
