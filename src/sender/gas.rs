//! Books what carrying transfers cost: when the block is final. The cost is priced when there is a price, and charged
//! to who bears it. On Solana the rent that a recipient's new account got is part of the cost; what a guard holds is
//! locked, and no cost.
//!
//! Nothing about transfers is decided here. A cost without a price is booked all the same.

use landfall_chain::{BlockRef, Effect, Network, PayingChain, TxId, U256};

use crate::gas::{self, Bearer, Cause, Credit, EntryKind, GasCurrency, Observation, Split, Usd};
use crate::sender::reclaim::makes_guards;
use crate::sender::{SendError, Sender};
use crate::store::attempts::Purpose;
use crate::store::cursors::{self, Cursor};
use crate::store::gas_ledger::{self, Entry, Landed, OfTransfer, Pricing};
use crate::store::guards::{Reclaiming, Shown};
use crate::store::marks::{self, Seen};
use crate::store::spends::{self, Spend};
use crate::store::{Connection, StoreError, Tx, clearings, guards, prices, refills, transfers};
use crate::time::Timestamp;
use crate::transfer::{Transfer, TransferId, TransferKind};

/// How many costs are booked in one transaction: more than all sponsors of a chain may have in one block.
const BOOKED_MAX: u32 = 5_000;
/// How many entries are priced in one transaction.
const PRICED_MAX: u32 = 500;
/// The route of what is in no attempt.
const UNRECORDED: &str = "unrecorded";

impl<C: PayingChain> Sender<C> {
    /// Books what landed in final blocks, and prices what waited for a price.
    pub(super) async fn keep_books(&mut self, now: Timestamp) -> Result<(), SendError> {
        let (network, mut reader) = (self.network.clone(), self.db.read().await?);
        let finalized = Cursor::load(&mut reader, network.chain).await?.finalized;
        let is_booked = match finalized {
            Some(at) => {
                gas_ledger::landed(&mut reader, network.chain, at.number, 1).await?.is_empty()
                    && marks::granted_through(&mut reader, network.chain, at.number).await?.is_none()
            }
            None => true,
        };
        let is_priced = !may_be_priced(&mut reader, &network).await?;
        drop(reader);
        if is_booked && is_priced {
            return Ok(());
        }
        let mut tx = self.begin(now).await?;
        // None is disconnected, and none becomes final, before the end of the transaction.
        let finalized = Cursor::lock(&mut tx, network.chain).await?.finalized;
        book(&mut tx, &network, finalized.map(|at| at.number), now).await?;
        if let Some(BlockRef { number, .. }) = finalized {
            // What was CONFIRMED before its block was final for all.
            for id in marks::granted_through(&mut tx, network.chain, number).await?.unwrap_or_default() {
                gas_ledger::release(&mut tx, id, now).await?;
            }
            marks::fulfil(&mut tx, network.chain, number).await?;
        }
        price_waiting(&mut tx, &network, now).await?;
        Ok(self.commit(tx, now).await?)
    }
}

/// Books what landed up to the final block `through`. The caller holds the lock of the chain's cursor.
pub(super) async fn book(
    tx: &mut Tx,
    network: &Network,
    through: Option<u64>,
    now: Timestamp,
) -> Result<(), StoreError> {
    let (Some(through), Some(currency)) = (through, GasCurrency::of(network)) else { return Ok(()) };
    let landed = gas_ledger::landed(tx, network.chain, through, BOOKED_MAX).await?;
    let Some(last) = landed.last() else { return Ok(()) };
    let is_all = landed.len() < BOOKED_MAX as usize;
    // What is left of the last block comes with the next transaction.
    let through = if is_all { through } else { last.block.number - 1 };
    let mut books = Books::open(tx, network, currency, now).await?;
    for landed in landed.iter().filter(|landed| landed.block.number <= through) {
        books.book(tx, landed).await?;
    }
    gas_ledger::booked(tx, network.chain, through).await
}

/// Up to which final block all costs are booked: what is announced of a transfer that is final has its cost. `finalized` is
/// the newest final block.
pub(super) async fn booked_through(
    connection: &mut impl Connection,
    network: &Network,
    finalized: Option<(BlockRef, Timestamp)>,
) -> Result<Option<u64>, StoreError> {
    let Some((BlockRef { number, .. }, _)) = finalized else { return Ok(None) };
    if GasCurrency::of(network).is_none() {
        return Ok(Some(number));
    }
    let first = gas_ledger::landed(connection, network.chain, number, 1).await?;
    Ok(first.first().map_or(Some(number), |landed| landed.block.number.checked_sub(1)))
}

