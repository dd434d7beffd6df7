//! Hands each frame that arrives to the replica, witness or part of the core that it concerns.
//!
//! A request, a read or a message of a shard goes to the replica or witness of that shard. A message to a primary also
//! names an epoch, and reaches only the primary of that term. Where there is no such replica, clients are refused, and
//! messages of other nodes are ignored. Bytes that cannot be decoded end the connection (K0206).
//!
//! Two checks that concern every receiver are made here: orders are taken from the coordinator alone, and nothing is
//! done for a primary of an earlier epoch than the committed configuration names (**F2**). The receivers check the
//! rest: attachments, lists, promises.

use kasha_machine::{Effect, Effects, Endpoint, Gate};
use kasha_types::planted::{self, Bug};
use kasha_types::{ClusterTime, Epoch, ShardId, Tick};
use kasha_wire::frame::Kind;
use kasha_wire::hot::{self, AppendView, Appended, ReadView, RequestView, SyncRequest, Synced};
use kasha_wire::link::{Orders, ToMember, ToNode, ToPrimary, ToWitness};
use kasha_wire::message::{
    Attach, Attached, ConfigurationIs, Fence, FetchLog, GetConfiguration, GetStatus, Goodbye, HeartbeatAnswer,
    LeaseVerdict, LogPiece, Mismatch, NotLeader, Ping, Pong, SegmentCopied, StatusIs, Words,
};
use kasha_wire::{Message, Refusal, Refused};

