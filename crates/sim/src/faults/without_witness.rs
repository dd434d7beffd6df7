//! Directed faults for recovery without a witness (R7.7): all witnesses of a shard lose their files for good, or are
//! away, at a moment when only the primary's log has what was answered last.

use kasha_machine::FileName;
use kasha_types::{Epoch, ShardId};
use kasha_wire::ShardPhase;

use super::nemesis::{Cuts, Fault, Nemesis, Parts, always, both_ways};
use super::orderly_stop::{Afterwards, STOP_PATIENCE};
use crate::clock::{SimTime, micros, millis};
use crate::intensity::Act;
use crate::network::HostId;
use crate::process::Process;
use crate::world::World;

/// How often it is checked whether a successor has begun.
const LOOK_FOR_SUCCESSOR_EVERY: u64 = micros(50);

pub(super) const FAULTS: &[Fault] = &[Fault {
    act: Act::WithoutWitness,
    is_possible: always,
    cause: |nemesis, world, _| nemesis.without_witness(world),
}];

/// The ways in which a shard is left without a witness.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    /// All processes are killed, and the files are gone when they come back.
    AllKilled,
    /// All processes are asked to stop, and the files are gone when they come back.
    AllStopped,
    /// The primary's process alone is asked to stop, and comes back late. The witnesses keep their files.
    PrimaryStopped,
    /// The primary is away for long. The witnesses come back at once, without their files.
    PrimaryAway,
    /// The primary comes back. Its successor dies in the middle of its recovery. Then the witnesses are away, with or
    /// without their files.
    SuccessorDies { files_gone: bool },
    /// The successor, which has replayed a witness, dies in the write with which its term begins. The last primary is
    /// back, and the other nodes hear it now. The witnesses lose their files.
    TermTorn,
}

impl Nemesis {
    /// For a moment the primary reaches only its witnesses; then one of the [`Way`]s happens.
    pub(super) fn without_witness(&mut self, world: &mut World) {
        let Some(Parts { shard, primary, backups, witnesses }) = self.parts() else { return };
        if !self.may_lose_a_copy(world) || witnesses.is_empty() || witnesses.contains(&primary) {
            return;
        }
        world.probes.hit("nemesis: without a witness");
        self.lost_at = Some(world.now);
        let way = match self.rng.below(12) {
            0..3 => Way::AllKilled,
            3 => Way::AllStopped,
            4 => Way::PrimaryStopped,
            5 => Way::PrimaryAway,
            6..10 => Way::TermTorn,
            choice => Way::SuccessorDies { files_gone: choice == 10 },
        };
        let shortest = if matches!(way, Way::TermTorn) { 30 } else { 1 };
        let alone = self.rng.between(millis(shortest), millis(40));
        // A primary that waits for its backups writes its own file in every turn. A primary that does not wait has the
        // last moments in memory only, except what it answered.
        if self.rng.chance(1, 2) || matches!(way, Way::PrimaryStopped | Way::TermTorn) {
            let others = backups.iter().filter(|host| !witnesses.contains(host));
            let cuts: Cuts = others.map(|&host| (primary, host)).collect();
            let cut = if matches!(way, Way::PrimaryStopped) { alone + STOP_PATIENCE } else { alone };
            self.cut_for(world, cuts, cut);
        }
        let at = world.now.after(alone);
        self.later(at, move |nemesis, world| nemesis.leave_without_witness(world, shard, way));
    }

    pub(super) fn leave_without_witness(&mut self, world: &mut World, shard: ShardId, way: Way) {
        let Some(Parts { primary, witnesses, .. }) = self.parts_of(shard) else { return };
        if witnesses.contains(&primary) {
            return;
        }
        let (now, lease) = (world.now, self.lease);
        match way {
            Way::AllKilled => {
                self.kill_all(world);
                lose_witnesses(world, &witnesses, shard);
            }
            Way::AllStopped => {
                for host in self.hosts.nodes.clone() {
                    let gone = witnesses.contains(&host).then_some(shard);
                    let time = self.a_while();
                    self.stop_for(world, host, time, Afterwards::LosesWitness(gone));
                }
            }
            Way::PrimaryStopped => self.stop_for(world, primary, lease * 4, Afterwards::LosesWitness(None)),
            Way::PrimaryAway => {
                let time = self.rng.between(lease * 2, lease * 6);
                self.kill_for(world, primary, time);
                self.witnesses_away(world, &witnesses, shard, lease / 8, true);
            }
            Way::TermTorn => self.tear_successor(world, shard, primary),
            Way::SuccessorDies { files_gone } => {
                let Some(after) = self.epoch_of(shard) else { return };
                // A primary that is back at once is a member of the next term, and its log may be cut.
                let time = if self.rng.chance(2, 3) { self.rng.below(lease / 4) } else { self.rng.below(lease * 2) };
                self.kill_for(world, primary, time);
                let until = now.after(lease * 8);
                let syncs = self.rng.chance(2, 3);
                self.look_for_successor(now, (shard, after, syncs), files_gone, until);
            }
        }
    }

    fn look_for_successor(&mut self, at: SimTime, of: (ShardId, Epoch, bool), files_gone: bool, until: SimTime) {
        self.later(at, move |nemesis, world| nemesis.when_successor_begins(world, of, files_gone, until));
    }

