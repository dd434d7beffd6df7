//! Records a second on one thread, in memory, against CURP 5.2's 1.27 million.
//! `cargo run --release -p kasha-witness --example throughput`

use std::time::Instant;

use kasha_types::{ClientId, ClusterId, ClusterTime, KeyHash, ListVersion, RpcId, Sequence, ShardId, key_hash};
use kasha_witness::{Identity, Recorded, Sizes, Witness};

const RECORDS: u64 = 4_000_000;

#[allow(clippy::disallowed_methods, reason = "measures real time")]
fn main() {
    for (batch, body_bytes, written) in [(50, 100, false), (50, 100, true), (1, 100, true), (50, 2048, true)] {
        let identity = Identity { cluster: ClusterId(1), shard: ShardId(0), list: ListVersion(1) };
        let mut witness = Witness::new(identity, Sizes::default());
        let body = vec![7; body_bytes];
        let mut entries: Vec<(KeyHash, RpcId)> = Vec::with_capacity(batch);
        let (mut rejected, mut bytes_written) = (0_u64, 0);
        let start = Instant::now();
        for sequence in 0..RECORDS {
            let rpc = RpcId { client: ClientId(1), sequence: Sequence(sequence) };
            let hash = key_hash(kasha_types::TableId(1), &sequence.to_le_bytes());
            match witness.record(rpc, &[hash], &body, ClusterTime(1)) {
                Recorded::Accepted => entries.push((hash, rpc)),
                Recorded::Rejected(_) => rejected += 1,
            }
            if sequence % batch as u64 == 0 {
                if written {
                    witness.drain_dirty(|_, bytes| bytes_written += bytes.len());
                }
                witness.gc(&entries, ClusterTime(0), &mut |_: RpcId, _: &[u8]| {});
                entries.clear();
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        let millions = RECORDS as f64 / seconds / 1e6;
        println!(
            "{body_bytes:5} byte bodies, gc every {batch:3}: {millions:6.2} M records/s, {rejected} rejected, {bytes_written} bytes to write"
        );
    }
}
