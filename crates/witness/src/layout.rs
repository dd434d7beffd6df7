//! The witness file, byte by byte. All numbers are little-endian; what is not named is zero.
//!
//! ```text
//! block 0    0 magic  8 format u32  12 slots u32  16 cluster u64  24 list u64  32 shard u16  34 ways u8  40 crc32c of 0..40
//! block 1+i  0 crc32c  4 state u8  5 key index u8  6 keys u8  8 body bytes u16
//!            16 key hash u64  24 client u64  32 sequence u64  40 lease expiry u64  64 body
//! ```
//!
//! A slot has a 4 KiB block to itself although it needs 2112 bytes: a write torn by a loss of power can then spoil only
//! the slot being written, which nobody was told of, and never a neighbour that was acknowledged. In memory slots lie
//! 2112 bytes apart. A slot's checksum starts from the identity in block 0 and the slot's number, so that bytes of
//! another instance or another place are never taken for its own. An empty slot is a zeroed header, which is also what
//! a newly preallocated file contains.

use std::fmt;

use kasha_types::limits::{WITNESS_BODY_BYTES_MAX, WITNESS_SLOTS, WITNESS_WAYS};
use kasha_types::{ClientId, ClusterId, ClusterTime, KeyHash, ListVersion, RpcId, Sequence, ShardId};

use crate::limits::{REQUEST_KEYS_MAX, SLOTS_MAX, WAYS_MAX};

/// Version of the file's layout.
pub const FORMAT_VERSION: u32 = 3;

/// Bytes before the first slot.
pub const FILE_HEADER_BYTES: usize = 4096;

/// Bytes from one slot to the next on file.
pub const FILE_SLOT_BYTES: usize = 4096;

pub(crate) const SLOT_HEADER_BYTES: usize = 64;
pub(crate) const MEMORY_SLOT_BYTES: usize = SLOT_HEADER_BYTES + WITNESS_BODY_BYTES_MAX;
pub(crate) const EMPTY_SLOT: [u8; SLOT_HEADER_BYTES] = [0; SLOT_HEADER_BYTES];

const MAGIC: [u8; 8] = *b"kashawit";
const HELD: u8 = 1;
const IDENTITY_BYTES: usize = 40;

const _: () = assert!(MEMORY_SLOT_BYTES <= FILE_SLOT_BYTES && WITNESS_BODY_BYTES_MAX <= u16::MAX as usize);
const _: () = assert!(REQUEST_KEYS_MAX <= u8::MAX as usize);

/// Whose requests an instance holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The cluster of the shard.
    pub cluster: ClusterId,
    /// The shard whose updates are recorded.
    pub shard: ShardId,
    /// The version of the shard's witness list.
    pub list: ListVersion,
}

/// How large an instance is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    slots: u32,
    ways: u8,
}

impl Sizes {
    /// `slots` slots in sets of `ways`.
    ///
    /// # Panics
    /// Unless `slots / ways` is a power of two without remainder, within [`SLOTS_MAX`] and [`WAYS_MAX`].
    #[must_use]
    pub fn new(slots: u32, ways: u8) -> Self {
        assert!(slots <= SLOTS_MAX && (1..=WAYS_MAX).contains(&ways), "{slots} slots, {ways} ways");
        assert!(
            slots.is_multiple_of(u32::from(ways)) && (slots / u32::from(ways)).is_power_of_two(),
            "{slots} / {ways}"
        );
        Self { slots, ways }
    }

    /// Slots in all.
    #[must_use]
    pub fn slots(self) -> u32 {
        self.slots
    }

    /// Slots of one set.
    #[must_use]
    pub fn ways(self) -> u8 {
        self.ways
    }

    /// Sets: a power of two.
    #[must_use]
    pub fn sets(self) -> u32 {
        self.slots / u32::from(self.ways)
    }

    /// Bytes of the file, which is to be preallocated (zeroed) at this length.
    #[must_use]
    pub fn file_bytes(self) -> u64 {
        FILE_HEADER_BYTES as u64 + u64::from(self.slots) * FILE_SLOT_BYTES as u64
    }
}

