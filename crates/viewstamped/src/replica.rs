//! One member: what it knows, what comes in, what goes out.
//!
//! The protocols are in files of their own: `normal` (operations), `rounds`, `wishes`, `election`, `transfer`, `change`. This one has
//! what they share: the view, the log and both states, the disk, the clock.
//!
//! **A member says only what is on its disk** (R9.5). Each write has a [`Landmark`]: what the disk has when the write is durable. What a
//! member tells of its view and its log is read from the last landmark that is.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use kasha_types::Tick;
use kasha_types::planted::{self, Bug};

use crate::election::Election;
use crate::gathering::Knowledge;
use crate::limits::{DIGESTS_MAX, HEARD_MAX};
use crate::log::{Entry, Log, Snapshot};
use crate::message::Message;
use crate::normal::Lead;
use crate::options::Timeouts;
use crate::output::{Output, Record, Stored, Trouble};
use crate::wishes::{Supported, Wish};
use crate::{Lists, MemberId, Memory, OpNumber, Options, State, View, WriteNumber};

/// What the disk has when a write is durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Landmark {
    pub view: View,
    pub log_view: View,
    pub end: OpNumber,
}

/// What a member does in its view.
#[derive(Debug)]
pub(crate) enum Role {
    /// It follows the view's leader, or waits for its log.
    Follows,
    /// It has entered a view that it is to lead, and collects votes.
    Elects(Election),
    /// It leads.
    Leads(Lead),
    /// It takes no part any more (R9.11).
    Stopped,
}

/// A member of a group. See the crate's documentation.
#[derive(Debug)]
pub struct Replica<S, M> {
    pub(crate) me: MemberId,
    pub(crate) options: Options,
    pub(crate) timeouts: Timeouts,
    /// The view that it has entered, in memory.
    pub(crate) view: View,
    /// The view whose leader had this log. Not that of `view`: it waits for the log.
    pub(crate) log_view: View,
    pub(crate) log: Log,
    pub(crate) committed_to: OpNumber,
    /// The state with everything in the log.
    pub(crate) decided: S,
    /// The state with what is committed.
    pub(crate) committed: S,
    pub(crate) memory: M,
    pub(crate) knowledge: Knowledge,
    /// For the next question about what others remember.
    pub(crate) next_nonce: u64,
    pub(crate) digests: VecDeque<(OpNumber, u64)>,
    pub(crate) role: Role,
    pub(crate) wish: Option<Wish>,
    /// A log that it was to take over says that this member has left. It wishes no more, until a leader speaks to it.
    pub(crate) has_left: bool,
    /// Whose wish it has supported.
    pub(crate) supported: Option<Supported>,
    /// When each other was last heard.
    pub(crate) heard: BTreeMap<MemberId, Tick>,
    /// When the leader of the view, or of a later one, was last heard.
    pub(crate) leader_heard: Option<Tick>,
    /// When this member wishes, if it does not hear the leader.
    pub(crate) wishes_at: Tick,
    /// The greatest number of a view that it has heard of.
    pub(crate) highest: u64,
    /// Which log was asked for in which view, and when.
    pub(crate) asked_log: Option<(View, Tick)>,
    pub(crate) stepped: Tick,
    written: WriteNumber,
    on_their_way: VecDeque<(WriteNumber, Landmark)>,
    pub(crate) durable: Landmark,
    pub(crate) out: Vec<Output>,
}

