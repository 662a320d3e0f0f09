//! What this process has used: processor time of all its threads, and memory, as Linux tells (`man 5 proc`).

use std::time::Duration;

use anyhow::Context;

/// `USER_HZ`, which is 100 on every Linux that Rust runs on.
const TICK_MS: u64 = 10;

/// User and system time, to 10 ms: measure seconds.
pub(crate) fn cpu() -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The name of the program may hold anything; behind its bracket stand numbers.
    let (_, fields) = stat.rsplit_once(") ").context("/proc/self/stat has another form")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks = |at: usize| fields.get(at).context("/proc/self/stat is short")?.parse::<u64>().context("no number");
    Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * TICK_MS))
}

/// What is in memory now, in bytes.
pub(crate) fn resident() -> anyhow::Result<u64> {
    field("VmRSS:")
}

/// The most that was ever in memory, in bytes.
pub(crate) fn resident_peak() -> anyhow::Result<u64> {
    field("VmHWM:")
}

fn field(name: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).context("/proc/self/status lacks a field")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}
