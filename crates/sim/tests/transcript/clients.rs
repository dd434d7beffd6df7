//! Clients that the script drives by hand: it says what each sends. A body is made once and kept, as a session does
//! (R2.1). Every send of a body is an attempt with an envelope of its own. The command `heard` shows what an attempt
//! has collected, and whether it is complete by the rule of `kasha_witness`, which sessions use.

use std::collections::BTreeMap;
use std::time::Duration;

use kasha_types::{AckedBelow, ClientId, ClusterTime, Epoch, ListVersion, RpcId, Sequence, ShardId, TableId};
use kasha_wire::body::BodyHead;
use kasha_wire::hot::{self, Envelope, ReadView};
use kasha_wire::message::{LeaseRenewed, OpenSession, RenewLease, SessionOpened};
use kasha_wire::{AnswerView, Body, Kind, Message, Read, Recorded, RequestView, SyncRequest, Synced};

use super::attempt::Attempt;
use super::cluster::Letter;
use super::frames::Names;
use super::host::Party;
use super::script::{Script, is_kind, party};
use super::telling::Telling;
use super::words::update;

/// A client's id, and the end of its lease.
#[derive(Clone, Copy)]
struct Session {
    id: ClientId,
    lease_expiry: ClusterTime,
    time: ClusterTime,
}

#[derive(Default)]
pub struct Clients {
    pub names: Names,
    sessions: BTreeMap<u16, Session>,
    bodies: BTreeMap<RpcId, Vec<u8>>,
    attempts: BTreeMap<(RpcId, u32), Attempt>,
    reads: u64,
}

struct Options<'a> {
    words: Vec<&'a str>,
    named: BTreeMap<&'a str, &'a str>,
}

impl<'a> Options<'a> {
    fn parse(words: &[&'a str]) -> Self {
        let (named, words) = words.iter().partition(|word| word.contains('='));
        let named: Vec<&str> = named;
        Self { words, named: named.into_iter().filter_map(|word| word.split_once('=')).collect() }
    }
    fn number(&self, name: &str) -> Option<u64> {
        self.named.get(name).map(|text| text.parse().expect("a number"))
    }
    fn says(&self, word: &str) -> bool {
        self.words.contains(&word)
    }
}

impl Clients {
    fn rpc(&self, name: &str) -> (u16, RpcId) {
        let (client, sequence) = name.split_once('.').expect("an update's name, like c1.1");
        let Some(Party::Client(client)) = party(client) else { panic!("{name}: a client is wanted") };
        let session = self.sessions.get(&client).unwrap_or_else(|| panic!("c{client} is not open"));
        (client, RpcId { client: session.id, sequence: Sequence(sequence.parse().expect("a sequence")) })
    }

    /// A frame arrives at a client.
    pub fn hear(&mut self, client: u16, letter: &Letter) {
        if is_kind(letter, &[Kind::Answer]) {
            let answer = AnswerView::decode(&letter.payload).expect("an answer");
            if let Some(attempt) = self.attempts.get_mut(&(answer.rpc, answer.attempt)) {
                attempt.on_answer(&answer);
            }
        } else if is_kind(letter, &[Kind::Synced]) {
            let synced: Synced = hot::decode_small(&letter.payload).expect("a word");
            if let Some(attempt) = self.attempts.get_mut(&(synced.rpc, synced.attempt)) {
                attempt.on_synced(&synced);
            }
        } else if is_kind(letter, &[Kind::Recorded]) {
            let recorded: Recorded = hot::decode_small(&letter.payload).expect("a verdict");
            if let Some(attempt) = self.attempts.get_mut(&(recorded.rpc, recorded.attempt)) {
                attempt.on_recorded(&recorded);
            }
        } else if is_kind(letter, &[Kind::Message]) {
            if let Ok(SessionOpened { client: id, lease_expiry, cluster_time, .. }) = Message::decode(&letter.payload) {
                self.names.insert(id, format!("c{client}"));
                self.sessions.insert(client, Session { id, lease_expiry, time: cluster_time });
            }
            if let Ok(LeaseRenewed { lease_expiry, cluster_time, .. }) = Message::decode(&letter.payload) {
                let session = self.sessions.get_mut(&client).expect("it has one");
                (session.lease_expiry, session.time) = (lease_expiry, cluster_time);
            }
        }
    }
}

impl Script {
    /// Commands of clients.
    pub fn client(&mut self, command: &str, words: &[&str]) {
        match command {
            "open" | "renew" => self.session(command, words[0]),
            "request" => {
                self.make_body(words);
                self.attempt(words);
            }
            "clients" => self.open_clients(words),
            "fill" => self.fill(words),
            "retry" => self.attempt(words),
            "sync" => self.sync(words),
            "read" => self.read(words),
            "heard" => self.heard(words[0]),
            other => panic!("{other}: no such command"),
        }
    }

