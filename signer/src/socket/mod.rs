//! The signer in a process of its own, behind a Unix socket: [`Server`] on its side, [`Remote`] on the side of who sends.
//!
//! A call is one connection: a request, an answer, each a length of 4 bytes (big endian) and so much JSON. Promises: only
//! processes of the listed users are answered; no frame is larger than [`FRAME_BYTES_MAX`], and no call takes longer than
//! [`CALL_TIME_MAX`]. A call that is cut off is made again: the journal gives the same bytes.

mod client;
mod server;

pub use client::Remote;
pub use server::{ServeError, Server};

use std::io;
use std::time::Duration;

use landfall_chain::{Address, JournalPage, KeyPath, Refusal, SignRequest, Signed};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

/// The largest frame. A call has at most 64 requests, each of a few kilobytes, or 1,000 entries of the journal, each of some
/// hundred bytes.
pub const FRAME_BYTES_MAX: usize = 4 << 20;
/// How long one call may take on either side.
pub const CALL_TIME_MAX: Duration = Duration::from_secs(30);

/// What is asked.
#[derive(Serialize, Deserialize)]
enum Call {
    /// Of [`landfall_chain::Signer::addresses`].
    Addresses(Vec<KeyPath>),
    /// Of [`landfall_chain::Signer::sign`].
    Sign(Vec<SignRequest>),
    /// Of [`landfall_chain::Signer::journal`].
    Journal { chain_ref: String, behind: u64 },
}

/// An answer, with the id of the signer that gives it.
#[derive(Serialize, Deserialize)]
struct Answer {
    signer: String,
    answer: Answered,
}

#[derive(Serialize, Deserialize)]
enum Answered {
    Addresses(Vec<Address>),
    Signed(Vec<Result<Signed, Refusal>>),
    Journal(JournalPage),
    /// Nothing was signed, and the call may be made again.
    Unavailable(String),
}

async fn write_frame(stream: &mut UnixStream, frame: &impl Serialize) -> io::Result<()> {
    let bytes = serde_json::to_vec(frame)?;
    let len = u32::try_from(bytes.len()).ok().filter(|_| bytes.len() <= FRAME_BYTES_MAX);
    let len = len.ok_or_else(|| io::Error::other("it is larger than a frame may be"))?;
    stream.write_all(&len.to_be_bytes()).await?;
    stream.write_all(&bytes).await?;
    stream.flush().await
}

async fn read_frame<T: DeserializeOwned>(stream: &mut UnixStream) -> io::Result<T> {
    let len = usize::try_from(stream.read_u32().await?).unwrap_or(usize::MAX);
    if len > FRAME_BYTES_MAX {
        return Err(io::Error::other(format!("a frame of {len} bytes; at most {FRAME_BYTES_MAX} are read")));
    }
    let mut bytes = vec![0; len];
    stream.read_exact(&mut bytes).await?;
    Ok(serde_json::from_slice(&bytes)?)
}
