//! A group of coordinators: it grows, its leader dies or is cut off, its members restart.
#![allow(missing_docs)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use crate::common::*;
use kasha_coordinator::CoordinatorOptions;
use kasha_machine::{Endpoint, Input, Machine};
use kasha_types::{BootId, ClientId, ClusterTime, ConfigVersion, ConnId, Incarnation, MemberId, NodeId, Tick};
use kasha_wire::message::{
    ConfigurationIs, GetConfiguration, Goodbye, Grouped, HeartbeatAnswer, NotLeader, OpenSession, SessionOpened,
    TableCommand, TableRequest,
};
use kasha_wire::{AnyMessage, Configuration, Levels, Message, ShardPhase};

/// Members that there are to be.
pub(crate) const SIZE: usize = 3;

/// Who asks at a member, and is no node.
pub(crate) const STRANGER: Endpoint = Endpoint::Conn(ConnId(99_999));

pub(crate) fn address(index: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 1, 1], 7000 + u16::try_from(index).unwrap()))
}

/// Makes other commands of those of a leader.
fn garble(said: &mut Grouped) {
    let decoded = kasha_viewstamped::Message::decode(&said.message.0);
    let Ok(kasha_viewstamped::Message::Prepare { view, behind, mut entries, committed }) = decoded else { return };
    for entry in &mut entries {
        if let kasha_viewstamped::Entry::Operation(command) = entry {
            *command = vec![99];
        }
    }
    said.message.0.clear();
    kasha_viewstamped::Message::Prepare { view, behind, entries, committed }.encode(&mut said.message.0);
}

/// The node that speaks on this connection.
fn node_at(end: Endpoint) -> Option<NodeId> {
    match end {
        STRANGER => None,
        Endpoint::Conn(ConnId(conn)) if conn < MEMBERS => Some(NodeId(u16::try_from(conn / 100).unwrap())),
        _ => None,
    }
}

/// The options of a process: the `starts`-th one with a folder of this identity.
pub(crate) fn process_options(index: usize, starts: u32, identity: u32) -> CoordinatorOptions {
    CoordinatorOptions { process: Incarnation::new(starts, identity), ..member_options(index) }
}

/// The identity of the folder that a node begins with.
pub(crate) fn first_identity(index: usize) -> u32 {
    10 + u32::try_from(index).unwrap()
}

pub(crate) fn member_options(index: usize) -> CoordinatorOptions {
    let mut options = options(3, 2, 1);
    (options.address, options.begins, options.group) = (address(index), index == 0, SIZE as u8);
    (options.node, options.process) =
        (NodeId(u16::try_from(index + 1).unwrap()), Incarnation::new(1, first_identity(index)));
    options.replaces_after = Duration::from_secs(20);
    options.boot = Some(BootId(100 + index as u128)); // a machine of its own
    options.seed = 7 + index as u64;
    options
}

pub(crate) struct Group {
    pub(crate) now: Tick,
    pub(crate) members: Vec<Option<World>>,
    /// What is left of the folders of members that are down.
    pub(crate) folders: BTreeMap<usize, Files>,
    /// Pairs of members that do not hear each other, the smaller one first.
    pub(crate) cuts: BTreeSet<(usize, usize)>,
    /// The first frame with a command of this number is lost, and all that its sender says from then on.
    pub(crate) loses: Option<u8>,
    /// Who lost it.
    pub(crate) mute: Option<usize>,
    /// Members that stand still, and what waits in their buffers.
    pub(crate) still: BTreeMap<usize, Vec<(Endpoint, AnyMessage)>>,
    /// Members to which the commands of the leader come as others, which no state permits.
    pub(crate) garbled: BTreeSet<usize>,
    pub(crate) nodes: BTreeMap<NodeId, FakeNode>,
    /// Which members each of these nodes does not reach.
    pub(crate) hidden: BTreeMap<u16, BTreeSet<usize>>,
    /// Members that do not hear that they are to lead.
    pub(crate) deaf_to_orders: BTreeSet<usize>,
    /// The machines of processes that are on other ones than the rest.
    machines: BTreeMap<usize, u8>,
    /// Every configuration that was told to anybody.
    pub(crate) told: BTreeMap<ConfigVersion, Configuration>,
    /// What each member answered to strangers.
    pub(crate) answers: Vec<(usize, AnyMessage)>,
    /// The last ClusterTime that a node was told, and by how many milliseconds it was ahead of the time since the first one.
    time: Option<(u64, i64)>,
    /// Until when each node takes its lease for granted.
    pub(crate) leases: BTreeMap<NodeId, Tick>,
    first_time: Option<(Tick, u64)>,
    starts: u32,
    /// The levels that processes say, other than ours.
    pub(crate) levels: BTreeMap<usize, Levels>,
    /// What nodes were told when they were sent away.
    pub(crate) goodbyes: Vec<String>,
    /// What members were told when other members sent them away.
    pub(crate) sent_away: Vec<(usize, String)>,
    /// Processes that host no member.
    pub(crate) without_control: BTreeSet<usize>,
    /// The term of client leases with which members start again.
    pub(crate) client_lease_millis: u64,
}

