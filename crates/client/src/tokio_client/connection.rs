//! One dialled connection as a tokio task: it writes bytes, cuts what it reads into whole frames, and gives a reason
//! when it ends.
//!
//! It knows frames and the handshake, and no message.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kasha_machine::Endpoint;
use kasha_types::{ClusterId, CoreId, Incarnation};
use kasha_wire::link::Handshake;
use kasha_wire::message::{Goodbye, Hello, Welcome};
use kasha_wire::plain::{self, First};
use kasha_wire::{FRAME_HEADER_BYTES, FrameHeader, Message, WIRE_VERSION, WireVersion, WireVersions, frame};
use rustix::net::sockopt;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::home::AtHome;
use super::names::{Resolver, Way};

const DIAL_TIMEOUT: Duration = Duration::from_secs(3);

/// If a name has several addresses: how long one may take before the next is tried beside it.
const STAGGER: Duration = Duration::from_millis(250);

/// How long a server may take to answer the greeting. A stranger may listen and say nothing.
const WELCOME_TIMEOUT: Duration = Duration::from_secs(10);

/// How long to listen, after a write failed, for what the server said before it closed.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// How long a peer's machine may be silent before its connection is closed and dialled anew. It is shorter than the
/// kernel's pauses between retransmissions in a long outage, and much shorter than a call's usual deadline.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// Who answered the greeting: a core, or the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    Coordinator,
    Core(CoreId),
}

impl Who {
    pub(super) fn endpoint(self) -> Endpoint {
        match self {
            Self::Coordinator => Endpoint::Coordinator,
            Self::Core(core) => Endpoint::Core(core),
        }
    }
}

/// What a connection reports to the driver.
pub(super) enum Event {
    /// A server answered the greeting, at this address. No frame comes before this.
    Welcomed { link: u64, who: Who, address: SocketAddr },
    /// Whole frames with right checksums.
    Frames { link: u64, bytes: Vec<u8> },
    /// The connection ended, or could not be made.
    Gone { link: u64, why: String, is_refused: bool },
}

/// Why a connection ended.
#[derive(Debug)]
struct End {
    why: String,
    /// The server does not want it, and said so in a line of text.
    is_refused: bool,
}

impl From<String> for End {
    fn from(why: String) -> Self {
        Self { why, is_refused: false }
    }
}

/// What the task of a connection needs to begin.
pub(super) struct Dial {
    pub(super) link: u64,
    pub(super) way: Way,
    /// Whose turn it is, if there are several addresses.
    pub(super) turn: usize,
    /// The only core that is wanted; `None`: whoever is there.
    pub(super) to: Option<CoreId>,
    /// When the pause after a failure ends.
    pub(super) not_before: Option<Instant>,
    pub(super) cluster: Option<ClusterId>,
    pub(super) resolver: Resolver,
    pub(super) output: mpsc::UnboundedReceiver<Vec<u8>>,
    pub(super) shared: Arc<Shared>,
    pub(super) events: mpsc::Sender<Event>,
}

/// State that the driver and the task of a connection share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Bytes that were handed over and are not written yet.
    queued: AtomicUsize,
    /// The half to write to, once the handshake's first message is out and it is known which version is spoken.
    write: OnceLock<OwnedWriteHalf>,
    /// Frames go in another version than they are made in: the task sees to that.
    is_other_version: AtomicBool,
}

impl Shared {
    /// Bytes that wait to be written.
    pub(super) fn queued(&self) -> usize {
        self.queued.load(Ordering::Acquire)
    }

    /// The driver hands over these bytes to the task.
    pub(super) fn hand_over(&self, bytes: usize) {
        self.queued.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Writes at once as much as the socket takes, if no bytes wait before it. Returns how much that is. The task
    /// writes the rest. If there is an error, the task meets it too, and reports it.
    pub(super) fn write_now(&self, bytes: &[u8]) -> usize {
        match self.write.get() {
            Some(write) if self.queued() == 0 && !self.is_other_version.load(Ordering::Acquire) => {
                write.try_write(bytes).unwrap_or(0)
            }
            Some(_) | None => 0,
        }
    }
}

impl Dial {
    pub(super) async fn run(mut self) {
        let Err(End { why, is_refused }) = self.talk().await else { return };
        let why = format!("{}: {why}", self.way);
        // The driver may be gone. Then nobody needs to know.
        let _ = self.events.send(Event::Gone { link: self.link, why, is_refused }).await;
    }

