//! The load: connections to one server in a closed loop, each with one pipeline under way. One thread serves all of them, the same for
//! every server.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use kasha_machine::Rng;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::resp::{Replies, Reply, command};
use crate::harness::load::Tally;
use crate::limits;
use crate::rivals::servers::thread_time;

/// Keys, drawn evenly; counters are as many others.
const KEYS: u32 = 100_000;

pub(super) const VALUE_BYTES: usize = 100;

/// SETs of one MULTI.
pub(super) const SETS: usize = 4;

/// Commands of one pipeline while keys are written before anything is measured.
const FILL_DEPTH: u32 = 250;

/// The load runs for this share of a round's time before what counts.
const WARM_UP_SHARE: u32 = 5;

/// What one read of a connection takes, at most.
const READ_BYTES: usize = 64 << 10;

/// What is asked again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Set,
    Get,
    Incr,
    /// MULTI, [`SETS`] SETs and EXEC, which leave together.
    Multi,
}

impl Request {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Set => "SET",
            Self::Get => "GET",
            Self::Incr => "INCR",
            Self::Multi => "MULTI of 4 SET",
        }
    }
}

/// How much is asked at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) request: Request,
    /// Connections.
    pub(super) clients: usize,
    /// Requests of a pipeline.
    pub(super) depth: usize,
}

impl Load {
    pub(super) const fn new(request: Request, clients: usize, depth: usize) -> Self {
        Self { request, clients, depth }
    }
}

/// What a reply has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Ok,
    Queued,
    Value,
    Number,
    /// WAIT: one replica at least has it.
    Replica,
    /// EXEC: each SET was done.
    Sets,
}

impl Expected {
    fn is(self, reply: &Reply<'_>) -> bool {
        match self {
            Self::Ok => *reply == Reply::Text(b"OK"),
            Self::Queued => *reply == Reply::Text(b"QUEUED"),
            Self::Value => matches!(reply, Reply::Bulk(value) if value.len() == VALUE_BYTES),
            Self::Number => matches!(reply, Reply::Number(_)),
            Self::Replica => matches!(reply, Reply::Number(1..)),
            Self::Sets => matches!(reply, Reply::List(done) if *done == vec![Reply::Text(b"OK"); SETS]),
        }
    }
}

/// The replies to one pipeline.
fn expected(load: Load, waits: bool) -> Vec<Expected> {
    let mut each = match load.request {
        Request::Set => vec![Expected::Ok],
        Request::Get => vec![Expected::Value],
        Request::Incr => vec![Expected::Number],
        Request::Multi => [vec![Expected::Ok], vec![Expected::Queued; SETS], vec![Expected::Sets]].concat(),
    }
    .repeat(load.depth);
    each.extend(waits.then_some(Expected::Replica));
    each
}

/// Commands of one connection, to keys that it draws.
#[derive(Debug)]
struct Writer {
    bytes: Vec<u8>,
    key: String,
    rng: Rng,
}

impl Writer {
    fn new(seed: u64) -> Self {
        Self { bytes: Vec::new(), key: String::new(), rng: Rng::new(seed) }
    }

    fn draw(&mut self, prefix: &str) {
        let number = self.rng.below(u64::from(KEYS));
        self.name(prefix, number);
    }

    fn name(&mut self, prefix: &str, number: u64) {
        self.key.clear();
        write!(self.key, "{prefix}-{number:08}").expect("a string takes it");
    }

    fn set(&mut self) {
        self.draw("key");
        command(&mut self.bytes, &[b"SET", self.key.as_bytes(), &[b'v'; VALUE_BYTES]]);
    }

    /// A pipeline. Its WAIT is for all of it, and takes one round trip to the replica for all of it.
    fn pipeline(&mut self, load: Load, waits: bool) -> &[u8] {
        self.bytes.clear();
        for _ in 0..load.depth {
            match load.request {
                Request::Set => self.set(),
                Request::Get => {
                    self.draw("key");
                    command(&mut self.bytes, &[b"GET", self.key.as_bytes()]);
                }
                Request::Incr => {
                    self.draw("counter");
                    command(&mut self.bytes, &[b"INCR", self.key.as_bytes()]);
                }
                Request::Multi => {
                    command(&mut self.bytes, &[b"MULTI"]);
                    (0..SETS).for_each(|_| self.set());
                    command(&mut self.bytes, &[b"EXEC"]);
                }
            }
        }
        if waits {
            let patience = limits::OPERATION.as_millis().to_string();
            command(&mut self.bytes, &[b"WAIT", b"1", patience.as_bytes()]);
        }
        &self.bytes
    }
}

/// A connection's pipeline under way.
#[derive(Debug)]
struct Client {
    writer: Writer,
    replies: Replies,
    /// Replies to this pipeline so far.
    answered: usize,
    sent: Instant,
}

