//! Fuzzes [`kasha_properties::log::LogReplicas`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::log::LogReplicas);
