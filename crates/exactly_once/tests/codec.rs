//! The bytes of the records are as written in `golden/`, and the same after a round trip. `crates/properties`,
//! `records`, tests arbitrary bytes.

use kasha_exactly_once::{
    CLIENTS_PER_FLOOR_ENTRY_MAX, CompletionRecord, CompletionRecordRef, ExpiryFloorEntry, ExpiryFloorEntryRef,
    Fingerprint, OperationKeyDropped, OperationKeyRecord, Request,
};
use kasha_types::limits::{KEY_BYTES_MAX, OPERATION_KEY_BYTES_MAX, OPERATION_KEYS_MAX, SLOTS};
use kasha_types::{AckedBelow, BodyHash, ClientId, ClusterTime, OperationName, RpcId, Sequence, Slot, TableId};
use proptest::collection::vec;
use proptest::prelude::*;

const REQUEST: Request = Request {
    rpc: RpcId { client: ClientId(7), sequence: Sequence(9) },
    body_hash: BodyHash(0x1122_3344_5566_7788),
    acknowledgement: AckedBelow(5),
    lease_expiry: ClusterTime(300_000),
};

const NAME: OperationName<'_> = OperationName { table: TableId(0x0403_0201), first_key: b"bob", operation_key: b"pay" };

fn golden(text: &str) -> Vec<u8> {
    let lines = text.lines().map(|line| line.split('#').next().expect("split yields one"));
    let bytes = lines.flat_map(str::split_whitespace);
    bytes.map(|byte| u8::from_str_radix(byte, 16).expect("hexadecimal")).collect()
}

fn encoded(len: usize, encode: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut bytes = vec![0xaa; len];
    encode(&mut bytes);
    bytes
}

fn completion_bytes(record: CompletionRecord<'_>) -> Vec<u8> {
    encoded(record.encoded_len(), |out| record.encode_into(out))
}

fn floor_bytes(entry: ExpiryFloorEntry<'_>) -> Vec<u8> {
    encoded(entry.encoded_len(), |out| entry.encode_into(out))
}

fn operation_key_bytes(record: OperationKeyRecord<'_>) -> Vec<u8> {
    encoded(record.encoded_len(), |out| record.encode_into(out))
}

fn dropped_bytes(entry: OperationKeyDropped<'_>) -> Vec<u8> {
    encoded(entry.encoded_len(), |out| entry.encode_into(out))
}

#[test]
fn golden_completion_record() {
    let golden = golden(include_str!("../golden/completion_record.hex"));
    let record = CompletionRecord { request: REQUEST, slots: &[Slot(16383), Slot(1)], result: b"OK" };
    assert_eq!(completion_bytes(record), golden);
    assert_eq!(&golden[record.result_offset()..], b"OK");
    let read = CompletionRecordRef::decode(&golden).expect("format 1");
    assert_eq!((read.request, read.result, read.result_offset()), (REQUEST, &b"OK"[..], record.result_offset()));
    assert!(read.slots().eq([Slot(16383), Slot(1)]));
}

#[test]
fn golden_expiry_floor() {
    let golden = golden(include_str!("../golden/expiry_floor.hex"));
    let entry = ExpiryFloorEntry { floor: ClusterTime(300_000), clients: &[ClientId(7), ClientId(256)] };
    assert_eq!(floor_bytes(entry), golden);
    let read = ExpiryFloorEntryRef::decode(&golden).expect("format 1");
    assert_eq!(read.floor, entry.floor);
    assert!(read.clients().eq(entry.clients.iter().copied()));
}

#[test]
fn golden_operation_key_record() {
    let golden = golden(include_str!("../golden/operation_key_record.hex"));
    let record = OperationKeyRecord {
        slot: Slot(16383),
        name: NAME,
        fingerprint: Fingerprint(0x1122_3344_5566_7788),
        expires_at: ClusterTime(300_000),
        rpc: REQUEST.rpc,
        result: b"OK",
    };
    assert_eq!(operation_key_bytes(record), golden);
    assert_eq!(&golden[record.result_offset()..], b"OK");
    assert_eq!(OperationKeyRecord::decode(&golden), Some(record));
}

#[test]
fn golden_operation_key_dropped() {
    let golden = golden(include_str!("../golden/operation_key_dropped.hex"));
    let entry = OperationKeyDropped { slot: Slot(16383), at: ClusterTime(300_000), name: NAME };
    assert_eq!(dropped_bytes(entry), golden);
    assert_eq!(OperationKeyDropped::decode(&golden), Some(entry));
}

