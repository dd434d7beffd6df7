//! Updates that wait at the primary for something that will come: an answer of the coordinator, room, or the outcome of a
//! transaction. A parked update owns a copy of its body, and later comes in again as if it had just arrived: each stage decides
//! anew, by what is true then.
//!
//! - **R4.2** Nothing is recorded of a parked update. It has not run, and a witness must not drop it (`Why::replayed`).
//! - Its client may send it again meanwhile. The newest attempt is the one that is kept: no client waits for another. A copy of an
//!   attempt whose successor was not parked finds what that one came to.
//! - Room is looked for now and then, not in each turn: the first that waits is drafted for that.
//! - What is parked is bounded. The oldest is refused as it would have been without parking, and comes again by itself.

use std::collections::VecDeque;
use std::time::Duration;

use kasha_types::{RpcId, Tick};
use kasha_wire::Refusal;

use crate::request::{Caller, WaitsFor};

/// Updates that are parked at once, and bytes of their bodies.
const PARKED_MAX: usize = 256;
const PARKED_BYTES_MAX: usize = 4 << 20;
/// How often room is looked for while an update waits for it.
const ROOM_INTERVAL: Duration = Duration::from_millis(1);

/// An update that came from a client, and waits.
#[derive(Debug)]
pub(crate) struct Parked {
    pub caller: Caller,
    pub rpc: RpcId,
    pub body: Box<[u8]>,
    waits_for: WaitsFor,
}

/// The updates that wait, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    parked: VecDeque<Parked>,
    bytes: usize,
    room_due_at: Tick,
}

impl Parked {
    /// What its client is told if it waits no longer.
    pub fn refusal(&self) -> Refusal {
        self.waits_for.refusal()
    }

    fn gave_way(&self) -> bool {
        matches!(self.waits_for, WaitsFor::Turn(_))
    }
}

impl Parking {
    /// Keeps an update, in the place of an earlier attempt if there is one. Connections may deliver attempts out of order.
    /// What it keeps no longer is put into `refused`.
    pub fn park(&mut self, caller: Caller, rpc: RpcId, body: &[u8], waits_for: WaitsFor, refused: &mut Vec<Parked>) {
        let arrived = Parked { caller, rpc, body: body.into(), waits_for };
        match self.parked.iter_mut().find(|parked| parked.rpc == rpc) {
            Some(known) if known.caller.envelope.attempt > caller.envelope.attempt => {}
            Some(known) => {
                self.bytes += body.len();
                self.bytes -= std::mem::replace(known, arrived).body.len();
            }
            None => {
                self.bytes += body.len();
                self.parked.push_back(arrived);
            }
        }
        while self.parked.len() > PARKED_MAX || self.bytes > PARKED_BYTES_MAX {
            refused.push(self.take(|_| true).expect("it is over a limit"));
        }
    }

    /// When room is to be looked for: never, if nobody waits for it.
    #[inline]
    pub fn room_due_at(&self) -> Option<Tick> {
        if self.parked.is_empty() {
            return None; // nearly always
        }
        let is_waited_for = self.parked.iter().any(|parked| parked.waits_for == WaitsFor::Room);
        is_waited_for.then_some(self.room_due_at)
    }

    /// Whether it is time to look for room. The next time is a little later.
    #[inline]
    pub fn is_room_due(&mut self, now: Tick) -> bool {
        let is_due = self.room_due_at().is_some_and(|at| now >= at);
        if is_due {
            self.room_due_at = now.after(ROOM_INTERVAL);
        }
        is_due
    }

    /// Whether an attempt of this update is parked.
    pub fn holds(&self, rpc: RpcId) -> bool {
        self.parked.iter().any(|parked| parked.rpc == rpc)
    }

    /// How many wait for this.
    pub fn count(&self, what: WaitsFor) -> usize {
        self.parked.iter().filter(|parked| parked.waits_for == what).count()
    }

    /// Whether some have given way to those that have waited longer.
    pub fn has_those_that_gave_way(&self) -> bool {
        self.parked.iter().any(Parked::gave_way)
    }

    /// This update, if it has given way.
    pub fn take_if_it_gave_way(&mut self, rpc: RpcId) -> Option<Parked> {
        let at = self.parked.iter().position(|parked| parked.rpc == rpc && parked.gave_way())?;
        let parked = self.parked.remove(at)?;
        self.bytes -= parked.body.len();
        Some(parked)
    }

    /// Updates that are parked.
    pub fn len(&self) -> usize {
        self.parked.len()
    }

    /// The oldest that waits for this.
    pub fn take(&mut self, is_it: impl Fn(WaitsFor) -> bool) -> Option<Parked> {
        let at = self.parked.iter().position(|parked| is_it(parked.waits_for))?;
        let parked = self.parked.remove(at)?;
        self.bytes -= parked.body.len();
        Some(parked)
    }
}
