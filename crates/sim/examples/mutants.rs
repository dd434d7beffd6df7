//! `cargo xtask mutants`: plants every bug in turn, and prints which checker catches it, at which seed, and how often.

use std::fs;
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use kasha_sim::mutants::{Depth, Hints, Tried, rule, runs_at_most, try_all};
use kasha_sim::planted::{CAUGHT, Caught};
use kasha_sim::{Bug, Scenario};

const USAGE: &str = "usage: mutants [--only BUG] [--seeds-factor N] [--first] [--hints FILE] [--everywhere SEEDS]";

/// A text with which no violation begins.
const NOBODY: &str = "\0";

/// What was asked for.
struct Options {
    only: Option<Bug>,
    seeds_factor: u64,
    depth: Depth,
    /// A file to write with a seed that caught each row. The seeds that the file has are tried first.
    hints: Option<String>,
    /// If set, instead of the table: every bug in this many seeds of every scenario.
    everywhere: Option<u64>,
}

fn parse(arguments: &[String]) -> Result<Options, String> {
    let mut options = Options { only: None, seeds_factor: 1, depth: Depth::All, hints: None, everywhere: None };
    let mut rest = arguments.iter();
    while let Some(name) = rest.next() {
        let mut value = || rest.next().ok_or(format!("{name} needs a value"));
        let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is no number"));
        match name.as_str() {
            "--only" => {
                let name = value()?;
                options.only = Some(Bug::by_name(name).ok_or(format!("there is no planted bug {name:?}"))?);
            }
            "--seeds-factor" => options.seeds_factor = number(value()?)?.max(1),
            "--first" => options.depth = Depth::First(Hints::default()),
            "--hints" => options.hints = Some(value()?.clone()),
            "--everywhere" => options.everywhere = Some(number(value()?)?),
            _ => return Err(format!("{name:?} is not understood")),
        }
    }
    let is_whole = options.only.is_none() && options.everywhere.is_none() && options.seeds_factor == 1;
    if options.hints.is_some() && !is_whole {
        return Err("--hints is of the whole table, with the seeds that it names".to_owned());
    }
    let known = options.hints.as_deref().map(hints_of).transpose()?;
    if let (Depth::First(hints), Some(known)) = (&mut options.depth, known) {
        *hints = known;
    }
    Ok(options)
}

/// The seeds in a file, if there is one. With a row that is gone the whole file would else be as good as none, without a word.
fn hints_of(file: &str) -> Result<Hints, String> {
    match fs::read_to_string(file) {
        Ok(text) => Hints::from_text(&text, CAUGHT).map_err(|why| format!("{file}: {why}")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Hints::default()),
        Err(error) => Err(format!("{file} cannot be read: {error}")),
    }
}

fn rows(options: &Options) -> Vec<Caught> {
    let is_asked = |bug: Bug| options.only.is_none_or(|only| only == bug);
    match options.everywhere {
        None => (CAUGHT.iter().filter(|row| is_asked(row.bug)))
            .map(|row| Caught { seeds: row.seeds * options.seeds_factor, ..*row })
            .collect(),
        Some(seeds) => (Bug::TABLE.iter().map(|row| row.0).filter(|&bug| is_asked(bug)))
            .flat_map(|bug| Scenario::TABLE.iter().map(move |row| Caught { bug, scenario: row.0, seeds, by: NOBODY }))
            .collect(),
    }
}

fn show(tried: &Tried) {
    let Caught { bug, scenario, seeds, by } = tried.row;
    let share = tried.caught.len() as f64 * 100.0 / tried.runs.max(1) as f64;
    let first = tried.caught.first().map_or("never".to_owned(), u64::to_string);
    println!(
        "{:30} {:22} {:24} {:24} {first:>5} of {seeds:<4} {share:>3.0} % of {}",
        bug.name(),
        rule(bug),
        scenario.name(),
        by.trim_end_matches(": "),
        tried.runs
    );
    if tried.caught.is_empty() {
        for (text, count) in &tried.others {
            println!("    {count} times instead: {text}");
        }
    }
}

/// The exit code if the bug that was asked for has no row here.
const NOT_OURS: u8 = 3;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options = match parse(&arguments) {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    let rows = rows(&options);
    if let Some(bug) = options.only.filter(|_| rows.is_empty()) {
        println!("{}: {} The tests of its crate catch it, and not the simulator", bug.name(), rule(bug));
        return ExitCode::from(NOT_OURS);
    }
    let honest = options.only.is_none() && options.everywhere.is_none() && options.depth == Depth::All;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let (done, all) = (AtomicU64::new(0), runs_at_most(&rows, honest));
    let is_terminal = std::io::stderr().is_terminal();
    let (tried, dirty) = try_all(&rows, &options.depth, honest, jobs, || {
        let done = done.fetch_add(1, Ordering::Relaxed) + 1;
        if is_terminal {
            eprint!("\r{done} of at most {all} runs");
        } else if done.is_multiple_of(200) {
            eprintln!("{done} of at most {all} runs");
        }
        let _ = std::io::stderr().flush();
    });
    if is_terminal {
        eprintln!();
    }
    println!("{:30} {:22} {:24} {:24} {:>13} caught in", "bug", "rule", "scenario", "checker", "first seed");
    if options.everywhere.is_some() {
        tried.iter().filter(|tried| !tried.others.is_empty()).for_each(|tried| {
            let (bug, scenario) = (tried.row.bug.name(), tried.row.scenario.name());
            println!("{bug:30} {scenario:24} {:?} of {}", tried.others, tried.runs);
        });
        return ExitCode::SUCCESS;
    }
    tried.iter().for_each(show);
    for report in &dirty {
        println!("WITHOUT A BUG: {}\n    {}", report.line(), report.violations[0]);
    }
    if let Some(path) = options.hints
        && let Err(error) = fs::write(&path, Hints::of(&tried).to_text())
    {
        eprintln!("{path} cannot be written: {error}");
        return ExitCode::from(2);
    }
    let escaped = tried.iter().filter(|tried| tried.caught.is_empty()).count();
    println!("{} rows, {escaped} not caught; {} honest runs found something", tried.len(), dirty.len());
    if escaped + dirty.len() == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
