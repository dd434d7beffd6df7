//! A log from its segment files.
//!
//! A crash may cut off the end of what was last written (D4): bytes that are no group, with nothing whole behind them.
//! That torn tail is dropped, and nothing else: whatever else is wrong is damage, is reported, and ends the part that
//! is kept. Where segments were freed the chain of predecessors has holes; a sealed segment before a hole must then
//! end in zeros or in the file's end. That it lacks whole groups at its end is not visible there (R5.5 covers the
//! loss of power that could do it).
//!
//! A segment that the log says is freed stays, if its file is still there and as it should be: the entry that says so may be
//! unsynced, and may be cut off again. Then the segment is a part of the log as before ([`Log::truncate`]). Where that
//! entry is gone itself, every member knows of it.

use kasha_types::{LogEnd, LogPosition, SegmentId, ShardId};

use crate::format::{ALIGN, GROUP_HEADER_BYTES, GroupStart, MAGIC, u16_at, u64_at};
use crate::segment::{freed_segments, live_segments};
use crate::verify::{GroupFault, check_group, is_cut_short};
use crate::{Log, LogConfig, Screen};

/// How much of the files [`Log::load`] kept, and why it dropped the rest.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadReport {
    /// End of what was kept.
    pub valid_end: LogPosition,
    /// Bytes dropped behind it because a crash cut them short. The owner cuts the head's file to what is in use.
    pub torn_bytes: u64,
    /// A killed process can have left those bytes: each file that ends in some ends within its last group. Otherwise they
    /// are of a loss of power, or damaged.
    pub is_cut_short: bool,
    /// Segments whose files are not needed: torn as a whole, or freed and not kept. Empty after damage.
    pub useless: Vec<SegmentId>,
    /// What is wrong besides: the log was cut there, and is not to be trusted with anybody's votes.
    pub damage: Option<Damage>,
}

/// Something that no crash of a correct program leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Damage {
    /// Offset from which on nothing was kept.
    pub at: u64,
    /// What kind of damage begins there.
    pub kind: DamageKind,
}

/// Kinds of damage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DamageKind {
    /// A bad group with a valid one behind it, or a whole group that does not belong there.
    Group(GroupFault),
    /// A segment that does not follow the group that ends the segment before it.
    Predecessor {
        /// The group that it names.
        names: GroupStart,
    },
    /// The newest digest names this segment, and nothing since says that it was freed.
    Missing(SegmentId),
}

/// One segment file, looked at on its own.
struct Found {
    id: SegmentId,
    base: u64,
    bytes: Vec<u8>,
    /// End of the groups that follow each other from the base on.
    used: usize,
    first_previous: GroupStart,
    last: GroupStart,
    /// Why the groups end where they do, unless nothing but zeros follows.
    fault: Option<GroupFault>,
    /// A whole group behind the fault.
    resumes: bool,
    own_kinds: bool,
    /// Segments that it says are freed.
    frees: Vec<SegmentId>,
}

impl Found {
    fn scan(id: SegmentId, mut bytes: Vec<u8>, segment_bytes: u32) -> Self {
        bytes.truncate(segment_bytes as usize); // no group of this segment lies behind
        let base = u64::from(id.0) * u64::from(segment_bytes);
        let none = GroupStart::default();
        let (fault, resumes, frees) = (None, false, Vec::new());
        let mut found = Self {
            id,
            base,
            bytes,
            used: 0,
            first_previous: none,
            last: none,
            fault,
            resumes,
            own_kinds: false,
            frees,
        };
        while found.used < found.bytes.len() {
            let offset = base + found.used as u64;
            match check_group(&found.bytes[found.used..], offset, segment_bytes, Screen::NONE) {
                Ok((group, _)) if found.used > 0 && group.previous != found.last => {
                    found.fault = Some(GroupFault::Predecessor { names: group.previous });
                    break;
                }
                Ok((group, own_kinds)) => {
                    if found.used == 0 {
                        found.first_previous = group.previous;
                    }
                    found.last = group.start();
                    if own_kinds {
                        found.own_kinds = true;
                        found.frees.extend(freed_segments(&found.bytes[found.used..][..group.len() as usize]));
                    }
                    found.used += group.len() as usize;
                }
                Err(fault) => {
                    let zeros = found.bytes[found.used..].iter().all(|&byte| byte == 0);
                    found.fault = (!zeros).then_some(fault);
                    found.resumes = !zeros && found.group_behind(segment_bytes);
                    break;
                }
            }
        }
        found
    }

