//! Witness keeps (section 6, C2, R5.5; pitfall 10): a witness keeps what it has accepted until a primary names it in a
//! gc. After it has handed its requests to a recovery it accepts nothing more.
//!
//! It is read from the witness's file by the documented layout, where each slot is a block. A block with an accepted
//! request must not be overwritten or emptied before a gc has named the request. Requests that are handed to a recovery
//! are complete, and are all that the file has.

use std::collections::{BTreeMap, BTreeSet};

use kasha_machine::FileName;
use kasha_types::{BodyHash, ClientId, ListVersion, RpcId, Sequence, ShardId, body_hash};
use kasha_wire::message::{Gc, Holding, WitnessHolds};
use kasha_wire::{Body, Recorded, RecordedVerdict, frame::Kind, hot};

use crate::checkers::records::word;
use crate::disk::Content;
use crate::network::ProcessId;
use crate::probes::Probes;
use crate::world::{Sent, View, Watch};

const BLOCK: u64 = 4096;
const SLOT_HEADER: usize = 64;
const BODY_MAX: usize = 2048;
const HELD: u8 = 1;

/// The instance of a list at a core.
type Instance = (ProcessId, ShardId, ListVersion);

/// The content of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    rpc: RpcId,
    key_index: u8,
    keys: u8,
    /// A hash of the whole content, its body too.
    bytes: BodyHash,
}

fn slot_in(block: &[u8]) -> Option<Slot> {
    let (client, sequence) = (word(block, 24)?, word(block, 32)?);
    let rpc = RpcId { client: ClientId(client), sequence: Sequence(sequence) };
    let end = SLOT_HEADER + usize::from(u16::from_le_bytes([block[8], block[9]]));
    let bytes = body_hash(&block[..end.min(block.len())]);
    (block[4] == HELD).then_some(Slot { rpc, key_index: block[5], keys: block[6], bytes })
}

/// Watches witness files, and what witnesses send.
#[derive(Debug, Default)]
pub struct WitnessKeeps {
    slots: BTreeMap<Instance, BTreeMap<u64, Slot>>,
    /// Requests that were accepted and that no gc has named.
    owed: BTreeMap<Instance, BTreeSet<RpcId>>,
    named: BTreeSet<(ShardId, RpcId)>,
    handed_out: BTreeSet<Instance>,
    /// Requests that a loss of power has torn. They are emptied at the next start, and a witness that lost one must not
    /// call itself sure.
    torn: BTreeSet<(Instance, RpcId)>,
    violations: Vec<String>,
    kept: u64,
}

impl WitnessKeeps {
    fn on_recorded(&mut self, by: ProcessId, recorded: &Recorded) {
        let instance = (by, recorded.shard, recorded.list);
        let is_it = |slot: &Slot| slot.rpc == recorded.rpc;
        if !self.slots.get(&instance).is_some_and(|slots| slots.values().any(is_it)) {
            return;
        }
        if self.handed_out.contains(&instance) {
            let (rpc, list) = (recorded.rpc, recorded.list);
            self.violations.push(format!(
                "witness_keeps: {rpc} was accepted under {list} after a recovery had read it (CURP 4.6, C2)"
            ));
        }
        if !self.named.contains(&(instance.1, recorded.rpc)) {
            self.owed.entry(instance).or_default().insert(recorded.rpc);
        }
    }

    fn on_named(&mut self, shard: ShardId, rpc: RpcId) {
        self.named.insert((shard, rpc));
        for (_, owed) in self.owed.iter_mut().filter(|((_, of, _), _)| *of == shard) {
            owed.remove(&rpc);
        }
    }

