//! Runs the chosen searches, prints the results, and compares them with `spec/results`.
//!
//! `spec/results` has, for each rule, the property that its absence violates, with a trace; and one table of the
//! searches with all rules. Verdicts must be the same; state counts and traces are for reading.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use anyhow::{Context, Result, ensure};

use crate::check::{Found, Trace, search};
use crate::cleaner::{self, Cleaner};
use crate::distributed::{self, Distributed};
use crate::group::{self, Group};
use crate::group_disk::{self, GroupDisk};
use crate::recovery::{self, Recovery};
use crate::replicas::{self, Replicas};
use crate::updates::{self, Thrift, Updates};
use crate::{BoundsChoice, Broken, Which};

/// The searches to run.
#[derive(Clone, Debug)]
pub struct Choice {
    /// One model only.
    pub only: Option<Which>,
    /// The bounds to use.
    pub bounds: BoundsChoice,
    /// The name of a program or of a switched-off rule.
    pub name: Option<String>,
    /// Threads of the searches with all rules. The others take one, so that they find the same trace each time.
    pub threads: usize,
    /// Searches with a rule switched off that run beside each other.
    pub processors: usize,
    /// Write the results instead of comparing.
    pub update: bool,
}

/// The result of one search with all rules.
struct Whole {
    model: &'static str,
    name: &'static str,
    about: &'static str,
    found: Found,
}

/// Runs the chosen searches.
///
/// # Errors
/// If a search with all rules violates something, the absence of a rule violates nothing, or a verdict differs from the
/// stored one.
pub fn run(choice: &Choice) -> Result<()> {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
    let mut problems = Vec::new();
    let mut wholes = Vec::new();
    for whole in whole_searches(choice) {
        let whole = whole();
        println!("{}", line(&whole));
        if let Some(trace) = &whole.found.violation {
            println!("{}", steps(trace));
            problems.push(format!("{} {}: violates {}", whole.model, whole.name, trace.property));
        }
        wholes.push(whole);
    }
    if choice.update && choice.name.is_none() && choice.only.is_none() {
        let file = results.join(file_of_table(choice.bounds));
        std::fs::write(&file, table(&wholes)).with_context(|| file.display().to_string())?;
    }
    let broken_searches = broken_searches(choice);
    ensure!(wholes.len() + broken_searches.len() > 0, "no program and no rule has this name");
    side_by_side(broken_searches, choice.processors, |(model, broken, program, _), found| {
        let verdict = found.violation.as_ref().map_or("violates nothing", |trace| trace.property);
        println!("{model} without {:<34} {verdict}", broken.name);
        let file = results.join(format!("{model}-{}.txt", broken.name));
        match &found.violation {
            None => problems.push(format!("{model}: without {} ({}) nothing is violated", broken.name, broken.rule)),
            Some(trace) => {
                if choice.name.is_some() {
                    println!("{}", steps(trace));
                }
                compare(choice, &file, &page(model, broken, program, trace), &mut problems)?;
            }
        }
        Ok(())
    })?;
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// Runs searches of one thread each, as many at a time as there are processors, and reports them in order.
fn side_by_side(
    searches: Vec<BrokenSearch>,
    processors: usize,
    mut report: impl FnMut(&BrokenSearch, Found) -> Result<()>,
) -> Result<()> {
    let next = AtomicUsize::new(0);
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..processors {
            let (sender, searches, next) = (sender.clone(), &searches, &next);
            let taken = move || {
                let index = next.fetch_add(1, Ordering::Relaxed);
                searches.get(index).map(|(.., search)| (index, search))
            };
            scope.spawn(move || {
                while let Some((index, search)) = taken() {
                    sender.send((index, search())).expect("it is heard to the end");
                }
            });
        }
        drop(sender);
        let (mut early, mut reported, mut result) = (BTreeMap::new(), 0, Ok(()));
        for (index, found) in receiver {
            early.insert(index, found);
            while let Some(found) = early.remove(&reported) {
                result = result.and_then(|()| report(&searches[reported], found));
                reported += 1;
            }
        }
        result
    })
}

fn is_chosen(choice: &Choice, which: Which, name: &str) -> bool {
    choice.only.is_none_or(|only| only == which) && choice.name.as_ref().is_none_or(|chosen| chosen == name)
}

