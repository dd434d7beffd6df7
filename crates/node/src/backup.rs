//! The other end of replication: a member that follows a primary (sections 5 and 7).

use kasha_log::{AppendError, Screen};
use kasha_machine::{Effect, Effects, Endpoint, FileName, Gate};
use kasha_replication::CLOSING_MARK;
use kasha_types::planted::{self, Bug};
use kasha_types::probe::{Probe, hit};
use kasha_types::{AttachId, ConfigVersion, CoreId, Epoch, ListVersion, LogPosition, SegmentId, Work};
use kasha_wire::Served;
use kasha_wire::frame::Kind;
use kasha_wire::hot::{self, AppendView, Appended};
use kasha_wire::message::{AttachAt, Message};

use crate::core::{Core, send};
use crate::replica::{Replica, Role};

/// Bytes of a log piece that is handed to a new primary: a whole segment, so that a sealed one comes in one piece.
const PIECE_BYTES_MAX: u32 = u32::MAX;
/// "From the base of your head segment."
pub(crate) const FETCH_FROM_HEAD: u64 = u64::MAX;

/// No log of the smallest segments is longer: an offset beyond is a mistake or an attack.
pub(crate) const LOG_BYTES_MAX: u64 = 1 << 43;

/// What a primary tells a member to do (see [`Message::Attach`]).
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttachOrder {
    pub epoch: Epoch,
    pub primary: CoreId,
    pub attach: AttachId,
    pub since: ConfigVersion,
    pub expected: LogPosition,
    pub must_hold: u64,
    pub start: AttachAt,
}

/// Following a primary.
#[derive(Debug)]
pub(crate) struct Backup {
    pub epoch: Epoch,
    pub primary: CoreId,
    /// The attachment in which our log joined the primary's; `None`: not yet, nothing may be appended.
    pub attached: Option<AttachId>,
    /// The configuration that made us a member, as the primary knows.
    since: ConfigVersion,
    /// At least this much must be held before what was lost counts as copied again.
    must_hold: u64,
    /// The round of the last append of this turn: one ack answers them all.
    answer_due: Option<u64>,
    /// An older segment that is being copied to us.
    copy: Option<(SegmentId, Vec<u8>)>,
}

/// What is taken from a peer that speaks in this epoch.
pub(crate) fn screen(epoch: Epoch) -> Screen {
    Screen { epoch_max: epoch, is_sound: crate::state::is_sound }
}

impl Replica {
    /// Whether a configuration that does not name us is from before the primary attached us as a member.
    pub fn was_attached_after(&self, version: ConfigVersion) -> bool {
        matches!(&self.role, Role::Backup(backup) if backup.attached.is_some() && backup.since > version)
    }

    /// A primary of this epoch speaks: obey it from now on, unless we promised a later one. False: do not.
    fn follow(&mut self, core: &mut Core, epoch: Epoch, primary: CoreId, out: &mut Effects) -> bool {
        if epoch < self.meta.promised && !planted::is_on(Bug::EpochUnfenced) {
            return false;
        }
        match &self.role {
            Role::Primary(primary) if primary.epoch >= epoch => return false,
            Role::Backup(backup) if backup.epoch == epoch => return backup.primary == primary,
            Role::Primary(_) | Role::Backup(_) | Role::Idle => {}
        }
        if epoch > self.meta.promised || !self.exists {
            self.promise(core, epoch, out);
        }
        self.lose_role(out);
        self.role = Role::Backup(Backup {
            epoch,
            primary,
            attached: None,
            since: ConfigVersion(0),
            must_hold: u64::MAX,
            answer_due: None,
            copy: None,
        });
        true
    }

