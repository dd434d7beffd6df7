//! Whatever comes over a connection (crate `wire`): a decoder refuses bytes, or yields a value whose encoding they are;
//! so no two texts mean the same, and no field that is not looked at travels along.

use arbitrary::{Arbitrary, Result, Unstructured};
use kasha_types::limits::FRAME_BYTES_MAX;
use kasha_wire::frame::{self, Kind};
use kasha_wire::hot::{
    AnswerView, AppendView, Appended, ReadAnswerView, ReadRefused, ReadView, Recorded, Refused, RequestView,
    SyncRequest, Synced, decode_small,
};
use kasha_wire::outcome::Shape;
use kasha_wire::{
    Body, DecodeError, FRAME_HEADER_BYTES, FrameError, FrameHeader, Message, Outcome, Read, Update, Wire,
};

use crate::damage::Burst;
use crate::{Property, draw, golden};

#[path = "../../wire/tests/common/results.rs"]
mod results;

const FRAMES: &str = include_str!("../../wire/golden/frames.hex");
const MESSAGES: &str = include_str!("../../wire/golden/messages.hex");
const OPERATIONS: &str = include_str!("../../wire/golden/operations.hex");
const OUTCOMES: &str = include_str!("../../wire/golden/outcomes.hex");

/// Every frame of the golden file.
pub(crate) fn golden_frames() -> impl Iterator<Item = Vec<u8>> {
    golden::lines(FRAMES).map(|(_, frame)| frame)
}

/// Kind and payload.
type Frame = (u8, Vec<u8>);

/// Cuts a stream into frames, as far as it goes.
fn cut(mut stream: &[u8]) -> (Vec<Frame>, Option<FrameError>) {
    let mut frames = Vec::new();
    loop {
        let header = match FrameHeader::parse(stream) {
            Ok(Some(header)) => header,
            Ok(None) => return (frames, None),
            Err(error) => return (frames, Some(error)),
        };
        assert!(header.payload_len <= FRAME_BYTES_MAX);
        let Some((frame, rest)) = stream.split_at_checked(FRAME_HEADER_BYTES + header.payload_len) else {
            return (frames, None);
        };
        match header.check(frame) {
            Ok(payload) => frames.push((header.kind, payload.to_vec())),
            Err(error) => return (frames, Some(error)),
        }
        stream = rest;
    }
}

fn put_frame(kind: u8, payload: &[u8], out: &mut Vec<u8>) {
    const KIND_AT: usize = 11;
    let start = frame::begin(out, Kind::Message);
    out[start + KIND_AT] = kind;
    out.extend_from_slice(payload);
    frame::end(out, start, &[]);
}

/// Any stream is cut into frames that are exactly its bytes.
#[derive(Debug)]
pub struct Frames(Vec<u8>);

impl<'a> Arbitrary<'a> for Frames {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        draw::rest(u).map(Self)
    }
}

impl Property for Frames {
    const NAME: &'static str = "frames";
    const INPUT_BYTES_MAX: usize = 200;

    fn hold(self) {
        let mut again = Vec::new();
        for (kind, payload) in cut(&self.0).0 {
            put_frame(kind, &payload, &mut again);
        }
        assert!(self.0.starts_with(&again));
    }

    fn seeds() -> Vec<Vec<u8>> {
        golden_frames().collect()
    }
}

/// A stream is cut into its frames wherever it ends, and nothing from a damaged frame on is taken.
#[derive(Debug)]
pub struct Streams {
    frames: Vec<Frame>,
    end: u32,
    burst: Burst,
}

impl<'a> Arbitrary<'a> for Streams {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let (end, burst) = (u.arbitrary()?, u.arbitrary()?);
        let mut frames = Vec::new();
        while !u.is_empty() && frames.len() < 5 {
            frames.push((u.arbitrary()?, draw::bytes(u, 60)?));
        }
        Ok(Self { frames, end, burst })
    }
}

impl Property for Streams {
    const NAME: &'static str = "streams";
    const INPUT_BYTES_MAX: usize = 200;

