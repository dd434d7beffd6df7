//! What members remember that is too long for a round or a vote: a new leader gathers it, and a member that lacks it is taught (R9.4).
//!
//! Rounds carry what is new, so each thing that was answered is remembered by a quorum. But not by every member: so a new leader asks the
//! others for all that they remember, in pieces, until a quorum of its list has told. Until then it works with a bound, which its user
//! sets when [`crate::Output::Leads`] comes: whatever was told before is within that. Then [`Memory::gathered`] says that the bound may go.
//!
//! A member *knows* when it remembers what a quorum did, and all rounds since that it has answered. Who has just started knows nothing,
//! and does not count. The leader teaches such a one all that it remembers itself.
//!
//! A quorum of one list of members need not meet a quorum of the list after the next. So with a new list each member must be
//! taught again, by a leader that knows and has that list; and a newcomer is not taught before it is a member.

use std::collections::{BTreeMap, BTreeSet};

use kasha_types::Tick;
use kasha_types::planted::{self, Bug};

use crate::message::{Message, PieceAt};
use crate::replica::{Replica, Role};
use crate::{MemberId, Memory, State, View};

/// What was asked for, and when.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    piece: PieceAt,
    at: Tick,
}

impl Asked {
    /// For the first piece, in a moment.
    fn first(nonce: u64) -> Self {
        Self { piece: PieceAt { behind: 0, nonce }, at: Tick(0) }
    }

    /// For the next piece, in a moment.
    fn go_on(&mut self, behind: u64) {
        (self.piece.behind, self.at) = (behind, Tick(0));
    }
}

/// What a new leader has of the others' memories.
#[derive(Debug)]
pub(crate) struct Gathering {
    asked: BTreeMap<MemberId, Asked>,
    /// Whose memory is here whole.
    whole: BTreeSet<MemberId>,
    /// When something came last.
    came_at: Tick,
}

/// What a member knows of what the group remembers.
#[derive(Debug)]
pub(crate) enum Knowledge {
    /// All that a quorum does.
    All,
    /// Not all: what it has asked the leader of this view for.
    Lacks(Option<(View, Asked)>),
}

impl Knowledge {
    /// Of a process that has just started.
    pub fn of_a_start() -> Self {
        if planted::is_on(Bug::RestartKnowsLeases) { Self::All } else { Self::Lacks(None) }
    }
}

impl<S: State, M: Memory> Replica<S, M> {
    /// Whether this member remembers what a quorum does.
    #[must_use]
    pub fn knows(&self) -> bool {
        matches!(self.knowledge, Knowledge::All)
    }

    /// The log has changed; before it had this list. If the list is another one, what was known of the former does not count.
    ///
    /// A list that came and went unseen is no matter. The next change but one begins when the first one is committed, so a quorum has seen
    /// that; and each of these has been taught since, or knows nothing.
    pub(crate) fn learn_again_if_not(&mut self, members: &BTreeSet<MemberId>) {
        if self.lists().members != *members && !planted::is_on(Bug::LeasesKeptOverLists) {
            self.knowledge = Knowledge::Lacks(None);
        }
    }

    /// Begins to gather, with what this member knows itself. From now on its user has a bound for everything, so that it knows all.
    pub(crate) fn begin_gathering(&mut self, now: Tick) -> Gathering {
        let knew = self.knows();
        self.memory.begins(knew);
        self.knowledge = Knowledge::All;
        let whole = if knew { BTreeSet::from([self.me]) } else { BTreeSet::new() };
        Gathering { asked: BTreeMap::new(), whole, came_at: now }
    }

    /// Asks a member for the next piece, unless the last question is young. Ends when nobody has anything for long.
    pub(crate) fn gather_from(&mut self, now: Tick, member: MemberId) {
        let (beat, patience) = (self.options.beat(), self.options.patience);
        let view = self.view;
        let is_member = self.lists().members.contains(&member);
        let nonce = self.draw_nonce();
        let Role::Leads(lead) = &mut self.role else { return };
        let Some(gathering) = &mut lead.gathering else { return };
        if now.since(gathering.came_at) > patience {
            lead.gathering = None; // the bound stays
            return;
        }
        let asked = gathering.asked.entry(member).or_insert(Asked::first(nonce));
        if is_member && !gathering.whole.contains(&member) && now.since(asked.at) >= beat {
            asked.at = now;
            let at = asked.piece;
            self.send(member, Message::GetMemory { view, at });
        }
    }

