//! Commutes (C1, R4.8, R4.9, R5.1, R5.2): an update that is answered before it is synced commutes with everything
//! unsynced before it.
//!
//! Each update with a fast answer is looked up in its primary's log. An earlier entry that changes one of its keys, its
//! operation key included, must have been synced when the answer left. (An update that changed nothing, for example
//! because a condition failed, has no such entry, and no result depends on it.) The same is true for a version floor
//! that has decided a key's version (R4.8). The acknowledgements that members had sent show how far the log was synced
//! at most. A transaction over several shards counts where it is proposed.

use std::collections::{BTreeMap, BTreeSet};

use kasha_machine::FileName;
use kasha_types::{ClientId, Epoch, KeyHash, RpcId, Sequence, ShardId};
use kasha_wire::frame::Kind;
use kasha_wire::{AnswerView, Body, RequestView};

use crate::checkers::changes::{
    SyncedAtMost, TABLE_DROPPED_ENTRY, VERSION_FLOOR_ENTRY, Wrote, changed_key, version_in, wrote,
};
use crate::checkers::endings::{PROPOSED_ENTRY, PROPOSED_RPC, rpc_at};
use crate::checkers::records::{COMPLETION_ENTRY, Group, groups_in, word};
use crate::configurations::{Configurations, Cores};
use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{Sent, View, Watch};

/// The last change of a key in a log.
#[derive(Clone, Debug)]
struct Last {
    /// Where its group ends in the log.
    end: u64,
    /// The name of the update that made it.
    name: String,
    /// The key's version, if the key has had no value since.
    deleted_at: Option<u64>,
}

/// A key that a group changes. If such keys have versions, also the version, and whether the key has a value then.
type Change = (KeyHash, Option<(u64, bool)>);

/// An update in a shard's log of a term's primary.
type Run = (ProcessId, ShardId, Epoch, RpcId);

/// Watches fast answers and logs.
#[derive(Debug, Default)]
pub struct Commutes {
    segment_bytes: u64,
    synced: SyncedAtMost,
    /// The keys of each update.
    bodies: BTreeMap<RpcId, Vec<KeyHash>>,
    /// The fast answers of each primary, and up to where the log was synced at most when the answer left.
    answered: BTreeMap<Run, u64>,
    last: BTreeMap<(ProcessId, ShardId, KeyHash), Last>,
    /// The greatest version of a value of a key that the cleaner copied.
    copied: BTreeMap<(ProcessId, ShardId, KeyHash), u64>,
    /// Up to where the last drop of a table ends (R5.1).
    dropped: BTreeMap<(ProcessId, ShardId), u64>,
    /// Up to where the last version floor's entry ends (R4.8).
    floors: BTreeMap<(ProcessId, ShardId), u64>,
    /// Transactions over several shards, each where it was proposed.
    proposed: BTreeSet<Run>,
    /// The last change of one of an update's keys before the update.
    before: BTreeMap<Run, (u64, String)>,
    /// Versions of values that any log of the shard ever had. A joiner may lack the segment of the one that a value follows.
    versions: BTreeSet<(ShardId, KeyHash, u64)>,
    violations: Vec<String>,
    checked: u64,
}

impl Commutes {
    /// Watches these cores under these configurations.
    #[must_use]
    pub fn new(configurations: Configurations, cores: Cores, segment_bytes: u32) -> Self {
        let synced = SyncedAtMost::new(configurations, cores);
        Self { segment_bytes: u64::from(segment_bytes), synced, ..Self::default() }
    }

    fn on_fast_answer(&mut self, by: ProcessId, rpc: RpcId, (shard, epoch): (ShardId, Epoch)) {
        if !self.bodies.contains_key(&rpc) {
            return;
        }
        let synced = self.synced.of(shard, epoch);
        self.answered.entry((by, shard, epoch, rpc)).or_insert(synced);
        self.judge((by, shard, epoch, rpc));
    }

