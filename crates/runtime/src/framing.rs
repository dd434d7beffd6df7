//! The framing of a listener's connections: what their bytes are cut into.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;

use kasha_wire::cutter::Cutter;
use kasha_wire::requests::RequestCutter;

/// How the bytes of a listener's connections are cut.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// Kasha's frames, after its handshake.
    #[default]
    Frames,
    /// Requests of the Redis protocol, from the first byte on. What the machine sends on such a connection leaves as it is.
    Requests,
}

/// A socket that listens.
#[derive(Debug)]
pub enum ListeningSocket {
    /// At an address; see [`crate::listen`].
    Tcp(TcpListener),
    /// At a path; see [`crate::listen_at_path`].
    Local(UnixListener),
}

impl ListeningSocket {
    /// The same socket, for another loop.
    ///
    /// # Errors
    /// If the process has no more descriptors.
    pub fn try_clone(&self) -> std::io::Result<Self> {
        match self {
            Self::Tcp(socket) => socket.try_clone().map(Self::Tcp),
            Self::Local(socket) => socket.try_clone().map(Self::Local),
        }
    }
}

/// A socket on which a loop accepts connections, and how these are cut.
#[derive(Debug)]
pub struct Listener {
    /// The socket.
    pub socket: ListeningSocket,
    /// The framing of its connections.
    pub framing: Framing,
}

impl From<TcpListener> for Listener {
    /// A listener for Kasha's frames.
    fn from(socket: TcpListener) -> Self {
        Self { socket: ListeningSocket::Tcp(socket), framing: Framing::Frames }
    }
}

/// The cutter of one connection.
#[derive(Debug)]
pub(crate) enum Cutting {
    Frames(Cutter),
    Requests(RequestCutter),
    /// The other side has ended its side behind the last request.
    Over,
}

impl Default for Cutting {
    fn default() -> Self {
        Self::of(Framing::Frames)
    }
}

impl Cutting {
    pub(crate) fn of(framing: Framing) -> Self {
        match framing {
            Framing::Frames => Self::Frames(Cutter::default()),
            Framing::Requests => Self::Requests(RequestCutter::default()),
        }
    }

    /// Whether part of a frame or request, or after a pause whole ones, are kept.
    pub(crate) fn holds_bytes(&self) -> bool {
        match self {
            Self::Frames(cutter) => cutter.holds_bytes(),
            Self::Requests(cutter) => cutter.holds_bytes(),
            Self::Over => false,
        }
    }

    /// The cutter of a connection that waits for a handshake.
    pub(crate) fn greeting(&mut self) -> &mut Cutter {
        match self {
            Self::Frames(cutter) => cutter,
            Self::Requests(_) | Self::Over => unreachable!("other protocols have no handshake"),
        }
    }
}
