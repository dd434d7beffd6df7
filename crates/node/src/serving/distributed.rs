//! Transactions over several shards at a serving primary (section 8), once a turn, before the log is shipped. What the log says
//! is in the shard's state ([`Distributed`]); what is lost with the term is here.
//!
//! | file | its part |
//! |---|---|
//! | `callers` | the clients that wait for outcomes |
//! | `reasons` | why a transaction with an operation key was not committed |
//! | `steps` | what the participant says is to be done next: executions and refusals |
//! | `words` | what participants tell one another |
//!
//! - **R8.1** A proposal is synced at once: the votes wait for it.
//! - **R8.9** What nobody needs any more is forgotten, many at a time, with one entry.

mod callers;
mod reasons;
mod steps;
mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use kasha_log::{EntryKind, Full, Purpose};
use kasha_machine::Effects;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ClusterTime, RpcId, ShardId, Tick};
use kasha_wire::Body;
use kasha_wire::status::PendingTransaction;

use crate::request::Condition;
use crate::serving::Serving;
use crate::serving::distributed::callers::Callers;
use crate::serving::distributed::reasons::Reasons;
pub(crate) use crate::serving::distributed::reasons::as_kept;
pub(crate) use crate::serving::distributed::words::latest_timestamp;
use crate::serving::distributed::words::speak;
use crate::shard::distributed::Distributed;
use crate::shard::site::Site;
use crate::shard::term::Term;

/// How long a participant waits before it asks the others again, and how often it looks for what its clients have let go.
const PATIENCE: Duration = Duration::from_millis(25);
/// How long a step waits for room before the node stops, as one that cannot write its log.
const ROOM_PATIENCE: Duration = Duration::from_secs(10);
/// How often it is logged what is forgotten, and how many are worth it earlier.
const FORGET_INTERVAL: Duration = Duration::from_millis(500);
const FORGOTTEN_MANY: usize = 256;
/// Pending transactions that status names.
const NAMED_MAX: usize = 8;

/// What a term knows of transactions beside the shard's state.
#[derive(Debug)]
pub(crate) struct DistributedWork {
    pub callers: Callers,
    /// Since when others ask about transactions that never came.
    asked_about: BTreeMap<RpcId, Tick>,
    reasons: Reasons,
    /// The version floor is to rise. Until it has, no client is told a version that the floor decides.
    floor_waits: bool,
    /// Since when some step has found no room.
    without_room_since: Option<Tick>,
    ask_at: Tick,
    forget_at: Tick,
}

impl DistributedWork {
    /// A term begins to serve.
    pub fn begin(distributed: &Distributed) -> Self {
        // An earlier term may have executed what it has proposed.
        let mut callers = Callers::default();
        distributed.known().for_each(|(rpc, _)| callers.hold_floor(rpc));
        Self {
            callers,
            asked_about: BTreeMap::new(),
            reasons: Reasons::default(),
            floor_waits: false,
            without_room_since: None,
            ask_at: Tick(0),
            forget_at: Tick(0),
        }
    }

    /// Whether the client of what is prepared may be told versions that the version floor decides: from there a key without a value
    /// gets its version (R4.8). The floor stays until the transaction is pending no more.
    pub fn try_hold_floor(&mut self, rpc: RpcId) -> bool {
        if !self.floor_waits {
            self.callers.hold_floor(rpc);
        }
        !self.floor_waits
    }

    /// Whether the version floor may rise: nothing that holds it is pending. `is_wanted`: the floor is to rise. If it may not yet, no
    /// further transaction may hold it back.
    pub fn lets_floor_rise(&mut self, distributed: &Distributed, is_wanted: bool) -> bool {
        let is_held = self.callers.is_floor_held(|rpc| distributed.participant.is_pending(rpc));
        let may_rise = !is_held || planted::is_on(Bug::FloorRaisedOverPending);
        self.floor_waits = is_wanted && !may_rise;
        may_rise
    }

    /// When its next turn is, if the shard knows transactions.
    pub fn next_deadline(&self, distributed: &Distributed) -> Option<Tick> {
        let late = self.reasons.next_late().unwrap_or(self.ask_at);
        (!distributed.is_idle()).then_some(self.ask_at.min(late))
    }
}

impl Serving {
    /// Once a turn, before what the turn appended is shipped.
    #[inline]
    pub fn transact(&mut self, term: &mut Term, site: &mut Site<'_>, now: Tick, out: &mut Effects) {
        if !site.state.distributed.is_idle() || self.has_turns() {
            self.transact_some(term, site, now, out);
        }
    }

