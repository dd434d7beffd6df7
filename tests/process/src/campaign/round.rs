//! One round: a new cluster, its faults, and the verdicts.

use std::fs;
use std::path::Path;

use super::book::{Book, Ended, Record, save};
use super::field::Field;
use super::judge::judge;
use super::load::{Load, READER};
use super::plan::Plan;
use super::{Failure, broken, sums};

/// Answers that every task must get in a whole cluster.
const ANSWERS: u64 = 20;

/// Runs a plan in an empty folder.
///
/// # Errors
/// What went wrong.
pub fn run(plan: &Plan, folder: &Path, with_lab: bool) -> Result<(), Failure> {
    println!("  {plan}");
    fs::create_dir_all(folder).map_err(broken("no folder"))?;
    let mut field = Field::new(plan, folder, with_lab)?;
    field.begin()?;
    let mut load = Load::start(field.net(), plan.seed)?;
    if let Err(failure) = suffer(plan, &mut field, &load) {
        // What was seen until then may tell worse.
        return Err(match verdict(load.book(), plan, folder) {
            Err(Failure::Wrong(why)) => Failure::Wrong(format!("{why}\nand besides: {failure}")),
            Ok(()) | Err(_) => failure,
        });
    }
    let counters = load.end(field.net())?;
    let (count, problems) = sums::check(&load.book().records(), &counters);
    let verdict = verdict(load.book(), plan, folder);
    if !problems.is_empty() {
        return Err(Failure::Wrong(few("sums", &problems)));
    }
    println!("    sums: {count} counters are what their callers were told");
    verdict
}

fn suffer(plan: &Plan, field: &mut Field, load: &Load) -> Result<(), Failure> {
    load.goes_on(ANSWERS)?;
    for phase in &plan.phases {
        field.suffer(phase)?;
        field.becomes_whole()?;
        load.goes_on(ANSWERS)?;
    }
    Ok(())
}

fn verdict(book: &Book, plan: &Plan, folder: &Path) -> Result<(), Failure> {
    let records = book.records();
    let count = |outcome| records.iter().filter(|record| record.outcome == outcome).count();
    let (executed, not_executed) = (count(Ended::Executed), count(Ended::NotExecuted));
    let unknown = count(Ended::Unknown);
    println!("    {} operations: {executed} executed, {not_executed} not executed, {unknown} unknown", records.len());
    let problems = book.problems();
    if !problems.is_empty() {
        return Err(Failure::Wrong(few("answers", &problems)));
    }
    let history = folder.join("history.jsonl");
    // Sums live so long that nobody could search their order.
    let is_left_out = |record: &Record| {
        let is_read = record.asked.op == "get" && record.asked.client != READER;
        record.asked.key.starts_with("sum:") || (plan.reads_unjudged && is_read)
    };
    save(records.iter().filter(|record| !is_left_out(record)), &history).map_err(broken("no history"))?;
    println!("    porcupine: {}", judge(&history)?);
    Ok(())
}

/// The first of them, for people.
fn few(what: &str, problems: &[String]) -> String {
    let first = problems.iter().take(8).map(|problem| format!("\n    {problem}")).collect::<String>();
    format!("{what}: {} problems{first}", problems.len())
}
