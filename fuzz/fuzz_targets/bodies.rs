//! Fuzzes [`kasha_properties::wire::Bodies`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::wire::Bodies);
