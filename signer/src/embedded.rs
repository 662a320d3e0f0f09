//! The signer inside of the process: keystore, journal and policy behind the port.
//!
//! Promises: a batch is journaled with one write before any signature of it leaves; where that fails, or a token does not
//! answer, none does. The entry of a transaction has its id, by which others recognize it, and what a token signed. A call
//! that is dropped runs to its end: then its entries are there, and asking again gives the same bytes.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use coins_bip32::ecdsa::SigningKey;
use ed25519_dalek::Signer as _;
use landfall_chain::{
    Address, Authorization, Carried, Carrier, Family, Guarded, GuardedRefill, Intent, JournalPage, KeyPath, Reclaim,
    Refill, Refusal, Route, SIGN_REQUESTS_MAX, SignRequest, Signed, SignedAuthorization, Signer, SignerUnavailable,
    Signing, TxId, with_causes,
};
use landfall_evm::pay::{
    PayError, authorization_digest, cancellation_digest, carrier as unsigned_carrier, intent_digest, signer_of,
};
use landfall_solana::pay::{guarded as unsigned_guarded, reclaim as unsigned_reclaim, refill as unsigned_refill};

use crate::journal::{Draft, Journal, Made, Seen};
use crate::keys::{Key, KeyError, evm_address, signature, solana_address};
use crate::policy::{Known, KnownGuard, KnownGuarded, KnownSigned, Policy};
use crate::{Keystore, KeystoreError, Passphrase};

/// How the policy judges what a wallet signs about its code.
type Judge = fn(&Policy, &KeyPath, Address, &Authorization, Seen) -> Result<(), Refusal>;

/// The signer's own clock: seconds since 1970.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// A signer with its keys in this process.
#[derive(Debug)]
pub struct Embedded {
    id: String,
    inner: Arc<Inner>,
}

struct Inner {
    keystore: Keystore,
    policy: Policy,
    clock: Clock,
    journal: Mutex<Journal>,
}

/// What leaves once its entry is on disk.
enum Ready {
    Digest {
        seq: u64,
        key: SigningKey,
        digest: [u8; 32],
    },
    /// A transaction: its id stands in the entry.
    Tx {
        seq: u64,
        bytes: Vec<u8>,
        tx: TxId,
    },
    /// The payer signs each transaction that pays it, and nothing before.
    Noted {
        seq: u64,
    },
}

/// Why a request is not signed.
enum Unsigned {
    Refused(Refusal),
    Away(SignerUnavailable),
}

impl Embedded {
    /// Opens a keystore and its journal.
    ///
    /// # Errors
    /// Either cannot be opened, or another process has them open.
    pub fn open(dir: &Path, passphrase: &Passphrase, policy: Policy, clock: Clock) -> Result<Self, KeystoreError> {
        Embedded::of(Keystore::open(dir, passphrase)?, policy, clock)
    }

    /// Opens the journal of a keystore that is open.
    ///
    /// # Errors
    /// It cannot be opened.
    pub fn of(keystore: Keystore, policy: Policy, clock: Clock) -> Result<Self, KeystoreError> {
        let journal = Journal::open(&keystore.journal())?;
        let id = journal.id().to_owned();
        let inner = Inner { keystore, policy, clock, journal: Mutex::new(journal) };
        Ok(Embedded { id, inner: Arc::new(inner) })
    }

    /// The number of the newest entry of its journal.
    pub fn newest_seq(&self) -> u64 {
        self.inner.journal.lock().unwrap_or_else(PoisonError::into_inner).newest_seq()
    }
}

impl Signer for Embedded {
    fn id(&self) -> &str {
        &self.id
    }

    fn addresses<'s>(&'s self, paths: &'s [KeyPath]) -> Signing<'s, Vec<Address>> {
        let (inner, paths) = (self.inner.clone(), paths.to_vec());
        Box::pin(aside(move || inner.addresses(&paths)))
    }

    fn sign<'s>(&'s self, requests: &'s [SignRequest]) -> Signing<'s, Vec<Result<Signed, Refusal>>> {
        let (inner, requests) = (self.inner.clone(), requests.to_vec());
        Box::pin(aside(move || inner.sign(&requests)))
    }

