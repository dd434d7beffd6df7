//! Small machines, a running loop, and a plain socket that speaks frames.
#![allow(dead_code, unreachable_pub, missing_docs, clippy::disallowed_methods, clippy::new_without_default)]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use kasha_machine::{Data, Disk, Effect, Effects, Endpoint, FileName, Gate, Input, Machine, RequestsEnd};
use kasha_runtime::{
    ClusterCell, EventLoop, Exit, Identity, LoopError, LoopHandle, LoopOptions, NetworkStats, Serve, listen, spawn_loop,
};
use kasha_types::{
    ClusterId, CoreId, Epoch, Incarnation, LocalPosition, LogEnd, LogPosition, LogSlice, NodeId, SegmentId, ShardId,
    Tick,
};
use kasha_wire::WireVersions;
use kasha_wire::frame::{begin, end};
use kasha_wire::requests::Request;
use kasha_wire::{AnyMessage, FRAME_HEADER_BYTES, FrameHeader, Kind, Message, message};

pub const CLUSTER: ClusterId = ClusterId(7);
pub const CORE: CoreId = CoreId { node: NodeId(1), core: 0 };

pub fn frame(kind: Kind, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let start = begin(&mut out, kind);
    out.extend_from_slice(payload);
    end(&mut out, start, &[]);
    out
}

pub fn send(out: &mut Effects, to: Endpoint, payload: &[u8], gate: Gate) {
    let mark = out.mark();
    let start = begin(out.arena(), Kind::Answer);
    out.arena().extend_from_slice(payload);
    end(out.arena(), start, &[]);
    let head = out.span_from(mark);
    out.push(Effect::Send { to, head, tail: None, gate });
}

/// Sends every payload back, `times` over; disconnects after "bye", stops after "stop".
pub struct Echo {
    pub times: usize,
    pub handled: Arc<AtomicU64>,
    pub closed: Arc<AtomicU64>,
}

impl Echo {
    pub fn new() -> Self {
        Self { times: 1, handled: Arc::default(), closed: Arc::default() }
    }
}

impl Machine for Echo {
    fn step(&mut self, _: Tick, input: Input<'_>, out: &mut Effects) {
        match input {
            Input::Frame { from, payload, .. } => {
                send(out, from, &payload.repeat(self.times), Gate::Now);
                self.handled.fetch_add(1, Ordering::SeqCst);
                if payload == b"bye" {
                    out.push(Effect::Disconnect(from));
                }
                if payload == b"stop" {
                    let why = out.span(b"asked to");
                    out.push(Effect::Stop(why));
                }
            }
            Input::Closed(_) => {
                self.closed.fetch_add(1, Ordering::SeqCst);
            }
            Input::Request { from, bytes, .. } => {
                let words: Vec<_> = Request::of_kept(bytes).words().collect();
                let text = out.span(&[&words.join(&b' ')[..], b"!\n"].concat());
                out.push(Effect::Send { to: Endpoint::Conn(from), head: text, tail: None, gate: Gate::Now });
                self.handled.fetch_add(1, Ordering::SeqCst);
            }
            Input::RequestsEnd { from, why } => {
                let text = match why {
                    RequestsEnd::Bad(_) => out.span(b"no request\n"),
                    RequestsEnd::HalfClosed => out.span(b"all heard\n"),
                };
                out.push(Effect::Send { to: Endpoint::Conn(from), head: text, tail: None, gate: Gate::Now });
                out.push(Effect::Disconnect(Endpoint::Conn(from)));
            }
            // It has told the connection what it asked for: what is not read stops the next question.
            Input::Backlog { .. } => {}
            Input::Unreachable(_) | Input::Durable(_) | Input::LogsFlushed | Input::UnixTime(_) | Input::Tick => {}
        }
    }
    fn end_turn(&mut self, _: Tick, _: &mut Effects) {}
    fn next_deadline(&self) -> Option<Tick> {
        None
    }
    fn is_open(&self, _: Gate) -> bool {
        true
    }
    fn log_bytes(&self, _: LogSlice) -> &[u8] {
        &[]
    }
}