    /// Whether a whole group of this segment lies behind the one that is bad.
    fn group_behind(&self, segment_bytes: u32) -> bool {
        (self.used..self.bytes.len()).step_by(ALIGN as usize).skip(1).any(|at| {
            let (rest, offset) = (&self.bytes[at..], self.base + at as u64);
            rest.len() >= GROUP_HEADER_BYTES as usize
                && u16_at(rest, 0) == MAGIC
                && u64_at(rest, 16) == offset
                && check_group(rest, offset, segment_bytes, Screen::NONE).is_ok()
        })
    }

    /// Whether anything in it was written whole: then it is no leftover of a crash.
    fn is_evidence(&self) -> bool {
        self.used > 0 || self.has_damage()
    }

    fn has_damage(&self) -> bool {
        self.resumes || self.fault.is_some_and(|fault| !fault.is_unreadable())
    }

    fn end(&self) -> LogEnd {
        LogEnd(self.base + self.used as u64)
    }

    fn is_cut_short(&self, segment_bytes: u32) -> bool {
        is_cut_short(&self.bytes[self.used..], self.end().0, segment_bytes)
    }

    /// Bytes behind the groups up to the last that is not zero.
    fn tail_bytes(&self) -> u64 {
        let tail = &self.bytes[self.used..];
        tail.iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64 + 1)
    }
}

impl Log {
    /// Rebuilds a log from its segments, in any order, all entries live but the log's own. Takes any bytes.
    ///
    /// # Panics
    /// If the sizes of the configuration make no sense.
    pub fn load(
        shard: ShardId,
        config: LogConfig,
        segments: impl Iterator<Item = (SegmentId, Vec<u8>)>,
    ) -> (Self, LoadReport) {
        let mut log = Self::new(shard, config);
        let mut found: Vec<Found> = segments.map(|(id, bytes)| Found::scan(id, bytes, config.segment_bytes)).collect();
        found.sort_by_key(|segment| segment.id);
        found.dedup_by_key(|segment| segment.id);

        let written = found.iter().rposition(Found::is_evidence).map_or(0, |last| last + 1);
        let leftovers = found.split_off(written);
        let mut useless: Vec<SegmentId> = leftovers.iter().map(|segment| segment.id).collect();
        let live = named_by_last(&found);
        let (mut found, mut let_go): (Vec<_>, Vec<_>) =
            found.into_iter().partition(|segment| is_named(&live, segment.id));
        let damage = find_damage(&found, &live, config.segment_bytes);
        if let Some(damage) = damage {
            (found, let_go) = cut(found, let_go, damage, config.segment_bytes);
        }
        let (found, let_go) = keep_retired(found, let_go, config.segment_bytes, log.loaded_segments_max());
        useless.extend(let_go.iter().map(|segment| segment.id));
        let torn = leftovers.iter().chain(found.last()).filter(|segment| segment.tail_bytes() > 0);
        let is_cut_short = torn.clone().all(|segment| segment.is_cut_short(config.segment_bytes));
        let mut torn_bytes = torn.map(Found::tail_bytes).sum();
        if damage.is_some() {
            useless.clear();
            torn_bytes = 0;
        }
        useless.sort();
        for segment in found {
            let end = segment.end();
            log.open_segment(segment.id, segment.bytes);
            log.accept_in_place(end, segment.own_kinds);
        }
        log.widen_head();
        log.find_absent();
        log.reset_liveness();
        log.groups_appended = 0;
        let valid_end = log.end;
        (log, LoadReport { valid_end, torn_bytes, is_cut_short, useless, damage })
    }

    /// The head takes appends, so it needs a whole buffer; loaded ones are as long as their files.
    pub(crate) fn widen_head(&mut self) {
        if let Some(head) = &mut self.head {
            head.bytes.resize(self.config.segment_bytes as usize, 0);
        }
    }
}

/// What the last segment says lives, ascending; nothing, if it says nothing.
fn named_by_last(found: &[Found]) -> Vec<SegmentId> {
    found.last().map_or_else(Vec::new, |last| live_segments(&last.bytes[..last.used]))
}

