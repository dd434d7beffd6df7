//! The cutter of connections ([`Cutter`]): a stream is cut into frames that are exactly its bytes, however it arrives,
//! and wherever its reader pauses.

use arbitrary::{Arbitrary, Result, Unstructured};
use kasha_types::limits::FRAME_BYTES_MAX;
use kasha_wire::cutter::{Cutter, Fed, Verdict};
use kasha_wire::frame::{self, Kind};
use kasha_wire::{FRAME_HEADER_BYTES, FrameError, FrameHeader, WIRE_VERSION};

use crate::damage::Burst;
use crate::draw;
use crate::property::Property;
use crate::wire::golden_frames;

/// Kind and payload.
type Frame = (u8, Vec<u8>);

/// The frames of a stream, and what ended it before its last byte.
type Cut = (Vec<Frame>, Option<FrameError>);

/// How a stream arrives: in parts of so many bytes and one, over and over; and after which of eight frames its reader
/// pauses.
#[derive(Clone, Copy, Debug, Arbitrary)]
pub(crate) struct Arrival {
    pub(crate) parts: [u8; 3],
    pub(crate) pauses: u8,
}

impl Arrival {
    fn cut(self, stream: &[u8]) -> Cut {
        cut(stream, self.parts.map(|part| usize::from(part) + 1), self.pauses)
    }
}

fn cut_at_once(stream: &[u8]) -> Cut {
    cut(stream, [stream.len()], 0)
}

/// Cuts a stream into frames, as far as it goes.
fn cut<const N: usize>(mut stream: &[u8], parts: [usize; N], mut pauses: u8) -> Cut {
    let (mut cutter, mut frames) = (cutter(), Vec::new());
    let mut left = stream.len();
    for part in parts.into_iter().cycle() {
        let (mut now, later) = stream.split_at(part.min(stream.len()));
        loop {
            let fed = cutter.feed(now, |kind, payload| {
                frames.push((kind, payload.to_vec()));
                left -= FRAME_HEADER_BYTES + payload.len();
                pauses = pauses.rotate_left(1);
                if pauses & 1 == 1 { Verdict::Pause } else { Verdict::Continue }
            });
            match fed {
                Ok(Fed::Paused) => now = &[],
                Ok(Fed::Drained) => break,
                Ok(Fed::Stopped) => unreachable!("nobody stopped it"),
                Err(error) => return (frames, Some(error)),
            }
        }
        assert_eq!(cutter.holds_bytes(), left > later.len(), "what is no whole frame yet, and nothing else");
        stream = later;
        if stream.is_empty() {
            break;
        }
    }
    (frames, None)
}

/// The frames that are handled if the reader wants no more after so many of them.
fn until_stopped(stream: &[u8], wanted: usize) -> usize {
    let mut handled = 0;
    let fed = cutter().feed(stream, |_, _| {
        handled += 1;
        if handled == wanted { Verdict::Stop } else { Verdict::Continue }
    });
    assert_eq!(fed == Ok(Fed::Stopped), handled == wanted);
    handled
}

fn put_frame(kind: u8, payload: &[u8], out: &mut Vec<u8>) {
    const KIND_AT: usize = 12;
    let start = frame::begin(out, Kind::Message);
    out[start + KIND_AT] = kind;
    out.extend_from_slice(payload);
    frame::end(out, start, &[]);
}

/// Of a connection on which our version was agreed on.
fn cutter() -> Cutter {
    let mut cutter = Cutter::default();
    cutter.speak(WIRE_VERSION);
    cutter
}

/// Any stream is cut into frames that are exactly its bytes.
#[derive(Debug)]
pub struct Frames {
    arrival: Arrival,
    stream: Vec<u8>,
}

impl<'a> Arbitrary<'a> for Frames {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(Self { arrival: u.arbitrary()?, stream: draw::rest(u)? })
    }
}

