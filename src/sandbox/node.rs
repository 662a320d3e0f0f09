//! A private node: its process, its log, and JSON-RPC to it; shared by anvil and surfpool.
//!
//! Promises: it ends with its owner unless it is to be kept. If it ends while it starts, that is reported at once, with
//! the last line of its log. Every call ends within a minute. Retries nothing.

use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use landfall_chain::with_causes;
use serde_json::{Value, json};

/// How long a node may take until it listens, on a busy machine too.
const START_TIME_MAX: Duration = Duration::from_secs(180);
const START_POLL: Duration = Duration::from_millis(20);
/// Longer than the pauses of a machine that writes gigabytes beside it.
const CALL_TIME_MAX: Duration = Duration::from_secs(60);
const WORDS_CHARS_MAX: usize = 200;

/// How a node is started.
#[derive(Debug)]
pub(super) struct Launch<'l> {
    /// Its name for people.
    pub(super) name: &'static str,
    pub(super) command: Command,
    /// A method without parameters, which the node answers once it serves.
    pub(super) probe: &'static str,
    /// Where its output goes; overwritten.
    pub(super) log: &'l Path,
    /// It outlives its owner, even one that is ended at a terminal by Ctrl-C.
    pub(super) keep: bool,
}

/// A running node.
#[derive(Debug)]
pub(super) struct Node {
    name: &'static str,
    process: Process,
    url: String,
    client: reqwest::Client,
}

#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    #[error(
        "there is no node at {}; scripts/sandbox installs {name} and names it in LANDFALL_{}",
        path.display(), name.to_uppercase()
    )]
    Missing { name: &'static str, path: PathBuf },
    #[error("{name} cannot be started: {error}")]
    Start { name: &'static str, error: std::io::Error },
    #[error("{name}'s log {}: {error}", path.display())]
    Log { name: &'static str, path: PathBuf, error: std::io::Error },
    #[error("{name} ended at its start; its last words: {words:?}")]
    Ended { name: &'static str, words: String },
    #[error("{name} did not listen within {} s; its last words: {words:?}", START_TIME_MAX.as_secs())]
    Silent { name: &'static str, words: String },
    #[error("{method} of {name}: {what}")]
    Call { name: &'static str, method: String, what: String },
}

#[derive(Debug)]
struct Process {
    /// Also holds the other end of its standard input.
    child: Child,
    keep: bool,
}

impl Node {
    /// Starts a node and waits until a line of its log names the URL that it listens at.
    ///
    /// # Errors
    /// See [`NodeError`]; what was started is ended.
    pub(super) async fn start(launch: Launch<'_>, url: impl Fn(&str) -> Option<String>) -> Result<Self, NodeError> {
        let Launch { name, mut command, probe, log, keep } = launch;
        let log_error = |error| NodeError::Log { name, path: log.to_owned(), error };
        let output = File::create(log).map_err(log_error)?;
        command.stdout(output.try_clone().map_err(log_error)?).stderr(output);
        if keep {
            // A terminal's Ctrl-C goes to the whole process group, so the node gets a group of its own.
            command.stdin(Stdio::null()).process_group(0);
        } else {
            command.stdin(Stdio::piped());
        }
        let child = command.spawn().map_err(|error| match error.kind() {
            std::io::ErrorKind::NotFound => NodeError::Missing { name, path: command.get_program().into() },
            _ => NodeError::Start { name, error },
        })?;
        let mut process = Process { child, keep: false };
        let listening = tokio::time::timeout(START_TIME_MAX, async {
            loop {
                let text = std::fs::read_to_string(log).map_err(log_error)?;
                // A line that is still being written has no end yet.
                let reported = text.split_inclusive('\n').find_map(|line| url(line.strip_suffix('\n')?));
                if let Some(reported) = reported {
                    return Ok(reported);
                }
                if !matches!(process.child.try_wait(), Ok(None)) {
                    return Err(NodeError::Ended { name, words: last_words(log) });
                }
                tokio::time::sleep(START_POLL).await;
            }
        });
        let url = listening.await.map_err(|_| NodeError::Silent { name, words: last_words(log) })??;
        let client = client().map_err(|error| NodeError::Start { name, error: std::io::Error::other(error) })?;
        let mut node = Node { name, process, url, client };
        node.rpc(probe, json!([])).await?;
        node.process.keep = keep;
        Ok(node)
    }

    /// Where it answers JSON-RPC.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// The id of its process.
    pub(super) fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// One call.
    ///
    /// # Errors
    /// If the node cannot be reached or returns an error, with the node's own message.
    pub(super) async fn rpc(&self, method: &str, params: Value) -> Result<Value, NodeError> {
        let fault = |what: String| self.fault(method, what);
        let request = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let request = self.client.post(&self.url).header("content-type", "application/json").body(request.to_string());
        let answer = request.send().await.map_err(|error| fault(with_causes(&error)))?;
        let text = answer.text().await.map_err(|error| fault(with_causes(&error)))?;
        let mut answer: Value = serde_json::from_str(&text).map_err(|error| fault(format!("{error} in {text:?}")))?;
        match answer.get("error") {
            Some(error) => Err(fault(error.to_string())),
            None => Ok(answer["result"].take()),
        }
    }

    /// A string in an answer, as `parse` reads it.
    ///
    /// # Errors
    /// If it is no string, or not of that form.
    pub(super) fn read<T>(
        &self,
        method: &str,
        value: &Value,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, NodeError> {
        value.as_str().and_then(parse).ok_or_else(|| self.fault(method, format!("unexpected answer {value}")))
    }

    pub(super) fn fault(&self, method: &str, what: String) -> NodeError {
        NodeError::Call { name: self.name, method: method.to_owned(), what }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.keep {
            // Fails only if it has ended already; waiting then removes the process.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A client with a limit on each wait, for this machine only.
pub(super) fn client() -> reqwest::Result<reqwest::Client> {
    // Installed once per process; a second time changes nothing.
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().timeout(CALL_TIME_MAX).build()
}

/// The last line of a log, quoted because the log may be gone when somebody wants to read it.
fn last_words(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default().chars().take(WORDS_CHARS_MAX).collect()
}