    /// A block of an instance's file now has this content.
    fn on_block(&mut self, instance: Instance, block: u64, now: Option<Slot>) {
        let slots = self.slots.entry(instance).or_default();
        let before = match now {
            Some(slot) => slots.insert(block, slot),
            None => slots.remove(&block),
        };
        let gone = before.map(|slot| slot.rpc).filter(|&rpc| now.is_none_or(|slot| slot.rpc != rpc));
        let is_owed = |rpc: &RpcId| self.owed.get(&instance).is_some_and(|owed| owed.contains(rpc));
        let Some(rpc) = gone.filter(is_owed).filter(|&rpc| !self.torn.contains(&(instance, rpc))) else { return };
        let (process, shard, list) = instance;
        let what = now.map_or("emptied".to_owned(), |slot| format!("overwritten by {}", slot.rpc));
        self.violations.push(format!(
            "witness_keeps: {process:?} {shard} {list} accepted {rpc}, and no gc has named it, but its slot was {what} \
             (section 6)"
        ));
    }

    fn on_handed_out(&mut self, instance: Instance, requests: &BTreeSet<RpcId>) {
        self.handed_out.insert(instance);
        if !self.slots.contains_key(&instance) {
            return; // it accepted nothing, or its list is over by now
        }
        let (process, shard, list) = instance;
        let owed = self.owed.get(&instance).into_iter().flatten();
        self.kept += owed.clone().count() as u64;
        if let Some(rpc) = owed.clone().find(|rpc| !requests.contains(rpc)) {
            self.violations.push(format!(
                "witness_keeps: {process:?} {shard} {list} accepted {rpc}, and no gc has named it, but it was not handed \
                 out to a recovery (section 7, step 4)"
            ));
        }
        let slots: Vec<Slot> = self.slots.get(&instance).into_iter().flat_map(BTreeMap::values).copied().collect();
        let is_whole = |rpc: RpcId| {
            let own = || slots.iter().filter(move |slot| slot.rpc == rpc);
            own().any(|slot| (0..slot.keys).all(|index| own().any(|other| other.key_index == index)))
        };
        let partly = requests.iter().find(|&&rpc| !self.named.contains(&(shard, rpc)) && !is_whole(rpc));
        if let Some(rpc) = partly {
            self.violations.push(format!(
                "witness_keeps: {process:?} {shard} {list} handed out {rpc}, of which its file lacks a slot (R5.5)"
            ));
        }
    }
}

/// The requests of `before` that are gone or changed now: a body can be torn while its header is whole.
fn lost<'a>(before: &'a BTreeMap<u64, Slot>, now: &'a BTreeMap<u64, Slot>) -> impl Iterator<Item = RpcId> + 'a {
    before.iter().filter(|&(block, slot)| now.get(block) != Some(slot)).map(|(_, slot)| slot.rpc)
}

/// Every block of a witness file.
fn blocks(content: &Content) -> BTreeMap<u64, Slot> {
    let count = content.len() / BLOCK;
    (1..count)
        .filter_map(|block| Some((block, slot_in(&content.read(block * BLOCK, SLOT_HEADER + BODY_MAX))?)))
        .collect()
}

impl Watch for WitnessKeeps {
    fn sent(&mut self, sent: &Sent<'_>, _view: &View<'_>) {
        if sent.kind == Kind::Recorded as u8
            && let Ok(recorded) = hot::decode_small::<Recorded>(sent.payload)
            && recorded.verdict == RecordedVerdict::Accepted
        {
            self.on_recorded(sent.from, &recorded);
        }
        if let Some(Gc { shard, entries, .. }) = sent.message() {
            entries.iter().for_each(|entry| self.on_named(shard, entry.rpc));
        }
        if let Some(WitnessHolds { shard, list, holding: Holding::Sure, requests, .. }) = sent.message() {
            let rpcs = requests.iter().filter_map(|body| Some(Body::decode(&body.0).ok()?.head.rpc)).collect();
            self.on_handed_out((sent.from, shard, list), &rpcs);
        }
    }

    fn wrote(&mut self, by: ProcessId, file: FileName, offset: u64, len: usize, view: &View<'_>) {
        let FileName::Witness { shard, list } = file else { return };
        let instance = (by, shard, list);
        match view.processes[by.0].disk.cached(file) {
            // The list of this instance is over.
            None => {
                self.slots.remove(&instance);
                self.owed.remove(&instance);
            }
            Some(content) if len > 0 && offset >= BLOCK => {
                self.on_block(instance, offset / BLOCK, slot_in(&content.read(offset, SLOT_HEADER + BODY_MAX)));
            }
            Some(_) => {}
        }
    }

