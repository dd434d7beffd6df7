//! Fuzzes [`kasha_properties::coordinator::CoordinatorFrames`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::coordinator::CoordinatorFrames);