impl Group {
    pub(crate) fn new() -> Self {
        Self::of(SIZE)
    }

    /// With so many processes, each with a node.
    pub(crate) fn of(processes: usize) -> Self {
        Self::of_with(processes, |_| {})
    }

    /// With these options otherwise.
    pub(crate) fn with(change: impl Fn(&mut CoordinatorOptions)) -> Self {
        Self::of_with(SIZE, change)
    }

    fn of_with(processes: usize, change: impl Fn(&mut CoordinatorOptions)) -> Self {
        let now = Tick(1_000_000_000);
        let member = |index| {
            let mut options = member_options(index);
            change(&mut options);
            World::try_new(options, MemoryDisk::default(), now).unwrap()
        };
        let mut group = Self {
            now,
            members: (0..processes).map(|index| Some(member(index))).collect(),
            folders: BTreeMap::new(),
            cuts: BTreeSet::new(),
            loses: None,
            mute: None,
            still: BTreeMap::new(),
            garbled: BTreeSet::new(),
            nodes: BTreeMap::new(),
            hidden: BTreeMap::new(),
            deaf_to_orders: BTreeSet::new(),
            machines: BTreeMap::new(),
            told: BTreeMap::new(),
            answers: Vec::new(),
            time: None,
            leases: BTreeMap::new(),
            first_time: None,
            starts: 1,
            levels: BTreeMap::new(),
            goodbyes: Vec::new(),
            sent_away: Vec::new(),
            without_control: BTreeSet::new(),
            client_lease_millis: member_options(0).client_lease_millis,
        };
        for id in 1..=u16::try_from(processes).unwrap() {
            let mut world = World::new(options(3, 2, 1));
            world.add_node(id, 1);
            world.node(id).identity = first_identity(usize::from(id) - 1);
            group.nodes.append(&mut world.nodes);
        }
        group
    }

    pub(crate) fn serving() -> Self {
        Self::serving_of(SIZE)
    }

    pub(crate) fn serving_of(processes: usize) -> Self {
        let mut group = Self::of(processes);
        group.run(3_000);
        assert_eq!(group.leaders().len(), 1);
        let leader = group.leaders()[0];
        assert_eq!(group.member(leader).coordinator.members().len(), SIZE, "it has grown");
        assert!(group.config(leader).shards.iter().all(|shard| shard.phase == ShardPhase::Serving));
        group
    }

    pub(crate) fn member(&mut self, index: usize) -> &mut World {
        self.members[index].as_mut().unwrap()
    }

    pub(crate) fn config(&self, index: usize) -> &Configuration {
        self.members[index].as_ref().unwrap().config()
    }

    pub(crate) fn leaders(&self) -> Vec<usize> {
        let leads = |index: &usize| self.members[*index].as_ref().is_some_and(|world| world.coordinator.leads());
        (0..self.members.len()).filter(leads).collect()
    }

    pub(crate) fn is_cut(&self, one: usize, other: usize) -> bool {
        self.cuts.contains(&(one.min(other), one.max(other)))
    }

    /// No other member hears it, and it hears none.
    pub(crate) fn isolate(&mut self, index: usize) {
        let others = (0..self.members.len()).filter(|other| *other != index);
        self.cuts.extend(others.map(|other| (index.min(other), index.max(other))));
    }

