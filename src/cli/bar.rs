//! How a long read shows its progress: on a terminal a bar with rate and time left, which stays in its last state;
//! elsewhere a line every few seconds, and no bar.

use std::fmt::Write;
use std::io::IsTerminal;

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use landfall_chain::Searched;
use tracing::{error, warn};

use crate::printable::printable;
use crate::time::Clock;
use crate::watcher::{Pace, search_line};

const BAR: &str = "{wide_bar} {pos}/{len} {prefix}, {rate} {numbers}/s, {eta} left{msg}";

/// What a bar shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Shown {
    /// What is counted, as the bar names it.
    pub(super) what: &'static str,
    /// Blocks or slots.
    pub(super) numbers: &'static str,
    pub(super) next: u64,
    /// Inclusive.
    pub(super) until: u64,
}

/// Where progress is shown: a bar on a terminal, else lines in the log. The bar stays in its last state.
pub(super) struct Screen {
    bar: ProgressBar,
    from: u64,
    pace: Pace,
    shown: Shown,
}

impl Screen {
    pub(super) fn new(shown: Shown, from: u64, clock: &Clock) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let target = if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(None, target);
        bar.set_style(style(shown.numbers));
        let screen = Screen { bar, from, pace: Pace::new(clock.now()), shown };
        screen.begin(shown);
        screen
    }

    /// A bar for this lane. The blocks of an earlier run say nothing about the speed of this one.
    fn begin(&self, shown: Shown) {
        self.bar.set_length((shown.until + 1).saturating_sub(self.from));
        self.bar.set_position(shown.next.saturating_sub(self.from));
        self.bar.reset_eta();
        self.bar.set_prefix(shown.what);
    }

    pub(super) fn show(&mut self, shown: Shown, found: u64, clock: &Clock) {
        if shown.what == self.shown.what {
            self.pace.add(shown.next.saturating_sub(self.shown.next));
        } else {
            self.begin(shown);
            self.pace = Pace::new(clock.now());
        }
        self.shown = shown;
        self.bar.set_position(shown.next.saturating_sub(self.from));
        self.bar.set_message(format!(", {found} found"));
        let left = (shown.until + 1).saturating_sub(shown.next);
        if left > 0
            && let Some(line) = self.pace.line(left, shown.numbers, clock.now())
            && self.bar.is_hidden()
        {
            complain!("{}: {line}, {found} found", shown.what);
        }
    }

    /// The progress of a search of single addresses. Until it ends, the block numbers show none of it.
    pub(super) fn search(&mut self, searched: &Searched, clock: &Clock) {
        self.bar.set_message(format!(", {}", search_line(searched)));
        if let Some(line) = self.pace.search(searched, clock.now())
            && self.bar.is_hidden()
        {
            complain!("signatures: {line}");
        }
    }

    /// Prints results on stdout.
    pub(super) fn print(&self, lines: Vec<String>) {
        if !lines.is_empty() {
            self.bar.suspend(|| lines.iter().for_each(|line| say!("{line}")));
        }
    }

    /// Shows a line that a waiting person must see, whatever the log's level.
    pub(super) fn report(&self, text: &str) {
        if self.bar.is_hidden() { complain!("{text}") } else { self.bar.println(printable(text)) }
    }

    pub(super) fn say(&self, text: &str) {
        if self.bar.is_hidden() { warn!("{text}") } else { self.bar.println(printable(text)) }
    }

    pub(super) fn give_up(&self, text: &str) {
        if self.bar.is_hidden() { error!("{text}") } else { self.bar.println(printable(text)) }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.bar.abandon();
        if !self.bar.is_hidden() {
            eprintln!();
        }
    }
}

/// The style of a bar that counts `numbers`: blocks or slots.
pub(super) fn style(numbers: &'static str) -> ProgressStyle {
    let named = move |_: &ProgressState, text: &mut dyn Write| _ = text.write_str(numbers);
    let style = ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
    style.with_key("rate", rate).with_key("numbers", named).with_key("eta", eta)
}

/// The estimated time left, once there is a rate.
fn eta(state: &ProgressState, text: &mut dyn Write) {
    let known = state.per_sec() > 0.0;
    let _ = if known { write!(text, "{:#}", HumanDuration(state.eta())) } else { text.write_str("?") };
}

/// Blocks in a second: with one decimal where it is slow.
fn rate(state: &ProgressState, text: &mut dyn Write) {
    let rate = state.per_sec();
    let digits = usize::from(rate < 10.0);
    // Writing to a text does not fail.
    let _ = write!(text, "{rate:.digits$}");
}
