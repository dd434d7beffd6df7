//! Convergence: when messages flow and nothing fails, every call ends, every shard becomes whole, and the replicas of a
//! shard hold the same segments with the same bytes. A segment that the log says is freed is freed at all replicas. Every
//! transaction over several shards has an outcome everywhere, and no answer is held behind a gate (T4).

use std::collections::{BTreeMap, BTreeSet};

use kasha_machine::FileName;
use kasha_types::{NodeId, SegmentId, ShardId};
use kasha_wire::status::{ReplicaStatus, TransactionsStatus};
use kasha_wire::{Configuration, MemberState};

use crate::checkers::records::{SEGMENT_FREED_ENTRY, entries_in};
use crate::configurations::{Cores, what_lacks};
use crate::disk::Content;
use crate::process::Process;

/// What has not converged, as text.
#[must_use]
pub fn lacks(
    latest: Option<&Configuration>,
    cores: &Cores,
    processes: &[Process],
    segment_bytes: u32,
) -> Option<String> {
    let Some(configuration) = latest else { return Some("nobody was told a configuration".into()) };
    if let Some(lacks) = what_lacks(configuration) {
        return Some(lacks);
    }
    configuration.shards.iter().find_map(|shard| {
        let mut known: Option<(u64, BTreeMap<SegmentId, &Content>)> = None;
        shard.members.iter().find_map(|member| {
            let id = cores.host_of(configuration, member.node, shard.shard)?;
            let process = &processes[id.0];
            let status = process.status()?;
            let Some(replica) = status.replicas.iter().find(|replica| replica.shard == shard.shard) else {
                return Some(format!("{} has no replica of {}", member.node, shard.shard));
            };
            if member.node == shard.primary && replica.unsynced_operations > 0 {
                return Some(format!("{} has unsynced operations", shard.shard));
            }
            if let Some(unended) = unended(replica).filter(|_| member.node == shard.primary) {
                return Some(format!("{}: {unended} (T4)", shard.shard));
            }
            let end = replica.end.offset.0;
            let segments = segments(process, shard.shard);
            let Some((known_end, known_segments)) = &known else {
                known = Some((end, segments));
                return None;
            };
            if *known_end != end {
                return Some(format!("{}: {} ends at {end}, another at {known_end}", shard.shard, member.node));
            }
            // A backup learns that the last entry is synced only with the next append. Until then it may keep what that
            // entry frees.
            let freed = freed_in(segments.values().chain(known_segments.values()).copied());
            let kept = |ids: &BTreeMap<SegmentId, &Content>| -> Vec<SegmentId> {
                ids.keys().copied().filter(|id| !freed.contains(id)).collect()
            };
            if kept(known_segments) != kept(&segments) {
                let (these, others): (Vec<_>, Vec<_>) = (segments.keys().collect(), known_segments.keys().collect());
                return Some(format!("{}: {} holds {these:?}, another {others:?}", shard.shard, member.node));
            }
            let differing = segments.iter().find(|(id, content)| {
                let base = u64::from(id.0) * u64::from(segment_bytes);
                let len = usize::try_from(end.saturating_sub(base).min(u64::from(segment_bytes))).expect("small");
                known_segments.get(id).is_some_and(|other| !same(other, content, len))
            });
            differing.map(|(id, _)| format!("{}: {} differs in {id:?}", shard.shard, member.node))
        })
    })
}

/// What of transactions over several shards has not ended at a primary.
fn unended(replica: &ReplicaStatus) -> Option<String> {
    let TransactionsStatus { pending, held_answers, oldest, .. } = &replica.transactions;
    let is_over = *pending == 0 && *held_answers == 0;
    (!is_over).then(|| format!("{pending} transactions have no outcome, {held_answers} answers are held: {oldest:?}"))
}

