//! A status for scripts. Fields are added, and none is renamed or removed.

use kasha_types::PortUse;
use kasha_wire::MemberState;
use kasha_wire::ShardPhase;
use kasha_wire::status::{LongTurn, LoopTurns, ReplicaStatus};
use serde_json::{Value as Json, json};

use super::health::{Cluster, memory_words};
use super::screen::{cleaner_words, fast_path_rate, utilisation};

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

fn port_json(port: &PortUse) -> Json {
    json!({
        "connections": port.connections, "accepted": port.accepted, "refused": port.refused,
        "commands": port.commands, "bytes_in": port.bytes_in, "bytes_out": port.bytes_out,
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
        "repeats_suppressed": status.repeats_suppressed, "complete": status.complete,
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

/// All that is known of a cluster.
pub fn to_json(cluster: &Cluster) -> Json {
    let configuration = &cluster.configuration;
    let ports = cluster.ports();
    let nodes: Vec<_> = (configuration.nodes.iter())
        .map(|info| {
            json!({ "node": info.node.0, "alive": info.alive, "incarnation": info.incarnation.0, "cores": info.cores,
                    "redis": ports.get(&info.node).map(port_json) })
        })
        .collect();
    let shards: Vec<_> = (configuration.shards.iter())
        .map(|shard| {
            let members: Vec<_> = (shard.members.iter())
                .map(|member| {
                    let copy = cluster.copy(shard, *member).word();
                    json!({ "node": member.node.0, "complete": member.state == MemberState::Complete, "copy": copy })
                })
                .collect();
            let health = cluster.health(shard);
            json!({
                "shard": shard.shard.0, "epoch": shard.epoch.0, "primary": shard.primary.0,
                "serving": shard.phase == ShardPhase::Serving, "health": health.words, "well": health.is_well,
                "members": members, "witnesses": shard.witnesses.iter().map(|node| node.0).collect::<Vec<_>>(),
                "list": shard.list.0, "status": cluster.named_primary(shard).map(replica_json),
            })
        })
        .collect();
    let cores: Vec<_> = (cluster.cores.values())
        .map(|core| {
            let (core, turns) = (&core.status, &core.turns);
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
    let group: Vec<_> = (configuration.group.iter())
        .map(|of| {
            json!({ "member": of.member.0, "node": of.node.0, "address": of.address.to_string(),
                    "leads": of.address == configuration.coordinator,
                    "answers": match configuration.group.len() {
                        1 => cluster.coordinator,
                        _ => !cluster.silent_members.contains(&of.member),
                    } })
        })
        .collect();
    json!({
        "cluster": configuration.cluster.0, "configuration": configuration.version.0, "faults": configuration.faults,
        "min_backups": configuration.min_backups,
        "coordinator_reachable": cluster.coordinator, "group": group, "well": cluster.is_well(), "summary": cluster.summary(),
        "nodes_missing_to_begin": configuration.missing_to_begin(), "nodes": nodes, "shards": shards, "cores": cores,
        "redis": cluster.redis().as_ref().map(port_json),
        "tables": configuration.tables.iter().map(|table| &table.name).collect::<Vec<_>>(),
    })
}
