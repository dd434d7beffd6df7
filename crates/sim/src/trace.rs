//! Prints what happens in a run, for a person who looks for a bug: one line for each frame, write and start.

use kasha_machine::FileName;
use kasha_wire::frame::Kind;
use kasha_wire::message::WitnessHolds;
use kasha_wire::{
    AnswerView, AnyMessage, AppendView, Appended, Body, Message, ReadAnswerView, ReadRefused, ReadView, Recorded,
    Refused, RequestView, SyncRequest, Synced, hot,
};

use crate::checkers::records::records_in;
use crate::network::ProcessId;
use crate::world::{Sent, View, Watch};

/// Characters of a line.
const LINE_MAX: usize = 2000;

/// A watcher that prints to standard error.
#[derive(Debug, Default)]
pub struct Trace;

fn describe(kind: u8, payload: &[u8]) -> String {
    let small = |text: Option<String>| text.unwrap_or_else(|| "unreadable".into());
    let Some(kind) = Kind::from_number(kind) else { return format!("kind {kind}") };
    match kind {
        Kind::Request | Kind::Record | Kind::Cancel => {
            let request = RequestView::decode(payload).ok();
            let text = request.and_then(|request| {
                let body = Body::decode(request.body).ok()?;
                let mut keys = Vec::new();
                body.for_each_key(|_, key, _| keys.push(String::from_utf8_lossy(key).into_owned()));
                let e = request.envelope;
                let (rpc, acknowledgement) = (body.head.rpc, body.head.acknowledgement);
                Some(format!(
                    "{kind:?} {rpc} ack {acknowledgement} {} {} {} attempt {} op {} {keys:?}",
                    e.shard,
                    e.epoch,
                    e.list,
                    e.attempt,
                    body.update.code()
                ))
            });
            small(text)
        }
        Kind::Answer => {
            small(AnswerView::decode(payload).ok().map(|a| {
                format!("Answer {} {} attempt {} synced {} {:?}", a.rpc, a.epoch, a.attempt, a.synced, a.result)
            }))
        }
        Kind::Append => small(AppendView::decode(payload).ok().map(|a| {
            let end = a.from.0 + a.bytes.len() as u64;
            format!("Append {} {} {}..{end} synced {} round {}", a.shard, a.epoch, a.from, a.synced, a.round)
        })),
        Kind::Read => small(
            ReadView::decode(payload)
                .ok()
                .map(|r| format!("Read {} {} {} code {}", r.read_id, r.envelope.shard, r.envelope.epoch, r.code)),
        ),
        Kind::ReadAnswer => small(ReadAnswerView::decode(payload).ok().map(|r| format!("ReadAnswer {}", r.read_id))),
        Kind::Refuse => small(hot::decode_small::<Refused>(payload).ok().map(|value| format!("{value:?}"))),
        Kind::ReadRefuse => small(hot::decode_small::<ReadRefused>(payload).ok().map(|value| format!("{value:?}"))),
        Kind::Recorded => small(hot::decode_small::<Recorded>(payload).ok().map(|value| format!("{value:?}"))),
        Kind::Sync => small(hot::decode_small::<SyncRequest>(payload).ok().map(|value| format!("{value:?}"))),
        Kind::Synced => small(hot::decode_small::<Synced>(payload).ok().map(|value| format!("{value:?}"))),
        Kind::Appended => small(hot::decode_small::<Appended>(payload).ok().map(|value| format!("{value:?}"))),
        Kind::Message => small(AnyMessage::decode(payload).ok().map(|message| match message {
            AnyMessage::WitnessHolds(WitnessHolds { shard, list, epoch, holding, requests, .. }) => {
                let rpcs: Vec<_> =
                    requests.iter().filter_map(|body| Body::decode(&body.0).ok().map(|b| b.head.rpc)).collect();
                format!("WitnessHolds {shard} {list} {epoch} {holding:?} {rpcs:?}")
            }
            other => format!("{other:?}"),
        })),
    }
}

fn print(view: &View<'_>, by: ProcessId, text: &str) {
    let process = &view.processes[by.0];
    let text: String = text.chars().take(LINE_MAX).collect();
    eprintln!("{} {}#{} {text}", view.now, process.name, process.life);
}

impl Watch for Trace {
    fn sent(&mut self, sent: &Sent<'_>, view: &View<'_>) {
        let to = sent.target.map_or("nobody", |target| &view.processes[target.0].name);
        print(view, sent.from, &format!("-> {to}: {}", describe(sent.kind, sent.payload)));
    }

    fn wrote(&mut self, by: ProcessId, file: FileName, offset: u64, len: usize, view: &View<'_>) {
        let content = view.processes[by.0].disk.cached(file);
        let mut records = std::collections::BTreeSet::new();
        if let (FileName::Segment { .. }, Some(content)) = (file, content) {
            records_in(&content.read(offset, len), &mut records);
        }
        let size = content.map(crate::disk::Content::len);
        print(view, by, &format!("wrote {file:?} {offset} +{len}, now {size:?} {records:?}"));
    }

    fn started(&mut self, process: ProcessId, view: &View<'_>) {
        print(view, process, "started");
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}
