//! Why transactions with operation keys do not happen (R4.9).
//!
//! What was not committed under an operation key stays not committed, for the same reason. One participant keeps that: the one
//! that owns the key named first. It hears the reason from the participant whose check said no, once that may be told (R8.5 \[M\]).
//! The vote waits for that for a moment, not for long: what the reason waits for may wait for the vote.

use std::collections::BTreeMap;
use std::time::Duration;

use kasha_distributed::Aging;
use kasha_types::{BodyHash, RpcId, ShardId, Tick};
use kasha_wire::message::{Told, WordOf};
use kasha_wire::{Body, OutcomeCode};

use crate::shard::distributed::Distributed;

/// Reasons of transactions that never came go when there are so many, the older half first.
const REASONS_MAX: usize = 4096;
/// How long a vote waits for its reason.
const PATIENCE_WITH_GATES: Duration = Duration::from_millis(50);

/// What another participant has said.
#[derive(Debug)]
struct Heard {
    body: BodyHash,
    from: ShardId,
    result: Vec<u8>,
}

/// A vote against a transaction whose reason may not be told yet.
#[derive(Debug)]
struct Late {
    until: Tick,
    to: ShardId,
    word: WordOf,
}

/// By transaction.
#[derive(Debug)]
pub(crate) struct Reasons {
    heard: Aging<Option<Heard>>,
    late: BTreeMap<RpcId, Late>,
}

impl Default for Reasons {
    fn default() -> Self {
        Self { heard: Aging::new(REASONS_MAX), late: BTreeMap::new() }
    }
}

impl Reasons {
    /// Another participant says why, of what is pending here or has not come yet.
    pub fn hear(&mut self, from: ShardId, word: &WordOf, distributed: &Distributed) {
        let is_over = distributed.knows(word.rpc) && !distributed.participant.is_pending(word.rpc);
        if word.told != Told::Abort || word.reason.is_empty() || is_over {
            return;
        }
        let said = Heard { body: word.body, from, result: word.reason.clone() };
        self.heard.note(word.rpc, |heard| *heard = Some(said));
    }

    /// What the keeper answers, and keeps. `None`: nobody has said why.
    pub fn of(&self, body: &Body<'_>) -> Option<Vec<u8>> {
        let rpc = body.head.rpc;
        let heard = self.heard.get(rpc)?.as_ref().filter(|heard| heard.body == body.hash())?;
        as_kept(body, heard.from, &heard.result)
    }

    pub fn forget(&mut self, rpc: RpcId) {
        drop(self.heard.remove(rpc));
    }

    /// A word of this participant leaves, with its reason if it has one, unless it is kept for a moment.
    pub fn pass(&mut self, to: ShardId, mut word: WordOf, distributed: &Distributed, now: Tick) -> Option<WordOf> {
        if word.told != Told::Abort || !distributed.has_reason_for(to, word.rpc) {
            return Some(word);
        }
        if let Some(reason) = distributed.reason_for(to, word.rpc) {
            word.reason.extend_from_slice(reason);
            return Some(word);
        }
        let until = now.after(PATIENCE_WITH_GATES);
        self.late.entry(word.rpc).or_insert(Late { until, to, word });
        None
    }

    /// The votes that have waited long enough.
    pub fn take_late(&mut self, distributed: &Distributed, now: Tick) -> Vec<(ShardId, WordOf)> {
        let is_ready = |rpc: &RpcId, late: &mut Late| {
            now >= late.until || distributed.reason_for(late.to, *rpc).is_some() || !distributed.knows(*rpc)
        };
        let ready: Vec<_> = self.late.extract_if(.., is_ready).collect();
        let with_reason = |(rpc, late): (RpcId, Late)| {
            let mut word = late.word;
            word.reason.extend_from_slice(distributed.reason_for(late.to, rpc).unwrap_or_default());
            (late.to, word)
        };
        ready.into_iter().map(with_reason).collect()
    }

    /// When the first of them has waited long enough.
    pub fn next_late(&self) -> Option<Tick> {
        self.late.values().map(|late| late.until).min()
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
