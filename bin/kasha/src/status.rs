//! `kasha status`: what a cluster is doing. docs/running.md explains the columns and the states.

use std::time::Duration;

use anyhow::Result;
use clap::Args;
use kasha_bench::say;
use kasha_types::CoreId;
use kasha_wire::status::{CleanerState, CoreStatus, LongTurn, LoopTurns, Memory, PendingTransaction, ReplicaStatus};
use kasha_wire::{Configuration, Durability, MemberState, ShardConfig, ShardPhase};
use serde_json::{Value as Json, json};

use crate::cli::{Address, connect};

#[derive(Args)]
pub struct StatusArguments {
    #[command(flatten)]
    cluster: Address,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What a core says of itself.
type Core = (CoreStatus, Option<LoopTurns>);

/// How long a core may take to answer with its status.
const PATIENCE: Duration = Duration::from_millis(1500);

pub fn run(arguments: &StatusArguments) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = connect(&arguments.cluster, Duration::from_secs(10)).await?;
        let fresh = tokio::time::timeout(PATIENCE, client.fresh_configuration()).await;
        let (configuration, coordinator) = match fresh {
            Ok(Ok(configuration)) => (configuration, true),
            Ok(Err(_)) | Err(_) => match client.configuration().await? {
                Some(configuration) => (configuration, false),
                None => anyhow::bail!("nobody knows the cluster's configuration yet: try again when it is up (K0208)"),
            },
        };
        let mut cores = Vec::new();
        for info in &configuration.nodes {
            for index in 0..info.cores.len() {
                let core = CoreId { node: info.node, core: u8::try_from(index)? };
                let status = tokio::time::timeout(PATIENCE, client.status(core)).await;
                let turns = tokio::time::timeout(PATIENCE, client.turns(core)).await;
                if let Ok(Ok(status)) = status {
                    cores.push((status, turns.ok().and_then(Result::ok)));
                }
            }
        }
        if arguments.json {
            say!("{:#}", to_json(&configuration, coordinator, &cores));
        } else {
            print_human(&configuration, coordinator, &cores);
        }
        Ok(())
    })
}

fn primary_status<'s>(shard: &ShardConfig, cores: &'s [Core]) -> Option<&'s ReplicaStatus> {
    let (core, _) = cores.iter().find(|(core, _)| {
        core.core.node == shard.primary && core.replicas.iter().any(|replica| replica.shard == shard.shard)
    })?;
    core.replicas.iter().find(|replica| replica.shard == shard.shard)
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn fast_path_rate(status: &ReplicaStatus) -> Option<f64> {
    let answers = status.fast_answers + status.gated_answers;
    (answers > 0).then(|| status.fast_answers as f64 / answers as f64)
}

fn health(configuration: &Configuration, shard: &ShardConfig, primary: Option<&ReplicaStatus>) -> String {
    let state = state(configuration, shard, primary);
    match (primary.map(|primary| primary.memory), state) {
        (None | Some(Memory::Enough), state) => state.to_owned(),
        (Some(memory), "healthy") => memory_words(memory).to_owned(),
        (Some(memory), state) => format!("{state}, {}", memory_words(memory)),
    }
}

fn memory_words(memory: Memory) -> &'static str {
    match memory {
        Memory::Enough => "memory enough",
        Memory::Low => "memory low",
        Memory::Full => "memory full",
    }
}

/// The state of a shard, without its memory.
fn state(configuration: &Configuration, shard: &ShardConfig, primary: Option<&ReplicaStatus>) -> &'static str {
    let complete = shard.members.iter().filter(|member| member.state == MemberState::Complete).count();
    let wanted = usize::from(configuration.faults) + 1;
    match shard.phase {
        ShardPhase::Recovering => "recovering",
        ShardPhase::Serving if primary.is_none() => "primary silent",
        ShardPhase::Serving if shard.members.len() < wanted => "too few members",
        ShardPhase::Serving if complete < wanted => "copying old data",
        ShardPhase::Serving if shard.closing => "changing witnesses",
        ShardPhase::Serving if configuration.faults > 0 && !shard.has_fast_path(configuration.faults) => "no fast path",
        ShardPhase::Serving => "healthy",
    }
}

