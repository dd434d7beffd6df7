//! One attempt of an update with the answers that it has collected, judged by the completion rule that sessions use.

use kasha_types::{Epoch, ListVersion, NodeId};
use kasha_wire::{AnswerView, Recorded, RecordedVerdict, Synced};
use kasha_witness::{Path, Verdict};

use super::frames;

/// One attempt and what it has collected. Messages of another attempt do not count (R2.1), as in a session.
pub struct Attempt {
    pub epoch: Epoch,
    pub list: ListVersion,
    witnesses: Vec<NodeId>,
    words: kasha_witness::Attempt,
    result: Option<String>,
    accepted: Vec<u16>,
}

impl Attempt {
    pub fn new(epoch: Epoch, list: ListVersion, witnesses: &[NodeId]) -> Self {
        let words = kasha_witness::Attempt::new(epoch, list, witnesses.len() as u8);
        Self { epoch, list, witnesses: witnesses.to_vec(), words, result: None, accepted: Vec::new() }
    }

    pub fn on_answer(&mut self, answer: &AnswerView<'_>) {
        // A synced answer is durable by itself, in whichever epoch it was given.
        let epoch = if answer.synced { self.epoch } else { answer.epoch };
        if epoch == self.epoch {
            self.words.on_answer(epoch, answer.synced);
            self.result = Some(frames::result(answer.result));
        }
    }

    pub fn on_synced(&mut self, synced: &Synced) {
        if self.words.is_answered() {
            self.words.on_answer(synced.epoch, true);
        }
    }

    pub fn on_recorded(&mut self, recorded: &Recorded) {
        let Some(witness) = self.witnesses.iter().position(|&node| node == recorded.node) else { return };
        let is_accepted = recorded.verdict == RecordedVerdict::Accepted;
        self.words.on_recorded(recorded.list, witness as u8, is_accepted);
        let NodeId(node) = recorded.node;
        if is_accepted && recorded.list == self.list && !self.accepted.contains(&node) {
            self.accepted.push(node);
        }
    }

    pub fn describe(&self) -> String {
        let verdict = self.words.verdict();
        let answer = match &self.result {
            None => "no answer".into(),
            Some(result) if verdict == Verdict::Complete(Path::Synced) => format!("synced answer ({result})"),
            Some(result) => format!("speculative answer ({result})"),
        };
        let accepted: Vec<String> = self.accepted.iter().map(u16::to_string).collect();
        let verdict = match verdict {
            Verdict::Complete(_) => "complete",
            Verdict::Wait | Verdict::NeedSync => "not complete",
        };
        format!("{answer}, accepted by [{}] on list {}: {verdict}", accepted.join(" "), self.list.0)
    }
}
