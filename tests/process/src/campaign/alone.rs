//! Faults with a phase of their own, so that the seconds from the fault to service can be measured.
//!
//! Each is drawn as events of `plan`, within what docs/guarantees.md promises: in a stopped cluster at most f machines
//! lose something, and never the machine of a coordinator that is alone.

use std::fmt;
use std::time::Duration;

use kasha_machine::Rng;

use super::plan::{Event, Fault, Kept, Shape, Who};

/// The kind of the fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// `kill -9` of a node, which stays away for four leases.
    KillNode,
    /// SIGSTOP of a node for four leases.
    FreezeNode,
    /// A node is cut off from everybody for four leases.
    CutNode,
    /// A node loses power for four leases.
    PowerLossNode,
    /// A node is stopped or killed, its folder lost, and a new one started in its place after four leases.
    ReplaceNode,
    /// `kill -9` of the node whose process leads the coordinator's group, which stays away for four leases.
    KillLeader,
    /// SIGSTOP of that node for four leases.
    FreezeLeader,
    /// That node is cut off from everybody for four leases.
    CutLeader,
    /// That node loses power for four leases.
    PowerLossLeader,
    /// That node is stopped or killed, its folder lost, and a new one started in its place after four leases.
    ReplaceLeader,
    /// `kill -9` of the coordinator's own process for three leases.
    KillCoordinator,
    /// SIGSTOP of the coordinator's own process for three leases.
    FreezeCoordinator,
    /// Only the coordinator's own process is cut off, for less than a lease.
    CutCoordinatorShort,
    /// Only the coordinator's own process is cut off, for several leases.
    CutCoordinatorLong,
    /// SIGTERM to every process, and a start.
    StopAll,
    /// `kill -9` of every process, and a start.
    KillAll,
    /// SIGTERM to every process; f machines lose their folders and are replaced.
    StopLoseFolder,
    /// `kill -9` of every process; f machines lose their folders and are replaced.
    KillLoseFolder,
    /// Every process is down; f machines lose files of a member: a segment, its marks.
    DownLoseMember,
    /// Every process is down; f machines lose the files of their witnesses, or the ledger of these.
    DownLoseWitness,
    /// Every process is down; on f machines eight bytes of a member's file are damaged.
    DownDamageMember,
    /// Every process is down; on f machines eight bytes of a witness's file are damaged.
    DownDamageWitness,
    /// A primary and a witness of its shard are killed; the witness comes back without its files, the primary much later.
    WitnessLostPrimaryAway,
    /// The small disk of a node is full for four leases.
    FullDisk,
}

/// All kinds, with the names that `--only` takes.
pub const KINDS: [(&str, Kind); 24] = [
    ("kill-node", Kind::KillNode),
    ("freeze-node", Kind::FreezeNode),
    ("cut-node", Kind::CutNode),
    ("power-loss-node", Kind::PowerLossNode),
    ("replace-node", Kind::ReplaceNode),
    ("kill-leader", Kind::KillLeader),
    ("freeze-leader", Kind::FreezeLeader),
    ("cut-leader", Kind::CutLeader),
    ("power-loss-leader", Kind::PowerLossLeader),
    ("replace-leader", Kind::ReplaceLeader),
    ("kill-coordinator", Kind::KillCoordinator),
    ("freeze-coordinator", Kind::FreezeCoordinator),
    ("cut-coordinator-short", Kind::CutCoordinatorShort),
    ("cut-coordinator-long", Kind::CutCoordinatorLong),
    ("stop-all", Kind::StopAll),
    ("kill-all", Kind::KillAll),
    ("stop-lose-folder", Kind::StopLoseFolder),
    ("kill-lose-folder", Kind::KillLoseFolder),
    ("down-lose-member", Kind::DownLoseMember),
    ("down-lose-witness", Kind::DownLoseWitness),
    ("down-damage-member", Kind::DownDamageMember),
    ("down-damage-witness", Kind::DownDamageWitness),
    ("witness-lost-primary-away", Kind::WitnessLostPrimaryAway),
    ("full-disk", Kind::FullDisk),
];

