//! See `kasha_properties::wire::Streams`.
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::wire::Streams);
