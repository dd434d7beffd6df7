//! What a shard's log says of transactions over several shards, by its documented layout (docs/log.md).

use kasha_types::{ClientId, RpcId, Sequence, ShardId};

use crate::checkers::records::word;

/// Kind of an entry with which a shard proposes a timestamp for a transaction over several shards.
pub(crate) const PROPOSED_ENTRY: u8 = 32;
/// Kind of an entry with a shard's outcome of a transaction over several shards.
pub(crate) const ENDED_ENTRY: u8 = 33;
/// Kind of an entry that says which transactions are needed no more.
pub(crate) const FORGOTTEN_ENTRY: u8 = 35;
/// Where the body of a proposal begins with the id of the request.
pub(crate) const PROPOSED_RPC: usize = 25;
/// Where the id of an outcome stands.
pub(crate) const ENDED_RPC: usize = 9;
/// Where an outcome says how the transaction ended.
const ENDED_HOW: usize = 33;

/// A shard's outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) number: u64,
    pub(crate) rpc: RpcId,
    /// The timestamp at which the transaction was executed; `None`: it is not executed.
    pub(crate) executed: Option<u64>,
    /// The checksum of the request's body. A client may ask different things of different shards under one id.
    pub(crate) body: u64,
    pub(crate) participants: Vec<ShardId>,
    /// Hashes of keys that are only read.
    pub(crate) reads: Vec<u64>,
    /// Hashes of keys that are written.
    pub(crate) writes: Vec<u64>,
}

/// Reads one field after another.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn number(&mut self, len: usize) -> Option<u64> {
        let (field, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        let mut bytes = [0; 8];
        bytes[..len].copy_from_slice(field);
        Some(u64::from_le_bytes(bytes))
    }

    fn list(&mut self, len: usize) -> Option<Vec<u64>> {
        let count = self.number(4)?;
        (0..count).map(|_| self.number(len)).collect()
    }
}

/// The request id at this offset.
pub(crate) fn rpc_at(record: &[u8], at: usize) -> Option<RpcId> {
    Some(RpcId { client: ClientId(word(record, at)?), sequence: Sequence(word(record, at + 8)?) })
}

/// Whether an outcome says that the transaction was executed.
pub(crate) fn is_executed(ended: &[u8]) -> Option<bool> {
    Some(*ended.get(ENDED_HOW)? == 1)
}

/// Reads an outcome.
pub(crate) fn ended(record: &[u8]) -> Option<Ended> {
    let mut fields = Fields(record.get(ENDED_HOW + 1..)?);
    let (at, _coordinated, body) = (fields.number(8)?, fields.number(1)?, fields.number(8)?);
    let shard = |shard| ShardId(u16::try_from(shard).expect("two bytes"));
    Some(Ended {
        number: word(record, 1)?,
        rpc: rpc_at(record, ENDED_RPC)?,
        executed: is_executed(record)?.then_some(at),
        body,
        participants: fields.list(2)?.into_iter().map(shard).collect(),
        reads: fields.list(8)?,
        writes: fields.list(8)?,
    })
}

/// The number below which transactions are needed no more, and those that still are.
pub(crate) fn forgotten(record: &[u8]) -> Option<(u64, Vec<u64>)> {
    let mut fields = Fields(record.get(1..)?);
    Some((fields.number(8)?, fields.list(8)?))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A log group with one entry.
    pub(crate) fn group(kind: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; 48];
        bytes[..2].copy_from_slice(b"GK");
        let len = u32::try_from(payload.len()).expect("short");
        bytes[4..8].copy_from_slice(&(8 + len.next_multiple_of(8)).to_le_bytes());
        bytes.extend_from_slice(&[kind, 0, 0, 0]);
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(payload);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    impl Ended {
        /// The outcome of the client's transaction with this sequence, at shards 0 and 1.
        pub(crate) fn of(sequence: u64, executed: Option<u64>) -> Self {
            let rpc = RpcId { client: ClientId(7), sequence: Sequence(sequence) };
            let participants = vec![ShardId(0), ShardId(1)];
            Self { number: sequence, rpc, executed, body: 3, participants, reads: vec![], writes: vec![] }
        }

        /// The entry of the log.
        pub(crate) fn encode(&self) -> Vec<u8> {
            let mut record = vec![1];
            for field in [self.number, self.rpc.client.0, self.rpc.sequence.0, 0] {
                record.extend_from_slice(&field.to_le_bytes());
            }
            record.push(if self.executed.is_some() { 1 } else { 2 });
            record.extend_from_slice(&self.executed.unwrap_or_default().to_le_bytes());
            record.push(0);
            record.extend_from_slice(&self.body.to_le_bytes());
            let count = |record: &mut Vec<u8>, count| record.extend_from_slice(&u32::to_le_bytes(count));
            count(&mut record, 2);
            self.participants.iter().for_each(|shard| record.extend_from_slice(&shard.0.to_le_bytes()));
            for keys in [&self.reads, &self.writes] {
                count(&mut record, u32::try_from(keys.len()).expect("few"));
                keys.iter().for_each(|key| record.extend_from_slice(&key.to_le_bytes()));
            }
            count(&mut record, 0);
            group(ENDED_ENTRY, &record)
        }
    }

    #[test]
    fn an_outcome_is_read_as_the_log_documents_it() {
        let written = Ended { reads: vec![5], writes: vec![6, 7], ..Ended::of(9, Some(4)) };
        let mut read = None;
        crate::checkers::records::entries_in(&written.encode(), |_, entry| read = ended(entry));
        assert_eq!(read, Some(written));
        assert_eq!(ended(&[1; 40]), None);
        assert_eq!(forgotten(&[1, 9, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0]), Some((9, vec![8])));
    }
}
