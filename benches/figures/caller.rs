//! A client of the API that does little beside: what is measured is the service.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// A connection that is kept.
pub(crate) struct Caller {
    stream: TcpStream,
    key: String,
}

impl Caller {
    pub(crate) async fn new(service: SocketAddr, key: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(service).await?;
        stream.set_nodelay(true)?;
        Ok(Caller { stream, key: key.to_owned() })
    }

    /// Asks again and again, and reports the times that 50 and 99 of 100 answers did not exceed.
    pub(crate) async fn measure(&mut self, what: &str, paths: impl Iterator<Item = String>) -> anyhow::Result<()> {
        let mut times = Vec::new();
        for path in paths {
            let begun = Instant::now();
            self.get(&path).await?;
            times.push(begun.elapsed());
        }
        let (p50, p99) = quantiles(times);
        println!("  {what}: p50 {p50:.2} ms, p99 {p99:.2} ms (goal < 10)");
        Ok(())
    }

    /// The body of an answer, which must be a 200.
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Vec<u8>> {
        let (status, body) = self.ask("GET", path, "").await?;
        anyhow::ensure!(status == 200, "{path}: {status} {}", String::from_utf8_lossy(&body));
        Ok(body)
    }

    /// Status and body of the answer to a POST.
    pub(crate) async fn post(&mut self, path: &str, asked: &Value) -> anyhow::Result<(u16, Value)> {
        let (status, body) = self.ask("POST", path, &asked.to_string()).await?;
        Ok((status, serde_json::from_slice(&body)?))
    }

    async fn ask(&mut self, method: &str, path: &str, asked: &str) -> anyhow::Result<(u16, Vec<u8>)> {
        let content = match asked.len() {
            0 => String::new(),
            length => format!("Content-Type: application/json\r\nContent-Length: {length}\r\n"),
        };
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {}\r\n{content}\r\n", self.key);
        self.stream.write_all((head + asked).as_bytes()).await?;
        let mut read = Vec::with_capacity(32 * 1024);
        loop {
            anyhow::ensure!(self.stream.read_buf(&mut read).await? > 0, "the connection ended");
            let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
            let head = std::str::from_utf8(&read[..end])?;
            let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("a status")?;
            let length =
                head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
            let whole = end + 4 + length.map_or(0, |length: usize| length);
            if read.len() >= whole {
                return Ok((status, read.split_off(end + 4)));
            }
        }
    }
}

/// What 50 and 99 of 100 did not exceed, in milliseconds.
pub(crate) fn quantiles(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort_unstable();
    let at = |share: usize| {
        times
            .get((times.len() * share).div_ceil(100).saturating_sub(1))
            .map_or(0.0, |time| time.as_secs_f64() * 1_000.0)
    };
    (at(50), at(99))
}
