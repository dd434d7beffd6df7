//! Whether bytes from a file or a peer are groups. Nothing here panics on any input, and nothing passes that the rest
//! of the crate could stumble over: what is in a log has gone through here or was written by [`crate::GroupWriter`].

use kasha_types::planted::{self, Bug};
use kasha_types::{ENTRY_HEADER_BYTES, EntryOffset, Epoch, SegmentId};

use crate::format::{
    ALIGN, EntryKind, FORMAT_VERSION, GROUP_HEADER_BYTES, GroupHeader, GroupStart, MAGIC, checksum_holds, u16_at,
    u32_at,
};
use crate::history::Digest;

/// Why bytes are not a group that belongs where they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupFault {
    /// The bytes end before the group does.
    Torn,
    /// No group begins here.
    Magic,
    /// Written by another version of this program.
    Version(u16),
    /// The bytes are not those that were written.
    Checksum,
    /// A whole group of another place.
    Misplaced {
        /// The offset that it names.
        names: u64,
    },
    /// A whole group that does not follow the one before it.
    Predecessor {
        /// The group that it names.
        names: GroupStart,
    },
    /// A whole group that no correct primary writes.
    Malformed(&'static str),
}

impl GroupFault {
    /// Whether a write that a crash cut short can look like this. Anything else was written whole, and is evidence of
    /// damage or of another program.
    pub(crate) fn is_unreadable(self) -> bool {
        match self {
            Self::Torn | Self::Magic | Self::Checksum => true,
            Self::Version(_) | Self::Misplaced { .. } | Self::Predecessor { .. } | Self::Malformed(_) => false,
        }
    }
}

/// What must be true of groups that come from elsewhere, besides that they are whole: they are kept, and replayed by
/// code that takes them for its own.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// The epoch in which they were sent: nobody knows of a later one.
    pub epoch_max: Epoch,
    /// Whether an entry's payload is what the owner of its kind writes. Of a digest and of a freed segment the log knows it.
    pub is_sound: fn(EntryKind, &[u8]) -> bool,
}

impl Screen {
    /// Lets every epoch and every payload through.
    pub const NONE: Self = Self { epoch_max: Epoch(u32::MAX), is_sound: |_, _| true };
}

/// One entry of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry<'a> {
    /// The kind of the entry, which says who owns it.
    pub kind: EntryKind,
    /// Its bytes, meaningful to the owner of the kind.
    pub payload: &'a [u8],
}

/// Entries of one verified group, in order.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    rest: &'a [u8],
    offset: u64,
}

impl<'a> Entries<'a> {
    /// `payload` must have been verified; `offset` is where it lies.
    pub(crate) fn new(payload: &'a [u8], offset: u64) -> Self {
        Self { rest: payload, offset }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (EntryOffset, Entry<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (at, rest) = (self.offset, self.rest);
        let entry = read_entry(rest);
        let len = crate::format::entry_bytes(entry.payload.len());
        self.rest = &rest[len..];
        self.offset += len as u64;
        Some((EntryOffset(at), entry))
    }
}

/// The entry at the start of verified bytes.
pub(crate) fn read_entry(bytes: &[u8]) -> Entry<'_> {
    let kind = EntryKind::from_u8(bytes[0]).expect("an entry begins here");
    let payload = &bytes[ENTRY_HEADER_BYTES as usize..][..u32_at(bytes, 4) as usize];
    Entry { kind, payload }
}

/// Whether the group that begins `bytes`, the last of a file, was written from its front and not to its end: a killed process
/// leaves that. A loss of power may leave any part of what was not fsynced.
pub(crate) fn is_cut_short(bytes: &[u8], offset: u64, segment_bytes: u32) -> bool {
    if bytes.len() < GROUP_HEADER_BYTES as usize {
        return true;
    }
    let header = GroupHeader::read(bytes);
    let len = u64::from(GROUP_HEADER_BYTES) + u64::from(header.payload_len);
    let room = u64::from(segment_bytes) - offset % u64::from(segment_bytes);
    let is_version = u16_at(bytes, 2) == FORMAT_VERSION;
    let is_ours = u16_at(bytes, 0) == MAGIC && is_version && header.offset == offset;
    is_ours && (bytes.len() as u64) < len && len <= room
}

