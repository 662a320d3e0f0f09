//! Reads what watched addresses hold, and keeps it fresh. A worker of its own, so that neither a tick nor who opens an account
//! waits for it.
//!
//! Promises: what is read is of a final block of the chain that we follow; a tick reads a bounded number of addresses, at one
//! block: first those that were never read, then those that something moved of since, then those that were read longest
//! ago. A reading that fails changes nothing and is tried again, later each time. What stands on record says of which block
//! it is; how old it may be is how long a round over all addresses takes, and it lags behind a movement that we saw by the
//! time until its block is final. At the start it looks through all addresses for one that lacks a listed asset.

use std::collections::BTreeSet;
use std::time::Duration;

use landfall_chain::{Address, AssetId, BlockRef, Chain, HoldingSource, Holdings, Network, Retry};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::store::balances::{self, Reading};
use crate::store::cursors::Cursor;
use crate::store::{Db, StoreError};
use crate::time::{Clock, Pulse, Timestamp};

/// From one tick to the next.
const PAUSE: Duration = Duration::from_secs(1);
/// How old a reading is that is read again without a reason.
const AGAIN_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// How many addresses a tick looks through at the start.
const LOOKED_THROUGH_MAX: u32 = 1_000;
/// How long a reading may take.
const READ_TIME_MAX: Duration = Duration::from_secs(20);
const RETRY_FIRST: Duration = Duration::from_secs(2);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Reads what the watched addresses of one chain hold.
#[derive(Debug)]
pub struct BalanceWatch<S> {
    source: S,
    db: Db,
    chain: Chain,
    assets: Vec<AssetId>,
    /// How many addresses a tick reads: each costs one light call for each asset, at as many endpoints as must agree.
    most: u32,
    /// Addresses with this number and above have been looked through since the start.
    looked_through: u64,
    retry: Retry,
    /// Nothing is read before.
    rests_until: Timestamp,
}

/// What a tick did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BalancesRead {
    /// Of how many addresses the holdings are on record now.
    pub read: usize,
    /// Of how many they were asked for and not told.
    pub untold: usize,
    /// How many were found that lack a listed asset.
    pub lacking: usize,
}

impl<S: HoldingSource> BalanceWatch<S> {
    /// Of the assets that `network` lists; a tick, of which there is one in a second, reads `most` addresses.
    pub fn new(source: S, db: Db, network: &Network, most: u32) -> Self {
        BalanceWatch {
            source,
            db,
            chain: network.chain,
            assets: network.assets.iter().map(|asset| asset.id).collect(),
            most,
            looked_through: u64::MAX,
            retry: Retry::new(RETRY_FIRST, RETRY_MAX),
            rests_until: Timestamp::EPOCH,
        }
    }