/// The segments that a log says are freed.
fn freed_in<'a>(segments: impl Iterator<Item = &'a Content>) -> BTreeSet<SegmentId> {
    let mut freed = BTreeSet::new();
    for content in segments {
        entries_in(&content.bytes(), |kind, payload| {
            if let (SEGMENT_FREED_ENTRY, Some(id)) = (kind, payload.first_chunk()) {
                freed.insert(SegmentId(u32::from_le_bytes(*id)));
            }
        });
    }
    freed
}

/// Whether a joiner has copied a part of what it lacks, but not everything.
#[must_use]
pub fn is_copying(configuration: &Configuration, cores: &Cores, processes: &[Process]) -> bool {
    configuration.shards.iter().any(|shard| {
        let files = |node| {
            let process = &processes[cores.host_of(configuration, node, shard.shard)?.0];
            process.is_running().then(|| segments(process, shard.shard))
        };
        let Some(primary) = files(shard.primary) else { return false };
        let joiners = shard.members.iter().filter(|member| member.state == MemberState::Joining);
        joiners.filter_map(|joiner| files(joiner.node)).any(|copied| {
            // Older segments come in their order. The joiner has the newest one from the beginning.
            let lacks = primary.keys().rfind(|id| !copied.contains_key(id));
            lacks.is_some_and(|lacks| copied.keys().any(|id| id < lacks))
        })
    })
}

/// Whether a primary's log says at its end that a segment is freed which is newer than every segment of this node.
#[must_use]
pub fn is_freed_meanwhile(
    configuration: &Configuration,
    cores: &Cores,
    processes: &[Process],
    (shard, node): (ShardId, NodeId),
) -> bool {
    let files = |node| cores.host_of(configuration, node, shard).map(|id| segments(&processes[id.0], shard));
    let primary = configuration.shard(shard).and_then(|config| files(config.primary));
    let (Some(whole), Some(left)) = (primary, files(node)) else { return false };
    let freed = freed_in(whole.values().rev().take(2).copied());
    freed.last() > left.keys().next_back()
}

/// Whether every member is up and holds everything that counts as synced. A member that lost some of it must copy it
/// again.
#[must_use]
pub fn all_hold_what_is_synced(configuration: &Configuration, cores: &Cores, processes: &[Process]) -> bool {
    configuration.shards.iter().all(|shard| {
        let replica = |node| {
            let status = processes[cores.host_of(configuration, node, shard.shard)?.0].status()?;
            status.replicas.into_iter().find(|replica| replica.shard == shard.shard)
        };
        let Some(primary) = replica(shard.primary) else { return false };
        // The end of its log does not tell: a damaged member is copied anew behind a tail that is up to date.
        let is_whole = |held: ReplicaStatus| held.primary || held.state.starts_with("following");
        let holds = |held: ReplicaStatus| held.end.offset >= primary.synced && is_whole(held);
        shard.members.iter().all(|member| replica(member.node).is_some_and(holds))
    })
}

/// Whether two segments have the same content. Bytes behind a segment's last group mean nothing.
fn same(a: &Content, b: &Content, len: usize) -> bool {
    let len = len.min(usize::try_from(a.len().min(b.len())).expect("small"));
    a.read(0, len) == b.read(0, len)
}

fn segments(process: &Process, shard: ShardId) -> BTreeMap<SegmentId, &Content> {
    let of_shard = |(name, content)| match name {
        FileName::Segment { shard: of, segment } if of == shard => Some((segment, content)),
        _ => None,
    };
    process.disk.files().filter_map(of_shard).collect()
}

#[cfg(test)]
mod tests {
    use kasha_machine::Machine;
    use kasha_types::{ConfigVersion, CoreId, Epoch, Incarnation, LogEnd, LogPosition};
    use kasha_wire::status::CoreStatus;

    use super::*;
    use crate::configurations::tests::configuration;
    use crate::network::{HostId, ProcessId};
    use crate::process::{Actor, Running};

    /// A core that reports this about its replica, and does nothing.
    struct Says(ReplicaStatus);

