//! Fuzzes [`kasha_properties::coordinator::CoordinatorOperations`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::coordinator::CoordinatorOperations);
