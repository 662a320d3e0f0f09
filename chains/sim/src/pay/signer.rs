//! A signer for tests: its keys are functions of their paths, and its journal is in memory.
//!
//! It refuses what the real one refuses: another content of a transfer or of a wallet's nonce, and what its own journal has
//! not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_chain::{
    Address, Authorization, Carried, Carrier, Guarded, GuardedRefill, Intent, JOURNAL_ENTRIES_MAX, JournalPage,
    Journaled, KeyPath, Reclaim, Refill, Refusal, Route, SignRequest, Signed, SignedAuthorization, Signer,
    SignerUnavailable, Signing, TxId, hash_of,
};

use super::{
    authorization_signature, beside, cancellation_signature, id_of, id_of_guarded, id_of_reclaim, intent_hash,
    signature,
};
use crate::SimChain;

/// Holds the keys of wallets and sponsors, each a function of its path; clones share the journal.
#[derive(Clone, Debug)]
pub struct SimSigner {
    chain: SimChain,
    id: &'static str,
    journal: Arc<Mutex<Journal>>,
}

/// What was signed: its hash, its chain, and what is read of it.
type Entry = ([u8; 32], String, Journaled);

#[derive(Clone, Default, Debug)]
struct Journal {
    /// What was signed, each once: its hash, its chain, and what it is.
    entries: Vec<Entry>,
    is_away: bool,
    late: Duration,
    /// The first content of each transfer, without its deadline, and the deadlines that were signed.
    intents: BTreeMap<[u8; 16], (Intent, BTreeSet<u64>)>,
    cancelled: BTreeSet<[u8; 16]>,
}

impl Journal {
    fn newest(&self) -> u64 {
        u64::try_from(self.entries.len()).unwrap_or(u64::MAX)
    }

    /// The number of an entry: the one that is there, or a new one.
    fn seq_of(&mut self, entry: Entry) -> u64 {
        let known = self.entries.iter().zip(1..).find(|((hash, ..), _)| *hash == entry.0);
        known.map(|(_, seq)| seq).unwrap_or_else(|| {
            self.entries.push(entry);
            self.newest()
        })
    }
}

impl SimSigner {
    pub fn of(chain: SimChain) -> Self {
        SimSigner::named("sim", chain)
    }

    /// One with this id, and an empty journal.
    pub fn named(id: &'static str, chain: SimChain) -> Self {
        SimSigner { chain, id, journal: Arc::default() }
    }

    /// The same in a process of its own, with a copy of the journal as it stands.
    pub fn copied(&self) -> Self {
        let journal = Journal { is_away: false, late: Duration::ZERO, ..self.lock().clone() };
        SimSigner { journal: Arc::new(Mutex::new(journal)), ..self.clone() }
    }

    /// The address of a path.
    pub fn address(path: &KeyPath) -> Address {
        let (text, seed) = (path.to_string(), format!("{:?}", path.seed));
        let hash = hash_of([seed.as_bytes(), text.as_bytes()]);
        let (bytes, _) = hash.split_first_chunk().expect("32 is more than 20");
        Address::Evm(*bytes)
    }

    /// Whether it is away from now on.
    pub fn away(&self, is_away: bool) {
        self.lock().is_away = is_away;
    }

    /// Signs after this time from now on.
    pub fn late(&self, late: Duration) {
        self.lock().late = late;
    }

    /// How many different requests it signed.
    pub fn seq(&self) -> u64 {
        self.lock().newest()
    }

    /// The latest deadline that was signed of a transfer, in seconds since 1970.
    pub fn deadline(&self, transfer_id: &[u8; 16]) -> Option<u64> {
        self.lock().intents.get(transfer_id).and_then(|(_, deadlines)| deadlines.last().copied())
    }

