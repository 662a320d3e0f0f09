//! `landfall backfill` as a person sees it: a bar on a terminal and none in a pipe, Ctrl-C in the middle, and the same
//! command again; and what it says where no node traces. And `landfall run` on a terminal, while it catches up.
//!
//! The terminal is util-linux's `script`, the real program stands in it, and anvil answers through a proxy that can be
//! slow.

use std::io::Write;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use landfall_chain::Address;
use serde_json::Value;

use crate::proxy::Proxy;
use crate::stage::{Engine, Stage, address, binary, pay_inside};

const ALICE: u8 = 0xa1;
const BOB: u8 = 0xb0;
const CHAIN: &str = "ETHEREUM_TESTNET";
const PATIENCE: Duration = Duration::from_secs(60);

/// Bob was paid by a contract, by a token and by himself before he was added; nothing runs. The last final block.
async fn late_bob(stage: &mut Stage) -> u64 {
    stage.set_up("alice", &address(ALICE)).await;
    for wei in [3, 4] {
        pay_inside(stage, &address(BOB), wei).await;
        stage.pay_token(address(BOB), wei * 1_000_000).await;
        stage.pay_native(address(BOB), wei + 10).await;
        stage.node.mine(150).await.unwrap();
    }
    add(stage, "bob", &address(BOB));
    stage.node.block("finalized").await.unwrap().number
}

fn add(stage: &Stage, account: &str, address: &Address) {
    let spec = format!("{CHAIN}={address}");
    stage.ok(&["account", "add", "--account", account, "--type", "SEGREGATED", "--address", &spec]);
}

/// Every deposit's id, status and number of events, for comparing stores.
fn reported(stage: &Stage) -> Vec<(String, String)> {
    let field = |deposit: &Value, name: &str| deposit[name].as_str().unwrap().to_owned();
    let mut all: Vec<_> = stage.deposits().iter().map(|it| (field(it, "id"), field(it, "status"))).collect();
    all.sort();
    all
}

/// The program on a terminal of its own, and what it has shown so far.
struct Terminal {
    child: Child,
    shown: std::path::PathBuf,
}

impl Terminal {
    fn start(stage: &Stage, arguments: &[&str]) -> Self {
        Terminal::after(stage, ":", arguments)
    }

