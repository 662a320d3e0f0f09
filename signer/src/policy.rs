//! What may be signed. Everything else is refused: what is on no list, and what contradicts the journal.
//!
//! Promise: pure. The same request, journal and clock give the same answer, and a refusal says what is wrong.

use std::collections::{HashMap, HashSet};

use landfall_chain::{
    Address, AssetId, Authorization, CLEARINGS_MAX, Carried, Carrier, Family, GUARD_RETENTION_HOURS_MIN, Guarded,
    GuardedRefill, Intent, KeyPath, Network, Reclaim, Refill, Refusal, Route, Seed, SignedAuthorization, SignedIntent,
    U256,
};

use crate::caps::Cap;
use crate::journal::{DEADLINES_MAX, Seen};

/// How far the deadline of an intent may be ahead of the signer's own clock: the window of 300 seconds, and 30 that the
/// clocks of two machines may differ.
pub const DEADLINE_AHEAD_SECS_MAX: u64 = 330;
/// The most gas of a transaction (EIP-7825).
pub const GAS_LIMIT_MAX: u64 = 1 << 24;
/// The most compute units of a transaction (agave: `MAX_COMPUTE_UNIT_LIMIT`).
pub const COMPUTE_LIMIT_MAX: u32 = 1_400_000;

/// What may be sent on one chain.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sendable {
    /// CAIP-2, for example `eip155:8453`.
    pub chain_ref: String,
    /// Each asset that may be sent, with each route that it may have.
    pub assets: Vec<(AssetId, Route)>,
    /// How much of each may be signed for; what is not named has no cap.
    pub caps: Vec<(AssetId, Cap)>,
    /// The most that one transaction may cost its sponsor, in base units of the native currency.
    pub cost_max: u128,
    /// The most that a treasury may give a sponsor in one transaction, in the same.
    pub refill_max: u128,
}

/// What may be signed.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    routes: HashMap<(String, AssetId), Vec<Route>>,
    /// What may act for wallets, by chain.
    implementations: HashSet<(String, Address)>,
    caps: HashMap<(String, AssetId), Cap>,
    cost_max: HashMap<String, u128>,
    refill_max: HashMap<String, u128>,
}

/// What the signer itself knows of a carrier.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// The address of the path.
    pub(crate) address: Address,
    /// Of the payment or the cancellation; `None` of what takes delegates away.
    pub(crate) signed: Option<KnownSigned>,
    /// Of each authorization that it brings.
    pub(crate) authorizations: Vec<KnownSigned>,
    /// The address of the sponsor that it refills.
    pub(crate) recipient: Option<Address>,
}

/// Whose signature is on something, and what the journal has of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownSigned {
    pub(crate) signer: Option<Address>,
    pub(crate) seen: Seen,
}

/// The entries of what a carrier brings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Entries {
    Payment {
        intent: u64,
        authorization: Option<u64>,
    },
    Cancellation(u64),
    Clearings(Vec<u64>),
    /// Nobody signs beside the treasury.
    Refill,
}

/// What the signer itself knows of a transaction that makes a guard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownGuarded {
    /// The addresses of the paths.
    pub(crate) sponsor: Address,
    pub(crate) payer: Address,
    /// What the journal has of the intent.
    pub(crate) intent: Seen,
    /// The journal has this very transaction.
    pub(crate) is_signed: bool,
    /// The guard was taken back, or may have been.
    pub(crate) is_reclaimed: bool,
}

/// What the signer itself knows of a guard that is to be taken back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownGuard {
    /// The address of the payer's path.
    pub(crate) payer: Address,
    /// What the journal has of the intent that made it.
    pub(crate) intent: Seen,
}

impl Sendable {
    /// What the network's facts give a route.
    pub fn of(network: &Network, caps: Vec<(AssetId, Cap)>, cost_max: u128) -> Self {
        let assets = network.assets.iter().flat_map(|asset| network.routes(asset).map(|route| (asset.id, route)));
        let refill_max = network.sending.refill_to;
        Sendable { chain_ref: network.chain_ref.clone(), assets: assets.collect(), caps, cost_max, refill_max }
    }
}

impl Policy {
    /// Allows what is listed. An empty list allows nothing.
    pub fn new(sendable: impl IntoIterator<Item = Sendable>) -> Self {
        let mut policy = Policy::default();
        for Sendable { chain_ref, assets, caps, cost_max, refill_max } in sendable {
            policy.caps.extend(caps.into_iter().map(|(asset, cap)| ((chain_ref.clone(), asset), cap)));
            for (asset, route) in assets {
                if let Route::Delegate(delegate) = &route {
                    policy.implementations.insert((chain_ref.clone(), delegate.implementation()));
                }
                policy.routes.entry((chain_ref.clone(), asset)).or_default().push(route);
            }
            policy.cost_max.insert(chain_ref.clone(), cost_max);
            policy.refill_max.insert(chain_ref, refill_max);
        }
        policy
    }

    /// `derived` is the address of the path, `heals` how many earlier deadlines who asks knows of, `seen` what the journal
    /// has of the intent, and `cancelled` the entry that cancelled it.
    pub(crate) fn judge_intent(
        &self,
        path: &KeyPath,
        derived: Address,
        (intent, heals): (&Intent, usize),
        (seen, cancelled): (Seen, Option<u64>),
        now: u64,
    ) -> Result<(), Refusal> {
        check_path(path, Seed::Wallets, &intent.route)?;
        self.check_route(intent)?;
        check_address("the payer", intent.payer, path, derived)?;
        if intent.amount.is_zero() {
            return refuse("the amount is 0");
        }
        check_destination(intent)?;
        match seen {
            // What was signed before is signed again whatever the time: the bytes are the same.
            Seen::Same { .. } => Ok(()),
            Seen::OtherContent { seq } => {
                refuse(format!("the transfer has entry {seq} of the journal, of another content"))
            }
            Seen::OtherDeadline { deadlines } => {
                check_cancelled(cancelled).and(check_heals(heals, deadlines)).and(check_deadline(intent.deadline, now))
            }
            Seen::Never | Seen::OtherTerms => check_heals(heals, 0).and(check_deadline(intent.deadline, now)),
        }
    }

    /// How much of its asset may be signed for. `spent` is what was within 24 hours. What was signed for before counts already.
    pub(crate) fn judge_caps(&self, intent: &Intent, seen: Seen, spent: U256) -> Result<(), Refusal> {
        let Intent { chain_ref, asset, amount, .. } = intent;
        match (seen, self.caps.get(&(chain_ref.clone(), *asset))) {
            (Seen::Never | Seen::OtherTerms, Some(cap)) => {
                cap.check(*amount, spent, &format!("{asset} on {chain_ref}"))
            }
            (_, None) | (Seen::Same { .. } | Seen::OtherDeadline { .. } | Seen::OtherContent { .. }, _) => Ok(()),
        }
    }

    /// What was signed is cancelled by its payer at any time. `derived` is the address of the path, and `seen` what the
    /// journal has of the intent. Returns the entry of the intent.
    pub(crate) fn judge_cancellation(
        &self,
        path: &KeyPath,
        derived: Address,
        intent: &Intent,
        seen: Seen,
    ) -> Result<u64, Refusal> {
        check_path(path, Seed::Wallets, &intent.route)?;
        self.check_route(intent)?;
        check_address("the payer", intent.payer, path, derived)?;
        match seen {
            Seen::Same { seq } => Ok(seq),
            Seen::Never | Seen::OtherTerms | Seen::OtherDeadline { .. } | Seen::OtherContent { .. } => {
                refuse("the intent is not in the journal")
            }
        }
    }

