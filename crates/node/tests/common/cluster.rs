//! Three cores and no network: their frames wait until a test carries them. Node 1 is primary, 2 and 3 are its backups
//! and its witnesses (f = 2).

use std::collections::VecDeque;

use kasha_log::{EntryKind, Log, LogConfig};
use kasha_machine::{Endpoint, FileName};
use kasha_node::NodeOptions;
use kasha_types::{ClusterTime, ConfigVersion, ConnId, CoreId, Epoch, ListVersion, NodeId, SegmentId, TableId};
use kasha_wire::frame::{FRAME_HEADER_BYTES, Kind};
use kasha_wire::hot::{Envelope, ReadView, RequestView};
use kasha_wire::message::{Heartbeat, Report};
use kasha_wire::{Configuration, Member, MemberState, Message, NodeInfo, Read, ShardPhase, Update, message};

use super::{Core, Files, Heard, SHARD, TABLE, address, configuration};

/// The list under which clients record, until it changes.
pub const LIST: ListVersion = ListVersion(1);
const SEGMENT_BYTES: u32 = 1 << 20;
/// Far more than anything causes before time passes.
const FRAMES_MAX: usize = 10_000;

/// A frame on its way.
pub struct Carried {
    pub from: NodeId,
    pub to: NodeId,
    pub kind: Kind,
    pub frame: Vec<u8>,
}

pub struct Cluster {
    /// Node n is `cores[n - 1]`.
    pub cores: Vec<Core>,
    pub configuration: Configuration,
    /// In the order in which they were sent.
    pub on_the_way: VecDeque<Carried>,
    /// What clients heard that nobody asked for yet; a client's connection has its number.
    heard: Vec<(u64, Heard)>,
    /// What the last heartbeat of node 1 asked the coordinator to commit.
    pub reports: Vec<Report>,
    /// Frames to nodes that no test starts.
    pub to_strangers: Vec<(Kind, Vec<u8>)>,
    /// Heartbeats of node 1.
    pub beats: u64,
    pub epoch: Epoch,
}

impl Cluster {
    pub fn serving() -> Self {
        Self::serving_of(0)
    }

    /// A cluster that takes updates with so many backups or more.
    pub fn serving_of(min_backups: u8) -> Self {
        Self::serving_with(min_backups, |_| ())
    }

    /// The same with other options.
    pub fn serving_with(min_backups: u8, change: impl Fn(&mut NodeOptions)) -> Self {
        let core = |node| {
            Core::start_with(Files::default(), 1 << 26, |options| {
                options.core.node = NodeId(node);
                options.segment_bytes = SEGMENT_BYTES;
                options.witness_slots = 64;
                change(options);
            })
        };
        let mut configuration = configuration(0, 1, ShardPhase::Recovering);
        (configuration.faults, configuration.min_backups) = (2, min_backups);
        configuration.nodes = (1..=3).map(node).collect();
        configuration.shards[0].members = (1..=3).map(member).collect();
        let mut cluster = Self::of((1..=3).map(core).collect(), configuration);
        cluster.commit(|_| ());
        cluster.settle();
        assert_eq!(cluster.reports.first(), Some(&Report::Recovered { shard: SHARD, epoch: Epoch(1) }));
        cluster.commit(|configuration| {
            configuration.shards[0].phase = ShardPhase::Serving;
            configuration.shards[0].witnesses = vec![NodeId(2), NodeId(3)];
        });
        cluster.it_is(1000);
        cluster.settle();
        cluster
    }

    /// Three cores that were told nothing yet.
    pub fn of(cores: Vec<Core>, configuration: Configuration) -> Self {
        let (on_the_way, heard, reports) = (VecDeque::new(), Vec::new(), Vec::new());
        let epoch = configuration.shards[0].epoch;
        Self { cores, configuration, on_the_way, heard, reports, to_strangers: Vec::new(), beats: 0, epoch }
    }

    /// The coordinator commits a change, and tells everybody.
    pub fn commit(&mut self, change: impl FnOnce(&mut Configuration)) {
        change(&mut self.configuration);
        self.tell(kasha_wire::Level::FIRST);
    }