impl Default for Sizes {
    /// 4096 slots, 4 ways (CURP 5.2, C.2).
    fn default() -> Self {
        Self::new(WITNESS_SLOTS as u32, WITNESS_WAYS as u8)
    }
}

/// Why a file is not this instance's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadError {
    /// Not a witness file.
    ForeignMagic,
    /// Written by another version of the layout.
    OtherFormat(u32),
    /// The header block's checksum is wrong.
    CorruptHeader,
    /// The file belongs to another cluster.
    OtherCluster(ClusterId),
    /// The file belongs to another shard.
    OtherShard(ShardId),
    /// The file belongs to another list version.
    OtherList(ListVersion),
    /// Other sizes than asked for.
    OtherSizes {
        /// The file's slots.
        slots: u32,
        /// The file's ways.
        ways: u8,
    },
    /// Shorter or longer than its sizes say. A file is preallocated before its instance accepts anything, so a short
    /// one either was never in service or has lost requests; neither may serve.
    WrongLength {
        /// The file's length.
        bytes: u64,
        /// The length that its sizes demand.
        expected: u64,
    },
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ForeignMagic => write!(f, "not a witness file"),
            Self::OtherFormat(format) => write!(f, "witness file of format {format}, expected {FORMAT_VERSION}"),
            Self::CorruptHeader => write!(f, "the witness file's header is corrupt"),
            Self::OtherCluster(cluster) => write!(f, "the witness file belongs to {cluster}"),
            Self::OtherShard(shard) => write!(f, "the witness file belongs to {shard}"),
            Self::OtherList(list) => write!(f, "the witness file belongs to {list}"),
            Self::OtherSizes { slots, ways } => write!(f, "the witness file has {slots} slots in {ways} ways"),
            Self::WrongLength { bytes, expected } => write!(f, "the witness file has {bytes} bytes, not {expected}"),
        }
    }
}

impl std::error::Error for LoadError {}

/// A slot's header, without its checksum and its body's length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotHeader {
    pub(crate) hash: KeyHash,
    pub(crate) rpc: RpcId,
    pub(crate) lease_expiry: ClusterTime,
    /// Which of the request's keys this slot stands for, from 0.
    pub(crate) key_index: u8,
    /// How many keys, and so slots, the request has.
    pub(crate) keys: u8,
}

pub(crate) enum SlotContent<'a> {
    Empty,
    Held(SlotHeader, &'a [u8]),
    Torn,
}

fn identity_bytes(identity: Identity, sizes: Sizes) -> [u8; IDENTITY_BYTES] {
    let mut bytes = [0; IDENTITY_BYTES];
    bytes[0..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&FORMAT_VERSION.to_le_bytes());
    bytes[12..16].copy_from_slice(&sizes.slots.to_le_bytes());
    bytes[16..24].copy_from_slice(&identity.cluster.0.to_le_bytes());
    bytes[24..32].copy_from_slice(&identity.list.0.to_le_bytes());
    bytes[32..34].copy_from_slice(&identity.shard.0.to_le_bytes());
    bytes[34] = sizes.ways;
    bytes
}

/// The checksum that every slot's starts from.
pub(crate) fn identity_crc(identity: Identity, sizes: Sizes) -> u32 {
    kasha_types::crc32c(&identity_bytes(identity, sizes))
}

pub(crate) fn encode_file_header(identity: Identity, sizes: Sizes) -> [u8; FILE_HEADER_BYTES] {
    let mut block = [0; FILE_HEADER_BYTES];
    block[..IDENTITY_BYTES].copy_from_slice(&identity_bytes(identity, sizes));
    block[IDENTITY_BYTES..IDENTITY_BYTES + 4].copy_from_slice(&identity_crc(identity, sizes).to_le_bytes());
    block
}

