//! What a serving primary does besides answering: garbage collection at witnesses, expiry of leases and operation keys,
//! dropped tables, freed segments, and closing a witness list. All of it is bounded per turn and delays no answer, but
//! for a dropped table, which costs a pass over the shard's keys.

use std::collections::VecDeque;

use kasha_exactly_once::{ExpiryFloorEntry, ScanCursor};
use kasha_log::{EntryKind, EntryOffset, Log, Purpose, entry_bytes};
use kasha_machine::{Effect, Effects, Endpoint, Gate};
use kasha_replication::Company;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ClientId, ClusterTime, CoreId, KeyHash, ListVersion, NodeId, RpcId, SegmentId, ShardId, Tick, Work};
use kasha_wire::message::{GcEntry, LeaseInfo, Message};
use kasha_wire::{Body, Configuration, ShardConfig};

use crate::cleaner::Cleaner;
use crate::core::{Core, send};
use crate::operation_keys;
use crate::primary::Stage;
use crate::replica::{Replica, Role};
use crate::request_path::Replayed;
use crate::state::ShardState;

/// Unsynced keys and operations a primary takes before it says "busy": bounds what is held for gates.
pub(crate) const UNSYNCED_OPERATIONS_MAX: usize = 65_536;
/// Names kept for a silent witness; beyond, they are dropped, and suspects bring them back (section 6).
const GC_BACKLOG_MAX: usize = 4096;
/// Clients asked about at once.
const LEASE_QUESTIONS_MAX: usize = 256;
/// Tracker states looked at in one housekeeping round.
const LEASE_SCAN_MAX: u32 = 4096;

/// Counts since the term began. For status; nothing decides by them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    pub updates: u64,
    pub reads: u64,
    pub fast_answers: u64,
    pub gated_answers: u64,
    pub duplicates_suppressed: u64,
    pub refusals: u64,
}

/// A key that an unsynced operation touched.
#[derive(Clone, Copy, Debug)]
struct Touched {
    end: u64,
    entry: GcEntry,
}

/// One witness of the current list.
#[derive(Debug)]
struct WitnessLink {
    core: CoreId,
    /// The gc under way.
    in_flight: Option<(u64, Tick)>,
    /// A round began while it was: the backlog waits for no other.
    missed_company: bool,
    backlog: Vec<GcEntry>,
}

/// Clients whose records go once the floor's entry is synced (R4.6).
#[derive(Debug)]
struct PendingFloor {
    at: EntryOffset,
    end: u64,
    floor: ClusterTime,
    clients: Vec<ClientId>,
}

/// A serving primary's state beside log and shipping.
#[derive(Debug)]
pub(crate) struct Serving {
    pub list: ListVersion,
    /// Whether answers may leave before they are synced (R6.1).
    pub fast_path: bool,
    pub has_enough_members: bool,
    /// An unsynced operation on everything ends here: every later one overlaps with it (R5.1).
    pub everything_until: u64,
    /// An operation key's unsynced expiry ends here: whoever finds the key gone waits for it (R5.2).
    pub keys_dropped_until: u64,
    pub counters: Counters,
    pub cleaner: Cleaner,
    /// An answer of this turn waits for our own file (R7.7).
    pub writes_own_file: bool,
    /// The configuration's list; `list` is none while it is being closed.
    committed_list: ListVersion,
    /// The process is asked to stop: no answer leaves any more before it is synced, and no list is used (R7.7).
    stopping: bool,
    /// The list is being closed: it is, once this is synced (R6.2).
    closing_at: Option<u64>,
    touched: VecDeque<Touched>,
    witnesses: Vec<WitnessLink>,
    gc_round: u64,
    lease_questions: Vec<ClientId>,
    asked_older_than: ClusterTime,
    lease_scan: ScanCursor,
    pending_floor: Option<PendingFloor>,
    /// Segments were freed, or one was filled: some tombstones may be needed no more.
    graves_due: bool,
    /// The segment that was being filled at the last housekeeping.
    filling: SegmentId,
    housekeeping_at: Tick,
}

