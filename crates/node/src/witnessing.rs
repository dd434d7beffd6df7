//! The witness instances of this core: their files, and the messages that reach them (section 6; CURP 4.1).
//!
//! **What a recovery may conclude from a witness** (step 4, C3, R5.5). An instance is *sure* if it began empty when its
//! list came into force, and has lost nothing since. A new primary replays one sure instance, whichever answers first.
//! One that is not sure says why. After a loss of power under `replicated` it still holds all but the last moments, and
//! the fullest such one is taken when every witness of the list has answered and none is sure, and every member of the
//! set that last served has reported: what the witness lost may be in the log of the old primary, which the fence did not
//! wait for. One that is damaged or gone is never taken, and one that was never told of the list is asked again: without a
//! better answer the shard waits.
//!
//! Who may say "sure, and empty" is decided by the *ledger*, which names the newest list of each shard that was begun
//! here. It is fsynced after an instance's files are and before the instance accepts anything. So an instance that is
//! missing was never in service if the ledger does not name it, and is lost if it does; without a ledger, in a folder
//! that is not new, whatever is in force is taken for lost. A Recovering configuration begins nothing: its list is
//! about to be replayed, and a list that follows is a new one.

use std::collections::{BTreeMap, BTreeSet};

use kasha_machine::{Data, Disk, Effect, Effects, Endpoint, FileName, Gate};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{BootId, Epoch, Incarnation, KeyHash, ListVersion, LocalPosition, RpcId, ShardId};
use kasha_wire::codec::Bytes;
use kasha_wire::frame::Kind;
use kasha_wire::hot::{self, RequestView};
use kasha_wire::message::{FreezeWitness, Gc, GcDone, Holding, Report, WitnessHolds};
use kasha_wire::{Body, Configuration, Durability, Recorded, RecordedVerdict, ShardConfig, ShardPhase};
use kasha_witness::{Identity, Ledger, LoadError, Mode, Sizes, Why, Witness};

use crate::StartError;
use crate::core::Core;
use crate::core::send::send;

/// The witness of one version of a shard's witness list, and its files.
#[derive(Debug)]
pub(crate) struct Instance {
    pub witness: Witness,
    sure: bool,
    boot: BootId,
    /// The ledger names it: it may accept.
    in_service: bool,
}

impl Instance {
    fn mode(&self) -> Mode {
        Mode { frozen: self.witness.is_frozen(), sure: self.sure, boot: self.boot }
    }

    fn holding(&self, core: &Core) -> Holding {
        let power_lost = core.durability() == Durability::Replicated && self.boot != core.options.boot;
        match (self.sure, power_lost && !planted::is_on(Bug::WitnessBootIgnored)) {
            (false, _) => Holding::Damaged,
            (true, true) => Holding::PowerLost,
            (true, false) => Holding::Sure,
        }
    }
}

/// All instances of a core.
#[derive(Debug)]
pub(crate) struct Witnesses {
    pub instances: BTreeMap<(ShardId, ListVersion), Instance>,
    ledger: Ledger,
    /// The ledger names all that was ever begun. If not, the first configuration says what may have been.
    ledger_is_whole: bool,
    /// Instances that the ledger does not name yet, and the commit that holds their files.
    begun: Vec<(LocalPosition, ShardId, ListVersion)>,
}

fn sizes(core: &Core) -> Sizes {
    Sizes::new(core.options.witness_slots, core.options.witness_ways)
}

/// Whether this is the first process of its data folder.
fn is_first_start(incarnation: Incarnation) -> bool {
    incarnation.starts() == 1
}

/// The list is one that a recovery reads: not that of a shard which never served, as nobody used it.
fn is_in_force(config: &ShardConfig) -> bool {
    config.phase == ShardPhase::Serving || !config.recover_from.is_empty()
}

