//! Commands of no key, beside a cluster of two shards whose nodes a test speaks for: one page after the other, and nothing overtakes (R10.3).

use std::net::SocketAddr;

use kasha_client::session::{Session, SessionOptions};
use kasha_gateway::limits::{CANCEL_GRACE, COMMAND_DEADLINE};
use kasha_gateway::{RedisFront, RedisOptions};
use kasha_machine::{Effect, Effects, Endpoint, Fronted, Input, Machine};
use kasha_types::{
    ClientId, ClusterId, ClusterTime, ConfigVersion, ConnId, Epoch, Incarnation, ListVersion, NodeId, ShardId, Slot,
    TableId, Tick, UnixMillis,
};
use kasha_wire::frame::FRAME_HEADER_BYTES;
use kasha_wire::hot::{ReadAnswerView, ReadView};
use kasha_wire::operation::ScanCursor;
use kasha_wire::{
    AnyMessage, Configuration, Durability, Kind, Later, Level, Member, MemberState, Message, NodeInfo, Read,
    ShardConfig, ShardPhase, TableInfo, Tablet, message,
};

pub(super) const TABLE: TableId = TableId(7);
const CONN: ConnId = ConnId(1);
pub(super) const SPLIT: u16 = 8192;

pub(super) struct World {
    front: Fronted<RedisFront, Session>,
    effects: Effects,
    now: Tick,
    pub(super) said: String,
    conn: ConnId,
    /// Frames to servers that nobody has looked at.
    pub(super) sent: Vec<(Endpoint, Vec<u8>)>,
}

fn configuration() -> Configuration {
    let address = |node: u16| SocketAddr::from(([127, 0, 0, 1], 7400 + node));
    let shard = |shard: u16| ShardConfig {
        shard: ShardId(shard),
        epoch: Epoch(1),
        primary: NodeId(shard + 1),
        phase: ShardPhase::Serving,
        members: vec![Member { node: NodeId(shard + 1), state: MemberState::Complete, since: ConfigVersion(0) }],
        members_since: ConfigVersion(0),
        recover_from: Vec::new(),
        witnesses: Vec::new(),
        list: ListVersion(1),
        closing: false,
        served: None,
    };
    let node = |node: u16| NodeInfo {
        node: NodeId(node),
        incarnation: Incarnation(1),
        cores: vec![address(node)],
        alive: true,
    };
    let tablet = |first: u16, last: u16, shard: u16| Tablet {
        table: TABLE,
        first: Slot(first),
        last: Slot(last),
        shard: ShardId(shard),
    };
    Configuration {
        cluster: ClusterId(1),
        version: ConfigVersion(2),
        faults: 0,
        durability: Durability::Replicated,
        min_backups: 0,
        nodes_wanted: 2,
        coordinator: address(0),
        group: Vec::new(),
        nodes: vec![node(1), node(2)],
        shards: vec![shard(0), shard(1)],
        tables: vec![TableInfo { table: TABLE, name: "redis:0".into() }],
        tablets: vec![tablet(0, SPLIT - 1, 0), tablet(SPLIT, 16383, 1)],
    }
}

impl World {
    pub(super) fn at(level: Level, origin: Option<UnixMillis>) -> Self {
        Self::drawn(1, level, origin)
    }

    fn drawn(seed: u64, level: Level, origin: Option<UnixMillis>) -> Self {
        let (now, mut effects) = (Tick(1_000_000_000), Effects::new());
        let address = "127.0.0.1:1".parse().expect("an address");
        let options = SessionOptions {
            deadline: COMMAND_DEADLINE,
            cancel_grace: CANCEL_GRACE,
            ..SessionOptions::new(vec![address], seed)
        };
        let front = Fronted::new(RedisFront::new(RedisOptions::default()), Session::new(options, now, &mut effects));
        let mut world = Self { front, effects, now, said: String::new(), conn: CONN, sent: Vec::new() };
        world.end_turn();
        world.tell_configuration(Endpoint::Seed(0), level, origin);
        world.open_session();
        world
    }

    /// Says what the cluster is.
    pub(super) fn tell_configuration(&mut self, from: Endpoint, level: Level, origin: Option<UnixMillis>) {
        let unix_origin = Later::at(level, origin);
        let message = message::ConfigurationIs { configuration: configuration(), level, unix_origin };
        self.message(from, &message);
    }

    fn open_session(&mut self) {
        let nonce = self.sent.drain(..).find_map(|(_, frame)| match AnyMessage::decode(&frame[FRAME_HEADER_BYTES..]) {
            Ok(AnyMessage::OpenSession(asked)) => Some(asked.nonce),
            _ => None,
        });
        let (nonce, client) = (nonce.expect("it asks for a client id"), ClientId(5));
        let (lease_expiry, cluster_time) = (ClusterTime(300_000), ClusterTime(1_000));
        let opened = message::SessionOpened { nonce, client, lease_expiry, cluster_time };
        self.message(Endpoint::Coordinator, &opened);
        self.sent.clear();
    }

