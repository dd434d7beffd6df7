//! Fuzzes [`kasha_properties::streams::Frames`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::streams::Frames);
