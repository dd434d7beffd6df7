//! Three cores. One of them speaks the protocol and lies, or its frames come from another term. That may stop what
//! depends on it, but no core panics, and no invariant of a core breaks.

use arbitrary::{Arbitrary, Result, Unstructured};
use kasha_log::GROUP_HEADER_BYTES;
use kasha_machine::Endpoint;
use kasha_types::{ConnId, CoreId, NodeId, Round};
use kasha_wire::frame::{FRAME_HEADER_BYTES, Kind};
use kasha_wire::hot::{Appended, Envelope, RequestView, encode_small};
use kasha_wire::{AppendView, Message};

use super::common::cluster::{Carried, Cluster};
use super::{positions, some_body};
use crate::damage::Damage;
use crate::draw;
use crate::property::Property;
use crate::speech::{self, Scene};

const STEPS_MAX: usize = 60;

/// See the module. The steps are drawn as they happen.
#[derive(Debug)]
pub struct NodePeers(Vec<u8>);

impl<'a> Arbitrary<'a> for NodePeers {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        draw::rest(u).map(Self)
    }
}

fn scene(cluster: &Cluster, u: &mut Unstructured<'_>) -> Result<Scene> {
    let appended = cluster.on_the_way.iter().filter(|carried| carried.kind == Kind::Append);
    let log =
        |carried: &Carried| AppendView::decode(&carried.frame[FRAME_HEADER_BYTES..]).map(|view| view.bytes.to_vec());
    let mut bytes: Vec<Vec<u8>> = appended.filter_map(|carried| log(carried).ok()).collect();
    bytes.extend(cluster.segments(1).map(|(_, bytes)| bytes));
    bytes.push(some_body(u)?);
    let now = cluster.cores[0].now;
    let version = cluster.configuration.version;
    Ok(Scene { positions: positions(cluster), bytes, segment_bytes: 1 << 20, now, version })
}

fn lie(cluster: &mut Cluster, u: &mut Unstructured<'_>) -> Result<()> {
    let scene = scene(cluster, u)?;
    let mut frame = Vec::new();
    let kind = match draw::weighted(u, &[14, 4, 2])? {
        0 => {
            scene.between_nodes(u)?.encode(&mut frame);
            Kind::Message
        }
        1 => {
            let bytes = scene.some_bytes(u)?;
            let (shard, epoch, attach) = (speech::shard(u)?, speech::epoch(u)?, speech::attach(u)?);
            let (from, synced, round) = (scene.end(u)?, scene.end(u)?, Round(u.int_in_range(0..=9)?));
            AppendView { shard, epoch, attach, from, synced, round, bytes: &[] }.encode(&bytes, &mut frame);
            frame.extend_from_slice(&bytes);
            Kind::Append
        }
        _ => {
            let (shard, epoch, node) = (speech::shard(u)?, speech::epoch(u)?, speech::node(u)?);
            let (attach, end, round) = (speech::attach(u)?, scene.end(u)?, Round(u.int_in_range(0..=9)?));
            encode_small(Kind::Appended, &Appended { shard, epoch, node, attach, end, round }, &mut frame);
            Kind::Appended
        }
    };
    say(cluster, u, kind, &frame)
}

fn say(cluster: &mut Cluster, u: &mut Unstructured<'_>, kind: Kind, frame: &[u8]) -> Result<()> {
    let from = if draw::one_in(u, 4)? {
        Endpoint::Conn(ConnId(9))
    } else {
        Endpoint::Core(CoreId { node: NodeId(u.int_in_range(1..=4)?), core: 0 })
    };
    cluster.on(u.int_in_range(1..=3)?, |core| core.frame_from(from, kind, frame));
    Ok(())
}

