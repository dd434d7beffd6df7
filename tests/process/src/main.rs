//! The campaign as a program, which `cargo xtask process-tests` runs: rounds of faults, each from a seed, until the
//! time is up.
// This program uses threads, clocks and processes.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

use std::process::ExitCode;
use std::time::{Duration, Instant};

use kasha_process_tests::campaign::alone::{KINDS, Kind};
use kasha_process_tests::campaign::plan::Plan;
use kasha_process_tests::campaign::table::Table;
use kasha_process_tests::campaign::{Failure, round};

const USAGE: &str =
    "usage: kasha-process-tests --seed N [--minutes M | --rounds R] [--long] [--loopback] [--keep] [--plan] [--beyond]
                            [--only FAULT]

  --seed N       the first round's seed; the next rounds have the next ones
  --minutes M    rounds begin until so many minutes are over (10); of five minutes or more one round is long
  --rounds R     so many rounds instead
  --long         more and fuller phases in every round, and at last a minute without the coordinator, or its leader
  --loopback     no virtual network, so that nothing is cut
  --keep         keep the folders of good rounds too
  --plan         only print what would be done
  --beyond       lose what may be lost, and insist that it is noticed
  --only FAULT   rounds with this fault alone, twice; `--only list` names all
                 (`cargo xtask process-tests --only outsiders`: no rounds, but the directed tests of what outsiders found)

exit codes: 1 the test is broken, 2 wrong usage, 3 wrong answer, 4 no progress, 5 a crash, 6 undecided";

struct Arguments {
    seed: u64,
    time: Duration,
    rounds: Option<u64>,
    long: bool,
    loopback: bool,
    keep: bool,
    plan: bool,
    beyond: bool,
    only: Option<Kind>,
}

fn parse(mut words: impl Iterator<Item = String>) -> Option<Arguments> {
    let (time, rounds) = (Duration::from_secs(600), None);
    let mut arguments = Arguments {
        seed: 1,
        time,
        rounds,
        long: false,
        loopback: false,
        keep: false,
        plan: false,
        beyond: false,
        only: None,
    };
    while let Some(word) = words.next() {
        match word.as_str() {
            "--seed" => arguments.seed = words.next()?.parse().ok()?,
            "--minutes" => {
                let minutes: f64 = words.next()?.parse().ok()?;
                arguments.time = Duration::try_from_secs_f64(60.0 * minutes).ok()?;
            }
            "--rounds" => arguments.rounds = Some(words.next()?.parse().ok()?),
            "--long" => arguments.long = true,
            "--loopback" => arguments.loopback = true,
            "--keep" => arguments.keep = true,
            "--plan" => arguments.plan = true,
            "--beyond" => arguments.beyond = true,
            "--only" => arguments.only = Some(Kind::named(&words.next()?)?),
            _ => return None,
        }
    }
    Some(arguments)
}

/// A campaign of at least this time has a long round.
const TIME_FOR_A_LONG_ROUND: Duration = Duration::from_secs(300);

impl Arguments {
    /// Whether a round is a long one. Rounds are counted from 0.
    fn is_long(&self, number: u64) -> bool {
        self.long || self.rounds.is_none() && self.time >= TIME_FOR_A_LONG_ROUND && number == 1
    }
}

/// A round in a folder of its own; the folder stays if it fails.
fn one_round(arguments: &Arguments, seed: u64, is_long: bool, table: &mut Table) -> Result<(), Failure> {
    let plan = match arguments.only {
        _ if arguments.beyond => Plan::beyond_promise(seed),
        Some(kind) => Plan::only(seed, kind),
        None => Plan::draw(seed, is_long),
    };
    if arguments.plan {
        println!("  {plan}");
        return Ok(());
    }
    let folder = std::env::temp_dir().join(format!("kasha-campaign-{}-{seed}", std::process::id()));
    let result = round::run(&plan, &folder, !arguments.loopback, table);
    if result.is_ok() && !arguments.keep {
        let _ = std::fs::remove_dir_all(&folder);
    } else {
        println!("    kept: {}", folder.display());
    }
    match (result, arguments.beyond) {
        (Ok(()), true) => Err(Failure::Broken("what was lost was not noticed".to_owned())),
        (Err(Failure::Wrong(why)), true) => {
            println!("    noticed, as it must be: {}", why.lines().next().unwrap_or_default());
            let _ = std::fs::remove_dir_all(&folder);
            Ok(())
        }
        (result, _) => result,
    }
}

/// Prints the seconds from fault to service, if any were measured.
fn tell(table: &Table) {
    if !table.is_empty() {
        println!("seconds from fault to service:\n\n{table}\n");
    }
}

fn main() -> ExitCode {
    if std::env::args().skip(1).eq(["--only", "list"]) {
        for (name, _) in KINDS {
            println!("{name}");
        }
        return ExitCode::SUCCESS;
    }
    let Some(arguments) = parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let (began, mut table) = (Instant::now(), Table::default());
    for number in 0.. {
        let is_over =
            arguments.rounds.map_or(number > 0 && began.elapsed() >= arguments.time, |rounds| number >= rounds);
        if is_over {
            break;
        }
        let seed = arguments.seed.wrapping_add(number);
        let long = match arguments.only {
            Some(kind) => format!(" --only {kind}"),
            None if arguments.is_long(number) => " --long".to_owned(),
            None => String::new(),
        };
        println!("round {} seed {seed}{long}", number + 1);
        if let Err(failure) = one_round(&arguments, seed, arguments.is_long(number), &mut table) {
            tell(&table);
            println!("{failure}\nrepeat the round: cargo xtask process-tests --seed {seed} --rounds 1{long} --keep");
            return ExitCode::from(failure.code());
        }
    }
    tell(&table);
    println!("all rounds are good");
    ExitCode::SUCCESS
}
