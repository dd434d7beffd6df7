//! What a primary, or somebody in its place, sends to a backup: it is taken as a whole, or nothing changes.

use arbitrary::{Arbitrary, Result, Unstructured};
use kasha_log::{EntryKind, GROUP_HEADER_BYTES, Log, Screen};
use kasha_types::{Epoch, SegmentId};

use super::common::{SEGMENT, SHARD, append, config, entries, files, fill, let_go, new_log, reseal, snapshot};
use crate::damage::Damage;
use crate::{Property, draw};

/// Objects are at least this long in the log below; shorter ones are somebody's invention.
fn is_sound(kind: EntryKind, payload: &[u8]) -> bool {
    kind != EntryKind::Object || payload.len() >= 300
}

/// Some groups of the primary's log, changed.
#[derive(Debug)]
struct Piece {
    from: u8,
    groups: u8,
    damage: Vec<Damage>,
    /// With right checksums again.
    resealed: bool,
    /// As an older segment, for a joiner, and not behind the end.
    installed: Option<SegmentId>,
    screened: bool,
}

impl<'a> Arbitrary<'a> for Piece {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let (from, groups) = (u.int_in_range(0..=50)?, u.int_in_range(1..=15)?);
        let damage = draw::up_to(u, 2)?;
        let resealed = u.arbitrary()?;
        let installed = if draw::one_in(u, 3)? { Some(SegmentId(u.int_in_range(0..=5)?)) } else { None };
        Ok(Self { from, groups, damage, resealed, installed, screened: u.arbitrary()? })
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
        let mut backup = if self.joins { Log::begin_at(SHARD, config(64), from) } else { new_log() };
        let upto = if self.joins { places.len() } else { upto };
        for (start, end) in places[..upto].iter().filter(|place| place.0 >= from) {
            let len = u32::try_from(end - start).expect("a group");
            backup.append_raw(primary.bytes(*start, len), Screen::NONE).expect("the primary's own groups");
        }
        backup
    }
}

fn bytes_of(piece: &Piece, primary: &Log, places: &[(u64, u64)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (start, end) in places.iter().skip(usize::from(piece.from)).take(usize::from(piece.groups)) {
        let mut group = primary.bytes(*start, u32::try_from(end - start).expect("a group")).to_vec();
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
        let places: Vec<_> = primary.groups_from(0).map(|group| (group.start, group.end)).collect();
        let mut backup = self.backup(&primary, &places);
        let mut resealed = false;
        for piece in &self.pieces {
            let bytes = bytes_of(piece, &primary, &places);
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
            resealed |= piece.resealed && !piece.damage.is_empty();
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
            // Whole groups that fit; the same with a change; a joiner's segments.
            seeds.push(vec![upto, 0, upto, 4, 0, 0, 1, 0, upto + 5, 4, 0, 0, 1, 0]);
            seeds.push(vec![upto, 0, upto, 1, 1, 0, 30, 0, 0, 0, 1, 1, 1, 0]);
            seeds.push(vec![upto, 1, 0, 10, 0, 0, 0, 0, 0, 10, 10, 0, 0, 0, 1, 0]);
        }
        seeds
    }
}