    /// Step 2: promise the epoch, and report what we hold.
    pub fn on_fence(
        &mut self,
        core: &mut Core,
        from: Endpoint,
        (epoch, primary, attach): (Epoch, CoreId, AttachId),
        (served, list): (Option<Served>, ListVersion),
        out: &mut Effects,
    ) {
        let existed = self.exists;
        if !self.follow(core, epoch, primary, out) {
            return;
        }
        let report = self.fence_report(core.id().node, served, list);
        let message = Message::FenceReport {
            shard: self.shard,
            epoch,
            node: report.node,
            attach,
            exists: existed,
            end: report.end,
            history: report.history,
            intact: existed && report.intact,
            complete: existed && report.complete,
            whole: existed && report.whole,
        };
        send(from, &message, core.durable_gate_as(self.shard), out);
    }

    /// The primary says where our log joins its own.
    pub fn on_attach(
        &mut self,
        core: &mut Core,
        from: Endpoint,
        AttachOrder { epoch, primary, attach, since, expected, must_hold, start }: AttachOrder,
        out: &mut Effects,
    ) {
        let (AttachAt::Keep(offset) | AttachAt::Join(offset)) = start;
        let aligned = offset.is_multiple_of(u64::from(core.options.segment_bytes)) && offset <= LOG_BYTES_MAX;
        if matches!(start, AttachAt::Join(_)) && !aligned {
            return; // no segment begins there
        }
        if !self.follow(core, epoch, primary, out) {
            return;
        }
        let Role::Backup(backup) = &self.role else { return };
        match backup.attached {
            // An old message must not cut what was acknowledged since.
            Some(attached) if attach < attached => return hit(Probe::OldAttachIgnored),
            Some(attached) if attach == attached => {}
            Some(_) | None => {
                // It names the end that it was made for: a new process does not know what it obeyed before.
                if self.log.end() != expected || !self.obey_attach(core, start, out) {
                    hit(Probe::AttachMismatch);
                    return self.mismatch(core, from, epoch, attach, out);
                }
                let Role::Backup(backup) = &mut self.role else { return };
                (backup.attached, backup.must_hold, backup.since) = (Some(attach), must_hold, since);
                backup.copy = None;
            }
        }
        let (shard, node) = (self.shard, core.id().node);
        send(from, &Message::Attached { shard, epoch, node, attach }, core.durable_gate_as(self.shard), out);
    }

    fn obey_attach(&mut self, core: &mut Core, start: AttachAt, out: &mut Effects) -> bool {
        match start {
            AttachAt::Keep(offset) => {
                if !self.truncate_log(core, offset, out) || !self.meta.complete {
                    return false;
                }
            }
            AttachAt::Join(base) => {
                // The marks say first that what is here does not count; then it goes.
                (self.meta.intact, self.meta.complete) = (false, false);
                self.save_meta(core, out);
                self.reset_log(core, base, out);
            }
        }
        true
    }

    /// What came in this attachment does not fit what we hold.
    fn mismatch(&self, core: &Core, to: Endpoint, epoch: Epoch, attach: AttachId, out: &mut Effects) {
        let message = Message::Mismatch { shard: self.shard, epoch, node: core.id().node, attach };
        send(to, &message, Gate::Now, out);
    }

