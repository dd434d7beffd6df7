//! One round: a new cluster, its faults, and the verdicts. [`run`] is the whole of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value as Json;

use super::alone::Kind;
use super::ballast::Ballast;
use super::book::{Book, Ended, Record, save};
use super::field::Field;
use super::judge::{judge, judge_transactions};
use super::lines::Lines;
use super::load::{Load, READER};
use super::plan::{Event, Plan};
use super::probe::{Probe, Seen};
use super::redis::RedisLoad;
use super::table::Table;
use super::{Failure, broken, sums};
use crate::process::list;

/// Answers that every task must get in a whole cluster.
const ANSWERS: u64 = 20;

/// The clients of a round.
struct Loads {
    load: Load,
    redis: Option<RedisLoad>,
}

impl Loads {
    /// Waits until every task and program was answered so often again.
    fn go_on(&mut self) -> Result<(), Failure> {
        self.load.goes_on(ANSWERS)?;
        self.redis.as_mut().map_or(Ok(()), |redis| redis.goes_on(ANSWERS))
    }
}

/// Runs a plan in an empty folder.
///
/// # Errors
/// The failure of the round.
pub fn run(plan: &Plan, folder: &Path, with_lab: bool, table: &mut Table) -> Result<(), Failure> {
    println!("  {plan}");
    fs::create_dir_all(folder).map_err(broken("no folder"))?;
    let mut field = Field::new(plan, folder, with_lab)?;
    field.begin()?;
    let ballast = plan.shape.has_ballast.then(|| Ballast::start(field.net(), &plan.shape, plan.seed)).transpose()?;
    let redis = RedisLoad::start(field.net(), plan, folder)?;
    let mut loads = Loads { load: Load::start(field.net(), plan.seed)?, redis };
    if let Err(failure) = suffer(plan, &mut field, &mut loads, table) {
        // The history up to the failure may show a worse error.
        return Err(match verdict(&loads, plan, folder) {
            Err(Failure::Wrong(why)) => Failure::Wrong(format!("{why}\nand besides: {failure}")),
            Err(Failure::Half(why)) => Failure::Half(format!("{why}\nand besides: {failure}")),
            Ok(()) | Err(_) => failure,
        });
    }
    if let Some(ballast) = ballast {
        println!("    ballast: {}; {}", ballast.end()?, cleaned(&field.status().map_err(Failure::Stuck)?));
    }
    let counters = loads.load.end(field.net())?;
    let (mut count, mut problems) = sums::check(&loads.load.book().records(), &counters);
    if let Some(redis) = &mut loads.redis {
        let counters = redis.end(field.net(), plan)?;
        let (more, wrong) = sums::check(&redis.shared().book.records(), &counters);
        count += more;
        problems.extend(wrong);
    }
    let verdict = verdict(&loads, plan, folder);
    if !problems.is_empty() && !matches!(verdict, Err(Failure::Half(_))) {
        return Err(Failure::Wrong(few("sums", &problems)));
    }
    println!("    sums: {count} counters are what their callers were told");
    verdict
}

fn suffer(plan: &Plan, field: &mut Field, loads: &mut Loads, table: &mut Table) -> Result<(), Failure> {
    loads.go_on()?;
    for (index, phase) in plan.phases.iter().enumerate() {
        let phase = field.named(phase)?;
        match (plan.measured.get(&index), &phase[..]) {
            (Some(kind), [event]) => measure((*kind, plan.shape.lease), index, event, field, loads, table)?,
            _ if plan.is_served_throughout(index) => endure(index, &phase, field, loads)?,
            _ => {
                field.suffer(&phase)?;
                field.becomes_whole()?;
                loads.go_on()?;
            }
        }
    }
    Ok(())
}

/// Causes the faults of a phase in which every shard must answer before anything heals.
fn endure(phase: usize, events: &[Event], field: &mut Field, loads: &mut Loads) -> Result<(), Failure> {
    let probe = Probe::start(field.net(), format!("probe:{phase}"))?;
    field.suffer(events)?;
    field.becomes_whole()?;
    loads.go_on()?;
    let (from, to) = field.moments().expect("a fault began");
    let seen = probe.end()?;
    let is_silent = |seen: &&Seen| seen.answers_between(from, to) < ANSWERS;
    let silent: BTreeSet<u64> = seen.iter().filter(is_silent).map(|seen| seen.shard).collect();
    if silent.is_empty() {
        return Ok(());
    }
    Err(Failure::Stuck(format!(
        "one node of a group is away, the leader's, and no answer comes from shards {silent:?}"
    )))
}

/// Causes one fault alone, and measures how long keys were without an answer.
fn measure(
    (kind, lease): (Kind, Duration),
    phase: usize,
    event: &Event,
    field: &mut Field,
    loads: &mut Loads,
    table: &mut Table,
) -> Result<(), Failure> {
    let probe = Probe::start(field.net(), format!("probe:{phase}"))?;
    let before = field.status().map_err(Failure::Stuck)?;
    let (led, touched) = field.struck_by(&event.fault, &before);
    field.suffer(std::slice::from_ref(event))?;
    field.becomes_whole()?;
    loads.go_on()?;
    let (began, over) = field.moments().expect("a fault began");
    let seen = probe.end()?;
    let moment = if kind.counts_from_end() { over } else { began };
    let is_hit = |seen: &&Seen| led.is_empty() || led.contains(&seen.shard);
    let is_other = |seen: &&Seen| seen.is_shared && !touched.contains(&seen.shard);
    let service = seen.iter().filter(|seen| !seen.is_shared).filter(is_hit).map(|seen| seen.pause_after(moment)).max();
    let others = seen.iter().filter(is_other).map(|seen| seen.pause_after(moment)).max();
    let service = service.unwrap_or_default();
    let others_told = others.map_or_else(String::new, |others| {
        format!("; a key of an untouched shard in a shared session paused for {:.2} s", others.as_secs_f64())
    });
    println!("    {kind}: service after {:.2} s{others_told}", service.as_secs_f64());
    for seen in seen.iter().filter(|seen| seen.is_shared) {
        let pause = seen.pause_after(moment).as_millis();
        let part = match (led.contains(&seen.shard), touched.contains(&seen.shard)) {
            (true, _) => ", whose primary was struck",
            (false, true) => ", of which a backup or witness was struck",
            (false, false) => "",
        };
        println!("      {pause:>6} ms: a shared session's key of shard-{}{part}", seen.shard);
    }
    table.enter(kind, lease, service, others);
    let after = field.status().map_err(Failure::Stuck)?;
    if kind.keeps_membership() && membership(&before) != membership(&after) {
        let (before, after) = (membership(&before), membership(&after));
        return Err(Failure::Wrong(format!("only the coordinator was away (R7.8):\n    {before}\n    {after}")));
    }
    Ok(())
}

