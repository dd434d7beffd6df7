//! What a serving primary knows beside log and shipping: under which list it serves, whom its answers may leave to at once,
//! and when that list is closed (R6.1, R6.2).
//!
//! | file | what it does besides answering |
//! |---|---|
//! | `again` | lets what waited come in again |
//! | `conflicts` | knows what is not synced, and who must wait for it |
//! | `garbage` | names to the witnesses what is synced |
//! | `leases` | expiry of clients' leases |
//! | `distributed` | transactions over several shards: steps, words, clients |
//! | `turns` | who has waited longest goes first |
//! | `waiting` | keeps updates, reads and answers that wait for something that will come |
//! | `house` | what is done now and then: freed segments, tombstones, expired operation keys and values, dropped tables |
//!
//! All of it is bounded per turn and delays no answer.

mod again;
pub(crate) mod cleaner;
mod conflicts;
mod distributed;
mod garbage;
mod house;
mod leases;
mod relocation;
mod turns;
pub(crate) mod waiting;

use kasha_distributed::{GateId, Turns};
use kasha_log::Log;
use kasha_machine::{Effect, Effects, Gate};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{Epoch, KeyHash, ListVersion, LogEnd, RpcId, ShardId, Tick, Work};
use kasha_wire::{Configuration, ShardConfig};

use crate::core::Core;
use crate::serving::cleaner::Cleaner;
pub(crate) use crate::serving::conflicts::{Conflicts, Sees};
use crate::serving::distributed::DistributedWork;
pub(crate) use crate::serving::distributed::{as_kept, latest_timestamp, slots_of};
use crate::serving::garbage::Garbage;
use crate::serving::house::House;
use crate::serving::leases::Leases;
use crate::serving::waiting::Waiting;
use crate::shard::expiry::Expiry;
use crate::shard::site::Site;
use crate::shard::state::ShardState;
use crate::shard::term::Term;

/// Unsynced keys and operations a primary takes before it says "busy": bounds what is held for gates.
pub(crate) const UNSYNCED_OPERATIONS_MAX: usize = 65_536;

/// Counts since the term began. For status; nothing decides by them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub updates: u64,
    pub reads: u64,
    pub fast_answers: u64,
    pub gated_answers: u64,
    pub duplicates_suppressed: u64,
    pub repeats_suppressed: u64,
    pub refusals: u64,
}

/// A serving primary's state beside log and shipping.
#[derive(Debug)]
pub(crate) struct Serving {
    pub list: ListVersion,
    /// Whether answers may leave before they are synced (R6.1).
    pub fast_path: bool,
    pub has_enough_members: bool,
    pub conflicts: Conflicts,
    pub counters: Counters,
    pub cleaner: Cleaner,
    /// An answer of this turn waits for our own file (R7.7).
    pub writes_own_file: bool,
    /// The configuration's list; `list` is none while it is being closed.
    committed_list: ListVersion,
    /// The process is asked to stop: no answer leaves any more before it is synced, and no list is used (R7.7).
    stopping: bool,
    /// The list is being closed: it is, once this is synced (R6.2).
    closing_at: Option<LogEnd>,
    garbage: Garbage,
    pub leases: Leases,
    pub waiting: Waiting,
    pub distributed: DistributedWork,
    /// Those that have lost to others, and wait for their turn (0047).
    pub turns: Turns,
    pub expiry: Expiry,
    house: House,
}

fn has_enough_members(configuration: &Configuration, config: &ShardConfig) -> bool {
    config.members.len() > usize::from(configuration.min_backups) || planted::is_on(Bug::TooFewMembersSync)
}

impl Serving {
    pub fn new(core: &Core, state: &ShardState, config: &ShardConfig, end: LogEnd) -> Self {
        let mut serving = Self {
            list: config.list,
            fast_path: false,
            has_enough_members: false,
            conflicts: Conflicts::default(),
            counters: Counters::default(),
            cleaner: Cleaner::new(end),
            writes_own_file: false,
            committed_list: config.list,
            stopping: false,
            closing_at: None,
            garbage: Garbage::new(core, config),
            leases: Leases::default(),
            waiting: Waiting::default(),
            distributed: DistributedWork::begin(&state.distributed),
            turns: Turns::default(),
            expiry: Expiry::default(),
            house: House::default(),
        };
        serving.update(core, config, end);
        serving
    }

    /// A newer configuration of the same term.
    pub fn update(&mut self, core: &Core, config: &ShardConfig, end: LogEnd) {
        let configuration = core.configuration.as_ref().expect("a configuration promoted us");
        self.has_enough_members = has_enough_members(configuration, config);
        if config.list != self.committed_list {
            (self.list, self.committed_list) = (config.list, config.list);
            self.garbage.set_witnesses(core, config);
            self.closing_at = None;
        }
        if config.closing || (self.stopping && !config.witnesses.is_empty()) {
            // R6.2 [M]: first the old list is refused and every answer gated; what was answered before is synced next.
            hit(Probe::ListClosing);
            self.list = if planted::is_on(Bug::ClosingListAnswers) { self.list } else { ListVersion::NONE };
            self.closing_at.get_or_insert(end);
        }
        let answers_on = config.closing && planted::is_on(Bug::ClosingListAnswers);
        self.fast_path = (config.has_fast_path(configuration.faults) && !self.stopping) || answers_on;
    }