    fn journal<'s>(&'s self, chain_ref: &'s str, behind: u64) -> Signing<'s, JournalPage> {
        let (inner, chain_ref) = (self.inner.clone(), chain_ref.to_owned());
        Box::pin(aside(move || inner.journal(&chain_ref, behind)))
    }
}

/// Deriving takes the processor, and the journal waits for the disk: neither may hold up others.
async fn aside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, SignerUnavailable> + Send + 'static,
) -> Result<T, SignerUnavailable> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(SignerUnavailable(format!("it failed: {error}"))))
}

impl Inner {
    fn addresses(&self, paths: &[KeyPath]) -> Result<Vec<Address>, SignerUnavailable> {
        let address = |path| self.keystore.keys.address(path);
        paths.iter().map(address).collect::<Result<_, _>>().map_err(|error| SignerUnavailable(error.to_string()))
    }

    fn sign(&self, requests: &[SignRequest]) -> Result<Vec<Result<Signed, Refusal>>, SignerUnavailable> {
        if requests.len() > SIGN_REQUESTS_MAX {
            let count = requests.len();
            return Err(SignerUnavailable(format!("{count} requests in one call, at most {SIGN_REQUESTS_MAX}")));
        }
        let mut journal = self.journal.lock().unwrap_or_else(PoisonError::into_inner);
        let now = (self.clock)();
        let mut ready = Vec::with_capacity(requests.len());
        for request in requests {
            match self.stage(&mut journal, request, now) {
                Ok(signed) => ready.push(Ok(signed)),
                Err(Unsigned::Refused(refusal)) => ready.push(Err(refusal)),
                Err(Unsigned::Away(away)) => {
                    journal.forget();
                    return Err(away);
                }
            }
        }
        journal.commit().map_err(|error| SignerUnavailable(with_causes(&error)))?;
        drop(journal);
        Ok(ready.into_iter().map(|ready| ready.map(Ready::sign)).collect())
    }

    fn journal(&self, chain_ref: &str, behind: u64) -> Result<JournalPage, SignerUnavailable> {
        let part = self.journal.lock().unwrap_or_else(PoisonError::into_inner).part(behind);
        // Others sign meanwhile.
        part.read(chain_ref, behind).map_err(|error| SignerUnavailable(format!("its journal: {error}")))
    }

    fn stage(&self, journal: &mut Journal, request: &SignRequest, now: u64) -> Result<Ready, Unsigned> {
        match request {
            SignRequest::Intent { path, intent, heals } => self.stage_intent(journal, path, (intent, *heals), now),
            SignRequest::Cancel { path, intent } => self.stage_cancellation(journal, path, intent, now),
            SignRequest::Authorization { path, authorization } => {
                self.stage_authorization(journal, path, (authorization, Policy::judge_authorization), now)
            }
            SignRequest::Clear { path, clearing } => {
                self.stage_authorization(journal, path, (clearing, Policy::judge_clearing), now)
            }
            SignRequest::Carrier { path, carrier } => self.stage_carrier(journal, path, carrier, now),
            SignRequest::Guarded { path, payer, guarded } => self.stage_guarded(journal, [path, payer], guarded, now),
            SignRequest::Refill { path, refill } => self.stage_refill(journal, path, refill, now),
            SignRequest::Reclaim { path, payers, reclaim } => self.stage_reclaim(journal, (path, payers), reclaim, now),
        }
    }

    fn stage_intent(
        &self,
        journal: &mut Journal,
        path: &KeyPath,
        (intent, heals): (&Intent, usize),
        now: u64,
    ) -> Result<Ready, Unsigned> {
        let address = self.keystore.keys.known_address(path)?;
        let draft = Draft::of_intent(path, intent, now);
        let (seen, cancelled) = (journal.seen(&draft), journal.cancelled(&intent.transfer_id));
        self.policy.judge_intent(path, address, (intent, heals), (seen, cancelled), now)?;
        self.policy.judge_caps(intent, seen, journal.spent_within_day(intent, now))?;
        if matches!(intent.route, Route::Guard { .. }) {
            return Ok(Ready::Noted { seq: staged(journal, draft)? });
        }
        let key = self.keystore.keys.evm(path)?;
        let digest = intent_digest(intent).map_err(|error| Refusal(error.to_string()))?;
        let seq = staged(journal, draft)?;
        Ok(Ready::Digest { seq, key, digest })
    }

