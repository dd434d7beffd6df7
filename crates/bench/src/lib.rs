//! Load generators, the benchmarks and the demo.
//!
//! They measure real processes. [`Children`] starts a cluster of `kasha-lab internal-node` processes, each with its own
//! data folder, and the load comes from client sessions on event loops of this process. Nothing here is part of a
//! server. Benchmarks do not decide what is correct: numbers are compared with one another in one run on one machine
//! (section 12). The demo compares counters with the answers that clients got (E1).
//!
//! `bin/kasha` calls this crate; it parses the flags and shows the results.
// A shell: it starts processes and threads, sleeps and reads the clock.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]
// The reader of our output may stop reading: use `say!`.
#![deny(clippy::print_stdout)]

mod benchmarks;
mod children;
mod client;
mod demo;
mod figure;
mod group;
mod harness;
mod latency;
pub mod limits;
mod page;
mod plot;
mod ports;
mod report;
pub mod rivals;
mod section;
mod suite;
mod targets;
mod watch;

pub use benchmarks::{BENCHMARKS, Benchmark};
pub use children::{Children, ClusterSpec};
pub use client::is_whole;
pub use demo::{DemoOptions, Kill, demo};
pub use figure::{DECIDING_ROUNDS_MIN, Figure, Spread};
pub use harness::BenchOptions;
pub use latency::{LatencyOptions, latency};
pub use page::page;
pub use plot::{Axis, Plot, Series};
pub use report::{LatencyReport, Machine, Mode, ModeResult};
pub use section::{Cell, Section, Table};
pub use suite::{Report, all};
pub use targets::{Bound, Judged, TARGETS, Target, Verdict, judge};
pub use watch::{Seen, Watch};