    /// A wallet lets only listed code act for it, on one chain. `derived` is the address of the path, and `seen` what the
    /// journal has of the wallet's nonce.
    pub(crate) fn judge_authorization(
        &self,
        path: &KeyPath,
        derived: Address,
        authorization: &Authorization,
        seen: Seen,
    ) -> Result<(), Refusal> {
        check_seed(path, Seed::Wallets)?;
        self.check_implementation(authorization)?;
        check_address("the wallet", authorization.wallet, path, derived)?;
        check_nonce(seen)
    }

    /// A wallet takes away what acts for it, on a chain where something may. As [`Policy::judge_authorization`].
    pub(crate) fn judge_clearing(
        &self,
        path: &KeyPath,
        derived: Address,
        clearing: &Authorization,
        seen: Seen,
    ) -> Result<(), Refusal> {
        check_seed(path, Seed::Wallets)?;
        self.check_clearing(clearing)?;
        check_address("the wallet", clearing.wallet, path, derived)?;
        check_nonce(seen)
    }

    fn check_implementation(&self, authorization: &Authorization) -> Result<(), Refusal> {
        let Authorization { chain_ref, implementation, .. } = authorization;
        if !self.implementations.contains(&(chain_ref.clone(), *implementation)) {
            return refuse(format!("{implementation} is not on the list of what may act for wallets on {chain_ref}"));
        }
        check_one_chain(chain_ref)
    }

    fn check_clearing(&self, clearing: &Authorization) -> Result<(), Refusal> {
        let chain_ref = &clearing.chain_ref;
        if !clearing.is_clearing() {
            return refuse(format!("{} is code, and does not take code away", clearing.implementation));
        }
        if !self.implementations.iter().any(|(listed, _)| listed == chain_ref) {
            return refuse(format!("nothing on the list acts for wallets on {chain_ref}"));
        }
        check_one_chain(chain_ref)
    }

    /// The entry of the authorization that it brings: the payer's own, of the route that it pays by.
    fn check_authorization(
        &self,
        intent: &Intent,
        authorization: Option<&SignedAuthorization>,
        known: &Known,
    ) -> Result<Option<u64>, Refusal> {
        let Some(SignedAuthorization { authorization, .. }) = authorization else { return Ok(None) };
        let Route::Delegate(delegate) = &intent.route else { return refuse("its route needs no authorization") };
        let Authorization { chain_ref, wallet, implementation, .. } = authorization;
        let is_of_it = (chain_ref, *wallet) == (&intent.chain_ref, intent.payer);
        if !is_of_it || *implementation != delegate.implementation() {
            return refuse("the authorization is not what its intent needs");
        }
        self.check_implementation(authorization)?;
        known.authorizations.first().copied().map_or_else(|| of_nobody(*wallet), |it| it.entry(*wallet)).map(Some)
    }

    /// The entries of what takes delegates away: at least one, of one chain, and each of another wallet.
    fn check_clearings(&self, clearings: &[SignedAuthorization], known: &Known) -> Result<Vec<u64>, Refusal> {
        let count = clearings.len();
        if count == 0 || count > CLEARINGS_MAX || count != known.authorizations.len() {
            return refuse(format!("clearings of {count} wallets: expected are 1 to {CLEARINGS_MAX}"));
        }
        let (mut wallets, mut entries) = (HashSet::new(), Vec::new());
        for (SignedAuthorization { authorization, .. }, known) in clearings.iter().zip(&known.authorizations) {
            self.check_clearing(authorization)?;
            if authorization.chain_ref != clearings[0].authorization.chain_ref {
                return refuse("clearings of two chains");
            }
            if !wallets.insert(authorization.wallet) {
                return refuse(format!("two clearings of {}", authorization.wallet));
            }
            entries.push(known.entry(authorization.wallet)?);
        }
        Ok(entries)
    }

    /// The entries of what it carries.
    pub(crate) fn judge_carrier(&self, path: &KeyPath, carrier: &Carrier, known: &Known) -> Result<Entries, Refusal> {
        match carrier.carried.intent() {
            Some(intent) => check_path(path, Seed::Sponsors, &intent.route).and(self.check_route(intent))?,
            None => {
                let what = if matches!(carrier.carried, Carried::Refill(_)) { "refill" } else { "clearing" };
                check_family(path, Family::Evm, what).and(check_seed(path, Seed::Sponsors))?;
            }
        }
        check_address("the sponsor", carrier.sponsor, path, known.address)?;
        check_treasury(path, &carrier.carried)?;
        let entries = match &carrier.carried {
            Carried::Payment { signed, authorization } => {
                let intent = check_signed("intent", signed, known.signed)?;
                let authorization = self.check_authorization(&signed.intent, authorization.as_deref(), known)?;
                Entries::Payment { intent, authorization }
            }
            Carried::Cancellation(signed) => Entries::Cancellation(check_signed("cancellation", signed, known.signed)?),
            Carried::Clearings(clearings) => Entries::Clearings(self.check_clearings(clearings, known)?),
            Carried::Refill(refill) => self.check_refill(refill, known.recipient).map(|()| Entries::Refill)?,
        };
        self.check_cost(carrier)?;
        Ok(entries)
    }

    /// What was cancelled gets no new payment, and a nonce of a treasury no other refill. The bytes of what was signed before
    /// are given again: they may have left already. So is a refill that is more than may be given by now. `seen` is what the
    /// journal has of the carrier, and `cancelled` the entry that cancelled its transfer.
    pub(crate) fn judge_beside(&self, carried: &Carried, seen: Seen, cancelled: Option<u64>) -> Result<(), Refusal> {
        match (carried, seen) {
            (Carried::Refill(refill), Seen::Never) => self.check_refilled(refill),
            (Carried::Refill(_), Seen::OtherContent { seq }) => {
                refuse(format!("this nonce of the treasury has entry {seq} of the journal, of another content"))
            }
            (Carried::Cancellation(_) | Carried::Clearings(_) | Carried::Refill(_), _) | (_, Seen::Same { .. }) => {
                Ok(())
            }
            (
                Carried::Payment { .. },
                Seen::Never | Seen::OtherTerms | Seen::OtherDeadline { .. } | Seen::OtherContent { .. },
            ) => check_cancelled(cancelled),
        }
    }

    /// A treasury gives to a sponsor of the same seed and chain, whose address is `derived`.
    fn check_refill(&self, refill: &Refill, derived: Option<Address>) -> Result<(), Refusal> {
        let Refill { chain_ref, number, recipient, .. } = refill;
        if !self.refill_max.contains_key(chain_ref) {
            return refuse(format!("{chain_ref} is not on the list, so no sponsor is refilled there"));
        }
        if derived != Some(*recipient) {
            return refuse(format!("{recipient} is not sponsor {number} of {chain_ref}"));
        }
        Ok(())
    }

    /// It gives no more than is listed.
    fn check_refilled(&self, Refill { chain_ref, amount, .. }: &Refill) -> Result<(), Refusal> {
        let most = self.refill_max.get(chain_ref).copied().map(U256::from).unwrap_or_default();
        if amount.is_zero() || *amount > most {
            return refuse(format!("a refill of {amount}: expected is 1 to {most} on {chain_ref}"));
        }
        Ok(())
    }

    /// A treasury of Solana gives as one of EVM does; what its journal has of the refill's number is the only content of that.
    /// `derived` is the address of the path, `recipient` that of the sponsor, and `seen` what the journal has of it.
    pub(crate) fn judge_refill(
        &self,
        (path, derived): (&KeyPath, Address),
        refill: &GuardedRefill,
        recipient: Address,
        seen: Seen,
    ) -> Result<(), Refusal> {
        let GuardedRefill { treasury, refill: given, terms, .. } = refill;
        check_family(path, Family::Solana, "refill").and(check_seed(path, Seed::Sponsors))?;
        check_address("the treasury", *treasury, path, derived)?;
        let carried = Carried::Refill(given.clone());
        check_treasury(path, &carried)?;
        self.check_refill(given, Some(recipient))?;
        if terms.memo || terms.makes_account {
            return refuse("a refill has no memo, and makes no account of a token");
        }
        check_compute(terms.compute_limit)?;
        self.check_cost_max(&given.chain_ref, terms.cost_max())?;
        self.judge_beside(&carried, seen, None)
    }