impl Witnesses {
    /// Reads the instances' files. One that is damaged is kept, frozen and not sure: it must not pass for an empty one.
    pub fn load(core: &mut Core, disk: &dyn Disk, out: &mut Effects) -> Result<Self, StartError> {
        let read = |file| disk.read(file).map_err(|error| StartError::Read(file, error));
        let (ledger, ledger_is_whole, is_new) = load_ledger(core, read(FileName::Core)?)?;
        let mut this = Self { instances: BTreeMap::new(), ledger, ledger_is_whole, begun: Vec::new() };
        let keys: BTreeSet<_> = (disk.list().into_iter())
            .filter_map(|file| match file {
                FileName::Witness { shard, list } | FileName::WitnessMode { shard, list } => Some((shard, list)),
                FileName::Segment { .. }
                | FileName::Replica(_)
                | FileName::Core
                | FileName::Told
                | FileName::Coordinator(_)
                | FileName::Journal(_) => None,
            })
            .collect();
        for (shard, list) in keys {
            let (file, mode_file) = (FileName::Witness { shard, list }, FileName::WitnessMode { shard, list });
            if this.ledger_is_whole && !this.ledger.may_name(shard, list) {
                // We died while it was being made, or before it accepted anything.
                hit(Probe::WitnessUnused);
                core.remove(file, out);
                core.remove(mode_file, out);
                continue;
            }
            let (mode, slots) = (read(mode_file)?, read(file)?.unwrap_or_default());
            let instance = load_instance(core, (shard, list), mode.as_deref(), &slots)?;
            this.instances.insert((shard, list), instance);
            this.ledger.enter(shard, list);
        }
        if is_new {
            core.replace(FileName::Core, &this.ledger.encode(), out);
        }
        Ok(this)
    }

