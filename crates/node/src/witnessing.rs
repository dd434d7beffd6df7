//! The witness instances of this core: their files, and the messages that reach them (section 6; CURP 4.1).

use std::collections::BTreeMap;

use kasha_machine::planted::{self, Bug};
use kasha_machine::{Data, Disk, Effect, Effects, Endpoint, FileName};
use kasha_types::{BootId, ClusterTime, Epoch, KeyHash, ListVersion, RpcId, ShardId};
use kasha_wire::codec::Bytes;
use kasha_wire::frame::Kind;
use kasha_wire::hot::{self, RequestView};
use kasha_wire::message::{GcEntry, Message};
use kasha_wire::{Body, Durability, Recorded, RecordedVerdict};
use kasha_witness::{Identity, LoadError, Sizes, Why, Witness};

use crate::StartError;
use crate::core::{Core, send};

const MODE_MAGIC: &[u8; 4] = b"KWMO";
const MODE_BYTES: usize = 22;

/// One instance.
#[derive(Debug)]
pub(crate) struct Instance {
    pub witness: Witness,
    /// Whether it surely holds all that it accepted (R5.5).
    pub intact: bool,
    boot: BootId,
}

/// All instances of a core.
#[derive(Debug, Default)]
pub(crate) struct Witnesses {
    pub instances: BTreeMap<(ShardId, ListVersion), Instance>,
}

fn sizes(core: &Core) -> Sizes {
    Sizes::new(core.options.witness_slots, core.options.witness_ways)
}

/// Mode file: magic, format 1, frozen flag, boot id.
fn encode_mode(frozen: bool, boot: BootId) -> Vec<u8> {
    let mut bytes = MODE_MAGIC.to_vec();
    bytes.extend_from_slice(&[1, u8::from(frozen)]);
    bytes.extend_from_slice(&boot.0.to_le_bytes());
    bytes
}

fn decode_mode(bytes: &[u8]) -> Option<(bool, BootId)> {
    let bytes: &[u8; MODE_BYTES] = bytes.try_into().ok()?;
    let valid = &bytes[..4] == MODE_MAGIC && bytes[4] == 1 && bytes[5] <= 1;
    valid.then(|| (bytes[5] == 1, BootId(u128::from_le_bytes(bytes[6..].try_into().expect("16 bytes")))))
}

impl Witnesses {
    /// Reads the instances' files. One that is damaged is kept, frozen and not trusted: it must not pass for an empty one.
    pub fn load(core: &Core, disk: &dyn Disk) -> Result<Self, StartError> {
        let mut instances = BTreeMap::new();
        for file in disk.list() {
            let FileName::WitnessMode { shard, list } = file else { continue };
            let read = |file| disk.read(file).map_err(|error| StartError::Read(file, error));
            let mode = read(file)?.and_then(|bytes| decode_mode(&bytes));
            let slots = read(FileName::Witness { shard, list })?.unwrap_or_default();
            let identity = Identity { cluster: core.options.cluster, shard, list };
            let (frozen, boot) = mode.unwrap_or((true, BootId(0)));
            let (witness, intact) = match Witness::load(identity, sizes(core), &slots, frozen) {
                Ok(witness) => (witness, mode.is_some()),
                Err(error @ (LoadError::OtherCluster(_) | LoadError::OtherFormat(_))) => {
                    return Err(StartError::Witness(error));
                }
                Err(_) => {
                    let mut witness = Witness::new(identity, sizes(core));
                    witness.freeze();
                    (witness, false)
                }
            };
            instances.insert((shard, list), Instance { witness, intact, boot });
        }
        Ok(Self { instances })
    }

    /// Power was lost since an instance began: what it accepted last may be gone (R5.5).
    pub fn judge_boot(&mut self, core: &Core) {
        for instance in self.instances.values_mut() {
            if core.durability() == Durability::Replicated && instance.boot != core.options.boot {
                instance.intact = false;
            }
        }
    }

    /// The configuration makes this core a witness of a list.
    pub fn start(&mut self, core: &mut Core, shard: ShardId, list: ListVersion, out: &mut Effects) {
        if self.instances.contains_key(&(shard, list)) {
            return; // repeated: clears nothing
        }
        let witness = Witness::new(Identity { cluster: core.options.cluster, shard, list }, sizes(core));
        let file = FileName::Witness { shard, list };
        core.truncate(file, 0, out);
        core.write_span(file, 0, &witness.header_bytes(), out);
        core.truncate(file, witness.sizes().file_bytes(), out);
        let boot = core.options.boot;
        core.replace(FileName::WitnessMode { shard, list }, &encode_mode(false, boot), out);
        self.instances.insert((shard, list), Instance { witness, intact: true, boot });
    }

    /// A later list is committed: this one is of no use any more.
    pub fn end(&mut self, core: &mut Core, shard: ShardId, list: ListVersion, out: &mut Effects) {
        if self.instances.remove(&(shard, list)).is_some() {
            core.remove(FileName::Witness { shard, list }, out);
            core.remove(FileName::WitnessMode { shard, list }, out);
        }
    }

