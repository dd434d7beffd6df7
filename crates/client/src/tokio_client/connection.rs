//! One dialled connection as a tokio task: it writes bytes, cuts what it reads into whole frames, and gives a reason
//! when it ends.
//!
//! It knows frames and the handshake, and no message.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kasha_machine::Endpoint;
use kasha_types::{ClusterId, CoreId, Incarnation};
use kasha_wire::link::Handshake;
use kasha_wire::message::{Goodbye, Hello, Welcome};
use kasha_wire::{FRAME_HEADER_BYTES, FrameHeader, Message};
use rustix::net::sockopt;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::Instant;

const DIAL_TIMEOUT: Duration = Duration::from_secs(3);

/// How long a peer's machine may be silent before its connection is closed and dialled anew. It is shorter than the
/// kernel's pauses between retransmissions in a long outage, and much shorter than a call's usual deadline.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// What a connection reports to the driver.
pub(super) enum Event {
    /// Whole frames with right checksums.
    Frames { from: Endpoint, link: u64, bytes: Vec<u8> },
    /// The connection ended, or could not be made.
    Gone { from: Endpoint, link: u64, why: String },
}

/// What the task of a connection needs to begin.
pub(super) struct Dial {
    pub(super) to: Endpoint,
    pub(super) link: u64,
    pub(super) address: SocketAddr,
    /// When the pause after a failure ends.
    pub(super) not_before: Option<Instant>,
    pub(super) cluster: Option<ClusterId>,
    pub(super) output: mpsc::UnboundedReceiver<Vec<u8>>,
    pub(super) shared: Arc<Shared>,
    pub(super) events: mpsc::Sender<Event>,
}

/// State that the driver and the task of a connection share.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// Bytes that were handed over and are not written yet.
    queued: AtomicUsize,
    /// The half to write to, once the handshake's first message is out.
    write: OnceLock<OwnedWriteHalf>,
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
            Some(write) if self.queued() == 0 => write.try_write(bytes).unwrap_or(0),
            Some(_) | None => 0,
        }
    }
}

impl Dial {
    pub(super) async fn run(mut self) {
        let why = match self.talk().await {
            Ok(()) => return,
            Err(why) => format!("{}: {why}", self.address),
        };
        // The driver may be gone. Then nobody needs to know.
        let _ = self.events.send(Event::Gone { from: self.to, link: self.link, why }).await;
    }

    async fn talk(&mut self) -> Result<(), String> {
        if let Some(not_before) = self.not_before {
            tokio::time::sleep_until(not_before).await;
        }
        let dialled = tokio::time::timeout(DIAL_TIMEOUT, TcpStream::connect(self.address)).await;
        let stream = dialled.map_err(|_| "no answer".to_owned())?.map_err(|error| error.to_string())?;
        prepare(&stream);
        let (read, write) = stream.into_split();
        let reader = Reader { from: self.to, link: self.link, cluster: self.cluster, events: self.events.clone() };
        let hello = Hello {
            cluster: self.cluster.unwrap_or(ClusterId(0)),
            from: None,
            incarnation: Incarnation(0),
            to: core_of(self.to),
        };
        tokio::select! {
            ended = reader.run(read) => ended,
            ended = write_queued(write, &hello, &mut self.output, &self.shared) => ended.map_err(|error| error.to_string()),
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

fn core_of(endpoint: Endpoint) -> Option<CoreId> {
    match endpoint {
        Endpoint::Core(core) => Some(core),
        Endpoint::Coordinator | Endpoint::Seed(_) | Endpoint::Conn(_) => None,
    }
}

/// Sends the handshake, and then writes what the driver could not write. Ends without an error when the driver drops
/// the connection.
async fn write_queued(
    write: OwnedWriteHalf,
    hello: &Hello,
    output: &mut mpsc::UnboundedReceiver<Vec<u8>>,
    shared: &Shared,
) -> io::Result<()> {
    let mut bytes = Vec::new();
    hello.encode(&mut bytes);
    write_all(&write, &bytes).await?;
    let write = shared.write.get_or_init(|| write);
    while let Some(bytes) = output.recv().await {
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

struct Reader {
    from: Endpoint,
    link: u64,
    cluster: Option<ClusterId>,
    events: mpsc::Sender<Event>,
}

impl Reader {
    async fn run(&self, mut read: OwnedReadHalf) -> Result<(), String> {
        const READ_BYTES: usize = 64 * 1024;
        let mut buffer = Vec::with_capacity(READ_BYTES);
        let mut is_welcome = false;
        loop {
            buffer.reserve(READ_BYTES / 2);
            if read.read_buf(&mut buffer).await.map_err(|error| error.to_string())? == 0 {
                return Err("the server closed the connection".to_owned());
            }
            let mut whole = 0;
            while let Some(header) = FrameHeader::parse(&buffer[whole..]).map_err(|error| error.to_string())? {
                let len = FRAME_HEADER_BYTES + header.payload_len;
                let Some(frame) = buffer[whole..].get(..len) else { break };
                let payload = header.check(frame).map_err(|error| error.to_string())?;
                if Handshake::is_in(header.kind, payload) {
                    is_welcome |= self.check_handshake(payload)?;
                }
                if !is_welcome {
                    return Err(
                        "it answered without a welcome: check that a Kasha node of this version listens there (K0202)"
                            .to_owned(),
                    );
                }
                whole += len;
            }
            if whole > 0 {
                // Copying the whole frames costs less than a new buffer for every read.
                let bytes = buffer[..whole].to_vec();
                buffer.drain(..whole);
                buffer.shrink_to(READ_BYTES);
                let event = Event::Frames { from: self.from, link: self.link, bytes };
                self.events.send(event).await.map_err(|_| "the client has stopped".to_owned())?;
            }
        }
    }

    /// Whether this message is the welcome. A goodbye may come at any time.
    fn check_handshake(&self, payload: &[u8]) -> Result<bool, String> {
        match Message::decode(payload) {
            Ok(Handshake::Welcome(Welcome { cluster, core, .. })) => {
                if self.cluster.is_some_and(|ours| ours != cluster) {
                    return Err(format!("it belongs to another cluster, {cluster}: check the address (K0203)"));
                }
                let wanted = core_of(self.from);
                if wanted.is_some() && core != wanted {
                    return Err(
                        "another node listens at this address now: the configuration is asked for again (K0204)"
                            .to_owned(),
                    );
                }
                Ok(true)
            }
            Ok(Handshake::Goodbye(Goodbye { reason })) => Err(reason),
            Ok(Handshake::Hello(_)) | Err(_) => Ok(false),
        }
    }
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
        let (to, cluster) = (Endpoint::Coordinator, None);
        let dial =
            Dial { to, link: 1, address, not_before: None, cluster, output, shared: Arc::clone(&shared), events };
        tokio::spawn(dial.run());
        let _peer = listener.accept().await.expect("it is dialled");
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
}
