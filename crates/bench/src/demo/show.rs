//! The demo's report: tables and bars for a person.

use hdrhistogram::Histogram;
use kasha_types::Tick;

use super::Outcome;
use super::faults::{Fault, away};
use super::load::{ACCOUNTS, GROUP_COUNTERS, GROUP_PUTS, GROUPS};
use kasha_runtime::say;

/// Upper bounds of the bars, in microseconds.
const BOUNDS_US: [u64; 9] = [250, 500, 1_000, 2_000, 5_000, 20_000, 100_000, 500_000, 2_000_000];
const BAR: u64 = 40;

pub(super) fn show(outcome: &Outcome) {
    let Outcome { tally, verdict, .. } = outcome;
    let executed = tally.fast.len() + tally.slow.len();
    say!("");
    line("updates sent", tally.updates);
    line("  executed, with their result", executed);
    line("  certainly not executed", tally.not_executed);
    line("  outcome never learned", tally.unresolved);
    line("sent again after silence or refusal", tally.retries);
    line("duplicates recognized by the servers", format!("at least {}", outcome.duplicates_suppressed));
    say!("");
    let counters = verdict.equal + verdict.too_small + verdict.too_great;
    say!("  {counters} counters, compared with what their clients were told:");
    line("  exactly right", verdict.equal);
    line("  too small (updates lost)", verdict.too_small);
    line("  too great (updates doubled)", verdict.too_great);
    line("  sum of all counters", verdict.held);
    line("  sum of acknowledged increments", verdict.told);
    line("increments answered with the same number", verdict.repeated_numbers);
    line(&format!("groups of {GROUP_PUTS} keys put together, torn"), format!("{} of {GROUPS}", verdict.torn_groups));
    say!("");
    line("transfers of money, each with its result", tally.transfers);
    line("  between accounts of different shards", tally.transfers_over_shards);
    line("accounts that hold what was moved", format!("{} of {ACCOUNTS}", verdict.accounts_right));
    line("money in all accounts (0 in the beginning)", verdict.money);
    line("looks at all accounts at one moment", tally.looks);
    line("  that found another sum than 0", tally.wrong_sums);
    line("  without an answer", tally.looks_failed);
    for absurd in tally.absurd.iter().take(5) {
        say!("  impossible answer: {absurd}");
    }
    assert_eq!(counters, u64::from(GROUPS * GROUP_COUNTERS), "every counter is judged");
    recovery(outcome);
    say!("\n  Latency with one round trip, held by the witnesses: {}", share(tally.fast.len(), executed));
    bars(&tally.fast);
    say!("\n  Latency with a wait for the backups: {}", share(tally.slow.len(), executed));
    bars(&tally.slow);
    say!("");
}

pub(super) fn line(what: &str, count: impl std::fmt::Display) {
    say!("  {what:<44} {count:>12}");
}

fn share(part: u64, of: u64) -> String {
    let percent = if of == 0 { 0.0 } else { part as f64 * 100.0 / of as f64 };
    format!("{part} updates ({percent:.1} %)")
}

fn recovery(outcome: &Outcome) {
    if outcome.injuries.is_empty() {
        return;
    }
    say!("\n  Longest silence of a shard whose primary was hit (its lease is {:?}):", outcome.lease);
    for (index, injury) in outcome.injuries.iter().enumerate() {
        let until = outcome.injuries.get(index + 1).map_or(Tick(u64::MAX), |next| next.at);
        let what = match injury.fault {
            Fault::Kill => "killed",
            Fault::KillAndRestart => "killed and restarted",
            Fault::Freeze => "frozen",
        };
        for shard in &injury.shards {
            let answers = outcome.tally.answers.get(shard).map_or(&[][..], Vec::as_slice);
            let silence = away(answers, injury.at, until);
            let silence = silence.map_or_else(|| "no answer".into(), |away| format!("{} ms", away.as_millis()));
            line(&format!("  {shard}, {} {what}", injury.node), silence);
        }
    }
}

fn bars(latency: &Histogram<u64>) {
    if latency.is_empty() {
        return;
    }
    let mut low = 0;
    let mut bars: Vec<(String, u64)> = Vec::new();
    for bound in BOUNDS_US {
        bars.push((format!("up to {}", time(bound)), latency.count_between(low, bound * 1000 - 1)));
        low = bound * 1000;
    }
    bars.push(("longer".into(), latency.count_between(low, latency.high())));
    let greatest = bars.iter().map(|(_, count)| *count).max().unwrap_or(0).max(1);
    for (label, count) in bars {
        // Every count above zero is visible.
        let length = (count * BAR).div_ceil(greatest) as usize;
        say!("  {label:>14} {count:>9}  {}", "█".repeat(length));
    }
    let median = latency.value_at_percentile(50.0) / 1000;
    say!("  {:>14} {:>9}", "median", time(median));
}

fn time(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..1_000_000 => format!("{} ms", micros / 1_000),
        _ => format!("{} s", micros / 1_000_000),
    }
}
