//! `kasha`: servers and the tools of who runs and uses them. Each subcommand has a module.
//!
//! The program is here as a library, so that `kasha-lab` runs the same nodes and treats its user alike. Nothing else should use it.
// The binary is the outermost shell: threads, clocks and files are its business.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]
// The reader of our output may stop reading, so output goes through `kasha_runtime::say!`.
#![deny(clippy::print_stdout)]
// What is public is for `kasha-lab`.
#![allow(missing_docs)]

mod admin;
mod allocator;
mod argument;
mod cli;
mod connect;
pub mod duration;
mod environment;
mod explain;
mod folder;
mod forming;
pub mod host;
pub mod place;
mod processes;
mod proxy;
pub mod redis;
mod server;
mod settings;
mod start;
mod status;
mod stderr;
pub mod stopping;
mod suggest;
mod talk;
mod telling;
mod told;
mod txn;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;

/// An in-memory key-value store whose every update takes effect exactly once and is durable after one round trip.
#[derive(Parser)]
#[command(name = "kasha", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a whole cluster in this process, with its data in a folder.
    Start(start::StartArguments),
    /// Run one node of a cluster; flags, environment variables or a TOML file configure it.
    Server(server::ServerArguments),
    /// Speak the Redis protocol to programs, and to the cluster for them; a proxy beside a program needs one round trip and survives every node.
    Proxy(proxy::ProxyArguments),
    /// Talk to a cluster: one command per call.
    Cli(cli::CliArguments),
    /// Show nodes and shards of a cluster, and whether all is well.
    Status(status::StatusArguments),
    /// Decide what only an operator may decide: give up members or witnesses that are lost for good.
    Admin(admin::AdminArguments),
    /// Print the page of an error's code.
    Explain(explain::ExplainArguments),
}

/// Starts the log. If nobody reads the log any more, lines are lost, and the process goes on.
fn start_log(filter: Targets) {
    let is_terminal = std::io::stderr().is_terminal();
    let lines = fmt::layer().with_writer(|| stderr::Log).with_ansi(is_terminal).with_target(false).compact();
    tracing_subscriber::registry().with(lines).with(filter).init();
}

/// The program.
pub fn main() {
    let arguments = parse(std::env::args_os()).unwrap_or_else(|error| error.exit());
    prepare(&[]);
    let result = match arguments.command {
        Command::Start(arguments) => start::run(&arguments),
        Command::Server(arguments) => server::run(&arguments),
        Command::Proxy(arguments) => proxy::run(&arguments),
        Command::Cli(arguments) => cli::run(&arguments).map(|done| match done {
            told::Done::Yes => {}
            told::Done::No => std::process::exit(3),
        }),
        Command::Status(arguments) => status::run(&arguments).map(|is_well| match is_well {
            status::IsWell::Yes => {}
            status::IsWell::No => std::process::exit(3),
        }),
        Command::Admin(arguments) => admin::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
    };
    end(result);
}

/// What a program does before its command: checks the environment, starts the log, and prepares the process. `others`: commands besides
/// `kasha`'s own whose environment variables are no mistakes.
pub fn prepare(others: &[clap::Command]) {
    let known = [&[Arguments::command()], others].concat();
    match environment::check(&known).and_then(|()| environment::log_filter()) {
        Ok(filter) => start_log(filter),
        Err(error) => fail(&error),
    }
    kasha_runtime::raise_descriptor_limit();
    if let Err(error) = kasha_runtime::explain_bus_errors() {
        tracing::warn!(%error, "a failing disk may end this process without a word");
    }
}

/// Ends the process if its command has failed: tells the error, and the page of its code.
pub fn end(result: anyhow::Result<()>) {
    if let Err(error) = result {
        fail(&error);
    }
}

/// Reads the command line. Keys, values and deltas may begin with a minus sign, if digits follow.
fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Arguments, clap::Error> {
    let words: Vec<OsString> = words.into_iter().collect();
    let positionals = |command: clap::Command| {
        command.mut_args(|arg| if arg.is_positional() { arg.allow_negative_numbers(true) } else { arg })
    };
    let mut command = Arguments::command().mut_subcommand("cli", |cli| cli.mut_subcommands(positionals));
    let matches = command.try_get_matches_from_mut(&words);
    matches.and_then(|matches| Arguments::from_arg_matches(&matches)).map_err(|mut error| {
        suggest::help(&mut error, &command, words.get(1).and_then(|word| word.to_str()));
        error
    })
}

fn fail(error: &anyhow::Error) -> ! {
    let _ = writeln!(stderr::Log, "{}", explain::told(error));
    std::process::exit(if explain::is_wrong_usage(error) { 2 } else { 1 });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Found by a newcomer: a log line that could not be written panicked, and a panic ends the process.
    #[test]
    fn a_log_line_that_nobody_reads_is_lost_and_nothing_else() {
        const CHILD: &str = "KASHA_TEST_LOGS";
        if std::env::var_os(CHILD).is_some() {
            host::abort_on_panic();
            start_log(environment::log_filter().unwrap());
            tracing::error!("nobody reads this");
            let _ = writeln!(stderr::Log, "nor this");
            std::process::exit(0);
        }
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let name = "tests::a_log_line_that_nobody_reads_is_lost_and_nothing_else";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").env_remove("KASHA_LOG");
        let status = child.stdout(std::process::Stdio::null()).stderr(writer).status().unwrap();
        assert_eq!(status.code(), Some(0), "{status}");
    }
}
