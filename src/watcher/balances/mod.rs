//! Reads what watched addresses hold, and keeps it fresh. It is a worker of its own, so that neither a tick nor the
//! opening of an account waits for it; one process at a time, under a lease.
//!
//! Promises:
//! - What is read is of a final block of the chain that we follow.
//! - A reading covers a bounded number of addresses at one block: half were never read, half had a movement since. Free
//!   room goes to those that were read longest ago.
//! - A reading that fails changes nothing and is tried again, later each time. If one asset is not reported, the others
//!   are recorded all the same.
//! - The record says which block it is of. Its age is up to one round over all addresses; it follows a movement that we
//!   saw once the block is final.
//! - After a start it searches all addresses for those with a missing listed asset, as fast as they are read.
//! - Each reading is compared with the one before (`reconcile`). What is not explained is recorded with it and logged
//!   once.

pub(super) mod reconcile;
pub(super) mod short;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use landfall_chain::{Address, AssetId, BlockRef, Chain, Holding, HoldingSource, Holdings, Network, Retry};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::balance::{HeldAfter, Readings, Unexplained};
use crate::lease::Turn;
use crate::store::balances::{self, Reading, Reason, Watched};
use crate::store::cursors::{self, Cursor};
use crate::store::{Db, StoreError, Tx, unexplained};
use crate::time::{Clock, Pulse, Timestamp};
use crate::watcher::balances::reconcile::Compared;

/// The pause between two ticks; each tick reads unless a longer `pause` is set.
const PAUSE: Duration = Duration::from_secs(1);
/// The age at which a balance is read again without another reason.
const AGAIN_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// How many addresses a tick searches after a start.
const LOOKED_THROUGH_MAX: u32 = 1_000;
/// How long a reading may take. Shorter than the lease.
const READ_TIME_MAX: Duration = Duration::from_secs(20);
const LEASE: Duration = Duration::from_secs(60);
const RETRY_FIRST: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_secs(60);
/// If a token is reported for none of so many addresses, it is not asked for during that time: its contract does not
/// answer.
const SILENT_ADDRESSES: usize = 3;
const SILENT_REST: Duration = Duration::from_secs(60 * 60);

/// Reads what the watched addresses of one chain hold.
#[derive(Debug)]
pub struct BalanceWatch<S> {
    source: S,
    db: Db,
    chain: Chain,
    turn: Turn,
    listed: Vec<Listed>,
    /// Since when each listed asset is followed; `None` until that is on record.
    followed: Option<BTreeMap<AssetId, u64>>,
    /// How many addresses are read at once. Each costs one light call for each asset, at as many endpoints as must
    /// agree; on Solana many share a call.
    most: u32,
    /// The least time from one reading to the next.
    pause: Duration,
    /// The rules that decide credits beside the network's facts.
    rules: String,
    /// Addresses with this number and above have been searched.
    looked_through: u64,
    retry: Retry,
    /// Nothing is read before this time.
    rests_until: Timestamp,
}

#[derive(Debug)]
struct Listed {
    id: AssetId,
    symbol: String,
    from_block: u64,
    /// From which block on every movement of it can be seen; `None` if it cannot.
    seen_from: Option<u64>,
    /// The settings that decide this, as text.
    settings: String,
    /// Not asked for before this time.
    silent_until: Option<Timestamp>,
}

/// What a tick did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BalancesRead {
    /// For how many addresses everything that was asked for is on record now.
    pub read: usize,
    /// For how many addresses not everything was reported.
    pub unreported: usize,
    /// How many addresses were found with a missing listed asset.
    pub lacking: usize,
}

/// What is asked for, and at which block.
struct Asked {
    addresses: Vec<Address>,
    assets: Vec<AssetId>,
    at: BlockRef,
}

impl<S: HoldingSource> BalanceWatch<S> {
    /// For the assets that `network` lists. A tick, one each second, reads `most` addresses, unless
    /// [`BalanceWatch::pausing`] says otherwise. `owner` distinguishes it from the same worker in other processes.
    pub fn new(source: S, db: Db, network: &Network, most: u32, owner: String) -> Self {
        let listed = network.assets.iter().map(|asset| Listed {
            id: asset.id,
            symbol: asset.symbol.clone(),
            from_block: asset.from_block,
            seen_from: reconcile::seen_from(network, &asset.id),
            settings: format!("{asset:?} {:?}", network.native),
            silent_until: None,
        });
        BalanceWatch {
            source,
            db,
            chain: network.chain,
            turn: Turn::new(format!("balances {}", network.chain), owner, LEASE),
            listed: listed.collect(),
            followed: None,
            most,
            pause: Duration::ZERO,
            rules: String::new(),
            looked_through: u64::MAX,
            retry: Retry::new(RETRY_FIRST, RETRY_MAX),
            rests_until: Timestamp::EPOCH,
        }
    }

