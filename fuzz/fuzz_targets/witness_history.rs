//! Fuzzes [`kasha_properties::witness::WitnessHistory`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::witness::WitnessHistory);
