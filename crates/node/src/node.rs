//! Dispatch, turns and heartbeats of one core.

use std::collections::BTreeMap;

use kasha_machine::{Askers, Disk, Effect, Effects, Endpoint, FileName, Gate, Input, Machine};
use kasha_replication::FenceReport;
use kasha_types::planted::{self, Bug};
use kasha_types::{BootId, ConfigVersion, LogSlice, SegmentId, ShardId, Tick, limits};
use kasha_wire::frame::Kind;
use kasha_wire::hot::{self, AppendView, Appended, ReadView, RequestView, SyncRequest, Synced};
use kasha_wire::message::{Heartbeat, Message, Report};
use kasha_wire::{Refusal, Refused};

use crate::core::{Core, send};
use crate::ending::Ending;
use crate::links::Links;
use crate::reads::refuse_read;
use crate::replica::{Replica, Role};
use crate::request_path::{Caller, Wish, refuse_undecoded};
use crate::witness_replay::WitnessAnswer;
use crate::witnessing::Witnesses;
use crate::{NodeOptions, StartError};

/// One core: see the crate's documentation.
#[derive(Debug)]
pub struct Node {
    pub(crate) core: Core,
    pub(crate) replicas: BTreeMap<ShardId, Replica>,
    pub(crate) witnesses: Witnesses,
    pub(crate) next_heartbeat: Tick,
    next_flush: Tick,
    pub(crate) links: Links,
    /// When the newest heartbeat was sent that the coordinator answered.
    answered: Tick,
    /// What the last heartbeat asked the coordinator to commit.
    reported: Vec<Report>,
    /// Clients that wait for the next configuration.
    pub(crate) askers: Askers,
    /// The process was asked to stop, and is at its last turns.
    pub(crate) ending: Option<Ending>,
    /// The first input of a turn has come: what the last turn's effects named may be buried.
    turn_open: bool,
}

impl Node {
    /// Starts a core from its files. It serves nothing until the coordinator promotes it in this incarnation (R7.1).
    ///
    /// # Errors
    /// If the files are another cluster's or version's, or cannot be read. Damaged files are no error: what they held
    /// does not count until it is copied again (R5.5).
    pub fn start(options: NodeOptions, disk: &dyn Disk, now: Tick, out: &mut Effects) -> Result<Self, StartError> {
        assert!(options.segment_bytes <= limits::SEGMENT_BYTES, "a whole segment must fit a frame");
        assert!(options.witness_slots as usize <= limits::WITNESS_SLOTS, "all a witness holds must fit a frame");
        assert_ne!(options.boot, BootId::ENDED, "the marks of an orderly end are no boot's");
        out.push(Effect::Route { to: Endpoint::Coordinator, address: options.coordinator });
        let mut core = Core::new(options);
        let mut files: BTreeMap<ShardId, Vec<SegmentId>> = BTreeMap::new();
        for file in disk.list() {
            match file {
                FileName::Segment { shard, segment } => files.entry(shard).or_default().push(segment),
                FileName::Replica(shard) => {
                    files.entry(shard).or_default();
                }
                FileName::Witness { .. } | FileName::WitnessMode { .. } | FileName::Core | FileName::Coordinator(_) => {
                }
            }
        }
        let mut replicas = BTreeMap::new();
        for (shard, segments) in files {
            replicas.insert(shard, Replica::load(&core.options, shard, segments, disk, out)?);
        }
        let witnesses = Witnesses::load(&mut core, disk, out)?;
        Ok(Self {
            core,
            replicas,
            witnesses,
            next_heartbeat: now,
            next_flush: now,
            links: Links::new(now),
            answered: now,
            reported: Vec::new(),
            askers: Askers::default(),
            ending: None,
            turn_open: false,
        })
    }

    /// The operator asks this process to stop (R7.7): answers of its primaries wait for their sync from now on, and the
    /// coordinator is asked to empty their witness lists, so that whoever serves next needs no witness.
    pub fn begin_stop(&mut self) {
        self.core.stopping = true;
        let Some(configuration) = self.core.configuration.clone() else { return };
        for replica in self.replicas.values_mut() {
            if let Some(config) = configuration.shard(replica.shard) {
                replica.begin_stop(&self.core, config);
            }
        }
    }

