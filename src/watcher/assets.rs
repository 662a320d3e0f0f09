//! Asks what a chain itself reports of the listed assets: each once after a start, then daily. It is a worker of its
//! own, so that no tick waits for it.
//!
//! Promises:
//! - A tick asks for one asset at most, once a block is final.
//! - A check that fails or finds a difference is repeated after ten minutes. One that fails says nothing about the
//!   asset and removes nothing from the record.
//! - An asset of which nothing was ever reported is asked for every 15 s first, and is held during all of these checks.
//! - It is an incident if an asset has no contract, is kept under another program, or has other decimals than it is
//!   listed with.
//! - An asset is held if it has no contract or other decimals, or was never asked for. Nothing of a held asset is
//!   CONFIRMED, whoever settles: the lists of `deposits` leave it out, and `settle` checks again under the lock of the
//!   cursor.
//! - It is released once it is listed as the chain has it, even at the start. Then its PENDING deposits get the listed
//!   decimals.
//! - What other processes recorded with other decimals than the chain reported is not CONFIRMED. It gets the listed
//!   ones after the next check.
//!
//! It moves no cursor and halts nothing. On Solana, blocks also report decimals and programs; they are refused where
//! these differ from the listed ones.
//! these are not the listed ones.

use std::time::Duration;

use landfall_chain::{Asset, AssetFacts, AssetId, AssetSource, Chain, Network, Terms};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::incident::{Incident, IncidentKind};
use crate::store::asset_facts::{self, AssetRow};
use crate::store::cursors::Cursor;
use crate::store::{Db, StoreError, Tx, deposits, incidents};
use crate::time::{Clock, Pulse, Timestamp};

/// The pause between two ticks: it must not disturb what following a chain asks of its endpoints.
const PAUSE: Duration = Duration::from_secs(5);
/// The same while an asset was not asked for since the start: deposits may wait for it.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LOOK_EVERY: Duration = Duration::from_secs(24 * 60 * 60);
const RETRY_AFTER: Duration = Duration::from_secs(10 * 60);
/// How often, and how many times, the chain is asked for an asset of which it never reported anything. After that the
/// asset is released.
const FIRST_RETRY_AFTER: Duration = Duration::from_secs(15);
const FIRST_LOOKS: u32 = 20;
/// How long a check may take: longer than one endpoint that does not answer, shorter than a worker's pulse may stay
/// away.
const LOOK_TIME_MAX: Duration = Duration::from_secs(25);

#[derive(Debug)]
pub struct AssetWatch<S> {
    source: S,
    db: Db,
    chain: Chain,
    listed: Vec<Listed>,
    /// What is listed is on record, and what is not listed any more is removed from it.
    is_prepared: bool,
}

/// A listed asset, and when it is due; `None` if the chain reports nothing about such assets.
#[derive(Debug)]
struct Listed {
    asset: Asset,
    due: Option<Timestamp>,
    /// How many checks failed in a row.
    failed: u32,
}

impl<S: AssetSource> AssetWatch<S> {
    /// All tokens that `network` lists are due from the start.
    pub fn new(source: S, db: Db, network: &Network) -> Self {
        let tokens = network.assets.iter().filter(|asset| asset.id != AssetId::Native).cloned();
        let listed = tokens.map(|asset| Listed { asset, due: Some(Timestamp::EPOCH), failed: 0 }).collect();
        AssetWatch { source, db, chain: network.chain, listed, is_prepared: false }
    }

    /// Asks for the asset that has been due longest; returns it, or `None` if none is due or no block is final.
    ///
    /// # Errors
    /// When the store cannot be read or written; the asset stays due.
    pub async fn tick(&mut self, now: Timestamp) -> Result<Option<AssetId>, StoreError> {
        self.prepare().await?;
        let due = (0..self.listed.len()).filter_map(|at| Some((self.listed[at].due?, at)));
        let Some((_, at)) = due.filter(|(due, _)| *due <= now).min() else { return Ok(None) };
        // A node that has not reached that block may have no contracts yet.
        let finalized = Cursor::load(&mut self.db.read().await?, self.chain).await?.finalized;
        let Some(reached) = finalized.map(|block| block.number) else { return Ok(None) };
        self.look(at, reached, now).await.map(Some)
    }

