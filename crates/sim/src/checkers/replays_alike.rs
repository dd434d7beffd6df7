//! **R10.11**, C2: an update that was promised came to what every later execution of it comes to. A witness holds its request, and a new primary
//! runs it again; so it has to tell the same result, and to leave the same values with the same ends.
//!
//! Read from the groups that primaries write: the changes beside a completion record, and its result. What an earlier primary has executed,
//! and nobody was promised, may have come to something else. The results of transactions over several shards are compared by `prepared_kept`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::hash::{DefaultHasher, Hash, Hasher};

use kasha_machine::FileName;
use kasha_types::{BodyHash, Epoch, RpcId};
use kasha_wire::frame::Kind;
use kasha_wire::{AnswerView, Body, Recorded, RequestView, Synced, hot};

use crate::checkers::changes::TOMBSTONE_ENTRY;
use crate::checkers::promises::{Promise, Promises};
use crate::checkers::records::{COMPLETION_ENTRY, groups_in, result_of};
use crate::configurations::Configurations;
use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{Sent, View, Watch};

const OBJECT_ENTRY: u8 = 1;
/// What of an object or a tombstone is not told, and differs from log to log: version, segments.
const OWN: std::ops::Range<usize> = 8..24;

/// What an update came to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CameTo {
    result: Vec<u8>,
    /// How many values it changed, and a checksum of these.
    changes: (usize, u64),
}

/// What is known of one update.
#[derive(Debug, Default)]
struct Known {
    body: Option<BodyHash>,
    /// By the epoch of the primary that ran it.
    runs: BTreeMap<Epoch, CameTo>,
    /// In which epoch it was first promised.
    promised: Option<Epoch>,
    /// A client asks different things under this id, or all machines have lost power: it proves nothing.
    is_excused: bool,
}

/// Watches answers, and segment files.
#[derive(Debug, Default)]
pub struct ReplaysAlike {
    promises: Promises,
    updates: BTreeMap<RpcId, Known>,
    violations: Vec<String>,
    checked: u64,
}

fn changes_of(entries: &[(u8, &[u8])]) -> (usize, u64) {
    let mut hasher = DefaultHasher::new();
    let changes = entries.iter().filter(|(kind, _)| matches!(*kind, OBJECT_ENTRY | TOMBSTONE_ENTRY));
    let mut count = 0;
    for (kind, entry) in changes {
        let mut entry = entry.to_vec();
        entry.iter_mut().take(OWN.end).skip(OWN.start).for_each(|byte| *byte = 0);
        (kind, entry).hash(&mut hasher);
        count += 1;
    }
    (count, hasher.finish())
}

impl ReplaysAlike {
    /// Watches under these configurations.
    #[must_use]
    pub fn new(configurations: Configurations) -> Self {
        Self { promises: Promises::new(configurations), ..Self::default() }
    }

    fn on_request(&mut self, body: &Body<'_>) {
        if body.participants().is_none() {
            let hash = Some(body.hash());
            let known = self.updates.entry(body.head.rpc).or_default();
            known.is_excused |= known.body.is_some() && known.body != hash;
            known.body = hash;
        }
    }

    fn on_bytes(&mut self, bytes: &[u8]) {
        let mut judged = Vec::new();
        groups_in(bytes, |group| {
            let record = group.entries.iter().find(|(kind, _)| *kind == COMPLETION_ENTRY && !group.is_copies);
            let Some((rpc, result)) = record.and_then(|(_, entry)| result_of(entry)) else { return };
            let Some(known) = self.updates.get_mut(&rpc) else { return };
            if let Entry::Vacant(run) = known.runs.entry(group.epoch) {
                run.insert(CameTo { result: result.to_vec(), changes: changes_of(group.entries) });
                judged.push((rpc, group.epoch));
            }
        });
        for (rpc, epoch) in judged {
            self.judge(rpc, epoch);
        }
    }

    fn on_promise(&mut self, rpc: RpcId, epoch: Epoch) {
        let Some(known) = self.updates.get_mut(&rpc).filter(|known| known.promised.is_none()) else { return };
        known.promised = Some(epoch);
        let later: Vec<_> = known.runs.range(epoch..).map(|(&epoch, _)| epoch).collect();
        later.into_iter().for_each(|epoch| self.judge(rpc, epoch));
    }

