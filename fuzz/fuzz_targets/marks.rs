//! Fuzzes [`kasha_properties::records::Marks`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::records::Marks);
