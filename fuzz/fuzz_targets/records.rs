//! Fuzzes [`kasha_properties::records::Records`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::records::Records);
