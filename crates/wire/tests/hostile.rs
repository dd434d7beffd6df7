//! What no decoder takes, one by one. Arbitrary and damaged bytes: `crates/properties`, `frames` and those after it.

use crate::common::operations::Operation;
use kasha_types::TableId;
use kasha_types::limits::VALUE_BYTES_MAX;
use kasha_wire::operation::{Check, Condition, Excess, ItemsBuffer, PartOperation, PartsBuffer};
use kasha_wire::{FrameError, FrameHeader, Message, Read, Update, WIRE_VERSION, WireVersion, message};

#[test]
fn an_operation_is_what_its_code_says() {
    for code in 0..=u8::MAX {
        let (is_update, is_read) = (Update::row_of(code).is_some(), Read::row_of(code).is_some());
        let one_key = Operation::one(if is_update || is_read { code } else { 17 }, 0);
        let mut arguments = Vec::new();
        match is_read {
            true => one_key.read().encode_arguments(&mut arguments),
            false => one_key.update().encode_arguments(&mut arguments),
        }
        assert_eq!(Update::decode(code, &arguments).is_ok(), is_update, "{code}");
        assert_eq!(Read::decode(code, &arguments).is_ok(), is_read, "{code}");
    }
}

/// Found by a review: the check itself went through what it was to check, and fell over a value of more than a megabyte.
#[test]
fn limits_are_checked_before_anything_is_encoded_for_good() {
    let (large, key, table) = (vec![0; VALUE_BYTES_MAX + 1], &b"k"[..], TableId(1));
    let checked = |operation: PartOperation<'_>| {
        let mut parts = PartsBuffer::default();
        parts.push(table, &operation);
        let whole = Update::Transaction { parts: parts.as_parts() }.check_limits();
        assert_eq!(operation.check_limits(), whole, "{}", operation.row().name);
        whole
    };
    let put = Update::put(key, &large);
    assert_eq!(checked(PartOperation::Update(put)), Err(Excess::Value));
    assert_eq!(
        checked(PartOperation::Check(Check::Meets { key, condition: Condition::Value(&large) })),
        Err(Excess::Value)
    );
    assert_eq!(checked(PartOperation::Read(Read::Get { key })), Ok(()));
    let pairs = ItemsBuffer::pairs([(key, &large[..])]);
    assert_eq!(Update::MultiPut { pairs: pairs.as_items() }.check_limits(), Err(Excess::Value));
    let none = PartsBuffer::default();
    assert_eq!(Update::Transaction { parts: none.as_parts() }.check_limits(), Err(Excess::KeyCount));
}

#[test]
fn a_header_says_what_is_wrong() {
    let mut frame = Vec::new();
    message::GetStatus { id: 1 }.encode(&mut frame);
    let changed = |at: usize, byte: u8| {
        let mut frame = frame.clone();
        frame[at] = byte;
        FrameHeader::parse(&frame).map(|header| header.map(|header| header.check(&frame).is_ok()))
    };
    assert_eq!(FrameHeader::parse(&frame[..15]), Ok(None));
    assert_eq!(changed(8, 0), Err(FrameError::Magic));
    assert_eq!(changed(10, 99), Err(FrameError::Version { found: WireVersion(99), wanted: WIRE_VERSION }));
    assert_eq!(changed(15, 1), Err(FrameError::Magic), "reserved");
    assert_eq!(changed(3, 1), Err(FrameError::TooLarge((1 << 24) + 9)));
    assert_eq!(changed(4, frame[4] ^ 1), Ok(Some(false)));
    let mut later = frame.clone();
    kasha_wire::frame::restamp(&mut later, WireVersion(12));
    assert!(FrameHeader::parse_of(WireVersion(12), &later).unwrap().unwrap().check(&later).is_ok());
    assert_eq!(changed(11, 1), Err(FrameError::Magic), "reserved");
    assert_eq!(changed(12, 99), Ok(Some(false)), "the kind is under the checksum");
}