    async fn talk(&mut self) -> Result<(), End> {
        if let Some(not_before) = self.not_before {
            tokio::time::sleep_until(not_before).await;
        }
        let addresses = self.way.addresses(&self.resolver, self.turn).await?;
        let (address, stream) = connect(addresses, DIAL_TIMEOUT).await?;
        prepare(&stream);
        let (read, write) = stream.into_split();
        let events = self.events.clone();
        let (agreed, version) = oneshot::channel();
        let reader = Reader { wanted: self.to, link: self.link, address, cluster: self.cluster, events };
        let hello = Hello {
            versions: WireVersions::OURS,
            cluster: self.cluster.unwrap_or(ClusterId(0)),
            from: None,
            incarnation: Incarnation(0),
            to: self.to,
        };
        let mut reading = std::pin::pin!(reader.run(read, agreed));
        tokio::select! {
            ended = &mut reading => ended,
            ended = write_queued(write, (&hello, version), &mut self.output, &self.shared) => match ended {
                Ok(()) => Ok(()),
                // Whoever refuses us says why and closes, perhaps before we have written anything.
                Err(error) => match timeout(LAST_WORDS, reading).await {
                    Ok(Err(why)) => Err(why),
                    Ok(Ok(())) | Err(_) => Err(error.to_string().into()),
                },
            },
        }
    }
}

/// Connects to the first of the addresses that answers. Each is given a start before the next.
///
/// A busy program may look here long after the time is up. What was connected meanwhile counts: if it were dropped and dialled again, a
/// program that is too busy for its connections would be busy with them for ever.
async fn connect(addresses: Vec<SocketAddr>, patience: Duration) -> Result<(SocketAddr, TcpStream), String> {
    let mut left = addresses.into_iter();
    let mut trying = JoinSet::new();
    let mut problem = "no answer".to_owned();
    let mut ends = std::pin::pin!(tokio::time::sleep(patience));
    let mut is_over = false;
    loop {
        if let Some(address) = left.next().filter(|_| !is_over) {
            trying.spawn(AtHome::new(async move { (address, TcpStream::connect(address).await) }));
        } else if trying.is_empty() {
            return Err(problem);
        }
        tokio::select! {
            biased;
            Some(tried) = trying.join_next() => match tried {
                Ok((address, Ok(stream))) => return Ok((address, stream)),
                Ok((_, Err(error))) => problem = error.to_string(),
                Err(error) => problem = error.to_string(),
            },
            () = tokio::task::yield_now(), if is_over => return Err(problem),
            () = &mut ends, if !is_over => is_over = true, // those that are connected have their turn before this one's next
            () = tokio::time::sleep(STAGGER), if left.len() > 0 => {}
        }
    }
}

/// Sets socket options. If one cannot be set, that costs only speed or the detection of dead peers.
fn prepare(stream: &TcpStream) {
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, SILENCE_MAX);
    let _ = sockopt::set_tcp_keepintvl(stream, SILENCE_MAX);
    #[cfg(target_os = "linux")]
    {
        let millis = u32::try_from(SILENCE_MAX.as_millis()).expect("small");
        let _ = sockopt::set_tcp_user_timeout(stream, millis);
    }
}

/// Sends the handshake's first message and, once it is known which version is spoken, what the driver could not write. Ends
/// without an error when the driver drops the connection.
async fn write_queued(
    write: OwnedWriteHalf,
    (hello, version): (&Hello, oneshot::Receiver<WireVersion>),
    output: &mut mpsc::UnboundedReceiver<Vec<u8>>,
    shared: &Shared,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    hello.encode(&mut bytes);
    write_all(&write, &bytes).await?;
    // If the reader has ended, there will be no version, and it says why.
    let version = match WireVersions::OURS.only() {
        Some(version) => version,
        None => match version.await {
            Ok(version) => version,
            Err(_) => return std::future::pending().await,
        },
    };
    shared.is_other_version.store(version != WIRE_VERSION, Ordering::Release);
    let write = shared.write.get_or_init(|| write);
    while let Some(mut bytes) = output.recv().await {
        if version != WIRE_VERSION {
            frame::restamp(&mut bytes, version);
        }
        write_all(write, &bytes).await?;
        shared.queued.fetch_sub(bytes.len(), Ordering::Release);
    }
    Ok(())
}

