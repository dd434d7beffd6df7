//! The sans-IO contract (DESIGN section 3).
//!
//! A protocol is a deterministic state machine. It is given inputs and the time, and pushes effects; it never reads a
//! clock, blocks, fails or allocates a thread. Every effect that leaves the machine carries a [`Gate`], the condition
//! under which it may leave. The shell (the runtime's event loop, or the simulator's world) runs [`turn::finish`]
//! after each batch of inputs; how a frame is sent or a file written is all that the two shells do differently.
//!
//! Invariants kept here: **D3** nothing leaves before its gate ([`held::Held`]); **R3.1** losing a role drops all it
//! held ([`Effect::DropHeld`]).

pub mod askers;
pub mod disk;
pub mod effects;
pub mod held;
pub mod rng;
pub mod trash;
pub mod turn;

pub use askers::Askers;
pub use disk::{Disk, FileName};
pub use effects::{Data, Effect, Effects, Endpoint, Gate, Span};
pub use held::Held;
pub use rng::Rng;
pub use trash::Trash;

use kasha_types::{ConnId, LocalPosition, LogSlice, Tick};

/// What happened. Borrows the transport's buffer.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// A whole frame whose checksum was right.
    Frame {
        /// The accepted connection it came in on, or the peer that was dialled.
        from: Endpoint,
        /// The frame's kind (see the wire crate's table).
        kind: u8,
        /// The bytes behind the frame's header.
        payload: &'a [u8],
    },
    /// An accepted connection is gone. Nothing sent to it from now on arrives.
    Closed(ConnId),
    /// A dialled connection could not be made or is gone. What was sent to it may be lost.
    Unreachable(Endpoint),
    /// Everything up to this commit is on its file (see [`Effect::Commit`]).
    Durable(LocalPosition),
    /// Nothing but time passed: `next_deadline` is reached.
    Tick,
}

/// A protocol state machine.
pub trait Machine {
    /// Handles one input. `now` was read **after** the input was received (section 7): a process that was stopped in
    /// between must not believe in a lease that ran out meanwhile. Cannot fail and cannot wait.
    fn step(&mut self, now: Tick, input: Input<'_>, out: &mut Effects);

    /// Closes a batch of inputs: one sync, one gc and one commit per turn, however many inputs it had.
    fn end_turn(&mut self, now: Tick, out: &mut Effects);

    /// When the machine wants an [`Input::Tick`] at the latest.
    fn next_deadline(&self) -> Option<Tick>;

    /// Whether an effect with this gate may leave now. Once open, a gate stays open until its role is lost.
    fn is_open(&self, gate: Gate) -> bool;

    /// The bytes that an effect names. Called while performing the effects of this machine only.
    fn log_bytes(&self, slice: LogSlice) -> &[u8];

    /// Checks what must hold between turns; panics where it does not. Simulation calls it after every turn.
    fn assert_invariants(&self) {}
}