    fn hold(self) {
        let (mut stream, mut begins) = (Vec::new(), Vec::new());
        for (kind, payload) in &self.frames {
            begins.push(stream.len());
            put_frame(*kind, payload, &mut stream);
        }
        assert_eq!(cut(&stream), (self.frames.clone(), None));
        if stream.is_empty() {
            return;
        }
        let (whole, error) = cut(&stream[..self.end as usize % stream.len()]);
        assert_eq!(error, None);
        assert!(self.frames.starts_with(&whole) && whole.len() < self.frames.len());

        let mut damaged = stream.clone();
        let Some(at) = self.burst.apply(&mut damaged) else { return };
        let hit = begins.partition_point(|&begin| begin <= at) - 1;
        // Another length puts other bytes under the checksum: likely wrong, not certainly.
        let lengths = begins.iter().map(|&begin| begin..begin + 4);
        if lengths.into_iter().all(|length| damaged[length.clone()] == stream[length]) {
            assert_eq!(cut(&damaged).0, self.frames[..hit], "byte {at} was changed");
        }
    }

    fn seeds() -> Vec<Vec<u8>> {
        let frame = |at: u8| [vec![90, 0, 0, 0, at, 0, 0, 0, 0, 1, 0, 0], vec![1, 3, 7, 7, 7, 32, 2, 9, 9]].concat();
        (0..41).map(frame).collect()
    }
}

fn payload_of(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out.split_off(FRAME_HEADER_BYTES)
}

fn encoded(value: &impl Wire) -> Vec<u8> {
    let mut out = Vec::new();
    value.put(&mut out);
    out
}

fn small_again<T: Wire>(payload: &[u8]) -> std::result::Result<Vec<u8>, DecodeError> {
    decode_small::<T>(payload).map(|value| encoded(&value))
}

/// Decodes a payload, and encodes what it said.
fn payload_again(kind: Kind, payload: &[u8]) -> std::result::Result<Vec<u8>, DecodeError> {
    Ok(match kind {
        Kind::Request | Kind::Record | Kind::Cancel => {
            let view = RequestView::decode(payload)?;
            payload_of(|out| RequestView::encode(kind, &view.envelope, view.body, out))
        }
        Kind::Answer => {
            let view = AnswerView::decode(payload)?;
            payload_of(|out| view.encode(&[], out))
        }
        Kind::Read => {
            let view = ReadView::decode(payload)?;
            payload_of(|out| view.encode(out))
        }
        Kind::ReadAnswer => {
            let view = ReadAnswerView::decode(payload)?;
            payload_of(|out| view.encode(&[], out))
        }
        Kind::Append => {
            let view = AppendView::decode(payload)?;
            let mut again = payload_of(|out| view.encode(&[], out));
            again.extend_from_slice(view.bytes);
            again
        }
        Kind::Refuse => small_again::<Refused>(payload)?,
        Kind::Recorded => small_again::<Recorded>(payload)?,
        Kind::Sync => small_again::<SyncRequest>(payload)?,
        Kind::Synced => small_again::<Synced>(payload)?,
        Kind::ReadRefuse => small_again::<ReadRefused>(payload)?,
        Kind::Appended => small_again::<Appended>(payload)?,
        Kind::Message => encoded(&Message::decode(payload)?),
    })
}

/// The payload of a frame of any kind, every message among them.
#[derive(Debug)]
pub struct Payloads {
    kind: Kind,
    payload: Vec<u8>,
}

impl<'a> Arbitrary<'a> for Payloads {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        // Messages are most of the format.
        let kind = Kind::from_number(u.arbitrary()?).unwrap_or(Kind::Message);
        Ok(Self { kind, payload: draw::rest(u)? })
    }
}

impl Property for Payloads {
    const NAME: &'static str = "payloads";
    const INPUT_BYTES_MAX: usize = 300;
    const MEMORY_BYTES_MAX: usize = 2 << 20;

    fn hold(self) {
        if let Ok(again) = payload_again(self.kind, &self.payload) {
            assert_eq!(again, self.payload, "{:?}", self.kind);
        }
    }

