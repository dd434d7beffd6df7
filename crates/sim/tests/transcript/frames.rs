//! Frames, log groups and configurations as text: one line each, with the fields that matter. Where possible, the text
//! does not depend on how many bytes something takes.

use std::collections::BTreeMap;

use kasha_types::{ClientId, LogEnd, LogPosition, NodeId, RpcId, SegmentId};
use kasha_wire::codec::Bytes;
use kasha_wire::message::{
    AttachAt, Attached, CopySegment, FenceReport, FetchLog, Gc, Holding, LeaseLost, LeaseRenewed, LogPiece, Mismatch,
    RenewLease, Report, SegmentCopied, SessionOpened, WitnessHolds,
};
use kasha_wire::{
    AnswerView, AnyMessage, AppendView, Appended, Body, Configuration, Kind, MemberState, Message, OutcomeCode,
    ReadAnswerView, ReadRefused, ReadView, Recorded, Refused, RequestView, ShardPhase, SyncRequest, Synced, Wire, hot,
};

use super::groups::groups;

/// The names that the script gives to clients.
pub type Names = BTreeMap<ClientId, String>;

fn small<T: Wire>(payload: &[u8]) -> T {
    hot::decode_small(payload).expect("the machines send whole frames")
}

/// An update's name.
pub fn rpc(rpc: RpcId, names: &Names) -> String {
    let client = names.get(&rpc.client).cloned().unwrap_or_else(|| rpc.client.to_string());
    format!("{client}.{}", rpc.sequence.0)
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn list(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(" "))
}

fn bodies(requests: &[Bytes], names: &Names) -> String {
    list(requests.iter().map(|body| match Body::decode(&body.0) {
        Ok(body) => rpc(body.head.rpc, names),
        Err(_) => "unreadable".into(),
    }))
}

fn update(body: &Body<'_>) -> String {
    let mut words = body.update.to_string();
    if let Some(key) = body.operation_key {
        words += &format!(" key={}", text(key));
    }
    words
}

/// Result bytes of the updates that the script can ask for.
pub fn result(bytes: &[u8]) -> String {
    let word = |at: usize| bytes.get(at..at + 8).map(|word| u64::from_le_bytes(word.try_into().expect("8 bytes")));
    match bytes.first().and_then(|&code| OutcomeCode::from_number(code)) {
        Some(OutcomeCode::Done) => match (word(1), word(9)) {
            (Some(version), None) => format!("version {version}"),
            (Some(number), Some(version)) => format!("{}, version {version}", number as i64),
            (None, _) => "done".into(),
        },
        Some(outcome) => format!("{outcome:?}"),
        None => "unreadable".into(),
    }
}

fn read_result(bytes: &[u8]) -> String {
    match bytes.split_first() {
        Some((0, rest)) if rest.len() >= 8 => text(&rest[8..]),
        _ => result(bytes),
    }
}

fn at(position: LogPosition) -> String {
    format!("{}@{}", position.offset, position.epoch.0)
}

/// One frame in words.
pub fn describe(kind: u8, payload: &[u8], names: &Names) -> String {
    let Some(kind) = Kind::from_number(kind) else { return format!("kind {kind}") };
    let name = |id| rpc(id, names);
    match kind {
        Kind::Request | Kind::Record | Kind::Cancel => {
            let view = RequestView::decode(payload).expect("a request");
            let body = Body::decode(view.body).expect("a body");
            let (head, e) = (body.head, view.envelope);
            format!(
                "{kind:?} {} ack={} epoch={} list={} attempt={} {}",
                name(head.rpc),
                head.acknowledgement.0,
                e.epoch.0,
                e.list.0,
                e.attempt,
                update(&body)
            )
        }
        Kind::Answer => {
            let answer = AnswerView::decode(payload).expect("an answer");
            let how = if answer.synced { "synced" } else { "speculative" };
            let (epoch, attempt) = (answer.epoch.0, answer.attempt);
            format!("Answer {} epoch={epoch} attempt={attempt} {how}: {}", name(answer.rpc), result(answer.result))
        }
        Kind::Append => {
            let append = AppendView::decode(payload).expect("an append");
            let end = append.from.0 + append.bytes.len() as u64;
            let groups = list(groups(append.bytes, names).into_iter().map(|group| group.what));
            let (epoch, from, synced, round) = (append.epoch.0, append.from, append.synced, append.round);
            format!("Append epoch={epoch} {from}..{end} synced={synced} round={round} {groups}")
        }
        Kind::Read => {
            let read = ReadView::decode(payload).expect("a read");
            let key = text(read.arguments.get(2..).unwrap_or_default());
            format!("Read epoch={} {key}", read.envelope.epoch.0)
        }
        Kind::ReadAnswer => {
            format!("ReadAnswer {}", read_result(ReadAnswerView::decode(payload).expect("an answer").result))
        }
        Kind::Refuse => {
            let Refused { rpc, attempt, epoch, why, .. } = small(payload);
            format!("Refuse {} epoch={} attempt={attempt} {why:?}", name(rpc), epoch.0)
        }
        Kind::ReadRefuse => format!("ReadRefuse {:?}", small::<ReadRefused>(payload).why),
        Kind::Recorded => {
            let Recorded { rpc, list, attempt, verdict, .. } = small(payload);
            format!("Recorded {} list={} attempt={attempt} {verdict:?}", name(rpc), list.0)
        }
        Kind::Sync => {
            let SyncRequest { epoch, rpc, attempt, .. } = small(payload);
            format!("Sync {} epoch={} attempt={attempt}", name(rpc), epoch.0)
        }
        Kind::Synced => {
            let Synced { rpc, epoch, attempt } = small(payload);
            format!("Synced {} epoch={} attempt={attempt}", name(rpc), epoch.0)
        }
        Kind::Appended => {
            let Appended { epoch, end, round, .. } = small(payload);
            format!("Appended epoch={} end={end} round={round}", epoch.0)
        }
        Kind::Message => message(&AnyMessage::decode(payload).expect("a message"), names),
    }
}

