//! Random programs of a few transactions over two or three shards, with primaries that die, clients that die, and words that are
//! late, doubled and lost. Every rule that is left out is noticed.

mod world;

use world::World;

#[test]
fn whatever_happens_it_is_strictly_serializable_and_ends() {
    for seed in 0..20_000 {
        if let Err(why) = World::new(seed).run() {
            panic!("seed {seed}: {why}");
        }
    }
}
