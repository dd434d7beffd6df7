//! What a replica remembers beside its log. Replaced atomically and fsynced in every mode (R5.3).
//!
//! ```text
//! offset  bytes  field
//!      0      4  magic "KREP"
//!      4      1  format version
//!      5      1  flags: bit 0 intact, bit 1 complete
//!      6      2  shard
//!      8      8  cluster id
//!     16      4  promised epoch
//!     20      4  the term all of whose answers, and all earlier ones, the log holds; 0: none (R7.7)
//!     24      8  end that was surely acknowledged (a lower bound)
//!     32      8  offset at which a joiner's log begins
//!     40     16  boot id when the log was last known to be whole; 0: all of it was on the disk when the process ended
//!     56      8  configuration that made the newest set of members which this replica was one of (R9.13)
//!     64      4  CRC32C of bytes 0..64
//! ```

use kasha_types::{BootId, ClusterId, ConfigVersion, Epoch, LogEnd, ShardId};

const MAGIC: &[u8; 4] = b"KREP";
const FORMAT: u8 = 3;
const BYTES: usize = 68;
const CHECKED: usize = BYTES - 4;

/// A replica's durable marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaMeta {
    /// The shard of the log.
    pub shard: ShardId,
    /// The cluster of the shard.
    pub cluster: ClusterId,
    /// No message of a smaller epoch is obeyed. Only grows (F2).
    pub promised: Epoch,
    /// The log surely reached this far when it was acknowledged: an end below it means damage (R5.5).
    pub acknowledged: LogEnd,
    /// Where a joiner's log begins; older segments were copied. The start otherwise.
    pub base: LogEnd,
    /// The boot in which the log was last known to be whole; [`BootId::ENDED`] after an orderly end.
    pub boot: BootId,
    /// Whether it surely holds all that it acknowledged.
    pub intact: bool,
    /// Whether its older data is all there (R7.2).
    pub complete: bool,
    /// If this node was the primary of that term, and the term served: the log holds every update that was answered
    /// (R7.7). 0: nothing is known. Cleared before anything of such a term is cut.
    pub whole: Epoch,
    /// The configuration that made the newest set of members which this replica was one of: a coordinator whose memory is from
    /// before it would elect who has left (R9.13). Only grows.
    pub set: ConfigVersion,
}

/// Bytes that are no marks of this replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaError {
    /// Not ours, cut short, or with flipped bits.
    Damaged,
    /// Written by another version of this program.
    Format(u8),
    /// The file belongs to this other cluster.
    Cluster(ClusterId),
    /// The file belongs to this other shard.
    Shard(ShardId),
}

impl std::fmt::Display for MetaError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Damaged => write!(f, "the replica's marks are damaged"),
            Self::Format(format) => write!(f, "the replica's marks have format {format}, this version reads {FORMAT}"),
            Self::Cluster(cluster) => write!(f, "the replica belongs to {cluster}"),
            Self::Shard(shard) => write!(f, "the replica belongs to {shard}"),
        }
    }
}

impl std::error::Error for MetaError {}

impl ReplicaMeta {
    /// The marks of a replica that holds nothing and lacks nothing.
    #[must_use]
    pub fn fresh(cluster: ClusterId, shard: ShardId, boot: BootId) -> Self {
        Self {
            shard,
            cluster,
            promised: Epoch(0),
            acknowledged: LogEnd::START,
            base: LogEnd::START,
            boot,
            intact: true,
            complete: true,
            whole: Epoch(0),
            set: ConfigVersion(0),
        }
    }

    /// The process ends: all of the log is on the disk, and nothing is written any more.
    pub fn ended_cleanly(&mut self) {
        self.boot = BootId::ENDED;
    }

    /// Whether a loss of power may have taken part of the log, now that the machine runs in this boot.
    #[must_use]
    pub fn lost_power(&self, boot: BootId) -> bool {
        self.boot != boot && self.boot != BootId::ENDED
    }

    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&[FORMAT, u8::from(self.intact) | u8::from(self.complete) << 1]);
        out.extend_from_slice(&self.shard.0.to_le_bytes());
        out.extend_from_slice(&self.cluster.0.to_le_bytes());
        out.extend_from_slice(&self.promised.0.to_le_bytes());
        out.extend_from_slice(&self.whole.0.to_le_bytes());
        out.extend_from_slice(&self.acknowledged.0.to_le_bytes());
        out.extend_from_slice(&self.base.0.to_le_bytes());
        out.extend_from_slice(&self.boot.0.to_le_bytes());
        out.extend_from_slice(&self.set.0.to_le_bytes());
        let crc = kasha_types::crc32c(&out[start..]);
        out.extend_from_slice(&crc.to_le_bytes());
    }

    /// Reads the marks of one replica.
    ///
    /// # Errors
    /// If the bytes are something else.
    pub fn decode(bytes: &[u8], cluster: ClusterId, shard: ShardId) -> Result<Self, MetaError> {
        let bytes: &[u8; BYTES] = bytes.try_into().map_err(|_| MetaError::Damaged)?;
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let u32_at = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes"));
        if &bytes[..4] != MAGIC || kasha_types::crc32c(&bytes[..CHECKED]) != u32_at(CHECKED) {
            return Err(MetaError::Damaged);
        }
        if bytes[4] != FORMAT {
            return Err(MetaError::Format(bytes[4]));
        }
        if bytes[5] > 3 {
            return Err(MetaError::Damaged);
        }
        let meta = Self {
            shard: ShardId(u16::from_le_bytes([bytes[6], bytes[7]])),
            cluster: ClusterId(u64_at(8)),
            promised: Epoch(u32_at(16)),
            acknowledged: LogEnd(u64_at(24)),
            base: LogEnd(u64_at(32)),
            boot: BootId(u128::from_le_bytes(bytes[40..56].try_into().expect("16 bytes"))),
            intact: bytes[5] & 1 != 0,
            complete: bytes[5] & 2 != 0,
            whole: Epoch(u32_at(20)),
            set: ConfigVersion(u64_at(56)),
        };
        if meta.cluster != cluster {
            return Err(MetaError::Cluster(meta.cluster));
        }
        if meta.shard != shard {
            return Err(MetaError::Shard(meta.shard));
        }
        Ok(meta)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> ReplicaMeta {
        ReplicaMeta {
            promised: Epoch(7),
            acknowledged: LogEnd(99),
            base: LogEnd(8),
            intact: false,
            whole: Epoch(6),
            set: ConfigVersion(41),
            ..ReplicaMeta::fresh(ClusterId(5), ShardId(3), BootId(11))
        }
    }

    #[test]
    fn round_trip_and_flipped_bits() {
        let mut bytes = Vec::new();
        meta().encode(&mut bytes);
        assert_eq!(ReplicaMeta::decode(&bytes, ClusterId(5), ShardId(3)), Ok(meta()));
        assert_eq!(ReplicaMeta::decode(&bytes, ClusterId(6), ShardId(3)), Err(MetaError::Cluster(ClusterId(5))));
        assert_eq!(ReplicaMeta::decode(&bytes, ClusterId(5), ShardId(4)), Err(MetaError::Shard(ShardId(3))));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(ReplicaMeta::decode(&flipped, ClusterId(5), ShardId(3)), Err(MetaError::Damaged));
        }
        for len in 0..bytes.len() {
            assert_eq!(ReplicaMeta::decode(&bytes[..len], ClusterId(5), ShardId(3)), Err(MetaError::Damaged));
        }
    }
}
