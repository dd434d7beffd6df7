//! The targets: which figure must have which bound, and whether it was met.

use serde::{Deserialize, Serialize};

use crate::figure::{Figure, Spread};
use crate::section::{Cell, Section, Table, range};

/// The kind of bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The figure must not be greater.
    AtMost,
    /// The figure must not be smaller.
    AtLeast,
}

/// A bound on one figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Target {
    /// The figure's name among the ratios.
    pub figure: &'static str,
    /// The kind of bound.
    pub bound: Bound,
    /// The bound itself.
    pub value: f64,
    /// What the target means, as text.
    pub about: &'static str,
}

const fn at_most(figure: &'static str, value: f64, about: &'static str) -> Target {
    Target { figure, bound: Bound::AtMost, value, about }
}

const fn at_least(figure: &'static str, value: f64, about: &'static str) -> Target {
    Target { figure, bound: Bound::AtLeast, value, about }
}

impl Target {
    /// Whether the benchmark of this name measures the figure: the names of its figures begin with its name.
    fn is_of(&self, benchmark: &str) -> bool {
        self.figure.split('.').next() == Some(benchmark.replace('-', "_").as_str())
    }
}

/// All targets, in the order of the benchmarks.
pub const TARGETS: &[Target] = &[
    at_most("latency.f1.kasha/unreplicated.p50", 1.10, "an update survives 1 crash for 10 % of its latency"),
    at_most("latency.f2.kasha/unreplicated.p50", 1.10, "an update survives 2 crashes for 10 % of its latency"),
    at_most("latency.f3.kasha/unreplicated.p50", 1.10, "an update survives 3 crashes for 10 % of its latency"),
    at_most("latency.f1.kasha/sync.p50", 0.55, "one round trip instead of two, f = 1"),
    at_most("latency.f2.kasha/sync.p50", 0.55, "one round trip instead of two, f = 2"),
    at_most("latency.f3.kasha/sync.p50", 0.55, "one round trip instead of two, f = 3"),
    at_least("throughput.f3.unreplicated/kasha.cpu", 0.82, "updates of a primary that has a processor to itself"),
    at_least("throughput.f3.kasha.fast_path", 0.98, "uniform keys take the fast path"),
    at_most("exactly_once.unreplicated.on/off.p50", 1.05, "completion records: latency"),
    at_most("exactly_once.unreplicated.on/off.cpu", 1.05, "completion records: the primary's processor"),
    at_most("clients.many/one.p50", 1.04, "a million client states: latency"),
    at_most("clients.bytes_each", 116.0, "a million client states: bytes each"),
    at_most("floor.update/empty.p50", 1.25, "an unreplicated update against an empty request"),
    at_least("hot_key.increments/uniform.throughput", 0.70, "64 clients increment one key"),
    at_most("allocations.per_update", 0.0, "heap allocations of an update on the primary's thread"),
    at_most("transactions.single1/update.p50", 1.10, "a transaction with a check and a read, on one shard"),
    at_most("transactions.reads2/in_turn.p50", 1.10, "a read of keys of two shards, by two reads in turn"),
    at_most("transactions.independent2/update.p50", 2.7, "an update of two shards, by an update"),
    at_most("transactions.independent2/synced.p50", 1.35, "an update of two shards, by one that waits for its sync"),
    at_most(
        "transactions.independent2/two_phase2.p50",
        0.75,
        "an update of two shards, by Sinfonia's two-phase commit",
    ),
    at_most("transactions.as_sent2/update.p50", 1.2, "an update of two shards as clients send it, by an update"),
    at_most("transactions.as_sent2/two_phase2.p50", 0.75, "the same, by Sinfonia's two-phase commit"),
    at_least("transactions.as_sent2.fast", 0.95, "how many of them take one round trip"),
    at_least("transactions.as_sent2/update.operations", 0.5, "the same, which counts twice, by updates of one shard"),
    at_most("transactions.coordinated2/independent2.p50", 1.05, "the same with checks, which participants vote on"),
    at_most("transactions.coordinated2/synced.p50", 1.15, "interactive commits, by updates that wait for their sync"),
    at_most("transactions.coordinated2/update.p50", 1.2, "interactive commits, by updates in one round trip"),
    at_least("transactions.coordinated2.fast", 0.95, "how many interactive commits take one round trip"),
    at_least(
        "transactions.independent2/update.operations",
        0.5,
        "updates of two shards, which count twice, by updates of one",
    ),
    at_most("transactions.update_beside_independent20/update.p50", 1.05, "updates beside 20 % of two shards, by none"),
    at_least("transactions.update_beside_independent20/update.fast", 0.98, "the same, how many take the fast path"),
    at_most("transactions.update_beside_coordinated20/update.p50", 1.05, "updates beside 20 % with locks, by none"),
    at_least("transactions.update_beside_coordinated20/update.fast", 0.98, "the same, how many take the fast path"),
    at_least("transactions.c256.independent2/update.operations", 0.5, "the same by 256 callers"),
    at_most(
        "transactions.fail_over.between_answers/lease",
        2.0,
        "10,000 transactions that wait for the successor of a dead primary: last answer to first",
    ),
    at_least("transactions.independent2_same/independent2.throughput", 0.9, "all on the same keys, by none in common"),
    at_least(
        "transactions.independent2_beside_coordinated1/independent2.throughput",
        0.9,
        "beside 1 % with locks on other keys, by none",
    ),
    at_least(
        "transactions.independent2_same/coordinated2_same.throughput",
        10.0,
        "all on the same keys: no locks, by locks",
    ),
    at_least("witness.memory.records_per_second", 1_270_000.0, "records of one thread"),
    at_least("witness.file.records_per_second", 3_000_000.0, "records of one thread, in a witness's file"),
    at_most("recovery.largest.leases", 2.0, "fail-over of the largest shard, in leases"),
    at_most("recovery.redis.proxy.median_s", 1.2, "a node is killed: the pause of clients of Redis at a proxy"),
    at_most("recovery.redis.node.median_s", 1.2, "the same at the port of another node"),
    at_most("outage.neighbour.during/before.p50", 1.10, "an update to a healthy shard while another is away"),
    at_most("outage.paused_keys.shared/own", 1.0, "one session for all shards pauses no more keys than one for each"),
    at_most(
        "coordinator.quiet_disk.session.longest_s",
        0.4,
        "the leader of the group is killed: a new session, on a quiet disk",
    ),
    at_most(
        "coordinator.loaded_disk.session.longest_s",
        1.2,
        "the same beside a thread that writes and syncs without a pause",
    ),
    at_least(
        "coordinator.updates.during/before.throughput",
        0.97,
        "updates of connected clients during the election, by those before",
    ),
    at_most("coordinator.updates.during/before.p99", 1.1, "how long they take, by before"),
    at_most("coordinator.lifetime_over_election.off_by_ms", 100.0, "a lifetime that spans an election"),
    at_most(
        "coordinator.restarts.lifetime_shorter_by_ms",
        100.0,
        "a lifetime that spans five restarts of all members, in all",
    ),
    at_most("coordinator.node_killed.longest_s", 1.6, "any one node is killed, the leader's too: a lease and 1.1 s"),
    at_most("coordinator.node_silent.longest_s", 2.0, "any one node falls silent, the leader's too"),
    at_most("coordinator.steady.elections", 0.0, "minutes of full load (--minutes): nobody is elected"),
    at_most("coordinator.steady.false_alarms", 0.0, "the same: no node is called lost"),
    at_most(
        "outsiders.witness_gone.with_call/without.p90",
        1.2,
        "an update whose witness is dead, in a session with a call to a shard that is away, by one without",
    ),
    at_most("outsiders.resends.loaded", 0.03, "requests that come twice on a machine loaded twice over"),
    at_least("cleaning.live70_uniform/ample.throughput", 0.75, "70 % of the memory lives, uniform keys"),
    at_least("cleaning.live80_uniform/ample.throughput", 0.60, "80 % of the memory lives, uniform keys"),
    at_least("cleaning.live80_zipf/ample.throughput", 0.60, "80 % of the memory lives, keys by Zipf's law"),
    at_least("cleaning.few/ample.throughput", 0.97, "few keys, written again and again"),
    at_most("cleaning.few.refused", 0.0, "few keys never find no memory"),
    at_most(
        "cleaning.live70_uniform/ample.bytes",
        2.99,
        "1.15 times what a model of such a cleaner logs, which is 2.6",
    ),
    at_most("cleaning.live80_uniform/ample.bytes", 4.83, "1.15 times what that model logs, which is 4.2"),
    at_most("cleaning.live80_zipf/ample.bytes", 5.75, "1.15 times what that model logs, which is 5.0"),
    at_most("cleaning.live80_paced/ample.p99", 1.5, "80 % of the memory lives, at 60 % of what that shard can take"),
    at_most("cleaning.longest_cleaning_turn_us", 250.0, "nobody waits longer because the log is cleaned"),
    at_most("stalls.ending.longest_us", 250.0, "nobody waits longer because values end"),
    at_most("stalls.ending.during/before.p99", 1.5, "an update while all values end at once, by one before"),
    at_most("stalls.freeing.longest_us", 250.0, "nobody waits longer because something is freed or forgotten"),
    at_most("scan.bounded/increment.p50", 1.02, "an increment with a bound, by one without"),
    at_most("scan.listed/alone.p99", 1.25, "an update of a full load while a client lists all keys"),
    at_most("outsiders.crowd.together/50.seconds", 2.0, "2,000 clients connect and put together, by 50 at a time"),
    at_most("outsiders.crowd.failed", 0.0, "none of them fails"),
    at_most("outsiders.crowd.connections_each", 1.0, "one connection for a client and an address"),
    at_most("rivals.500us.kasha-fsync/etcd.p50", 0.5, "on two disks of three: one round trip, and no leader's log"),
    at_most("rivals.500us.kasha-f1/redis-wait1.p50", 0.55, "on two machines of three: one round trip instead of two"),
    at_least("rivals.500us.c64.kasha-f2/redis-wait2.throughput", 1.0, "64 clients, on three machines"),
    at_least("outsiders.lifetime_after_restarts.seconds", 2.9, "a lifetime of 3 s, after restarts of the coordinator"),
    at_most("outsiders.lifetime_after_restarts.seconds", 3.1, "a lifetime of 3 s, after restarts of the coordinator"),
    at_most(
        "outsiders.wide.puts.longest_ms",
        1000.0,
        "20 keys against 16 writers of them: the longest of 50 transactions",
    ),
    at_most("outsiders.wide.increments.longest_ms", 1000.0, "the same, if the writers take locks"),
    at_most("outsiders.wide.given_up.longest_ms", 1000.0, "the same, if they give up"),
    at_least("outsiders.in_transaction.24_clients/1.throughput", 0.5, "24 programs on two numbers: throughput"),
    at_most("outsiders.in_transaction.longest/median", 10.0, "24 programs on two numbers: nobody waits for long"),
    at_most("redis.f0.set.kasha/everysec.p50", 1.10, "SET of one client at one node, by Redis with AOF everysec"),
    at_least("redis.f0.c50.set.kasha/everysec.throughput", 1.0, "SET, 50 clients, by Redis"),
    at_least("redis.f0.c50.get.kasha/everysec.throughput", 1.0, "GET, 50 clients, by Redis"),
    at_least("redis.f0.c50.incr.kasha/everysec.throughput", 1.0, "INCR, 50 clients, by Redis"),
    at_least("redis.f0.c50d16.set.kasha/everysec.throughput", 1.0, "SET, 50 clients, 16 commands at once, by Redis"),
    at_least("redis.f0.c50d16.get.kasha/everysec.throughput", 1.0, "GET, 50 clients, 16 commands at once, by Redis"),
    at_least("redis.f0.c50d16.incr.kasha/everysec.throughput", 1.0, "INCR, 50 clients, 16 commands at once, by Redis"),
    at_most("redis.f0.multi4/set.p50", 1.3, "MULTI of four SETs on one shard, by a SET"),
    at_most("redis.f1.node/wait1.p50", 1.0, "SET on two machines by a node's port: two round trips, as with WAIT 1"),
    at_most("redis.f1.proxy/wait1.p50", 0.55, "SET on two machines by the proxy: one round trip instead of two"),
    at_most("redis.f1.proxy/not_durable.p50", 1.10, "SET on two machines by the proxy, by a Redis that keeps nothing"),
    at_most("redis.f1.multi4/set.p50", 1.3, "MULTI of four SETs on one shard and two machines, by a SET"),
    at_least("redis.f1.c50.node/wait1.throughput", 1.0, "SET on two machines by the node, 50 clients"),
    at_least("redis.f1.c50.proxy/wait1.throughput", 1.0, "SET on two machines by the proxy, 50 clients"),
    at_least(
        "redis.f1.c50d16.node/wait1.throughput",
        1.0,
        "SET on two machines by the node, 50 clients, 16 commands at once",
    ),
    at_least(
        "redis.f1.c50d16.proxy/wait1.throughput",
        1.0,
        "SET on two machines by the proxy, 50 clients, 16 commands at once",
    ),
];

