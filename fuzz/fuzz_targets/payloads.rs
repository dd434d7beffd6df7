//! Fuzzes [`kasha_properties::wire::Payloads`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::wire::Payloads);
