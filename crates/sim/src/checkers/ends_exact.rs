//! **R10.12**: a value that is to end at a time of day ends then. `EXPIRETIME` tells what `EXPIREAT` and `PXAT` were told, whoever is asked and
//! whatever has happened since; the value is there until then; and who reads it sees it no longer than a lease after that.
//!
//! What time it is says the coordinator. It is this late where somebody has heard so from it, and counts on from there. So a value that is
//! gone earlier has ended too early. A node counts on for a lease from what it was told. So a value has ended too late that is seen when the
//! coordinator had told the node that answers, for longer than a lease, that its end was over. A node that is cut off from the coordinator, and
//! still answers by what its backups confirm, ends nothing meanwhile.
//!
//! These values are written once, and by nobody else (`redis/draw.rs`); only a flush may end them before their time.

use std::collections::{BTreeMap, BTreeSet};

use kasha_reference::redis::Reply;
use kasha_types::{ClusterTime, UnixMillis};
use kasha_wire::Kind;
use kasha_wire::message::ConfigurationIs;

use crate::checkers::time_goes_on::told_in;
use crate::clock::{SimTime, millis};
use crate::network::ProcessId;
use crate::redis::draw::is_ending;
use crate::redis::history::{Commands, Operation, Told, What};
use crate::world::{Sent, View, Watch};

/// Clocks of who counts on may be faster than the world's, and answers are cut to milliseconds.
const FASTER_PART: u64 = 22;
const STEP: u64 = millis(5);
/// From older answers nobody counts on, if there are newer ones.
const OLD_MILLIS: u64 = 1_500;
/// A lease by the slowest clock, and what frames wait besides.
const LEASE_PARTS: (u64, u64) = (11, 10);

/// Watches what the coordinator tells.
#[derive(Debug, Default)]
pub struct EndsExact {
    /// When ClusterTime was first told to be so late.
    told: Vec<(SimTime, ClusterTime)>,
    /// The same of each process.
    told_to: BTreeMap<ProcessId, Vec<(SimTime, ClusterTime)>>,
    /// When nodes sent answers.
    answers: Vec<(SimTime, ProcessId)>,
    origin: Option<UnixMillis>,
}

/// A value, as its writer knows it.
#[derive(Clone, Debug)]
struct Life {
    /// The unix time that was said.
    ends: u64,
    value: Vec<u8>,
    asked: SimTime,
    /// When the writer was told that it is there.
    begun: Option<SimTime>,
    /// When somebody was told that it is gone, who had asked after that.
    gone: Option<SimTime>,
}

/// What a reply says of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Seen {
    There,
    Gone,
    /// It is none of what may be said.
    Wrong,
}

impl EndsExact {
    fn on_told(&mut self, time: ClusterTime, now: SimTime) {
        if self.told.last().is_none_or(|&(_, last)| time > last) {
            self.told.push((now, time));
        }
    }

    fn cluster_time(&self, unix: u64) -> Option<ClusterTime> {
        Some(ClusterTime(unix.saturating_sub(self.origin?.0)))
    }

    /// The first moment at which anybody may take ClusterTime for this late.
    fn earliest(&self, time: ClusterTime) -> SimTime {
        let old = self.told.partition_point(|(_, told)| told.0 + OLD_MILLIS < time.0);
        let counted = |&(at, told): &(SimTime, ClusterTime)| {
            let left = millis(time.0.saturating_sub(told.0));
            SimTime((at.0 + left - left / FASTER_PART).saturating_sub(STEP))
        };
        self.told[old.saturating_sub(1)..].iter().map(counted).min().unwrap_or_default()
    }

    /// The first moment from which on none of these nodes may answer that does not know that it is this late. None: somebody.
    fn latest(&self, time: ClusterTime, lease: u64, nodes: &BTreeSet<ProcessId>) -> Option<SimTime> {
        let first = |told: &[(SimTime, ClusterTime)]| {
            let (at, _) = told.get(told.partition_point(|&(_, told)| told < time))?;
            Some(at.after(lease / LEASE_PARTS.1 * LEASE_PARTS.0))
        };
        let all = nodes.iter().map(|node| first(self.told_to.get(node)?)).collect::<Option<Vec<_>>>()?;
        all.into_iter().max().or_else(|| first(&self.told))
    }

    /// The nodes that sent answers in between.
    fn answering(&self, asked: SimTime, told_at: SimTime) -> BTreeSet<ProcessId> {
        let begin = self.answers.partition_point(|&(at, _)| at < asked);
        self.answers[begin..].iter().take_while(|&&(at, _)| at <= told_at).map(|&(_, node)| node).collect()
    }

