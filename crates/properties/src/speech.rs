//! Messages of a liar: everything that a process could send to a node or to the coordinator if it knows the protocol
//! and does not tell the truth. Numbers are near those that are in use.

use arbitrary::{Result, Unstructured};
use kasha_types::{
    AttachId, BootId, ClientId, ClusterId, ClusterTime, ConfigVersion, CoreId, Epoch, Incarnation, KeyHash,
    ListVersion, LogEnd, LogPosition, NodeId, RpcId, SegmentId, Sequence, ShardId, Tick,
};
use kasha_wire::codec::Bytes;
use kasha_wire::message::{
    self, AttachAt, GcEntry, Holding, Knowledge, LeaseInfo, Missing, Placement, Report, ShardKnowledge, TableCommand,
};
use kasha_wire::{AnyMessage, Served};

use crate::draw;

/// What is in use where the message arrives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scene {
    /// Ends of log positions that mean something there.
    pub(crate) positions: Vec<LogPosition>,
    /// Bytes of segments and bodies that were seen.
    pub(crate) bytes: Vec<Vec<u8>>,
    pub(crate) segment_bytes: u64,
    pub(crate) now: Tick,
    pub(crate) version: ConfigVersion,
}

/// A number that is mostly small, and now and then at an end of its range.
fn number(u: &mut Unstructured<'_>, usual: u64) -> Result<u64> {
    Ok(match draw::weighted(u, &[14, 1, 1])? {
        0 => u.int_in_range(0..=usual)?,
        1 => u64::MAX,
        _ => u.arbitrary()?,
    })
}

fn number32(u: &mut Unstructured<'_>, usual: u32) -> Result<u32> {
    number(u, u64::from(usual)).map(|number| number as u32)
}

pub(crate) fn shard(u: &mut Unstructured<'_>) -> Result<ShardId> {
    Ok(ShardId(if draw::one_in(u, 16)? { u.arbitrary()? } else { 0 }))
}

pub(crate) fn epoch(u: &mut Unstructured<'_>) -> Result<Epoch> {
    number32(u, 4).map(Epoch)
}

pub(crate) fn node(u: &mut Unstructured<'_>) -> Result<NodeId> {
    number32(u, 4).map(|number| NodeId(number as u16))
}

fn core(u: &mut Unstructured<'_>) -> Result<CoreId> {
    Ok(CoreId { node: node(u)?, core: if draw::one_in(u, 16)? { u.arbitrary()? } else { 0 } })
}

pub(crate) fn attach(u: &mut Unstructured<'_>) -> Result<AttachId> {
    number32(u, 6).map(AttachId)
}

pub(crate) fn list(u: &mut Unstructured<'_>) -> Result<ListVersion> {
    number(u, 3).map(ListVersion)
}

fn rpc(u: &mut Unstructured<'_>) -> Result<RpcId> {
    Ok(RpcId { client: ClientId(number(u, 4)?), sequence: Sequence(number(u, 6)?) })
}

impl Scene {
    pub(crate) fn position(&self, u: &mut Unstructured<'_>) -> Result<LogPosition> {
        if draw::one_in(u, 4)? || self.positions.is_empty() {
            return Ok(LogPosition { epoch: epoch(u)?, offset: self.end(u)? });
        }
        u.choose(&self.positions).copied()
    }

    pub(crate) fn end(&self, u: &mut Unstructured<'_>) -> Result<LogEnd> {
        Ok(match draw::below(u, 4)? {
            0 => LogEnd::START,
            1 if !self.positions.is_empty() => u.choose(&self.positions)?.offset,
            2 => LogEnd(u.int_in_range(0..=5)? * self.segment_bytes),
            _ => LogEnd(number(u, 4000)?),
        })
    }

    /// Bytes that were seen, cut or changed or not, or others.
    pub(crate) fn some_bytes(&self, u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
        if draw::one_in(u, 5)? || self.bytes.is_empty() {
            return draw::bytes(u, 80);
        }
        let mut bytes = u.choose(&self.bytes)?.clone();
        for damage in draw::up_to::<crate::damage::Damage>(u, 2)? {
            damage.apply(&mut bytes);
        }
        Ok(bytes)
    }

