//! CURP C.2, figure 14: how many random records fit before a set is full, by associativity.

use crate::common::*;
use kasha_types::{KeyHash, RpcId};
use kasha_witness::{Recorded, Sizes, Witness};

const ROUNDS: u64 = 100;

fn mean_records_before_a_rejection(slots: u32, ways: u8) -> u64 {
    let mut witness = Witness::new(IDENTITY, Sizes::new(slots, ways));
    let mut random = 1_u64;
    let mut total = 0;
    let mut entries = Vec::new();
    for _ in 0..ROUNDS {
        loop {
            random = random.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (random ^ (random >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let hash = KeyHash(mixed ^ (mixed >> 29));
            if witness.record(rpc(1, total), &[hash], b"", LEASE) != Recorded::Accepted {
                break;
            }
            entries.push((hash, rpc(1, total)));
            total += 1;
        }
        witness.gc(&entries, NO_FLOOR, &mut |_: RpcId, _: &[u8]| {});
        assert_eq!(witness.stats().occupied, 0);
        entries.clear();
    }
    total / ROUNDS
}

#[test]
fn curp_c_2_associativity_keeps_collisions_away() {
    let means = [1, 2, 4, 8].map(|ways| mean_records_before_a_rejection(4096, ways));
    println!("4096 slots, records before the first rejection with 1, 2, 4, 8 ways: {means:?}");
    assert!((60..=100).contains(&means[0]), "about 80 when direct-mapped: {}", means[0]);
    assert!(means.is_sorted() && means[2] > 5 * means[0]);
}