    /// Compares a run with the one that was promised: the last one up to the epoch in which it was.
    fn judge(&mut self, rpc: RpcId, epoch: Epoch) {
        let known = &self.updates[&rpc];
        let Some(promised) = known.promised.filter(|&promised| promised < epoch && !known.is_excused) else { return };
        let Some((_, first)) = known.runs.range(..=promised).next_back() else { return };
        let again = &known.runs[&epoch];
        self.checked += 1;
        if first != again {
            self.violations.push(format!(
                "replays_alike: {rpc} was promised in {promised} and came to {first:?}, and in {epoch} it comes to {again:?} (R10.11)"
            ));
        }
    }
}

impl Watch for ReplaysAlike {
    fn sent(&mut self, sent: &Sent<'_>, _view: &View<'_>) {
        let mut attempt = None;
        let mut epoch = None;
        match Kind::from_number(sent.kind) {
            Some(Kind::Request | Kind::Cancel) => {
                if let Ok(request) = RequestView::decode(sent.payload)
                    && let Ok(body) = Body::decode(request.body)
                {
                    self.on_request(&body);
                }
            }
            Some(Kind::Answer) => epoch = AnswerView::decode(sent.payload).ok().map(|answer| answer.epoch),
            Some(Kind::Synced) => epoch = hot::decode_small::<Synced>(sent.payload).ok().map(|synced| synced.epoch),
            Some(Kind::Recorded) => {
                let recorded = hot::decode_small::<Recorded>(sent.payload).ok();
                attempt = recorded.map(|recorded| (recorded.rpc, recorded.shard, recorded.attempt));
            }
            _ => {}
        }
        if let Some(Promise::Update(rpc)) = self.promises.take_in(sent) {
            let answered = attempt.and_then(|attempt| self.promises.attempts.get(&attempt)?.answered);
            if let Some(epoch) = epoch.or(answered) {
                self.on_promise(rpc, epoch);
            }
        }
    }

    fn wrote(&mut self, by: ProcessId, file: FileName, offset: u64, len: usize, view: &View<'_>) {
        let FileName::Segment { .. } = file else { return };
        if let Some(content) = view.processes[by.0].disk.cached(file) {
            self.on_bytes(&content.read(offset, len));
        }
    }

    fn blackout(&mut self, _view: &View<'_>) {
        self.updates.values_mut().for_each(|known| known.is_excused = true);
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: what was promised and runs again", self.checked);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::records::tests::{RPC, group};

    /// A group of this epoch, in which the update changes one value, and is told this.
    fn run(epoch: u8, value: u8, told: u8) -> Vec<u8> {
        let mut bytes = group(RPC);
        bytes[24] = epoch;
        let record = bytes.len() - 1;
        bytes[record] = told;
        // Offset 8 to 24 of the object is its version and the like.
        let mut object = vec![0; 32];
        (object[8], object[31]) = (epoch, value);
        bytes.extend_from_slice(&[OBJECT_ENTRY, 0, 0, 0, 32, 0, 0, 0]);
        bytes.extend_from_slice(&object);
        bytes[4..8].copy_from_slice(&(56u32 + 40).to_le_bytes());
        bytes
    }

    fn found(promised: u32, runs: &[Vec<u8>]) -> usize {
        let mut watch = ReplaysAlike::default();
        watch.updates.insert(RPC, Known::default());
        let (before, after) = runs.split_at(1);
        before.iter().for_each(|bytes| watch.on_bytes(bytes));
        watch.on_promise(RPC, Epoch(promised));
        after.iter().for_each(|bytes| watch.on_bytes(bytes));
        watch.take_violations().len()
    }

    #[test]
    fn r10_11_what_was_promised_comes_to_the_same_again() {
        assert_eq!(found(1, &[run(1, 5, 6), run(2, 5, 6), run(3, 5, 6)]), 0);
        assert_eq!(found(1, &[run(1, 5, 6), run(2, 5, 7)]), 1, "another result");
        assert_eq!(found(1, &[run(1, 5, 6), run(2, 4, 6)]), 1, "another value");
        assert_eq!(found(2, &[run(1, 5, 6), run(2, 4, 7), run(3, 4, 7)]), 0, "the first run was promised to nobody");
        assert_eq!(found(2, &[run(1, 5, 6), run(2, 4, 7), run(3, 5, 6)]), 1);
        assert_eq!(found(2, &[run(1, 5, 6), run(3, 5, 7)]), 1, "the second primary has the first one's record");
    }

    #[test]
    fn what_was_promised_late_is_compared_with_what_ran_before() {
        let mut watch = ReplaysAlike::default();
        watch.updates.insert(RPC, Known::default());
        watch.on_bytes(&[run(1, 5, 6), run(2, 5, 7)].concat());
        assert_eq!(watch.take_violations(), Vec::<String>::new());
        watch.on_promise(RPC, Epoch(1));
        assert_eq!(watch.take_violations().len(), 1);
    }
}
