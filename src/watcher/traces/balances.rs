//! Decides what is believed of the deposits that a trace reports to an address, and by which evidence.
//!
//! Balances before and after the block decide wherever they can. An address without code loses nothing inside of a
//! transaction, so its balances alone decide both ways. For an address with code they confirm where no reading shows
//! value leaving it inside. Everything else needs the same trace from two endpoints of different engines: all endpoints
//! of one program share its mistakes.
//! Promises: what the balances of an address exclude is never believed, whoever reports it. The balances of an address
//! with code deny no deposit. What neither balances nor two engines decide is doubtful, with the reason.

use std::collections::{BTreeMap, HashMap, HashSet};

use landfall_chain::{
    AccountState, Address, AddressSource, AssetId, AssetTransfer, Block, BlockRef, BlockSource, Header, Network, TxId,
    U256,
};

use crate::deposit::{Deposit, DepositId, DepositStatus, LegHash};
use crate::store::witnesses::{SeenInTrace, WitnessedBy};
use crate::store::{Connection, StoreError, movements, witnesses};
use crate::watcher::TickError;
use crate::watcher::books::leg::shows;
use crate::watcher::books::leg::{leg_of, prove_signer};
use crate::watcher::settle::evidence::{paid_in_block, paid_in_tx};
use crate::watcher::traces::TraceLane;
use crate::watcher::traces::choices::{Choices, Equal, choices};
use crate::watcher::traces::witness::Evidence;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::watcher) enum Belief {
    Paid(WitnessedBy),
    NotPaid(WitnessedBy),
    /// Neither is known; why.
    Doubtful(String),
}

/// What is believed of one deposit, and at most how much its recipient was paid, in base units.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::watcher) struct Judged {
    pub(in crate::watcher) id: DepositId,
    pub(in crate::watcher) belief: Belief,
    /// Inside of the deposit's transaction.
    pub(in crate::watcher) paid_in_tx: U256,
    /// Inside of all transactions of the block.
    pub(in crate::watcher) paid_in_block: U256,
    /// Who paid it, if this reading shows it.
    pub(in crate::watcher) sender: Option<Address>,
}

/// The legs of a block to one address, by their hashes. To hash each leg for each deposit costs too much where there
/// are thousands.
struct Legs {
    /// The legs that the reading shows inside, with who paid.
    inside: HashMap<LegHash, Address>,
    by_roots: HashSet<LegHash>,
}

/// What is to be judged: all deposits of a block to one address, by one reading.
struct Case<'c> {
    evidence: &'c Evidence,
    address: &'c Address,
    deposits: &'c [Deposit],
    legs: Legs,
}

impl Case<'_> {
    /// A deposit with what this reading shows to be paid.
    fn judged(&self, deposit: &Deposit, belief: Belief) -> Judged {
        let transfers = &self.evidence.traces.transfers;
        let (paid_in_tx, paid_in_block) = (paid_in_tx(transfers, deposit), paid_in_block(transfers, deposit));
        Judged { paid_in_tx, paid_in_block, ..self.at_most(deposit, belief, U256::ZERO) }
    }

    /// A deposit to an address that was paid `paid` inside of the block's transactions, and no more.
    fn at_most(&self, deposit: &Deposit, belief: Belief, paid: U256) -> Judged {
        let sender = self.legs.inside.get(&deposit.leg_hash).copied();
        Judged { id: deposit.id, belief, paid_in_tx: paid, paid_in_block: paid, sender }
    }
}

impl Legs {
    fn of(network: &Network, evidence: &Evidence, address: &Address) -> Self {
        let to_it = |leg: &&AssetTransfer| leg.recipient == *address;
        let hash = |leg: &AssetTransfer| leg_of(&network.chain_ref, leg).hash();
        let Evidence { traces, inside, .. } = evidence;
        Legs {
            inside: traces.transfers.iter().filter(to_it).map(|leg| (hash(leg), leg.sender)).collect(),
            by_roots: inside.roots.transfers.iter().filter(to_it).map(hash).collect(),
        }
    }
}

