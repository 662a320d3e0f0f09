//! `landfall key create`.

use std::path::Path;

use anyhow::bail;
use clap::Subcommand;

use crate::app;
use crate::cli::load;
use crate::key::{ApiKey, Environment, KEYS_MAX};
use crate::random;
use crate::store::Db;
use crate::store::keys::{self, KeyRow};
use crate::time::Clock;

#[derive(Subcommand, Debug)]
pub(super) enum Key {
    /// Make a key. It is printed alone on stdout, this once; only its hash is kept.
    Create {
        /// What it is for.
        #[arg(long)]
        name: String,
    },
}

impl Key {
    pub(super) async fn run(self, config: &Path) -> anyhow::Result<()> {
        let Key::Create { name } = self;
        let config = load(config)?;
        let db = app::open_once(&config.store, true).await?;
        println!("{}", create(&db, config.environment, &name).await?.reveal());
        Ok(())
    }
}

/// Makes a key and records its hash.
pub(crate) async fn create(db: &Db, environment: Environment, name: &str) -> anyhow::Result<ApiKey> {
    if name.trim().is_empty() {
        bail!("a key needs a name that says what it is for");
    }
    let key = ApiKey::generate(environment, &random::bytes());
    let row = KeyRow { id: key.id().to_owned(), name: name.to_owned(), secret_hash: key.secret_hash().to_vec() };
    let mut tx = db.begin().await?;
    if keys::count(&mut tx).await? >= KEYS_MAX {
        bail!("there are {KEYS_MAX} keys already, the most that are allowed");
    }
    keys::insert(&mut tx, &row, Clock::system().now()).await?;
    tx.commit().await?;
    Ok(key)
}
