//! How `landfall run` shows the progress of chains that catch up: a bar for each on a terminal, below the log;
//! elsewhere nothing.
//!
//! Reads what `status` shows. If the store cannot be read it says nothing: the workers that write to it report that.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget};
use landfall_chain::Chain;

use crate::cli::bar;
use crate::config::Config;
use crate::store::status::{self, ChainStatus};
use crate::store::{Db, StoreError};

/// How often bars are drawn.
const DRAW_EVERY: Duration = Duration::from_millis(250);
/// A chain that is at most so many blocks behind gets no bar: so many are read at once.
const NEAR_BLOCKS_MAX: u64 = 20;

/// The bar of each chain, and the cursor at which it began.
type Bars = BTreeMap<Chain, (ProgressBar, u64)>;

/// Draws on `screen` until it is dropped, and its bars with it.
pub(super) async fn show(config: &Config, db: &Db, screen: &MultiProgress) -> Infallible {
    if screen.is_hidden() {
        return std::future::pending().await;
    }
    let mut bars = Bars::new();
    loop {
        for status in read(db).await.unwrap_or_default() {
            if config.chains.contains_key(&status.chain) {
                draw(&mut bars, screen, &status);
            }
        }
        tokio::time::sleep(DRAW_EVERY).await;
    }
}

async fn read(db: &Db) -> Result<Vec<ChainStatus>, StoreError> {
    status::chains(&mut db.read().await?).await
}

fn draw(bars: &mut Bars, screen: &MultiProgress, status: &ChainStatus) {
    let ChainStatus { chain, latest: Some(latest), cursor: Some(cursor), .. } = *status else { return };
    let left = latest.saturating_sub(cursor);
    if left == 0 || status.state == "halted" {
        // A bar that is dropped is cleared.
        bars.remove(&chain);
    } else if left > NEAR_BLOCKS_MAX || bars.contains_key(&chain) {
        let (bar, from) = bars.entry(chain).or_insert_with(|| (begin(screen, chain), cursor));
        bar.set_length(latest.saturating_sub(*from));
        bar.set_position(cursor.saturating_sub(*from));
    }
}

fn begin(screen: &MultiProgress, chain: Chain) -> ProgressBar {
    let numbers = chain.family().numbers();
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_style(bar::style(numbers));
    screen.add(bar.with_prefix(format!("{numbers} of {chain}")))
}