    fn many<T>(
        &self,
        u: &mut Unstructured<'_>,
        mut one: impl FnMut(&mut Unstructured<'_>) -> Result<T>,
    ) -> Result<Vec<T>> {
        (0..draw::below(u, 5)?).map(|_| one(u)).collect()
    }

    /// What members, witnesses and primaries say to each other.
    pub(crate) fn between_nodes(&self, u: &mut Unstructured<'_>) -> Result<AnyMessage> {
        let (shard, epoch) = (shard(u)?, epoch(u)?);
        Ok(match draw::below(u, 14)? {
            0 => {
                let served = u.arbitrary::<bool>()?.then_some(Served { epoch, primary: node(u)? });
                message::Fence { shard, epoch, primary: core(u)?, attach: attach(u)?, served, list: list(u)? }.into()
            }
            1 => self.fence_report(u, shard, epoch)?.into(),
            2 => message::Attach {
                shard,
                epoch,
                primary: core(u)?,
                attach: attach(u)?,
                since: ConfigVersion(number(u, 6)?),
                expected: self.position(u)?,
                must_hold: self.end(u)?,
                start: if u.arbitrary()? { AttachAt::Keep(self.end(u)?) } else { AttachAt::Join(self.end(u)?) },
            }
            .into(),
            3 => message::Attached { shard, epoch, node: node(u)?, attach: attach(u)? }.into(),
            4 => message::Mismatch { shard, epoch, node: node(u)?, attach: attach(u)? }.into(),
            5 => self.copy_segment(u, shard, epoch)?,
            6 => message::SegmentCopied {
                shard,
                epoch,
                node: node(u)?,
                attach: attach(u)?,
                segment: SegmentId(number32(u, 5)?),
                offset: number32(u, 4000)?,
            }
            .into(),
            7 => message::FetchLog { shard, epoch, from: self.end(u)? }.into(),
            8 => message::LogPiece { shard, epoch, from: self.end(u)?, bytes: Bytes(self.some_bytes(u)?) }.into(),
            9 => message::FreezeWitness { shard, list: list(u)?, epoch }.into(),
            10 => message::WitnessHolds {
                shard,
                list: list(u)?,
                epoch,
                node: node(u)?,
                holding: *u.choose(&[Holding::Sure, Holding::PowerLost, Holding::Damaged, Holding::NeverHad])?,
                requests: self.many(u, |u| self.some_bytes(u).map(Bytes))?,
            }
            .into(),
            11 => message::Gc {
                shard,
                list: list(u)?,
                round: number(u, 5)?,
                floor: ClusterTime(number(u, 2000)?),
                entries: self.many(u, |u| Ok(GcEntry { key: KeyHash(u.arbitrary()?), rpc: rpc(u)? }))?,
            }
            .into(),
            12 => message::GcDone {
                shard,
                list: list(u)?,
                round: number(u, 5)?,
                node: node(u)?,
                suspects: self.many(u, |u| self.some_bytes(u).map(Bytes))?,
            }
            .into(),
            _ => message::Pong { sent: Tick(number(u, self.now.0)?), node: node(u)? }.into(),
        })
    }

    fn fence_report(&self, u: &mut Unstructured<'_>, shard: ShardId, epoch: Epoch) -> Result<message::FenceReport> {
        Ok(message::FenceReport {
            shard,
            epoch,
            node: node(u)?,
            attach: attach(u)?,
            exists: u.arbitrary()?,
            end: self.position(u)?,
            history: self.many(u, |u| self.position(u))?,
            intact: u.arbitrary()?,
            complete: u.arbitrary()?,
            whole: u.arbitrary()?,
        })
    }

    fn copy_segment(&self, u: &mut Unstructured<'_>, shard: ShardId, epoch: Epoch) -> Result<AnyMessage> {
        let bytes = self.some_bytes(u)?;
        let total = if draw::one_in(u, 3)? { number32(u, 5000)? } else { bytes.len() as u32 };
        Ok(message::CopySegment {
            shard,
            epoch,
            attach: attach(u)?,
            segment: SegmentId(number32(u, 5)?),
            total,
            offset: if draw::one_in(u, 3)? { number32(u, 5000)? } else { 0 },
            bytes: Bytes(bytes),
        }
        .into())
    }

    fn report(&self, u: &mut Unstructured<'_>) -> Result<Report> {
        let (shard, epoch, node, list) = (ShardId(number32(u, 2)? as u16), epoch(u)?, node(u)?, list(u)?);
        Ok(match draw::below(u, 10)? {
            0 => Report::Recovered { shard, epoch },
            1 => Report::Copied { shard, epoch, node },
            2 => Report::ListClosed { shard, epoch, list },
            3 => Report::Unanswered { shard, epoch, node },
            4 => Report::Stuck { shard, epoch },
            5 => Report::Stopping { shard, epoch, list },
            6 => Report::NeedsWitness { shard, epoch, unheard_members: vec![node], unheard_witnesses: Vec::new() },
            7 => Report::NeedsMembers { shard, epoch, unheard: vec![node], has_copy: u.arbitrary()? },
            8 => Report::PromisedBefore { shard, epoch, promised: self::epoch(u)? },
            _ => Report::WitnessLost { shard, list },
        })
    }

    /// Mostly what a coordinator that forgot nothing may hear: else it would decide nothing any more.
    fn knowledge(&self, u: &mut Unstructured<'_>) -> Result<Knowledge> {
        if draw::below(u, 16)? > 0 {
            return Ok(Knowledge { configuration: ConfigVersion(0), clients_below: ClientId(0), shards: Vec::new() });
        }
        let shards = self.many(u, |u| {
            let (shard, promised, list) = (ShardId(number32(u, 2)? as u16), epoch(u)?, list(u)?);
            Ok(ShardKnowledge { shard, promised, list, set: ConfigVersion(number(u, 6)?) })
        })?;
        let configuration = ConfigVersion(number(u, self.version.0)?);
        Ok(Knowledge { configuration, clients_below: ClientId(number(u, 1)?), shards })
    }

    /// What nodes and clients say to the coordinator.
    pub(crate) fn to_coordinator(&self, u: &mut Unstructured<'_>) -> Result<AnyMessage> {
        let near =
            |u: &mut Unstructured<'_>, of: u64| number(u, 3).map(|number| of.saturating_add(number).saturating_sub(2));
        Ok(match draw::weighted(u, &[6, 1, 1, 1, 1, 3, 1])? {
            0 => {
                let node = node(u)?;
                message::Heartbeat {
                    core: CoreId { node, core: number32(u, 1)? as u8 },
                    incarnation: match draw::below(u, 3)? {
                        0 => Incarnation(number(u, 3)?),
                        _ => Incarnation::new(number32(u, 3)?, 1000 + u32::from(node.0)),
                    },
                    boot: BootId(u128::from(number(u, 4)?)),
                    sent: Tick(near(u, self.now.0)?),
                    answered: Tick(near(u, self.now.0)?),
                    have: ConfigVersion(near(u, self.version.0)?),
                    cluster_time: ClusterTime(number(u, 100_000)?),
                    addresses: (0..draw::below(u, 3)?).map(|core| address(node, core)).collect(),
                    heard: self.many(u, self::node)?,
                    reports: self.many(u, |u| self.report(u))?,
                    knows: self.knowledge(u)?,
                    control: None,
                    levels: kasha_wire::Levels::OURS,
                }
                .into()
            }
            1 => message::OpenSession { nonce: u.arbitrary()? }.into(),
            2 => message::RenewLease { client: ClientId(number(u, 4)?) }.into(),
            3 => message::LeaseQuery { clients: self.many(u, |u| number(u, 4).map(ClientId))? }.into(),
            4 => message::GetConfiguration { have: ConfigVersion(near(u, self.version.0)?) }.into(),
            6 => {
                let (shard, members) = (ShardId(number32(u, 2)? as u16), self.many(u, self::node)?);
                let seen = Missing { epoch: epoch(u)?, members, witnesses: self.many(u, self::node)? };
                message::GiveUp { nonce: u.arbitrary()?, shard, seen: u.arbitrary::<bool>()?.then_some(seen) }.into()
            }
            _ => {
                let name = ["a", "b", "default", "", "a name with spaces"][draw::below(u, 5)?].to_owned();
                let command = match draw::below(u, 3)? {
                    0 => TableCommand::Create(name),
                    1 => TableCommand::Drop(name),
                    _ => TableCommand::CreateAt(name, *u.choose(&[Placement::Spread, Placement::OneShard])?),
                };
                message::TableRequest { client: ClientId(number(u, 4)?), sequence: number(u, 4)?, command }.into()
            }
        })
    }

    /// What else is in the language: nobody expects it from anybody but the coordinator, or at all.
    pub(crate) fn out_of_place(&self, u: &mut Unstructured<'_>) -> Result<AnyMessage> {
        let client = ClientId(number(u, 4)?);
        Ok(match draw::below(u, 9)? {
            0 => message::Hello {
                versions: kasha_wire::WireVersions::OURS,
                cluster: ClusterId(1),
                from: None,
                incarnation: Incarnation(0),
                to: None,
            }
            .into(),
            1 => message::Goodbye { reason: "because".into() }.into(),
            2 => message::LeaseLost { client }.into(),
            3 => message::HeartbeatAnswer {
                sent: self.now,
                lease_millis: number(u, 1000)?,
                cluster_time: ClusterTime(number(u, 1_000_000)?),
                clients_below: client,
                view: kasha_types::ViewNumber(1),
            }
            .into(),
            4 => message::LeaseVerdict {
                cluster_time: ClusterTime(number(u, 1_000_000)?),
                expired: vec![client],
                alive: vec![LeaseInfo { client, expiry: ClusterTime(number(u, 1_000_000)?) }],
                view: kasha_types::ViewNumber(1),
            }
            .into(),
            5 => message::GetStatus { id: u.arbitrary()? }.into(),
            6 => message::Ping { sent: Tick(u.arbitrary()?) }.into(),
            7 => message::GetConfiguration { have: ConfigVersion(number(u, 6)?) }.into(),
            _ => message::OpenSession { nonce: u.arbitrary()? }.into(),
        })
    }
}

fn address(node: NodeId, core: usize) -> std::net::SocketAddr {
    std::net::SocketAddr::from(([10, 0, 0, node.0.to_le_bytes()[0]], 7000 + core as u16))
}