    /// Sets the rules that decide credits beside the network's facts (`BlockSource::rules`). Readings under other rules
    /// are not compared.
    #[must_use]
    pub fn by_rules(self, rules: String) -> Self {
        BalanceWatch { rules, ..self }
    }

    /// Sets the least `pause` from one reading to the next, however often it ticks: for chains on which calls are
    /// counted.
    #[must_use]
    pub fn pausing(self, pause: Duration) -> Self {
        BalanceWatch { pause, ..self }
    }

    /// Reads what is most due, if anything is, and if no other process does. `random` spreads the next try when this
    /// one fails.
    ///
    /// # Errors
    /// When the store cannot be read or written; what was due stays due.
    pub async fn tick(&mut self, now: Timestamp, random: u64) -> Result<BalancesRead, StoreError> {
        if !self.is_our_turn(now).await? {
            return Ok(BalancesRead::default());
        }
        self.hear_again(now);
        let lacking = self.look_through(now).await?;
        let nothing = BalancesRead { lacking, ..BalancesRead::default() };
        let finalized = Cursor::load(&mut self.db.read().await?, self.chain).await?.finalized;
        let Some(at) = finalized.filter(|_| self.rests_until <= now) else { return Ok(nothing) };
        let addresses = self.due(&at, now).await?;
        let assets: Vec<AssetId> = self.responses().map(|listed| listed.id).collect();
        if addresses.is_empty() || assets.is_empty() {
            return Ok(nothing);
        }
        self.rests_until = now.plus(self.pause);
        let asked = Asked { addresses, assets, at };
        let answer = self.source.holdings(&asked.addresses, &asked.assets, &at);
        let reason = match tokio::time::timeout(READ_TIME_MAX, answer).await {
            Ok(Ok(holdings)) => {
                let read = self.record(&asked, &holdings, now).await?;
                self.retry.reset();
                return Ok(BalancesRead { lacking, ..read });
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", READ_TIME_MAX.as_secs()),
        };
        let (chain, count) = (self.chain, asked.addresses.len());
        warn!(%chain, "what {count} addresses on {chain} hold at block {} is not told for now: {reason}", at.number);
        self.rests_until = now.plus(self.retry.next_delay(random).max(self.pause));
        let mut tx = self.db.begin().await?;
        if self.turn.hold(&mut tx, now).await? {
            for asset in &asked.assets {
                balances::report(&mut tx, chain, asset, false, now).await?;
            }
            tx.commit().await?;
        }
        Ok(BalancesRead { unreported: count, ..nothing })
    }

    /// Ticks until it is stopped. A store error is only logged, and the tick repeated: nothing depends on it.
    pub async fn run(mut self, clock: Clock, random: impl Fn() -> u64 + Send, pulse: Pulse, stop: CancellationToken) {
        let chain = self.chain;
        while !stop.is_cancelled() {
            pulse.beat(clock.now());
            let ticked = stop.run_until_cancelled(self.tick(clock.now(), random())).await;
            if let Some(Err(error)) = ticked {
                warn!(%chain, "what addresses on {chain} hold was not recorded: {error}");
            }
            stop.run_until_cancelled(tokio::time::sleep(PAUSE)).await;
        }
        if let Err(error) = self.release().await {
            warn!(%chain, "the lease of the balances of {chain} runs out by itself, since it cannot be given up: {error}");
        }
    }

    /// Lets another process take over at once.
    ///
    /// # Errors
    /// When the store fails: then the lease runs out by itself.
    pub async fn release(&mut self) -> Result<(), StoreError> {
        self.turn.release(&self.db).await
    }

    /// Whether this process is the one that reads. If it has just become that, what it follows is on record afterwards.
    async fn is_our_turn(&mut self, now: Timestamp) -> Result<bool, StoreError> {
        if !self.turn.is_ours() && !self.turn.take(&self.db, now).await? {
            self.followed = None;
            return Ok(false);
        }
        if self.followed.is_some() && !self.turn.is_due(now) {
            return Ok(true);
        }
        let mut tx = self.db.begin().await?;
        if !self.turn.hold(&mut tx, now).await? {
            let chain = self.chain;
            warn!(%chain, "another process has taken over the balances of {chain}; this one writes nothing");
            self.followed = None;
            return Ok(false);
        }
        if self.followed.is_none() {
            self.followed = Some(self.follow(&mut tx).await?);
            // Another process may list other assets.
            self.looked_through = u64::MAX;
        }
        tx.commit().await?;
        self.turn.held(now);
        Ok(true)
    }

    /// Records since when each listed asset is followed.
    async fn follow(&self, tx: &mut Tx) -> Result<BTreeMap<AssetId, u64>, StoreError> {
        let at = Cursor::lock(tx, self.chain).await?.at;
        for gone in balances::followed(tx, self.chain).await? {
            if !self.listed.iter().any(|listed| listed.id == gone.asset) {
                balances::unfollow(tx, self.chain, &gone.asset).await?;
            }
        }
        for listed in &self.listed {
            let from = at.map_or(0, |at| at.number + 1).max(listed.from_block);
            let explained_from = listed.seen_from.map(|seen_from| seen_from.max(from));
            let settings = format!("{} {}", listed.settings, self.rules);
            balances::follow(tx, self.chain, &listed.id, from, (explained_from, &settings)).await?;
        }
        let followed = balances::followed(tx, self.chain).await?;
        Ok(followed.into_iter().map(|followed| (followed.asset, followed.from)).collect())
    }

    /// The addresses to read at the final block `at`.
    async fn due(&self, at: &BlockRef, now: Timestamp) -> Result<Vec<Address>, StoreError> {
        let (chain, most) = (self.chain, self.most);
        let mut reader = self.db.read().await?;
        let mut new = Vec::new();
        for reason in Reason::ALL {
            let room = most.saturating_sub(u32::try_from(new.len()).unwrap_or(u32::MAX));
            new.extend(balances::queued(&mut reader, chain, reason, now, room).await?);
        }
        let moved = balances::moved_by(&mut reader, chain, at.number, now, most).await?;
        // Neither half keeps the other waiting; what one leaves free is the other's.
        let half = usize::try_from(most.div_ceil(2)).unwrap_or(usize::MAX).min(new.len());
        let mut due = BTreeSet::new();
        for address in new[..half].iter().chain(&moved).chain(&new[half..]) {
            if room(&due, most) > 0 {
                due.insert(*address);
            }
        }
        let again = room(&due, most).min(most.div_ceil(4));
        let lines = again.saturating_mul(u32::try_from(self.listed.len()).unwrap_or(u32::MAX));
        let oldest = balances::oldest(&mut reader, chain, now.minus(AGAIN_AFTER), lines).await?;
        let oldest: BTreeSet<Address> = oldest.into_iter().collect();
        due.extend(oldest.into_iter().take(usize::try_from(again).unwrap_or(usize::MAX)));
        Ok(due.into_iter().collect())
    }

    /// Records what was reported, in one transaction. What moved between two addresses that are read together is
    /// counted in one of them. Between two that were read at different blocks it may be in both, or in neither, until
    /// the first is read again. That happens as soon as there is room, because the movement made it due. What may be
    /// spent is never counted twice.
    async fn record(&mut self, asked: &Asked, holdings: &Holdings, now: Timestamp) -> Result<BalancesRead, StoreError> {
        let (chain, at) = (self.chain, &asked.at);
        let mut tx = self.db.begin().await?;
        if !self.turn.hold(&mut tx, now).await? {
            return Ok(BalancesRead::default());
        }
        let cursor = Cursor::lock(&mut tx, chain).await?;
        // An operator may have disconnected the block meanwhile, and another may be final at its number.
        let is_final = cursor.finalized.is_some_and(|finalized| finalized.number >= at.number);
        if !is_final || cursors::canonical_at(&mut tx, chain, at.number).await? != Some(at.hash) {
            return Ok(BalancesRead { unreported: asked.addresses.len(), ..BalancesRead::default() });
        }
        let reached = cursor.at.map_or(0, |at| at.number);
        let reported = asked.reported(&mut tx, chain, holdings, reached).await?;
        let silent = asked.silent(&reported);
        let (mut read, mut uneven) = (BalancesRead::default(), Vec::new());
        for (address, reported) in asked.addresses.iter().zip(&reported) {
            let held = || asked.assets.iter().zip(reported).filter_map(|(asset, held)| Some((*asset, (*held)?)));
            let bases = balances::bases(&mut tx, chain, address).await?;
            for (asset, Holding { amount, number, .. }) in held() {
                // A later slot has another hash, which was not reported.
                let hash = (number == at.number).then_some(at.hash);
                let reading = Reading { address, asset, amount, number, hash, proof: holdings.proof };
                uneven.extend(self.set(&mut tx, &reading, bases.get(&asset), now).await?);
            }
            let unreported =
                asked.assets.iter().zip(reported).filter(|(asset, held)| held.is_none() && !silent.contains(asset));
            let unreported: Vec<&str> = unreported.map(|(asset, _)| self.symbol(asset)).collect();
            if unreported.is_empty() {
                let oldest = held().map(|(_, held)| held.number).min().unwrap_or(at.number);
                balances::done(&mut tx, chain, address, oldest).await?;
                read.read += 1;
            } else {
                balances::rest(&mut tx, chain, address, (at.number, &unreported.join(", ")), now).await?;
                read.unreported += 1;
            }
        }
        for (index, asset) in asked.assets.iter().enumerate() {
            let is_reported = reported.iter().any(|reported| reported[index].is_some());
            balances::report(&mut tx, chain, asset, is_reported, now).await?;
        }
        tx.commit().await?;
        self.turn.held(now);
        self.rest_from(&silent, now);
        uneven.iter().for_each(|(readings, difference)| self.report(readings, difference));
        Ok(read)
    }

    /// Records a reading, compared with `base`; returns what stays unexplained, which is then on record.
    async fn set(
        &self,
        tx: &mut Tx,
        reading: &Reading<'_>,
        base: Option<&HeldAfter>,
        now: Timestamp,
    ) -> Result<Option<(Readings, Unexplained)>, StoreError> {
        let Reading { address, asset, amount, number, .. } = *reading;
        let (chain, has) = (self.chain, HeldAfter { number, amount });
        let base = base.filter(|base| base.number < number);
        let readings = base.map(|had| Readings { chain, address: *address, asset, had: *had, has });
        let compared = match &readings {
            Some(readings) => reconcile::compare(tx, readings).await?,
            None => Compared::Even,
        };
        let is_set = balances::set(tx, chain, reading, compared != Compared::TooEarly, now).await?;
        match (readings, compared) {
            (Some(readings), Compared::Uneven(difference)) if is_set => {
                unexplained::insert(tx, &readings, now).await?;
                short::compared(tx, &readings, now).await?;
                Ok(Some((readings, difference)))
            }
            _ => Ok(None),
        }
    }

    fn report(&self, Readings { chain, address, asset, had, has }: &Readings, difference: &Unexplained) {
        let (symbol, noun, from, to) = (self.symbol(asset), chain.family().number(), had.number, has.number);
        let what = match difference {
            Unexplained::More(amount) => format!("{amount} base units of {symbol} more"),
            Unexplained::Less(amount) => format!("{amount} base units of {symbol} less"),
        };
        warn!(
            %chain,
            "after {noun} {to} {address} on {chain} holds {what} than what it held after {noun} {from} and what is on record \
             since explain; nothing is credited for it"
        );
    }

    /// Searches some addresses, newest first: those with a missing listed asset become due; returns how many there
    /// were. It pauses while a reading has enough of them: to write down all of a long list at once costs more than to
    /// follow the chain.
    async fn look_through(&mut self, now: Timestamp) -> Result<usize, StoreError> {
        if self.looked_through == 0 {
            return Ok(0);
        }
        let (below, mut reader) = (self.looked_through, self.db.read().await?);
        let due = balances::queued(&mut reader, self.chain, Reason::Listed, now, self.most).await?;
        if due.len() == usize::try_from(self.most).unwrap_or(usize::MAX) {
            return Ok(0);
        }
        let page = balances::watched_below(&mut reader, self.chain, below, LOOKED_THROUGH_MAX).await?;
        drop(reader);
        let Some(last) = page.last().map(|last| last.seq) else {
            self.looked_through = 0;
            return Ok(0);
        };
        let lacking: Vec<_> = page.iter().filter_map(|watched| Some((watched.address, self.lacks(watched)?))).collect();
        if !lacking.is_empty() {
            let mut tx = self.db.begin().await?;
            for (address, seen_from) in &lacking {
                balances::first(&mut tx, self.chain, std::slice::from_ref(address), (Reason::Listed, *seen_from), now)
                    .await?;
            }
            tx.commit().await?;
        }
        self.looked_through = last;
        Ok(lacking.len())
    }

    /// Whether a listed asset is missing: it was never read for the address, was left out when others were read, or was
    /// read before all its movements were seen. Returns the block from which they are; `None` if nothing is missing.
    fn lacks(&self, watched: &Watched) -> Option<u64> {
        let newest = watched.assets.iter().map(|(_, number)| *number).max();
        let followed =
            |asset: &AssetId| self.followed.as_ref().and_then(|all| all.get(asset)).copied().unwrap_or_default();
        let lacking = self.responses().filter_map(|listed| {
            let known = watched.assets.iter().find(|(asset, _)| *asset == listed.id).map(|(_, number)| *number);
            let from = followed(&listed.id);
            let is_whole = known.is_some() && known == newest && known.is_some_and(|number| number + 1 >= from);
            (!is_whole).then_some(from)
        });
        lacking.max()
    }

    /// The listed assets that are asked for now.
    fn responses(&self) -> impl Iterator<Item = &Listed> {
        self.listed.iter().filter(|listed| listed.silent_until.is_none())
    }

    /// Asks again for tokens whose pause is over: it is missing wherever addresses were read without it.
    fn hear_again(&mut self, now: Timestamp) {
        for listed in self.listed.iter_mut().filter(|listed| listed.silent_until.is_some_and(|until| until <= now)) {
            listed.silent_until = None;
            self.looked_through = u64::MAX;
        }
    }

    /// Pauses tokens that no endpoint reports, so that no address is read again and again for them.
    fn rest_from(&mut self, silent: &BTreeSet<AssetId>, now: Timestamp) {
        let chain = self.chain;
        for listed in self.listed.iter_mut().filter(|listed| silent.contains(&listed.id)) {
            let Listed { id, symbol, .. } = &listed;
            warn!(%chain, "nobody on {chain} tells how much of {symbol} ({id}) anybody holds; it is asked for again later");
            listed.silent_until = Some(now.plus(SILENT_REST));
        }
    }

    fn symbol(&self, asset: &AssetId) -> &str {
        self.listed.iter().find(|listed| listed.id == *asset).map_or("", |listed| &listed.symbol)
    }
}

impl Asked {
    /// What may be recorded of each asset of each address. Reports of two blocks count as one if nothing moved between
    /// them. A report of a block that is not connected yet does not count: it may include deposits that nobody has
    /// seen.
    async fn reported(
        &self,
        tx: &mut Tx,
        chain: Chain,
        holdings: &Holdings,
        reached: u64,
    ) -> Result<Vec<Vec<Option<Holding>>>, StoreError> {
        let mut reported = Vec::with_capacity(self.addresses.len());
        for (index, address) in self.addresses.iter().enumerate() {
            let mut amounts = Vec::with_capacity(self.assets.len());
            for place in 0..self.assets.len() {
                let held = holdings.amounts.get(index).and_then(|amounts| *amounts.get(place)?);
                let held = held.filter(|held| held.number >= self.at.number && held.through <= reached);
                amounts.push(match held {
                    Some(Holding { number, through, .. }) if number < through => {
                        let moved = balances::moved_between(tx, chain, address, (number, through)).await?;
                        held.filter(|_| !moved)
                    }
                    _ => held,
                });
            }
            reported.push(amounts);
        }
        Ok(reported)
    }

    /// The assets that are reported for no address, while others are.
    fn silent(&self, reported: &[Vec<Option<Holding>>]) -> BTreeSet<AssetId> {
        let is_reported = |index: usize| reported.iter().any(|reported| reported[index].is_some());
        let is_any_reported = (0..self.assets.len()).any(is_reported);
        if !is_any_reported || self.addresses.len() < SILENT_ADDRESSES {
            return BTreeSet::new();
        }
        self.assets.iter().enumerate().filter(|(index, _)| !is_reported(*index)).map(|(_, asset)| *asset).collect()
    }
}

fn room(due: &BTreeSet<Address>, most: u32) -> u32 {
    most.saturating_sub(u32::try_from(due.len()).unwrap_or(u32::MAX))
}
