//! One core, and a shell that throws its effects away: no sockets, no files.
//!
//! The shell counts the frames of each kind, so that a case can check that its load really ran.

use std::net::SocketAddr;

use kasha_machine::{Disk, Effects, Endpoint, FileName, Held, Input, Machine, turn};
use kasha_node::{Node, NodeOptions};
use kasha_types::{ClusterId, ConnId, CoreId, LocalPosition, NodeId, Tick};
use kasha_wire::cutter::Verdict;
use kasha_wire::requests::{Cut, RequestCutter};
use kasha_wire::{FRAME_HEADER_BYTES, FrameHeader};

/// More rounds than any commit needs.
const COMMIT_ROUNDS_MAX: usize = 8;

/// All kinds of frames are below this number.
const KINDS: usize = 64;

/// The kind of a frame, or of its head.
pub fn kind_of(frame: &[u8]) -> u8 {
    frame[12]
}

pub fn address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 1))
}

/// The inputs of one turn of the event loop.
#[derive(Clone)]
pub struct Turn {
    pub now: Tick,
    /// Whole frames, as a connection's buffer has them, with their senders.
    pub received: Vec<(Endpoint, Vec<u8>)>,
    /// What programs sent that speak the Redis protocol.
    pub requests: Vec<(ConnId, Vec<u8>)>,
}

pub struct NoFiles;

impl Disk for NoFiles {
    fn list(&self) -> Vec<FileName> {
        Vec::new()
    }
    fn read(&self, _: FileName) -> std::io::Result<Option<Vec<u8>>> {
        Ok(None)
    }
}

/// Connections from this one on speak the Redis protocol.
pub const FIRST_REQUESTER: ConnId = ConnId(1 << 32);

/// A shell that counts frames and throws them away.
pub struct Sink {
    /// Number of frames by kind.
    pub frames: [u64; KINDS],
    pub bytes: u64,
    /// Of replies in the Redis protocol.
    pub reply_bytes: u64,
    commits: Vec<LocalPosition>,
    wants_flush: bool,
    /// A rehearsal keeps the frames, because it needs them.
    pub kept: Option<Vec<(Endpoint, Vec<u8>)>>,
}

impl Sink {
    pub fn new() -> Self {
        Self { frames: [0; KINDS], bytes: 0, reply_bytes: 0, commits: Vec::new(), wants_flush: false, kept: None }
    }
}

impl turn::Shell for Sink {
    #[inline(always)] // no call of ours is counted
    fn send(&mut self, to: Endpoint, head: &[u8], tail: &[u8]) {
        if matches!(to, Endpoint::Conn(conn) if conn >= FIRST_REQUESTER) {
            self.reply_bytes += (head.len() + tail.len()) as u64;
            return;
        }
        self.frames[usize::from(kind_of(head))] += 1;
        self.bytes += (head.len() + tail.len()) as u64;
        if let Some(kept) = &mut self.kept {
            kept.push((to, [head, tail].concat()));
        }
    }
    fn write(&mut self, _: FileName, _: u64, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
    }
    fn replace(&mut self, _: FileName, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
    }
    fn truncate(&mut self, _: FileName, _: u64) {}
    fn remove(&mut self, _: FileName) {}
    fn flush_logs(&mut self) {
        self.wants_flush = true;
    }
    fn commit(&mut self, to: LocalPosition, _: bool) {
        self.commits.push(to);
    }
    fn flush(&mut self) {}
    fn route(&mut self, _: Endpoint, _: SocketAddr) {}
    fn disconnect(&mut self, to: Endpoint) {
        panic!("{to:?} is disconnected");
    }
    fn stop(&mut self, why: &str) {
        panic!("{why}");
    }
}

pub struct Core<M = Node> {
    machine: M,
    effects: Effects,
    held: Held,
    pub sink: Sink,
}

impl Core {
    pub fn start(id: NodeId) -> Self {
        Self::of(|effects| node(id, effects))
    }
}

/// A node that begins.
pub fn node(id: NodeId, effects: &mut Effects) -> Node {
    let options = NodeOptions::new(ClusterId(1), CoreId { node: id, core: 0 }, vec![address()], address());
    Node::start(options, &NoFiles, Tick(1), effects).expect("there are no files to refuse")
}

impl<M: Machine> Core<M> {
    pub fn of(make: impl FnOnce(&mut Effects) -> M) -> Self {
        let mut effects = Effects::new();
        Self { machine: make(&mut effects), effects, held: Held::new(), sink: Sink::new() }
    }

    /// What the event loop does between two polls, without sockets and files. A write is complete as soon as it is
    /// made, and so is a flush, as on a machine with memory for a disk.
    pub fn turn(&mut self, Turn { now, received, requests }: &Turn) {
        let now = *now;
        for (from, bytes) in received {
            self.receive(now, *from, bytes);
        }
        for (from, bytes) in requests {
            self.hear(now, *from, bytes);
        }
        if self.machine.next_deadline().is_some_and(|deadline| deadline <= now) {
            self.machine.step(now, Input::Tick, &mut self.effects);
        }
        for _ in 0..COMMIT_ROUNDS_MAX {
            turn::finish(now, &mut self.machine, &mut self.effects, &mut self.held, &mut self.sink);
            let is_flushed = std::mem::take(&mut self.sink.wants_flush);
            if self.sink.commits.is_empty() && !is_flushed {
                return;
            }
            if is_flushed {
                self.machine.step(now, Input::LogsFlushed, &mut self.effects);
            }
            for commit in self.sink.commits.drain(..) {
                self.machine.step(now, Input::Durable(commit), &mut self.effects);
            }
        }
        panic!("commits cause commits without end");
    }

    fn receive(&mut self, now: Tick, from: Endpoint, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let header = FrameHeader::parse(bytes).expect("a frame").expect("a whole header");
            let (frame, rest) = bytes.split_at(FRAME_HEADER_BYTES + header.payload_len);
            let payload = header.check(frame).expect("an intact frame");
            self.machine.step(now, Input::Frame { from, kind: header.kind, payload }, &mut self.effects);
            bytes = rest;
        }
    }

    /// Cuts requests, as the event loop does.
    fn hear(&mut self, now: Tick, from: ConnId, bytes: &[u8]) {
        let Self { machine, effects, .. } = self;
        let mut cutter = RequestCutter::default();
        _ = cutter.feed(bytes, |cut| {
            let Cut::Request(request) = cut else { panic!("a request") };
            machine.step(now, Input::Request { from, bytes: request.bytes(), is_whole: true }, effects);
            Verdict::Continue
        });
        assert!(!cutter.holds_bytes(), "whole requests");
    }
}