    fn message(&mut self, from: Endpoint, message: &impl Message) {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        self.frame(from, Kind::Message, &frame);
    }

    pub(super) fn frame(&mut self, from: Endpoint, kind: Kind, frame: &[u8]) {
        let input = Input::Frame { from, kind: kind as u8, payload: &frame[FRAME_HEADER_BYTES..] };
        self.front.step(self.now, input, &mut self.effects);
        self.end_turn();
    }

    /// So long nobody says anything.
    pub(super) fn pass(&mut self, millis: u64) {
        self.now = self.now.after(std::time::Duration::from_millis(millis));
        self.front.step(self.now, Input::Tick, &mut self.effects);
        self.end_turn();
    }

    fn end_turn(&mut self) {
        self.front.end_turn(self.now, &mut self.effects);
        for &effect in self.effects.queue() {
            if let Effect::Send { to, head, .. } = effect {
                let bytes = self.effects.bytes(head).to_vec();
                match to {
                    Endpoint::Conn(_) => self.said += &String::from_utf8_lossy(&bytes),
                    server => self.sent.push((server, bytes)),
                }
            }
        }
        self.effects.clear();
        self.front.assert_invariants();
    }

    /// The connection is gone, and there is another one.
    pub(super) fn hang_up(&mut self) {
        self.front.step(self.now, Input::Closed(self.conn), &mut self.effects);
        self.end_turn();
        self.conn = ConnId(self.conn.0 + 1); // no number is used again
    }

    pub(super) fn tick(&mut self, millis: u64) {
        self.now = self.now.after(std::time::Duration::from_millis(millis));
        self.front.step(self.now, Input::Tick, &mut self.effects);
        self.end_turn();
    }

    /// A request, and a PING behind it.
    pub(super) fn ask(&mut self, words: &[&str]) {
        self.said.clear();
        let conn = self.conn;
        [words, &["PING"]].into_iter().for_each(|words| self.hear(conn, words));
        self.end_turn();
    }

    /// Requests in one turn, each on a connection of its own.
    pub(super) fn ask_each(&mut self, requests: &[&[&str]]) {
        self.said.clear();
        for (conn, words) in (CONN.0..).map(ConnId).zip(requests) {
            self.hear(conn, words);
        }
        self.end_turn();
    }

    fn hear(&mut self, from: ConnId, words: &[&str]) {
        let mut bytes = format!("*{}\r\n", words.len());
        words.iter().for_each(|word| bytes += &format!("${}\r\n{word}\r\n", word.len()));
        let mut cutter = kasha_wire::requests::RequestCutter::default();
        let Self { front, effects, now, .. } = self;
        _ = cutter.feed(bytes.as_bytes(), |cut| {
            let kasha_wire::requests::Cut::Request(request) = cut else { panic!("it is a request") };
            front.step(*now, Input::Request { from, bytes: request.bytes(), is_whole: true }, effects);
            kasha_wire::cutter::Verdict::Continue
        });
    }

    /// The page that is asked for, and which node it is asked of; answers it.
    fn page(&mut self, next: u64, in_shard: u64, names: &[&str]) -> (u16, u64, u32, String) {
        let mut reads = self.sent.drain(..).filter(|(_, frame)| frame[12] == Kind::Read as u8);
        let (to, frame) = reads.next().expect("it asks for a page");
        assert!(reads.next().is_none(), "one page at a time");
        drop(reads);
        let view = ReadView::decode(&frame[FRAME_HEADER_BYTES..]).expect("a read");
        let (read_id, Endpoint::Core(core)) = (view.read_id, to) else { panic!("{to:?}") };
        let Ok(Read::Scan { cursor, most, prefix }) = Read::decode(view.code, view.arguments) else { panic!("a page") };
        let asked = (core.node.0, cursor.number(), most, String::from_utf8_lossy(prefix).into_owned());
        let mut result = vec![0];
        result.extend_from_slice(&next.to_le_bytes());
        result.extend_from_slice(&in_shard.to_le_bytes());
        result.extend_from_slice(&u32::try_from(names.len()).expect("few").to_le_bytes());
        for name in names {
            result.extend_from_slice(&1_u64.to_le_bytes());
            result.extend_from_slice(&u16::try_from(name.len()).expect("short").to_le_bytes());
            result.extend_from_slice(name.as_bytes());
        }
        let mut answer = Vec::new();
        ReadAnswerView { read_id, result: &result }.encode(&[], &mut answer);
        self.frame(to, Kind::ReadAnswer, &answer);
        asked
    }
}

fn place(slot: u16, position: u32) -> u64 {
    ScanCursor { slot: Slot(slot), position }.number()
}

#[test]
fn dbsize_adds_what_each_shard_has() {
    let mut world = World::at(Level::COMMANDS, None);
    world.ask(&["DBSIZE"]);
    assert_eq!(world.page(place(SPLIT, 0), 40, &[]), (1, 0, 0, String::new()));
    assert_eq!(world.said, "", "PING waits");
    assert_eq!(world.page(0, 2, &[]), (2, place(SPLIT, 0), 0, String::new()));
    assert_eq!(world.said, ":42\r\n+PONG\r\n");
}