    fn send(&mut self, client: u16, to: Party, frame: &[u8]) {
        let line = match self.cluster.send(client, to, frame) {
            Some(letter) => format!("c{client}>{to} waits: {}", self.describe(&letter)),
            None => format!("c{client} cannot reach {to}"),
        };
        self.tell(line);
    }

    fn session(&mut self, command: &str, name: &str) {
        let Some(Party::Client(client)) = party(name) else { panic!("{name}: a client is wanted") };
        let mut frame = Vec::new();
        match command {
            "open" => OpenSession { nonce: u64::from(client) }.encode(&mut frame),
            _ => RenewLease { client: self.clients.sessions[&client].id }.encode(&mut frame),
        }
        self.send(client, Party::Coordinator, &frame);
    }

    /// Opens sessions, and tells all nodes of them.
    fn open_clients(&mut self, names: &[&str]) {
        for name in names {
            self.client("open", &[name]);
        }
        self.out.clear();
        self.pass(Duration::from_millis(500), Telling::Nothing);
    }

    /// `fill c1 FROM TO`: updates with these sequences that make the log long.
    fn fill(&mut self, words: &[&str]) {
        let bound = |at: usize| words[at].parse::<u64>().expect("a sequence");
        for sequence in bound(1)..=bound(2) {
            let (name, ack) = (format!("{}.{sequence}", words[0]), format!("ack={sequence}"));
            let (key, value) = (format!("k{sequence}"), "x".repeat(100));
            self.client("request", &[&name, &ack, "list=0", "put", &key, &value]);
            self.pass(Duration::from_millis(10), Telling::Nothing);
        }
        self.out.clear();
    }

    fn make_body(&mut self, words: &[&str]) {
        let (client, rpc) = self.clients.rpc(words[0]);
        let options = Options::parse(&words[1..]);
        let session = self.clients.sessions[&client];
        let is_flag = |word: &&str| matches!(*word, "primary-only" | "witnesses-only");
        let operation: Vec<&str> = options.words.iter().copied().filter(|word| !is_flag(word)).collect();
        let key = options.named.get("key").map(|key| key.as_bytes());
        let head = BodyHead {
            rpc,
            acknowledgement: AckedBelow(options.number("ack").unwrap_or(1)),
            lease_expiry: session.lease_expiry,
            not_after: match key {
                Some(_) => session.time.after_millis(options.number("for").unwrap_or(60_000)),
                None => ClusterTime(0),
            },
            begun: session.time,
            table: TableId(1),
        };
        let mut body = Vec::new();
        Body::encode(&head, key, &update(&operation), &mut body);
        self.clients.bodies.insert(rpc, body);
    }

