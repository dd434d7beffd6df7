//! What must hold whatever the bytes: of every decoder, of every file, and of the state machines behind them.
//!
//! A [`Property`] is a type: its values are the inputs for which something must hold, made out of any bytes, and
//! [`Property::hold`] panics where it does not. So one text serves the fuzzers in `fuzz/`, which choose the bytes by the
//! code they reach; the property tests in `tests/`, which draw them; and the inputs in `fuzz/regressions`, which are
//! replayed for ever. [`TARGETS`] is the list of all.
//!
//! Knows everything that decodes or keeps bytes; nothing depends on it. Some properties drive machines through the
//! harnesses of those crates' own tests, which are included here as they stand.

pub mod coordinator;
mod damage;
mod draw;
mod golden;
pub mod log;
pub mod node;
pub mod records;
mod speech;
pub mod streams;
pub mod tracker;
pub mod wire;
pub mod witness;

use std::fmt::Debug;

use arbitrary::{Arbitrary, Unstructured};

/// Inputs, and what must hold for each of them.
pub trait Property: for<'a> Arbitrary<'a> + Debug {
    /// Its name: of the fuzz target, of its folder of regressions, of its test.
    const NAME: &'static str;
    /// How long an input is worth drawing, in bytes.
    const INPUT_BYTES_MAX: usize;
    /// What all that it does may hold in memory at once, in bytes: a length that was made up must reserve nothing.
    const MEMORY_BYTES_MAX: usize = 64 << 20;

    /// Checks it.
    ///
    /// # Panics
    /// If it does not hold.
    fn hold(self);

    /// Inputs worth beginning with. A history that is drawn as it happens begins with any long ones: a fuzzer that starts
    /// from nothing would take long to get to its second step.
    #[must_use]
    fn seeds() -> Vec<Vec<u8>> {
        (0..16).map(|seed| draw::noise(seed, Self::INPUT_BYTES_MAX)).collect()
    }
}

/// A property without its type.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// See [`Property::NAME`].
    pub name: &'static str,
    /// See [`Property::INPUT_BYTES_MAX`].
    pub input_bytes_max: usize,
    /// Checks the input that these bytes are. Panics if it does not hold.
    pub check: fn(&[u8]),
    /// Shows the input that these bytes are.
    pub show: fn(&[u8]) -> String,
    /// See [`Property::seeds`].
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// The input that these bytes are: of bytes that are none, nothing needs to hold.
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

/// All properties.
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
    Target::of::<coordinator::CoordinatorFrames>(),
    Target::of::<node::NodeStrangers>(),
    Target::of::<node::NodePeers>(),
];
