//! Bytes that nobody meant to send: every decoder rejects them, or yields a value whose encoding they are.

mod common;

use std::net::SocketAddr;

use common::operations::{Operation, OwnedBody, READS, SHAPES, UPDATES, any_outcome, encoded_outcome};
use common::types::every_type;
use common::{Sample, any, check, encoded};
use kasha_types::*;
use kasha_wire::codec::Bytes;
use kasha_wire::frame::Kind;
use kasha_wire::hot::*;
use kasha_wire::message::{AttachAt, GcEntry, Heartbeat, Holding, LeaseInfo, Report, TableCommand, TableOutcome};
use kasha_wire::status::{CoreStatus, ReplicaStatus, WitnessStatus};
use kasha_wire::*;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// A change of some bytes.
#[derive(Clone, Debug)]
enum Damage {
    Flip(Index, u8),
    Set(Index, u8),
    /// Four bytes: a count or length that was made up.
    Word(Index, u32),
    Cut(Index),
    Extend(Vec<u8>),
    Remove(Index),
    Insert(Index, u8),
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any_index;
    let word = prop_oneof![Just(u32::MAX), Just(1 << 31), Just(0), 0..2000_u32, proptest::prelude::any::<u32>()];
    prop_oneof![
        3 => (at(), 0..8_u8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        2 => (at(), any()).prop_map(|(at, byte)| Damage::Set(at, byte)),
        2 => (at(), word).prop_map(|(at, word)| Damage::Word(at, word)),
        2 => at().prop_map(Damage::Cut),
        1 => vec(proptest::prelude::any::<u8>(), 1..9).prop_map(Damage::Extend),
        1 => at().prop_map(Damage::Remove),
        1 => (at(), any()).prop_map(|(at, byte)| Damage::Insert(at, byte)),
    ]
}

fn any_index() -> impl Strategy<Value = Index> {
    proptest::prelude::any::<Index>()
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let len = bytes.len();
        match self {
            Self::Extend(more) => bytes.extend(more),
            Self::Insert(at, byte) => bytes.insert(at.index(len + 1), *byte),
            _ if len == 0 => {}
            Self::Flip(at, bit) => bytes[at.index(len)] ^= 1 << bit,
            Self::Set(at, byte) => bytes[at.index(len)] = *byte,
            Self::Word(at, word) => {
                let at = at.index(len);
                let end = len.min(at + 4);
                bytes[at..end].copy_from_slice(&word.to_le_bytes()[..end - at]);
            }
            Self::Cut(at) => bytes.truncate(at.index(len)),
            Self::Remove(at) => drop(bytes.remove(at.index(len))),
        }
    }
}

/// `again` decodes and encodes what it decoded.
fn face(name: &str, valid: BoxedStrategy<Vec<u8>>, again: impl Fn(&[u8]) -> Result<Vec<u8>, DecodeError>) {
    check(64, valid.clone(), |bytes| {
        prop_assert_eq!(again(&bytes), Ok(bytes), "{}", name);
        Ok(())
    });
    check(256, (valid, vec(damage(), 1..4)), |(mut bytes, changes)| {
        changes.iter().for_each(|change| change.apply(&mut bytes));
        if let Ok(encoded) = again(&bytes) {
            prop_assert_eq!(encoded, bytes, "{}", name);
        }
        Ok(())
    });
    check(128, vec(prop_oneof![0..4_u8, proptest::prelude::any::<u8>()], 0..200), |bytes| {
        if let Ok(encoded) = again(&bytes) {
            prop_assert_eq!(encoded, bytes, "{}", name);
        }
        Ok(())
    });
}

#[test]
fn types() {
    fn each<T: Sample + Wire>(name: &str) {
        let valid = T::any().prop_map(|value| encoded(&value)).boxed();
        face(name, valid, |bytes| decode_small::<T>(bytes).map(|value| encoded(&value)));
    }
    every_type!(each);
}

