//! A primary's view of its replica set: up to where each member holds the log (R7.2), and what to send to each. The
//! positions are drawn in `progress`.
//!
//! One sync is in flight at a time. A *round* covers the log up to its end at the moment when the round began. A round
//! without new bytes is still sent to every member: their answers confirm that no member was fenced against us since
//! the round began (section 6, reads without a lease).

use std::collections::VecDeque;
use std::time::Duration;

use kasha_log::{Log, common_prefix};
use kasha_machine::{Effect, Effects, Endpoint, Gate};
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{
    AttachId, CoreId, Epoch, ListVersion, LogEnd, LogPosition, LogSlice, NodeId, Round, SegmentId, ShardId, Tick,
};
use kasha_wire::Message;
use kasha_wire::codec::Bytes;
use kasha_wire::hot::{AppendView, Appended};
use kasha_wire::message::{self, AttachAt};

use crate::peer::{Copying, Older};
use crate::progress::{MemberPositions, Progress};
use crate::{FenceReport, MemberCore, Peer, PeerState};

/// Names no segment: there is no more to copy.
pub const CLOSING_MARK: SegmentId = SegmentId(u32::MAX);

/// How fast members are sent what they lack.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Before anything is sent again: longer than a round trip and a group commit; a frame sent twice does no harm.
    pub retry: Duration,
    /// How long a recovery that can go on hears those out who are called alive and are silent: what they hold may be more than
    /// is known. As long as a busy disk takes; a node that is called lost is not waited for.
    pub hearing: Duration,
    /// How long bytes that nobody waits for may stay unsynced.
    pub sync_interval: Duration,
    /// Unsynced bytes that begin a round although nobody waits: about fifty small updates (CURP 5).
    pub sync_bytes: u64,
    /// Bytes of one append, unless a single group is longer: a piece that a receiver takes in one turn.
    pub append_bytes: u32,
    /// Bytes of one part of a copied segment; one is under way at a time, so that copying leaves room for the live tail. A part has
    /// more time than `retry` where parts take longer.
    pub copy_bytes: u32,
    /// No append begins so many bytes or more beyond what a member has acknowledged: a lagging one must not fill our memory.
    pub window_bytes: u64,
}

impl Default for Pace {
    /// The values that servers use.
    fn default() -> Self {
        Self {
            retry: Duration::from_millis(25),
            hearing: Duration::from_millis(250),
            sync_interval: Duration::from_millis(5),
            sync_bytes: 16 * 1024,
            append_bytes: 1024 * 1024,
            copy_bytes: 256 * 1024,
            window_bytes: 4 * 1024 * 1024,
        }
    }
}

/// What goes to all members at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Company {
    /// A round that began in the last `pump`.
    Now,
    /// The next one, which is near.
    Soon,
    /// Nothing that one should wait for.
    None,
}

/// The next round is near when this part of the bytes that begin one has gathered.
const COMPANY_PART: u64 = 4;

/// A primary's replica set.
#[derive(Clone, Debug)]
pub struct Shipping {
    shard: ShardId,
    epoch: Epoch,
    own: CoreId,
    pace: Pace,
    peers: Vec<Peer>,
    /// The last attempt to attach anybody.
    attaches: AttachId,
    progress: Progress,
    /// Every member of an earlier epoch's set has held the log up to here, and it was not cut off since.
    settled: LogEnd,
    /// With fewer peers than this nothing more counts as synced.
    fewest: usize,
    /// Whether the last round began in the last `pump`.
    round_is_new: bool,
    /// Whether somebody waits for a round that has not begun yet.
    confirm_wanted: bool,
    /// Up to where somebody waits for our own file to survive a loss of power.
    flush_wanted: LogEnd,
    /// Since when there are bytes that no round covers.
    unsynced_since: Option<Tick>,
}