impl<S: State, M: Memory> Replica<S, M> {
    /// A member that starts with what its disk holds. It writes that anew, for this boot of its machine.
    ///
    /// # Errors
    /// If the stored state cannot be read, or an operation behind it is not permitted.
    pub fn start(
        me: MemberId,
        options: Options,
        stored: Stored,
        memory: M,
        seed: u64,
        now: Tick,
    ) -> Result<Self, Trouble> {
        let Stored { view, log_view, snapshot, entries, committed } = stored;
        let state = S::restore(&snapshot.state).map_err(Trouble::Unreadable)?;
        let log = Log::new(snapshot.op, snapshot.lists, entries);
        let base = log.base();
        let mut timeouts = Timeouts::new(seed);
        let wishes_at = now.after(timeouts.silent(now, options.lease));
        let mut replica = Self {
            me,
            options,
            timeouts,
            view,
            log_view,
            committed_to: base,
            decided: state.clone(),
            memory,
            knowledge: Knowledge::of_a_start(),
            // A later process of this folder has another seed, or another time.
            next_nonce: seed.wrapping_add(now.0),
            digests: VecDeque::from([(base, state.digest())]),
            committed: state,
            role: Role::Follows,
            wish: None,
            has_left: false,
            supported: None,
            heard: BTreeMap::new(),
            leader_heard: None,
            wishes_at,
            highest: view.number,
            asked_log: None,
            stepped: now,
            written: WriteNumber(0),
            on_their_way: VecDeque::new(),
            durable: Landmark { view, log_view, end: log.end() },
            out: Vec::new(),
            log,
        };
        replica.decided = replica.state_at_end(&replica.log, base)?;
        if replica.is_alone() {
            replica.enter_alone(now);
        } else {
            replica.commit_to(committed.min(replica.log.end()));
            replica.write_anew();
        }
        Ok(replica)
    }

    /// This member.
    #[must_use]
    pub fn me(&self) -> MemberId {
        self.me
    }

    /// The view that it has entered.
    #[must_use]
    pub fn view(&self) -> View {
        self.view
    }

    /// Whether it leads its view.
    #[must_use]
    pub fn leads(&self) -> bool {
        matches!(self.role, Role::Leads(_))
    }

    /// Whether it leads a group of several, and no round has ended within this time. What it stood still itself is not counted.
    #[must_use]
    pub fn is_cut_off(&self, now: Tick, within: Duration) -> bool {
        let Role::Leads(lead) = &self.role else { return false };
        !self.is_alone() && now.since(lead.rounds.completed_at()) > within
    }

    /// The last operation that it knows to be committed.
    #[must_use]
    pub fn committed_to(&self) -> OpNumber {
        self.committed_to
    }

    /// The last operation in its log: what the decided state has.
    #[must_use]
    pub fn decided_to(&self) -> OpNumber {
        self.log.end()
    }

    /// The state with what is committed: what anybody may know.
    #[must_use]
    pub fn committed(&self) -> &S {
        &self.committed
    }

    /// The state with everything in the log: what the leader's next decision begins from.
    #[must_use]
    pub fn decided(&self) -> &S {
        &self.decided
    }

    /// What it remembers of rounds.
    #[must_use]
    pub fn memory(&self) -> &M {
        &self.memory
    }

    /// The same, to be changed.
    pub fn memory_mut(&mut self) -> &mut M {
        &mut self.memory
    }

    /// Other time-outs, from now on. All members should have the same.
    pub fn set_options(&mut self, options: Options) {
        self.options = options;
    }

    /// The newest list of members.
    #[must_use]
    pub fn lists(&self) -> Lists {
        self.log.lists(self.committed_to)
    }

    /// What is to be done now.
    pub fn take_output(&mut self) -> Vec<Output> {
        std::mem::take(&mut self.out)
    }

    /// The disk holds everything up to this write.
    pub fn on_durable(&mut self, now: Tick, number: WriteNumber) {
        while let Some((_, landmark)) = self.on_their_way.pop_front_if(|(write, _)| *write <= number) {
            self.durable = landmark;
        }
        if self.durable.view < self.view {
            return;
        }
        match &mut self.role {
            Role::Follows if self.durable.log_view == self.view => self.tell_prepared(),
            Role::Follows => self.vote(now),
            Role::Elects(_) if self.durable.log_view == self.view => self.lead_alone(now),
            Role::Elects(_) => self.vote_for_self(now),
            Role::Leads(lead) => {
                if self.durable.log_view == self.view {
                    lead.acknowledge(self.me, self.durable.end);
                    self.advance(now);
                }
            }
            Role::Stopped => {}
        }
    }

