//! Paying on the simulated chain: its pool of transactions, and what mining makes of them.
//!
//! The ledger is the truth that a test compares with: [`SimChain::payments`] says how often each intent paid, from the
//! legs of canonical transactions and not from marks.

mod signer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use landfall_chain::{
    Acting, Address, AssetId, Authorization, BlockHash, BlockRef, BroadcastResponse, Carried, Carrier, Effect,
    FeeMarket, GuardQuote, GuardTerms, Guarded, Intent, IntentKey, KeyReport, Lane, Maker, Mark, PayingChain, Quote,
    Readiness, Reclaim, ReclaimQuote, Refill, Route, SignedAuthorization, SignedIntent, SourceError, TxId, TxLife,
    TxRef, U256, Unpayable, hash_of,
};

use crate::ledger::State;
use crate::{Fault, SimChain, SimLeg, SimTx, WEALTH};

pub use signer::SimSigner;

/// What carrying an intent takes.
const GAS: u64 = 60_000;
/// In so many blocks on top of that of its blockhash a transaction that makes a guard may land, as on Solana.
const BLOCKHASH_BLOCKS: usize = 150;
/// Who reports the state of keys here.
const ENDPOINT: &str = "sim";
/// What a guard is made with, until a test says otherwise.
pub const GUARD_RENT: u64 = 890_880;
/// What an account of a token is made with.
pub const ACCOUNT_RENT: u64 = 2_039_280;
const COMPUTE_LIMIT: u32 = 20_000;
/// The offer of a node's pool that replaces another must be so many percent higher.
const REPLACES_PERCENT: u128 = 110;

/// How the next broadcast misbehaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendFault {
    /// It is pooled, and the answer is lost.
    Silent,
    /// It is not pooled, and the answer is lost.
    Lost,
    /// The node says that it pooled it, and forgets it.
    Forgotten,
    /// The node refuses it for no good reason.
    Refused,
    /// It is pooled, and the node says that the nonce is used.
    NonceUsed,
    /// It is not pooled, and the node answers this.
    Answer(BroadcastResponse),
}

/// What the chain knows of transactions that carry intents.
#[derive(Debug)]
pub(crate) struct Paying {
    /// What was ever signed.
    signed: BTreeMap<TxId, Carrier>,
    guarded: BTreeMap<TxId, Guarded>,
    /// Of those that refill a sponsor, the number of the refill.
    refills: BTreeMap<TxId, u64>,
    reclaims: BTreeMap<TxId, Reclaim>,
    /// Guards that somebody else made.
    made: BTreeSet<IntentKey>,
    unseen: BTreeSet<(Address, IntentKey, String)>,
    /// Recipients have no accounts of tokens.
    misses_accounts: bool,
    hides_makers: bool,
    are_payers: bool,
    denies_marks: bool,
    pool: BTreeSet<TxId>,
    faults: VecDeque<SendFault>,
    base_fee: u128,
    guard_rent: u64,
    /// Why no intent may be signed.
    not_ready: Option<Readiness>,
    refuses_payments: bool,
    refuses_gaps: bool,
    /// What a carrier costs its sponsor, if not what other transactions cost.
    carrier_fee: Option<U256>,
    /// What is taken of each carrier on top of gas, as on the OP stack.
    surcharge: U256,
    struck: BTreeMap<&'static str, u64>,
}

impl Paying {
    pub(crate) fn new() -> Self {
        Paying {
            signed: BTreeMap::new(),
            guarded: BTreeMap::new(),
            refills: BTreeMap::new(),
            reclaims: BTreeMap::new(),
            made: BTreeSet::new(),
            unseen: BTreeSet::new(),
            misses_accounts: false,
            hides_makers: false,
            are_payers: false,
            denies_marks: false,
            pool: BTreeSet::new(),
            faults: VecDeque::new(),
            base_fee: 1_000_000_000,
            guard_rent: GUARD_RENT,
            not_ready: None,
            refuses_payments: false,
            refuses_gaps: false,
            carrier_fee: None,
            surcharge: U256::ZERO,
            struck: BTreeMap::new(),
        }
    }

    /// What a fork dropped waits again.
    pub(crate) fn pool_again<'t>(&mut self, txs: impl IntoIterator<Item = &'t SimTx>) {
        let is_known =
            |id: &TxId| self.signed.contains_key(id) || self.guarded.contains_key(id) || self.reclaims.contains_key(id);
        let known = txs.into_iter().map(|tx| tx.tx.id).filter(is_known);
        self.pool.extend(known.collect::<Vec<_>>());
    }

    fn intent(&self, id: &TxId) -> Option<&Intent> {
        let carried = self.signed.get(id).and_then(|carrier| carrier.carried.intent());
        carried.or_else(|| self.guarded.get(id).map(|guarded| &guarded.intent))
    }
}

impl SimChain {
    /// The next broadcasts misbehave, one fault each.
    pub fn script_sends(&self, faults: impl IntoIterator<Item = SendFault>) {
        self.lock().paying.faults.extend(faults);
    }

    /// No more faults of broadcasts.
    pub fn take_sends(&self) {
        self.lock().paying.faults.clear();
    }