impl Shipping {
    /// A primary that begins this epoch. `synced`: what its log is known to share with every member (the start if unknown).
    #[must_use]
    pub fn new(shard: ShardId, epoch: Epoch, own: CoreId, pace: Pace, synced: LogEnd) -> Self {
        Self {
            shard,
            epoch,
            own,
            pace,
            peers: Vec::new(),
            attaches: AttachId(0),
            progress: Progress::new(synced),
            settled: LogEnd::START,
            fewest: 0,
            round_is_new: false,
            confirm_wanted: false,
            flush_wanted: LogEnd::START,
            unsynced_since: None,
        }
    }

    /// Takes over the committed set (R7.2 \[M\]: nothing but a committed configuration calls this).
    pub fn set_members(&mut self, members: impl IntoIterator<Item = MemberCore>) {
        let mut peers = Vec::new();
        for member in members.into_iter().filter(|member| member.core != self.own) {
            // One that left and came back may have lost everything meanwhile: another member.
            let known = self.peers.iter().position(|peer| peer.core == member.core && peer.since == member.since);
            let mut peer = match known {
                Some(index) => self.peers.swap_remove(index),
                None => Peer::new(member, next_attach(&mut self.attaches)),
            };
            peer.joining = member.joining;
            if peer.incarnation < member.incarnation {
                // It may have lost power, and with it what it acknowledged: an idle shard would not notice (R5.5).
                hit(Probe::MemberRestarted);
                peer.incarnation = member.incarnation;
                peer.ask_again(next_attach(&mut self.attaches));
            }
            peers.push(peer);
        }
        self.peers = peers;
        self.advance();
    }

    /// From now on a sync needs this many peers (`min_backups`). A set that is reduced for a moment, before a joiner is found,
    /// must not let out answers of which there is one copy (D1).
    pub fn require_peers(&mut self, fewest: usize) {
        self.fewest = fewest;
    }

    /// The members other than the primary.
    #[must_use]
    pub fn peers(&self) -> &[Peer] {
        &self.peers
    }

    /// Every member of the committed set holds the log up to here.
    #[must_use]
    pub fn synced(&self) -> LogEnd {
        self.progress.synced()
    }

    /// The last round that is over: every member answered it, and holds the log to where it ended when the round began.
    #[must_use]
    pub fn confirmed(&self) -> Round {
        self.progress.confirmed()
    }

    /// Asks for a round that begins from now on; returns its number.
    pub fn want_confirmation(&mut self) -> Round {
        self.confirm_wanted = true;
        self.progress.round().next()
    }

    /// Whether a round is under way.
    #[must_use]
    pub fn is_in_flight(&self) -> bool {
        self.progress.target().is_some()
    }

    /// With what a message to a member that can wait a moment would leave. A packet of its own costs both ends a system
    /// call and a turn.
    #[must_use]
    pub fn company(&self, log_end: LogEnd) -> Company {
        match log_end.bytes_since(self.synced()) > self.pace.sync_bytes / COMPANY_PART {
            _ if self.round_is_new => Company::Now,
            true => Company::Soon,
            false => Company::None,
        }
    }

    /// Somebody waits until the log is synced up to here: the next round begins as soon as none is in flight.
    pub fn want_synced(&mut self, end: LogEnd) {
        self.progress.want(end);
    }

    /// Somebody waits until the log is synced up to here, and our own file survives a loss of power (R8.17).
    pub fn want_durable(&mut self, end: LogEnd) {
        self.want_synced(end);
        self.flush_wanted = self.flush_wanted.max(end);
    }

    /// Up to where our own file is to survive a loss of power.
    #[must_use]
    pub fn flush_wanted(&self) -> LogEnd {
        self.flush_wanted
    }

