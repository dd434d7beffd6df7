//! The parts of every fuzz target: the check of a property, and an allocator that refuses more memory than the property
//! may use. The properties are in `kasha_properties`.

use std::alloc::System;

use cap::Cap;
use kasha_properties::Property;

#[doc(hidden)]
pub use libfuzzer_sys;

/// An allocation above the property's limit fails, and ends the process: so an invented count is found at once.
#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// Checks one input.
pub fn check<P: Property>(input: P) {
    if ALLOCATOR.limit() == usize::MAX {
        let limit = ALLOCATOR.allocated() + P::MEMORY_BYTES_MAX;
        ALLOCATOR.set_limit(limit).expect("above what is in use");
    }
    input.hold();
}

/// The program that fuzzes a property.
#[macro_export]
macro_rules! fuzz {
    ($property:ty) => {
        $crate::libfuzzer_sys::fuzz_target!(|input: $property| $crate::check(input));
    };
}
