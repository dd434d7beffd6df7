//! The view change: a member enters a view that it is to lead, and takes over the log of a quorum.
//!
//! ```text
//! leader to be    ─ enters, fsync ─▶ Enter ───────▶         ─▶ all votes: the greatest (log view, end) wins ─▶ one write, leads
//! other members                      enter, fsync ─▶ Vote ─┘        (its log is fetched, if it is another's)
//! ```
//!
//! A member that has entered a view takes nothing of earlier views. Each operation that was committed in one of these is in the log of a quorum
//! there, so in one of the logs that are voted for here; and the greatest (log view, end) has all that any other has of what is committed.
//!
//! **R9.6 \[M\]** The quorum is one of the newest list *in the merged log*, and not in the leader's own: a leader that has missed
//! two changes would find a quorum of its old list beside the true leader's.
//!
//! **R9.5 \[M\]** The log and its view are one write. The view alone would make an old log pass for that of the new view, and win.

use std::collections::{BTreeMap, VecDeque};

use kasha_types::Tick;
use kasha_types::planted::{self, Bug};

use crate::log::{Base, Entry, Log, Piece, Snapshot};
use crate::message::Message;
use crate::normal::Lead;
use crate::output::{Output, Record, Trouble};
use crate::replica::{Landmark, Replica, Role};
use crate::{MemberId, Memory, OpNumber, State, View};

/// What a member has voted.
#[derive(Clone, Debug)]
struct Vote {
    log_view: View,
    end: OpNumber,
    committed: OpNumber,
    memory: Vec<u8>,
}

impl Vote {
    fn log(&self) -> (View, OpNumber) {
        (self.log_view, self.end)
    }
}

/// An election that this member would win.
#[derive(Debug)]
pub(crate) struct Election {
    votes: BTreeMap<MemberId, Vote>,
    /// The log of the greatest vote, if it is another's and has come.
    fetched: Option<(View, Piece)>,
    pub(crate) asks_at: Tick,
}

impl Election {
    /// The greatest log, and a member that has it; of equal ones this member.
    fn greatest(&self, me: MemberId) -> Option<((View, OpNumber), MemberId)> {
        let votes = self.votes.iter().map(|(&member, vote)| (vote.log(), member == me, member));
        let votes: Vec<_> = votes.collect();
        let greatest = if planted::is_on(Bug::ShortestLogTaken) { votes.iter().min() } else { votes.iter().max() };
        greatest.copied().map(|(log, _, member)| (log, member))
    }
}

impl<S: State, M: Memory> Replica<S, M> {
    /// Enters a view that this member is to lead.
    pub(crate) fn elect(&mut self, now: Tick, view: View) {
        assert!(view > self.view && view.leader == self.me, "R9.8: a new view of our own");
        self.enter(now, view);
        self.role = Role::Elects(Election { votes: BTreeMap::new(), fetched: None, asks_at: now });
    }

    /// A member that is alone starts. Its own disk is a quorum, so all that it holds is committed, and its next view, the log of that
    /// view and its first operation are one write. Nothing of that view is said before the write is durable, so a crash in between
    /// may have a view of the same number.
    pub(crate) fn enter_alone(&mut self, now: Tick) {
        self.commit_to(self.log.end());
        self.view = View { number: self.view.number + 1, leader: self.me };
        self.highest = self.view.number;
        self.log_view = self.view;
        self.timeouts.note_election(now, self.options.lease);
        let asks_at = now.after(self.options.beat());
        self.role = Role::Elects(Election { votes: BTreeMap::new(), fetched: None, asks_at });
        self.log.push(Entry::Begin);
        self.write_anew();
    }

    /// What a member that is alone has entered is on its disk.
    pub(crate) fn lead_alone(&mut self, now: Tick) {
        let memories = vec![(self.me, self.memory.recall(now, self.knows()))];
        self.begin_lead(now, self.log.end(), memories);
        if let Role::Leads(lead) = &mut self.role {
            lead.acknowledge(self.me, self.durable.end);
        }
        self.advance(now);
        self.begin_round(now);
    }

    /// Enters a view: this member takes nothing of earlier ones any more.
    fn enter(&mut self, now: Tick, view: View) {
        self.depose();
        self.view = view;
        self.highest = self.highest.max(view.number);
        self.wish = None;
        self.leader_heard = None;
        self.asked_log = None;
        self.timeouts.note_election(now, self.options.lease);
        self.wishes_at = now.after(self.timeouts.silent(now, self.options.lease));
        match planted::is_on(Bug::ViewForgotten) {
            true => self.write(Record::Committed(self.committed_to)),
            false => self.write(Record::Entered(view)),
        }
    }

