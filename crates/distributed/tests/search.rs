//! Random programs of a few transactions over two to four shards, with primaries that die or are deposed, clients that die or
//! cancel, and words that are late, doubled and lost. `RUNS=1000000 cargo test --release -p kasha-distributed search::`
//! searches for longer.

use crate::world::World;

const RUNS: u64 = 40_000;

fn search(world: impl Fn(u64) -> World) {
    let runs = std::env::var("RUNS").map_or(RUNS, |runs| runs.parse().expect("a number of runs"));
    for seed in 0..runs {
        if let Err(why) = world(seed).run() {
            panic!("seed {seed}: {why}");
        }
    }
}

#[test]
fn whatever_happens_it_is_strictly_serializable_and_ends() {
    search(World::new);
}

#[test]
fn r10_15_so_it_is_with_operations_that_touch_everything() {
    search(World::with_flushes);
}