use crate::backup;
use crate::backup::orders;
use crate::core::send::send;
use crate::node::Node;
use crate::primary::Primary;
use crate::request::reads::refuse_read;
use crate::request::{Caller, Wish, refuse_undecoded};
use crate::shard::site::Site;
use crate::shard::{Replica, Role};

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

    #[inline(always)] // the only caller is a step, and most steps are a frame
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
            Kind::Message => ToNode::decode(payload).is_ok_and(|message| self.on_message(now, from, message, out)),
            Kind::Answer | Kind::Refuse | Kind::Recorded | Kind::Synced | Kind::ReadAnswer | Kind::ReadRefuse => true,
        };
        if !understood {
            let reason = "a message that this version does not understand: run the same version on both sides (K0206)";
            send(from, &Goodbye { reason: reason.to_string() }, Gate::Now, out);
            out.push(Effect::Disconnect(from));
        }
    }

    fn on_request(&mut self, from: Endpoint, kind: Kind, payload: &[u8], out: &mut Effects) -> bool {
        let Ok(view) = RequestView::decode(payload) else { return false };
        let wish = if kind == Kind::Cancel { Wish::Cancel } else { Wish::Run };
        let caller = Caller { to: from, envelope: view.envelope, wish, gave_way: false };
        self.core.told_time.check(from, view.envelope.cluster_time, out);
        match self.replicas.get_mut(&view.envelope.shard) {
            Some(replica) => replica.on_request(&mut self.core, caller, view.body, out),
            None => refuse_undecoded(&caller, view.body, view.envelope.epoch, Refusal::NotPrimary, out),
        }
        true
    }

    fn on_read(&mut self, now: Tick, from: Endpoint, payload: &[u8], out: &mut Effects) -> bool {
        let Ok(view) = ReadView::decode(payload) else { return false };
        self.core.told_time.check(from, view.envelope.cluster_time, out);
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
                let refused = Refused { rpc, attempt, epoch, shard, why: Refusal::NotPrimary };
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
                let message = Mismatch {
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

    /// Everything that is not hot. False: this sender must not send it.
    fn on_message(&mut self, now: Tick, from: Endpoint, message: ToNode, out: &mut Effects) -> bool {
        match message {
            ToNode::Orders(Orders::ConfigurationIs(ConfigurationIs { configuration, .. }))
                if matches!(from, Endpoint::Core(_)) =>
            {
                self.hear_of_coordinator(&configuration, out);
            }
            // A node that was asked for the configuration, and knows none itself: the asker knows as much.
            ToNode::NotLeader(_) if matches!(from, Endpoint::Core(_)) => {}
            // Time and terms that a stranger makes up could not be taken back (F2).
            ToNode::Orders(_) | ToNode::NotLeader(_) if !self.core.coordinator.is_leader(from) => return false,
            ToNode::Orders(order) => self.on_order(now, from, order, out),
            ToNode::NotLeader(NotLeader { view, leader, group }) => {
                let group = group.into_iter().map(|of| (of.member, of.address));
                self.core.coordinator.redirect(view, leader, group, out);
            }
            ToNode::GetConfiguration(GetConfiguration { have }) => self.tell_configuration(from, have, out),
            ToNode::GetStatus(GetStatus { id }) => {
                send(from, &StatusIs { id, status: self.status(now) }, Gate::Now, out);
            }
            ToNode::Ping(Ping { sent }) => {
                send(from, &Pong { sent, node: self.core.id().node }, Gate::Now, out);
            }
            ToNode::Pong(Pong { sent, node }) => {
                if self.links.on_pong(&self.core, now, node, sent) {
                    self.on_interrupted(now, from);
                }
            }
            ToNode::ToMember(message) => self.on_message_to_member(from, message, out),
            ToNode::ToWitness(message) => self.on_message_to_witness(from, message, out),
            ToNode::ToPrimary(message) => self.on_message_to_primary(now, message, out),
            ToNode::Welcome(_) | ToNode::Goodbye(_) => {}
        }
        true
    }

    fn on_order(&mut self, now: Tick, from: Endpoint, order: Orders, out: &mut Effects) {
        match order {
            Orders::ConfigurationIs(ConfigurationIs { configuration, level, unix_origin }) => {
                self.core.level = self.core.level.max(level);
                self.on_configuration(now, configuration, unix_origin.get().copied().flatten(), out);
            }
            // What a leader that stood still has left in buffers does not count any more.
            Orders::HeartbeatAnswer(HeartbeatAnswer { view, .. }) | Orders::LeaseVerdict(LeaseVerdict { view, .. })
                if !self.core.coordinator.obeys(from, view) => {}
            Orders::HeartbeatAnswer(HeartbeatAnswer { sent, lease_millis, cluster_time, clients_below, .. }) => {
                self.core.learn_cluster_time(cluster_time);
                // A coordinator that only listens tells no time (R9.13): that is no bound of it.
                if sent <= now && cluster_time > ClusterTime(0) {
                    self.core.told_time.heard(cluster_time, sent, now);
                    self.core.counted.heard((cluster_time, lease_millis), sent, now);
                }
                self.core.clients_below = self.core.clients_below.max(clients_below);
                self.core.note_time_and_clients(out);
                self.answered = self.answered.max(sent.min(now));
                if lease_millis > 0 && sent <= now {
                    self.beat_often_enough(lease_millis);
                    let from = if planted::is_on(Bug::LeaseFromReply) { now } else { sent };
                    let until = from.after(std::time::Duration::from_millis(lease_millis));
                    self.core.lease_until = self.core.lease_until.max(until);
                }
            }
            Orders::LeaseVerdict(LeaseVerdict { cluster_time, expired, alive, .. }) => {
                self.core.learn_cluster_time(cluster_time);
                for replica in self.replicas.values_mut() {
                    replica.on_lease_verdict(&mut self.core, &expired, &alive, out);
                }
            }
        }
    }

    fn on_message_to_member(&mut self, from: Endpoint, message: ToMember, out: &mut Effects) {
        let core = &mut self.core;
        match message {
            // Who knows of a later term obeys no earlier one; who knows nothing cannot tell what a loss of power means
            // (R5.5). Both are asked again.
            ToMember::Fence(Fence { shard, epoch, .. }) | ToMember::Attach(Attach { shard, epoch, .. })
                if !core.may_obey(shard, epoch) => {}
            ToMember::Fence(fence) => {
                let fresh = || Replica::fresh(&core.options, fence.shard);
                orders::on_fence(self.replicas.entry(fence.shard).or_insert_with(fresh), core, from, &fence, out);
            }
            ToMember::Attach(order) => {
                let fresh = || Replica::fresh(&core.options, order.shard);
                orders::on_attach(self.replicas.entry(order.shard).or_insert_with(fresh), core, from, &order, out);
            }
            ToMember::CopySegment(part) => {
                if let Some((mut site, Role::Backup(backup))) = self.parts(part.shard) {
                    backup.on_copy_segment(&mut site, from, &part, out);
                }
            }
            ToMember::FetchLog(FetchLog { shard, epoch, from: offset }) => {
                if let Some((site, Role::Idle | Role::Backup(_))) = self.parts(shard) {
                    backup::on_fetch_log(site.copy, from, epoch, offset, out);
                }
            }
        }
    }

    fn on_message_to_witness(&mut self, from: Endpoint, message: ToWitness, out: &mut Effects) {
        match message {
            ToWitness::FreezeWitness(freeze) if !self.core.may_obey(freeze.shard, freeze.epoch) => {}
            ToWitness::FreezeWitness(freeze) => self.witnesses.on_freeze(&mut self.core, from, &freeze, out),
            ToWitness::Gc(gc) => self.witnesses.on_gc(&mut self.core, from, &gc, out),
        }
    }

    fn on_message_to_primary(&mut self, now: Tick, message: ToPrimary, out: &mut Effects) {
        match message {
            ToPrimary::FenceReport(report) => {
                if let Some((mut site, primary)) = self.primary_of(report.shard, report.epoch) {
                    primary.on_fence_report(&mut site, now, report, out);
                }
            }
            ToPrimary::Attached(Attached { shard, epoch, node, attach }) => {
                if let Some((_, primary)) = self.primary_of(shard, epoch) {
                    primary.term.shipping.on_attached(now, node, attach);
                }
            }
            ToPrimary::Mismatch(Mismatch { shard, epoch, node, attach }) => {
                if let Some((_, primary)) = self.primary_of(shard, epoch) {
                    primary.term.shipping.on_mismatch(node, attach);
                }
            }
            ToPrimary::SegmentCopied(SegmentCopied { shard, epoch, node, attach, segment, offset }) => {
                if let Some((site, primary)) = self.primary_of(shard, epoch) {
                    primary.term.shipping.on_segment_copied(now, (node, attach), (segment, offset), &site.copy.log);
                }
            }
            ToPrimary::LogPiece(LogPiece { shard, epoch, from, bytes }) => {
                if let Some((mut site, primary)) = self.primary_of(shard, epoch) {
                    primary.on_log_piece(&mut site, from, &bytes.0, out);
                }
            }
            ToPrimary::WitnessHolds(answer) => {
                if let Some((mut site, primary)) = self.primary_of(answer.shard, answer.epoch) {
                    primary.on_witness_holds(&mut site, answer, out);
                }
            }
            ToPrimary::Words(words) => self.on_words(now, words),
            ToPrimary::GcDone(done) => {
                if let Some((mut site, role)) = self.parts(done.shard)
                    && let Ok((term, serving)) = role.serving()
                {
                    serving.on_gc_done(term, &mut site, &done);
                }
            }
        }
    }

    fn on_words(&mut self, now: Tick, words: Words) {
        if let Some((mut site, role)) = self.parts(words.to)
            && let Ok((term, serving)) = role.serving()
        {
            serving.on_words(term, &mut site, now, words);
        }
    }

    /// Primaries of this core hear one another within the turn; each answer is a turn of its own.
    pub(crate) fn hear_own_words(&mut self, now: Tick, out: &mut Effects) {
        for words in std::mem::take(&mut self.core.words) {
            let to = words.to;
            self.on_words(now, words);
            if let Some(replica) = self.replicas.get_mut(&to) {
                replica.end_turn(&mut self.core, now, out);
            }
        }
    }

    /// What was sent there may be lost: members are asked again without waiting for their turn.
    pub(crate) fn on_interrupted(&mut self, now: Tick, end: Endpoint) {
        let Endpoint::Core(core) = end else { return };
        for primary in self.replicas.values_mut().filter_map(|replica| replica.role.primary_mut()) {
            primary.term.shipping.on_interrupted(now, core);
        }
    }
}
