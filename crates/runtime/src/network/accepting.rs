//! Listening sockets, of either family. What they accept is read and written alike.

use std::io;
use std::os::fd::OwnedFd;

use mio::net::{TcpListener, TcpStream, UnixListener};
use mio::{Interest, Registry};

use super::LISTENER;
use crate::framing::ListeningSocket;

#[derive(Debug)]
pub(super) enum Acceptor {
    Tcp(TcpListener),
    Local(UnixListener),
}

impl Acceptor {
    /// A socket that is watched from now on.
    pub(super) fn new(socket: ListeningSocket, registry: &Registry) -> io::Result<Self> {
        Ok(match socket {
            ListeningSocket::Tcp(socket) => {
                socket.set_nonblocking(true)?;
                let mut socket = TcpListener::from_std(socket);
                registry.register(&mut socket, LISTENER, Interest::READABLE)?;
                Self::Tcp(socket)
            }
            ListeningSocket::Local(socket) => {
                socket.set_nonblocking(true)?;
                let mut socket = UnixListener::from_std(socket);
                registry.register(&mut socket, LISTENER, Interest::READABLE)?;
                Self::Local(socket)
            }
        })
    }

    /// The next connection. The system reads, writes and ends a stream without asking for its family, and so does the standard library.
    pub(super) fn accept(&self) -> io::Result<TcpStream> {
        match self {
            Self::Tcp(socket) => socket.accept().map(|(stream, _)| stream),
            Self::Local(socket) => {
                let (stream, _) = socket.accept()?;
                let stream = OwnedFd::from(std::os::unix::net::UnixStream::from(stream));
                Ok(TcpStream::from_std(stream.into()))
            }
        }
    }
}