    /// A message comes from another member.
    pub fn on_message(&mut self, now: Tick, from: MemberId, message: Message) {
        if matches!(self.role, Role::Stopped) {
            return;
        }
        self.note_step(now);
        self.note_heard(now, from);
        self.highest = self.highest.max(message.view().number);
        match message {
            Message::Wish { view, heard } => self.on_wish(now, from, view, &heard),
            Message::Support { view } => self.on_support(now, from, view),
            Message::Enter { view } => self.on_enter(now, from, view),
            Message::Vote { view, log_view, end, committed, memory } => {
                let landmark = Landmark { view, log_view, end };
                self.on_vote(now, from, landmark, committed, memory);
            }
            Message::Newer { view } => self.on_newer(now, from, view),
            Message::GetLog { view, behind } => self.on_get_log(from, view, behind),
            Message::Log { view, log_view, piece, committed } => {
                self.on_log(now, from, view, log_view, piece, committed);
            }
            Message::Prepare { view, behind, entries, committed } => {
                self.on_prepare(now, from, view, behind, entries, committed);
            }
            Message::Prepared { view, end } => self.on_prepared(now, from, view, end),
            Message::Round { view, round, value, committed, agreed } => {
                self.on_round(now, from, view, round, &value, committed, agreed);
            }
            Message::RoundOk { view, round, end, digest } => {
                self.on_round_ok(now, from, view, round, end, digest);
            }
            Message::GetMemory { view, at } => self.on_get_memory(now, from, view, at),
            Message::Memory { view, at, piece, next } => self.on_memory(now, from, view, at, &piece, next),
            Message::Lead { view } => self.on_lead(now, from, view),
        }
    }

    /// The connection to another member is closed: a leader that is gone is replaced sooner than one that is silent (R9.7).
    pub fn on_closed(&mut self, now: Tick, member: MemberId) {
        self.heard.remove(&member);
        if member == self.view.leader && matches!(self.role, Role::Follows) {
            let soon = now.after(self.timeouts.closed(self.options.lease));
            self.leader_heard = None;
            self.wishes_at = self.wishes_at.min(soon);
        }
    }

    /// Time passes. To be called at [`Self::next_deadline`], and may be called at any time.
    pub fn on_tick(&mut self, now: Tick) {
        self.note_step(now);
        match self.role {
            Role::Stopped => {}
            Role::Leads(_) => self.tick_lead(now),
            Role::Elects(_) | Role::Follows => {
                self.tick_election(now);
                self.tick_wish(now);
            }
        }
    }

