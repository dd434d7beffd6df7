//! One question to the coordinator and its answer, on a connection of its own, without a client session.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use kasha_types::{ClusterId, ConfigVersion, Incarnation};
use kasha_wire::frame::{self, FRAME_HEADER_BYTES, FrameHeader};
use kasha_wire::link::{Handshake, ToClient, ToOperator};
use kasha_wire::message::{GetConfiguration, Goodbye, Hello, NotLeader, Welcome};
use kasha_wire::plain::{self, First};
use kasha_wire::{Configuration, Message, WireVersion};

const PATIENCE: Duration = Duration::from_secs(2);
/// How long a member may take to answer a greeting, before it is called silent.
const GREETING: Duration = Duration::from_millis(1500);

/// A connection to the coordinator.
pub struct Talk {
    stream: TcpStream,
    /// The version that is spoken.
    version: WireVersion,
    /// The coordinator's cluster.
    pub cluster: ClusterId,
}

impl Talk {
    /// Connects to the first of these that is a coordinator, of this cluster if one is wanted, and learns which cluster it has.
    pub fn connect_to_one_of(addresses: &[SocketAddr], wanted: Option<ClusterId>) -> Result<Self> {
        let patience = if addresses.len() > 1 { PATIENCE / 4 } else { PATIENCE };
        let (mut other, mut problem) = (None, anyhow!("it has no address"));
        for &address in addresses {
            match Self::connect_within(address, patience, PATIENCE) {
                Ok(talk) if wanted.is_none_or(|wanted| wanted == talk.cluster) => return Ok(talk),
                Ok(talk) => other = other.or(Some(talk)),
                Err(error) => problem = error.context(address),
            }
        }
        other.ok_or(problem)
    }

    /// Connects, and learns which cluster the coordinator has.
    pub fn connect(coordinator: SocketAddr) -> Result<Self> {
        Self::connect_within(coordinator, PATIENCE, PATIENCE)
    }

    /// Whether a member of this cluster's coordinator answers there, whoever leads: the member itself, and not just its process.
    pub fn is_there(member: SocketAddr, cluster: ClusterId) -> bool {
        let Ok(mut talk) = Self::connect_within(member, GREETING, GREETING) else { return false };
        talk.cluster == cluster && talk.ask::<ToClient>(&GetConfiguration { have: ConfigVersion(0) }).is_ok()
    }

    fn connect_within(coordinator: SocketAddr, patience: Duration, answer: Duration) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&coordinator, patience)?;
        stream.set_read_timeout(Some(answer))?;
        let mut talk = Self { stream, version: WireVersion::HANDSHAKE, cluster: ClusterId(0) };
        let (cluster, incarnation) = (ClusterId(0), Incarnation(0));
        match talk.ask(&Hello {
            versions: kasha_wire::WireVersions::OURS,
            cluster,
            from: None,
            incarnation,
            to: None,
        })? {
            Handshake::Welcome(Welcome { core: Some(core), .. }) => bail!("{core} listens there, not the coordinator"),
            Handshake::Welcome(Welcome { version, cluster, .. }) if cluster != ClusterId(0) => {
                (talk.version, talk.cluster) = (version, cluster);
            }
            Handshake::Goodbye(Goodbye { reason }) => bail!("{reason}"),
            other @ (Handshake::Hello(_) | Handshake::Welcome(_)) => {
                bail!("it answered {} to a greeting", other.name())
            }
        }
        Ok(talk)
    }

    /// Asks whoever leads the coordinator's group. If nobody does as yet the last answer says so.
    pub fn ask_leader(configuration: &Configuration, message: &impl Message) -> Result<ToOperator> {
        const TRIES: u32 = 10;
        const PAUSE: Duration = Duration::from_millis(200);
        let mut leader = configuration.coordinator;
        let mut others = configuration.group.iter().map(|of| of.address).cycle();
        for _ in 1..TRIES {
            match Self::connect_in(leader, configuration.cluster).and_then(|mut talk| talk.ask(message)) {
                Ok(ToOperator::NotLeader(NotLeader { leader: Some(member), group, .. })) => {
                    let found = group.iter().find(|of| of.member == member);
                    leader = found.map_or(leader, |of| of.address);
                }
                Ok(ToOperator::NotLeader(_)) | Err(_) if configuration.group.len() > 1 => {
                    leader = others.next().expect("several");
                }
                answer => return answer,
            }
            std::thread::sleep(PAUSE);
        }
        Self::connect_in(leader, configuration.cluster)?.ask(message)
    }

    /// Connects to a member of this cluster: another one may listen there by now.
    fn connect_in(address: SocketAddr, cluster: ClusterId) -> Result<Self> {
        let talk = Self::connect(address)?;
        if talk.cluster != cluster {
            bail!("{address} is of {}, not of {cluster} (K0203)", talk.cluster);
        }
        Ok(talk)
    }

    /// Sends a message and waits for the next one.
    pub fn ask<A: Message>(&mut self, message: &impl Message) -> Result<A> {
        let mut frame = Vec::new();
        message.encode(&mut frame);
        frame::restamp(&mut frame, self.version);
        self.stream.write_all(&frame)?;
        let mut answer = vec![0; FRAME_HEADER_BYTES];
        self.stream.read_exact(&mut answer)?;
        if plain::first(&answer) != First::Other {
            self.stream.read_to_end(&mut answer)?;
            bail!("{}", String::from_utf8_lossy(&answer).trim_end());
        }
        let header = FrameHeader::parse_of(self.version, &answer)?.context("a frame's header")?;
        answer.resize(FRAME_HEADER_BYTES + header.payload_len, 0);
        self.stream.read_exact(&mut answer[FRAME_HEADER_BYTES..])?;
        A::decode(header.check(&answer)?)
            .map_err(|error| anyhow!("the coordinator answered: {error}; run the same version on both sides (K0206)"))
    }
}
