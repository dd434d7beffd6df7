//! A status for people: a first screen, and with `--verbose` all that primaries and event loops count.

use std::fmt::Write;

use kasha_types::PortUse;
use kasha_wire::status::{CleanerState, CoreStatus, LongTurn, PendingTransaction, ReplicaStatus};
use kasha_wire::{Durability, MemberState, ShardConfig};

use super::health::Cluster;
use super::table::{Table, wrapped};

/// From this width on, members and witnesses are on the first screen.
const WIDE: usize = 72;

/// Nodes, shards, and one line that says whether all is well.
pub fn first(cluster: &Cluster, width: usize) -> String {
    let configuration = &cluster.configuration;
    let mut nodes = Table::new(["NODE", "STATE", "ADDRESS"]);
    for info in &configuration.nodes {
        let addresses: Vec<_> = info.cores.iter().map(ToString::to_string).collect();
        let state = if info.alive { "alive" } else { "lost" };
        nodes.row([info.node.to_string(), state.to_owned(), addresses.join(" ")]);
    }
    let mut out = nodes.render(width);
    if !configuration.shards.is_empty() {
        out.push('\n');
        out.push_str(&shards(cluster, width));
    }
    let ports = ports(cluster);
    if !ports.is_empty() {
        out.push('\n');
        out.push_str(&ports.render(width));
    }
    out.push('\n');
    for line in wrapped(&cluster.summary(), width) {
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// What the Redis ports do and have done, if there are any.
fn ports(cluster: &Cluster) -> Table {
    let mut table = Table::new(["REDIS", ">CONNECTIONS", ">REFUSED", ">COMMANDS", ">BYTES IN", ">BYTES OUT"]);
    let ports = cluster.ports();
    let names = ports.iter().map(|(node, port)| (node.to_string(), *port));
    for (name, port) in names.chain(cluster.redis().filter(|_| ports.len() > 1).map(|all| ("all".to_owned(), all))) {
        let PortUse { connections, accepted: _, refused, commands, bytes_in, bytes_out } = port;
        let [connections, refused, commands] = [connections, refused, commands].map(|number| number.to_string());
        table.row([name, connections, refused, commands, bytes_words(bytes_in), bytes_words(bytes_out)]);
    }
    table
}

/// A number of bytes for people, in at most four digits.
fn bytes_words(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    const ENOUGH: u64 = 10_000;
    let (mut number, mut unit) = (bytes, 0);
    while number >= ENOUGH && unit + 1 < UNITS.len() {
        (number, unit) = (number >> 10, unit + 1);
    }
    format!("{number} {}", UNITS[unit])
}

fn shards(cluster: &Cluster, width: usize) -> String {
    let shards = &cluster.configuration.shards;
    if width < WIDE {
        let mut table = Table::new(["SHARD", "PRIMARY", "STATE"]);
        for shard in shards {
            table.row([shard.shard.to_string(), shard.primary.to_string(), cluster.health(shard).told()]);
        }
        return table.render(width);
    }
    let mut table = Table::new(["SHARD", "PRIMARY", "MEMBERS", "WITNESSES", ">OBJECTS", "STATE"]);
    for shard in shards {
        let objects = cluster.primary(shard).map_or_else(|| "?".to_owned(), |primary| primary.objects.to_string());
        table.row([
            shard.shard.to_string(),
            shard.primary.to_string(),
            members(shard),
            witnesses(shard),
            objects,
            cluster.health(shard).told(),
        ]);
    }
    table.render(width)
}

fn members(shard: &ShardConfig) -> String {
    let name = |member: &kasha_wire::Member| match member.state {
        MemberState::Complete => member.node.0.to_string(),
        MemberState::Joining => format!("{}(joining)", member.node.0),
    };
    shard.members.iter().map(name).collect::<Vec<_>>().join(" ")
}

fn witnesses(shard: &ShardConfig) -> String {
    let names: Vec<_> = shard.witnesses.iter().map(|node| node.0.to_string()).collect();
    if names.is_empty() { "-".to_owned() } else { names.join(" ") }
}

/// What is behind the first screen.
pub fn rest(cluster: &Cluster, width: usize) -> String {
    let configuration = &cluster.configuration;
    let mut out = String::new();
    let durability = match configuration.durability {
        Durability::Replicated => "replicated",
        Durability::Fsync => "fsync",
    };
    let head = format!(
        "{}, f = {}, durability {durability}, configuration {}, coordinator {} {}",
        configuration.cluster,
        configuration.faults,
        configuration.version.0,
        configuration.coordinator,
        if cluster.coordinator { "reachable" } else { "NOT reachable" }
    );
    for line in [head].into_iter().chain(cluster.one_machine()).flat_map(|text| wrapped(&text, width)) {
        let _ = writeln!(out, "{line}");
    }
    for table in
        [group(cluster), terms(cluster), loads(cluster), cleaning(cluster), transactions(cluster), turns(cluster)]
    {
        if !table.is_empty() {
            out.push('\n');
            out.push_str(&table.render(width));
        }
    }
    out
}

/// The members of the coordinator's group, if it has several, and the node of each: a node that is lost is a member that is away.
fn group(cluster: &Cluster) -> Table {
    let mut table = Table::new(["COORDINATOR", "NODE", "ADDRESS", "STATE"]);
    let configuration = &cluster.configuration;
    for of in configuration.group.iter().filter(|_| configuration.group.len() > 1) {
        let is_lost = configuration.node(of.node).is_some_and(|info| !info.alive);
        let state = match (is_lost, cluster.silent_members.contains(&of.member)) {
            (true, true) => "its node is lost",
            (false, true) => "silent",
            (_, false) if of.address == configuration.coordinator => "leads",
            (_, false) => "follows",
        };
        table.row([of.member.to_string(), of.node.to_string(), of.address.to_string(), state.to_owned()]);
    }
    table
}

fn terms(cluster: &Cluster) -> Table {
    let mut table = Table::new(["SHARD", ">EPOCH", "PRIMARY", "MEMBERS", "WITNESSES", ">LIST", "DOING"]);
    for shard in &cluster.configuration.shards {
        let doing = cluster.named_primary(shard).map_or("(its primary does not answer)", |primary| &primary.state);
        table.row([
            shard.shard.to_string(),
            shard.epoch.0.to_string(),
            shard.primary.to_string(),
            members(shard),
            witnesses(shard),
            shard.list.0.to_string(),
            doing.to_owned(),
        ]);
    }
    table
}

/// The shards whose primaries have answered, and what these have said.
fn primaries(cluster: &Cluster) -> impl Iterator<Item = (&ShardConfig, &ReplicaStatus)> {
    cluster.configuration.shards.iter().filter_map(|shard| Some((shard, cluster.primary(shard)?)))
}

fn loads(cluster: &Cluster) -> Table {
    let mut table = Table::new([
        "SHARD",
        ">OBJECTS",
        ">MEMORY",
        ">UPDATES",
        ">FAST PATH",
        ">UNSYNCED",
        ">DUPLICATES",
        ">REPEATS",
        ">CLIENTS",
    ]);
    for (shard, status) in primaries(cluster) {
        table.row([
            shard.shard.to_string(),
            status.objects.to_string(),
            format!("{}/{} MiB", status.memory_bytes >> 20, status.memory_max_bytes >> 20),
            status.updates.to_string(),
            fast_path_rate(status).map_or_else(|| "-".to_owned(), |rate| format!("{:.1} %", rate * 100.0)),
            status.unsynced_operations.to_string(),
            status.duplicates_suppressed.to_string(),
            status.repeats_suppressed.to_string(),
            status.clients.to_string(),
        ]);
    }
    table
}

fn cleaning(cluster: &Cluster) -> Table {
    let mut table = Table::new([
        "SHARD",
        ">LIVE",
        ">OF AT MOST",
        ">IN USE",
        ">SEGMENTS",
        ">LEAVING",
        ">UNSYNCED",
        ">DENSE",
        ">CLEANED",
        ">COPIED",
        "CLEANER",
    ]);
    for (shard, status) in primaries(cluster) {
        let cleaning = &status.cleaning;
        table.row([
            shard.shard.to_string(),
            format!("{}M", cleaning.live_bytes >> 20),
            format!("{}M", cleaning.live_max_bytes >> 20),
            format!("{:.0} %", utilisation(status) * 100.0),
            cleaning.segments.to_string(),
            cleaning.leaving.to_string(),
            cleaning.unsynced.to_string(),
            cleaning.dense.to_string(),
            cleaning.cleaned_segments.to_string(),
            format!("{}M", cleaning.copied_bytes >> 20),
            cleaner_words(cleaning.cleaner).to_owned(),
        ]);
    }
    table
}

/// Transactions over several shards, if there are any: they may hold others up.
fn transactions(cluster: &Cluster) -> Table {
    let mut table = Table::new(["SHARD", ">PENDING TRANSACTIONS", ">KEPT", ">HELD ANSWERS", "OLDEST"]);
    let is_busy = |status: &ReplicaStatus| status.transactions.pending + status.transactions.held_answers > 0;
    for (shard, status) in primaries(cluster).filter(|(_, status)| is_busy(status)) {
        let transactions = &status.transactions;
        let mut oldest = transactions.oldest.iter().map(pending_words);
        table.row([
            shard.shard.to_string(),
            transactions.pending.to_string(),
            transactions.kept.to_string(),
            transactions.held_answers.to_string(),
            oldest.next().unwrap_or_else(|| "-".to_owned()),
        ]);
        for words in oldest {
            table.row([String::new(), String::new(), String::new(), String::new(), words]);
        }
    }
    table
}

fn turns(cluster: &Cluster) -> Table {
    let mut table = Table::new(["CORE", ">LONGEST TURN", "IN IT"]);
    for (status, turns) in cluster.cores.values().filter_map(|core| Some((&core.status, core.turns.as_ref()?))) {
        let turn = &turns.longest;
        table.row([core_name(status), format!("{} µs", turn.nanos / 1000), describe_turn(turn)]);
    }
    table
}

fn pending_words(pending: &PendingTransaction) -> String {
    let waits_for: Vec<_> = pending.waits_for.iter().map(ToString::to_string).collect();
    let what = if waits_for.is_empty() { "earlier ones, a sync or room".to_owned() } else { waits_for.join(", ") };
    let behind = match pending.waiting {
        0 => String::new(),
        waiting => format!("; {waiting} requests wait for it"),
    };
    format!("{} waits for {what}, {} ms{behind}", pending.rpc, pending.millis)
}

fn core_name(core: &CoreStatus) -> String {
    format!("{}/{}", core.core.node, core.core.core)
}

/// What a long turn did, for people.
fn describe_turn(turn: &LongTurn) -> String {
    let parts = [
        ("handling", turn.hearing_nanos),
        ("closing", turn.closing_nanos),
        ("files", turn.files_nanos),
        ("sending", turn.sending_nanos),
    ];
    let parts = parts.map(|(name, nanos)| format!("{name} {}", nanos / 1000)).join(", ");
    let work = turn.work.iter().map(|work| work.name()).collect::<Vec<_>>().join(", ");
    let did = if work.is_empty() { String::new() } else { format!("; {work}") };
    let blocked = if turn.blocked { "; waited for a lock or the disk" } else { "" };
    format!("{} frames; {parts}{did}{blocked}; {} s ago", turn.frames, turn.millis_ago / 1000)
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
pub fn fast_path_rate(status: &ReplicaStatus) -> Option<f64> {
    let answers = status.fast_answers + status.gated_answers;
    (answers > 0).then(|| status.fast_answers as f64 / answers as f64)
}

/// The part of the segments in memory that lives.
#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
pub fn utilisation(status: &ReplicaStatus) -> f64 {
    if status.memory_bytes == 0 { 0.0 } else { status.cleaning.live_bytes as f64 / status.memory_bytes as f64 }
}

pub fn cleaner_words(state: CleanerState) -> &'static str {
    match state {
        CleanerState::Follows => "follows",
        CleanerState::Rests => "rests",
        CleanerState::Cleans => "cleans",
        CleanerState::WaitsForSync => "waits for a sync",
        CleanerState::WaitsForFloor => "waits for a floor",
        CleanerState::FindsNothing => "finds nothing to clean",
        CleanerState::FindsNoRoom => "finds no room for copies",
    }
}