fn message(message: &AnyMessage, names: &Names) -> String {
    let kind = message.name();
    let clients = |ids: &[ClientId]| list(ids.iter().map(|id| names.get(id).cloned().unwrap_or(id.to_string())));
    let flags = |flags: &[(bool, &str)]| flags.iter().filter(|f| f.0).map(|f| format!(" {}", f.1)).collect::<String>();
    match message {
        AnyMessage::ConfigurationIs(told) => format!("Configuration {}", committed(&told.configuration)),
        AnyMessage::Heartbeat(beat) => {
            let reports = list(beat.reports.iter().map(|report| match report {
                Report::Recovered { epoch, .. } => format!("Recovered epoch={}", epoch.0),
                Report::Copied { epoch, node, .. } => format!("Copied {} epoch={}", node.0, epoch.0),
                Report::ListClosed { epoch, list, .. } => format!("ListClosed list={} epoch={}", list.0, epoch.0),
                Report::Unanswered { epoch, node, .. } => format!("Unanswered {} epoch={}", node.0, epoch.0),
                Report::Stuck { epoch, .. } => format!("Stuck epoch={}", epoch.0),
                Report::WitnessLost { list, .. } => format!("WitnessLost list={}", list.0),
                Report::Stopping { epoch, list, .. } => format!("Stopping list={} epoch={}", list.0, epoch.0),
                Report::NeedsWitness { epoch, .. } => format!("NeedsWitness epoch={}", epoch.0),
                Report::PromisedBefore { epoch, promised, .. } => {
                    format!("PromisedBefore epoch={} promised={}", epoch.0, promised.0)
                }
                Report::NeedsMembers { epoch, .. } => format!("NeedsMembers epoch={}", epoch.0),
            }));
            format!("{kind} have=v{} {reports}", beat.have.0)
        }
        AnyMessage::HeartbeatAnswer(answer) => format!("{kind} lease={}ms", answer.lease_millis),
        AnyMessage::OpenSession(_) => kind.into(),
        AnyMessage::SessionOpened(SessionOpened { client, lease_expiry, cluster_time, .. }) => {
            format!("{kind} {client} time={} lease-ends={}", cluster_time.0, lease_expiry.0)
        }
        AnyMessage::RenewLease(RenewLease { client }) | AnyMessage::LeaseLost(LeaseLost { client }) => {
            format!("{kind} {}", clients(&[*client]))
        }
        AnyMessage::LeaseRenewed(LeaseRenewed { client, lease_expiry, cluster_time }) => {
            format!("{kind} {} time={} lease-ends={}", clients(&[*client]), cluster_time.0, lease_expiry.0)
        }
        AnyMessage::LeaseQuery(query) => format!("{kind} {}", clients(&query.clients)),
        AnyMessage::LeaseVerdict(verdict) => {
            let alive: Vec<_> = verdict.alive.iter().map(|info| info.client).collect();
            format!("{kind} expired={} alive={}", clients(&verdict.expired), clients(&alive))
        }
        AnyMessage::Fence(fence) => format!("{kind} epoch={}", fence.epoch.0),
        AnyMessage::FenceReport(FenceReport { epoch, exists, end, intact, complete, whole, .. }) => {
            let marks = [(!exists, "holds-nothing"), (*intact, "intact"), (*complete, "complete"), (*whole, "whole")];
            let held = flags(&marks);
            format!("{kind} epoch={} end={}{held}", epoch.0, at(*end))
        }
        AnyMessage::Attach(order) => {
            let start = match order.start {
                AttachAt::Keep(offset) => format!("keep={offset}"),
                AttachAt::Join(base) => format!("join={base}"),
            };
            format!("{kind} epoch={} member-since=v{} {start}", order.epoch.0, order.since.0)
        }
        AnyMessage::Attached(Attached { epoch, attach, .. }) | AnyMessage::Mismatch(Mismatch { epoch, attach, .. }) => {
            format!("{kind} epoch={} {attach}", epoch.0)
        }
        AnyMessage::FreezeWitness(freeze) => format!("{kind} list={} epoch={}", freeze.list.0, freeze.epoch.0),
        AnyMessage::WitnessHolds(WitnessHolds { list, epoch, holding, requests, .. }) => {
            let sure = if *holding == Holding::Sure { String::new() } else { format!(" not-sure:{holding:?}") };
            format!("{kind} list={} epoch={}{sure} {}", list.0, epoch.0, bodies(requests, names))
        }
        AnyMessage::Gc(Gc { list: version, floor, entries, .. }) => {
            let floor = if floor.0 == 0 { String::new() } else { format!(" floor={}", floor.0) };
            format!("{kind} list={}{floor} {}", version.0, list(entries.iter().map(|entry| rpc(entry.rpc, names))))
        }
        AnyMessage::GcDone(done) => format!("{kind} list={} suspects={}", done.list.0, bodies(&done.suspects, names)),
        AnyMessage::Goodbye(goodbye) => format!("{kind}: {}", goodbye.reason),
        other => copying(other, names),
    }
}

