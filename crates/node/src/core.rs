//! What all replicas and witnesses of a core share: files, clocks, configuration, scratch memory.
//!
//! [`Core`] collects what a turn writes into files, ends the turn with one commit, and knows which commits hold: an
//! answer that depends on our own files is gated on a commit ([`Core::durable_gate`], **D3**, **R5.3**). It also keeps
//! the lease of this node (section 7) and ClusterTime, which only the coordinator and the log may move (**R4.7**); for ends of values
//! alone it is counted on ([`CountedTime`], **R10.12**).
//!
//! Of a shard's log it knows how much is to be written and flushed, and nothing of a shard's state.

pub(crate) mod counted_time;
pub(crate) mod send;
pub(crate) mod told;
pub(crate) mod told_time;

use std::rc::Rc;
use std::time::Duration;

use kasha_machine::{CoordinatorLinks, Data, Effect, Effects, FileName, Gate};
use kasha_replication::Shipping;
use kasha_store::{Moment, SpareDraft};
use kasha_types::planted::{self, Bug};
use kasha_types::{
    ClientId, ClusterTime, CoreId, Epoch, KeyHash, LocalPosition, LogEnd, LogSlice, NodeId, ShardId, TableId, Tick,
    UnixMillis, Work, WorkSet,
};
use kasha_wire::message::Words;
use kasha_wire::operation::Parts;
use kasha_wire::{Configuration, Durability, Level};

use crate::NodeOptions;
use crate::core::counted_time::CountedTime;
use crate::core::told::{TIME_NOTED_EVERY, Told, members_of};
use crate::core::told_time::ToldTime;
use crate::request::Memory;

/// The core that hosts replicas and witnesses.
#[derive(Debug)]
pub(crate) struct Core {
    pub options: NodeOptions,
    pub configuration: Option<Rc<Configuration>>,
    /// The level of the cluster, as the coordinator said last. It only rises.
    pub level: Level,
    /// The unix time of ClusterTime 0, if a configuration that was obeyed has it (R10.12). It never changes.
    ///
    /// A primary that knows it has obeyed a configuration that has it. Who takes its place was promoted by a later one, and so knows it, too:
    /// what depends on it comes to the same there.
    pub unix_origin: Option<UnixMillis>,
    pub coordinator: CoordinatorLinks,
    /// Taken from the coordinator and the log only (R4.7).
    pub cluster_time: ClusterTime,
    /// By which values end, and by nothing else (R10.12).
    pub counted: CountedTime,
    pub told_time: ToldTime,
    /// Every client id ever granted is below this.
    pub clients_below: ClientId,
    /// What the file says of what the coordinator told.
    pub told: Told,
    /// Until when the coordinator promised to make nobody else primary of our shards (section 7).
    pub lease_until: Tick,
    /// The last commit that was issued.
    pub local: LocalPosition,
    /// The last commit that holds.
    pub local_durable: LocalPosition,
    /// The greatest table of any configuration that was obeyed: one that is gone stays gone.
    pub newest_table: Option<TableId>,
    /// A commit that does not hold yet, and since when it is known to wait.
    disk_waits: Option<(LocalPosition, Tick)>,
    /// Something was written since the last commit.
    pub dirty: bool,
    /// What was written needs an fsync in every mode (R5.3).
    pub fsync: bool,
    /// Something was written since the last background flush.
    pub unflushed: bool,
    pub log_flush: LogFlush,
    /// The operator asked this process to stop (R7.7).
    pub stopping: bool,
    /// What primaries of this core say to one another.
    pub words: Vec<Words>,
    /// What this turn did, for who measures it.
    pub work: WorkSet,
    pub scratch: Scratch,
}

/// How much longer than a commit a flush of logs may take before the disk counts as hung.
const FLUSH_PATIENCE: u32 = 8;

/// Flushes of log segments, for what transactions over several shards wait for (R8.17): one at a time, and with a pause in between
/// unless somebody waits.
#[derive(Debug, Default)]
pub(crate) struct LogFlush {
    /// Some primary of this core may want one.
    wanted: bool,
    /// When the one that is under way began.
    began: Option<Tick>,
    /// The next is not to wait for the pause.
    at_once: bool,
    not_before: Tick,
}

impl LogFlush {
    /// Much can share a flush that nobody waits for: what was told when it was prepared.
    const PAUSE: Duration = Duration::from_millis(3);

    /// Somebody waits for what is not flushed yet.
    pub fn hurry(&mut self) {
        self.at_once = true;
    }

