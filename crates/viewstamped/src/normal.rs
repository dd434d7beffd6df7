//! Operations, while a view lasts: the leader proposes, the others write, a quorum commits.
//!
//! All logs of one log view are beginnings of the same log: its leader's. So whoever has an operation of it on its disk has all before
//! it, and an operation is committed when a quorum has it. Our own disk is not needed for a quorum (R9.10).

use std::collections::BTreeMap;
use std::time::Duration;

use kasha_types::Tick;
use kasha_types::planted::{self, Bug};

use crate::gathering::Gathering;
use crate::limits::PIECE_BYTES_MAX;
use crate::log::Entry;
use crate::message::Message;
use crate::output::Record;
use crate::replica::{Replica, Role, apply};
use crate::rounds::Rounds;
use crate::{Lists, MemberId, Memory, OpNumber, Options, State, View};

/// How far another member is, or a newcomer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Progress {
    /// On its disk; `None`: it lacks the log of this view, as far as is known.
    pub acknowledged: Option<OpNumber>,
    /// Sent to it.
    pub sent: Option<OpNumber>,
}

/// What a leader knows.
#[derive(Debug)]
pub(crate) struct Lead {
    /// The first operation of this view.
    pub begin: OpNumber,
    /// The members and the newcomers, this member too.
    pub progress: BTreeMap<MemberId, Progress>,
    pub rounds: Rounds,
    /// What the others remember, until enough of that is here.
    pub gathering: Option<Gathering>,
    /// How long a silence of the others this leader bears.
    bears: Duration,
    /// Since when there is something that is not committed.
    waits_since: Option<Tick>,
    beats_at: Tick,
}

impl Lead {
    pub fn new(
        begin: OpNumber,
        now: Tick,
        bears: Duration,
        gathering: Gathering,
        others: impl Iterator<Item = MemberId>,
    ) -> Self {
        let progress = others.map(|member| (member, Progress::default())).collect();
        let (rounds, gathering) = (Rounds::new(now), Some(gathering));
        Self { begin, progress, rounds, gathering, bears, waits_since: Some(now), beats_at: now }
    }

    pub fn acknowledge(&mut self, member: MemberId, end: OpNumber) {
        let progress = self.progress.entry(member).or_default();
        progress.acknowledged = progress.acknowledged.max(Some(end));
        progress.sent = progress.sent.max(progress.acknowledged);
    }

    pub fn acknowledged(&self, member: MemberId) -> Option<OpNumber> {
        self.progress.get(&member)?.acknowledged
    }

    pub fn next_deadline(&self, options: &Options) -> Tick {
        self.rounds.begins_at(options).map_or(self.beats_at, |at| at.min(self.beats_at))
    }
}

impl<S: State, M: Memory> Replica<S, M> {
    /// Proposes an operation, which the decided state permits. `None`: this member does not lead.
    ///
    /// # Panics
    /// If the decided state does not permit the operation.
    pub fn propose(&mut self, now: Tick, operation: Vec<u8>) -> Option<OpNumber> {
        let Role::Leads(_) = self.role else { return None };
        if let Err(why) = self.decided.permits(&operation) {
            panic!("R9.11: a leader proposes what it may: {why}");
        }
        self.decided.apply(&operation);
        Some(self.append(now, Entry::Operation(operation)))
    }

    pub(crate) fn append(&mut self, now: Tick, entry: Entry) -> OpNumber {
        let behind = self.log.end();
        let op = self.log.push(entry.clone());
        self.write(Record::Appended { behind, entries: vec![entry] });
        if let Role::Leads(lead) = &mut self.role {
            lead.waits_since.get_or_insert(now);
        }
        op
    }

    /// Sends what is new to the others. To be called when all is proposed that belongs together.
    pub fn flush(&mut self) {
        let Role::Leads(lead) = &mut self.role else { return };
        let mut messages = Vec::new();
        let (view, end, committed) = (self.view, self.log.end(), self.committed_to);
        for (&to, progress) in lead.progress.iter_mut().filter(|(member, _)| **member != self.me) {
            let Some(behind) = progress.sent.filter(|sent| *sent < end) else { continue };
            // What is not in memory any more it gets when it asks.
            let Some(entries) = self.log.behind(behind, PIECE_BYTES_MAX) else { continue };
            progress.sent = Some(OpNumber(behind.0 + entries.len() as u64));
            messages.push((to, Message::Prepare { view, behind, entries, committed }));
        }
        messages.into_iter().for_each(|(to, message)| self.send(to, message));
    }

