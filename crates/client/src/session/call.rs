//! What a session keeps of a call, and the slab that calls live in.

use kasha_exactly_once::ClientWindow;
use kasha_types::limits::{FAULTS_MAX, OUTSTANDING_MAX};
use kasha_types::{ClientId, CoreId, Epoch, ListVersion, NodeId, Sequence, ShardId, Slot, TableId, Tick};
use kasha_witness::Attempt;

use super::completion::WhyNot;
use crate::limits;

/// Names one call of one session; never used for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub(super) u64);

impl CallId {
    fn new(slot: usize, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | slot as u64)
    }

    pub(super) fn slot(self) -> usize {
        (self.0 & u64::from(u32::MAX)) as usize
    }

    fn generation(self) -> u32 {
        u32::try_from(self.0 >> 32).expect("32 bits")
    }
}

/// A moment that never comes.
pub(super) const NEVER: Tick = Tick(u64::MAX);

/// One call.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) generation: u32,
    pub(super) kind: Kind,
    pub(super) stage: Stage,
    /// When its caller's patience ends.
    pub(super) deadline: Tick,
    /// When its stage wants to go on by itself.
    pub(super) resume: Tick,
    /// When the timer heap holds this call, `NEVER` if it does not.
    pub(super) armed: Tick,
    /// Its caller was told "unknown"; the session goes on (R2.2).
    pub(super) detached: bool,
    /// Its caller is gone: nobody is told (pitfall 1).
    pub(super) abandoned: bool,
    /// Something left for a server, so that "not executed" takes a recorded outcome from now on (R2.2).
    pub(super) sent: bool,
    /// Attempts sent; the last one's number.
    pub(super) attempts: u32,
    /// Attempts that got no word.
    pub(super) silent: u32,
    /// Refusals since the last silence.
    pub(super) refused: u32,
    /// The body (updates), arguments (reads) or name (tables).
    pub(super) bytes: Vec<u8>,
    /// The result of the running attempt.
    pub(super) result: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Free,
    Update(UpdateCall),
    Read { table: TableId, code: u8, slots: Slots },
    CreateTable,
    DropTable,
    Status { core: CoreId },
    Refresh,
}

/// An update beside its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UpdateCall {
    pub(super) table: TableId,
    pub(super) slots: Slots,
    pub(super) keys: u16,
    /// Time to live of the operation key in milliseconds.
    pub(super) operation_key_ttl: Option<u64>,
    /// Its number, once something was sent under it.
    pub(super) sequence: Option<Sequence>,
    /// From now on only `Cancel` is sent, and this is what a recorded `Cancelled` means.
    pub(super) cancelling: Option<WhyNot>,
    pub(super) cancel_on_deadline: bool,
    pub(super) out_of_memory: u32,
    /// Some attempt was answered: it has run somewhere.
    pub(super) answered: bool,
}

/// Which slots a call touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slots {
    One(Slot),
    /// Several: read them from the bytes.
    Several,
}

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its turn: a client id, room in the window (updates), or the request in front (tables).
    Queued,
    /// `resume`, or a newer configuration.
    Backoff { for_configuration: bool },
    /// The coordinator's own word on what is configured.
    ForCoordinator,
    /// Answers.
    InFlight(InFlight),
}

/// One attempt on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InFlight {
    pub(super) shard: ShardId,
    pub(super) epoch: Epoch,
    pub(super) primary: CoreId,
    pub(super) list: ListVersion,
    pub(super) attempt: Attempt,
    pub(super) witnesses: Witnesses,
    pub(super) sync_sent: bool,
}

/// The witnesses of an attempt, numbered by their place in the list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Witnesses {
    nodes: [NodeId; FAULTS_MAX as usize],
    count: u8,
}

impl Witnesses {
    pub(super) fn new(list: &[NodeId]) -> Self {
        let mut nodes = [NodeId(0); FAULTS_MAX as usize];
        nodes[..list.len()].copy_from_slice(list);
        Self { nodes, count: u8::try_from(list.len()).expect("at most f") }
    }

    pub(super) fn count(&self) -> u8 {
        self.count
    }

    pub(super) fn number_of(&self, node: NodeId) -> Option<u8> {
        self.nodes[..usize::from(self.count)].iter().position(|&n| n == node).and_then(|n| u8::try_from(n).ok())
    }
}

impl Call {
    fn new() -> Self {
        Self {
            generation: 0,
            kind: Kind::Free,
            stage: Stage::Queued,
            deadline: NEVER,
            resume: NEVER,
            armed: NEVER,
            detached: false,
            abandoned: false,
            sent: false,
            attempts: 0,
            silent: 0,
            refused: 0,
            bytes: Vec::new(),
            result: Vec::new(),
        }
    }

    /// When this call wants to be looked at.
    pub(super) fn wake(&self) -> Tick {
        if self.detached { self.resume } else { self.resume.min(self.deadline) }
    }

