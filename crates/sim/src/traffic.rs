//! Counts frames by kind, refusal and verdict: the counts show which paths a run reached.

use std::collections::BTreeMap;

use kasha_wire::frame::Kind;
use kasha_wire::message::{GcDone, WitnessHolds};
use kasha_wire::{ReadRefused, Recorded, Refused, hot, message};

use crate::probes::Probes;
use crate::world::{Sent, View, Watch};

/// A watcher that counts frames.
#[derive(Debug, Default)]
pub struct Traffic {
    kinds: BTreeMap<u8, u64>,
    messages: BTreeMap<u8, u64>,
    named: Probes,
}

impl Watch for Traffic {
    fn sent(&mut self, sent: &Sent<'_>, _view: &View<'_>) {
        *self.kinds.entry(sent.kind).or_default() += 1;
        match Kind::from_number(sent.kind) {
            Some(Kind::Message) => {
                *self.messages.entry(sent.payload.first().copied().unwrap_or_default()).or_default() += 1;
                if let Some(WitnessHolds { holding, requests, .. }) = sent.message() {
                    self.named.hit(&format!("witness read: {holding:?}"));
                    self.named.add("witness requests replayed", requests.len() as u64);
                }
                if let Some(GcDone { suspects, .. }) = sent.message() {
                    self.named.add("requests named as suspects", suspects.len() as u64);
                }
            }
            Some(Kind::Refuse) => {
                if let Ok(refused) = hot::decode_small::<Refused>(sent.payload) {
                    self.named.hit(&format!("refused: {:?}", refused.why));
                }
            }
            Some(Kind::ReadRefuse) => {
                if let Ok(refused) = hot::decode_small::<ReadRefused>(sent.payload) {
                    self.named.hit(&format!("read refused: {:?}", refused.why));
                }
            }
            Some(Kind::Recorded) => {
                if let Ok(recorded) = hot::decode_small::<Recorded>(sent.payload) {
                    self.named.hit(&format!("recorded: {:?}", recorded.verdict));
                }
            }
            _ => {}
        }
    }

    fn report(&self, probes: &mut Probes) {
        for (&kind, &count) in &self.kinds {
            if let Some(kind) = Kind::from_number(kind).filter(|&kind| kind != Kind::Message) {
                probes.add(&format!("frames: {kind:?}"), count);
            }
        }
        for (&number, &count) in &self.messages {
            let name = message::TABLE.iter().find(|row| row.1 == number).map_or("?", |row| row.0);
            probes.add(&format!("frames: {name}"), count);
        }
        probes.merge(&self.named);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}
