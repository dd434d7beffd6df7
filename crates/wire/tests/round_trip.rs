//! decode(encode(x)) = x, for every type, message, operation, result and frame.

use std::net::SocketAddr;

use crate::common::messages::described;
use crate::common::operations::{BATCH, Operation, OwnedBody, SHAPES, TRANSACTION, any_outcome};
use crate::common::results::encoded_outcome;
use crate::common::types::every_type;
use crate::common::{Sample, any, check, encoded};
use kasha_types::*;
use kasha_wire::codec::Bytes;
use kasha_wire::frame::{self, Kind};
use kasha_wire::hot::*;
use kasha_wire::message::{
    AdminOrder, AdminOutcome, AttachAt, BehindWhat, GcEntry, Holding, Knowledge, LeaseInfo, Missing, Report,
    ShardKnowledge, TableCommand, TableOutcome, Told, WordOf,
};
use kasha_wire::operation::{ItemsBuffer, Row};
use kasha_wire::status::{
    CleanerState, Cleaning, CoreStatus, LongTurn, LoopTurns, LoopUsage, Memory, PendingTransaction, ReplicaStatus,
    TransactionsStatus, WitnessStatus,
};
use kasha_wire::*;
use proptest::collection::vec;
use proptest::prelude::*;

#[test]
fn every_type_comes_back() {
    // The runner is compiled for one type, and not for each of these.
    fn comes_back<T: Sample + Wire + PartialEq>(name: &'static str) {
        let wrong = move |value: T| {
            let again = decode_small::<T>(&encoded(&value));
            (again.as_ref() != Ok(&value)).then(|| format!("{name}: {value:?} came back as {again:?}"))
        };
        check(48, T::any().prop_map(wrong).boxed(), |wrong| {
            prop_assert_eq!(wrong, None);
            Ok(())
        });
    }
    every_type!(comes_back);
}

#[test]
fn every_message_comes_back() {
    for message in described() {
        check(48, message.any, |value| {
            let mut out = b"before".to_vec();
            value.encode(&mut out);
            let header = FrameHeader::parse(&out[6..]).unwrap().unwrap();
            prop_assert_eq!(header.kind, Kind::Message as u8);
            prop_assert_eq!(Message::decode(header.check(&out[6..]).unwrap()), Ok(value));
            Ok(())
        });
    }
}

#[test]
fn every_body_comes_back() {
    check(512, OwnedBody::any(), |body| {
        let bytes = body.encoded();
        let decoded = Body::decode(&bytes).unwrap();
        prop_assert_eq!(decoded.head, body.head);
        prop_assert_eq!(decoded.operation_key, body.operation_key.as_deref());
        prop_assert_eq!(decoded.update, body.operation.update());
        prop_assert_eq!(decoded.bytes(), &bytes);
        let (mut keys, mut footprint) = (Vec::new(), Vec::new());
        decoded.for_each_key(|_, key, slot| keys.push((key.to_vec(), slot)));
        let (most, times) = match body.operation.code {
            code if Update::row_of(code).is_some_and(Row::has_one_key) => (1, 1),
            TRANSACTION => (usize::MAX, 6), // the parts of each item
            BATCH => (usize::MAX, 3),
            _ => (usize::MAX, 1),
        };
        let items = body.operation.items.iter().take(most);
        let asked = items.flat_map(|item| std::iter::repeat_n(item.0.clone(), times));
        prop_assert!(keys.iter().cloned().eq(asked.map(|key| (key.clone(), slot_of(&key)))));
        prop_assert_eq!(decoded.first_key().1, &keys[0].0);
        prop_assert_eq!(decoded.slot_of_kept(ShardId(3)), keys[0].1);
        decoded.footprint(&mut footprint);
        prop_assert_eq!(footprint.len(), keys.len() + usize::from(body.operation_key.is_some()));
        Ok(())
    });
}

/// R4.9: the same operation under another id, time or key has the same fingerprint; another operation has another.
#[test]
fn a_fingerprint_is_that_of_operation_and_table() {
    check(256, (OwnedBody::any(), OwnedBody::any()), |(one, mut other)| {
        let same = |a: &OwnedBody, b: &OwnedBody| {
            let (a, b) = (a.encoded(), b.encoded());
            let (a, b) = (Body::decode(&a).unwrap(), Body::decode(&b).unwrap());
            prop_assert_eq!(
                a.fingerprint() == b.fingerprint(),
                a.update == b.update && a.head.table == b.head.table,
                "{:?} {:?}",
                a.update,
                b.update
            );
            Ok(())
        };
        same(&one, &other)?;
        other.operation = one.operation.clone();
        if matches!(one.operation.code, TRANSACTION | BATCH) {
            other.head.table = one.head.table; // its parts name their tables
        }
        if one.operation.code == BATCH {
            other.operation_key = None; // it has none
            other.head.not_after.0 = 0;
        }
        same(&one, &other)?;
        other.head.table = one.head.table;
        same(&one, &other)
    });
}

#[test]
fn every_operation_comes_back() {
    check(256, Operation::any(Update::ALL), |operation| {
        let mut bytes = Vec::new();
        operation.update().encode_arguments(&mut bytes);
        prop_assert_eq!(Update::decode(operation.code, &bytes), Ok(operation.update()));
        prop_assert_eq!(operation.update().code(), operation.code);
        let items = match operation.update() {
            Update::MultiPut { pairs: items }
            | Update::MultiDelete { keys: items }
            | Update::MultiIncrement { deltas: items } => items,
            _ => return Ok(()),
        };
        prop_assert_eq!(items.count() as usize, operation.items.len());
        for (item, (key, value, delta)) in items.iter().zip(&operation.items) {
            prop_assert_eq!(item.key, key);
            prop_assert_eq!(item.value, if operation.code == 16 { &value[..] } else { &[] });
            prop_assert_eq!(item.delta, if operation.code == 18 { *delta } else { 0 });
        }
        Ok(())
    });
    check(256, Operation::any(Read::ALL), |operation| {
        let mut bytes = Vec::new();
        operation.read().encode_arguments(&mut bytes);
        prop_assert_eq!(Read::decode(operation.code, &bytes), Ok(operation.read()));
        prop_assert_eq!(operation.read().code(), operation.code);
        Ok(())
    });
}

