//! The bytes of wire version 10, a line for each thing that can be sent. `UPDATE=1 cargo test -p kasha-wire golden::`
//! rewrites the files, which is wrong unless `WIRE_VERSION` changes too (or only lines were added).

use std::fmt::Write;

use crate::common::messages::described;
use crate::common::operations::{OwnedBody, outcomes};
use crate::common::results::encoded_outcome;
use crate::common::{Count, Sample, encoded};
use kasha_types::*;
use kasha_wire::codec::Bytes;
use kasha_wire::frame::Kind;
use kasha_wire::hot::{self, *};
use kasha_wire::message::{AttachAt, Holding, Placement, Report, TableCommand, TableOutcome};
use kasha_wire::operation::{ParticipantsBuffer, Parts, Row};
use kasha_wire::outcome::Shape;
use kasha_wire::status::{CoreStatus, Memory};
use kasha_wire::*;

/// Compares lines "name: hexadecimal" with a golden file.
fn compare(file: &str, lines: &[(String, Vec<u8>)]) {
    let mut text = String::new();
    for (name, bytes) in lines {
        write!(text, "{name}:").unwrap();
        bytes.iter().for_each(|byte| write!(text, " {byte:02x}").unwrap());
        text.push('\n');
    }
    let path = format!("{}/golden/{file}.hex", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    for (ours, theirs) in text.lines().zip(golden.lines()) {
        assert_eq!(ours, theirs, "{file}");
    }
    assert_eq!(text, golden, "{file}");
}

fn one<T: Sample>() -> T {
    T::one(&mut Count(0))
}

fn frame_of(kind: Kind) -> Vec<u8> {
    let body = OwnedBody::one(1, None).encoded();
    let mut out = Vec::new();
    let small = &mut out;
    let mut tail: &[u8] = &[];
    match kind {
        Kind::Request | Kind::Record | Kind::Cancel => RequestView::encode(kind, &one(), &body, small),
        Kind::Answer => {
            let next = &mut Count(0);
            let (rpc, epoch, attempt, shard) =
                (Sample::one(next), Sample::one(next), Sample::one(next), Sample::one(next));
            AnswerView { rpc, epoch, attempt, synced: true, shard, result: b"res" }.encode(b"ult", small);
            tail = b"ult";
        }
        Kind::Refuse => hot::encode_small(kind, &one::<Refused>(), small),
        Kind::Recorded => hot::encode_small(kind, &one::<Recorded>(), small),
        Kind::Sync => hot::encode_small(kind, &one::<SyncRequest>(), small),
        Kind::Synced => hot::encode_small(kind, &one::<Synced>(), small),
        Kind::Read => {
            let next = &mut Count(0);
            let (envelope, read_id, table) = (Sample::one(next), Sample::one(next), Sample::one(next));
            ReadView { envelope, read_id, table, code: 64, arguments: b"\x03\0key" }.encode(small);
        }
        Kind::ReadAnswer => {
            ReadAnswerView { read_id: one(), result: b"res" }.encode(b"ult", small);
            tail = b"ult";
        }
        Kind::ReadRefuse => hot::encode_small(kind, &one::<ReadRefused>(), small),
        Kind::Append => {
            let next = &mut Count(0);
            let (shard, epoch, attach) = (Sample::one(next), Sample::one(next), Sample::one(next));
            let (from, synced, round) = (Sample::one(next), Sample::one(next), Sample::one(next));
            AppendView { shard, epoch, attach, from, synced, round, bytes: &[] }.encode(b"log", small);
            tail = b"log";
        }
        Kind::Appended => hot::encode_small(kind, &one::<Appended>(), small),
        Kind::Message => message::GetStatus { id: one() }.encode(small),
    }
    out.extend(tail);
    out
}

#[test]
fn frames() {
    let lines: Vec<_> = Kind::ALL.iter().map(|&kind| (format!("{kind:?}"), frame_of(kind))).collect();
    for ((_, frame), &kind) in lines.iter().zip(Kind::ALL) {
        let header = FrameHeader::parse(frame).unwrap().unwrap();
        assert_eq!(Kind::from_number(header.kind), Some(kind));
        assert!(header.check(frame).is_ok());
    }
    compare("frames", &lines);
}

#[test]
fn every_message() {
    let messages = described();
    let names: Vec<_> = messages.iter().map(|message| message.name).collect();
    assert_eq!(names, message::TABLE.iter().map(|entry| entry.0).collect::<Vec<_>>());
    for (message, &(_, number)) in messages.iter().zip(message::TABLE) {
        let bytes = encoded(&message.one);
        assert_eq!((message.one.name(), bytes[0]), (message.name, number));
        assert_eq!(Message::decode(&bytes), Ok(message.one.clone()));
    }
    compare("messages", &messages.into_iter().map(|m| (m.name.to_owned(), encoded(&m.one))).collect::<Vec<_>>());
}

/// R7.6: a cluster at the first level says what it has always said, whichever release says it.
#[test]
fn r7_6_the_first_level_has_no_byte_of_a_later_one() {
    let message = described().into_iter().find(|message| message.name == "ConfigurationIs").expect("a message");
    let AnyMessage::ConfigurationIs(told) = message.one else { panic!("{:?}", message.one) };
    let before = message::ConfigurationIs { unix_origin: Later::at(Level::FIRST, None), ..told.clone() };
    let (with, without) = (encoded(&told), encoded(&before));
    assert_eq!(with.len() - without.len(), 1 + 8, "the origin, and that there is one");
    assert_eq!(with[..without.len()], without);
    assert_eq!(Message::decode(&without), Ok(before));
}

/// Each variant of what a message holds, and the codec's own types.
#[test]
fn parts() {
    let mut lines = Vec::new();
    fn each<T: Sample + Wire>(name: &str, lines: &mut Vec<(String, Vec<u8>)>) {
        for part in T::all(&mut Count(0)) {
            lines.push((format!("{name} {part:?}"), encoded(&part)));
        }
    }
    each::<Placement>("Placement", &mut lines);
    each::<TableCommand>("TableCommand", &mut lines);
    each::<TableOutcome>("TableOutcome", &mut lines);
    each::<Report>("Report", &mut lines);
    each::<AttachAt>("AttachAt", &mut lines);
    each::<Durability>("Durability", &mut lines);
    each::<MemberState>("MemberState", &mut lines);
    each::<ShardPhase>("ShardPhase", &mut lines);
    each::<Memory>("Memory", &mut lines);
    each::<RecordedVerdict>("RecordedVerdict", &mut lines);
    each::<Work>("Work", &mut lines);
    each::<Holding>("Holding", &mut lines);
    each::<Refusal>("Refusal", &mut lines);
    each::<std::net::SocketAddr>("SocketAddr", &mut lines);
    each::<bool>("bool", &mut lines);
    each::<Option<CoreId>>("Option<CoreId>", &mut lines);
    each::<Vec<Slot>>("Vec<Slot>", &mut lines);
    each::<String>("String", &mut lines);
    each::<Bytes>("Bytes", &mut lines);
    each::<Envelope>("Envelope", &mut lines);
    each::<BootId>("BootId", &mut lines);
    compare("parts", &lines);
}

/// What a client says of an operation key, of one shard and of several.
fn said(transaction: &OwnedBody, (list, parts): (&ParticipantsBuffer, Parts<'_>)) -> Vec<(String, Vec<u8>)> {
    let mut lines = Vec::new();
    for said in [
        Said { fingerprint: 0x0102_0304_0506_0708, keeps_refusal: true, first_part: 0 },
        Said { fingerprint: 0x0102_0304_0506_0708, keeps_refusal: false, first_part: 1 },
    ] {
        let mut bytes = transaction.encoded();
        Body::say(&mut bytes, said);
        let body = Body::decode(&bytes).unwrap();
        assert_eq!(
            (body.head, body.update, body.said()),
            (transaction.head, Update::Transaction { parts }, Some(said))
        );
        lines.push((format!("transaction, said, first part {}", said.first_part), bytes));
        let mut bytes = Vec::new();
        let (head, key) = (transaction.head, transaction.operation_key.as_deref());
        Body::encode_distributed(&head, key, Coordination::AsPartsNeed, (list, parts, 2), &mut bytes);
        Body::say(&mut bytes, said);
        let body = Body::decode(&bytes).unwrap();
        assert_eq!(body.said(), Some(Said { first_part: 2, ..said }));
        assert_eq!(body.keeper_of_refusal(), said.keeps_refusal.then_some(ShardId(3)));
        lines.push((format!("transaction over several shards, said, keeps {}", said.keeps_refusal), bytes));
    }
    lines
}

#[test]
fn operations() {
    let mut lines = Vec::new();
    for &Row { code, name, .. } in Update::ALL {
        for (key, what) in [(None, ""), (Some(&b"my-key"[..]), ", operation key")] {
            if code == crate::common::operations::BATCH && key.is_some() {
                continue; // it has none
            }
            let body = OwnedBody::one(code, key);
            let bytes = body.encoded();
            let decoded = Body::decode(&bytes).unwrap();
            assert_eq!((decoded.head, decoded.operation_key), (body.head, key));
            assert_eq!(decoded.update, body.operation.update());
            lines.push((format!("{name}{what}"), bytes));
        }
    }
    for &Row { code, .. } in Update::ALL.iter().filter(|row| row.has_one_key()) {
        // A condition of each kind, an answer, both; each end.
        for which in [1, 17, 33, 2, 18, 3, 4, 8, 12, 5] {
            let bytes = OwnedBody::one_with(code, None, which).encoded();
            let update = Body::decode(&bytes).unwrap().update;
            lines.push((update.to_string(), bytes));
        }
    }
    let transaction = OwnedBody::one(32, Some(b"my-key"));
    let Update::Transaction { parts } = transaction.operation.update() else {
        unreachable!("the code of a transaction")
    };
    let mut list = ParticipantsBuffer::default();
    list.push(ShardId(1), 1);
    list.push(ShardId(3), u16::try_from(parts.count() - 1).expect("few parts"));
    for (what, key, class) in [
        ("over several shards", None, Coordination::AsPartsNeed),
        ("over several shards, coordinated", None, Coordination::Always),
        ("over several shards, operation key", Some(&b"my-key"[..]), Coordination::AsPartsNeed),
    ] {
        let not_after = if key.is_some() { transaction.head.not_after } else { ClusterTime(0) };
        let (head, mut bytes) = (BodyHead { not_after, ..transaction.head }, Vec::new());
        Body::encode_distributed(&head, key, class, (&list, parts, 1), &mut bytes);
        let body = Body::decode(&bytes).unwrap();
        assert_eq!((body.head, body.operation_key, body.update), (head, key, Update::Transaction { parts }));
        assert_eq!(body.parts_at(ShardId(1)).unwrap().count(), 1);
        lines.push((format!("transaction {what}"), bytes));
    }
    lines.extend(said(&transaction, (&list, parts)));
    for &Row { code, name, .. } in Read::ALL {
        let operation = crate::common::operations::Operation::one(code, 0);
        let mut bytes = vec![operation.read().code()];
        operation.read().encode_arguments(&mut bytes);
        assert_eq!(Read::decode(code, &bytes[1..]), Ok(operation.read()));
        lines.push((format!("{name} (code and arguments)"), bytes));
    }
    compare("operations", &lines);
}

#[test]
fn results() {
    let mut lines = Vec::new();
    for (name, shape, outcome) in outcomes() {
        let bytes = encoded_outcome(shape, &outcome);
        assert_eq!(Outcome::decode(shape, &bytes), Ok(outcome));
        lines.push((name.to_owned(), bytes));
    }
    let kept = Outcome::NotCommitted(1, Box::new(Outcome::ConditionFailed(9)));
    let mut repeated = vec![OutcomeCode::Repeated as u8];
    repeated.extend(7u64.to_le_bytes());
    repeated.extend(8u64.to_le_bytes());
    repeated.extend(encoded_outcome(Shape::Parts, &kept));
    assert_eq!(Outcome::decode(Shape::Parts, &repeated), Ok(kept));
    let twice = [&repeated[..17], &repeated[..]].concat();
    assert!(Outcome::decode(Shape::Parts, &twice).is_err());
    lines.push(("repeated".to_owned(), repeated));
    let codes: std::collections::BTreeSet<u8> = lines.iter().map(|line| line.1[0]).collect();
    // Nothing comes to *prepared*.
    let is_outcome = |&code: &u8| OutcomeCode::from_number(code).is_some_and(|code| code != OutcomeCode::Prepared);
    assert!(codes.into_iter().eq((0..=u8::MAX).filter(is_outcome)));
    assert!(Outcome::decode(Shape::Parts, &[OutcomeCode::Prepared as u8, 0, 0, 0, 0]).is_err());
    compare("outcomes", &lines);
}

#[test]
fn configuration_and_status() {
    let (configuration, status) = (one::<Configuration>(), one::<CoreStatus>());
    assert_eq!(hot::decode_small(&encoded(&configuration)), Ok(configuration.clone()));
    assert_eq!(hot::decode_small(&encoded(&status)), Ok(status.clone()));
    let lines = [("Configuration", encoded(&configuration)), ("CoreStatus", encoded(&status))];
    compare("state", &lines.map(|(name, bytes)| (name.to_owned(), bytes)));
}

/// Hashes are not sent alone, but are compared between nodes of one cluster.
#[test]
fn hashes() {
    let table = TableId(7);
    let body = OwnedBody::one(16, Some(b"my-key")).encoded();
    let body = Body::decode(&body).unwrap();
    let mut footprint = Vec::new();
    body.footprint(&mut footprint);
    let mut lines = vec![
        ("key_hash".to_owned(), key_hash(table, b"key").0.to_be_bytes().to_vec()),
        ("slot_of".to_owned(), slot_of(b"key").0.to_be_bytes().to_vec()),
        ("operation_key_hash".to_owned(), body.operation_key_hash().unwrap().0.to_be_bytes().to_vec()),
        ("body_hash".to_owned(), body.hash().0.to_be_bytes().to_vec()),
        ("fingerprint".to_owned(), body.fingerprint().to_be_bytes().to_vec()),
    ];
    lines.extend(footprint.iter().map(|hash| ("footprint".to_owned(), hash.0.to_be_bytes().to_vec())));
    compare("hashes", &lines);
}