    /// Whether every primary of this core has synced what it answered, and its witness list is empty.
    #[must_use]
    pub fn has_stopped(&self) -> bool {
        let serving = self.replicas.values().filter_map(Replica::primary).filter_map(crate::primary::Primary::serving);
        serving.into_iter().all(|serving| serving.is_stopping() && serving.has_empty_list())
    }

    fn on_frame(&mut self, now: Tick, from: Endpoint, kind: u8, payload: &[u8], out: &mut Effects) {
        let Some(kind) = Kind::from_number(kind) else { return out.push(Effect::Disconnect(from)) };
        let understood = match kind {
            Kind::Request | Kind::Cancel => self.on_request(from, kind, payload, out),
            Kind::Record => RequestView::decode(payload)
                .map(|view| self.witnesses.on_record(&mut self.core, from, &view, out))
                .is_ok(),
            Kind::Read => self.on_read(now, from, payload, out),
            Kind::Sync => self.on_sync(from, payload, out),
            Kind::Append => self.on_append(from, payload, out),
            Kind::Appended => match hot::decode_small::<Appended>(payload) {
                Ok(appended) => {
                    if let Some(primary) = self.replicas.get_mut(&appended.shard).and_then(Replica::primary_mut) {
                        primary.shipping.on_appended(now, &appended);
                    }
                    true
                }
                Err(_) => false,
            },
            Kind::Message => match Message::decode(payload) {
                Ok(message) => self.on_message(now, from, message, out),
                Err(_) => false,
            },
            Kind::Answer | Kind::Refuse | Kind::Recorded | Kind::Synced | Kind::ReadAnswer | Kind::ReadRefuse => true,
        };
        if !understood {
            let reason = "a message that this version does not understand: run the same version on both sides (K0206)";
            send(from, &Message::Goodbye { reason: reason.to_string() }, Gate::Now, out);
            out.push(Effect::Disconnect(from));
        }
    }

    fn on_request(&mut self, from: Endpoint, kind: Kind, payload: &[u8], out: &mut Effects) -> bool {
        let Ok(view) = RequestView::decode(payload) else { return false };
        let wish = if kind == Kind::Cancel { Wish::Cancel } else { Wish::Run };
        let caller = Caller { to: from, envelope: view.envelope, wish };
        match self.replicas.get_mut(&view.envelope.shard) {
            Some(replica) => replica.on_request(&mut self.core, caller, view.body, out),
            None => refuse_undecoded(&caller, view.body, view.envelope.epoch, Refusal::NotPrimary, out),
        }
        true
    }

    fn on_read(&mut self, now: Tick, from: Endpoint, payload: &[u8], out: &mut Effects) -> bool {
        let Ok(view) = ReadView::decode(payload) else { return false };
        match self.replicas.get_mut(&view.envelope.shard) {
            Some(replica) => replica.on_read(&mut self.core, now, from, &view, out),
            None => refuse_read(from, &view, view.envelope.epoch, Refusal::NotPrimary, out),
        }
        true
    }

    /// R2.1 \[M\]: refused in another epoch; else gated on that record's position.
    fn on_sync(&mut self, to: Endpoint, payload: &[u8], out: &mut Effects) -> bool {
        let Ok(SyncRequest { shard, epoch, rpc, attempt }) = hot::decode_small(payload) else { return false };
        let position = self.replicas.get(&shard).and_then(|replica| replica.position_of(rpc, epoch));
        if let (Some(position), Some(primary)) = (position, self.primary_of(shard, epoch)) {
            primary.shipping.want_synced(position.offset);
        }
        let mark = out.mark();
        let gate = match position {
            Some(position) => {
                hot::encode_small(Kind::Synced, &Synced { rpc, epoch, attempt }, out.arena());
                Gate::Synced { shard, position }
            }
            None => {
                let refused = Refused { rpc, attempt, epoch, why: Refusal::NotPrimary };
                hot::encode_small(Kind::Refuse, &refused, out.arena());
                Gate::Now
            }
        };
        let head = out.span_from(mark);
        out.push(Effect::Send { to, head, tail: None, gate });
        true
    }

    fn on_append(&mut self, from: Endpoint, payload: &[u8], out: &mut Effects) -> bool {
        let Ok(append) = AppendView::decode(payload) else { return false };
        match self.replicas.get_mut(&append.shard) {
            Some(replica) => replica.on_append(&mut self.core, from, &append, out),
            None => {
                let message = Message::Mismatch {
                    shard: append.shard,
                    epoch: append.epoch,
                    node: self.core.id().node,
                    attach: append.attach,
                };
                send(from, &message, Gate::Now, out);
            }
        }
        true
    }