    /// Log bytes from the primary.
    pub fn on_append(&mut self, core: &mut Core, from: Endpoint, append: &AppendView<'_>, out: &mut Effects) {
        let Role::Backup(backup) = &mut self.role else {
            let is_unfenced = append.epoch >= self.meta.promised || planted::is_on(Bug::EpochUnfenced);
            if is_unfenced && matches!(self.role, Role::Idle) {
                hit(Probe::AppendUnattached);
                self.mismatch(core, from, append.epoch, append.attach, out); // a new incarnation: attach us again
            }
            return;
        };
        if append.epoch != backup.epoch {
            if append.epoch < backup.epoch {
                hit(Probe::OlderEpochIgnored);
            }
            return; // a zombie's, or of a primary that has not fenced us yet
        }
        match backup.attached {
            Some(attached) if append.attach < attached => return,
            Some(attached) if append.attach == attached => {}
            Some(_) | None => return self.mismatch(core, from, append.epoch, append.attach, out),
        }
        // Our log is the primary's up to our end: what is synced can make room for what comes, though it comes too early.
        self.known_synced = self.known_synced.max(append.synced);
        let end = self.log.end().offset;
        let ahead = usize::try_from(end.saturating_sub(append.from)).unwrap_or(usize::MAX);
        // One epoch is written by one primary: what we have of it already is the same.
        if let Some(new) = append.bytes.get(ahead..).filter(|new| !new.is_empty()) {
            match self.log.append_raw(new, screen(append.epoch)) {
                Ok(_) => {}
                // Our log is the primary's up to our end: a segment that begins further on only came too early.
                Err(AppendError::PredecessorMismatch { .. }) if append.from > end => return hit(Probe::AppendGap),
                Err(AppendError::PredecessorMismatch { .. } | AppendError::Overlap { .. }) => {
                    backup.attached = None;
                    return self.mismatch(core, from, append.epoch, append.attach, out);
                }
                // Lost or damaged on the way: the primary sends it again.
                Err(AppendError::Group { .. } | AppendError::Gap { .. } | AppendError::NotAbsent) => {
                    return hit(Probe::AppendGap);
                }
                // What was freed goes once the log is replayed: until then the primary waits, and sends again.
                Err(AppendError::Full) if !self.meta.complete || !self.is_replayed() => return,
                Err(AppendError::Full) => return self.stop_for_memory(out),
            }
        } else if append.from > end {
            return;
        }
        backup.answer_due = Some(backup.answer_due.map_or(append.round, |due| due.max(append.round)));
    }

    /// Ends a follower's turn: new bytes go to the file, and one ack leaves when they are there.
    pub fn end_follower_turn(&mut self, core: &mut Core, out: &mut Effects) {
        let Role::Backup(backup) = &self.role else { return };
        let must_hold = backup.must_hold.max(self.known_synced);
        if !self.meta.intact && backup.attached.is_some() && self.held >= must_hold {
            hit(Probe::CopiedAgain);
            self.meta.intact = true; // R5.5: copied again, and on file
            self.save_meta(core, out);
        }
        self.write_log(core, out);
        let (shard, end, node) = (self.shard, self.log.end().offset, core.id().node);
        let Role::Backup(backup) = &mut self.role else { return };
        if let (Some(round), Some(attach)) = (backup.answer_due.take(), backup.attached) {
            let mark = out.mark();
            let appended = Appended { shard, epoch: backup.epoch, node, attach, end, round };
            hot::encode_small(Kind::Appended, &appended, out.arena());
            let head = out.span_from(mark);
            let (to, gate) = (Endpoint::Core(backup.primary), core.durable_gate_as(self.shard));
            out.push(Effect::Send { to, head, tail: None, gate });
        }
    }