    /// How often a broadcast met each fault.
    pub fn sends_struck(&self) -> BTreeMap<&'static str, u64> {
        self.lock().paying.struck.clone()
    }

    /// Somebody sends lamports to the guard of an intent, before a transaction of ours makes it.
    pub fn make_guard(&self, key: IntentKey) {
        self.lock().paying.made.insert(key);
    }

    /// Whether nobody knows who made guards, and whether the payer's own key signed what did, from now on.
    pub fn makers(&self, hidden: bool, are_payers: bool) {
        let mut state = self.lock();
        (state.paying.hides_makers, state.paying.are_payers) = (hidden, are_payers);
    }

    /// Whether recipients have no accounts of tokens, from now on.
    pub fn miss_accounts(&self, missing: bool) {
        self.lock().paying.misses_accounts = missing;
    }

    /// The transactions that make guards and wait in the pool.
    pub fn pooled_guarded(&self) -> Vec<Guarded> {
        let state = self.lock();
        state.paying.pool.iter().filter_map(|id| state.paying.guarded.get(id)).cloned().collect()
    }

    /// Where the guard of a payer's one-time key stands.
    pub fn guard(payer: &Address, key: &IntentKey) -> Address {
        at_hash([b"guard".as_slice(), payer.as_bytes(), &key.0])
    }

    /// What it holds after the newest block.
    pub fn guard_holds(&self, payer: &Address, key: &IntentKey) -> U256 {
        let latest = self.latest().number;
        self.balance(&SimChain::guard(payer, key), &AssetId::Native, latest) - U256::from(WEALTH)
    }

    /// What guards are made with from now on: the rent of the attempts to come.
    pub fn set_guard_rent(&self, lamports: u64) {
        self.lock().paying.guard_rent = lamports;
    }

    /// Where the guards stand that transactions of ours make.
    pub fn guards(&self) -> BTreeSet<Address> {
        let state = self.lock();
        state.paying.guarded.values().map(|guarded| guard_of(&guarded.intent)).collect()
    }

    /// How many transactions that take back guards canonical blocks have: all of them, and those that failed.
    pub fn landed_reclaims(&self) -> (usize, usize) {
        let state = self.lock();
        let txs = state.blocks.iter().flat_map(|block| &block.txs);
        let landed: Vec<&SimTx> = txs.filter(|tx| state.paying.reclaims.contains_key(&tx.tx.id)).collect();
        (landed.len(), landed.iter().filter(|tx| tx.legs.is_empty()).count())
    }

    /// All that was ever signed is in the pool again.
    pub fn pool_all(&self) {
        let mut state = self.lock();
        let Paying { signed, guarded, reclaims, .. } = &state.paying;
        let all: Vec<TxId> = signed.keys().chain(guarded.keys()).chain(reclaims.keys()).copied().collect();
        state.paying.pool.extend(all);
    }

    /// Whether nobody corroborates what blocks show of intents, from now on.
    pub fn deny_marks(&self, deny: bool) {
        self.lock().paying.denies_marks = deny;
    }

    /// How many transactions that make guards canonical blocks have: all of them, and those that failed.
    pub fn landed_guarded(&self) -> (usize, usize) {
        let state = self.lock();
        let txs = state.blocks.iter().flat_map(|block| &block.txs);
        let landed: Vec<&SimTx> = txs.filter(|tx| state.paying.guarded.contains_key(&tx.tx.id)).collect();
        (landed.len(), landed.iter().filter(|tx| tx.legs.is_empty()).count())
    }

    /// Every node forgets its pool.
    pub fn forget_pool(&self) {
        self.lock().paying.pool.clear();
    }

    /// What waits in the pool: sponsor and nonce, in that order.
    pub fn pooled(&self) -> Vec<(Address, u64)> {
        let state = self.lock();
        let waiting = state.paying.pool.iter().filter_map(|id| state.paying.signed.get(id));
        let mut waiting: Vec<_> = waiting.map(|carrier| (carrier.sponsor, carrier.nonce)).collect();
        waiting.sort_unstable();
        waiting
    }

    /// What gas costs from now on. Who offers less waits.
    pub fn set_base_fee(&self, base_fee: u128) {
        self.lock().paying.base_fee = base_fee;
    }

    /// What each carrier costs its sponsor from now on.
    pub fn set_carrier_fee(&self, wei: u64) {
        self.lock().paying.carrier_fee = Some(U256::from(wei));
    }

    /// What is taken of each carrier on top of gas from now on, as on the OP stack. A node's pool counts it.
    pub fn set_surcharge(&self, wei: u64) {
        self.lock().paying.surcharge = U256::from(wei);
    }

    /// Why no intent may be signed from now on; `None`: all may.
    pub fn set_not_ready(&self, why: Option<&str>) {
        self.lock().paying.not_ready = why.map(|why| Readiness::NotReady(why.to_owned()));
    }

    /// What of each payment the chain would refuse from now on, before anything is signed; `None`: nothing.
    pub fn set_unpayable(&self, what: Option<(Unpayable, &str)>) {
        self.lock().paying.not_ready = what.map(|(what, why)| Readiness::Unpayable(what, why.to_owned()));
    }

    /// Whether the chain would refuse each payment that is tried with its signature, from now on.
    pub fn refuse_payments(&self, refuse: bool) {
        self.lock().paying.refuses_payments = refuse;
    }

    /// Whether nodes refuse a transaction while the nonces before it are missing, from now on.
    pub fn refuse_gaps(&self, refuse: bool) {
        self.lock().paying.refuses_gaps = refuse;
    }

    /// Mines a block of all that can be executed.
    pub fn mine_pool(&self) -> BlockRef {
        self.mine_some(usize::MAX)
    }

    /// Mines a block of at most `most` transactions of the pool.
    pub fn mine_some(&self, most: usize) -> BlockRef {
        let block = self.mine(Vec::new());
        let mut state = self.lock();
        state.execute_guarded(most);
        state.execute_reclaims();
        for _ in 0..most {
            let Some(id) = state.next_executable() else { break };
            state.execute(id);
        }
        block
    }

    /// Each payment of an intent in canonical blocks: the block, the transaction, and the legs' sum.
    pub fn payments(&self) -> BTreeMap<IntentKey, Vec<Payment>> {
        let state = self.lock();
        let mut payments: BTreeMap<IntentKey, Vec<Payment>> = BTreeMap::new();
        for block in &state.blocks {
            for tx in block.txs.iter().filter(|tx| !tx.legs.is_empty()) {
                let Some(intent) = state.paying.intent(&tx.tx.id) else { continue };
                let Intent { payer, destination, asset, .. } = *intent;
                let exact = tx.legs.iter().filter(|leg| (leg.sender, leg.recipient) == (payer, destination));
                let amount = exact.filter(|leg| leg.asset == asset).map(|leg| leg.amount).sum();
                let payment = Payment { block: block.header.block, tx: tx.tx.id, destination, amount };
                payments.entry(intent.key()).or_default().push(payment);
            }
        }
        payments
    }

    /// Whether a delegate acts for `wallet` after the newest block.
    pub fn acts_for(&self, wallet: &Address) -> bool {
        self.lock().acting(wallet, u64::MAX).0.is_some()
    }

    /// From now on the state of each block has the one-time key used at this route. No block shows it, as where nobody watched
    /// the payer.
    pub fn use_unseen(&self, payer: Address, key: IntentKey, route: &Route) {
        self.lock().paying.unseen.insert((payer, key, route.to_string()));
    }

    /// The transactions that take delegates away and stand in canonical blocks: of each how many wallets it names.
    pub fn clearings(&self) -> Vec<usize> {
        let state = self.lock();
        let txs = state.blocks.iter().flat_map(|block| &block.txs);
        let carried = txs.filter_map(|tx| Some(&state.paying.signed.get(&tx.tx.id)?.carried));
        let clearings = |carried: &Carried| match carried {
            Carried::Clearings(clearings) => Some(clearings.len()),
            Carried::Payment { .. } | Carried::Cancellation(_) | Carried::Refill(_) => None,
        };
        carried.filter_map(clearings).collect()
    }

    /// What treasuries gave sponsors in canonical blocks: to whom, how much, and with which nonce.
    pub fn refills(&self) -> Vec<(Address, U256, u64)> {
        let state = self.lock();
        let txs = state.blocks.iter().flat_map(|block| &block.txs).filter(|tx| !tx.legs.is_empty());
        let by_nonce = |id: &TxId| {
            let carrier = state.paying.signed.get(id)?;
            match &carrier.carried {
                Carried::Refill(Refill { recipient, amount, .. }) => Some((*recipient, *amount, carrier.nonce)),
                Carried::Payment { .. } | Carried::Cancellation(_) | Carried::Clearings(_) => None,
            }
        };
        let by_guard = |id: &TxId| {
            let Guarded { intent, .. } = state.paying.guarded.get(id)?;
            Some((intent.destination, intent.amount, *state.paying.refills.get(id)?))
        };
        txs.filter_map(|tx| by_nonce(&tx.tx.id).or_else(|| by_guard(&tx.tx.id))).collect()
    }

    /// How many transactions of an address canonical blocks have.
    pub fn sent(&self, address: &Address) -> u64 {
        let state = self.lock();
        state.nonce(address, u64::MAX)
    }
}