    fn seeds() -> Vec<Vec<u8>> {
        let payload = |frame: Vec<u8>| [&[frame[11]], &frame[FRAME_HEADER_BYTES..]].concat();
        let message = |(_, message): (_, Vec<u8>)| [&[Kind::Message as u8], &message[..]].concat();
        golden_frames().map(payload).chain(golden::lines(MESSAGES).map(message)).collect()
    }
}

/// The body of an update (code 0), or the arguments of any operation.
#[derive(Debug)]
pub struct Bodies {
    code: u8,
    bytes: Vec<u8>,
}

impl<'a> Arbitrary<'a> for Bodies {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(Self { code: u.arbitrary()?, bytes: draw::rest(u)? })
    }
}

/// Decodes a body, asks it everything, and encodes what it said.
fn body_again(bytes: &[u8]) -> std::result::Result<Vec<u8>, DecodeError> {
    let body = Body::decode(bytes)?;
    let (mut out, mut footprint, mut keys) = (Vec::new(), Vec::new(), 0);
    body.footprint(&mut footprint);
    body.for_each_key(|key, slot| {
        assert_eq!(slot, kasha_types::slot_of(key));
        keys += 1;
    });
    assert_eq!(footprint.len(), keys + usize::from(body.operation_key.is_some()), "R4.9");
    assert_eq!(footprint.last().copied().filter(|_| body.operation_key.is_some()), body.operation_key_hash());
    let _ = (body.hash(), body.fingerprint(), body.first_slot());
    Body::encode(&body.head, body.operation_key, &body.update, &mut out);
    Ok(out)
}

impl Property for Bodies {
    const NAME: &'static str = "bodies";
    const INPUT_BYTES_MAX: usize = 200;
    const MEMORY_BYTES_MAX: usize = 2 << 20;

    fn hold(self) {
        let Self { code, bytes } = self;
        if let (0, Ok(again)) = (code, body_again(&bytes)) {
            assert_eq!(again, bytes);
        }
        if let Ok(update) = Update::decode(code, &bytes) {
            let mut again = Vec::new();
            update.encode_arguments(&mut again);
            assert_eq!((update.code(), again), (code, bytes.clone()));
        }
        if let Ok(read) = Read::decode(code, &bytes) {
            let (mut again, mut keys) = (Vec::new(), 0);
            read.for_each_key(|_| keys += 1);
            assert!(keys > 0);
            read.encode_arguments(&mut again);
            assert_eq!((read.code(), again), (code, bytes));
        }
    }

    fn seeds() -> Vec<Vec<u8>> {
        let mut seeds = Vec::new();
        for (name, bytes) in golden::lines(OPERATIONS) {
            if name.contains("arguments") {
                seeds.push(bytes);
            } else {
                let body = Body::decode(&bytes).expect("a golden body");
                let mut arguments = vec![body.update.code()];
                body.update.encode_arguments(&mut arguments);
                seeds.extend([[&[0], &bytes[..]].concat(), arguments]);
            }
        }
        seeds
    }
}

/// The result of an operation with this code.
#[derive(Debug)]
pub struct Results {
    code: u8,
    bytes: Vec<u8>,
}

impl<'a> Arbitrary<'a> for Results {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(Self { code: u.arbitrary()?, bytes: draw::rest(u)? })
    }
}

impl Property for Results {
    const NAME: &'static str = "results";
    const INPUT_BYTES_MAX: usize = 100;
    const MEMORY_BYTES_MAX: usize = 2 << 20;

    fn hold(self) {
        let Some(shape) = Shape::of(self.code) else { return };
        if let Ok(outcome) = Outcome::decode(shape, &self.bytes) {
            assert_eq!(results::encoded_outcome(shape, &outcome), self.bytes, "{shape:?}");
        }
    }

    fn seeds() -> Vec<Vec<u8>> {
        let codes: Vec<u8> = (0..=u8::MAX).filter(|&code| Shape::of(code).is_some()).collect();
        let results: Vec<_> = golden::lines(OUTCOMES).map(|(_, result)| result).collect();
        let with = |code: &u8| results.iter().map(|result| [&[*code], &result[..]].concat()).collect::<Vec<_>>();
        codes.iter().flat_map(with).collect()
    }
}