    /// Part of an older segment, for a joiner.
    pub fn on_copy_segment(
        &mut self,
        core: &mut Core,
        from: Endpoint,
        (epoch, attach): (Epoch, AttachId),
        (segment, total, offset): (SegmentId, u32, u32),
        bytes: &[u8],
        out: &mut Effects,
    ) {
        let (shard, node) = (self.shard, core.id().node);
        let Role::Backup(backup) = &mut self.role else { return };
        if backup.epoch != epoch || total > core.options.segment_bytes {
            return;
        }
        match backup.attached {
            Some(attached) if attach < attached => return,
            Some(attached) if attach == attached => {}
            // A new incarnation: attach us again.
            Some(_) | None => return self.mismatch(core, from, epoch, attach, out),
        }
        if self.log.segments().next().is_none() {
            return; // the head's digest, which says what is missing, has not come yet
        }
        let (segment, arrived) = if total == 0 {
            match self.log.absent().first() {
                Some(&absent) if !planted::is_on(Bug::JoinerElected) => {
                    hit(Probe::ClosingMarkTooEarly);
                    (absent, 0)
                }
                Some(_) | None => {
                    self.end_copy(core, out);
                    (CLOSING_MARK, 0)
                }
            }
        } else {
            if !self.log.absent().contains(&segment) {
                (segment, total) // installed already, or freed: nothing more is wanted of it
            } else {
                let fresh = backup.copy.take().filter(|(id, _)| *id == segment);
                let (_, mut whole) = fresh.unwrap_or((segment, Vec::with_capacity(total as usize)));
                if whole.len() == offset as usize && whole.len() + bytes.len() <= total as usize {
                    whole.extend_from_slice(bytes);
                }
                let arrived = u32::try_from(whole.len()).unwrap_or(u32::MAX);
                if arrived < total {
                    hit(Probe::SegmentInParts);
                    backup.copy = Some((segment, whole));
                } else if !self.install(core, epoch, segment, &whole, out) {
                    // There may be room for it when the part that completes it comes again.
                    let Role::Backup(backup) = &mut self.role else { return };
                    backup.copy = Some((segment, whole));
                    return;
                }
                (segment, arrived)
            }
        };
        let message = Message::SegmentCopied { shard, epoch, node, attach, segment, offset: arrived };
        send(from, &message, core.durable_gate_as(self.shard), out);
    }

    /// Puts an older segment where it lacks. False: it does not fit.
    pub fn install(
        &mut self,
        core: &mut Core,
        epoch: Epoch,
        segment: SegmentId,
        bytes: &[u8],
        out: &mut Effects,
    ) -> bool {
        match self.log.install_segment(segment, bytes, screen(epoch)) {
            Ok(()) => {
                core.work.add(Work::Copy);
                let offset = self.log.segment_base(segment);
                let len = u32::try_from(bytes.len()).expect("within a segment");
                let slice = kasha_types::LogSlice { shard: self.shard, offset, len };
                core.write_log(FileName::Segment { shard: self.shard, segment }, 0, slice, out);
                true
            }
            Err(
                AppendError::Full // what was freed goes first; the primary sends again
                | AppendError::NotAbsent
                | AppendError::Group { .. }
                | AppendError::Gap { .. }
                | AppendError::Overlap { .. }
                | AppendError::PredecessorMismatch { .. },
            ) => false,
        }
    }

    pub fn stop_for_memory(&self, out: &mut Effects) {
        let why = format!(
            "{}: the memory limit leaves no room for the shard's log: raise it and start this node again (K0407)",
            self.shard
        );
        let why = out.span(why.as_bytes());
        out.push(Effect::Stop(why));
    }

    fn end_copy(&mut self, core: &mut Core, out: &mut Effects) {
        let whole = self.log.absent().is_empty() || planted::is_on(Bug::JoinerElected);
        if !self.meta.complete && whole {
            self.meta.complete = true;
            self.save_meta(core, out);
        }
    }

    /// A new primary, whose log is shorter, asks for ours.
    pub fn on_fetch_log(&mut self, from: Endpoint, epoch: Epoch, offset: u64, out: &mut Effects) {
        if epoch != self.meta.promised || self.primary().is_some() {
            return;
        }
        let end = self.log.end().offset;
        // A log that shares nothing with ours is taken from our head on; then it asks for older segments.
        let head = self.log.segments().map(|(id, _)| id).max().unwrap_or_default();
        let offset = if offset == FETCH_FROM_HEAD { self.log.segment_base(head) } else { offset };
        let piece = self.log.pieces(offset, end, PIECE_BYTES_MAX).next();
        let (from_offset, bytes) =
            piece.map_or((offset, Vec::new()), |slice| (slice.offset, self.log.slice(slice).to_vec()));
        let bytes = kasha_wire::codec::Bytes(bytes);
        out.note(Work::Copy);
        send(from, &Message::LogPiece { shard: self.shard, epoch, from: from_offset, bytes }, Gate::Now, out);
    }
}
