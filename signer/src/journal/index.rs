//! What the journal says, in memory: of each transfer what was signed for it, of each carrier its entry.
//!
//! Promise: what reads the file and what writes it decide with the same rules what follows from what.

use std::collections::{HashMap, HashSet};

use landfall_chain::hash_of;

use crate::caps::Spent;
use crate::journal::line::{Authorized, Carried, Kind, Line, ReclaimContent};

/// How many deadlines one transfer may have: the first, and three that heal it behind reorgs.
pub const DEADLINES_MAX: usize = 4;

/// What the journal knows of an intent or a carrier that is to be signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seen {
    /// Nothing.
    Never,
    /// The very same is this entry.
    Same {
        /// Its number.
        seq: u64,
    },
    /// The same but for its deadline.
    OtherDeadline {
        /// How many deadlines there are.
        deadlines: usize,
    },
    /// The same refill, in another transaction.
    OtherTerms,
    /// The transfer has this entry, of another content.
    OtherContent {
        /// Its number.
        seq: u64,
    },
}

/// An entry that contradicts an earlier one.
#[derive(Debug)]
pub(super) struct Contradiction;

#[derive(Debug, Default)]
pub(super) struct Index {
    intents: HashMap<[u8; 16], Signed>,
    /// Carriers and reclaims.
    carriers: HashMap<[u8; 32], u64>,
    /// By chain, treasury and nonce: what a sponsor is given, and the first entry of it.
    refills: HashMap<[u8; 32], ([u8; 32], u64)>,
    /// By transfer.
    cancellations: HashMap<[u8; 16], u64>,
    /// The entries of intents whose guard is taken back, and how many reclaims of it there are.
    reclaimed: HashMap<u64, u32>,
    /// By chain, wallet and nonce: [`Line::what`], and the entry.
    authorizations: HashMap<[u8; 32], ([u8; 32], u64)>,
    /// The entries of all of them.
    authorized: HashSet<u64>,
    pub(super) spent: Spent,
}

/// What was signed for a transfer.
#[derive(Debug)]
struct Signed {
    /// [`Line::what`] of all of them.
    what: [u8; 32],
    /// Each deadline with its entry; never empty.
    deadlines: Vec<(u64, u64)>,
}

impl Index {
    pub(super) fn seen(&self, line: &Line) -> Seen {
        match line.kind {
            Kind::Signer => Seen::Never,
            Kind::Intent => self.seen_intent(line),
            Kind::Cancellation => self.seen_cancellation(line),
            Kind::Authorization => self.seen_authorization(line),
            Kind::Carrier | Kind::Reclaim => match self.carriers.get(&line.what()) {
                Some(seq) => Seen::Same { seq: *seq },
                None => self.seen_refill(line),
            },
        }
    }

    /// Whether the guard that the intent of this entry made was taken back, or may have been.
    pub(super) fn is_reclaimed(&self, intent: u64) -> bool {
        self.reclaimed.contains_key(&intent)
    }

    fn seen_intent(&self, line: &Line) -> Seen {
        let Some(signed) = transfer(line).and_then(|id| self.intents.get(&id)) else { return Seen::Never };
        if signed.what != line.what() {
            return Seen::OtherContent { seq: signed.deadlines[0].1 };
        }
        match signed.deadlines.iter().find(|(deadline, _)| Some(*deadline) == line.deadline) {
            Some((_, seq)) => Seen::Same { seq: *seq },
            None => Seen::OtherDeadline { deadlines: signed.deadlines.len() },
        }
    }

    /// A transfer is cancelled once, whatever its deadlines.
    fn seen_cancellation(&self, line: &Line) -> Seen {
        let cancelled = transfer(line).and_then(|id| self.cancelled(&id));
        cancelled.map_or(Seen::Never, |seq| Seen::Same { seq })
    }

    /// The entry that cancelled a transfer.
    pub(super) fn cancelled(&self, transfer_id: &[u8; 16]) -> Option<u64> {
        self.cancellations.get(transfer_id).copied()
    }

    fn seen_authorization(&self, line: &Line) -> Seen {
        match place(line).and_then(|place| self.authorizations.get(&place)) {
            None => Seen::Never,
            Some((what, seq)) if *what == line.what() => Seen::Same { seq: *seq },
            Some((_, seq)) => Seen::OtherContent { seq: *seq },
        }
    }

    /// Another attempt may offer more for the same, at the same nonce.
    fn seen_refill(&self, line: &Line) -> Seen {
        let known = line.refilled().and_then(|(place, what)| Some((self.refills.get(&place)?, what)));
        match known {
            Some(((first, seq), what)) if *first != what => Seen::OtherContent { seq: *seq },
            Some(_) => Seen::OtherTerms,
            None => Seen::Never,
        }
    }

