//! Fuzzes [`kasha_properties::node::NodeStrangers`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::node::NodeStrangers);
