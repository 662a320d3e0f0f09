//! The `landfall` binary: reads the command line, sets up logging, ends with an exit code that means something.

use std::process::ExitCode;

use landfall::{cli, telemetry};
use nix::sys::resource::{Resource, setrlimit};

#[tokio::main]
async fn main() -> ExitCode {
    // What is in memory may be keys, so the kernel writes no core file. To allow less than was allowed fails nowhere.
    let _ = setrlimit(Resource::RLIMIT_CORE, 0, 0);
    let asked = match cli::parsed() {
        Ok(asked) => asked,
        Err(code) => return code,
    };
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the log filter")]
    let filter = std::env::var("LANDFALL_LOG").ok();
    let bars = telemetry::log_to_stderr(filter.as_deref(), asked.log_filter());
    match asked.run(&bars).await {
        Ok(code) => code,
        Err(error) => {
            cli::complain(&error);
            ExitCode::from(2)
        }
    }
}