    /// A group of a log changes these keys. If an update wrote the group, `run` names it.
    fn on_group(&mut self, run: (ProcessId, Epoch, Option<RpcId>), shard: ShardId, end: u64, changed: &[Change]) {
        let (by, epoch, rpc) = run;
        let touched = rpc.and_then(|rpc| self.bodies.get(&rpc)).map_or(&[][..], Vec::as_slice);
        let last = touched.iter().filter_map(|&key| self.last.get(&(by, shard, key)));
        let last = last.map(|last| (last.end, last.name.clone()));
        let dropped = self.dropped.get(&(by, shard)).map(|&at| (at, "a table's drop".to_owned()));
        // The version in a key's own tombstone is one less.
        let is_of_floor = changed.iter().any(|&(key, version)| {
            let deleted_at = self.last.get(&(by, shard, key)).and_then(|last| last.deleted_at);
            let deleted_at =
                deleted_at.filter(|at| self.copied.get(&(by, shard, key)).is_none_or(|copied| copied <= at));
            let follows = |version| self.versions.contains(&(shard, key, version - 1));
            let skips = |version| deleted_at.is_some_and(|at| version > at + 1) && !follows(version);
            version.is_some_and(|(version, has_value)| has_value && skips(version))
        });
        let values = changed
            .iter()
            .filter_map(|&(key, version)| Some((shard, key, version.filter(|&(_, has_value)| has_value)?.0)));
        self.versions.extend(values);
        let floor =
            self.floors.get(&(by, shard)).filter(|_| is_of_floor).map(|&at| (at, "the version floor".to_owned()));
        // What a transaction over several shards finds, it finds when it is proposed. Only versions show when it is executed.
        let is_proposed = rpc.is_some_and(|rpc| self.proposed.contains(&(by, shard, epoch, rpc)));
        let found = last.chain(dropped).filter(|_| !is_proposed);
        let before = found.chain(floor).filter(|(at, _)| *at < end).max();
        let name = rpc.map_or("an operation key's expiry".to_owned(), |rpc| rpc.to_string());
        for &(key, version) in changed {
            let deleted_at = version.filter(|&(_, has_value)| !has_value).map(|(version, _)| version);
            let last = Last { end, name: name.clone(), deleted_at };
            // A joiner is sent older segments after the tail of its log.
            let known = self.last.entry((by, shard, key)).or_insert_with(|| last.clone());
            if known.end <= end {
                *known = last;
            }
        }
        if let (Some(rpc), Some(before)) = (rpc, before) {
            let known = self.before.entry((by, shard, epoch, rpc)).or_default();
            if *known < before {
                *known = before;
            }
            self.judge((by, shard, epoch, rpc));
        }
    }

    /// A copy changes nothing. But a member that was copied anew may hold a key's tombstone, and of the later value only the
    /// copy: then that tombstone decides no version any more.
    fn on_copies(&mut self, (by, shard): (ProcessId, ShardId), entries: &[(u8, &[u8])]) {
        for &(kind, entry) in entries {
            if let (Some(key), Some((version, true))) = (changed_key(kind, entry), version_in(kind, entry)) {
                let copied = self.copied.entry((by, shard, key)).or_default();
                *copied = version.max(*copied);
            }
        }
    }

    fn judge(&mut self, run: Run) {
        let (Some(&synced), Some((end, name))) = (self.answered.get(&run), self.before.get(&run)) else { return };
        self.checked += 1;
        if *end > synced {
            self.violations.push(format!(
                "commutes: {} was answered at once, though {name} decided something of its keys before it, up to {end}, and the log \
                 was synced to {synced} at most (C1)",
                run.3
            ));
        }
    }

    fn on_groups(&mut self, by: ProcessId, shard: ShardId, base: u64, bytes: &[u8]) {
        groups_in(bytes, |Group { end, epoch, is_copies, entries }| {
            if is_copies {
                return self.on_copies((by, shard), entries);
            }
            let (mut changed, mut rpc, mut proposed) = (Vec::new(), None, None);
            for &(kind, entry) in entries {
                changed.extend(changed_key(kind, entry).map(|key| (key, version_in(kind, entry))));
                if kind == COMPLETION_ENTRY
                    && let (Some(client), Some(sequence)) = (word(entry, 3), word(entry, 11))
                {
                    rpc = Some(RpcId { client: ClientId(client), sequence: Sequence(sequence) });
                }
                proposed = proposed.or((kind == PROPOSED_ENTRY).then(|| rpc_at(entry, PROPOSED_RPC)).flatten());
            }
            self.on_group((by, epoch, rpc.or(proposed)), shard, base + end, &changed);
            self.proposed.extend(proposed.map(|rpc| (by, shard, epoch, rpc)));
            if entries.iter().any(|&(kind, _)| kind == TABLE_DROPPED_ENTRY) {
                let last = self.dropped.entry((by, shard)).or_default();
                *last = (base + end).max(*last);
            }
            if entries.iter().any(|&(kind, _)| kind == VERSION_FLOOR_ENTRY) {
                let last = self.floors.entry((by, shard)).or_default();
                *last = (base + end).max(*last);
            }
        });
    }
}

impl Watch for Commutes {
    fn sent(&mut self, sent: &Sent<'_>, _view: &View<'_>) {
        match Kind::from_number(sent.kind) {
            Some(Kind::Request) => {
                if let Ok(request) = RequestView::decode(sent.payload)
                    && let Ok(body) = Body::decode(request.body)
                {
                    let mut keys = Vec::new();
                    body.footprint(&mut keys);
                    self.bodies.entry(body.head.rpc).or_insert(keys);
                }
            }
            Some(Kind::Answer) => {
                if let Ok(answer) = AnswerView::decode(sent.payload)
                    && !answer.synced
                {
                    self.on_fast_answer(sent.from, answer.rpc, (answer.shard, answer.epoch));
                }
            }
            _ => self.synced.on_sent(sent),
        }
    }

