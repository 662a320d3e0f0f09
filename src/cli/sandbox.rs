//! `landfall sandbox`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::asked_to_stop;
use crate::sandbox;
use crate::time::Clock;

#[derive(Args, Debug)]
pub(super) struct Sandbox {
    /// Do it once without a terminal: end with one line that says whether everything arrived; exit 1 if not.
    #[arg(long)]
    once: bool,
    /// Leave the folder and the nodes behind.
    #[arg(long)]
    keep: bool,
}

impl Sandbox {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let Sandbox { once, keep } = self;
        #[expect(clippy::disallowed_methods, reason = "scripts/sandbox sets which nodes are started, and no file does")]
        let [anvil, surfpool] = ["LANDFALL_ANVIL", "LANDFALL_SURFPOOL"].map(std::env::var_os);
        let [anvil, surfpool] = [anvil, surfpool].map(|path| path.filter(|path| !path.is_empty()).map(PathBuf::from));
        let anvil = anvil.unwrap_or_else(|| "anvil".into());
        let mut hangup = signal(SignalKind::hangup())?;
        let stop = asked_to_stop()?;
        let asked = async move {
            tokio::select! {
                () = stop => {}
                // If the terminal is closed, the node would otherwise stay behind.
                _ = hangup.recv() => {}
            }
        };
        match sandbox::run(&sandbox::Options { anvil, surfpool, once, keep }, Clock::system(), asked).await {
            Ok(true) => Ok(ExitCode::SUCCESS),
            Ok(false) => Ok(ExitCode::FAILURE),
            Err(error) => {
                complain!("sandbox: {error:#}");
                Ok(ExitCode::FAILURE)
            }
        }
    }
}
