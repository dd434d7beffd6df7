//! Values of everything on the wire: arbitrary ones for properties, fixed ones for the golden files.
#![allow(dead_code, unreachable_pub)]

pub mod messages;
pub mod operations;
pub mod results;
pub mod types;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};

/// Draws bytes 1, 2, 3 … so that no two fields of a fixed value are alike.
pub struct Count(pub u8);

impl Count {
    pub fn bytes<const N: usize>(&mut self) -> [u8; N] {
        std::array::from_fn(|_| {
            self.0 = self.0.wrapping_add(1);
            self.0
        })
    }
}

pub trait Sample: Sized + std::fmt::Debug + 'static {
    fn any() -> BoxedStrategy<Self>;
    /// The fixed value.
    fn one(next: &mut Count) -> Self;
    /// Fixed values of every variant, the first one first.
    fn all(next: &mut Count) -> Vec<Self> {
        vec![Self::one(next)]
    }
}

/// A property over a strategy that is a value.
pub fn check<S: Strategy>(cases: u32, strategy: S, property: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    if let Err(failure) = TestRunner::new(config).run(&strategy, property) {
        panic!("{failure}");
    }
}

pub fn encoded(value: &impl kasha_wire::Wire) -> Vec<u8> {
    let mut out = Vec::new();
    value.put(&mut out);
    out
}

pub fn any<T: Sample>() -> BoxedStrategy<T> {
    T::any()
}

/// An arbitrary value of a field.
pub fn drawn<T: Sample>(from: &mut TestRunner) -> T {
    T::any().new_tree(from).expect("nothing is rejected").current()
}

/// A strategy for a struct or a variant with these fields. It shrinks none of them: a tree of each combination of types takes the
/// compiler longer than all tests take.
macro_rules! fields_any {
    ($path:path { $($field:ident),* $(,)? }) => {{
        use $path as Made;
        $crate::common::made(|_from| Made { $($field: $crate::common::drawn(_from)),* })
    }};
}

/// A strategy for what is made so.
pub fn made<T: std::fmt::Debug + 'static>(make: fn(&mut TestRunner) -> T) -> BoxedStrategy<T> {
    let random = Just(()).prop_perturb(|(), random| random).no_shrink();
    random.prop_map(move |random| make(&mut TestRunner::new_with_rng(Config::default(), random))).boxed()
}

/// The fixed value of a struct or a variant with these fields.
macro_rules! fields_one {
    ($next:ident, $path:path { $($field:ident),* $(,)? }) => {{
        use $path as Made;
        Made { $($field: $crate::common::Sample::one($next)),* }
    }};
}
pub(crate) use {fields_any, fields_one};
