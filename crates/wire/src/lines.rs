//! Cuts lines of text out of a byte stream: the framing of listeners that people and simple programs talk to.
//!
//! A line ends with a line feed, which may have a carriage return before it; neither is part of the line. All other bytes may
//! be in it. A line that is longer than [`LINE_BYTES_MAX`] ends the stream: what follows might be its rest, and is not looked at.
//! An idle connection holds no memory, and no byte is searched twice.

use crate::cutter::{Fed, Verdict};

/// Bytes of a line: a table, a key and a value of some length. Larger values are for clients of Kasha's own protocol.
pub const LINE_BYTES_MAX: usize = 64 * 1024;

/// Capacity above which an emptied buffer is given back.
const KEPT_BYTES: usize = 16 * 1024;

/// What was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut<'a> {
    /// A whole line, without its end.
    Line(&'a [u8]),
    /// A line is longer than may be. Nothing more is cut.
    TooLong,
}

/// The unfinished end of one connection's input.
#[derive(Debug, Default)]
pub struct LineCutter {
    buffer: Vec<u8>,
    /// After a pause: the buffer may have whole lines.
    is_unsearched: bool,
    /// A line was too long.
    is_over: bool,
}

/// The first line of `bytes`, and what follows; the line has its carriage return.
fn first_line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&byte| byte == b'\n')?;
    Some((&bytes[..end], &bytes[end + 1..]))
}

impl LineCutter {
    /// Whether part of a line, or after a pause whole lines, are kept.
    #[must_use]
    pub fn holds_bytes(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Handles every whole line of what was kept and then of `bytes`; keeps the rest.
    pub fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Cut<'_>) -> Verdict) -> Fed {
        if self.is_over {
            return Fed::Drained;
        }
        let mut kept = std::mem::take(&mut self.buffer);
        let mut start = 0;
        while self.is_unsearched
            && let Some((line, _)) = first_line(&kept[start..])
        {
            start += line.len() + 1;
            match self.hand_out(line, &mut each) {
                Verdict::Continue => {}
                Verdict::Pause => {
                    kept.drain(..start);
                    return self.pause(kept, bytes);
                }
                Verdict::Stop => return Fed::Stopped,
            }
        }
        kept.drain(..start);
        self.is_unsearched = false;
        while let Some((line, rest)) = first_line(bytes) {
            let verdict = if kept.is_empty() {
                self.hand_out(line, &mut each)
            } else {
                kept.extend_from_slice(&line[..line.len().min(LINE_BYTES_MAX + 2)]);
                let verdict = self.hand_out(&kept, &mut each);
                kept.clear();
                kept.shrink_to(KEPT_BYTES);
                verdict
            };
            bytes = rest;
            match verdict {
                Verdict::Continue => {}
                Verdict::Pause => return self.pause(kept, bytes),
                Verdict::Stop => return Fed::Stopped,
            }
        }
        // One byte more may be a carriage return.
        if kept.len() + bytes.len() > LINE_BYTES_MAX + 1 {
            self.is_over = true;
            each(Cut::TooLong);
            return Fed::Stopped;
        }
        kept.extend_from_slice(bytes);
        self.buffer = kept;
        Fed::Drained
    }

    fn hand_out(&mut self, line: &[u8], each: &mut impl FnMut(Cut<'_>) -> Verdict) -> Verdict {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > LINE_BYTES_MAX {
            self.is_over = true;
            each(Cut::TooLong);
            return Verdict::Stop;
        }
        each(Cut::Line(line))
    }

    fn pause(&mut self, mut kept: Vec<u8>, rest: &[u8]) -> Fed {
        kept.extend_from_slice(rest);
        (self.buffer, self.is_unsearched) = (kept, true);
        Fed::Paused
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Feeds `parts`, pausing as `pauses` say; returns the lines, and whether one was too long.
    fn cut(parts: &[&[u8]], pauses: &[bool]) -> (Vec<Vec<u8>>, bool) {
        let (mut cutter, mut lines, mut is_over) = (LineCutter::default(), Vec::new(), false);
        let mut pauses = pauses.iter().cycle();
        for part in parts {
            let mut part = *part;
            loop {
                let fed = cutter.feed(part, |cut| {
                    match cut {
                        Cut::Line(line) => lines.push(line.to_vec()),
                        Cut::TooLong => is_over = true,
                    }
                    if *pauses.next().expect("a circle") { Verdict::Pause } else { Verdict::Continue }
                });
                part = &[];
                if fed != Fed::Paused {
                    break;
                }
            }
        }
        assert!(cutter.buffer.len() <= LINE_BYTES_MAX + 1);
        (lines, is_over)
    }

    proptest! {
        #[test]
        fn any_cut_of_a_stream_gives_its_lines(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..600),
            cuts in proptest::collection::vec(1usize..40, 1..50),
            pauses in proptest::collection::vec(any::<bool>(), 1..20),
        ) {
            let mut expected: Vec<Vec<u8>> = bytes
                .split(|&byte| byte == b'\n')
                .map(|line| line.strip_suffix(b"\r").unwrap_or(line).to_vec())
                .collect();
            // What has no end is no line yet.
            expected.pop();
            let (mut parts, mut rest) = (Vec::new(), &bytes[..]);
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break }
                let (part, others) = rest.split_at((*cut).min(rest.len()));
                parts.push(part);
                rest = others;
            }
            prop_assert_eq!(cut(&parts, &pauses), (expected, false));
        }
    }

    #[test]
    fn the_longest_line_passes_and_a_longer_one_ends_the_stream() {
        for end in [&b"\n"[..], b"\r\n"] {
            let longest = [&vec![b'x'; LINE_BYTES_MAX], end].concat();
            let longer = [&b"x"[..], &longest].concat();
            for parts in [1, 7, 4096, LINE_BYTES_MAX, 2 * LINE_BYTES_MAX] {
                let pass: Vec<&[u8]> = longest.chunks(parts).chain([&b"next\n"[..]]).collect();
                let (lines, is_over) = cut(&pass, &[false]);
                assert_eq!((lines.len(), lines[0].len(), is_over), (2, LINE_BYTES_MAX, false));
                let refused: Vec<&[u8]> =
                    [&b"first\n"[..]].into_iter().chain(longer.chunks(parts)).chain([&b"no\n"[..]]).collect();
                assert_eq!(cut(&refused, &[true, false]), (vec![b"first".to_vec()], true), "{parts}");
            }
        }
        let endless = vec![0xff; 3 * LINE_BYTES_MAX];
        assert_eq!(cut(&[&endless, b"\nGET"], &[false]), (vec![], true));
    }

    #[test]
    fn an_idle_connection_holds_nothing() {
        let mut cutter = LineCutter::default();
        assert_eq!(
            cutter.feed(&[&vec![b'x'; LINE_BYTES_MAX][..], b"\n"].concat(), |_| Verdict::Continue),
            Fed::Drained
        );
        assert!(!cutter.holds_bytes() && cutter.buffer.capacity() == 0);
        assert_eq!(cutter.feed(b"half", |_| panic!("no line")), Fed::Drained);
        assert!(cutter.holds_bytes());
    }
}
