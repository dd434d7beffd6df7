//! A virtual network of real kernels. Each host is a network namespace with one TUN device; a thread of this process
//! reads the IP packets of all of them and forwards each by its destination, as its link says: later, twice, out of
//! order, or not at all. What runs on a host is an ordinary process with ordinary sockets.
//!
//! - N1: a packet is never early: it is written to its destination no sooner than the link's delay after it was read.
//! - N2: once a change of a link has returned, every packet is taken in under the new settings; what comes due while
//!   a link is cut is lost with it.
//! - N3: what the links do to the n-th packet of a direction depends on the seed and the settings only. Which packet
//!   is the n-th is the kernels' affair: runs on this network are not repeatable, their faults are.
//! - N4: nothing is left behind. Namespaces have no name; they are held by descriptors, threads and processes, which end
//!   with the network or with this process, even if that is killed. What runs on a host dies with it, whoever started
//!   it; a thread of this process does not, and keeps its host's namespace until it ends.
//!
//! The machine's own namespace is no host: its address and routes would be in the tables that everything else on the
//! machine uses, and two networks at once would collide. A thread of this process can live on a host instead
//! ([`Host::run`], [`Namespace::enter`]), and a socket stays where it was made, whoever uses it.
//!
//! Needs Linux, root and `/dev/net/tun`, of which [`Netlab::available`] says what is missing, and a `/bin/sh`. IPv4
//! only.

// Threads, clocks and descriptors are this crate's business.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod guardian;
mod host;
mod lab;
mod link;
mod queue;
mod stragglers;
mod switch;
mod system;

pub use host::{Host, Namespace};
pub use lab::{Netlab, NetlabOptions};
pub use link::{Counters, Link};