    fn lock(&self) -> MutexGuard<'_, Journal> {
        // A test that panicked has failed already.
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sign_one(&self, request: &SignRequest) -> Result<Signed, Refusal> {
        let mut journal = self.lock();
        let (bytes, tx, entry) = match request {
            SignRequest::Intent { path, intent, heals } => {
                let is_theirs = SimSigner::address(path) == intent.payer;
                is_theirs.then_some(()).ok_or_else(|| Refusal("the payer has another key".to_owned()))?;
                let content = Intent { deadline: 0, ..intent.clone() };
                let new = (content.clone(), BTreeSet::new());
                let (first, deadlines) = journal.intents.entry(intent.transfer_id).or_insert(new);
                if *first != content {
                    return Err(Refusal("this transfer has another content in the journal".to_owned()));
                }
                if !deadlines.contains(&intent.deadline) && deadlines.len() != *heals {
                    return Err(Refusal("this transfer has other deadlines in the journal".to_owned()));
                }
                let is_new = deadlines.insert(intent.deadline);
                if is_new && journal.cancelled.contains(&intent.transfer_id) {
                    return Err(Refusal("this transfer was cancelled".to_owned()));
                }
                let is_guarded = matches!(intent.route, Route::Guard { .. });
                let signed = Journaled::Intent { transfer_id: intent.transfer_id, deadline: intent.deadline };
                let entry = (intent_hash(intent), intent.chain_ref.clone(), signed);
                (if is_guarded { Vec::new() } else { signature(intent) }, None, entry)
            }
            SignRequest::Cancel { path, intent } => {
                let is_theirs = SimSigner::address(path) == intent.payer;
                is_theirs.then_some(()).ok_or_else(|| Refusal("the payer has another key".to_owned()))?;
                journal.cancelled.insert(intent.transfer_id);
                let (bytes, chain_ref) = (cancellation_signature(intent), intent.chain_ref.clone());
                let signed = Journaled::Cancellation { transfer_id: intent.transfer_id };
                (bytes.clone(), None, (hash_of([bytes.as_slice()]), chain_ref, signed))
            }
            SignRequest::Authorization { path, authorization }
            | SignRequest::Clear { path, clearing: authorization } => {
                let is_theirs = SimSigner::address(path) == authorization.wallet;
                is_theirs.then_some(()).ok_or_else(|| Refusal("the wallet has another key".to_owned()))?;
                let (bytes, chain_ref) = (authorization_signature(authorization), authorization.chain_ref.clone());
                let is_other = |known: &Authorization| {
                    (known.wallet, known.nonce) == (authorization.wallet, authorization.nonce) && known != authorization
                };
                let mut known = journal.entries.iter().map(|(.., journaled)| journaled);
                if known.any(|journaled| matches!(journaled, Journaled::Authorization(known) if is_other(known))) {
                    return Err(Refusal("this nonce of the wallet has another content in the journal".to_owned()));
                }
                let entry = (hash_of([bytes.as_slice()]), chain_ref, Journaled::Authorization(authorization.clone()));
                (bytes, None, entry)
            }
            SignRequest::Carrier { path, carrier } => self.sign_carrier(&journal, path, carrier)?,
            SignRequest::Guarded { path, payer, guarded } => {
                let Guarded { sponsor, intent, .. } = guarded;
                let are_theirs = (SimSigner::address(path), SimSigner::address(payer)) == (*sponsor, intent.payer);
                are_theirs.then_some(()).ok_or_else(|| Refusal("another key signs it".to_owned()))?;
                let known = journal.intents.get(&intent.transfer_id);
                let is_it = |(first, deadlines): &(Intent, BTreeSet<u64>)| {
                    deadlines.contains(&intent.deadline)
                        && Intent { deadline: intent.deadline, ..first.clone() } == *intent
                };
                if !known.is_some_and(is_it) {
                    return Err(Refusal("the intent is not in the journal".to_owned()));
                }
                let id = TxId::Evm(id_of_guarded(guarded));
                self.chain.lock().paying.guarded.insert(id, guarded.clone());
                let transfer_id = Some(intent.transfer_id);
                let signed = Journaled::Carrier { transfer_id, sponsor: *sponsor, nonce: None, tx: id };
                (id.as_bytes().to_vec(), Some(id), (id_of_guarded(guarded), intent.chain_ref.clone(), signed))
            }
            SignRequest::Refill { path, refill } => self.sign_refill(&journal, path, refill)?,
            SignRequest::Reclaim { path, payers, reclaim } => {
                let Reclaim { sponsor, guards, blockhash, .. } = reclaim;
                let is_theirs = |((intent, _), path): (&(Intent, u64), &KeyPath)| {
                    let known = journal.intents.get(&intent.transfer_id);
                    let is_known = known.is_some_and(|(_, deadlines)| deadlines.contains(&intent.deadline));
                    is_known && SimSigner::address(path) == intent.payer
                };
                let are_theirs = payers.len() == guards.len() && guards.iter().zip(payers).all(is_theirs);
                if !are_theirs || SimSigner::address(path) != *sponsor {
                    return Err(Refusal("another key signs it, or its intents are not in the journal".to_owned()));
                }
                let hash = id_of_reclaim(reclaim);
                let id = TxId::Evm(hash);
                self.chain.lock().paying.reclaims.insert(id, reclaim.clone());
                let chain_ref = guards.first().map(|(intent, _)| intent.chain_ref.clone()).unwrap_or_default();
                let signed = Journaled::Reclaim { sponsor: *sponsor, blockhash: *blockhash, tx: id };
                (id.as_bytes().to_vec(), Some(id), (hash, chain_ref, signed))
            }
        };
        let seq = journal.seq_of(entry);
        Ok(Signed { bytes, tx, seq })
    }

