//! The nemesis causes faults of hosts and links, and heals them: one file for each kind of fault.
//!
//! It stays within what the design promises to survive (section 5). Under `replicated` durability only one node loses
//! power until the configuration is whole again, and none where `f` is 0. All other faults are allowed at any time. A
//! blackout of that mode is an act of its own, in a scenario that knows what it may lose.

mod away;
mod clients;
mod coordinator;
mod copying;
mod crashes;
mod cut_off;
mod damage;
mod links;
mod lost_memory;
mod nemesis;
mod orderly_stop;
mod power;
mod without_witness;
mod zombie;

use kasha_machine::Rng;
use kasha_wire::Durability;

use crate::configurations::{Configurations, Cores};
use crate::faults::nemesis::Fault;
pub(crate) use crate::faults::nemesis::{Cuts, both_ways};
pub use crate::faults::nemesis::{Hosts, Nemesis};

const FAULTS: &[&[Fault]] = &[
    away::FAULTS,
    clients::FAULTS,
    coordinator::FAULTS,
    copying::FAULTS,
    crashes::FAULTS,
    cut_off::FAULTS,
    damage::FAULTS,
    links::FAULTS,
    lost_memory::FAULTS,
    orderly_stop::FAULTS,
    power::FAULTS,
    without_witness::FAULTS,
    zombie::FAULTS,
];

/// A nemesis for these hosts.
#[must_use]
pub fn nemesis(rng: Rng, hosts: Hosts, known: (Configurations, Cores), durability: Durability, lease: u64) -> Nemesis {
    Nemesis::new(FAULTS, rng, hosts, known, durability, lease)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::intensity::Acts;

    #[test]
    fn each_act_has_one_row() {
        for (act, _) in Acts::default().weights() {
            let rows = FAULTS.iter().copied().flatten().filter(|fault| fault.act == act);
            assert_eq!(rows.count(), 1, "{act:?}");
        }
    }
}
