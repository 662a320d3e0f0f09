//! What a process has used: processor time of all its threads, and memory, as Linux reports (`man 5 proc`).

use std::time::Duration;

use anyhow::Context;

/// `USER_HZ`, which is 100 on every Linux that Rust runs on.
const TICK_MS: u64 = 10;

/// User and system time of this process, to 10 ms: measure seconds.
pub(crate) fn cpu() -> anyhow::Result<Duration> {
    cpu_of(std::process::id())
}

/// The same of another process.
pub(crate) fn cpu_of(process: u32) -> anyhow::Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    // The name of the program may hold anything; behind its bracket stand numbers.
    let (_, fields) = stat.rsplit_once(") ").context("/proc/PID/stat has another form")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    let ticks = |at: usize| fields.get(at).context("/proc/PID/stat is short")?.parse::<u64>().context("no number");
    Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * TICK_MS))
}

/// What is in memory now, in bytes.
pub(crate) fn resident(process: u32) -> anyhow::Result<u64> {
    field(process, "VmRSS:")
}

/// The most that was ever in memory, in bytes.
pub(crate) fn resident_peak(process: u32) -> anyhow::Result<u64> {
    field(process, "VmHWM:")
}

fn field(process: u32, name: &str) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).context("its status lacks a field")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kib * 1024)
}
