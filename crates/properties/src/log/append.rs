//! Log bytes that a backup is sent, by its primary or by an impostor: the backup takes them completely, or nothing
//! changes.

use arbitrary::{Arbitrary, Result, Unstructured};
use kasha_log::{EntryKind, GROUP_HEADER_BYTES, Log, Screen, entry_bytes};
use kasha_types::{Epoch, LogEnd, SegmentId};

use super::common::{SEGMENT, SHARD, append, config, entries, files, fill, let_go, new_log, reseal, snapshot};
use crate::damage::Damage;
use crate::draw;
use crate::property::Property;

/// Objects in the log below are at least this long; a shorter one is an invented one.
fn is_sound(kind: EntryKind, payload: &[u8]) -> bool {
    kind != EntryKind::Object || payload.len() >= 300
}

/// Where the groups that are sent begin.
#[derive(Debug)]
enum Place {
    /// At the beginning of this group of the primary's log.
    Group(u8),
    /// At the beginning of this segment.
    Segment(SegmentId),
    /// Where the backup's log ends.
    End,
}

impl<'a> Arbitrary<'a> for Place {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(match draw::below(u, 3)? {
            0 => Self::Group(u.int_in_range(0..=50)?),
            1 => Self::Segment(SegmentId(u.int_in_range(0..=4)?)),
            _ => Self::End,
        })
    }
}

/// Some groups of the primary's log, changed.
#[derive(Debug)]
struct Piece {
    from: Place,
    groups: u8,
    damage: Vec<Damage>,
    /// An object more in each group, of so many bytes: it may not fit its segment any longer.
    grown: Option<u16>,
    /// With right checksums again.
    resealed: bool,
    /// As an older segment, for a joiner, and not behind the end.
    installed: Option<SegmentId>,
    screened: bool,
}

impl<'a> Arbitrary<'a> for Piece {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let (from, groups) = (u.arbitrary()?, u.int_in_range(1..=15)?);
        let damage = draw::up_to(u, 2)?;
        let grown = if draw::one_in(u, 4)? { Some(u.int_in_range(0..=4000)?) } else { None };
        let resealed = u.arbitrary()?;
        let installed = if draw::one_in(u, 3)? { Some(SegmentId(u.int_in_range(0..=5)?)) } else { None };
        Ok(Self { from, groups, damage, grown, resealed, installed, screened: u.arbitrary()? })
    }
}

/// See the module.
#[derive(Debug)]
pub struct LogAppends {
    /// How much of the primary's log the backup has; or it joins at this segment.
    upto: u8,
    joins: bool,
    pieces: Vec<Piece>,
}

impl<'a> Arbitrary<'a> for LogAppends {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        Ok(Self { upto: u.arbitrary()?, joins: u.arbitrary()?, pieces: draw::until_empty(u, 12)? })
    }
}

/// Several epochs, segments and a hole.
fn primary() -> Log {
    let mut primary = new_log();
    let objects = fill(&mut primary, 1, 2);
    let_go(&mut primary, 2, SegmentId(0), &objects);
    fill(&mut primary, 3, 3);
    append(&mut primary, 4, &[&[7; 300], &[8; 300]]);
    fill(&mut primary, 4, 4);
    primary
}

impl LogAppends {
    fn backup(&self, primary: &Log, places: &[(u64, u64)]) -> Log {
        let upto = usize::from(self.upto) % (places.len() + 1);
        let from = if self.joins { u64::from(self.upto % 4) * u64::from(SEGMENT) } else { 0 };
        let mut backup = if self.joins { Log::begin_at(SHARD, config(64), LogEnd(from)) } else { new_log() };
        let upto = if self.joins { places.len() } else { upto };
        for (start, end) in places[..upto].iter().filter(|place| place.0 >= from) {
            let len = u32::try_from(end - start).expect("a group");
            backup.append_raw(primary.bytes(*start, len), Screen::NONE).expect("the primary's own groups");
        }
        backup
    }
}