fn whole_searches(choice: &Choice) -> Vec<Box<dyn FnOnce() -> Whole>> {
    let (threads, is_large) = (choice.threads, choice.bounds == BoundsChoice::Large);
    let mut searches: Vec<Box<dyn FnOnce() -> Whole>> = Vec::new();
    let named = |name: &str| choice.name.as_deref() == Some(name);
    for program in updates::program::PROGRAMS.iter().filter(|program| is_chosen(choice, Which::A, program.name)) {
        if program.is_small || is_large || named(program.name) {
            let thrift = Thrift { names: true, last_list: !is_large };
            let model = Updates { program, off: None, thrift };
            searches.push(Box::new(move || {
                let found =
                    told(search(model.clone(), threads), || search(Updates { thrift: Thrift::default(), ..model }, 1));
                Whole { model: "a", name: program.name, about: program.about, found }
            }));
        }
    }
    for bounds in replicas::bounds::PROGRAMS.iter().filter(|bounds| is_chosen(choice, Which::B, bounds.name)) {
        if bounds.is_small || is_large || named(bounds.name) {
            let model = Replicas { bounds, off: None, names_matter: false };
            searches.push(Box::new(move || {
                let found =
                    told(search(model.clone(), threads), || search(Replicas { names_matter: true, ..model }, 1));
                Whole { model: "b", name: bounds.name, about: bounds.about, found }
            }));
        }
    }
    for program in distributed::programs::PROGRAMS.iter().filter(|program| is_chosen(choice, Which::C, program.name)) {
        if program.is_small || is_large || named(program.name) {
            let model = Distributed { program, off: None };
            searches.push(Box::new(move || {
                let found = search(model, threads);
                Whole { model: "c", name: program.name, about: program.about, found }
            }));
        }
    }
    for bounds in cleaner::bounds::PROGRAMS.iter().filter(|bounds| is_chosen(choice, Which::D, bounds.name)) {
        if bounds.is_small || is_large || named(bounds.name) {
            let model = Cleaner { bounds, off: None };
            searches.push(Box::new(move || {
                let found = search(model, threads);
                Whole { model: "d", name: bounds.name, about: bounds.about, found }
            }));
        }
    }
    for bounds in recovery::bounds::PROGRAMS.iter().filter(|bounds| is_chosen(choice, Which::E, bounds.name)) {
        if bounds.is_small || is_large || named(bounds.name) {
            let model = Recovery { bounds, off: None };
            searches.push(Box::new(move || {
                let found = search(model, threads);
                Whole { model: "e", name: bounds.name, about: bounds.about, found }
            }));
        }
    }
    searches.extend(group_searches(choice));
    searches
}

/// The models of the coordinator as a group.
fn group_searches(choice: &Choice) -> Vec<Box<dyn FnOnce() -> Whole>> {
    let (threads, is_large) = (choice.threads, choice.bounds == BoundsChoice::Large);
    let mut searches: Vec<Box<dyn FnOnce() -> Whole>> = Vec::new();
    let named = |name: &str| choice.name.as_deref() == Some(name);
    for bounds in group::bounds::PROGRAMS.iter().filter(|bounds| is_chosen(choice, Which::F, bounds.name)) {
        if bounds.is_small || is_large || named(bounds.name) {
            let model = Group { bounds, off: None, names_matter: false };
            searches.push(Box::new(move || {
                let found = told(search(model.clone(), threads), || search(Group { names_matter: true, ..model }, 1));
                Whole { model: "f", name: bounds.name, about: bounds.about, found }
            }));
        }
    }
    for bounds in group_disk::bounds::PROGRAMS.iter().filter(|bounds| is_chosen(choice, Which::G, bounds.name)) {
        if bounds.is_small || is_large || named(bounds.name) {
            let model = GroupDisk { bounds, off: None };
            searches.push(Box::new(move || {
                let found = search(model, threads);
                Whole { model: "g", name: bounds.name, about: bounds.about, found }
            }));
        }
    }
    searches
}

/// A violation is described from a search without reductions, in which all names stay as they are.
fn told(found: Found, again: impl FnOnce() -> Found) -> Found {
    if found.violation.is_some() { again() } else { found }
}