/// Whether a target is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It is, wherever in its range the figure lies.
    Met,
    /// It is not, wherever in its range the figure lies.
    Missed,
    /// The range has the bound within, or the figure decides nothing.
    Undecided,
    /// Its figure was not measured.
    NotMeasured,
}

impl Verdict {
    /// The verdict in tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "MISSED",
            Self::Undecided => "undecided",
            Self::NotMeasured => "not measured",
        }
    }
}

/// A target, and the figure that was found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Judged {
    /// The target that was judged.
    #[serde(flatten)]
    pub target: Target,
    /// The figure that was found; `None` if it was not measured.
    pub found: Option<f64>,
    /// Where the figure may lie; `None` if it has no range: it was counted, found once, or taken of all rounds together.
    pub spread: Option<Spread>,
    /// Whether the figure meets the target.
    pub verdict: Verdict,
}

impl Judged {
    fn new(target: Target, found: Option<f64>, spread: Option<Spread>) -> Self {
        let verdict = verdict((target.bound, target.value), found, spread);
        Self { target, found, spread, verdict }
    }
}

/// Whether a figure in this range meets its bound.
pub(crate) fn verdict((bound, value): (Bound, f64), found: Option<f64>, spread: Option<Spread>) -> Verdict {
    let meets = |figure: f64| match bound {
        Bound::AtMost => figure <= value,
        Bound::AtLeast => figure >= value,
    };
    match (found, spread) {
        (None, _) => Verdict::NotMeasured,
        (Some(_), Some(Spread::Anywhere)) => Verdict::Undecided,
        (Some(_), Some(Spread::Within([from, to]))) if meets(from) != meets(to) => Verdict::Undecided,
        (Some(found), _) if meets(found) => Verdict::Met,
        (Some(_), _) => Verdict::Missed,
    }
}