/// What the primaries that serve now have cleaned, as text.
fn cleaned(status: &Json) -> String {
    let sum = |name| {
        list(&status["shards"]).iter().filter_map(|shard| shard["status"]["cleaning"][name].as_u64()).sum::<u64>()
    };
    format!("{} segments cleaned, {} MiB copied", sum("cleaned_segments"), sum("copied_bytes") >> 20)
}

/// The primary, members and witnesses of each shard, as text.
fn membership(status: &Json) -> String {
    let shards = list(&status["shards"]).iter();
    let told = shards.map(|shard| {
        let mut members: Vec<_> = list(&shard["members"]).iter().map(|member| member["node"].to_string()).collect();
        members.sort();
        let (number, epoch, primary, witnesses) =
            (&shard["shard"], &shard["epoch"], &shard["primary"], &shard["witnesses"]);
        format!("shard-{number} epoch {epoch} of {primary}: members {}, witnesses {witnesses}", members.join(" "))
    });
    told.collect::<Vec<_>>().join("; ")
}

/// What was written down on one way into the cluster.
struct History<'r> {
    /// What the names of its files begin with.
    name: &'static str,
    book: &'r Book,
    lines: &'r Lines,
}

fn verdict(loads: &Loads, plan: &Plan, folder: &Path) -> Result<(), Failure> {
    let mut histories = vec![History { name: "", book: loads.load.book(), lines: loads.load.transactions().lines() }];
    if let Some(redis) = &loads.redis {
        let shared = redis.shared();
        println!("    programs of Redis hung up {} times", shared.hung_up.load(Ordering::Relaxed));
        histories.push(History { name: "redis-", book: &shared.book, lines: &shared.lines });
    }
    // All are judged: what one of them shows may be worse.
    let mut verdicts: Vec<_> = histories.iter().filter_map(|history| verdict_on(history, plan, folder).err()).collect();
    verdicts.sort_by_key(|failure| match failure {
        Failure::Half(_) => 0,
        Failure::Wrong(_) => 1,
        Failure::Broken(_) | Failure::Stuck(_) | Failure::Crashed(_) | Failure::Undecided(_) => 2,
    });
    verdicts.into_iter().next().map_or(Ok(()), Err)
}

fn verdict_on(&History { name, book, lines }: &History<'_>, plan: &Plan, folder: &Path) -> Result<(), Failure> {
    let records = book.records();
    let count = |outcome| records.iter().filter(|record| record.outcome == outcome).count();
    let (executed, not_executed) = (count(Ended::Executed), count(Ended::NotExecuted));
    let unknown = count(Ended::Unknown);
    println!(
        "    {name}{} operations: {executed} executed, {not_executed} not executed, {unknown} unknown",
        records.len()
    );
    let halves = book.halves();
    if !halves.is_empty() {
        return Err(Failure::Half(few("of transfers", &halves)));
    }
    let problems = book.problems();
    if !problems.is_empty() {
        return Err(Failure::Wrong(few("answers", &problems)));
    }
    let history = folder.join(format!("{name}history.jsonl"));
    // These counters live so long that nobody could search an order of their operations.
    let is_left_out = |record: &Record| {
        let is_read = record.asked.op == "get" && record.asked.client != READER;
        record.asked.key.starts_with("sum:") || (plan.reads_unjudged && is_read)
    };
    save(records.iter().filter(|record| !is_left_out(record)), &history).map_err(broken("no history"))?;
    let transactions = folder.join(format!("{name}transactions.jsonl"));
    lines.save(&transactions, !plan.reads_unjudged).map_err(broken("no history of transactions"))?;
    // Both are asked: what one cannot decide the other may.
    let (porcupine, cycles) = (judge(&history), judge_transactions(&transactions));
    let said = [("porcupine", &porcupine), ("cycles", &cycles)];
    for (judge, said) in said.into_iter().filter_map(|(judge, said)| Some((judge, said.as_ref().ok()?))) {
        println!("    {name}{judge}: {said}");
    }
    match (porcupine, cycles) {
        (Err(Failure::Wrong(one)), Err(Failure::Wrong(other))) => Err(Failure::Wrong(format!("{one}\n{other}"))),
        (_, Err(failure @ Failure::Wrong(_))) | (Err(failure), _) | (_, Err(failure)) => Err(failure),
        (Ok(_), Ok(_)) => Ok(()),
    }
}

/// The first of the problems, as text.
fn few(what: &str, problems: &[String]) -> String {
    let first = problems.iter().take(8).map(|problem| format!("\n    {problem}")).collect::<String>();
    format!("{what}: {} problems{first}", problems.len())
}