/// Adds an entry to a group, and counts it.
fn grow(group: &mut Vec<u8>, len: u16) {
    let mut add = |at: usize, more: u32| {
        let old = u32::from_le_bytes(group[at..at + 4].try_into().expect("four bytes"));
        group[at..at + 4].copy_from_slice(&(old + more).to_le_bytes());
    };
    let whole = entry_bytes(usize::from(len));
    add(4, u32::try_from(whole).expect("small"));
    add(12, 1);
    let end = group.len() + whole;
    group.extend_from_slice(&[EntryKind::Object as u8, 0, 0, 0]);
    group.extend_from_slice(&u32::from(len).to_le_bytes());
    group.resize(end, 0);
}

fn bytes_of(piece: &Piece, primary: &Log, places: &[(u64, u64)], backup: &Log) -> Vec<u8> {
    let mut bytes = Vec::new();
    let from = match piece.from {
        Place::Group(number) => usize::from(number),
        Place::Segment(id) => places.partition_point(|place| primary.segment_at(place.0) < id),
        Place::End => places.partition_point(|place| place.0 < backup.end().offset.0),
    };
    for (start, end) in places.iter().skip(from).take(usize::from(piece.groups)) {
        let mut group = primary.bytes(*start, u32::try_from(end - start).expect("a group")).to_vec();
        if let Some(len) = piece.grown {
            grow(&mut group, len);
        }
        piece.damage.iter().for_each(|damage| damage.apply(&mut group));
        if piece.resealed && group.len() >= GROUP_HEADER_BYTES as usize {
            reseal(&mut group);
        }
        bytes.extend(group);
    }
    bytes
}

impl Property for LogAppends {
    const NAME: &'static str = "log_appends";
    const INPUT_BYTES_MAX: usize = 160;

    fn hold(self) {
        let primary = primary();
        let places: Vec<_> = primary.groups().map(|group| (group.start, group.end.0)).collect();
        let mut backup = self.backup(&primary, &places);
        let mut resealed = false;
        for piece in &self.pieces {
            let bytes = bytes_of(piece, &primary, &places, &backup);
            let screen = if piece.screened { Screen { epoch_max: Epoch(3), is_sound } } else { Screen::NONE };
            let before = format!("{:?}", snapshot(&backup));
            let held = entries(&backup);
            let taken = match piece.installed {
                None => backup.append_raw(&bytes, screen).map(|end| assert_eq!(end, backup.end())),
                Some(id) => backup.install_segment(id, &bytes, screen),
            };
            if taken.is_err() {
                assert_eq!(before, format!("{:?}", snapshot(&backup)), "refused, and changed: {taken:?}");
                continue;
            }
            resealed |= piece.resealed && (piece.grown.is_some() || !piece.damage.is_empty());
            let now = entries(&backup);
            assert!(held.iter().all(|entry| now.contains(entry)), "what was there is there");
            let new = now.iter().filter(|entry| !held.contains(entry));
            assert!(!piece.screened || new.into_iter().all(|(_, kind, payload)| is_sound(*kind, payload)));
        }
        let (again, report) = Log::load(SHARD, config(64), files(&backup).into_iter());
        if backup.absent().is_empty() {
            assert!(resealed || report.damage.is_none(), "{report:?}");
            assert!(report.damage.is_some() || again.end() == backup.end());
        }
        if !resealed {
            let theirs = entries(&primary);
            assert!(entries(&backup).iter().all(|entry| theirs.contains(entry)), "nothing is invented");
        }
    }

    fn seeds() -> Vec<Vec<u8>> {
        let mut seeds = Vec::new();
        for upto in [0, 5, 20, 35] {
            // Whole groups that fit, grown ones, those of the next segment; a joiner's segments.
            seeds.push(vec![upto, 0, 2, 4, 0, 1, 0, 1, 0, 2, 4, 0, 1, 0, 1, 0]);
            seeds.push(vec![upto, 0, 2, 1, 0, 0, 200, 10, 1, 1, 0]);
            seeds.push(vec![upto, 0, 1, 2, 3, 0, 1, 0, 1, 0]);
            seeds.push(vec![upto, 1, 1, 0, 14, 0, 1, 0, 0, 0, 0]);
        }
        seeds
    }
}
