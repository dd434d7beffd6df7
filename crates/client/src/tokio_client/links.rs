//! The connections of a client. A connection is dialled when something is to be sent, and again after a pause that
//! doubles. Frames that are sent during the pause wait for its end: a session would take a dropped frame for silence of
//! the server.
//!
//! A server may be several endpoints to a session: a seed, and a core or the coordinator, too. All of them use one
//! connection, since a server has a limit of connections, and there may be thousands of clients. What is not used for a
//! while is closed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kasha_machine::turn::Shell;
use kasha_machine::{Endpoint, FileName};
use kasha_types::{ClusterId, LocalPosition};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::connection::{Dial, Event, Shared, Who};
use super::home::AtHome;
use super::names::{Resolver, Way};
use crate::limits::{IDLE_LOOK, IDLE_MAX, SEED_IDLE_MAX};

/// Bytes that may wait for one connection. Further frames are dropped, and the session sends them again.
const OUTPUT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Memory that a connection keeps for the frames of a turn.
const TURN_BYTES_KEPT: usize = 16 * 1024;
const RECONNECT: Duration = Duration::from_millis(1);
/// The longest pause before dialling again: how long a node that is back may go unnoticed.
const RECONNECT_MAX: Duration = Duration::from_millis(50);
/// The same after a refusal.
const REFUSED: Duration = Duration::from_millis(100);
const REFUSED_MAX: Duration = Duration::from_secs(1);

/// The connections of a client: at most one to an address, whatever the servers there are to it.
pub(super) struct Links {
    ways: BTreeMap<Endpoint, Way>,
    links: BTreeMap<u64, Link>,
    /// The connection that an endpoint uses.
    uses: BTreeMap<Endpoint, u64>,
    failures: BTreeMap<Endpoint, Failure>,
    /// Where each seed was met last: at one of several addresses, perhaps.
    met: BTreeMap<Endpoint, SocketAddr>,
    /// The only cluster to talk to, once it is known.
    pub(super) cluster: Option<ClusterId>,
    count: u64,
    events: mpsc::Sender<Event>,
    resolver: Resolver,
    /// When unused connections are looked for next.
    look_at: Option<Instant>,
}

struct Link {
    made_for: Endpoint,
    /// Where it leads, as far as is known.
    address: Option<SocketAddr>,
    /// Who is there, once they have said so.
    who: Option<Who>,
    turn: Vec<u8>,
    output: mpsc::UnboundedSender<Vec<u8>>,
    shared: Arc<Shared>,
    /// Something was sent or heard since the last look.
    is_used: bool,
    /// Looks since then.
    unused: u32,
}

impl Link {
    /// Whether an endpoint at this address may use the connection. A server that has not said yet who it is may be any: it
    /// says so before anything else, and what was sent to somebody else does nothing there.
    fn serves(&self, to: Endpoint, address: SocketAddr) -> bool {
        self.address == Some(address)
            && match (to, self.who) {
                (Endpoint::Seed(_), _) => true,
                (Endpoint::Core(_) | Endpoint::Coordinator, Some(who)) => who.endpoint() == to,
                (Endpoint::Member(_), Some(who)) => who == Who::Coordinator,
                (Endpoint::Core(_) | Endpoint::Coordinator | Endpoint::Member(_), None) => {
                    matches!(self.made_for, Endpoint::Seed(_))
                }
                (Endpoint::Conn(_), _) => false,
            }
    }
}

struct Failure {
    not_before: Instant,
    pause: Duration,
    /// Failures in a row.
    count: usize,
}

impl Links {
    pub(super) fn new(
        seeds: Vec<Way>,
        resolver: Resolver,
        cluster: Option<ClusterId>,
        events: mpsc::Sender<Event>,
    ) -> Self {
        let ways = (0..).map(Endpoint::Seed).zip(seeds).collect();
        let (links, uses, failures, met) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { ways, links, uses, failures, met, cluster, count: 0, events, resolver, look_at: None }
    }