fn is_named(live: &[SegmentId], id: SegmentId) -> bool {
    live.is_empty() || live.contains(&id)
}

/// What is kept of a log that is damaged, and the other segments that were let go. Segments may have been let go only behind
/// the damage, where nothing is kept: they live again, if their files are as they should be.
fn cut(found: Vec<Found>, let_go: Vec<Found>, damage: Damage, segment_bytes: u32) -> (Vec<Found>, Vec<Found>) {
    let is_kept = |segment: &Found| segment.base < damage.at;
    let mut kept: Vec<Found> = found.into_iter().filter(is_kept).collect();
    let live = named_by_last(&kept);
    let ids: Vec<SegmentId> = kept.iter().map(|segment| segment.id).collect();
    let (back, rest): (Vec<_>, _) = let_go.into_iter().filter(is_kept).partition(|segment| live.contains(&segment.id));
    kept.extend(back);
    kept.sort_by_key(|segment| segment.id);
    if find_damage(&kept, &live, segment_bytes).is_some_and(|found| found.at < damage.at) {
        kept.retain(|segment| ids.contains(&segment.id));
    }
    (kept, rest)
}

/// Adds the segments that the kept ones say are freed, as far as the log is as right with them as without, up to `most`
/// segments. Returns the others.
///
/// Without them a log that is cut below the entry that freed a segment has a hole, although nothing was lost (section 5). The
/// last freed come first: segments are freed in order, so that the others may have left the memory before the process ended.
fn keep_retired(
    mut found: Vec<Found>,
    mut let_go: Vec<Found>,
    segment_bytes: u32,
    most: usize,
) -> (Vec<Found>, Vec<Found>) {
    let freed: Vec<SegmentId> = found.iter().flat_map(|segment| segment.frees.iter().copied()).collect();
    let damage = find_damage(&found, &[], segment_bytes);
    for id in freed.into_iter().rev() {
        let Some(at) = let_go.iter().position(|segment| segment.id == id).filter(|_| found.len() < most) else {
            continue;
        };
        let place = found.partition_point(|segment| segment.id < id);
        found.insert(place, let_go.swap_remove(at));
        if find_damage(&found, &[], segment_bytes) != damage {
            let_go.push(found.remove(place));
        }
    }
    (found, let_go)
}

/// The first thing wrong, in log order. `found` ends with a segment that holds something whole; `live` is what it says
/// lives, ascending.
fn find_damage(found: &[Found], live: &[SegmentId], segment_bytes: u32) -> Option<Damage> {
    let mut named = live.iter().copied().peekable();
    let mut before: Option<&Found> = None;
    for segment in found {
        if let Some(id) = named.next_if(|id| *id < segment.id) {
            return Some(Damage { at: u64::from(id.0) * u64::from(segment_bytes), kind: DamageKind::Missing(id) });
        }
        named.next_if_eq(&segment.id);
        if let Some(damage) = before.and_then(|before| damage_between(before, segment)) {
            return Some(damage);
        }
        if segment.used == 0 {
            let fault = segment.fault.unwrap_or(GroupFault::Torn);
            return Some(Damage { at: segment.base, kind: DamageKind::Group(fault) });
        }
        before = Some(segment);
    }
    let tail = before.filter(|tail| tail.has_damage())?;
    tail.fault.map(|fault| Damage { at: tail.end().0, kind: DamageKind::Group(fault) })
}

fn damage_between(before: &Found, after: &Found) -> Option<Damage> {
    let names = after.first_previous;
    let broken = Damage { at: before.end().0, kind: DamageKind::Predecessor { names } };
    let bad_end = before.fault.map(|fault| Damage { at: before.end().0, kind: DamageKind::Group(fault) });
    if after.used == 0 || before.id.0 + 1 < after.id.0 {
        let goes_back = after.used > 0 && names.epoch < before.last.epoch;
        return bad_end.or(goes_back.then_some(Damage { at: after.base, ..broken }));
    }
    match names {
        names if names == before.last => None, // proven: whatever else stands behind it is no part of the log
        names if names.offset < before.end().0 => Some(Damage { at: after.base, ..broken }),
        _ => Some(bad_end.unwrap_or(broken)),
    }
}
