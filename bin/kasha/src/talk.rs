//! One question to the coordinator and its answer, on a connection of its own, without a client session.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use kasha_types::{ClusterId, Incarnation};
use kasha_wire::Message;
use kasha_wire::frame::{FRAME_HEADER_BYTES, FrameHeader};
use kasha_wire::link::Handshake;
use kasha_wire::message::{Goodbye, Hello, Welcome};

const PATIENCE: Duration = Duration::from_secs(2);

/// A connection to the coordinator.
pub struct Talk {
    stream: TcpStream,
    /// The coordinator's cluster.
    pub cluster: ClusterId,
}

impl Talk {
    /// Connects, and learns which cluster the coordinator has.
    pub fn connect(coordinator: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&coordinator, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut talk = Self { stream, cluster: ClusterId(0) };
        let (cluster, incarnation) = (ClusterId(0), Incarnation(0));
        match talk.ask(&Hello { cluster, from: None, incarnation, to: None })? {
            Handshake::Welcome(Welcome { core: Some(core), .. }) => bail!("{core} listens there, not the coordinator"),
            Handshake::Welcome(Welcome { cluster, .. }) if cluster != ClusterId(0) => talk.cluster = cluster,
            Handshake::Goodbye(Goodbye { reason }) => bail!("{reason}"),
            other @ (Handshake::Hello(_) | Handshake::Welcome(_)) => {
                bail!("it answered {} to a greeting", other.name())
            }
        }
        Ok(talk)
    }

    /// Sends a message and waits for the next one.
    pub fn ask<A: Message>(&mut self, message: &impl Message) -> Result<A> {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        self.stream.write_all(&frame)?;
        let mut answer = vec![0; FRAME_HEADER_BYTES];
        self.stream.read_exact(&mut answer)?;
        let header = FrameHeader::parse(&answer)?.context("a frame's header")?;
        answer.resize(FRAME_HEADER_BYTES + header.payload_len, 0);
        self.stream.read_exact(&mut answer[FRAME_HEADER_BYTES..])?;
        A::decode(header.check(&answer)?)
            .map_err(|error| anyhow!("the coordinator answered: {error}; run the same version on both sides (K0206)"))
    }
}
