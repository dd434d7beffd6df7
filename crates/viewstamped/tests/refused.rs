//! An operation that a leader permits, and others do not (R9.11): their programs do different things.

use kasha_viewstamped::{MemberId, OpNumber, Trouble};

use crate::world::{LEASE, RESTORES_OLDER, World};

fn led(seed: u64) -> (World, MemberId, [MemberId; 2]) {
    let mut world = World::new(seed, &[1, 2, 3], &[]);
    assert!(world.run_until(LEASE * 10, |world| world.leader().is_some()));
    world.run(LEASE);
    let leader = world.leader().expect("somebody leads");
    let others: Vec<_> = world.ids().into_iter().filter(|id| *id != leader).collect();
    (world, leader, [others[0], others[1]])
}

fn refused(world: &World, id: MemberId) -> Option<OpNumber> {
    match world.stopped.get(&id)? {
        Trouble::Refused(op, why) if why.contains("nothing that this program knows") => Some(*op),
        other => panic!("{id}: {other}"),
    }
}

#[test]
fn r9_11_whoever_refuses_an_operation_stops_and_the_others_go_on() {
    for seed in 1..10 {
        let (mut world, leader, [older, other]) = led(seed);
        world.is_older(older);
        world.propose();
        let op = world.propose_new(leader);
        let after = world.propose().expect("it leads");
        world.run(LEASE * 4);
        assert_eq!((refused(&world, older), world.leader()), (Some(op), Some(leader)));
        assert!([leader, other].iter().all(|id| world.replica(id.0).committed_to() >= after));
        // Its file may be full, and is begun anew by what it has.
        world.with(older, |replica, _| replica.write_anew());
        world.run(LEASE);
        world.kill(older);
        world.start(older);
        assert!(world.replica(older.0).decided_to() < op, "it has acknowledged nothing that it refuses");
        // Another program takes what this one has refused, and all that came behind it.
        world.stopped.clear();
        world.run(LEASE * 4);
        assert!(world.replica(older.0).committed_to() >= after && world.stopped.is_empty());
    }
}

#[test]
fn r9_11_a_leader_whose_operation_all_others_refuse_gives_up_and_has_told_nobody() {
    for seed in 1..10 {
        let (mut world, leader, others) = led(seed);
        others.iter().for_each(|id| world.is_older(*id));
        let op = world.propose_new(leader);
        world.run(LEASE / 2);
        assert!(others.iter().all(|id| refused(&world, *id) == Some(op)));
        world.ask(); // no round ends
        world.run(LEASE * 20);
        assert!(world.leaders().is_empty() && world.judge.told() < op && world.judge.granted() == 0);
        // The operation stops them once, and not at each replay: it is not in their files.
        world.kill(leader);
        world.stopped.clear();
        for id in others {
            world.kill(id);
            world.start(id);
            world.is_older(id);
        }
        assert!(world.run_until(LEASE * 20, |world| world.leader().is_some()), "seed {seed}: nobody leads");
        world.run(LEASE);
        let next = world.propose().expect("somebody leads");
        world.run(LEASE * 2);
        assert!(others.iter().all(|id| world.replica(id.0).committed_to() >= next) && world.stopped.is_empty());
        // Whoever led then forgets it, since nobody was told of it.
        world.start(leader);
        world.run(LEASE * 4);
        assert!(world.replica(leader.0).committed_to() >= next && world.stopped.is_empty());
        assert_eq!(world.replica(leader.0).committed().numbers, world.replica(others[0].0).committed().numbers);
    }
}

/// What stands before the refused operation is a snapshot, which is committed: the member has that, and knows who the members are.
#[test]
fn r9_11_a_member_that_refuses_an_operation_behind_a_snapshot_knows_the_members() {
    let (mut world, leader, [older, other]) = led(3);
    world.kill(older);
    for _ in 0..20 {
        world.propose();
        world.run(LEASE / 8);
    }
    for id in [leader, other] {
        world.with(id, |replica, _| replica.write_anew());
    }
    world.run(LEASE);
    RESTORES_OLDER.set(true);
    let _ = world.propose_new(leader);
    world.start(older);
    world.is_older(older);
    world.run(LEASE * 2);
    assert!(world.stopped.contains_key(&older), "it refuses");
    let members = |world: &World| world.replica(older.0).lists().members.len();
    assert_eq!(members(&world), 3);
    world.with(older, |replica, _| replica.write_anew());
    world.run(LEASE);
    world.kill(older);
    RESTORES_OLDER.set(false);
    world.stopped.clear();
    world.isolate(leader);
    world.start(older);
    assert_eq!(members(&world), 3, "on its disk, too");
    world.run(LEASE * 30);
    assert!(world.leaders().iter().any(|of| *of != leader), "both can elect: {:?}", world.leaders());
}