fn print_human(configuration: &Configuration, coordinator: bool, cores: &[Core]) {
    let durability = match configuration.durability {
        Durability::Replicated => "replicated",
        Durability::Fsync => "fsync",
    };
    say!(
        "{}  f = {}  durability {durability}  configuration {}  coordinator {}",
        configuration.cluster,
        configuration.faults,
        configuration.version.0,
        if coordinator {
            "reachable"
        } else {
            "NOT reachable: the states below are its last word; no fail-over, no new clients"
        }
    );
    say!("\nNODE     STATE  CORES");
    for info in &configuration.nodes {
        let state = if info.alive { "alive" } else { "lost" };
        let addresses: Vec<_> = info.cores.iter().map(ToString::to_string).collect();
        say!("{:8} {state:6} {}", info.node.to_string(), addresses.join(" "));
    }
    say!("\nSHARD    EPOCH PRIMARY  MEMBERS              WITNESSES        STATE");
    for shard in &configuration.shards {
        let members: Vec<_> = (shard.members.iter())
            .map(|member| match member.state {
                MemberState::Complete => member.node.0.to_string(),
                MemberState::Joining => format!("{}(joining)", member.node.0),
            })
            .collect();
        let witnesses: Vec<_> = shard.witnesses.iter().map(|node| node.0.to_string()).collect();
        say!(
            "{:8} {:5} {:8} {:20} {:16} {}",
            shard.shard.to_string(),
            shard.epoch.0,
            shard.primary.to_string(),
            members.join(" "),
            format!("{} (list {})", witnesses.join(" "), shard.list.0),
            health(configuration, shard, primary_status(shard, cores))
        );
    }
    say!("\nSHARD    OBJECTS        MEMORY     UPDATES  FAST PATH  UNSYNCED  DUPLICATES  CLIENTS  DOING");
    for shard in &configuration.shards {
        let Some(status) = primary_status(shard, cores) else {
            say!("{:8} (its primary does not answer)", shard.shard.to_string());
            continue;
        };
        say!(
            "{:8} {:8} {:>13} {:11} {:>9} {:9} {:11} {:8}  {}",
            shard.shard.to_string(),
            status.objects,
            format!("{}/{} MiB", status.memory_bytes >> 20, status.memory_max_bytes >> 20),
            status.updates,
            fast_path_rate(status).map_or_else(|| "-".to_owned(), |rate| format!("{:.1} %", rate * 100.0)),
            status.unsynced_operations,
            status.duplicates_suppressed,
            status.clients,
            status.state
        );
    }
    print_cleaning(configuration, cores);
    print_transactions(configuration, cores);
    say!("\nCORE     LONGEST TURN  IN IT");
    for (core, turns) in cores.iter().filter_map(|(core, turns)| Some((core, turns.as_ref()?))) {
        let turn = &turns.longest;
        say!("{:8} {:>9} µs  {}", core_name(core), turn.nanos / 1000, describe_turn(turn));
    }
}

fn print_cleaning(configuration: &Configuration, cores: &[Core]) {
    say!("\nSHARD      LIVE  OF AT MOST  IN USE  SEGMENTS  LEAVING  UNSYNCED  DENSE  CLEANED   COPIED  CLEANER");
    for shard in &configuration.shards {
        let Some(status) = primary_status(shard, cores) else { continue };
        let cleaning = &status.cleaning;
        say!(
            "{:8} {:>5}M {:>10}M {:>5.0} % {:9} {:8} {:9} {:6} {:8} {:>7}M  {}",
            shard.shard.to_string(),
            cleaning.live_bytes >> 20,
            cleaning.live_max_bytes >> 20,
            utilisation(status) * 100.0,
            cleaning.segments,
            cleaning.leaving,
            cleaning.unsynced,
            cleaning.dense,
            cleaning.cleaned_segments,
            cleaning.copied_bytes >> 20,
            cleaner_words(cleaning.cleaner)
        );
    }
}