    /// Asks for a listed asset; only endpoints that have reached block `reached` count.
    async fn look(&mut self, at: usize, reached: u64, now: Timestamp) -> Result<AssetId, StoreError> {
        let asset = self.listed[at].asset.clone();
        let looked = tokio::time::timeout(LOOK_TIME_MAX, self.source.facts(&asset.id, reached)).await;
        let reason = match looked {
            Ok(Ok(facts)) => {
                let pause = match facts {
                    Some(facts) => Some(if self.report(&asset, facts, now).await? { RETRY_AFTER } else { LOOK_EVERY }),
                    None => None,
                };
                self.listed[at].due = pause.map(|pause| now.plus(pause));
                self.listed[at].failed = 0;
                return Ok(asset.id);
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", LOOK_TIME_MAX.as_secs()),
        };
        let failed = self.listed[at].failed.saturating_add(1);
        let is_given_up = failed >= FIRST_LOOKS;
        let is_known = self.fail(&asset, &reason, is_given_up).await?;
        let pause = if is_given_up || is_known { RETRY_AFTER } else { FIRST_RETRY_AFTER };
        (self.listed[at].failed, self.listed[at].due) = (failed, Some(now.plus(pause)));
        Ok(asset.id)
    }

    /// Ticks until it is stopped. A store error is only logged, and the tick repeated: nothing depends on it.
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
            let is_first = self.listed.iter().any(|listed| listed.due == Some(Timestamp::EPOCH));
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(if is_first { FIRST_PAUSE } else { PAUSE }) => {}
            }
        }
    }

    /// Records what is listed and removes what is not listed any more; once, before anything is CONFIRMED.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub async fn prepare(&mut self) -> Result<(), StoreError> {
        if self.is_prepared {
            return Ok(());
        }
        let (chain, mut tx) = (self.chain, self.db.begin().await?);
        Cursor::lock(&mut tx, chain).await?;
        for row in asset_facts::all(&mut tx).await?.into_iter().filter(|row| row.chain == chain) {
            match self.listed.iter().find(|listed| listed.asset.id == row.asset) {
                Some(listed) => asset_facts::hold(&mut tx, chain, &row.asset, is_held(&listed.asset, &row)).await?,
                // Without it its deposits would halt the chain, which no longer sees them.
                None if row.is_held
                    && row.reported.is_some()
                    && deposits::is_any_pending(&mut tx, chain, &row.asset).await? => {}
                None => asset_facts::forget(&mut tx, chain, &row.asset).await?,
            }
        }
        self.expect_all(&mut tx).await?;
        for Listed { asset, .. } in &self.listed {
            deposits::set_decimals(&mut tx, chain, &asset.id, asset.decimals).await?;
        }
        tx.commit().await?;
        self.is_prepared = true;
        Ok(())
    }

    /// For a process that only reads past blocks: asks once for each asset of which nothing was ever reported, and
    /// changes nothing else.
    ///
    /// # Errors
    /// When the store cannot be read or written.
    pub async fn ask_unknown(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let mut tx = self.db.begin().await?;
        let reached = Cursor::lock(&mut tx, self.chain).await?.finalized.map_or(0, |block| block.number);
        self.expect_all(&mut tx).await?;
        let rows = asset_facts::all(&mut tx).await?;
        tx.commit().await?;
        for at in 0..self.listed.len() {
            let is_unknown =
                |row: &AssetRow| row.asset == self.listed[at].asset.id && row.is_held && row.reported.is_none();
            if rows.iter().any(|row| row.chain == self.chain && is_unknown(row)) {
                self.look(at, reached, now).await?;
            }
        }
        Ok(())
    }

    async fn expect_all(&self, tx: &mut Tx) -> Result<(), StoreError> {
        for Listed { asset, .. } in &self.listed {
            asset_facts::expect(tx, self.chain, asset).await?;
        }
        Ok(())
    }

    /// Records what was reported; returns whether it differs from the listed asset.
    async fn report(&self, asset: &Asset, mut facts: AssetFacts, now: Timestamp) -> Result<bool, StoreError> {
        let (chain, mut tx) = (self.chain, self.db.begin().await?);
        // Whoever confirms holds this lock too.
        Cursor::lock(&mut tx, chain).await?;
        if facts.terms.is_none() {
            // The program that keeps it reports no more now: what it reported before still counts.
            let known = asset_facts::of(&mut tx, chain, &asset.id).await?.and_then(|row| row.reported);
            facts.terms = known.filter(|known| known.program == facts.program).and_then(|known| known.terms);
        }
        let differs = differences(asset, &facts).join("; ");
        let is_held = facts.program.is_none() || has_other_decimals(asset, facts.terms.as_ref());
        asset_facts::report(&mut tx, chain, asset, &facts, (&differs, is_held), now).await?;
        if !is_held {
            // Another process may have recorded deposits with the decimals that it lists.
            deposits::set_decimals(&mut tx, chain, &asset.id, asset.decimals).await?;
        }
        if differs.is_empty() {
            let program = facts.program.as_deref().unwrap_or_default();
            info!(%chain, "{} ({}) on {chain} is kept by {program}", asset.symbol, asset.id);
        } else {
            let what = self.advice(&asset_facts::all(&mut tx).await?);
            warn!(%chain, "{what}");
            incidents::meet(&mut tx, &Incident::open(chain, IncidentKind::AssetMismatch, what, None, now)).await?;
        }
        tx.commit().await?;
        Ok(!differs.is_empty())
    }

    /// Records a failed check; returns whether something was reported of the asset before.
    async fn fail(&self, asset: &Asset, reason: &str, is_given_up: bool) -> Result<bool, StoreError> {
        let chain = self.chain;
        info!(%chain, "{chain} says nothing of {} ({}) for now: {reason}", asset.symbol, asset.id);
        let mut tx = self.db.begin().await?;
        asset_facts::fail(&mut tx, chain, asset, (reason, is_given_up)).await?;
        let is_known = asset_facts::of(&mut tx, chain, &asset.id).await?.is_some_and(|row| row.reported.is_some());
        tx.commit().await?;
        Ok(is_known)
    }

    /// What to do about all that differs.
    fn advice(&self, rows: &[AssetRow]) -> String {
        let chain = self.chain;
        let is_listed =
            |row: &&AssetRow| row.chain == chain && self.listed.iter().any(|listed| listed.asset.id == row.asset);
        let differ = rows.iter().filter(is_listed).filter_map(|row| {
            let reported = row.reported.as_ref().filter(|reported| !reported.differs.is_empty())?;
            Some(format!("{} ({}): {}", row.symbol, row.asset, reported.differs))
        });
        format!(
            "{chain} says otherwise of listed assets than the configuration does: {}; until that is corrected in \
             chains.{chain}.assets, and landfall restarted, their deposits stay PENDING, or are not seen, or the chain stops \
             where one of them moves; deposits that were CONFIRMED before were announced as they were listed. Then look for \
             what came meanwhile (`landfall backfill --chain {chain}`), and resolve this incident",
            differ.collect::<Vec<_>>().join(" and ")
        )
    }
}

