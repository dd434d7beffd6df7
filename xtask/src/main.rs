//! The project's own commands, run as `cargo xtask <command>`.
//!
//! `test` is what CI runs, in stages. `tidy` checks the part of `docs/style.md` that a program can check. `models`
//! searches the models in `spec`. `mutants` plants every bug and prints which checker catches it. `netlab` is a virtual
//! network to try things in. `process-tests` runs rounds of faults against real processes. `redis-oracle` compares with
//! Redis, and `drivers` runs programs with drivers of Redis. `instructions` counts what an operation costs. They need
//! only the stock Rust toolchain; git, Go and Valgrind are used if they are there, and `drivers` says what it needs.
//! `fuzz` searches longer, and installs what it needs.

// This tool runs other programs and measures their time. It is not a protocol, so it may use clocks and threads.
#![allow(clippy::disallowed_methods)]

mod ci;
mod drivers;
mod fuzz;
mod host;
mod instructions;
mod netlab;
mod process_tests;
mod redis_oracle;
mod schedule;
mod source;
mod stages;
mod stop;
mod tidy;
mod tools;
mod watch;
mod workspace;
mod wrapper;

use std::process::ExitCode;

use stages::Choice;
use workspace::Workspace;

const USAGE: &str = "usage: cargo xtask test [--quick | --stage NAME]
       | tidy
       | models [--help]
       | mutants [--only BUG] [--seeds-factor N] [--first] [--hints FILE] [--everywhere SEEDS]
       | netlab …
       | process-tests [--help]
       | redis-oracle [--minutes N] [--seed N] [--spread]
       | drivers [--kills N] [--only NAME]…
       | instructions
       | fuzz [--target T] [--seconds N] [--sanitizer none|address]";

enum Command {
    Test(Choice),
    Tidy,
    /// With the arguments of `kasha-spec`.
    Models(Vec<String>),
    Netlab(netlab::Play),
    /// With the arguments of the simulator's own program.
    Mutants(Vec<String>),
    Fuzz(fuzz::Choice),
    ProcessTests(Vec<String>),
    /// With the arguments of the oracle's own program.
    RedisOracle(Vec<String>),
    Drivers(drivers::Choice),
    Instructions,
}

fn parse(arguments: &[&str]) -> Option<Command> {
    match arguments {
        ["test"] => Some(Command::Test(Choice::All)),
        ["test", "--quick"] => Some(Command::Test(Choice::Quick)),
        ["test", "--stage", name] => Some(Command::Test(Choice::One((*name).to_owned()))),
        ["tidy"] => Some(Command::Tidy),
        ["models", rest @ ..] => Some(Command::Models(rest.iter().map(|&argument| argument.to_owned()).collect())),
        ["netlab", rest @ ..] => netlab::parse(rest).map(Command::Netlab),
        ["mutants", rest @ ..] => Some(Command::Mutants(rest.iter().map(|&argument| argument.to_owned()).collect())),
        ["fuzz", options @ ..] => fuzz::parse(options).map(Command::Fuzz),
        ["process-tests", rest @ ..] => Some(Command::ProcessTests(rest.iter().map(|&word| word.to_owned()).collect())),
        ["redis-oracle", rest @ ..] => Some(Command::RedisOracle(rest.iter().map(|&word| word.to_owned()).collect())),
        ["drivers", options @ ..] => drivers::parse(options).map(Command::Drivers),
        ["instructions"] => Some(Command::Instructions),
        _ => None,
    }
}

fn main() -> ExitCode {
    if let Some(code) = wrapper::become_rustc() {
        return code;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Some(command) = parse(&arguments) else {
        eprintln!("{USAGE}\nstages: {}\n{}", stages::names().join(" "), netlab::USAGE);
        return ExitCode::from(2);
    };
    let result = Workspace::load().and_then(|workspace| match command {
        Command::Test(choice) => stages::run(&workspace, &choice).map(|()| ExitCode::SUCCESS),
        Command::Tidy => tidy::run(&workspace).map(|()| ExitCode::SUCCESS),
        Command::Models(arguments) => stages::search_models(&workspace, &arguments).map(|()| ExitCode::SUCCESS),
        Command::Netlab(play) => netlab::run(&workspace, &play).map(|()| ExitCode::SUCCESS),
        Command::Mutants(arguments) => stages::mutants(&workspace, &arguments).map(|()| ExitCode::SUCCESS),
        Command::Fuzz(choice) => fuzz::run(&workspace, &choice).map(|()| ExitCode::SUCCESS),
        Command::ProcessTests(words) => process_tests::run(&workspace, &words),
        Command::RedisOracle(words) => redis_oracle::run(&workspace, &words),
        Command::Drivers(choice) => drivers::run(&workspace, &choice),
        Command::Instructions => instructions::run(&workspace).map(|()| ExitCode::SUCCESS),
    });
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
