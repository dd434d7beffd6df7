//! What every fuzz target is: a property, and an allocator that refuses what nobody should ask for.

use std::alloc::System;

use cap::Cap;
use kasha_properties::Property;

#[doc(hidden)]
pub use libfuzzer_sys;

/// Beyond a property's limit an allocation fails, and with it the process: a count that was made up is found at once.
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