#[test]
fn every_result_comes_back() {
    for (shape, _) in SHAPES {
        check(128, any_outcome(shape), |outcome| {
            prop_assert_eq!(Outcome::decode(shape, &encoded_outcome(shape, &outcome)), Ok(outcome));
            Ok(())
        });
    }
    for row in Update::ALL.iter().chain(Read::ALL) {
        assert!(SHAPES.iter().any(|(shape, _)| *shape == row.shape), "{}: a shape that the samples lack", row.name);
    }
    let codes = |of: fn(u8) -> Option<&'static Row>| (0..=u8::MAX).filter_map(of).copied().collect::<Vec<_>>();
    assert_eq!((codes(Update::row_of), codes(Read::row_of)), (Update::ALL.to_vec(), Read::ALL.to_vec()));
}

#[test]
fn every_hot_payload_comes_back() {
    let bytes = || vec(any::<u8>(), 0..30);
    check(128, (any::<Envelope>(), bytes()), |(envelope, body)| {
        for kind in [Kind::Request, Kind::Record, Kind::Cancel] {
            let mut out = Vec::new();
            RequestView::encode(kind, &envelope, &body, &mut out);
            let view = RequestView::decode(payload(&out, kind)).unwrap();
            prop_assert_eq!((view.envelope, view.body), (envelope, &body[..]));
        }
        Ok(())
    });
    check(
        128,
        (any(), any(), any(), any(), any(), bytes(), bytes()),
        |(rpc, epoch, attempt, synced, shard, head, tail)| {
            let mut out = Vec::new();
            AnswerView { rpc, epoch, attempt, synced, shard, result: &head }.encode(&tail, &mut out);
            let whole = [&out[..], &tail].concat();
            let view = AnswerView::decode(payload(&whole, Kind::Answer)).unwrap();
            prop_assert_eq!((view.rpc, view.epoch, view.attempt, view.synced), (rpc, epoch, attempt, synced));
            prop_assert_eq!(view.shard, shard);
            prop_assert_eq!(view.result, [head, tail].concat());
            Ok(())
        },
    );
    check(128, (any(), any(), any(), any(), bytes()), |(envelope, read_id, table, code, arguments)| {
        let mut out = Vec::new();
        ReadView { envelope, read_id, table, code, arguments: &arguments }.encode(&mut out);
        let view = ReadView::decode(payload(&out, Kind::Read)).unwrap();
        prop_assert_eq!((view.envelope, view.read_id, view.table, view.code), (envelope, read_id, table, code));
        prop_assert_eq!(view.arguments, arguments);
        Ok(())
    });
    check(128, (any(), bytes(), bytes()), |(read_id, head, tail)| {
        let mut out = Vec::new();
        ReadAnswerView { read_id, result: &head }.encode(&tail, &mut out);
        let whole = [&out[..], &tail].concat();
        let view = ReadAnswerView::decode(payload(&whole, Kind::ReadAnswer)).unwrap();
        prop_assert_eq!((view.read_id, view.result), (read_id, &[head, tail].concat()[..]));
        Ok(())
    });
    check(
        128,
        (any(), any(), any(), any(), any(), any(), bytes()),
        |(shard, epoch, attach, from, synced, round, log)| {
            let mut out = Vec::new();
            AppendView { shard, epoch, attach, from, synced, round, bytes: &[] }.encode(&log, &mut out);
            let whole = [&out[..], &log].concat();
            let view = AppendView::decode(payload(&whole, Kind::Append)).unwrap();
            prop_assert_eq!((view.shard, view.epoch, view.attach, view.from), (shard, epoch, attach, from));
            prop_assert_eq!((view.synced, view.round, view.bytes), (synced, round, &log[..]));
            Ok(())
        },
    );
}

fn payload(frame: &[u8], kind: Kind) -> &[u8] {
    let header = FrameHeader::parse(frame).unwrap().unwrap();
    assert_eq!(Kind::from_number(header.kind), Some(kind));
    header.check(frame).unwrap()
}

#[test]
fn numbers_of_kinds() {
    let known: Vec<_> = (0..=u8::MAX).filter_map(Kind::from_number).collect();
    assert_eq!(known, Kind::ALL);
    let mut empty = Vec::new();
    let start = frame::begin(&mut empty, Kind::Message);
    frame::end(&mut empty, start, &[]);
    assert_eq!(empty.len(), FRAME_HEADER_BYTES);
    assert_eq!(payload(&empty, Kind::Message), []);
}

#[test]
fn a_list_knows_what_its_items_hold() {
    let items = ItemsBuffer::keys([&b"a"[..], b"b"]);
    assert_eq!(items.as_items().iter().map(|item| item.key).collect::<Vec<_>>(), [b"a", b"b"]);
}

#[test]
#[should_panic(expected = "a list of another operation")]
fn a_list_of_another_operation_is_not_encoded() {
    Update::MultiPut { pairs: ItemsBuffer::keys([&b"a"[..]]).as_items() }.encode_arguments(&mut Vec::new());
}