    /// When [`Self::on_tick`] is to be called.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Tick> {
        match &self.role {
            Role::Stopped => None,
            Role::Leads(lead) => Some(lead.next_deadline(&self.options)),
            Role::Elects(election) => Some(self.wish_deadline().min(election.asks_at)),
            Role::Follows => Some(self.wish_deadline()),
        }
    }

    /// What its log is written to is long: it begins anew, with a snapshot of what is committed.
    pub fn write_anew(&mut self) {
        if planted::is_on(Bug::DecidedInSnapshot) {
            return self.write_decided();
        }
        self.log.trim(self.committed_to);
        let state = self.committed.snapshot();
        let lists = self.log.lists_at(self.committed_to, self.committed_to);
        self.write(Record::Whole(Stored {
            view: self.view,
            log_view: self.log_view,
            snapshot: Snapshot { op: self.committed_to, lists, state },
            entries: match planted::is_on(Bug::SuffixForgotten) {
                true => Vec::new(),
                false => self.log.entries().cloned().collect(),
            },
            committed: self.committed_to,
        }));
    }

    /// What [`Bug::DecidedInSnapshot`] writes.
    fn write_decided(&mut self) {
        let (op, state) = (self.log.end(), self.decided.snapshot());
        let snapshot = Snapshot { op, lists: self.log.lists(self.committed_to), state };
        let (view, log_view, entries) = (self.view, self.log_view, Vec::new());
        self.write(Record::Whole(Stored { view, log_view, snapshot, entries, committed: op }));
    }

    pub(crate) fn write(&mut self, record: Record) {
        self.written.0 += 1;
        let landmark = Landmark { view: self.view, log_view: self.log_view, end: self.log.end() };
        self.on_their_way.push_back((self.written, landmark));
        self.out.push(Output::Write { number: self.written, record });
    }

    /// Whether a write of ours is not durable.
    pub(crate) fn waits_for_disk(&self) -> bool {
        !self.on_their_way.is_empty()
    }

    pub(crate) fn send(&mut self, to: MemberId, message: Message) {
        debug_assert_ne!(to, self.me, "nobody sends to itself");
        self.out.push(Output::Send { to, message });
    }

    /// All members of the newest list but this one.
    pub(crate) fn others(&self) -> Vec<MemberId> {
        let me = self.me;
        self.lists().members.into_iter().filter(|member| *member != me).collect()
    }

    /// Whether this one is the only member.
    pub(crate) fn is_alone(&self) -> bool {
        let lists = self.lists();
        lists.members.len() == 1 && lists.members.contains(&self.me)
    }

    /// Everything up to here is committed, as far as it is here.
    pub(crate) fn commit_to(&mut self, op: OpNumber) {
        while self.committed_to < op {
            let next = self.committed_to.next();
            let Some(entry) = self.log.get(next) else { return };
            if let Entry::Operation(operation) = entry {
                self.committed.apply(operation);
            }
            let is_list = matches!(entry, Entry::Lists(_));
            self.committed_to = next;
            self.digests.push_back((next, self.committed.digest()));
            if self.digests.len() > DIGESTS_MAX {
                self.digests.pop_front();
            }
            if is_list {
                self.write(Record::Committed(next));
            }
        }
    }

    /// The state with everything in a log, made of the committed one, which has everything up to here.
    pub(crate) fn state_at_end(&self, log: &Log, committed: OpNumber) -> Result<S, Trouble> {
        let mut state = self.committed.clone();
        let mut op = committed;
        while let Some(entry) = log.get(op.next()) {
            op = op.next();
            apply(&mut state, op, entry)?;
        }
        Ok(state)
    }

    pub(crate) fn stop(&mut self, trouble: Trouble) {
        if self.leads() {
            self.out.push(Output::Deposed { view: self.view });
        }
        self.role = Role::Stopped;
        self.out.push(Output::Stops(trouble));
    }

    /// Panics if something is not as it must be.
    pub fn assert_invariants(&self) {
        assert!(self.log_view <= self.view, "R9.5: a log is of no later view than the one that was entered");
        assert!(self.log.base() <= self.committed_to, "R9.5: only what is committed is in a snapshot");
        assert!(self.committed_to <= self.log.end(), "what is committed is in the log");
        assert!(self.durable.view <= self.view, "R9.5: the disk is not ahead");
        if self.leads() {
            assert!(self.view.leader == self.me && self.log_view == self.view, "a leader has its log");
        }
    }

    /// Notes the time. If this member stood still, it was its own silence, whatever it hears first now.
    fn note_step(&mut self, now: Tick) {
        let stall = now.since(self.stepped);
        self.stepped = self.stepped.max(now);
        if let Role::Leads(lead) = &mut self.role
            && stall > self.options.lease / 2
        {
            lead.rounds.excuse(stall);
        }
    }

    /// Anybody may become a member, so all are remembered, as far as there is room: whoever has been silent for longest is forgotten.
    fn note_heard(&mut self, now: Tick, from: MemberId) {
        self.heard.insert(from, now);
        if self.heard.len() > HEARD_MAX
            && let Some(silent) = self.heard.iter().min_by_key(|(_, then)| **then).map(|(&member, _)| member)
        {
            self.heard.remove(&silent);
        }
    }

    /// Whether somebody was heard, and not longer ago than this.
    #[must_use]
    pub fn heard_within(&self, now: Tick, member: MemberId, time: Duration) -> bool {
        self.heard.get(&member).is_some_and(|&then| now.since(then) <= time)
    }
}

/// Applies an entry, if that is permitted (R9.11).
pub(crate) fn apply<S: State>(state: &mut S, op: OpNumber, entry: &Entry) -> Result<(), Trouble> {
    if let Entry::Operation(operation) = entry {
        state.permits(operation).map_err(|why| Trouble::Refused(op, why))?;
        state.apply(operation);
    }
    Ok(())
}
