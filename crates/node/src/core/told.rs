//! What the coordinator told this core, in a file of its own, and what the whole folder of the core knows (R9.13).
//!
//! A coordinator commits before it tells. So one that knows less than a folder does has lost its memory: its own folder was
//! lost, or is an older copy. A core says what its folder knows with each heartbeat.
//!
//! ```text
//! offset  bytes  field of `told.meta`
//!      0      4  magic "KTLD"
//!      4      1  format version
//!      5      3  reserved
//!      8      8  cluster id
//!     16      8  newest configuration that was obeyed
//!     24      8  every client id that was granted is below
//!     32      8  ClusterTime, at most [`TIME_NOTED_EVERY`] behind what was told
//!     40      4  CRC32C of bytes 0..40
//! ```
//!
//! The file is written before anything is answered that follows from what was told. It is replaced atomically and
//! fsynced (R5.3). A damaged file counts as none: it can only make this core accuse a coordinator less.

use std::time::Duration;

use kasha_machine::{Disk, FileName};
use kasha_types::{ClientId, ClusterId, ClusterTime, ConfigVersion};

use crate::StartError;

const MAGIC: &[u8; 4] = b"KTLD";
const FORMAT: u8 = 1;
const BYTES: usize = 44;

/// ClusterTime grows all the time, and each note costs an fsync.
pub(crate) const TIME_NOTED_EVERY: Duration = Duration::from_secs(60);

/// The content of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    pub configuration: ConfigVersion,
    pub clients_below: ClientId,
    /// ClusterTime was at least this when the file was written.
    pub cluster_time: ClusterTime,
}

impl Told {
    /// Reads the file, if there is one.
    pub fn load(cluster: ClusterId, disk: &dyn Disk) -> Result<Self, StartError> {
        let bytes = disk.read(FileName::Told).map_err(|error| StartError::Read(FileName::Told, error))?;
        Ok(bytes.and_then(|bytes| Self::decode(cluster, &bytes)).unwrap_or_default())
    }

    pub fn encode(&self, cluster: ClusterId) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&[FORMAT, 0, 0, 0]);
        for number in [cluster.0, self.configuration.0, self.clients_below.0, self.cluster_time.0] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let crc = kasha_types::crc32c(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(cluster: ClusterId, bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; BYTES] = bytes.try_into().ok()?;
        let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let told = Self {
            configuration: ConfigVersion(u64_at(16)),
            clients_below: ClientId(u64_at(24)),
            cluster_time: ClusterTime(u64_at(32)),
        };
        (told.encode(cluster) == bytes).then_some(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_comes_back_and_damage_counts_as_nothing() {
        let told =
            Told { configuration: ConfigVersion(7), clients_below: ClientId(2049), cluster_time: ClusterTime(123_456) };
        let bytes = told.encode(ClusterId(5));
        assert_eq!(bytes.len(), BYTES);
        assert_eq!(Told::decode(ClusterId(5), &bytes), Some(told));
        assert_eq!(Told::decode(ClusterId(6), &bytes), None, "another cluster's");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Told::decode(ClusterId(5), &flipped), None);
        }
    }
}