#[test]
fn messages() {
    for message in common::messages::described() {
        let valid = message.any.prop_map(|value| encoded(&value)).boxed();
        face(message.name, valid, |bytes| Message::decode(bytes).map(|value| encoded(&value)));
    }
}

#[test]
fn bodies() {
    let valid = OwnedBody::any().prop_map(|body| body.encoded()).boxed();
    face("a body", valid, |bytes| {
        let body = Body::decode(bytes)?;
        let (mut out, mut hashes) = (Vec::new(), Vec::new());
        body.footprint(&mut hashes);
        let _ = (body.hash(), body.fingerprint(), body.first_slot());
        Body::encode(&body.head, body.operation_key, &body.update, &mut out);
        Ok(out)
    });
}

#[test]
fn operations() {
    for (code, name) in UPDATES {
        let valid = Operation::any(std::iter::once(code)).prop_map(|operation| {
            let mut out = Vec::new();
            operation.update().encode_arguments(&mut out);
            out
        });
        face(name, valid.boxed(), |bytes| {
            let (update, mut out) = (Update::decode(code, bytes)?, Vec::new());
            update.encode_arguments(&mut out);
            Ok(out)
        });
    }
    for (code, name) in READS {
        let valid = Operation::any(std::iter::once(code)).prop_map(|operation| {
            let mut out = Vec::new();
            operation.read().encode_arguments(&mut out);
            out
        });
        face(name, valid.boxed(), |bytes| {
            let (read, mut out) = (Read::decode(code, bytes)?, Vec::new());
            read.for_each_key(|_| {});
            read.encode_arguments(&mut out);
            Ok(out)
        });
    }
    for code in 0..=u8::MAX {
        let (is_update, is_read) = (UPDATES.iter().any(|u| u.0 == code), READS.iter().any(|r| r.0 == code));
        let one_key = Operation::one(if is_update || is_read { code } else { 17 });
        let mut arguments = Vec::new();
        match is_read {
            true => one_key.read().encode_arguments(&mut arguments),
            false => one_key.update().encode_arguments(&mut arguments),
        }
        assert_eq!(Update::decode(code, &arguments).is_ok(), is_update, "{code}");
        assert_eq!(Read::decode(code, &arguments).is_ok(), is_read, "{code}");
    }
}

#[test]
fn results() {
    for (shape, name) in SHAPES {
        let valid = any_outcome(shape).prop_map(move |outcome| encoded_outcome(shape, &outcome)).boxed();
        face(name, valid, |bytes| Outcome::decode(shape, bytes).map(|outcome| encoded_outcome(shape, &outcome)));
    }
}

fn payload_of(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    encode(&mut out);
    out.split_off(FRAME_HEADER_BYTES)
}

#[test]
fn hot_payloads() {
    let tail = || vec(proptest::prelude::any::<u8>(), 0..30);
    let with = |fixed: usize| (vec(Just(0_u8), fixed), tail()).prop_map(|(fixed, tail)| [fixed, tail].concat()).boxed();
    face("a request", with(32), |bytes| {
        let view = RequestView::decode(bytes)?;
        Ok(payload_of(|out| RequestView::encode(Kind::Request, &view.envelope, view.body, out)))
    });
    face("an answer", with(32), |bytes| {
        let view = AnswerView::decode(bytes)?;
        Ok(payload_of(|out| view.encode(&[], out)))
    });
    face("a read", with(48), |bytes| {
        let view = ReadView::decode(bytes)?;
        Ok(payload_of(|out| view.encode(out)))
    });
    face("a read's answer", with(8), |bytes| {
        let view = ReadAnswerView::decode(bytes)?;
        Ok(payload_of(|out| view.encode(&[], out)))
    });
    face("an append", with(40), |bytes| {
        let view = AppendView::decode(bytes)?;
        let mut payload = payload_of(|out| view.encode(&[], out));
        payload.extend(view.bytes);
        Ok(payload)
    });
}

