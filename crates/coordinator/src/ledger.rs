//! What is decided, and what is committed (0054).
//!
//! A command is an operation of the group's log. It is *decided* when the leader has appended it. The decided state has it at
//! once, since the next decision begins before this one is committed, and must not contradict it. It is *committed* when a
//! quorum of the group has it on its disks: only then does the committed state have it. In between it may be lost, so nobody may
//! have heard of it. What the coordinator tells is therefore read from the committed state, or waits for every decision
//! before it ([`Basis`]).
//!
//! **D3**, **R9.1** A [`Basis`] is made here only. It names the view, too: what a leader has made waits for its own view, and is
//! dropped with the lead. The group has one member as yet, whose own file is a quorum.

use std::collections::VecDeque;
use std::time::Duration;

use kasha_machine::{Effects, Gate};
use kasha_types::{LocalPosition, Tick, ViewNumber};
use kasha_viewstamped::{
    Change, Lists, MemberId, Message, OpNumber, Options, Output, Replica, RoundNumber, State as _, Stored, Trouble,
    View,
};

use crate::clients::ClientLeases;
use crate::limits::PENDING_BYTES_MAX;
use crate::remembered::{Recalled, Remembered, Told};
use crate::replicated::operation;
use crate::state::FIRST_MEMBER;
use crate::storage::{Files, Found};
use crate::{Command, CoordinatorOptions, State};

/// What a message follows from: operations of a view, up to this one, and that this member led when the question came which the message
/// answers. It leaves when they are committed, and a round has confirmed that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Basis(Option<(View, OpNumber, RoundNumber)>);

impl Basis {
    /// No command: a message that follows from what has just come in.
    pub(crate) const NO_COMMAND: Self = Self(None);

    /// The gate of a message that follows from this.
    pub(crate) fn gate(self) -> Gate {
        self.0.map_or(Gate::Now, |(view, op, round)| Gate::Committed { view: view.number, op: op.0, round: round.0 })
    }
}

/// Who is a member of no group as yet.
const NOBODY: MemberId = MemberId(0);

/// What a newcomer begins with: it knows of no member, and the log that it is taught has everything.
fn newcomer(options: &CoordinatorOptions) -> Stored {
    let mut state = State::new(options);
    state.configuration.group.clear();
    Stored::new(Lists::default(), state.snapshot())
}

/// What a group begins with. A newcomer is at the operation 0, with a state of its own: so it gets this snapshot before anything else.
pub(crate) fn first(member: MemberId, state: &State) -> Stored {
    let mut stored = Stored::new(Lists::new([member]), state.snapshot());
    stored.snapshot.op = OpNumber(1);
    stored.committed = stored.snapshot.op;
    stored
}

fn replica(
    member: MemberId,
    options: &CoordinatorOptions,
    stored: Stored,
    note: &[u8],
    now: Tick,
) -> Replica<State, Remembered> {
    let timing = Options::new(options.node_lease);
    let &CoordinatorOptions { node_lease, drift_bound, client_lease_millis, boot, .. } = options;
    let remembered = Remembered::start((node_lease, drift_bound), client_lease_millis, boot, note, now);
    let replica = Replica::start(member, timing, stored, remembered, options.seed, now);
    replica.expect("what was found was checked")
}

/// What becomes of the lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turnover {
    /// This member leads since then (R9.3), and this is what its quorum remembers (R9.4).
    Leads { since: Tick, recalled: Recalled },
    /// This member leads no more: what it has made in its view must not leave (R9.1).
    Deposed,
}

/// The commands of the coordinator, on their way from decided to committed.
#[derive(Debug)]
pub(crate) struct Ledger {
    replica: Replica<State, Remembered>,
    files: Files,
    /// Until a leader makes this process a member of its group: what it is to begin with. Nothing is written before.
    newcomer: Option<CoordinatorOptions>,
    turnovers: VecDeque<Turnover>,
    /// What is to be said to other members.
    messages: Vec<(MemberId, Message)>,
    /// Commands of this lead that are not committed, and how many bytes each has.
    in_flight: VecDeque<(OpNumber, usize)>,
    /// How many bytes these have together.
    bytes_in_flight: usize,
    /// The round that confirms that this member led when the last question came.
    asked: RoundNumber,
    /// Why this member takes no part any more (R9.11).
    trouble: Option<Trouble>,
    /// What was committed, and whether all that was asked was confirmed, when somebody looked last.
    seen_open: (OpNumber, bool),
}

impl Ledger {
    /// Goes on from what was found, or begins a new cluster.
    pub(crate) fn start(options: &CoordinatorOptions, found: Found, now: Tick) -> Self {
        let Found { log, files } = found;
        let is_newcomer = log.is_none() && !options.begins;
        let (member, stored) = match log {
            Some(log) => (files.member(), log.stored),
            None if is_newcomer => (NOBODY, newcomer(options)),
            None => (FIRST_MEMBER, first(FIRST_MEMBER, &State::new(options))),
        };
        let replica = replica(member, options, stored, files.note(), now);
        let newcomer = is_newcomer.then(|| options.clone());
        let mut ledger = Self {
            replica,
            files,
            newcomer,
            turnovers: VecDeque::new(),
            messages: Vec::new(),
            in_flight: VecDeque::new(),
            bytes_in_flight: 0,
            asked: RoundNumber(0),
            trouble: None,
            seen_open: (OpNumber(0), false),
        };
        ledger.settle();
        ledger
    }

