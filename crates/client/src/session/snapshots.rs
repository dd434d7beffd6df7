//! Keys of several shards, read as they were at one moment (R8.16): every shard is read, and, when all have answered, every
//! shard is read again. If no key has changed, the keys had these values all the time between the two rounds.
//!
//! ```text
//! shard 0   ├─ first ─┤               ├─ second ─┤
//! shard 1      ├─ first ─┤              ├─ second ─┤
//!                        └── one moment ─┘
//! ```
//!
//! Whether a key has changed its version says, which grows with each change and is never used again; a key without a value has
//! one, too ([`Read::Observe`]). A read is answered only when what it saw cannot be lost any more. No server keeps anything.
//!
//! A round that saw a change is the first of the next two. After some rounds the call pauses and begins anew.

use std::collections::{BTreeMap, VecDeque};

use kasha_machine::Effects;
use kasha_types::limits::RESULT_BYTES_MAX;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ShardId, TableId, Tick, slot_of};
use kasha_wire::operation::{Item, ItemKind, ItemsBuffer};
use kasha_wire::outcome::Shape;
use kasha_wire::{Outcome, OutcomeCode, Read, Refusal};

use super::call::{Caller, NEVER, ReadCall, Stage};
use super::calls::CallId;
use super::{Completion, Session, WhyFailed, WhyNot};
use crate::limits::ANSWERS_APART_MAX;

/// Rounds before a call pauses.
const ROUNDS_MAX: u32 = 4;
/// Of a multi-get's result: the outcome and the count; the version and the length of each item.
const RESULT_HEAD_BYTES: usize = 5;
const RESULT_ITEM_BYTES: usize = 12;

/// The calls that read several shards.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    open: BTreeMap<CallId, Snapshot>,
    /// Reads of shards that have ended: the call that they are for, the read, and how it ended.
    ended: VecDeque<(CallId, CallId, Completion)>,
}

#[derive(Debug)]
struct Snapshot {
    table: TableId,
    keys: usize,
    parts: Vec<Part>,
    rounds: u32,
    /// When the first shard answered in this round, and in the one before.
    first_answer: Option<Tick>,
    first_before: Option<Tick>,
}

/// The keys of one shard.
#[derive(Debug)]
struct Part {
    /// Which of the call's keys they are.
    places: Vec<usize>,
    keys: ItemsBuffer,
    /// The read that is under way.
    running: Option<CallId>,
    /// The versions that the round before this one saw, and what this one saw.
    before: Vec<u64>,
    now: Vec<Observed>,
}

/// A key's version, and its value if it has one.
type Observed = (u64, Option<Vec<u8>>);

impl Snapshots {
    pub(super) fn note_end(&mut self, whole: CallId, part: CallId, completion: Completion) {
        self.ended.push_back((whole, part, completion));
    }
}

impl Part {
    fn has_changed(&self) -> bool {
        !self.before.iter().copied().eq(self.now.iter().map(|(version, _)| *version))
            && !planted::is_on(Bug::SnapshotUnvalidated)
    }
}

impl Session {
    /// Begins the first round of a multi-get whose keys are of several shards.
    pub(super) fn start_snapshot(&mut self, slot: usize, read: ReadCall, now: Tick, out: &mut Effects) {
        let table = read.keys.table;
        let mut by_shard: BTreeMap<Option<ShardId>, Part> = BTreeMap::new();
        let mut keys = 0;
        let configuration = self.configuration().expect("the keys are known to be of several shards");
        self.calls[slot].for_each_key(|table, key| {
            let part = by_shard.entry(configuration.owner(table, slot_of(key))).or_insert_with(Part::new);
            part.places.push(keys);
            part.keys.push(&Item { key, value: &[], delta: 0 });
            keys += 1;
        });
        if by_shard.contains_key(&None) {
            return self.pause(slot, true, now);
        }
        let snapshot = Snapshot {
            table,
            keys,
            parts: by_shard.into_values().collect(),
            rounds: 0,
            first_answer: None,
            first_before: None,
        };
        let id = self.calls.id(slot);
        self.calls[slot].attempts += 1;
        self.snapshots.open.insert(id, snapshot);
        self.wait(slot, Stage::Gathering, NEVER);
        self.read_all(id, now, out);
    }

    /// Reads all keys once.
    fn read_all(&mut self, id: CallId, now: Tick, out: &mut Effects) {
        let Some(mut snapshot) = self.snapshots.open.remove(&id) else { return };
        let slot = self.calls.find(id).expect("an open snapshot is of an open call");
        let deadline = match self.calls[slot].caller {
            Caller::Waits { deadline } => Some(deadline),
            Caller::WasToldUnknown | Caller::IsGone { .. } => None,
        };
        snapshot.rounds += 1;
        snapshot.first_before = snapshot.first_answer.take();
        for part in &mut snapshot.parts {
            let read = Read::Observe { keys: part.keys.as_items() };
            part.before = std::mem::take(&mut part.now).into_iter().map(|(version, _)| version).collect();
            part.running = Some(self.read_for(id, now, snapshot.table, &read, deadline, out));
        }
        self.snapshots.open.insert(id, snapshot);
    }