    /// The coordinator tells everybody the next version, and that the cluster has this level.
    pub fn tell(&mut self, level: kasha_wire::Level) {
        self.configuration.version = ConfigVersion(self.configuration.version.0 + 1);
        let configuration = self.configuration.clone();
        self.each(|core| {
            let (configuration, unix_origin) = (configuration.clone(), kasha_wire::Later::at(level, None));
            core.message(message::ConfigurationIs { level, unix_origin, configuration });
        });
    }

    /// The coordinator answers everybody's heartbeat.
    pub fn it_is(&mut self, cluster_time: u64) {
        self.each(|core| core.coordinator_says_it_is(cluster_time));
    }

    pub fn tick(&mut self, millis: u64) {
        self.each(|core| core.tick(millis));
    }

    pub fn each(&mut self, mut what: impl FnMut(&mut Core)) {
        for node in 1..=3 {
            self.on(node, &mut what);
        }
    }

    /// Has one core do something, and takes what it sends.
    pub fn on(&mut self, node: u16, what: impl FnOnce(&mut Core)) {
        let core = &mut self.cores[usize::from(node) - 1];
        what(core);
        assert_eq!(core.shell.stopped, None);
        for (to, frame) in std::mem::take(&mut core.shell.sent) {
            let kind = Kind::from_number(frame[12]).expect("a frame");
            match to {
                // Whoever lies may name nodes that there are not.
                Endpoint::Core(to) if !(1..=3).contains(&to.node.0) => {
                    self.to_strangers.push((kind, frame[FRAME_HEADER_BYTES..].to_vec()));
                }
                Endpoint::Core(to) => {
                    self.on_the_way.push_back(Carried { from: NodeId(node), to: to.node, kind, frame });
                }
                Endpoint::Conn(client) => self.heard.extend(Heard::of(&frame).map(|heard| (client.0, heard))),
                Endpoint::Seed(_) | Endpoint::Member(_) => {}
                Endpoint::Coordinator => {
                    if let (Ok(Heartbeat { reports, .. }), 1) = (Message::decode(&frame[FRAME_HEADER_BYTES..]), node) {
                        self.reports = reports;
                        self.beats += 1;
                    }
                }
            }
        }
    }

    /// Carries the first frame of this kind between these two. False: there is none.
    pub fn carry_one(&mut self, kind: Kind, from: u16, to: u16) -> bool {
        let is_it = |c: &Carried| (c.kind, c.from, c.to) == (kind, NodeId(from), NodeId(to));
        let Some(at) = self.on_the_way.iter().position(is_it) else { return false };
        let carried = self.on_the_way.remove(at).expect("found");
        self.arrive(carried);
        true
    }

    pub fn arrive(&mut self, Carried { from, to, kind, frame }: Carried) {
        self.on(to.0, |core| core.frame_from(Endpoint::Core(CoreId { node: from, core: 0 }), kind, &frame));
    }

    /// Carries everything, and what it causes.
    pub fn carry(&mut self) {
        for _ in 0..FRAMES_MAX {
            let Some(carried) = self.on_the_way.pop_front() else { return };
            self.arrive(carried);
        }
        let next = self.on_the_way.front().map(|carried| (carried.from, carried.to, carried.kind));
        panic!("frames cause frames without end: {next:?}");
    }

    /// Time passes, and the network works.
    pub fn settle(&mut self) {
        for _ in 0..10 {
            self.tick(30);
            self.carry();
        }
    }

    /// This node becomes primary in the next term.
    pub fn fail_over_to(&mut self, node: u16) {
        self.epoch = self.epoch.next();
        let epoch = self.epoch;
        self.commit(|configuration| {
            let shard = &mut configuration.shards[0];
            (shard.epoch, shard.primary, shard.phase) = (epoch, NodeId(node), ShardPhase::Recovering);
            shard.recover_from = (1..=3).map(NodeId).collect();
        });
        self.settle();
        self.commit(|configuration| {
            let shard = &mut configuration.shards[0];
            shard.phase = ShardPhase::Serving;
            shard.recover_from.clear();
            shard.list = shard.list.next();
            shard.witnesses = (1..=3).filter(|other| *other != node).map(NodeId).collect();
        });
        self.settle();
    }

