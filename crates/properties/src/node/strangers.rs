//! Three cores among strangers. A stranger's frames are none that only a node may send. No stranger stops a core, and
//! the honest client is told what happened.

use arbitrary::{Arbitrary, Result, Unstructured};
use kasha_machine::Endpoint;
use kasha_types::{ClientId, ClusterTime, ConnId, ListVersion, RpcId, Sequence, TableId};
use kasha_wire::frame::{FRAME_HEADER_BYTES, Kind};
use kasha_wire::hot::{Appended, Envelope, ReadView, RequestView, SyncRequest, decode_small, encode_small};
use kasha_wire::link::ToNode;
use kasha_wire::{AppendView, Body, Message, Turn};

use super::common::cluster::Cluster;
use super::{Honest, go_on, positions, some_body};
use crate::damage::Damage;
use crate::property::Property;
use crate::speech::{self, Scene};
use crate::{draw, wire};

const STEPS_MAX: usize = 60;

/// See the module. The steps are drawn as they happen.
#[derive(Debug)]
pub struct NodeStrangers(Vec<u8>);

impl<'a> Arbitrary<'a> for NodeStrangers {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        draw::rest(u).map(Self)
    }
}

/// Whether only an entitled sender may send this. (An entitled sender can of course lie.)
fn is_entitled(kind: Kind, payload: &[u8]) -> bool {
    match kind {
        Kind::Request | Kind::Record | Kind::Cancel => RequestView::decode(payload).is_ok_and(|view| {
            Body::decode(view.body).is_ok_and(|body| body.head.rpc.client == ClientId(super::HONEST))
        }),
        Kind::Append => AppendView::decode(payload).is_ok(),
        Kind::Appended => decode_small::<Appended>(payload).is_ok(),
        // Anything else a node answers or ignores, whoever says it.
        Kind::Message => matches!(
            ToNode::decode(payload),
            Ok(ToNode::ToMember(_) | ToNode::ToWitness(_) | ToNode::ToPrimary(_) | ToNode::Pong(_))
        ),
        // Anybody may ask, and what answers a client means nothing to a node.
        Kind::Read | Kind::Sync => false,
        Kind::Answer | Kind::Refuse | Kind::Recorded | Kind::Synced | Kind::ReadAnswer | Kind::ReadRefuse => false,
    }
}

fn envelope(u: &mut Unstructured<'_>) -> Result<Envelope> {
    let cluster_time = ClusterTime(u.arbitrary()?);
    Ok(Envelope {
        shard: speech::shard(u)?,
        epoch: speech::epoch(u)?,
        list: if u.arbitrary()? { ListVersion::NONE } else { speech::list(u)? },
        cluster_time,
        attempt: u.arbitrary()?,
        turn: if u.ratio(1, 4)? { Some(turn(u, cluster_time)?) } else { None },
    })
}

/// Whoever claims to have waited: no order of those that wait may stop a core.
fn turn(u: &mut Unstructured<'_>, now: ClusterTime) -> Result<Turn> {
    let waited: u16 = u.arbitrary()?;
    let since = ClusterTime(now.0.saturating_sub(u64::from(waited)));
    Ok(Turn { since, number: u.int_in_range(0..=3)?, returns: u.arbitrary()? })
}

/// A frame as a client sends it: well-formed requests of its own, or anything, or damaged ones of others.
fn frame(cluster: &Cluster, u: &mut Unstructured<'_>) -> Result<(u8, Vec<u8>)> {
    let mut frame = Vec::new();
    match draw::weighted(u, &[6, 1, 1, 4, 3, 3])? {
        0 => {
            let kind = *u.choose(&[Kind::Request, Kind::Record, Kind::Cancel])?;
            RequestView::encode(kind, &envelope(u)?, &some_body(u)?, &mut frame);
        }
        1 => {
            let arguments = draw::bytes(u, 12)?;
            let code = *u.choose(&[64, 65, 80, 1])?;
            let (envelope, read_id) = (envelope(u)?, u.arbitrary()?);
            ReadView { envelope, read_id, table: TableId(1), code, arguments: &arguments }.encode(&mut frame);
        }
        2 => {
            let rpc = RpcId { client: ClientId(u.int_in_range(0..=4)?), sequence: Sequence(u.int_in_range(0..=9)?) };
            let request = SyncRequest { shard: speech::shard(u)?, epoch: speech::epoch(u)?, rpc, attempt: 1 };
            encode_small(Kind::Sync, &request, &mut frame);
        }
        3 => Scene::default().out_of_place(u)?.encode(&mut frame),
        4 => {
            let golden: Vec<_> = wire::golden_frames().collect();
            frame = u.choose(&golden)?.clone();
        }
        _ if !cluster.on_the_way.is_empty() => {
            let overheard = draw::below(u, cluster.on_the_way.len())?;
            frame = cluster.on_the_way[overheard].frame.clone();
        }
        _ => frame = [vec![0; FRAME_HEADER_BYTES], draw::bytes(u, 100)?].concat(),
    }
    let (mut kind, mut payload) = (frame[12], frame.split_off(FRAME_HEADER_BYTES));
    if draw::one_in(u, 2)? {
        for damage in draw::up_to::<Damage>(u, 3)? {
            damage.apply(&mut payload);
        }
        kind = if draw::one_in(u, 8)? { u.arbitrary()? } else { kind };
    }
    Ok((kind, payload))
}

fn step(cluster: &mut Cluster, honest: &mut Honest, u: &mut Unstructured<'_>) -> Result<()> {
    if draw::one_in(u, 4)? {
        return go_on(cluster, honest, u);
    }
    let to = u.int_in_range(1..=3)?;
    let (kind, payload) = frame(cluster, u)?;
    let from = Endpoint::Conn(ConnId(u.int_in_range(5..=9)?));
    match Kind::from_number(kind) {
        Some(kind) if is_entitled(kind, &payload) => {}
        Some(kind) => {
            let frame = [vec![0; FRAME_HEADER_BYTES], payload].concat();
            cluster.on(to, |core| core.frame_from(from, kind, &frame));
        }
        None => cluster.on(to, |core| core.input(from, kind, &payload)),
    }
    Ok(())
}

impl Property for NodeStrangers {
    const NAME: &'static str = "node_strangers";
    const INPUT_BYTES_MAX: usize = 700;
    const MEMORY_BYTES_MAX: usize = 256 << 20;

    fn hold(self) {
        let mut cluster = Cluster::serving();
        let mut honest = Honest::new();
        let mut u = Unstructured::new(&self.0);
        for _ in 0..STEPS_MAX {
            if u.is_empty() || step(&mut cluster, &mut honest, &mut u).is_err() {
                break;
            }
        }
        cluster.settle();
        honest.increment(&mut cluster);
        let ends = positions(&cluster);
        assert!(ends.windows(2).all(|pair| pair[0] == pair[1]), "the copies differ: {ends:?}");
        let files = |node| cluster.segments(node).collect::<Vec<_>>();
        assert!(files(1) == files(2) && files(2) == files(3), "the files differ");
    }
}
