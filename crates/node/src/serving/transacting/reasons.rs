//! Why transactions with operation keys do not happen, at the participant that keeps the key (R4.9).
//!
//! What was not committed under an operation key stays not committed, for the same reason. One participant keeps that: the one
//! that owns the key named first. It hears the reason from the participant whose check said no, once that may be told (R8.5).

use std::collections::BTreeMap;

use kasha_types::{BodyHash, RpcId, ShardId};
use kasha_wire::message::{Told, WordOf};
use kasha_wire::{Body, OutcomeCode};

/// Reasons of transactions that never came, or have ended already, go when there are so many.
const REASONS_MAX: usize = 4096;

/// What another participant has said.
#[derive(Debug)]
struct Heard {
    body: BodyHash,
    from: ShardId,
    result: Vec<u8>,
}

/// By transaction.
#[derive(Debug, Default)]
pub(crate) struct Reasons(BTreeMap<RpcId, Heard>);

impl Reasons {
    pub fn hear(&mut self, from: ShardId, word: &WordOf) {
        if word.told != Told::Abort || word.reason.is_empty() {
            return;
        }
        if self.0.len() >= REASONS_MAX {
            self.0.clear(); // who has not ended yet asks again
        }
        self.0.insert(word.rpc, Heard { body: word.body, from, result: word.reason.clone() });
    }

    /// What the keeper answers, and keeps. `None`: nobody has said why.
    pub fn take(&mut self, body: &Body<'_>) -> Option<Vec<u8>> {
        let heard = self.0.remove(&body.head.rpc).filter(|heard| heard.body == body.hash())?;
        as_kept(body, heard.from, &heard.result)
    }
}

/// A participant counts its own parts. What is kept under an operation key counts all parts of the body.
pub(crate) fn as_kept(body: &Body<'_>, of: ShardId, result: &[u8]) -> Option<Vec<u8>> {
    let (head, rest) = result.split_first_chunk::<5>()?;
    let own = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
    if head[0] != OutcomeCode::NotCommitted as u8 || own >= body.parts_at(of)?.count() {
        return None;
    }
    let all = own + body.parts_before(of)?;
    Some([&head[..1], &all.to_le_bytes(), rest].concat())
}