    /// What this client heard since it was last asked.
    pub fn heard(&mut self, client: u64) -> Vec<Heard> {
        let (its, others) = std::mem::take(&mut self.heard).into_iter().partition(|(whose, _)| *whose == client);
        self.heard = others;
        let its: Vec<(u64, Heard)> = its;
        its.into_iter().map(|(_, heard)| heard).collect()
    }

    pub fn envelope(&self, list: ListVersion) -> Envelope {
        Envelope { shard: SHARD, epoch: self.epoch, list, cluster_time: ClusterTime(0), attempt: 1, turn: None }
    }

    /// A body reaches the primary, and what it hears at once is returned.
    pub fn send(&mut self, client: u64, list: ListVersion, body: &[u8]) -> Vec<Heard> {
        let mut frame = Vec::new();
        RequestView::encode(Kind::Request, &self.envelope(list), body, &mut frame);
        let primary = self.configuration.shards[0].primary;
        self.on(primary.0, |core| core.frame_from(Endpoint::Conn(ConnId(client)), Kind::Request, &frame));
        self.heard(client)
    }

    /// A client's update, which acknowledges all its earlier ones.
    pub fn update(&mut self, (client, sequence): (u64, u64), list: ListVersion, update: &Update<'_>) -> Vec<Heard> {
        self.send(client, list, &Core::body((client, sequence), sequence, None, update))
    }

    pub fn get(&mut self, client: u64, table: TableId, key: &[u8]) -> Vec<Heard> {
        self.read(client, table, &Read::Get { key })
    }

    pub fn read(&mut self, client: u64, table: TableId, read: &Read<'_>) -> Vec<Heard> {
        let (mut arguments, mut frame) = (Vec::new(), Vec::new());
        read.encode_arguments(&mut arguments);
        let envelope = self.envelope(ListVersion::NONE);
        ReadView { envelope, read_id: 1, table, code: read.code(), arguments: &arguments }.encode(&mut frame);
        let primary = self.configuration.shards[0].primary;
        self.on(primary.0, |core| core.frame_from(Endpoint::Conn(ConnId(client)), Kind::Read, &frame));
        self.heard(client)
    }

    pub fn get_default(&mut self, client: u64, key: &[u8]) -> Vec<Heard> {
        self.get(client, TABLE, key)
    }

    /// The kinds of all entries in a node's files, in order.
    pub fn entries_on_file(&self, node: u16) -> Vec<EntryKind> {
        let config = LogConfig { segment_bytes: SEGMENT_BYTES, memory_max_bytes: 1 << 26, reserve_percent: 5 };
        let (log, _) = Log::load(SHARD, config, self.segments(node));
        log.groups().flat_map(|group| group.entries).map(|(_, entry)| entry.kind).collect()
    }

    /// The segments that a node has files of.
    pub fn segments(&self, node: u16) -> impl Iterator<Item = (SegmentId, Vec<u8>)> + '_ {
        let files = &self.cores[usize::from(node) - 1].shell.files.0;
        files.iter().filter_map(|(name, bytes)| match name {
            FileName::Segment { segment, .. } => Some((*segment, bytes.clone())),
            _ => None,
        })
    }

    /// Their numbers.
    pub fn segments_on_file(&self, node: u16) -> Vec<u32> {
        self.segments(node).map(|(segment, _)| segment.0).collect()
    }
}

pub fn node(node: u16) -> NodeInfo {
    NodeInfo { node: NodeId(node), incarnation: kasha_types::Incarnation(1), cores: vec![address()], alive: true }
}

pub fn member(node: u16) -> Member {
    Member { node: NodeId(node), state: MemberState::Complete, since: ConfigVersion(1) }
}