    fn draw_nonce(&mut self) -> u64 {
        self.next_nonce = self.next_nonce.wrapping_add(1);
        self.next_nonce
    }

    /// Somebody asks for what this member remembers: the leader of the view that it has entered, or a member that lacks it. That view is on
    /// its disk (R9.5): else it could be in the one before after a crash, and answer rounds there of which this leader never hears.
    pub(crate) fn on_get_memory(&mut self, now: Tick, from: MemberId, view: View, at: PieceAt) {
        let is_member = self.lists().members.contains(&from);
        let may_tell = match &self.role {
            // While it gathers, it has more than it should tell: its bound.
            Role::Leads(lead) => lead.gathering.is_none() && is_member && self.memory.may_teach(),
            Role::Follows => view.leader == from && self.durable.view == view && self.knows(),
            Role::Elects(_) | Role::Stopped => false,
        };
        if view == self.view && may_tell {
            let (piece, next) = self.memory.piece(now, at.behind);
            self.send(from, Message::Memory { view, at, piece, next });
        }
    }

    pub(crate) fn on_memory(
        &mut self,
        now: Tick,
        from: MemberId,
        view: View,
        at: PieceAt,
        piece: &[u8],
        next: Option<u64>,
    ) {
        if view != self.view || next.is_some_and(|next| next <= at.behind) {
            return;
        }
        match &mut self.role {
            Role::Leads(lead) => {
                let Some(gathering) = &mut lead.gathering else { return };
                let Some(asked) = gathering.asked.get_mut(&from).filter(|asked| asked.piece == at) else { return };
                if !self.memory.merge(now, piece) {
                    return; // nobody knows what else stood there
                }
                gathering.came_at = now;
                match next {
                    Some(next) => asked.go_on(next),
                    None => _ = gathering.whole.insert(from),
                }
                self.end_gathering();
                self.gather_from(now, from);
            }
            Role::Follows if from == view.leader => self.on_taught(now, view, at, piece, next),
            Role::Follows | Role::Elects(_) | Role::Stopped => {}
        }
    }

    /// A quorum has told all: what it does not remember, nobody was told.
    pub(crate) fn end_gathering(&mut self) {
        let lists = self.lists();
        let Role::Leads(lead) = &mut self.role else { return };
        let Some(gathering) = &lead.gathering else { return };
        if lists.is_quorum(|member| gathering.whole.contains(&member)) || planted::is_on(Bug::OwnLeasesAlone) {
            lead.gathering = None;
            self.memory.gathered();
        }
    }

    /// Asks the leader for what it remembers, if this member lacks it, unless the last question is young.
    pub(crate) fn ask_for_memory(&mut self, now: Tick) {
        let (view, beat) = (self.view, self.options.beat());
        let is_led = self.log_view == view && view.leader != self.me && self.lists().members.contains(&self.me);
        if !is_led || !matches!(self.role, Role::Follows) {
            return;
        }
        let nonce = self.draw_nonce();
        let Knowledge::Lacks(asked) = &mut self.knowledge else { return };
        let (_, asked) = match asked {
            Some(known) if known.0 == view => known,
            _ => asked.insert((view, Asked::first(nonce))),
        };
        if now.since(asked.at) >= beat {
            asked.at = now;
            let at = asked.piece;
            self.send(view.leader, Message::GetMemory { view, at });
        }
    }

    fn on_taught(&mut self, now: Tick, view: View, at: PieceAt, piece: &[u8], next: Option<u64>) {
        let Knowledge::Lacks(Some((asked_in, asked))) = &mut self.knowledge else { return };
        if *asked_in != view || asked.piece != at || !self.memory.merge(now, piece) {
            return;
        }
        match next {
            Some(next) => {
                asked.go_on(next);
                self.ask_for_memory(now);
            }
            None => self.knowledge = Knowledge::All,
        }
    }
}