/// Whether nothing of the asset may be CONFIRMED, by what is on record: it was not asked for often enough, or it has no
/// contract or other decimals.
fn is_held(asset: &Asset, row: &AssetRow) -> bool {
    match &row.reported {
        None => row.is_held,
        Some(reported) => reported.program.is_none() || has_other_decimals(asset, reported.terms.as_ref()),
    }
}

fn has_other_decimals(asset: &Asset, terms: Option<&Terms>) -> bool {
    terms.is_some_and(|terms| terms.decimals != asset.decimals)
}

/// How the reported `facts` differ from the listed `asset`.
fn differences(asset: &Asset, facts: &AssetFacts) -> Vec<String> {
    let mut differences = Vec::new();
    match &facts.program {
        None => differences.push("there is no contract at its address".to_owned()),
        Some(program) if !facts.is_under_its_program() => {
            let listed = facts.listed_programs.join(" or ");
            let what = if facts.terms.is_some() { "" } else { ", which keeps no tokens" };
            differences.push(format!("it is kept by {program}{what}, and listed under {listed}"));
        }
        Some(_) => {}
    }
    if let Some(terms) = facts.terms.as_ref().filter(|terms| terms.decimals != asset.decimals) {
        differences.push(format!("it has {} decimals, and is listed with {}", terms.decimals, asset.decimals));
    }
    differences
}
