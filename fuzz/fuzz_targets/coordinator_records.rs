//! Fuzzes [`kasha_properties::coordinator::CoordinatorRecords`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::coordinator::CoordinatorRecords);
