//! `landfall webhook listen`: a receiver on this machine that verifies and prints events, for people who build one.
//!
//! It needs neither configuration nor store. Any path is taken. What is refused is printed with the reason.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, bail};
use serde::Serialize;
use serde_json::Value;

use crate::cli::{asked_to_stop, json_line};
use crate::receiver::Receiver;
use crate::time::Clock;

#[derive(clap::Args, Debug)]
pub(in crate::cli) struct Listen {
    /// Where to listen.
    #[arg(long, default_value = "127.0.0.1:9000", value_name = "ADDRESS")]
    listen: SocketAddr,
    /// A file with the signing key (whsec_..), or with the verification key (whpk_..).
    #[arg(long, value_name = "FILE")]
    key_file: PathBuf,
    /// A JSON object per event, with id, type and data.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    id: &'a str,
    r#type: &'a str,
    data: &'a Value,
}

impl Listen {
    pub(super) async fn run(self) -> anyhow::Result<()> {
        let stop = asked_to_stop()?;
        let key = std::fs::read_to_string(&self.key_file);
        let key = key.with_context(|| format!("cannot read {}", self.key_file.display()))?;
        let key = key.trim();
        if key.is_empty() || key.contains(char::is_whitespace) {
            bail!("{}: expected one key, whsec_.. or whpk_..", self.key_file.display());
        }
        let receiver = Receiver::start_at(self.listen, Clock::system()).await;
        let receiver = receiver.with_context(|| format!("cannot listen on {}", self.listen))?;
        receiver.set_key(key);
        complain!("listening on {}", receiver.url());
        let mut stop = std::pin::pin!(stop);
        loop {
            let (events, refused) = tokio::select! {
                taken = receiver.take() => taken,
                () = &mut stop => return Ok(()),
            };
            refused.iter().for_each(|refusal| complain!("refused {refusal}"));
            for event in &events {
                let line = json_line(&Line { id: &event.id, r#type: &event.r#type, data: &event.data })?;
                if self.json {
                    say!("{line}");
                } else {
                    say!("{}  {}  {}", event.r#type, event.id, json_line(&event.data)?);
                }
            }
        }
    }
}