    /// Leads no more.
    pub(crate) fn depose(&mut self) {
        if let Role::Leads(_) = self.role {
            self.out.push(Output::Deposed { view: self.view });
        }
        self.role = Role::Follows;
    }

    pub(crate) fn on_enter(&mut self, now: Tick, from: MemberId, view: View) {
        if view.leader != from {
            return;
        }
        match view.cmp(&self.view) {
            std::cmp::Ordering::Less => self.send(from, Message::Newer { view: self.view }),
            std::cmp::Ordering::Greater => self.enter(now, view),
            // It asks again: the vote was lost, or is not on our disk yet.
            std::cmp::Ordering::Equal if self.durable.view == view && self.log_view < view => self.vote(now),
            std::cmp::Ordering::Equal => {}
        }
    }

    /// Tells the leader of the view that was entered what is on this disk.
    pub(crate) fn vote(&mut self, now: Tick) {
        let Landmark { view, log_view, end } = self.durable;
        if view == self.view && view.leader != self.me && view != View::NONE {
            let (committed, memory) = (self.committed_to.min(end), self.memory.recall(now, self.knows()));
            self.send(view.leader, Message::Vote { view, log_view, end, committed, memory });
        }
    }

    /// Our own entering is on our disk. Our log counts with all that is in memory: it is written anew before this member leads.
    pub(crate) fn vote_for_self(&mut self, now: Tick) {
        let landmark = Landmark { view: self.view, log_view: self.log_view, end: self.log.end() };
        self.on_vote(now, self.me, landmark, self.committed_to, self.memory.recall(now, self.knows()));
        if let Role::Elects(election) = &mut self.role {
            election.asks_at = now; // what is on our disk may be said
            self.tick_election(now);
        }
    }

    pub(crate) fn on_vote(
        &mut self,
        now: Tick,
        from: MemberId,
        Landmark { view, log_view, end }: Landmark,
        committed: OpNumber,
        memory: Vec<u8>,
    ) {
        let Role::Elects(election) = &mut self.role else { return };
        if view == self.view && log_view < view {
            election.votes.insert(from, Vote { log_view, end, committed, memory });
            self.decide_election(now);
        }
    }

    pub(crate) fn tick_election(&mut self, now: Tick) {
        let again_at = now.after(self.options.beat());
        let Role::Elects(election) = &mut self.role else { return };
        if now < election.asks_at {
            return;
        }
        election.asks_at = again_at;
        let voted: Vec<_> = election.votes.keys().copied().collect();
        let view = self.view;
        if self.durable.view == view {
            for to in self.voters().into_iter().filter(|member| !voted.contains(member)) {
                self.send(to, Message::Enter { view });
            }
            self.decide_election(now);
        }
    }

    /// Whom this member asks: the newest list of its own log, and of the log that it has fetched.
    fn voters(&self) -> Vec<MemberId> {
        let mut voters = self.lists().members;
        if let Role::Elects(Election { fetched: Some((_, piece)), .. }) = &self.role
            && let Some(merged) = self.log.with(piece)
        {
            voters.extend(merged.lists(self.committed_to).members);
        }
        voters.remove(&self.me);
        voters.into_iter().collect()
    }

    /// Leads, if a quorum of the newest list in the merged log has voted.
    fn decide_election(&mut self, now: Tick) {
        let Role::Elects(election) = &self.role else { return };
        let has_voted = |member| election.votes.contains_key(&member);
        // Without a quorum of the own list there may be a greater log elsewhere; and a list that is older than the merged one needs more.
        if !has_voted(self.me) || !self.lists().is_quorum(has_voted) {
            return;
        }
        let Some((greatest, holder)) = election.greatest(self.me) else { return };
        let committed = election.votes.values().map(|vote| vote.committed).max().unwrap_or_default();
        let merged = if holder == self.me {
            self.log.clone()
        } else {
            let fetched = election.fetched.as_ref().filter(|(view, piece)| (*view, piece.end()) == greatest);
            match fetched.and_then(|(_, piece)| self.log.with(piece)) {
                Some(merged) => merged,
                None => return self.ask_for_log(now, holder),
            }
        };
        let lists = merged.lists(committed);
        if !lists.members.contains(&self.me) {
            self.leave();
        } else if lists.is_quorum(has_voted) || planted::is_on(Bug::OwnListElects) {
            self.lead(now, committed);
        } // else the others are asked at the next tick
    }