    /// Reads what is due most, if anything is. `random` spreads the next try when this one fails.
    ///
    /// # Errors
    /// When the store cannot be read or written; what was due stays due.
    pub async fn tick(&mut self, now: Timestamp, random: u64) -> Result<BalancesRead, StoreError> {
        let lacking = self.look_through(now).await?;
        let nothing = BalancesRead { lacking, ..BalancesRead::default() };
        let finalized = Cursor::load(&mut self.db.read().await?, self.chain).await?.finalized;
        let Some(at) = finalized.filter(|_| self.rests_until <= now) else { return Ok(nothing) };
        let due = self.due(&at, now).await?;
        if due.is_empty() {
            return Ok(nothing);
        }
        let asked = tokio::time::timeout(READ_TIME_MAX, self.source.holdings(&due, &self.assets, &at)).await;
        let reason = match asked {
            Ok(Ok(holdings)) => {
                let read = self.record(&due, &holdings, &at, now).await?;
                self.retry.reset();
                return Ok(BalancesRead { read, untold: due.len() - read, lacking });
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", READ_TIME_MAX.as_secs()),
        };
        let chain = self.chain;
        warn!(%chain, "what {} addresses on {chain} hold at block {} is not told for now: {reason}", due.len(), at.number);
        self.rests_until = now.plus(self.retry.next_delay(random));
        Ok(BalancesRead { untold: due.len(), ..nothing })
    }

    /// Ticks until it is stopped. What the store refuses is tried again: nothing depends on it.
    pub async fn run(mut self, clock: Clock, random: impl Fn() -> u64 + Send, pulse: Pulse, stop: CancellationToken) {
        let chain = self.chain;
        loop {
            pulse.beat(clock.now());
            let ticked = tokio::select! {
                () = stop.cancelled() => return,
                ticked = self.tick(clock.now(), random()) => ticked,
            };
            if let Err(error) = ticked {
                warn!(%chain, "what addresses on {chain} hold was not recorded: {error}");
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }

    /// The addresses to be read at the final block `at`.
    async fn due(&self, at: &BlockRef, now: Timestamp) -> Result<Vec<Address>, StoreError> {
        let mut reader = self.db.read().await?;
        let mut due = BTreeSet::new();
        // Neither those that were never read nor those that are only old keep the others waiting.
        due.extend(balances::never_read(&mut reader, self.chain, self.most.div_ceil(2)).await?);
        due.extend(balances::moved_by(&mut reader, self.chain, at.number, room(&due, self.most)).await?);
        let again = room(&due, self.most).min(self.most.div_ceil(4));
        let lines = again.saturating_mul(u32::try_from(self.assets.len()).unwrap_or(u32::MAX));
        let oldest = balances::oldest(&mut reader, self.chain, now.minus(AGAIN_AFTER), lines).await?;
        let oldest: BTreeSet<Address> = oldest.into_iter().collect();
        due.extend(oldest.into_iter().take(usize::try_from(again).unwrap_or(usize::MAX)));
        Ok(due.into_iter().collect())
    }

    /// Records what was told, in one transaction, so that what moved between two addresses is never in both; of how many
    /// addresses it was.
    async fn record(
        &self,
        addresses: &[Address],
        holdings: &Holdings,
        at: &BlockRef,
        now: Timestamp,
    ) -> Result<usize, StoreError> {
        let mut tx = self.db.begin().await?;
        // An operator may have taken the block back meanwhile.
        let finalized = Cursor::lock(&mut tx, self.chain).await?.finalized;
        if finalized.is_none_or(|finalized| finalized.number < at.number) || holdings.number < at.number {
            return Ok(0);
        }
        let mut read = 0;
        for (address, amounts) in addresses.iter().zip(&holdings.amounts) {
            let Some(amounts) = amounts.as_ref().filter(|amounts| amounts.len() == self.assets.len()) else {
                balances::postpone(&mut tx, self.chain, address, at.number, now).await?;
                continue;
            };
            let amounts: Vec<_> = self.assets.iter().copied().zip(amounts.iter().copied()).collect();
            let Holdings { number, hash, proof, .. } = *holdings;
            let reading = Reading { address, number, hash, proof, amounts: &amounts };
            balances::set(&mut tx, self.chain, &reading, now).await?;
            read += 1;
        }
        tx.commit().await?;
        Ok(read)
    }

    /// Looks through some addresses, from the one that was added last down: those that lack a listed asset are due; how
    /// many there were.
    async fn look_through(&mut self, now: Timestamp) -> Result<usize, StoreError> {
        if self.looked_through == 0 {
            return Ok(0);
        }
        let below = self.looked_through;
        let page = balances::watched_below(&mut self.db.read().await?, self.chain, below, LOOKED_THROUGH_MAX).await?;
        let Some(last) = page.last().map(|last| last.seq) else {
            self.looked_through = 0;
            return Ok(0);
        };
        let is_lacking = |known: &[AssetId]| self.assets.iter().any(|asset| !known.contains(asset));
        let lacking: Vec<_> = page.iter().filter(|watched| is_lacking(&watched.assets)).collect();
        if !lacking.is_empty() {
            let mut tx = self.db.begin().await?;
            for watched in &lacking {
                // Whoever is added now comes before them.
                balances::first(&mut tx, self.chain, &watched.address, now.minus(AGAIN_AFTER)).await?;
            }
            tx.commit().await?;
        }
        self.looked_through = last;
        Ok(lacking.len())
    }
}

/// How many more may be read.
fn room(due: &BTreeSet<Address>, most: u32) -> u32 {
    most.saturating_sub(u32::try_from(due.len()).unwrap_or(u32::MAX))
}