    /// The entry of the intent that it pays. A new one is signed within the window alone: what proves that nothing was
    /// paid counts blocks from its end on.
    pub(crate) fn judge_guarded(
        &self,
        [path, payer_path]: [&KeyPath; 2],
        guarded: &Guarded,
        known: &KnownGuarded,
        now: u64,
    ) -> Result<u64, Refusal> {
        let intent = &guarded.intent;
        if !matches!(intent.route, Route::Guard { .. }) {
            return refuse(format!("route {} has no guard", intent.route.name()));
        }
        check_path(path, Seed::Sponsors, &intent.route)?;
        check_carries(path, &intent.chain_ref)?;
        check_path(payer_path, Seed::Wallets, &intent.route)?;
        self.check_route(intent)?;
        check_address("the sponsor", guarded.sponsor, path, known.sponsor)?;
        check_address("the payer", intent.payer, payer_path, known.payer)?;
        let Seen::Same { seq } = known.intent else { return refuse("the intent is not in the journal") };
        if known.is_reclaimed {
            return refuse("the guard of this transfer was taken back: nothing would refuse a second payment");
        }
        if !known.is_signed {
            check_deadline(intent.deadline, now)?;
        }
        check_compute(guarded.terms.compute_limit)?;
        self.check_cost_max(&intent.chain_ref, guarded.terms.cost_max())?;
        Ok(seq)
    }

    /// The entries of what made the guards. A guard is taken back only of what the journal has, to a sponsor's own address, and
    /// long after all that was signed for its transfer is dead.
    pub(crate) fn judge_reclaim(
        &self,
        (path, sponsor): (&KeyPath, Address),
        payers: &[KeyPath],
        reclaim: &Reclaim,
        known: &[KnownGuard],
        now: u64,
    ) -> Result<Vec<u64>, Refusal> {
        let count = reclaim.guards.len();
        if count == 0 || payers.len() != count || known.len() != count {
            return refuse(format!("{count} guards with the keys of {} payers", payers.len()));
        }
        check_compute(reclaim.compute_limit)?;
        let chain_ref = &reclaim.guards[0].0.chain_ref;
        let mut entries = Vec::with_capacity(count);
        for (((intent, _), payer_path), known) in reclaim.guards.iter().zip(payers).zip(known) {
            if !matches!(intent.route, Route::Guard { .. }) {
                return refuse(format!("route {} has no guard", intent.route.name()));
            }
            if intent.chain_ref != *chain_ref {
                return refuse("guards of several chains");
            }
            check_path(path, Seed::Sponsors, &intent.route)?;
            check_carries(path, chain_ref)?;
            check_path(payer_path, Seed::Wallets, &intent.route)?;
            self.check_route(intent)?;
            check_address("the sponsor", reclaim.sponsor, path, sponsor)?;
            check_address("the payer", intent.payer, payer_path, known.payer)?;
            let Seen::Same { seq } = known.intent else { return refuse("the intent is not in the journal") };
            if entries.contains(&seq) {
                return refuse("the same guard twice");
            }
            let from = intent.deadline.saturating_add(u64::from(GUARD_RETENTION_HOURS_MIN) * 3_600);
            if now < from {
                return refuse(format!(
                    "the guard of a transfer whose deadline is {} is kept until {from}, and the signer's clock shows {now}",
                    intent.deadline
                ));
            }
            entries.push(seq);
        }
        Ok(entries)
    }

    fn check_route(&self, intent: &Intent) -> Result<(), Refusal> {
        let Intent { chain_ref, asset, route, .. } = intent;
        match self.routes.get(&(chain_ref.clone(), *asset)) {
            Some(listed) if listed.contains(route) => Ok(()),
            Some(listed) => refuse(format!("the route of {asset} on {chain_ref} is one of {listed:?}, not {route:?}")),
            None => refuse(format!("{asset} on {chain_ref} is not on the list of what may be sent")),
        }
    }

    fn check_cost(&self, carrier: &Carrier) -> Result<(), Refusal> {
        let Carrier { gas_limit, max_fee, tip, .. } = *carrier;
        if gas_limit == 0 || gas_limit > GAS_LIMIT_MAX {
            return refuse(format!("a gas limit of {gas_limit}: expected is 1 to {GAS_LIMIT_MAX}"));
        }
        if tip > max_fee {
            return refuse(format!("the tip {tip} is above the fee {max_fee}"));
        }
        self.check_cost_max(carrier.carried.chain_ref().unwrap_or_default(), carrier.cost_max())
    }

    fn check_cost_max(&self, chain_ref: &str, cost: u128) -> Result<(), Refusal> {
        let cost_max = self.cost_max.get(chain_ref).copied().unwrap_or_default();
        if cost > cost_max {
            return refuse(format!("it may cost {cost}, and at most {cost_max} on {chain_ref}"));
        }
        Ok(())
    }
}

impl KnownSigned {
    /// The entry of an authorization of `wallet`.
    fn entry(self, wallet: Address) -> Result<u64, Refusal> {
        match (self.signer, self.seen) {
            (Some(signer), Seen::Same { seq }) if signer == wallet => Ok(seq),
            (_, Seen::Same { .. }) => of_nobody(wallet),
            (_, Seen::Never | Seen::OtherTerms | Seen::OtherDeadline { .. } | Seen::OtherContent { .. }) => {
                refuse("the authorization is not in the journal")
            }
        }
    }
}

fn refuse<T>(why: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal(why.into()))
}

fn of_nobody<T>(wallet: Address) -> Result<T, Refusal> {
    refuse(format!("the authorization has no signature of its wallet {wallet}"))
}

/// The entry of what a payer signed.
fn check_signed(what: &str, signed: &SignedIntent, known: Option<KnownSigned>) -> Result<u64, Refusal> {
    let payer = signed.intent.payer;
    match known {
        Some(KnownSigned { signer: Some(signer), seen: Seen::Same { seq } }) if signer == payer => Ok(seq),
        Some(KnownSigned { seen: Seen::Same { .. }, .. }) => {
            refuse(format!("the {what} has no signature of its payer {payer}"))
        }
        Some(_) | None => refuse(format!("the {what} is not in the journal")),
    }
}

fn check_cancelled(cancelled: Option<u64>) -> Result<(), Refusal> {
    match cancelled {
        Some(seq) => refuse(format!("the transfer was cancelled by entry {seq} of the journal")),
        None => Ok(()),
    }
}

/// A wallet signs one thing for each of its nonces.
fn check_nonce(seen: Seen) -> Result<(), Refusal> {
    match seen {
        Seen::Never | Seen::Same { .. } => Ok(()),
        Seen::OtherContent { seq } => {
            refuse(format!("this nonce of the wallet has entry {seq} of the journal, of another content"))
        }
        // An authorization has neither a deadline nor other terms.
        Seen::OtherDeadline { .. } | Seen::OtherTerms => refuse("an authorization has one content for each nonce"),
    }
}

/// EIP-7702 takes 0 for every chain. Nothing is listed under it, whoever writes the list.
fn check_one_chain(chain_ref: &str) -> Result<(), Refusal> {
    if chain_ref.trim_start_matches("eip155:").trim_matches('0').is_empty() {
        return refuse("an authorization for every chain");
    }
    Ok(())
}

