//! Receivers of events: a process of its own. `/ok` answers 200 at once; `/drip` answers 200 and never comes to an end.
//! It ends with its input.

use std::convert::Infallible;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use axum::Router;
use axum::body::Body;
use axum::routing::post;
use futures_util::stream;
use tokio::net::TcpListener;

pub(crate) const SERVE: &str = "serve-hooks";

/// The process, until it is dropped.
pub(crate) struct Hooks {
    base: String,
    child: Child,
}

impl Hooks {
    /// # Errors
    /// The process cannot be started.
    pub(crate) fn start() -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.arg(SERVE).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut base = String::new();
        BufReader::new(child.stdout.take().context("a pipe")?).read_line(&mut base)?;
        Ok(Hooks { base: base.trim().to_owned(), child })
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base)
    }
}

impl Drop for Hooks {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The other process.
pub(crate) async fn serve() -> anyhow::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
    let router = Router::new().route("/ok", post(|_: Body| async {})).route("/drip", post(drip));
    Ok(axum::serve(listener, router).await?)
}

async fn drip() -> Body {
    Body::from_stream(stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        Some((Ok::<_, Infallible>("."), ()))
    }))
}