impl Property for Frames {
    const NAME: &'static str = "frames";
    const INPUT_BYTES_MAX: usize = 200;
    const MEMORY_BYTES_MAX: usize = 2 << 20;

    fn hold(self) {
        let Self { arrival, stream } = self;
        let (frames, error) = cut_at_once(&stream);
        let mut again = Vec::new();
        for (kind, payload) in &frames {
            put_frame(*kind, payload, &mut again);
        }
        assert!(stream.starts_with(&again));
        let left = &stream[again.len()..];
        match FrameHeader::parse_of(WIRE_VERSION, left) {
            Ok(None) => assert_eq!(error, None),
            Ok(Some(header)) => {
                assert!(header.payload_len <= FRAME_BYTES_MAX);
                let is_whole = left.len() >= FRAME_HEADER_BYTES + header.payload_len;
                assert_eq!(error, is_whole.then_some(FrameError::Checksum));
            }
            Err(why) => assert_eq!(error, Some(why)),
        }
        for wanted in 1..=frames.len() {
            assert_eq!(until_stopped(&stream, wanted), wanted);
        }
        assert_eq!(arrival.cut(&stream), (frames, error));
    }

    fn seeds() -> Vec<Vec<u8>> {
        golden_frames().map(|frame| [&[3, 40, 15, 1], &frame[..]].concat()).collect()
    }
}

/// A stream is cut into its frames wherever it ends, and nothing from a damaged frame on is taken.
#[derive(Debug)]
pub struct Streams {
    arrival: Arrival,
    frames: Vec<Frame>,
    end: u32,
    burst: Burst,
}

impl<'a> Arbitrary<'a> for Streams {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let (arrival, end, burst) = (u.arbitrary()?, u.arbitrary()?, u.arbitrary()?);
        let mut frames = Vec::new();
        while !u.is_empty() && frames.len() < 5 {
            frames.push((u.arbitrary()?, draw::bytes(u, 60)?));
        }
        Ok(Self { arrival, frames, end, burst })
    }
}

impl Property for Streams {
    const NAME: &'static str = "streams";
    const INPUT_BYTES_MAX: usize = 200;
    const MEMORY_BYTES_MAX: usize = 2 << 20;

    fn hold(self) {
        let Self { arrival, frames, .. } = &self;
        let (mut stream, mut begins) = (Vec::new(), Vec::new());
        for (kind, payload) in frames {
            begins.push(stream.len());
            put_frame(*kind, payload, &mut stream);
        }
        assert_eq!(cut_at_once(&stream), (frames.clone(), None));
        assert_eq!(arrival.cut(&stream), (frames.clone(), None));
        if stream.is_empty() {
            return;
        }
        let (whole, error) = arrival.cut(&stream[..self.end as usize % stream.len()]);
        assert_eq!(error, None);
        assert!(frames.starts_with(&whole) && whole.len() < frames.len());

        let mut damaged = stream.clone();
        let Some(at) = self.burst.apply(&mut damaged) else { return };
        let hit = begins.partition_point(|&begin| begin <= at) - 1;
        // Another length puts other bytes under the checksum: likely wrong, not certainly.
        let lengths = begins.iter().map(|&begin| begin..begin + 4);
        if lengths.into_iter().all(|length| damaged[length.clone()] == stream[length]) {
            assert_eq!(cut_at_once(&damaged).0, frames[..hit], "byte {at} was changed");
            assert_eq!(arrival.cut(&damaged).0, frames[..hit], "byte {at} was changed");
        }
    }

    fn seeds() -> Vec<Vec<u8>> {
        let frame = |at: u8| {
            let arrival = vec![at, 16, 70, at];
            [arrival, vec![90, 0, 0, 0, at, 0, 0, 0, 0, 1, 0, 0], vec![1, 3, 7, 7, 7, 32, 2, 9, 9]].concat()
        };
        (0..41).map(frame).collect()
    }
}
