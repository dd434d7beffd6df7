//! A crash between every two steps of cleaning: nothing that was acknowledged is lost or doubled.
//!
//! A load runs once, and every step of each node's shell is noted in order: writes, replacements and removals of files, commits,
//! answers. Nothing else decides what a crash behind a step leaves, so that it need not run again for each of them. From the
//! first copy until segments that were cleaned are gone from all members, each step is such a point: nodes start again from what
//! it left, a new term begins, and all clients ask again. No update has a witness here: what a replay of a witness does is in
//! the simulator.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::common::cleaning_load::{Call, EXPIRED, GONE, LATER, NOW, Run, State, body, heard_by, key, send, start};
use crate::common::cluster::Cluster;
use crate::common::crashes::{Disk, Kinds};
use crate::common::{Files, Heard, TABLE};
use kasha_log::EntryKind;
use kasha_machine::Endpoint;
use kasha_types::{ConnId, Incarnation, ListVersion, NodeId};
use kasha_wire::frame::Kind;
use kasha_wire::hot::ReadView;
use kasha_wire::operation::ItemsBuffer;
use kasha_wire::outcome::Shape;
use kasha_wire::status::ReplicaStatus;
use kasha_wire::{Durability, Outcome, Read, Refusal, ShardPhase, Update};

/// What a crash leaves. A node without files is gone for good.
#[derive(PartialEq)]
struct Left {
    files: Vec<Files>,
    boot: u128,
    /// Who leads the next term.
    leader: u16,
    /// So many calls were surely done, so many begun.
    done: usize,
    begun: usize,
}

/// After a crash.
impl Run {
    fn started_again(&self, left: &Left) -> Cluster {
        let is_there: Vec<_> = left.files.iter().map(|files| !files.0.is_empty()).collect();
        let is_there = |node: NodeId| is_there[usize::from(node.0) - 1];
        let cores = left.files.iter().enumerate().map(|(node, files)| start(node, files.clone(), 2, left.boot));
        let mut cluster = Cluster::of(cores.collect(), self.cluster.configuration.clone());
        cluster.epoch = cluster.epoch.next();
        let epoch = cluster.epoch;
        cluster.commit(|config| {
            for info in &mut config.nodes {
                (info.incarnation, info.alive) = (Incarnation((2 << 32) | 1), is_there(info.node));
            }
            let shard = &mut config.shards[0];
            (shard.epoch, shard.primary, shard.phase) = (epoch, NodeId(left.leader), ShardPhase::Recovering);
            shard.recover_from = shard.members.iter().map(|member| member.node).collect();
            shard.members.retain(|member| is_there(member.node));
        });
        let is_recovered = |cluster: &Cluster| status(cluster).state == "waits for the coordinator's commit";
        for _ in 0..10 {
            if is_recovered(&cluster) {
                break;
            }
            cluster.tick(30);
            cluster.on_the_way.retain(|carried| is_there(carried.to) && is_there(carried.from));
            cluster.carry();
        }
        cluster.commit(|config| {
            let shard = &mut config.shards[0];
            (shard.phase, shard.list) = (ShardPhase::Serving, shard.list.next());
            shard.recover_from.clear();
            let others = shard.members.iter().map(|member| member.node).filter(|node| *node != shard.primary);
            shard.witnesses = others.collect();
        });
        cluster.it_is(NOW);
        cluster.carry();
        cluster
    }

    fn check(&self, left: &Left) -> Result<(), String> {
        let (done, begun) = (left.done, left.begun);
        let mut cluster = self.started_again(left);
        let found = self.all_values(&mut cluster)?;
        let ran = (done..=begun).find(|&calls| found == self.states[calls]);
        let ran = ran.ok_or_else(|| differences(&found, &self.states[done]))?;
        let mut results: Vec<_> = self.calls[..ran].iter().map(|call| call.result.clone()).collect();
        self.ask_again(&mut cluster, begun, &mut results)?;
        let found = self.all_values(&mut cluster)?;
        // What runs only now may get other versions, where a version floor was raised.
        let value = |state: &State, key: &Vec<u8>| state.get(key).map(|(_, value)| value.clone());
        let is_as_expected = |key: &Vec<u8>| match (self.states[ran].get(key), self.states[begun].get(key)) {
            (before, after) if before == after => found.get(key) == after,
            _ => value(&found, key) == value(&self.states[begun], key),
        };
        if !self.keys.iter().all(is_as_expected) {
            return Err(format!("asking again changed: {}", differences(&found, &self.states[begun])));
        }
        self.go_on(&mut cluster)?;
        self.ask_again(&mut cluster, begun, &mut results)?;
        let still = self.all_values(&mut cluster)?;
        if found != still {
            return Err(format!("going on changed: {}", differences(&still, &found)));
        }
        let compared = cluster.cores.iter().map(|core| core.node.replay_equals_state()).sum::<Result<u64, _>>()?;
        if compared == 0 { Err("nothing was compared".to_owned()) } else { Ok(()) }
    }

