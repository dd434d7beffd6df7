//! Groups under every fault at once, against the naive twin.

use std::time::Duration;

use kasha_viewstamped::{Change, MemberId};

use crate::world::{Faults, LEASE, World};

/// One random event.
fn disturb(world: &mut World) {
    let ids = world.ids();
    let id = *world.rng.pick(&ids);
    let other = *world.rng.pick(&ids);
    match world.rng.below(12) {
        0 if world.is_up(id) => world.kill(id),
        1 | 2 if !world.is_up(id) => world.start(id),
        3 => world.isolate(id),
        4 => world.cut(id, other),
        5 => world.stall_disk(id, LEASE * 6),
        6 => world.faults = Faults::SOME,
        7 => world.heal(),
        8 => _ = world.with(id, |replica, _| replica.write_anew()),
        9 => _ = world.with(id, |replica, _| replica.hand_over(other)),
        10 => {
            let now = world.now;
            let change = match world.rng.below(2) {
                0 => Change::Add(other),
                _ => Change::Remove(other),
            };
            let _ = world.with(id, |replica, ahead| {
                replica.teach(other);
                replica.change(now.after(ahead), &change)
            });
        }
        _ => {}
    }
}

fn run(seed: u64, members: &[u64], newcomers: &[u64]) -> World {
    let mut world = World::new(seed, members, newcomers);
    for _ in 0..120 {
        disturb(&mut world);
        for _ in 0..world.rng.below(4) {
            world.propose();
            world.ask();
        }
        let time = world.rng.below(400);
        world.run(Duration::from_millis(time));
    }
    world.heal();
    assert!(world.run_until(LEASE * 120, |world| world.leader().is_some()), "seed {seed}: nobody leads");
    world.run(LEASE * 10);
    let last = (0..50).find_map(|_| {
        let op = world.propose();
        world.run(LEASE * 4);
        let leader = world.leader()?;
        (world.replica(leader.0).committed_to() >= op?).then_some(leader)
    });
    assert!(last.is_some(), "seed {seed}: nothing is committed any more");
    assert!(world.stopped.is_empty(), "seed {seed}: {:?}", world.stopped);
    world
}

/// Three members, for whoever looks for a bug.
#[cfg(feature = "planted-bugs")]
pub fn three(seed: u64) {
    run(seed, &[1, 2, 3], &[]);
}

/// The same, and two that come and go.
#[cfg(feature = "planted-bugs")]
pub fn five(seed: u64) {
    run(seed, &[1, 2, 3], &[4, 5]);
}

#[test]
fn three_members_lose_nothing() {
    let (mut elections, mut gathered) = (0, 0);
    for seed in 0..60 {
        let judge = run(seed, &[1, 2, 3], &[]).judge;
        (elections, gathered) = (elections + judge.elections(), gathered + judge.gathered());
    }
    assert!(elections > 60, "somebody was elected anew: {elections}");
    assert!(gathered > elections / 4, "R9.4: most leaders know what a quorum remembers: {gathered} of {elections}");
}

#[test]
fn members_come_and_go_and_nothing_is_lost() {
    for seed in 1000..1060 {
        run(seed, &[1, 2, 3], &[4, 5]);
    }
}

#[test]
fn one_member_becomes_three_under_faults() {
    for seed in 2000..2040 {
        let mut world = World::new(seed, &[1], &[2, 3]);
        assert!(world.run_until(LEASE * 4, |world| world.leader().is_some()));
        world.faults = Faults::SOME;
        let newcomers = [MemberId(2), MemberId(3)];
        let mut grown = false;
        for _ in 0..80 {
            if !grown {
                let now = world.now;
                let result = world.with(MemberId(1), |replica, ahead| {
                    newcomers.iter().for_each(|member| replica.teach(*member));
                    replica.change(now.after(ahead), &Change::Grow(newcomers.to_vec()))
                });
                grown = matches!(result, Some(Ok(_)));
            } else {
                disturb(&mut world);
            }
            world.propose();
            world.ask();
            world.run(Duration::from_millis(150));
        }
        world.heal();
        assert!(world.run_until(LEASE * 120, |world| world.leader().is_some()), "seed {seed}: nobody leads");
        assert!(!world.judge.numbers().is_empty());
    }
}