    /// The connection that leads to an endpoint. It is dialled if there is none.
    fn dial(&mut self, to: Endpoint) -> Option<&mut Link> {
        if !self.uses.contains_key(&to) {
            let way = self.ways.get(&to)?.clone();
            let number = self.shared(to, &way).unwrap_or_else(|| self.make(to, way));
            self.uses.insert(to, number);
        }
        self.links.get_mut(&self.uses[&to])
    }

    /// A connection of another endpoint that leads to this one, too.
    fn shared(&self, to: Endpoint, way: &Way) -> Option<u64> {
        let address = match way {
            Way::At(address) => *address,
            Way::Named(_) => *self.met.get(&to)?,
        };
        self.links.iter().find(|(_, link)| link.serves(to, address)).map(|(number, _)| *number)
    }

    fn make(&mut self, to: Endpoint, way: Way) -> u64 {
        self.count += 1;
        let (link, (sender, output)) = (self.count, mpsc::unbounded_channel());
        let shared = Arc::new(Shared::default());
        let failure = self.failures.get(&to);
        let address = match way {
            Way::At(address) => Some(address),
            Way::Named(_) => None,
        };
        let dial = Dial {
            link,
            way,
            turn: failure.map_or(0, |failure| failure.count),
            to: match to {
                Endpoint::Core(core) => Some(core),
                Endpoint::Coordinator | Endpoint::Member(_) | Endpoint::Seed(_) | Endpoint::Conn(_) => None,
            },
            not_before: failure.map(|failure| failure.not_before),
            cluster: self.cluster,
            resolver: self.resolver.clone(),
            output,
            shared: Arc::clone(&shared),
            events: self.events.clone(),
        };
        tokio::spawn(AtHome::new(dial.run()));
        let made = Link {
            made_for: to,
            address,
            who: None,
            turn: Vec::new(),
            output: sender,
            shared,
            is_used: true,
            unused: 0,
        };
        self.links.insert(link, made);
        self.look_at.get_or_insert_with(|| Instant::now() + IDLE_LOOK);
        link
    }

    /// A server has said who it is. Returns the endpoints that are not there, though they use this connection.
    pub(super) fn welcomed(&mut self, number: u64, who: Who, address: SocketAddr) -> Vec<Endpoint> {
        let Some(link) = self.links.get_mut(&number) else { return Vec::new() };
        (link.who, link.address) = (Some(who), Some(address));
        self.met.insert(link.made_for, address);
        let is_wrong = |to: Endpoint| match to {
            Endpoint::Seed(_) => false,
            Endpoint::Member(_) => who != Who::Coordinator,
            Endpoint::Core(_) | Endpoint::Coordinator | Endpoint::Conn(_) => to != who.endpoint(),
        };
        let wrong: Vec<_> = self.users(number).filter(|&to| is_wrong(to)).collect();
        for &to in &wrong {
            self.failed(to, false);
        }
        self.drop_if_unused(number);
        wrong
    }