    /// Reads of shards have ended: the calls that they are for go on, or end.
    pub(super) fn go_on_with_snapshots(&mut self, now: Tick, out: &mut Effects) {
        while let Some((id, part, completion)) = self.snapshots.ended.pop_front() {
            let Some(slot) = self.calls.find(id) else { continue };
            let Some(snapshot) = self.snapshots.open.get_mut(&id) else { continue };
            let Some(read) = snapshot.parts.iter_mut().find(|known| known.running == Some(part)) else { continue };
            read.running = None;
            snapshot.first_answer.get_or_insert(now);
            match completion {
                Completion::Read { result } => {
                    let observed = Outcome::decode(Shape::Observed, &result);
                    match observed {
                        Ok(Outcome::Observed(observed)) if observed.len() == read.places.len() => read.now = observed,
                        // No server answers that.
                        Ok(_) | Err(_) => self.begin_snapshot_anew(slot, now),
                    }
                    self.recycle(result);
                }
                // The shards share the keys in another way now, or other calls have taken the room meanwhile.
                Completion::ReadFailed(WhyFailed::NotPossible(WhyNot::CrossShard)) => {
                    self.begin_snapshot_anew(slot, now)
                }
                Completion::ReadFailed(WhyFailed::NotPossible(WhyNot::Overloaded)) if self.has_read_all_once(id) => {
                    self.begin_snapshot_anew(slot, now);
                }
                Completion::ReadFailed(WhyFailed::DeadlinePassed) => {
                    let why = self.calls[slot].why_late(now);
                    self.end(slot, Completion::ReadFailed(why));
                    continue;
                }
                other => {
                    self.end(slot, other);
                    continue;
                }
            }
            let is_through = |snapshot: &Snapshot| snapshot.parts.iter().all(|part| part.running.is_none());
            if self.snapshots.open.get(&id).is_some_and(is_through) {
                self.end_round(slot, id, now, out);
            }
        }
    }

    fn has_read_all_once(&self, id: CallId) -> bool {
        self.snapshots.open.get(&id).is_some_and(|snapshot| snapshot.rounds > 1)
    }

    fn end_round(&mut self, slot: usize, id: CallId, now: Tick, out: &mut Effects) {
        let snapshot = &self.snapshots.open[&id];
        if snapshot.result_bytes() > RESULT_BYTES_MAX {
            return self.end(slot, Completion::ReadFailed(WhyFailed::Refused(Refusal::TooLarge)));
        }
        let is_first = snapshot.rounds == 1 && !planted::is_on(Bug::SnapshotUnvalidated);
        // A loss of power may give a version to another value in between.
        let takes_long = snapshot.first_before.is_some_and(|first| now.since(first) > ANSWERS_APART_MAX);
        let has_changed = !is_first && snapshot.parts.iter().any(Part::has_changed);
        if is_first || takes_long || has_changed {
            let rounds = snapshot.rounds;
            if !is_first {
                hit(Probe::SnapshotChanged);
            }
            if has_changed {
                self.calls[slot].note_changes(now);
            }
            return match rounds < ROUNDS_MAX {
                true => self.read_all(id, now, out),
                false => self.begin_snapshot_anew(slot, now),
            };
        }
        let snapshot = self.snapshots.open.remove(&id).expect("just seen");
        self.end(slot, Completion::Read { result: snapshot.result() });
    }

    fn begin_snapshot_anew(&mut self, slot: usize, now: Tick) {
        self.drop_snapshot(self.calls.id(slot));
        self.pause(slot, false, now);
    }

    /// The call is over, or begins anew, whatever its reads find: they end with it.
    pub(super) fn drop_snapshot(&mut self, id: CallId) {
        if self.snapshots.open.is_empty() {
            return;
        }
        let reads = self.snapshots.open.remove(&id).into_iter().flat_map(|snapshot| snapshot.parts);
        for read in reads.filter_map(|part| part.running) {
            if let Some(slot) = self.calls.find(read) {
                self.calls.remove(slot);
            }
        }
    }
}

impl Snapshot {
    /// Bytes of what has been read in this round, as a result.
    fn result_bytes(&self) -> usize {
        let observed = self.parts.iter().flat_map(|part| &part.now);
        let value = |(_, value): &Observed| RESULT_ITEM_BYTES + value.as_ref().map_or(0, Vec::len);
        RESULT_HEAD_BYTES + observed.map(value).sum::<usize>()
    }

    /// What one shard with all the keys would have answered.
    fn result(self) -> Vec<u8> {
        let mut all: Vec<Observed> = vec![(0, None); self.keys];
        for part in self.parts {
            for (place, observed) in part.places.into_iter().zip(part.now) {
                all[place] = observed;
            }
        }
        let mut result = vec![OutcomeCode::Done as u8];
        result.extend_from_slice(&u32::try_from(all.len()).expect("few keys").to_le_bytes());
        for (version, value) in all {
            let version = if value.is_some() { version } else { 0 };
            let value = value.unwrap_or_default();
            result.extend_from_slice(&version.to_le_bytes());
            result.extend_from_slice(&u32::try_from(value.len()).expect("a value").to_le_bytes());
            result.extend_from_slice(&value);
        }
        result
    }
}

impl Part {
    fn new() -> Self {
        let keys = ItemsBuffer::new(ItemKind::Key);
        Self { places: Vec::new(), keys, running: None, before: Vec::new(), now: Vec::new() }
    }
}