/// Books what a reclaim cost: the platform bears it, an even share for each transfer whose guard it took back, and the
/// remainder with the first. The caller holds the lock of the chain's cursor.
pub(super) async fn book_reclaim(
    tx: &mut Tx,
    network: &Network,
    (reclaim, shown): (&Reclaiming, &Shown),
    now: Timestamp,
) -> Result<(), StoreError> {
    let Some(currency) = GasCurrency::of(network) else { return Ok(()) };
    let mut books = Books::open(tx, network, currency, now).await?;
    let count = U256::from(reclaim.guards.len().max(1));
    let (share, mut remainder) = (shown.fee / count, shown.fee % count);
    for (id, _) in &reclaim.guards {
        let transfer = transfer_of(tx, *id).await?;
        let amount = share.saturating_add(std::mem::take(&mut remainder));
        let of = OfTransfer::new(Some(transfer.id), network.chain, &transfer.route, amount, &books.currency);
        books.charge(tx, of, (shown.tx, shown.block), Cause::Reclaim).await?;
    }
    Ok(())
}

/// Books what sponsors paid for transactions of ours in final blocks that no attempt on record is: the store that had them
/// was set back, or is another one with the same keys. The platform bears it, rent included: what a guard of such a
/// transaction holds is taken back by nobody. The caller holds the lock of the chain's cursor.
pub(super) async fn book_unrecorded(
    tx: &mut Tx,
    network: &Network,
    spends: &[Spend],
    now: Timestamp,
) -> Result<(), StoreError> {
    let (chain, Some(currency)) = (network.chain, GasCurrency::of(network).filter(|_| !spends.is_empty())) else {
        return Ok(());
    };
    let mut books = Books::open(tx, network, currency, now).await?;
    for spend in spends {
        let Some((fee, outlay)) = spends::cost(tx, chain, spend).await? else { continue };
        if spends::is_attempt(tx, chain, &spend.tx).await? {
            continue;
        }
        let beyond = |_| StoreError::Inconsistent { what: "outlay", reason: format!("{outlay} of {}", spend.tx) };
        // What came to sponsors is no cost of theirs.
        let given = spends::given(tx, chain, spend).await?;
        let rent = u64::try_from((outlay - given).max(0)).map_err(beyond)?;
        let (id, amount) = (spends::transfer_of(tx, chain, spend).await?, fee.saturating_add(U256::from(rent)));
        let of = OfTransfer::new(id, chain, UNRECORDED, amount, &books.currency);
        books.charge(tx, OfTransfer { rent, ..of }, (spend.tx, spend.block), Cause::Unrecorded).await?;
    }
    Ok(())
}

async fn transfer_of(tx: &mut Tx, id: TransferId) -> Result<Transfer, StoreError> {
    let missing = || StoreError::Inconsistent { what: "attempt", reason: format!("{id} is not there") };
    transfers::by_id(tx, id).await?.ok_or_else(missing)
}

/// What costs are booked by.
struct Books<'n> {
    network: &'n Network,
    currency: GasCurrency,
    price: Option<Observation>,
    /// As it stands behind each cost; locked while there is a price.
    credit: Credit,
    now: Timestamp,
}

impl<'n> Books<'n> {
    async fn open(
        tx: &mut Tx,
        network: &'n Network,
        currency: GasCurrency,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let price = prices::of_moment(tx, &currency.symbol, now).await?;
        let credit = if price.is_some() { gas_ledger::lock(tx, now).await? } else { Credit::default() };
        Ok(Books { network, currency, price, credit, now })
    }

    /// Each who bears a part has an entry of his own.
    async fn book(&mut self, tx: &mut Tx, landed: &Landed) -> Result<(), StoreError> {
        let amount = landed.fee.saturating_add(U256::from(landed.rent));
        match landed.purpose {
            Purpose::Payment | Purpose::Cancellation => self.book_part(tx, landed, (landed.transfer_id, amount)).await,
            Purpose::Clearing => {
                let bearers = clearings::bearers(tx, landed.transfer_id).await?;
                let shares = gas::shares(amount, bearers.len());
                for part in bearers.into_iter().zip(shares) {
                    self.book_part(tx, landed, part).await?;
                }
                Ok(())
            }
            Purpose::Refill => {
                // With its nonce it is over, whatever became of it. Its guard is made only where it was given.
                if landed.locked.is_some() || !makes_guards(self.network) {
                    refills::landed(tx, landed.transfer_id, &landed.tx).await?;
                }
                // That guard stays for good.
                let rent = landed.locked.unwrap_or_default();
                let amount = landed.fee.saturating_add(U256::from(rent));
                let of = OfTransfer::new(None, self.network.chain, landed.purpose.name(), amount, &self.currency);
                self.charge(tx, OfTransfer { rent, ..of }, (landed.tx, landed.block), Cause::Refill).await
            }
        }
    }