/// A payment of an intent, as the ledger has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Payment {
    pub block: BlockRef,
    pub tx: TxId,
    pub destination: Address,
    pub amount: U256,
}

impl State {
    /// How many transactions `address` had sent after block `number`.
    fn nonce(&self, address: &Address, number: u64) -> u64 {
        let blocks = self.blocks.iter().take_while(|block| block.header.block.number <= number);
        let nonces = blocks.flat_map(|block| &block.txs).filter_map(|tx| match tx.tx.life {
            TxLife::Nonce { signer, nonce } if signer == *address => Some(nonce + 1),
            TxLife::Nonce { .. } | TxLife::Block => None,
        });
        nonces.max().unwrap_or(0)
    }

    /// A key is used at a route: another delegate takes it once more.
    fn is_key_used(&self, intent: &Intent, number: u64) -> bool {
        let (payer, key, asset) = (intent.payer, intent.key(), intent.asset);
        let blocks = self.blocks.iter().take_while(|block| block.header.block.number <= number);
        let shows = |tx: &SimTx| tx.marks.iter().any(|mark| (mark.payer, mark.key, mark.asset) == (payer, key, asset));
        let is_of_route = |tx: &SimTx| self.paying.intent(&tx.tx.id).is_none_or(|other| other.route == intent.route);
        blocks.flat_map(|block| &block.txs).any(|tx| shows(tx) && is_of_route(tx))
            || self.paying.unseen.contains(&(payer, key, intent.route.to_string()))
    }

