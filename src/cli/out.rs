//! What a command says, to people and to programs: results on stdout, all else on stderr, a line at a time.
//!
//! Promises: whatever stands in a line, somebody else's text too, does nothing to a terminal and forges no other line (`printable`).

use std::fmt::Arguments;
use std::io::{self, Write};
use std::process::exit;

use crate::printable::printable;

/// As a shell tells of a program that SIGPIPE ended: whoever read has read enough, as `head` has.
const NOBODY_READS: i32 = 141;
const CANNOT_REPORT: i32 = 2;

/// Tells a line, as `println!` does. What cannot be written ends the program: with one error, or where nobody reads any more with
/// none. What was done until then is done.
macro_rules! say {
    ($($words:tt)*) => { $crate::cli::out::say(&format!($($words)*)) };
}

/// Tells a line on stderr.
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