/// Whether a figure decides its targets: true, too, if it has none.
pub(crate) fn is_decided(name: &str, figure: Figure) -> bool {
    let mut targets = TARGETS.iter().filter(|target| target.figure == name);
    targets.all(|&target| Judged::new(target, Some(figure.value), figure.spread).verdict != Verdict::Undecided)
}

/// Every target of the benchmarks that found this, whether its figure was measured or not.
#[must_use]
pub fn judge(sections: &[Section]) -> Vec<Judged> {
    let judged = TARGETS.iter().filter_map(|&target| {
        let section = sections.iter().find(|section| target.is_of(section.name))?;
        let (found, spread) = (section.ratios.get(target.figure), section.spreads.get(target.figure));
        Some(Judged::new(target, found.copied(), spread.copied()))
    });
    judged.collect()
}

/// What a benchmark's targets came to, as text; before that, why they were not judged, if they were not.
pub(crate) fn verdicts(section: &Section) -> String {
    let obstacle = section.obstacle.iter().fold(String::new(), |text, obstacle| text + obstacle + "\n\n");
    format!("{obstacle}{}", table(&judge(std::slice::from_ref(section))))
}

/// The columns of a table of judged targets.
pub(crate) const COLUMNS: &[&str] = &["figure", "target", "found", "range", "verdict", "what it means"];