    async fn book_part(
        &mut self,
        tx: &mut Tx,
        landed: &Landed,
        (transfer_id, amount): (TransferId, U256),
    ) -> Result<(), StoreError> {
        let (Landed { tx: id, block, purpose, rent, .. }, now) = (landed, self.now);
        let transfer = transfer_of(tx, transfer_id).await?;
        let marks = marks::of_transfer(tx, &transfer).await?;
        let pays = |seen: &Seen| seen.asset == transfer.asset && matches!(seen.effect, Effect::Paid { .. });
        let paid = marks.iter().find(|(seen, canonical)| *canonical && pays(seen));
        let paid = paid.map(|(seen, _)| (seen.tx, seen.block));
        let cause = match (transfer.kind, purpose) {
            (TransferKind::Sweep, _) => Cause::Sweep,
            (TransferKind::Payment, Purpose::Payment) => Cause::of(*id, block.number, paid),
            (TransferKind::Payment, Purpose::Cancellation) => Cause::Cancellation,
            (TransferKind::Payment, Purpose::Clearing) => Cause::Clearing,
            (TransferKind::Payment, Purpose::Refill) => Cause::Refill,
        };
        if let Some(lamports) = landed.locked {
            let made_at = cursors::time_of(tx, self.network.chain, block).await?.unwrap_or(now);
            guards::made(tx, self.network.chain, landed, (lamports, made_at)).await?;
        }
        // What a payment by the route is taken to cost is no matter of what else was sent for one.
        let route = if *purpose == Purpose::Payment { transfer.route.as_str() } else { purpose.name() };
        let of = OfTransfer::new(Some(transfer.id), self.network.chain, route, amount, &self.currency);
        self.charge(tx, OfTransfer { rent: *rent, ..of }, (*id, *block), cause).await
    }

    /// Books a cost, once; with its transfer what that cost so far.
    async fn charge(
        &mut self,
        tx: &mut Tx,
        of: OfTransfer,
        landed: (TxId, BlockRef),
        cause: Cause,
    ) -> Result<(), StoreError> {
        let (id, now) = (of.id, self.now);
        let (transfer, bearer) = (Some(of), Some(cause.bearer()));
        let mut entry = Entry { kind: EntryKind::Cost, transfer, landed: Some(landed), bearer, at: now, pricing: None };
        entry.pricing = self.price.clone().map(|by| priced(self.credit, &entry, by, now));
        if !gas_ledger::append(tx, &entry).await? {
            return Ok(());
        }
        match &entry.pricing {
            Some(pricing) => self.credit = self.credit.after(pricing.split),
            None => gas_ledger::wait(tx, self.network.chain, &entry).await?,
        }
        match id {
            Some(id) => show_fee(tx, id, &self.currency).await,
            None => Ok(()),
        }
    }
}

/// Prices what waited. What is held for a transfer that only the credit may pay is priced once the credit covers it.
async fn price_waiting(tx: &mut Tx, network: &Network, now: Timestamp) -> Result<(), StoreError> {
    let Some(currency) = GasCurrency::of(network) else { return Ok(()) };
    for waiting in gas_ledger::unpriced(tx, network.chain, PRICED_MAX).await? {
        let Some(by) = prices::of_moment(tx, &currency.symbol, waiting.entry.at).await? else { continue };
        let credit = gas_ledger::lock(tx, now).await?;
        let pricing = priced(credit, &waiting.entry, by, now);
        let (kind, of) = (waiting.entry.kind, &waiting.entry.transfer);
        if kind == EntryKind::Hold && pricing.usd > credit.remaining() {
            continue;
        }
        gas_ledger::price(tx, (&waiting.key, kind), &pricing).await?;
        if let Some(id) = of.as_ref().filter(|_| kind == EntryKind::Cost).and_then(|of| of.id) {
            show_fee(tx, id, &currency).await?;
        }
    }
    Ok(())
}

/// Whether something waits that a price, and for a hold the credit, allows to be priced.
async fn may_be_priced(connection: &mut impl Connection, network: &Network) -> Result<bool, StoreError> {
    let Some(currency) = GasCurrency::of(network) else { return Ok(false) };
    let waiting = gas_ledger::unpriced(connection, network.chain, PRICED_MAX).await?;
    if waiting.is_empty() {
        return Ok(false);
    }
    let credit = gas_ledger::credit(connection).await?;
    for waiting in waiting {
        if let Some(by) = prices::of_moment(connection, &currency.symbol, waiting.entry.at).await? {
            let usd = priced(credit, &waiting.entry, by, waiting.entry.at).usd;
            if waiting.entry.kind != EntryKind::Hold || usd <= credit.remaining() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// What an entry is in USD, and to whom it goes.
fn priced(credit: Credit, entry: &Entry, by: Observation, now: Timestamp) -> Pricing {
    let usd = entry.transfer.as_ref().map_or(Usd::default(), |of| by.price.of(of.amount, of.decimals));
    let split = match entry.kind {
        EntryKind::Cost => credit.split(usd, entry.bearer.unwrap_or(Bearer::Platform)),
        EntryKind::Grant | EntryKind::Hold | EntryKind::Release => Split::default(),
    };
    Pricing { usd, split, by: Some(by), at: now }
}

/// Records with the transfer what it cost so far.
async fn show_fee(tx: &mut Tx, id: TransferId, currency: &GasCurrency) -> Result<(), StoreError> {
    let costs = gas_ledger::costs_of(tx, id).await?;
    match gas::network_fee(&costs, currency) {
        Some(fee) => gas_ledger::set_fee(tx, id, &fee).await,
        None => Ok(()),
    }
}
