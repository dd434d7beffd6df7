//! Fronts: they serve connections that speak another protocol than Kasha's, over a session with a cluster.
//!
//! A front is the upper half of [`kasha_machine::Fronted`]. It runs in a process of its own, or in one core with a node
//! ([`kasha_machine::Colocated`]), or in the simulator; it does not know where.

pub mod limits;
pub mod redis;
pub mod resp;

pub use redis::{RedisFront, RedisOptions};
