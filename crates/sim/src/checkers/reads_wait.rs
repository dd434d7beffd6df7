//! Reads wait (section 6, D3, pitfall 2): everything that a read saw is synced when its answer leaves, be it a value or
//! that there is none. So is the last drop of a table (R5.1).
//!
//! A read runs in the turn that follows its arrival. So it sees at least what stood in its primary's log when it
//! arrived. The newest change of each of its keys in that log, a delete too, must be synced when an answer leaves. (A copy
//! by the cleaner is none.)
//! A query may end early (R10.17). Then the keys count of those parts that its answer tells of.
//!
//! Changes that the same turn adds before the read are left out: from outside it cannot be seen which of two frames was
//! first.

use std::collections::BTreeMap;

use kasha_machine::{Endpoint, FileName};
use kasha_types::{Epoch, KeyHash, ShardId, key_hash};
use kasha_wire::frame::Kind;
use kasha_wire::outcome::each_part;
use kasha_wire::{Read, ReadAnswerView, ReadView};

use crate::checkers::changes::{SyncedAtMost, TABLE_DROPPED_ENTRY, Wrote, changed_key, wrote};
use crate::checkers::records::groups_in;
use crate::configurations::{Configurations, Cores};
use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{Arrived, Sent, View, Watch};

/// What a read saw at least: the log of this term, up to this offset.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Saw {
    term: (ShardId, Epoch),
    /// Of a query by the number of parts that have run, from none on; of any other read the last one.
    ends: Vec<u64>,
}

impl Saw {
    /// What the read saw that this result is of.
    fn end(&self, result: &[u8]) -> u64 {
        let parts = if self.ends.len() > 1 { each_part(result).count() } else { 0 };
        self.ends.get(parts).or(self.ends.last()).copied().unwrap_or_default()
    }
}

/// Watches reads and logs. A primary that runs unreplicated is not checked: it has no backups to wait for.
#[derive(Debug, Default)]
pub struct ReadsWait {
    segment_bytes: u64,
    synced: SyncedAtMost,
    /// The last known value, which is a lower bound.
    reached: BTreeMap<(ShardId, Epoch), u64>,
    /// Up to where the group ends that changed a key last in a log.
    changed: BTreeMap<(ProcessId, ShardId), BTreeMap<KeyHash, u64>>,
    /// Up to where the last drop of a table ends (R5.1).
    dropped: BTreeMap<(ProcessId, ShardId), u64>,
    /// Reads by the connection on which they came. A read that came twice may have been answered for the first time.
    reads: BTreeMap<(ProcessId, Endpoint, u64), Saw>,
    violations: Vec<String>,
    checked: u64,
}

impl ReadsWait {
    /// Watches these cores under these configurations.
    #[must_use]
    pub fn new(configurations: Configurations, cores: Cores, segment_bytes: u32) -> Self {
        let synced = SyncedAtMost::new(configurations, cores);
        Self { segment_bytes: u64::from(segment_bytes), synced, ..Self::default() }
    }

    /// Up to where a term's log is synced at most, if that is less than `end`.
    fn below(&mut self, term: (ShardId, Epoch), end: u64) -> Option<u64> {
        if self.reached.get(&term).is_some_and(|&reached| reached >= end) {
            return None;
        }
        let reached = self.synced.of(term.0, term.1);
        // Nothing is known of a term that nobody was told of yet.
        if reached < u64::MAX {
            self.reached.insert(term, reached);
        }
        (reached < end).then_some(reached)
    }

    fn on_groups(&mut self, by: ProcessId, shard: ShardId, base: u64, bytes: &[u8]) {
        let changed = self.changed.entry((by, shard)).or_default();
        groups_in(bytes, |group| {
            if group.is_copies {
                return; // nothing changed
            }
            for key in group.entries.iter().filter_map(|&(kind, entry)| changed_key(kind, entry)) {
                // A joiner is sent older segments after the tail of its log.
                let end = changed.entry(key).or_default();
                *end = (base + group.end).max(*end);
            }
            if group.entries.iter().any(|&(kind, _)| kind == TABLE_DROPPED_ENTRY) {
                let end = self.dropped.entry((by, shard)).or_default();
                *end = (base + group.end).max(*end);
            }
        });
    }

