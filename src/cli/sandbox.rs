//! `landfall sandbox`.

use std::process::ExitCode;

use clap::Args;

#[derive(Args, Debug)]
pub(super) struct Sandbox {
    /// Do it once without a terminal: end with one line that says whether everything arrived; exit 1 if not.
    #[arg(long)]
    once: bool,
    /// Leave the folder and the node behind.
    #[arg(long)]
    keep: bool,
}

impl Sandbox {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let _ = (self.once, self.keep);
        Ok(ExitCode::SUCCESS)
    }
}
