//! `landfall key create`.

use std::path::Path;

use clap::Subcommand;

use crate::app::Migrate;
use crate::cli::load;
use crate::time::Clock;
use crate::{app, random, registry};

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
        let db = app::open_once(&config.store, Migrate::IfEmpty).await?;
        let now = Clock::system().now();
        let key = registry::create_key(&db, config.environment, &name, &random::bytes(), now).await?;
        println!("{}", key.reveal());
        Ok(())
    }
}
