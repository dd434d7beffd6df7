//! A virtual network of real kernels. Each host is a network namespace with one TUN device. A thread of this process
//! reads the IP packets of all hosts, and forwards each to its destination as the settings of its link say: later,
//! twice, out of order, or not at all. A program on a host is an ordinary process with ordinary sockets.
//!
//! - N1: a packet is never early: it is written to its destination no sooner than the link's delay after it was read.
//! - N2: when a call that changes a link has returned, every packet is accepted under the new settings. A packet that
//!   is due while its link is cut is lost.
//! - N3: what a link does to the n-th packet of a direction depends only on the seed and the settings. The kernels
//!   decide which packet is the n-th. So runs on this network are not repeatable, but their faults are.
//! - N4: nothing is left behind. Namespaces have no name. Descriptors, threads and processes hold them, and all of
//!   these end with the network or with this process, even if it is killed. A process on a host dies with the host,
//!   whoever started it. A thread of this process does not, and keeps its host's namespace until it ends.
//!
//! The machine's own namespace is not a host. Otherwise its address and routes would be in the tables that everything
//! else on the machine uses, and two networks at once would collide. Instead, a thread of this process can live on a
//! host ([`Host::run`], [`Namespace::enter`]). A socket stays in the namespace where it was made, whichever thread uses
//! it.
//!
//! It needs Linux, root, `/dev/net/tun` and a `/bin/sh`. [`Netlab::available`] says what is missing. IPv4 only.

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