    pub(crate) fn on_prepare(
        &mut self,
        now: Tick,
        from: MemberId,
        view: View,
        behind: OpNumber,
        entries: Vec<Entry>,
        committed: OpNumber,
    ) {
        if !self.hears_leader(now, from, view) {
            return;
        }
        if self.log_view != view || behind > self.log.end() {
            return self.ask_leader(now, view);
        }
        let members = self.lists().members;
        let known = usize::try_from(self.log.end().0 - behind.0).expect("in memory");
        let behind = self.log.end();
        let new: Vec<_> = entries.into_iter().skip(known).collect();
        for entry in &new {
            let op = self.log.end().next();
            if let Err(trouble) = apply(&mut self.decided, op, entry) {
                return self.stop(trouble);
            }
            self.log.push(entry.clone());
        }
        self.learn_again_if_not(&members);
        match new.is_empty() {
            true if self.durable.end >= self.log.end() => self.tell_prepared(),
            true => {}
            false => self.write(Record::Appended { behind, entries: new }),
        }
        self.commit_to(committed.min(self.log.end()));
    }

    /// Tells the leader what is on this disk of its log.
    pub(crate) fn tell_prepared(&mut self) {
        let (view, end) = (self.view, self.durable.end);
        if self.durable.log_view == view && view.leader != self.me && view != View::NONE {
            self.send(view.leader, Message::Prepared { view, end });
        }
    }

    pub(crate) fn on_prepared(&mut self, now: Tick, from: MemberId, view: View, end: OpNumber) {
        if view != self.view || end > self.log.end() {
            return;
        }
        let Role::Leads(lead) = &mut self.role else { return };
        if lead.progress.contains_key(&from) {
            lead.acknowledge(from, end);
            self.advance(now);
            self.flush();
        }
    }

    /// Commits what a quorum has on its disks.
    pub(crate) fn advance(&mut self, now: Tick) {
        let lists: Lists = self.lists();
        let Role::Leads(lead) = &self.role else { return };
        let quorum = match planted::is_on(Bug::ToldBeforeQuorum) {
            true => Some(lead.acknowledged(self.me)),
            false => lists.reached(|member| lead.acknowledged(member)),
        };
        let Some(Some(reached)) = quorum else { return };
        if reached <= self.committed_to {
            return;
        }
        self.commit_to(reached);
        let is_all = self.committed_to == self.log.end();
        if let Role::Leads(lead) = &mut self.role {
            lead.waits_since = if is_all { None } else { Some(now) };
        }
        self.advance(now); // without the one from which the group has grown, more may be committed
    }

    pub(crate) fn tick_lead(&mut self, now: Tick) {
        let (patience, beat, lease) = (self.options.patience, self.options.beat(), self.options.lease);
        let is_alone = self.is_alone();
        let Role::Leads(lead) = &mut self.role else { return };
        let is_cut_off = now.since(lead.rounds.completed_at()) > lead.bears;
        let is_stuck = lead.waits_since.is_some_and(|since| now.since(since) > patience);
        let is_cut_off = is_cut_off && !planted::is_on(Bug::LeaderKeepsOn);
        let is_stuck = is_stuck && !planted::is_on(Bug::StuckLeaderStays);
        if !is_alone && (is_cut_off || is_stuck) {
            // R9.8, R9.10: others lead better. It wishes last.
            let bears = lead.bears;
            self.depose();
            self.leader_heard = None;
            self.wishes_at = now.after(bears + lease);
            return;
        }
        let is_time = now >= lead.beats_at || lead.rounds.begins_at(&self.options).is_some_and(|at| now >= at);
        if now >= lead.beats_at {
            lead.beats_at = now.after(beat);
        }
        if is_time {
            self.begin_round(now);
        }
    }
}
