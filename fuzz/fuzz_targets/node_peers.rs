//! Fuzzes [`kasha_properties::node::NodePeers`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::node::NodePeers);
