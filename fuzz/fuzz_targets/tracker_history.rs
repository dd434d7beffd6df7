//! Fuzzes [`kasha_properties::tracker::TrackerHistory`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::tracker::TrackerHistory);