    /// The same, behind a command of the shell.
    fn after(stage: &Stage, before: &str, arguments: &[&str]) -> Self {
        let shown = stage.folder.path().join("terminal");
        let line = format!("stty rows 40 cols 120; {before}; exec {} {}", binary(), arguments.join(" "));
        let output = std::fs::File::create(&shown).unwrap();
        let child = Command::new("script")
            // Where it is not set, no bar is drawn.
            .env("TERM", "xterm")
            .args(["--quiet", "--flush", "--return", "--command", &line, "/dev/null"])
            .current_dir(stage.folder.path())
            .stdin(Stdio::piped())
            .stdout(output)
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Terminal { child, shown }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.shown).unwrap()).into_owned()
    }

    /// Waits until what is shown is as wanted.
    fn until(&self, what: &str, wanted: impl Fn(&str) -> bool) {
        let begun = Instant::now();
        while !wanted(&self.shown()) {
            assert!(begun.elapsed() < PATIENCE, "{what} is not shown: {:?}", self.shown());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The key that stops a program on a terminal.
    fn press_ctrl_c(&mut self) {
        let keys = self.child.stdin.as_mut().unwrap();
        keys.write_all(b"\x03").unwrap();
        keys.flush().unwrap();
    }

    /// Its exit code and all that it has shown.
    fn end(mut self) -> (Option<i32>, String) {
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not end: {:?}", self.shown());
            std::thread::sleep(Duration::from_millis(20));
        };
        (status.code(), self.shown())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_shows_a_bar_with_rate_and_rest_and_a_pipe_shows_none() {
    let mut stage = Stage::new(Engine::Sqlite).await;
    let to = late_bob(&mut stage).await.to_string();
    let arguments = ["backfill", "--chain", CHAIN, "--from", "0", "--to", &to];
    let (code, shown) = Terminal::start(&stage, &arguments).end();
    assert_eq!(code, Some(0), "{shown}");
    let all = to.parse::<u64>().unwrap() + 1;
    assert!(shown.contains(" blocks, ") && shown.contains(&format!("{all}/{all} blocks traced, ")), "{shown}");
    assert!(shown.contains(" blocks/s, ") && shown.contains(" left, "), "{shown}");
    assert!(shown.contains("6 found") && shown.contains('█'), "{shown}");
    assert!(shown.contains(&format!("\n{CHAIN}: 6 deposits recorded, 6 confirmed; the next block is ")), "{shown}");
    assert!(!shown.contains("NOT covered"), "{shown}");

    let piped = stage.run(&arguments);
    let text = stderr(&piped) + &String::from_utf8(piped.stdout).unwrap();
    assert_eq!(piped.status.code(), Some(0));
    assert!(!text.contains('█') && !text.contains('\r') && !text.contains(" left, "), "{text}");
    let (code, shown) = Terminal::start(&stage, &["rescan", "--chain", CHAIN, "--from", "0", "--to", &to]).end();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains('█') && shown.contains(": 0 differences; the next block is "), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_shows_a_bar_for_each_chain_that_catches_up_below_whole_lines_of_the_log() {
    let stage = Stage::new(Engine::Sqlite).await;
    stage.node.mine(1_000).await.unwrap();
    let proxy = Proxy::start(stage.node.url()).await;
    stage.replace_in_config(stage.node.url(), &proxy.url);
    proxy.set_latency(Duration::from_millis(300));
    let mut terminal = Terminal::start(&stage, &["run"]);
    terminal.until("a bar that moves", |shown| has_bar(shown) && moved(shown, &of_chain()));

    stage.ok(&["chain", "halt", CHAIN, "--reason", "lunch"]);
    terminal.until("the halt, and no bar", |shown| shown.contains("is halted") && !has_bar(shown));
    stage.ok(&["chain", "resume", CHAIN, "--reason", "done"]);
    terminal.until("the bar again", has_bar);
    proxy.set_latency(Duration::ZERO);
    let ended = |line: &&str| line.contains("is following");
    terminal.until("the end of the bar", |shown| on_screen(shown).iter().any(ended) && !has_bar(shown));

    // Slower than a busy machine mines.
    proxy.set_latency(Duration::from_secs(2));
    stage.node.mine(1_000).await.unwrap();
    terminal.until("the bar of a chain that fell behind", has_bar);
    terminal.press_ctrl_c();
    let (code, shown) = terminal.end();
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains(" blocks/s, ") && shown.contains("s left"), "{shown}");
    for line in on_screen(&shown) {
        let begins = line.trim_start_matches("^C").starts_with("\u{1b}[2m20");
        assert!(
            line.is_empty() || begins && !line.contains(&of_chain()),
            "a torn line, or a bar that stayed: {line:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_that_goes_away_ends_nobody_who_was_reported_to_stay() {
    let stage = Stage::new(Engine::Sqlite).await;
    stage.node.mine(1_000).await.unwrap();
    let proxy = Proxy::start(stage.node.url()).await;
    stage.replace_in_config(stage.node.url(), &proxy.url);
    proxy.set_latency(Duration::from_millis(300));
    let terminal = Terminal::after(&stage, "trap '' HUP; echo $$ > staying", &["run"]);
    terminal.until("a bar that moves", |shown| has_bar(shown) && moved(shown, &of_chain()));
    let staying = std::fs::read_to_string(stage.folder.path().join("staying")).unwrap();
    let staying = Staying(staying.trim().to_owned());
    drop(terminal);

    // It has lines to write: of a halt, and of a chain that goes on.
    stage.ok(&["chain", "halt", CHAIN, "--reason", "lunch"]);
    let begun = Instant::now();
    while stage.status()["state"] != "halted" {
        assert!(staying.is_there() && begun.elapsed() < PATIENCE, "{}", stage.status());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    stage.ok(&["chain", "resume", CHAIN, "--reason", "done"]);
    proxy.set_latency(Duration::ZERO);
    stage.until_caught_up().await;
    assert!(staying.is_there());
    staying.signal("-TERM");
    let begun = Instant::now();
    while staying.is_there() {
        assert!(begun.elapsed() < PATIENCE, "it does not end when asked to");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A program that outlives its terminal, by its process id.
struct Staying(String);

impl Staying {
    fn is_there(&self) -> bool {
        std::path::Path::new("/proc").join(&self.0).exists()
    }

    fn signal(&self, signal: &str) {
        Command::new("kill").args([signal, &self.0]).stderr(Stdio::null()).status().unwrap();
    }
}

impl Drop for Staying {
    fn drop(&mut self) {
        self.signal("-KILL");
    }
}

/// How a bar of `run` names what it counts.
fn of_chain() -> String {
    format!(" blocks of {CHAIN}, ")
}

/// What stays of each line: what was written behind the last sign that cleared it.
fn on_screen(shown: &str) -> Vec<&str> {
    shown.split('\n').map(|line| line.rsplit("\u{1b}[2K").next().unwrap_or(line).trim()).collect()
}

/// Whether a bar is the last that stands there.
fn has_bar(shown: &str) -> bool {
    on_screen(shown).last().is_some_and(|line| line.contains('█') && line.contains(&of_chain()))
}

#[tokio::test(flavor = "multi_thread")]
async fn ctrl_c_ends_a_backfill_cleanly_and_the_same_command_finishes_as_if_it_had_never_been_pressed() {
    let mut stage = Stage::new(Engine::Sqlite).await;
    let to = late_bob(&mut stage).await.to_string();
    let arguments = ["backfill", "--chain", CHAIN, "--from", "0", "--to", &to];
    let proxy = Proxy::start(stage.node.url()).await;
    let config = stage.replace_in_config(stage.node.url(), &proxy.url);

    // Each request takes a while from now on: there is time to press a key.
    for (pressed_at, lane) in [(" blocks, ", "roots"), (" blocks traced, ", "traces")] {
        proxy.set_latency(Duration::from_millis(150));
        let mut terminal = Terminal::start(&stage, &arguments);
        terminal.until(lane, |shown| shown.contains(pressed_at) && moved(shown, pressed_at));
        terminal.press_ctrl_c();
        let (code, shown) = terminal.end();
        assert_eq!(code, Some(1), "stopped before the end: {shown}");
        assert!(shown.contains("stopped before the end; the same command goes on from there"), "{shown}");
        assert!(shown.contains("NOT covered: value that moved inside of the transactions of blocks "), "{shown}");
    }
    proxy.set_latency(Duration::ZERO);
    let resumed = stage.ok(&[&arguments[..], &["--json"]].concat());
    let resumed: Value = serde_json::from_str(&resumed).unwrap();
    assert_eq!(
        (&resumed["done"], &resumed["traces"]["state"], &resumed["found"]),
        (&true.into(), &"read".into(), &6.into())
    );
    let interrupted = reported(&stage);
    assert!(interrupted.len() == 6 && interrupted.iter().all(|(_, status)| status == "CONFIRMED"), "{interrupted:?}");

    // Another store, and nobody presses a key.
    std::fs::write(stage.folder.path().join("landfall.toml"), config.replace("landfall.db", "straight.db")).unwrap();
    add(&stage, "alice", &address(ALICE));
    add(&stage, "bob", &address(BOB));
    stage.ok(&arguments);
    assert_eq!(reported(&stage), interrupted, "the same ids and statuses");
}

/// Whether the bar of this lane has shown a position above its first, which is 1: block 0 holds nothing.
fn moved(shown: &str, lane: &str) -> bool {
    let position = |before: &str| before.rsplit(' ').next()?.split('/').next()?.parse::<u64>().ok();
    shown.split(lane).filter_map(position).any(|position| position > 1)
}

#[tokio::test(flavor = "multi_thread")]
async fn where_no_node_traces_backfill_and_rescan_say_so_and_do_not_claim_to_be_done() {
    let mut stage = Stage::new(Engine::Sqlite).await;
    let to = late_bob(&mut stage).await.to_string();
    let proxy = Proxy::start(stage.node.url()).await;
    proxy.refuse_traces(true);
    let config = stage.replace_in_config(stage.node.url(), &proxy.url);
    let arguments = ["backfill", "--chain", CHAIN, "--from", "0", "--to", &to];
    let refused = stage.run(&arguments);
    let (errors, text) = (stderr(&refused), String::from_utf8(refused.stdout).unwrap());
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        errors.contains("value that moved inside of transactions is not seen; add an endpoint that traces"),
        "{errors}"
    );
    assert!(text.contains(": 4 deposits recorded, 4 confirmed"), "what the roots prove waits for no trace: {text}");
    let uncovered = format!("NOT covered: value that moved inside of the transactions of blocks 1 to {to}");
    assert!(text.contains(&uncovered), "{text}");
    let rescan = stage.run(&["rescan", "--chain", CHAIN, "--from", "0", "--to", &to]);
    assert_eq!(rescan.status.code(), Some(1));
    assert!(String::from_utf8(rescan.stdout).unwrap().contains(&uncovered));

    // An endpoint that traces: the same command goes on with what is left.
    proxy.refuse_traces(false);
    let done: Value = serde_json::from_str(&stage.ok(&[&arguments[..], &["--json"]].concat())).unwrap();
    assert_eq!((&done["found"], &done["traces"]["state"]), (&6.into(), &"read".into()), "{done}");
    assert_eq!(reported(&stage).len(), 6);

    // Declared: then nothing is left out unsaid either.
    let declared = config.replace("poll_ms = 50", "poll_ms = 50\nnative = \"top_level\"");
    std::fs::write(stage.folder.path().join("landfall.toml"), declared).unwrap();
    let text = stage.ok(&arguments);
    assert!(text.contains("value that moves inside of transactions is not looked for here"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rescan_finds_what_was_planted_in_both_lanes_and_repairs_it() {
    let mut stage = Stage::new(Engine::Sqlite).await;
    stage.set_up("alice", &address(ALICE)).await;
    let service = stage.start();
    stage.until_caught_up().await;
    pay_inside(&stage, &address(ALICE), 7).await;
    stage.pay_token(address(ALICE), 5_000_000).await;
    stage.node.mine(40).await.unwrap();
    stage.until_status("0.000000000000000007", "CONFIRMED").await;
    stage.until_status("5", "CONFIRMED").await;
    stage.until_caught_up().await;
    assert_eq!(service.stop().0, Some(0));
    let to = stage.node.block("finalized").await.unwrap().number.to_string();
    let rescan = |more: &[&str]| stage.run(&[&["rescan", "--chain", CHAIN, "--from", "0", "--to", &to], more].concat());
    assert_eq!(rescan(&[]).status.code(), Some(0));
    let before = reported(&stage);
    stage.sqlite("DELETE FROM inclusions; DELETE FROM deliveries; DELETE FROM events; DELETE FROM deposits;").await;
    let found = rescan(&[]);
    let text = String::from_utf8(found.stdout).unwrap();
    assert_eq!(found.status.code(), Some(1), "{text}");
    assert_eq!(text.matches("is not on record").count(), 2, "{text}");
    assert_eq!(text.matches("is not on record (says one endpoint)").count(), 1, "{text}");
    assert_eq!(rescan(&["--repair"]).status.code(), Some(1), "what was found was found");
    assert_eq!(rescan(&[]).status.code(), Some(0));
    assert_eq!(reported(&stage), before, "the same ids, CONFIRMED again");
}
