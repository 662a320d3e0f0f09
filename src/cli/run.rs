//! `landfall run`: until SIGTERM or SIGINT.

use std::process::ExitCode;

use clap::Args;

use crate::app::{App, Migrate};
use crate::cli::asked_to_stop;
use crate::config::Config;
use crate::time::Clock;

#[derive(Args, Debug)]
pub(super) struct Run {
    /// Do not bring the schema to this version; refuse to start when it is another.
    #[arg(long)]
    no_migrate: bool,
}

impl Run {
    pub(super) async fn run(self, config: &Config) -> anyhow::Result<ExitCode> {
        let migrate = if self.no_migrate { Migrate::Never } else { Migrate::Always };
        let asked = asked_to_stop()?;
        tokio::pin!(asked);
        let app = tokio::select! {
            app = App::start(config, migrate, Clock::system()) => app?,
            () = &mut asked => return Ok(ExitCode::SUCCESS),
        };
        match app.run_until(asked).await {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(_) => Ok(ExitCode::FAILURE),
        }
    }
}
