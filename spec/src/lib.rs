//! Models of Kasha's protocols, searched to their ends within small bounds: with every rule, where nothing may go wrong, and
//! with each rule switched off, where something must.
//!
//! A model says what must be true whatever the clock, the network and the machines do; it knows no bytes, no timers and
//! no limits. Its actions carry the names of the functions that they stand for. `spec/README.md` maps one to the other,
//! states the bounds, and says what is left out.
//!
//! | model | what it is about |
//! |---|---|
//! | `updates` | (a) exactly once, witnesses, attempts, list changes, leases, operation keys |
//! | `replicas` | (b) fencing, elections, replacement of members, joiners, losses of power |
//! | `recovery` | (c) which log needs a witness, and that a shard with all its members waits for none |

// A tool that says how long its searches took.
#![allow(clippy::disallowed_methods)]

mod check;
#[cfg(test)]
mod conformance;
mod recovery;
mod replicas;
pub mod report;
mod updates;

/// A rule that is switched off.
#[derive(Clone, Copy, Debug)]
struct Broken {
    /// What its absence is called; where the simulator can plant the same mistake, the same name.
    name: &'static str,
    /// The rule's number in the design.
    rule: &'static str,
    /// What is broken.
    what: &'static str,
    /// Who keeps it in the code.
    code: &'static str,
}

/// Which model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Which {
    /// Updates of a few clients at one shard.
    A,
    /// A shard's replica set.
    B,
    /// Recovery without a witness.
    C,
}

/// How far to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum BoundsChoice {
    /// Every program that a change should wait for.
    Small,
    /// All programs, without the saving that leaves out what nobody reads.
    Large,
}