    fn users(&self, number: u64) -> impl Iterator<Item = Endpoint> + '_ {
        self.uses.iter().filter(move |(_, used)| **used == number).map(|(to, _)| *to)
    }

    fn drop_if_unused(&mut self, number: u64) {
        if self.users(number).next().is_none() {
            self.links.remove(&number);
        }
    }

    /// Frames have come over a connection. Returns who sent them; nobody, if it was given up.
    pub(super) fn heard(&mut self, number: u64) -> Option<Endpoint> {
        let link = self.links.get_mut(&number)?;
        link.is_used = true;
        let from = link.who?.endpoint();
        if !self.failures.is_empty() {
            for to in self.users(number).collect::<Vec<_>>() {
                self.failures.remove(&to);
            }
        }
        Some(from)
    }

    /// A connection has ended. Returns the endpoints that used it.
    pub(super) fn lost(&mut self, number: u64, is_refused: bool) -> Vec<Endpoint> {
        let lost: Vec<_> = self.users(number).collect();
        for &to in &lost {
            self.failed(to, is_refused);
        }
        self.links.remove(&number);
        lost
    }

    /// A server that has no room is not asked again at once by everybody who found none.
    fn failed(&mut self, to: Endpoint, is_refused: bool) {
        self.uses.remove(&to);
        self.met.remove(&to);
        let before = self.failures.get(&to);
        let (first, most) = if is_refused { (REFUSED, REFUSED_MAX) } else { (RECONNECT, RECONNECT_MAX) };
        let pause = before.map_or(first, |failure| (failure.pause * 2).clamp(first, most));
        let count = before.map_or(1, |failure| failure.count.wrapping_add(1));
        self.failures.insert(to, Failure { not_before: Instant::now() + pause, pause, count });
    }

    /// When unused connections are to be looked for.
    pub(super) fn look_at(&self) -> Option<Instant> {
        self.look_at
    }

    /// Closes connections that were not used for a while. Nobody is told: the next frame to a server dials it again.
    pub(super) fn close_unused(&mut self, now: Instant) {
        if self.look_at.is_none_or(|at| at > now) {
            return;
        }
        let looks = |time: Duration| u32::try_from(time.div_duration_f32(IDLE_LOOK) as u64).unwrap_or(u32::MAX);
        let mut unused = Vec::new();
        for (&number, link) in &mut self.links {
            link.unused = if std::mem::take(&mut link.is_used) { 0 } else { link.unused + 1 };
            let is_seed_only = self.uses.iter().all(|(to, used)| *used != number || matches!(to, Endpoint::Seed(_)));
            let most = if is_seed_only && self.cluster.is_some() { SEED_IDLE_MAX } else { IDLE_MAX };
            // What is still to be written waits for somebody who may come back.
            if link.unused >= looks(most) && link.shared.queued() == 0 {
                unused.push(number);
            }
        }
        for number in unused {
            self.links.remove(&number);
            self.uses.retain(|_, used| *used != number);
        }
        self.look_at = (!self.links.is_empty()).then(|| now + IDLE_LOOK);
    }

    /// Writes once per connection and turn.
    pub(super) fn flush(&mut self) {
        for link in self.links.values_mut().filter(|link| !link.turn.is_empty()) {
            let written = link.shared.write_now(&link.turn);
            if written < link.turn.len() {
                let rest = link.turn[written..].to_vec();
                link.shared.hand_over(rest.len());
                // A connection that has just ended reports that itself.
                let _ = link.output.send(rest);
            }
            link.turn.clear();
            link.turn.shrink_to(TURN_BYTES_KEPT);
        }
    }
}

impl Shell for Links {
    fn send(&mut self, to: Endpoint, head: &[u8], tail: &[u8]) {
        let Some(link) = self.dial(to) else { return };
        link.is_used = true;
        let waiting = link.shared.queued() + link.turn.len();
        if waiting + head.len() + tail.len() <= OUTPUT_BYTES_MAX {
            link.turn.extend_from_slice(head);
            link.turn.extend_from_slice(tail);
        }
    }

    fn route(&mut self, to: Endpoint, address: SocketAddr) {
        let way = Way::At(address);
        if self.ways.insert(to, way.clone()).is_some_and(|before| before != way)
            && let Some(number) = self.uses.remove(&to)
        {
            self.drop_if_unused(number);
        }
        self.failures.remove(&to);
    }

    fn disconnect(&mut self, to: Endpoint) {
        self.flush();
        if let Some(number) = self.uses.get(&to).copied() {
            self.uses.retain(|_, used| *used != number);
            self.links.remove(&number);
        }
    }

    fn write(&mut self, file: FileName, _: u64, _: &[u8]) {
        unreachable!("a client has no files: {file:?}");
    }
    fn replace(&mut self, file: FileName, _: &[u8]) {
        unreachable!("a client has no files: {file:?}");
    }
    fn truncate(&mut self, file: FileName, _: u64) {
        unreachable!("a client has no files: {file:?}");
    }
    fn remove(&mut self, file: FileName) {
        unreachable!("a client has no files: {file:?}");
    }
    fn commit(&mut self, to: LocalPosition, _: bool) {
        unreachable!("a client has no files: {to:?}");
    }
    fn flush(&mut self) {
        unreachable!("a client has no files");
    }
    fn flush_logs(&mut self) {
        unreachable!("a client has no files");
    }
    fn stop(&mut self, why: &str) {
        unreachable!("a session never stops its process: {why}");
    }
}