    /// Its bytes, its id, and its entry.
    fn sign_carrier(
        &self,
        journal: &Journal,
        path: &KeyPath,
        carrier: &Carrier,
    ) -> Result<(Vec<u8>, Option<TxId>, Entry), Refusal> {
        let Carrier { sponsor, carried, .. } = carrier;
        let is_theirs = SimSigner::address(path) == *sponsor;
        is_theirs.then_some(()).ok_or_else(|| Refusal("the sponsor has another key".to_owned()))?;
        let is_signed = match carried {
            Carried::Payment { signed, .. } => signed.signature == signature(&signed.intent),
            Carried::Cancellation(signed) => signed.signature == cancellation_signature(&signed.intent),
            Carried::Clearings(all) => all.iter().all(|it| it.authorization.is_clearing()),
            Carried::Refill(refill) => SimSigner::may_refill(journal, (path, carrier.nonce), refill)?,
        };
        // As the real one: what another journal has is not carried.
        let is_journaled = |of: &Authorization| {
            let mut known = journal.entries.iter().map(|(.., known)| known);
            known.any(|known| matches!(known, Journaled::Authorization(known) if known == of))
        };
        let are_signed = beside(carried).iter().all(|SignedAuthorization { authorization, signature }| {
            *signature == authorization_signature(authorization) && is_journaled(authorization)
        });
        if !is_signed || !are_signed {
            return Err(Refusal("what it carries is not signed by its payer".to_owned()));
        }
        let (id, transfer_id) = (id_of(carrier), carried.intent().map(|intent| intent.transfer_id));
        let is_cancelled = transfer_id.is_some_and(|id| journal.cancelled.contains(&id));
        let is_new = !journal.entries.iter().any(|(hash, ..)| *hash == id);
        if is_new && is_cancelled && matches!(carried, Carried::Payment { .. }) {
            return Err(Refusal("this transfer was cancelled".to_owned()));
        }
        let chain_ref = carried.chain_ref().unwrap_or_default().to_owned();
        let (bytes, id) = (id, TxId::Evm(id));
        let (sponsor, nonce) = (*sponsor, carrier.nonce);
        let signed = match carried {
            Carried::Refill(refill) => Journaled::Refill { treasury: sponsor, nonce, refill: refill.clone(), tx: id },
            Carried::Payment { .. } | Carried::Cancellation(_) | Carried::Clearings(_) => {
                Journaled::Carrier { transfer_id, sponsor, nonce: Some(nonce), tx: id }
            }
        };
        let entry = (bytes, chain_ref, signed);
        self.chain.lock().paying.signed.insert(id, carrier.clone());
        Ok((id.as_bytes().to_vec(), Some(id), entry))
    }

