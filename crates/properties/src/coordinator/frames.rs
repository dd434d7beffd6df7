//! The coordinator among nodes that send heartbeats, and a stranger that sends anything: as an unknown connection, as a
//! client, as a node that it is not. The coordinator goes on, its configurations only grow (F2), and after a restart it
//! knows everything that it had told (D3).

use arbitrary::{Arbitrary, Result, Unstructured};
use kasha_machine::{Endpoint, Input, Machine};
use kasha_types::{ConnId, NodeId};
use kasha_wire::AnyMessage;

use super::common::{CLIENT, World, conn};
use crate::draw;
use crate::property::Property;
use crate::speech::Scene;

const STEPS_MAX: usize = 60;

/// See the module. The steps are drawn as they happen: what is worth saying depends on what is there.
#[derive(Debug)]
pub struct CoordinatorFrames(Vec<u8>);

impl<'a> Arbitrary<'a> for CoordinatorFrames {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        draw::rest(u).map(Self)
    }
}

fn whoever(u: &mut Unstructured<'_>) -> Result<Endpoint> {
    Ok(match draw::below(u, 4)? {
        0 => CLIENT,
        1 => Endpoint::Conn(ConnId(u.int_in_range(500..=510)?)),
        _ => conn(NodeId(u.int_in_range(1..=4)?), u.int_in_range(0..=1)?),
    })
}

fn step(world: &mut World, u: &mut Unstructured<'_>) -> Result<()> {
    let scene = Scene { now: world.now, version: world.config().version, ..Scene::default() };
    match draw::weighted(u, &[3, 3, 1, 1, 1, 10, 2, 2, 1])? {
        0 => world.tick(u.int_in_range(1..=600)?),
        1 => world.run(u.int_in_range(1..=4)? * 100),
        2 => {
            let node = world.node(u.int_in_range(1..=3)?);
            node.up = !node.up;
        }
        3 => {
            let node = world.node(u.int_in_range(1..=3)?);
            (node.starts, node.config) = (node.starts + 1, None);
        }
        4 => {
            let hidden = u.int_in_range(1..=3)?;
            if !world.hidden.remove(&hidden) {
                world.hidden.insert(hidden);
            }
        }
        5 => {
            let (from, message) = (whoever(u)?, scene.to_coordinator(u)?);
            world.send(from, &message);
        }
        6 => {
            let (from, message) = (whoever(u)?, scene.out_of_place(u)?);
            world.send(from, &message);
        }
        7 => {
            let (from, kind, payload) = (whoever(u)?, u.arbitrary()?, draw::bytes(u, 60)?);
            world.coordinator.step(world.now, Input::Frame { from, kind, payload: &payload }, &mut world.effects);
            world.tick(0);
        }
        _ => {
            let before = world.config().clone();
            world.restart();
            // Its first turn may already commit something more.
            let now = world.config();
            assert!(now.version > before.version || *now == before, "D3: a restart knows what was told");
        }
    }
    Ok(())
}

impl Property for CoordinatorFrames {
    const NAME: &'static str = "coordinator_frames";
    const INPUT_BYTES_MAX: usize = 500;

    fn hold(self) {
        let mut world = World::serving(3, 2, 1);
        let mut u = Unstructured::new(&self.0);
        let mut last = world.config().clone();
        for _ in 0..STEPS_MAX {
            if u.is_empty() || step(&mut world, &mut u).is_err() {
                break;
            }
            let now = world.config();
            assert!(now.version >= last.version, "F2");
            assert!(now.version > last.version || *now == last, "one configuration of a version");
            for (then, now) in last.shards.iter().zip(&now.shards) {
                assert!(now.epoch >= then.epoch && now.list >= then.list, "F2: {then:?} then {now:?}");
            }
            last = now.clone();
            for (_, message) in world.sent.drain(..) {
                if let AnyMessage::ConfigurationIs(told) = message {
                    assert!(told.configuration.version <= last.version);
                }
            }
        }
    }
}