    /// Joiners whose copy is complete, for the coordinator (R7.2).
    pub fn copied(&self) -> impl Iterator<Item = NodeId> + '_ {
        let copied = move |peer: &&Peer| peer.joining && peer.is_copied() && peer.acknowledged() >= self.synced();
        self.peers.iter().filter(copied).map(|peer| peer.core.node)
    }

    /// Whether every member has all there is to copy.
    #[must_use]
    pub fn all_copied(&self) -> bool {
        self.peers.iter().all(Peer::is_copied)
    }

    /// The member, if it speaks of the attachment under way: what it said of an earlier one, with another log perhaps,
    /// may come as late as it likes.
    fn peer_mut(&mut self, node: NodeId, attach: AttachId) -> Option<&mut Peer> {
        self.peers.iter_mut().find(|peer| peer.core.node == node && peer.attach == attach)
    }

    fn advance(&mut self) {
        if self.peers.len() < self.fewest && !planted::is_on(Bug::TooFewMembersSync) {
            return hit(Probe::TooFewPeers);
        }
        let counted = self.peers.iter().filter(|peer| !(peer.joining && planted::is_on(Bug::JoinersUncounted)));
        let counted = counted.filter(|peer| !(peer.retries > 2 && planted::is_on(Bug::SilentMemberDropped)));
        let acked = counted.map(Peer::acknowledged);
        let least = if planted::is_on(Bug::SyncedAtAnyMember) { acked.max() } else { acked.min() };
        let answered = self.peers.iter().all(|peer| peer.positions.round_acked() >= self.progress.round());
        self.progress.advance(least.unwrap_or(LogEnd::MAX), answered);
    }

    /// The log is whole, and our epoch begins in it here. Members are told at once what earlier epochs are known to have
    /// `settled`: one that was away holds what was freed meanwhile, and needs that room for what it lacks, before anything is
    /// synced in this epoch.
    pub fn begin_epoch(&mut self, at: LogEnd, settled: LogEnd) {
        self.progress.begin_epoch(at);
        self.settled = settled.min(at);
    }

    /// Our own file holds the log up to here.
    pub fn on_own_durable(&mut self, end: LogEnd) {
        self.progress.hold(end);
        self.advance();
    }

    /// A member tells what it holds: find where its log joins ours, and attach it there.
    pub fn on_fence_report(&mut self, now: Tick, log: &Log, attach: AttachId, report: &FenceReport, out: &mut Effects) {
        let (shard, epoch, own) = (self.shard, self.epoch, self.own);
        let hold_from = self.progress.hold_from();
        let Some(peer) = self.peer_mut(report.node, attach).filter(|peer| peer.state == PeerState::Asking) else {
            return;
        };
        let start = join_point(log, report, hold_from);
        peer.older = match start {
            AttachAt::Keep(_) => Older::FollowsAt(log.end().offset),
            AttachAt::Join(base) => {
                hit(Probe::JoinedAtSegment);
                Older::Copying(Copying::of(older_segments(log, base)))
            }
        };
        peer.state = PeerState::Attaching(start);
        (peer.reported, peer.touched) = (report.end, Some(now));
        send_attach(peer, shard, epoch, own, start, log, out);
    }

    /// A member cut its log and is ready.
    pub fn on_attached(&mut self, now: Tick, node: NodeId, attach: AttachId) {
        let Some(peer) = self.peer_mut(node, attach) else { return };
        let PeerState::Attaching(AttachAt::Keep(end) | AttachAt::Join(end)) = peer.state else { return };
        peer.state = PeerState::Attached;
        (peer.positions, peer.touched) = (MemberPositions::joined(end), Some(now));
        self.advance();
    }

    /// A member says that what we sent does not fit what it holds.
    pub fn on_mismatch(&mut self, node: NodeId, attach: AttachId) {
        let next = self.attaches.next();
        if let Some(peer) = self.peer_mut(node, attach)
            && peer.state != PeerState::Asking
        {
            hit(Probe::MemberAskedAgain);
            peer.ask_again(next);
            self.attaches = next;
        }
    }

    /// A member holds the log up to somewhere.
    pub fn on_appended(&mut self, now: Tick, appended: &Appended) {
        if appended.epoch != self.epoch {
            return;
        }
        let peer = self.peer_mut(appended.node, appended.attach);
        let Some(peer) = peer.filter(|peer| peer.state == PeerState::Attached) else { return };
        if peer.positions.acknowledge(appended.end, appended.round) {
            (peer.touched, peer.retries) = (Some(now), 0);
        }
        self.advance();
    }

    /// A joiner holds a segment up to somewhere.
    pub fn on_segment_copied(
        &mut self,
        now: Tick,
        (node, attach): (NodeId, AttachId),
        (segment, offset): (SegmentId, u32),
        log: &Log,
    ) {
        let retry = self.pace.retry;
        let Some(peer) = self.peer_mut(node, attach) else { return };
        let Older::Copying(copying) = &mut peer.older else { return };
        match copying.segments.front() {
            None if segment == CLOSING_MARK => peer.older = Older::Complete,
            // It lacks one after all. One that was freed here is known to be freed there soon: the mark is not sent again at once.
            None if offset == 0 => {
                copying.segments.push_back(segment);
                if log.used_bytes(segment).is_some() {
                    copying.sent = None;
                }
            }
            None => {}
            // Less than before: it began anew, and wants the rest again.
            Some(&front) if front == segment && offset != copying.offset => {
                if offset < copying.offset {
                    hit(Probe::CopyBeganAnew);
                }
                copying.arrived(now, offset, retry);
                if log.used_bytes(front).is_none_or(|total| offset >= total) {
                    copying.segments.pop_front();
                    copying.offset = 0;
                }
            }
            Some(_) => {}
        }
    }

    /// The transport says that a member cannot be reached: what was sent may be lost.
    pub fn on_interrupted(&mut self, now: Tick, core: CoreId) {
        if let Some(peer) = self.peers.iter_mut().find(|peer| peer.core == core) {
            peer.touched = peer.touched.map(|_| Tick(0));
            if let Older::Copying(copying) = &mut peer.older {
                copying.doubt(now);
            }
        }
    }

    /// Whether a round begins now. At once when somebody waits for it; what nobody waits for is batched (CURP 4.4), so
    /// that it does not take processors and links from what somebody does wait for (pitfall 15 the other way round).
    fn is_round_due(&mut self, now: Tick, end: LogEnd) -> bool {
        let behind = self.peers.iter().any(|peer| peer.state == PeerState::Attached && peer.acknowledged() < end);
        if !behind && self.synced() >= end && !self.confirm_wanted {
            self.unsynced_since = None;
            return false;
        }
        let since = *self.unsynced_since.get_or_insert(now);
        self.confirm_wanted
            || self.progress.is_awaited(end)
            || end.bytes_since(self.synced()) >= self.pace.sync_bytes
            || now.since(since) >= self.pace.sync_interval
    }

    /// Sends what is due. One round is in flight at a time; no timer ever holds back one that somebody waits for.
    pub fn pump(&mut self, now: Tick, log: &Log, out: &mut Effects) {
        let end = log.end().offset;
        self.round_is_new = !self.is_in_flight() && self.is_round_due(now, end);
        if self.round_is_new {
            self.progress.begin_round(end);
            (self.confirm_wanted, self.unsynced_since) = (false, None);
            self.assert_invariants(end);
        }
        let (shard, epoch, own, pace) = (self.shard, self.epoch, self.own, self.pace);
        let (round, target) = (self.progress.round(), self.progress.target());
        let synced = self.synced().max(self.settled);
        let Self { peers, attaches, .. } = self;
        for peer in peers {
            let overdue = peer.touched.is_none_or(|touched| now.since(touched) >= peer.patience(pace.retry));
            match peer.state {
                PeerState::Asking if overdue => {
                    peer.touched = Some(now);
                    // What served before matters to an election only.
                    let (served, list) = (None, ListVersion::NONE);
                    let attach = peer.attach;
                    send(peer.core, &message::Fence { shard, epoch, primary: own, attach, served, list }, out);
                }
                PeerState::Attaching(start) if overdue => {
                    peer.touched = Some(now);
                    send_attach(peer, shard, epoch, own, start, log, out);
                }
                PeerState::Asking | PeerState::Attaching(_) => {}
                PeerState::Attached => {
                    if peer.positions.owes() && overdue {
                        if !log.is_boundary(peer.acknowledged()) {
                            peer.ask_again(next_attach(attaches)); // it holds no such log
                            continue;
                        }
                        peer.positions.send_again();
                        (peer.touched, peer.retries) = (Some(now), peer.retries + 1);
                    }
                    if let Some(target) = target {
                        let head = AppendView {
                            shard,
                            epoch,
                            attach: peer.attach,
                            from: LogEnd::START,
                            synced,
                            round,
                            bytes: &[],
                        };
                        if ship(now, peer, pace, head, target, log, out) == Shipped::LacksWhatWasFreed {
                            peer.ask_again(next_attach(attaches));
                            continue;
                        }
                    }
                    // A joiner learns from our head's digest what it lacks.
                    if peer.positions.has_taken() {
                        copy(now, peer, (shard, epoch), pace, log, out);
                    }
                }
            }
        }
        self.advance();
    }

    /// The order of the positions, as `progress` draws it, for a log that ends at `end`. Checked once a round.
    ///
    /// # Panics
    /// If it does not hold.
    pub fn assert_invariants(&self, end: LogEnd) {
        self.progress.assert_invariants(end);
        for peer in &self.peers {
            peer.positions.assert_invariants(self.progress.round(), end);
        }
    }

    /// When [`Shipping::pump`] has something to send again.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Tick> {
        let due = |peer: &Peer| {
            let retry = self.pace.retry;
            let copying = match &peer.older {
                Older::Copying(copying) => copying.due(retry),
                Older::FollowsAt(_) | Older::Complete => None,
            };
            let waits = peer.state != PeerState::Attached || peer.positions.owes();
            let since = waits.then(|| peer.touched.unwrap_or(Tick(0)));
            let again = since.map(|since| since.after(peer.patience(retry)));
            [again, copying].into_iter().flatten().min()
        };
        let batch = match self.progress.target() {
            None => self.unsynced_since.map(|since| since.after(self.pace.sync_interval)),
            Some(_) => None,
        };
        self.peers.iter().filter_map(due).chain(batch).min()
    }
}

