//! Standard error, whose reader may be gone.

use std::io::{self, Write};

/// Standard error, whose reader may end before we do. A line that cannot be written is lost, and nothing else happens.
#[derive(Clone, Copy)]
pub(crate) struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Prints to standard error. Nobody may be reading it.
pub fn complain(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