#[test]
fn limits_are_kept_by_writers_and_readers() {
    let slots = vec![Slot(1); OPERATION_KEYS_MAX];
    let mut bytes = completion_bytes(CompletionRecord { request: REQUEST, slots: &slots, result: b"" });
    assert!(CompletionRecordRef::decode(&bytes).is_some());
    bytes[43..45].copy_from_slice(&SLOTS.to_le_bytes());
    assert!(CompletionRecordRef::decode(&bytes).is_none(), "a slot that there is not");
    bytes[1..3].copy_from_slice(&(OPERATION_KEYS_MAX as u16 + 1).to_le_bytes());
    bytes.extend([0; 2]);
    assert!(CompletionRecordRef::decode(&bytes).is_none(), "a slot too many");

    let clients = vec![ClientId(1); CLIENTS_PER_FLOOR_ENTRY_MAX];
    let mut bytes = floor_bytes(ExpiryFloorEntry { floor: ClusterTime(1), clients: &clients });
    assert!(ExpiryFloorEntryRef::decode(&bytes).is_some());
    bytes.extend([0; 8]);
    assert!(ExpiryFloorEntryRef::decode(&bytes).is_none(), "bytes too many");
    bytes[1..3].copy_from_slice(&(CLIENTS_PER_FLOOR_ENTRY_MAX as u16 + 1).to_le_bytes());
    assert!(ExpiryFloorEntryRef::decode(&bytes).is_none(), "a client too many");

    let key = [b'k'; OPERATION_KEY_BYTES_MAX];
    let name = OperationName { operation_key: &key, ..NAME };
    let mut bytes = dropped_bytes(OperationKeyDropped { slot: Slot(1), at: ClusterTime(1), name });
    assert!(OperationKeyDropped::decode(&bytes).is_some());
    bytes[3] += 1;
    assert!(OperationKeyDropped::decode(&bytes).is_none(), "a byte too many");
    let first_key = [b'k'; KEY_BYTES_MAX];
    let name = OperationName { first_key: &first_key, ..NAME };
    let mut bytes = dropped_bytes(OperationKeyDropped { slot: Slot(1), at: ClusterTime(1), name });
    assert!(OperationKeyDropped::decode(&bytes).is_some());
    bytes.push(b'k');
    assert!(OperationKeyDropped::decode(&bytes).is_none(), "a byte of the first key too many");
}

#[test]
#[should_panic(expected = "longer than the record")]
fn a_buffer_of_another_size_is_our_bug() {
    CompletionRecord { request: REQUEST, slots: &[], result: b"" }.encode_into(&mut [0; 44]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn records_round_trip(
        numbers in any::<[u64; 5]>(),
        slots in vec(0..SLOTS, 0..40),
        key in vec(any::<u8>(), 0..=OPERATION_KEY_BYTES_MAX),
        first_key in vec(any::<u8>(), 0..40),
        clients in vec(any::<u64>(), 0..40),
        result in vec(any::<u8>(), 0..100),
    ) {
        let rpc = RpcId { client: ClientId(numbers[0]), sequence: Sequence(numbers[1]) };
        let request = Request {
            rpc,
            body_hash: BodyHash(numbers[2]),
            acknowledgement: AckedBelow(numbers[3]),
            lease_expiry: ClusterTime(numbers[4]),
        };
        let slots: Vec<Slot> = slots.into_iter().map(Slot).collect();
        let bytes = completion_bytes(CompletionRecord { request, slots: &slots, result: &result });
        let read = CompletionRecordRef::decode(&bytes).expect("just written");
        prop_assert_eq!((read.request, read.result), (request, &result[..]));
        prop_assert_eq!(&bytes[read.result_offset()..], &result[..]);
        prop_assert!(read.slots().eq(slots.iter().copied()));

        let clients: Vec<ClientId> = clients.into_iter().map(ClientId).collect();
        let bytes = floor_bytes(ExpiryFloorEntry { floor: ClusterTime(numbers[2]), clients: &clients });
        let read = ExpiryFloorEntryRef::decode(&bytes).expect("just written");
        prop_assert_eq!(read.floor, ClusterTime(numbers[2]));
        prop_assert!(read.clients().eq(clients.iter().copied()));

        let (slot, expires_at) = (slots.first().copied().unwrap_or_default(), ClusterTime(numbers[4]));
        let fingerprint = Fingerprint(numbers[2]);
        let name = OperationName { table: TableId(numbers[3] as u32), first_key: &first_key, operation_key: &key };
        let record = OperationKeyRecord { slot, name, fingerprint, expires_at, rpc, result: &result };
        let bytes = operation_key_bytes(record);
        prop_assert_eq!(OperationKeyRecord::decode(&bytes), Some(record));
        let entry = OperationKeyDropped { slot, at: expires_at, name };
        let bytes = dropped_bytes(entry);
        prop_assert_eq!(OperationKeyDropped::decode(&bytes), Some(entry));
    }
}