/// Writes every payload to a file and answers when that is durable.
pub struct Gated {
    pub fsync: bool,
    pub offset: u64,
    pub next: LocalPosition,
    pub durable: LocalPosition,
    pub written: bool,
}

impl Gated {
    pub fn new(fsync: bool, disk: &dyn Disk) -> Self {
        let content = disk.read(Self::FILE).ok().flatten().unwrap_or_default();
        let (next, durable) = (LocalPosition(1), LocalPosition(0));
        Self { fsync, offset: content.len() as u64, next, durable, written: false }
    }
    pub const FILE: FileName = FileName::Segment { shard: ShardId(0), segment: SegmentId(0) };
}

impl Machine for Gated {
    fn step(&mut self, _: Tick, input: Input<'_>, out: &mut Effects) {
        match input {
            Input::Frame { from, payload, .. } => {
                let data = Data::Span(out.span(payload));
                out.push(Effect::Write { file: Self::FILE, offset: self.offset, data });
                self.offset += payload.len() as u64;
                self.written = true;
                send(out, from, payload, Gate::Durable(self.next));
            }
            Input::Durable(to) => {
                assert!(to > self.durable, "in order");
                self.durable = to;
            }
            Input::Closed(_) | Input::Unreachable(_) | Input::LogsFlushed | Input::UnixTime(_) | Input::Tick => {}
            Input::Request { .. } | Input::RequestsEnd { .. } | Input::Backlog { .. } => {
                unreachable!("it listens for frames")
            }
        }
    }
    fn end_turn(&mut self, _: Tick, out: &mut Effects) {
        if std::mem::take(&mut self.written) {
            out.push(Effect::Commit { to: self.next, fsync: self.fsync });
            self.next = self.next.next();
        }
    }
    fn next_deadline(&self) -> Option<Tick> {
        None
    }
    fn is_open(&self, gate: Gate) -> bool {
        matches!(gate, Gate::Durable(to) if to <= self.durable)
    }
    fn log_bytes(&self, _: LogSlice) -> &[u8] {
        &[]
    }
}

/// Answers when somebody has said "open", "drop" forgets what is held; everything is a replica's answer of shard 1.
#[derive(Default)]
pub struct Stuck {
    pub is_open: bool,
    pub handled: Arc<AtomicU64>,
}

impl Machine for Stuck {
    fn step(&mut self, _: Tick, input: Input<'_>, out: &mut Effects) {
        let Input::Frame { from, payload, .. } = input else { return };
        match payload {
            b"open" => self.is_open = true,
            b"drop" => out.push(Effect::DropHeld(ShardId(1))),
            _ => {
                let position = LogPosition { epoch: Epoch(1), offset: LogEnd(1) };
                send(out, from, payload, Gate::Synced { shard: ShardId(1), position });
                self.handled.fetch_add(1, Ordering::SeqCst);
                return;
            }
        }
        send(out, from, payload, Gate::Now);
    }
    fn end_turn(&mut self, _: Tick, _: &mut Effects) {}
    fn next_deadline(&self) -> Option<Tick> {
        None
    }
    fn is_open(&self, _: Gate) -> bool {
        self.is_open
    }
    fn log_bytes(&self, _: LogSlice) -> &[u8] {
        &[]
    }
}

/// A loop on its own thread.
pub struct Server {
    pub address: SocketAddr,
    handle: LoopHandle,
    thread: Option<JoinHandle<(Result<Exit, LoopError>, NetworkStats)>>,
}

pub fn server_identity() -> Identity {
    Identity {
        cluster: ClusterCell::new(CLUSTER),
        core: Some(CORE),
        incarnation: Incarnation(1),
        versions: WireVersions::OURS,
    }
}