    fn all_values(&self, cluster: &mut Cluster) -> Result<State, String> {
        let items = ItemsBuffer::keys(self.keys.iter().map(Vec::as_slice));
        let read = Read::MultiGet { keys: items.as_items() };
        let (mut arguments, mut frame) = (Vec::new(), Vec::new());
        read.encode_arguments(&mut arguments);
        let envelope = cluster.envelope(ListVersion::NONE);
        ReadView { envelope, read_id: 1, table: TABLE, code: read.code(), arguments: &arguments }.encode(&mut frame);
        let primary = cluster.configuration.shards[0].primary.0;
        cluster.on(primary, |core| core.frame_from(Endpoint::Conn(ConnId(LATER)), Kind::Read, &frame));
        match heard_by(cluster, LATER, |_| ()) {
            Some(Heard::Read(result)) => {
                let Ok(Outcome::Values(values)) = Outcome::decode(Shape::Values, &result) else { panic!("{result:?}") };
                Ok(self.keys.iter().cloned().zip(values).filter_map(|(key, value)| Some((key, value?))).collect())
            }
            heard => Err(format!("a read is answered {heard:?}")),
        }
    }

    /// Each client sends again what was done and not acknowledged, and what it had begun. `results`: of what was done, and
    /// then also of what was only begun.
    fn ask_again(&self, cluster: &mut Cluster, begun: usize, results: &mut Vec<Vec<u8>>) -> Result<(), String> {
        let done = results.len();
        for (index, call) in self.calls[..begun].iter().enumerate() {
            let &Call { client, sequence, .. } = call;
            let later = &self.calls[index..done.max(index)];
            let is_acknowledged = later.iter().any(|later| later.client == client && later.acknowledges > sequence);
            if is_acknowledged && index + 4 < done {
                continue; // a few of them will do
            }
            let heard = send(cluster, client, &call.body);
            let is_right = match &heard {
                Some(Heard::Answer { synced: true, result }) if index >= done => {
                    results.push(result.clone());
                    true
                }
                Some(Heard::Answer { synced: true, result }) => !is_acknowledged && *result == results[index],
                Some(Heard::Refused(Refusal::Stale)) => is_acknowledged,
                // A replay may also find its old record: the copy of a floor names nobody. Either is right, and runs nothing.
                Some(Heard::Refused(Refusal::LeaseExpired)) => client == EXPIRED,
                _ => false,
            };
            if !is_right {
                return Err(format!("{client} {sequence} is answered {heard:?}, not {:?}", call.result));
            }
        }
        let counter = key("n");
        let increment = Update::increment(&counter, 1);
        match send(cluster, LATER + 1, &body((LATER + 1, 1), 1, Some(b"order"), &increment)) {
            Some(Heard::Answer { synced: true, result }) if result == self.calls[self.order].result => Ok(()),
            heard => Err(format!("the operation key answers {heard:?}")),
        }
    }

    /// Updates go on, until a segment is cleaned.
    fn go_on(&self, cluster: &mut Cluster) -> Result<(), String> {
        for sequence in 1..60 {
            let put = Update::put(b"later", &[7; 900]);
            let heard = send(cluster, LATER, &body((LATER, sequence), sequence, None, &put));
            let Some(Heard::Answer { synced: true, .. }) = heard else { return Err(format!("{sequence}: {heard:?}")) };
            cluster.tick(20);
            if status(cluster).cleaning.cleaned_segments > 0 {
                return Ok(());
            }
        }
        Err("no segment is cleaned any more".to_owned())
    }
}

/// Of the primary.
fn status(cluster: &Cluster) -> ReplicaStatus {
    let core = &cluster.cores[usize::from(cluster.configuration.shards[0].primary.0) - 1];
    core.node.status(core.now).replicas.swap_remove(0)
}

fn differences(found: &State, expected: &State) -> String {
    let keys: BTreeSet<_> = found.keys().chain(expected.keys()).collect();
    let mut differ = keys.into_iter().filter(|key| found.get(*key) != expected.get(*key));
    let key = differ.next().expect("they differ");
    let told = |state: &State| format!("{:.30?}", state.get(key)).chars().take(30).collect::<String>();
    format!("{} is {}, not {}", String::from_utf8_lossy(key), told(found), told(expected))
}

/// The points of a run at which something crashed.
#[derive(Default)]
struct Crashes {
    points: usize,
    /// What the steps before them copied, and how many of them were part of cleaning.
    copied: Vec<EntryKind>,
    copies: usize,
    freed: usize,
    removed: usize,
    failures: Vec<String>,
}