fn check_path(path: &KeyPath, seed: Seed, route: &Route) -> Result<(), Refusal> {
    let family = match route {
        Route::Erc3009 { .. } | Route::Delegate(_) => Family::Evm,
        Route::Guard { .. } => Family::Solana,
    };
    check_family(path, family, route.name()).and(check_seed(path, seed))
}

fn check_family(path: &KeyPath, family: Family, route: &str) -> Result<(), Refusal> {
    if path.family != family {
        return refuse(format!("path {path} is of another family than route {route}"));
    }
    Ok(())
}

fn check_seed(path: &KeyPath, seed: Seed) -> Result<(), Refusal> {
    if path.seed != seed {
        return refuse("an intent is signed by a key of wallets, a carrier by a key of sponsors");
    }
    Ok(())
}

/// The key of a treasury signs refills, and nothing else does.
fn check_treasury(path: &KeyPath, carried: &Carried) -> Result<(), Refusal> {
    let chain_ref = carried.chain_ref().unwrap_or_default();
    match carried {
        Carried::Refill(_) if !is_treasury(path, chain_ref) => refuse(format!("path {path} is not the treasury's")),
        Carried::Refill(_) => Ok(()),
        Carried::Payment { .. } | Carried::Cancellation(_) | Carried::Clearings(_) => check_carries(path, chain_ref),
    }
}

fn check_carries(path: &KeyPath, chain_ref: &str) -> Result<(), Refusal> {
    if is_treasury(path, chain_ref) {
        return refuse("a treasury refills sponsors, and carries nothing");
    }
    Ok(())
}

fn is_treasury(path: &KeyPath, chain_ref: &str) -> bool {
    *path == KeyPath::of_treasury(path.family, chain_ref)
}

fn check_compute(limit: u32) -> Result<(), Refusal> {
    if limit == 0 || limit > COMPUTE_LIMIT_MAX {
        return refuse(format!("a limit of {limit} compute units: expected is 1 to {COMPUTE_LIMIT_MAX}"));
    }
    Ok(())
}

fn check_address(whose: &'static str, asked: Address, path: &KeyPath, derived: Address) -> Result<(), Refusal> {
    if asked != derived {
        return refuse(format!("{whose} is {asked}, and path {path} is of {derived}"));
    }
    Ok(())
}

fn check_destination(intent: &Intent) -> Result<(), Refusal> {
    let destination = intent.destination;
    let what = if destination == intent.payer {
        "the payer"
    } else if intent.asset == AssetId::Token(destination) {
        "the token"
    } else if destination.as_bytes().iter().all(|byte| *byte == 0) {
        "the zero address"
    } else {
        return Ok(());
    };
    refuse(format!("the destination {destination} is {what}"))
}

/// Who asks for a later deadline must know of all that were signed: else it would say that nothing was paid, and one of
/// them may still be.
fn check_heals(heals: usize, deadlines: usize) -> Result<(), Refusal> {
    if deadlines >= DEADLINES_MAX {
        return refuse(format!("the transfer was signed with {deadlines} deadlines already"));
    }
    if deadlines != heals {
        return refuse(format!("{heals} earlier deadlines are known to who asks, and {deadlines} to the journal"));
    }
    Ok(())
}

fn check_deadline(deadline: u64, now: u64) -> Result<(), Refusal> {
    match deadline.checked_sub(now) {
        None | Some(0) => {
            refuse(format!("the deadline {deadline} has passed by the signer's clock, which shows {now}"))
        }
        Some(1..=DEADLINE_AHEAD_SECS_MAX) => Ok(()),
        Some(ahead) => refuse(format!(
            "the deadline {deadline} is {ahead} s ahead of the signer's clock, and may be {DEADLINE_AHEAD_SECS_MAX}"
        )),
    }
}

#[cfg(test)]
mod tests {
    use landfall_chain::{Asset, Chain, Delegate, GuardTerms};

    use super::*;

    const NOW: u64 = 1_800_000_000;
    const TOKEN: Address = Address::Evm([3; 20]);
    const PAYER: Address = Address::Evm([1; 20]);
    const SPONSOR: Address = Address::Evm([4; 20]);
    const SOLANA: Address = Address::Solana([1; 32]);

    fn route(name: &str, version: &str) -> Route {
        Route::Erc3009 { name: name.to_owned(), version: version.to_owned() }
    }

    fn policy() -> Policy {
        let assets = vec![(AssetId::Token(TOKEN), route("USD Coin", "2"))];
        let chain_ref = "eip155:8453".to_owned();
        Policy::new([Sendable { chain_ref, assets, caps: Vec::new(), cost_max: 1_000_000, refill_max: 500 }])
    }

    fn intent() -> Intent {
        Intent {
            transfer_id: [7; 16],
            chain_ref: "eip155:8453".to_owned(),
            route: route("USD Coin", "2"),
            asset: AssetId::Token(TOKEN),
            payer: PAYER,
            destination: Address::Evm([2; 20]),
            amount: U256::from(5),
            deadline: NOW + 300,
        }
    }

    fn path(seed: Seed, family: Family) -> KeyPath {
        KeyPath { seed, family, account: 1, index: 2 }
    }

    fn judged(intent: &Intent) -> Result<(), Refusal> {
        policy().judge_intent(&path(Seed::Wallets, Family::Evm), PAYER, (intent, 0), (Seen::Never, None), NOW)
    }

    fn of(intent: Intent) -> SignedIntent {
        SignedIntent { intent, signature: vec![0; 65] }
    }

    fn paying(intent: Intent) -> Carried {
        Carried::Payment { signed: of(intent), authorization: None }
    }

    fn carrier() -> Carrier {
        Carrier { carried: paying(intent()), ..carrying(Vec::new()) }
    }

    fn carrying(clearings: Vec<SignedAuthorization>) -> Carrier {
        let carried = Carried::Clearings(clearings);
        Carrier { sponsor: SPONSOR, carried, nonce: 0, gas_limit: 1000, max_fee: 1000, tip: 1000 }
    }

    fn known(signer: Option<Address>, seen: Seen) -> Known {
        let signed = Some(KnownSigned { signer, seen });
        Known { address: SPONSOR, signed, authorizations: Vec::new(), recipient: None }
    }

    fn judged_carrier(carrier: &Carrier) -> Result<Entries, Refusal> {
        let known = known(Some(PAYER), Seen::Same { seq: 8 });
        policy().judge_carrier(&path(Seed::Sponsors, Family::Evm), carrier, &known)
    }

    fn refusal<T: std::fmt::Debug>(judged: Result<T, Refusal>) -> String {
        judged.unwrap_err().0
    }

    #[test]
    fn an_intent_that_is_listed_is_allowed() {
        assert_eq!(judged(&intent()), Ok(()));
        for ahead in [1, DEADLINE_AHEAD_SECS_MAX] {
            assert_eq!(judged(&Intent { deadline: NOW + ahead, ..intent() }), Ok(()));
        }
    }

