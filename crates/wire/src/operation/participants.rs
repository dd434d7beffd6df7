//! The participants of a transaction over several shards. The list stands before the transaction's parts, which are grouped by
//! participant in the list's order:
//!
//! ```text
//! 0  u16  number of participants, from 2
//! 2  so many times: u16 shard, ascending │ u16 number of its parts, from 1
//! ```

use kasha_types::ShardId;
use kasha_types::limits::PARTICIPANTS_MAX;

use super::{Parts, Update};
use crate::{DecodeError, Reader};

const ITEM_BYTES: usize = 4;

/// The shards that take part, and how many of the parts are whose. Still encoded, and checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Participants<'a>(&'a [u8]);

impl<'a> Participants<'a> {
    /// Takes the list, and the transaction's arguments behind it.
    #[cold]
    #[inline(never)]
    pub(crate) fn decode_before(bytes: &'a [u8], transaction: u8) -> Result<(Self, Update<'a>), DecodeError> {
        let mut reader = Reader::new(bytes);
        let count = usize::from(reader.take::<u16>()?);
        if count < 2 {
            return Err(DecodeError::Invalid("the number of participants"));
        }
        if count > PARTICIPANTS_MAX {
            return Err(DecodeError::TooLarge("the number of participants"));
        }
        let list = Self(reader.bytes(count * ITEM_BYTES)?);
        if !list.iter().is_sorted_by(|(one, _), (next, _)| one < next) {
            return Err(DecodeError::Invalid("the order of participants"));
        }
        let update = Update::decode(transaction, reader.rest())?;
        let Update::Transaction { parts } = update else { unreachable!("the code of a transaction") };
        let are_shared = list.iter().map(|(_, parts)| parts).sum::<u32>() == parts.count();
        if !are_shared || list.iter().any(|(_, parts)| parts == 0) {
            return Err(DecodeError::Invalid("the number of a participant's parts"));
        }
        Ok((list, update))
    }

    /// The list before a transaction that [`Self::decode_before`] has taken.
    pub(crate) fn before_decoded(bytes: &'a [u8]) -> Self {
        let count = usize::from(u16::from_le_bytes([bytes[0], bytes[1]]));
        Self(&bytes[2..2 + count * ITEM_BYTES])
    }

    /// Each participant, and how many parts are its own.
    pub fn iter(&self) -> impl Iterator<Item = (ShardId, u32)> + use<'a> {
        let number = |bytes: &[u8]| u16::from_le_bytes([bytes[0], bytes[1]]);
        self.0.chunks_exact(ITEM_BYTES).map(move |item| (ShardId(number(item)), u32::from(number(&item[2..]))))
    }

    /// A participant's own among all parts.
    #[must_use]
    pub fn parts_of(&self, shard: ShardId, parts: Parts<'a>) -> Option<Parts<'a>> {
        let mut before = 0;
        for (participant, count) in self.iter() {
            if participant == shard {
                return Some(parts.slice(before, count));
            }
            before += count;
        }
        None
    }
}

/// Builds the list of participants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ParticipantsBuffer {
    count: u16,
    bytes: Vec<u8>,
}

impl ParticipantsBuffer {
    /// One more participant, with so many parts. Participants come in ascending order.
    pub fn push(&mut self, shard: ShardId, parts: u16) {
        self.count += 1;
        self.bytes.extend_from_slice(&shard.0.to_le_bytes());
        self.bytes.extend_from_slice(&parts.to_le_bytes());
    }

    /// Appends the list, as it stands in a body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.count.to_le_bytes());
        out.extend_from_slice(&self.bytes);
    }
}