    /// Checks what programs were told of such values: how many replies, and what is wrong with them.
    #[must_use]
    pub fn check(&self, history: &Commands, lease: u64) -> (u64, Vec<String>) {
        let (mut lives, mut violations, mut checked) = (BTreeMap::new(), Vec::new(), 0);
        let operations = history.operations();
        lives.extend(operations.iter().filter_map(life));
        let flushes = operations.iter().filter(|flush| flush.flushes() && flush.told != Told::NotExecuted);
        let flushes: Vec<_> = flushes.map(|flush| (flush.asked, flush.told_at)).collect();
        let mut reads: Vec<_> = operations.iter().filter_map(|operation| Some((operation, read(operation)?))).collect();
        reads.sort_by_key(|(operation, _)| operation.told_at);
        for (operation, (key, name, reply)) in reads {
            let Some(life) = lives.get_mut(key) else { continue };
            let Some(time) = self.cluster_time(life.ends) else { continue };
            let (asked, told_at) = (operation.asked, operation.told_at.expect("a result"));
            let is_begun = life.begun.is_some_and(|begun| begun <= asked);
            checked += 1;
            let why = match seen(life, name, reply) {
                Seen::Wrong => "is not what was said",
                Seen::There if life.gone.is_some_and(|gone| gone <= asked) => "is there again",
                Seen::There
                    if let nodes = self.answering(asked, told_at)
                        && self.latest(time, lease, &nodes).is_some_and(|latest| latest <= asked) =>
                {
                    "is there too late"
                }
                Seen::Gone if is_begun && told_at < self.earliest(time) && !is_flushed(&flushes, life, told_at) => {
                    "is gone too early"
                }
                Seen::Gone if is_begun => {
                    life.gone.get_or_insert(told_at);
                    continue;
                }
                Seen::There | Seen::Gone => continue,
            };
            violations.push(format!(
                "ends_exact: {} was asked for at {asked}, {} was answered {reply:?} at {told_at}, and {why} (R10.12): {life:?}",
                key.escape_ascii(),
                name.escape_ascii(),
            ));
        }
        (checked, violations)
    }
}

/// Whether one of these flushes may have ended the value before that. Each with when it was asked for, and told.
fn is_flushed(flushes: &[(SimTime, Option<SimTime>)], life: &Life, before: SimTime) -> bool {
    flushes.iter().any(|(asked, told_at)| *asked <= before && told_at.is_none_or(|told_at| told_at >= life.asked))
}

/// What an operation writes: a key, and what becomes of it.
fn life(operation: &Operation) -> Option<(&[u8], Life)> {
    let number = |word: &[u8]| std::str::from_utf8(word).ok()?.parse().ok();
    let (key, value, ends) = match &operation.what {
        What::Command(words) => match &words[..] {
            [name, key, value, option, ends] if name == b"SET" && option == b"PXAT" => (key, value, ends),
            _ => return None,
        },
        What::Exec { commands, .. } => match &commands[..] {
            [set, end] if end[0] == b"PEXPIREAT" => (&set[1], &set[2], &end[2]),
            _ => return None,
        },
        What::Watch(_) => return None,
    };
    let begun = operation.told_at.filter(|_| matches!(operation.told, Told::Result(_)));
    Some((key, Life { ends: number(ends)?, value: value.clone(), asked: operation.asked, begun, gone: None }))
}

/// What an operation was told of a value that ends: its key, the command, the reply.
fn read(operation: &Operation) -> Option<(&[u8], &[u8], &Reply)> {
    let (What::Command(words), Told::Result(reply)) = (&operation.what, &operation.told) else { return None };
    match &words[..] {
        [name, key] if is_ending(key) => Some((key, name, reply)),
        _ => None,
    }
}

fn seen(life: &Life, name: &[u8], reply: &Reply) -> Seen {
    let ends = i64::try_from(life.ends).expect("a time of day");
    match (name, reply) {
        (b"GET", Reply::Bytes(value)) if *value == life.value => Seen::There,
        (b"PEXPIRETIME", Reply::Number(told)) if *told == ends => Seen::There,
        (b"EXISTS", Reply::Number(1)) => Seen::There,
        (b"GET", Reply::Nil) | (b"EXISTS", Reply::Number(0)) | (b"PEXPIRETIME", Reply::Number(-2)) => Seen::Gone,
        _ => Seen::Wrong,
    }
}

