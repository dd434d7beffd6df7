//! `kasha-lab`: what judges Kasha. Simulations, benchmarks, and a demonstration of what happens under faults. No server needs it.
// The binary is the outermost shell: threads, clocks and files are its business.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]
// The reader of our output may stop reading, so output goes through `kasha_runtime::say!`.
#![deny(clippy::print_stdout)]

mod bench;
mod nodes;
mod sim;

use clap::{CommandFactory, Parser, Subcommand};

/// Simulations, benchmarks and a demonstration of Kasha.
#[derive(Parser)]
#[command(name = "kasha-lab", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Kill, freeze and disturb a small cluster under load, and show that no update is lost or doubled.
    Demo(nodes::DemoArguments),
    /// Measure, as ratios within one run.
    Bench(bench::BenchArguments),
    /// Run whole clusters in a deterministic world and check what they promise.
    Sim(sim::SimArguments),
    /// Run one node of a demonstration or benchmark, with injected faults and delays. Not for servers.
    #[command(hide = true)]
    InternalNode(Box<nodes::InternalNodeArguments>),
}

fn main() {
    let arguments = Arguments::parse();
    kasha::prepare(&[Arguments::command()]);
    kasha::end(match arguments.command {
        Command::Demo(arguments) => nodes::demo(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Sim(arguments) => sim::run(&arguments),
        Command::InternalNode(arguments) => nodes::internal_node(&arguments),
    });
}
