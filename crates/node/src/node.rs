//! One core: its start, its turns, and its stop.
//!
//! [`Node`] is the machine that the shells run. Here it is composed of its parts: the replicas and witnesses of its
//! shards, what they share (`core`), and what the core does for all of them (heartbeats, pings, flushes). What a frame
//! means is in `dispatch`; what a replica does with it is in `shard` and the folders of the roles.
//!
//! Rules kept here: a core serves nothing until the coordinator promotes it in this incarnation (**R7.1**); a gate
//! opens only by what the term that made it has synced (**R3.1**, **D3**); memory that an effect of a turn names stays
//! until the next turn begins.

mod configure;
mod dispatch;
mod ending;
mod heartbeat;
mod links;
pub(crate) mod options;
mod view;

use std::collections::BTreeMap;
use std::time::Duration;

use kasha_machine::{Askers, Disk, Effect, Effects, Endpoint, FileName, Gate, Input, Machine};
use kasha_types::planted::{self, Bug};
use kasha_types::{BootId, LogSlice, SegmentId, ShardId, Tick, ViewNumber, limits};
use kasha_wire::message::Report;

use crate::core::Core;
use crate::core::told::Told;
use crate::node::ending::Ending;
use crate::node::links::Links;
use crate::primary::Primary;
use crate::shard::Replica;
use crate::shard::term::Term;
use crate::witnessing::Witnesses;
use crate::{NodeOptions, StartError};

/// One core: see the crate's documentation.
#[derive(Debug)]
pub struct Node {
    pub(crate) core: Core,
    pub(crate) replicas: BTreeMap<ShardId, Replica>,
    pub(crate) witnesses: Witnesses,
    pub(crate) next_heartbeat: Tick,
    /// Between two heartbeats.
    pub(crate) beat: Duration,
    pub(crate) next_flush: Tick,
    pub(crate) links: Links,
    /// When the newest heartbeat was sent that the coordinator answered.
    pub(crate) answered: Tick,
    /// Another node is asked about the coordinator not before this moment.
    pub(crate) next_question: Tick,
    /// How often that was asked.
    pub(crate) questions: usize,
    /// What the last heartbeat asked the coordinator to commit.
    pub(crate) reported: Vec<Report>,
    /// Clients that wait for the next configuration.
    pub(crate) askers: Askers,
    /// The process was asked to stop, and is at its last turns.
    pub(crate) ending: Option<Ending>,
    /// The first input of a turn has come: what the last turn's effects named may be buried.
    turn_open: bool,
}

impl Node {
    /// Starts a core from its files. It serves nothing until the coordinator promotes it in this incarnation (R7.1).
    ///
    /// # Errors
    /// If the files are another cluster's or version's, or cannot be read. Damaged files are no error: what they held
    /// does not count until it is copied again (R5.5).
    pub fn start(options: NodeOptions, disk: &dyn Disk, now: Tick, out: &mut Effects) -> Result<Self, StartError> {
        assert!(options.segment_bytes <= limits::SEGMENT_BYTES, "a whole segment must fit a frame");
        assert!(options.witness_slots as usize <= limits::WITNESS_SLOTS, "all a witness holds must fit a frame");
        assert_ne!(options.boot, BootId::ENDED, "the marks of an orderly end are no boot's");
        let beat = heartbeat::beat_of(options.heartbeat);
        let mut core = Core::new(options);
        if let Some(address) = core.options.coordinator {
            core.coordinator.learn(address, [], out);
        }
        for (seed, address) in (0..).zip(&core.options.seeds) {
            let Some(address) = *address else { continue };
            out.push(Effect::Route { to: Endpoint::Seed(seed), address });
        }
        core.told = Told::load(core.options.cluster, disk)?;
        let (levels, level) = (core.options.levels, core.told.level);
        if levels.latest() < level {
            return Err(StartError::Level { levels, level });
        }
        core.level = level;
        core.coordinator.redirect(ViewNumber(0), None, core.told.members.iter().copied(), out);
        core.learn_cluster_time(core.told.cluster_time);
        let mut files: BTreeMap<ShardId, Vec<SegmentId>> = BTreeMap::new();
        for file in disk.list() {
            match file {
                FileName::Segment { shard, segment } => files.entry(shard).or_default().push(segment),
                FileName::Replica(shard) => {
                    files.entry(shard).or_default();
                }
                FileName::Witness { .. }
                | FileName::WitnessMode { .. }
                | FileName::Core
                | FileName::Told
                | FileName::Coordinator(_)
                | FileName::Journal(_) => {}
            }
        }
        let mut replicas = BTreeMap::new();
        for (shard, segments) in files {
            replicas.insert(shard, Replica::load(&core.options, shard, segments, disk, out)?);
        }
        let witnesses = Witnesses::load(&mut core, disk, out)?;
        Ok(Self {
            core,
            replicas,
            witnesses,
            next_heartbeat: now,
            beat,
            next_flush: now,
            links: Links::new(now),
            answered: now,
            next_question: now,
            questions: 0,
            reported: Vec::new(),
            askers: Askers::default(),
            ending: None,
            turn_open: false,
        })
    }

