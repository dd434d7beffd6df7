//! What comes from outside, and whom it concerns.

use kasha_machine::{Effect, Effects, Endpoint, Gate};
use kasha_replication::FenceReport;
use kasha_types::planted::{self, Bug};
use kasha_types::{Epoch, ShardId, Tick};
use kasha_wire::frame::Kind;
use kasha_wire::hot::{self, AppendView, Appended, ReadView, RequestView, SyncRequest, Synced};
use kasha_wire::message::Message;
use kasha_wire::{Refusal, Refused};

use crate::backup::{self, AttachOrder};
use crate::core::send;
use crate::node::Node;
use crate::primary::Primary;
use crate::primary::witnesses::WitnessAnswer;
use crate::reads::refuse_read;
use crate::replica::{Replica, Role, Site};
use crate::request_path::{Caller, Wish, refuse_undecoded};

impl Node {
    fn parts(&mut self, shard: ShardId) -> Option<(Site<'_>, &mut Role)> {
        Some(self.replicas.get_mut(&shard)?.parts(&mut self.core))
    }

    fn primary_mut(&mut self, shard: ShardId) -> Option<&mut Primary> {
        self.replicas.get_mut(&shard)?.role.primary_mut()
    }

    /// The primary of a shard, if its term is this one, and what it works on.
    fn primary_of(&mut self, shard: ShardId, epoch: Epoch) -> Option<(Site<'_>, &mut Primary)> {
        let (site, role) = self.parts(shard)?;
        Some((site, role.primary_mut().filter(|primary| primary.term.epoch == epoch)?))
    }

    pub(crate) fn on_frame(&mut self, now: Tick, from: Endpoint, kind: u8, payload: &[u8], out: &mut Effects) {
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
                    if let Some(primary) = self.primary_mut(appended.shard) {
                        primary.term.shipping.on_appended(now, &appended);
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
        let position = self.replicas.get_mut(&shard).and_then(|replica| replica.on_sync(rpc, epoch));
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
                backup::on_fence(replica, core, from, (epoch, primary, attach), (served, list), out);
            }
            Message::Attach { shard, epoch, primary, attach, since, expected, must_hold, start } => {
                let replica = self.replicas.entry(shard).or_insert_with(|| Replica::fresh(&core.options, shard));
                let order = AttachOrder { epoch, primary, attach, since, expected, must_hold, start };
                backup::on_attach(replica, core, from, &order, out);
            }
            Message::FenceReport { shard, epoch, node, attach, exists, end, history, intact, complete, whole } => {
                let report = FenceReport { node, end, history, intact, complete, whole };
                if let Some((mut site, primary)) = self.primary_of(shard, epoch) {
                    primary.on_fence_report(&mut site, now, attach, exists, report, out);
                }
            }
            Message::Attached { shard, epoch, node, attach } => {
                if let Some((_, primary)) = self.primary_of(shard, epoch) {
                    primary.term.shipping.on_attached(now, node, attach);
                }
            }
            Message::Mismatch { shard, epoch, node, attach } => {
                if let Some((_, primary)) = self.primary_of(shard, epoch) {
                    primary.term.shipping.on_mismatch(node, attach);
                }
            }
            Message::CopySegment { shard, epoch, attach, segment, total, offset, bytes } => {
                if let Some((mut site, Role::Backup(backup))) = self.parts(shard) {
                    let part = (segment, total, offset);
                    backup.on_copy_segment(&mut site, from, (epoch, attach), part, &bytes.0, out);
                }
            }
            Message::SegmentCopied { shard, epoch, node, attach, segment, offset } => {
                if let Some((site, primary)) = self.primary_of(shard, epoch) {
                    primary.term.shipping.on_segment_copied(node, attach, segment, offset, &site.copy.log);
                }
            }
            Message::FetchLog { shard, epoch, from: offset } => {
                if let Some((site, Role::Idle | Role::Backup(_))) = self.parts(shard) {
                    backup::on_fetch_log(site.copy, from, epoch, offset, out);
                }
            }
            Message::LogPiece { shard, epoch, from: offset, bytes } => {
                if let Some((mut site, primary)) = self.primary_of(shard, epoch) {
                    primary.on_log_piece(&mut site, offset, &bytes.0, out);
                }
            }
            Message::WitnessHolds { shard, list, epoch, node, holding, requests } => {
                if let Some((mut site, primary)) = self.primary_of(shard, epoch) {
                    primary.on_witness_holds(&mut site, list, WitnessAnswer { node, holding, requests }, out);
                }
            }
            Message::GcDone { shard, list, round, node, suspects } => {
                if let Some((mut site, role)) = self.parts(shard)
                    && let Ok((term, serving)) = role.serving()
                {
                    serving.on_gc_done(term, &mut site, (list, round), node, &suspects);
                }
            }
            _ => return false,
        }
        true
    }

    /// What was sent there may be lost: members are asked again without waiting for their turn.
    pub(crate) fn on_interrupted(&mut self, end: Endpoint) {
        let Endpoint::Core(core) = end else { return };
        for primary in self.replicas.values_mut().filter_map(|replica| replica.role.primary_mut()) {
            primary.term.shipping.on_interrupted(core);
        }
    }
}
