//! Fuzzes [`kasha_properties::coordinator::CoordinatorFiles`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::coordinator::CoordinatorFiles);