    /// The operator asks this process to stop (R7.7): answers of its primaries wait for their sync from now on, and the
    /// coordinator is asked to empty their witness lists, so that whoever serves next needs no witness.
    pub fn begin_stop(&mut self) {
        self.core.stopping = true;
        let Some(configuration) = self.core.configuration.clone() else { return };
        for replica in self.replicas.values_mut() {
            if let Some(config) = configuration.shard(replica.shard()) {
                replica.begin_stop(&self.core, config);
            }
        }
    }

    /// Whether every primary of this core has synced what it answered, and its witness list is empty.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        let primaries = self.replicas.values().filter_map(|replica| replica.role.primary());
        primaries.filter_map(Primary::serving).all(|serving| serving.is_stopping() && serving.has_empty_list())
    }

    /// Flips a bit of a log in memory, as failing memory does. Returns whether the byte is in the log. For tests.
    #[doc(hidden)]
    pub fn flip_log_bit(&mut self, shard: ShardId, offset: u64, bit: u8) -> bool {
        let replica = self.replicas.get_mut(&shard).filter(|replica| offset < replica.copy.log.end().offset.0);
        replica.map(|replica| replica.copy.log.flip_bit(offset, bit)).is_some()
    }

    /// The term that we are primary of, or are becoming it.
    fn term(&self, shard: ShardId) -> Option<&Term> {
        Some(&self.replicas.get(&shard)?.role.primary()?.term)
    }
}

impl Node {
    /// What a primary wants to survive a loss of power is flushed, with all that the logs of this core got so far. What is wanted
    /// while a flush is under way is in the next one: group commit, as for fsyncs that somebody waits for.
    fn flush_logs(&mut self, now: Tick, out: &mut Effects) {
        let is_wanted = self.replicas.values().any(|replica| replica.wants_flush(&self.core));
        if self.core.log_flush.begins(now, is_wanted) {
            self.replicas.values_mut().for_each(|replica| replica.copy.begin_flush());
            out.push(Effect::FlushLogs);
        }
    }
}