    fn stage_cancellation(
        &self,
        journal: &mut Journal,
        path: &KeyPath,
        intent: &Intent,
        now: u64,
    ) -> Result<Ready, Unsigned> {
        let key = self.keystore.keys.evm(path)?;
        let seen = journal.seen(&Draft::of_intent(path, intent, now));
        self.policy.judge_cancellation(path, evm_address(key.verifying_key()), intent, seen)?;
        let digest = cancellation_digest(intent).map_err(|error| Refusal(error.to_string()))?;
        let seq = staged(journal, Draft::of_cancellation(path, intent, now))?;
        Ok(Ready::Digest { seq, key, digest })
    }

    /// What a wallet allows or takes away, as `judge` says.
    fn stage_authorization(
        &self,
        journal: &mut Journal,
        path: &KeyPath,
        (authorization, judge): (&Authorization, Judge),
        now: u64,
    ) -> Result<Ready, Unsigned> {
        let key = self.keystore.keys.evm(path)?;
        let draft = Draft::of_authorization(path, authorization, now);
        judge(&self.policy, path, evm_address(key.verifying_key()), authorization, journal.seen(&draft))?;
        let digest = authorization_digest(authorization).map_err(|error| Refusal(error.to_string()))?;
        let seq = staged(journal, draft)?;
        Ok(Ready::Digest { seq, key, digest })
    }

    fn stage_carrier(
        &self,
        journal: &mut Journal,
        path: &KeyPath,
        carrier: &Carrier,
        now: u64,
    ) -> Result<Ready, Unsigned> {
        let key = self.keystore.keys.evm_key(path)?;
        let wrong = |error: PayError| Refusal(error.to_string());
        let known_of = |draft: Draft, digest: [u8; 32], signature: &[u8]| {
            let signer = signature.try_into().ok().and_then(|signature| signer_of(&digest, signature));
            KnownSigned { signer, seen: journal.seen(&draft) }
        };
        let of_tuple = |SignedAuthorization { authorization, signature }: &SignedAuthorization| {
            let digest = authorization_digest(authorization).map_err(wrong)?;
            Ok::<_, Refusal>(known_of(Draft::of_authorization(path, authorization, now), digest, signature))
        };
        let mut recipient = None;
        let (signed, tuples) = match &carrier.carried {
            Carried::Payment { signed, authorization } => {
                let digest = intent_digest(&signed.intent).map_err(wrong)?;
                let signed = known_of(Draft::of_intent(path, &signed.intent, now), digest, &signed.signature);
                (Some(signed), authorization.as_deref().map(of_tuple).into_iter().collect::<Result<_, _>>()?)
            }
            Carried::Cancellation(signed) => {
                let digest = cancellation_digest(&signed.intent).map_err(wrong)?;
                let draft = Draft::of_cancellation(path, &signed.intent, now);
                (Some(known_of(draft, digest, &signed.signature)), Vec::new())
            }
            Carried::Clearings(clearings) => (None, clearings.iter().map(of_tuple).collect::<Result<_, _>>()?),
            Carried::Refill(refill) => {
                let to = KeyPath::of_sponsor(Family::Evm, &refill.chain_ref, refill.number);
                recipient = Some(self.keystore.keys.known_address(&to)?);
                (None, Vec::new())
            }
        };
        let known = Known { address: key.address()?, signed, authorizations: tuples, recipient };
        let entries = self.policy.judge_carrier(path, carrier, &known)?;
        let unsigned = unsigned_carrier(carrier).map_err(wrong)?;
        let draft = |made: Option<&Made>| Draft::of_carrier(path, carrier, (&entries, made), now);
        let seen = journal.seen(&draft(None));
        let cancelled = carrier.carried.intent().and_then(|intent| journal.cancelled(&intent.transfer_id));
        self.policy.judge_beside(&carrier.carried, seen, cancelled)?;
        let signature = match made_before(journal, &key, seen)? {
            Some(made) => made.signature.ok_or_else(|| away("its journal does not have what the token signed"))?,
            None => key.sign(&unsigned.digest())?,
        };
        let (bytes, tx) = unsigned.signed(&signature);
        let made = Made { tx, signature: key.is_held().then_some(signature) };
        let seq = staged(journal, draft(Some(&made)))?;
        Ok(Ready::Tx { seq, bytes, tx })
    }