impl Server {
    pub fn start<M: Machine + 'static>(
        options: LoopOptions,
        make: impl FnOnce(&dyn Disk) -> M + Send + 'static,
    ) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), options, make)
    }

    pub fn start_at<M: Machine + 'static>(
        address: SocketAddr,
        options: LoopOptions,
        make: impl FnOnce(&dyn Disk) -> M + Send + 'static,
    ) -> Self {
        Self::start_as(server_identity(), address, options, make)
    }

    pub fn start_as<M: Machine + 'static>(
        identity: Identity,
        address: SocketAddr,
        mut options: LoopOptions,
        make: impl FnOnce(&dyn Disk) -> M + Send + 'static,
    ) -> Self {
        let (listener, address) = listen(address).unwrap();
        options.listen.push(listener.into());
        options.name = "test".into();
        options.identity = identity;
        let (tell, told) = channel();
        let thread = spawn_loop("test", None, move || {
            let mut this = EventLoop::new(options, |disk, _, _| Ok(make(disk))).unwrap();
            tell.send(this.handle()).unwrap();
            let result = this.run(&mut Serve);
            (result, this.stats())
        });
        Self { address, handle: told.recv().unwrap(), thread: Some(thread.unwrap()) }
    }

    pub fn stop(mut self) -> NetworkStats {
        self.handle.stop();
        let (result, stats) = self.thread.take().unwrap().join().unwrap();
        assert_eq!(result.unwrap(), Exit::Requested);
        stats
    }

    /// Waits until it ends by itself.
    pub fn failure(mut self) -> LoopError {
        self.thread.take().unwrap().join().unwrap().0.unwrap_err()
    }
}

/// A plain socket.
pub struct Raw(pub TcpStream);

impl Raw {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(stream)
    }

    /// Connects and shakes hands.
    pub fn greeted(address: SocketAddr) -> Self {
        let mut this = Self::connect(address);
        this.0.write_all(&hello(CLUSTER, Some(CORE))).unwrap();
        assert!(matches!(
            this.message(),
            AnyMessage::Welcome(message::Welcome { cluster: CLUSTER, core: Some(CORE), .. })
        ));
        this
    }

    pub fn send(&mut self, payload: &[u8]) {
        self.0.write_all(&frame(Kind::Read, payload)).unwrap();
    }

    /// The next frame; `None` at the end.
    pub fn receive(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut bytes = vec![0; FRAME_HEADER_BYTES];
        if let Err(error) = self.0.read_exact(&mut bytes) {
            assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof, "{error}");
            return None;
        }
        let header = FrameHeader::parse(&bytes).unwrap().unwrap();
        bytes.resize(FRAME_HEADER_BYTES + header.payload_len, 0);
        self.0.read_exact(&mut bytes[FRAME_HEADER_BYTES..]).unwrap();
        Some((header.kind, header.check(&bytes).unwrap().to_vec()))
    }

    pub fn answer(&mut self) -> Vec<u8> {
        let (kind, payload) = self.receive().expect("an answer");
        assert_eq!(kind, Kind::Answer as u8);
        payload
    }

    pub fn message(&mut self) -> AnyMessage {
        let (kind, payload) = self.receive().expect("a message");
        assert_eq!(kind, Kind::Message as u8);
        AnyMessage::decode(&payload).unwrap()
    }

    /// The text that it says, behind which the connection must end.
    pub fn text(&mut self) -> String {
        let mut text = String::new();
        self.0.read_to_string(&mut text).unwrap();
        text
    }

    /// The reason of a goodbye, behind which the connection must end.
    pub fn goodbye(&mut self) -> String {
        let message = self.message();
        assert!(self.receive().is_none(), "the end");
        match message {
            AnyMessage::Goodbye(message::Goodbye { reason }) => reason,
            other => panic!("no goodbye but {other:?}"),
        }
    }
}

pub fn hello(cluster: ClusterId, to: Option<CoreId>) -> Vec<u8> {
    let mut out = Vec::new();
    message::Hello { versions: WireVersions::OURS, cluster, from: None, incarnation: Incarnation(0), to }
        .encode(&mut out);
    out
}

/// A folder that is gone with the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("kasha-runtime-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
