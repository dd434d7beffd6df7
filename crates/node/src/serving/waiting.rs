//! What waits at a serving primary, and goes on when something has come: updates and reads come in again as if they had just
//! arrived, so that each stage decides anew, by what is true then; answers leave.
//!
//! - **R3.1** All of it is lost with the term: clients ask again.
//! - **R4.2** Nothing is recorded of an update that waits. It has not run, and a witness must not drop it (`Why::replayed`).
//! - **R8.4** An answer leaves when its gate has opened.
//! - A client may send the same again meanwhile. Of an update the newest attempt is the one that is kept: no client waits for another. A copy of
//!   an attempt whose successor does not wait finds what that one came to. A read stays, and waits for what it waited for (0060).
//! - Memory is looked for now and then, not in each turn: the first that waits for it is drafted for that.
//! - An update for which there is no place is refused, as it would have been without waiting, and comes again by itself.

use std::collections::VecDeque;
use std::time::Duration;

use kasha_distributed::GateId;
use kasha_machine::waiting::{Bound, Waiter, WhenFull};
use kasha_machine::{Effect, Effects, Endpoint, Gate, WaitingRoom};
use kasha_types::probe::{Probe, hit};
use kasha_types::{ClientId, RpcId, Tick};
use kasha_wire::hot::ReadView;
use kasha_wire::{FRAME_HEADER_BYTES, Refusal};

use crate::request::{Caller, Condition};

/// The bytes of one read that waits.
const READ_BYTES_MAX: usize = 64 << 10;
/// How often memory is looked for while an update waits for it.
const MEMORY_INTERVAL: Duration = Duration::from_millis(1);

const UPDATES: usize = 0;
const READS: usize = 1;
const ANSWERS: usize = 2;
const BOUNDS: [Bound; 3] = [
    Bound { most: 256, bytes: 4 << 20, when_full: WhenFull::OldestLeaves },
    Bound { most: 1024, bytes: 16 << 20, when_full: WhenFull::NobodyEnters },
    Bound { most: usize::MAX, bytes: 16 << 20, when_full: WhenFull::NobodyEnters },
];

/// An update that came from a client.
#[derive(Debug)]
pub(crate) struct WaitingUpdate {
    pub caller: Caller,
    pub rpc: RpcId,
    pub body: Box<[u8]>,
    /// What its client is told if it waits no longer.
    pub refusal: Refusal,
}

/// A read that came from a client.
#[derive(Debug)]
pub(crate) struct WaitingRead {
    pub to: Endpoint,
    read_id: u64,
    pub payload: Box<[u8]>,
}

/// An answer to a client.
#[derive(Debug)]
pub(crate) struct WaitingAnswer {
    pub to: Endpoint,
    pub frame: Vec<u8>,
    /// What it waits for when its gate has opened.
    pub when: Gate,
}

#[derive(Debug)]
pub(crate) enum Waits {
    Update(WaitingUpdate),
    Read(WaitingRead),
    Answer(WaitingAnswer),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Id {
    Update(RpcId),
    Read(Endpoint, u64),
}

impl Waiter for Waits {
    type Id = Id;

    fn id(&self) -> Option<Id> {
        match self {
            Self::Update(update) => Some(Id::Update(update.rpc)),
            Self::Read(read) => Some(Id::Read(read.to, read.read_id)),
            Self::Answer(_) => None,
        }
    }

    fn class(&self) -> usize {
        match self {
            Self::Update(_) => UPDATES,
            Self::Read(_) => READS,
            Self::Answer(_) => ANSWERS,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Update(update) => update.body.len(),
            Self::Read(read) => read.payload.len(),
            Self::Answer(answer) => answer.frame.len(),
        }
    }
}

impl WaitingAnswer {
    /// Its gate has opened.
    pub fn leave(self, out: &mut Effects) {
        let mark = out.mark();
        out.arena().extend_from_slice(&self.frame);
        let head = out.span_from(mark);
        out.push(Effect::Send { to: self.to, head, tail: None, gate: self.when });
    }
}

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Waiting {
    room: WaitingRoom<Condition, Waits, 3>,
    /// What waits for nothing more, and goes on in this turn of the loop.
    ready: VecDeque<Waits>,
    memory_due_at: Tick,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { room: WaitingRoom::new(BOUNDS), ready: VecDeque::new(), memory_due_at: Tick(0) }
    }
}

impl Waiting {
    /// Lets an update wait, in the place of an earlier attempt if there is one: connections may deliver attempts out of order.
    /// Returns those for which there is no place now.
    pub fn park(
        &mut self,
        (caller, rpc): (Caller, RpcId),
        body: &[u8],
        condition: Condition,
    ) -> impl Iterator<Item = WaitingUpdate> + use<> {
        let is_older = match self.room.get(Id::Update(rpc)) {
            Some((Waits::Update(known), _)) => known.caller.envelope.attempt > caller.envelope.attempt,
            _ => false,
        };
        let refused = if is_older {
            Vec::new()
        } else {
            let refusal = condition.refusal();
            self.room.wait(vec![condition], Waits::Update(WaitingUpdate { caller, rpc, body: body.into(), refusal }))
        };
        refused.into_iter().filter_map(update)
    }

