//! What a server says in text to whoever speaks no frames, or cannot be talked to: one line.
//!
//! ```text
//! KASHA <wire version> <reason>\r\n
//! ```
//!
//! Whatever program was pointed at the port can print it, and so can a Kasha of another version. No frame begins with
//! these bytes: as a length they are more than a frame may have.

use crate::version::WIRE_VERSION;

/// What the line begins with.
pub const WORD: &str = "KASHA ";

/// Bytes that a receiver keeps of a line.
const LINE_BYTES_MAX: usize = 1024;

/// The line with this reason.
#[must_use]
pub fn line(reason: &str) -> String {
    let reason = reason.replace(['\r', '\n'], " ");
    format!("{WORD}{WIRE_VERSION} {reason}\r\n")
}

/// What the first bytes from a server are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum First {
    /// No such line: frames, or neither.
    Other,
    /// They may become a line.
    Half,
    /// A line, which says this.
    Said(String),
}

/// Judges the first bytes from a server.
#[must_use]
pub fn first(bytes: &[u8]) -> First {
    let word = WORD.as_bytes();
    if !bytes.starts_with(&word[..word.len().min(bytes.len())]) {
        return First::Other;
    }
    let said = |line: &[u8]| First::Said(String::from_utf8_lossy(line).trim_end().to_owned());
    match bytes.iter().position(|&byte| byte == b'\n') {
        Some(end) => said(&bytes[..end]),
        None if bytes.len() >= LINE_BYTES_MAX => said(&bytes[..LINE_BYTES_MAX]),
        None => First::Half,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::FrameHeader;

    #[test]
    fn a_line_is_read_however_it_is_cut_and_is_no_frame() {
        let line = line("too many\r\nconnections");
        assert_eq!(line.matches('\n').count(), 1, "{line:?}");
        for len in 0..line.len() {
            assert_eq!(first(&line.as_bytes()[..len]), First::Half, "{len}");
        }
        assert_eq!(first(line.as_bytes()), First::Said(line.trim_end().to_owned()));
        for len in 4..line.len() {
            assert!(!FrameHeader::may_begin(&line.as_bytes()[..len]), "{len}");
        }
        assert_eq!(first(b"HTTP/1.1 200 OK\r\n"), First::Other);
        assert_eq!(first(b"KASHMIR\n"), First::Other);
        assert!(matches!(first(&[&b"KASHA "[..], &[b'x'; 5000]].concat()), First::Said(said) if said.len() == 1024));
    }
}
