//! Everything that comes over a connection (crate `wire`): a decoder refuses bytes, or yields a value that encodes to
//! the same bytes. So no two encodings mean the same, and no ignored field travels along.

use arbitrary::{Arbitrary, Result, Unstructured};
use kasha_types::TableId;
use kasha_wire::hot::{
    AnswerView, AppendView, Appended, ReadAnswerView, ReadRefused, ReadView, Recorded, Refused, RequestView,
    SyncRequest, Synced, decode_small,
};
use kasha_wire::operation::ParticipantsBuffer;
use kasha_wire::outcome::Shape;
use kasha_wire::{
    AnyMessage, Body, Coordination, DecodeError, FRAME_HEADER_BYTES, Kind, Message, Outcome, Read, Update, Wire,
};

use crate::property::Property;
use crate::{draw, golden};

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
        Kind::Message => encoded(&AnyMessage::decode(payload)?),
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
        let payload = |frame: Vec<u8>| [&[frame[12]], &frame[FRAME_HEADER_BYTES..]].concat();
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
    body.for_each_key(|_, key, slot| {
        assert_eq!(slot, kasha_types::slot_of(key));
        keys += 1;
    });
    assert_eq!(footprint.len(), keys + usize::from(body.operation_key.is_some()), "R4.9");
    assert_eq!(footprint.last().copied().filter(|_| body.operation_key.is_some()), body.operation_key_hash());
    let _ = (body.hash(), body.fingerprint(), body.first_key(), body.operation_name());
    let Some(participants) = body.participants() else {
        Body::encode(&body.head, body.operation_key, &body.update, &mut out);
        say(&body, &mut out);
        return Ok(out);
    };
    let (mut list, mut before) = (ParticipantsBuffer::default(), 0);
    for (shard, parts) in participants.iter() {
        list.push(shard, u16::try_from(parts).expect("it was one"));
        assert_eq!(body.parts_before(shard), Some(before));
        body.footprint_at(shard, &mut footprint);
        assert_eq!(footprint.len(), parts as usize + usize::from(body.operation_key.is_some()), "R4.9");
        before += parts;
    }
    assert_eq!(body.keeper().is_some(), body.operation_key.is_some());
    assert!(body.is_coordinated() || body.operation_key.is_none());
    // As the module's header places them.
    let class = if bytes[32] == 34 { Coordination::Always } else { Coordination::AsPartsNeed };
    let first_part = usize::from(u16::from_le_bytes([bytes[34], bytes[35] & 0x1f]));
    let Update::Transaction { parts } = body.update else { panic!("{:?} has participants", body.update) };
    Body::encode_distributed(&body.head, body.operation_key, class, (&list, parts, first_part), &mut out);
    say(&body, &mut out);
    Ok(out)
}

fn say(body: &Body<'_>, out: &mut Vec<u8>) {
    if let Some(said) = body.said() {
        Body::say(out, said);
    }
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
            read.for_each_key(TableId(1), |_, _| keys += 1);
            assert_eq!(
                keys > 0,
                !matches!(read, Read::Scan { .. } | Read::ScanValues { .. }),
                "a listing names no key"
            );
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
    shape: u8,
    bytes: Vec<u8>,
}

impl<'a> Arbitrary<'a> for Results {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(Self { shape: u.arbitrary()?, bytes: draw::rest(u)? })
    }
}

impl Property for Results {
    const NAME: &'static str = "results";
    const INPUT_BYTES_MAX: usize = 100;
    const MEMORY_BYTES_MAX: usize = 2 << 20;

    fn hold(self) {
        let Some(shape) = Shape::from_number(self.shape) else { return };
        let Ok(outcome) = Outcome::decode(shape, &self.bytes) else { return };
        let again = results::encoded_outcome(shape, &outcome);
        if shape == Shape::Parts {
            // An outcome does not say which operation came to it.
            assert_eq!(Outcome::decode(shape, &again), Ok(outcome));
        } else {
            assert_eq!(again, self.bytes, "{shape:?}");
        }
    }

    fn seeds() -> Vec<Vec<u8>> {
        let shapes: Vec<u8> = (0..=u8::MAX).filter(|&number| Shape::from_number(number).is_some()).collect();
        let results: Vec<_> = golden::lines(OUTCOMES).map(|(_, result)| result).collect();
        let with = |shape: &u8| results.iter().map(|result| [&[*shape], &result[..]].concat()).collect::<Vec<_>>();
        shapes.iter().flat_map(with).collect()
    }
}
