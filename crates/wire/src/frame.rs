//! Frames: how messages are cut out of a byte stream.
//!
//! ```text
//! offset  bytes  field
//!      0      4  length of the payload
//!      4      4  CRC32C of bytes 12..16 and the payload
//!      8      2  magic 0x4B53 ("SK" in little endian)
//!     10      1  wire version
//!     11      1  reserved, 0
//!     12      1  kind
//!     13      3  reserved, 0
//!     16      …  payload
//! ```
//!
//! The checksum is not about magic and version, which a receiver knows before: so a frame can be made before it is known on which
//! connection, and so in which version, it goes ([`restamp`]).

use kasha_types::limits::FRAME_BYTES_MAX;

use crate::version::{WIRE_VERSION, WireVersion};

/// Bytes of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 16;

const MAGIC: u16 = 0x4B53;
const VERSION_AT: usize = 10;
const KIND_AT: usize = 12;
/// Where what the checksum is about begins.
const CHECKED_FROM: usize = 12;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $value:literal),* $(,)?) => {
        /// What a frame carries. Numbers are never reused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Kind { $($(#[$doc])* $name = $value),* }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The kind with this number.
            #[must_use]
            pub fn from_number(number: u8) -> Option<Self> {
                match number {
                    $($value => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// Client to primary: an update ([`crate::RequestView`]).
    Request = 1,
    /// Client to witness: the same update ([`crate::RequestView`]).
    Record = 2,
    /// Primary to client: the result of an update ([`crate::AnswerView`]).
    Answer = 3,
    /// Primary to client: this delivery ran nothing ([`crate::Refused`]).
    Refuse = 4,
    /// Witness to client ([`crate::Recorded`]).
    Recorded = 5,
    /// Client to primary: is it synced? ([`crate::SyncRequest`]).
    Sync = 6,
    /// Primary to client ([`crate::Synced`]).
    Synced = 7,
    /// Client to primary: a read ([`crate::ReadView`]).
    Read = 8,
    /// Primary to client ([`crate::ReadAnswerView`]).
    ReadAnswer = 9,
    /// Primary to client: this read ran nothing ([`crate::ReadRefused`]).
    ReadRefuse = 10,
    /// Client to primary: if this update has not run, it never will ([`crate::RequestView`] with the update's own
    /// envelope and body; R2.2). Answered like a request; the outcome is `Cancelled` or what it was.
    Cancel = 11,
    /// Primary to replica: log bytes ([`crate::AppendView`]).
    Append = 16,
    /// Replica to primary ([`crate::Appended`]).
    Appended = 17,
    /// Everything else ([`crate::Message`]).
    Message = 32,
}

/// A frame's header, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// Bytes of the payload.
    pub payload_len: usize,
    /// What it carries; unknown kinds are refused when the frame is whole.
    pub kind: u8,
    crc: u32,
}

/// Why bytes are no frame. All but `Version` mean that the stream is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// No frame begins here: another magic, or something in the reserved field.
    Magic,
    /// A frame of another version than the one that was agreed on.
    Version {
        /// The frame's.
        found: WireVersion,
        /// What was agreed on.
        wanted: WireVersion,
    },
    /// Longer than [`FRAME_BYTES_MAX`].
    TooLarge(u32),
    /// The checksum is wrong: bits were flipped on the way.
    Checksum,
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Magic => write!(f, "not a Kasha frame"),
            Self::Version { found, wanted } => write!(f, "wire version {found}, where {wanted} is spoken"),
            Self::TooLarge(len) => write!(f, "a frame of {len} bytes, over the limit of {FRAME_BYTES_MAX}"),
            Self::Checksum => write!(f, "a frame with a wrong checksum"),
        }
    }
}

impl std::error::Error for FrameError {}

impl FrameHeader {
    /// Whether a header may begin so. Text is none after four bytes already: who sends less than a header, and waits for
    /// an answer, need not be left waiting.
    #[must_use]
    pub fn may_begin(bytes: &[u8]) -> bool {
        bytes.first_chunk().is_none_or(|&len| u32::from_le_bytes(len) as usize <= FRAME_BYTES_MAX)
    }

