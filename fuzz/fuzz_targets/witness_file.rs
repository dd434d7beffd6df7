//! Fuzzes [`kasha_properties::witness::WitnessFile`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::witness::WitnessFile);
