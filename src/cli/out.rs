//! What a command tells on stdout.

use std::fmt::Arguments;
use std::io::{self, Write};
use std::process::exit;

/// As a shell tells of a program that SIGPIPE ended: whoever read has read enough, as `head` has.
const NOBODY_READS: i32 = 141;
const CANNOT_TELL: i32 = 2;

/// Tells a line, as `println!` does. What cannot be told ends the program: with one error, or where nobody reads any more with
/// none. What was done until then is done.
macro_rules! say {
    ($($words:tt)*) => { $crate::cli::out::write(format_args!("{}\n", format_args!($($words)*))) };
}

pub(super) fn write(text: Arguments<'_>) {
    let Err(error) = io::stdout().write_fmt(text) else { return };
    if error.kind() == io::ErrorKind::BrokenPipe {
        exit(NOBODY_READS);
    }
    eprintln!("landfall: stdout cannot be written: {error}");
    exit(CANNOT_TELL);
}