    /// What acts for `wallet` after block `number`, and which nonce its next authorization must name. What a transaction
    /// brings counts also where it fails.
    fn acting(&self, wallet: &Address, number: u64) -> (Option<Address>, u64) {
        let (mut acts, mut nonce) = (None, self.nonce(wallet, number));
        let blocks = self.blocks.iter().take_while(|block| block.header.block.number <= number);
        let carriers = blocks.flat_map(|block| &block.txs).filter_map(|tx| self.paying.signed.get(&tx.tx.id));
        for SignedAuthorization { authorization, .. } in carriers.flat_map(|carrier| beside(&carrier.carried)) {
            if authorization.wallet == *wallet && authorization.nonce == nonce {
                let implementation = Some(authorization.implementation);
                (acts, nonce) = (implementation.filter(|_| !authorization.is_clearing()), nonce + 1);
            }
        }
        (acts, nonce)
    }

    /// Why what is carried would fail in a block of this time.
    fn obstacle_of(&self, carried: &Carried, time_secs: u64) -> Option<&'static str> {
        match carried {
            Carried::Payment { signed, authorization } => self.obstacle(signed, authorization.as_deref(), time_secs),
            Carried::Cancellation(SignedIntent { intent, signature }) => {
                if *signature != cancellation_signature(intent) {
                    return Some("the signature is not the payer's");
                }
                self.is_key_used(intent, u64::MAX).then_some("the authorization is used")
            }
            // What does not count is left out; who refills has it, or nobody pools it.
            Carried::Clearings(_) | Carried::Refill(_) => None,
        }
    }

    /// Why the intent would fail in a block of this time.
    fn obstacle(
        &self,
        signed: &SignedIntent,
        authorization: Option<&SignedAuthorization>,
        time_secs: u64,
    ) -> Option<&'static str> {
        let Intent { asset, payer, amount, deadline, route, .. } = &signed.intent;
        if signed.signature != signature(&signed.intent) {
            return Some("the signature is not the payer's");
        }
        let (acts, nonce) = self.acting(payer, u64::MAX);
        let is_good = |it: &SignedAuthorization| {
            let Authorization { wallet, nonce: of, .. } = it.authorization;
            (wallet, of) == (*payer, nonce) && it.signature == authorization_signature(&it.authorization)
        };
        let brought = authorization.filter(|it| is_good(it)).map(|it| it.authorization.implementation);
        if let Route::Delegate(delegate) = route
            && brought.or(acts) != Some(delegate.implementation())
        {
            return Some("its delegate does not act for the payer");
        }
        if time_secs >= *deadline {
            return Some("the authorization is expired");
        }
        if self.is_key_used(&signed.intent, u64::MAX) {
            return Some("the authorization is used");
        }
        (self.balance(payer, asset, u64::MAX) < *amount).then_some("the amount exceeds the balance")
    }

    /// Why a transaction that makes the guard of `intent` would fail.
    fn obstacle_of_guarded(&self, intent: &Intent) -> Option<&'static str> {
        let Intent { asset, payer, amount, .. } = intent;
        if self.is_guarded(intent, u64::MAX) {
            return Some("the guard is there already");
        }
        (self.balance(payer, asset, u64::MAX) < *amount).then_some("the amount exceeds the balance")
    }

    /// Whether the guard of an intent stands after block `number`.
    fn is_guarded(&self, intent: &Intent, number: u64) -> bool {
        self.paying.made.contains(&intent.key()) || self.held(intent, number) > 0
    }

    /// What the guard of an intent holds after block `number`.
    fn held(&self, intent: &Intent, number: u64) -> u64 {
        let held = self.balance(&guard_of(intent), &AssetId::Native, number) - U256::from(WEALTH);
        u64::try_from(held).expect("no test moves so much")
    }

    /// In the newest block: those of the pool that take back guards. One that fails costs its fee.
    fn execute_reclaims(&mut self) {
        let is_one = |id: &TxId| self.paying.reclaims.contains_key(id);
        let waiting: Vec<TxId> = self.paying.pool.iter().copied().filter(is_one).collect();
        for id in waiting {
            self.paying.pool.remove(&id);
            let Some(Reclaim { sponsor, guards, blockhash, .. }) = self.paying.reclaims.get(&id).cloned() else {
                continue;
            };
            if self.has_landed(&id) || !self.is_blockhash_young(&blockhash) {
                continue;
            }
            let tx = TxRef { id, life: TxLife::Block };
            let mut executed = SimTx { tx, ..SimTx::new(sponsor, 0, Vec::new()) };
            // All of it, or nothing: what is left would be too little to stay.
            if guards.iter().all(|(intent, lamports)| self.held(intent, u64::MAX) == *lamports) {
                let leg = |(intent, lamports): &(Intent, u64)| SimLeg::native(guard_of(intent), sponsor, *lamports);
                executed.legs = guards.iter().map(leg).collect();
            }
            self.blocks.last_mut().expect("block 0 is never dropped").txs.push(executed);
        }
    }

    fn is_blockhash_young(&self, hash: &BlockHash) -> bool {
        let is_it = |block: &&crate::ledger::SimBlock| block.header.block.hash == *hash;
        self.blocks.iter().rev().take(BLOCKHASH_BLOCKS + 1).any(|block| is_it(&block))
    }

    /// In the newest block: those of the pool that make guards, at most `most`. One that fails costs its fee; one whose
    /// blockhash is too old lands never.
    fn execute_guarded(&mut self, most: usize) {
        let is_guarded = |id: &TxId| self.paying.guarded.contains_key(id);
        let waiting: Vec<TxId> = self.paying.pool.iter().copied().filter(is_guarded).take(most).collect();
        for id in waiting {
            self.paying.pool.remove(&id);
            let Some(Guarded { sponsor, intent, terms }) = self.paying.guarded.get(&id).cloned() else { continue };
            if self.has_landed(&id) || !self.is_blockhash_young(&terms.blockhash) {
                continue;
            }
            let tx = TxRef { id, life: TxLife::Block };
            let mut executed = SimTx { tx, ..SimTx::new(sponsor, 0, Vec::new()) };
            let is_missing = self.paying.misses_accounts && intent.asset != AssetId::Native;
            let has_account = terms.makes_account || !is_missing;
            if has_account && self.obstacle_of_guarded(&intent).is_none() {
                let Intent { asset, payer, destination, amount, .. } = intent;
                let guard = guard_of(&intent);
                executed.legs = vec![
                    SimLeg { asset, sender: payer, recipient: destination, amount, lane: Lane::Block },
                    SimLeg::native(sponsor, guard, terms.rent),
                ];
                if is_missing {
                    executed.legs.push(SimLeg::native(sponsor, account_of(&destination), ACCOUNT_RENT));
                }
                // Who pays the rent, too, has lost more than arrived.
                if sponsor != payer {
                    let effect = Effect::Paid { destination, amount };
                    executed.marks = vec![Mark { tx, payer, key: intent.key().shown(&payer), asset, effect }];
                }
            }
            self.blocks.last_mut().expect("block 0 is never dropped").txs.push(executed);
        }
    }

    fn has_landed(&self, id: &TxId) -> bool {
        self.blocks.iter().flat_map(|block| &block.txs).any(|tx| tx.tx.id == *id)
    }

    fn pool_guarded(&mut self, id: TxId, blockhash: &BlockHash) -> BroadcastResponse {
        if self.has_landed(&id) || self.paying.pool.contains(&id) {
            return BroadcastResponse::Known;
        }
        if !self.is_blockhash_young(blockhash) {
            return BroadcastResponse::Expired;
        }
        self.paying.pool.insert(id);
        BroadcastResponse::Pooled
    }

    /// Of each sponsor the next nonce, of those that have it the one that offers most. What cannot land any more leaves
    /// the pool.
    fn next_executable(&mut self) -> Option<TxId> {
        let pool: Vec<TxId> = self.paying.pool.iter().copied().collect();
        let mut best: Option<(TxId, u128)> = None;
        for id in pool {
            let Some(Carrier { sponsor, nonce, max_fee, .. }) = self.paying.signed.get(&id).cloned() else { continue };
            let next = self.nonce(&sponsor, u64::MAX);
            if nonce < next {
                self.paying.pool.remove(&id);
            } else if nonce == next && max_fee >= self.paying.base_fee && best.is_none_or(|(_, fee)| max_fee > fee) {
                best = Some((id, max_fee));
            }
        }
        best.map(|(id, _)| id)
    }

    /// In the newest block. What fails costs its fee.
    fn execute(&mut self, id: TxId) {
        self.paying.pool.remove(&id);
        let Some(carrier) = self.paying.signed.get(&id).cloned() else { return };
        let Carrier { sponsor, carried, nonce, .. } = carrier;
        let time_secs = self.latest().header.time_secs;
        let tx = TxRef { id, life: TxLife::Nonce { signer: sponsor, nonce } };
        let mut executed = SimTx { tx, ..SimTx::new(sponsor, nonce, Vec::new()) };
        executed.fee = self.paying.carrier_fee.unwrap_or(executed.fee);
        match &carried {
            _ if self.obstacle_of(&carried, time_secs).is_some() => {}
            Carried::Payment { signed: SignedIntent { intent, .. }, .. } => {
                let Intent { asset, payer, destination, amount, .. } = *intent;
                let leg = SimLeg { asset, sender: payer, recipient: destination, amount, lane: Lane::Block };
                executed.legs = vec![leg];
                let effect = Effect::Paid { destination, amount };
                executed.marks = vec![Mark { tx, payer, key: intent.key(), asset, effect }];
            }
            Carried::Cancellation(SignedIntent { intent, .. }) => {
                let Intent { asset, payer, .. } = *intent;
                executed.marks = vec![Mark { tx, payer, key: intent.key(), asset, effect: Effect::Cancelled }];
            }
            Carried::Clearings(_) => {}
            Carried::Refill(Refill { recipient, amount, .. }) => {
                let of = SimLeg::native(sponsor, *recipient, 0);
                executed.legs = vec![SimLeg { amount: *amount, ..of }];
            }
        }
        self.blocks.last_mut().expect("block 0 is never dropped").txs.push(executed);
    }

    fn pool(&mut self, id: TxId) -> BroadcastResponse {
        let of_guarded = self.paying.guarded.get(&id).map(|guarded| guarded.terms.blockhash);
        let of_reclaim = self.paying.reclaims.get(&id).map(|reclaim| reclaim.blockhash);
        if let Some(blockhash) = of_guarded.or(of_reclaim) {
            return self.pool_guarded(id, &blockhash);
        }
        let Some(Carrier { sponsor, carried, nonce, max_fee, tip, gas_limit }) = self.paying.signed.get(&id).cloned()
        else {
            return BroadcastResponse::Refused;
        };
        if self.paying.pool.contains(&id) {
            return BroadcastResponse::Known;
        }
        let next = self.nonce(&sponsor, u64::MAX);
        if nonce < next {
            return BroadcastResponse::NonceUsed;
        }
        let gas = U256::from(max_fee.saturating_mul(u128::from(gas_limit)));
        let cost = gas + self.paying.surcharge + value(&carried);
        if self.balance(&sponsor, &AssetId::Native, u64::MAX) < cost {
            return BroadcastResponse::Poor;
        }
        let waiting: Vec<&Carrier> = self.paying.pool.iter().filter_map(|id| self.paying.signed.get(id)).collect();
        let waiting: Vec<&Carrier> = waiting.into_iter().filter(|carrier| carrier.sponsor == sponsor).collect();
        let is_replaced = |carrier: &&&Carrier| {
            max_fee * 100 >= carrier.max_fee * REPLACES_PERCENT && tip * 100 >= carrier.tip * REPLACES_PERCENT
        };
        let same: Vec<&&Carrier> = waiting.iter().filter(|carrier| carrier.nonce == nonce).collect();
        if !same.iter().all(is_replaced) {
            return BroadcastResponse::Underpriced;
        }
        let has = |nonce: u64| waiting.iter().any(|carrier| carrier.nonce == nonce);
        if self.paying.refuses_gaps && !(next..nonce).all(has) {
            return BroadcastResponse::Gapped;
        }
        // What it replaces stays: other nodes may have it still.
        self.paying.pool.insert(id);
        BroadcastResponse::Pooled
    }
}

