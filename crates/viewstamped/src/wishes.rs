//! Wishes: whether a quorum would follow into a new view (R9.8).
//!
//! A wish is in memory, and promises nothing. A view is entered only when a quorum would follow. So a member that is cut off, or that
//! can send and not hear, does not drive the group from view to view.

use std::collections::BTreeSet;

use kasha_types::Tick;
use kasha_types::planted::{self, Bug};

use crate::message::Message;
use crate::replica::{Replica, Role};
use crate::{MemberId, Memory, State, View};

/// A wish of this member.
#[derive(Debug)]
pub(crate) struct Wish {
    view: View,
    supporters: BTreeSet<MemberId>,
    again_at: Tick,
}

/// Whom a member supports.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Supported {
    member: MemberId,
    since: Tick,
    /// Nobody else is supported before this moment.
    until: Tick,
}

impl<S: State, M: Memory> Replica<S, M> {
    pub(crate) fn wish_deadline(&self) -> Tick {
        self.wish.as_ref().map_or(self.wishes_at, |wish| wish.again_at)
    }

    /// Who waits for its own disk does not wish (R9.10), nor does who is no member.
    pub(crate) fn tick_wish(&mut self, now: Tick) {
        if now < self.wish_deadline() {
            return;
        }
        if self.waits_for_disk() || self.has_left || !self.lists().members.contains(&self.me) {
            self.wish = None;
            self.wishes_at = now.after(self.options.beat());
            return;
        }
        self.wish_for_next(now);
    }

    /// Wishes for a view above all that it has heard of: a member that has entered one alone follows, too.
    pub(crate) fn wish_for_next(&mut self, now: Tick) {
        let above = self.highest.max(self.view.number);
        let is_new = self.wish.as_ref().is_none_or(|wish| wish.view.number <= above);
        if is_new {
            let view = View { number: above + 1, leader: self.me };
            self.wish = Some(Wish { view, supporters: BTreeSet::from([self.me]), again_at: now });
        }
        let again_at = now.after(self.options.beat());
        let wish = self.wish.as_mut().expect("just made");
        wish.again_at = again_at;
        let view = wish.view;
        if planted::is_on(Bug::ViewEnteredAlone) {
            return self.elect(now, view);
        }
        let heard: Vec<_> =
            self.heard.keys().copied().filter(|&member| self.heard_within(now, member, self.options.lease)).collect();
        for to in self.others() {
            self.send(to, Message::Wish { view, heard: heard.clone() });
        }
        self.enter_if_supported(now);
    }

    pub(crate) fn on_wish(&mut self, now: Tick, from: MemberId, view: View, heard: &[MemberId]) {
        if view.leader != from {
            return;
        }
        if view <= self.view {
            return self.send(from, Message::Newer { view: self.view });
        }
        if !heard.contains(&self.me) {
            return self.send(from, Message::Newer { view: self.view }); // so that it hears this member
        }
        let is_leaders_own = from == self.view.leader;
        let Some(since) = self.may_support(now, from) else { return };
        let has_greater_wish = self.wish.as_ref().is_some_and(|wish| wish.view > view);
        if (self.has_leader(now) && !is_leaders_own) || has_greater_wish {
            return;
        }
        self.wish = None;
        self.supported = Some(Supported { member: from, since, until: now.after(self.options.lease / 4) });
        self.wishes_at = now.after(self.timeouts.silent(now, self.options.lease));
        self.send(from, Message::Support { view });
    }

    /// Whether this member may support that one now, and since when it does. Two that wish at once are not both followed, one after the other. And one
    /// that wishes on, and finds no quorum (it was removed, and does not know that), does not keep the support for ever: after a lease the
    /// others have a while to be the first.
    fn may_support(&self, now: Tick, member: MemberId) -> Option<Tick> {
        let (lease, a_while) = (self.options.lease, self.options.lease / 4);
        match self.supported {
            Some(supported) if supported.member != member => (now >= supported.until).then_some(now),
            Some(supported) if now.since(supported.since) < lease && now < supported.until.after(a_while) => {
                Some(supported.since)
            }
            Some(supported) if now < supported.until.after(a_while) => None,
            Some(_) | None => Some(now),
        }
    }

    /// Whether this member leads, or has heard its leader within the shorter time-out.
    fn has_leader(&self, now: Tick) -> bool {
        self.leads() || self.leader_heard.is_some_and(|then| now.since(then) < self.options.lease / 4)
    }

    pub(crate) fn on_support(&mut self, now: Tick, from: MemberId, view: View) {
        let Some(wish) = self.wish.as_mut().filter(|wish| wish.view == view) else { return };
        wish.supporters.insert(from);
        self.enter_if_supported(now);
    }

    fn enter_if_supported(&mut self, now: Tick) {
        let lists = self.lists();
        let Some(wish) = &self.wish else { return };
        if lists.is_quorum(|member| wish.supporters.contains(&member)) {
            let view = wish.view;
            self.elect(now, view);
        }
    }

    /// Another member has entered a later view than the one that this message answers. A leader goes on in a view above, so that
    /// the other, which has perhaps entered its view alone, follows again (R9.8).
    pub(crate) fn on_newer(&mut self, now: Tick, from: MemberId, view: View) {
        let is_members = self.lists().members.contains(&from);
        if view > self.view && is_members && matches!(self.role, Role::Leads(_)) {
            self.wish_for_next(now);
        }
    }

    /// Hands the lead to another member, which needs nobody's support for that.
    pub fn hand_over(&mut self, to: MemberId) {
        if self.leads() && to != self.me && self.lists().members.contains(&to) {
            self.send(to, Message::Lead { view: self.view });
        }
    }

    pub(crate) fn on_lead(&mut self, now: Tick, from: MemberId, view: View) {
        let is_ours = view == self.view && from == view.leader && self.log_view == view;
        if is_ours && !self.waits_for_disk() && self.lists().members.contains(&self.me) {
            let number = self.highest.max(view.number) + 1;
            self.elect(now, View { number, leader: self.me });
        }
    }
}