    /// The update's part.
    ///
    /// # Panics
    /// If it is another kind of call.
    pub(super) fn update(&mut self) -> &mut UpdateCall {
        match &mut self.kind {
            Kind::Update(update) => update,
            other => panic!("{other:?} is no update"),
        }
    }
}

/// All calls; a slot and its buffers are used again.
#[derive(Debug, Default)]
pub(super) struct Calls {
    slab: Vec<Call>,
    free: Vec<u32>,
    bytes: usize,
}

impl Calls {
    /// A call whose `bytes` were already filled in by `fill`.
    pub(super) fn insert(&mut self, kind: Kind, deadline: Tick, fill: impl FnOnce(&mut Vec<u8>)) -> usize {
        let slot = match self.free.pop() {
            Some(slot) => slot as usize,
            None => {
                self.slab.push(Call::new());
                self.slab.len() - 1
            }
        };
        let call = &mut self.slab[slot];
        (call.kind, call.stage, call.deadline, call.resume) = (kind, Stage::Queued, deadline, NEVER);
        (call.detached, call.abandoned, call.sent) = (false, false, false);
        (call.attempts, call.silent, call.refused) = (0, 0, 0);
        call.bytes.clear();
        call.result.clear();
        fill(&mut call.bytes);
        self.bytes += call.bytes.len();
        slot
    }

    pub(super) fn remove(&mut self, slot: usize) {
        let call = &mut self.slab[slot];
        assert!(call.kind != Kind::Free, "a call ends once");
        self.bytes -= call.bytes.len();
        call.kind = Kind::Free;
        call.generation = call.generation.wrapping_add(1);
        for buffer in [&mut call.bytes, &mut call.result] {
            buffer.clear();
            buffer.shrink_to(limits::BUFFER_KEPT_BYTES);
        }
        self.free.push(u32::try_from(slot).expect("far below 2^32 calls"));
    }

    pub(super) fn id(&self, slot: usize) -> CallId {
        CallId::new(slot, self.slab[slot].generation)
    }

    /// The slot of a call that has not ended.
    pub(super) fn find(&self, id: CallId) -> Option<usize> {
        let call = self.slab.get(id.slot())?;
        (call.kind != Kind::Free && call.generation == id.generation()).then_some(id.slot())
    }

    pub(super) fn has_room(&self, bytes: usize) -> bool {
        self.len() < limits::CALLS_MAX && self.bytes.saturating_add(bytes) <= limits::CALL_BYTES_MAX
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len() - self.free.len()
    }

    /// Every slot that was ever used; free ones have [`Kind::Free`].
    pub(super) fn slots(&self) -> std::ops::Range<usize> {
        0..self.slab.len()
    }
}

impl std::ops::Index<usize> for Calls {
    type Output = Call;
    fn index(&self, slot: usize) -> &Call {
        &self.slab[slot]
    }
}

impl std::ops::IndexMut<usize> for Calls {
    fn index_mut(&mut self, slot: usize) -> &mut Call {
        &mut self.slab[slot]
    }
}

/// A client id's sequences and the calls that hold them.
#[derive(Debug)]
pub(super) struct Numbered {
    pub(super) client: ClientId,
    pub(super) window: ClientWindow,
    /// The slot of the call that holds `sequence % OUTSTANDING_MAX`: the window makes it unique.
    calls: Box<[Option<(Sequence, u32)>]>,
}

impl Numbered {
    pub(super) fn new(client: ClientId) -> Self {
        let calls = vec![None; usize::try_from(OUTSTANDING_MAX).expect("512")].into_boxed_slice();
        Self { client, window: ClientWindow::new(), calls }
    }

    fn place(sequence: Sequence) -> usize {
        (sequence.0 % OUTSTANDING_MAX) as usize
    }

    pub(super) fn hold(&mut self, sequence: Sequence, slot: usize) {
        let slot = u32::try_from(slot).expect("far below 2^32 calls");
        let before = self.calls[Self::place(sequence)].replace((sequence, slot));
        assert!(before.is_none(), "{sequence} takes the place of {before:?}");
    }

    pub(super) fn slot_of(&self, client: ClientId, sequence: Sequence) -> Option<usize> {
        let (held, slot) = self.calls[Self::place(sequence)]?;
        (client == self.client && held == sequence).then_some(slot as usize)
    }

    /// The result of a sequence is there, or never will be: it may be acknowledged.
    pub(super) fn finish(&mut self, sequence: Sequence) {
        let held = self.calls[Self::place(sequence)].take();
        assert!(held.is_some_and(|(s, _)| s == sequence), "{sequence} was not held");
        self.window.finish(sequence);
    }

    pub(super) fn held(&self) -> impl Iterator<Item = (Sequence, usize)> {
        self.calls.iter().flatten().map(|&(sequence, slot)| (sequence, slot as usize))
    }
}