    fn started(&mut self, process: ProcessId, view: &View<'_>) {
        let before: BTreeMap<_, _> = self.slots.extract_if(.., |(of, _, _), _| *of == process).collect();
        for (file, content) in view.processes[process.0].disk.files() {
            let FileName::Witness { shard, list } = file else { continue };
            self.slots.insert((process, shard, list), blocks(content));
        }
        for (&instance, owed) in self.owed.iter().filter(|((of, _, _), _)| *of == process) {
            let slots = |of: &BTreeMap<Instance, BTreeMap<u64, Slot>>| of.get(&instance).cloned().unwrap_or_default();
            let (before, now) = (slots(&before), slots(&self.slots));
            self.torn.extend(lost(&before, &now).filter(|rpc| owed.contains(rpc)).map(|rpc| (instance, rpc)));
        }
    }

    fn take_violations(&mut self) -> Vec<String> {
        std::mem::take(&mut self.violations)
    }

    fn report(&self, probes: &mut Probes) {
        probes.add("claims checked: kept by a witness", self.kept);
    }

    fn as_any(&mut self) -> &mut dyn std::any::Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkers::records::tests::{RPC, SHARD};

    const INSTANCE: Instance = (ProcessId(1), SHARD, ListVersion(1));
    const OTHER: RpcId = RpcId { sequence: Sequence(77), ..RPC };

    fn one_of(rpc: RpcId, key_index: u8, keys: u8) -> Option<Slot> {
        Some(Slot { rpc, key_index, keys, bytes: body_hash(&[]) })
    }

    fn with_one() -> WitnessKeeps {
        let mut watch = WitnessKeeps::default();
        watch.on_block(INSTANCE, 3, one_of(RPC, 0, 1));
        let node = kasha_types::NodeId(1);
        let (list, verdict) = (ListVersion(1), RecordedVerdict::Accepted);
        watch.on_recorded(ProcessId(1), &Recorded { rpc: RPC, shard: SHARD, list, attempt: 1, node, verdict });
        watch
    }

    #[test]
    fn a_slot_is_free_when_a_gc_has_named_it() {
        let mut watch = with_one();
        watch.on_block(INSTANCE, 3, one_of(OTHER, 0, 1));
        assert_eq!(watch.take_violations().len(), 1);
        let mut watch = with_one();
        watch.on_block(INSTANCE, 3, None);
        assert_eq!(watch.take_violations().len(), 1);
        let mut watch = with_one();
        watch.on_named(SHARD, RPC);
        watch.on_block(INSTANCE, 3, one_of(OTHER, 0, 1));
        assert_eq!(watch.take_violations(), Vec::<String>::new());
    }

    #[test]
    fn what_a_loss_of_power_tore_is_lost_though_its_header_is_whole() {
        let whole = one_of(RPC, 0, 1).expect("a slot");
        let torn = Slot { bytes: body_hash(b"torn"), ..whole };
        let of = |slot: Slot| BTreeMap::from([(3, slot)]);
        assert_eq!(lost(&of(whole), &of(torn)).collect::<Vec<_>>(), [RPC]);
        assert_eq!(lost(&of(whole), &BTreeMap::new()).collect::<Vec<_>>(), [RPC]);
        assert_eq!(lost(&of(whole), &of(whole)).count(), 0);
    }

    #[test]
    fn all_that_is_owed_is_handed_out_and_whole() {
        let mut watch = with_one();
        watch.on_handed_out(INSTANCE, &BTreeSet::from([RPC]));
        assert_eq!(watch.take_violations(), Vec::<String>::new());
        watch.on_handed_out(INSTANCE, &BTreeSet::new());
        assert_eq!(watch.take_violations().len(), 1);
        watch.on_block(INSTANCE, 4, one_of(OTHER, 1, 2));
        watch.on_handed_out(INSTANCE, &BTreeSet::from([RPC, OTHER]));
        assert_eq!(watch.take_violations().len(), 1, "its first key's slot is not there");
    }
}