/// Like tokio's `write_all`, for a half that the driver uses too.
async fn write_all(write: &OwnedWriteHalf, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        write.writable().await?;
        match write.try_write(bytes) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Bytes that are read at once.
const READ_BYTES: usize = 64 * 1024;

struct Reader {
    wanted: Option<CoreId>,
    link: u64,
    address: SocketAddr,
    cluster: Option<ClusterId>,
    events: mpsc::Sender<Event>,
}

impl Reader {
    async fn run(&self, mut read: OwnedReadHalf, agreed: oneshot::Sender<WireVersion>) -> Result<(), End> {
        let mut buffer = Vec::with_capacity(READ_BYTES);
        let (who, version) = timeout(WELCOME_TIMEOUT, self.greeted(&mut read, &mut buffer)).await.map_err(|_| {
            "it does not answer a greeting: check that a Kasha node listens there, and that it is not overloaded (K0202)"
                .to_owned()
        })??;
        // Nobody waits for it if the other half has failed, which ends the connection.
        let _ = agreed.send(version);
        self.tell(Event::Welcomed { link: self.link, who, address: self.address }).await?;
        loop {
            let mut whole = 0;
            while let Some(Frame { kind, len, payload }) = cut(version, &buffer[whole..])? {
                if Handshake::is_in(kind, payload) {
                    self.welcome(payload)?;
                }
                whole += len;
            }
            if whole > 0 {
                // Copying the whole frames costs less than a new buffer for every read.
                let mut bytes = buffer[..whole].to_vec();
                if version != WIRE_VERSION {
                    frame::restamp(&mut bytes, WIRE_VERSION);
                }
                buffer.drain(..whole);
                buffer.shrink_to(READ_BYTES);
                self.tell(Event::Frames { link: self.link, bytes }).await?;
            }
            read_more(&mut read, &mut buffer).await?;
        }
    }

    async fn tell(&self, event: Event) -> Result<(), String> {
        self.events.send(event).await.map_err(|_| "the client has stopped".to_owned())
    }

    /// Reads until the server has said who it is and what it speaks, and takes that from the buffer.
    async fn greeted(&self, read: &mut OwnedReadHalf, buffer: &mut Vec<u8>) -> Result<(Who, WireVersion), End> {
        loop {
            match plain::first(buffer) {
                First::Said(why) => return Err(End { why, is_refused: true }),
                First::Half => {}
                First::Other => {
                    if let Some(Frame { kind, len, payload }) = cut(WireVersion::HANDSHAKE, buffer)? {
                        let who = if Handshake::is_in(kind, payload) { self.welcome(payload)? } else { None };
                        let who = who.ok_or(
                            "it answered without a welcome: check that a Kasha node of this version listens there (K0202)"
                                .to_owned(),
                        )?;
                        buffer.drain(..len);
                        return Ok(who);
                    }
                }
            }
            read_more(read, buffer).await?;
        }
    }

    /// Who the server is, if this message is its welcome. A goodbye may come at any time.
    fn welcome(&self, payload: &[u8]) -> Result<Option<(Who, WireVersion)>, String> {
        match Message::decode(payload) {
            Ok(Handshake::Welcome(Welcome { version, cluster, core, .. })) => {
                if !WireVersions::OURS.include(version) {
                    return Err(format!("it wants to speak wire version {version}, which was not offered (K0206)"));
                }
                if self.cluster.is_some_and(|ours| ours != cluster) {
                    return Err(format!("it belongs to another cluster, {cluster}: check the address (K0203)"));
                }
                if self.wanted.is_some() && core != self.wanted {
                    return Err(SOMEBODY_ELSE.to_owned());
                }
                Ok(Some((core.map_or(Who::Coordinator, Who::Core), version)))
            }
            Ok(Handshake::Goodbye(Goodbye { reason })) => Err(reason),
            Ok(Handshake::Hello(_)) | Err(_) => Ok(None),
        }
    }
}

/// What is said of an address at which another server listens than the one that was wanted.
pub(super) const SOMEBODY_ELSE: &str =
    "another node listens at this address now: the configuration is asked for again (K0204)";

async fn read_more(read: &mut OwnedReadHalf, buffer: &mut Vec<u8>) -> Result<(), String> {
    buffer.reserve(READ_BYTES / 2);
    match read.read_buf(buffer).await.map_err(|error| error.to_string())? {
        0 => Err("the server closed the connection".to_owned()),
        _ => Ok(()),
    }
}

/// A whole frame with a right checksum.
struct Frame<'a> {
    kind: u8,
    /// Bytes of all of it.
    len: usize,
    payload: &'a [u8],
}

