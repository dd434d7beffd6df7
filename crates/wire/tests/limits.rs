//! A body is checked completely before anything is done with it, limits included.

use crate::common::operations::{Operation, OwnedBody};
use kasha_types::limits::*;
use kasha_types::{AckedBelow, ClientId, ClusterTime, Sequence};
use kasha_wire::operation::Row;
use kasha_wire::{AnyMessage, Body, DecodeError, Message, Read, Update};

fn body(operation: Operation) -> OwnedBody {
    OwnedBody { operation, ..OwnedBody::one(1, None) }
}

fn put(key: usize, value: usize) -> Operation {
    Operation::new(1, (0, 0), vec![(vec![1; key], vec![2; value], 0)])
}

fn fault(body: &OwnedBody) -> Option<DecodeError> {
    Body::decode(&body.encoded()).err()
}

#[test]
fn keys_and_values() {
    assert_eq!(fault(&body(put(KEY_BYTES_MAX, VALUE_BYTES_MAX))), None);
    assert_eq!(fault(&body(put(0, 0))), None);
    assert_eq!(fault(&body(put(1, VALUE_BYTES_MAX + 1))), Some(DecodeError::TooLarge("a value")));
    for code in [1, 3, 16] {
        let operation = Operation::new(code, (0, 0), vec![(vec![1], vec![2; VALUE_BYTES_MAX + 1], 0)]);
        assert_eq!(fault(&body(operation)), Some(DecodeError::TooLarge("a value")), "{code}");
    }
}

#[test]
fn numbers_of_keys() {
    let items = |count: usize| vec![(b"k".to_vec(), Vec::new(), 1); count];
    for code in [16, 17, 18] {
        let many = |count| Operation::new(code, (0, 0), items(count));
        assert_eq!(fault(&body(many(OPERATION_KEYS_MAX))), None);
        let too_many = Some(DecodeError::TooLarge("the number of keys"));
        assert_eq!(fault(&body(many(OPERATION_KEYS_MAX + 1))), too_many);
        let mut arguments = Vec::new();
        many(1).update().encode_arguments(&mut arguments);
        assert_eq!(Update::decode(code, &[0; 4]), Err(DecodeError::Invalid("an operation without keys")));
        arguments[0] = 2;
        assert_eq!(Update::decode(code, &arguments), Err(DecodeError::Truncated));
        arguments[0] = 1;
        arguments.push(0);
        assert_eq!(Update::decode(code, &arguments), Err(DecodeError::TrailingBytes));
    }
    let mut arguments = Vec::new();
    Operation::new(80, (0, 0), items(OPERATION_KEYS_MAX + 1)).read().encode_arguments(&mut arguments);
    assert_eq!(Read::decode(80, &arguments), Err(DecodeError::TooLarge("the number of keys")));
    assert_eq!(Read::decode(80, &[0; 4]), Err(DecodeError::Invalid("an operation without keys")));
}

#[test]
fn the_whole_request() {
    let value = |len| (b"k".to_vec(), vec![0; len], 0);
    let mut items = vec![value(VALUE_BYTES_MAX); 3];
    let rest = BODY_BYTES_MAX - body(Operation::new(16, (0, 0), items.clone())).encoded().len() - 7;
    items.push(value(rest));
    let longest = body(Operation::new(16, (0, 0), items.clone()));
    assert_eq!((longest.encoded().len(), fault(&longest)), (BODY_BYTES_MAX, None));
    items[3] = value(rest + 1);
    assert_eq!(fault(&body(Operation::new(16, (0, 0), items))), Some(DecodeError::TooLarge("the request")));
}

#[test]
fn operation_keys() {
    let with_key = |len: usize| {
        let key = vec![3; len];
        OwnedBody::one(1, Some(&key))
    };
    assert_eq!(fault(&with_key(OPERATION_KEY_BYTES_MAX)), None);
    let mut bytes = with_key(OPERATION_KEY_BYTES_MAX).encoded();
    bytes[33] += 1;
    assert_eq!(Body::decode(&bytes).err(), Some(DecodeError::TooLarge("the operation key")));
    let mut body = with_key(3);
    body.head.not_after = ClusterTime(0);
    assert_eq!(fault(&body), Some(DecodeError::Invalid("an operation key without its time limit")));
}

/// Commands of bodies from before did not say when they were begun.
#[test]
fn beginnings() {
    let without_its_other_half = Some(DecodeError::Invalid("a lifetime without its beginning, or the reverse"));
    for Row { code, .. } in Update::ALL {
        let body = OwnedBody::one(*code, Some(b"key"));
        let update = body.operation.update();
        let (mut bytes, says_begun) = (body.encoded(), update.says_begun());
        assert_eq!(bytes[35], u8::from(says_begun) << 7);
        // Behind the time limit of the operation key, if it has one.
        let begun = if body.operation_key.is_some() { 48 } else { 40 };
        if says_begun {
            bytes.drain(begun..begun + 8);
        } else {
            bytes.splice(begun..begun, [7; 8]);
        }
        bytes[35] ^= 1 << 7;
        let other_half = without_its_other_half.filter(|_| update.has_lifetime() || !update.says_begun());
        assert_eq!(Body::decode(&bytes).err(), other_half, "{code}");
    }
}

#[test]
fn names_and_acknowledgements() {
    let changed = |change: fn(&mut OwnedBody)| {
        let mut body = OwnedBody::one(1, None);
        change(&mut body);
        fault(&body)
    };
    assert_eq!(changed(|body| body.head.acknowledgement = AckedBelow(body.head.rpc.sequence.0)), None);
    assert_eq!(changed(|body| body.head.acknowledgement = AckedBelow(0)), None);
    assert_eq!(
        changed(|body| body.head.acknowledgement = AckedBelow(body.head.rpc.sequence.0 + 1)),
        Some(DecodeError::Invalid("an acknowledgement above its own sequence"))
    );
    let no_name = Some(DecodeError::Invalid("a request id of 0"));
    assert_eq!(changed(|body| body.head.rpc.client = ClientId(0)), no_name);
    assert_eq!(
        changed(|body| {
            body.head.rpc.sequence = Sequence(0);
            body.head.acknowledgement = AckedBelow(0);
        }),
        no_name
    );
    for at in [34, 35] {
        let mut bytes = OwnedBody::one(1, None).encoded();
        bytes[at] = 1;
        let wrong = Some(DecodeError::Invalid("the part that was named first"));
        assert_eq!(Body::decode(&bytes).err(), wrong, "it has no parts");
    }
}

#[test]
fn a_configuration_is_in_order() {
    use crate::common::{Count, Sample, encoded};
    use kasha_wire::{Configuration, hot};
    let changed = |change: fn(&mut Configuration)| {
        let mut configuration = Configuration::one(&mut Count(0));
        change(&mut configuration);
        hot::decode_small::<Configuration>(&encoded(&configuration)).err()
    };
    assert_eq!(changed(|_| {}), None);
    assert_eq!(changed(|c| c.faults = FAULTS_MAX + 1), Some(DecodeError::TooLarge("the configuration")));
    assert_eq!(changed(|c| c.shards[0].shard.0 = 1), Some(DecodeError::Invalid("the order of shards")));
    let two_tablets = |c: &mut Configuration| {
        c.tablets.push(c.tablets[0]);
        c.tablets[0].first.0 += 1;
    };
    assert_eq!(changed(two_tablets), Some(DecodeError::Invalid("the order of tablets")));
    assert_eq!(AnyMessage::decode(&[]).err(), Some(DecodeError::Truncated));
}
