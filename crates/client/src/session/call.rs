//! What a session keeps of a call.

use kasha_types::limits::FAULTS_MAX;
use kasha_types::{CoreId, Epoch, NodeId, RpcId, ShardId, Slot, TableId, Tick};
use kasha_wire::{Body, Read};
use kasha_witness::Attempt;

use super::completion::WhyNot;
use super::route::Target;

/// A moment that never comes.
pub(super) const NEVER: Tick = Tick(u64::MAX);

/// One call.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) kind: Kind,
    pub(super) stage: Stage,
    pub(super) caller: Caller,
    /// When its stage wants to go on by itself.
    pub(super) resume: Tick,
    /// Attempts sent; the last one's number.
    pub(super) attempts: u32,
    /// The primary that the last attempt on keys went to, and its epoch.
    pub(super) tried: Option<(Epoch, CoreId)>,
    /// Attempts that this primary has left without a word.
    pub(super) silent: u32,
    /// This primary's refusals since the last silence.
    pub(super) refused: u32,
    /// The shard whose share of the limits it takes.
    pub(super) owner: Option<ShardId>,
    /// The body (updates), arguments (reads) or name (tables).
    pub(super) bytes: Vec<u8>,
    /// The result of the running attempt.
    pub(super) result: Vec<u8>,
}

/// Who is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caller {
    /// Somebody with this much patience.
    Waits { deadline: Tick },
    /// Somebody who was told "unknown": the outcome is kept until it is asked for (R2.2).
    WasToldUnknown,
    /// Nobody (pitfall 1). What was to happen at the deadline still does.
    IsGone { deadline: Option<Tick> },
}

impl Caller {
    /// When its patience ends; `NEVER` if it has ended.
    pub(super) fn deadline(self) -> Tick {
        match self {
            Self::Waits { deadline } | Self::IsGone { deadline: Some(deadline) } => deadline,
            Self::WasToldUnknown | Self::IsGone { deadline: None } => NEVER,
        }
    }

    /// Moves a deadline that is there.
    pub(super) fn wait_until(&mut self, at: Tick) {
        match self {
            Self::Waits { deadline } | Self::IsGone { deadline: Some(deadline) } => *deadline = at,
            Self::WasToldUnknown | Self::IsGone { deadline: None } => {}
        }
    }

    pub(super) fn leave(&mut self) {
        *self = match *self {
            Self::Waits { deadline } => Self::IsGone { deadline: Some(deadline) },
            Self::WasToldUnknown => Self::IsGone { deadline: None },
            Self::IsGone { deadline } => Self::IsGone { deadline },
        };
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Update(UpdateCall),
    Read(ReadCall),
    Table(TableChange),
    Status { core: CoreId, question: CoreQuestion },
    Refresh,
}

/// What is asked of a core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CoreQuestion {
    /// How it is.
    Status,
    /// Which its longest turns were.
    Turns,
}

/// What is asked of the coordinator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableChange {
    Create,
    Drop,
}

/// An update beside its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UpdateCall {
    pub(super) keys: Keys,
    pub(super) key_count: u16,
    /// Time to live of the operation key in milliseconds.
    pub(super) operation_key_ttl: Option<u64>,
    /// Its name, from just before something is sent under it.
    pub(super) rpc: Option<RpcId>,
    pub(super) cancel: Cancel,
    pub(super) out_of_memory: u32,
}

/// A read beside its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadCall {
    pub(super) keys: Keys,
    pub(super) code: u8,
}

/// What updates and reads have in common: whom they concern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) table: TableId,
    pub(super) slots: Slots,
}

/// Which slots a call touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Slots {
    One(Slot),
    /// Several: read them from the bytes.
    Several,
}

/// Whether an update is to be executed at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cancel {
    Never,
    AtDeadline,
    /// Only `Cancel` is sent any more, and this is what a recorded `Cancelled` means.
    Begun(WhyNot),
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
    pub(super) target: Target,
    pub(super) attempt: Attempt,
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

    pub(super) fn nodes(&self) -> &[NodeId] {
        &self.nodes[..usize::from(self.count)]
    }

    pub(super) fn number_of(&self, node: NodeId) -> Option<u8> {
        self.nodes().iter().position(|&n| n == node).and_then(|n| u8::try_from(n).ok())
    }
}

impl Call {
    /// When this call wants to be looked at.
    pub(super) fn wake(&self) -> Tick {
        self.resume.min(self.caller.deadline())
    }

    /// Something left for a server, so that "not executed" takes a recorded outcome from now on (R2.2).
    pub(super) fn is_sent(&self) -> bool {
        self.attempts > 0
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

    /// Every key of an operation; table requests and questions have none.
    pub(super) fn for_each_key(&self, each: impl FnMut(&[u8])) {
        match self.kind {
            Kind::Update(_) => Body::decode(&self.bytes).expect("encoded here").update.for_each_key(each),
            Kind::Read(read) => Read::decode(read.code, &self.bytes).expect("encoded here").for_each_key(each),
            Kind::Table(_) | Kind::Status { .. } | Kind::Refresh => {}
        }
    }
}
