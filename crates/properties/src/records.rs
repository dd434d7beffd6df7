//! Small values in files: the payloads of log entries, and the marks beside the log. A decoder accepts exactly what its
//! encoder writes, and what it accepts may be used without further checks.

use arbitrary::{Arbitrary, Result, Unstructured};
use kasha_exactly_once::{
    CompletionRecord, CompletionRecordRef, ExpiryFloorEntry, ExpiryFloorEntryRef, OperationKeyDropped,
    OperationKeyRecord,
};
use kasha_replication::{MetaError, ReplicaMeta};
use kasha_store::{Object, Tombstone};
use kasha_types::{ClientId, ClusterId, ShardId, Slot};
use kasha_witness::{Ledger, LoadError, Mode};

use crate::property::Property;
use crate::{draw, golden};

/// An entry's payload, to all that read entries.
#[derive(Debug)]
pub struct Records(Vec<u8>);

impl<'a> Arbitrary<'a> for Records {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        draw::rest(u).map(Self)
    }
}

fn written(len: usize, write: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let mut bytes = vec![0xEE; len];
    write(&mut bytes);
    bytes
}

fn check_exactly_once(bytes: &[u8]) {
    if let Some(read) = CompletionRecordRef::decode(bytes) {
        let slots: Vec<Slot> = read.slots().collect();
        let record = CompletionRecord { request: read.request, slots: &slots, result: read.result };
        assert_eq!(written(record.encoded_len(), |out| record.encode_into(out)), bytes);
        assert_eq!(&bytes[read.result_offset()..], read.result);
    }
    if let Some(read) = ExpiryFloorEntryRef::decode(bytes) {
        let clients: Vec<ClientId> = read.clients().collect();
        let entry = ExpiryFloorEntry { floor: read.floor, clients: &clients };
        assert_eq!(written(entry.encoded_len(), |out| entry.encode_into(out)), bytes);
    }
    if let Some(read) = OperationKeyRecord::decode(bytes) {
        assert_eq!(written(read.encoded_len(), |out| read.encode_into(out)), bytes);
        assert_eq!(&bytes[read.result_offset()..], read.result);
    }
    if let Some(read) = OperationKeyDropped::decode(bytes) {
        assert_eq!(written(read.encoded_len(), |out| read.encode_into(out)), bytes);
    }
}

fn check_store(bytes: &[u8]) {
    if let Some(object) = Object::decode(bytes) {
        let (value, ends) = bytes[object.value_offset()..].split_at(object.value.len());
        assert_eq!(value, object.value);
        assert_eq!(ends, object.ends.map(|ends| ends.0.to_le_bytes()).as_ref().map_or(&[][..], |ends| &ends[..]));
        assert_eq!(&bytes[object.value_offset() - object.key.len()..object.value_offset()], object.key);
    }
    if let Some(tombstone) = Tombstone::decode(bytes) {
        assert!(bytes.ends_with(tombstone.key));
    }
}

impl Property for Records {
    const NAME: &'static str = "records";
    const INPUT_BYTES_MAX: usize = 200;
    const MEMORY_BYTES_MAX: usize = 2 << 20;

    fn hold(self) {
        check_exactly_once(&self.0);
        check_store(&self.0);
    }

    fn seeds() -> Vec<Vec<u8>> {
        let records = [
            include_str!("../../exactly_once/golden/completion_record.hex"),
            include_str!("../../exactly_once/golden/expiry_floor.hex"),
            include_str!("../../exactly_once/golden/operation_key_record.hex"),
            include_str!("../../exactly_once/golden/operation_key_dropped.hex"),
        ];
        let entries = golden::lines(include_str!("../../store/golden/entries.hex")).map(|(_, entry)| entry);
        records.into_iter().map(golden::value).chain(entries).collect()
    }
}

const CLUSTER: ClusterId = ClusterId(0x1112_1314_1516_1718);
const SHARD: ShardId = ShardId(0x0102);

/// A file of marks: a replica's, a witness's mode, a core's ledger of witnesses. The last four bytes are its checksum,
/// which is put right or not.
#[derive(Debug)]
pub struct Marks(Vec<u8>);

impl<'a> Arbitrary<'a> for Marks {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let sealed = u.arbitrary()?;
        let mut bytes = draw::rest(u)?;
        if sealed && bytes.len() >= 4 {
            let end = bytes.len() - 4;
            let crc = crc32c::crc32c(&bytes[..end]);
            bytes[end..].copy_from_slice(&crc.to_le_bytes());
        }
        Ok(Self(bytes))
    }
}

impl Property for Marks {
    const NAME: &'static str = "marks";
    const INPUT_BYTES_MAX: usize = 90;
    const MEMORY_BYTES_MAX: usize = 2 << 20;

    fn hold(self) {
        let bytes = &self.0;
        let meta = match ReplicaMeta::decode(bytes, CLUSTER, SHARD) {
            Err(MetaError::Cluster(cluster)) => ReplicaMeta::decode(bytes, cluster, SHARD),
            other => other,
        };
        let meta = match meta {
            Err(MetaError::Shard(shard)) => {
                let cluster = u64::from_le_bytes(bytes[8..16].try_into().expect("8 bytes"));
                ReplicaMeta::decode(bytes, ClusterId(cluster), shard)
            }
            other => other,
        };
        if let Ok(meta) = meta {
            let mut again = Vec::new();
            meta.encode(&mut again);
            assert_eq!(&again, bytes);
        }
        if let Ok(mode) = Mode::decode(bytes) {
            assert_eq!(&mode.encode(), bytes);
        }
        let ledger = match Ledger::decode(CLUSTER, bytes) {
            Err(LoadError::OtherCluster(cluster)) => Ledger::decode(cluster, bytes),
            other => other,
        };
        if let Ok(ledger) = ledger {
            assert_eq!(&ledger.encode(), bytes);
        }
    }

    fn seeds() -> Vec<Vec<u8>> {
        let metas = golden::lines(include_str!("../../replication/golden/replica_meta.hex")).map(|(_, meta)| meta);
        let marks = golden::dumps(include_str!("../../witness/golden/marks.hex"));
        metas.chain(marks).flat_map(|file| [[&[0], &file[..]].concat(), [&[1], &file[..]].concat()]).collect()
    }
}