    /// Sends a body: to the primary, and to the witnesses, as the committed configuration or the options name them.
    fn attempt(&mut self, words: &[&str]) {
        let (client, rpc) = self.clients.rpc(words[0]);
        let options = Options::parse(&words[1..]);
        let shard = self.committed.as_ref().expect("settled").shards[0].clone();
        let list = ListVersion(options.number("list").unwrap_or(shard.list.0));
        let epoch = Epoch(options.number("epoch").map_or(shard.epoch.0, |epoch| epoch as u32));
        let attempt = options.number("attempt").unwrap_or(1) as u32;
        let envelope = Envelope { shard: ShardId(0), epoch, list, cluster_time: ClusterTime(0), attempt, turn: None };
        // The parts of one attempt may be sent one by one. Another epoch or list makes another attempt.
        let kept = self.clients.attempts.get(&(rpc, attempt));
        if kept.is_none_or(|kept| (kept.epoch, kept.list) != (epoch, list)) {
            self.clients.attempts.insert((rpc, attempt), Attempt::new(epoch, list, &shard.witnesses));
        }
        let body = self.clients.bodies.get(&rpc).expect("it was requested before").clone();
        let to = options.named.get("to").and_then(|to| party(to));
        let witnesses = shard.witnesses.iter().map(|node| Party::Node(node.0)).filter(|_| list != ListVersion::NONE);
        let primary = (Kind::Request, to.unwrap_or(Party::Node(shard.primary.0)));
        let mut sends = if options.says("witnesses-only") { Vec::new() } else { vec![primary] };
        if !options.says("primary-only") {
            let only = to.filter(|_| options.says("witnesses-only"));
            let to = only.map_or_else(|| witnesses.collect(), |only| vec![only]);
            sends.extend(to.into_iter().map(|witness| (Kind::Record, witness)));
        }
        for (kind, to) in sends {
            let mut frame = Vec::new();
            RequestView::encode(kind, &envelope, &body, &mut frame);
            self.send(client, to, &frame);
        }
    }

    fn sync(&mut self, words: &[&str]) {
        let (client, rpc) = self.clients.rpc(words[0]);
        let options = Options::parse(&words[1..]);
        let shard = &self.committed.as_ref().expect("settled").shards[0];
        let to = options.named.get("to").and_then(|to| party(to)).unwrap_or(Party::Node(shard.primary.0));
        let epoch = Epoch(options.number("epoch").map_or(shard.epoch.0, |epoch| epoch as u32));
        let attempt = options.number("attempt").unwrap_or(1) as u32;
        let mut frame = Vec::new();
        hot::encode_small(Kind::Sync, &SyncRequest { shard: ShardId(0), epoch, rpc, attempt }, &mut frame);
        self.send(client, to, &frame);
    }

    fn read(&mut self, words: &[&str]) {
        let Some(Party::Client(client)) = party(words[0]) else { panic!("read c1 key") };
        let options = Options::parse(&words[2..]);
        let shard = &self.committed.as_ref().expect("settled").shards[0];
        let to = options.named.get("to").and_then(|to| party(to)).unwrap_or(Party::Node(shard.primary.0));
        let envelope = Envelope {
            shard: ShardId(0),
            epoch: Epoch(options.number("epoch").map_or(shard.epoch.0, |epoch| epoch as u32)),
            list: ListVersion::NONE,
            cluster_time: ClusterTime(0),
            attempt: 1,
            turn: None,
        };
        let read = Read::Get { key: words[1].as_bytes() };
        let (mut arguments, mut frame) = (Vec::new(), Vec::new());
        read.encode_arguments(&mut arguments);
        self.clients.reads += 1;
        let read_id = self.clients.reads;
        ReadView { envelope, read_id, table: TableId(1), code: read.code(), arguments: &arguments }.encode(&mut frame);
        self.send(client, to, &frame);
    }

    /// What each attempt of an update has collected, and whether it is complete by the client's rule (section 6).
    fn heard(&mut self, name: &str) {
        let (_, rpc) = self.clients.rpc(name);
        let attempts = self.clients.attempts.range((rpc, 0)..=(rpc, u32::MAX));
        let lines: Vec<String> =
            attempts.map(|((_, number), attempt)| format!("attempt {number}: {}", attempt.describe())).collect();
        lines.into_iter().for_each(|line| self.tell(line));
    }
}
