//! The signer inside of the process: keystore, journal and policy behind the port.
//!
//! Promises: a batch is journaled with one write before any signature of it leaves; where that fails, none does. The entry
//! of a transaction has its id, by which others recognize it. A call that is dropped runs to its end: then its entries are
//! there, and asking again gives the same bytes.

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

use crate::journal::{Draft, Journal, Seen};
use crate::keys::evm_address;
use crate::policy::{Known, KnownGuard, KnownGuarded, KnownSigned, Policy};
use crate::{Keystore, KeystoreError, Passphrase};

/// `v` of a signature whose point has an even y; one more where it is odd.
const V_EVEN: u8 = 27;

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

impl Embedded {
    /// Opens a keystore and its journal.
    ///
    /// # Errors
    /// Either cannot be opened, or another process has them open.
    pub fn open(dir: &Path, passphrase: &Passphrase, policy: Policy, clock: Clock) -> Result<Self, KeystoreError> {
        let keystore = Keystore::open(dir, passphrase)?;
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
        let ready: Vec<_> = requests.iter().map(|request| self.stage(&mut journal, request, now)).collect();
        journal.commit().map_err(|error| SignerUnavailable(with_causes(&error)))?;
        drop(journal);
        Ok(ready.into_iter().map(|ready| ready.map(Ready::sign)).collect())
    }

    fn journal(&self, chain_ref: &str, behind: u64) -> Result<JournalPage, SignerUnavailable> {
        let part = self.journal.lock().unwrap_or_else(PoisonError::into_inner).part(behind);
        // Others sign meanwhile.
        part.read(chain_ref, behind).map_err(|error| SignerUnavailable(format!("its journal: {error}")))
    }

