//! Clients that die, or stop for a while.

use super::nemesis::{Fault, Nemesis, always};
use crate::intensity::Act;
use crate::world::World;

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        act: Act::Client,
        is_possible: always,
        cause: |nemesis, world, chance| nemesis.client(world, Act::Client, chance.time),
    },
    Fault {
        act: Act::ClientPause,
        is_possible: always,
        cause: |nemesis, world, chance| nemesis.client(world, Act::ClientPause, chance.time),
    },
];

impl Nemesis {
    fn client(&mut self, world: &mut World, act: Act, time: u64) {
        if self.hosts.clients.len() < 2 {
            return;
        }
        let client = *self.rng.pick(&self.hosts.clients);
        if act == Act::Client {
            world.probes.hit("nemesis: client died");
            self.kill_for(world, client, time);
        } else {
            world.probes.hit("nemesis: client stopped");
            world.pause(client);
            self.later(world.now.after(time), move |_, world| world.resume(client));
        }
    }
}
