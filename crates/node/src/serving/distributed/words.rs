//! The words of participants to one another: what is heard, and what leaves.
//!
//! - **R8.11** Of what is unknown here, a conflict is recorded, if it is new; else *never* is said, once that cannot be lost.

use std::collections::BTreeMap;
use std::time::Duration;

use kasha_distributed::{Behind, Class, Footprint, Proposal, Said, Timestamp, Why, Word};
use kasha_exactly_once::{LookUp, Request};
use kasha_log::Purpose;
use kasha_machine::{Effects, Endpoint, Gate};
use kasha_types::probe::{Probe, hit};
use kasha_types::{AckedBelow, BodyHash, ClusterTime, RpcId, ShardId, Tick};
use kasha_wire::OutcomeCode;
use kasha_wire::message::{BehindWhat, Told, WordOf, Words};

use crate::core::send::send;
use crate::serving::Serving;
use crate::serving::distributed::reasons::Reasons;
use crate::shard::distributed::{Ending, How, commit_ending};
use crate::shard::site::Site;
use crate::shard::term::Term;

/// How long a participant is asked about a transaction that never came before it records a conflict: the request may be on its
/// way, and the way to one shard longer than to another.
const PATIENCE_WITH_REQUESTS: Duration = Duration::from_millis(500);
/// How far a timestamp may be ahead of cluster time. Timestamps follow it, and the order needs few that are later. One from a
/// stranger, or from a broken clock, would else be the floor of all that comes after it.
const AHEAD_MILLIS_MAX: u64 = 24 * 60 * 60 * 1000;
/// Words of one message, which a frame has to hold. A new primary speaks of all that it knows.
const WORDS_PER_MESSAGE: usize = 4096;
/// Transactions that never came, and that others ask about.
const ASKED_ABOUT_MAX: usize = 4096;

impl Serving {
    /// Takes the words of another participant's primary.
    pub fn on_words(&mut self, term: &mut Term, site: &mut Site<'_>, now: Tick, words: Words) {
        let latest = latest_timestamp(site.core.cluster_time);
        for word in words.words.into_iter().filter(|word| is_heard(word, latest)) {
            self.distributed.reasons.hear(words.from, &word, &site.state.distributed);
            let (lease_expiry, word) = (word.lease_expiry, word_of(word));
            let unknown = site.state.distributed.participant.on_word(words.from, &word);
            // If it gave way here, it stands in somebody's way there, and goes on.
            self.waiting.let_through(word.rpc);
            if unknown.is_some() {
                self.on_unknown(term, site, now, (words.from, word, lease_expiry));
            }
        }
    }

    /// Whether a transaction that never came has had its time to come.
    fn has_waited_for_request(&mut self, rpc: RpcId, now: Tick) -> bool {
        let asked_about = &mut self.distributed.asked_about;
        if asked_about.len() >= ASKED_ABOUT_MAX {
            asked_about.clear(); // they ask again
        }
        let since = *asked_about.entry(rpc).or_insert(now);
        let has_waited = now.since(since) >= PATIENCE_WITH_REQUESTS && !self.waiting.holds(rpc);
        if has_waited {
            asked_about.remove(&rpc);
        }
        has_waited
    }

    /// R8.11 \[M\]: a participant asks about a transaction of which nothing is known here.
    fn on_unknown(
        &mut self,
        term: &mut Term,
        site: &mut Site<'_>,
        now: Tick,
        (from, word, lease_expiry): (ShardId, Word, ClusterTime),
    ) {
        let Site { copy, state, core } = site;
        let shard = copy.shard;
        let end = copy.log.end().offset;
        let request =
            Request { rpc: word.rpc, body_hash: BodyHash(word.body), acknowledgement: AckedBelow(1), lease_expiry };
        let below_floor = self.leases.pending_floor().is_some_and(|(floor, _)| lease_expiry <= floor);
        let is_new = !below_floor && state.tracker.look_up_replayed(&request) == LookUp::New;
        let is_participant = word.participants.contains(&shard) && word.participants.contains(&from);
        if !is_new {
            hit(Probe::NeverSaid);
            core.want_durable(&mut term.shipping, end);
            state.distributed.participant.say_never(from, word.rpc, word.body, end);
            return;
        }
        if !is_participant || word.participants.len() > kasha_types::limits::PARTICIPANTS_MAX {
            return;
        }
        if !self.has_waited_for_request(word.rpc, now) {
            return;
        }
        hit(Probe::ConflictForUnknown);
        let Word { body, participants, .. } = word;
        let proposal = Proposal { class: Class::Coordinated, body, participants, footprint: Footprint::default() };
        let result = [OutcomeCode::Conflict as u8];
        let how = How::Against(Why::Conflict);
        let ending =
            Ending { request, has_come: false, slots: &[], keep_under: None, proposal, how, reason: None, seen: None };
        // Others wait for this. Without room it is asked again.
        let (log, dead) = (&mut copy.log, &mut core.scratch.dead);
        if let Ok(outcome) = commit_ending(log, state, (term.epoch, Purpose::Unblocking), (&ending, &result), dead) {
            site.core.want_durable(&mut term.shipping, outcome.end);
        }
    }
}

