//! Fuzzes [`kasha_properties::log::LogFiles`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::log::LogFiles);