    /// What the next decision begins from.
    pub(crate) fn decided(&self) -> &State {
        self.replica.decided()
    }

    /// What anybody may know.
    pub(crate) fn committed(&self) -> &State {
        self.replica.committed()
    }

    /// Decides a command. What is told from now on may follow from it.
    ///
    /// # Panics
    /// If this member does not lead, or the decided state does not permit the command.
    pub(crate) fn decide(&mut self, now: Tick, command: &Command) {
        let operation = operation(command);
        let bytes = operation.len();
        let op = self.replica.propose(now, operation).expect("R9.1: only a leader decides");
        self.in_flight.push_back((op, bytes));
        self.bytes_in_flight += bytes;
        self.settle();
    }

    /// A question has come: whoever leads by now may have decided otherwise. So its answer, and whatever else is said from now on,
    /// waits until a round that begins now has ended (R9.2).
    pub(crate) fn question(&mut self, now: Tick) {
        if let Some(round) = self.replica.question(now) {
            self.asked = round;
            self.settle();
        }
    }

    /// An answer tells this time: the round that it waits for carries it (R9.4).
    pub(crate) fn note_told(&mut self, now: Tick, told: Told) {
        self.replica.memory_mut().tell(now, told);
    }

    /// The lease by which the group elects.
    pub(crate) fn set_lease(&mut self, lease: Duration) {
        self.replica.set_options(Options::new(lease));
    }

    /// The leases of clients, as far as this member remembers them.
    pub(crate) fn clients(&self) -> &ClientLeases {
        &self.replica.memory().clients
    }

    /// The same, to be changed by a leader.
    pub(crate) fn clients_mut(&mut self) -> &mut ClientLeases {
        &mut self.replica.memory_mut().clients
    }

    /// The round that confirms that this member led when the last question came.
    pub(crate) fn asked(&self) -> RoundNumber {
        self.asked
    }

    /// Whether that round has ended, in a view that began with all that was committed.
    pub(crate) fn is_confirmed(&self, round: RoundNumber) -> bool {
        self.replica.is_confirmed(round)
    }

    /// Whether another member, or one that was invited, was heard not longer ago than this.
    pub(crate) fn has_heard(&self, now: Tick, member: MemberId, time: Duration) -> bool {
        self.replica.heard_within(now, member, time)
    }

    /// All that is decided by now, and that was asked: the basis of a message that may follow from any of it.
    pub(crate) fn all_decided(&self) -> Basis {
        let is_open = self.is_all_committed() && self.replica.is_confirmed(self.asked);
        Basis((!is_open).then(|| (self.replica.view(), self.replica.decided_to(), self.asked)))
    }

    /// Whether what waits for this operation of this view, and for this round, may leave.
    pub(crate) fn is_committed(&self, view: u64, op: u64, round: u64) -> bool {
        let is_ours = self.replica.leads() && self.replica.view().number == view;
        is_ours && op <= self.replica.committed_to().0 && self.replica.is_confirmed(RoundNumber(round))
    }

    /// Whether what follows from this may leave.
    pub(crate) fn has_committed(&self, basis: Basis) -> bool {
        basis.0.is_none_or(|(view, op, round)| self.is_committed(view.number, op.0, round.0))
    }

    /// Whether nothing decided waits to be committed.
    pub(crate) fn is_all_committed(&self) -> bool {
        self.replica.committed_to() == self.replica.decided_to()
    }

    /// Whether too much waits to be committed.
    pub(crate) fn is_backed_up(&self) -> bool {
        self.bytes_in_flight > PENDING_BYTES_MAX
    }

    /// A commit of our own files is done.
    pub(crate) fn on_durable(&mut self, now: Tick, position: LocalPosition, out: &mut Effects) {
        if let Some(number) = self.files.on_synced(position, out) {
            self.replica.on_durable(now, number);
            self.settle();
        }
    }

    /// Whether something was committed since this was asked last, or what was asked is confirmed.
    pub(crate) fn has_opened(&mut self) -> bool {
        let now = (self.replica.committed_to(), self.replica.is_confirmed(self.asked));
        now != std::mem::replace(&mut self.seen_open, now)
    }

    /// The view in which this member is.
    pub(crate) fn view(&self) -> ViewNumber {
        ViewNumber(self.replica.view().number)
    }

    /// That view, and its leader, if this is another member.
    pub(crate) fn whom_it_follows(&self) -> (ViewNumber, Option<MemberId>) {
        let View { number, leader } = self.replica.view();
        (ViewNumber(number), Some(leader).filter(|&leader| leader != self.replica.me()))
    }

    /// Whether this leader's rounds have not ended for so long.
    pub(crate) fn is_cut_off(&self, now: Tick, within: Duration) -> bool {
        self.replica.is_cut_off(now, within)
    }