/// What is known of an address in a block.
#[derive(Debug)]
pub(in crate::watcher) struct Judgement {
    pub(in crate::watcher) deposits: Vec<Judged>,
    /// Whether it is proved that nothing can have left the address inside of a transaction.
    pub(in crate::watcher) loses_nothing_inside: bool,
}

/// The states of addresses before and after a block.
#[derive(Debug)]
pub(in crate::watcher) enum States {
    Known(BTreeMap<Address, [AccountState; 2]>),
    /// No endpoint serves the state any more; its error text.
    Gone(String),
}

impl<S: BlockSource + AddressSource> TraceLane<S> {
    /// The states of `addresses` before and after a block, in one request for each.
    pub(in crate::watcher) async fn states(&self, header: &Header, addresses: &[Address]) -> Result<States, TickError> {
        let at = |at| self.source.account_states(addresses, at);
        match futures_util::future::try_join(at(&header.parent), at(&header.block)).await {
            Ok((before, after)) if before.len() == addresses.len() && after.len() == addresses.len() => {
                let states = addresses.iter().zip(before.into_iter().zip(after));
                Ok(States::Known(states.map(|(address, (before, after))| (*address, [before, after])).collect()))
            }
            Ok(_) => {
                let what = format!("fewer states than addresses are reported of block {}", header.block);
                Err(TickError::Contradiction { chain: self.chain(), what })
            }
            Err(error) if error.is_state_gone => Ok(States::Gone(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    /// What is believed of `deposits`, which are all that any reading of the block reported to `address`.
    pub(in crate::watcher) async fn judge_address(
        &self,
        evidence: &Evidence,
        states: &States,
        address: &Address,
        deposits: &[Deposit],
    ) -> Result<Judgement, TickError> {
        for deposit in deposits {
            prove_signer(&evidence.inside.roots.signers, &deposit.tx)?;
        }
        let case = Case { evidence, address, deposits, legs: Legs::of(&self.network, evidence, address) };
        let known = match states {
            States::Gone(why) => Err(format!("the balances of {address} cannot be had: {why}")),
            States::Known(states) => {
                states.get(address).copied().ok_or_else(|| format!("the state of {address} is not known"))
            }
        };
        let known = known.and_then(|states| self.hidden_part(evidence, address).map_or(Ok(states), Err));
        let [before, after] = match known {
            Ok(states) => states,
            Err(why) => {
                let deposits = self.by_engines(&case, &why);
                return Ok(Judgement { deposits, loses_nothing_inside: false });
            }
        };
        if before.has_code || after.has_code || evidence.inside.ran_code.contains(address) {
            let deposits = self.judge_with_code(&case, [before, after]).await?;
            return Ok(Judgement { deposits, loses_nothing_inside: false });
        }
        let deposits = self.judge_without_code(&case, [before, after])?;
        Ok(Judgement { deposits, loses_nothing_inside: true })
    }

    /// Why a change of the balance of `address` in the block is not known in full; `None` where all is known.
    fn hidden_part(&self, evidence: &Evidence, address: &Address) -> Option<String> {
        let roots = &evidence.inside.roots;
        if roots.fee_recipient == Some(*address) {
            return Some(format!("the fees of the block went to {address}, too"));
        }
        let is_open = roots.fees.iter().any(|fee| fee.payer == *address && !fee.proved);
        let is_open = is_open || evidence.inside.unreported_fees.contains(address);
        is_open.then(|| format!("{address} paid for a transaction, of which a part is the node's word"))
    }

    /// What is believed where balances cannot decide.
    fn by_engines(&self, case: &Case<'_>, why: &str) -> Vec<Judged> {
        let belief = |deposit: &Deposit| match self.reported(case, deposit) {
            Err(why) => Belief::Doubtful(why),
            Ok(_) if !case.evidence.inside.by_two_engines => Belief::Doubtful(wants_engines(why)),
            Ok(true) => Belief::Paid(WitnessedBy::TwoEngines),
            Ok(false) => Belief::NotPaid(WitnessedBy::TwoEngines),
        };
        case.deposits.iter().map(|deposit| case.judged(deposit, belief(deposit))).collect()
    }

    /// Whether this reading shows the deposit; an error if a trace is not what would show it.
    fn reported(&self, case: &Case<'_>, deposit: &Deposit) -> Result<bool, String> {
        let is_ours = self.network.asset(&deposit.asset).is_some()
            && self.network.native.is_traced(case.evidence.inside.roots.header.block.number)
            && !case.legs.by_roots.contains(&deposit.leg_hash);
        let is_shown = case.legs.inside.contains_key(&deposit.leg_hash);
        if is_ours { Ok(is_shown) } else { Err("the trace of its block, read again, does not show it".to_owned()) }
    }

    /// Nothing leaves `address` inside of transactions. It received there what its balance rose by, and reported legs
    /// out of it are false.
    fn judge_without_code(
        &self,
        case: &Case<'_>,
        [before, after]: [AccountState; 2],
    ) -> Result<Vec<Judged>, TickError> {
        let Case { evidence, address, deposits, legs } = case;
        let roots = &evidence.inside.roots;
        self.prove_payers(roots, address, false)?;
        let (paid_in, paid_out) = moved(&roots.transfers, roots, address);
        let had = paid_in.and_then(|paid_in| before.balance.checked_add(paid_in));
        let has = paid_out.and_then(|paid_out| after.balance.checked_add(paid_out));
        let Some(received) = had.zip(has).and_then(|(had, has)| has.checked_sub(had)) else {
            let why = format!(
                "the balances of {address} ({} base units before the block, {} after it) are less than what is proved of \
                 it leaves",
                before.balance, after.balance
            );
            return Ok(deposits.iter().map(|it| case.at_most(it, Belief::Doubtful(why.clone()), U256::ZERO)).collect());
        };
        let mut classes: BTreeMap<(TxId, U256), Vec<&Deposit>> = BTreeMap::new();
        let mut judged = Vec::with_capacity(deposits.len());
        for deposit in *deposits {
            match self.reported(case, deposit) {
                Ok(_) => classes.entry((deposit.tx.id, deposit.amount)).or_default().push(deposit),
                Err(why) => judged.push(case.at_most(deposit, Belief::Doubtful(why), received)),
            }
        }
        let mut beliefs = fitting(address, classes, received);
        if reported_in_all(&evidence.traces, address) == Some(received) && evidence.inside.by_two_engines {
            // Of several choices that fit the balances, the one that both engines report is right.
            for (deposit, belief) in beliefs.iter_mut().filter(|(_, belief)| matches!(belief, Belief::Doubtful(_))) {
                *belief = match legs.inside.contains_key(&deposit.leg_hash) {
                    true => Belief::Paid(WitnessedBy::TwoEngines),
                    false => Belief::NotPaid(WitnessedBy::TwoEngines),
                };
            }
        }
        if beliefs.iter().any(|(_, belief)| matches!(belief, Belief::NotPaid(_))) {
            // `from` is in no root: one payment may be reported as another sender's.
            self.prove_payers(roots, address, true)?;
        }
        // A person may confirm what is doubtful, in addition to what is believed.
        let is_open = beliefs.iter().any(|(_, belief)| matches!(belief, Belief::Doubtful(_)));
        let in_tx = |tx: &TxId| {
            let paid = beliefs.iter().filter(|(it, belief)| it.tx.id == *tx && matches!(belief, Belief::Paid(_)));
            paid.fold(U256::ZERO, |sum, (it, _)| sum.saturating_add(it.amount))
        };
        judged.extend(beliefs.iter().map(|(deposit, belief)| {
            let paid_in_tx = if is_open { received } else { in_tx(&deposit.tx.id) };
            Judged { paid_in_tx, ..case.at_most(deposit, belief.clone(), received) }
        }));
        Ok(judged)
    }

    /// Value may have come and gone: the balances show only the remainder.
    async fn judge_with_code(
        &self,
        case: &Case<'_>,
        [before, after]: [AccountState; 2],
    ) -> Result<Vec<Judged>, TickError> {
        let Case { evidence, address, deposits, .. } = case;
        let roots = &evidence.inside.roots;
        self.prove_payers(roots, address, true)?;
        let (paid_in, paid_out) = moved(roots.transfers.iter().chain(&evidence.traces.transfers), roots, address);
        // before + in == after + out, without a subtraction that could wrap.
        let balanced = paid_in.and_then(|paid_in| before.balance.checked_add(paid_in));
        let spent = paid_out.and_then(|paid_out| after.balance.checked_add(paid_out));
        if balanced.is_none() || balanced != spent {
            let why = format!(
                "the balances of {address}, which runs code, do not agree with the trace: {} base units before the block \
                 and {} after it",
                before.balance, after.balance
            );
            return Ok(deposits.iter().map(|it| case.judged(it, Belief::Doubtful(why.clone()))).collect());
        }
        if let Some(what) = self.cancels_out(evidence, address).await? {
            let why = format!("{address} runs code, and {what}, so that two mistakes could cancel out");
            return Ok(self.by_engines(case, &why));
        }
        let belief = |deposit: &Deposit| match self.reported(case, deposit) {
            Err(why) => Belief::Doubtful(why),
            Ok(true) => Belief::Paid(WitnessedBy::Balances),
            Ok(false) if evidence.inside.by_two_engines => Belief::NotPaid(WitnessedBy::TwoEngines),
            Ok(false) => {
                Belief::Doubtful(wants_engines(&format!("the trace does not show it, and {address} runs code")))
            }
        };
        Ok(deposits.iter().map(|it| case.judged(it, belief(it))).collect())
    }

    /// What could be reported wrong about `address`, which runs code, and hide a wrong receipt; `None` if nothing.
    async fn cancels_out(&self, evidence: &Evidence, address: &Address) -> Result<Option<String>, TickError> {
        let Evidence { inside, traces, .. } = evidence;
        let mut legs = traces.transfers.iter().filter(|leg| leg.asset == AssetId::Native);
        if legs.any(|leg| leg.sender == *address) {
            return Ok(Some("value left it inside of transactions".to_owned()));
        }
        let mut reader = self.db.read().await?;
        if movements::left_inside(&mut reader, self.chain(), &inside.roots.header.block, address).await? {
            return Ok(Some("an earlier reading showed value leave it inside of transactions".to_owned()));
        }
        Ok(contradicted(&mut reader, &self.network, evidence, address).await?)
    }

    /// Proves who signed the transactions that `address` is reported to have paid for: `from` is in no root. With
    /// `all`, proves it of every fee, so that nobody else is named in place of `address`.
    fn prove_payers(&self, roots: &Block, address: &Address, all: bool) -> Result<(), TickError> {
        let of_fees = roots.fees.iter().filter(|fee| all || fee.payer == *address).map(|fee| &fee.tx);
        let of_legs = roots.transfers.iter().filter(|leg| leg.sender == *address).map(|leg| &leg.tx);
        for tx in of_fees.chain(of_legs) {
            prove_signer(&roots.signers, tx)?;
        }
        Ok(())
    }
}

/// What a reading shows to be paid to `address` inside of the block's transactions; `None` beyond 2^256.
fn reported_in_all(traces: &Block, address: &Address) -> Option<U256> {
    let to_it = traces.transfers.iter().filter(|leg| leg.recipient == *address && leg.asset == AssetId::Native);
    to_it.map(|leg| leg.amount).try_fold(U256::ZERO, U256::checked_add)
}

/// Which of the deposits make up what `address` received. Equal deposits of one transaction are judged together.
fn fitting<'d>(
    address: &Address,
    classes: BTreeMap<(TxId, U256), Vec<&'d Deposit>>,
    received: U256,
) -> Vec<(&'d Deposit, Belief)> {
    let legs: Vec<Equal> = classes
        .iter()
        .map(|((_, amount), equal)| Equal { amount: *amount, count: u32::try_from(equal.len()).unwrap_or(u32::MAX) })
        .collect();
    let doubt = |what: &str| {
        Belief::Doubtful(format!(
            "the balances of {address} rose by {received} base units inside of transactions, and {what}"
        ))
    };
    let paid = match choices(&legs, received) {
        Choices::Explained(paid) => paid,
        Choices::None => return all(classes, &doubt("no choice of what the traces report makes that up")),
        Choices::Many => return all(classes, &doubt("the traces report too much to say which of it makes that up")),
    };
    let mut beliefs = Vec::new();
    for (mut equal, paid) in classes.into_values().zip(paid) {
        equal.sort_by_key(|deposit| deposit.nth);
        beliefs.extend((0..).zip(equal).map(|(index, deposit)| {
            let belief = match index {
                index if index < paid.least => Belief::Paid(WitnessedBy::Balances),
                index if index >= paid.most => Belief::NotPaid(WitnessedBy::Balances),
                _ => doubt("more than one choice of what the traces report makes that up; two endpoints of different engines must report the trace alike"),
            };
            (deposit, belief)
        }));
    }
    beliefs
}

fn all<'d>(classes: BTreeMap<(TxId, U256), Vec<&'d Deposit>>, belief: &Belief) -> Vec<(&'d Deposit, Belief)> {
    classes.into_values().flatten().map(|deposit| (deposit, belief.clone())).collect()
}

fn wants_engines(why: &str) -> String {
    format!("{why}; two endpoints of different engines must report the trace alike")
}

/// What is known of `address` in the evidence's block and contradicts this reading: a deposit that traces CONFIRMED is
/// missing in it, or a deposit's witness says the opposite. One of the two readings is wrong.
async fn contradicted(
    connection: &mut impl Connection,
    network: &Network,
    Evidence { inside, traces, .. }: &Evidence,
    address: &Address,
) -> Result<Option<String>, StoreError> {
    let roots = &inside.roots;
    for SeenInTrace { deposit, kept } in sighted(connection, network, &roots.header.block, address).await? {
        let is_shown = shows(network, &traces.transfers, &deposit) || shows(network, &roots.transfers, &deposit);
        let what = match (deposit.status, kept) {
            (DepositStatus::Confirmed, _) if !is_shown => "CONFIRMED of this block, is not in this reading of it",
            (DepositStatus::Confirmed, _) => continue,
            (_, Some(kept)) if kept.is_shown && !is_shown => "which has a witness, is not in this reading of it",
            (_, Some(kept)) if !kept.is_shown && is_shown => "which a witness denies, is in this reading of it",
            (_, _) => continue,
        };
        return Ok(Some(format!("deposit {}, {what}", deposit.id)));
    }
    Ok(None)
}

async fn sighted(
    connection: &mut impl Connection,
    network: &Network,
    block: &BlockRef,
    address: &Address,
) -> Result<Vec<SeenInTrace>, StoreError> {
    let mut sighted = witnesses::in_block(connection, network.chain, &block.hash).await?;
    sighted.retain(|sighted| sighted.deposit.recipient == *address);
    Ok(sighted)
}

/// How much of the native currency moved to `address` and away from it, by `transfers` and the fees of `roots`; `None`
/// beyond 2^256.
fn moved<'t>(
    transfers: impl IntoIterator<Item = &'t AssetTransfer>,
    roots: &Block,
    address: &Address,
) -> (Option<U256>, Option<U256>) {
    let (mut paid_in, mut paid_out) = (Some(U256::ZERO), Some(U256::ZERO));
    let add = |sum: &mut Option<U256>, amount: U256| *sum = sum.and_then(|sum| sum.checked_add(amount));
    for transfer in transfers.into_iter().filter(|leg| leg.asset == AssetId::Native) {
        if transfer.recipient == *address {
            add(&mut paid_in, transfer.amount);
        }
        if transfer.sender == *address {
            add(&mut paid_out, transfer.amount);
        }
    }
    roots.fees.iter().filter(|fee| fee.payer == *address).for_each(|fee| add(&mut paid_out, fee.amount));
    (paid_in, paid_out)
}