fn links(core: &Core, config: &ShardConfig) -> Vec<WitnessLink> {
    let configuration = core.configuration.as_ref().expect("a configuration promoted us");
    let cores = config.witnesses.iter().filter_map(|&node| configuration.core_of(node, config.shard));
    cores.map(|core| WitnessLink { core, in_flight: None, missed_company: false, backlog: Vec::new() }).collect()
}

fn has_enough_members(configuration: &Configuration, config: &ShardConfig) -> bool {
    config.members.len() > usize::from(configuration.min_backups) || planted::is_on(Bug::TooFewMembersSync)
}

impl Serving {
    pub fn new(core: &Core, config: &ShardConfig, end: u64) -> Self {
        let mut serving = Self {
            list: config.list,
            fast_path: false,
            has_enough_members: false,
            everything_until: 0,
            keys_dropped_until: 0,
            committed_list: config.list,
            counters: Counters::default(),
            cleaner: Cleaner::new(end),
            writes_own_file: false,
            stopping: false,
            closing_at: None,
            touched: VecDeque::new(),
            witnesses: links(core, config),
            gc_round: 0,
            lease_questions: Vec::new(),
            asked_older_than: ClusterTime(0),
            lease_scan: ScanCursor::default(),
            pending_floor: None,
            graves_due: true,
            filling: SegmentId(0),
            housekeeping_at: Tick(0),
        };
        serving.update(core, config, end);
        serving
    }