impl PayingChain for SimChain {
    async fn fee_market(&self) -> Result<FeeMarket, SourceError> {
        self.call_to_pay().await?;
        Ok(FeeMarket { base_fee: self.lock().paying.base_fee, tip: 1_000_000 })
    }

    async fn readiness(&self, _: &Intent) -> Result<Readiness, SourceError> {
        self.call_to_pay().await?;
        Ok(self.lock().paying.not_ready.clone().unwrap_or(Readiness::Ready))
    }

    async fn acting(&self, intent: &Intent) -> Result<Acting, SourceError> {
        self.call_to_pay().await?;
        let Route::Delegate(delegate) = &intent.route else { return Ok(Acting::Already) };
        let (acts, nonce) = self.lock().acting(&intent.payer, u64::MAX);
        if acts == Some(delegate.implementation()) {
            return Ok(Acting::Already);
        }
        let (chain_ref, wallet) = (intent.chain_ref.clone(), intent.payer);
        Ok(Acting::With(Authorization { chain_ref, wallet, implementation: delegate.implementation(), nonce }))
    }

    async fn delegated(&self, wallet: &Address) -> Result<Option<u64>, SourceError> {
        self.call_to_pay().await?;
        let (acts, nonce) = self.lock().acting(wallet, u64::MAX);
        Ok(acts.map(|_| nonce))
    }

