//! Looks at what a chain itself says of the assets that are listed: each once after a start, then daily. A worker of its
//! own, so that no tick waits for it.
//!
//! Promises: a tick looks at one asset at most; a look that fails is tried again after ten minutes, says nothing of the
//! asset and takes nothing off the record. What is kept under another program than is listed, or with other decimals, is an
//! incident: what was meant to be credited is not, or its chain stops at it.
//! It changes no credit, moves no cursor and halts nothing: blocks tell decimals and programs themselves, and are refused
//! where these are not the listed ones.

use std::time::Duration;

use landfall_chain::{Asset, AssetFacts, AssetId, AssetSource, Chain, Network};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::incident::{Incident, IncidentKind};
use crate::store::cursors::Cursor;
use crate::store::{Db, StoreError, asset_facts, incidents};
use crate::time::{Clock, Pulse, Timestamp};

/// From one tick to the next: it must not be felt beside what following a chain asks of its endpoints.
const PAUSE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_secs(24 * 60 * 60);
const RETRY_AFTER: Duration = Duration::from_secs(10 * 60);
/// How long a look may take.
const LOOK_TIME_MAX: Duration = Duration::from_secs(10);

/// Looks at the listed assets of one chain.
#[derive(Debug)]
pub struct AssetWatch<S> {
    source: S,
    db: Db,
    chain: Chain,
    listed: Vec<Listed>,
    /// What is not listed any more is off the record.
    is_swept: bool,
}

/// A listed asset, and when it is to be looked at; never again, where the chain has nothing to say of it.
#[derive(Debug)]
struct Listed {
    asset: Asset,
    due: Option<Timestamp>,
}

impl<S: AssetSource> AssetWatch<S> {
    /// All tokens that `network` lists are due.
    pub fn new(source: S, db: Db, network: &Network) -> Self {
        let tokens = network.assets.iter().filter(|asset| asset.id != AssetId::Native).cloned();
        let listed = tokens.map(|asset| Listed { asset, due: Some(Timestamp::EPOCH) }).collect();
        AssetWatch { source, db, chain: network.chain, listed, is_swept: false }
    }

    /// Looks at the asset that is due longest, if any is; the one that was looked at.
    ///
    /// # Errors
    /// When the store cannot be read or written; the asset stays due.
    pub async fn tick(&mut self, now: Timestamp) -> Result<Option<AssetId>, StoreError> {
        self.sweep().await?;
        let due = (0..self.listed.len()).filter_map(|at| Some((self.listed[at].due?, at)));
        let Some((_, at)) = due.filter(|(due, _)| *due <= now).min() else { return Ok(None) };
        let asset = self.listed[at].asset.clone();
        let reached = Cursor::load(&mut self.db.read().await?, self.chain).await?.finalized.map(|block| block.number);
        let looked = tokio::time::timeout(LOOK_TIME_MAX, self.source.facts(&asset.id, reached)).await;
        self.listed[at].due = match looked {
            Ok(Ok(Some(facts))) => {
                self.tell(&asset, &facts, now).await?;
                Some(now.plus(LOOK_EVERY))
            }
            Ok(Ok(None)) => None,
            Ok(Err(error)) => {
                self.fail(&asset, &error.to_string()).await?;
                Some(now.plus(RETRY_AFTER))
            }
            Err(_) => {
                self.fail(&asset, &format!("no answer within {} s", LOOK_TIME_MAX.as_secs())).await?;
                Some(now.plus(RETRY_AFTER))
            }
        };
        Ok(Some(asset.id))
    }

    /// Ticks until it is stopped. What the store refuses is tried again: nothing depends on it.
    pub async fn run(mut self, clock: Clock, pulse: Pulse, stop: CancellationToken) {
        let chain = self.chain;
        loop {
            pulse.beat(clock.now());
            let ticked = tokio::select! {
                () = stop.cancelled() => return,
                ticked = self.tick(clock.now()) => ticked,
            };
            if let Err(error) = ticked {
                warn!(%chain, "what {chain} says of its assets was not recorded: {error}");
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }

    /// Takes off the record what is not listed any more; once.
    async fn sweep(&mut self) -> Result<(), StoreError> {
        if self.is_swept {
            return Ok(());
        }
        let mut tx = self.db.begin().await?;
        for row in asset_facts::all(&mut tx).await? {
            let is_listed = self.listed.iter().any(|listed| listed.asset.id == row.asset);
            if row.chain == self.chain && !is_listed {
                asset_facts::forget(&mut tx, self.chain, &row.asset).await?;
            }
        }
        tx.commit().await?;
        self.is_swept = true;
        Ok(())
    }

    async fn tell(&self, asset: &Asset, facts: &AssetFacts, now: Timestamp) -> Result<(), StoreError> {
        let (chain, differs) = (self.chain, differences(asset, facts).join("; "));
        let mut tx = self.db.begin().await?;
        asset_facts::tell(&mut tx, chain, asset, facts, &differs, now).await?;
        if differs.is_empty() {
            info!(%chain, "{} ({}) on {chain} is kept by {}", asset.symbol, asset.id, facts.program);
        } else {
            let what = self.advice(&asset_facts::all(&mut tx).await?);
            warn!(%chain, "{what}");
            incidents::meet(&mut tx, &Incident::open(chain, IncidentKind::AssetDiffers, what, None, now)).await?;
        }
        tx.commit().await
    }

    async fn fail(&self, asset: &Asset, reason: &str) -> Result<(), StoreError> {
        let chain = self.chain;
        info!(%chain, "{chain} says nothing of {} ({}) for now: {reason}", asset.symbol, asset.id);
        let mut tx = self.db.begin().await?;
        asset_facts::fail(&mut tx, chain, asset, reason).await?;
        tx.commit().await
    }

    /// What to do about all that differs.
    fn advice(&self, rows: &[asset_facts::AssetRow]) -> String {
        let chain = self.chain;
        let differ = rows.iter().filter(|row| row.chain == chain).filter_map(|row| {
            let told = row.told.as_ref().filter(|told| !told.differs.is_empty())?;
            Some(format!("{} ({}): {}", row.symbol, row.asset, told.differs))
        });
        format!(
            "{chain} says otherwise of listed assets than the configuration does: {}; until that is corrected in \
             chains.{chain}.assets, and landfall restarted, they are not credited, or the chain stops where one of them \
             moves; then look for what came meanwhile (`landfall backfill --chain {chain}`), and resolve this incident",
            differ.collect::<Vec<_>>().join(" and ")
        )
    }
}

/// How `asset` is otherwise than it is listed.
fn differences(asset: &Asset, facts: &AssetFacts) -> Vec<String> {
    let mut differences = Vec::new();
    if !facts.is_under_its_program() {
        let listed = facts.listed_programs.join(" or ");
        let what = if facts.terms.is_some() { "" } else { ", which keeps no tokens" };
        differences.push(format!("it is kept by {}{what}, and listed under {listed}", facts.program));
    }
    if let Some(terms) = facts.terms.as_ref().filter(|terms| terms.decimals != asset.decimals) {
        differences.push(format!("it has {} decimals, and is listed with {}", terms.decimals, asset.decimals));
    }
    differences
}
