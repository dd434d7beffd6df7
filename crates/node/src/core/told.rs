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
//!     40      2  level of the cluster
//!     42      1  members of the coordinator's group, if there are several
//!     43      …  each: id (8), family of its address (4 or 6), address (4 or 16), port (2)
//!      …      4  CRC32C of all before
//! ```
//!
//! A core that starts asks these members, too: the addresses with which the process was started may be of members that are gone.
//! Format 1 has no level and no members. A program that cannot work at the level does not start (R7.6).
//!
//! The file is written before anything is answered that follows from what was told. It is replaced atomically and
//! fsynced (R5.3). A damaged file counts as none: it can only make this core accuse a coordinator less.

use std::net::SocketAddr;
use std::time::Duration;

use kasha_machine::{Disk, FileName};
use kasha_types::{ClientId, ClusterId, ClusterTime, ConfigVersion, MemberId};
use kasha_wire::{Configuration, DecodeError, Level, Reader, Wire};

use crate::StartError;

const MAGIC: &[u8; 4] = b"KTLD";
const FORMAT: u8 = 2;
/// The format before, which has no members.
const FORMAT_WITHOUT_MEMBERS: u8 = 1;
const CRC_BYTES: usize = 4;

/// ClusterTime grows all the time, and each note costs an fsync.
pub(crate) const TIME_NOTED_EVERY: Duration = Duration::from_secs(60);

/// The content of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    pub configuration: ConfigVersion,
    pub clients_below: ClientId,
    /// ClusterTime was at least this when the file was written.
    pub cluster_time: ClusterTime,
    /// The level of the cluster.
    pub level: Level,
    /// The members of the coordinator's group in that configuration, and where they are; none if the coordinator is alone.
    pub members: Vec<(MemberId, SocketAddr)>,
}

/// A core that was told nothing yet.
impl Default for Told {
    fn default() -> Self {
        let (configuration, clients_below) = (ConfigVersion(0), ClientId(0));
        Self { configuration, clients_below, cluster_time: ClusterTime(0), level: Level::FIRST, members: Vec::new() }
    }
}

/// The members of the coordinator's group, as the file names them.
pub(crate) fn members_of(configuration: &Configuration) -> Vec<(MemberId, SocketAddr)> {
    let members = configuration.group.iter().map(|of| (of.member, of.address));
    if configuration.group.len() > 1 { members.collect() } else { Vec::new() }
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
            number.put(&mut bytes);
        }
        self.level.put(&mut bytes);
        u8::try_from(self.members.len()).expect("a few members").put(&mut bytes);
        for (member, address) in &self.members {
            member.put(&mut bytes);
            address.put(&mut bytes);
        }
        kasha_types::crc32c(&bytes).put(&mut bytes);
        bytes
    }

    fn decode(cluster: ClusterId, bytes: &[u8]) -> Option<Self> {
        let (checked, crc) = bytes.split_at_checked(bytes.len().checked_sub(CRC_BYTES)?)?;
        if kasha_types::crc32c(checked).to_le_bytes() != crc {
            return None;
        }
        Self::take(cluster, &mut Reader::new(checked)).ok()?
    }

    /// `None`: another file, another format, or another cluster's.
    fn take(cluster: ClusterId, from: &mut Reader<'_>) -> Result<Option<Self>, DecodeError> {
        let is_ours = from.bytes(MAGIC.len())? == MAGIC;
        let format = from.take::<u8>()?;
        from.reserved(3)?;
        if !is_ours || ![FORMAT, FORMAT_WITHOUT_MEMBERS].contains(&format) || from.take::<u64>()? != cluster.0 {
            return Ok(None);
        }
        let (configuration, clients_below, cluster_time) = (from.take()?, from.take()?, from.take()?);
        let (level, count) = if format == FORMAT { (from.take()?, from.take::<u8>()?) } else { (Level::FIRST, 0) };
        let members = (0..count).map(|_| Ok((from.take()?, from.take()?))).collect::<Result<_, DecodeError>>()?;
        Ok(from.rest().is_empty().then_some(Self { configuration, clients_below, cluster_time, level, members }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_comes_back_and_damage_counts_as_nothing() {
        let members = vec![
            (MemberId(1), SocketAddr::from(([10, 0, 0, 1], 8401))),
            (MemberId(4), SocketAddr::from(([0u16, 0, 0, 0, 0, 0, 0, 1], 8402))),
        ];
        let told = Told {
            configuration: ConfigVersion(7),
            clients_below: ClientId(2049),
            cluster_time: ClusterTime(123_456),
            level: Level(3),
            members,
        };
        let bytes = told.encode(ClusterId(5));
        assert_eq!(Told::decode(ClusterId(5), &bytes), Some(told));
        assert_eq!(Told::decode(ClusterId(6), &bytes), None, "another cluster's");
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Told::decode(ClusterId(5), &flipped), None);
        }
        for len in 0..bytes.len() {
            assert_eq!(Told::decode(ClusterId(5), &bytes[..len]), None, "{len} bytes");
        }
    }

    #[test]
    fn the_format_before_is_read() {
        let mut bytes = b"KTLD\x01\0\0\0".to_vec();
        [5, 7, 2049, 123_456u64].iter().for_each(|number| number.put(&mut bytes));
        kasha_types::crc32c(&bytes).put(&mut bytes);
        assert_eq!(bytes.len(), 44);
        let told = Told::decode(ClusterId(5), &bytes).expect("a file of format 1");
        assert_eq!((told.configuration, told.cluster_time), (ConfigVersion(7), ClusterTime(123_456)));
        assert_eq!((told.level, told.members), (Level::FIRST, vec![]));
    }
}