    /// Delivers what was sent, and what follows from it.
    pub(crate) fn settle(&mut self) {
        loop {
            let mut sent = Vec::new();
            for (index, world) in self.members.iter_mut().enumerate() {
                if let Some(world) = world {
                    sent.extend(std::mem::take(&mut world.sent).into_iter().map(|(to, message)| (index, to, message)));
                }
            }
            if sent.is_empty() {
                return;
            }
            for (from, to, message) in sent {
                self.deliver(from, to, message);
            }
        }
    }

    /// Somebody is told something.
    fn note_told(&mut self, to: Endpoint, message: &AnyMessage) {
        if let AnyMessage::ConfigurationIs(ConfigurationIs { configuration, .. }) = message {
            let told = self.told.entry(configuration.version).or_insert_with(|| configuration.clone());
            assert_eq!(told, configuration, "F2: one configuration of a version");
        }
        if let (AnyMessage::HeartbeatAnswer(HeartbeatAnswer { sent, lease_millis: millis @ 1.., .. }), Some(node)) =
            (message, node_at(to))
        {
            let until = sent.after(Duration::from_millis(*millis));
            self.leases.entry(node).and_modify(|known| *known = until.max(*known)).or_insert(until);
        }
        if let AnyMessage::HeartbeatAnswer(HeartbeatAnswer { cluster_time: ClusterTime(time @ 1..), .. }) = *message {
            let (since, first) = *self.first_time.get_or_insert((self.now, time));
            let passed = i64::try_from(self.now.since(since).as_millis()).unwrap();
            let ahead = i64::try_from(time).unwrap() - i64::try_from(first).unwrap() - passed;
            assert!(self.time.is_none_or(|(last, _)| last <= time), "F2: ClusterTime goes on");
            self.time = Some((time, ahead));
        }
    }

    pub(crate) fn deliver(&mut self, from: usize, to: Endpoint, message: AnyMessage) {
        self.note_told(to, &message);
        let target = match to {
            Endpoint::Member(_) => {
                let route = self.member(from).disk.routes[&to];
                (0..self.members.len()).find(|index| address(*index).port() == route.port())
            }
            Endpoint::Conn(ConnId(conn)) if conn >= MEMBERS => Some(usize::try_from(conn - MEMBERS).unwrap()),
            STRANGER => return self.answers.push((from, message)),
            Endpoint::Conn(_) => {
                if let AnyMessage::Goodbye(Goodbye { reason }) = &message {
                    self.goodbyes.push(reason.clone());
                }
                let node = self.nodes.get_mut(&node_at(to).unwrap()).unwrap();
                if let AnyMessage::ConfigurationIs(ConfigurationIs { configuration, .. }) = message
                    && node.up
                    && node.have() < configuration.version
                {
                    node.config = Some(configuration);
                }
                return;
            }
            _ => unreachable!("{to:?}"),
        };
        let Some(target) = target.filter(|&target| !self.is_cut(from, target)) else { return };
        let back = match to {
            // It has dialled; the other one is told by the number of the connection who that is.
            Endpoint::Member(_) => Endpoint::Conn(ConnId(MEMBERS + from as u64)),
            _ => {
                let Some(world) = &self.members[target] else { return };
                let dialled = world.disk.routes.iter().find(|(_, route)| route.port() == address(from).port());
                dialled.map_or(Endpoint::Conn(ConnId(MEMBERS + from as u64)), |(end, _)| *end)
            }
        };
        let now = self.now;
        let has_command = |of: u8| {
            let AnyMessage::Grouped(said) = &message else { return false };
            let decoded = kasha_viewstamped::Message::decode(&said.message.0);
            let Ok(kasha_viewstamped::Message::Prepare { entries, .. }) = decoded else { return false };
            entries.iter().any(|entry| matches!(entry, kasha_viewstamped::Entry::Operation(bytes) if bytes[0] == of))
        };
        if let AnyMessage::Grouped(said) = &message
            && let Ok(kasha_viewstamped::Message::Lead { .. }) = kasha_viewstamped::Message::decode(&said.message.0)
            && self.deaf_to_orders.contains(&target)
        {
            return;
        }
        if self.mute.is_none() && self.loses.is_some_and(has_command) {
            self.mute = Some(from);
        }
        if self.mute == Some(from) {
            return;
        }
        if let Some(buffer) = self.still.get_mut(&target) {
            return buffer.push((back, message));
        }
        match (&mut self.members[target], message) {
            (Some(world), AnyMessage::Grouped(mut message)) if self.garbled.contains(&target) => {
                garble(&mut message);
                world.send_at(now, back, &message);
            }
            (Some(world), AnyMessage::Grouped(message)) => world.send_at(now, back, &message),
            (Some(_), AnyMessage::Goodbye(Goodbye { reason })) => self.sent_away.push((target, reason)),
            (Some(_) | None, _) => {}
        }
    }

