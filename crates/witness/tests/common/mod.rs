//! What the tests share.
#![allow(dead_code, reason = "each test uses its part")]

use kasha_types::{ClientId, ClusterId, ClusterTime, KeyHash, ListVersion, RpcId, Sequence, ShardId};
use kasha_witness::{Identity, Recorded, Sizes, Why, Witness};

pub(crate) const IDENTITY: Identity = Identity { cluster: ClusterId(11), shard: ShardId(3), list: ListVersion(5) };
pub(crate) const LEASE: ClusterTime = ClusterTime(1_000);
pub(crate) const NO_FLOOR: ClusterTime = ClusterTime(0);

pub(crate) fn rpc(client: u64, sequence: u64) -> RpcId {
    RpcId { client: ClientId(client), sequence: Sequence(sequence) }
}

/// Eight slots in four sets of two: keys 0, 4, 8 … share set 0.
pub(crate) fn small() -> Witness {
    Witness::new(IDENTITY, Sizes::new(8, 2))
}

pub(crate) fn keys(hashes: &[u64]) -> Vec<KeyHash> {
    hashes.iter().map(|&hash| KeyHash(hash)).collect()
}

pub(crate) fn record(witness: &mut Witness, sequence: u64, hashes: &[u64], body: &[u8]) -> Result<(), Why> {
    let recorded = witness.record(rpc(1, sequence), &keys(hashes), body, LEASE);
    witness.assert_invariants();
    match recorded {
        Recorded::Accepted => Ok(()),
        Recorded::Rejected(why) => Err(why),
    }
}

/// One gc of these (key hash, sequence); returns the sequences of the suspects.
pub(crate) fn gc(witness: &mut Witness, dropped: &[(u64, u64)]) -> Vec<u64> {
    let entries: Vec<_> = dropped.iter().map(|&(hash, sequence)| (KeyHash(hash), rpc(1, sequence))).collect();
    let mut suspects = Vec::new();
    witness.gc(&entries, NO_FLOOR, &mut |rpc: RpcId, _: &[u8]| suspects.push(rpc.sequence.0));
    witness.assert_invariants();
    suspects
}

pub(crate) fn held(witness: &Witness) -> Vec<(u64, Vec<u8>)> {
    let mut held = Vec::new();
    witness.requests(|rpc, body| held.push((rpc.sequence.0, body.to_vec())));
    held
}

/// A file as its owner makes it: the header block, then zeros.
pub(crate) fn new_file(witness: &Witness) -> Vec<u8> {
    let mut file = vec![0; usize::try_from(witness.sizes().file_bytes()).unwrap()];
    let header = witness.header_bytes();
    file[..header.len()].copy_from_slice(&header);
    file
}

pub(crate) fn flush(witness: &mut Witness, file: &mut [u8]) {
    witness.drain_dirty(|offset, bytes| {
        file[usize::try_from(offset).unwrap()..][..bytes.len()].copy_from_slice(bytes);
    });
    witness.assert_invariants();
}

/// As when dropped slots are emptied on file later, or never.
pub(crate) fn flush_leaving_leftovers(witness: &mut Witness, file: &mut [u8]) {
    witness.drain_dirty(|offset, bytes| {
        if bytes.iter().any(|&byte| byte != 0) {
            file[usize::try_from(offset).unwrap()..][..bytes.len()].copy_from_slice(bytes);
        }
    });
    witness.assert_invariants();
}

pub(crate) fn reload(witness: &Witness, file: &[u8]) -> Witness {
    let loaded = Witness::load(witness.identity(), witness.sizes(), file, false).expect("its own file");
    loaded.assert_invariants();
    loaded
}