    /// A newer configuration of the same term.
    pub fn update(&mut self, core: &Core, config: &ShardConfig, end: u64) {
        let configuration = core.configuration.as_ref().expect("a configuration promoted us");
        self.has_enough_members = has_enough_members(configuration, config);
        if config.list != self.committed_list {
            (self.list, self.committed_list) = (config.list, config.list);
            self.witnesses = links(core, config);
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

    /// The process is asked to stop.
    pub fn begin_stop(&mut self, core: &Core, config: &ShardConfig, end: u64) {
        self.stopping = true;
        self.update(core, config, end);
    }

    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Whether the committed list names no witness: no recovery will need one.
    pub fn has_empty_list(&self) -> bool {
        self.witnesses.is_empty()
    }

    /// A logged floor that may not be synced yet, and where its entry ends (R4.6).
    pub fn pending_floor(&self) -> Option<(ClusterTime, u64)> {
        self.pending_floor.as_ref().map(|pending| (pending.floor, pending.end))
    }

    /// Up to where our own work waits for a sync.
    pub fn wanted_synced(&self) -> u64 {
        let floor = self.pending_floor.as_ref().map(|pending| pending.end);
        [self.closing_at, floor].into_iter().flatten().max().unwrap_or(0)
    }

    pub fn list_is_closed(&self, synced: u64) -> bool {
        let only_closes = self.stopping && planted::is_on(Bug::StopOnlyCloses);
        self.closing_at.is_some_and(|at| synced >= at || planted::is_on(Bug::ListClosedUnsynced) || only_closes)
    }

    /// The role is lost: what a follower's replay would have done by now.
    pub fn settle_for_follower(self, log: &mut Log, state: &mut ShardState) {
        if let Some(pending) = self.pending_floor {
            hit(Probe::DeposedWithPendingFloor);
            let mut dead = Vec::new();
            state.raise_floor(pending.floor, pending.clients, pending.at, &mut dead);
            for at in dead {
                log.kill(at);
            }
        }
    }

    /// Whether no floor waits for its sync.
    pub fn is_settled(&self) -> bool {
        self.pending_floor.is_none()
    }

    pub fn unsynced_operations(&self) -> usize {
        self.touched.len()
    }

    pub fn next_deadline(&self) -> Option<Tick> {
        Some(if self.cleaner.is_busy() { Tick(0) } else { self.housekeeping_at })
    }

    /// An update was recorded; its names go to the witnesses once it is synced.
    pub fn executed(&mut self, end: u64, rpc: RpcId, footprint: &[KeyHash]) {
        self.counters.updates += 1;
        self.touched.extend(footprint.iter().map(|&key| Touched { end, entry: GcEntry { key, rpc } }));
    }

    pub fn ask_lease(&mut self, client: ClientId) {
        if self.lease_questions.len() < LEASE_QUESTIONS_MAX && !self.lease_questions.contains(&client) {
            self.lease_questions.push(client);
        }
    }

    /// What is synced is to be named to every witness.
    fn note_synced(&mut self, synced: u64) {
        while let Some(touched) = self.touched.front().filter(|touched| touched.end <= synced) {
            for link in &mut self.witnesses {
                if link.backlog.len() < GC_BACKLOG_MAX {
                    link.backlog.push(touched.entry);
                }
            }
            self.touched.pop_front();
        }
    }

    /// Names it; one gc is under way at each witness (CURP 4.5), and leaves with a round where one is near.
    fn collect_garbage(
        &mut self,
        core: &Core,
        now: Tick,
        (shard, list): (ShardId, ListVersion),
        floor: ClusterTime,
        company: Company,
        out: &mut Effects,
    ) {
        let patience = core.options.pace.retry * 4;
        for link in &mut self.witnesses {
            if link.in_flight.is_some_and(|(_, sent)| now.since(sent) < patience) {
                link.missed_company |= company == Company::Now && !link.backlog.is_empty();
                continue;
            }
            if link.backlog.is_empty() || (company == Company::Soon && !link.missed_company) {
                continue;
            }
            link.missed_company = false;
            if link.in_flight.is_some() {
                hit(Probe::GcUnanswered);
            }
            self.gc_round += 1;
            link.in_flight = Some((self.gc_round, now));
            let entries = std::mem::take(&mut link.backlog);
            let message = Message::Gc { shard, list, round: self.gc_round, floor, entries };
            send(Endpoint::Core(link.core), &message, Gate::Now, out);
            if let Message::Gc { mut entries, .. } = message {
                entries.clear();
                link.backlog = entries; // its memory is used again
            }
        }
    }

    fn on_gc_done(&mut self, node: NodeId, round: u64) -> bool {
        let link = self.witnesses.iter_mut().find(|link| link.core.node == node);
        match link {
            Some(link) if link.in_flight.is_some_and(|(sent, _)| sent == round) => {
                link.in_flight = None;
                true
            }
            Some(_) | None => false,
        }
    }
}

impl Replica {
    /// A witness dropped what was named, and names suspects (CURP 4.5): they go through `look_up`, are synced, and are
    /// named in a later gc. One that is stale, expired or not ours can be dropped at once.
    pub fn on_gc_done(
        &mut self,
        core: &mut Core,
        node: NodeId,
        list: ListVersion,
        round: u64,
        suspects: &[kasha_wire::codec::Bytes],
    ) {
        let Some(Stage::Serving(serving)) = self.primary_mut().map(|primary| &mut primary.stage) else { return };
        if serving.committed_list != list || !serving.on_gc_done(node, round) {
            return;
        }
        for suspect in suspects {
            if !planted::is_on(Bug::SuspectDropped) && self.on_suspect(core, &suspect.0) == Replayed::NotNow {
                continue; // it stays where it is, and is named again
            }
            // Recorded or not, it goes with the next gc after a sync: what made it stale may itself not be synced yet.
            let end = self.log.end().offset;
            let Ok(body) = Body::decode(&suspect.0) else { continue };
            let mut hashes = Vec::new();
            body.footprint(&mut hashes);
            let Some(Stage::Serving(serving)) = self.primary_mut().map(|primary| &mut primary.stage) else { return };
            let rpc = body.head.rpc;
            serving.touched.extend(hashes.into_iter().map(|key| Touched { end, entry: GcEntry { key, rpc } }));
        }
    }

    /// Once a turn, before what the turn appended is shipped.
    pub fn clean(&mut self, out: &mut Effects) {
        let Self { shard, log, state, role: Role::Primary(primary), .. } = self else { return };
        let (epoch, synced) = (primary.epoch, primary.shipping.synced());
        let Stage::Serving(serving) = &mut primary.stage else { return };
        if serving.stopping {
            return;
        }
        if serving.pending_floor.is_some() {
            return hit(Probe::CleaningWaitsForFloor); // R5.11
        }
        if let Err(damaged) = serving.cleaner.clean(log, state, epoch, synced) {
            let why = format!(
                "{shard}: the memory of this machine does not hold what was written at {} of the log: another member \
                 takes over; test the memory before this node is started again (K0115)",
                damaged.at
            );
            let why = out.span(why.as_bytes());
            out.push(Effect::Stop(why));
        }
    }

    /// Once a turn, while serving.
    pub fn serve_turn(&mut self, core: &mut Core, now: Tick, out: &mut Effects) {
        let (shard, floor) = (self.shard, self.state.tracker.floor().time());
        let Role::Primary(primary) = &mut self.role else { return };
        let (synced, list) = (primary.shipping.synced(), primary.list);
        let Stage::Serving(serving) = &mut primary.stage else { return };
        let collected = if planted::is_on(Bug::GcBeforeSync) { u64::MAX } else { synced };
        serving.note_synced(collected);
        let company = primary.shipping.company(self.log.end().offset);
        serving.collect_garbage(core, now, (shard, list), floor, company, out);
        if now >= serving.housekeeping_at {
            serving.housekeeping_at = now.after(core.options.flush_interval);
            self.keep_house(core, synced, out);
        }
    }

    fn serving_mut(&mut self) -> &mut Serving {
        match self.primary_mut().map(|primary| &mut primary.stage) {
            Some(Stage::Serving(serving)) => serving,
            Some(_) | None => unreachable!("only a serving primary keeps house"),
        }
    }

    fn keep_house(&mut self, core: &mut Core, synced: u64, out: &mut Effects) {
        self.free_segments(core, synced);
        self.drop_tombstones(core);
        self.expire_operation_keys(core);
        self.settle_floor(core, synced);
        self.drop_tables(core);
        self.ask_about_leases(core, out);
    }

    /// Segments without a live byte are freed here, and, when the word of it is synced, everywhere (section 5).
    fn free_segments(&mut self, core: &mut Core, synced: u64) {
        let synced = if planted::is_on(Bug::FreedBeforeSynced) { u64::MAX } else { synced };
        let epoch = self.meta.promised;
        self.known_synced = self.known_synced.max(synced);
        let retired = self.log.retired(synced).is_some();
        self.free_retired(core, synced);
        let filling = self.log.segment_of(self.log.end().offset);
        let serving = self.serving_mut();
        let filled = std::mem::replace(&mut serving.filling, filling) != filling;
        serving.graves_due |= retired || filled;
        while let Some(segment) = self.log.freeable(synced) {
            let Ok(mut group) = self.log.begin(epoch, entry_bytes(4), Purpose::Own) else { return };
            group.segment_freed(segment);
            group.commit();
        }
    }

    /// Tombstones that name only segments that are gone: a version floor takes over, and whoever is told a version that it
    /// decides waits for its entry ([`kasha_store::Store::newest`], R4.8).
    fn drop_tombstones(&mut self, core: &mut Core) {
        let epoch = self.meta.promised;
        if !std::mem::take(&mut self.serving_mut().graves_due) {
            return;
        }
        core.work.add(Work::Graves);
        let Self { log, state, role: Role::Primary(primary), .. } = self else { return };
        let held: Vec<_> = log.segments().map(|(id, _)| id).collect();
        let is_gone = |id| held.binary_search(&id).is_err();
        let Some(floor) = state.store.wanted_version_floor(is_gone) else { return };
        let Ok(mut group) = log.begin(epoch, entry_bytes(8), Purpose::Own) else { return };
        let (at, payload) = group.entry(EntryKind::VersionFloor, 8);
        payload.copy_from_slice(&floor.to_le_bytes());
        primary.shipping.want_synced(group.commit().end.offset); // before somebody waits for it
        hit(Probe::VersionFloor);
        let dead = &mut core.scratch.dead;
        dead.clear();
        state.store.replay_version_floor(at, &floor.to_le_bytes(), |at| dead.push(at));
        state.store.drop_graves(is_gone, |at| dead.push(at));
        for at in dead.drain(..) {
            log.kill(at);
        }
    }

    fn expire_operation_keys(&mut self, core: &mut Core) {
        let epoch = self.meta.promised;
        let (log, state, dead) = (&mut self.log, &mut self.state, &mut core.scratch.dead);
        if let Some(end) = operation_keys::drop_some_expired(log, state, epoch, core.cluster_time, dead) {
            self.serving_mut().keys_dropped_until = end;
        }
    }

    /// The floor's entry is synced: now the expired clients' records may go (R4.6 \[M\]).
    fn settle_floor(&mut self, core: &mut Core, synced: u64) {
        let pending = &mut self.serving_mut().pending_floor;
        let Some(pending) = pending.take_if(|pending| pending.end <= synced || planted::is_on(Bug::FloorSettledEarly))
        else {
            return;
        };
        let dead = &mut core.scratch.dead;
        dead.clear();
        self.state.raise_floor(pending.floor, pending.clients, pending.at, dead);
        for at in dead.drain(..) {
            self.log.kill(at);
        }
    }

    fn ask_about_leases(&mut self, core: &Core, out: &mut Effects) {
        let patience = core.options.client_lease_millis;
        let older_than = ClusterTime(core.cluster_time.0.saturating_sub(patience));
        let Role::Primary(primary) = &mut self.role else { return };
        let Stage::Serving(serving) = &mut primary.stage else { return };
        let mut clients = std::mem::take(&mut serving.lease_questions);
        if serving.pending_floor.is_none() && older_than > ClusterTime(0) {
            let idle = self.state.tracker.idle_candidates(older_than, &mut serving.lease_scan, LEASE_SCAN_MAX);
            serving.asked_older_than = older_than;
            if planted::is_on(Bug::ExpiryByClock) {
                return self.on_lease_verdict(&idle, &[]);
            }
            clients.extend(idle.into_iter().take(LEASE_QUESTIONS_MAX));
        }
        if !clients.is_empty() {
            send(Endpoint::Coordinator, &Message::LeaseQuery { clients }, Gate::Now, out);
        }
    }

    /// The coordinator's verdict on leases: the only ground for dropping a client's records (R4.6).
    pub fn on_lease_verdict(&mut self, expired: &[ClientId], alive: &[LeaseInfo]) {
        let Role::Primary(primary) = &mut self.role else { return };
        let epoch = primary.epoch;
        let Stage::Serving(serving) = &mut primary.stage else { return };
        for info in alive {
            self.state.tracker.prove(info.client, info.expiry);
        }
        // The floor is no higher than needed: it also refuses old bodies of clients that are alive.
        let ended = |client| self.state.tracker.lease_expiry_of(client).filter(|&end| end < serving.asked_older_than);
        let known: Vec<_> = expired.iter().copied().filter(|&client| ended(client).is_some()).collect();
        let Some(floor) = known.iter().filter_map(|&client| ended(client)).max() else { return };
        // The newest entry is the only one that lives: it must say all that the earlier ones said (F2).
        let floor = floor.max(self.state.tracker.floor().time());
        if serving.pending_floor.is_some() {
            return;
        }
        let entry = ExpiryFloorEntry { floor, clients: &known };
        let Ok(mut group) = self.log.begin(epoch, entry_bytes(entry.encoded_len()), Purpose::Own) else { return };
        let (at, payload) = group.entry(EntryKind::ExpiryFloor, entry.encoded_len());
        entry.encode_into(payload);
        let end = group.commit().end.offset;
        hit(Probe::FloorLogged);
        serving.pending_floor = Some(PendingFloor { at, end, floor, clients: known });
    }

    /// Tables that the configuration no longer has: what they held goes, and until that is synced everything overlaps
    /// with it (R5.1).
    pub fn drop_tables(&mut self, core: &mut Core) {
        let Some(configuration) = core.configuration.clone() else { return };
        let Role::Primary(primary) = &mut self.role else { return };
        let epoch = primary.epoch;
        let Stage::Serving(serving) = &mut primary.stage else { return };
        let gone: Vec<_> = (self.state.store.tables())
            .filter(|&table| configuration.tables.iter().all(|info| info.table != table))
            .collect();
        for table in gone {
            let Ok(mut group) = self.log.begin(epoch, entry_bytes(4), Purpose::Own) else { return };
            let (at, payload) = group.entry(EntryKind::TableDropped, 4);
            hit(Probe::TableDropped);
            core.work.add(Work::DropTable);
            payload.copy_from_slice(&table.0.to_le_bytes());
            serving.everything_until = group.commit().end.offset;
            let dead = &mut core.scratch.dead;
            dead.clear();
            self.state.replay(&self.log, at, dead);
            for at in dead.drain(..) {
                self.log.kill(at);
            }
        }
    }
}