    /// The newest list of each shard that was begun here.
    pub fn newest_lists(&self) -> impl Iterator<Item = (ShardId, ListVersion)> + '_ {
        self.ledger.newest()
    }

    /// The newest list of this shard that was begun here; 0: none.
    pub fn newest_list(&self, shard: ShardId) -> ListVersion {
        self.newest_lists().find(|&(named, _)| named == shard).map_or(ListVersion(0), |(_, list)| list)
    }

    /// The first configuration of this process. What is in force came before it, and may have been begun here.
    pub fn on_first_configuration(&mut self, core: &mut Core, configuration: &Configuration, out: &mut Effects) {
        if std::mem::replace(&mut self.ledger_is_whole, true) {
            return;
        }
        let ours = |config: &&ShardConfig| configuration.core_of(core.id().node, config.shard) == Some(core.id());
        for config in configuration.shards.iter().filter(ours).filter(|config| is_in_force(config)) {
            self.ledger.enter(config.shard, config.list);
        }
        core.replace(FileName::Core, &self.ledger.encode(), out);
    }

    /// A configuration names this core as a witness of a list.
    pub fn obey(&mut self, core: &mut Core, config: &ShardConfig, out: &mut Effects) {
        let (shard, list) = (config.shard, config.list);
        let is_read_first = config.phase == ShardPhase::Recovering && is_in_force(config);
        if is_read_first || self.instances.contains_key(&(shard, list)) || self.ledger.may_name(shard, list) {
            return; // repeated: clears nothing; or lost: nothing takes its place under this list
        }
        let witness = Witness::new(Identity { cluster: core.options.cluster, shard, list }, sizes(core));
        let file = FileName::Witness { shard, list };
        core.truncate(file, 0, out);
        core.write_span(file, 0, &witness.header_bytes(), out);
        core.truncate(file, witness.sizes().file_bytes(), out);
        let instance = Instance { witness, sure: true, boot: core.options.boot, in_service: false };
        core.replace(FileName::WitnessMode { shard, list }, &instance.mode().encode(), out);
        self.instances.insert((shard, list), instance);
        self.begun.push((core.commit_position(), shard, list));
    }

    /// Once a turn: puts instances whose files hold into the ledger, and then into service.
    pub fn enter_begun(&mut self, core: &mut Core, out: &mut Effects) {
        let durable = core.local_durable;
        let held = self.begun.iter().take_while(|(position, ..)| *position <= durable).count();
        for (_, shard, list) in self.begun.drain(..held) {
            self.ledger.enter(shard, list);
            if let Some(instance) = self.instances.get_mut(&(shard, list)) {
                instance.in_service = true; // every word that it gives waits for the commit of this turn
            }
        }
        if held > 0 {
            core.replace(FileName::Core, &self.ledger.encode(), out);
        }
    }

    /// A later list is committed: this one is of no use any more.
    pub fn end(&mut self, core: &mut Core, shard: ShardId, list: ListVersion, out: &mut Effects) {
        if let Some(instance) = self.instances.remove(&(shard, list)) {
            core.options.trash.throw(instance);
            core.remove(FileName::Witness { shard, list }, out);
            core.remove(FileName::WitnessMode { shard, list }, out);
        }
    }

    /// Lists in force of which this core is a witness and has lost its instance, for the coordinator.
    pub fn reports(&self, core: &Core, reports: &mut Vec<Report>) {
        let Some(configuration) = &core.configuration else { return };
        let (node, me) = (core.id().node, Some(core.id()));
        let ours =
            |config: &&ShardConfig| config.witnesses.contains(&node) && configuration.core_of(node, config.shard) == me;
        for config in configuration.shards.iter().filter(ours) {
            let (shard, list) = (config.shard, config.list);
            let lost = match self.instances.get(&(shard, list)) {
                Some(instance) => !instance.sure,
                None => self.ledger.may_name(shard, list),
            };
            if lost && config.phase == ShardPhase::Serving && !config.closing {
                reports.push(Report::WitnessLost { shard, list });
            }
        }
    }

    /// A client records an update (CURP's record RPC).
    pub fn on_record(&mut self, core: &mut Core, to: Endpoint, view: &RequestView<'_>, out: &mut Effects) {
        let Ok(body) = Body::decode(view.body) else { return };
        let mut hashes = std::mem::take(&mut core.scratch.hashes);
        body.footprint_at(view.envelope.shard, &mut hashes);
        if body.operation_key.is_some() && planted::is_on(Bug::OperationKeyNotRecorded) {
            hashes.pop();
        }
        let before = out.mark();
        let verdict = self.record(core, view, &body, &hashes, out);
        let wrote = out.mark() != before;
        core.scratch.hashes = hashes;
        let recorded = Recorded {
            rpc: body.head.rpc,
            shard: view.envelope.shard,
            list: view.envelope.list,
            attempt: view.envelope.attempt,
            node: core.id().node,
            verdict,
        };
        let mark = out.mark();
        hot::encode_small(Kind::Recorded, &recorded, out.arena());
        let head = out.span_from(mark);
        // Repeats included: the first one's write may still be under way (R5.3).
        let gate = match planted::is_on(Bug::DuplicateRecordEarly) && !wrote {
            true => Gate::Now,
            false => core.durable_gate(),
        };
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
        let Some(instance) = self.instances.get_mut(&(shard, list)).filter(|instance| instance.in_service) else {
            return RecordedVerdict::WrongList;
        };
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
    pub fn on_gc(&mut self, core: &mut Core, to: Endpoint, gc: &Gc, out: &mut Effects) {
        let &Gc { shard, list, round, floor, ref entries } = gc;
        let Some(instance) = self.instances.get_mut(&(shard, list)) else { return };
        let pairs: Vec<(KeyHash, RpcId)> = entries.iter().map(|entry| (entry.key, entry.rpc)).collect();
        let mut suspects = Vec::new();
        instance.witness.gc(&pairs, floor, &mut |_, body: &[u8]| suspects.push(Bytes(body.to_vec())));
        send(to, &GcDone { shard, list, round, node: core.id().node, suspects }, Gate::Now, out);
    }

    /// A new primary freezes an instance and takes what it holds (CURP's getRecoveryData).
    pub fn on_freeze(
        &mut self,
        core: &mut Core,
        to: Endpoint,
        &FreezeWitness { shard, list, epoch }: &FreezeWitness,
        out: &mut Effects,
    ) {
        let mut requests = Vec::new();
        let holding = match self.instances.get_mut(&(shard, list)) {
            Some(instance) => {
                if !instance.witness.is_frozen() && !planted::is_on(Bug::FreezeIgnored) {
                    instance.witness.freeze();
                    core.replace(FileName::WitnessMode { shard, list }, &instance.mode().encode(), out);
                }
                let holding = instance.holding(core);
                if holding != Holding::Damaged {
                    instance.witness.requests(|_, body| requests.push(Bytes(body.to_vec())));
                }
                holding
            }
            None => self.holding_of_missing(core, (shard, list), epoch),
        };
        match holding {
            Holding::Damaged => hit(Probe::WitnessDamaged),
            Holding::NeverHad => hit(Probe::WitnessNeverHad),
            Holding::Sure | Holding::PowerLost => {}
        }
        let message = WitnessHolds { shard, list, epoch, node: core.id().node, holding, requests };
        send(to, &message, core.durable_gate(), out);
    }

    /// What an instance that is not here is worth. Only the configuration that promoted the asker makes its absence
    /// final: nothing is begun under a list that is being recovered, nor under an earlier one.
    fn holding_of_missing(&self, core: &Core, (shard, list): (ShardId, ListVersion), epoch: Epoch) -> Holding {
        let configuration = core.configuration.as_deref();
        let node = core.id().node;
        let is_ours = |known: &&Configuration| known.core_of(node, shard) == Some(core.id());
        let config = configuration.filter(is_ours).and_then(|known| known.shard(shard));
        let is_asked = |config: &&ShardConfig| {
            let is_it = (config.epoch, config.list, config.phase) == (epoch, list, ShardPhase::Recovering);
            is_it && config.witnesses.contains(&node)
        };
        match config.filter(is_asked) {
            None => Holding::NeverHad,
            Some(_) if self.ledger.may_name(shard, list) => Holding::Damaged,
            Some(_) => Holding::Sure,
        }
    }
}