    async fn is_delegated(&self, wallet: &Address, at: &BlockRef) -> Result<bool, SourceError> {
        self.call_to_pay().await?;
        let state = self.lock();
        state.must_have(at)?;
        Ok(state.acting(wallet, at.number).0.is_some())
    }

    async fn quote(&self, _: &Address, carried: &Carried) -> Result<Quote, SourceError> {
        self.call_to_pay().await?;
        let state = self.lock();
        let obstacle = state.obstacle_of(carried, state.latest().header.time_secs);
        let refuses = state.paying.refuses_payments && matches!(carried, Carried::Payment { .. });
        let refused = refuses.then_some("the payment is refused");
        let quote = Quote::Gas { limit: GAS, surcharge: state.paying.surcharge };
        Ok(obstacle.or(refused).map_or(quote, |why| Quote::Refused(why.to_owned())))
    }

    async fn surcharge(&self) -> Result<U256, SourceError> {
        Ok(self.lock().paying.surcharge)
    }

    async fn guard_quote(&self, _: &Address, intent: &Intent, recent: &BlockRef) -> Result<GuardQuote, SourceError> {
        self.call().await?;
        let state = self.lock();
        let refused = state.paying.refuses_payments.then_some("the payment is refused");
        if let Some(why) = state.obstacle_of_guarded(intent).or(refused) {
            return Ok(GuardQuote::Refused(why.to_owned()));
        }
        if !state.is_blockhash_young(&recent.hash) {
            return Ok(GuardQuote::NotYet);
        }
        let blockhash = recent.hash;
        Ok(GuardQuote::Terms(GuardTerms {
            blockhash,
            rent: state.paying.guard_rent,
            compute_limit: COMPUTE_LIMIT,
            compute_price: 0,
            memo: false,
            makes_account: state.paying.misses_accounts && intent.asset != AssetId::Native,
        }))
    }