    #[test]
    fn t20_an_intent_that_is_not_allowed_is_refused_with_the_reason() {
        let destination = |destination| Intent { destination, ..intent() };
        let cases = [
            (
                Intent { chain_ref: "eip155:1".to_owned(), ..intent() },
                "0x0303030303030303030303030303030303030303 on eip155:1 is not on the list of what may be sent",
            ),
            (
                Intent { asset: AssetId::Native, ..intent() },
                "native on eip155:8453 is not on the list of what may be sent",
            ),
            (
                Intent { asset: AssetId::Token(Address::Evm([9; 20])), ..intent() },
                "0x0909090909090909090909090909090909090909 on eip155:8453 is not on the list of what may be sent",
            ),
            (Intent { route: route("USDC", "2"), ..intent() }, "the route of 0x03"),
            (Intent { route: route("USD Coin", "1"), ..intent() }, "the route of 0x03"),
            (Intent { payer: Address::Evm([8; 20]), ..intent() }, "the payer is 0x0808"),
            (Intent { payer: SOLANA, ..intent() }, "the payer is 4vJ9JU1b"),
            (Intent { amount: U256::ZERO, ..intent() }, "the amount is 0"),
            (destination(PAYER), "the destination 0x0101010101010101010101010101010101010101 is the payer"),
            (destination(TOKEN), "the destination 0x0303030303030303030303030303030303030303 is the token"),
            (
                destination(Address::Evm([0; 20])),
                "the destination 0x0000000000000000000000000000000000000000 is the zero",
            ),
            (
                Intent { deadline: NOW, ..intent() },
                "the deadline 1800000000 has passed by the signer's clock, which shows 1800000000",
            ),
            (Intent { deadline: 0, ..intent() }, "the deadline 0 has passed by the signer's clock"),
            (
                Intent { deadline: NOW + 331, ..intent() },
                "the deadline 1800000331 is 331 s ahead of the signer's clock, and may be 330",
            ),
            (Intent { deadline: u64::MAX, ..intent() }, "the deadline 18446744073709551615 is"),
        ];
        for (intent, expected) in cases {
            let why = refusal(judged(&intent));
            assert!(why.starts_with(expected), "{why}");
        }
        let nothing = Policy::new([]);
        let path = path(Seed::Wallets, Family::Evm);
        let why = refusal(nothing.judge_intent(&path, PAYER, (&intent(), 0), (Seen::Never, None), NOW));
        assert!(why.ends_with("is not on the list of what may be sent"), "{why}");
    }

    #[test]
    fn a_path_signs_only_what_its_seed_and_its_family_are_for() {
        let cases = [
            (path(Seed::Sponsors, Family::Evm), path(Seed::Wallets, Family::Evm), "an intent is signed by a key of"),
            (
                path(Seed::Wallets, Family::Solana),
                path(Seed::Sponsors, Family::Solana),
                "path m/44'/501'/1'/2' is of another family than route erc3009",
            ),
        ];
        let known = known(Some(PAYER), Seen::Same { seq: 8 });
        for (of_intent, of_carrier, expected) in cases {
            let why = refusal(policy().judge_intent(&of_intent, PAYER, (&intent(), 0), (Seen::Never, None), NOW));
            assert!(why.starts_with(expected), "{why}");
            let why = refusal(policy().judge_carrier(&of_carrier, &carrier(), &known));
            assert!(why.starts_with(expected), "{why}");
        }
    }

    #[test]
    fn the_journal_decides_what_a_transfer_may_still_be_signed_with() {
        let (path, late) = (path(Seed::Wallets, Family::Evm), Intent { deadline: NOW - 1, ..intent() });
        let healed =
            |intent: &Intent, heals, seen| policy().judge_intent(&path, PAYER, (intent, heals), (seen, None), NOW);
        let judged = |intent: &Intent, seen| healed(intent, 0, seen);
        assert_eq!(judged(&late, Seen::Same { seq: 3 }), Ok(()), "the same bytes again, whatever the time");
        let why = refusal(judged(&intent(), Seen::OtherDeadline { deadlines: 1 }));
        assert_eq!(why, "0 earlier deadlines are known to who asks, and 1 to the journal");
        let why = refusal(healed(&intent(), 1, Seen::Never));
        assert_eq!(why, "1 earlier deadlines are known to who asks, and 0 to the journal");
        let why = refusal(healed(&late, 1, Seen::OtherDeadline { deadlines: 1 }));
        assert!(why.starts_with("the deadline 1799999999 has passed"), "{why}");
        for heals in 1..4 {
            let seen = Seen::OtherDeadline { deadlines: heals };
            assert_eq!(healed(&intent(), heals, seen), Ok(()), "a reorg took it back");
        }
        let why = refusal(healed(&intent(), 4, Seen::OtherDeadline { deadlines: 4 }));
        assert_eq!(why, "the transfer was signed with 4 deadlines already");
        let why = refusal(judged(&intent(), Seen::OtherContent { seq: 3 }));
        assert_eq!(why, "the transfer has entry 3 of the journal, of another content");
        let nothing = Policy::new([]).judge_intent(&path, PAYER, (&intent(), 0), (Seen::Same { seq: 3 }, None), NOW);
        assert!(nothing.is_err(), "what was taken off the list is not signed again");
        let cancelled = |seen| policy().judge_intent(&path, PAYER, (&intent(), 1), (seen, Some(5)), NOW);
        assert_eq!(cancelled(Seen::Same { seq: 3 }), Ok(()), "the same bytes again");
        let why = refusal(cancelled(Seen::OtherDeadline { deadlines: 1 }));
        assert_eq!(why, "the transfer was cancelled by entry 5 of the journal");
    }

    #[test]
    fn a_carrier_within_its_caps_is_allowed_with_the_entry_of_its_intent() {
        let entries = Entries::Payment { intent: 8, authorization: None };
        assert_eq!(judged_carrier(&carrier()), Ok(entries.clone()));
        let dear = Carrier { gas_limit: GAS_LIMIT_MAX, max_fee: 0, tip: 0, ..carrier() };
        assert_eq!(judged_carrier(&dear), Ok(entries));
    }

    #[test]
    fn a_carrier_that_is_not_allowed_is_refused_with_the_reason() {
        let unlisted = Intent { asset: AssetId::Native, ..intent() };
        let cases = [
            (
                Carrier { carried: paying(unlisted), ..carrier() },
                "native on eip155:8453 is not on the list of what may be sent",
            ),
            (Carrier { sponsor: PAYER, ..carrier() }, "the sponsor is 0x0101"),
            (Carrier { gas_limit: 0, ..carrier() }, "a gas limit of 0: expected is 1 to 16777216"),
            (Carrier { gas_limit: GAS_LIMIT_MAX + 1, ..carrier() }, "a gas limit of 16777217: expected is"),
            (Carrier { tip: 1001, ..carrier() }, "the tip 1001 is above the fee 1000"),
            (Carrier { max_fee: 1001, ..carrier() }, "it may cost 1001000, and at most 1000000 on eip155:8453"),
            (Carrier { max_fee: u128::MAX, ..carrier() }, "it may cost"),
        ];
        for (carrier, expected) in cases {
            let why = refusal(judged_carrier(&carrier));
            assert!(why.starts_with(expected), "{why}");
        }
    }

    const IMPLEMENTATION: Address = Address::Evm([0x63; 20]);

    fn by_delegate() -> Route {
        let [manager, ids, times, executions] = [0xdb, 0xc8, 0x10, 0x14].map(|byte| Address::Evm([byte; 20]));
        Route::Delegate(Delegate::Metamask { implementation: IMPLEMENTATION, manager, ids, times, executions })
    }

    fn delegating() -> Policy {
        let assets = vec![(AssetId::Native, by_delegate()), (AssetId::Token(TOKEN), route("USD Coin", "2"))];
        let chain_ref = "eip155:8453".to_owned();
        Policy::new([Sendable { chain_ref, assets, caps: Vec::new(), cost_max: 1_000_000, refill_max: 0 }])
    }

    fn authorization() -> Authorization {
        let chain_ref = "eip155:8453".to_owned();
        Authorization { chain_ref, wallet: PAYER, implementation: IMPLEMENTATION, nonce: 3 }
    }