    /// Lets a read wait until all these transactions are pending no more. False: there is no place.
    pub fn park_read(&mut self, rpcs: Vec<RpcId>, to: Endpoint, view: &ReadView<'_>) -> bool {
        if view.arguments.len() > READ_BYTES_MAX {
            return false;
        }
        let mut frame = Vec::new();
        view.encode(&mut frame);
        let read = WaitingRead { to, read_id: view.read_id, payload: frame[FRAME_HEADER_BYTES..].into() };
        self.room.wait(rpcs.into_iter().map(Condition::Distributed).collect(), Waits::Read(read)).is_empty()
    }

    /// Whether this read waits.
    #[inline]
    pub fn has_read(&self, to: Endpoint, read_id: u64) -> bool {
        self.room.len(READS) > 0 && self.room.get(Id::Read(to, read_id)).is_some()
    }

    /// Keeps an answer until this gate has opened. False: there is no place for it.
    pub fn hold(&mut self, gate: GateId, answer: WaitingAnswer) -> bool {
        hit(Probe::AnswerBehindGate);
        self.room.wait(vec![Condition::Gate(gate)], Waits::Answer(answer)).is_empty()
    }

    /// Whether an answer of so many bytes finds a place.
    pub fn has_place_for_answer(&self, bytes: usize) -> bool {
        self.room.has_place(ANSWERS, bytes + FRAME_HEADER_BYTES)
    }

    /// Answers that wait for gates.
    pub fn held_answers(&self) -> u64 {
        self.room.len(ANSWERS) as u64
    }

    /// How many updates wait.
    pub fn updates(&self) -> usize {
        self.room.len(UPDATES)
    }

    /// How many wait for this.
    pub fn count(&self, condition: Condition) -> usize {
        self.room.count(condition)
    }

    /// These transactions are pending no more. Reads go on first: an update may be proposed, and a read that meets it waits once more.
    #[inline]
    pub fn open_distributed(&mut self, released: Vec<RpcId>) {
        if released.is_empty() {
            return; // nearly always
        }
        let opened = released.into_iter().flat_map(|rpc| self.room.open(Condition::Distributed(rpc)));
        let (reads, others): (Vec<_>, Vec<_>) = opened.partition(|waits| matches!(waits, Waits::Read(_)));
        self.ready.extend(reads.into_iter().chain(others));
    }

    /// What waited for this goes on.
    #[inline]
    pub fn open(&mut self, condition: Condition) {
        self.ready.extend(self.room.open(condition));
    }

    /// The next that goes on.
    #[inline]
    pub fn next_ready(&mut self) -> Option<Waits> {
        self.ready.pop_front()
    }

    /// The updates of this client, whose lease is over: they wait no longer.
    pub fn expire(&mut self, client: ClientId) -> impl Iterator<Item = WaitingUpdate> + use<> {
        self.room.open(Condition::Lease(client)).into_iter().filter_map(update)
    }

    /// When memory is to be looked for: never, if nobody waits for it.
    #[inline]
    pub fn memory_due_at(&self) -> Option<Tick> {
        self.room.awaits(Condition::Memory..=Condition::Memory).then_some(self.memory_due_at)
    }

    /// Whether it is time to look for memory. The next time is a little later.
    #[inline]
    pub fn is_memory_due(&mut self, now: Tick) -> bool {
        let is_due = self.memory_due_at().is_some_and(|at| now >= at);
        if is_due {
            self.memory_due_at = now.after(MEMORY_INTERVAL);
        }
        is_due
    }

    /// The first that waits for memory goes on.
    pub fn try_memory(&mut self) {
        self.ready.extend(self.room.open_for_first(Condition::Memory..=Condition::Memory, |_| true));
    }

    /// Whether an attempt of this update is here.
    pub fn holds(&self, rpc: RpcId) -> bool {
        let is_it = |waits: &Waits| waits.id() == Some(Id::Update(rpc));
        self.room.get(Id::Update(rpc)).is_some() || self.ready.iter().any(is_it)
    }

    /// Whether some have given way to those that have waited longer.
    #[inline]
    pub fn has_those_that_gave_way(&self) -> bool {
        self.room.awaits(Condition::turns())
    }

    /// This update goes on, if it has given way, and gives way to nobody again.
    pub fn let_through(&mut self, rpc: RpcId) {
        let gave_way = |conditions: &[Condition]| matches!(conditions, [Condition::Turn(_)]);
        if self.room.get(Id::Update(rpc)).is_some_and(|(_, conditions)| gave_way(conditions))
            && let Some(mut update) = self.room.remove(Id::Update(rpc)).and_then(update)
        {
            update.caller.gave_way = true;
            self.ready.push_back(Waits::Update(update));
        }
    }

    /// The first that has given way to one of these goes on.
    pub fn let_first_through(&mut self, is_gone: impl Fn(kasha_distributed::Age) -> bool) -> bool {
        let is_open = |condition| matches!(condition, Condition::Turn(elder) if is_gone(elder));
        let Some(mut update) = self.room.open_for_first(Condition::turns(), is_open).and_then(update) else {
            return false;
        };
        // Who has lost before goes by its age, and ends. Others would wait for one after the other.
        update.caller.gave_way = update.caller.envelope.turn.is_none();
        self.ready.push_back(Waits::Update(update));
        true
    }
}

fn update(waits: Waits) -> Option<WaitingUpdate> {
    match waits {
        Waits::Update(update) => Some(update),
        Waits::Read(_) | Waits::Answer(_) => None,
    }
}