impl Machine for Node {
    fn step(&mut self, now: Tick, input: Input<'_>, out: &mut Effects) {
        if !std::mem::replace(&mut self.turn_open, true) {
            self.core.told_time.begin_turn(now);
            self.core.counted.count(now);
            for replica in self.replicas.values_mut() {
                replica.copy.log.bury();
            }
        }
        match input {
            Input::Frame { .. } | Input::Unreachable(_) if self.ending.is_some() => {}
            Input::Frame { from, kind, payload } => self.on_frame(now, from, kind, payload, out),
            Input::Unreachable(end) => self.on_interrupted(now, end),
            Input::Durable(to) => {
                self.core.local_durable = self.core.local_durable.max(to);
                for replica in self.replicas.values_mut() {
                    replica.copy.on_durable(to);
                }
            }
            Input::LogsFlushed => {
                self.core.log_flush.ends(now);
                self.replicas.values_mut().for_each(|replica| replica.copy.on_flushed());
            }
            Input::Closed(conn) => self.askers.forget(conn),
            Input::UnixTime(_) | Input::Tick => {}
            Input::Request { .. } | Input::RequestsEnd { .. } | Input::Backlog { .. } => {
                unreachable!("a node listens for frames")
            }
        }
    }

    fn end_turn(&mut self, now: Tick, out: &mut Effects) {
        if let Some(ending) = self.ending {
            self.turn_open = false;
            return self.advance_end(ending, out);
        }
        for replica in self.replicas.values_mut() {
            replica.end_turn(&mut self.core, now, out);
        }
        self.hear_own_words(now, out);
        self.witnesses.enter_begun(&mut self.core, out);
        self.tell_askers(out);
        self.heartbeat(now, out);
        let flush_due = now >= self.next_flush && self.core.unflushed;
        if flush_due && self.replicas.values().any(|replica| replica.copy.has_freed_files()) {
            self.core.fsync_all();
        }
        if let Some(commit) = self.core.end_turn(out) {
            self.replicas.values_mut().for_each(|replica| replica.copy.fsync_covers_freed(commit));
        }
        if flush_due {
            self.witnesses.tidy_files(out);
            out.push(Effect::Flush);
            self.core.unflushed = false;
            self.next_flush = now.after(self.core.options.flush_interval);
        }
        if self.core.log_flush.may_be_wanted() {
            self.flush_logs(now, out);
        }
        self.turn_open = false;
    }

    fn next_deadline(&self) -> Option<Tick> {
        if let Some(ending) = self.ending {
            return matches!(ending, Ending::Begun).then_some(Tick(0));
        }
        let flush = self.core.unflushed.then_some(self.next_flush);
        let told = self.askers.is_telling().then_some(Tick(0));
        let own = [flush, self.core.log_flush.next(), told].into_iter().flatten();
        let always = self.next_heartbeat.min(self.links.next_deadline());
        let replicas = self.replicas.values().filter_map(|replica| replica.next_deadline(&self.core));
        Some(replicas.chain(own).fold(always, Tick::min))
    }

    fn is_open(&self, gate: Gate) -> bool {
        match gate {
            Gate::Now => true,
            Gate::Durable(position) | Gate::DurableAs { position, .. } => position <= self.core.local_durable,
            Gate::Synced { shard, position } => self
                .term(shard)
                .map(Term::synced)
                .filter(|synced| synced.epoch == position.epoch || planted::is_on(Bug::HeldEffectsKept))
                .is_some_and(|synced| synced.offset >= position.offset),
            Gate::Flushed { shard, position } => self.replicas.get(&shard).is_some_and(|replica| {
                let term = replica.role.primary().map(|primary| &primary.term);
                let durable = term
                    .filter(|term| term.epoch == position.epoch)
                    .map(|term| term.durable(&self.core, &replica.copy));
                durable.is_some_and(|durable| durable >= position.offset)
            }),
            Gate::Confirmed { shard, round } => self.term(shard).is_some_and(|term| term.shipping.confirmed() >= round),
            Gate::Committed { .. } => unreachable!("a core leads no group of coordinators"),
        }
    }

    fn log_bytes(&self, slice: LogSlice) -> &[u8] {
        self.replicas.get(&slice.shard).expect("an effect names a replica of this core").copy.log.slice(slice)
    }

    fn assert_invariants(&self) {
        for replica in self.replicas.values() {
            replica.assert_invariants();
        }
        for instance in self.witnesses.instances.values() {
            instance.witness.assert_invariants();
        }
    }
}
