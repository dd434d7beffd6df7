//! The sans-IO contract (DESIGN section 3).
//!
//! A protocol is a deterministic state machine. It gets inputs and the time, and pushes effects. It never reads a
//! clock, blocks, fails or starts a thread. Every effect that leaves the machine carries a [`Gate`], the condition
//! under which it may leave. The shell (the runtime's event loop, or the simulator's world) runs [`turn::finish`] after
//! each batch of inputs. The two shells differ only in how they send a frame and write a file.
//!
//! Invariants kept here: **D3** nothing leaves before its gate ([`held::Held`]); **R3.1** when a role is lost,
//! everything that is held for it is dropped ([`Effect::DropHeld`]); **R9.1** so is what waits for the operations of a lead that is
//! lost ([`Effect::DropCommitted`]).

pub mod askers;
pub mod colocated;
pub mod coordinator;
pub mod disk;
pub mod effects;
pub mod fronted;
pub mod held;
pub mod rng;
pub mod trash;
pub mod turn;
pub mod waiting;

pub use askers::Askers;
pub use colocated::Colocated;
pub use coordinator::CoordinatorLinks;
pub use disk::{Disk, FileName};
pub use effects::{Data, Effect, Effects, Endpoint, Gate, Span};
pub use fronted::{Front, Fronted};
pub use held::Held;
pub use rng::Rng;
pub use trash::Trash;
pub use waiting::WaitingRoom;

use kasha_types::{ConnId, LocalPosition, LogSlice, Tick, UnixMillis};

/// One thing that happened. Borrows the transport's buffer.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A whole frame whose checksum was right.
    Frame {
        /// The accepted connection that the frame came in on, or the peer that was dialled.
        from: Endpoint,
        /// The frame's kind (see the wire crate's table).
        kind: u8,
        /// The bytes behind the frame's header.
        payload: &'a [u8],
    },
    /// A request on an accepted connection whose listener speaks another protocol than Kasha's: what its bytes are cut into there.
    Request {
        /// The accepted connection.
        from: ConnId,
        /// A line of text without its end, or a request of the Redis protocol.
        bytes: &'a [u8],
        /// Whether these are all its bytes. A request that is too long is cut.
        is_whole: bool,
    },
    /// No more requests come on such a connection. What is sent to it still arrives.
    RequestsEnd {
        /// The accepted connection.
        from: ConnId,
        /// Why.
        why: RequestsEnd<'a>,
    },
    /// Of what was sent on such a connection, so much has not left that its owner should send no more for now; or most of it has left again.
    Backlog {
        /// The accepted connection.
        of: ConnId,
        /// Whether it is too much.
        is_full: bool,
    },
    /// An accepted connection is closed. Nothing that is sent to it from now on arrives.
    Closed(ConnId),
    /// A dialled connection could not be made, or is closed. Frames that were sent to it may be lost.
    Unreachable(Endpoint),
    /// Everything up to this commit is on its file (see [`Effect::Commit`]).
    Durable(LocalPosition),
    /// What was written to log segments before the last [`Effect::FlushLogs`] survives a loss of power.
    LogsFlushed,
    /// What the clock on the wall shows now ([`Effect::ReadClock`]).
    UnixTime(UnixMillis),
    /// Time passed, and nothing else happened: `next_deadline` is reached.
    Tick,
}

/// Why a connection has no more requests, although it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestsEnd<'a> {
    /// What came is no request, for this reason.
    Bad(&'a str),
    /// The other side has said all that it had to say, and listens.
    HalfClosed,
}

/// A protocol state machine.
pub trait Machine {
    /// Handles one input. It cannot fail and cannot wait. `now` was read **after** the input was received (section 7):
    /// a process that was stopped in between must not use a lease that ran out meanwhile.
    fn step(&mut self, now: Tick, input: Input<'_>, out: &mut Effects);

    /// Closes a batch of inputs: one sync, one gc and one commit per turn, however many inputs it had.
    fn end_turn(&mut self, now: Tick, out: &mut Effects);

    /// The latest moment at which the machine wants an [`Input::Tick`].
    fn next_deadline(&self) -> Option<Tick>;

    /// Whether an effect with this gate may leave now. Once open, a gate stays open until its role is lost.
    fn is_open(&self, gate: Gate) -> bool;

    /// The bytes that an effect names. Called while performing the effects of this machine only.
    fn log_bytes(&self, slice: LogSlice) -> &[u8];

    /// Checks what must hold between turns; panics where it does not. Simulation calls it after every turn.
    fn assert_invariants(&self) {}
}