    #[cold]
    fn transact_some(&mut self, term: &mut Term, site: &mut Site<'_>, now: Tick, out: &mut Effects) {
        let durable = term.durable(site.core, site.copy);
        let participant = &mut site.state.distributed.participant;
        participant.on_synced(term.shipping.synced());
        participant.on_durable(durable);
        let mut are_freed = false;
        loop {
            while let Some(step) = site.state.distributed.participant.next_step() {
                match self.take_step(term, site, step, out) {
                    Ok(()) => {}
                    // No segment ever takes it.
                    Err(Full::Group) => return site.copy.stop_for_memory(out),
                    Err(Full::Memory | Full::Cleaning) => site.state.distributed.participant.put_off(),
                }
            }
            let released = site.state.distributed.participant.take_released();
            are_freed |= !released.is_empty();
            self.waiting.open_distributed(released);
            let has_run = self.run_ready(term, site, now, out)
                || self.has_turns() && self.take_turns(term, site, (now, are_freed), out);
            if !has_run {
                break;
            }
        }
        if self.waits_too_long_for_room(site, now) {
            return site.copy.stop_for_memory(out);
        }
        self.open_gates(site);
        self.run_ready(term, site, now, out);
        if now >= self.distributed.ask_at {
            // Who only waits for its client waits for nobody else.
            let is_quiet = site.state.distributed.participant.is_quiet();
            self.distributed.ask_at = now.after(if is_quiet { FORGET_INTERVAL } else { PATIENCE });
            site.state.distributed.participant.take_up();
            site.state.distributed.participant.ask_again();
            note_let_go(site);
            // Nobody waits for these outcomes, so that they need no flush of their own.
            if site.state.distributed.participant.waits_to_be_durable() {
                site.core.want_durable(&mut term.shipping, site.copy.log.end().offset);
            }
        }
        self.forget(term, site, now);
        speak(&mut self.distributed.reasons, site, now, out);
    }

    /// Whether a step has found no room for so long that the cleaner will not find it either.
    fn waits_too_long_for_room(&mut self, site: &Site<'_>, now: Tick) -> bool {
        let since = &mut self.distributed.without_room_since;
        if !site.state.distributed.participant.has_put_off() {
            *since = None;
            return false;
        }
        now.since(*since.get_or_insert(now)) >= ROOM_PATIENCE
    }

    fn open_gates(&mut self, site: &mut Site<'_>) {
        let dead = &mut site.core.scratch.dead;
        dead.clear();
        let opened = site.state.distributed.take_opened(dead);
        site.copy.log.kill_all(dead);
        opened.into_iter().for_each(|gate| self.waiting.open(Condition::Gate(gate)));
    }

    /// Logs which transactions are needed no more, and lets go of their entries (R8.9).
    fn forget(&mut self, term: &mut Term, site: &mut Site<'_>, now: Tick) {
        let Site { copy, state, core } = site;
        let own = &mut self.distributed;
        while let Some(rpc) = state.distributed.participant.next_forgotten() {
            own.callers.forget(rpc);
        }
        let gone = state.distributed.gone();
        if gone == 0 || (now < own.forget_at && gone < FORGOTTEN_MANY) {
            return;
        }
        own.forget_at = now.after(FORGET_INTERVAL);
        let (log, dead) = (&mut copy.log, &mut core.scratch.dead);
        let payload = state.distributed.forgotten_now().encode();
        let entry = (EntryKind::DistributedForgotten, payload.len());
        let at = (term.epoch, Purpose::Promised);
        if state.commit_own(log, at, entry, dead, |out| out.copy_from_slice(&payload)).is_ok() {
            hit(Probe::DistributedForgotten);
        }
    }
}

impl Serving {
    /// The transactions that are pending longest, for status.
    pub fn oldest_distributed(&self, distributed: &Distributed) -> Vec<PendingTransaction> {
        let mut pending: Vec<_> = distributed.participant.pending().collect();
        pending.sort_unstable_by_key(|&(rpc, age)| (std::cmp::Reverse(age), rpc));
        pending.truncate(NAMED_MAX);
        let named = pending.into_iter().map(|(rpc, age)| {
            let waits_for = distributed.participant.silent(rpc);
            let waiting = self.waiting.count(Condition::Distributed(rpc));
            let millis = u64::from(age) * PATIENCE.as_millis() as u64;
            PendingTransaction { rpc, millis, waits_for, waiting: waiting as u32 }
        });
        named.collect()
    }
}

/// What clients have acknowledged, or what their leases are over of, they have let go (R8.9).
fn note_let_go(site: &mut Site<'_>) {
    let (state, end) = (&mut *site.state, site.copy.log.end().offset);
    let floor = state.tracker.floor();
    let is_let_go = |rpc: RpcId, lease_expiry: ClusterTime| {
        let acknowledged = state.tracker.acknowledgement_of(rpc.client);
        let is_over = rpc.sequence.0 < acknowledged.0 || floor.refuses(lease_expiry);
        is_over && !state.distributed.is_aborted_behind_gate(rpc)
    };
    let let_go: Vec<_> = state.distributed.known().filter(|&(rpc, expiry)| is_let_go(rpc, expiry)).collect();
    for (rpc, _) in let_go {
        state.distributed.participant.let_go(rpc, end);
    }
}

/// The slots of a participant's own keys.
pub(crate) fn slots_of(body: &Body<'_>, shard: ShardId) -> Vec<kasha_types::Slot> {
    let parts = body.parts_at(shard).expect("it takes part");
    let mut slots = Vec::new();
    parts.iter().for_each(|part| part.operation.for_each_key(|key| slots.push(kasha_types::slot_of(key))));
    slots.sort_unstable();
    slots.dedup();
    slots
}