/// Checks the group that should begin `bytes`, at `offset` of the log. Its chain to the group before is the caller's.
/// Says also whether it holds entries of the log's own kinds.
pub(crate) fn check_group(
    bytes: &[u8],
    offset: u64,
    segment_bytes: u32,
    screen: Screen,
) -> Result<(GroupHeader, bool), GroupFault> {
    if bytes.len() < GROUP_HEADER_BYTES as usize {
        return Err(GroupFault::Torn);
    }
    if u16_at(bytes, 0) != MAGIC {
        return Err(GroupFault::Magic);
    }
    match u16_at(bytes, 2) {
        FORMAT_VERSION => {}
        0 => return Err(GroupFault::Torn), // no version has this number: the header's page never reached the file
        version => return Err(GroupFault::Version(version)),
    }
    let header = GroupHeader::read(bytes);
    let len = GROUP_HEADER_BYTES as usize + header.payload_len as usize;
    if len > bytes.len() {
        return Err(GroupFault::Torn);
    }
    if !checksum_holds(&bytes[..len]) && !planted::is_on(Bug::TornTailAccepted) {
        return Err(GroupFault::Checksum);
    }
    if header.offset != offset {
        return Err(GroupFault::Misplaced { names: header.offset });
    }
    let own_kinds = check_shape(&header, &bytes[..len], segment_bytes, screen).map_err(GroupFault::Malformed)?;
    Ok((header, own_kinds))
}

/// Whether the group at `offset` of our own log is still what was written there. `bytes` begin with the group. Its shape
/// was checked before the log took it, so the checksum says all but what it does not cover. `None`: memory is damaged.
pub(crate) fn check_own_group(bytes: &[u8], offset: u64) -> Option<GroupHeader> {
    let header = GroupHeader::read(bytes.get(..GROUP_HEADER_BYTES as usize)?);
    let begins = u16_at(bytes, 0) == MAGIC && u16_at(bytes, 2) == FORMAT_VERSION;
    let len = (GROUP_HEADER_BYTES as usize).checked_add(header.payload_len as usize)?;
    let checksum_holds = checksum_holds(bytes.get(..len)?) || planted::is_on(Bug::DamageCopied);
    let is_whole = begins && checksum_holds && header.offset == offset;
    is_whole.then_some(header)
}

fn check_shape(header: &GroupHeader, group: &[u8], segment_bytes: u32, screen: Screen) -> Result<bool, &'static str> {
    let segment_bytes = u64::from(segment_bytes);
    let (segment, within) = (header.offset / segment_bytes, header.offset % segment_bytes);
    let segment = SegmentId(u32::try_from(segment).map_err(|_| "segment number above 32 bits")?);
    if !header.payload_len.is_multiple_of(ALIGN) || !GroupHeader::flags_are_known(group) {
        return Err("padding or flags");
    }
    if within + u64::from(header.len()) > segment_bytes {
        return Err("group leaves its segment");
    }
    let previous_segment = match (header.offset, within) {
        (0, _) if header.previous == GroupStart::default() => 0,
        (0, _) => return Err("something before the first group"),
        (_, 0) => u64::from(segment.0) - 1,
        _ => u64::from(segment.0),
    };
    let previous = header.previous;
    if header.offset > 0 && (previous.offset >= header.offset || previous.offset / segment_bytes != previous_segment) {
        return Err("predecessor is not just before");
    }
    if previous.epoch > header.epoch {
        return Err("epoch goes back");
    }
    if header.epoch > screen.epoch_max {
        return Err("a later epoch than its sender's");
    }
    check_entries(header, &group[GROUP_HEADER_BYTES as usize..], (segment, within == 0), screen.is_sound)
}

fn check_entries(
    header: &GroupHeader,
    payload: &[u8],
    (segment, first_group): (SegmentId, bool),
    is_sound: fn(EntryKind, &[u8]) -> bool,
) -> Result<bool, &'static str> {
    let (mut at, mut count, mut own_kinds) = (0, 0_u32, false);
    while at < payload.len() {
        let entry = &payload[at..];
        let head = entry.first_chunk::<{ ENTRY_HEADER_BYTES as usize }>().ok_or("entry leaves its group")?;
        let kind = EntryKind::from_u8(head[0]).ok_or("unknown kind of entry")?;
        if head[1..4] != [0; 3] {
            return Err("reserved bytes of an entry");
        }
        let len = u32_at(head, 4) as usize;
        let whole = crate::format::entry_bytes(len);
        let body = entry.get(ENTRY_HEADER_BYTES as usize..whole).ok_or("entry leaves its group")?;
        if body[len..].iter().fold(0, |bits, byte| bits | byte) != 0 {
            return Err("padding of an entry");
        }
        let leads_segment = first_group && at == 0;
        if leads_segment != (kind == EntryKind::Digest) {
            return Err("a segment begins with its digest, which is nowhere else");
        }
        match kind {
            EntryKind::Digest => Digest::parse(&body[..len])?.check(header, segment)?,
            EntryKind::SegmentFreed if len != 4 || u32_at(body, 0) >= segment.0 => return Err("segment freed"),
            _ if !is_sound(kind, &body[..len]) => return Err("an entry that its owner cannot read"),
            _ => {}
        }
        own_kinds |= matches!(kind, EntryKind::Digest | EntryKind::SegmentFreed | EntryKind::EpochStart);
        at += whole;
        count += 1;
    }
    if count == 0 || count != header.entries {
        return Err("number of entries");
    }
    Ok(own_kinds)
}
