//! Values of everything on the wire: arbitrary ones for properties, fixed ones for the golden files.
#![allow(dead_code, unreachable_pub)]

pub mod messages;
pub mod operations;
pub mod results;
pub mod types;

use proptest::prelude::*;
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

macro_rules! nested_strategies {
    () => { Just(()) };
    ($first:ident $($rest:ident)*) => { ($crate::common::any(), nested_strategies!($($rest)*)) };
}
macro_rules! nested_names {
    () => { () };
    ($first:ident $($rest:ident)*) => { ($first, nested_names!($($rest)*)) };
}
/// A strategy for a struct or a variant with these fields.
macro_rules! fields_any {
    ($path:path { $($field:ident),* $(,)? }) => {{
        use $path as Made;
        nested_strategies!($($field)*).prop_map(|nested_names!($($field)*)| Made { $($field),* }).boxed()
    }};
}
/// The fixed value of a struct or a variant with these fields.
macro_rules! fields_one {
    ($next:ident, $path:path { $($field:ident),* $(,)? }) => {{
        use $path as Made;
        Made { $($field: $crate::common::Sample::one($next)),* }
    }};
}
pub(crate) use {fields_any, fields_one, nested_names, nested_strategies};