impl Crashes {
    /// Behind every step from the first copy on. `matter`: the nodes of which something is left.
    fn happen_everywhere(run: &Run, matter: &[usize], leave: impl Fn(&[Disk; 3], usize) -> Vec<Left>) {
        let (mut crashes, mut disks) = (Self::default(), <[Disk; 3]>::default());
        let (mut last, mut steps_since) = (Vec::new(), Vec::new());
        let first = run.steps.iter().position(|(_, step)| !Kinds::of(step).copied.is_empty()).expect("a copy");
        for (before, (node, step)) in run.steps.iter().enumerate() {
            disks[*node].follow(before + 1, step);
            if before + 2 < first {
                continue;
            }
            steps_since.extend(matter.contains(node).then_some(step));
            let left = leave(&disks, before + 1);
            for left in left.iter().filter(|left| !last.contains(*left)) {
                crashes.points += 1;
                steps_since.drain(..).for_each(|step| crashes.count(&Kinds::of(step)));
                let checked = catch_unwind(AssertUnwindSafe(|| run.check(left)));
                if let Err(why) = checked.unwrap_or_else(|_| Err("a panic".to_owned())) {
                    let step = format!("{step:?}").chars().take(70).collect::<String>();
                    crashes.failures.push(format!("behind step {before} of node {node}, {step}: {why}"));
                }
            }
            last = left;
        }
        crashes.assert_meaningful(matter.len());
        assert_eq!(run.unlike_replays, Vec::<String>::new());
    }

    fn count(&mut self, kinds: &Kinds) {
        self.copied.extend(&kinds.copied);
        self.copies += usize::from(!kinds.copied.is_empty());
        self.freed += kinds.freed;
        self.removed += usize::from(kinds.removed);
    }

    fn assert_meaningful(&self, members: usize) {
        assert!(self.failures.is_empty(), "{} of {}:\n{}", self.failures.len(), self.points, self.failures.join("\n"));
        for (what, count) in [("copies", self.copies), ("freed words", self.freed), ("removals", self.removed)] {
            assert!(count >= GONE * members, "only {count} {what}");
        }
        for kind in [
            EntryKind::Object,
            EntryKind::Tombstone,
            EntryKind::Completion,
            EntryKind::OperationKey,
            EntryKind::OperationKeyDropped,
            EntryKind::ExpiryFloor,
        ] {
            assert!(self.copied.contains(&kind), "no {kind:?} was copied");
        }
    }
}

/// What a kill leaves of this node: behind these steps, or in the middle of the next one.
fn killed(run: &Run, disks: &[Disk; 3], node: usize, steps: usize) -> Vec<Files> {
    let next = run.steps.get(steps).filter(|(of, _)| *of == node);
    let within = next.map(|(_, step)| disks[node].within(step)).unwrap_or_default();
    within.into_iter().chain([disks[node].cached.clone()]).collect()
}

fn alone(files: Files) -> Vec<Files> {
    vec![files, Files::default(), Files::default()]
}

#[test]
fn a_killed_process_finds_everything() {
    let run = Run::of(1, Durability::Replicated);
    assert!(Run::of(1, Durability::Replicated).steps == run.steps, "the steps of a load are always the same");
    Crashes::happen_everywhere(&run, &[0], |disks, steps| {
        let (done, begun) = (run.answered(steps), run.begun(steps + 1));
        let left = killed(&run, disks, 0, steps).into_iter();
        left.map(|files| Left { files: alone(files), boot: 1, leader: 1, done, begun }).collect()
    });
}

/// Without another member a loss of power takes answers, but none that an fsync came after.
#[test]
fn a_loss_of_power_takes_nothing_that_was_fsynced() {
    let run = Run::of(1, Durability::Replicated);
    Crashes::happen_everywhere(&run, &[0], |disks, steps| {
        let (done, begun) = (run.answered(disks[0].fsynced), run.begun(steps));
        let left = disks[0].after_power_loss();
        left.map(|files| Left { files: alone(files), boot: 2, leader: 1, done, begun }).into()
    });
}

#[test]
fn a_primary_that_is_gone_is_succeeded_by_a_member_that_has_everything() {
    let run = Run::of(3, Durability::Replicated);
    Crashes::happen_everywhere(&run, &[1, 2], |disks, steps| {
        let (done, begun) = (run.answered(steps), run.begun(steps + 1));
        let left = killed(&run, disks, 1, steps).into_iter();
        let files = left.map(|files| vec![Files::default(), files, disks[2].cached.clone()]);
        files.map(|files| Left { files, boot: 1, leader: 2, done, begun }).collect()
    });
}

#[test]
fn members_that_all_lose_power_have_everything_that_was_answered() {
    let run = Run::of(3, Durability::Fsync);
    Crashes::happen_everywhere(&run, &[0, 1, 2], |disks, steps| {
        let (done, begun) = (run.answered(steps), run.begun(steps));
        let files = disks.iter().map(|disk| disk.after_power_loss()[0].clone()).collect();
        vec![Left { files, boot: 2, leader: 1 + (done % 3) as u16, done, begun }]
    });
}