    /// Takes in the entry behind all others.
    pub(super) fn add(&mut self, line: &Line) -> Result<(), Contradiction> {
        let follows = match self.seen(line) {
            Seen::Never | Seen::OtherTerms => true,
            Seen::OtherDeadline { deadlines } => deadlines < DEADLINES_MAX,
            Seen::Same { .. } | Seen::OtherContent { .. } => false,
        };
        if !follows {
            return Err(Contradiction);
        }
        match line.kind {
            // It is read before all others.
            Kind::Signer => return Err(Contradiction),
            Kind::Intent => {
                let (Some(id), Some(deadline)) = (transfer(line), line.deadline) else { return Err(Contradiction) };
                let (paid, chain) = line.paid().zip(line.chain.as_deref()).ok_or(Contradiction)?;
                let signed = self.intents.entry(id).or_insert(Signed { what: line.what(), deadlines: Vec::new() });
                if signed.deadlines.is_empty() {
                    self.spent.add([chain, &paid.asset], line.at, paid.amount);
                }
                signed.deadlines.push((deadline, line.seq));
            }
            Kind::Cancellation => {
                let id = transfer(line).filter(|id| self.intents.contains_key(id)).ok_or(Contradiction)?;
                self.cancellations.insert(id, line.seq);
            }
            Kind::Authorization => {
                let place = place(line).ok_or(Contradiction)?;
                self.authorizations.insert(place, (line.what(), line.seq));
                self.authorized.insert(line.seq);
            }
            Kind::Carrier => {
                let carried: Carried = serde_json::from_str(line.content.get()).map_err(|_| Contradiction)?;
                let refilled = line.refilled();
                let known = match (transfer(line), carried.intent, carried.cancellation, &carried.clearings) {
                    (Some(id), Some(intent), None, None) => {
                        let signed = self.intents.get(&id);
                        signed.is_some_and(|signed| signed.deadlines.iter().any(|(_, seq)| *seq == intent))
                    }
                    (Some(id), None, Some(cancellation), None) => self.cancelled(&id) == Some(cancellation),
                    (None, None, None, Some(clearings)) => {
                        clearings.iter().all(|entry| self.authorized.contains(entry))
                    }
                    (None, None, None, None) => refilled.is_some(),
                    (_, _, _, _) => false,
                };
                if !known || !carried.authorization.is_none_or(|entry| self.authorized.contains(&entry)) {
                    return Err(Contradiction);
                }
                if let Some((place, what)) = refilled {
                    self.refills.entry(place).or_insert((what, line.seq));
                }
                self.carriers.insert(line.what(), line.seq);
            }
            Kind::Reclaim => {
                let content: ReclaimContent = serde_json::from_str(line.content.get()).map_err(|_| Contradiction)?;
                if content.guards.iter().any(|(intent, _)| *intent >= line.seq) {
                    return Err(Contradiction);
                }
                content.guards.iter().for_each(|(intent, _)| *self.reclaimed.entry(*intent).or_default() += 1);
                self.carriers.insert(line.what(), line.seq);
            }
        }
        Ok(())
    }

    /// Takes out the newest entry again.
    pub(super) fn remove(&mut self, line: &Line) {
        self.carriers.remove(&line.what());
        if let Some((place, _)) = line.refilled() {
            self.refills.retain(|of, (_, first)| *of != place || *first != line.seq);
        }
        if line.kind == Kind::Reclaim
            && let Ok(content) = serde_json::from_str::<ReclaimContent>(line.content.get())
        {
            for (intent, _) in content.guards {
                self.reclaimed.entry(intent).and_modify(|times| *times -= 1);
                self.reclaimed.retain(|_, times| *times > 0);
            }
        }
        if let Some(place) = place(line) {
            self.authorizations.remove(&place);
            self.authorized.remove(&line.seq);
        }
        if line.kind == Kind::Cancellation
            && let Some(id) = transfer(line)
        {
            self.cancellations.remove(&id);
        }
        let Some(id) = transfer(line).filter(|_| line.kind == Kind::Intent) else { return };
        if let Some(signed) = self.intents.get_mut(&id) {
            signed.deadlines.pop();
            if signed.deadlines.is_empty() {
                self.intents.remove(&id);
                if let Some((paid, chain)) = line.paid().zip(line.chain.as_deref()) {
                    self.spent.take_out([chain, &paid.asset], line.at, paid.amount);
                }
            }
        }
    }
}

/// What an authorization is the only one of: a chain, a wallet, and its nonce.
fn place(line: &Line) -> Option<[u8; 32]> {
    let is_one = line.kind == Kind::Authorization;
    let authorized: Authorized = is_one.then(|| serde_json::from_str(line.content.get()).ok())??;
    let nonce = authorized.nonce.to_be_bytes();
    Some(hash_of([line.chain.as_ref()?.as_bytes(), authorized.wallet.as_bytes(), &nonce]))
}

fn transfer(line: &Line) -> Option<[u8; 16]> {
    hex::decode_to_array(line.transfer.as_deref()?).ok()
}