    fn stage_guarded(
        &self,
        journal: &mut Journal,
        [path, payer_path]: [&KeyPath; 2],
        guarded: &Guarded,
        now: u64,
    ) -> Result<Ready, Unsigned> {
        let (sponsor, payer) = (self.keystore.keys.solana_key(path)?, self.keystore.keys.solana(payer_path)?);
        let unsigned = unsigned_guarded(guarded).map_err(|error| Refusal(error.to_string()))?;
        let intent = journal.seen(&Draft::of_intent(payer_path, &guarded.intent, now));
        let draft = |intent_seq: u64, tx: Option<&TxId>| Draft::of_guarded(path, guarded, (intent_seq, tx), now);
        let (seen, is_reclaimed) = match intent {
            Seen::Same { seq } => (journal.seen(&draft(seq, None)), journal.is_reclaimed(seq)),
            Seen::Never | Seen::OtherTerms | Seen::OtherDeadline { .. } | Seen::OtherContent { .. } => {
                (Seen::Never, false)
            }
        };
        let (of, is_signed) = ([sponsor.address()?, solana_address(&payer)], matches!(seen, Seen::Same { .. }));
        let known = KnownGuarded { sponsor: of[0], payer: of[1], intent, is_signed, is_reclaimed };
        let intent_seq = self.policy.judge_guarded([path, payer_path], guarded, &known, now)?;
        let by_sponsor = sponsor_signature(journal, &sponsor, seen, unsigned.message())?;
        let by_payer = payer.sign(unsigned.message()).to_bytes();
        let (bytes, tx) = unsigned.signed(&by_sponsor, &by_payer);
        let seq = staged(journal, draft(intent_seq, Some(&tx)))?;
        Ok(Ready::Tx { seq, bytes, tx })
    }

    fn stage_refill(
        &self,
        journal: &mut Journal,
        path: &KeyPath,
        refill: &GuardedRefill,
        now: u64,
    ) -> Result<Ready, Unsigned> {
        let treasury = self.keystore.keys.solana_key(path)?;
        let Refill { chain_ref, number, .. } = &refill.refill;
        let to = KeyPath::of_sponsor(Family::Solana, chain_ref, *number);
        let recipient = self.keystore.keys.known_address(&to)?;
        let unsigned = unsigned_refill(refill).map_err(|error| Refusal(error.to_string()))?;
        let draft = |tx: Option<&TxId>| Draft::of_refill(path, refill, tx, now);
        let seen = journal.seen(&draft(None));
        self.policy.judge_refill((path, treasury.address()?), refill, recipient, seen)?;
        let by_treasury = sponsor_signature(journal, &treasury, seen, unsigned.message())?;
        let (bytes, tx) = unsigned.signed(&by_treasury);
        let seq = staged(journal, draft(Some(&tx)))?;
        Ok(Ready::Tx { seq, bytes, tx })
    }

