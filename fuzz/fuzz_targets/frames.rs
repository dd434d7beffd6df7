//! See `kasha_properties::wire::Frames`.
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::wire::Frames);
