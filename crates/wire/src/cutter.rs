//! Cuts frames out of a byte stream.
//!
//! Bytes are read into a buffer that all connections share, and whole frames are handled where they lie. Only a frame
//! that is not whole yet is copied into its connection's own buffer: an idle connection holds no memory.

use crate::frame::{FRAME_HEADER_BYTES, FrameError, FrameHeader};
use crate::version::WireVersion;

/// What the handler of a frame wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The next frame is wanted at once.
    Continue,
    /// The next one later: keep the rest.
    Pause,
    /// No more: the connection ends.
    Stop,
}

/// What became of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fed {
    /// Every whole frame was handled.
    Drained,
    /// Whole frames may be left.
    Paused,
    /// The handler ended it.
    Stopped,
}

/// Capacity above which an emptied buffer is given back.
const KEPT_BYTES: usize = 256 * 1024;

/// The unfinished end of one connection's input.
#[derive(Debug)]
pub struct Cutter {
    buffer: Vec<u8>,
    version: WireVersion,
}

/// Of a connection on which nothing has been agreed on.
impl Default for Cutter {
    fn default() -> Self {
        Self { buffer: Vec::new(), version: WireVersion::HANDSHAKE }
    }
}

enum Next {
    Whole { len: usize, header: FrameHeader },
    Lacks(usize),
}

fn next(version: WireVersion, bytes: &[u8]) -> Result<Next, FrameError> {
    let Some(header) = FrameHeader::parse_of(version, bytes)? else {
        return Ok(Next::Lacks(FRAME_HEADER_BYTES - bytes.len()));
    };
    let len = FRAME_HEADER_BYTES + header.payload_len;
    Ok(match len.checked_sub(bytes.len()) {
        Some(lacking @ 1..) => Next::Lacks(lacking),
        _ => Next::Whole { len, header },
    })
}

impl Cutter {
    /// All frames that come now are of this version. What follows the handshake's frame must still be held: the handler paused there.
    pub fn speak(&mut self, version: WireVersion) {
        self.version = version;
    }

    /// Whether part of a frame, or after a pause whole frames, are kept.
    #[must_use]
    pub fn holds_bytes(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// What is kept.
    #[must_use]
    pub fn held(&self) -> &[u8] {
        &self.buffer
    }

    /// Keeps bytes without looking at them.
    pub fn hold(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Handles every whole frame of what was kept and then of `bytes`; keeps the rest.
    ///
    /// # Errors
    /// If what comes next is no acceptable frame. The stream is lost: the cutter is of no use any more.
    pub fn feed(&mut self, mut bytes: &[u8], mut frame: impl FnMut(u8, &[u8]) -> Verdict) -> Result<Fed, FrameError> {
        let mut start = 0;
        while start < self.buffer.len() {
            match next(self.version, &self.buffer[start..])? {
                Next::Lacks(lacking) => {
                    let (first, rest) = bytes.split_at(lacking.min(bytes.len()));
                    self.buffer.drain(..start);
                    start = 0;
                    self.buffer.extend_from_slice(first);
                    bytes = rest;
                    if first.len() < lacking {
                        return Ok(Fed::Drained);
                    }
                }
                Next::Whole { len, header } => {
                    let verdict = frame(header.kind, header.check(&self.buffer[start..start + len])?);
                    start += len;
                    match verdict {
                        Verdict::Continue => {}
                        Verdict::Pause => {
                            self.buffer.drain(..start);
                            self.buffer.extend_from_slice(bytes);
                            return Ok(Fed::Paused);
                        }
                        Verdict::Stop => return Ok(Fed::Stopped),
                    }
                }
            }
        }
        self.buffer.clear();
        self.buffer.shrink_to(KEPT_BYTES);
        self.feed_in_place(bytes, frame)
    }

    fn feed_in_place(
        &mut self,
        mut bytes: &[u8],
        mut frame: impl FnMut(u8, &[u8]) -> Verdict,
    ) -> Result<Fed, FrameError> {
        let mut fed = Fed::Drained;
        while !bytes.is_empty() {
            let Next::Whole { len, header } = next(self.version, bytes)? else { break };
            let verdict = frame(header.kind, header.check(&bytes[..len])?);
            bytes = &bytes[len..];
            match verdict {
                Verdict::Continue => {}
                Verdict::Pause => {
                    fed = Fed::Paused;
                    break;
                }
                Verdict::Stop => return Ok(Fed::Stopped),
            }
        }
        self.buffer.extend_from_slice(bytes);
        Ok(fed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::frame::{Kind, begin, end, restamp};

    fn stream(payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        for payload in payloads {
            let start = begin(&mut out, Kind::Read);
            out.extend_from_slice(payload);
            end(&mut out, start, &[]);
        }
        restamp(&mut out, WireVersion::HANDSHAKE);
        out
    }

    proptest! {
        #[test]
        fn any_cut_of_a_stream_gives_its_frames(
            payloads in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..200), 0..20),
            cuts in proptest::collection::vec(1usize..300, 1..50),
            pauses in proptest::collection::vec(any::<bool>(), 1..20),
        ) {
            let bytes = stream(&payloads);
            let (mut cutter, mut got, mut at) = (Cutter::default(), Vec::new(), 0);
            let mut pauses = pauses.iter().cycle();
            for cut in cuts.iter().cycle() {
                let to = (at + cut).min(bytes.len());
                let mut part = &bytes[at..to];
                loop {
                    let fed = cutter.feed(part, |kind, payload| {
                        assert_eq!(kind, Kind::Read as u8);
                        got.push(payload.to_vec());
                        if *pauses.next().unwrap() { Verdict::Pause } else { Verdict::Continue }
                    }).unwrap();
                    part = &[];
                    if fed == Fed::Drained { break }
                }
                at = to;
                if at == bytes.len() { break }
            }
            prop_assert_eq!(got, payloads);
            prop_assert!(!cutter.holds_bytes());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..500), cut in 0usize..500) {
            let mut cutter = Cutter::default();
            let (first, second) = bytes.split_at(cut.min(bytes.len()));
            if cutter.feed(first, |_, _| Verdict::Continue).is_ok() {
                let _ = cutter.feed(second, |_, _| Verdict::Continue);
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_found_wherever_it_is() {
        let bytes = stream(&[b"payload".to_vec()]);
        for bit in 4 * 8..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Cutter::default().feed(&flipped, |_, _| Verdict::Continue).is_err(), "bit {bit}");
        }
    }
}
