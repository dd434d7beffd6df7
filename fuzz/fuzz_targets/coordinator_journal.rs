//! Fuzzes [`kasha_properties::coordinator::CoordinatorJournal`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::coordinator::CoordinatorJournal);
