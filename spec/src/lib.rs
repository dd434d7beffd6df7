//! Models of Kasha's protocols. Each is searched to its end within small bounds: with every rule, where nothing may go
//! wrong, and with each rule switched off, where something must go wrong.
//!
//! A model says what must be true whatever the clock, the network and the machines do. It knows no bytes, no timers and
//! no limits. Its actions carry the names of the functions that they stand for. `spec/README.md` maps actions to
//! functions, states the bounds, and says what is left out.
//!
//! | model | what it is about |
//! |---|---|
//! | `updates` | (a) exactly once, witnesses, attempts, list changes, leases, operation keys |
//! | `replicas` | (b) fencing, elections, replacement of members, joiners, losses of power |
//! | `distributed` | (c) transactions over many shards: votes, locks, gates, settlement, crashes |
//! | `cleaner` | (d) replay of a log that a cleaner has copied about and freed segments of |
//! | `recovery` | (e) which log needs a witness, and that a shard with all its members waits for none |
//! | `group` | (f) the coordinator as a group: view changes, rounds, leases, ClusterTime, changes of members |
//! | `group_disk` | (g) the disk of a member of the group: torn records, old laps, cuts, damage |

// This is a tool, and it measures how long its searches take.
#![allow(clippy::disallowed_methods)]

mod check;
mod cleaner;
#[cfg(test)]
mod conformance;
mod distributed;
mod group;
mod group_disk;
mod recovery;
mod replicas;
pub mod report;
mod updates;

use arrayvec::ArrayVec;

/// A rule that is switched off.
#[derive(Clone, Copy, Debug)]
struct Broken {
    /// The name of the switch. If the simulator can plant the same mistake, it has the same name there.
    name: &'static str,
    /// The rule's number in the design.
    rule: &'static str,
    /// What happens without the rule, as text.
    what: &'static str,
    /// The function in the code that keeps the rule.
    code: &'static str,
}

/// One of the models.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Which {
    /// Updates of a few clients at one shard.
    A,
    /// A shard's replica set.
    B,
    /// Transactions over many shards.
    C,
    /// The log cleaner.
    D,
    /// Recovery without a witness.
    E,
    /// The coordinator as a group.
    F,
    /// The disk of a member of the group.
    G,
}

/// How far to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum BoundsChoice {
    /// Every program that a change should wait for.
    Small,
    /// All programs, without the saving that leaves out what nobody reads.
    Large,
}

/// Every order of these.
fn orders<const MAX: usize>(of: impl Iterator<Item = u8>) -> Vec<ArrayVec<u8, MAX>> {
    let mut orders = vec![ArrayVec::new()];
    for each in of {
        let with = |order: ArrayVec<u8, MAX>| {
            (0..=order.len()).map(move |at| {
                let mut longer = order.clone();
                longer.insert(at, each);
                longer
            })
        };
        orders = orders.into_iter().flat_map(with).collect();
    }
    orders
}
