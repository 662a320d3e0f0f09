//! `landfall run`: until SIGTERM or SIGINT.

use std::process::ExitCode;

use clap::Args;
use indicatif::MultiProgress;

use crate::app::{App, Migrate};
use crate::cli::{asked_to_stop, catch_up};
use crate::config::Config;
use crate::time::Clock;

#[derive(Args, Debug)]
pub(super) struct Run {
    /// Do not bring the schema to this version; refuse to start when it is another.
    #[arg(long)]
    no_migrate: bool,
}

impl Run {
    pub(super) async fn run(self, config: &Config, bars: &MultiProgress) -> anyhow::Result<ExitCode> {
        let migrate = if self.no_migrate { Migrate::Never } else { Migrate::Always };
        let asked = asked_to_stop()?;
        tokio::pin!(asked);
        let app = tokio::select! {
            app = App::start(config, migrate, Clock::system()) => app?,
            () = &mut asked => return Ok(ExitCode::SUCCESS),
        };
        let db = app.db().clone();
        tokio::select! {
            ended = app.run_until(asked) => Ok(if ended.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
            never = catch_up::show(config, &db, bars) => match never {},
        }
    }
}