    /// Whether some primary may want one. To be asked every turn.
    #[inline]
    pub fn may_be_wanted(&self) -> bool {
        self.wanted
    }

    /// Whether a flush begins, if a primary wants one.
    pub fn begins(&mut self, now: Tick, is_wanted: bool) -> bool {
        self.wanted = is_wanted;
        let begins = is_wanted && self.began.is_none() && (self.at_once || now >= self.not_before);
        if begins {
            self.began = Some(now);
        }
        self.at_once &= is_wanted && !begins;
        begins
    }

    pub fn ends(&mut self, now: Tick) {
        (self.began, self.not_before) = (None, now.after(Self::PAUSE));
    }

    /// When the next begins, if that depends on the time.
    pub fn next(&self) -> Option<Tick> {
        (self.wanted && self.began.is_none()).then_some(self.not_before)
    }
}

/// Memory that is used again.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// The result of the read that runs.
    pub result: Vec<u8>,
    /// The keys of a read.
    pub footprint: Vec<KeyHash>,
    /// The memory of the query that runs.
    pub query: SpareDraft,
    /// Of updates: one runs at a time.
    request: Option<Box<Memory>>,
    pub dead: Vec<kasha_log::EntryOffset>,
    /// Of records at witnesses.
    pub hashes: Vec<KeyHash>,
}

impl Core {
    pub fn new(options: NodeOptions) -> Self {
        let seeds = u16::try_from(options.seeds.len()).expect("a few addresses");
        Self {
            options,
            configuration: None,
            level: Level::FIRST,
            unix_origin: None,
            coordinator: CoordinatorLinks::with_seeds(seeds),
            cluster_time: ClusterTime(0),
            counted: CountedTime::default(),
            told_time: ToldTime::default(),
            clients_below: ClientId(0),
            told: Told::default(),
            lease_until: Tick(0),
            local: LocalPosition(0),
            local_durable: LocalPosition(0),
            newest_table: None,
            disk_waits: None,
            dirty: false,
            fsync: false,
            unflushed: false,
            log_flush: LogFlush::default(),
            stopping: false,
            words: Vec::new(),
            work: WorkSet::default(),
            scratch: Scratch::default(),
        }
    }

    /// Memory for a request, to be given back when the request is done.
    pub fn request_memory(&mut self) -> Box<Memory> {
        self.scratch.request.take().unwrap_or_default()
    }

    /// A request is done.
    #[inline(always)]
    pub fn spare(&mut self, memory: Box<Memory>) {
        self.scratch.request = Some(memory);
    }

    pub fn id(&self) -> CoreId {
        self.options.core
    }

    /// Whether the configuration calls a node alive.
    pub fn calls_alive(&self, node: NodeId) -> bool {
        self.configuration.as_ref().and_then(|known| known.node(node)).is_some_and(|info| info.alive)
    }

    pub fn durability(&self) -> Durability {
        self.configuration.as_ref().map_or(Durability::Fsync, |configuration| configuration.durability)
    }

    /// Whether a message of this term may be obeyed: a configuration has come, which places the shard, ours to host, and
    /// knows no later term of it. Whoever asks earlier asks again.
    pub fn may_obey(&self, shard: ShardId, epoch: Epoch) -> bool {
        let is_newest = self.configuration.as_ref().is_some_and(|known| {
            let is_ours = known.core_of(self.id().node, shard) == Some(self.id());
            is_ours && known.shard(shard).is_some_and(|config| config.epoch <= epoch)
        });
        is_newest || planted::is_on(Bug::PromiseForgotten) || planted::is_on(Bug::EpochUnfenced)
    }

    /// What an operation is executed at that was begun then.
    pub fn moment(&self, begun: ClusterTime) -> Moment {
        Moment { begun, origin: self.unix_origin }
    }

    /// Whether what these parts need is known here: a level of the cluster (R7.6), the time of day (R10.12).
    pub fn knows_enough_for(&self, parts: Parts<'_>) -> bool {
        parts.level() <= self.level && (self.unix_origin.is_some() || !parts.know_time_of_day())
    }

    pub fn learn_cluster_time(&mut self, time: ClusterTime) {
        self.cluster_time = self.cluster_time.max(time);
        self.counted.learn(time);
    }

    pub fn has_lease(&self, now: Tick) -> bool {
        now < self.lease_until
    }

    /// Others wait until the log of this primary is durable up to here (R8.17).
    pub fn want_durable(&mut self, shipping: &mut Shipping, end: LogEnd) {
        shipping.want_durable(end);
        self.log_flush.wanted = true;
    }

