//! The coordinator's folder is lost, or an older copy is put in its place, and the true one comes back later (R9.13).
//!
//! The copy lacks a configuration that more than f nodes have obeyed. So whichever nodes die meanwhile, somebody who speaks
//! knows more. The wrong folder stays for less time than a coordinator listens for nodes that do not speak.

use kasha_types::ConfigVersion;

use super::nemesis::{Fault, Nemesis, always};
use crate::clock::{SimTime, millis};
use crate::disk::SimDisk;
use crate::intensity::Act;
use crate::process::Process;
use crate::world::World;

/// How often it is checked whether the copy is old enough.
const LOOK_EVERY: u64 = millis(20);
/// What the nodes were told is on their disks by then.
const NOTED_WITHIN: u64 = millis(150);
/// The wrong folder stays for at most so many leases.
const LEASES_MAX: u64 = 8;

pub(super) const FAULTS: &[Fault] =
    &[Fault { act: Act::LostMemory, is_possible: always, cause: |nemesis, world, _| nemesis.lose_memory(world) }];

impl Nemesis {
    /// A copy of the coordinator's folder is made, or its loss begins.
    pub(super) fn lose_memory(&mut self, world: &mut World) {
        if self.folders.copy.is_some() || self.folders.own.is_some() || !world.is_up(self.hosts.coordinator) {
            return;
        }
        let is_empty = self.rng.chance(1, 4);
        let version = if is_empty { ConfigVersion(1) } else { self.newest_told() };
        let copy = if is_empty { SimDisk::new() } else { world.copy_of_disk(self.hosts.coordinator) };
        self.folders.copy = Some((copy, version));
        let until = world.now.after(self.lease * 20);
        self.later(world.now.after(LOOK_EVERY), move |nemesis, world| nemesis.swap_when_old(world, until));
    }

    /// As soon as more than f nodes know more than the copy, it takes the folder's place.
    fn swap_when_old(&mut self, world: &mut World, until: SimTime) {
        if self.is_known_more_widely(world) {
            self.later(world.now.after(NOTED_WITHIN), |nemesis, world| nemesis.swap_folder(world));
        } else if world.now < until {
            self.later(world.now.after(LOOK_EVERY), move |nemesis, world| nemesis.swap_when_old(world, until));
        } else {
            self.folders.copy = None;
        }
    }

    /// Whether more than f nodes have obeyed a configuration that the copy lacks.
    fn is_known_more_widely(&self, world: &World) -> bool {
        let Some((_, version)) = self.folders.copy else { return false };
        let knows = |process: &&Process| process.status().is_some_and(|status| status.configuration > version);
        let of_host = |&host: &_| world.processes().iter().filter(|process| process.host == host).all(|it| knows(&it));
        let faults = self.configurations.latest().map_or(usize::MAX, |latest| usize::from(latest.faults));
        self.hosts.nodes.iter().filter(|&host| of_host(host)).count() > faults
    }

    fn swap_folder(&mut self, world: &mut World) {
        let Some((copy, version)) = self.folders.copy.take() else { return };
        let is_lost = version == ConfigVersion(1);
        world.probes.hit(if is_lost { "nemesis: memory lost" } else { "nemesis: memory of an older copy" });
        let coordinator = self.hosts.coordinator;
        world.kill(coordinator);
        // Nodes that start with it know only what their folders say.
        let all_start_anew = self.rng.chance(1, 2);
        for node in self.hosts.nodes.clone().into_iter().filter(|_| all_start_anew) {
            let time = self.rng.below(self.lease);
            self.kill_for(world, node, time);
        }
        self.folders.own = Some(world.put_disk(coordinator, copy));
        world.start(coordinator);
        let time = self.rng.between(self.lease / 2, self.lease * LEASES_MAX);
        self.later(world.now.after(time), |nemesis, world| {
            nemesis.restore_folder(world);
            world.start(nemesis.hosts.coordinator);
        });
    }
}