    pub(crate) fn run(&mut self, millis: u64) {
        for step in 0..millis / 10 {
            self.now = self.now.after(Duration::from_millis(10));
            let now = self.now;
            let members = self.members.iter_mut().enumerate().filter(|(index, _)| !self.still.contains_key(index));
            for world in members.filter_map(|(_, world)| world.as_mut()) {
                world.now = now;
                world.tick(0);
            }
            self.settle();
            if step % 10 == 0 {
                self.beat();
            }
        }
    }

    pub(crate) fn beat(&mut self) {
        let beats: Vec<_> = self
            .nodes
            .values()
            .filter(|node| node.up)
            .map(|node| {
                let index = |of: &FakeNode| usize::from(of.id.0) - 1;
                let is_heard =
                    |other: &&FakeNode| other.up && other.id != node.id && !self.is_cut(index(node), index(other));
                let heard = self.nodes.values().filter(is_heard).map(|other| other.id);
                let world = self.members.iter().flatten().next().expect("a member is up");
                let mut beat = world.heartbeat_of(node, 0, node.reports());
                (beat.sent, beat.answered, beat.heard) = (self.now, self.now, heard.collect());
                let index = usize::from(node.id.0) - 1;
                let machine = self.machines.get(&index).map_or(address(index).ip(), |&last| [10, 0, 1, last].into());
                let control = SocketAddr::new(machine, address(index).port());
                beat.control = Some(control).filter(|_| !self.without_control.contains(&index));
                beat.levels = self.levels.get(&index).copied().unwrap_or_default();
                beat
            })
            .collect();
        for beat in beats {
            let hidden = self.hidden.get(&beat.core.node.0).cloned().unwrap_or_default();
            for index in (0..self.members.len()).filter(|index| !hidden.contains(index)) {
                let now = self.now;
                let from = conn(beat.core.node, 0);
                match (self.still.get_mut(&index), &mut self.members[index]) {
                    (Some(buffer), _) => buffer.push((from, beat.clone().into())),
                    (None, Some(world)) => world.send_at(now, from, &beat),
                    (None, None) => {}
                }
            }
            self.settle();
        }
    }

    /// From now on these nodes do not reach the member.
    pub(crate) fn hide(&mut self, nodes: &[u16], member: usize) {
        for &node in nodes {
            self.hidden.entry(node).or_default().insert(member);
        }
    }

    pub(crate) fn kill(&mut self, index: usize) {
        let world = self.members[index].take().unwrap();
        self.folders.insert(index, world.disk.durable);
        let now = self.now;
        let others = self.members.iter_mut().enumerate().filter(|(index, _)| !self.still.contains_key(index));
        for world in others.filter_map(|(_, world)| world.as_mut()) {
            let dialled =
                world.disk.routes.iter().find(|(_, route)| route.port() == address(index).port()).map(|(end, _)| *end);
            world.now = now;
            if let Some(end) = dialled {
                world.coordinator.step(now, Input::Unreachable(end), &mut world.effects);
                world.tick(0);
            }
        }
        self.settle();
    }

    pub(crate) fn start(&mut self, index: usize) {
        let disk = MemoryDisk { durable: self.folders.remove(&index).unwrap(), ..MemoryDisk::default() };
        self.starts += 1;
        let mut options = process_options(index, self.starts, first_identity(index));
        options.levels = self.levels.get(&index).copied().unwrap_or_default();
        options.client_lease_millis = self.client_lease_millis;
        self.members[index] = Some(World::try_new(options, disk, self.now).unwrap());
    }

    pub(crate) fn node_is_up(&mut self, index: usize, is_up: bool) {
        let node = self.nodes.get_mut(&NodeId(u16::try_from(index + 1).unwrap())).unwrap();
        (node.up, node.starts) = (is_up, node.starts + u32::from(is_up));
    }