fn one_of(rng: &mut Rng, endings: &[&'static str]) -> &'static str {
    endings[usize::try_from(rng.below(endings.len() as u64)).expect("few")]
}

/// The loss of a machine that is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The folder is lost: another node takes its place.
    Folder,
    /// Files with this ending are lost: one, or all of its witnesses' (`.slots`, `.mode`).
    Files(&'static str),
    /// Eight bytes of one file with this ending are changed.
    Bytes(&'static str),
}

const MEMBERS: [&str; 2] = [".log", "replica.meta"];
const WITNESSES: [&str; 3] = [".slots", ".mode", "core.meta"];

impl Kind {
    /// The kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        KINDS.iter().find(|(theirs, _)| *theirs == name).map(|(_, kind)| *kind)
    }

    /// The kinds that a cluster of this shape can have.
    #[must_use]
    pub fn of(shape: &Shape) -> Vec<Self> {
        KINDS.into_iter().map(|(_, kind)| kind).filter(|kind| kind.fits(shape)).collect()
    }

    /// Changes a cluster so that it can have this fault.
    pub fn prepare(self, shape: &mut Shape) {
        shape.small_disk = (self == Self::FullDisk).then_some(1);
        shape.has_ballast &= shape.small_disk.is_none();
        if !(self.fits(shape) && shape.is_any_node_losable()) {
            (shape.own_coordinator, shape.group) = if self.needs_group() { (false, true) } else { (true, false) };
        }
    }

    /// Whether the fault strikes the leader of a group.
    fn needs_group(self) -> bool {
        matches!(
            self,
            Self::KillLeader | Self::FreezeLeader | Self::CutLeader | Self::PowerLossLeader | Self::ReplaceLeader
        )
    }

    fn fits(self, shape: &Shape) -> bool {
        match self {
            Self::KillCoordinator | Self::FreezeCoordinator => shape.own_coordinator,
            Self::CutCoordinatorShort | Self::CutCoordinatorLong => shape.own_coordinator,
            Self::KillLeader | Self::FreezeLeader | Self::CutLeader => shape.group,
            Self::PowerLossLeader | Self::ReplaceLeader => shape.group && shape.small_disk.is_none(),
            Self::FullDisk => shape.small_disk.is_some(),
            // A machine that loses its data must not host the coordinator alone, and a small disk stays where it is.
            Self::ReplaceNode
            | Self::PowerLossNode
            | Self::StopLoseFolder
            | Self::KillLoseFolder
            | Self::DownLoseMember
            | Self::DownLoseWitness
            | Self::DownDamageMember
            | Self::DownDamageWitness
            | Self::WitnessLostPrimaryAway => shape.is_any_node_losable() && shape.small_disk.is_none(),
            Self::KillNode | Self::FreezeNode | Self::CutNode | Self::StopAll | Self::KillAll => true,
        }
    }

    /// Whether service can be back only when the fault is over. Then the seconds are counted from its end.
    #[must_use]
    pub fn counts_from_end(self) -> bool {
        match self {
            Self::StopAll
            | Self::KillAll
            | Self::StopLoseFolder
            | Self::KillLoseFolder
            | Self::DownLoseMember
            | Self::DownLoseWitness
            | Self::DownDamageMember
            | Self::DownDamageWitness => true,
            Self::KillNode
            | Self::FreezeNode
            | Self::CutNode
            | Self::PowerLossNode
            | Self::ReplaceNode
            | Self::KillLeader
            | Self::FreezeLeader
            | Self::CutLeader
            | Self::PowerLossLeader
            | Self::ReplaceLeader
            | Self::KillCoordinator
            | Self::FreezeCoordinator
            | Self::CutCoordinatorShort
            | Self::CutCoordinatorLong
            | Self::WitnessLostPrimaryAway
            | Self::FullDisk => false,
        }
    }

    /// Whether nodes, members and witnesses must stay the same, because only the coordinator was away (R7.8).
    #[must_use]
    pub fn keeps_membership(self) -> bool {
        matches!(self, Self::FreezeCoordinator | Self::CutCoordinatorShort | Self::CutCoordinatorLong)
    }

    /// The only event of its phase.
    pub fn draw(self, shape: &Shape, rng: &mut Rng) -> Event {
        let (lease, moment) = (shape.lease, Duration::from_millis(300));
        let is_other = |who: &Who| shape.group || *who != shape.hub();
        let others: Vec<Who> = (1..=shape.nodes).map(Who::Node).filter(is_other).collect();
        let who = if self.needs_group() { Who::Leader } else { *rng.pick(&others) };
        let (lasts, fault) = match self {
            Self::KillNode | Self::KillLeader => (lease * 4, Fault::Kill(vec![who])),
            Self::FreezeNode | Self::FreezeLeader => (lease * 4, Fault::Freeze(who)),
            Self::CutNode | Self::CutLeader => (lease * 4, Fault::CutOff(vec![who])),
            Self::PowerLossNode | Self::PowerLossLeader => (lease * 4, Fault::PowerLoss(vec![who], Kept::Some)),
            Self::ReplaceNode | Self::ReplaceLeader => (lease * 4, Fault::Replace(who, rng.chance(1, 2))),
            Self::KillCoordinator => (lease * 3, Fault::Kill(vec![Who::Coordinator])),
            Self::FreezeCoordinator => (lease * 3, Fault::Freeze(Who::Coordinator)),
            Self::CutCoordinatorShort => (lease / 2, Fault::CutOff(vec![Who::Coordinator])),
            Self::CutCoordinatorLong => (lease * 4, Fault::CutOff(vec![Who::Coordinator])),
            Self::StopAll => (moment, Fault::Down { orderly: true, losses: Vec::new() }),
            Self::KillAll => (moment, Fault::Down { orderly: false, losses: Vec::new() }),
            Self::WitnessLostPrimaryAway => (lease * 4, Fault::WitnessLost(rng.next_u64())),
            Self::FullDisk => (lease * 4, Fault::FullDisk(shape.small_disk.expect("a small disk"))),
            Self::StopLoseFolder | Self::KillLoseFolder => {
                (moment, self.down(self == Self::StopLoseFolder, shape, rng, |_| Loss::Folder))
            }
            Self::DownLoseMember => {
                let orderly = rng.chance(1, 2);
                (moment, self.down(orderly, shape, rng, |rng| Loss::Files(one_of(rng, &MEMBERS))))
            }
            Self::DownLoseWitness => {
                let orderly = rng.chance(1, 2);
                (moment, self.down(orderly, shape, rng, |rng| Loss::Files(one_of(rng, &WITNESSES))))
            }
            Self::DownDamageMember => {
                let orderly = rng.chance(1, 2);
                (moment, self.down(orderly, shape, rng, |rng| Loss::Bytes(one_of(rng, &MEMBERS))))
            }
            Self::DownDamageWitness => {
                let orderly = rng.chance(1, 2);
                (moment, self.down(orderly, shape, rng, |rng| Loss::Bytes(one_of(rng, &WITNESSES))))
            }
        };
        Event { at: Duration::from_millis(500), lasts, fault }
    }

    fn down(self, orderly: bool, shape: &Shape, rng: &mut Rng, mut loss: impl FnMut(&mut Rng) -> Loss) -> Fault {
        let mut nodes: Vec<u16> = (1..=shape.nodes).collect();
        let loses_folder = matches!(self, Self::StopLoseFolder | Self::KillLoseFolder);
        let most = if loses_folder { shape.losable() } else { shape.faults };
        let count = rng.between(1, u64::from(most));
        let losses = (0..count).map(|_| {
            let index = rng.below(nodes.len() as u64);
            let node = nodes.remove(usize::try_from(index).expect("few"));
            (node, loss(rng), rng.next_u64())
        });
        Fault::Down { orderly, losses: losses.collect() }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder => write!(f, "the folder is lost, and another node takes its place"),
            Self::Files(ending) => write!(f, "*{ending} lost"),
            Self::Bytes(ending) => write!(f, "eight bytes of a *{ending} damaged"),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = KINDS.iter().find(|(_, kind)| kind == self).map_or("?", |(name, _)| name);
        f.write_str(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::plan::Plan;

    #[test]
    fn every_kind_has_a_name_and_keeps_to_the_promise() {
        for (name, kind) in KINDS {
            assert_eq!((Kind::named(name), kind.to_string()), (Some(kind), name.to_owned()));
            for seed in 0..200 {
                let plan = Plan::only(seed, kind);
                assert!(kind.fits(&plan.shape) && Kind::of(&plan.shape).contains(&kind), "{plan}");
                for event in plan.phases.iter().flatten() {
                    if let Fault::Down { losses, .. } = &event.fault {
                        let mut nodes: Vec<u16> = losses.iter().map(|(node, ..)| *node).collect();
                        nodes.dedup();
                        assert!(nodes.len() <= usize::from(plan.shape.faults), "{plan}");
                        let folders = losses.iter().filter(|(_, loss, _)| *loss == Loss::Folder).count();
                        assert!(!plan.shape.group || 2 * folders < usize::from(plan.shape.members()), "{plan}");
                    }
                }
            }
        }
    }
}