impl Client {
    fn send(&mut self, mut stream: &TcpStream, load: Load, waits: bool) -> anyhow::Result<()> {
        let bytes = self.writer.pipeline(load, waits);
        self.sent = Instant::now();
        self.answered = 0;
        stream.write_all(bytes).context("cannot send commands")
    }

    /// Reads once. Returns whether the pipeline has all its replies.
    fn hear(&mut self, mut stream: &TcpStream, buffer: &mut [u8], expected: &[Expected]) -> anyhow::Result<bool> {
        let count = stream.read(buffer).context("cannot read replies")?;
        ensure!(count > 0, "the server closed the connection");
        self.replies.add(&buffer[..count]);
        while let Some(reply) = self.replies.take()? {
            let wanted = expected.get(self.answered).with_context(|| format!("{reply:?}, which nobody asked for"))?;
            ensure!(wanted.is(&reply), "{reply:?} came instead of {wanted:?}");
            self.answered += 1;
        }
        let is_done = self.answered == expected.len();
        ensure!(!is_done || self.replies.is_empty(), "more came than was asked for");
        Ok(is_done)
    }
}

/// A server, and connections to it.
#[derive(Debug)]
pub(super) struct Arm {
    pub(super) name: &'static str,
    /// Whether each pipeline ends with WAIT 1.
    waits: bool,
    streams: Vec<TcpStream>,
    clients: Vec<Client>,
}

impl Arm {
    pub(super) fn connect(name: &'static str, at: SocketAddr, clients: usize, waits: bool) -> anyhow::Result<Self> {
        let streams: anyhow::Result<_> = (0..clients).map(|_| connect(at)).collect();
        let client = |seed| {
            let (writer, replies) = (Writer::new(seed), Replies::default());
            Client { writer, replies, answered: 0, sent: Instant::now() }
        };
        Ok(Self { name, waits, streams: streams?, clients: (0..clients as u64).map(client).collect() })
    }

    /// Writes all keys and, if they are to be measured, all counters.
    pub(super) fn fill(&mut self, counters: bool) -> anyhow::Result<()> {
        let keys = self.fill_with("key", &[b'v'; VALUE_BYTES]);
        let all = keys.and_then(|()| if counters { self.fill_with("counter", b"0") } else { Ok(()) });
        all.with_context(|| format!("{}: before anything is measured", self.name))
    }

    fn fill_with(&mut self, prefix: &str, value: &[u8]) -> anyhow::Result<()> {
        let (client, stream) = (&mut self.clients[0], &self.streams[0]);
        let mut buffer = vec![0; READ_BYTES];
        for first in (0..KEYS).step_by(FILL_DEPTH as usize) {
            let keys = first..(first + FILL_DEPTH).min(KEYS);
            let expected = vec![Expected::Ok; keys.len()];
            client.writer.bytes.clear();
            for key in keys {
                client.writer.name(prefix, u64::from(key));
                command(&mut client.writer.bytes, &[b"SET", client.writer.key.as_bytes(), value]);
            }
            client.answered = 0;
            let mut writer = stream;
            writer.write_all(&client.writer.bytes).context("cannot send commands")?;
            while !client.hear(stream, &mut buffer, &expected)? {}
        }
        Ok(())
    }

    /// A turn: a warm-up, and what counts. Returns the processor time of the load as well.
    pub(super) fn turn(&mut self, load: Load, time: Duration) -> anyhow::Result<(Tally, Duration)> {
        let mut before = Duration::ZERO;
        let turn = self.run(load, time / WARM_UP_SHARE).and_then(|_| {
            before = thread_time();
            self.run(load, time)
        });
        let tally =
            turn.with_context(|| format!("{}: {} of {} clients", self.name, load.request.name(), load.clients))?;
        Ok((tally, thread_time().saturating_sub(before)))
    }