    /// A stranger asks a member for its configuration. Whether it answers at once.
    pub(crate) fn answers(&mut self, index: usize) -> bool {
        self.answers.clear();
        let now = self.now;
        self.member(index).send_at(now, STRANGER, &GetConfiguration { have: ConfigVersion(0) });
        self.settle();
        self.run(100);
        let is_answer = |answer: &AnyMessage| matches!(answer, AnyMessage::ConfigurationIs(_));
        self.answers.iter().any(|(from, answer)| *from == index && is_answer(answer))
    }
}

impl Group {
    /// Asks the leader until it answers.
    pub(crate) fn ask_leader<T>(&mut self, message: &impl Message, answer: impl Fn(&AnyMessage) -> Option<T>) -> T {
        for _ in 0..200 {
            self.answers.clear();
            if let [leader] = self.leaders()[..] {
                let now = self.now;
                self.member(leader).send_at(now, STRANGER, message);
                self.settle();
            }
            self.run(50);
            if let Some(answer) = self.answers.iter().find_map(|(_, message)| answer(message)) {
                return answer;
            }
        }
        panic!("nobody answers");
    }

    pub(crate) fn open_session(&mut self) -> ClientId {
        self.ask_leader(&OpenSession { nonce: 1 }, |answer| match answer {
            AnyMessage::SessionOpened(SessionOpened { client, .. }) => Some(*client),
            _ => None,
        })
    }

    /// A client makes a table: the one of this number.
    pub(crate) fn create_table(&mut self, client: ClientId, sequence: u64) {
        let command = TableCommand::Create(format!("table-{sequence}"));
        self.ask_leader(&TableRequest { client, sequence, command }, |answer| match answer {
            AnyMessage::TableAnswer(answer) if answer.sequence == sequence => Some(()),
            _ => None,
        });
    }

    pub(crate) fn has_table(&self, index: usize, sequence: u64) -> bool {
        self.config(index).table(&format!("table-{sequence}")).is_some()
    }

    /// The files of a member as they are now.
    pub(crate) fn copy_of(&mut self, index: usize) -> Files {
        self.member(index).disk.durable.clone()
    }

    /// Nobody leads in all that time, not for a moment.
    pub(crate) fn nobody_leads(&mut self, millis: u64) {
        for _ in 0..millis / 10 {
            self.run(10);
            assert_eq!(self.leaders(), [], "nobody may lead");
        }
    }
}

#[test]
fn r9_14_a_cluster_begins_with_one_member_and_places_nothing_before_it_has_grown() {
    let mut group = Group::new();
    let mut was_placed = false;
    for _ in 0..300 {
        group.run(10);
        let Some(&leader) = group.leaders().first() else { continue };
        let is_placed = !group.config(leader).shards.is_empty();
        assert!(!is_placed || group.member(leader).coordinator.members().len() == SIZE);
        was_placed |= is_placed;
    }
    assert!(was_placed);
    let ids = BTreeSet::from([1, 2, 3].map(MemberId));
    assert!((0..SIZE).all(|index| group.member(index).coordinator.members() == ids));
    assert!((0..SIZE).all(|index| group.answers(index) == (index == 0)), "the leader answers, and nobody else");
}

#[test]
fn r9_14_members_are_placed_on_other_machines_first() {
    let mut group = Group::of_with(5, |options| options.nodes = 5);
    group.machines = BTreeMap::from([(3, 4), (4, 4)]);
    group.run(3_000);
    let leader = group.leaders()[0];
    let nodes = group.config(leader).group.iter().map(|of| of.node.0);
    assert_eq!(nodes.collect::<Vec<_>>(), [1, 4, 2], "one on the other machine, and where all have one, the next");
}

#[test]
fn the_leader_dies_and_another_one_goes_on_with_everything() {
    let mut group = Group::serving();
    for _ in 0..6 {
        let leader = group.leaders()[0];
        let before = group.config(leader).clone();
        group.kill(leader);
        assert!(group.leaders().is_empty());
        let mut took = 0;
        while group.leaders().is_empty() {
            group.run(10);
            took += 10;
            assert!(took < 3_000, "nobody leads");
        }
        group.run(2_500);
        let next = group.leaders()[0];
        assert!(next != leader && group.config(next).version >= before.version);
        assert!(group.answers(next));
        group.start(leader);
        group.run(2_000);
        assert_eq!(group.leaders(), [next], "who comes back follows");
        assert!(group.config(leader).version == group.config(next).version);
    }
}

