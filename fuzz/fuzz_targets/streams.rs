//! Fuzzes [`kasha_properties::streams::Streams`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::streams::Streams);