    /// Everything that is not hot. False: nobody sends this to a node.
    fn on_message(&mut self, now: Tick, from: Endpoint, message: Message, out: &mut Effects) -> bool {
        match message {
            // The coordinator's word is the coordinator's only: time and terms that a stranger makes up could not be
            // taken back (F2).
            Message::ConfigurationIs { .. } | Message::HeartbeatAnswer { .. } | Message::LeaseVerdict { .. }
                if from != Endpoint::Coordinator =>
            {
                return false;
            }
            Message::ConfigurationIs { configuration } => self.on_configuration(now, configuration, out),
            Message::GetConfiguration { have } => self.tell_configuration(from, have, out),
            Message::GetStatus { id } => {
                send(from, &Message::StatusIs { id, status: self.status(now) }, Gate::Now, out);
            }
            Message::HeartbeatAnswer { sent, lease_millis, cluster_time, clients_below } => {
                self.core.learn_cluster_time(cluster_time);
                self.core.clients_below = self.core.clients_below.max(clients_below);
                self.answered = self.answered.max(sent.min(now));
                if lease_millis > 0 && sent <= now {
                    let from = if planted::is_on(Bug::LeaseFromReply) { now } else { sent };
                    let until = from.after(std::time::Duration::from_millis(lease_millis));
                    self.core.lease_until = self.core.lease_until.max(until);
                }
            }
            Message::LeaseVerdict { cluster_time, expired, alive } => {
                self.core.learn_cluster_time(cluster_time);
                for replica in self.replicas.values_mut() {
                    replica.on_lease_verdict(&expired, &alive);
                }
            }
            Message::FreezeWitness { shard, epoch, .. } if !self.core.may_obey(shard, epoch) => {}
            Message::FreezeWitness { shard, list, epoch } => {
                self.witnesses.on_freeze(&mut self.core, from, (shard, list), epoch, out);
            }
            Message::Gc { shard, list, round, floor, entries } => {
                self.witnesses.on_gc(&mut self.core, from, (shard, list, round), floor, &entries, out);
            }
            Message::Ping { sent } => {
                send(from, &Message::Pong { sent, node: self.core.id().node }, Gate::Now, out);
            }
            Message::Pong { sent, node } => {
                if self.links.on_pong(&self.core, now, node, sent) {
                    self.on_interrupted(from);
                }
            }
            Message::Goodbye { .. } | Message::Welcome { .. } => {}
            message => return self.on_shard_message(now, from, message, out),
        }
        true
    }

    /// Messages between the members of a replica set.
    fn on_shard_message(&mut self, now: Tick, from: Endpoint, message: Message, out: &mut Effects) -> bool {
        let core = &mut self.core;
        match message {
            // Who knows of a later term obeys no earlier one; who knows nothing cannot tell what a loss of power means
            // (R5.5). Both are asked again.
            Message::Fence { shard, epoch, .. } | Message::Attach { shard, epoch, .. }
                if !core.may_obey(shard, epoch) => {}
            Message::Fence { shard, epoch, primary, attach, served, list } => {
                let replica = self.replicas.entry(shard).or_insert_with(|| Replica::fresh(&core.options, shard));
                replica.on_fence(core, from, (epoch, primary, attach), (served, list), out);
            }
            Message::Attach { shard, epoch, primary, attach, since, expected, must_hold, start } => {
                let replica = self.replicas.entry(shard).or_insert_with(|| Replica::fresh(&core.options, shard));
                let order = crate::backup::AttachOrder { epoch, primary, attach, since, expected, must_hold, start };
                replica.on_attach(core, from, order, out);
            }
            Message::FenceReport { shard, epoch, node, attach, exists, end, history, intact, complete, whole } => {
                let report = FenceReport { node, end, history, intact, complete, whole };
                if let Some(replica) = self.replicas.get_mut(&shard) {
                    replica.on_fence_report(now, (epoch, attach), exists, &report, out);
                }
            }
            Message::Attached { shard, epoch, node, attach } => {
                if let Some(primary) = self.primary_of(shard, epoch) {
                    primary.shipping.on_attached(now, node, attach);
                }
            }
            Message::Mismatch { shard, epoch, node, attach } => {
                if let Some(primary) = self.primary_of(shard, epoch) {
                    primary.shipping.on_mismatch(node, attach);
                }
            }
            Message::CopySegment { shard, epoch, attach, segment, total, offset, bytes } => {
                if let Some(replica) = self.replicas.get_mut(&shard) {
                    replica.on_copy_segment(core, from, (epoch, attach), (segment, total, offset), &bytes.0, out);
                }
            }
            Message::SegmentCopied { shard, epoch, node, attach, segment, offset } => {
                if let Some(Replica { log, role: Role::Primary(primary), .. }) = self.replicas.get_mut(&shard)
                    && primary.epoch == epoch
                {
                    primary.shipping.on_segment_copied(node, attach, segment, offset, log);
                }
            }
            Message::FetchLog { shard, epoch, from: offset } => {
                if let Some(replica) = self.replicas.get_mut(&shard) {
                    replica.on_fetch_log(from, epoch, offset, out);
                }
            }
            Message::LogPiece { shard, epoch, from: offset, bytes } => {
                if let Some(replica) = self.replicas.get_mut(&shard) {
                    replica.on_log_piece(core, epoch, offset, &bytes.0, out);
                }
            }
            Message::WitnessHolds { shard, list, epoch, node, holding, requests } => {
                if let Some(replica) = self.replicas.get_mut(&shard) {
                    replica.on_witness_holds(core, epoch, list, WitnessAnswer { node, holding, requests }, out);
                }
            }
            Message::GcDone { shard, list, round, node, suspects } => {
                if let Some(replica) = self.replicas.get_mut(&shard) {
                    replica.on_gc_done(core, node, list, round, &suspects);
                }
            }
            _ => return false,
        }
        true
    }

