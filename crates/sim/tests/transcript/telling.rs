//! What the script prints about what happened: turns, statuses, logs.

use kasha_machine::{FileName, Gate};

use super::cluster::{Letter, Turn};
use super::host::{Party, Running};
use super::script::Script;
use super::{frames, groups};

/// Lines of consequences are set off from the frame that caused them.
pub const DEEPER: &str = "    ";

/// How much a command prints.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Telling {
    Nothing,
    /// Only the frames that arrive.
    Arrivals,
    /// Also what each of them causes.
    Effects,
}

/// Whether a frame says nothing new: a heartbeat without a report, a ping, and the answers to these.
pub fn is_idle_talk(text: &str) -> bool {
    let heartbeat = text.starts_with("Heartbeat have") && text.ends_with("[]") || text.starts_with("HeartbeatAnswer");
    heartbeat || matches!(text, "Ping" | "Pong")
}

fn file(name: FileName) -> String {
    match name {
        FileName::Segment { segment, .. } => format!("segment {}", segment.0),
        FileName::Replica(_) => "replica.meta".into(),
        FileName::Witness { list, .. } => format!("witness list={}", list.0),
        FileName::WitnessMode { list, .. } => format!("witness mode list={}", list.0),
        FileName::Core => "core".into(),
        FileName::Told => "told".into(),
        FileName::Coordinator(number) => format!("coordinator log {number}"),
        FileName::Journal(number) => format!("coordinator journal {number}"),
    }
}

impl Script {
    pub fn tell(&mut self, line: String) {
        self.out.push(line);
    }

    pub fn take_output(&mut self) -> Vec<String> {
        let mut lines: Vec<(String, usize)> = Vec::new();
        for line in std::mem::take(&mut self.out) {
            match lines.last_mut() {
                Some((last, times)) if *last == line => *times += 1,
                _ => lines.push((line, 1)),
            }
        }
        let count = |(line, times)| if times == 1 { line } else { format!("{line} ({times} times)") };
        lines.into_iter().map(count).collect()
    }

    pub fn describe(&self, letter: &Letter) -> String {
        frames::describe(letter.kind, &letter.payload, &self.clients.names)
    }

    pub fn tell_turn(&mut self, party: Party, turn: &Turn, indent: &str, telling: Telling) {
        if let Some(why) = &turn.stopped {
            self.tell(format!("{indent}{party} stops: {why}"));
        }
        if telling == Telling::Nothing {
            return;
        }
        if turn.loses_role {
            self.tell(format!("{indent}{party} loses its role, and drops what it held for it"));
        }
        if telling == Telling::Effects {
            let whole = |whole: bool| move |&&(_, is_whole): &&(FileName, bool)| is_whole == whole;
            for (verb, is_whole) in [("replaces", true), ("writes", false)] {
                let files: Vec<_> = turn.files.iter().filter(whole(is_whole)).map(|(name, _)| file(*name)).collect();
                if !files.is_empty() {
                    self.tell(format!("{indent}{party} {verb} {}", files.join(", ")));
                }
            }
        }
        for (to, gate, frame) in &turn.waits {
            let text = frames::describe(frame[12], &frame[kasha_wire::FRAME_HEADER_BYTES..], &self.clients.names);
            let gate = match gate {
                Gate::Now => unreachable!("it is open"),
                Gate::Synced { position, .. } => format!("synced {}", position.offset),
                Gate::Flushed { position, .. } => format!("synced and flushed {}", position.offset),
                Gate::Confirmed { round, .. } => format!("round {round} has ended"),
                Gate::Durable(_) | Gate::DurableAs { .. } => "its own disk has it".into(),
                Gate::Committed { op, round, .. } => {
                    format!("operation {op} is committed, and round {round} has ended")
                }
            };
            if !is_idle_talk(&text) {
                self.tell(format!("{indent}{party} holds until {gate}: >{to} {text}"));
            }
        }
        if telling == Telling::Effects {
            for letter in &turn.sent {
                let text = self.describe(letter);
                if !is_idle_talk(&text) {
                    self.tell(format!("{indent}{}>{} waits: {text}", letter.from, letter.to));
                }
            }
        }
    }

    pub fn tell_committed(&mut self) {
        self.learn_committed();
        let text = self.committed.as_ref().map_or("nothing".into(), frames::committed);
        self.tell(text);
    }

    pub fn show(&mut self) {
        for letter in self.cluster.network.clone() {
            let text = self.describe(&letter);
            if !is_idle_talk(&text) {
                self.tell(format!("{}>{} {text}", letter.from, letter.to));
            }
        }
    }

    pub fn status(&mut self, party: Party) {
        let now = self.cluster.now;
        let Some(Running::Node(node)) = &self.cluster.host(party).running else {
            return self.tell(format!("{party} does not run"));
        };
        let status = node.status(now);
        let lease = if status.lease { "lease" } else { "no lease" };
        self.tell(format!("{party} obeys v{}, {lease}", status.configuration.0));
        for replica in status.replicas {
            let end = format!("{}@{}", replica.end.offset, replica.end.epoch.0);
            let (epoch, state, keys) = (replica.epoch.0, &replica.state, replica.objects);
            let synced = if replica.primary { format!(", synced {}", replica.synced) } else { String::new() };
            self.tell(format!("{DEEPER}replica: epoch={epoch}, {state}; end {end}{synced}, {keys} keys"));
        }
        for witness in status.witnesses {
            let mode = if witness.frozen { "frozen" } else { "accepting" };
            self.tell(format!("{DEEPER}witness list={}: {mode}, holds {}", witness.list.0, witness.held));
        }
    }

    /// The log, as it is in the machine's files.
    pub fn log(&mut self, party: Party) {
        let names = self.clients.names.clone();
        let files: Vec<_> = (self.cluster.host(party).disk.files())
            .filter_map(|(name, content)| match name {
                FileName::Segment { segment, .. } => Some((segment, content.bytes())),
                _ => None,
            })
            .collect();
        for (segment, bytes) in files {
            let mut at = u64::from(segment.0) * self.cluster.segment_bytes();
            for group in groups::groups(&bytes, &names) {
                let record = group.record.map(|(ack, result)| format!(" ack={} -> {result}", ack.0));
                self.tell(format!("{at} epoch={} {}{}", group.epoch.0, group.what, record.unwrap_or_default()));
                at += group.len as u64;
            }
        }
    }
}