    /// A client records an update (CURP's record RPC).
    pub fn on_record(&mut self, core: &mut Core, to: Endpoint, view: &RequestView<'_>, out: &mut Effects) {
        let Ok(body) = Body::decode(view.body) else { return };
        let mut hashes = std::mem::take(&mut core.scratch.hashes);
        body.footprint(&mut hashes);
        if body.operation_key.is_some() && planted::is_on(Bug::OperationKeyNotRecorded) {
            hashes.pop();
        }
        let verdict = self.record(core, view, &body, &hashes, out);
        core.scratch.hashes = hashes;
        let recorded = Recorded {
            rpc: body.head.rpc,
            list: view.envelope.list,
            attempt: view.envelope.attempt,
            node: core.id().node,
            verdict,
        };
        let mark = out.mark();
        hot::encode_small(Kind::Recorded, &recorded, out.arena());
        let head = out.span_from(mark);
        // Repeats included: the first one's write may still be under way (R5.3).
        let gate = core.durable_gate();
        out.push(Effect::Send { to, head, tail: None, gate });
    }

    fn record(
        &mut self,
        core: &mut Core,
        view: &RequestView<'_>,
        body: &Body<'_>,
        hashes: &[KeyHash],
        out: &mut Effects,
    ) -> RecordedVerdict {
        let (shard, list) = (view.envelope.shard, view.envelope.list);
        let Some(instance) = self.instances.get_mut(&(shard, list)) else { return RecordedVerdict::WrongList };
        let verdict = instance.witness.record(body.head.rpc, hashes, body.bytes(), body.head.lease_expiry);
        let file = FileName::Witness { shard, list };
        instance.witness.drain_records(|offset, bytes| {
            let data = Data::Span(out.span(bytes));
            out.push(Effect::Write { file, offset, data });
            core.dirty = true;
        });
        match verdict {
            kasha_witness::Recorded::Accepted => RecordedVerdict::Accepted,
            kasha_witness::Recorded::Rejected(why) => match why {
                Why::Conflict => RecordedVerdict::Conflict,
                Why::NoSlot => RecordedVerdict::NoSlot,
                Why::TooLarge | Why::TooManyKeys | Why::NoKeys => RecordedVerdict::TooLarge,
                Why::Frozen => RecordedVerdict::Frozen,
                Why::LeaseExpired => RecordedVerdict::LeaseExpired,
                Why::ReusedId => RecordedVerdict::Reused,
            },
        }
    }

    /// Empties on file some of what was dropped, off the path of any record.
    pub fn tidy_files(&mut self, out: &mut Effects) {
        for (&(shard, list), instance) in &mut self.instances {
            if instance.witness.has_leftovers() {
                instance.witness.drain_dirty(|offset, bytes| {
                    let data = Data::Span(out.span(bytes));
                    out.push(Effect::Write { file: FileName::Witness { shard, list }, offset, data });
                });
            }
        }
    }

    /// The primary says what is synced.
    pub fn on_gc(
        &mut self,
        core: &mut Core,
        to: Endpoint,
        (shard, list, round): (ShardId, ListVersion, u64),
        floor: ClusterTime,
        entries: &[GcEntry],
        out: &mut Effects,
    ) {
        let Some(instance) = self.instances.get_mut(&(shard, list)) else { return };
        let pairs: Vec<(KeyHash, RpcId)> = entries.iter().map(|entry| (entry.key, entry.rpc)).collect();
        let mut suspects = Vec::new();
        instance.witness.gc(&pairs, floor, &mut |_, body: &[u8]| suspects.push(Bytes(body.to_vec())));
        send(
            to,
            &Message::GcDone { shard, list, round, node: core.id().node, suspects },
            kasha_machine::Gate::Now,
            out,
        );
    }

    /// A new primary freezes an instance and takes what it holds (CURP's getRecoveryData).
    pub fn on_freeze(
        &mut self,
        core: &mut Core,
        to: Endpoint,
        (shard, list): (ShardId, ListVersion),
        epoch: Epoch,
        out: &mut Effects,
    ) {
        let (mut known, mut requests) = (false, Vec::new());
        if list != ListVersion::NONE && !self.instances.contains_key(&(shard, list)) {
            // It was never started here, or is lost. It must not be started later: a zombie's clients would record on it.
            self.start(core, shard, list, out);
            self.instances.get_mut(&(shard, list)).expect("just started").intact = false;
        }
        if let Some(instance) = self.instances.get_mut(&(shard, list)) {
            if !instance.witness.is_frozen() && !planted::is_on(Bug::FreezeIgnored) {
                instance.witness.freeze();
                core.replace(FileName::WitnessMode { shard, list }, &encode_mode(true, instance.boot), out);
            }
            known = instance.intact;
            instance.witness.requests(|_, body| requests.push(Bytes(body.to_vec())));
        }
        let message = Message::WitnessHolds { shard, list, epoch, node: core.id().node, known, requests };
        send(to, &message, core.durable_gate(), out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_round_trip() {
        let bytes = encode_mode(true, BootId(7));
        assert_eq!(decode_mode(&bytes), Some((true, BootId(7))));
        assert_eq!(decode_mode(&bytes[1..]), None);
        assert_eq!(decode_mode(b""), None);
    }
}