    /// This member.
    pub(crate) fn me(&self) -> MemberId {
        self.replica.me()
    }

    /// A leader makes this process a member of its group.
    pub(crate) fn become_member(&mut self, member: MemberId, now: Tick) {
        if let Some(options) = self.newcomer.take() {
            self.files.become_member(member);
            self.replica = replica(member, &options, newcomer(&options), &[], now);
            self.settle();
        }
    }

    /// The newest list of members.
    pub(crate) fn lists(&self) -> Lists {
        self.replica.lists()
    }

    /// A newcomer learns. Returns whether it has all that is committed.
    pub(crate) fn teach(&mut self, member: MemberId) -> bool {
        self.replica.teach(member);
        self.replica.has_caught_up(member)
    }

    /// Asks a member to lead, if it has all that is committed.
    pub(crate) fn hand_over(&mut self, to: MemberId) -> bool {
        let may = self.replica.has_caught_up(to);
        if may {
            self.replica.hand_over(to);
            self.settle();
        }
        may
    }

    /// Changes the list of members, if that may be now.
    pub(crate) fn change(&mut self, now: Tick, change: &Change) -> bool {
        let has_changed = self.replica.change(now, change).is_ok();
        self.settle();
        has_changed
    }

    /// Another member speaks.
    pub(crate) fn on_message(&mut self, now: Tick, from: MemberId, message: Message) {
        self.replica.on_message(now, from, message);
        self.settle();
    }

    /// The connection to another member is closed.
    pub(crate) fn on_closed(&mut self, now: Tick, member: MemberId) {
        self.replica.on_closed(now, member);
        self.settle();
    }

    /// Why this member takes no part any more, if that is so.
    pub(crate) fn trouble(&self) -> Option<&Trouble> {
        self.trouble.as_ref()
    }

    /// Whether a write of the files is durable.
    pub(crate) fn has_files(&self) -> bool {
        self.files.has_any()
    }

    /// What is to be said to other members.
    pub(crate) fn take_messages(&mut self) -> Vec<(MemberId, Message)> {
        std::mem::take(&mut self.messages)
    }

    /// Time passes.
    pub(crate) fn on_tick(&mut self, now: Tick) {
        if self.next_deadline().is_some_and(|at| now >= at) {
            self.replica.on_tick(now);
            self.settle();
        }
    }

    /// When [`Self::on_tick`] has something to do.
    pub(crate) fn next_deadline(&self) -> Option<Tick> {
        self.replica.next_deadline()
    }

    /// What has become of the lead since this was asked last, in order.
    pub(crate) fn next_turnover(&mut self) -> Option<Turnover> {
        self.turnovers.pop_front()
    }

    /// Writes what is decided to our own files.
    pub(crate) fn flush(&mut self, now: Tick, out: &mut Effects) {
        if self.files.is_full() {
            self.replica.write_anew();
        }
        self.replica.flush();
        self.settle();
        if self.files.has_waiting() {
            self.files.set_note(self.replica.memory().note(now));
        }
        self.files.flush(out);
    }

    /// Takes what the replica wants done.
    fn settle(&mut self) {
        for output in self.replica.take_output() {
            match output {
                Output::Write { .. } if self.newcomer.is_some() => {}
                Output::Write { number, record } => self.files.push(number, record),
                Output::Leads { since, memories, .. } => {
                    let recalled = Recalled::of(&memories);
                    self.turnovers.push_back(Turnover::Leads { since, recalled });
                }
                Output::Deposed { .. } => {
                    self.in_flight.clear();
                    (self.bytes_in_flight, self.asked) = (0, RoundNumber(0));
                    // A lead that was lost before anybody knew of it never began.
                    let began_unseen = |last: &mut Turnover| matches!(last, Turnover::Leads { .. });
                    if self.turnovers.pop_back_if(began_unseen).is_none() {
                        self.turnovers.push_back(Turnover::Deposed);
                    }
                }
                Output::Stops(trouble) => self.trouble = Some(trouble),
                Output::Send { to, message } => self.messages.push((to, message)),
            }
        }
        let committed = self.replica.committed_to();
        while let Some((_, bytes)) = self.in_flight.pop_front_if(|(op, _)| *op <= committed) {
            self.bytes_in_flight -= bytes;
        }
    }

    /// Another member has entered a later view, and says so.
    #[cfg(test)]
    pub(crate) fn hear_of_a_later_view(&mut self, now: Tick) {
        let leader = kasha_viewstamped::MemberId(9);
        let view = View { number: self.replica.view().number + 1, leader };
        self.replica.on_message(now, leader, kasha_viewstamped::Message::Enter { view });
        self.settle();
    }

    /// Panics if the two states do not differ by what is between them in the log.
    pub(crate) fn assert_invariants(&self) {
        self.replica.assert_invariants();
        self.decided().assert_invariants();
        let between = self.replica.decided_to().0 - self.replica.committed_to().0;
        let commands = self.decided().applied() - self.committed().applied();
        assert!(commands <= between, "D3: a decision is committed once");
        let is_same = self.decided() == self.committed();
        assert!(commands > 0 || is_same, "D3: what is committed is what was decided");
    }
}