fn next_attach(attaches: &mut AttachId) -> AttachId {
    *attaches = attaches.next();
    *attaches
}

/// Where a member's log joins ours: at their common prefix, if we still hold everything behind it; else at the base of a
/// segment, and older ones are copied. A joiner counts for syncs as if it held all below that base; so whatever this
/// epoch wrote and has not synced yet must lie above it.
fn join_point(log: &Log, report: &FenceReport, hold_from: LogEnd) -> AttachAt {
    let theirs: Vec<_> = report.history.iter().map(|start| (start.epoch, start.offset)).collect();
    let end = log.end().offset;
    let prefix = match planted::is_on(Bug::PredecessorUnchecked) {
        true => end.min(report.end.offset),
        false => common_prefix(log.epoch_history(), end, &theirs, report.end.offset),
    };
    let head = log.segments().map(|(id, _)| id).max().unwrap_or_default();
    let unbroken = (log.segment_behind(prefix).0..=head.0).all(|id| log.used_bytes(SegmentId(id)).is_some());
    if report.complete && prefix > LogEnd::START && unbroken && log.is_boundary(prefix) {
        AttachAt::Keep(prefix)
    } else {
        AttachAt::Join(log.end_before(log.segment_behind(hold_from).min(head)))
    }
}

fn older_segments(log: &Log, base: LogEnd) -> VecDeque<SegmentId> {
    let is_older = |&id: &SegmentId| log.end_before(id) < base && !planted::is_on(Bug::JoinerElected);
    log.segments().map(|(id, _)| id).filter(is_older).collect()
}