/// A primary's own log bytes, with something else in them and right checksums.
fn forge(cluster: &mut Cluster, u: &mut Unstructured<'_>) -> Result<()> {
    let appends: Vec<usize> =
        (0..cluster.on_the_way.len()).filter(|&at| cluster.on_the_way[at].kind == Kind::Append).collect();
    if appends.is_empty() {
        return Ok(());
    }
    let carried = cluster.on_the_way.remove(*u.choose(&appends)?).expect("an append");
    let Ok(view) = AppendView::decode(&carried.frame[FRAME_HEADER_BYTES..]) else { return Ok(()) };
    let (mut bytes, mut frame) = (view.bytes.to_vec(), Vec::new());
    let head = GROUP_HEADER_BYTES as usize;
    if bytes.len() > head {
        let payload = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes")) as usize;
        let group = &mut bytes[..head + payload];
        for damage in draw::up_to::<Damage>(u, 3)? {
            let mut entries = group[head..].to_vec();
            damage.apply(&mut entries);
            entries.resize(payload, 0);
            group[head..].copy_from_slice(&entries);
        }
        let crc = crc32c::crc32c(&group[12..]);
        group[8..12].copy_from_slice(&crc.to_le_bytes());
    }
    view.encode(&bytes, &mut frame);
    frame.extend_from_slice(&bytes);
    cluster.arrive(Carried { frame, ..carried });
    Ok(())
}

/// A frame that was really sent arrives changed, somewhere else, twice or never.
fn misdirect(cluster: &mut Cluster, u: &mut Unstructured<'_>) -> Result<()> {
    if cluster.on_the_way.is_empty() {
        return Ok(());
    }
    let at = draw::below(u, cluster.on_the_way.len())?;
    let carried = cluster.on_the_way.remove(at).expect("below their number");
    let mut payload = carried.frame[FRAME_HEADER_BYTES..].to_vec();
    for damage in draw::up_to::<Damage>(u, 2)? {
        damage.apply(&mut payload);
    }
    let frame = [vec![0; FRAME_HEADER_BYTES], payload].concat();
    for _ in 0..draw::below(u, 3)? {
        say(cluster, u, carried.kind, &frame)?;
    }
    Ok(())
}

fn client(cluster: &mut Cluster, u: &mut Unstructured<'_>) -> Result<()> {
    let (body, mut frame) = (some_body(u)?, Vec::new());
    let (list, cluster_time) = (cluster.configuration.shards[0].list, kasha_types::ClusterTime(0));
    let (shard, epoch) = (super::common::SHARD, cluster.epoch);
    let kind = *u.choose(&[Kind::Request, Kind::Record])?;
    RequestView::encode(
        kind,
        &Envelope { shard, epoch, list, cluster_time, attempt: 1, turn: None },
        &body,
        &mut frame,
    );
    cluster.on(u.int_in_range(1..=3)?, |core| core.frame_from(Endpoint::Conn(ConnId(2)), kind, &frame));
    Ok(())
}

/// What the coordinator commits is sound, whatever it was told.
fn commit(cluster: &mut Cluster, u: &mut Unstructured<'_>) -> Result<()> {
    match draw::below(u, 3)? {
        0 => cluster.fail_over_to(u.int_in_range(1..=3)?),
        1 => cluster.commit(|configuration| configuration.shards[0].closing = true),
        _ => {
            let time = u.int_in_range(1000..=300_000)?;
            cluster.it_is(time);
        }
    }
    Ok(())
}

fn step(cluster: &mut Cluster, u: &mut Unstructured<'_>) -> Result<()> {
    match draw::weighted(u, &[10, 4, 4, 5, 3, 3, 1])? {
        0 => lie(cluster, u),
        1 => misdirect(cluster, u),
        2 => forge(cluster, u),
        3 => client(cluster, u),
        4 => {
            cluster.tick(u.int_in_range(0..=200)?);
            Ok(())
        }
        5 => {
            cluster.carry();
            Ok(())
        }
        _ => commit(cluster, u),
    }
}

impl Property for NodePeers {
    const NAME: &'static str = "node_peers";
    const INPUT_BYTES_MAX: usize = 900;
    const MEMORY_BYTES_MAX: usize = 256 << 20;

    fn hold(self) {
        let mut cluster = Cluster::serving();
        let mut u = Unstructured::new(&self.0);
        for _ in 0..STEPS_MAX {
            if u.is_empty() || step(&mut cluster, &mut u).is_err() {
                break;
            }
        }
        cluster.settle();
    }
}