/// Found by a benchmark: the next leader waited for a lease for the node that had died together with the leader.
#[test]
pub(crate) fn r9_13_who_has_overheard_all_nodes_need_not_listen_when_it_leads() {
    let mut group = Group::serving();
    for _ in 0..3 {
        let leader = group.leaders()[0];
        group.kill(leader);
        group.node_is_up(leader, false);
        while group.leaders().is_empty() {
            group.run(10);
        }
        let next = group.leaders()[0];
        assert!(group.answers(next), "within 100 ms");
        group.run(6_000);
        group.start(leader);
        group.node_is_up(leader, true);
        group.run(6_000);
        let now = group.leaders()[0];
        assert!(group.config(now).nodes.iter().all(|info| info.alive));
    }
}

#[test]
pub(crate) fn r9_2_a_leader_that_is_cut_off_answers_nobody() {
    let mut group = Group::serving();
    let old = group.leaders()[0];
    assert!(group.answers(old));
    group.cuts.extend((0..SIZE).filter(|other| *other != old).map(|other| (old.min(other), old.max(other))));
    assert!(!group.answers(old), "no round ends");
    group.run(6_000);
    let leaders = group.leaders();
    assert!(leaders.iter().any(|leader| *leader != old), "the others have a leader: {leaders:?}");
    assert!(!group.answers(old));
    group.cuts.clear();
    group.run(3_000);
    assert_eq!(group.leaders().len(), 1);
    let leader = group.leaders()[0];
    assert!(group.answers(leader));
}

#[test]
fn who_does_not_lead_says_who_does() {
    let mut group = Group::serving();
    let leader = group.leaders()[0];
    let other = (leader + 1) % SIZE;
    assert!(!group.answers(other));
    let [(_, AnyMessage::NotLeader(NotLeader { leader: Some(named), group: members, .. }))] = &group.answers[..] else {
        panic!("{:?}", group.answers)
    };
    let address_of = members.iter().find(|of| of.member == *named).map(|of| of.address);
    assert_eq!(address_of, Some(address(leader)));
}

#[test]
pub(crate) fn r9_4_elections_do_not_move_cluster_time() {
    let mut group = Group::serving();
    let (_, before) = group.time.unwrap();
    for _ in 0..6 {
        let leader = group.leaders()[0];
        group.kill(leader);
        group.run(3_500);
        group.start(leader);
        group.run(1_500);
    }
    let (_, after) = group.time.unwrap();
    assert!((before - 300..=before).contains(&after), "{before} ms ahead, then {after} ms: at most 50 ms less each");
}

/// Each machine knows by its own clock how much time has passed since its last record.
#[test]
fn r9_4_restarts_of_all_members_do_not_move_cluster_time() {
    let mut group = Group::serving();
    for round in 1..=5 {
        let leader = group.leaders()[0];
        (0..SIZE).for_each(|index| group.kill(index));
        (0..SIZE).filter(|index| *index != leader).for_each(|index| group.start(index));
        group.run(4_000);
        assert_eq!(group.leaders().len(), 1);
        group.start(leader);
        group.run(4_000);
        let (_, ahead) = group.time.unwrap();
        // Nobody led for two seconds, and members count slow: a twentieth.
        assert!((-150 * round..=50).contains(&ahead), "{ahead} ms ahead after {round}");
    }
}

/// Whoever leads, the unix time of ClusterTime 0 is the one that was said first. A leader whose clock on the wall is far away says so.
#[test]
fn r10_12_the_unix_time_of_cluster_time_0_is_said_once() {
    let mut group = Group::serving();
    let origin = group.member(0).coordinator.state().unix_origin().expect("a leader has said it");
    assert!((WALL..WALL + 10_000).contains(&origin.0), "{origin:?}");
    for (ahead, is_far) in [(4_000, false), (1_000_000, true)] {
        let leader = group.leaders()[0];
        (0..SIZE).filter(|index| *index != leader).for_each(|index| group.member(index).wall = Some(WALL + ahead));
        group.kill(leader);
        group.run(5_000);
        let next = group.leaders()[0];
        let coordinator = &group.member(next).coordinator;
        assert_eq!(coordinator.state().unix_origin(), Some(origin));
        assert_eq!(coordinator.far_wall().is_some_and(|by| (980_000..1_020_000).contains(&by)), is_far);
        let (_, by) = group.time.unwrap();
        assert!((-400..=100).contains(&by), "it follows slowly, if at all: {by} ms");
        group.start(leader);
        group.run(2_000);
    }
}

