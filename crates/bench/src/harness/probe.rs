//! Asks a node's event loop about itself during a benchmark: processor time, allocations, status.
//!
//! It is a plain socket and not a session, so that it does not disturb what is measured.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, ensure};
use kasha_types::{ClusterId, ConfigVersion, Incarnation};
use kasha_wire::link::ToClient;
use kasha_wire::message::{
    GetConfiguration, GetStatus, GetTurns, GetUsage, Hello, StatusIs, TurnsAre, UsageIs, Welcome,
};
use kasha_wire::status::{CoreStatus, LoopTurns, LoopUsage};
use kasha_wire::{FRAME_HEADER_BYTES, FrameHeader, Message, WireVersion, frame};

use crate::limits;

/// An open connection to one event loop.
#[derive(Debug)]
pub(crate) struct Probe {
    stream: TcpStream,
    /// The version that is spoken.
    version: WireVersion,
    questions: u64,
}

impl Probe {
    pub(crate) fn connect(address: SocketAddr) -> anyhow::Result<Self> {
        Self::connect_within(address, limits::OPERATION)
    }

    /// The same; each answer may take so long, too.
    pub(crate) fn connect_within(address: SocketAddr, patience: Duration) -> anyhow::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, patience);
        let stream = stream.with_context(|| format!("cannot connect to {address}"))?;
        stream.set_read_timeout(Some(patience))?;
        stream.set_nodelay(true)?;
        let mut probe = Self { stream, version: WireVersion::HANDSHAKE, questions: 0 };
        let (cluster, incarnation) = (ClusterId(0), Incarnation(0));
        let Welcome { version, .. } = probe.ask(&Hello {
            versions: kasha_wire::WireVersions::OURS,
            cluster,
            from: None,
            incarnation,
            to: None,
        })?;
        probe.version = version;
        Ok(probe)
    }

    /// What the loop's thread has used so far.
    pub(crate) fn usage(&mut self) -> anyhow::Result<LoopUsage> {
        self.questions += 1;
        let UsageIs { id, usage } = self.ask(&GetUsage { id: self.questions })?;
        ensure!(id == self.questions, "a node answers another question than that for its usage");
        Ok(usage)
    }

    /// The status of the node.
    pub(crate) fn status(&mut self) -> anyhow::Result<CoreStatus> {
        self.questions += 1;
        let StatusIs { id, status } = self.ask(&GetStatus { id: self.questions })?;
        ensure!(id == self.questions, "a node answers another question than that for its status");
        Ok(status)
    }

    /// The longest turns of its loop. Those since the last question are told once.
    pub(crate) fn turns(&mut self) -> anyhow::Result<LoopTurns> {
        self.questions += 1;
        let TurnsAre { id, turns } = self.ask(&GetTurns { id: self.questions })?;
        ensure!(id == self.questions, "a node answers another question than that for its turns");
        Ok(*turns)
    }

    /// What a member of the coordinator's group answers who asks for the configuration: that, if it leads, or else who does.
    pub(crate) fn configuration(&mut self) -> anyhow::Result<ToClient> {
        self.ask(&GetConfiguration { have: ConfigVersion(0) })
    }

    fn ask<A: Message>(&mut self, question: &impl Message) -> anyhow::Result<A> {
        let mut frame = Vec::new();
        question.encode(&mut frame);
        frame::restamp(&mut frame, self.version);
        self.stream.write_all(&frame).context("a node hears no question")?;
        frame.resize(FRAME_HEADER_BYTES, 0);
        self.stream.read_exact(&mut frame).context("a node does not answer")?;
        let header = FrameHeader::parse_of(self.version, &frame)?.context("a frame's header")?;
        frame.resize(FRAME_HEADER_BYTES + header.payload_len, 0);
        self.stream.read_exact(&mut frame[FRAME_HEADER_BYTES..])?;
        A::decode(header.check(&frame)?).with_context(|| format!("the answer of a node to {}", question.name()))
    }
}