    fn stage(&self, journal: &mut Journal, request: &SignRequest, now: u64) -> Result<Ready, Refusal> {
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
    ) -> Result<Ready, Refusal> {
        let address = self.keystore.keys.address(path).map_err(|error| Refusal(error.to_string()))?;
        let draft = Draft::of_intent(path, intent, now);
        let (seen, cancelled) = (journal.seen(&draft), journal.cancelled(&intent.transfer_id));
        self.policy.judge_intent(path, address, (intent, heals), (seen, cancelled), now)?;
        self.policy.judge_caps(intent, seen, journal.spent_within_day(intent, now))?;
        if matches!(intent.route, Route::Guard { .. }) {
            return Ok(Ready::Noted { seq: staged(journal, draft)? });
        }
        let key = self.key(path)?;
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
    ) -> Result<Ready, Refusal> {
        let key = self.key(path)?;
        let seen = journal.seen(&Draft::of_intent(path, intent, now));
        self.policy.judge_cancellation(path, evm_address(&key), intent, seen)?;
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
    ) -> Result<Ready, Refusal> {
        let key = self.key(path)?;
        let draft = Draft::of_authorization(path, authorization, now);
        judge(&self.policy, path, evm_address(&key), authorization, journal.seen(&draft))?;
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
    ) -> Result<Ready, Refusal> {
        let key = self.key(path)?;
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
                recipient = Some(evm_address(&self.key(&to)?));
                (None, Vec::new())
            }
        };
        let known = Known { address: evm_address(&key), signed, authorizations: tuples, recipient };
        let entries = self.policy.judge_carrier(path, carrier, &known)?;
        let unsigned = unsigned_carrier(carrier).map_err(wrong)?;
        let signature = signature(&key, &unsigned.digest());
        let (bytes, tx) = unsigned.signed(&signature);
        let draft = Draft::of_carrier(path, carrier, (&entries, &tx), now);
        let cancelled = carrier.carried.intent().and_then(|intent| journal.cancelled(&intent.transfer_id));
        Policy::judge_beside(&carrier.carried, journal.seen(&draft), cancelled)?;
        let seq = staged(journal, draft)?;
        Ok(Ready::Tx { seq, bytes, tx })
    }

    fn stage_guarded(
        &self,
        journal: &mut Journal,
        [path, payer_path]: [&KeyPath; 2],
        guarded: &Guarded,
        now: u64,
    ) -> Result<Ready, Refusal> {
        let key = |path: &KeyPath| self.keystore.keys.solana(path).map_err(|error| Refusal(error.to_string()));
        let (sponsor, payer) = (key(path)?, key(payer_path)?);
        let address = |key: &ed25519_dalek::SigningKey| Address::Solana(key.verifying_key().to_bytes());
        let unsigned = unsigned_guarded(guarded).map_err(|error| Refusal(error.to_string()))?;
        let [by_sponsor, by_payer] = [&sponsor, &payer].map(|key| key.sign(unsigned.message()).to_bytes());
        let (bytes, tx) = unsigned.signed(&by_sponsor, &by_payer);
        let intent = journal.seen(&Draft::of_intent(payer_path, &guarded.intent, now));
        let draft = |intent_seq| Draft::of_guarded(path, guarded, (intent_seq, &tx), now);
        let is_signed = matches!(intent, Seen::Same { seq } if journal.seen(&draft(seq)) != Seen::Never);
        let is_reclaimed = matches!(intent, Seen::Same { seq } if journal.is_reclaimed(seq));
        let known =
            KnownGuarded { sponsor: address(&sponsor), payer: address(&payer), intent, is_signed, is_reclaimed };
        let intent_seq = self.policy.judge_guarded([path, payer_path], guarded, &known, now)?;
        let seq = staged(journal, draft(intent_seq))?;
        Ok(Ready::Tx { seq, bytes, tx })
    }

    fn stage_refill(
        &self,
        journal: &mut Journal,
        path: &KeyPath,
        refill: &GuardedRefill,
        now: u64,
    ) -> Result<Ready, Refusal> {
        let key = |path: &KeyPath| self.keystore.keys.solana(path).map_err(|error| Refusal(error.to_string()));
        let address = |key: &ed25519_dalek::SigningKey| Address::Solana(key.verifying_key().to_bytes());
        let treasury = key(path)?;
        let Refill { chain_ref, number, .. } = &refill.refill;
        let recipient = address(&key(&KeyPath::of_sponsor(Family::Solana, chain_ref, *number))?);
        let unsigned = unsigned_refill(refill).map_err(|error| Refusal(error.to_string()))?;
        let (bytes, tx) = {
            let by_treasury = treasury.sign(unsigned.message()).to_bytes();
            unsigned.signed(&by_treasury)
        };
        let draft = Draft::of_refill(path, refill, &tx, now);
        self.policy.judge_refill((path, address(&treasury)), refill, recipient, journal.seen(&draft))?;
        let seq = staged(journal, draft)?;
        Ok(Ready::Tx { seq, bytes, tx })
    }

    fn stage_reclaim(
        &self,
        journal: &mut Journal,
        (path, payers): (&KeyPath, &[KeyPath]),
        reclaim: &Reclaim,
        now: u64,
    ) -> Result<Ready, Refusal> {
        let key = |path: &KeyPath| self.keystore.keys.solana(path).map_err(|error| Refusal(error.to_string()));
        let address = |key: &ed25519_dalek::SigningKey| Address::Solana(key.verifying_key().to_bytes());
        let sponsor = key(path)?;
        let payer_keys: Vec<ed25519_dalek::SigningKey> = payers.iter().map(key).collect::<Result<_, _>>()?;
        let guards = reclaim.guards.iter().zip(payers).zip(&payer_keys);
        let known: Vec<KnownGuard> = guards
            .map(|(((intent, _), path), key)| KnownGuard {
                payer: address(key),
                intent: journal.seen(&Draft::of_intent(path, intent, now)),
            })
            .collect();
        let entries = self.policy.judge_reclaim((path, address(&sponsor)), payers, reclaim, &known, now)?;
        let unsigned = unsigned_reclaim(reclaim).map_err(|error| Refusal(error.to_string()))?;
        let all: Vec<ed25519_dalek::SigningKey> = payer_keys.into_iter().chain([sponsor]).collect();
        let by = |signer: &[u8; 32]| all.iter().find(|key| key.verifying_key().to_bytes() == *signer);
        let sign = |key: &ed25519_dalek::SigningKey| key.sign(unsigned.message()).to_bytes();
        let signatures: Vec<[u8; 64]> = unsigned.signers().iter().filter_map(by).map(sign).collect();
        let signed = unsigned.signed(&signatures);
        let (bytes, tx) = signed.ok_or_else(|| Refusal("another key must sign it".to_owned()))?;
        let seq = staged(journal, Draft::of_reclaim(path, reclaim, (&entries, &tx), now))?;
        Ok(Ready::Tx { seq, bytes, tx })
    }

    fn key(&self, path: &KeyPath) -> Result<SigningKey, Refusal> {
        self.keystore.keys.evm(path).map_err(|error| Refusal(error.to_string()))
    }
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner").field("keystore", &self.keystore).finish_non_exhaustive()
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

/// r, s and v. The same for equal digests (RFC 6979); s is in the lower half.
fn signature(key: &SigningKey, digest: &[u8; 32]) -> [u8; 65] {
    let (signature, recovery) = key.sign_prehash_recoverable(digest);
    let mut bytes = [0; 65];
    bytes[..64].copy_from_slice(&signature.to_bytes());
    bytes[64] = V_EVEN + u8::from(recovery.is_y_odd());
    bytes
}

/// The entry of what is to be signed: the one that is there, or a new one.
fn staged(journal: &mut Journal, draft: Draft) -> Result<u64, Refusal> {
    match journal.seen(&draft) {
        Seen::Same { seq } => Ok(seq),
        Seen::Never | Seen::OtherDeadline { .. } | Seen::OtherContent { .. } => {
            journal.stage(draft).ok_or_else(|| Refusal("it contradicts the journal".to_owned()))
        }
    }
}
