//! The other end of replication: a member that follows a primary (sections 5 and 7). Older segments are copied to it, and its
//! log is copied from it, in `backup/copying`.

mod copying;
pub(crate) mod orders;

use kasha_log::AppendError;
use kasha_machine::{Effect, Effects, Endpoint};
use kasha_types::probe::{Probe, hit};
use kasha_types::{AttachId, ConfigVersion, CoreId, Epoch, LogEnd, Round, SegmentId};
use kasha_wire::frame::Kind;
use kasha_wire::hot::{self, AppendView, Appended};
use kasha_wire::message::{Attach, AttachAt, Attached};

use crate::core::send::send;
use crate::shard::copy::receive::screen;
use crate::shard::replay::next_retired;
use crate::shard::site::Site;

pub(crate) use crate::backup::copying::on_fetch_log;

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
    must_hold: LogEnd,
    /// The round of the last append of this turn: one ack answers them all.
    answer_due: Option<Round>,
    /// An older segment that is being copied to us.
    arriving: Option<(SegmentId, Vec<u8>)>,
}

impl Backup {
    pub fn new(epoch: Epoch, primary: CoreId) -> Self {
        Self {
            epoch,
            primary,
            attached: None,
            since: ConfigVersion(0),
            must_hold: LogEnd::MAX,
            answer_due: None,
            arriving: None,
        }
    }

    /// Whether a configuration that does not name us is from before the primary attached us as a member.
    pub fn was_attached_after(&self, version: ConfigVersion) -> bool {
        self.attached.is_some() && self.since > version
    }

    fn on_attach(&mut self, site: &mut Site<'_>, from: Endpoint, order: &Attach, out: &mut Effects) {
        let &Attach { epoch, attach, since, expected, must_hold, start, .. } = order;
        match self.attached {
            // An old message must not cut what was acknowledged since.
            Some(attached) if attach < attached => return hit(Probe::OldAttachIgnored),
            Some(attached) if attach == attached => {}
            Some(_) | None => {
                // It names the end that it was made for: a new process does not know what it obeyed before.
                if site.copy.log.end() != expected || !obey_attach(site, start, out) {
                    hit(Probe::AttachMismatch);
                    return site.copy.mismatch(site.core, from, (epoch, attach), out);
                }
                (self.attached, self.must_hold, self.since) = (Some(attach), must_hold, since);
                self.arriving = None;
                site.copy.note_set(site.core, since, out);
            }
        }
        let (shard, node) = (site.copy.shard, site.core.id().node);
        send(from, &Attached { shard, epoch, node, attach }, site.core.durable_gate_as(shard), out);
    }

    /// Log bytes from the primary.
    pub fn on_append(&mut self, site: &mut Site<'_>, from: Endpoint, append: &AppendView<'_>, out: &mut Effects) {
        let is_behind = !site.copy.meta.complete || !site.is_replayed();
        let Site { copy, state, core } = site;
        if append.epoch != self.epoch {
            if append.epoch < self.epoch {
                hit(Probe::OlderEpochIgnored);
            }
            return; // a zombie's, or of a primary that has not fenced us yet
        }
        let speech = (append.epoch, append.attach);
        match self.attached {
            Some(attached) if append.attach < attached => return,
            Some(attached) if append.attach == attached => {}
            Some(_) | None => return copy.mismatch(core, from, speech, out),
        }
        // Our log is the primary's up to our end: what is synced can make room for what comes, though it comes too early.
        copy.known_synced = copy.known_synced.max(append.synced);
        let end = copy.log.end().offset;
        let ahead = usize::try_from(end.bytes_since(append.from)).unwrap_or(usize::MAX);
        // One epoch is written by one primary: what we have of it already is the same.
        if let Some(new) = append.bytes.get(ahead..).filter(|new| !new.is_empty()) {
            match copy.log.append_raw(new, screen(append.epoch)) {
                Ok(_) => {}
                // Our log is the primary's up to our end: a segment that begins further on only came too early.
                Err(AppendError::PredecessorMismatch { .. }) if append.from > end => return hit(Probe::AppendGap),
                Err(AppendError::PredecessorMismatch { .. } | AppendError::Overlap { .. }) => {
                    self.attached = None;
                    return copy.mismatch(core, from, speech, out);
                }
                // Lost or damaged on the way: the primary sends it again.
                Err(AppendError::Group { .. } | AppendError::Gap { .. } | AppendError::NotAbsent) => {
                    return hit(Probe::AppendGap);
                }
                // What was freed goes once the log is replayed, some of it a turn: until then the primary waits, and sends
                // again.
                Err(AppendError::Full) if is_behind || next_retired(copy, state, copy.known_synced).is_some() => return,
                Err(AppendError::Full) => return copy.stop_for_memory(out),
            }
        } else if append.from > end {
            return;
        }
        self.answer_due = Some(self.answer_due.map_or(append.round, |due| due.max(append.round)));
    }

    /// Ends a turn: new bytes go to the file, and one ack leaves when they are there.
    pub fn end_turn(&mut self, site: &mut Site<'_>, out: &mut Effects) {
        let Site { copy, core, .. } = site;
        let must_hold = self.must_hold.max(copy.known_synced);
        if !copy.meta.intact && self.attached.is_some() && copy.held >= must_hold {
            hit(Probe::CopiedAgain);
            copy.meta.intact = true; // R5.5: copied again, and on file
            copy.save_meta(core, out);
        }
        copy.write_log(core, out);
        let (shard, end, node) = (copy.shard, copy.log.end().offset, core.id().node);
        if let (Some(round), Some(attach)) = (self.answer_due.take(), self.attached) {
            let mark = out.mark();
            let appended = Appended { shard, epoch: self.epoch, node, attach, end, round };
            hot::encode_small(Kind::Appended, &appended, out.arena());
            let head = out.span_from(mark);
            let (to, gate) = (Endpoint::Core(self.primary), core.durable_gate_as(shard));
            out.push(Effect::Send { to, head, tail: None, gate });
        }
        site.replay_slice();
    }
}

fn obey_attach(site: &mut Site<'_>, start: AttachAt, out: &mut Effects) -> bool {
    match start {
        AttachAt::Keep(end) => site.truncate_log(end, out) && site.copy.meta.complete,
        AttachAt::Join(base) => {
            site.copy.discount(site.core, out);
            site.reset_log(base, out);
            true
        }
    }
}