fn send(core: CoreId, message: &impl Message, out: &mut Effects) {
    let mark = out.mark();
    message.encode(out.arena());
    let head = out.span_from(mark);
    out.push(Effect::Send { to: Endpoint::Core(core), head, tail: None, gate: Gate::Now });
}

fn send_attach(peer: &Peer, shard: ShardId, epoch: Epoch, own: CoreId, start: AttachAt, log: &Log, out: &mut Effects) {
    let must_hold = log.end().offset;
    send(
        peer.core,
        &message::Attach {
            shard,
            epoch,
            primary: own,
            attach: peer.attach,
            since: peer.since,
            expected: peer.reported,
            must_hold,
            start,
        },
        out,
    );
}

#[derive(PartialEq, Eq)]
enum Shipped {
    Done,
    /// Part of what follows its end was freed meanwhile.
    LacksWhatWasFreed,
}

fn ship(
    now: Tick,
    peer: &mut Peer,
    pace: Pace,
    head: AppendView<'_>,
    target: LogEnd,
    log: &Log,
    out: &mut Effects,
) -> Shipped {
    let mut pieces = log.pieces(peer.positions.sent(), target, pace.append_bytes).peekable();
    // With nothing on the way the window begins where the next piece does: what lies between was left unused or freed, and
    // may be more than a window.
    let next = pieces.peek().filter(|_| !peer.positions.lags()).map_or(peer.acknowledged(), |next| next.start());
    let core = peer.core;
    let idle = !peer.positions.owes();
    let mut push = |from: LogEnd, tail: Option<LogSlice>| {
        let mark = out.mark();
        AppendView { from, ..head }.encode(tail.map_or(&[][..], |slice| log.slice(slice)), out.arena());
        let head = out.span_from(mark);
        out.push(Effect::Send { to: Endpoint::Core(core), head, tail, gate: Gate::Now });
    };
    let mut sent_any = false;
    // Where the window ends no group need end: whole pieces go until one is beyond it.
    for slice in pieces.take_while(|slice| slice.start().bytes_since(next) < pace.window_bytes) {
        let last_sent = peer.positions.sent().last_byte().unwrap_or(0);
        if log.segment_at(slice.offset).0 > log.segment_at(last_sent).0 + 1 {
            return Shipped::LacksWhatWasFreed;
        }
        push(slice.start(), Some(slice));
        peer.positions.send_to(slice.end());
        sent_any = true;
    }
    if !sent_any && peer.positions.round_sent() < head.round {
        push(peer.positions.sent(), None);
        sent_any = true;
    }
    if sent_any {
        peer.positions.send_round(head.round);
        if idle {
            peer.touched = Some(now);
        }
    }
    Shipped::Done
}