    /// The gate of a word about what has been written so far.
    pub fn durable_gate(&self) -> Gate {
        Gate::Durable(self.commit_position())
    }

    /// The same, as a member of a replica set.
    pub fn durable_gate_as(&self, shard: ShardId) -> Gate {
        Gate::DurableAs { shard, position: self.commit_position() }
    }

    /// The commit that covers everything written so far.
    pub fn commit_position(&self) -> LocalPosition {
        if self.dirty { self.local.next() } else { self.local }
    }

    pub fn write_span(&mut self, file: FileName, offset: u64, bytes: &[u8], out: &mut Effects) {
        let data = Data::Span(out.span(bytes));
        out.push(Effect::Write { file, offset, data });
        self.dirty = true;
    }

    pub fn write_log(&mut self, file: FileName, offset: u64, slice: LogSlice, out: &mut Effects) {
        out.push(Effect::Write { file, offset, data: Data::Log(slice) });
        self.dirty = true;
    }

    pub fn replace(&mut self, file: FileName, bytes: &[u8], out: &mut Effects) {
        let data = out.span(bytes);
        out.push(Effect::Replace { file, data });
        (self.dirty, self.fsync) = (true, true);
    }

    pub fn truncate(&mut self, file: FileName, len: u64, out: &mut Effects) {
        out.push(Effect::Truncate { file, len });
        (self.dirty, self.fsync) = (true, true);
    }

    pub fn remove(&mut self, file: FileName, out: &mut Effects) {
        out.push(Effect::Remove { file });
        self.work.add(Work::Remove);
        self.dirty = true;
    }

    /// Whether a commit has waited for the disk for `most` or longer, or a flush of logs for so long that the disk does not only
    /// have much to do: all other answers go on meanwhile. To be asked again and again.
    pub fn disk_hangs(&mut self, now: Tick, most: Duration) -> bool {
        let flush_hangs = self.log_flush.began.is_some_and(|began| now.since(began) >= most * FLUSH_PATIENCE);
        self.commit_hangs(now, most) || flush_hangs
    }

    fn commit_hangs(&mut self, now: Tick, most: Duration) -> bool {
        let waits = self.local_durable < self.local;
        match self.disk_waits {
            Some((commit, since)) if waits && self.local_durable < commit => now.since(since) >= most,
            Some(_) | None => {
                self.disk_waits = waits.then_some((self.local, now));
                false
            }
        }
    }

    /// All that was written so far is fsynced with this turn's commit.
    pub fn fsync_all(&mut self) {
        (self.dirty, self.fsync) = (true, true);
    }

    /// This turn's commit, which covers all that was written so far, fsynced.
    pub fn fsynced_commit(&mut self) -> LocalPosition {
        self.fsync_all();
        self.commit_position()
    }

    /// One commit for all that the turn wrote. Returns it if it is fsynced.
    pub fn end_turn(&mut self, out: &mut Effects) -> Option<LocalPosition> {
        out.note(std::mem::take(&mut self.work));
        if !self.dirty {
            return None;
        }
        self.local = self.local.next();
        let fsync = self.fsync || self.durability() == Durability::Fsync;
        out.push(Effect::Commit { to: self.local, fsync });
        (self.dirty, self.fsync, self.unflushed) = (false, false, true);
        fsync.then_some(self.local)
    }
}

impl Core {
    /// A configuration is obeyed from this turn on.
    pub fn note_configuration(&mut self, configuration: &Configuration, out: &mut Effects) {
        let news = configuration.version > self.told.configuration;
        if news {
            let (members, level) = (members_of(configuration), self.level);
            self.note(Told { configuration: configuration.version, level, members, ..self.told.clone() }, out);
        }
    }

    /// The coordinator told the time, and which client ids may be in use: a request under one of these is answered only
    /// when the file says so.
    pub fn note_time_and_clients(&mut self, out: &mut Effects) {
        let time_is_due = self.told.cluster_time.after_millis(TIME_NOTED_EVERY.as_millis() as u64) <= self.cluster_time;
        let news = time_is_due || self.clients_below > self.told.clients_below;
        if news {
            let clients_below = self.clients_below.max(self.told.clients_below);
            self.note(Told { clients_below, ..self.told.clone() }, out);
        }
    }

    fn note(&mut self, told: Told, out: &mut Effects) {
        if !planted::is_on(Bug::ToldUnnoted) {
            self.told = Told { cluster_time: self.cluster_time, ..told };
            let bytes = self.told.encode(self.options.cluster);
            self.replace(FileName::Told, &bytes, out);
        }
    }
}