    fn stage_reclaim(
        &self,
        journal: &mut Journal,
        (path, payers): (&KeyPath, &[KeyPath]),
        reclaim: &Reclaim,
        now: u64,
    ) -> Result<Ready, Unsigned> {
        let keys = &self.keystore.keys;
        let sponsor = keys.solana_key(path)?;
        let payer_keys: Vec<_> = payers.iter().map(|path| keys.solana(path)).collect::<Result<_, _>>()?;
        let guards = reclaim.guards.iter().zip(payers).zip(&payer_keys);
        let known: Vec<KnownGuard> = guards
            .map(|(((intent, _), path), key)| KnownGuard {
                payer: solana_address(key),
                intent: journal.seen(&Draft::of_intent(path, intent, now)),
            })
            .collect();
        let entries = self.policy.judge_reclaim((path, sponsor.address()?), payers, reclaim, &known, now)?;
        let unsigned = unsigned_reclaim(reclaim).map_err(|error| Refusal(error.to_string()))?;
        let draft = |tx: Option<&TxId>| Draft::of_reclaim(path, reclaim, (&entries, tx), now);
        let by_sponsor = sponsor_signature(journal, &sponsor, journal.seen(&draft(None)), unsigned.message())?;
        let by = |signer: &[u8; 32]| payer_keys.iter().find(|key| key.verifying_key().to_bytes() == *signer);
        let others = unsigned.signers().iter().skip(1).filter_map(by);
        let by_others = others.map(|key| key.sign(unsigned.message()).to_bytes());
        let signatures: Vec<[u8; 64]> = [by_sponsor].into_iter().chain(by_others).collect();
        let signed = unsigned.signed(&signatures);
        let (bytes, tx) = signed.ok_or_else(|| Refusal("another key must sign it".to_owned()))?;
        let seq = staged(journal, draft(Some(&tx)))?;
        Ok(Ready::Tx { seq, bytes, tx })
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("keystore", &self.keystore).finish_non_exhaustive()
    }
}

impl From<Refusal> for Unsigned {
    fn from(refusal: Refusal) -> Self {
        Unsigned::Refused(refusal)
    }
}

impl From<KeyError> for Unsigned {
    fn from(error: KeyError) -> Self {
        if error.may_pass() {
            return away(&error.to_string());
        }
        Unsigned::Refused(Refusal(error.to_string()))
    }
}

impl Ready {
    fn sign(self) -> Signed {
        match self {
            Ready::Digest { seq, key, digest } => Signed { bytes: signature(&key, &digest).to_vec(), tx: None, seq },
            Ready::Tx { seq, bytes, tx } => Signed { bytes, tx: Some(tx), seq },
            Ready::Noted { seq } => Signed { bytes: Vec::new(), tx: None, seq },
        }
    }
}

/// What is on record of a transaction that a token signed before: its signatures of one content differ.
fn made_before<K>(journal: &Journal, key: &Key<K>, seen: Seen) -> Result<Option<Made>, Unsigned> {
    match seen {
        Seen::Same { seq } if key.is_held() => {
            journal.made(seq).map(Some).map_err(|error| away(&format!("its journal: {error}")))
        }
        Seen::Same { .. } | Seen::Never | Seen::OtherTerms | Seen::OtherDeadline { .. } | Seen::OtherContent { .. } => {
            Ok(None)
        }
    }
}

/// By whom a transaction of Solana is paid; its id is this signature.
fn sponsor_signature(
    journal: &Journal,
    key: &Key<ed25519_dalek::SigningKey>,
    seen: Seen,
    message: &[u8],
) -> Result<[u8; 64], Unsigned> {
    match made_before(journal, key, seen)? {
        Some(Made { tx: TxId::Solana(signature), .. }) => Ok(signature),
        Some(Made { tx: TxId::Evm(_), .. }) => Err(away("its journal has a transaction of another family")),
        None => Ok(key.sign(message)?),
    }
}

fn away(what: &str) -> Unsigned {
    Unsigned::Away(SignerUnavailable(what.to_owned()))
}

/// The entry of what is to be signed: the one that is there, or a new one.
fn staged(journal: &mut Journal, draft: Draft) -> Result<u64, Refusal> {
    match journal.seen(&draft) {
        Seen::Same { seq } => Ok(seq),
        Seen::Never | Seen::OtherTerms | Seen::OtherDeadline { .. } | Seen::OtherContent { .. } => {
            journal.stage(draft).ok_or_else(|| Refusal("it contradicts the journal".to_owned()))
        }
    }
}
