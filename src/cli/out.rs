//! What a command prints, for people and programs: results on stdout, all else on stderr, a line at a time.
//!
//! Promises: no text in a line, whoever wrote it, controls a terminal or forges another line (`printable`).

use std::fmt::Arguments;
use std::io::{self, Write};
use std::process::exit;

use crate::printable::printable;

/// The exit code that a shell reports for a program that SIGPIPE ended: the reader has read enough, as `head` has.
const NOBODY_READS: i32 = 141;
const CANNOT_REPORT: i32 = 2;

/// Prints a line, as `println!` does. If it cannot be written, the program ends with one error, or with none if nobody
/// reads any more. Work that was done before stays done.
macro_rules! say {
    ($($words:tt)*) => { $crate::cli::out::say(&format!($($words)*)) };
}

/// Prints a line on stderr.
macro_rules! complain {
    ($($words:tt)*) => { $crate::cli::out::complain(&format!($($words)*)) };
}

pub(super) fn say(line: &str) {
    write(format_args!("{}\n", printable(line)));
}

pub(super) fn complain(line: &str) {
    eprintln!("{}", printable(line));
}

pub(super) fn write(text: Arguments<'_>) {
    let Err(error) = io::stdout().write_fmt(text) else { return };
    if error.kind() == io::ErrorKind::BrokenPipe {
        exit(NOBODY_READS);
    }
    eprintln!("landfall: stdout cannot be written: {error}");
    exit(CANNOT_REPORT);
}