/// Checks that `file` is this instance's.
pub(crate) fn check_file(identity: Identity, sizes: Sizes, file: &[u8]) -> Result<(), LoadError> {
    let wrong_length = LoadError::WrongLength { bytes: file.len() as u64, expected: sizes.file_bytes() };
    let Some(header) = file.get(..FILE_HEADER_BYTES) else { return Err(wrong_length) };
    if header[..8] != MAGIC {
        return Err(LoadError::ForeignMagic);
    }
    // The checksum first, whatever the format: a changed bit there is damage, not another version's file.
    if kasha_types::crc32c(&header[..IDENTITY_BYTES]) != u32_at(header, IDENTITY_BYTES) {
        return Err(LoadError::CorruptHeader);
    }
    let format = u32_at(header, 8);
    if format != FORMAT_VERSION {
        return Err(LoadError::OtherFormat(format));
    }
    let found = Identity {
        cluster: ClusterId(u64_at(header, 16)),
        list: ListVersion(u64_at(header, 24)),
        shard: ShardId(u16_at(header, 32)),
    };
    if found.cluster != identity.cluster {
        return Err(LoadError::OtherCluster(found.cluster));
    }
    if found.shard != identity.shard {
        return Err(LoadError::OtherShard(found.shard));
    }
    if found.list != identity.list {
        return Err(LoadError::OtherList(found.list));
    }
    let (slots, ways) = (u32_at(header, 12), header[34]);
    if (slots, ways) != (sizes.slots, sizes.ways) {
        return Err(LoadError::OtherSizes { slots, ways });
    }
    if file.len() as u64 != sizes.file_bytes() {
        return Err(wrong_length);
    }
    Ok(())
}

/// Writes a held slot's header and body to the start of `slot`.
pub(crate) fn encode_slot(identity_crc: u32, number: u32, header: &SlotHeader, body: &[u8], slot: &mut [u8]) {
    let (head, rest) = slot.split_at_mut(SLOT_HEADER_BYTES);
    rest[..body.len()].copy_from_slice(body);
    head.fill(0);
    head[4] = HELD;
    head[5] = header.key_index;
    head[6] = header.keys;
    head[8..10].copy_from_slice(&u16::try_from(body.len()).expect("judged before").to_le_bytes());
    head[16..24].copy_from_slice(&header.hash.0.to_le_bytes());
    head[24..32].copy_from_slice(&header.rpc.client.0.to_le_bytes());
    head[32..40].copy_from_slice(&header.rpc.sequence.0.to_le_bytes());
    head[40..48].copy_from_slice(&header.lease_expiry.0.to_le_bytes());
    let crc = slot_crc(identity_crc, number, &slot[4..SLOT_HEADER_BYTES + body.len()]);
    slot[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Reads a slot of the file.
pub(crate) fn decode_slot(identity_crc: u32, number: u32, slot: &[u8]) -> SlotContent<'_> {
    if slot[..SLOT_HEADER_BYTES] == EMPTY_SLOT {
        return SlotContent::Empty;
    }
    let (key_index, keys, body_len) = (slot[5], slot[6], usize::from(u16_at(slot, 8)));
    let sound = slot[4] == HELD
        && body_len <= WITNESS_BODY_BYTES_MAX
        && usize::from(keys) <= REQUEST_KEYS_MAX
        && key_index < keys
        && slot_crc(identity_crc, number, &slot[4..SLOT_HEADER_BYTES + body_len]) == u32_at(slot, 0);
    if !sound {
        return SlotContent::Torn;
    }
    let header = SlotHeader {
        hash: KeyHash(u64_at(slot, 16)),
        rpc: RpcId { client: ClientId(u64_at(slot, 24)), sequence: Sequence(u64_at(slot, 32)) },
        lease_expiry: ClusterTime(u64_at(slot, 40)),
        key_index,
        keys,
    };
    SlotContent::Held(header, &slot[SLOT_HEADER_BYTES..SLOT_HEADER_BYTES + body_len])
}

fn slot_crc(identity_crc: u32, number: u32, bytes: &[u8]) -> u32 {
    kasha_types::crc32c_append(kasha_types::crc32c_append(identity_crc, &number.to_le_bytes()), bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