/// The first frame, if it is whole.
fn cut(version: WireVersion, bytes: &[u8]) -> Result<Option<Frame<'_>>, String> {
    let Some(header) = FrameHeader::parse_of(version, bytes).map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    let len = FRAME_HEADER_BYTES + header.payload_len;
    let Some(frame) = bytes.get(..len) else { return Ok(None) };
    let payload = header.check(frame).map_err(|error| error.to_string())?;
    Ok(Some(Frame { kind: header.kind, len, payload }))
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    /// Found by a review: during a long outage the kernel retransmitted at growing intervals, and nobody dialled anew.
    #[tokio::test]
    async fn a_connection_whose_peer_is_silent_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let (_queue, output) = mpsc::unbounded_channel();
        let (events, _heard) = mpsc::channel(1);
        let shared = Arc::new(Shared::default());
        let dial = Dial {
            link: 1,
            way: Way::At(address),
            turn: 0,
            to: None,
            not_before: None,
            cluster: None,
            resolver: Resolver::default(),
            output,
            shared: Arc::clone(&shared),
            events,
        };
        tokio::spawn(dial.run());
        let (peer, _) = listener.accept().await.expect("it is dialled");
        let mut bytes = Vec::new();
        let cluster = ClusterId(1);
        Welcome { version: WIRE_VERSION, cluster, core: None, incarnation: Incarnation(1) }.encode(&mut bytes);
        peer.writable().await.expect("a socket");
        assert_eq!(peer.try_write(&bytes).expect("it takes a frame"), bytes.len());
        let stream: &TcpStream = loop {
            match shared.write.get() {
                Some(write) => break write.as_ref(),
                None => tokio::task::yield_now().await,
            }
        };
        assert!(sockopt::socket_keepalive(stream).expect("an option"), "though nothing is under way");
        assert_eq!(sockopt::tcp_keepidle(stream).expect("an option"), SILENCE_MAX);
        assert_eq!(sockopt::tcp_keepintvl(stream).expect("an option"), SILENCE_MAX);
        #[cfg(target_os = "linux")]
        assert_eq!(u128::from(sockopt::tcp_user_timeout(stream).expect("an option")), SILENCE_MAX.as_millis());
    }

    #[tokio::test]
    async fn of_many_addresses_the_one_that_answers_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let gone = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("bound");
        let mut addresses = vec![gone; 19];
        addresses.push(address);
        assert_eq!(connect(addresses, DIAL_TIMEOUT).await.expect("the last one").0, address);
        assert!(connect(vec![gone; 20], DIAL_TIMEOUT).await.is_err());
    }

    /// Found on a slow machine: two thousand clients of one program dropped connections that were made, and dialled again, without end.
    #[tokio::test]
    async fn a_connection_that_is_seen_late_counts() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let patience = Duration::from_millis(20);
        for _ in 0..20 {
            #[expect(clippy::disallowed_methods, reason = "a program that is busy, and lets nobody else run")]
            let busy = async {
                tokio::task::yield_now().await;
                std::thread::sleep(patience * 2); // the connection is made, and the time is up
            };
            let (connected, ()) = tokio::join!(connect(vec![address], patience), busy);
            assert_eq!(connected.expect("it was made in time").0, address);
        }
        let never = TcpListener::bind("127.0.0.1:0").await.expect("a port").local_addr().expect("bound");
        assert!(connect(vec![never], patience).await.is_err());
    }

    /// Found from outside: most of those who were refused were told "Broken pipe".
    #[tokio::test]
    async fn whoever_is_refused_is_told_why() {
        for said in [plain::line("4096 connections are open (K0408)"), "HTTP/1.1 400 Bad Request\r\n\r\n".to_owned()] {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let way = Way::At(listener.local_addr().expect("bound"));
            let (queue, output) = mpsc::unbounded_channel();
            let (events, mut heard) = mpsc::channel(1);
            let (shared, resolver) = (Arc::new(Shared::default()), Resolver::default());
            let dial = Dial {
                link: 1,
                way,
                turn: 0,
                to: None,
                not_before: None,
                cluster: None,
                resolver,
                output,
                shared,
                events,
            };
            let _ = queue.send(vec![0; 1 << 20]);
            tokio::spawn(dial.run());
            let (peer, _) = listener.accept().await.expect("it is dialled");
            peer.writable().await.expect("a socket");
            assert_eq!(peer.try_write(said.as_bytes()).expect("room"), said.len());
            // With input that was not read: the other side's writes fail.
            drop(peer);
            let Some(Event::Gone { why, .. }) = heard.recv().await else { panic!("it is over") };
            assert!(why.contains(if said.starts_with("KASHA") { "K0408" } else { "not a Kasha frame" }), "{why}");
        }
    }
}
