//! The socket: HTTP/1.1 in its simplest form, so that everything can be done wrong on purpose.
//!
//! Knows requests with a `Content-Length`, which is what JSON-RPC clients send, and keeps connections open.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

const HEAD_BYTES_MAX: usize = 64 * 1024;
const DRIP_PARTS: usize = 20;
const HUGE_PART: usize = 1024 * 1024;

/// What was asked.
#[derive(Debug)]
pub struct Request {
    pub body: Vec<u8>,
    pub accepts_gzip: bool,
}

/// What is sent, and how.
#[derive(Debug)]
pub struct Reply {
    pub status: &'static str,
    pub retry_after_secs: Option<u64>,
    /// Whether the headers say that the body is compressed. Who makes it compresses it, or lies.
    pub is_gzip: bool,
    pub body: Vec<u8>,
    pub manner: Manner,
    pub latency: Duration,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manner {
    Whole,
    /// Not at all: the connection is reset.
    Reset,
    /// In small parts, taking so long.
    Drip(Duration),
    /// As a result of so many bytes, whose end is not reported beforehand.
    Huge(usize),
}

/// Answers every request on every connection, for ever, each with what `reply` makes of it.
pub async fn accept(listener: TcpListener, reply: impl Fn(Request) -> Reply + Send + Sync + 'static) {
    let (mut connections, reply) = (JoinSet::new(), Arc::new(reply));
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(serve(stream, Arc::clone(&reply)));
        while connections.try_join_next().is_some() {}
    }
}

/// One connection. How it ends is the client's business.
async fn serve(mut stream: TcpStream, reply: Arc<impl Fn(Request) -> Reply>) {
    // Otherwise the body waits for the client to acknowledge the head.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut buffer = Vec::new();
    while let Ok(Some(request)) = read(&mut stream, &mut buffer).await {
        if write(&mut stream, reply(request)).await.is_err() {
            return;
        }
    }
}

/// The next request; `None` when the client has gone.
async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<Request>> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if buffer.len() > HEAD_BYTES_MAX || stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&buffer[..head_end]).to_ascii_lowercase();
    let accepts_gzip = head.lines().any(|line| line.starts_with("accept-encoding:") && line.contains("gzip"));
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    let body_end = head_end + length.unwrap_or_default();
    while buffer.len() < body_end {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let body = buffer[head_end..body_end].to_vec();
    buffer.drain(..body_end);
    Ok(Some(Request { body, accepts_gzip }))
}

async fn write(stream: &mut TcpStream, reply: Reply) -> io::Result<()> {
    // A sleep of no time takes a millisecond.
    if !reply.latency.is_zero() {
        tokio::time::sleep(reply.latency).await;
    }
    let Reply { status, retry_after_secs, is_gzip, body, manner, .. } = reply;
    let length = match manner {
        Manner::Huge(_) => "Transfer-Encoding: chunked".to_owned(),
        Manner::Whole | Manner::Reset | Manner::Drip(_) => format!("Content-Length: {}", body.len()),
    };
    let after = retry_after_secs.map(|secs| format!("Retry-After: {secs}\r\n")).unwrap_or_default();
    let encoding = if is_gzip { "Content-Encoding: gzip\r\n" } else { "" };
    let head = format!("HTTP/1.1 {status}\r\nContent-Type: application/json\r\n{length}\r\n{encoding}{after}\r\n");
    match manner {
        Manner::Whole => stream.write_all(&[head.as_bytes(), &body].concat()).await,
        Manner::Reset => {
            stream.set_zero_linger()?;
            Err(io::ErrorKind::ConnectionReset.into())
        }
        Manner::Drip(total) => {
            stream.write_all(head.as_bytes()).await?;
            for part in body.chunks(body.len().div_ceil(DRIP_PARTS).max(1)) {
                tokio::time::sleep(total / u32::try_from(DRIP_PARTS).expect("a small number")).await;
                stream.write_all(part).await?;
            }
            Ok(())
        }
        Manner::Huge(bytes) => {
            stream.write_all(head.as_bytes()).await?;
            let (begin, end, filler) = (br#"{"jsonrpc":"2.0","id":0,"result":""#, br#""}"#, vec![b'0'; HUGE_PART]);
            chunk(stream, begin).await?;
            let mut left = bytes.saturating_sub(begin.len() + end.len());
            while left > 0 {
                let part = left.min(HUGE_PART);
                chunk(stream, &filler[..part]).await?;
                left -= part;
            }
            chunk(stream, end).await?;
            chunk(stream, b"").await
        }
    }
}

/// One part of a body whose length is not reported; an empty one ends it.
async fn chunk(stream: &mut TcpStream, part: &[u8]) -> io::Result<()> {
    stream.write_all(format!("{:x}\r\n", part.len()).as_bytes()).await?;
    stream.write_all(part).await?;
    stream.write_all(b"\r\n").await
}
