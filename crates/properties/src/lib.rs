//! What must hold for any input bytes: of every decoder, of every file, and of the state machines behind them.
//!
//! A [`Property`] is a type. Its values are the inputs for which something must hold, made out of any bytes.
//! [`Property::hold`] panics if it does not hold. So one text serves three users: the fuzzers in `fuzz/`, which choose
//! bytes by the code that they reach; the property tests in `tests/`, which draw bytes; and the inputs in
//! `fuzz/regressions`, which are replayed for ever. [`TARGETS`] lists all properties.
//!
//! This crate uses every crate that decodes or keeps bytes. No crate depends on it. Some properties drive machines
//! through the harnesses of other crates' own tests, which are included here unchanged.

pub mod coordinator;
mod damage;
mod draw;
mod golden;
pub mod log;
pub mod node;
mod property;
pub mod records;
pub mod redis;
mod speech;
pub mod streams;
pub mod tracker;
pub mod wire;
pub mod witness;

use arbitrary::Unstructured;
pub use property::Property;

/// A property without its type.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The property's name ([`Property::NAME`]).
    pub name: &'static str,
    /// The longest input worth drawing ([`Property::INPUT_BYTES_MAX`]).
    pub input_bytes_max: usize,
    /// Checks the input that these bytes encode. Panics if the property does not hold.
    pub check: fn(&[u8]),
    /// Shows the input that these bytes encode.
    pub show: fn(&[u8]) -> String,
    /// Inputs to begin with ([`Property::seeds`]).
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// The input that these bytes encode, if they encode one.
fn input<P: Property>(bytes: &[u8]) -> Option<P> {
    P::arbitrary_take_rest(Unstructured::new(bytes)).ok()
}

impl Target {
    const fn of<P: Property>() -> Self {
        Self {
            name: P::NAME,
            input_bytes_max: P::INPUT_BYTES_MAX,
            check: |bytes| {
                if let Some(input) = input::<P>(bytes) {
                    input.hold();
                }
            },
            show: |bytes| format!("{:?}", input::<P>(bytes)),
            seeds: P::seeds,
        }
    }
}

/// All properties, one row each.
pub const TARGETS: &[Target] = &[
    Target::of::<streams::Frames>(),
    Target::of::<streams::Streams>(),
    Target::of::<wire::Payloads>(),
    Target::of::<wire::Bodies>(),
    Target::of::<wire::Results>(),
    Target::of::<log::LogHistory>(),
    Target::of::<log::LogFiles>(),
    Target::of::<log::LogAppends>(),
    Target::of::<log::LogReplicas>(),
    Target::of::<records::Records>(),
    Target::of::<records::Marks>(),
    Target::of::<tracker::TrackerHistory>(),
    Target::of::<witness::WitnessHistory>(),
    Target::of::<witness::WitnessFile>(),
    Target::of::<coordinator::CoordinatorFiles>(),
    Target::of::<coordinator::CoordinatorRecords>(),
    Target::of::<coordinator::CoordinatorJournal>(),
    Target::of::<coordinator::CoordinatorOperations>(),
    Target::of::<coordinator::CoordinatorFrames>(),
    Target::of::<node::NodeStrangers>(),
    Target::of::<node::NodePeers>(),
    Target::of::<redis::RedisRequests>(),
    Target::of::<redis::RedisReplies>(),
];