    /// Reads the header of a frame of this crate's version, or of the handshake's. `None`: not yet 16 bytes.
    ///
    /// # Errors
    /// If no acceptable frame begins here.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, FrameError> {
        let greets = bytes.get(VERSION_AT) == Some(&WireVersion::HANDSHAKE.0);
        Self::parse_of(if greets { WireVersion::HANDSHAKE } else { WIRE_VERSION }, bytes)
    }

    /// Reads the header of a frame of this version. `None`: not yet 16 bytes.
    ///
    /// # Errors
    /// If no acceptable frame begins here.
    #[inline]
    pub fn parse_of(version: WireVersion, bytes: &[u8]) -> Result<Option<Self>, FrameError> {
        let Some(header) = bytes.first_chunk::<FRAME_HEADER_BYTES>() else { return Ok(None) };
        let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if u16::from_le_bytes([header[8], header[9]]) != MAGIC {
            return Err(FrameError::Magic);
        }
        if header[VERSION_AT] != version.0 {
            return Err(FrameError::Version { found: WireVersion(header[VERSION_AT]), wanted: version });
        }
        if header[11] != 0 || word(12) >> 8 != 0 {
            return Err(FrameError::Magic);
        }
        let len = word(0);
        if len as usize > FRAME_BYTES_MAX {
            return Err(FrameError::TooLarge(len));
        }
        Ok(Some(Self { payload_len: len as usize, kind: header[KIND_AT], crc: word(4) }))
    }

    /// Checks a whole frame (header and payload) and returns its payload.
    ///
    /// # Errors
    /// If its checksum is wrong.
    ///
    /// # Panics
    /// If `frame` is not as long as this header says.
    pub fn check<'a>(&self, frame: &'a [u8]) -> Result<&'a [u8], FrameError> {
        assert_eq!(frame.len(), FRAME_HEADER_BYTES + self.payload_len, "one whole frame");
        if kasha_types::crc32c(&frame[CHECKED_FROM..]) == self.crc {
            Ok(&frame[FRAME_HEADER_BYTES..])
        } else {
            Err(FrameError::Checksum)
        }
    }
}

/// The kind in a whole frame's header, and its payload, unchecked: for a frame that has not left its process.
///
/// # Panics
/// If `frame` is shorter than a header.
#[must_use]
pub fn split(frame: &[u8]) -> (u8, &[u8]) {
    let (header, payload) = frame.split_at(FRAME_HEADER_BYTES);
    (header[KIND_AT], payload)
}

/// Makes whole frames, of which the last may have a tail that lies elsewhere, frames of this version. Their layouts are the same in
/// both versions, or the sender has seen to that.
pub fn restamp(frames: &mut [u8], version: WireVersion) {
    let mut at = 0;
    while at < frames.len() {
        let len = u32::from_le_bytes([frames[at], frames[at + 1], frames[at + 2], frames[at + 3]]);
        frames[at + VERSION_AT] = version.0;
        at += FRAME_HEADER_BYTES + len as usize;
    }
}

/// Begins a frame at the end of `out`; returns where it began, for [`end`].
pub fn begin(out: &mut Vec<u8>, kind: Kind) -> usize {
    let start = out.len();
    let mut header = [0; FRAME_HEADER_BYTES];
    header[8..10].copy_from_slice(&MAGIC.to_le_bytes());
    (header[VERSION_AT], header[KIND_AT]) = (WIRE_VERSION.0, kind as u8);
    out.extend_from_slice(&header);
    start
}

/// Ends the frame that began at `start`. `tail`: further payload that is sent from elsewhere.
///
/// # Panics
/// If the payload exceeds [`FRAME_BYTES_MAX`]: every sender checks its limits first.
pub fn end(out: &mut [u8], start: usize, tail: &[u8]) {
    let payload = out.len() - start - FRAME_HEADER_BYTES + tail.len();
    assert!(payload <= FRAME_BYTES_MAX, "a frame of {payload} bytes");
    let frame = &mut out[start..];
    let mut crc = kasha_types::crc32c(&frame[CHECKED_FROM..]);
    if !tail.is_empty() {
        crc = kasha_types::crc32c_append(crc, tail);
    }
    frame[..4].copy_from_slice(&u32::try_from(payload).expect("below the limit").to_le_bytes());
    frame[4..8].copy_from_slice(&crc.to_le_bytes());
}