/// Messages that move a log as a whole.
fn copying(message: &AnyMessage, names: &Names) -> String {
    let kind = message.name();
    match message {
        AnyMessage::CopySegment(CopySegment { epoch, total: 0, .. }) => {
            format!("{kind} epoch={} that-was-all", epoch.0)
        }
        AnyMessage::SegmentCopied(SegmentCopied { epoch, segment: SegmentId(u32::MAX), .. }) => {
            format!("{kind} epoch={} I-have-all", epoch.0)
        }
        AnyMessage::CopySegment(CopySegment { epoch, segment, .. })
        | AnyMessage::SegmentCopied(SegmentCopied { epoch, segment, .. }) => {
            format!("{kind} epoch={} segment={}", epoch.0, segment.0)
        }
        AnyMessage::FetchLog(FetchLog { epoch, from: LogEnd::MAX, .. }) => {
            format!("{kind} epoch={} from=head", epoch.0)
        }
        AnyMessage::FetchLog(FetchLog { epoch, from, .. }) => format!("{kind} epoch={} from={from}", epoch.0),
        AnyMessage::LogPiece(LogPiece { epoch, from, bytes, .. }) => {
            let groups = list(groups(&bytes.0, names).into_iter().map(|group| group.what));
            format!("{kind} epoch={} from={from} {groups}", epoch.0)
        }
        other => other.name().into(),
    }
}

fn nodes(nodes: &[NodeId]) -> String {
    list(nodes.iter().map(|node| node.0.to_string()))
}

/// The part of a configuration that is about shard 0.
pub fn committed(configuration: &Configuration) -> String {
    let lost = configuration.nodes.iter().filter(|info| !info.alive).map(|info| info.node.0.to_string());
    let version = configuration.version.0;
    let Some(shard) = configuration.shards.first() else { return format!("v{version}: no shard yet") };
    let phase = match shard.phase {
        ShardPhase::Recovering if shard.recover_from.is_empty() => "begins".into(),
        ShardPhase::Recovering => format!("recovers from {}", nodes(&shard.recover_from)),
        ShardPhase::Serving => "serves".to_string(),
    };
    let members = list(shard.members.iter().map(|member| match member.state {
        MemberState::Complete => member.node.0.to_string(),
        MemberState::Joining => format!("{}(joining)", member.node.0),
    }));
    let closing = if shard.closing { " closing" } else { "" };
    format!(
        "v{version}: epoch={} {} {phase}, members={members} witnesses={} list={}{closing} lost={}",
        shard.epoch.0,
        shard.primary.0,
        nodes(&shard.witnesses),
        shard.list.0,
        list(lost)
    )
}