    #[test]
    fn a_wallet_lets_listed_code_act_for_it_on_one_chain_and_nothing_else() {
        let wallet = path(Seed::Wallets, Family::Evm);
        let judged = |it: Authorization, seen| delegating().judge_authorization(&wallet, PAYER, &it, seen);
        assert_eq!(judged(authorization(), Seen::Never), Ok(()));
        assert_eq!(judged(authorization(), Seen::Same { seq: 4 }), Ok(()));
        let other = |seen| refusal(judged(authorization(), seen));
        assert_eq!(
            other(Seen::OtherContent { seq: 4 }),
            "this nonce of the wallet has entry 4 of the journal, of another content"
        );
        let cases = [
            (Authorization { implementation: Address::Evm([9; 20]), ..authorization() }, "0x0909"),
            (Authorization { implementation: Address::Evm([0; 20]), ..authorization() }, "0x0000"),
            (Authorization { chain_ref: "eip155:1".to_owned(), ..authorization() }, "0x6363"),
            (Authorization { chain_ref: "eip155:0".to_owned(), ..authorization() }, "0x6363"),
            (Authorization { wallet: SPONSOR, ..authorization() }, "the wallet is 0x0404"),
        ];
        for (authorization, expected) in cases {
            let why = refusal(judged(authorization, Seen::Never));
            assert!(why.starts_with(expected), "{why}");
        }
        let none = policy().judge_authorization(&wallet, PAYER, &authorization(), Seen::Never);
        assert!(refusal(none).ends_with("is not on the list of what may act for wallets on eip155:8453"));
        let sponsor = path(Seed::Sponsors, Family::Evm);
        let by_sponsor = delegating().judge_authorization(&sponsor, PAYER, &authorization(), Seen::Never);
        assert!(refusal(by_sponsor).starts_with("an intent is signed by a key of wallets"));
    }

    #[test]
    fn an_asset_is_sent_by_each_listed_delegate_and_an_authorization_is_of_its_own() {
        let own = |byte| Route::Delegate(Delegate::Own { implementation: Address::Evm([byte; 20]) });
        let assets = vec![(AssetId::Native, by_delegate()), (AssetId::Native, own(0x5a))];
        let chain_ref = "eip155:8453".to_owned();
        let policy =
            Policy::new([Sendable { chain_ref, assets, caps: Vec::new(), cost_max: 1_000_000, refill_max: 0 }]);
        let by = |route| Intent { asset: AssetId::Native, route, ..intent() };
        let wallet = path(Seed::Wallets, Family::Evm);
        let judged = |it: Intent| policy.judge_intent(&wallet, PAYER, (&it, 0), (Seen::Never, None), NOW);
        assert_eq!((judged(by(by_delegate())), judged(by(own(0x5a)))), (Ok(()), Ok(())));
        assert!(refusal(judged(by(own(0x5b)))).starts_with("the route of native on eip155:8453 is one of"));
        let beside = |implementation| {
            let authorization = Authorization { implementation, ..authorization() };
            let signed = SignedAuthorization { authorization, signature: vec![0; 65] };
            let carried = Carried::Payment { signed: of(by(own(0x5a))), authorization: Some(Box::new(signed)) };
            let authorizations = vec![KnownSigned { signer: Some(PAYER), seen: Seen::Same { seq: 5 } }];
            let known = Known { authorizations, ..known(Some(PAYER), Seen::Same { seq: 8 }) };
            policy.judge_carrier(&path(Seed::Sponsors, Family::Evm), &Carrier { carried, ..carrier() }, &known)
        };
        assert!(beside(Address::Evm([0x5a; 20])).is_ok());
        assert_eq!(refusal(beside(IMPLEMENTATION)), "the authorization is not what its intent needs");
    }

    #[test]
    fn nothing_acts_for_a_wallet_on_every_chain_even_where_a_list_says_so() {
        for chain_ref in ["eip155:0", "eip155:00"] {
            let assets = vec![(AssetId::Native, by_delegate())];
            let chain_ref = chain_ref.to_owned();
            let policy = Policy::new([Sendable {
                chain_ref: chain_ref.clone(),
                assets,
                caps: Vec::new(),
                cost_max: 1,
                refill_max: 0,
            }]);
            let every = Authorization { chain_ref, ..authorization() };
            let wallet = path(Seed::Wallets, Family::Evm);
            let why = refusal(policy.judge_authorization(&wallet, PAYER, &every, Seen::Never));
            assert_eq!(why, "an authorization for every chain");
        }
    }

    #[test]
    fn a_carrier_brings_the_authorization_that_its_own_intent_needs_signed_and_journaled() {
        let intent = Intent { asset: AssetId::Native, route: by_delegate(), ..intent() };
        let signed = |authorization| Some(Box::new(SignedAuthorization { authorization, signature: vec![0; 65] }));
        let carrier = |intent: &Intent, authorization| {
            let carried = Carried::Payment { signed: of(intent.clone()), authorization: signed(authorization) };
            Carrier { carried, ..carrier() }
        };
        let path = path(Seed::Sponsors, Family::Evm);
        let judged = |carrier: &Carrier, authorization: Option<(Option<Address>, Seen)>| {
            let authorizations = authorization.map(|(signer, seen)| KnownSigned { signer, seen }).into_iter().collect();
            let known = Known { authorizations, ..known(Some(PAYER), Seen::Same { seq: 8 }) };
            delegating().judge_carrier(&path, carrier, &known)
        };
        let good = Some((Some(PAYER), Seen::Same { seq: 5 }));
        let expected = Entries::Payment { intent: 8, authorization: Some(5) };
        assert_eq!(judged(&carrier(&intent, authorization()), good), Ok(expected));
        let foreign = "the authorization is not what its intent needs";
        let cases = [
            (carrier(&intent, Authorization { wallet: SPONSOR, ..authorization() }), good, foreign),
            (carrier(&intent, Authorization { implementation: TOKEN, ..authorization() }), good, foreign),
            (carrier(&intent, Authorization { chain_ref: "eip155:1".to_owned(), ..authorization() }), good, foreign),
            (carrier(&super::tests::intent(), authorization()), good, "its route needs no authorization"),
            (
                carrier(&intent, authorization()),
                Some((Some(SPONSOR), Seen::Same { seq: 5 })),
                "the authorization has no",
            ),
            (carrier(&intent, authorization()), Some((None, Seen::Same { seq: 5 })), "the authorization has no"),
            (carrier(&intent, authorization()), None, "the authorization has no signature"),
            (carrier(&intent, authorization()), Some((Some(PAYER), Seen::Never)), "the authorization is not in the"),
            (
                carrier(&intent, authorization()),
                Some((Some(PAYER), Seen::OtherContent { seq: 5 })),
                "the authorization is not in the journal",
            ),
        ];
        for (carrier, known, expected) in cases {
            let why = refusal(judged(&carrier, known));
            assert!(why.starts_with(expected), "{why}");
        }
    }

    #[test]
    fn a_carrier_of_what_is_not_journaled_or_not_signed_is_refused() {
        let path = path(Seed::Sponsors, Family::Evm);
        let judged = |signer, seen| refusal(policy().judge_carrier(&path, &carrier(), &known(signer, seen)));
        for seen in [Seen::Never, Seen::OtherDeadline { deadlines: 1 }, Seen::OtherContent { seq: 1 }] {
            assert_eq!(judged(Some(PAYER), seen), "the intent is not in the journal");
        }
        for signer in [None, Some(SPONSOR)] {
            let why = judged(signer, Seen::Same { seq: 1 });
            assert_eq!(why, "the intent has no signature of its payer 0x0101010101010101010101010101010101010101");
        }
    }