#[cfg(test)]
mod tests {
    use kasha_types::{CoreId, Incarnation, NodeId};
    use kasha_wire::message::Welcome;
    use kasha_wire::{FRAME_HEADER_BYTES, FrameHeader, Message};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    const CHUNK: usize = 64 * 1024;
    const CHUNKS: usize = 100;
    const NODE: Endpoint = Endpoint::Core(CoreId { node: NodeId(1), core: 0 });

    /// At first nobody listens. Frames that are sent in the pause after that are not lost.
    #[tokio::test]
    async fn what_is_sent_in_the_pause_after_a_failure_waits_for_its_end() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let (sender, mut events) = mpsc::channel(8);
        let mut links = Links::new(Vec::new(), Resolver::default(), None, sender);
        links.route(NODE, address);
        for _ in 0..10 {
            Shell::send(&mut links, NODE, b"lost", &[]);
            links.flush();
            let Some(Event::Gone { link, .. }) = events.recv().await else {
                panic!("every frame that is lost is told of")
            };
            assert_eq!(links.lost(link, false), [NODE]);
        }
        let listener = TcpListener::bind(address).await.expect("the same port");
        Shell::send(&mut links, NODE, b"kept", &[]);
        links.flush();
        let (mut peer, _) = listener.accept().await.expect("it dials");
        let mut greeting = [0; FRAME_HEADER_BYTES];
        peer.read_exact(&mut greeting).await.expect("a greeting");
        let header = FrameHeader::parse(&greeting).expect("a frame").expect("whole");
        let mut got = vec![0; header.payload_len + 4];
        peer.read_exact(&mut got).await.expect("all of it");
        assert_eq!(&got[header.payload_len..], b"kept");
    }

    /// A server that listens at this address, and says who it is.
    async fn server(who: Who) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let core = match who {
                    Who::Core(core) => Some(core),
                    Who::Coordinator => None,
                };
                let mut bytes = Vec::new();
                Welcome { version: kasha_wire::WIRE_VERSION, cluster: ClusterId(1), core, incarnation: Incarnation(1) }
                    .encode(&mut bytes);
                stream.write_all(&bytes).await.expect("a socket");
                kept.push(stream);
            }
        });
        address
    }

    /// Takes the next event as the driver does. Returns the endpoints that cannot be reached because of it.
    async fn next(links: &mut Links, events: &mut mpsc::Receiver<Event>) -> Vec<Endpoint> {
        match events.recv().await.expect("an event") {
            Event::Welcomed { link, who, address } => links.welcomed(link, who, address),
            Event::Frames { link, .. } => links.heard(link).map_or(Vec::new(), |_| Vec::new()),
            Event::Gone { link, is_refused, .. } => links.lost(link, is_refused),
        }
    }

    /// Found from outside: a client had two connections to each seed.
    #[tokio::test]
    async fn a_server_has_one_connection_whatever_it_is_to_the_client() {
        let Endpoint::Core(core) = NODE else { unreachable!("it is a core") };
        let address = server(Who::Core(core)).await;
        let (sender, mut events) = mpsc::channel(8);
        let resolver = Resolver::new(move |_| Ok(vec![address]));
        let seeds = vec![Way::Named("node-1.example:7401".into()), Way::At(address)];
        let mut links = Links::new(seeds, resolver, None, sender);
        Shell::send(&mut links, Endpoint::Seed(0), b"who are you?", &[]);
        assert!(next(&mut links, &mut events).await.is_empty());
        links.route(NODE, address);
        for to in [NODE, Endpoint::Seed(1), Endpoint::Seed(0), NODE] {
            Shell::send(&mut links, to, b"a frame", &[]);
            assert_eq!(links.links.len(), 1, "{to:?}");
        }
        let number = links.uses[&NODE];
        assert_eq!(links.heard(number), Some(NODE), "whoever asked");
        let mut lost = links.lost(number, false);
        lost.sort();
        assert_eq!(lost, [NODE, Endpoint::Seed(0), Endpoint::Seed(1)], "all of them are told");
    }

    #[tokio::test]
    async fn whoever_took_somebody_elses_connection_is_told_and_dials_again() {
        let address = server(Who::Coordinator).await;
        let (sender, mut events) = mpsc::channel(8);
        let mut links = Links::new(vec![Way::At(address)], Resolver::default(), None, sender);
        Shell::send(&mut links, Endpoint::Seed(0), b"who are you?", &[]);
        links.route(NODE, address);
        Shell::send(&mut links, NODE, b"a frame", &[]);
        assert_eq!(links.links.len(), 1);
        assert_eq!(next(&mut links, &mut events).await, [NODE], "it is the coordinator");
        assert_eq!(links.uses.keys().collect::<Vec<_>>(), [&Endpoint::Seed(0)]);
        Shell::send(&mut links, NODE, b"a frame", &[]);
        assert_eq!(links.links.len(), 2);
    }

    #[tokio::test]
    async fn a_connection_that_is_not_used_is_closed_and_one_that_is_stays() {
        let Endpoint::Core(core) = NODE else { unreachable!("it is a core") };
        let (seed, node) = (server(Who::Coordinator).await, server(Who::Core(core)).await);
        let (sender, mut events) = mpsc::channel(8);
        let cluster = Some(ClusterId(1));
        let mut links = Links::new(vec![Way::At(seed)], Resolver::default(), cluster, sender);
        links.route(NODE, node);
        let look = |links: &mut Links, with_node: bool| {
            if with_node {
                Shell::send(links, NODE, b"a frame", &[]);
            }
            let at = links.look_at().expect("there are connections");
            links.close_unused(at);
        };
        Shell::send(&mut links, Endpoint::Seed(0), b"who are you?", &[]);
        Shell::send(&mut links, NODE, b"a frame", &[]);
        links.flush();
        for _ in 0..2 {
            assert!(next(&mut links, &mut events).await.is_empty());
        }
        for _ in 0..SEED_IDLE_MAX.as_secs() + 1 {
            assert_eq!(links.links.len(), 2);
            look(&mut links, true);
        }
        assert_eq!(links.uses.keys().collect::<Vec<_>>(), [&NODE], "the seed is not needed any more");
        for _ in 0..IDLE_MAX.as_secs() {
            assert_eq!(links.links.len(), 1);
            look(&mut links, false);
        }
        assert!(links.links.is_empty() && links.look_at().is_none() && links.failures.is_empty());
    }

    /// Sends more than the sockets hold at once to a peer that reads nothing before all of it was sent. When nothing is
    /// left to write, sends a little more, which is written at once.
    #[tokio::test]
    async fn bytes_keep_their_order_whoever_writes_them() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (events, _events) = mpsc::channel(8);
        let mut links = Links::new(Vec::new(), Resolver::default(), None, events);
        let to = NODE;
        links.route(to, listener.local_addr().expect("an address"));
        let send = |links: &mut Links, number: usize| {
            Shell::send(links, to, &[number as u8; CHUNK], &[]);
            links.flush();
        };
        send(&mut links, 0);
        let (mut peer, _) = listener.accept().await.expect("it dials");
        for number in 1..CHUNKS {
            tokio::task::yield_now().await;
            send(&mut links, number);
        }
        let shared = Arc::clone(&links.links[&links.uses[&to]].shared);
        assert!(shared.queued() > 0, "more than the sockets hold");
        let mut greeting = [0; FRAME_HEADER_BYTES];
        peer.read_exact(&mut greeting).await.expect("a greeting");
        let header = FrameHeader::parse(&greeting).expect("a frame").expect("whole");
        let mut got = vec![0; header.payload_len];
        peer.read_exact(&mut got).await.expect("the rest of it");
        got.resize(CHUNKS * CHUNK, 0);
        peer.read_exact(&mut got).await.expect("all of it");
        while shared.queued() > 0 {
            tokio::task::yield_now().await;
        }
        assert!(got.chunks(CHUNK).enumerate().all(|(number, chunk)| chunk.iter().all(|&byte| byte == number as u8)));
        Shell::send(&mut links, to, b"at once", &[]);
        links.flush();
        assert_eq!(shared.queued(), 0);
        let mut last = [0; 7];
        peer.read_exact(&mut last).await.expect("the last");
        assert_eq!(&last, b"at once");
    }
}