    /// A member that has left, and learns of that now, does not lead, and elects nobody any more: with others that have left it would be a
    /// quorum of its own list for ever, and make the true leader follow into view after view.
    fn leave(&mut self) {
        self.role = Role::Follows;
        self.has_left = true;
    }

    pub(crate) fn ask_for_log(&mut self, now: Tick, from: MemberId) {
        let is_asked = |(view, then): (View, Tick)| view == self.view && now.since(then) < self.options.beat();
        if !self.asked_log.is_some_and(is_asked) {
            self.asked_log = Some((self.view, now));
            self.send(from, Message::GetLog { view: self.view, behind: self.committed_to });
        }
    }

    /// The log of a member that has voted for us.
    pub(crate) fn on_fetched(&mut self, now: Tick, log_view: View, piece: Piece) {
        if let Role::Elects(election) = &mut self.role {
            election.fetched = Some((log_view, piece));
            election.asks_at = now; // its list may have others
            self.asked_log = None;
            self.decide_election(now);
        }
    }

    /// The quorum is here: what it remembers, its log, and that this member leads.
    fn lead(&mut self, now: Tick, committed: OpNumber) {
        let Role::Elects(election) = std::mem::replace(&mut self.role, Role::Follows) else {
            unreachable!("it elects")
        };
        let greatest = election.greatest(self.me).expect("this member has voted").0;
        let view = self.view;
        let taken = match election.fetched {
            Some((log_view, piece)) if (log_view, piece.end()) == greatest => self.take_log(view, &piece, committed),
            Some(_) | None => {
                self.take_log(view, &Piece { base: Base::Behind(self.log.end()), entries: Vec::new() }, committed)
            }
        };
        if let Err(trouble) = taken {
            return self.stop(trouble);
        }
        let begin = self.log.push(Entry::Begin);
        let memories = election.votes.iter().map(|(&member, vote)| (member, vote.memory.clone())).collect();
        self.begin_lead(now, begin, memories);
        self.write(Record::Appended { behind: OpNumber(begin.0 - 1), entries: vec![Entry::Begin] });
        for to in self.others() {
            let known = election.votes.get(&to).map(|vote| vote.committed);
            if let Some(behind) = known {
                self.send_log(to, behind);
            }
        }
        self.begin_round(now);
    }

    fn begin_lead(&mut self, now: Tick, begin: OpNumber, memories: Vec<(MemberId, Vec<u8>)>) {
        let bears = self.timeouts.silent(now, self.options.lease);
        let mut memories = memories;
        memories.retain(|(member, _)| *member == self.me || !planted::is_on(Bug::TimeOfOwnMemory));
        let gathering = self.begin_gathering(now);
        self.role = Role::Leads(Lead::new(begin, now, bears, gathering, self.others().into_iter()));
        self.out.push(Output::Leads { view: self.view, since: now, memories });
    }

    /// Takes the log of a view, and writes both at once (R9.5).
    pub(crate) fn take_log(&mut self, view: View, piece: &Piece, committed: OpNumber) -> Result<(), Trouble> {
        let members = self.lists().members;
        if let Base::Snapshot(Snapshot { op, state, lists, .. }) = &piece.base
            && *op > self.committed_to
        {
            self.committed = S::restore(state).map_err(Trouble::Unreadable)?;
            self.committed_to = *op;
            self.digests = VecDeque::from([(*op, self.committed.digest())]);
            self.decided = self.committed.clone();
            self.log = Log::new(*op, lists.clone(), []);
        }
        let merged: Option<Log> = self.log.with(piece);
        let merged = merged.ok_or(Trouble::Differs(piece.base_op()))?;
        if merged.end() < self.committed_to {
            return Err(Trouble::Differs(self.committed_to)); // what was committed is missing
        }
        if planted::is_on(Bug::LogViewAhead) {
            (self.view, self.log_view) = (view, view);
            self.write_anew();
        }
        // Who refuses an operation has nothing of that log: else it would be written with the view of the log before.
        self.decided = self.state_at_end(&merged, self.committed_to)?;
        self.log = merged;
        self.view = view;
        self.log_view = view;
        self.write_anew();
        self.learn_again_if_not(&members);
        self.commit_to(committed.min(self.log.end()));
        Ok(())
    }
}