    #[test]
    fn what_was_signed_is_cancelled_by_its_payer_and_gets_no_new_payment() {
        let wallet = path(Seed::Wallets, Family::Evm);
        let judged = |of: &Intent, derived, seen| policy().judge_cancellation(&wallet, derived, of, seen);
        assert_eq!(judged(&intent(), PAYER, Seen::Same { seq: 3 }), Ok(3));
        let late = Intent { deadline: NOW - 1, ..intent() };
        assert_eq!(judged(&late, PAYER, Seen::Same { seq: 3 }), Ok(3));
        for seen in [Seen::Never, Seen::OtherDeadline { deadlines: 1 }, Seen::OtherContent { seq: 3 }] {
            assert_eq!(refusal(judged(&intent(), PAYER, seen)), "the intent is not in the journal");
        }
        assert!(refusal(judged(&intent(), SPONSOR, Seen::Same { seq: 3 })).starts_with("the payer is 0x0101"));
        let unlisted = Intent { asset: AssetId::Native, ..intent() };
        let why = refusal(judged(&unlisted, PAYER, Seen::Same { seq: 3 }));
        assert!(why.ends_with("is not on the list of what may be sent"), "{why}");
        let sponsor = path(Seed::Sponsors, Family::Evm);
        let by_sponsor = policy().judge_cancellation(&sponsor, PAYER, &intent(), Seen::Same { seq: 3 });
        assert!(refusal(by_sponsor).starts_with("an intent is signed by a key of wallets"));

        let cancelling = Carrier { carried: Carried::Cancellation(of(intent())), ..carrier() };
        let carried = |signer, seen| policy().judge_carrier(&sponsor, &cancelling, &known(signer, seen));
        assert_eq!(carried(Some(PAYER), Seen::Same { seq: 4 }), Ok(Entries::Cancellation(4)));
        assert_eq!(refusal(carried(Some(PAYER), Seen::Never)), "the cancellation is not in the journal");
        let why = refusal(carried(Some(SPONSOR), Seen::Same { seq: 4 }));
        assert!(why.starts_with("the cancellation has no signature of its payer 0x0101"), "{why}");

        let payment = |seen, cancelled| policy().judge_beside(&carrier().carried, seen, cancelled);
        assert_eq!(payment(Seen::Never, None), Ok(()));
        assert_eq!(payment(Seen::Same { seq: 2 }, Some(4)), Ok(()), "those bytes may have left already");
        let why = refusal(payment(Seen::Never, Some(4)));
        assert_eq!(why, "the transfer was cancelled by entry 4 of the journal");
        assert_eq!(policy().judge_beside(&cancelling.carried, Seen::Never, Some(4)), Ok(()));
    }

    fn clearing() -> Authorization {
        Authorization::clearing("eip155:8453".to_owned(), PAYER, 4)
    }

    #[test]
    fn a_wallet_takes_away_what_acts_for_it_where_something_may() {
        let wallet = path(Seed::Wallets, Family::Evm);
        let judged = |it: Authorization, seen| delegating().judge_clearing(&wallet, PAYER, &it, seen);
        assert_eq!(judged(clearing(), Seen::Never), Ok(()));
        assert_eq!(judged(clearing(), Seen::Same { seq: 4 }), Ok(()));
        let why = refusal(judged(clearing(), Seen::OtherContent { seq: 4 }));
        assert_eq!(why, "this nonce of the wallet has entry 4 of the journal, of another content");
        let cases = [
            (authorization(), "0x6363636363636363636363636363636363636363 is code, and does not take code away"),
            (
                Authorization { chain_ref: "eip155:1".to_owned(), ..clearing() },
                "nothing on the list acts for wallets on",
            ),
            (
                Authorization { chain_ref: "eip155:0".to_owned(), ..clearing() },
                "nothing on the list acts for wallets on",
            ),
            (Authorization { wallet: SPONSOR, ..clearing() }, "the wallet is 0x0404"),
        ];
        for (clearing, expected) in cases {
            let why = refusal(judged(clearing, Seen::Never));
            assert!(why.starts_with(expected), "{why}");
        }
        let as_delegate = delegating().judge_authorization(&wallet, PAYER, &clearing(), Seen::Never);
        assert!(refusal(as_delegate).contains("is not on the list of what may act for wallets"));
        let nowhere = policy().judge_clearing(&wallet, PAYER, &clearing(), Seen::Never);
        assert!(refusal(nowhere).starts_with("nothing on the list acts for wallets on eip155:8453"));
        let sponsor = path(Seed::Sponsors, Family::Evm);
        assert!(delegating().judge_clearing(&sponsor, PAYER, &clearing(), Seen::Never).is_err());
    }

    #[test]
    fn twenty_wallets_share_a_clearing_each_signed_and_journaled_and_each_once() {
        let wallet = |nth: u8| Address::Evm([nth; 20]);
        let signed = |nth: u8| {
            let authorization = Authorization { wallet: wallet(nth), ..clearing() };
            SignedAuthorization { authorization, signature: vec![0; 65] }
        };
        let known_of = |nth: u8| KnownSigned { signer: Some(wallet(nth)), seen: Seen::Same { seq: nth.into() } };
        let judged = |clearings: Vec<SignedAuthorization>, authorizations| {
            let known = Known { address: SPONSOR, signed: None, authorizations, recipient: None };
            delegating().judge_carrier(&path(Seed::Sponsors, Family::Evm), &carrying(clearings), &known)
        };
        let all = |most| judged((1..=most).map(signed).collect(), (1..=most).map(known_of).collect());
        assert_eq!(all(20), Ok(Entries::Clearings((1..=20).collect())));
        assert_eq!(refusal(all(0)), "clearings of 0 wallets: expected are 1 to 20");
        assert_eq!(refusal(all(21)), "clearings of 21 wallets: expected are 1 to 20");
        let two = |second: SignedAuthorization, of_second| {
            refusal(judged(vec![signed(1), second], vec![known_of(1), of_second]))
        };
        let with = |authorization| SignedAuthorization { authorization, ..signed(2) };
        let strange = Authorization { implementation: IMPLEMENTATION, ..signed(2).authorization };
        let cases = [
            (two(signed(1), known_of(1)), "two clearings of 0x0101"),
            (two(with(strange), known_of(2)), "0x6363"),
            (two(signed(2), KnownSigned { signer: None, ..known_of(2) }), "the authorization has no signature of its"),
            (
                two(signed(2), KnownSigned { seen: Seen::Never, ..known_of(2) }),
                "the authorization is not in the journal",
            ),
            (refusal(judged(vec![signed(1)], Vec::new())), "clearings of 1 wallets"),
        ];
        for (why, expected) in cases {
            assert!(why.starts_with(expected), "{why}");
        }
        let mut two_chains = delegating();
        two_chains.implementations.insert(("eip155:1".to_owned(), IMPLEMENTATION));
        let other = Authorization { chain_ref: "eip155:1".to_owned(), ..signed(2).authorization };
        let authorizations = vec![known_of(1), known_of(2)];
        let known = Known { address: SPONSOR, signed: None, authorizations, recipient: None };
        let carrier = carrying(vec![signed(1), with(other)]);
        let why = refusal(two_chains.judge_carrier(&path(Seed::Sponsors, Family::Evm), &carrier, &known));
        assert_eq!(why, "clearings of two chains");
    }

    #[test]
    fn what_the_facts_of_a_network_give_a_route_may_be_sent_and_nothing_else() {
        let mut network = landfall_evm::network(Chain::BaseMainnet).unwrap();
        let asset = |id, route| Asset { id, symbol: "X".to_owned(), decimals: 6, from_block: 0, route };
        let listed = (AssetId::Token(TOKEN), route("USD Coin", "2"));
        network.assets = vec![asset(AssetId::Native, None), asset(listed.0, Some(listed.1.clone()))];
        let sendable = Sendable::of(&network, Vec::new(), 9);
        let (chain_ref, refill_max) = ("eip155:8453".to_owned(), network.sending.refill_to);
        assert_eq!(sendable, Sendable { chain_ref, assets: vec![listed], caps: Vec::new(), cost_max: 9, refill_max });
    }

    const TREASURY: Address = Address::Evm([0x77; 20]);

    fn refill() -> Refill {
        let chain_ref = "eip155:8453".to_owned();
        Refill { chain_ref, number: 2, recipient: SPONSOR, amount: U256::from(500) }
    }

