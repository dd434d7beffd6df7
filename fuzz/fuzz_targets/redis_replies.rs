//! Fuzzes [`kasha_properties::redis::RedisReplies`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::redis::RedisReplies);