    /// As [`SimSigner::sign_carrier`], of a refill that makes a guard.
    fn sign_refill(
        &self,
        journal: &Journal,
        path: &KeyPath,
        asked: &GuardedRefill,
    ) -> Result<(Vec<u8>, Option<TxId>, Entry), Refusal> {
        let GuardedRefill { treasury, refill, nonce, .. } = asked;
        let may_refill = SimSigner::may_refill(journal, (path, *nonce), refill)?;
        if !may_refill || SimSigner::address(path) != *treasury {
            return Err(Refusal("no treasury gives one of its sponsors this".to_owned()));
        }
        let guarded = asked.guarded();
        let hash = id_of_guarded(&guarded);
        let id = TxId::Evm(hash);
        let mut state = self.chain.lock();
        state.paying.guarded.insert(id, guarded);
        state.paying.refills.insert(id, *nonce);
        let signed = Journaled::Refill { treasury: *treasury, nonce: *nonce, refill: refill.clone(), tx: id };
        Ok((id.as_bytes().to_vec(), Some(id), (hash, refill.chain_ref.clone(), signed)))
    }

    /// Whether a treasury gives one of its own sponsors this, with a nonce that has no other content in the journal.
    fn may_refill(journal: &Journal, (path, with): (&KeyPath, u64), asked: &Refill) -> Result<bool, Refusal> {
        let Refill { chain_ref, number, recipient, .. } = asked;
        let is_treasury = *path == KeyPath::of_treasury(path.family, chain_ref);
        let to = SimSigner::address(&KeyPath::of_sponsor(path.family, chain_ref, *number));
        let is_other = |known: &Journaled| matches!(known, Journaled::Refill { nonce, refill, .. } if refill.chain_ref == *chain_ref && *nonce == with && refill != asked);
        if journal.entries.iter().any(|(.., known)| is_other(known)) {
            return Err(Refusal("this nonce of the treasury has another content in the journal".to_owned()));
        }
        Ok(is_treasury && to == *recipient)
    }

    async fn arrive(&self) -> Result<(), SignerUnavailable> {
        let (late, is_away) = {
            let journal = self.lock();
            (journal.late, journal.is_away)
        };
        if !late.is_zero() {
            tokio::time::sleep(late).await;
        }
        if is_away { Err(SignerUnavailable("the sim was told to be away".to_owned())) } else { Ok(()) }
    }
}

impl Signer for SimSigner {
    fn id(&self) -> &str {
        self.id
    }

    fn addresses<'s>(&'s self, paths: &'s [KeyPath]) -> Signing<'s, Vec<Address>> {
        Box::pin(async move {
            self.arrive().await?;
            Ok(paths.iter().map(SimSigner::address).collect())
        })
    }

    fn sign<'s>(&'s self, requests: &'s [SignRequest]) -> Signing<'s, Vec<Result<Signed, Refusal>>> {
        Box::pin(async move {
            self.arrive().await?;
            Ok(requests.iter().map(|request| self.sign_one(request)).collect())
        })
    }

    fn journal<'s>(&'s self, chain_ref: &'s str, behind: u64) -> Signing<'s, JournalPage> {
        Box::pin(async move {
            self.arrive().await?;
            let journal = self.lock();
            let newest = journal.newest();
            let through = newest.min(behind + JOURNAL_ENTRIES_MAX).max(behind);
            let entries = (1..)
                .zip(&journal.entries)
                .filter(|(seq, (_, of, _))| *seq > behind && *seq <= through && of == chain_ref);
            Ok(JournalPage { newest, through, entries: entries.map(|(seq, (.., it))| (seq, it.clone())).collect() })
        })
    }
}
