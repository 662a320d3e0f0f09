//! Balances that contradict CONFIRMED deposits: an incident for each address and asset, which a person resolves.
//!
//! A balance is short if it is less than what was held before, plus what is CONFIRMED since, minus what left. What is
//! PENDING does not count: it may turn out to be nothing. Without a CONFIRMED deposit in between it stays an
//! unexplained entry. So does a surplus, which anybody can send.
//!
//! Promises: the incident is opened in the transaction that makes the contradiction: a reading, or a deposit that is
//! CONFIRMED after its balance was compared. Readers and confirmers lock the chain's cursor, so neither overlooks the
//! other, and several processes open one incident. Only a person resolves it; what is short after that is another one.
//! Deliberately not here: which readings may be compared (`reconcile`).

use landfall_chain::{Chain, U256};
use tracing::error;

use crate::balance::{Moved, Readings};
use crate::deposit::Deposit;
use crate::incident::{Incident, IncidentKind};
use crate::store::{StoreError, Tx, incidents, unexplained};
use crate::time::Timestamp;

const KIND: IncidentKind = IncidentKind::BalanceShort;
/// How many pairs of readings an incident describes, and how many deposits it names of each.
const SHORT_MAX: u32 = 5;
const NAMED_MAX: usize = 40;

/// Two readings that are short of the deposits CONFIRMED between them.
struct Short {
    readings: Readings,
    by: U256,
    moved: Moved,
    confirmed: Vec<Deposit>,
}

/// `deposit` is CONFIRMED: opens an incident if the balance after its block was compared before, and is short by it.
pub(in crate::watcher) async fn confirmed(tx: &mut Tx, deposit: &Deposit, now: Timestamp) -> Result<(), StoreError> {
    for readings in unexplained::across(tx, deposit).await? {
        compared(tx, &readings, now).await?;
    }
    Ok(())
}

/// Opens an incident, or adds to the open one, if `readings`, which are on record as unexplained, contradict CONFIRMED
/// deposits.
pub(in crate::watcher) async fn compared(tx: &mut Tx, readings: &Readings, now: Timestamp) -> Result<(), StoreError> {
    let Some(newest) = short(tx, readings).await? else { return Ok(()) };
    let Readings { chain, address, asset, has, .. } = *readings;
    let open = incidents::of_balance(tx, chain, KIND, &address, &asset).await?;
    let mut all = vec![newest];
    if let Some(open) = &open {
        for known in unexplained::of_incident(tx, chain, &open.id, SHORT_MAX).await? {
            if known != *readings {
                all.extend(short(tx, &known).await?);
            }
        }
    }
    let (what, number) = (advice(chain, &all), Some(has.number));
    let incident = match open {
        Some(open) => Incident { what, block_number: number, seen_at: now, ..open },
        None => Incident::open(chain, KIND, what, number, now).about_balance(address, asset),
    };
    if incidents::meet(tx, &incident).await? {
        error!(%chain, "incident {} on {chain}: {}", incident.id, incident.what);
    }
    unexplained::assign(tx, readings, &incident.id).await
}

/// By how much they are short, and of which deposits; `None` if they are not.
async fn short(tx: &mut Tx, readings: &Readings) -> Result<Option<Short>, StoreError> {
    let Some(moved) = unexplained::moved(tx, readings).await? else { return Ok(None) };
    let Some(by) = readings.short_of(&moved) else { return Ok(None) };
    let confirmed = unexplained::confirmed(tx, readings).await?;
    Ok((!confirmed.is_empty()).then_some(Short { readings: *readings, by, moved, confirmed }))
}

/// What is short, newest first, and what to do about it.
fn advice(chain: Chain, all: &[Short]) -> String {
    let what: Vec<String> = all.iter().map(Short::what).collect();
    let from = all.iter().map(|short| short.readings.had.number.saturating_add(1)).min().unwrap_or_default();
    let to = all.iter().map(|short| short.readings.has.number).max().unwrap_or_default();
    format!(
        "{}. Compare with an independent node, and with `landfall rescan --chain {chain} --from {from} --to {to}`. A deposit that \
         was not paid stays CONFIRMED here: take it back in your books. Then `landfall incident resolve`; nothing else \
         resolves this, and the next comparison starts from the newest reading",
        what.join(". Before that, ")
    )
}

impl Short {
    fn what(&self) -> String {
        let Short { readings: Readings { chain, address, had, has, .. }, by, moved, confirmed } = self;
        let noun = chain.family().number();
        let symbol = confirmed.first().map_or("", |deposit| deposit.symbol.as_str());
        let named = confirmed.iter().take(NAMED_MAX);
        let named = named.map(|it| format!("deposit {} of {} in transaction {}", it.id, it.amount, it.tx.id));
        let named: Vec<String> = named.collect();
        let more = match confirmed.len().saturating_sub(NAMED_MAX) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        format!(
            "{address} on {chain} holds {by} base units of {symbol} less than it should by its CONFIRMED deposits: after \
             {noun} {} it held {}, {} came and {} left, and after {noun} {} it holds {}; CONFIRMED in between: {}{more}",
            had.number,
            had.amount,
            moved.came.saturating_sub(moved.pending),
            moved.left,
            has.number,
            has.amount,
            named.join(", ")
        )
    }
}
