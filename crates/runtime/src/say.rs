//! Prints to standard output, whose reader may end before we do: `kasha-lab sim | head` is no error.

use std::fmt;
use std::io::{self, ErrorKind, Write};

/// Prints a line. If nobody reads any more, the line is not printed, the program goes on, and its exit code stays
/// correct.
///
/// If standard output fails in another way (a full disk), the process ends: a report that is cut short must not look
/// complete.
pub fn say(line: fmt::Arguments<'_>) {
    let mut out = io::stdout().lock();
    if let Err(error) = writeln!(out, "{line}")
        && error.kind() != ErrorKind::BrokenPipe
    {
        let _ = writeln!(io::stderr(), "kasha: cannot write to standard output: {error}");
        std::process::exit(1);
    }
}

/// [`say()`], as `println!` is used.
#[macro_export]
macro_rules! say {
    ($($line:tt)*) => { $crate::say(format_args!($($line)*)) };
}