impl Watch for EndsExact {
    fn sent(&mut self, sent: &Sent<'_>, view: &View<'_>) {
        if let Some(ConfigurationIs { unix_origin, .. }) = sent.message() {
            self.origin = self.origin.or(unix_origin.get().copied().flatten());
        }
        if view.processes[sent.from.0].name.starts_with("coordinator")
            && let Some(time) = told_in(sent)
        {
            self.on_told(time, view.now);
            let told = sent.target.map(|target| self.told_to.entry(target).or_default());
            if let Some(told) = told
                && told.last().is_none_or(|&(_, last)| time > last)
            {
                told.push((view.now, time));
            }
        }
        if [Kind::Answer as u8, Kind::ReadAnswer as u8].contains(&sent.kind) {
            self.answers.push((view.now, sent.from));
        }
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::draw::words;

    const LEASE: u64 = millis(400);

    fn at(time: u64) -> SimTime {
        SimTime(millis(time))
    }

    /// The coordinator tells the time every 50 ms, from 1,000 at the beginning on; ClusterTime 0 is the unix time 5,000.
    fn times() -> EndsExact {
        let mut times = EndsExact { origin: Some(UnixMillis(5_000)), ..EndsExact::default() };
        (0..100).for_each(|step| times.on_told(ClusterTime(1_000 + 50 * step), at(50 * step)));
        times
    }

    /// A value is to end at 2,500 of this world, and these are asked then: what is wrong with the replies?
    fn found(asked: &[(&str, u64, Reply)]) -> usize {
        let mut history = Commands::default();
        let number = history.ask(1, What::Command(words("SET 0.e1 v PXAT 8500")), at(10));
        history.tell(number, Told::Result(Reply::Word("OK".to_owned())), at(20), None);
        for (line, time, reply) in asked {
            let number = history.ask(2, What::Command(words(line)), at(*time));
            history.tell(number, Told::Result(reply.clone()), at(time + 5), None);
        }
        let (checked, violations) = times().check(&history, LEASE);
        assert_eq!(checked, asked.len() as u64);
        violations.len()
    }

    #[test]
    fn r10_12_what_is_told_is_what_was_said() {
        let told = |number| found(&[("PEXPIRETIME 0.e1", 100, Reply::Number(number))]);
        assert_eq!((told(8_500), told(8_499), told(8_000), told(-1)), (0, 1, 1, 1));
        assert_eq!(found(&[("GET 0.e1", 100, Reply::Bytes(b"w".to_vec()))]), 1);
    }

    #[test]
    fn r10_12_a_value_is_there_until_its_end_and_not_long_behind_it() {
        let there = |time| ("EXISTS 0.e1", time, Reply::Number(1));
        let gone = |time| ("PEXPIRETIME 0.e1", time, Reply::Number(-2));
        assert_eq!((found(&[there(2_400)]), found(&[gone(2_400)])), (0, 1));
        assert_eq!((found(&[there(2_600)]), found(&[gone(2_500)])), (0, 0));
        assert_eq!((found(&[there(3_000)]), found(&[gone(3_000)])), (1, 0));
        assert_eq!(found(&[gone(2_500), there(2_600)]), 1, "it is there again");
        assert_eq!(found(&[gone(1)]), 0, "it was not there yet");
    }

    #[test]
    fn r10_12_time_is_counted_on_from_what_was_told() {
        let mut times = times();
        assert!((at(2_420)..=at(2_500)).contains(&times.earliest(ClusterTime(3_500))), "from what was told lately");
        times.told.truncate(1);
        assert!((at(2_380)..=at(2_500)).contains(&times.earliest(ClusterTime(3_500))), "by a fast clock");
        assert_eq!(times.latest(ClusterTime(3_500), LEASE, &BTreeSet::new()), None, "nobody was told");
        assert_eq!(times.latest(ClusterTime(900), LEASE, &BTreeSet::new()), Some(at(440)));
    }

    /// Found by `redis` 2107: without replication a primary that no coordinator reaches goes on.
    #[test]
    fn r10_12_a_node_ends_nothing_that_it_was_not_told_of() {
        let mut times = times();
        let (cut, well) = (ProcessId(1), ProcessId(2));
        times.told_to.insert(well, times.told.clone());
        times.told_to.insert(cut, times.told[..2].to_vec());
        times.answers = vec![(at(100), cut), (at(200), well)];
        let latest = |from, to| times.latest(ClusterTime(1_500), LEASE, &times.answering(at(from), at(to)));
        assert_eq!((latest(90, 100), latest(150, 200), latest(90, 200)), (None, Some(at(940)), None));
    }
}