/// A row of such a table.
pub(crate) fn row(
    figure: &str,
    (bound, value): (Bound, f64),
    found: Option<f64>,
    spread: Option<Spread>,
    verdict: Verdict,
    about: &str,
) -> [Cell; 6] {
    let sign = match bound {
        Bound::AtMost => "≤",
        Bound::AtLeast => "≥",
    };
    let found = found.map_or_else(|| "-".to_owned(), |found| found.to_string());
    let texts = [
        figure.to_owned(),
        format!("{sign} {value}"),
        found,
        range(spread),
        verdict.name().to_owned(),
        about.to_owned(),
    ];
    texts.map(Cell::from)
}

/// The judged targets as a table for people.
pub(crate) fn table(judged: &[Judged]) -> Table {
    let mut table = Table::new("Targets", COLUMNS);
    for Judged { target: Target { figure, bound, value, about }, found, spread, verdict } in judged {
        table.row(row(figure, (*bound, *value), *found, *spread, *verdict, about));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::benchmarks::BENCHMARKS;

    #[test]
    fn a_figure_is_judged_by_its_bound() {
        let mut sections = ["clients", "floor"].map(|name| Section::new(name, ""));
        sections[0].ratio("clients.bytes_each", 116.0);
        sections[1].ratio("floor.update/empty.p50", 1.26);
        sections[1].ratio("something.else", 0.0);
        let judged = judge(&sections);
        let verdicts: Vec<_> = judged.iter().map(|judged| (judged.target.figure, judged.verdict)).collect();
        let expected = [
            ("clients.many/one.p50", Verdict::NotMeasured),
            ("clients.bytes_each", Verdict::Met),
            ("floor.update/empty.p50", Verdict::Missed),
        ];
        assert_eq!(verdicts, expected);
        let shown = table(&judged).to_string();
        assert!(shown.contains("not measured") && shown.contains("MISSED"), "{shown}");
    }

    #[test]
    fn a_range_with_the_bound_within_decides_nothing() {
        let target = at_most("floor.update/empty.p50", 1.25, "");
        let verdict = |found: f64, spread| Judged::new(target, Some(found), Some(spread)).verdict;
        assert_eq!(verdict(1.2, Spread::Within([1.1, 1.25])), Verdict::Met);
        assert_eq!(verdict(1.2, Spread::Within([1.1, 1.26])), Verdict::Undecided);
        assert_eq!(verdict(1.3, Spread::Within([1.2, 1.4])), Verdict::Undecided);
        assert_eq!(verdict(1.3, Spread::Within([1.26, 1.4])), Verdict::Missed);
        assert_eq!(verdict(1.3, Spread::Anywhere), Verdict::Undecided);
        let shown = table(&[Judged::new(target, Some(1.2), Some(Spread::Within([1.1, 1.3])))]).to_string();
        assert!(shown.contains("1.2    1.1–1.3") && shown.contains("undecided"), "{shown}");
        let is_decided =
            |value| is_decided("floor.update/empty.p50", Figure { value, spread: Some(Spread::Within([1.0, value])) });
        assert!(is_decided(1.2) && !is_decided(1.3));
    }

    #[test]
    fn every_target_is_of_one_benchmark_and_is_shown_with_it_only() {
        for target in TARGETS {
            let owners = BENCHMARKS.iter().filter(|benchmark| target.is_of(benchmark.name));
            assert_eq!(owners.count(), 1, "{target:?}");
        }
        let all: Vec<Section> = BENCHMARKS.iter().map(|benchmark| Section::new(benchmark.name, "")).collect();
        assert_eq!(judge(&all).len(), TARGETS.len(), "what was not measured is not left out");
        let keys = judge(&[Section::new("hot-key", "")]);
        assert!(!keys.is_empty() && keys.iter().all(|judged| judged.target.figure.starts_with("hot_key.")));
        assert!(judge(&[Section::new("batch", "")]).is_empty(), "it has no targets");
    }
}