    fn primary_of(&mut self, shard: ShardId, epoch: kasha_types::Epoch) -> Option<&mut crate::primary::Primary> {
        self.replicas.get_mut(&shard).and_then(Replica::primary_mut).filter(|primary| primary.epoch == epoch)
    }

    /// What was sent there may be lost: members are asked again without waiting for their turn.
    fn on_interrupted(&mut self, end: Endpoint) {
        let Endpoint::Core(core) = end else { return };
        for primary in self.replicas.values_mut().filter_map(Replica::primary_mut) {
            primary.shipping.on_interrupted(core);
        }
    }

    /// Tells the configuration, or, if the asker has it, the next one as soon as it is here.
    fn tell_configuration(&mut self, to: Endpoint, have: ConfigVersion, out: &mut Effects) {
        if let Some(configuration) = self.core.configuration.as_ref().filter(|known| known.version > have) {
            let configuration = (**configuration).clone();
            send(to, &Message::ConfigurationIs { configuration }, Gate::Now, out);
        } else if let Endpoint::Conn(conn) = to {
            self.askers.wait(conn, have);
        }
    }

    /// Tells some of those who wait for it.
    fn tell_askers(&mut self, out: &mut Effects) {
        let Some(configuration) = self.core.configuration.as_ref().filter(|_| self.askers.is_telling()) else { return };
        let version = configuration.version;
        let mark = out.mark();
        Message::ConfigurationIs { configuration: (**configuration).clone() }.encode(out.arena());
        let head = out.span_from(mark);
        for conn in self.askers.take(version, head.len as usize) {
            out.push(Effect::Send { to: Endpoint::Conn(conn), head, tail: None, gate: Gate::Now });
        }
    }

    fn heartbeat(&mut self, now: Tick, out: &mut Effects) {
        // A disk that hangs, and does not fail, stops every answer of ours: others must take over.
        if self.core.disk_hangs(now, self.core.options.patience) {
            self.next_heartbeat = now.after(self.core.options.heartbeat);
            return;
        }
        self.links.look(&self.core, now, &self.replicas, out);
        let mut reports = self.links.reports().to_vec();
        self.witnesses.reports(&self.core, &mut reports);
        for replica in self.replicas.values() {
            if let Some(primary) = replica.primary() {
                primary.reports(replica.shard, &mut reports);
            }
        }
        let news = reports.iter().any(|report| !self.reported.contains(report));
        if now < self.next_heartbeat && !news {
            return;
        }
        self.next_heartbeat = now.after(self.core.options.heartbeat);
        let options = &self.core.options;
        let heartbeat = Heartbeat {
            core: options.core,
            incarnation: options.incarnation,
            boot: options.boot,
            sent: now,
            answered: self.answered,
            have: self.core.configuration.as_ref().map_or(ConfigVersion(0), |known| known.version),
            cluster_time: self.core.cluster_time,
            addresses: options.addresses.clone(),
            heard: self.links.heard(&self.core, now),
            reports: reports.clone(),
        };
        self.reported = reports;
        // Nobody makes us a witness before our first file says that we never were one.
        let gate = if self.core.configuration.is_none() { self.core.durable_gate() } else { Gate::Now };
        send(Endpoint::Coordinator, &Message::Heartbeat { heartbeat }, gate, out);
    }
}

