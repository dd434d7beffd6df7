//! Fuzzes [`kasha_properties::redis::RedisRequests`].
#![no_main]

kasha_fuzz::fuzz!(kasha_properties::redis::RedisRequests);