    /// `keys`: of each part of a query, or of all of another read.
    fn on_read(
        &mut self,
        id: (ProcessId, Endpoint, u64),
        term: (ShardId, Epoch),
        keys: &[Vec<KeyHash>],
        is_query: bool,
    ) {
        let (changed, dropped) = (self.changed.get(&(id.0, term.0)), self.dropped.get(&(id.0, term.0)));
        let of_part = |keys: &Vec<KeyHash>| keys.iter().filter_map(|key| changed?.get(key).copied()).max();
        let mut end = dropped.copied().unwrap_or_default();
        let mut ends = if is_query { vec![end] } else { Vec::new() };
        for keys in keys {
            end = end.max(of_part(keys).unwrap_or_default());
            ends.push(end);
        }
        for end in &mut ends {
            *end = if self.below(term, *end).is_some() { *end } else { 0 };
        }
        let saw = self.reads.entry(id).or_insert(Saw { term, ends: ends.clone() });
        let is_same = saw.term == term && saw.ends.len() == ends.len();
        for (seen, end) in saw.ends.iter_mut().zip(ends) {
            *seen = if is_same { end.min(*seen) } else { 0 };
        }
    }

    fn on_answer(&mut self, id: (ProcessId, Endpoint, u64), result: &[u8]) {
        let Some(saw) = self.reads.get(&id) else { return };
        let ((shard, epoch), end) = (saw.term, saw.end(result));
        if end == 0 {
            return;
        }
        self.checked += 1;
        if let Some(synced) = self.below((shard, epoch), end) {
            self.violations.push(format!(
                "reads_wait: {shard} {epoch} answered a read of what had changed up to {end} when it arrived, and was synced \
                 to {synced} at most (section 6, D3)"
            ));
        }
    }
}

impl Watch for ReadsWait {
    fn arrived(&mut self, arrived: &Arrived<'_>, _view: &View<'_>) {
        if arrived.kind == Kind::Read as u8
            && let Ok(view) = ReadView::decode(arrived.payload)
            && let Ok(read) = Read::decode(view.code, view.arguments)
        {
            let mut keys = Vec::new();
            let is_query = match read {
                Read::Query { queries } => {
                    for part in queries.iter() {
                        let mut own = Vec::new();
                        part.operation.for_each_key(|key| own.push(key_hash(part.table, key)));
                        keys.push(own);
                    }
                    true
                }
                _ => {
                    let mut own = Vec::new();
                    read.for_each_key(view.table, |table, key| own.push(key_hash(table, key)));
                    keys.push(own);
                    false
                }
            };
            let term = (view.envelope.shard, view.envelope.epoch);
            self.on_read((arrived.at, arrived.from, view.read_id), term, &keys, is_query);
        }
    }

    fn sent(&mut self, sent: &Sent<'_>, _view: &View<'_>) {
        if sent.kind == Kind::ReadAnswer as u8 {
            if let Ok(answer) = ReadAnswerView::decode(sent.payload) {
                self.on_answer((sent.from, sent.to, answer.read_id), answer.result);
            }
        } else {
            self.synced.on_sent(sent);
        }
    }

    fn wrote(&mut self, by: ProcessId, file: FileName, offset: u64, len: usize, view: &View<'_>) {
        match wrote(by, file, (offset, len), self.segment_bytes, view) {
            Some((shard, Wrote::Bytes { base, bytes })) => self.on_groups(by, shard, base, &bytes),
            Some((shard, Wrote::Gone(gone))) => {
                self.changed.entry((by, shard)).or_default().retain(|_, end| !gone.contains(&(*end - 1)));
                self.dropped.retain(|&id, end| id != (by, shard) || !gone.contains(&(*end - 1)));
            }
            None => {}
        }
    }