fn copy(now: Tick, peer: &mut Peer, (shard, epoch): (ShardId, Epoch), pace: Pace, log: &Log, out: &mut Effects) {
    let attach = peer.attach;
    let Older::Copying(copying) = &mut peer.older else { return };
    if copying.due(pace.retry).is_some_and(|due| now < due) {
        return;
    }
    // Freed meanwhile: the joiner learns of it from the tail.
    while copying.segments.front().is_some_and(|&front| log.used_bytes(front).is_none()) {
        hit(Probe::FreedWhileCopied);
        copying.segments.pop_front();
        (copying.offset, copying.sent) = (0, None);
    }
    copying.send(now);
    let message = match copying.segments.front() {
        Some(&segment) => {
            let total = log.used_bytes(segment).expect("just seen");
            let len = pace.copy_bytes.min(total - copying.offset);
            let from = log.segment_base(segment) + u64::from(copying.offset);
            let bytes = Bytes(log.bytes(from, len).to_vec());
            message::CopySegment { shard, epoch, attach, segment, total, offset: copying.offset, bytes }
        }
        None => {
            let segment = CLOSING_MARK;
            message::CopySegment { shard, epoch, attach, segment, total: 0, offset: 0, bytes: Bytes(Vec::new()) }
        }
    };
    send(peer.core, &message, out);
}

/// A log's epoch history as positions, for the wire.
#[must_use]
pub fn history_of(log: &Log) -> Vec<LogPosition> {
    log.epoch_history().iter().map(|&(epoch, offset)| LogPosition { epoch, offset }).collect()
}