type BrokenSearch = (&'static str, &'static Broken, &'static str, Box<dyn Fn() -> Found + Send + Sync>);

fn broken_searches(choice: &Choice) -> Vec<BrokenSearch> {
    let mut searches: Vec<BrokenSearch> = Vec::new();
    for (rule, broken, program) in updates::rules::SWITCHES {
        if is_chosen(choice, Which::A, broken.name) {
            let model = Updates { program, off: Some(*rule), thrift: Thrift::default() };
            searches.push(("a", broken, program.name, Box::new(move || search(model.clone(), 1))));
        }
    }
    for (rule, broken, bounds) in replicas::rules::SWITCHES {
        if is_chosen(choice, Which::B, broken.name) {
            let model = Replicas { bounds, off: Some(*rule), names_matter: true };
            searches.push(("b", broken, bounds.name, Box::new(move || search(model.clone(), 1))));
        }
    }
    for (rule, broken, program) in distributed::rules::SWITCHES {
        if is_chosen(choice, Which::C, broken.name) {
            let model = Distributed { program, off: Some(*rule) };
            searches.push(("c", broken, program.name, Box::new(move || search(model.clone(), 1))));
        }
    }
    for (rule, broken, bounds) in cleaner::rules::SWITCHES {
        if is_chosen(choice, Which::D, broken.name) {
            let model = Cleaner { bounds, off: Some(*rule) };
            searches.push(("d", broken, bounds.name, Box::new(move || search(model.clone(), 1))));
        }
    }
    for (rule, broken, bounds) in recovery::rules::SWITCHES {
        if is_chosen(choice, Which::E, broken.name) {
            let model = Recovery { bounds, off: Some(*rule) };
            searches.push(("e", broken, bounds.name, Box::new(move || search(model.clone(), 1))));
        }
    }
    for (rule, broken, bounds) in group::rules::SWITCHES {
        if is_chosen(choice, Which::F, broken.name) {
            let model = Group { bounds, off: Some(*rule), names_matter: true };
            searches.push(("f", broken, bounds.name, Box::new(move || search(model.clone(), 1))));
        }
    }
    for (rule, broken, bounds) in group_disk::rules::SWITCHES {
        if is_chosen(choice, Which::G, broken.name) {
            let model = GroupDisk { bounds, off: Some(*rule) };
            searches.push(("g", broken, bounds.name, Box::new(move || search(model.clone(), 1))));
        }
    }
    searches
}

fn line(whole: &Whole) -> String {
    let Whole { model, name, found, .. } = whole;
    let verdict = found.violation.as_ref().map_or("holds", |_| "VIOLATED");
    let seconds = found.took.as_secs_f64();
    format!("{model} {name:<34} {verdict:<9} {:>10} states, depth {:>3}, {seconds:>6.1} s", found.states, found.depth)
}

fn steps(trace: &Trace) -> String {
    let mut text = String::new();
    for (number, step) in (1..).zip(&trace.steps) {
        writeln!(text, "{number:>3}. {:<12} {:<28} {}", step.who, step.function, step.text).expect("a string");
    }
    writeln!(text, "     {}", trace.epilogue).expect("a string");
    text
}

fn page(model: &str, broken: &Broken, program: &str, trace: &Trace) -> String {
    format!(
        "rule:     {}\nbroken:   {}: {}\nkept by:  {}\nprogram:  {model} {program}\nviolates: {}\n\n{}",
        broken.rule,
        broken.name,
        broken.what,
        broken.code,
        trace.property,
        steps(trace)
    )
}

fn file_of_table(bounds: BoundsChoice) -> &'static str {
    match bounds {
        BoundsChoice::Small => "small.txt",
        BoundsChoice::Large => "large.txt",
    }
}

/// The table without times, which must not be compared.
fn table(wholes: &[Whole]) -> String {
    let mut text = String::from("With all rules nothing is violated in any of these states.\n\n");
    for Whole { model, name, about, found } in wholes {
        writeln!(text, "{model} {name:<34} {:>10} states, depth {:>3}: {about}", found.states, found.depth)
            .expect("a string");
    }
    text
}

/// Everything above the trace is the verdict.
fn verdict(page: &str) -> &str {
    page.split_once("\n\n").map_or(page, |(verdict, _)| verdict)
}

fn compare(choice: &Choice, file: &PathBuf, page: &str, problems: &mut Vec<String>) -> Result<()> {
    if choice.update {
        return std::fs::write(file, page).with_context(|| file.display().to_string());
    }
    let stored = std::fs::read_to_string(file).unwrap_or_default();
    if verdict(&stored) != verdict(page) {
        problems.push(format!(
            "{} says otherwise; if this is right, run it again with UPDATE=1\n{}",
            file.display(),
            verdict(page)
        ));
    } else if stored != page {
        println!("note: another trace than in {}; UPDATE=1 rewrites it", file.display());
    }
    Ok(())
}
