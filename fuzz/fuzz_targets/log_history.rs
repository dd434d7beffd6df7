//! Fuzzes [`kasha_properties::log::LogHistory`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::log::LogHistory);