    fn look_for_torn_term(&mut self, at: SimTime, of: (ShardId, HostId), unheard: Cuts, until: SimTime) {
        self.later(at, move |nemesis, world| nemesis.when_term_torn(world, of, unheard, until));
    }

    /// The successor is to die soon, in the middle of a turn or between two turns.
    pub(super) fn when_successor_begins(
        &mut self,
        world: &mut World,
        (shard, after, syncs): (ShardId, Epoch, bool),
        files_gone: bool,
        until: SimTime,
    ) {
        let latest = self.configurations.latest();
        let config = latest.as_ref().and_then(|latest| latest.shard(shard));
        if let Some(config) = config.filter(|config| config.epoch > after && config.phase == ShardPhase::Recovering)
            && (!syncs || is_syncing(world, self.hosts.nodes[usize::from(config.primary.0) - 1], shard))
        {
            let soon = self.rng.below(millis(3));
            let at = world.now.after(soon);
            return self.later(at, move |nemesis, world| nemesis.successor_dies(world, shard, files_gone));
        }
        if world.now < until {
            let at = world.now.after(LOOK_FOR_SUCCESSOR_EVERY);
            self.look_for_successor(at, (shard, after, syncs), files_gone, until);
        }
    }

    pub(super) fn successor_dies(&mut self, world: &mut World, shard: ShardId, files_gone: bool) {
        let Some(Parts { primary, witnesses, .. }) = self.parts_of(shard) else { return };
        world.probes.hit("nemesis: successor dies");
        let time = self.rng.between(self.lease * 3, self.lease * 6);
        if self.rng.chance(1, 2) {
            let effects = self.rng.below(30);
            world.kill_after_effects(primary, effects);
            self.start_later(world.now.after(time), primary);
        } else {
            self.kill_for(world, primary, time);
        }
        let others: Vec<HostId> = witnesses.into_iter().filter(|&host| host != primary).collect();
        let away = if files_gone { self.lease / 8 } else { time };
        self.witnesses_away(world, &others, shard, away, files_gone);
    }

    /// The successor of this primary is to die as its term begins.
    fn tear_successor(&mut self, world: &mut World, shard: ShardId, last: HostId) {
        let (now, lease) = (world.now, self.lease);
        while world.take_torn_term().is_some() {}
        self.hosts.nodes.iter().filter(|&&host| host != last).for_each(|&host| world.tear_term(host, shard));
        // A primary that is back at once is a member of the next term. Its log would be taken, if the other nodes heard
        // it.
        let soon = self.rng.below(lease / 8);
        self.kill_for(world, last, soon);
        let unheard = both_ways(last, &self.hosts.nodes);
        unheard.iter().for_each(|&(from, to)| world.network.cut(from, to));
        self.look_for_torn_term(now, (shard, last), unheard, now.after(lease * 8));
    }

    pub(super) fn when_term_torn(
        &mut self,
        world: &mut World,
        (shard, last): (ShardId, HostId),
        unheard: Cuts,
        until: SimTime,
    ) {
        let torn = world.take_torn_term();
        if torn.is_none() && world.now < until {
            let at = world.now.after(LOOK_FOR_SUCCESSOR_EVERY);
            return self.look_for_torn_term(at, (shard, last), unheard, until);
        }
        unheard.into_iter().for_each(|(from, to)| world.network.join(from, to));
        self.hosts.nodes.iter().for_each(|&host| world.disarm(host));
        let (Some(torn), Some(Parts { witnesses, .. })) = (torn, self.parts_of(shard)) else { return };
        world.probes.hit("nemesis: term torn");
        let others: Vec<HostId> = witnesses.into_iter().filter(|&host| host != torn && host != last).collect();
        self.witnesses_away(world, &others, shard, self.lease / 8, true);
        let soon = self.rng.below(self.lease / 4);
        self.start_later(world.now.after(soon), torn);
    }

    fn witnesses_away(&mut self, world: &mut World, hosts: &[HostId], shard: ShardId, time: u64, files_gone: bool) {
        for &host in hosts {
            self.kill_for(world, host, time);
        }
        if files_gone {
            lose_witnesses(world, hosts, shard);
        }
    }
}

/// Whether a new primary has begun its epoch, and is making the members' logs equal to its own.
fn is_syncing(world: &World, host: HostId, shard: ShardId) -> bool {
    let processes = world.processes().iter().filter(|process| process.host == host);
    let mut replicas = processes.filter_map(Process::status).flat_map(|status| status.replicas);
    replicas.any(|replica| replica.shard == shard && replica.primary && replica.state.starts_with("syncing"))
}

/// These hosts, whose processes are down, lose what they hold as witnesses of the shard.
pub(super) fn lose_witnesses(world: &mut World, hosts: &[HostId], shard: ShardId) {
    let is_of_witness = |file: &FileName| match *file {
        FileName::Witness { shard: of, .. } | FileName::WitnessMode { shard: of, .. } => of == shard,
        FileName::Segment { .. }
        | FileName::Replica(_)
        | FileName::Core
        | FileName::Told
        | FileName::Coordinator(_)
        | FileName::Journal(_) => false,
    };
    for &host in hosts {
        if world.lose_files(host, is_of_witness) {
            world.probes.hit("nemesis: witness files gone");
        }
    }
}