#[test]
fn r9_4_a_member_that_has_just_started_remembers_nothing_and_time_stands_still() {
    let mut group = Group::serving();
    (0..SIZE).for_each(|index| group.kill(index));
    (0..SIZE).for_each(|index| group.start(index));
    group.run(3_000);
    let (_, ahead) = group.time.unwrap();
    assert!((0..=1_000).contains(&ahead) || ahead.abs() < 100, "it began at the reservation at most: {ahead}");
}

/// What a folder has promised is gone with the folder, whatever listens at its address.
#[test]
fn r9_6_a_new_folder_at_a_members_place_is_not_that_member() {
    let mut group = Group::serving();
    let leader = group.leaders()[0];
    let lost = (leader + 1) % SIZE;
    group.kill(lost);
    group.folders.remove(&lost);
    let identity = 99;
    let options = CoordinatorOptions { begins: false, ..process_options(lost, 1, identity) };
    group.members[lost] = Some(World::try_new(options, MemoryDisk::default(), group.now).unwrap());
    group.run(2_000);
    assert_eq!(group.member(lost).coordinator.members(), BTreeSet::new(), "nobody has invited it");
    assert_eq!(group.leaders(), [leader]);
    group.kill(leader);
    group.run(5_000);
    assert_eq!(group.leaders(), [], "one of three is no majority, and the new folder has no vote");
    group.start(leader);
    group.run(3_000);
    assert_eq!(group.leaders().len(), 1);
}

#[test]
fn all_members_restart_with_one_away() {
    let mut group = Group::serving();
    let leader = group.leaders()[0];
    let before = group.config(leader).clone();
    (0..SIZE).for_each(|index| group.kill(index));
    [0, 2].into_iter().for_each(|index| group.start(index));
    group.run(6_000);
    let leader = group.leaders()[0];
    assert!(group.config(leader).version >= before.version && group.answers(leader));
    group.start(1);
    group.run(2_000);
    assert!(group.config(1).version == group.config(leader).version);
}

#[test]
fn r9_14_a_member_whose_node_stays_away_is_replaced_and_its_folder_comes_back_as_a_stranger() {
    let mut group = Group::serving_of(4);
    let leader = group.leaders()[0];
    let first = group.member(leader).coordinator.members();
    let lost = (0..SIZE).find(|index| *index != leader).unwrap();
    let lost_id = MemberId(lost as u64 + 1);
    group.kill(lost);
    group.node_is_up(lost, false);
    group.run(15_000);
    assert_eq!(group.member(leader).coordinator.members(), first, "it may come back soon");
    group.run(15_000);
    let members = group.member(leader).coordinator.members();
    assert!(members.len() == SIZE && !members.contains(&lost_id) && members.contains(&MemberId(4)), "{members:?}");
    let known: BTreeSet<_> = group.config(leader).group.iter().map(|of| of.member).collect();
    assert_eq!(known, members, "who has left is forgotten");
    // Two of the new group are enough, and who has left is none of them.
    group.start(lost);
    group.node_is_up(lost, true);
    group.run(2_000);
    group.kill(leader);
    group.run(5_000);
    let next = group.leaders()[0];
    assert!(next != lost && group.answers(next));
    group.kill(next);
    group.run(10_000);
    assert_eq!(group.leaders(), [], "one of three is left, and one that is none of them");
}

/// Machines A, B, C, A, B. The member on B is gone, and B has another node.
#[test]
fn r9_14_a_member_that_is_gone_does_not_count_for_its_machine() {
    let mut group = Group::of_with(5, |options| options.nodes = 5);
    group.machines = BTreeMap::from([(0, 1), (1, 2), (2, 3), (3, 1), (4, 2)]);
    group.run(4_000);
    let nodes =
        |group: &Group| -> Vec<u16> { group.config(group.leaders()[0]).group.iter().map(|of| of.node.0).collect() };
    assert_eq!(nodes(&group), [1, 2, 3]);
    group.kill(1);
    group.node_is_up(1, false);
    group.run(35_000);
    assert_eq!(nodes(&group), [1, 3, 5], "and not 4, which is on the machine of 1");
}