    fn started(&mut self, process: ProcessId, _view: &View<'_>) {
        self.changed.retain(|(of, _), _| *of != process);
        self.dropped.retain(|(of, _), _| *of != process);
        self.reads.retain(|(at, ..), _| *at != process);
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: reads of something unsynced", self.checked);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::{ConnId, NodeId, TableId};

    use super::*;
    use crate::checkers::changes::TOMBSTONE_ENTRY;
    use crate::checkers::records::tests::{SHARD, three_cores};
    use crate::configurations::tests::{configuration, tell};

    const BY: ProcessId = ProcessId(1);
    const TERM: (ShardId, Epoch) = (SHARD, Epoch(1));

    /// A group that deletes this key; it ends 88 bytes behind where it begins.
    fn delete(key: u8) -> Vec<u8> {
        let mut bytes = vec![0; 88];
        bytes[..2].copy_from_slice(b"GK");
        bytes[4] = 40;
        (bytes[48], bytes[52]) = (TOMBSTONE_ENTRY, 25);
        (bytes[56], bytes[60], bytes[80]) = (1, 1, key);
        bytes
    }

    fn hash(key: u8) -> KeyHash {
        key_hash(TableId(1), &[key])
    }

    fn id(read: u64) -> (ProcessId, Endpoint, u64) {
        (BY, Endpoint::Conn(ConnId(1)), read)
    }

    #[test]
    fn a_copy_is_no_change() {
        let mut watch = watch();
        let mut copy = delete(b'a');
        copy[40] = 1;
        watch.on_groups(BY, SHARD, 188, &copy);
        watch.synced.acks(SHARD, Epoch(1), NodeId(2), 100);
        watch.on_read(id(1), TERM, &[vec![hash(b'a')]], false);
        watch.on_answer(id(1), &[]);
        assert_eq!(watch.take_violations(), Vec::<String>::new());
    }

    /// A primary with one backup, which deletes `a` and then `b`.
    fn watch() -> ReadsWait {
        let configurations = Configurations::default();
        tell(&configurations, &configuration(1, 1, 1));
        let mut watch = ReadsWait::new(configurations, three_cores(), 1 << 16);
        watch.on_groups(BY, SHARD, 12, &delete(b'a'));
        watch.on_groups(BY, SHARD, 100, &delete(b'b'));
        watch
    }

    #[test]
    fn d3_what_a_read_saw_is_synced_when_its_answer_leaves() {
        for (keys, acked, found) in [(&b"a"[..], 99, 1), (b"a", 100, 0), (b"ab", 187, 1), (b"ab", 188, 0), (b"c", 0, 0)]
        {
            let mut watch = watch();
            let keys: Vec<KeyHash> = keys.iter().map(|&key| hash(key)).collect();
            watch.on_read(id(1), TERM, std::slice::from_ref(&keys), false);
            watch.synced.acks(SHARD, Epoch(1), NodeId(2), acked);
            watch.on_answer(id(1), &[]);
            assert_eq!(watch.take_violations().len(), found, "{keys:?}, synced to {acked}");
        }
    }

    /// Found in three thousand seeds: what had not run was waited for.
    #[test]
    fn r10_17_of_a_query_that_ended_early_the_parts_count_that_ran() {
        for (ran, acked, found) in [(0, 0, 0), (1, 99, 1), (1, 100, 0), (2, 100, 1), (2, 188, 0)] {
            let mut watch = watch();
            watch.on_read(id(1), TERM, &[vec![hash(b'a')], vec![hash(b'b')]], true);
            watch.synced.acks(SHARD, Epoch(1), NodeId(2), acked);
            let part = [0, 1, 0, 0, 0, 0];
            let result = [&[0, ran, 0, 0, 0][..], &part.repeat(usize::from(ran))].concat();
            watch.on_answer(id(1), &result);
            assert_eq!(watch.take_violations().len(), found, "{ran} parts, synced to {acked}");
        }
    }

    #[test]
    fn what_comes_after_a_read_is_not_waited_for() {
        let mut watch = watch();
        watch.synced.acks(SHARD, Epoch(1), NodeId(2), 100);
        watch.on_read(id(1), TERM, &[vec![hash(b'a')]], false);
        watch.on_groups(BY, SHARD, 188, &delete(b'a'));
        watch.on_answer(id(1), &[]);
        // The answer to the first of two copies proves nothing, and neither does an answer that may be of another term.
        watch.on_read(id(1), TERM, &[vec![hash(b'a')]], false);
        watch.on_answer(id(1), &[]);
        watch.on_read(id(2), TERM, &[vec![hash(b'a')]], false);
        watch.on_read(id(2), (SHARD, Epoch(2)), &[vec![hash(b'a')]], false);
        watch.on_answer(id(2), &[]);
        watch.on_answer(id(4), &[]);
        assert_eq!(watch.take_violations(), Vec::<String>::new());
        watch.on_read(id(3), TERM, &[vec![hash(b'a')]], false);
        watch.on_answer(id(3), &[]);
        assert_eq!(watch.take_violations().len(), 1);
    }
}