/// Transactions over several shards, if there are any: they may hold others up.
fn print_transactions(configuration: &Configuration, cores: &[Core]) {
    let shards = configuration.shards.iter().filter_map(|shard| Some((shard.shard, primary_status(shard, cores)?)));
    let busy: Vec<_> =
        shards.filter(|(_, status)| status.transactions.pending + status.transactions.held_answers > 0).collect();
    if busy.is_empty() {
        return;
    }
    say!("\nSHARD    PENDING TRANSACTIONS  KEPT  HELD ANSWERS  OLDEST");
    for (shard, status) in busy {
        let transactions = &status.transactions;
        say!(
            "{:8} {:20} {:5} {:13}  {}",
            shard.to_string(),
            transactions.pending,
            transactions.kept,
            transactions.held_answers,
            transactions.oldest.first().map_or_else(|| "-".to_owned(), pending_words)
        );
        for pending in transactions.oldest.iter().skip(1) {
            say!("{:49}  {}", "", pending_words(pending));
        }
    }
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

fn turns_json(turns: &LoopTurns) -> Json {
    json!({
        "count": turns.turns, "long": turns.long_turns, "longest": turn_json(&turns.longest),
        "longest_since_asked": turn_json(&turns.longest_since_asked), "busiest": turn_json(&turns.busiest),
        "busiest_since_asked": turn_json(&turns.busiest_since_asked),
    })
}

fn turn_json(turn: &LongTurn) -> Json {
    json!({
        "micros": turn.nanos / 1000, "elapsed_micros": turn.elapsed_nanos / 1000, "millis_ago": turn.millis_ago,
        "hearing_micros": turn.hearing_nanos / 1000, "closing_micros": turn.closing_nanos / 1000,
        "files_micros": turn.files_nanos / 1000, "sending_micros": turn.sending_nanos / 1000,
        "blocked": turn.blocked, "frames": turn.frames,
        "work": turn.work.iter().map(|work| work.name()).collect::<Vec<_>>(),
    })
}

fn replica_json(status: &ReplicaStatus) -> Json {
    json!({
        "shard": status.shard.0, "epoch": status.epoch.0, "primary": status.primary, "state": status.state,
        "end": status.end.offset.0, "synced": status.synced.0, "unsynced_operations": status.unsynced_operations,
        "objects": status.objects, "memory_bytes": status.memory_bytes, "memory_max_bytes": status.memory_max_bytes,
        "memory": memory_words(status.memory).trim_start_matches("memory "),
        "cleaning": cleaning_json(status),
        "transactions": transactions_json(status),
        "clients": status.clients, "completion_records": status.completion_records, "updates": status.updates,
        "reads": status.reads, "fast_answers": status.fast_answers, "gated_answers": status.gated_answers,
        "fast_path_rate": fast_path_rate(status), "duplicates_suppressed": status.duplicates_suppressed,
        "refusals": status.refusals, "syncs": status.syncs,
    })
}

fn cleaning_json(status: &ReplicaStatus) -> Json {
    let cleaning = &status.cleaning;
    json!({
        "live_bytes": cleaning.live_bytes, "live_max_bytes": cleaning.live_max_bytes, "utilisation": utilisation(status),
        "segments": cleaning.segments, "leaving": cleaning.leaving, "unsynced": cleaning.unsynced,
        "dense": cleaning.dense, "cleaner": cleaner_words(cleaning.cleaner),
        "cleaned_segments": cleaning.cleaned_segments, "copied_bytes": cleaning.copied_bytes,
    })
}

fn transactions_json(status: &ReplicaStatus) -> Json {
    let transactions = &status.transactions;
    let oldest = transactions.oldest.iter().map(|pending| {
        json!({
            "client": pending.rpc.client.0, "sequence": pending.rpc.sequence.0, "millis": pending.millis,
            "waits_for": pending.waits_for.iter().map(|shard| shard.0).collect::<Vec<_>>(), "waiting": pending.waiting,
        })
    });
    json!({
        "pending": transactions.pending, "kept": transactions.kept, "held_answers": transactions.held_answers,
        "oldest": oldest.collect::<Vec<_>>(),
    })
}

/// The part of the segments in memory that lives.
#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn utilisation(status: &ReplicaStatus) -> f64 {
    if status.memory_bytes == 0 { 0.0 } else { status.cleaning.live_bytes as f64 / status.memory_bytes as f64 }
}

fn cleaner_words(state: CleanerState) -> &'static str {
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

fn to_json(configuration: &Configuration, coordinator: bool, cores: &[Core]) -> Json {
    let nodes: Vec<_> = (configuration.nodes.iter())
        .map(|info| json!({ "node": info.node.0, "alive": info.alive, "incarnation": info.incarnation.0, "cores": info.cores }))
        .collect();
    let shards: Vec<_> = (configuration.shards.iter())
        .map(|shard| {
            let members: Vec<_> = (shard.members.iter())
                .map(|member| json!({ "node": member.node.0, "complete": member.state == MemberState::Complete }))
                .collect();
            json!({
                "shard": shard.shard.0, "epoch": shard.epoch.0, "primary": shard.primary.0,
                "serving": shard.phase == ShardPhase::Serving, "health": health(configuration, shard, primary_status(shard, cores)),
                "members": members, "witnesses": shard.witnesses.iter().map(|node| node.0).collect::<Vec<_>>(),
                "list": shard.list.0, "status": primary_status(shard, cores).map(replica_json),
            })
        })
        .collect();
    let cores: Vec<_> = (cores.iter())
        .map(|(core, turns)| {
            let witnesses: Vec<_> = (core.witnesses.iter())
                .map(|witness| {
                    json!({ "shard": witness.shard.0, "list": witness.list.0, "frozen": witness.frozen,
                            "held": witness.held, "accepted": witness.accepted, "rejected": witness.rejected })
                })
                .collect();
            json!({
                "node": core.core.node.0, "core": core.core.core, "lease": core.lease,
                "configuration": core.configuration.0,
                "turns": turns.as_ref().map(turns_json),
                "replicas": core.replicas.iter().map(replica_json).collect::<Vec<_>>(), "witnesses": witnesses,
            })
        })
        .collect();
    json!({
        "cluster": configuration.cluster.0, "configuration": configuration.version.0, "faults": configuration.faults,
        "coordinator_reachable": coordinator, "nodes": nodes, "shards": shards, "cores": cores,
        "tables": configuration.tables.iter().map(|table| &table.name).collect::<Vec<_>>(),
    })
}
