//! Fuzzes [`kasha_properties::wire::Results`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::wire::Results);