    async fn reclaim_quote(
        &self,
        _: &Address,
        intents: &[Intent],
        recent: &BlockRef,
    ) -> Result<ReclaimQuote, SourceError> {
        self.call().await?;
        let state = self.lock();
        if !state.is_blockhash_young(&recent.hash) {
            return Ok(ReclaimQuote::NotYet);
        }
        let lamports: Vec<u64> = intents.iter().map(|intent| state.held(intent, u64::MAX)).collect();
        let absent: Vec<usize> = (0..lamports.len()).filter(|at| lamports[*at] == 0).collect();
        if !absent.is_empty() {
            return Ok(ReclaimQuote::Absent(absent));
        }
        Ok(ReclaimQuote::Terms { lamports, compute_limit: COMPUTE_LIMIT })
    }

    async fn nonce_at(&self, address: &Address, at: Option<&BlockRef>) -> Result<u64, SourceError> {
        let fault = self.call_to_pay().await?;
        let state = self.lock();
        let latest = state.latest().header.block.number;
        let behind = if let Some(Fault::Lag(behind)) = fault { behind } else { 0 };
        if let Some(at) = at {
            state.must_have(at)?;
        }
        Ok(state.nonce(address, at.map_or(latest.saturating_sub(behind), |at| at.number)))
    }

    async fn has_code(&self, address: &Address, at: &BlockRef) -> Result<bool, SourceError> {
        self.call_to_pay().await?;
        let state = self.lock();
        state.must_have(at)?;
        Ok(state.with_code.contains(address))
    }

    async fn owned(&self, address: &Address) -> Result<U256, SourceError> {
        let latest = self.latest().number;
        Ok(self.balance(address, &AssetId::Native, latest))
    }

    async fn broadcast(&self, id: &TxId, raw: &[u8]) -> BroadcastResponse {
        self.before_call();
        let mut state = self.lock();
        if raw != id.as_bytes() {
            return BroadcastResponse::Refused;
        }
        let Some(fault) = state.paying.faults.pop_front() else { return state.pool(*id) };
        *state.paying.struck.entry(fault.name()).or_default() += 1;
        match fault {
            SendFault::Silent => {
                state.pool(*id);
                BroadcastResponse::Unknown
            }
            SendFault::Lost => BroadcastResponse::Unknown,
            SendFault::Forgotten => BroadcastResponse::Pooled,
            SendFault::Refused => BroadcastResponse::Refused,
            SendFault::NonceUsed => {
                state.pool(*id);
                BroadcastResponse::NonceUsed
            }
            SendFault::Answer(response) => response,
        }
    }

    async fn is_shown(&self, mark: &Mark, at: &BlockRef) -> Result<bool, SourceError> {
        self.call().await?;
        let state = self.lock();
        let block = state.blocks.iter().find(|block| block.header.block == *at);
        let shows = block.is_some_and(|block| block.txs.iter().flat_map(|tx| &tx.marks).any(|it| is_same(it, mark)));
        Ok(shows && !state.paying.denies_marks)
    }

    async fn key_report(&self, intent: &Intent, at: &BlockRef) -> Result<KeyReport, SourceError> {
        self.call_to_pay().await?;
        let state = self.lock();
        state.must_have(at)?;
        let is_used = match &intent.route {
            Route::Guard { .. } => state.is_guarded(intent, at.number),
            Route::Erc3009 { .. } | Route::Delegate(_) => state.is_key_used(intent, at.number),
        };
        Ok(KeyReport { is_used, reported_by: vec![ENDPOINT.to_owned()] })
    }

    async fn was_made(&self, intent: &Intent, from: u64, at: &BlockRef) -> Result<bool, SourceError> {
        self.call_to_pay().await?;
        let state = self.lock();
        if state.paying.hides_makers {
            return Err(SourceError::transient("no endpoint keeps that history"));
        }
        let guard = guard_of(intent);
        let is_within = |number: u64| number > from && number <= at.number;
        let blocks = state.blocks.iter().filter(|block| is_within(block.header.block.number));
        let mut legs = blocks.flat_map(|block| &block.txs).flat_map(|tx| &tx.legs);
        Ok(legs.any(|leg| leg.recipient == guard))
    }

    async fn maker(&self, intent: &Intent, _: &BlockRef) -> Result<Option<Maker>, SourceError> {
        self.call_to_pay().await?;
        let state = self.lock();
        let tx = TxId::Evm(hash_of([b"maker".as_slice(), &intent.key().0]));
        let is_known = state.paying.made.contains(&intent.key()) && !state.paying.hides_makers;
        Ok(is_known.then_some(Maker { tx, is_payers: state.paying.are_payers }))
    }
}

impl State {
    fn must_have(&self, block: &BlockRef) -> Result<(), SourceError> {
        let has = self.blocks.iter().any(|known| known.header.block == *block);
        has.then_some(()).ok_or_else(|| SourceError::transient(format!("block {block} is not known")))
    }
}

impl SendFault {
    /// Its name in a tally.
    pub const fn name(self) -> &'static str {
        match self {
            SendFault::Silent => "silent",
            SendFault::Lost => "lost",
            SendFault::Forgotten => "forgotten",
            SendFault::Refused => "refused",
            SendFault::NonceUsed => "nonce used",
            SendFault::Answer(_) => "answer",
        }
    }
}

