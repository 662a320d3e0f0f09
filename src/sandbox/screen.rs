//! What a person sees: a line for each thing that happens, as it happens, on stdout.

use std::io::Write;

use landfall_chain::BlockRef;
use tokio::time::Instant;

use crate::event::DEPOSIT_EVENT;
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

    /// What is asked for, or shown of a proof.
    pub(super) fn transfer(self, what: &str, text: &str) {
        self.line(BOLD, what, text);
    }

    /// An event; `name` is who has the account.
    pub(super) fn event(self, received: &Received, name: &str) {
        let status = stage_or_status(received);
        let colour = match status {
            "CONFIRMED" => GREEN,
            "FAILED" | "DROPPED" => RED,
            _ => YELLOW,
        };
        let [amount, symbol, tx, id] =
            ["amount", "currency_symbol", "transaction_hash", "id"].map(|field| received.field(field));
        let (tx, id) = (short(tx), short(id));
        let what = match received.r#type.as_str() {
            DEPOSIT_EVENT => {
                let from = if received.field("source_type") == "ACCOUNT" { " from an ACCOUNT" } else { "" };
                format!("{amount} {symbol} to {name}{from} in {tx}, deposit {id}")
            }
            _ => format!("{amount} {symbol} of {name}, transfer {id}"),
        };
        self.line(colour, status, &what);
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

/// Of a transfer's reconciliation its stage, else the status.
pub(super) fn stage_or_status(received: &Received) -> &str {
    match received.field("stage") {
        "" => received.field("status"),
        stage => stage,
    }
}

/// The beginning of a hash or an id.
pub(super) fn short(text: &str) -> String {
    let chars = DIGITS + if text.starts_with("0x") { 2 } else { 0 };
    format!("{}..", text.get(..chars).unwrap_or(text))
}