    /// Latencies are those of pipelines: from the sending to the last reply.
    fn run(&mut self, load: Load, time: Duration) -> anyhow::Result<Tally> {
        let (expected, mut tally) = (expected(load, self.waits), Tally::new());
        let (streams, clients) = (&self.streams[..load.clients], &mut self.clients[..load.clients]);
        let mut buffer = vec![0; READ_BYTES];
        let mut sockets: Vec<PollFd<'_>> = streams.iter().map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
        let began = Instant::now();
        for (client, stream) in clients.iter_mut().zip(streams) {
            client.send(stream, load, self.waits)?;
        }
        let mut under_way = load.clients;
        while under_way > 0 {
            wait(&mut sockets)?;
            for ((client, stream), socket) in clients.iter_mut().zip(streams).zip(&sockets) {
                if socket.revents().is_empty() || !client.hear(stream, &mut buffer, &expected)? {
                    continue;
                }
                let now = Instant::now();
                tally.latency.saturating_record(nanos(now - client.sent));
                tally.updates += load.depth as u64;
                if now - began < time {
                    client.send(stream, load, self.waits)?;
                } else {
                    under_way -= 1;
                }
            }
        }
        tally.elapsed = began.elapsed();
        Ok(tally)
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Waits until one of them can be read.
fn wait(sockets: &mut [PollFd<'_>]) -> anyhow::Result<()> {
    let patience = Timespec::try_from(limits::OPERATION).expect("some seconds");
    loop {
        match poll(sockets, Some(&patience)) {
            Ok(0) => bail!("no reply in {:?}", limits::OPERATION),
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("cannot wait for replies"),
        }
    }
}

fn connect(at: SocketAddr) -> anyhow::Result<TcpStream> {
    let stream =
        TcpStream::connect_timeout(&at, limits::OPERATION).with_context(|| format!("cannot connect to {at}"))?;
    stream.set_nodelay(true)?;
    // Only where it is not looked first whether anything has come.
    stream.set_read_timeout(Some(limits::OPERATION))?;
    Ok(stream)
}

/// Asks one thing on a connection of its own, and tells what came as text.
pub(crate) fn ask(at: SocketAddr, parts: &[&[u8]]) -> anyhow::Result<String> {
    let mut stream = connect(at)?;
    let (mut bytes, mut buffer, mut replies) = (Vec::new(), vec![0; READ_BYTES], Replies::default());
    command(&mut bytes, parts);
    stream.write_all(&bytes)?;
    loop {
        let count = stream.read(&mut buffer)?;
        ensure!(count > 0, "the server closed the connection");
        replies.add(&buffer[..count]);
        match replies.take()? {
            Some(Reply::Text(text) | Reply::Bulk(text)) => return Ok(String::from_utf8_lossy(text).into_owned()),
            Some(other) => bail!("{other:?}"),
            None => {}
        }
    }
}

/// Whether updates are taken there.
pub(crate) fn takes_updates(at: SocketAddr) -> anyhow::Result<bool> {
    Ok(ask(at, &[b"SET", b"ready", b"yes"])? == "OK")
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_pipeline_is_followed_by_one_wait() {
        let mut writer = Writer::new(1);
        let load = Load::new(Request::Set, 1, 3);
        let mut sent = Replies::default();
        sent.add(writer.pipeline(load, true));
        let mut names = Vec::new();
        while let Some(command) = sent.take().unwrap() {
            let Reply::List(parts) = command else { panic!("{command:?}") };
            let Reply::Bulk(name) = parts[0] else { panic!("{parts:?}") };
            names.push(String::from_utf8_lossy(name).into_owned());
        }
        assert_eq!(names, ["SET", "SET", "SET", "WAIT"]);
        assert_eq!(expected(load, true).len(), names.len());
        let multi = expected(Load::new(Request::Multi, 1, 2), false);
        assert_eq!(multi.len(), 2 * (SETS + 2));
    }

    #[test]
    fn only_what_was_asked_for_is_a_reply() {
        let value = [b'v'; VALUE_BYTES];
        let fine = [
            (Expected::Ok, Reply::Text(b"OK")),
            (Expected::Queued, Reply::Text(b"QUEUED")),
            (Expected::Value, Reply::Bulk(&value)),
            (Expected::Number, Reply::Number(-1)),
            (Expected::Replica, Reply::Number(1)),
            (Expected::Sets, Reply::List(vec![Reply::Text(b"OK"); SETS])),
        ];
        for (expected, reply) in &fine {
            assert!(expected.is(reply), "{expected:?} {reply:?}");
            assert!(!expected.is(&Reply::Error(b"UNKNOWN")) && !expected.is(&Reply::Nothing), "{expected:?}");
        }
        assert!(!Expected::Replica.is(&Reply::Number(0)), "no replica has it");
        assert!(!Expected::Value.is(&Reply::Bulk(b"v")));
        let done = vec![Reply::Text(b"OK"), Reply::Text(b"OK"), Reply::Text(b"OK"), Reply::Error(b"ERR")];
        assert!(!Expected::Sets.is(&Reply::List(done)) && !Expected::Sets.is(&Reply::List(Vec::new())));
    }

    /// A server that answers each piece of commands that it reads with this.
    fn answering(answer: &'static [u8]) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut buffer = [0; 4096];
            while let Ok(1..) = stream.read(&mut buffer) {
                stream.write_all(answer).unwrap();
            }
        });
        at
    }

    #[test]
    fn a_round_counts_what_was_answered_and_fails_on_an_error() {
        let load = Load::new(Request::Set, 1, 2);
        let turn = |answer| Arm::connect("test", answering(answer), 1, false)?.turn(load, Duration::from_millis(10));
        let (tally, cpu) = turn(b"+OK\r\n+OK\r\n").unwrap();
        assert!(!cpu.is_zero());
        assert_eq!(tally.operations(), 2 * tally.latency.len());
        assert!(tally.operations() > 0 && tally.elapsed >= Duration::from_millis(10));
        for wrong in [&b"+OK\r\n-ERR\r\n"[..], b"+OK\r\n+OK\r\n+OK\r\n", b"?\r\n"] {
            assert!(turn(wrong).is_err(), "{:?}", String::from_utf8_lossy(wrong));
        }
    }
}
