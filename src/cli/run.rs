//! `landfall run`: until SIGTERM or SIGINT.

use std::process::ExitCode;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use crate::app::App;
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
        let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let asked = async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
            info!("asked to stop");
        };
        tokio::pin!(asked);
        let app = tokio::select! {
            app = App::start(config, !self.no_migrate, Clock::system()) => app?,
            () = &mut asked => return Ok(ExitCode::SUCCESS),
        };
        match app.run_until(asked).await {
            Ok(()) => Ok(ExitCode::SUCCESS),
            Err(_) => Ok(ExitCode::FAILURE),
        }
    }
}