    impl Actor for Says {
        fn machine(&self) -> &dyn Machine {
            unreachable!("nothing happens to it")
        }
        fn machine_mut(&mut self) -> &mut dyn Machine {
            unreachable!("nothing happens to it")
        }
        fn status(&self) -> Option<CoreStatus> {
            let (core, incarnation) = (CoreId { node: NodeId(1), core: 0 }, Incarnation(1));
            let (configuration, replicas) = (ConfigVersion(1), vec![self.0.clone()]);
            let (witnesses, port) = (Vec::new(), kasha_wire::Later::absent());
            Some(CoreStatus { core, incarnation, configuration, lease: true, replicas, witnesses, port })
        }
    }

    /// The core of a primary, which has synced up to 100, or of another member.
    fn process(primary: bool, state: &str, end: u64) -> Process {
        let replica = ReplicaStatus {
            shard: ShardId(0),
            epoch: Epoch(1),
            primary,
            complete: true,
            state: state.to_owned(),
            end: LogPosition { epoch: Epoch(1), offset: LogEnd(end) },
            synced: LogEnd(if primary { 100 } else { 0 }),
            unsynced_operations: 0,
            objects: 0,
            memory_bytes: 0,
            memory_max_bytes: 0,
            memory: kasha_wire::status::Memory::Enough,
            cleaning: kasha_wire::status::Cleaning::default(),
            transactions: kasha_wire::status::TransactionsStatus::default(),
            clients: 0,
            completion_records: 0,
            updates: 0,
            reads: 0,
            fast_answers: 0,
            gated_answers: 0,
            duplicates_suppressed: 0,
            repeats_suppressed: 0,
            refusals: 0,
            syncs: 0,
        };
        let address = std::net::SocketAddr::from(([10, 0, 0, 1], 1));
        let mut process =
            Process::new(HostId(0), "core".to_owned(), address, Box::new(|_, _| Err("it runs".to_owned())));
        process.actor = Some(Running(Box::new(Says(replica))));
        process
    }

    #[test]
    fn t4_a_primary_has_ended_every_transaction() {
        let Some(CoreStatus { replicas, .. }) = process(true, "serves", 100).status() else { panic!("it runs") };
        let [mut replica] = replicas.try_into().expect("one");
        assert_eq!(unended(&replica), None);
        replica.transactions.kept = 7;
        assert_eq!(unended(&replica), None, "their clients may still ask");
        replica.transactions.held_answers = 1;
        assert!(unended(&replica).is_some());
        (replica.transactions.held_answers, replica.transactions.pending) = (0, 1);
        assert!(unended(&replica).is_some());
    }

    /// Found by a sweep (`damaged_files` 4810): by the end of its log such a member counted as whole, and then the only
    /// whole member was damaged.
    #[test]
    fn r5_5_who_is_copied_anew_behind_a_live_tail_is_not_whole() {
        let configuration = configuration(1, 1, 1);
        let mut cores = Cores::default();
        for node in 1..=2_u16 {
            cores.add(ProcessId(usize::from(node) - 1), CoreId { node: NodeId(node), core: 0 });
        }
        let all_hold = |state: &str, end: u64| {
            let processes = [process(true, "serving", 120), process(false, state, end)];
            all_hold_what_is_synced(&configuration, &cores, &processes)
        };
        assert!(all_hold("following", 100) && all_hold("following, replaying", 100));
        assert!(!all_hold("following", 99));
        // As in the transcript `r7_2_joiner_counts_but_is_not_elected`.
        for state in ["joining: older data is being copied", "waits to be attached", "waits for a primary"] {
            assert!(!all_hold(state, 100), "{state}");
        }
    }

    #[test]
    fn a_cluster_that_is_not_whole_has_not_converged() {
        let mut lacking = configuration(1, 1, 1);
        lacking.shards[0].witnesses.clear();
        assert!(lacks(None, &Cores::default(), &[], 1).is_some());
        assert!(lacks(Some(&lacking), &Cores::default(), &[], 1).expect("witnesses").contains("lacks witnesses"));
        assert_eq!(lacks(Some(&configuration(1, 1, 1)), &Cores::default(), &[], 1), None);
    }
}