impl Machine for Node {
    fn step(&mut self, now: Tick, input: Input<'_>, out: &mut Effects) {
        if !std::mem::replace(&mut self.turn_open, true) {
            for replica in self.replicas.values_mut() {
                replica.log.bury();
            }
        }
        match input {
            Input::Frame { .. } | Input::Unreachable(_) if self.ending.is_some() => {}
            Input::Frame { from, kind, payload } => self.on_frame(now, from, kind, payload, out),
            Input::Unreachable(end) => self.on_interrupted(end),
            Input::Durable(to) => {
                self.core.local_durable = self.core.local_durable.max(to);
                for replica in self.replicas.values_mut() {
                    replica.on_durable(to);
                }
            }
            Input::Closed(conn) => self.askers.forget(conn),
            Input::Tick => {}
        }
    }

    fn end_turn(&mut self, now: Tick, out: &mut Effects) {
        if let Some(ending) = self.ending {
            self.turn_open = false;
            return self.advance_end(ending, out);
        }
        for replica in self.replicas.values_mut() {
            replica.remove_freed_files(&mut self.core, out);
            replica.end_follower_turn(&mut self.core, out);
            replica.replay_slice(&mut self.core);
            replica.clean(out);
            replica.advance_term(&mut self.core, now, out);
            replica.serve_turn(&mut self.core, now, out);
            replica.note_acknowledged(&mut self.core, out);
        }
        self.witnesses.enter_begun(&mut self.core, out);
        self.tell_askers(out);
        self.heartbeat(now, out);
        let flush_due = now >= self.next_flush && self.core.unflushed;
        if flush_due && self.replicas.values().any(Replica::has_freed_files) {
            self.core.fsync_all();
        }
        if let Some(commit) = self.core.end_turn(out) {
            self.replicas.values_mut().for_each(|replica| replica.fsync_covers_freed(commit));
        }
        if flush_due {
            self.witnesses.tidy_files(out);
            out.push(Effect::Flush);
            self.core.unflushed = false;
            self.next_flush = now.after(self.core.options.flush_interval);
        }
        self.turn_open = false;
    }

    fn next_deadline(&self) -> Option<Tick> {
        if let Some(ending) = self.ending {
            return matches!(ending, Ending::Begun).then_some(Tick(0));
        }
        let flush = self.core.unflushed.then_some(self.next_flush);
        let replicas = self.replicas.values().filter_map(|replica| replica.next_deadline(&self.core));
        let told = self.askers.is_telling().then_some(Tick(0));
        replicas.chain(flush).chain(told).chain([self.next_heartbeat, self.links.next_deadline()]).min()
    }

    fn is_open(&self, gate: Gate) -> bool {
        match gate {
            Gate::Now => true,
            Gate::Durable(position) | Gate::DurableAs { position, .. } => position <= self.core.local_durable,
            Gate::Synced { shard, position } => self
                .replicas
                .get(&shard)
                .and_then(Replica::synced)
                .filter(|synced| synced.epoch == position.epoch || planted::is_on(Bug::HeldEffectsKept))
                .is_some_and(|synced| synced.offset >= position.offset),
            Gate::Confirmed { shard, round } => {
                let primary = self.replicas.get(&shard).and_then(Replica::primary);
                primary.is_some_and(|primary| primary.shipping.confirmed() >= round)
            }
        }
    }

    fn log_bytes(&self, slice: LogSlice) -> &[u8] {
        self.replicas.get(&slice.shard).expect("an effect names a replica of this core").log.slice(slice)
    }

    fn assert_invariants(&self) {
        for replica in self.replicas.values() {
            replica.assert_invariants();
        }
        for instance in self.witnesses.instances.values() {
            instance.witness.assert_invariants();
        }
    }
}
