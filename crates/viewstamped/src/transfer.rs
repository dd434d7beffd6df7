//! Catching up: a member that lacks the log of a view, or a part of it, asks for what stands behind what it has committed.
//!
//! All members have the same operations up to what any of them knows to be committed. So the one that asks names that place, and takes
//! what the other has behind it. If the other has forgotten these operations, a snapshot comes before them.

use kasha_types::Tick;

use crate::log::{Base, Piece, Snapshot};
use crate::message::Message;
use crate::output::Trouble;
use crate::replica::{Replica, Role};
use crate::{MemberId, Memory, OpNumber, State, View};

impl<S: State, M: Memory> Replica<S, M> {
    /// A message that only the leader of a view says. False: it is of an earlier view, or of nobody who could lead.
    pub(crate) fn hears_leader(&mut self, now: Tick, from: MemberId, view: View) -> bool {
        if view.leader != from {
            return false;
        }
        if view < self.view {
            self.send(from, Message::Newer { view: self.view });
            return false;
        }
        if view > self.view {
            self.depose(); // a quorum has entered that view; this member takes its log, and enters it with that
        }
        self.leader_heard = Some(now);
        self.has_left = false;
        self.wish = None;
        self.wishes_at = now.after(self.timeouts.silent(now, self.options.lease));
        true
    }

    pub(crate) fn ask_leader(&mut self, now: Tick, view: View) {
        let is_asked = |(asked, then): (View, Tick)| asked == view && now.since(then) < self.options.beat();
        if !self.asked_log.is_some_and(is_asked) {
            self.asked_log = Some((view, now));
            let behind = if self.log_view == view { self.log.end() } else { self.committed_to };
            self.send(view.leader, Message::GetLog { view, behind });
        }
    }

    pub(crate) fn on_get_log(&mut self, from: MemberId, view: View, behind: OpNumber) {
        // The leader of the view that this member has entered wants its log, or a member wants this leader's.
        let is_voter = view == self.view && view.leader == from && self.log_view < view && self.durable.view == view;
        let is_leader = view == self.view && self.leads();
        if is_voter || is_leader {
            self.send_log(from, behind);
        }
    }

    /// Sends what is in the log behind an operation that the other has committed.
    pub(crate) fn send_log(&mut self, to: MemberId, behind: OpNumber) {
        let (base, from) = if behind >= self.log.base() && behind <= self.log.end() {
            (Base::Behind(behind), behind)
        } else {
            let op = self.committed_to;
            let lists = self.log.lists_at(op, op);
            (Base::Snapshot(Snapshot { op, lists, state: self.committed.snapshot() }), op)
        };
        let entries = self.log.behind(from, usize::MAX).expect("the log begins before");
        let piece = Piece { base, entries };
        let (view, log_view, committed) = (self.view, self.log_view, self.committed_to);
        if let Role::Leads(lead) = &mut self.role
            && let Some(progress) = lead.progress.get_mut(&to)
        {
            progress.sent = Some(piece.end());
        }
        self.send(to, Message::Log { view, log_view, piece, committed });
    }

    pub(crate) fn on_log(
        &mut self,
        now: Tick,
        from: MemberId,
        view: View,
        log_view: View,
        piece: Piece,
        committed: OpNumber,
    ) {
        if view == self.view && view.leader == self.me {
            return self.on_fetched(now, log_view, piece);
        }
        if log_view != view || !self.hears_leader(now, from, view) {
            return;
        }
        if self.log_view == view && piece.end() <= self.log.end() {
            return; // it comes late
        }
        self.asked_log = None;
        if self.view < view {
            self.timeouts.note_election(now, self.options.lease);
        }
        match self.take_log(view, &piece, committed) {
            // There is a gap: this member asks again.
            Err(Trouble::Differs(op)) if op == piece.base_op() && op > self.log.end() => {}
            Err(trouble) => self.stop(trouble),
            Ok(()) => self.role = Role::Follows,
        }
    }
}
