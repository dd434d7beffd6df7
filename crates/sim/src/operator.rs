//! An operator who changes the coordinator's group at random, while whatever else happens: members come and go, others lead, the group grows and
//! shrinks (R9.6, R9.14). An order goes to every process that may be a member, since the operator does not look who leads; and it comes again and
//! again, since an order may be lost.

use std::net::SocketAddr;

use kasha_machine::{Effect, Effects, Endpoint, Gate, Input, Machine, Rng};
use kasha_types::{LogSlice, NodeId, Tick};
use kasha_wire::Message;
use kasha_wire::message::{AdminOrder, AdminOutcome, Administer, Administered};

use crate::clock::{SimTime, millis};
use crate::process::Actor;

/// The name of its process.
pub const NAME: &str = "operator";

/// The shortest and the longest time between two times that an order is given.
const PAUSE: (u64, u64) = (millis(40), millis(250));

/// The leases that the operator orders, in milliseconds: none is longer than the usual one, by which others judge how long a fail-over takes.
const LEASES: &[u64] = &[150, 300, 500];

/// The operator's program.
pub struct Operator {
    rng: Rng,
    processes: u16,
    nonce: u64,
    order: Option<AdminOrder>,
    next_at: SimTime,
}

impl Operator {
    /// One who knows where all processes listen that may be members.
    pub fn new(seed: u64, processes: impl IntoIterator<Item = SocketAddr>, out: &mut Effects) -> Self {
        let mut count = 0;
        for address in processes {
            out.push(Effect::Route { to: Endpoint::Seed(count), address });
            count += 1;
        }
        Self { rng: Rng::new(seed), processes: count, nonce: 0, order: None, next_at: SimTime(0) }
    }

    fn draw(&mut self) -> AdminOrder {
        let node = NodeId(u16::try_from(self.rng.between(1, u64::from(self.processes))).expect("a few"));
        match self.rng.below(10) {
            0..3 => AdminOrder::Lead(node),
            3..5 => AdminOrder::RemoveMember(node),
            5..7 => AdminOrder::AddMember(node),
            7..9 => AdminOrder::Lease(*self.rng.pick(LEASES)),
            _ => AdminOrder::GroupOf(*self.rng.pick(&[1, 3, 3, 5])),
        }
    }
}

impl Machine for Operator {
    fn step(&mut self, _now: Tick, input: Input<'_>, _out: &mut Effects) {
        let Input::Frame { kind, payload, .. } = input else { return };
        let Some(Administered { nonce, outcome }) = Administered::from_frame(kind, payload) else { return };
        let is_over = matches!(outcome, AdminOutcome::Done(_) | AdminOutcome::Refused(_));
        if nonce == self.nonce && is_over {
            self.order = None;
        }
    }
    fn end_turn(&mut self, _now: Tick, _out: &mut Effects) {}
    fn next_deadline(&self) -> Option<Tick> {
        None
    }
    fn is_open(&self, _gate: Gate) -> bool {
        true
    }
    fn log_bytes(&self, _slice: LogSlice) -> &[u8] {
        unreachable!("an operator has no log")
    }
}

impl Actor for Operator {
    fn machine(&self) -> &dyn Machine {
        self
    }
    fn machine_mut(&mut self) -> &mut dyn Machine {
        self
    }

    fn drive(&mut self, _now: Tick, at: SimTime, out: &mut Effects) {
        if at < self.next_at {
            return;
        }
        self.next_at = at.after(self.rng.between(PAUSE.0, PAUSE.1));
        // Now and then the operator wants something else before it is done.
        let order = match self.order.take().filter(|_| !self.rng.chance(1, 20)) {
            Some(order) => order,
            None => {
                self.nonce += 1;
                self.draw()
            }
        };
        self.order = Some(order);
        for seed in 0..self.processes {
            let mark = out.mark();
            Administer { nonce: self.nonce, order }.encode(out.arena());
            let head = out.span_from(mark);
            out.push(Effect::Send { to: Endpoint::Seed(seed), head, tail: None, gate: Gate::Now });
        }
    }

    fn wake(&self) -> Option<SimTime> {
        Some(self.next_at)
    }
}
