//! The connections of a client. A connection is dialled when something is to be sent, and again after a pause that
//! doubles. Frames that are sent during the pause wait for its end: a session would take a dropped frame for silence of
//! the server.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kasha_machine::turn::Shell;
use kasha_machine::{Endpoint, FileName};
use kasha_types::{ClusterId, LocalPosition};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::connection::{Dial, Event, Shared};

/// Bytes that may wait for one connection. Further frames are dropped, and the session sends them again.
const OUTPUT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Memory that a connection keeps for the frames of a turn.
const TURN_BYTES_KEPT: usize = 16 * 1024;
const RECONNECT: Duration = Duration::from_millis(1);
/// The longest pause before dialling again: how long a node that is back may go unnoticed.
const RECONNECT_MAX: Duration = Duration::from_millis(50);

/// Connections by endpoint.
pub(super) struct Links {
    routes: BTreeMap<Endpoint, SocketAddr>,
    links: BTreeMap<Endpoint, Link>,
    failures: BTreeMap<Endpoint, Failure>,
    /// The only cluster to talk to, once it is known.
    pub(super) cluster: Option<ClusterId>,
    count: u64,
    events: mpsc::Sender<Event>,
}

struct Link {
    number: u64,
    turn: Vec<u8>,
    output: mpsc::UnboundedSender<Vec<u8>>,
    shared: Arc<Shared>,
}

struct Failure {
    not_before: Instant,
    pause: Duration,
}

impl Links {
    pub(super) fn new(cluster: Option<ClusterId>, events: mpsc::Sender<Event>) -> Self {
        let (routes, links, failures) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { routes, links, failures, cluster, count: 0, events }
    }

    fn dial(&mut self, to: Endpoint) -> Option<&mut Link> {
        if !self.links.contains_key(&to) {
            let address = *self.routes.get(&to)?;
            let not_before = self.failures.get(&to).map(|failure| failure.not_before);
            self.count += 1;
            let (number, (sender, output)) = (self.count, mpsc::unbounded_channel());
            let shared = Arc::new(Shared::default());
            let (events, cluster) = (self.events.clone(), self.cluster);
            let dial =
                Dial { to, link: number, address, not_before, cluster, output, shared: Arc::clone(&shared), events };
            tokio::spawn(dial.run());
            self.links.insert(to, Link { number, turn: Vec::new(), output: sender, shared });
        }
        self.links.get_mut(&to)
    }

    pub(super) fn is_current(&self, endpoint: Endpoint, number: u64) -> bool {
        self.links.get(&endpoint).is_some_and(|link| link.number == number)
    }

    /// A connection works, so the failures of its endpoint are over.
    pub(super) fn heard(&mut self, endpoint: Endpoint) {
        self.failures.remove(&endpoint);
    }

    pub(super) fn lost(&mut self, endpoint: Endpoint) {
        self.links.remove(&endpoint);
        let pause = self.failures.get(&endpoint).map_or(RECONNECT, |failure| (failure.pause * 2).min(RECONNECT_MAX));
        self.failures.insert(endpoint, Failure { not_before: Instant::now() + pause, pause });
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
        let waiting = link.shared.queued() + link.turn.len();
        if waiting + head.len() + tail.len() <= OUTPUT_BYTES_MAX {
            link.turn.extend_from_slice(head);
            link.turn.extend_from_slice(tail);
        }
    }

    fn route(&mut self, to: Endpoint, address: SocketAddr) {
        if self.routes.insert(to, address).is_some_and(|before| before != address) {
            self.links.remove(&to);
        }
        self.failures.remove(&to);
    }

    fn disconnect(&mut self, to: Endpoint) {
        self.flush();
        self.links.remove(&to);
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
    use kasha_types::{CoreId, NodeId};
    use kasha_wire::{FRAME_HEADER_BYTES, FrameHeader};
    use tokio::io::AsyncReadExt;
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
        let mut links = Links::new(None, sender);
        links.route(NODE, address);
        for _ in 0..10 {
            Shell::send(&mut links, NODE, b"lost", &[]);
            links.flush();
            assert!(matches!(events.recv().await, Some(Event::Gone { .. })), "every frame that is lost is told of");
            links.lost(NODE);
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

    /// Sends more than the sockets hold at once to a peer that reads nothing before all of it was sent. When nothing is
    /// left to write, sends a little more, which is written at once.
    #[tokio::test]
    async fn bytes_keep_their_order_whoever_writes_them() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (events, _events) = mpsc::channel(8);
        let mut links = Links::new(None, events);
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
        let shared = Arc::clone(&links.links[&to].shared);
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