#[test]
fn keys_goes_through_all_shards_and_asks_for_what_may_match() {
    let mut world = World::at(Level::COMMANDS, None);
    world.ask(&["KEYS", "us?r"]);
    assert_eq!(world.page(place(0, 9), 3, &["user", "us"]), (1, 0, 192, "us".into()));
    assert_eq!(world.page(place(SPLIT, 0), 0, &[]), (1, place(0, 9), 192, "us".into()));
    assert_eq!(world.page(0, 1, &["usor"]), (2, place(SPLIT, 0), 192, "us".into()));
    assert_eq!(world.said, "*2\r\n$4\r\nuser\r\n$4\r\nusor\r\n+PONG\r\n");
}

#[test]
fn r10_15_a_scan_goes_on_at_the_shard_that_its_cursor_names() {
    let mut world = World::at(Level::COMMANDS, None);
    let cursor = place(SPLIT, 77).to_string();
    world.ask(&["SCAN", &cursor, "MATCH", "*x", "COUNT", "500"]);
    assert_eq!(world.page(place(SPLIT, 99), 0, &["ax", "b"]), (2, place(SPLIT, 77), 192, String::new()));
    assert_eq!(world.page(0, 0, &["cx"]), (2, place(SPLIT, 99), 192, String::new()));
    assert_eq!(world.said, "*2\r\n$1\r\n0\r\n*2\r\n$2\r\nax\r\n$2\r\ncx\r\n+PONG\r\n");
    world.ask(&["SCAN", "0"]);
    assert_eq!(world.page(place(0, 5), 100, &["a"]), (1, 0, 10, String::new()));
    let told = place(0, 5).to_string();
    assert_eq!(world.said, format!("*2\r\n${}\r\n{told}\r\n*1\r\n$1\r\na\r\n+PONG\r\n", told.len()));
}

#[test]
fn randomkey_goes_around_and_passes_shards_without_keys() {
    for seed in 0..20 {
        let mut world = World::drawn(seed, Level::COMMANDS, None);
        world.ask(&["RANDOMKEY"]);
        // The first shard has no key: it is passed at once, wherever in it the first place is.
        let mut passed = 0;
        while !world.said.starts_with('$') {
            let (next, names): (_, &[&str]) = match world.first_asked() {
                1 => (place(0, u32::MAX), &[]),
                _ => (0, &["only"]),
            };
            world.page(next, u64::from(!names.is_empty()), names);
            passed += 1;
        }
        assert!(passed <= 2 && world.said == "$4\r\nonly\r\n+PONG\r\n", "{passed} {}", world.said);
    }
    // Found by this test: one that began in the last tablet went around for ever. `in_shard`: whether pages tell that shards are empty.
    for in_shard in [0, 1] {
        for seed in 0..20 {
            let mut world = World::drawn(seed, Level::COMMANDS, None);
            world.ask(&["RANDOMKEY"]);
            for _ in 0..4 {
                if world.said.is_empty() {
                    let next = if world.first_asked() == 1 { place(SPLIT, 0) } else { 0 };
                    world.page(next, in_shard, &[]);
                }
            }
            assert_eq!(world.said, "$-1\r\n+PONG\r\n", "all are empty");
        }
    }
}

impl World {
    /// The node of which a page is asked.
    fn first_asked(&self) -> u16 {
        let read = self.sent.iter().find(|(_, frame)| frame[12] == Kind::Read as u8);
        let Some((Endpoint::Core(core), _)) = read else { panic!("it asks for a page") };
        core.node.0
    }
}

#[test]
fn r7_6_a_cluster_of_the_release_before_is_not_asked() {
    let mut world = World::at(Level::FIRST, None);
    for (words, is_told) in [(&["SET", "k", "v"][..], true), (&["GET", "k"], true), (&["DBSIZE"], false)] {
        world.ask(words);
        assert_eq!(world.said.starts_with("-TRYAGAIN ") && world.said.contains("(K0326)"), is_told, "{}", world.said);
    }
}

#[test]
fn r10_12_the_time_is_that_of_the_cluster() {
    let mut world = World::at(Level::COMMANDS, Some(UnixMillis(1_700_000_000_000)));
    world.ask(&["TIME"]);
    assert_eq!(world.said, "*2\r\n$10\r\n1700000001\r\n$1\r\n0\r\n+PONG\r\n");
    // Where it is not known the coordinator is asked.
    let mut world = World::at(Level::COMMANDS, None);
    world.ask(&["TIME"]);
    assert_eq!(world.said, "");
    let (level, unix_origin) = (Level::COMMANDS, Later::at(Level::COMMANDS, Some(UnixMillis(1_600_000_000_000))));
    world.message(
        Endpoint::Coordinator,
        &message::ConfigurationIs { configuration: configuration(), level, unix_origin },
    );
    assert_eq!(world.said, "*2\r\n$10\r\n1600000001\r\n$1\r\n0\r\n+PONG\r\n");
}
