//! Random programs of a few transactions over two to four shards, with primaries that die or are deposed, clients that die or
//! cancel, and words that are late, doubled and lost. `RUNS=1000000 cargo test --release -p kasha-distributed search::`
//! searches for longer.

use crate::world::World;

const RUNS: u64 = 40_000;

#[test]
fn whatever_happens_it_is_strictly_serializable_and_ends() {
    let runs = std::env::var("RUNS").map_or(RUNS, |runs| runs.parse().expect("a number of runs"));
    for seed in 0..runs {
        if let Err(why) = World::new(seed).run() {
            panic!("seed {seed}: {why}");
        }
    }
}
