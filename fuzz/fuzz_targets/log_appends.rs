//! Fuzzes [`kasha_properties::log::LogAppends`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::log::LogAppends);
