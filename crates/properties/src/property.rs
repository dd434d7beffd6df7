//! What a property is.

use std::fmt::Debug;

use arbitrary::Arbitrary;

use crate::draw;

/// Inputs, and what must hold for each of them.
pub trait Property: for<'a> Arbitrary<'a> + Debug {
    /// The property's name: also the name of its fuzz target, its folder of regressions and its test.
    const NAME: &'static str;
    /// The length in bytes up to which inputs are drawn.
    const INPUT_BYTES_MAX: usize;
    /// Bytes of memory that a check may use in all: an invented length must reserve nothing.
    const MEMORY_BYTES_MAX: usize = 64 << 20;

    /// Checks this input.
    ///
    /// # Panics
    /// If the property does not hold.
    fn hold(self);

    /// Inputs to begin with. A history whose steps are drawn as they happen begins with some long inputs: a fuzzer that
    /// starts from nothing would take long to reach a second step.
    #[must_use]
    fn seeds() -> Vec<Vec<u8>> {
        (0..16).map(|seed| draw::noise(seed, Self::INPUT_BYTES_MAX)).collect()
    }
}
