//! What a person sees: a line for each thing that happens, as it happens, on stdout.

use std::io::Write;

use landfall_chain::BlockRef;
use tokio::time::Instant;

use crate::receiver::Received;

const DIM: &str = "\x1b[2m";
const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const YELLOW: &str = "\x1b[33m";
const OFF: &str = "\x1b[0m";
/// How much of a hash or an id is shown: 8 digits, and the 0x before them.
const DIGITS: usize = 8;

#[derive(Clone, Copy, Debug)]
pub(super) struct Screen {
    started: Instant,
    colours: bool,
}

impl Screen {
    pub(super) fn new(colours: bool) -> Self {
        Screen { started: Instant::now(), colours }
    }

    pub(super) fn mined(self, block: &BlockRef, finalized: &BlockRef) {
        self.line(DIM, "mined", &format!("block {}; {} is final", block.number, finalized.number));
    }

    pub(super) fn sent(self, what: &str, tx: &str) {
        self.line("", "sent", &format!("{what} in {}", short(tx)));
    }

    pub(super) fn reorg(self, text: &str) {
        self.line(BOLD, "reorg", text);
    }

    pub(super) fn event(self, received: &Received) {
        let status = received.field("status");
        let colour = match status {
            "CONFIRMED" => GREEN,
            "FAILED" => RED,
            _ => YELLOW,
        };
        let [amount, symbol, account, tx, id] =
            ["amount", "currency_symbol", "account_id", "transaction_hash", "id"].map(|name| received.field(name));
        let (tx, id) = (short(tx), short(id));
        self.line(colour, status, &format!("{amount} {symbol} to {account} in {tx}, deposit {id}"));
    }

    /// Something to know, without a time.
    pub(super) fn note(self, text: &str) {
        // Nobody may be reading any more; the exit code still counts.
        let _ = writeln!(std::io::stdout(), "{text}");
    }

    fn line(self, colour: &str, what: &str, text: &str) {
        let elapsed = self.started.elapsed();
        let (secs, tenths) = (elapsed.as_secs(), elapsed.subsec_millis() / 100);
        let (on, off) = if self.colours && !colour.is_empty() { (colour, OFF) } else { ("", "") };
        self.note(&format!("{secs:>3}.{tenths} s  {on}{what:<9}  {text}{off}"));
    }
}

/// The beginning of a hash or an id.
pub(super) fn short(text: &str) -> String {
    let chars = DIGITS + if text.starts_with("0x") { 2 } else { 0 };
    format!("{}..", text.get(..chars).unwrap_or(text))
}