    /// The process is asked to stop: the list is closed for good.
    pub fn begin_stop(&mut self, core: &Core, config: &ShardConfig, end: LogEnd) {
        self.stopping = true;
        self.update(core, config, end);
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Whether the committed list names no witness: no recovery will need one.
    pub fn has_empty_list(&self) -> bool {
        self.garbage.has_no_witness()
    }

    /// Up to where our own work waits for a sync.
    pub fn wanted_synced(&self) -> LogEnd {
        let floor = self.leases.pending_floor().map(|(_, end)| end);
        [self.closing_at, floor].into_iter().flatten().max().unwrap_or(LogEnd::START)
    }

    pub fn list_is_closed(&self, synced: LogEnd) -> bool {
        let only_closes = self.stopping && planted::is_on(Bug::StopOnlyCloses);
        self.closing_at.is_some_and(|at| synced >= at || planted::is_on(Bug::ListClosedUnsynced) || only_closes)
    }

    /// The role is lost: what a follower's replay would have done by now.
    pub fn settle_for_follower(self, log: &mut Log, state: &mut ShardState) {
        self.leases.settle_for_follower(log, state);
    }

    pub fn unsynced_operations(&self) -> usize {
        self.garbage.unsynced()
    }

    pub fn next_deadline(&self, state: &ShardState) -> Option<Tick> {
        let distributed = self.distributed.next_deadline(&state.distributed);
        let memory = self.waiting.memory_due_at();
        let next = memory.into_iter().chain(distributed).chain(self.next_lapse()).min();
        Some(if self.cleaner.is_busy() {
            Tick(0)
        } else {
            next.map_or(self.house.due_at(), |at| at.min(self.house.due_at()))
        })
    }

    /// Answers the client of a transaction over several shards, if one waits.
    pub fn answer(
        &mut self,
        transaction: (ShardId, Epoch, RpcId),
        result: (&[u8], bool),
        (gate, when): (Option<GateId>, Gate),
        out: &mut Effects,
    ) {
        let gate = gate.map(|gate| (gate, &mut self.waiting));
        self.distributed.callers.answer(transaction, result, (gate, when), out);
    }

    /// An update was recorded: until it is synced it conflicts with what touches the keys that it changed, and then its names
    /// go to the witnesses.
    pub fn executed(
        &mut self,
        (end, synced): (LogEnd, LogEnd),
        rpc: RpcId,
        changed: impl Iterator<Item = KeyHash>,
        footprint: &[KeyHash],
    ) {
        self.counters.updates += 1;
        changed.for_each(|key| self.conflicts.change(key, end, synced));
        self.garbage.add(end, rpc, footprint);
    }

    /// What was recorded has flushed a table: until that is synced everything overlaps with it (R5.1).
    #[cold]
    pub fn flushed(&mut self, end: LogEnd) {
        self.conflicts.change_everything(end);
    }

    /// Witnesses hold this request under these keys. A gc names it when the log is synced up to `end`.
    pub fn name_when_synced(&mut self, end: LogEnd, rpc: RpcId, footprint: &[KeyHash]) {
        self.garbage.add(end, rpc, footprint);
    }

    /// Once a turn, before what the turn appended is shipped.
    pub fn clean(&mut self, term: &Term, site: &mut Site<'_>, out: &mut Effects) {
        if self.stopping {
            return;
        }
        // R5.11. A copy would also get behind the entry that drops its table.
        if self.leases.pending_floor().is_some() || site.state.has_unfinished() {
            hit(Probe::CleaningWaitsForFloor);
            return self.cleaner.wait_for_floor();
        }
        let Site { copy, state, core } = site;
        let cleaned = self.cleaner.clean(&mut copy.log, state, term.epoch, term.shipping.synced());
        if self.cleaner.is_busy() {
            core.work.add(Work::Clean);
        }
        if let Err(damaged) = cleaned {
            let why = format!(
                "{}: the memory of this machine does not hold what was written at {} of the log: another member takes \
                 over; test the memory before this node is started again (K0115)",
                copy.shard, damaged.at
            );
            let why = out.span(why.as_bytes());
            out.push(Effect::Stop(why));
        }
    }

    /// Ends a turn: sends gcs, asks about leases, and tidies up.
    pub fn end_turn(&mut self, term: &mut Term, site: &mut Site<'_>, now: Tick, out: &mut Effects) {
        let synced = term.shipping.synced();
        self.garbage.note_synced(if planted::is_on(Bug::GcBeforeSync) { LogEnd::MAX } else { synced });
        let company = term.shipping.company(site.copy.log.end().offset);
        let floor = site.state.tracker.floor().time();
        self.garbage.collect(site.core, now, (site.copy.shard, term.list), floor, company, out);
        self.tidy_up(term, site);
        self.leases.ask_at_once(site.core.coordinator.leader(), out);
        if self.house.is_due(now, site.core.options.flush_interval) {
            self.keep_house(term, site, out);
        }
    }
}