/// The participant's words leave, one message for each shard that hears some.
pub(super) fn speak(reasons: &mut Reasons, site: &mut Site<'_>, now: Tick, out: &mut Effects) {
    let Site { copy, state, core } = site;
    let mut by_shard: BTreeMap<ShardId, Vec<WordOf>> = BTreeMap::new();
    for (to, word) in state.distributed.participant.take_words() {
        let lease_expiry = state.distributed.lease_expiry_of(word.rpc).unwrap_or(ClusterTime(0));
        if let Some(word) = reasons.pass(to, told(word, lease_expiry), &state.distributed, now) {
            by_shard.entry(to).or_default().push(word);
        }
    }
    for (to, word) in reasons.take_late(&state.distributed, now) {
        by_shard.entry(to).or_default().push(word);
    }
    let configuration = core.configuration.as_deref().expect("a configuration promoted us");
    for (to, mut words) in by_shard {
        let primary = configuration.shard(to).and_then(|config| configuration.core_of(config.primary, to));
        let Some(primary) = primary else { continue };
        while !words.is_empty() {
            let left = words.split_off(words.len().min(WORDS_PER_MESSAGE));
            let words = Words { to, from: copy.shard, words: std::mem::replace(&mut words, left) };
            if primary == core.id() {
                core.words.push(words);
            } else {
                send(Endpoint::Core(primary), &words, Gate::Now, out);
            }
        }
    }
}

/// Above it no timestamp is heard, and none is proposed. A core that has never heard the time has no such limit.
pub(crate) fn latest_timestamp(now: ClusterTime) -> Timestamp {
    if now == ClusterTime(0) {
        return Timestamp(u64::MAX);
    }
    Timestamp(now.after_millis(AHEAD_MILLIS_MAX).0.saturating_mul(1000))
}

fn is_heard(word: &WordOf, latest: Timestamp) -> bool {
    match word.told {
        Told::Proposed(at) | Told::Executed { at, .. } => at <= latest.0,
        Told::Conflict | Told::Abort | Told::Never => true,
    }
}

fn told(word: Word, lease_expiry: ClusterTime) -> WordOf {
    let told = match word.said {
        Said::Proposed(at) => Told::Proposed(at.0),
        Said::Executed { at, recorded, settled } => Told::Executed { at: at.0, recorded, settled },
        Said::Against(Why::Conflict) => Told::Conflict,
        Said::Against(Why::Abort) => Told::Abort,
        Said::Never => Told::Never,
    };
    let Word { rpc, body, asks, participants, behind, .. } = word;
    let behind = behind.into_iter().map(|Behind { rpc, body }| BehindWhat { rpc, body: BodyHash(body) }).collect();
    WordOf { rpc, body: BodyHash(body), lease_expiry, told, asks, participants, behind, reason: Vec::new() }
}

fn word_of(word: WordOf) -> Word {
    let said = match word.told {
        Told::Proposed(at) => Said::Proposed(Timestamp(at)),
        Told::Executed { at, recorded, settled } => Said::Executed { at: Timestamp(at), recorded, settled },
        Told::Conflict => Said::Against(Why::Conflict),
        Told::Abort => Said::Against(Why::Abort),
        Told::Never => Said::Never,
    };
    let WordOf { rpc, body, asks, participants, behind, .. } = word;
    let behind = behind.into_iter().map(|BehindWhat { rpc, body }| Behind { rpc, body: body.0 }).collect();
    Word { rpc, body: body.0, said, asks, participants, behind }
}