/// 65 bytes, a function of everything that is signed.
fn signature(intent: &Intent) -> Vec<u8> {
    let hash = intent_hash(intent);
    [hash.as_slice(), &hash, &[27]].concat()
}

fn cancellation_signature(intent: &Intent) -> Vec<u8> {
    let hash =
        hash_of([b"cancellation".as_slice(), intent.payer.as_bytes(), &intent.key().0, &intent.asset.to_bytes()]);
    [hash.as_slice(), &hash, &[27]].concat()
}

/// What wallets allow or take away beside.
fn beside(carried: &Carried) -> Vec<&SignedAuthorization> {
    match carried {
        Carried::Payment { authorization, .. } => authorization.as_deref().into_iter().collect(),
        Carried::Cancellation(_) | Carried::Refill(_) => Vec::new(),
        Carried::Clearings(clearings) => clearings.iter().collect(),
    }
}

/// What the transaction itself gives of the native currency.
fn value(carried: &Carried) -> U256 {
    match carried {
        Carried::Refill(refill) => refill.amount,
        Carried::Payment { .. } | Carried::Cancellation(_) | Carried::Clearings(_) => U256::ZERO,
    }
}

fn authorization_signature(authorization: &Authorization) -> Vec<u8> {
    let Authorization { chain_ref, wallet, implementation, nonce } = authorization;
    let nonce = nonce.to_be_bytes();
    let hash = hash_of([chain_ref.as_bytes(), wallet.as_bytes(), implementation.as_bytes(), nonce.as_slice()]);
    [hash.as_slice(), &hash, &[27]].concat()
}

fn intent_hash(intent: &Intent) -> [u8; 32] {
    let Intent { transfer_id, chain_ref, route, asset, payer, destination, amount, deadline } = intent;
    let (asset, amount, deadline) = (asset.to_bytes(), amount.to_be_bytes::<32>(), deadline.to_be_bytes());
    let route = route.to_string();
    let fields: [&[u8]; 8] = [
        transfer_id,
        chain_ref.as_bytes(),
        route.as_bytes(),
        &asset,
        payer.as_bytes(),
        destination.as_bytes(),
        &amount,
        &deadline,
    ];
    hash_of(fields)
}

fn id_of(carrier: &Carrier) -> [u8; 32] {
    let Carrier { sponsor, carried, nonce, gas_limit, max_fee, tip } = carrier;
    let (nonce, gas_limit) = (nonce.to_be_bytes(), gas_limit.to_be_bytes());
    let (max_fee, tip) = (max_fee.to_be_bytes(), tip.to_be_bytes());
    let (intent, signature) = match carried {
        Carried::Payment { signed, .. } | Carried::Cancellation(signed) => {
            (intent_hash(&signed.intent), signed.signature.as_slice())
        }
        Carried::Clearings(_) => ([0; 32], [].as_slice()),
        Carried::Refill(Refill { recipient, amount, .. }) => {
            (hash_of([recipient.as_bytes(), &amount.to_be_bytes::<32>()]), [].as_slice())
        }
    };
    let beside: Vec<u8> = beside(carried).into_iter().flat_map(|it| it.signature.clone()).collect();
    let fields: [&[u8]; 8] = [sponsor.as_bytes(), &intent, signature, &beside, &nonce, &gas_limit, &max_fee, &tip];
    hash_of(fields)
}

/// Where the guard of an intent stands, and the recipient's account of the token.
fn guard_of(intent: &Intent) -> Address {
    SimChain::guard(&intent.payer, &intent.key())
}

fn account_of(owner: &Address) -> Address {
    at_hash([b"account".as_slice(), owner.as_bytes(), &[]])
}

fn at_hash(fields: [&[u8]; 3]) -> Address {
    let hash = hash_of(fields);
    let (bytes, _) = hash.split_first_chunk().expect("32 is more than 20");
    Address::Evm(*bytes)
}

/// Whatever was used up by the transaction.
fn is_same(one: &Mark, other: &Mark) -> bool {
    Mark { tx: other.tx, ..*one } == *other && one.tx.id == other.tx.id
}

fn id_of_guarded(guarded: &Guarded) -> [u8; 32] {
    let Guarded { sponsor, intent, terms } = guarded;
    let GuardTerms { blockhash, rent, compute_limit, compute_price, memo, makes_account } = terms;
    let (rent, limit, price) = (rent.to_be_bytes(), compute_limit.to_be_bytes(), compute_price.to_be_bytes());
    let flags = [u8::from(*memo), u8::from(*makes_account)];
    let fields: [&[u8]; 7] = [sponsor.as_bytes(), &intent_hash(intent), &blockhash.0, &rent, &limit, &price, &flags];
    hash_of(fields)
}

fn id_of_reclaim(reclaim: &Reclaim) -> [u8; 32] {
    let Reclaim { sponsor, guards, blockhash, compute_limit } = reclaim;
    let of = |(intent, lamports): &(Intent, u64)| hash_of([&intent_hash(intent)[..], &lamports.to_be_bytes()]);
    let taken: Vec<u8> = guards.iter().flat_map(of).collect();
    hash_of([sponsor.as_bytes(), &taken, &blockhash.0, &compute_limit.to_be_bytes()])
}
