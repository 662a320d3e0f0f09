//! The `landfall` binary: reads the command line, sets up logging, ends with an exit code that means something.

use std::process::ExitCode;

use clap::Parser;
use landfall::cli::Cli;
use landfall::telemetry;

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the log filter")]
    let filter = std::env::var("LANDFALL_LOG").unwrap_or_else(|_| cli.log_filter().to_owned());
    telemetry::log_to_stderr(&filter);
    match cli.run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("landfall: {error:#}");
            ExitCode::from(2)
        }
    }
}