/// The ledger, whether it names all that was ever begun, and whether it is a new one.
fn load_ledger(core: &Core, bytes: Option<Vec<u8>>) -> Result<(Ledger, bool, bool), StartError> {
    let cores = u8::try_from(core.options.addresses.len()).expect("at most CORES_MAX");
    let empty = Ledger::new(core.options.cluster, cores);
    let Some(bytes) = bytes else {
        let is_new = is_first_start(core.options.incarnation);
        return Ok((empty, is_new, is_new));
    };
    match Ledger::decode(core.options.cluster, &bytes) {
        Ok(ledger) if ledger.cores() == cores => Ok((ledger, true, false)),
        Err(error @ (LoadError::OtherCluster(_) | LoadError::OtherFormat(_))) => Err(StartError::Witness(error)),
        Ok(_) | Err(_) => Ok((empty, false, false)),
    }
}

fn load_instance(
    core: &Core,
    (shard, list): (ShardId, ListVersion),
    mode: Option<&[u8]>,
    slots: &[u8],
) -> Result<Instance, StartError> {
    let identity = Identity { cluster: core.options.cluster, shard, list };
    let mode = match mode.map(Mode::decode) {
        Some(Ok(mode)) => mode,
        Some(Err(error @ LoadError::OtherFormat(_))) => return Err(StartError::Witness(error)),
        Some(Err(_)) | None => Mode { frozen: true, sure: false, boot: BootId(0) },
    };
    let frozen = mode.frozen && !planted::is_on(Bug::FrozenForgotten);
    let (witness, sure) = match Witness::load(identity, sizes(core), slots, frozen) {
        Ok(witness) => (witness, mode.sure),
        Err(error @ (LoadError::OtherCluster(_) | LoadError::OtherFormat(_))) => {
            return Err(StartError::Witness(error));
        }
        Err(_) => {
            let mut witness = Witness::new(identity, sizes(core));
            witness.freeze();
            (witness, false)
        }
    };
    Ok(Instance { witness, sure, boot: mode.boot, in_service: true })
}