    fn refilling(refill: Refill) -> Carrier {
        Carrier { sponsor: TREASURY, carried: Carried::Refill(refill), ..carrying(Vec::new()) }
    }

    #[test]
    fn a_treasury_refills_sponsors_of_its_own_chain_up_to_what_is_listed_and_does_nothing_else() {
        let treasury = KeyPath::of_treasury(Family::Evm, "eip155:8453");
        let judged = |path: &KeyPath, carrier: &Carrier, recipient| {
            let known = Known { address: TREASURY, signed: None, authorizations: Vec::new(), recipient };
            policy().judge_carrier(path, carrier, &known)
        };
        assert_eq!(judged(&treasury, &refilling(refill()), Some(SPONSOR)), Ok(Entries::Refill));
        let of = |refill| refusal(judged(&treasury, &refilling(refill), Some(SPONSOR)));
        let by = |path: KeyPath| refusal(judged(&path, &refilling(refill()), Some(SPONSOR)));
        let sponsor = KeyPath::of_sponsor(Family::Evm, "eip155:8453", 2);
        let cases = [
            (
                of(Refill { recipient: PAYER, ..refill() }),
                "0x0101010101010101010101010101010101010101 is not sponsor 2",
            ),
            (
                of(Refill { recipient: TREASURY, ..refill() }),
                "0x7777777777777777777777777777777777777777 is not sponsor 2",
            ),
            (
                refusal(judged(&treasury, &refilling(refill()), None)),
                "0x0404040404040404040404040404040404040404 is not",
            ),
            (by(sponsor), "path m/44'/60'"),
            (by(KeyPath::of_treasury(Family::Evm, "eip155:1")), "path m/44'/60'"),
            (by(KeyPath { seed: Seed::Wallets, ..treasury }), "an intent is signed by a key of wallets"),
            (by(KeyPath { family: Family::Solana, ..treasury }), "path m/44'/501'"),
            (
                refusal(judged(&treasury, &Carrier { sponsor: SPONSOR, ..refilling(refill()) }, Some(SPONSOR))),
                "the sponsor is 0x0404",
            ),
            (
                refusal(judged(&treasury, &Carrier { max_fee: 1_001, ..refilling(refill()) }, Some(SPONSOR))),
                "it may cost 1001000, and at most 1000000",
            ),
            (
                refusal(judged(&treasury, &Carrier { sponsor: TREASURY, ..carrier() }, None)),
                "a treasury refills sponsors, and carries nothing",
            ),
        ];
        for (why, expected) in cases {
            assert!(why.starts_with(expected), "{why}, not {expected}");
        }
        let elsewhere = Refill { chain_ref: "eip155:1".to_owned(), ..refill() };
        let why = judged(&KeyPath::of_treasury(Family::Evm, "eip155:1"), &refilling(elsewhere), Some(SPONSOR));
        assert_eq!(refusal(why), "eip155:1 is not on the list, so no sponsor is refilled there");
    }

    #[test]
    fn a_nonce_of_a_treasury_has_one_content_whatever_is_offered_for_it() {
        let of = |amount: u64, seen| {
            policy().judge_beside(&Carried::Refill(Refill { amount: U256::from(amount), ..refill() }), seen, None)
        };
        assert_eq!(of(500, Seen::Never), Ok(()));
        assert_eq!(of(500, Seen::Same { seq: 3 }), Ok(()));
        let why = refusal(of(500, Seen::OtherContent { seq: 3 }));
        assert_eq!(why, "this nonce of the treasury has entry 3 of the journal, of another content");
        for amount in [0, 501] {
            let why = format!("a refill of {amount}: expected is 1 to 500 on eip155:8453");
            assert_eq!(refusal(of(amount, Seen::Never)), why);
        }
        assert_eq!(of(501, Seen::Same { seq: 3 }), Ok(()), "it was signed when so much might be given");
        assert_eq!(of(501, Seen::OtherTerms), Ok(()), "and its fees may be raised");
    }

    const SOL: &str = "solana:x";
    const SOLANA_SPONSOR: Address = Address::Solana([4; 32]);

    fn guarded() -> Guarded {
        let route = Route::Guard { program: None, decimals: 9 };
        let intent = Intent {
            chain_ref: SOL.to_owned(),
            route,
            asset: AssetId::Native,
            payer: SOLANA,
            destination: Address::Solana([2; 32]),
            ..intent()
        };
        let terms = GuardTerms {
            blockhash: landfall_chain::BlockHash([9; 32]),
            rent: 890_880,
            compute_limit: 1_000,
            compute_price: 1_000_000,
            memo: false,
            makes_account: false,
        };
        Guarded { sponsor: SOLANA_SPONSOR, intent, terms }
    }

    fn judged_guarded(guarded: &Guarded, intent: Seen, is_signed: bool, now: u64) -> Result<u64, Refusal> {
        let assets = vec![(AssetId::Native, Route::Guard { program: None, decimals: 9 })];
        let chain_ref = SOL.to_owned();
        let policy =
            Policy::new([Sendable { chain_ref, assets, caps: Vec::new(), cost_max: 1_000_000, refill_max: 0 }]);
        let paths = [path(Seed::Sponsors, Family::Solana), path(Seed::Wallets, Family::Solana)];
        let known = KnownGuarded { sponsor: SOLANA_SPONSOR, payer: SOLANA, intent, is_signed, is_reclaimed: false };
        policy.judge_guarded([&paths[0], &paths[1]], guarded, &known, now)
    }

    #[test]
    fn a_transaction_that_makes_a_guard_is_signed_within_the_window_and_again_at_any_time() {
        let same = Seen::Same { seq: 8 };
        assert_eq!(judged_guarded(&guarded(), same, false, NOW), Ok(8));
        assert_eq!(judged_guarded(&guarded(), same, false, NOW + 299), Ok(8));
        let late = refusal(judged_guarded(&guarded(), same, false, NOW + 300));
        assert!(late.ends_with("has passed by the signer's clock, which shows 1800000300"), "{late}");
        assert_eq!(judged_guarded(&guarded(), same, true, NOW + 300), Ok(8));
    }

    #[test]
    fn a_transaction_that_makes_a_guard_and_is_not_allowed_is_refused_with_the_reason() {
        let with = |change: &dyn Fn(&mut Guarded)| {
            let mut guarded = guarded();
            change(&mut guarded);
            refusal(judged_guarded(&guarded, Seen::Same { seq: 8 }, false, NOW))
        };
        let cases = [
            (
                with(&|it| it.intent.asset = AssetId::Token(SOLANA)),
                " on solana:x is not on the list of what may be sent",
            ),
            (with(&|it| it.intent.route = Route::Guard { program: None, decimals: 6 }), "the route of native on"),
            (with(&|it| it.intent.route = route("a", "b")), "route erc3009 has no guard"),
            (with(&|it| it.sponsor = SOLANA), "the sponsor is 4vJ9JU1b"),
            (with(&|it| it.intent.payer = SOLANA_SPONSOR), "the payer is GgBaC"),
            (with(&|it| it.terms.compute_limit = 0), "a limit of 0 compute units"),
            (with(&|it| it.terms.compute_limit = 1_400_001), "a limit of 1400001 compute units"),
            (with(&|it| it.terms.rent = 1_000_000), "it may cost 1001000, and at most 1000000 on solana:x"),
            (with(&|it| it.terms.compute_price = u64::MAX), "it may cost"),
        ];
        for (why, expected) in cases {
            assert!(why.contains(expected), "{why}, not {expected}");
        }
        for seen in [Seen::Never, Seen::OtherDeadline { deadlines: 1 }, Seen::OtherContent { seq: 1 }] {
            let why = refusal(judged_guarded(&guarded(), seen, true, NOW));
            assert_eq!(why, "the intent is not in the journal");
        }
    }
}
