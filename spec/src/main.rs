//! `cargo xtask models [--only a|b|c|d|e|f|g] [--bounds small|large] [NAME]`: see `spec/README.md`.

use std::process::ExitCode;

use clap::Parser;
use kasha_spec::report::{Choice, run};
use kasha_spec::{BoundsChoice, Which};

/// Searches the models: with all rules, and with each of them switched off. `UPDATE=1` rewrites spec/results.
#[derive(Parser)]
struct Arguments {
    /// One model only.
    #[arg(long)]
    only: Option<Which>,
    /// How far to search.
    #[arg(long, default_value = "small")]
    bounds: BoundsChoice,
    /// Threads of the searches with all rules; 0: as many as there are processors.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// The name of a program, or of a rule that is switched off: its trace is printed.
    name: Option<String>,
}

fn main() -> ExitCode {
    let Arguments { only, bounds, threads, name } = Arguments::parse();
    let update = std::env::var_os("UPDATE").is_some();
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let choice = Choice {
        only,
        bounds,
        name,
        processors,
        // With one thread, the stored results are the same on every machine.
        threads: if update {
            1
        } else if threads == 0 {
            processors
        } else {
            threads
        },
        update,
    };
    match run(&choice) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