    fn wrote(&mut self, by: ProcessId, file: FileName, offset: u64, len: usize, view: &View<'_>) {
        match wrote(by, file, (offset, len), self.segment_bytes, view) {
            Some((shard, Wrote::Bytes { base, bytes })) => self.on_groups(by, shard, base, &bytes),
            Some((shard, Wrote::Gone(gone))) => {
                let is_kept = |at: u64| !gone.contains(&(at - 1));
                self.last.retain(|&(of, whose, _), last| (of, whose) != (by, shard) || is_kept(last.end));
                self.dropped.retain(|&id, at| id != (by, shard) || is_kept(*at));
                self.floors.retain(|&id, at| id != (by, shard) || is_kept(*at));
            }
            None => {}
        }
    }

    fn started(&mut self, process: ProcessId, _view: &View<'_>) {
        self.last.retain(|&(of, ..), _| of != process);
        self.copied.retain(|&(of, ..), _| of != process);
        self.dropped.retain(|&(of, _), _| of != process);
        self.floors.retain(|&(of, _), _| of != process);
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: commutes", self.checked);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::NodeId;

    use super::*;
    use crate::checkers::records::tests::{RPC, SHARD, three_cores};
    use crate::configurations::tests::{configuration, tell};

    const OTHER: RpcId = RpcId { sequence: Sequence(77), ..RPC };
    const BY: ProcessId = ProcessId(1);

    fn watch(acked: u64) -> Commutes {
        let configurations = Configurations::default();
        let mut watch = Commutes::new(configurations.clone(), three_cores(), 1 << 16);
        tell(&configurations, &configuration(1, 1, 1));
        watch.bodies.insert(RPC, vec![KeyHash(1)]);
        watch.synced.acks(SHARD, Epoch(1), NodeId(2), acked);
        watch
    }

    fn found(acked: u64, key: u64) -> usize {
        let mut watch = watch(acked);
        watch.on_group((BY, Epoch(1), Some(OTHER)), SHARD, 100, &[(KeyHash(key), None)]);
        watch.on_fast_answer(BY, RPC, (SHARD, Epoch(1)));
        watch.synced.acks(SHARD, Epoch(1), NodeId(2), 200);
        watch.on_group((BY, Epoch(1), Some(RPC)), SHARD, 200, &[(KeyHash(1), None)]);
        watch.take_violations().len()
    }

    #[test]
    fn c1_what_overlaps_with_something_unsynced_waits() {
        assert_eq!(found(99, 1), 1, "synced only after the answer");
        assert_eq!(found(100, 1), 0, "synced before");
        assert_eq!(found(99, 2), 0, "another key");
    }

    /// Found by a sweep (`damaged_files` 59).
    #[test]
    fn the_older_segments_of_a_joiner_change_nothing_that_stands_behind_them() {
        let mut watch = watch(0);
        watch.on_group((BY, Epoch(1), Some(OTHER)), SHARD, 100, &[(KeyHash(1), Some((5, true)))]);
        watch.on_group((BY, Epoch(1), Some(OTHER)), SHARD, 50, &[(KeyHash(1), Some((4, false)))]);
        watch.floors.insert((BY, SHARD), 150);
        watch.synced.acks(SHARD, Epoch(1), NodeId(2), 100);
        watch.on_fast_answer(BY, RPC, (SHARD, Epoch(1)));
        watch.on_group((BY, Epoch(1), Some(RPC)), SHARD, 200, &[(KeyHash(1), Some((6, true)))]);
        assert_eq!(watch.take_violations(), Vec::<String>::new());
    }

    /// Found by a sweep (`cleaning_while_copying` 665006801): a joiner had the tombstone, and the copy of the next value.
    #[test]
    fn a_value_of_which_there_is_the_copy_alone_goes_on_from_there() {
        let mut object = vec![0; 25];
        (object[0], object[4], object[8], object[24]) = (1, 1, 46, b'k');
        let key = changed_key(1, &object).expect("an object's key");
        for (copies, found) in [(0, 1), (1, 0)] {
            let mut watch = watch(100);
            watch.on_group((BY, Epoch(1), Some(OTHER)), SHARD, 50, &[(key, Some((40, false)))]);
            (0..copies).for_each(|_| watch.on_copies((BY, SHARD), &[(1, &object)]));
            watch.floors.insert((BY, SHARD), 150);
            watch.on_fast_answer(BY, RPC, (SHARD, Epoch(1)));
            watch.on_group((BY, Epoch(1), Some(RPC)), SHARD, 200, &[(key, Some((47, true)))]);
            assert_eq!(watch.take_violations().len(), found);
        }
    }

    #[test]
    fn r4_8_a_version_that_a_floor_decides_waits_for_it() {
        for (acked, version, found) in [(99, 6, 1), (100, 6, 0), (99, 5, 0)] {
            let mut watch = watch(acked);
            watch.on_group((BY, Epoch(1), Some(OTHER)), SHARD, 50, &[(KeyHash(1), Some((4, false)))]);
            watch.floors.insert((BY, SHARD), 100);
            watch.on_fast_answer(BY, RPC, (SHARD, Epoch(1)));
            watch.on_group((BY, Epoch(1), Some(RPC)), SHARD, 200, &[(KeyHash(1), Some((version, true)))]);
            assert_eq!(watch.take_violations().len(), found, "version {version}, synced to {acked}");
        }
    }
}
