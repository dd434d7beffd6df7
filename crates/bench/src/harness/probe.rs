//! Asks a node's event loop about itself during a benchmark: processor time, allocations, status.
//!
//! It is a plain socket and not a session, so that it does not disturb what is measured.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, bail};
use kasha_types::{ClusterId, Incarnation};
use kasha_wire::status::{CoreStatus, LoopTurns, LoopUsage};
use kasha_wire::{FRAME_HEADER_BYTES, FrameHeader, Message};

use crate::limits;

/// An open connection to one event loop.
#[derive(Debug)]
pub(crate) struct Probe {
    stream: TcpStream,
    questions: u64,
}

impl Probe {
    pub(crate) fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, limits::OPERATION);
        let stream = stream.with_context(|| format!("cannot connect to {address}"))?;
        stream.set_read_timeout(Some(limits::OPERATION))?;
        stream.set_nodelay(true)?;
        let mut probe = Self { stream, questions: 0 };
        let (cluster, incarnation) = (ClusterId(0), Incarnation(0));
        match probe.ask(&Message::Hello { cluster, from: None, incarnation, to: None })? {
            Message::Welcome { .. } => Ok(probe),
            other => bail!("{address} answers {} to a greeting", other.name()),
        }
    }

    /// What the loop's thread has used so far.
    pub(crate) fn usage(&mut self) -> anyhow::Result<LoopUsage> {
        self.questions += 1;
        match self.ask(&Message::GetUsage { id: self.questions })? {
            Message::UsageIs { id, usage } if id == self.questions => Ok(usage),
            other => bail!("a node answers {} when asked for its usage", other.name()),
        }
    }

    /// The status of the node.
    pub(crate) fn status(&mut self) -> anyhow::Result<CoreStatus> {
        self.questions += 1;
        match self.ask(&Message::GetStatus { id: self.questions })? {
            Message::StatusIs { id, status } if id == self.questions => Ok(status),
            other => bail!("a node answers {} when asked for its status", other.name()),
        }
    }

    /// The longest turns of its loop. Those since the last question are told once.
    pub(crate) fn turns(&mut self) -> anyhow::Result<LoopTurns> {
        self.questions += 1;
        match self.ask(&Message::GetTurns { id: self.questions })? {
            Message::TurnsAre { id, turns } if id == self.questions => Ok(*turns),
            other => bail!("a node answers {} when asked for its turns", other.name()),
        }
    }

    fn ask(&mut self, question: &Message) -> anyhow::Result<Message> {
        let mut frame = Vec::new();
        question.encode(&mut frame);
        self.stream.write_all(&frame).context("a node hears no question")?;
        frame.resize(FRAME_HEADER_BYTES, 0);
        self.stream.read_exact(&mut frame).context("a node does not answer")?;
        let header = FrameHeader::parse(&frame)?.context("a frame's header")?;
        frame.resize(FRAME_HEADER_BYTES + header.payload_len, 0);
        self.stream.read_exact(&mut frame[FRAME_HEADER_BYTES..])?;
        Ok(Message::decode(header.check(&frame)?)?)
    }
}