/// Cuts a stream into frames, as far as it goes.
fn cut(mut stream: &[u8]) -> (Vec<Frame>, Option<FrameError>) {
    let mut frames = Vec::new();
    loop {
        let header = match FrameHeader::parse(stream) {
            Ok(Some(header)) => header,
            Ok(None) => return (frames, None),
            Err(error) => return (frames, Some(error)),
        };
        assert!(header.payload_len <= limits::FRAME_BYTES_MAX);
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

/// Kind and payload.
type Frame = (u8, Vec<u8>);

/// Frames, and the stream that they make.
fn streams() -> BoxedStrategy<(Vec<Frame>, Vec<u8>)> {
    let kinds = proptest::sample::select(Kind::ALL);
    let frames = vec((kinds, vec(proptest::prelude::any::<u8>(), 0..60)), 1..5);
    let stream = |frames: Vec<(Kind, Vec<u8>)>| {
        let mut out = Vec::new();
        for (kind, payload) in &frames {
            let start = frame::begin(&mut out, *kind);
            out.extend(payload);
            frame::end(&mut out, start, &[]);
        }
        (frames.into_iter().map(|(kind, payload)| (kind as u8, payload)).collect(), out)
    };
    frames.prop_map(stream).boxed()
}

#[test]
fn a_stream_is_cut_into_its_frames_wherever_it_ends() {
    check(128, (streams(), any_index()), |((frames, stream), end)| {
        prop_assert_eq!(cut(&stream), (frames.clone(), None));
        let end = end.index(stream.len());
        let (whole, error) = cut(&stream[..end]);
        prop_assert_eq!(error, None);
        prop_assert!(frames.starts_with(&whole) && whole.len() < frames.len());
        Ok(())
    });
}

/// The checksum finds what happens to a frame on the way; nothing behind a damaged frame is taken.
#[test]
fn no_damaged_frame_passes() {
    check(2048, (streams(), any_index(), 0..8_u8), |((frames, mut stream), at, bit)| {
        let at = at.index(stream.len());
        stream[at] ^= 1 << bit;
        let mut end = 0;
        let before = frames.iter().take_while(|(_, payload)| {
            end += FRAME_HEADER_BYTES + payload.len();
            end <= at
        });
        let untouched = before.count();
        prop_assert_eq!(&cut(&stream).0[..], &frames[..untouched], "bit {} of byte {}", bit, at);
        Ok(())
    });
    check(1024, (streams(), vec(damage(), 1..4)), |((frames, mut stream), changes)| {
        changes.iter().for_each(|change| change.apply(&mut stream));
        for frame in cut(&stream).0 {
            prop_assert!(frames.contains(&frame));
        }
        Ok(())
    });
    check(1024, vec(proptest::prelude::any::<u8>(), 0..64), |bytes| {
        prop_assert!(cut(&bytes).0.is_empty());
        Ok(())
    });
}

#[test]
fn a_header_says_what_is_wrong() {
    let mut frame = Vec::new();
    Message::GetStatus { id: 1 }.encode(&mut frame);
    let changed = |at: usize, byte: u8| {
        let mut frame = frame.clone();
        frame[at] = byte;
        FrameHeader::parse(&frame).map(|header| header.map(|header| header.check(&frame).is_ok()))
    };
    assert_eq!(FrameHeader::parse(&frame[..15]), Ok(None));
    assert_eq!(changed(8, 0), Err(FrameError::Magic));
    assert_eq!(changed(10, 9), Err(FrameError::Version(9)));
    assert_eq!(changed(15, 1), Err(FrameError::Magic), "reserved");
    assert_eq!(changed(3, 1), Err(FrameError::TooLarge((1 << 24) + 9)));
    assert_eq!(changed(4, frame[4] ^ 1), Ok(Some(false)));
    assert_eq!(changed(11, 99), Ok(Some(false)), "the kind is under the checksum");
}
